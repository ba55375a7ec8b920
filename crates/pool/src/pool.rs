//! The living pool: what is shared between its users and its sync thread.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, Weak};
use std::thread::JoinHandle;

use dmu::DirtyBudget;
use dsl::available;
use dsl::promises::Promises;
use dsl::room::{Reach, Reserve, Room};
use dsl::view::View;
use format::config::{PoolConfig, PoolState};
use format::features::Feature;
use format::{BlockPtr, Guid, ObjectId, Txg};
use storage::allocator::Space;
use storage::host::{Disk, Host};
use storage::{Deflate, Leaf, Storage};

use crate::dataset::Dataset;
use crate::events::Events;
use crate::features::FeatureState;
use crate::leases::Leases;
use crate::members::Members;
use crate::mos::Mos;
use crate::scrubber::Scrubber;
use crate::sync::{SyncState, Syncing, sync_loop};
use crate::treater::Treater;
use crate::tx::{Groups, Hold, Need, Tx};
use crate::zil::stash::LogSpace;
use crate::{Error, Result};
use dsl::keyring::Keyring;

/// Blocks of metadata that one transaction may change besides its data, and the bytes of each: dnodes, the directory
/// and its attributes.
const TX_BLOCKS: u64 = 8;
const TX_BLOCK: u64 = 16 << 10;
/// Indirect blocks that it may change, and the bytes of each.
const TX_INDIRECT_BLOCKS: u64 = 2;
const TX_INDIRECT_BLOCK: u64 = 128 << 10;
/// Vdevs with this many metaslabs lend one to the intent log in OpenZFS; it is not counted as usable.
const EMBEDDED_LOG_METASLABS: u64 = 64;

/// Bytes of records that are encoded before their txg syncs: what the cores get done while another txg's last
/// writes reach the disks.
const AHEAD_BYTES: u64 = 32 << 20;

/// What `zpool list` and `zpool status` tell, as of the last sync.
#[derive(Clone, Debug)]
pub struct Info {
    /// The configuration with the whole vdev tree.
    pub config: PoolConfig,
    /// Space of the normal class.
    pub space: Space,
    /// Space per top-level vdev id.
    pub vdev_space: BTreeMap<u32, Space>,
    /// guid → how many use it, of all enabled features; empty for legacy versions.
    pub features: BTreeMap<String, u64>,
    /// Last synced txg.
    pub txg: Txg,
    /// Root of its MOS.
    pub(crate) root: BlockPtr,
}

impl Info {
    /// Whether the feature is disabled, enabled or active.
    #[must_use]
    pub fn feature(&self, feature: &Feature) -> FeatureState {
        match self.features.get(feature.guid) {
            None => FeatureState::Disabled,
            Some(0) => FeatureState::Enabled,
            Some(_) => FeatureState::Active,
        }
    }
}

/// Shared by everyone who uses the pool, and by threads that work for it.
pub struct Inner {
    /// Devices, cache and workers.
    pub storage: Arc<Storage>,
    /// What is dirty.
    pub budget: Arc<DirtyBudget>,
    /// Time and randomness.
    pub host: Host,
    pub(crate) groups: Arc<Groups>,
    /// The objects that describe the pool.
    pub mos: Mos,
    pub(crate) datasets: Mutex<HashMap<ObjectId, Weak<Dataset>>>,
    /// Datasets with intent logs that syncs must look after: kept even when their users let go of them.
    pub(crate) logged: Mutex<BTreeMap<ObjectId, Arc<Dataset>>>,
    /// Space for log blocks of the open txg.
    pub(crate) log_space: LogSpace,
    /// Datasets with transactions in the open txg: kept even when their users let go of them.
    pub(crate) dirty: Mutex<BTreeMap<ObjectId, Arc<Dataset>>>,
    pub(crate) read_only: Option<String>,
    /// Why this build would not write the pool, whoever asked.
    pub(crate) refused: Option<String>,
    pub(crate) info: RwLock<Info>,
    /// What transactions in flight may add below each directory.
    pub(crate) promises: Promises,
    /// Readers of the DSL hold it shared; jobs that change several of its objects, exclusively.
    pub(crate) dsl: RwLock<()>,
    pub(crate) altroot: Option<String>,
    /// The command that is being carried out, to be noted in the history by the first change it makes.
    pub(crate) command: Mutex<Option<String>>,
    /// The thread that carries out a scrub or resilver: it ends before the pool does.
    pub scrub: Scrubber,
    pub(crate) treater: Treater,
    /// The states on the disks that other processes read.
    pub(crate) leases: Leases,
    pub(crate) events: Events,
    /// Who uses the pool.
    pub(crate) user: u32,
    /// Top-level vdevs that take no new blocks.
    pub(crate) non_allocating: Mutex<Vec<u32>>,
    /// Caches and spares, open so that nobody else takes them.
    pub(crate) aux_disks: Mutex<Vec<Arc<dyn Disk>>>,
    /// How each leaf takes part.
    pub(crate) members: Members,
    /// Keys of encrypted datasets that are loaded.
    pub(crate) keyring: Keyring,
}

