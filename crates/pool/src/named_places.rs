//! The faults of a file or device that the user named, where a pool was expected.
//!
//! From:   the path; its partition table and the remains of its labels.
//! To:     messages. Nothing here is needed to find or to open a pool.
//! Source: docs/format/01-labels-uberblock.md §2.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use format::label::{COPIES, RING};
use format::uberblock::MAGIC;
use storage::host::{Access, Disk, FileDisk, backing_file, partition_of, read_table};

use crate::labels;

/// Uberblocks begin at multiples of this many bytes.
const SLOT_MIN: usize = 1 << 10;

/// Explains, from the partition table or the labels of the file at `path`, why no pool was found there. `None` if the file has
/// neither.
#[must_use]
pub fn why_no_pool(path: &Path) -> Option<String> {
    let disk = match FileDisk::open(path, Access::Peek) {
        Ok(disk) => disk,
        Err(error) => return partition_of(path).map(|_| error.to_string()),
    };
    let labels = || (damaged_in(&disk) > 0).then(|| "its labels are damaged".to_owned());
    if partition_of(path).is_some() || disk.is_block_device() {
        return labels();
    }
    match read_table(&disk) {
        Ok(None) => labels(),
        Err(error) => Some(error.to_string()),
        Ok(Some(table)) => Some(match (table.beyond.as_slice(), table.partitions.len()) {
            ([], 1) => "its one partition holds none".to_owned(),
            ([], count) => format!("none of its {count} partitions holds one"),
            ([number, ..], _) => format!("its partition {number} ends beyond the end of the file"),
        }),
    }
}

/// How many of the four labels of the file or device at `path` are damaged: 0 if nothing there looks like a label, or if it has
/// partitions.
#[must_use]
pub fn damaged_labels(path: &Path) -> usize {
    let disk = FileDisk::open(path, Access::Peek).ok();
    disk.filter(|disk| matches!(read_table(disk), Ok(None))).map_or(0, |disk| damaged_in(&disk))
}

fn damaged_in(disk: &dyn Disk) -> usize {
    let good = labels::read(disk).good;
    if good > 0 || labels::any(disk, has_uberblock) { COPIES - good } else { 0 }
}

/// Whether there is the magic number of an uberblock anywhere in the ring of a label.
fn has_uberblock(label: &[u8]) -> bool {
    let magic = |slot: &[u8]| {
        slot.first_chunk().is_some_and(|raw| {
            let word = u64::from_le_bytes(*raw);
            word == MAGIC || word.swap_bytes() == MAGIC
        })
    };
    RING.of(label).chunks(SLOT_MIN).any(magic)
}

/// Whether two paths lead to the same file or device. A partition in a file is in the same file as all of it.
pub(crate) fn is_same(a: &Path, b: &Path) -> bool {
    let metadata = |path: &Path| std::fs::metadata(backing_file(path)).ok();
    let (Some(first), Some(second)) = (metadata(a), metadata(b)) else { return false };
    match first.file_type().is_block_device() && second.file_type().is_block_device() {
        true => first.rdev() == second.rdev(),
        false => (first.dev(), first.ino()) == (second.dev(), second.ino()),
    }
}
