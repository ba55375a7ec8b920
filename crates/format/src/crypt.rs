//! Native encryption: suites, wrapped keys, and the encryption parameters in block pointers.
//!
//! From:   the entries of a key object (a ZAP of a dataset's directory), and words of block pointers.
//! To:     `codec`, which opens and seals blocks with these values.
//! Source: docs/format/13-encryption.md §1, §2, §3.1.

use crate::{ByteOrder, Corrupt};

/// Bytes of the salt from which the key of a block is derived.
pub const SALT: usize = 8;
/// Bytes of an initialisation vector.
pub const IV: usize = 12;
/// Bytes of the authentication code of a block.
pub const MAC: usize = 16;
/// Bytes of a wrapping key, and room for a wrapped master key.
pub const KEY: usize = 32;
/// Bytes of the key that authenticates.
pub const HMAC_KEY: usize = 64;

/// Key in the ZAP of a dataset's directory: the number of the key object.
pub const KEY_OBJECT: &str = "com.datto:crypto_key_obj";

/// Names of the entries of a key object.
pub mod entry {
    /// The suite's number.
    pub const SUITE: &str = "DSL_CRYPTO_SUITE";
    /// The directory object of the encryption root.
    pub const ROOT: &str = "DSL_CRYPTO_ROOT_DDOBJ";
    /// Names the master key for its whole life.
    pub const GUID: &str = "DSL_CRYPTO_GUID";
    /// Initialisation vector of the wrapping.
    pub const IV: &str = "DSL_CRYPTO_IV";
    /// Authentication code of the wrapping.
    pub const MAC: &str = "DSL_CRYPTO_MAC";
    /// The wrapped master key.
    pub const MASTER_KEY: &str = "DSL_CRYPTO_MASTER_KEY_1";
    /// The wrapped key that authenticates.
    pub const HMAC_KEY: &str = "DSL_CRYPTO_HMAC_KEY_1";
    /// How many directories name the object.
    pub const REFCOUNT: &str = "DSL_CRYPTO_REFCOUNT";
    /// Version of the format; absent in pools of before its first release.
    pub const VERSION: &str = "DSL_CRYPTO_VERSION";
    /// The form of the user's key: a [`KeyFormat`](super::KeyFormat).
    pub const KEY_FORMAT: &str = "keyformat";
    /// Salt with which a pass phrase becomes a wrapping key.
    pub const SALT: &str = "pbkdf2salt";
    /// Rounds in which a pass phrase becomes a wrapping key.
    pub const ITERATIONS: &str = "pbkdf2iters";
}

/// The mode in which AES is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Counter with CBC-MAC.
    Ccm,
    /// Galois/counter mode.
    Gcm,
}

/// An encryption suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say all")]
pub enum Suite {
    Aes128Ccm,
    Aes192Ccm,
    Aes256Ccm,
    Aes128Gcm,
    Aes192Gcm,
    Aes256Gcm,
}

impl Suite {
    /// All suites, in the order of their numbers, which begin with 3.
    pub const ALL: [Suite; 6] = [
        Suite::Aes128Ccm,
        Suite::Aes192Ccm,
        Suite::Aes256Ccm,
        Suite::Aes128Gcm,
        Suite::Aes192Gcm,
        Suite::Aes256Gcm,
    ];

    /// Whether it works with CCM, and not with GCM.
    #[must_use]
    pub const fn is_ccm(self) -> bool {
        matches!(self, Suite::Aes128Ccm | Suite::Aes192Ccm | Suite::Aes256Ccm)
    }

    /// The suite that `encryption=on` means.
    pub const DEFAULT: Suite = Suite::Aes256Gcm;

    /// The suite of a number in a key object or a stream.
    ///
    /// # Errors
    /// [`Corrupt`] for 0 to 2, which are values of the property, and for suites that OpenZFS 2.4 does not have.
    pub fn from_disk(number: u64) -> Result<Suite, Corrupt> {
        let index = usize::try_from(number).ok().and_then(|n| n.checked_sub(3));
        index.and_then(|i| Suite::ALL.get(i)).copied().ok_or(Corrupt::new("encryption suite", number))
    }

    /// Its number on disk.
    #[must_use]
    pub const fn to_disk(self) -> u64 {
        self as u64 + 3
    }

    /// Its name as a value of the property `encryption`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Suite::Aes128Ccm => "aes-128-ccm",
            Suite::Aes192Ccm => "aes-192-ccm",
            Suite::Aes256Ccm => "aes-256-ccm",
            Suite::Aes128Gcm => "aes-128-gcm",
            Suite::Aes192Gcm => "aes-192-gcm",
            Suite::Aes256Gcm => "aes-256-gcm",
        }
    }

    /// How it uses AES.
    #[must_use]
    pub const fn mode(self) -> Mode {
        match self {
            Suite::Aes128Ccm | Suite::Aes192Ccm | Suite::Aes256Ccm => Mode::Ccm,
            Suite::Aes128Gcm | Suite::Aes192Gcm | Suite::Aes256Gcm => Mode::Gcm,
        }
    }

    /// Bytes of its keys: 16, 24 or 32.
    #[must_use]
    pub const fn key_len(self) -> usize {
        match self {
            Suite::Aes128Ccm | Suite::Aes128Gcm => 16,
            Suite::Aes192Ccm | Suite::Aes192Gcm => 24,
            Suite::Aes256Ccm | Suite::Aes256Gcm => 32,
        }
    }
}

