//! An imported and mounted pool, for the commands that run in its server.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use format::ObjectId;
use pool::props::Source;
use pool::{Dataset, Pool, SnapshotKey};
use zpl::rank::{MutexHeld, Rank, RankedMutex};
use zpl::session::Notice;

use crate::error::Closed;
use crate::exports::{self, ExportError, Exported, Exports, Told as ExportTold};
use crate::messages::Refusal;
use crate::mounts::{BeginError, Change, Exchanged, Kind, MountError, Mounts, Report, Unmounted};
use crate::plan::{Overrides, Told};
use crate::shares::{self, Shares};
use crate::system_shares::SystemShares;
use crate::{FrontEnds, Runtime};

mod sharing;

/// The live pool with its mounts.
pub struct Live {
    name: String,
    /// As of when the pool was last looked at.
    guid: AtomicU64,
    pool: RankedMutex<Option<Arc<Pool>>>,
    mounts: Arc<Mounts>,
    exports: Exports,
    shares: Shares,
    system: SystemShares,
    /// Lock of the one command that changes datasets or properties.
    turn: RankedMutex<()>,
    closing: AtomicBool,
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Live({})", self.name)
    }
}

impl Live {
    /// `is_distrusted`: an untrusted user may have made the pool.
    pub(crate) fn new(pool: Pool, runtime: Runtime, front_ends: FrontEnds, is_distrusted: bool) -> Live {
        let FrontEnds { mounter, volumes, files } = front_ends;
        let mounts = Arc::new(Mounts::new(runtime.clone(), mounter, is_distrusted));
        let told = mounts.clone();
        // The kernel caches names and pages of mounted file systems.
        let changed = Arc::new(move |dataset: &str, notices: &[Notice<'_>]| told.tell(dataset, notices));
        Live {
            name: pool.name(),
            guid: AtomicU64::new(pool.guid().0),
            system: SystemShares::new(pool.guid().0),
            pool: RankedMutex::new(Rank::PoolSlot, Some(Arc::new(pool))),
            exports: Exports::new(runtime, volumes),
            mounts,
            shares: Shares::new(files, changed, is_distrusted),
            turn: RankedMutex::new(Rank::CommandTurn, ()),
            closing: AtomicBool::new(false),
        }
    }

    /// The pool's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The pool's guid.
    #[must_use]
    pub fn guid(&self) -> u64 {
        if let Some(pool) = &*self.slot() {
            self.guid.store(pool.guid().0, Ordering::Relaxed);
        }
        self.guid.load(Ordering::Relaxed)
    }

    /// The pool. While a caller has it, it cannot be exported, so drop it soon.
    ///
    /// # Errors
    /// The pool is being exported.
    ///
    /// # Panics
    /// If another thread panicked while taking it.
    pub fn pool(&self) -> Result<Arc<Pool>, Closed> {
        if self.is_closing() {
            return Err(Closed);
        }
        self.slot().clone().ok_or(Closed)
    }

    /// Whether it is being exported.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    fn slot(&self) -> MutexHeld<'_, Option<Arc<Pool>>> {
        self.pool.lock()
    }

    /// Takes the lock for changes of datasets and properties.
    pub fn turn(&self) -> MutexHeld<'_, ()> {
        // A command that panicked left no half-done change, because the jobs of the pool are atomic.
        self.turn.lock_after_panics()
    }

