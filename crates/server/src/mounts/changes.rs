//! Changes of properties of mounted file systems: which mounts are remounted, and which move.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use front::{MountOptions, Mounted};
use pool::{DatasetInfo, Pool};

use crate::shares::HeldShares;

use super::{Down, Mount, MountError, Mounts, Report, Unmounted, patiently};
use crate::plan::{CanMount, MOUNTED, Overrides, Plan, Target};

/// The kind of change that a command makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The mount points. File systems that inherit from the topmost dataset move with it.
    Mountpoint,
    /// Whether the topmost dataset may be mounted.
    CanMount,
    /// The names of all datasets.
    Name,
    /// The contents of the topmost dataset.
    Contents,
}

/// File systems unmounted for a change, to be mounted again after it.
#[derive(Debug, Default)]
#[must_use = "what was taken down must be mounted again"]
pub struct Change {
    /// Datasets that were mounted.
    was_mounted: Vec<String>,
    /// Their previous mounts.
    down: Vec<Down>,
    /// File systems that were not mounted. They are mounted after the change if they should be then, because a user who sets
    /// a mountpoint expects the mount.
    was_unmounted: Vec<String>,
    /// Clients of shared file systems wait until the end of the change.
    pub(crate) held: Option<HeldShares>,
    /// The old name of the dataset that changes, with those below it.
    pub(crate) top: String,
}

