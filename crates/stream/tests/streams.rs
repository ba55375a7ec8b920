//! Send streams against those of OpenZFS.

mod ground;
#[path = "../../pool/tests/oracle/mod.rs"]
mod oracle;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::stream::{Incoming, Package, Receiver, Sender};
use format::stream::{self, Record};
use ground::{Ground, golden, import, load_key, records, sealed, send, unpack};
use pool::props::Value;
use pool::{NewFilesystem, Options, Pool, ReceiveOptions, SendFlags};
use storage::host::{Access, Disk, SeededEntropy};

fn streams(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "zstream"))
        .collect();
    found.sort();
    found
}

#[test]
fn every_stream_of_openzfs_decodes_to_its_end_with_right_checksums() {
    let mut count = 0;
    for pool in ["gsend", "gresume"] {
        let dir = unpack(pool);
        for path in streams(dir.path()) {
            for (record, payload) in records(&std::fs::read(&path).unwrap()) {
                if let (Record::Begin(begin), false) = (&record, payload.is_empty()) {
                    let list = format::NvList::decode(&payload).unwrap();
                    assert!(!list.is_empty(), "{begin:?}");
                }
                if !matches!(record, Record::End(_)) {
                    let again = Record::decode(&record.encode(), format::ByteOrder::Little);
                    assert_eq!(again.as_ref(), Ok(&record));
                }
            }
            count += 1;
        }
    }
    assert_eq!(count, 21);
}

fn expect_same(name: &str, ours: &[u8], dir: &Path) {
    let theirs = std::fs::read(dir.join(format!("gsend.{name}.zstream"))).unwrap();
    if ours == theirs {
        return;
    }
    let (ours, theirs) = (records(ours), records(&theirs));
    for (i, (a, b)) in ours.iter().zip(&theirs).enumerate() {
        assert!(a.0 == b.0, "{name}: record {i}: ours {:?}, theirs {:?}", a.0, b.0);
        assert!(a.1 == b.1, "{name}: payload of record {i}: {:?}\n{:?}\n{:?}", a.0, a.1, b.1);
    }
    panic!("{name}: {} records, not {}", ours.len(), theirs.len());
}

#[test]
fn streams_are_those_of_openzfs_byte_for_byte() {
    let dir = unpack("gsend");
    let pool = import(dir.path(), "gsend");
    let plain = SendFlags::default();
    let compressed = SendFlags { compressed: true, ..plain };
    let large = SendFlags { large_blocks: true, ..plain };
    let all = SendFlags { large_blocks: true, embedded: true, compressed: true, raw: false };
    let raw = SendFlags { raw: true, ..plain };
    let both = SendFlags { embedded: false, ..all };
    for (name, snapshot, from, flags) in [
        ("full", "gsend/fs@a", None, plain),
        ("incr", "gsend/fs@b", Some("gsend/fs@a"), plain),
        ("from-bookmark", "gsend/fs@c", Some("gsend/fs#a"), plain),
        ("compressed", "gsend/fs@b", None, compressed),
        ("large", "gsend/large@s", None, large),
        ("large-compressed", "gsend/large@s", None, both),
        ("nolarge", "gsend/large@s", None, plain),
        ("embedded", "gsend/fs@a", None, SendFlags { embedded: true, ..plain }),
        ("all-flags", "gsend/fs@b", None, all),
        ("raw-plain", "gsend/fs@a", None, all),
        ("volume", "gsend/vol@v", None, plain),
        ("clone", "gsend/tree/clone@r2", Some("gsend/tree/child@r1"), plain),
        ("raw-plain", "gsend/fs@a", None, raw),
        ("raw", "gsend/crypt@k1", None, raw),
        ("raw-incr", "gsend/crypt@k2", Some("gsend/crypt@k1"), raw),
    ] {
        expect_same(name, &send(&pool, snapshot, from, flags), dir.path());
    }
    load_key(&pool, "gsend/crypt");
    expect_same("decrypted", &send(&pool, "gsend/crypt@k1", None, plain), dir.path());
    expect_same("raw", &send(&pool, "gsend/crypt@k1", None, raw), dir.path());
    let mut package = Vec::new();
    let from = Sender::new(&pool).send_source("gsend/fs@a").unwrap();
    Sender::new(&pool).send_between("gsend/fs@c", &from, plain, &mut package, &mut |_| {}).unwrap();
    expect_same("incr-all", &package, dir.path());
    let tree = Package { recursive: true, ..Package::default() };
    for (name, snapshot, package) in [
        ("replicate", "gsend/tree@r2", tree.clone()),
        ("replicate-incr", "gsend/tree@r2", Package { from: Some("r1".into()), ..tree }),
        ("props", "gsend/tree@r1", Package::default()),
    ] {
        let mut out = Vec::new();
        let bytes =
            Sender::new(&pool).send_package(snapshot, &package, plain, &mut out, &mut |_| {}).unwrap();
        assert_eq!(bytes, out.len() as u64);
        expect_same(name, &out, dir.path());
    }
}

