//! Disks of the machine: regular files and block devices.
//!
//! From:   a path that the user named.
//! To:     `vdev`. Reads and small writes go through the machine's page cache, large writes past it where the
//!         file system allows; durable after `flush`.

#![allow(unsafe_code, reason = "STYLE.md: device calls are one of the two places for it")]

use std::fs::{self, File};
use std::io::{self, IoSlice, Seek, SeekFrom};
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::rank::{Rank, RankedMutex};

use rustix::fs::{Advice, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use super::backing::{Backing, is_within};
use super::direct::{DirectFile, PAGE};
use super::disk::{ASKED, Disk, past_the_end, total_len};
use super::lock_holder::{self, Holder};
use super::partitions::{self, Partition};
use super::range_lock;

/// Most buffers in one vectored write (`IOV_MAX`).
const BUFS_MAX: usize = 1024;
/// Shorter writes are gathered in the system's cache.
const LARGE_WRITE: u64 = 256 << 10;

/// The access that the opener wants to a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read without a lock, even while another process writes: for finding labels. The data may change meanwhile.
    Peek,
    /// Read; no writer may hold the disk meanwhile.
    ReadOnly,
    /// Read and write.
    ReadWrite {
        /// Exclusive access. `false` takes no lock at all.
        exclusive: bool,
    },
}

