//! Raw streams: encrypted datasets as they lie on disk, without their keys, against those of OpenZFS.

mod ground;
#[path = "../../pool/tests/oracle/mod.rs"]
mod oracle;

use std::sync::Arc;

use ::stream::{Incoming, Package, Sender};
use dmu::NewObject;
use format::stream::{self, Record};
use ground::{Ground, golden, import, load_key, records, sealed, send, unpack};
use pool::{
    Hold, NewEncryption, NewFilesystem, Options, OwnKey, ReceiveOptions, SendFlags, UserKey, Wanted,
    WrappingKey,
};

#[test]
fn an_encrypted_dataset_is_sent_raw_in_parts_and_packages_and_else_only_with_its_key() {
    let dir = unpack("gsend");
    let pool = import(dir.path(), "gsend");
    let sender = Sender::new(&pool);
    let raw = SendFlags { raw: true, ..SendFlags::default() };
    let whole = send(&pool, "gsend/crypt@k1", None, raw);
    let all = records(&whole);
    // The stream from any record on equals the rest of the whole stream, after its key data.
    for (at, (record, _)) in all.iter().enumerate() {
        let Record::Write(write) = record else { continue };
        let token = pool::ResumeToken {
            object: write.object,
            offset: write.offset,
            bytes: 0,
            toguid: write.toguid,
            toname: "gsend/crypt@k1".into(),
            fromguid: format::Guid(0),
            flags: raw,
            redacted_by: None,
            completes: None,
        };
        let mut rest = Vec::new();
        sender.send_resumed(&token, &mut rest, &mut |_| {}).unwrap();
        let rest = records(&rest);
        let Record::Begin(begin) = &rest[0].0 else { panic!("{:?}", rest[0].0) };
        assert!(
            begin.features & stream::feature::RAW != 0 && begin.features & stream::feature::RESUMING != 0
        );
        let list = format::NvList::decode(&rest[0].1).unwrap();
        assert_eq!(
            list.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            [&b"resume_object"[..], b"resume_offset", b"crypt_keydata"]
        );
        assert!(matches!(rest[1].0, Record::ObjectRange(range) if range.first == write.object / 32 * 32));
        let left = all.len() - at;
        assert!(all[at..all.len() - 1] == rest[rest.len() - left..rest.len() - 1], "{write:?}");
    }
    let error = sender.send("gsend/crypt@k1", None, SendFlags::default(), &mut Vec::new(), &mut |_| {});
    assert!(matches!(error, Err(pool::Error::Key(pool::KeyError::NotLoaded(_)))), "{error:?}");
    let package = Package::default();
    let sent = |package: &Package, flags| {
        let mut out = Vec::new();
        sender.send_package("gsend/crypt@k2", package, flags, &mut out, &mut |_| {}).map(|_| out)
    };
    assert!(matches!(sent(&package, SendFlags::default()), Err(pool::Error::NotRaw { .. })));
    let package = Package { raw: true, recursive: true, ..package };
    let sent = sent(&package, raw).unwrap();
    let incoming = Incoming::open(&sent[..]).unwrap();
    let (_, list) = incoming.package().unwrap();
    assert!(list.contains("raw"));
    let fss = list.get_list("fss").unwrap();
    let about = fss.iter().find_map(|(name, _)| fss.get_list(name)).unwrap();
    assert!(about.contains("is_encroot"));
    assert_eq!(about.get_list("props").and_then(|props| props.get_str("keylocation")), Some("prompt"));
}

/// The records of a stream without what names it.
fn nameless(bytes: &[u8]) -> Vec<(Record, Vec<u8>)> {
    let mut all = records(bytes);
    for (record, _) in &mut all {
        match record {
            Record::Begin(begin) => begin.toname.clear(),
            Record::End(end) => end.checksum = format::Checksum::default(),
            _ => {}
        }
    }
    all
}

fn expect_equal(ours: &[u8], theirs: &[u8]) {
    let (ours, theirs) = (nameless(ours), nameless(theirs));
    for (i, (a, b)) in ours.iter().zip(&theirs).enumerate() {
        assert!(a == b, "record {i}: ours {:?}, theirs {:?}", a.0, b.0);
    }
    assert_eq!(ours.len(), theirs.len());
}

