//! `zpool get` and `zpool set` of vdevs.

use format::Guid;
use pool::Error;
use pool::props::vdev::{self as props, Asked};
use serde_json::{Map, Value};

use super::Call;
use super::pool_values::PoolValues;
use super::vdev_values::{ROOT, Vdev, Vdevs, find};
use super::view::PoolView;
use crate::args::assignment;
use crate::args::list::{self, Properties};
use crate::json;
use crate::messages::{Failure, reason};
use crate::open::{self, Intent, Usable};
use crate::out::Console;
use crate::table::{self, Column, Field, Got};

/// The properties that `zpool get` asks for, and how they are shown.
#[derive(Clone, Copy)]
pub(super) struct Asking<'a> {
    /// The list of properties as it was typed.
    pub list: &'a str,
    pub fields: &'a [Field],
    /// Exact numbers.
    pub raw: bool,
    /// JSON has numbers as numbers.
    pub as_int: bool,
    pub as_json: bool,
    /// Tabs, and no heading.
    pub scripted: bool,
}

/// Runs `zpool get PROPERTY… POOL VDEV…`.
///
/// # Errors
/// The arguments are wrong, or a property or vdev does not exist.
pub(super) fn get(
    call: &Call,
    console: &mut Console,
    asked: &Asking,
    pool: &str,
    names: &[String],
) -> Result<(), Failure> {
    let Asking { list, fields, as_int, raw, as_json, scripted } = *asked;
    let asked = list::properties(list)?;
    if let Properties::Named(words) = &asked
        && let Some(word) = words.iter().find(|word| props::ask(word).is_none())
    {
        return Err(Failure::usage(format!("bad property list: invalid property '{word}'")));
    }
    let view = PoolView::new(open::find(pool, call.around)?);
    let values = PoolValues::new(&view)?;
    let vdevs = Vdevs::new(&view, &values)?;
    let all = vdevs.all()?;
    let mut wanted: Vec<(&str, &Vdev)> = Vec::new();
    let mut unknown = Vec::new();
    if names == ["all-vdevs"] {
        wanted.extend(all.iter().map(|vdev| (vdev.name.as_str(), vdev)));
    } else {
        for name in names {
            match find(&all, name) {
                Some(vdev) if name == "root" => wanted.push((&vdev.name, vdev)),
                Some(vdev) => wanted.push((name, vdev)),
                None => unknown.push(format!("\t{name}")),
            }
        }
    }
    if !unknown.is_empty() {
        let line = format!("Expected a list of vdevs in \"{pool}\", but got:\n{}\n", unknown.join("\n"));
        return Err(Failure::usage(line));
    }
    let (mut rows, mut objects) = (Vec::new(), Map::new());
    for (name, vdev) in wanted {
        let mut properties = Map::new();
        for word in words(&asked, &vdevs, vdev) {
            let Some(asked) = props::ask(&word) else { continue };
            let Some((value, source)) = vdevs.show(vdev, &asked, raw) else { continue };
            let (property, column) = match asked {
                Asked::Native(property) => (property.name.to_owned(), Column::native(property, false)),
                Asked::User(name) => (name.to_owned(), Column::other(name, pool::props::Justify::Left)),
            };
            properties.insert(property.clone(), json::property(&value, &source, as_int));
            let human = vdevs.show(vdev, &asked, false).map_or(0, |(text, _)| text.len());
            rows.push(Got {
                name: name.to_owned(),
                property,
                column,
                human_len: human.max(value.len()),
                value,
                received: None,
                source,
                shown: true,
            });
        }
        objects.insert(name.to_owned(), object(name, vdev, properties, as_int));
    }
    if as_json {
        return console.line(&json::envelope("zpool get", "vdevs", objects).to_string());
    }
    Ok(table::print_get(console.out(), fields, &rows, scripted)?)
}

