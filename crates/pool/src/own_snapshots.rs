//! The snapshots of an open file system, as its mount shows them below `.zfs/snapshot`.
//!
//! From:   the head's ZAP of snapshot names. Entries are read when they are asked for.
//! To:     `zpl` and, through it, `fuse`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dmu::{Object, zap};
use dsl::{info, snapshot, tree};
use format::zap::Position;
use format::{Guid, ObjectId};
use storage::rank::ReadHeld;

use crate::state::Dataset;
use crate::{Error, Result};

/// Smaller cookies are left to the caller, for entries such as `.` and `..`.
const COOKIES_FROM: u64 = 4;

/// Identity of a snapshot without its name. After a destroy, its object number may be reused; its guid never is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SnapshotKey {
    /// Its dataset object in the MOS.
    pub id: ObjectId,
    /// Its guid.
    pub guid: Guid,
}

/// An entry in the list of a head's snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotEntry {
    /// The name behind the `@`.
    pub name: Vec<u8>,
    /// Its dataset object in the MOS.
    pub id: ObjectId,
    /// Where to go on after it.
    pub cookie: u64,
}

impl Dataset {
    fn dsl(&self) -> ReadHeld<'_, ()> {
        self.pool.dsl.read()
    }

    /// The list of its snapshots. The caller holds the DSL lock.
    fn snapshot_list(&self) -> Result<Arc<Object>> {
        if self.destroyed.load(Ordering::Acquire) || self.is_snapshot() {
            return Err(Error::NoDataset(self.name()));
        }
        let mos = &self.pool.mos;
        mos.object(mos.dataset(self.id)?.snapnames_zap)
    }

    /// Whether a name in the list is one that a snapshot may have. The kernel refuses to list a folder with any other.
    fn is_good(&self, leaf: &[u8]) -> bool {
        tree::full_name(&self.name(), '@', leaf).is_ok()
    }

    /// Some of its snapshots from `cookie` on (0: from the start); none at the end. Invalid names are left out. Cookies are
    /// 4 or more, and stay valid when snapshots are made or destroyed.
    ///
    /// # Errors
    /// [`Error::NoDataset`] when it was destroyed; the DSL cannot be read.
    pub fn snapshots_from(&self, cookie: u64) -> Result<Vec<SnapshotEntry>> {
        let _shared = self.dsl();
        let list = self.snapshot_list()?;
        let bits = zap::hash_bits(&list)?;
        let mut next = Position::from_cookie(if cookie < COOKIES_FROM { 0 } else { cookie }, bits);
        let mut found = Vec::new();
        // A leaf may be empty; another follows.
        while let Some(from) = next.filter(|_| found.is_empty()) {
            let (entries, following) = zap::entries_from(&list, from)?;
            let good = entries.into_iter().filter(|entry| self.is_good(&entry.name));
            found.extend(good.filter_map(|entry| {
                let after = Position::after(entry.position.hash, entry.position.cd);
                let id = ObjectId(entry.number()?);
                Some(SnapshotEntry { cookie: after.to_cookie(bits), name: entry.name, id })
            }));
            next = following;
        }
        Ok(found)
    }

    /// Its snapshot called `name`.
    ///
    /// # Errors
    /// As [`Dataset::snapshots_from`].
    pub fn snapshot_named(&self, name: &[u8]) -> Result<Option<SnapshotKey>> {
        if !self.is_good(name) {
            return Ok(None);
        }
        let _shared = self.dsl();
        let key = |id| Ok(SnapshotKey { id, guid: self.pool.mos.dataset(id)?.guid });
        number_of(&*self.snapshot_list()?, name)?.map(key).transpose()
    }

    /// How many snapshots it has.
    ///
    /// # Errors
    /// As [`Dataset::snapshots_from`].
    pub fn snapshot_count(&self) -> Result<u64> {
        let _shared = self.dsl();
        Ok(zap::count(&*self.snapshot_list()?)?)
    }

    /// When its snapshots last changed, in seconds since 1970 and nanoseconds, where that is known.
    ///
    /// # Errors
    /// The DSL cannot be read.
    pub fn snapshots_changed(&self) -> Result<Option<[u64; 2]>> {
        let _shared = self.dsl();
        snapshot::last_changed(&self.pool.mos, self.dir)
    }

    /// Opens one of its snapshots for its contents. `called` is the name that the caller knows. An outdated name only makes
    /// the call slower.
    ///
    /// # Errors
    /// [`Error::NoDataset`] when it has no such snapshot any more; the snapshot's root cannot be read.
    pub fn open_snapshot(&self, key: SnapshotKey, called: &[u8]) -> Result<Arc<Dataset>> {
        let _shared = self.dsl();
        let missing = || Error::NoDataset(format!("{}@", self.name()));
        // The object number may have been reused. The list shows whether it is still a snapshot of this dataset.
        let list = self.snapshot_list()?;
        let name = if number_of(&list, called)? == Some(key.id) {
            called.to_vec()
        } else {
            let listed = |entry: &zap::Entry| entry.number() == Some(key.id.0);
            let mut entries = zap::entries(&list);
            entries.find(|entry| entry.as_ref().map_or(true, listed)).ok_or_else(missing)??.name
        };
        let name = format!("{}@{}", self.name(), String::from_utf8_lossy(&name));
        let info = info::info_of(&self.pool.view(), name, key.id)?;
        if !info.is_snapshot() || info.phys.guid != key.guid {
            return Err(missing());
        }
        self.pool.open(&info)
    }
}

/// The dataset called `name` in a list of snapshots.
fn number_of(list: &Object, name: &[u8]) -> Result<Option<ObjectId>> {
    match zap::lookup_u64(list, name) {
        Ok(id) => Ok(id.map(ObjectId)),
        // No snapshot has so long a name.
        Err(dmu::Error::TooLong) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
