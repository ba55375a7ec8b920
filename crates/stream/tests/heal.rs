//! Damaged blocks of a snapshot, written anew from a stream of it.

mod ground;
#[path = "../../pool/tests/oracle/mod.rs"]
mod oracle;

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use dmu::{NewObject, zap};
use format::blkptr::Block;
use format::label::DATA_START;
use format::stream::{Begin, Record};
use format::{ObjectId, ObjectType};
use ground::{Ground, golden, unpack};
use pool::props::Value;
use pool::{Error, Hold, NewFilesystem, Options, ReceiveError, SendFlags};
use scan::Scans as _;
use storage::host::{Entropy, SeededEntropy};
use stream::{Healing, Incoming, Receiver, Sender};

const RECORD: usize = 16 << 10;
const COMPRESSED: SendFlags = SendFlags { large_blocks: true, embedded: false, compressed: true, raw: false };
const PLAIN: SendFlags = SendFlags { large_blocks: true, embedded: false, compressed: false, raw: false };

/// Bytes of which a half compresses.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut data = vec![0; len];
    SeededEntropy::new(seed).fill(&mut data);
    data.chunks_mut(16).for_each(|part| part[8..].fill(seed as u8));
    data
}

fn create(ground: &Ground, name: &str, properties: &[(&str, u64)]) {
    let local = properties.iter().map(|(name, value)| ((*name).to_owned(), Value::Number(*value))).collect();
    // As much of a file system as zdb looks at.
    let master: pool::Initialise = Arc::new(|objset, tx, new| {
        let master = NewObject::plain(ObjectType::MASTER_NODE);
        let master = objset.create_object_at(tx, ObjectId(1), master);
        zap::create(&master, tx, new.host.entropy.u64(), 0)?;
        zap::insert(&master, tx, b"VERSION", &format::zap::Value::from_u64(5))
    });
    let new = NewFilesystem::plain(&Options::default().host);
    ground.pool().create_filesystem(name, local, new, master).unwrap();
}

/// A new object in blocks of `size`.
fn put(ground: &Ground, fs: &str, size: usize, data: &[u8]) -> ObjectId {
    let dataset = ground.pool().open(fs).unwrap();
    let tx = dataset.begin(Hold::write(data.len() as u64)).unwrap();
    let new = NewObject::plain(ObjectType::PLAIN_FILE_CONTENTS).block_size(size as u32);
    let object = dataset.objset().create_object(&tx, new).unwrap();
    object.write(&tx, 0, data).unwrap();
    object.id()
}

fn snapshot(ground: &Ground, name: &str) {
    ground.pool().sync().unwrap();
    ground.pool().snapshot(&[name.to_owned()], &[]).unwrap();
}

fn send(ground: &Ground, snapshot: &str, from: Option<&str>, flags: SendFlags) -> Vec<u8> {
    let mut out = Vec::new();
    let from = from.map(|from| Sender::new(ground.pool()).send_source(from).unwrap());
    Sender::new(ground.pool()).send(snapshot, from.as_ref(), flags, &mut out, &mut |_| {}).unwrap();
    out
}

fn block(ground: &Ground, snapshot: &str, id: ObjectId, blkid: u64) -> Block {
    let dataset = ground.pool().open(snapshot).unwrap();
    *dataset.objset().object(id).unwrap().synced_ptr(blkid).unwrap().block().unwrap()
}

fn places(block: &Block) -> Vec<u64> {
    block.copies().map(|dva| dva.offset + DATA_START).collect()
}

fn on_disk(ground: &Ground, at: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    let disk = std::fs::File::open(ground.folder.path().join("disk")).unwrap();
    disk.read_exact_at(&mut bytes, at).unwrap();
    bytes
}

fn spoil(ground: &Ground, at: u64) {
    let disk = std::fs::File::options().write(true).open(ground.folder.path().join("disk")).unwrap();
    disk.write_all_at(&[0x5a; 512], at).unwrap();
    ground.pool().storage().cache().clear();
}

