//! `zfs list`.

use std::cmp::Ordering;

use pool::DatasetInfo;
use pool::props::dataset::{self as props, Asked};
use pool::props::{Kind, Value};
use serde_json::Map;

use super::Call;
use super::dataset_value::Shown;
use super::dataset_values;
use super::select::{Kinds, Scope, Selection, dataset_failure};
use crate::args::list::{self, Properties};
use crate::args::{Parsed, flag, property, value};
use crate::command::{Beside, Command, Run, Subjects, Typed, Visitors};
use crate::json;
use crate::messages::Failure;
use crate::open::{Intent, Sessions};
use crate::out::Console;
use crate::table::{self, Column, Row};

/// `zfs list`.
pub static COMMAND: Command = Command {
    name: "list",
    about: "lists datasets with some of their properties",
    syntax: &[
        "list [-r|-d DEPTH] [-Hp] [--wide] [-j [--json-int]] [-o PROPERTY[,PROPERTY]…] [-s PROPERTY]… [-S PROPERTY]… \
         [-t TYPE[,TYPE]…] [DATASET|PATH]…",
    ],
    examples: &["zfs list", "zfs list -r -t snapshot tank/home", "zfs list -Hp -o name,used -S used -r tank"],
    options: &[
        flag("H", "no headings, tabs between fields"),
        flag("p", "exact numbers"),
        flag("r", "everything below, too"),
        flag("wide", "all columns, however wide the terminal is"),
        flag("j|json", "as JSON"),
        flag("json-int", "numbers as numbers in JSON"),
        value("d", "that many levels below"),
        property("o", "these properties, parted by commas"),
        property("s", "sorted by this property; may be repeated"),
        property("S", "sorted by this property, the largest first; may be repeated"),
        value("t", "only these types: filesystem, snapshot, volume, bookmark, all"),
    ],
    beside: Beside::Reads { but: &[] },
    visitors: Some(Visitors {
        operands: Subjects::Datasets,
        options: &["H", "p", "r", "wide", "j", "json-int", "d", "o", "s", "S", "t"],
    }),
    run: Run::Here(run),
    ..Command::ZFS
};

/// The options of `zfs list`.
struct Options {
    scripted: bool,
    exact: bool,
    json: bool,
    json_int: bool,
    scope: Scope,
    /// Properties in the order given, each with whether the largest comes first.
    sort: Vec<(String, bool)>,
    wide: bool,
    properties: Option<String>,
}

fn read(args: &Parsed) -> Options {
    Options {
        scripted: args.has("H"),
        exact: args.has("p"),
        scope: Scope { recursive: args.has("r"), depth: args.text("d"), types: args.texts("t") },
        json: args.has("j"),
        json_int: args.has("json-int"),
        sort: args.mixed("s", "S"),
        wide: args.has("wide"),
        properties: args.text("o"),
    }
}

const DEFAULT: &str = "name,used,available,referenced,mountpoint";
const SPACE: [&str; 7] = ["name", "available", "used", "usedsnap", "usedds", "usedrefreserv", "usedchild"];

/// Columns that are left out if the terminal is too narrow, the first one first.
const RANK: &[&str] = &["MOUNTPOINT", "REFER", "AVAIL", "USED"];

/// Runs `zfs list`.
///
/// # Errors
/// The arguments are wrong, or datasets are missing. Each of them has a message of its own.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    if call.options.json_int && !call.options.json {
        return Err(Failure::usage("'--json-int' only works with '-j' option"));
    }
    let args = &call.args;
    let mut selection = Selection::read(&call.options.scope, Kinds::HEADS)?;
    let mut words = Vec::new();
    match list::properties(call.options.properties.as_deref().unwrap_or(DEFAULT))? {
        Properties::All => {
            words.push("name");
            words.extend(props::VISIBLE.iter().map(|property| property.name));
        }
        Properties::Named(named) => {
            for word in named {
                match word {
                    "space" => {
                        words.extend(SPACE);
                        selection.asked.get_or_insert(Kinds::HEADS);
                    }
                    word if props::ask(word).is_some() => words.push(word),
                    word => {
                        let line = format!("bad property list: invalid property '{word}'");
                        return Err(Failure::usage(line));
                    }
                }
            }
        }
    }
    let mut sort = Vec::new();
    for (word, descending) in &call.options.sort {
        let asked = props::ask(word).ok_or_else(|| Failure::usage(format!("invalid property '{word}'")))?;
        sort.push((asked, *descending));
    }
    let mut sessions = Sessions::new(call.around, Intent::Read, &call.line);
    let found = selection.find(&args.operands, &mut sessions, console)?;
    let found = sorted(found, &sort, &mut sessions)?;
    if call.options.json {
        return as_json(call, console, &words, &found, &mut sessions);
    }
    if found.is_empty() {
        if !call.options.scripted && !console.has_failed() {
            console.note("no datasets available");
            if args.operands.is_empty() {
                crate::open::remark_foreign(console);
            }
        }
        return Ok(());
    }
    let raw = call.options.exact;
    let asked: Vec<(&str, Asked)> =
        words.iter().filter_map(|word| Some((*word, props::ask(word)?))).collect();
    let mut columns: Vec<Column> = asked
        .iter()
        .map(|(word, asked)| match asked {
            Asked::Native(property) if property.name == "name" => Column::name(),
            asked => Column::dataset(word, asked, raw),
        })
        .collect();
    let mut rows = Vec::new();
    for info in &found {
        let cells = asked.iter().map(|(_, asked)| Ok(show(&mut sessions, info, asked, raw)?.text));
        rows.push(Row::new(cells.collect::<Result<_, Failure>>()?));
    }
    let is_usual = call.options.properties.is_none() && !call.options.wide;
    if is_usual && !call.options.scripted {
        table::fit_terminal(console, &mut columns, &mut rows, RANK);
    }
    Ok(table::print(console.out(), &columns, &rows, call.options.scripted)?)
}

