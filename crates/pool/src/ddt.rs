//! The dedup tables of the pool: which blocks are shared, and how many block pointers refer to each.
//!
//! From:   the sync of datasets, which looks up and enters blocks; whatever frees blocks.
//! To:     the tables in the MOS, once a txg; blocks that nothing refers to any more, to be freed.
//! Source: docs/format/14-dedup-and-cloning.md §2–§5, §7 (legacy tables).
//!
//! Entries that the txg touches are in memory until they are stored. The tables themselves stay on the disks.

mod log;
mod store;

use std::collections::BTreeMap;

use dmu::{Objset, Tx, zap};
use dsl::props::AUTO;
use format::blkptr::Block;
use format::ddt::{Class, Counts, Entry, KINDS, Key, Slot};
use format::{ChecksumKind, ObjectId};
use storage::Vdevs;

use self::log::Log;
use self::store::Kind;
use crate::Result;
use crate::mos::DIRECTORY;

pub(crate) use self::store::block_bytes;
pub use self::store::{Figures, Store};

/// The pool property that limits the tables.
const QUOTA: &[u8] = b"dedup_table_quota";
/// With this many entries in memory, they are stored before the txg ends.
const LIVE_MAX: usize = 1 << 16;

/// An entry that the syncing txg touches.
struct Live {
    entry: Entry,
    /// The store that it was found in.
    class: Option<Class>,
    /// It is not what is stored.
    changed: bool,
}

/// The stores of one checksum, by class.
type Stores = BTreeMap<Class, Store>;

/// The tables. Only the sync thread changes them.
#[derive(Default)]
pub struct Ddt {
    /// By number of the checksum.
    tables: BTreeMap<u64, Stores>,
    live: BTreeMap<(u64, Key), Live>,
    /// By number of the checksum: entries that are newer than those in the stores, of tables that are only read.
    logs: BTreeMap<u64, Log>,
    /// The statistics on disk do not match the stores and must be written.
    counted: bool,
    /// When all stores take this many bytes, they get no new entries.
    quota: Option<u64>,
}

