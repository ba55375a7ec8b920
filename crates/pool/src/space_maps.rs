//! Space maps on disk: loading allocated segments and appending changes.
//!
//! Source: docs/format/05-space-maps.md.

use std::collections::BTreeMap;
use std::sync::Arc;

use dmu::{NewObject, Objset, Tx, zap};
use format::blkptr::Block;
use format::features;
use format::space_map::{self, Entry, Header, Kind, Layout};
use format::zap::parse_int_key;
use format::{ByteOrder, ObjectId, ObjectType, Txg, VdevId};
use storage::allocator::{Allocator, MapEntry, MetaslabChange, SpaceMapSource};
use storage::{ReadError, Record, Storage, TopVdev, Trail, WriteError};

use crate::features::Features;
use crate::mos::Mos;
use crate::{Error, Result};

const LE: ByteOrder = ByteOrder::Little;
/// log2 of a space map's indirect blocks.
const INDIRECT_SHIFT: u8 = 14;
/// A map is condensed when it is this many times longer than necessary …
const CONDENSE_FACTOR: u64 = 2;
/// … and longer than this many blocks.
const CONDENSE_BLOCKS: u64 = 4;

/// Changes of metaslabs that lie in log space maps only, by (vdev, metaslab), oldest first.
pub type Logs = BTreeMap<(u32, u32), Vec<MapEntry>>;

/// Where the space maps of a pool are.
#[derive(Clone, Debug, Default)]
pub struct MapTable {
    /// Per top-level vdev (by id): the metaslab array object and the maps in it; 0 for none.
    pub vdevs: BTreeMap<u32, (ObjectId, Vec<ObjectId>)>,
}

fn layout(top: &TopVdev, metaslab: u32) -> Layout {
    Layout { start: top.metaslab(metaslab.into()).start, shift: top.ashift }
}

impl MapTable {
    /// Reads the metaslab arrays.
    pub(crate) fn load(objset: &Objset, arrays: &[(u32, ObjectId, u64)]) -> Result<MapTable> {
        let mut table = MapTable::default();
        for &(vdev, array, count) in arrays {
            let mut maps = vec![ObjectId(0); count as usize];
            if array.0 != 0 {
                let object = objset.object(array)?;
                let mut raw = vec![0; count as usize * 8];
                object.read(0, &mut raw)?;
                for (map, word) in maps.iter_mut().zip(raw.chunks_exact(8)) {
                    *map = ObjectId(LE.u64(word, 0));
                }
            }
            table.vdevs.insert(vdev, (array, maps));
        }
        Ok(table)
    }

    /// The map of a metaslab, if it has one.
    #[must_use]
    pub fn map(&self, vdev: u32, metaslab: u32) -> Option<ObjectId> {
        let (_, maps) = self.vdevs.get(&vdev)?;
        maps.get(metaslab as usize).copied().filter(|id| id.0 != 0)
    }
}

/// The header of a space map.
///
/// # Errors
/// It cannot be read.
pub fn header(objset: &Objset, id: ObjectId) -> Result<Header> {
    objset.object(id)?.with_bonus(|_, raw| Header::decode(raw, LE)).map_err(Error::corrupt(id))
}

/// Calls `each` for all entries of a map, oldest first.
///
/// # Errors
/// The map cannot be read, or `each` fails.
pub fn for_each_entry(
    objset: &Objset,
    id: ObjectId,
    layout: Layout,
    each: &mut dyn FnMut(Entry) -> Result<()>,
) -> Result<()> {
    let object = objset.object(id)?;
    let length = header(objset, id)?.length;
    let block = object.block_size();
    // Zeros read as entries.
    if length > object.capacity() {
        return Err(Error::corrupt(id)(format::Corrupt::new("length of a space map", length)));
    }
    let mut at = 0;
    while at < length {
        let record: Record = object.block(at / block)?;
        let take = (length - at).min(block) as usize;
        for entry in space_map::entries(&record[..take.min(record.len())], LE, layout) {
            each(entry.map_err(Error::corrupt(id))?)?;
        }
        at += block;
    }
    Ok(())
}

fn map_entry(entry: &Entry) -> MapEntry {
    match entry.kind {
        Kind::Alloc => MapEntry::Alloc { offset: entry.offset, len: entry.run },
        Kind::Free => MapEntry::Free { offset: entry.offset, len: entry.run },
    }
}

