//! The state of an open pool that its users, its datasets and its sync thread share.
//!
//! From:   `create` and `import`, which know the [`Parts`]; [`Inner::new`] makes the pool of them.
//! To:     every module that reads or changes the pool. The pool and its open datasets name each other, and so do a pool and the
//!         txg that is being synced: that is why these types are in one file.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use dmu::{DirtyBudget, Objset, Policy};
use dsl::info::DatasetInfo;
use dsl::keyring::Keyring;
use dsl::promises::Own;
use dsl::room::{Reach, Room};
use dsl::settings::Settings;
use dsl::view::View;
use format::blkptr::BlockPtr;
use format::config::PoolConfig;
use format::ddt::Counts;
use format::features::Feature;
use format::uberblock::Uberblock;
use format::{ObjectId, Txg};
use storage::allocator::{Allocator, Space};
use storage::host::{Disk, Host};
use storage::rank::{MutexHeld, Rank, RankedMutex, RankedRwLock, ReadHeld, WriteHeld};
use storage::{Leaf, Storage, TxgRuns, Writer};

use crate::accounts::{self, Accounts};
use crate::aux_disks::AuxDisks;
use crate::brt::{Brt, Clones};
use crate::checkpoint::{Checkpoint, Keeping};
use crate::command::Command;
use crate::ddt::Ddt;
use crate::dsl_lock::DslLock;
use crate::evacuation::Evacuating;
use crate::events::Events;
use crate::features::{FeatureState, Features};
use crate::held_lists::HeldLists;
use crate::jobs::Jobs;
use crate::leases::Leases;
use crate::log::Log;
use crate::log::space::LogSpace;
use crate::marks::Passing;
use crate::members::Members;
use crate::mos::Mos;
use crate::multihost::Multihost;
use crate::obsolete::Condensing;
use crate::open_datasets::OpenDatasets;
use crate::options::Options;
use crate::reflow::{Reflow, ReflowNews};
use crate::scrubber::Scrubber;
use crate::sizes::Sizes;
use crate::space_maps::{Logs, MapTable};
use crate::terms::Terms;
use crate::throttle::Limits;
use crate::treater::Treater;
use crate::tx::{Groups, Hold, Need, Tx};
use crate::{Error, NotWritten, Result};

