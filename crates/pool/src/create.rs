//! Making a new pool: every object of its first txg.
//!
//! Source: docs/format/10-create-checklist.md §A; 01-labels-uberblock.md §11.

use std::sync::Arc;

use dmu::{DirtyBudget, NewObject, Objset};
use dsl::new_head::{Initialise, NewFilesystem, NewHead};
use format::compression::Compression;
use format::config::{PoolConfig, PoolState, VERSION_FEATURES, VdevConfig, VdevKind};
use format::features::{self, Feature};
use format::nvlist::NvList;
use format::objset::{self, ObjsetType};
use format::uberblock::Uberblock;
use format::zap::Value;
use format::{BlockPtr, Guid, ObjectId, ObjectType, Txg, VdevId};
use storage::allocator::{Allocator, Class, VdevSpec};
use storage::host::Disk;
use storage::layout::Spread;
use storage::{Storage, TopVdev, Vdevs};

use crate::aux_vdevs::{AuxKind, NewAux};
use crate::features::Features;
use crate::members::Members;
use crate::mos::{DIRECTORY, Mos};
use crate::multihost::PROPERTY;
use crate::new_vdevs::{Layout, NewTop, make_anonymous, new_device};
use crate::options::Options;
use crate::pool::{Info, Inner, Pool};
use crate::state::{Parts, SyncState, Syncing};
use crate::treater::AUTOTRIM;
use crate::{Error, Result, aux_vdevs, bpobj, history, labels, new_vdevs, props, version};

/// Host name in labels that must not name the machine.
const ANYWHERE: &str = "localhost";
/// Checksum salts have 32 bytes.
const SALT: usize = 32;

/// Properties and layout of a new pool.
pub struct CreateSpec {
    /// Its name.
    pub name: String,
    /// Its top-level vdevs, in order.
    pub tops: Vec<NewTop>,
    /// Open devices that become caches.
    pub caches: Vec<Arc<dyn Disk>>,
    /// Open devices that become hot spares.
    pub spares: Vec<Arc<dyn Disk>>,
    /// log2 of the sector size; `None` takes each device's own.
    pub ashift: Option<u32>,
    /// 5000, or a legacy version that [`version::is_written`].
    pub version: u64,
    /// Features to enable.
    pub features: Vec<&'static Feature>,
    /// Pool properties kept in the MOS, by name.
    pub properties: Vec<(String, props::Value)>,
    /// Properties of the root file system.
    pub root_properties: Vec<(String, props::Value)>,
    /// The pool property `comment`.
    pub comment: Option<String>,
    /// The pool property `compatibility`.
    pub compatibility: Option<String>,
    /// How the root file system begins.
    pub filesystem: NewFilesystem,
    /// Fills the root file system.
    pub initialise: Initialise,
    /// The command to note as the pool's first history event.
    pub command: Option<String>,
}

impl CreateSpec {
    /// The default: a pool of single devices with the features of [`features::of_new_pools`].
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        disks: Vec<Arc<dyn Disk>>,
        filesystem: NewFilesystem,
        initialise: Initialise,
    ) -> CreateSpec {
        CreateSpec {
            name: name.into(),
            tops: disks.into_iter().map(|disk| NewTop::new(Layout::Single, vec![disk])).collect(),
            caches: Vec::new(),
            spares: Vec::new(),
            ashift: None,
            version: VERSION_FEATURES,
            features: features::of_new_pools().collect(),
            properties: Vec::new(),
            root_properties: Vec::new(),
            comment: None,
            compatibility: None,
            filesystem,
            initialise,
            command: None,
        }
    }

    /// Refuses a layout that no pool can have, or no pool with these features.
    fn check(&self) -> Result<()> {
        props::names::check_pool(&self.name, false)
            .map_err(|why| Error::BadPoolName { name: self.name.clone(), why })?;
        if !version::is_known(self.version) {
            return Err(Error::Unsupported(format!("pools of version {}", self.version)));
        }
        if !self.caches.is_empty() {
            version::check(self.version, version::CACHES)?;
        }
        if self.tops.iter().all(|top| top.class != Class::Normal) {
            return Err(Error::Unsupported("a pool without a device for data".into()));
        }
        let is_enabled = |feature: &Feature| self.features.iter().any(|other| other.guid == feature.guid);
        if !is_enabled(&features::ALLOCATION_CLASSES)
            && self.tops.iter().any(|top| new_vdevs::is_counted(top.class))
        {
            return Err(Error::NoClasses);
        }
        if !is_enabled(&features::DRAID) && self.tops.iter().any(|top| matches!(top.layout, Layout::Draid(_)))
        {
            return Err(Error::NoDraid);
        }
        Ok(())
    }

    /// The devices of all top-level vdevs.
    fn disks(&self) -> impl Iterator<Item = &Arc<dyn Disk>> {
        self.tops.iter().flat_map(|top| &top.disks)
    }

    /// The devices beside the top-level vdevs.
    fn aux_disks(&self) -> impl Iterator<Item = (AuxKind, &Arc<dyn Disk>)> {
        let caches = self.caches.iter().map(|disk| (AuxKind::Cache, disk));
        caches.chain(self.spares.iter().map(|disk| (AuxKind::Spare, disk)))
    }
}

