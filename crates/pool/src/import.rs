//! Opening the pools that were found.
//!
//! Source: docs/format/01-labels-uberblock.md §4.3, §5.1; 10-create-checklist.md §F.

use std::sync::Arc;

use dmu::{DirtyBudget, Objset, zap};
use format::config::{PoolConfig, PoolState, VERSION_FEATURES, VdevConfig, VdevKind};
use format::scan::{Scan, ScanState};
use format::uberblock::Uberblock;
use format::{ByteOrder, ObjectId, Txg, VdevId};
use storage::Storage;
use storage::allocator::Allocator;
use storage::host::{Access, Disk};

use crate::checkpoint::{self, Keeping};
use crate::discover::Found;
use crate::elsewhere::{begin_multihost, is_multihost};
use crate::evacuation::{self, Evacuating};
use crate::features::Features;
use crate::labels;
use crate::mos::Mos;
use crate::multihost::importer::{self, Watched};
use crate::new_vdevs;
use crate::obsolete::Condensing;
use crate::opened::{Opened, choose_state, lacking_logs, open_disk, storage_of, unwritable_devices};
use crate::options::{MissingLogs, Options};
use crate::pool::{Info, Inner, Pool};
use crate::props::names;
use crate::redundancy;
use crate::reflow::{self, Reflow};
use crate::space_maps::{Logs, MapTable, Source};
use crate::state::{Parts, SyncState};
use crate::tables::{goes_on_freeing, load_space, references};
use crate::zil::recover;
use crate::{Error, NotWritten, Result, history};
use dsl::info;

/// Facts about a pool that is being imported, from its devices and its MOS.
struct Read {
    opened: Opened,
    /// The vdev tree from the MOS. The trees in labels only serve to find the MOS.
    config: PoolConfig,
    config_object: ObjectId,
    storage: Arc<Storage>,
    budget: Arc<DirtyBudget>,
    mos: Mos,
    features: Option<Features>,
    /// Features in use that this build does not write.
    unwritable: Vec<String>,
    /// Why the pool cannot be written with its devices in their present state.
    cannot_be_kept: Option<NotWritten>,
    /// A salt for checksums that is not on disk yet.
    new_salt: Option<[u8; 32]>,
}

impl Read {
    /// Reads the configuration and the features from the MOS, and builds the vdevs of the configuration.
    fn of(opened: Opened, options: &Options) -> Result<Read> {
        let name = opened.config.name.clone();
        let damaged = |why: String| Error::Damaged { pool: name.clone(), why };
        let budget = Arc::new(DirtyBudget::default());
        let provisional = storage_of(&opened, None, options)?;
        let objset = Objset::open(provisional, budget.clone(), opened.uberblock.root)
            .map_err(|error| damaged(format!("its root cannot be read: {error}")))?;
        let mos = Mos::new(objset, options.host.clone(), opened.uberblock.version);
        let unreadable = |features: Option<&Features>| {
            let (unreadable, unwritable) = features.map(Features::unsupported).unwrap_or_default();
            match unreadable.is_empty() {
                true => Ok(unwritable),
                false => Err(Error::Unreadable { pool: name.clone(), what: unreadable.join(", ") }),
            }
        };
        match Features::load(&mos) {
            Ok(features) => drop(unreadable(features.as_ref())?),
            // These objects may lie on a removed vdev.
            Err(_) if opened.config.has_removed() => {}
            Err(error) => return Err(damaged(error.to_string())),
        }
        let config_object = mos.need("config").map_err(|e| damaged(e.to_string()))?;
        let list = mos.packed(config_object).map_err(|e| damaged(e.to_string()))?;
        let stored = PoolConfig::from_nvlist(&list).map_err(|e| damaged(e.to_string()))?;
        let guid_sum = stored.tree.guid_sum();
        // The state belongs to the pool from which this pool is split off.
        let config = options.split.as_ref().map_or(stored, |apart| apart.config.clone());
        // The MOS may name the pool differently than the labels do.
        check_name(options, &config.name)?;
        if guid_sum != opened.uberblock.guid_sum {
            return Err(damaged("the device guids do not add up: a device is missing".into()));
        }
        let storage = storage_of(&opened, Some(&config), options)?;
        let objset = Objset::open(storage.clone(), budget.clone(), opened.uberblock.root)?;
        let mos = Mos::new(objset, options.host.clone(), config.version);
        crate::moved::load(&mos, &storage, &config)?;
        new_vdevs::load_classes(&mos, &storage, &config.tree).map_err(|e| damaged(e.to_string()))?;
        let features = Features::load(&mos)?;
        let unwritable = unreadable(features.as_ref())?;
        let cannot_be_kept = redundancy::judge(&mos, &storage, &config, &opened.newest, &opened.members)?;
        let new_salt = set_salt(&mos, &storage, options)?.filter(|_| config.version >= VERSION_FEATURES);
        let read = Read {
            opened,
            config,
            config_object,
            storage,
            budget,
            mos,
            features,
            unwritable,
            cannot_be_kept,
            new_salt,
        };
        Ok(read)
    }

