//! Opening the pools that were found.
//!
//! Source: docs/format/01-labels-uberblock.md §4.3, §5.1; 10-create-checklist.md §F.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, RwLock};

use dmu::{DirtyBudget, Objset, zap};
use format::config::{PoolConfig, PoolState, VERSION_FEATURES, VdevConfig, VdevKind};
use format::scan::{Scan, ScanState};
use format::uberblock::Uberblock;
use format::{ByteOrder, Guid, ObjectId, Txg, VdevId, label};
use storage::allocator::{Allocator, METASLABS_MAX};
use storage::host::{Access, Disk, FileDisk, OpenError};
use storage::layout::Raidz;
use storage::{Leaf, Shape, Storage, TopVdev, Vdevs};

use crate::create::vdev_spec;
use crate::discover::{Found, absent_below};
use crate::features::Features;
use crate::labels;
use crate::leases::Leases;
use crate::members::{self, Members};
use crate::mos::Mos;
use crate::options::Options;
use crate::pool::{Info, Inner, Pool};
use crate::props::names;
use crate::redundancy::{self, Newest};
use crate::space_maps::{self, Logs, MapTable, Source};
use crate::sync::SyncState;
use crate::throttle::Limits;
use crate::tx::Groups;
use crate::zil::recover;
use crate::zil::stash::LogSpace;
use crate::{Error, Result, bpobj, bptree, history};

/// The open devices of a pool with the state that was chosen.
struct Opened {
    disks: HashMap<u64, Arc<dyn Disk>>,
    uberblock: Uberblock,
    config: PoolConfig,
    tops: BTreeMap<u64, VdevConfig>,
    /// The txgs of the newest two states of each device, by its guid.
    newest: HashMap<u64, Newest>,
    members: Members,
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

