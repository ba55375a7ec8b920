//! Record → compressed, checksummed bytes → coalesced writes.
//!
//! Encoding is pure and runs on the workers; placing (allocation) is the caller's, on its one thread;
//! [`Writer`] gathers neighbours into large writes and hands them to the I/O threads.
//! Source: docs/format/02-blocks-checksums-compression.md §1.6, §4.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::time::Instant;

use codec::Salt;
use codec::crypt::CryptError;
use format::blkptr::{Dva, EMBEDDED_MAX};
use format::compression::CompressionSetting;
use format::crypt::Sealing;
use format::{ByteOrder, Checksum, ChecksumKind, Compression, Txg};

use crate::as_stored::AsStored;
use crate::io_queue::Job;
use crate::reflow::placed;
use crate::{Deflate, Guard, GzipEngine, Payload, Protection, Record, Storage, WriteError};

/// Bytes gathered into one write before it is handed on, where there is one vdev. Several vdevs share them, so that all of their
/// devices soon have something to do.
const RUN_BYTES_MAX: usize = 4 << 20;
/// Minimal number of these bytes for one vdev.
const RUN_BYTES_MIN: usize = 1 << 20;
/// Buffers gathered into one write (the system takes 1024).
const RUN_BUFFERS_MAX: usize = 512;

/// How a record is to be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// Algorithm and level; `On` is resolved by the caller.
    pub compression: CompressionSetting,
    /// The gzip engine.
    pub gzip_engine: GzipEngine,
    /// Checksum of the bytes on disk.
    pub checksum: ChecksumKind,
    /// Sizes on disk are multiples of this.
    pub min_alloc: u64,
    /// Tiny results may go into the pointer (feature `embedded_data`).
    pub embed: bool,
    /// How the block is protected in an encrypted dataset.
    pub protection: Option<Protection>,
}

/// A recipe with what it needs.
#[derive(Clone, Copy)]
pub struct Encoding<'a> {
    /// How.
    pub recipe: Recipe,
    /// Where the engines are chosen and counted.
    pub deflate: &'a Deflate,
    /// Key of salted checksums.
    pub salt: &'a Salt,
    /// The protection of the block, if the recipe asks for one.
    pub guard: Guard<'a>,
}

/// The encoded form of a record.
#[derive(Clone, Debug)]
pub enum Encoded {
    /// All zeros, and compression was asked for.
    Hole,
    /// Small enough for the pointer itself.
    Embedded {
        /// The framed bytes, zero-filled.
        payload: [u8; EMBEDDED_MAX],
        /// How many are in use.
        psize: u8,
        /// How they are framed.
        compression: Compression,
    },
    /// To be stored.
    Stored {
        /// `psize` bytes.
        payload: Payload,
        /// How they are framed; `Off` when stored as they are.
        compression: Compression,
        /// Checksum of `payload`, with the authentication code in an encrypted dataset.
        checksum: Checksum,
        /// The parameters with which `payload` was encrypted.
        sealing: Option<Sealing>,
    },
    /// It cannot be sealed.
    Refused(CryptError),
}

/// A record compressed, not yet protected.
#[derive(Clone, Debug)]
pub(crate) enum Packed {
    Hole,
    Embedded { payload: [u8; EMBEDDED_MAX], psize: u8, compression: Compression },
    Bytes { payload: Payload, compression: Compression },
}

/// Most bytes that a compressed record may have: at least an eighth must be saved, in whole allocation units.
pub(crate) const fn compressed_max(lsize: u64, min_alloc: u64) -> u64 {
    (lsize - (lsize >> 3)) / min_alloc * min_alloc
}

thread_local! {
    static SCRATCH: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
}

