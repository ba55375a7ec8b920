//! `zfs get`.

use pool::DatasetInfo;
use pool::props::dataset::{self as props, Asked};
use pool::props::{DatasetKind, Source, Value};
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
        "get [-r|-d DEPTH] [-Hp] [--wide] [-j [--json-int]] [-o all|FIELD[,FIELD]…] [-t TYPE[,TYPE]…] [-s SOURCE[,SOURCE]…] \
         all|PROPERTY[,PROPERTY]… [DATASET|PATH]…",
    ],
    examples: &[
        "zfs get compression,compressratio tank/home",
        "zfs get -r -s local all tank",
        "zfs get -Hp -o value used tank/home",
    ],
    options: &[
        flag("H", "no headings, tabs between fields"),
        flag("p", "exact numbers"),
        flag("r", "everything below, too"),
        flag("wide", "all columns, however wide the terminal is"),
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
        options: &["H", "p", "r", "wide", "j", "json-int", "d", "o", "s", "t"],
    }),
    run: Run::Here(run),
    ..Command::ZFS
};

/// The options of `zfs get`.
struct Options {
    scripted: bool,
    exact: bool,
    wide: bool,
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
        wide: args.has("wide"),
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
/// The arguments are wrong, or datasets are missing. Each of them has a message of its own.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    if call.options.json_int && !call.options.json {
        return Err(Failure::usage("'--json-int' only works with '-j' option"));
    }
    let fields = fields(call.options.fields.as_deref())?;
    let sources = sources(&call.options.sources)?;
    let selection = Selection::read(&call.options.scope, Kinds::ALL)?;
    let Some((properties, operands)) = call.args.operands.split_first() else {
        return Err(Failure::usage("missing property argument"));
    };
    let words = match list::properties(properties)? {
        Properties::All => None,
        Properties::Named(words) => Some(words),
    };
    if let Some(word) = words.iter().flatten().find(|word| props::ask(word).is_none()) {
        return Err(Failure::usage(format!("bad property list: invalid property '{word}'")));
    }
    let as_int = call.options.json_int;
    let asking = Asking {
        words,
        raw: call.options.exact || (as_int && call.options.json),
        received: fields.contains(&Field::Received),
        sources,
    };
    let mut sessions = Sessions::new(call.around, Intent::Read, &call.line);
    let found = selection.find(operands, &mut sessions, console)?;
    let (mut rows, mut objects) = (Vec::new(), Map::new());
    for info in &found {
        let got = asking.rows(&mut sessions, info)?;
        let listed = got.iter().filter(|row| row.shown);
        let properties = listed
            .map(|row| (row.property.clone(), json::property(&row.value, &row.source, as_int)))
            .collect();
        objects.insert(info.name.clone(), json::dataset(json_head(info), properties, as_int));
        rows.extend(got);
    }
    if call.options.json {
        if objects.is_empty() && console.has_failed() {
            return Ok(());
        }
        return console.line(&json::envelope("zfs get", "datasets", objects).to_string());
    }
    let is_usual = call.options.fields.is_none() && !call.options.scripted && !call.options.wide;
    match console.columns().filter(|_| is_usual) {
        Some(width) => Ok(table::print_get_within(console, &fields, &rows, width)?),
        None => Ok(table::print_get(console.out(), &fields, &rows, call.options.scripted)?),
    }
}

/// The fields that `-o` names, or the usual ones.
fn fields(list: Option<&str>) -> Result<Vec<Field>, Failure> {
    let Some(list) = list else { return Ok(Field::DEFAULT.to_vec()) };
    let mut fields = Vec::new();
    for word in list::columns(list, Field::ALL.len())? {
        match Field::parse(word) {
            _ if word == "all" => fields.extend(Field::ALL),
            Some(field) => fields.push(field),
            None => return Err(Failure::usage(format!("invalid column name '{word}'"))),
        }
    }
    Ok(fields)
}

/// The sources that `-s` names.
fn sources(lists: &[String]) -> Result<Vec<&str>, Failure> {
    let words = lists.iter().flat_map(|list| list.split(','));
    let known = |word: &str| match Source::WORDS.contains(&word) {
        true => Ok(()),
        false => Err(Failure::usage(format!("invalid source '{word}'"))),
    };
    words.map(|word| known(word).map(|()| word)).collect()
}

/// The properties that are asked of each dataset.
struct Asking<'a> {
    /// Names of properties; `None`: all that the dataset has.
    words: Option<Vec<&'a str>>,
    /// Exact numbers.
    raw: bool,
    /// Received values are shown, too.
    received: bool,
    /// Sources that are shown; empty: any.
    sources: Vec<&'a str>,
}

impl Asking<'_> {
    /// The properties of a dataset. The properties that `all` leaves out count for the widths all the same, and are not
    /// shown.
    fn rows(&self, sessions: &mut Sessions, info: &DatasetInfo) -> Result<Vec<Got>, Failure> {
        let wanted: Vec<String> = match &self.words {
            Some(words) => words.iter().map(|word| (*word).to_owned()).collect(),
            None => {
                let session = sessions.of(&info.name).map_err(|error| error.dataset(&info.name))?;
                let user = session.pool().user_properties(info);
                let user = user.map_err(|error| dataset_failure(&info.name, &error))?;
                let native = props::VISIBLE.iter().map(|property| property.name.to_owned());
                native.chain(user.into_iter().map(|(name, ..)| name)).collect()
            }
        };
        let mut rows = Vec::new();
        for word in wanted {
            let Some(asked) = props::ask(&word) else { continue };
            rows.push(self.row(sessions, info, &word, &asked)?);
        }
        Ok(rows)
    }

    fn row(
        &self,
        sessions: &mut Sessions,
        info: &DatasetInfo,
        word: &str,
        asked: &Asked,
    ) -> Result<Got, Failure> {
        let shown = show(sessions, info, asked, self.raw)?;
        let left_out = shown.value.is_none() && self.words.is_none();
        let received = match self.received && !left_out && info.kind != DatasetKind::Bookmark {
            true => self.received(sessions, info, word, asked)?,
            false => None,
        };
        let is_wanted = self.sources.is_empty() || self.sources.contains(&shown.source.word());
        Ok(Got {
            name: info.name.clone(),
            property: stored_name(asked, word).to_owned(),
            column: Column::dataset(word, asked, false),
            human_len: shown.human.len(),
            value: shown.text,
            received,
            source: shown.source,
            shown: !left_out && is_wanted,
        })
    }

    /// The received value of a property, if there is one.
    fn received(
        &self,
        sessions: &mut Sessions,
        info: &DatasetInfo,
        word: &str,
        asked: &Asked,
    ) -> Result<Option<String>, Failure> {
        let session = sessions.of(&info.name).map_err(|error| error.dataset(&info.name))?;
        let value = session.pool().received_property(info, stored_name(asked, word));
        let value = value.map_err(|error| dataset_failure(&info.name, &error))?;
        Ok(value.map(|value| match (asked, value) {
            (Asked::Native(property), value) => dates::value(property, &value, self.raw),
            (_, Value::Text(text)) => text,
            (_, Value::Number(number)) => number.to_string(),
        }))
    }
}

/// The name under which a property is stored.
fn stored_name<'a>(asked: &Asked, word: &'a str) -> &'a str {
    match asked {
        Asked::Native(property) => property.name,
        _ => word,
    }
}
