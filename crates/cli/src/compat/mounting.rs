//! Effects of dataset commands on the mounts of a served pool.
//!
//! If this process is not the pool's server, nothing of the pool is mounted and there is nothing to do.

use std::path::Path;
use std::sync::Arc;

use pool::props::Value;
use pool::props::dataset as props;
use pool::{Dataset, DatasetInfo, Pool};
use server::messages::Elsewhere;
use server::{BeginError, Change, Exchanged, Kind, Live, MountError, Overrides, Report, Unmounted};
use zpl::rank::MutexHeld;

use super::Call;
use super::not_shared::not_shared;
use crate::around::Served;
use crate::messages::{Action, Failure, reason};
use crate::out::Console;
use crate::start::{not_mounted, tell_moved};

impl Call<'_> {
    /// The pool that this process holds.
    pub fn live(&self) -> Option<&Arc<Live>> {
        self.around.live()
    }

    /// In a server: takes the lock for changes of datasets and properties.
    ///
    /// # Errors
    /// As [`Served::turn`].
    pub fn turn(&self) -> Result<Option<MutexHeld<'_, ()>>, Failure> {
        self.around.served.as_ref().map(Served::turn).transpose()
    }
}

/// The failure of unmounting.
pub fn stays(dataset: &str, error: &Unmounted) -> Failure {
    match error {
        Unmounted::NotMounted | Unmounted::Suspended | Unmounted::Closed(_) => {
            Action::Unmount(dataset).failed(error)
        }
        Unmounted::Busy { point } | Unmounted::Stuck { point } | Unmounted::Refused { point, .. } => {
            Action::Unmount(&point.display().to_string()).failed(error)
        }
    }
}

/// The failure of mounting, with the path of the obstacle.
pub fn why_not_mounted(dataset: &str, error: &MountError) -> Failure {
    match error {
        MountError::NotEmpty(point) => not_mounted(&point.display().to_string(), &error.to_string()),
        error => not_mounted(dataset, &error.to_string()),
    }
}

/// Reports file systems that are not mounted or mounted elsewhere. Returns whether all are mounted.
pub fn say(report: &Report, console: &mut Console) -> Result<bool, Failure> {
    report.notes.iter().for_each(|note| console.note(&format!("cenote: {note}")));
    tell_moved(&report.moved, console);
    for (dataset, error) in &report.failed {
        console.complain(why_not_mounted(dataset, error))?;
    }
    Ok(report.failed.is_empty())
}

/// Mounts a file system that was just created, and those above it that were, too.
///
/// # Errors
/// Standard output is gone.
pub fn created(call: &Call, console: &mut Console, name: &str) -> Result<(), Failure> {
    let Some(live) = call.live() else { return Ok(()) };
    let mounted = match live.mount_all(name, Overrides::default()) {
        Ok(mut report) => {
            // Where the one above it is mounted was said when that was.
            let is_told =
                |point: &Path| live.mounts().iter().any(|(_, mount)| Some(mount.as_path()) == point.parent());
            report.moved.retain(|moved| moved.why != Elsewhere::NotYours || !is_told(&moved.point));
            say(&report, console)?
        }
        Err(error) => {
            console.complain(not_mounted(name, &error.to_string()))?;
            false
        }
    };
    if !mounted {
        console.complain(Failure::refused("filesystem successfully created, but not mounted"))?;
    }
    say_not_shared(live, console)
}

/// Reports file systems that could not be shared although their properties say so.
fn say_not_shared(live: &Live, console: &mut Console) -> Result<(), Failure> {
    let failed = live.take_not_shared();
    failed.iter().try_for_each(|(dataset, error)| console.complain(not_shared(dataset, error)))
}

/// Unmounts a dataset before it is destroyed.
///
/// # Errors
/// It is in use.
pub fn destroying(call: &Call, name: &str, force: bool) -> Result<(), Failure> {
    match call.live() {
        Some(live) => {
            // Its origin may be destroyed with it.
            let origin = live.pool().ok().and_then(|pool| origin_of(&pool, name));
            live.let_go_of(&[name.to_owned()].into_iter().chain(origin).collect::<Vec<_>>());
            live.unmount_for_good(&[name.to_owned()], force).map_err(|error| stays(name, &error))
        }
        None => Ok(()),
    }
}

