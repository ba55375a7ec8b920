//! What a front end holds: the nodes that it, or its clients, may still use.
//!
//! Each time a node goes to a front end it counts one more, until the front end releases it. A held node keeps its object:
//! its number means nothing else meanwhile, and a file that lost its last name lives on for those who have it open. The
//! kernel holds each node that it knows, so opening and closing files needs no messages at all.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::{Filesystem, ObjectId, Result, Stat};

const SHARDS: usize = 64;
/// How long a look-up of an object that was gone waits at most until caches have dropped what they kept of the old one.
const DROPPING: Duration = Duration::from_secs(1);
/// Between two looks at whether it has.
const PAUSE: Duration = Duration::from_millis(1);

/// What a front end has of an object number.
#[derive(Clone, Copy, Default)]
struct Node {
    /// How often the front end was given it.
    count: u64,
    /// The object that the front end was given is no more: the number means nothing, or another object, which the front
    /// end was not given yet. There is no handle.
    is_gone: bool,
    /// How often it went. A client sees by the generation that it has to do with another object.
    turn: u32,
}

/// A node that a front end was given, and holds until it releases it.
#[derive(Clone, Debug)]
pub struct Held {
    /// What `stat` shows.
    pub stat: Stat,
    /// How often its number went to another object while the front end held it.
    pub turn: u32,
}

/// How often a front end was given each object.
pub struct Handles {
    shards: [Mutex<HashMap<ObjectId, Node>>; SHARDS],
    /// Objects that it holds.
    count: AtomicU64,
    /// Whether any of them was ever gone: most sessions have none, and then nothing is looked up.
    any_gone: AtomicBool,
    /// Caches are being told to drop what they keep of objects that are gone.
    dropping: AtomicBool,
}

impl Handles {
    pub(crate) fn new() -> Handles {
        Handles {
            shards: std::array::from_fn(|_| Mutex::default()),
            count: AtomicU64::new(0),
            any_gone: AtomicBool::new(false),
            dropping: AtomicBool::new(false),
        }
    }

    fn shard(&self, id: ObjectId) -> MutexGuard<'_, HashMap<ObjectId, Node>> {
        let shard = &self.shards[(id.0 % SHARDS as u64) as usize];
        shard.lock().expect("no code panics while holding the handles")
    }

    /// The front end is about to be given `id`. Gives how often the number went to another object.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] when it is gone.
    pub(crate) fn hold(&self, fs: &Filesystem, id: ObjectId) -> Result<u32> {
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

    /// Blocks while a cache still has pages of an object of this number that is gone: their writes must not be taken
    /// for those of the new one. The cache may need this very thread for that, so the wait has an end.
    fn await_dropped(&self, id: ObjectId) {
        let mut left = DROPPING;
        while self.dropping.load(Ordering::Acquire) && self.is_gone(id) && !left.is_zero() {
            std::thread::sleep(PAUSE);
            left = left.saturating_sub(PAUSE);
        }
    }

    /// Whether the object that the front end holds by this number is no more.
    #[must_use]
    pub fn is_gone(&self, id: ObjectId) -> bool {
        self.any_gone.load(Ordering::Acquire) && self.shard(id).get(&id).is_some_and(|node| node.is_gone)
    }

    /// The file system of the session was exchanged for `fs`, in which the objects `gone` are no more or others: opens the
    /// handles of all others. No call is served meanwhile.
    pub fn exchange(&self, fs: &Filesystem, gone: &HashSet<ObjectId>) {
        for id in self.all() {
            let is_gone = self.is_gone(id) || gone.contains(&id) || fs.open_handle(id).is_err();
            if is_gone && let Some(node) = self.shard(id).get_mut(&id) {
                (node.is_gone, node.turn) = (true, node.turn.wrapping_add(1));
                self.any_gone.store(true, Ordering::Release);
            }
        }
    }

    /// Programs lose the object `id`, although it is there: the number means another one for those who look it up.
    pub fn lose(&self, fs: &Filesystem, id: ObjectId) {
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

    /// Says whether caches are being told to drop what they keep of objects that are gone.
    pub fn set_dropping(&self, dropping: bool) {
        self.dropping.store(dropping, Ordering::Release);
    }

    /// The front end releases `id` so many times; gives whether it does not hold it any more.
    pub(crate) fn release(&self, fs: &Filesystem, id: ObjectId, count: u64) -> bool {
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

    /// Objects that the front end holds. One that is just about to be given to it is not counted.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every node that it holds.
    #[must_use]
    pub fn all(&self) -> Vec<ObjectId> {
        let ids = |shard: &Mutex<HashMap<ObjectId, Node>>| -> Vec<ObjectId> {
            shard.lock().expect("no code panics while holding the handles").keys().copied().collect()
        };
        self.shards.iter().flat_map(ids).collect()
    }

    /// The front end ends: it holds nothing more.
    pub(crate) fn clear(&self, fs: &Filesystem) {
        for id in self.all() {
            self.release(fs, id, u64::MAX);
        }
    }
}
