//! `.zfs/volume`: volumes as files of the mount of the file system above them.

mod support;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use pool::props::Value;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;
use support::{Bed, Chance, usable};
use zpl::{Volume, volume_initialiser};

const MIB: u64 = 1 << 20;

trait Volumes {
    fn make(&self, leaf: &str);
    fn file(&self, leaf: &str) -> PathBuf;
    fn let_go(&self, name: &str);
    fn destroy(&self, leaf: &str) -> pool::Result<()>;
    fn names(&self) -> Vec<String>;
    fn tune(&self, name: &str, property: &str, value: u64);
}

impl Volumes for Bed {
    /// A volume of 16 MiB.
    fn make(&self, leaf: &str) {
        let init = volume_initialiser(16 * MIB, 16 << 10);
        self.pool().create_volume(&format!("tank/fs/{leaf}"), Vec::new(), Default::default(), init).unwrap();
    }

    fn file(&self, leaf: &str) -> PathBuf {
        self.at().join(".zfs/volume").join(leaf)
    }

    /// Makes the kernel drop a dataset, as the server does.
    fn let_go(&self, name: &str) {
        let info = self.pool().dataset(name).unwrap();
        let key = pool::SnapshotKey { id: info.id, guid: info.phys.guid };
        self.mounted().let_go_of_snapshot(key, b"");
    }

    /// Destroys one, as the server does.
    fn destroy(&self, leaf: &str) -> pool::Result<()> {
        let name = format!("tank/fs/{leaf}");
        self.let_go(&name);
        self.pool().destroy_dataset(&name)
    }

    fn names(&self) -> Vec<String> {
        let folder = fs::read_dir(self.at().join(".zfs/volume")).unwrap();
        let mut names: Vec<String> =
            folder.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn tune(&self, name: &str, property: &str, value: u64) {
        self.pool().set_properties(name, vec![(property.to_owned(), Some(Value::Number(value)))]).unwrap();
    }
}

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> Errno {
    Errno::from_raw_os_error(result.unwrap_err().raw_os_error().unwrap())
}

fn both_ways() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options
}

#[test]
fn a_volume_is_a_file_of_its_size_for_its_owner() {
    if !usable() {
        return;
    }
    let bed = Bed::new(128 << 20, &[]);
    bed.make("vol");
    fs::create_dir(bed.at().join("folder")).unwrap();
    assert_eq!(bed.names(), ["vol"]);
    let listed: Vec<_> =
        fs::read_dir(bed.at().join(".zfs")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!listed.contains(&"volume".into()), "OpenZFS has no such folder: {listed:?}");
    let stat = fs::metadata(bed.file("vol")).unwrap();
    assert!(stat.is_file());
    assert_eq!((stat.len(), stat.mode() & 0o7777), (16 * MIB, 0o600));
    assert_eq!(stat.uid(), rustix::process::geteuid().as_raw());
    assert_eq!(errno(fs::metadata(bed.file("none"))), Errno::NOENT);
    assert_eq!(errno(fs::metadata(bed.file("folder"))), Errno::NOENT);
    assert_eq!(errno(fs::write(bed.file("new"), b"x")), Errno::ACCESS);
    assert_eq!(errno(fs::remove_file(bed.file("vol"))), Errno::PERM);
    assert_eq!(errno(fs::set_permissions(bed.file("vol"), fs::Permissions::from_mode(0o666))), Errno::PERM);
    assert_eq!(errno(fs::rename(bed.file("vol"), bed.at().join("stolen"))), Errno::PERM);
    // As a device.
    let file = both_ways().truncate(true).open(bed.file("vol")).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 16 * MIB);
    assert_eq!(errno(file.set_len(5)), Errno::INVAL);
    drop(file);
    bed.finish();
}

#[test]
fn writes_to_the_file_of_a_volume_are_in_the_volume() {
    if !usable() {
        return;
    }
    let bed = Bed::new(128 << 20, &[]);
    bed.make("vol");
    let mut model = vec![0; 16 * MIB as usize];
    let mut chance = Chance(4);
    let file = both_ways().open(bed.file("vol")).unwrap();
    for (offset, len) in [(0, 4096), (5000, 70_000), (3 * MIB, 2_000_000), (16 * MIB - 512, 512)] {
        let data = chance.bytes(len);
        file.write_all_at(&data, offset).unwrap();
        model[offset as usize..][..len].copy_from_slice(&data);
    }
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 3 * MIB + 100, MIB).unwrap();
    model[3 * MIB as usize + 100..][..MIB as usize].fill(0);
    rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, 4096, 1000).unwrap();
    model[4096..5096].fill(0);
    assert_eq!(
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, MIB).unwrap_err(),
        Errno::OPNOTSUPP,
        "space is kept by refreservation"
    );
    file.sync_all().unwrap();
    let volume = || Volume::open(bed.pool().open("tank/fs/vol").unwrap()).unwrap();
    let mut seen = vec![1; model.len()];
    volume().read(0, &mut seen).unwrap();
    assert!(seen == model);
    // Data at the start; a hole behind it; the punched blocks, and the last one.
    let at = |from: SeekFrom| rustix::fs::seek(&file, from);
    assert_eq!(at(SeekFrom::Data(0)), Ok(0));
    assert_eq!(at(SeekFrom::Hole(0)), Ok(80 << 10));
    assert_eq!(at(SeekFrom::Data(80 << 10)), Ok(3 * MIB));
    assert_eq!(at(SeekFrom::Hole(3 * MIB)), Ok(3 * MIB + (16 << 10)));
    assert_eq!(at(SeekFrom::Data(8 * MIB)), Ok(16 * MIB - (16 << 10)));
    assert_eq!(at(SeekFrom::Hole(16 * MIB - 1)), Ok(16 * MIB));
    assert_eq!(at(SeekFrom::Data(16 * MIB)), Err(Errno::NXIO));
    let direct =
        both_ways().custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32).open(bed.file("vol")).unwrap();
    let page = chance.bytes(4096);
    direct.write_all_at(&page, 8 * MIB).unwrap();
    let mut found = vec![0; 4096];
    file.read_exact_at(&mut found, 8 * MIB).unwrap();
    assert!(found == page);
    drop((file, direct));
    bed.finish();
}

