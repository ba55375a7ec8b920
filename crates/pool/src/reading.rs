//! Reading the DSL under its lock, for crates above that follow references from object to object.
//!
//! From:   objects of the MOS as they are now.
//! To:     the crate `stream`, which asks what lies before a snapshot and what was received in part.

use std::sync::Arc;

use dmu::Object;
use dsl::info::{self, DatasetInfo};
use dsl::partial::{self, Partial};
use dsl::{snapshot, tree};
use format::dsl_dataset::DslDataset;
use format::dsl_dir::DslDir;
use format::{Guid, ObjectId};
use storage::rank::ReadHeld;

use crate::Result;
use crate::keys::{self, KeyObject};
use crate::pool::{Inner, Pool};

/// The DSL of a pool, locked against changes. While the caller holds this, it must not call functions of [`Pool`] that read
/// or change datasets: they wait for the same lock.
pub struct Reading<'a> {
    inner: &'a Inner,
    _shared: ReadHeld<'a, ()>,
}

impl Pool {
    /// Holds the dataset layer still.
    #[must_use]
    pub fn reading(&self) -> Reading<'_> {
        Reading { inner: &self.inner, _shared: self.shared() }
    }
}

impl Reading<'_> {
    /// Everything about the dataset, snapshot or bookmark `name`.
    ///
    /// # Errors
    /// [`crate::Error::NoDataset`], or the DSL cannot be read.
    pub fn info(&self, name: &str) -> Result<DatasetInfo> {
        info::info(&self.inner.view(), name)
    }

    /// The snapshot with this number.
    ///
    /// # Errors
    /// There is none, or the DSL cannot be read.
    pub fn snapshot(&self, id: ObjectId) -> Result<DatasetInfo> {
        info::info_of(&self.inner.view(), self.snapshot_name(id)?, id)
    }

    /// Full name of the snapshot with this number.
    ///
    /// # Errors
    /// As [`Reading::snapshot`].
    pub fn snapshot_name(&self, id: ObjectId) -> Result<String> {
        info::snapshot_name(&self.inner.view(), id)
    }

    /// The directory with this number.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn dir(&self, id: ObjectId) -> Result<DslDir> {
        self.inner.mos.dir(id)
    }

    /// The dataset with this number.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn dataset(&self, id: ObjectId) -> Result<DslDataset> {
        self.inner.mos.dataset(id)
    }

    /// The keys of the datasets in a directory, wrapped; `None` where they are not encrypted.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn keys_of(&self, dir: ObjectId) -> Result<Option<KeyObject>> {
        keys::of(&self.inner.mos, dir)
    }

    /// The set of initialisation vectors of an encrypted snapshot, where it is known.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn iv_set(&self, id: ObjectId) -> Result<Option<u64>> {
        dsl::key_objects::iv_set(&self.inner.mos, id)
    }

    /// A ZAP that a directory or dataset refers to.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn zap(&self, id: ObjectId) -> Result<Arc<Object>> {
        self.inner.mos.object(id)
    }

    /// Guid of the origin snapshot of a clone; `None` if the dataset is no clone.
    ///
    /// # Errors
    /// The DSL cannot be read.
    pub fn origin_of(&self, head: &DatasetInfo) -> Result<Option<Guid>> {
        let mos = &self.inner.mos;
        if head.dir.origin.0 == 0 {
            return Ok(None);
        }
        let origin = mos.dataset(head.dir.origin)?;
        let special = tree::child(mos, tree::root_dir(mos)?, "$ORIGIN")?;
        Ok((Some(origin.dir) != special).then_some(origin.guid))
    }

    /// Guids of the snapshots by which a dataset is redacted; `None`: it has all its blocks.
    ///
    /// # Errors
    /// The marks of its redaction cannot be read.
    pub fn redaction(&self, id: ObjectId) -> Result<Option<Vec<u64>>> {
        dsl::redaction::of(&self.inner.mos, id)
    }

    /// The part of a stream that was received for the head of the directory `dir`.
    ///
    /// # Errors
    /// The DSL cannot be read.
    pub fn partial(&self, dir: ObjectId) -> Result<Option<Partial>> {
        partial::partial(&self.inner.mos, dir)
    }

    /// Whether a head has changed since its newest snapshot.
    ///
    /// # Errors
    /// Their roots cannot be read.
    pub fn is_modified(&self, head: &DslDataset) -> Result<bool> {
        info::is_modified(&self.inner.view(), head)
    }

    /// Whether the snapshot `name` can be destroyed.
    ///
    /// # Errors
    /// Why it cannot: [`crate::Error::Held`], [`crate::Error::HasClones`], [`crate::Error::DatasetBusy`]; or the DSL cannot be read.
    pub fn may_destroy(&self, name: &str) -> Result<()> {
        snapshot::may_destroy(&self.inner.view(), name, &|id| self.inner.open.is_used(id))
    }

    /// Whether a dataset has an intent log that a crash left.
    #[must_use]
    pub fn has_log_to_replay(&self, id: ObjectId) -> bool {
        let logged = self.inner.open.logged().get(&id).cloned();
        logged.is_some_and(|dataset| dataset.has_log_to_replay())
    }
}
