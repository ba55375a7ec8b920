//! The traits of the crate `front`, which describes each function.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use front::{Changed, MountError, MountOptions, MountPoint, Mounter, Settle};
use zpl::{Filesystem, Session, SnapshotKey};

use crate::mount::{Mounted, mount_on};
use crate::{Fuse, place};

impl Mounter for Fuse {
    fn mount_on(
        &self,
        fs: Filesystem,
        at: &MountPoint,
        options: &MountOptions,
    ) -> Result<Arc<dyn front::Mounted>, MountError> {
        Ok(Arc::new(mount_on(fs, at, options)?))
    }

    fn detach_dead(&self, point: &Path, id: u64) -> Result<bool, MountError> {
        place::detach_dead(point, id)
    }
}

impl front::Mounted for Mounted {
    fn point(&self) -> &Path {
        Mounted::point(self)
    }

    fn session(&self) -> &Arc<Session> {
        Mounted::session(self)
    }

    fn device(&self) -> (u32, u32) {
        Mounted::device(self)
    }

    fn is_alive(&self) -> bool {
        Mounted::is_alive(self)
    }

    fn is_leaving(&self) -> bool {
        Mounted::is_leaving(self)
    }

    fn has_other_acls(&self) -> bool {
        Mounted::has_other_acls(self)
    }

    fn look_at_properties(&self) {
        Mounted::look_at_properties(self);
    }

    fn let_go_of_snapshot(&self, key: SnapshotKey, name: &[u8]) {
        Mounted::let_go_of_snapshot(self, key, name);
    }

    fn renamed_snapshot(&self, name: &[u8]) {
        Mounted::renamed_snapshot(self, name);
    }

    fn set_options(&self, options: &MountOptions) -> Result<(), MountError> {
        Mounted::set_options(self, options)
    }

    fn set_atime(&self, options: &MountOptions) {
        Mounted::set_atime(self, options);
    }

    fn held(self: Arc<Self>) -> Settle {
        let held = Mounted::held(&self);
        Box::new(move |since| self.settle(held, since))
    }

    fn write_back(&self) -> io::Result<()> {
        Mounted::write_back(self)
    }

    fn exchange(
        &self,
        next: Filesystem,
        below: &[PathBuf],
        change: &mut dyn FnMut() -> Changed,
    ) -> Result<Option<zpl::Error>, MountError> {
        Mounted::exchange(self, next, below, change)
    }

    fn mount_again(&self, at: &MountPoint, options: &MountOptions) -> io::Result<()> {
        Mounted::mount_again(self, at, options)
    }

    fn unmount(&self, force: bool) -> Result<(), MountError> {
        Mounted::unmount(self, force)
    }

    fn wait_unmounted(&self, force: bool) -> Result<(), MountError> {
        Mounted::wait_unmounted(self, force)
    }

    fn can_hold(&self, fs: &Filesystem, options: &MountOptions) -> bool {
        Mounted::can_hold(self, fs, options)
    }

    fn hold(
        &self,
        fs: Filesystem,
        key: SnapshotKey,
        at: &MountPoint,
        options: &MountOptions,
    ) -> Result<Arc<dyn front::Mounted>, MountError> {
        Ok(Arc::new(Mounted::hold(self, fs, key, at, options)?))
    }

    fn is_within(&self) -> bool {
        Mounted::is_within(self)
    }

    fn is_hidden(&self) -> bool {
        Mounted::is_hidden(self)
    }

    fn show_again(&self, path: &Path) -> zpl::Result<()> {
        Mounted::show_again(self, path)
    }
}
