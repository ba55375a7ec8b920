//! A change that waits for its transaction holds no locks: all other requests for the same files and directories continue.

mod support;

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use pool::props::Value;
use pool::{CreateSpec, Hold, Options, Pool, Tx};
use storage::host::{Disk, Fault, Script};
use support::{Bed, new_filesystem, options};
use zpl::{Amount, FileKind, Filesystem, NewNode, ObjectId, Owner, Replace, SetAttr, XattrMode};

/// An answer that takes this long never comes.
const PATIENCE: Duration = Duration::from_secs(180);
const MIB: u64 = 1 << 20;

const FILE: NewNode = NewNode::new(FileKind::Regular, 0o644);
const DIR: NewNode = NewNode::new(FileKind::Directory, 0o755);

type Change = fn(&Tree) -> zpl::Result<()>;

/// Some files and directories in a file system.
struct Tree {
    fs: Filesystem,
    root: ObjectId,
    dir: ObjectId,
    file: ObjectId,
    other: ObjectId,
    open: ObjectId,
}

impl Tree {
    fn made(fs: Filesystem) -> Tree {
        let root = fs.root();
        let dir = fs.create(root, b"dir", &DIR).unwrap();
        let [file, other, open] =
            [&b"file"[..], b"other", b"open"].map(|name| fs.create(root, name, &FILE).unwrap());
        fs.create(root, b"gone", &FILE).unwrap();
        fs.create(root, b"empty", &DIR).unwrap();
        fs.write(file, 0, &vec![7; 3 << 20]).unwrap();
        fs.xattr_set(file, b"user.old", b"value", XattrMode::Either).unwrap();
        fs.open_handle(open).unwrap();
        fs.unlink(root, b"open").unwrap();
        Tree { fs, root, dir, file, other, open }
    }

    /// Calls of other programs meanwhile. Each of them must be answered.
    fn look(&self) {
        for id in [self.root, self.dir, self.file, self.other, self.open] {
            self.fs.stat(id).unwrap();
            self.fs.xattr_list(id).unwrap();
            self.fs.accessed(id, true).unwrap();
        }
        self.fs.lookup(self.root, b"file").unwrap().expect("it is there");
        assert!(self.fs.entries(self.root).unwrap().count() > 3);
        let mut byte = [0; 1];
        self.fs.read(self.file, 5, &mut byte).unwrap();
        self.fs.open_handle(self.file).unwrap();
    }

    /// Runs `change` while its transaction cannot begin. `release` ends that. Returns whether others were answered
    /// meanwhile, and how the change ended.
    fn answers_while_it_waits(&self, change: Change, release: impl FnOnce()) -> (bool, zpl::Result<()>) {
        std::thread::scope(|scope| {
            let changing = scope.spawn(|| change(self));
            while self.fs.dataset().waiting_changes() == 0 {
                assert!(!changing.is_finished(), "it did not wait: {:?}", changing.join());
                std::thread::yield_now();
            }
            let (tell, told) = mpsc::channel();
            scope.spawn(move || {
                self.look();
                let _ = tell.send(());
            });
            let answered = told.recv_timeout(PATIENCE).is_ok();
            release();
            (answered, changing.join().unwrap())
        })
    }
}