impl Ddt {
    /// The tables as they are on disk.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn load(mos: &Objset) -> Result<Ddt> {
        let (mut tables, mut logs) = (BTreeMap::new(), BTreeMap::new());
        for (kind, _) in KINDS {
            let flat = log::directory_of(mos, kind)?;
            let within = flat.map_or((DIRECTORY, Kind::Legacy), |id| (id, Kind::Flat));
            let mut stores = Stores::new();
            for class in Class::ALL {
                stores.extend(Store::load(mos, within, (kind, class))?.map(|store| (class, store)));
            }
            tables.insert(kind.to_disk(), stores);
            if let Some(directory) = flat {
                logs.insert(kind.to_disk(), Log::load(mos, directory, kind)?);
            }
        }
        Ok(Ddt { tables, logs, ..Ddt::default() })
    }

    /// The stores of all tables.
    pub fn stores(&self) -> impl Iterator<Item = &Store> {
        self.tables.values().flat_map(Stores::values)
    }

    /// The entries of all logs.
    pub fn logged(&self) -> impl Iterator<Item = (ChecksumKind, &Key, &Entry)> {
        let kinds = KINDS.into_iter().filter_map(|(kind, _)| Some((kind, self.logs.get(&kind.to_disk())?)));
        kinds.flat_map(|(kind, log)| log.entries.iter().map(move |(key, entry)| (kind, key, entry)))
    }

    /// Whether a log has an entry in place of the one that a store has.
    #[must_use]
    pub fn is_logged(&self, kind: ChecksumKind, key: &Key) -> bool {
        self.logs.get(&kind.to_disk()).is_some_and(|log| log.entries.contains_key(key))
    }

    /// Bytes of all logs on the disks.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.logs.values().map(|log| log.on_disk).sum()
    }

    /// Sums over all tables and their logs. `vdevs` converts allocated bytes into the bytes that datasets are charged.
    pub(crate) fn total_with_logs(&self, vdevs: &Vdevs) -> Counts {
        let logged = self.logged().map(|(kind, key, entry)| counts(vdevs, kind, key, entry));
        logged.fold(self.total(), |sum, counts| sum.plus(&counts))
    }

    /// What the stores hold.
    pub(crate) fn total(&self) -> Counts {
        self.stores().fold(Counts::default(), |sum, store| sum.plus(&store.histogram.total()))
    }

    /// Bytes of all stores on the disks.
    pub(crate) fn bytes(&self) -> u64 {
        self.stores().map(Store::on_disk).sum()
    }

    /// Reads how large the tables may become.
    pub(crate) fn read_quota(&mut self, mos: &Objset) -> Result<()> {
        let directory = match mos.object(DIRECTORY) {
            // The pool is being made.
            Err(dmu::Error::NoObject(_)) => return Ok(()),
            found => found?,
        };
        let properties = zap::lookup_u64(&directory, b"pool_props")?;
        let stored = match properties.filter(|id| *id != 0) {
            Some(id) => zap::lookup_u64(&*mos.object(ObjectId(id))?, QUOTA)?,
            None => None,
        };
        self.quota = stored.filter(|bytes| ![0, AUTO].contains(bytes));
        Ok(())
    }

    /// Whether the tables take new entries.
    pub(crate) fn is_within_quota(&self) -> bool {
        self.quota.is_none_or(|most| self.bytes() <= most)
    }

    /// Whether entries are to be stored before more are touched.
    pub(crate) fn is_full(&self) -> bool {
        self.live.len() >= LIVE_MAX
    }

    /// Finds a block on disk with the same content as `block`, in at least this many copies. `block` has all its fields
    /// except its DVAs.
    pub(crate) fn find(
        &mut self,
        vdevs: &Vdevs,
        block: &Block,
        copies: u8,
    ) -> Result<Option<Block>, dmu::Error> {
        let (kind, key) = (block.checksum_kind, Key::of(block));
        let live = self.touch(vdevs, kind, key)?;
        let slot = live.entry.slots[usize::from(copies)];
        let found = slot.is_used().then(|| Entry::block(kind, &key, &slot)).transpose();
        Ok(found.map_err(storage::ReadError::from).map_err(storage::WriteError::from)?)
    }

    /// Adds one reference to `block`, which was written with this many copies.
    pub(crate) fn refer(&mut self, vdevs: &Vdevs, block: &Block, copies: u8) -> Result<(), dmu::Error> {
        let live = self.touch(vdevs, block.checksum_kind, Key::of(block))?;
        let slot = &mut live.entry.slots[usize::from(copies)];
        if !slot.is_used() {
            *slot = Slot::of(block);
        }
        assert!(slot.holds(block), "a reference is to the block of the entry");
        slot.refs = slot.refs.saturating_add(1);
        live.changed = true;
        Ok(())
    }

    /// Adds one reference to `block`, to which a block pointer exists already. `false` if the tables have no entry for it:
    /// then the caller counts it as a cloned block.
    pub(crate) fn share(&mut self, vdevs: &Vdevs, block: &Block) -> Result<bool, dmu::Error> {
        if !self.tables.contains_key(&block.checksum_kind.to_disk()) {
            return Ok(false);
        }
        let live = self.touch(vdevs, block.checksum_kind, Key::of(block))?;
        let Some(slot) = live.entry.slots.iter_mut().find(|slot| slot.holds(block)) else { return Ok(false) };
        slot.refs = slot.refs.saturating_add(1);
        live.changed = true;
        Ok(true)
    }

    /// Removes one reference to `block`. `false` if the tables have no entry for it: then the caller frees it.
    pub(crate) fn release(&mut self, vdevs: &Vdevs, block: &Block) -> Result<bool, dmu::Error> {
        if !self.tables.contains_key(&block.checksum_kind.to_disk()) {
            return Ok(false);
        }
        let live = self.touch(vdevs, block.checksum_kind, Key::of(block))?;
        let Some(slot) = live.entry.slots.iter_mut().find(|slot| slot.holds(block)) else { return Ok(false) };
        match slot.refs.checked_sub(1) {
            Some(refs) => slot.refs = refs,
            None => tracing::error!(?block, "the dedup table counts fewer references than there are"),
        }
        live.changed = true;
        Ok(true)
    }

    /// The entry of a key, taken into memory.
    fn touch(&mut self, vdevs: &Vdevs, kind: ChecksumKind, key: Key) -> Result<&mut Live, dmu::Error> {
        let place = (kind.to_disk(), key);
        if !self.live.contains_key(&place) {
            let stores = self.tables.entry(place.0).or_default();
            let mut live = Live { entry: Entry::default(), class: None, changed: false };
            // Most entries are in one of these two stores.
            for class in [Class::Duplicate, Class::Unique, Class::Ditto] {
                let Some(store) = stores.get_mut(&class) else { continue };
                if let Some(entry) = store.get(&key)? {
                    store.histogram.remove(&counts(vdevs, kind, &key, &entry));
                    live = Live { entry, class: Some(class), changed: false };
                    break;
                }
            }
            self.live.insert(place, live);
        }
        Ok(self.live.get_mut(&place).expect("it is there since the lines above"))
    }

    /// Stores the entries that the txg touched. Returns the blocks without references; the caller frees them.
    pub(crate) fn store(
        &mut self,
        mos: &Objset,
        tx: &Tx,
        vdevs: &Vdevs,
        salt: u64,
    ) -> Result<Vec<Block>, dmu::Error> {
        let mut freed = Vec::new();
        for ((number, key), mut live) in std::mem::take(&mut self.live) {
            let Some((kind, _)) = KINDS.into_iter().find(|(kind, _)| kind.to_disk() == number) else {
                continue;
            };
            for (copies, slot) in live.entry.slots.iter_mut().enumerate() {
                if slot.is_used() && (slot.refs == 0 || copies == 0) && live.changed {
                    let block = Entry::block(kind, &key, slot).map_err(storage::ReadError::from);
                    freed.push(block.map_err(storage::WriteError::from)?);
                    *slot = Slot::default();
                }
            }
            let class = if live.changed { live.entry.class() } else { live.class };
            let stores = self.tables.entry(number).or_default();
            if let Some(before) = live.class.filter(|before| live.changed && class != Some(*before)) {
                stores.get_mut(&before).expect("it was found there").remove(tx, &key)?;
            }
            let Some(class) = class else {
                self.counted |= live.changed;
                continue;
            };
            let store = match stores.entry(class) {
                std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
                std::collections::btree_map::Entry::Vacant(new) => {
                    new.insert(Store::create(mos, tx, (kind, class), salt)?)
                }
            };
            if live.changed {
                store.put(tx, &key, &live.entry)?;
                self.counted = true;
            }
            store.histogram.add(&counts(vdevs, kind, &key, &live.entry));
        }
        Ok(freed)
    }

    /// Writes the statistics after all entries of the txg are stored. Destroys empty tables.
    pub(crate) fn count(&mut self, mos: &Objset, tx: &Tx, salt: u64) -> Result<(), dmu::Error> {
        if !std::mem::take(&mut self.counted) {
            return Ok(());
        }
        for stores in self.tables.values_mut() {
            let mut entries = 0;
            for store in stores.values() {
                entries += store.len()?;
            }
            if entries == 0 {
                for store in std::mem::take(stores).into_values() {
                    store.destroy(mos, tx)?;
                }
            }
        }
        store::write_statistics(mos, tx, self.stores(), salt)
    }
}

