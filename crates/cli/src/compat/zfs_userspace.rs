//! `zfs userspace`, `groupspace` and `projectspace`.

use std::cmp::Ordering;

use pool::props::dataset::Owner;
use pool::props::{DatasetKind, Justify, names};
use serde_json::{Map, Value, json};
use zpl::{Amount, Filesystem, Usage};

use super::Call;
use super::keyed::by_server;
use super::owner_quota::{self, name_of, owner_of};
use super::select::{dataset_at, dataset_failure};
use crate::args::{Parsed, flag, property, value};
use crate::command::{Beside, Command, Run};
use crate::json;
use crate::messages::{Action, Failure, reason};
use crate::open::{Intent, open_for};
use crate::out::Console;
use crate::suggest;
use crate::table::{self, Column, Row};

/// `zfs userspace`.
pub static COMMAND: Command = Command {
    name: "userspace",
    about: "shows space and quotas of users",
    syntax: &[
        "userspace [-Hinp] [-j [--json-int]] [-o FIELD[,…]] [-s FIELD]… [-S FIELD]… [-t TYPE[,…]] FILESYSTEM|SNAPSHOT|PATH",
    ],
    examples: &["zfs userspace tank/home", "zfs userspace -Hp -o name,used,quota -S used tank/home"],
    options: &[
        flag("H", "no headings, tabs between fields"),
        flag("i", "translates identities of other systems").idle(),
        flag("n", "numbers instead of names"),
        flag("p", "exact numbers"),
        property("o", "these fields"),
        property("s", "sorted by this field"),
        property("S", "sorted by this field, the largest first"),
        value("t", "only these types of owners"),
        flag("j|json", "prints JSON"),
        flag("json-int", "numbers without quotes in JSON"),
    ],
    beside: Beside::TakesTurns,
    run: Run::Here(|call, console| run(call, &read(&call.args), console, Owner::User)),
    ..Command::ZFS
};

/// The options of `zfs userspace`, `groupspace` and `projectspace`.
pub(super) struct Options {
    pub scripted: bool,
    /// Numbers instead of names.
    pub numeric: bool,
    pub exact: bool,
    pub json: bool,
    pub json_int: bool,
    pub fields: Option<String>,
    /// Fields to sort by.
    pub ascending: Vec<String>,
    /// Fields to sort by after those, the largest first.
    pub descending: Vec<String>,
    pub types: Vec<String>,
}

fn read(args: &Parsed) -> Options {
    Options {
        scripted: args.has("H"),
        numeric: args.has("n"),
        exact: args.has("p"),
        json: args.has("j"),
        json_int: args.has("json-int"),
        fields: args.text("o"),
        ascending: args.texts("s"),
        descending: args.texts("S"),
        types: args.texts("t"),
    }
}

/// The fields that can be shown, in the order they are shown unless told otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Type,
    Name,
    Used,
    Quota,
    ObjUsed,
    ObjQuota,
}

impl Field {
    const ALL: [Field; 6] =
        [Field::Type, Field::Name, Field::Used, Field::Quota, Field::ObjUsed, Field::ObjQuota];

    fn parse(word: &str) -> Option<Field> {
        Field::ALL.into_iter().find(|field| field.heading().to_lowercase() == word)
    }

    const fn heading(self) -> &'static str {
        match self {
            Field::Type => "TYPE",
            Field::Name => "NAME",
            Field::Used => "USED",
            Field::Quota => "QUOTA",
            Field::ObjUsed => "OBJUSED",
            Field::ObjQuota => "OBJQUOTA",
        }
    }

    fn column(self) -> Column {
        let left = matches!(self, Field::Type | Field::Name);
        Column {
            heading: self.heading().to_owned(),
            justify: if left { Justify::Left } else { Justify::Right },
            min_width: 0,
            grows: true,
        }
    }
}

/// A user, group or project of the system here (POSIX), or of another domain (SMB).
struct Line {
    owner: Owner,
    foreign: bool,
    id: u64,
    name: String,
    usage: Usage,
    /// Quotas of bytes and objects that hold for an owner without one of its own; 0: none.
    defaults: [u64; 2],
}

