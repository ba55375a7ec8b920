use super::*;
use alloc::{boxed::Box, vec};
use proptest::prelude::*;

/// The same list of all types, packed by OpenZFS's own library in both encodings.
const XDR: &[u8] = include_bytes!("../../tests/fixtures/nvlist-all-types.xdr");
const NATIVE: &[u8] = include_bytes!("../../tests/fixtures/nvlist-all-types.native");

fn words(hex: &[u32]) -> Vec<u8> {
    hex.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// The pairs of a packed list, without header, version, flag and end.
fn pairs(list: &NvList) -> Vec<u8> {
    let packed = list.to_xdr();
    packed[12..packed.len() - 8].to_vec()
}

fn any_value() -> impl Strategy<Value = NvValue> {
    use NvValue::*;
    let string = || prop::collection::vec(1u8..=255, 0..9);
    macro_rules! many {
        ($t:ty) => {
            prop::collection::vec(any::<$t>(), 0..5)
        };
    }
    let leaf = prop_oneof![
        Just(Boolean),
        any::<u8>().prop_map(Byte),
        any::<i16>().prop_map(Int16),
        any::<u16>().prop_map(Uint16),
        any::<i32>().prop_map(Int32),
        any::<u32>().prop_map(Uint32),
        any::<i64>().prop_map(Int64),
        any::<u64>().prop_map(Uint64),
        string().prop_map(String),
        many!(u8).prop_map(ByteArray),
        many!(i16).prop_map(Int16Array),
        many!(u16).prop_map(Uint16Array),
        many!(i32).prop_map(Int32Array),
        many!(u32).prop_map(Uint32Array),
        many!(i64).prop_map(Int64Array),
        many!(u64).prop_map(Uint64Array),
        prop::collection::vec(string(), 0..4).prop_map(StringArray),
        any::<i64>().prop_map(Hrtime),
        any::<bool>().prop_map(BooleanValue),
        any::<i8>().prop_map(Int8),
        any::<u8>().prop_map(Uint8),
        many!(bool).prop_map(BooleanArray),
        many!(i8).prop_map(Int8Array),
        many!(u8).prop_map(Uint8Array),
        any::<u64>().prop_map(Double),
    ]
    .boxed();
    leaf.prop_recursive(3, 24, 4, |inner| {
        let list = prop::collection::btree_map("[a-z:_.]{0,9}", inner, 0..4).prop_map(|map| {
            let mut list = NvList::new();
            map.into_iter().for_each(|(name, value)| list.insert(name, value));
            list
        });
        prop_oneof![list.clone().prop_map(List), prop::collection::vec(list, 0..3).prop_map(ListArray)]
    })
}

pub(crate) fn any_list() -> impl Strategy<Value = NvList> {
    let pairs: Box<dyn Fn() -> _> = Box::new(|| ("[a-z:_.]{1,12}", any_value()));
    prop::collection::vec(pairs(), 0..8).prop_map(|all| {
        let mut list = NvList::new();
        all.into_iter().for_each(|(name, value)| list.insert(name, value));
        list
    })
}

proptest! {
    #[test]
    fn a_list_survives_both_encodings(list in any_list()) {
        let (xdr, native) = (list.to_xdr(), list.to_native());
        prop_assert_eq!(NvList::decode_prefix(&xdr), Ok((list.clone(), xdr.len())));
        prop_assert_eq!(NvList::decode_prefix(&native), Ok((list, native.len())));
    }

    #[test]
    fn damaged_bytes_decode_or_are_refused(
        at in 0usize..2000, byte in any::<u8>(), cut in 0usize..2000, native in any::<bool>(),
    ) {
        let mut raw = if native { NATIVE } else { XDR }.to_vec();
        let len = raw.len();
        raw[at % len] = byte;
        if let Ok(list) = NvList::decode(&raw) {
            prop_assert_eq!(NvList::decode(&list.to_xdr()), Ok(list.clone()));
            prop_assert_eq!(NvList::decode(&list.to_native()), Ok(list));
        }
        raw.truncate(cut % len);
        let _ = NvList::decode(&raw);
    }

    #[test]
    fn random_bytes_never_panic(mut raw in prop::collection::vec(any::<u8>(), 12..200), xdr in 0u8..2, big in 0u8..2) {
        raw[..12].copy_from_slice(&[xdr, big, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        let _ = NvList::decode(&raw);
    }
}

#[test]
fn the_worked_pairs_come_out_word_for_word() {
    let mut list = NvList::new();
    list.insert("version", 5000u64);
    let version = [0x24, 0x20, 7, 0x76657273, 0x696f6e00, 8, 1, 0, 0x1388];
    assert_eq!(pairs(&list), words(&version));

    let mut list = NvList::new();
    list.insert("name", "tank");
    assert_eq!(pairs(&list), words(&[0x20, 0x20, 4, 0x6e616d65, 9, 1, 4, 0x74616e6b]));

    let (mut list, mut inner) = (NvList::new(), NvList::new());
    inner.insert("a", NvValue::Boolean);
    list.insert("f", inner);
    let nested = [0x40, 0x30, 1, 0x66000000, 0x13, 1, 0, 1, 0x18, 0x18, 1, 0x61000000, 1, 0, 0, 0];
    assert_eq!(pairs(&list), words(&nested));

    let mut list = NvList::new();
    list.insert("h", [1u64, 2].as_slice());
    assert_eq!(pairs(&list), words(&[0x2c, 0x28, 1, 0x68000000, 0x10, 2, 2, 0, 1, 0, 2]));
}

#[test]
fn lists_packed_by_openzfs_come_out_byte_for_byte() {
    let xdr = NvList::decode(XDR).unwrap();
    let native = NvList::decode(NATIVE).unwrap();
    assert_eq!(xdr, native);
    // OpenZFS's buffer is a word longer: it reckons with the unwritten count of the empty array.
    let (packed, rest) = XDR.split_at(XDR.len() - 4);
    assert_eq!(xdr.to_xdr(), packed);
    assert_eq!(rest, [0; 4]);
    assert_eq!(native.to_native(), NATIVE);
    assert_eq!(xdr.get_u64("history time"), Some(0x1122_3344_5566_7788));
    assert_eq!(xdr.get_str("cmd"), Some("zpool"));
    assert_eq!(xdr.get("u8"), Some(&NvValue::Uint8(254)));
    assert_eq!(xdr.get_lists("la").map(<[_]>::len), Some(2));
    assert_eq!(xdr.get_list("in").and_then(|list| list.get("e")), Some(&NvValue::Int32(-5)));
}

#[test]
fn insert_replaces_in_place_and_remove_takes_out() {
    let mut list = NvList::new();
    list.insert("a", 1u64);
    list.insert("b", 2u64);
    list.insert("a", "new");
    let names: Vec<_> = list.iter().map(|(name, _)| name).collect();
    assert_eq!(names, [b"a", b"b"]);
    assert_eq!(list.get_u64("a"), None);
    assert_eq!(list.remove("a"), Some("new".into()));
    assert_eq!(list.remove("a"), None);
    assert_eq!(list.len(), 1);
}

#[test]
fn a_repeated_name_is_refused() {
    let mut list = NvList::new();
    list.insert("a", 1u64);
    list.insert("b", 1u64);
    let mut raw = list.to_xdr();
    let at = raw.iter().position(|byte| *byte == b'b').unwrap();
    raw[at] = b'a';
    assert!(NvList::decode(&raw).is_err());
}

#[test]
fn endless_nesting_is_refused() {
    // Each level: size, decoded size, empty name, type list, count 1, version, flag.
    let mut raw = vec![1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    for _ in 0..100_000 {
        raw.extend(words(&[1, 1, 0, 19, 1, 0, 1]));
    }
    assert_eq!(NvList::decode(&raw), Err(Corrupt::new("nvlist depth", u64::from(MAX_DEPTH) + 1)));
}

#[test]
fn a_big_endian_native_list_decodes() {
    let mut raw = vec![0, 0, 0, 0];
    raw.extend(words(&[0, 1, 0x20, 0x0002_0000, 1, 8, 0x6100_0000, 0, 0, 7, 0]));
    assert_eq!(NvList::decode(&raw).unwrap().get_u64("a"), Some(7));
}

#[test]
fn a_huge_count_is_refused_before_anything_is_allocated() {
    let mut raw = vec![1, 1, 0, 0];
    raw.extend(words(&[0, 1, 0x20, 0x20, 1, 0x6100_0000, 17, 0xffff_ffff, 0, 0]));
    assert_eq!(NvList::decode(&raw), Err(Corrupt::new("nvlist element count", 0xffff_ffff)));
}
