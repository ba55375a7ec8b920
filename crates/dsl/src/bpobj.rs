//! Lists of block pointers in the MOS: deferred frees, deadlist entries.
//!
//! Source: docs/format/06-mos-dsl.md §7.1.

use std::collections::BTreeSet;
use std::sync::Arc;

use dmu::{NewObject, Object, Tx};
use format::blkptr::{BlockPtr, SIZE as PTR};
use format::bpobj::{self, Header};
use format::{ByteOrder, ObjectId, ObjectType};

use crate::mos::Mos;
use crate::sizes::Sizes;
use crate::{Error, Result, version};

/// Pointers read at once.
const BATCH: u64 = 1024;
/// Maximal nesting of sub-lists. OpenZFS nests them two or three levels deep.
const DEPTH_MAX: u32 = 32;
/// Bytes of a header without sub-lists, and of one without sums of physical and logical sizes.
const OLD_SIZE: usize = 0x20;
const OLDEST_SIZE: usize = 0x10;
/// Block size of an array of sub-lists.
const SUBS_BLOCK: u32 = 128 << 10;

pub(crate) fn header(object: &Object) -> Result<Header> {
    let corrupt = Error::corrupt(object.id());
    let header = match object.with_bonus(|_, raw| Header::decode(raw, ByteOrder::Little)) {
        Ok(header) => header,
        Err(source) => return Err(corrupt(source)),
    };
    if header.num_blkptrs > object.capacity() / PTR as u64 {
        return Err(corrupt(format::Corrupt::new("pointers in a list", header.num_blkptrs)));
    }
    Ok(header)
}

/// Decodes an entry of the list `id`.
pub(crate) fn listed(id: ObjectId, slot: &[u8]) -> Result<BlockPtr> {
    match BlockPtr::decode(slot, ByteOrder::Little).map_err(Error::corrupt(id))? {
        BlockPtr::Hole(_) => Err(Error::corrupt(id)(format::Corrupt::new("hole in a list", 0))),
        ptr => Ok(ptr),
    }
}

fn too_deep(id: ObjectId) -> Error {
    Error::corrupt(id)(format::Corrupt::new("bpobj nesting", DEPTH_MAX.into()))
}

/// A list and all its sub-lists, each before what is below it.
fn whole(mos: &Mos, id: ObjectId) -> Result<Vec<(ObjectId, Header)>> {
    let (mut found, mut seen, mut next) = (Vec::new(), BTreeSet::new(), vec![(id, 1)]);
    while let Some((id, depth)) = next.pop() {
        if depth > DEPTH_MAX || !seen.insert(id) {
            return Err(too_deep(id));
        }
        let header = header(&*mos.object(id)?)?;
        next.extend(subs(mos, &header)?.into_iter().rev().map(|sub| (sub, depth + 1)));
        found.push((id, header));
    }
    Ok(found)
}

pub(crate) fn put_header(object: &Arc<Object>, tx: &Tx, header: &Header) {
    object.edit_bonus(tx, |raw| raw.copy_from_slice(&header.encode()[..raw.len()]));
}

/// Creates an empty list with this block size; `compress` as in dnodes (0: the default).
pub fn create(mos: &Mos, tx: &Tx, block_size: u32, compress: u8) -> Result<ObjectId> {
    let size = match mos.version() {
        ..version::DEFLATED => OLDEST_SIZE,
        version::DEFLATED..version::DEADLISTS => OLD_SIZE,
        _ => bpobj::SIZE,
    };
    create_sized(mos, tx, (block_size, compress), size)
}

/// As [`create`], with a header of `size` bytes.
pub(crate) fn create_sized(
    mos: &Mos,
    tx: &Tx,
    (block_size, compress): (u32, u8),
    size: usize,
) -> Result<ObjectId> {
    let empty = Header::new(size).encode();
    let mut new =
        NewObject::plain(ObjectType::BPOBJ).block_size(block_size).bonus(ObjectType::BPOBJ_HDR, empty);
    new.compress = compress;
    Ok(mos.create(tx, new)?.id())
}

