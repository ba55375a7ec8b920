//! Walking the blocks of a snapshot that were born after another one, in the order of the stream.
//!
//! A lazy walk: of each object one indirect block per level is in memory.
//! Source: docs/format/09-send-stream.md §3.

use std::sync::Arc;

use dmu::walk::{Opened, Spot, Step, Walk};
use format::blkptr::{Block, BlockPtr, SIZE as PTR};
use format::dnode::{self, Dnode, SLOT, SLOTS_PER_BLOCK};
use format::stream::{OBJECT_SPILL, RAW_BYTESWAP, RECORD, feature};
use format::{ByteOrder, Compression, Corrupt, ObjectId, ObjectType, Txg};
use storage::{Reader, Record};

use pool::{Error, Result, SendFlags};

/// Largest block of a stream without [`feature::LARGE_BLOCKS`].
pub(super) const OLD_MAX_BLOCK: u64 = 128 << 10;

/// Something to be told.
pub(super) enum Event {
    /// Encryption parameters of the next dnode block, whose first object is `first`; in raw streams only.
    Range { first: u64, block: Block },
    /// An object and its bonus, padded to whole words. In a raw stream, the whole bonus area of the dnode. `flags`: of its
    /// record.
    Object { id: u64, dnode: Arc<Dnode>, bonus: Vec<u8>, flags: u8 },
    /// Numbers without an object.
    Free { first: u64, count: u64 },
    /// Blocks `start..end` of an object are holes; `end` 0: all from `start`.
    Hole { id: u64, block_size: u64, start: u64, end: u64 },
    /// Blocks `start..end` of an object are left out.
    Redact { id: u64, block_size: u64, start: u64, end: u64 },
    /// A block of data.
    Data { id: u64, object_type: ObjectType, block_size: u64, blkid: u64, ptr: BlockPtr },
    /// A spill block.
    Spill { id: u64, ptr: BlockPtr },
}

impl Event {
    /// About how many bytes it takes in the stream.
    pub(super) fn size(&self, flags: SendFlags) -> u64 {
        let payload = match self {
            // Its end is an event, too.
            Event::Object { bonus, .. } => bonus.len() as u64 + RECORD as u64,
            Event::Data { block_size, ptr, .. } => match ptr {
                BlockPtr::Block(block) if flags.raw && block.encrypted => block.psize,
                BlockPtr::Block(block) if flags.compressed && !block.object_type.is_metadata() => block.psize,
                _ => *block_size,
            },
            Event::Spill { ptr, .. } => ptr.lsize(),
            Event::Range { .. } | Event::Redact { .. } => 0,
            // Many of these become one record.
            Event::Free { .. } | Event::Hole { .. } => return 0,
        };
        payload + RECORD as u64
    }

    /// The part of it up to `last` (object, byte offset) in the order of the stream.
    pub(super) fn up_to(self, last: (u64, u64)) -> Option<Event> {
        let (object, _) = last;
        let told = |id: u64, blkid: u64, size: u64| match blkid.checked_mul(size) {
            Some(at) => (id, at) <= last,
            None => id < object,
        };
        match self {
            Event::Object { id, .. } | Event::Range { first: id, .. } => (id <= object).then_some(self),
            Event::Free { first, count } => {
                let left = object.checked_sub(first)?.saturating_add(1);
                Some(Event::Free { first, count: count.min(left) })
            }
            Event::Hole { id, block_size, start, .. } | Event::Redact { id, block_size, start, .. } => {
                told(id, start, block_size).then_some(self)
            }
            Event::Data { id, block_size, blkid, .. } => told(id, blkid, block_size).then_some(self),
            // It comes after all data.
            Event::Spill { id, .. } => (id < object).then_some(self),
        }
    }
}

/// An event with the bytes it needs.
pub(super) struct Loaded {
    pub(super) event: Event,
    /// Content of a data or spill block, or an unmodified spill block of an object.
    pub(super) payload: Option<Payload>,
}

/// The bytes of a block.
pub(super) enum Payload {
    /// As they read.
    Plain(Record),
    /// The bytes as on disk; decrypted, except in raw streams.
    Stored(Vec<u8>),
}

impl Payload {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Payload::Plain(record) => record,
            Payload::Stored(raw) => raw,
        }
    }
}

/// Whether the stream splits blocks of this size, in bytes.
pub(super) const fn splits(block_size: u64, features: u64) -> bool {
    block_size > OLD_MAX_BLOCK && features & feature::LARGE_BLOCKS == 0
}

