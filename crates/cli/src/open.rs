//! Finding and opening pools for one command.
//!
//! From:   the name of a dataset or pool as typed, and what the command means to do.
//! To:     a [`Session`]: the open pool, which [`Session::finish`] closes.
//!
//! A pool is *imported* when it stands in the file of known pools. No process holds it between commands: each
//! opens it, does its work, and leaves it exported on disk. Pools found where the option `-d` points are used
//! without being imported, and a command that only reads never writes to them.

mod foreign;
mod gone;
mod lease;
mod mounted;
mod not_open;
pub mod silent;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use format::Guid;
use pool::known::{KnownError, KnownPool};
use pool::props::names;
use pool::{Found, MissingLogs, Options, Pool};
use server::mountinfo::{Mounted, NOXATTR};
use server::{Client, Counters, Figures, Live, Runtime, visitors};
use storage::host::backing_file;

use crate::around::Surroundings;
use crate::config::{self, ConfigError};
use crate::connect;
use crate::front_ends::MOUNTER;
use crate::messages::{Action, Failure, reason};
use crate::state;

pub use foreign::{missing, no_such_pool, remark as remark_foreign};
pub use gone::{figures_of, is_gone};
pub use lease::{held, is_held};
use lease::{lease, note_keys};
use mounted::{Served, mounts_of};
pub use mounted::{dataset_of, mounted, mounted_by};
pub use not_open::NotOpen;

/// Bytes of records that a command keeps in memory which reads everything once.
const SURVEY_CACHE: u64 = 64 << 20;

/// The kind of access that a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// Read only; not even the use of the pool is recorded. The last writes of another process may be missing, but the
    /// changes of finished commands are there.
    Read,
    /// As [`Intent::Read`], for files: includes data that programs wrote into a mount and that the kernel still holds.
    Files,
    /// As [`Intent::Read`], of all that the pool was handed, and everything is read about once: little is kept in memory.
    Survey,
    /// Datasets, properties or files are changed.
    Write,
}

/// How a session has its pool.
enum Held {
    /// Alone: it is exported at the end.
    Alone(Pool),
    /// Shared with other users in this process, the pool's server.
    Live(Arc<Pool>),
    /// Read-only, while its server keeps this state on the disks.
    Leased {
        /// The pool as of that state.
        pool: Pool,
        /// The promise lasts as long as this connection.
        _server: Client,
    },
}

/// An open pool for the length of one command.
pub struct Session {
    held: Held,
    /// How it is imported; `None` if it was found through `-d`.
    pub known: Option<KnownPool>,
    /// Where its devices are, by leaf guid.
    pub devices: BTreeMap<u64, PathBuf>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({})", self.pool().name())
    }
}

impl Session {
    /// The open pool.
    pub fn pool(&self) -> &Pool {
        match &self.held {
            Held::Alone(pool) | Held::Leased { pool, .. } => pool,
            Held::Live(pool) => pool,
        }
    }

    /// Whether this is a leased state of a pool that a server holds.
    pub fn is_leased(&self) -> bool {
        matches!(self.held, Held::Leased { .. })
    }

    /// Whether this process is the server that holds the pool.
    pub fn is_live(&self) -> bool {
        matches!(self.held, Held::Live(_))
    }

    /// Facts that only the pool's server knows; `None` without a server, or if it has just ended.
    pub fn figures(&self) -> Option<Figures> {
        if let Held::Live(pool) = &self.held {
            return Figures::of(pool).ok();
        }
        self.server()?.figures().ok()
    }

    /// The requests to the devices, as the server that holds the pool counted them; `None` as with
    /// [`Session::figures`].
    pub fn counters(&self) -> Option<Counters> {
        self.server()?.counters().ok()
    }

    /// The mounts of the server that holds the pool; none without a server.
    pub fn mounts(&self) -> Vec<(String, PathBuf)> {
        self.server().and_then(|client| client.status().ok()).map_or_else(Vec::new, |status| status.mounts)
    }

    /// How the pool's datasets are mounted, by name: another pool of the same name may be mounted, too.
    fn mounted(&self, around: &Surroundings) -> BTreeMap<String, Mounted> {
        let (now, without_xattrs) = match &self.held {
            Held::Leased { .. } => self
                .server()
                .and_then(|client| client.status().ok())
                .map(|status| (status.without_xattrs.clone(), status))
                .map(|(without, status)| (Served::of_status(status), without))
                .unwrap_or_default(),
            // The pool's server itself asks.
            Held::Live(_) => {
                around.live().map(|live| (Served::of_live(live), live.without_xattrs())).unwrap_or_default()
            }
            Held::Alone(_) => Default::default(),
        };
        let with_xattrs = |mut mount: Mounted| {
            if without_xattrs.contains(&mount.dataset) {
                mount.denied.push(NOXATTR);
            }
            (mount.dataset.clone(), mount)
        };
        mounts_of(&now).into_iter().map(with_xattrs).collect()
    }

