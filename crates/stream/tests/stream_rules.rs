//! Records of streams against what is here: features of the pool, block sizes, forms of attributes.

mod ground;
#[path = "../../pool/tests/oracle/mod.rs"]
mod oracle;

use std::sync::Arc;

use format::stream::{self, Begin, FreeObjects, Object, Record, Write, feature, flag};
use format::{ByteOrder, Compression, Guid, ObjectId, ObjectType, features};
use ground::{Ground, sealed};
use pool::props::Value;
use pool::{CreateSpec, Hold, NewFilesystem, Options, Pool, ReceiveError, ReceiveOptions};

const KIB: u64 = 1 << 10;
/// The object that the streams are about.
const ID: u64 = 7;
/// Bytes of an SA bonus, and of a legacy znode.
const SA_LEN: usize = 176;
const ZNODE_LEN: usize = 264;

fn begin(toguid: u64, fromguid: u64, features: u64) -> Record {
    Record::Begin(Begin {
        header_type: 1,
        features: features | feature::SA_SPILL,
        objset_type: 2,
        flags: flag::FREE_RECORDS | flag::SPILL_BLOCK,
        toguid: Guid(toguid),
        fromguid: Guid(fromguid),
        toname: b"src/fs@s".to_vec(),
        ..Begin::default()
    })
}

/// The records as a stream, with their payloads, checksums and an end.
fn ended(records: &[(Record, Vec<u8>)]) -> Vec<u8> {
    let toguid = match &records[0].0 {
        Record::Begin(begin) => begin.toguid,
        other => panic!("{other:?} begins no stream"),
    };
    let end = Record::End(stream::End { checksum: format::Checksum::default(), toguid });
    sealed(&[records, &[(end, Vec::new())]].concat())
}

/// A bonus with this generation.
fn bonus(bonus_type: ObjectType, generation: u64) -> Vec<u8> {
    let order = ByteOrder::Little;
    let (len, at) = if bonus_type == ObjectType::ZNODE { (ZNODE_LEN, 0x40) } else { (SA_LEN, 8 + 0x10) };
    let mut bonus = vec![0; len];
    if bonus_type == ObjectType::SA {
        order.put_u32(&mut bonus, 0, 0x2f_505a);
        order.put_u16(&mut bonus, 4, 1 << 10 | 2);
    }
    order.put_u64(&mut bonus, at, generation);
    bonus
}

fn object(object_type: ObjectType, block_size: u64, bonus: (ObjectType, Vec<u8>)) -> (Record, Vec<u8>) {
    let (bonus_type, bonus) = bonus;
    let record = Object {
        object: ID,
        object_type,
        bonus_type,
        block_size: block_size as u32,
        bonus_len: bonus.len() as u32,
        slots: 1,
        ..Object::default()
    };
    (Record::Object(record), bonus)
}

fn file(block_size: u64, generation: u64) -> (Record, Vec<u8>) {
    let bonus = (ObjectType::SA, bonus(ObjectType::SA, generation));
    object(ObjectType::PLAIN_FILE_CONTENTS, block_size, bonus)
}

fn volume(block_size: u64) -> (Record, Vec<u8>) {
    object(ObjectType::ZVOL, block_size, (ObjectType::NONE, Vec::new()))
}

fn write(offset: u64, len: u64, byte: u8) -> (Record, Vec<u8>) {
    let record = Write::plain((ID, ObjectType::PLAIN_FILE_CONTENTS), offset, len, Guid(0));
    (Record::Write(record), vec![byte; len as usize])
}

/// The first byte of each 64 KiB of the object in a snapshot.
fn sampled(ground: &Ground, snapshot: &str, count: usize) -> Vec<u8> {
    let dataset = ground.pool().open(snapshot).unwrap();
    let object = dataset.objset().object(ObjectId(ID)).unwrap();
    let sample = |at: usize| {
        let mut byte = [0];
        object.read(at as u64 * 64 * KIB, &mut byte).unwrap();
        byte[0]
    };
    (0..count).map(sample).collect()
}

/// Checks and exports the pool. The datasets lack what makes a file system or volume, so that zdb cannot judge them.
fn judge(mut ground: Ground) {
    ground.expect_sound();
    ground.pool.take().unwrap().export().unwrap();
}

/// Receives `tank/fs@1`, an object of four blocks of 128 KiB.
fn receive_first(ground: &Ground, object: (Record, Vec<u8>)) {
    let writes = (0..4).map(|at| write(at * 128 * KIB, 128 * KIB, at as u8 + 1));
    let records: Vec<_> = [(begin(1, 0, 0), Vec::new()), object].into_iter().chain(writes).collect();
    ground.receive(&ended(&records), "tank/fs@1").unwrap();
    assert_eq!(sampled(ground, "tank/fs@1", 8), [1, 1, 2, 2, 3, 3, 4, 4]);
}

