//! Files that share blocks: what can be cloned, its cost, and its state after a crash.

use format::ObjectId;
use format::features;
use pool::{Clones, FeatureState};
use storage::host::{Entropy, SeededEntropy};
use zpl::{Error, Filesystem, NotCloned, Place, SetAttr, pflags};

use super::support::{Bed, encrypted_with};
use super::{content, crash_and_return_by, file, id_of};

const RECORD: usize = 128 << 10;

/// A file system whose pool lets files share blocks, and whose log is in use.
fn cloning(seed: u64) -> Bed {
    let bed = Bed::stepwise(seed, &[]);
    bed.pool().enable_features(vec![&features::BLOCK_CLONING]).unwrap();
    bed.fs().fsync(bed.fs().root()).unwrap();
    bed
}

fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut data = vec![0; len];
    SeededEntropy::new(seed).fill(&mut data);
    data
}

/// A new file with this content.
fn make(fs: &Filesystem, name: &str, data: &[u8]) -> ObjectId {
    let id = fs.create(fs.root(), name.as_bytes(), &file()).unwrap();
    fs.write(id, 0, data).unwrap();
    id
}

fn place(fs: &Filesystem, id: ObjectId, offset: u64) -> Place<'_> {
    Place { fs, id, offset }
}

/// Clones a whole file.
fn clone(fs: &Filesystem, from: (&Filesystem, ObjectId), to: &str) -> Result<ObjectId, Error> {
    let id = fs.create(fs.root(), to.as_bytes(), &file()).unwrap();
    let size = from.0.stat(from.1).unwrap().size;
    fs.clone_range(place(from.0, from.1, 0), (id, 0), size).map(|bytes| {
        assert_eq!(bytes, size);
        id
    })
}

/// zdb judges the pool. One of before 2.2 does not know clones.
fn end(mut bed: Bed) {
    bed.close();
    bed.ask_zdb(&["--newer"]);
}

fn state(bed: &Bed) -> FeatureState {
    bed.pool().info().feature(&features::BLOCK_CLONING)
}

fn counted(bed: &Bed) -> Clones {
    bed.pool().sync().unwrap();
    bed.pool().info().clones
}

#[test]
fn clones_share_blocks_until_the_last_of_them_goes() {
    let bed = cloning(41);
    let fs = bed.fs();
    let data = random(1, 3 * RECORD + 1000);
    let a = make(fs, "a", &data);
    let used = |name: &str| bed.pool().dataset(name).unwrap().phys.referenced_bytes;
    assert!(matches!(clone(fs, (fs, a), "early"), Err(Error::NotCloned(NotCloned::Unsettled))));
    fs.unlink(fs.root(), b"early").unwrap();
    bed.pool().sync().unwrap();
    let (before, free) = (used("tank/fs"), bed.pool().info().space.allocated);
    let b = clone(fs, (fs, a), "b").unwrap();
    // Before the sync, after it, and of a clone that is not on disk yet.
    assert_eq!(content(fs, "/b"), data);
    let c = clone(fs, (fs, b), "c").unwrap();
    let clones = counted(&bed);
    assert_eq!(clones.ratio_percent(), 300);
    assert_eq!((clones.saved, used("tank/fs") - before >= clones.saved), (2 * clones.used, true));
    assert!(bed.pool().info().space.allocated - free < 200 << 10, "no data was written");
    assert_eq!((content(fs, "/b"), content(fs, "/c")), (data.clone(), data.clone()));
    assert_eq!(state(&bed), FeatureState::Active);
    bed.expect_clean();
    // One of them changes in part, one goes, and so does the source.
    fs.write(c, RECORD as u64 + 5, b"changed").unwrap();
    fs.truncate(b, RECORD as u64).unwrap();
    bed.pool().sync().unwrap();
    bed.expect_clean();
    fs.unlink(fs.root(), b"a").unwrap();
    bed.pool().sync().unwrap();
    bed.expect_clean();
    let mut changed = data.clone();
    changed[RECORD + 5..RECORD + 12].copy_from_slice(b"changed");
    assert_eq!((content(fs, "/b"), content(fs, "/c")), (data[..RECORD].to_vec(), changed));
    for name in [&b"b"[..], b"c"] {
        fs.unlink(fs.root(), name).unwrap();
    }
    assert_eq!(counted(&bed), Clones::default());
    assert_eq!(state(&bed), FeatureState::Enabled);
    bed.expect_clean();
    end(bed);
}

