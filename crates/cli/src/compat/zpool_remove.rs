//! `zpool remove`.

use pool::props::number::nice;

use super::Call;
use super::view::{Class, Naming, PoolView, VdevView};
use super::zpool_attach::note_devices;
use super::zpool_devices::{self, named};
use crate::args::{Parsed, flag};
use crate::command::{Beside, Command, Run, Targets, Typed};
use crate::messages::Failure;
use crate::open::{self, Session};
use crate::out::Console;

/// `zpool remove`.
pub static COMMAND: Command = Command {
    name: "remove",
    about: "takes devices out of a pool",
    syntax: &["remove [-npw] POOL DEVICE…", "remove -s POOL"],
    examples: &["zpool remove -n tank /dev/sdc", "zpool remove tank /dev/sdc", "zpool remove -s tank"],
    options: &[
        flag("n", "removes nothing, only shows the memory it would take"),
        flag("p", "exact numbers"),
        flag("w", "waits for the end"),
        flag("s", "stops a removal"),
    ],
    targets: Targets::First,
    beside: Beside::TakesTurns,
    run: Run::Here(run),
    ..Command::ZPOOL
};

/// The options of `zpool remove`.
struct Options {
    dry_run: bool,
    exact: bool,
    wait: bool,
    stop: bool,
}

fn read(args: &Parsed) -> Options {
    Options { dry_run: args.has("n"), exact: args.has("p"), wait: args.has("w"), stop: args.has("s") }
}

/// Runs `zpool remove`.
///
/// # Errors
/// The arguments are wrong, or a device is missing or cannot be removed by this build. The devices before it are removed.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let args = &call.args;
    if call.options.stop && call.options.dry_run {
        console.note("stop request ignored");
        return Ok(());
    }
    let Some((pool, names)) = args.operands.split_first() else {
        return Err(Failure::usage("missing pool name argument"));
    };
    let view = PoolView::new(open::find(pool, call.around)?);
    if call.options.stop {
        if !names.is_empty() {
            return Err(Failure::usage("too many arguments"));
        }
        if call.options.wait {
            return Err(Failure::usage("invalid option combination: -w cannot be used with -s"));
        }
        drop(view);
        return cancel(call, pool);
    }
    if names.is_empty() {
        return Err(Failure::usage("missing device"));
    }
    let shown = view.shown(Naming::default());
    let find = |name: &String| shown.iter().find_map(|vdev| named(vdev, name)).cloned();
    if call.options.dry_run {
        return names.iter().try_for_each(|name| forecast(call, &view, (name, find(name)), console));
    }
    drop(view);
    let (mut session, mut refused) = (None, false);
    for name in names {
        if let Err(failure) = remove(call, pool, name, find(name), &mut session) {
            console.complain(failure)?;
            refused = true;
        }
    }
    if let Some(session) = session {
        note_devices(&session)?;
        // Without a server the removal would stop at the end of this command.
        if call.options.wait || call.live().is_none() {
            let waited = session.pool().wait_removed();
            waited.map_err(|error| Failure::refused(format!("cannot wait for the removal: {error}")))?;
            note_devices(&session)?;
        }
        session.finish()?;
    }
    if refused { Err(Failure::Ended(1)) } else { Ok(()) }
}

/// Cancels the running removal.
fn cancel(call: &Call, pool: &str) -> Result<(), Failure> {
    let failed = |why: &dyn std::fmt::Display| Failure::refused(format!("cannot cancel removal: {why}"));
    let session = zpool_devices::opened(call, pool, &|why| failed(&why))?;
    session.pool().cancel_removal().map_err(|error| failed(&error))?;
    session.finish()
}

fn failed(name: &str, why: &dyn std::fmt::Display) -> Failure {
    Failure::refused(format!("cannot remove {name}: {why}"))
}

const NO_DEVICE: &str = "no such device in pool";

/// Removes a device of a pool, which the first that is found opens.
fn remove(
    call: &Call,
    pool: &str,
    name: &str,
    found: Option<VdevView>,
    session: &mut Option<Session>,
) -> Result<(), Failure> {
    let failed = |why: &dyn std::fmt::Display| failed(name, why);
    let vdev = found.ok_or_else(|| failed(&NO_DEVICE))?;
    let session = match session {
        Some(session) => session,
        None => session.insert(zpool_devices::opened(call, pool, &|why| failed(&why))?),
    };
    session.pool().remove(vdev.guid).map_err(|error| match error {
        pool::Error::OldPool => failed(&"pool must be upgraded to support log removal"),
        error => failed(&error),
    })
}

/// Prints the memory that the mapping of a vdev would need after its removal.
fn forecast(
    call: &Typed<Options>,
    view: &PoolView,
    (name, found): (&str, Option<VdevView>),
    console: &mut Console,
) -> Result<(), Failure> {
    let vdev = found.ok_or_else(|| failed(name, &NO_DEVICE))?;
    let bytes = match (vdev.class, vdev.top, view.session()) {
        // Nothing is moved elsewhere, so nothing has to be remembered.
        (Class::Log | Class::Cache | Class::Spare, ..) => 0,
        (_, Some(top), Some(session)) => {
            session.pool().mapping_after(top).map_err(|error| failed(name, &error))?
        }
        _ => {
            let why = format!("cannot determine indirect size of {name}: indirect size not available");
            return Err(Failure::refused(why));
        }
    };
    match call.options.exact {
        true => console.line(&format!("{name} {bytes}")),
        false => console.line(&format!("Memory that will be used after removing {name}: {}", nice(bytes))),
    }
}