#[test]
fn an_increment_with_larger_blocks_leaves_the_block_size_as_it_is() {
    for object in [|size| file(size, 5), volume] {
        let ground = Ground::new();
        receive_first(&ground, object(128 * KIB));
        let begin = (begin(2, 1, feature::LARGE_BLOCKS), Vec::new());
        let increment = ended(&[begin, object(256 * KIB), write(256 * KIB, 256 * KIB, 9)]);
        ground.receive(&increment, "tank/fs@2").unwrap();
        assert_eq!(sampled(&ground, "tank/fs@2", 8), [1, 1, 2, 2, 9, 9, 9, 9]);
        judge(ground);
    }
}

#[test]
fn a_new_file_under_an_old_number_has_nothing_of_the_old_one() {
    let ground = Ground::new();
    receive_first(&ground, file(128 * KIB, 5));
    for (size, into) in [(256 * KIB, "tank/fs@2"), (64 * KIB, "tank/fs@3")] {
        let (to, from) = if into.ends_with('2') { (2, 1) } else { (3, 2) };
        let begin = (begin(to, from, feature::LARGE_BLOCKS), Vec::new());
        let increment = ended(&[begin, file(size, 10 + to), write(256 * KIB, size, 9)]);
        ground.receive(&increment, into).unwrap();
        let last = if size > 64 * KIB { 9 } else { 0 };
        assert_eq!(sampled(&ground, into, 8), [0, 0, 0, 0, 9, last, last, last]);
    }
    judge(ground);
}

#[test]
fn a_file_whose_blocks_become_smaller_is_refused() {
    let ground = Ground::new();
    receive_first(&ground, file(128 * KIB, 5));
    // Attributes that tell nothing.
    let unknown = object(ObjectType::PLAIN_FILE_CONTENTS, 64 * KIB, (ObjectType::SA, vec![0; SA_LEN]));
    for object in [file(64 * KIB, 5), unknown] {
        let increment = ended(&[(begin(2, 1, 0), Vec::new()), object, write(256 * KIB, 64 * KIB, 9)]);
        ground.receive(&increment, "tank/fs@2").unwrap_err();
        assert_eq!(sampled(&ground, "tank/fs@1", 8), [1, 1, 2, 2, 3, 3, 4, 4]);
        assert_eq!(ground.names(), ["tank", "tank/fs", "tank/fs@1"]);
    }
    judge(ground);
}

#[test]
fn a_file_keeps_its_blocks_when_its_attributes_change_their_form() {
    let ground = Ground::new();
    let legacy = (ObjectType::ZNODE, bonus(ObjectType::ZNODE, 5));
    receive_first(&ground, object(ObjectType::PLAIN_FILE_CONTENTS, 128 * KIB, legacy));
    let increment =
        ended(&[(begin(2, 1, 0), Vec::new()), file(128 * KIB, 5), write(256 * KIB, 128 * KIB, 9)]);
    ground.receive(&increment, "tank/fs@2").unwrap();
    assert_eq!(sampled(&ground, "tank/fs@2", 8), [1, 1, 2, 2, 9, 9, 4, 4]);
    let dataset = ground.pool().open("tank/fs@2").unwrap();
    let found = dataset.objset().object(ObjectId(ID)).unwrap();
    assert_eq!(found.with_bonus(|kind, bytes| (kind, bytes.len())), (ObjectType::SA, SA_LEN));
    drop((found, dataset));
    judge(ground);
}

#[test]
fn an_increment_without_large_blocks_follows_none_with_them() {
    let ground = Ground::new();
    let first =
        [(begin(1, 0, feature::LARGE_BLOCKS), Vec::new()), file(128 * KIB, 5), write(0, 128 * KIB, 1)];
    ground.receive(&ended(&first), "tank/fs@1").unwrap();
    let increment = ended(&[(begin(2, 1, 0), Vec::new()), file(128 * KIB, 5)]);
    let clone = ReceiveOptions { origin: Some("tank/fs@1".into()), ..ReceiveOptions::default() };
    for (into, options) in [("tank/fs@2", ReceiveOptions::default()), ("tank/clone@2", clone)] {
        let refused = ground.receive_with(&increment, into, &options).unwrap_err();
        assert!(matches!(refused, pool::Error::Receive(ReceiveError::LargeBlocks)), "{refused}");
    }
    let whole = ended(&[(begin(2, 1, feature::LARGE_BLOCKS), Vec::new()), file(128 * KIB, 5)]);
    ground.receive(&whole, "tank/fs@2").unwrap();
    judge(ground);
}

