//! `zpool get` and `zpool set`.

use std::path::Path;

use format::config::VERSION_FEATURES;
use format::features;
use pool::props::pool::{self as props, Asked, Moment};
use pool::props::{PropertyError, Value, names};
use serde_json::Map;

use super::Call;
use super::pool_values::PoolValues;
use super::view;
use super::zpool_list::{check, head, key};
use super::zpool_vdev_props;
use crate::args::assignment;
use crate::args::list::{self, Properties};
use crate::json;
use crate::messages::{Action, Failure, plain, reason};
use crate::open::{self, Intent, NotOpen};
use crate::out::Console;
use crate::state;
use crate::table::{self, Column, Field, Got};

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

/// Runs `zpool get`.
///
/// # Errors
/// Usage; pools that are missing are complained about.
pub fn get(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let args = &call.args;
    let mut fields = Field::DEFAULT.to_vec();
    if let Some(list) = args.value("o").filter(|list| *list != "all") {
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
        return zpool_vdev_props::get(call, console, list, &fields, first, rest);
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
    let as_int = args.has("json-int");
    let raw = args.has("p") || (as_int && args.has("j"));
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
        objects.insert(key(call, view), object.into());
    }
    if args.has("j") {
        return console.line(&json::envelope("zpool get", "pools", objects).to_string());
    }
    Ok(table::print_get(console.out(), &fields, &rows, args.has("H"))?)
}

/// Reads the value of `feature@name`: whether it is to be enabled.
///
/// # Errors
/// Any other word.
pub fn feature_word(name: &str, value: &str) -> Result<bool, PropertyError> {
    match value {
        "enabled" => Ok(true),
        "disabled" => Ok(false),
        _ => Err(PropertyError::FeatureWord { name: name.to_owned() }),
    }
}

/// Whether pools can be listed in such a file; else why not.
///
/// # Errors
/// The reason, of a path that cannot be written or that somebody else wrote.
pub fn check_cachefile(text: &str) -> Result<(), String> {
    if text.is_empty() || text == "none" {
        return Ok(());
    }
    let path = Path::new(text);
    let is_file = path.file_name().is_some() && !text.ends_with(['/']) && !text.ends_with("/.");
    let folder = path.parent().filter(|_| is_file).ok_or_else(|| format!("'{text}' is not a valid file"))?;
    if !folder.is_dir() {
        return Err(format!("'{}' is not a valid directory", folder.display()));
    }
    pool::known::check_cachefile(path).map_err(plain)
}

/// Runs `zpool set`.
///
/// # Errors
/// Usage, or why the value is refused; then nothing was changed.
pub fn set(call: &Call) -> Result<(), Failure> {
    let (word, name) = match call.args.operands.as_slice() {
        [] => return Err(Failure::usage("missing property=value argument")),
        [_] => return Err(Failure::usage("missing pool name")),
        [word, name] => (word, name),
        [word, name, vdev] if !name.contains('=') => return zpool_vdev_props::set(call, word, name, vdev),
        _ => return Err(Failure::usage("too many pool names")),
    };
    let Ok((word, text)) = assignment(word) else {
        return Err(Failure::usage("missing value in property=value argument"));
    };
    let usable = open::find(name, call.around)?;
    let failed = |reason: &dyn std::fmt::Display| Action::SetProperty(name).failed(reason);
    let change = read(word, text).map_err(|error| failed(&error))?;
    if let (Change::CacheFile(path), Some(known)) = (&change, &usable.known) {
        check_cachefile(path.as_deref().unwrap_or_default()).map_err(|reason| failed(&reason))?;
        let mut known = known.clone();
        known.cachefile = path.clone();
        return state::known().enter(known).map_err(|error| NotOpen::from(error).into());
    }
    let session = open::open(usable, Intent::Write)?;
    if let Some(failure) = session.refusal(Action::SetProperty(name)) {
        return Err(failure);
    }
    session.command(&call.line);
    let pool = session.pool();
    let done = match change {
        Change::CacheFile(_) | Change::Nothing => Ok(()),
        Change::Feature(feature) => pool.enable_features(vec![feature]),
        Change::BootFilesystem(None) => pool.set_pool_properties(vec![("bootfs".into(), Value::Number(0))]),
        Change::BootFilesystem(Some(_)) if pool.info().config.version < pool::version::BOOT => {
            session.finish()?;
            return Err(failed(&"pool must be upgraded to support 'bootfs' property"));
        }
        Change::BootFilesystem(Some(dataset)) => match pool.dataset(&dataset) {
            Ok(info) => pool.set_pool_properties(vec![("bootfs".into(), Value::Number(info.id.0))]),
            Err(_) => {
                session.finish()?;
                return Err(failed(&PropertyError::BootName { name: dataset }));
            }
        },
        Change::Store(name, value) => pool.set_pool_properties(vec![(name, value)]),
        Change::Version(version) => {
            let at = pool.info().config.version;
            let refused = if version < at || !pool::version::is_known(version) {
                Some(PropertyError::PoolVersion { text: version.to_string() })
            } else {
                // Feature flags come by `zpool upgrade`.
                (at < version && version == VERSION_FEATURES).then_some(PropertyError::PoolOperation)
            };
            if let Some(refusal) = refused {
                session.finish()?;
                return Err(failed(&refusal));
            }
            if version == at { Ok(()) } else { pool.upgrade_version(version) }
        }
    };
    let done = done.map_err(|error| failed(&error));
    session.finish().and(done)
}

