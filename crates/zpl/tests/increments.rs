//! Increments whose flags or block sizes differ from those of the stream before: the received files equal the sent ones,
//! or the increment is refused and the snapshot before it is whole.

mod support;

use std::collections::BTreeMap;

use format::stream::{Record, feature};
use pool::{ReceiveOptions, SendFlags};
use storage::host::{Entropy, SeededEntropy};
use stream::{Incoming, Receiver, Sender};
use support::Bed;
use zpl::{FileKind, Filesystem, NewNode, XattrMode};

const KIB: u64 = 1 << 10;
/// Every combination of `-L`, `-c` and `-e` that matters: to the receiver `-c` and `-e` mean the same with and without `-L`.
const FLAGS: [SendFlags; 6] = [
    flags(false, false, false),
    flags(true, false, false),
    flags(false, true, false),
    flags(true, true, false),
    flags(false, true, true),
    flags(true, true, true),
];
/// Those that differ most.
const FEW_FLAGS: [SendFlags; 2] = [FLAGS[4], FLAGS[3]];

const fn flags(large_blocks: bool, compressed: bool, embedded: bool) -> SendFlags {
    SendFlags { large_blocks, embedded, compressed, raw: false }
}

/// Name → content and one extended attribute of each file.
type Files = BTreeMap<Vec<u8>, (Vec<u8>, Option<Vec<u8>>)>;

/// Bytes of which each block compresses, some into their pointer, and no two blocks are the same.
fn content(seed: u64, len: u64) -> Vec<u8> {
    let chance = SeededEntropy::new(seed);
    let mut bytes = Vec::with_capacity(len as usize + 512);
    while (bytes.len() as u64) < len {
        let start = bytes.len();
        bytes.extend(chance.u64().to_le_bytes());
        bytes.resize(start + 512, seed as u8);
    }
    bytes.truncate(len as usize);
    bytes
}

struct Tree<'a> {
    fs: &'a Filesystem,
    seed: u64,
}

impl Tree<'_> {
    fn id(&self, name: &str) -> format::ObjectId {
        self.fs.lookup(self.fs.root(), name.as_bytes()).unwrap().unwrap().0
    }

    fn new_content(&mut self, len: u64) -> Vec<u8> {
        self.seed += 1;
        content(self.seed, len)
    }

    fn create(&mut self, name: &str, len: u64) -> format::ObjectId {
        let id =
            self.fs.create(self.fs.root(), name.as_bytes(), &NewNode::new(FileKind::Regular, 0o644)).unwrap();
        let bytes = self.new_content(len);
        self.fs.write(id, 0, &bytes).unwrap();
        id
    }

    fn write(&mut self, name: &str, at: u64, len: u64) {
        let bytes = self.new_content(len);
        self.fs.write(self.id(name), at, &bytes).unwrap();
    }

    fn truncate(&self, name: &str, len: u64) {
        self.fs.truncate(self.id(name), len).unwrap();
    }

    fn unlink(&self, name: &str) {
        self.fs.unlink(self.fs.root(), name.as_bytes()).unwrap();
    }

    fn set_attribute(&self, name: &str, len: u64) {
        self.fs.xattr_set(self.id(name), b"user.a", &content(9, len), XattrMode::Either).unwrap();
    }
}

/// Files of three records of `record` bytes and a bit.
fn populate(bed: &Bed, tree: &mut Tree<'_>, record: u64) {
    let whole = 3 * record + 700;
    for name in [
        "unchanged",
        "rewritten",
        "grown",
        "shrunk",
        "emptied",
        "cut",
        "replaced",
        "reborn",
        "wider",
        "holed",
    ] {
        tree.create(name, whole);
    }
    tree.create("small", 60);
    // Blocks so small that they lie in their pointers.
    for name in ["constant", "constant too"] {
        let id = tree.create(name, 0);
        tree.fs.write(id, 0, &vec![7; whole as usize]).unwrap();
    }
    tree.create("one", record / 2 + 100);
    tree.create("spilled", whole);
    tree.set_attribute("spilled", 3000);
    tree.set_attribute("unchanged", 2000);
    // Zeros only, in one block.
    let id = tree.create("sparse", 100);
    tree.fs.truncate(id, 5 * record).unwrap();
    bed.pool().sync().unwrap();
}

