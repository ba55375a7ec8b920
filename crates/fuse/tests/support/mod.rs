//! Pools in files, mounted, for the tests of this crate; and a way to see what a tree holds.
#![allow(dead_code, reason = "each test file uses a part of it")]

#[path = "../../../front/tests/waits/mod.rs"]
pub mod waits;

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use fuse::{MountError, MountOptions, Mounted};
use pool::props::Value;
use pool::{CreateSpec, NewFilesystem, Options, Pool};
use storage::host::{Access, Before, Disk, FileDisk, Host};
use zpl::Filesystem;

use waits::PATIENCE;

/// Whether file systems can be mounted here. If not, it is said, and tests have nothing to do; with
/// `CENOTE_ORACLE=required` that is a failure.
pub fn usable() -> bool {
    let device = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let root = rustix::process::geteuid().is_root();
    let helper = Command::new("fusermount3").arg("-V").output().is_ok();
    let fit = device.is_ok() && (root || helper);
    if !fit {
        let required = std::env::var("CENOTE_ORACLE").is_ok_and(|value| value == "required");
        assert!(!required, "/dev/fuse cannot be used, and CENOTE_ORACLE=required");
        eprintln!("skipped: /dev/fuse cannot be used here");
    }
    fit
}

fn new_filesystem(host: &Host) -> NewFilesystem {
    NewFilesystem {
        host: host.clone(),
        normalization: 0,
        utf8only: false,
        casesensitivity: 0,
        project_quota: true,
        version: 5,
        encryption: Default::default(),
    }
}

fn disk(path: &Path) -> Arc<dyn Disk> {
    Arc::new(FileDisk::open(path, Access::ReadWrite { exclusive: true }).unwrap())
}

fn options() -> Options {
    Options { workers: 2, ..Options::default() }
}

/// A file system `tank/fs` in a file, mounted.
pub struct Bed {
    folder: tempfile::TempDir,
    pool: Option<Pool>,
    mounted: Option<Mounted>,
    mount_options: MountOptions,
    gate: Arc<Gate>,
}

/// Lets reads from the disk through, or holds them.
#[derive(Debug, Default)]
pub struct Gate {
    is_shut: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub fn shut(&self) {
        *self.is_shut.lock().unwrap() = true;
    }

    pub fn open(&self) {
        *self.is_shut.lock().unwrap() = false;
        self.opened.notify_all();
    }

    fn pass(&self) {
        drop(self.opened.wait_while(self.is_shut.lock().unwrap(), |is_shut| *is_shut).unwrap());
    }
}

/// A disk whose reads wait at a gate.
#[derive(Debug)]
struct Gated {
    disk: Arc<dyn Disk>,
    gate: Arc<Gate>,
}

impl Before for Gated {
    fn disk(&self) -> &dyn Disk {
        &*self.disk
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.gate.pass();
        self.disk.read_at(buf, offset)
    }

    fn write_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> std::io::Result<()> {
        self.disk.write_at(bufs, offset)
    }

    fn flush(&self) -> std::io::Result<()> {
        self.disk.flush()
    }
}

impl Bed {
    pub fn new(size: u64, properties: &[(&str, u64)]) -> Bed {
        Bed::with(size, properties, MountOptions { source: "tank/fs".into(), ..MountOptions::default() })
    }

