//! Adding blocks without references to the lists that the next txgs free.
//!
//! From:   lists of blocks (of snapshots and clones), and whole trees (of file systems and of what a rollback undoes).
//! To:     `pool`, which frees a bounded part with each txg, so that no caller waits long for a txg.
//! Source: docs/format/06-mos-dsl.md §1 (`free_bpobj`), §7.4, §7.5, §9.3, §9.4.

use format::blkptr::BlockPtr;
use format::bptree::Entry;
use format::{ObjectId, Txg, features};
use storage::Storage;

use crate::change::{Change, Effect};
use crate::mos::Mos;
use crate::sizes::Sizes;
use crate::space::{Category, add_space};
use crate::walk::{self, Item, Root, Walk};
use crate::{Error, Result, bpobj, bptree, livelist, tree};

/// The directory `$FREE`, which is charged for blocks that wait to be freed.
///
/// # Errors
/// There is none, or it cannot be read.
pub fn dir(mos: &Mos) -> Result<ObjectId> {
    tree::child(mos, tree::root_dir(mos)?, "$FREE")?.ok_or_else(|| Error::Damaged {
        pool: String::new(),
        why: "there is no directory '$FREE'".to_owned(),
    })
}

/// The blocks of a tree that were born after `since`, children first.
pub fn blocks_of(storage: &Storage, root: &BlockPtr, since: Txg) -> impl Iterator<Item = Result<BlockPtr>> {
    Walk::children_first(storage, &of_destroyed(root, since)).filter_map(|item| match item {
        Item::Block(_, block) => Some(Ok(BlockPtr::Block(block))),
        Item::Embedded(..) => None,
        Item::Unreadable(place, why) => Some(Err(unreadable(&place, &why))),
    })
}

impl Change<'_> {
    /// Whether trees are freed in parts (feature `async_destroy`). Without it, one txg frees all blocks.
    fn frees_in_parts(&self) -> bool {
        self.enables(&features::ASYNC_DESTROY)
    }

    /// Checks that [`Change::free_tree`] may be called. If all blocks are freed at once, all of them must be readable.
    /// Otherwise the blocks freed before an unreadable one could be reused while the dataset still refers to them.
    pub(crate) fn check_freeable(&self, root: &BlockPtr, since: Txg) -> Result<()> {
        if self.frees_in_parts() {
            return bptree::check_room(self.mos());
        }
        for item in Walk::new(self.view.storage, &[of_destroyed(root, since)]) {
            match item {
                Item::Block(_, block) if block.is_gang() => drop(self.view.storage.extents(&block)?),
                Item::Block(..) | Item::Embedded(..) => {}
                Item::Unreadable(place, why) => return Err(unreadable(&place, &why)),
            }
        }
        Ok(())
    }

    /// Frees the blocks of the destroyed clone in directory `dir` by its livelist. Returns `false` if the clone has no list, or one that
    /// is wrong. `charged` are the sums of the blocks, which the caller has subtracted from the clone's charges.
    pub(crate) fn free_listed(&mut self, dir: ObjectId, charged: Sizes) -> Result<bool> {
        let mos = self.mos();
        let Some(list) = livelist::of(mos, dir)? else { return Ok(false) };
        let sums = livelist::totals(mos, list);
        // Embedded blocks are not listed.
        let is_right = |sums: &Sizes| {
            (sums.used, sums.comp) == (charged.used, charged.comp) && sums.uncomp <= charged.uncomp
        };
        let Some(sums) = sums.ok().filter(is_right) else {
            tracing::warn!(
                ?charged,
                "the livelist of a clone is not the clone's: the clone is freed by a walk"
            );
            self.drop_livelist(dir)?;
            return Ok(false);
        };
        self.queue_livelist(dir, list)?;
        add_space(mos, self.tx, self::dir(mos)?, Category::Head, sums)?;
        self.effects.push(Effect::Waiting);
        Ok(true)
    }

    /// Frees every block below an objset's root that was born after `since`. `sizes` are their sums, which the caller has
    /// subtracted from the dataset's charges.
    pub(crate) fn free_tree(&mut self, root: &BlockPtr, since: Txg, sizes: Sizes) -> Result<()> {
        if root.is_hole() {
            return Ok(());
        }
        if !self.frees_in_parts() {
            self.effects.push(Effect::TreeFreed { root: *root, since });
            return Ok(());
        }
        let mos = self.mos();
        let entry = Entry { root: *root, since, mark: None };
        if let Some(features) = self.features.as_mut() {
            bptree::add(mos, features, self.tx, &entry, sizes)?;
        }
        add_space(mos, self.tx, dir(mos)?, Category::Head, sizes)?;
        self.effects.push(Effect::Waiting);
        Ok(())
    }
}

/// Bytes that wait to be freed.
pub fn waiting(mos: &Mos) -> Result<u64> {
    let listed = mos.directory_object("free_bpobj")?.map(|list| bpobj::totals(mos, list)).transpose()?;
    let sizes = listed.unwrap_or_default() + bptree::totals(mos)? + livelist::waiting(mos)?;
    Ok(sizes.used.max(0) as u64)
}

fn of_destroyed(root: &BlockPtr, since: Txg) -> Root {
    walk::destroyed(&Entry { root: *root, since, mark: None })
}

fn unreadable(place: &walk::Place, why: &str) -> Error {
    Error::Unfreeable { place: place.to_string(), why: why.to_owned() }
}
