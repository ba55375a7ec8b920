//! Creating datasets: the special ones of a new pool, and file systems.
//!
//! Source: docs/format/06-mos-dsl.md §6, §9.1; 10-create-checklist.md §A.2, §B.

use dmu::{NewObject, zap};
use format::dsl_dataset::{self, DslDataset};
use format::dsl_dir::{self, DslDir, UsedBreakdown};
use format::objset::ObjsetType;
use format::zap::Value;
use format::{BlockPtr, Corrupt, Guid, ObjectId, ObjectType, Txg};

use crate::change::{Change, Effect};
use crate::encrypt::Judged;
use crate::mos::{FOLD_CASE, Mos};
use crate::new_encryption::NewEncryption;
use crate::new_head::{Initialise, NewFilesystem, NewHead};
use crate::{Error, Result, available, bpobj, deadlist, props, tree, version};

/// Objset guids have 56 bits.
const FSID_BITS: u32 = 56;

/// Estimated number of DSL objects that a new file system changes.
pub const NEW_OBJECTS: u64 = 5;

/// A DSL directory without a head dataset, children or properties (docs/format/06-mos-dsl.md §4).
///
/// `now` is in seconds since 1970; `version` is that of the pool.
pub const fn new_dir(now: u64, parent: ObjectId, version: u64) -> DslDir {
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

impl Change<'_> {
    /// Makes a directory with its ZAPs of properties and children, and adds it to its parent's child map.
    pub fn create_dir(&mut self, parent: ObjectId, name: &str) -> Result<ObjectId> {
        let mos = self.mos();
        let new = NewObject::plain(ObjectType::DSL_DIR).bonus(ObjectType::DSL_DIR, vec![0; dsl_dir::SIZE]);
        let id = mos.create(self.tx, new)?.id();
        let mut dir = new_dir(mos.now(), parent, mos.version());
        dir.props_zap = mos.create_zap(self.tx, ObjectType::DSL_PROPS, 0)?.id();
        dir.child_dir_zap = mos.create_zap(self.tx, ObjectType::DSL_DIR_CHILD_MAP, 0)?.id();
        mos.put_dir(self.tx, id, &dir)?;
        if parent.0 != 0 {
            let children = mos.object(mos.dir(parent)?.child_dir_zap)?;
            zap::insert(&children, self.tx, name.as_bytes(), &Value::from_u64(id.0))?;
            if !name.starts_with(['$', '%']) {
                self.grant_to_creator(id, parent)?;
            }
        }
        Ok(id)
    }

    pub(crate) fn create_dataset_object(&self, phys: &DslDataset) -> Result<ObjectId> {
        let new =
            NewObject::plain(ObjectType::DSL_DATASET).bonus(ObjectType::DSL_DATASET, phys.encode().to_vec());
        Ok(self.mos().create(self.tx, new)?.id())
    }

    /// The special directories of a new pool. Returns the root directory.
    pub fn create_special(&mut self) -> Result<ObjectId> {
        let root = self.create_dir(ObjectId(0), "")?;
        let mos = self.mos();
        mos.set_directory(self.tx, "root_dataset", &Value::from_u64(root.0))?;
        self.create_dir(root, "$MOS")?;
        if mos.version() >= version::DEADLISTS {
            self.create_free(root)?;
        }
        if mos.version() >= version::ORIGIN {
            self.create_origin(root)?;
        }
        Ok(root)
    }

    /// Makes the directory `$FREE`, which is charged for blocks that wait to be freed, and their list.
    pub(crate) fn create_free(&mut self, root: ObjectId) -> Result<()> {
        self.create_dir(root, "$FREE")?;
        let free = bpobj::create(self.mos(), self.tx, 128 << 10, 0)?;
        self.mos().set_directory(self.tx, "free_bpobj", &Value::from_u64(free.0))
    }

    /// Makes the snapshot `$ORIGIN@$ORIGIN`, the origin of all datasets.
    pub(crate) fn create_origin(&mut self, root: ObjectId) -> Result<()> {
        let dir_id = self.create_dir(root, "$ORIGIN")?;
        let mos = self.mos();
        let mut head = new_dataset(mos, dir_id, mos.now());
        let names = mos.create_zap(self.tx, ObjectType::DSL_DS_SNAP_MAP, FOLD_CASE)?;
        head.snapnames_zap = names.id();
        let head_id = self.create_dataset_object(&head)?;
        // Its only snapshot is empty and older than all datasets.
        let mut snap = new_dataset(mos, dir_id, mos.now());
        snap.next_snap = head_id;
        snap.num_children = 1;
        let features = &mut *self.features;
        snap.deadlist = deadlist::create(self.view.mos, features, self.tx, &[])?;
        head.deadlist = deadlist::create(self.view.mos, features, self.tx, &[Txg(0)])?;
        let snap_id = self.create_dataset_object(&snap)?;
        head.prev_snap = snap_id;
        head.prev_snap_txg = Txg(1);
        mos.put_dataset(self.tx, head_id, &head)?;
        zap::insert(&names, self.tx, b"$ORIGIN", &Value::from_u64(snap_id.0))?;
        let mut dir = mos.dir(dir_id)?;
        dir.head_dataset = head_id;
        mos.put_dir(self.tx, dir_id, &dir)
    }

    /// Gives a directory a head. `pool` writes the root of the head after the change.
    ///
    /// # Errors
    /// Objects of the MOS cannot be read.
    pub(crate) fn create_head(&mut self, new: NewHead, first_txg: bool) -> Result<ObjectId> {
        let dir_id = new.dir;
        let mos = self.mos();
        let origin_id = self.origin_of_all()?;
        let origin = match origin_id.0 {
            0 => DslDataset::default(),
            _ => mos.dataset(origin_id)?,
        };
        let mut phys = new_dataset(mos, dir_id, mos.now());
        phys.creation_txg = if first_txg { Txg(1) } else { self.txg() };
        phys.prev_snap = origin_id;
        phys.prev_snap_txg = origin.creation_txg;
        phys.snapnames_zap = mos.create_zap(self.tx, ObjectType::DSL_DS_SNAP_MAP, FOLD_CASE)?.id();
        phys.flags |= origin.flags & dsl_dataset::CASE_INSENSITIVE;
        if new.filesystem.casesensitivity == 1 {
            phys.flags |= dsl_dataset::CASE_INSENSITIVE;
        }
        let features = &mut *self.features;
        phys.deadlist = deadlist::create(self.view.mos, features, self.tx, &[Txg(0)])?;
        let id = self.create_dataset_object(&phys)?;
        self.branch_off(origin_id, dir_id, id)?;
        self.effects.push(Effect::NewHead { id, new });
        Ok(id)
    }

    /// As [`Change::create_head`], encrypted as was judged.
    pub(crate) fn create_guarded_head(
        &mut self,
        new: NewHead,
        encryption: Option<Judged>,
        first_txg: bool,
    ) -> Result<ObjectId> {
        if let Some(judged) = &encryption {
            self.encrypt(new.dir, judged)?;
        }
        let id = self.create_head(new, first_txg)?;
        if encryption.is_some() {
            self.mark_encrypted(id)?;
        }
        Ok(id)
    }

    /// Gives the root directory of a new pool its head.
    ///
    /// # Errors
    /// [`crate::KeyError`], or objects of the MOS cannot be read.
    pub fn create_root_head(&mut self, new: NewHead) -> Result<ObjectId> {
        let encryption = self.judge_encryption(None, &new.filesystem.encryption)?;
        self.create_guarded_head(new, encryption, true)
    }

    /// Object number of `$ORIGIN@$ORIGIN`; 0 in pools without it.
    pub(crate) fn origin_of_all(&self) -> Result<ObjectId> {
        let mos = self.mos();
        if mos.version() < version::ORIGIN {
            return Ok(ObjectId(0));
        }
        let root = tree::root_dir(mos)?;
        let missing = || Error::corrupt(root)(Corrupt::new("directories named $ORIGIN", 0));
        let dir = tree::child(mos, root, "$ORIGIN")?.ok_or_else(missing)?;
        Ok(mos.dataset(mos.dir(dir)?.head_dataset)?.prev_snap)
    }

    /// Registers `head`, the head of directory `dir_id`, with its origin snapshot (0: none).
    pub(crate) fn branch_off(&mut self, origin_id: ObjectId, dir_id: ObjectId, head: ObjectId) -> Result<()> {
        let mos = self.mos();
        if origin_id.0 != 0 {
            self.enter_clone(origin_id, head)?;
        }
        let mut dir = mos.dir(dir_id)?;
        (dir.origin, dir.head_dataset) = (origin_id, head);
        mos.put_dir(self.tx, dir_id, &dir)
    }

    fn enter_clone(&mut self, origin_id: ObjectId, head: ObjectId) -> Result<()> {
        let mos = self.mos();
        let mut origin = mos.dataset(origin_id)?;
        origin.num_children += 1;
        if mos.version() >= version::ORIGIN {
            if origin.next_clones.0 == 0 {
                origin.next_clones = mos.create_zap(self.tx, ObjectType::NEXT_CLONES, 0)?.id();
            }
            mos.add_int(self.tx, origin.next_clones, head.0)?;
        }
        mos.put_dataset(self.tx, origin_id, &origin)?;
        if mos.version() < version::DEADLISTS {
            return Ok(());
        }
        let mut origin_dir = mos.dir(origin.dir)?;
        if origin_dir.clones.0 == 0 {
            origin_dir.clones = mos.create_zap(self.tx, ObjectType::DSL_CLONES, 0)?.id();
            mos.put_dir(self.tx, origin.dir, &origin_dir)?;
        }
        mos.add_int(self.tx, origin_dir.clones, head.0)
    }

    /// Creates the file system `name` with local properties.
    pub fn create_filesystem(
        &mut self,
        name: &str,
        local: &[(String, props::Value)],
        new: &NewFilesystem,
        init: &Initialise,
    ) -> Result<()> {
        self.create_named(name, local, ObjsetType::Zfs, (new, init))
    }

    /// Creates the volume `name` with local properties.
    pub fn create_volume(
        &mut self,
        name: &str,
        local: &[(String, props::Value)],
        encryption: NewEncryption,
        init: &Initialise,
    ) -> Result<()> {
        let new = NewFilesystem { encryption, ..NewFilesystem::plain(&self.mos().host) };
        self.create_named(name, local, ObjsetType::Zvol, (&new, init))
    }

    fn create_named(
        &mut self,
        name: &str,
        local: &[(String, props::Value)],
        os_type: ObjsetType,
        (new, init): (&NewFilesystem, &Initialise),
    ) -> Result<()> {
        let mos = self.mos();
        let (parent, leaf) = name.rsplit_once('/').ok_or_else(|| Error::Exists(name.to_owned()))?;
        let parent = tree::dir_of(mos, &self.view.pool, parent)?;
        if tree::child(mos, parent, leaf)?.is_some() {
            return Err(Error::Exists(name.to_owned()));
        }
        available::check_room(&self.view, NEW_OBJECTS)?;
        let encryption = self.judge_encryption(Some(parent), &new.encryption)?;
        let dir = self.create_dir(parent, leaf)?;
        for (name, value) in local {
            self.set_property(dir, name, Some(value))?;
        }
        let new = NewHead {
            dir,
            name: name.to_owned(),
            os_type,
            filesystem: new.clone(),
            initialise: init.clone(),
            sealed: None,
        };
        self.create_guarded_head(new, encryption, false)?;
        self.count_new_dir(dir, parent)
    }
}