#[test]
fn only_an_earlier_snapshot_is_a_source() {
    let dir = unpack("gsend");
    let pool = import(dir.path(), "gsend");
    for (to, from) in [("fs@a", "fs@b"), ("fs@a", "fs@a"), ("fs@b", "large@s"), ("tree/clone@r2", "tree@r1")]
    {
        let from = Sender::new(&pool).send_source(&format!("gsend/{from}")).unwrap();
        let error = Sender::new(&pool)
            .send(&format!("gsend/{to}"), Some(&from), SendFlags::default(), &mut Vec::new(), &mut |_| {})
            .unwrap_err();
        assert!(matches!(error, pool::Error::NotEarlier(_)), "{to}: {error}");
    }
    assert!(matches!(Sender::new(&pool).send_source("gsend/fs#none"), Err(pool::Error::NoDataset(_))));
}

#[test]
fn a_received_snapshot_sends_the_same_stream() {
    let dir = unpack("gsend");
    let ground = Ground::new();
    for (stream, into) in [("full", "tank/fs@a"), ("incr", "tank/fs@b"), ("volume", "tank/vol@v")] {
        let stream = golden(dir.path(), stream);
        ground.receive(&stream, into).unwrap();
        let from = into.ends_with('b').then_some("tank/fs@a");
        let again = send(ground.pool(), into, from, SendFlags::default());
        let content = |bytes: &[u8]| -> Vec<(Record, Vec<u8>)> {
            let plain = |(record, payload)| match record {
                // Where the block lies, and how it is compressed there, is another matter.
                Record::Write(write) => {
                    let (key, key_prop) = (format::Checksum::default(), 0);
                    let (checksum_type, flags) = (0, 0);
                    (Record::Write(stream::Write { key, key_prop, checksum_type, flags, ..write }), payload)
                }
                other => (other, payload),
            };
            let kept = |(record, _): &(Record, Vec<u8>)| {
                !matches!(
                    record,
                    Record::Begin(_) | Record::End(_) | Record::Free(_) | Record::FreeObjects(_)
                )
            };
            records(bytes).into_iter().map(plain).filter(kept).collect()
        };
        let (ours, theirs) = (content(&again), content(&stream));
        assert_eq!(ours.len(), theirs.len(), "{into}");
        for (a, b) in ours.iter().zip(&theirs) {
            assert!(a == b, "{into}: {:?}\n{:?}", a.0, b.0);
        }
    }
    ground.expect_sound();
}

#[test]
fn a_stream_that_is_cut_or_damaged_leaves_everything_as_it_was() {
    let dir = unpack("gsend");
    let ground = Ground::new();
    let (full, incr) = (golden(dir.path(), "full"), golden(dir.path(), "incr"));
    ground.receive(&full, "tank/fs@a").unwrap();
    let before = ground.names();
    for (stream, into) in [(&full, "tank/new@a"), (&incr, "tank/fs@b")] {
        for part in 0..24 {
            let at = stream.len() * part / 24 + 100;
            ground.receive(&stream[..at], into).unwrap_err();
            let mut damaged = stream.clone();
            damaged[at] ^= 0x10;
            if let Ok(()) = ground.receive(&damaged, into) {
                panic!("a stream damaged at {at} was taken for whole");
            }
            assert_eq!(ground.names(), before);
        }
    }
    ground.expect_sound();
    ground.receive(&incr, "tank/fs@b").unwrap();
    ground.expect_sound();
}

