//! `zfs wait`: waits for the end of background activities in a file system.

use std::time::Duration;

use pool::props::{DatasetKind, names};
use zpl::Filesystem;

use super::Call;
use super::select::dataset_failure;
use crate::args::{Parsed, value};
use crate::command::{Command, Run, Typed};
use crate::messages::{Action, Failure, reason};
use crate::open::{Intent, open_for};
use crate::out::Console;
use crate::suggest;

/// `zfs wait`.
pub static COMMAND: Command = Command {
    name: "wait",
    about: "waits for work in the background",
    syntax: &["wait [-t ACTIVITY[,…]] FILESYSTEM"],
    examples: &["zfs wait tank/home", "zfs wait -t deleteq tank/home"],
    options: &[value("t", "only for this: deleteq")],
    run: Run::Here(run),
    ..Command::ZFS
};

/// The options of `zfs wait`.
struct Options {
    activities: Option<String>,
}

fn read(args: &Parsed) -> Options {
    Options { activities: args.text("t") }
}

/// How often the file system is looked at.
const GLANCE: Duration = Duration::from_millis(250);
/// The only activity: freeing files in the unlinked set that are not open.
const ACTIVITIES: [&str; 1] = ["deleteq"];

/// Runs `zfs wait`.
///
/// # Errors
/// The arguments are wrong, or the file system does not exist.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let wanted: Vec<&str> =
        call.options.activities.as_deref().map_or(ACTIVITIES.to_vec(), |list| list.split(',').collect());
    if let Some(word) = wanted.iter().find(|word| !ACTIVITIES.contains(word)) {
        let line = format!("invalid activity '{word}'");
        return Err(Failure::usage(suggest::with_nearest(line, word, ACTIVITIES.into_iter())));
    }
    let name = match call.args.operands.as_slice() {
        [] => return Err(Failure::usage("missing 'filesystem' argument")),
        [name] => name,
        _ => return Err(Failure::usage("too many arguments")),
    };
    names::check_kind(name, DatasetKind::Filesystem).map_err(|error| Action::Open(name).failed(error))?;
    console.flush()?;
    loop {
        if waiting(call, name)? == 0 {
            return Ok(());
        }
        std::thread::sleep(GLANCE);
    }
}

/// How many files without a name are on their way out of a file system, as of now; none where it is not mounted:
/// there no server empties the queue.
fn waiting(call: &Typed<Options>, name: &str) -> Result<u64, Failure> {
    let session = open_for(name, call.around, Intent::Files).map_err(|error| error.dataset(name))?;
    let pool = session.pool();
    let count = || -> Result<u64, Failure> {
        let info = pool.dataset(name).map_err(|error| dataset_failure(name, &error))?;
        if info.kind != DatasetKind::Filesystem {
            return Err(Action::Open(name).failed(reason::WRONG_KIND));
        }
        let read = |error: &dyn std::fmt::Display| Action::Read(name).failed(error);
        let open = pool.open(name).map_err(|error| read(&error))?;
        let fs = Filesystem::open(open).map_err(|error| read(&error))?;
        let count = fs.unlinked_count().map_err(|error| read(&error))?;
        Ok(if session.mount_point(name).is_some() { count } else { 0 })
    };
    let count = count();
    session.finish()?;
    count
}
