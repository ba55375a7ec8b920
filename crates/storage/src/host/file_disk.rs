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
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::fs::{Advice, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use super::direct::{DirectFile, PAGE};
use super::disk::{Disk, is_within, past_the_end, total_len};
use super::lock_holder::{self, Holder};

/// Most buffers in one vectored write (`IOV_MAX`).
const BUFS_MAX: usize = 1024;
/// Shorter writes are left to gather in the system's cache.
const LARGE_WRITE: u64 = 256 << 10;

/// What the opener will do with a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read without a lock, also while another process writes: for finding labels. What is read may change.
    Peek,
    /// Read; no writer may hold the disk meanwhile.
    ReadOnly,
    /// Read and write.
    ReadWrite {
        /// Nobody else may hold the disk meanwhile. `false` takes no lock at all.
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
        /// Who holds it, if the system tells.
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
        /// What was named.
        path: PathBuf,
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

fn by(holder: Option<&Holder>) -> String {
    holder.map_or_else(String::new, |holder| format!(" by {holder}"))
}

/// A regular file or a block device, locked as [`Access`] says until it is dropped.
#[derive(Debug)]
pub struct FileDisk {
    file: File,
    /// For large writes; `None` where there is no such thing, or nothing is written.
    direct: Option<DirectFile>,
    path: PathBuf,
    size: u64,
    sector_size: u32,
    physical_sector_size: u32,
    is_block_device: bool,
    /// A flush failed: the kernel may have dropped dirty pages and would report success next time.
    flush_failed: Mutex<bool>,
}

impl Drop for FileDisk {
    fn drop(&mut self) {
        // Said aloud: a process that this one is just starting has a copy of the descriptor until it becomes another
        // program, and the lock would stay as long.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

impl FileDisk {
    /// Opens the file or device at `path`. Never creates or changes it.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(path: &Path, access: Access) -> Result<FileDisk, OpenError> {
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
        let lock = match access {
            Access::ReadOnly => Some(FlockOperation::NonBlockingLockShared),
            Access::ReadWrite { exclusive: true } => Some(FlockOperation::NonBlockingLockExclusive),
            Access::Peek | Access::ReadWrite { exclusive: false } => None,
        };
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
            file,
            direct,
            path: path.to_owned(),
            size,
            sector_size,
            physical_sector_size: physical_sector_size.max(sector_size),
            is_block_device,
            flush_failed: Mutex::new(false),
        })
    }
}

impl FileDisk {
    /// Writes past the page cache what can be, and the rest through it.
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

    /// Asks the system to begin writing the range to the device, so that a later flush finds little to do.
    fn start_writeback(&self, offset: u64, len: u64) {
        let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else { return };
        // Only a hint: errors of the writes themselves show at the flush.
        // SAFETY: the descriptor is open as long as `self.file` lives, and the call touches no memory of ours.
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

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buf, offset).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), "the device ends before that"),
            _ => error,
        })
    }

    fn write_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let len = total_len(bufs);
        if !is_within(offset, len, self.size) {
            return Err(past_the_end(offset, len, self.size));
        }
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
        // One at a time: the system tells of a failure once, and every flush after it must know.
        let mut failed = self.flush_failed.lock().expect("no code panics while flushing");
        if *failed {
            return Err(io::Error::other("an earlier flush failed; writes may be lost"));
        }
        retry_on_intr(|| rustix::fs::fdatasync(&self.file)).map_err(|errno| {
            *failed = true;
            errno.into()
        })
    }

    fn written_again(&self) {
        *self.flush_failed.lock().expect("no code panics while flushing") = false;
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        if !is_within(offset, len, self.size) {
            return Err(past_the_end(offset, len, self.size));
        }
        if len == 0 {
            return Ok(());
        }
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match retry_on_intr(|| rustix::fs::fallocate(&self.file, how, offset, len)) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn hint_willneed(&self, offset: u64, len: u64) {
        if let Some(len) = NonZeroU64::new(len) {
            // Only a hint: a refusal changes nothing.
            let _ = rustix::fs::fadvise(&self.file, offset, Some(len), Advice::WillNeed);
        }
    }

    fn drop_cache(&self) {
        // Dirty pages stay cached, so write them out first. A failure shows at the next flush.
        if self.flush().is_ok() {
            let _ = rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed);
        }
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
mod tests {
    use super::*;

    const WRITER: Access = Access::ReadWrite { exclusive: true };

    fn file(size: u64) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(size).unwrap();
        file
    }

    #[test]
    fn what_is_written_in_many_pieces_is_read_back_as_one() {
        let file = file(1 << 20);
        let disk = FileDisk::open(file.path(), WRITER).unwrap();
        let data: Vec<u8> = (0..3000u32).flat_map(|i| [i as u8, (i >> 8) as u8, 7]).collect();
        let mut bufs = vec![IoSlice::new(&[])];
        bufs.extend(data.chunks(3).map(IoSlice::new));
        bufs.push(IoSlice::new(&[]));
        assert!(bufs.len() > 2 * BUFS_MAX);
        disk.write_at(&bufs, 4096).unwrap();
        disk.write_at(&[], 0).unwrap();
        disk.write_at(&[IoSlice::new(&[]), IoSlice::new(&[])], 0).unwrap();
        disk.flush().unwrap();
        disk.drop_cache();
        disk.hint_willneed(0, 8192);
        let mut back = vec![0; data.len()];
        disk.read_at(&mut back, 4096).unwrap();
        assert_eq!(back, data);
        assert_eq!((disk.size(), disk.sector_size(), disk.is_block_device()), (1 << 20, 512, false));
    }

    #[test]
    fn a_range_past_the_end_is_an_error_and_the_file_does_not_grow() {
        let file = file(4096);
        let disk = FileDisk::open(file.path(), WRITER).unwrap();
        let error = disk.write_at(&[IoSlice::new(&[1; 512])], 4096 - 511).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(disk.write_at(&[IoSlice::new(&[1; 512])], u64::MAX - 5).is_err());
        assert!(disk.discard(0, 4097).is_err());
        let error = disk.read_at(&mut [0; 512], 4096 - 511).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(file.as_file().metadata().unwrap().len(), 4096);
    }

    #[test]
    fn discarded_ranges_keep_the_size_and_their_neighbours() {
        let file = file(1 << 20);
        let disk = FileDisk::open(file.path(), WRITER).unwrap();
        disk.write_at(&[IoSlice::new(&vec![9; 1 << 20])], 0).unwrap();
        disk.discard(64 << 10, 64 << 10).unwrap();
        disk.discard(0, 0).unwrap();
        let mut all = vec![0; 1 << 20];
        disk.read_at(&mut all, 0).unwrap();
        assert!(all[..64 << 10].iter().chain(&all[128 << 10..]).all(|byte| *byte == 9));
    }

    #[test]
    fn a_disk_that_was_let_go_is_free_although_a_child_still_has_the_descriptor() {
        let file = file(4096);
        let held = FileDisk::open(file.path(), WRITER).unwrap();
        let of_a_child = held.file.try_clone().unwrap();
        drop(held);
        FileDisk::open(file.path(), WRITER).unwrap();
        drop(of_a_child);
    }

    #[test]
    fn a_second_opener_is_told_who_holds_the_disk() {
        let file = file(4096);
        let held = FileDisk::open(file.path(), WRITER).unwrap();
        for access in [WRITER, Access::ReadOnly] {
            match FileDisk::open(file.path(), access) {
                Err(OpenError::InUse { holder, .. }) => {
                    // Some sandboxes hide the lock table; a wrong name would be worse than none.
                    assert!(holder.is_none_or(|holder| holder.pid == std::process::id()));
                }
                other => panic!("{other:?}"),
            }
        }
        FileDisk::open(file.path(), Access::Peek).unwrap();
        drop(held);
        let readers = [Access::ReadOnly; 2].map(|access| FileDisk::open(file.path(), access).unwrap());
        assert!(matches!(FileDisk::open(file.path(), WRITER), Err(OpenError::InUse { .. })));
        assert!(readers[0].write_at(&[IoSlice::new(&[1])], 0).is_err());
        drop(readers);
        FileDisk::open(file.path(), WRITER).unwrap();
    }

    #[test]
    fn directories_devices_of_characters_and_missing_files_are_refused() {
        for path in ["/", "/dev/null"] {
            let error = FileDisk::open(Path::new(path), Access::ReadOnly).unwrap_err();
            assert!(matches!(error, OpenError::NotADisk { .. }), "{path}");
        }
        let error = FileDisk::open(Path::new("/no/such/disk"), Access::ReadOnly).unwrap_err();
        assert!(matches!(error, OpenError::Io { .. }));
        assert!(error.to_string().starts_with("cannot open '/no/such/disk': "));
    }

    #[test]
    fn large_writes_past_the_cache_and_small_ones_through_it_agree() {
        let file = file(8 << 20);
        let disk = FileDisk::open(file.path(), WRITER).unwrap();
        let mut expected = vec![0; 8 << 20];
        let mut all = expected.clone();
        let mut x = 7u64;
        for round in 0..60usize {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Borders anywhere, on sectors and on pages; large and small; small ones leave dirty pages behind.
            let unit = [1, 512, 4096][round % 3];
            let len = if round % 2 == 0 { (x >> 40) as usize % (5 << 20) } else { (x >> 40) as usize % 9000 };
            let len = len / unit * unit;
            let at = (x >> 20) as usize % (expected.len() - len) / unit * unit;
            expected[at..at + len]
                .iter_mut()
                .enumerate()
                .for_each(|(i, byte)| *byte = (i * 31 + round) as u8);
            let bufs: Vec<_> = expected[at..at + len].chunks(100_000).map(IoSlice::new).collect();
            disk.write_at(&bufs, at as u64).unwrap();
            disk.read_at(&mut all, 0).unwrap();
            assert!(all == expected, "round {round}");
        }
        disk.flush().unwrap();
        disk.drop_cache();
        disk.read_at(&mut all, 0).unwrap();
        assert!(all == expected);
    }

    #[test]
    fn writers_and_readers_of_one_disk_at_the_same_time_see_what_was_written() {
        let file = file(16 << 20);
        let disk = FileDisk::open(file.path(), WRITER).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let disk = &disk;
                scope.spawn(move || {
                    for round in 0..30u8 {
                        // Neighbours of odd length, so that pages and read-ahead overlap.
                        let len = if (u64::from(round) + thread).is_multiple_of(2) { 700_000 } else { 5000 };
                        let at = thread * 700_000;
                        let data = vec![round ^ thread as u8; len];
                        disk.write_at(&[IoSlice::new(&data)], at).unwrap();
                        let mut back = vec![0; len];
                        disk.read_at(&mut back, at).unwrap();
                        assert!(back == data, "thread {thread} round {round}");
                    }
                });
            }
        });
    }

    #[test]
    fn where_direct_writes_are_refused_the_page_cache_serves() {
        let file = file(4 << 20);
        let mut disk = FileDisk::open(file.path(), WRITER).unwrap();
        disk.direct = None;
        disk.write_at(&[IoSlice::new(&vec![5; 3 << 20])], 512).unwrap();
        let mut back = vec![0; 3 << 20];
        disk.read_at(&mut back, 512).unwrap();
        assert!(back.iter().all(|&byte| byte == 5));
    }

    #[test]
    fn a_part_of_several_buffers_is_cut_on_any_border() {
        let bufs = [&b"abc"[..], b"", b"defg", b"h"].map(IoSlice::new);
        let text = |skip, len| cut(&bufs, skip, len).iter().flat_map(|buf| buf.to_vec()).collect::<Vec<u8>>();
        assert_eq!(text(0, 8), b"abcdefgh");
        assert_eq!(text(2, 3), b"cde");
        assert_eq!(text(3, 4), b"defg");
        assert_eq!(text(7, 1), b"h");
        assert_eq!(text(5, 0), b"");
    }
}
