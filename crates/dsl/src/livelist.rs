//! Livelists: which blocks a clone wrote since it was made. Destroying the clone then needs no walk through its tree.
//!
//! From:   the sync of a clone, which reports each block that it writes or frees.
//! To:     `frees`, which puts the list of a destroyed clone into the queue, and `pool`, which frees its blocks.
//! Source: docs/format/06-mos-dsl.md §7.5.

use std::collections::BTreeMap;

use dmu::{Tx, zap};
use format::deadlist::entry_for;
use format::zap::{Value, int_key};
use format::{BlockPtr, Corrupt, ObjectId, ObjectType, Txg, features};

use crate::change::Change;
use crate::features::Features;
use crate::mos::{DIRECTORY, Mos};
use crate::sizes::Sizes;
use crate::sublist::{self, Counts, Entry};
use crate::{Error, Result, bpobj, deadlist};

const KEY: &[u8] = b"com.delphix:livelist";
/// Key in the object directory of the queue: the lists of destroyed clones.
const QUEUE: &str = "com.delphix:deleted_clones";

/// The rules for new parts of a list, and for dropping a list.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The last part may have this many written blocks before the next txg begins a new one. Two neighbours that have fewer
    /// after all freed blocks are taken out become one.
    pub entries_max: u64,
    /// A clone that shares at most this percentage of its space with its origin has no list.
    pub percent_shared: u64,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules { entries_max: 500_000, percent_shared: 75 }
    }
}

/// The list of the clone in directory `dir`.
///
/// # Errors
/// If the directory cannot be read.
pub fn of(mos: &Mos, dir: ObjectId) -> Result<Option<ObjectId>> {
    let object = mos.object(dir)?;
    if object.object_type() != ObjectType::ZAP_METADATA {
        return Ok(None);
    }
    Ok(zap::lookup_u64(&object, KEY)?.map(ObjectId))
}

/// The lists of destroyed clones, whose blocks wait to be freed.
///
/// # Errors
/// If the queue cannot be read.
pub fn queued(mos: &Mos) -> Result<Vec<ObjectId>> {
    let Some(queue) = mos.directory_object(QUEUE)? else { return Ok(Vec::new()) };
    let object = mos.object(queue)?;
    let numbers = zap::entries(&object).map(|entry| {
        let number = entry?.number().ok_or_else(|| Corrupt::new("entry in the queue of livelists", 0));
        number.map(ObjectId).map_err(Error::corrupt(queue))
    });
    numbers.collect()
}

/// Whether lists of destroyed clones wait.
///
/// # Errors
/// If the object directory cannot be read.
pub fn is_queued(mos: &Mos) -> Result<bool> {
    Ok(mos.directory(QUEUE)?.is_some())
}

/// Sizes of all blocks that wait in the queue.
///
/// # Errors
/// If a list in it cannot be read.
pub fn waiting(mos: &Mos) -> Result<Sizes> {
    queued(mos)?.into_iter().try_fold(Sizes::default(), |sum, list| Ok(sum + totals(mos, list)?))
}

/// Sizes of all blocks in a list.
///
/// # Errors
/// If it cannot be read.
pub fn totals(mos: &Mos, list: ObjectId) -> Result<Sizes> {
    let header = deadlist::header(mos, list)?;
    Ok(Sizes { used: header.used, comp: header.compressed, uncomp: header.uncompressed })
}

/// Sizes of all blocks in a list, by the headers of its parts.
///
/// # Errors
/// If a part cannot be read.
pub fn totals_of_parts(mos: &Mos, list: ObjectId) -> Result<Sizes> {
    let parts = deadlist::entries(mos, list)?.into_iter();
    parts.map(|(_, part)| bpobj::totals(mos, part)).try_fold(Sizes::default(), |sum, part| Ok(sum + part?))
}

