//! A change of the dataset layer: the transaction that it belongs to, and what it leaves to the living pool.

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

/// What a change leaves to the pool that it happens in: it knows who has datasets open, it alone gives and takes back
/// space, and it keeps the intent logs.
pub enum Effect {
    /// The dataset is not what it was. Nobody uses it; an open one that is still known is to be forgotten.
    Closed(ObjectId),
    /// The directory `from` and all below it are below `to` now.
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
    /// The intent log of a head whose root was this has nothing more to say.
    LogEnded {
        /// The head.
        head: ObjectId,
        /// What its root was.
        root: BlockPtr,
    },
    /// Two heads exchanged what they hold: the intent log goes along.
    LogMoved {
        /// Whose it was.
        from: ObjectId,
        /// Whose it is.
        to: ObjectId,
    },
    /// A head begins with the root of a snapshot, and has no use for the intent log that the snapshot saw.
    LogOfSnapshot {
        /// The head.
        head: ObjectId,
        /// Its directory.
        dir: ObjectId,
        /// Its full name.
        name: String,
    },
    /// The root of a new head is to be written.
    NewHead {
        /// The head.
        id: ObjectId,
        /// What it begins with.
        new: NewHead,
    },
    /// Nothing refers to these blocks any more.
    Freed(Vec<BlockPtr>),
    /// Nothing refers any more to what was born after `since` below this root.
    TreeFreed {
        /// The root of an objset.
        root: BlockPtr,
        /// When what is kept was born.
        since: Txg,
    },
    /// Blocks were entered into the lists of those that the next txgs free.
    Waiting,
}

/// A change of the dataset layer in the syncing txg. What it leaves to the pool is in `effects`, in this order.
pub struct Change<'a> {
    /// What is there.
    pub view: View<'a>,
    /// The licence to change it.
    pub tx: &'a Tx,
    /// Features of the pool and how many use each; `None` in pools of a legacy version.
    pub features: &'a mut Option<Features>,
    /// Whether somebody uses the dataset with this number.
    pub is_used: &'a dyn Fn(ObjectId) -> bool,
    /// Who the change is made for.
    pub user: u32,
    /// What the pool is to do when the change is made.
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

    /// One user of a feature more or less, where the pool has features.
    pub(crate) fn adjust_feature(&mut self, feature: &'static Feature, by: i64) -> Result<()> {
        match self.features.as_mut() {
            Some(features) => features.adjust(self.tx, feature, by),
            None => Ok(()),
        }
    }

    /// Refuses what would change a dataset under somebody who uses it.
    pub(crate) fn check_unused(&self, id: ObjectId, name: &str) -> Result<()> {
        if (self.is_used)(id) { Err(Error::DatasetBusy(name.to_owned())) } else { Ok(()) }
    }

    /// As that, of a dataset that is not what it was from now on.
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

    /// One zapified object less, if it is one.
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
        let mos = self.mos();
        self.zapify(id)?;
        zap::insert(&mos.object(id)?, self.tx, feature.guid.as_bytes(), &Value::from_u64(0))?;
        let features = self.features.as_mut().ok_or_else(|| {
            Error::Unsupported(format!("feature {} in a pool without feature flags", feature.name))
        })?;
        if !features.is_enabled(feature) {
            return Err(Error::Unsupported(format!("feature {} is not enabled in this pool", feature.name)));
        }
        features.adjust(self.tx, feature, 1)
    }

    /// Gives up the dataset's feature marks.
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
        for guid in marks(self.mos(), from)? {
            if let Some(feature) = features::by_guid(&guid).filter(|f| f.per_dataset) {
                self.mark_dataset(to, feature)?;
            }
        }
        Ok(())
    }
}
