//! `zpool attach`: devices join the mirrors of a pool. `zpool replace` and `zpool detach` share the code.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use format::config::VdevConfig;
use scan::Scans as _;
use storage::host::Access;

use super::Call;
use super::zpool_create::check_use;
use super::zpool_devices::{device, opened};
use crate::args::{Parsed, flag, property};
use crate::command::{Command, Run, Targets};
use crate::messages::{Action, Failure};
use crate::open::{self, Session};
use crate::out::Console;
use crate::state;

/// `zpool attach`.
pub static COMMAND: Command = Command {
    name: "attach",
    about: "makes a device one side of a mirror",
    syntax: &["attach [-fsw] [-o PROPERTY=VALUE] POOL DEVICE NEWDEVICE"],
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
    pub(super) sets_properties: bool,
}

fn read(args: &Parsed) -> Options {
    Options {
        force: args.has("f"),
        sequential: args.has("s"),
        wait: args.has("w"),
        sets_properties: args.has("o"),
    }
}

/// Exit status of a device that cannot be attached, detached or replaced: OpenZFS returns -1 there.
const NEGATIVE: u8 = 255;

/// Runs `zpool attach` and `zpool replace`.
///
/// # Errors
/// Usage; a device that is not there, in use, or too small.
pub(super) fn join(
    call: &Call,
    options: &Options,
    console: &mut Console,
    replaces: bool,
) -> Result<(), Failure> {
    for (option, is_given) in [("s", options.sequential), ("o", options.sets_properties)] {
        if is_given {
            let name = call.command.name;
            return Err(Failure::refused(format!("cenote: not supported yet: zpool {name} -{option}")));
        }
    }
    let (pool, old, new) = match call.args.operands.as_slice() {
        [] => return Err(Failure::usage("missing pool name argument")),
        [_] => return Err(Failure::usage("missing <device> specification")),
        [pool, old] if replaces => (pool, old, old),
        [_, _] => return Err(Failure::usage("missing <new_device> specification")),
        [pool, old, new] => (pool, old, new),
        _ => return Err(Failure::usage("too many arguments")),
    };
    if old == new {
        let line = "cenote: not supported yet: zpool replace without a new device";
        return Err(Failure::refused(line));
    }
    // A pool that is not there comes first.
    open::find(pool, call.around)?;
    let path = state::absolute(&PathBuf::from(new));
    check_use(std::slice::from_ref(&path), options.force, Action::Create(pool), call)?;
    let deed = match replaces {
        true => format!("replace {old} with {new}"),
        false => format!("attach {new} to {old}"),
    };
    let change = Change { call, pool, name: old, deed };
    negative(console, change.join(&path, replaces, options.wait))
}

/// A change of one device of a pool.
pub(super) struct Change<'a> {
    pub call: &'a Call<'a>,
    pub pool: &'a str,
    /// The device as it was named.
    pub name: &'a str,
    /// What is done, as messages say it.
    pub deed: String,
}

impl Change<'_> {
    fn failed(&self, why: &str) -> Failure {
        Failure::refused(format!("cannot {}: {why}", self.deed))
    }

    fn join(&self, path: &Path, replaces: bool, waits: bool) -> Result<(), Failure> {
        let failed = |why: &str| self.failed(why);
        let found = device(self.call, self.pool, self.name, &failed)?;
        let disk = pool::open_disk(path, Access::ReadWrite { exclusive: true });
        let disk = Arc::new(disk.map_err(|error| failed(&error.to_string()))?);
        let session = opened(self.call, self.pool, &failed)?;
        let done = match replaces {
            true => session.pool().replace(found.guid, disk),
            false => session.pool().attach(found.guid, disk),
        };
        done.and_then(|()| session.pool().resilver_joined()).map_err(|error| failed(&error.to_string()))?;
        note_devices(&session)?;
        if waits || self.call.live().is_none() {
            session.pool().wait_scrub().map_err(|error| failed(&error.to_string()))?;
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

/// Says what failed, and ends as OpenZFS does there.
pub(super) fn negative(console: &mut Console, done: Result<(), Failure>) -> Result<(), Failure> {
    match done {
        Err(failure @ Failure::Refused(_)) => {
            console.complain(failure)?;
            Err(Failure::Ended(NEGATIVE))
        }
        done => done,
    }
}

/// Notes where the devices of the pool are now.
pub(super) fn note_devices(session: &Session) -> Result<(), Failure> {
    let config = session.pool().info().config;
    let named = |raw: &Vec<u8>| PathBuf::from(String::from_utf8_lossy(raw).into_owned());
    let vdevs = session.pool().storage().vdevs();
    // What the pool says of a device may be where it was on another machine.
    let open: BTreeMap<u64, PathBuf> =
        vdevs.leaves().map(|leaf| (leaf.guid, state::absolute(leaf.disk.path()))).collect();
    let place = |leaf: &VdevConfig| {
        let known = open.get(&leaf.guid.0).or_else(|| session.devices.get(&leaf.guid.0)).cloned();
        known.or_else(|| leaf.path.as_ref().map(named))
    };
    let devices: Vec<PathBuf> = config.tree.leaves().filter_map(place).collect();
    let guid = session.pool().guid();
    let noted = state::known().update(|pools| {
        for known in pools.iter_mut().filter(|known| known.guid == guid) {
            known.devices.clone_from(&devices);
        }
    });
    noted.map_err(|error| Failure::refused(format!("cannot note the devices of the pool: {error}")))
}
