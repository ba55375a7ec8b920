//! Records that a txg will write, and the work that was done for them in advance.
//!
//! From:   `dmu`, which keeps a draft for each record that the open or the syncing txg changes.
//! To:     workers that encode the record early, intent logs that write it early, and the sync, which takes either result.
//!
//! A result belongs to the draft. A change of the record discards the results, so the bytes on the disk do not depend on
//! what was done early.

use std::sync::{Arc, OnceLock};

use codec::Salt;
use format::blkptr::Block;

use crate::Record;
use crate::as_stored::AsStored;
use crate::rank::{MutexHeld, RankedMutex};
use crate::write::{Encoded, Packed, Recipe};

/// The form of a record that was made ahead.
#[derive(Debug)]
pub(crate) enum Made {
    /// All that is to be done.
    Encoded(Encoded),
    /// It is compressed; it is sealed when its turn comes.
    Packed(Packed),
}

/// How far a worker is with encoding a record.
#[derive(Debug, Default)]
pub(crate) enum Progress {
    /// No worker was asked, or the result is not wanted any more.
    #[default]
    None,
    /// No worker has begun.
    Waiting(Record, Recipe),
    /// A worker is at it.
    Begun,
    /// This recipe with this salt gave this.
    Done(Recipe, Arc<Salt>, Made),
}

/// The finished work for a draft. All clones of the draft share it.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    progress: RankedMutex<Progress>,
    /// Where the record was written early, and how it was encoded.
    early: RankedMutex<Option<(Recipe, Block)>>,
}

impl Prepared {
    pub(crate) fn progress(&self) -> MutexHeld<'_, Progress> {
        self.progress.lock()
    }

    pub(crate) fn early(&self) -> MutexHeld<'_, Option<(Recipe, Block)>> {
        self.early.lock()
    }
}

/// A record that a txg will write.
#[derive(Clone, Debug)]
pub struct Draft {
    record: Record,
    prepared: OnceLock<Arc<Prepared>>,
    moved: Option<Arc<AsStored>>,
}

impl From<Record> for Draft {
    fn from(record: Record) -> Draft {
        Draft { record, prepared: OnceLock::new(), moved: None }
    }
}

impl Draft {
    /// A block that is written as it is: `bytes` are its bytes on the disk.
    #[must_use]
    pub fn moved(bytes: Record, moved: AsStored) -> Draft {
        Draft { record: bytes, prepared: OnceLock::new(), moved: Some(Arc::new(moved)) }
    }

    /// How the record lies on the disk, if it came so.
    #[must_use]
    pub fn as_moved(&self) -> Option<&AsStored> {
        self.moved.as_deref()
    }

    /// The record that will be written.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Changes the record. The work that was done early for it does not count any more.
    pub fn edit(&mut self) -> &mut Vec<u8> {
        if let Some(prepared) = self.prepared.take() {
            // A worker that has not begun holds the record, which would be copied below.
            *prepared.progress() = Progress::None;
        }
        Arc::make_mut(&mut self.record)
    }

    /// The record alone.
    #[must_use]
    pub fn into_record(self) -> Record {
        self.record
    }

    /// A clone for a thread that does the work of the sync in advance. Its results are shared with this draft.
    #[must_use]
    pub fn share(&self) -> Draft {
        self.prepare();
        self.clone()
    }

    /// Where results of early work are kept.
    pub(crate) fn prepare(&self) -> &Arc<Prepared> {
        self.prepared.get_or_init(Arc::default)
    }

    /// The results of early work, if any was asked for.
    pub(crate) fn prepared(&self) -> Option<&Prepared> {
        self.prepared.get().map(|prepared| &**prepared)
    }
}
