//! The nodes that the kernel knows.
//!
//! Each time a node id goes to the kernel it counts one more, until the kernel forgets. A known node keeps its
//! object: its number means nothing else meanwhile, and a file that lost its last name lives on for those who have it
//! open. Opening and closing files therefore needs no messages at all.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use zpl::{Filesystem, ObjectId};

const SHARDS: usize = 64;

/// How often the kernel was told of each object.
pub(crate) struct Known {
    shards: [Mutex<HashMap<ObjectId, u64>>; SHARDS],
    /// Objects that it was told of.
    count: AtomicU64,
}

impl Known {
    pub(crate) fn new() -> Known {
        Known { shards: std::array::from_fn(|_| Mutex::default()), count: AtomicU64::new(0) }
    }

    fn shard(&self, id: ObjectId) -> MutexGuard<'_, HashMap<ObjectId, u64>> {
        let shard = &self.shards[(id.0 % SHARDS as u64) as usize];
        shard.lock().expect("no code panics while holding the known nodes")
    }

    /// The kernel is about to be told of `id`.
    ///
    /// # Errors
    /// [`zpl::Error::NotFound`] when it is gone.
    pub(crate) fn remember(&self, fs: &Filesystem, id: ObjectId) -> zpl::Result<()> {
        if let Some(count) = self.shard(id).get_mut(&id) {
            *count += 1;
            return Ok(());
        }
        // Without the lock: it may read from a disk.
        fs.open_handle(id)?;
        let count = {
            let mut shard = self.shard(id);
            let count = shard.entry(id).or_default();
            *count += 1;
            *count
        };
        if count > 1 {
            // Somebody else was as quick: one handle is enough.
            return fs.close_handle(id);
        }
        self.count.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// The kernel was told of `id` so many times, which it forgets; gives whether it does not know it any more.
    pub(crate) fn forget(&self, fs: &Filesystem, id: ObjectId, count: u64) -> bool {
        let gone = {
            let mut shard = self.shard(id);
            match shard.get_mut(&id) {
                Some(known) if *known > count => {
                    *known -= count;
                    false
                }
                Some(_) => shard.remove(&id).is_some(),
                None => false,
            }
        };
        if !gone {
            return false;
        }
        if let Err(error) = fs.close_handle(id) {
            // It stays in the unlinked set, to be freed at the next import.
            tracing::warn!(object = id.0, %error, "a closed file could not be freed");
        }
        self.count.fetch_sub(1, Ordering::AcqRel);
        true
    }

    /// Objects that the kernel was told of. Who is just about to tell it of one is not counted.
    pub(crate) fn len(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Whether the kernel knows none.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every node that the kernel knows.
    fn all(&self) -> Vec<ObjectId> {
        let ids = |shard: &Mutex<HashMap<ObjectId, u64>>| -> Vec<ObjectId> {
            shard.lock().expect("no code panics while holding the known nodes").keys().copied().collect()
        };
        self.shards.iter().flat_map(ids).collect()
    }

    /// The mount ends: the kernel forgets everything.
    pub(crate) fn clear(&self, fs: &Filesystem) {
        for id in self.all() {
            self.forget(fs, id, u64::MAX);
        }
    }
}