/// The vdevs of a new pool, before anything is written.
struct Planned {
    /// The tree of the top-level vdevs.
    root: VdevConfig,
    tops: Vec<TopVdev>,
    /// Caches and spares.
    aux: Vec<NewAux>,
}

impl Planned {
    fn of(spec: &CreateSpec, options: &Options) -> Result<Planned> {
        let entropy = options.host.entropy.clone();
        let guid = move || Guid(entropy.u64().max(1));
        let mut root = VdevConfig::new(VdevKind::Root, 0, guid());
        root.create_txg = Some(Txg::INITIAL);
        let (mut tops, mut distributed, mut devices) = (Vec::new(), Vec::new(), 0);
        for (id, new) in (0..).zip(&spec.tops) {
            let (mut config, top) = new.build(id, &guid, spec.ashift)?;
            if options.anonymous {
                make_anonymous(&mut config, &spec.name, devices);
            }
            devices += new.disks.len() as u64;
            distributed.extend(aux_vdevs::distributed_spares(&config, &guid));
            root.children.push(config);
            tops.push(top);
        }
        let mut aux = Vec::new();
        for (id, (kind, disk)) in (devices..).zip(spec.aux_disks()) {
            let (config, top) = new_device(id, guid(), disk, spec.ashift)?;
            let mut config = VdevConfig { top: None, create_txg: None, ..config };
            if options.anonymous {
                make_anonymous(&mut config, &spec.name, id);
            }
            aux.push(NewAux { kind, config, ashift: top.ashift });
        }
        // These have no devices: they come behind those that do.
        aux.extend(distributed);
        Ok(Planned { root, tops, aux })
    }
}

impl Pool {
    /// Creates a pool. Everything that the devices held before is lost.
    ///
    /// # Errors
    /// A device is too small or cannot be written. All devices are checked before the first one is written. If a
    /// later write fails, the labels of the devices that were written are wiped, so that no half-made pool is left.
    pub fn create(spec: CreateSpec, options: Options) -> Result<Pool> {
        spec.check()?;
        let planned = Planned::of(&spec, &options)?;
        let touched: Vec<_> = spec.disks().chain(spec.aux_disks().map(|(_, disk)| disk)).cloned().collect();
        let made = Pool::create_on(spec, options, planned);
        if made.is_err() {
            touched.iter().for_each(|disk| drop(labels::clear(disk)));
        }
        made
    }

    /// Creates a pool on devices that passed the checks.
    fn create_on(spec: CreateSpec, options: Options, planned: Planned) -> Result<Pool> {
        let Planned { root, tops, aux } = planned;
        label_devices(&spec, &aux)?;
        let storage = Arc::new(Storage::new(Vdevs::new(tops), options.storage(options.io_threads)));
        let config = config_of(&spec, &options, root);
        let state = before_first(&spec, &options, &storage, config)?;
        let inner = Inner::new(&options, parts_of(&spec, &options, storage, &state));
        Pool::start(Arc::new(inner), state).fill(spec, aux)
    }

    /// Makes every object that a pool begins with, and uses its caches from then on.
    fn fill(self, mut spec: CreateSpec, aux: Vec<NewAux>) -> Result<Pool> {
        // Multihost begins with the heartbeats, in a txg of its own.
        let (multihost, plain) = spec.properties.into_iter().partition(|(name, _)| name == PROPERTY);
        spec.properties = plain;
        let caches: Vec<_> =
            aux.iter().cloned().zip(spec.aux_disks().map(|(_, disk)| disk.clone())).collect();
        let built = self.run(move |syncing| syncing.build(spec, &aux));
        let built = built
            .and_then(|()| if multihost.is_empty() { Ok(()) } else { self.set_pool_properties(multihost) });
        match built {
            Ok(()) => {
                self.inner.use_caches(caches.iter().map(|(aux, disk)| (aux, disk)));
                self.inner.happened("pool_create", &[]);
                Ok(self)
            }
            Err(error) => {
                self.inner.groups.fail(Arc::new(Error::Unfinished("the pool was not completed".into())));
                Err(error)
            }
        }
    }
}

