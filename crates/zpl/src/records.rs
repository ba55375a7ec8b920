//! A file's records in order, read ahead on all cores.
//!
//! From:   `dmu`, whose blocks are read, verified and decompressed on the storage workers.
//! To:     sequential readers (`cat`, `cp`, `tar`), one record at a time, without a copy.

use std::sync::Arc;

use dmu::{AtHand, Object, Objset, Record};
use format::ObjectId;

use crate::read_ahead::ReadAhead;
use crate::{Filesystem, Result};

/// Maximal bytes of records that the workers read at once.
const AHEAD_BYTES: u64 = 16 << 20;
/// Minimal and maximal number of records that the workers read at once.
const AHEAD_MIN: u64 = 4;
const AHEAD_MAX: u64 = 256;
/// A shorter file is read without workers.
const ALONE_BLOCKS: u64 = 3;

/// A part of a file.
#[derive(Clone, Debug)]
pub enum Piece {
    /// The first `len` bytes of `record` are the file's from `offset` on.
    Data {
        /// Byte in the file.
        offset: u64,
        /// The record, which may be longer than the file.
        record: Record,
        /// Bytes of it that belong to the file.
        len: usize,
    },
    /// Zeros that are not stored.
    Hole {
        /// Byte in the file.
        offset: u64,
        /// Bytes.
        len: u64,
    },
}

impl Piece {
    /// The bytes; `None` for a hole.
    #[must_use]
    pub fn data(&self) -> Option<&[u8]> {
        match self {
            Piece::Data { record, len, .. } => Some(&record[..*len]),
            Piece::Hole { .. } => None,
        }
    }
}

/// A block with data and the result of reading it; an error if the blocks cannot be determined.
type Read = dmu::Result<(u64, dmu::Result<Record>)>;

enum Source {
    /// Block by block, on the reader's thread.
    Alone {
        next: u64,
    },
    /// From the workers.
    Ahead(Box<ReadAhead>),
    Ended,
}

/// Iterator over the pieces of a file, from its start to its end without gaps.
pub struct Records {
    object: Arc<Object>,
    objset: Arc<Objset>,
    block: u64,
    size: u64,
    source: Source,
    /// Byte up to which pieces were given out.
    at: u64,
    /// Data that waits for the hole before it to be given out.
    pending: Option<(u64, dmu::Result<Record>)>,
    /// The last returned piece. Its buffer is reused when the reader drops it.
    last: Option<Record>,
}

impl Filesystem {
    /// All records and holes of a regular file, in order. Do not call it from a job of the storage workers: the reads need
    /// these workers, so the job would wait for itself. If the file changes meanwhile, old and new parts are mixed.
    ///
    /// # Errors
    /// As [`Filesystem::read`]. A step that fails to read its record returns an error; the next step continues
    /// after it.
    pub fn read_records(&self, id: ObjectId) -> Result<Records> {
        let (object, size) = {
            let _shared = self.inner.nodes.read(id);
            let (object, znode) = self.file(id)?;
            (object, znode.size)
        };
        let block = object.block_size();
        let objset = self.inner.objset.clone();
        let source = if size.div_ceil(block) <= ALONE_BLOCKS {
            Source::Alone { next: 0 }
        } else {
            let window = (AHEAD_BYTES / block).clamp(AHEAD_MIN, AHEAD_MAX);
            Source::Ahead(Box::new(ReadAhead::new(
                objset.clone(),
                object.clone(),
                size.div_ceil(block),
                window,
            )))
        };
        Ok(Records { object, objset, block, size, source, at: 0, pending: None, last: None })
    }

    /// As [`read_blocks`], within the limits of `primarycache`. Whole blocks are not cached, because callers of such large
    /// reads cache the data themselves.
    pub(crate) fn read_blocks(&self, object: &Arc<Object>, offset: u64, buf: &mut [u8]) -> Result<()> {
        // Such blocks do not enter the cache.
        let keep = if self.inner.dataset.settings().cache_data { Keep::Parts } else { Keep::Nothing };
        read_blocks(&self.inner.objset, object, keep, offset, buf)
    }
}

/// Caching policy of the reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// All blocks stay in the cache.
    All,
    /// A block that is read alone, and blocks of which only a part is read.
    Parts,
    /// Nothing.
    Nothing,
}

