//! An image in memory with patches over it, to be opened without a copy.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use storage::host::{Backing, Disk};
use storage::rank::{MutexHeld, RankedMutex};

use super::Patches;

/// Bytes of a piece that was written.
const PAGE: usize = 4 << 10;

/// The pages that were written, by number.
type Pages = BTreeMap<u64, Box<[u8]>>;

/// A disk that holds an image with patches over it. The image stays as it is: what is written is kept beside it.
#[derive(Clone)]
pub struct PatchedDisk {
    image: Arc<Vec<u8>>,
    patches: Patches,
    /// `None`: the disk can only be read.
    written: Option<Arc<RankedMutex<Pages>>>,
}

impl PatchedDisk {
    /// A disk that can only be read. `patches` must not overlap.
    #[must_use]
    pub fn new(image: Arc<Vec<u8>>, patches: Patches) -> PatchedDisk {
        PatchedDisk { image, patches, written: None }
    }

    /// The same disk, for writing. Clones share the written pages.
    #[must_use]
    pub fn writable(self) -> PatchedDisk {
        PatchedDisk { written: Some(Arc::default()), ..self }
    }

    fn check(&self, offset: u64, len: usize, kind: io::ErrorKind) -> io::Result<u64> {
        let end = offset.checked_add(len as u64).filter(|end| *end <= self.size());
        end.ok_or_else(|| kind.into())
    }

    /// Reads the image with its patches.
    fn read_original(&self, buf: &mut [u8], offset: u64, end: u64) {
        buf.copy_from_slice(&self.image[offset as usize..end as usize]);
        for (at, bytes) in self.patches.range(..end) {
            let (first, last) = ((*at).max(offset), (at + bytes.len() as u64).min(end));
            if first < last {
                let source = &bytes[(first - at) as usize..(last - at) as usize];
                buf[(first - offset) as usize..(last - offset) as usize].copy_from_slice(source);
            }
        }
    }

    /// The page with this number, as it is now.
    fn page<'a>(&self, pages: &'a mut MutexHeld<'_, Pages>, number: u64) -> &'a mut [u8] {
        pages.entry(number).or_insert_with(|| {
            let from = number * PAGE as u64;
            let to = (from + PAGE as u64).min(self.size());
            let mut page = vec![0; PAGE];
            self.read_original(&mut page[..(to - from) as usize], from, to);
            page.into()
        })
    }
}

fn lock(pages: &RankedMutex<Pages>) -> MutexHeld<'_, Pages> {
    pages.lock()
}

impl std::fmt::Debug for PatchedDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "an image of {} bytes with {} patches", self.image.len(), self.patches.len())
    }
}

impl Disk for PatchedDisk {
    fn size(&self) -> u64 {
        self.image.len() as u64
    }

    fn sector_size(&self) -> u32 {
        512
    }

    fn physical_sector_size(&self) -> u32 {
        self.sector_size()
    }

    fn is_block_device(&self) -> bool {
        false
    }

    fn path(&self) -> &Path {
        Path::new("/patched")
    }

    fn deleted(&self) -> Option<PathBuf> {
        None
    }

    fn moved(&self) -> Option<PathBuf> {
        None
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let end = self.check(offset, buf.len(), io::ErrorKind::UnexpectedEof)?;
        self.read_original(buf, offset, end);
        let Some(written) = &self.written else { return Ok(()) };
        for (number, page) in lock(written).range(offset / PAGE as u64..end.div_ceil(PAGE as u64)) {
            let start = number * PAGE as u64;
            let (first, last) = (start.max(offset), (start + PAGE as u64).min(end));
            let source = &page[(first - start) as usize..(last - start) as usize];
            buf[(first - offset) as usize..(last - offset) as usize].copy_from_slice(source);
        }
        Ok(())
    }

    fn write_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let Some(written) = &self.written else { return Err(io::ErrorKind::ReadOnlyFilesystem.into()) };
        let len = bufs.iter().map(|buf| buf.len()).sum();
        self.check(offset, len, io::ErrorKind::InvalidInput)?;
        let mut pages = lock(written);
        let mut at = offset;
        for mut rest in bufs.iter().map(|buf| &**buf) {
            while !rest.is_empty() {
                let within = (at % PAGE as u64) as usize;
                let (now, later) = rest.split_at(rest.len().min(PAGE - within));
                self.page(&mut pages, at / PAGE as u64)[within..within + now.len()].copy_from_slice(now);
                at += now.len() as u64;
                rest = later;
            }
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn written_again(&self) {}

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn hint_willneed(&self, _: u64, _: u64) {}

    fn ask(&self) -> io::Result<()> {
        self.read_at(&mut [0; 512], 0)
    }

    fn drop_cache(&self) {}

    fn backing(&self) -> Option<Backing> {
        None
    }
}
