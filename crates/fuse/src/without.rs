//! What stands for mounting in a build without the feature `mount`: every mount is refused, so a [`Mounted`] never exists.
//!
//! From:   the server, which compiles to the same code in both builds.
//! To:     [`MountError::NotBuilt`]. A [`Mounted`] has no value, so its functions have no body.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use zpl::{Filesystem, SnapshotKey};

use crate::error::{MountError, Unavailable};
use crate::options::MountOptions;
use crate::point::MountPoint;

/// A mounted file system; there is none.
#[derive(Debug)]
pub enum Mounted {}

/// What the kernel holds back of a mount; there is none.
#[derive(Clone, Copy, Debug)]
pub enum Held {}

/// What became of a change under a mount.
pub struct Changed<T> {
    /// What the change gives.
    pub done: T,
    /// Whether the file system holds something else now.
    pub is_exchanged: bool,
    /// The file system, opened again.
    pub fs: zpl::Result<Filesystem>,
}

/// Nothing can be mounted.
///
/// # Errors
/// [`Unavailable::NotBuilt`], always.
pub fn check_available() -> Result<(), Unavailable> {
    Err(Unavailable::NotBuilt)
}

/// Nothing can be mounted.
///
/// # Errors
/// [`MountError::NotBuilt`], always.
pub fn mount(_: Filesystem, _: &Path, _: &MountOptions) -> Result<Mounted, MountError> {
    Err(MountError::NotBuilt)
}

/// Nothing can be mounted.
///
/// # Errors
/// [`MountError::NotBuilt`], always.
pub fn mount_on(_: Filesystem, _: &MountPoint, _: &MountOptions) -> Result<Mounted, MountError> {
    Err(MountError::NotBuilt)
}

/// A dead mount of another build stays where it is.
///
/// # Errors
/// [`MountError::NotBuilt`], always.
pub fn detach_dead(_: &Path, _: u64) -> Result<bool, MountError> {
    Err(MountError::NotBuilt)
}

/// Functions of a value that never exists: each has the signature that it has with the feature `mount`.
macro_rules! never {
    ($($(#[$attribute:meta])* fn $name:ident(&self $(, $argument:ident: $type:ty)*) $(-> $result:ty)?;)*) => {
        #[allow(missing_docs, reason = "each is described where it has a body")]
        #[allow(clippy::missing_errors_doc, clippy::must_use_candidate, reason = "no value has these functions")]
        impl Mounted {
            $($(#[$attribute])* pub fn $name(&self $(, _: $type)*) $(-> $result)? {
                match *self {}
            })*
        }
    };
}

never! {
    fn point(&self) -> &Path;
    fn session(&self) -> &Arc<zpl::Session>;
    fn filesystem(&self) -> Option<Filesystem>;
    fn let_go_of_snapshot(&self, key: SnapshotKey, name: &[u8]);
    fn renamed_snapshot(&self, name: &[u8]);
    fn open_snapshots(&self) -> usize;
    fn look_at_properties(&self);
    fn has_other_acls(&self) -> bool;
    fn device(&self) -> (u32, u32);
    fn is_alive(&self) -> bool;
    fn is_leaving(&self) -> bool;
    fn wait(&self);
    fn set_options(&self, options: &MountOptions) -> Result<(), MountError>;
    fn set_atime(&self, options: &MountOptions);
    fn held(&self) -> Held;
    fn write_back(&self) -> io::Result<()>;
    fn settle(&self, held: Held, since: Instant) -> bool;
    fn mount_again(&self, at: &MountPoint, options: &MountOptions) -> io::Result<()>;
    fn unmount(&self, force: bool) -> Result<(), MountError>;
    fn wait_unmounted(&self, force: bool) -> Result<(), MountError>;
}

impl Mounted {
    /// As with the feature `mount`.
    ///
    /// # Errors
    /// None: there is no value to call it on.
    pub fn exchange<T>(
        &self,
        _: Filesystem,
        _: &[PathBuf],
        _: impl FnOnce() -> Changed<T>,
    ) -> Result<(T, Option<zpl::Error>), MountError> {
        match *self {}
    }
}
