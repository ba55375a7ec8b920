//! Redaction: lists, streams that leave blocks out, and what is received from them, against OpenZFS.

mod ground;
#[path = "../../pool/tests/oracle/mod.rs"]
mod oracle;

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use ::stream::{Package, SendRequest, Sender};
use dmu::NewObject;
use format::features;
use format::redaction::Entry;
use format::stream::{Begin, Record, feature};
use ground::{Ground, import, records, sealed, unpack};
use pool::{Error, FeatureState, Hold, Options, Pool, ReceiveError, ReceiveOptions, SendFlags};
use storage::host::{Access, Disk};

type Records = Vec<(Record, Vec<u8>)>;

/// A stream of OpenZFS 2.1.11 from the pool `gredact`.
fn theirs(dir: &Path, name: &str) -> Vec<u8> {
    std::fs::read(dir.join(format!("gredact.{name}.zstream"))).unwrap()
}

/// Our stream of the same, with the bookmark of `--redact` and the source of `-i`.
fn ours(pool: &Pool, snapshot: &str, redact: Option<&str>, from: Option<&str>, flags: SendFlags) -> Vec<u8> {
    let sender = Sender::new(pool);
    let leaving = redact.map(|mark| sender.leaving(snapshot, mark).unwrap());
    let from = from.map(|name| sender.send_source(name).unwrap());
    let mut out = Vec::new();
    let request =
        SendRequest { leaving: leaving.as_ref(), ..SendRequest::new(snapshot, from.as_ref(), flags) };
    let size = sender.send_request(&request, &mut out, &mut |_| {}).unwrap();
    assert_eq!(size, out.len() as u64);
    if request.leaving.is_some() || from.as_ref().is_some_and(|from| from.name.contains('#')) {
        assert_eq!(sender.send_size(&request).unwrap(), size, "{snapshot}");
    }
    out
}

fn import_to_write(dir: &Path) -> Pool {
    let disk = pool::open_disk(&dir.join("gredact.0.img"), Access::ReadWrite { exclusive: true }).unwrap();
    Pool::import_disks(vec![Arc::new(disk) as Arc<dyn Disk>], Options::default()).unwrap()
}

/// Object and offset of a block or a hole.
fn place(record: &Record) -> Option<(u64, u64)> {
    match record {
        Record::Write(write) => Some((write.object, write.offset)),
        Record::Free(free) => Some((free.object, free.offset)),
        _ => None,
    }
}

const PLAIN: SendFlags = SendFlags { large_blocks: false, embedded: false, compressed: false, raw: false };
const SMALL: SendFlags = SendFlags { large_blocks: true, embedded: true, compressed: true, raw: false };
const BOOK: Option<&str> = Some("gredact/fs#book");
const BOOK1: Option<&str> = Some("gredact/fs#book1");
const BOOKD: Option<&str> = Some("gredact/fs#bookd");

#[test]
fn redacted_streams_are_those_of_openzfs() {
    let dir = unpack("gredact");
    let pool = import(dir.path(), "gredact");
    let same = |name: &str, sent: Vec<u8>| assert!(sent == theirs(dir.path(), name), "{name}");
    same("full", ours(&pool, "gredact/fs@a", BOOK, None, PLAIN));
    same("compressed", ours(&pool, "gredact/fs@a", BOOK, None, SMALL));
    same("increment", ours(&pool, "gredact/fs@b", BOOKD, Some("gredact/fs@a"), PLAIN));
    same("less", ours(&pool, "gredact/fs@a", BOOK, BOOK1, PLAIN));
    same("clone", ours(&pool, "gredact/c1@s", None, BOOK, PLAIN));
    same("volume", ours(&pool, "gredact/vol@a", Some("gredact/vol#vbook"), None, PLAIN));
}