    /// Opens the pool whose devices are given.
    ///
    /// # Errors
    /// As [`Pool::import`].
    pub fn import_disks(disks: Vec<Arc<dyn Disk>>, options: Options) -> Result<Pool> {
        let given =
            options.leased.clone().or_else(|| options.state.as_ref().map(|state| state.uberblock.clone()));
        let opened = choose_state(disks, given)?;
        let name = opened.config.name.clone();
        check_name(&options, &name)?;
        let provisional = storage_of(&opened, None, &options)?;
        let budget = Arc::new(DirtyBudget::default());
        let damaged = |why: String| Error::Damaged { pool: name.clone(), why };
        let objset = Objset::open(provisional, budget.clone(), opened.uberblock.root)
            .map_err(|error| damaged(format!("its root cannot be read: {error}")))?;
        let mos = Mos { objset: Arc::new(objset), host: options.host.clone() };
        let features = Features::load(&mos).map_err(|e| damaged(e.to_string()))?;
        let (unreadable, unwritable) = features.as_ref().map(Features::unsupported).unwrap_or_default();
        if !unreadable.is_empty() {
            return Err(Error::Unreadable { pool: name, what: unreadable.join(", ") });
        }
        let config_object = mos.need("config").map_err(|e| damaged(e.to_string()))?;
        let list = mos.packed(config_object).map_err(|e| damaged(e.to_string()))?;
        let mut config = PoolConfig::from_nvlist(&list).map_err(|e| damaged(e.to_string()))?;
        // The MOS may name the pool differently than the labels do.
        check_name(&options, &config.name)?;
        let guid_sum = config.tree.guid_sum();
        if guid_sum != opened.uberblock.guid_sum {
            return Err(damaged("the device guids do not add up: a device is missing".into()));
        }
        // The MOS tells the truth about the vdev tree; labels only led here.
        let storage = storage_of(&opened, Some(&config), &options)?;
        let objset = Objset::open(storage.clone(), budget.clone(), opened.uberblock.root)?;
        let mos = Mos { objset: Arc::new(objset), host: options.host.clone() };
        let features = Features::load(&mos)?;
        let cannot_be_kept = redundancy::judge(&mos, &storage, &config, &opened.newest, &opened.members)?;
        let salt = zap::lookup(&*mos.object(crate::mos::DIRECTORY)?, b"org.illumos:checksum_salt")?;
        let salt = salt.as_ref().and_then(|v| v.as_bytes()).and_then(|b| <[u8; 32]>::try_from(b).ok());
        let mut new_salt = None;
        match salt {
            Some(salt) => storage.set_salt(salt),
            None => {
                let mut salt = [0; 32];
                options.host.entropy.fill(&mut salt);
                storage.set_salt(salt);
                new_salt = (config.version >= VERSION_FEATURES).then_some(salt);
            }
        }
        let mut refused = None;
        let mut refuse = |reason: String| {
            refused.get_or_insert(reason);
        };
        if opened.uberblock.root.block().is_some_and(|root| root.order == ByteOrder::Big) {
            refuse("a big-endian machine wrote it last".into());
        }
        if !unwritable.is_empty() {
            refuse(format!("it uses {}, which this version of cenote does not write", unwritable.join(", ")));
        }
        let is_left_behind = || redundancy::may_return(&config, &storage, options.state.is_some());
        if let Some(why) = unwritable_devices(&storage).or(cannot_be_kept).or_else(is_left_behind) {
            refuse(why);
        }
        if opened.config.state == PoolState::Active
            && opened.uberblock.mmp.is_some_and(|mmp| mmp.delay_ns != 0)
        {
            refuse("its property multihost is on: another machine may be using it".into());
        }
        if !crate::version::is_written(config.version) {
            refuse(format!("pools of version {} are not written", config.version));
        }
        if let Some(why) = unfinished(&mos)? {
            refuse(why);
        }
        let asked = options.read_only.then(|| "it was opened for reading only".to_owned());
        // Txgs that are given up are not used again: no device may hold two states of one number.
        let synced = options.state.as_ref().map_or(opened.uberblock.txg, |state| state.newest);
        let (mut allocator, table, logs) = load_space(&mos, &storage, &config, synced)?;
        allocator.force_ganging(options.force_ganging);
        let mut name_on_disk = None;
        if let Some(new_name) = &options.new_name {
            let own = std::mem::replace(&mut config.name, new_name.clone());
            name_on_disk = options.temporary.then_some(own);
        }
        config.state = PoolState::Active;
        config.hostid = 0;
        config.hostname = Some(history::host_name());
        let info = Info {
            config: config.clone(),
            space: allocator.space(),
            vdev_space: Default::default(),
            features: features.as_ref().map(|f| f.all().clone()).unwrap_or_default(),
            txg: synced,
            root: opened.uberblock.root,
        };
        let closed = crate::vdev_props::non_allocating(&config);
        let (limits, suspension) = (Limits::of(&options), storage.suspension().clone());
        let groups = Groups::new(synced, options.stepwise, limits, budget.clone(), suspension);
        let mut inner = Inner {
            storage,
            budget,
            host: options.host.clone(),
            groups: Arc::new(groups),
            mos,
            datasets: Mutex::new(HashMap::new()),
            logged: Mutex::default(),
            log_space: LogSpace::default(),
            dirty: Mutex::default(),
            read_only: asked.or_else(|| refused.clone()),
            refused,
            info: RwLock::new(info),
            promises: Default::default(),
            dsl: RwLock::new(()),
            altroot: options.altroot.clone(),
            command: Mutex::new(None),
            scrub: Default::default(),
            leases: Leases::new(opened.uberblock.clone()),
            events: Default::default(),
            user: options.user,
            non_allocating: Mutex::new(closed.clone()),
            aux_disks: Mutex::default(),
            members: opened.members,
        };
        let mut left = Vec::new();
        if inner.read_only.is_none() {
            match claim_logs(&inner, &mut allocator, &table, &logs, options.state.is_some()) {
                Ok(found) => left = found,
                Err(Error::Unsupported(why)) => {
                    inner.refused = Some(why);
                    inner.read_only.clone_from(&inner.refused);
                }
                Err(error) => return Err(error),
            }
        }
        let freeing = inner.read_only.is_none()
            && is_freeing(&inner.mos).unwrap_or_else(|error| {
                tracing::warn!(%error, "what waits to be freed cannot be read: it stays allocated");
                false
            });
        closed.iter().for_each(|id| allocator.set_allocating(VdevId(*id), false));
        let (space, allocatable) = (allocator.space(), allocator.allocatable());
        let listed = redundancy::listed(&inner, &mut config, &opened.disks)?;
        let state = SyncState {
            allocator,
            table,
            logs,
            features,
            listed,
            config,
            config_object,
            config_dirty: true,
            uberblock: opened.uberblock,
            mos_delta: Default::default(),
            freeing,
            fresh: true,
            new_salt,
            name_on_disk,
        };
        let inner = Arc::new(inner);
        crate::sync::publish(&inner, &state, synced);
        let synced = inner.groups.lock().synced;
        inner.groups.synced(synced, allocatable, space.deferred, freeing);
        inner.happened("pool_import", &[]);
        let pool = Pool::start(inner, state);
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
        Ok(pool)
    }

