//! Forced unmounts: what programs wrote before is kept, however long the pool takes to take it in.

mod support;

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;

use support::{Bed, usable};

#[test]
fn what_was_written_before_a_forced_unmount_is_kept_by_a_slow_pool() {
    if !usable() {
        return;
    }
    const PIECES: u64 = 150;
    // Pages that do not touch come one by one.
    let place = |n: u64| n * 12_345;
    let mut bed = Bed::new(256 << 20, &[]);
    let path = bed.at().join("f");
    let mut file = File::create(&path).unwrap();
    // From now on each change waits a tenth of a second, after the one before.
    for (name, value) in [
        ("zfs_txg_timeout", "3600"),
        ("zfs_delay_min_dirty_percent", "0"),
        ("zfs_delay_scale", "1000000000000"),
    ] {
        bed.pool().tune(name, value).unwrap();
    }
    for n in 0..PIECES {
        file.write_all_at(&n.to_le_bytes(), place(n)).unwrap();
    }
    bed.mounted().unmount(true).unwrap();
    assert!(file.write_all(b"lost").and_then(|()| file.sync_all()).is_err());
    drop(file);
    bed.pool().tune("zfs_delay_scale", "0").unwrap();
    bed.close();
    bed.check();
    bed.open();
    let file = File::open(&path).unwrap();
    let kept = |n: &u64| {
        let mut piece = [0; 8];
        file.read_exact_at(&mut piece, place(*n)).is_ok() && u64::from_le_bytes(piece) == *n
    };
    let lost: Vec<_> = (0..PIECES).filter(|n| !kept(n)).collect();
    assert_eq!(lost, [0; 0], "pieces that were written");
    drop(file);
    bed.finish();
}