/// Reads the log space maps (05 §5). Their entries apply after those of the metaslabs' own maps.
pub(crate) fn load_logs(mos: &Mos, tops: &[TopVdev], unflushed: &BTreeMap<u32, Vec<u64>>) -> Result<Logs> {
    let mut logs = Logs::new();
    let Some(zap_id) = mos.directory_object("com.delphix:log_spacemap_zap")? else { return Ok(logs) };
    let mut maps = Vec::new();
    for entry in zap::entries(&*mos.object(zap_id)?) {
        let entry = entry?;
        let (Some(txg), Some(map)) = (parse_int_key(&entry.name).ok(), entry.number()) else {
            return Err(Error::corrupt(zap_id)(format::Corrupt::new("log space map entry", 0)));
        };
        maps.push((txg, ObjectId(map)));
    }
    maps.sort_unstable();
    for (txg, map) in maps {
        let layout = Layout { start: 0, shift: space_map::LOG_SHIFT };
        for_each_entry(&mos.objset, map, layout, &mut |entry| {
            let vdev = entry.vdev.map_or(0, |VdevId(id)| id);
            let Some(top) = tops.get(vdev as usize).filter(|top| top.metaslab_shift > 0) else {
                return Ok(());
            };
            let metaslab = entry.offset >> top.metaslab_shift;
            if metaslab >= top.metaslab_count() {
                return Err(Error::corrupt(map)(format::Corrupt::new(
                    "offset in a log space map",
                    entry.offset,
                )));
            }
            let metaslab = metaslab as u32;
            let flushed = unflushed.get(&vdev).and_then(|txgs| txgs.get(metaslab as usize)).copied();
            if txg >= flushed.unwrap_or(0) {
                logs.entry((vdev, metaslab)).or_default().push(map_entry(&entry));
            }
            Ok(())
        })?;
    }
    Ok(logs)
}

/// Check before a map is condensed: its allocated bytes (`stored`) plus `change` must equal the allocated bytes of the
/// allocator. `stored` comes from disk, so a difference is an error and not a broken invariant.
fn check_condensed(
    stored: i64,
    change: &MetaslabChange,
    runs: &[(u64, u64)],
) -> std::result::Result<(), format::Corrupt> {
    let bytes = |runs: &[(u64, u64)]| runs.iter().map(|(_, len)| *len as i64).sum::<i64>();
    if stored.wrapping_add(bytes(&change.allocs)).wrapping_sub(bytes(&change.frees)) == bytes(runs) {
        return Ok(());
    }
    Err(format::Corrupt::new("sum of a space map against its metaslab", stored as u64))
}

/// Bytes that log entries add to a map's allocated bytes.
#[must_use]
pub fn log_delta(entries: &[MapEntry]) -> i64 {
    entries
        .iter()
        .map(|entry| match *entry {
            MapEntry::Alloc { len, .. } => len as i64,
            MapEntry::Free { len, .. } => -(len as i64),
        })
        .sum()
}

/// Reads space maps as of the last synced txg, for the allocator.
pub struct Source<'a> {
    /// The MOS as of the last synced txg; `None` in the first txg of a new pool.
    pub objset: Option<&'a Objset>,
    /// The vdevs that the maps are of.
    pub tops: &'a [TopVdev],
    /// Where the maps are.
    pub maps: &'a MapTable,
    /// Changes that only log space maps contain.
    pub logs: &'a Logs,
}

impl SpaceMapSource for Source<'_> {
    type Error = Error;

    fn replay(&mut self, vdev: VdevId, metaslab: u32, each: &mut dyn FnMut(MapEntry)) -> Result<()> {
        let top = &self.tops[vdev.0 as usize];
        if let Some(objset) = self.objset
            && let Some(id) = self.maps.map(vdev.0, metaslab)
        {
            let replayed = for_each_entry(objset, id, layout(top, metaslab), &mut |entry| {
                each(map_entry(&entry));
                Ok(())
            });
            match replayed {
                // A map made in the syncing txg. It has no older contents.
                Err(Error::Dmu(dmu::Error::NoObject(_))) => {}
                other => other?,
            }
        }
        for entry in self.logs.get(&(vdev.0, metaslab)).into_iter().flatten() {
            each(*entry);
        }
        Ok(())
    }
}

