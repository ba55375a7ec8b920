//! One metaslab: an equal share of a top-level vdev, with its free space in memory only when needed.
//!
//! From:   the allocated bytes in its space map's header, and the map's entries when it is loaded.
//! To:     `allocator`, which picks a metaslab and asks it for room.
//! Source: docs/format/05-space-maps.md §1–§3.
//!
//! Every byte is in exactly one state: allocated, deferred (freed, but an uberblock that we may fall back to
//! still reaches it) or allocatable. A change is *pending* until the pool takes it to write it down.

use format::{Corrupt, Txg};

use super::segments::Segments;

/// Segments looked at before first fit gives way to best fit.
const WALK_MAX: usize = 64;
/// If the longest run is shorter than this, in bytes, or less than 1/25 is free, free space is too fragmented for first fit.
const FIRST_FIT_MIN: u64 = 128 << 10;
/// Cursors by log2 of the size asked for, from 512 bytes to 16 MiB and more.
const CURSORS: usize = 16;

/// (Byte offset within the vdev, bytes), ascending and coalesced.
pub type Runs = Vec<(u64, u64)>;

/// Which runs of a metaslab are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Those that may be handed out next: no state of the pool that an import may return to has data there.
    Free,
    /// Those in use as of now.
    InUse,
    /// Those that are not to be handed out now: in use, or freed and not reusable yet.
    NotFree,
}

/// What a space map entry does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapEntry {
    /// `len` bytes at `offset` were allocated.
    Alloc {
        /// Byte offset within the vdev.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// `len` bytes at `offset` were freed.
    Free {
        /// Byte offset within the vdev.
        offset: u64,
        /// Bytes.
        len: u64,
    },
}

/// Changes of one txg that were not taken yet.
#[derive(Clone, Debug, Default)]
struct Pending {
    allocs: Segments,
    frees: Segments,
}

#[derive(Clone, Debug)]
struct Loaded {
    allocatable: Segments,
    /// Where the next search begins, per size class.
    cursors: [u64; CURSORS],
}

/// A metaslab; see the module's description. Offsets are bytes within the vdev.
#[derive(Clone, Debug)]
pub struct Metaslab {
    start: u64,
    size: u64,
    /// Pending changes included.
    allocated: u64,
    /// Freed, waiting: pending frees and `freed`.
    deferred: u64,
    /// A space map exists or its first entries were taken.
    has_map: bool,
    loaded: Option<Box<Loaded>>,
    /// While not loaded: no run is longer.
    longest_possible: u64,
    /// Last txg that allocated here since import.
    last_alloc: Option<Txg>,
    pending: Vec<(Txg, Pending)>,
    /// Freed segments by the txg that freed them. They cannot be reused yet.
    freed: Vec<(Txg, Segments)>,
}

impl Metaslab {
    /// The metaslab at `start`; `map` holds the allocated bytes of its space map, if it has one.
    pub(super) const fn new(start: u64, size: u64, map: Option<u64>) -> Metaslab {
        Metaslab {
            start,
            size,
            allocated: match map {
                Some(bytes) => bytes,
                None => 0,
            },
            deferred: 0,
            has_map: map.is_some(),
            loaded: None,
            longest_possible: size,
            last_alloc: None,
            pending: Vec::new(),
            freed: Vec::new(),
        }
    }

    /// First byte.
    #[must_use]
    pub const fn start(&self) -> u64 {
        self.start
    }

    /// Bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Bytes allocated, pending changes included.
    #[must_use]
    pub const fn allocated(&self) -> u64 {
        self.allocated
    }

    /// Bytes freed that cannot be reused yet.
    #[must_use]
    pub const fn deferred(&self) -> u64 {
        self.deferred
    }

    /// Bytes that could be allocated now, in pieces of any size.
    #[must_use]
    pub const fn allocatable(&self) -> u64 {
        self.size - self.allocated - self.deferred
    }

    /// Its free space is in memory.
    #[must_use]
    pub const fn is_loaded(&self) -> bool {
        self.loaded.is_some()
    }

    /// It has a space map, or changes that will make one were taken.
    #[must_use]
    pub const fn has_map(&self) -> bool {
        self.has_map
    }

    /// Runs of free space in memory.
    #[must_use]
    pub fn segment_count(&self) -> usize {
        self.loaded.as_ref().map_or(0, |loaded| loaded.allocatable.len())
    }

    /// Allocated from in `txg`: its space map changes anyway.
    pub(super) fn is_dirty_in(&self, txg: Txg) -> bool {
        self.last_alloc == Some(txg)
    }

