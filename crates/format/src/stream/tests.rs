use alloc::vec::Vec;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::stream::{checksum, order_of, put_checksum};

fn crypt() -> impl Strategy<Value = Crypt> {
    any::<([u8; 8], [u8; 12], [u8; 16])>().prop_map(|(salt, iv, mac)| Crypt { salt, iv, mac })
}

fn kind() -> impl Strategy<Value = ObjectType> {
    (0u8..54).prop_map(ObjectType)
}

fn compression() -> impl Strategy<Value = Compression> {
    (0u64..17).prop_map(|id| Compression::from_disk(id).unwrap())
}

prop_compose! {
    fn begin()(
        header_type in 1u8..=2, features in 0u64..1 << 56, numbers in any::<(u64, u32, u32, u64, u64)>(),
        toname in vec(1u8.., 0..=NAME_MAX), payload_len in 0u32..1 << 28,
    ) -> Record {
        let (creation_time, objset_type, flags, to, from) = numbers;
        Record::Begin(Begin {
            header_type, features, creation_time, objset_type, flags, toguid: Guid(to), fromguid: Guid(from),
            toname, payload_len,
        })
    }
}

prop_compose! {
    fn object()(
        types in (kind(), kind()), numbers in any::<(u64, u32, u64, u64)>(), bytes in any::<[u8; 7]>(),
        bonus in (0u32..=16384, 0u32..=16384),
    ) -> Record {
        let (object, block_size, to, max_blkid) = numbers;
        let [checksum, compress, slots, flags, indirect_shift, levels, nblkptr] = bytes;
        Record::Object(Object {
            object, object_type: types.0, bonus_type: types.1, block_size, bonus_len: bonus.0, checksum,
            compress, slots, flags, raw_bonus_len: bonus.1, toguid: Guid(to), indirect_shift, levels, nblkptr,
            max_blkid,
        })
    }
}

prop_compose! {
    fn write()(
        object_type in kind(), numbers in any::<(u64, u64, u64, u64)>(), sizes in (0..=MAX_BLOCK, 0..=MAX_BLOCK),
        bytes in any::<(u8, u8)>(), compression in compression(), key in any::<[u64; 4]>(), crypt in crypt(),
    ) -> Record {
        Record::Write(Write {
            object: numbers.0, object_type, offset: numbers.1, logical_size: sizes.0, toguid: Guid(numbers.2),
            checksum_type: bytes.0, flags: bytes.1, compression, key: Checksum(key), key_prop: numbers.3,
            compressed_size: sizes.1, crypt,
        })
    }
}

fn small() -> impl Strategy<Value = Record> {
    let words = || any::<[u64; 7]>();
    prop_oneof![
        words().prop_map(|w| Record::FreeObjects(FreeObjects {
            first: w[0],
            count: w[1],
            toguid: Guid(w[2])
        })),
        (words(), any::<bool>()).prop_map(|(w, redact)| {
            let free = Free { object: w[0], offset: w[1], length: w[2], toguid: Guid(w[3]) };
            if redact { Record::Redact(free) } else { Record::Free(free) }
        }),
        words().prop_map(|w| Record::End(End {
            checksum: Checksum([w[0], w[1], w[2], w[3]]),
            toguid: Guid(w[4])
        })),
        words().prop_map(|w| Record::WriteByRef(WriteByRef {
            object: w[0],
            offset: w[1],
            length: w[2],
            toguid: Guid(w[3]),
            refguid: Guid(w[4]),
            refobject: w[5],
            refoffset: w[6],
        })),
        (words(), crypt(), 0..=MAX_BLOCK, 0..=MAX_BLOCK, any::<(u8, u8, u32)>()).prop_map(
            |(w, crypt, length, compressed_size, (flags, compression, object_type))| Record::Spill(Spill {
                object: w[0],
                length,
                toguid: Guid(w[1]),
                flags,
                compression,
                compressed_size,
                crypt,
                object_type,
            })
        ),
        (words(), compression(), 0u32..1 << 20, 0u32..=112).prop_map(|(w, compression, lsize, psize)| {
            let length = u64::from(lsize) + w[3] % 1024;
            let kind = w[4] as u8;
            let toguid = Guid(w[2]);
            Record::Embedded(Embedded {
                object: w[0],
                offset: w[1],
                length,
                toguid,
                compression,
                kind,
                lsize,
                psize,
            })
        }),
        (words(), crypt()).prop_map(|(w, crypt)| Record::ObjectRange(ObjectRange {
            first: w[0],
            slots: w[1],
            toguid: Guid(w[2]),
            crypt,
            flags: w[3] as u8,
        })),
    ]
}

