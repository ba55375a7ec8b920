//! The keys of a dataset: a master key, from which the key of each block is derived, and a key that authenticates.

use core::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use format::crypt::{HMAC_KEY, IV, KEY, MAC, SALT, Sealing, Suite};
use hkdf::Hkdf;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha512;
use zeroize::Zeroizing;

use super::aead::Cipher;
use super::locked::Locked;
use super::pointers::{MacVersion, truncated};
use super::traces::without_traces;

/// The number of derived keys that are kept. A dataset gets a new salt each time that it is opened for writing, and
/// blocks with the same salt lie close to each other.
const KEPT: usize = 16;

/// Blocks that are sealed with one salt, at most: as many as in OpenZFS.
const SALT_USES: u64 = 400_000_000;

/// The salt for new blocks, and the number of blocks that it may still be used for.
#[derive(Default)]
struct CurrentSalt {
    salt: [u8; SALT],
    left: u64,
}

/// The master key and the key that authenticates.
type Secrets = (Zeroizing<[u8; KEY]>, Zeroizing<[u8; HMAC_KEY]>);

/// The key of the blocks that have this salt.
type Derived = ([u8; SALT], Arc<Locked<Cipher>>);

/// The unwrapped keys of a dataset. All readers and writers share them. They are zeroed when dropped, and never printed.
pub struct DatasetKeys {
    suite: Suite,
    guid: u64,
    version: u64,
    secrets: Locked<Secrets>,
    /// Keys of blocks by their salts, the last used first.
    derived: Mutex<Vec<Derived>>,
    current: Mutex<CurrentSalt>,
}

impl fmt::Debug for DatasetKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatasetKeys")
            .field("suite", &self.suite)
            .field("guid", &self.guid)
            .finish_non_exhaustive()
    }
}

impl DatasetKeys {
    /// The keys of a new dataset, from random bytes: the master key first, then the key that authenticates.
    #[must_use]
    pub fn generate(suite: Suite, guid: u64, random: &mut dyn FnMut(&mut [u8])) -> DatasetKeys {
        without_traces(|| {
            let mut secrets = Zeroizing::new([0; KEY + HMAC_KEY]);
            random(&mut secrets[..]);
            let (master, hmac) = secrets.split_at(KEY);
            DatasetKeys::new(suite, guid, 1, &master[..suite.key_len()], hmac)
        })
    }

    /// Keys that were wrapped: as many bytes of `master` as the suite has, 64 of `hmac`.
    pub(super) fn new(suite: Suite, guid: u64, version: u64, master: &[u8], hmac: &[u8]) -> DatasetKeys {
        let mut keys = DatasetKeys {
            suite,
            guid,
            version,
            secrets: Locked::new((Zeroizing::new([0; KEY]), Zeroizing::new([0; HMAC_KEY]))),
            derived: Mutex::default(),
            current: Mutex::default(),
        };
        keys.secrets.0[..master.len()].copy_from_slice(master);
        keys.secrets.1.copy_from_slice(hmac);
        keys
    }

    /// The suite.
    #[must_use]
    pub const fn suite(&self) -> Suite {
        self.suite
    }

    /// The guid of the master key, which never changes.
    #[must_use]
    pub const fn guid(&self) -> u64 {
        self.guid
    }

    /// The version of the key object: 1, or 0 in pools of before the first release of encryption.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// The version of the rules by which block pointers enter authentication codes in datasets with these keys.
    #[must_use]
    pub const fn mac_version(&self) -> MacVersion {
        if self.version == 0 { MacVersion::Zero } else { MacVersion::One }
    }

    pub(super) fn secrets(&self) -> (&[u8; KEY], &[u8; HMAC_KEY]) {
        (&self.secrets.0, &self.secrets.1)
    }

    /// The salt and the initialisation vector for the next block. Each call gives another initialisation vector. The salt
    /// changes each time that the keys are opened, and after many blocks.
    #[must_use]
    pub fn next_sealing(&self, random: &mut dyn FnMut(&mut [u8])) -> Sealing {
        let mut sealing = Sealing::default();
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.left == 0 {
            random(&mut current.salt);
            current.left = SALT_USES;
        }
        current.left -= 1;
        sealing.salt = current.salt;
        random(&mut sealing.iv);
        sealing
    }

    /// The cipher of all blocks with this salt.
    pub(super) fn cipher(&self, salt: [u8; SALT]) -> Arc<Locked<Cipher>> {
        let mut kept = self.derived.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = kept.iter().position(|(known, _)| *known == salt) {
            kept[..=at].rotate_right(1);
            return Arc::clone(&kept[0].1);
        }
        let cipher = Arc::new(without_traces(|| Locked::new(self.derive(salt))));
        kept.truncate(KEPT - 1);
        kept.insert(0, (salt, Arc::clone(&cipher)));
        cipher
    }

    fn derive(&self, salt: [u8; SALT]) -> Cipher {
        let mut key = Zeroizing::new([0; KEY]);
        let len = self.suite.key_len();
        Hkdf::<Sha512>::new(None, &self.secrets.0[..len])
            .expand(&salt, &mut key[..len])
            .expect("a key is shorter than 255 hashes");
        Cipher::new(self.suite, &key)
    }

    /// The authentication code of a block of a type that is never encrypted, as it lies on the disk.
    #[must_use]
    pub fn authenticate(&self, block: &[u8]) -> [u8; MAC] {
        truncated(&self.hmac_of(&[block]))
    }

    /// The salt and the initialisation vector for a block that may enter a dedup table: the same content gives the same
    /// sealed bytes. `block` is compressed and not sealed yet.
    #[must_use]
    pub fn dedup_sealing(&self, block: &[u8]) -> Sealing {
        let digest = self.hmac_of(&[block]);
        let (mut salt, mut iv) = ([0; SALT], [0; IV]);
        salt.copy_from_slice(&digest[..SALT]);
        iv.copy_from_slice(&digest[SALT..SALT + IV]);
        Sealing { salt, iv }
    }

    /// HMAC-SHA512 with the key that authenticates, over the pieces one after the other.
    pub(super) fn hmac_of(&self, pieces: &[&[u8]]) -> [u8; 64] {
        let mut mac =
            Hmac::<Sha512>::new_from_slice(&self.secrets.1[..]).expect("HMAC takes keys of any length");
        pieces.iter().for_each(|piece| mac.update(piece));
        mac.finalize().into_bytes().into()
    }
}
