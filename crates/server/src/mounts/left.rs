//! Mounts that disappeared without an unmount by this server.
//!
//! From:   the kernel's list of mounts. umount(8) and fusermount3 ask no server.
//! To:     file systems that count as unmounted. Their sessions end when the last program closes its files, which is at once
//!         after an ordinary umount(8), and any time later after a lazy one (`umount -l`).
//!
//! The kernel keeps the data of such programs in a cache of its own. A second mount over another connection would not
//! see that cache. So the old session is mounted once more. Where that is not possible, a file system is mounted again
//! only when the old session is over.

use std::sync::Arc;

use front::Mounted;
use zpl::rank::MutexHeld;

use super::{BUSY_PAUSES, Mount, MountError, Mounts, Unmounted};
use crate::mountinfo;

/// A mount that was unmounted but whose session continues.
pub(super) struct Left {
    dataset: String,
    handle: Arc<dyn Mounted>,
}

impl Mounts {
    fn left(&self) -> MutexHeld<'_, Vec<Left>> {
        self.left.lock()
    }

    /// Removes mounts from the table that other programs unmounted.
    pub(super) fn notice_unmounted(&self) {
        let mut table = self.table();
        // The list is read while the table is locked: otherwise it could lack a mount that was added meanwhile.
        let listed = mountinfo::devices();
        // The kernel may give the number of a mount that is gone to another one.
        let is_there = |mount: &Mount| match &listed {
            Ok(devices) => devices.contains(&mount.handle.device()) && !mount.handle.is_leaving(),
            Err(_) => true,
        };
        let (there, gone): (Vec<_>, Vec<_>) =
            table.drain(..).partition(|mount| mount.handle.is_alive() && is_there(mount));
        *table = there;
        let mut left = self.left();
        left.retain(|left| left.handle.is_alive());
        let alive = gone.iter().filter(|mount| mount.handle.is_alive());
        left.extend(alive.map(|m| Left { dataset: m.dataset.clone(), handle: m.handle.clone() }));
        drop((left, table));
        for Mount { dataset, link, .. } in &gone {
            tracing::info!(dataset, "is mounted no more");
            link.iter().for_each(|link| link.hide());
        }
    }

    fn left_of(&self, dataset: &str) -> Vec<Arc<dyn Mounted>> {
        let left = self.left();
        let of = left.iter().filter(|left| left.dataset == dataset && left.handle.is_alive());
        of.map(|left| left.handle.clone()).collect()
    }

    /// Mounts the session again that programs still use after `dataset` was unmounted; `None` if there is none.
    ///
    /// # Errors
    /// Those of [`Mounts::await_left`], if the session cannot be mounted again.
    pub(super) fn mount_left(
        &self,
        dataset: &str,
        at: &front::MountPoint,
        options: &front::MountOptions,
    ) -> Result<Option<Arc<dyn Mounted>>, MountError> {
        for handle in self.left_of(dataset) {
            match handle.mount_again(at, options) {
                Ok(()) => {
                    self.left().retain(|left| !Arc::ptr_eq(&left.handle, &handle));
                    return Ok(Some(handle));
                }
                Err(error) => tracing::debug!(dataset, %error, "the old session is waited for"),
            }
        }
        self.await_left(dataset)?;
        Ok(None)
    }

    /// Waits for the sessions of a file system that was unmounted a moment ago.
    ///
    /// # Errors
    /// [`MountError::StillUsed`]: programs have files of it open.
    pub(super) fn await_left(&self, dataset: &str) -> Result<(), MountError> {
        for handle in self.left_of(dataset) {
            await_end(&*handle).map_err(|error| match error {
                front::MountError::Busy(_) => MountError::StillUsed,
                error => error.into(),
            })?;
        }
        Ok(())
    }

    /// Ends leftover sessions of `datasets`. Returns whether there were any. With `force`, programs lose the files that they
    /// have open, but their writes are kept.
    ///
    /// # Errors
    /// Programs have files open, or the pool does not take what they wrote.
    pub(crate) fn end_left(&self, datasets: &[String], force: bool) -> Result<bool, Unmounted> {
        self.notice_unmounted();
        let mut was_left = false;
        for dataset in datasets {
            for handle in self.left_of(dataset) {
                was_left = true;
                let ended = if force { handle.wait_unmounted(true) } else { await_end(&*handle) };
                ended.map_err(|error| Unmounted::of(handle.point(), error))?;
            }
        }
        Ok(was_left)
    }

    /// Datasets of which mounts are left.
    pub(crate) fn all_left(&self) -> Vec<String> {
        self.left().iter().map(|left| left.dataset.clone()).collect()
    }

    /// Datasets are called otherwise.
    pub(super) fn rename_left(&self, renamed: impl Fn(&str) -> String) {
        self.left().iter_mut().for_each(|left| left.dataset = renamed(&left.dataset));
    }
}

/// Waits for the end of a session, but not for programs that have files open.
fn await_end(handle: &dyn Mounted) -> Result<(), front::MountError> {
    if handle.is_within() {
        return handle.unmount(false);
    }
    let mut pauses = BUSY_PAUSES.iter();
    while handle.is_alive() && !handle.is_leaving() {
        let Some(pause) = pauses.next() else {
            return Err(front::MountError::Busy(handle.point().to_owned()));
        };
        std::thread::sleep(*pause);
    }
    handle.wait_unmounted(false)
}
