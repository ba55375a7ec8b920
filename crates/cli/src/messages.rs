//! Messages in the words that OpenZFS uses: `cannot <action>: <reason>`.
//!
//! From:   errors of the crates below, turned into words here, once.
//! To:     standard error.

use std::fmt::{self, Display};

/// Reasons by condition. Those of names and properties are the texts of their own error types.
pub mod reason {
    pub const NO_DELIMITER: &str = "missing '@' delimiter in snapshot name";
    pub const BAD_CACHE: &str = "invalid or missing cache file";
    pub const ALREADY_EXISTS: &str = "dataset already exists";
    pub const BUSY: &str = "pool or dataset is busy";
    pub const CROSSES_POOLS: &str = "datasets must be within same pool";
    pub const DATASET_MISSING: &str = "dataset does not exist";
    pub const DATASET_READ_ONLY: &str = "dataset is read-only";
    pub const DEVICE_UNAVAILABLE: &str = "one or more devices is currently unavailable";
    pub const HAS_CHILDREN: &str = "filesystem has children";
    pub const INHERIT_NOT_HERE: &str = "property doesn't apply to datasets of this type";
    pub const INVALID_NAME: &str = "invalid name";
    pub const IO: &str = "I/O error";
    pub const MISSING_DATASET_NAME: &str = "missing dataset name";
    pub const LEGACY_MOUNTPOINT: &str = "legacy mountpoint";
    pub const NOT_A_FILESYSTEM: &str = "parent is not a filesystem";
    pub const NO_DESCENDANT: &str = "New dataset name cannot be a descendant of current dataset name";
    pub const NO_POOL_AVAILABLE: &str = "no such pool available";
    pub const NO_SUCH_POOL: &str = "no such pool";
    pub const OUT_OF_SPACE: &str = "out of space";
    pub const PARENT_MISSING: &str = "parent does not exist";
    pub const PERMISSION: &str = "permission denied";
    pub const POOL_EXISTS: &str = "pool already exists";
    pub const POOL_NAME_TAKEN: &str = "a pool with that name already exists";
    pub const POOL_READ_ONLY: &str = "pool is read-only";
    pub const POOL_UNAVAILABLE: &str = "pool is unavailable";
    pub const USED_ELSEWHERE: &str = "pool was previously in use from another system.";
    pub const WRONG_KIND: &str = "operation not applicable to datasets of this type";
}

