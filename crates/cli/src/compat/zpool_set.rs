//! `zpool set`.

use super::Call;
use super::zpool_props::{check_cachefile, feature_word};
use super::zpool_vdev_props;
use crate::args::assignment;
use crate::command::{Command, Run, Targets};
use crate::messages::{Action, Failure};
use crate::open::{self, Intent, NotOpen};
use crate::state;
use format::config::VERSION_FEATURES;
use format::features;
use pool::props::pool::{self as props, Moment};
use pool::props::{PropertyError, Value, names};

/// `zpool set`.
pub static COMMAND: Command = Command {
    name: "set",
    about: "sets a property",
    syntax: &["set PROPERTY=VALUE POOL", "set VDEVPROPERTY=VALUE POOL VDEV"],
    examples: &["zpool set comment=photos tank", "zpool set autotrim=on tank"],
    targets: Targets::Second,
    run: Run::Here(|call, _| run(call)),
    ..Command::ZPOOL
};

/// Runs `zpool set`.
///
/// # Errors
/// The arguments are wrong, or the value is refused. Then nothing was changed.
fn run(call: &Call) -> Result<(), Failure> {
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

/// The change that `set` makes.
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
        ("multihost", Value::Number(1)) if storage::host::hostid() == 0 => {
            return Err(PropertyError::NeedsHostId);
        }
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
    fn invalid_properties_are_refused_in_the_words_of_openzfs() {
        assert_eq!(refused("size", "5"), "'size' is readonly");
        assert_eq!(refused("bogus", "1"), "invalid property 'bogus'");
        assert_eq!(
            refused("feature@async_destroy", "disabled"),
            "property 'feature@async_destroy' can only be set to 'disabled' at creation time"
        );
        assert_eq!(refused("comment", "hello"), "");
    }
}
