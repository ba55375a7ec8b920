//! Updating the accounting of a head after its sync.
//!
//! Source: docs/format/06-mos-dsl.md §7.3, §8.

use format::dsl_dataset::DslDataset;
use format::dsl_dir::DslDir;
use format::{BlockPtr, ObjectId, Txg};

use crate::bookmark::Freed;
use crate::change::Change;
use crate::livelist::Listed;
use crate::sizes::Sizes;
use crate::space::{Category, Shift, add_space, has_breakdown, move_space};
use crate::{Result, deadlist};

/// The result of a head's sync.
pub struct Settled {
    /// Its new root.
    pub root: BlockPtr,
    /// Change of what it refers to.
    pub delta: Sizes,
    /// Change of its unique bytes.
    pub unique: i64,
    /// Freed blocks that a snapshot still refers to.
    pub dead: Vec<(BlockPtr, Sizes)>,
    /// Freed blocks, in the sums of bookmarks.
    pub freed: Freed,
    /// Written and freed blocks of a clone that has a livelist.
    pub listed: Option<Listed>,
}

/// The accounting of a head and its directory.
#[derive(Clone, Copy)]
struct Books {
    head: DslDataset,
    dir: DslDir,
}

/// Asserts that the sums changed by exactly the written blocks. Sums on disk may be wrong already, so only the changes are
/// compared.
fn check_books(before: &Books, after: &Books, settled: &Settled) {
    let grew = |after: u64, before: u64| after.wrapping_sub(before) as i64;
    let (was, is) = (&before.head, &after.head);
    assert_eq!(grew(is.referenced_bytes, was.referenced_bytes), settled.delta.used, "referenced");
    assert_eq!(grew(is.compressed_bytes, was.compressed_bytes), settled.delta.comp, "compressed");
    assert_eq!(grew(is.uncompressed_bytes, was.uncompressed_bytes), settled.delta.uncomp, "uncompressed");
    assert_eq!(grew(is.unique_bytes, was.unique_bytes), settled.unique, "unique");
    if !has_breakdown(&before.dir) {
        return;
    }
    let (was, is) = (&before.dir.used_breakdown, &after.dir.used_breakdown);
    let kept: i64 = settled.dead.iter().map(|(_, sizes)| sizes.used).sum();
    let (head, snap) = (grew(is.head, was.head), grew(is.snap, was.snap));
    assert_eq!(
        head.wrapping_add(snap),
        settled.delta.used.wrapping_add(kept),
        "used by a head and its snapshots"
    );
    let others = [(is.child, was.child), (is.child_rsrv, was.child_rsrv), (is.refrsrv, was.refrsrv)];
    let parts =
        others.iter().fold(head.wrapping_add(snap), |sum, (is, was)| sum.wrapping_add(grew(*is, *was)));
    assert_eq!(grew(after.dir.used_bytes, before.dir.used_bytes), parts, "used by a directory and its parts");
}

impl Change<'_> {
    /// Stores a head's new root and sizes.
    ///
    /// # Errors
    /// Objects of the MOS cannot be read.
    pub fn settle_head(&mut self, id: ObjectId, settled: &Settled) -> Result<()> {
        let before = self.books_of(id)?;
        self.settle_sizes(id, settled)?;
        check_books(&before, &self.books_of(id)?, settled);
        if let Some(listed) = &settled.listed {
            self.settle_livelist(id, before.head.bp.birth(), listed)?;
        }
        self.settle_bookmarks(id, &settled.freed)
    }

    fn books_of(&self, id: ObjectId) -> Result<Books> {
        let head = self.mos().dataset(id)?;
        Ok(Books { head, dir: self.mos().dir(head.dir)? })
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
        // Blocks of a clone's origin were never charged to the clone.
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
        move_space(mos, self.tx, dir, Shift { from: Category::Head, to: Category::Snap, used: own })?;
        mos.put_dataset(self.tx, prev_snap, &snap)
    }
}

#[cfg(test)]
mod tests {
    use format::dsl_dir::USED_BREAKDOWN;

    use super::*;

    /// Books before and after a sync that wrote 4096 bytes, of which 1024 replace what a snapshot keeps.
    fn settled() -> (Books, Books, Settled) {
        let delta = Sizes { used: 3072, comp: 3000, uncomp: 8192 };
        let kept = Sizes { used: 1024, comp: 1000, uncomp: 2048 };
        let dead = vec![(BlockPtr::HOLE, kept)];
        let settled = Settled {
            root: BlockPtr::HOLE,
            delta,
            unique: 4096,
            dead,
            freed: Freed::default(),
            listed: None,
        };
        // A pool may come with sums that are wrong: below zero, here.
        let mut before = Books { head: DslDataset::default(), dir: DslDir::default() };
        before.dir.flags = USED_BREAKDOWN;
        before.head.referenced_bytes = 0_u64.wrapping_sub(512);
        let mut after = before;
        after.head.referenced_bytes = 3072 - 512;
        after.head.compressed_bytes = 3000;
        after.head.uncompressed_bytes = 8192;
        after.head.unique_bytes = 4096;
        after.dir.used_bytes = 4096 - 100;
        after.dir.used_breakdown.head = 3072;
        after.dir.used_breakdown.snap = 1024;
        after.dir.used_breakdown.refrsrv = 0_u64.wrapping_sub(100);
        (before, after, settled)
    }

    #[test]
    fn sizes_that_changed_by_the_written_blocks_are_accepted() {
        let (before, after, settled) = settled();
        check_books(&before, &after, &settled);
    }

    #[test]
    #[should_panic(expected = "unique")]
    fn a_head_whose_unique_bytes_are_off_by_one_stops_the_sync() {
        let (before, mut after, settled) = settled();
        after.head.unique_bytes += 1;
        check_books(&before, &after, &settled);
    }

    #[test]
    #[should_panic(expected = "used by a head and its snapshots")]
    fn blocks_kept_by_a_snapshot_stay_charged() {
        let (before, mut after, settled) = settled();
        after.dir.used_breakdown.snap = 0;
        after.dir.used_bytes -= 1024;
        check_books(&before, &after, &settled);
    }

    #[test]
    #[should_panic(expected = "used by a directory and its parts")]
    fn a_directory_is_charged_for_each_of_its_parts() {
        let (before, mut after, settled) = settled();
        after.dir.used_bytes += 512;
        check_books(&before, &after, &settled);
    }
}
