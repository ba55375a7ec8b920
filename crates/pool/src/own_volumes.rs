//! The volumes directly below an open file system, as its mount shows them below `.zfs/volume`.
//!
//! From:   the list of datasets, read each time, and the properties `volmode` and `snapdev`.
//! To:     `zpl` and, through it, `fuse`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dsl::info::{self, DatasetInfo};
use dsl::props::DatasetKind;
use dsl::settings::is_shown_volume;
use dsl::{list, tree};

use crate::own_snapshots::SnapshotKey;
use crate::state::Dataset;
use crate::{Error, Result};

fn key_of(info: &DatasetInfo) -> SnapshotKey {
    SnapshotKey { id: info.id, guid: info.phys.guid }
}

impl Dataset {
    /// The volumes directly below it that programs are shown, and their snapshots that are: the part of the name behind
    /// that of this dataset, and the key. Datasets that cannot be read are left out.
    ///
    /// # Errors
    /// [`Error::NoDataset`] when it was destroyed; the DSL cannot be read.
    pub fn volumes(&self) -> Result<Vec<(String, SnapshotKey)>> {
        let _shared = self.pool.dsl.read();
        let (top, view) = (self.volumes_top()?, self.pool.view());
        let mut leave_out = |_, _| {};
        let below = list::survey(&view, &top, (Some(1), false), &mut leave_out)?;
        let mut found = Vec::new();
        for volume in below.iter().filter(|info| info.kind == DatasetKind::Volume) {
            let with_snapshots = list::survey(&view, &volume.name, (Some(1), true), &mut leave_out)?;
            for info in with_snapshots {
                let leaf = info.name.strip_prefix(&top).and_then(|rest| rest.strip_prefix('/'));
                if let Some(leaf) = leaf.filter(|_| is_shown_volume(&view, &info).unwrap_or(false)) {
                    found.push((leaf.to_owned(), key_of(&info)));
                }
            }
        }
        Ok(found)
    }

    /// Its name, for the names below it.
    fn volumes_top(&self) -> Result<String> {
        let name = self.name();
        if self.destroyed.load(Ordering::Acquire) || self.is_snapshot() {
            return Err(Error::NoDataset(name));
        }
        Ok(name)
    }

    /// The volume called `leaf` directly below it, or the snapshot `volume@snapshot`. The caller holds the DSL lock.
    fn volume_info(&self, leaf: &[u8]) -> Result<Option<DatasetInfo>> {
        let (top, view) = (self.volumes_top()?, self.pool.view());
        let parts: Vec<&[u8]> = leaf.splitn(2, |byte| *byte == b'@').collect();
        let Ok(volume) = tree::full_name(&top, '/', parts[0]) else { return Ok(None) };
        let found = |name: &str| match info::info(&view, name) {
            Ok(info) => Ok(Some(info)),
            Err(Error::NoDataset(_)) => Ok(None),
            Err(error) => Err(error),
        };
        let Some(head) = found(&volume)?.filter(|info| info.kind == DatasetKind::Volume) else {
            return Ok(None);
        };
        let info = match parts.get(1) {
            None => Some(head),
            Some(snapshot) => match tree::full_name(&volume, '@', snapshot) {
                Ok(name) => found(&name)?,
                Err(_) => None,
            },
        };
        let Some(info) = info else { return Ok(None) };
        Ok(is_shown_volume(&view, &info)?.then_some(info))
    }

    /// The volume called `leaf` directly below it, or the snapshot `volume@snapshot`, if programs are shown it.
    ///
    /// # Errors
    /// As [`Dataset::volumes`].
    pub fn volume_named(&self, leaf: &[u8]) -> Result<Option<SnapshotKey>> {
        let _shared = self.pool.dsl.read();
        Ok(self.volume_info(leaf)?.map(|info| key_of(&info)))
    }

    /// Opens such a volume for its contents.
    ///
    /// # Errors
    /// [`Error::NoDataset`] when there is no such volume any more; its root cannot be read, or its key is not loaded.
    pub fn open_volume(&self, key: SnapshotKey, leaf: &[u8]) -> Result<Arc<Dataset>> {
        let _shared = self.pool.dsl.read();
        let info = self.volume_info(leaf)?.filter(|info| key_of(info) == key);
        let missing = || Error::NoDataset(format!("{}/{}", self.name(), String::from_utf8_lossy(leaf)));
        self.pool.open(&info.ok_or_else(missing)?)
    }
}