impl Encoding<'_> {
    /// Compresses and checksums one record.
    #[must_use]
    pub fn encode(&self, record: &Record) -> Encoded {
        self.complete(self.pack(record), record)
    }

    /// Checksums a block that is written as it came.
    pub(crate) fn encode_moved(&self, bytes: &Record, moved: &AsStored) -> Encoded {
        let (kind, payload) = (self.recipe.checksum, Payload::from(bytes.clone()));
        let sum = codec::checksum(kind, payload.bytes(), self.salt);
        Encoded::Stored {
            payload,
            compression: moved.compression,
            checksum: sum.with_mac(kind, &moved.mac, ByteOrder::Little),
            sealing: moved.sealing,
        }
    }

    /// Compresses one record.
    pub(crate) fn pack(&self, record: &Record) -> Packed {
        let algorithm = self.recipe.compression.algorithm;
        if algorithm != Compression::Off {
            if codec::is_zero(record) {
                return Packed::Hole;
            }
            if algorithm != Compression::Empty
                && let Some(packed) = SCRATCH.with_borrow_mut(|scratch| self.compress(record, scratch))
            {
                return packed;
            }
        }
        Packed::Bytes { payload: record.clone().into(), compression: Compression::Off }
    }

    /// Protects and checksums the output of [`Encoding::pack`] for `record`.
    pub(crate) fn complete(&self, packed: Packed, record: &Record) -> Encoded {
        match packed {
            Packed::Hole => Encoded::Hole,
            Packed::Embedded { payload, psize, compression } => {
                Encoded::Embedded { payload, psize, compression }
            }
            Packed::Bytes { payload, compression } => self.store(payload, compression, record),
        }
    }

    /// Encodes so that the result fills exactly `psize` bytes (or all of `lsize`, stored as it is): used to
    /// rewrite a block in the space it already has. `None` if it does not fit.
    #[must_use]
    pub fn encode_into(&self, record: &Record, psize: u64) -> Option<Encoded> {
        if psize == record.len() as u64 {
            return Some(self.store(record.clone().into(), Compression::Off, record));
        }
        let algorithm = self.recipe.compression.algorithm;
        if algorithm == Compression::Off || psize > record.len() as u64 {
            return None;
        }
        let mut out = vec![0; psize as usize];
        let used = self.squeeze(record, &mut out)?;
        out[used..].fill(0);
        Some(self.store(out.into(), algorithm, record))
    }

    fn store(&self, payload: Payload, compression: Compression, record: &Record) -> Encoded {
        let kind = self.recipe.checksum;
        let sum = |payload: &Payload| codec::checksum(kind, payload.bytes(), self.salt);
        let Some(protection) = self.recipe.protection else {
            return Encoded::Stored { checksum: sum(&payload), payload, compression, sealing: None };
        };
        match self.guard.protect(protection, payload, record) {
            Err(error) => Encoded::Refused(error),
            Ok((payload, mac, sealing)) => {
                let sum = sum(&payload);
                let checksum = mac.map_or(sum, |mac| sum.with_mac(kind, &mac, ByteOrder::Little));
                Encoded::Stored { payload, compression, checksum, sealing }
            }
        }
    }

    fn squeeze(&self, record: &[u8], dst: &mut [u8]) -> Option<usize> {
        if !matches!(self.recipe.compression.algorithm, Compression::Gzip(_)) {
            return codec::compress(self.recipe.compression, record, dst);
        }
        let engine = self.deflate.choose(self.recipe.gzip_engine);
        self.deflate.count(engine);
        codec::compress_by(engine, self.recipe.compression, record, dst)
    }

    fn compress(&self, record: &[u8], scratch: &mut Vec<u8>) -> Option<Packed> {
        let lsize = record.len() as u64;
        // Below one unit only a pointer helps.
        let limit = match compressed_max(lsize, self.recipe.min_alloc) {
            0 => EMBEDDED_MAX as u64,
            limit => limit,
        };
        if scratch.len() < limit as usize {
            scratch.resize(limit as usize, 0);
        }
        let used = self.squeeze(record, &mut scratch[..limit as usize])?;
        let algorithm = self.recipe.compression.algorithm;
        if self.recipe.embed && used <= EMBEDDED_MAX {
            let mut payload = [0; EMBEDDED_MAX];
            payload[..used].copy_from_slice(&scratch[..used]);
            return Some(Packed::Embedded { payload, psize: used as u8, compression: algorithm });
        }
        let psize = (used as u64).next_multiple_of(self.recipe.min_alloc);
        if psize >= lsize {
            return None;
        }
        let mut out = Vec::with_capacity(psize as usize);
        out.extend_from_slice(&scratch[..used]);
        out.resize(psize as usize, 0);
        Some(Packed::Bytes { payload: out.into(), compression: algorithm })
    }
}

/// Neighbouring buffers that become one write.
#[derive(Default)]
struct Run {
    start: u64,
    len: usize,
    buffers: Vec<Payload>,
}

/// Where the writes of a run go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Target {
    /// Id of the top-level vdev.
    vdev: u32,
    /// The child of a raidz vdev; `None`: every device of another vdev gets the same.
    child: Option<usize>,
}

/// Gathers placed blocks of one txg. Nothing is durable before [`Writer::finish`] and a flush.
pub struct Writer<'a> {
    storage: &'a Storage,
    runs: BTreeMap<Target, Run>,
    bytes: u64,
    /// Bytes gathered into one write, at most.
    run_bytes_max: usize,
    /// When the blocks are born.
    born: Txg,
    /// A sector of zeros, as long as the longest that was needed so far.
    zeros: Record,
}

