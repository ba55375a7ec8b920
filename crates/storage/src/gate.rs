//! The users of vdevs with parity: the sync thread waits for them before it changes where sectors lie.
//!
//! From:   reads, and writes of blocks past the sync thread: each passes before it looks at the vdevs.
//! To:     the sync thread, which keeps writers out while it copies sectors, and readers too while the border moves.
//!
//! The sectors of a raidz vdev that gets one child more move into places that were read before. So a reader that has looked at the
//! layout must be done before the next sectors are copied. A block that is written must be written before its sectors are copied, or
//! where they are afterwards.

use crate::rank::{Rank, RankedRwLock, ReadHeld, WriteHeld};

/// The gate of one pool.
#[derive(Debug)]
pub struct Gate {
    readers: RankedRwLock<()>,
    writers: RankedRwLock<()>,
}

impl Default for Gate {
    fn default() -> Gate {
        let (readers, writers) = (Rank::LayoutReaders, Rank::LayoutWriters);
        Gate { readers: RankedRwLock::new(readers, ()), writers: RankedRwLock::new(writers, ()) }
    }
}

/// Only the owner writes blocks of vdevs with parity. The sync thread's own writes do not pass the gate.
#[derive(Debug)]
pub struct WithoutWriters<'a> {
    gate: &'a Gate,
    _writers: WriteHeld<'a, ()>,
}

/// Only the owner of this reads or writes blocks of vdevs with parity.
#[derive(Debug)]
pub struct Alone<'a> {
    _readers: WriteHeld<'a, ()>,
}

impl Gate {
    /// Until this is dropped, the layout does not change.
    pub(crate) fn read(&self) -> ReadHeld<'_, ()> {
        self.readers.read_after_panics()
    }

    /// As long as the returned guard lives, no sector is copied.
    pub(crate) fn write(&self) -> ReadHeld<'_, ()> {
        self.writers.read_after_panics()
    }

    /// Waits for running writers, and keeps new ones out.
    #[must_use]
    pub fn keep_writers_out(&self) -> WithoutWriters<'_> {
        WithoutWriters { gate: self, _writers: self.writers.write_after_panics() }
    }
}

impl WithoutWriters<'_> {
    /// Waits for running readers, and keeps new ones out.
    #[must_use]
    pub fn keep_readers_out(&self) -> Alone<'_> {
        Alone { _readers: self.gate.readers.write_after_panics() }
    }
}
