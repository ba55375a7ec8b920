//! Partition tables: where the partitions of an image of a whole disk lie.
//!
//! From:   the sectors of an image that hold its table: a GPT, or an MBR with its extended partitions. They are input.
//! To:     `file_disk`, which opens one partition, and `pool::discover`, which looks for pools in all of them.
//! Source: UEFI specification 2.10, chapter 5; for the MBR and its extended partitions fdisk(8).
//!
//! The crates for this (`gpt` 4.1, `gptman` 3.1) allocate as much memory as a table asks for, or panic, before a checksum
//! proves anything. This module reads a bounded number of bytes from any table.

use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::disk::Disk;

/// Sector sizes that disks have, in bytes. A table does not say which one it counts in.
const SECTOR_SIZES: [u64; 2] = [512, 4096];
/// Bytes of an MBR and of the sector that begins each logical partition.
const MBR_SIZE: usize = 512;
/// Where the four entries of an MBR begin.
const MBR_ENTRIES: usize = 446;
/// The last two bytes of an MBR.
const MBR_MAGIC: [u8; 2] = [0x55, 0xaa];
/// Types of partitions in an MBR that hold a chain of logical partitions.
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
/// Type of the one partition in the MBR of a disk with a GPT.
const PROTECTIVE: u8 = 0xee;
/// The number of the first logical partition.
const FIRST_LOGICAL: u32 = 5;
/// Most logical partitions that are read; Linux knows no disk with more.
const LOGICAL_MAX: usize = 256;
/// The first bytes of a GPT header.
const GPT_MAGIC: &[u8; 8] = b"EFI PART";
/// Bytes of a GPT header that have a meaning.
const GPT_HEADER: usize = 92;
/// Bytes of one GPT entry, at least.
const GPT_ENTRY: u64 = 128;
/// Most bytes of GPT entries that are read: 1,024 partitions; usual tables have 128.
const GPT_ENTRIES_MAX: u64 = 128 << 10;
/// Between the name of an image and the number of a partition in it, as in the names below `/dev/disk/by-id`.
const SUFFIX: &[u8] = b"-part";
/// Where the label of a ZFS device has the number that ends its configuration, and that number.
const LABEL_MAGIC: (u64, u64) = ((128 << 10) - 40, 0x0210_da7a_b10c_7a11);

/// One partition. Offset and length are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number, as fdisk(8) and the kernel count.
    pub number: u32,
    /// Byte offset of its beginning in the image.
    pub start: u64,
    /// Its length in bytes.
    pub len: u64,
}

impl Partition {
    fn end(&self) -> u64 {
        self.start + self.len
    }
}

/// The contents of a partition table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// `gpt` or `mbr`.
    pub kind: &'static str,
    /// The partitions that lie within the image, by number.
    pub partitions: Vec<Partition>,
    /// Numbers of partitions that end beyond the end of the image: they cannot be opened.
    pub beyond: Vec<u32>,
}

/// Why the partitions of an image are not known.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The table contradicts itself, or its checksums are wrong.
    #[error("its partition table is damaged: {0}")]
    Damaged(String),
    /// The system refused.
    #[error("its partition table cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// The name of partition `number` in the image `file`: `disk.img-part1`.
#[must_use]
pub fn partition_path(file: &Path, number: u32) -> PathBuf {
    let mut name = file.as_os_str().as_bytes().to_vec();
    name.extend_from_slice(SUFFIX);
    name.extend_from_slice(number.to_string().as_bytes());
    PathBuf::from(OsString::from_vec(name))
}

/// The image and the number of the partition that `path` names, if it names one: nothing exists at `path`, and without
/// `-partN` it is a file.
#[must_use]
pub fn partition_of(path: &Path) -> Option<(PathBuf, u32)> {
    let bytes = path.as_os_str().as_bytes();
    let digits = bytes.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let (rest, number) = bytes.split_at(bytes.len() - digits);
    let file = rest.strip_suffix(SUFFIX)?;
    let number = std::str::from_utf8(number).ok()?.parse().ok().filter(|number| *number > 0)?;
    let file = PathBuf::from(OsString::from_vec(file.to_vec()));
    let is_file = std::fs::metadata(&file).is_ok_and(|metadata| metadata.is_file());
    let is_free = std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    // A file may have any name: if one exists at `path`, it is meant.
    (is_file && is_free && partition_path(&file, number) == path).then_some((file, number))
}

/// The file or device that holds what `path` names: the image, where `path` names a partition in it.
#[must_use]
pub fn backing_file(path: &Path) -> PathBuf {
    partition_of(path).map_or_else(|| path.to_path_buf(), |(file, _)| file)
}