fn heal(ground: &Ground, stream: &[u8], into: &str) -> Result<Healing, Error> {
    let mut incoming = Incoming::open(stream)?;
    let (begin, _) = incoming.next_stream()?.unwrap();
    let mut healing = Healing::default();
    Receiver::new(ground.pool()).heal(&mut incoming, &begin, into, false, &mut healing)?;
    Ok(healing)
}

fn lost(ground: &Ground) -> usize {
    ground.pool().scrub().unwrap();
    ground.pool().wait_scrub().unwrap();
    ground.pool().data_errors().unwrap().len()
}

/// Whether the first levels of zstd find it worth while depends on the space that they are tried in.
#[test]
fn a_block_that_only_just_compresses_is_healed() {
    let ground = Ground::new();
    let size = 128 << 10;
    let (mut words, mut data) = (vec![0; 2048 * 8], Vec::new());
    let dice = SeededEntropy::new(3);
    dice.fill(&mut words);
    while data.len() < 4 * size {
        let mut random = vec![0; 42];
        dice.fill(&mut random);
        let word = usize::from(u16::from_le_bytes([random[0], random[1]])) % 2048;
        data.extend(words[word * 8..][..8].iter().chain(&random[2..]).map(|byte| byte % 112));
    }
    create(&ground, "tank/fs", &[("compression", 16 | 9 << 7), ("recordsize", size as u64)]);
    let id = put(&ground, "tank/fs", size, &data);
    snapshot(&ground, "tank/fs@a");
    let stream = send(&ground, "tank/fs@a", None, PLAIN);
    let blocks = [0, 3].map(|blkid| block(&ground, "tank/fs@a", id, blkid));
    for block in &blocks {
        assert_eq!(block.compression, format::Compression::Zstd, "{block:?}");
        spoil(&ground, places(block)[0]);
    }
    let healing = heal(&ground, &stream, "tank/fs@a").unwrap();
    assert_eq!((healing.healed, healing.lost), (2, 0), "{healing:?}");
    assert_eq!(lost(&ground), 0);
}

#[test]
fn damaged_blocks_are_healed_from_a_stream_for_each_compression() {
    let ground = Ground::new();
    // Off, lzjb, gzip-6, gzip-1, zle, lz4, zstd, zstd-7.
    for compression in [2, 3, 10, 5, 14, 15, 16, 16 | 7 << 7] {
        let fs = format!("tank/c{compression}");
        create(&ground, &fs, &[("compression", compression)]);
        let data = bytes(compression, 40 * RECORD);
        let id = put(&ground, &fs, RECORD, &data);
        let first = format!("{fs}@a");
        snapshot(&ground, &first);
        let streams = [COMPRESSED, PLAIN].map(|flags| send(&ground, &first, None, flags));
        // The present properties of the head have no part in it.
        let other = [("compression".to_owned(), Some(Value::Number(2)))];
        ground.pool().set_properties(&fs, other.to_vec()).unwrap();
        for stream in &streams {
            let blocks = [0, 17, 39].map(|blkid| block(&ground, &first, id, blkid));
            let before = blocks.map(|block| on_disk(&ground, places(&block)[0], block.psize));
            blocks.iter().for_each(|block| spoil(&ground, places(block)[0]));
            assert_eq!(lost(&ground), 3, "{fs}");
            let healing = heal(&ground, stream, &first).unwrap();
            let bytes = blocks.iter().map(|block| block.psize).sum();
            assert_eq!(healing, Healing { healed: 3, bytes, ..Healing::default() }, "{fs}");
            assert_eq!(blocks.map(|block| on_disk(&ground, places(&block)[0], block.psize)), before, "{fs}");
            assert!(ground.pool().data_errors().unwrap().is_empty(), "{fs}: they are forgotten");
            assert_eq!(lost(&ground), 0, "{fs}");
            assert_eq!(
                heal(&ground, stream, &first).unwrap(),
                Healing::default(),
                "{fs}: once more is no harm"
            );
        }
        let dataset = ground.pool().open(&first).unwrap();
        let mut read = vec![0; data.len()];
        dataset.objset().object(id).unwrap().read(0, &mut read).unwrap();
        assert!(read == data, "{fs}");
    }
    ground.expect_sound();
}

