//! Deadlists: blocks that the previous snapshot still has and the dataset no longer.
//!
//! Source: docs/format/06-mos-dsl.md §7.2, §7.3.

use dmu::{NewObject, Tx, zap};
use format::deadlist::{self, DeadlistHeader};
use format::features;
use format::zap::{Value, int_key, parse_int_key};
use format::{BlockPtr, ByteOrder, ObjectId, ObjectType, Txg};

use super::Sizes;
use crate::bpobj;
use crate::features::Features;
use crate::mos::Mos;
use crate::{Error, Result};

/// Block size of new lists.
const BLOCK: u32 = 128 << 10;
const EMPTY_KEY: &str = "empty_bpobj";

/// A list for an entry without blocks: the pool's shared empty one if the pool has that feature.
fn empty_list(mos: &Mos, features: &mut Option<Features>, tx: &Tx) -> Result<ObjectId> {
    let Some(features) = features.as_mut().filter(|f| f.is_enabled(&features::EMPTY_BPOBJ)) else {
        return bpobj::create(mos, tx, BLOCK, 0);
    };
    let shared = match mos.directory_object(EMPTY_KEY)? {
        Some(id) => id,
        None => {
            let id = bpobj::create(mos, tx, BLOCK, 0)?;
            mos.set_directory(tx, EMPTY_KEY, &Value::from_u64(id.0))?;
            id
        }
    };
    features.adjust(tx, &features::EMPTY_BPOBJ, 1)?;
    Ok(shared)
}

/// One user less of the shared empty list; the last takes it along.
fn give_up_empty(mos: &Mos, features: &mut Option<Features>, tx: &Tx, shared: ObjectId) -> Result<()> {
    let features = features.as_mut().expect("a pool with a shared empty list has features");
    features.adjust(tx, &features::EMPTY_BPOBJ, -1)?;
    if !features.is_active(&features::EMPTY_BPOBJ) {
        zap::remove(&mos.object(crate::mos::DIRECTORY)?, tx, EMPTY_KEY.as_bytes())?;
        bpobj::free(mos, tx, shared)?;
    }
    Ok(())
}

/// Creates a deadlist with these keys, all without blocks.
pub(crate) fn create(mos: &Mos, features: &mut Option<Features>, tx: &Tx, keys: &[Txg]) -> Result<ObjectId> {
    let new = NewObject::plain(ObjectType::DEADLIST).bonus(ObjectType::DEADLIST_HDR, vec![0; deadlist::SIZE]);
    let object = mos.create(tx, new)?;
    zap::create(&object, tx, mos.salt(), 0)?;
    for key in keys {
        let list = empty_list(mos, features, tx)?;
        zap::insert(&object, tx, int_key(key.0).as_bytes(), &Value::from_u64(list.0))?;
    }
    Ok(object.id())
}

/// Keys with their lists, ascending.
pub(crate) fn entries(mos: &Mos, id: ObjectId) -> Result<Vec<(Txg, ObjectId)>> {
    let object = mos.object(id)?;
    let mut found = Vec::new();
    for entry in zap::entries(&object) {
        let entry = entry?;
        let key = parse_int_key(&entry.name).ok();
        let (Some(key), Some(list)) = (key, entry.number()) else {
            return Err(Error::corrupt(id)(format::Corrupt::new("deadlist entry", 0)));
        };
        found.push((Txg(key), ObjectId(list)));
    }
    found.sort_unstable();
    Ok(found)
}

/// Totals of the whole list.
pub(crate) fn header(mos: &Mos, id: ObjectId) -> Result<DeadlistHeader> {
    mos.object(id)?
        .with_bonus(|_, raw| DeadlistHeader::decode(raw, ByteOrder::Little))
        .map_err(Error::corrupt(id))
}

/// Records a block that the head no longer has.
pub(crate) fn insert(
    mos: &Mos,
    features: &mut Option<Features>,
    tx: &Tx,
    id: ObjectId,
    ptr: &BlockPtr,
    sizes: Sizes,
) -> Result<()> {
    let all = entries(mos, id)?;
    let keys: Vec<Txg> = all.iter().map(|(key, _)| *key).collect();
    let at = deadlist::entry_for(&keys, ptr.accounting_birth())
        .ok_or_else(|| Error::corrupt(id)(format::Corrupt::new("deadlist without key 0", 0)))?;
    let (key, mut list) = all[at];
    let object = mos.object(id)?;
    if mos.directory_object(EMPTY_KEY)? == Some(list) {
        let own = bpobj::create(mos, tx, BLOCK, 0)?;
        zap::update(&object, tx, int_key(key.0).as_bytes(), &Value::from_u64(own.0))?;
        give_up_empty(mos, features, tx, list)?;
        list = own;
    }
    bpobj::append(mos, tx, list, ptr, sizes)?;
    let mut header = header(mos, id)?;
    header.used += sizes.used;
    header.compressed += sizes.comp;
    header.uncompressed += sizes.uncomp;
    object.edit_bonus(tx, |raw| raw.copy_from_slice(&header.encode()));
    Ok(())
}

/// Frees the deadlist's objects. The blocks it names are the caller's.
pub(crate) fn free(mos: &Mos, features: &mut Option<Features>, tx: &Tx, id: ObjectId) -> Result<()> {
    let shared = mos.directory_object(EMPTY_KEY)?;
    for (_, list) in entries(mos, id)? {
        if Some(list) == shared {
            give_up_empty(mos, features, tx, list)?;
        } else {
            bpobj::free(mos, tx, list)?;
        }
    }
    mos.free(tx, id)
}