#[test]
fn a_receive_cut_off_by_a_crash_is_gone_after_the_import() {
    let dir = unpack("gsend");
    let mut ground = Ground::new();
    let (full, incr) = (golden(dir.path(), "full"), golden(dir.path(), "incr"));
    ground.receive(&full, "tank/fs@a").unwrap();
    let before = ground.names();
    for (stream, into) in [(&full, "tank/new@a"), (&incr, "tank/fs@b")] {
        let pool = ground.pool.take().unwrap();
        // The sender falls silent in the middle; the machine dies while it is waited for.
        struct Silent<'a>(&'a [u8], &'a Pool);
        impl std::io::Read for Silent<'_> {
            fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
                if self.0.is_empty() {
                    self.1.sync().unwrap();
                    std::panic::resume_unwind(Box::new("power cut"));
                }
                self.0.read(buf)
            }
        }
        let half = &stream[..stream.len() / 2];
        let cut = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut stream = Incoming::open(Silent(half, &pool)).unwrap();
            let (begin, list) = stream.next_stream().unwrap().unwrap();
            Receiver::new(&pool).receive(&mut stream, (&begin, &list), into, &ReceiveOptions::default())
        }));
        assert!(cut.is_err(), "{into}: the power was cut");
        drop(pool);
        ground.crash();
        assert_eq!(ground.names(), before, "{into}");
        ground.expect_sound();
    }
    ground.receive(&incr, "tank/fs@b").unwrap();
    ground.expect_sound();
}

#[test]
fn a_resumed_stream_is_that_of_openzfs_byte_for_byte() {
    let dir = unpack("gresume");
    let pool = import(dir.path(), "gresume");
    let token = pool.resume_token("gresume/dst").unwrap().unwrap();
    assert_eq!((token.object, token.offset, token.bytes), (19, 0, 106_744));
    assert_eq!(pool.resume_token("gresume/src").unwrap(), None);
    let mut ours = Vec::new();
    Sender::new(&pool).send_resumed(&token, &mut ours, &mut |_| {}).unwrap();
    let theirs = std::fs::read(dir.path().join("gresume.resumed.zstream")).unwrap();
    assert!(ours == theirs, "{} bytes of ours, {} of OpenZFS", ours.len(), theirs.len());
    let about = Sender::new(&pool).resumed_size(&token).unwrap();
    assert!(about.abs_diff(ours.len() as u64) < ours.len() as u64 / 10, "{about} of {}", ours.len());
    let gone = pool::ResumeToken { toguid: format::Guid(1), ..token };
    assert!(matches!(Sender::new(&pool).resumption(&gone), Err(pool::Error::NoDataset(_))));
}

#[test]
fn a_partial_receive_of_openzfs_is_completed_or_destroyed() {
    let dir = unpack("gresume");
    let image = dir.path().join("gresume.0.img");
    let rest = std::fs::read(dir.path().join("gresume.resumed.zstream")).unwrap();
    for give_up in [false, true] {
        let copy = dir.path().join("copy");
        std::fs::copy(&image, &copy).unwrap();
        let disk: Arc<dyn Disk> =
            Arc::new(pool::open_disk(&copy, Access::ReadWrite { exclusive: true }).unwrap());
        let pool = Pool::import_disks(vec![disk], Options::default()).unwrap();
        if give_up {
            assert!(pool.abort_receive("gresume/dst").unwrap());
            assert!(matches!(pool.dataset("gresume/dst"), Err(pool::Error::NoDataset(_))));
            assert!(!pool.abort_receive("gresume/src").unwrap());
        } else {
            let mut stream = Incoming::open(&rest[..]).unwrap();
            let (begin, list) = stream.next_stream().unwrap().unwrap();
            let options = ReceiveOptions { resumable: true, ..ReceiveOptions::default() };
            Receiver::new(&pool).receive(&mut stream, (&begin, &list), "gresume/dst@s", &options).unwrap();
            let (sent, got) =
                (pool.dataset("gresume/src@s").unwrap(), pool.dataset("gresume/dst@s").unwrap());
            assert_eq!(sent.phys.guid, got.phys.guid);
            assert_eq!(pool.resume_token("gresume/dst").unwrap(), None);
            let flags = SendFlags::default();
            let content = |name| {
                let kept = |(record, _): &(Record, Vec<u8>)| matches!(record, Record::Write(_));
                let plain = |(record, payload): (Record, Vec<u8>)| match record {
                    Record::Write(write) => (write.object, write.offset, payload),
                    _ => unreachable!("only these are kept"),
                };
                let sent = records(&send(&pool, name, None, flags));
                sent.into_iter().filter(kept).map(plain).collect::<Vec<_>>()
            };
            assert!(content("gresume/src@s") == content("gresume/dst@s"));
        }
        let mut findings = Vec::new();
        pool.sync().unwrap();
        scan::check::check(&pool, &mut |finding| findings.push(finding.to_string())).unwrap();
        assert!(findings.is_empty(), "{findings:#?}");
        pool.export().unwrap();
    }
}

