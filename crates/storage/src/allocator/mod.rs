//! The allocator: places for new blocks, and the reuse of freed space.
//!
//! From:   the write pipeline asks for room; `dmu` and `pool` free what is no longer referenced.
//! To:     `pool`, which takes the changes as plain lists ([`Allocator::take_changes`]) and writes them into
//!         space-map objects, pass by pass, until nothing changes.
//! Source: docs/format/05-space-maps.md §1, §3, §4, §11; 02-blocks-checksums-compression.md §4.
//!
//! Metaslabs are loaded when space is sought in them: a pool costs memory for what it uses, not for its size.
//! Space freed in a txg is handed out again only when two more txgs are on disk. So the uberblocks we may have to fall back
//! to still find their blocks. The same calls give the same results.

mod class;
mod error;
mod evacuation;
mod free;
mod kept;
mod log;
mod maps;
pub mod metaslab;
mod obsolete;
mod reflow;
pub mod segments;
mod vdev_space;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use format::blkptr::Dva;
use format::{Corrupt, MAX_BLOCK, Txg, VdevId};

use crate::layout::{self, Sizes};

pub use class::{Class, Holds};
pub use error::{AllocError, FreeError};
pub use maps::{MetaslabChange, SpaceMapSource};
pub use metaslab::{MapEntry, Metaslab, Runs, Which};
pub use segments::{Conflict, Segments};
use vdev_space::VdevSpace;

/// Txgs that must be on disk after the one that freed, before its space is reused.
pub const DEFER_TXGS: usize = 2;
/// Bytes allocated on one top-level vdev before the rotation moves on, when all are equally full.
const CHUNK: u64 = 512 << 10;
/// Most metaslabs of a vdev; OpenZFS makes at most 2^17.
pub const METASLABS_MAX: u64 = 1 << 20;

/// A top-level vdev as far as space is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VdevSpec {
    /// Index in the vdev tree.
    pub id: VdevId,
    /// Allocatable bytes (labels and boot area excluded).
    pub asize: u64,
    /// log2 of the smallest allocation, in bytes.
    pub ashift: u8,
    /// log2 of the metaslab size, in bytes; the tail beyond the last whole metaslab is not used.
    pub metaslab_shift: u8,
    /// The class of the vdev.
    pub class: Class,
    /// How blocks are spread where parity goes with them.
    pub sizes: Option<Sizes>,
}

impl VdevSpec {
    /// Bytes that a block of `psize` bytes occupies.
    #[must_use]
    pub const fn asize_of(&self, psize: u64) -> u64 {
        match self.sizes {
            Some(sizes) => sizes.asize(psize),
            None => psize.next_multiple_of(1 << self.ashift),
        }
    }

    /// Blocks lie at multiples of so many bytes.
    const fn unit(&self) -> u64 {
        match self.sizes {
            Some(sizes) => sizes.unit(),
            None => 1 << self.ashift,
        }
    }

    /// The bytes of a metaslab.
    const fn metaslab(&self, index: u64) -> std::ops::Range<u64> {
        layout::metaslab(index, self.metaslab_shift as u32, self.unit())
    }
}

/// Room that is wanted for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Bytes of the block.
    pub psize: u64,
    /// In so many places, 1 to 3.
    pub copies: u8,
    /// The kind of data in the block.
    pub holds: Holds,
}

/// Bytes by state. `size == allocated + deferred + allocatable`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// All of it.
    pub size: u64,
    /// In use.
    pub allocated: u64,
    /// Freed, but not reusable yet.
    pub deferred: u64,
}

impl Space {
    /// Bytes not in use: what the pool reports as free.
    #[must_use]
    pub const fn free(self) -> u64 {
        self.size - self.allocated
    }

    /// Bytes that can be allocated now, in pieces of any size.
    #[must_use]
    pub const fn allocatable(self) -> u64 {
        self.size - self.allocated - self.deferred
    }
}

