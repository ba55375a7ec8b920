//! The mounts of a pool: made, moved and taken down as properties and commands say.
//!
//! Mounts are made parents first and taken down children first: the folder that a file system is mounted on lies in
//! the file system above.

mod changes;
mod exchange;
mod left;
mod outcome;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use front::{MountOptions, MountPoint, Mounted, Mounter};
use pool::{DatasetInfo, Pool, SnapshotKey};
use zpl::Filesystem;
use zpl::rank::{MutexHeld, Rank, RankedMutex};
use zpl::session::Notice;

use crate::Runtime;
use crate::beneath::Identity;
use crate::messages::{Elsewhere, Moved};
use crate::plan::{CanMount, Overrides, Plan, Target, Told};
use crate::points::{self, Link, Point, Shown, innermost, looks_made};

pub use changes::{BeginError, Change, Kind};
pub use exchange::Exchanged;
use outcome::check_contents;
pub use outcome::{MountError, Report, Unmounted};

/// Pauses between the tries to unmount a busy mount.
const BUSY_PAUSES: [Duration; 3] =
    [Duration::from_millis(10), Duration::from_millis(50), Duration::from_millis(200)];

struct Mount {
    dataset: String,
    point: PathBuf,
    /// The folder where it belongs. Not the same as `point` where a link is shown there.
    folder: PathBuf,
    /// Where its files are found: by this path it lies within the mounts above it.
    seen: PathBuf,
    /// The link that stands in the place of the file system, if that place is in another mount.
    link: Option<Arc<Link>>,
    /// The mount options that the properties give.
    planned: MountOptions,
    /// The mount options that were given for this mount.
    overrides: Overrides,
    /// It is mounted where mount(8) asked for it.
    told: bool,
    handle: Arc<dyn Mounted>,
}

impl Mount {
    /// How it is mounted.
    fn options(planned: &MountOptions, overrides: Overrides) -> MountOptions {
        let mut options = planned.clone();
        overrides.apply(&mut options);
        options
    }

    /// Everything needed to mount it again in the same way.
    fn as_it_is(&self) -> Down {
        Down {
            dataset: self.dataset.clone(),
            planned: self.planned.clone(),
            overrides: self.overrides,
            told: self.told.then(|| self.point.clone()),
        }
    }
}

/// One that was unmounted.
#[derive(Debug)]
pub(crate) struct Down {
    dataset: String,
    /// The mount options that the properties gave.
    planned: MountOptions,
    overrides: Overrides,
    /// The mount point that mount(8) asked for.
    told: Option<PathBuf>,
}

impl Down {
    /// Its present mount point. A legacy mount goes to the place that mount(8) used.
    fn place(&self, plan: Plan) -> Plan {
        match &self.told {
            Some(point) if plan.target == Target::Legacy => plan.at(point),
            _ => plan,
        }
    }

    /// Mount options given besides the properties and still in force.
    fn overrides_under(&self, plan: &Plan) -> Overrides {
        self.overrides.unless_changed(&self.planned, &plan.options)
    }
}

/// The mounts of one pool.
pub(crate) struct Mounts {
    runtime: Runtime,
    mounter: Arc<dyn Mounter>,
    /// Never held during a call to the kernel that may cause a request to this server.
    table: RankedMutex<Vec<Mount>>,
    /// Mounts that other programs unmounted and that are still in use. Locked after `table`.
    left: RankedMutex<Vec<left::Left>>,
    /// Folders that were made for a mount and are removed with it.
    made: RankedMutex<BTreeMap<PathBuf, Identity>>,
    /// Remarks for the user of the next command.
    notes: RankedMutex<Vec<String>>,
    /// An untrusted user may have made the pool, so set-id bits and devices have no effect unless mount options ask for
    /// them.
    is_distrusted: bool,
}