/// Receives what it gets of a stream until it is cut, so that it can be resumed; then the rest, and so on.
#[test]
fn a_stream_cut_again_and_again_arrives_in_the_end() {
    let dir = unpack("gsend");
    let source = import(dir.path(), "gsend");
    let mut ground = Ground::new();
    let options = ReceiveOptions { resumable: true, ..ReceiveOptions::default() };
    for (sent, from, into) in [
        ("gsend/fs@a", None, "tank/fs@a"),
        ("gsend/fs@b", Some("gsend/fs@a"), "tank/fs@b"),
        ("gsend/large@s", None, "tank/large@s"),
    ] {
        let flags =
            SendFlags { large_blocks: true, embedded: true, compressed: into.ends_with('b'), raw: false };
        let fs = into.split('@').next().unwrap();
        let mut stream = send(&source, sent, from, flags);
        let mut cuts = 0;
        loop {
            let part = &stream[..stream.len().min(700 + stream.len() / 3 + cuts * 20_000)];
            match ground.receive_with(part, into, &options) {
                Ok(()) => break,
                Err(error) => assert!(error.to_string().contains("incomplete stream"), "{error}"),
            }
            cuts += 1;
            if cuts % 3 == 0 {
                ground.crash();
            }
            ground.expect_sound();
            // Nothing else may take its place meanwhile.
            let other = ground.receive_with(&send(&source, sent, from, flags), into, &options);
            assert!(other.unwrap_err().to_string().contains("partially-complete"), "{into}");
            let token = ground.pool().resume_token(fs).unwrap().unwrap();
            let token = pool::ResumeToken::parse(&token.to_string()).unwrap();
            stream.clear();
            Sender::new(&source).send_resumed(&token, &mut stream, &mut |_| {}).unwrap();
            assert!(cuts < 200, "{into}: it never ends");
        }
        assert!(cuts > 1, "{into}: {cuts} cuts");
        assert_eq!(ground.pool().resume_token(fs).unwrap(), None);
        let data = |pool: &Pool, name: &str, from: Option<&str>| {
            let written = |(record, payload)| match record {
                Record::Write(stream::Write { object, offset, .. }) => Some((object, offset, payload)),
                _ => None,
            };
            let plain = SendFlags { large_blocks: true, ..SendFlags::default() };
            records(&send(pool, name, from, plain)).into_iter().filter_map(written).collect::<Vec<_>>()
        };
        assert!(data(&source, sent, None) == data(ground.pool(), into, None), "{into}");
        ground.expect_sound();
    }
}

#[test]
fn a_dataset_may_be_renamed_during_a_receive() {
    let dir = unpack("gsend");
    let ground = Ground::new();
    let pool = ground.pool();
    for (stream, into, from, to) in [
        ("full", "tank/fs@a", "tank/fs", "tank/renamed"),
        ("incr", "tank/renamed@b", "tank/renamed", "tank/again"),
    ] {
        let bytes = golden(dir.path(), stream);
        for finish in [false, true] {
            let mut stream = Incoming::open(&bytes[..]).unwrap();
            let (begin, list) = stream.next_stream().unwrap().unwrap();
            let receiving =
                Receiver::new(pool).begin_receive((&begin, &list), into, &ReceiveOptions::default()).unwrap();
            let arrived = receiving.take_in(&mut stream).unwrap();
            pool.rename_dataset(from, to).unwrap();
            // Its internal name is not shown.
            for info in pool.list("tank", None, true).unwrap().iter().filter(|info| info.is_snapshot()) {
                assert_eq!(pool.clones(info).unwrap(), [""; 0]);
            }
            match finish {
                true => {
                    let leaf = into.split_once('@').unwrap().1;
                    assert_eq!(arrived.put_in_place().unwrap().snapshot, format!("{to}@{leaf}"));
                }
                false => {
                    arrived.give_up();
                    if pool.dataset(to).is_ok() {
                        pool.rename_dataset(to, from).unwrap();
                    }
                }
            }
        }
    }
    assert_eq!(ground.names(), ["tank", "tank/again", "tank/again@a", "tank/again@b"]);
    ground.expect_sound();
}

