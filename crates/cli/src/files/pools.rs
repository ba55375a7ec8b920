//! The pools that one command works on, each open once.
//!
//! From:   the places on the command line, and what the command means to do there.
//! To:     file systems; [`Pools::finish`] writes everything and closes the pools.

use std::collections::BTreeMap;
use std::sync::Arc;

use format::ObjectId;
use pool::{Dataset, Pool};
use server::Live;
use zpl::Filesystem;
use zpl::session::{Checks, Settings};

use crate::around::Surroundings;
use crate::key_bytes;
use crate::messages::{Action, Failure};
use crate::open::{self, Intent, Session};
use crate::place::PoolPath;

/// Open pools by name.
pub struct Pools {
    sessions: BTreeMap<String, Session>,
    live: Option<Arc<Live>>,
}

/// Notifies the kernel of changes in a file system that this process has mounted, because the changes did not come through
/// the mount.
#[derive(Clone, Debug, Default)]
pub struct Kernel(Option<(Arc<Live>, String)>);

impl Kernel {
    /// `name` in `dir` was changed or removed. Do not call it from inside a change.
    pub fn entry(&self, dir: ObjectId, name: &[u8]) {
        if let Some((live, dataset)) = &self.0 {
            live.changed_entry(dataset, dir, name);
        }
    }

    /// Attributes or contents changed.
    pub fn node(&self, id: ObjectId) {
        if let Some((live, dataset)) = &self.0 {
            live.changed_node(dataset, id);
        }
    }
}

impl Pools {
    /// Opens the pools of all `places`; one that is written anywhere is opened for writing.
    ///
    /// # Errors
    /// A pool is not there or cannot be opened.
    pub fn open<'a>(
        places: impl IntoIterator<Item = (&'a PoolPath, Intent)>,
        around: &Surroundings,
    ) -> Result<Pools, Failure> {
        let mut intents: BTreeMap<&str, (Intent, &str)> = BTreeMap::new();
        let mut reads = false;
        for (place, intent) in places {
            let entry = intents.entry(open::pool_of(&place.dataset)).or_insert((intent, &place.dataset));
            if intent == Intent::Write {
                entry.0 = intent;
            }
            reads |= intent == Intent::Files;
        }
        if let Some(live) = around.live().filter(|_| reads) {
            live.write_back();
        }
        let mut sessions = BTreeMap::new();
        for (name, (intent, dataset)) in intents {
            let session = open::open_for(name, around, intent).map_err(|error| error.dataset(dataset))?;
            sessions.insert(name.to_owned(), session);
        }
        Ok(Pools { sessions, live: around.live().cloned() })
    }

    /// The cache to notify of changes at `place`.
    pub fn kernel(&self, place: &PoolPath) -> Kernel {
        Kernel(self.live.clone().map(|live| (live, place.dataset_name())))
    }

    /// The pool that a place is in.
    pub fn pool(&self, place: &PoolPath) -> &Pool {
        let session = self.sessions.get(open::pool_of(&place.dataset));
        session.expect("the pools of all places were opened").pool()
    }

    /// The file system that a place is in. The same place gives the same file system.
    ///
    /// # Errors
    /// There is no such dataset, or it is no file system that this build reads.
    pub fn filesystem(&self, place: &PoolPath, intent: Intent) -> Result<Filesystem, Failure> {
        let name = place.dataset_name();
        let session = self.sessions.get(open::pool_of(&name)).expect("the pools of all places were opened");
        if self.live.is_none() {
            key_bytes::load_from_file(session.pool(), &name)
                .map_err(|why| Action::Open(&name).failed(why))?;
        }
        let dataset = session.pool().open(&name).map_err(|error| match error {
            pool::Error::NoDataset(_) => Action::Open(&name).failed(crate::messages::reason::DATASET_MISSING),
            error => Action::Open(&name).failed(error),
        })?;
        if intent == Intent::Write {
            let info = session.pool().dataset(&name).map_err(|error| Action::Open(&name).failed(error))?;
            if info.is_unfinished() {
                return Err(Action::Write(&name).failed("it holds part of a stream; receive the rest first"));
            }
            Dataset::check_writable(&dataset).map_err(|error| Action::Write(&name).failed(error))?;
        }
        let fs = Filesystem::open(dataset).map_err(|error| Action::Open(&name).failed(error))?;
        if intent == Intent::Write {
            fs.drain_unlinked().map_err(|error| Action::Write(&name).failed(error))?;
        }
        Ok(fs)
    }

    /// As [`Pools::filesystem`], through a session. No permissions are checked: the user of this command may open the
    /// devices of the pool, or is the user that the pool's server works for.
    ///
    /// # Errors
    /// As [`Pools::filesystem`].
    pub fn session(&self, place: &PoolPath, intent: Intent) -> Result<zpl::Session, Failure> {
        let fs = self.filesystem(place, intent)?;
        Ok(zpl::Session::new(fs, Checks::Holder, &Settings::default(), (0, 0)))
    }

    /// Writes everything and closes the pools. File systems must not be used after this.
    ///
    /// # Errors
    /// Something could not be written; that pool is as of its last sync.
    pub fn finish(self) -> Result<(), Failure> {
        let mut ended = Ok(());
        for session in self.sessions.into_values() {
            let finished = session.sync().and_then(|()| session.finish());
            ended = ended.and(finished);
        }
        ended
    }
}

/// `error` about the place, as one line.
pub fn refused(verb: &str, place: impl std::fmt::Display, error: impl std::fmt::Display) -> Failure {
    Failure::refused(format!("cannot {verb} '{place}': {error}"))
}
