//! Properties of a file system that decide how its files are written, each tried on live data.

mod support;

use format::{ChecksumKind, Compression};
use support::Bed;
use zpl::{Error, FileKind, Filesystem, NewNode};

const RECORD: u64 = 128 << 10;
/// Values as they are stored: docs/format/06-mos-dsl.md §10.
const ON: u64 = 1;
const OFF: u64 = 2;
const GZIP_9: u64 = 13;
const ZSTD_3: u64 = 16 | 3 << 7;
const FLETCHER4: u64 = 7;
const SHA256: u64 = 8;
const SHA512: u64 = 11;

fn file() -> NewNode {
    NewNode::new(FileKind::Regular, 0o644)
}

fn words(len: u64) -> Vec<u8> {
    let text = (0..).flat_map(|i: u64| format!("line {i} of a text that compresses\n").into_bytes());
    text.take(len as usize).collect()
}

fn make(fs: &Filesystem, name: &str, len: u64) -> format::ObjectId {
    let id = fs.create(fs.root(), name.as_bytes(), &file()).unwrap();
    fs.write(id, 0, &words(len)).unwrap();
    fs.dataset().sync().unwrap();
    id
}

/// The pointer to a file's first block.
fn first(fs: &Filesystem, id: format::ObjectId) -> format::blkptr::Block {
    let object = fs.dataset().objset().object(id).unwrap();
    *object.synced_ptr(0).unwrap().block().expect("a block on disk")
}

#[test]
fn new_settings_are_for_new_data_and_rewrite_brings_the_old_up_to_them() {
    let mut bed = Bed::new(1, &[("compression", OFF)], 0, 0);
    let fs = bed.fs().clone();
    let old = make(&fs, "old", 10 * RECORD);
    let stat = fs.stat(old).unwrap();
    assert_eq!((first(&fs, old).compression, first(&fs, old).copies().count()), (Compression::Off, 1));
    bed.set("tank/fs", "compression", GZIP_9).unwrap();
    bed.set("tank/fs", "checksum", SHA256).unwrap();
    bed.set("tank/fs", "copies", 2).unwrap();
    bed.set("tank/fs", "recordsize", 1 << 20).unwrap();
    let new = make(&fs, "new", 3 << 20);
    let block = first(&fs, new);
    assert_eq!((block.compression, block.checksum_kind), (Compression::Gzip(9), ChecksumKind::Sha256));
    assert_eq!((block.copies().count(), block.lsize), (2, 1 << 20));
    assert_eq!(first(&fs, old).compression, Compression::Off, "old data stays as it was written");

    assert_eq!(fs.rewrite(old, 5, Some(5)).unwrap(), RECORD);
    fs.dataset().sync().unwrap();
    let block = first(&fs, old);
    assert_eq!((block.compression, block.checksum_kind), (Compression::Gzip(9), ChecksumKind::Sha256));
    assert_eq!((block.copies().count(), block.lsize), (2, RECORD));
    let before = bed.get("tank/fs", "compressratio");
    assert_eq!(fs.rewrite(old, 0, None).unwrap(), 10 * RECORD);
    fs.dataset().sync().unwrap();
    assert!(bed.get("tank/fs", "compressratio") > before);
    let after = fs.stat(old).unwrap();
    assert_eq!(
        (after.size, after.block_size, after.mtime, after.ctime),
        (stat.size, stat.block_size, stat.mtime, stat.ctime)
    );
    assert_eq!(fs.read_all(old, 1 << 30).unwrap(), words(10 * RECORD));

    // Holes stay holes; what is not a file, or behind its end, is left alone.
    let holey = fs.create(fs.root(), b"holey", &file()).unwrap();
    fs.truncate(holey, 1 << 30).unwrap();
    fs.write(holey, 100 << 20, b"x").unwrap();
    assert_eq!(fs.rewrite(holey, 0, None).unwrap(), 1 << 20);
    assert_eq!(fs.data_runs(holey).unwrap(), [(100 << 20, 1 << 20)]);
    assert_eq!(fs.rewrite(holey, 2 << 30, None).unwrap(), 0);
    assert!(matches!(fs.rewrite(fs.root(), 0, None), Err(Error::IsDir)));
    bed.set("tank/fs", "compression", ZSTD_3).unwrap();
    fs.rewrite(old, 0, None).unwrap();
    fs.dataset().sync().unwrap();
    assert_eq!(first(&fs, old).compression, Compression::Zstd);

    bed.expect_sound();
    drop(fs);
    bed.close();
    bed.reopen();
    assert_eq!(bed.fs().read_all(old, 1 << 30).unwrap(), words(10 * RECORD));
    bed.expect_clean();
    bed.close();
    bed.ask_zdb(&[]);
}