/// Destroys snapshots, after mounts have closed those that only the kernel's cache keeps open.
///
/// # Errors
/// Those of [`Pool::destroy_snapshots`].
pub fn destroy_snapshots(call: &Call, pool: &Pool, names: &[String], defer: bool) -> pool::Result<()> {
    letting_go(call, names);
    let done = pool.destroy_snapshots(names, defer);
    destroyed(call);
    done
}

/// Ends the mounts and exports of datasets that were possibly destroyed.
pub fn destroyed(call: &Call) {
    if let Some(live) = call.live() {
        live.destroyed();
    }
}

/// Prepares mounts for the destroy of snapshots, or for their move to another file system.
pub fn letting_go(call: &Call, names: &[String]) {
    if let Some(live) = call.live() {
        live.let_go_of(names);
    }
}

/// The snapshot that a dataset was cloned from.
fn origin_of(pool: &Pool, name: &str) -> Option<String> {
    let origin = props::parse("origin").expect("the table has it");
    match pool.dataset(name).and_then(|info| pool.property(&info, origin)) {
        Ok(Some((Value::Text(origin), _))) => Some(origin),
        // If it cannot be read, the change itself says why.
        _ => None,
    }
}

/// Promotes a clone and notifies the mounts.
///
/// # Errors
/// Those of [`Pool::promote`].
pub fn promote(call: &Call, pool: &Pool, clone: &str) -> pool::Result<()> {
    let Some(live) = call.live() else { return pool.promote(clone) };
    let origin = origin_of(pool, clone).unwrap_or_default();
    let fs = origin.split('@').next().unwrap_or_default();
    let list = pool.list(fs, Some(1), true).unwrap_or_default();
    let mut names: Vec<String> =
        list.into_iter().filter(DatasetInfo::is_snapshot).map(|info| info.name).collect();
    live.let_go_of(&names);
    pool.promote(clone)?;
    names.retain(|name| pool.dataset(name).is_err());
    live.renamed_snapshots(&names);
    live.rename(|name| match name.split_once('@') {
        Some((_, leaf)) if names.iter().any(|moved| moved == name) => format!("{clone}@{leaf}"),
        _ => name.to_owned(),
    });
    Ok(())
}

/// Renames snapshots, and notifies the mounts.
///
/// # Errors
/// Those of [`Pool::rename_snapshots`].
pub fn rename_snapshots(call: &Call, pool: &Pool, names: &[String], leaf: &str) -> pool::Result<()> {
    pool.rename_snapshots(names, leaf)?;
    if let Some(live) = call.live() {
        live.renamed_snapshots(names);
        live.rename(|name| match name.split_once('@') {
            Some((fs, _)) if names.iter().any(|renamed| renamed == name) => format!("{fs}@{leaf}"),
            _ => name.to_owned(),
        });
    }
    Ok(())
}

/// The mounts that a change moves.
pub struct Moved<'a> {
    /// The topmost dataset.
    pub top: &'a str,
    pub kind: Kind,
    /// They are taken down although programs use them.
    pub force: bool,
}

/// Runs `change`, which moves the mounts at and below a dataset. `renamed` maps old to new names.
///
/// # Errors
/// A mount that would have to move is in use: nothing is changed. Or `change` fails.
pub fn moving(
    call: &Call,
    console: &mut Console,
    moved: Moved<'_>,
    renamed: impl Fn(&str) -> String,
    change: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let Some(live) = call.live() else { return change() };
    let Moved { top, kind, force } = moved;
    let down = live.begin(top, kind, force).map_err(|error| match error {
        BeginError::Unmounted(error) => stays(top, &error),
        BeginError::Pool(error) => Action::Open(top).failed(error),
    })?;
    let changed = change();
    let ended = match &changed {
        Ok(()) => end(live, down, renamed),
        Err(_) => end(live, down, str::to_owned),
    };
    match ended {
        Ok(report) => drop(say(&report, console)?),
        Err(error) => console.complain(not_mounted(top, &error.to_string()))?,
    }
    changed
}

