//! The blocks of a pool that are reached from its newest uberblock, with the places of the pointers that lead to them.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use codec::Salt;
use format::blkptr::{self, Block, Embedded};
use format::config::Label;
use format::dnode::{self, Dnode};
use format::uberblock::Uberblock;
use format::{BlockPtr, ByteOrder, ChecksumKind, ObjectType, Txg, label};

const LE: ByteOrder = ByteOrder::Little;
/// Offset 0 of a vdev, in bytes of the device.
pub(super) const DATA_START: u64 = 4 << 20;
/// Where an uberblock holds the pointer to the MOS.
pub(super) const ROOT_AT: usize = 0x28;
/// Where a DSL dataset's bonus holds the pointer to its objset.
const DATASET_BLKPTR: usize = 0x80;
/// Dnodes in an objset's block: of its objects, of what users, groups and projects use.
const OBJSET_DNODES: [usize; 4] = [0, 0x400, 0x600, 0x800];

/// The place of a block: its objset, object, level and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The DSL dataset object, 0 for the MOS.
    pub objset: u64,
    /// The object; 0 for the objset's own blocks.
    pub object: u64,
    /// Level in the object's tree; blocks of data are at 0.
    pub level: u8,
    /// Number of the block on its level; `u64::MAX` for a spill block and for the block of an objset.
    pub blkid: u64,
}

/// The place of a pointer.
#[derive(Clone, Copy)]
pub(super) enum Holder {
    /// In the uberblocks.
    Uberblocks,
    /// At a byte of the content of a block.
    Block { block: usize, at: usize },
}

pub(super) struct Node {
    /// For a block that is embedded in its pointer: the pointer that a block like it would have.
    pub(super) ptr: Block,
    pub(super) embedded: bool,
    pub(super) content: Vec<u8>,
    pub(super) holders: Vec<Holder>,
    place: Place,
}

/// A pool on one device, parsed.
pub struct Source {
    pub(super) image: Arc<Vec<u8>>,
    pub(super) blocks: Vec<Node>,
    pub(super) children_first: Vec<usize>,
    pub(super) uberblocks: Vec<Range<usize>>,
    pub(super) vdev_size: u64,
    pub(super) salt: Salt,
    by_offset: HashMap<u64, usize>,
}

impl Source {
    /// Parses an image of a pool that is sound. Blocks that cannot be read are left out.
    ///
    /// # Panics
    /// If the image has no label or no uberblock.
    #[must_use]
    pub fn parse(image: Vec<u8>) -> Source {
        let size = image.len() as u64;
        let offsets = label::offsets(size).expect("the image has labels");
        let phys = label::PHYS.of(&image[..label::SIZE as usize]);
        let list = label::decode_phys(phys).expect("the label is sound");
        let Ok(Label::Pool(config)) = Label::from_nvlist(&list) else { panic!("the label is of a pool") };
        let top = config.tree.top.as_ref().expect("the device is a top-level vdev");
        let mut source = Source {
            uberblocks: newest_uberblocks(&image, offsets, top.ashift),
            image: Arc::new(image),
            blocks: Vec::new(),
            children_first: Vec::new(),
            vdev_size: top.asize,
            salt: Salt::none(),
            by_offset: HashMap::new(),
        };
        let slot = source.uberblocks.first().expect("the pool has an uberblock").clone();
        let root = slot.start + ROOT_AT;
        let raw = source.image[root..root + blkptr::SIZE].to_vec();
        let place = Place { objset: 0, object: 0, level: 0, blkid: u64::MAX };
        source.follow(&raw, Holder::Uberblocks, place);
        source
    }

    /// The image.
    #[must_use]
    pub fn image(&self) -> &Arc<Vec<u8>> {
        &self.image
    }

    /// All blocks, by number, with the type of their object and their place.
    pub fn blocks(&self) -> impl Iterator<Item = (usize, ObjectType, Place)> {
        self.blocks.iter().enumerate().map(|(block, node)| (block, node.ptr.object_type, node.place))
    }

    /// The block at `place`. A block that several datasets share is found at the place where it was met first.
    #[must_use]
    pub fn block(&self, place: Place) -> Option<usize> {
        self.blocks.iter().position(|node| node.place == place)
    }