/// Fills `buf` from byte `offset` of `object` on, blocks side by side on all cores where there are several.
pub(crate) fn read_blocks(
    objset: &Objset,
    object: &Arc<Object>,
    keep: Keep,
    offset: u64,
    buf: &mut [u8],
) -> Result<()> {
    let block = object.block_size();
    let end = offset + buf.len() as u64;
    let blkids = offset / block..end.div_ceil(block);
    if blkids.end - blkids.start <= 1 {
        let read =
            if keep == Keep::Nothing { object.read_once(offset, buf) } else { object.read(offset, buf) };
        return Ok(read?);
    }
    // The needed bytes of a block, and their place in `buf`.
    let part = |blkid: u64| {
        let (from, to) = ((blkid * block).max(offset), ((blkid + 1) * block).min(end));
        let within = (from - blkid * block) as usize..(to - blkid * block) as usize;
        (within, (from - offset) as usize..(to - offset) as usize)
    };
    // For data in memory no other thread is woken.
    let mut on_disk = Vec::new();
    for blkid in blkids {
        let (within, place) = part(blkid);
        match object.at_hand(blkid) {
            AtHand::Record(record) => buf[place].copy_from_slice(&record[within]),
            AtHand::Zeros => buf[place].fill(0),
            AtHand::OnDisk => on_disk.push(blkid),
        }
    }
    let read = |blkid: u64| {
        let whole = part(blkid).0.len() as u64 == block;
        let is_kept = keep == Keep::All || keep == Keep::Parts && !whole;
        (blkid, if is_kept { object.block(blkid) } else { object.block_once(blkid) })
    };
    let buffers = objset.buffers();
    let copy = |(blkid, record): (u64, dmu::Result<Record>)| {
        let (record, (within, place)) = (record?, part(blkid));
        buf[place].copy_from_slice(&record[within]);
        buffers.give(record);
        Ok::<_, dmu::Error>(())
    };
    let window = (AHEAD_BYTES / block).clamp(AHEAD_MIN, AHEAD_MAX) as usize;
    Ok(objset.readers().map_ordered(dmu::Caller::Works, on_disk, window, read, copy)?)
}

impl Records {
    /// Bytes of the file.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The next block that holds data.
    fn next_data(&mut self) -> Option<Read> {
        match &mut self.source {
            Source::Ended => None,
            Source::Alone { next } => match self.object.next_block(*next) {
                Ok(Some(blkid)) => {
                    *next = blkid + 1;
                    Some(Ok((blkid, self.object.block_once(blkid))))
                }
                last => {
                    self.source = Source::Ended;
                    last.err().map(Err)
                }
            },
            Source::Ahead(ahead) => ahead.next(),
        }
    }

    fn hole(&mut self, end: u64) -> Option<Result<Piece>> {
        let offset = self.at;
        self.at = end;
        (offset < end).then_some(Ok(Piece::Hole { offset, len: end - offset }))
    }
}

impl Iterator for Records {
    type Item = Result<Piece>;

    fn next(&mut self) -> Option<Result<Piece>> {
        if let Some(record) = self.last.take() {
            self.objset.buffers().give(record);
        }
        let (blkid, read) = match self.pending.take() {
            Some(pending) => pending,
            None => match self.next_data() {
                None => return self.hole(self.size),
                Some(Ok(read)) => read,
                Some(Err(error)) => {
                    // The following bytes may be data or holes: neither is given out.
                    self.at = self.size;
                    return Some(Err(error.into()));
                }
            },
        };
        let offset = blkid.saturating_mul(self.block);
        if offset >= self.size {
            return self.hole(self.size);
        }
        if offset > self.at {
            self.pending = Some((blkid, read));
            return self.hole(offset);
        }
        let record = match read {
            Ok(record) => record,
            Err(error) => {
                self.at = offset.saturating_add(self.block).min(self.size);
                return Some(Err(error.into()));
            }
        };
        let len = (record.len() as u64).min(self.size - offset) as usize;
        self.at = offset + len as u64;
        self.last = Some(record.clone());
        Some(Ok(Piece::Data { offset, record, len }))
    }
}
