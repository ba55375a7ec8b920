//! Bodies for `format`. Where byte order matters, the lowest bit of the first byte says which.

use codec::embedded;
use format::zap::{self, Key, Leaf, Position, Value, fat, leaf, micro};
use format::{BlockPtr, ByteOrder, Dnode, NvList, Objset};

/// The byte order an input asks for, and the rest of the input.
fn ordered(data: &[u8]) -> (ByteOrder, &[u8]) {
    match data.split_first() {
        Some((first, rest)) if first & 1 == 0 => (ByteOrder::Little, rest),
        Some((_, rest)) => (ByteOrder::Big, rest),
        None => (ByteOrder::Little, data),
    }
}

/// The input with zeros up to the next multiple of 512: blocks come in sectors.
fn sectors(data: &[u8]) -> Vec<u8> {
    let mut block = data.to_vec();
    block.resize(data.len().next_multiple_of(512).max(512), 0);
    block
}

/// The input with zeros up to the next power of two: blocks of fat ZAPs.
fn power_of_two(data: &[u8]) -> Vec<u8> {
    let mut block = data.to_vec();
    block.resize(data.len().next_power_of_two().max(512), 0);
    block
}

pub fn blkptr(data: &[u8]) {
    let (order, raw) = ordered(data);
    if raw.len() < format::blkptr::SIZE {
        return;
    }
    if let Ok(ptr) = BlockPtr::decode(&raw[..format::blkptr::SIZE], order) {
        assert_eq!(BlockPtr::decode(&ptr.encode(order), order), Ok(ptr));
    }
}

pub fn dnode(data: &[u8]) {
    let (order, raw) = ordered(data);
    if let Ok(Some(dnode)) = Dnode::decode(raw, order) {
        let little = ByteOrder::Little;
        assert_eq!(Dnode::decode(&dnode.to_bytes(), little), Ok(Some(dnode)));
    }
}

pub fn objset(data: &[u8]) {
    let (order, raw) = ordered(data);
    if let Ok(objset) = Objset::decode(raw, order) {
        assert_eq!(Objset::decode(&objset.encode(raw.len()), ByteOrder::Little), Ok(objset));
    }
}

/// Any packed list; written again as XDR.
pub fn nvlist_xdr(data: &[u8]) {
    if let Ok(list) = NvList::decode(data) {
        assert_eq!(NvList::decode(&list.to_xdr()), Ok(list));
    }
}

/// Any packed list; written again in the native encoding.
pub fn nvlist_native(data: &[u8]) {
    if let Ok(list) = NvList::decode(data) {
        assert_eq!(NvList::decode(&list.to_native()), Ok(list));
    }
}

pub fn zap_micro(data: &[u8]) {
    let (order, raw) = ordered(data);
    let mut block = sectors(raw);
    if let Ok(zap) = micro::Micro::decode(&block, order) {
        if let Ok(index) = micro::Index::build(&zap) {
            assert_eq!(index.entries_from(zap, Position::START).count(), zap.entries().count());
        }
        let _ = zap.lookup_normalised(b"version");
    }
    zap::to_little(&mut block, order);
    if micro::insert(&mut block, b"cenote", 7, 0).is_ok() {
        assert_eq!(micro::remove(&mut block, b"cenote"), Some(7));
    }
}

pub fn zap_leaf(data: &[u8]) {
    let mut block = power_of_two(data);
    let Ok(found) = Leaf::new(&block) else { return };
    let sound = found.validate().is_ok();
    for entry in found.entries_from(Position::START).unwrap_or_default() {
        let _ = (entry.name(), entry.words(), entry.value(), entry.value_u64());
    }
    let (hash, key) =
        (found.prefix().checked_shl(64 - found.prefix_len()).unwrap_or(0), Key::Name(b"cenote"));
    if leaf::insert(&mut block, hash, key, &Value::from_u64(7)).is_ok() && sound {
        Leaf::new(&block).and_then(Leaf::validate).expect("sound before, sound after");
        leaf::remove(&mut block, hash, key).expect("it was inserted");
    }
    let _ = leaf::split(&mut block);
}

pub fn zap_fat_header(data: &[u8]) {
    let (order, raw) = ordered(data);
    let mut block = power_of_two(raw);
    if let Ok(header) = fat::Header::decode(&block, order) {
        zap::to_little(&mut block, order);
        header.encode(&mut block);
        assert_eq!(fat::Header::decode(&block, ByteOrder::Little), Ok(header));
    }
}

/// A block of any kind of ZAP, turned from the other byte order.
pub fn zap_swap(data: &[u8]) {
    let mut block = power_of_two(data);
    let _ = zap::kind(&block);
    zap::to_little(&mut block, ByteOrder::Big);
}

pub fn embedded_checksum(data: &[u8]) {
    let _ = embedded::verify(data, [0; 4]);
    let mut region = data.to_vec();
    if region.len() >= embedded::TRAILER {
        embedded::seal(&mut region, [7, 0, 0, 0]);
        assert_eq!(embedded::verify(&region, [7, 0, 0, 0]), Some(ByteOrder::Little));
    }
}
