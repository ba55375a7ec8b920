//! Shares of the live pool: file systems that clients use over the network.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use pool::props::DatasetKind;
use pool::{DatasetInfo, Pool};

use crate::exports::Exported;
use crate::shares::{self, HeldShares, ShareError, ShareTold};
use crate::system_shares::{Protocol, WantedShare};

use super::Live;

/// Shares of the servers of the system.
impl Live {
    /// The shares of the system's servers that the properties of the mounted file systems at and below `top` ask for.
    fn wanted_of_system(&self, pool: &Arc<Pool>, top: &str) -> Vec<WantedShare> {
        if self.shares.is_distrusted() {
            return Vec::new();
        }
        let mounts: HashMap<String, PathBuf> = self.mounts.list().into_iter().collect();
        let mut report = |dataset: String, error: pool::Error| tracing::debug!(dataset, %error, "left out");
        let list = pool.survey(top, None, false, &mut report).unwrap_or_default();
        let of = |info: &DatasetInfo| {
            let point = mounts.get(&info.name)?.clone();
            let (nfs, smb) = shares::wanted_of_system(pool, info);
            let (dataset, guid) = (info.name.clone(), info.phys.guid.0);
            (nfs.is_some() || smb).then_some(WantedShare { dataset, guid, point, nfs, smb })
        };
        list.iter().filter(|info| info.kind == DatasetKind::Filesystem).filter_map(of).collect()
    }

    /// Lets the servers of the system share the file systems at and below `top`, as the properties say. Failures are
    /// kept for [`Live::take_not_shared`].
    pub(super) fn look_at_system(&self, pool: &Arc<Pool>, top: &str) {
        self.shares.note_failed(self.system.look(top, self.wanted_of_system(pool, top)));
    }

    /// As [`Live::look_at_system`], when the server starts; the log says what is not shared, and why.
    pub(super) fn restore_system(&self, pool: &Arc<Pool>) {
        for (dataset, error) in self.system.begin(&self.name, self.wanted_of_system(pool, &self.name)) {
            tracing::warn!(dataset, %error, "not shared");
        }
    }

    /// Makes the servers of the system begin (`true`) or end to share a file system. Returns whether its properties say so.
    fn share_by_system(
        &self,
        pool: &Arc<Pool>,
        dataset: &str,
        is_to_be_shared: bool,
    ) -> Result<bool, ShareError> {
        // An earlier failure may have passed.
        self.system.set_unshared(Some(dataset), None, !is_to_be_shared);
        let failed = self.system.look(dataset, self.wanted_of_system(pool, dataset));
        match failed.into_iter().find(|(name, _)| name == dataset) {
            Some((_, error)) => Err(error),
            None => Ok(self.system.set_unshared(Some(dataset), None, !is_to_be_shared)),
        }
    }

    /// Ends all shares for clients of `protocol`, or of both, until `zfs share`, or until the server starts again.
    pub fn unshare_all(&self, protocol: Option<Protocol>) {
        let list = if protocol == Some(Protocol::Smb) { Vec::new() } else { self.shares.list() };
        for exported in list {
            // Another command may have been quicker.
            let _ = self.shares.stop(&exported.dataset);
        }
        self.system.set_unshared(None, protocol, true);
        if let Ok(pool) = self.pool() {
            // Nothing is to be shared, so this cannot fail.
            self.system.look(&self.name, self.wanted_of_system(&pool, &self.name));
        }
    }
}

impl Live {
    /// Closes the shared file systems at and below `top`, and makes their clients wait until the value is dropped.
    pub fn hold_shares_off(&self, top: &str) -> HeldShares {
        self.shares.hold_off(|name| shares::is_below(name, top))
    }

    /// Shares exactly the file systems whose properties say so, also those that a command unshared: for clients of `protocol`, or
    /// of both. Returns the ones that could not be shared.
    pub fn share_all(&self, protocol: Option<Protocol>) -> Vec<(String, ShareError)> {
        self.system.forget_unshared(protocol);
        let Ok(pool) = self.pool() else { return Vec::new() };
        let mut failed = Vec::new();
        if protocol != Some(Protocol::Smb) {
            self.shares.forget_unshared();
            failed = self.shares.look(&pool, &pool.name());
        }
        failed.extend(self.system.look(&self.name, self.wanted_of_system(&pool, &self.name)));
        failed
    }

    /// The file systems that are shared.
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
        let was_systems = self.system.is_shared(dataset);
        let started = self.shares.start(&pool, dataset, None);
        let is_systems = self.share_by_system(&pool, dataset, true)?;
        match started {
            Err(ShareError::Off | ShareError::System) if was_systems => Err(ShareError::Already),
            Err(ShareError::Off | ShareError::System) if is_systems => Ok(()),
            started => started,
        }
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
        let was_systems = self.system.is_shared(dataset);
        let stopped = self.shares.stop(dataset);
        let Ok(pool) = self.pool() else { return stopped };
        self.share_by_system(&pool, dataset, false)?;
        if was_systems { Ok(()) } else { stopped }
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
