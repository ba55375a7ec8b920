//! `zfs hold`, `holds` and `release`.

use pool::Pool;
use pool::props::{Justify, names};

use super::Call;
use super::changing::session;
use super::mounting;
use super::select::dataset_failure;
use crate::args::flag;
use crate::command::{Command, Run, Targets};
use crate::dates;
use crate::messages::Failure;
use crate::open::{Intent, Sessions};
use crate::out::Console;
use crate::table::{self, Column, Row};

/// `zfs hold`.
pub static COMMAND: Command = Command {
    name: "hold",
    about: "keeps snapshots from being destroyed",
    syntax: &["hold [-r] TAG SNAPSHOT…"],
    options: &[flag("r", "also those of the same name below")],
    targets: Targets::AllButFirst,
    run: Run::Here(|call, console| change(call, console, false)),
    ..Command::ZFS
};

/// Runs `zfs hold` and, with `release`, `zfs release`.
///
/// # Errors
/// Usage; each snapshot that refuses is complained about.
pub fn change(call: &Call, console: &mut Console, release: bool) -> Result<(), Failure> {
    let args = &call.args;
    let (tag, snapshots) = match args.operands.split_first() {
        None | Some((_, [])) => return Err(Failure::usage("")),
        Some((tag, snapshots)) => (tag.as_str(), snapshots),
    };
    if !release && tag.starts_with('.') {
        return Err(Failure::usage("tag may not start with '.'"));
    }
    for name in snapshots {
        if let Err(failure) = change_one(call, name, tag, release) {
            console.complain(failure)?;
        }
    }
    Ok(())
}

fn change_one(call: &Call, name: &str, tag: &str, release: bool) -> Result<(), Failure> {
    let doing = if release { "release hold from" } else { "hold" };
    let cannot = |why: &str| Failure::refused(format!("cannot {doing} snapshot '{name}': {why}"));
    if !name.contains('@') {
        return Err(Failure::refused(format!("'{name}' is not a snapshot")));
    }
    names::check(name).map_err(|error| cannot(&error.to_string()))?;
    if tag.len() >= names::NAME_MAX {
        return Err(cannot("tag too long"));
    }
    let session = session(call, name, Intent::Write).map_err(|error| error.dataset(name))?;
    let pool = session.pool();
    let done = pool.dataset(name).map_err(|error| dataset_failure(name, &error)).and_then(|_| {
        let all = with_those_below(pool, name, call.args.has("r"));
        if release {
            // One whose destruction waits for this goes with it.
            mounting::letting_go(call, &all);
        }
        let done = if release { pool.release(&all, tag) } else { pool.hold(&all, tag) };
        done.map_err(|error| match &error {
            pool::Error::Exists(_) => cannot("tag already exists on this dataset"),
            pool::Error::NoHold(_) => cannot("no such tag on this dataset"),
            pool::Error::OldPool => Failure::refused(format!("cannot hold: {error}")),
            error => cannot(&error.to_string()),
        })
    });
    session.finish().and(done)
}

/// The snapshot `name`, and if `recursive` those of its name below.
fn with_those_below(pool: &Pool, name: &str, recursive: bool) -> Vec<String> {
    let (fs, leaf) = name.split_once('@').expect("a snapshot");
    let below = if recursive { pool.list(fs, None, false).unwrap_or_default() } else { Vec::new() };
    let named = below.into_iter().skip(1).map(|info| format!("{}@{leaf}", info.name));
    let named = named.filter(|name| pool.dataset(name).is_ok());
    std::iter::once(name.to_owned()).chain(named).collect()
}

/// Runs `zfs holds`.
///
/// # Errors
/// Usage; what is no snapshot is complained about.
pub fn show(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let args = &call.args;
    if args.operands.is_empty() {
        return Err(Failure::usage(""));
    }
    let mut rows = Vec::new();
    let mut wrong = Vec::new();
    // As wide as the longest name looked at, whether it is held or not.
    let mut width = 0;
    for name in &args.operands {
        match holds_of(call, name, &mut width, &mut wrong) {
            Ok(found) => rows.extend(found),
            Err(failure) => wrong.push(failure),
        }
    }
    let mut columns = ["NAME", "TAG", "TIMESTAMP"].map(|heading| Column::other(heading, Justify::Left));
    columns[0].min_width = columns[0].min_width.max(width);
    let nothing = rows.is_empty() && !wrong.is_empty();
    table::print(console.out(), &columns, &rows, args.has("H"))?;
    for failure in wrong {
        console.complain(failure)?;
    }
    if nothing {
        console.remark("no datasets available");
    }
    Ok(())
}

/// The holds of a snapshot, or of those of its name below. Tags that none may have are told in `wrong`.
fn holds_of(
    call: &Call,
    name: &str,
    width: &mut usize,
    wrong: &mut Vec<Failure>,
) -> Result<Vec<Row>, Failure> {
    if !name.contains('@') {
        return Err(Failure::refused(format!("'{name}' is not a snapshot")));
    }
    let mut sessions = Sessions::new(call.around, Intent::Read, &call.line);
    let pool = sessions.of(name).map_err(|error| error.dataset(name))?.pool();
    pool.dataset(name).map_err(|error| dataset_failure(name, &error))?;
    let mut rows = Vec::new();
    for snapshot in with_those_below(pool, name, call.args.has("r")) {
        *width = snapshot.len().max(*width);
        let info = pool.dataset(&snapshot).map_err(|error| dataset_failure(&snapshot, &error))?;
        let mut report = |error| wrong.push(dataset_failure(&snapshot, &error));
        let holds = pool.survey_holds(&info, &mut report);
        for (tag, seconds) in holds.map_err(|error| dataset_failure(&snapshot, &error))? {
            let time = if call.args.has("p") {
                seconds.to_string()
            } else {
                dates::show(seconds, dates::Form::Hold)
            };
            rows.push(Row::new(vec![snapshot.clone(), tag, time]));
        }
    }
    Ok(rows)
}
