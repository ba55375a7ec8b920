//! A pool that is imported and mounted, as the commands carried out in its server see it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use format::ObjectId;
use pool::props::Source;
use pool::{Dataset, Pool, SnapshotKey};
use zpl::session::Notice;

use crate::Runtime;
use crate::error::Closed;
use crate::exports::{self, ExportError, Exported, Exports, Told as ExportTold};
use crate::messages::Refusal;
use crate::mounts::{BeginError, Change, Exchanged, Kind, MountError, Mounts, Report, Unmounted};
use crate::plan::{Overrides, Told};

/// The live pool with its mounts.
pub struct Live {
    name: String,
    /// As of when the pool was last looked at.
    guid: AtomicU64,
    pool: Mutex<Option<Arc<Pool>>>,
    mounts: Mounts,
    exports: Exports,
    /// Held by the one command that changes datasets or properties.
    turn: Mutex<()>,
    closing: AtomicBool,
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Live({})", self.name)
    }
}

impl Live {
    /// `is_distrusted`: the pool may be the work of somebody whom this user does not trust.
    pub(crate) fn new(pool: Pool, runtime: Runtime, is_distrusted: bool) -> Live {
        Live {
            name: pool.name(),
            guid: AtomicU64::new(pool.guid().0),
            pool: Mutex::new(Some(Arc::new(pool))),
            exports: Exports::new(runtime.clone()),
            mounts: Mounts::new(runtime, is_distrusted),
            turn: Mutex::default(),
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

    /// The pool. Whoever has it keeps it from being exported: let go of it soon.
    ///
    /// # Errors
    /// It is being let go of.
    ///
    /// # Panics
    /// If another thread panicked while taking it.
    pub fn pool(&self) -> Result<Arc<Pool>, Closed> {
        if self.is_closing() {
            return Err(Closed);
        }
        self.slot().clone().ok_or(Closed)
    }

    /// Whether it is being let go of.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    fn slot(&self) -> MutexGuard<'_, Option<Arc<Pool>>> {
        self.pool.lock().expect("the pool's slot is a plain store")
    }

    /// Waits until no other command changes datasets or properties, and keeps others waiting.
    pub fn turn(&self) -> MutexGuard<'_, ()> {
        // A command that panicked left nothing half done here: the pool's own jobs are whole or not at all.
        self.turn.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// As [`Live::turn`]; `None` when `stops` says so first.
    pub fn turn_unless(&self, stops: impl Fn() -> bool) -> Option<MutexGuard<'_, ()>> {
        const GLANCE: Duration = Duration::from_millis(5);
        loop {
            match self.turn.try_lock() {
                Ok(turn) => return Some(turn),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if stops() => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(GLANCE),
            }
        }
    }

