//! `zfs get`.

use pool::props::dataset::{self as props, Asked};
use pool::props::{DatasetKind, Source};
use serde_json::Map;

use super::Call;
use super::select::{Kinds, Scope, Selection, dataset_failure};
use super::zfs_list::{json_head, show};
use crate::args::list::{self, Properties};
use crate::args::{Parsed, flag, property, value};
use crate::command::{Beside, Command, Run, Subjects, Visitors};
use crate::dates;
use crate::json;
use crate::messages::Failure;
use crate::open::{Intent, Sessions};
use crate::out::Console;
use crate::table::{self, Column, Field, Got};

/// `zfs get`.
pub static COMMAND: Command = Command {
    name: "get",
    about: "shows properties",
    syntax: &[
        "get [-r|-d DEPTH] [-Hp] [-j [--json-int]] [-o all|FIELD[,FIELD]…] [-t TYPE[,TYPE]…] [-s SOURCE[,SOURCE]…] \
         all|PROPERTY[,PROPERTY]… [DATASET|PATH]…",
    ],
    options: &[
        flag("H", "no headings, tabs between fields"),
        flag("p", "exact numbers"),
        flag("r", "everything below, too"),
        flag("j|json", "as JSON"),
        flag("json-int", "numbers as numbers in JSON"),
        value("d", "that many levels below"),
        property("o", "these fields: name, property, value, received, source, all"),
        property("s", "only values from there: local, default, inherited, temporary, received, none"),
        value("t", "only these types: filesystem, snapshot, volume, bookmark, all"),
    ],
    beside: Beside::Reads { but: &[] },
    visitors: Some(Visitors {
        operands: Subjects::PropertiesOfDatasets,
        options: &["H", "p", "r", "j", "json-int", "d", "o", "s", "t"],
    }),
    run: Run::Here(run),
    ..Command::ZFS
};

/// The options of `zfs get`.
struct Options {
    scripted: bool,
    exact: bool,
    json: bool,
    json_int: bool,
    scope: Scope,
    fields: Option<String>,
    sources: Vec<String>,
}

fn read(args: &Parsed) -> Options {
    Options {
        scripted: args.has("H"),
        exact: args.has("p"),
        scope: Scope { recursive: args.has("r"), depth: args.text("d"), types: args.texts("t") },
        json: args.has("j"),
        json_int: args.has("json-int"),
        fields: args.text("o"),
        sources: args.texts("s"),
    }
}

/// Runs `zfs get`.
///
/// # Errors
/// Usage; datasets that are missing are complained about.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    if call.options.json_int && !call.options.json {
        return Err(Failure::usage("'--json-int' only works with '-j' option"));
    }
    let args = &call.args;
    let mut fields = Field::DEFAULT.to_vec();
    if let Some(list) = call.options.fields.as_deref() {
        fields.clear();
        for word in list::columns(list, Field::ALL.len())? {
            match Field::parse(word) {
                _ if word == "all" => fields.extend(Field::ALL),
                Some(field) => fields.push(field),
                None => return Err(Failure::usage(format!("invalid column name '{word}'"))),
            }
        }
    }
    let mut sources: Vec<&str> = Vec::new();
    for word in call.options.sources.iter().map(String::as_str).flat_map(|list| list.split(',')) {
        if !Source::WORDS.contains(&word) {
            return Err(Failure::usage(format!("invalid source '{word}'")));
        }
        sources.push(word);
    }
    let selection = Selection::read(&call.options.scope, Kinds::ALL)?;
    let Some((properties, operands)) = args.operands.split_first() else {
        return Err(Failure::usage("missing property argument"));
    };
    let (all, words) = match list::properties(properties)? {
        Properties::All => (true, Vec::new()),
        Properties::Named(words) => (false, words),
    };
    if let Some(word) = words.iter().find(|word| props::ask(word).is_none()) {
        return Err(Failure::usage(format!("bad property list: invalid property '{word}'")));
    }
    let as_int = call.options.json_int;
    let raw = call.options.exact || (as_int && call.options.json);
    let received = fields.contains(&Field::Received);
    let mut sessions = Sessions::new(call.around, Intent::Read, &call.line);
    let found = selection.find(operands, &mut sessions, console)?;
    let (mut rows, mut objects) = (Vec::new(), Map::new());
    for info in &found {
        let mut properties = Map::new();
        let mut wanted: Vec<(String, bool)> = words.iter().map(|word| ((*word).to_owned(), true)).collect();
        if all {
            wanted.extend(props::VISIBLE.iter().map(|property| (property.name.to_owned(), false)));
            let session = sessions.of(&info.name).map_err(|error| error.dataset(&info.name))?;
            let user = session.pool().user_properties(info).map_err(|e| dataset_failure(&info.name, &e))?;
            wanted.extend(user.into_iter().map(|(name, ..)| (name, false)));
        }
        for (word, named) in wanted {
            let Some(asked) = props::ask(&word) else { continue };
            let shown = show(&mut sessions, info, &asked, raw)?;
            // What `all` leaves out has a say in the widths all the same.
            let left_out = shown.value.is_none() && !named;
            let (name, received_value) = match asked {
                Asked::Native(property) => (property.name, Some(property)),
                _ => (word.as_str(), None),
            };
            let received = match (received && !left_out, info.kind) {
                (false, _) | (_, DatasetKind::Bookmark) => None,
                _ => {
                    let session = sessions.of(&info.name).map_err(|error| error.dataset(&info.name))?;
                    let value = session.pool().received_property(info, name);
                    let value = value.map_err(|error| dataset_failure(&info.name, &error))?;
                    value.map(|value| match (received_value, value) {
                        (Some(property), value) => dates::value(property, &value, raw),
                        (None, pool::props::Value::Text(text)) => text,
                        (None, pool::props::Value::Number(number)) => number.to_string(),
                    })
                }
            };
            let listed = !left_out && (sources.is_empty() || sources.contains(&shown.source.word()));
            if listed {
                properties.insert(name.to_owned(), json::property(&shown.text, &shown.source, as_int));
            }
            rows.push(Got {
                name: info.name.clone(),
                property: name.to_owned(),
                column: Column::dataset(&word, &asked, false),
                human_len: shown.human.len(),
                value: shown.text,
                received,
                source: shown.source,
                shown: listed,
            });
        }
        objects.insert(info.name.clone(), json::dataset(json_head(info), properties, as_int));
    }
    if call.options.json {
        if objects.is_empty() && console.has_failed() {
            return Ok(());
        }
        return console.line(&json::envelope("zfs get", "datasets", objects).to_string());
    }
    Ok(table::print_get(console.out(), &fields, &rows, call.options.scripted)?)
}
