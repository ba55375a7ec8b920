//! Creating datasets: the special ones of a new pool, and file systems.
//!
//! Source: docs/format/06-mos-dsl.md §6, §9.1; 10-create-checklist.md §A.2, §B.

use std::sync::Arc;

use dmu::{NewObject, Objset, zap};
use format::dsl_dataset::{self, DslDataset};
use format::dsl_dir::{self, DslDir, UsedBreakdown};
use format::features;
use format::objset::{self, ObjsetType};
use format::zap::{Value, int_key};
use format::znode::master::ZPL_VERSION;
use format::{BlockPtr, Guid, ObjectId, ObjectType, Txg};

use super::promises::Own;
use super::{deadlist, limits, lookup, properties};
use crate::dataset::{Dataset, Settings};
use crate::mos::Mos;
use crate::sync::Syncing;
use crate::{Error, Result, props, version};

/// Names in snapshot maps are found regardless of case where the file system wants that.
pub(crate) const FOLD_CASE: u64 = 2;
/// Objset guids have 56 bits.
const FSID_BITS: u32 = 56;

/// Objects of the DSL that a new file system is taken to need.
pub(crate) const NEW_OBJECTS: u64 = 5;

/// Fills a new file system's objset with its first objects; what these mean is `zpl`'s.
pub type Initialise = Arc<dyn Fn(&Objset, &dmu::Tx, &NewFilesystem) -> dmu::Result<()> + Send + Sync>;

/// What a new file system is to be like.
#[derive(Clone, Debug)]
pub struct NewFilesystem {
    /// Time and randomness.
    pub host: storage::host::Host,
    /// How names are normalised (`normalization`, as stored).
    pub normalization: u64,
    /// Names must be UTF-8.
    pub utf8only: bool,
    /// `casesensitivity`, as stored.
    pub casesensitivity: u64,
    /// Files carry project ids.
    pub project_quota: bool,
    /// Version of its format, 1 to 5; a pool of a legacy version may lower it.
    pub version: u64,
}

impl NewFilesystem {
    /// As most are: names are bytes, not normalised, and told apart by case; files carry project ids.
    #[must_use]
    pub fn plain(host: &storage::host::Host) -> NewFilesystem {
        NewFilesystem {
            host: host.clone(),
            normalization: 0,
            utf8only: false,
            casesensitivity: 0,
            project_quota: true,
            version: ZPL_VERSION,
        }
    }
}

pub(crate) const fn new_dir(now: u64, parent: ObjectId, version: u64) -> DslDir {
    DslDir {
        creation_time: now,
        head_dataset: ObjectId(0),
        parent,
        origin: ObjectId(0),
        child_dir_zap: ObjectId(0),
        used_bytes: 0,
        compressed_bytes: 0,
        uncompressed_bytes: 0,
        quota: 0,
        reserved: 0,
        props_zap: ObjectId(0),
        deleg_zap: ObjectId(0),
        flags: if version >= version::BREAKDOWN { dsl_dir::USED_BREAKDOWN } else { 0 },
        used_breakdown: UsedBreakdown { head: 0, snap: 0, child: 0, child_rsrv: 0, refrsrv: 0 },
        clones: ObjectId(0),
        pad: [0; 13],
    }
}

/// A new dataset's two guids: of its objset, and its own.
pub(crate) fn new_guids(mos: &Mos) -> (Guid, Guid) {
    let nonzero = |bits: u32| Guid((mos.host.entropy.u64() >> (64 - bits)).max(1));
    (nonzero(FSID_BITS), nonzero(64))
}

fn new_dataset(mos: &Mos, dir: ObjectId, now: u64) -> DslDataset {
    let (fsid_guid, guid) = new_guids(mos);
    DslDataset {
        dir,
        prev_snap: ObjectId(0),
        prev_snap_txg: Txg(0),
        next_snap: ObjectId(0),
        snapnames_zap: ObjectId(0),
        num_children: 0,
        creation_time: now,
        creation_txg: Txg(1),
        deadlist: ObjectId(0),
        referenced_bytes: 0,
        compressed_bytes: 0,
        uncompressed_bytes: 0,
        unique_bytes: 0,
        fsid_guid,
        guid,
        flags: if mos.version() >= version::UNIQUE { dsl_dataset::UNIQUE_ACCURATE } else { 0 },
        bp: BlockPtr::HOLE,
        next_clones: ObjectId(0),
        props: ObjectId(0),
        userrefs: ObjectId(0),
        pad: [0; 5],
    }
}

