//! Showing a file system within the mount of another one, which this process serves, too.
//!
//! From:   a directory in the mount, and how the file system is to be mounted.
//! To:     a [`Mounted`] that shares the parent's connection to the kernel, its threads and its mount options.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use front::{MountError, MountOptions, MountPoint, apart};
use zpl::rank::RankedMutex;
use zpl::session::{Atime, Cover, Covered};
use zpl::{Filesystem, SnapshotKey};

use crate::bridge::Bridge;
use crate::device::Device;
use crate::mount::{Mounted, prepare};
use crate::places::Owner;
use crate::snapdir::{Router, Snapshots};
use crate::threads::thread_count;
use crate::within::Within;

impl Mounted {
    /// Whether a file system, mounted with `options`, can be shown within this mount: what the kernel decides for a mount as
    /// a whole must be the same for both.
    #[must_use]
    pub fn can_hold(&self, fs: &Filesystem, options: &MountOptions) -> bool {
        let (own, settings) = (&self.options, fs.dataset().settings());
        let is_synchronous = options.synchronous || fs.is_synchronous();
        let session = &self.shared.session;
        self.is_alive()
            && (options.exec, options.setuid, options.devices) == (own.exec, own.setuid, own.devices)
            && options.allow_other == own.allow_other
            && is_synchronous == own.synchronous
            // A read-only mount has no cache of writes, so it can show read-only file systems only.
            && (options.read_only || fs.dataset().check_changeable().is_err() || !own.read_only)
            && (!settings.posix_acl || session.heeds_acls())
            && (self.shared.sees_opens || !keeps_atime(options, settings.atime))
    }

    /// Shows `fs`, which is dataset `key`, in place of the directory `at`, which lies in this file system.
    ///
    /// # Errors
    /// [`MountError`].
    pub fn hold(
        &self,
        fs: Filesystem,
        key: SnapshotKey,
        at: &MountPoint,
        options: &MountOptions,
    ) -> Result<Mounted, MountError> {
        let refused =
            |error: std::io::Error| MountError::Mount { point: at.path().to_owned(), source: error };
        let options = prepare(&fs, options)?;
        let covered = self.cover(at).map_err(refused)?;
        let Some(slot) = self.others.places.take(key.id, Owner::Tree) else {
            self.shared.session.uncover(&covered);
            return Err(refused(std::io::Error::other("too many file systems and snapshots are open")));
        };
        let shared = Arc::new(self.shared.of_tree(fs, &options, (key, slot)));
        let threads = thread_count(&options);
        let (seeker, places) = (self.bridge.seeker.clone(), self.others.places.clone());
        let snapshots = Snapshots::new(shared.clone(), seeker.clone(), threads, places);
        // Changes of both wait in one queue: others are served while all threads that may wait do.
        let bridge = Bridge::new(shared.clone(), seeker, self.bridge.permits.clone());
        snapshots.mounted_at(at.path(), self.device);
        self.others.put(slot, Router::new(bridge.clone(), snapshots.clone(), None));
        self.shared.trees.put(covered.dir(), shared.clone());
        self.shared.session.forget_cover(&covered);
        let within = Within::new(self.shared.clone(), self.others.clone(), slot, covered);
        let mounted = Mounted {
            point: at.path().to_owned(),
            base: self.base.clone(),
            device: self.device,
            options: self.options.clone(),
            shared,
            snapshots,
            bridge,
            others: self.others.clone(),
            ended: self.ended.clone(),
            thread: RankedMutex::default(),
            within: Some(within),
        };
        mounted.look_at_cache();
        Ok(mounted)
    }

    /// Covers the directory `at`, if it is the one that its path means in this file system.
    fn cover(&self, at: &MountPoint) -> std::io::Result<Covered> {
        let elsewhere = || std::io::Error::other("it does not lie in that file system");
        let path = at.path().strip_prefix(&self.point).map_err(|_| elsewhere())?;
        let covered = self.shared.session.cover(path, Cover::Tree).map_err(std::io::Error::other)?;
        let link = at.link();
        let there = apart::ask(move || Device::with_number(&link))?;
        if there != (self.device, self.shared.kernel.shown(covered.dir()).0) {
            self.shared.session.uncover(&covered);
            return Err(elsewhere());
        }
        Ok(covered)
    }

    /// Whether it is shown within another mount.
    #[must_use]
    pub fn is_within(&self) -> bool {
        self.within.is_some()
    }

    /// Whether the covered directory was removed by an exchange of the file system around it, so that no path leads here.
    #[must_use]
    pub fn is_hidden(&self) -> bool {
        self.within.as_ref().is_some_and(Within::is_hidden)
    }

    /// Shows it again in place of the directory at `path`, which is relative to the root of the file system above.
    ///
    /// # Errors
    /// There is no such directory.
    pub fn show_again(&self, path: &Path) -> zpl::Result<()> {
        if let Some(within) = self.within.as_ref().filter(|within| within.is_hidden()) {
            let covered = within.parent.session.cover(path, Cover::Tree)?;
            within.show(self.shared.clone(), covered);
        }
        Ok(())
    }

    /// Unmounts a file system that is shown within another.
    pub(crate) fn leave(&self, within: &Within, force: bool) -> Result<(), MountError> {
        if !self.is_alive() || within.leave(&self.shared, &self.snapshots, || look(&self.point)) {
            return Ok(());
        }
        if !force || !self.shared.trees.is_empty() {
            return Err(MountError::Busy(self.point.clone()));
        }
        let (held, since) = (self.held(), Instant::now());
        if let Err(error) = self.write_back() {
            tracing::debug!(%error, "not all is written back");
        }
        if !self.settle(held, since) {
            tracing::warn!(point = %self.point.display(), "the pool takes nothing of what was written there");
        }
        within.take_away(&self.shared, &self.snapshots);
        Ok(())
    }
}

/// Whether access times are kept, where the dataset's property `atime` is as given.
fn keeps_atime(options: &MountOptions, property: bool) -> bool {
    let is_on = match options.atime {
        Atime::Dataset => property,
        Atime::On => true,
        Atime::Off => false,
    };
    is_on && !options.read_only
}

/// Looks a path up, as programs do.
fn look(path: &Path) {
    let path = path.to_owned();
    // An error does not matter: only the look-up does.
    let _ = apart::ask(move || std::fs::symlink_metadata(path));
}