    /// Where the server that holds the pool has mounted a dataset: another pool of the same name may be mounted, too.
    pub fn mount_point(&self, dataset: &str) -> Option<PathBuf> {
        self.mounts().into_iter().find(|(mounted, _)| mounted == dataset).map(|(_, point)| point)
    }

    /// Another connection to the server that holds the pool: that of the lease has nothing more to say.
    fn server(&self) -> Option<Client> {
        let Held::Leased { pool, .. } = &self.held else { return None };
        let devices = || self.devices.values().cloned().collect();
        let client =
            server::client::connect_anywhere(&Runtime::of_user(), &pool.name(), MOUNTER, devices).ok()??;
        Some(client).filter(|client| client.guid == pool.guid().0)
    }

    /// Notes the command for the pool's history; it is written with the first change.
    pub fn command(&self, line: &str) {
        self.pool().set_command(line);
    }

    /// The pool itself, for commands that end it in another way than [`Session::finish`].
    ///
    /// # Errors
    /// Others hold it, too.
    pub fn into_pool(self) -> Result<Pool, Failure> {
        match self.held {
            Held::Alone(pool) => Ok(pool),
            Held::Live(pool) => Err(Action::Export(&pool.name()).failed(reason::BUSY)),
            Held::Leased { pool, .. } => Err(Action::Export(&pool.name()).failed(reason::BUSY)),
        }
    }

    /// Writes everything.
    ///
    /// # Errors
    /// As [`Session::finish`].
    pub fn sync(&self) -> Result<(), Failure> {
        let pool = self.pool();
        pool.sync_unless_suspended().map_err(|error| Action::Write(&pool.name()).failed(error))
    }

    /// Why the pool cannot be changed, in the words of OpenZFS and, if it was not asked for, why.
    pub fn refusal(&self, action: Action<'_>) -> Option<Failure> {
        self.refusal_as(&|why| action.failed(why))
    }

    /// As [`Session::refusal`], where `failed` says what was not done.
    pub fn refusal_as(&self, failed: &dyn Fn(&str) -> Failure) -> Option<Failure> {
        let why = self.pool().read_only()?;
        let failure = failed(reason::POOL_READ_ONLY);
        let asked = self.known.as_ref().is_some_and(|known| known.read_only);
        Some(if asked {
            failure
        } else {
            failure.hint(format!("cenote opens this pool for reading only: {why}"))
        })
    }

    /// Writes everything and leaves the pool importable. A session that was only read from writes nothing. A live
    /// pool goes on; what commands changed of its datasets is on disk already.
    ///
    /// # Errors
    /// Changes that were not written yet could not be written; the pool is safe as of its last sync.
    pub fn finish(self) -> Result<(), Failure> {
        let name = self.pool().name();
        self.pool().forget_command();
        match self.held {
            Held::Alone(pool) | Held::Leased { pool, .. } => {
                pool.export().map_err(|error| Action::Write(&name).failed(error))
            }
            Held::Live(_) => Ok(()),
        }
    }
}

/// The name of the pool that a dataset, snapshot or bookmark belongs to.
pub fn pool_of(name: &str) -> &str {
    name.split(['/', '@', '#']).next().unwrap_or(name)
}

/// A pool that commands may use: imported, or found where `-d` points.
#[derive(Clone, Debug)]
pub struct Usable {
    /// Its name on the command line.
    pub name: String,
    /// How it is imported, if it is.
    pub known: Option<KnownPool>,
    /// The configuration that its devices have, if they are there.
    pub found: Option<Found>,
    /// This process holds it.
    pub live: Option<Arc<Live>>,
    /// Another user looks at it: only a state that its server leases is opened.
    pub visited: bool,
}

impl Usable {
    /// Its guid, if it is known.
    pub fn guid(&self) -> Option<Guid> {
        let known = self.known.as_ref().map(|known| known.guid);
        known.or_else(|| self.found.as_ref().map(|found| found.config.pool_guid))
    }
}

