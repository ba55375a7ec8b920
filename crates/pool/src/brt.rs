//! The tables of cloned blocks: how many block pointers refer to a block besides the first.
//!
//! From:   the sync of datasets, which counts the pointers that it adds; all code that frees blocks.
//! To:     the tables in the MOS, once a txg.
//! Source: docs/format/14-dedup-and-cloning.md §10–§12.

use std::collections::{BTreeMap, btree_map};
use std::sync::Arc;

use dmu::zap::{self, words};
use dmu::{NewObject, Object, Objset, Tx};
use format::blkptr::Block;
use format::brt::{HEADER_SIZE, Header, RANGE_SIZE, count_of, directory_key, value_of};
use format::features::{self, Feature};
use format::zap::Value;
use format::{ByteOrder, Corrupt, ObjectId, ObjectType};
use storage::{TopVdev, Vdevs};

use crate::Result;
use crate::features::Features;
use crate::mos::{DIRECTORY, Mos};

const LE: ByteOrder = ByteOrder::Little;
/// log2 of the bytes of a block of the object with the counts of ranges.
const COUNTS_SHIFT: u32 = 15;
/// log2 of the bytes of a block of the ZAP with the entries.
const ENTRIES_SHIFT: u32 = 13;

/// Cloned blocks of a pool, for the pool properties `bclone*`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clones {
    /// Bytes of blocks that are cloned.
    pub used: u64,
    /// Bytes that their further references would take.
    pub saved: u64,
}

impl Clones {
    /// References over blocks, in hundredths.
    #[must_use]
    pub fn ratio_percent(&self) -> u64 {
        let all = u128::from(self.used) + u128::from(self.saved);
        match self.used {
            0 => 100,
            used => (all * 100 / u128::from(used)).try_into().unwrap_or(u64::MAX),
        }
    }
}

/// The table of one vdev.
struct Table {
    /// Its bytes are the entries of each range.
    counts: Arc<Object>,
    entries: Arc<Object>,
    header: Header,
    changed: bool,
}

/// Further references of a block, in the syncing txg.
struct Live {
    count: u64,
    stored: u64,
}

/// The tables. Only the sync thread changes them.
#[derive(Default)]
pub struct Brt {
    /// By id of the top-level vdev.
    tables: BTreeMap<u32, Table>,
    /// By vdev and offset of the first copy.
    live: BTreeMap<(u32, u64), Live>,
}

/// The bytes of a vdev for which ranges are counted, as OpenZFS counts them: all whole metaslabs. A removed vdev has no metaslabs in
/// memory. It gets no new blocks, so the ranges up to the block at `offset` are enough.
fn counted(top: &TopVdev, offset: u64) -> u64 {
    match top.metaslab_shift {
        0 => offset.saturating_add(1),
        shift => top.asize >> shift << shift,
    }
}

fn bad(object: &Object) -> impl FnOnce(Corrupt) -> dmu::Error {
    dmu::Error::corrupt(object.id())
}

impl Table {
    fn load(mos: &Objset, vdev: u32) -> Result<Option<Table>, dmu::Error> {
        let directory = mos.object(DIRECTORY)?;
        let Some(id) = zap::lookup_u64(&directory, directory_key(vdev).as_bytes())? else { return Ok(None) };
        let counts = mos.object(ObjectId(id))?;
        let header = counts.with_bonus(|_, raw| Header::decode(raw, LE)).map_err(bad(&counts))?;
        let entries = mos.object(header.entries)?;
        Ok(Some(Table { counts, entries, header, changed: false }))
    }

    /// Entries of the range that holds `offset`.
    fn in_range(&self, offset: u64) -> Result<u16, dmu::Error> {
        let Some(at) = self.header.count_at(offset) else { return Ok(0) };
        let mut raw = [0; 2];
        self.counts.read(at, &mut raw)?;
        Ok(self.header.order.u16(&raw, 0))
    }

    /// The further references of the block at `offset`.
    fn get(&self, offset: u64) -> Result<Option<u64>, dmu::Error> {
        let Some(value) = words::lookup(&self.entries, &[offset])? else { return Ok(None) };
        let width = || Corrupt::new("width of a clone table value", value.width().into());
        count_of(&value, LE).ok_or_else(width).map(Some).map_err(bad(&self.entries))
    }

    /// The same, unless the count of its range is zero.
    fn known(&self, offset: u64) -> Result<Option<u64>, dmu::Error> {
        if self.in_range(offset)? == 0 { Ok(None) } else { self.get(offset) }
    }