impl Line {
    const fn kind(&self) -> &'static str {
        match (self.owner, self.foreign) {
            (Owner::User, false) => "POSIX User",
            (Owner::Group, false) => "POSIX Group",
            (Owner::User, true) => "SMB User",
            (Owner::Group, true) => "SMB Group",
            (Owner::Project, _) => "Project",
        }
    }

    /// Use and quota go together. An owner with a quota alone uses 0, an owner without one has the default quota; where
    /// neither is known, there is no number.
    fn number(&self, field: Field) -> Option<u64> {
        let Usage { bytes, byte_quota, objects, object_quota } = self.usage;
        match field {
            Field::Used => bytes.or(byte_quota.map(|_| 0)),
            Field::Quota => byte_quota.or(bytes.map(|_| self.defaults[0])),
            Field::ObjUsed => objects.or(object_quota.map(|_| 0)),
            Field::ObjQuota => object_quota.or(objects.map(|_| self.defaults[1])),
            Field::Type | Field::Name => None,
        }
    }

    fn cell(&self, field: Field, raw: bool) -> String {
        let amount = match field {
            Field::Type => return self.kind().to_owned(),
            Field::Name => return self.name.clone(),
            Field::Used | Field::Quota => Amount::Bytes,
            Field::ObjUsed | Field::ObjQuota => Amount::Objects,
        };
        let Some(number) = self.number(field) else { return "-".to_owned() };
        let quota = matches!(field, Field::Quota | Field::ObjQuota);
        if raw { number.to_string() } else { owner_quota::text(number, amount, quota) }
    }

    fn compare(&self, other: &Line, field: Field, numeric: bool) -> Ordering {
        match field {
            Field::Type => self.kind().cmp(other.kind()),
            Field::Name if numeric => self.id.cmp(&other.id),
            Field::Name => self.name.cmp(&other.name),
            field => self.number(field).cmp(&other.number(field)),
        }
    }
}

/// Runs one of the three.
///
/// # Errors
/// The arguments are wrong, or the file system cannot be read.
pub(super) fn run(
    call: &Call,
    options: &Options,
    console: &mut Console,
    owner: Owner,
) -> Result<(), Failure> {
    let args = &call.args;
    let mut fields = Field::ALL.to_vec();
    if let Some(list) = &options.fields {
        fields = list
            .split(',')
            .map(|word| Field::parse(word).ok_or_else(|| invalid_field(word, "-o")))
            .collect::<Result<_, _>>()?;
    }
    let kinds = kinds(&options.types, owner)?;
    let mut order = Vec::new();
    for (option, words, descending) in [("s", &options.ascending, false), ("S", &options.descending, true)] {
        for word in words {
            let field = Field::parse(word);
            order.push((field.ok_or_else(|| invalid_field(word, &format!("-{option}")))?, descending));
        }
    }
    let name = match args.operands.as_slice() {
        [] => return Err(Failure::usage("missing dataset name")),
        [name] => name.as_str(),
        _ => return Err(Failure::usage("too many arguments")),
    };
    let numeric = options.numeric || owner == Owner::Project;
    let mounted = dataset_at(name, call.around)?;
    let name = mounted.as_deref().unwrap_or(name);
    let Some(mut lines) = lines(call, name, &kinds, options.numeric)? else { return Ok(()) };
    order.extend([(Field::Type, false), (Field::Name, false)]);
    lines.sort_by(|a, b| {
        let one = |(field, descending): &(Field, bool)| match a.compare(b, *field, numeric) {
            found if *descending => found.reverse(),
            found => found,
        };
        order.iter().map(one).find(|found| found.is_ne()).unwrap_or(Ordering::Equal)
    });
    if options.json {
        return console.line(&as_json(call, name, &lines, (&fields, options)).to_string());
    }
    let columns: Vec<Column> = fields.iter().map(|field| field.column()).collect();
    let rows: Vec<Row> = lines
        .iter()
        .map(|line| Row::new(fields.iter().map(|field| line.cell(*field, options.exact)).collect()))
        .collect();
    Ok(table::print(console.out(), &columns, &rows, options.scripted)?)
}