#[test]
fn a_block_that_is_written_again_unchanged_keeps_its_place_under_a_strong_checksum() {
    let mut bed = Bed::stepwise(9, &[("compression", ON), ("checksum", SHA256)]);
    let fs = bed.fs().clone();
    let id = make(&fs, "f", 10 * RECORD);
    let noise: Vec<u8> = {
        let mixed = |i: u64| (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_pow(3) >> 40;
        (0..RECORD).map(|i| mixed(i) as u8).collect()
    };
    let raw = fs.create(fs.root(), b"noise", &file()).unwrap();
    fs.write(raw, 0, &noise).unwrap();
    fs.dataset().sync().unwrap();
    bed.pool().snapshot(&["tank/fs@s".to_owned()], &[]).unwrap();
    let (old, old_raw) = (first(&fs, id), first(&fs, raw));
    assert_eq!(old_raw.compression, Compression::Off, "noise is stored as it is");
    let referenced = bed.get("tank/fs", "referenced");

    let again = |fs: &Filesystem| {
        fs.write(id, 0, &words(10 * RECORD)).unwrap();
        fs.write(raw, 0, &noise).unwrap();
        fs.dataset().sync().unwrap();
    };
    again(&fs);
    assert_eq!((first(&fs, id), first(&fs, raw)), (old, old_raw), "both keep their places and births");
    assert_eq!(bed.get("tank/fs", "referenced"), referenced);
    assert!(bed.get("tank/fs", "usedbysnapshots") < RECORD, "the snapshot keeps metadata alone");
    bed.expect_clean();

    // One changed byte makes a new block, and so does each setting that the old block was not written with.
    fs.write(id, 7, b"!").unwrap();
    fs.dataset().sync().unwrap();
    let changed = first(&fs, id);
    assert_ne!(changed.dvas, old.dvas);
    let settings = [("copies", 2), ("copies", 1), ("checksum", SHA512), ("compression", GZIP_9)];
    for (name, value) in settings {
        let before = first(&fs, raw);
        bed.set("tank/fs", name, value).unwrap();
        again(&fs);
        assert_eq!(first(&fs, raw).dvas == before.dvas, name == "compression", "{name}: noise has none");
        let block = first(&fs, id);
        again(&fs);
        assert_eq!(first(&fs, id), block, "{name}");
    }
    // Without compression, or with a checksum that others could have too, blocks are not compared.
    for (name, value) in [("compression", OFF), ("checksum", FLETCHER4)] {
        bed.set("tank/fs", "compression", ON).unwrap();
        bed.set("tank/fs", name, value).unwrap();
        again(&fs);
        let block = first(&fs, id);
        again(&fs);
        assert_ne!(first(&fs, id).dvas, block.dvas, "{name}");
    }
    // A file that is cut off and written again does not go back to its old blocks: they may be damaged.
    bed.set("tank/fs", "checksum", SHA256).unwrap();
    again(&fs);
    let block = first(&fs, id);
    fs.truncate(id, 0).unwrap();
    again(&fs);
    assert_ne!(first(&fs, id).dvas, block.dvas);
    bed.expect_clean();
    drop(fs);
    bed.close();
    bed.ask_zdb(&[]);
}

#[test]
fn copies_and_redundant_metadata_decide_how_often_things_are_there() {
    let bed = Bed::new(2, &[("compression", OFF), ("copies", 3)], 0, 0);
    let id = make(bed.fs(), "f", 10 * RECORD);
    assert_eq!(first(bed.fs(), id).copies().count(), 3);
    let used = bed.get("tank/fs", "used");
    assert!(used >= 30 * RECORD, "{used}");
    // all, most, some, none: copies of an indirect block right above data, of dnodes, of the objset itself
    for (redundant_metadata, above, dnodes, objset) in
        [(0, 2, 2, 2), (1, 1, 2, 2), (2, 1, 1, 2), (3, 1, 1, 1)]
    {
        let name = format!("tank/r{redundant_metadata}");
        let fs = bed.filesystem(&name, &[("redundant_metadata", redundant_metadata)]).unwrap();
        let id = make(&fs, "f", 10 * RECORD);
        assert_eq!(first(&fs, id).copies().count(), 1);
        let copies = |ptr: &format::BlockPtr| ptr.block().unwrap().copies().count();
        let (phys, root) = fs.dataset().objset().synced_root();
        assert_eq!(copies(&root), objset, "{name}: the objset itself");
        let file = fs.dataset().objset().object(id).unwrap().synced().unwrap();
        assert_eq!(copies(&file.block_ptrs[0]), above, "{name}: an indirect block");
        assert_eq!(copies(&phys.meta_dnode.block_ptrs[0]), dnodes, "{name}: dnodes");
    }
    bed.expect_clean();
}

#[test]
fn dnodes_are_as_large_as_asked_for() {
    let mut bed = Bed::new(3, &[], 0, 0);
    for (dnodesize, slots) in [(0, 1), (1, 2), (1024, 2), (2048, 4), (4096, 8), (8192, 16), (16384, 32)] {
        bed.set("tank/fs", "dnodesize", dnodesize).unwrap();
        let id = make(bed.fs(), &format!("f{dnodesize}"), 5000);
        let object = bed.fs().dataset().objset().object(id).unwrap();
        assert_eq!(object.head().slots, slots, "dnodesize {dnodesize}");
    }
    bed.expect_sound();
    bed.expect_clean();
    bed.close();
    bed.reopen();
    let id = bed.fs().resolve(b"/f16384", false).unwrap();
    assert_eq!(bed.fs().read_all(id, 1 << 20).unwrap(), words(5000));
    bed.close();
    bed.ask_zdb(&[]);
}

#[test]
fn names_are_compared_by_the_normalization_and_case_of_the_file_system() {
    for (case, found) in [(0, false), (1, true), (2, false)] {
        let bed = Bed::new(4 + case, &[], case, 0);
        let (fs, root) = (bed.fs(), bed.fs().root());
        fs.create(root, b"Name", &file()).unwrap();
        assert_eq!(fs.lookup(root, b"nAME").unwrap().is_some(), found, "casesensitivity {case}");
        assert_eq!(fs.create(root, b"NAME", &file()).is_ok(), !found, "casesensitivity {case}");
        bed.expect_sound();
    }
    const FORM_C: u64 = 0x50;
    let bed = Bed::new(8, &[], 0, FORM_C);
    let (fs, root) = (bed.fs(), bed.fs().root());
    fs.create(root, "e\u{301}".as_bytes(), &file()).unwrap();
    assert!(fs.lookup(root, "\u{e9}".as_bytes()).unwrap().is_some());
    assert!(matches!(fs.create(root, b"\xff", &file()), Err(Error::NotUtf8)));
    bed.expect_sound();
}