/// Writes changes into space maps.
pub(crate) struct MapWriter<'a> {
    pub(crate) mos: &'a Mos,
    pub(crate) features: &'a mut Option<Features>,
    pub(crate) tx: &'a Tx,
    pub(crate) tops: &'a [TopVdev],
    pub(crate) table: &'a mut MapTable,
    pub(crate) pass: u32,
}

impl MapWriter<'_> {
    fn is_enabled(&self, feature: &features::Feature) -> bool {
        self.features.as_ref().is_some_and(|f| f.is_enabled(feature))
    }

    /// Appends the changes of one metaslab; rewrites the map when that makes it much shorter.
    pub(crate) fn write(&mut self, allocator: &Allocator, change: &MetaslabChange) -> Result<()> {
        let id = self.map_for(change.vdev.0, change.metaslab)?;
        let to_entries = |kind, runs: &[(u64, u64)]| -> Vec<Entry> {
            runs.iter().map(|&(offset, run)| Entry { kind, offset, run, vdev: None }).collect()
        };
        let mut batches =
            vec![to_entries(Kind::Alloc, &change.allocs), to_entries(Kind::Free, &change.frees)];
        let metaslab = allocator.metaslabs(change.vdev).and_then(|all| all.get(change.metaslab as usize));
        let metaslab = metaslab.expect("the allocator reports changes of its own metaslabs");
        // Only the first pass condenses maps. Later passes must change as little as possible, so that the sync converges.
        if self.pass == 1
            && let Some(runs) = metaslab.allocated_runs()
            && self.is_worth_condensing(id, runs.len() as u64)?
        {
            let stored = header(&self.mos.objset, id)?.alloc;
            check_condensed(stored, change, &runs).map_err(Error::corrupt(id))?;
            self.truncate(id)?;
            batches = vec![to_entries(Kind::Alloc, &runs)];
        }
        let histogram = allocator.histogram(change.vdev, change.metaslab);
        self.append(id, change.vdev.0, change.metaslab, &batches, histogram)
    }

    /// Appends entries that until now were in log space maps only.
    pub(crate) fn fold(&mut self, vdev: u32, metaslab: u32, entries: &[MapEntry]) -> Result<()> {
        let id = self.map_for(vdev, metaslab)?;
        let entries = entries
            .iter()
            .map(|entry| match *entry {
                MapEntry::Alloc { offset, len } => Entry { kind: Kind::Alloc, offset, run: len, vdev: None },
                MapEntry::Free { offset, len } => Entry { kind: Kind::Free, offset, run: len, vdev: None },
            })
            .collect();
        self.append(id, vdev, metaslab, &[entries], None)
    }

    fn is_worth_condensing(&self, id: ObjectId, runs: u64) -> Result<bool> {
        let length = header(&self.mos.objset, id)?.length;
        let block = self.mos.object(id)?.block_size();
        Ok(length > CONDENSE_FACTOR * (runs * 8 + 8) && length > CONDENSE_BLOCKS * block.min(16 << 10))
    }

    fn truncate(&self, id: ObjectId) -> Result<()> {
        let object = self.mos.object(id)?;
        let mut header = header(&self.mos.objset, id)?;
        (header.length, header.alloc) = (0, 0);
        object.free_blocks(self.tx, 0, u64::MAX);
        put_header(&object, self.tx, &header);
        Ok(())
    }

    fn append(
        &mut self,
        id: ObjectId,
        vdev: u32,
        metaslab: u32,
        batches: &[Vec<Entry>],
        histogram: Option<[u64; space_map::BUCKETS]>,
    ) -> Result<()> {
        let two_words = self.is_enabled(&features::SPACEMAP_V2);
        let layout = layout(&self.tops[vdev as usize], metaslab);
        let form = Form { layout, two_words, pass: self.pass };
        append(self.mos, self.tx, id, form, batches)?;
        if let Some(histogram) = histogram {
            let object = self.mos.object(id)?;
            let mut header = header(&self.mos.objset, id)?;
            header.histogram = header.histogram.map(|_| histogram);
            put_header(&object, self.tx, &header);
        }
        Ok(())
    }

    /// The map of a metaslab, created if it has none yet.
    fn map_for(&mut self, vdev: u32, metaslab: u32) -> Result<ObjectId> {
        if let Some(id) = self.table.map(vdev, metaslab) {
            return Ok(id);
        }
        let with_histogram = self.is_enabled(&features::SPACEMAP_HISTOGRAM);
        let block_size = if self.is_enabled(&features::LOG_SPACEMAP) { 128 << 10 } else { 16 << 10 };
        let histogram = with_histogram.then_some([0; space_map::BUCKETS]);
        let mut header = Header { object: ObjectId(0), length: 0, alloc: 0, histogram };
        let mut new = NewObject::plain(ObjectType::SPACE_MAP)
            .block_size(block_size)
            .bonus(ObjectType::SPACE_MAP_HEADER, header.encode());
        new.indirect_shift = INDIRECT_SHIFT;
        let object = self.mos.create(self.tx, new)?;
        header.object = object.id();
        put_header(&object, self.tx, &header);
        if with_histogram {
            let features = self.features.as_mut().expect("an enabled feature was found in it");
            features.adjust(self.tx, &features::SPACEMAP_HISTOGRAM, 1)?;
        }
        let (array, maps) = self.table.vdevs.get_mut(&vdev).expect("every vdev with metaslabs has an array");
        maps[metaslab as usize] = object.id();
        let array = self.mos.object(*array)?;
        array.write(self.tx, u64::from(metaslab) * 8, &object.id().0.to_le_bytes())?;
        Ok(object.id())
    }
}

