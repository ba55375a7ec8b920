//! Inputs of the sync of one objset: block I/O, allocation and accounting.

use format::Txg;
use format::blkptr::{Block, BlockPtr, Dva};
use storage::allocator::Want;
use storage::host::Entropy;
use storage::{Guard, Recipe, Storage, WriteError, Writer};

use crate::Result;
use crate::io::BlockIo;
use crate::policy::Policy;

/// Allocation and accounting, implemented by the pool for one dataset or the MOS.
pub trait Space {
    /// Space for a block, in all its places or none.
    ///
    /// # Errors
    /// [`WriteError::NoSpace`], or a space map could not be read.
    fn allocate(&mut self, want: Want) -> Result<[Dva; 3], WriteError>;

    /// Takes back space just allocated, where nothing has been written.
    fn give_back(&mut self, dva: Dva);

    /// `ptr` (embedded or on disk) is referenced from now on.
    fn born(&mut self, ptr: &BlockPtr);

    /// The block of the dedup table with the content of `block`, which is complete but for its place, if there is one in so
    /// many copies.
    ///
    /// # Errors
    /// If the table cannot be read.
    fn find_shared(&mut self, block: &Block, copies: u8) -> Result<Option<Block>>;

    /// Whether the table takes new entries. Where it does not, what is not in it is written like any block.
    fn takes_shared(&self) -> bool;

    /// One reference more to `block`, for which so many copies were wanted: it was found by [`Space::find_shared`], or it is
    /// new and others may refer to it from now on.
    ///
    /// # Errors
    /// If the table cannot be read.
    fn refer(&mut self, block: &Block, copies: u8) -> Result<()>;

    /// `ptr` (embedded or on disk) is no longer referenced by this dataset.
    ///
    /// # Errors
    /// If where it must be recorded cannot be read.
    fn killed(&mut self, ptr: &BlockPtr) -> Result<()>;
}

/// Everything the sync of one objset needs.
pub struct SyncCtx<'a, 'w> {
    /// What the objset reads and writes blocks with.
    pub io: &'a BlockIo,
    /// The syncing txg.
    pub txg: Txg,
    /// Allocation and accounts.
    pub space: &'a mut dyn Space,
    /// The txg's writes.
    pub writer: &'a mut Writer<'w>,
    /// How to write.
    pub policy: Policy,
    /// Sync pass of the MOS, from 1; 0 for datasets. Blocks of the MOS are held back until its last pass and
    /// rewritten in place where they fit.
    pub mos_pass: u32,
    /// Randomness for what blocks are sealed with.
    pub entropy: &'a dyn Entropy,
}

impl<'a> SyncCtx<'a, '_> {
    pub(crate) fn storage(&self) -> &'a Storage {
        self.io.storage()
    }

    /// What protects the next block that is encoded by `recipe`.
    pub(crate) fn guard(&self, recipe: &Recipe) -> Guard<'a> {
        self.io.guard(recipe, self.entropy)
    }
}