/// Changes the files in many ways, with another record size than before.
fn change(bed: &Bed, tree: &mut Tree<'_>, record: u64) {
    let whole = 3 * record + 700;
    tree.write("rewritten", record + 17, 1000);
    tree.write("grown", whole, 2 * record);
    tree.fs.write(tree.id("constant"), 0, &vec![8; record as usize]).unwrap();
    tree.truncate("shrunk", record / 2);
    tree.truncate("emptied", 0);
    // The file gets one block that is larger than its earlier blocks.
    tree.truncate("cut", 0);
    tree.write("cut", 0, 3 * record + 4000);
    tree.truncate("wider", 300);
    tree.write("wider", 300, 2 * record);
    tree.fs.punch(tree.id("holed"), record, record).unwrap();
    tree.unlink("replaced");
    tree.create("replaced", 2 * record);
    tree.write("small", 60, 2 * record);
    tree.write("one", record, 3 * record);
    tree.write("sparse", 2 * record, 100);
    tree.set_attribute("spilled", 10);
    tree.set_attribute("small", 3000);
    // The number of a file that is gone goes to another.
    let before = tree.id("reborn");
    tree.unlink("reborn");
    bed.pool().sync().unwrap();
    bed.pool().sync().unwrap();
    for at in 0..40 {
        let id = tree.create(&format!("new{at}"), if at % 2 == 0 { record + record / 2 } else { 300 });
        if id == before {
            break;
        }
    }
    bed.pool().sync().unwrap();
}

fn files(fs: &Filesystem) -> Files {
    let read = |entry: zpl::DirEntry| {
        let content = fs.read_all(entry.id, 64 << 20).unwrap();
        (entry.name, (content, fs.xattr_get(entry.id, b"user.a").unwrap()))
    };
    fs.entries(fs.root()).unwrap().map(|entry| read(entry.unwrap())).collect()
}

fn files_of(bed: &Bed, snapshot: &str) -> Files {
    files(&Filesystem::open(bed.pool().open(snapshot).unwrap()).unwrap())
}

fn sent(bed: &Bed, snapshot: &str, from: Option<&str>, flags: SendFlags) -> Vec<u8> {
    let from = from.map(|from| Sender::new(bed.pool()).send_source(from).unwrap());
    let mut stream = Vec::new();
    Sender::new(bed.pool()).send(snapshot, from.as_ref(), flags, &mut stream, &mut |_| {}).unwrap();
    expect_split(&stream);
    stream
}

/// No block of a stream without large blocks is larger than 128 KiB. OpenZFS loses the rest of such a block if it is
/// embedded in its pointer.
fn expect_split(stream: &[u8]) {
    let mut stream = Incoming::open(stream).unwrap();
    let (begin, _) = stream.next_stream().unwrap().unwrap();
    if begin.features & feature::LARGE_BLOCKS != 0 {
        return;
    }
    loop {
        let length = match stream.next_record().unwrap().0 {
            Record::Object(object) => object.block_size.into(),
            Record::Write(write) => write.logical_size,
            Record::Embedded(embedded) => embedded.length,
            Record::End(_) => return,
            _ => 0,
        };
        assert!(length <= 128 * KIB, "a block of {length} bytes");
    }
}

fn receive(bed: &Bed, bytes: &[u8], into: &str) -> pool::Result<()> {
    let mut stream = Incoming::open(bytes)?;
    while let Some((begin, list)) = stream.next_stream()? {
        Receiver::new(bed.pool()).receive(&mut stream, (&begin, &list), into, &ReceiveOptions::default())?;
    }
    Ok(())
}