    /// Stores the further references of the block at `offset`.
    fn put(&self, tx: &Tx, offset: u64, live: &Live, is_number: bool) -> Result<(), dmu::Error> {
        if live.count > 0 {
            words::update(&self.entries, tx, &[offset], &value_of(live.count, is_number, LE))?;
        } else {
            words::remove(&self.entries, tx, &[offset])?;
        }
        let Some(at) = self.header.count_at(offset) else { return Ok(()) };
        let before = self.in_range(offset)?;
        let after = match (live.stored, live.count) {
            (0, _) => before.checked_add(1).expect("a range has fewer blocks than a count can say"),
            (_, 0) => before.saturating_sub(1),
            _ => return Ok(()),
        };
        let mut raw = [0; 2];
        self.header.order.put_u16(&mut raw, 0, after);
        self.counts.write(tx, at, &raw)
    }

    /// A new table for a vdev of `asize` bytes.
    fn create(mos: &Mos, tx: &Tx, vdev: u32, asize: u64) -> Result<Table> {
        let objset = &mos.objset;
        let plain = NewObject::plain(ObjectType::ZAP_METADATA).block_size(1 << ENTRIES_SHIFT);
        let entries = objset.create_object(tx, plain)?;
        words::create(&entries, tx, ENTRIES_SHIFT, mos.salt(), 0)?;
        let header = Header {
            entries: entries.id(),
            ranges: asize.div_ceil(RANGE_SIZE),
            order: LE,
            total: 0,
            range_size: RANGE_SIZE,
            used: 0,
            saved: 0,
        };
        let new = NewObject::plain(ObjectType::UINT64_METADATA)
            .block_size(1 << COUNTS_SHIFT)
            .bonus(ObjectType::UINT64_METADATA, vec![0; HEADER_SIZE]);
        let counts = objset.create_object(tx, new)?;
        mos.set_directory(tx, &directory_key(vdev), &Value::from_u64(counts.id().0))?;
        Ok(Table { counts, entries, header, changed: true })
    }
}

