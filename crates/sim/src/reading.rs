//! Everything that can be read of a pool, read once: what commands that read do, without their words.
//!
//! From:   the disks of a pool that may be anything.
//! To:     a report. What cannot be read is a problem in it; nothing panics.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::sync::Arc;

use format::ObjectId;
use pool::props::DatasetKind;
use pool::{DatasetInfo, Options, Pool, SendFlags};
use storage::host::Disk;
use stream::Sender;
use zpl::{FileKind, Filesystem, Seek};

/// How much is read at most.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Datasets.
    pub datasets: usize,
    /// Files and directories of each dataset.
    pub files: usize,
    /// Bytes of each file.
    pub bytes: u64,
    /// Bytes of each stream.
    pub stream_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { datasets: 40, files: 2000, bytes: 4 << 20, stream_bytes: 16 << 20 }
    }
}

/// The result of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// The problems, in the order in which they were found.
    pub problems: Vec<String>,
    /// Files and directories that were found.
    pub files: usize,
}

impl Report {
    fn take<T>(&mut self, what: &str, read: Result<T, impl std::fmt::Display>) -> Option<T> {
        read.map_err(|error| self.problems.push(format!("{what}: {error}"))).ok()
    }
}

/// Imports the pool to be read only and reads it.
#[must_use]
pub fn read_all(disks: Vec<Arc<dyn Disk>>, limits: &Limits) -> Report {
    let mut report = Report::default();
    let options = Options {
        read_only: true,
        cache_bytes: 8 << 20,
        workers: 1,
        io_threads: 0,
        anonymous: true,
        ..Options::default()
    };
    let Some(pool) = report.take("import", Pool::import_disks(disks, options)) else { return report };
    let mut findings = Vec::new();
    let checked = scan::check::check(&pool, &mut |finding| findings.push(finding.to_string()));
    report.take("check", checked);
    report.problems.append(&mut findings);
    report.take("history", pool.history());
    report.take("properties", pool.pool_properties());
    report.take("freeing", pool.freeing());
    report.take("fragmentation", pool.fragmentation());
    let mut left_out = Vec::new();
    let mut leave_out = |name: String, error: pool::Error| left_out.push(format!("{name}: {error}"));
    let list = pool.survey(&pool.name(), None, true, &mut leave_out);
    report.problems.append(&mut left_out);
    let list = report.take("list", list).unwrap_or_default();
    for info in list.iter().take(limits.datasets) {
        describe(&pool, info, &mut report);
        if info.kind != DatasetKind::Volume {
            files(&pool, info, limits, &mut report);
        }
        if info.is_snapshot() {
            let mut sink = Sink(limits.stream_bytes);
            let sent =
                Sender::new(&pool).send(&info.name, None, SendFlags::default(), &mut sink, &mut |_| {});
            report.take(&format!("send of {}", info.name), sent);
        }
    }
    let exported = pool.export();
    report.take("export", exported);
    report
}

/// Properties, holds, clones and bookmarks of a dataset.
fn describe(pool: &Pool, info: &DatasetInfo, report: &mut Report) {
    let name = &info.name;
    for property in pool::props::dataset::VISIBLE {
        report.take(name, pool.property(info, property));
    }
    report.take(name, pool.user_properties(info));
    report.take(name, pool.is_encrypted(info));
    if info.is_snapshot() {
        report.take(name, pool.holds(info));
        report.take(name, pool.clones(info));
        report.take(name, pool.reclaims(std::slice::from_ref(name)));
    } else {
        report.take(name, pool.bookmarks(name));
    }
}

/// All files of a dataset, each object once.
fn files(pool: &Pool, info: &DatasetInfo, limits: &Limits, report: &mut Report) {
    let name = &info.name;
    let Some(dataset) = report.take(name, pool.open(name)) else { return };
    let Some(fs) = report.take(name, Filesystem::open(dataset)) else { return };
    let mut problems = Vec::new();
    let checked = zpl::check::check_filesystem(&fs, &mut |problem| problems.push(problem.to_string()));
    report.take(name, checked);
    report.problems.append(&mut problems);
    let (mut queue, mut seen) = (vec![fs.root()], BTreeSet::new());
    while let Some(id) = queue.pop() {
        if !seen.insert(id) || seen.len() > limits.files {
            continue;
        }
        report.files += 1;
        let what = format!("{name}, object {id}");
        let Some(stat) = report.take(&what, fs.stat(id)) else { continue };
        attributes(&fs, id, &what, report);
        match stat.kind {
            FileKind::Directory => {
                let Some(entries) = report.take(&what, fs.entries(id)) else { continue };
                for entry in entries.take(limits.files) {
                    if let Some(entry) = report.take(&what, entry) {
                        report.take(&what, fs.lookup(id, &entry.name));
                        queue.push(entry.id);
                    }
                }
            }
            FileKind::Symlink => drop(report.take(&what, fs.readlink(id))),
            FileKind::Regular => {
                report.take(&what, fs.data_runs(id));
                report.take(&what, fs.seek(id, 0, Seek::Hole));
                report.take(&what, fs.seek(id, stat.size / 2, Seek::Data));
                report.take(&what, fs.read_all(id, limits.bytes));
            }
            _ => {}
        }
    }
}

fn attributes(fs: &Filesystem, id: ObjectId, what: &str, report: &mut Report) {
    for name in report.take(what, fs.xattr_list(id)).unwrap_or_default() {
        report.take(what, fs.xattr_get(id, &name));
    }
}

/// Takes so many bytes and refuses more.
struct Sink(u64);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len() as u64).ok_or(io::ErrorKind::StorageFull)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