#[test]
fn raw_streams_of_openzfs_are_received_without_keys_and_sent_again_the_same() {
    let dir = unpack("gsend");
    let [full, incr, decrypted] = ["raw", "raw-incr", "decrypted"].map(|name| golden(dir.path(), name));
    let mut ground = Ground::new();
    // The stream declares lz4 only if its blocks use it.
    ground.receive(&golden(dir.path(), "compressed"), "tank/plain@b").unwrap();
    ground.receive(&full, "tank/crypt@k1").unwrap();
    ground.crash();
    ground.receive(&incr, "tank/crypt@k2").unwrap();
    ground.expect_sound();
    let raw = SendFlags { raw: true, ..SendFlags::default() };
    expect_equal(&send(ground.pool(), "tank/crypt@k1", None, raw), &full);
    expect_equal(&send(ground.pool(), "tank/crypt@k2", Some("tank/crypt@k1"), raw), &incr);
    let info = ground.pool().dataset("tank/crypt").unwrap();
    let encryption = ground.pool().encryption(&info).unwrap().unwrap();
    assert_eq!((encryption.root.as_str(), encryption.is_loaded), ("tank/crypt", false));
    assert!(matches!(ground.pool().open("tank/crypt"), Err(pool::Error::Key(pool::KeyError::NotLoaded(_)))));
    // Every code is right, too, and the contents are the sender's.
    load_key(ground.pool(), "tank/crypt");
    expect_equal(&send(ground.pool(), "tank/crypt@k1", None, SendFlags::default()), &decrypted);
    for name in ["tank/crypt@k2", "tank/crypt"] {
        send(ground.pool(), name, None, SendFlags::default());
    }
    // The increment can also be received into a clone, and all of it can be destroyed without keys.
    let copy = "tank/copy@k1";
    ground.receive(&full, copy).unwrap();
    ground.receive(&incr, "tank/copy@k2").unwrap();
    expect_equal(&send(ground.pool(), "tank/copy@k2", Some(copy), raw), &incr);
    for name in ["tank/copy@k2", copy] {
        ground.pool().destroy_snapshots(&[name.to_owned()], false).unwrap();
    }
    ground.pool().destroy_dataset("tank/copy").unwrap();
    ground.expect_sound();
}

/// Creates a file system with one object of some content; encrypted with a key of its own, or as that above.
fn create_sealed(ground: &Ground, name: &str, own: bool) {
    create_sealed_with(ground, name, own.then_some(format::crypt::Suite::DEFAULT));
}

