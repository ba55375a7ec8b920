//! The dedup tables of the pool: which blocks are shared, and how many block pointers refer to each.
//!
//! From:   the sync of datasets, which looks up and enters blocks; all code that frees blocks.
//! To:     the tables in the MOS, once a txg; blocks that nothing refers to any more, to be freed.
//! Source: docs/format/14-dedup-and-cloning.md §2–§7.
//!
//! Entries that the txg touches are in memory until they are stored: in the stores of a legacy table, in the log of a table that
//! has logs (feature `fast_dedup`). The entries of logs are in memory, too. The stores stay on the disks.

mod flush;
mod forecast;
mod log;
mod prune;
mod store;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Place;

use dmu::{LookAhead, Objset, Tx, zap};
use dsl::props::AUTO;
use format::blkptr::Block;
use format::ddt::{Class, Counts, Entry, FLAT_SLOT, KINDS, Key, Slot};
use format::{ChecksumKind, Corrupt, ObjectId, features};
use storage::Vdevs;
use storage::allocator::{self, Allocator};

use self::log::{Flat, Logged};
use self::store::Kind;
use crate::Result;
use crate::features::Features;
use crate::mos::DIRECTORY;

pub use self::forecast::Forecast;
pub(crate) use self::prune::Cut;
pub use self::store::{Figures, Store};

/// The pool property that limits the tables.
const QUOTA: &[u8] = b"dedup_table_quota";
/// With this many entries in memory, they are stored before the txg ends.
const LIVE_MAX: usize = 1 << 16;

/// The values with which tables are written.
#[derive(Clone, Copy)]
pub(crate) struct Means<'a> {
    pub(crate) mos: &'a Objset,
    pub(crate) tx: &'a Tx,
    pub(crate) vdevs: &'a Vdevs,
    /// Of new ZAPs.
    pub(crate) salt: u64,
    /// Seconds since 1970.
    pub(crate) now: u64,
}

/// Where an entry was found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Nowhere,
    Store(Class),
    /// In a log; this store has an older version of it.
    Log(Option<Class>),
}

impl Found {
    /// The store that has a version of it.
    fn class(self) -> Option<Class> {
        match self {
            Found::Nowhere => None,
            Found::Store(class) => Some(class),
            Found::Log(class) => class,
        }
    }
}

/// An entry that the syncing txg touches.
struct Live {
    entry: Entry,
    found: Found,
    /// It is not what is stored.
    changed: bool,
}

/// The stores of one checksum, by class.
type Stores = BTreeMap<Class, Store>;

/// The table of one checksum.
#[derive(Default)]
struct Table {
    /// Of which kind it is; `None` for a table without entries.
    kind: Option<Kind>,
    stores: Stores,
    /// The logs of a table that has them, from its first entry on.
    flat: Option<Flat>,
}

/// Figures of what is in logs.
#[derive(Default)]
struct Tally {
    counts: Counts,
    /// Entries to whose blocks nothing refers any more, and the bytes of these blocks.
    unused: u64,
    unused_bytes: u64,
}

/// The tables. Only the sync thread changes them.
#[derive(Default)]
pub struct Ddt {
    /// By number of the checksum.
    tables: BTreeMap<u64, Table>,
    live: BTreeMap<(u64, Key), Live>,
    logged: Tally,
    /// New tables have logs.
    makes_logs: bool,
    /// The statistics on disk are older than the stores.
    counted: bool,
    /// Tables with logs that were made since the feature was last counted, less those that ended.
    made: i64,
    /// Bytes of all tables from which on they take no new entries.
    quota: Option<u64>,
}

/// The key of an entry: the checksum's kind, and the checksum with the sizes of the block.
#[derive(Clone, Copy)]
struct Named<'a> {
    kind: ChecksumKind,
    key: &'a Key,
}

impl Table {
    /// Where its stores are named.
    fn within(&self) -> (ObjectId, Kind) {
        self.flat.as_ref().map_or((DIRECTORY, Kind::Legacy), |flat| (flat.directory, Kind::Flat))
    }