/// `{"datasets":{"tank/fs":{"name":"tank/fs","owners":[{"type":"POSIX User","name":"root",…}]}}}` in the envelope of OpenZFS's JSON.
fn as_json(call: &Call, dataset: &str, lines: &[Line], (fields, options): (&[Field], &Options)) -> Value {
    let raw = options.exact || options.json_int;
    let owner = |line: &Line| -> Value {
        let cells = fields.iter().map(|field| {
            let cell = line.cell(*field, raw);
            let is_number = options.json_int && !matches!(field, Field::Type | Field::Name);
            (field.heading().to_lowercase(), json::scalar(&cell, is_number))
        });
        Value::Object(cells.collect())
    };
    let owners: Vec<Value> = lines.iter().map(owner).collect();
    let mut datasets = Map::new();
    datasets.insert(dataset.to_owned(), json!({ "name": dataset, "owners": owners }));
    json::envelope(&call.command.called(), "datasets", datasets)
}

fn invalid(word: &str, option: &str, all: &[&str]) -> Failure {
    let failure = Failure::refused(format!("invalid type '{word}' for {option} option"));
    match suggest::meant(word, all.iter().copied()) {
        Some(more) => failure.hint(more),
        None => failure,
    }
}

fn invalid_field(word: &str, option: &str) -> Failure {
    let names = Field::ALL.map(|field| field.heading().to_lowercase());
    invalid(word, option, &names.each_ref().map(String::as_str))
}

/// The words of `-t`.
const TYPES: [&str; 5] = ["all", "posixuser", "posixgroup", "smbuser", "smbgroup"];

/// The kinds of owners to list, and whether they are owners of this system or (`true`) of others. `-t` chooses them;
/// otherwise both kinds for the owner of the command are listed.
fn kinds(types: &[String], owner: Owner) -> Result<Vec<(Owner, bool)>, Failure> {
    let mut kinds = Vec::new();
    for word in types.iter().flat_map(|list| list.split(',')) {
        match word {
            "all" => {
                kinds.extend([Owner::User, Owner::Group].into_iter().flat_map(|o| [(o, false), (o, true)]));
            }
            "posixuser" => kinds.push((Owner::User, false)),
            "posixgroup" => kinds.push((Owner::Group, false)),
            "smbuser" => kinds.push((Owner::User, true)),
            "smbgroup" => kinds.push((Owner::Group, true)),
            other => return Err(invalid(other, "-t", &TYPES)),
        }
    }
    if kinds.is_empty() {
        kinds.extend([(owner, false), (owner, true)]);
    }
    Ok(kinds)
}

/// The lines to print; `None` if the pool's server printed them.
fn lines(
    call: &Call,
    name: &str,
    kinds: &[(Owner, bool)],
    numbers: bool,
) -> Result<Option<Vec<Line>>, Failure> {
    let action = Action::Open(name);
    if names::check(name).map_err(|error| action.failed(error))? == DatasetKind::Bookmark {
        return Err(action.failed(names::NameError::BookmarkUnexpected));
    }
    let session = open_for(name, call.around, Intent::Read).map_err(|error| error.dataset(name))?;
    let pool = session.pool();
    let info = pool.dataset(name).map_err(|error| dataset_failure(name, &error))?;
    if info.kind == DatasetKind::Volume {
        return Err(action.failed(reason::WRONG_KIND));
    }
    if by_server(&session, call, &[name.to_owned()], name, false)? {
        session.finish()?;
        return Ok(None);
    }
    let fs = pool.open(name).map_err(|error| dataset_failure(name, &error))?;
    let fs = Filesystem::open(fs).map_err(|error| Action::Read(name).failed(error))?;
    let mut lines = Vec::new();
    for owner in [Owner::User, Owner::Group, Owner::Project] {
        let wanted = |foreign: bool| kinds.contains(&(owner, foreign));
        if !wanted(false) && !wanted(true) {
            continue;
        }
        let unreadable = |error: zpl::Error| Action::Read(name).failed(error);
        let found = fs.usage_by(owner_of(owner)).map_err(unreadable)?;
        let default = |amount| fs.default_quota(owner_of(owner), amount).map_err(unreadable);
        let defaults = [default(Amount::Bytes)?, default(Amount::Objects)?];
        for (id, usage) in found {
            let foreign = u32::try_from(id).is_err();
            if wanted(foreign) {
                let known = if numbers || foreign { None } else { name_of(owner, id) };
                let name = known.unwrap_or_else(|| id.to_string());
                lines.push(Line { owner, foreign, id, name, usage, defaults });
            }
        }
    }
    session.finish()?;
    Ok(Some(lines))
}
