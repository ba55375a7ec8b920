//! `zpool list`.

use pool::props::number;
use pool::props::pool::{self as props, Asked};
use pool::props::{Form, Kind};
use serde_json::{Map, Value};

use super::Call;
use super::pool_values::{PoolValues, Space};
use super::repeat::Repeat;
use super::view::{self, Class, Naming, PoolView, VdevView};
use crate::args::list::{self, Properties};
use crate::args::{Parsed, flag, property, value};
use crate::command::{Beside, Command, Run, Subjects, Typed, Visitors};
use crate::json;
use crate::messages::Failure;
use crate::open;
use crate::out::Console;
use crate::table::{self, Column, Row};

/// `zpool list`.
pub static COMMAND: Command = Command {
    name: "list",
    about: "lists pools with some of their properties",
    syntax: &[
        "list [-gHLpPv] [--wide] [-o PROPERTY[,…]] [-j [--json-int] [--json-pool-key-guid]] [-T d|u] [POOL]… \
         [INTERVAL [COUNT]]",
    ],
    examples: &["zpool list", "zpool list -v tank", "zpool list -Hp -o name,free"],
    options: &[
        flag("g", "vdevs by their guids"),
        flag("H", "no headings, tabs between fields"),
        flag("L", "where symbolic links lead"),
        flag("p", "exact numbers"),
        flag("P", "whole paths"),
        flag("v", "with vdevs"),
        flag("j|json", "as JSON"),
        flag("json-int", "numbers as numbers in JSON"),
        flag("json-pool-key-guid", "pools by guid in JSON"),
        property("o", "these properties, parted by commas"),
        flag("wide", "all columns, however wide the terminal is"),
        value("T", "a time stamp before each list: u seconds, d date"),
    ],
    beside: Beside::Reads { but: &[] },
    visitors: Some(Visitors {
        operands: Subjects::Pools,
        options: &["g", "H", "p", "P", "v", "wide", "j", "json-int", "json-pool-key-guid", "o", "T"],
    }),
    run: Run::Here(run),
    ..Command::ZPOOL
};

/// The options of `zpool list`.
struct Options {
    naming: Naming,
    scripted: bool,
    exact: bool,
    vdevs: bool,
    json: bool,
    json_int: bool,
    by_guid: bool,
    wide: bool,
    properties: Option<String>,
    stamp: Option<String>,
}

fn read(args: &Parsed) -> Options {
    Options {
        naming: Naming { guids: args.has("g"), follow: args.has("L"), full: args.has("P") },
        scripted: args.has("H"),
        exact: args.has("p"),
        vdevs: args.has("v"),
        json: args.has("j"),
        json_int: args.has("json-int"),
        by_guid: args.has("json-pool-key-guid"),
        wide: args.has("wide"),
        properties: args.text("o"),
        stamp: args.text("T"),
    }
}

const DEFAULT: &str =
    "name,size,allocated,free,checkpoint,expandsize,fragmentation,capacity,dedupratio,health,altroot";

/// Columns that are left out if the terminal is too narrow, the first one first.
const RANK: &[&str] = &["EXPANDSZ", "CKPOINT", "ALTROOT", "DEDUP", "FRAG", "ALLOC"];

/// Runs `zpool list`.
///
/// # Errors
/// The arguments are wrong, or none of the named pools could be opened.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let mut names = call.args.operands.clone();
    let repeat = Repeat::take(&mut names, call.options.stamp.as_deref())?;
    let words = columns(call.options.properties.as_deref().unwrap_or(DEFAULT))?;
    let known = open::usable(call.around)?;
    let some = names.iter().any(|name| known.iter().any(|pool| pool.name == *name));
    if known.is_empty() && names.is_empty() && !call.options.json {
        if call.options.scripted {
            return Ok(());
        }
        console.line("no pools available")?;
        open::remark_foreign(console);
        return Ok(());
    }
    if !names.is_empty() && !some {
        for name in &names {
            console.complain(open::no_such_pool(name))?;
        }
        return Ok(());
    }
    repeat.run(call.around, console, |console, round| {
        let mut views = Vec::new();
        for name in names.iter().filter(|name| !known.iter().any(|pool| pool.name == **name)) {
            // With some of them there, those that are not leave the exit status alone.
            if let Failure::Refused(lines) = open::no_such_pool(name) {
                lines.iter().for_each(|line| console.remark(line));
            }
        }
        let there: Vec<String> =
            names.iter().filter(|n| known.iter().any(|p| p.name == **n)).cloned().collect();
        if names.is_empty() || !there.is_empty() {
            views = view::views(&there, call.around, console)?;
        }
        let values = views.iter().map(PoolValues::new).collect::<Result<Vec<_>, _>>()?;
        if call.options.json {
            as_json(call, console, &words, &values)
        } else {
            as_table(call, console, &words, &values, round)
        }
    })
}