/// The space of all top-level vdevs. One thread allocates; [`Space`] values are plain copies for others.
#[derive(Clone, Debug)]
pub struct Allocator {
    /// By ascending id.
    vdevs: Vec<VdevSpace>,
    /// The last synced txgs, newest first.
    synced: [Txg; DEFER_TXGS + 1],
    /// (txg, index in `vdevs`, metaslab) with changes that were not taken yet.
    pending: BTreeSet<(Txg, usize, u32)>,
    /// (txg, index in `vdevs`, metaslab) with frees that are not reusable yet.
    settling: BTreeSet<(Txg, usize, u32)>,
    /// By class: index in `vdevs` of the next one to allocate from.
    rotors: [usize; Class::COUNT],
    /// Blocks of this many bytes or more find no room.
    longest: u64,
    /// A lease reads the pool as of this txg, so space freed later is not reused yet.
    leased: Option<Txg>,
    /// Blocks born in this txg or before stay allocated when they are freed.
    kept_until: Option<Txg>,
    /// Kept space (freed but still allocated) that was not taken yet.
    kept: BTreeMap<VdevId, Segments>,
    /// Space freed on removed vdevs that was not taken yet.
    obsolete: BTreeMap<VdevId, Segments>,
    evacuation: Option<evacuation::Evacuation>,
}

impl Allocator {
    /// Without vdevs; `synced` is the last txg on disk.
    #[must_use]
    pub const fn new(synced: Txg) -> Allocator {
        Allocator {
            vdevs: Vec::new(),
            synced: [synced; DEFER_TXGS + 1],
            pending: BTreeSet::new(),
            settling: BTreeSet::new(),
            rotors: [0; Class::COUNT],
            longest: u64::MAX,
            leased: None,
            kept_until: None,
            kept: BTreeMap::new(),
            obsolete: BTreeMap::new(),
            evacuation: None,
        }
    }

    /// From now on there is no room for blocks of `len` bytes or more, as in a pool of small holes (OpenZFS's
    /// `metaslab_force_ganging`): for tests.
    pub fn force_ganging(&mut self, len: u64) {
        self.longest = len;
    }

    /// Adds a top-level vdev. `maps` gives, per metaslab, the allocated bytes of its space map as of the last
    /// synced txg, or `None` where there is no map; metaslabs beyond its end have none.
    ///
    /// # Errors
    /// [`Corrupt`] for geometry or sums that cannot be.
    ///
    /// # Panics
    /// If the id is there already, or changes are pending and it is not the last one.
    pub fn add_vdev(
        &mut self,
        spec: VdevSpec,
        maps: impl IntoIterator<Item = Option<u64>>,
    ) -> Result<(), Corrupt> {
        let index = match self.vdevs.binary_search_by_key(&spec.id, |vdev| vdev.spec.id) {
            Ok(_) => panic!("vdev {} is there already", spec.id),
            Err(index) => index,
        };
        // Changes are ordered by the index of their vdev.
        let is_quiet = self.pending.is_empty() && self.settling.is_empty();
        assert!(
            is_quiet || index == self.vdevs.len(),
            "while something changes, vdevs come behind all others"
        );
        self.vdevs.insert(index, VdevSpace::new(spec, maps)?);
        self.rotors = [0; Class::COUNT];
        Ok(())
    }

    /// The vdev has `asize` bytes from now on, more than before. Its metaslabs keep their size; what follows them is free.
    ///
    /// # Errors
    /// [`Corrupt`] for a size that cannot be.
    ///
    /// # Panics
    /// If there is no such vdev.
    pub fn grow_vdev(&mut self, id: VdevId, asize: u64) -> Result<(), Corrupt> {
        let index = self.index_of(id).expect("a vdev of the pool");
        self.vdevs[index].grow(asize)
    }

    /// Whether nothing is allocated on a vdev.
    #[must_use]
    pub fn is_empty(&self, id: VdevId) -> bool {
        self.index_of(id).is_none_or(|index| self.vdevs[index].space.allocated == 0)
    }

