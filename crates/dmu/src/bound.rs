//! Upper bounds of the space that the changes of an open txg take when they are synced.
//!
//! From:   objects, when the open txg changes a record, frees blocks or changes a dnode.
//! To:     [`DirtyBudget`](crate::DirtyBudget). `pool` lets a transaction join a txg only while the bounds of all changes
//!         fit into the free space. So a sync does not run out of space.
//!
//! A block counts with its uncompressed size, rounded up to sectors, times its copies. A record counts once per txg,
//! however often it is changed, and so do the indirect blocks above it and the block that holds its dnode. The MOS
//! counts nothing: the reserve of the pool is for it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use format::dnode::{self, SLOT, SLOTS_PER_BLOCK};
use format::{ObjectId, blkptr};
use storage::Storage;

use crate::head::Head;
use crate::policy::Policy;

/// Most copies of a block.
const COPIES_MAX: u8 = 3;
/// log2 of the bytes of a block pointer.
const POINTER_SHIFT: u32 = blkptr::SIZE.ilog2();
/// Bytes of an indirect block that one block pointer takes, with what incompressible bytes add to compressed blocks.
const POINTER: u64 = 144;
/// Bytes in the MOS for freeing one block: an entry of a deadlist and one of a space map, three copies each.
pub const KILLED: u64 = 3 * (POINTER + 16);
/// Bytes of the root block of an objset.
const ROOT: u64 = 4 << 10;
/// Bytes of a block of an accounting ZAP.
const ACCOUNT_BLOCK: u64 = 16 << 10;
/// Blocks of the accounting ZAPs that one object may change: user, group and project, each by bytes and by objects.
const ACCOUNT_KEYS: u64 = 6;

/// Which blocks of a tree the open txg rewrites besides the records, as (level, index).
pub(crate) type Nodes = BTreeSet<(u8, u64)>;

/// The facts on which the bounds of an objset depend.
#[derive(Debug)]
pub(crate) struct Bound {
    /// Copies of a data block.
    copies: AtomicU8,
    /// New data blocks get entries in a dedup table.
    shares: AtomicBool,
    /// The changes of this objset count.
    counts: bool,
    /// Blocks of the meta-dnode.
    dnode_blocks: AtomicU64,
    /// Blocks of the accounting ZAPs as of the last sync.
    account_blocks: AtomicU64,
}

/// The part of a tree that the open txg reaches.
pub(crate) struct Reach {
    levels: u8,
    /// log2 of the pointers in an indirect block.
    fanout_shift: u32,
    /// Largest number of a block.
    max_blkid: u64,
}

impl Reach {
    /// The tree of an object with `head`, which has `levels` on disk and is to reach to `blkid`.
    pub(crate) fn of(head: &Head, levels: u8, blkid: u64) -> Reach {
        let max_blkid = head.max_blkid.max(blkid);
        let needed = dnode::levels_for(max_blkid, head.nblkptr.into(), head.indirect_shift);
        let fanout_shift = u32::from(head.indirect_shift) - POINTER_SHIFT;
        Reach { levels: levels.max(needed), fanout_shift, max_blkid }
    }

    /// Pointers in the indirect block `index` at `level`, at most.
    fn pointers(&self, level: u8, index: u64) -> u64 {
        let shift = |levels: u8| (self.fanout_shift * u32::from(levels)).min(63);
        let children = (self.max_blkid >> shift(level - 1)) + 1;
        let first = index.checked_shl(self.fanout_shift).unwrap_or(u64::MAX);
        children.saturating_sub(first).min(1 << self.fanout_shift)
    }
}

impl Bound {
    pub(crate) fn new(counts: bool, dnode_blocks: u64) -> Bound {
        Bound {
            copies: AtomicU8::new(COPIES_MAX),
            shares: AtomicBool::new(false),
            counts,
            dnode_blocks: dnode_blocks.into(),
            account_blocks: AtomicU64::new(0),
        }
    }

    pub(crate) fn set_policy(&self, policy: &Policy) {
        self.copies.store(policy.copies, Ordering::Relaxed);
        self.shares.store(policy.dedup.is_some(), Ordering::Relaxed);
    }

