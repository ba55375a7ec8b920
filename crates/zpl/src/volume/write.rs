//! Changes of a volume's contents: writes, zeros, trim.

use format::zil::Body;
use pool::Hold;
use pool::zil::Note;

use super::{DATA, Volume};
use crate::change::{self, WRITE_STEP};
use crate::hole::{Hole, hole};
use crate::locks::Guard;
use crate::{ObjectId, Result};

/// As many stripes as there are locks.
const STRIPES: u64 = crate::locks::SHARDS as u64;

impl Volume {
    /// Bytes of a stripe: a write of one transaction lies within one.
    pub(super) fn stripe(&self) -> u64 {
        WRITE_STEP.max(self.inner.block)
    }

    /// The locks of the stripes that hold these bytes.
    fn lock(&self, offset: u64, end: u64) -> Vec<Guard<'_>> {
        let stripe = self.stripe();
        let first = offset / stripe;
        let ids: Vec<ObjectId> = (first..end.div_ceil(stripe)).take(STRIPES as usize).map(ObjectId).collect();
        self.inner.stripes.write_all(&ids)
    }

    /// Runs a change after the write throttle. With `sync=always` it is durable when this returns.
    pub(super) fn changing(&self, mut change: impl FnMut() -> Result<()>) -> Result<()> {
        let dataset = &self.inner.dataset;
        dataset.wait_for_room();
        change()?;
        if change::is_synchronous(dataset) { self.flush() } else { Ok(()) }
    }

    /// Writes `data` at byte `offset`. A large write goes in steps.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] beyond the end; [`crate::Error::ReadOnly`]; [`crate::Error::NoSpace`] and
    /// [`crate::Error::Quota`]: the steps before stay written.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        let end = self.end_of(offset, data.len() as u64)?;
        self.changing(|| {
            let mut at = offset;
            while at < end {
                at = change::retrying(&self.inner.dataset, || self.write_one_step(at, offset, data))?;
            }
            Ok(())
        })
    }

    /// Writes the bytes of `data` that fit one transaction, from byte `at` on. Returns the offset of the next step.
    fn write_one_step(&self, at: u64, offset: u64, data: &[u8]) -> Result<u64> {
        let (dataset, object, block) = (&self.inner.dataset, &self.inner.data, self.inner.block);
        let _shape = self.inner.shape.read(DATA);
        let end = self.end_of(offset, data.len() as u64)?;
        // The replay of a record uses one transaction.
        let until = if dataset.is_replaying() {
            end
        } else {
            let step = change::write_step(dataset.objset(), block);
            ((at / step + 1) * step).min(end)
        };
        let _stripes = self.lock(at, until);
        dataset.check_writable()?;
        object.check_indirect(at / block, until.div_ceil(block))?;
        let tx = change::begin(dataset, Hold::write(until - at).in_blocks(at, until, block))?;
        object.write(&tx, at, &data[(at - offset) as usize..(until - offset) as usize])?;
        dataset.note(&tx, None, || Note::Data { object: DATA, offset: at, length: until - at });
        Ok(until)
    }

    /// Frees the whole blocks within the range, as the discard of a disk: they read as zeros from now on. The rest of the
    /// range stays as it is.
    ///
    /// # Errors
    /// As [`Volume::write`].
    pub fn trim(&self, offset: u64, length: u64) -> Result<()> {
        let end = self.end_of(offset, length)?;
        let block = self.inner.block;
        let (first, last) = (offset.next_multiple_of(block), end / block * block);
        if first < last { self.zero(first, last - first) } else { Ok(()) }
    }

    /// Makes the range read as zeros, and frees the blocks that lie within it as a whole.
    ///
    /// # Errors
    /// As [`Volume::write`].
    pub fn zero(&self, offset: u64, length: u64) -> Result<()> {
        let end = self.end_of(offset, length)?;
        self.changing(|| {
            let mut at = offset;
            while at < end {
                at = change::retrying(&self.inner.dataset, || self.zero_one_step(at, end))?;
            }
            Ok(())
        })
    }

    /// Makes a hole from byte `at` towards `end`, as far as one transaction goes. Returns where the next step begins.
    fn zero_one_step(&self, at: u64, end: u64) -> Result<u64> {
        let (dataset, object, block) = (&self.inner.dataset, &self.inner.data, self.inner.block);
        let _shape = self.inner.shape.read(DATA);
        self.end_of(at, end - at)?;
        let blocks = object.max_blkid() + 1;
        let step = change::free_step(dataset, blocks).saturating_mul(block);
        let is_behind = at / block >= blocks;
        let until = if is_behind { end } else { (at / step + 1).saturating_mul(step).min(end) };
        let _stripes = self.lock(at, until);
        dataset.check_writable()?;
        let Hole { whole, cuts } = hole(block, at, until, false);
        let mut edits = Vec::new();
        for (blkid, range) in cuts {
            if object.next_block(blkid)? == Some(blkid) {
                // Read (into the cache) before the transaction begins.
                object.block(blkid)?;
                edits.push((blkid, range));
            }
        }
        object.check_indirect(whole.start, whole.end)?;
        let freed = object.blocks_to_free(whole.start, whole.end);
        let tx = change::begin(dataset, Hold::free().of_blocks(freed))?;
        for (blkid, range) in edits {
            object.edit_block(&tx, blkid, |raw| raw[range].fill(0))?;
        }
        object.free_blocks(&tx, whole.start, whole.end);
        let record = || Body::Truncate { object: DATA, offset: at, length: until - at };
        dataset.note(&tx, None, || Note::Done(Box::new(record())));
        Ok(until)
    }
}
