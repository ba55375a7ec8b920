//! Pools for the tests of this crate.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use format::crypt::{KeyFormat, Suite};

use pool::props::Value;
use pool::{CreateSpec, NewEncryption, NewFilesystem, Options, OwnKey, Pool, UserKey, Wanted};
use storage::host::{Access, Disk, FileDisk, Host};
use zpl::Filesystem;

pub fn new_filesystem(host: &Host, casesensitivity: u64, normalization: u64) -> NewFilesystem {
    NewFilesystem {
        normalization,
        utf8only: normalization != 0,
        casesensitivity,
        ..NewFilesystem::plain(host)
    }
}

pub fn disk(path: &Path, writable: bool) -> Arc<dyn Disk> {
    let access = if writable { Access::ReadWrite { exclusive: true } } else { Access::ReadOnly };
    Arc::new(FileDisk::open(path, access).unwrap())
}

pub fn options(seed: u64) -> Options {
    Options { host: Host::seeded(seed, 1_700_000_000), ..Options::default() }
}

/// A file system `tank/fs` in a file that goes with the value.
pub struct Bed {
    folder: tempfile::TempDir,
    pool: Option<Pool>,
    pub fs: Option<Filesystem>,
    seed: u64,
    stepwise: bool,
    /// Bytes that may be dirty when it is opened again, if not as many as usual.
    pub dirty_max: Option<u64>,
}

/// How `tank/fs` is encrypted in the tests that say so, and in all with the environment variable `CENOTE_TEST_SUITE`.
pub fn encrypted_with(suite: Suite) -> NewEncryption {
    let user_key = UserKey { format: KeyFormat::Raw, salt: 0, iterations: 0 };
    let key = user_key.wrapping(&[7; 32]).unwrap();
    NewEncryption { wanted: Wanted::On(suite), own: Some(Arc::new(OwnKey { user_key, key })) }
}

fn encryption() -> NewEncryption {
    let Ok(name) = std::env::var("CENOTE_TEST_SUITE") else { return NewEncryption::default() };
    encrypted_with(Suite::ALL.into_iter().find(|suite| suite.name() == name).expect("a suite"))
}

/// Loads the key of each encryption root.
pub fn unlock(pool: &Pool) {
    for info in pool.list("tank", None, false).unwrap() {
        let Some(encryption) = pool.encryption(&info).unwrap() else { continue };
        if encryption.root == info.name && !encryption.is_loaded {
            let key = encryption.object.user_key.wrapping(&[7; 32]).unwrap();
            pool.load_key(&info, key, false).unwrap();
        }
    }
}

/// The settings that the pool of a [`Bed`] is made with.
struct Form {
    size: u64,
    casesensitivity: u64,
    normalization: u64,
    /// It syncs only when it is asked to.
    stepwise: bool,
    ashift: u32,
}

impl Form {
    const USUAL: Form =
        Form { size: 512 << 20, casesensitivity: 0, normalization: 0, stepwise: false, ashift: 9 };
}

impl Bed {
    pub fn new(seed: u64, properties: &[(&str, u64)], casesensitivity: u64, normalization: u64) -> Bed {
        Bed::sized(512 << 20, seed, properties, casesensitivity, normalization)
    }

    /// One whose pool syncs only when it is asked to.
    pub fn stepwise(seed: u64, properties: &[(&str, u64)]) -> Bed {
        Bed::made(Form { size: 256 << 20, stepwise: true, ..Form::USUAL }, seed, properties)
    }

    /// One whose file system is encrypted, and whose pool syncs only when it is asked to.
    pub fn encrypted(seed: u64, suite: Suite) -> Bed {
        let mut bed = Bed::stepwise(seed, &[]);
        bed.fs = None;
        bed.pool().destroy_dataset("tank/fs").unwrap();
        let new = new_filesystem(bed.pool().host(), 0, 0);
        let new = NewFilesystem { encryption: encrypted_with(suite), ..new };
        bed.pool().create_filesystem("tank/fs", Vec::new(), new, zpl::initialiser()).unwrap();
        bed.fs = Some(Filesystem::open(bed.pool().open("tank/fs").unwrap()).unwrap());
        bed
    }

    pub fn sized(
        size: u64,
        seed: u64,
        properties: &[(&str, u64)],
        casesensitivity: u64,
        normalization: u64,
    ) -> Bed {
        Bed::made(Form { size, casesensitivity, normalization, ..Form::USUAL }, seed, properties)
    }

    /// A bed on a disk with sectors of `1 << ashift` bytes.
    pub fn with_sectors(ashift: u32, seed: u64, properties: &[(&str, u64)]) -> Bed {
        Bed::made(Form { ashift, ..Form::USUAL }, seed, properties)
    }

