//! Block pointer → verified, decompressed, little-endian record.
//!
//! Every copy is tried until one matches the checksum in the pointer. Nothing is trusted before that.
//! Source: docs/format/02-blocks-checksums-compression.md §1.6, §2, §3, §5.

use std::cell::RefCell;
use std::sync::Arc;

use format::blkptr::{Block, BlockPtr, Dva, Embedded};
use format::{Compression, Txg, swap};

use crate::gang::GANG_DEPTH_MAX;
use crate::held::Held;
use crate::raidz::Outcome;
use crate::vdev::{Source, TopVdev, Way};
use crate::{NotYet, ReadError, Reader, Record, Storage};

/// Bytes of a thread's buffer of compressed bytes that stay in memory between two reads.
const SCRATCH_MAX: usize = 1 << 20;

/// One copy of a block.
struct CopyOf<'a> {
    block: &'a Block,
    dva: Dva,
    /// Which of the children that hold the same bytes.
    replica: usize,
}

/// A way to get the verified stored bytes of a block.
type Fill<R> = fn(&R, &Block, &mut Vec<u8>) -> Result<(), ReadError>;

thread_local! {
    /// Compressed bytes between disk and codec.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Storage {
    /// As [`Reader::read`], for a caller that waits.
    ///
    /// # Errors
    /// As [`Reader::read`].
    pub fn read(&self, ptr: &BlockPtr) -> Result<Record, ReadError> {
        self.reader().read(ptr)
    }

    /// As [`Reader::read`] for a caller that waits and reads the block only once: see [`Reader::once`].
    ///
    /// # Errors
    /// As [`Reader::read`].
    pub fn read_once(&self, ptr: &BlockPtr) -> Result<Record, ReadError> {
        self.reader().once().read(ptr)
    }

    /// As [`Reader::read_stored`] for a caller that waits.
    ///
    /// # Errors
    /// As [`Reader::read`].
    pub fn read_stored(&self, block: &Block) -> Result<Vec<u8>, ReadError> {
        self.reader().read_stored(block)
    }

    /// The copies of the data at `dva` whose devices are there. Those of leaves that may miss a block born in `birth`
    /// come last.
    pub(crate) fn replicas_of(&self, dva: &Dva, birth: Txg) -> impl Iterator<Item = usize> + use<> {
        let replicas = match self.moved(dva, dva.asize) {
            Ok(None) => self.vdevs().top_of(dva).map_or_else(|_| vec![0], |top| top.replicas_of(birth)),
            Ok(Some(places)) => self.sides_of(&places),
            Err(_) => vec![0],
        };
        replicas.into_iter()
    }

    /// As [`Storage::replicas_of`], sorted: the replica that can be read soonest comes first.
    pub(crate) fn replicas_by_load(&self, dva: &Dva, birth: Txg) -> Vec<usize> {
        let mut replicas: Vec<usize> = self.replicas_of(dva, birth).collect();
        if let Ok(top) = self.vdevs().top_of(dva) {
            top.order_by_load(&mut replicas, birth, dva.offset);
        }
        replicas
    }

    /// Whether the device of this replica may miss blocks born in `birth`.
    pub(crate) fn is_stale(&self, dva: &Dva, replica: usize, birth: Txg) -> bool {
        self.vdevs().top_of(dva).is_ok_and(|top| top.spread().is_none() && top.is_stale(replica, birth))
    }

    /// Whether `raw` are the bytes of which `block` has the checksum.
    fn has_checksum(&self, block: &Block, raw: &[u8]) -> bool {
        if block.checksum_kind == format::ChecksumKind::Off {
            return true;
        }
        let sum = codec::checksum_of(block.checksum_kind, raw, &self.salt(), block.order);
        let sum = match block.encrypted && block.object_type != format::ObjectType::OBJSET {
            // Only the part of the authentication code in the pointer counts here (02 §1.7).
            true => sum.with_mac(block.checksum_kind, &block.mac(), block.order),
            false => sum,
        };
        sum == block.checksum
    }

    /// Counts an error of each of these devices.
    pub(crate) fn note_bad_checksums(&self, top: &TopVdev, children: &[usize]) {
        for leaf in children.iter().filter_map(|child| top.child(*child)) {
            leaf.meter.bad_checksum();
        }
    }
}