/// Totals of the list with all its sub-lists.
pub fn totals(mos: &Mos, id: ObjectId) -> Result<Sizes> {
    let header = header(&*mos.object(id)?)?;
    if header.size == OLDEST_SIZE {
        return sum(mos, id, &|_| true);
    }
    Ok(Sizes { used: header.bytes as i64, comp: header.comp as i64, uncomp: header.uncomp as i64 })
}

/// Sizes of the listed blocks that `counts` accepts.
pub fn sum(mos: &Mos, id: ObjectId, counts: &dyn Fn(&BlockPtr) -> bool) -> Result<Sizes> {
    let mut sum = Sizes::default();
    for_each(mos, id, &mut |ptr| {
        if counts(ptr) {
            sum += Sizes::of(mos.objset.vdevs(), ptr);
        }
        Ok(())
    })?;
    Ok(sum)
}

/// Whether nothing is in the list.
pub fn is_empty(mos: &Mos, id: ObjectId) -> Result<bool> {
    Ok(header(&*mos.object(id)?)?.is_empty())
}

/// Appends pointers; `sizes` is the sum of theirs.
pub fn append<'a>(
    mos: &Mos,
    tx: &Tx,
    id: ObjectId,
    ptrs: impl IntoIterator<Item = &'a BlockPtr>,
    sizes: Sizes,
) -> Result<()> {
    let raw: Vec<u8> =
        ptrs.into_iter().flat_map(|ptr| bpobj::normalize(ptr, false).encode(ByteOrder::Little)).collect();
    let object = mos.object(id)?;
    let mut header = header(&object)?;
    object.write(tx, header.num_blkptrs * PTR as u64, &raw)?;
    header.num_blkptrs += (raw.len() / PTR) as u64;
    add_sizes(&mut header, sizes);
    put_header(&object, tx, &header);
    Ok(())
}

pub(crate) fn add_sizes(header: &mut Header, sizes: Sizes) {
    sizes.add_to([&mut header.bytes, &mut header.comp, &mut header.uncomp]);
}

/// Moves all that `sub` lists into `into`, and `sub` with it. Sub-lists stay one level deep: those of `sub`
/// become `into`'s.
pub fn attach(mos: &Mos, tx: &Tx, into: ObjectId, sub: ObjectId) -> Result<()> {
    let sizes = totals(mos, sub)?;
    let object = mos.object(into)?;
    let mut parent = header(&object)?;
    let sub_object = mos.object(sub)?;
    let mut child = header(&sub_object)?;
    if parent.size < bpobj::SIZE {
        // The list has the old form without sub-lists.
        let mut ptrs = Vec::new();
        for_each(mos, sub, &mut |ptr| {
            ptrs.push(*ptr);
            Ok(())
        })?;
        append(mos, tx, into, &ptrs, sizes)?;
        return free(mos, tx, sub);
    }
    if child.subobjs.0 != 0 {
        for id in subs(mos, &child)? {
            push_sub(mos, tx, &mut parent, id)?;
            let moved = totals(mos, id)?;
            add_sizes(&mut child, -moved);
        }
        mos.free(tx, child.subobjs)?;
        (child.subobjs, child.num_subobjs) = (ObjectId(0), 0);
        put_header(&sub_object, tx, &child);
    }
    if child.num_blkptrs == 0 {
        mos.free(tx, sub)?;
    } else if child.num_blkptrs <= BATCH {
        let mut raw = vec![0; child.num_blkptrs as usize * PTR];
        sub_object.read(0, &mut raw)?;
        object.write(tx, parent.num_blkptrs * PTR as u64, &raw)?;
        parent.num_blkptrs += child.num_blkptrs;
        mos.free(tx, sub)?;
    } else {
        push_sub(mos, tx, &mut parent, sub)?;
    }
    add_sizes(&mut parent, sizes);
    put_header(&object, tx, &parent);
    Ok(())
}

/// Adds `sub` to the array of sub-lists.
fn push_sub(mos: &Mos, tx: &Tx, parent: &mut Header, sub: ObjectId) -> Result<()> {
    if parent.subobjs.0 == 0 {
        let new = NewObject::plain(ObjectType::BPOBJ_SUBOBJ).block_size(SUBS_BLOCK);
        parent.subobjs = mos.create(tx, new)?.id();
    }
    mos.object(parent.subobjs)?.write(tx, parent.num_subobjs * 8, &sub.0.to_le_bytes())?;
    parent.num_subobjs += 1;
    Ok(())
}

