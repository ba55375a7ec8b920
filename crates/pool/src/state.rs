//! The state of an open pool that its users, its datasets and its sync thread share.
//!
//! From:   `create` and `import`, which fill it.
//! To:     every module that reads or changes the pool. The pool and its open datasets name each other, and so do a pool and the
//!         txg that is being synced: that is why these types are in one file.

use std::any::Any;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, Weak};

use dmu::{DirtyBudget, Objset, Policy};
use dsl::info::DatasetInfo;
use dsl::keyring::Keyring;
use dsl::promises::{Own, Promises};
use dsl::room::{Reach, Room};
use dsl::settings::Settings;
use dsl::view::View;
use format::blkptr::BlockPtr;
use format::config::PoolConfig;
use format::ddt::Counts;
use format::features::Feature;
use format::uberblock::Uberblock;
use format::{ObjectId, Txg};
use storage::allocator::{Allocator, Class, Space};
use storage::host::{Disk, Host};
use storage::{Storage, TopVdev, TxgRuns, Writer};

use crate::brt::{Brt, Clones};
use crate::checkpoint::{Checkpoint, Keeping};
use crate::ddt::Ddt;
use crate::events::Events;
use crate::features::{FeatureState, Features};
use crate::leases::Leases;
use crate::log::Log;
use crate::log::space::LogSpace;
use crate::members::Members;
use crate::mos::Mos;
use crate::options::Options;
use crate::scrubber::Scrubber;
use crate::sizes::Sizes;
use crate::space_maps::{Logs, MapTable};
use crate::throttle::Limits;
use crate::treater::Treater;
use crate::tx::{Groups, Hold, Need, Tx};
use crate::{Error, Result};

/// A job for the sync thread, run in the syncing txg.
pub(crate) type Task = Box<dyn FnOnce(&mut Syncing<'_>) + Send>;

/// Blocks of metadata that one transaction may change besides its data, and the bytes of each: dnodes, the directory
/// and its attributes.
const TX_BLOCKS: u64 = 8;
const TX_BLOCK: u64 = 16 << 10;
/// Indirect blocks that it may change, and the bytes of each.
const TX_INDIRECT_BLOCKS: u64 = 2;
const TX_INDIRECT_BLOCK: u64 = 128 << 10;
/// Vdevs with this many metaslabs lend one to the intent log in OpenZFS; it is not counted as usable.
const EMBEDDED_LOG_METASLABS: u64 = 64;

/// Bytes of records that are encoded before their txg syncs. The cores encode about this much while the last writes of the
/// previous txg reach the disks.
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
    /// Enabled features: guid → number of uses. Empty for legacy versions.
    pub features: BTreeMap<String, u64>,
    /// What the dedup tables hold.
    pub dedup: Counts,
    /// What is cloned.
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
    pub storage: Arc<Storage>,
    /// What is dirty.
    pub budget: Arc<DirtyBudget>,
    /// Time and randomness.
    pub host: Host,
    pub(crate) groups: Arc<Groups>,
    /// Jobs of the open txg. Changed only while the state of the txgs is held.
    pub(crate) jobs: Mutex<Vec<Task>>,
    /// The objects that describe the pool.
    pub mos: Mos,
    pub(crate) datasets: Mutex<HashMap<ObjectId, Weak<Dataset>>>,
    /// Datasets whose intent logs syncs must visit. They stay open even without users.
    pub(crate) logged: Mutex<BTreeMap<ObjectId, Arc<Dataset>>>,
    /// Space for log blocks of the open txg.
    pub(crate) log_space: LogSpace,
    /// Datasets with transactions in the open txg. They stay open even without users.
    pub(crate) dirty: Mutex<BTreeMap<ObjectId, Arc<Dataset>>>,
    pub(crate) read_only: Option<String>,
    /// Why this build cannot write the pool, even if the import is not read-only.
    pub(crate) refused: Option<String>,
    pub(crate) info: RwLock<Info>,
    /// Bytes that transactions in flight may add below each directory.
    pub(crate) promises: Promises,
    /// Readers of the DSL hold it shared; jobs that change several of its objects, exclusively.
    pub(crate) dsl: RwLock<()>,
    pub(crate) altroot: Option<String>,
    /// The running command. The first change that it makes writes it to the history.
    pub(crate) command: Mutex<Option<String>>,
    /// The thread of a scrub or resilver. It ends before the pool is closed.
    pub scrub: Scrubber,
    pub(crate) treater: Treater,
    /// Leases: states on the disks that other processes read.
    pub(crate) leases: Leases,
    pub(crate) events: Events,
    /// The user of the pool.
    pub(crate) user: u32,
    /// Top-level vdevs that take no new blocks.
    pub(crate) non_allocating: Mutex<Vec<u32>>,
    /// Caches and spares, open so that nobody else takes them.
    pub(crate) aux_disks: Mutex<Vec<Arc<dyn Disk>>>,
    /// How each leaf takes part.
    pub(crate) members: Members,
    /// Keys of encrypted datasets that are loaded.
    pub(crate) keyring: Keyring,
    /// Bytes that only the checkpoint keeps.
    pub(crate) kept: AtomicU64,
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
    pub(crate) refused: Option<String>,
    /// Top-level vdevs that take no new blocks.
    pub(crate) non_allocating: Vec<u32>,
    /// Caches and spares, open so that nobody else takes them.
    pub(crate) aux_disks: Vec<Arc<dyn Disk>>,
}

