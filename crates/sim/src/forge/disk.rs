//! An image in memory with patches over it, to be opened without a copy.

use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;

use storage::host::Disk;

use super::Patches;

/// A disk that holds an image with patches over it, and can only be read.
#[derive(Clone)]
pub struct PatchedDisk {
    image: Arc<Vec<u8>>,
    patches: Patches,
}

impl PatchedDisk {
    /// `patches` must not overlap.
    #[must_use]
    pub fn new(image: Arc<Vec<u8>>, patches: Patches) -> PatchedDisk {
        PatchedDisk { image, patches }
    }
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

    fn is_block_device(&self) -> bool {
        false
    }

    fn path(&self) -> &Path {
        Path::new("/patched")
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64).filter(|end| *end <= self.size());
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(&self.image[offset as usize..end as usize]);
        for (at, bytes) in self.patches.range(..end) {
            let (first, last) = ((*at).max(offset), (at + bytes.len() as u64).min(end));
            if first < last {
                let source = &bytes[(first - at) as usize..(last - at) as usize];
                buf[(first - offset) as usize..(last - offset) as usize].copy_from_slice(source);
            }
        }
        Ok(())
    }

    fn write_at(&self, _: &[IoSlice<'_>], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn hint_willneed(&self, _: u64, _: u64) {}

    fn drop_cache(&self) {}
}
