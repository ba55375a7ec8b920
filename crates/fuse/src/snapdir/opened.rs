//! The snapshots that are in use below `.zfs`.
//!
//! A snapshot stays open as long as the kernel knows one of its nodes, as a file does in the file system itself
//! (decision 0005). A snapshot of which the kernel knows only the root may be closed all the same, and is opened again
//! when it is needed. If too many are open, the kernel is asked to forget the one that was not entered for the longest
//! time.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use fuser::{Errno, FileAttr, Generation, INodeNo};
use zpl::rank::{MutexHeld, Rank, RankedMutex};
use zpl::session::{Folder, Notice, Numbers, SNAPSHOT, Slot, root_of};
use zpl::{CONTROL, ObjectId, SnapDir, SnapshotEntry, SnapshotKey};

use super::table::{Opened, Root, State};
use super::volumes::Volumes;
use crate::attributes::attr;
use crate::bridge::Bridge;
use crate::device::Device;
use crate::errno::{self, Answer};
use crate::permits::Permits;
use crate::places::{Owner, Places};
use crate::replies::Entry;
use crate::seeker::Seeker;
use crate::shared::Shared;

/// Usual time for the kernel to report dropped nodes.
const FORGETTING: Duration = Duration::from_millis(50);
/// The pause between two looks at what the kernel still knows. Waits count looks and not time: on a busy machine the
/// thread that looks gets as little time as the threads that receive the reports.
const PAUSE: Duration = Duration::from_millis(1);
/// After this many looks without a report, nodes that the kernel still has count as used.
const QUIET: u32 = 200;
/// Maximal number of looks until the kernel has dropped all nodes.
const PATIENCE: u32 = 1000;

/// The snapshots of a mounted file system, as far as the kernel knows them.
pub(crate) struct Snapshots {
    pub(crate) head: Arc<Shared>,
    pub(crate) volumes: Arc<Volumes>,
    seeker: Arc<Seeker>,
    this: Weak<Snapshots>,
    threads: usize,
    state: RankedMutex<State>,
    /// The value of `snapdir` that the kernel knows.
    told: RankedMutex<SnapDir>,
    /// Where it is mounted, once it is.
    place: OnceLock<(PathBuf, Device)>,
}

impl Snapshots {
    pub(crate) fn new(
        head: Arc<Shared>,
        seeker: Arc<Seeker>,
        threads: usize,
        places: Arc<Places>,
    ) -> Arc<Snapshots> {
        let told = head.fs().map_or(SnapDir::Hidden, |fs| fs.snapdir());
        let told = RankedMutex::new(Rank::SnapdirTold, told);
        let state = RankedMutex::new(Rank::OpenSnapshots, State::new(places));
        let volumes = Arc::new(Volumes::new(head.clone()));
        Arc::new_cyclic(|this| Snapshots {
            head,
            volumes,
            seeker,
            this: this.clone(),
            threads,
            state,
            told,
            place: OnceLock::new(),
        })
    }

    /// It is mounted.
    pub(crate) fn mounted_at(&self, point: &Path, device: Device) {
        // There is one mount.
        let _ = self.place.set((point.to_owned(), device));
    }