pub(crate) fn now(mos: &Mos) -> u64 {
    mos.host.clock.now().0
}

/// Adds `number` → `value` to a ZAP of numbers.
pub(crate) fn add_int(mos: &Mos, tx: &dmu::Tx, zap_id: ObjectId, number: u64) -> Result<()> {
    Ok(zap::insert(&mos.object(zap_id)?, tx, int_key(number).as_bytes(), &Value::from_u64(number))?)
}

impl Syncing<'_> {
    /// A directory with its property and child maps, entered into its parent's child map.
    pub(crate) fn create_dir(&mut self, parent: ObjectId, name: &str) -> Result<ObjectId> {
        let mos = self.mos();
        let new = NewObject::plain(ObjectType::DSL_DIR).bonus(ObjectType::DSL_DIR, vec![0; dsl_dir::SIZE]);
        let id = mos.create(&self.tx, new)?.id();
        let mut dir = new_dir(now(mos), parent, mos.version());
        dir.props_zap = mos.create_zap(&self.tx, ObjectType::DSL_PROPS, 0)?.id();
        dir.child_dir_zap = mos.create_zap(&self.tx, ObjectType::DSL_DIR_CHILD_MAP, 0)?.id();
        mos.put_dir(&self.tx, id, &dir)?;
        if parent.0 != 0 {
            let children = mos.object(mos.dir(parent)?.child_dir_zap)?;
            zap::insert(&children, &self.tx, name.as_bytes(), &Value::from_u64(id.0))?;
            if !name.starts_with(['$', '%']) {
                self.grant_to_creator(id, parent)?;
            }
        }
        Ok(id)
    }

    pub(crate) fn create_dataset_object(&self, phys: &DslDataset) -> Result<ObjectId> {
        let new =
            NewObject::plain(ObjectType::DSL_DATASET).bonus(ObjectType::DSL_DATASET, phys.encode().to_vec());
        Ok(self.mos().create(&self.tx, new)?.id())
    }

    /// The special directories of a new pool. Returns the root directory.
    pub(crate) fn create_special(&mut self) -> Result<ObjectId> {
        let root = self.create_dir(ObjectId(0), "")?;
        let mos = self.mos();
        mos.set_directory(&self.tx, "root_dataset", &Value::from_u64(root.0))?;
        self.create_dir(root, "$MOS")?;
        if mos.version() >= version::DEADLISTS {
            self.create_free(root)?;
        }
        if mos.version() >= version::ORIGIN {
            self.create_origin(root)?;
        }
        Ok(root)
    }

    /// The directory that blocks waiting to be freed are charged to, and their list.
    pub(crate) fn create_free(&mut self, root: ObjectId) -> Result<()> {
        self.create_dir(root, "$FREE")?;
        let free = crate::bpobj::create(self.mos(), &self.tx, 128 << 10, 0)?;
        self.mos().set_directory(&self.tx, "free_bpobj", &Value::from_u64(free.0))
    }

    /// The snapshot that all datasets begin with.
    pub(crate) fn create_origin(&mut self, root: ObjectId) -> Result<()> {
        let dir_id = self.create_dir(root, "$ORIGIN")?;
        let mos = self.mos();
        let mut head = new_dataset(mos, dir_id, now(mos));
        let names = mos.create_zap(&self.tx, ObjectType::DSL_DS_SNAP_MAP, FOLD_CASE)?;
        head.snapnames_zap = names.id();
        let head_id = self.create_dataset_object(&head)?;
        // Its one snapshot comes before everything: nothing in it, nothing before it.
        let mut snap = new_dataset(mos, dir_id, now(mos));
        snap.next_snap = head_id;
        snap.num_children = 1;
        let features = &mut self.state.features;
        snap.deadlist = deadlist::create(&self.inner.mos, features, &self.tx, &[])?;
        head.deadlist = deadlist::create(&self.inner.mos, features, &self.tx, &[Txg(0)])?;
        let snap_id = self.create_dataset_object(&snap)?;
        head.prev_snap = snap_id;
        head.prev_snap_txg = Txg(1);
        mos.put_dataset(&self.tx, head_id, &head)?;
        zap::insert(&names, &self.tx, b"$ORIGIN", &Value::from_u64(snap_id.0))?;
        let mut dir = mos.dir(dir_id)?;
        dir.head_dataset = head_id;
        mos.put_dir(&self.tx, dir_id, &dir)
    }

    /// Gives directory `dir_id` a head: a file system made by `init`, or an empty objset of another type to be
    /// filled, written in this txg.
    #[allow(clippy::too_many_arguments, reason = "what a new head is made of")]
    pub(crate) fn create_head(
        &mut self,
        dir_id: ObjectId,
        name: &str,
        new: &NewFilesystem,
        init: &Initialise,
        os_type: ObjsetType,
        first_txg: bool,
    ) -> Result<ObjectId> {
        let mos = self.mos();
        let origin_id = self.origin_of_all()?;
        let origin = match origin_id.0 {
            0 => DslDataset::default(),
            _ => mos.dataset(origin_id)?,
        };
        let mut phys = new_dataset(mos, dir_id, now(mos));
        phys.creation_txg = if first_txg { Txg(1) } else { self.txg };
        phys.prev_snap = origin_id;
        phys.prev_snap_txg = origin.creation_txg;
        phys.snapnames_zap = mos.create_zap(&self.tx, ObjectType::DSL_DS_SNAP_MAP, FOLD_CASE)?.id();
        phys.flags |= origin.flags & dsl_dataset::CASE_INSENSITIVE;
        if new.casesensitivity == 1 {
            phys.flags |= dsl_dataset::CASE_INSENSITIVE;
        }
        let features = &mut self.state.features;
        phys.deadlist = deadlist::create(&self.inner.mos, features, &self.tx, &[Txg(0)])?;
        let id = self.create_dataset_object(&phys)?;
        self.branch_off(origin_id, dir_id, id)?;
        self.write_new_objset(id, dir_id, name, new, init, os_type)?;
        Ok(id)
    }

    /// The snapshot that all datasets begin with; 0 in pools that have none.
    pub(crate) fn origin_of_all(&self) -> Result<ObjectId> {
        let mos = self.mos();
        if mos.version() < version::ORIGIN {
            return Ok(ObjectId(0));
        }
        let dir = lookup::child(mos, lookup::root_dir(mos)?, "$ORIGIN")?
            .ok_or_else(|| Error::Unsupported("pools without an $ORIGIN directory".into()))?;
        Ok(mos.dataset(mos.dir(dir)?.head_dataset)?.prev_snap)
    }

    /// Enters `head`, the head of directory `dir_id`, in the books of the snapshot that it begins with (0: none).
    pub(crate) fn branch_off(&mut self, origin_id: ObjectId, dir_id: ObjectId, head: ObjectId) -> Result<()> {
        let mos = self.mos();
        if origin_id.0 != 0 {
            self.enter_clone(origin_id, head)?;
        }
        let mut dir = mos.dir(dir_id)?;
        (dir.origin, dir.head_dataset) = (origin_id, head);
        mos.put_dir(&self.tx, dir_id, &dir)
    }

    fn enter_clone(&mut self, origin_id: ObjectId, head: ObjectId) -> Result<()> {
        let mos = self.mos();
        let mut origin = mos.dataset(origin_id)?;
        origin.num_children += 1;
        if mos.version() >= version::ORIGIN {
            if origin.next_clones.0 == 0 {
                origin.next_clones = mos.create_zap(&self.tx, ObjectType::NEXT_CLONES, 0)?.id();
            }
            add_int(mos, &self.tx, origin.next_clones, head.0)?;
        }
        mos.put_dataset(&self.tx, origin_id, &origin)?;
        if mos.version() < version::DEADLISTS {
            return Ok(());
        }
        let mut origin_dir = mos.dir(origin.dir)?;
        if origin_dir.clones.0 == 0 {
            origin_dir.clones = mos.create_zap(&self.tx, ObjectType::DSL_CLONES, 0)?.id();
            mos.put_dir(&self.tx, origin.dir, &origin_dir)?;
        }
        add_int(mos, &self.tx, origin_dir.clones, head.0)
    }

    #[allow(clippy::too_many_arguments, reason = "what a new objset is made of; one caller")]
    fn write_new_objset(
        &mut self,
        id: ObjectId,
        dir_id: ObjectId,
        name: &str,
        new: &NewFilesystem,
        init: &Initialise,
        os_type: ObjsetType,
    ) -> Result<()> {
        // Only files have owners to be charged.
        let owned = os_type == ObjsetType::Zfs;
        let features = self.state.features.as_ref();
        let enabled = |feature| owned && features.is_some_and(|f| f.is_enabled(feature));
        let (userobj, project) = (enabled(&features::USEROBJ_ACCOUNTING), enabled(&features::PROJECT_QUOTA));
        let at = self.state.config.version;
        let mut flags = if owned && at >= 15 { objset::FLAG_USER_ACCOUNTING } else { 0 };
        if userobj {
            flags |= objset::FLAG_USEROBJ_ACCOUNTING;
        }
        if project {
            flags |= objset::FLAG_PROJECT_QUOTA;
        }
        let size = if at >= 15 { objset::SIZE_V3 } else { objset::SIZE_V1 };
        let storage = self.inner.storage.clone();
        let objset = Objset::create(storage, self.inner.budget.clone(), os_type, flags, size);
        let new = NewFilesystem { version: new.version.min(version::newest_filesystem(at)), ..new.clone() };
        init(&objset, &self.tx, &new)?;
        let (settings, policy) = self.settings_of_new(dir_id, id, name)?;
        let dataset = Dataset::new(
            self.inner.clone(),
            id,
            dir_id,
            name.to_owned(),
            Arc::new(objset),
            false,
            settings,
            policy,
            Own::default(),
            Default::default(),
        );
        let frozen = dataset.objset().freeze();
        self.sync_and_settle(&dataset, frozen)?;
        for (feature, wanted) in
            [(&features::USEROBJ_ACCOUNTING, userobj), (&features::PROJECT_QUOTA, project)]
        {
            if wanted {
                self.mark_dataset(id, feature)?;
            }
        }
        Ok(())
    }

    pub(crate) fn settings_of_new(
        &self,
        dir_id: ObjectId,
        id: ObjectId,
        name: &str,
    ) -> Result<(Settings, dmu::Policy)> {
        let mos = self.mos();
        let info = lookup::DatasetInfo {
            name: name.to_owned(),
            kind: props::DatasetKind::Filesystem,
            dir_id,
            id,
            dir: mos.dir(dir_id)?,
            phys: mos.dataset(id)?,
            mark: None,
        };
        // The features of this very txg decide, not those last published.
        properties::settings_with(self.inner, &info, self.state.features.as_ref())
    }

    /// Creates the file system `name` with local properties.
    pub(crate) fn create_filesystem(
        &mut self,
        name: &str,
        local: &[(String, props::Value)],
        new: &NewFilesystem,
        init: &Initialise,
    ) -> Result<()> {
        let mos = self.mos();
        let (parent, leaf) = name.rsplit_once('/').ok_or_else(|| Error::Exists(name.to_owned()))?;
        let parent = lookup::dir_of(mos, &self.state.config.name, parent)?;
        if lookup::child(mos, parent, leaf)?.is_some() {
            return Err(Error::Exists(name.to_owned()));
        }
        limits::check_room(self.inner, NEW_OBJECTS)?;
        let dir = self.create_dir(parent, leaf)?;
        for (name, value) in local {
            self.set_property(dir, name, Some(value))?;
        }
        self.create_head(dir, name, new, init, ObjsetType::Zfs, false)?;
        self.count_new_dir(dir, parent)
    }

    /// Stores a local property of a directory, or removes it.
    pub(crate) fn set_property(
        &mut self,
        dir: ObjectId,
        name: &str,
        value: Option<&props::Value>,
    ) -> Result<()> {
        let mos = self.mos();
        let zap_id = mos.dir(dir)?.props_zap;
        let object = mos.object(zap_id)?;
        // A value that only newer software knew gives way to what is set now.
        zap::discard(&object, &self.tx, format!("{name}$iuv").as_bytes())?;
        match value {
            Some(value) => zap::update(&object, &self.tx, name.as_bytes(), &properties::stored(value))?,
            None => zap::discard(&object, &self.tx, name.as_bytes())?,
        }
        self.heed_property(dir, name, value)
    }

    /// The number that a property has when it is set to `value`; without one, what was received is in effect.
    pub(crate) fn number_after(
        &self,
        dir: ObjectId,
        name: &str,
        value: Option<&props::Value>,
    ) -> Result<u64> {
        let mos = self.mos();
        Ok(match value {
            Some(props::Value::Number(number)) => *number,
            Some(props::Value::Text(_)) => 0,
            None => match properties::received_here(mos, mos.dir(dir)?.props_zap, name)? {
                Some(props::Value::Number(number)) => number,
                _ => 0,
            },
        })
    }

    /// What follows from a property's new value for the books of a directory.
    pub(crate) fn heed_property(
        &mut self,
        dir: ObjectId,
        name: &str,
        value: Option<&props::Value>,
    ) -> Result<()> {
        if !matches!(name, "quota" | "filesystem_limit" | "snapshot_limit" | "reservation" | "refreservation")
        {
            return Ok(());
        }
        let mos = self.mos();
        let number = self.number_after(dir, name, value)?;
        match name {
            "quota" => {
                let mut phys = mos.dir(dir)?;
                phys.quota = number;
                mos.put_dir(&self.tx, dir, &phys)?;
            }
            "filesystem_limit" | "snapshot_limit" => {
                let received = properties::received_here(mos, mos.dir(dir)?.props_zap, name)?;
                self.start_counting(dir, value.or(received.as_ref()))?;
            }
            "reservation" => self.set_reservation(dir, number)?,
            "refreservation" => self.set_refreservation(dir, number)?,
            _ => {}
        }
        Ok(())
    }

    fn set_reservation(&mut self, dir: ObjectId, bytes: u64) -> Result<()> {
        let mos = self.mos();
        let mut phys = mos.dir(dir)?;
        let charged = |reserved: u64| phys.used_bytes.max(reserved) as i64;
        let delta = charged(bytes) - charged(phys.reserved);
        phys.reserved = bytes;
        let parent = phys.parent;
        mos.put_dir(&self.tx, dir, &phys)?;
        if parent.0 == 0 {
            return Ok(());
        }
        let sizes = crate::sizes::Sizes { used: delta, ..Default::default() };
        super::add_space(mos, &self.tx, parent, super::Category::ChildReserved, sizes)
    }

    fn set_refreservation(&mut self, dir: ObjectId, bytes: u64) -> Result<()> {
        let mos = self.mos();
        let phys = mos.dir(dir)?;
        if phys.head_dataset.0 == 0 {
            return Ok(());
        }
        if !super::space::has_breakdown(&phys) {
            return Err(Error::Unsupported("refreservation of datasets from before pool version 13".into()));
        }
        let unique = mos.dataset(phys.head_dataset)?.unique_bytes;
        let delta = bytes.saturating_sub(unique) as i64 - phys.used_breakdown.refrsrv as i64;
        let sizes = crate::sizes::Sizes { used: delta, ..Default::default() };
        super::add_space(mos, &self.tx, dir, super::Category::Reserved, sizes)
    }
}