/// Writes the labels that devices begin with.
fn label_devices(spec: &CreateSpec, aux: &[NewAux]) -> Result<()> {
    for disk in spec.disks() {
        labels::initialise(disk)?;
    }
    for ((_, disk), new) in spec.aux_disks().zip(aux) {
        new.label(disk, spec.version)?;
    }
    Ok(())
}

/// The configuration of a new pool with the vdev tree `root`.
fn config_of(spec: &CreateSpec, options: &Options, root: VdevConfig) -> PoolConfig {
    PoolConfig {
        version: spec.version,
        name: spec.name.clone(),
        state: PoolState::Active,
        txg: Txg(0),
        pool_guid: root.guid,
        errata: 0,
        comment: spec.comment.clone(),
        compatibility: spec.compatibility.clone(),
        hostid: 0,
        hostname: Some(if options.anonymous { ANYWHERE.to_owned() } else { history::host_name() }),
        vdev_children: root.children.len() as u64,
        hole_array: Vec::new(),
        features_for_read: None,
        has_per_vdev_zaps: true,
        label: None,
        tree: root,
        extra: NvList::new(),
    }
}

/// The state of the sync thread before the first txg: all space is free, and there is a salt that the MOS does not have
/// yet.
fn before_first(
    spec: &CreateSpec,
    options: &Options,
    storage: &Storage,
    config: PoolConfig,
) -> Result<SyncState> {
    let mut salt = [0; SALT];
    options.host.entropy.fill(&mut salt);
    storage.set_salt(salt);
    let synced = Txg(Txg::INITIAL.0 - 1);
    let mut allocator = Allocator::new(synced);
    allocator.force_ganging(options.force_ganging);
    for top in storage.vdevs().tops() {
        let spec = vdev_spec(top);
        allocator.add_vdev(spec, std::iter::empty()).map_err(Error::corrupt(ObjectId(0)))?;
    }
    let before = SyncState::at_rest(allocator, config, before_all(spec.version, synced));
    Ok(SyncState { new_salt: Some(salt), ..before })
}

/// The parts that all users of a new pool share: an empty MOS, and no space in use.
fn parts_of(spec: &CreateSpec, options: &Options, storage: Arc<Storage>, state: &SyncState) -> Parts {
    let budget = Arc::new(DirtyBudget::default());
    let size = if spec.version >= 15 { objset::SIZE_V3 } else { objset::SIZE_V1 };
    let objset = Objset::create(storage.clone(), budget.clone(), ObjsetType::Meta, 0, size);
    let info = Info {
        config: state.config.clone(),
        space: state.allocator.space(),
        vdev_space: Default::default(),
        features: Default::default(),
        dedup: Default::default(),
        clones: Default::default(),
        txg: state.uberblock.txg,
        root: BlockPtr::HOLE,
        checkpoint: None,
    };
    Parts {
        members: Members::new(storage.vdevs()),
        storage,
        budget,
        mos: Mos::new(objset, options.host.clone(), spec.version),
        info,
        uberblock: state.uberblock.clone(),
        refused: None,
        non_allocating: Vec::new(),
        aux_disks: spec.aux_disks().map(|(_, disk)| disk.clone()).collect(),
    }
}

/// The uberblock before the first one of a new pool.
fn before_all(version: u64, txg: Txg) -> Uberblock {
    Uberblock {
        version,
        txg,
        guid_sum: 0,
        timestamp: 0,
        root: BlockPtr::HOLE,
        software_version: VERSION_FEATURES,
        mmp: None,
        checkpoint_txg: Txg(0),
        raidz_reflow: 0,
    }
}

pub(crate) fn vdev_spec(top: &TopVdev) -> VdevSpec {
    VdevSpec {
        id: VdevId(top.id),
        asize: top.asize,
        ashift: top.ashift as u8,
        metaslab_shift: top.metaslab_shift as u8,
        class: top.class,
        sizes: top.spread().map(Spread::sizes),
    }
}