/// Why a disk could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process (or another pool of this one) holds the disk.
    #[error("'{}' is in use{}", path.display(), by(holder.as_ref()))]
    InUse {
        /// The disk.
        path: PathBuf,
        /// The holder, if the system shows it.
        holder: Option<Holder>,
    },
    /// The kernel holds the device: mounted, or part of another device or pool.
    #[error("'{}' is in use by the system (mounted, or part of another device)", path.display())]
    HeldByKernel {
        /// The device.
        path: PathBuf,
    },
    /// Neither a regular file nor a block device.
    #[error("'{}' is neither a file nor a block device", path.display())]
    NotADisk {
        /// The path that was named.
        path: PathBuf,
    },
    /// The path names a partition in a file, and the file has no such partition.
    #[error("cannot open '{}': {why}", path.display())]
    NoPartition {
        /// The partition, as it was named.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The system refused.
    #[error("cannot open '{}': {source}", path.display())]
    Io {
        /// The disk.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

/// The lock that goes with `access` to a whole file or device.
fn lock_of(access: Access) -> Option<FlockOperation> {
    match access {
        Access::ReadOnly => Some(FlockOperation::NonBlockingLockShared),
        Access::ReadWrite { exclusive: true } => Some(FlockOperation::NonBlockingLockExclusive),
        Access::Peek | Access::ReadWrite { exclusive: false } => None,
    }
}

fn by(holder: Option<&Holder>) -> String {
    holder.map_or_else(String::new, |holder| format!(" by {holder}"))
}

/// A regular file, a block device, or one partition in a file, locked as [`Access`] says until it is dropped.
#[derive(Debug)]
pub struct FileDisk {
    file: Arc<File>,
    /// Direct writes for large buffers; `None` if the file system does not support them, or for read-only access.
    direct: Option<DirectFile>,
    path: PathBuf,
    /// Where the disk begins in the file: above zero for a partition.
    start: u64,
    size: u64,
    is_locked: bool,
    sector_size: u32,
    physical_sector_size: u32,
    is_block_device: bool,
    /// A flush failed: the kernel may have dropped dirty pages and would report success next time.
    flush_failed: RankedMutex<bool>,
}

impl Drop for FileDisk {
    fn drop(&mut self) {
        // The unlock is explicit: a child process has a copy of the descriptor until it executes another program, and would
        // keep the lock that long.
        if !self.is_locked {
            return;
        }
        let _ = range_lock::unlock(&self.file, self.start, self.size);
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

impl FileDisk {
    /// Opens the file or device at `path`, or a partition in a file (`disk.img-part1`). Never creates or changes it.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(path: &Path, access: Access) -> Result<FileDisk, OpenError> {
        let Some((file, number)) = partitions::partition_of(path) else {
            return FileDisk::open_whole(path, access, lock_of(access));
        };
        // Several partitions of one file may be in use at a time, but not the whole file beside them.
        let shared = lock_of(access).map(|_| FlockOperation::NonBlockingLockShared);
        let mut disk = FileDisk::open_whole(&file, access, shared)?;
        let missing = |why: String| OpenError::NoPartition { path: path.to_owned(), why };
        let partition = match partitions::read_table(&disk).map_err(|error| missing(error.to_string()))? {
            Some(table) if table.beyond.contains(&number) => {
                return Err(missing(format!("partition {number} ends beyond the end of the file")));
            }
            Some(table) => table.partitions.into_iter().find(|partition| partition.number == number),
            None => return Err(missing("the file has no partition table".into())),
        };
        let partition = partition.ok_or_else(|| missing(format!("the file has no partition {number}")))?;
        disk.narrow(path, &partition);
        disk.lock_range(access)?;
        Ok(disk)
    }

    /// The same disk with another path in labels and messages: that of a file that gets its name later.
    #[must_use]
    pub fn called(mut self, path: &Path) -> FileDisk {
        path.clone_into(&mut self.path);
        self
    }

    /// A partition of this disk, to be looked at without a lock.
    ///
    /// # Errors
    /// The system has no more descriptors.
    pub fn peek_at(&self, partition: &Partition) -> io::Result<FileDisk> {
        let mut disk = FileDisk {
            file: Arc::new(self.file.try_clone()?),
            direct: None,
            // The copy of the descriptor shares the locks of the first one, which keeps them.
            is_locked: false,
            path: self.path.clone(),
            flush_failed: RankedMutex::new(Rank::DeviceFlush, false),
            ..*self
        };
        disk.narrow(&partitions::partition_path(&self.path, partition.number), partition);
        Ok(disk)
    }

    /// From now on the disk is one partition of the file or device.
    fn narrow(&mut self, path: &Path, partition: &Partition) {
        let end = partition.start.checked_add(partition.len);
        assert!(self.start == 0 && end.is_some_and(|end| end <= self.size), "a partition lies in its disk");
        (self.start, self.size) = (partition.start, partition.len);
        path.clone_into(&mut self.path);
    }

    /// Locks the partition against all who use the same bytes.
    fn lock_range(&self, access: Access) -> Result<(), OpenError> {
        let exclusive = match access {
            Access::Peek | Access::ReadWrite { exclusive: false } => return Ok(()),
            Access::ReadOnly => false,
            Access::ReadWrite { exclusive: true } => true,
        };
        match range_lock::lock(&self.file, self.start, self.size, exclusive) {
            Ok(true) => Ok(()),
            Ok(false) => {
                // The kernel does not say who locked a range. If only one other process has the file, it is that one.
                let others = self.file.metadata().map(|file| lock_holder::all_of(&file)).unwrap_or_default();
                let mut others = others.into_iter().filter(|holder| holder.pid != std::process::id());
                let holder = others.next().filter(|_| others.next().is_none());
                Err(OpenError::InUse { path: self.path.clone(), holder })
            }
            Err(source) => Err(OpenError::Io { path: self.path.clone(), source }),
        }
    }

    /// Opens the whole file or device at `path`.
    fn open_whole(path: &Path, access: Access, lock: Option<FlockOperation>) -> Result<FileDisk, OpenError> {
        let failed = |source: io::Error| OpenError::Io { path: path.to_owned(), source };
        let kind = fs::metadata(path).map_err(failed)?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(OpenError::NotADisk { path: path.to_owned() });
        }
        // Not blocking: should the path have become a fifo meanwhile, the open must not hang.
        let mut flags = OFlags::CLOEXEC | OFlags::NONBLOCK;
        flags |= match access {
            Access::Peek | Access::ReadOnly => OFlags::RDONLY,
            Access::ReadWrite { .. } => OFlags::RDWR,
        };
        if kind.is_block_device() && access == (Access::ReadWrite { exclusive: true }) {
            flags |= OFlags::EXCL;
        }
        let mut file = match retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty())) {
            Ok(fd) => File::from(fd),
            Err(Errno::BUSY) => return Err(OpenError::HeldByKernel { path: path.to_owned() }),
            Err(errno) => return Err(failed(errno.into())),
        };
        let metadata = file.metadata().map_err(failed)?;
        if metadata.file_type() != kind {
            return Err(OpenError::NotADisk { path: path.to_owned() });
        }
        if let Some(lock) = lock {
            match retry_on_intr(|| rustix::fs::flock(&file, lock)) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => {
                    let holder = lock_holder::of_file(&metadata);
                    return Err(OpenError::InUse { path: path.to_owned(), holder });
                }
                Err(errno) => return Err(failed(errno.into())),
            }
        }
        let is_block_device = kind.is_block_device();
        let (size, sector_size, physical_sector_size) = if is_block_device {
            (
                file.seek(SeekFrom::End(0)).map_err(failed)?,
                rustix::fs::ioctl_blksszget(&file).map_err(|errno| failed(errno.into()))?,
                rustix::fs::ioctl_blkpbszget(&file).map_err(|errno| failed(errno.into()))?,
            )
        } else {
            (metadata.len(), 512, 512)
        };
        let direct = match access {
            Access::Peek | Access::ReadOnly => None,
            Access::ReadWrite { .. } => DirectFile::open(path, &metadata),
        };
        Ok(FileDisk {
            file: Arc::new(file),
            direct,
            path: path.to_owned(),
            start: 0,
            size,
            is_locked: lock.is_some(),
            sector_size,
            physical_sector_size: physical_sector_size.max(sector_size),
            is_block_device,
            flush_failed: RankedMutex::new(Rank::DeviceFlush, false),
        })
    }
}