/// OpenZFS (2.1.11, 2.3.2) forgets the last block of a file when a stream has to bring it only because the source lacks
/// it. Its receiver then has a hole there, in a file system that counts as complete.
#[test]
fn a_completing_stream_also_brings_the_last_blocks_of_files() {
    let dir = unpack("gredact");
    let pool = import(dir.path(), "gredact");
    let last = |pool: &Pool, record: &Record| {
        let Some((object, offset)) = place(record) else { return false };
        let object = pool.open("gredact/fs@b").unwrap().objset().object(format::ObjectId(object)).unwrap();
        offset == object.max_blkid() * object.block_size()
    };
    let cases = [
        ("completing", ours(&pool, "gredact/fs@b", None, BOOK, PLAIN), 6),
        ("onward", ours(&pool, "gredact/fs@b", BOOKD, BOOK, PLAIN), 6),
        ("inplace", ours(&pool, "gredact/fs@a", None, BOOK, PLAIN), 7),
    ];
    for (name, sent, more) in cases {
        let (sent, theirs) = (records(&sent), records(&theirs(dir.path(), name)));
        let (here, mut there) = (sent.iter().peekable(), theirs.iter().peekable());
        let mut added = 0;
        for (record, payload) in here {
            if there.peek().is_some_and(|next| **next == (record.clone(), payload.clone())) {
                there.next();
            } else if matches!(record, Record::End(_)) {
                assert!(matches!(there.next(), Some((Record::End(_), _))), "{name}");
            } else {
                assert!(last(&pool, record), "{name}: {record:?}");
                added += 1;
            }
        }
        assert!(there.next().is_none() && added == more, "{name}: {added}");
    }
}

#[test]
fn a_package_starts_from_a_redaction_bookmark_too() {
    let dir = unpack("gredact");
    let pool = import(dir.path(), "gredact");
    let sender = Sender::new(&pool);
    let mark = Some(sender.send_source("gredact/fs#book").unwrap());
    let package = Package { mark, ..Package::default() };
    let mut sent = Vec::new();
    sender.send_package("gredact/fs@b", &package, PLAIN, &mut sent, &mut |_| {}).unwrap();
    let (streams, _end) = sent.split_at(sent.len() - format::stream::RECORD);
    assert!(streams.ends_with(&ours(&pool, "gredact/fs@b", None, BOOK, PLAIN)));
}

/// OpenZFS names the redaction snapshots in such a stream, but leaves out the bit by which its receiver knows. The
/// received file system would count as complete.
#[test]
fn a_stream_of_a_redacted_file_system_says_that_it_is_redacted() {
    let dir = unpack("gredact");
    let pool = import(dir.path(), "gredact");
    let (sent, theirs) = (ours(&pool, "gredact/red@a", None, None, PLAIN), theirs(dir.path(), "of-redacted"));
    let (sent, mut theirs): (Records, Records) = (records(&sent), records(&theirs));
    let Record::Begin(begin) = &mut theirs[0].0 else { panic!("{:?}", theirs[0].0) };
    assert_eq!(begin.features & feature::REDACTED, 0);
    begin.features |= feature::REDACTED;
    assert_eq!(sealed(&sent), sealed(&theirs));
}

fn guids(pool: &Pool, name: &str) -> Option<Vec<u64>> {
    pool.redaction_of(&pool.dataset(name).unwrap()).unwrap()
}

fn guid(pool: &Pool, name: &str) -> u64 {
    pool.dataset(name).unwrap().phys.guid.0
}

fn list(pool: &Pool, name: &str) -> Vec<Entry> {
    let (list, header) = pool.redaction_list(&pool.dataset(name).unwrap()).unwrap().unwrap();
    assert_eq!(header.progress, None, "{name}");
    pool.redaction_entries(name, list).unwrap().map(|entry| entry.unwrap()).collect()
}

/// Without the file `gone`, which both clones removed before a new file of one block got its number. OpenZFS lists its
/// first block only; the list of cenote has all.
fn without_removed(mut list: Vec<Entry>) -> Vec<Entry> {
    const GONE: u64 = 4;
    let (all, first) = (Entry { object: GONE, blkid: 0, block_size: 4096, count: 10 }, 1);
    list.retain(|entry| {
        let is_known = [all.count, first].contains(&entry.count);
        entry.object != GONE || *entry != Entry { count: entry.count, ..all } || !is_known
    });
    list
}