impl Inner {
    /// Name as imported.
    #[must_use]
    pub fn name(&self) -> String {
        self.info().config.name.clone()
    }

    /// What `zpool list` and `zpool status` tell; the lock is held while it is looked at.
    ///
    /// # Panics
    /// A thread panicked while it stored it.
    pub fn info(&self) -> std::sync::RwLockReadGuard<'_, Info> {
        self.info.read().expect("the info lock guards a plain store")
    }

    pub(crate) fn read_only_reason(&self) -> Option<String> {
        self.read_only.clone()
    }

    pub(crate) fn datasets(&self) -> MutexGuard<'_, HashMap<ObjectId, Weak<Dataset>>> {
        self.datasets.lock().expect("no code panics while holding the dataset table")
    }

    pub(crate) fn logged(&self) -> MutexGuard<'_, BTreeMap<ObjectId, Arc<Dataset>>> {
        self.logged.lock().expect("no code panics while holding the datasets with logs")
    }

    /// The open datasets.
    pub(crate) fn open_datasets(&self) -> Vec<Arc<Dataset>> {
        let mut table = self.datasets();
        table.retain(|_, dataset| dataset.strong_count() > 0);
        let mut open: Vec<_> = table.values().filter_map(Weak::upgrade).collect();
        open.sort_by_key(|dataset| dataset.id);
        open
    }

    /// Keeps a dataset until its changes of the open txg are synced.
    pub(crate) fn list_dirty(&self, id: ObjectId) {
        let dataset = self.datasets().get(&id).and_then(Weak::upgrade);
        let dataset = dataset.expect("a dataset in use is in the table");
        self.dirty.lock().expect("no code panics while holding the dirty datasets").insert(id, dataset);
    }

    /// The datasets changed in the txg that is being closed.
    pub(crate) fn take_dirty(&self) -> Vec<Arc<Dataset>> {
        let dirty =
            std::mem::take(&mut *self.dirty.lock().expect("no code panics while holding the dirty datasets"));
        dirty.into_values().collect()
    }

    /// Encodes some of the open txg's records while the syncing one is on its way to the disks.
    pub(crate) fn encode_ahead(&self) {
        let dirty = self.dirty.lock().expect("no code panics while holding the dirty datasets");
        let datasets: Vec<_> = dirty.values().cloned().collect();
        drop(dirty);
        let mut left = AHEAD_BYTES.min(self.groups.limits.dirty_max() / 4);
        for dataset in datasets {
            dataset.objset().encode_ahead(&mut left);
        }
    }

    /// Bytes of the normal class with parity taken out and without what OpenZFS keeps for intent logs, of vdevs that
    /// take new blocks.
    pub(crate) fn dspace(&self) -> u64 {
        let closed = self.non_allocating.lock().expect("guards a plain list").clone();
        let tops = self.storage.vdevs().tops().iter().filter(|top| top.is_normal());
        let tops = tops.filter(|top| !closed.contains(&top.id));
        tops.map(|top| {
            let count = top.metaslab_count();
            let lent = u64::from(count >= EMBEDDED_LOG_METASLABS);
            ((count - lent) << top.metaslab_shift >> 9) * top.deflate_ratio()
        })
        .sum()
    }

    /// The space of the pool as its datasets see it.
    pub(crate) fn room(&self) -> Room {
        Room { dspace: self.dspace() }
    }

    /// Bytes that datasets may use in all, for transactions of this reach.
    pub(crate) fn usable(&self, reach: Reach) -> u64 {
        self.room().usable(reach)
    }

    /// The last txg on disk and the root of its MOS.
    #[must_use]
    pub fn committed(&self) -> (Txg, BlockPtr) {
        let info = self.info();
        (info.txg, info.root)
    }

    /// The txg that accepts changes.
    #[must_use]
    pub fn open_txg(&self) -> Txg {
        self.groups.lock().open
    }

    /// Whether blocks of what was destroyed wait to be freed, as of the last sync.
    #[must_use]
    pub fn is_freeing(&self) -> bool {
        self.groups.is_freeing()
    }

    /// Waits until everything done so far is on disk.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the pool could not write.
    pub fn sync(&self) -> Result<()> {
        self.groups.sync()
    }

    /// What questions about datasets need.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        View {
            mos: &self.mos,
            storage: &self.storage,
            budget: &self.budget,
            pool: self.name(),
            altroot: self.altroot.as_deref(),
            keyring: &self.keyring,
            room: self.room(),
        }
    }

    /// Whether somebody uses a dataset. It may be open all the same: its intent log keeps it.
    pub(crate) fn is_used(&self, id: ObjectId) -> bool {
        let by_log = usize::from(self.logged().contains_key(&id));
        self.datasets().get(&id).is_some_and(|open| open.strong_count() > by_log)
    }

    /// Waits while too much is dirty.
    pub(crate) fn wait_for_room(&self) {
        self.groups.wait_for_room(|| self.look_at_load());
    }

    /// The space that one transaction with `hold` needs, its data in `copies` copies. Only an estimate: once it has
    /// changed something, that is counted exactly ([`DirtyBudget::space`]).
    pub(crate) fn need_of(&self, hold: &Hold, copies: u8) -> Need {
        let vdevs = self.storage.vdevs();
        let data = match (hold.bytes, hold.blocks) {
            (0, _) => 0,
            (bytes, 0) => vdevs.largest_asize_of(bytes),
            (_, blocks) => blocks.saturating_mul(vdevs.largest_asize_of(hold.block_size)),
        };
        let blocks = TX_BLOCKS * vdevs.largest_asize_of(TX_BLOCK);
        let indirect = TX_INDIRECT_BLOCKS * vdevs.largest_asize_of(TX_INDIRECT_BLOCK);
        let freed = hold.freed.saturating_mul(dmu::KILLED);
        Need {
            data: data.saturating_mul(copies.into()),
            metadata: ((blocks + indirect) * (u64::from(copies) + 1).min(3)).saturating_add(freed),
            reserve: self.room().reserve(hold.reach),
        }
    }

    /// Begins a transaction that needs this much space, however much is dirty; `None` if that has to wait.
    pub(crate) fn try_begin(&self, need: &Need) -> Result<Option<Tx>> {
        self.check_writable()?;
        self.look_at_load();
        self.groups.try_begin(need)
    }

    /// Does that unless it would have to wait.
    pub(crate) fn begin_at_once(self: &Arc<Self>, hold: &Hold, copies: u8) -> Result<Option<Tx>> {
        self.check_writable()?;
        self.groups.begin_at_once(&self.need_of(hold, copies), || self.look_at_load())
    }

    fn check_writable(&self) -> Result<()> {
        match self.read_only_reason() {
            None => Ok(()),
            Some(reason) => Err(Error::ReadOnly { pool: self.name(), reason }),
        }
    }

    /// Bytes dirty now; tells the engines of compression whether writers are delayed for them.
    pub(crate) fn look_at_load(&self) -> u64 {
        let dirty = self.budget.bytes();
        // What follows from the calls alone knows no load.
        let delayed = !self.groups.stepwise && self.groups.limits.delays(dirty);
        self.storage.deflate().set_throttled(delayed);
        dirty
    }
}

