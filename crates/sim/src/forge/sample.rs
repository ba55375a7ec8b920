//! A pool to start from, and pools made of it to harm their readers.

use format::nvlist::NvValue;
use format::{BlockPtr, ByteOrder, ObjectType, blkptr, dnode};

use super::{Forgery, Patches, Source};
use crate::Story;

const LE: ByteOrder = ByteOrder::Little;
/// Bytes of an entry of a micro ZAP; its value is in front, its name behind that.
const ENTRY: usize = 64;
const ENTRY_NAME: usize = 14;
/// Where a DSL dataset's bonus holds the snapshot before it.
const PREV_SNAP: usize = 0x08;
/// Where a DSL directory's bonus holds the snapshot that it was cloned from, and the list of its own clones.
const ORIGIN: usize = 0x18;
const CLONES: usize = 0x90;
/// Levels of indirect blocks of a file that promises 2^54 bytes.
const DEEP: u8 = 4;
/// The name of a file in the sample. Other names replace it in its directory entry.
const LONG_NAME: &[u8] = b"file with a rather long name 59";

/// A pool with what pools have: file systems, snapshots, a clone, a bookmark, a hold, properties, files of all kinds.
///
/// # Panics
/// If it cannot be made.
#[must_use]
pub fn sample() -> Source {
    let mut story = Story::seeded(5);
    story.mkdir("/d").write("/d/small", "text").write("/big", vec![7; 300 << 10]).symlink("/l", "/d/small");
    for i in 0..60 {
        story.write(&format!("/d/file with a rather long name {i}"), "x");
    }
    story.set_xattr("/big", "user.a", &[3; 700]).link("/big", "/d/again").sync();
    let pool = story.pool();
    pool.snapshot(&["tank/fs@one".to_owned()], &[]).expect("a snapshot is taken");
    pool.clone_snapshot("tank/fs@one", "tank/clone", Vec::new()).expect("a clone is made");
    pool.bookmark("tank/fs@one", "tank/fs#mark").expect("a bookmark is made");
    pool.hold(&["tank/fs@one".to_owned()], "tag").expect("a snapshot is held");
    let note = pool::props::Value::Text("hello hello".into());
    pool.set_properties("tank/fs", vec![("a:note".into(), Some(note))]).expect("a property is set");
    pool.set_command("zfs set a:note=hello tank/fs");
    pool.log_command().expect("the history is written");
    story.forget_unasked_syncs();
    story.write("/big", vec![8; 100 << 10]).unlink("/d/small").sync();
    story.pool().snapshot(&["tank/fs@two".to_owned()], &[]).expect("a snapshot is taken");
    Source::parse(story.export().image())
}

/// Pools made of the [`sample`], by what is wrong with each. All their checksums are right.
///
/// # Panics
/// If `source` is another pool.
#[must_use]
pub fn crafted(source: &Source) -> Vec<(&'static str, Patches)> {
    let make = |change: &dyn Fn(&mut Forgery<'_>)| {
        let mut forgery = Forgery::of(source);
        change(&mut forgery);
        forgery.seal()
    };
    let rename_label = |name: &'static str| move |forgery: &mut Forgery<'_>| pool_name(forgery, name);
    vec![
        ("pool-name-path", make(&rename_label("../../x"))),
        ("pool-name-escape", make(&rename_label("\x1b[2J"))),
        ("pool-name-in-mos", make(&|f| in_all(f, source, ObjectType::PACKED_NVLIST, b"tank", b"../x"))),
        ("many-vdevs", make(&many_vdevs)),
        ("dataset-name-path", make(&|f| entry_name(f, source, b"fs", b".."))),
        ("dataset-name-slash", make(&|f| entry_name(f, source, b"clone", b"../cl"))),
        ("dataset-name-bytes", make(&|f| entry_name(f, source, b"clone", b"\x1b[2\xff\xfe"))),
        ("snapshot-name", make(&|f| entry_name(f, source, b"one", b"../"))),
        ("snapshot-name-bytes", make(&|f| entry_name(f, source, b"two", b"\xff\x1bc"))),
        ("property", make(&|f| everywhere(f, source, b"hello hello", b"\x1b]0;bad!\x07\xff\xfe"))),
        ("history", make(&|f| in_all(f, source, ObjectType::SPA_HISTORY, b"hello", b"\x1b[2J\x07"))),
        ("history-length", make(&|f| history_length(f, source))),
        ("file-name-path", make(&|f| everywhere(f, source, LONG_NAME, b"../../../../victim/a file there"))),
        ("file-name-dots", make(&|f| everywhere(f, source, LONG_NAME, &padded(b"..")))),
        ("file-name-escape", make(&|f| everywhere(f, source, LONG_NAME, &padded(b"\x1b[2J\n\xff")))),
        ("directory-loop", make(&|f| directory_loop(f, source))),
        ("dataset-loop", make(&|f| dataset_loop(f, source))),
        ("snapshot-loop", make(&|f| snapshot_loop(f, source))),
        ("snapshot-before-itself", make(&|f| newest_snapshot_loop(f, source))),
        ("clones-loop", make(&|f| clones_loop(f, source))),
        ("origin-loop", make(&|f| origin_loop(f, source))),
        ("deep-file", make(&|f| deep_object(f, source, true))),
        ("deep-file-of-holes", make(&|f| deep_object(f, source, false))),
        ("many-objects", make(&|f| many_objects(f, source))),
        ("space-map-length", make(&|f| space_map_length(f, source))),
    ]
}

