//! A disk: a fixed number of bytes that can be read, written and made durable.

use std::fmt::Debug;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};

use super::Backing;

/// The number of bytes that [`Disk::ask`] reads.
pub(super) const ASKED: usize = 4096;

/// A leaf of the vdev tree as the machine offers it. Offsets and lengths are in bytes.
///
/// All methods may be called from several threads; overlapping writes at the same time have no order.
///
/// No method has a default, because a disk in front of another one could then forget to pass a call on, and hide the
/// answer of the other disk. [`Before`] passes every call on.
pub trait Disk: Send + Sync + Debug {
    /// Bytes of the disk, fixed while it is open.
    fn size(&self) -> u64;

    /// Smallest unit that the disk addresses, in bytes; 512 for files.
    fn sector_size(&self) -> u32;

    /// Smallest unit that the disk writes without reading first, in bytes.
    fn physical_sector_size(&self) -> u32;

    /// A block device, not a file.
    fn is_block_device(&self) -> bool;

    /// Where it was opened; for messages and labels.
    fn path(&self) -> &Path;

    /// If the disk is a file that was deleted: where the system still shows its contents, until this process ends.
    fn deleted(&self) -> Option<PathBuf>;

    /// If [`Disk::path`] does not lead to the disk any more (it was moved, or something else was put in its place): where
    /// the disk is now, as far as the system knows.
    fn moved(&self) -> Option<PathBuf>;

    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] for a range past the end, else what the device says. On an error
    /// the contents of `buf` are unspecified.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes `bufs`, one after another, from `offset`. Durable only after [`Disk::flush`].
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] for a range past the end (a disk never grows), else what the device
    /// says. On an error any part of the range may have been written.
    fn write_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()>;

    /// Returns when every write that was finished before the call is durable.
    ///
    /// # Errors
    /// The error of the device. After one failure writes may be lost, so every later flush fails until
    /// [`Disk::written_again`].
    fn flush(&self) -> io::Result<()>;

    /// Call it after a failed flush, when all writes since the last good flush were repeated. The next flush then reports
    /// the device's result again.
    fn written_again(&self);

    /// Tells the device that the range's contents are no longer needed; it may read as zeros afterwards.
    /// Best effort: a device that cannot do this does nothing.
    ///
    /// # Errors
    /// A range past the end, or a failing device.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()>;

    /// The range will soon be read. Best effort.
    fn hint_willneed(&self, offset: u64, len: u64);

    /// Reads a little from the device to learn whether it answers. If possible, the read bypasses the cache of the machine.
    ///
    /// # Errors
    /// As [`Disk::read_at`].
    fn ask(&self) -> io::Result<()>;

    /// Makes the next reads come from the device and not from the machine's cache. Best effort.
    fn drop_cache(&self);

    /// The file or device that [`Disk::read_at`] reads and nothing else, for several reads at the same time. `None` for a disk that does
    /// more than that.
    fn backing(&self) -> Option<Backing>;
}

/// A disk that wraps another one and passes on all methods that it does not override.
pub trait Before: Send + Sync + Debug {
    /// The other one.
    fn disk(&self) -> &dyn Disk;

    /// As [`Disk::read_at`].
    ///
    /// # Errors
    /// As [`Disk::read_at`].
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()>;

    /// As [`Disk::write_at`].
    ///
    /// # Errors
    /// As [`Disk::write_at`].
    fn write_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()>;

    /// As [`Disk::flush`].
    ///
    /// # Errors
    /// As [`Disk::flush`].
    fn flush(&self) -> io::Result<()>;

    /// As [`Disk::discard`].
    ///
    /// # Errors
    /// As [`Disk::discard`].
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.disk().discard(offset, len)
    }

    /// As [`Disk::ask`].
    ///
    /// # Errors
    /// As [`Disk::ask`].
    fn ask(&self) -> io::Result<()> {
        self.disk().ask()
    }
}

impl<T: Before> Disk for T {
    fn size(&self) -> u64 {
        self.disk().size()
    }

    fn sector_size(&self) -> u32 {
        self.disk().sector_size()
    }

    fn physical_sector_size(&self) -> u32 {
        self.disk().physical_sector_size()
    }

    fn is_block_device(&self) -> bool {
        self.disk().is_block_device()
    }

    fn path(&self) -> &Path {
        self.disk().path()
    }

    fn deleted(&self) -> Option<PathBuf> {
        self.disk().deleted()
    }

    fn moved(&self) -> Option<PathBuf> {
        self.disk().moved()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        Before::read_at(self, buf, offset)
    }

    fn write_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        Before::write_at(self, bufs, offset)
    }

    fn flush(&self) -> io::Result<()> {
        Before::flush(self)
    }

    fn written_again(&self) {
        self.disk().written_again();
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        Before::discard(self, offset, len)
    }

    fn ask(&self) -> io::Result<()> {
        Before::ask(self)
    }

    fn hint_willneed(&self, offset: u64, len: u64) {
        self.disk().hint_willneed(offset, len);
    }

    fn drop_cache(&self) {
        self.disk().drop_cache();
    }

    fn backing(&self) -> Option<Backing> {
        // Reads must pass through this disk.
        None
    }
}

/// Total bytes of `bufs`.
pub(super) fn total_len(bufs: &[IoSlice<'_>]) -> u64 {
    bufs.iter().map(|buf| buf.len() as u64).sum()
}

/// The error of a write or discard past the end.
pub(super) fn past_the_end(offset: u64, len: u64, size: u64) -> io::Error {
    let text = format!("{len} bytes at offset {offset} reach past the end of the disk ({size} bytes)");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