/// The form in which a user gives a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyFormat {
    /// The 32 bytes themselves.
    Raw,
    /// 64 hexadecimal digits.
    Hex,
    /// A pass phrase, from which the key is derived.
    Passphrase,
}

impl KeyFormat {
    /// The format of a number in a key object.
    ///
    /// # Errors
    /// [`Corrupt`] for a number that is not 1 to 3.
    pub const fn from_disk(number: u64) -> Result<KeyFormat, Corrupt> {
        match number {
            1 => Ok(KeyFormat::Raw),
            2 => Ok(KeyFormat::Hex),
            3 => Ok(KeyFormat::Passphrase),
            other => Err(Corrupt::new("key format", other)),
        }
    }

    /// Its number on disk.
    #[must_use]
    pub const fn to_disk(self) -> u64 {
        self as u64 + 1
    }

    /// Its name as a value of the property `keyformat`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            KeyFormat::Raw => "raw",
            KeyFormat::Hex => "hex",
            KeyFormat::Passphrase => "passphrase",
        }
    }
}

/// A master key and an authentication key as on disk: wrapped with the user's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrappedKeys {
    /// The suite that uses the master key.
    pub suite: Suite,
    /// Names the master key for its whole life, in streams, too.
    pub guid: u64,
    /// Version of the format of macs: 1, or 0 in pools of before its first release.
    pub version: u64,
    /// Initialisation vector of the wrapping.
    pub iv: [u8; IV],
    /// Authentication code of the wrapping.
    pub mac: [u8; MAC],
    /// The master key; bytes after the suite's key length mean nothing.
    pub master: [u8; KEY],
    /// The key that authenticates.
    pub hmac: [u8; HMAC_KEY],
}

/// Encryption parameters of a pointer's block: in the place of the third DVA and in the upper half of the fill field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Sealing {
    /// Which key: it is derived from the master key with this salt.
    pub salt: [u8; SALT],
    /// Initialisation vector: never used twice with the same key.
    pub iv: [u8; IV],
}

impl Sealing {
    /// From the two words of the third DVA and the upper half of the fill count. `order` is that of the block pointed to: its writer
    /// stored byte strings.
    #[must_use]
    pub fn decode(words: [u64; 2], tail: u32, order: ByteOrder) -> Sealing {
        let mut iv = [0; IV];
        order.put_u64(&mut iv, 0, words[1]);
        order.put_u32(&mut iv, 8, tail);
        let mut salt = [0; SALT];
        order.put_u64(&mut salt, 0, words[0]);
        Sealing { salt, iv }
    }

    /// The two words and the upper half of the fill count.
    #[must_use]
    pub fn encode(&self, order: ByteOrder) -> ([u64; 2], u32) {
        ([order.u64(&self.salt, 0), order.u64(&self.iv, 0)], order.u32(&self.iv, 8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_have_the_numbers_of_openzfs() {
        let numbers = Suite::ALL.map(Suite::to_disk);
        assert_eq!(numbers, [3, 4, 5, 6, 7, 8]);
        for suite in Suite::ALL {
            assert_eq!(Suite::from_disk(suite.to_disk()), Ok(suite));
            assert!(suite.name().contains(&alloc::format!("{}", suite.key_len() * 8)));
        }
        for number in [0, 1, 2, 9, u64::MAX] {
            assert!(Suite::from_disk(number).is_err());
        }
        for format in [KeyFormat::Raw, KeyFormat::Hex, KeyFormat::Passphrase] {
            assert_eq!(KeyFormat::from_disk(format.to_disk()), Ok(format));
        }
        assert!(KeyFormat::from_disk(0).is_err() && KeyFormat::from_disk(4).is_err());
    }

    #[test]
    fn encryption_parameters_are_bytes_in_the_order_of_their_writer() {
        let sealing = Sealing { salt: *b"saltsalt", iv: *b"iv-iv-iv-iv-" };
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let (words, tail) = sealing.encode(order);
            assert_eq!(Sealing::decode(words, tail, order), sealing);
        }
        assert_eq!(sealing.encode(ByteOrder::Little).0[0], u64::from_le_bytes(*b"saltsalt"));
        assert_eq!(sealing.encode(ByteOrder::Big).0[0], u64::from_be_bytes(*b"saltsalt"));
    }
}
