//! Cache devices (L2ARC): the header that describes a device, and the log blocks that say which blocks of the pool are on it.
//!
//! From:   the bytes behind the labels of a cache device.
//! To:     `storage`, which fills and reads the device, and computes the checksums (`codec`).
//! Source: docs/format/12-auxiliary-vdevs.md §2.
//!
//! Everything is little-endian: the contents of a cache that a big-endian machine wrote are not used.

use alloc::vec::Vec;

use crate::blkptr::Dva;
use crate::{ByteOrder, Checksum, Compression, Corrupt, Guid, SECTOR, SECTOR_SHIFT, Txg};

/// Bytes of the header before padding to a sector.
pub const HEADER_SIZE: usize = 512;
/// Where the header lies, in bytes from the beginning of the device.
pub const HEADER_AT: u64 = crate::label::DATA_START;
/// Bytes of a log block before compression.
pub const LOG_BLOCK_SIZE: usize = 64 << 10;
/// Most entries of a log block.
pub const LOG_ENTRIES_MAX: u64 = 1022;
/// Bytes of an entry, and of a pointer to a log block.
pub const ENTRY_SIZE: usize = 64;

const HEADER_MAGIC: u64 = 0x5a46_5343_4143_4845;
const HEADER_VERSION: u64 = 1;
const LOG_MAGIC: u64 = 0x4c4f_4742_4c4b_4844;
const FIRST_SWEEP: u64 = 1;
const POINTERS_AT: usize = 9;
/// Where entries begin in a log block.
const ENTRIES_AT: usize = 128;
const LE: ByteOrder = ByteOrder::Little;
/// The checksum of log blocks, by its number on disk.
const FLETCHER4: u64 = 7;

/// The header of a cache device. Places are byte offsets from the beginning of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The pool that uses the device.
    pub pool: Guid,
    /// The device itself.
    pub vdev: Guid,
    /// Entries of each log block on this device; 0: it has none.
    pub log_entries: u64,
    /// Old contents were dropped up to this place.
    pub evict: u64,
    /// The end of the device was not reached yet.
    pub first_sweep: bool,
    /// Where contents begin.
    pub start: u64,
    /// Where contents end.
    pub end: u64,
    /// The newest log block, and the one before it.
    pub newest: [LogPtr; 2],
    /// Bytes on the device of all log blocks that are still there.
    pub log_asize: u64,
    /// How many there are.
    pub log_count: u64,
    /// When the device was last trimmed, and how far that came; carried through.
    pub trim: [u64; 2],
}

impl Header {
    /// Decodes the first [`HEADER_SIZE`] bytes of a header whose checksum was verified.
    ///
    /// # Errors
    /// [`Corrupt`] for another length, magic number or version.
    pub fn decode(raw: &[u8]) -> Result<Header, Corrupt> {
        let raw = raw.get(..HEADER_SIZE).ok_or(Corrupt::new("L2ARC header length", raw.len() as u64))?;
        let word = |index| LE.word(raw, index);
        if word(0) != HEADER_MAGIC {
            return Err(Corrupt::new("L2ARC header magic", word(0)));
        }
        if word(1) != HEADER_VERSION {
            return Err(Corrupt::new("L2ARC header version", word(1)));
        }
        let pointer = |index: usize| LogPtr::decode(&raw[8 * index..]);
        Ok(Header {
            pool: Guid(word(2)),
            vdev: Guid(word(3)),
            log_entries: word(4),
            evict: word(5),
            first_sweep: word(6) & FIRST_SWEEP != 0,
            start: word(7),
            end: word(8),
            newest: [pointer(POINTERS_AT), pointer(POINTERS_AT + 8)],
            log_asize: word(25),
            log_count: word(26),
            trim: [word(27), word(28)],
        })
    }

    /// The header in a region of `len` bytes whose trailer is still to be filled in.
    ///
    /// # Panics
    /// If `len` is less than [`HEADER_SIZE`].
    #[must_use]
    pub fn encode(&self, len: usize) -> Vec<u8> {
        assert!(len >= HEADER_SIZE, "a header has {HEADER_SIZE} bytes");
        let mut raw = alloc::vec![0; len];
        let words = [
            HEADER_MAGIC,
            HEADER_VERSION,
            self.pool.0,
            self.vdev.0,
            self.log_entries,
            self.evict,
            if self.first_sweep { FIRST_SWEEP } else { 0 },
            self.start,
            self.end,
        ];
        for (index, word) in words.into_iter().enumerate() {
            LE.put_u64(&mut raw, 8 * index, word);
        }
        for (index, pointer) in self.newest.iter().enumerate() {
            pointer.encode(&mut raw[8 * (POINTERS_AT + 8 * index)..]);
        }
        for (index, word) in
            [self.log_asize, self.log_count, self.trim[0], self.trim[1]].into_iter().enumerate()
        {
            LE.put_u64(&mut raw, 8 * (25 + index), word);
        }
        raw
    }
}