    /// Removes a vdev on which nothing is allocated, and forgets the frees on it. If something is allocated there, it
    /// changes nothing and returns `false`.
    ///
    /// # Panics
    /// If there is no such vdev.
    pub fn remove_vdev(&mut self, id: VdevId) -> bool {
        let index = self.index_of(id).expect("a vdev of the pool");
        if self.is_empty(id) {
            self.forget_vdev(index);
            return true;
        }
        false
    }

    fn forget_vdev(&mut self, index: usize) {
        self.vdevs.remove(index);
        let renumber = |all: &mut BTreeSet<(Txg, usize, u32)>| {
            let others = std::mem::take(all).into_iter().filter(|(_, of, _)| *of != index);
            *all = others.map(|(txg, of, metaslab)| (txg, of - usize::from(of > index), metaslab)).collect();
        };
        renumber(&mut self.pending);
        renumber(&mut self.settling);
        self.rotors = [0; Class::COUNT];
    }

    /// Allocates room for `psize` bytes, with what each vdev adds to them ([`VdevSpec::asize_of`]), in `copies` places: on different
    /// vdevs if possible, else in different metaslabs or an eighth of the vdev apart, else wherever there is room. The
    /// DVAs are packed from index 0.
    ///
    /// # Errors
    /// See [`AllocError`]; nothing is allocated then, also when there is room for some of the copies.
    ///
    /// # Panics
    /// If `psize` is 0, `copies` is not 1 to 3, or `txg` is synced already.
    pub fn allocate<S: SpaceMapSource + ?Sized>(
        &mut self,
        psize: u64,
        copies: u8,
        txg: Txg,
        source: &mut S,
    ) -> Result<[Dva; 3], AllocError<S::Error>> {
        self.allocate_for(Want { psize, copies, holds: Holds::Data }, txg, source)
    }

    /// As [`Allocator::allocate`], on vdevs that are for what the block holds; where these have no room, on others.
    ///
    /// # Errors
    /// As [`Allocator::allocate`].
    ///
    /// # Panics
    /// As [`Allocator::allocate`].
    pub fn allocate_for<S: SpaceMapSource + ?Sized>(
        &mut self,
        want: Want,
        txg: Txg,
        source: &mut S,
    ) -> Result<[Dva; 3], AllocError<S::Error>> {
        let Want { psize, copies, holds } = want;
        assert!(psize > 0, "a block has bytes");
        assert!((1..=3).contains(&copies), "a block has one to three copies");
        assert!(txg > self.synced[0], "a block is born in a txg that is not synced");
        if psize >= self.longest {
            return Err(AllocError::NoSpace { psize });
        }
        let mut refused = AllocError::NoSpace { psize };
        for class in holds.classes() {
            if !self.takes(*class, holds) {
                continue;
            }
            match self.allocate_in(*class, want, txg, source) {
                Err(error @ AllocError::NoSpace { .. }) => refused = error,
                done => return done,
            }
        }
        Err(refused)
    }

    /// Whether blocks like this one are placed on vdevs of this class.
    fn takes(&self, class: Class, holds: Holds) -> bool {
        let mut those = self.vdevs.iter().filter(|vdev| vdev.takes(class)).peekable();
        let is_there = those.peek().is_some();
        let (allocated, size) =
            those.fold((0, 0), |sum, vdev| (sum.0 + vdev.space.allocated, sum.1 + vdev.space.size));
        is_there && (class != Class::Special || holds.fits_special(allocated, size))
    }

    fn allocate_in<S: SpaceMapSource + ?Sized>(
        &mut self,
        class: Class,
        want: Want,
        txg: Txg,
        source: &mut S,
    ) -> Result<[Dva; 3], AllocError<S::Error>> {
        let Want { psize, copies, .. } = want;
        let mut dvas = [Dva::default(); 3];
        for copy in 0..usize::from(copies) {
            let error = match self.allocate_copy((class, psize), &dvas[..copy], txg, source) {
                Ok(Some(dva)) => {
                    dvas[copy] = dva;
                    continue;
                }
                Ok(None) => AllocError::NoSpace { psize },
                Err(error) => error,
            };
            dvas[..copy].iter().for_each(|dva| self.give_back(*dva, txg));
            return Err(error);
        }
        Ok(dvas)
    }

