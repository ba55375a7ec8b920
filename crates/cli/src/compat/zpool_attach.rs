//! `zpool attach`: devices join the mirrors and raidz vdevs of a pool. `zpool replace` and `zpool detach` share the code.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use format::Guid;
use format::config::{VdevConfig, VdevKind};
use pool::{AuxKind, AuxVdev};
use scan::Scans as _;
use storage::host::Access;

use super::Call;
use super::view::{Naming, PoolView, VdevView};
use super::zpool_create::check_use;
use super::zpool_devices::{ashift, device, named, opened};
use crate::args::{Parsed, flag, property};
use crate::command::{Command, Run, Targets};
use crate::messages::{Action, Failure};
use crate::open::{self, Session};
use crate::out::Console;
use crate::state;

/// `zpool attach`.
pub static COMMAND: Command = Command {
    name: "attach",
    about: "makes a device one side of a mirror, or a raidz vdev wider",
    syntax: &["attach [-fsw] [-o PROPERTY=VALUE] POOL DEVICE NEWDEVICE"],
    examples: &[
        "zpool attach tank /dev/sda /dev/sdb",
        "zpool attach -w tank /srv/a.img /srv/b.img",
        "zpool attach tank raidz1-0 /dev/sde",
    ],
    options: &[
        flag("f", "uses a device that seems to be in use"),
        flag("s", "rebuilds in the order of the device"),
        flag("w", "waits for the end"),
        property("o", "sets ashift"),
    ],
    targets: Targets::First,
    run: Run::Here(|call, console| join(call, &read(&call.args), console, false)),
    ..Command::ZPOOL
};

/// The options of `zpool attach` and `zpool replace`.
pub(super) struct Options {
    pub(super) force: bool,
    pub(super) sequential: bool,
    pub(super) wait: bool,
    /// The properties of `-o`. The sector size of a vdev cannot change, so they have no effect.
    pub(super) properties: Vec<String>,
}

fn read(args: &Parsed) -> Options {
    Options {
        force: args.has("f"),
        sequential: args.has("s"),
        wait: args.has("w"),
        properties: args.texts("o"),
    }
}

/// Exit status of a device that cannot be attached, detached or replaced: OpenZFS returns -1 there.
const NEGATIVE: u8 = 255;

/// Runs `zpool attach` and `zpool replace`.
///
/// # Errors
/// The arguments are wrong, or a device is missing, in use or too small.
pub(super) fn join(
    call: &Call,
    options: &Options,
    console: &mut Console,
    replaces: bool,
) -> Result<(), Failure> {
    ashift(&options.properties)?;
    let (pool, old, new) = match call.args.operands.as_slice() {
        [] => return Err(Failure::usage("missing pool name argument")),
        [_] => return Err(Failure::usage("missing <device> specification")),
        [pool, old] if replaces => (pool, old, old),
        [_, _] => return Err(Failure::usage("missing <new_device> specification")),
        [pool, old, new] => (pool, old, new),
        _ => return Err(Failure::usage("too many arguments")),
    };
    // A pool that is not there comes first.
    let view = PoolView::new(open::find(pool, call.around)?);
    let deed = match replaces {
        true => format!("replace {old} with {new}"),
        false => format!("attach {new} to {old}"),
    };
    let change = Change { call, pool, name: old, deed };
    if replaces && let Some(spare) = spare_at(&view, new) {
        drop(view);
        return negative(console, change.fill_in(spare, options));
    }
    let path = place_of(&view, old, new);
    let widened = raidz_at(&view, old).filter(|_| !replaces);
    drop(view);
    if let Err(error) = std::fs::metadata(pool::backing_file(&path))
        && error.kind() == std::io::ErrorKind::NotFound
    {
        return Err(Failure::refused(format!("cannot resolve path '{}'", path.display())));
    }
    check_use(std::slice::from_ref(&path), options.force, Action::Create(pool), call)?;
    if let Some(vdev) = widened {
        return negative(console, change.widen(vdev, &path, options));
    }
    negative(console, change.join(&path, replaces, options))
}

/// The raidz vdev of a pool with the name or guid `name`.
fn raidz_at(view: &PoolView, name: &str) -> Option<Guid> {
    let tree = view.tree(Naming::default());
    let is_meant = |vdev: &&VdevView| {
        vdev.kind.starts_with("raidz") && (vdev.name == name || vdev.guid.0.to_string() == name)
    };
    tree.iter().find(is_meant).map(|vdev| vdev.guid)
}

