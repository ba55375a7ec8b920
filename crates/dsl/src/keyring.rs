//! Loaded keys of encrypted datasets: the users' keys, and the dataset keys that they unwrapped.
//!
//! Keys never leave this process. They are zeroed when dropped and never printed.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use codec::crypt::{DatasetKeys, WrappingKey};
use format::ObjectId;
use storage::rank::{MutexHeld, Rank, RankedMutex};

use crate::keys;
use crate::mos::Mos;
use crate::{KeyError, Result};

/// The keys that are loaded.
pub struct Keyring {
    table: RankedMutex<Table>,
}

impl Default for Keyring {
    fn default() -> Keyring {
        Keyring { table: RankedMutex::new(Rank::Keyring, Table::default()) }
    }
}

#[derive(Default)]
struct Table {
    /// Users' keys by the directories of their encryption roots.
    of_users: HashMap<ObjectId, WrappingKey>,
    /// Encryption roots whose keys are loaded in the process that holds the pool.
    elsewhere: HashSet<ObjectId>,
    /// Keys of open datasets by their key objects: clones share those of their origin.
    of_datasets: HashMap<ObjectId, Weak<DatasetKeys>>,
}

impl Keyring {
    fn table(&self) -> MutexHeld<'_, Table> {
        self.table.lock_after_panics()
    }

    /// Whether the key of this encryption root is loaded, here or in the process that holds the pool.
    pub fn has(&self, root: ObjectId) -> bool {
        let table = self.table();
        table.of_users.contains_key(&root) || table.elsewhere.contains(&root)
    }

    /// Whether the key of this encryption root is loaded here.
    pub fn is_here(&self, root: ObjectId) -> bool {
        self.table().of_users.contains_key(&root)
    }

    /// Calls `f` with the key of this encryption root; `None` if it is not loaded here.
    pub(crate) fn with_key<T>(&self, root: ObjectId, f: impl FnOnce(&WrappingKey) -> T) -> Option<T> {
        self.table().of_users.get(&root).map(f)
    }

    /// The encryption roots whose keys are here.
    pub fn roots(&self) -> Vec<ObjectId> {
        self.table().of_users.keys().copied().collect()
    }

    /// Records which keys are loaded in the process that holds the pool.
    pub fn note_elsewhere(&self, roots: impl IntoIterator<Item = ObjectId>) {
        self.table().elsewhere = roots.into_iter().collect();
    }

    /// The keys of the dataset `name` in this directory; `None` if it is not encrypted.
    ///
    /// # Errors
    /// [`KeyError::NotLoaded`]; [`KeyError::Wrong`] if they are wrapped with another key by now; or they cannot be
    /// read.
    pub fn keys_of(&self, mos: &Mos, dir: ObjectId, name: &str) -> Result<Option<Arc<DatasetKeys>>> {
        let Some(object) = keys::of(mos, dir)? else { return Ok(None) };
        let mut table = self.table();
        let Some(user) = table.of_users.get(&object.root) else {
            return Err(KeyError::NotLoaded(name.to_owned()).into());
        };
        if let Some(open) = table.of_datasets.get(&object.id).and_then(Weak::upgrade) {
            return Ok(Some(open));
        }
        let opened = user.unwrap(&object.wrapped).map_err(|_| KeyError::Wrong(name.to_owned()))?;
        let opened = Arc::new(opened);
        table.of_datasets.retain(|_, open| open.strong_count() > 0);
        table.of_datasets.insert(object.id, Arc::downgrade(&opened));
        Ok(Some(opened))
    }

    /// Keeps the key of an encryption root.
    pub fn load(&self, root: ObjectId, key: WrappingKey) {
        self.table().of_users.insert(root, key);
    }

    /// Moves the key of the encryption root `from` to `to`.
    pub(crate) fn move_key(&self, from: ObjectId, to: ObjectId) {
        let mut table = self.table();
        if let Some(key) = table.of_users.remove(&from) {
            table.of_users.insert(to, key);
        }
    }

    /// Drops the key of an encryption root that no longer exists.
    pub(crate) fn forget(&self, root: ObjectId) {
        self.table().of_users.remove(&root);
    }

    /// Forgets the key of an encryption root, unless an open dataset needs it.
    ///
    /// # Errors
    /// If a key object cannot be read.
    pub fn unload(&self, mos: &Mos, root: ObjectId) -> Result<bool> {
        let mut table = self.table();
        for (object, open) in &table.of_datasets {
            if open.strong_count() > 0 && keys::read(mos, *object)?.root == root {
                return Ok(false);
            }
        }
        table.of_users.remove(&root);
        Ok(true)
    }
}
