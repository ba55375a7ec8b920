//! The commands that change a pool, each done once on a pool with any contents.
//!
//! From:   the disks of a pool that may be anything.
//! To:     a list of what was refused. Nothing panics.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::slice;
use std::sync::Arc;

use pool::props::DatasetKind;
use pool::{Options, Pool};
use storage::host::{Disk, Host};
use zpl::{FileKind, Filesystem, NewNode};

/// The commands that were refused, in the order in which they were tried.
#[derive(Debug, Default)]
pub struct Refusals(pub Vec<String>);

impl Refusals {
    fn take<T>(&mut self, what: &str, done: Result<T, impl Display>) -> Option<T> {
        done.map_err(|error| self.0.push(format!("{what}: {error}"))).ok()
    }
}

/// Txgs in which destroyed datasets are freed.
const TXGS: usize = 4;
/// Bytes that are written into a new file of each file system.
const NEW_BYTES: usize = 200 << 10;

/// Imports the pool to be changed: writes into its file systems, takes and destroys snapshots, and destroys its datasets.
#[must_use]
pub fn change_all(disks: Vec<Arc<dyn Disk>>) -> Refusals {
    let mut refusals = Refusals::default();
    let options = Options {
        cache_bytes: 8 << 20,
        workers: 1,
        io_threads: 0,
        stepwise: true,
        anonymous: true,
        host: Host::seeded(1, 1_700_000_000),
        ..Options::default()
    };
    let Some(pool) = refusals.take("import", Pool::import_disks(disks, options)) else { return refusals };
    refusals.take("logs", zpl::replay_logs(&pool));
    let mut leave_out = |_, _| {};
    let list = pool.survey(&pool.name(), None, true, &mut leave_out);
    let list = refusals.take("list", list).unwrap_or_default();
    for info in list.iter().filter(|info| info.kind == DatasetKind::Filesystem && !info.is_snapshot()) {
        change_files(&pool, &info.name, &mut refusals);
        refusals.take("snapshot", pool.snapshot(&[format!("{}@new", info.name)], &[]));
    }
    refusals.take("sync", pool.sync());
    // Children come behind their parents, and snapshots behind their file system; clones go before what they are made of.
    let of_snapshots =
        list.iter().filter(|info| info.is_snapshot()).filter_map(|info| pool.clones(info).ok());
    let clones: BTreeSet<String> = of_snapshots.flatten().collect();
    let (clones, others): (Vec<_>, Vec<_>) = list.iter().rev().partition(|info| clones.contains(&info.name));
    for info in clones.into_iter().chain(others).filter(|info| info.dir.parent.0 != 0) {
        let name = &info.name;
        if info.is_snapshot() {
            for (tag, _) in refusals.take(name, pool.holds(info)).unwrap_or_default() {
                refusals.take(name, pool.release(slice::from_ref(name), &tag));
            }
            refusals.take(name, pool.destroy_snapshots(slice::from_ref(name), false));
        } else if !info.is_bookmark() {
            refusals.take(name, pool.destroy_snapshots(&[format!("{name}@new")], false));
            refusals.take(name, pool.destroy_dataset(name));
        }
    }
    for _ in 0..TXGS {
        refusals.take("sync", pool.sync());
    }
    refusals.take("freeing", pool.freeing());
    refusals.take("export", pool.export());
    refusals
}

/// Writes, cuts and removes files of one file system.
fn change_files(pool: &Pool, name: &str, refusals: &mut Refusals) {
    let Some(dataset) = refusals.take(name, pool.open(name)) else { return };
    let Some(fs) = refusals.take(name, Filesystem::open(dataset)) else { return };
    let new = NewNode::new(FileKind::Regular, 0o644);
    if let Some(id) = refusals.take(name, fs.create(fs.root(), b"new file", &new)) {
        refusals.take(name, fs.write(id, 0, &vec![5; NEW_BYTES]));
    }
    for path in [&b"/big"[..], b"/d/again"] {
        let id = match fs.resolve(path, false) {
            Err(zpl::Error::NotFound) => continue,
            id => refusals.take(name, id),
        };
        if let Some(id) = id {
            refusals.take(name, fs.write(id, 50 << 10, b"changed"));
            refusals.take(name, fs.truncate(id, 20 << 10));
        }
    }
    refusals.take("sync", pool.sync());
    for entry in [&b"big"[..], b"l", b"new file"] {
        match fs.unlink(fs.root(), entry) {
            Err(zpl::Error::NotFound) => {}
            done => drop(refusals.take(name, done)),
        }
    }
    refusals.take("sync", pool.sync());
}
