//! The nodes that a front end or its clients may still use.
//!
//! Each time a front end receives a node, its count grows by one, until the front end releases it. A held node keeps its
//! object: the number is not reused, and a file without names stays for the programs that have it open. The kernel holds
//! each node that it knows, so opening and closing files needs no messages.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dmu::rank::{MutexHeld, Rank, RankedMutex};

use crate::{Filesystem, ObjectId, Result, Stat};

const SHARDS: usize = 64;
/// Maximal wait of a look-up of a reused number until caches have dropped the pages of the old object.
const DROPPING: Duration = Duration::from_secs(1);
/// Interval of this wait.
const PAUSE: Duration = Duration::from_millis(1);

/// State of an object number that a front end received.
#[derive(Clone, Copy, Default)]
struct Node {
    /// Count of how often the front end received it.
    count: u64,
    /// The object that the front end received is gone. The number is unused, or belongs to another object that the front end
    /// has not received. There is no handle.
    is_gone: bool,
    /// Number of times that the number was reused. It is part of the generation, by which a client recognises another
    /// object.
    turn: u32,
}

/// A node that a front end holds until it releases it.
#[derive(Clone, Debug)]
pub struct Held {
    /// The attributes that `stat` shows.
    pub stat: Stat,
    /// Number of times that its number was reused while the front end held it.
    pub turn: u32,
}

/// Count of each object that a front end holds.
pub struct Handles {
    shards: [RankedMutex<HashMap<ObjectId, Node>>; SHARDS],
    /// Objects that it holds.
    count: AtomicU64,
    /// Whether any held object was ever replaced. Most sessions have none and skip the look-up.
    any_gone: AtomicBool,
    /// Caches are being notified to drop objects that are gone.
    dropping: AtomicBool,
}

/// A part of the table.
type Shard<'a> = MutexHeld<'a, HashMap<ObjectId, Node>>;

impl Handles {
    pub(crate) fn new() -> Handles {
        Handles {
            shards: std::array::from_fn(|_| RankedMutex::new(Rank::Held, HashMap::new())),
            count: AtomicU64::new(0),
            any_gone: AtomicBool::new(false),
            dropping: AtomicBool::new(false),
        }
    }

    fn shard(&self, id: ObjectId) -> Shard<'_> {
        self.shards[(id.0 % SHARDS as u64) as usize].lock()
    }

    /// Counts one more use of `id` by the front end. Returns how often the number was reused.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] when it is gone.
    pub(crate) fn hold(&self, fs: &Filesystem, id: ObjectId) -> Result<u32> {
        if let Some(node) = self.shard(id).get_mut(&id).filter(|node| !node.is_gone) {
            node.count += 1;
            return Ok(node.turn);
        }
        self.await_dropped(id);
        // This runs without the lock, because it may read from a disk.
        fs.open_handle(id)?;
        let (turn, has_handle) = {
            let mut shard = self.shard(id);
            let node = shard.entry(id).or_default();
            let is_first = node.count == 0;
            // Another thread may have opened a handle meanwhile; one handle is enough.
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

    /// Blocks while a cache still has pages of a removed object with this number, because their writes would go to the new
    /// object. The cache may need this thread to drop them, so the wait is limited.
    fn await_dropped(&self, id: ObjectId) {
        let mut left = DROPPING;
        while self.dropping.load(Ordering::Acquire) && self.is_gone(id) && !left.is_zero() {
            std::thread::sleep(PAUSE);
            left = left.saturating_sub(PAUSE);
        }
    }

    /// Whether the object that the front end holds under this number is gone.
    #[must_use]
    pub fn is_gone(&self, id: ObjectId) -> bool {
        self.any_gone.load(Ordering::Acquire) && self.shard(id).get(&id).is_some_and(|node| node.is_gone)
    }

    /// The file system of the session was replaced by `fs`, in which the objects `gone` are missing or different. Opens the
    /// handles of all other objects. No call is served meanwhile.
    pub fn exchange(&self, fs: &Filesystem, gone: &HashSet<ObjectId>) {
        for id in self.all() {
            let is_gone = self.is_gone(id) || gone.contains(&id) || fs.open_handle(id).is_err();
            if is_gone && let Some(node) = self.shard(id).get_mut(&id) {
                (node.is_gone, node.turn) = (true, node.turn.wrapping_add(1));
                self.any_gone.store(true, Ordering::Release);
            }
        }
    }

    /// Marks object `id` as replaced, although it exists: new look-ups get another object under this number.
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

    /// Sets whether caches are being notified to drop objects that are gone.
    pub fn set_dropping(&self, dropping: bool) {
        self.dropping.store(dropping, Ordering::Release);
    }

    /// Releases `id` `count` times. Returns whether the front end holds it no longer.
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
            // It stays in the unlinked set; the next import frees it.
            tracing::warn!(object = id.0, %error, "a closed file could not be freed");
        }
        self.count.fetch_sub(1, Ordering::AcqRel);
        true
    }

    /// Number of objects that the front end holds, without those that are just being handed out.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Whether the front end holds no object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every node that it holds.
    #[must_use]
    pub fn all(&self) -> Vec<ObjectId> {
        self.shards.iter().flat_map(|shard| shard.lock().keys().copied().collect::<Vec<_>>()).collect()
    }

    /// The front end ended: releases everything.
    pub(crate) fn clear(&self, fs: &Filesystem) {
        for id in self.all() {
            self.release(fs, id, u64::MAX);
        }
    }
}
