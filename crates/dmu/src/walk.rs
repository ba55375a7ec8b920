//! Walking the tree of an object. Only this module follows the pointers in indirect blocks.
//!
//! From:   a dnode, or one pointer in its tree.
//! To:     a visitor in a loop of its own. [`Walk::next`] gives one pointer after another, depth first and in the order of
//!         the file. The visitor skips the pointer, or reads the block and lets the walk [enter](Walk::enter) it. So the
//!         visitor handles read-ahead, damage and skipped parts.
//!
//! One indirect block per level is in memory, however large the object is.
//! Source: docs/format/03-dmu.md §5.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use format::blkptr::{Block, BlockPtr, SIZE as PTR};
use format::dnode::Dnode;
use format::{ByteOrder, Corrupt, Txg};
use storage::Record;

/// Position of a pointer in the tree of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// Level of the block that it leads to; 0 holds data.
    pub level: u8,
    /// Number of that block at its level.
    pub index: u64,
}

impl Spot {
    /// The blocks of level 0 at or below, in a tree whose indirect blocks hold `1 << fanout_shift` pointers.
    #[must_use]
    pub fn blocks(self, fanout_shift: u32) -> Range<u128> {
        // Far above all numbers of blocks, which have 64 bits.
        let span = (fanout_shift * u32::from(self.level)).min(63);
        let first = u128::from(self.index) << span;
        first..first + (1 << span)
    }
}

/// One step of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A pointer. The pointers below it follow if the visitor enters it.
    At(Spot, BlockPtr),
    /// All that is below an entered pointer was handed out.
    Left(Spot, BlockPtr),
}

/// Where pointers come from.
#[derive(Clone, Debug)]
enum Pointers {
    Dnode(Arc<Dnode>),
    One(BlockPtr),
    Indirect(Record),
}

impl Pointers {
    fn get(&self, slot: usize) -> Option<Result<BlockPtr, Corrupt>> {
        match self {
            Pointers::Dnode(dnode) => dnode.block_ptrs.get(slot).copied().map(Ok),
            Pointers::One(ptr) => (slot == 0).then_some(Ok(*ptr)),
            Pointers::Indirect(record) => {
                let raw = record.get(slot * PTR..(slot + 1) * PTR)?;
                Some(BlockPtr::decode(raw, ByteOrder::Little))
            }
        }
    }
}

/// Pointers of one level that are handed out one after another.
#[derive(Clone, Debug)]
struct Frame {
    pointers: Pointers,
    /// The place of the first of them.
    first: Spot,
    /// The next one.
    slot: usize,
    /// The pointer that was entered.
    entered: Option<(Spot, BlockPtr)>,
}

/// A walk through the tree of an object.
#[derive(Clone, Debug)]
pub struct Walk {
    fanout_shift: u32,
    frames: Vec<Frame>,
    /// First block of level 0 that is wanted.
    from: u64,
}

impl Walk {
    /// Through the whole tree of `dnode`.
    #[must_use]
    pub fn new(dnode: Arc<Dnode>) -> Walk {
        Walk::starting_at(dnode, 0)
    }

    /// Through the tree of `dnode`, without what comes before block `from` of level 0.
    #[must_use]
    pub fn starting_at(dnode: Arc<Dnode>, from: u64) -> Walk {
        let first = Spot { level: dnode.levels - 1, index: 0 };
        let mut frames = Vec::with_capacity(dnode.levels.into());
        let fanout_shift = dnode.fanout_shift();
        let slot = Walk::slot_of(from, first, fanout_shift);
        frames.push(Frame { pointers: Pointers::Dnode(dnode), first, slot, entered: None });
        Walk { fanout_shift, frames, from }
    }

    /// Walks the tree below `ptr`, which stands at `spot`.
    #[must_use]
    pub fn below(fanout_shift: u32, spot: Spot, ptr: BlockPtr) -> Walk {
        let frame = Frame { pointers: Pointers::One(ptr), first: spot, slot: 0, entered: None };
        Walk { fanout_shift, frames: vec![frame], from: 0 }
    }

    /// The slot of the pointer that leads to block `from`, of those that begin at `first`.
    fn slot_of(from: u64, first: Spot, fanout_shift: u32) -> usize {
        let span = fanout_shift * u32::from(first.level);
        let index = from.checked_shr(span).unwrap_or(0);
        usize::try_from(index.saturating_sub(first.index)).unwrap_or(usize::MAX)
    }

    /// Continues below the pointer `ptr`, which [`Walk::next`] returned last, into its indirect block `record`.
    ///
    /// # Panics
    /// If the pointer leads to a block of level 0.
    pub fn enter(&mut self, spot: Spot, ptr: BlockPtr, record: Record) {
        let first = first_below(spot, self.fanout_shift);
        let slot = Walk::slot_of(self.from, first, self.fanout_shift);
        self.frames.push(Frame {
            pointers: Pointers::Indirect(record),
            first,
            slot,
            entered: Some((spot, ptr)),
        });
    }

    /// Numbers of the blocks at or below `spot`.
    pub(crate) fn blocks_at(&self, spot: Spot) -> Range<u128> {
        spot.blocks(self.fanout_shift)
    }

    /// Whether block `blkid` of level 0 is at or below `spot`.
    #[must_use]
    pub fn leads_to(&self, spot: Spot, blkid: u64) -> bool {
        spot.blocks(self.fanout_shift).contains(&blkid.into())
    }
}

