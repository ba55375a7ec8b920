//! The objects of a new file system.
//!
//! From:   `pool`, which calls it with an empty objset while creating a dataset.
//! To:     the objset: master node, attribute tables, unlinked set, root directory.
//! Source: docs/format/10-create-checklist.md §A.4.

use std::sync::Arc;

use dmu::{NewObject, Objset, Tx, zap};
use format::zap::Value;
use format::zap::name::UPPER;
use format::znode::{S_IFDIR, Time, master};
use format::{ObjectId, ObjectType};
use pool::NewFilesystem;

use crate::attributes::{Attributes, Tables};
use crate::create::{assign_project, fresh};
use crate::fs::MASTER_NODE;
use crate::legacy::SYSTEM_ATTRIBUTES;
use crate::{Error, legacy};

/// The numbers that OpenZFS gives to these objects.
const SA_MASTER: ObjectId = ObjectId(32);
const UNLINKED: ObjectId = ObjectId(33);
const ROOT: ObjectId = ObjectId(34);
const REGISTRY: ObjectId = ObjectId(35);
const LAYOUTS: ObjectId = ObjectId(36);

/// [`initialise`] in the form that `pool` takes when it creates pools and datasets.
#[must_use]
pub fn initialiser() -> pool::Initialise {
    initialiser_for([0, 0])
}

/// As [`initialiser`]; the root directory belongs to this user and group.
#[must_use]
pub fn initialiser_for(owner: [u32; 2]) -> pool::Initialise {
    Arc::new(move |objset, tx, new| fill(objset, tx, new, owner))
}

/// Fills the new and empty `objset`. The root directory is root's, with mode 0755.
///
/// # Errors
/// If an object cannot be made.
pub fn initialise(objset: &Objset, tx: &Tx, new: &NewFilesystem) -> dmu::Result<()> {
    fill(objset, tx, new, [0, 0])
}

fn fill(objset: &Objset, tx: &Tx, new: &NewFilesystem, owner: [u32; 2]) -> dmu::Result<()> {
    let salt = || new.host.entropy.u64();
    let zap_at = |id, object_type| {
        let object = objset.create_object_at(tx, id, NewObject::plain(object_type));
        zap::create(&object, tx, salt(), 0)?;
        Ok::<_, dmu::Error>(object)
    };
    let put = |object: &_, key: &str, value| zap::insert(object, tx, key.as_bytes(), &Value::from_u64(value));

    let node = zap_at(MASTER_NODE, ObjectType::MASTER_NODE)?;
    put(&node, master::NORMALIZATION, new.normalization)?;
    put(&node, master::UTF8ONLY, u64::from(new.utf8only))?;
    put(&node, master::CASESENSITIVITY, new.casesensitivity)?;
    put(&node, master::VERSION, new.version)?;
    let has_tables = new.version >= SYSTEM_ATTRIBUTES;
    if has_tables {
        put(&node, master::SA_ATTRS, SA_MASTER.0)?;
    }
    put(&node, master::DELETE_QUEUE, UNLINKED.0)?;
    put(&node, master::ROOT, ROOT.0)?;
    if has_tables {
        let tables = zap_at(SA_MASTER, ObjectType::SA_MASTER_NODE)?;
        put(&tables, master::SA_REGISTRY, REGISTRY.0)?;
        put(&tables, master::SA_LAYOUTS, LAYOUTS.0)?;
    }
    zap_at(UNLINKED, ObjectType::UNLINKED_SET)?;

    let (secs, nanos) = new.host.clock.now();
    let mut root =
        fresh(S_IFDIR | 0o755, owner.map(u64::from), ROOT, Time { secs: secs as i64, nanos: nanos.into() });
    if new.project_quota && has_tables {
        assign_project(&mut root, None);
    }
    // Object numbers are claimed in ascending order. The root's attributes need the tables, which have higher numbers.
    let lower = |error| match error {
        Error::Dmu(error) => error,
        Error::Damaged { object, source } => dmu::Error::Corrupt { object, source },
        _ => dmu::Error::Full("attribute"),
    };
    root.generation = tx.txg().0;
    let (bonus_type, bonus) = match has_tables {
        true => (ObjectType::SA, Vec::new()),
        false => (ObjectType::ZNODE, legacy::encode_new(new.version, &root).map_err(lower)?),
    };
    let empty = NewObject::plain(ObjectType::DIRECTORY_CONTENTS).bonus(bonus_type, bonus);
    let object = objset.create_object_at(tx, ROOT, empty);
    let fold = if new.casesensitivity == 0 { 0 } else { UPPER };
    zap::create(&object, tx, salt(), new.normalization | fold)?;
    if !has_tables {
        return Ok(());
    }
    let table = |id, object_type| objset.create_object_at(tx, id, NewObject::plain(object_type));
    let registry = table(REGISTRY, ObjectType::SA_ATTR_REGISTRATION);
    let layouts = table(LAYOUTS, ObjectType::SA_ATTR_LAYOUTS);
    let tables = Tables::create(tx, registry, layouts, &salt)?;
    Attributes::new(new.version, Some(tables)).store(&object, tx, &root).map_err(lower)
}