#[test]
fn an_incremental_stream_heals_what_it_brings() {
    let ground = Ground::new();
    create(&ground, "tank/fs", &[("compression", 15), ("copies", 2)]);
    let old = put(&ground, "tank/fs", RECORD, &bytes(1, 8 * RECORD));
    snapshot(&ground, "tank/fs@a");
    let new = put(&ground, "tank/fs", RECORD, &bytes(2, 8 * RECORD));
    snapshot(&ground, "tank/fs@b");
    let full = send(&ground, "tank/fs@b", None, COMPRESSED);
    let incr = send(&ground, "tank/fs@b", Some("tank/fs@a"), COMPRESSED);
    let (older, newer) = (block(&ground, "tank/fs@b", old, 3), block(&ground, "tank/fs@b", new, 3));
    for block in [&older, &newer] {
        assert_eq!(places(block).len(), 2);
        places(block).iter().for_each(|at| spoil(&ground, *at));
    }
    // This block has an intact copy, and a scrub repairs the other one.
    let half = block(&ground, "tank/fs@b", new, 5);
    spoil(&ground, places(&half)[0]);
    let told = heal(&ground, &incr, "tank/fs@b").unwrap();
    assert_eq!((told.healed, told.bytes, told.lost), (1, 2 * newer.psize, 0));
    assert_eq!(ground.pool().storage().verify_copies(&newer).bad.len(), 0);
    assert_eq!(ground.pool().storage().verify_copies(&half).bad.len(), 1);
    assert!(ground.pool().storage().verify_copies(&older).lost);
    // The same block of the snapshot before: it is healed for all that hold it.
    assert_eq!(heal(&ground, &full, "tank/fs@b").unwrap().healed, 1);
    assert!(!ground.pool().storage().verify_copies(&block(&ground, "tank/fs@a", old, 3)).lost);
    assert_eq!(lost(&ground), 0);
    ground.expect_sound();
}

/// The records with their checksums made anew.
fn forged(stream: &[u8], change: impl Fn(&mut Begin, &mut Record, &mut Vec<u8>)) -> Vec<u8> {
    let mut incoming = Incoming::open(stream).unwrap();
    let (mut begin, _) = incoming.next_stream().unwrap().unwrap();
    let mut sum = codec::RunningFletcher4::new(format::ByteOrder::Little);
    let mut out = Vec::new();
    change(&mut begin, &mut Record::End(format::stream::End::default()), &mut Vec::new());
    let raw = Record::Begin(begin.clone()).encode();
    sum.add(&raw);
    out.extend_from_slice(&raw);
    loop {
        let (mut record, mut payload) = incoming.next_record().unwrap();
        change(&mut begin.clone(), &mut record, &mut payload);
        let is_end = matches!(record, Record::End(_));
        if let Record::End(end) = &mut record {
            end.checksum = sum.sum();
        }
        let mut raw = record.encode();
        sum.seal(&mut raw, &payload);
        out.extend_from_slice(&raw);
        out.extend_from_slice(&payload);
        if is_end {
            return out;
        }
    }
}