/// The spare of a pool with the name `name`.
fn spare_at(view: &PoolView, name: &str) -> Option<Guid> {
    let aux = view.aux().ok()?.iter().filter(|aux| aux.kind == AuxKind::Spare);
    let is_meant = |aux: &&AuxVdev| {
        let path = state::absolute(&PathBuf::from(name));
        let known =
            aux.config.path.as_deref().map(|raw| PathBuf::from(String::from_utf8_lossy(raw).into_owned()));
        let is_named = aux.is_distributed && known == Some(PathBuf::from(name));
        is_named
            || aux.device.as_deref() == Some(&path)
            || known == Some(path)
            || aux.config.guid.0.to_string() == name
    };
    aux.into_iter().find(is_meant).map(|aux| aux.config.guid)
}

/// Where the new device is: a device that is replaced without another being named may be known by its guid.
fn place_of(view: &PoolView, old: &str, new: &str) -> PathBuf {
    let tree = view.tree(Naming::default());
    let known = tree.iter().find_map(|vdev| named(vdev, old)).filter(|_| old == new);
    let path = known.and_then(|vdev| vdev.path.clone());
    state::absolute(&path.map_or_else(|| PathBuf::from(new), PathBuf::from))
}

/// A change of one device of a pool.
pub(super) struct Change<'a> {
    pub call: &'a Call<'a>,
    pub pool: &'a str,
    /// The device as it was named.
    pub name: &'a str,
    /// The action, in the words of the messages.
    pub deed: String,
}

impl Change<'_> {
    fn failed(&self, why: &str) -> Failure {
        Failure::refused(format!("cannot {}: {why}", self.deed))
    }

    fn join(&self, path: &Path, replaces: bool, options: &Options) -> Result<(), Failure> {
        let failed = |why: &str| self.failed(why);
        let found = device(self.call, self.pool, self.name, &failed)?;
        let disk = pool::open_disk(path, Access::ReadWrite { exclusive: true });
        let disk = Arc::new(disk.map_err(|error| failed(&error.to_string()))?);
        let session = opened(self.call, self.pool, &failed)?;
        note_coming(&session, &[path.to_path_buf()])?;
        let pool = session.pool();
        let done = match (replaces, options.sequential) {
            (true, true) => pool.replace_sequentially(found.guid, disk),
            (true, false) => pool.replace(found.guid, disk),
            (false, true) => pool.attach_sequentially(found.guid, disk),
            (false, false) => pool.attach(found.guid, disk),
        };
        let joined = done.or_else(|error| {
            note_devices(&session)?;
            Err(failed(&error.to_string()))
        })?;
        self.end(session, joined, options.wait)
    }

    /// Adds a device to a raidz vdev. Waits until its sectors have moved if that is wanted, or no server would move them.
    fn widen(&self, vdev: Guid, path: &Path, options: &Options) -> Result<(), Failure> {
        let failed = |why: &str| self.failed(why);
        if options.sequential {
            return Err(failed("only mirror and dRAID vdevs support sequential reconstruction"));
        }
        let disk = pool::open_disk(path, Access::ReadWrite { exclusive: true });
        let disk = Arc::new(disk.map_err(|error| failed(&error.to_string()))?);
        let session = opened(self.call, self.pool, &failed)?;
        note_coming(&session, &[path.to_path_buf()])?;
        session.pool().widen(vdev, disk).or_else(|error| {
            note_devices(&session)?;
            Err(failed(&error.to_string()))
        })?;
        note_devices(&session)?;
        if options.wait || self.call.live().is_none() {
            wait_widened(&session, self.call.live().is_none()).map_err(|error| failed(&error.to_string()))?;
        }
        session.finish()
    }

    /// Makes a spare fill in.
    fn fill_in(&self, spare: Guid, options: &Options) -> Result<(), Failure> {
        let failed = |why: &str| self.failed(why);
        let found = device(self.call, self.pool, self.name, &failed)?;
        let session = opened(self.call, self.pool, &failed)?;
        let joined = match options.sequential {
            true => session.pool().replace_by_spare_sequentially(found.guid, spare),
            false => session.pool().replace_by_spare(found.guid, spare),
        };
        let joined = joined.map_err(|error| failed(&error.to_string()))?;
        self.end(session, joined, options.wait)
    }

    /// Notes the devices; waits for the resilver if that is wanted, or no server would carry it out.
    fn end(&self, session: Session, joined: pool::Joined, waits: bool) -> Result<(), Failure> {
        let failed = |why: &str| self.failed(why);
        session.pool().resilver_joined(joined).map_err(|error| failed(&error.to_string()))?;
        note_devices(&session)?;
        let is_alone = self.call.live().is_none();
        if waits || is_alone {
            let pool = session.pool();
            // A scrub follows a rebuild; the user did not ask to wait for the scrub.
            let done = pool.wait_rebuild();
            let is_scrubbing = pool.scan().is_ok_and(|scan| scan.is_some_and(|it| it.scan.is_scrubbing()));
            let done = done.and_then(|()| if is_alone || !is_scrubbing { pool.wait_scrub() } else { Ok(()) });
            done.map_err(|error| failed(&error.to_string()))?;
            note_devices(&session)?;
        }
        session.finish()
    }

    pub fn detach(&self) -> Result<(), Failure> {
        let failed = |why: &str| self.failed(why);
        let found = device(self.call, self.pool, self.name, &failed)?;
        let session = opened(self.call, self.pool, &failed)?;
        session.pool().detach(found.guid).map_err(|error| failed(&error.to_string()))?;
        note_devices(&session)?;
        session.finish()
    }
}