    /// After a return to the state of `kept`: makes sure that later states, up to `newest`, are not found any more.
    /// What they refer to is overwritten from now on.
    fn leave_behind(&self, kept: Txg, newest: Txg) -> Result<()> {
        self.sync()?;
        // In the sync thread nobody else writes labels.
        self.run(move |syncing| {
            let vdevs = syncing.inner.storage.vdevs();
            for top in vdevs.tops() {
                for leaf in top.leaves() {
                    labels::forget_states(&leaf.disk, kept, newest, top.ashift)?;
                }
            }
            Ok(vdevs.flush()?)
        })
    }

    /// Writes that the logs of a crash were claimed. They are replayed by whoever knows what the records mean.
    fn take_over_logs(&self, left: Vec<recover::Found>) -> Result<()> {
        if left.is_empty() {
            return Ok(());
        }
        for log in left {
            let dataset = self.open(&log.name)?;
            log.hand_over(&dataset);
        }
        self.sync()
    }
}

/// Refuses a pool that would get a name which no user may give to a pool: its name becomes part of paths.
fn check_name(options: &Options, on_disk: &str) -> Result<()> {
    let name = options.new_name.as_deref().unwrap_or(on_disk);
    names::check_pool(name, false).map_err(|why| Error::BadPoolName { name: name.to_owned(), why })
}

/// Finds the logs that a crash left and claims their blocks, before anything else can be allocated there. Logs that
/// go with a state that is given up are to be dropped.
fn claim_logs(
    inner: &Inner,
    allocator: &mut Allocator,
    maps: &MapTable,
    logs: &Logs,
    drop_logs: bool,
) -> Result<Vec<recover::Found>> {
    let synced = inner.info().txg;
    let found = recover::scan(inner, inner.leases.synced_txg(), drop_logs)?;
    // No block of the pool may be younger than the pool: it goes on behind the newest of them.
    let newest = found.iter().map(recover::Found::newest).fold(synced, Txg::max);
    inner.groups.skip_to(newest);
    redundancy::miss_gap(inner, synced, newest);
    let tops = inner.storage.vdevs().tops();
    let mut source = Source { objset: Some(&inner.mos.objset), tops, maps, logs };
    recover::claim(&found, allocator, &inner.storage, newest.next(), &mut source)?;
    Ok(found)
}

/// Opens a device, telling who has it if somebody does.
///
/// # Errors
/// [`Error::Busy`], [`Error::BadDevice`], [`Error::Io`].
pub fn open_disk(path: &Path, access: Access) -> Result<FileDisk> {
    FileDisk::open(path, access).map_err(|error| match error {
        OpenError::InUse { path, holder } => Error::Busy { path, holder: holder.map(|h| h.to_string()) },
        OpenError::HeldByKernel { path } => Error::Busy { path, holder: Some("the system".into()) },
        OpenError::NotADisk { path } => {
            Error::BadDevice { path, why: "it is neither a file nor a block device".into() }
        }
        OpenError::NoPartition { path, why } => Error::BadDevice { path, why },
        OpenError::Io { path, source } => Error::Io { path, source },
    })
}