    /// One more copy beside `placed`; `None` when no vdev has room.
    fn allocate_copy<S: SpaceMapSource + ?Sized>(
        &mut self,
        (class, psize): (Class, u64),
        placed: &[Dva],
        txg: Txg,
        source: &mut S,
    ) -> Result<Option<Dva>, AllocError<S::Error>> {
        if placed.is_empty() {
            self.advance_rotor(class);
        }
        let rotor = self.rotors[class as usize];
        let count = self.vdevs.len();
        let mut order: Vec<(usize, usize, usize)> = (0..count)
            .map(|turn| (turn, (rotor + turn) % count))
            .filter(|(_, index)| self.vdevs[*index].takes(class))
            .map(|(turn, index)| {
                let here = placed.iter().filter(|dva| dva.vdev == self.vdevs[index].spec.id).count();
                (here, turn, index)
            })
            .collect();
        order.sort_unstable();
        for (_, _, index) in order {
            let vdev = &mut self.vdevs[index];
            let Some((metaslab, dva)) = vdev.allocate(psize, placed, txg, self.synced[0], source)? else {
                continue;
            };
            self.pending.insert((txg, index, metaslab));
            if placed.is_empty() {
                vdev.turn_left = (vdev.turn_left - dva.asize as i64).max(-(MAX_BLOCK as i64));
                if index != rotor {
                    self.vdevs[rotor].turn_left = 0;
                    self.rotors[class as usize] = index;
                }
            }
            return Ok(Some(dva));
        }
        Ok(None)
    }

    /// Ends the turn of a vdev after its share of bytes. An excess shortens its next turn.
    fn advance_rotor(&mut self, class: Class) {
        if !self.vdevs.iter().any(|vdev| vdev.takes(class)) {
            return;
        }
        let mut rotor = self.rotors[class as usize];
        while !self.vdevs[rotor].takes(class) || self.vdevs[rotor].turn_left <= 0 {
            rotor = (rotor + 1) % self.vdevs.len();
            if self.vdevs[rotor].takes(class) {
                self.vdevs[rotor].turn_left += self.turn_of(class, rotor);
            }
        }
        self.rotors[class as usize] = rotor;
    }

    /// Bytes of one turn: emptier vdevs get longer ones, so that all fill up together.
    fn turn_of(&self, class: Class, index: usize) -> i64 {
        let those = self.vdevs.iter().filter(|vdev| vdev.takes(class));
        let (count, total) =
            those.fold((0, 0), |(count, total), vdev| (count + 1, total + vdev.space.allocatable()));
        let mine = u128::from(self.vdevs[index].space.allocatable());
        let share = u128::from(CHUNK) * mine * count / u128::from(total.max(1));
        (share as u64).clamp(CHUNK / 8, CHUNK * 8) as i64
    }

    /// Undoes an allocation of `txg`, or a part of one. Its changes were not taken yet, and no pointer refers to it.
    ///
    /// # Panics
    /// If it is none.
    pub fn give_back(&mut self, dva: Dva, txg: Txg) {
        let index = self.index_of(dva.vdev).expect("what was allocated lies on a known vdev");
        let vdev = &mut self.vdevs[index];
        vdev.undo(dva, txg);
        let metaslab = (dva.offset >> vdev.spec.metaslab_shift) as u32;
        if vdev.metaslabs[metaslab as usize].forget_if_empty(txg) {
            self.pending.remove(&(txg, index, metaslab));
        }
    }

    /// Frees one place. It is reusable when [`DEFER_TXGS`] more txgs are synced after `txg`, also when it was
    /// allocated in `txg` itself.
    ///
    /// # Errors
    /// [`FreeError`] when nothing is allocated there. (In a metaslab that is not loaded this is found only
    /// when it is loaded.)
    ///
    /// # Panics
    /// If `txg` is synced already.
    pub fn free(&mut self, dva: Dva, txg: Txg) -> Result<(), FreeError> {
        assert!(txg > self.synced[0], "space is freed in a txg that is not synced");
        let index = self.index_of(dva.vdev).ok_or(FreeError::NoSuchPlace(dva))?;
        let metaslab = self.vdevs[index].free(dva, txg)?;
        self.pending.insert((txg, index, metaslab));
        self.free_copies(dva, txg)
    }