impl Inner {
    /// A pool that nobody uses yet.
    pub(crate) fn new(options: &Options, parts: Parts) -> Inner {
        let Parts { storage, budget, mos, info, uberblock, members, refused, non_allocating, aux_disks } =
            parts;
        let (limits, suspension) = (Limits::of(options), storage.suspension().clone());
        let groups = Groups::new(info.txg, options.stepwise, limits, budget.clone(), suspension);
        let asked = options.read_only.then(|| "it was opened for reading only".to_owned());
        Inner {
            storage,
            budget,
            host: options.host.clone(),
            groups: Arc::new(groups),
            jobs: Mutex::default(),
            mos,
            datasets: Mutex::default(),
            logged: Mutex::default(),
            log_space: LogSpace::default(),
            dirty: Mutex::default(),
            read_only: asked.or_else(|| refused.clone()),
            refused,
            info: RwLock::new(info),
            promises: Promises::default(),
            dsl: RwLock::new(()),
            altroot: options.altroot.clone(),
            command: Mutex::default(),
            scrub: Scrubber::default(),
            treater: Treater::default(),
            leases: Leases::new(uberblock),
            events: Events::default(),
            user: options.user,
            non_allocating: Mutex::new(non_allocating),
            aux_disks: Mutex::new(aux_disks),
            members,
            kept: AtomicU64::default(),
            keyring: Keyring::default(),
        }
    }

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