fn subs(mos: &Mos, header: &Header) -> Result<Vec<ObjectId>> {
    if header.subobjs.0 == 0 {
        return Ok(Vec::new());
    }
    let array = mos.object(header.subobjs)?;
    if header.num_subobjs > array.capacity() / 8 {
        return Err(Error::corrupt(header.subobjs)(format::Corrupt::new(
            "lists in a list",
            header.num_subobjs,
        )));
    }
    (0..header.num_subobjs)
        .map(|i| {
            let mut raw = [0; 8];
            array.read(i * 8, &mut raw)?;
            match u64::from_le_bytes(raw) {
                0 => Err(Error::corrupt(header.subobjs)(format::Corrupt::new("list in a list", 0))),
                sub => Ok(ObjectId(sub)),
            }
        })
        .collect()
}

/// Removes up to `count` pointers from the end of the list, the last sub-list first. `sizes_of` gives the sizes to subtract
/// from the totals.
pub fn take_last(
    mos: &Mos,
    tx: &Tx,
    id: ObjectId,
    count: u64,
    sizes_of: &dyn Fn(&BlockPtr) -> Sizes,
) -> Result<Vec<BlockPtr>> {
    Taking { mos, tx, sizes_of }.take(id, DEPTH_MAX, count)
}

/// Pointers leave a list and its sub-lists in a transaction.
struct Taking<'a> {
    mos: &'a Mos,
    tx: &'a Tx,
    sizes_of: &'a dyn Fn(&BlockPtr) -> Sizes,
}

impl Taking<'_> {
    /// As [`take_last`], from a list that may have sub-lists `depth` deep.
    fn take(&self, id: ObjectId, depth: u32, count: u64) -> Result<Vec<BlockPtr>> {
        let Taking { mos, tx, .. } = *self;
        let below = depth.checked_sub(1).ok_or_else(|| too_deep(id))?;
        let object = mos.object(id)?;
        let mut head = header(&object)?;
        let mut taken = Vec::new();
        while head.num_subobjs > 0 && (taken.len() as u64) < count {
            let sub = *subs(mos, &head)?.last().expect("the array holds as many as are counted");
            let before = totals(mos, sub)?;
            taken.extend(self.take(sub, below, count - taken.len() as u64)?);
            add_sizes(&mut head, totals(mos, sub)? - before);
            if !is_empty(mos, sub)? {
                break;
            }
            // The sub-list is empty now. Subtracts what its sums still contain from the totals.
            add_sizes(&mut head, -totals(mos, sub)?);
            free(mos, tx, sub)?;
            head.num_subobjs -= 1;
            if head.num_subobjs == 0 {
                mos.free(tx, head.subobjs)?;
                head.subobjs = ObjectId(0);
            }
        }
        let own = head.num_blkptrs.min(count - (taken.len() as u64).min(count));
        if own > 0 {
            let first = head.num_blkptrs - own;
            let mut raw = vec![0; own as usize * PTR];
            object.read(first * PTR as u64, &mut raw)?;
            for slot in raw.chunks_exact(PTR) {
                let ptr = listed(id, slot)?;
                add_sizes(&mut head, -(self.sizes_of)(&ptr));
                taken.push(ptr);
            }
            head.num_blkptrs = first;
            object.free_blocks(tx, (first * PTR as u64).div_ceil(object.block_size()), u64::MAX);
        }
        put_header(&object, tx, &head);
        Ok(taken)
    }
}

/// Calls `each` for every pointer, sub-lists included.
pub fn for_each(mos: &Mos, id: ObjectId, each: &mut dyn FnMut(&BlockPtr) -> Result<()>) -> Result<()> {
    for (id, header) in whole(mos, id)? {
        let object = mos.object(id)?;
        let mut at = 0;
        while at < header.num_blkptrs {
            let count = BATCH.min(header.num_blkptrs - at);
            let mut raw = vec![0; count as usize * PTR];
            object.read(at * PTR as u64, &mut raw)?;
            raw.chunks_exact(PTR).try_for_each(|slot| each(&listed(id, slot)?))?;
            at += count;
        }
    }
    Ok(())
}

