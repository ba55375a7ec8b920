//! Configuration: the tunables of every pool that is opened.
//!
//! From:   the environment, the user's file, the system's file; the first that names a tunable decides.
//! To:     [`pool::Options`].

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use pool::Options;
use pool::tune::{self, Tunable, TuneError};

/// The file of all users.
const SYSTEM: &str = "/etc/cenote/config.toml";

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The default: nothing else was set.
    Default,
    /// A file.
    File(PathBuf),
    /// An environment variable.
    Environment(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Default => f.write_str("default"),
            Origin::File(path) => write!(f, "{}", path.display()),
            Origin::Environment(name) => f.write_str(name),
        }
    }
}

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("cannot read '{}': {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The user's file cannot be replaced.
    #[error("cannot write '{}': {source}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is not TOML.
    #[error("{}: {why}", .path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where and why.
        why: String,
    },
    /// A value that its tunable does not take.
    #[error("{origin}: {source}")]
    Value {
        /// Source of the value.
        origin: Origin,
        /// Why.
        source: TuneError,
    },
}

/// All values with their sources. Later values win.
#[derive(Debug, Default)]
pub struct Config {
    said: Vec<(Origin, &'static Tunable, String)>,
}

/// The user's own file.
#[must_use]
pub fn user_file() -> PathBuf {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = absolute("XDG_CONFIG_HOME")
        .or_else(|| Some(absolute("HOME")?.join(".config")))
        .unwrap_or_else(|| "/root/.config".into());
    folder.join("cenote/config.toml")
}

/// Whether the system does not show if the file exists.
fn hidden(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// Options for opening a pool, as configured.
///
/// # Errors
/// A file that cannot be read, or a value that is no good.
pub fn options() -> Result<Options, ConfigError> {
    let mut options = Options::default();
    Config::load()?.apply(&mut options);
    Ok(options)
}

/// Whether other users may look at root's pools: yes, unless a file says `visitors = false` in the section `[server]`. A
/// file that cannot be read lets nobody look.
#[must_use]
pub fn lets_others_look() -> bool {
    let says = |path: PathBuf| match fs::read_to_string(path) {
        Ok(text) => lets_look(&text),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    [PathBuf::from(SYSTEM), user_file()].into_iter().all(says)
}

/// Whether one configuration file lets visitors look.
fn lets_look(text: &str) -> bool {
    let Ok(table) = text.parse::<toml::Table>() else { return false };
    let said = table.get("server").and_then(|section| section.get("visitors"));
    said.is_none_or(|value| value.as_bool() == Some(true))
}

impl Config {
    /// Reads files and environment.
    ///
    /// # Errors
    /// A file that cannot be read, or a value that is no good.
    pub fn load() -> Result<Config, ConfigError> {
        let mut config = Config::default();
        for path in [PathBuf::from(SYSTEM), user_file()] {
            match fs::read_to_string(&path) {
                Ok(text) => config.add_file(&path, &text)?,
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
                // A folder without access belongs to another user (HOME after a change of user).
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied && hidden(&path) => {}
                Err(source) => return Err(ConfigError::File { path, source }),
            }
        }
        for tunable in tune::ALL {
            let name = format!("CENOTE_{}", tunable.name.to_uppercase());
            if let Some(text) = std::env::var_os(&name) {
                config.say(Origin::Environment(name), tunable, text.to_string_lossy().into_owned())?;
            }
        }
        Ok(config)
    }

    fn add_file(&mut self, path: &Path, text: &str) -> Result<(), ConfigError> {
        let path = path.to_path_buf();
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| ConfigError::Syntax {
            path: path.clone(),
            why: error.to_string().trim_end().to_owned(),
        })?;
        for (name, value) in table {
            let text = match value {
                toml::Value::Integer(number) => number.to_string(),
                toml::Value::String(text) => text,
                // Sections belong to others.
                toml::Value::Table(_) => continue,
                other => other.to_string(),
            };
            let origin = Origin::File(path.clone());
            let tunable =
                tune::find(&name).map_err(|source| ConfigError::Value { origin: origin.clone(), source })?;
            self.say(origin, tunable, text)?;
        }
        Ok(())
    }

    fn say(&mut self, origin: Origin, tunable: &'static Tunable, text: String) -> Result<(), ConfigError> {
        if let Err(source) = tunable.parse(&text) {
            return Err(ConfigError::Value { origin, source });
        }
        self.said.push((origin, tunable, text));
        Ok(())
    }

    /// Puts the configured values into `options`.
    pub fn apply(&self, options: &mut Options) {
        for (_, tunable, text) in &self.said {
            tunable.set(options, text).expect("it was parsed when it was said");
        }
    }

    /// The source that sets `tunable`.
    #[must_use]
    pub fn origin(&self, tunable: &Tunable) -> Origin {
        let mut said = self.said.iter().rev();
        said.find(|(_, said, _)| said.name == tunable.name)
            .map_or(Origin::Default, |(origin, ..)| origin.clone())
    }
}

/// Writes a value into the user's file. The rest of the file stays as it is.
///
/// # Errors
/// The file cannot be read or replaced, or is no TOML.
pub fn keep(tunable: &Tunable, value: u64) -> Result<PathBuf, ConfigError> {
    let path = user_file();
    let failed = |source| ConfigError::Write { path: path.clone(), source };
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(source) => return Err(ConfigError::File { path, source }),
    };
    Config::default().add_file(&path, &text)?;
    let new = with_value(&text, tunable.name, &tunable.toml(value));
    let folder = path.parent().expect("the file lies in a folder");
    fs::create_dir_all(folder).map_err(failed)?;
    let other = path.with_extension(format!("{}.new", std::process::id()));
    let written = fs::File::create(&other)
        .and_then(|mut file| file.write_all(new.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&other, &path));
    written.map_err(failed)?;
    Ok(path)
}

/// `text` with `name = value` among the keys before the first section.
fn with_value(text: &str, name: &str, value: &str) -> String {
    let line = format!("{name} = {value}");
    let mut lines: Vec<&str> = text.lines().collect();
    let end = lines.iter().position(|l| l.trim_start().starts_with('[')).unwrap_or(lines.len());
    let is_it = |l: &&str| {
        let rest = l.trim_start().strip_prefix(name);
        rest.is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    match lines[..end].iter().position(is_it) {
        Some(at) => lines[at] = &line,
        None => lines.insert(end, &line),
    }
    lines.join("\n") + "\n"
}

/// Whether an environment variable is true, as OpenZFS reads it: a positive number, or a word that begins with `yes` or
/// `on`.
pub fn is_set(name: &str) -> bool {
    let Ok(value) = std::env::var(name) else { return false };
    let begins = |word: &str| value.get(..word.len()).is_some_and(|part| part.eq_ignore_ascii_case(word));
    value.parse::<u64>().is_ok_and(|number| number > 0) || begins("yes") || begins("on")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_later_setting_counts() {
        let mut config = Config::default();
        let text = "zfs_dirty_data_max = \"64M\"\nzfs_txg_timeout = 9\n[other]\nx = 1\n";
        config.add_file(Path::new("/sys.toml"), text).expect("good");
        config.add_file(Path::new("/user.toml"), "zfs_txg_timeout = 7").expect("good");
        let mut options = Options::default();
        config.apply(&mut options);
        assert_eq!((options.dirty_max, options.txg_timeout), (64 << 20, 7));
        let origin = |name| config.origin(tune::find(name).expect("known")).to_string();
        assert_eq!(origin("zfs_txg_timeout"), "/user.toml");
        assert_eq!(origin("zfs_dirty_data_max"), "/sys.toml");
        assert_eq!(origin("zfs_arc_max"), "default");
    }

    #[test]
    fn other_users_may_read_unless_a_file_forbids_it_or_is_invalid() {
        for (text, looks) in [
            ("", true),
            ("zfs_txg_timeout = 9", true),
            ("[server]\nvisitors = true", true),
            ("[server]\nvisitors = false", false),
            ("[server]\nvisitors = \"off\"", false),
            ("[server", false),
        ] {
            assert_eq!(lets_look(text), looks, "{text}");
        }
    }

    #[test]
    fn errors_name_their_file() {
        for (text, said) in [
            ("zfs_nosuch = 1", "/c.toml: there is no tunable 'zfs_nosuch'"),
            ("zfs_txg_timeout = 0", "/c.toml: zfs_txg_timeout is between 1 and 86400 seconds"),
            ("zfs_arc_max = true", "/c.toml: 'true' is not a number of bytes for zfs_arc_max"),
        ] {
            let error = Config::default().add_file(Path::new("/c.toml"), text).expect_err(text);
            assert_eq!(error.to_string(), said);
        }
        assert!(Config::default().add_file(Path::new("/c.toml"), "=").is_err());
    }

    #[test]
    fn a_value_is_replaced_where_it_stands_and_added_before_the_first_section() {
        let text = "# mine\nzfs_arc_max = 5 # small\n[s]\nzfs_arc_max = 1\n";
        assert_eq!(with_value(text, "zfs_arc_max", "7"), "# mine\nzfs_arc_max = 7\n[s]\nzfs_arc_max = 1\n");
        assert_eq!(with_value("[s]\n", "zfs_arc_max", "7"), "zfs_arc_max = 7\n[s]\n");
        assert_eq!(with_value("", "zfs_arc_max", "7"), "zfs_arc_max = 7\n");
    }
}
