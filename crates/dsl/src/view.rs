//! Context for reading datasets.

use std::sync::Arc;

use dmu::{DirtyBudget, Objset};
use format::BlockPtr;
use storage::Storage;

use crate::Result;
use crate::keyring::Keyring;
use crate::mos::Mos;
use crate::room::Room;

/// The MOS, with facts about its pool that it does not store.
pub struct View<'a> {
    /// The objects that describe the datasets.
    pub mos: &'a Mos,
    /// Where their contents lie.
    pub storage: &'a Arc<Storage>,
    /// The budget for changes in opened objsets.
    pub budget: &'a Arc<DirtyBudget>,
    /// The name of the pool.
    pub pool: String,
    /// Prefix shown before mountpoints.
    pub altroot: Option<&'a str>,
    /// Keys of encrypted datasets that are loaded.
    pub keyring: &'a Keyring,
    /// The space of the pool.
    pub room: Room,
}

impl View<'_> {
    /// The objset with this root.
    ///
    /// # Errors
    /// Its root cannot be read.
    pub fn objset(&self, root: BlockPtr) -> Result<Objset> {
        Ok(Objset::open(self.storage.clone(), self.budget.clone(), root)?)
    }
}