/// Whether an embedded block is sent as such. A block that the stream splits is not: OpenZFS sends it whole, and its
/// receiver keeps only the first 128 KiB.
pub(super) fn sent_embedded(ptr: &BlockPtr, features: u64) -> bool {
    let BlockPtr::Embedded(embedded) = ptr else { return false };
    if splits(embedded.lsize, features) {
        return false;
    }
    let lz4 = embedded.compression.to_disk() < Compression::Lz4.to_disk() || features & feature::LZ4 != 0;
    let zstd = embedded.compression != Compression::Zstd || features & feature::ZSTD != 0;
    lz4 && zstd && features & feature::EMBED_DATA != 0
}

/// Reads what an event needs.
pub(super) fn load(reader: Reader<'_>, event: Event, features: u64, since: Txg) -> Result<Loaded> {
    let is_raw = features & feature::RAW != 0;
    let payload = match &event {
        Event::Object { dnode, .. } => match &dnode.spill {
            // Sent although it is unchanged, because old receivers would lose it.
            Some(spill) if spill.birth() <= since => Some(load_spill(reader, spill, is_raw)?),
            _ => None,
        },
        Event::Data { ptr, .. } if sent_embedded(ptr, features) => None,
        Event::Data { ptr, .. } if is_raw => Some(Payload::Stored(reader.read_stored(sealed(ptr)?)?)),
        Event::Data { block_size, ptr, .. } => Some(load_data(reader, ptr, *block_size, features)?),
        Event::Spill { ptr, .. } => Some(load_spill(reader, ptr, is_raw)?),
        Event::Range { .. } | Event::Free { .. } | Event::Hole { .. } | Event::Redact { .. } => None,
    };
    Ok(Loaded { event, payload })
}

/// The block of a pointer in an encrypted dataset. Blocks without authentication there are refused.
pub(super) fn sealed(ptr: &BlockPtr) -> Result<&Block> {
    let sealed = ptr.block().filter(|block| block.encrypted);
    sealed.ok_or_else(|| storage::ReadError::Unauthentic.into())
}

fn load_spill(reader: Reader<'_>, ptr: &BlockPtr, is_raw: bool) -> Result<Payload> {
    match is_raw {
        true => Ok(Payload::Stored(reader.read_stored(sealed(ptr)?)?)),
        false => Ok(Payload::Plain(reader.read(ptr)?)),
    }
}

/// The block, if it is sent as it lies on disk in a stream that is not raw.
fn sent_compressed(ptr: &BlockPtr, block_size: u64, features: u64) -> Option<&Block> {
    let compressed = features & feature::COMPRESSED != 0 && !splits(block_size, features);
    let fits = |block: &&Block| block.order == ByteOrder::Little && !block.object_type.is_metadata();
    ptr.block().filter(|_| compressed).filter(fits)
}

/// As [`load`], with zeros in place of what would be read, for the length of a stream that is not raw.
pub(super) fn unloaded(event: Event, features: u64, since: Txg, zeros: &Record) -> Loaded {
    let plain = |len: u64| match zeros.len() as u64 == len {
        true => Some(Payload::Plain(zeros.clone())),
        false => Some(Payload::Stored(vec![0; len as usize])),
    };
    let payload = match &event {
        Event::Object { dnode, .. } => match &dnode.spill {
            Some(spill) if spill.birth() <= since => plain(spill.lsize()),
            _ => None,
        },
        Event::Data { ptr, .. } if sent_embedded(ptr, features) => None,
        Event::Data { ptr, block_size, .. } => match sent_compressed(ptr, *block_size, features) {
            Some(block) => plain(block.psize),
            None => plain(*block_size),
        },
        Event::Spill { ptr, .. } => plain(ptr.lsize()),
        Event::Range { .. } | Event::Free { .. } | Event::Hole { .. } | Event::Redact { .. } => None,
    };
    Loaded { event, payload }
}

fn load_data(reader: Reader<'_>, ptr: &BlockPtr, block_size: u64, features: u64) -> Result<Payload> {
    if let Some(block) = sent_compressed(ptr, block_size, features) {
        return Ok(Payload::Stored(reader.read_compressed(block)?));
    }
    let record = reader.once().read(ptr)?;
    if record.len() as u64 != block_size {
        return Err(storage::ReadError::from(format::Corrupt::new("block size", record.len() as u64)).into());
    }
    Ok(Payload::Plain(record))
}

/// Values of an object that the walk needs.
struct Owner {
    id: u64,
    dnode: Arc<Dnode>,
}

impl Owner {
    fn new(id: u64, dnode: Arc<Dnode>) -> Arc<Owner> {
        Arc::new(Owner { id, dnode })
    }
}

