//! A disk that can be closed while other threads still refer to it.
//!
//! From:   a leaf of the vdev tree.
//! To:     the disk, until [`Closable::close`]; later every request fails.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::rank::RankedRwLock;

use super::{Backing, Disk};

/// A disk, or the remaining facts about a closed one.
#[derive(Debug)]
pub(crate) struct Closable {
    path: PathBuf,
    size: u64,
    sector_size: u32,
    physical_sector_size: u32,
    is_block_device: bool,
    disk: RankedRwLock<Option<Arc<dyn Disk>>>,
}

impl Closable {
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Closable {
        Closable {
            path: disk.path().to_path_buf(),
            size: disk.size(),
            sector_size: disk.sector_size(),
            physical_sector_size: disk.physical_sector_size(),
            is_block_device: disk.is_block_device(),
            disk: RankedRwLock::leaf(Some(disk)),
        }
    }

    /// Releases the disk. It is closed when the last request that is under way has ended.
    pub(crate) fn close(&self) {
        self.disk.write().take();
    }

    fn get(&self) -> Option<Arc<dyn Disk>> {
        self.disk.read().clone()
    }

    fn open(&self) -> io::Result<Arc<dyn Disk>> {
        self.get().ok_or_else(|| io::Error::new(io::ErrorKind::NotConnected, "the device was let go of"))
    }
}

impl Disk for Closable {
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
        self.get()?.deleted()
    }

    fn moved(&self) -> Option<PathBuf> {
        self.get()?.moved()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.open()?.read_at(buf, offset)
    }

    fn write_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        self.open()?.write_at(bufs, offset)
    }

    fn flush(&self) -> io::Result<()> {
        self.open()?.flush()
    }

    fn written_again(&self) {
        if let Some(disk) = self.get() {
            disk.written_again();
        }
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.open()?.discard(offset, len)
    }

    fn hint_willneed(&self, offset: u64, len: u64) {
        if let Some(disk) = self.get() {
            disk.hint_willneed(offset, len);
        }
    }

    fn ask(&self) -> io::Result<()> {
        self.open()?.ask()
    }

    fn drop_cache(&self) {
        if let Some(disk) = self.get() {
            disk.drop_cache();
        }
    }

    fn backing(&self) -> Option<Backing> {
        self.get()?.backing()
    }
}