/// How entries are appended to a space map.
#[derive(Clone, Copy)]
pub(crate) struct Form {
    pub(crate) layout: Layout,
    /// The pool has entries of two words.
    pub(crate) two_words: bool,
    pub(crate) pass: u32,
}

/// Appends batches of entries, each of one kind, to a space map.
pub(crate) fn append(mos: &Mos, tx: &Tx, id: ObjectId, form: Form, batches: &[Vec<Entry>]) -> Result<()> {
    let object = mos.object(id)?;
    let mut header = header(&mos.objset, id)?;
    let mut writer = space_map::Writer::new(header.length, object.block_size(), form.layout, form.two_words);
    for batch in batches.iter().filter(|batch| !batch.is_empty()) {
        writer.note(batch[0].kind, tx.txg(), form.pass);
        for &entry in batch {
            let sign = if entry.kind == Kind::Alloc { 1 } else { -1 };
            header.alloc += sign * entry.run as i64;
            writer.push(entry);
        }
    }
    let raw = writer.finish();
    object.write(tx, header.length, &raw)?;
    header.length += raw.len() as u64;
    put_header(&object, tx, &header);
    Ok(())
}

pub(crate) fn put_header(object: &Arc<dmu::Object>, tx: &Tx, header: &Header) {
    object.edit_bonus(tx, |raw| {
        let encoded = header.encode();
        raw.copy_from_slice(&encoded[..raw.len()]);
    });
}

/// Frees the space of a block. It can be allocated again from the second txg after `txg` on.
pub(crate) fn free_extents(
    storage: &Storage,
    allocator: &mut Allocator,
    block: &Block,
    txg: Txg,
) -> Result<(), dmu::Error> {
    let (extents, lost) = storage.extents_found(block).map_err(WriteError::from)?;
    if let Some(error) = lost {
        // If a gang header is lost, its pieces cannot be found. The free continues without them, because an error here would
        // stop the pool after each import.
        tracing::error!(?block, %error, "the header of a gang is lost: its pieces stay allocated");
    }
    for dva in extents {
        let Trail { passed, places } = storage.vdevs().trail(&dva).map_err(WriteError::from)?;
        passed.into_iter().for_each(|dva| allocator.note_obsolete(dva));
        for dva in places {
            allocator.free_born(dva, block.physical_birth(), txg).map_err(|error| {
                tracing::error!(%error, "space map and block pointers disagree");
                WriteError::Read(ReadError::OutOfRange { dva })
            })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_whose_header_contradicts_its_metaslab_is_not_condensed() {
        let change = MetaslabChange {
            vdev: VdevId(0),
            metaslab: 3,
            allocs: vec![(0, 4096), (8192, 512)],
            frees: vec![(1 << 20, 1024)],
        };
        let runs = [(0, 4096), (8192, 512), (16384, 6144)];
        assert!(check_condensed(7168, &change, &runs).is_ok());
        for stored in [7167, 0, -1, i64::MIN, i64::MAX] {
            assert!(check_condensed(stored, &change, &runs).is_err(), "{stored}");
        }
    }
}
