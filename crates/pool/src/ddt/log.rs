//! Reading the logs of a dedup table. Pools that have such logs are never written here.
//!
//! Source: docs/format/14-dedup-and-cloning.md §2.1, §6.

use std::collections::BTreeMap;

use dmu::{Objset, zap};
use format::ddt::{Entry, Key};
use format::ddt_log::{Header, names, records};
use format::{ByteOrder, ChecksumKind, ObjectId};

use crate::Result;
use crate::mos::DIRECTORY;

const LE: ByteOrder = ByteOrder::Little;

/// Entries that are newer than those in the stores.
#[derive(Default)]
pub(crate) struct Log {
    /// By key.
    pub(crate) entries: BTreeMap<Key, Entry>,
    /// Bytes of both logs on the disks.
    pub(crate) on_disk: u64,
}

/// The directory of a table that has logs.
pub(crate) fn directory_of(mos: &Objset, kind: ChecksumKind) -> Result<Option<ObjectId>> {
    let Some((name, _)) = names(kind) else { return Ok(None) };
    Ok(zap::lookup_u64(&*mos.object(DIRECTORY)?, name.as_bytes())?.map(ObjectId))
}

impl Log {
    /// The entries of both logs. Entries of the active log replace those of the other log.
    pub(crate) fn load(mos: &Objset, directory: ObjectId, kind: ChecksumKind) -> Result<Log> {
        let (mut both, mut on_disk) = ([BTreeMap::new(), BTreeMap::new()], 0);
        let own = mos.object(directory)?;
        for name in names(kind).map(|(_, logs)| logs).into_iter().flatten() {
            let Some(id) = zap::lookup_u64(&own, name.as_bytes())? else { continue };
            let object = mos.object(ObjectId(id))?;
            let header = object.with_bonus(|_, raw| Header::decode(raw, LE));
            let header = header.map_err(dmu::Error::corrupt(object.id()))?;
            on_disk += object.used_bytes();
            let entries: &mut BTreeMap<Key, Entry> = &mut both[usize::from(header.is_flushing)];
            let blocks = header.length.div_ceil(object.block_size()).min(object.max_blkid() + 1);
            for blkid in 0..blocks {
                let found = records(&object.block(blkid)?, LE).map_err(dmu::Error::corrupt(object.id()))?;
                let new =
                    found.into_iter().filter(|(key, _)| header.checkpoint.is_none_or(|done| *key > done));
                entries.extend(new);
            }
        }
        let [active, mut entries] = both;
        entries.extend(active);
        Ok(Log { entries, on_disk })
    }
}