    /// The slot of a block that is wanted in so many copies.
    fn slot(&self, copies: u8) -> usize {
        if self.kind == Some(Kind::Flat) { FLAT_SLOT } else { copies.into() }
    }

    /// Reads an entry.
    fn find(&self, key: &Key) -> Result<(Entry, Found), dmu::Error> {
        if let Some(logged) = self.flat.as_ref().and_then(|flat| flat.find(key)) {
            return Ok((logged.entry(), Found::Log(logged.class)));
        }
        // Most entries that are looked up are in one of the first two.
        for class in [Class::Duplicate, Class::Unique, Class::Ditto] {
            let Some(store) = self.stores.get(&class) else { continue };
            if let Some(entry) = store.get(key)? {
                return Ok((entry, Found::Store(class)));
            }
        }
        Ok((Entry::default(), Found::Nowhere))
    }

    /// Puts an entry into the store where it belongs, instead of the one of class `before`. Adds the blocks that nothing refers to any
    /// more to `freed`.
    fn put(
        &mut self,
        means: &Means<'_>,
        Named { kind, key }: Named<'_>,
        mut entry: Entry,
        before: Option<Class>,
        freed: &mut Vec<Block>,
    ) -> Result<(), dmu::Error> {
        for (copies, slot) in entry.slots.iter_mut().enumerate() {
            if slot.is_used() && (slot.refs == 0 || copies == 0) {
                let block = Entry::block(kind, key, slot).map_err(storage::ReadError::from);
                freed.push(block.map_err(storage::WriteError::from)?);
                *slot = Slot::default();
            }
        }
        let class = entry.class();
        if let Some(before) = before.filter(|before| class != Some(*before)) {
            let wrong =
                Corrupt::new("class of an entry of a dedup table without such a store", before as u64);
            let wrong = || dmu::Error::corrupt(self.within().0)(wrong);
            self.stores.get(&before).ok_or_else(wrong)?.remove(means.tx, key)?;
        }
        let Some(class) = class else { return Ok(()) };
        let within = self.within();
        let store = match self.stores.entry(class) {
            Place::Occupied(known) => known.into_mut(),
            Place::Vacant(new) => new.insert(Store::create(means, within, (kind, class))?),
        };
        store.put(means.tx, key, &entry)?;
        store.histogram.add(&counts(means.vdevs, kind, key, &entry));
        Ok(())
    }
}

impl Tally {
    fn add(&mut self, vdevs: &Vdevs, Named { kind, key }: Named<'_>, entry: &Entry) {
        self.counts = self.counts.plus(&counts(vdevs, kind, key, entry));
        let bytes = unused_bytes(vdevs, kind, key, entry);
        self.unused += u64::from(bytes.is_some());
        self.unused_bytes = self.unused_bytes.saturating_add(bytes.unwrap_or(0));
    }

    fn remove(&mut self, vdevs: &Vdevs, Named { kind, key }: Named<'_>, entry: &Entry) {
        self.counts = self.counts.minus(&counts(vdevs, kind, key, entry));
        let bytes = unused_bytes(vdevs, kind, key, entry);
        self.unused -= u64::from(bytes.is_some());
        self.unused_bytes = self.unused_bytes.saturating_sub(bytes.unwrap_or(0));
    }
}

/// Bytes of the block of a logged entry to which nothing refers any more.
fn unused_bytes(vdevs: &Vdevs, kind: ChecksumKind, key: &Key, entry: &Entry) -> Option<u64> {
    let slot = Some(&entry.slots[FLAT_SLOT]).filter(|slot| slot.is_used() && slot.refs == 0)?;
    Some(Entry::block(kind, key, slot).map_or(0, |block| vdevs.dsize(&block)))
}

/// The checksum of this number, if tables exist for it.
fn kind_of(number: u64) -> Option<ChecksumKind> {
    KINDS.into_iter().map(|(kind, _)| kind).find(|kind| kind.to_disk() == number)
}