#[test]
fn a_stream_can_free_objects_up_to_the_last_number() {
    let ground = Ground::new();
    receive_first(&ground, file(128 * KIB, 5));
    let free = |first: u64, count: u64| {
        (Record::FreeObjects(FreeObjects { first, count, toguid: Guid(2) }), Vec::new())
    };
    let begin = (begin(2, 1, 0), Vec::new());
    let refused = ground.receive(&ended(&[begin.clone(), free(2, u64::MAX)]), "tank/fs@2");
    assert!(refused.is_err(), "a range that ends behind the last number");
    ground
        .receive(&ended(&[begin, free(0, 3), free(1 << 50, 20), free(4, u64::MAX - 4)]), "tank/fs@2")
        .unwrap();
    let dataset = ground.pool().open("tank/fs@2").unwrap();
    assert!(dataset.objset().object(ObjectId(ID)).is_err(), "it was freed");
    drop(dataset);
    judge(ground);
}

#[test]
fn numbers_that_the_file_system_keeps_for_itself_are_refused() {
    let ground = Ground::new();
    receive_first(&ground, file(128 * KIB, 5));
    let begin = (begin(2, 1, 0), Vec::new());
    // The dnodes that hold all others and the space of users, groups and projects; the first number that is too large.
    for number in [0, u64::MAX, u64::MAX - 1, u64::MAX - 2, 1 << 48] {
        let free = stream::Free { object: number, offset: 0, length: stream::TO_END, toguid: Guid(2) };
        let (Record::Write(mut written), bytes) = write(0, 128 * KIB, 9) else {
            unreachable!("it is a write")
        };
        written.object = number;
        for record in [(Record::Free(free), Vec::new()), (Record::Write(written), bytes)] {
            let refused = ground.receive(&ended(&[begin.clone(), record]), "tank/fs@2").unwrap_err();
            assert!(refused.to_string().contains("number of an object"), "{number}: {refused}");
        }
    }
    judge(ground);
}

/// A pool that has enabled no feature.
fn plain_pool() -> Ground {
    let folder = tempfile::tempdir().unwrap();
    std::fs::File::create(folder.path().join("disk")).unwrap().set_len(128 << 20).unwrap();
    let filesystem = NewFilesystem::plain(&Options::default().host);
    let disks = vec![Ground::disk(&folder)];
    let spec = CreateSpec {
        ashift: Some(9),
        features: Vec::new(),
        ..CreateSpec::new("tank", disks, filesystem, Arc::new(|_, _, _| Ok(())))
    };
    let pool = Pool::create(spec, Options::default()).unwrap();
    Ground { folder, pool: Some(pool) }
}

#[test]
fn a_stream_whose_features_the_pool_has_not_is_refused() {
    let ground = plain_pool();
    for (bit, name) in [
        (feature::LZ4, "lz4_compress"),
        (feature::ZSTD, "zstd_compress"),
        (feature::EMBED_DATA, "embedded_data"),
        (feature::LARGE_BLOCKS, "large_blocks"),
        (feature::LARGE_DNODE, "large_dnode"),
    ] {
        let records = [(begin(1, 0, bit | feature::COMPRESSED), Vec::new()), file(128 * KIB, 5)];
        let refused = ground.receive(&ended(&records), "tank/fs@1").unwrap_err();
        let said = refused.to_string();
        assert!(
            said.starts_with("pool must be upgraded to receive this stream.") && said.contains(name),
            "{said}"
        );
    }
    assert_eq!(ground.names(), ["tank"]);
    // Compression alone needs none.
    let records = [(begin(1, 0, feature::COMPRESSED), Vec::new()), file(128 * KIB, 5)];
    ground.receive(&ended(&records), "tank/fs@1").unwrap();
    judge(ground);
}

#[test]
fn a_compression_that_the_pool_has_not_is_not_used() {
    let ground = plain_pool();
    let property = |name: &str, number| (name.to_owned(), Value::Number(number));
    let received = vec![property("compression", 15)];
    let options = ReceiveOptions { received: Some(received), ..ReceiveOptions::default() };
    let mut records = vec![(begin(1, 0, 0), Vec::new()), file(128 * KIB, 5)];
    if let Record::Object(object) = &mut records[1].0 {
        object.compress = 15;
    }
    records.push(write(0, 128 * KIB, 1));
    ground.receive_with(&ended(&records), "tank/fs@1", &options).unwrap();
    let pool = ground.pool();
    let dataset = pool.open("tank/fs").unwrap();
    let found = dataset.objset().object(ObjectId(ID)).unwrap();
    for byte in [1, 2] {
        let block = found.synced().unwrap().block_ptrs[0];
        let format::BlockPtr::Block(block) = block else { panic!("{block:?}") };
        assert_ne!(block.compression, Compression::Lz4, "{block:?}");
        let tx = dataset.begin(Hold::write(128 * KIB)).unwrap();
        found.write(&tx, 0, &vec![byte + 1; 128 * KIB as usize]).unwrap();
        drop(tx);
        pool.sync().unwrap();
    }
    assert_eq!(pool.info().feature(&features::LZ4_COMPRESS), pool::FeatureState::Disabled);
    drop((found, dataset));
    judge(ground);
}
