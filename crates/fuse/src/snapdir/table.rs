//! Table of the open snapshots of a mount with their slots, of the roots that the kernel knows, and of the snapshots that
//! may be closed.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use fuser::{FileAttr, Generation};
use zpl::session::Slot;
use zpl::{Dataset, ObjectId, SnapshotKey};

use crate::attributes::{LONG, SHORT};
use crate::bridge::Bridge;
use crate::places::Places;
use crate::replies::Entry;

/// Number of snapshots that stay open although the kernel knows only their root.
const IDLE_MAX: usize = 4;
/// With more open snapshots than this, the kernel is asked to drop one.
const OPEN_MAX: usize = 32;

pub(crate) struct State {
    /// Those of the mount.
    pub(crate) places: Arc<Places>,
    pub(crate) roots: HashMap<ObjectId, Root>,
    pub(crate) slots: HashMap<SnapshotKey, Slot>,
    pub(crate) open: HashMap<Slot, Opened>,
    /// Snapshots that are being closed. The pool counts them as in use until this is done.
    pub(crate) closing: HashMap<SnapshotKey, Weak<Dataset>>,
    /// Datasets that are looked for by [`super::opened::recall_name`].
    pub(crate) recalled: HashSet<ObjectId>,
    /// Counts how often one was entered.
    pub(crate) time: u64,
}

/// The root of a snapshot, which the kernel knows.
pub(crate) struct Root {
    pub(crate) key: SnapshotKey,
    /// Its name at the last look-up.
    pub(crate) name: Vec<u8>,
    /// Number of uses by the kernel.
    pub(crate) count: u64,
    pub(crate) attr: FileAttr,
    pub(crate) generation: Generation,
}

impl Root {
    pub(crate) fn entry(&self) -> Entry {
        let (attr, generation) = (self.attr, self.generation);
        Entry { attr, generation, attr_ttl: LONG, entry_ttl: SHORT }
    }
}

pub(crate) struct Opened {
    pub(crate) key: SnapshotKey,
    pub(crate) bridge: Arc<Bridge>,
    /// When it was last entered.
    pub(crate) used: u64,
}

impl Opened {
    /// Whether it is unused and the kernel knows only its root.
    pub(crate) fn is_idle(&self) -> bool {
        Arc::strong_count(&self.bridge) == 1 && self.bridge.session.handles().is_empty()
    }
}

impl State {
    pub(crate) fn new(places: Arc<Places>) -> State {
        State {
            places,
            roots: HashMap::new(),
            slots: HashMap::new(),
            open: HashMap::new(),
            closing: HashMap::new(),
            recalled: HashSet::new(),
            time: 0,
        }
    }

    pub(crate) fn at(&mut self, key: SnapshotKey) -> Option<&mut Opened> {
        self.slots.get(&key).and_then(|slot| self.open.get_mut(slot))
    }

    pub(crate) fn enter(&mut self, key: SnapshotKey) -> Option<Arc<Bridge>> {
        self.time += 1;
        let now = self.time;
        self.at(key).map(|opened| {
            opened.used = now;
            opened.bridge.clone()
        })
    }

    pub(crate) fn is_known(&self, key: SnapshotKey) -> bool {
        self.roots.get(&key.id).is_some_and(|root| root.key == key)
    }

    /// Removes a snapshot that the kernel does not know.
    pub(crate) fn take_forgotten(&mut self, key: SnapshotKey) -> Option<Opened> {
        let slot = *self.slots.get(&key)?;
        if self.is_known(key) || !self.open.get(&slot)?.is_idle() {
            return None;
        }
        self.open.remove(&slot).inspect(|opened| self.closes(opened))
    }

    /// It was removed and is closed after the lock is released.
    pub(crate) fn closes(&mut self, opened: &Opened) {
        if let Some(slot) = self.slots.remove(&opened.key) {
            self.places.free(slot);
        }
        self.closing.retain(|_, dataset| dataset.strong_count() > 0);
        if let Ok(fs) = opened.bridge.fs() {
            self.closing.insert(opened.key, Arc::downgrade(fs.dataset()));
        }
    }

    pub(crate) fn is_closing(&self, key: SnapshotKey) -> bool {
        self.closing.get(&key).is_some_and(|dataset| dataset.strong_count() > 0)
    }

    /// Removes idle snapshots except the latest ones.
    pub(crate) fn take_idle(&mut self) -> Vec<Opened> {
        let mut idle: Vec<(u64, Slot)> =
            self.open.iter().filter(|(_, o)| o.is_idle()).map(|(slot, o)| (o.used, *slot)).collect();
        idle.sort_unstable();
        idle.truncate(idle.len().saturating_sub(IDLE_MAX));
        let taken: Vec<Opened> = idle.iter().filter_map(|(_, slot)| self.open.remove(slot)).collect();
        taken.iter().for_each(|opened| self.closes(opened));
        taken
    }

    /// If too many snapshots are open, the name of the one that was not entered for the longest time. From then on it
    /// counts as the one entered last. So if a program uses it and it stays open, the next calls return others first.
    pub(crate) fn too_many(&mut self) -> Option<(SnapshotKey, Vec<u8>)> {
        if self.open.len() <= OPEN_MAX {
            return None;
        }
        self.time += 1;
        let oldest = self.open.values_mut().min_by_key(|opened| opened.used)?;
        oldest.used = self.time;
        let root = self.roots.get(&oldest.key.id).filter(|root| root.key == oldest.key)?;
        Some((root.key, root.name.clone()))
    }
}
