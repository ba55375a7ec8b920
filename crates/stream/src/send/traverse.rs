//! Walking the blocks of a snapshot that were born after another one, in the order of the stream.
//!
//! A lazy walk: of each object one indirect block per level is in memory.
//! Source: docs/format/09-send-stream.md §3.

use std::sync::Arc;

use dmu::walk::{Opened, Spot, Step, Walk};
use format::blkptr::{BlockPtr, SIZE as PTR};
use format::dnode::{self, Dnode, SLOT, SLOTS_PER_BLOCK};
use format::stream::{RECORD, feature};
use format::{ByteOrder, Compression, Corrupt, ObjectId, ObjectType, Txg};
use storage::{Record, Storage};

use pool::{Error, Result};

/// Largest block of a stream without [`feature::LARGE_BLOCKS`].
pub(super) const OLD_MAX_BLOCK: u64 = 128 << 10;

/// Something to be told.
pub(super) enum Event {
    /// An object, and its bonus to whole words.
    Object { id: u64, dnode: Arc<Dnode>, bonus: Vec<u8> },
    /// Numbers without an object.
    Free { first: u64, count: u64 },
    /// Blocks `start..end` of an object are holes; `end` 0: all from `start`.
    Hole { id: u64, block_size: u64, start: u64, end: u64 },
    /// A block of data.
    Data { id: u64, object_type: ObjectType, block_size: u64, blkid: u64, ptr: BlockPtr },
    /// A spill block.
    Spill { id: u64, ptr: BlockPtr },
}

impl Event {
    /// About how many bytes it takes in the stream.
    pub(super) fn size(&self, compressed: bool) -> u64 {
        let payload = match self {
            // Its end is told, too.
            Event::Object { bonus, .. } => bonus.len() as u64 + RECORD as u64,
            Event::Data { block_size, ptr, .. } => match ptr {
                BlockPtr::Block(block) if compressed && !block.object_type.is_metadata() => block.psize,
                _ => *block_size,
            },
            Event::Spill { ptr, .. } => ptr.lsize(),
            // Many of these become one record.
            Event::Free { .. } | Event::Hole { .. } => return 0,
        };
        payload + RECORD as u64
    }

