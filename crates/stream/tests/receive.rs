//! Receiving where it cannot be done, and properties that arrive.

mod ground;
#[path = "../../pool/tests/oracle/mod.rs"]
mod oracle;

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use format::BlockPtr;
use ground::{Ground, golden, unpack};
use pool::props::{PropertyError, Source, Value, dataset};
use pool::{Dataset, Hold, NewFilesystem, Options, Pool, ReceiveOptions};
use storage::host::Entropy;
use stream::{Incoming, Received, Receiver};

/// Where the first vdev's blocks begin, in bytes.
const LABELS: u64 = 4 << 20;
const MEBIBYTE: u64 = 1 << 20;

fn create(pool: &Pool, name: &str) {
    let empty: pool::Initialise = Arc::new(|_, _, _| Ok(()));
    let new = NewFilesystem::plain(&Options::default().host);
    pool.create_filesystem(name, Vec::new(), new, empty).unwrap();
}

/// A new object with these bytes.
fn write(dataset: &Dataset, bytes: &[u8]) -> Result<(), pool::Error> {
    let tx = dataset.begin(Hold::write(bytes.len() as u64))?;
    let new = dmu::NewObject::plain(format::ObjectType::PLAIN_FILE_CONTENTS);
    dataset.objset().create_object(&tx, new)?.write(&tx, 0, bytes)?;
    Ok(())
}

/// Writes until there is no room.
fn fill(pool: &Pool, name: &str) {
    let dataset = pool.open(name).unwrap();
    let chance = storage::host::SeededEntropy::new(3);
    for size in [1 << 20, 4 << 10] {
        let bytes: Vec<u8> = (0..size / 8).flat_map(|_| chance.u64().to_le_bytes()).collect();
        let full = (0..1000).find_map(|_| write(&dataset, &bytes).err());
        assert!(full.unwrap().is_no_space());
    }
    drop(dataset);
    pool.sync().unwrap();
}

#[test]
fn a_full_pool_refuses_a_stream_and_goes_on() {
    let dir = unpack("gsend");
    let ground = Ground::new();
    let (full, incr) = (golden(dir.path(), "full"), golden(dir.path(), "incr"));
    ground.receive(&full, "tank/fs@a").unwrap();
    let pool = ground.pool();
    // The room goes while the stream is on its way.
    for (bytes, into) in [(&full, "tank/new@a"), (&incr, "tank/fs@b")] {
        let mut stream = Incoming::open(&bytes[..]).unwrap();
        let (begin, list) = stream.next_stream().unwrap().unwrap();
        let before = ground.names();
        create(pool, "tank/fill");
        let receiving =
            Receiver::new(pool).begin_receive((&begin, &list), into, &ReceiveOptions::default()).unwrap();
        let arrived = receiving.take_in(&mut stream).unwrap();
        fill(pool, "tank/fill");
        let refused = arrived.put_in_place().unwrap_err();
        assert!(refused.is_no_space(), "{into}: {refused}");
        // There is none from the beginning.
        fill(pool, "tank/fill");
        let refused = ground.receive(bytes, into).unwrap_err();
        assert!(refused.is_no_space(), "{into}: {refused}");
        ground.expect_sound();
        pool.destroy_dataset("tank/fill").unwrap();
        assert_eq!(ground.names(), before, "{into}");
        // Freed space may be used two txgs later.
        (0..3).for_each(|_| pool.sync().unwrap());
        ground.receive(bytes, into).unwrap();
        ground.expect_sound();
    }
}