    /// The top-level vdevs that take no new blocks, by id.
    fn closed(&self) -> Vec<u32> {
        let mut closed = evacuation::non_allocating(&self.config);
        closed.extend(lacking_logs(&self.storage));
        closed
    }

    /// The first reason, if any, for which this build does not write the pool.
    fn refused(&self, options: &Options) -> Result<Option<NotWritten>> {
        let Read { opened, config, storage, mos, unwritable, .. } = self;
        let is_big_endian = opened.uberblock.root.block().is_some_and(|root| root.order == ByteOrder::Big);
        if is_big_endian {
            return Ok(Some(NotWritten::BigEndian));
        }
        if !unwritable.is_empty() {
            return Ok(Some(NotWritten::Features(unwritable.clone())));
        }
        if let Some(why) = unwritable_devices(storage).or_else(|| self.cannot_be_kept.clone()) {
            return Ok(Some(why));
        }
        if let Some(why) = reflow::refused(config, storage, &opened.uberblock) {
            return Ok(Some(why.into()));
        }
        if let Some(why) = redundancy::may_return(config, storage, options.state.is_some()) {
            return Ok(Some(why));
        }
        // Without heartbeats another machine would take the pool while it is written here.
        if options.hostid == 0 && !options.read_only && is_multihost(mos)? {
            return Err(Error::NoHostId);
        }
        if checkpoint::kept(mos)?.is_some() && checkpoint::lacks_place(config) {
            return Ok(Some(NotWritten::CheckpointWithoutPlace));
        }
        if let Some(why) = crate::version::unwritable(config, mos.directory("deflate")?.is_some()) {
            return Ok(Some(why));
        }
        unfinished(mos)
    }

    /// Gives the pool the wanted name and marks it as imported here. Returns the name that stays on disk, if it differs.
    fn rename(&mut self, options: &Options) -> Result<Option<String>> {
        let config = &mut self.config;
        let mut name_on_disk = None;
        if let Some(new_name) = &options.new_name {
            let own = std::mem::replace(&mut config.name, new_name.clone());
            name_on_disk = options.temporary.then_some(own);
        }
        config.state = PoolState::Active;
        config.hostid = if is_multihost(&self.mos)? { options.hostid.into() } else { 0 };
        config.hostname = Some(history::host_name());
        Ok(name_on_disk)
    }

    /// The parts of the pool that its threads share.
    fn inner(
        &mut self,
        options: &Options,
        synced: Txg,
        allocator: &Allocator,
        refused: Option<NotWritten>,
    ) -> Inner {
        let info = Info {
            config: self.config.clone(),
            space: allocator.space(),
            vdev_space: Default::default(),
            features: self.features.as_ref().map(|f| f.all().clone()).unwrap_or_default(),
            dedup: Default::default(),
            clones: Default::default(),
            txg: synced,
            root: self.opened.uberblock.root,
            checkpoint: None,
        };
        let parts = Parts {
            storage: self.storage.clone(),
            budget: self.budget.clone(),
            mos: self.mos.clone(),
            info,
            uberblock: self.opened.uberblock.clone(),
            members: std::mem::take(&mut self.opened.members),
            refused,
            non_allocating: evacuation::non_allocating(&self.config),
            aux_disks: Vec::new(),
        };
        Inner::new(options, parts)
    }
}

/// The space of a pool that is being imported, and the work that continues in it.
struct Loaded {
    /// The last txg on the disks.
    synced: Txg,
    allocator: Allocator,
    table: MapTable,
    logs: Logs,
    keeping: Keeping,
    evacuating: Option<Evacuating>,
}

