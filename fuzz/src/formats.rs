//! Bodies for `format`. Where byte order matters, the lowest bit of the first byte says which.

use codec::embedded;
use format::acl::{self, PosixAcl};
use format::bookmark::Bookmark;
use format::config::{AuxConfig, Label, PoolConfig, VdevKind};
use format::deadlist::DeadlistHeader;
use format::dsl_dataset::DslDataset;
use format::dsl_dir::DslDir;
use format::history::{self, Ring};
use format::redaction;
use format::sa::{self, Attribute, Registry};
use format::space_map::{self, Layout, Writer};
use format::stream;
use format::zap::{self, Key, Leaf, Position, Value, fat, leaf, micro};
use format::znode::{Dirent, LegacyZnode, Znode, rdev};
use format::{
    BlockPtr, ByteOrder, ChecksumKind, Dnode, NvList, ObjectType, Objset, Uberblock, bpobj, bptree, l2arc,
    label, swap, zil,
};

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

/// The region of a label that holds its config, and the ring of uberblocks.
pub fn label(data: &[u8]) {
    let mut region = data.to_vec();
    region.resize(label::PHYS.len, 0);
    let _ = label::decode_phys(&region).and_then(|list| Label::from_nvlist(&list));
    for ashift in [9, 12, 16] {
        label::uberblock_slots(data, ashift).for_each(uberblock);
    }
}

pub fn uberblock(data: &[u8]) {
    if let Ok(found) = Uberblock::decode(data) {
        assert_eq!(Uberblock::decode(&found.encode()), Ok(found));
    }
}

/// Keys come out in OpenZFS's order, so what is compared is the list written twice.
pub fn config(data: &[u8]) {
    let Ok(list) = NvList::decode(data) else { return };
    if let Ok(aux) = AuxConfig::from_nvlist(&list) {
        let once = aux.to_nvlist();
        assert_eq!(AuxConfig::from_nvlist(&once).map(|aux| aux.to_nvlist()), Ok(once));
    }
    let Ok(config) = PoolConfig::from_nvlist(&list) else { return };
    if let Some(leaf) = config.tree.leaves().next() {
        let once = config.to_label_nvlist(leaf.guid).expect("the leaf is the pool's own");
        let again = PoolConfig::from_nvlist(&once).expect("what we write into labels is sound");
        assert_eq!(again.to_label_nvlist(leaf.guid), Some(once));
    }
    if config.tree.kind == VdevKind::Root {
        let once = config.to_mos_nvlist();
        assert_eq!(PoolConfig::from_nvlist(&once).map(|config| config.to_mos_nvlist()), Ok(once));
    }
}

/// The entries of a space map; the upper bits of the first byte are the shift.
pub fn space_map(data: &[u8]) {
    let (order, raw) = ordered(data);
    let layout = Layout { start: 0, shift: data.first().map_or(0, |first| u32::from(first >> 1 & 0x3f)) };
    let found: Vec<_> = space_map::entries(raw, order, layout).map_while(Result::ok).collect();
    let mut writer = Writer::new(0, 4096, layout, true);
    found.iter().for_each(|entry| writer.push(*entry));
    let bytes = writer.finish();
    let again: Vec<_> = space_map::entries(&bytes, ByteOrder::Little, layout).map_while(Result::ok).collect();
    // Near the end of what one word can say, an entry may be written as two and then has a vdev.
    let ranges = |entries: &[space_map::Entry]| -> Vec<_> {
        entries
            .iter()
            .map(|entry| (entry.kind, entry.offset, entry.run, entry.vdev.map_or(0, |v| v.0)))
            .collect()
    };
    assert_eq!(ranges(&again), ranges(&found));
}

pub fn space_map_header(data: &[u8]) {
    let (order, raw) = ordered(data);
    if let Ok(header) = space_map::Header::decode(raw, order) {
        assert_eq!(space_map::Header::decode(&header.encode(), ByteOrder::Little), Ok(header));
    }
}

/// The header of a cache device, and a log block on it.
pub fn l2arc(data: &[u8]) {
    if let Ok(header) = l2arc::Header::decode(data) {
        assert_eq!(l2arc::Header::decode(&header.encode(l2arc::HEADER_SIZE)), Ok(header));
    }
    let mut raw = vec![0; l2arc::LOG_BLOCK_SIZE];
    let len = data.len().min(raw.len());
    raw[..len].copy_from_slice(&data[..len]);
    if let Ok(block) = l2arc::LogBlock::decode(&raw, l2arc::LOG_ENTRIES_MAX) {
        assert_eq!(l2arc::LogBlock::decode(&block.encode(), l2arc::LOG_ENTRIES_MAX), Ok(block));
    }
}