/// Offsets of these functions are those in the file.
impl FileDisk {
    /// Writes whole pages past the page cache, and the rest through it.
    fn write_large(
        &self,
        direct: &DirectFile,
        bufs: &[IoSlice<'_>],
        offset: u64,
        len: u64,
    ) -> io::Result<()> {
        let end = offset + len;
        let (first, last) = (offset.next_multiple_of(PAGE), end - end % PAGE);
        let part = |from: u64, to: u64| cut(bufs, from - offset, to - from);
        self.write_cached(&part(offset, first), offset)?;
        let done = first + direct.write(&part(first, last), first)?;
        self.write_cached(&part(done, end), done)
    }

    /// Writes through the page cache.
    fn write_cached(&self, bufs: &[IoSlice<'_>], mut offset: u64) -> io::Result<()> {
        if bufs.is_empty() {
            return Ok(());
        }
        let _apart = self.direct.as_ref().map(DirectFile::apart);
        if let [buf] = bufs {
            return self.file.write_all_at(buf, offset);
        }
        for batch in bufs.chunks(BUFS_MAX) {
            let mut rest = batch.to_vec();
            let mut rest = &mut rest[..];
            // Empty buffers at the front would make a finished batch look like a device that takes nothing.
            IoSlice::advance_slices(&mut rest, 0);
            while !rest.is_empty() {
                match retry_on_intr(|| rustix::io::pwritev(&self.file, rest, offset))? {
                    0 => return Err(io::ErrorKind::WriteZero.into()),
                    written => {
                        offset += written as u64;
                        IoSlice::advance_slices(&mut rest, written);
                    }
                }
            }
        }
        Ok(())
    }

    /// Refuses a file that was cut short since it was opened. Writes past its new end would lengthen it again and hide
    /// that the bytes between are gone.
    fn check_length(&self) -> io::Result<()> {
        if self.is_block_device {
            return Ok(());
        }
        let (size, end) = (self.file.metadata()?.len(), self.start + self.size);
        if size >= end {
            return Ok(());
        }
        let said = format!("the file was cut from {end} to {size} bytes");
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, said))
    }

    /// Asks the system to begin writing the range to the device, so that a later flush finds little to do.
    fn start_writeback(&self, offset: u64, len: u64) {
        let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else { return };
        // Only a hint: errors of the writes themselves show at the flush.
        // SAFETY: the descriptor is open as long as `self.file` lives, and the call touches no memory of this process.
        let _ =
            unsafe { libc::sync_file_range(self.file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE) };
    }
}

impl Disk for FileDisk {
    fn size(&self) -> u64 {
        self.size
    }

