//! Volumes: a block device of a fixed size, as one object of a dataset.
//!
//! From:   front ends (an export, a command), which have checked that the caller may use the volume.
//! To:     `dmu` objects, changed within transactions of `pool`.
//! Source: docs/format/15-volumes-redaction-and-newer-features.md §1, §4, §5.
//!
//! A change locks the stripes of the volume that it writes to, so writers of different stripes work side by side. The size
//! has a lock of its own, which a change takes before the stripes.

mod extents;
mod initialise;
mod log;
mod replay;
mod resize;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dmu::rank::{Rank, RankedMutex};
use dmu::{Object, zap};
use format::objset::ObjsetType;
use format::{Corrupt, ObjectId, ObjectType};
use pool::Dataset;

pub use extents::Extent;
pub use initialise::volume_initialiser;

use crate::locks::Locks;
use crate::open_table::OpenTable;
use crate::records::{Keep, read_blocks};
use crate::{Error, Result};

/// The object with the data.
pub(crate) const DATA: ObjectId = ObjectId(1);
/// The object with the size.
pub(crate) const PROPERTIES: ObjectId = ObjectId(2);
/// The size, in the properties.
const SIZE: &[u8] = b"size";
/// Reads up to this many bytes are cached. A larger read is treated as a sequential pass over the volume.
const KEPT_MAX: usize = 128 << 10;

/// All that are open.
static VOLUMES: OpenTable<Inner> = OpenTable::new();

/// An open volume, or a snapshot of one. Clones share it.
#[derive(Clone)]
pub struct Volume {
    inner: Arc<Inner>,
}

struct Inner {
    dataset: Arc<Dataset>,
    data: Arc<Object>,
    /// Bytes of a block.
    block: u64,
    /// Bytes of the volume. It changes under the lock `shape`.
    size: AtomicU64,
    /// Held exclusively while the size changes, and shared by operations that rely on the size.
    shape: Locks,
    /// Of the stripes of the data.
    stripes: Locks,
    /// Held during a whole change of the size, over all its steps.
    resizing: RankedMutex<()>,
}

impl Inner {
    fn of(dataset: Arc<Dataset>) -> Result<Inner> {
        let objset = dataset.objset();
        if objset.os_type() != ObjsetType::Zvol {
            return Err(Error::Unsupported("a dataset that is no volume"));
        }
        let data = objset.object(DATA)?;
        if data.object_type() != ObjectType::ZVOL {
            let found = data.object_type().0.into();
            return Err(Error::damaged(DATA)(Corrupt::new("type of a volume's data", found)));
        }
        let block = data.block_size();
        if !block.is_power_of_two() {
            return Err(Error::damaged(DATA)(Corrupt::new("block size of a volume", block)));
        }
        let size = zap::lookup_u64(&*objset.object(PROPERTIES)?, SIZE)?.unwrap_or(0);
        if size == 0 || size > i64::MAX as u64 || !size.is_multiple_of(block) {
            return Err(Error::damaged(PROPERTIES)(Corrupt::new("size of a volume", size)));
        }
        Ok(Inner {
            data,
            block,
            size: AtomicU64::new(size),
            shape: Locks::new(Rank::Names),
            stripes: Locks::new(Rank::Nodes),
            resizing: RankedMutex::new(Rank::Resizing, ()),
            dataset,
        })
    }
}

impl Volume {
    /// Opens the volume in `dataset`. An intent log that a crash left is replayed first, unless the pool is only read.
    ///
    /// # Errors
    /// [`pool::Error::Redacted`]; [`Error::Unsupported`] for anything but a volume, or a log that cannot be replayed; [`Error::Damaged`]; blocks that
    /// cannot be read.
    pub fn open(dataset: Arc<Dataset>) -> Result<Volume> {
        dataset.check_complete()?;
        Volume::open_incomplete(dataset)
    }

    /// As [`Volume::open`], also for a redacted volume: missing blocks read as zeros.
    ///
    /// # Errors
    /// As [`Volume::open`].
    pub fn open_incomplete(dataset: Arc<Dataset>) -> Result<Volume> {
        let volume = Volume::open_as_it_is(dataset)?;
        volume.replay()?;
        Ok(volume)
    }

    /// Opens the volume as of the last sync before a crash. All openers share its locks.
    pub(crate) fn open_as_it_is(dataset: Arc<Dataset>) -> Result<Volume> {
        let inner = VOLUMES.share(&dataset, || Inner::of(dataset.clone()))?;
        Ok(Volume { inner })
    }

    /// The dataset it lives in.
    #[must_use]
    pub fn dataset(&self) -> &Arc<Dataset> {
        &self.inner.dataset
    }

    /// Bytes of the volume.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.inner.size.load(Ordering::Acquire)
    }

    /// Bytes of a block: `volblocksize`.
    #[must_use]
    pub fn block_size(&self) -> u64 {
        self.inner.block
    }

    /// Bytes that its blocks take in the pool.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.inner.data.used_bytes()
    }

    /// Whether nothing can be changed: a snapshot, `readonly=on`, or a pool that is only read.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.inner.dataset.check_writable().is_err()
    }

    /// The end of a range, which lies within the volume.
    fn end_of(&self, offset: u64, length: u64) -> Result<u64> {
        offset.checked_add(length).filter(|end| *end <= self.size()).ok_or(Error::Invalid)
    }

    /// Fills `buf` from byte `offset` on. Holes are zeros.
    ///
    /// # Errors
    /// [`Error::Invalid`] beyond the end; a block that cannot be read.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.end_of(offset, buf.len() as u64)?;
        if buf.is_empty() {
            return Ok(());
        }
        let keep = match self.inner.dataset.settings().cache_data {
            true if buf.len() <= KEPT_MAX => Keep::All,
            true => Keep::Parts,
            false => Keep::Nothing,
        };
        read_blocks(self.inner.dataset.objset(), &self.inner.data, keep, offset, buf)
    }
}