    /// Whether a device refuses the pool's writes, and they wait to be tried again.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.slot().as_ref().is_some_and(|pool| pool.is_suspended())
    }

    /// What is mounted where.
    #[must_use]
    pub fn mounts(&self) -> Vec<(String, PathBuf)> {
        self.mounts.list()
    }

    /// Datasets that are mounted with the option `noxattr`.
    #[must_use]
    pub fn without_xattrs(&self) -> Vec<String> {
        self.mounts.without_xattrs()
    }

    /// As [`Live::mounts`], by paths that lead through the mounts above: what a user's own mount cannot hold is in the
    /// runtime directory, and seen by a link.
    #[must_use]
    pub fn seen(&self) -> Vec<(String, PathBuf)> {
        self.mounts.seen()
    }

    /// Mounts all that belong mounted at and below `top`, parents first.
    ///
    /// # Errors
    /// The datasets cannot be listed.
    pub fn mount_all(&self, top: &str, overrides: Overrides) -> Result<Report, MountError> {
        let pool = self.pool()?;
        Ok(self.mounts.mount_all(&pool, top, overrides)?)
    }

    /// Mounts those of `datasets` that belong mounted and are not.
    ///
    /// # Errors
    /// The datasets cannot be read.
    pub fn mount_listed(&self, datasets: &[String], overrides: Overrides) -> Result<Report, MountError> {
        let pool = self.pool()?;
        Ok(self.mounts.mount_listed(&pool, datasets, overrides)?)
    }

    /// Has a mounted file system go by its properties, and by `overrides` until the next mount.
    ///
    /// # Errors
    /// It is not mounted, or the kernel refuses.
    pub fn remount(&self, dataset: &str, overrides: Overrides) -> Result<(), MountError> {
        let pool = self.pool()?;
        let info = pool.dataset(dataset)?;
        self.mounts.remount(&pool, &info, overrides)
    }

    /// Mounts one file system, whether or not it would be mounted with all others. `over`: also on a folder that is
    /// not empty.
    ///
    /// # Errors
    /// Why it is not.
    pub fn mount(&self, dataset: &str, over: bool, overrides: Overrides) -> Result<Report, MountError> {
        let pool = self.pool()?;
        let info = pool.dataset(dataset)?;
        let mut report = Report::default();
        report.enter(dataset, Ok(self.mounts.mount(&pool, &info, over, overrides)?));
        report.notes = self.mounts.take_notes();
        Ok(report)
    }

    /// Mounts one file system where mount(8) was told.
    ///
    /// # Errors
    /// Why it is not: [`MountError::NotLegacy`] or [`MountError::Legacy`] where that is another program's business.
    pub fn mount_at(&self, dataset: &str, told: Told, overrides: Overrides) -> Result<(), MountError> {
        let pool = self.pool()?;
        let info = pool.dataset(dataset)?;
        self.mounts.mount_at(&pool, &info, &told, overrides).map(drop)
    }

    /// As [`Live::remount`], of what mount(8) was told to remount.
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

    /// Unmounts those of `datasets` that are mounted, children first. If one stays, so do all.
    ///
    /// # Errors
    /// The one that stays.
    pub fn unmount(&self, datasets: &[String], force: bool) -> Result<(), Unmounted> {
        let pool = self.pool()?;
        if pool.is_suspended() {
            // The kernel would wait for what it still has to write.
            return Err(Unmounted::Suspended);
        }
        self.mounts.unmount(&pool, datasets, force).map(drop)
    }

    /// Takes the files of a file system from programs that go on using them although it was unmounted (`umount -l`). Gives
    /// whether there was anything to end.
    ///
    /// # Errors
    /// The pool does not take what the programs wrote.
    pub fn end_left(&self, dataset: &str) -> Result<bool, Unmounted> {
        if self.pool()?.is_suspended() {
            return Err(Unmounted::Suspended);
        }
        self.mounts.end_left(&[dataset.to_owned()], true)
    }

    /// As [`Live::unmount`]; the folders they were mounted on are removed where they are empty.
    ///
    /// # Errors
    /// The one that stays.
    pub fn unmount_for_good(&self, datasets: &[String], force: bool) -> Result<(), Unmounted> {
        let points = self.mounts.folders(datasets);
        self.unmount(datasets, force)?;
        self.mounts.end_left(datasets, force)?;
        self.mounts.remove_folders(&points);
        for dataset in datasets {
            // One that clients use keeps its dataset in use.
            let _ = self.exports.stop(dataset, force);
        }
        Ok(())
    }

    /// Takes down what a change of `kind` at `top` is about to move. Follow with [`Live::end`], also if the change
    /// fails.
    ///
    /// # Errors
    /// A mount that is in use stays; so do all others.
    pub fn begin(&self, top: &str, kind: Kind, force: bool) -> Result<Change, BeginError> {
        let pool = self.pool().map_err(Unmounted::from)?;
        if pool.is_suspended() {
            // What is to be taken down could not be written, and what is taken down could not be mounted again.
            return Err(Unmounted::Suspended.into());
        }
        self.mounts.begin(&pool, top, kind, force)
    }

    /// Mounts again what was taken down, where it belongs now; `renamed` gives the new name of a dataset.
    ///
    /// # Errors
    /// The datasets cannot be read.
    pub fn end(&self, change: Change, renamed: impl Fn(&str) -> String) -> Result<Report, MountError> {
        self.exports.rename(&renamed);
        let pool = self.pool()?;
        Ok(self.mounts.end(&pool, change, renamed)?)
    }

    /// Carries out `change`, after which the file system `dataset` holds what `next` does, while its mount stays and
    /// programs have files open. Messages of programs wait meanwhile. A file that is the same in both goes on; one that is
    /// no more gives `EIO`.
    ///
    /// # Errors
    /// Before the change: programs' messages do not come to their end, or the pool takes nothing.
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

    /// `name` in `dir` means something else than before, or nothing, by no doing of the kernel's.
    pub fn changed_entry(&self, dataset: &str, dir: ObjectId, name: &[u8]) {
        self.mounts.tell(dataset, &[Notice::Name(dir, name), Notice::Node(dir)]);
    }

    /// Attributes or contents of a file changed by no doing of the kernel's.
    pub fn changed_node(&self, dataset: &str, id: ObjectId) {
        self.mounts.tell(dataset, &[Notice::Node(id)]);
    }

    /// These snapshots (`pool/fs@snap`) are about to be destroyed, or to be those of another file system: mounts that have
    /// shown them below `.zfs` let them go, unless somebody uses them.
    pub fn let_go_of(&self, snapshots: &[String]) {
        let Ok(pool) = self.pool() else { return };
        for snapshot in snapshots {
            // One that was mounted by itself until a moment ago is let go of soon; if it is used, the caller finds out.
            let _ = self.mounts.end_left(std::slice::from_ref(snapshot), false);
            // One that is not there is in nobody's way.
            let Ok(info) = pool.dataset(snapshot) else { continue };
            let Some((_, leaf)) = snapshot.split_once('@') else { continue };
            self.mounts.let_go_of(SnapshotKey { id: info.id, guid: info.phys.guid }, leaf);
        }
    }

    /// No snapshot has these names any more.
    pub fn renamed_snapshots(&self, snapshots: &[String]) {
        snapshots.iter().for_each(|snapshot| self.mounts.renamed_snapshot(snapshot));
    }

    /// Quotas, reservations or the like changed: before the next `write` to a mounted file system the kernel asks how much
    /// is left.
    pub fn limits_changed(&self) {
        self.mounts.limits_changed();
    }

    /// The kernel hands over what was written and it still holds back. A pool that is suspended takes none of it, and is
    /// not waited for.
    pub fn write_back(&self) {
        if self.is_suspended() {
            return;
        }
        self.mounts.write_back();
    }

    /// Datasets are called otherwise; their mounts stay where they are, and so do their exports.
    pub fn rename(&self, renamed: impl Fn(&str) -> String) {
        self.exports.rename(&renamed);
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
            // Nobody can have connected for long.
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
            // It may be kept for the next start all the same: what was to be listened for was in use, say.
            Err(ExportError::NotExported) if is_kept() => {}
            ended => ended?,
        }
        if pool.read_only().is_none() && is_kept() {
            exports::keep(&pool, dataset, None)?;
        }
        Ok(())
    }

    /// What is exported.
    #[must_use]
    pub fn exports(&self) -> Vec<Exported> {
        self.exports.list()
    }

    /// Exports what was exported when the server ended.
    pub(crate) fn restore_exports(&self) {
        if let Ok(pool) = self.pool() {
            self.exports.restore(&pool);
        }
    }

    /// Makes the mounts read-only that go by `readonly` of `top`, before that property says so. Undone by
    /// [`Live::refresh`] if it then does not.
    ///
    /// # Errors
    /// A file is open for writing ([`fuse::MountError::Busy`]), or the kernel refuses.
    pub fn make_read_only(&self, top: &str) -> Result<(), MountError> {
        self.mounts.make_read_only(&*self.pool()?, top)
    }

    /// Mounts go by the properties that they have now; `settled` were set just now at a dataset, be it to what they were:
    /// there they end what mounts were asked for besides. Gives those that do not, with the reason.
    pub fn refresh(&self, settled: Option<(&str, &[String])>) -> Vec<(String, MountError)> {
        self.pool().map_or_else(|_| Vec::new(), |pool| self.mounts.refresh(&pool, settled))
    }

    /// Unmounts everything and takes the pool out; from then on nobody gets it. Whoever still uses it is waited for as
    /// long as `patience`.
    ///
    /// # Errors
    /// A mount or the pool is in use: all is as before.
    pub(crate) fn close(&self, force: bool, patience: Duration) -> Result<Pool, Refusal> {
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
        // A transaction that a command holds open keeps its txg from closing; the end of the pool waits for it later.
        if let Err(error @ pool::Error::Suspended) = pool.sync_unless_suspended_within(patience) {
            // The last writes of the mounts suspended it.
            self.mounts.mount_again(&pool, &down);
            self.exports.restore(&pool);
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
                self.exports.restore(&pool);
                *self.slot() = Some(pool);
                self.closing.store(false, Ordering::Release);
                return Err(Refusal::Working);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
