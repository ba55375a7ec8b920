use super::*;
use crate::znode::Time;
use crate::{ObjectId, Txg};
use alloc::vec;
use alloc::vec::Vec;
use proptest::prelude::*;

fn any_order() -> impl Strategy<Value = ByteOrder> {
    prop_oneof![Just(ByteOrder::Little), Just(ByteOrder::Big)]
}

fn any_object() -> impl Strategy<Value = ObjectId> {
    (0u64..1 << 48).prop_map(ObjectId)
}

fn any_time() -> impl Strategy<Value = Time> {
    (any::<i64>(), any::<u64>()).prop_map(|(secs, nanos)| Time { secs, nanos })
}

fn any_name() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(1u8..=255, 1..40)
}

fn any_attrs() -> impl Strategy<Value = Attrs> {
    (any::<[u32; 3]>(), any::<u64>(), any_time(), any::<[u8; 32]>())
        .prop_map(|(wanted, values, crtime, scanstamp)| Attrs { wanted, values, crtime, scanstamp })
}

fn any_acl() -> impl Strategy<Value = NewAcl> {
    (
        any::<u64>(),
        any::<u64>(),
        prop::collection::vec(any::<u8>(), 0..50),
        prop::collection::vec(any::<u64>(), 0..4),
    )
        .prop_map(|(count, flags, aces, fuids)| NewAcl { count, flags, aces, fuids, domain_count: 0 })
}

fn any_create() -> impl Strategy<Value = Create> {
    let kind = prop_oneof![
        Just(CreateKind::File),
        Just(CreateKind::Dir),
        Just(CreateKind::XattrDir),
        Just(CreateKind::Symlink)
    ];
    let ids = (any_object(), any_object(), 1u8..=32, any::<[u64; 3]>(), any::<[u32; 2]>(), any_time());
    let more = (prop::option::of(any_acl()), prop::option::of(any_attrs()), any_name(), any_name());
    (kind, ids, more).prop_map(
        |(kind, (dir, object, slots, w, [uid, gid], crtime), (acl, attrs, name, target))| {
            let plain = matches!(kind, CreateKind::XattrDir | CreateKind::Symlink);
            Create {
                kind,
                dir,
                node: LoggedNode {
                    object,
                    slots,
                    mode: w[0],
                    uid: uid.into(),
                    gid: gid.into(),
                    generation: w[1],
                    crtime,
                    rdev: w[2],
                },
                acl: acl.filter(|_| !plain),
                attrs: attrs.filter(|_| !plain),
                domains: Vec::new(),
                name: if kind == CreateKind::XattrDir { Vec::new() } else { name },
                target: (kind == CreateKind::Symlink).then_some(target),
            }
        },
    )
}

fn any_rename() -> impl Strategy<Value = Rename> {
    let whiteout =
        (any_object(), 1u8..=32, any::<[u64; 5]>(), any_time()).prop_map(|(object, slots, w, crtime)| {
            RenameKind::Whiteout(LoggedNode {
                object,
                slots,
                mode: w[0],
                uid: w[1],
                gid: w[2],
                generation: w[3],
                crtime,
                rdev: w[4],
            })
        });
    let kind = prop_oneof![Just(RenameKind::Replace), Just(RenameKind::Exchange), whiteout];
    (any_object(), any_name(), any_object(), any_name(), kind)
        .prop_map(|(from_dir, from, to_dir, to, kind)| Rename { from_dir, from, to_dir, to, kind })
}

fn any_write() -> impl Strategy<Value = Write> {
    let data = prop::option::of(prop::collection::vec(any::<u8>(), 1..300));
    (any_object(), any::<u64>(), any::<u64>(), data).prop_map(|(object, offset, length, data)| Write {
        object,
        offset,
        length: data.as_ref().map_or(length, |data| data.len() as u64),
        block_offset: 0,
        ptr: BlockPtr::HOLE,
        data,
    })
}

fn any_set_attr() -> impl Strategy<Value = SetAttr> {
    let words = (any_object(), any::<u32>(), any::<[u64; 2]>(), any::<[u32; 2]>(), any_time(), any_time());
    (words, prop::option::of(any_attrs())).prop_map(
        |((object, bits, [mode, size], [uid, gid], atime, mtime), attrs)| SetAttr {
            object,
            mask: u64::from(bits) & !mask::XVATTR | if attrs.is_some() { mask::XVATTR } else { 0 },
            mode,
            uid: uid.into(),
            gid: gid.into(),
            size,
            atime,
            mtime,
            attrs,
            domains: Vec::new(),
        },
    )
}

