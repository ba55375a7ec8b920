//! What is done ahead, of a reader and of a sync, changes nothing about what is read and written.

mod support;

use format::ObjectId;
use format::compression::CompressionSetting;
use support::Bed;
use zpl::{FileKind, Filesystem, NewNode};

const RECORD: usize = 128 << 10;

fn lz4() -> (&'static str, u64) {
    ("compression", CompressionSetting::LZ4.to_property())
}

/// Half noise, half zeros: it compresses, and tells where it belongs.
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
        // The devices are opened for this process alone: fails while anybody has them.
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