/// A shorter name, with zeros behind it.
fn padded(name: &[u8]) -> Vec<u8> {
    let mut padded = name.to_vec();
    padded.resize(LONG_NAME.len(), 0);
    padded
}

fn pool_name(forgery: &mut Forgery<'_>, name: &str) {
    forgery.edit_labels(|list| list.insert("name", name));
}

/// Labels that promise more vdevs than there can be.
fn many_vdevs(forgery: &mut Forgery<'_>) {
    forgery.edit_labels(|list| {
        list.insert("vdev_children", u64::MAX);
        list.insert("hole_array", NvValue::Uint64Array((0..200).collect()));
    });
}

/// Replaces bytes in all blocks of level 0 of objects of this type.
fn in_all(forgery: &mut Forgery<'_>, source: &Source, kind: ObjectType, old: &[u8], new: &[u8]) {
    let mut count = 0;
    for (block, found, place) in source.blocks() {
        if found == kind && place.level == 0 {
            count += forgery.replace_in(block, old, new);
        }
    }
    assert!(count > 0, "the sample holds what is to be replaced");
}

/// Replaces bytes in all blocks of level 0.
fn everywhere(forgery: &mut Forgery<'_>, source: &Source, old: &[u8], new: &[u8]) {
    let mut count = 0;
    for (block, _, place) in source.blocks() {
        if place.level == 0 {
            count += forgery.replace_in(block, old, new);
        }
    }
    assert!(count > 0, "the sample holds what is to be replaced");
}

/// Calls `change` with the entry called `name` of each micro ZAP of the MOS or the file systems.
fn edit_entries(forgery: &mut Forgery<'_>, source: &Source, name: &[u8], change: &dyn Fn(&mut [u8])) {
    let mut count = 0;
    for (block, _, place) in source.blocks().filter(|(.., place)| place.level == 0) {
        if !format::zap::kind(source.content(block))
            .is_ok_and(|(kind, _)| kind == format::zap::ZapKind::Micro)
        {
            continue;
        }
        let _ = place;
        let is_called =
            |entry: &[u8]| entry[ENTRY_NAME..].starts_with(name) && entry[ENTRY_NAME + name.len()] == 0;
        let entries: Vec<usize> = (ENTRY..source.content(block).len())
            .step_by(ENTRY)
            .filter(|at| source.content(block).get(*at..at + ENTRY).is_some_and(is_called))
            .collect();
        for at in entries {
            forgery.edit(block, |content| change(&mut content[at..at + ENTRY]));
            count += 1;
        }
    }
    assert!(count > 0, "the sample has the entry");
}

fn entry_name(forgery: &mut Forgery<'_>, source: &Source, old: &[u8], new: &[u8]) {
    assert_eq!(old.len(), new.len(), "the content keeps its layout");
    edit_entries(forgery, source, old, &|entry| {
        entry[ENTRY_NAME..ENTRY_NAME + new.len()].copy_from_slice(new);
    });
}

/// The directory `/d` of each file system is the root.
fn directory_loop(forgery: &mut Forgery<'_>, source: &Source) {
    let fs = source.with_bonus(0, ObjectType::DSL_DATASET);
    let root = fs.iter().find_map(|objset| source.master_root(*objset)).expect("there is a file system");
    edit_entries(forgery, source, b"d", &|entry| {
        let old = LE.u64(entry, 0);
        LE.put_u64(entry, 0, old >> 48 << 48 | root);
    });
}

/// The clone's directory is the root directory of the pool.
fn dataset_loop(forgery: &mut Forgery<'_>, source: &Source) {
    let is_root = |object: &u64| {
        let bonus = source.bonus(0, *object);
        // A directory without a parent.
        LE.u64(bonus, 0x10) == 0
    };
    let dirs = source.with_bonus(0, ObjectType::DSL_DIR);
    let root = *dirs.iter().find(|dir| is_root(dir)).expect("there is a root directory");
    edit_entries(forgery, source, b"clone", &|entry| LE.put_u64(entry, 0, root));
}

/// Every dataset is its own snapshot, and that before it.
fn snapshot_loop(forgery: &mut Forgery<'_>, source: &Source) {
    for object in source.with_bonus(0, ObjectType::DSL_DATASET) {
        forgery.edit_bonus(0, object, |bonus| {
            for at in [PREV_SNAP, PREV_SNAP + 0x10] {
                LE.put_u64(bonus, at, object);
            }
        });
    }
}

