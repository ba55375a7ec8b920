//! Whole ZAPs in a list of blocks, driven the way `dmu` drives them, beside a `BTreeMap`.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;

use super::fat::{self, Header};
use super::{Key, Leaf, LeafError, Position, Value, ZapKind, kind, leaf, micro};
use crate::ByteOrder;

const LE: ByteOrder = ByteOrder::Little;
const MICRO_LIMIT: usize = 2048;

struct Store {
    blocks: Vec<Vec<u8>>,
    shift: u32,
    most_table_blocks: u64,
}

impl Store {
    fn new(shift: u32) -> Store {
        Store { blocks: vec![micro::new_block(512, 0x1235, 0)], shift, most_table_blocks: 0 }
    }

    fn block(&mut self, blkid: u64) -> &mut Vec<u8> {
        let blkid = blkid as usize;
        if self.blocks.len() <= blkid {
            self.blocks.resize(blkid + 1, Vec::new());
        }
        &mut self.blocks[blkid]
    }

    fn is_micro(&self) -> bool {
        kind(&self.blocks[0]).unwrap().0 == ZapKind::Micro
    }

    fn header(&self) -> Header {
        Header::decode(&self.blocks[0], LE).unwrap()
    }

    fn leaf_of(&self, header: &Header, hash: u64) -> u64 {
        let slot = header.slot(header.pointer_index(hash));
        header.leaf_at(&self.blocks[slot.blkid as usize], slot).unwrap()
    }

    fn insert(&mut self, name: &[u8], value: &Value) {
        if self.is_micro() {
            while value.fits_micro() {
                let view = micro::Micro::decode(&self.blocks[0], LE).unwrap();
                let cd = micro::lowest_cd(&view, view.hash(name).unwrap()).unwrap();
                match micro::insert(&mut self.blocks[0], name, value.as_u64().unwrap(), cd) {
                    Ok(()) => return,
                    Err(micro::InsertError::Full) if self.blocks[0].len() < MICRO_LIMIT => {
                        micro::grow(&mut self.blocks[0]);
                    }
                    Err(_) => break,
                }
            }
            self.upgrade();
        }
        self.insert_fat(name, None, value);
    }

    fn upgrade(&mut self) {
        let old = core::mem::take(&mut self.blocks[0]);
        let view = micro::Micro::decode(&old, LE).unwrap();
        let header = Header::new(self.shift, view.salt(), view.normflags(), 0);
        *self.block(0) = header.new_block();
        *self.block(1) = leaf::new_block(1 << self.shift, 0, 0, false);
        for entry in view.entries() {
            self.insert_fat(entry.name, Some(entry.cd), &Value::from_u64(entry.value));
        }
    }

    fn insert_fat(&mut self, name: &[u8], cd: Option<u32>, value: &Value) {
        let mut header = self.header();
        let key = Key::Name(name);
        let hash = header.hash(key).unwrap();
        loop {
            let blkid = self.leaf_of(&header, hash);
            let block = self.block(blkid);
            let added = match cd {
                Some(cd) => leaf::insert_with_cd(block, hash, cd, key, value),
                None => leaf::insert(block, hash, key, value).map(|_| ()),
            };
            match added {
                Ok(()) => break,
                Err(LeafError::NeedSplit) => self.split(&mut header, blkid),
                Err(error) => panic!("{error}"),
            }
        }
        header.entries += 1;
        header.encode(&mut self.blocks[0]);
    }

    fn split(&mut self, header: &mut Header, blkid: u64) {
        if Leaf::new(&self.blocks[blkid as usize]).unwrap().prefix_len() == header.shift {
            self.grow(header);
        }
        let high = leaf::split(self.block(blkid)).unwrap();
        let (prefix, prefix_len) = {
            let leaf = Leaf::new(&high).unwrap();
            (leaf.prefix(), leaf.prefix_len())
        };
        let new = header.take_block();
        header.leaves += 1;
        *self.block(new) = high;
        for index in fat::pointer_range(prefix, prefix_len, header.shift) {
            let slot = header.slot(index);
            LE.put_u64(self.block(slot.blkid), slot.offset, new);
        }
    }

    fn grow(&mut self, header: &mut Header) {
        let growth = header.grow().unwrap();
        let old: Vec<u8> = match &growth.old {
            None => header.embedded_table(&self.blocks[0]).to_vec(),
            Some(range) => range.clone().flat_map(|blkid| core::mem::take(self.block(blkid))).collect(),
        };
        let doubled = fat::double_table(&old);
        for (blkid, part) in growth.new.clone().zip(doubled.chunks(1 << self.shift)) {
            *self.block(blkid) = part.to_vec();
        }
        header.finish_growth(&growth);
        self.most_table_blocks = self.most_table_blocks.max(header.table_blks);
    }

    fn get(&self, name: &[u8]) -> Option<Value> {
        if self.is_micro() {
            return micro::lookup(&self.blocks[0], name).map(|entry| Value::from_u64(entry.value));
        }
        let header = self.header();
        let hash = header.hash(Key::Name(name)).unwrap();
        let leaf = Leaf::new(&self.blocks[self.leaf_of(&header, hash) as usize]).unwrap();
        leaf.lookup(hash, Key::Name(name)).unwrap().map(|entry| entry.value().unwrap())
    }