/// Waits until the sectors of a raidz vdev have moved, and begins the scrub that follows; without a server it also waits for the scrub.
pub(super) fn wait_widened(session: &Session, is_alone: bool) -> pool::Result<()> {
    session.pool().wait_widened()?;
    if session.pool().take_expanded() {
        session.pool().scrub()?;
        if is_alone {
            session.pool().wait_scrub()?;
        }
    }
    Ok(())
}

/// Prints the failure, and ends as OpenZFS does there.
pub(super) fn negative(console: &mut Console, done: Result<(), Failure>) -> Result<(), Failure> {
    match done {
        Err(failure @ Failure::Refused(_)) => {
            console.complain(failure)?;
            Err(Failure::Ended(NEGATIVE))
        }
        done => done,
    }
}

/// Adds devices that are about to join the pool to the list of imported pools. If the process ends before it notes the change,
/// the list has all devices that the pool may need.
pub(super) fn note_coming(session: &Session, paths: &[PathBuf]) -> Result<(), Failure> {
    let guid = session.pool().guid();
    let noted = state::known().update(|pools| {
        for known in pools.iter_mut().filter(|known| known.guid == guid) {
            let new: Vec<_> = paths.iter().filter(|path| !known.devices.contains(path)).cloned().collect();
            known.devices.extend(new);
        }
    });
    noted.map_err(not_noted)
}

fn not_noted(error: pool::known::KnownError) -> Failure {
    Failure::refused(format!("cannot note the devices of the pool: {error}"))
}

/// Notes where the devices of the pool are now.
pub(super) fn note_devices(session: &Session) -> Result<(), Failure> {
    note_devices_of(session.pool(), &session.devices).map_err(not_noted)
}

/// As [`note_devices`]; `known` says where devices were found.
pub(crate) fn note_devices_of(
    pool: &pool::Pool,
    known: &BTreeMap<u64, PathBuf>,
) -> Result<(), pool::known::KnownError> {
    let config = pool.info().config;
    let named = |raw: &Vec<u8>| PathBuf::from(String::from_utf8_lossy(raw).into_owned());
    // The path of a device in the pool's labels may be its path on another machine.
    let open: BTreeMap<u64, PathBuf> =
        pool.leaves().map(|leaf| (leaf.guid, state::absolute(leaf.disk.path()))).collect();
    let place = |leaf: &VdevConfig| {
        let place = open.get(&leaf.guid.0).or_else(|| known.get(&leaf.guid.0)).cloned();
        place.or_else(|| leaf.path.as_ref().map(named))
    };
    let with_device = config.tree.leaves().filter(|leaf| leaf.kind != VdevKind::DistributedSpare);
    let devices: Vec<PathBuf> = with_device.filter_map(place).collect();
    let guid = pool.guid();
    state::known().update(|pools| {
        for known in pools.iter_mut().filter(|known| known.guid == guid) {
            known.devices.clone_from(&devices);
        }
    })
}
