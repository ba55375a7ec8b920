//! Finding and opening pools for one command.
//!
//! From:   the name of a dataset or pool as typed, and what the command means to do.
//! To:     a [`Session`]: the open pool, let go of by [`Session::finish`].
//!
//! A pool is *imported* when it stands in the file of known pools. No process holds it between commands: each
//! opens it, does its work, and leaves it exported on disk. Pools found where the option `-d` points are used
//! without being imported, and a command that only reads never writes to them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pool::known::{Known, KnownError, KnownPool};
use pool::{Found, Options, Pool};

use crate::Surroundings;
use crate::config::{self, ConfigError};
use crate::messages::{Action, Failure, reason};

/// Bytes of records that a command keeps in memory which reads everything once.
const SURVEY_CACHE: u64 = 64 << 20;

/// What a command means to do with a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Nothing is written, not even that the pool was open.
    Read,
    /// As [`Intent::Read`], and everything is read about once: little is kept in memory.
    Survey,
    /// Datasets, properties or files are changed.
    Write,
}

/// Why a pool is not open.
#[derive(Debug, thiserror::Error)]
pub enum NotOpen {
    /// No pool of this name is imported (or found where `-d` points).
    #[error("no such pool")]
    Missing(String),
    /// Several different pools of this name were found.
    #[error("more than one matching pool")]
    Ambiguous(String),
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
    /// The file of known pools cannot be used.
    #[error(transparent)]
    State(#[from] KnownError),
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl NotOpen {
    /// The failure of opening the dataset `name`: that its pool is missing means that it is.
    pub fn dataset(self, name: &str) -> Failure {
        match self {
            NotOpen::Missing(_) => Action::Open(name).failed(reason::DATASET_MISSING),
            other => other.into(),
        }
    }
}

impl From<NotOpen> for Failure {
    fn from(error: NotOpen) -> Failure {
        match &error {
            NotOpen::State(state) => {
                Failure::refused(format!("cannot read the list of imported pools: {state}"))
            }
            NotOpen::Config(error) => Failure::refused(format!("bad configuration: {error}")),
            NotOpen::Ambiguous(name) => Action::Open(name).failed(&error).hint("name one image with -d"),
            NotOpen::Missing(name) | NotOpen::Unavailable(name) | NotOpen::Failed { name, .. } => {
                Action::Open(name).failed(&error)
            }
        }
    }
}

/// An open pool for the length of one command.
pub struct Session {
    pool: Pool,
    /// How it is imported; `None` if it was found through `-d`.
    pub known: Option<KnownPool>,
    /// Where its devices are, by leaf guid.
    pub devices: BTreeMap<u64, PathBuf>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({})", self.pool.name())
    }
}

impl Session {
    /// The open pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Notes the command for the pool's history; it is written with the first change.
    pub fn command(&self, line: &str) {
        self.pool.set_command(line);
    }

    /// The pool itself, for commands that end it in another way than [`Session::finish`].
    pub fn into_pool(self) -> Pool {
        self.pool
    }

    /// Why the pool cannot be changed, in the words of OpenZFS and, if it was not asked for, why.
    pub fn refusal(&self, action: Action<'_>) -> Option<Failure> {
        let why = self.pool.read_only()?;
        let failure = action.failed(reason::POOL_READ_ONLY);
        let asked = self.known.as_ref().is_some_and(|known| known.read_only);
        Some(if asked {
            failure
        } else {
            failure.hint(format!("cenote opens this pool for reading only: {why}"))
        })
    }

