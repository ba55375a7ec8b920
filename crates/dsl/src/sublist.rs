//! The parts of a livelist: which blocks a clone wrote and which of them it freed, in the order in which that happened.
//!
//! From:   the sums of a sync (`livelist`), and what is on disk.
//! To:     `livelist`, which shortens the parts, and frees what the parts of a destroyed clone list.
//! Source: docs/format/06-mos-dsl.md §7.1, §7.5.

use std::collections::BTreeMap;

use dmu::Tx;
use format::blkptr::{BlockPtr, SIZE as PTR};
use format::bpobj::{self as phys, Header, SIZE_LIVELIST};
use format::{ByteOrder, Corrupt, ObjectId, Txg, VdevId};

use crate::mos::Mos;
use crate::sizes::Sizes;
use crate::{Error, Result, bpobj, deadlist};

/// Entries read at once.
const BATCH: u64 = 1024;
/// Maximal number of pointers that are held in memory. OpenZFS starts a new part after 500000 blocks, in the next txg.
const HELD_MAX: u64 = 1 << 22;

/// An entry of a part.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) ptr: BlockPtr,
    pub(crate) sizes: Sizes,
    /// The block was freed. Otherwise, it was written.
    pub(crate) free: bool,
}

/// Numbers of entries of a part.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counts {
    /// Written and freed blocks.
    pub(crate) all: u64,
    /// Freed blocks.
    pub(crate) freed: u64,
}

impl Counts {
    /// How many entries are left when each freed block is taken out of the list.
    pub(crate) const fn net(self) -> u64 {
        self.all.saturating_sub(self.freed.saturating_mul(2))
    }
}

/// Creates an empty part.
pub(crate) fn create(mos: &Mos, tx: &Tx) -> Result<ObjectId> {
    bpobj::create_sized(mos, tx, (deadlist::BLOCK, 0), SIZE_LIVELIST)
}

/// The header of a part, which has no sub-lists.
fn header(mos: &Mos, id: ObjectId) -> Result<Header> {
    let header = bpobj::header(&*mos.object(id)?)?;
    match header.num_subobjs {
        0 => Ok(header),
        subs => Err(Error::corrupt(id)(Corrupt::new("lists in a part of a livelist", subs))),
    }
}

/// How many blocks the part lists.
pub(crate) fn counts(mos: &Mos, id: ObjectId) -> Result<Counts> {
    let header = header(mos, id)?;
    Ok(Counts { all: header.num_blkptrs, freed: header.num_freed })
}

/// Appends entries. The part must be able to count frees, if there are some.
pub(crate) fn append<'a>(
    mos: &Mos,
    tx: &Tx,
    id: ObjectId,
    entries: impl IntoIterator<Item = &'a Entry>,
) -> Result<()> {
    let mut header = header(mos, id)?;
    let mut raw = Vec::new();
    for entry in entries {
        if entry.free && header.size != SIZE_LIVELIST {
            return Err(Error::corrupt(id)(Corrupt::new("header of a livelist's part", header.size as u64)));
        }
        raw.extend(phys::normalize(&entry.ptr, entry.free).encode(ByteOrder::Little));
        header.num_freed += u64::from(entry.free);
        bpobj::add_sizes(&mut header, if entry.free { -entry.sizes } else { entry.sizes });
    }
    let object = mos.object(id)?;
    object.write(tx, header.num_blkptrs * PTR as u64, &raw)?;
    header.num_blkptrs += (raw.len() / PTR) as u64;
    bpobj::put_header(&object, tx, &header);
    Ok(())
}

/// A block of a clone. Its place alone is not enough: a place is used again, and a shared block has several pointers.
type Key = (VdevId, u64, Txg, Txg);

fn key(id: ObjectId, ptr: &BlockPtr) -> Result<Key> {
    match ptr {
        BlockPtr::Block(block) => {
            Ok((block.dvas[0].vdev, block.dvas[0].offset, block.physical_birth(), block.birth))
        }
        _ => Err(Error::corrupt(id)(Corrupt::new("pointer without a block in a livelist", 0))),
    }
}

/// The last entries of a part, each freed block taken out.
struct Tail {
    /// Entries before these.
    before: u64,
    /// Written blocks that were not freed.
    live: Vec<BlockPtr>,
    /// Freed blocks that were written further ahead, and how often each is listed.
    open: BTreeMap<Key, (BlockPtr, u64)>,
    /// Entries of written blocks.
    written: u64,
}