/// Reads all labels and takes the best uberblock of all devices, with each device's configuration for that txg.
///
/// A power cut may have left the newest uberblock on one device only, while another one has a label for it, and
/// neither an uberblock as new nor a label as old as its own: what counts is the state of the pool.
fn choose_state(disks: Vec<Arc<dyn Disk>>, given: Option<Uberblock>) -> Result<Opened> {
    let nothing = |path| Error::NotAPool { path, why: "no label with a valid state of a pool" };
    let first_path = disks.first().map(|disk| disk.path().to_path_buf()).unwrap_or_default();
    let read = |disk: Arc<dyn Disk>| (labels::read(&*disk), disk);
    let mut devices: Vec<_> = disks.into_iter().map(read).collect();
    let best = devices.iter().filter_map(|(labels, _)| labels.best.clone()).max_by_key(Uberblock::rank);
    // Of a given state only the way to its devices is sought here.
    let uberblock = given.or(best).ok_or_else(|| nothing(first_path.clone()))?;
    // Those with the uberblock first: they say how the pool is called and how many devices it has.
    devices.sort_by_key(|(labels, _)| !labels.uberblocks.contains(&uberblock));
    let mut opened: Option<Opened> = None;
    for (labels, disk) in devices {
        let Some(config) = labels.config_for(uberblock.txg) else { continue };
        let opened = opened.get_or_insert_with(|| Opened {
            disks: HashMap::new(),
            uberblock: uberblock.clone(),
            config: config.clone(),
            tops: BTreeMap::new(),
            newest: HashMap::new(),
            members: Members::default(),
        });
        if let Some(guids) = &config.label {
            let states = labels.uberblocks.iter().map(|uberblock| uberblock.txg);
            opened.newest.extend(Newest::of(states).map(|newest| (guids.guid.0, newest)));
            opened.disks.insert(guids.guid.0, disk);
        }
        opened.tops.entry(config.tree.id).or_insert_with(|| config.tree.clone());
    }
    opened.ok_or_else(|| nothing(first_path))
}

/// Storage on the opened devices, laid out as the labels say, or as `trusted` says.
fn storage_of(opened: &Opened, trusted: Option<&PoolConfig>, options: &Options) -> Result<Arc<Storage>> {
    let count = opened.config.vdev_children.min(1 << 16);
    let mut tops = Vec::new();
    match trusted {
        Some(config) => {
            for vdev in &config.tree.children {
                tops.push(top_vdev(vdev, opened));
            }
        }
        None => {
            for id in 0..count {
                tops.push(match opened.tops.get(&id) {
                    Some(vdev) => top_vdev(vdev, opened),
                    None => TopVdev {
                        id: id as u32,
                        guid: 0,
                        ashift: 9,
                        asize: 0,
                        metaslab_shift: 0,
                        is_log: false,
                        shape: Shape::Missing,
                    },
                });
            }
        }
    }
    let is_missing = |top: &&TopVdev| matches!(top.shape, Shape::Missing);
    let missing: Vec<u32> = tops.iter().filter(is_missing).map(|top| top.id).collect();
    if !missing.is_empty() {
        let devices = missing.iter().flat_map(|id| absent(opened, trusted, *id)).collect();
        return Err(Error::MissingDevices { pool: opened.config.name.clone(), devices });
    }
    for (id, top) in tops.iter().enumerate() {
        if top.id as usize != id {
            let why = format!("vdev {id} calls itself {}", top.id);
            return Err(Error::Damaged { pool: opened.config.name.clone(), why });
        }
    }
    Ok(Arc::new(Storage::new(
        Vdevs::new(tops),
        options.storage(if options.read_only { 0 } else { options.io_threads }),
    )))
}

/// The devices of top-level vdev `id` that are not there.
fn absent(opened: &Opened, trusted: Option<&PoolConfig>, id: u32) -> Vec<String> {
    let known = match trusted {
        Some(config) => config.tree.children.get(id as usize),
        None => opened.tops.get(&u64::from(id)),
    };
    let is_here = |guid| opened.disks.contains_key(&guid);
    let devices = known.map(|vdev| absent_below(vdev, &is_here)).unwrap_or_default();
    if devices.is_empty() { vec![format!("vdev {id}")] } else { devices }
}