/// Names of the files that differ.
fn differing(sent: &Files, received: &Files) -> Vec<String> {
    let names = sent.keys().chain(received.keys());
    let differ = names.filter(|name| sent.get(*name) != received.get(*name));
    differ.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

/// Sends `tank/s@a` and `tank/s@b` with every combination of flags.
fn expect_whole_or_refused(bed: &Bed, (before, after): (u64, u64), flags: &[SendFlags]) {
    let (old, new) = (files_of(bed, "tank/s@a"), files_of(bed, "tank/s@b"));
    let mut failures = Vec::new();
    let increments: Vec<_> =
        flags.iter().map(|flags| sent(bed, "tank/s@b", Some("tank/s@a"), *flags)).collect();
    for first in flags {
        let full = sent(bed, "tank/s@a", None, *first);
        for (second, increment) in flags.iter().zip(&increments) {
            receive(bed, &full, "tank/r@a").unwrap();
            let done = receive(bed, increment, "tank/r@b");
            // Large blocks stay large: without `-L` an increment cannot say where they end.
            let must_fail = first.large_blocks && !second.large_blocks && before > 128 * KIB;
            let differ = match &done {
                Ok(()) => differing(&new, &files_of(bed, "tank/r@b")),
                Err(_) => differing(&old, &files_of(bed, "tank/r@a")),
            };
            if done.is_err() != must_fail || !differ.is_empty() {
                failures.push(format!("{before}-{after} {first:?} {second:?}: {done:?} {differ:?}"));
            }
            bed.pool().destroy_snapshots(&snapshots(bed, "tank/r"), false).unwrap();
            bed.pool().destroy_dataset("tank/r").unwrap();
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn snapshots(bed: &Bed, fs: &str) -> Vec<String> {
    let all = bed.pool().list(fs, None, true).unwrap();
    all.into_iter().filter(|info| info.is_snapshot()).map(|info| info.name).collect()
}

/// One tree whose record size changes from the first to the second of `sizes` between two snapshots.
fn walk(seed: u64, sizes: (u64, u64), (dnodes, more): (u64, u64), flags: &[SendFlags]) {
    let bed = Bed::new(seed, &[], 0, 0);
    // Extended attributes in the dnode and its spill block.
    let fs = bed
        .filesystem(
            "tank/s",
            &[("recordsize", sizes.0), ("xattr", 2), ("dnodesize", dnodes), ("compression", 16)],
        )
        .unwrap();
    let mut tree = Tree { fs: &fs, seed };
    populate(&bed, &mut tree, sizes.0);
    bed.pool().snapshot(&["tank/s@a".to_owned()], &[]).unwrap();
    bed.set("tank/s", "recordsize", sizes.1).unwrap();
    bed.set("tank/s", "dnodesize", more).unwrap();
    change(&bed, &mut tree, sizes.0);
    bed.pool().snapshot(&["tank/s@b".to_owned()], &[]).unwrap();
    drop(fs);
    expect_whole_or_refused(&bed, sizes, flags);
}

#[test]
fn increments_of_small_records_are_whole() {
    walk(1, (4 * KIB, 4 * KIB), (0, 1024), &FEW_FLAGS);
    walk(2, (4 * KIB, 256 * KIB), (0, 0), &FLAGS);
}

#[test]
fn increments_of_usual_records_are_whole() {
    walk(3, (128 * KIB, 128 * KIB), (1024, 0), &FEW_FLAGS);
    walk(4, (128 * KIB, 256 * KIB), (0, 0), &FEW_FLAGS);
}

#[test]
fn increments_of_large_records_are_whole_or_refused() {
    walk(5, (256 * KIB, 256 * KIB), (0, 0), &FLAGS);
}

#[test]
fn increments_after_the_records_became_small_are_whole_or_refused() {
    walk(6, (256 * KIB, 128 * KIB), (0, 1024), &FEW_FLAGS);
    walk(7, (256 * KIB, 4 * KIB), (1024, 0), &FEW_FLAGS);
}