impl Loaded {
    fn of(read: &Read, options: &Options) -> Result<Loaded> {
        // The numbers of discarded txgs are not used again, because two states on the devices must not have the same txg.
        let synced = options.state.as_ref().map_or(read.opened.uberblock.txg, |state| state.newest);
        let (mut allocator, table, logs) = load_space(&read.mos, &read.storage, &read.config, synced)?;
        allocator.force_ganging(options.force_ganging);
        let keeping = Keeping::read(&read.mos, &read.config, read.features.as_ref())?;
        allocator.keep_born_until(keeping.until());
        let evacuating = evacuation::resume(&read.mos, &read.config, &mut allocator)?;
        Ok(Loaded { synced, allocator, table, logs, keeping, evacuating })
    }

    /// The intent logs that a crash left, if the pool is written; their blocks are allocated. A pool whose logs cannot be claimed is not
    /// written.
    fn claim_logs(
        &mut self,
        inner: &mut Inner,
        read: &Read,
        options: &Options,
    ) -> Result<Vec<recover::Found>> {
        if inner.terms.read_only().is_some() {
            return Ok(Vec::new());
        }
        let drop_known = drop_known(&read.opened, options)
            .or_else(|| gives_logs_up(&read.storage, options).then_some(self.synced));
        match claim_logs(inner, &mut self.allocator, &self.table, &self.logs, drop_known) {
            Err(Error::Replay { dataset, why }) => {
                inner.multihost.leave();
                inner.terms.refuse(NotWritten::Log { dataset, why });
                Ok(Vec::new())
            }
            found => found,
        }
    }

    /// The state with which the sync thread begins.
    fn into_state(self, mut read: Read, inner: &Inner, options: &Options) -> Result<SyncState> {
        let Loaded { mut allocator, table, logs, keeping, evacuating, .. } = self;
        let freeing = goes_on_freeing(inner);
        read.closed().iter().for_each(|id| allocator.set_allocating(VdevId(*id), false));
        if options.anonymous {
            read.opened.disks.clear();
        }
        let listed = redundancy::listed(inner, &mut read.config, &read.opened.disks)?;
        let (ddt, brt) = references(inner)?;
        let condensing = Condensing::resume(&inner.mos, &read.config)?;
        let reflow = Reflow::resume(&inner.mos, &read.config, &read.opened.uberblock)?;
        Ok(SyncState {
            table,
            logs,
            ddt,
            brt,
            features: read.features,
            listed,
            config_object: read.config_object,
            keeping,
            evacuating,
            reflow,
            condensing,
            freeing,
            fresh: true,
            new_salt: read.new_salt,
            ..SyncState::at_rest(allocator, read.config, read.opened.uberblock)
        })
    }
}

/// Publishes the figures of the pool's space to its users.
fn publish(inner: &Arc<Inner>, state: &SyncState, synced: Txg) {
    crate::sync::publish(inner, state, synced);
    let (allocatable, deferred) = (state.allocator.allocatable(), state.allocator.space().deferred);
    let synced = inner.groups.lock().synced;
    inner.groups.synced(synced, allocatable, deferred, state.freeing);
}

/// Sets the salt of the pool's checksums from disk. If there is none, makes a new one and returns it.
fn set_salt(mos: &Mos, storage: &Storage, options: &Options) -> Result<Option<[u8; 32]>> {
    let salt = zap::lookup(&*mos.object(crate::mos::DIRECTORY)?, b"org.illumos:checksum_salt")?;
    let salt = salt.as_ref().and_then(|v| v.as_bytes()).and_then(|b| <[u8; 32]>::try_from(b).ok());
    if let Some(salt) = salt {
        storage.set_salt(salt);
        return Ok(None);
    }
    let mut salt = [0; 32];
    options.host.entropy.fill(&mut salt);
    storage.set_salt(salt);
    Ok(Some(salt))
}

/// The state to import. `None`: the newest one in the labels.
fn given_state(options: &Options) -> Option<Uberblock> {
    let found = || options.state.as_ref().map(|state| state.uberblock.clone());
    let apart = || options.split.as_ref().map(|apart| apart.uberblock.clone());
    options.leased.clone().or_else(found).or_else(apart)
}

