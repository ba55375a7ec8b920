//! Deadlists: blocks that the previous snapshot refers to and the dataset does not any more.
//!
//! Source: docs/format/06-mos-dsl.md §7.2, §7.3.

use std::collections::BTreeMap;

use dmu::{NewObject, Tx, zap};
use format::deadlist::{self, DeadlistHeader};
use format::dsl_dataset::DslDataset;
use format::features;
use format::zap::{Value, int_key, parse_int_key};
use format::{BlockPtr, ByteOrder, ObjectId, ObjectType, Txg};

use crate::bpobj;
use crate::features::Features;
use crate::mos::Mos;
use crate::sizes::Sizes;
use crate::{Error, Result, version};

/// Block size of new lists.
pub(crate) const BLOCK: u32 = 128 << 10;
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

/// Removes one use of the shared empty list. Frees it with the last use.
fn give_up_empty(mos: &Mos, features: &mut Option<Features>, tx: &Tx, shared: ObjectId) -> Result<()> {
    let features = features.as_mut().expect("a pool with a shared empty list has features");
    features.adjust(tx, &features::EMPTY_BPOBJ, -1)?;
    if !features.is_active(&features::EMPTY_BPOBJ) {
        zap::remove(&mos.object(crate::mos::DIRECTORY)?, tx, EMPTY_KEY.as_bytes())?;
        bpobj::free(mos, tx, shared)?;
    }
    Ok(())
}

/// Whether the deadlist is a plain list of blocks, as pools before version 26 have it.
pub fn is_plain(mos: &Mos, id: ObjectId) -> Result<bool> {
    Ok(mos.object(id)?.object_type() == ObjectType::BPOBJ)
}

/// Creates a deadlist with these keys, all without blocks. Before version 26 it is a plain list.
pub fn create(mos: &Mos, features: &mut Option<Features>, tx: &Tx, keys: &[Txg]) -> Result<ObjectId> {
    if mos.version() < version::DEADLISTS {
        return bpobj::create(mos, tx, BLOCK, 0);
    }
    let new = NewObject::plain(ObjectType::DEADLIST).bonus(ObjectType::DEADLIST_HDR, vec![0; deadlist::SIZE]);
    let object = mos.create(tx, new)?;
    zap::create(&object, tx, mos.salt(), 0)?;
    for key in keys {
        let list = empty_list(mos, features, tx)?;
        zap::insert(&object, tx, int_key(key.0).as_bytes(), &Value::from_u64(list.0))?;
    }
    Ok(object.id())
}

/// A key of a deadlist, and the list that holds the blocks born after it.
pub type Entry = (Txg, ObjectId);

