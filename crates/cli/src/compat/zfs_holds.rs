//! `zfs holds`.

use super::Call;
use super::select::dataset_failure;
use super::zfs_hold::with_those_below;
use crate::args::{Parsed, flag};
use crate::command::{Command, Run, Subjects, Typed, Visitors};
use crate::dates;
use crate::json;
use crate::messages::Failure;
use crate::open::{Intent, Sessions};
use crate::out::Console;
use crate::table::{self, Column, Row};
use pool::props::Justify;
use serde_json::{Map, Value, json};

/// `zfs holds`.
pub static COMMAND: Command = Command {
    name: "holds",
    about: "lists holds",
    syntax: &["holds [-rHp] [--wide] [-j] SNAPSHOT…"],
    examples: &["zfs holds tank/home@monday", "zfs holds -rH tank@monday"],
    options: &[
        flag("r", "also of snapshots of the same name below"),
        flag("H", "no headings, tabs between fields"),
        flag("p", "times in seconds"),
        flag("wide", "all columns, however wide the terminal is"),
        flag("j|json", "prints JSON, with times in seconds"),
    ],
    visitors: Some(Visitors { operands: Subjects::Datasets, options: &["r", "H", "p", "wide", "j"] }),
    run: Run::Here(run),
    ..Command::ZFS
};

/// The options of `zfs holds`.
struct Options {
    recursive: bool,
    scripted: bool,
    exact: bool,
    wide: bool,
    json: bool,
}

fn read(args: &Parsed) -> Options {
    Options {
        recursive: args.has("r"),
        scripted: args.has("H"),
        exact: args.has("p"),
        wide: args.has("wide"),
        json: args.has("j"),
    }
}

/// The columns that are left out if the terminal is too narrow, the least important first.
const RANK: &[&str] = &["TIMESTAMP"];

/// Runs `zfs holds`.
///
/// # Errors
/// The arguments are wrong, or an operand is no snapshot. Each such operand has a message of its own.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
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
    let mut columns: Vec<Column> =
        ["NAME", "TAG", "TIMESTAMP"].map(|heading| Column::other(heading, Justify::Left)).into();
    columns[0].min_width = columns[0].min_width.max(width);
    let nothing = rows.is_empty() && !wrong.is_empty();
    if !call.options.json && !call.options.scripted && !call.options.wide {
        table::fit_terminal(console, &mut columns, &mut rows, RANK);
    }
    match call.options.json {
        true => console.line(&as_json(&rows).to_string())?,
        false => table::print(console.out(), &columns, &rows, call.options.scripted)?,
    }
    for failure in wrong {
        console.complain(failure)?;
    }
    if nothing {
        console.note("no datasets available");
    }
    Ok(())
}

/// `{"datasets":{"tank@monday":{"holds":{"keep":1795237913}}}}` in the envelope that OpenZFS gives its JSON. `zfs holds` of
/// OpenZFS prints no JSON.
fn as_json(rows: &[Row]) -> Value {
    let mut datasets = Map::new();
    for row in rows {
        let [name, tag, time] = row.cells.as_slice() else { continue };
        let snapshot = datasets.entry(name.clone()).or_insert_with(|| json!({ "holds": {} }));
        snapshot["holds"][tag.as_str()] = json::scalar(time, true);
    }
    json::envelope("zfs holds", "datasets", datasets)
}

/// The holds of a snapshot, or of the snapshots of its name below. Invalid tags are reported in `wrong`.
fn holds_of(
    call: &Typed<Options>,
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
    for snapshot in with_those_below(pool, name, call.options.recursive) {
        *width = snapshot.len().max(*width);
        let info = pool.dataset(&snapshot).map_err(|error| dataset_failure(&snapshot, &error))?;
        let mut report = |error| wrong.push(dataset_failure(&snapshot, &error));
        let holds = pool.survey_holds(&info, &mut report);
        for (tag, seconds) in holds.map_err(|error| dataset_failure(&snapshot, &error))? {
            let time = if call.options.exact || call.options.json {
                seconds.to_string()
            } else {
                dates::show(seconds, dates::Form::Hold)
            };
            rows.push(Row::new(vec![snapshot.clone(), tag, time]));
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_are_listed_by_snapshot_in_json() {
        let row = |name: &str, tag: &str| Row::new([name, tag, "1795237913"].map(str::to_owned).to_vec());
        let said = as_json(&[row("t@a", "keep"), row("t@a", "more"), row("t@b", "keep")]).to_string();
        let wanted = r#""datasets":{"t@a":{"holds":{"keep":1795237913,"more":1795237913}},"t@b":{"holds":{"keep":1795237913}}}}"#;
        assert!(said.ends_with(wanted), "{said}");
    }
}