#[test]
fn impossible_clones_are_refused_with_the_reason() {
    let bed = cloning(42);
    let fs = bed.fs();
    let a = make(fs, "a", &random(2, 4 * RECORD));
    let small = make(fs, "small", &random(3, 1000));
    let other = bed.filesystem("tank/other", &[("recordsize", 16 << 10)]).unwrap();
    let lz4 = bed.filesystem("tank/lz4", &[("compression", 2)]).unwrap();
    let many = make(&other, "many", &random(4, 64 << 10));
    bed.pool().sync().unwrap();
    let refused = |to: &Filesystem, from: Place<'_>, at: (ObjectId, u64), len: u64| match to
        .clone_range(from, at, len)
    {
        Err(Error::NotCloned(why)) => why,
        other => panic!("{other:?}"),
    };
    let b = fs.create(fs.root(), b"b", &file()).unwrap();
    let record = RECORD as u64;
    assert_eq!(refused(fs, place(fs, a, 1), (b, 0), record), NotCloned::Unaligned);
    assert_eq!(refused(fs, place(fs, a, 0), (b, 512), record), NotCloned::Unaligned);
    assert_eq!(refused(fs, place(fs, a, 0), (b, 0), 1000), NotCloned::Unaligned);
    assert_eq!(refused(&other, place(fs, a, 0), (many, 0), record), NotCloned::Unaligned);
    assert_eq!(refused(fs, place(&other, many, 0), (a, 0), record), NotCloned::Unaligned);
    assert_eq!(refused(fs, place(fs, small, 0), (b, 1024), 1000), NotCloned::Unaligned);
    let id = lz4.create(lz4.root(), b"x", &file()).unwrap();
    assert_eq!(refused(&lz4, place(fs, a, 0), (id, 0), record), NotCloned::Across);
    assert!(matches!(fs.clone_range(place(fs, a, 0), (a, record), 2 * record), Err(Error::Invalid)));
    // The whole blocks of a range that ends within one; nothing behind the end.
    assert_eq!(fs.clone_range(place(fs, a, 0), (b, 0), record + 5).unwrap(), record);
    assert_eq!(fs.clone_range(place(fs, a, 4 * record), (b, 0), 5).unwrap(), 0);
    assert_eq!(fs.clone_range(place(fs, a, record), (a, 3 * record), record).unwrap(), record);
    // Another record size does not matter to a new file, nor another dataset.
    let far = clone(&other, (fs, a), "far").unwrap();
    assert_eq!((other.stat(far).unwrap().block_size, content(&other, "/far")), (record, content(fs, "/a")));
    let short = clone(&other, (fs, small), "short").unwrap();
    assert_eq!(other.stat(short).unwrap().block_size, 1024);
    fs.setattr(b, &SetAttr { flags: Some(pflags::IMMUTABLE), ..SetAttr::default() }).unwrap();
    assert!(matches!(fs.clone_range(place(fs, a, 0), (b, 0), record), Err(Error::NotPermitted)));
    bed.pool().sync().unwrap();
    bed.expect_clean();
    drop((other, lz4));
    end(bed);
}

