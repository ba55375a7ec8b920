use super::*;
use proptest::prelude::*;

fn file() -> Znode {
    let mut znode = Znode {
        mode: S_IFREG | 0o644,
        size: 5,
        generation: 9,
        parent: ObjectId(34),
        links: 1,
        projid: Some(0),
        ctime: Time { secs: -1, nanos: 999_999_999 },
        flags: Znode::new_flags(S_IFREG | 0o644, true),
        ..Znode::default()
    };
    znode.set_trivial_acl();
    znode
}

fn numbers(znode: &Znode, registry: &Registry) -> Vec<u16> {
    znode.to_sa(registry).unwrap().iter().map(|(number, _)| *number).collect()
}

fn again(znode: &Znode, registry: &Registry) -> Znode {
    let values = znode.to_sa(registry).unwrap();
    let little = values.iter().map(|(n, v)| (*n, &v[..], ByteOrder::Little));
    Znode::from_sa(little, registry).unwrap()
}

#[test]
fn new_objects_have_the_layouts_of_openzfs() {
    let registry = Registry::standard();
    assert_eq!(numbers(&file(), &registry), [5, 6, 4, 12, 13, 7, 11, 0, 1, 2, 3, 8, 21, 16, 19]);
    let link = Znode { projid: None, symlink: Some(b"there".to_vec()), ..file() };
    assert_eq!(numbers(&link, &registry), [5, 6, 4, 12, 13, 7, 11, 0, 1, 2, 3, 8, 16, 19, 17]);
    let device = Znode { projid: None, rdev: Some(1), ..file() };
    assert_eq!(numbers(&device, &registry), [5, 6, 4, 12, 13, 7, 11, 0, 1, 2, 3, 8, 10, 16, 19]);
}

#[test]
fn new_objects_have_the_flags_of_openzfs() {
    assert_eq!(Znode::new_flags(0o040_755, true), 0x8408_0000_0144);
    assert_eq!(Znode::new_flags(0o100_644, true), 0x8408_0000_0004);
    assert_eq!(Znode::new_flags(0o100_755, true), 0x8408_0000_0104);
    assert_eq!(Znode::new_flags(0o120_777, false), 0x0408_0000_0104);
}

#[test]
fn attributes_keep_their_order_and_new_ones_follow() {
    let registry = Registry::standard();
    let mut znode = again(&Znode { xattr: Some(ObjectId(7)), ..file() }, &registry);
    znode.symlink = Some(Vec::new());
    assert_eq!(numbers(&znode, &registry)[13..], [16, 19, 9, 17]);
    znode.xattr = None;
    assert_eq!(numbers(&znode, &registry)[13..], [16, 19, 17]);
}

#[test]
fn a_project_id_that_comes_late_goes_to_its_fixed_place() {
    let registry = Registry::standard();
    let mut znode = again(&Znode { projid: None, xattr: Some(ObjectId(7)), ..file() }, &registry);
    znode.projid = Some(5);
    let values = znode.to_sa(&registry).unwrap();
    assert_eq!(values[PROJID_INDEX].0, 21);
    let offset: usize = values[..PROJID_INDEX].iter().map(|(_, value)| value.len()).sum();
    assert_eq!(offset, 0x80);
}

#[test]
fn unknown_attributes_stay_where_they_are() {
    let standard = Registry::standard();
    let mut entries: Vec<_> = standard.entries().iter().map(|e| (e.name.as_str(), e.encode())).collect();
    entries.push(("FUTURE", 0x400_0000 | 1 << 16 | 22));
    let registry = Registry::decode(entries).unwrap();
    let mut values = file().to_sa(&registry).unwrap();
    values.insert(13, (22, Vec::from([1, 2, 3, 4])));
    let znode =
        Znode::from_sa(values.iter().map(|(n, v)| (*n, &v[..], ByteOrder::Little)), &registry).unwrap();
    assert_eq!(znode.to_sa(&registry), Ok(values.clone()));
    let big = |(n, v): &(u16, Vec<u8>)| {
        let swap = registry.get(*n).unwrap().swap;
        let mut v = v.clone();
        match swap {
            0 => v.chunks_exact_mut(8).for_each(<[u8]>::reverse),
            1 => v.reverse(),
            // Abstract ACEs: two halves and a word.
            4 => v.chunks_exact_mut(8).for_each(|ace| {
                ace[..2].reverse();
                ace[2..4].reverse();
                ace[4..].reverse();
            }),
            _ => {}
        }
        (*n, v)
    };
    let foreign: Vec<_> = values.iter().map(big).collect();
    let read = Znode::from_sa(foreign.iter().map(|(n, v)| (*n, &v[..], ByteOrder::Big)), &registry);
    assert_eq!(read, Ok(znode));
}