/// The records of a log block, and the block itself: its chain header, and whether it is what was sealed.
pub fn zil(data: &[u8]) {
    let (order, raw) = ordered(data);
    for record in zil::records(raw, 0..raw.len(), order).map_while(Result::ok) {
        let again = zil::Record::decode(&record.encode(order), order).map(|(record, _)| record);
        assert_eq!(again, Ok(record));
    }
    let mut block = raw[..raw.len().min(zil::BLOCK_MAX)].to_vec();
    block.resize(zil::written(block.len().max(1)), 0);
    for kind in [ChecksumKind::Zilog, ChecksumKind::Zilog2] {
        let _ = codec::zilog::verify(&block, kind, [1, 2, 3, 4], false);
        if let Ok((chain, range)) = zil::Chain::decode(&block, kind, order) {
            zil::records(&block, range, order).map_while(Result::ok).for_each(drop);
            let mut again = vec![0; zil::BLOCK_MIN];
            chain.encode(&mut again, order);
            assert_eq!(again[..0x90], chained(&chain, order)[..0x90]);
        }
    }
}

/// The chain header alone.
fn chained(chain: &zil::Chain, order: ByteOrder) -> Vec<u8> {
    let mut raw = vec![0xff; zil::CHAIN_SIZE];
    chain.encode(&mut raw, order);
    raw
}

pub fn bpobj(data: &[u8]) {
    let (order, raw) = ordered(data);
    if let Ok(header) = bpobj::Header::decode(raw, order) {
        assert_eq!(bpobj::Header::decode(&header.encode(), ByteOrder::Little), Ok(header));
    }
}

pub fn bptree(data: &[u8]) {
    let (order, raw) = ordered(data);
    if let Ok(header) = bptree::Header::decode(raw, order) {
        assert_eq!(bptree::Header::decode(&header.encode(), ByteOrder::Little), Ok(header));
    }
    let Some(raw) = raw.first_chunk() else { return };
    if let Ok(entry) = bptree::Entry::decode(raw, order) {
        assert_eq!(bptree::Entry::decode(&entry.encode(), ByteOrder::Little), Ok(entry));
    }
}

pub fn deadlist(data: &[u8]) {
    let (order, raw) = ordered(data);
    if let Ok(header) = DeadlistHeader::decode(raw, order) {
        assert_eq!(DeadlistHeader::decode(&header.encode(), ByteOrder::Little), Ok(header));
    }
}

pub fn redaction(data: &[u8]) {
    let (order, raw) = ordered(data);
    if let Ok(header) = redaction::Header::decode(raw, order) {
        assert_eq!(redaction::Header::decode(&header.encode(), ByteOrder::Little), Ok(header));
    }
    if let Ok(entry) = redaction::Entry::decode(raw, order) {
        assert_eq!(redaction::Entry::decode(&entry.encode(), ByteOrder::Little), Ok(entry));
    }
}

pub fn dsl_dir(data: &[u8]) {
    let (order, raw) = ordered(data);
    if let Ok(dir) = DslDir::decode(raw, order) {
        assert_eq!(DslDir::decode(&dir.encode(), ByteOrder::Little), Ok(dir));
    }
}

pub fn dsl_dataset(data: &[u8]) {
    let (order, raw) = ordered(data);
    if let Ok(dataset) = DslDataset::decode(raw, order) {
        assert_eq!(DslDataset::decode(&dataset.encode(), ByteOrder::Little), Ok(dataset));
    }
}

/// The ring's bonus, and a run of records.
/// Records one after another, each with its payload.
pub fn stream(data: &[u8]) {
    let (order, mut rest) = ordered(data);
    while let Some((raw, after)) = rest.split_first_chunk::<{ stream::RECORD }>() {
        let Ok(record) = stream::Record::decode(raw, order) else { return };
        assert_eq!(stream::Record::decode(&record.encode(), ByteOrder::Little), Ok(record.clone()));
        let len = record.payload_len().min(after.len() as u64) as usize;
        if let (stream::Record::Begin(_), Ok(list)) = (&record, NvList::decode(&after[..len])) {
            assert_eq!(NvList::decode(&list.to_xdr()), Ok(list));
        }
        rest = &after[len..];
    }
}

pub fn history(data: &[u8]) {
    if let Ok(mut ring) = Ring::decode(data, ByteOrder::Little) {
        assert_eq!(Ring::decode(&ring.encode(), ByteOrder::Little), Ok(ring));
        let _ = ring.pieces(ring.begin, ring.end - ring.begin);
        let _ = ring.drop_oldest(7);
    }
    let mut rest = data;
    while let Ok(Some(record)) = history::take(&mut rest) {
        assert_eq!(history::take(&mut &history::frame(&record)[..]), Ok(Some(record)));
    }
}