    fn change(&mut self, name: &[u8], value: Option<&Value>) {
        if self.is_micro() {
            match value {
                Some(value) if value.fits_micro() => {
                    assert!(micro::update(&mut self.blocks[0], name, value.as_u64().unwrap()));
                    return;
                }
                None => {
                    assert!(micro::remove(&mut self.blocks[0], name).is_some());
                    return;
                }
                Some(_) => self.upgrade(),
            }
        }
        let mut header = self.header();
        let hash = header.hash(Key::Name(name)).unwrap();
        loop {
            let blkid = self.leaf_of(&header, hash);
            let block = self.block(blkid);
            let changed = match value {
                Some(value) => leaf::update(block, hash, Key::Name(name), value),
                None => leaf::remove(block, hash, Key::Name(name)),
            };
            match changed {
                Ok(()) => break,
                Err(LeafError::NeedSplit) => self.split(&mut header, blkid),
                Err(error) => panic!("{error}"),
            }
        }
        header.entries -= u64::from(value.is_none());
        header.encode(&mut self.blocks[0]);
    }

    /// Every entry of a fat ZAP in cursor order, by following leaves as `dmu` does.
    fn list(&self) -> Vec<(Position, Vec<u8>, Value)> {
        let header = self.header();
        let mut found = Vec::new();
        let mut leaves = 0;
        let mut at = Some(Position::START);
        while let Some(position) = at {
            let leaf = Leaf::new(&self.blocks[self.leaf_of(&header, position.hash) as usize]).unwrap();
            leaf.validate().unwrap();
            for entry in leaf.entries_from(position).unwrap() {
                found.push((entry.position(), entry.name().unwrap(), entry.value().unwrap()));
            }
            leaves += 1;
            at = Position::after_leaf(leaf.prefix(), leaf.prefix_len());
        }
        assert_eq!(leaves, header.leaves);
        found
    }
}

/// A small generator with a fixed seed: the test is the same every time.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % bound
    }

    fn name(&mut self, i: u64) -> Vec<u8> {
        let tail = "x".repeat(self.below(60) as usize);
        format!("{:x}-{i}-{tail}", self.below(1 << 30)).into_bytes()
    }

    fn value(&mut self) -> Value {
        let numbers: Vec<u64> = (0..1 + self.below(6)).map(|_| self.below(u64::MAX)).collect();
        match self.below(6) {
            0 => Value::from_bytes(&vec![7; self.below(100) as usize]),
            1 => Value::from_u16s(&numbers.iter().map(|&n| n as u16).collect::<Vec<_>>()),
            2 => Value::from_u32s(&numbers.iter().map(|&n| n as u32).collect::<Vec<_>>()),
            3 => Value::from_u64s(&numbers),
            _ => Value::from_u64(numbers[0]),
        }
    }
}

fn drive(shift: u32, names: u64, simple: u64) -> Store {
    let mut rng = Rng(shift.into());
    let mut store = Store::new(shift);
    let mut model = BTreeMap::new();
    for i in 0..names {
        let name = if i < simple { format!("{i}").into_bytes() } else { rng.name(i) };
        let value = if i < simple { Value::from_u64(i) } else { rng.value() };
        store.insert(&name, &value);
        model.insert(name, value);
        if i % 3 == 0 {
            let from = rng.name(i);
            let Some(name) = model.range(from..).next().map(|(name, _)| name.clone()) else { continue };
            let new = if rng.below(2) == 0 { None } else { Some(rng.value()) };
            store.change(&name, new.as_ref());
            match new {
                Some(value) => model.insert(name, value),
                None => model.remove(&name),
            };
        }
    }
    for (name, value) in &model {
        assert_eq!(store.get(name).as_ref(), Some(value));
    }
    assert_eq!(store.get(b"absent"), None);
    let listed = store.list();
    assert!(listed.is_sorted_by(|a, b| a.0 < b.0));
    assert_eq!(listed.len() as u64, store.header().entries);
    assert_eq!(listed.into_iter().map(|(_, name, value)| (name, value)).collect::<BTreeMap<_, _>>(), model);
    store
}

#[test]
fn a_zap_of_small_blocks_behaves_like_a_map_while_its_table_moves_out_and_doubles() {
    let store = drive(10, 20_000, 40);
    assert!(store.most_table_blocks >= 8, "{} table blocks", store.most_table_blocks);
}

#[test]
fn a_zap_of_ordinary_blocks_behaves_like_a_map() {
    drive(14, 20_000, 60);
}

#[test]
fn the_mark_of_a_block_tells_kind_and_order() {
    let mut raw = micro::new_block(512, 1, 0);
    assert_eq!(kind(&raw), Ok((ZapKind::Micro, LE)));
    micro::swap(&mut raw);
    assert_eq!(kind(&raw), Ok((ZapKind::Micro, ByteOrder::Big)));
    assert_eq!(kind(&leaf::new_block(512, 0, 0, false)), Ok((ZapKind::Leaf, LE)));
    assert!(kind(&[0; 512]).is_err());
    assert!(kind(&[]).is_err());
}

#[test]
fn numbers_are_named_in_lower_case_hex() {
    assert_eq!(super::int_key(0x35ab), "35ab");
    assert_eq!(super::parse_int_key(b"35ab"), Ok(0x35ab));
    for bad in [&b""[..], b"+1", b"g", b"10000000000000000", b"\xff"] {
        assert!(super::parse_int_key(bad).is_err());
    }
}