/// A stack frame of the walk.
enum Frame {
    /// The tree of an object; the spill block comes after it.
    Tree { owner: Arc<Owner>, walk: Walk },
    /// The slots of a block of dnodes.
    Dnodes { record: Record, order: ByteOrder, blkid: u64, slot: usize },
}

impl Frame {
    fn of(id: u64, dnode: Arc<Dnode>) -> Frame {
        Frame::Tree { walk: Walk::new(dnode.clone()), owner: Owner::new(id, dnode) }
    }
}

/// The target of a pointer.
#[allow(clippy::large_enum_variant, reason = "one is made per pointer and taken apart at once")]
enum Found {
    /// Nothing to be told.
    Nothing,
    Event(Event),
    /// An indirect block.
    Indirect(Record),
    /// A block of dnodes, in this byte order.
    Dnodes(Record, ByteOrder),
}

/// The walk.
pub(super) struct Traversal<'a> {
    reader: Reader<'a>,
    /// Blocks of dnodes are taken as they lie on disk.
    is_raw: bool,
    since: Txg,
    stack: Vec<Frame>,
    /// List the objects without their contents.
    dnodes_only: bool,
    /// Skip everything before this object and byte offset.
    start: (u64, u64),
    /// Indirect blocks that were opened.
    opened: Opened,
}

impl<'a> Traversal<'a> {
    /// A walk over all blocks born after `since` below a meta-dnode.
    pub(super) fn new(reader: Reader<'a>, meta: &Dnode, since: Txg) -> Traversal<'a> {
        let stack = vec![Frame::of(0, Arc::new(meta.clone()))];
        let opened = Opened::default();
        Traversal { reader, is_raw: false, since, stack, dnodes_only: false, start: (0, 0), opened }
    }

    /// As [`Traversal::new`], for a raw stream of an encrypted dataset.
    pub(super) fn raw(self, is_raw: bool) -> Traversal<'a> {
        Traversal { is_raw, ..self }
    }

    /// As [`Traversal::new`], without the contents of objects.
    pub(super) fn of_dnodes(reader: Reader<'a>, meta: &Dnode, since: Txg) -> Traversal<'a> {
        Traversal { dnodes_only: true, ..Traversal::new(reader, meta, since) }
    }

    /// Starts at byte `offset` of object `id` and skips earlier objects.
    pub(super) fn starting_at(self, (id, offset): (u64, u64)) -> Traversal<'a> {
        Traversal { start: (id, offset), ..self }
    }

    /// Whether everything at and below `spot` is before the start.
    fn is_told(&self, owner: &Owner, spot: Spot) -> bool {
        let end = spot.blocks(owner.dnode.fanout_shift()).end;
        let (id, offset) = self.start;
        match owner.id {
            0 => end <= u128::from(id / SLOTS_PER_BLOCK as u64),
            owned => {
                // Object sizes always fit into this type.
                let bytes = end.saturating_mul(owner.dnode.block_size.into());
                owned == id && bytes <= u128::from(offset)
            }
        }
    }

    /// Refuses an indirect block that was opened before or is embedded.
    fn check_new(&mut self, owner: &Owner, ptr: &BlockPtr) -> Result<()> {
        let block = ptr.block();
        if block.is_some_and(|block| self.opened.is_first(block)) {
            return Ok(());
        }
        let what = "place of a block that leads to others";
        let offset = block.map_or(0, |block| block.dvas[0].offset);
        Err(Error::corrupt(ObjectId(owner.id))(Corrupt::new(what, offset)))
    }

    /// Finds the target of one pointer.
    fn visit(&mut self, owner: &Owner, ptr: &BlockPtr, spot: Spot) -> Result<Found> {
        // An unwritten slot has no birth txg. It is unknown whether the number was used before, so the stream frees it.
        if ptr.birth().0 != 0 && ptr.birth() <= self.since || self.is_told(owner, spot) {
            return Ok(Found::Nothing);
        }
        if ptr.is_hole() {
            return Ok(hole(owner, spot).map_or(Found::Nothing, Found::Event));
        }
        if let BlockPtr::Embedded(embedded) = ptr
            && embedded.kind != 0
        {
            return Err(Error::Unsupported("sending redacted blocks".into()));
        }
        if spot.level > 0 || owner.id == 0 {
            self.check_new(owner, ptr)?;
            if spot.level == 0 && self.is_raw {
                let block = sealed(ptr)?;
                return Ok(Found::Dnodes(Arc::new(self.reader.read_stored(block)?), block.order));
            }
            let record = self.reader.read(ptr)?;
            return Ok(match spot.level {
                0 => Found::Dnodes(record, ByteOrder::Little),
                _ => Found::Indirect(record),
            });
        }
        let Dnode { object_type, block_size, .. } = *owner.dnode;
        let (id, block_size, blkid) = (owner.id, block_size.into(), spot.index);
        Ok(Found::Event(Event::Data { id, object_type, block_size, blkid, ptr: *ptr }))
    }