impl<'a> Writer<'a> {
    /// Starts the writes of txg `born`.
    #[must_use]
    pub fn new(storage: &'a Storage, born: Txg) -> Writer<'a> {
        let run_bytes_max = (RUN_BYTES_MAX / storage.vdevs().tops().len().max(1)).max(RUN_BYTES_MIN);
        Writer { storage, runs: BTreeMap::new(), bytes: 0, run_bytes_max, born, zeros: Record::default() }
    }

    /// Bytes put so far, over all copies.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Queues `payload` for `dva`. Neighbours on a vdev that come one after another become one write, on each device.
    ///
    /// # Errors
    /// A device error, of this write or an earlier one.
    pub fn put(&mut self, dva: Dva, payload: Payload) -> Result<(), WriteError> {
        let vdev = dva.vdev.0;
        self.bytes += payload.bytes().len() as u64;
        let Some(layout) = self.storage.vdevs().tops()[vdev as usize].spread() else {
            return self.append(Target { vdev, child: None }, dva.offset, payload);
        };
        let map = layout.map(dva.offset, payload.bytes().len() as u64, self.born);
        for (column, part) in placed(&map, &payload) {
            self.append(Target { vdev, child: Some(column.child) }, column.offset, part)?;
        }
        // With zeros in the skipped sectors the next block follows on every device.
        for column in &map.skipped {
            let len = column.len as usize;
            if self.zeros.len() < len {
                self.zeros = Arc::new(vec![0; len]);
            }
            let zeros = Payload::from(self.zeros.clone()).part(0..len);
            self.append(Target { vdev, child: Some(column.child) }, column.offset, zeros)?;
        }
        Ok(())
    }

    pub(crate) fn vdevs(&self) -> &'a crate::Vdevs {
        self.storage.vdevs()
    }

    /// Queues `payload` for one side of a vdev whose sides are devices.
    pub(crate) fn put_on(
        &mut self,
        (vdev, side): (u32, usize),
        offset: u64,
        payload: Payload,
    ) -> Result<(), WriteError> {
        self.bytes += payload.bytes().len() as u64;
        self.append(Target { vdev, child: Some(side) }, offset, payload)
    }

    /// Adds bytes for `offset` to the run of `target`, or begins another run with them.
    fn append(&mut self, target: Target, offset: u64, payload: Payload) -> Result<(), WriteError> {
        let len = payload.bytes().len();
        let run = self.runs.entry(target).or_default();
        let follows = run.start + run.len as u64 == offset;
        if !follows || run.len + len > self.run_bytes_max || run.buffers.len() == RUN_BUFFERS_MAX {
            let full = mem::replace(run, Run { start: offset, ..Run::default() });
            self.submit(target, full)?;
        }
        let run = self.runs.entry(target).or_default();
        run.len += len;
        run.buffers.push(payload);
        Ok(())
    }

    /// Writes all that is gathered so far and waits for it: the blocks can be read.
    ///
    /// # Errors
    /// The first device error.
    pub fn drain(&mut self) -> Result<(), WriteError> {
        for (target, run) in mem::take(&mut self.runs) {
            self.submit(target, run)?;
        }
        self.storage.io().drain()
    }

    /// Writes all that is gathered or held, and waits for every write.
    ///
    /// # Errors
    /// The first device error.
    pub fn finish(mut self) -> Result<(), WriteError> {
        // The blocks can be read from memory until they are on the disks.
        for (dva, payload) in self.storage.held().to_write() {
            self.put(dva, payload)?;
        }
        self.drain()?;
        self.storage.held().clear();
        Ok(())
    }

    fn submit(&self, target: Target, run: Run) -> Result<(), WriteError> {
        if run.buffers.is_empty() {
            return Ok(());
        }
        let top = &self.storage.vdevs().tops()[target.vdev as usize];
        let submitted = Instant::now();
        let meant = target.child.map(|side| top.numbers_of_side(side));
        let is_meant = |number: &usize| meant.as_ref().is_none_or(|numbers| numbers.contains(number));
        for (_, leaf) in top.written_leaves()?.filter(|(number, _)| is_meant(number)) {
            for (at, len) in top.ways().parts(leaf, run.start, run.len as u64) {
                let len = len as usize;
                for holder in top.ways().written(leaf, at) {
                    let buffers = part_of(&run, at, len);
                    let (vdev, leaf, offset) =
                        (target.vdev, holder.device.clone(), at + format::label::DATA_START);
                    self.storage.io().submit(Job { vdev, leaf, offset, buffers, len, submitted })?;
                }
            }
        }
        Ok(())
    }
}

/// The `len` bytes of a run for offset `at`.
fn part_of(run: &Run, at: u64, len: usize) -> Vec<Payload> {
    if len == run.len {
        return run.buffers.clone();
    }
    let wanted = (at - run.start) as usize..(at - run.start) as usize + len;
    let mut parts = Vec::new();
    let mut start = 0;
    for buffer in &run.buffers {
        let size = buffer.bytes().len();
        let (from, to) = (wanted.start.max(start), wanted.end.min(start + size));
        if from < to {
            parts.push(buffer.part(from - start..to - start));
        }
        start += size;
    }
    parts
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        // An abandoned txg: wait so that no write of it happens after the caller has moved on. Its blocks
        // are unreachable, so whether they were written does not matter.
        let _ = self.storage.io().drain();
    }
}