#[test]
fn missing_and_double_attributes_are_corrupt() {
    let registry = Registry::standard();
    let values = file().to_sa(&registry).unwrap();
    let read = |range: &[(u16, Vec<u8>)]| {
        Znode::from_sa(range.iter().map(|(n, v)| (*n, &v[..], ByteOrder::Little)), &registry)
    };
    assert!(read(&values[1..]).is_err());
    assert!(read(&values[..14]).is_err());
    assert!(read(&values[..13]).is_ok());
    assert!(read(&[&values[..], &values[..1]].concat()).is_err());
}

#[test]
fn device_numbers_convert_between_linux_and_openzfs() {
    assert_eq!(rdev::pack(10, 200), Some(0xa0_00c8));
    assert_eq!(rdev::unpack(0xa0_00c8), (10, 200));
    assert_eq!(rdev::unpack(10 << 32 | 200), (10, 200));
    assert_eq!(rdev::to_user(10, 200), 0xac8);
    assert_eq!(rdev::pack(4096, 0), None);
}

#[test]
fn a_directory_entry_carries_type_and_object() {
    let entry = Dirent::new(S_IFDIR | 0o755, ObjectId(34));
    assert_eq!(entry.encode(), 0x4000_0000_0000_0022);
    assert_eq!(Dirent::decode(entry.encode()), Ok(entry));
    assert!(Dirent::decode(4 << 60).is_err());
}

#[test]
fn a_short_link_lies_in_the_legacy_bonus() {
    let mut raw = alloc::vec![0; LEGACY_SIZE + 8];
    ByteOrder::Little.put_u64(&mut raw, 0x48, S_IFLNK | 0o777);
    ByteOrder::Little.put_u64(&mut raw, 0x50, 5);
    raw[LEGACY_SIZE..LEGACY_SIZE + 5].copy_from_slice(b"there");
    let legacy = LegacyZnode::decode(&raw, ByteOrder::Little).unwrap();
    assert_eq!(legacy.znode.symlink.as_deref(), Some(&b"there"[..]));
    assert_eq!(legacy.encode(), raw);
}

proptest! {
    #[test]
    fn device_numbers_survive_user_space(major: u32, minor: u32) {
        prop_assert_eq!(rdev::from_user(rdev::to_user(major, minor)), (major, minor));
    }

    #[test]
    fn attributes_survive_a_round_trip(
        words: [u64; 9], times: [(i64, u64); 4], optional: [Option<u64>; 3],
        symlink: Option<Vec<u8>>, dxattr: Option<Vec<u8>>, dacl: Option<(u64, Vec<u8>)>,
    ) {
        let time = |i: usize| Time { secs: times[i].0, nanos: times[i].1 };
        let znode = Znode {
            mode: words[0], size: words[1], generation: words[2], uid: words[3], gid: words[4],
            parent: ObjectId(words[5]), flags: words[6], links: words[7],
            atime: time(0), mtime: time(1), ctime: time(2), crtime: time(3),
            projid: optional[0], rdev: optional[1], xattr: optional[2].map(ObjectId),
            dacl: dacl.map(|(count, aces)| Dacl { count, aces }), symlink, dxattr,
            ..Znode::default()
        };
        let registry = Registry::standard();
        let read = again(&znode, &registry);
        prop_assert_eq!(&again(&read, &registry), &read);
        prop_assert_eq!(Znode { order: Vec::new(), ..read }, znode);
    }

    #[test]
    fn any_legacy_bonus_decodes_to_what_it_encodes_to_or_is_refused(
        raw in proptest::collection::vec(any::<u8>(), 0x100..0x140), version in 0u8..3, big: bool,
    ) {
        let mut raw = raw;
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        order.put_u16(&mut raw, LEGACY_ACL + 12, version.into());
        if let Ok(legacy) = LegacyZnode::decode(&raw, order) {
            let little = legacy.encode();
            prop_assert_eq!(LegacyZnode::decode(&little, ByteOrder::Little), Ok(legacy));
            if order == ByteOrder::Little {
                prop_assert_eq!(little, raw);
            }
        }
    }
}