/// The new contents of a file system or volume.
pub struct Contents {
    /// Its name.
    pub of: String,
    /// The same contents, open for reading.
    pub next: Arc<Dataset>,
    /// Snapshots that go with the change.
    pub doomed: Vec<String>,
}

/// Runs `change`, which gives a file system these contents. It stays mounted, and programs can still use files that are
/// equal in both states.
///
/// # Errors
/// Running requests of programs do not end, and nothing is changed; or `change` fails.
pub fn exchanging(
    call: &Call,
    console: &mut Console,
    contents: Contents,
    mut change: impl FnMut() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let Contents { of: fs, next, doomed } = contents;
    let Some(live) = call.live() else {
        drop(next);
        return change();
    };
    live.let_go_of(&doomed);
    live.let_go_of(std::slice::from_ref(&fs));
    let _held = live.hold_shares_off(&fs);
    match live.exchange(&fs, next, &mut change).map_err(|error| in_use(&fs, &error))? {
        Exchanged::NotMounted => change(),
        Exchanged::Done(done, None) => done,
        Exchanged::Done(done, Some(why)) => {
            console.complain(not_mounted(&fs, &why))?;
            done
        }
    }
}

/// The failure of an exchange that did not begin.
fn in_use(fs: &str, error: &Unmounted) -> Failure {
    match error {
        Unmounted::Busy { .. } => Action::Open(fs).failed(reason::BUSY),
        error => Action::Open(fs).failed(error),
    }
}

fn end(live: &Live, down: Change, renamed: impl Fn(&str) -> String) -> Result<Report, MountError> {
    live.end(down, renamed)
}

/// Before `readonly` is turned on for `name`: makes the mounts that inherit it read-only.
///
/// # Errors
/// A file is open for writing: nothing is changed.
pub fn turning_read_only(live: &Live, name: &str, action: Action<'_>) -> Result<(), Failure> {
    live.make_read_only(name).map_err(|error| {
        // Those that were made so before it.
        live.refresh(None);
        match error {
            MountError::Front(front::MountError::Busy(_)) => action.failed(reason::BUSY),
            error => action.failed(error),
        }
    })
}

/// Applies their properties to the mounts. `settled` were just set at a dataset. Returns the mounts for which it failed.
///
/// # Errors
/// Standard output is gone.
pub fn refresh(
    call: &Call,
    console: &mut Console,
    settled: Option<(&str, &[String])>,
) -> Result<(), Failure> {
    let Some(live) = call.live() else { return Ok(()) };
    let failed = live.refresh(settled);
    say_not_shared(live, console)?;
    for (dataset, error) in failed {
        let why = match error {
            MountError::Front(front::MountError::Busy(_)) => reason::BUSY.to_owned(),
            error => error.to_string(),
        };
        console.complain(Failure::refused(format!(
            "cenote: the property is set, but '{dataset}' stays mounted as it was: {why}"
        )))?;
    }
    Ok(())
}

/// The kind of change that setting these properties is; `None` if no mount moves. `canmount=on` and `noauto` neither
/// mount nor unmount anything.
pub fn kind_of(values: &[(String, Option<Value>)]) -> Option<Kind> {
    let value_of = |wanted: &str| values.iter().find(|(name, _)| name == wanted).map(|(_, value)| value);
    match (value_of("mountpoint"), value_of("canmount")) {
        (Some(_), _) => Some(Kind::Mountpoint),
        // Without a value, the received value counts.
        (None, Some(None | Some(Value::Number(0)))) => Some(Kind::CanMount),
        _ => None,
    }
}

/// Why nothing can be mounted or unmounted without a server.
pub fn without_server(call: &Call) -> Failure {
    let what = call.command.name;
    Failure::refused(format!("cenote: not supported yet: zfs {what} without a server (CENOTE_SERVER=off)"))
}