#[test]
fn redact_lists_what_openzfs_lists_and_a_destroyed_bookmark_leaves_nothing() {
    let dir = unpack("gredact");
    let pool = import_to_write(dir.path());
    assert!(pool.read_only().is_none());
    let redact = |snapshot: &str, mark: &str, by: &[&str]| {
        let by: Vec<String> = by.iter().map(|name| (*name).to_owned()).collect();
        Sender::new(&pool).redact(snapshot, mark, &by)
    };
    for (snapshot, mark, theirs, by) in [
        ("gredact/fs@a", "mine", "gredact/fs#book", &["gredact/c1@s", "gredact/c2@s"][..]),
        ("gredact/fs@a", "mine1", "gredact/fs#book1", &["gredact/c1@s"]),
        ("gredact/fs@b", "mined", "gredact/fs#bookd", &["gredact/d1@s"]),
        ("gredact/vol@a", "minev", "gredact/vol#vbook", &["gredact/volc@s"]),
    ] {
        redact(snapshot, mark, by).unwrap();
        let mine = format!("{}#{mark}", snapshot.split('@').next().unwrap());
        assert_eq!(without_removed(list(&pool, &mine)), without_removed(list(&pool, theirs)), "{mine}");
        assert_eq!(guids(&pool, &mine), guids(&pool, theirs), "{mine}");
        assert!(matches!(redact(snapshot, mark, by), Err(Error::Exists(_))), "{mine}");
    }
    let gone = |name: &str| {
        list(&pool, name).iter().filter(|entry| entry.object == 4).map(|entry| entry.count).sum()
    };
    assert_eq!((gone("gredact/fs#mine"), gone("gredact/fs#book")), (10u64, 1u64));
    redact("gredact/fs@a", "later", &["gredact/fs@b"]).unwrap();
    let refused = |snapshot: &str, mark: &str, by: &[&str]| redact(snapshot, mark, by).unwrap_err();
    assert!(matches!(refused("gredact/fs@a", "mine", &["gredact/c1@s"]), Error::OtherRedaction));
    assert!(matches!(refused("gredact/fs@b", "mine", &["gredact/d1@s"]), Error::OtherRedaction));
    assert!(matches!(refused("gredact/fs@a", "plain", &["gredact/c1@s"]), Error::Exists(_)));
    for (snapshot, by) in [
        ("gredact/fs@a", &["gredact/fs@a"][..]),
        ("gredact/fs@b", &["gredact/c1@s"]),
        ("gredact/fs@a", &["gredact/c1"]),
        ("gredact/fs", &["gredact/c1@s"]),
        ("gredact/fs@a", &[]),
    ] {
        assert!(matches!(refused(snapshot, "new", by), Error::NotDescendant), "{snapshot} {by:?}");
    }
    assert!(matches!(refused("gredact/red@a", "new", &["gredact/red@later"]), Error::RedactedAgain));
    assert!(matches!(refused("gredact/fs@a", "new", &["gredact/nosuch@s"]), Error::NoDataset(_)));
    // The bookmark of a redacted snapshot names its redaction snapshots.
    pool.bookmark("gredact/red@a", "gredact/red#again").unwrap();
    assert_eq!(guids(&pool, "gredact/red#again"), guids(&pool, "gredact/red#m"));
    assert_eq!(list(&pool, "gredact/red#again"), []);
    // A copy is an ordinary bookmark.
    pool.bookmark("gredact/fs#mine", "gredact/fs#copy").unwrap();
    assert_eq!(guids(&pool, "gredact/fs#copy"), None);
    pool.export().unwrap();
    oracle::expect_pleased("gredact", &dir.path().join("gredact.0.img"));
    expect_nothing_left(dir.path());
}

/// A stream; with its first bytes, something else happens.
struct Meanwhile<'a> {
    out: Vec<u8>,
    act: Option<&'a dyn Fn()>,
}