#[test]
fn an_unreadable_dataset_is_replaced_and_freed_when_it_is_readable() {
    let dir = unpack("gsend");
    let mut ground = Ground::new();
    let (full, incr) = (golden(dir.path(), "full"), golden(dir.path(), "incr"));
    ground.receive(&full, "tank/fs@a").unwrap();
    let dataset = ground.pool().open("tank/fs").unwrap();
    let known: BTreeSet<_> = dataset.objset().synced_objects().map(|entry| entry.unwrap().0).collect();
    write(&dataset, &[5; 600_000]).unwrap();
    ground.pool().sync().unwrap();
    let mut copies = Vec::new();
    for entry in dataset.objset().synced_objects() {
        let (id, dnode) = entry.unwrap();
        if let [BlockPtr::Block(block), ..] = dnode.block_ptrs[..]
            && !known.contains(&id)
        {
            assert!(block.level > 0, "the object has indirect blocks");
            let copy = |dva: &format::blkptr::Dva| (LABELS + dva.offset, block.psize);
            copies.extend(block.dvas.iter().filter(|dva| !dva.is_empty()).map(copy));
        }
    }
    assert!(!copies.is_empty());
    drop(dataset);
    let disk =
        std::fs::File::options().read(true).write(true).open(ground.folder.path().join("disk")).unwrap();
    let mut kept = Vec::new();
    ground.pool = None;
    for (at, len) in &copies {
        let mut bytes = vec![0; *len as usize];
        disk.read_exact_at(&mut bytes, *at).unwrap();
        disk.write_all_at(&vec![0xee; *len as usize], *at).unwrap();
        kept.push((bytes, *at));
    }
    ground.crash();
    let force = ReceiveOptions { force: true, ..ReceiveOptions::default() };
    ground.receive_with(&incr, "tank/fs@b", &force).unwrap();
    ground.pool().snapshot(&["tank/fs@there".to_owned()], &[]).unwrap();
    ground.pool().destroy_snapshots(&["tank/fs@there".to_owned()], false).unwrap();
    assert!(ground.pool().freeing().unwrap() > 0);
    ground.pool = None;
    for (bytes, at) in kept {
        disk.write_all_at(&bytes, at).unwrap();
    }
    drop(disk);
    ground.crash();
    ground.pool().sync().unwrap();
    assert_eq!(ground.pool().freeing().unwrap(), 0);
    ground.expect_sound();
}

fn receive(ground: &Ground, bytes: &[u8], into: &str, options: &ReceiveOptions) -> Received {
    let mut stream = Incoming::open(bytes).unwrap();
    let (begin, list) = stream.next_stream().unwrap().unwrap();
    Receiver::new(ground.pool()).receive(&mut stream, (&begin, &list), into, options).unwrap()
}

fn number(name: &str, number: u64) -> (String, Value) {
    (name.to_owned(), Value::Number(number))
}