#[test]
fn other_bytes_are_never_written() {
    let ground = Ground::new();
    create(&ground, "tank/fs", &[("compression", 15)]);
    let id = put(&ground, "tank/fs", RECORD, &bytes(1, 8 * RECORD));
    snapshot(&ground, "tank/fs@a");
    snapshot(&ground, "tank/fs@b");
    let good = send(&ground, "tank/fs@a", None, PLAIN);
    let damaged = block(&ground, "tank/fs@a", id, 3);
    spoil(&ground, places(&damaged)[0]);
    let spoilt = on_disk(&ground, places(&damaged)[0], damaged.psize);
    let wrong = forged(&good, |_, record, payload| {
        if matches!(record, Record::Write(_)) {
            payload[100] ^= 1;
        }
    });
    let told = heal(&ground, &wrong, "tank/fs@a").unwrap();
    assert_eq!((told.healed, told.lost), (0, 1));
    let place = format!("object {}, offset {}: ", id.0, 3 * RECORD);
    assert!(told.first_lost.as_ref().unwrap().starts_with(&place), "{told:?}");
    // A block that can be read is not changed, even if the stream has other contents.
    let sound = block(&ground, "tank/fs@a", id, 4);
    assert!(!ground.pool().storage().verify_copies(&sound).lost);
    let said = |done: Result<Healing, Error>| done.unwrap_err().to_string();
    assert!(said(heal(&ground, &good, "tank/fs@b")).contains("another snapshot than 'tank/fs@b'"));
    assert!(said(heal(&ground, &good, "tank/fs@c")).contains("tank/fs@c"));
    let other = forged(&good, |_, record, payload| {
        if let Record::Write(write) = record {
            write.logical_size /= 2;
            payload.truncate(write.logical_size as usize);
        }
    });
    let refused = heal(&ground, &other, "tank/fs@a").unwrap_err();
    let halves = ReceiveError::OtherBlockSize { here: RECORD as u64, sent: RECORD as u64 / 2 };
    assert_eq!(refused.to_string(), Error::from(halves).to_string());
    let raw = forged(&good, |begin, _, _| begin.features |= format::stream::feature::RAW);
    assert!(said(heal(&ground, &raw, "tank/fs@a")).contains("raw streams"));
    let cut = heal(&ground, &good[..good.len() / 4], "tank/fs@a").unwrap_err();
    assert!(matches!(cut, Error::Receive(ReceiveError::Truncated)), "{cut}");
    let nowhere = forged(&good, |_, record, _| {
        if let Record::Write(write) = record {
            write.object += 1000;
        }
    });
    assert!(said(heal(&ground, &nowhere, "tank/fs@a")).contains("does not exist"));
    assert_eq!(on_disk(&ground, places(&damaged)[0], damaged.psize), spoilt);
    assert_eq!(heal(&ground, &good, "tank/fs@a").unwrap().healed, 1);
    ground.expect_sound();
}

#[test]
fn datasets_of_openzfs_are_healed_from_their_streams() {
    let dir = unpack("gsend");
    let ground = Ground::new();
    let stream = golden(dir.path(), "full");
    ground.receive(&stream, "tank/fs@a").unwrap();
    let dataset = ground.pool().open("tank/fs@a").unwrap();
    let (mut damaged, mut spills) = (0, 0);
    let mut incoming = Incoming::open(&stream[..]).unwrap();
    incoming.next_stream().unwrap().unwrap();
    loop {
        let object = |id| dataset.objset().object(ObjectId(id)).unwrap();
        let ptr = match incoming.next_record().unwrap().0 {
            Record::End(_) => break,
            Record::Write(write) => {
                let object = object(write.object);
                object.synced_ptr(write.offset / object.block_size()).unwrap()
            }
            Record::Spill(spill) => {
                spills += 1;
                object(spill.object).synced().unwrap().spill.unwrap()
            }
            _ => continue,
        };
        if let Some(block) = ptr.block() {
            places(block).iter().for_each(|at| spoil(&ground, *at));
            damaged += 1;
        }
    }
    drop(dataset);
    assert!(spills > 0, "attributes, too");
    assert!(damaged > 10, "{damaged}");
    let told = heal(&ground, &stream, "tank/fs@a").unwrap();
    assert_eq!((told.healed, told.lost), (damaged, 0), "{told:?}");
    assert_eq!(lost(&ground), 0);
    ground.expect_sound();
}