impl Write for Meanwhile<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if let Some(act) = self.act.take() {
            act();
        }
        self.out.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn snapshots_and_bookmarks_of_a_stream_cannot_be_destroyed_while_it_is_sent() {
    let dir = unpack("gredact");
    let pool = import_to_write(dir.path());
    let (book, own) = ("gredact/fs#book".to_owned(), "gredact/fs@own".to_owned());
    {
        // More than what is collected before the first bytes are written.
        let dataset = pool.open("gredact/fs").unwrap();
        let tx = dataset.begin(Hold::write(8 << 20)).unwrap();
        let new = NewObject::plain(format::ObjectType::PLAIN_FILE_CONTENTS).block_size(128 << 10);
        let object = dataset.objset().create_object(&tx, new).unwrap();
        object.write(&tx, 0, &(0..1_000_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>()).unwrap();
    }
    pool.snapshot(std::slice::from_ref(&own), &[]).unwrap();
    let whole = ours(&pool, &own, None, Some(&book), PLAIN);
    let sender = Sender::new(&pool);
    let from = sender.send_source(&book).unwrap();
    let request = SendRequest::new(&own, Some(&from), PLAIN);
    let act = || {
        let destroyed = pool.destroy_bookmarks(std::slice::from_ref(&book));
        assert!(matches!(destroyed, Err(Error::DatasetBusy(_))), "{destroyed:?}");
        let destroyed = pool.destroy_snapshots(std::slice::from_ref(&own), false);
        assert!(matches!(destroyed, Err(Error::DatasetBusy(_))), "{destroyed:?}");
    };
    let mut out = Meanwhile { out: Vec::new(), act: Some(&act) };
    sender.send_request(&request, &mut out, &mut |_| {}).unwrap();
    assert!(out.act.is_none() && out.out == whole);
    // A list that `--redact` follows is in use as well.
    let mark = pool.dataset(&book).unwrap();
    let (list, _) = pool.redaction_list(&mark).unwrap().unwrap();
    let entries = pool.redaction_entries(&book, list).unwrap();
    assert!(matches!(pool.destroy_bookmarks(std::slice::from_ref(&book)), Err(Error::DatasetBusy(_))));
    drop(entries);
    let leaving = sender.leaving("gredact/fs@a", &book).unwrap();
    pool.destroy_bookmarks(std::slice::from_ref(&book)).unwrap();
    // The number of the list may belong to another object now.
    let asked_before =
        SendRequest { leaving: Some(&leaving), ..SendRequest::new("gredact/fs@a", None, PLAIN) };
    for request in [request, asked_before] {
        let mut out = Vec::new();
        assert!(sender.send_request(&request, &mut out, &mut |_| {}).is_err() && out.is_empty());
    }
}

/// Destroys all bookmarks and redacted datasets.
fn expect_nothing_left(dir: &Path) {
    let pool = import_to_write(dir);
    let names =
        |fs: &str| -> Vec<String> { pool.bookmarks(fs).unwrap().into_iter().map(|mark| mark.name).collect() };
    pool.destroy_bookmarks(&names("gredact/fs")).unwrap();
    pool.destroy_bookmarks(&names("gredact/vol")).unwrap();
    // The last two go with their file system.
    assert_eq!(pool.info().feature(&features::REDACTION_BOOKMARKS), FeatureState::Active);
    for (name, snapshots) in [
        ("gredact/onward", &["b"][..]),
        ("gredact/complete", &["b"]),
        ("gredact/red", &["a", "later"]),
        ("gredact/vred", &["a"]),
    ] {
        let snapshots: Vec<String> = snapshots.iter().map(|leaf| format!("{name}@{leaf}")).collect();
        pool.destroy_snapshots(&snapshots, false).unwrap();
        pool.destroy_dataset(name).unwrap();
    }
    pool.sync().unwrap();
    for feature in [&features::REDACTION_BOOKMARKS, &features::REDACTED_DATASETS] {
        assert_eq!(pool.info().feature(feature), FeatureState::Enabled, "{}", feature.name);
    }
    pool.export().unwrap();
    oracle::expect_pleased("gredact", &dir.join("gredact.0.img"));
}

/// The contents of the data objects of a dataset.
fn contents(pool: &Pool, name: &str) -> BTreeMap<u64, Vec<u8>> {
    let objset = pool.open(name).unwrap().objset().clone();
    let mut found = BTreeMap::new();
    for id in objset.numbers_between(1, 1 << 20).unwrap() {
        let object = objset.object(id).unwrap();
        if !object.object_type().is_metadata() {
            let mut bytes = vec![0; ((object.max_blkid() + 1) * object.block_size()) as usize];
            object.read(0, &mut bytes).unwrap();
            found.insert(id.0, bytes);
        }
    }
    found
}

fn is_complete(pool: &Pool, name: &str) -> bool {
    match pool.open(name).unwrap().check_complete() {
        Ok(()) => true,
        Err(Error::Redacted(redacted)) => {
            assert_eq!(redacted, name);
            false
        }
        Err(other) => panic!("{other}"),
    }
}

fn onto(origin: &str) -> ReceiveOptions {
    ReceiveOptions { origin: Some(origin.to_owned()), ..ReceiveOptions::default() }
}

#[test]
fn a_redacted_file_system_is_completed_by_the_streams_that_bring_all_it_lacks_and_by_no_other() {
    let dir = unpack("gredact");
    let source = import(dir.path(), "gredact");
    let ground = Ground::new();
    let pool = ground.pool();
    let stream = |name: &str| theirs(dir.path(), name);
    ground.receive(&stream("full"), "tank/red@a").unwrap();
    let (c1, c2) = (guid(&source, "gredact/c1@s"), guid(&source, "gredact/c2@s"));
    assert_eq!(guids(pool, "tank/red"), Some(vec![c1, c2]));
    assert_eq!(guids(pool, "tank/red@a"), Some(vec![c1, c2]));
    assert!(!is_complete(pool, "tank/red") && !is_complete(pool, "tank/red@a"));
    assert_eq!(contents(pool, "tank/red@a"), contents(&source, "gredact/red@a"));
    // A snapshot and a clone lack the same.
    pool.snapshot(&["tank/red@more".to_owned()], &[]).unwrap();
    pool.clone_snapshot("tank/red@a", "tank/copy", Vec::new()).unwrap();
    assert_eq!(guids(pool, "tank/red@more"), Some(vec![c1, c2]));
    assert_eq!(guids(pool, "tank/copy"), Some(vec![c1, c2]));
    pool.destroy_snapshots(&["tank/red@more".to_owned()], false).unwrap();
    // A stream that does not bring it all is refused.
    let plain = ours(&source, "gredact/fs@b", None, Some("gredact/fs@a"), PLAIN);
    let other = ours(&source, "gredact/fs@b", None, BOOK1, PLAIN);
    ground.receive(&theirs_of_one(&source), "tank/one@a").unwrap();
    for (stream, into) in
        [(&plain, "tank/red@b"), (&stream("completing"), "tank/one@b"), (&stream("increment"), "tank/red@b")]
    {
        let refused = ground.receive(stream, into).unwrap_err();
        assert!(matches!(refused, Error::Receive(ReceiveError::OtherRedaction)), "{into}: {refused}");
    }
    ground.receive(&other, "tank/red@b").unwrap_or_else(|error| panic!("one of its two snapshots: {error}"));
    assert_eq!(contents(pool, "tank/red@b"), contents(&source, "gredact/fs@b"));
    assert!(
        is_complete(pool, "tank/red") && is_complete(pool, "tank/red@b") && !is_complete(pool, "tank/red@a")
    );
    // Back to the redacted snapshot, and on by other ways.
    pool.destroy_snapshots(&["tank/red@b".to_owned()], false).unwrap();
    pool.rollback("tank/red@a").unwrap();
    assert!(!is_complete(pool, "tank/red"));
    let ours_completing = ours(&source, "gredact/fs@b", None, BOOK, PLAIN);
    for (name, stream, snapshot) in [
        ("complete", &ours_completing, "gredact/fs@b"),
        ("clone", &stream("clone"), "gredact/c1@s"),
        // A redaction snapshot changed all that is missing.
        ("plainclone", &ours(&source, "gredact/c2@s", None, Some("gredact/fs@a"), PLAIN), "gredact/c2@s"),
    ] {
        ground.receive_with(stream, &format!("tank/{name}@s"), &onto("tank/red@a")).unwrap();
        assert!(is_complete(pool, &format!("tank/{name}")), "{name}");
        assert_eq!(contents(pool, &format!("tank/{name}@s")), contents(&source, snapshot), "{name}");
    }
    let onward = ours(&source, "gredact/fs@b", BOOKD, BOOK, PLAIN);
    ground.receive(&onward, "tank/red@b").unwrap();
    assert_eq!(guids(pool, "tank/red"), Some(vec![guid(&source, "gredact/d1@s")]));
    // Of a redacted file system there are redacted copies only.
    ground.receive(&ours(pool, "tank/red@a", None, None, PLAIN), "tank/again@a").unwrap();
    ground.receive(&stream("of-redacted"), "tank/theirs@a").unwrap();
    for name in ["tank/again@a", "tank/theirs@a"] {
        assert_eq!(guids(pool, name), Some(vec![c1, c2]), "{name}");
    }
    ground.receive(&stream("volume"), "tank/volume@a").unwrap();
    assert!(!is_complete(pool, "tank/volume"));
    ground.expect_sound();
}

/// A stream that is redacted by the first clone alone.
fn theirs_of_one(source: &Pool) -> Vec<u8> {
    ours(source, "gredact/fs@a", BOOK1, None, PLAIN)
}

#[test]
fn redacted_streams_that_were_cut_off_are_resumed() {
    let dir = unpack("gredact");
    let source = import(dir.path(), "gredact");
    let options = ReceiveOptions { resumable: true, ..ReceiveOptions::default() };
    let whole = theirs(dir.path(), "full");
    let completing = ours(&source, "gredact/fs@b", None, BOOK, PLAIN);
    for part in [3, 5, 8] {
        let mut ground = Ground::new();
        for (stream, into) in [(&whole, "tank/red@a"), (&completing, "tank/red@b")] {
            let cut = &stream[..stream.len() * part / 9];
            assert!(matches!(
                ground.receive_with(cut, into, &options),
                Err(Error::Receive(ReceiveError::Truncated))
            ));
            ground.crash();
            let token = ground.pool().resume_token("tank/red").unwrap().unwrap();
            let token = pool::ResumeToken::parse(&token.to_string()).unwrap();
            assert_eq!(token.redacted_by.is_some(), into == "tank/red@a");
            assert_eq!(token.completes.is_some(), into == "tank/red@b");
            let mut rest = Vec::new();
            Sender::new(&source).send_resumed(&token, &mut rest, &mut |_| {}).unwrap();
            // The receive does not go on with the list of another bookmark.
            let mut wrong = records(&rest);
            let mut list = format::NvList::decode(&wrong[0].1).unwrap();
            for key in ["redact_snaps", "redact_from_snaps"] {
                if list.contains(key) {
                    list.insert(key, format::NvValue::Uint64Array(vec![1]));
                }
            }
            wrong[0].1 = list.to_native();
            let len = wrong[0].1.len() as u32;
            let Record::Begin(Begin { payload_len, .. }) = &mut wrong[0].0 else { panic!() };
            *payload_len = len;
            let refused = ground.receive_with(&sealed(&wrong), into, &options).unwrap_err();
            assert!(matches!(refused, Error::Receive(ReceiveError::OtherResume(_))), "{refused}");
            ground.receive_with(&rest, into, &options).unwrap();
        }
        assert_eq!(contents(ground.pool(), "tank/red@a"), contents(&source, "gredact/red@a"));
        assert_eq!(contents(ground.pool(), "tank/red@b"), contents(&source, "gredact/fs@b"));
        ground.expect_sound();
    }
}

#[test]
fn a_hostile_redacted_stream_is_refused() {
    let dir = unpack("gredact");
    let ground = Ground::new();
    let good = records(&theirs(dir.path(), "full"));
    let with = |change: &dyn Fn(&mut Begin, &mut Vec<u8>)| {
        let mut bad = good.clone();
        let (Record::Begin(begin), payload) = &mut bad[0] else { panic!() };
        change(begin, payload);
        begin.payload_len = payload.len() as u32;
        ground.receive(&sealed(&bad), "tank/bad@a").unwrap_err()
    };
    let nothing = with(&|_, payload| *payload = format::NvList::new().to_native());
    assert!(matches!(nothing, Error::Receive(ReceiveError::Corrupt(_))), "{nothing}");
    let raw = with(&|begin, _| begin.features |= feature::RAW);
    assert!(matches!(raw, Error::Receive(ReceiveError::Unsupported(_))), "{raw}");
    // A range that no object has, and one without an end.
    for (object, offset, length) in [(9999, 0, 4096), (2, u64::MAX - 5, 4096), (2, 1, u64::MAX)] {
        let mut bad = good.clone();
        let at = bad.iter().position(|(record, _)| matches!(record, Record::Redact(_))).unwrap();
        let Record::Redact(free) = &mut bad[at].0 else { panic!() };
        (free.object, free.offset, free.length) = (object, offset, length);
        let _ = ground.receive(&sealed(&bad), "tank/odd@a");
        let _ = ground.pool().destroy_snapshots(&["tank/odd@a".to_owned()], false);
        let _ = ground.pool().destroy_dataset("tank/odd");
    }
    assert_eq!(ground.pool().info().feature(&features::REDACTED_DATASETS), FeatureState::Enabled);
    ground.expect_sound();
}

#[test]
fn an_interrupted_redaction_list_is_continued() {
    let dir = unpack("gredact");
    let pool = import_to_write(dir.path());
    let by = ["gredact/c1@s".to_owned(), "gredact/c2@s".to_owned()];
    let sender = Sender::new(&pool);
    sender.redact("gredact/fs@a", "whole", &by).unwrap();
    let whole = list(&pool, "gredact/fs#whole");
    for done in [0, 1, 5, whole.len()] {
        let name = format!("gredact/fs#part{done}");
        pool.redaction_bookmark("gredact/fs@a", &name, guids(&pool, "gredact/fs#whole").unwrap()).unwrap();
        let (id, _) = pool.redaction_list(&pool.dataset(&name).unwrap()).unwrap().unwrap();
        if let Some(last) = whole[..done].last() {
            let progress = Some((last.object, last.last()));
            pool.extend_redaction(&name, (id, 0), whole[..done].to_vec(), progress).unwrap();
            // Two that fill one list do not both append.
            let twice = pool.extend_redaction(&name, (id, 0), whole[..done].to_vec(), progress);
            assert!(matches!(twice, Err(Error::DatasetBusy(_))), "{twice:?}");
        }
        let unfinished = sender.leaving("gredact/fs@a", &name);
        assert!(matches!(unfinished, Err(Error::RedactionUnfinished)), "{unfinished:?}");
        let mark = name.split_once('#').unwrap().1;
        assert!(matches!(sender.redact("gredact/fs@a", mark, &by[..1]), Err(Error::OtherRedaction)));
        sender.redact("gredact/fs@a", mark, &by).unwrap();
        assert_eq!(list(&pool, &name), whole, "{done}");
    }
}

#[test]
fn a_list_has_room_for_36_snapshots() {
    let dir = unpack("gredact");
    let pool = import_to_write(dir.path());
    let names: Vec<String> = (0..37).map(|n| format!("gredact/fs@more{n}")).collect();
    names.iter().for_each(|name| pool.snapshot(std::slice::from_ref(name), &[]).unwrap());
    let sender = Sender::new(&pool);
    sender.redact("gredact/fs@a", "most", &names[..36]).unwrap();
    let wanted: Vec<u64> = names[..36].iter().map(|name| guid(&pool, name)).collect();
    assert_eq!(guids(&pool, "gredact/fs#most"), Some(wanted));
    let refused = sender.redact("gredact/fs@a", "more", &names);
    assert!(matches!(refused, Err(Error::TooManyRedactions)), "{refused:?}");
    assert!(matches!(pool.dataset("gredact/fs#more"), Err(Error::NoDataset(_))));
}