impl Reader<'_> {
    /// The bytes that `ptr` promises: `lsize` of them, zeros for a hole. Structures of a big-endian machine come
    /// back little-endian.
    ///
    /// # Errors
    /// [`ReadError`]: no good copy, a device error, or something this build does not read.
    pub fn read(&self, ptr: &BlockPtr) -> Result<Record, ReadError> {
        match ptr {
            BlockPtr::Hole(hole) => Ok(Arc::new(vec![0; hole.lsize as usize])),
            BlockPtr::Embedded(embedded) => read_embedded(embedded),
            BlockPtr::Block(block) if self.sees_it_sealed(block) => self.read_uncached(block),
            BlockPtr::Block(block) => {
                if let Some(record) = self.storage.cache().get(block) {
                    return Ok(record);
                }
                let record = self.record_from(block, Self::fill_through_second)?;
                if self.keeps_data || block.level > 0 || block.object_type.is_metadata() {
                    self.storage.cache().insert(block, record.clone());
                }
                Ok(record)
            }
        }
    }

    /// The bytes that `ptr` promises, if they are in the cache.
    #[must_use]
    pub fn at_hand(&self, ptr: &BlockPtr) -> Option<Record> {
        let block = ptr.block().filter(|block| !self.sees_it_sealed(block))?;
        self.storage.cache().get_at_hand(block)
    }

    /// As [`Reader::read`] for a block on disk, past the cache and without filling it.
    ///
    /// # Errors
    /// As [`Reader::read`].
    pub fn read_uncached(&self, block: &Block) -> Result<Record, ReadError> {
        self.record_from(block, Self::read_raw)
    }

    /// Stored bytes of `block`: from a cache device, else from the pool; these are offered to the cache devices.
    fn fill_through_second(&self, block: &Block, raw: &mut Vec<u8>) -> Result<(), ReadError> {
        let second = self.storage.second();
        if !second.is_used() || block.checksum_kind == format::ChecksumKind::Off {
            return self.read_raw(block, raw);
        }
        if second.read(block, self.purpose, raw, |raw| self.storage.has_checksum(block, raw)) {
            return Ok(());
        }
        self.read_raw(block, raw)?;
        second.offer(block, self.secondary, raw);
        Ok(())
    }

    /// The record of a block whose stored bytes `fill` gives.
    fn record_from(&self, block: &Block, fill: Fill<Self>) -> Result<Record, ReadError> {
        if block.compression == Compression::Off {
            let mut raw = self.storage.buffers().take(block.psize as usize);
            fill(self, block, &mut raw)?;
            self.open_sealed(block, &mut raw)?;
            self.check_children(block, &raw)?;
            swap::to_little(&mut raw, block.object_type, block.level, block.order)?;
            return Ok(Arc::new(raw));
        }
        SCRATCH.with_borrow_mut(|raw| {
            fill(self, block, raw)?;
            self.open_sealed(block, raw)?;
            let mut out = self.storage.buffers().take(block.lsize as usize);
            codec::decompress(block.compression, raw, &mut out)?;
            self.check_children(block, &out)?;
            swap::to_little(&mut out, block.object_type, block.level, block.order)?;
            if raw.capacity() > SCRATCH_MAX {
                *raw = Vec::new();
            }
            Ok(Arc::new(out))
        })
    }

    /// The verified `psize` bytes of a block as they lie on disk: compressed, in the writer's byte order.
    ///
    /// # Errors
    /// As [`Reader::read`].
    pub fn read_stored(&self, block: &Block) -> Result<Vec<u8>, ReadError> {
        let mut raw = Vec::new();
        self.read_raw(block, &mut raw)?;
        Ok(raw)
    }

    /// As [`Reader::read_stored`], opened with the keys if the block is sealed.
    ///
    /// # Errors
    /// As [`Reader::read`].
    pub fn read_compressed(&self, block: &Block) -> Result<Vec<u8>, ReadError> {
        let mut raw = self.read_stored(block)?;
        self.open_sealed(block, &mut raw)?;
        Ok(raw)
    }

    /// For the sync thread a device's refusal is no answer: this waits until a retry succeeds.
    pub(crate) fn read_raw(&self, block: &Block, raw: &mut Vec<u8>) -> Result<(), ReadError> {
        match self.read_any(block, GANG_DEPTH_MAX, raw) {
            Err(ReadError::Device { .. }) if self.storage.suspension().is_sync_thread() => {
                self.storage.suspension().attempt(|| self.read_any(block, GANG_DEPTH_MAX, raw))
            }
            read => read,
        }
    }

    /// Fills `raw` from the first copy whose checksum is right.
    pub(crate) fn read_any(&self, block: &Block, depth: u32, raw: &mut Vec<u8>) -> Result<(), ReadError> {
        let mut last = None;
        let mut tried = Vec::new();
        for dva in block.copies() {
            for replica in self.storage.replicas_by_load(&dva, block.physical_birth()) {
                match self.read_copy(block, dva, replica, depth, raw) {
                    Ok(()) => return Ok(()),
                    Err(ReadError::NoGoodCopy { .. }) => tried.push(dva),
                    Err(other) => last = Some(other),
                }
            }
        }
        Err(last.filter(|_| tried.is_empty()).unwrap_or(ReadError::NoGoodCopy { tried }))
    }

    pub(crate) fn read_copy(
        &self,
        block: &Block,
        dva: Dva,
        replica: usize,
        depth: u32,
        raw: &mut Vec<u8>,
    ) -> Result<(), ReadError> {
        if !self.read_dva(&CopyOf { block, dva, replica }, TopVdev::read, depth, raw)?.good {
            return Err(ReadError::NoGoodCopy { tried: vec![dva] });
        }
        Ok(())
    }

    /// As [`Reader::read_copy`], for a block that is no gang. Reads each device that holds a part of the copy. Returns
    /// the children with wrong data, although the copy can be read.
    pub(crate) fn verify_copy(
        &self,
        block: &Block,
        dva: Dva,
        replica: usize,
        raw: &mut Vec<u8>,
    ) -> Result<Vec<usize>, ReadError> {
        let outcome = self.read_dva(&CopyOf { block, dva, replica }, TopVdev::verify, 0, raw)?;
        if outcome.good { Ok(outcome.damaged) } else { Err(ReadError::NoGoodCopy { tried: vec![dva] }) }
    }

    /// Fills `raw` with the `psize` bytes of a copy, read in the given way.
    fn read_dva(
        &self,
        copy: &CopyOf<'_>,
        way: Way,
        depth: u32,
        raw: &mut Vec<u8>,
    ) -> Result<Outcome, ReadError> {
        let CopyOf { block, dva, replica } = *copy;
        let top = self.storage.vdevs().top_of(&dva)?;
        let whether = |good| Outcome { good, damaged: Vec::new() };
        if dva.gang {
            raw.clear();
            self.read_gang(block, dva, replica, depth, raw)?;
            return Ok(whether(self.storage.has_checksum(block, raw)));
        }
        if top.asize_of(block.psize) > dva.asize {
            return Err(ReadError::OutOfRange { dva });
        }
        if let Some(Held { payload, before }) = self.storage.held().at(dva) {
            let is_written_later = payload.is_some();
            let is_good = [payload, before].into_iter().flatten().any(|payload| {
                raw.clear();
                raw.extend_from_slice(payload.bytes());
                self.storage.has_checksum(block, raw)
            });
            if is_good || is_written_later {
                return Ok(whether(is_good));
            }
        }
        if raw.capacity() == 0 {
            // Fresh zeroed memory costs nothing extra; the contents of a used buffer are overwritten.
            *raw = vec![0; block.psize as usize];
        } else {
            raw.resize(block.psize as usize, 0);
        }
        if let Some(places) = self.storage.moved(&dva, block.psize)? {
            let source = Source { replica, birth: block.physical_birth(), purpose: self.purpose };
            let is_good = &mut |raw: &[u8]| self.storage.has_checksum(block, raw);
            return self.storage.read_moved(&places, source, way, raw, is_good);
        }
        let is_stale = top.spread().is_none() && top.is_stale(replica, block.physical_birth());
        if is_stale && block.checksum_kind == format::ChecksumKind::Off {
            // Nothing proves that the device has this block and not an older one.
            return Ok(whether(false));
        }
        let _passed = top.spread().map(|_| self.storage.gate().read());
        // The layout may have changed until then.
        let top = self.storage.vdevs().top_of(&dva)?;
        let outcome = way(
            top,
            Source { replica, birth: block.physical_birth(), purpose: self.purpose },
            dva.offset,
            raw,
            &mut |raw| self.storage.has_checksum(block, raw),
        )?;
        if !is_stale {
            self.storage.note_bad_checksums(top, &outcome.damaged);
        }
        Ok(outcome)
    }
}

fn read_embedded(embedded: &Embedded) -> Result<Record, ReadError> {
    if embedded.kind != 0 {
        return Err(ReadError::Unsupported(NotYet::Redacted));
    }
    let payload = &embedded.payload[..usize::from(embedded.psize)];
    let mut out = vec![0; embedded.lsize as usize];
    if embedded.compression == Compression::Off {
        let len = payload.len().min(out.len());
        out[..len].copy_from_slice(&payload[..len]);
    } else {
        codec::decompress(embedded.compression, payload, &mut out)?;
    }
    swap::to_little(&mut out, embedded.object_type, embedded.level, embedded.order)?;
    Ok(Arc::new(out))
}
