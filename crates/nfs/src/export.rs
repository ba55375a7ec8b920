//! An exported file system, which is open while clients use it.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Condvar, PoisonError};
use std::time::{Duration, Instant};

use front::{ChangeListener, FileOpener};
use zpl::rank::{MutexHeld, Rank, RankedMutex};
use zpl::session::{Checks, Notice, Settings};
use zpl::{Filesystem, Session, SnapshotKey};

use crate::rules::Rules;
use crate::status::{self, Status};

/// How long a call waits for [`HeldOff`]. Then the answer asks the client to try again.
const WAIT: Duration = Duration::from_secs(10);
/// A file system that no client used for this long is closed.
const IDLE: Duration = Duration::from_secs(60);
/// Snapshots of one file system that are open at once.
const SNAPSHOTS_MAX: usize = 16;

/// The attributes of an export that may change.
#[derive(Clone)]
struct Told {
    /// The name of the dataset.
    name: String,
    /// A second path of the export.
    mountpoint: Option<String>,
    rules: Arc<Rules>,
}

/// A file system that clients may use, within its rules.
pub struct Export {
    guid: u64,
    told: RankedMutex<Told>,
    open: FileOpener,
    changed: ChangeListener,
    state: RankedMutex<State>,
    turned: Condvar,
    /// Held by the thread that opens the file system.
    opening: RankedMutex<()>,
}

#[derive(Default)]
struct State {
    opened: Option<Arc<Opened>>,
    /// Calls under way.
    in_flight: u32,
    /// Values of [`HeldOff`].
    held_off: u32,
    /// The time of the last begin or end of a call.
    used: Option<Instant>,
    /// The log has a line that it cannot be opened.
    is_reported: bool,
}

/// A file system that is open.
pub(crate) struct Opened {
    pub(crate) session: Arc<Session>,
    /// The write verifier, a new one for each opening. By it clients notice that uncommitted writes may be lost.
    pub(crate) verifier: u64,
    snapshots: RankedMutex<HashMap<SnapshotKey, (Arc<Session>, Instant)>>,
}

impl Export {
    /// An export of the dataset `name`, whose guid is `guid`.
    #[must_use]
    pub fn new(guid: u64, name: &str, rules: Rules, open: FileOpener, changed: ChangeListener) -> Export {
        let told = Told { name: name.to_owned(), mountpoint: None, rules: Arc::new(rules) };
        Export {
            guid,
            told: RankedMutex::leaf(told),
            open,
            changed,
            state: RankedMutex::default(),
            turned: Condvar::new(),
            opening: RankedMutex::new(Rank::ExportOpening, ()),
        }
    }

    /// The guid of the dataset.
    #[must_use]
    pub fn guid(&self) -> u64 {
        self.guid
    }

    /// The name of the dataset now.
    #[must_use]
    pub fn name(&self) -> String {
        self.told.lock_after_panics().name.clone()
    }

    /// Sets its name, its mountpoint and its rules.
    pub fn tell(&self, name: &str, mountpoint: Option<String>, rules: Rules) {
        *self.told.lock_after_panics() = Told { name: name.to_owned(), mountpoint, rules: Arc::new(rules) };
    }

    /// Sets the name of the dataset.
    pub fn rename(&self, name: &str) {
        name.clone_into(&mut self.told.lock_after_panics().name);
    }

