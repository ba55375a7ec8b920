//! Errors of an open pool: device errors and damaged blocks.
//!
//! From:   the counters and the error log of the pool, or of the server that holds it.
//! To:     `zpool status`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use scan::DataError;
use scan::Scans as _;
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
    let pool = session.pool();
    let all = pool.list(&pool.name(), None, true).unwrap_or_default();
    let mounts: BTreeMap<String, PathBuf> = session.mounts().into_iter().collect();
    let mut open: BTreeMap<u64, Option<Filesystem>> = BTreeMap::new();
    let objects: BTreeSet<_> = errors.iter().map(|error| (error.dataset, error.object)).collect();
    let place = |(dataset, object): (format::ObjectId, format::ObjectId)| {
        if dataset.0 == 0 {
            return format!("<metadata>:<{:#x}>", object.0);
        }
        let Some(info) = all.iter().find(|info| info.id == dataset) else {
            return format!("<{:#x}>:<{:#x}>", dataset.0, object.0);
        };
        let fs = open.entry(dataset.0).or_insert_with(|| Filesystem::open(pool.open(&info.name).ok()?).ok());
        // The folders that lead to it may be damaged, too.
        let path = fs.as_ref().and_then(|fs| fs.path_of(object).ok().flatten());
        match path {
            Some(path) if mounts.contains_key(&info.name) => {
                let point = mounts[&info.name].display().to_string();
                format!("{}{}", point.trim_end_matches('/'), String::from_utf8_lossy(&path))
            }
            Some(path) => format!("{}:{}", info.name, String::from_utf8_lossy(&path)),
            None => format!("{}:<{:#x}>", info.name, object.0),
        }
    };
    objects.into_iter().map(place).collect()
}
