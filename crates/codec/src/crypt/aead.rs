//! Authenticated AES: one function seals and one opens for all six suites.

use aes::{Aes128, Aes192, Aes256};
use aes_gcm::AesGcm;
use aes_gcm::aead::consts::{U12, U16};
use aes_gcm::aead::{AeadInOut, KeyInit, KeySizeUser};
use ccm::Ccm;
use format::crypt::{IV, MAC, Mode, Suite};

use super::error::CryptError;

/// An expanded key with its mode. Its memory is zeroed when it is dropped.
pub(super) enum Cipher {
    Gcm128(Box<AesGcm<Aes128, U12>>),
    Gcm192(Box<AesGcm<Aes192, U12>>),
    Gcm256(Box<AesGcm<Aes256, U12>>),
    Ccm128(Box<Ccm<Aes128, U16, U12>>),
    Ccm192(Box<Ccm<Aes192, U16, U12>>),
    Ccm256(Box<Ccm<Aes256, U16, U12>>),
}

/// Calls the same method of each kind of cipher.
macro_rules! with {
    ($cipher:expr, $name:ident => $call:expr) => {
        match $cipher {
            Cipher::Gcm128($name) => $call,
            Cipher::Gcm192($name) => $call,
            Cipher::Gcm256($name) => $call,
            Cipher::Ccm128($name) => $call,
            Cipher::Ccm192($name) => $call,
            Cipher::Ccm256($name) => $call,
        }
    };
}

/// Expands the first bytes of `key`, as many as the cipher takes.
fn expanded<C: KeyInit + KeySizeUser>(key: &[u8; 32]) -> Box<C> {
    let key = &key[..C::key_size()];
    Box::new(C::new_from_slice(key).expect("AES keys have 32 bytes at most, and this one its length"))
}

impl Cipher {
    /// The cipher of a suite with a key: its first bytes, as many as the suite has.
    pub(super) fn new(suite: Suite, key: &[u8; 32]) -> Cipher {
        match suite {
            Suite::Aes128Ccm => Cipher::Ccm128(expanded(key)),
            Suite::Aes192Ccm => Cipher::Ccm192(expanded(key)),
            Suite::Aes256Ccm => Cipher::Ccm256(expanded(key)),
            Suite::Aes128Gcm => Cipher::Gcm128(expanded(key)),
            Suite::Aes192Gcm => Cipher::Gcm192(expanded(key)),
            Suite::Aes256Gcm => Cipher::Gcm256(expanded(key)),
        }
    }

    /// The cipher that wraps keys: the mode of the suite, always with all 32 bytes of the key.
    pub(super) fn wrapping(mode: Mode, key: &[u8; 32]) -> Cipher {
        match mode {
            Mode::Ccm => Cipher::Ccm256(expanded(key)),
            Mode::Gcm => Cipher::Gcm256(expanded(key)),
        }
    }

    /// Seals `message` in place and gives its authentication code. `aad` is covered by the code and stays readable.
    ///
    /// # Errors
    /// [`CryptError::TooLong`] for a message that CCM cannot take.
    pub(super) fn seal(
        &self,
        iv: &[u8; IV],
        aad: &[u8],
        message: &mut [u8],
    ) -> Result<[u8; MAC], CryptError> {
        let len = message.len();
        let iv = iv.into();
        let mac = with!(self, cipher => cipher.encrypt_inout_detached(iv, aad, message.into()));
        mac.map(Into::into).map_err(|_| CryptError::TooLong(len))
    }

    /// Opens `message` in place. If that fails, the message stays sealed (GCM) or is zeroed (CCM).
    ///
    /// # Errors
    /// [`CryptError::Unauthentic`].
    pub(super) fn open(
        &self,
        iv: &[u8; IV],
        aad: &[u8],
        message: &mut [u8],
        mac: &[u8; MAC],
    ) -> Result<(), CryptError> {
        let (iv, mac) = (iv.into(), mac.into());
        let opened = with!(self, cipher => cipher.decrypt_inout_detached(iv, aad, message.into(), mac));
        opened.map_err(|_| CryptError::Unauthentic)
    }
}