/// What `set` does.
enum Change {
    Nothing,
    Store(String, Value),
    Feature(&'static features::Feature),
    BootFilesystem(Option<String>),
    CacheFile(Option<String>),
    Version(u64),
}

fn read(word: &str, text: &str) -> Result<Change, PropertyError> {
    if let Some(name) = word.strip_prefix("feature@") {
        let unknown = || PropertyError::Unknown { name: word.to_owned() };
        let feature = features::by_name(name).ok_or_else(unknown)?;
        return match feature_word(word, text)? {
            true => Ok(Change::Feature(feature)),
            false => Err(PropertyError::FeatureDisable { name: word.to_owned() }),
        };
    }
    let Some(property) = props::parse(word) else {
        names::check_user_property(word, text)?;
        return Ok(Change::Store(word.to_owned(), Value::Text(text.to_owned())));
    };
    props::check_settable(property, Moment::Set)?;
    if property.name == "bootfs" {
        return Ok(Change::BootFilesystem(
            Some(text.to_owned()).filter(|text| !text.is_empty() && text != "-"),
        ));
    }
    if property.name == "compatibility" {
        let known =
            super::features::allowed(text).map_err(|_| PropertyError::Unknown { name: text.to_owned() });
        return known.map(|_| Change::Store(property.name.to_owned(), Value::Text(text.to_owned())));
    }
    Ok(match (property.name, property.parse_value(text)?) {
        ("version", Value::Number(version)) => Change::Version(version),
        ("cachefile", Value::Text(path)) => Change::CacheFile(Some(path).filter(|path| !path.is_empty())),
        ("multihost", Value::Number(1)) => return Err(PropertyError::NeedsHostId),
        ("altroot" | "readonly", _) => Change::Nothing,
        (name, value) => Change::Store(name.to_owned(), value),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(word: &str, text: &str) -> String {
        read(word, text).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn what_cannot_be_set_is_refused_in_known_words() {
        assert_eq!(refused("size", "5"), "'size' is readonly");
        assert_eq!(refused("bogus", "1"), "invalid property 'bogus'");
        assert_eq!(
            refused("feature@async_destroy", "disabled"),
            "property 'feature@async_destroy' can only be set to 'disabled' at creation time"
        );
        assert_eq!(refused("multihost", "on"), "requires a non-zero system hostid");
        assert_eq!(refused("comment", "hello"), "");
    }

    #[test]
    fn all_properties_are_asked_for_in_order() {
        let all = words("all", None).expect("known");
        assert_eq!(all.first().map(String::as_str), Some("size"));
        assert!(all.iter().any(|word| word == "feature@zstd_compress"));
        assert!(words("size,bogus", None).is_err());
    }
}
