//! `zpool export`.

use super::Call;
use crate::args::{Parsed, flag};
use crate::client;
use crate::command::{Command, Run, Typed};
use crate::messages::{Action, Failure, reason};
use crate::open::{self, Intent, NotOpen};
use crate::out::Console;
use crate::state;
use pool::known::KnownPool;
use server::messages::{Refusal, Stop};
use server::{Client, ClientError};

/// `zpool export`.
pub static COMMAND: Command = Command {
    name: "export",
    about: "lets pools go",
    syntax: &["export [-af] POOL…"],
    examples: &["zpool export tank", "zpool export -a"],
    options: &[flag("a", "all of them"), flag("f", "even while programs use them")],
    run: Run::Here(run),
    ..Command::ZPOOL
};

/// The options of `zpool export`.
struct Options {
    all: bool,
    force: bool,
}

fn read(args: &Parsed) -> Options {
    Options { all: args.has("a"), force: args.has("f") }
}

/// Runs `zpool export`.
///
/// # Errors
/// The arguments are wrong, or pools are missing or cannot be written. Each of them has a message of its own.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let known = state::known().read().map_err(NotOpen::from)?;
    let names: Vec<String> = match (call.options.all, call.args.operands.as_slice()) {
        (true, []) => known.iter().map(|pool| pool.name.clone()).collect(),
        (true, _) => return Err(Failure::usage("too many arguments")),
        (false, []) => return Err(Failure::usage("missing pool argument")),
        (false, names) => names.to_vec(),
    };
    for name in names {
        let Some(pool) = known.iter().find(|pool| pool.name == name) else {
            if let Err(failure) = export_unlisted(call, &name) {
                console.complain(failure)?;
            }
            continue;
        };
        if let Err(failure) = export_one(call, pool) {
            console.complain(failure)?;
        }
    }
    Ok(())
}

/// Ends the server of a pool that is not imported: `cenote -d IMAGE serve POOL` and `cenote -d IMAGE zfs mount` start one.
fn export_unlisted(call: &Typed<Options>, name: &str) -> Result<(), Failure> {
    match client::server_named(name)? {
        Some(client) => stop(call, client, name),
        None => Err(open::no_such_pool(name)),
    }
}

/// Ends a server: it writes everything, unmounts and exports.
fn stop(call: &Typed<Options>, client: Client, name: &str) -> Result<(), Failure> {
    let stop = Stop { destroy: false, force: call.options.force, command: Some(call.line.clone()) };
    client.stop(stop).map_err(|error| match error {
        ClientError::Refused(Refusal::Busy(point)) => {
            Action::Unmount(&point.display().to_string()).failed(reason::BUSY)
        }
        ClientError::Refused(Refusal::Working) => {
            Action::Export(name).failed(reason::BUSY).hint("a command is being carried out on it")
        }
        error => Action::Export(name).failed(error),
    })
}

/// Without a server, a pool is exported between commands already. This only records it and removes the pool from the list.
fn export_one(call: &Typed<Options>, known: &KnownPool) -> Result<(), Failure> {
    if let Some(client) = client::server_of(&known.name, call.around)? {
        stop(call, client, &known.name)?;
        return state::known().forget(known.guid).map_err(|error| NotOpen::from(error).into());
    }
    let opened = open::find(&known.name, &crate::around::Surroundings::default())
        .and_then(|usable| open::open(usable, Intent::Write));
    match opened {
        Ok(session) => {
            session.command(&call.line);
            session.into_pool()?.export().map_err(|error| Action::Export(&known.name).failed(error))?;
        }
        // It is in use now.
        Err(NotOpen::Failed { source: error @ pool::Error::Busy { .. }, .. }) => {
            return Err(Action::Export(&known.name).failed(reason::BUSY).hint(error.to_string()));
        }
        // A missing pool can be removed from the list, too.
        Err(_) => {}
    }
    state::known().forget(known.guid).map_err(|error| NotOpen::from(error).into())
}