    /// The changes in `txg` since the last call, by ascending vdev and metaslab.
    #[must_use = "changes that are not written down are lost"]
    pub fn take_changes(&mut self, txg: Txg) -> Vec<MetaslabChange> {
        let from_txg = self.pending.range((txg, 0, 0)..(txg.next(), 0, 0)).copied().collect::<Vec<_>>();
        let mut changes = Vec::with_capacity(from_txg.len());
        for key in from_txg {
            self.pending.remove(&key);
            let vdev = &mut self.vdevs[key.1];
            let (allocs, frees) = vdev.metaslabs[key.2 as usize].take_changes(txg);
            if !frees.is_empty() {
                self.settling.insert(key);
            }
            if !allocs.is_empty() || !frees.is_empty() {
                changes.push(MetaslabChange { vdev: vdev.spec.id, metaslab: key.2, allocs, frees });
            }
        }
        changes
    }

    /// No changes of `txg` wait to be taken.
    #[must_use]
    pub fn is_quiet(&self, txg: Txg) -> bool {
        let is_noted = self.kept.is_empty() && self.obsolete.is_empty();
        is_noted && self.pending.range((txg, 0, 0)..(txg.next(), 0, 0)).next().is_none()
    }

    /// The oldest synced txg that a reader uses besides the newest ones; `None`: there is no such reader. Space freed
    /// after it is not handed out again until this is called with a newer txg, and the next txg is synced.
    pub fn keep_readable(&mut self, oldest: Option<Txg>) {
        self.leased = oldest;
    }

    /// The newest txg whose frees may be reusable once `settled` is safe.
    fn reusable_until(&self, settled: Txg) -> Txg {
        self.leased.map_or(settled, |leased| leased.min(settled))
    }

    /// `txg` is on disk. Returns the ranges that can be reused now, as (vdev, byte offset, bytes): a trim may discard
    /// them before the next allocation.
    ///
    /// # Panics
    /// If changes of `txg` (or of an earlier one) were not taken, or `txg` is synced already.
    pub fn txg_synced(&mut self, txg: Txg) -> Vec<(VdevId, u64, u64)> {
        assert!(txg > self.synced[0], "txgs are synced once, in order");
        assert!(
            self.pending.first().is_none_or(|(of, _, _)| *of > txg),
            "every change is written down before its txg is synced"
        );
        self.synced.rotate_right(1);
        self.synced[0] = txg;
        let settled = self.reusable_until(self.synced[DEFER_TXGS]);
        let mut reusable = Vec::new();
        while let Some(key) = self.settling.first().copied().filter(|(of, _, _)| *of <= settled) {
            self.settling.remove(&key);
            let vdev = &mut self.vdevs[key.1];
            let id = vdev.spec.id;
            reusable.extend(vdev.settle(key.2, key.0).into_iter().map(|(offset, len)| (id, offset, len)));
        }
        self.merge_kept();
        reusable
    }

    /// Merges the sets of frees that only a lease delays, per metaslab. Without this, a lease of several days would leave
    /// one set per txg, and each free would search all of them.
    fn merge_kept(&mut self) {
        let Some(leased) = self.leased else { return };
        let kept = (leased.next(), 0, 0)..(self.synced[DEFER_TXGS].next(), 0, 0);
        if kept.start >= kept.end {
            return;
        }
        let mut newest = BTreeMap::new();
        for (txg, index, metaslab) in self.settling.range(kept).copied().collect::<Vec<_>>() {
            if let Some(before) = newest.insert((index, metaslab), txg) {
                self.settling.remove(&(before, index, metaslab));
                self.vdevs[index].metaslabs[metaslab as usize].merge_freed(before, txg);
            }
        }
    }

