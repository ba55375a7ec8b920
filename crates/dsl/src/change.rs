//! A change of the DSL: its transaction, and its effects on the open pool.

use std::collections::BTreeSet;

use dmu::{Tx, zap};
use format::features::{self, Feature};
use format::zap::Value;
use format::{BlockPtr, ObjectId, ObjectType, Txg};

use crate::features::Features;
use crate::mos::Mos;
use crate::new_head::NewHead;
use crate::view::View;
use crate::{Error, Result};

/// Effects of a change that `pool` applies afterwards. Only `pool` knows the open datasets, allocates and frees space, and
/// keeps the intent logs.
pub enum Effect {
    /// The contents of the dataset changed. It has no users; `pool` drops its open state.
    Closed(ObjectId),
    /// The directory `from` was renamed to `to`, with all datasets below it.
    Moved {
        /// Its full name until now.
        from: String,
        /// Its full name from now on.
        to: String,
    },
    /// A snapshot has another name.
    Renamed {
        /// The snapshot.
        id: ObjectId,
        /// Its full name from now on.
        name: String,
    },
    /// The intent log of a head with this old root is obsolete.
    LogEnded {
        /// The head.
        head: ObjectId,
        /// The root that the log had.
        root: BlockPtr,
    },
    /// Two heads exchanged their contents; the intent log goes with the contents.
    LogMoved {
        /// Whose it was.
        from: ObjectId,
        /// Whose it is.
        to: ObjectId,
    },
    /// A head starts from the root of a snapshot. The intent log header in that root must be cleared.
    LogOfSnapshot {
        /// The head.
        head: ObjectId,
        /// Its directory.
        dir: ObjectId,
        /// Its full name.
        name: String,
    },
    /// A head has a new snapshot.
    Snapshotted {
        /// The head.
        head: ObjectId,
        /// The snapshot.
        snapshot: ObjectId,
    },
    /// A dataset is gone.
    Destroyed {
        /// The head or snapshot.
        id: ObjectId,
        /// For a snapshot: the dataset that has the blocks of both from now on.
        next: Option<ObjectId>,
    },
    /// Two heads of one snapshot exchanged their contents.
    Swapped(ObjectId, ObjectId),
    /// The root of a new head is to be written.
    NewHead {
        /// The head.
        id: ObjectId,
        /// The contents that the head begins with.
        new: NewHead,
    },
    /// These blocks have no references any more.
    Freed(Vec<BlockPtr>),
    /// The blocks below this root that were born after `since` have no references any more.
    TreeFreed {
        /// The root of an objset.
        root: BlockPtr,
        /// When what is kept was born.
        since: Txg,
    },
    /// Blocks were added to the lists of blocks that the next txgs free.
    Waiting,
}

/// A change of the DSL in the syncing txg. `effects` lists what `pool` must do, in order.
pub struct Change<'a> {
    /// The facts that the change reads: the MOS, the pool's name and its space.
    pub view: View<'a>,
    /// The licence to change it.
    pub tx: &'a Tx,
    /// Features of the pool with their reference counts; `None` in pools of a legacy version.
    pub features: &'a mut Option<Features>,
    /// Whether the dataset with this number is in use.
    pub is_used: &'a dyn Fn(ObjectId) -> bool,
    /// Uid of the user who makes the change.
    pub user: u32,
    /// Effects for `pool` to apply after the change.
    pub effects: Vec<Effect>,
}

/// guids of the per-dataset features that a dataset is marked with.
///
/// # Errors
/// They cannot be read.
pub fn marks(mos: &Mos, id: ObjectId) -> Result<BTreeSet<String>> {
    let object = mos.object(id)?;
    if object.object_type() != ObjectType::ZAP_METADATA {
        return Ok(BTreeSet::new());
    }
    zap::entries(&object).map(|entry| Ok(String::from_utf8_lossy(&entry?.name).into_owned())).collect()
}