fn leaf(vdev: &VdevConfig, opened: &Opened) -> Option<Leaf> {
    match vdev.kind {
        VdevKind::Disk | VdevKind::File if members::is_closed(vdev) => None,
        VdevKind::Disk | VdevKind::File => {
            let disk = opened.disks.get(&vdev.guid.0)?.clone();
            Some(Leaf::with_health(vdev.guid.0, disk, opened.members.of(vdev.guid.0)))
        }
        // While a device is replaced, either of the two will do for reading.
        VdevKind::Replacing | VdevKind::Spare => vdev.children.iter().find_map(|child| leaf(child, opened)),
        _ => None,
    }
}

/// The shape of a raidz vdev, if as many of its devices are there as it needs.
fn raidz(vdev: &VdevConfig, parity: u64, children: Vec<Option<Leaf>>) -> Shape {
    let ashift = vdev.top.as_ref().map_or(9, |top| top.ashift);
    let absent = children.iter().filter(|child| child.is_none()).count();
    match Raidz::new(ashift, children.len(), parity) {
        None => Shape::Unsupported("a raidz vdev that cannot be"),
        Some(layout) if absent > layout.parity() => Shape::Missing,
        Some(layout) => Shape::Raidz { layout, children },
    }
}

fn top_vdev(vdev: &VdevConfig, opened: &Opened) -> TopVdev {
    let children =
        || -> Vec<Option<Leaf>> { vdev.children.iter().map(|child| leaf(child, opened)).collect() };
    // All leaves below a mirror hold the same.
    let sides = || -> Vec<Option<Leaf>> { vdev.leaves().map(|side| leaf(side, opened)).collect() };
    let shape = match &vdev.kind {
        VdevKind::Disk | VdevKind::File => match leaf(vdev, opened) {
            Some(leaf) => Shape::Disk(leaf),
            None => Shape::Missing,
        },
        VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare => match sides() {
            all if all.iter().any(Option::is_some) => Shape::Mirror(all),
            _ => Shape::Missing,
        },
        VdevKind::Raidz { nparity } => raidz(vdev, u64::from(*nparity), children()),
        VdevKind::Hole => Shape::Hole,
        VdevKind::Draid { .. } => Shape::Unsupported("draid"),
        VdevKind::Indirect => Shape::Unsupported("removed (indirect)"),
        _ => Shape::Missing,
    };
    let top = vdev.top.as_ref();
    TopVdev {
        id: vdev.id as u32,
        guid: vdev.guid.0,
        ashift: top.map_or(9, |t| t.ashift),
        asize: top.map_or(0, |t| t.asize),
        metaslab_shift: top.map_or(0, |t| t.metaslab_shift),
        is_log: top.is_some_and(|t| t.is_log),
        shape,
    }
}

/// Why the devices are not written as they are.
fn unwritable_devices(storage: &Storage) -> Option<String> {
    let tops = storage.vdevs().tops();
    if let Some(what) = tops.iter().find_map(|top| top.writable().err()) {
        return Some(format!("writing to {what} vdevs is not supported yet"));
    }
    cut_short(tops)
}

/// A device that ends before the data may.
fn cut_short(tops: &[TopVdev]) -> Option<String> {
    let (top, leaf) = tops.iter().find_map(|top| Some((top, top.cut_short().next()?)))?;
    let (path, size) = (leaf.disk.path().display(), leaf.disk.size());
    let needed = top.asize_of_leaf().saturating_add(label::DATA_START + label::DATA_END);
    Some(format!("{path} has {size} bytes, and was of {needed} at least: its end is missing"))
}

/// Work that OpenZFS left unfinished and that this build would have to keep in step with.
fn unfinished(mos: &Mos) -> Result<Option<String>> {
    let directory = mos.object(crate::mos::DIRECTORY)?;
    match crate::scan_state::read(mos) {
        Ok(Some(scan)) if scan.is_scrubbing() || scan.is_resilvering() => {}
        Ok(Some(Scan { state: ScanState::Scanning, .. })) => {
            return Ok(Some("a scan of an unknown kind is under way".into()));
        }
        Ok(Some(Scan { state: ScanState::ErrorScrubbing, .. })) => {
            return Ok(Some("a scrub of known errors is under way".into()));
        }
        Ok(_) => {}
        Err(error) => return Ok(Some(format!("its scan state is not understood: {error}"))),
    }
    for (key, what) in [
        ("com.delphix:removing", "a device removal"),
        ("com.delphix:condensing_indirect", "a device removal"),
        ("DDT-statistics", "a dedup table"),
    ] {
        if zap::lookup(&directory, key.as_bytes())?.is_some() {
            return Ok(Some(format!("it has {what}, which this version of cenote does not write")));
        }
    }
    Ok(None)
}

