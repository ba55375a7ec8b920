//! A front end that mounts file systems, and the operations of a server on a mount.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use zpl::{Filesystem, Session, SnapshotKey};

use crate::error::MountError;
use crate::options::MountOptions;
use crate::point::MountPoint;

/// Mounts file systems.
pub trait Mounter: Send + Sync {
    /// Mounts `fs` on the directory `at`, and frees the objects in its unlinked set. A file system that cannot be written is
    /// mounted read-only.
    ///
    /// # Errors
    /// [`MountError`].
    fn mount_on(
        &self,
        fs: Filesystem,
        at: &MountPoint,
        options: &MountOptions,
    ) -> Result<Arc<dyn Mounted>, MountError>;

    /// Unmounts the mount `id` (of `/proc/self/mountinfo`) at `point` if its server is dead. Returns whether it was. Other
    /// mounts at `point` stay.
    ///
    /// # Errors
    /// [`MountError::Unmount`].
    fn detach_dead(&self, point: &Path, id: u64) -> Result<bool, MountError>;

    /// As [`Mounter::mount_on`], on the directory at a path; symbolic links are followed.
    ///
    /// # Errors
    /// [`MountError`].
    fn mount(
        &self,
        fs: Filesystem,
        at: &Path,
        options: &MountOptions,
    ) -> Result<Arc<dyn Mounted>, MountError> {
        let point =
            MountPoint::open(at).map_err(|source| MountError::Point { point: at.to_owned(), source })?;
        self.mount_on(fs, &point, options)
    }
}

/// Waits until the data that the kernel held back has arrived and is stored, however long the pool takes. The argument is the
/// time at which the kernel was asked to write it back. Returns `false` if the pool accepts no writes.
pub type Settle = Box<dyn FnOnce(Instant) -> bool + Send>;

/// Result of a change under a mount.
pub struct Changed {
    /// Whether the contents of the file system changed.
    pub is_exchanged: bool,
    /// The file system, opened again.
    pub fs: zpl::Result<Filesystem>,
}

/// A file system that is mounted. Dropping it unmounts, or, if it is busy, takes it out of sight.
pub trait Mounted: fmt::Debug + Send + Sync {
    /// Where it is mounted.
    fn point(&self) -> &Path;

    /// The session of the mount. It notifies the kernel of changes that were not made through the mount.
    fn session(&self) -> &Arc<Session>;

    /// The device number of the mounted file system, as in `st_dev` and `/proc/self/mountinfo`. It may be reused when this
    /// session is over.
    fn device(&self) -> (u32, u32);

    /// Whether it is still mounted. Other programs may unmount it, too.
    fn is_alive(&self) -> bool;

    /// Whether it was just unmounted: the kernel sends no more requests, but some are not finished.
    fn is_leaving(&self) -> bool;

    /// Whether the property `acltype` has changed since the mount. The kernel learns only at the mount whether there are
    /// POSIX ACLs.
    fn has_other_acls(&self) -> bool;

    /// Notifies the kernel after changes of properties. The mount options stay.
    fn look_at_properties(&self);

    /// Prepares the destroy of a snapshot, now called `name`, or a change of a volume: makes the kernel drop it and closes
    /// it. The snapshot may meanwhile belong to another file system. If it is in use, it stays open after a wait of a
    /// fraction of a second.
    fn let_go_of_snapshot(&self, key: SnapshotKey, name: &[u8]);

    /// A snapshot of this name no longer exists.
    fn renamed_snapshot(&self, name: &[u8]);

    /// Changes mount options: when access times are kept, and, as root, `readonly` and the other options that the kernel
    /// enforces (`exec`, `setuid`, `devices`). The others stay.
    ///
    /// # Errors
    /// [`MountError::Remount`], without root with the kernel's `EPERM`: all is as before; [`MountError::Busy`] when a
    /// file is open for writing that is to become read-only; [`MountError::Covered`].
    fn set_options(&self, options: &MountOptions) -> Result<(), MountError>;

    /// Changes when access times are kept. The kernel is not involved.
    fn set_atime(&self, options: &MountOptions);

    /// Notes the amount of data that the kernel holds back now. Take it before [`Mounted::write_back`]; the result waits for
    /// the writes.
    fn held(self: Arc<Self>) -> Settle;

    /// Makes the kernel write back its dirty pages. The writes may still be in flight when this returns; The value of
    /// [`Mounted::held`] waits for them.
    ///
    /// # Errors
    /// The mount is gone, or a write failed.
    fn write_back(&self) -> io::Result<()>;

    /// Runs `change`, which replaces the contents of the file system by those of `next`, while the mount stays. Running
    /// messages end before it, and new messages wait for it. `change` is called once, when the file system is closed, and opens
    /// it again even if nothing changed. `below` are the paths, from the root of the mount, of other mounts: these stay.
    ///
    /// Returns the reason if the file system could not be opened again.
    ///
    /// # Errors
    /// Before `change` is called: [`MountError::Busy`] if messages do not end, [`MountError::Stuck`] if the pool accepts no
    /// writes, [`MountError::Filesystem`] if a directory cannot be read.
    fn exchange(
        &self,
        next: Filesystem,
        below: &[PathBuf],
        change: &mut dyn FnMut() -> Changed,
    ) -> Result<Option<zpl::Error>, MountError>;

    /// Mounts it again at its old place after a lazy unmount (`umount -l`) while programs have files open. These programs
    /// and new users share one file system.
    ///
    /// # Errors
    /// It was mounted at another place or with other fixed options; the session is over; or this process or this kernel
    /// cannot mount it again.
    fn mount_again(&self, at: &MountPoint, options: &MountOptions) -> io::Result<()>;

    /// Unmounts. With `force` even while programs use it: their earlier writes are kept, and their later operations fail.
    ///
    /// # Errors
    /// [`MountError::Busy`]; [`MountError::Covered`]; [`MountError::Elsewhere`] if it is unmounted here but stays
    /// mounted elsewhere; [`MountError::Stuck`]; [`MountError::Unmount`].
    fn unmount(&self, force: bool) -> Result<(), MountError>;

    /// Waits for the end of a detached mount. With `force`, programs lose the files that they have open: their earlier
    /// writes are kept, and their later operations fail.
    ///
    /// # Errors
    /// [`MountError::Elsewhere`] if it stays mounted elsewhere; [`MountError::Stuck`].
    fn wait_unmounted(&self, force: bool) -> Result<(), MountError>;

    /// Whether a file system, mounted with `options`, can be shown within this mount: what the kernel decides for a mount as
    /// a whole must be the same for both.
    fn can_hold(&self, fs: &Filesystem, options: &MountOptions) -> bool;

    /// Shows `fs`, which is dataset `key`, in place of the directory `at`, which lies in this file system. It has no mount of
    /// its own in the kernel.
    ///
    /// # Errors
    /// [`MountError`].
    fn hold(
        &self,
        fs: Filesystem,
        key: SnapshotKey,
        at: &MountPoint,
        options: &MountOptions,
    ) -> Result<Arc<dyn Mounted>, MountError>;

    /// Whether it is shown within another mount.
    fn is_within(&self) -> bool;

    /// Whether its directory went with an exchange of the file system that has it.
    fn is_hidden(&self) -> bool;

    /// Shows it again in place of the directory at `path`, which is relative to the root of the file system above.
    ///
    /// # Errors
    /// There is no such directory.
    fn show_again(&self, path: &Path) -> zpl::Result<()>;
}