    fn jobs(&self) -> MutexGuard<'_, Vec<Task>> {
        self.jobs.lock().expect("the lock of the jobs guards a plain list")
    }

    /// The jobs of the txg that is being closed.
    pub(crate) fn take_jobs(&self) -> Vec<Task> {
        std::mem::take(&mut *self.jobs())
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

    /// Encodes some of the open txg's records while the syncing txg is written to the disks.
    pub(crate) fn encode_ahead(&self) {
        let dirty = self.dirty.lock().expect("no code panics while holding the dirty datasets");
        let datasets: Vec<_> = dirty.values().cloned().collect();
        drop(dirty);
        let mut left = AHEAD_BYTES.min(self.groups.limits.dirty_max() / 4);
        for dataset in datasets {
            dataset.objset().encode_ahead(&mut left);
        }
    }

    /// Usable bytes of the normal class: without parity, without the metaslabs that OpenZFS reserves for intent logs, and
    /// only of vdevs that take new blocks. Special and dedup vdevs do not count, as in OpenZFS 2.1 and 2.3.
    pub(crate) fn dspace(&self) -> u64 {
        let closed = self.non_allocating.lock().expect("guards a plain list").clone();
        let is_counted =
            |top: &&TopVdev| top.class == Class::Normal && top.is_normal() && !closed.contains(&top.id);
        let tops = self.storage.vdevs().tops().iter().filter(is_counted);
        let of_top = |top: &TopVdev| {
            let lent = u64::from(top.metaslab_count() >= EMBEDDED_LOG_METASLABS);
            ((top.capacity() - (lent << top.metaslab_shift)) >> 9) * top.deflate_ratio()
        };
        tops.map(of_top).sum()
    }

    /// The space of the pool as its datasets see it.
    pub(crate) fn room(&self) -> Room {
        let info = self.info();
        let shared = info.dedup.saved().saturating_add(info.clones.saved);
        drop(info);
        Room { dspace: self.dspace(), shared, kept: self.kept.load(Ordering::Acquire) }
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

    /// Whether a dataset has users. A dataset without users may still be open because of its intent log.
    pub(crate) fn is_used(&self, id: ObjectId) -> bool {
        let by_log = usize::from(self.logged().contains_key(&id));
        self.datasets().get(&id).is_some_and(|open| open.strong_count() > by_log)
    }

    /// Waits while too much is dirty.
    pub(crate) fn wait_for_room(&self) {
        self.groups.wait_for_room(|| self.look_at_load());
    }

    /// Estimated space for one transaction with `hold`, with its data in `copies` copies. Changes that it has made are
    /// counted exactly ([`DirtyBudget::space`]).
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
        let entries = hold.freed.saturating_add(hold.blocks.max(1).saturating_mul(2));
        let freed = freed.saturating_add(self.cost_of_entries(entries));
        Need {
            data: data.saturating_mul(copies.into()),
            metadata: ((blocks + indirect) * (u64::from(copies) + 1).min(3)).saturating_add(freed),
            reserve: self.room().reserve(hold.reach),
        }
    }

    /// Bytes that so many changed entries of dedup tables take; none in a pool without them.
    fn cost_of_entries(&self, entries: u64) -> u64 {
        if self.budget.has_table() { self.budget.cost_of_entries(entries) } else { 0 }
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

    fn check_writable(&self) -> Result<()> {
        match self.read_only_reason() {
            None => Ok(()),
            Some(reason) => Err(Error::ReadOnly { pool: self.name(), reason }),
        }
    }

    /// Bytes dirty now; tells the engines of compression whether writers are delayed for them.
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
        if let Some(reason) = self.read_only_reason() {
            return Err(Error::ReadOnly { pool: self.name(), reason });
        }
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
        let txg = self.groups.queue(|| self.jobs().push(task))?;
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
    pub(crate) name: RwLock<String>,
    pub(crate) objset: Arc<Objset>,
    pub(crate) is_snapshot: bool,
    pub(crate) settings: RwLock<Arc<Settings>>,
    /// A stream is received into it, so it is writable even with `readonly=on`.
    pub(crate) arriving: AtomicBool,
    /// A mount has the option `rw`, which overrides the property `readonly`.
    pub(crate) mounted_writable: AtomicBool,
    /// Its own limits and use, as of the last sync.
    pub(crate) own: Mutex<Own>,
    pub(crate) destroyed: AtomicBool,
    /// Generation of the settings that the file system itself stores.
    pub(crate) revision: AtomicU64,
    /// The intent log.
    pub(crate) log: Log,
    /// It stays open until the open txg is synced.
    pub(crate) listed: AtomicBool,
    /// guids of the per-dataset features that the dataset is marked with.
    pub(crate) active_features: Mutex<BTreeSet<String>>,
    /// A value of the crate above, one per open dataset.
    pub(crate) above: Mutex<Option<Weak<dyn Any + Send + Sync>>>,
}

/// What a dataset is opened with.
pub(crate) struct Found {
    /// Its objects.
    pub(crate) objset: Objset,
    /// What its properties mean for those who read and write it.
    pub(crate) settings: Settings,
    /// How its blocks are written.
    pub(crate) policy: Policy,
    /// Its own limits and use.
    pub(crate) own: Own,
    /// guids of the per-dataset features that it is marked with.
    pub(crate) marks: BTreeSet<String>,
}

impl Dataset {
    /// A dataset with what was found of it.
    pub(crate) fn new(pool: Arc<Inner>, info: &DatasetInfo, found: Found) -> Dataset {
        let Found { objset, settings, policy, own, marks } = found;
        objset.set_policy(policy);
        Dataset {
            pool,
            id: info.id,
            dir: info.dir_id,
            name: RwLock::new(info.name.clone()),
            objset: Arc::new(objset),
            is_snapshot: info.is_snapshot(),
            settings: RwLock::new(Arc::new(settings)),
            arriving: AtomicBool::new(false),
            mounted_writable: AtomicBool::new(false),
            own: Mutex::new(own),
            destroyed: AtomicBool::new(false),
            revision: AtomicU64::new(0),
            log: Log::default(),
            listed: AtomicBool::new(false),
            active_features: Mutex::new(marks),
            above: Mutex::default(),
        }
    }
}

/// What only the sync thread touches.
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
    /// Blocks of what was destroyed wait to be freed.
    pub(crate) freeing: bool,
    /// The checkpoint, and what it keeps.
    pub(crate) keeping: Keeping,
    /// The first sync after an import has not run yet.
    pub(crate) fresh: bool,
    /// The salt must be written into the MOS.
    pub(crate) new_salt: Option<[u8; 32]>,
    /// Name of the pool in its labels, if this import uses a temporary name.
    pub(crate) name_on_disk: Option<String>,
}

impl SyncState {
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
    /// What changes the MOS in it.
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
