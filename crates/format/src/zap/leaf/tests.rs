use super::*;
use crate::zap::value::Value;
use proptest::prelude::*;

const HASH: u64 = 0x1234_5670_0000_0000;

type Operation<'a> = &'a dyn Fn(&mut [u8]) -> bool;

fn key(name: &str) -> Key<'_> {
    name.into()
}

#[test]
fn a_16_kib_leaf_has_512_buckets_and_638_chunks() {
    let raw = new_block(16384, 0, 0, false);
    assert_eq!((bucket_count(16384), chunk_count(16384)), (512, 638));
    assert_eq!(Leaf::new(&raw).unwrap().free_count(), 638);
    assert_eq!(Leaf::new(&raw).unwrap().validate(), Ok(()));
}

#[test]
fn values_change_length_and_width_in_place() {
    let mut raw = new_block(512, 0, 0, false);
    assert_eq!(insert(&mut raw, HASH, key("name"), &Value::from_u64(7)), Ok(0));
    for value in [Value::from_bytes(&[9; 60]), Value::from_bytes(&[]), Value::from_u16s(&[1, 2, 3])] {
        assert_eq!(update(&mut raw, HASH, key("name"), &value), Ok(()));
        let leaf = Leaf::new(&raw).unwrap();
        assert_eq!(leaf.validate(), Ok(()));
        assert_eq!(leaf.lookup(HASH, key("name")).unwrap().unwrap().value(), Ok(value));
    }
    let large = Value::from_bytes(&[0; 21 * 17]);
    assert_eq!(update(&mut raw, HASH, key("name"), &large), Err(LeafError::TooBig));
    assert_eq!(update(&mut raw, HASH, key("nama"), &large), Err(LeafError::Absent));
    assert_eq!(remove(&mut raw, HASH, key("name")), Ok(()));
    assert_eq!(Leaf::new(&raw).unwrap().free_count(), chunk_count(512));
    assert_eq!(Leaf::new(&raw).unwrap().validate(), Ok(()));
}

#[test]
fn equal_hashes_take_the_lowest_unused_cd() {
    let mut raw = new_block(1024, 0, 0, true);
    for (name, cd) in [("a", 0), ("b", 1), ("c", 2)] {
        assert_eq!(insert(&mut raw, HASH, key(name), &Value::from_u64(cd.into())), Ok(cd));
    }
    assert_eq!(insert(&mut raw, HASH, key("b"), &Value::from_u64(0)), Err(LeafError::Exists));
    remove(&mut raw, HASH, key("b")).unwrap();
    assert_eq!(insert(&mut raw, HASH, key("d"), &Value::from_u64(9)), Ok(1));
    let leaf = Leaf::new(&raw).unwrap();
    let order: Vec<_> = leaf.bucket(leaf.bucket_of(HASH)).map(|e| e.unwrap().cd).collect();
    assert_eq!(order, [0, 1, 2]);
    let rest = leaf.entries_from(Position::after(HASH, 0)).unwrap();
    assert_eq!(rest.iter().map(|e| e.value_u64().unwrap()).collect::<Vec<_>>(), [9, 2]);
    let found = leaf.lookup_normalised(HASH, b"D", 2).unwrap().unwrap().unwrap();
    assert_eq!(found.name(), Ok(b"d".to_vec()));
}

#[test]
fn integer_keys_keep_all_their_words_through_a_split() {
    let mut raw = new_block(4096, 0, 0, false);
    let value = Value::from_bytes(b"v");
    for i in 0..20u64 {
        let words = [i, i << 40];
        insert(&mut raw, i << 59, Key::Words(&words[..1 + (i % 2) as usize]), &value).unwrap();
    }
    let high = split(&mut raw).unwrap();
    for i in 0..20u64 {
        let words = [i, i << 40];
        let words = &words[..1 + (i % 2) as usize];
        let leaf = Leaf::new(if i << 59 >> 63 == 1 { &high } else { &raw }).unwrap();
        assert_eq!(leaf.validate(), Ok(()));
        let found = leaf.lookup(i << 59, Key::Words(words)).unwrap().unwrap();
        assert_eq!(found.words().unwrap(), words);
    }
}

#[test]
fn endless_chains_in_a_zap_leaf_are_refused() {
    let mut raw = new_block(512, 0, 0, false);
    insert(&mut raw, HASH, key("name"), &Value::from_u64(7)).unwrap();
    let at = chunk_at(512, 0);
    assert_eq!(raw[at], ENTRY);
    let mut entry_loop = raw.clone();
    LE.put_u16(&mut entry_loop, at + 2, 0);
    let leaf = Leaf::new(&entry_loop).unwrap();
    assert!(leaf.lookup(HASH, key("other")).is_err());
    assert!(leaf.entries_from(Position::START).is_err());
    let mut free_loop = raw.clone();
    let first_free = LE.u16(&raw, AT_FREELIST);
    LE.put_u16(&mut free_loop, chunk_at(512, first_free) + 22, first_free);
    let before = free_loop.clone();
    assert!(matches!(
        insert(&mut free_loop, HASH, key("other"), &Value::from_u64(1)),
        Err(LeafError::Corrupt(_))
    ));
    assert_eq!(free_loop, before);
}

#[test]
fn a_foreign_leaf_reads_after_turning() {
    let mut raw = new_block(512, 0, 0, false);
    insert(&mut raw, HASH, key("name"), &Value::from_u64(7)).unwrap();
    let mut foreign = raw.clone();
    swap(&mut foreign);
    assert_ne!(foreign, raw);
    super::super::swap(&mut foreign);
    assert_eq!(foreign, raw);
}

proptest! {
    #[test]
    fn a_damaged_leaf_is_read_or_refused_and_never_changed_by_an_error(
        names in proptest::collection::vec("[a-z]{1,40}", 1..8),
        damage in proptest::collection::vec((0usize..512, any::<u8>()), 1..6),
    ) {
        let mut raw = new_block(512, 0, 0, false);
        for name in &names {
            let _ = insert(&mut raw, HASH, key(name), &Value::from_u64(7));
        }
        for (at, byte) in damage {
            raw[at] = byte;
        }
        if let Ok(leaf) = Leaf::new(&raw) {
            let _ = leaf.validate();
            let _ = leaf.lookup_normalised(HASH, b"a", 2);
            for entry in leaf.entries_from(Position::START).unwrap_or_default() {
                let _ = (entry.name(), entry.words(), entry.value(), entry.value_u64());
            }
        }
        let operations: [Operation<'_>; 4] = [
            &|raw| insert(raw, HASH, key("new"), &Value::from_bytes(&[1; 30])).is_ok(),
            &|raw| update(raw, HASH, key(&names[0]), &Value::from_bytes(&[1; 50])).is_ok(),
            &|raw| remove(raw, HASH, key(&names[0])).is_ok(),
            &|raw| split(raw).is_ok(),
        ];
        for operation in operations {
            let mut changed = raw.clone();
            if !operation(&mut changed) {
                prop_assert_eq!(&changed, &raw);
            }
        }
    }
}
