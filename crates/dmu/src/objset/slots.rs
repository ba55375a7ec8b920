//! The slots of dnode blocks.

use std::collections::{BTreeSet, VecDeque};

use format::dnode::{Dnode, SLOT, SLOTS_PER_BLOCK};
use format::{ByteOrder, ObjectId};

use super::Objset;
use crate::object::{NUMBERS_MAX, Trail};
use crate::{Error, Result};

impl Objset {
    pub(super) fn read_dnode(&self, id: ObjectId) -> Result<Option<Dnode>> {
        if id.0 == 0 || id.0 >= NUMBERS_MAX {
            return Ok(None);
        }
        let wanted = (id.0 % SLOTS_PER_BLOCK as u64) as usize;
        let block = self.meta.block(id.0 / SLOTS_PER_BLOCK as u64)?;
        let mut slot = 0;
        // Slots inside a larger dnode hold its pointers and bonus and must not be taken for dnodes.
        while slot < wanted {
            slot += slots_at(&block, slot);
        }
        if slot != wanted {
            return Ok(None);
        }
        Dnode::decode(&block[slot * SLOT..], ByteOrder::Little).map_err(Error::corrupt(id))
    }

    /// All objects on disk, in order; objects created since the last sync are not among them.
    ///
    /// # Errors
    /// The iterator yields an error for a dnode block that cannot be read, and then continues.
    pub fn synced_objects(&self) -> impl Iterator<Item = Result<(ObjectId, Dnode)>> + '_ {
        self.synced_objects_from(ObjectId(0))
    }

    /// As [`Objset::synced_objects`], those from number `first` on.
    ///
    /// # Errors
    /// The iterator yields an error for a dnode block that cannot be read, and then continues.
    pub fn synced_objects_from(
        &self,
        first: ObjectId,
    ) -> impl Iterator<Item = Result<(ObjectId, Dnode)>> + '_ {
        let mut next = Some(first.0 / SLOTS_PER_BLOCK as u64);
        let meta = self.meta.synced();
        let mut trail = Trail::default();
        let mut pending: VecDeque<Result<(ObjectId, Dnode)>> = Default::default();
        std::iter::from_fn(move || {
            loop {
                if let Some(item) = pending.pop_front() {
                    if item.as_ref().is_ok_and(|(id, _)| *id < first) {
                        continue;
                    }
                    return Some(item);
                }
                let dnode = meta.as_ref()?;
                let blkid = match self.meta.next_in(dnode, next?, &mut trail) {
                    Ok(found) => found?,
                    Err(error) => {
                        next = None;
                        return Some(Err(error));
                    }
                };
                next = Some(blkid + 1);
                match self.meta.block(blkid) {
                    Ok(block) => pending.extend(dnodes_in(blkid, &block)),
                    Err(error) => return Some(Err(error)),
                }
            }
        })
    }

    /// Numbers of the objects in `first..end`, on disk or not yet.
    ///
    /// # Errors
    /// If a dnode block cannot be read.
    pub fn numbers_between(&self, first: u64, end: u64) -> Result<Vec<ObjectId>> {
        let wanted = |id: &ObjectId| (first..end).contains(&id.0);
        let mut found: BTreeSet<ObjectId> = self.lock().objects.keys().copied().filter(wanted).collect();
        let Some(dnode) = self.meta.synced() else { return Ok(found.into_iter().collect()) };
        let (mut next, mut trail) = (first / SLOTS_PER_BLOCK as u64, Trail::default());
        while let Some(blkid) = self.meta.next_in(&dnode, next, &mut trail)? {
            if blkid * SLOTS_PER_BLOCK as u64 >= end {
                break;
            }
            for entry in dnodes_in(blkid, &self.meta.block(blkid)?) {
                found.extend(Some(entry?.0).filter(wanted));
            }
            next = blkid + 1;
        }
        Ok(found.into_iter().collect())
    }
}

/// Number of slots of the dnode that starts at `slot`; 1 for a free slot.
pub(crate) fn slots_at(block: &[u8], slot: usize) -> usize {
    let at = slot * SLOT;
    match (block.get(at), block.get(at + 0x0c)) {
        (Some(&kind), Some(&extra)) if kind != 0 => usize::from(extra) + 1,
        _ => 1,
    }
}

fn dnodes_in(blkid: u64, block: &[u8]) -> Vec<Result<(ObjectId, Dnode)>> {
    let mut found = Vec::new();
    let mut slot = 0;
    while slot < SLOTS_PER_BLOCK && (slot + 1) * SLOT <= block.len() {
        let id = ObjectId(blkid * SLOTS_PER_BLOCK as u64 + slot as u64);
        match Dnode::decode(&block[slot * SLOT..], ByteOrder::Little) {
            Ok(Some(dnode)) => found.push(Ok((id, dnode))),
            Ok(None) => {}
            Err(source) => found.push(Err(Error::Corrupt { object: id, source })),
        }
        slot += slots_at(block, slot);
    }
    found
}
