//! Makes the image of a little-endian pool on one device into one that a big-endian machine could have written: all
//! live blocks are rewritten bottom-up, metadata in the other order, with new checksums and pointers.
//!
//! Left as they are, so that the orders mix: SA buffers and embedded data, which name their own order, and the
//! config in the labels. Metadata is stored uncompressed wherever no file data lies; space maps do not follow.

use std::collections::HashMap;
use std::ops::Range;

use format::blkptr::{self, Block, BlockPtr, Dva};
use format::config::Label;
use format::object_type::SwapClass;
use format::{ByteOrder, Checksum, ChecksumKind, Compression, Dnode, ObjectType, Uberblock};
use format::{VdevId, dnode, label, swap};

const LE: ByteOrder = ByteOrder::Little;
const BE: ByteOrder = ByteOrder::Big;
/// Where the blocks of a device begin, in bytes.
const DATA_AT: u64 = 4 << 20;
/// Where the root of a dataset lies in its bonus.
const ROOT_IN_DATASET: usize = 0x80;
/// Where the special dnodes of an objset lie.
const SPECIALS_AT: [usize; 4] = [0, 0x400, 0x600, 0x800];

struct Turner {
    /// The image as it was.
    source: Vec<u8>,
    /// The image as it will be.
    image: Vec<u8>,
    align: u64,
    /// File data, which stays in its place; by offset, in bytes.
    kept: Vec<Range<u64>>,
    next: u64,
    done: HashMap<(u64, u64), Block>,
}

/// Turns the pool in `image`. Returns how many blocks were turned.
pub fn turn(image: &mut Vec<u8>) -> usize {
    let offsets = label::offsets(image.len() as u64).unwrap();
    let first = &image[..label::SIZE as usize];
    let config = Label::from_nvlist(&label::decode_phys(label::PHYS.of(first)).unwrap()).unwrap();
    let Label::Pool(config) = config else { panic!("the label is that of a pool") };
    let ashift = config.tree.top.unwrap().ashift;
    let ring = label::RING.of(first);
    let slots = label::uberblock_slots(ring, ashift);
    let best = slots.filter_map(|slot| Uberblock::decode(slot).ok()).max_by_key(Uberblock::rank).unwrap();
    let source = image.clone();
    let mut turner = Turner {
        image: source.clone(),
        source,
        align: 1 << ashift,
        kept: Vec::new(),
        next: 0,
        done: HashMap::new(),
    };
    turner.find_data(&best.root);
    turner.kept.sort_by_key(|range| range.start);
    let root = turner.pointer(&best.root);
    let uberblock = Uberblock { root, ..best };
    for at in offsets {
        let ring = (at + label::RING.offset) as usize;
        turner.image[ring..ring + label::RING.len].fill(0);
        let slot = label::uberblock_slot(uberblock.txg, ashift, false);
        let at = label::uberblock_offset(at, slot, ashift);
        let raw = sealed(uberblock.encode_slot(ashift), at);
        turner.image[at as usize..at as usize + raw.len()].copy_from_slice(&raw);
    }
    *image = turner.image;
    turner.done.len()
}

/// An uberblock slot in the other order, with its checksum.
fn sealed(mut slot: Vec<u8>, at: u64) -> Vec<u8> {
    let body = slot.len() - codec::embedded::TRAILER;
    slot[..body].chunks_exact_mut(8).for_each(<[u8]>::reverse);
    let words = [0x0210_da7a_b10c_7a11, at, 0, 0, 0];
    for (i, word) in words.into_iter().enumerate() {
        BE.put_u64(&mut slot, body + 8 * i, word);
    }
    let Checksum(sum) = checksum(ChecksumKind::Sha256, &slot);
    for (i, word) in sum.into_iter().enumerate() {
        BE.put_u64(&mut slot, body + 8 + 8 * i, word);
    }
    slot
}

fn checksum(kind: ChecksumKind, raw: &[u8]) -> Checksum {
    codec::checksum_of(kind, raw, &codec::Salt::none(), BE)
}

fn is_file_data(block: &Block) -> bool {
    block.level == 0 && block.object_type.swap_class() == Some(SwapClass::U8)
}