/// An open pool. Dropping it leaves the pool as after a crash, at its last synced txg; see [`Pool::export`].
pub struct Pool {
    pub(crate) inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

impl Pool {
    pub(crate) fn start(inner: Arc<Inner>, state: SyncState) -> Pool {
        let thread = inner.read_only.is_none().then(|| {
            let inner = inner.clone();
            std::thread::Builder::new()
                .name("cenote-sync".into())
                .spawn(move || sync_loop(&inner, state))
                .expect("the system starts a thread")
        });
        Pool { inner, thread }
    }

    /// What threads that work for the pool share with it.
    #[must_use]
    pub fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Name as imported.
    #[must_use]
    pub fn name(&self) -> String {
        self.inner.name()
    }

    /// Guid.
    #[must_use]
    pub fn guid(&self) -> Guid {
        self.inner.info().config.pool_guid
    }

    /// Why nothing can be written, if so.
    #[must_use]
    pub fn read_only(&self) -> Option<String> {
        self.inner.read_only_reason()
    }

    /// Why this build does not write the pool, even when it is asked to; `None` if it does.
    #[must_use]
    pub fn refused(&self) -> Option<String> {
        self.inner.refused.clone()
    }

    /// Whether a device ends before the data may.
    #[must_use]
    pub fn is_cut_short(&self) -> bool {
        self.inner.storage.vdevs().tops().iter().any(|top| top.cut_short().next().is_some())
    }

    /// What `zpool list` and `zpool status` tell.
    #[must_use]
    pub fn info(&self) -> Info {
        self.inner.info().clone()
    }

