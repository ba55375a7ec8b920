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

/// Appends `ptr`, whose sizes are `sizes`.
pub(crate) fn append(mos: &Mos, tx: &Tx, id: ObjectId, ptr: &BlockPtr, sizes: Sizes) -> Result<()> {
    let object = mos.object(id)?;
    let mut header = header(&object)?;
    let raw = bpobj::normalize(ptr, false).encode(ByteOrder::Little);
    object.write(tx, header.num_blkptrs * PTR as u64, &raw)?;
    header.num_blkptrs += 1;
    header.bytes = header.bytes.wrapping_add_signed(sizes.used);
    header.comp = header.comp.wrapping_add_signed(sizes.comp);
    header.uncomp = header.uncomp.wrapping_add_signed(sizes.uncomp);
    put_header(&object, tx, &header);
    Ok(())
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
    if header.subobjs.0 != 0 {
        let subs = mos.object(header.subobjs)?;
        for i in 0..header.num_subobjs {
            let mut raw = [0; 8];
            subs.read(i * 8, &mut raw)?;
            walk(mos, ObjectId(u64::from_le_bytes(raw)), depth, each)?;
        }
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
    let subs = mos.object(header.subobjs)?;
    for i in 0..header.num_subobjs {
        let mut raw = [0; 8];
        subs.read(i * 8, &mut raw)?;
        free(mos, tx, ObjectId(u64::from_le_bytes(raw)))?;
    }
    mos.free(tx, header.subobjs)
}
