//! The log of a dataset that is rolled back or destroyed.

use super::*;

#[test]
fn a_dataset_with_a_log_is_rolled_back_and_destroyed_without_a_trace() {
    let mut bed = logged(11);
    let fs = bed.fs().clone();
    let id = fs.create_with(fs.root(), b"a", &file(), b"old".to_vec()).unwrap();
    fs.fsync(id).unwrap();
    bed.pool().snapshot(&["tank/fs@one".to_owned()], &[]).unwrap();
    fs.write(id, 0, b"new").unwrap();
    fs.fsync(id).unwrap();
    drop(fs);
    bed.fs = None;
    bed.pool().rollback("tank/fs@one").unwrap();
    let fs = Filesystem::open(bed.pool().open("tank/fs").unwrap()).unwrap();
    assert_eq!(content(&fs, "/a"), b"old");
    bed.expect_clean();
    // The dataset has a log again, and is destroyed with it.
    fs.fsync(fs.root()).unwrap();
    let id = fs.create(fs.root(), b"b", &file()).unwrap();
    fs.fsync(id).unwrap();
    drop(fs);
    bed.expect_clean();
    bed.pool().destroy_snapshots(&["tank/fs@one".to_owned()], false).unwrap();
    bed.pool().destroy_dataset("tank/fs").unwrap();
    bed.expect_clean();
    end(bed);
}
