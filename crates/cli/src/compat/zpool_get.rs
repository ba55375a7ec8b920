//! `zpool get`.

use super::Call;
use super::pool_values::PoolValues;
use super::view::{self, PoolView};
use super::zpool_list::{check, head, key};
use super::zpool_vdev_props::{self, Asking};
use crate::args::list::{self, Properties};
use crate::args::{Parsed, flag, property};
use crate::command::Typed;
use crate::command::{Beside, Command, Run, Subjects, Targets, Visitors};
use crate::json;
use crate::messages::{Failure, reason};
use crate::open::{self};
use crate::out::Console;
use crate::table::{self, Column, Field, Got};
use format::features;
use pool::props::pool::{self as props, Asked};
use serde_json::Map;

/// `zpool get`.
pub static COMMAND: Command = Command {
    name: "get",
    about: "shows properties",
    syntax: &[
        "get [-Hp] [-j [--json-int] [--json-pool-key-guid]] [-o all|FIELD[,…]] all|PROPERTY[,PROPERTY]… [POOL]…",
        "get [-Hp] [-o all|FIELD[,…]] all|PROPERTY[,PROPERTY]… POOL all-vdevs|VDEV…",
    ],
    examples: &[
        "zpool get all tank",
        "zpool get -Hp -o value free tank",
        "zpool get -H state tank all-vdevs",
    ],
    options: &[
        flag("H", "no headings, tabs between fields"),
        flag("p", "exact numbers"),
        flag("j|json", "as JSON"),
        flag("json-int", "numbers as numbers in JSON"),
        flag("json-pool-key-guid", "pools by guid in JSON"),
        property("o", "these fields: name, property, value, source, all"),
    ],
    targets: Targets::Of(targets),
    beside: Beside::Reads { but: &[] },
    visitors: Some(Visitors {
        operands: Subjects::PropertiesOfPools,
        options: &["H", "p", "j", "json-int", "json-pool-key-guid", "o"],
    }),
    run: Run::Here(run),
    ..Command::ZPOOL
};

/// The options of `zpool get`.
struct Options {
    pub scripted: bool,
    pub exact: bool,
    pub json: bool,
    pub json_int: bool,
    pub by_guid: bool,
    pub fields: Option<String>,
}

fn read(args: &Parsed) -> Options {
    Options {
        scripted: args.has("H"),
        exact: args.has("p"),
        json: args.has("j"),
        json_int: args.has("json-int"),
        by_guid: args.has("json-pool-key-guid"),
        fields: args.text("o"),
    }
}

/// The pool, if its devices are asked about: what they did, its server knows.
fn targets(call: &Call) -> Result<Vec<String>, Failure> {
    let operands = &call.args.operands;
    if operands.len() <= 2 {
        return Ok(Vec::new());
    }
    let all = open::names(call.around)?;
    let vdevs = operands.iter().skip(2).any(|word| !all.contains(word));
    Ok(operands.get(1).filter(|_| vdevs).into_iter().cloned().collect())
}

/// Runs `zpool get`.
///
/// # Errors
/// The arguments are wrong, or pools are missing. Each of them has a message of its own.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let fields = fields(call.options.fields.as_deref())?;
    let Some((list, names)) = call.args.operands.split_first() else {
        return Err(Failure::usage("missing property argument"));
    };
    let Options { json: as_json, json_int: as_int, scripted, exact, .. } = call.options;
    let raw = exact || (as_int && as_json);
    let asking = Asking { list, fields: &fields, raw, as_int, as_json, scripted };
    let known = open::usable(call.around)?;
    let is_pool = |name: &String| known.iter().any(|pool| pool.name == *name);
    if let [first, rest @ ..] = names
        && is_pool(first)
        && rest.iter().any(|name| !is_pool(name))
    {
        return zpool_vdev_props::get(call, console, &asking, first, rest);
    }
    // The words after the pool's name were parsed as vdevs above. Without such a pool nothing is shown at all.
    if let Some(name) = names.first().filter(|name| !is_pool(name)) {
        if let foreign @ open::NotOpen::Foreign { .. } = open::missing(name) {
            return Err(foreign.into());
        }
        let why = reason::NO_POOL_AVAILABLE;
        return Err(Failure::refused(format!("Cannot get properties of {name}: {why}.")));
    }
    words(list, None)?;
    show(call, console, &asking, names)
}