/// A bonus or spill block with system attributes; the first byte says which optional ones its layout has.
pub fn sa(data: &[u8]) {
    use Attribute::*;
    let Some((&which, raw)) = data.split_first() else { return };
    let mut layout = vec![Mode, Size, Gen, Uid, Gid, Parent, Flags, Atime, Mtime, Ctime, Crtime, Links];
    let optional =
        [&[Projid][..], &[DaclCount, DaclAces], &[Rdev], &[Symlink], &[Xattr], &[Dxattr], &[Scanstamp]];
    layout.extend(optional.iter().enumerate().filter(|(bit, _)| which >> bit & 1 == 1).flat_map(|(_, a)| *a));
    let registry = Registry::standard();
    let layout: Vec<_> = layout.into_iter().filter_map(|attribute| registry.number_of(attribute)).collect();
    let Ok(header) = sa::Header::decode(raw) else { return };
    let Ok(values) = sa::decode(raw, &layout, &registry) else { return };
    let values = values.into_iter().map(|(number, value)| (number, value, header.order));
    let Ok(znode) = Znode::from_sa(values, &registry) else { return };
    let stored = znode.to_sa(&registry).expect("what was read is registered");
    let again = stored.iter().map(|(number, value)| (*number, &value[..], ByteOrder::Little));
    let again = Znode::from_sa(again, &registry).expect("what we write is sound");
    assert_eq!(Znode { order: Vec::new(), ..again }, Znode { order: Vec::new(), ..znode });
    let _ = sa::spill_point(&stored, &registry, 320);
    let _ = sa::encode(sa::LAYOUT_FIRST, &stored, &registry);
}

/// A legacy znode.
pub fn znode(data: &[u8]) {
    let (order, raw) = ordered(data);
    if let Ok(znode) = LegacyZnode::decode(raw, order) {
        assert_eq!(LegacyZnode::decode(&znode.encode(), ByteOrder::Little), Ok(znode));
    }
}

pub fn acl(data: &[u8]) {
    let (order, raw) = ordered(data);
    if let Ok(aces) = acl::decode_all(raw, order) {
        assert_eq!(acl::decode_all(&acl::encode(&aces), ByteOrder::Little), Ok(aces));
    }
    if let Ok(acl) = PosixAcl::decode(raw) {
        let _ = (acl.permissions(), acl.is_trivial());
        assert_eq!(PosixAcl::decode(&acl.encode()), Ok(acl));
    }
}

/// Words that ZAPs hold: directory entries, device numbers, registered attributes, bookmarks.
pub fn zap_values(data: &[u8]) {
    let words: Vec<_> = data.chunks_exact(8).map(|word| ByteOrder::Little.u64(word, 0)).collect();
    for &word in &words {
        if let Ok(entry) = Dirent::decode(word) {
            assert_eq!(Dirent::decode(entry.encode()), Ok(entry));
        }
        let (major, minor) = rdev::unpack(word);
        let _ = (rdev::pack(major, minor), rdev::to_user(major, minor), rdev::from_user(word));
        if let Ok(attribute) = sa::Registered::decode("ZPL_MODE", word) {
            assert_eq!(sa::Registered::decode("ZPL_MODE", attribute.encode()), Ok(attribute));
        }
    }
    if let Ok(bookmark) = Bookmark::decode(&words) {
        assert_eq!(bookmark.encode(), words);
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
    if swap::to_little(&mut block, ObjectType::ZAP_OTHER, 0, order).is_err() {
        return;
    }
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
        swap::to_little(&mut block, ObjectType::ZAP_OTHER, 0, order).expect("ZAP blocks can be turned");
        header.encode(&mut block);
        assert_eq!(fat::Header::decode(&block, ByteOrder::Little), Ok(header));
    }
}

/// A block of any type from either byte order, there and back: nothing is lost on the way. Input: type, order (even:
/// little-endian), level, then the block.
pub fn swap(data: &[u8]) {
    let Some(([object_type, order, level], raw)) = data.split_first_chunk() else { return };
    let (object_type, from, level) = (ObjectType(*object_type), ordered(&[*order]).0, *level & 1);
    let _ = zap::kind(raw);
    let mut block = raw.to_vec();
    if swap::turn(&mut block, object_type, level, from).is_ok() {
        let back = if from == ByteOrder::Little { ByteOrder::Big } else { ByteOrder::Little };
        assert_eq!(swap::turn(&mut block, object_type, level, back), Ok(()));
        assert_eq!(block, raw);
    }
}

pub fn embedded_checksum(data: &[u8]) {
    let _ = embedded::verify(data, [0; 4]);
    let mut region = data.to_vec();
    if region.len() >= embedded::TRAILER {
        embedded::seal(&mut region, [7, 0, 0, 0]);
        assert_eq!(embedded::verify(&region, [7, 0, 0, 0]), Some(ByteOrder::Little));
    }
}