/// What an entry adds to the statistics.
#[must_use]
pub fn counts(vdevs: &Vdevs, kind: ChecksumKind, key: &Key, entry: &Entry) -> Counts {
    Counts::of(key, entry, |slot| Entry::block(kind, key, slot).map_or(0, |block| vdevs.dsize(&block)))
}

#[cfg(test)]
mod tests {
    use format::blkptr::Dva;
    use format::{Checksum, ObjectType, Txg, VdevId};
    use storage::host::{ScriptedDisk, SeededEntropy};

    use super::*;
    use crate::testing::made;

    /// The block number `content` as it is written in so many copies in the txg `birth`, which also says where.
    fn block(content: u64, copies: u8, birth: u64) -> Block {
        let dva =
            |copy: u64| Dva { vdev: VdevId(0), asize: 512, offset: (birth * 8 + copy) << 9, gang: false };
        let dvas = [0, 1, 2].map(|copy| if copy < u64::from(copies) { dva(copy) } else { Dva::default() });
        Block {
            dvas,
            lsize: 512,
            psize: 512,
            checksum_kind: if content.is_multiple_of(3) { ChecksumKind::Edonr } else { ChecksumKind::Sha256 },
            checksum: Checksum([content.wrapping_mul(0x9e37_79b9_7f4a_7c15), content, 3, 4]),
            dedup: true,
            ..Block::plain(ObjectType::PLAIN_FILE_CONTENTS, Txg(birth))
        }
    }