    /// Writes everything and leaves the pool importable. A session that was only read from writes nothing.
    ///
    /// # Errors
    /// What was not written yet could not be; the pool is safe as of its last sync.
    pub fn finish(self) -> Result<(), Failure> {
        let name = self.pool.name();
        self.pool.forget_command();
        self.pool.export().map_err(|error| Action::Write(&name).failed(error))
    }
}

/// The name of the pool that a dataset, snapshot or bookmark belongs to.
pub fn pool_of(name: &str) -> &str {
    name.split(['/', '@', '#']).next().unwrap_or(name)
}

/// The file of known pools of this user.
pub fn known() -> Known {
    let folder = match std::env::var_os("CENOTE_STATE_DIR").filter(|dir| !dir.is_empty()) {
        Some(folder) => PathBuf::from(folder),
        None if rustix::process::geteuid().is_root() => PathBuf::from("/var/lib/cenote"),
        None => {
            let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/".into()));
            let state =
                std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
            state.unwrap_or_else(|| home().join(".local/state")).join("cenote")
        }
    };
    Known::new(folder)
}

/// A pool that commands may use: imported, or found where `-d` points.
#[derive(Clone, Debug)]
pub struct Usable {
    /// The name it goes by.
    pub name: String,
    /// How it is imported, if it is.
    pub known: Option<KnownPool>,
    /// What its devices say, as far as they are there.
    pub found: Option<Found>,
}

/// Every usable pool, by name.
///
/// # Errors
/// The file of known pools cannot be read.
pub fn usable(around: &Surroundings) -> Result<Vec<Usable>, NotOpen> {
    let mut all: Vec<Usable> = if around.search.is_empty() {
        known().read()?.into_iter().map(seek).collect()
    } else {
        let found = pool::discover(&around.search).into_iter();
        found
            .map(|found| Usable { name: found.config.name.clone(), known: None, found: Some(found) })
            .collect()
    };
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// Looks for the devices of an imported pool where they were last.
fn seek(known: KnownPool) -> Usable {
    let found = pool::discover(&known.devices).into_iter().find(|found| found.config.pool_guid == known.guid);
    Usable { name: known.name.clone(), known: Some(known), found }
}

/// The usable pool called `name`.
///
/// # Errors
/// [`NotOpen::Missing`], [`NotOpen::Ambiguous`], or the file of known pools cannot be read.
pub fn find(name: &str, around: &Surroundings) -> Result<Usable, NotOpen> {
    let missing = || NotOpen::Missing(name.to_owned());
    if around.search.is_empty() {
        let known = known().read()?.into_iter().find(|pool| pool.name == name);
        return known.map(seek).ok_or_else(missing);
    }
    let mut matching = usable(around)?.into_iter().filter(|pool| pool.name == name);
    let first = matching.next().ok_or_else(missing)?;
    match matching.next() {
        None => Ok(first),
        Some(_) => Err(NotOpen::Ambiguous(name.to_owned())),
    }
}

/// Opens a usable pool.
///
/// # Errors
/// [`NotOpen::Unavailable`], or [`NotOpen::Failed`] with the reason.
pub fn open(usable: Usable, intent: Intent) -> Result<Session, NotOpen> {
    let Usable { name, known, found } = usable;
    let Some(found) = found else { return Err(NotOpen::Unavailable(name)) };
    let forced = known.as_ref().is_some_and(|known| known.read_only);
    let configured = config::options()?;
    let options = Options {
        read_only: intent != Intent::Write || forced,
        cache_bytes: configured.cache_bytes.min(if intent == Intent::Survey {
            SURVEY_CACHE
        } else {
            u64::MAX
        }),
        altroot: known.as_ref().and_then(|known| known.altroot.clone()),
        new_name: (found.config.name != name).then(|| name.clone()),
        ..configured
    };
    match Pool::import(&found, options) {
        Ok(pool) => {
            // What a crash left in the intent logs comes first. A log that cannot be replayed keeps its own dataset from
            // being changed, and whoever opens that is told why; it is no reason to refuse the others.
            let _ = zpl::replay_logs(&pool);
            Ok(Session { pool, known, devices: found.devices })
        }
        Err(source) => Err(NotOpen::Failed { name, source }),
    }
}

/// Opens the pool of a dataset (or a pool by its name) for reading or writing.
///
/// # Errors
/// See [`NotOpen`]; [`NotOpen::dataset`] turns it into the words of `zfs`.
pub fn open_for(name: &str, around: &Surroundings, intent: Intent) -> Result<Session, NotOpen> {
    open(find(pool_of(name), around)?, intent)
}

/// `path` with nothing relative in it, for the file of known pools.
pub fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

/// The pools that one command uses, each opened once.
#[derive(Debug)]
pub struct Sessions<'a> {
    around: &'a Surroundings,
    intent: Intent,
    command: String,
    open: BTreeMap<String, Session>,
}

impl<'a> Sessions<'a> {
    /// None yet. `command` enters the history of those that are changed.
    pub fn new(around: &'a Surroundings, intent: Intent, command: &str) -> Sessions<'a> {
        Sessions { around, intent, command: command.to_owned(), open: BTreeMap::new() }
    }

    /// The pool of a dataset (or a pool by its name).
    ///
    /// # Errors
    /// As [`open_for`].
    pub fn of(&mut self, name: &str) -> Result<&Session, NotOpen> {
        let pool = pool_of(name);
        if !self.open.contains_key(pool) {
            let session = open_for(pool, self.around, self.intent)?;
            session.command(&self.command);
            self.open.insert(pool.to_owned(), session);
        }
        Ok(&self.open[pool])
    }

    /// Names of all usable pools.
    ///
    /// # Errors
    /// As [`usable`].
    pub fn names(&self) -> Result<Vec<String>, NotOpen> {
        Ok(usable(self.around)?.into_iter().map(|pool| pool.name).collect())
    }

    /// Lets all pools go.
    ///
    /// # Errors
    /// The first that could not be written.
    pub fn finish(self) -> Result<(), Failure> {
        self.open.into_values().map(Session::finish).fold(Ok(()), Result::and)
    }
}