/// The value that a word asks for, of a dataset of an open pool.
///
/// # Errors
/// If the pool cannot be read.
pub fn show(sessions: &mut Sessions, info: &DatasetInfo, asked: &Asked, raw: bool) -> Result<Shown, Failure> {
    let mount = dataset_values::depends_on_mount(asked).then(|| sessions.mount_of(&info.name)).flatten();
    let session = sessions.of(&info.name).map_err(|error| error.dataset(&info.name))?;
    dataset_values::show(session.pool(), info, asked, raw, mount.as_ref())
        .map_err(|error| dataset_failure(&info.name, &error))
}

/// The value by which a dataset is sorted. Words are compared as they are shown, whatever their numbers.
fn key(asked: &Asked, shown: Shown) -> Option<Value> {
    match asked {
        Asked::Native(property) if matches!(property.kind, Kind::Index(_)) => {
            shown.value.map(|_| Value::Text(shown.human))
        }
        _ => shown.value,
    }
}

/// Sorts by properties, the first one first; what has no value comes last. Equal ones stay in order of name.
fn sorted(
    found: Vec<DatasetInfo>,
    by: &[(Asked, bool)],
    sessions: &mut Sessions,
) -> Result<Vec<DatasetInfo>, Failure> {
    let mut keyed = Vec::new();
    for info in found {
        let keys = by.iter().map(|(asked, _)| Ok(key(asked, show(sessions, &info, asked, true)?)));
        keyed.push((keys.collect::<Result<Vec<Option<Value>>, Failure>>()?, info));
    }
    keyed.sort_by(|(a, _), (b, _)| {
        let by_each = a.iter().zip(b).zip(by).map(|((a, b), (_, descending))| by_one(a, b, *descending));
        by_each.reduce(Ordering::then).unwrap_or(Ordering::Equal)
    });
    Ok(keyed.into_iter().map(|(_, info)| info).collect())
}

fn by_one(a: &Option<Value>, b: &Option<Value>, descending: bool) -> Ordering {
    match (a, b) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (Some(a), Some(b)) if descending => compare(b, a),
        (Some(a), Some(b)) => compare(a, b),
    }
}

fn compare(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.cmp(b),
        (Value::Text(a), Value::Text(b)) => a.cmp(b),
        (Value::Number(_), Value::Text(_)) => Ordering::Less,
        (Value::Text(_), Value::Number(_)) => Ordering::Greater,
    }
}

fn as_json(
    call: &Typed<Options>,
    console: &mut Console,
    words: &[&str],
    found: &[DatasetInfo],
    sessions: &mut Sessions,
) -> Result<(), Failure> {
    let as_int = call.options.json_int;
    let raw = call.options.exact || as_int;
    let mut objects = Map::new();
    for info in found {
        let mut properties = Map::new();
        for word in words {
            let Some(asked) = props::ask(word) else { continue };
            let name = match asked {
                Asked::Native(property) if property.name == "name" => continue,
                Asked::Native(property) => property.name,
                _ => word,
            };
            let shown = show(sessions, info, &asked, raw)?;
            properties.insert(name.to_owned(), json::property(&shown.text, &shown.source, as_int));
        }
        objects.insert(info.name.clone(), json::dataset(json_head(info), properties, as_int));
    }
    if objects.is_empty() && console.has_failed() {
        return Ok(());
    }
    console.line(&json::envelope("zfs list", "datasets", objects).to_string())
}

/// The first fields of a dataset's JSON.
pub fn json_head(info: &DatasetInfo) -> json::DatasetHead<'_> {
    json::DatasetHead { name: &info.name, kind: info.kind, createtxg: info.phys.creation_txg.0 }
}