/// Every usable pool, by name.
///
/// # Errors
/// The file of known pools cannot be read; where `-d` points is nothing, or a file that is no device of a pool.
pub fn usable(around: &Surroundings) -> Result<Vec<Usable>, NotOpen> {
    if let Some(live) = around.live() {
        return find(live.name(), around).map(|pool| vec![pool]);
    }
    let mut all: Vec<Usable> = if around.search.is_empty() {
        known_here(around)?.into_iter().map(|known| seek(known, around)).collect()
    } else {
        let found = pool::discover(&around.search);
        for place in &around.search {
            let metadata = std::fs::metadata(backing_file(place));
            let kind = metadata.map_err(|source| NotOpen::NoPlace { place: place.clone(), source })?;
            let is_there = |path: &PathBuf| path == place || backing_file(path) == *place;
            let copies = || found.iter().flat_map(|pool| &pool.copies).map(|copy| &copy.left_out);
            let devices = || found.iter().flat_map(|pool| pool.devices.values());
            if !kind.is_dir() && !devices().chain(copies()).any(is_there) {
                std::fs::File::open(backing_file(place))
                    .map_err(|source| NotOpen::NoPlace { place: place.clone(), source })?;
                return Err(NotOpen::no_pool(place));
            }
        }
        if let Some(copy) = found.iter().flat_map(|pool| &pool.copies).find(|copy| copy.is_doubtful) {
            return Err(NotOpen::Copies(copy.clone()));
        }
        found
            .into_iter()
            .map(|found| Usable {
                name: found.config.name.clone(),
                known: None,
                found: Some(found),
                live: None,
                visited: false,
            })
            .collect()
    };
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

/// The names of all usable pools.
///
/// # Errors
/// As [`usable`].
pub fn names(around: &Surroundings) -> Result<Vec<String>, NotOpen> {
    Ok(usable(around)?.into_iter().map(|pool| pool.name).collect())
}

/// The imported pools, for another user those that are shared with all.
fn known_here(around: &Surroundings) -> Result<Vec<KnownPool>, KnownError> {
    let mut pools = state::known().read()?;
    if around.visited {
        let shared = visitors::shared();
        pools.retain(|pool| shared.contains(&pool.name));
    }
    Ok(pools)
}

/// The imported pool on these devices.
fn among(known: &KnownPool, places: &[PathBuf]) -> Option<Found> {
    pool::discover(places).into_iter().find(|found| found.config.pool_guid == known.guid)
}

/// The devices of an imported pool where the list has them. A device that is not there is also sought where the labels of the
/// others have it: a server that was killed may not have written its last change of devices into the list.
pub fn listed(known: &KnownPool) -> Option<Found> {
    let found = among(known, &known.devices)?;
    let missing = found.missing_paths();
    if missing.is_empty() {
        return Some(found);
    }
    among(known, &[&known.devices[..], &missing].concat()).or(Some(found))
}

/// Looks for the devices of an imported pool where they were last, or, if they are gone from there, with the server that
/// holds them open. A device that does not answer is not touched: then none is found.
fn seek(known: KnownPool, around: &Surroundings) -> Usable {
    let visited = around.visited;
    if !visited && silent::server_of(&known).is_some() {
        return Usable { name: known.name.clone(), known: Some(known), found: None, live: None, visited };
    }
    let there = listed(&known);
    // A device without a lock may be a copy that replaced the file that the server has open. The check takes a lock for a
    // moment, which a command of another user must not do.
    let is_own = |found: &Found| visited || !connect::is_used() || is_held(found);
    let found = match there {
        Some(found) if found.is_complete() && is_own(&found) => Some(found),
        partly => gone::held_open(&known).and_then(|open| among(&known, &open)).or(partly),
    };
    Usable { name: known.name.clone(), known: Some(known), found, live: None, visited: around.visited }
}

/// The usable pool called `name`.
///
/// # Errors
/// [`NotOpen::Missing`], [`NotOpen::Ambiguous`], or as [`usable`].
pub fn find(name: &str, around: &Surroundings) -> Result<Usable, NotOpen> {
    if let Some(live) = around.live().filter(|live| live.name() == name) {
        let known = state::known().read()?.into_iter().find(|pool| pool.guid.0 == live.guid());
        let live = Some(live.clone());
        return Ok(Usable { name: name.to_owned(), known, found: None, live, visited: false });
    }
    if around.search.is_empty() {
        let known = known_here(around)?.into_iter().find(|pool| pool.name == name);
        return known.map(|known| seek(known, around)).ok_or_else(|| missing(name));
    }
    let mut matching = usable(around)?.into_iter().filter(|pool| pool.name == name);
    let first = matching.next().ok_or_else(|| NotOpen::Missing(name.to_owned()))?;
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
    let mut options = options(&usable)?;
    let Usable { name, known, found, live, visited } = usable;
    if let Some(live) = live {
        let pool = live.pool().map_err(|_| NotOpen::Unavailable(name))?;
        let leaves = pool.leaves();
        let devices = leaves.map(|leaf| (leaf.guid, leaf.disk.path().to_path_buf())).collect();
        return Ok(Session { held: Held::Live(pool), known, devices });
    }
    let Some(found) = found else { return Err(silent::why_unavailable(name, known.as_ref())) };
    options.read_only |= intent != Intent::Write;
    if visited {
        options.workers = 1;
    }
    if intent == Intent::Survey || visited {
        options.cache_bytes = options.cache_bytes.min(SURVEY_CACHE);
    }
    if options.read_only
        && let Some((client, uberblock)) = lease(&name, &found, (!visited).then_some(intent))?
    {
        options.leased = Some(uberblock);
        return match Pool::import(&found, options) {
            Ok(pool) => {
                note_keys(&pool, &name, &found);
                Ok(Session { held: Held::Leased { pool, _server: client }, known, devices: found.devices })
            }
            Err(source) => Err(NotOpen::Failed { name, source }),
        };
    }
    if visited {
        // A lock for another user's command would keep root from importing the pool.
        return Err(NotOpen::Unavailable(name));
    }
    match Pool::import(&found, options) {
        Ok(pool) => {
            // Intent logs that a crash left are replayed first. A log that cannot be replayed keeps its own dataset from
            // being changed. Opening that dataset gives the error; the other datasets are not refused.
            let _ = zpl::replay_logs(&pool);
            // The server of a pool that is only read leaves its devices to others, too.
            note_keys(&pool, &name, &found);
            Ok(Session { held: Held::Alone(pool), known, devices: found.devices })
        }
        Err(source) => Err(NotOpen::Failed { name, source }),
    }
}

/// How a pool is opened that is imported this way.
pub fn options(usable: &Usable) -> Result<Options, ConfigError> {
    let known = usable.known.as_ref();
    let called = usable.found.as_ref().map(|found| found.config.name.clone());
    Ok(Options {
        read_only: known.is_some_and(|known| known.read_only),
        altroot: known.and_then(|known| known.altroot.clone()),
        temporary: known.is_some_and(|known| known.temporary),
        missing_logs: match known.is_some_and(|known| known.without_logs) {
            true => MissingLogs::KnownAbsent,
            false => MissingLogs::Refused,
        },
        new_name: called.filter(|called| *called != usable.name).map(|_| usable.name.clone()),
        ..config::options()?
    })
}

/// Opens the pool of a dataset (or a pool by its name) for reading or writing.
///
/// # Errors
/// See [`NotOpen`]; [`NotOpen::dataset`] turns it into the words of `zfs`.
pub fn open_for(name: &str, around: &Surroundings, intent: Intent) -> Result<Session, NotOpen> {
    open(find(pool_of(name), around)?, intent)
}

/// Opens the pool that is called `name`, for a command that is about pools: the name of a dataset names none.
///
/// # Errors
/// No pool can be called so; see [`NotOpen`].
pub fn open_pool(name: &str, around: &Surroundings, intent: Intent) -> Result<Session, Failure> {
    names::check_pool(name, false).map_err(|error| Action::Open(name).failed(error))?;
    Ok(open(find(name, around)?, intent)?)
}

/// The pools that one command uses, each opened once.
#[derive(Debug)]
pub struct Sessions<'a> {
    around: &'a Surroundings,
    intent: Intent,
    command: String,
    open: BTreeMap<String, Session>,
    /// By pool and dataset; read when one of the pool is asked for first.
    mounts: BTreeMap<String, BTreeMap<String, Mounted>>,
}