/// A job for the sync thread, run in the syncing txg.
pub(crate) type Task = Box<dyn FnOnce(&mut Syncing<'_>) + Send>;

/// Bytes of records that are encoded before their txg syncs. The cores encode about this much while the last writes of the
/// previous txg reach the disks.
const AHEAD_BYTES: u64 = 32 << 20;

/// The facts that `zpool list` and `zpool status` report, as of the last sync.
#[derive(Clone, Debug)]
pub struct Info {
    /// The configuration with the whole vdev tree.
    pub config: PoolConfig,
    /// Space of the normal class.
    pub space: Space,
    /// Space per top-level vdev id.
    pub vdev_space: BTreeMap<u32, Space>,
    /// Enabled features: guid → number of uses. Empty for legacy versions.
    pub features: BTreeMap<String, u64>,
    /// The counts of the dedup tables.
    pub dedup: Counts,
    /// The counts of cloned blocks.
    pub clones: Clones,
    /// Last synced txg.
    pub txg: Txg,
    /// Root of its MOS.
    pub(crate) root: BlockPtr,
    /// Its checkpoint, if there is one or one is being discarded.
    pub checkpoint: Option<Checkpoint>,
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

/// Shared by all users of the pool and by its threads.
pub struct Inner {
    /// Devices, cache and workers.
    pub(crate) storage: Arc<Storage>,
    /// The amount of dirty data.
    pub(crate) budget: Arc<DirtyBudget>,
    /// Time and randomness.
    pub(crate) host: Host,
    /// Which txg is open, and who holds it.
    pub(crate) groups: Arc<Groups>,
    pub(crate) jobs: Jobs<Task>,
    /// The objects that describe the pool.
    pub(crate) mos: Mos,
    pub(crate) dsl: DslLock,
    pub(crate) open: OpenDatasets<Dataset>,
    pub(crate) held_lists: Arc<HeldLists>,
    /// Space for log blocks of the open txg.
    pub(crate) log_space: LogSpace,
    pub(crate) accounts: Accounts,
    pub(crate) terms: Terms,
    info: RankedRwLock<Info>,
    pub(crate) command: Command,
    /// The thread of a scrub or resilver. It ends before the pool is closed.
    pub(crate) scrub: Scrubber,
    pub(crate) treater: Treater,
    /// Tells other machines that the pool is in use.
    pub(crate) multihost: Multihost,
    /// Leases: states on the disks that other processes read.
    pub(crate) leases: Leases,
    pub(crate) events: Events,
    pub(crate) aux_disks: AuxDisks,
    /// How each leaf takes part.
    pub(crate) members: Members,
    /// The state of the expansion of a raidz vdev, from the sync thread.
    pub(crate) reflow_news: ReflowNews,
    /// Keys of encrypted datasets that are loaded.
    pub(crate) keyring: Keyring,
}

/// State of a pool that `create` and `import` collect before the pool is in use.
pub(crate) struct Parts {
    pub(crate) storage: Arc<Storage>,
    pub(crate) budget: Arc<DirtyBudget>,
    pub(crate) mos: Mos,
    pub(crate) info: Info,
    /// The last uberblock on disk.
    pub(crate) uberblock: Uberblock,
    pub(crate) members: Members,
    /// Why this build cannot write the pool, even if the import is not read-only.
    pub(crate) refused: Option<NotWritten>,
    /// Top-level vdevs that take no new blocks.
    pub(crate) non_allocating: Vec<u32>,
    /// Caches and spares, kept open so that no other process takes them.
    pub(crate) aux_disks: Vec<Arc<dyn Disk>>,
}

impl Inner {
    /// A pool that is not used yet.
    pub(crate) fn new(options: &Options, parts: Parts) -> Inner {
        let Parts { storage, budget, mos, info, uberblock, members, refused, non_allocating, aux_disks } =
            parts;
        let (limits, suspension) = (Limits::of(options), storage.suspension().clone());
        let groups = Arc::new(Groups::new(info.txg, options.stepwise, limits, budget.clone(), suspension));
        let multihost = Multihost::new(options, storage.clone(), groups.clone(), uberblock.clone());
        Inner {
            storage,
            budget,
            host: options.host.clone(),
            groups,
            jobs: Jobs::default(),
            mos,
            dsl: DslLock::default(),
            open: OpenDatasets::default(),
            held_lists: Arc::default(),
            log_space: LogSpace::default(),
            accounts: Accounts::new(non_allocating),
            terms: Terms::new(options, refused),
            info: RankedRwLock::new(Rank::Info, info),
            command: Command::default(),
            scrub: Scrubber::default(),
            treater: Treater::default(),
            multihost,
            leases: Leases::new(uberblock),
            events: Events::default(),
            aux_disks: AuxDisks::new(aux_disks),
            members,
            reflow_news: ReflowNews::default(),
            keyring: Keyring::default(),
        }
    }

    /// Devices, cache and workers.
    #[must_use]
    pub const fn storage(&self) -> &Arc<Storage> {
        &self.storage
    }

    /// The objects that describe the pool, as they are now.
    #[must_use]
    pub const fn mos(&self) -> &Mos {
        &self.mos
    }

    /// The objset with this root block, to look at.
    ///
    /// # Errors
    /// Its root block cannot be read.
    pub fn objset(&self, root: BlockPtr) -> dmu::Result<Objset> {
        Objset::open(self.storage.clone(), self.budget.clone(), root)
    }

    /// Time and randomness.
    #[must_use]
    pub const fn host(&self) -> &Host {
        &self.host
    }

    /// The state that the scrub thread shares with its callers.
    #[must_use]
    pub const fn scrubber(&self) -> &Scrubber {
        &self.scrub
    }

    /// Name as imported.
    #[must_use]
    pub fn name(&self) -> String {
        self.info().config.name.clone()
    }

    /// The facts that `zpool list` and `zpool status` report. The lock is held while the caller looks at them.
    ///
    /// # Panics
    /// A thread panicked while it stored it.
    pub fn info(&self) -> ReadHeld<'_, Info> {
        self.info.read()
    }

    /// The facts that `zpool list` and `zpool status` report, to be changed by the sync thread.
    pub(crate) fn info_mut(&self) -> WriteHeld<'_, Info> {
        self.info.write()
    }

    /// Encodes some of the open txg's records while the syncing txg is written to the disks.
    pub(crate) fn encode_ahead(&self) {
        let mut left = AHEAD_BYTES.min(self.groups.limits.dirty_max() / 4);
        for dataset in self.open.changed() {
            dataset.objset().encode_ahead(&mut left);
        }
    }

    /// The space of the pool as its datasets see it.
    pub(crate) fn room(&self) -> Room {
        let info = self.info();
        let shared = info.dedup.saved().saturating_add(info.clones.saved);
        drop(info);
        self.accounts.room(self.storage.vdevs(), shared)
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

    /// The values that questions about datasets need.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        View {
            mos: &self.mos,
            storage: &self.storage,
            budget: &self.budget,
            pool: self.name(),
            altroot: self.terms.altroot(),
            keyring: &self.keyring,
            room: self.room(),
        }
    }

    /// Waits while too much is dirty.
    pub(crate) fn wait_for_room(&self) {
        self.groups.wait_for_room(|| self.look_at_load());
    }

    /// As [`accounts::need_of`].
    pub(crate) fn need_of(&self, hold: &Hold, copies: u8) -> Need {
        accounts::need_of(self.storage.vdevs(), &self.budget, &self.room(), hold, copies)
    }

    /// Begins a transaction that needs this much space, regardless of the dirty bytes. `None` if it would have to wait for
    /// space.
    pub(crate) fn try_begin(&self, need: &Need) -> Result<Option<Tx>> {
        self.check_writable()?;
        self.look_at_load();
        self.groups.try_begin(need)
    }

    /// As above, but also `None` if the write throttle would delay it.
    pub(crate) fn begin_at_once(self: &Arc<Self>, hold: &Hold, copies: u8) -> Result<Option<Tx>> {
        self.check_writable()?;
        self.groups.begin_at_once(&self.need_of(hold, copies), || self.look_at_load())
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        match self.terms.read_only() {
            None => Ok(()),
            Some(reason) => Err(Error::ReadOnly { pool: self.name(), reason: reason.clone() }),
        }
    }

    /// Bytes dirty now; also tells the compression engines whether writers are delayed.
    pub(crate) fn look_at_load(&self) -> u64 {
        let dirty = self.budget.bytes();
        // A stepwise pool must not depend on the load.
        let delayed = !self.groups.stepwise && self.groups.limits.delays(dirty);
        self.storage.deflate().set_throttled(delayed);
        dirty
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
        self.check_writable()?;
        let (sender, receiver) = crossbeam_channel::bounded(1);
        let task: Task = Box::new(move |syncing: &mut Syncing<'_>| {
            let before = syncing.changes();
            let done = job(syncing).and_then(|value| syncing.log_command().map(|()| value));
            if let Err(error) = &done
                && syncing.changes() != before
            {
                // A half-done job must not become the state of the pool.
                syncing.broken = Some(Error::Unfinished(error.to_string()));
            }
            // The receiver is gone only if the caller's thread ended. The job is done anyway.
            let _ = sender.send(done);
        });
        let txg = self.groups.queue(|held| self.jobs.push(held, task))?;
        // It waits for this txg and not for the one open then, because the number of txgs must depend on the calls alone.
        self.groups.sync_to(txg)?;
        receiver.recv().expect("a queued job runs before its txg is synced")
    }
}