    /// The path that clients mount.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/{}", self.told.lock_after_panics().name)
    }

    /// The rest of `path` below this export, behind the length of the path of the export; `None` if it is not at or below it.
    pub(crate) fn below(&self, path: &str) -> Option<(usize, String)> {
        let told = self.told.lock_after_panics().clone();
        let own = format!("/{}", told.name);
        [Some(own), told.mountpoint].into_iter().flatten().find_map(|top| {
            let rest = path.strip_prefix(top.as_str())?;
            (rest.is_empty() || rest.starts_with('/')).then(|| (top.len(), rest.to_owned()))
        })
    }

    pub(crate) fn rules(&self) -> Arc<Rules> {
        self.told.lock_after_panics().rules.clone()
    }

    /// Reports a change: other caches may hold the old state.
    pub(crate) fn changed(&self, notices: &[Notice<'_>]) {
        (self.changed)(&self.name(), notices);
    }

    /// Waits for another thread to change the state, at most so long.
    fn wait<'a>(&self, state: MutexHeld<'a, State>, left: Duration) -> MutexHeld<'a, State> {
        let wait = |state| self.turned.wait_timeout(state, left);
        state.wait(|state| wait(state).unwrap_or_else(PoisonError::into_inner).0)
    }

    /// Begins a call.
    pub(crate) fn enter(self: &Arc<Export>) -> Result<Entered, Status> {
        let mut state = self.state.lock_after_panics();
        let until = Instant::now() + WAIT;
        while state.held_off > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Status::JUKEBOX);
            }
            state = self.wait(state, left);
        }
        state.in_flight += 1;
        state.used = Some(Instant::now());
        let opened = state.opened.clone();
        drop(state);
        let under_way = UnderWay(self.clone());
        let opened = match opened {
            Some(opened) => opened,
            None => self.open_it()?,
        };
        Ok(Entered { opened, under_way })
    }

    fn open_it(&self) -> Result<Arc<Opened>, Status> {
        let _opening = self.opening.lock_after_panics();
        if let Some(opened) = self.state.lock_after_panics().opened.clone() {
            return Ok(opened);
        }
        let name = self.name();
        match (self.open)(&name) {
            Ok(fs) => {
                let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
                let session = Arc::new(Session::new(fs, Checks::Here, &Settings::default(), owner));
                let verifier = RandomState::new().build_hasher().finish();
                let opened = Arc::new(Opened { session, verifier, snapshots: RankedMutex::default() });
                let mut state = self.state.lock_after_panics();
                (state.opened, state.is_reported) = (Some(opened.clone()), false);
                Ok(opened)
            }
            Err(error) => {
                if !std::mem::replace(&mut self.state.lock_after_panics().is_reported, true) {
                    tracing::warn!(dataset = name, error, "an exported file system cannot be opened");
                }
                // The client tries again: the key of an encrypted file system may be loaded later.
                Err(Status::JUKEBOX)
            }
        }
    }

    /// Closes the file system and makes clients wait until the value is dropped, because a command needs it closed. Does not
    /// wait for calls that wait for a device for more than some seconds.
    pub fn hold_off(self: &Arc<Export>) -> HeldOff {
        let mut state = self.state.lock_after_panics();
        state.held_off += 1;
        let until = Instant::now() + WAIT;
        while state.in_flight > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.wait(state, left);
        }
        let opened = state.opened.take();
        drop(state);
        drop(opened);
        HeldOff(self.clone())
    }

    /// Closes the file system if no client uses it.
    pub(crate) fn close_if_idle(&self) {
        let mut state = self.state.lock_after_panics();
        let is_idle = state.used.is_some_and(|used| used.elapsed() > IDLE);
        let opened = if is_idle && state.in_flight == 0 { state.opened.take() } else { None };
        drop(state);
        drop(opened);
    }

    /// Whether it is open.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.state.lock_after_panics().opened.is_some()
    }
}

/// While this value exists, clients of an export wait.
#[must_use = "clients wait as long as this value is there"]
pub struct HeldOff(Arc<Export>);

impl front::HeldOff for HeldOff {}

impl Drop for HeldOff {
    fn drop(&mut self) {
        self.0.state.lock_after_panics().held_off -= 1;
        self.0.turned.notify_all();
    }
}

/// A call under way.
struct UnderWay(Arc<Export>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.0.state.lock_after_panics();
        state.in_flight -= 1;
        state.used = Some(Instant::now());
        drop(state);
        self.0.turned.notify_all();
    }
}

/// A call under way, and the file system that it is about.
pub(crate) struct Entered {
    // Rust drops fields in this order: the file system is closed before the call counts as done.
    pub(crate) opened: Arc<Opened>,
    under_way: UnderWay,
}

impl Entered {
    pub(crate) fn export(&self) -> &Arc<Export> {
        &self.under_way.0
    }

    /// The same call, for another part of the file system. It does not wait for [`Export::hold_off`], which waits for this call.
    pub(crate) fn again(&self) -> Entered {
        self.under_way.0.state.lock_after_panics().in_flight += 1;
        Entered { opened: self.opened.clone(), under_way: UnderWay(self.under_way.0.clone()) }
    }
}

impl Opened {
    /// The session of a snapshot of it.
    pub(crate) fn snapshot(&self, key: SnapshotKey) -> Result<Arc<Session>, Status> {
        if self.session.check_control().is_err() {
            return Err(Status::STALE);
        }
        if let Some((session, used)) = self.snapshots.lock_after_panics().get_mut(&key) {
            *used = Instant::now();
            return Ok(session.clone());
        }
        let of = |error: zpl::Error| match error {
            zpl::Error::NotFound => Status::STALE,
            error => status::of(&error),
        };
        let head = self.session.fs().map_err(of)?;
        let name = name_of(&head, key).map_err(of)?.ok_or(Status::STALE)?;
        let session = Arc::new(self.session.of_snapshot(head.open_snapshot(key, &name).map_err(of)?));
        let mut snapshots = self.snapshots.lock_after_panics();
        let mut closed = None;
        if snapshots.len() >= SNAPSHOTS_MAX {
            let oldest = snapshots.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| *key);
            closed = oldest.and_then(|oldest| snapshots.remove(&oldest));
        }
        snapshots.insert(key, (session.clone(), Instant::now()));
        drop(snapshots);
        drop(closed);
        Ok(session)
    }
}

/// The present name of a snapshot.
fn name_of(head: &Filesystem, key: SnapshotKey) -> zpl::Result<Option<Vec<u8>>> {
    let mut cookie = 0;
    loop {
        let some = head.snapshots_from(cookie)?;
        let Some(last) = some.last() else { return Ok(None) };
        cookie = last.cookie;
        if let Some(found) = some.into_iter().find(|entry| entry.id == key.id) {
            return Ok(Some(found.name));
        }
    }
}