impl<'a> Sessions<'a> {
    /// None yet. `command` enters the history of those that are changed.
    pub fn new(around: &'a Surroundings, intent: Intent, command: &str) -> Sessions<'a> {
        Sessions {
            around,
            intent,
            command: command.to_owned(),
            open: BTreeMap::new(),
            mounts: BTreeMap::new(),
        }
    }

    /// The surroundings in which the command runs.
    pub fn around(&self) -> &'a Surroundings {
        self.around
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

    /// How a dataset is mounted, if it is.
    pub fn mount_of(&mut self, dataset: &str) -> Option<Mounted> {
        let pool = pool_of(dataset).to_owned();
        if !self.mounts.contains_key(&pool) {
            let mounts = {
                let around = self.around;
                self.of(dataset).ok()?.mounted(around)
            };
            self.mounts.insert(pool.clone(), mounts);
        }
        self.mounts[&pool].get(dataset).cloned()
    }

    /// Names of all usable pools.
    ///
    /// # Errors
    /// As [`usable`].
    pub fn names(&self) -> Result<Vec<String>, NotOpen> {
        names(self.around)
    }

    /// Lets all pools go.
    ///
    /// # Errors
    /// The first that could not be written.
    pub fn finish(self) -> Result<(), Failure> {
        self.open.into_values().map(Session::finish).fold(Ok(()), Result::and)
    }
}