    /// A run of `len` bytes may be found here (certainly, when it is loaded).
    pub(super) fn may_hold(&self, len: u64) -> bool {
        let longest =
            self.loaded.as_ref().map_or(self.longest_possible, |loaded| loaded.allocatable.largest());
        self.allocatable().min(longest) >= len
    }

    /// A replay that starts with everything free.
    pub(super) fn begin_load(&self, unit: u64) -> Replay {
        Replay { free: whole(self.start, self.size), start: self.start, size: self.size, unit, damage: None }
    }

    /// Takes over the contents of a space map as of txg `synced`.
    ///
    /// # Errors
    /// [`Corrupt`] when the entries contradict each other, the header's sum or what was freed since.
    pub(super) fn finish_load(&mut self, replay: Replay, synced: Txg) -> Result<(), Corrupt> {
        assert!(self.loaded.is_none(), "a metaslab is loaded once");
        assert!(self.last_alloc.is_none_or(|txg| txg <= synced), "who allocates stays loaded until synced");
        if let Some(damage) = replay.damage {
            return Err(damage);
        }
        let mut allocatable = replay.free;
        // Space freed after `synced` is still allocated in the map; space freed before is free there.
        let taken = self.freed.iter().map(|(txg, frees)| (*txg, frees));
        let (mut freed_since, mut held_back) = (Segments::new(), Vec::new());
        for (txg, frees) in taken.chain(self.pending.iter().map(|(txg, pending)| (*txg, &pending.frees))) {
            for (start, end) in frees.iter() {
                if txg <= synced {
                    held_back.push((start, end));
                } else {
                    let doubled = freed_since.add(start, end).is_err();
                    if doubled || allocatable.overlaps(start, end) {
                        return Err(Corrupt::new("free of space that its space map calls free, at", start));
                    }
                }
            }
        }
        let in_map = self.size - allocatable.total();
        if in_map != self.allocated + freed_since.total() {
            return Err(Corrupt::new("sum of a space map against its header", in_map));
        }
        for (start, end) in held_back {
            allocatable
                .remove(start, end)
                .map_err(|_| Corrupt::new("space map without the free of", start))?;
        }
        self.adopt(allocatable);
        Ok(())
    }

    /// Loads a metaslab without a space map: everything is free.
    pub(super) fn load_untouched(&mut self) {
        assert!(!self.has_map, "a map would have to be read");
        assert_eq!(self.allocated + self.deferred, 0, "without a map nothing is allocated");
        self.adopt(whole(self.start, self.size));
    }

    fn adopt(&mut self, allocatable: Segments) {
        assert_eq!(allocatable.total(), self.allocatable(), "free space equals the accounting");
        self.loaded = Some(Box::new(Loaded { allocatable, cursors: [self.start; CURSORS] }));
    }

    /// Forgets its free space, unless an allocation is not synced yet; says whether it did.
    pub(super) fn unload(&mut self, synced: Txg) -> bool {
        if self.last_alloc.is_some_and(|txg| txg > synced) {
            return false;
        }
        let Some(loaded) = self.loaded.take() else { return false };
        self.longest_possible = loaded.allocatable.largest();
        true
    }

    /// Last txg that allocated here.
    pub(super) const fn last_alloc(&self) -> Option<Txg> {
        self.last_alloc
    }

    /// Where `len` bytes could go: from the cursor on, or into the tightest hole when space is broken.
    /// Finds room whenever there is a run long enough.
    pub(super) fn find(&mut self, len: u64) -> Option<u64> {
        let loaded = self.loaded.as_mut()?;
        let space = &loaded.allocatable;
        let longest = space.largest();
        if longest < len {
            return None;
        }
        if longest < FIRST_FIT_MIN || space.total() < self.size / 25 {
            return space.best_fit(len);
        }
        let class = (len.ilog2().saturating_sub(9) as usize).min(CURSORS - 1);
        let cursor = &mut loaded.cursors[class];
        for begin in [*cursor, self.start] {
            let mut walked = 0;
            for (start, end) in space.iter_from(begin).take(WALK_MAX) {
                if end - start >= len {
                    *cursor = start + len;
                    return Some(start);
                }
                (walked, *cursor) = (walked + 1, end);
            }
            if walked == WALK_MAX {
                break;
            }
        }
        space.best_fit(len)
    }

    /// Like [`Metaslab::find`], at least `distance` bytes from each of `others`.
    pub(super) fn find_away(&self, len: u64, others: &[u64], distance: u64) -> Option<u64> {
        let space = &self.loaded.as_ref()?.allocatable;
        let is_away = |at: u64| others.iter().all(|other| at.abs_diff(*other) >= distance);
        let begins = others.iter().map(|other| other.saturating_add(distance)).chain([self.start]);
        begins
            .flat_map(|begin| space.iter_from(begin).take(WALK_MAX))
            .find(|(start, end)| end - start >= len && is_away(*start))
            .map(|(start, _)| start)
    }