impl<'a> Change<'a> {
    /// The objects that describe the datasets.
    pub fn mos(&self) -> &'a Mos {
        self.view.mos
    }

    /// The txg that the change belongs to.
    #[must_use]
    pub fn txg(&self) -> Txg {
        self.tx.txg()
    }

    /// Whether the pool has enabled a feature.
    pub fn enables(&self, feature: &Feature) -> bool {
        self.features.as_ref().is_some_and(|known| known.is_enabled(feature))
    }

    /// Changes the reference count of a feature by one, if the pool has feature flags.
    pub(crate) fn adjust_feature(&mut self, feature: &'static Feature, by: i64) -> Result<()> {
        match self.features.as_mut() {
            Some(features) => features.adjust(self.tx, feature, by),
            None => Ok(()),
        }
    }

    /// Refuses a change of a dataset that has users.
    pub(crate) fn check_unused(&self, id: ObjectId, name: &str) -> Result<()> {
        if (self.is_used)(id) { Err(Error::DatasetBusy(name.to_owned())) } else { Ok(()) }
    }

    /// As above, and notes that the contents of the dataset change.
    pub fn let_go_of(&mut self, id: ObjectId, name: &str) -> Result<()> {
        self.check_unused(id, name)?;
        self.effects.push(Effect::Closed(id));
        Ok(())
    }

    /// Gives a DSL object a ZAP of its own (06 §3).
    pub(crate) fn zapify(&mut self, id: ObjectId) -> Result<()> {
        let mos = self.mos();
        let object = mos.object(id)?;
        if object.object_type() == ObjectType::ZAP_METADATA {
            return Ok(());
        }
        object.set_type(self.tx, ObjectType::ZAP_METADATA);
        zap::create(&object, self.tx, mos.salt(), 0)?;
        self.adjust_feature(&features::EXTENSIBLE_DATASET, 1)
    }

    /// Counts one zapified object less, if this object is one.
    pub(crate) fn unzapified(&mut self, id: ObjectId) -> Result<()> {
        match self.mos().object(id)?.object_type() {
            ObjectType::ZAP_METADATA => self.adjust_feature(&features::EXTENSIBLE_DATASET, -1),
            _ => Ok(()),
        }
    }

    /// Adds a per-dataset feature's mark to a dataset and counts it.
    ///
    /// # Errors
    /// The pool has not enabled the feature.
    pub fn mark_dataset(&mut self, id: ObjectId, feature: &'static Feature) -> Result<()> {
        self.mark_dataset_with(id, feature, &Value::from_u64(0))
    }

    /// As [`Change::mark_dataset`], with this value.
    pub(crate) fn mark_dataset_with(
        &mut self,
        id: ObjectId,
        feature: &'static Feature,
        value: &Value,
    ) -> Result<()> {
        let mos = self.mos();
        self.zapify(id)?;
        zap::insert(&mos.object(id)?, self.tx, feature.guid.as_bytes(), value)?;
        let features = self.features.as_mut().ok_or_else(|| {
            Error::Unsupported(format!("feature {} in a pool without feature flags", feature.name))
        })?;
        if !features.is_enabled(feature) {
            return Err(Error::Unsupported(format!("feature {} is not enabled in this pool", feature.name)));
        }
        features.adjust(self.tx, feature, 1)
    }

    /// Removes the dataset's feature marks.
    pub(crate) fn unmark_dataset(&mut self, id: ObjectId) -> Result<()> {
        for guid in marks(self.mos(), id)? {
            if let Some(feature) = features::by_guid(&guid).filter(|f| f.per_dataset) {
                self.adjust_feature(feature, -1)?;
            }
        }
        self.unzapified(id)
    }

    /// Marks `to` with the per-dataset features that `from` is marked with.
    pub(crate) fn copy_marks(&mut self, from: ObjectId, to: ObjectId) -> Result<()> {
        let mos = self.mos();
        for guid in marks(mos, from)? {
            if let Some(feature) = features::by_guid(&guid).filter(|f| f.per_dataset)
                && let Some(value) = zap::lookup(&*mos.object(from)?, guid.as_bytes())?
            {
                self.mark_dataset_with(to, feature, &value)?;
            }
        }
        Ok(())
    }
}
