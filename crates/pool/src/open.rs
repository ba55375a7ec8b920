//! Opening datasets: whoever opens one that is open already shares it.

use std::sync::{Arc, Weak};

use dmu::{BlockIo, Objset};
use dsl::change;
use dsl::info::DatasetInfo;
use dsl::promises::{self, Own};
use dsl::settings::settings;

use crate::Result;
use crate::dataset::{Dataset, Found};
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
        let counts = self.info().features.clone();
        let (settings, policy) = settings(&self.view(), info, Some(&counts))?;
        let keys = self.keyring.keys_of(&self.mos, info.dir_id, &info.name)?;
        let io = BlockIo::with_keys(self.storage.clone(), keys);
        let objset = Objset::open(io, self.budget.clone(), info.phys.bp)?;
        let marks = change::marks(&self.mos, info.id)?;
        let mut own = Own::default();
        if !info.is_snapshot() {
            own = promises::own(&self.mos, info.dir_id, info.id)?;
        }
        let found = Found { objset, settings, policy, own, marks };
        let dataset = Arc::new(Dataset::new(self.clone(), info, found));
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