    /// Allocates what was found.
    pub(super) fn allocate(&mut self, offset: u64, len: u64, txg: Txg) {
        let loaded = self.loaded.as_mut().expect("space was found in a loaded metaslab");
        loaded.allocatable.remove(offset, offset + len).expect("found space is allocatable");
        self.allocated += len;
        self.last_alloc = self.last_alloc.max(Some(txg));
        self.pending(txg).allocs.add(offset, offset + len).expect("allocatable space was not allocated");
    }

    /// Whether all of the range could be handed out now.
    pub(super) fn is_allocatable(&self, offset: u64, len: u64) -> bool {
        self.loaded.as_ref().is_some_and(|loaded| loaded.allocatable.contains(offset, offset + len))
    }

    /// Drops the list of pending changes of `txg` if there are none in it.
    pub(super) fn forget_if_empty(&mut self, txg: Txg) -> bool {
        let is_empty = |pending: &Pending| pending.allocs.is_empty() && pending.frees.is_empty();
        self.pending.retain(|(of, pending)| *of != txg || !is_empty(pending));
        self.pending.iter().all(|(of, _)| *of != txg)
    }

    /// Undoes an allocation that was not taken yet.
    pub(super) fn undo(&mut self, offset: u64, len: u64, txg: Txg) {
        self.pending(txg).allocs.remove(offset, offset + len).expect("the allocation is pending");
        let loaded = self.loaded.as_mut().expect("who allocates stays loaded");
        loaded.allocatable.add(offset, offset + len).expect("allocated space was not allocatable");
        self.allocated -= len;
    }

    /// Frees `len` bytes at `offset`; `false` (and no change) when they are not known to be allocated.
    pub(super) fn free(&mut self, offset: u64, len: u64, txg: Txg) -> bool {
        let end = offset + len;
        let was_freed = self.allocated < len
            || self.loaded.as_ref().is_some_and(|loaded| loaded.allocatable.overlaps(offset, end))
            || self.freed.iter().any(|(_, frees)| frees.overlaps(offset, end))
            || self.pending.iter().any(|(_, pending)| pending.frees.overlaps(offset, end));
        if was_freed {
            return false;
        }
        self.pending(txg).frees.add(offset, end).expect("overlaps were looked for");
        self.allocated -= len;
        self.deferred += len;
        true
    }

    fn pending(&mut self, txg: Txg) -> &mut Pending {
        let index = self.pending.iter().position(|(of, _)| *of == txg).unwrap_or_else(|| {
            self.pending.push((txg, Pending::default()));
            self.pending.len() - 1
        });
        &mut self.pending[index].1
    }

    /// Hands out the pending changes of `txg` as (offset, len) lists: allocations, frees.
    pub(super) fn take_changes(&mut self, txg: Txg) -> (Runs, Runs) {
        let Some(index) = self.pending.iter().position(|(of, _)| *of == txg) else {
            return (Vec::new(), Vec::new());
        };
        let (_, Pending { allocs, frees }) = self.pending.swap_remove(index);
        let runs = (runs(&allocs), runs(&frees));
        if !frees.is_empty() {
            match self.freed.iter_mut().find(|(of, _)| *of == txg) {
                Some((_, all)) => {
                    for (start, end) in frees.iter() {
                        all.add(start, end).expect("a range is freed once");
                    }
                }
                None => self.freed.push((txg, frees)),
            }
        }
        self.has_map |= !runs.0.is_empty() || !runs.1.is_empty();
        runs
    }

    /// Merges the frees of `from` into those of `into`, because both wait for the same event.
    pub(super) fn merge_freed(&mut self, from: Txg, into: Txg) {
        let Some(index) = self.freed.iter().position(|(of, _)| *of == from) else { return };
        let (_, mut fewer) = self.freed.swap_remove(index);
        match self.freed.iter_mut().find(|(of, _)| *of == into) {
            Some((_, all)) => {
                if fewer.len() > all.len() {
                    std::mem::swap(&mut fewer, all);
                }
                for (start, end) in fewer.iter() {
                    all.add(start, end).expect("a range is freed once");
                }
            }
            None => self.freed.push((into, fewer)),
        }
    }

    /// Makes the space that `txg` freed allocatable again; returns it as (offset, len).
    pub(super) fn settle(&mut self, txg: Txg) -> Runs {
        let Some(index) = self.freed.iter().position(|(of, _)| *of == txg) else { return Vec::new() };
        let (_, frees) = self.freed.swap_remove(index);
        self.deferred -= frees.total();
        match &mut self.loaded {
            Some(loaded) => {
                for (start, end) in frees.iter() {
                    loaded.allocatable.add(start, end).expect("freed space was not allocatable");
                }
                assert_eq!(
                    loaded.allocatable.total(),
                    self.size - self.allocated - self.deferred,
                    "free space equals the accounting"
                );
            }
            None => self.longest_possible = self.size,
        }
        runs(&frees)
    }

