//! The file or device behind a disk, for reads that do not pass through the disk.
//!
//! From:   `disk`, which says whether a disk is a plain file or device.
//! To:     `file_disk`, which reads from it; `ring`, which reads from several at the same time.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The file or device behind a disk.
#[derive(Clone, Debug)]
pub struct Backing {
    file: Arc<File>,
    /// Where the disk begins in the file.
    start: u64,
    size: u64,
}

impl Backing {
    /// A disk of `size` bytes that begins at byte `start` of the file.
    pub(super) fn new(file: Arc<File>, start: u64, size: u64) -> Backing {
        Backing { file, start, size }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Where in the file a range of the disk begins; `None` if it reaches past the end of the disk.
    pub(super) fn place(&self, offset: u64, len: u64) -> Option<u64> {
        is_within(offset, len, self.size).then(|| self.start + offset)
    }

    /// Fills `buf` from `offset` of the disk.
    ///
    /// # Errors
    /// As [`super::Disk::read_at`].
    pub(super) fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let place = self.place(offset, buf.len() as u64).ok_or_else(device_ends)?;
        self.file.read_exact_at(buf, place).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => device_ends(),
            _ => error,
        })
    }
}

fn device_ends() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the device ends before that")
}

/// Whether `[offset, offset + len)` lies within `size` bytes.
pub(super) fn is_within(offset: u64, len: u64, size: u64) -> bool {
    offset.checked_add(len).is_some_and(|end| end <= size)
}
