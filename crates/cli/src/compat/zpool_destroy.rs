//! `zpool destroy`.

use super::Call;
use crate::args::{Parsed, flag};
use crate::client;
use crate::command::{Command, Run};
use crate::messages::{Action, Failure, reason};
use crate::open::{self, Intent, NotOpen};
use crate::state;
use format::Guid;
use pool::props::names;
use server::ClientError;
use server::messages::{Refusal, Stop};

/// `zpool destroy`.
pub static COMMAND: Command = Command {
    name: "destroy",
    about: "destroys a pool",
    syntax: &["destroy [-f] POOL"],
    examples: &["zpool destroy tank"],
    options: &[flag("f", "unmounts by force")],
    run: Run::Here(|call, _| run(call)),
    ..Command::ZPOOL
};

/// The options of `zpool destroy`.
struct Options {
    force: bool,
}

fn read(args: &Parsed) -> Options {
    Options { force: args.has("f") }
}

/// Runs `zpool destroy`.
///
/// # Errors
/// The arguments are wrong, or the pool cannot be written.
fn run(call: &Call) -> Result<(), Failure> {
    let call = &call.typed(read);
    let name = match call.args.operands.as_slice() {
        [] => return Err(Failure::usage("missing pool argument")),
        [name] => name,
        _ => return Err(Failure::usage("too many arguments")),
    };
    if let Err(error) = names::check_pool(name, false) {
        let failure = Action::Open(name).failed(error);
        let is_dataset = name.contains('/');
        return Err(if is_dataset {
            failure.hint("use 'zfs destroy' to destroy a dataset")
        } else {
            failure
        });
    }
    if let Some(client) = client::server_of(name, call.around)? {
        let guid = Guid(client.guid);
        let stop = Stop { destroy: true, force: call.options.force, command: None };
        client.stop(stop).map_err(|error| match error {
            ClientError::Refused(Refusal::Busy(point)) => Action::Unmount(&point.display().to_string())
                .failed(reason::BUSY)
                .hint(format!("could not destroy '{name}': could not unmount datasets")),
            ClientError::Refused(Refusal::Working) => {
                Action::Destroy(name).failed(reason::BUSY).hint("a command is being carried out on it")
            }
            error => Action::Destroy(name).failed(error),
        })?;
        return state::known().forget(guid).map_err(|error| NotOpen::from(error).into());
    }
    let session = open::open_pool(name, call.around, Intent::Write)?;
    if let Some(failure) = session.refusal(Action::Destroy(name)) {
        return Err(failure);
    }
    let guid = session.pool().guid();
    session.into_pool()?.destroy().map_err(|error| Action::Destroy(name).failed(error))?;
    state::known().forget(guid).map_err(|error| NotOpen::from(error).into())
}
