//! Work done ahead, of a reader and of a sync, changes nothing about the data that is read and written.

mod support;

use format::ObjectId;
use format::compression::CompressionSetting;
use support::Bed;
use zpl::session::{Caller, Checks, Position, Settings};
use zpl::{FileKind, Filesystem, NewNode, Session};

const RECORD: usize = 128 << 10;

fn lz4() -> (&'static str, u64) {
    ("compression", CompressionSetting::LZ4.to_property())
}

/// Half noise, half zeros: it compresses, and shows where it belongs.
fn record(number: u64, version: u64) -> Vec<u8> {
    let mut x = (number << 20 | version).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = vec![0; RECORD];
    for word in bytes[..RECORD / 2].chunks_exact_mut(8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        word.copy_from_slice(&x.to_le_bytes());
    }
    bytes
}

fn create(fs: &Filesystem, name: &str) -> ObjectId {
    fs.create(fs.root(), name.as_bytes(), &NewNode::new(FileKind::Regular, 0o644)).unwrap()
}

fn put(fs: &Filesystem, id: ObjectId, number: u64, version: u64) {
    fs.write_record(id, number * RECORD as u64, record(number, version)).unwrap();
}

fn expect(fs: &Filesystem, name: &str, records: u64, version: impl Fn(u64) -> u64) {
    let (id, _) = fs.lookup(fs.root(), name.as_bytes()).unwrap().unwrap();
    let mut seen = 0;
    for (number, piece) in fs.read_records(id).unwrap().enumerate() {
        let number = number as u64;
        assert!(piece.unwrap().data() == Some(&record(number, version(number))[..]), "record {number}");
        seen += 1;
    }
    assert_eq!(seen, records);
}

#[test]
fn no_thread_uses_the_devices_after_a_reader_ends_early() {
    let mut bed = Bed::new(1, &[lz4()], 0, 0);
    let id = create(bed.fs(), "file");
    (0..200).for_each(|number| put(bed.fs(), id, number, 0));
    for taken in [0, 1, 5, 199] {
        bed.close();
        // The devices are opened for this process alone: fails while they are still open.
        bed.reopen();
        let (id, _) = bed.fs().lookup(bed.fs().root(), b"file").unwrap().unwrap();
        let mut records = bed.fs().read_records(id).unwrap();
        assert_eq!(records.by_ref().take(taken).filter(|piece| piece.is_ok()).count(), taken);
        drop(records);
    }
    expect(bed.fs(), "file", 200, |_| 0);
    bed.close();
    bed.expect_clean_as_left();
}

#[test]
fn records_that_change_while_others_sync_are_written_as_they_are_last() {
    let mut bed = Bed::sized(2 << 30, 2, &[lz4()], 0, 0);
    let (one, two) = (create(bed.fs(), "one"), create(bed.fs(), "two"));
    // More than a txg's worth at once: each sync finds records of the next txg to encode ahead, and the second
    // writer changes them at the same time.
    std::thread::scope(|scope| {
        scope.spawn(|| (0..1600).for_each(|number| put(bed.fs(), one, number, 0)));
        scope.spawn(|| {
            for version in 0..8 {
                (0..160).for_each(|number| put(bed.fs(), two, number, version));
                let edit = version.to_le_bytes();
                bed.fs().write(two, 7 * RECORD as u64 + RECORD as u64 - 8, &edit).unwrap();
            }
        });
        scope.spawn(|| (0..6).for_each(|_| bed.pool().sync().unwrap()));
    });
    // The last write of the last version changed a word of record 7.
    put(bed.fs(), two, 7, 7);
    expect(bed.fs(), "one", 1600, |_| 0);
    expect(bed.fs(), "two", 160, |_| 7);
    bed.close();
    bed.reopen();
    expect(bed.fs(), "one", 1600, |_| 0);
    expect(bed.fs(), "two", 160, |_| 7);
    bed.close();
    bed.expect_clean_as_left();
}

#[test]
fn reads_of_a_session_in_order_are_read_ahead_and_see_every_write() {
    let mut bed = Bed::new(3, &[lz4()], 0, 0);
    let id = create(bed.fs(), "file");
    (0..200).for_each(|number| put(bed.fs(), id, number, 0));
    bed.close();
    bed.reopen();
    let session = Session::new(bed.fs().clone(), Checks::Here, &Settings::default(), (0, 0));
    let misses = || bed.pool().storage().cache().stats().data.misses;
    let before = misses();
    let mut room = vec![0; 2 * RECORD];
    for number in (0..200).step_by(2) {
        // Blocks that were read ahead are replaced before the reader comes to them.
        put(bed.fs(), id, number + 5, 1);
        let at = Position { file: id, offset: number * RECORD as u64 };
        assert_eq!(session.read(&Caller::root(), at, &mut room).unwrap(), 2 * RECORD);
        let version = |number: u64| u64::from(number % 2 == 1 && number >= 5);
        assert!(room[..RECORD] == record(number, version(number)), "record {number}");
        assert!(room[RECORD..] == record(number + 1, version(number + 1)), "record {}", number + 1);
    }
    // Workers read most blocks, and none is read twice by much.
    let read = misses() - before;
    assert!((90..=230).contains(&read), "{read} blocks were read");
    drop(session);
    bed.close();
    bed.reopen();
    bed.close();
    bed.expect_clean_as_left();
}