    pub fn with(size: u64, properties: &[(&str, u64)], mount_options: MountOptions) -> Bed {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        std::fs::File::create(&path).unwrap().set_len(size).unwrap();
        std::fs::create_dir(folder.path().join("mnt")).unwrap();
        let options = options();
        let host = options.host.clone();
        let spec = CreateSpec {
            ashift: Some(12),
            ..CreateSpec::new("tank", vec![disk(&path)], new_filesystem(&host), zpl::initialiser())
        };
        let pool = Pool::create(spec, options).unwrap();
        let local = properties.iter().map(|&(name, value)| (name.to_owned(), Value::Number(value))).collect();
        pool.create_filesystem("tank/fs", local, new_filesystem(&host), zpl::initialiser()).unwrap();
        let gate = Arc::default();
        let mut bed = Bed { folder, pool: Some(pool), mounted: None, mount_options, gate };
        bed.mount();
        std::fs::set_permissions(bed.at(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        std::fs::set_permissions(bed.folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        bed
    }

    fn mount(&mut self) {
        let fs = Filesystem::open(self.pool().open("tank/fs").unwrap()).unwrap();
        self.mounted = Some(fuse::mount(fs, &self.at(), &self.mount_options).unwrap());
    }

    pub fn pool(&self) -> &Pool {
        self.pool.as_ref().unwrap()
    }

    /// Tells the kernel of changes that were not made through the mount.
    pub fn tell(&self, notices: &[zpl::session::Notice<'_>]) {
        notices.iter().for_each(|notice| self.mounted().session().changed(*notice));
    }

    pub fn mounted(&self) -> &Mounted {
        self.mounted.as_ref().unwrap()
    }

    pub fn fs(&self) -> Filesystem {
        self.mounted().filesystem().unwrap()
    }

    /// Where it is mounted.
    pub fn at(&self) -> PathBuf {
        self.folder.path().join("mnt")
    }

    pub fn set(&self, name: &str, value: u64) {
        let change = vec![(name.to_owned(), Some(Value::Number(value)))];
        self.pool().set_properties("tank/fs", change).unwrap();
    }

    pub fn image(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    /// Unmounts and exports.
    pub fn close(&mut self) {
        let mounted = self.mounted.take().unwrap();
        // A process that another test is just starting has our open files until it becomes its program.
        let deadline = Instant::now() + PATIENCE;
        loop {
            match mounted.unmount(false) {
                Err(MountError::Busy(_)) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                other => break other.unwrap(),
            }
        }
        drop(mounted);
        self.pool.take().unwrap().export().unwrap();
    }

    /// Looks for anything wrong in the closed pool.
    pub fn check(&self) {
        let pool = Pool::import_disks(vec![disk(&self.image())], options()).unwrap();
        let mut problems = Vec::new();
        scan::check::check(&pool, &mut |finding| problems.push(finding.to_string())).unwrap();
        let fs = Filesystem::open(pool.open("tank/fs").unwrap()).unwrap();
        zpl::check::check_filesystem(&fs, &mut |problem| problems.push(problem.to_string())).unwrap();
        assert!(problems.is_empty(), "{problems:#?}");
        drop(fs);
        pool.export().unwrap();
    }

    pub fn open(&mut self) {
        let gated = Gated { disk: disk(&self.image()), gate: self.gate.clone() };
        self.pool = Some(Pool::import_disks(vec![Arc::new(gated)], options()).unwrap());
        self.mount();
    }

    /// Holds reads from the disk; there is none before the first remount.
    pub fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// Empties all caches, so that the next reads come from the image.
    pub fn remount(&mut self) {
        self.close();
        self.open();
    }

    /// Unmounts, exports, checks, and lets zdb judge.
    pub fn finish(mut self) -> Bed {
        self.close();
        self.check();
        self.ask_zdb();
        self
    }

    /// Lets the `zdb` of real OpenZFS read the closed image.
    fn ask_zdb(&self) {
        let oracle = concat!(env!("CARGO_MANIFEST_DIR"), "/../../oracle/zdb-check");
        let out = Command::new(oracle).arg("tank").arg(self.image()).output().unwrap();
        let said =
            format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        // 2: zdb is not installed here.
        assert!(out.status.success() || out.status.code() == Some(2), "{said}");
    }
}

/// A folder on a file system of the kernel's own, to compare with.
pub fn reference() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// The contents of a tree, name by name: kind, mode, links, owners, size, contents, extended attributes.
pub fn tree(top: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut todo = vec![top.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            let data = path.symlink_metadata().unwrap();
            let kind = data.file_type();
            let mut said =
                format!("{:o} links {} owner {}:{} ", data.mode(), data.nlink(), data.uid(), data.gid());
            if kind.is_dir() {
                todo.push(path.clone());
            } else if kind.is_symlink() {
                said += &format!("-> {:?}", std::fs::read_link(&path).unwrap());
            } else if kind.is_file() {
                let content = std::fs::read(&path).unwrap();
                assert_eq!(content.len() as u64, data.len(), "{path:?}");
                said += &format!("{} bytes {:x}", data.len(), digest(&content));
            } else if kind.is_char_device() || kind.is_block_device() {
                said += &format!("device {:x}", data.rdev());
            }
            if kind.is_dir() || kind.is_file() {
                let mut names: Vec<_> = xattr::list(&path).map(Iterator::collect).unwrap_or_default();
                names.sort();
                for name in names.iter().filter(|name| name.as_bytes().starts_with(b"user.")) {
                    let value = xattr::get(&path, name).unwrap().unwrap();
                    said += &format!(" {name:?}={} bytes {:x}", value.len(), digest(&value));
                }
            }
            found.insert(path.strip_prefix(top).unwrap().to_owned(), said);
        }
    }
    found
}

/// The FNV-1a hash of some contents.
pub fn digest(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// The first difference between two trees, in words.
pub fn difference(ours: &Path, theirs: &Path) -> Option<String> {
    let (ours, theirs) = (tree(ours), tree(theirs));
    for (path, said) in &ours {
        match theirs.get(path) {
            None => return Some(format!("{path:?} is too many: {said}")),
            Some(other) if other != said => return Some(format!("{path:?}: {said}, not {other}")),
            Some(_) => {}
        }
    }
    theirs.keys().find(|path| !ours.contains_key(*path)).map(|path| format!("{path:?} is missing"))
}

/// Runs a shell script in `dir`; what it printed, and `exit N` if it failed.
pub fn shell(dir: &Path, script: &str) -> String {
    let out = Command::new("bash").arg("-c").arg(script).current_dir(dir).output().unwrap();
    let mut said = String::from_utf8_lossy(&out.stdout).into_owned();
    said += &String::from_utf8_lossy(&out.stderr);
    if !out.status.success() {
        said += &format!("exit {:?}\n", out.status.code());
    }
    said
}

/// Small random numbers, the same for the same seed.
pub struct Chance(pub u64);

impl Chance {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        // Half of it is the same byte over and over: it compresses.
        if self.below(2) == 0 {
            return vec![self.next() as u8; len];
        }
        (0..len).map(|_| self.next() as u8).collect()
    }
}

/// Sets the flag when it is dropped. So threads that run until then also end when the test fails, and the failure is
/// reported.
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
