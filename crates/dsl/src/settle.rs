//! What a sync wrote of a head, entered into its books.
//!
//! Source: docs/format/06-mos-dsl.md §7.3, §8.

use format::{BlockPtr, ObjectId, Txg};

use crate::bookmark::Freed;
use crate::change::Change;
use crate::sizes::Sizes;
use crate::space::{Category, add_space, move_space};
use crate::{Result, deadlist};

/// What a sync wrote of a head.
pub struct Settled {
    /// Its new root.
    pub root: BlockPtr,
    /// Change of what it refers to.
    pub delta: Sizes,
    /// Change of what only it refers to, in bytes.
    pub unique: i64,
    /// Blocks that it no longer refers to, and a snapshot still does.
    pub dead: Vec<(BlockPtr, Sizes)>,
    /// Blocks that it no longer refers to, as bookmarks count them.
    pub freed: Freed,
}

impl Change<'_> {
    /// Enters a head's new root and sizes.
    ///
    /// # Errors
    /// Objects of the MOS cannot be read.
    pub fn settle_head(&mut self, id: ObjectId, settled: &Settled) -> Result<()> {
        self.settle_sizes(id, settled)?;
        self.settle_bookmarks(id, &settled.freed)
    }

    fn settle_sizes(&mut self, id: ObjectId, settled: &Settled) -> Result<()> {
        let &Settled { root, delta, unique, ref dead, .. } = settled;
        let mos = self.mos();
        let mut phys = mos.dataset(id)?;
        let dir = phys.dir;
        phys.bp = root;
        phys.referenced_bytes = phys.referenced_bytes.wrapping_add_signed(delta.used);
        phys.compressed_bytes = phys.compressed_bytes.wrapping_add_signed(delta.comp);
        phys.uncompressed_bytes = phys.uncompressed_bytes.wrapping_add_signed(delta.uncomp);
        let unique_before = phys.unique_bytes;
        phys.unique_bytes = phys.unique_bytes.wrapping_add_signed(unique);
        let (prev_snap, deadlist, unique_after) = (phys.prev_snap, phys.deadlist, phys.unique_bytes);
        mos.put_dataset(self.tx, id, &phys)?;
        // Blocks kept by a snapshot stay charged to the directory, in another category.
        let kept = dead.iter().fold(Sizes::default(), |sum, (_, sizes)| sum + *sizes);
        add_space(mos, self.tx, dir, Category::Head, delta + kept)?;
        self.keep_promise(dir, unique_before, unique_after)?;
        if dead.is_empty() {
            return Ok(());
        }
        let origin_txg = mos.origin_txg(mos.dir(dir)?.origin)?;
        let mut snap = mos.dataset(prev_snap)?;
        deadlist::insert(mos, &mut *self.features, self.tx, deadlist, dead)?;
        // Of a clone, what its origin already had was never charged to it.
        let charged = |birth: Txg| birth > origin_txg;
        let mut own = 0;
        for (ptr, sizes) in dead {
            let birth = ptr.accounting_birth();
            if snap.next_snap == id && birth > snap.prev_snap_txg {
                snap.unique_bytes = snap.unique_bytes.wrapping_add_signed(sizes.used);
            }
            if charged(birth) {
                own += sizes.used;
            }
        }
        move_space(mos, self.tx, dir, Category::Head, Category::Snap, own)?;
        mos.put_dataset(self.tx, prev_snap, &snap)
    }
}
