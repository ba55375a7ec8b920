//! The space of one top-level vdev: its metaslabs and which of them are being filled.
//!
//! From:   `allocator`, which has chosen the vdev.
//! To:     `metaslab`.

use std::cmp::Reverse;

use format::blkptr::Dva;
use format::{Corrupt, Txg};

use super::metaslab::{Metaslab, Runs, Which};
use super::{AllocError, Class, FreeError, METASLABS_MAX, Space, SpaceMapSource, VdevSpec};

/// Copies of one block on the same vdev go to different metaslabs, so up to three are filled side by side.
const SLOTS: usize = 3;

#[derive(Clone, Debug)]
pub(super) struct VdevSpace {
    pub spec: VdevSpec,
    pub space: Space,
    pub metaslabs: Vec<Metaslab>,
    /// New blocks may be placed here.
    pub allocating: bool,
    /// Bytes left of its turn in the rotation; negative after a block that was longer than the turn.
    pub turn_left: i64,
    /// The metaslab being filled with first, second and third copies. It stays until it has no room, so that
    /// few space maps change in a txg and neighbours stay neighbours.
    active: [Option<u32>; SLOTS],
    /// No metaslab has a run this long; until more space is freed there is no use in looking.
    refused: u64,
}

/// Room for one copy of a block.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    asize: u64,
    /// Where the copies before it are on this vdev.
    here: &'a [u64],
}

impl Wanted<'_> {
    /// Which of the metaslabs that are filled side by side it goes to.
    const fn slot(&self) -> usize {
        self.here.len()
    }
}

impl VdevSpace {
    /// See `Allocator::add_vdev`.
    pub fn new(spec: VdevSpec, maps: impl IntoIterator<Item = Option<u64>>) -> Result<VdevSpace, Corrupt> {
        if !(9..=16).contains(&spec.ashift) {
            return Err(Corrupt::new("ashift of a top-level vdev", spec.ashift.into()));
        }
        if spec.metaslab_shift < spec.ashift || spec.metaslab_shift > 62 {
            return Err(Corrupt::new("metaslab_shift of a top-level vdev", spec.metaslab_shift.into()));
        }
        let count = spec.asize >> spec.metaslab_shift;
        if spec.asize >> 62 != 0 || count > METASLABS_MAX {
            return Err(Corrupt::new("asize of a top-level vdev", spec.asize));
        }
        let mut space = Space::default();
        let mut metaslabs = Vec::with_capacity(count as usize);
        let mut maps = maps.into_iter();
        for index in 0..count {
            let map = maps.next().flatten();
            let bytes = spec.metaslab(index);
            let size = bytes.end - bytes.start;
            if let Some(bytes) = map.filter(|bytes| *bytes > size || !bytes.is_multiple_of(1 << spec.ashift))
            {
                return Err(Corrupt::new("allocated bytes of a space map", bytes));
            }
            space.allocated += map.unwrap_or(0);
            space.size += size;
            metaslabs.push(Metaslab::new(bytes.start, size, map));
        }
        Ok(VdevSpace {
            spec,
            space,
            metaslabs,
            allocating: true,
            turn_left: 0,
            active: [None; SLOTS],
            refused: u64::MAX,
        })
    }

    /// See `Allocator::grow_vdev`.
    pub fn grow(&mut self, asize: u64) -> Result<(), Corrupt> {
        let count = asize >> self.spec.metaslab_shift;
        if asize >> 62 != 0 || count > METASLABS_MAX || count < self.metaslabs.len() as u64 {
            return Err(Corrupt::new("asize of a top-level vdev", asize));
        }
        for index in self.metaslabs.len() as u64..count {
            let bytes = self.spec.metaslab(index);
            self.space.size += bytes.end - bytes.start;
            self.metaslabs.push(Metaslab::new(bytes.start, bytes.end - bytes.start, None));
        }
        self.spec.asize = asize;
        self.refused = u64::MAX;
        Ok(())
    }

    /// Whether blocks of this class are placed here.
    pub fn takes(&self, class: Class) -> bool {
        self.allocating && self.spec.class == class
    }

    pub fn is_active(&self, metaslab: u32) -> bool {
        self.active.contains(&Some(metaslab))
    }