    fn sector_size(&self) -> u32 {
        self.sector_size
    }

    fn physical_sector_size(&self) -> u32 {
        self.physical_sector_size
    }

    fn is_block_device(&self) -> bool {
        self.is_block_device
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn deleted(&self) -> Option<PathBuf> {
        let is_deleted = self.file.metadata().is_ok_and(|metadata| metadata.nlink() == 0);
        let place = || format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd());
        (is_deleted && !self.is_block_device).then(|| place().into())
    }

    fn moved(&self) -> Option<PathBuf> {
        let identity = |found: fs::Metadata| match self.is_block_device {
            true => (0, found.rdev()),
            false => (found.dev(), found.ino()),
        };
        let own = self.file.metadata().map(identity).ok()?;
        let there = fs::metadata(partitions::backing_file(&self.path)).map(identity);
        let is_there = match there {
            Ok(there) => there == own,
            // The path leads nowhere. Where it cannot be followed, nothing is known.
            Err(error) => !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
        };
        let now = || fs::read_link(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        (!is_there).then(|| now().unwrap_or_default())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        Backing::new(self.file.clone(), self.start, self.size).read_at(buf, offset)
    }

    fn write_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let len = total_len(bufs);
        if !is_within(offset, len, self.size) {
            return Err(past_the_end(offset, len, self.size));
        }
        let offset = self.start + offset;
        match &self.direct {
            _ if len < LARGE_WRITE => self.write_cached(bufs, offset),
            Some(direct) if !direct.is_refused() => self.write_large(direct, bufs, offset, len),
            _ => {
                self.write_cached(bufs, offset)?;
                self.start_writeback(offset, len);
                Ok(())
            }
        }
    }

    fn flush(&self) -> io::Result<()> {
        self.check_length()?;
        // One at a time: the system reports a failure once, and every flush after it must know.
        let mut failed = self.flush_failed.lock();
        if *failed {
            return Err(io::Error::other("an earlier flush failed; writes may be lost"));
        }
        retry_on_intr(|| rustix::fs::fdatasync(&self.file)).map_err(|errno| {
            *failed = true;
            errno.into()
        })
    }

    fn written_again(&self) {
        *self.flush_failed.lock() = false;
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        if !is_within(offset, len, self.size) {
            return Err(past_the_end(offset, len, self.size));
        }
        if len == 0 {
            return Ok(());
        }
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match retry_on_intr(|| rustix::fs::fallocate(&self.file, how, self.start + offset, len)) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn hint_willneed(&self, offset: u64, len: u64) {
        if let Some(len) = NonZeroU64::new(len).filter(|_| is_within(offset, len, self.size)) {
            // Only a hint: a refusal changes nothing.
            let _ = rustix::fs::fadvise(&self.file, self.start + offset, Some(len), Advice::WillNeed);
        }
    }

    fn ask(&self) -> io::Result<()> {
        // A page that waits to be written stays cached, and says nothing of the device. The system reports errors only.
        let _ = rustix::fs::fadvise(&self.file, self.start, NonZeroU64::new(ASKED as u64), Advice::DontNeed);
        self.read_at(&mut [0; ASKED], 0)
    }

    fn drop_cache(&self) {
        // Dirty pages stay cached, so write them out first. A failure shows at the next flush.
        if self.flush().is_ok() {
            let _ = rustix::fs::fadvise(&self.file, self.start, NonZeroU64::new(self.size), Advice::DontNeed);
        }
    }

    fn backing(&self) -> Option<Backing> {
        Some(Backing::new(self.file.clone(), self.start, self.size))
    }
}

/// `len` bytes of `bufs`, after the first `skip`.
fn cut<'a>(bufs: &'a [IoSlice<'_>], mut skip: u64, mut len: u64) -> Vec<IoSlice<'a>> {
    let mut parts = Vec::new();
    for buf in bufs {
        let start = skip.min(buf.len() as u64);
        let end = (start + len).min(buf.len() as u64);
        skip -= start;
        len -= end - start;
        if start < end {
            parts.push(IoSlice::new(&buf[start as usize..end as usize]));
        }
    }
    parts
}

#[cfg(test)]
mod tests;