    /// The level 0 blocks of an object, in order.
    #[must_use]
    pub fn leaves(&self, objset: u64, object: u64) -> Vec<usize> {
        let is_leaf = |place: Place| place.objset == objset && place.object == object && place.level == 0;
        let mut found: Vec<_> = self.blocks().filter(|(_, _, place)| is_leaf(*place)).collect();
        found.sort_by_key(|(_, _, place)| place.blkid);
        found.into_iter().map(|(block, _, _)| block).collect()
    }

    /// The content of a block, uncompressed.
    #[must_use]
    pub fn content(&self, block: usize) -> &[u8] {
        &self.blocks[block].content
    }

    /// The block that holds the dnode of an object, and its bytes there.
    #[must_use]
    pub fn dnode(&self, objset: u64, object: u64) -> Option<(usize, Range<usize>)> {
        let slots = dnode::SLOTS_PER_BLOCK as u64;
        let block = self.block(Place { objset, object: 0, level: 0, blkid: object / slots })?;
        let at = (object % slots) as usize * dnode::SLOT;
        let slots = 1 + usize::from(*self.content(block).get(at + 0x0c)?);
        Some((block, at..at + slots * dnode::SLOT))
    }

    /// The bonus of an object.
    ///
    /// # Panics
    /// If there is no such object.
    #[must_use]
    pub fn bonus(&self, objset: u64, object: u64) -> &[u8] {
        let (block, range) = self.dnode(objset, object).expect("the object exists");
        let raw = &self.content(block)[range];
        &raw[bonus_at(raw)..]
    }

    /// The root directory of a file system.
    #[must_use]
    pub fn master_root(&self, objset: u64) -> Option<u64> {
        const MASTER_NODE: u64 = 1;
        let block = *self.leaves(objset, MASTER_NODE).first()?;
        format::zap::micro::lookup(self.content(block), b"ROOT").map(|entry| entry.value)
    }

    /// The numbers of the objects of an objset that have a bonus of this type.
    #[must_use]
    pub fn with_bonus(&self, objset: u64, bonus_type: ObjectType) -> Vec<u64> {
        let mut found = Vec::new();
        for block in self.leaves(objset, 0) {
            let Place { blkid, .. } = self.blocks[block].place;
            if blkid == u64::MAX {
                continue;
            }
            each_dnode(self.content(block), &mut |at, dnode| {
                if dnode.bonus_type == bonus_type {
                    found.push(blkid * dnode::SLOTS_PER_BLOCK as u64 + (at / dnode::SLOT) as u64);
                }
            });
        }
        found
    }

    /// Whether a block is embedded in its pointer. A change gives it a place of its own.
    #[must_use]
    pub fn is_embedded(&self, block: usize) -> bool {
        self.blocks[block].embedded
    }

    /// The pointer to a block, as it is in the block above.
    #[must_use]
    pub fn pointer(&self, block: usize) -> Block {
        self.blocks[block].ptr
    }

    fn enter_embedded(&mut self, embedded: &Embedded, holder: Holder, place: Place) {
        let mut content = vec![0; embedded.lsize as usize];
        let payload = &embedded.payload[..embedded.psize.into()];
        if codec::decompress(embedded.compression, payload, &mut content).is_err() {
            return;
        }
        let ptr = Block {
            checksum_kind: ChecksumKind::Fletcher4,
            fill: 1,
            ..Block::plain(embedded.object_type, embedded.birth)
        };
        self.children_first.push(self.blocks.len());
        self.blocks.push(Node { ptr, embedded: true, content, holders: vec![holder], place });
    }

    fn follow(&mut self, raw: &[u8], holder: Holder, place: Place) {
        let ptr = match BlockPtr::decode(raw, LE) {
            Ok(BlockPtr::Block(ptr)) => ptr,
            Ok(BlockPtr::Embedded(embedded)) => return self.enter_embedded(&embedded, holder, place),
            _ => return,
        };
        let (dva, len) = (ptr.dvas[0], ptr.psize as usize);
        if let Some(&known) = self.by_offset.get(&dva.offset) {
            return self.blocks[known].holders.push(holder);
        }
        let at = (dva.offset + DATA_START) as usize;
        let Some(stored) = self.image.get(at..at.saturating_add(len)).filter(|_| !dva.gang) else { return };
        let mut content = vec![0; ptr.lsize as usize];
        if codec::decompress(ptr.compression, stored, &mut content).is_err() {
            return;
        }
        let block = self.blocks.len();
        self.by_offset.insert(dva.offset, block);
        let node = Node { ptr, embedded: false, content: content.clone(), holders: vec![holder], place };
        self.blocks.push(node);
        let pointers = if ptr.level > 0 {
            let fanout = (content.len() / blkptr::SIZE) as u64;
            (0..fanout)
                .map(|i| {
                    let blkid = place.blkid * fanout + i;
                    (i as usize * blkptr::SIZE, Place { level: place.level - 1, blkid, ..place })
                })
                .collect()
        } else {
            pointers_of_leaf(ptr.object_type, &content, place)
        };
        for (at, place) in pointers {
            self.follow(&content[at..at + blkptr::SIZE], Holder::Block { block, at }, place);
        }
        self.children_first.push(block);
    }
}