/// The record as a big-endian machine writes it: every field turned by its size.
fn big_endian(record: &Record) -> [u8; RECORD] {
    let mut raw = record.encode();
    let mut turn = |width: usize, places: &[usize]| {
        for &at in places {
            raw[at..at + width].reverse();
        }
    };
    turn(4, &[0, 4]);
    match record {
        Record::Begin(_) => {
            turn(8, &[8, 0x10, 0x18, 0x28, 0x30]);
            turn(4, &[0x20, 0x24]);
        }
        Record::Object(_) => {
            turn(8, &[8, 0x28, 0x38]);
            turn(4, &[0x10, 0x14, 0x18, 0x1c, 0x24]);
        }
        Record::Write(_) => {
            turn(8, &[8, 0x18, 0x20, 0x28, 0x38, 0x40, 0x48, 0x50, 0x58, 0x60]);
            turn(4, &[0x10]);
        }
        Record::Spill(_) => {
            turn(8, &[8, 0x10, 0x18, 0x28]);
            turn(4, &[0x54]);
        }
        Record::Embedded(_) => {
            turn(8, &[8, 0x10, 0x18, 0x20]);
            turn(4, &[0x30, 0x34]);
        }
        Record::ObjectRange(_) => turn(8, &[8, 0x10, 0x18]),
        _ => turn(8, &[8, 0x10, 0x18, 0x20, 0x28, 0x30, 0x38]),
    }
    raw
}

proptest! {
    #[test]
    fn records_survive_a_round_trip_in_both_orders(record in prop_oneof![begin(), object(), write(), small()]) {
        prop_assert_eq!(Record::decode(&record.encode(), ByteOrder::Little), Ok(record.clone()));
        prop_assert_eq!(Record::decode(&big_endian(&record), ByteOrder::Big), Ok(record));
    }

    #[test]
    fn any_bytes_are_a_record_or_an_error(raw in vec(any::<u8>(), RECORD), kind in 0u8..12, big in any::<bool>()) {
        let mut raw: [u8; RECORD] = raw.try_into().unwrap();
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        order.put_u32(&mut raw, 0, kind.into());
        if let Ok(record) = Record::decode(&raw, order) {
            prop_assert!(record.payload_len() <= MAX_BLOCK);
            prop_assert_eq!(Record::decode(&record.encode(), ByteOrder::Little), Ok(record));
        }
    }
}

#[test]
fn the_first_record_has_the_byte_order_of_the_stream() {
    let begin = Record::Begin(Begin { header_type: 1, ..Begin::default() });
    assert_eq!(order_of(&begin.encode()), Ok(ByteOrder::Little));
    assert_eq!(order_of(&big_endian(&begin)), Ok(ByteOrder::Big));
    assert!(order_of(&[0; RECORD]).is_err());
    assert!(order_of(&Record::End(End::default()).encode()).is_err());
}

#[test]
fn a_checksum_is_stored_where_it_is_looked_for() {
    let mut raw = Record::End(End::default()).encode();
    put_checksum(&mut raw, &Checksum([1, 2, 3, u64::MAX]));
    assert_eq!(checksum(&raw, ByteOrder::Little), Checksum([1, 2, 3, u64::MAX]));
    let turned: Vec<u8> = raw.chunks(8).flat_map(|word| word.iter().rev().copied()).collect();
    assert_eq!(checksum(&turned.try_into().unwrap(), ByteOrder::Big), Checksum([1, 2, 3, u64::MAX]));
}