#[test]
fn a_file_has_the_size_of_its_volume_again_after_writes_beyond_the_end() {
    if !usable() {
        return;
    }
    let bed = Bed::new(128 << 20, &[]);
    bed.make("vol");
    let len = || fs::metadata(bed.file("vol")).unwrap().len();
    let settles = || {
        let is_right = |_| {
            len() == 16 * MIB || {
                sleep(Duration::from_millis(10));
                false
            }
        };
        (0..500).any(is_right)
    };
    let file = both_ways().open(bed.file("vol")).unwrap();
    let beyond = file.write_all_at(&[1; 4096], 16 * MIB).and_then(|()| file.sync_all());
    assert!(matches!(errno(beyond), Errno::NOSPC | Errno::IO));
    drop(file);
    assert!(settles(), "the file is longer than its volume: {}", len());
    // As when a larger image is copied to it.
    let mut image = both_ways().open(bed.file("vol")).unwrap();
    let copied =
        (0..20).try_for_each(|_| image.write_all(&[5; MIB as usize])).and_then(|()| image.sync_all());
    assert!(matches!(errno(copied), Errno::NOSPC | Errno::IO));
    drop(image);
    assert!(settles(), "the file is longer than its volume: {}", len());
    let file = File::open(bed.file("vol")).unwrap();
    let mut found = vec![0; 4096];
    assert_eq!(file.read_at(&mut found, 16 * MIB).unwrap(), 0);
    file.read_exact_at(&mut found, 16 * MIB - 4096).unwrap();
    assert_eq!(found, [5; 4096]);
    drop(file);
    bed.finish();
}

#[test]
fn a_volume_in_use_stays_and_one_that_was_used_goes() {
    if !usable() {
        return;
    }
    let bed = Bed::new(128 << 20, &[]);
    bed.make("vol");
    let file = File::open(bed.file("vol")).unwrap();
    assert!(matches!(bed.destroy("vol"), Err(pool::Error::DatasetBusy(_))));
    drop(file);
    // The kernel still has the file in its cache.
    fs::read(bed.file("vol")).unwrap();
    bed.destroy("vol").unwrap();
    assert_eq!(errno(fs::metadata(bed.file("vol"))), Errno::NOENT);
    bed.make("vol");
    assert_eq!(fs::read(bed.file("vol")).unwrap(), vec![0; 16 * MIB as usize]);
    Volume::open(bed.pool().open("tank/fs/vol").unwrap()).unwrap().resize(32 * MIB).unwrap();
    bed.let_go("tank/fs/vol");
    assert_eq!(fs::metadata(bed.file("vol")).unwrap().len(), 32 * MIB);
    bed.finish();
}

#[test]
fn volmode_hides_volumes_and_snapdev_shows_their_snapshots() {
    if !usable() {
        return;
    }
    let bed = Bed::new(128 << 20, &[]);
    bed.make("a");
    bed.make("b");
    both_ways().open(bed.file("a")).unwrap().write_all_at(b"before", 0).unwrap();
    File::open(bed.file("a")).unwrap().sync_all().unwrap();
    bed.pool().snapshot(&["tank/fs/a@s".to_owned()], &[]).unwrap();
    assert_eq!(bed.names(), ["a", "b"]);
    assert_eq!(errno(fs::metadata(bed.file("a@s"))), Errno::NOENT);
    bed.tune("tank/fs/a", "snapdev", 1);
    bed.tune("tank/fs/b", "volmode", 3);
    assert_eq!(bed.names(), ["a", "a@s"]);
    assert_eq!(errno(fs::metadata(bed.file("b"))), Errno::NOENT);
    let snapshot = fs::metadata(bed.file("a@s")).unwrap();
    assert_eq!((snapshot.len(), snapshot.mode() & 0o7777), (16 * MIB, 0o400));
    both_ways().open(bed.file("a")).unwrap().write_all_at(b"behind", 0).unwrap();
    assert_eq!(fs::read(bed.file("a@s")).unwrap()[..6], *b"before");
    assert_eq!(fs::read(bed.file("a")).unwrap()[..6], *b"behind");
    if let Ok(file) = both_ways().open(bed.file("a@s")) {
        // Root may open it.
        assert!(file.write_all_at(b"never", 0).and_then(|()| file.sync_all()).is_err());
        drop(file);
        assert_eq!(fs::read(bed.file("a@s")).unwrap()[..6], *b"before");
    }
    bed.let_go("tank/fs/a@s");
    bed.pool().destroy_snapshots(&["tank/fs/a@s".to_owned()], false).unwrap();
    assert_eq!(bed.names(), ["a"]);
    bed.finish();
}
