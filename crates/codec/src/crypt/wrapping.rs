//! The user's key, which wraps the keys of datasets.

use core::fmt;

use format::crypt::{HMAC_KEY, IV, KEY, Suite, WrappedKeys};
use zeroize::Zeroizing;

use super::aead::Cipher;
use super::error::CryptError;
use super::keys::DatasetKeys;
use super::locked::Locked;
use super::traces::without_traces;

/// Fewest rounds in which a new pass phrase may become a key.
pub const MIN_ITERATIONS: u64 = 100_000;

/// The user's key, in the form in which it wraps the keys of datasets. It zeroes itself and is never printed.
pub struct WrappingKey(Locked<Zeroizing<[u8; KEY]>>);

impl Clone for WrappingKey {
    fn clone(&self) -> WrappingKey {
        let mut key = WrappingKey::zeros();
        key.0.copy_from_slice(&self.0[..]);
        key
    }
}

impl PartialEq for WrappingKey {
    fn eq(&self, other: &WrappingKey) -> bool {
        self.0[..] == other.0[..]
    }
}

impl Eq for WrappingKey {}

impl fmt::Debug for WrappingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WrappingKey(…)")
    }
}

impl WrappingKey {
    fn zeros() -> WrappingKey {
        WrappingKey(Locked::new(Zeroizing::new([0; KEY])))
    }

    /// From the 32 bytes themselves.
    ///
    /// # Errors
    /// [`CryptError::KeyLength`].
    pub fn raw(bytes: &[u8]) -> Result<WrappingKey, CryptError> {
        if bytes.len() != KEY {
            return Err(CryptError::KeyLength { expected: KEY, found: bytes.len() });
        }
        Ok(without_traces(|| {
            let mut key = WrappingKey::zeros();
            key.0.copy_from_slice(bytes);
            key
        }))
    }

    /// From 64 hexadecimal digits.
    ///
    /// # Errors
    /// [`CryptError::KeyLength`], [`CryptError::NotHex`].
    pub fn hex(digits: &[u8]) -> Result<WrappingKey, CryptError> {
        if digits.len() != 2 * KEY {
            return Err(CryptError::KeyLength { expected: 2 * KEY, found: digits.len() });
        }
        without_traces(|| {
            let mut key = WrappingKey::zeros();
            for (byte, pair) in key.0.iter_mut().zip(digits.chunks_exact(2)) {
                let digit = |d: u8| (d as char).to_digit(16).ok_or(CryptError::NotHex);
                *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
            }
            Ok(key)
        })
    }

    /// Derived from a pass phrase: PBKDF2 with HMAC-SHA1. A zero byte ends the pass phrase.
    ///
    /// # Errors
    /// [`CryptError::Iterations`]: none, or more than 2³² − 1.
    pub fn passphrase(phrase: &[u8], salt: u64, iterations: u64) -> Result<WrappingKey, CryptError> {
        // The number comes from the pool or from a stream, which may be damaged or hostile.
        let rounds = u32::try_from(iterations).ok().filter(|rounds| *rounds > 0);
        let rounds = rounds.ok_or(CryptError::Iterations(iterations))?;
        let phrase = phrase.split(|byte| *byte == 0).next().unwrap_or_default();
        Ok(without_traces(|| {
            let mut key = WrappingKey::zeros();
            pbkdf2::pbkdf2_hmac::<sha1::Sha1>(phrase, &salt.to_le_bytes(), rounds, &mut key.0[..]);
            key
        }))
    }

    /// Opens the keys of a dataset.
    ///
    /// # Errors
    /// [`CryptError::Unauthentic`]: this is not the key with which they were wrapped.
    pub fn unwrap(&self, wrapped: &WrappedKeys) -> Result<DatasetKeys, CryptError> {
        without_traces(|| self.opened(wrapped))
    }

    fn opened(&self, wrapped: &WrappedKeys) -> Result<DatasetKeys, CryptError> {
        let master_len = wrapped.suite.key_len();
        let mut message = Zeroizing::new([0; KEY + HMAC_KEY]);
        let message = &mut message[..master_len + HMAC_KEY];
        message[..master_len].copy_from_slice(&wrapped.master[..master_len]);
        message[master_len..].copy_from_slice(&wrapped.hmac);
        let (aad, len) = bound_to(wrapped.suite, wrapped.guid, wrapped.version);
        let cipher = Cipher::wrapping(wrapped.suite.mode(), &self.0);
        cipher.open(&wrapped.iv, &aad[..len], message, &wrapped.mac)?;
        Ok(DatasetKeys::new(
            wrapped.suite,
            wrapped.guid,
            wrapped.version,
            &message[..master_len],
            &message[master_len..],
        ))
    }

    /// Wraps the keys of a dataset. `iv` must be new: it is never used twice with one wrapping key.
    #[must_use]
    pub fn wrap(&self, keys: &DatasetKeys, iv: [u8; IV]) -> WrappedKeys {
        without_traces(|| self.sealed(keys, iv))
    }

    fn sealed(&self, keys: &DatasetKeys, iv: [u8; IV]) -> WrappedKeys {
        let master_len = keys.suite().key_len();
        let (master, hmac) = keys.secrets();
        let mut message = Zeroizing::new([0; KEY + HMAC_KEY]);
        let message = &mut message[..master_len + HMAC_KEY];
        message[..master_len].copy_from_slice(&master[..master_len]);
        message[master_len..].copy_from_slice(hmac);
        let (aad, len) = bound_to(keys.suite(), keys.guid(), keys.version());
        let cipher = Cipher::wrapping(keys.suite().mode(), &self.0);
        let mac = cipher.seal(&iv, &aad[..len], message).expect("96 bytes are no long message");
        let mut wrapped = WrappedKeys {
            suite: keys.suite(),
            guid: keys.guid(),
            version: keys.version(),
            iv,
            mac,
            master: [0; KEY],
            hmac: [0; HMAC_KEY],
        };
        wrapped.master[..master_len].copy_from_slice(&message[..master_len]);
        wrapped.hmac.copy_from_slice(&message[master_len..]);
        wrapped
    }
}

/// The bytes that are authenticated beside the keys, and their length: version 0 knew the guid only.
fn bound_to(suite: Suite, guid: u64, version: u64) -> ([u8; 24], usize) {
    let mut aad = [0; 24];
    aad[..8].copy_from_slice(&guid.to_le_bytes());
    aad[8..16].copy_from_slice(&suite.to_disk().to_le_bytes());
    aad[16..].copy_from_slice(&version.to_le_bytes());
    (aad, if version == 0 { 8 } else { 24 })
}