    /// No change of `txg` or before waits to be taken, and no freed space to become reusable, but for what readers
    /// of an older txg keep.
    #[must_use]
    pub fn is_settled(&self, txg: Txg) -> bool {
        let kept = |(of, _, _): &(Txg, usize, u32)| self.leased.is_some_and(|leased| *of > leased);
        self.pending.first().is_none_or(|(of, _, _)| *of > txg) && self.settling.first().is_none_or(kept)
    }

    /// Forgets the free space of metaslabs that are not in use, the longest unused first, until at most
    /// `keep` are in memory. Returns how many still are.
    pub fn unload_idle(&mut self, keep: usize) -> usize {
        let mut loaded = self.loaded_count();
        let mut idle = Vec::new();
        for (index, vdev) in self.vdevs.iter().enumerate() {
            let unused = |(number, metaslab): &(usize, &Metaslab)| {
                metaslab.is_loaded() && !vdev.is_active(*number as u32)
            };
            let metaslabs = vdev.metaslabs.iter().enumerate().filter(unused);
            idle.extend(metaslabs.map(|(number, metaslab)| (metaslab.last_alloc(), index, Reverse(number))));
        }
        idle.sort_unstable();
        for (_, index, Reverse(number)) in idle {
            if loaded <= keep {
                break;
            }
            loaded -= usize::from(self.vdevs[index].metaslabs[number].unload(self.synced[0]));
        }
        loaded
    }

    /// Metaslabs whose free space is in memory.
    #[must_use]
    pub fn loaded_count(&self) -> usize {
        let metaslabs = self.vdevs.iter().flat_map(|vdev| &vdev.metaslabs);
        metaslabs.filter(|metaslab| metaslab.is_loaded()).count()
    }

    /// Closes this vdev for new blocks, or opens it again. Its blocks stay and can be freed.
    pub fn set_allocating(&mut self, vdev: VdevId, allocating: bool) {
        if let Some(index) = self.index_of(vdev) {
            self.vdevs[index].allocating = allocating;
        }
    }

    /// Bytes that can be handed out now: of the normal class, where something may be placed.
    #[must_use]
    pub fn allocatable(&self) -> u64 {
        let open = self.vdevs.iter().filter(|vdev| vdev.takes(Class::Normal));
        open.map(|vdev| vdev.space.allocatable()).sum()
    }

    /// Space of all vdevs but logs.
    #[must_use]
    pub fn space(&self) -> Space {
        let normal = self.vdevs.iter().filter(|vdev| vdev.spec.class.takes_blocks());
        normal.fold(Space::default(), |sum, vdev| Space {
            size: sum.size + vdev.space.size,
            allocated: sum.allocated + vdev.space.allocated,
            deferred: sum.deferred + vdev.space.deferred,
        })
    }

    /// Space of one top-level vdev.
    #[must_use]
    pub fn vdev_space(&self, vdev: VdevId) -> Option<Space> {
        Some(self.vdevs[self.index_of(vdev)?].space)
    }

    /// The metaslabs of a vdev, by index.
    #[must_use]
    pub fn metaslabs(&self, vdev: VdevId) -> Option<&[Metaslab]> {
        Some(&self.vdevs[self.index_of(vdev)?].metaslabs)
    }

    /// Free runs by size for the header of a metaslab's space map (05 §2); `None` when it is not loaded.
    #[must_use]
    pub fn histogram(&self, vdev: VdevId, metaslab: u32) -> Option<[u64; 32]> {
        let vdev = &self.vdevs[self.index_of(vdev)?];
        vdev.metaslabs.get(metaslab as usize)?.histogram(u32::from(vdev.spec.ashift))
    }

    /// The top-level vdevs, by ascending id.
    pub fn vdevs(&self) -> impl Iterator<Item = VdevSpec> + '_ {
        self.vdevs.iter().map(|vdev| vdev.spec)
    }

    fn index_of(&self, id: VdevId) -> Option<usize> {
        self.vdevs.binary_search_by_key(&id, |vdev| vdev.spec.id).ok()
    }
}

#[cfg(test)]
mod tests;