/// The failed action; `Display` is `cannot …` up to the colon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action<'a> {
    Create(&'a str),
    AddTo(&'a str),
    Open(&'a str),
    Destroy(&'a str),
    SetProperty(&'a str),
    /// Property, dataset.
    Inherit(&'a str, &'a str),
    Rename(&'a str),
    RenameTo(&'a str),
    Promote(&'a str),
    RollBack(&'a str),
    Import(&'a str),
    /// Old name, new name.
    ImportAs(&'a str, &'a str),
    Export(&'a str),
    Sync(&'a str),
    Mount(&'a str),
    Unmount(&'a str),
    CreateSnapshot(&'a str),
    Upgrade(&'a str),
    Read(&'a str),
    Write(&'a str),
}

impl Display for Action<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, object) = match *self {
            Action::Create(name) => ("create", name),
            Action::AddTo(name) => ("add to", name),
            Action::Open(name) => ("open", name),
            Action::Destroy(name) => ("destroy", name),
            Action::SetProperty(name) => ("set property for", name),
            Action::Inherit(property, name) => return write!(f, "cannot inherit {property} for '{name}'"),
            Action::Rename(name) => ("rename", name),
            Action::RenameTo(name) => ("rename to", name),
            Action::Promote(name) => ("promote", name),
            Action::RollBack(name) => ("rollback to", name),
            Action::Import(name) => ("import", name),
            Action::ImportAs(name, new) => return write!(f, "cannot import '{name}' as '{new}'"),
            Action::Export(name) => ("export", name),
            Action::Sync(name) => ("sync", name),
            Action::Mount(name) => ("mount", name),
            Action::Unmount(name) => ("unmount", name),
            Action::CreateSnapshot(name) => ("create snapshot", name),
            Action::Upgrade(name) => ("upgrade", name),
            Action::Read(name) => ("read", name),
            Action::Write(name) => ("write", name),
        };
        write!(f, "cannot {verb} '{object}'")
    }
}

impl Action<'_> {
    /// The failure of this action for a reason: exit status 1.
    pub fn failed(self, reason: impl Display) -> Failure {
        Failure::refused(format!("{self}: {reason}"))
    }

    /// The failure of this action for an error. A denied permission gets OpenZFS's words for it.
    pub fn refused_by(self, error: &(dyn std::error::Error + 'static)) -> Failure {
        let mut causes = std::iter::successors(Some(error), |error| error.source());
        let forbids = |error: &std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied;
        match causes.any(|error| error.downcast_ref().is_some_and(forbids)) {
            true => self.failed(reason::PERMISSION).hint(error.to_string()),
            false => self.failed(error),
        }
    }
}

/// Why a command ends early, as its user sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The command line is wrong: this line, then the usage of the subcommand; exit status 2. The line may be
    /// empty when only the usage was asked for.
    Usage(String),
    /// The operation failed: these lines; exit status 1.
    Refused(Vec<String>),
    /// It ended with this exit status, and everything is printed.
    Ended(u8),
    /// Standard output is gone: say nothing more.
    PipeClosed,
}

impl Failure {
    pub fn usage(line: impl Into<String>) -> Failure {
        Failure::Usage(line.into())
    }

    pub fn refused(line: impl Into<String>) -> Failure {
        Failure::Refused(vec![plain(line.into())])
    }

    /// Adds a line of advice.
    pub fn hint(mut self, line: impl Into<String>) -> Failure {
        if let Failure::Refused(lines) = &mut self {
            lines.push(plain(line.into()));
        }
        self
    }
}

impl From<crate::args::ArgError> for Failure {
    fn from(error: crate::args::ArgError) -> Failure {
        Failure::Usage(error.to_string())
    }
}

impl From<crate::args::AssignError> for Failure {
    fn from(error: crate::args::AssignError) -> Failure {
        Failure::refused(error.to_string())
    }
}

impl From<crate::args::list::ListError> for Failure {
    fn from(error: crate::args::list::ListError) -> Failure {
        Failure::usage(error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Failure {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Failure::PipeClosed,
            _ => Failure::refused(format!("cannot write to standard output: {error}")),
        }
    }
}

/// A text in which errors of the system are worded as the C library does: Rust adds their numbers.
pub fn plain(text: impl Display) -> String {
    const NUMBER: &str = " (os error ";
    let mut text = text.to_string();
    while let Some(at) = text.find(NUMBER) {
        let Some(end) = text[at..].find(')') else { break };
        text.replace_range(at..=at + end, "");
    }
    text
}

/// The system's text without the number, starting in lower case like other messages.
pub fn io_words(error: &std::io::Error) -> String {
    let text = plain(error);
    let mut letters = text.chars();
    match letters.next() {
        Some(first) if letters.as_str().starts_with(|c: char| c.is_lowercase()) => {
            first.to_lowercase().collect::<String>() + letters.as_str()
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_system_come_without_their_numbers() {
        let error = |number| std::io::Error::from_raw_os_error(number);
        let both = format!("'/a': {}; '/b': {}", error(13), error(2));
        assert_eq!(plain(both), "'/a': Permission denied; '/b': No such file or directory");
        assert_eq!(plain("cut (os error "), "cut (os error ");
        let said = Action::Open("tank").refused_by(&error(13));
        assert_eq!(said, Failure::refused("cannot open 'tank': permission denied").hint("Permission denied"));
    }

    #[test]
    fn a_message_is_action_colon_reason() {
        let said = Action::Create("tank/a").failed(reason::ALREADY_EXISTS);
        assert_eq!(said, Failure::refused("cannot create 'tank/a': dataset already exists"));
        assert_eq!(
            Action::Inherit("compression", "tank/a@s").failed(reason::INHERIT_NOT_HERE),
            Failure::refused(
                "cannot inherit compression for 'tank/a@s': property doesn't apply to datasets of this type"
            )
        );
        let two = Action::Import("tank")
            .failed(reason::POOL_NAME_TAKEN)
            .hint("use the form 'zpool import <pool | id> <newpool>' to give it a new name");
        assert!(matches!(two, Failure::Refused(lines) if lines.len() == 2));
    }
}