impl Tail {
    /// Reads a part from its end on, until `count` entries of written blocks are read.
    fn read(mos: &Mos, id: ObjectId, count: u64) -> Result<Tail> {
        let before = header(mos, id)?.num_blkptrs;
        let mut tail = Tail { before, live: Vec::new(), open: BTreeMap::new(), written: 0 };
        let object = mos.object(id)?;
        while tail.before > 0 && tail.written < count {
            let batch = BATCH.min(tail.before);
            let mut raw = vec![0; batch as usize * PTR];
            object.read((tail.before - batch) * PTR as u64, &mut raw)?;
            for slot in raw.chunks_exact(PTR).rev() {
                tail.enter(id, bpobj::listed(id, slot)?)?;
                tail.before -= 1;
                if tail.written == count {
                    break;
                }
            }
            let held = tail.live.len() as u64 + tail.open.len() as u64;
            if held > HELD_MAX {
                return Err(Error::corrupt(id)(Corrupt::new("entries of a livelist's part", held)));
            }
        }
        let freed = tail.open.values().map(|(_, freed)| freed).sum::<u64>();
        if freed > tail.before {
            return Err(Error::corrupt(id)(Corrupt::new("freed blocks that no clone wrote", freed)));
        }
        Ok(tail)
    }

    /// Takes up the entry before the last one.
    fn enter(&mut self, id: ObjectId, ptr: BlockPtr) -> Result<()> {
        let key = key(id, &ptr)?;
        if phys::is_free(&ptr) {
            self.open.entry(key).or_insert((ptr, 0)).1 += 1;
            return Ok(());
        }
        self.written += 1;
        match self.open.get_mut(&key) {
            Some((_, freed)) if *freed > 1 => *freed -= 1,
            Some(_) => drop(self.open.remove(&key)),
            None => self.live.push(ptr),
        }
        Ok(())
    }
}

/// The blocks that a part lists as written and not as freed.
pub(crate) fn live(mos: &Mos, id: ObjectId) -> Result<Vec<BlockPtr>> {
    Tail::read(mos, id, u64::MAX).map(|tail| tail.live)
}

/// Blocks that were taken out of a part.
pub(crate) struct Taken {
    /// Blocks that the clone had when it was destroyed.
    pub(crate) blocks: Vec<BlockPtr>,
    /// By how much the sums of the part fell.
    pub(crate) sizes: Sizes,
    /// Entries of written blocks that are gone.
    pub(crate) written: u64,
    /// Nothing is left.
    pub(crate) all: bool,
}

/// Takes `count` entries of written blocks out of a part, the last ones first. The rest is a part for OpenZFS, too: freed
/// blocks that were written further ahead are its last entries.
pub(crate) fn take(mos: &Mos, tx: &Tx, id: ObjectId, count: u64) -> Result<Taken> {
    let mut header = header(mos, id)?;
    let Tail { before, live, open, written } = Tail::read(mos, id, count)?;
    let totals = |header: &Header| Sizes {
        used: header.bytes as i64,
        comp: header.comp as i64,
        uncomp: header.uncomp as i64,
    };
    let sums = totals(&header);
    if before == 0 {
        return Ok(Taken { blocks: live, sizes: sums, written, all: true });
    }
    let sizes = live.iter().fold(Sizes::default(), |sum, ptr| sum + Sizes::of(mos.objset.vdevs(), ptr));
    bpobj::add_sizes(&mut header, -sizes);
    let still = open.values().flat_map(|(ptr, freed)| (0..*freed).map(|_| ptr.encode(ByteOrder::Little)));
    let raw: Vec<u8> = still.flatten().collect();
    let object = mos.object(id)?;
    if !raw.is_empty() {
        object.write(tx, before * PTR as u64, &raw)?;
    }
    let kept = (raw.len() / PTR) as u64;
    header.num_blkptrs = before + kept;
    // Each written block that is gone and was freed took one entry of a freed block with it.
    header.num_freed = header.num_freed.saturating_sub(written - live.len() as u64);
    object.free_blocks(tx, (header.num_blkptrs * PTR as u64).div_ceil(object.block_size()), u64::MAX);
    bpobj::put_header(&object, tx, &header);
    Ok(Taken { blocks: live, sizes, written, all: false })
}