    #[test]
    fn tables_count_references_as_a_model_does() {
        let disk = ScriptedDisk::new(64 << 20);
        let pool = made(std::slice::from_ref(&disk));
        let counted = pool.run(|syncing| {
            let (mos, tx, vdevs) = (&syncing.mos().objset, &syncing.tx, syncing.inner.storage.vdevs());
            let chance = SeededEntropy::new(1);
            let mut ddt = Ddt::default();
            let mut model: BTreeMap<(u64, u8), (Block, u64)> = BTreeMap::new();
            for step in 1..6000 {
                let (content, copies) = (chance.below(300), 1 + chance.below(2) as u8);
                let new = block(content, copies, step);
                let known = model.get_mut(&(content, copies));
                match (chance.below(9), known) {
                    (0..5, None) => {
                        assert_eq!(ddt.find(vdevs, &new, copies)?, None);
                        ddt.refer(vdevs, &new, copies)?;
                        model.insert((content, copies), (new, 1));
                    }
                    (0..5, Some((old, refs))) => {
                        let found = ddt.find(vdevs, &new, copies)?.expect("it was entered");
                        assert_eq!((found.dvas, found.birth), (old.dvas, old.birth));
                        ddt.refer(vdevs, &found, copies)?;
                        *refs += 1;
                    }
                    (_, Some((old, refs))) if *refs > 0 => {
                        assert!(ddt.release(vdevs, old)?);
                        *refs -= 1;
                    }
                    _ => assert!(!ddt.release(vdevs, &new)?, "no entry is about it"),
                }
                if chance.below(60) == 0 {
                    let mut freed: Vec<_> = ddt.store(mos, tx, vdevs, 7)?.iter().map(|b| b.dvas).collect();
                    ddt.count(mos, tx, 7)?;
                    let gone = model.extract_if(.., |_, (_, refs)| *refs == 0);
                    let mut expected: Vec<_> = gone.map(|(_, (block, _))| block.dvas).collect();
                    freed.sort_by_key(|dvas| dvas[0].offset);
                    expected.sort_by_key(|dvas| dvas[0].offset);
                    assert_eq!(freed, expected);
                    ddt = Ddt::load(mos)?;
                    let (total, refs) = (ddt.total(), model.values().map(|(_, refs)| refs).sum::<u64>());
                    assert_eq!((total.blocks, total.ref_blocks), (model.len() as u64, refs));
                }
            }
            Ok(model.len())
        });
        assert!(counted.unwrap() > 100);
    }
}
