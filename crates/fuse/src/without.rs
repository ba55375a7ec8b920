//! The replacement for mounting in a build without the feature `mount`: every mount is refused.
//!
//! From:   the server, which is given the same front end in both builds.
//! To:     [`MountError::NotBuilt`].

use std::path::Path;
use std::sync::Arc;

use front::{MountError, MountOptions, MountPoint, Mounted, Mounter, Unavailable};
use zpl::Filesystem;

use crate::Fuse;

/// Nothing can be mounted.
///
/// # Errors
/// [`Unavailable::NotBuilt`], always.
pub fn check_available() -> Result<(), Unavailable> {
    Err(Unavailable::NotBuilt)
}

impl Mounter for Fuse {
    fn mount_on(
        &self,
        _: Filesystem,
        _: &MountPoint,
        _: &MountOptions,
    ) -> Result<Arc<dyn Mounted>, MountError> {
        Err(MountError::NotBuilt)
    }

    /// A dead mount of another build stays where it is.
    fn detach_dead(&self, _: &Path, _: u64) -> Result<bool, MountError> {
        Err(MountError::NotBuilt)
    }
}