    /// What of it comes no later than `last` (object, byte offset) in the order of the stream.
    pub(super) fn up_to(self, last: (u64, u64)) -> Option<Event> {
        let (object, _) = last;
        let told = |id: u64, blkid: u64, size: u64| match blkid.checked_mul(size) {
            Some(at) => (id, at) <= last,
            None => id < object,
        };
        match self {
            Event::Object { id, .. } => (id <= object).then_some(self),
            Event::Free { first, count } => {
                let left = object.checked_sub(first)?.saturating_add(1);
                Some(Event::Free { first, count: count.min(left) })
            }
            Event::Hole { id, block_size, start, .. } => told(id, start, block_size).then_some(self),
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
    /// As they lie on disk.
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

/// Whether a block that lies in its pointer is sent so. A block that the stream splits is not: OpenZFS sends it whole, and
/// its receiver keeps only the first 128 KiB.
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
pub(super) fn load(storage: &Storage, event: Event, features: u64, since: Txg) -> Result<Loaded> {
    let payload = match &event {
        Event::Object { dnode, .. } => match &dnode.spill {
            // Sent although unchanged: old receivers would lose it.
            Some(spill) if spill.birth() <= since => Some(Payload::Plain(storage.read(spill)?)),
            _ => None,
        },
        Event::Data { ptr, .. } if sent_embedded(ptr, features) => None,
        Event::Data { block_size, ptr, .. } => Some(load_data(storage, ptr, *block_size, features)?),
        Event::Spill { ptr, .. } => Some(Payload::Plain(storage.read(ptr)?)),
        Event::Free { .. } | Event::Hole { .. } => None,
    };
    Ok(Loaded { event, payload })
}

fn load_data(storage: &Storage, ptr: &BlockPtr, block_size: u64, features: u64) -> Result<Payload> {
    if let BlockPtr::Block(block) = ptr
        && features & feature::COMPRESSED != 0
        && !splits(block_size, features)
        && block.order == ByteOrder::Little
        && !block.object_type.is_metadata()
        && !block.encrypted
    {
        return Ok(Payload::Stored(storage.read_stored(block)?));
    }
    let record = storage.read_once(ptr)?;
    if record.len() as u64 != block_size {
        return Err(storage::ReadError::from(format::Corrupt::new("block size", record.len() as u64)).into());
    }
    Ok(Payload::Plain(record))
}

/// What the walk needs of an object.
struct Owner {
    id: u64,
    dnode: Arc<Dnode>,
}

impl Owner {
    fn new(id: u64, dnode: Arc<Dnode>) -> Arc<Owner> {
        Arc::new(Owner { id, dnode })
    }
}

/// A place where the walk goes on.
enum Frame {
    /// The tree of an object; the spill block comes after it.
    Tree { owner: Arc<Owner>, walk: Walk },
    /// The slots of a block of dnodes.
    Dnodes { record: Record, blkid: u64, slot: usize },
}

impl Frame {
    fn of(id: u64, dnode: Arc<Dnode>) -> Frame {
        Frame::Tree { walk: Walk::new(dnode.clone()), owner: Owner::new(id, dnode) }
    }
}

/// What a pointer leads to.
#[allow(clippy::large_enum_variant, reason = "one is made per pointer and taken apart at once")]
enum Found {
    /// Nothing to be told.
    Nothing,
    Event(Event),
    /// An indirect block.
    Indirect(Record),
    /// A block of dnodes.
    Dnodes(Record),
}

/// The walk.
pub(super) struct Traversal<'a> {
    storage: &'a Storage,
    since: Txg,
    stack: Vec<Frame>,
    /// Only which objects there are is of interest, not what they hold.
    dnodes_only: bool,
    /// What comes before this object and block was told already.
    start: (u64, u64),
    /// Blocks that lead to others and were opened.
    opened: Opened,
}

impl<'a> Traversal<'a> {
    /// All that was born after `since` below a meta-dnode.
    pub(super) fn new(storage: &'a Storage, meta: &Dnode, since: Txg) -> Traversal<'a> {
        let stack = vec![Frame::of(0, Arc::new(meta.clone()))];
        Traversal { storage, since, stack, dnodes_only: false, start: (0, 0), opened: Opened::default() }
    }

    /// As [`Traversal::new`], without what is in the objects.
    pub(super) fn of_dnodes(storage: &'a Storage, meta: &Dnode, since: Txg) -> Traversal<'a> {
        Traversal { dnodes_only: true, ..Traversal::new(storage, meta, since) }
    }

    /// Goes on with block `blkid` of object `id`; what was written of objects before it is left out.
    pub(super) fn starting_at(self, id: u64, blkid: u64) -> Traversal<'a> {
        Traversal { start: (id, blkid), ..self }
    }

    /// Whether all at and below `spot` comes before the start.
    fn is_told(&self, owner: &Owner, spot: Spot) -> bool {
        let (id, start) = match owner.id {
            0 => (0, self.start.0 / SLOTS_PER_BLOCK as u64),
            _ => self.start,
        };
        owner.id == id && spot.blocks(owner.dnode.fanout_shift()).end <= u128::from(start)
    }

    /// Refuses a block that leads to others and was opened before, or lies in its pointer.
    fn check_new(&mut self, owner: &Owner, ptr: &BlockPtr) -> Result<()> {
        let block = ptr.block();
        if block.is_some_and(|block| self.opened.is_first(block)) {
            return Ok(());
        }
        let what = "place of a block that leads to others";
        let offset = block.map_or(0, |block| block.dvas[0].offset);
        Err(Error::corrupt(ObjectId(owner.id))(Corrupt::new(what, offset)))
    }

    /// What one pointer leads to.
    fn visit(&mut self, owner: &Owner, ptr: &BlockPtr, spot: Spot) -> Result<Found> {
        // A slot that was never written has no birth: whether its number was something else before is not
        // known, so it is told.
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
            let record = self.storage.read(ptr)?;
            return Ok(if spot.level > 0 { Found::Indirect(record) } else { Found::Dnodes(record) });
        }
        let Dnode { object_type, block_size, .. } = *owner.dnode;
        let (id, block_size, blkid) = (owner.id, block_size.into(), spot.index);
        Ok(Found::Event(Event::Data { id, object_type, block_size, blkid, ptr: *ptr }))
    }

    /// The dnode in `slot`, and how many slots on the next one is.
    fn dnode(&mut self, record: &Record, blkid: u64, slot: usize) -> Result<(usize, Option<Event>)> {
        let id = blkid * SLOTS_PER_BLOCK as u64 + slot as u64;
        let raw = &record[slot * SLOT..];
        let found = Dnode::decode(raw, ByteOrder::Little).map_err(Error::corrupt(ObjectId(id)))?;
        if id < self.start.0 {
            return Ok((found.map_or(1, |dnode| dnode.slots.into()), None));
        }
        let Some(dnode) = found else {
            let event = (id != 0).then_some(Event::Free { first: id, count: 1 });
            return Ok((1, event));
        };
        let at = dnode::HEADER + dnode.block_ptrs.len() * PTR;
        let end = (at + dnode.bonus.len().next_multiple_of(8)).min(raw.len());
        let bonus = raw[at..end].to_vec();
        let dnode = Arc::new(dnode);
        if !self.dnodes_only {
            self.stack.push(Frame::of(id, dnode.clone()));
        }
        Ok((dnode.slots.into(), Some(Event::Object { id, dnode, bonus })))
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
                        Found::Dnodes(record) => {
                            dnodes = Some(Frame::Dnodes { record, blkid: spot.index, slot: 0 });
                        }
                    }
                }
                self.stack.push(Frame::Tree { owner, walk });
                self.stack.extend(dnodes);
                Ok(event)
            }
            Frame::Dnodes { record, blkid, slot } => {
                if slot >= SLOTS_PER_BLOCK || (slot + 1) * SLOT > record.len() {
                    return Ok(None);
                }
                let place = self.stack.len();
                let (slots, event) = self.dnode(&record, blkid, slot)?;
                self.stack.insert(place, Frame::Dnodes { record, blkid, slot: slot + slots });
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
