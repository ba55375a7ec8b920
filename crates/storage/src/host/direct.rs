//! Large writes past the machine's page cache: no second copy, no fresh pages, nothing left for the flush.
//!
//! From:   `file_disk`, whose other descriptor goes through the page cache.
//! To:     the same file. The kernel drops the cached pages of a range before and after it is written directly,
//!         but not those that another writer dirties meanwhile: what they hold of the range would stay stale. So a
//!         write through the cache and a direct one never run at the same time ([`DirectFile::apart`]).
//! Source: open(2), "O_DIRECT".

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::rank::{Rank, RankedRwLock, WriteHeld};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use super::aligned::{ALIGNMENT, AlignedBuf};

/// Bytes of one system call, at most.
const STEP: usize = 4 << 20;
/// Offsets and lengths of direct writes are multiples of this.
pub(super) const PAGE: u64 = ALIGNMENT as u64;

thread_local! {
    /// Where a write is gathered on its way to the device; a few threads write.
    static GATHERED: RefCell<Option<AlignedBuf>> = const { RefCell::new(None) };
}

/// A second descriptor of a file or device, for direct writes.
#[derive(Debug)]
pub(super) struct DirectFile {
    file: File,
    /// The file system takes the flag but not the writes.
    refused: AtomicBool,
    /// Direct writes share it, a write through the cache has it alone.
    turn: RankedRwLock<()>,
}

impl DirectFile {
    /// Opens `path` again; `None` where direct writes are not to be had, or if the path now leads elsewhere.
    pub(super) fn open(path: &Path, first: &fs::Metadata) -> Option<DirectFile> {
        let flags = OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::WRONLY | OFlags::DIRECT;
        let file = File::from(retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty())).ok()?);
        let same = file.metadata().is_ok_and(|again| {
            (again.dev(), again.ino(), again.rdev()) == (first.dev(), first.ino(), first.rdev())
        });
        same.then_some(DirectFile {
            file,
            refused: AtomicBool::new(false),
            turn: RankedRwLock::new(Rank::DirectWrites, ()),
        })
    }

    /// Whether direct writes were found not to work.
    pub(super) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// No direct write runs while the guard lives.
    pub(super) fn apart(&self) -> WriteHeld<'_, ()> {
        // The lock guards no data, so a panic left no half-done change.
        self.turn.write_after_panics()
    }

    /// Writes `bufs` from `offset`, both in whole pages. Returns how many bytes were written: fewer than asked
    /// for when the file system refuses direct writes.
    ///
    /// # Errors
    /// The error of the device.
    pub(super) fn write(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<u64> {
        GATHERED.with_borrow_mut(|gathered| {
            let page_buf = gathered.get_or_insert_with(|| AlignedBuf::zeroed(STEP));
            let (mut written, mut filled) = (0, 0);
            for buf in bufs {
                let mut rest = &buf[..];
                while !rest.is_empty() {
                    let take = rest.len().min(STEP - filled);
                    page_buf[filled..filled + take].copy_from_slice(&rest[..take]);
                    filled += take;
                    rest = &rest[take..];
                    if filled == STEP {
                        if !self.write_pages(page_buf, offset + written)? {
                            return Ok(written);
                        }
                        written += filled as u64;
                        filled = 0;
                    }
                }
            }
            if filled > 0 && self.write_pages(&page_buf[..filled], offset + written)? {
                written += filled as u64;
            }
            Ok(written)
        })
    }

    fn write_pages(&self, pages: &[u8], offset: u64) -> io::Result<bool> {
        let _shared = self.turn.read_after_panics();
        match self.file.write_all_at(pages, offset) {
            Ok(()) => Ok(true),
            // Never at once on a file system that takes direct writes; after a short write perhaps.
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::INVAL | Errno::OPNOTSUPP)) => {
                self.refused.store(true, Ordering::Relaxed);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}
