//! `zfs inherit`.

use super::Call;
use super::changing::words;
use super::mounting::{self, Moved};
use super::select::dataset_failure;
use crate::args::{Parsed, flag};
use crate::command::{Command, Run, Targets, Typed};
use crate::messages::{Action, Failure, reason};
use crate::open::{Intent, Sessions};
use crate::out::Console;
use pool::props::dataset::{self as props, Asked};
use pool::props::names::{self};
use pool::props::{Access, PropertyError, Value};

/// `zfs inherit`.
pub static COMMAND: Command = Command {
    name: "inherit",
    about: "takes a property's value from the parent dataset",
    syntax: &["inherit [-rS] PROPERTY FILESYSTEM|VOLUME|SNAPSHOT…"],
    examples: &["zfs inherit compression tank/home", "zfs inherit -r mountpoint tank"],
    options: &[
        flag("r", "also everywhere below"),
        flag("S", "goes back to the received value, if there is one"),
    ],
    targets: Targets::AllButFirst,
    run: Run::Here(run),
    ..Command::ZFS
};

/// The options of `zfs inherit`.
struct Options {
    recursive: bool,
    to_received: bool,
}

fn read(args: &Parsed) -> Options {
    Options { recursive: args.has("r"), to_received: args.has("S") }
}

/// Runs `zfs inherit`.
///
/// # Errors
/// The arguments are wrong, or the change is refused for datasets. Each of them has a message of its own.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let args = &call.args;
    let Some((word, datasets)) = args.operands.split_first() else {
        return Err(Failure::usage("missing property argument"));
    };
    if datasets.is_empty() {
        return Err(Failure::usage("missing dataset argument"));
    }
    let to_received = call.options.to_received;
    let property = match props::ask(word) {
        Some(Asked::Native(property)) => {
            if let Err(error) = property.check_inheritable() {
                let quota = ["quota", "reservation", "refquota", "refreservation"].contains(&property.name);
                let failure = Failure::refused(error.to_string());
                match (&error, to_received) {
                    (PropertyError::CannotInherit { name }, false) if quota => {
                        return Err(failure
                            .hint(format!("use 'zfs set {name}=none' to clear"))
                            .hint(format!("use 'zfs inherit -S {name}' to revert to received value")));
                    }
                    (PropertyError::CannotInherit { name: name @ ("volsize" | "version") }, true) => {
                        let why = "property cannot be reverted to a received value";
                        return Err(Failure::refused(format!("'{name}' {why}")));
                    }
                    // For a property that cannot be inherited, a received value can come back.
                    (PropertyError::CannotInherit { .. }, true) if property.access == Access::Set => {}
                    _ => return Err(failure),
                }
            }
            Some(property)
        }
        Some(Asked::User(_)) => None,
        _ => return Err(Failure::usage(format!("invalid property '{word}'"))),
    };
    let stored = property.map_or(word.as_str(), |property| property.name);
    let recursive = call.options.recursive;
    let inherited = Inherited { stored, property, recursive, to_received };
    let mut sessions = Sessions::new(call.around, Intent::Write, &call.line);
    for name in datasets {
        if let Some(live) = call.live().filter(|_| stored == "readonly" && inherits_on(call, name))
            && let Err(failure) = mounting::turning_read_only(live, name, Action::Inherit(stored, name))
        {
            console.complain(failure)?;
            continue;
        }
        let mut inherit = || inherit_one(&mut sessions, name, &inherited);
        let done = match mounting::kind_of(&[(stored.to_owned(), None)]) {
            // Whether there is such a dataset is said by the change itself.
            Some(kind) if call.live().is_some_and(|live| has(live, name)) => mounting::moving(
                call,
                console,
                Moved { top: name, kind, force: false },
                str::to_owned,
                inherit,
            ),
            _ => inherit(),
        };
        if let Some(live) = call.live() {
            live.limits_changed();
        }
        let settled = [stored.to_owned()];
        mounting::refresh(call, console, done.is_ok().then_some((name.as_str(), settled.as_slice())))?;
        if let Err(failure) = done {
            console.complain(failure)?;
        }
    }
    sessions.finish()
}

/// Whether `readonly` is on above this dataset.
fn inherits_on(call: &Typed<Options>, name: &str) -> bool {
    let (Some(live), Some((above, _))) = (call.live(), name.rsplit_once('/')) else { return false };
    let property = props::parse("readonly").expect("the table has it");
    let value = live.pool().map(|pool| pool.dataset(above).and_then(|info| pool.property(&info, property)));
    matches!(value, Ok(Ok(Some((Value::Number(1), _)))))
}

/// Whether the pool has this dataset.
fn has(live: &server::Live, name: &str) -> bool {
    live.pool().is_ok_and(|pool| pool.dataset(name).is_ok())
}

/// The properties that a dataset must inherit.
struct Inherited<'a> {
    /// The name under which it is stored.
    stored: &'a str,
    /// `None`: of a user.
    property: Option<&'static pool::props::Property>,
    /// Also everywhere below.
    recursive: bool,
    /// A received value comes back.
    to_received: bool,
}

fn inherit_one(sessions: &mut Sessions, name: &str, inherited: &Inherited) -> Result<(), Failure> {
    let Inherited { stored, property, recursive, to_received } = *inherited;
    let action = Action::Inherit(stored, name);
    names::check_no_bookmark(name).map_err(|error| Action::Open(name).failed(error))?;
    let session = sessions.of(name).map_err(|error| error.dataset(name))?;
    let pool = session.pool();
    let info = pool.dataset(name).map_err(|error| dataset_failure(name, &error))?;
    // Of native properties a snapshot has those of its file system.
    if property.is_some_and(|property| info.is_snapshot() || !property.applies.contains(info.kind)) {
        return Err(action.failed(reason::INHERIT_NOT_HERE));
    }
    if let Some(failure) = session.refusal(action) {
        return Err(failure);
    }
    let depth = if recursive { None } else { Some(0) };
    let list = match info.is_snapshot() {
        true => vec![info],
        false => pool.list(name, depth, false).map_err(|error| words(action, &error))?,
    };
    for info in list {
        if property.is_some_and(|property| !property.applies.contains(info.kind)) {
            continue;
        }
        let received = pool.received_property(&info, stored).map_err(|error| words(action, &error))?;
        let mut values = vec![(stored.to_owned(), None)];
        if received.is_some() {
            // A received value comes back by itself unless it is hidden.
            let hidden = (!to_received).then(|| Value::Text(String::new()));
            values.push((format!("{stored}$inherit"), hidden));
        }
        pool.set_properties(&info.name, values).map_err(|error| words(action, &error))?;
    }
    Ok(())
}