/// Entries of each log block of a device with contents from `start` to `end`; 0 for one that ends before `min_end`, which
/// has no log blocks.
#[must_use]
pub fn log_entries(start: u64, end: u64, min_end: u64) -> u64 {
    if end < min_end { 0 } else { (end.saturating_sub(start) >> 24).min(LOG_ENTRIES_MAX) }
}

/// Points to a log block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogPtr {
    /// Byte offset on the device; 0 if there is no log block.
    pub at: u64,
    /// Bytes on the device of the buffers that the log block lists.
    pub payload_asize: u64,
    /// Where the first of these buffers begins.
    pub payload_start: u64,
    /// Bytes of the log block as stored, a whole number of sectors.
    pub stored: u64,
    /// Bytes of the log block before compression.
    pub lsize: u64,
    /// Its compression, by its number on disk.
    pub compression: u64,
    /// Its checksum algorithm, by its number on disk.
    pub checksum_kind: u64,
    /// fletcher4 of the stored bytes.
    pub checksum: Checksum,
}

impl LogPtr {
    /// A pointer to a log block that is stored in `stored` bytes at `at`, with fletcher4 over them.
    #[must_use]
    pub fn new(at: u64, stored: u64, compression: Compression, checksum: Checksum) -> LogPtr {
        LogPtr {
            at,
            payload_asize: 0,
            payload_start: 0,
            stored,
            lsize: LOG_BLOCK_SIZE as u64,
            compression: compression.to_disk(),
            checksum_kind: FLETCHER4,
            checksum,
        }
    }

    /// There is no log block.
    #[must_use]
    pub const fn is_none(&self) -> bool {
        self.at == 0
    }

    /// The last byte behind the log block.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.at.saturating_add(self.stored)
    }

    fn decode(raw: &[u8]) -> LogPtr {
        let word = |index| LE.word(raw, index);
        let prop = word(3);
        if word(0) == 0 {
            return LogPtr::default();
        }
        LogPtr {
            at: word(0),
            payload_asize: word(1),
            payload_start: word(2),
            lsize: sectors(prop),
            stored: sectors(prop >> 16),
            compression: prop >> 32 & 0x7f,
            checksum_kind: prop >> 40 & 0xff,
            checksum: Checksum([4, 5, 6, 7].map(word)),
        }
    }

    fn encode(&self, raw: &mut [u8]) {
        if self.is_none() {
            return;
        }
        let prop = in_sectors(self.lsize)
            | in_sectors(self.stored) << 16
            | self.compression << 32
            | self.checksum_kind << 40;
        let [a, b, c, d] = self.checksum.0;
        let words = [self.at, self.payload_asize, self.payload_start, prop, a, b, c, d];
        for (index, word) in words.into_iter().enumerate() {
            LE.put_u64(raw, 8 * index, word);
        }
    }
}

/// A buffer on a cache device: which block of the pool it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The first copy of the block in the pool.
    pub dva: Dva,
    /// The txg in which the block's space was allocated.
    pub birth: Txg,
    /// Bytes of the record.
    pub lsize: u64,
    /// Bytes of the block as the pool stores it.
    pub psize: u64,
    /// Its compression.
    pub compression: Compression,
    /// It is metadata, and not data.
    pub is_metadata: bool,
    /// It belongs to an encrypted dataset, and is sealed or authenticated.
    pub protected: bool,
    /// It was used more than once.
    pub frequent: bool,
    /// Where it lies on the device, in bytes.
    pub at: u64,
    /// The level of its compression, as OpenZFS numbers it. It is only copied.
    pub level: u64,
}

const STATE_RECENT: u64 = 1;
const STATE_FREQUENT: u64 = 3;

impl Entry {
    fn decode(raw: &[u8]) -> Result<Entry, Corrupt> {
        let word = |index| LE.word(raw, index);
        let prop = word(3);
        Ok(Entry {
            dva: Dva::decode(word(0), word(1)),
            birth: Txg(word(2)),
            lsize: sectors(prop),
            psize: sectors(prop >> 16),
            compression: Compression::from_disk(prop >> 32 & 0x7f)?,
            is_metadata: prop >> 48 & 0xff == 2,
            protected: prop >> 56 & 1 != 0,
            frequent: prop >> 57 & 0xf == STATE_FREQUENT,
            at: word(4),
            level: word(5),
        })
    }

    fn encode(&self, raw: &mut [u8]) {
        let (dva0, dva1) = self.dva.encode();
        let state = if self.frequent { STATE_FREQUENT } else { STATE_RECENT };
        let prop = in_sectors(self.lsize)
            | in_sectors(self.psize) << 16
            | self.compression.to_disk() << 32
            | (1 + u64::from(self.is_metadata)) << 48
            | u64::from(self.protected) << 56
            | state << 57;
        for (index, word) in [dva0, dva1, self.birth.0, prop, self.at, self.level].into_iter().enumerate() {
            LE.put_u64(raw, 8 * index, word);
        }
    }
}

