//! What the sync of one objset works with: where blocks go, and who gives space and keeps the accounts.

use format::Txg;
use format::blkptr::{BlockPtr, Dva};
use storage::{Storage, WriteError, Writer};

use crate::Result;
use crate::io::BlockIo;
use crate::policy::Policy;

/// Who gives space and keeps the accounts: the pool, on behalf of one dataset or the MOS.
pub trait Space {
    /// Space for `psize` bytes in `copies` places, all or none.
    ///
    /// # Errors
    /// [`WriteError::NoSpace`], or a space map could not be read.
    fn allocate(&mut self, psize: u64, copies: u8) -> Result<[Dva; 3], WriteError>;

    /// Takes back space just allocated, where nothing has been written.
    fn give_back(&mut self, dva: Dva);

    /// `ptr` (embedded or on disk) is referenced from now on.
    fn born(&mut self, ptr: &BlockPtr);

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
}

impl<'a> SyncCtx<'a, '_> {
    pub(crate) fn storage(&self) -> &'a Storage {
        self.io.storage()
    }
}