/// Entries of each part of a list, oldest part first: all, and those of freed blocks.
///
/// # Errors
/// If the list or a part cannot be read.
pub fn parts(mos: &Mos, list: ObjectId) -> Result<Vec<(u64, u64)>> {
    let counts = |(_, part)| sublist::counts(mos, part).map(|Counts { all, freed }| (all, freed));
    deadlist::entries(mos, list)?.into_iter().map(counts).collect()
}

/// Calls `each` for every block that a list has as written and not as freed.
///
/// # Errors
/// If the list cannot be read; one of `each`.
pub fn for_each(mos: &Mos, list: ObjectId, each: &mut dyn FnMut(&BlockPtr) -> Result<()>) -> Result<()> {
    for (_, part) in deadlist::entries(mos, list)? {
        sublist::live(mos, part)?.iter().try_for_each(&mut *each)?;
    }
    Ok(())
}

/// Blocks that the sync of a clone writes and frees.
pub struct Listed {
    rules: Rules,
    /// Blocks born later belong to the clone.
    origin_txg: Txg,
    written: Vec<Entry>,
    freed: Vec<Entry>,
}

impl Listed {
    /// For the dataset of directory `dir`; `None` if it has no list.
    ///
    /// # Errors
    /// If the directory or the origin cannot be read.
    pub fn watch(mos: &Mos, dir: ObjectId, rules: Rules) -> Result<Option<Listed>> {
        if of(mos, dir)?.is_none() {
            return Ok(None);
        }
        let origin_txg = mos.origin_txg(mos.dir(dir)?.origin)?;
        Ok(Some(Listed { rules, origin_txg, written: Vec::new(), freed: Vec::new() }))
    }

    /// Embedded blocks take no space that could be freed.
    fn lists(&self, ptr: &BlockPtr) -> bool {
        matches!(ptr, BlockPtr::Block(_)) && ptr.accounting_birth() > self.origin_txg
    }

    /// A block is written.
    pub fn born(&mut self, ptr: &BlockPtr, sizes: Sizes) {
        if self.lists(ptr) {
            self.written.push(Entry { ptr: *ptr, sizes, free: false });
        }
    }

    /// The clone lost a block.
    pub fn killed(&mut self, ptr: &BlockPtr, sizes: Sizes) {
        if self.lists(ptr) {
            self.freed.push(Entry { ptr: *ptr, sizes, free: true });
        }
    }
}

