//! A receive was cut off, and its saved state is sent on to another receiver.

mod ground;
#[path = "../../pool/tests/oracle/mod.rs"]
mod oracle;

use std::sync::Arc;

use format::stream::{Record, feature};
use ground::{Ground, golden, unpack};
use pool::{Error, Options, Pool, ReceiveError, ReceiveOptions, ResumeToken, SendFlags};
use storage::host::{Access, Disk};
use stream::{Incoming, Sender};

/// Data that arrived is kept when the stream is cut off.
fn kept() -> ReceiveOptions {
    ReceiveOptions { resumable: true, ..ReceiveOptions::default() }
}

/// A pool of OpenZFS, for reading.
fn opened(name: &str) -> (tempfile::TempDir, Pool) {
    let dir = unpack(name);
    let image = dir.path().join(format!("{name}.0.img"));
    let disk: Arc<dyn Disk> =
        Arc::new(pool::open_disk(&image, Access::ReadWrite { exclusive: true }).unwrap());
    let pool = Pool::import_disks(vec![disk], Options { read_only: true, ..Options::default() }).unwrap();
    (dir, pool)
}

fn send(pool: &Pool, snapshot: &str, from: Option<&str>, flags: SendFlags) -> Vec<u8> {
    let mut out = Vec::new();
    let from = from.map(|from| Sender::new(pool).send_source(from).unwrap());
    Sender::new(pool).send(snapshot, from.as_ref(), flags, &mut out, &mut |_| {}).unwrap();
    out
}

fn token(ground: &Ground, fs: &str) -> ResumeToken {
    ground.pool().resume_token(fs).unwrap().unwrap()
}

/// Hands on what `pool` holds of `fs`; the receiver keeps it.
fn hand_on(pool: &Pool, to: &Ground, fs: &str, into: &str) -> Vec<u8> {
    let saved = Sender::new(pool).saved(fs).unwrap();
    assert!(
        matches!(Sender::new(pool).saved(fs), Err(Error::DatasetBusy(_))),
        "nobody else has it meanwhile"
    );
    let mut stream = Vec::new();
    let bytes = Sender::new(pool).send_saved(&saved, &mut stream, &mut |_| {}).unwrap();
    assert_eq!(bytes, stream.len() as u64);
    let about = Sender::new(pool).saved_size(&saved).unwrap();
    assert!(about <= bytes && bytes - about < 20_000 + bytes / 4, "{about} of {bytes}");
    let cut = to.receive_with(&stream, into, &kept()).unwrap_err();
    assert!(matches!(cut, Error::Receive(ReceiveError::Truncated)), "{cut}");
    stream
}

/// Every object and block that a full stream of the dataset writes.
fn content(pool: &Pool, name: &str) -> Vec<(Record, Vec<u8>)> {
    let stream = send(pool, name, None, SendFlags { large_blocks: true, ..SendFlags::default() });
    let mut incoming = Incoming::open(&stream[..]).unwrap();
    incoming.next_stream().unwrap().unwrap();
    let mut found = Vec::new();
    loop {
        let (record, payload) = incoming.next_record().unwrap();
        match record {
            Record::End(_) => return found,
            // The checksum of the block on disk is the receiver's own.
            Record::Write(write) => {
                let write = format::stream::Write {
                    key: format::Checksum::default(),
                    key_prop: 0,
                    checksum_type: 0,
                    flags: 0,
                    ..write
                };
                found.push((Record::Write(write), payload));
            }
            Record::Object(_) => found.push((record, payload)),
            _ => {}
        }
    }
}

#[test]
fn a_partial_receive_can_be_sent_on_and_completed_there() {
    let (_dir, source) = opened("gsend");
    let grounds = [Ground::new(), Ground::new(), Ground::new()];
    let plain = SendFlags::default();
    let all = SendFlags { large_blocks: true, embedded: true, compressed: true, raw: false };
    for (sent, from, fs, flags) in [
        ("gsend/fs@a", None, "tank/fs", plain),
        ("gsend/fs@b", Some("gsend/fs@a"), "tank/fs", all),
        ("gsend/large@s", None, "tank/large", all),
        ("gsend/vol@v", None, "tank/vol", plain),
    ] {
        let into = format!("{fs}@{}", sent.split_once('@').unwrap().1);
        let stream = send(&source, sent, from, flags);
        for part in [1, 4, 6, 7] {
            for ground in &grounds {
                ground.pool().abort_receive(fs).ok();
            }
            grounds[0].receive_with(&stream[..stream.len() * part / 8], &into, &kept()).unwrap_err();
            // The receiver of a partial stream may pass it on.
            for pair in grounds.windows(2) {
                let told = token(&pair[0], fs);
                hand_on(pair[0].pool(), &pair[1], fs, &into);
                let handed = token(&pair[1], fs);
                assert_eq!((handed.toguid, handed.fromguid), (told.toguid, told.fromguid));
                assert_eq!((handed.toname.as_str(), told.toname.as_str()), (sent, sent));
                // The position is not beyond the one before, or a part would be missing.
                assert!((handed.object, handed.offset) <= (told.object, told.offset), "{handed:?} {told:?}");
                pair[1].expect_sound();
            }
        }
        for ground in &grounds {
            let mut rest = Vec::new();
            Sender::new(&source).send_resumed(&token(ground, fs), &mut rest, &mut |_| {}).unwrap();
            ground.receive_with(&rest, &into, &kept()).unwrap();
            assert!(content(&source, sent) == content(ground.pool(), &into), "{into}");
            let nothing = Sender::new(ground.pool()).saved(fs).err();
            assert!(matches!(nothing, Some(Error::Receive(ReceiveError::NothingToResume(_)))));
            ground.expect_sound();
        }
    }
}