fn any_body() -> impl Strategy<Value = Body> {
    prop_oneof![
        any_create().prop_map(Body::Create),
        (any_object(), any_name(), any::<bool>()).prop_map(|(dir, name, is_dir)| Body::Remove {
            dir,
            name,
            is_dir
        }),
        (any_object(), any_object(), any_name()).prop_map(|(dir, object, name)| Body::Link {
            dir,
            object,
            name
        }),
        any_rename().prop_map(Body::Rename),
        any_write().prop_map(Body::Write),
        (any_object(), any::<[u64; 2]>()).prop_map(|(object, [offset, length])| Body::Extend {
            object,
            offset,
            length
        }),
        (any_object(), any::<[u64; 2]>()).prop_map(|(object, [offset, length])| Body::Truncate {
            object,
            offset,
            length
        }),
        any_set_attr().prop_map(Body::SetAttr),
        (any_object(), prop::collection::vec(any::<[u8; 8]>(), 0..5))
            .prop_map(|(object, aces)| Body::AclV0 { object, aces: aces.concat() }),
        (any_object(), any_acl(), prop::collection::vec(any_name(), 0..3)).prop_map(
            |(object, acl, domains)| {
                Body::Acl(Acl { object, acl: NewAcl { domain_count: domains.len() as u64, ..acl }, domains })
            }
        ),
        (any_object(), any_name(), prop::option::of(prop::collection::vec(any::<u8>(), 1..90)))
            .prop_map(|(object, name, value)| Body::SetSaXattr { object, name, value }),
        (any_object(), any::<[u64; 3]>(), 0usize..3).prop_map(|(object, w, count)| {
            let ptrs = alloc::vec![BlockPtr::HOLE; count];
            Body::CloneRange(CloneRange { object, offset: w[0], length: w[1], block_size: w[2], ptrs })
        }),
    ]
}

fn any_record() -> impl Strategy<Value = Record> {
    (any::<[u64; 2]>(), any::<bool>(), any_body()).prop_map(|([txg, seq], ignore_case, body)| Record {
        txg: Txg(txg),
        seq,
        ignore_case,
        body,
    })
}

proptest! {
    #[test]
    fn records_survive_a_round_trip(all in prop::collection::vec(any_record(), 0..6), order in any_order()) {
        let mut raw = alloc::vec![0; CHAIN_SIZE];
        for record in &all {
            raw.extend_from_slice(&record.encode(order));
        }
        let found: Result<Vec<Record>, _> = records(&raw, CHAIN_SIZE..raw.len(), order).collect();
        prop_assert_eq!(found, Ok(all));
    }

    #[test]
    fn damaged_records_are_refused_or_read(
        record in any_record(), changes in prop::collection::vec((any::<usize>(), any::<u8>()), 1..6),
        order in any_order(),
    ) {
        let mut raw = record.encode(order);
        let len = raw.len();
        changes.into_iter().for_each(|(at, byte)| raw[at % len] = byte);
        for _ in records(&raw, 0..len, order) {}
    }

    #[test]
    fn a_chain_header_survives_a_round_trip(used in CHAIN_SIZE..=BLOCK_MIN, order in any_order()) {
        let chain = Chain { next: BlockPtr::HOLE, used: used as u64 };
        let mut raw = alloc::vec![7; BLOCK_MIN];
        chain.encode(&mut raw, order);
        prop_assert_eq!(Chain::decode(&raw, ChecksumKind::Zilog2, order), Ok((chain, CHAIN_SIZE..used)));
    }
}

#[test]
fn a_block_cannot_use_more_than_it_has() {
    let mut raw = alloc::vec![0; BLOCK_MIN];
    for used in [0, CHAIN_SIZE as u64 - 1, BLOCK_MIN as u64 + 1, u64::MAX] {
        Chain { next: BlockPtr::HOLE, used }.encode(&mut raw, ByteOrder::Little);
        assert!(Chain::decode(&raw, ChecksumKind::Zilog2, ByteOrder::Little).is_err(), "{used}");
    }
    assert!(Chain::decode(&raw[..100], ChecksumKind::Zilog2, ByteOrder::Little).is_err());
    assert!(Chain::decode(&raw, ChecksumKind::Fletcher4, ByteOrder::Little).is_err());
}

#[test]
fn records_lie_where_openzfs_has_them() {
    let record = |body| Record { txg: Txg(28), seq: 3, ignore_case: false, body }.encode(ByteOrder::Little);
    let word = |raw: &[u8], at| ByteOrder::Little.u64(raw, at);
    let raw = record(Body::Truncate { object: ObjectId(5), offset: 7, length: 9 });
    assert_eq!((raw.len(), word(&raw, 0), word(&raw, 8), word(&raw, 0x10)), (0x38, 10, 0x38, 28));
    let raw = record(Body::Extend { object: ObjectId(5), offset: 7, length: 9 });
    assert_eq!((raw.len(), word(&raw, 0), word(&raw, 0x30)), (0xc0, 20, 9));
    let write = Write {
        object: ObjectId(5),
        offset: 7,
        length: 3,
        block_offset: 0,
        ptr: BlockPtr::HOLE,
        data: Some(alloc::vec![1, 2, 3]),
    };
    let raw = record(Body::Write(write));
    assert_eq!((raw.len(), &raw[0xc0..0xc8]), (0xc8, &[1, 2, 3, 0, 0, 0, 0, 0][..]));
}