/// A log block: which buffers were written, and where the second newest log block was then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogBlock {
    /// The log block that was written before the one before this.
    pub previous: LogPtr,
    /// The blocks that were written, oldest first.
    pub entries: Vec<Entry>,
}

impl LogBlock {
    /// Decodes the [`LOG_BLOCK_SIZE`] bytes of a log block with `count` entries.
    ///
    /// # Errors
    /// [`Corrupt`] for another length or magic number, or an entry that no OpenZFS writes.
    pub fn decode(raw: &[u8], count: u64) -> Result<LogBlock, Corrupt> {
        if raw.len() != LOG_BLOCK_SIZE {
            return Err(Corrupt::new("L2ARC log block length", raw.len() as u64));
        }
        if LE.word(raw, 0) != LOG_MAGIC {
            return Err(Corrupt::new("L2ARC log block magic", LE.word(raw, 0)));
        }
        let used = raw[ENTRIES_AT..].chunks_exact(ENTRY_SIZE).take(count.min(LOG_ENTRIES_MAX) as usize);
        Ok(LogBlock {
            previous: LogPtr::decode(&raw[8..]),
            entries: used.map(Entry::decode).collect::<Result<_, _>>()?,
        })
    }

    /// The log block's bytes before compression.
    ///
    /// # Panics
    /// If there are more than [`LOG_ENTRIES_MAX`] entries.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(
            self.entries.len() as u64 <= LOG_ENTRIES_MAX,
            "a log block has room for {LOG_ENTRIES_MAX} entries"
        );
        let mut raw = alloc::vec![0; LOG_BLOCK_SIZE];
        LE.put_u64(&mut raw, 0, LOG_MAGIC);
        self.previous.encode(&mut raw[8..]);
        for (entry, slot) in self.entries.iter().zip(raw[ENTRIES_AT..].chunks_exact_mut(ENTRY_SIZE)) {
            entry.encode(slot);
        }
        raw
    }
}

/// Bytes from the 16-bit field at the low end of `prop`.
const fn sectors(prop: u64) -> u64 {
    ((prop & 0xffff) + 1) * SECTOR
}

/// The 16-bit field for `bytes`.
const fn in_sectors(bytes: u64) -> u64 {
    ((bytes >> SECTOR_SHIFT).saturating_sub(1)) & 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VdevId;

    fn pointer(at: u64) -> LogPtr {
        LogPtr {
            payload_asize: 0x20_0000,
            payload_start: 0x40_0200,
            ..LogPtr::new(at, 0x2000, Compression::Lz4, Checksum([1, 2, 3, 4]))
        }
    }

    #[test]
    fn a_header_reads_back_as_it_was_written() {
        let header = Header {
            pool: Guid(7),
            vdev: Guid(8),
            log_entries: 63,
            evict: 0x50_0000,
            first_sweep: true,
            start: 0x40_1000,
            end: 1 << 30,
            newest: [pointer(0x70_0000), LogPtr::default()],
            log_asize: 0x2000,
            log_count: 1,
            trim: [5, 4],
        };
        let raw = header.encode(4096);
        assert_eq!(raw.len(), 4096);
        assert_eq!(Header::decode(&raw), Ok(header));
        assert!(Header::decode(&raw[..100]).is_err());
        let mut other = raw;
        other[8] = 2;
        assert_eq!(Header::decode(&other), Err(Corrupt::new("L2ARC header version", 2)));
    }

    #[test]
    fn a_log_block_reads_back_as_it_was_written() {
        let entry = |n: u64| Entry {
            dva: Dva { vdev: VdevId(3), asize: 0x2_0000, offset: n << 20, gang: false },
            birth: Txg(100 + n),
            lsize: 128 << 10,
            psize: 0x1_1000,
            compression: Compression::Zstd,
            is_metadata: n == 2,
            protected: n == 1,
            frequent: n == 0,
            at: 0x40_0200 + (n << 17),
            level: 0,
        };
        let block = LogBlock { previous: pointer(0x60_0000), entries: (0..4).map(entry).collect() };
        let raw = block.encode();
        assert_eq!(raw.len(), LOG_BLOCK_SIZE);
        assert_eq!(LogBlock::decode(&raw, 4).as_ref(), Ok(&block));
        assert_eq!(LogBlock::decode(&raw, 2).map(|read| read.entries.len()), Ok(2));
        assert!(LogBlock::decode(&raw[1..], 4).is_err());
    }

    #[test]
    fn small_devices_have_no_log_blocks() {
        assert_eq!(log_entries(0x40_0200, 0x3f8_0000, 1 << 30), 0);
        assert_eq!(log_entries(0x40_0200, (320 << 20) - 0x8_0000, 0), 19);
        assert_eq!(log_entries(0x40_0200, 1 << 40, 1 << 30), LOG_ENTRIES_MAX);
    }
}