/// Every kind of change, with its name.
const CHANGES: [(&str, Change); 25] = [
    ("write", |t| t.fs.write(t.file, 0, b"data")),
    ("a write of several steps", |t| t.fs.write(t.file, 100, &vec![1; 2 << 20])),
    ("write_record", |t| t.fs.write_record(t.file, 0, vec![2; 128 << 10])),
    ("write_record of a part", |t| t.fs.write_record(t.file, 5, vec![2; 100])),
    ("truncate", |t| t.fs.truncate(t.file, 100)),
    ("extend", |t| t.fs.extend(t.file, 9 << 20)),
    ("punch", |t| t.fs.punch(t.file, 10, 1 << 20)),
    ("preallocate", |t| t.fs.preallocate(t.file, 0, 9 << 20, false)),
    ("copy_range", |t| t.fs.copy_range((t.file, 0), (t.other, 0), 1000).map(drop)),
    ("rewrite", |t| t.fs.rewrite(t.file, 0, None).map(drop)),
    ("create", |t| t.fs.create(t.root, b"new", &FILE).map(drop)),
    ("create_with", |t| t.fs.create_with(t.root, b"new", &FILE, vec![3; 1000]).map(drop)),
    ("mkdir", |t| t.fs.create(t.root, b"new", &DIR).map(drop)),
    ("symlink", |t| t.fs.symlink(t.root, b"new", &FILE, b"file").map(drop)),
    ("create_unnamed", |t| t.fs.close_handle(t.fs.create_unnamed(t.root, &FILE)?)),
    ("link", |t| t.fs.link(t.file, t.root, b"new")),
    ("unlink", |t| t.fs.unlink(t.root, b"gone")),
    ("rmdir", |t| t.fs.rmdir(t.root, b"empty")),
    ("rename", |t| t.fs.rename(t.root, b"other", t.dir, b"gone", Replace::Allowed)),
    ("exchange", |t| t.fs.exchange(t.root, b"file", t.root, b"empty")),
    ("setattr", |t| {
        t.fs.setattr(
            t.file,
            &SetAttr { mode: Some(0o600), uid: Some(7), size: Some(5), ..SetAttr::default() },
        )
    }),
    ("xattr_set", |t| t.fs.xattr_set(t.file, b"user.new", &[1; 1000], XattrMode::Either)),
    ("xattr_remove", |t| t.fs.xattr_remove(t.file, b"user.old")),
    ("freeing at the last close", |t| t.fs.close_handle(t.open)),
    ("set_quota", |t| t.fs.set_quota(Owner::User, Amount::Bytes, 9, 1 << 30)),
];

/// Nothing of the pool is synced before `release` is called: a txg waits for the transactions in it.
fn gate(tree: &Tree, hold: Hold) -> Tx {
    tree.fs.dataset().begin(hold).unwrap()
}

#[test]
fn a_change_blocked_by_a_closing_txg_blocks_no_other_caller() {
    // Extended attributes in files, so that their owner is changed with that of their file.
    for (name, change) in CHANGES {
        let bed = Bed::new(5, &[("xattr", 1)], 0, 0);
        let tree = Tree::made(bed.fs().clone());
        let gate = gate(&tree, Hold::free());
        std::thread::scope(|scope| {
            let syncing = scope.spawn(|| bed.pool().sync().unwrap());
            while tree.fs.dataset().begin_at_once(Hold::free()).unwrap().is_some() {
                std::thread::yield_now();
            }
            let (answered, done) = tree.answers_while_it_waits(change, || drop(gate));
            assert!(answered, "{name} keeps others waiting");
            done.unwrap_or_else(|error| panic!("{name}: {error}"));
            syncing.join().unwrap();
        });
        bed.expect_sound();
    }
}

/// Changes that need space, for where it is scarce.
fn growing() -> impl Iterator<Item = (&'static str, Change)> {
    const NAMES: [&str; 8] =
        ["write", "write_record", "create", "mkdir", "create_unnamed", "link", "rename", "xattr_set"];
    CHANGES.into_iter().filter(|(name, _)| NAMES.contains(name))
}

#[test]
fn nobody_waits_for_a_change_that_waits_at_a_quota_of_the_file_system() {
    let bed = Bed::new(5, &[("quota", 8 * MIB)], 0, 0);
    let tree = Tree::made(bed.fs().clone());
    for (name, change) in growing() {
        bed.pool().sync().unwrap();
        // More than the quota is promised. Only a sync shows how much of it was used.
        let gate = gate(&tree, Hold::write(16 * MIB));
        let (answered, done) = tree.answers_while_it_waits(change, || drop(gate));
        assert!(answered, "{name} keeps others waiting");
        done.unwrap_or_else(|error| panic!("{name}: {error}"));
        let _ = tree.fs.remove_tree(tree.root, b"new");
    }
    bed.expect_sound();
}

