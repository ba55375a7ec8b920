//! Why a pool is not open, and the messages for it.

use std::path::{Path, PathBuf};

use pool::known::KnownError;
use server::{ClientError, Silence};

use crate::config::ConfigError;
use crate::messages::{Action, Failure, reason};
use crate::visit;

use super::pool_of;

/// Why a pool is not open.
#[derive(Debug, thiserror::Error)]
pub enum NotOpen {
    /// No pool of this name is imported (or found where `-d` points).
    #[error("no such pool")]
    Missing(String),
    /// No pool of this name is imported by this user, but one by another.
    #[error("{}", words(*.user, *.is_shared))]
    Foreign {
        /// The pool.
        name: String,
        /// Whose it is.
        user: u32,
        /// Other users may look at it.
        is_shared: bool,
    },
    /// A pool of this name is in use by way of `-d`, and not imported.
    #[error("no such pool")]
    Unlisted {
        /// The pool.
        name: String,
        /// One of its devices.
        device: PathBuf,
    },
    /// Several different pools of this name were found.
    #[error("more than one matching pool")]
    Ambiguous(String),
    /// Where `-d` points is nothing.
    #[error("cannot look for pools in '{}': {source}", place.display())]
    NoPlace {
        /// There.
        place: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file that `-d` names is no device of a pool.
    #[error("'{}' holds no pool{}", path.display(), why.as_ref().map(|why| format!(": {why}")).unwrap_or_default())]
    NoPool {
        /// The file.
        path: PathBuf,
        /// The reason that its partition table gives, if it has one.
        why: Option<String>,
    },
    /// Two copies of one device were found, and it is unknown which one is meant.
    #[error("'{}' and '{}' are copies of one device", .0.left_out.display(), .0.used.display())]
    Copies(pool::DeviceCopy),
    /// None of its devices is where it was.
    #[error("pool is unavailable")]
    Unavailable(String),
    /// It is there, but cannot be opened.
    #[error("{source}")]
    Failed {
        /// The pool.
        name: String,
        /// Why.
        source: pool::Error,
    },
    /// The server that holds it gives no answer.
    #[error("{source}")]
    Server {
        /// The pool.
        name: String,
        /// Why.
        source: ClientError,
    },
    /// A device of it does not answer its server.
    #[error("{silence}")]
    Silent {
        /// The pool.
        name: String,
        /// Which device.
        silence: Silence,
    },
    /// The file of known pools cannot be used.
    #[error(transparent)]
    State(#[from] KnownError),
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl NotOpen {
    /// The failure that nothing in the file at `path` is a device of a pool.
    pub fn no_pool(path: &Path) -> NotOpen {
        NotOpen::NoPool { path: path.to_path_buf(), why: pool::why_no_pool(path) }
    }

    /// The failure of opening the dataset `name`. A missing pool means a missing dataset.
    pub fn dataset(self, name: &str) -> Failure {
        match self {
            NotOpen::Missing(_) => Action::Open(name).failed(reason::DATASET_MISSING),
            NotOpen::Unlisted { device, .. } => {
                Action::Open(name).failed(reason::DATASET_MISSING).hint(how_to_reach(pool_of(name), &device))
            }
            other => other.into(),
        }
    }
}

impl From<NotOpen> for Failure {
    fn from(error: NotOpen) -> Failure {
        match &error {
            NotOpen::State(state) => {
                Failure::refused(format!("cannot use the list of imported pools: {state}"))
            }
            NotOpen::NoPlace { .. } | NotOpen::NoPool { .. } => Failure::refused(error.to_string()),
            NotOpen::Copies(_) => {
                Failure::refused(format!("cenote: {error}")).hint("name only one of them with -d")
            }
            NotOpen::Config(error) => Failure::refused(format!("bad configuration: {error}")),
            NotOpen::Unlisted { name, device } => {
                Action::Open(name).failed(&error).hint(how_to_reach(name, device))
            }
            NotOpen::Ambiguous(name) => Action::Open(name).failed(&error).hint("name one image with -d"),
            NotOpen::Missing(name)
            | NotOpen::Foreign { name, .. }
            | NotOpen::Unavailable(name)
            | NotOpen::Failed { name, .. }
            | NotOpen::Silent { name, .. }
            | NotOpen::Server { name, .. } => Action::Open(name).failed(&error),
        }
    }
}

/// How commands reach a pool that is in use and not imported.
pub fn how_to_reach(name: &str, device: &Path) -> String {
    let device = device.display();
    format!("'{name}' is in use without being imported: 'cenote -d {device} …' reaches it")
}

/// The message about a pool of another user.
fn words(user: u32, is_shared: bool) -> String {
    match is_shared {
        true => {
            format!("the pool belongs to user {user}, and other users can only run {} on it", visit::ANSWERED)
        }
        false => format!("the pool belongs to user {user}, and only that user's commands reach its server"),
    }
}