    /// Room for `psize` bytes beside `placed`: the metaslab and the DVA; `None` when there is none.
    pub fn allocate<S: SpaceMapSource + ?Sized>(
        &mut self,
        psize: u64,
        placed: &[Dva],
        txg: Txg,
        synced: Txg,
        source: &mut S,
    ) -> Result<Option<(u32, Dva)>, AllocError<S::Error>> {
        let asize = self.spec.asize_of(psize);
        if asize > self.space.allocatable() || asize >= self.refused {
            return Ok(None);
        }
        let here: Vec<u64> =
            placed.iter().filter(|dva| dva.vdev == self.spec.id).map(|dva| dva.offset).collect();
        let wanted = Wanted { asize, here: &here };
        let found = match self.find_in_active(&wanted) {
            Some(found) => Some(found),
            None => self.find_elsewhere(&wanted, txg, synced, source)?,
        };
        let Some((metaslab, offset)) = found else {
            if here.is_empty() {
                self.refused = asize;
            }
            return Ok(None);
        };
        self.metaslabs[metaslab as usize].allocate(offset, asize, txg);
        self.space.allocated += asize;
        Ok(Some((metaslab, Dva { vdev: self.spec.id, asize, offset, gang: false })))
    }

    fn index_of(&self, offset: u64) -> u32 {
        (offset >> self.spec.metaslab_shift) as u32
    }

    fn find_in_active(&mut self, wanted: &Wanted) -> Option<(u32, u64)> {
        let active = self.active[wanted.slot()]?;
        if wanted.here.iter().any(|other| self.index_of(*other) == active) {
            return None;
        }
        Some((active, self.metaslabs[active as usize].find(wanted.asize)?))
    }

    /// Makes the best other metaslab with room the active one of the slot, loading what must be looked at.
    fn find_elsewhere<S: SpaceMapSource + ?Sized>(
        &mut self,
        wanted: &Wanted<'_>,
        txg: Txg,
        synced: Txg,
        source: &mut S,
    ) -> Result<Option<(u32, u64)>, AllocError<S::Error>> {
        let Wanted { asize, here } = *wanted;
        // A metaslab that turns out to have no long enough run, once loaded, is not proposed again.
        while let Some(best) = self.best_metaslab(wanted, txg) {
            self.load(best, synced, source)?;
            if let Some(offset) = self.metaslabs[best as usize].find(asize) {
                self.active[wanted.slot()] = Some(best);
                return Ok(Some((best, offset)));
            }
        }
        // Few or full metaslabs: a copy may share one, far enough away, and nearby rather than not at all.
        let distance = self.spec.asize / 8;
        let shared: Vec<u32> = here.iter().map(|other| self.index_of(*other)).collect();
        let away = shared.iter().find_map(|&metaslab| {
            Some((metaslab, self.metaslabs[metaslab as usize].find_away(asize, here, distance)?))
        });
        let near = || {
            shared
                .iter()
                .find_map(|&metaslab| Some((metaslab, self.metaslabs[metaslab as usize].find(asize)?)))
        };
        Ok(away.or_else(near))
    }

    /// The metaslab to fill next. At least half empty ones come first, lowest first, so that images stay
    /// compact; those already dirty or loaded before others; then the emptiest.
    fn best_metaslab(&self, wanted: &Wanted, txg: Txg) -> Option<u32> {
        let (slot, Wanted { asize, here }) = (wanted.slot(), *wanted);
        let distance = self.spec.asize / 8;
        let candidates = (0u32..).zip(&self.metaslabs).filter(|(index, metaslab)| {
            metaslab.may_hold(asize) && here.iter().all(|other| self.index_of(*other) != *index)
        });
        let rank = |index: u32, metaslab: &Metaslab| {
            let is_roomy = metaslab.allocatable() >= metaslab.size() / 2;
            let mut others = self.active.iter().enumerate().filter(|(other, _)| *other != slot);
            let is_taken = others.any(|(_, active)| *active == Some(index));
            let is_near = here.iter().any(|other| metaslab.start().abs_diff(*other) < distance);
            let effort = match metaslab {
                _ if metaslab.is_dirty_in(txg) => 0,
                _ if metaslab.is_loaded() => 1,
                _ if metaslab.has_map() => 2,
                _ => 3,
            };
            let room = if is_roomy { 0 } else { metaslab.allocatable() };
            (!is_roomy, is_taken, is_near, effort, Reverse(room), index)
        };
        candidates.map(|(index, metaslab)| rank(index, metaslab)).min().map(|(.., index)| index)
    }