/// An open dataset, shared as an `Arc`.
pub struct Dataset {
    pub(crate) pool: Arc<Inner>,
    /// The DSL dataset object in the MOS.
    pub(crate) id: ObjectId,
    /// The DSL directory object in the MOS.
    pub(crate) dir: ObjectId,
    name: RankedRwLock<String>,
    pub(crate) objset: Arc<Objset>,
    pub(crate) is_snapshot: bool,
    settings: RankedRwLock<Arc<Settings>>,
    /// A stream is received into it, so it is writable even with `readonly=on`.
    pub(crate) arriving: AtomicBool,
    /// A mount has the option `rw`, which overrides the property `readonly`.
    pub(crate) mounted_writable: AtomicBool,
    /// Its own limits and use, as of the last sync.
    own: RankedMutex<Own>,
    pub(crate) destroyed: AtomicBool,
    /// Generation of the settings that the file system itself stores.
    pub(crate) revision: AtomicU64,
    /// The intent log.
    pub(crate) log: Log,
    /// It stays open until the open txg is synced.
    pub(crate) listed: AtomicBool,
    /// guids of the per-dataset features that the dataset is marked with.
    marks: RankedMutex<BTreeSet<String>>,
}

/// The values with which a dataset is opened.
pub(crate) struct Found {
    /// Its objects.
    pub(crate) objset: Objset,
    /// The settings that its properties give to readers and writers.
    pub(crate) settings: Settings,
    /// How its blocks are written.
    pub(crate) policy: Policy,
    /// Its own limits and use.
    pub(crate) own: Own,
    /// guids of the per-dataset features that it is marked with.
    pub(crate) marks: BTreeSet<String>,
}