    fn made(form: Form, seed: u64, properties: &[(&str, u64)]) -> Bed {
        let Form { size, casesensitivity, normalization, stepwise, ashift } = form;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        std::fs::File::create(&path).unwrap().set_len(size).unwrap();
        let options = Options { stepwise, ..options(seed) };
        let host = options.host.clone();
        let spec = CreateSpec {
            ashift: Some(ashift),
            ..CreateSpec::new(
                "tank",
                vec![disk(&path, true)],
                new_filesystem(&host, 0, 0),
                zpl::initialiser(),
            )
        };
        let pool = Pool::create(spec, options).unwrap();
        let local = properties.iter().map(|&(name, value)| (name.to_owned(), Value::Number(value))).collect();
        let new = NewFilesystem {
            encryption: encryption(),
            ..new_filesystem(&host, casesensitivity, normalization)
        };
        pool.create_filesystem("tank/fs", local, new, zpl::initialiser()).unwrap();
        let fs = Filesystem::open(pool.open("tank/fs").unwrap()).unwrap();
        Bed { folder, pool: Some(pool), fs: Some(fs), seed, stepwise, dirty_max: None }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("disk")
    }

    pub fn fs(&self) -> &Filesystem {
        self.fs.as_ref().unwrap()
    }

    pub fn pool(&self) -> &Pool {
        self.pool.as_ref().unwrap()
    }

    /// The same of the image as a crash left it, without replaying anything.
    pub fn expect_clean_as_left(&self) {
        let options = Options { read_only: true, ..options(self.seed) };
        let pool = Pool::import_disks(vec![disk(&self.path(), false)], options).unwrap();
        let mut findings = Vec::new();
        scan::check::check(&pool, &mut |finding| findings.push(finding.to_string())).unwrap();
        assert!(findings.is_empty(), "{findings:#?}");
    }

    /// Exports the pool; the image is closed.
    pub fn close(&mut self) {
        self.fs = None;
        self.pool.take().unwrap().export().unwrap();
    }

    /// Leaves the pool as a crash after the last sync would.
    pub fn crash(&mut self) {
        self.fs = None;
        self.pool = None;
    }

    /// The pool as it was left, imported.
    pub fn import(&mut self) -> Pool {
        self.seed += 1;
        let usual = options(self.seed);
        let dirty_max = self.dirty_max.unwrap_or(usual.dirty_max);
        let options = Options { stepwise: self.stepwise, dirty_max, ..usual };
        Pool::import_disks(vec![disk(&self.path(), true)], options).unwrap()
    }

    pub fn reopen(&mut self) {
        let pool = self.import();
        unlock(&pool);
        self.fs = Some(Filesystem::open(pool.open("tank/fs").unwrap()).unwrap());
        self.pool = Some(pool);
    }

    pub fn set_record_size(&self, bytes: u64) {
        self.set("tank/fs", "recordsize", bytes).unwrap();
    }

    pub fn set(&self, dataset: &str, name: &str, value: u64) -> pool::Result<()> {
        self.pool().set_properties(dataset, vec![(name.to_owned(), Some(Value::Number(value)))])
    }

    /// A property that is a number.
    pub fn get(&self, dataset: &str, name: &str) -> u64 {
        let info = self.pool().dataset(dataset).unwrap();
        match self.pool().property(&info, pool::props::dataset::parse(name).unwrap()).unwrap() {
            Some((Value::Number(number), _)) => number,
            other => panic!("{dataset} {name}: {other:?}"),
        }
    }

    /// One more file system, open.
    pub fn filesystem(&self, name: &str, properties: &[(&str, u64)]) -> pool::Result<Filesystem> {
        let local = properties.iter().map(|&(name, value)| (name.to_owned(), Value::Number(value))).collect();
        let new = new_filesystem(self.pool().host(), 0, 0);
        self.pool().create_filesystem(name, local, new, zpl::initialiser())?;
        Ok(Filesystem::open(self.pool().open(name)?).unwrap())
    }

    /// Nothing wrong with the pool: checksums, space, sums.
    pub fn expect_clean(&self) {
        let mut findings = Vec::new();
        scan::check::check(self.pool(), &mut |finding| findings.push(finding.to_string())).unwrap();
        assert!(findings.is_empty(), "{findings:#?}");
    }

    /// Nothing wrong with names, links, sizes and accounts.
    pub fn expect_sound(&self) {
        let mut problems = Vec::new();
        zpl::check::check_filesystem(self.fs(), &mut |problem| problems.push(problem.to_string())).unwrap();
        assert!(problems.is_empty(), "{problems:#?}");
    }

    /// Lets the `zdb` of real OpenZFS read the closed image.
    pub fn ask_zdb(&self, options: &[&str]) {
        let oracle = concat!(env!("CARGO_MANIFEST_DIR"), "/../../oracle/zdb-check");
        let Ok(out) = Command::new(oracle).args(options).arg("tank").arg(self.path()).output() else {
            return;
        };
        // 2: zdb is not installed here.
        let said =
            format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(out.status.success() || out.status.code() == Some(2), "{said}");
    }
}

/// Whatever a test leaves is judged.
impl Drop for Bed {
    fn drop(&mut self) {
        if self.pool.is_some() && !std::thread::panicking() {
            self.close();
            self.ask_zdb(&[]);
        }
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
