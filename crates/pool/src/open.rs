//! Opening datasets. Callers that open the same dataset share one object.

use std::sync::Arc;

use codec::crypt::DatasetKeys;
use dmu::{BlockIo, Objset};
use dsl::change;
use dsl::info::DatasetInfo;
use dsl::promises::{self, Own};
use dsl::settings::settings;

use crate::pool::Inner;
use crate::state::{Dataset, Found};
use crate::{Error, KeyError, Result};

impl Inner {
    /// Opens a dataset or snapshot. The caller holds the DSL lock.
    ///
    /// # Errors
    /// Its root or its properties cannot be read.
    pub(crate) fn open(self: &Arc<Self>, info: &DatasetInfo) -> Result<Arc<Dataset>> {
        let keys = || self.keyring.keys_of(&self.mos, info.dir_id, &info.name);
        let Some(open) = self.open.get(info.id) else {
            return self.open_with(info, keys()?);
        };
        if open.is_locked() && open.is_arriving() {
            return Err(Error::DatasetBusy(info.name.clone()));
        }
        if open.is_locked()
            && let Some(keys) = keys()?
        {
            let (_, root) = open.objset().synced_root();
            open.objset().io().unlock(keys, &root)?;
        }
        Ok(open)
    }

    /// As [`Inner::open`], for raw sends and intent logs: the key of an encrypted dataset need not be loaded.
    ///
    /// # Errors
    /// As [`Inner::open`].
    pub(crate) fn open_sealed(self: &Arc<Self>, info: &DatasetInfo) -> Result<Arc<Dataset>> {
        if let Some(open) = self.open.get(info.id) {
            return Ok(open);
        }
        match self.open(info) {
            Err(Error::Key(KeyError::NotLoaded(_))) => self.open_with(info, None),
            opened => opened,
        }
    }

    /// Opens the target dataset of a raw stream, without its keys even if they are loaded. No other caller may open it
    /// meanwhile.
    ///
    /// # Errors
    /// [`Error::DatasetBusy`], and as [`Inner::open`].
    pub(crate) fn open_to_receive(self: &Arc<Self>, info: &DatasetInfo) -> Result<Arc<Dataset>> {
        if self.open.is_open(info.id) {
            return Err(Error::DatasetBusy(info.name.clone()));
        }
        let dataset = self.open_with(info, None)?;
        dataset.lift_read_only();
        Ok(dataset)
    }

    fn open_with(
        self: &Arc<Self>,
        info: &DatasetInfo,
        keys: Option<Arc<DatasetKeys>>,
    ) -> Result<Arc<Dataset>> {
        let counts = self.info().features.clone();
        let (settings, policy) = settings(&self.view(), info, Some(&counts))?;
        let io = BlockIo::with_keys(self.storage.clone(), keys);
        let objset = Objset::open(io, self.budget.clone(), info.phys.bp)?;
        let marks = change::marks(&self.mos, info.id)?;
        let mut own = Own::default();
        if !info.is_snapshot() {
            own = promises::own(&self.mos, info.dir_id, info.id)?;
        }
        let found = Found { objset, settings, policy, own, marks };
        let made = Arc::new(Dataset::new(self.clone(), info, found));
        let dataset = self.open.enter(info.id, made.clone());
        if Arc::ptr_eq(&dataset, &made) && !info.is_snapshot() {
            // This must come last, because a sync drops the directories above datasets that are not open.
            self.accounts.promises.watch(&self.mos, info.dir_id)?;
        }
        Ok(dataset)
    }
}