impl Dataset {
    /// A dataset with the facts that were found about it.
    pub(crate) fn new(pool: Arc<Inner>, info: &DatasetInfo, found: Found) -> Dataset {
        let Found { objset, settings, policy, own, marks } = found;
        objset.set_policy(policy);
        Dataset {
            pool,
            id: info.id,
            dir: info.dir_id,
            name: RankedRwLock::new(Rank::Name, info.name.clone()),
            objset: Arc::new(objset),
            is_snapshot: info.is_snapshot(),
            settings: RankedRwLock::new(Rank::Settings, Arc::new(settings)),
            arriving: AtomicBool::new(false),
            mounted_writable: AtomicBool::new(false),
            own: RankedMutex::new(Rank::OwnLimits, own),
            destroyed: AtomicBool::new(false),
            revision: AtomicU64::new(0),
            log: Log::default(),
            listed: AtomicBool::new(false),
            marks: RankedMutex::new(Rank::Marks, marks),
        }
    }

    pub(crate) fn name_lock(&self) -> ReadHeld<'_, String> {
        self.name.read()
    }

    pub(crate) fn name_mut(&self) -> WriteHeld<'_, String> {
        self.name.write()
    }

    pub(crate) fn settings_lock(&self) -> ReadHeld<'_, Arc<Settings>> {
        self.settings.read()
    }

    pub(crate) fn settings_mut(&self) -> WriteHeld<'_, Arc<Settings>> {
        self.settings.write()
    }

    pub(crate) fn own(&self) -> MutexHeld<'_, Own> {
        self.own.lock()
    }

    pub(crate) fn marks(&self) -> MutexHeld<'_, BTreeSet<String>> {
        self.marks.lock()
    }
}

