//! Pools that OpenZFS would not write, made by means of the engine's lower layers.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use format::ObjectId;
use storage::host::Access;
use zpl::{FileKind, Filesystem, NewNode};

use super::{Bed, Done, PATIENCE};

/// Runs the program and fails the test if it does not end in time.
pub fn run(mut command: Command) -> Done {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let began = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        if began.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("the command hangs");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().expect("it ended").into()
}

/// Opens the pool of an image in this process, hands out the file system `tank/fs`, and exports the pool.
pub fn craft(bed: &Bed, change: impl FnOnce(&Filesystem)) {
    let disk = pool::open_disk(&bed.path("tank.img"), Access::ReadWrite { exclusive: true }).expect("open");
    let pool = pool::Pool::import_disks(vec![Arc::new(disk)], pool::Options::default()).expect("imported");
    let fs = Filesystem::open(pool.open("tank/fs").expect("there")).expect("open");
    change(&fs);
    drop(fs);
    pool.export().expect("exported");
}

/// Gives the entry `old` of a small directory the name `new`, whatever other entries are called.
pub fn rename_on_disk(fs: &Filesystem, dir: ObjectId, old: &[u8], new: &[u8]) {
    assert_eq!(old.len(), new.len());
    let object = fs.dataset().objset().object(dir).expect("there");
    let mut block = vec![0; fs.stat(dir).expect("there").block_size as usize];
    object.read(0, &mut block).expect("read");
    // A micro ZAP: entries of 64 bytes behind a header of 64; the name is the last 50.
    let named = |entry: &[u8]| entry[14..].starts_with(old) && entry[14 + old.len()] == 0;
    let at = block.chunks(64).skip(1).position(named).expect("there") + 1;
    let tx = fs.dataset().begin(pool::Hold::write(1 << 16)).expect("begun");
    object.write(&tx, (at * 64 + 14) as u64, new).expect("written");
}

pub fn file(fs: &Filesystem, dir: ObjectId, name: &[u8], mode: u32, content: &[u8]) -> ObjectId {
    fs.create_with(dir, name, &NewNode::new(FileKind::Regular, mode), content.to_vec()).expect("made")
}

pub fn folder(fs: &Filesystem, dir: ObjectId, name: &[u8]) -> ObjectId {
    fs.create(dir, name, &NewNode::new(FileKind::Directory, 0o755)).expect("made")
}

pub fn link(fs: &Filesystem, dir: ObjectId, name: &[u8], target: &Path) {
    let node = NewNode::new(FileKind::Symlink, 0o777);
    fs.symlink(dir, name, &node, target.as_os_str().as_bytes()).expect("made");
}

/// Gives the folder `other` one more name.
pub fn name_again(fs: &Filesystem, dir: ObjectId, name: &[u8], other: ObjectId) {
    let object = fs.dataset().objset().object(dir).expect("there");
    let tx = fs.dataset().begin(pool::Hold::write(1 << 16)).expect("begun");
    // The kind of file is in the upper four bits of an entry: 4 is a directory.
    let value = format::zap::Value::from_u64(4 << 60 | other.0);
    dmu::zap::insert(&object, &tx, name, &value).expect("inserted");
}
