//! Encrypted datasets as users see them: which key they need, and whether it is loaded.

use codec::crypt::WrappingKey;
use dsl::change_key::KeyChange;
use dsl::info::DatasetInfo;
use dsl::room::Reserve;
use dsl::tree;
use format::ObjectId;

use crate::features::FeatureState;
use crate::keys::{self, KeyObject};
use crate::pool::{Inner, Pool};
use crate::props::Value;
use crate::{Error, KeyError, Result};

/// A dataset that only the pool itself has open is closed after at most this many syncs.
const UNLOAD_SYNCS: u32 = 4;

/// Encryption state of a dataset.
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

    /// For a process that only reads the pool: records which keys the process that holds the pool has loaded. The property
    /// `keystatus` shows them. They decrypt nothing here.
    pub fn note_loaded_keys(&self, roots: &[u64]) {
        self.inner.keyring.note_elsewhere(roots.iter().copied().map(ObjectId));
    }

    /// Loads the user's key of an encryption root. In a dry run it only checks whether the key is right.
    ///
    /// # Errors
    /// [`KeyError`]: the key is wrong or loaded already, or `info` is no encryption root.
    pub fn load_key(&self, info: &DatasetInfo, key: WrappingKey, dry_run: bool) -> Result<()> {
        let _shared = self.shared();
        let encryption = self.inner.encryption_of_root(info)?;
        if self.inner.keyring.is_here(encryption.object.root) && !dry_run {
            return Err(KeyError::AlreadyLoaded(info.name.clone()).into());
        }
        key.unwrap(&encryption.object.wrapped).map_err(|_| KeyError::Wrong(info.name.clone()))?;
        if !dry_run {
            // Blocks that were read without the key were not compared with their authentication codes.
            self.inner.storage.cache().clear();
            self.inner.keyring.load(encryption.object.root, key);
        }
        Ok(())
    }

    /// Unloads the user's key of an encryption root and drops all cached data that was decrypted with it.
    ///
    /// # Errors
    /// [`KeyError`]: it is not loaded, or `info` is no encryption root; [`Error::DatasetBusy`] while a dataset that needs it is
    /// open.
    pub fn unload_key(&self, info: &DatasetInfo) -> Result<()> {
        for _ in 0..UNLOAD_SYNCS {
            if self.try_unload(info)? {
                self.inner.storage.cache().clear();
                return Ok(());
            }
            // Intent logs and unsynced changes keep datasets open that have no users.
            let logged: Vec<_> = self.inner.open.logged().keys().copied().collect();
            for id in logged.into_iter().filter(|id| !self.inner.open.is_used(*id)) {
                if let Some(dataset) = self.inner.open.logged().get(&id) {
                    dataset.log.close();
                }
            }
            self.sync()?;
        }
        Err(Error::DatasetBusy(info.name.clone()))
    }

    fn try_unload(&self, info: &DatasetInfo) -> Result<bool> {
        let _shared = self.shared();
        let encryption = self.inner.encryption_of_root(info)?;
        if !encryption.is_loaded {
            return Err(KeyError::NotLoaded(info.name.clone()).into());
        }
        self.inner.keyring.unload(&self.inner.mos, encryption.object.root)
    }
}

impl Pool {
    /// Changes the user's key of a file system or volume, and so of all datasets that inherit it.
    ///
    /// # Errors
    /// [`KeyError`], [`Error::NoDataset`]; nothing has changed then.
    pub fn change_key(&self, name: &str, change: KeyChange, own: Vec<(String, Value)>) -> Result<()> {
        let name = name.to_owned();
        self.run_beside(Reserve::Half, 1, move |syncing| {
            syncing.change(|dsl| {
                dsl.change_key(&name, &change)?;
                let dir = tree::dir_of(dsl.mos(), &dsl.view.pool, &name)?;
                own.iter().try_for_each(|(name, value)| dsl.set_property(dir, name, Some(value)))
            })
        })
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
