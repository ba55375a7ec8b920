//! The pool that the options `-o` and `-R` of `zpool create` describe.

use crate::args::Assignments;
use format::config::VERSION_FEATURES;
use format::features::{self, Feature};
use pool::props::pool::{self as props, Moment};
use pool::props::{Property, PropertyError, Value, names};

/// The options of `create`, read and judged as far as no device must be looked at.
pub(super) struct Wanted {
    pub ashift: Option<u32>,
    pub version: u64,
    pub features: Vec<&'static Feature>,
    pub stored: Vec<(String, Value)>,
    pub comment: Option<String>,
    pub compatibility: Option<String>,
    pub altroot: Option<String>,
    pub cachefile: Option<String>,
}

/// Why options are refused: as the reason of the action, or as a line of its own.
pub(super) enum Refused {
    Reason(String),
    Line(String),
}

/// Refuses properties that contradict `version`.
fn check_together(own: &Assignments) -> Result<(), Refused> {
    if !own.iter().any(|(name, _)| name == "version") {
        return Ok(());
    }
    for (name, value) in own.iter() {
        let line = match name {
            "compatibility" if value != "legacy" => {
                "when 'version' is specified, the 'compatibility' feature may only be set to 'legacy'"
            }
            name if name.starts_with("feature@") => {
                "'feature@' and 'version' properties cannot be specified together"
            }
            _ => continue,
        };
        return Err(Refused::Line(line.to_owned()));
    }
    Ok(())
}

pub(super) fn read_options(own: &Assignments, none: bool, altroot: Option<&str>) -> Result<Wanted, Refused> {
    check_together(own)?;
    let reason = |error: &dyn std::fmt::Display| Refused::Reason(error.to_string());
    let mut wanted = Wanted {
        ashift: None,
        version: VERSION_FEATURES,
        features: Vec::new(),
        stored: Vec::new(),
        comment: None,
        compatibility: None,
        altroot: altroot.map(str::to_owned),
        cachefile: None,
    };
    let mut switched: Vec<(&'static Feature, bool)> = Vec::new();
    for (name, value) in own.iter() {
        if let Some(feature) = name.strip_prefix("feature@") {
            let Some(feature) = features::by_name(feature) else {
                return Err(Refused::Reason(format!("feature '{feature}' unsupported by kernel")));
            };
            switched.push((feature, super::zpool_props::feature_word(name, value).map_err(|e| reason(&e))?));
            continue;
        }
        let Some(property) = props::parse(name) else {
            names::check_user_property(name, value).map_err(|error| reason(&error))?;
            wanted.stored.push((name.to_owned(), Value::Text(value.to_owned())));
            continue;
        };
        props::check_settable(property, Moment::Create).map_err(|error| reason(&error))?;
        wanted.take(name, value, property)?;
    }
    if wanted.version < VERSION_FEATURES {
        return Ok(wanted);
    }
    wanted.features = features_of(&wanted, none, switched)?;
    Ok(wanted)
}

impl Wanted {
    /// Takes the value of a property.
    fn take(&mut self, name: &str, value: &str, property: &Property) -> Result<(), Refused> {
        let reason = |error: &dyn std::fmt::Display| Refused::Reason(error.to_string());
        if name == "compatibility" {
            self.compatibility = Some(value.to_owned()).filter(|value| value != "off" && !value.is_empty());
            return Ok(());
        }
        let parsed = property.parse_value(value).map_err(|error| reason(&error))?;
        match (name, parsed) {
            ("ashift", Value::Number(0)) => {}
            ("ashift", Value::Number(shift)) => {
                self.ashift = Some(shift as u32);
                self.stored.push(("ashift".to_owned(), Value::Number(shift)));
            }
            ("version", Value::Number(version)) => {
                if !pool::version::is_known(version) {
                    return Err(reason(&PropertyError::PoolVersion { text: value.to_owned() }));
                }
                self.version = version;
            }
            ("comment", Value::Text(text)) => self.comment = Some(text).filter(|text| !text.is_empty()),
            ("altroot", Value::Text(text)) => self.altroot = Some(text),
            ("cachefile", Value::Text(text)) => {
                super::zpool_props::check_cachefile(&text).map_err(Refused::Reason)?;
                self.cachefile = Some(text).filter(|text| !text.is_empty());
            }
            ("bootfs", _) => {
                return Err(Refused::Reason("property 'bootfs' can only be set on an existing pool".into()));
            }
            ("multihost", Value::Number(1)) if storage::host::hostid() == 0 => {
                return Err(reason(&PropertyError::NeedsHostId));
            }
            (name, value) => self.stored.push((name.to_owned(), value)),
        }
        Ok(())
    }
}

/// The features of the new pool: those of its compatibility sets unless `none`, and those that were switched on or off.
fn features_of(
    wanted: &Wanted,
    none: bool,
    switched: Vec<(&'static Feature, bool)>,
) -> Result<Vec<&'static Feature>, Refused> {
    let compatibility = wanted.compatibility.as_deref().unwrap_or("off");
    let allowed = super::features::allowed(compatibility)
        .map_err(|name| Refused::Line(format!("Error: could not read/parse feature file(s): {name} ")))?;
    let off = |feature: &Feature| switched.iter().any(|(other, on)| !on && other.name == feature.name);
    let mut features: Vec<&Feature> = match none {
        true => Vec::new(),
        false => allowed.into_iter().filter(|feature| !off(feature)).collect(),
    };
    for (feature, on) in switched {
        if on && !features.iter().any(|other| other.name == feature.name) {
            features.push(feature);
        }
    }
    Ok(features)
}