/// A backup pool is read-only except for received data, and a user sets another property meanwhile.
#[test]
fn properties_may_be_set_while_a_stream_arrives() {
    let dir = unpack("gsend");
    let ground = Ground::new();
    let pool = ground.pool();
    let set = |name: &str, property: &str, value: u64| {
        pool.set_properties(name, vec![(property.to_owned(), Some(Value::Number(value)))]).unwrap();
    };
    set("tank", "readonly", 1);
    for (stream, into, beside) in
        [("full", "tank/fs@a", "tank/beside full"), ("incr", "tank/fs@b", "tank/beside incr")]
    {
        let bytes = golden(dir.path(), stream);
        let mut stream = Incoming::open(&bytes[..]).unwrap();
        let (begin, list) = stream.next_stream().unwrap().unwrap();
        let receiving =
            Receiver::new(pool).begin_receive((&begin, &list), into, &ReceiveOptions::default()).unwrap();
        // A dataset opened after it has its turn after it.
        let new = NewFilesystem::plain(&Options::default().host);
        pool.create_filesystem(beside, Vec::new(), new, Arc::new(|_, _, _| Ok(()))).unwrap();
        let other = pool.open(beside).unwrap();
        set("tank", "sync", 1);
        assert_eq!(other.settings().sync, pool::SyncMode::Always);
        set(beside, "sync", 2);
        assert_eq!(other.settings().sync, pool::SyncMode::Disabled);
        assert!(other.settings().read_only);
        receiving.take_in(&mut stream).unwrap().put_in_place().unwrap();
        assert!(
            pool.open("tank/fs").unwrap().settings().read_only,
            "what is in place is as its properties say"
        );
    }
    ground.expect_sound();
}

#[test]
fn newer_snapshots_are_destroyed_only_with_force() {
    let dir = unpack("gsend");
    let ground = Ground::new();
    let (full, incr) = (golden(dir.path(), "full"), golden(dir.path(), "incr"));
    ground.receive(&full, "tank/fs@a").unwrap();
    let pool = ground.pool();
    for name in ["tank/fs@x", "tank/fs@y"] {
        pool.snapshot(&[name.to_owned()], &[]).unwrap();
        pool.bookmark(name, &name.replace('@', "#")).unwrap();
        let dataset = pool.open("tank/fs").unwrap();
        let tx = dataset.begin(pool::Hold::write(512)).unwrap();
        let new = dmu::NewObject::plain(format::ObjectType::PLAIN_FILE_CONTENTS);
        dataset.objset().create_object(&tx, new).unwrap().write(&tx, 0, &[1; 512]).unwrap();
    }
    pool.bookmark("tank/fs@a", "tank/fs#a").unwrap();
    let force = ReceiveOptions { force: true, ..ReceiveOptions::default() };
    assert!(ground.receive(&incr, "tank/fs@b").unwrap_err().to_string().contains("has been modified"));
    pool.clone_snapshot("tank/fs@x", "tank/clone", Vec::new()).unwrap();
    let kept = ground.receive_with(&incr, "tank/fs@b", &force).unwrap_err();
    assert!(matches!(kept, pool::Error::HasClones(_)), "{kept}");
    pool.destroy_dataset("tank/clone").unwrap();
    pool.hold(&["tank/fs@y".to_owned()], "mine").unwrap();
    let kept = ground.receive_with(&incr, "tank/fs@b", &force).unwrap_err();
    assert!(matches!(kept, pool::Error::Held(_)), "{kept}");
    pool.release(&["tank/fs@y".to_owned()], "mine").unwrap();
    ground.expect_sound();
    ground.receive_with(&incr, "tank/fs@b", &force).unwrap();
    assert_eq!(ground.names(), ["tank", "tank/fs", "tank/fs@a", "tank/fs@b"]);
    let marks: Vec<_> = pool.bookmarks("tank/fs").unwrap().into_iter().map(|mark| mark.name).collect();
    assert_eq!(marks, ["tank/fs#a"]);
    ground.expect_sound();
}