impl Change<'_> {
    /// Gives the new clone in directory `dir` an empty list.
    pub(crate) fn begin_livelist(&mut self, dir: ObjectId) -> Result<()> {
        if !self.enables(&features::LIVELIST) {
            return Ok(());
        }
        self.zapify(dir)?;
        let list = deadlist::create(self.view.mos, &mut *self.features, self.tx, &[])?;
        zap::insert(&self.mos().object(dir)?, self.tx, KEY, &Value::from_u64(list.0))?;
        self.adjust_feature(&features::LIVELIST, 1)
    }

    /// Takes the list away from the clone in directory `dir`, if it has one. Its blocks are found by a walk from now on.
    pub(crate) fn drop_livelist(&mut self, dir: ObjectId) -> Result<()> {
        let mos = self.mos();
        let Some(list) = of(mos, dir)? else { return Ok(()) };
        zap::remove(&mos.object(dir)?, self.tx, KEY)?;
        count_one_less(self.features, self.tx)?;
        if let Err(error) = deadlist::free(mos, &mut *self.features, self.tx, list) {
            tracing::warn!(%error, "a livelist cannot be freed: its objects stay");
        }
        Ok(())
    }

    /// Moves the list of a destroyed clone from its directory `dir` to the queue.
    pub(crate) fn queue_livelist(&mut self, dir: ObjectId, list: ObjectId) -> Result<()> {
        let mos = self.mos();
        let queue = match mos.directory_object(QUEUE)? {
            Some(queue) => queue,
            None => {
                let queue = mos.create_zap(self.tx, ObjectType::ZAP_METADATA, 0)?.id();
                mos.set_directory(self.tx, QUEUE, &Value::from_u64(queue.0))?;
                queue
            }
        };
        mos.add_int(self.tx, queue, list.0)?;
        Ok(zap::remove(&mos.object(dir)?, self.tx, KEY)?)
    }

    /// Adds the blocks that a sync wrote and freed to the list of the head `id`. `before` is the txg of the sync
    /// before. A list that is damaged, or no longer saves much, is dropped.
    pub(crate) fn settle_livelist(&mut self, id: ObjectId, before: Txg, listed: &Listed) -> Result<()> {
        let mos = self.mos();
        let phys = mos.dataset(id)?;
        let Some(list) = of(mos, phys.dir)? else { return Ok(()) };
        if let Err(error) = self.append_to_livelist(list, before, listed) {
            tracing::warn!(%error, "the livelist of a clone is damaged: the clone goes on without it");
            return self.drop_livelist(phys.dir);
        }
        let used = mos.dir(phys.dir)?.used_breakdown.head;
        if is_different(phys.referenced_bytes, used, listed.rules.percent_shared) {
            return self.drop_livelist(phys.dir);
        }
        Ok(())
    }

    fn append_to_livelist(&mut self, list: ObjectId, before: Txg, listed: &Listed) -> Result<()> {
        let mos = self.mos();
        let mut parts = deadlist::entries(mos, list)?;
        let is_full = match parts.last() {
            None => true,
            // All blocks of a txg are in one part.
            Some(_) if before == self.txg() => false,
            Some((_, last)) => {
                let Counts { all, freed } = sublist::counts(mos, *last)?;
                all.saturating_sub(freed) > listed.rules.entries_max
            }
        };
        if is_full && !(listed.written.is_empty() && listed.freed.is_empty()) {
            let part = (Txg(self.txg().0 - 1), sublist::create(mos, self.tx)?);
            deadlist::set_entry(mos, self.tx, list, part)?;
            parts.push(part);
        }
        self.enter(list, &mut parts, &listed.written)?;
        self.enter(list, &mut parts, &listed.freed)?;
        self.condense(list, &parts, listed.rules.entries_max)
    }

    /// Appends entries to the parts that they belong to.
    fn enter(&mut self, list: ObjectId, parts: &mut [deadlist::Entry], entries: &[Entry]) -> Result<()> {
        let mos = self.mos();
        let keys: Vec<Txg> = parts.iter().map(|(key, _)| *key).collect();
        let mut by_part: BTreeMap<usize, Vec<&Entry>> = BTreeMap::new();
        let mut sum = Sizes::default();
        for entry in entries {
            let birth = entry.ptr.accounting_birth();
            let at = entry_for(&keys, birth).ok_or_else(|| {
                Error::corrupt(list)(Corrupt::new("livelist without a block born in", birth.0))
            })?;
            by_part.entry(at).or_default().push(entry);
            sum += if entry.free { -entry.sizes } else { entry.sizes };
        }
        for (at, entries) in by_part {
            let part = parts[at];
            if deadlist::is_shared(mos, part.1)? {
                let own = sublist::create(mos, self.tx)?;
                deadlist::set_entry(mos, self.tx, list, (part.0, own))?;
                deadlist::free_list(mos, &mut *self.features, self.tx, part.1)?;
                parts[at].1 = own;
            }
            sublist::append(mos, self.tx, parts[at].1, entries)?;
        }
        deadlist::add_totals(mos, self.tx, list, sum)
    }

    /// Replaces the first two neighbours that are short enough by one part, without the freed blocks.
    fn condense(&mut self, list: ObjectId, parts: &[deadlist::Entry], entries_max: u64) -> Result<()> {
        let mos = self.mos();
        for pair in parts.windows(2) {
            let [first, next] = [pair[0], pair[1]];
            let (one, other) = (sublist::counts(mos, first.1)?, sublist::counts(mos, next.1)?);
            let both = Counts {
                all: one.all.saturating_add(other.all),
                freed: one.freed.saturating_add(other.freed),
            };
            if both.net() >= entries_max {
                continue;
            }
            let mut live = sublist::live(mos, first.1)?;
            live.append(&mut sublist::live(mos, next.1)?);
            let entry = |ptr| Entry { ptr, sizes: Sizes::of(mos.objset.vdevs(), &ptr), free: false };
            let live: Vec<Entry> = live.into_iter().map(entry).collect();
            let sum = live.iter().fold(Sizes::default(), |sum, entry| sum + entry.sizes);
            let before = bpobj::totals(mos, first.1)? + bpobj::totals(mos, next.1)?;
            if sum != before {
                let wrong = Corrupt::new("sums of a livelist's parts", before.used as u64);
                return Err(Error::corrupt(list)(wrong));
            }
            let new = sublist::create(mos, self.tx)?;
            sublist::append(mos, self.tx, new, &live)?;
            deadlist::set_entry(mos, self.tx, list, (first.0, new))?;
            deadlist::remove_entry(mos, self.tx, list, next.0)?;
            deadlist::free_list(mos, &mut *self.features, self.tx, first.1)?;
            return deadlist::free_list(mos, &mut *self.features, self.tx, next.1);
        }
        Ok(())
    }
}