/// The same with the suite of a key of its own.
fn create_sealed_with(ground: &Ground, name: &str, own: Option<format::crypt::Suite>) {
    let key = WrappingKey::raw(&[7; 32]).unwrap();
    let user_key = UserKey { format: format::crypt::KeyFormat::Raw, salt: 0, iterations: 0 };
    let encryption = match own {
        Some(suite) => {
            NewEncryption { wanted: Wanted::On(suite), own: Some(Arc::new(OwnKey { user_key, key })) }
        }
        None => NewEncryption::default(),
    };
    let new = NewFilesystem { encryption, ..NewFilesystem::plain(&Options::default().host) };
    ground.pool().create_filesystem(name, Vec::new(), new, Arc::new(|_, _, _| Ok(()))).unwrap();
    let dataset = ground.pool().open(name).unwrap();
    let tx = dataset.begin(Hold::write(1 << 20)).unwrap();
    let new = NewObject::plain(format::ObjectType::PLAIN_FILE_CONTENTS).block_size(4096);
    let new = new.bonus(format::ObjectType::SA, vec![5; 40]);
    let object = dataset.objset().create_object(&tx, new).unwrap();
    object.write(&tx, 0, &(0..100_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>()).unwrap();
    object.set_spill(&tx, Some(vec![9; 1024]));
    drop(tx);
}

#[test]
fn a_raw_stream_from_a_redaction_bookmark_is_refused_before_its_first_byte() {
    let ground = Ground::new();
    let pool = ground.pool();
    create_sealed(&ground, "tank/top", true);
    let snapshot = |name: &str| pool.snapshot(&[name.to_owned()], &[]).unwrap();
    snapshot("tank/top@a");
    pool.clone_snapshot("tank/top@a", "tank/clean", Vec::new()).unwrap();
    {
        let dataset = pool.open("tank/clean").unwrap();
        let tx = dataset.begin(Hold::write(1 << 20)).unwrap();
        let object = dataset.objset().synced_objects().map(|entry| entry.unwrap().0).next().unwrap();
        dataset.objset().object(object).unwrap().write(&tx, 8192, &[0; 4096]).unwrap();
    }
    snapshot("tank/clean@s");
    snapshot("tank/top@b");
    let sender = Sender::new(pool);
    sender.redact("tank/top@a", "book", &["tank/clean@s".to_owned()]).unwrap();
    let from = sender.send_source("tank/top#book").unwrap();
    let send = |raw| {
        let flags = SendFlags { raw, ..SendFlags::default() };
        let mut out = Vec::new();
        let sent = sender.send("tank/top@b", Some(&from), flags, &mut out, &mut |_| {});
        (sent, out.len())
    };
    let (refused, bytes) = send(true);
    assert!(matches!(refused, Err(pool::Error::RawRedacted)) && bytes == 0, "{refused:?}");
    assert!(send(false).1 > 4096);
}

#[test]
fn received_trees_share_keys_as_at_the_sender() {
    let (source, ground) = (Ground::new(), Ground::new());
    create_sealed(&source, "tank/top", true);
    create_sealed(&source, "tank/top/child", false);
    let raw = SendFlags { raw: true, ..SendFlags::default() };
    for name in ["top", "top/child"] {
        let snapshot = format!("tank/{name}@a");
        source.pool().snapshot(std::slice::from_ref(&snapshot), &[]).unwrap();
        ground.receive(&send(source.pool(), &snapshot, None, raw), &snapshot).unwrap();
    }
    let root_of = |name: &str| {
        let info = ground.pool().dataset(name).unwrap();
        ground.pool().encryption(&info).unwrap().unwrap().root
    };
    assert_eq!(root_of("tank/top/child"), "tank/top/child");
    ground.pool().set_key_root("tank/top/child".into(), false).unwrap();
    assert_eq!(root_of("tank/top/child"), "tank/top");
    let info = ground.pool().dataset("tank/top").unwrap();
    ground.pool().load_key(&info, WrappingKey::raw(&[7; 32]).unwrap(), false).unwrap();
    for name in ["tank/top@a", "tank/top/child@a"] {
        let plain = SendFlags::default();
        expect_equal(&send(ground.pool(), name, None, plain), &send(source.pool(), name, None, plain));
    }
    ground.pool().set_key_root("tank/top/child".into(), true).unwrap();
    assert_eq!(root_of("tank/top/child"), "tank/top/child");
    ground.expect_sound();
    source.expect_sound();
}

#[test]
fn raw_streams_of_each_suite_are_opened_with_the_key_on_the_other_side() {
    use format::crypt::Suite;
    let (source, ground) = (Ground::new(), Ground::new());
    let raw = SendFlags { raw: true, ..SendFlags::default() };
    for suite in [Suite::Aes128Ccm, Suite::Aes192Ccm, Suite::Aes256Ccm, Suite::Aes192Gcm] {
        let name = format!("tank/{suite:?}");
        create_sealed_with(&source, &name, Some(suite));
        let snapshots = ["1", "2"].map(|number| format!("{name}@{number}"));
        source.pool().snapshot(&snapshots[..1], &[]).unwrap();
        let dataset = source.pool().open(&name).unwrap();
        let tx = dataset.begin(Hold::write(1 << 16)).unwrap();
        dataset.objset().object(format::ObjectId(1)).unwrap().write(&tx, 12288, &[3; 4096]).unwrap();
        drop((tx, dataset));
        source.pool().snapshot(&snapshots[1..], &[]).unwrap();
        ground.receive(&send(source.pool(), &snapshots[0], None, raw), &snapshots[0]).unwrap();
        let rest = send(source.pool(), &snapshots[1], Some(&snapshots[0]), raw);
        ground.receive(&rest, &snapshots[1]).unwrap();
        expect_equal(&send(ground.pool(), &snapshots[1], Some(&snapshots[0]), raw), &rest);
        let info = ground.pool().dataset(&name).unwrap();
        ground.pool().load_key(&info, WrappingKey::raw(&[7; 32]).unwrap(), false).unwrap();
        for snapshot in &snapshots {
            let plain = SendFlags::default();
            expect_equal(
                &send(ground.pool(), snapshot, None, plain),
                &send(source.pool(), snapshot, None, plain),
            );
        }
    }
    source.expect_sound();
    ground.expect_sound();
}

#[test]
fn an_increment_goes_back_to_where_the_first_snapshot_was_made() {
    let (source, ground) = (Ground::new(), Ground::new());
    create_sealed(&source, "tank/a", true);
    source.pool().snapshot(&["tank/a@1".into()], &[]).unwrap();
    let raw = SendFlags { raw: true, ..SendFlags::default() };
    ground.receive(&send(source.pool(), "tank/a@1", None, raw), "tank/a@1").unwrap();
    let info = ground.pool().dataset("tank/a").unwrap();
    ground.pool().load_key(&info, WrappingKey::raw(&[7; 32]).unwrap(), false).unwrap();
    let dataset = ground.pool().open("tank/a").unwrap();
    let tx = dataset.begin(Hold::write(1 << 16)).unwrap();
    dataset.objset().object(format::ObjectId(1)).unwrap().write(&tx, 8192, &[3; 4096]).unwrap();
    drop((tx, dataset));
    ground.pool().snapshot(&["tank/a@2".into()], &[]).unwrap();
    let back = send(ground.pool(), "tank/a@2", Some("tank/a@1"), raw);
    source.receive(&back, "tank/a@2").unwrap();
    let plain = SendFlags::default();
    for name in ["tank/a@1", "tank/a@2"] {
        expect_equal(&send(ground.pool(), name, None, plain), &send(source.pool(), name, None, plain));
    }
    // A snapshot of another dataset is refused.
    create_sealed(&source, "tank/b", true);
    source.pool().snapshot(&["tank/b@1".into()], &[]).unwrap();
    assert!(ground.receive(&send(source.pool(), "tank/b@1", None, raw), "tank/a@3").is_err());
    source.expect_sound();
    ground.expect_sound();
}

#[test]
fn a_plain_stream_is_encrypted_below_an_encrypted_dataset() {
    let dir = unpack("gsend");
    let ground = Ground::new();
    create_sealed(&ground, "tank/top", true);
    let decrypted = golden(dir.path(), "decrypted");
    ground.receive(&decrypted, "tank/top/in@k1").unwrap();
    let info = ground.pool().dataset("tank/top/in@k1").unwrap();
    let encryption = ground.pool().encryption(&info).unwrap().unwrap();
    assert_eq!((encryption.root.as_str(), encryption.is_loaded), ("tank/top", true));
    let content = |bytes: &[u8]| -> Vec<_> {
        let is_content = |record: &Record| !matches!(record, Record::Free(_) | Record::FreeObjects(_));
        nameless(bytes).into_iter().skip(1).filter(|(record, _)| is_content(record)).collect()
    };
    let again = send(ground.pool(), "tank/top/in@k1", None, SendFlags::default());
    assert!(content(&again) == content(&decrypted));
    let error = ground.receive(&golden(dir.path(), "embedded"), "tank/top/no@a").unwrap_err().to_string();
    assert!(error.contains("incompatible embedded"), "{error}");
    ground.expect_sound();
}

#[test]
fn records_that_ccm_cannot_seal_are_refused_before_anything_of_them_is_written() {
    let dir = unpack("gsend");
    let plain = golden(dir.path(), "large");
    let with_blocks_of = |size: u32| {
        let mut all = records(&plain);
        for (record, _) in &mut all {
            if let Record::Object(object) = record
                && object.object_type == format::ObjectType::PLAIN_FILE_CONTENTS
            {
                object.block_size = size;
            }
        }
        all.retain(|(record, _)| !matches!(record, Record::Write(_)));
        sealed(&all)
    };
    for (suite, size, is_taken) in [
        (format::crypt::Suite::Aes256Ccm, 16 << 20, false),
        (format::crypt::Suite::Aes256Ccm, 8 << 20, true),
        (format::crypt::Suite::Aes256Gcm, 16 << 20, true),
    ] {
        let ground = Ground::new();
        create_sealed_with(&ground, "tank/top", Some(suite));
        let before = ground.names();
        let received = ground.receive(&with_blocks_of(size), "tank/top/in@b");
        if is_taken {
            received.unwrap();
        } else {
            let error = received.unwrap_err().to_string();
            assert!(error.contains("records of more than 8M"), "{error}");
            assert_eq!(ground.names(), before);
        }
        ground.expect_sound();
    }
}

#[test]
fn a_raw_stream_from_small_sectors_goes_onto_large_ones() {
    let dir = unpack("gsend");
    let ground = Ground::with_ashift(12);
    let full = golden(dir.path(), "raw");
    ground.receive(&golden(dir.path(), "compressed"), "tank/plain@b").unwrap();
    ground.receive(&full, "tank/crypt@k1").unwrap();
    ground.receive(&golden(dir.path(), "raw-incr"), "tank/crypt@k2").unwrap();
    let raw = SendFlags { raw: true, ..SendFlags::default() };
    expect_equal(&send(ground.pool(), "tank/crypt@k1", None, raw), &full);
    load_key(ground.pool(), "tank/crypt");
    let plain = send(ground.pool(), "tank/crypt@k1", None, SendFlags::default());
    expect_equal(&plain, &golden(dir.path(), "decrypted"));
    ground.expect_sound();
}

#[test]
fn a_raw_stream_that_was_cut_off_goes_on() {
    let dir = unpack("gsend");
    let full = golden(dir.path(), "raw");
    let source = import(dir.path(), "gsend");
    let raw = SendFlags { raw: true, ..SendFlags::default() };
    let options = ReceiveOptions { resumable: true, ..ReceiveOptions::default() };
    let mut ground = Ground::new();
    for (i, cut) in (5..10).enumerate() {
        let into = format!("tank/cut{i}@k1");
        let fs = format!("tank/cut{i}");
        assert!(ground.receive_with(&full[..full.len() * cut / 10], &into, &options).is_err());
        ground.crash();
        let token = ground.pool().resume_token(&fs).unwrap().expect("something arrived");
        assert!(token.flags.raw);
        let mut rest = Vec::new();
        Sender::new(&source).send_resumed(&token, &mut rest, &mut |_| {}).unwrap();
        ground.receive_with(&rest, &into, &options).unwrap();
        assert_eq!(send(ground.pool(), &into, None, raw).len(), full.len());
        load_key(ground.pool(), &fs);
        let plain = send(ground.pool(), &into, None, SendFlags::default());
        expect_equal(&plain, &golden(dir.path(), "decrypted"));
    }
    ground.expect_sound();
}

/// A change that is made to every record of a stream.
type Spoiling = Box<dyn Fn(&mut Record)>;

fn on_range(change: fn(&mut stream::ObjectRange)) -> Spoiling {
    Box::new(move |record| {
        if let Record::ObjectRange(range) = record {
            change(range)
        }
    })
}

fn on_object(change: fn(&mut stream::Object)) -> Spoiling {
    Box::new(move |record| {
        if let Record::Object(object) = record {
            change(object)
        }
    })
}

fn on_write(change: fn(&mut stream::Write)) -> Spoiling {
    Box::new(move |record| {
        if let Record::Write(write) = record {
            change(write)
        }
    })
}

fn on_begin(change: fn(&mut stream::Begin)) -> Spoiling {
    Box::new(move |record| {
        if let Record::Begin(begin) = record {
            change(begin)
        }
    })
}

#[test]
fn raw_streams_with_impossible_records_are_refused_and_leave_nothing() {
    let dir = unpack("gsend");
    let full = golden(dir.path(), "raw");
    let ground = Ground::new();
    let before = ground.names();
    let refused = |stream: &[u8], number: usize| {
        let error = ground.receive(stream, "tank/bad@k1").expect_err(&format!("change {number}")).to_string();
        assert_eq!(ground.names(), before, "change {number}: {error}");
        assert!(!error.contains("internal"), "{error}");
    };
    let changes = [
        on_range(|range| range.first += 1),
        on_range(|range| range.slots = 31),
        on_range(|range| range.first = 1 << 40),
        on_range(|range| range.flags = stream::RAW_BYTESWAP),
        on_object(|object| object.checksum = 99),
        on_object(|object| object.levels = 0),
        on_object(|object| object.levels = 200),
        on_object(|object| object.nblkptr = 9),
        on_object(|object| object.indirect_shift = 3),
        on_object(|object| object.max_blkid = u64::MAX),
        on_object(|object| object.bonus_len += 8),
        on_object(|object| object.block_size += 1),
        on_write(|write| write.offset += 512),
        on_write(|write| write.logical_size *= 2),
        on_write(|write| write.object += 1),
        on_write(|write| write.compression = format::Compression::On),
        on_write(|write| write.crypt.salt = [1; 8]),
        Box::new(|record| {
            if let Record::Free(free) = record {
                free.offset += 1
            }
        }),
        on_begin(|begin| begin.flags &= !8),
        on_begin(|begin| begin.features &= !stream::feature::LZ4),
        on_begin(|begin| begin.features |= stream::feature::EMBED_DATA),
    ];
    for (number, change) in changes.iter().enumerate() {
        let mut all = records(&full);
        all.iter_mut().for_each(|(record, _)| change(record));
        refused(&sealed(&all), number);
    }
    // Without the record of a block's seal there is no object of it, and without the list of keys nothing.
    let mut all = records(&full);
    all.retain(|(record, _)| !matches!(record, Record::ObjectRange(_)));
    refused(&sealed(&all), 100);
    let mut all = records(&full);
    all[0].1.clear();
    on_begin(|begin| begin.payload_len = 0)(&mut all[0].0);
    refused(&sealed(&all), 101);
    ground.expect_sound();
}

#[test]
fn raw_streams_go_only_onto_what_they_build_upon() {
    let dir = unpack("gsend");
    let [full, incr] = ["raw", "raw-incr"].map(|name| golden(dir.path(), name));
    let ground = Ground::new();
    ground.receive(&full, "tank/crypt@k1").unwrap();
    let new = NewFilesystem::plain(&Options::default().host);
    ground.pool().create_filesystem("tank/empty", Vec::new(), new, Arc::new(|_, _, _| Ok(()))).unwrap();
    let before = ground.names();
    let force = ReceiveOptions { force: true, ..ReceiveOptions::default() };
    let refused = |stream: &[u8], into: &str, why: &str| {
        let error = ground.receive_with(stream, into, &force).unwrap_err().to_string();
        assert!(error.contains(why), "{error}, not {why}");
        assert_eq!(ground.names(), before, "{into}: {error}");
    };
    refused(&full, "tank/empty@k1", "overwrite an unencrypted one");
    type Change = fn(&mut format::NvList);
    let changes: [(Change, &str); 8] = [
        (|keys| keys.insert("from_ivset_guid", 0_u64), "guid missing"),
        (|keys| keys.insert("from_ivset_guid", 7_u64), "guid mismatch"),
        (|keys| keys.insert("DSL_CRYPTO_GUID", 7_u64), "does not match existing key"),
        (|keys| keys.insert("DSL_CRYPTO_SUITE", 9_u64), "encryption suite"),
        (|keys| keys.insert("keyformat", 0_u64), "key format"),
        (|keys| keys.insert("mdn_nlevels", 2_u64), "meta-dnode"),
        (|keys| keys.insert("mdn_maxblkid", 0_u64), "meta-dnode"),
        (|keys| _ = keys.remove("portable_mac"), "portable_mac"),
    ];
    for (change, why) in changes {
        let mut all = records(&incr);
        let mut list = format::NvList::decode(&all[0].1).unwrap();
        let mut keys = list.get_list("crypt_keydata").unwrap().clone();
        change(&mut keys);
        list.insert("crypt_keydata", keys);
        all[0].1 = list.to_native();
        let len = all[0].1.len() as u32;
        if let Record::Begin(begin) = &mut all[0].0 {
            begin.payload_len = len;
        }
        refused(&sealed(&all), "tank/crypt@k2", why);
        if why == "meta-dnode" && list.get_list("crypt_keydata").unwrap().get_u64("mdn_nlevels") == Some(2) {
            // As a full stream, too.
            let mut full = records(&full);
            full[0].1.clone_from(&all[0].1);
            if let Record::Begin(begin) = &mut full[0].0 {
                begin.payload_len = len;
            }
            refused(&sealed(&full), "tank/new@k1", why);
        }
    }
    ground.receive(&incr, "tank/crypt@k2").unwrap();
    ground.expect_sound();
}