/// The object that an entry called `name` of the MOS leads to.
fn object_called(source: &Source, name: &[u8]) -> u64 {
    let in_mos = source.blocks().filter(|(.., place)| place.level == 0 && place.objset == 0);
    let mut found = in_mos.filter_map(|(block, ..)| {
        let content = source.content(block);
        let (kind, _) = format::zap::kind(content).ok()?;
        let entry =
            (kind == format::zap::ZapKind::Micro).then(|| format::zap::micro::lookup(content, name))?;
        entry.map(|entry| entry.value)
    });
    found.next().expect("the sample has the entry")
}

/// The newest snapshot of the file system is the one before itself.
fn newest_snapshot_loop(forgery: &mut Forgery<'_>, source: &Source) {
    let newest = object_called(source, b"two");
    forgery.edit_bonus(0, newest, |bonus| LE.put_u64(bonus, PREV_SNAP, newest));
}

/// The clone is in its own list of clones.
fn clones_loop(forgery: &mut Forgery<'_>, source: &Source) {
    let clones = LE.u64(source.bonus(0, object_called(source, b"fs")), CLONES);
    assert!(clones != 0, "the file system of the sample has a list of clones");
    forgery.edit_bonus(0, object_called(source, b"clone"), |bonus| LE.put_u64(bonus, CLONES, clones));
}

/// The clone was made from a snapshot of itself.
fn origin_loop(forgery: &mut Forgery<'_>, source: &Source) {
    let (clone, newest) = (object_called(source, b"clone"), object_called(source, b"two"));
    forgery.edit_bonus(0, clone, |bonus| LE.put_u64(bonus, ORIGIN, newest));
    forgery.edit_bonus(0, newest, |bonus| LE.put_u64(bonus, 0, clone));
}

fn history_length(forgery: &mut Forgery<'_>, source: &Source) {
    for object in source.with_bonus(0, ObjectType::SPA_HISTORY_OFFSETS) {
        forgery.edit_bonus(0, object, |bonus| {
            for (at, value) in [(0x08, 1 << 39), (0x18, (1u64 << 39) - (1 << 20))] {
                LE.put_u64(bonus, at, value);
            }
        });
    }
}

fn space_map_length(forgery: &mut Forgery<'_>, source: &Source) {
    let maps = source.with_bonus(0, ObjectType::SPACE_MAP_HEADER);
    assert!(!maps.is_empty(), "the sample has space maps");
    for object in maps {
        forgery.edit_bonus(0, object, |bonus| LE.put_u64(bonus, 0x08, 1 << 60));
    }
}

/// A tree of indirect blocks of which each is used as often as it can be. `with_data`: the lowest lead to data, else to
/// nothing.
fn deep_tree(forgery: &mut Forgery<'_>, source: &Source, leaf: usize, with_data: bool) -> BlockPtr {
    let like = source.pointer(leaf);
    let mut ptr = if with_data { forgery.add(source.content(leaf), like) } else { BlockPtr::HOLE };
    for level in 1..=DEEP {
        let content = ptr.encode(LE).repeat(1024);
        ptr = forgery.add(&content, blkptr::Block { level, fill: 1 << 20, ..like });
    }
    ptr
}

fn make_deep(raw: &mut [u8], ptr: &BlockPtr, max_blkid: u64) {
    raw[1] = 17;
    raw[2] = DEEP + 1;
    LE.put_u64(raw, 0x10, max_blkid);
    raw[dnode::HEADER..dnode::HEADER + blkptr::SIZE].copy_from_slice(&ptr.encode(LE));
}

/// The file `/big` of the head promises 2^54 bytes.
fn deep_object(forgery: &mut Forgery<'_>, source: &Source, with_data: bool) {
    let is_long = |place: &super::Place| place.objset != 0 && place.object != 0 && place.level == 1;
    let files: Vec<_> = source
        .blocks()
        .filter(|(_, kind, place)| *kind == ObjectType::PLAIN_FILE_CONTENTS && is_long(place))
        .map(|(.., place)| place)
        .collect();
    assert!(!files.is_empty(), "the sample has a file of several blocks");
    for place in files {
        let leaf = source.leaves(place.objset, place.object)[0];
        let ptr = deep_tree(forgery, source, leaf, with_data);
        forgery.edit_dnode(place.objset, place.object, |raw| make_deep(raw, &ptr, (1 << 40) - 1));
    }
}

/// A file system that promises 2^45 objects.
fn many_objects(forgery: &mut Forgery<'_>, source: &Source) {
    for objset in source.with_bonus(0, ObjectType::DSL_DATASET) {
        let place = super::Place { objset, object: 0, level: 0, blkid: u64::MAX };
        let (Some(root), Some(leaf)) =
            (source.block(place), source.block(super::Place { blkid: 0, ..place }))
        else {
            continue;
        };
        let ptr = deep_tree(forgery, source, leaf, true);
        forgery.edit(root, |content| make_deep(&mut content[..dnode::SLOT], &ptr, (1 << 40) - 1));
    }
}
