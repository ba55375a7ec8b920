//! Checkpoints as the administrator makes and discards them: `zpool checkpoint`.
//!
//! From:   the command line.
//! To:     the sync thread, which keeps and frees (`sync/checkpoint.rs`).
//! Source: docs/format/12-auxiliary-vdevs.md §6.1, §6.3.

use format::features;

use crate::checkpoint::{Checkpoint, Stage, lacks_place};
use crate::features::Features;
use crate::pool::Pool;
use crate::{Error, Result};

impl Pool {
    /// Keeps the state of the pool as it is now, until it is discarded or returned to.
    ///
    /// # Errors
    /// [`Error::CheckpointExists`], [`Error::DiscardingCheckpoint`], [`Error::NotRemovable`] where the feature is not enabled;
    /// [`Error::ReadOnly`].
    pub fn checkpoint(&self) -> Result<()> {
        self.run(|syncing| {
            syncing.state.keeping.check_none()?;
            syncing.check_not_removing()?;
            syncing.check_not_expanding()?;
            let enabled = |all: &Features| all.is_enabled(&features::ZPOOL_CHECKPOINT);
            if !syncing.state.features.as_ref().is_some_and(enabled) || lacks_place(&syncing.state.config) {
                return Err(Error::NotRemovable);
            }
            syncing.state.keeping.stage = Stage::Wanted;
            Ok(())
        })?;
        // The next txg records that this one is kept.
        self.sync()
    }

    /// Discards the checkpoint. Blocks that only the checkpoint uses are freed in the background.
    ///
    /// # Errors
    /// [`Error::NoCheckpoint`], [`Error::DiscardingCheckpoint`], [`Error::ReadOnly`].
    pub fn discard_checkpoint(&self) -> Result<()> {
        self.run(|syncing| syncing.give_up_checkpoint())
    }

    /// The checkpoint, if there is one or one is being discarded.
    #[must_use]
    pub fn checkpointed(&self) -> Option<Checkpoint> {
        self.inner.info().checkpoint
    }
}
