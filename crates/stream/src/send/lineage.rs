//! Sources of incremental streams: the snapshots and bookmarks before a snapshot.
//!
//! Source: docs/format/06-mos-dsl.md §7, §11; 09-send-stream.md §2.

use format::{Guid, ObjectId, Txg};

use pool::{DatasetInfo, Error, Result};

use super::Sender;

/// The snapshot or bookmark that an incremental stream builds upon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// `pool/fs@snap` or `pool/fs#mark`.
    pub name: String,
    /// Guid of the snapshot.
    pub guid: Guid,
    /// Blocks born later are sent.
    pub(crate) txg: Txg,
    /// The directory it belongs to.
    pub(crate) dir: ObjectId,
    /// The snapshot; of a bookmark the number of its set of initialisation vectors.
    pub(crate) what: What,
    /// Of a redaction bookmark: its list of blocks.
    pub(crate) list: Option<ObjectId>,
}

/// The place of the guid of a source's set of initialisation vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Snapshot(ObjectId),
    Bookmark(Guid),
}

impl Source {
    pub(crate) fn of(info: &DatasetInfo) -> Source {
        Source {
            name: info.name.clone(),
            list: info.mark.and_then(|mark| mark.v2).map(|v2| v2.redaction).filter(|list| list.0 != 0),
            guid: info.phys.guid,
            txg: info.phys.creation_txg,
            dir: info.dir_id,
            what: match info.mark {
                None => What::Snapshot(info.id),
                Some(mark) => What::Bookmark(mark.v2.map_or(Guid(0), |v2| v2.ivset_guid)),
            },
        }
    }
}

impl Sender<'_> {
    /// The snapshot `pool/fs@snap` or bookmark `pool/fs#mark` as the beginning of an incremental stream.
    ///
    /// # Errors
    /// [`Error::NoDataset`].
    pub fn send_source(&self, name: &str) -> Result<Source> {
        let missing = || Error::NoDataset(name.to_owned());
        let info = self.pool.dataset(name)?;
        if info.is_snapshot() || info.is_bookmark() { Ok(Source::of(&info)) } else { Err(missing()) }
    }

    /// The snapshot with this number, and not a received copy with the same guid elsewhere in this pool.
    pub(super) fn source_at(&self, id: ObjectId) -> Result<Source> {
        Ok(Source::of(&self.pool.reading().snapshot(id)?))
    }

    /// Whether `from` lies before `to` in the history of its blocks.
    pub(super) fn check_earlier(&self, to: &DatasetInfo, from: &Source) -> Result<()> {
        let refuse = || Err(Error::NotEarlier(to.name.clone()));
        let mos = self.pool.reading();
        let (mut dir_id, mut txg) = (to.dir_id, to.phys.creation_txg);
        loop {
            // The snapshot of a redaction bookmark may be completed by itself.
            let completes = from.list.is_some() && from.guid == to.phys.guid && from.txg == txg;
            if from.txg >= txg && !completes {
                return refuse();
            }
            if from.dir == dir_id {
                return Ok(());
            }
            let origin = mos.dir(dir_id)?.origin;
            if origin.0 == 0 {
                return refuse();
            }
            let phys = mos.dataset(origin)?;
            // A received copy has the same guid, but its txg is unrelated to the births of these blocks.
            if phys.guid == from.guid && phys.creation_txg == from.txg {
                return Ok(());
            }
            if phys.creation_txg >= txg {
                // A clone is younger than its origin, so this search ends.
                let corrupt = format::Corrupt::new("txg of the origin of a clone", phys.creation_txg.0);
                return Err(Error::corrupt(origin)(corrupt));
            }
            (dir_id, txg) = (phys.dir, phys.creation_txg);
        }
    }

    /// The snapshots after `from` up to `snapshot`, oldest first. `from` may be in another file system only if it is the
    /// origin of a clone.
    pub(super) fn between(&self, snapshot: &str, from: &Source) -> Result<Vec<DatasetInfo>> {
        let to = self.pool.dataset(snapshot)?;
        self.check_earlier(&to, from)?;
        let is_origin = || -> Result<bool> {
            let origin = to.dir.origin;
            Ok(origin.0 != 0 && self.pool.reading().dataset(origin)?.guid == from.guid)
        };
        if from.dir != to.dir_id && !is_origin()? {
            return Err(Error::Unsupported("sending all snapshots since another file system's".into()));
        }
        let fs = snapshot.split('@').next().unwrap_or(snapshot);
        let snaps = self.pool.list(fs, Some(1), true)?.into_iter();
        let wanted = |txg: Txg| from.txg < txg && txg <= to.phys.creation_txg;
        Ok(snaps
            .filter(|info| info.is_snapshot() && info.dir_id == to.dir_id && wanted(info.phys.creation_txg))
            .collect())
    }
}
