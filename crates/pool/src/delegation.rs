//! Delegated permissions (`zfs allow`). They are stored for OpenZFS, which checks them. Here, the user who runs the server
//! owns the pool.
//!
//! From:   who-keys and names of permissions, judged by the caller.
//! To:     the grants that `dsl` keeps with directories.

use dsl::delegation::{self, Grant};
use dsl::room::Reserve;
use dsl::tree;

use crate::pool::Pool;
use crate::props::names::NAME_MAX;
use crate::{Error, Result};

impl Pool {
    /// The permissions that a file system or volume itself grants, by who-key.
    ///
    /// # Errors
    /// [`crate::Error::NoDataset`], or it cannot be read.
    pub fn grants(&self, name: &str) -> Result<Vec<Grant>> {
        let _shared = self.shared();
        let mos = &self.inner.mos;
        delegation::grants(mos, tree::dir_of(mos, &self.inner.name(), name)?)
    }

    /// Grants more.
    ///
    /// # Errors
    /// [`crate::Error::NoDataset`], [`Error::BadTag`] for a name that is empty or too long, or it cannot be written.
    pub fn allow(&self, name: &str, grants: Vec<Grant>) -> Result<()> {
        for name in grants.iter().flat_map(|grant| grant.names.iter().chain([&grant.key])) {
            if name.is_empty() || name.len() >= NAME_MAX {
                return Err(Error::BadTag(name.clone()));
            }
        }
        let name = name.to_owned();
        self.run_beside(Reserve::Half, 1, move |syncing| {
            let dir = tree::dir_of(syncing.mos(), &syncing.state.config.name, &name)?;
            grants.iter().try_for_each(|grant| syncing.change(|dsl| dsl.allow(dir, grant)))
        })
    }

    /// Removes grants on each of the datasets. A grant without permission names removes all permissions of its who-key.
    ///
    /// # Errors
    /// [`crate::Error::NoDataset`], or it cannot be written.
    pub fn unallow(&self, datasets: Vec<String>, grants: Vec<Grant>) -> Result<()> {
        self.run_beside(Reserve::Half, 1, move |syncing| {
            for name in &datasets {
                let dir = tree::dir_of(syncing.mos(), &syncing.state.config.name, name)?;
                grants.iter().try_for_each(|grant| syncing.change(|dsl| dsl.unallow(dir, grant)))?;
            }
            Ok(())
        })
    }
}
