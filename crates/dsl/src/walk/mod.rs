//! Every block of the pool once, in the order of the trees.
//!
//! From:   the MOS, datasets, and what is left of destroyed ones.
//! To:     `check`, scrubs, rewinding and destroying: blocks with their places, to be verified, or freed.

mod place;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::mpsc::Sender;

use dmu::walk::{Opened, Spot, pointers_in};
use format::blkptr::{Block, BlockPtr, Embedded};
use format::bptree::Mark;
use format::dnode::{Dnode, SLOT, SLOTS_PER_BLOCK};
use format::objset::Objset as Phys;
use format::{ByteOrder, Corrupt, ObjectId, ObjectType, Txg};

use storage::Storage;

pub use self::place::{Place, Target};

use self::place::{Behind, ROOT_SHIFT, SPECIAL};

const LE: ByteOrder = ByteOrder::Little;
/// Indirect blocks that are read at once.
const AHEAD: usize = 16;
/// Number of next steps that are searched for them.
const AHEAD_STEPS: usize = 256;

/// Owner of a block: the number of its DSL dataset object, 0 for the MOS, or [`DESTROYED`].
pub type Owner = ObjectId;

/// Owner of blocks of destroyed datasets.
pub const DESTROYED: Owner = ObjectId(u64::MAX);

/// Start of a walk: the MOS, a dataset, or the remaining part of a destroyed one.
#[derive(Clone, Debug)]
pub struct Root {
    /// Dataset that the blocks count for.
    pub owner: Owner,
    /// Name for messages.
    pub name: String,
    /// Pointer to the objset's root block.
    pub ptr: BlockPtr,
    /// Blocks born at or before this txg belong to an earlier snapshot.
    pub since: Txg,
    /// How far it was freed.
    pub freed: Option<Mark>,
}

impl Root {
    /// A root without freed parts.
    pub fn new(owner: Owner, name: impl Into<String>, ptr: BlockPtr, since: Txg) -> Root {
        Root { owner, name: name.into(), ptr, since, freed: None }
    }
}

/// One thing that the walk meets.
pub enum Item {
    /// A block on a vdev.
    Block(Place, Block),
    /// A pointer that holds its data itself.
    Embedded(Place, Embedded),
    /// A block that leads to others and cannot be read, with the reason. The blocks below it are not visited.
    Unreadable(Place, String),
}

/// Something still to be visited.
struct Todo {
    place: Place,
    ptr: BlockPtr,
    kind: Kind,
    /// It was read ahead into the cache.
    asked: bool,
}

#[derive(Clone, Copy)]
enum Kind {
    /// An objset's root block.
    Objset,
    /// Part of an object's tree; of the meta-dnode's if `dnodes`.
    Tree { fanout_shift: u32, dnodes: bool },
    /// A spill block.
    Spill,
}

impl Todo {
    /// The block, if it refers to others.
    fn leads_on(&self) -> Option<&Block> {
        let is_leaf =
            self.ptr.level() == 0 && !matches!(self.kind, Kind::Objset | Kind::Tree { dnodes: true, .. });
        self.ptr.block().filter(|_| !is_leaf)
    }

    /// Whether the pointer leads to no block in range.
    fn is_empty(&self) -> bool {
        self.ptr.is_hole() || self.ptr.accounting_birth() <= self.place.root.since
    }
}

/// A pointer with a wrong fill count.
pub struct WrongFill {
    /// Where the pointer's block is.
    pub place: Place,
    /// The fill count in the pointer.
    pub stored: u64,
    /// The count from the entries of its block.
    pub counted: u64,
}

enum Step {
    Visit(Todo),
    /// Everything below was handed out.
    Leave(Item),
}

/// The remaining part of a destroyed dataset.
pub fn destroyed(entry: &format::bptree::Entry) -> Root {
    let freed = entry.mark;
    Root { freed, ..Root::new(DESTROYED, "a destroyed dataset", entry.root, entry.since) }
}

/// A depth-first walk over all trees. It reads only indirect blocks, dnode blocks and objset roots. The caller verifies all
/// returned blocks.
pub struct Walk<'a> {
    storage: &'a Storage,
    todo: Vec<Step>,
    out: Vec<Item>,
    after: Option<Place>,
    towards: Option<Target>,
    children_first: bool,
    /// Blocks read.
    reads: u64,
    /// Receiver of wrong fill counts.
    fills: Option<Sender<WrongFill>>,
    /// Blocks that lead on and were opened.
    opened: Opened,
}

