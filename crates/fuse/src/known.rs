//! The nodes that the kernel knows.
//!
//! Each time a node id goes to the kernel it counts one more, until the kernel forgets. A known node keeps its
//! object: its number means nothing else meanwhile, and a file that lost its last name lives on for those who have it
//! open. Opening and closing files therefore needs no messages at all.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use zpl::{Filesystem, ObjectId};

const SHARDS: usize = 64;
/// How long a look-up of an object that was gone waits at most until the kernel has dropped what it kept of the old one.
const DROPPING: Duration = Duration::from_secs(1);
/// Between two looks at whether it has.
const PAUSE: Duration = Duration::from_millis(1);

/// What the kernel knows of an object number.
#[derive(Clone, Copy, Default)]
struct Node {
    /// How often the kernel was told of it.
    count: u64,
    /// The object that the kernel knows is no more: the number means nothing, or another object, which the kernel was not
    /// told of yet. There is no handle.
    is_gone: bool,
    /// How often it went. The kernel sees by the generation that it has to do with another object.
    turn: u32,
}

/// How often the kernel was told of each object.
pub(crate) struct Known {
    shards: [Mutex<HashMap<ObjectId, Node>>; SHARDS],
    /// Objects that it was told of.
    count: AtomicU64,
    /// Whether any of them was ever gone: most mounts have none, and then nothing is looked up.
    any_gone: AtomicBool,
    /// The kernel is being told to drop what it keeps of objects that are gone.
    dropping: AtomicBool,
}

impl Known {
    pub(crate) fn new() -> Known {
        Known {
            shards: std::array::from_fn(|_| Mutex::default()),
            count: AtomicU64::new(0),
            any_gone: AtomicBool::new(false),
            dropping: AtomicBool::new(false),
        }
    }

    fn shard(&self, id: ObjectId) -> MutexGuard<'_, HashMap<ObjectId, Node>> {
        let shard = &self.shards[(id.0 % SHARDS as u64) as usize];
        shard.lock().expect("no code panics while holding the known nodes")
    }

    /// The kernel is about to be told of `id`. Gives how often the number went to another object.
    ///
    /// # Errors
    /// [`zpl::Error::NotFound`] when it is gone.
    pub(crate) fn remember(&self, fs: &Filesystem, id: ObjectId) -> zpl::Result<u32> {
        if let Some(node) = self.shard(id).get_mut(&id).filter(|node| !node.is_gone) {
            node.count += 1;
            return Ok(node.turn);
        }
        self.await_dropped(id);
        // Without the lock: it may read from a disk.
        fs.open_handle(id)?;
        let (turn, has_handle) = {
            let mut shard = self.shard(id);
            let node = shard.entry(id).or_default();
            let is_first = node.count == 0;
            // Somebody else may have been as quick: one handle is enough.
            let has_handle = !is_first && !node.is_gone;
            node.count += 1;
            node.is_gone = false;
            self.count.fetch_add(u64::from(is_first), Ordering::AcqRel);
            (node.turn, has_handle)
        };
        if has_handle {
            fs.close_handle(id)?;
        }
        Ok(turn)
    }

    /// Blocks while the kernel still has pages of an object of this number that is gone: their writes must not be taken
    /// for those of the new one. The kernel may need this very thread for that, so the wait has an end.
    fn await_dropped(&self, id: ObjectId) {
        let mut left = DROPPING;
        while self.dropping.load(Ordering::Acquire) && self.is_gone(id) && !left.is_zero() {
            std::thread::sleep(PAUSE);
            left = left.saturating_sub(PAUSE);
        }
    }

    /// Whether the object that the kernel knows by this number is no more.
    pub(crate) fn is_gone(&self, id: ObjectId) -> bool {
        self.any_gone.load(Ordering::Acquire) && self.shard(id).get(&id).is_some_and(|node| node.is_gone)
    }

    /// The file system behind the mount was exchanged for `fs`, in which the objects `gone` are no more or others: opens the
    /// handles of all others. No message is served meanwhile.
    pub(crate) fn exchange(&self, fs: &Filesystem, gone: &HashSet<ObjectId>) {
        for id in self.all() {
            let is_gone = self.is_gone(id) || gone.contains(&id) || fs.open_handle(id).is_err();
            if is_gone && let Some(node) = self.shard(id).get_mut(&id) {
                (node.is_gone, node.turn) = (true, node.turn.wrapping_add(1));
                self.any_gone.store(true, Ordering::Release);
            }
        }
    }

    /// Programs lose the object `id`, although it is there: whoever looks it up has to do with another one.
    pub(crate) fn lose(&self, fs: &Filesystem, id: ObjectId) {
        let had_handle = match self.shard(id).get_mut(&id) {
            Some(node) if !node.is_gone => {
                (node.is_gone, node.turn) = (true, node.turn.wrapping_add(1));
                true
            }
            _ => false,
        };
        self.any_gone.fetch_or(had_handle, Ordering::AcqRel);
        if had_handle && let Err(error) = fs.close_handle(id) {
            tracing::warn!(object = id.0, %error, "a closed file could not be freed");
        }
    }

    /// Whether the kernel is being told to drop what it keeps of objects that are gone.
    pub(crate) fn set_dropping(&self, dropping: bool) {
        self.dropping.store(dropping, Ordering::Release);
    }

    /// The kernel was told of `id` so many times, which it forgets; gives whether it does not know it any more.
    pub(crate) fn forget(&self, fs: &Filesystem, id: ObjectId, count: u64) -> bool {
        let forgotten = {
            let mut shard = self.shard(id);
            match shard.get_mut(&id) {
                Some(node) if node.count > count => {
                    node.count -= count;
                    None
                }
                Some(_) => shard.remove(&id),
                None => None,
            }
        };
        let Some(node) = forgotten else { return false };
        if !node.is_gone
            && let Err(error) = fs.close_handle(id)
        {
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
    pub(crate) fn all(&self) -> Vec<ObjectId> {
        let ids = |shard: &Mutex<HashMap<ObjectId, Node>>| -> Vec<ObjectId> {
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
