//! Every block of the pool once, in the order of the trees.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use format::blkptr::{Block, BlockPtr, Embedded, SIZE as PTR};
use format::dnode::{Dnode, SLOT, SLOTS_PER_BLOCK};
use format::dsl_dataset::DslDataset;
use format::objset::Objset as Phys;
use format::{ByteOrder, ObjectId, ObjectType, Txg};

use storage::{ReadError, Record};

use super::{DatasetId, Finding, Root};
use crate::pool::Inner;
use crate::{Result, dsl::lookup};

const LE: ByteOrder = ByteOrder::Little;

/// Whose block it is: the DSL dataset object, 0 for the MOS.
pub(crate) type Owner = DatasetId;

/// Where a block hangs.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) owner: Owner,
    name: Arc<str>,
    pub(crate) object: ObjectId,
    pub(crate) level: u8,
    pub(crate) blkid: u64,
    /// log2 of the blocks of level 0 below it.
    shift: u32,
}

/// [`Place::shift`] of an objset's root block: all of the meta-dnode's blocks are below it.
const ROOT_SHIFT: u32 = 126;
/// Stands for the blocks of dnodes before an objset's special objects.
const AFTER_DNODES: u128 = 1 << 100;

/// How much of a subtree was handed out before a walk was taken up again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    All,
    /// The block itself, and perhaps some below it.
    Itself,
    Nothing,
}

impl Place {
    /// The objset's root block.
    pub(crate) fn is_root(&self) -> bool {
        self.shift == ROOT_SHIFT
    }

    /// First and last block of level 0 at or below.
    fn span(&self) -> (u128, u128) {
        let first = u128::from(self.blkid).checked_shl(self.shift).unwrap_or(0);
        (first, first.saturating_add((1u128 << self.shift) - 1))
    }

    /// The block of dnodes that holds its object's.
    fn dnode_block(&self) -> u128 {
        match u64::MAX - self.object.0 {
            special @ 0..=2 => AFTER_DNODES + u128::from(special),
            _ => u128::from(self.object.0) / SLOTS_PER_BLOCK as u128,
        }
    }

    /// How much of what is here comes before or at `mark`, the last block that was handed out.
    fn seen(&self, mark: &Place) -> Seen {
        let meta = |place: &Place| place.object == ObjectId(0);
        let (first, last) = self.span();
        let (at, depth) = match (meta(self), meta(mark)) {
            (true, false) => (mark.dnode_block(), 0),
            (false, true) => {
                return if self.dnode_block() < mark.span().0 { Seen::All } else { Seen::Nothing };
            }
            (false, false) if self.object != mark.object => {
                let order = |place: &Place| (place.dnode_block(), place.object);
                return if order(self) < order(mark) { Seen::All } else { Seen::Nothing };
            }
            _ => (mark.span().0, mark.shift),
        };
        if last < at {
            Seen::All
        } else if first <= at && self.shift >= depth {
            Seen::Itself
        } else {
            Seen::Nothing
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} object {} level {} block {}", self.name, self.object, self.level, self.blkid)
    }
}

/// What the walk meets.
pub(crate) enum Item {
    Block(Place, Block),
    Embedded(Place, Embedded),
    Unreadable(Place, String),
}

/// Something still to be visited.
struct Todo {
    place: Place,
    ptr: BlockPtr,
    since: Txg,
    kind: Kind,
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

/// The MOS and every dataset and snapshot that its objects describe.
pub(crate) fn roots(inner: &Inner, report: &mut dyn FnMut(Finding)) -> Result<Vec<Root>> {
    let mos = &inner.mos;
    let (_, mos_ptr) = mos.objset.synced_root();
    let mut roots = vec![Root { owner: ObjectId(0), name: "the MOS".into(), ptr: mos_ptr, since: Txg(0) }];
    let mut names: HashMap<ObjectId, String> = HashMap::new();
    for info in lookup::list(inner, &inner.name(), None, true)? {
        names.insert(info.id, info.name);
    }
    for entry in mos.objset.synced_objects() {
        let (id, dnode) = match entry {
            Ok(found) => found,
            Err(error) => {
                report(Finding::Unreadable { place: "the MOS".into(), why: error.to_string() });
                continue;
            }
        };
        if dnode.bonus_type != ObjectType::DSL_DATASET {
            continue;
        }
        match DslDataset::decode(&dnode.bonus, LE) {
            Ok(phys) => roots.push(Root {
                owner: id,
                name: names.remove(&id).unwrap_or_else(|| format!("dataset {id}")),
                ptr: phys.bp,
                since: phys.prev_snap_txg,
            }),
            Err(error) => {
                report(Finding::Unreadable { place: format!("dataset {id}"), why: error.to_string() });
            }
        }
    }
    Ok(roots)
}

/// A block by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// 0 for the dnodes of the objset.
    pub(crate) object: ObjectId,
    /// -1 for the objset's root block.
    pub(crate) level: i64,
    pub(crate) blkid: u64,
}

