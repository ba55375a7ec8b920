//! Encrypted datasets as users see them: which key they need, and whether it is loaded.

use codec::crypt::WrappingKey;
use dsl::info::DatasetInfo;
use dsl::tree;
use format::ObjectId;

use crate::features::FeatureState;
use crate::keys::{self, KeyObject};
use crate::pool::{Inner, Pool};
use crate::{Error, KeyError, Result};

/// What is known of the encryption of a dataset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encryption {
    /// Its key object.
    pub object: KeyObject,
    /// The dataset whose user key opens it.
    pub root: String,
    /// Whether that key is loaded.
    pub is_loaded: bool,
}

impl Pool {
    /// How a dataset is encrypted; `None` if it is not.
    ///
    /// # Errors
    /// If that cannot be read.
    pub fn encryption(&self, info: &DatasetInfo) -> Result<Option<Encryption>> {
        let _shared = self.shared();
        self.inner.encryption(info)
    }

    /// Whether a dataset of the pool is encrypted.
    pub fn has_encrypted(&self) -> bool {
        self.info().feature(&format::features::ENCRYPTION) == FeatureState::Active
    }

    /// Whether a dataset is encrypted and its key is not loaded.
    ///
    /// # Errors
    /// If that cannot be read.
    pub fn lacks_key(&self, info: &DatasetInfo) -> Result<bool> {
        Ok(self.encryption(info)?.is_some_and(|encryption| !encryption.is_loaded))
    }

    /// The directories of the encryption roots whose keys are loaded in this process.
    pub fn loaded_keys(&self) -> Vec<u64> {
        self.inner.keyring.roots().into_iter().map(|root| root.0).collect()
    }

    /// Notes the keys that are loaded in the process that holds the pool, for who only looks at the pool: `keystatus` is that
    /// of the other process. Blocks are not opened with them.
    pub fn note_loaded_keys(&self, roots: &[u64]) {
        self.inner.keyring.note_elsewhere(roots.iter().copied().map(ObjectId));
    }

    /// Loads the user's key of an encryption root, or, in a dry run, only tries whether it is the right one.
    ///
    /// # Errors
    /// [`KeyError`]: the key is wrong or loaded already, or `info` is no encryption root.
    pub fn load_key(&self, info: &DatasetInfo, key: WrappingKey, dry_run: bool) -> Result<()> {
        let _shared = self.shared();
        let encryption = self.inner.encryption_of_root(info)?;
        if encryption.is_loaded && !dry_run {
            return Err(KeyError::AlreadyLoaded(info.name.clone()).into());
        }
        key.unwrap(&encryption.object.wrapped).map_err(|_| KeyError::Wrong(info.name.clone()))?;
        if !dry_run {
            self.inner.keyring.load(encryption.object.root, key);
        }
        Ok(())
    }

    /// Forgets the user's key of an encryption root, with all that was read with it.
    ///
    /// # Errors
    /// [`KeyError`]: it is not loaded, or `info` is no encryption root; [`Error::DatasetBusy`] while a dataset that needs it is
    /// open.
    pub fn unload_key(&self, info: &DatasetInfo) -> Result<()> {
        let _shared = self.shared();
        let encryption = self.inner.encryption_of_root(info)?;
        if !encryption.is_loaded {
            return Err(KeyError::NotLoaded(info.name.clone()).into());
        }
        if !self.inner.keyring.unload(&self.inner.mos, encryption.object.root)? {
            return Err(Error::DatasetBusy(info.name.clone()));
        }
        self.inner.storage.cache().clear();
        Ok(())
    }
}

impl Inner {
    fn encryption(&self, info: &DatasetInfo) -> Result<Option<Encryption>> {
        let Some(object) = keys::of(&self.mos, info.dir_id)? else { return Ok(None) };
        let root = tree::name_of(&self.view(), object.root)?;
        Ok(Some(Encryption { object, root, is_loaded: self.keyring.has(object.root) }))
    }

    fn encryption_of_root(&self, info: &DatasetInfo) -> Result<Encryption> {
        let Some(encryption) = self.encryption(info)? else {
            return Err(KeyError::NotEncrypted(info.name.clone()).into());
        };
        if encryption.object.root != info.dir_id {
            return Err(KeyError::NotRoot { dataset: info.name.clone(), root: encryption.root }.into());
        }
        Ok(encryption)
    }
}