#[test]
fn forged_records_end_in_one_error_and_never_in_a_panic() {
    let dir = unpack("gsend");
    let ground = Ground::new();
    let chance = SeededEntropy::new(7);
    let (full, incr) = (records(&golden(dir.path(), "full")), records(&golden(dir.path(), "incr")));
    ground.receive(&golden(dir.path(), "full"), "tank/fs@a").unwrap();
    let mut refused = 0;
    for round in 0..150 {
        let (base, into) = if round % 2 == 0 { (&full, "tank/new@a") } else { (&incr, "tank/fs@b") };
        let mut forged = base.clone();
        for _ in 0..1 + chance.below(3) {
            let at = 1 + chance.below(forged.len() as u64 - 2) as usize;
            let mut raw = forged[at].0.encode();
            let field = 4 + chance.below(0x50) as usize;
            raw[field] = if chance.below(2) == 0 {
                chance.below(256) as u8
            } else {
                raw[field] ^ 1 << chance.below(8)
            };
            let Ok(record) = Record::decode(&raw, format::ByteOrder::Little) else { continue };
            let len = record.payload_len() as usize;
            if matches!(record, Record::Begin(_)) || len > 1 << 20 {
                continue;
            }
            forged[at].0 = record;
            forged[at].1.resize(len, 0xa5);
        }
        match ground.receive(&sealed(&forged), into) {
            Ok(()) if into.starts_with("tank/new") => {
                ground.pool().destroy_snapshots(&[into.to_owned()], false).unwrap();
                ground.pool().destroy_dataset("tank/new").unwrap();
            }
            Ok(()) => {
                ground.pool().destroy_snapshots(&[into.to_owned()], false).unwrap();
                ground.pool().rollback("tank/fs@a").unwrap();
            }
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().is_empty());
            }
        }
        assert_eq!(ground.names(), ["tank", "tank/fs", "tank/fs@a"], "round {round}");
    }
    assert!(refused > 20, "{refused} forged streams were refused");
    ground.expect_sound();
}

#[test]
fn a_stream_goes_only_where_it_fits() {
    let dir = unpack("gsend");
    let ground = Ground::new();
    let (full, incr) = (golden(dir.path(), "full"), golden(dir.path(), "incr"));
    let said = |result: Result<(), pool::Error>| result.unwrap_err().to_string();
    assert!(said(ground.receive(&incr, "tank/fs@b")).contains("does not exist"));
    assert!(said(ground.receive(&full, "tank/no/fs@a")).contains("'tank/no' does not exist"));
    ground.receive(&full, "tank/fs@a").unwrap();
    assert!(said(ground.receive(&full, "tank/fs@x")).contains("must specify -F"));
    let force = ReceiveOptions { force: true, ..ReceiveOptions::default() };
    let refused = said(ground.receive_with(&full, "tank/fs@a", &force));
    assert!(refused.contains("destination has snapshots (eg. tank/fs@a)"), "{refused}");
    let other = golden(dir.path(), "large");
    ground.receive(&other, "tank/large@s").unwrap();
    assert!(said(ground.receive(&incr, "tank/large@b")).contains("match incremental source"));
    // Changes since then are dropped only with force.
    let dataset = ground.pool().open("tank/fs").unwrap();
    let tx = dataset.begin(pool::Hold::write(512)).unwrap();
    let new = dmu::NewObject::plain(format::ObjectType::PLAIN_FILE_CONTENTS);
    dataset.objset().create_object(&tx, new).unwrap().write(&tx, 0, &[1; 512]).unwrap();
    drop((tx, dataset));
    ground.pool().sync().unwrap();
    assert!(said(ground.receive(&incr, "tank/fs@b")).contains("has been modified"));
    ground.receive_with(&incr, "tank/fs@b", &force).unwrap();
    // Again is no harm; as a clone of what came before it is another dataset.
    ground.receive(&incr, "tank/fs@b").unwrap();
    assert!(said(ground.receive(&golden(dir.path(), "raw-incr"), "tank/crypt@k")).contains("does not exist"));
    // An empty file system gives way to a full stream if asked.
    let host = Options::default().host;
    let empty: pool::Initialise = Arc::new(|_, _, _| Ok(()));
    ground.pool().create_filesystem("tank/e", Vec::new(), NewFilesystem::plain(&host), empty).unwrap();
    assert!(said(ground.receive(&full, "tank/e@a")).contains("destination 'tank/e' exists"));
    ground.receive_with(&full, "tank/e@a", &force).unwrap();
    ground.expect_sound();
}
