//! A pool in a file, for tests of the front ends that serve clients on sockets.
#![allow(dead_code, reason = "each front end uses a part of it")]

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use pool::{CreateSpec, NewFilesystem, Options, Pool};
use storage::host::{Access, Disk, FileDisk};

/// The pool `tank` in a file of 128 MiB.
pub struct Served {
    folder: tempfile::TempDir,
    pool: Arc<Pool>,
}

impl Served {
    pub fn new() -> Served {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        std::fs::File::create(&path).unwrap().set_len(128 << 20).unwrap();
        let disk: Arc<dyn Disk> =
            Arc::new(FileDisk::open(&path, Access::ReadWrite { exclusive: true }).unwrap());
        let options = Options::default();
        let plain = NewFilesystem::plain(&options.host);
        let spec = CreateSpec::new("tank", vec![disk], plain, zpl::initialiser());
        let pool = Arc::new(Pool::create(spec, options).unwrap());
        Served { folder, pool }
    }

    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// A path for another file, beside that of the pool.
    pub fn path(&self, name: impl AsRef<std::path::Path>) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Checks the pool, exports it, and asks real OpenZFS with these options.
    pub fn judge(self, options: &[&str]) {
        let pool = Arc::try_unwrap(self.pool).ok().expect("nobody has the pool any more");
        let mut findings = Vec::new();
        scan::check::check(&pool, &mut |finding| findings.push(finding.to_string())).unwrap();
        assert!(findings.is_empty(), "{findings:#?}");
        pool.export().unwrap();
        let oracle = concat!(env!("CARGO_MANIFEST_DIR"), "/../../oracle/zdb-check");
        let disk = self.folder.path().join("disk");
        let out = Command::new(oracle).args(options).arg("tank").arg(disk).output().unwrap();
        // 2: zdb is not installed here.
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success() || out.status.code() == Some(2), "{said}");
    }
}