    fn state(&self) -> MutexHeld<'_, State> {
        self.state.lock()
    }

    /// Opens a snapshot, if it is not open. `called` is its name, as far as is known.
    fn enter(&self, key: SnapshotKey, called: &[u8]) -> Answer<Arc<Bridge>> {
        if let Some(bridge) = self.state().enter(key) {
            return Ok(bridge);
        }
        let root = root_of(key.id).ok_or(Errno::EIO)?;
        let head = self.head.fs()?;
        let fs = head.open_snapshot(key, called).map_err(|error| match error {
            zpl::Error::NotFound => Errno::ESTALE,
            error => {
                let dataset = head.dataset().name();
                tracing::warn!(dataset, snapshot = key.id.0, %error, "a snapshot cannot be opened");
                Errno::EIO
            }
        })?;
        let mut state = self.state();
        // Another thread may have opened it meanwhile.
        if let Some(bridge) = state.enter(key) {
            return Ok(bridge);
        }
        let owner = Owner::Snapshot(self.head.kernel.numbers.slot());
        let slot = state.places.take(key.id, owner).ok_or(Errno::ENFILE)?;
        let root = self.called(root).0;
        let shared = Arc::new(self.head.of_snapshot(fs, Numbers::of_snapshot(key, root, slot)));
        let permits = Arc::new(Permits::new(self.threads));
        let bridge = Bridge::new(shared, self.seeker.clone(), permits);
        state.slots.insert(key, slot);
        let opened = Opened { key, bridge: bridge.clone(), used: state.time };
        state.open.insert(slot, opened);
        let idle = state.take_idle();
        let too_many = state.too_many();
        drop(state);
        drop(idle);
        if too_many.is_some() {
            let this = self.this.clone();
            // This must not run here, because the kernel may wait for this thread in that folder.
            self.seeker.run(Box::new(move || {
                let (Some(snapshots), mut next) = (this.upgrade(), too_many) else { return };
                while let Some((key, name)) = next {
                    let is_gone = snapshots.send_away(key, &name);
                    next = if is_gone { snapshots.state().too_many() } else { None };
                }
            }));
        }
        Ok(bridge)
    }

    /// The snapshot whose root is that of dataset `id`.
    pub(crate) fn behind(&self, id: ObjectId) -> Answer<Arc<Bridge>> {
        let known = self.state().roots.get(&id).map(|root| (root.key, root.name.clone()));
        let (key, name) = known.ok_or(Errno::ESTALE)?;
        self.enter(key, &name)
    }

    /// The snapshot in a slot. Nodes that the kernel knows keep it open, but an NFS file handle may name a closed one.
    pub(crate) fn at(&self, slot: Slot) -> Answer<Arc<Bridge>> {
        self.opened(slot).map_or_else(|| self.open_again(slot), Ok)
    }

    fn opened(&self, slot: Slot) -> Option<Arc<Bridge>> {
        self.state().open.get(&slot).map(|opened| opened.bridge.clone())
    }

    /// Opens the snapshot that usually has this slot. If another one was meant, the generations of its nodes differ.
    fn open_again(&self, slot: Slot) -> Answer<Arc<Bridge>> {
        let listed = self.listed(|id| Slot::choice(id, 0) == slot)?;
        let key = self.head.fs()?.snapshot_named(&listed.name).map_err(errno::from)?.ok_or(Errno::ESTALE)?;
        let bridge = self.enter(key, &listed.name)?;
        if self.state().slots.get(&key) == Some(&slot) { Ok(bridge) } else { Err(Errno::ESTALE) }
    }

    /// The first snapshot in the list whose number is wanted: all may have to be looked through.
    fn listed(&self, wanted: impl Fn(ObjectId) -> bool) -> Answer<SnapshotEntry> {
        self.head.session.check_control().map_err(|_| Errno::ESTALE)?;
        let mut cookie = 0;
        loop {
            let some = self.head.fs()?.snapshots_from(cookie).map_err(errno::from)?;
            cookie = some.last().ok_or(Errno::ESTALE)?.cookie;
            if let Some(found) = some.into_iter().find(|entry| wanted(entry.id)) {
                return Ok(found);
            }
        }
    }

    /// Looks up the root of the snapshot `name`, and counts one more use by the kernel.
    pub(crate) fn find(&self, name: &[u8]) -> Answer<Entry> {
        let Some(key) = self.head.fs()?.snapshot_named(name).map_err(errno::from)? else {
            return self.recalled(name).map_or(Err(Errno::ENOENT), |id| self.root(id));
        };
        if let Some(root) = self.state().roots.get_mut(&key.id).filter(|root| root.key == key) {
            root.count += 1;
            root.name = name.to_vec();
            return Ok(root.entry());
        }
        let bridge = self.enter(key, name)?;
        let stat = bridge.fs()?.stat(bridge.root()).map_err(errno::from)?;
        let attr = attr(&stat, INodeNo(bridge.kernel.numbers.root()));
        let generation = Generation(stat.generation ^ bridge.kernel.numbers.salt());
        let mut state = self.state();
        // The kernel still has to drop its uses of another snapshot that had this number.
        let before = state.roots.get(&key.id).map_or(0, |root| root.count);
        let root = Root { key, name: name.to_vec(), count: before + 1, attr, generation };
        let entry = root.entry();
        state.roots.insert(key.id, root);
        Ok(entry)
    }

    /// Counts one more use of a root. The kernel may also reach a dropped root by a file handle or a file below it.
    pub(crate) fn root(&self, id: ObjectId) -> Answer<Entry> {
        if let Some(root) = self.state().roots.get_mut(&id) {
            root.count += 1;
            return Ok(root.entry());
        }
        self.find(&self.listed(|listed| listed == id)?.name)
    }

    /// Attributes of a root.
    pub(crate) fn root_attr(&self, id: ObjectId) -> Answer<FileAttr> {
        self.state().roots.get(&id).map(|root| root.attr).ok_or(Errno::ESTALE)
    }

    /// The kernel dropped `count` uses of a root.
    pub(crate) fn forget_root(&self, id: ObjectId, count: u64) {
        let mut state = self.state();
        let Some(root) = state.roots.get_mut(&id) else { return };
        root.count = root.count.saturating_sub(count);
        if root.count == 0 {
            let key = root.key;
            state.roots.remove(&id);
            let closed = state.take_forgotten(key);
            drop(state);
            drop(closed);
        }
    }

    /// The kernel dropped a node of the snapshot in `slot`.
    pub(crate) fn forget_within(&self, slot: Slot, forget: impl FnOnce(&Bridge)) {
        let Some(bridge) = self.opened(slot) else { return };
        forget(&bridge);
        let last = bridge.session.handles().is_empty();
        drop(bridge);
        if last {
            let mut state = self.state();
            let key = state.open.get(&slot).map(|opened| opened.key);
            let closed = key.and_then(|key| state.take_forgotten(key));
            drop(state);
            drop(closed);
        }
    }

    /// How many snapshots are open.
    pub(crate) fn open_count(&self) -> usize {
        self.state().open.len()
    }

    /// Before a destroy: makes the kernel drop the snapshot, now called `name`, and closes it. If it is in use, it stays
    /// open. It may meanwhile belong to another file system. Do not call it from a thread that serves requests.
    pub(crate) fn let_go(&self, key: SnapshotKey, name: &[u8]) {
        if !self.is_known(key) {
            return;
        }
        let named = self.head.fs().map(|fs| fs.snapshot_named(name));
        let is_ours = matches!(named, Ok(Ok(Some(found))) if found == key);
        if is_ours {
            // By this name, and by no other that it had, and in its place, where it is not after it was found to be in use.
            self.look(name);
            self.expel(name);
        } else if self.state().is_known(key) {
            self.recall(key.id);
        }
        let (mut last, mut quiet) = (None, 0);
        // The kernel reports dropped nodes later. If not, a program uses it, and the caller waits for a while.
        for _ in 0..PATIENCE {
            let mut state = self.state();
            let closed = state.take_forgotten(key);
            let known = state.is_known(key);
            let left = state.roots.get(&key.id).map_or(0, |root| root.count);
            let open = state.at(key).map(|opened| opened.bridge.session.handles().len());
            let closing = state.is_closing(key) && closed.is_none();
            drop(state);
            drop(closed);
            if !known && open.is_none() && !closing {
                return;
            }
            quiet = if last == Some((left, open)) { quiet + 1 } else { 0 };
            if quiet > QUIET {
                break;
            }
            last = Some((left, open));
            std::thread::sleep(PAUSE);
        }
        // A program is in it. If only the root of a closed snapshot is in use, the pool does not know of that use, so
        // it is opened again.
        if is_ours {
            let _ = self.enter(key, name);
            self.look(name);
        }
    }

    /// Makes the kernel drop what it can of a snapshot that has no name in this file system any more. A folder without
    /// a name cannot be invalidated, so it gets a temporary name.
    fn recall(&self, id: ObjectId) {
        let name = recall_name(id);
        self.state().recalled.insert(id);
        self.look(&name);
        self.state().recalled.remove(&id);
        self.expel(&name);
    }

    /// The dataset for which this temporary name stands.
    fn recalled(&self, name: &[u8]) -> Option<ObjectId> {
        let state = self.state();
        state.recalled.iter().copied().find(|id| recall_name(*id) == name)
    }

    fn is_known(&self, key: SnapshotKey) -> bool {
        let mut state = self.state();
        state.is_known(key) || state.at(key).is_some() || state.is_closing(key)
    }

    /// Makes the kernel drop a snapshot, so that it closes if it is unused. Returns whether it closed.
    fn send_away(&self, key: SnapshotKey, name: &[u8]) -> bool {
        self.expel(name);
        let until = Instant::now() + FORGETTING;
        while self.state().at(key).is_some_and(|opened| !opened.bridge.session.handles().is_empty()) {
            if Instant::now() > until {
                self.look(name);
                return false;
            }
            std::thread::sleep(FORGETTING / 100);
        }
        true
    }

    /// Makes the kernel drop what it can of the snapshot `name`. The kernel keeps used nodes, but detached from the folder.
    fn expel(&self, name: &[u8]) {
        self.head.kernel.tell(|kernel| kernel.inval_entry(self.number(Folder::Snapshots), name_of(name)));
    }

    /// Makes the kernel look up a snapshot, as programs do. This attaches its known nodes to the folder again.
    fn look(&self, name: &[u8]) {
        let Some((point, device)) = self.place.get() else { return };
        if Device::at(point).is_ok_and(|there| there == *device) {
            let path = point.join(name_of(CONTROL)).join(name_of(SNAPSHOT)).join(name_of(name));
            // A missing snapshot is no error.
            let _ = front::apart::ask(move || std::fs::symlink_metadata(path));
        }
    }

    /// A snapshot is not called `name` any more.
    pub(crate) fn renamed(&self, name: &[u8]) {
        self.expel(name);
    }

    /// The property `snapdir` may have changed.
    pub(crate) fn look_at_property(&self) {
        let Ok(fs) = self.head.fs() else { return };
        let mut told = self.told.lock();
        let now = fs.snapdir();
        let changed = std::mem::replace(&mut *told, now) != now;
        drop(told);
        if changed {
            self.head.session.changed(Notice::Name(self.head.root(), CONTROL));
        }
    }

    /// The mount ends.
    pub(crate) fn clear(&self) {
        let mut state = self.state();
        let open = std::mem::take(&mut state.open);
        for opened in open.values() {
            opened.bridge.session.release_all();
            state.closes(opened);
        }
        state.roots.clear();
        drop(state);
        self.volumes.clear();
    }

    /// Whether the kernel knows nothing of any snapshot or volume, nor of a root of a snapshot. All that is open then is
    /// idle, and the kernel can no longer name it.
    pub(crate) fn are_forgotten(&self) -> bool {
        let state = self.state();
        self.volumes.is_empty() && state.roots.is_empty() && state.open.values().all(Opened::is_idle)
    }
}

/// A temporary name for a look-up, which no real snapshot can have.
fn recall_name(id: ObjectId) -> Vec<u8> {
    format!("@{}", id.0).into_bytes()
}

fn name_of(bytes: &[u8]) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(bytes)
}