    /// The runs that are meant, as (offset, len); nothing if not loaded.
    #[must_use]
    pub fn runs(&self, which: Which) -> Runs {
        match which {
            Which::Free => self.allocatable_runs(),
            Which::InUse => self.runs_in_use(),
            Which::NotFree => self.runs_not_free(),
        }
    }

    /// The ranges that may be handed out, as (offset, len); none if not loaded.
    fn allocatable_runs(&self) -> Runs {
        self.loaded.as_ref().map_or_else(Runs::new, |loaded| runs(&loaded.allocatable))
    }

    /// Free runs by size for the space map's header (05 §2), deferred ones included; `None` if not loaded.
    #[must_use]
    pub fn histogram(&self, shift: u32) -> Option<[u64; 32]> {
        let loaded = self.loaded.as_ref()?;
        let mut histogram = [0; 32];
        let pending = self.pending.iter().map(|(_, pending)| &pending.frees);
        for set in pending.chain(self.freed.iter().map(|(_, frees)| frees)).chain([&loaded.allocatable]) {
            set.add_to_histogram(shift, &mut histogram);
        }
        Some(histogram)
    }

    /// The ranges that a space map with all changes taken so far calls allocated, as (offset, len); `None` if not
    /// loaded. It is used to write a map anew (condensing).
    #[must_use]
    pub fn allocated_runs(&self) -> Option<Runs> {
        let taken = self.freed.iter().map(|(_, frees)| frees);
        self.all_but(taken.chain(self.pending.iter().map(|(_, pending)| &pending.allocs)))
    }

    /// The ranges in use as of now, as (offset, len); none if not loaded.
    fn runs_in_use(&self) -> Runs {
        let taken = self.freed.iter().map(|(_, frees)| frees);
        let freed = taken.chain(self.pending.iter().map(|(_, pending)| &pending.frees));
        self.all_but(freed).unwrap_or_default()
    }

    /// The ranges that are not to be handed out now, as (offset, len): in use, or freed and not reusable yet; none if
    /// not loaded.
    fn runs_not_free(&self) -> Runs {
        self.all_but(std::iter::empty()).unwrap_or_default()
    }

    /// All but what is allocatable and these sets, as (offset, len); `None` if not loaded.
    fn all_but<'a>(&'a self, sets: impl Iterator<Item = &'a Segments>) -> Option<Runs> {
        let mut free = self.loaded.as_ref()?.allocatable.clone();
        for set in sets {
            for (start, end) in set.iter() {
                free.add(start, end).expect("every byte is in one state");
            }
        }
        let mut allocated = Vec::new();
        let mut at = self.start;
        for (start, end) in free.iter() {
            if at < start {
                allocated.push((at, start - at));
            }
            at = end;
        }
        if at < self.start + self.size {
            allocated.push((at, self.start + self.size - at));
        }
        Some(allocated)
    }
}

fn whole(start: u64, size: u64) -> Segments {
    let mut free = Segments::indexed();
    free.add(start, start + size).expect("the set is empty");
    free
}

fn runs(set: &Segments) -> Runs {
    set.iter().map(|(start, end)| (start, end - start)).collect()
}

/// The free space of a metaslab while its space map is read. Entries are input: each is checked.
pub(super) struct Replay {
    free: Segments,
    start: u64,
    size: u64,
    unit: u64,
    damage: Option<Corrupt>,
}

impl Replay {
    /// Applies the next entry; after the first impossible one the rest is ignored.
    pub(super) fn apply(&mut self, entry: MapEntry) {
        if self.damage.is_none() {
            self.damage = self.try_apply(entry).err();
        }
    }

    fn try_apply(&mut self, entry: MapEntry) -> Result<(), Corrupt> {
        let (MapEntry::Alloc { offset, len } | MapEntry::Free { offset, len }) = entry;
        let is_inside = offset >= self.start && len <= self.size && offset - self.start <= self.size - len;
        if !is_inside || len == 0 || !(offset | len).is_multiple_of(self.unit) {
            return Err(Corrupt::new("offset of a space map entry", offset));
        }
        match entry {
            MapEntry::Alloc { .. } => self.free.remove(offset, offset + len),
            MapEntry::Free { .. } => self.free.add(offset, offset + len),
        }
        .map_err(|_| Corrupt::new("space map entry against the entries before it, at", offset))
    }
}