fn words(asked: &Properties, vdevs: &Vdevs, vdev: &Vdev) -> Vec<String> {
    match asked {
        Properties::All => vdevs.words(vdev),
        Properties::Named(words) => words.iter().map(|word| (*word).to_owned()).collect(),
    }
}

fn object(name: &str, vdev: &Vdev, properties: Map<String, Value>, as_int: bool) -> Value {
    let mut object = Map::new();
    let mut add = |key: &str, value: Value| object.insert(key.to_owned(), value);
    add("name", name.into());
    add("vdev_type", vdev.view.map_or("root", |view| view.kind.as_str()).into());
    add("guid", json::scalar(&vdev.config.guid.0.to_string(), as_int));
    if let Some(path) = vdev.view.and_then(|view| view.path.clone()) {
        add("path", path.into());
    }
    add("class", vdev.view.map_or("normal", |view| view.class.word()).into());
    add("state", vdev.view.map_or("ONLINE", |view| view.state.word()).into());
    add("properties", Value::Object(properties));
    Value::Object(object)
}

/// Runs `zpool set PROPERTY=VALUE POOL VDEV`.
///
/// # Errors
/// The arguments are wrong, or the value is refused. Then nothing was changed.
pub fn set(call: &Call, word: &str, pool: &str, name: &str) -> Result<(), Failure> {
    let Ok((word, text)) = assignment(word) else {
        return Err(Failure::usage("missing value in property=value argument"));
    };
    let Ok(usable) = open::find(pool, call.around) else {
        return Err(Failure::refused(format!("cannot open '{pool}': is not a pool")));
    };
    let Some(Place { shown, guid, refusal }) = place(usable.clone(), name, word)? else {
        let name = if name == "root" { ROOT } else { name };
        return Err(Failure::refused(format!("cannot find '{name}' in '{pool}': device not in pool")));
    };
    let failed = |why: &dyn std::fmt::Display| {
        Failure::refused(format!("cannot set property {word} for {shown} on {pool}: {why}"))
    };
    let (stored, value) = props::change(word, text).map_err(|error| failed(&error))?;
    if let Some(why) = refusal {
        return Err(failed(&why));
    }
    let session = open::open(usable, Intent::Write)?;
    if session.pool().read_only().is_some() {
        return Err(failed(&reason::POOL_READ_ONLY));
    }
    session.command(&call.line);
    let done = session.pool().set_vdev_property(guid, &stored, value).map_err(|error| match error {
        Error::NoVdevZap => failed(&error).hint("enable the pool's feature vdev_zaps_v2 first"),
        Error::LastVdev => failed(&error).hint("no vdev would be left that takes new data"),
        error => failed(&error),
    });
    session.finish().and(done)
}

/// A vdev that is to be changed.
struct Place {
    /// As messages call it.
    shown: String,
    guid: Guid,
    /// Why this vdev cannot have the property.
    refusal: Option<String>,
}

/// Opens a pool to find the vdev called `name`, and closes the pool again.
fn place(usable: Usable, name: &str, word: &str) -> Result<Option<Place>, Failure> {
    let view = PoolView::new(usable);
    let values = PoolValues::new(&view)?;
    let vdevs = Vdevs::new(&view, &values)?;
    let place = |vdev: &Vdev| Place {
        shown: if name == "root" { vdev.name.clone() } else { name.to_owned() },
        guid: vdev.config.guid,
        refusal: cannot(vdev, word),
    };
    Ok(find(&vdevs.all()?, name).map(place))
}

/// Why a property that others have cannot be given this value here.
fn cannot(vdev: &Vdev, word: &str) -> Option<String> {
    match word {
        // Only raidz and draid know these.
        "sit_out" | "autosit" => Some("operation not supported on this type of vdev".to_owned()),
        "alloc_bias" => Some("not supported: changing the class of a vdev".to_owned()),
        "path" if vdev.view.is_none_or(|view| view.path.is_none()) => {
            Some("Read-only file system".to_owned())
        }
        "path" => Some("not supported: the path is where the device was found at import".to_owned()),
        _ => None,
    }
}
