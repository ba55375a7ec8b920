//! Lists of block pointers in the MOS: deferred frees, deadlist entries.
//!
//! Source: docs/format/06-mos-dsl.md §7.1.

use std::sync::Arc;

use dmu::{NewObject, Object, Tx};
use format::blkptr::{BlockPtr, SIZE as PTR};
use format::bpobj::{self, Header};
use format::{ByteOrder, ObjectId, ObjectType};

use crate::dsl::Sizes;
use crate::mos::Mos;
use crate::{Error, Result};

/// Pointers read at once.
const BATCH: u64 = 1024;
/// Sub-lists of sub-lists; OpenZFS nests two or three deep.
const DEPTH_MAX: u32 = 32;
/// Block size of an array of sub-lists.
const SUBS_BLOCK: u32 = 128 << 10;

fn header(object: &Object) -> Result<Header> {
    object.with_bonus(|_, raw| Header::decode(raw, ByteOrder::Little)).map_err(Error::corrupt(object.id()))
}

fn put_header(object: &Arc<Object>, tx: &Tx, header: &Header) {
    object.edit_bonus(tx, |raw| raw.copy_from_slice(&header.encode()[..raw.len()]));
}

/// Creates an empty list with this block size; `compress` as in dnodes (0: the default).
pub(crate) fn create(mos: &Mos, tx: &Tx, block_size: u32, compress: u8) -> Result<ObjectId> {
    let empty = Header::new(bpobj::SIZE).encode();
    let mut new =
        NewObject::plain(ObjectType::BPOBJ).block_size(block_size).bonus(ObjectType::BPOBJ_HDR, empty);
    new.compress = compress;
    Ok(mos.create(tx, new)?.id())
}

/// Totals of the list with all its sub-lists.
pub(crate) fn totals(mos: &Mos, id: ObjectId) -> Result<Sizes> {
    let header = header(&*mos.object(id)?)?;
    Ok(Sizes { used: header.bytes as i64, comp: header.comp as i64, uncomp: header.uncomp as i64 })
}

/// Whether nothing is in the list.
pub(crate) fn is_empty(mos: &Mos, id: ObjectId) -> Result<bool> {
    Ok(header(&*mos.object(id)?)?.is_empty())
}

/// Appends pointers; `sizes` is the sum of theirs.
pub(crate) fn append<'a>(
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

fn add_sizes(header: &mut Header, sizes: Sizes) {
    header.bytes = header.bytes.wrapping_add_signed(sizes.used);
    header.comp = header.comp.wrapping_add_signed(sizes.comp);
    header.uncomp = header.uncomp.wrapping_add_signed(sizes.uncomp);
}

/// Moves all that `sub` lists into `into`, and `sub` with it. Sub-lists stay one level deep: those of `sub`
/// become `into`'s.
pub(crate) fn attach(mos: &Mos, tx: &Tx, into: ObjectId, sub: ObjectId) -> Result<()> {
    let sizes = totals(mos, sub)?;
    let object = mos.object(into)?;
    let mut parent = header(&object)?;
    let sub_object = mos.object(sub)?;
    let mut child = header(&sub_object)?;
    if parent.size < bpobj::SIZE {
        // A list from before there were sub-lists.
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

/// Enters `sub` into the array of sub-lists.
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
    if header.num_subobjs > (array.max_blkid() + 1).saturating_mul(array.block_size()) / 8 {
        return Err(Error::corrupt(header.subobjs)(format::Corrupt::new(
            "lists in a list",
            header.num_subobjs,
        )));
    }
    (0..header.num_subobjs)
        .map(|i| {
            let mut raw = [0; 8];
            array.read(i * 8, &mut raw)?;
            Ok(ObjectId(u64::from_le_bytes(raw)))
        })
        .collect()
}

/// Takes up to `count` pointers off the end of the list, the last sub-list first; `sizes_of` tells what each
/// takes from the totals.
pub(crate) fn take_last(
    mos: &Mos,
    tx: &Tx,
    id: ObjectId,
    count: u64,
    sizes_of: &dyn Fn(&BlockPtr) -> Sizes,
) -> Result<Vec<BlockPtr>> {
    let object = mos.object(id)?;
    let mut head = header(&object)?;
    let mut taken = Vec::new();
    while head.num_subobjs > 0 && (taken.len() as u64) < count {
        let sub = *subs(mos, &head)?.last().expect("the array holds as many as are counted");
        let before = totals(mos, sub)?;
        taken.extend(take_last(mos, tx, sub, count - taken.len() as u64, sizes_of)?);
        add_sizes(&mut head, totals(mos, sub)? - before);
        if !is_empty(mos, sub)? {
            break;
        }
        // Whatever the sums of the sub-list still said leaves with it.
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
            let ptr = BlockPtr::decode(slot, ByteOrder::Little).map_err(Error::corrupt(id))?;
            add_sizes(&mut head, -sizes_of(&ptr));
            taken.push(ptr);
        }
        head.num_blkptrs = first;
        object.free_blocks(tx, (first * PTR as u64).div_ceil(object.block_size()), u64::MAX);
    }
    put_header(&object, tx, &head);
    Ok(taken)
}

/// Calls `each` for every pointer, sub-lists included.
pub(crate) fn for_each(mos: &Mos, id: ObjectId, each: &mut dyn FnMut(&BlockPtr) -> Result<()>) -> Result<()> {
    walk(mos, id, DEPTH_MAX, each)
}

fn walk(mos: &Mos, id: ObjectId, depth: u32, each: &mut dyn FnMut(&BlockPtr) -> Result<()>) -> Result<()> {
    let too_deep = || Error::corrupt(id)(format::Corrupt::new("bpobj nesting", DEPTH_MAX.into()));
    let depth = depth.checked_sub(1).ok_or_else(too_deep)?;
    let object = mos.object(id)?;
    let header = header(&object)?;
    let mut at = 0;
    while at < header.num_blkptrs {
        let count = BATCH.min(header.num_blkptrs - at);
        let mut raw = vec![0; count as usize * PTR];
        object.read(at * PTR as u64, &mut raw)?;
        for slot in raw.chunks_exact(PTR) {
            each(&BlockPtr::decode(slot, ByteOrder::Little).map_err(Error::corrupt(id))?)?;
        }
        at += count;
    }
    for sub in subs(mos, &header)? {
        walk(mos, sub, depth, each)?;
    }
    Ok(())
}

/// Makes the list empty; its sub-lists are freed.
pub(crate) fn clear(mos: &Mos, tx: &Tx, id: ObjectId) -> Result<()> {
    let object = mos.object(id)?;
    let mut header = header(&object)?;
    free_subs(mos, tx, &header)?;
    header = Header::new(header.size);
    put_header(&object, tx, &header);
    object.free_blocks(tx, 0, u64::MAX);
    Ok(())
}

/// Frees the list's objects. The blocks it names are the caller's.
pub(crate) fn free(mos: &Mos, tx: &Tx, id: ObjectId) -> Result<()> {
    free_subs(mos, tx, &header(&*mos.object(id)?)?)?;
    mos.free(tx, id)
}

fn free_subs(mos: &Mos, tx: &Tx, header: &Header) -> Result<()> {
    if header.subobjs.0 == 0 {
        return Ok(());
    }
    for sub in subs(mos, header)? {
        free(mos, tx, sub)?;
    }
    mos.free(tx, header.subobjs)
}
