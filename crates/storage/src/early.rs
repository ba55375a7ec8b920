//! Blocks that are where they belong before their txg is synced: an intent log wanted their data on the disks, and
//! points there instead of keeping a copy.
//!
//! From:   `pool`, which gave them space of the open txg and wrote them.
//! To:     the sync of that txg. It takes a block as it is if its record did not change since (one that changed is another
//!         record); those that it leaves are to be freed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use format::Txg;
use format::blkptr::Block;

use crate::{Recipe, Record, Storage};

struct Slot {
    /// Held, so that its address stays its own.
    record: Record,
    recipe: Recipe,
    block: Block,
}

/// Blocks written early.
#[derive(Default)]
pub(crate) struct Early {
    blocks: Mutex<Blocks>,
}

#[derive(Default)]
struct Blocks {
    /// By the address of their record.
    slots: HashMap<usize, Slot>,
    /// Nobody will take these.
    wasted: Vec<Block>,
    /// Of all of them.
    bytes: u64,
}

impl Slot {
    fn holds(&self, record: &Record, recipe: Recipe) -> bool {
        Arc::ptr_eq(&self.record, record) && self.recipe == recipe
    }
}

fn address(record: &Record) -> usize {
    Arc::as_ptr(record) as usize
}

impl Early {
    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().expect("no code panics while holding the blocks written early")
    }
}

impl Storage {
    /// Remembers that `record`, encoded by `recipe`, is in `block`, which is born in a txg that is not synced yet.
    pub fn keep_early(&self, record: Record, recipe: Recipe, block: Block) {
        let mut blocks = self.early.lock();
        blocks.bytes += block.lsize;
        let before = blocks.slots.insert(address(&record), Slot { record, recipe, block });
        blocks.wasted.extend(before.map(|slot| slot.block));
    }

    /// Remembers that `block` has a place in a txg that is not synced yet, but not what it should hold.
    pub fn waste_early(&self, block: Block) {
        let mut blocks = self.early.lock();
        blocks.bytes += block.lsize;
        blocks.wasted.push(block);
    }

    /// Bytes of the records that were written early and that no sync has taken or given up yet.
    #[must_use]
    pub fn early_bytes(&self) -> u64 {
        self.early.lock().bytes
    }

    /// Where `record` was written early, encoded by `recipe`.
    #[must_use]
    pub fn early(&self, record: &Record, recipe: Recipe) -> Option<Block> {
        let blocks = self.early.lock();
        blocks.slots.get(&address(record)).filter(|slot| slot.holds(record, recipe)).map(|slot| slot.block)
    }

    /// As [`Storage::early`], for the sync of `txg`: from now on the block is the caller's.
    #[must_use]
    pub fn take_early(&self, record: &Record, recipe: Recipe, txg: Txg) -> Option<Block> {
        let mut blocks = self.early.lock();
        let at = address(record);
        blocks.slots.get(&at).filter(|slot| slot.holds(record, recipe) && slot.block.birth == txg)?;
        let block = blocks.slots.remove(&at)?.block;
        blocks.bytes -= block.lsize;
        Some(block)
    }

    /// The blocks born in `txg` that its sync did not take.
    #[must_use]
    pub fn drain_early(&self, txg: Txg) -> Vec<Block> {
        let mut blocks = self.early.lock();
        let mut left: Vec<Block> = blocks.wasted.extract_if(.., |block| block.birth == txg).collect();
        left.extend(blocks.slots.extract_if(|_, slot| slot.block.birth == txg).map(|(_, slot)| slot.block));
        blocks.bytes -= left.iter().map(|block| block.lsize).sum::<u64>();
        // The order in which space is freed follows from the pool, not from addresses.
        left.sort_by_key(|block| (block.dvas[0].vdev.0, block.dvas[0].offset));
        left
    }
}
