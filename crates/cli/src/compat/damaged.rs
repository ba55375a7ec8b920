//! Errors of an open pool: device errors and damaged blocks.
//!
//! From:   the counters and the error log of the pool, or of the server that holds it.
//! To:     `zpool status`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use format::ObjectId;
use format::blkptr::BlockPtr;
use pool::Dataset;
use scan::DataError;
use scan::Scans as _;
use scan::check::DataBlock;
use zpl::Filesystem;

use super::view::{PoolView, VdevView};
use crate::messages::{Action, Failure};
use crate::open::Session;

/// Errors of one pool.
#[derive(Debug, Default)]
pub struct Trouble {
    /// Read, write and checksum errors by leaf guid.
    devices: BTreeMap<u64, [u64; 3]>,
    /// Requests that took too long, by leaf guid.
    slow: BTreeMap<u64, u64>,
    /// Blocks without a good copy.
    pub data: Vec<DataError>,
}

impl Trouble {
    /// The errors of a pool; none if it is not open.
    ///
    /// # Errors
    /// If the error log cannot be read.
    pub fn of(view: &PoolView) -> Result<Trouble, Failure> {
        let Some(session) = view.session() else { return Ok(Trouble::default()) };
        if let Some(figures) = &view.figures {
            return Ok(Trouble {
                devices: figures.errors.iter().copied().collect(),
                slow: figures.slow.iter().copied().collect(),
                data: figures.lost(),
            });
        }
        let pool = session.pool();
        Ok(Trouble {
            devices: pool.device_errors().into_iter().collect(),
            slow: pool.slow_requests().into_iter().collect(),
            data: pool.data_errors().map_err(|error| Action::Open(&view.name).failed(error))?,
        })
    }

    /// Read, write and checksum errors of a vdev.
    pub fn counts(&self, vdev: &VdevView) -> [u64; 3] {
        self.devices.get(&vdev.guid.0).copied().unwrap_or_default()
    }

    /// Requests to a leaf that took too long.
    pub fn slow(&self, vdev: &VdevView) -> u64 {
        self.slow.get(&vdev.guid.0).copied().unwrap_or_default()
    }

    /// Whether a device made errors since they were last cleared.
    pub fn has_device_errors(&self) -> bool {
        self.devices.values().flatten().any(|errors| *errors > 0)
    }

    /// Whether there is anything to tell.
    pub fn any(&self) -> bool {
        !self.data.is_empty() || self.has_device_errors()
    }
}

/// The damaged files, each once: by the path in its mount, else as `DATASET:/PATH`, or by numbers if it has no name.
pub fn places(session: &Session, errors: &[DataError]) -> Vec<String> {
    let mut names = Names::new(session);
    let objects: BTreeSet<_> = errors.iter().map(|error| (error.dataset, error.object)).collect();
    let place = |(dataset, object): (ObjectId, ObjectId)| {
        if dataset.0 == 0 {
            return format!("<metadata>:<{:#x}>", object.0);
        }
        names.path(dataset, object).unwrap_or_else(|| match names.dataset(dataset) {
            Some(name) => format!("{name}:<{:#x}>", object.0),
            None => format!("<{:#x}>:<{:#x}>", dataset.0, object.0),
        })
    };
    objects.into_iter().map(place).collect()
}

/// Names of files by their numbers.
pub struct Names<'a> {
    session: &'a Session,
    datasets: BTreeMap<u64, String>,
    mounts: BTreeMap<String, PathBuf>,
    /// File systems that were needed so far; `None` where one cannot be opened.
    open: BTreeMap<u64, Option<Filesystem>>,
    /// As `open`, for blocks of datasets.
    blocks: BTreeMap<u64, Option<Arc<Dataset>>>,
}

/// The file system, and how many of its snapshots, that have one damaged block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holders {
    /// The file system, if it has the block.
    pub live: Option<ObjectId>,
    /// Snapshots that have it.
    pub snapshots: usize,
}

impl<'a> Names<'a> {
    /// Names in the pool of `session`.
    pub fn new(session: &'a Session) -> Names<'a> {
        let pool = session.pool();
        let all = pool.list(&pool.name(), None, true).unwrap_or_default();
        Names {
            session,
            datasets: all.into_iter().map(|info| (info.id.0, info.name)).collect(),
            mounts: session.mounts().into_iter().collect(),
            open: BTreeMap::new(),
            blocks: BTreeMap::new(),
        }
    }

    /// The name of a dataset.
    pub fn dataset(&self, dataset: ObjectId) -> Option<&str> {
        self.datasets.get(&dataset.0).map(String::as_str)
    }

    /// A file by the path in its mount, or as `DATASET:/PATH`. `None` if it has no name, or a folder that leads to it is damaged.
    pub fn path(&mut self, dataset: ObjectId, object: ObjectId) -> Option<String> {
        let name = self.datasets.get(&dataset.0)?;
        let pool = self.session.pool();
        let open = || Filesystem::open(pool.open(name).ok()?).ok();
        let fs = self.open.entry(dataset.0).or_insert_with(open);
        let path = fs.as_ref()?.path_of(object).ok()??;
        let path = String::from_utf8_lossy(&path);
        Some(match self.mounts.get(name) {
            Some(point) => format!("{}{path}", point.display().to_string().trim_end_matches('/')),
            None => format!("{name}:{path}"),
        })
    }

    /// The file system of `dataset`, and how many of its snapshots, that have the same block of an object. The search ends at `until`.
    /// `None` if there is no time for it, or the dataset has no name.
    pub fn holders(
        &mut self,
        dataset: ObjectId,
        object: ObjectId,
        block: DataBlock,
        until: Instant,
    ) -> Option<Holders> {
        let filesystem = self.dataset(dataset)?.split('@').next()?.to_owned();
        let is_related = |name: &str| name.split('@').next() == Some(filesystem.as_str());
        let related: Vec<(u64, String)> = self
            .datasets
            .iter()
            .filter(|(_, name)| is_related(name))
            .map(|(id, name)| (*id, name.clone()))
            .collect();
        let mut holders = Holders { live: None, snapshots: 0 };
        for (id, name) in related {
            if Instant::now() > until {
                return None;
            }
            let pool = self.session.pool();
            let opened = self.blocks.entry(id).or_insert_with(|| pool.open(&name).ok());
            let found = opened.as_ref().and_then(|opened| opened.objset().object(object).ok());
            let ptr = found.and_then(|found| found.synced_ptr(block.blkid).ok());
            if ptr.as_ref().and_then(BlockPtr::block).is_some_and(|found| found.dvas[0] == block.first) {
                match name.contains('@') {
                    true => holders.snapshots += 1,
                    false => holders.live = Some(ObjectId(id)),
                }
            }
        }
        Some(holders)
    }
}
