//! The gzip engine by property, by run or by load; OpenZFS reads all of their blocks.

mod support;

use codec::Engine;
use format::Compression;
use pool::props::Value;
use pool::props::names::GZIP_ENGINE;
use support::Bed;
use zpl::{FileKind, NewNode};

const RECORD: usize = 128 << 10;
/// Values as they are stored: docs/format/06-mos-dsl.md §10.
const GZIP_6: u64 = 10;
const GZIP_9: u64 = 13;

/// Letters of DNA: slow to deflate, and no hole.
fn reads(len: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252u64;
    let mut letter = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        b"ACGT"[(state >> 33) as usize % 4]
    };
    (0..len).map(|_| letter()).collect()
}

fn make(bed: &Bed, name: &str, data: &[u8]) -> format::ObjectId {
    let new = NewNode::new(FileKind::Regular, 0o644);
    let id = bed.fs().create(bed.fs().root(), name.as_bytes(), &new).unwrap();
    for (n, record) in data.chunks(RECORD).enumerate() {
        bed.fs().write(id, (n * RECORD) as u64, record).unwrap();
    }
    bed.fs().dataset().sync().unwrap();
    id
}

/// Records that libdeflate and igzip were given so far.
fn made(bed: &Bed) -> [u64; 2] {
    let mut all = [0; 2];
    for (engine, records) in bed.pool().storage().deflate().records() {
        all[engine.index()] = records;
    }
    all
}

fn say(bed: &Bed, dataset: &str, word: Option<&str>) {
    let value = word.map(|word| Value::Text(word.to_owned()));
    bed.pool().set_properties(dataset, vec![(GZIP_ENGINE.to_owned(), value)]).unwrap();
}

#[test]
fn the_property_is_inherited_and_the_run_comes_before_it() {
    let mut bed = Bed::new(1, &[("compression", GZIP_6)], 0, 0);
    let data = reads(8 * RECORD);
    let isal = usize::from(Engine::Isal.is_here());
    let mut ids = Vec::new();
    let mut expect = |bed: &Bed, name: &str, engine: usize| {
        let before = made(bed);
        let id = make(bed, name, &data);
        let after = made(bed);
        assert!(after[engine] >= before[engine] + 8, "{name}: {before:?} {after:?}");
        assert_eq!(after[1 - engine], before[1 - engine], "{name}");
        let object = bed.fs().dataset().objset().object(id).unwrap();
        let block = *object.synced_ptr(0).unwrap().block().expect("a block on disk");
        assert_eq!(block.compression, Compression::Gzip(6), "{name}: the disk does not tell engines apart");
        ids.push(id);
    };
    expect(&bed, "default", 0);
    say(&bed, "tank", Some("isal"));
    expect(&bed, "of the pool", isal);
    say(&bed, "tank/fs", Some("libdeflate"));
    expect(&bed, "of the dataset", 0);
    bed.pool().tune("gzip_engine", "isal").unwrap();
    expect(&bed, "of the run", isal);
    bed.pool().tune("gzip_engine", "property").unwrap();
    // Other software may write anything there.
    say(&bed, "tank/fs", Some("zopfli"));
    expect(&bed, "unknown", 0);
    say(&bed, "tank/fs", None);
    expect(&bed, "inherited again", isal);

    bed.expect_sound();
    bed.close();
    bed.reopen();
    for id in ids {
        assert!(bed.fs().read_all(id, 1 << 30).unwrap() == data);
    }
    bed.expect_clean();
    bed.close();
    bed.ask_zdb(&[]);
}

#[test]
fn auto_takes_igzip_while_writers_wait_for_compression_and_goes_back() {
    if !Engine::Isal.is_here() {
        eprintln!("igzip is not in this build, skipped");
        return;
    }
    let mut bed = Bed::new(2, &[("compression", GZIP_9)], 0, 0);
    say(&bed, "tank", Some("auto"));
    let data = reads(48 << 20);
    make(&bed, "calm", &data[..4 * RECORD]);
    assert_eq!(made(&bed)[1], 0, "nobody waits for four records");
    bed.pool().tune("zfs_dirty_data_max", "8M").unwrap();
    let id = make(&bed, "storm", &data);
    let busy = made(&bed);
    assert!(busy[1] > 0, "writers waited: {busy:?}");
    make(&bed, "calm again", &data[..4 * RECORD]);
    let calm = made(&bed);
    assert!(calm[0] > busy[0] && calm[1] == busy[1], "{busy:?} {calm:?}");

    bed.expect_sound();
    bed.close();
    bed.reopen();
    assert!(bed.fs().read_all(id, 1 << 30).unwrap() == data);
    bed.expect_clean();
    bed.close();
    bed.ask_zdb(&[]);
}

#[test]
fn a_stepwise_pool_ignores_the_load() {
    let bed = Bed::stepwise(3, &[("compression", GZIP_9)]);
    say(&bed, "tank", Some("auto"));
    bed.pool().tune("zfs_dirty_data_max", "4M").unwrap();
    make(&bed, "storm", &reads(12 << 20));
    assert_eq!(made(&bed)[1], 0);
    bed.expect_sound();
    bed.expect_clean();
}