/// The last objects of a block of dnodes are there, too, as they were before.
#[test]
fn missing_parts_are_not_sent_on() {
    let (dir, source) = opened("gsend");
    let (first, second) = (Ground::new(), Ground::new());
    let (full, incr) = (golden(dir.path(), "full"), golden(dir.path(), "incr"));
    for ground in [&first, &second] {
        ground.receive(&full, "tank/fs@a").unwrap();
    }
    first.receive_with(&incr[..incr.len() / 2], "tank/fs@b", &kept()).unwrap_err();
    let told = token(&first, "tank/fs");
    let stream = hand_on(first.pool(), &second, "tank/fs", "tank/fs@b");
    let mut incoming = Incoming::open(&stream[..]).unwrap();
    let (begin, list) = incoming.next_stream().unwrap().unwrap();
    assert!(list.is_empty() && begin.flags & format::stream::flag::CLONE == 0, "{begin:?}");
    assert_eq!(begin.features & feature::RESUMING, 0);
    let mut last = 0;
    while let Ok((record, _)) = incoming.next_record() {
        last = match record {
            Record::Object(object) => object.object,
            Record::Write(write) => write.object,
            Record::Free(free) => free.object,
            Record::FreeObjects(free) => free.first + free.count - 1,
            other => panic!("{other:?}"),
        };
        assert!(last <= told.object, "{record:?} after {told:?}");
    }
    assert_eq!(last, told.object);
    let mut rest = Vec::new();
    Sender::new(&source).send_resumed(&token(&second, "tank/fs"), &mut rest, &mut |_| {}).unwrap();
    second.receive_with(&rest, "tank/fs@b", &kept()).unwrap();
    assert!(content(&source, "gsend/fs@b") == content(second.pool(), "tank/fs@b"));
    // zdb complains about files whose folder has not arrived.
    assert!(first.pool().abort_receive("tank/fs").unwrap());
}

#[test]
fn a_partial_receive_of_openzfs_is_sent_on() {
    let (_dir, source) = opened("gresume");
    let ground = Ground::new();
    let told = source.resume_token("gresume/dst").unwrap().unwrap();
    hand_on(&source, &ground, "gresume/dst", "tank/dst@s");
    let handed = token(&ground, "tank/dst");
    assert_eq!((handed.object, handed.offset), (told.object, told.offset));
    assert_eq!((handed.toguid, &handed.toname), (told.toguid, &told.toname));
    let mut rest = Vec::new();
    Sender::new(&source).send_resumed(&handed, &mut rest, &mut |_| {}).unwrap();
    ground.receive_with(&rest, "tank/dst@s", &kept()).unwrap();
    assert!(content(&source, "gresume/src@s") == content(ground.pool(), "tank/dst@s"));
    let refused = |name: &str| Sender::new(&source).saved(name).err().unwrap().to_string();
    assert!(refused("gresume/src").contains("no partially received state"));
    assert!(refused("gresume/src@s").contains("no partially received state"));
    assert!(refused("gresume/none").contains("gresume/none"));
    ground.expect_sound();
}

/// The same snapshot, received elsewhere in the pool, has its guid, but was born later than what arrived.
#[test]
fn a_partial_receive_sent_on_is_based_on_its_origin() {
    let (dir, source) = opened("gsend");
    let (first, second) = (Ground::new(), Ground::new());
    let full = golden(dir.path(), "full");
    let incr = send(&source, "gsend/fs@b", Some("gsend/fs@a"), SendFlags::default());
    let options = ReceiveOptions { origin: Some("tank/src@a".to_owned()), ..kept() };
    for ground in [&first, &second] {
        ground.receive(&full, "tank/src@a").unwrap();
    }
    first.receive_with(&incr[..incr.len() / 4], "tank/x@b", &options).unwrap_err();
    let early = token(&first, "tank/x");
    // It is listed before the one that was there first.
    first.receive(&send(first.pool(), "tank/src@a", None, SendFlags::default()), "tank/copy@a").unwrap();
    let mut rest = Vec::new();
    Sender::new(&source).send_resumed(&early, &mut rest, &mut |_| {}).unwrap();
    first.receive_with(&rest[..rest.len() / 2], "tank/x@b", &kept()).unwrap_err();
    assert!(token(&first, "tank/x").object > early.object, "more arrived");
    let mut stream = Vec::new();
    let saved = Sender::new(first.pool()).saved("tank/x").unwrap();
    assert_eq!(saved.from.as_ref().unwrap().name, "tank/src@a");
    Sender::new(first.pool()).send_saved(&saved, &mut stream, &mut |_| {}).unwrap();
    drop(saved);
    second.receive_with(&stream, "tank/x@b", &options).unwrap_err();
    for ground in [&first, &second] {
        let mut rest = Vec::new();
        Sender::new(&source).send_resumed(&token(ground, "tank/x"), &mut rest, &mut |_| {}).unwrap();
        ground.receive_with(&rest, "tank/x@b", &kept()).unwrap();
        assert!(content(&source, "gsend/fs@b") == content(ground.pool(), "tank/x@b"));
        ground.expect_sound();
    }
    let twin = Sender::new(first.pool()).send_source("tank/copy@a").unwrap();
    let refused = Sender::new(first.pool()).send(
        "tank/x@b",
        Some(&twin),
        SendFlags::default(),
        &mut Vec::new(),
        &mut |_| {},
    );
    assert!(matches!(refused, Err(Error::NotEarlier(_))), "{refused:?}");
}