impl Pool {
    /// Opens a pool that [`discover`] found.
    ///
    /// # Errors
    /// Devices are missing or in use, the pool is damaged or uses what this build cannot read.
    pub fn import(found: &Found, options: Options) -> Result<Pool> {
        let access = if options.leased.is_some() {
            Access::Peek
        } else if options.read_only {
            Access::ReadOnly
        } else {
            Access::ReadWrite { exclusive: true }
        };
        let mut disks: Vec<Arc<dyn Disk>> = Vec::new();
        for path in found.devices.values() {
            disks.push(Arc::new(open_disk(path, access)?));
        }
        Pool::import_disks(disks, options)
    }

    /// The removed vdevs of a pool that [`discover`] found: labels do not list them.
    ///
    /// # Errors
    /// Devices are missing, the pool is damaged or uses what this build cannot read.
    pub fn removed_vdevs(found: &Found) -> Result<Vec<VdevConfig>> {
        let open = |path| open_disk(path, Access::Peek).map(|disk| Arc::new(disk) as Arc<dyn Disk>);
        let disks = found.devices.values().map(|path| open(path)).collect::<Result<Vec<_>>>()?;
        let options =
            Options { read_only: true, missing_logs: MissingLogs::KnownAbsent, ..Options::default() };
        let config = Read::of(choose_state(disks, None)?, &options)?.config;
        let mut all = config.tree.children;
        all.retain(|vdev| vdev.kind == VdevKind::Indirect);
        Ok(all)
    }

    /// Opens the pool whose devices are given.
    ///
    /// # Errors
    /// As [`Pool::import`].
    pub fn import_disks(disks: Vec<Arc<dyn Disk>>, options: Options) -> Result<Pool> {
        let (opened, watched) = watched_state(disks, &options)?;
        let mut read = Read::of(opened, &options)?;
        let refused = read.refused(&options)?;
        let mut loaded = Loaded::of(&read, &options)?;
        let name_on_disk = read.rename(&options)?;
        let mut inner = read.inner(&options, loaded.synced, &loaded.allocator, refused);
        begin_multihost(&inner, watched, &options)?;
        let left = loaded.claim_logs(&mut inner, &read, &options)?;
        let synced = loaded.synced;
        let state = SyncState { name_on_disk, ..loaded.into_state(read, &inner, &options)? };
        let inner = Arc::new(inner);
        publish(&inner, &state, synced);
        Pool::begin(inner, state, left, &options)
    }

    /// Starts the threads of an imported pool. Claims intent logs and continues work that a crash interrupted.
    fn begin(
        inner: Arc<Inner>,
        mut state: SyncState,
        left: Vec<recover::Found>,
        options: &Options,
    ) -> Result<Pool> {
        if inner.terms.read_only().is_none() {
            crate::sync::reflow::recover(&inner, &mut state)?;
        }
        inner.happened(if options.is_new { "pool_create" } else { "pool_import" }, &[]);
        let pool = Pool::start(inner, state);
        if let Some(apart) = &options.split {
            pool.settle_split(apart)?;
        }
        if pool.read_only().is_none() {
            pool.hold_aux_vdevs();
        }
        pool.take_over_logs(left)?;
        pool.remove_unfinished()?;
        if let Some(state) = &options.state
            && pool.read_only().is_none()
        {
            pool.leave_behind(state.txg(), state.newest)?;
        }
        if pool.read_only().is_none() {
            pool.note_places_of_aux()?;
            pool.inner.autoexpand()?;
            pool.resume_treatments();
        }
        Ok(pool)
    }

    /// After a return to the state of `kept`: removes later uberblocks, up to `newest`, from the labels. From now on, blocks
    /// of those later states may be overwritten.
    fn leave_behind(&self, kept: Txg, newest: Txg) -> Result<()> {
        self.sync()?;
        // The sync thread is the only writer of labels.
        self.run(move |syncing| {
            let vdevs = syncing.inner.storage.vdevs();
            for top in vdevs.tops() {
                for leaf in top.leaves().filter(|leaf| leaf.distributed().is_none()) {
                    labels::forget_states(&leaf.disk, kept, newest, top.ashift)?;
                }
            }
            Ok(vdevs.flush()?)
        })
    }

    /// Records on disk that the logs of a crash were claimed. The crates above replay them, because they know the meaning of
    /// the records.
    fn take_over_logs(&self, left: Vec<recover::Found>) -> Result<()> {
        if left.is_empty() {
            return Ok(());
        }
        for log in left {
            let shared = self.shared();
            let dataset = self.inner.open_sealed(&info::info(&self.inner.view(), &log.name)?)?;
            drop(shared);
            log.hand_over(&dataset);
        }
        self.sync()
    }
}