impl<'a> Walk<'a> {
    /// The part of the tree of `root` after `mark`. The tree may have changed since.
    pub fn after(storage: &'a Storage, root: &Root, mark: Option<Place>) -> Walk<'a> {
        Walk { after: mark, ..Walk::new(storage, std::slice::from_ref(root)) }
    }

    /// The path to `target` in the tree of `root`.
    pub fn towards(storage: &'a Storage, root: &Root, target: Target) -> Walk<'a> {
        Walk { towards: Some(target), ..Walk::new(storage, std::slice::from_ref(root)) }
    }

    /// The tree of `root`, every block after all blocks below it. Ends at an unreadable block.
    pub fn children_first(storage: &'a Storage, root: &Root) -> Walk<'a> {
        Walk { children_first: true, ..Walk::new(storage, std::slice::from_ref(root)) }
    }

    /// All trees. `fills` receives every pointer with a wrong fill count (03 §5.2), before the blocks below it are returned.
    pub fn counting(storage: &'a Storage, roots: &[Root], fills: Sender<WrongFill>) -> Walk<'a> {
        Walk { fills: Some(fills), ..Walk::new(storage, roots) }
    }

    /// All trees of `roots`, one after the other; every block before what is below it.
    pub fn new(storage: &'a Storage, roots: &[Root]) -> Walk<'a> {
        let start = |root: &Root| {
            let (place, ptr) = (Place::root(Arc::new(root.clone())), root.ptr);
            Step::Visit(Todo { place, ptr, kind: Kind::Objset, asked: false })
        };
        let todo = roots.iter().rev().map(start).collect();
        let (out, after, towards) = (Vec::new(), None, None);
        Walk {
            storage,
            todo,
            out,
            after,
            towards,
            children_first: false,
            reads: 0,
            fills: None,
            opened: Opened::default(),
        }
    }

    /// Blocks that were read to find the blocks below them.
    pub fn reads(&self) -> u64 {
        self.reads
    }

    /// The part of `todo` to skip: [`Behind::All`] for an empty one.
    fn behind(&self, todo: &Todo) -> Behind {
        let fanout_shift = match todo.kind {
            Kind::Tree { fanout_shift, .. } => fanout_shift,
            Kind::Objset | Kind::Spill => 0,
        };
        if todo.is_empty() || self.towards.is_some_and(|target| !todo.place.leads_to(&target, fanout_shift)) {
            return Behind::All;
        }
        match self.after.as_ref().map_or(Behind::Nothing, |mark| todo.place.seen(mark)) {
            Behind::Nothing => todo.place.freed(),
            seen => seen,
        }
    }

    fn visit(&mut self, todo: Todo) {
        let behind = self.behind(&todo);
        if behind == Behind::All {
            return;
        }
        if todo.ptr.level() != todo.place.level {
            // Else a block that points to itself would have no end.
            let corrupt = Corrupt::new("level of a block", todo.ptr.level().into());
            return self.out.push(Item::Unreadable(todo.place, corrupt.to_string()));
        }
        if let Some(block) = todo.leads_on()
            && behind != Behind::Below
            && !self.opened.is_first(block)
        {
            let why = "a block that leads to others is used twice".to_owned();
            return self.out.push(Item::Unreadable(todo.place, why));
        }
        let item = match &todo.ptr {
            BlockPtr::Hole(_) => return,
            BlockPtr::Embedded(embedded) => Item::Embedded(todo.place.clone(), *embedded),
            BlockPtr::Block(block) => Item::Block(todo.place.clone(), *block),
        };
        match behind {
            Behind::Itself | Behind::All => {}
            Behind::Below | Behind::Nothing if self.children_first => self.todo.push(Step::Leave(item)),
            Behind::Below | Behind::Nothing => self.out.push(item),
        }
        if todo.leads_on().is_none() {
            return self.compare_fill(&todo, 1);
        }
        if behind == Behind::Below {
            return;
        }
        if !todo.asked {
            self.read_next_too(&todo.ptr);
        }
        self.reads += 1;
        let record = match self.storage.read(&todo.ptr) {
            Ok(record) => record,
            Err(error) => return self.out.push(Item::Unreadable(todo.place, error.to_string())),
        };
        let before = self.todo.len();
        let opened = match todo.kind {
            Kind::Objset => self.open_objset(&todo, &record),
            Kind::Tree { fanout_shift, dnodes } if todo.ptr.level() > 0 => {
                self.open_indirect(&todo, &record, fanout_shift, dnodes)
            }
            Kind::Tree { .. } => self.open_dnodes(&todo, &record),
            Kind::Spill => Ok(todo.ptr.fill()),
        };
        match opened {
            Ok(counted) => self.compare_fill(&todo, counted),
            Err(error) => self.out.push(Item::Unreadable(todo.place, error.to_string())),
        }
        // Last in, first out: what comes first must be pushed last.
        self.todo[before..].reverse();
    }

    fn compare_fill(&self, todo: &Todo, counted: u64) {
        let stored = todo.ptr.fill();
        if stored != counted
            && let Some(fills) = &self.fills
        {
            // The receiver is gone when the check has ended.
            let _ = fills.send(WrongFill { place: todo.place.clone(), stored, counted });
        }
    }

    /// Reads the indirect blocks of the next steps together with `ptr`, on all cores, because single reads would each wait
    /// for the disk. A failed read is repeated when its step comes.
    fn read_next_too(&mut self, ptr: &BlockPtr) {
        let mut wanted = vec![*ptr];
        for at in (self.todo.len().saturating_sub(AHEAD_STEPS)..self.todo.len()).rev() {
            if wanted.len() == AHEAD {
                break;
            }
            let Step::Visit(todo) = &self.todo[at] else { continue };
            let is_wanted = !todo.asked
                && todo.leads_on().is_some()
                && matches!(self.behind(todo), Behind::Nothing | Behind::Itself);
            if let Step::Visit(todo) = &mut self.todo[at]
                && is_wanted
            {
                todo.asked = true;
                wanted.push(todo.ptr);
            }
        }
        if wanted.len() > 1 {
            let storage = self.storage;
            let read = |ptr| drop(storage.read(&ptr));
            let done = storage.readers().map_ordered(storage::Caller::Works, wanted, AHEAD, read, Ok);
            let Ok(()): std::result::Result<(), std::convert::Infallible> = done;
        }
    }

    /// As all that open a block, gives the fill count that its pointer should have.
    fn open_objset(&mut self, todo: &Todo, record: &[u8]) -> std::result::Result<u64, Corrupt> {
        let phys = Phys::decode(record, LE)?;
        self.push_dnode(todo, ObjectId(0), &phys.meta_dnode);
        let special = [&phys.project_used, &phys.group_used, &phys.user_used];
        for (object, dnode) in SPECIAL.into_iter().zip(special) {
            if let Some(dnode) = dnode {
                self.push_dnode(todo, object, dnode);
            }
        }
        Ok(phys.meta_dnode.block_ptrs.iter().map(BlockPtr::fill).fold(0, u64::saturating_add))
    }

    fn push(&mut self, place: Place, ptr: BlockPtr, kind: Kind) {
        self.todo.push(Step::Visit(Todo { place, ptr, kind, asked: false }));
    }

    fn push_dnode(&mut self, from: &Todo, object: ObjectId, dnode: &Dnode) {
        // Dnode blocks inside dnode blocks could form an endless loop.
        let dnodes = object == ObjectId(0) && dnode.object_type == ObjectType::DNODE;
        let kind = Kind::Tree { fanout_shift: dnode.fanout_shift(), dnodes };
        for (blkid, ptr) in dnode.block_ptrs.iter().enumerate() {
            let level = dnode.levels - 1;
            let shift = (dnode.fanout_shift() * u32::from(level)).min(ROOT_SHIFT - 1);
            let place = Place { object, level, blkid: blkid as u64, shift, ..from.place.clone() };
            self.push(place, *ptr, kind);
        }
        if let Some(spill) = dnode.spill {
            let place = Place { object, level: 0, blkid: u64::MAX, shift: 0, ..from.place.clone() };
            self.push(place, spill, Kind::Spill);
        }
    }

    fn open_indirect(
        &mut self,
        todo: &Todo,
        record: &[u8],
        fanout_shift: u32,
        dnodes: bool,
    ) -> std::result::Result<u64, Corrupt> {
        let mut fill = 0_u64;
        let spot = Spot { level: todo.place.level, index: todo.place.blkid };
        for pointer in pointers_in(spot, fanout_shift, record) {
            let (spot, ptr) = pointer?;
            if ptr == BlockPtr::HOLE {
                continue;
            }
            fill = ptr.fill().saturating_add(fill);
            let place = Place {
                level: spot.level,
                blkid: spot.index,
                shift: todo.place.shift.saturating_sub(fanout_shift),
                ..todo.place.clone()
            };
            self.push(place, ptr, Kind::Tree { fanout_shift, dnodes });
        }
        Ok(fill)
    }

    fn open_dnodes(&mut self, todo: &Todo, record: &[u8]) -> std::result::Result<u64, Corrupt> {
        let first = todo.place.blkid * SLOTS_PER_BLOCK as u64;
        let (mut slot, mut objects) = (0, 0);
        while slot < SLOTS_PER_BLOCK && (slot + 1) * SLOT <= record.len() {
            match Dnode::decode(&record[slot * SLOT..], LE)? {
                Some(dnode) => {
                    self.push_dnode(todo, ObjectId(first + slot as u64), &dnode);
                    slot += usize::from(dnode.slots);
                    objects += 1;
                }
                None => slot += 1,
            }
        }
        Ok(objects)
    }
}

impl Iterator for Walk<'_> {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        loop {
            // At most two at a time: the block itself, and that it could not be opened.
            if let Some(item) = self.out.pop() {
                return Some(item);
            }
            match self.todo.pop()? {
                Step::Visit(todo) => self.visit(todo),
                Step::Leave(item) => return Some(item),
            }
        }
    }
}