    /// The pool's devices, cache and workers.
    #[must_use]
    pub fn storage(&self) -> &Arc<Storage> {
        &self.inner.storage
    }

    /// The devices that are present, with their counters.
    pub fn leaves(&self) -> impl Iterator<Item = &Leaf> {
        self.inner.storage.vdevs().leaves()
    }

    /// Who makes gzip's bytes.
    #[must_use]
    pub fn deflate(&self) -> &Deflate {
        self.inner.storage.deflate()
    }

    /// Time and randomness.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.inner.host
    }

    /// Prefix shown before mountpoints.
    #[must_use]
    pub fn altroot(&self) -> Option<&str> {
        self.inner.altroot.as_deref()
    }

    /// Waits until everything done so far is on disk.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the pool could not write.
    pub fn sync(&self) -> Result<()> {
        if self.thread.is_none() {
            return Ok(());
        }
        self.inner.groups.sync()
    }

    /// Whether it writes txgs at all.
    pub(crate) fn is_syncing(&self) -> bool {
        self.thread.is_some()
    }

    /// Runs `job` in the next syncing txg and waits until its result is on disk.
    ///
    /// # Errors
    /// Those of the job; [`Error::ReadOnly`], [`Error::Stopped`].
    ///
    /// # Panics
    /// The sync thread panicked.
    pub fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Syncing<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.check_resumed()?;
        self.inner.run(job)
    }

    /// As [`Pool::run`], of a job that changes `objects` objects of the DSL. It is refused when the pool is so full that
    /// the job would use `kept`.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; as [`Inner::run`].
    pub fn run_beside<T: Send + 'static>(
        &self,
        kept: Reserve,
        objects: u64,
        job: impl FnOnce(&mut Syncing<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.run(move |syncing| {
            available::check_reserve(&syncing.inner.view(), objects, kept)?;
            job(syncing)
        })
    }

    /// Writes everything, marks the labels exported and lets the devices go.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the pool could not write; the last synced state is what an import finds.
    pub fn export(self) -> Result<()> {
        self.finish(PoolState::Exported)
    }

    /// Marks the pool destroyed and lets the devices go.
    ///
    /// # Errors
    /// As [`Pool::export`].
    pub fn destroy(self) -> Result<()> {
        if let Some(reason) = self.read_only() {
            return Err(Error::ReadOnly { pool: self.name(), reason });
        }
        self.finish(PoolState::Destroyed)
    }

    fn finish(mut self, state: PoolState) -> Result<()> {
        if self.thread.is_none() {
            return Ok(());
        }
        self.check_resumed()?;
        self.inner.scrub.leave();
        self.inner.treater.leave();
        // What is in the logs is synced now: they end here.
        self.inner.logged().values().for_each(|dataset| dataset.log.close());
        self.run(move |syncing| {
            syncing.set_pool_state(state);
            Ok(())
        })?;
        self.stop();
        Ok(())
    }

    fn stop(&mut self) {
        // Whoever waits for a refused write to be tried again would keep the sync thread and the scrub waiting.
        self.inner.suspension().give_up();
        self.inner.scrub.leave();
        self.inner.treater.leave();
        self.inner.storage.second().leave();
        self.inner.groups.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the sync thread panicked");
        }
        // Changes that were never synced are given up; datasets kept for them would keep the devices locked.
        self.inner.take_dirty().iter().for_each(|dataset| dataset.objset().give_up());
        self.inner.mos.objset.give_up();
        let logged = std::mem::take(&mut *self.inner.logged());
        drop(logged);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Inner {
    /// Runs `job` in the next syncing txg and waits until its result is on disk.
    ///
    /// # Errors
    /// Those of the job; [`Error::ReadOnly`], [`Error::Stopped`].
    ///
    /// # Panics
    /// The sync thread panicked.
    pub fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Syncing<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if let Some(reason) = self.read_only_reason() {
            return Err(Error::ReadOnly { pool: self.name(), reason });
        }
        let (sender, receiver) = crossbeam_channel::bounded(1);
        let txg = self.groups.queue(Box::new(move |syncing| {
            let before = syncing.changes();
            let done = job(syncing).and_then(|value| syncing.log_command().map(|()| value));
            if let Err(error) = &done
                && syncing.changes() != before
            {
                // Half a job must not become the state of the pool.
                syncing.broken = Some(Error::Unfinished(error.to_string()));
            }
            // Nobody waits any more only when the caller's thread is gone; the job is done all the same.
            let _ = sender.send(done);
        }))?;
        // Not the txg open by then: how many there are must follow from the calls alone.
        self.groups.sync_to(txg)?;
        receiver.recv().expect("a queued job runs before its txg is synced")
    }
}
