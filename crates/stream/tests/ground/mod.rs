//! A pool to receive streams into.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use codec::RunningFletcher4;
use format::stream::{End, Record};
use pool::{CreateSpec, NewFilesystem, Options, Pool, ReceiveOptions};
use storage::host::{Access, Disk};
use stream::{Incoming, Receiver};

use crate::oracle;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/golden");

/// The records with their checksums made anew.
pub fn sealed(records: &[(Record, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut sum = RunningFletcher4::new(format::ByteOrder::Little);
    for (record, payload) in records {
        let record = match record {
            Record::End(end) => Record::End(End { checksum: sum.sum(), ..*end }),
            other => other.clone(),
        };
        let mut raw = record.encode();
        match record {
            Record::Begin(_) => [&raw[..], payload].into_iter().for_each(|part| sum.add(part)),
            _ => sum.seal(&mut raw, payload),
        }
        out.extend_from_slice(&raw);
        out.extend_from_slice(payload);
    }
    out
}

pub fn unpack(name: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let unpacked = Command::new(format!("{GOLDEN}/unpack")).arg(name).arg(dir.path()).output().unwrap();
    assert!(unpacked.status.success(), "{}", String::from_utf8_lossy(&unpacked.stderr));
    dir
}

/// A pool to receive into, in a file that goes with the value.
pub struct Ground {
    pub folder: tempfile::TempDir,
    pub pool: Option<Pool>,
}

impl Ground {
    pub fn new() -> Ground {
        let folder = tempfile::tempdir().unwrap();
        std::fs::File::create(folder.path().join("disk")).unwrap().set_len(128 << 20).unwrap();
        let host = Options::default().host;
        let spec = CreateSpec {
            ashift: Some(9),
            ..CreateSpec::new(
                "tank",
                vec![Ground::disk(&folder)],
                NewFilesystem::plain(&host),
                Arc::new(|_, _, _| Ok(())),
            )
        };
        let pool = Pool::create(spec, Options::default()).unwrap();
        Ground { folder, pool: Some(pool) }
    }

    pub fn disk(folder: &tempfile::TempDir) -> Arc<dyn Disk> {
        let path = folder.path().join("disk");
        Arc::new(pool::open_disk(&path, Access::ReadWrite { exclusive: true }).unwrap())
    }

    pub fn pool(&self) -> &Pool {
        self.pool.as_ref().unwrap()
    }

    /// As after a power cut: the pool as of its last sync.
    pub fn crash(&mut self) {
        self.pool = None;
        self.pool = Some(Pool::import_disks(vec![Ground::disk(&self.folder)], Options::default()).unwrap());
    }

    pub fn receive(&self, stream: &[u8], into: &str) -> Result<(), pool::Error> {
        self.receive_with(stream, into, &ReceiveOptions::default())
    }

    pub fn receive_with(
        &self,
        stream: &[u8],
        into: &str,
        options: &ReceiveOptions,
    ) -> Result<(), pool::Error> {
        let mut stream = Incoming::open(stream)?;
        while let Some((begin, list)) = stream.next_stream()? {
            Receiver::new(self.pool()).receive(&mut stream, (&begin, &list), into, options)?;
        }
        Ok(())
    }

    pub fn names(&self) -> Vec<String> {
        self.pool().list("tank", None, true).unwrap().into_iter().map(|info| info.name).collect()
    }

    pub fn expect_sound(&self) {
        let mut findings = Vec::new();
        self.pool().sync().unwrap();
        pool::check::check(self.pool(), &mut |finding| findings.push(finding.to_string())).unwrap();
        assert!(findings.is_empty(), "{findings:#?}");
    }
}

/// Whatever a test leaves is judged.
impl Drop for Ground {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take().filter(|_| !std::thread::panicking()) {
            pool.export().unwrap();
            oracle::expect_pleased("tank", &self.folder.path().join("disk"));
        }
    }
}

pub fn golden(dir: &Path, name: &str) -> Vec<u8> {
    std::fs::read(dir.join(format!("gsend.{name}.zstream"))).unwrap()
}