/// The words of `-o`, `all` spelled out.
fn columns(list: &str) -> Result<Vec<String>, Failure> {
    let Properties::Named(named) = list::properties(list)? else {
        let native = props::VISIBLE.iter().chain(props::CLASSES.as_flattened()).map(|p| p.name.to_owned());
        let features = format::features::ALL.iter().map(|feature| format!("feature@{}", feature.name));
        return Ok(std::iter::once("name".to_owned()).chain(native).chain(features).collect());
    };
    named.iter().try_for_each(|word| check(word))?;
    Ok(named.into_iter().map(str::to_owned).collect())
}

/// Whether a word is a property of a pool.
///
/// # Errors
/// As a mistake in the property list.
pub fn check(word: &str) -> Result<(), Failure> {
    let known = match props::ask(word) {
        Some(Asked::Feature(name)) => format::features::by_name(name).is_some() || name.contains(':'),
        Some(_) => true,
        None => false,
    };
    if known { Ok(()) } else { Err(Failure::usage(format!("bad property list: invalid property '{word}'"))) }
}

fn as_table(
    call: &Typed<Options>,
    console: &mut Console,
    words: &[String],
    pools: &[PoolValues],
    round: u64,
) -> Result<(), Failure> {
    let (raw, scripted) = (call.options.exact, call.options.scripted);
    let asked: Vec<(String, Asked)> =
        words.iter().filter_map(|word| Some((word.clone(), props::ask(word)?))).collect();
    let mut columns: Vec<Column> = asked.iter().map(|(word, asked)| Column::pool(word, asked, raw)).collect();
    let (mut rows, mut headings) = (Vec::new(), Vec::new());
    for values in pools {
        rows.push(Row::new(asked.iter().map(|(_, asked)| values.show(asked, raw).0).collect()));
        if !call.options.vdevs {
            continue;
        }
        let mut last = Class::Normal;
        for vdev in &values.view().listed(call.options.naming.or_variables(call)) {
            if vdev.class != last {
                let dash = |(_, asked): &(String, Asked)| match asked {
                    Asked::Native(property) if property.name == "name" => vdev.class.heading().to_owned(),
                    _ => "-".to_owned(),
                };
                headings.push(rows.len());
                rows.push(Row { cells: asked.iter().map(dash).collect(), vdev: true });
                last = vdev.class;
            }
            VdevRows { values, asked: &asked, raw }.add(vdev, 1, &mut rows);
        }
    }
    if !scripted && call.options.properties.is_none() && !call.options.wide {
        table::fit_terminal(console, &mut columns, &mut rows, RANK);
    }
    if round == 0 && !scripted {
        return Ok(table::print(console.out(), &columns, &rows, false)?);
    }
    let mut out = Vec::new();
    table::print(&mut out, &columns, &rows, false)?;
    let text = String::from_utf8_lossy(&out).into_owned();
    let mut lines = text.lines().skip(1);
    if !scripted {
        return lines.try_for_each(|line| console.line(line));
    }
    for ((at, row), line) in rows.iter().enumerate().zip(lines) {
        // Headings of classes are laid out for people all the same.
        if headings.contains(&at) {
            console.line(line)?;
        } else {
            console.line(&fields(&asked, row))?;
        }
    }
    Ok(())
}

/// A row for programs; a tab stands for the indentation of vdevs.
fn fields(asked: &[(String, Asked)], row: &Row) -> String {
    let field = |((_, asked), cell): (&(String, Asked), &String)| match asked {
        Asked::Native(property) if property.name == "name" && row.vdev => format!("\t{}", cell.trim_start()),
        _ => cell.clone(),
    };
    asked.iter().zip(&row.cells).map(field).collect::<Vec<_>>().join("\t")
}

/// The rows of the vdevs of one pool.
struct VdevRows<'a> {
    values: &'a PoolValues<'a>,
    asked: &'a [(String, Asked<'a>)],
    raw: bool,
}

impl VdevRows<'_> {
    /// Adds a vdev and all below it.
    fn add(&self, vdev: &VdevView, depth: usize, rows: &mut Vec<Row>) {
        let cells = self.asked.iter().map(|(_, asked)| match asked {
            Asked::Native(property) if property.name == "name" => {
                format!("{}{}", "  ".repeat(depth), vdev.name)
            }
            asked => vdev_cell(self.values, vdev, asked, self.raw),
        });
        rows.push(Row { cells: cells.collect(), vdev: true });
        for child in &vdev.children {
            self.add(child, depth + 1, rows);
        }
    }
}

