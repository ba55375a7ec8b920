//! Blocks written to their final places before their txg syncs, because an intent log points at them instead of containing
//! their data.
//!
//! From:   `pool`, which gave them space of the open txg and wrote them.
//! To:     the sync of that txg. It takes a block as it is if the draft of its record was not changed since; those that it
//!         leaves are to be freed.

use std::collections::BTreeMap;

use format::Txg;
use format::blkptr::Block;

use crate::draft::Draft;
use crate::rank::{MutexHeld, RankedMutex};
use crate::{Recipe, Storage};

/// Where a block lies: vdev and offset of its one copy.
type Place = (u32, u64);

/// Blocks written early that no sync has kept or freed yet.
#[derive(Default)]
pub(crate) struct Early {
    blocks: RankedMutex<Blocks>,
}

#[derive(Default)]
struct Blocks {
    /// By place: so the order in which space is freed follows from the pool.
    by_place: BTreeMap<Place, Block>,
    /// Of the records of all of them.
    bytes: u64,
}

fn place(block: &Block) -> Place {
    (block.dvas[0].vdev.0, block.dvas[0].offset)
}

impl Early {
    fn lock(&self) -> MutexHeld<'_, Blocks> {
        self.blocks.lock()
    }
}

impl Storage {
    /// Remembers that the record of `draft`, encoded by `recipe`, is in `block`, which is born in a txg that is not synced
    /// yet.
    pub fn keep_early(&self, draft: &Draft, recipe: Recipe, block: Block) {
        self.waste_early(block);
        *draft.prepare().early() = Some((recipe, block));
    }

    /// Remembers that `block` has a place in a txg that is not synced yet, but not what it should hold.
    ///
    /// # Panics
    /// If another block has this place.
    pub fn waste_early(&self, block: Block) {
        let mut blocks = self.early.lock();
        blocks.bytes += block.lsize;
        let before = blocks.by_place.insert(place(&block), block);
        assert!(before.is_none(), "a place is given to one block");
    }

    /// Bytes of the records that were written early and that no sync has taken or given up yet.
    #[must_use]
    pub fn early_bytes(&self) -> u64 {
        self.early.lock().bytes
    }

    /// Where the record of `draft` was written early, encoded by `recipe`.
    #[must_use]
    pub fn early(&self, draft: &Draft, recipe: Recipe) -> Option<Block> {
        let (known, block) = (*draft.prepared()?.early())?;
        (known == recipe).then_some(block)
    }

    /// As [`Storage::early`], for the sync of `txg`: from now on the block is the caller's.
    #[must_use]
    pub fn take_early(&self, draft: &Draft, recipe: Recipe, txg: Txg) -> Option<Block> {
        let block = self.early(draft, recipe).filter(|block| block.birth == txg)?;
        let mut blocks = self.early.lock();
        let block = blocks.by_place.remove(&place(&block))?;
        blocks.bytes -= block.lsize;
        Some(block)
    }

    /// The blocks born in `txg` that its sync did not use.
    #[must_use]
    pub fn drain_early(&self, txg: Txg) -> Vec<Block> {
        let mut blocks = self.early.lock();
        let mut left = Vec::new();
        blocks.by_place.retain(|_, block| {
            let stays = block.birth != txg;
            if !stays {
                left.push(*block);
            }
            stays
        });
        blocks.bytes -= left.iter().map(|block| block.lsize).sum::<u64>();
        left
    }
}