    fn load<S: SpaceMapSource + ?Sized>(
        &mut self,
        metaslab: u32,
        synced: Txg,
        source: &mut S,
    ) -> Result<(), AllocError<S::Error>> {
        let vdev = self.spec.id;
        let target = &mut self.metaslabs[metaslab as usize];
        if target.is_loaded() {
            return Ok(());
        }
        if !target.has_map() {
            target.load_untouched();
            return Ok(());
        }
        let mut replay = target.begin_load(1 << self.spec.ashift);
        source
            .replay(vdev, metaslab, &mut |entry| replay.apply(entry))
            .map_err(|source| AllocError::Source { vdev, metaslab, source })?;
        target.finish_load(replay, synced).map_err(|damage| AllocError::Damaged { vdev, metaslab, damage })
    }

    /// See `Allocator::runs`.
    pub fn runs<S: SpaceMapSource + ?Sized>(
        &mut self,
        (metaslab, which): (u32, Which),
        synced: Txg,
        source: &mut S,
    ) -> Result<Runs, AllocError<S::Error>> {
        if which == Which::InUse && !self.metaslabs[metaslab as usize].has_map() {
            return Ok(Runs::new());
        }
        self.load(metaslab, synced, source)?;
        Ok(self.metaslabs[metaslab as usize].runs(which))
    }

    /// Takes back an allocation that no other part of the program has seen.
    pub fn undo(&mut self, dva: Dva, txg: Txg) {
        let metaslab = self.index_of(dva.offset) as usize;
        self.metaslabs[metaslab].undo(dva.offset, dva.asize, txg);
        self.space.allocated -= dva.asize;
        self.refused = u64::MAX;
    }

    /// Whether an allocation can be there.
    pub const fn is_place(&self, dva: &Dva) -> bool {
        let index = dva.offset >> self.spec.metaslab_shift;
        let bytes = self.spec.metaslab(index);
        dva.asize > 0
            && index < self.metaslabs.len() as u64
            && dva.offset >= bytes.start
            && dva.offset <= bytes.end
            && dva.asize <= bytes.end - dva.offset
            && dva.offset.is_multiple_of(self.spec.unit())
            && dva.asize.is_multiple_of(self.spec.unit())
    }

    /// See `Allocator::claim`; the metaslab, or `None` when the place is none or in use.
    pub fn claim<S: SpaceMapSource + ?Sized>(
        &mut self,
        dva: Dva,
        txg: Txg,
        synced: Txg,
        source: &mut S,
    ) -> Result<Option<u32>, AllocError<S::Error>> {
        if !self.is_place(&dva) {
            return Ok(None);
        }
        let metaslab = self.index_of(dva.offset);
        self.load(metaslab, synced, source)?;
        if !self.metaslabs[metaslab as usize].is_allocatable(dva.offset, dva.asize) {
            return Ok(None);
        }
        self.metaslabs[metaslab as usize].allocate(dva.offset, dva.asize, txg);
        self.space.allocated += dva.asize;
        Ok(Some(metaslab))
    }

    /// See `Allocator::free`; returns the metaslab.
    pub fn free(&mut self, dva: Dva, txg: Txg) -> Result<u32, FreeError> {
        if !self.is_place(&dva) {
            return Err(FreeError::NoSuchPlace(dva));
        }
        let metaslab = self.index_of(dva.offset);
        if !self.metaslabs[metaslab as usize].free(dva.offset, dva.asize, txg) {
            return Err(FreeError::NotAllocated(dva));
        }
        self.space.allocated -= dva.asize;
        self.space.deferred += dva.asize;
        Ok(metaslab)
    }

    /// See `Metaslab::settle`.
    pub fn settle(&mut self, metaslab: u32, txg: Txg) -> Runs {
        let reusable = self.metaslabs[metaslab as usize].settle(txg);
        self.space.deferred -= reusable.iter().map(|(_, len)| len).sum::<u64>();
        self.refused = u64::MAX;
        reusable
    }
}
