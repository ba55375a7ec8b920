//! The objects of a new file system.
//!
//! From:   `pool`, which calls it with an empty objset while creating a dataset.
//! To:     the objset: master node, attribute tables, unlinked set, root directory.
//! Source: docs/format/10-create-checklist.md §A.4.

use dmu::{NewObject, Objset, Tx, zap};
use format::zap::Value;
use format::zap::name::UPPER;
use format::znode::{S_IFDIR, Time, master};
use format::{ObjectId, ObjectType};

use crate::Error;
use crate::attributes::Attributes;
use crate::create::{assign_project, fresh};
use crate::fs::MASTER_NODE;

/// The numbers that OpenZFS happens to give to these objects.
const SA_MASTER: ObjectId = ObjectId(32);
const UNLINKED: ObjectId = ObjectId(33);
const ROOT: ObjectId = ObjectId(34);
const REGISTRY: ObjectId = ObjectId(35);
const LAYOUTS: ObjectId = ObjectId(36);

/// What a new file system is to be.
pub struct NewFilesystem<'a> {
    /// Random numbers.
    pub salt: &'a dyn Fn() -> u64,
    /// Seconds and nanoseconds since 1970.
    pub now: (u64, u32),
    /// Owner of the root directory.
    pub uid: u64,
    /// Group of the root directory.
    pub gid: u64,
    /// Permission bits of the root directory, usually 0755.
    pub mode: u32,
    /// Property `normalization`: 0, 0x10 formD, 0x20 formKD, 0x50 formC, 0x60 formKC.
    pub normalization: u64,
    /// Property `utf8only`.
    pub utf8_only: bool,
    /// Property `casesensitivity`: 0 sensitive, 1 insensitive, 2 mixed.
    pub case_sensitivity: u64,
    /// Objects carry project ids: the objset has the flag for project accounting.
    pub project_quota: bool,
}

/// Fills the new and empty `objset`.
///
/// # Errors
/// If an object cannot be made.
pub fn initialise(objset: &Objset, tx: &Tx, new: &NewFilesystem<'_>) -> dmu::Result<()> {
    let zap_at = |id, object_type| {
        let object = objset.create_object_at(tx, id, NewObject::plain(object_type));
        zap::create(&object, tx, (new.salt)(), 0)?;
        Ok::<_, dmu::Error>(object)
    };
    let put = |object: &_, key: &str, value| zap::insert(object, tx, key.as_bytes(), &Value::from_u64(value));

    let node = zap_at(MASTER_NODE, ObjectType::MASTER_NODE)?;
    put(&node, master::NORMALIZATION, new.normalization)?;
    put(&node, master::UTF8ONLY, u64::from(new.utf8_only))?;
    put(&node, master::CASESENSITIVITY, new.case_sensitivity)?;
    put(&node, master::VERSION, master::ZPL_VERSION)?;
    put(&node, master::SA_ATTRS, SA_MASTER.0)?;
    put(&node, master::DELETE_QUEUE, UNLINKED.0)?;
    put(&node, master::ROOT, ROOT.0)?;

    let tables = zap_at(SA_MASTER, ObjectType::SA_MASTER_NODE)?;
    put(&tables, master::SA_REGISTRY, REGISTRY.0)?;
    put(&tables, master::SA_LAYOUTS, LAYOUTS.0)?;
    zap_at(UNLINKED, ObjectType::UNLINKED_SET)?;

    let now = Time { secs: new.now.0 as i64, nanos: new.now.1.into() };
    let mode = S_IFDIR | u64::from(new.mode & 0o7777);
    let mut root = fresh(mode, [new.uid, new.gid], ROOT, now);
    if new.project_quota {
        assign_project(&mut root, None);
    }
    // Numbers are claimed upward; the root's attributes need the tables behind it.
    let empty = NewObject::plain(ObjectType::DIRECTORY_CONTENTS).bonus(ObjectType::SA, Vec::new());
    let object = objset.create_object_at(tx, ROOT, empty);
    let fold = if new.case_sensitivity == 0 { 0 } else { UPPER };
    zap::create(&object, tx, (new.salt)(), new.normalization | fold)?;
    let attributes = Attributes::create(objset, tx, [REGISTRY, LAYOUTS], new.salt)?;
    root.generation = tx.txg().0;
    attributes.store(&object, tx, &root).map_err(|error| match error {
        Error::Dmu(error) => error,
        Error::Damaged { object, source } => dmu::Error::Corrupt { object, source },
        _ => dmu::Error::Full("attribute"),
    })
}