    /// Maximal number of table entries (dedup and clones) that a changed data record changes. `has_table`: whether there are
    /// such tables.
    pub(crate) fn entries(&self, is_metadata: bool, has_table: bool) -> u64 {
        if !self.counts || is_metadata {
            return 0;
        }
        u64::from(self.shares.load(Ordering::Relaxed)) + u64::from(has_table)
    }

    pub(crate) fn set_account_blocks(&self, blocks: u64) {
        self.account_blocks.store(blocks, Ordering::Relaxed);
    }

    fn copies(&self, is_metadata: bool) -> u64 {
        let copies = self.copies.load(Ordering::Relaxed) + u8::from(is_metadata);
        copies.min(COPIES_MAX).into()
    }

    /// The bytes of a changed record of `len` bytes, and what it adds to the block above it and to the MOS.
    pub(crate) fn record(&self, storage: &Storage, len: u64, is_metadata: bool) -> u64 {
        if !self.counts {
            return 0;
        }
        let block = storage.vdevs().largest_asize_of(len) * self.copies(is_metadata);
        block + self.pointer()
    }

    /// The bytes that a changed pointer adds to the block above it and to the MOS.
    pub(crate) fn pointer(&self) -> u64 {
        if self.counts { POINTER * self.copies(true) + KILLED } else { 0 }
    }

    /// Entries of tables of shared blocks that a cloned block changes: its own, and that of the block that it replaces.
    pub(crate) fn cloned(&self, has_table: bool) -> u64 {
        if self.counts { 1 + u64::from(has_table) } else { 0 }
    }

    /// The bytes of one metadata block of `len` bytes.
    fn metadata(&self, storage: &Storage, len: u64) -> u64 {
        storage.vdevs().largest_asize_of(len) * self.copies(true) + KILLED
    }

    /// The bytes of the indirect blocks above block `blkid` that are not in `nodes` yet.
    pub(crate) fn path(&self, storage: &Storage, nodes: &mut Nodes, reach: &Reach, blkid: u64) -> u64 {
        if !self.counts {
            return 0;
        }
        let mut bytes = 0;
        for level in 1..reach.levels {
            let index = blkid >> (reach.fanout_shift * u32::from(level)).min(63);
            if !nodes.insert((level, index)) {
                break;
            }
            let whole = 1 << (reach.fanout_shift + POINTER_SHIFT);
            let sector = storage.vdevs().max_alloc();
            let filled = POINTER * reach.pointers(level, index) + sector;
            bytes += self.metadata(storage, filled.min(whole));
        }
        bytes
    }

    /// The bytes that the dnode of object `id` takes with the blocks above it that are not in `nodes` yet, and what the
    /// object adds to the accounting ZAPs. `listed`: objects that the txg changes besides.
    pub(crate) fn dnode(&self, storage: &Storage, nodes: &mut Nodes, id: ObjectId, listed: u64) -> u64 {
        if !self.counts {
            return 0;
        }
        let mut bytes = 0;
        if listed == 0 {
            bytes += self.metadata(storage, ROOT);
        }
        if ACCOUNT_KEYS * listed < self.account_blocks.load(Ordering::Relaxed) + ACCOUNT_KEYS {
            bytes += ACCOUNT_KEYS * self.metadata(storage, ACCOUNT_BLOCK);
        }
        let blkid = id.0 / SLOTS_PER_BLOCK as u64;
        if nodes.insert((0, blkid)) {
            let known = self.dnode_blocks.fetch_max(blkid + 1, Ordering::Relaxed);
            let reach = Reach {
                levels: dnode::META_LEVELS,
                fanout_shift: u32::from(dnode::MAX_INDIRECT_SHIFT) - POINTER_SHIFT,
                max_blkid: known.max(blkid + 1) - 1,
            };
            bytes += self.record(storage, (SLOT * SLOTS_PER_BLOCK) as u64, true);
            bytes += self.path(storage, nodes, &reach, blkid);
        }
        bytes
    }

    /// Bytes in the MOS for freeing `blocks` blocks.
    pub(crate) fn killed(&self, blocks: u64) -> u64 {
        if self.counts { blocks.saturating_mul(KILLED) } else { 0 }
    }
}
