//! Every suite and each kind of block, and data that must not be decrypted.

use format::crypt::{Sealing, Suite};
use format::zil::{CHAIN_SIZE, Chain, WRITE_HEADER, kind};
use format::{BlockPtr, ByteOrder, Dnode, ObjectType, blkptr};
use proptest::prelude::*;

use super::*;

const LE: ByteOrder = ByteOrder::Little;
const WITH: Sealing = Sealing { salt: *b"new salt", iv: *b"initial vec." };

fn keys(suite: Suite) -> DatasetKeys {
    let mut next = 0u8;
    DatasetKeys::generate(suite, 77, &mut |bytes| {
        for byte in bytes {
            next = next.wrapping_mul(5).wrapping_add(3);
            *byte = next;
        }
    })
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

#[test]
fn each_suite_opens_what_it_sealed_and_nothing_else() {
    for suite in Suite::ALL {
        let keys = keys(suite);
        let plain: Vec<u8> = (0..1000u32).map(|i| ((i * i) >> 3) as u8).collect();
        let mut block = plain.clone();
        let mac = keys.seal(Content::Whole, &WITH, &mut block).unwrap();
        assert_ne!(block, plain);
        let mut opened = block.clone();
        assert_eq!(keys.open(Content::Whole, &WITH, &mac, &mut opened), Ok(()));
        assert_eq!(opened, plain, "{suite:?}");
        for bit in [0, 7, 3000, 7999] {
            let mut changed = block.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(keys.open(Content::Whole, &WITH, &mac, &mut changed), Err(CryptError::Unauthentic));
            assert!(changed[100..110] != plain[100..110], "what does not open stays unreadable");
        }
        for other in [Sealing { salt: [0; 8], ..WITH }, Sealing { iv: [0; 12], ..WITH }] {
            assert_eq!(
                keys.open(Content::Whole, &other, &mac, &mut block.clone()),
                Err(CryptError::Unauthentic)
            );
        }
    }
}

#[test]
fn keys_are_wrapped_and_unwrapped_by_the_same_key_only() {
    for suite in Suite::ALL {
        let (keys, user) = (keys(suite), WrappingKey::raw(&[9; 32]).unwrap());
        let wrapped = user.wrap(&keys, [5; 12]);
        assert!(wrapped.master[suite.key_len()..].iter().all(|byte| *byte == 0));
        let again = user.unwrap(&wrapped).unwrap();
        assert_eq!(again.secrets(), keys.secrets());
        assert_eq!((again.suite(), again.guid(), again.version()), (suite, 77, 1));
        let stranger = WrappingKey::raw(&[8; 32]).unwrap();
        assert_eq!(stranger.unwrap(&wrapped).unwrap_err(), CryptError::Unauthentic);
        // Guid, suite and version are bound to the keys.
        for changed in [
            format::crypt::WrappedKeys { guid: 78, ..wrapped },
            format::crypt::WrappedKeys { version: 2, ..wrapped },
            format::crypt::WrappedKeys { version: 0, ..wrapped },
        ] {
            assert_eq!(user.unwrap(&changed).unwrap_err(), CryptError::Unauthentic);
        }
    }
}

#[test]
fn user_keys_have_their_length_and_nothing_prints_them() {
    let hexed = WrappingKey::hex(&b"0aF1".repeat(16)).unwrap();
    assert_eq!(hexed, WrappingKey::raw(&hex(&"0af1".repeat(16))).unwrap());
    assert_eq!(WrappingKey::hex(&[b'0'; 63]), Err(CryptError::KeyLength { expected: 64, found: 63 }));
    assert_eq!(WrappingKey::hex(&[b'g'; 64]), Err(CryptError::NotHex));
    assert_eq!(WrappingKey::raw(&[0; 33]), Err(CryptError::KeyLength { expected: 32, found: 33 }));
    for iterations in [0, 1 << 32, u64::MAX] {
        assert_eq!(WrappingKey::passphrase(b"x", 1, iterations), Err(CryptError::Iterations(iterations)));
    }
    assert_eq!(format!("{hexed:?}"), "WrappingKey(…)");
    assert_eq!(format!("{:?}", keys(Suite::DEFAULT)), "DatasetKeys { suite: Aes256Gcm, guid: 77, .. }");
}

/// Python's `hashlib.pbkdf2_hmac('sha1', b'correct horse', (77).to_bytes(8, 'little'), 1000, 32)`.
#[test]
fn a_pass_phrase_becomes_the_key_that_other_programs_derive() {
    let expected = hex("8f9d2cfbe6215e27d36adbfd3a46aea5b143e9ac37e0861cc1fceb84f2bd90f8");
    let found = WrappingKey::passphrase(b"correct horse", 77, 1000).unwrap();
    assert_eq!(found, WrappingKey::raw(&expected).unwrap());
    let cut = WrappingKey::passphrase(b"correct horse\0battery", 77, 1000).unwrap();
    assert_eq!(cut, found, "a zero byte ends a pass phrase");
}

/// Computed by Python's `hmac` and `hashlib` from the formulas of the format's description.
#[test]
fn authentication_codes_are_those_of_an_independent_program() {
    let keys = DatasetKeys::new(Suite::Aes256Gcm, 1, 1, &[1; 32], &[2; 64]);
    assert_eq!(keys.authenticate(b"authenticated")[..], hex("fbe8c975e62b362febcbb299e74842e2"));
    let with = keys.dedup_sealing(b"authenticated");
    assert_eq!([&with.salt[..], &with.iv[..]].concat(), hex("fbe8c975e62b362febcbb299e74842e2b29d3d90"));
    // A block under the key that HKDF derives for this salt.
    let mut block = *b"sixteen bytes...";
    let mac = keys.seal(Content::Whole, &WITH, &mut block).unwrap();
    assert_eq!(
        [&block[..], &mac[..]].concat(),
        hex("5775adc81947900b1a001a75b1691f46c6a5c590fe7434ec2c4faacf3ca718a4")
    );
}

fn pointer(level: u8) -> [u8; blkptr::SIZE] {
    let mut raw = [0; blkptr::SIZE];
    let words = [
        (0, 8u64),
        (1, 4096),
        (6, 7 | 3 << 16 | 15 << 32 | 7 << 40 | 19 << 48 | u64::from(level) << 56 | 1 << 61 | 1 << 63),
        (12, 1),
        (13, 2),
        (14, 3),
        (15, 4),
    ];
    for (at, word) in words {
        LE.put_u64(&mut raw, 8 * at, word);
    }
    raw
}

#[test]
fn the_code_of_an_indirect_block_covers_what_a_raw_receive_keeps() {
    let code = |change: &dyn Fn(&mut u64), word: usize, level, version| {
        let mut raw = pointer(level);
        let mut value = LE.word(&raw, word);
        change(&mut value);
        LE.put_u64(&mut raw, 8 * word, value);
        indirect_mac(&raw, LE, version)
    };
    for (level, version) in
        [(0, MacVersion::One), (1, MacVersion::One), (0, MacVersion::Zero), (1, MacVersion::Zero)]
    {
        let plain = code(&|_| {}, 6, level, version);
        let changes = |word, bit: u64| code(&|value| *value ^= bit, word, level, version) != plain;
        for word in [0, 1, 2, 7, 9, 10, 11, 12, 13] {
            assert!(
                !changes(word, 1 << 3),
                "place, birth, fill and the checksum proper are not covered: {word}"
            );
        }
        assert!(changes(14, 1) && changes(15, 1), "the codes of children are");
        assert!(!changes(6, 1 << 62) && !changes(6, 1 << 40), "dedup and kind of checksum are not");
        assert!(changes(6, 1) && changes(6, 1 << 48) && changes(6, 1 << 56), "size, type and level are");
        let free = version == MacVersion::One && level > 0;
        assert_eq!(changes(6, 1 << 32), !free, "how an indirect block is compressed is not");
        assert_eq!(changes(6, 1 << 16), version == MacVersion::One && level == 0, "psize");
    }
    let mut hole = [0; blkptr::SIZE];
    let empty = indirect_mac(&hole, LE, MacVersion::One);
    LE.put_u64(&mut hole, 8 * 6, 7 | 19 << 48);
    LE.put_u64(&mut hole, 8 * 10, 99);
    assert_eq!(indirect_mac(&hole, LE, MacVersion::One), empty, "a hole is a hole, whenever it came");
}

fn dnodes() -> Vec<u8> {
    let file = Dnode {
        object_type: ObjectType::PLAIN_FILE_CONTENTS,
        bonus_type: ObjectType::SA,
        bonus: (1..=168).collect(),
        block_ptrs: vec![BlockPtr::decode(&pointer(0), LE).unwrap()],
        ..Dnode::meta(1)
    };
    let plain = Dnode { object_type: ObjectType::MASTER_NODE, ..Dnode::meta(1) };
    let mut block = vec![0; 4096];
    for (slot, dnode) in [(0, &file), (3, &plain), (7, &file)] {
        dnode.encode(&mut block[slot * 512..][..512]);
    }
    block
}

#[test]
fn only_the_bonus_of_dnodes_is_encrypted_and_the_rest_is_authenticated() {
    let keys = keys(Suite::Aes256Gcm);
    let plain = dnodes();
    let mut block = plain.clone();
    let mac = keys.seal(Content::Dnodes(LE), &WITH, &mut block).unwrap();
    for (i, (sealed, plain)) in block.chunks_exact(512).zip(plain.chunks_exact(512)).enumerate() {
        assert_eq!(sealed[..192], plain[..192], "header and pointer of {i}");
        assert_eq!(sealed[192..] == plain[192..], i != 0 && i != 7, "bonus of {i}");
    }
    let opens = |change: &dyn Fn(&mut [u8])| {
        let mut changed = block.clone();
        change(&mut changed);
        keys.open(Content::Dnodes(LE), &WITH, &mac, &mut changed)
    };
    assert_eq!(opens(&|_| {}), Ok(()));
    assert_eq!(opens(&|block| block[0x18] ^= 1), Ok(()), "the space that an object takes is counted anew");
    assert_eq!(opens(&|block| block[7] ^= 2), Ok(()), "and so is whether it was counted");
    for at in [0x01, 0x08, 0x10, 0x40 + 8 * 15, 0xc0, 0x1ff, 512 + 9, 3 * 512 + 0x10, 7 * 512 + 0x150] {
        assert_eq!(opens(&|block| block[at] ^= 1), Err(CryptError::Unauthentic), "byte {at}");
    }
    for (at, value) in [(3, 4), (0x0c, 9), (7 * 512 + 0x0c, 1)] {
        let found = opens(&|block| block[at] = value);
        assert!(matches!(found, Err(CryptError::Layout(_))), "byte {at}: {found:?}");
    }
}

fn log_block(records: &[(u64, usize)]) -> Vec<u8> {
    let mut raw = vec![0; 8192];
    let mut at = CHAIN_SIZE;
    for (kind, len) in records {
        LE.put_u64(&mut raw, at, *kind);
        LE.put_u64(&mut raw, at + 8, *len as u64);
        for (i, byte) in raw[at + 16..at + len].iter_mut().enumerate() {
            *byte = (i * 7 + at) as u8;
        }
        at += len;
    }
    Chain { next: BlockPtr::HOLE, used: at as u64 }.encode(&mut raw, LE);
    raw
}

#[test]
fn only_names_sizes_and_data_of_a_log_are_encrypted() {
    let keys = keys(Suite::Aes128Ccm);
    let (write, clone, create) = (WRITE_HEADER + 64, 0x48 + 256, 0x100);
    let plain = log_block(&[(kind::WRITE, write), (kind::CLONE_RANGE, clone), (kind::CREATE, create)]);
    let mut block = plain.clone();
    let mac = keys.seal(Content::Log(LE), &WITH, &mut block).unwrap();
    let readable = |range: core::ops::Range<usize>| block[range.clone()] == plain[range];
    let (w, c, n) = (CHAIN_SIZE, CHAIN_SIZE + write, CHAIN_SIZE + write + clone);
    assert!(readable(0..w + 0x20) && readable(w + 0x40..w + 0xc0), "chain, header, pointer of a write");
    assert!(!readable(w + 0x20..w + 0x40) && !readable(w + 0xc0..c));
    assert!(readable(c..c + 0x20) && readable(c + 0x40..n), "header and pointers of a clone");
    assert!(!readable(c + 0x20..c + 0x40));
    assert!(readable(n..n + 0x20) && !readable(n + 0x20..n + create) && readable(n + create..8192));
    let mut opened = block.clone();
    assert_eq!(keys.open(Content::Log(LE), &WITH, &mac, &mut opened), Ok(()));
    assert_eq!(opened, plain);
    let mut changed = block.clone();
    changed[w + 0x50] ^= 1;
    assert_eq!(keys.open(Content::Log(LE), &WITH, &mac, &mut changed), Err(CryptError::Unauthentic));
    for records in [[(kind::WRITE, 0x40)], [(kind::CLONE_RANGE, 0x30)], [(kind::CREATE, 0x10)]] {
        let mut bad = log_block(&records);
        assert!(
            matches!(keys.seal(Content::Log(LE), &WITH, &mut bad), Err(CryptError::Layout(_))),
            "{records:?}"
        );
    }
}

#[test]
fn ccm_refuses_what_is_too_long_for_it() {
    let mut block = vec![0; 16 << 20];
    assert_eq!(
        keys(Suite::Aes256Ccm).seal(Content::Whole, &WITH, &mut block),
        Err(CryptError::TooLong(16 << 20))
    );
}

proptest! {
    #[test]
    fn any_bytes_are_dnodes_log_and_root_or_an_error(raw in prop::collection::vec(any::<u8>(), 0..4097), big in any::<bool>()) {
        let keys = keys(Suite::Aes256Gcm);
        let order = if big { ByteOrder::Big } else { LE };
        let _ = keys.open(Content::Dnodes(order), &WITH, &[0; 16], &mut raw.clone());
        let _ = keys.open(Content::Log(order), &WITH, &[0; 16], &mut raw.clone());
        let _ = keys.objset_macs(&raw, order);
        let _ = indirect_mac(&raw, order, MacVersion::One);
    }
}