/// The state to import, and what is known of other machines that may hold the pool.
fn watched_state(disks: Vec<Arc<dyn Disk>>, options: &Options) -> Result<(Opened, Option<Watched>)> {
    let is_watched = options.split.is_none() && (!options.read_only || options.watched);
    let watched = if is_watched { importer::watch(&disks, options)? } else { None };
    let opened = choose_state(disks.clone(), given_state(options))?;
    check_name(options, &opened.config.name)?;
    match options.to_checkpoint {
        true => Ok((to_checkpoint(opened, disks, options, watched)?, None)),
        false => Ok((opened, watched)),
    }
}

/// The pool as of its checkpoint, which becomes its newest state, unless it is opened for reading only.
fn to_checkpoint(
    opened: Opened,
    disks: Vec<Arc<dyn Disk>>,
    options: &Options,
    watched: Option<Watched>,
) -> Result<Opened> {
    let read = Read::of(opened, options)?;
    let kept = checkpoint::kept(&read.mos)?.ok_or(Error::NoCheckpoint)?;
    let now = options.host.clock.now().0;
    let rewound = checkpoint::rewound(&kept, &read.opened.uberblock, now);
    if !options.read_only {
        if let Some(reason) = read.refused(options)? {
            return Err(Error::ReadOnly { pool: read.config.name.clone(), reason });
        }
        if let Some(watched) = watched {
            watched.claim(&read.storage, &read.config.tree, options)?;
        }
        checkpoint::write_rewound(&read.storage, &rewound)?;
    }
    choose_state(disks, Some(rewound))
}

/// Refuses a name that no user may give to a pool, because the name becomes part of paths.
fn check_name(options: &Options, on_disk: &str) -> Result<()> {
    let name = options.new_name.as_deref().unwrap_or(on_disk);
    names::check_pool(name, false).map_err(|why| Error::BadPoolName { name: name.to_owned(), why })
}

/// If intent logs must be dropped: the last txg that the space maps cover. After a return to a checkpoint, no space map
/// covers blocks that were born later.
fn drop_known(opened: &Opened, options: &Options) -> Option<Txg> {
    match opened.uberblock.checkpoint_txg {
        Txg(0) => options.state.as_ref().map(|state| state.uberblock.txg),
        kept => Some(kept),
    }
}

/// Whether the intent logs are discarded because a device that may hold parts of them is missing.
fn gives_logs_up(storage: &Storage, options: &Options) -> bool {
    options.missing_logs == MissingLogs::GivenUp && !lacking_logs(storage).is_empty()
}

/// Finds the intent logs that a crash left and claims their blocks, before other blocks can be allocated there. Logs of a
/// discarded state are dropped; then `drop_known` is the last txg that the space maps cover.
fn claim_logs(
    inner: &Inner,
    allocator: &mut Allocator,
    maps: &MapTable,
    logs: &Logs,
    drop_known: Option<Txg>,
) -> Result<Vec<recover::Found>> {
    let synced = inner.info().txg;
    let known = drop_known.unwrap_or_else(|| inner.leases.synced_txg());
    let found = recover::scan(inner, known, drop_known.is_some())?;
    // The next txg must be higher than the birth of every block in the logs.
    let newest = found.iter().map(recover::Found::newest).fold(synced, Txg::max);
    inner.groups.skip_to(newest);
    redundancy::miss_gap(inner, synced, newest);
    let tops = inner.storage.vdevs().tops();
    let mut source = Source { objset: Some(&inner.mos.objset), tops, maps, logs };
    recover::claim(&found, allocator, &inner.storage, newest.next(), &mut source)?;
    Ok(found)
}

/// Refuses unfinished work of OpenZFS that this build cannot continue.
fn unfinished(mos: &Mos) -> Result<Option<NotWritten>> {
    match crate::scan_state::read(mos) {
        Ok(Some(scan)) if scan.is_scrubbing() || scan.is_resilvering() => {}
        Ok(Some(Scan { state: ScanState::Scanning, .. })) => {
            return Ok(Some(NotWritten::UnknownScan));
        }
        Ok(Some(Scan { state: ScanState::ErrorScrubbing, .. })) => {
            return Ok(Some(NotWritten::ErrorScrub));
        }
        Ok(_) => {}
        Err(error) => return Ok(Some(NotWritten::DamagedScan(error.to_string()))),
    }
    crate::moved::unfinished(mos)
}