impl Brt {
    /// The tables as they are on disk.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn load(mos: &Objset, vdevs: &Vdevs) -> Result<Brt> {
        let mut tables = BTreeMap::new();
        for top in vdevs.tops() {
            tables.extend(Table::load(mos, top.id)?.map(|table| (top.id, table)));
        }
        Ok(Brt { tables, ..Brt::default() })
    }

    /// The counts of cloned blocks.
    pub(crate) fn clones(&self) -> Clones {
        self.tables.values().fold(Clones::default(), |sum, Table { header, .. }| Clones {
            used: sum.used.saturating_add(header.used),
            saved: sum.saved.saturating_add(header.saved),
        })
    }

    /// Bytes of the tables on the disks.
    pub(crate) fn bytes(&self) -> u64 {
        self.tables.values().map(|table| table.entries.used_bytes() + table.counts.used_bytes()).sum()
    }

    /// The vdevs that have a table, and for how many bytes of each it counts ranges.
    pub fn sizes(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        let size = |header: &Header| header.ranges.saturating_mul(header.range_size);
        self.tables.iter().map(move |(vdev, table)| (*vdev, size(&table.header)))
    }

    /// All entries: vdev, offset and further references.
    pub fn entries(&self) -> impl Iterator<Item = Result<(u32, u64, u64), dmu::Error>> + '_ {
        self.tables.iter().flat_map(|(vdev, table)| {
            words::entries(&table.entries).map(|found| {
                let found = found?;
                let key = Corrupt::new("clone table key", found.key.len() as u64);
                let offset = *found.key.first().ok_or(key).map_err(bad(&table.entries))?;
                let count = count_of(&found.value, LE).ok_or(key).map_err(bad(&table.entries))?;
                Ok((*vdev, offset, count))
            })
        })
    }

    /// Adds one reference to `block`, which no dedup table counts. All references of a txg must be added before any is
    /// released. Pools without the feature have no cloned blocks.
    pub(crate) fn refer(
        &mut self,
        (mos, tx): (&Mos, &Tx),
        vdevs: &Vdevs,
        features: &mut Option<Features>,
        block: &Block,
    ) -> Result<()> {
        let first = block.dvas[0];
        let top = vdevs.tops().get(first.vdev.0 as usize);
        let top = top.ok_or_else(|| Corrupt::new("vdev of a cloned block", first.vdev.0.into()));
        let asize = counted(top.map_err(storage::ReadError::from)?, first.offset);
        let table = match self.tables.entry(first.vdev.0) {
            btree_map::Entry::Occupied(known) => known.into_mut(),
            btree_map::Entry::Vacant(new) => {
                take_features(features, tx)?;
                new.insert(Table::create(mos, tx, first.vdev.0, asize)?)
            }
        };
        // The vdev has grown.
        table.header.ranges = table.header.ranges.max(asize.div_ceil(table.header.range_size));
        let live = match self.live.entry((first.vdev.0, first.offset)) {
            btree_map::Entry::Occupied(known) => known.into_mut(),
            btree_map::Entry::Vacant(new) => {
                let count = table.known(first.offset)?.unwrap_or(0);
                new.insert(Live { count, stored: count })
            }
        };
        let dsize = vdevs.dsize(block);
        let header = &mut table.header;
        header.saved = header.saved.saturating_add(dsize);
        if live.count == 0 {
            header.used = header.used.saturating_add(dsize);
            header.total += 1;
        }
        live.count += 1;
        table.changed = true;
        Ok(())
    }

    /// Removes one reference to `block`. `false` if it was the last one: then the caller frees the block.
    pub(crate) fn release(&mut self, vdevs: &Vdevs, block: &Block) -> Result<bool, dmu::Error> {
        let first = block.dvas[0];
        if block.level > 0 || block.object_type.is_metadata() {
            return Ok(false);
        }
        let Some(table) = self.tables.get_mut(&first.vdev.0) else { return Ok(false) };
        let live = match self.live.entry((first.vdev.0, first.offset)) {
            btree_map::Entry::Occupied(known) => known.into_mut(),
            btree_map::Entry::Vacant(new) => {
                let Some(count) = table.known(first.offset)? else { return Ok(false) };
                new.insert(Live { count, stored: count })
            }
        };
        let Some(count) = live.count.checked_sub(1) else { return Ok(false) };
        live.count = count;
        let dsize = vdevs.dsize(block);
        let header = &mut table.header;
        header.saved = header.saved.saturating_sub(dsize);
        if count == 0 {
            header.used = header.used.saturating_sub(dsize);
            header.total = header.total.saturating_sub(1);
        }
        table.changed = true;
        Ok(true)
    }

    /// Writes the changes of the txg to the tables. Empty tables are destroyed.
    pub(crate) fn store(&mut self, mos: &Objset, tx: &Tx, features: &mut Option<Features>) -> Result<()> {
        let is_active = |feature| features.as_ref().is_some_and(|known| known.is_active(feature));
        let is_number = is_active(&features::BLOCK_CLONING_ENDIAN);
        for ((vdev, offset), live) in std::mem::take(&mut self.live) {
            if live.count != live.stored {
                let table = self.tables.get(&vdev).expect("its entry was found in it");
                table.put(tx, offset, &live, is_number)?;
            }
        }
        let mut ended = Vec::new();
        for (vdev, table) in self.tables.iter_mut().filter(|(_, table)| table.changed) {
            table.changed = false;
            let header = table.header.encode();
            table.counts.edit_bonus(tx, |raw| raw[..header.len()].copy_from_slice(&header));
            if table.header.total == 0 {
                ended.push(*vdev);
            }
        }
        for vdev in ended {
            let Some(table) = self.tables.remove(&vdev) else { continue };
            mos.free_object(tx, &table.entries);
            mos.free_object(tx, &table.counts);
            zap::remove(&mos.object(DIRECTORY)?, tx, directory_key(vdev).as_bytes())?;
            let given_up: [&Feature; 2] = [&features::BLOCK_CLONING, &features::BLOCK_CLONING_ENDIAN];
            for feature in given_up {
                if let Some(known) = features.as_mut().filter(|known| known.is_active(feature)) {
                    known.adjust(tx, feature, -1)?;
                }
            }
        }
        Ok(())
    }
}

/// The features that a table needs are in use once more. All tables of a pool have the same form.
fn take_features(features: &mut Option<Features>, tx: &Tx) -> Result<()> {
    let Some(known) = features else { return Ok(()) };
    let (cloning, numbers) = (&features::BLOCK_CLONING, &features::BLOCK_CLONING_ENDIAN);
    let is_number = known.is_enabled(numbers) && (known.is_active(numbers) || !known.is_active(cloning));
    known.adjust(tx, cloning, 1)?;
    if is_number { known.adjust(tx, numbers, 1) } else { Ok(()) }
}