/// The fields that `-o` names, or the usual ones.
fn fields(list: Option<&str>) -> Result<Vec<Field>, Failure> {
    let Some(list) = list.filter(|list| *list != "all") else { return Ok(Field::DEFAULT.to_vec()) };
    let mut fields = Vec::new();
    for word in list::columns(list, Field::ALL.len())? {
        match Field::parse(word).filter(|field| *field != Field::Received) {
            Some(field) => fields.push(field),
            None => return Err(Failure::usage(format!("invalid column name '{word}'"))),
        }
    }
    Ok(fields)
}

/// Shows properties of the pools named, or of all.
fn show(
    call: &Typed<Options>,
    console: &mut Console,
    asking: &Asking,
    names: &[String],
) -> Result<(), Failure> {
    let views = view::views(names, call.around, console)?;
    let (mut rows, mut objects) = (Vec::new(), Map::new());
    for view in &views {
        let values = PoolValues::new(view)?;
        let mut properties = Map::new();
        for word in words(asking.list, Some(&values))? {
            let Some(row) = row(view, &values, &word, asking.raw) else { continue };
            properties.insert(row.property.clone(), json::property(&row.value, &row.source, asking.as_int));
            rows.push(row);
        }
        let mut object = head(view, true, asking.as_int);
        object.insert("properties".to_owned(), properties.into());
        objects.insert(key(view, call.options.by_guid), object.into());
    }
    if asking.as_json {
        return console.line(&json::envelope("zpool get", "pools", objects).to_string());
    }
    Ok(table::print_get(console.out(), asking.fields, &rows, asking.scripted)?)
}

/// A property of a pool; `None` if the pool does not have it.
fn row(view: &PoolView, values: &PoolValues, word: &str, raw: bool) -> Option<Got> {
    let asked = props::ask(word)?;
    let (mut text, source) = values.show(&asked, raw);
    let property = match asked {
        Asked::Native(property) => property.name.to_owned(),
        Asked::Unsupported(guid) => {
            text = values.unsupported().into_iter().find(|(other, _)| other == guid)?.1.to_owned();
            word.to_owned()
        }
        _ => word.to_owned(),
    };
    let human = values.show(&asked, false).0;
    Some(Got {
        name: view.name.clone(),
        property,
        column: Column::pool(word, &asked, false),
        human_len: human.len().max(text.len()),
        value: text,
        received: None,
        source,
        shown: true,
    })
}

/// The words of a property list, `all` spelled out; and whether all were asked for.
fn words(list: &str, values: Option<&PoolValues>) -> Result<Vec<String>, Failure> {
    if let Properties::Named(named) = list::properties(list)? {
        named.iter().try_for_each(|word| check(word))?;
        return Ok(named.into_iter().map(str::to_owned).collect());
    }
    let native = props::VISIBLE.iter().chain(props::CLASSES.as_flattened());
    let mut words: Vec<String> = native.map(|property| property.name.to_owned()).collect();
    words.extend(values.into_iter().flat_map(PoolValues::user_properties).map(str::to_owned));
    words.extend(features::ALL.iter().map(|feature| format!("feature@{}", feature.name)));
    let unsupported = values.map(PoolValues::unsupported).unwrap_or_default();
    words.extend(unsupported.into_iter().map(|(guid, _)| format!("unsupported@{guid}")));
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_properties_are_asked_for_in_order() {
        let all = words("all", None).expect("known");
        assert_eq!(all.first().map(String::as_str), Some("size"));
        assert!(all.iter().any(|word| word == "feature@zstd_compress"));
        assert!(words("size,bogus", None).is_err());
    }
}