/// Where pointers lie in a block of this type and level, and whether it is a dnode's slot that says so.
fn pointers_in(raw: &[u8], object_type: ObjectType, level: u8) -> Vec<usize> {
    if level > 0 {
        return (0..raw.len()).step_by(blkptr::SIZE).collect();
    }
    let mut found = Vec::new();
    match object_type {
        ObjectType::OBJSET => {
            SPECIALS_AT.into_iter().filter(|at| at + dnode::SLOT <= raw.len()).for_each(|at| {
                pointers_of_dnode(raw, at, &mut found);
            });
        }
        ObjectType::DNODE => {
            let mut at = 0;
            while at < raw.len() {
                at += pointers_of_dnode(raw, at, &mut found) * dnode::SLOT;
            }
        }
        _ => {}
    }
    found
}

/// Adds the places of the pointers of the dnode at `at`; returns its slots.
fn pointers_of_dnode(raw: &[u8], at: usize, found: &mut Vec<usize>) -> usize {
    let Some(dnode) = Dnode::decode(&raw[at..], LE).unwrap() else { return 1 };
    let bonus_at = at + dnode::HEADER + dnode.block_ptrs.len() * blkptr::SIZE;
    found.extend((at + dnode::HEADER..bonus_at).step_by(blkptr::SIZE));
    let slots = usize::from(dnode.slots);
    if dnode.spill.is_some() {
        found.push(at + slots * dnode::SLOT - blkptr::SIZE);
    }
    if dnode.bonus_type == ObjectType::DSL_DATASET {
        found.push(bonus_at + ROOT_IN_DATASET);
    }
    slots
}

impl Turner {
    fn raw(&self, block: &Block) -> &[u8] {
        let at = (block.dvas[0].offset + DATA_AT) as usize;
        &self.source[at..at + block.psize as usize]
    }

    fn content(&self, block: &Block) -> Vec<u8> {
        let mut content = self.raw(block).to_vec();
        if block.compression != Compression::Off {
            content = vec![0; block.lsize as usize];
            codec::decompress(block.compression, self.raw(block), &mut content).unwrap();
        }
        content
    }

    fn find_data(&mut self, ptr: &BlockPtr) {
        let BlockPtr::Block(block) = ptr else { return };
        if is_file_data(block) {
            let start = block.dvas[0].offset;
            return self.kept.push(start..start + block.dvas[0].asize);
        }
        let content = self.content(block);
        for at in pointers_in(&content, block.object_type, block.level) {
            self.find_data(&BlockPtr::decode(&content[at..], LE).unwrap());
        }
    }

    /// The pointer to the turned block.
    fn pointer(&mut self, ptr: &BlockPtr) -> BlockPtr {
        let BlockPtr::Block(old) = ptr else { return *ptr };
        assert!(!old.is_gang() && !old.encrypted, "a plain block");
        let key = (old.dvas[0].offset, old.physical_birth().0);
        if let Some(done) = self.done.get(&key) {
            return BlockPtr::Block(*done);
        }
        let new = if is_file_data(old) {
            let dvas = [old.dvas[0], Dva::default(), Dva::default()];
            Block { dvas, order: BE, checksum: checksum(old.checksum_kind, self.raw(old)), ..*old }
        } else {
            let mut content = self.content(old);
            for at in pointers_in(&content, old.object_type, old.level) {
                let child = self.pointer(&BlockPtr::decode(&content[at..], LE).unwrap());
                content[at..at + blkptr::SIZE].copy_from_slice(&child.encode(LE));
            }
            swap::turn(&mut content, old.object_type, old.level, LE).unwrap();
            let asize = old.lsize.next_multiple_of(self.align);
            let dva = Dva { vdev: VdevId(0), asize, offset: self.place(asize), gang: false };
            let at = (dva.offset + DATA_AT) as usize;
            self.image[at..at + content.len()].copy_from_slice(&content);
            Block {
                dvas: [dva, Dva::default(), Dva::default()],
                psize: old.lsize,
                compression: Compression::Off,
                order: BE,
                checksum: checksum(old.checksum_kind, &content),
                ..*old
            }
        };
        self.done.insert(key, new);
        BlockPtr::Block(new)
    }

    /// The next `size` bytes where no file data lies.
    fn place(&mut self, size: u64) -> u64 {
        let in_the_way = |kept: &&Range<u64>, at: u64| kept.start < at + size && at < kept.end;
        while let Some(kept) = self.kept.iter().find(|kept| in_the_way(kept, self.next)) {
            self.next = kept.end;
        }
        self.next += size;
        self.next - size
    }
}