impl Syncing<'_> {
    /// Makes every object that a pool begins with.
    fn build(&mut self, spec: CreateSpec, aux: &[NewAux]) -> Result<()> {
        let mos = self.mos();
        let directory =
            mos.objset.create_object_at(&self.tx, DIRECTORY, NewObject::plain(ObjectType::OBJECT_DIRECTORY));
        dmu::zap::create_fat(&directory, &self.tx, mos.salt(), 0)?;
        let root = self.change(|dsl| dsl.create_special())?;
        if spec.version >= VERSION_FEATURES {
            let features = Features::create(self.mos(), &self.tx)?;
            self.state.features = Some(features);
            for feature in &spec.features {
                let mos = &self.inner.mos;
                let features = self.state.features.as_mut().expect("created just above");
                features.enable(mos, &self.tx, feature)?;
            }
        }
        let mos = self.mos();
        if spec.version >= version::HISTORY {
            history::create(mos, &self.tx, self.inner.accounts.dspace(self.inner.storage.vdevs()))?;
        }
        let config = mos.create_packed(&self.tx)?;
        self.state.config_object = config;
        mos.set_directory(&self.tx, "config", &Value::from_u64(config.0))?;
        mos.set_directory(&self.tx, "creation_version", &Value::from_u64(spec.version))?;
        if spec.version >= version::DEFLATED {
            mos.set_directory(&self.tx, "deflate", &Value::from_u64(1))?;
        }
        let frees = bpobj::create(mos, &self.tx, 16 << 10, Compression::Off.to_disk() as u8)?;
        mos.set_directory(&self.tx, "sync_bplist", &Value::from_u64(frees.0))?;
        self.create_vdev_objects()?;
        aux_vdevs::append(self.mos(), &self.tx, aux)?;
        for (name, value) in &spec.properties {
            self.set_pool_property(name, value)?;
        }
        let is_limit = |name: &str| dsl::limits::SPACE.contains(&name);
        let (limits, plain): (Vec<_>, Vec<_>) = spec.root_properties.iter().partition(|(n, _)| is_limit(n));
        for (name, value) in plain {
            self.change(|dsl| dsl.set_property(root, name, Some(value)))?;
        }
        let head = NewHead {
            dir: root,
            name: spec.name.clone(),
            os_type: ObjsetType::Zfs,
            filesystem: spec.filesystem.clone(),
            initialise: spec.initialise.clone(),
            sealed: None,
        };
        self.change(|dsl| dsl.create_root_head(head))?;
        // A limit is compared with what the dataset uses, so the dataset must exist first.
        for (name, value) in limits {
            let bytes = if let props::Value::Number(bytes) = value { *bytes } else { 0 };
            self.change(|dsl| {
                dsl.check_limit(root, name, bytes, &[])?;
                dsl.set_property(root, name, Some(value))
            })?;
        }
        if let Some(command) = &spec.command {
            history::log(self.mos(), &self.tx, command)?;
        }
        Ok(())
    }

    /// Metaslab arrays and vdev ZAPs.
    fn create_vdev_objects(&mut self) -> Result<()> {
        let mos = self.mos();
        let avz = mos.create_zap(&self.tx, ObjectType::ZAP_METADATA, 0)?;
        mos.set_directory(&self.tx, "com.delphix:vdev_zap_map", &Value::from_u64(avz.id().0))?;
        let tops = self.inner.storage.vdevs().tops();
        self.count_classes(tops)?;
        for (config, top) in self.state.config.tree.children.iter_mut().zip(tops) {
            let maps = new_vdevs::create_objects(mos, &self.tx, Some(avz.id()), config, top)?;
            self.state.table.vdevs.insert(top.id, maps);
        }
        Ok(())
    }

    /// Stores a pool property in the MOS. A user property without a text is taken away.
    pub(crate) fn set_pool_property(&mut self, name: &str, value: &props::Value) -> Result<()> {
        let mos = self.mos();
        if name == AUTOTRIM {
            self.inner.treater.set_autotrim(*value == props::Value::Number(1));
        }
        let object = match mos.directory_object("pool_props")? {
            Some(id) => mos.object(id)?,
            None => {
                let object = mos.create_zap(&self.tx, ObjectType::POOL_PROPS, 0)?;
                mos.set_directory(&self.tx, "pool_props", &Value::from_u64(object.id().0))?;
                object
            }
        };
        if props::names::is_user_property(name)
            && matches!(value, props::Value::Text(text) if text.is_empty())
        {
            if dmu::zap::lookup(&object, name.as_bytes())?.is_some() {
                dmu::zap::remove(&object, &self.tx, name.as_bytes())?;
            }
            return Ok(());
        }
        let stored = dsl::values::stored(value);
        Ok(dmu::zap::update(&object, &self.tx, name.as_bytes(), &stored)?)
    }
}
