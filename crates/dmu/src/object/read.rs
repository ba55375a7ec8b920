//! Reading an object: the newest version of a block is in the open txg, in the syncing one, or on disk.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use format::Corrupt;
use format::blkptr::BlockPtr;
use format::dnode::Dnode;
use storage::Record;

use super::Object;
use crate::io::Reading;
use crate::walk::{self, Spot, Step, Walk};
use crate::{Error, Result};

/// The indirect blocks that a search of an object has visited, with the first block id below each. In a damaged tree, an
/// indirect block may be referenced at several places, so that a few blocks seem to contain any number of blocks. A search
/// that meets a block at a second place ends with an error, so its time is bounded by the number of real blocks.
#[derive(Debug, Default)]
pub struct Trail(HashMap<walk::Key, u64>);

impl Trail {
    /// Notes that the indirect block is above the block `base` and those behind it.
    fn meet(&mut self, ptr: &BlockPtr, base: u64) -> std::result::Result<(), Corrupt> {
        let Some(block) = ptr.block() else { return Ok(()) };
        match *self.0.entry(walk::key(block)).or_insert(base) == base {
            true => Ok(()),
            false => Err(Corrupt::new("indirect block used twice, block id", base)),
        }
    }
}

/// Where the newest version of a block is.
enum Place {
    Memory(Record),
    /// In the block of another object.
    Cloned(BlockPtr),
    Zeros,
    Disk(Arc<Dnode>),
}

/// The result of [`Object::at_hand`].
#[derive(Clone, Debug)]
pub enum AtHand {
    /// The block.
    Record(Record),
    /// Nothing was written there.
    Zeros,
    /// The block must be read from a disk.
    OnDisk,
}

impl Object {
    fn place(&self, blkid: u64) -> Place {
        let state = self.lock();
        if let Some(draft) = state.open.blocks.get(&blkid) {
            return Place::Memory(draft.record().clone());
        }
        if let Some(ptr) = state.open.cloned.get(&blkid) {
            return Place::Cloned(*ptr);
        }
        if state.open.freed.contains(blkid) {
            return Place::Zeros;
        }
        if let Some(closed) = &state.syncing {
            if let Some(draft) = closed.dirty.blocks.get(&blkid) {
                return Place::Memory(draft.record().clone());
            }
            if let Some(ptr) = closed.dirty.cloned.get(&blkid) {
                return Place::Cloned(*ptr);
            }
            if closed.dirty.freed.contains(blkid) {
                return Place::Zeros;
            }
        }
        match &state.disk {
            Some(dnode) if blkid <= dnode.max_blkid => Place::Disk(dnode.clone()),
            _ => Place::Zeros,
        }
    }

    /// Block `blkid`, `block_size` bytes; zeros where nothing was written.
    ///
    /// # Errors
    /// If the block or one above it cannot be read.
    pub fn block(&self, blkid: u64) -> Result<Record> {
        self.block_by(blkid, Reading::Kept)
    }

    /// As [`Object::block`] for a reader that passes through the object once: see [`storage::Reader::once`].
    ///
    /// # Errors
    /// As [`Object::block`].
    pub fn block_once(&self, blkid: u64) -> Result<Record> {
        self.block_by(blkid, Reading::Once)
    }

    /// As [`Object::block_once`], ahead of the reader.
    ///
    /// # Errors
    /// As [`Object::block`].
    pub fn block_ahead(&self, blkid: u64) -> Result<Record> {
        self.block_by(blkid, Reading::Ahead)
    }

    /// As [`Object::block`] for a caller that will want the block soon: it stays in the cache.
    ///
    /// # Errors
    /// As [`Object::block`].
    pub fn block_soon(&self, blkid: u64) -> Result<Record> {
        self.block_by(blkid, Reading::Soon)
    }

    /// Block `blkid`, if that needs no disk but for indirect blocks.
    #[must_use]
    pub fn at_hand(&self, blkid: u64) -> AtHand {
        let reading = Reading::Kept;
        let ptr = match self.place(blkid) {
            Place::Memory(record) => return AtHand::Record(record),
            Place::Zeros => return AtHand::Zeros,
            Place::Cloned(ptr) => Ok(ptr),
            Place::Disk(dnode) => self.ptr_in(&dnode, blkid, reading),
        };
        match ptr {
            Ok(BlockPtr::Hole(_)) => AtHand::Zeros,
            Ok(ptr) => match self.shared.io.reader(reading).at_hand(&ptr) {
                Some(record) if record.len() as u64 == self.block_size() => AtHand::Record(record),
                _ => AtHand::OnDisk,
            },
            // A read of the block reports the error.
            Err(_) => AtHand::OnDisk,
        }
    }

