//! Inputs of the sync of one objset: block I/O, allocation and accounting.

use format::Txg;
use format::blkptr::{Block, BlockPtr, Dva};
use storage::allocator::Want;
use storage::host::Entropy;
use storage::{Guard, Recipe, Storage, WriteError, Writer};

use crate::Result;
use crate::io::BlockIo;
use crate::policy::Policy;

/// Reads what [`Space::find_shared`] will need for a block that is complete but for its place, so that the sync thread finds it in memory. It
/// is called on other threads. A part of the table that cannot be read is left to the sync thread.
pub type LookAhead = Box<dyn Fn(&Block) + Send + Sync>;

/// Allocation and accounting, implemented by the pool for one dataset or the MOS.
pub trait Space {
    /// Allocates a block: all its copies or none.
    ///
    /// # Errors
    /// [`WriteError::NoSpace`], or a space map could not be read.
    fn allocate(&mut self, want: Want) -> Result<[Dva; 3], WriteError>;

    /// Frees just allocated space where nothing was written.
    fn give_back(&mut self, dva: Dva);

    /// Counts a new reference to `ptr` (embedded or on disk).
    fn born(&mut self, ptr: &BlockPtr);

    /// Finds a block of the dedup table with the content of `block` in this many copies. `block` has all its fields except
    /// its DVAs.
    ///
    /// # Errors
    /// If the table cannot be read.
    fn find_shared(&mut self, block: &Block, copies: u8) -> Result<Option<Block>>;

    /// Prefetcher for dedup look-ups, if they read from disk.
    fn look_ahead(&self) -> Option<LookAhead> {
        None
    }

    /// Whether the table takes `block`, which was not found in it. Where it does not, the block is written like any other.
    fn takes_shared(&self, block: &Block, copies: u8) -> bool;

    /// Adds one reference to `block`, which was written with this many copies. [`Space::find_shared`] found it, or it is new
    /// and gets an entry.
    ///
    /// # Errors
    /// If the table cannot be read.
    fn refer(&mut self, block: &Block, copies: u8) -> Result<()>;

    /// Removes this dataset's reference to `ptr` (embedded or on disk).
    ///
    /// # Errors
    /// If the list that must record it cannot be read.
    fn killed(&mut self, ptr: &BlockPtr) -> Result<()>;
}

/// Inputs of the sync of one objset.
pub struct SyncCtx<'a, 'w> {
    /// Block I/O of the objset.
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
    /// Entropy for salts and initialisation vectors.
    pub entropy: &'a dyn Entropy,
}

impl<'a> SyncCtx<'a, '_> {
    pub(crate) fn storage(&self) -> &'a Storage {
        self.io.storage()
    }

    /// Encryption parameters of the next block that is encoded by `recipe`.
    pub(crate) fn guard(&self, recipe: &Recipe) -> Guard<'a> {
        self.io.guard(recipe, self.entropy)
    }
}