/// Where the bonus of a dnode begins.
pub(super) fn bonus_at(raw: &[u8]) -> usize {
    dnode::HEADER + usize::from(raw[3]) * blkptr::SIZE
}

/// The slots that hold the newest state of the pool.
fn newest_uberblocks(image: &[u8], labels: [u64; 4], ashift: u32) -> Vec<Range<usize>> {
    let len = 1usize << label::uberblock_shift(ashift);
    let mut found: Vec<(Txg, Range<usize>)> = Vec::new();
    for offset in labels {
        let start = (offset + label::RING.offset) as usize;
        for at in (start..start + label::RING.len).step_by(len) {
            let slot = &image[at..at + len];
            if codec::embedded::verify(slot, [at as u64, 0, 0, 0]).is_some()
                && let Ok(uberblock) = Uberblock::decode(slot)
            {
                found.push((uberblock.txg, at..at + len));
            }
        }
    }
    let newest = found.iter().map(|(txg, _)| *txg).max();
    found.into_iter().filter(|(txg, _)| Some(*txg) == newest).map(|(_, slot)| slot).collect()
}

/// The pointers in a level 0 block, with their targets.
fn pointers_of_leaf(kind: ObjectType, content: &[u8], place: Place) -> Vec<(usize, Place)> {
    let mut found = Vec::new();
    match kind {
        ObjectType::OBJSET => {
            for (number, at) in OBJSET_DNODES.into_iter().enumerate() {
                // Those behind the first are no objects of the objset's own list.
                let object = if number == 0 { 0 } else { u64::MAX - number as u64 };
                if let Some(raw) = content.get(at..at + dnode::SLOT)
                    && let Ok(Some(dnode)) = Dnode::decode(raw, LE)
                {
                    pointers_of_dnode(at, &dnode, Place { object, ..place }, &mut found);
                }
            }
        }
        ObjectType::DNODE => each_dnode(content, &mut |at, dnode| {
            let object = place.blkid * dnode::SLOTS_PER_BLOCK as u64 + (at / dnode::SLOT) as u64;
            pointers_of_dnode(at, dnode, Place { object, ..place }, &mut found);
        }),
        _ => {}
    }
    found
}

fn each_dnode(content: &[u8], each: &mut dyn FnMut(usize, &Dnode)) {
    let mut at = 0;
    while at + dnode::SLOT <= content.len() {
        match Dnode::decode(&content[at..], LE) {
            Ok(Some(dnode)) => {
                each(at, &dnode);
                at += usize::from(dnode.slots) * dnode::SLOT;
            }
            _ => at += dnode::SLOT,
        }
    }
}

fn pointers_of_dnode(at: usize, dnode: &Dnode, place: Place, found: &mut Vec<(usize, Place)>) {
    let first = at + dnode::HEADER;
    let level = dnode.levels - 1;
    for blkid in 0..dnode.block_ptrs.len() {
        found.push((first + blkid * blkptr::SIZE, Place { level, blkid: blkid as u64, ..place }));
    }
    if dnode.spill.is_some() {
        let end = at + usize::from(dnode.slots) * dnode::SLOT;
        found.push((end - blkptr::SIZE, Place { level: 0, blkid: u64::MAX, ..place }));
    }
    if dnode.bonus_type == ObjectType::DSL_DATASET && place.objset == 0 {
        let bonus = first + dnode.block_ptrs.len() * blkptr::SIZE;
        let root = Place { objset: place.object, object: 0, level: 0, blkid: u64::MAX };
        found.push((bonus + DATASET_BLKPTR, root));
    }
}