/// Keys with their lists, ascending; none of a plain list.
pub fn entries(mos: &Mos, id: ObjectId) -> Result<Vec<Entry>> {
    let object = mos.object(id)?;
    if object.object_type() == ObjectType::BPOBJ {
        return Ok(Vec::new());
    }
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
pub fn header(mos: &Mos, id: ObjectId) -> Result<DeadlistHeader> {
    if is_plain(mos, id)? {
        let Sizes { used, comp, uncomp } = bpobj::totals(mos, id)?;
        return Ok(DeadlistHeader {
            used,
            compressed: comp,
            uncompressed: uncomp,
            ..DeadlistHeader::default()
        });
    }
    mos.object(id)?
        .with_bonus(|_, raw| DeadlistHeader::decode(raw, ByteOrder::Little))
        .map_err(Error::corrupt(id))
}

/// The keys of a dataset's deadlist, ascending. For a plain list, the keys that it would have.
pub fn keys(mos: &Mos, dataset: &DslDataset) -> Result<Vec<Txg>> {
    if !is_plain(mos, dataset.deadlist)? {
        return Ok(entries(mos, dataset.deadlist)?.into_iter().map(|(key, _)| key).collect());
    }
    let (mut found, mut at) = (Vec::new(), *dataset);
    while at.prev_snap.0 != 0 {
        at = mos.earlier(&at)?;
        found.push(at.prev_snap_txg);
    }
    found.reverse();
    Ok(found)
}

/// Adds to the totals of the whole list.
pub(crate) fn add_totals(mos: &Mos, tx: &Tx, id: ObjectId, sizes: Sizes) -> Result<()> {
    let mut header = header(mos, id)?;
    header.used += sizes.used;
    header.compressed += sizes.comp;
    header.uncompressed += sizes.uncomp;
    mos.object(id)?.edit_bonus(tx, |raw| raw.copy_from_slice(&header.encode()));
    Ok(())
}

/// The list of the entry `key`. The shared empty list is replaced by a new one.
fn own_list(
    mos: &Mos,
    features: &mut Option<Features>,
    tx: &Tx,
    id: ObjectId,
    entry: Entry,
) -> Result<ObjectId> {
    let (key, list) = entry;
    if mos.directory_object(EMPTY_KEY)? != Some(list) {
        return Ok(list);
    }
    let own = bpobj::create(mos, tx, BLOCK, 0)?;
    zap::update(&mos.object(id)?, tx, int_key(key.0).as_bytes(), &Value::from_u64(own.0))?;
    give_up_empty(mos, features, tx, list)?;
    Ok(own)
}

/// Records blocks that the head no longer has.
pub fn insert(
    mos: &Mos,
    features: &mut Option<Features>,
    tx: &Tx,
    id: ObjectId,
    dead: &[(BlockPtr, Sizes)],
) -> Result<()> {
    if is_plain(mos, id)? {
        let sizes = dead.iter().fold(Sizes::default(), |sum, (_, sizes)| sum + *sizes);
        return bpobj::append(mos, tx, id, dead.iter().map(|(ptr, _)| ptr), sizes);
    }
    let before = header(mos, id)?;
    let all = entries(mos, id)?;
    let keys: Vec<Txg> = all.iter().map(|(key, _)| *key).collect();
    let mut by_entry: BTreeMap<usize, Vec<&(BlockPtr, Sizes)>> = BTreeMap::new();
    for block in dead {
        let at = deadlist::entry_for(&keys, block.0.accounting_birth())
            .ok_or_else(|| Error::corrupt(id)(format::Corrupt::new("deadlist without key 0", 0)))?;
        by_entry.entry(at).or_default().push(block);
    }
    for (at, blocks) in by_entry {
        let list = own_list(mos, features, tx, id, all[at])?;
        let sizes = blocks.iter().fold(Sizes::default(), |sum, (_, sizes)| sum + *sizes);
        bpobj::append(mos, tx, list, blocks.iter().map(|(ptr, _)| ptr), sizes)?;
        add_totals(mos, tx, id, sizes)?;
    }
    check_totals(&before, &header(mos, id)?, dead);
    Ok(())
}

/// Asserts that the totals of a deadlist grew by exactly the blocks that were added.
fn check_totals(before: &DeadlistHeader, after: &DeadlistHeader, dead: &[(BlockPtr, Sizes)]) {
    let sizes = dead.iter().fold(Sizes::default(), |sum, (_, sizes)| sum + *sizes);
    assert_eq!(after.used.wrapping_sub(before.used), sizes.used, "bytes of a deadlist");
    assert_eq!(
        after.compressed.wrapping_sub(before.compressed),
        sizes.comp,
        "compressed bytes of a deadlist"
    );
    let uncompressed = after.uncompressed.wrapping_sub(before.uncompressed);
    assert_eq!(uncompressed, sizes.uncomp, "uncompressed bytes of a deadlist");
}

/// Sizes of the entries with `from` ≤ key < `to`.
pub fn space_between(mos: &Mos, id: ObjectId, from: Txg, to: Txg) -> Result<Sizes> {
    if is_plain(mos, id)? {
        return bpobj::sum(mos, id, &|ptr| ptr.accounting_birth() > from && ptr.accounting_birth() <= to);
    }
    let mut sum = Sizes::default();
    for (key, list) in entries(mos, id)? {
        if (from..to).contains(&key) {
            sum += bpobj::totals(mos, list)?;
        }
    }
    Ok(sum)
}

/// Removes the entries with keys from `from` on. Returns their lists, which belong to the caller now, and their sizes.
pub(crate) fn take_from(
    mos: &Mos,
    features: &mut Option<Features>,
    tx: &Tx,
    id: ObjectId,
    from: Txg,
) -> Result<(Vec<ObjectId>, Sizes)> {
    let shared = mos.directory_object(EMPTY_KEY)?;
    let object = mos.object(id)?;
    let (mut lists, mut sizes) = (Vec::new(), Sizes::default());
    for (key, list) in entries(mos, id)?.into_iter().filter(|(key, _)| *key >= from) {
        sizes += bpobj::totals(mos, list)?;
        if Some(list) == shared {
            give_up_empty(mos, features, tx, list)?;
        } else {
            lists.push(list);
        }
        zap::remove(&object, tx, int_key(key.0).as_bytes())?;
    }
    add_totals(mos, tx, id, -sizes)?;
    Ok((lists, sizes))
}

/// Replaces the list of the entry `key`. The caller owns the old list from then on.
pub(crate) fn set_entry(mos: &Mos, tx: &Tx, id: ObjectId, (key, list): Entry) -> Result<()> {
    let value = Value::from_u64(list.0);
    Ok(zap::update(&mos.object(id)?, tx, int_key(key.0).as_bytes(), &value)?)
}

/// Removes the entry `key`. Its list is the caller's.
pub(crate) fn remove_entry(mos: &Mos, tx: &Tx, id: ObjectId, key: Txg) -> Result<()> {
    Ok(zap::remove(&mos.object(id)?, tx, int_key(key.0).as_bytes())?)
}

/// Frees the list of an entry, or ends one use of the shared empty list. The caller is responsible for the listed blocks.
pub(crate) fn free_list(mos: &Mos, features: &mut Option<Features>, tx: &Tx, list: ObjectId) -> Result<()> {
    match is_shared(mos, list)? {
        true => give_up_empty(mos, features, tx, list),
        false => bpobj::free(mos, tx, list),
    }
}

/// Whether `list` is the pool's shared empty list.
pub(crate) fn is_shared(mos: &Mos, list: ObjectId) -> Result<bool> {
    Ok(mos.directory_object(EMPTY_KEY)? == Some(list))
}

/// Attaches `list` to the entry with the largest key that is not above `key`.
fn attach_at(mos: &Mos, features: &mut Option<Features>, tx: &Tx, id: ObjectId, entry: Entry) -> Result<()> {
    let (key, list) = entry;
    if mos.directory_object(EMPTY_KEY)? == Some(list) {
        return give_up_empty(mos, features, tx, list);
    }
    let entry = entries(mos, id)?
        .into_iter()
        .rfind(|(at, _)| *at <= key)
        .ok_or_else(|| Error::corrupt(id)(format::Corrupt::new("deadlist key", key.0)))?;
    let into = own_list(mos, features, tx, id, entry)?;
    bpobj::attach(mos, tx, into, list)
}

/// Moves all that `from` lists into `into` and frees `from`.
pub fn merge(
    mos: &Mos,
    features: &mut Option<Features>,
    tx: &Tx,
    into: ObjectId,
    from: ObjectId,
) -> Result<()> {
    if is_plain(mos, from)? {
        let mut dead = Vec::new();
        bpobj::for_each(mos, from, &mut |ptr| {
            dead.push((*ptr, Sizes::of(mos.objset.vdevs(), ptr)));
            Ok(())
        })?;
        insert(mos, features, tx, into, &dead)?;
        return bpobj::free(mos, tx, from);
    }
    let totals = header(mos, from)?;
    for (key, list) in entries(mos, from)? {
        attach_at(mos, features, tx, into, (key, list))?;
    }
    let sizes = Sizes { used: totals.used, comp: totals.compressed, uncomp: totals.uncompressed };
    add_totals(mos, tx, into, sizes)?;
    mos.free(tx, from)
}

/// Removes a key, if it exists. Its blocks move to the entry before it.
pub(crate) fn remove_key(
    mos: &Mos,
    features: &mut Option<Features>,
    tx: &Tx,
    id: ObjectId,
    key: Txg,
) -> Result<()> {
    let Some((_, list)) = entries(mos, id)?.into_iter().find(|(at, _)| *at == key) else { return Ok(()) };
    zap::remove(&mos.object(id)?, tx, int_key(key.0).as_bytes())?;
    attach_at(mos, features, tx, id, (key, list))
}

/// Frees the deadlist's objects. The caller is responsible for the listed blocks.
pub fn free(mos: &Mos, features: &mut Option<Features>, tx: &Tx, id: ObjectId) -> Result<()> {
    if is_plain(mos, id)? {
        return bpobj::free(mos, tx, id);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn header(used: i64) -> DeadlistHeader {
        DeadlistHeader { used, ..DeadlistHeader::default() }
    }

    #[test]
    fn totals_grow_by_the_blocks_of_all_entries() {
        let sizes = Sizes { used: 512, comp: 0, uncomp: 0 };
        // Totals that are wrong on disk stay wrong by the same amount.
        check_totals(&header(-7), &header(1017), &[(BlockPtr::HOLE, sizes), (BlockPtr::HOLE, sizes)]);
    }

    #[test]
    #[should_panic(expected = "bytes of a deadlist")]
    fn totals_without_one_of_the_blocks_stop_the_sync() {
        let sizes = Sizes { used: 512, comp: 0, uncomp: 0 };
        check_totals(&header(0), &header(512), &[(BlockPtr::HOLE, sizes), (BlockPtr::HOLE, sizes)]);
    }
}
