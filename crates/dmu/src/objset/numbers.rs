//! Allocating object numbers.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use format::ObjectId;
use format::dnode::{SLOT, SLOTS_PER_BLOCK};

use super::{Objset, slots_at};
use crate::object::{NUMBERS_MAX, Object};
use crate::{Error, NewObject, Result, Tx};

/// Dnode blocks looked at for free numbers before a never-used number is taken.
const SCAN_BLOCKS: u64 = 64;

/// Which numbers are free.
pub(super) struct Numbers {
    /// Lowest number never used; everything above is free.
    cursor: u64,
    /// Freed and synced numbers below the cursor.
    reusable: BTreeSet<u64>,
    /// Dnode blocks up to here were searched for free slots.
    scanned: u64,
    /// Dnode blocks that existed when the objset was opened.
    scan_end: u64,
    /// Objects with numbers chosen by others (replay, receive). Their slots may lie in the range that is searched for free
    /// ones.
    chosen: bool,
}

/// Whether an object in memory takes slot `id`.
fn is_taken(objects: &HashMap<ObjectId, Arc<Object>>, id: u64) -> bool {
    let first = id - id % SLOTS_PER_BLOCK as u64;
    let reaches = |at: u64| objects.get(&ObjectId(at)).is_some_and(|o| at + u64::from(o.head().slots) > id);
    (first..=id).any(reaches)
}

impl Numbers {
    /// For an objset with this many dnode blocks.
    pub(super) fn after(blocks: u64) -> Numbers {
        Numbers {
            cursor: (blocks * SLOTS_PER_BLOCK as u64).max(1),
            reusable: BTreeSet::new(),
            scanned: 0,
            scan_end: blocks,
            chosen: false,
        }
    }

    /// Makes the slots of a freed object available again.
    pub(super) fn reuse(&mut self, id: ObjectId, slots: u8) {
        self.reusable.extend(id.0..id.0 + u64::from(slots));
    }
}

impl Objset {
    /// Creates an object under a number that it chooses itself.
    ///
    /// # Errors
    /// If a dnode block must be searched and cannot be read, or no number is left.
    pub fn create_object(&self, tx: &Tx, new: NewObject) -> Result<Arc<Object>> {
        let slots = u64::from(new.slots);
        let found = if slots == 1 { self.reusable()? } else { None };
        let mut inner = self.lock();
        let id = match found {
            Some(id) => id,
            None => {
                let mut at = inner.numbers.cursor;
                let used = at % SLOTS_PER_BLOCK as u64;
                if used + slots > SLOTS_PER_BLOCK as u64 {
                    let skipped = SLOTS_PER_BLOCK as u64 - used;
                    inner.numbers.reusable.extend(at..at + skipped);
                    at += skipped;
                }
                if at + slots > NUMBERS_MAX {
                    return Err(Error::Full("object"));
                }
                inner.numbers.cursor = at + slots;
                at
            }
        };
        let object = Arc::new(Object::new(ObjectId(id), self.shared.clone(), new.head()));
        let before = inner.objects.insert(ObjectId(id), object.clone());
        assert!(before.is_none(), "a free number has no object");
        drop(inner);
        object.touch(tx);
        Ok(object)
    }

    /// Creates object `id`, for the few numbers that are fixed. Only in a new objset.
    ///
    /// # Panics
    /// If the number was given out before.
    pub fn create_object_at(&self, tx: &Tx, id: ObjectId, new: NewObject) -> Arc<Object> {
        let mut inner = self.lock();
        assert!(id.0 >= inner.numbers.cursor, "a fixed number is claimed before others are given out");
        let skipped = inner.numbers.cursor..id.0;
        inner.numbers.reusable.extend(skipped);
        inner.numbers.cursor = id.0 + u64::from(new.slots);
        let object = Arc::new(Object::new(id, self.shared.clone(), new.head()));
        inner.objects.insert(id, object.clone());
        drop(inner);
        object.touch(tx);
        object
    }

    /// Creates object `id`, whose number another system chose (when a log is replayed or a stream received).
    ///
    /// # Errors
    /// [`Error::Exists`] when the number or a slot of it is taken, also by an object freed since the last sync; a
    /// dnode block that cannot be read.
    pub fn create_object_numbered(&self, tx: &Tx, id: ObjectId, new: NewObject) -> Result<Arc<Object>> {
        let slots = u64::from(new.slots);
        let within = id.0 % SLOTS_PER_BLOCK as u64;
        if id.0 == 0 || id.0 >= NUMBERS_MAX || within + slots > SLOTS_PER_BLOCK as u64 {
            return Err(Error::Exists);
        }
        let block = self.meta.block(id.0 / SLOTS_PER_BLOCK as u64)?;
        let mut slot = 0;
        while slot < SLOTS_PER_BLOCK {
            let len = slots_at(&block, slot);
            let taken = block.get(slot * SLOT).is_some_and(|&kind| kind != 0);
            let end = slot as u64 + len as u64;
            if taken && end > within && (slot as u64) < within + slots {
                return Err(Error::Exists);
            }
            slot += len;
        }
        let mut inner = self.lock();
        if (id.0..id.0 + slots).any(|slot| is_taken(&inner.objects, slot)) {
            return Err(Error::Exists);
        }
        inner.numbers.chosen = true;
        if id.0 >= inner.numbers.cursor {
            let skipped = inner.numbers.cursor..id.0;
            if skipped.end - skipped.start <= 1 << 16 {
                inner.numbers.reusable.extend(skipped);
            }
        }
        inner.numbers.cursor = inner.numbers.cursor.max(id.0 + slots);
        for number in id.0..id.0 + slots {
            inner.numbers.reusable.remove(&number);
        }
        let object = Arc::new(Object::new(id, self.shared.clone(), new.head()));
        inner.objects.insert(id, object.clone());
        drop(inner);
        object.touch(tx);
        Ok(object)
    }

    /// A number below the cursor whose slot is free on disk and in memory.
    fn reusable(&self) -> Result<Option<u64>> {
        let mut budget = SCAN_BLOCKS;
        loop {
            let blkid = {
                let mut inner = self.lock();
                while let Some(id) = inner.numbers.reusable.pop_first() {
                    // Inner slots of an object with several slots are not in the table.
                    let taken = inner.objects.contains_key(&ObjectId(id))
                        || inner.numbers.chosen && is_taken(&inner.objects, id);
                    if !taken {
                        return Ok(Some(id));
                    }
                }
                if inner.numbers.scanned == inner.numbers.scan_end || budget == 0 {
                    return Ok(None);
                }
                budget -= 1;
                inner.numbers.scanned += 1;
                inner.numbers.scanned - 1
            };
            let ptr = self.meta.synced_ptr(blkid)?;
            // The fill count is the number of dnodes; a block full of small dnodes need not be read.
            if ptr.fill() == SLOTS_PER_BLOCK as u64 {
                continue;
            }
            let block = self.meta.block(blkid)?;
            let base = blkid * SLOTS_PER_BLOCK as u64;
            let mut inner = self.lock();
            let mut slot = 0;
            while slot < SLOTS_PER_BLOCK {
                let id = base + slot as u64;
                if block.get(slot * SLOT) == Some(&0) && id != 0 && !inner.objects.contains_key(&ObjectId(id))
                {
                    inner.numbers.reusable.insert(id);
                }
                slot += slots_at(&block, slot);
            }
        }
    }
}
