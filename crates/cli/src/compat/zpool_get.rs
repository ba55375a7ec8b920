//! `zpool get`.

use super::Call;
use super::pool_values::PoolValues;
use super::view;
use super::zpool_list::{check, head, key};
use super::zpool_vdev_props;
use crate::args::list::{self, Properties};
use crate::args::{Parsed, flag, property};
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
pub(super) struct Options {
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
/// Usage; pools that are missing are complained about.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let args = &call.args;
    let mut fields = Field::DEFAULT.to_vec();
    if let Some(list) = call.options.fields.as_deref().filter(|list| *list != "all") {
        fields.clear();
        for word in list::columns(list, Field::ALL.len())? {
            match Field::parse(word).filter(|field| *field != Field::Received) {
                Some(field) => fields.push(field),
                None => return Err(Failure::usage(format!("invalid column name '{word}'"))),
            }
        }
    }
    let Some((list, names)) = args.operands.split_first() else {
        return Err(Failure::usage("missing property argument"));
    };
    let known = open::usable(call.around)?;
    let is_pool = |name: &String| known.iter().any(|pool| pool.name == *name);
    if let [first, rest @ ..] = names
        && is_pool(first)
        && rest.iter().any(|name| !is_pool(name))
    {
        return zpool_vdev_props::get(call, console, (list, &fields), first, rest);
    }
    // What follows the name of a pool was taken for its vdevs above. Without such a pool nothing is shown at all.
    if let Some(name) = names.first().filter(|name| !is_pool(name)) {
        if let foreign @ open::NotOpen::Foreign { .. } = open::missing(name) {
            return Err(foreign.into());
        }
        let why = reason::NO_POOL_AVAILABLE;
        return Err(Failure::refused(format!("Cannot get properties of {name}: {why}.")));
    }
    words(list, None)?;
    let views = view::views(names, call.around, console)?;
    let as_int = call.options.json_int;
    let raw = call.options.exact || (as_int && call.options.json);
    let (mut rows, mut objects) = (Vec::new(), Map::new());
    for view in &views {
        let values = PoolValues::new(view)?;
        let mut properties = Map::new();
        for word in words(list, Some(&values))? {
            let Some(asked) = props::ask(&word) else { continue };
            let (mut text, source) = values.show(&asked, raw);
            let name = match asked {
                Asked::Native(property) => property.name.to_owned(),
                Asked::Unsupported(guid) => {
                    let state = values.unsupported().into_iter().find(|(other, _)| other == guid);
                    match state {
                        Some((_, state)) => text = state.to_owned(),
                        None => continue,
                    }
                    word.clone()
                }
                _ => word.clone(),
            };
            properties.insert(name.clone(), json::property(&text, &source, as_int));
            let human = values.show(&asked, false).0;
            rows.push(Got {
                name: view.name.clone(),
                property: name,
                column: Column::pool(&word, &asked, false),
                human_len: human.len().max(text.len()),
                value: text,
                received: None,
                source,
                shown: true,
            });
        }
        let mut object = head(view, true, as_int);
        object.insert("properties".to_owned(), properties.into());
        objects.insert(key(view, call.options.by_guid), object.into());
    }
    if call.options.json {
        return console.line(&json::envelope("zpool get", "pools", objects).to_string());
    }
    Ok(table::print_get(console.out(), &fields, &rows, call.options.scripted)?)
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