/// A figure of a vdev: only those of space and health are known of one.
fn vdev_cell(values: &PoolValues, vdev: &VdevView, asked: &Asked, raw: bool) -> String {
    let Asked::Native(property) = asked else { return "-".to_owned() };
    let space = values.space_of(vdev);
    let size = |n: u64| match property.kind {
        Kind::Number(form) => form.show(n, raw).into_owned(),
        _ => n.to_string(),
    };
    let of = |figure: fn(Space) -> Option<u64>| space.and_then(figure).map_or("-".to_owned(), size);
    match property.name {
        "size" => match vdev.device_bytes {
            Some(bytes) => size(bytes),
            None => of(|space| Some(space.size)),
        },
        "allocated" => of(|space| Some(space.allocated)),
        "free" => of(|space| Some(space.free())),
        "fragmentation" => of(|space| space.fragmentation),
        "capacity" => match space {
            Some(space) if raw => Form::Integer.show(space.capacity() / 100, true).into_owned(),
            Some(space) => format!("{}%", number::ratio(space.capacity(), true)),
            None => "-".to_owned(),
        },
        "health" => vdev.state.word().to_owned(),
        _ => "-".to_owned(),
    }
}

fn as_json(
    call: &Typed<Options>,
    console: &mut Console,
    words: &[String],
    pools: &[PoolValues],
) -> Result<(), Failure> {
    let as_int = call.options.json_int;
    let raw = call.options.exact || as_int;
    let mut objects = Map::new();
    for values in pools {
        let mut object = head(values.view(), true, as_int);
        let mut properties = Map::new();
        for word in words {
            let Some(asked) = props::ask(word) else { continue };
            let name = match asked {
                Asked::Native(property) if property.name == "name" => continue,
                Asked::Native(property) => property.name,
                _ => word,
            };
            let (value, source) = values.show(&asked, raw);
            properties.insert(name.to_owned(), json::property(&value, &source, as_int));
        }
        object.insert("properties".to_owned(), Value::Object(properties));
        if call.options.vdevs {
            let (mut normal, mut classes) = (Map::new(), Map::new());
            for vdev in &values.view().listed(call.options.naming.or_variables(call)) {
                let value = vdev_json(values, vdev, words, raw, as_int);
                match vdev.class {
                    Class::Normal => {
                        normal.insert(vdev.name.clone(), value);
                    }
                    class => {
                        let group = classes.entry(class.group()).or_insert_with(|| Value::Object(Map::new()));
                        if let Value::Object(group) = group {
                            group.insert(vdev.name.clone(), value);
                        }
                    }
                }
            }
            normal.extend(classes);
            object.insert("vdevs".to_owned(), Value::Object(normal));
        }
        objects.insert(key(values.view(), call.options.by_guid), Value::Object(object));
    }
    console.line(&json::envelope("zpool list", "pools", objects).to_string())
}

/// The key of a pool in the JSON.
pub fn key(view: &PoolView, by_guid: bool) -> String {
    if by_guid { view.guid().0.to_string() } else { view.name.clone() }
}

/// The first fields of a pool's JSON.
pub fn head(view: &PoolView, typed: bool, as_int: bool) -> Map<String, Value> {
    let (txg, version) = match view.session().map(|session| session.pool().info()) {
        Some(info) => (info.txg.0, info.config.version),
        None => (0, format::config::VERSION_FEATURES),
    };
    json::pool(
        json::PoolHead {
            name: &view.name,
            state: view.state().word(),
            guid: view.guid().0,
            txg,
            spa_version: version,
            zpl_version: 5,
            typed,
        },
        as_int,
    )
}

fn vdev_json(values: &PoolValues, vdev: &VdevView, words: &[String], raw: bool, as_int: bool) -> Value {
    let mut object = Map::new();
    let mut add = |key: &str, value: Value| object.insert(key.to_owned(), value);
    add("name", vdev.name.clone().into());
    // Of a removed vdev only its name and its figures are shown.
    if !vdev.is_removed() {
        add("vdev_type", vdev.kind.clone().into());
        add("guid", json::scalar(&vdev.guid.0.to_string(), as_int));
        if let Some(path) = &vdev.path {
            add("path", path.clone().into());
        }
        add("class", vdev.class.word().into());
        add("state", vdev.state.word().into());
    }
    let mut properties = Map::new();
    for word in words {
        let Some(asked @ Asked::Native(property)) = props::ask(word) else { continue };
        if property.name != "name" {
            let text = vdev_cell(values, vdev, &asked, raw);
            properties
                .insert(property.name.to_owned(), json::property(&text, &pool::props::Source::None, as_int));
        }
    }
    add("properties", Value::Object(properties));
    if !vdev.is_leaf() {
        let children = vdev.children.iter();
        let below: Map<String, Value> =
            children.map(|c| (c.name.clone(), vdev_json(values, c, words, raw, as_int))).collect();
        add("vdevs", Value::Object(below));
    }
    Value::Object(object)
}