impl Iterator for Walk {
    type Item = Result<Step, Corrupt>;

    /// The next pointer, or the end of the pointers below one. After a pointer that cannot be decoded the walk can
    /// continue.
    fn next(&mut self) -> Option<Result<Step, Corrupt>> {
        loop {
            let frame = self.frames.last_mut()?;
            if let Some(ptr) = frame.pointers.get(frame.slot) {
                let Spot { level, index } = frame.first;
                let spot = Spot { level, index: index.saturating_add(frame.slot as u64) };
                frame.slot += 1;
                return Some(ptr.map(|ptr| Step::At(spot, ptr)));
            }
            if let Some((spot, ptr)) = self.frames.pop().and_then(|frame| frame.entered) {
                return Some(Ok(Step::Left(spot, ptr)));
            }
        }
    }
}

/// The pointers in the indirect block `record` at `spot`, with their own places, for a visitor that keeps them all.
///
/// # Errors
/// A pointer cannot be decoded; those behind it follow.
pub fn pointers_in(
    spot: Spot,
    fanout_shift: u32,
    record: &[u8],
) -> impl Iterator<Item = Result<(Spot, BlockPtr), Corrupt>> {
    let first = first_below(spot, fanout_shift);
    let placed = move |(slot, raw)| {
        let spot = Spot { index: first.index.saturating_add(slot), ..first };
        BlockPtr::decode(raw, ByteOrder::Little).map(|ptr| (spot, ptr))
    };
    (0..).zip(record.chunks_exact(PTR)).map(placed)
}

/// Position of the first pointer in the indirect block at `spot`.
fn first_below(spot: Spot, fanout_shift: u32) -> Spot {
    assert!(spot.level > 0, "pointers are in indirect blocks");
    Spot { level: spot.level - 1, index: spot.index.checked_shl(fanout_shift).unwrap_or(u64::MAX) }
}

/// A block's place on disk and its birth, because another block may be written to the same place later.
pub(crate) type Key = (u32, u64, Txg);

/// The identity of a block.
pub(crate) fn key(block: &Block) -> Key {
    (block.dvas[0].vdev.0, block.dvas[0].offset, block.physical_birth())
}

/// The indirect blocks that were opened. Each may be referenced once only. Otherwise a damaged tree of a few blocks could
/// seem to contain any number of blocks.
#[derive(Debug, Default)]
pub struct Opened(HashSet<Key>);

impl Opened {
    /// Notes that `block` is opened. Whether this is the first time.
    #[must_use]
    pub fn is_first(&mut self, block: &Block) -> bool {
        self.0.insert(key(block))
    }
}

#[cfg(test)]
mod tests {
    use format::ObjectType;
    use format::blkptr::Dva;

    use super::*;

    /// A pointer that differs from all others.
    fn ptr(level: u8, number: u64) -> BlockPtr {
        let dva = Dva { asize: 512, offset: number << 9, ..Dva::default() };
        let dvas = [dva, Dva::default(), Dva::default()];
        let plain = Block::plain(ObjectType::PLAIN_FILE_CONTENTS, Txg(number));
        BlockPtr::Block(Block { level, dvas, lsize: 512, psize: 512, ..plain })
    }

    /// Three levels of two pointers each: blocks 0 to 3 hold data.
    fn indirect(level: u8, index: u64) -> Record {
        let numbers = [index * 2, index * 2 + 1];
        Arc::new(numbers.into_iter().flat_map(|n| ptr(level - 1, n + 1).encode(ByteOrder::Little)).collect())
    }

    fn walked(mut walk: Walk) -> Vec<(char, u8, u64)> {
        let mut found = Vec::new();
        while let Some(step) = walk.next() {
            match step.expect("good") {
                Step::At(spot, ptr) => {
                    found.push(('+', spot.level, spot.index));
                    if spot.level > 0 {
                        walk.enter(spot, ptr, indirect(spot.level, spot.index));
                    }
                }
                Step::Left(spot, _) => found.push(('-', spot.level, spot.index)),
            }
        }
        found
    }

    #[test]
    fn a_walk_goes_depth_first_and_says_when_it_leaves() {
        let walk = Walk::below(1, Spot { level: 2, index: 0 }, ptr(2, 1));
        let wanted = [
            ('+', 2, 0),
            ('+', 1, 0),
            ('+', 0, 0),
            ('+', 0, 1),
            ('-', 1, 0),
            ('+', 1, 1),
            ('+', 0, 2),
            ('+', 0, 3),
            ('-', 1, 1),
            ('-', 2, 0),
        ];
        assert_eq!(walked(walk), wanted);
    }

    #[test]
    fn a_walk_that_starts_in_the_middle_leaves_out_what_comes_before() {
        let mut walk = Walk::below(1, Spot { level: 2, index: 0 }, ptr(2, 1));
        walk.from = 3;
        assert_eq!(
            walked(walk),
            [('+', 2, 0), ('+', 1, 1), ('+', 0, 3), ('-', 1, 1), ('-', 2, 0)],
            "block 3 and what leads there"
        );
    }

    #[test]
    fn the_blocks_below_a_pointer_are_a_range() {
        assert_eq!(Spot { level: 0, index: 7 }.blocks(10), 7..8);
        assert_eq!(Spot { level: 2, index: 1 }.blocks(10), 1 << 20..2 << 20);
        // Impossible, and still a range.
        let far = Spot { level: 255, index: u64::MAX }.blocks(10);
        assert!(far.start < far.end);
    }
}