/// Makes the list empty; its sub-lists are freed.
pub fn clear(mos: &Mos, tx: &Tx, id: ObjectId) -> Result<()> {
    let lists = whole(mos, id)?;
    free_arrays(mos, tx, &lists)?;
    lists[1..].iter().try_for_each(|(sub, _)| mos.free(tx, *sub))?;
    let object = mos.object(id)?;
    put_header(&object, tx, &Header::new(lists[0].1.size));
    object.free_blocks(tx, 0, u64::MAX);
    Ok(())
}

/// Frees the list's objects. The caller is responsible for the listed blocks.
pub fn free(mos: &Mos, tx: &Tx, id: ObjectId) -> Result<()> {
    let lists = whole(mos, id)?;
    free_arrays(mos, tx, &lists)?;
    lists.iter().try_for_each(|(list, _)| mos.free(tx, *list))
}

/// Frees the arrays of sub-lists.
fn free_arrays(mos: &Mos, tx: &Tx, lists: &[(ObjectId, Header)]) -> Result<()> {
    let arrays = lists.iter().map(|(_, header)| header.subobjs).filter(|array| array.0 != 0);
    arrays.into_iter().try_for_each(|array| mos.free(tx, array))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed;

    /// Runs `job` with three lists, each the only sub-list of the one before it.
    fn with_nested(job: impl FnOnce(&Mos, &Tx, [ObjectId; 3]) -> Result<()>) {
        let (mos, tx) = bed::mos();
        let lists = [0; 3].map(|_| create(&mos, &tx, 4096, 0).expect("made"));
        for pair in lists.windows(2) {
            put_sub(&mos, &tx, pair[0], pair[1]).expect("entered");
        }
        job(&mos, &tx, lists).expect("done");
    }

    fn put_sub(mos: &Mos, tx: &Tx, list: ObjectId, sub: ObjectId) -> Result<()> {
        let object = mos.object(list)?;
        let mut head = header(&object)?;
        push_sub(mos, tx, &mut head, sub)?;
        put_header(&object, tx, &head);
        Ok(())
    }

    fn expect_damage<T>(done: Result<T>, what: &str) {
        let error = done.err().expect("damage is an error").to_string();
        assert!(error.contains(what), "{error}");
    }

    #[test]
    fn a_list_within_itself_is_an_error_and_nothing_is_freed() {
        with_nested(|mos, tx, lists| {
            put_sub(mos, tx, lists[2], lists[0])?;
            expect_damage(take_last(mos, tx, lists[0], 10, &|_| Sizes::default()), "bpobj nesting");
            expect_damage(for_each(mos, lists[0], &mut |_| Ok(())), "bpobj nesting");
            expect_damage(clear(mos, tx, lists[0]), "bpobj nesting");
            expect_damage(free(mos, tx, lists[0]), "bpobj nesting");
            lists.into_iter().try_for_each(|list| mos.object(list).map(drop))
        });
    }

    #[test]
    fn a_list_within_two_others_is_an_error() {
        with_nested(|mos, tx, lists| {
            put_sub(mos, tx, lists[0], lists[2])?;
            expect_damage(for_each(mos, lists[0], &mut |_| Ok(())), "bpobj nesting");
            expect_damage(free(mos, tx, lists[0]), "bpobj nesting");
            Ok(())
        });
    }

    #[test]
    fn a_list_that_counts_more_than_it_holds_is_an_error() {
        with_nested(|mos, tx, lists| {
            let object = mos.object(lists[2])?;
            let wrong = |count| {
                let head = Header { num_blkptrs: count, ..Header::new(bpobj::SIZE) };
                put_header(&object, tx, &head);
            };
            for count in [1 << 60, 4096 / PTR as u64 + 1] {
                wrong(count);
                expect_damage(for_each(mos, lists[0], &mut |_| Ok(())), "pointers in a list");
                let taken = take_last(mos, tx, lists[2], 10, &|_| Sizes::default());
                expect_damage(taken, "pointers in a list");
            }
            // The header states as many entries as the block can hold, but none was written.
            wrong(4096 / PTR as u64);
            expect_damage(for_each(mos, lists[0], &mut |_| Ok(())), "hole in a list");
            Ok(())
        });
    }
}