#[test]
fn snapshots_keys_and_quotas_are_heeded_by_clones() {
    let bed = cloning(43);
    let fs = bed.fs();
    let data = random(5, 4 * RECORD);
    let a = make(fs, "a", &data);
    bed.pool().sync().unwrap();
    bed.pool().snapshot(&["tank/fs@old".to_owned()], &[]).unwrap();
    fs.unlink(fs.root(), b"a").unwrap();
    // Out of a snapshot that alone has the file.
    let old = Filesystem::open(bed.pool().open("tank/fs@old").unwrap()).unwrap();
    clone(fs, (&old, a), "back").unwrap();
    bed.pool().sync().unwrap();
    bed.expect_clean();
    drop(old);
    bed.pool().destroy_snapshots(&["tank/fs@old".to_owned()], false).unwrap();
    bed.pool().sync().unwrap();
    bed.expect_clean();
    assert_eq!((content(fs, "/back"), counted(&bed)), (data.clone(), Clones::default()));
    // Each key has its own blocks; snapshots and clones of a dataset have its key.
    let mut sealed = Vec::new();
    for name in ["tank/one", "tank/two"] {
        let new = super::support::new_filesystem(bed.pool().host(), 0, 0);
        let new = pool::NewFilesystem { encryption: encrypted_with(format::crypt::Suite::Aes256Gcm), ..new };
        bed.pool().create_filesystem(name, Vec::new(), new, zpl::initialiser()).unwrap();
        sealed.push(Filesystem::open(bed.pool().open(name).unwrap()).unwrap());
    }
    let secret = make(&sealed[0], "secret", &data);
    bed.pool().sync().unwrap();
    for (to, from) in [
        (&sealed[1], (&sealed[0], secret)),
        (fs, (&sealed[0], secret)),
        (&sealed[0], (fs, id_of(fs, "/back"))),
    ] {
        assert!(matches!(clone(to, from, "no"), Err(Error::NotCloned(NotCloned::Across))));
    }
    clone(&sealed[0], (&sealed[0], secret), "again").unwrap();
    bed.pool().sync().unwrap();
    assert_eq!(content(&sealed[0], "/again"), data);
    // A clone counts like a copy: the one that reaches the quota is the last.
    bed.set("tank/fs", "refquota", (data.len() + RECORD + RECORD / 2) as u64).unwrap();
    let back = id_of(fs, "/back");
    clone(fs, (fs, back), "last").unwrap();
    let last = id_of(fs, "/last");
    let more = fs.clone_range(place(fs, back, 0), (last, 4 * RECORD as u64), RECORD as u64);
    assert!(matches!(more, Err(Error::Quota)));
    bed.expect_clean();
    drop(sealed);
    end(bed);
}

#[test]
fn clones_that_were_logged_are_there_after_a_crash() {
    for seed in 44..46 {
        let mut bed = cloning(seed);
        let data = random(seed, 5 * RECORD + 777);
        let a = make(bed.fs(), "a", &data);
        let sparse = make(bed.fs(), "sparse", &data[..RECORD]);
        bed.fs().write(sparse, 3 * RECORD as u64, &data[..RECORD]).unwrap();
        bed.pool().sync().unwrap();
        let fs = bed.fs();
        let b = clone(fs, (fs, a), "b").unwrap();
        clone(fs, (fs, sparse), "holes").unwrap();
        fs.write(b, 10, b"then data").unwrap();
        fs.clone_range(place(fs, a, RECORD as u64), (b, 3 * RECORD as u64), RECORD as u64).unwrap();
        // The source goes, and only the log knows of its blocks.
        fs.unlink(fs.root(), b"a").unwrap();
        fs.commit_all().unwrap();
        let mut expected = data.clone();
        expected[10..19].copy_from_slice(b"then data");
        expected.copy_within(RECORD..2 * RECORD, 3 * RECORD);
        let holes = content(fs, "/holes");
        crash_and_return_by(&mut bed, false);
        assert!(content(bed.fs(), "/b") == expected && content(bed.fs(), "/holes") == holes);
        assert_eq!(bed.fs().resolve(b"/a", false).unwrap_err().errno(), 2);
        bed.pool().sync().unwrap();
        bed.expect_clean();
        end(bed);
    }
}

#[test]
fn a_log_with_clones_that_is_given_up_leaves_nothing_behind() {
    let mut bed = cloning(46);
    let a = make(bed.fs(), "a", &random(6, 2 * RECORD));
    bed.pool().sync().unwrap();
    clone(bed.fs(), (bed.fs(), a), "b").unwrap();
    bed.fs().commit_all().unwrap();
    bed.crash();
    // Claimed, not replayed: the references are those of the log.
    let pool = bed.import();
    pool.sync().unwrap();
    let mut findings = Vec::new();
    scan::check::check(&pool, &mut |finding| findings.push(finding.to_string())).unwrap();
    assert!(findings.is_empty() && pool.info().clones.saved > 0, "{findings:#?}");
    pool.destroy_dataset("tank/fs").unwrap();
    for _ in 0..4 {
        pool.sync().unwrap();
    }
    assert_eq!(pool.info().clones, Clones::default());
    scan::check::check(&pool, &mut |finding| panic!("{finding}")).unwrap();
    pool.export().unwrap();
    bed.ask_zdb(&["--newer"]);
}