    /// As [`Live::turn`]; `None` when `stops` says so first.
    pub fn turn_unless(&self, stops: impl Fn() -> bool) -> Option<MutexHeld<'_, ()>> {
        const GLANCE: Duration = Duration::from_millis(5);
        loop {
            match self.turn.try_lock_after_panics() {
                Some(turn) => return Some(turn),
                None if stops() => return None,
                None => std::thread::sleep(GLANCE),
            }
        }
    }

    /// Whether the pool is suspended: a device refuses writes, which wait for a retry.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.slot().as_ref().is_some_and(|pool| pool.is_suspended())
    }

    /// The mounted file systems, each with its mount point.
    #[must_use]
    pub fn mounts(&self) -> Vec<(String, PathBuf)> {
        self.mounts.list()
    }

    /// Datasets that are mounted with the option `noxattr`.
    #[must_use]
    pub fn without_xattrs(&self) -> Vec<String> {
        self.mounts.without_xattrs()
    }

    /// Those that are shown within other mounts of this user, and whether each may be read alone: the kernel does not know
    /// them.
    #[must_use]
    pub fn shown_within(&self) -> Vec<(PathBuf, bool)> {
        self.mounts.shown_within()
    }

    /// As [`Live::mounts`], by paths through the mounts above. A file system that cannot be mounted inside a user's own
    /// mount is in the runtime directory and reached by a link.
    #[must_use]
    pub fn seen(&self) -> Vec<(String, PathBuf)> {
        self.mounts.seen()
    }

    /// Mounts all file systems at and below `top` that should be mounted, parents first.
    ///
    /// # Errors
    /// The datasets cannot be listed.
    pub fn mount_all(&self, top: &str, overrides: Overrides) -> Result<Report, MountError> {
        let pool = self.pool()?;
        let report = self.mounts.mount_all(&pool, top, overrides)?;
        self.shares.look_and_note(&pool, top);
        self.look_at_system(&pool, top);
        Ok(report)
    }

    /// Mounts those of `datasets` that should be mounted and are not.
    ///
    /// # Errors
    /// The datasets cannot be read.
    pub fn mount_listed(&self, datasets: &[String], overrides: Overrides) -> Result<Report, MountError> {
        let pool = self.pool()?;
        let report = self.mounts.mount_listed(&pool, datasets, overrides)?;
        self.look_at_system(&pool, &self.name);
        Ok(report)
    }

    /// Applies its properties, and `overrides` until the next mount, to a mounted file system.
    ///
    /// # Errors
    /// It is not mounted, or the kernel refuses.
    pub fn remount(&self, dataset: &str, overrides: Overrides) -> Result<(), MountError> {
        let pool = self.pool()?;
        let info = pool.dataset(dataset)?;
        self.mounts.remount(&pool, &info, overrides)
    }

    /// Mounts one file system, also with `canmount=noauto`. `over`: also on a folder that is not empty.
    ///
    /// # Errors
    /// Why it is not.
    pub fn mount(&self, dataset: &str, over: bool, overrides: Overrides) -> Result<Report, MountError> {
        let pool = self.pool()?;
        let info = pool.dataset(dataset)?;
        let mut report = Report::default();
        report.enter(dataset, Ok(self.mounts.mount(&pool, &info, over, overrides)?));
        report.notes = self.mounts.take_notes();
        self.look_at_system(&pool, dataset);
        Ok(report)
    }

    /// Mounts one file system at the place that was given to mount(8).
    ///
    /// # Errors
    /// [`MountError::NotLegacy`] or [`MountError::Legacy`] if the other program must mount it; or why it cannot be
    /// mounted.
    pub fn mount_at(&self, dataset: &str, told: Told, overrides: Overrides) -> Result<(), MountError> {
        let pool = self.pool()?;
        let info = pool.dataset(dataset)?;
        self.mounts.mount_at(&pool, &info, &told, overrides).map(drop)
    }

    /// As [`Live::remount`], for a remount by mount(8).
    ///
    /// # Errors
    /// As [`Live::remount`]; it is not mounted there.
    pub fn remount_at(&self, dataset: &str, told: &Told, overrides: Overrides) -> Result<(), MountError> {
        if !self.mounts().iter().any(|(name, point)| name == dataset && *point == told.point) {
            return Err(MountError::NotMounted);
        }
        if dataset.contains('@') && overrides.read_only == Some(false) {
            return Err(MountError::Snapshot);
        }
        self.remount(dataset, overrides)
    }

    /// Unmounts those of `datasets` that are mounted, children first. If one fails, all are mounted again.
    ///
    /// # Errors
    /// The one that stays.
    pub fn unmount(&self, datasets: &[String], force: bool) -> Result<(), Unmounted> {
        let pool = self.pool()?;
        if pool.is_suspended() {
            // The kernel would wait for its dirty pages.
            return Err(Unmounted::Suspended);
        }
        self.system.withdraw(|name| datasets.iter().any(|dataset| dataset == name));
        let unmounted = self.mounts.unmount(&pool, datasets, force);
        if unmounted.is_err() {
            self.look_at_system(&pool, &self.name);
        }
        unmounted.map(drop)
    }

    /// Ends the use of a lazily unmounted file system (`umount -l`) by programs that still have its files open. Returns
    /// whether there was any.
    ///
    /// # Errors
    /// The pool does not accept the data of these programs.
    pub fn end_left(&self, dataset: &str) -> Result<bool, Unmounted> {
        if self.pool()?.is_suspended() {
            return Err(Unmounted::Suspended);
        }
        self.mounts.end_left(&[dataset.to_owned()], true)
    }

    /// As [`Live::unmount`], and removes the mount points that are empty.
    ///
    /// # Errors
    /// The one that stays.
    pub fn unmount_for_good(&self, datasets: &[String], force: bool) -> Result<(), Unmounted> {
        let points = self.mounts.folders(datasets);
        self.unmount(datasets, force)?;
        self.mounts.end_left(datasets, force)?;
        self.mounts.remove_folders(&points);
        for dataset in datasets {
            // An export with clients keeps its dataset in use. One without ends when the dataset is gone.
            if force {
                // It may not be exported.
                let _ = self.exports.stop(dataset, force);
            }
            // If the dataset is not destroyed after all, the next look at the properties shares it again.
            self.shares.end(dataset);
        }
        Ok(())
    }

    /// Unmounts the file systems that a change of `kind` at `top` will move. Call [`Live::end`] afterwards, even if the
    /// change fails.
    ///
    /// # Errors
    /// A mount is in use; then all mounts stay.
    pub fn begin(&self, top: &str, kind: Kind, force: bool) -> Result<Change, BeginError> {
        let pool = self.pool().map_err(Unmounted::from)?;
        if pool.is_suspended() {
            // On a suspended pool, dirty pages could not be written, and unmounted file systems could not be mounted again.
            return Err(Unmounted::Suspended.into());
        }
        let had_shares = !self.system.is_empty();
        self.system.withdraw(|name| shares::is_below(name, top));
        let begun = self.mounts.begin(&pool, top, kind, force);
        if begun.is_err() && had_shares {
            self.look_at_system(&pool, top);
        }
        let mut change = begun?;
        top.clone_into(&mut change.top);
        if matches!(kind, Kind::Name | Kind::Contents) {
            change.held = Some(self.hold_shares_off(top));
        }
        Ok(change)
    }

    /// Mounts the unmounted file systems again at their new places; `renamed` maps old to new names.
    ///
    /// # Errors
    /// The datasets cannot be read.
    pub fn end(&self, mut change: Change, renamed: impl Fn(&str) -> String) -> Result<Report, MountError> {
        self.exports.rename(&renamed);
        self.shares.rename(&renamed);
        drop(change.held.take());
        let top = renamed(&change.top);
        let pool = self.pool()?;
        let report = self.mounts.end(&pool, change, renamed)?;
        if !self.shares.is_empty() {
            self.shares.look_and_note(&pool, &self.name);
        }
        self.look_at_system(&pool, &top);
        Ok(report)
    }

    /// Runs `change`, which replaces the contents of the file system `dataset` by those of `next`, while its mount stays and
    /// programs have files open. Requests of programs wait meanwhile. A file that is the same in both states stays usable; a
    /// removed one gives `EIO`.
    ///
    /// # Errors
    /// Before the change: requests of programs do not end, or the pool accepts no writes.
    pub fn exchange<T, E>(
        &self,
        dataset: &str,
        next: Arc<Dataset>,
        change: impl FnOnce() -> Result<T, E>,
    ) -> Result<Exchanged<Result<T, E>>, Unmounted> {
        let pool = self.pool()?;
        if pool.is_suspended() {
            return Err(Unmounted::Suspended);
        }
        self.mounts.exchange(&pool, dataset, next, change)
    }

    /// Notifies that `name` in `dir` changed or was removed, but not by the kernel.
    pub fn changed_entry(&self, dataset: &str, dir: ObjectId, name: &[u8]) {
        self.mounts.tell(dataset, &[Notice::Name(dir, name), Notice::Node(dir)]);
    }

    /// Notifies that attributes or contents of a file changed, but not by the kernel.
    pub fn changed_node(&self, dataset: &str, id: ObjectId) {
        self.mounts.tell(dataset, &[Notice::Node(id)]);
    }

    /// Before these snapshots (`pool/fs@snap`) are destroyed or move to another file system, or these volumes change:
    /// mounts that have them open below `.zfs` close them, unless they are in use.
    pub fn let_go_of(&self, snapshots: &[String]) {
        let Ok(pool) = self.pool() else { return };
        drop(
            self.shares
                .hold_off(|name| snapshots.iter().any(|snapshot| snapshot.split('@').next() == Some(name))),
        );
        for snapshot in snapshots {
            // A snapshot that was just unmounted is closed soon. If it is in use, the caller gets an error later.
            let _ = self.mounts.end_left(std::slice::from_ref(snapshot), false);
            // A missing snapshot needs no action.
            let Ok(info) = pool.dataset(snapshot) else { continue };
            let leaf = snapshot.split_once('@').map_or("", |(_, leaf)| leaf);
            self.mounts.let_go_of(SnapshotKey { id: info.id, guid: info.phys.guid }, leaf);
        }
    }

    /// Datasets were destroyed: their exports end.
    pub fn destroyed(&self) {
        if let Ok(pool) = self.pool() {
            self.exports.end_gone(&pool);
        }
    }

    /// These snapshot names no longer exist.
    pub fn renamed_snapshots(&self, snapshots: &[String]) {
        snapshots.iter().for_each(|snapshot| self.mounts.renamed_snapshot(snapshot));
    }

    /// Notifies that quotas or reservations changed: before the next `write` to a mounted file system the kernel asks how
    /// much space is left.
    pub fn limits_changed(&self) {
        self.mounts.limits_changed();
    }

    /// Makes the kernel write back its dirty pages. A suspended pool accepts none, so this does not wait for it.
    pub fn write_back(&self) {
        if self.is_suspended() {
            return;
        }
        self.mounts.write_back();
    }

    /// Renames datasets in the tables. Their mounts and exports stay.
    pub fn rename(&self, renamed: impl Fn(&str) -> String) {
        self.exports.rename(&renamed);
        self.shares.rename(&renamed);
        self.system.rename(&renamed);
        self.mounts.rename(renamed);
    }

    /// Exports a volume, or a snapshot of one, as a network block device: now, and whenever the server starts, until
    /// [`Live::unexport`].
    ///
    /// # Errors
    /// Why not; then nothing was changed.
    pub fn export(&self, dataset: &str, told: &ExportTold) -> Result<Exported, ExportError> {
        let pool = self.pool().map_err(|_| pool::Error::Suspended)?;
        let exported = self.exports.start(&pool, dataset, told)?;
        if pool.read_only().is_none()
            && let Err(error) = exports::keep(&pool, dataset, Some(told))
        {
            // Clients can have been connected for a moment only.
            let _ = self.exports.stop(dataset, true);
            return Err(error.into());
        }
        Ok(exported)
    }

    /// Ends the export of a dataset. Without `force`, not while clients are connected.
    ///
    /// # Errors
    /// It is not exported, or in use.
    pub fn unexport(&self, dataset: &str, force: bool) -> Result<(), ExportError> {
        let pool = self.pool().map_err(|_| pool::Error::Suspended)?;
        let ended = self.exports.stop(dataset, force);
        let is_kept = || {
            let found = pool.dataset(dataset).and_then(|info| pool.user_property(&info, exports::PROPERTY));
            matches!(found, Ok(Some((_, Source::Local))))
        };
        match ended {
            // The export may still be stored for the next start, for example if the socket or port was in use.
            Err(ExportError::NotExported) if is_kept() => {}
            ended => ended?,
        }
        if pool.read_only().is_none() && is_kept() {
            exports::keep(&pool, dataset, None)?;
        }
        Ok(())
    }

    /// The exports of this pool: volumes, then file systems.
    #[must_use]
    pub fn exports(&self) -> Vec<Exported> {
        let mut all = self.exports.list();
        all.extend(self.shares.list());
        all
    }

    /// Restores the exports of the previous server.
    pub(crate) fn restore_exports(&self) {
        if let Ok(pool) = self.pool() {
            self.restore_all(&pool);
        }
    }

    fn restore_all(&self, pool: &Arc<Pool>) {
        self.exports.restore(pool);
        self.shares.restore(pool);
        self.restore_system(pool);
    }

    /// Before `readonly=on` is set at `top`: makes the affected mounts read-only. If the property is not set in the end,
    /// [`Live::refresh`] undoes it.
    ///
    /// # Errors
    /// A file is open for writing ([`front::MountError::Busy`]), or the kernel refuses.
    pub fn make_read_only(&self, top: &str) -> Result<(), MountError> {
        self.mounts.make_read_only(&*self.pool()?, top)
    }

    /// Applies the present properties to mounts. `settled` were just set at a dataset, perhaps to their old values; they
    /// replace the mount options given before. Returns the mounts for which it failed, with reasons.
    pub fn refresh(&self, settled: Option<(&str, &[String])>) -> Vec<(String, MountError)> {
        let Ok(pool) = self.pool() else { return Vec::new() };
        let concerns = |name: &String| ["sharenfs", "sharesmb", shares::PROPERTY].contains(&name.as_str());
        let is_about_shares = settled.is_some_and(|(_, names)| names.iter().any(concerns));
        if !self.shares.is_empty() || is_about_shares {
            self.shares.look_and_note(&pool, settled.map_or(&self.name, |(top, _)| top));
        }
        let failed = self.mounts.refresh(&pool, settled);
        if is_about_shares || !self.system.is_empty() {
            self.look_at_system(&pool, settled.map_or(&self.name, |(top, _)| top));
        }
        failed
    }

    /// Unmounts everything and takes the pool out, so that no new caller gets it. Waits up to `patience` for present users.
    ///
    /// # Errors
    /// A mount or the pool is in use: all is as before.
    pub(crate) fn close(&self, force: bool, patience: Duration) -> Result<Pool, Refusal> {
        // Mounts that the kernel exports are in use.
        self.system.withdraw(|_| true);
        let closed = self.close_unshared(force, patience);
        if closed.is_err()
            && let Ok(pool) = self.pool()
        {
            self.look_at_system(&pool, &self.name);
        }
        closed
    }

    fn close_unshared(&self, force: bool, patience: Duration) -> Result<Pool, Refusal> {
        let pool = self.pool().map_err(|Closed| Refusal::Stopping)?;
        let in_use = self.exports.list().into_iter().find(|exported| exported.clients > 0);
        if let Some(exported) = in_use.filter(|_| !force) {
            return Err(Refusal::Other(format!("pool is busy: NBD clients use '{}'", exported.dataset)));
        }
        let names: Vec<String> = self.mounts.list().into_iter().map(|(dataset, _)| dataset).collect();
        let folders = self.mounts.folders(&names);
        let refusal = |error| match error {
            Unmounted::Busy { point } => Refusal::Busy(point),
            Unmounted::Stuck { point } => Refusal::Stuck(point),
            Unmounted::Refused { point, why } => Refusal::Other(format!("'{}': {why}", point.display())),
            other => Refusal::Other(other.to_string()),
        };
        self.mounts.end_left(&self.mounts.all_left(), force).map_err(refusal)?;
        let down = self.mounts.unmount(&pool, &names, force).map_err(refusal)?;
        self.exports.stop_all();
        self.shares.stop_all();
        // An open transaction of a command keeps its txg from closing. The end of the pool waits for it later.
        if let Err(error @ pool::Error::Suspended) = pool.sync_unless_suspended_within(patience) {
            // The last writes of the mounts suspended it.
            self.mounts.mount_again(&pool, &down);
            self.restore_all(&pool);
            return Err(Refusal::Other(error.to_string()));
        }
        self.closing.store(true, Ordering::Release);
        drop(pool);
        let mut pool = self.slot().take().expect("only one caller gets this far");
        let until = Instant::now() + patience;
        loop {
            pool = match Arc::try_unwrap(pool) {
                Ok(pool) => {
                    self.mounts.remove_folders(&folders);
                    return Ok(pool);
                }
                Err(pool) => pool,
            };
            if Instant::now() > until {
                self.mounts.mount_again(&pool, &down);
                self.restore_all(&pool);
                *self.slot() = Some(pool);
                self.closing.store(false, Ordering::Release);
                return Err(Refusal::Working);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
