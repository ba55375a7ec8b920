//! A pool to receive streams into.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use codec::RunningFletcher4;
use format::stream::{End, Record};
use pool::{CreateSpec, NewFilesystem, Options, Pool, ReceiveOptions, SendFlags};
use storage::host::{Access, Disk};
use stream::{Incoming, Receiver, Sender};

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
        Ground::with_ashift(9)
    }

    pub fn with_ashift(ashift: u32) -> Ground {
        let folder = tempfile::tempdir().unwrap();
        std::fs::File::create(folder.path().join("disk")).unwrap().set_len(128 << 20).unwrap();
        let host = Options::default().host;
        let spec = CreateSpec {
            ashift: Some(ashift),
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
        scan::check::check(self.pool(), &mut |finding| findings.push(finding.to_string())).unwrap();
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

pub fn import(dir: &Path, name: &str) -> Pool {
    let image: PathBuf = dir.join(format!("{name}.0.img"));
    let disk: Arc<dyn Disk> =
        Arc::new(pool::open_disk(&image, Access::ReadWrite { exclusive: true }).unwrap());
    Pool::import_disks(vec![disk], Options { read_only: true, ..Options::default() }).unwrap()
}

/// Records of a stream with what follows them; panics on a wrong checksum.
pub fn records(bytes: &[u8]) -> Vec<(Record, Vec<u8>)> {
    let mut found = Vec::new();
    let mut rest = bytes;
    let order = format::stream::order_of(rest[..format::stream::RECORD].try_into().unwrap()).unwrap();
    let mut sum = RunningFletcher4::new(order);
    while !rest.is_empty() {
        let raw: &[u8; format::stream::RECORD] = rest[..format::stream::RECORD].try_into().unwrap();
        let record = Record::decode(raw, order).unwrap();
        let len = record.payload_len() as usize;
        let payload = &rest[format::stream::RECORD..format::stream::RECORD + len];
        if matches!(record, Record::Begin(_)) {
            sum = RunningFletcher4::new(order);
        }
        let before = sum.sum();
        sum.add(&raw[..format::stream::CHECKSUM_AT]);
        let stored = format::stream::checksum(raw, order);
        if !matches!(record, Record::Begin(_)) && stored != format::Checksum::default() {
            assert_eq!(stored, sum.sum(), "record {}: {record:?}", found.len());
        }
        if let Record::End(end) = &record
            && end.checksum != format::Checksum::default()
        {
            assert_eq!(end.checksum, before, "the sum of all before the end");
        }
        sum.add(&raw[format::stream::CHECKSUM_AT..]);
        sum.add(payload);
        found.push((record, payload.to_vec()));
        rest = &rest[format::stream::RECORD + len..];
    }
    assert!(matches!(found.last(), Some((Record::End(_), _))), "a stream ends");
    found
}

pub fn send(pool: &Pool, snapshot: &str, from: Option<&str>, flags: SendFlags) -> Vec<u8> {
    let mut out = Vec::new();
    let from = from.map(|from| Sender::new(pool).send_source(from).unwrap());
    let bytes = Sender::new(pool).send(snapshot, from.as_ref(), flags, &mut out, &mut |_| {}).unwrap();
    assert_eq!(bytes, out.len() as u64);
    out
}

pub fn load_key(pool: &Pool, name: &str) {
    let info = pool.dataset(name).unwrap();
    let user = pool.encryption(&info).unwrap().unwrap().object.user_key;
    pool.load_key(&info, user.wrapping(b"correct horse").unwrap(), false).unwrap();
}