/// The state that only the sync thread uses.
pub(crate) struct SyncState {
    pub(crate) allocator: Allocator,
    pub(crate) table: MapTable,
    /// Changes in log space maps, to be folded into the metaslabs' own maps by the first sync.
    pub(crate) logs: Logs,
    pub(crate) ddt: Ddt,
    pub(crate) brt: Brt,
    pub(crate) features: Option<Features>,
    /// The lists of missed txgs as they are on disk, by the guid of the leaf.
    pub(crate) listed: BTreeMap<u64, TxgRuns>,
    pub(crate) config: PoolConfig,
    pub(crate) config_object: ObjectId,
    pub(crate) config_dirty: bool,
    /// The last uberblock on disk; its root is a hole in a pool that was never synced.
    pub(crate) uberblock: Uberblock,
    /// Growth of the MOS by its own sync that is not accounted yet.
    pub(crate) mos_delta: Sizes,
    /// Blocks of destroyed datasets wait to be freed.
    pub(crate) freeing: bool,
    /// The checkpoint, and the space that it keeps.
    pub(crate) keeping: Keeping,
    /// The running removal of a vdev.
    pub(crate) evacuating: Option<Evacuating>,
    /// The expansion of a raidz vdev that is under way.
    pub(crate) reflow: Option<Reflow>,
    /// The mapping of a removed vdev that is being condensed.
    pub(crate) condensing: Option<Condensing>,
    /// The metaslab that a rebuild is in.
    pub(crate) passing: Option<Passing>,
    /// Devices of vdevs that left, each with the txg that is the first without it.
    pub(crate) leaving: Vec<(Txg, Leaf)>,
    /// The first sync after an import has not run yet.
    pub(crate) fresh: bool,
    /// The salt must be written into the MOS.
    pub(crate) new_salt: Option<[u8; 32]>,
    /// Name of the pool in its labels, if this import uses a temporary name.
    pub(crate) name_on_disk: Option<String>,
}

impl SyncState {
    /// The state in which nothing is under way and no table has entries.
    pub(crate) fn at_rest(allocator: Allocator, config: PoolConfig, uberblock: Uberblock) -> SyncState {
        SyncState {
            allocator,
            table: MapTable::default(),
            logs: Logs::default(),
            ddt: Ddt::default(),
            brt: Brt::default(),
            features: None,
            listed: BTreeMap::new(),
            config,
            config_object: ObjectId(0),
            config_dirty: true,
            uberblock,
            mos_delta: Sizes::default(),
            keeping: Keeping::default(),
            evacuating: None,
            reflow: None,
            condensing: None,
            passing: None,
            leaving: Vec::new(),
            freeing: false,
            fresh: false,
            new_salt: None,
            name_on_disk: None,
        }
    }

    /// The MOS of the last txg on disk; none in a pool that was never synced.
    pub(crate) fn mos_on_disk(&self, inner: &Inner) -> Result<Option<Objset>> {
        match self.uberblock.root {
            BlockPtr::Hole(_) => Ok(None),
            root => Ok(Some(Objset::open(inner.storage.clone(), Arc::default(), root)?)),
        }
    }

    /// The configuration as it is written.
    pub(crate) fn config_on_disk(&self) -> Cow<'_, PoolConfig> {
        match &self.name_on_disk {
            None => Cow::Borrowed(&self.config),
            Some(name) => Cow::Owned(PoolConfig { name: name.clone(), ..self.config.clone() }),
        }
    }
}

/// The syncing txg, as jobs see it.
pub struct Syncing<'a> {
    /// The pool.
    pub inner: &'a Arc<Inner>,
    pub(crate) state: &'a mut SyncState,
    /// The txg.
    pub txg: Txg,
    /// The transaction that changes the MOS in it.
    pub tx: dmu::Tx,
    pub(crate) writer: Writer<'a>,
    /// The MOS as of the last synced txg.
    pub(crate) before: Option<Objset>,
    /// A job failed after it had changed something: the txg must not become the pool's state.
    pub(crate) broken: Option<Error>,
    /// Blocks that jobs freed.
    pub(crate) freed: u64,
    /// How often the MOS was written in this txg.
    pub(crate) mos_passes: u32,
}
