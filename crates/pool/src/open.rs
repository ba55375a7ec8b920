//! Opening datasets: whoever opens one that is open already shares it.

use std::sync::{Arc, Weak};

use dmu::{BlockIo, Objset};

use crate::Result;
use crate::dataset::Dataset;
use crate::dsl::lookup::{self, DatasetInfo};
use crate::dsl::promises::Own;
use crate::dsl::properties;
use crate::pool::Inner;

impl Inner {
    /// Opens a dataset or snapshot. The caller holds the DSL lock.
    ///
    /// # Errors
    /// Its root or its properties cannot be read.
    pub(crate) fn open(self: &Arc<Self>, info: &DatasetInfo) -> Result<Arc<Dataset>> {
        if let Some(open) = self.datasets().get(&info.id).and_then(Weak::upgrade) {
            return Ok(open);
        }
        let (settings, policy) = properties::settings(self, info)?;
        let io = BlockIo::with_keys(
            self.storage.clone(),
            self.keyring.keys_of(&self.mos, info.dir_id, &info.name)?,
        );
        let objset = Objset::open(io, self.budget.clone(), info.phys.bp)?;
        let marks = self.dataset_marks(info.id)?;
        let mut own = Own::default();
        if !info.is_snapshot() {
            own = lookup::own(&self.mos, info.dir_id, info.id)?;
        }
        let dataset = Arc::new(Dataset::new(
            self.clone(),
            info.id,
            info.dir_id,
            info.name.clone(),
            Arc::new(objset),
            info.is_snapshot(),
            settings,
            policy,
            own,
            marks,
        ));
        let mut table = self.datasets();
        if let Some(open) = table.get(&info.id).and_then(Weak::upgrade) {
            return Ok(open);
        }
        table.insert(info.id, Arc::downgrade(&dataset));
        drop(table);
        if !info.is_snapshot() {
            // Only now: a sync forgets the directories above datasets that nobody has open.
            self.promises.watch(&self.mos, info.dir_id)?;
        }
        Ok(dataset)
    }
}