impl Mounts {
    pub(crate) fn new(runtime: Runtime, mounter: Arc<dyn Mounter>, is_distrusted: bool) -> Mounts {
        Mounts {
            runtime,
            mounter,
            table: RankedMutex::new(Rank::Mounts, Vec::new()),
            left: RankedMutex::new(Rank::LeftMounts, Vec::new()),
            made: RankedMutex::default(),
            notes: RankedMutex::default(),
            is_distrusted,
        }
    }

    fn table(&self) -> MutexHeld<'_, Vec<Mount>> {
        self.table.lock()
    }

    fn made(&self) -> MutexHeld<'_, BTreeMap<PathBuf, Identity>> {
        self.made.lock()
    }

    /// The mounts, ordered by path. The paths are the kernel's, without symbolic links.
    pub(crate) fn list(&self) -> Vec<(String, PathBuf)> {
        self.notice_unmounted();
        let place = |mount: &Mount| (mount.dataset.clone(), mount.handle.point().to_path_buf());
        let mut list: Vec<_> = self.table().iter().map(place).collect();
        list.sort_by(|a, b| a.1.cmp(&b.1));
        list
    }

    /// Datasets that are mounted with the option `noxattr`.
    pub(crate) fn without_xattrs(&self) -> Vec<String> {
        let table = self.table();
        table.iter().filter(|mount| mount.overrides.no_xattr).map(|mount| mount.dataset.clone()).collect()
    }

    /// Those that are shown within other mounts, and whether each may be read alone.
    pub(crate) fn shown_within(&self) -> Vec<(PathBuf, bool)> {
        let table = self.table();
        let within = table.iter().filter(|mount| mount.handle.is_within());
        within.map(|mount| (mount.point.clone(), mount.handle.session().read_only())).collect()
    }

    /// As [`Mounts::list`], by the paths that lead through the mounts above.
    pub(crate) fn seen(&self) -> Vec<(String, PathBuf)> {
        self.notice_unmounted();
        let mut seen: Vec<_> =
            self.table().iter().map(|mount| (mount.dataset.clone(), mount.seen.clone())).collect();
        seen.sort_by(|a, b| a.1.cmp(&b.1));
        seen
    }

    /// The mount points of `datasets`.
    pub(crate) fn folders(&self, datasets: &[String]) -> Vec<PathBuf> {
        let table = self.table();
        let wanted = table.iter().filter(|mount| datasets.contains(&mount.dataset));
        wanted.map(|mount| mount.folder.clone()).collect()
    }

    /// Whether the table has a mount of `dataset`; [`Mounts::notice_unmounted`] brings the table up to date.
    fn is_mounted(&self, dataset: &str) -> bool {
        self.table().iter().any(|mount| mount.dataset == dataset)
    }

    /// Mounts one file system. `over`: also on a folder that is not empty.
    pub(crate) fn mount(
        &self,
        pool: &Pool,
        info: &DatasetInfo,
        over: bool,
        overrides: Overrides,
    ) -> Result<Option<Moved>, MountError> {
        let mut plan = self.plan(pool, info)?.ok_or(MountError::WrongKind)?;
        plan.overlay |= over;
        self.mount_plan(pool, &plan, overrides)
    }

    /// Mounts one file system at the place that was given to mount(8).
    pub(crate) fn mount_at(
        &self,
        pool: &Pool,
        info: &DatasetInfo,
        told: &Told,
        overrides: Overrides,
    ) -> Result<Option<Moved>, MountError> {
        let plan = self.plan(pool, info)?.ok_or(MountError::WrongKind)?;
        let mut overrides = overrides;
        if info.is_snapshot() {
            // mount(8) passes `rw` unless the user gives `ro`.
            overrides.read_only = None;
        }
        match (plan.target == Target::Legacy, told.by_zfs) {
            (true, true) => Err(MountError::Legacy),
            (false, false) => Err(MountError::NotLegacy),
            _ => self.mount_plan(pool, &plan.at(&told.point), overrides),
        }
    }

    fn mount_plan(
        &self,
        pool: &Pool,
        plan: &Plan,
        overrides: Overrides,
    ) -> Result<Option<Moved>, MountError> {
        let wanted = match &plan.target {
            _ if plan.can == CanMount::Off => return Err(MountError::CanMountOff),
            Target::Legacy => return Err(MountError::Legacy),
            Target::Nowhere => return Err(MountError::NoMountpoint),
            Target::At(path) => path.clone(),
        };
        if self.is_mounted(&plan.dataset) {
            self.notice_unmounted();
        }
        if self.is_mounted(&plan.dataset) {
            return Err(MountError::Mounted);
        }
        check_contents(pool, &plan.dataset)?;
        let Point { at, made, inside, why, notes } =
            Point::prepare(plan, &wanted, &self.runtime).map_err(MountError::Folder)?;
        let folder = at.path().to_owned();
        if (made || plan.inherits && looks_made(&folder))
            && let Ok(identity) = Identity::at(&folder)
        {
            self.made().insert(folder.clone(), identity);
        }
        if !plan.overlay && points::has_files(&at).map_err(MountError::Folder)? {
            return Err(MountError::NotEmpty(wanted));
        }
        let options = Mount::options(&plan.options, overrides);
        let seen = if inside { self.seen_through(&folder) } else { folder.clone() };
        let (handle, link) = match inside {
            false => (self.mount_on(pool, plan, &at, &options)?, None),
            true => self.mount_inside(pool, plan, &at, &options)?,
        };
        let point = handle.point().to_owned();
        tracing::info!(dataset = plan.dataset, point = %point.display(), "mounted");
        let beside = if link.is_some() { Elsewhere::Linked } else { Elsewhere::Within };
        let why = why.or_else(|| (inside && !handle.is_within()).then_some(beside));
        let dataset = plan.dataset.clone();
        let moved = why.map(|why| Moved { dataset: dataset.clone(), wanted, point: point.clone(), why });
        let (planned, told) = (plan.options.clone(), plan.told);
        self.table().push(Mount { dataset, point, folder, seen, link, planned, overrides, told, handle });
        self.show_lost_links();
        notes.iter().for_each(|note| tracing::warn!("{note}"));
        self.notes().extend(notes);
        Ok(moved)
    }

    /// Mounts on a folder.
    fn mount_on(
        &self,
        pool: &Pool,
        plan: &Plan,
        at: &MountPoint,
        options: &MountOptions,
    ) -> Result<Arc<dyn Mounted>, MountError> {
        if let Some(handle) = self.mount_left(&plan.dataset, at, options)? {
            return Ok(handle);
        }
        let fs = Filesystem::open(pool.open(&plan.dataset)?)?;
        Ok(self.mounter.mount_on(fs, at, options)?)
    }

    /// Makes the mount that `at` lies in show a file system there. Where it cannot, the file system is mounted beside that
    /// mount, which shows a link.
    fn mount_inside(
        &self,
        pool: &Pool,
        plan: &Plan,
        at: &MountPoint,
        options: &MountOptions,
    ) -> Result<Shown, MountError> {
        self.await_left(&plan.dataset)?;
        if let Some((parent, _)) = innermost(at.path(), self.handles().into_iter()) {
            let fs = Filesystem::open(pool.open(&plan.dataset)?)?;
            if parent.can_hold(&fs, options) {
                let info = pool.dataset(&plan.dataset)?;
                let key = SnapshotKey { id: info.id, guid: info.phys.guid };
                match parent.hold(fs, key, at, options) {
                    Ok(handle) => return Ok((handle, None)),
                    Err(error) => tracing::warn!(dataset = plan.dataset, %error, "a link is shown instead"),
                }
            }
        }
        let beside = Point::beside(plan, &self.runtime).map_err(MountError::Folder)?;
        let handle = self.mount_on(pool, plan, &beside, options)?;
        let link = Link::show(at.path(), handle.point(), self.handles().into_iter());
        Ok((handle, link.map(Arc::new)))
    }

    /// The path to a folder in a mount that leads through the mounts above.
    fn seen_through(&self, folder: &Path) -> PathBuf {
        let Some((parent, path)) = innermost(folder, self.handles().into_iter()) else {
            return folder.to_owned();
        };
        let table = self.table();
        let above = table.iter().find(|mount| Arc::ptr_eq(&mount.handle, &parent));
        above.map_or_else(|| folder.to_owned(), |above| above.seen.join(path))
    }

    fn handles(&self) -> Vec<Arc<dyn Mounted>> {
        self.table().iter().map(|mount| mount.handle.clone()).collect()
    }

    /// Shows links again after the mount that contains them was mounted again.
    fn show_lost_links(&self) {
        let (handles, lost): (Vec<_>, Vec<_>) = {
            let table = self.table();
            let lost = table.iter().filter(|mount| mount.link.as_ref().is_some_and(|link| link.is_lost()));
            let lost = lost.filter_map(|mount| {
                let place = mount.link.as_ref()?.place.clone();
                Some((mount.dataset.clone(), mount.point.clone(), place))
            });
            (table.iter().map(|mount| mount.handle.clone()).collect(), lost.collect())
        };
        for handle in handles.iter().filter(|handle| handle.is_hidden()) {
            let Some((_, path)) = innermost(handle.point(), handles.iter().cloned()) else { continue };
            if let Err(error) = handle.show_again(&path) {
                tracing::warn!(point = %handle.point().display(), %error, "a file system is not shown any more");
            }
        }
        for (dataset, point, place) in lost {
            let Some(link) = Link::show(&place, &point, handles.iter().cloned()) else { continue };
            let link = Arc::new(link);
            let mut table = self.table();
            match table.iter_mut().find(|mount| mount.dataset == dataset && mount.point == point) {
                Some(mount) => mount.link = Some(link),
                None => {
                    drop(table);
                    link.hide();
                }
            }
        }
    }

    /// Takes the remarks since the last call.
    pub(crate) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut *self.notes())
    }

    fn notes(&self) -> MutexHeld<'_, Vec<String>> {
        self.notes.lock()
    }

    /// Mounts all file systems below `top` that should be mounted, parents first.
    pub(crate) fn mount_all(&self, pool: &Pool, top: &str, overrides: Overrides) -> pool::Result<Report> {
        let mut plans = self.plans(pool, top)?;
        self.notice_unmounted();
        plans.retain(|plan| plan.is_automatic() && !self.is_mounted(&plan.dataset));
        Ok(self.mount_plans(pool, plans.into_iter().map(|plan| (plan, overrides)).collect()))
    }

    /// As [`crate::Live::mount_listed`].
    pub(crate) fn mount_listed(
        &self,
        pool: &Pool,
        datasets: &[String],
        overrides: Overrides,
    ) -> pool::Result<Report> {
        self.notice_unmounted();
        let mut plans = Vec::new();
        for dataset in datasets {
            let plan = self.plan(pool, &pool.dataset(dataset)?)?;
            plans.extend(plan.filter(|plan| plan.is_automatic() && !self.is_mounted(dataset)));
        }
        Ok(self.mount_plans(pool, plans.into_iter().map(|plan| (plan, overrides)).collect()))
    }

    fn mount_plans(&self, pool: &Pool, mut plans: Vec<(Plan, Overrides)>) -> Report {
        plans.sort_by(|(a, _), (b, _)| path_of(a).cmp(path_of(b)));
        let mut report = Report::default();
        for (plan, overrides) in plans {
            let done = self.mount_plan(pool, &plan, overrides);
            if matches!(done, Err(MountError::NoKey | MountError::Redacted)) {
                // When several are mounted, those without a loaded key or without all blocks are left out.
                continue;
            }
            if let Err(error) = &done {
                tracing::warn!(dataset = plan.dataset, %error, "not mounted");
            }
            report.enter(&plan.dataset, done);
        }
        report.notes = self.take_notes();
        report
    }

    /// The mount plan from the properties of a dataset, as far as they are trusted.
    fn plan(&self, pool: &Pool, info: &DatasetInfo) -> pool::Result<Option<Plan>> {
        let plan = Plan::of(pool, info)?;
        Ok(plan.map(|mut plan| {
            if self.is_distrusted {
                (plan.options.setuid, plan.options.devices) = (false, false);
            }
            plan
        }))
    }

    fn plans(&self, pool: &Pool, top: &str) -> pool::Result<Vec<Plan>> {
        let mut report = |dataset: String, error: pool::Error| {
            tracing::warn!(dataset, %error, "a dataset is not mounted, nor is any below it");
        };
        let list = pool.survey(top, None, false, &mut report)?;
        let plans = list.iter().map(|info| self.plan(pool, info)).collect::<pool::Result<Vec<_>>>()?;
        Ok(plans.into_iter().flatten().collect())
    }

    /// Unmounts those of `datasets` that are mounted, children first, and returns them. If one fails, all are mounted again.
    pub(crate) fn unmount(
        &self,
        pool: &Pool,
        datasets: &[String],
        force: bool,
    ) -> Result<Vec<Down>, Unmounted> {
        let mut wanted: Vec<(PathBuf, Down, Arc<dyn Mounted>)> = {
            let table = self.table();
            let wanted = table.iter().filter(|mount| datasets.contains(&mount.dataset));
            wanted.map(|m| (m.seen.clone(), m.as_it_is(), m.handle.clone())).collect()
        };
        wanted.sort_by(|a, b| b.0.cmp(&a.0));
        let mut down = Vec::new();
        let mut failed = None;
        for (_, mount, handle) in wanted {
            if handle.is_within() {
                // Links that it shows count as its use.
                let links: Vec<_> = self.table().iter().filter_map(|mount| mount.link.clone()).collect();
                links.iter().filter(|link| link.is_in(&handle)).for_each(|link| link.hide());
            }
            if let Err(error) = unmount(&*handle, force) {
                failed = Some(Unmounted::of(handle.point(), error));
                break;
            }
            tracing::info!(dataset = mount.dataset, "unmounted");
            self.forget(&handle);
            down.push(mount);
        }
        match failed {
            None => Ok(down),
            Some(error) => {
                self.mount_again(pool, &down);
                self.show_lost_links();
                Err(error)
            }
        }
    }

    /// Mounts unmounted file systems again in the same way.
    pub(crate) fn mount_again(&self, pool: &Pool, down: &[Down]) {
        for mount in down.iter().rev() {
            let Down { dataset, overrides, .. } = mount;
            let again = pool
                .dataset(dataset)
                .and_then(|info| self.plan(pool, &info))
                .map_err(MountError::from)
                .and_then(|plan| plan.ok_or(MountError::WrongKind))
                .and_then(|plan| {
                    self.mount_plan(pool, &Plan { overlay: true, ..mount.place(plan) }, *overrides)
                });
            if let Err(error) = again {
                tracing::warn!(dataset, %error, "not mounted again");
            }
        }
    }

    /// Removes an unmounted file system from the table, with its link.
    fn forget(&self, handle: &Arc<dyn Mounted>) {
        let mut table = self.table();
        let at = table.iter().position(|mount| Arc::ptr_eq(&mount.handle, handle));
        let mount = at.map(|at| table.remove(at));
        drop(table);
        if let Some(Mount { link: Some(link), .. }) = &mount {
            link.hide();
        }
    }

    /// Makes the kernel write back its dirty pages, and waits for the writes.
    pub(crate) fn write_back(&self) {
        let with_held =
            |mount: &Mount| (mount.dataset.clone(), mount.handle.clone(), mount.handle.clone().held());
        // The mount that another one is shown in hands over for both.
        let mounts: Vec<_> =
            self.table().iter().filter(|mount| !mount.handle.is_within()).map(with_held).collect();
        for (dataset, handle, _) in &mounts {
            if let Err(error) = handle.write_back() {
                tracing::warn!(dataset, %error, "not written back");
            }
        }
        // All mounts at once, because they are served in parallel.
        let since = Instant::now();
        for (dataset, _, settle) in mounts {
            if !settle(since) {
                tracing::warn!(dataset, "the pool takes nothing of what was written");
            }
        }
    }

    /// Notifies the cache of a session of changes that it did not make, if the dataset is mounted.
    pub(crate) fn tell(&self, dataset: &str, notices: &[Notice<'_>]) {
        let mounts = self.table();
        let mount = mounts.iter().find(|mount| mount.dataset == dataset);
        let session = mount.map(|mount| mount.handle.session().clone());
        // Threads that serve the kernel do not wait for this lock.
        drop(mounts);
        if let Some(session) = session {
            notices.iter().for_each(|notice| session.changed(*notice));
        }
    }

    /// Notifies all mounts that limits of space changed: before the next `write` the kernel asks how much is left.
    pub(crate) fn limits_changed(&self) {
        let sessions: Vec<_> = self.table().iter().map(|mount| mount.handle.session().clone()).collect();
        sessions.iter().for_each(|session| session.changed(Notice::Limits));
    }

    /// Before a snapshot is destroyed or a volume changes: every mount that has it open closes it. After a promotion, this may be the mount of
    /// another file system than its own.
    pub(crate) fn let_go_of(&self, key: SnapshotKey, leaf: &str) {
        let handles = self.handles();
        handles.iter().for_each(|handle| handle.let_go_of_snapshot(key, leaf.as_bytes()));
    }

    /// As [`crate::Live::renamed_snapshots`], of one (`pool/fs@snap`).
    pub(crate) fn renamed_snapshot(&self, snapshot: &str) {
        let Some((dataset, leaf)) = snapshot.split_once('@') else { return };
        let table = self.table();
        let handle = table.iter().find(|mount| mount.dataset == dataset).map(|mount| mount.handle.clone());
        drop(table);
        if let Some(handle) = handle {
            handle.renamed_snapshot(leaf.as_bytes());
        }
    }

    /// Renames datasets in the table; their mounts stay. `renamed` need not map names of snapshots.
    pub(crate) fn rename(&self, renamed: impl Fn(&str) -> String) {
        let renamed = |name: &str| match name.split_once('@') {
            Some((fs, leaf)) if renamed(name) == name => format!("{}@{leaf}", renamed(fs)),
            _ => renamed(name),
        };
        self.table().iter_mut().for_each(|mount| mount.dataset = renamed(&mount.dataset));
        self.rename_left(renamed);
    }

    /// Removes those of `points` that were made for a mount, where they are empty.
    pub(crate) fn remove_folders(&self, points: &[PathBuf]) {
        let mut points = points.to_vec();
        points.sort();
        for point in points.iter().rev() {
            let made = self.made().get(point).copied();
            // A folder that is not empty or was replaced by another one stays.
            if made.is_some_and(|made| made.remove(point).is_ok()) {
                self.made().remove(point);
            }
        }
    }
}

/// Runs an operation that a mount in use forbids. It waits for short uses, such as a starting process, a desktop, or a file
/// that is being closed.
fn patiently(act: impl Fn() -> Result<(), front::MountError>) -> Result<(), front::MountError> {
    for pause in BUSY_PAUSES {
        match act() {
            Err(front::MountError::Busy(_)) => std::thread::sleep(pause),
            other => return other,
        }
    }
    act()
}

fn unmount(handle: &dyn Mounted, force: bool) -> Result<(), front::MountError> {
    match patiently(|| handle.unmount(false)) {
        Err(front::MountError::Busy(_) | front::MountError::Elsewhere { .. }) if force => {
            handle.unmount(true)
        }
        done => done,
    }
}

fn path_of(plan: &Plan) -> &Path {
    match &plan.target {
        Target::At(path) => path,
        Target::Legacy | Target::Nowhere => Path::new(""),
    }
}
