//! The write throttle: a caller that waits for the pool blocks no other caller.

mod support;

use std::sync::mpsc;
use std::time::Duration;

use support::Bed;
use zpl::{FileKind, NewNode, Replace, SetAttr, XattrMode};

/// Long enough that only a lock explains it.
const PATIENCE: Duration = Duration::from_secs(180);

type Change<'a> = Box<dyn Fn() + Send + Sync + 'a>;

#[test]
fn a_writer_that_waits_for_space_holds_no_locks() {
    let mut bed = Bed::new(5, &[], 0, 0);
    let fs = bed.fs().clone();
    let root = fs.root();
    let file = NewNode::new(FileKind::Regular, 0o644);
    let make = |name: &str| fs.create(root, name.as_bytes(), &file).unwrap();
    let [full, written, cut, named, gone, changed] =
        ["full", "written", "cut", "named", "gone", "changed"].map(make);
    fs.write(cut, 0, &[7; 100_000]).unwrap();
    let dir = fs.create(root, b"dir", &NewNode::new(FileKind::Directory, 0o755)).unwrap();
    // More is dirty than may be, and stays so: the sync that would write it waits for this transaction.
    let tune = |name: &str, value: &str| bed.pool().tune(name, value).unwrap();
    tune("zfs_txg_timeout", "3600");
    fs.write(full, 0, &vec![1; 8 << 20]).unwrap();
    let holds = fs.dataset().begin(pool::Hold::free()).unwrap();
    tune("zfs_dirty_data_max", "1M");

    let changes: [(&str, Change<'_>); 11] = [
        ("write", Box::new(|| fs.write(written, 0, b"data").unwrap())),
        ("write_record", Box::new(|| fs.write_record(written, 0, vec![2; 512]).unwrap())),
        ("truncate", Box::new(|| fs.truncate(cut, 10).unwrap())),
        ("punch", Box::new(|| fs.punch(cut, 0, 5).unwrap())),
        ("create", Box::new(|| assert!(fs.create(root, b"new", &file).is_ok()))),
        ("create_unnamed", Box::new(|| fs.close_handle(fs.create_unnamed(root, &file).unwrap()).unwrap())),
        ("link", Box::new(|| fs.link(named, root, b"second").unwrap())),
        ("unlink", Box::new(|| fs.unlink(root, b"gone").unwrap())),
        ("rename", Box::new(|| fs.rename(root, b"full", dir, b"full", Replace::Refused).unwrap())),
        (
            "setattr",
            Box::new(|| fs.setattr(changed, &SetAttr { mode: Some(0o600), ..SetAttr::default() }).unwrap()),
        ),
        ("xattr_set", Box::new(|| fs.xattr_set(changed, b"user.a", b"b", XattrMode::Either).unwrap())),
    ];
    std::thread::scope(|scope| {
        let writers: Vec<_> = changes.iter().map(|(_, change)| scope.spawn(change)).collect();
        let (tell, told) = mpsc::channel();
        let fs = &fs;
        scope.spawn(move || {
            // More than once: the first may come before the writers.
            for _ in 0..10 {
                std::thread::sleep(Duration::from_millis(20));
                for id in [root, dir, full, written, cut, named, gone, changed] {
                    fs.stat(id).unwrap();
                }
                fs.lookup(root, b"new").unwrap();
                let names = fs.entries(root).unwrap().count();
                tell.send(names).unwrap();
            }
        });
        let served: Vec<_> = (0..10).map_while(|_| told.recv_timeout(PATIENCE).ok()).collect();
        let waiting: Vec<_> = (changes.iter().zip(&writers))
            .filter(|(_, writer)| !writer.is_finished())
            .map(|((name, _), _)| *name)
            .collect();
        tune("zfs_dirty_data_max", "64M");
        drop(holds);
        assert_eq!(waiting, changes.each_ref().map(|(name, _)| *name), "nobody passes");
        assert_eq!(served, [7; 10], "lookups that were answered");
    });
    assert_eq!(fs.entries(root).unwrap().count(), 7);
    bed.expect_sound();
    drop(changes);
    drop(fs);
    bed.close();
    bed.ask_zdb(&[]);
}