    fn block_by(&self, blkid: u64, reading: Reading) -> Result<Record> {
        let mut stale = None;
        loop {
            let (ptr, error) = match self.place(blkid) {
                Place::Memory(record) => return Ok(record),
                Place::Zeros => return Ok(Arc::new(vec![0; self.block_size() as usize])),
                Place::Cloned(ptr) => match self.shared.io.reader(reading).read(&ptr) {
                    Ok(record) => return self.sized(record, ptr.lsize() as u32),
                    Err(source) => (Some(ptr), Error::Block { object: self.id, level: 0, blkid, source }),
                },
                Place::Disk(dnode) => match self.ptr_in(&dnode, blkid, reading) {
                    Ok(BlockPtr::Hole(_)) => return Ok(Arc::new(vec![0; self.block_size() as usize])),
                    Ok(ptr) => match self.shared.io.reader(reading).read(&ptr) {
                        Ok(record) => return self.sized(record, dnode.block_size),
                        Err(source) => (Some(ptr), Error::Block { object: self.id, level: 0, blkid, source }),
                    },
                    Err(error) => (None, error),
                },
            };
            // The block may have been rewritten and its old space reused since the pointer was looked up.
            if stale == Some(ptr) {
                return Err(error);
            }
            stale = Some(ptr);
        }
    }

    fn sized(&self, record: Record, expected: u32) -> Result<Record> {
        if record.len() == expected as usize {
            return Ok(record);
        }
        let source = format::Corrupt::new("block size", record.len() as u64);
        Err(Error::Corrupt { object: self.id, source })
    }

    pub(super) fn read_ptr(&self, ptr: &BlockPtr, spot: Spot, reading: Reading) -> Result<Record> {
        let Spot { level, index: blkid } = spot;
        if level > 0 && matches!(ptr, BlockPtr::Embedded(_)) {
            // OpenZFS embeds data only. An embedded indirect block could make a small tree seem to have any number of
            // blocks.
            return Err(Error::corrupt(self.id)(Corrupt::new("level of an embedded block", level.into())));
        }
        let read = self.shared.io.reader(reading).read(ptr);
        read.map_err(|source| Error::Block { object: self.id, level, blkid, source })
    }

    /// Reads the indirect blocks with the pointers to the blocks `start..end`. A caller that changes or frees blocks calls
    /// this before its transaction, because a sync that finds a damaged indirect block cannot refuse the change any more.
    ///
    /// # Errors
    /// If one of them cannot be read, or is used at two places: its blocks would be freed twice.
    pub fn check_indirect(&self, start: u64, end: u64) -> Result<()> {
        let mut stale = None;
        loop {
            let Some(dnode) = self.synced() else { return Ok(()) };
            if dnode.levels < 2 || start > dnode.max_blkid {
                return Ok(());
            }
            let blocks = start..end.min(dnode.max_blkid.saturating_add(1));
            let Err(error) = self.read_above(&dnode, &blocks) else { return Ok(()) };
            // It may have been rewritten, and its old space reused, since the pointers were looked up.
            if stale.as_ref() == Some(&dnode.block_ptrs) {
                return Err(error);
            }
            stale = Some(dnode.block_ptrs.clone());
        }
    }

    /// Reads every indirect block above `blocks`.
    fn read_above(&self, dnode: &Arc<Dnode>, blocks: &Range<u64>) -> Result<()> {
        let mut trail = Trail::default();
        let mut walk = Walk::new(dnode.clone());
        while let Some(step) = walk.next() {
            let Step::At(spot, ptr) = step.map_err(Error::corrupt(self.id))? else { continue };
            let below = spot.blocks(dnode.fanout_shift());
            let is_in = below.start < u128::from(blocks.end) && below.end > u128::from(blocks.start);
            if spot.level == 0 || ptr.is_hole() || !is_in {
                continue;
            }
            let indirect = self.open(&ptr, spot, &below, &mut trail)?;
            if spot.level > 1 {
                walk.enter(spot, ptr, indirect);
            }
        }
        Ok(())
    }

    /// Reads the indirect block at `spot`, which no other place may use.
    fn open(&self, ptr: &BlockPtr, spot: Spot, below: &Range<u128>, trail: &mut Trail) -> Result<Record> {
        let base = u64::try_from(below.start).unwrap_or(u64::MAX);
        trail.meet(ptr, base).map_err(Error::corrupt(self.id))?;
        self.read_ptr(ptr, spot, Reading::Kept)
    }

    /// The pointer to block `blkid` as last synced.
    ///
    /// # Errors
    /// If an indirect block cannot be read.
    pub fn synced_ptr(&self, blkid: u64) -> Result<BlockPtr> {
        match self.synced() {
            Some(dnode) if blkid <= dnode.max_blkid => self.ptr_in(&dnode, blkid, Reading::Kept),
            _ => Ok(BlockPtr::HOLE),
        }
    }