    /// The dnode of object `id`, and how many slots on the next one is.
    fn dnode(&mut self, raw: &[u8], order: ByteOrder, id: u64) -> Result<(usize, Option<Event>)> {
        let found = Dnode::decode(raw, order).map_err(Error::corrupt(ObjectId(id)))?;
        if id < self.start.0 {
            return Ok((found.map_or(1, |dnode| dnode.slots.into()), None));
        }
        let Some(dnode) = found else {
            let event = (id != 0).then_some(Event::Free { first: id, count: 1 });
            return Ok((1, event));
        };
        let at = dnode::HEADER + dnode.block_ptrs.len() * PTR;
        let len = match self.is_raw && !dnode.bonus.is_empty() {
            true => dnode.bonus_capacity(),
            false => dnode.bonus.len().next_multiple_of(8),
        };
        let bonus = raw[at..(at + len).min(raw.len())].to_vec();
        let flags = if dnode.spill.is_some() { OBJECT_SPILL } else { 0 }
            | if order == ByteOrder::Big { RAW_BYTESWAP } else { 0 };
        let dnode = Arc::new(dnode);
        if !self.dnodes_only {
            self.stack.push(Frame::of(id, dnode.clone()));
        }
        Ok((dnode.slots.into(), Some(Event::Object { id, dnode, bonus, flags })))
    }

    /// One step; `None` when the frame is done.
    fn step(&mut self, frame: Frame) -> Result<Option<Event>> {
        match frame {
            Frame::Tree { owner, mut walk } => {
                let Some(step) = walk.next() else {
                    let changed = owner.dnode.spill.filter(|spill| spill.birth() > self.since);
                    return Ok(changed.map(|ptr| Event::Spill { id: owner.id, ptr }));
                };
                let step = step.map_err(Error::corrupt(ObjectId(owner.id)))?;
                let (mut event, mut dnodes) = (None, None);
                if let Step::At(spot, ptr) = step {
                    match self.visit(&owner, &ptr, spot)? {
                        Found::Nothing => {}
                        Found::Event(found) => event = Some(found),
                        Found::Indirect(record) => walk.enter(spot, ptr, record),
                        Found::Dnodes(record, order) => {
                            let first = spot.index * SLOTS_PER_BLOCK as u64;
                            let block = ptr.block().filter(|_| self.is_raw);
                            event = block.map(|block| Event::Range { first, block: *block });
                            dnodes = Some(Frame::Dnodes { record, order, blkid: spot.index, slot: 0 });
                        }
                    }
                }
                self.stack.push(Frame::Tree { owner, walk });
                self.stack.extend(dnodes);
                Ok(event)
            }
            Frame::Dnodes { record, order, blkid, slot } => {
                if slot >= SLOTS_PER_BLOCK || (slot + 1) * SLOT > record.len() {
                    return Ok(None);
                }
                let place = self.stack.len();
                let id = blkid * SLOTS_PER_BLOCK as u64 + slot as u64;
                let (slots, event) = self.dnode(&record[slot * SLOT..], order, id)?;
                self.stack.insert(place, Frame::Dnodes { record, order, blkid, slot: slot + slots });
                Ok(event)
            }
        }
    }
}

fn hole(owner: &Owner, spot: Spot) -> Option<Event> {
    let Dnode { object_type, block_size, max_blkid, .. } = *owner.dnode;
    let shift = owner.dnode.fanout_shift() * u32::from(spot.level);
    let span = 1u64.checked_shl(shift).filter(|span| *span != 0)?;
    let start = span.checked_mul(spot.index)?;
    if !object_type.is_metadata() && start > max_blkid {
        return None;
    }
    let end = start.checked_add(span).unwrap_or(0);
    if owner.id == 0 {
        let first = start.checked_mul(SLOTS_PER_BLOCK as u64)?;
        let count = end.wrapping_mul(SLOTS_PER_BLOCK as u64).wrapping_sub(first);
        return Some(Event::Free { first, count });
    }
    Some(Event::Hole { id: owner.id, block_size: block_size.into(), start, end })
}

impl Iterator for Traversal<'_> {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Result<Event>> {
        while let Some(frame) = self.stack.pop() {
            match self.step(frame) {
                Ok(Some(event)) => return Some(Ok(event)),
                Ok(None) => {}
                Err(error) => {
                    self.stack.clear();
                    return Some(Err(error));
                }
            }
        }
        None
    }
}