/// Metaslab arrays and logs. Metaslabs themselves load when they are needed.
fn read_tables(mos: &Mos, storage: &Storage, config: &PoolConfig) -> Result<(MapTable, Logs)> {
    let mut arrays = Vec::new();
    let mut unflushed = BTreeMap::new();
    let tops = storage.vdevs().tops();
    for (vdev, top) in config.tree.children.iter().zip(tops) {
        let Some(config) = vdev.top.as_ref().filter(|_| top.metaslab_shift > 0) else { continue };
        let count = top.metaslab_count();
        if count > METASLABS_MAX {
            return Err(Error::corrupt(config.metaslab_array)(format::Corrupt::new(
                "metaslabs of a vdev",
                count,
            )));
        }
        arrays.push((top.id, config.metaslab_array, top.metaslab_count()));
        if let Some(txgs) = unflushed_txgs(mos, vdev, top.metaslab_count())? {
            unflushed.insert(top.id, txgs);
        }
    }
    let table = MapTable::load(&mos.objset, &arrays)?;
    let logs = space_maps::load_logs(mos, tops, &unflushed)?;
    Ok((table, logs))
}

impl Inner {
    /// The space maps as they are on disk now.
    pub(crate) fn read_space_tables(&self) -> Result<(MapTable, Logs)> {
        let config = self.info().config.clone();
        read_tables(&self.mos, &self.storage, &config)
    }
}

/// The allocator with the sums of all space maps.
fn load_space(
    mos: &Mos,
    storage: &Storage,
    config: &PoolConfig,
    synced: Txg,
) -> Result<(Allocator, MapTable, Logs)> {
    let (table, logs) = read_tables(mos, storage, config)?;
    let tops = storage.vdevs().tops();
    let mut allocator = Allocator::new(synced);
    for (id, (_, maps)) in &table.vdevs {
        let top = &tops[*id as usize];
        let mut allocated = Vec::with_capacity(maps.len());
        for (metaslab, map) in maps.iter().enumerate() {
            let logged = logs.get(&(*id, metaslab as u32)).map(|entries| space_maps::log_delta(entries));
            let own = match map.0 {
                0 => None,
                _ => Some(space_maps::header(&mos.objset, *map)?.alloc),
            };
            let sum = match (own, logged) {
                (None, None) => None,
                (own, logged) => Some(own.unwrap_or(0) + logged.unwrap_or(0)),
            };
            allocated.push(sum.map(|bytes| bytes.max(0) as u64));
        }
        allocator.add_vdev(vdev_spec(top), allocated).map_err(Error::corrupt(ObjectId(0)))?;
    }
    Ok((allocator, table, logs))
}

/// Whether blocks of what was destroyed wait to be freed.
fn is_freeing(mos: &Mos) -> Result<bool> {
    let listed = mos.directory_object("free_bpobj")?.map(|list| bpobj::is_empty(mos, list)).transpose()?;
    Ok(listed == Some(false) || bptree::is_there(mos)?)
}

fn unflushed_txgs(mos: &Mos, vdev: &VdevConfig, count: u64) -> Result<Option<Vec<u64>>> {
    let Some(top_zap) = vdev.zap_top.filter(|id| id.0 != 0) else { return Ok(None) };
    let key = b"com.delphix:ms_unflushed_phys_txgs";
    let Some(array) = zap::lookup_u64(&*mos.object(top_zap)?, key)? else { return Ok(None) };
    let mut raw = vec![0; count as usize * 8];
    mos.object(ObjectId(array))?.read(0, &mut raw)?;
    Ok(Some(raw.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().expect("eight bytes"))).collect()))
}

/// The guid as users type it.
#[must_use]
pub fn parse_guid(text: &str) -> Option<Guid> {
    text.parse().ok().filter(|&n: &u64| n != 0).map(Guid)
}