impl Place {
    /// The same, as error logs name it.
    pub(crate) fn target(&self) -> Target {
        let level = if self.is_root() { -1 } else { i64::from(self.level) };
        Target { object: self.object, level, blkid: self.blkid }
    }

    /// Whether it is `target` or leads there, in a tree whose blocks point to `1 << fanout_shift` others.
    fn leads_to(&self, target: &Target, fanout_shift: u32) -> bool {
        if self.is_root() || *target == self.target() {
            return true;
        }
        if target.level < 0 {
            return false;
        }
        if self.object != target.object {
            let (first, last) = self.span();
            return self.object == ObjectId(0)
                && (first..=last).contains(&(u128::from(target.object.0) / SLOTS_PER_BLOCK as u128));
        }
        let above = i64::from(self.level) - target.level;
        above > 0 && target.blkid.checked_shr(fanout_shift * above as u32).unwrap_or(0) == self.blkid
    }
}

/// Depth-first over all trees. Only indirect blocks, dnode blocks and objset roots are read here; whatever is
/// met is handed out to be verified by others.
pub(crate) struct Walk<'a> {
    inner: &'a Inner,
    todo: Vec<Todo>,
    out: Vec<Item>,
    after: Option<Place>,
    towards: Option<Target>,
}

impl<'a> Walk<'a> {
    /// What comes behind `mark` in the tree of `root`; the tree may have changed since.
    pub(crate) fn after(inner: &'a Inner, root: &Root, mark: Option<Place>) -> Walk<'a> {
        Walk { after: mark, ..Walk::new(inner, std::slice::from_ref(root)) }
    }

    /// `target` in the tree of `root`, and what leads there.
    pub(crate) fn towards(inner: &'a Inner, root: &Root, target: Target) -> Walk<'a> {
        Walk { towards: Some(target), ..Walk::new(inner, std::slice::from_ref(root)) }
    }

    pub(crate) fn new(inner: &'a Inner, roots: &[Root]) -> Walk<'a> {
        let start = |root: &Root| Todo {
            place: Place {
                owner: root.owner,
                name: root.name.as_str().into(),
                object: ObjectId(0),
                level: 0,
                blkid: 0,
                shift: ROOT_SHIFT,
            },
            ptr: root.ptr,
            since: root.since,
            kind: Kind::Objset,
        };
        let todo = roots.iter().rev().map(start).collect();
        Walk { inner, todo, out: Vec::new(), after: None, towards: None }
    }

    fn visit(&mut self, todo: Todo) {
        let fanout_shift = match todo.kind {
            Kind::Tree { fanout_shift, .. } => fanout_shift,
            Kind::Objset | Kind::Spill => 0,
        };
        if self.towards.is_some_and(|target| !todo.place.leads_to(&target, fanout_shift)) {
            return;
        }
        let seen = self.after.as_ref().map_or(Seen::Nothing, |mark| todo.place.seen(mark));
        if seen == Seen::All {
            return;
        }
        let new = seen == Seen::Nothing;
        let block = match &todo.ptr {
            BlockPtr::Hole(_) => return,
            ptr if ptr.accounting_birth() <= todo.since => return,
            BlockPtr::Embedded(embedded) => {
                if new {
                    self.out.push(Item::Embedded(todo.place.clone(), *embedded));
                }
                None
            }
            BlockPtr::Block(block) => {
                if new {
                    self.out.push(Item::Block(todo.place.clone(), *block));
                }
                Some(block)
            }
        };
        let leaf =
            todo.ptr.level() == 0 && !matches!(todo.kind, Kind::Objset | Kind::Tree { dnodes: true, .. });
        let Some(block) = block.filter(|_| !leaf) else { return };
        let record = match self.read(block, &todo.ptr) {
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
            Kind::Spill => Ok(()),
        };
        if let Err(error) = opened {
            self.out.push(Item::Unreadable(todo.place, error.to_string()));
        }
        // Last in, first out: what comes first must be pushed last.
        self.todo[before..].reverse();
    }

    /// What leads on. Of an encrypted block of dnodes only what is in the dnodes' bonus areas is ciphertext, and it is
    /// never compressed (06 §14.2).
    fn read(&self, block: &Block, ptr: &BlockPtr) -> std::result::Result<Record, ReadError> {
        let ciphertext = block.encrypted && block.level == 0 && block.object_type == ObjectType::DNODE;
        if ciphertext && block.order == LE && block.psize == block.lsize {
            return self.inner.storage.read_stored(block).map(Arc::new);
        }
        self.inner.storage.read(ptr)
    }

    fn open_objset(&mut self, todo: &Todo, record: &[u8]) -> std::result::Result<(), format::Corrupt> {
        let phys = Phys::decode(record, LE)?;
        self.push_dnode(todo, ObjectId(0), &phys.meta_dnode);
        for (i, special) in [&phys.user_used, &phys.group_used, &phys.project_used].into_iter().enumerate() {
            if let Some(dnode) = special {
                self.push_dnode(todo, ObjectId(u64::MAX - i as u64), dnode);
            }
        }
        Ok(())
    }

    fn push_dnode(&mut self, from: &Todo, object: ObjectId, dnode: &Dnode) {
        let kind =
            Kind::Tree { fanout_shift: dnode.fanout_shift(), dnodes: dnode.object_type == ObjectType::DNODE };
        for (blkid, ptr) in dnode.block_ptrs.iter().enumerate() {
            let level = dnode.levels - 1;
            let shift = (dnode.fanout_shift() * u32::from(level)).min(ROOT_SHIFT - 1);
            let place = Place { object, level, blkid: blkid as u64, shift, ..from.place.clone() };
            self.todo.push(Todo { place, ptr: *ptr, since: from.since, kind });
        }
        if let Some(spill) = dnode.spill {
            let place = Place { object, level: 0, blkid: u64::MAX, shift: 0, ..from.place.clone() };
            self.todo.push(Todo { place, ptr: spill, since: from.since, kind: Kind::Spill });
        }
    }

    fn open_indirect(
        &mut self,
        todo: &Todo,
        record: &[u8],
        fanout_shift: u32,
        dnodes: bool,
    ) -> std::result::Result<(), format::Corrupt> {
        for (i, raw) in record.chunks_exact(PTR).enumerate() {
            if raw.iter().all(|&byte| byte == 0) {
                continue;
            }
            let ptr = BlockPtr::decode(raw, LE)?;
            let place = Place {
                level: todo.ptr.level() - 1,
                blkid: (todo.place.blkid << fanout_shift) + i as u64,
                shift: todo.place.shift.saturating_sub(fanout_shift),
                ..todo.place.clone()
            };
            self.todo.push(Todo { place, ptr, since: todo.since, kind: Kind::Tree { fanout_shift, dnodes } });
        }
        Ok(())
    }

    fn open_dnodes(&mut self, todo: &Todo, record: &[u8]) -> std::result::Result<(), format::Corrupt> {
        let first = todo.place.blkid * SLOTS_PER_BLOCK as u64;
        let mut slot = 0;
        while slot < SLOTS_PER_BLOCK && (slot + 1) * SLOT <= record.len() {
            match Dnode::decode(&record[slot * SLOT..], LE)? {
                Some(dnode) => {
                    self.push_dnode(todo, ObjectId(first + slot as u64), &dnode);
                    slot += usize::from(dnode.slots);
                }
                None => slot += 1,
            }
        }
        Ok(())
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
            let todo = self.todo.pop()?;
            self.visit(todo);
        }
    }
}