#[test]
fn nobody_waits_for_a_change_that_waits_at_the_quota_of_a_user() {
    for (name, change) in growing().filter(|(name, _)| name.contains("write") || name.contains("create")) {
        let bed = Bed::new(5, &[], 0, 0);
        let tree = Tree::made(bed.fs().clone());
        // From the first quota on, changes are counted before they are synced.
        tree.fs.set_quota(Owner::User, Amount::Bytes, 9, MIB).unwrap();
        bed.pool().sync().unwrap();
        let gate = gate(&tree, Hold::free());
        tree.fs.write(tree.other, 0, &vec![0; 5 << 20]).unwrap();
        tree.fs.set_quota(Owner::User, Amount::Bytes, 0, 4 * MIB).unwrap();
        let (answered, done) = tree.answers_while_it_waits(change, || drop(gate));
        assert!(answered, "{name} keeps others waiting");
        done.unwrap_or_else(|error| panic!("{name}: {error}"));
        bed.expect_sound();
    }
}

#[test]
fn nobody_waits_for_a_change_that_waits_for_free_space() {
    for (name, change) in growing() {
        let bed = Bed::sized(128 << 20, 5, &[], 0, 0);
        let tree = Tree::made(bed.fs().clone());
        bed.pool().sync().unwrap();
        let gate = gate(&tree, Hold::write(tree.fs.dataset().space_left() / 2));
        let (answered, done) = tree.answers_while_it_waits(change, || drop(gate));
        assert!(answered, "{name} keeps others waiting");
        done.unwrap_or_else(|error| panic!("{name}: {error}"));
        bed.expect_sound();
    }
}

#[test]
fn a_change_blocked_by_a_suspended_pool_blocks_no_other_caller() {
    let script = Script::new();
    let disk = Arc::new(script.disk("disk".to_owned(), 128 << 20)) as Arc<dyn Disk>;
    let options = Options { txg_timeout: 3600, ..options(5) };
    let new = new_filesystem(&options.host, 0, 0);
    let spec = CreateSpec { ashift: Some(9), ..CreateSpec::new("tank", vec![disk], new, zpl::initialiser()) };
    let pool = Pool::create(spec, options).unwrap();
    let tree = Tree::made(Filesystem::open(pool.open("tank").unwrap()).unwrap());
    pool.set_properties("tank", vec![("quota".to_owned(), Some(Value::Number(8 * MIB)))]).unwrap();
    pool.sync().unwrap();
    let mut watch = pool.suspend_on_refusal().unwrap();
    for (name, change) in [("write", CHANGES[0].1), ("create", CHANGES[10].1)] {
        // The change waits for a sync, and the device refuses what that sync writes.
        let gate = gate(&tree, Hold::write(16 * MIB));
        let disk = script.disks().swap_remove(0);
        let (answered, done) = std::thread::scope(|scope| {
            let changing = scope.spawn(|| change(&tree));
            while tree.fs.dataset().waiting_changes() == 0 {
                std::thread::yield_now();
            }
            disk.inject(Fault::WriteError { from_op: script.op_count() });
            drop(gate);
            watch.wait().expect("it is suspended");
            let (tell, told) = mpsc::channel();
            let tree = &tree;
            scope.spawn(move || {
                tree.look();
                let _ = tell.send(());
            });
            let answered = told.recv_timeout(PATIENCE).is_ok();
            disk.heal();
            pool.resume().unwrap();
            (answered, changing.join().unwrap())
        });
        assert!(answered, "{name} keeps others waiting");
        done.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    pool.export().unwrap();
}