    fn ptr_in(&self, dnode: &Arc<Dnode>, blkid: u64, reading: Reading) -> Result<BlockPtr> {
        let mut walk = Walk::starting_at(dnode.clone(), blkid);
        while let Some(step) = walk.next() {
            let (spot, ptr) = match step.map_err(Error::corrupt(self.id))? {
                Step::At(spot, ptr) => (spot, ptr),
                Step::Left(_, ptr) => {
                    return Err(Error::corrupt(self.id)(Corrupt::new("indirect block size", ptr.lsize())));
                }
            };
            if !walk.leads_to(spot, blkid) {
                break;
            }
            if spot.level == 0 {
                return Ok(ptr);
            }
            if ptr.is_hole() {
                break;
            }
            walk.enter(spot, ptr, self.read_ptr(&ptr, spot, reading)?);
        }
        Ok(BlockPtr::HOLE)
    }

    /// Reads `buf.len()` bytes at byte `offset`, crossing blocks; zeros where nothing was written.
    ///
    /// # Errors
    /// If a block cannot be read.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read_by(offset, buf, Object::block)
    }

    /// As [`Object::read`] for data that is not to be kept in the cache: see [`Object::block_once`].
    ///
    /// # Errors
    /// As [`Object::read`].
    pub fn read_once(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read_by(offset, buf, Object::block_once)
    }

    fn read_by(
        &self,
        offset: u64,
        buf: &mut [u8],
        block_at: impl Fn(&Object, u64) -> Result<Record>,
    ) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let size = self.block_size();
            let at = offset + done as u64;
            let (blkid, within) = (at / size, (at % size) as usize);
            let take = (buf.len() - done).min(size as usize - within);
            let block = block_at(self, blkid)?;
            let out = &mut buf[done..done + take];
            let have = block.len().saturating_sub(within).min(take);
            out[..have].copy_from_slice(&block[within..within + have]);
            out[have..].fill(0);
            done += take;
        }
        Ok(())
    }

    /// First block ≥ `from` that is not a hole, up to `max_blkid`.
    ///
    /// # Errors
    /// If an indirect block cannot be read.
    pub fn next_block(&self, from: u64) -> Result<Option<u64>> {
        self.next_block_on(from, &mut Trail::default())
    }

    /// As [`Object::next_block`], for a search that goes through the whole object.
    ///
    /// # Errors
    /// As [`Object::next_block`]; an indirect block is used at two places.
    pub fn next_block_on(&self, from: u64, trail: &mut Trail) -> Result<Option<u64>> {
        let mut at = from;
        loop {
            let (dnode, dirty) = {
                let state = self.lock();
                let mut next = state.open.filled_from(at).next();
                if let Some(closed) = &state.syncing {
                    let visible =
                        closed.dirty.filled_from(at).find(|&blkid| !state.open.freed.contains(blkid));
                    next = [next, visible].into_iter().flatten().min();
                }
                (state.disk.clone(), next)
            };
            let on_disk = match &dnode {
                Some(dnode) => match self.next_in(dnode, at, trail) {
                    // The tree may have been rewritten, and its old space used again, since it was looked up.
                    Err(_) if self.synced().as_ref() != Some(dnode) => continue,
                    found => found?,
                },
                None => None,
            };
            let Some(found) = [on_disk, dirty].into_iter().flatten().min() else { return Ok(None) };
            if dirty == Some(found) {
                return Ok(Some(found));
            }
            let outside = {
                let state = self.lock();
                let open = state.open.freed.first_outside(found);
                state.syncing.as_ref().map_or(open, |c| open.max(c.dirty.freed.first_outside(found)))
            };
            if outside == found {
                return Ok(Some(found));
            }
            // Freed blocks may have been written again since.
            at = dirty.map_or(outside, |blkid| blkid.min(outside));
        }
    }

    /// First allocated block ≥ `from` in the tree of `dnode`.
    pub(crate) fn next_in(&self, dnode: &Arc<Dnode>, from: u64, trail: &mut Trail) -> Result<Option<u64>> {
        let mut walk = Walk::starting_at(dnode.clone(), from);
        while let Some(step) = walk.next() {
            let Step::At(spot, ptr) = step.map_err(Error::corrupt(self.id))? else { continue };
            if ptr.is_hole() {
                continue;
            }
            if spot.level == 0 {
                return Ok(Some(spot.index).filter(|found| *found <= dnode.max_blkid));
            }
            let below = spot.blocks(dnode.fanout_shift());
            walk.enter(spot, ptr, self.open(&ptr, spot, &below, trail)?);
        }
        Ok(None)
    }
}