/// Why a change cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum BeginError {
    /// The properties cannot be read.
    #[error(transparent)]
    Pool(#[from] pool::Error),
    /// A mount stays.
    #[error(transparent)]
    Unmounted(#[from] Unmounted),
}

impl Mounts {
    /// Applies its properties and these options to a mounted file system.
    pub(crate) fn remount(
        &self,
        pool: &Pool,
        info: &DatasetInfo,
        overrides: Overrides,
    ) -> Result<(), MountError> {
        let plan = self.plan(pool, info)?.ok_or(MountError::WrongKind)?;
        self.notice_unmounted();
        self.change(pool, &info.name, plan.options, overrides)
    }

    /// Mounts `dataset` as `planned` and `overrides` say from now on.
    fn change(
        &self,
        pool: &Pool,
        dataset: &str,
        planned: MountOptions,
        overrides: Overrides,
    ) -> Result<(), MountError> {
        let options = Mount::options(&planned, overrides);
        let (handle, before) = {
            let table = self.table();
            let mount = table.iter().find(|mount| mount.dataset == dataset).ok_or(MountError::NotMounted)?;
            (mount.handle.clone(), Mount::options(&mount.planned, mount.overrides))
        };
        let same = options == before;
        let same_but_atime = options == MountOptions { atime: options.atime, ..before };
        match if same { Ok(()) } else { patiently(|| handle.set_options(&options)) } {
            Err(front::MountError::Remount { source, .. })
                if source.kind() == io::ErrorKind::PermissionDenied && same_but_atime =>
            {
                // The server keeps the times; the kernel would only show it.
                handle.set_atime(&options);
            }
            Err(front::MountError::Remount { source, .. })
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                // Without root the kernel changes nothing.
                return self.mount_anew(pool, &handle, planned, overrides);
            }
            Err(error) => {
                self.notice_unmounted();
                return Err(if self.is_mounted(dataset) { error.into() } else { MountError::NotMounted });
            }
            Ok(()) => {}
        }
        let mut table = self.table();
        let mount = table.iter_mut().find(|mount| mount.dataset == dataset).ok_or(MountError::NotMounted)?;
        (mount.planned, mount.overrides) = (planned, overrides);
        Ok(())
    }

    /// Takes down a file system, with what is shown within it, and mounts it in its place with other options.
    fn mount_anew(
        &self,
        pool: &Pool,
        handle: &Arc<dyn Mounted>,
        planned: MountOptions,
        overrides: Overrides,
    ) -> Result<(), MountError> {
        let mut names = Vec::new();
        for mount in self.table().iter() {
            let is_it = Arc::ptr_eq(&mount.handle, handle);
            if is_it || mount.handle.is_within() && mount.point.starts_with(handle.point()) {
                names.push((is_it, mount.dataset.clone()));
            }
        }
        let Some((_, dataset)) = names.iter().find(|(is_it, _)| *is_it).cloned() else {
            return Err(MountError::NotMounted);
        };
        let names: Vec<String> = names.into_iter().map(|(_, name)| name).collect();
        let mut down = self.unmount(pool, &names, false).map_err(|error| error.of_dataset(&dataset))?;
        let at = down.iter().position(|down| down.dataset == dataset).ok_or(MountError::NotMounted)?;
        let before = down.remove(at);
        let plan = self.plan(pool, &pool.dataset(&dataset)?)?.ok_or(MountError::WrongKind)?;
        let place = before.place(plan);
        let plan = Plan { options: planned, can: CanMount::On, overlay: true, ..place };
        let mounted = self.mount_plan(pool, &plan, overrides);
        if mounted.is_err() {
            self.mount_again(pool, std::slice::from_ref(&before));
        }
        self.mount_again(pool, &down);
        mounted.map(drop)
    }

    /// As [`crate::Live::make_read_only`].
    pub(crate) fn make_read_only(&self, pool: &Pool, top: &str) -> Result<(), MountError> {
        self.notice_unmounted();
        for dataset in self.all_left() {
            // Programs may write to the files that they have open.
            if Plan::follows(pool, &dataset, top, "readonly")? {
                self.await_left(&dataset)?;
            }
        }
        let mounts: Vec<(String, MountOptions, Overrides)> = {
            let table = self.table();
            table.iter().map(|m| (m.dataset.clone(), m.planned.clone(), m.overrides)).collect()
        };
        for (dataset, old, overrides) in mounts {
            if Mount::options(&old, overrides).read_only || !Plan::follows(pool, &dataset, top, "readonly")? {
                continue;
            }
            let planned = MountOptions { read_only: true, ..old.clone() };
            let mut overrides = overrides;
            overrides.settle("readonly");
            match self.change(pool, &dataset, planned, overrides) {
                Err(MountError::NotMounted) => {}
                done => done?,
            }
        }
        Ok(())
    }

    /// Unmounts the file systems that a change of `kind` at `top` will move.
    pub(crate) fn begin(
        &self,
        pool: &Pool,
        top: &str,
        kind: Kind,
        force: bool,
    ) -> Result<Change, BeginError> {
        let mut change = Change::default();
        if kind == Kind::Contents {
            self.end_left(&[top.to_owned()], force)?;
        }
        self.notice_unmounted();
        for plan in self.plans(pool, top)? {
            let affected = match kind {
                Kind::Name => true,
                Kind::CanMount | Kind::Contents => plan.dataset == top,
                Kind::Mountpoint => plan.dataset == top || plan.inherits,
            };
            if !affected {
                continue;
            }
            if self.is_mounted(&plan.dataset) {
                change.was_mounted.push(plan.dataset);
            } else if kind == Kind::Mountpoint {
                change.was_unmounted.push(plan.dataset);
            }
        }
        let all = self.seen();
        let of = |change: &Change| -> Vec<PathBuf> {
            let moved = all.iter().filter(|(dataset, _)| change.was_mounted.contains(dataset));
            moved.map(|(_, point)| point.clone()).collect()
        };
        // Mounts inside them are unmounted, too, and come back.
        let moved = of(&change);
        for (dataset, point) in &all {
            if moved.iter().any(|above| point != above && point.starts_with(above))
                && !change.was_mounted.contains(dataset)
            {
                change.was_mounted.push(dataset.clone());
            }
        }
        let points = self.folders(&change.was_mounted);
        change.down = self.unmount(pool, &change.was_mounted, force)?;
        if kind != Kind::Contents {
            // A file system with new contents is mounted on its old folder. Making that folder again would change the parent
            // file system, so that it would accept no incremental stream any more.
            self.remove_folders(&points);
        }
        Ok(change)
    }

    /// Mounts the unmounted file systems again, at their new places and with their old options, unless properties changed
    /// these. `renamed` maps old to new names.
    pub(crate) fn end(
        &self,
        pool: &Pool,
        change: Change,
        renamed: impl Fn(&str) -> String,
    ) -> pool::Result<Report> {
        self.rename(&renamed);
        let mut plans = Vec::new();
        for (dataset, was_mounted) in change
            .was_mounted
            .iter()
            .map(|dataset| (dataset, true))
            .chain(change.was_unmounted.iter().map(|dataset| (dataset, false)))
        {
            let Some(plan) = self.plan(pool, &pool.dataset(&renamed(dataset))?)? else { continue };
            let before = change.down.iter().find(|down| down.dataset == *dataset);
            let plan = before.map_or(plan.clone(), |down| down.place(plan));
            let can = if was_mounted { plan.can != CanMount::Off } else { plan.can == CanMount::On };
            if can && matches!(plan.target, Target::At(_)) {
                let overrides = before.map(|down| down.overrides_under(&plan)).unwrap_or_default();
                plans.push((plan, overrides));
            }
        }
        Ok(self.mount_plans(pool, plans))
    }

    /// Applies the present properties to mounts. `settled` were just set at a dataset and replace the mount options given
    /// before. Returns the mounts for which it failed, with reasons.
    pub(crate) fn refresh(
        &self,
        pool: &Pool,
        settled: Option<(&str, &[String])>,
    ) -> Vec<(String, MountError)> {
        let mut failed = Vec::new();
        self.notice_unmounted();
        let mounts: Vec<(String, MountOptions, Overrides)> = {
            let table = self.table();
            table.iter().map(|m| (m.dataset.clone(), m.planned.clone(), m.overrides)).collect()
        };
        for (dataset, planned, overrides) in mounts {
            let plan = pool.dataset(&dataset).and_then(|info| self.plan(pool, &info));
            let options = match plan {
                Ok(Some(plan)) => plan.options,
                Ok(None) => continue,
                Err(error) => {
                    tracing::warn!(dataset, %error, "its properties cannot be read");
                    continue;
                }
            };
            let mut overrides = overrides.unless_changed(&planned, &options);
            for (top, name) in
                settled.iter().flat_map(|(top, names)| names.iter().map(move |name| (top, name)))
            {
                // A dataset that cannot be read was reported above.
                let follows =
                    MOUNTED.contains(&name.as_str()).then(|| Plan::follows(pool, &dataset, top, name));
                if matches!(follows, Some(Ok(true))) {
                    overrides.settle(name);
                }
            }
            let changed = self.change(pool, &dataset, options, overrides);
            if let Err(error) = changed
                // Another program unmounted it meanwhile.
                && !matches!(error, MountError::NotMounted)
            {
                tracing::warn!(dataset, %error, "not remounted");
                failed.push((dataset, error));
            }
        }
        failed.extend(self.mount_with_other_acls(pool));
        let handles: Vec<_> = self.table().iter().map(|mount| mount.handle.clone()).collect();
        handles.iter().for_each(|handle| handle.look_at_properties());
        failed
    }

    /// Unmounts and mounts again the file systems whose `acltype` changed, with all mounts inside. Returns those that could
    /// not be unmounted.
    fn mount_with_other_acls(&self, pool: &Pool) -> Vec<(String, MountError)> {
        let has_other = |dataset: &str| {
            let table = self.table();
            table.iter().any(|mount| mount.dataset == dataset && mount.handle.has_other_acls())
        };
        let mut failed = Vec::new();
        // Parents come first; their children are mounted again with them.
        for (dataset, _) in self.seen() {
            if !has_other(&dataset) {
                continue;
            }
            match self.begin(pool, &dataset, Kind::Contents, false) {
                Ok(change) => match self.end(pool, change, str::to_owned) {
                    Ok(report) => failed.extend(report.failed),
                    Err(error) => failed.push((dataset, error.into())),
                },
                Err(BeginError::Pool(error)) => failed.push((dataset, error.into())),
                Err(BeginError::Unmounted(error)) => {
                    let error = error.of_dataset(&dataset);
                    failed.push((dataset, error));
                }
            }
        }
        failed
    }
}