#[test]
fn pieces_of_a_gang_are_healed_and_the_others_left() {
    let mut ground = Ground::new();
    ground.pool.take().unwrap().export().unwrap();
    let disk = Ground::disk(&ground.folder);
    let options = Options { force_ganging: 4 << 10, ..Options::default() };
    ground.pool = Some(pool::Pool::import_disks(vec![disk], options).unwrap());
    create(&ground, "tank/fs", &[("compression", 2)]);
    let id = put(&ground, "tank/fs", RECORD, &bytes(1, 4 * RECORD));
    snapshot(&ground, "tank/fs@a");
    let stream = send(&ground, "tank/fs@a", None, PLAIN);
    let leader = block(&ground, "tank/fs@a", id, 2);
    assert!(leader.is_gang());
    let pieces = ground.pool().storage().any_gang_members(&leader).unwrap();
    let piece = *pieces.last().unwrap();
    assert!(pieces.len() > 1 && ground.pool().storage().extents(&leader).unwrap().len() > pieces.len());
    let extents = ground.pool().storage().extents(&piece).unwrap();
    let last = extents.last().unwrap();
    let at = last.offset + DATA_START;
    let before = on_disk(&ground, at, last.asize);
    spoil(&ground, at);
    assert_eq!(lost(&ground), 1);
    let told = heal(&ground, &stream, "tank/fs@a").unwrap();
    assert_eq!((told.healed, told.lost), (1, 0), "{told:?}");
    assert!(told.bytes < leader.psize, "what was good is not written: {told:?}");
    assert_eq!(on_disk(&ground, at, last.asize), before);
    assert_eq!(lost(&ground), 0);
    // Without any header the places of the pieces are not known.
    let headers: Vec<_> = places(&leader).into_iter().map(|at| (at, on_disk(&ground, at, 512))).collect();
    headers.iter().for_each(|(at, _)| spoil(&ground, *at));
    let told = heal(&ground, &stream, "tank/fs@a").unwrap();
    assert_eq!((told.healed, told.lost), (0, 1), "{told:?}");
    let disk = std::fs::File::options().write(true).open(ground.folder.path().join("disk")).unwrap();
    headers.iter().for_each(|(at, header)| disk.write_all_at(header, *at).unwrap());
    ground.expect_sound();
}

#[test]
fn blocks_healed_by_a_broken_stream_are_reported_and_leave_the_error_log() {
    let ground = Ground::new();
    create(&ground, "tank/fs", &[("compression", 15)]);
    let id = put(&ground, "tank/fs", RECORD, &bytes(1, 8 * RECORD));
    snapshot(&ground, "tank/fs@a");
    let stream = send(&ground, "tank/fs@a", None, PLAIN);
    for blkid in [0, 7] {
        spoil(&ground, places(&block(&ground, "tank/fs@a", id, blkid))[0]);
    }
    assert_eq!(lost(&ground), 2);
    let mut incoming = Incoming::open(&stream[..stream.len() - RECORD - 1000]).unwrap();
    let (begin, _) = incoming.next_stream().unwrap().unwrap();
    let mut healing = Healing::default();
    let cut = Receiver::new(ground.pool())
        .heal(&mut incoming, &begin, "tank/fs@a", false, &mut healing)
        .unwrap_err();
    assert!(matches!(cut, Error::Receive(ReceiveError::Truncated)), "{cut}");
    assert_eq!((healing.healed, healing.lost), (1, 0), "{healing:?}");
    let known = ground.pool().data_errors().unwrap();
    assert!(known.len() == 1 && known[0].blkid == 7, "{known:?}");
    assert_eq!(heal(&ground, &stream, "tank/fs@a").unwrap().healed, 1);
    assert_eq!(lost(&ground), 0);
}