fn shown(pool: &Pool, fs: &str, name: &str) -> (u64, Source) {
    let info = pool.dataset(fs).unwrap();
    match pool.property(&info, dataset::parse(name).unwrap()).unwrap().unwrap() {
        (Value::Number(number), source) => (number, source),
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn limits_that_do_not_fit_are_left_out_and_reported() {
    let dir = unpack("gsend");
    let ground = Ground::new();
    let (full, incr) = (golden(dir.path(), "full"), golden(dir.path(), "incr"));
    let above = |name: &str| (name.to_owned(), PropertyError::AboveSpace);
    let options = ReceiveOptions {
        received: Some(vec![number("reservation", 400 * MEBIBYTE), number("refreservation", 10 * MEBIBYTE)]),
        ..ReceiveOptions::default()
    };
    let done = receive(&ground, &full, "tank/fs@a", &options);
    assert_eq!(done.refused, [above("reservation")]);
    let pool = ground.pool();
    assert_eq!(shown(pool, "tank/fs", "reservation"), (0, Source::Default));
    assert_eq!(shown(pool, "tank/fs", "refreservation"), (10 * MEBIBYTE, Source::Received));
    assert_eq!(shown(pool, "tank/fs", "usedbyrefreservation").0, 10 * MEBIBYTE);
    ground.expect_sound();
    let options = ReceiveOptions {
        local: vec![number("refreservation", 400 * MEBIBYTE), number("reservation", 20 * MEBIBYTE)],
        received: Some(vec![number("refquota", 512), number("quota", 512)]),
        ..ReceiveOptions::default()
    };
    let done = receive(&ground, &incr, "tank/fs@b", &options);
    let below = |name: &str| (name.to_owned(), PropertyError::BelowUse);
    assert_eq!(done.refused, [above("refreservation"), below("refquota"), below("quota")]);
    assert_eq!(shown(pool, "tank/fs", "reservation"), (20 * MEBIBYTE, Source::Local));
    // It came with the stream before this one only.
    assert_eq!(shown(pool, "tank/fs", "usedbyrefreservation").0, 0);
    ground.expect_sound();
    // The quota of a new dataset is judged when all of its data is there.
    let options =
        ReceiveOptions { received: Some(vec![number("refquota", 512)]), ..ReceiveOptions::default() };
    assert_eq!(receive(&ground, &full, "tank/small@a", &options).refused, [below("refquota")]);
    ground.expect_sound();
}

#[test]
fn received_properties_replace_earlier_received_ones() {
    let dir = unpack("gsend");
    let ground = Ground::new();
    let pool = ground.pool();
    let (full, incr) = (golden(dir.path(), "full"), golden(dir.path(), "incr"));
    let note = |text: &str| ("my:note".to_owned(), Value::Text(text.to_owned()));
    let options = ReceiveOptions {
        received: Some(vec![number("compression", 15), number("atime", 0), note("first")]),
        inherited: vec!["atime".into()],
        of_snapshot: vec![note("of the snapshot")],
        ..ReceiveOptions::default()
    };
    receive(&ground, &full, "tank/fs@a", &options);
    assert_eq!(shown(pool, "tank/fs", "compression"), (15, Source::Received));
    assert_eq!(shown(pool, "tank/fs", "atime"), (1, Source::Default));
    let info = pool.dataset("tank/fs").unwrap();
    assert_eq!(pool.received_property(&info, "atime").unwrap(), Some(Value::Number(0)));
    let user = |name: &str| pool.user_property(&pool.dataset(name).unwrap(), "my:note").unwrap();
    assert_eq!(user("tank/fs@a"), Some(("of the snapshot".into(), Source::Received)));
    // Without a list of them nothing is known of them.
    receive(&ground, &incr, "tank/fs@b", &ReceiveOptions::default());
    assert_eq!(user("tank/fs"), Some(("first".into(), Source::Received)));
    assert_eq!(user("tank/fs@b").map(|(_, source)| source), Some(Source::Inherited("tank/fs".into())));
    pool.rollback("tank/fs@b").unwrap();
    pool.destroy_snapshots(&["tank/fs@b".to_owned()], false).unwrap();
    let options =
        ReceiveOptions { force: true, received: Some(vec![note("second")]), ..ReceiveOptions::default() };
    receive(&ground, &incr, "tank/fs@b", &options);
    assert_eq!(shown(pool, "tank/fs", "compression"), (1, Source::Default));
    assert_eq!(user("tank/fs"), Some(("second".into(), Source::Received)));
    ground.expect_sound();
}

#[test]
fn properties_that_no_pool_can_store_are_left_out_and_reported() {
    let dir = unpack("gsend");
    let ground = Ground::new();
    let text = |name: &str, len: usize| (name.to_owned(), Value::Text("v".repeat(len)));
    // The name of a property that hides a received value is longer: a suffix follows it.
    let (fits, long) = (format!("x:{}", "n".repeat(245)), format!("x:{}", "n".repeat(246)));
    let odd = vec![text(&fits, 8191), text(&long, 1), text("x:big", 8192), text("", 1)];
    let options = ReceiveOptions {
        local: vec![text("y:big", 8192)],
        received: Some(odd.clone()),
        of_snapshot: odd,
        ..ReceiveOptions::default()
    };
    let done = receive(&ground, &golden(dir.path(), "full"), "tank/fs@a", &options);
    assert_eq!(
        done.refused,
        [
            ("y:big".to_owned(), PropertyError::ValueTooLong),
            (long.clone(), PropertyError::NameTooLong { name: long }),
            ("x:big".to_owned(), PropertyError::ValueTooLong),
            (String::new(), PropertyError::Unknown { name: String::new() }),
        ]
    );
    let pool = ground.pool();
    for name in ["tank/fs", "tank/fs@a"] {
        let info = pool.dataset(name).unwrap();
        let has = |word: &str| pool.user_property(&info, word).unwrap().is_some();
        assert!(has(&fits) && !has("x:big") && !has("y:big"), "{name}");
    }
    ground.expect_sound();
}
