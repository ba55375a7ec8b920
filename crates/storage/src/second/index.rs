//! The index: which cache device has a block of the pool, and where.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use format::Guid;
use format::blkptr::{Block, Dva};

/// The key of a block: the place of its first copy in the pool, and its birth. Two blocks of one txg may share a key
/// (the passes of a sync write blocks of the MOS anew in their places): the checksum distinguishes them when they are
/// read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    vdev: u32,
    offset: u64,
    birth: u64,
}

impl Key {
    pub(super) fn of(block: &Block) -> Key {
        Key::new(&block.dvas[0], block.physical_birth())
    }

    pub(super) fn new(dva: &Dva, birth: format::Txg) -> Key {
        Key { vdev: dva.vdev.0, offset: dva.offset, birth: birth.0 }
    }
}

/// Where a block lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) device: Guid,
    /// Byte offset on the device.
    pub(super) at: u64,
    /// Stored bytes.
    pub(super) psize: u64,
}

#[derive(Clone, Copy)]
struct Slot {
    /// `None`: the block waits to be written.
    place: Option<Place>,
    used: bool,
}

/// The blocks on all cache devices, and those that wait to be written.
#[derive(Default)]
pub(super) struct Index {
    slots: HashMap<Key, Slot>,
}

impl Index {
    pub(super) fn len(&self) -> u64 {
        self.slots.len() as u64
    }

    pub(super) fn get(&self, key: &Key) -> Option<Place> {
        self.slots.get(key)?.place
    }

    /// A block was read from its place.
    pub(super) fn used(&mut self, key: &Key) {
        if let Some(slot) = self.slots.get_mut(key) {
            slot.used = true;
        }
    }

    /// Notes that a block waits to be written; `false` where it does already, or is on a device.
    pub(super) fn expect(&mut self, key: Key) -> bool {
        match self.slots.entry(key) {
            Entry::Occupied(_) => false,
            Entry::Vacant(free) => {
                free.insert(Slot { place: None, used: false });
                true
            }
        }
    }

    /// A block that waited is not written.
    pub(super) fn give_up(&mut self, key: &Key) {
        if self.slots.get(key).is_some_and(|slot| slot.place.is_none()) {
            self.slots.remove(key);
        }
    }

    /// A block lies at `place` now.
    pub(super) fn insert(&mut self, key: Key, place: Place) {
        self.slots.insert(key, Slot { place: Some(place), used: false });
    }

    /// A block is not at `place` any more; it may be elsewhere. Tells whether it was there.
    pub(super) fn remove_at(&mut self, key: &Key, place: Place) -> bool {
        let there = self.slots.get(key).is_some_and(|slot| slot.place == Some(place));
        if there {
            self.slots.remove(key);
        }
        there
    }

    pub(super) fn remove(&mut self, key: &Key) {
        self.slots.remove(key);
    }

    /// Forgets what is on a device.
    pub(super) fn remove_device(&mut self, device: Guid) {
        self.slots.retain(|_, slot| slot.place.is_none_or(|place| place.device != device));
    }
}