/// Reads the partition table of a disk; `None` when it has none.
///
/// # Errors
/// [`TableError`].
pub fn read_table(disk: &dyn Disk) -> Result<Option<Table>, TableError> {
    let Some(mbr) = read(disk, 0, MBR_SIZE as u64)? else { return Ok(None) };
    let mbr = Entry::all(&mbr);
    let mut damaged = None;
    for sector in SECTOR_SIZES {
        match gpt(disk, sector, 1) {
            Ok(Some(table)) => return table.judged(disk.size()).map(Some),
            Ok(None) => {}
            Err(TableError::Damaged(why)) => damaged = Some(why),
            Err(error) => return Err(error),
        }
    }
    let is_protective = |mbr: &[Entry; 4]| mbr.iter().any(|entry| entry.kind == PROTECTIVE);
    if let Some(mbr) = mbr.as_ref().filter(|mbr| !is_protective(mbr) && damaged.is_none()) {
        return mbr_table(disk, mbr).map(Some);
    }
    for sector in SECTOR_SIZES {
        let last = (disk.size() / sector).saturating_sub(1);
        match gpt(disk, sector, last) {
            Ok(Some(table)) => return table.judged(disk.size()).map(Some),
            Ok(None) => {}
            Err(TableError::Damaged(why)) => damaged = damaged.or(Some(why)),
            Err(error) => return Err(error),
        }
    }
    match damaged {
        Some(why) => Err(TableError::Damaged(why)),
        None if mbr.is_some() => Err(TableError::Damaged("neither copy of its GPT is there".into())),
        None => Ok(None),
    }
}

/// `len` bytes at `offset`; `None` beyond the end of the disk.
fn read(disk: &dyn Disk, offset: u64, len: u64) -> Result<Option<Vec<u8>>, TableError> {
    if offset.checked_add(len).is_none_or(|end| end > disk.size()) {
        return Ok(None);
    }
    let mut bytes = vec![0; len as usize];
    disk.read_at(&mut bytes, offset)?;
    Ok(Some(bytes))
}

/// A number of four bytes, the lowest first.
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// A number of eight bytes, the lowest first.
fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn damaged<T>(why: impl Into<String>) -> Result<T, TableError> {
    Err(TableError::Damaged(why.into()))
}

/// A table as it was read, before its partitions are compared with the disk and with each other.
struct Raw {
    kind: &'static str,
    partitions: Vec<Partition>,
    /// Ranges that hold the table itself: no partition may overlap them.
    tables: Vec<Range<u64>>,
}

impl Raw {
    /// Compares the partitions with each other and with the size of the disk.
    fn judged(mut self, size: u64) -> Result<Table, TableError> {
        self.partitions.sort_by_key(|partition| partition.start);
        for pair in self.partitions.windows(2) {
            if pair[0].end() > pair[1].start {
                return damaged(format!("partitions {} and {} overlap", pair[0].number, pair[1].number));
            }
        }
        for partition in &self.partitions {
            if self.tables.iter().any(|used| used.start < partition.end() && partition.start < used.end) {
                return damaged(format!("partition {} overlaps the table", partition.number));
            }
        }
        self.partitions.sort_by_key(|partition| partition.number);
        let (within, beyond): (Vec<_>, Vec<_>) =
            self.partitions.into_iter().partition(|partition| partition.end() <= size);
        let beyond = beyond.into_iter().map(|partition| partition.number).collect();
        Ok(Table { kind: self.kind, partitions: within, beyond })
    }

    /// Adds a partition of `count` sectors from sector `first`.
    fn add(&mut self, number: u32, first: u64, count: u64, sector: u64) -> Result<(), TableError> {
        let start = first.checked_mul(sector);
        let len = count.checked_mul(sector);
        let (Some(start), Some(len)) = (start, len) else {
            return damaged(format!("partition {number} has impossible bounds"));
        };
        if start.checked_add(len).is_none() {
            return damaged(format!("partition {number} has impossible bounds"));
        }
        self.partitions.push(Partition { number, start, len });
        Ok(())
    }
}

/// The GPT whose header is in sector `at`; `None` when there is none.
fn gpt(disk: &dyn Disk, sector: u64, at: u64) -> Result<Option<Raw>, TableError> {
    let Some(offset) = at.checked_mul(sector).filter(|_| at > 0) else { return Ok(None) };
    let Some(mut header) = read(disk, offset, sector)? else { return Ok(None) };
    if !header.starts_with(GPT_MAGIC) {
        return Ok(None);
    }
    let header_len = word(&header, 12) as usize;
    if !(GPT_HEADER..=header.len()).contains(&header_len) {
        return damaged(format!("its GPT header claims {header_len} bytes"));
    }
    let sum = word(&header, 16);
    header[16..20].fill(0);
    if crc32fast::hash(&header[..header_len]) != sum || long(&header, 24) != at {
        return damaged("the checksum of its GPT header is wrong");
    }
    let (first, count, size) =
        (long(&header, 72), u64::from(word(&header, 80)), u64::from(word(&header, 84)));
    let total = count * size;
    if size < GPT_ENTRY || !size.is_multiple_of(8) || total > GPT_ENTRIES_MAX {
        return damaged(format!("its GPT claims {count} entries of {size} bytes"));
    }
    let offset_entries = first.checked_mul(sector);
    let entries = match offset_entries {
        Some(offset) => read(disk, offset, total)?,
        None => None,
    };
    let Some(entries) = entries.filter(|entries| crc32fast::hash(entries) == word(&header, 88)) else {
        return damaged("the checksum of its GPT entries is wrong");
    };
    let offset_entries = offset_entries.unwrap_or_default();
    let tables = vec![0..sector, offset..offset + sector, offset_entries..offset_entries + total];
    let mut raw = Raw { kind: "gpt", partitions: Vec::new(), tables };
    for (number, entry) in (1..).zip(entries.chunks_exact(size as usize)) {
        if entry[..16].iter().all(|byte| *byte == 0) {
            continue;
        }
        let (first, last) = (long(entry, 32), long(entry, 40));
        let Some(count) = last.checked_sub(first).and_then(|count| count.checked_add(1)) else {
            return damaged(format!("partition {number} ends before it begins"));
        };
        raw.add(number, first, count, sector)?;
    }
    Ok(Some(raw))
}

