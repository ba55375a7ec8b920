//! `-o` and `-x` of `zfs receive`: properties that replace received ones, and received ones that are ignored.

use format::Guid;
use format::NvList;
use format::stream::{Begin, feature};
use pool::props::dataset as props;
use pool::props::names;
use pool::props::{Access, DatasetKind, Property, PropertyError, Value};
use pool::{Pool, ReceiveOptions};

use super::dataset_values;
use super::zfs_receive_options::Options;
use super::zfs_receive_words::cannot;
use crate::args::{AssignError, Assignments};
use crate::messages::{Action, Failure, reason};

/// The parsed words of `-o` and `-x`, before the checks against a pool.
pub struct Words {
    pub(super) own: Assignments,
    excluded: Vec<String>,
}

/// Changes against the stream's properties.
#[derive(Default)]
pub struct Overrides {
    /// `-o`, for the top of a package, or for the only dataset.
    local: Vec<(String, Value)>,
    /// `-x`.
    excluded: Vec<String>,
    /// `-o origin=`.
    origin: Option<String>,
    /// The properties of `-o` and `-x` that are about encryption, and whether each is set.
    of_keys: Vec<(&'static str, bool)>,
}

/// Properties that say how a dataset is encrypted.
const ENCRYPTION: [&str; 3] = ["encryption", "keyformat", "pbkdf2iters"];

fn canonical(word: &str) -> Option<&'static str> {
    props::parse(word).map(|property| property.name)
}

/// Whether a dataset may have another value of this property than the sender's, or none. Read-only properties, and
/// those that decide how contents are stored, cannot differ.
fn may_differ(property: &Property) -> bool {
    match property.access {
        Access::ReadOnly => property.name == "origin",
        Access::CreateOnly => ENCRYPTION.contains(&property.name),
        _ => !["version", "volsize"].contains(&property.name),
    }
}

fn refused(why: impl std::fmt::Display) -> Failure {
    Failure::refused(format!("cannot receive: {why}"))
}

impl Words {
    /// Reads the options.
    ///
    /// # Errors
    /// A word twice, or one that names no property.
    pub fn of(options: &Options) -> Result<Words, Failure> {
        let usage = |error: AssignError| Failure::usage(error.to_string());
        let own =
            Assignments::collect(options.properties.iter().map(String::as_str), canonical).map_err(usage)?;
        let mut excluded: Vec<String> = Vec::new();
        for word in &options.left_out {
            if word.contains('=') {
                return Err(Failure::usage("invalid property name"));
            }
            let name = canonical(word).unwrap_or(word);
            if own.get(name).is_some() || excluded.iter().any(|other| other == name) {
                return Err(usage(AssignError::Twice(name.to_owned())));
            }
            match props::parse(word) {
                Some(property) if !may_differ(property) => {
                    return Err(refused(PropertyError::Unknown { name: property.name.to_owned() }));
                }
                None if !names::is_user_property(word) => {
                    return Err(refused(PropertyError::Unknown { name: word.to_owned() }));
                }
                _ => excluded.push(name.to_owned()),
            }
        }
        Ok(Words { own, excluded })
    }

    /// Judges the values as for a new file system of `pool`.
    ///
    /// # Errors
    /// A value that it cannot have, an origin that is not there.
    pub fn judge(self, pool: &Pool) -> Result<Overrides, Failure> {
        let given: Vec<(&str, &str)> = self.own.iter().filter(|(name, _)| *name != "origin").collect();
        for property in given.iter().filter_map(|(name, _)| props::parse(name)) {
            if !may_differ(property) {
                property.check_settable(DatasetKind::Filesystem, false).map_err(refused)?;
                return Err(refused(PropertyError::Unknown { name: property.name.to_owned() }));
            }
        }
        let enabled = dataset_values::enabled_in(pool);
        let made = dataset_values::creation(&given, None, &enabled).map_err(refused)?;
        if made.key_words.ask_for_something() {
            return Err(refused(
                "encrypting what is received with another key is not supported yet".to_owned(),
            ));
        }
        if let Some((name, _)) = made.quotas.first() {
            // To set it would change what was received, and no further stream would fit.
            return Err(refused(format!("'{name}' is kept among the files; set it when they are received")));
        }
        let origin = self.own.get("origin").map(|name| match pool.dataset(name) {
            Ok(info) if info.is_snapshot() => Ok(info.name),
            Ok(_) => Err(refused(format!("'{name}' is not a snapshot"))),
            Err(_) => Err(Action::Open(name).failed(reason::DATASET_MISSING)),
        });
        let is_given = |name: &str| given.iter().any(|(given, _)| *given == name);
        let is_named = |name: &str| is_given(name) || self.excluded.iter().any(|other| other == name);
        let of_keys = ENCRYPTION.into_iter().filter(|name| is_named(name));
        let of_keys = of_keys.map(|name| (name, is_given(name))).collect();
        Ok(Overrides { local: made.local, excluded: self.excluded, origin: origin.transpose()?, of_keys })
    }
}

impl Overrides {
    /// Refuses options that a raw stream, or an increment, does not allow.
    ///
    /// # Errors
    /// In OpenZFS's words.
    pub fn check_raw(&self, begin: &Begin) -> Result<(), Failure> {
        let is_raw = begin.features & feature::RAW != 0;
        let bad = |name: &str, why: &str| {
            Err(Failure::refused(format!("{}: encryption property '{name}' cannot be {why}", cannot(begin))))
        };
        match self.of_keys.iter().find(|(_, is_set)| is_raw || *is_set && begin.fromguid.0 != 0) {
            None => Ok(()),
            Some((name, _)) if is_raw => bad(name, "set or excluded for raw streams."),
            Some((name, _)) => bad(name, "set for incremental streams."),
        }
    }

    /// Whether a snapshot here was named to build upon.
    pub fn has_origin(&self) -> bool {
        self.origin.is_some()
    }

    /// How the stream of the snapshot `guid` is received; `list` is that of its package. What `-o` sets at the top of a
    /// package is inherited below it.
    pub fn options(
        &self,
        options: &Options,
        list: Option<&NvList>,
        guid: Guid,
        is_top: bool,
    ) -> ReceiveOptions {
        let mut inherited = self.excluded.clone();
        if !is_top {
            inherited.extend(self.local.iter().map(|(name, _)| name.clone()));
        }
        ReceiveOptions {
            force: options.force,
            local: if is_top { self.local.clone() } else { Vec::new() },
            received: list.and_then(|list| stream::properties_of(list, guid, DatasetKind::Filesystem)),
            inherited,
            of_snapshot: list.map(|list| stream::snapshot_properties_of(list, guid)).unwrap_or_default(),
            dry_run: options.dry_run,
            resumable: options.resumable,
            origin: self.origin.clone(),
        }
    }
}
