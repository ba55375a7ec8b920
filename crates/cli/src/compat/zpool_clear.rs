//! `zpool clear`.

use super::Call;
use super::view::{Naming, PoolView};
use super::zpool_devices::named;
use crate::args::{Parsed, flag};
use crate::command::{Beside, Command, Run, Targets};
use crate::messages::{Failure, reason};
use crate::open::{self};
use scan::Scans as _;

/// `zpool clear`.
pub static COMMAND: Command = Command {
    name: "clear",
    about: "forgets errors of devices",
    syntax: &["clear [[--power]|[-nF]] POOL [DEVICE]"],
    examples: &["zpool clear tank", "zpool clear tank /dev/sda"],
    options: &[
        flag("F", "opens the pool at an earlier state"),
        flag("n", "only says whether that would do"),
        flag("X", "tries any earlier state"),
        flag("power", "switches slots on"),
    ],
    targets: Targets::First,
    beside: Beside::TakesTurns,
    run: Run::Here(|call, _| run(call)),
    ..Command::ZPOOL
};

/// The options of `zpool clear`.
struct Options {
    recover: bool,
    dry_run: bool,
    extreme: bool,
    power: bool,
}

fn read(args: &Parsed) -> Options {
    Options {
        recover: args.has("F"),
        dry_run: args.has("n"),
        extreme: args.has("X"),
        power: args.has("power"),
    }
}

/// Runs `zpool clear`.
///
/// # Errors
/// The arguments are wrong, or a pool or device is missing.
fn run(call: &Call) -> Result<(), Failure> {
    let call = &call.typed(read);
    if call.options.power {
        return Err(Failure::refused("cenote: not supported yet: zpool clear --power"));
    }
    if (call.options.dry_run || call.options.extreme) && !call.options.recover {
        return Err(Failure::usage("-n or -X only meaningful with -F"));
    }
    let (name, device) = match call.args.operands.as_slice() {
        [] => return Err(Failure::usage("missing pool name")),
        [name] => (name, None),
        [name, device] => (name, Some(device)),
        _ => return Err(Failure::usage("too many arguments")),
    };
    let usable = open::find(name, call.around)?;
    let view = PoolView::new(usable);
    let Some(session) = view.session() else {
        return Err(Failure::refused(format!(
            "cannot clear errors for {name}: {}",
            reason::POOL_UNAVAILABLE
        )));
    };
    if session.pool().read_only().is_some() {
        let reason = reason::POOL_READ_ONLY;
        return Err(Failure::refused(format!("cannot clear errors for {name}: {reason}")));
    }
    let guid = match device {
        None => None,
        Some(device) => {
            let missing =
                || Failure::refused(format!("cannot clear errors for {device}: no such device in pool"));
            let tree = view.tree(Naming::default());
            Some(tree.iter().find_map(|vdev| named(vdev, device)).ok_or_else(missing)?.guid.0)
        }
    };
    // A pool that is open needs no recovery: there is nothing to try.
    if call.options.dry_run {
        return Ok(());
    }
    let pool = session.pool();
    pool.clear_errors(guid);
    pool.resume().map_err(|error| {
        let why = pool.trouble().map_or_else(String::new, |trouble| trouble.why);
        Failure::refused(format!("cannot clear errors for {name}: {error}")).hint(why)
    })?;
    // Without a server no process keeps events or waits for devices.
    if !session.is_live() {
        return Ok(());
    }
    session.command(&call.line);
    let reopened = pool.reopen(guid.map(format::Guid)).and_then(|(_, joined)| pool.resilver_joined(joined));
    let written = reopened.and_then(|()| pool.rewrite_config());
    pool.forget_command();
    written.map_err(|error| Failure::refused(format!("cannot clear errors for {name}: {error}")))
}