/// Whether a clone that refers to so many bytes, and used so many itself, shares too little with its origin.
fn is_different(referenced: u64, used: u64, percent_shared: u64) -> bool {
    let shared = u128::from(referenced.saturating_sub(used)) * 100;
    referenced > 0 && shared / u128::from(referenced) <= u128::from(percent_shared)
}

fn count_one_less(known: &mut Option<Features>, tx: &Tx) -> Result<()> {
    match known {
        // The count on the disk may be wrong.
        Some(known) if known.is_active(&features::LIVELIST) => known.adjust(tx, &features::LIVELIST, -1),
        _ => Ok(()),
    }
}

/// Blocks that were taken out of the queue.
pub struct Taken {
    /// The blocks, which nothing refers to.
    pub blocks: Vec<BlockPtr>,
    /// By how much the sums of the list fell.
    pub sizes: Sizes,
    /// Entries that are gone, of freed blocks not counted.
    pub entries: u64,
    /// The list is gone.
    pub all: bool,
}

/// Takes up to `count` blocks out of a list in the queue, and the list out of the queue when it is empty.
///
/// # Errors
/// If the list cannot be read. Then nothing is changed.
pub fn take(
    mos: &Mos,
    features: &mut Option<Features>,
    tx: &Tx,
    list: ObjectId,
    count: u64,
) -> Result<Taken> {
    let Some(part) = deadlist::entries(mos, list)?.first().copied() else {
        let sizes = totals(mos, list)?;
        leave_queue(mos, features, tx, list)?;
        return Ok(Taken { blocks: Vec::new(), sizes, entries: 0, all: true });
    };
    let sublist::Taken { blocks, sizes, written, all } = sublist::take(mos, tx, part.1, count)?;
    if all {
        deadlist::remove_entry(mos, tx, list, part.0)?;
        deadlist::free_list(mos, features, tx, part.1)?;
    }
    deadlist::add_totals(mos, tx, list, -sizes)?;
    Ok(Taken { blocks, sizes, entries: written, all: false })
}

fn leave_queue(mos: &Mos, features: &mut Option<Features>, tx: &Tx, list: ObjectId) -> Result<()> {
    let queue = mos.need(QUEUE)?;
    zap::remove(&mos.object(queue)?, tx, int_key(list.0).as_bytes())?;
    deadlist::free(mos, features, tx, list)?;
    count_one_less(features, tx)?;
    if zap::count(&*mos.object(queue)?)? == 0 {
        zap::remove(&mos.object(DIRECTORY)?, tx, QUEUE.as_bytes())?;
        mos.free(tx, queue)?;
    }
    Ok(())
}
