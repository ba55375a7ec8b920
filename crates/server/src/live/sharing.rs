//! Shares of the live pool: file systems that clients use over the network.

use crate::exports::Exported;
use crate::shares::{self, HeldShares, ShareError, ShareTold};

use super::Live;

impl Live {
    /// Closes the shared file systems at and below `top`, and makes their clients wait until the value is dropped.
    pub fn hold_shares_off(&self, top: &str) -> HeldShares {
        self.shares.hold_off(|name| shares::is_below(name, top))
    }

    /// Shares exactly the file systems whose property `sharenfs` says so, also those that a command unshared. Returns the
    /// ones that could not be shared.
    pub fn share_all(&self) -> Vec<(String, ShareError)> {
        self.shares.forget_unshared();
        self.pool().map_or_else(|_| Vec::new(), |pool| self.shares.look(&pool, &pool.name()))
    }

    /// What is shared.
    #[must_use]
    pub fn shares(&self) -> Vec<Exported> {
        self.shares.list()
    }

    /// The file systems that could not be shared since properties changed.
    #[must_use]
    pub fn take_not_shared(&self) -> Vec<(String, ShareError)> {
        self.shares.take_failed()
    }

    /// Whether the property of a dataset says that it is not shared.
    #[must_use]
    pub fn is_share_off(&self, dataset: &str) -> bool {
        self.pool().is_ok_and(|pool| shares::is_off(&pool, dataset))
    }

    /// Shares one file system.
    ///
    /// # Errors
    /// Why not.
    pub fn share(&self, dataset: &str) -> Result<(), ShareError> {
        let pool = self.pool().map_err(|_| pool::Error::Suspended)?;
        if self.shares.is_shared(dataset) {
            return Err(ShareError::Already);
        }
        self.shares.start(&pool, dataset, None)
    }

    /// Shares a file system now, and whenever the server starts, until [`Live::unshare_for_good`].
    ///
    /// # Errors
    /// Why not.
    pub fn share_as(&self, dataset: &str, told: &ShareTold) -> Result<Exported, ShareError> {
        let pool = self.pool().map_err(|_| pool::Error::Suspended)?;
        self.shares.start_as(&pool, dataset, told)
    }

    /// Ends the share of a file system until `zfs share`, or until the server starts again.
    ///
    /// # Errors
    /// [`ShareError::NotShared`].
    pub fn unshare(&self, dataset: &str) -> Result<(), ShareError> {
        self.shares.stop(dataset)
    }

    /// Ends the share of a file system for good. Returns whether it was shared.
    ///
    /// # Errors
    /// The property is not stored.
    pub fn unshare_for_good(&self, dataset: &str) -> Result<bool, ShareError> {
        let pool = self.pool().map_err(|_| pool::Error::Suspended)?;
        self.shares.stop_for_good(&pool, dataset)
    }
}