impl Ddt {
    /// The tables as they are on disk; `vdevs` say what datasets are charged with.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn load(mos: &Objset, vdevs: &Vdevs) -> Result<Ddt> {
        let mut ddt = Ddt::default();
        for (kind, _) in KINDS {
            let flat = Flat::load(mos, kind)?;
            let mut table = Table { flat, ..Table::default() };
            let within = table.within();
            for class in Class::ALL {
                let store = Store::load(mos, within, (kind, class))?;
                table.stores.extend(store.map(|store| (class, store)));
            }
            table.kind = (table.flat.is_some() || !table.stores.is_empty()).then_some(within.1);
            for (key, logged) in table.flat.iter().flat_map(Flat::entries) {
                ddt.logged.add(vdevs, Named { kind, key }, &logged.entry());
            }
            ddt.tables.insert(kind.to_disk(), table);
        }
        Ok(ddt)
    }

    /// The stores of all tables.
    pub fn stores(&self) -> impl Iterator<Item = &Store> {
        self.tables.values().flat_map(|table| table.stores.values())
    }

    /// The same, when the tables are needed no longer.
    pub(crate) fn into_stores(self) -> impl Iterator<Item = Store> {
        self.tables.into_values().flat_map(|table| table.stores.into_values())
    }

    fn logs(&self) -> impl Iterator<Item = (ChecksumKind, &Flat)> {
        self.tables.iter().filter_map(|(number, table)| Some((kind_of(*number)?, table.flat.as_ref()?)))
    }

    /// The entries of all logs.
    pub fn logged(&self) -> impl Iterator<Item = (ChecksumKind, &Key, Entry)> {
        self.logs()
            .flat_map(|(kind, flat)| flat.entries().map(move |(key, logged)| (kind, key, logged.entry())))
    }

    /// Whether a log has an entry in place of the one that a store has.
    #[must_use]
    pub fn is_logged(&self, kind: ChecksumKind, key: &Key) -> bool {
        let table = self.tables.get(&kind.to_disk());
        table.and_then(|table| table.flat.as_ref()).is_some_and(|flat| flat.find(key).is_some())
    }

    /// Bytes of all logs on the disks.
    pub(crate) fn log_bytes(&self) -> u64 {
        self.logs().map(|(_, flat)| flat.on_disk()).sum()
    }

    /// The counts of all tables.
    pub(crate) fn total(&self) -> Counts {
        self.stores().fold(self.logged.counts, |sum, store| sum.plus(&store.histogram.total()))
    }

    /// Bytes of all tables on the disks.
    pub(crate) fn bytes(&self) -> u64 {
        self.stores().map(Store::on_disk).sum::<u64>() + self.log_bytes()
    }

    /// Bytes that a changed block of a table takes on the disks.
    pub(crate) fn block_bytes(&self, vdevs: &Vdevs) -> u64 {
        store::block_bytes(self.stores(), vdevs)
    }

    /// Reads of which kind new tables are, and how large all may become.
    pub(crate) fn begin_txg(
        &mut self,
        mos: &Objset,
        features: Option<&Features>,
        allocator: &Allocator,
    ) -> Result<()> {
        self.makes_logs = features.is_some_and(|known| known.is_enabled(&features::FAST_DEDUP));
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
        self.quota = match stored {
            Some(0) => None,
            None | Some(AUTO) => quota_by_devices(allocator),
            set => set,
        };
        Ok(())
    }

    /// Whether the tables take new entries.
    fn is_within_quota(&self) -> bool {
        self.quota.is_none_or(|most| self.bytes() <= most)
    }

    /// Whether `block`, which was looked up and not found, may be entered.
    pub(crate) fn takes(&self, block: &Block, copies: u8) -> bool {
        let number = block.checksum_kind.to_disk();
        let slot = self.tables.get(&number).map_or(usize::from(copies), |table| table.slot(copies));
        let live = self.live.get(&(number, Key::of(block)));
        // One with fewer copies is there.
        let is_taken = live.is_some_and(|live| live.entry.slots[slot].is_used());
        !is_taken && self.is_within_quota()
    }

    /// Whether entries are to be stored before more are touched.
    pub(crate) fn is_full(&self) -> bool {
        self.live.len() >= LIVE_MAX
    }

    /// The block with the content of `block`, which is complete but for its place, in so many copies at least.
    pub(crate) fn find(
        &mut self,
        vdevs: &Vdevs,
        block: &Block,
        copies: u8,
    ) -> Result<Option<Block>, dmu::Error> {
        let (kind, key) = (block.checksum_kind, Key::of(block));
        let (slot, live) = self.touch(vdevs, kind, key, copies)?;
        let slot = live.entry.slots[slot];
        if !slot.is_used() {
            return Ok(None);
        }
        let found = Entry::block(kind, &key, &slot).map_err(storage::ReadError::from);
        let found = found.map_err(storage::WriteError::from)?;
        Ok(Some(found).filter(|found| found.copies().count() >= usize::from(copies)))
    }

    /// Reads the stores for look-ups that are about to come.
    pub(crate) fn look_ahead(&self) -> Option<LookAhead> {
        let of_kind = |(number, table): (&u64, &Table)| {
            let objects = table.stores.values().map(Store::object).collect::<Vec<_>>();
            (!objects.is_empty()).then_some((*number, objects))
        };
        let stores: BTreeMap<u64, Vec<_>> = self.tables.iter().filter_map(of_kind).collect();
        if stores.is_empty() {
            return None;
        }
        let look = move |block: &Block| {
            for object in stores.get(&block.checksum_kind.to_disk()).into_iter().flatten() {
                let _ = zap::words::lookup(object, &Key::of(block).0);
            }
        };
        Some(Box::new(look))
    }

    /// Adds one reference to `block`, which was written with this many copies.
    pub(crate) fn refer(&mut self, vdevs: &Vdevs, block: &Block, copies: u8) -> Result<(), dmu::Error> {
        let (slot, live) = self.touch(vdevs, block.checksum_kind, Key::of(block), copies)?;
        let slot = &mut live.entry.slots[slot];
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
        self.change(vdevs, block, |slot| slot.refs = slot.refs.saturating_add(1))
    }

    /// Removes one reference to `block`. `false` if the tables have no entry for it: then the caller frees it.
    pub(crate) fn release(&mut self, vdevs: &Vdevs, block: &Block) -> Result<bool, dmu::Error> {
        self.change(vdevs, block, |slot| match slot.refs.checked_sub(1) {
            Some(refs) => slot.refs = refs,
            None => tracing::error!(?block, "the dedup table counts fewer references than there are"),
        })
    }

    /// Changes the slot that is about `block`. `false` if there is none.
    fn change(
        &mut self,
        vdevs: &Vdevs,
        block: &Block,
        change: impl FnOnce(&mut Slot),
    ) -> Result<bool, dmu::Error> {
        if !self.tables.contains_key(&block.checksum_kind.to_disk()) {
            return Ok(false);
        }
        let (_, live) = self.touch(vdevs, block.checksum_kind, Key::of(block), 0)?;
        let Some(slot) = live.entry.slots.iter_mut().find(|slot| slot.holds(block)) else { return Ok(false) };
        change(slot);
        live.changed = true;
        Ok(true)
    }

    /// The entry of a key, taken into memory, and which slot is about blocks of so many copies.
    fn touch(
        &mut self,
        vdevs: &Vdevs,
        kind: ChecksumKind,
        key: Key,
        copies: u8,
    ) -> Result<(usize, &mut Live), dmu::Error> {
        let number = kind.to_disk();
        let table = self.tables.entry(number).or_default();
        table.kind.get_or_insert(if self.makes_logs { Kind::Flat } else { Kind::Legacy });
        let slot = table.slot(copies);
        let live = match self.live.entry((number, key)) {
            Place::Occupied(known) => known.into_mut(),
            Place::Vacant(new) => {
                let (entry, found) = table.find(&key)?;
                match found {
                    Found::Nowhere => {}
                    Found::Store(class) => {
                        let store = table.stores.get_mut(&class).expect("it was found there");
                        store.histogram.remove(&counts(vdevs, kind, &key, &entry));
                    }
                    Found::Log(_) => self.logged.remove(vdevs, Named { kind, key: &key }, &entry),
                }
                new.insert(Live { entry, found, changed: false })
            }
        };
        Ok((slot, live))
    }

    /// Stores the entries that the txg touched. Returns the blocks that are no longer referenced; the caller frees
    /// them.
    pub(crate) fn store(&mut self, means: &Means<'_>) -> Result<Vec<Block>, dmu::Error> {
        let mut freed = Vec::new();
        let mut to_log: BTreeMap<u64, Vec<(Key, Logged)>> = BTreeMap::new();
        for ((number, key), mut live) in std::mem::take(&mut self.live) {
            let Some(kind) = kind_of(number) else { continue };
            let named = Named { kind, key: &key };
            let table = self.tables.entry(number).or_default();
            if !live.changed {
                match live.found {
                    Found::Nowhere => {}
                    Found::Store(class) => {
                        let store = table.stores.get_mut(&class).expect("it was found there");
                        store.histogram.add(&counts(means.vdevs, kind, &key, &live.entry));
                    }
                    Found::Log(_) => self.logged.add(means.vdevs, named, &live.entry),
                }
                continue;
            }
            self.counted = true;
            if table.kind == Some(Kind::Flat) {
                live.entry.changed = means.now;
                self.logged.add(means.vdevs, named, &live.entry);
                let logged = Logged::new(&live.entry, live.found.class());
                to_log.entry(number).or_default().push((key, logged));
            } else {
                table.put(means, named, live.entry, live.found.class(), &mut freed)?;
            }
        }
        for (number, new) in to_log {
            let Some(kind) = kind_of(number) else { continue };
            let table = self.tables.entry(number).or_default();
            let flat = match &mut table.flat {
                Some(flat) => flat,
                none => {
                    self.made += 1;
                    none.insert(Flat::create(means, kind)?)
                }
            };
            flat.append(means, kind, new)?;
        }
        Ok(freed)
    }

    /// Writes the statistics, after all entries of the txg are stored. Tables in which nothing is left end.
    pub(crate) fn count(&mut self, means: &Means<'_>, features: &mut Option<Features>) -> Result<()> {
        if !std::mem::take(&mut self.counted) {
            return Ok(());
        }
        for (number, table) in &mut self.tables {
            let mut entries = 0;
            for store in table.stores.values() {
                entries += store.len()?;
            }
            let is_logged = table.flat.as_ref().is_some_and(|flat| !flat.is_empty());
            if entries > 0 || is_logged {
                continue;
            }
            let (within, _) = table.within();
            let Table { stores, flat, .. } = std::mem::take(table);
            for store in stores.into_values() {
                store.destroy(means, within)?;
            }
            if let (Some(flat), Some(kind)) = (flat, kind_of(*number)) {
                flat.destroy(means, kind)?;
                self.made -= 1;
            }
        }
        let made = std::mem::take(&mut self.made);
        if let Some(known) = features.as_mut().filter(|_| made != 0) {
            known.adjust(means.tx, &features::FAST_DEDUP, made)?;
        }
        Ok(store::write_statistics(means, self.stores())?)
    }
}

/// How large tables become where nothing is said: as large as the devices for them, with some room left.
fn quota_by_devices(allocator: &Allocator) -> Option<u64> {
    let size = |class| {
        let of_class = allocator.vdevs().filter(|vdev| vdev.class == class);
        of_class.filter_map(|vdev| Some(allocator.vdev_space(vdev.id)?.size)).sum::<u64>()
    };
    let classes = [allocator::Class::Dedup, allocator::Class::Special];
    let size = classes.into_iter().map(size).find(|size| *size > 0)?;
    Some((size / 100 * 85).max(size.saturating_sub(8 << 30)))
}

/// The counts that an entry adds to the statistics.
#[must_use]
pub fn counts(vdevs: &Vdevs, kind: ChecksumKind, key: &Key, entry: &Entry) -> Counts {
    Counts::of(key, entry, |slot| Entry::block(kind, key, slot).map_or(0, |block| vdevs.dsize(&block)))
}

#[cfg(test)]
mod tests;