/// An entry of an MBR. Places are in sectors.
#[derive(Clone, Copy)]
struct Entry {
    kind: u8,
    first: u64,
    count: u64,
}

impl Entry {
    /// The entries of a sector that is an MBR with at least one partition.
    fn all(sector: &[u8]) -> Option<[Entry; 4]> {
        if sector.get(MBR_SIZE - 2..MBR_SIZE)? != MBR_MAGIC {
            return None;
        }
        let raw = [0, 1, 2, 3].map(|at| &sector[MBR_ENTRIES + at * 16..MBR_ENTRIES + at * 16 + 16]);
        // The first byte says whether a system may be started from there. In a boot sector of a file system other bytes
        // stand in this place.
        if raw.iter().any(|entry| !matches!(entry[0], 0 | 0x80)) {
            return None;
        }
        let entries =
            raw.map(|raw| Entry { kind: raw[4], first: word(raw, 8).into(), count: word(raw, 12).into() });
        entries.iter().any(Entry::is_used).then_some(entries)
    }

    fn is_used(&self) -> bool {
        self.kind != 0 && self.count != 0
    }

    fn is_extended(&self) -> bool {
        EXTENDED.contains(&self.kind)
    }
}

/// The partitions of an MBR. It does not say how large its sectors are: 4096 bytes, where only that leads to a ZFS device.
fn mbr_table(disk: &dyn Disk, entries: &[Entry; 4]) -> Result<Table, TableError> {
    let [small, large] = SECTOR_SIZES.map(|sector| mbr_partitions(disk, entries, sector));
    let leads = |table: &Table| table.partitions.iter().any(|partition| has_label(disk, partition.start));
    match (small, large) {
        (Ok(small), _) if leads(&small) => Ok(small),
        (_, Ok(large)) if leads(&large) => Ok(large),
        (small, _) => small,
    }
}

/// Whether the first label of a ZFS device may be at `start`.
fn has_label(disk: &dyn Disk, start: u64) -> bool {
    let bytes = start.checked_add(LABEL_MAGIC.0).and_then(|at| read(disk, at, 8).ok().flatten());
    bytes.is_some_and(|bytes| [long(&bytes, 0), long(&bytes, 0).swap_bytes()].contains(&LABEL_MAGIC.1))
}

fn mbr_partitions(disk: &dyn Disk, entries: &[Entry; 4], sector: u64) -> Result<Table, TableError> {
    let mut raw =
        Raw { kind: "mbr", partitions: Vec::new(), tables: Vec::from([Range { start: 0, end: sector }]) };
    for (number, entry) in (1..).zip(entries) {
        if entry.is_used() && !entry.is_extended() {
            raw.add(number, entry.first, entry.count, sector)?;
        }
    }
    let mut next = FIRST_LOGICAL;
    for extended in entries.iter().filter(|entry| entry.is_used() && entry.is_extended()) {
        next = logical_partitions(disk, extended, sector, &mut raw, next)?;
    }
    raw.judged(disk.size())
}

/// Follows the chain of logical partitions in an extended one; `number` is the number of the first. Returns the next
/// number.
fn logical_partitions(
    disk: &dyn Disk,
    extended: &Entry,
    sector: u64,
    raw: &mut Raw,
    mut number: u32,
) -> Result<u32, TableError> {
    // Each link of the chain is relative to the extended partition; the partition beside it, to the link.
    let mut link = 0;
    loop {
        let at = (extended.first + link) * sector;
        if raw.tables.iter().any(|used| used.start == at) {
            return damaged("the chain of its extended partitions has a loop");
        }
        let Some(bytes) = read(disk, at, MBR_SIZE as u64)? else {
            return damaged("an extended partition lies beyond the end");
        };
        raw.tables.push(at..at + sector);
        let Some(entries) = Entry::all(&bytes) else { return Ok(number) };
        if raw.tables.len() > LOGICAL_MAX {
            return damaged(format!("it has more than {LOGICAL_MAX} logical partitions"));
        }
        let (own, onward) = (entries[0], entries[1]);
        if own.is_used() && !own.is_extended() {
            raw.add(number, extended.first + link + own.first, own.count, sector)?;
            number += 1;
        }
        if !onward.is_used() || !onward.is_extended() {
            return Ok(number);
        }
        if onward.first >= extended.count {
            return damaged("a logical partition lies outside its extended partition");
        }
        link = onward.first;
    }
}

#[cfg(test)]
mod tests;
