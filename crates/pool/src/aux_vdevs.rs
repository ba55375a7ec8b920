//! Devices that are not in the vdev tree: caches (L2ARC) and hot spares. They have labels of the pool, and `zpool status`
//! shows them. `storage` fills and reads caches (`storage/second`). It also uses what OpenZFS left on a cache device.
//!
//! From:   the lists `l2cache` and `spares` of the object directory.
//! To:     the command line, which shows them; new pools, which get them.
//! Source: docs/format/01-labels-uberblock.md §4.2, §9.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::IoSlice;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dmu::Tx;
use format::config::{AuxConfig, Label, PoolState, VdevConfig, VdevKind};
use format::nvlist::{NvList, NvValue};
use format::zap::Value;
use format::{Guid, label};
use storage::host::{Access, Disk, FileDisk};
use storage::{CacheStats, SecondDevice, SecondStats, WriteError};

use crate::mos::Mos;
use crate::pool::{Inner, Pool};
use crate::redundancy::{OF_PLACE, note_place};
use crate::{Error, Result, labels};

/// The header of a cache device lies in the first bytes of its data. This many bytes hold it for every sector size.
const HEADER: usize = 64 << 10;

/// The use of a device beside the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AuxKind {
    /// A second level of the cache.
    Cache,
    /// Takes the place of a device that fails.
    Spare,
}

impl AuxKind {
    const ALL: [AuxKind; 2] = [AuxKind::Cache, AuxKind::Spare];

    /// The list in the object directory, and the key in it.
    const fn list(self) -> &'static str {
        match self {
            AuxKind::Cache => "l2cache",
            AuxKind::Spare => "spares",
        }
    }

    const fn state(self) -> PoolState {
        match self {
            AuxKind::Cache => PoolState::L2cache,
            AuxKind::Spare => PoolState::Spare,
        }
    }
}

/// A device beside the tree of vdevs.
#[derive(Clone, Debug)]
pub struct AuxVdev {
    /// The use of the device.
    pub kind: AuxKind,
    /// Its configuration in the pool.
    pub config: VdevConfig,
    /// Where it is, if it is there with its label.
    pub device: Option<PathBuf>,
    /// A spare that replaces a failed device of this pool.
    pub in_use: bool,
    /// A spare that is space on the devices of a draid vdev of this pool: it has no device.
    pub is_distributed: bool,
    /// The name of another pool, for a device of which the spare fills in.
    pub used_by: Option<String>,
}

/// More of them no pool has.
const COUNT_MAX: usize = 1024;

impl Pool {
    /// The pool's caches and spares. Searches the paths in the pool's lists, and the folders of the pool's other devices.
    ///
    /// # Errors
    /// If a list cannot be read.
    pub fn aux_vdevs(&self) -> Result<Vec<AuxVdev>> {
        self.inner.aux_vdevs()
    }
}

impl Inner {
    pub(crate) fn aux_vdevs(&self) -> Result<Vec<AuxVdev>> {
        let beside = self.storage.vdevs().tops().iter().flat_map(storage::TopVdev::leaves).next();
        let beside = beside.and_then(|leaf| leaf.disk.path().parent().map(Path::to_path_buf));
        let mut all = read(&self.mos)?;
        let config = self.info().config.clone();
        for aux in &mut all {
            let named = aux.config.path.as_deref().map(|raw| Path::new(OsStr::from_bytes(raw)));
            let named = named.filter(|path| path.is_absolute());
            let moved = named.and_then(|path| Some(beside.as_ref()?.join(path.file_name()?)));
            let mut places = named.map(Path::to_path_buf).into_iter().chain(moved);
            let found = places.find_map(|path| Some((aux.use_at(&path, config.pool_guid)?, path)));
            (aux.used_by, aux.device) = found.map_or((None, None), |(user, path)| (user, Some(path)));
            aux.in_use = config.tree.walk().any(|vdev| vdev.guid == aux.config.guid);
        }
        Ok(all)
    }
}

impl AuxVdev {
    /// Name of another pool that uses the spare at `path`, from the device's label.
    fn use_at(&self, path: &Path, pool: Guid) -> Option<Option<String>> {
        let disk = FileDisk::open(path, Access::Peek).ok()?;
        labels::read(&disk).configs.iter().find_map(|label| match label {
            Label::Aux(aux) => {
                (aux.guid == self.config.guid && aux.state == self.kind.state()).then_some(None)
            }
            Label::Pool(config) => {
                let own = config.label.is_some_and(|guids| guids.guid == self.config.guid);
                let user = (config.pool_guid != pool).then(|| config.name.clone());
                (own && self.kind == AuxKind::Spare).then_some(user)
            }
        })
    }
}

fn read(mos: &Mos) -> Result<Vec<AuxVdev>> {
    let mut all = Vec::new();
    for kind in AuxKind::ALL {
        let Some(id) = mos.directory_object(kind.list())? else { continue };
        let list = mos.packed(id)?;
        let mut seen = HashSet::new();
        for vdev in list.get_lists(kind.list()).unwrap_or_default().iter().take(COUNT_MAX) {
            let config = VdevConfig::from_nvlist(vdev).map_err(Error::corrupt(id))?;
            if seen.insert(config.guid) {
                let is_distributed = config.kind == VdevKind::DistributedSpare;
                all.push(AuxVdev {
                    kind,
                    config,
                    device: None,
                    in_use: false,
                    is_distributed,
                    used_by: None,
                });
            }
        }
    }
    Ok(all)
}

impl Pool {
    /// The cache devices that are filled and read.
    #[must_use]
    pub fn cache_devices(&self) -> Vec<SecondDevice> {
        self.inner.storage.second().devices()
    }

    /// How useful the cache in memory and the cache devices were since the pool was opened.
    #[must_use]
    pub fn cache_stats(&self) -> (CacheStats, SecondStats) {
        (self.inner.storage.cache().stats(), self.inner.storage.second().stats())
    }

    /// Opens and locks the caches and spares of a pool that is to be written, so that no other process uses them. A device
    /// that is missing or in use elsewhere is left out.
    pub(crate) fn hold_aux_vdevs(&self) {
        let found = self.aux_vdevs().unwrap_or_else(|error| {
            tracing::warn!(%error, "the lists of caches and spares cannot be read");
            Vec::new()
        });
        let mut held = Vec::new();
        // A spare in use is already open as a leaf of the tree.
        for aux in found.into_iter().filter(|aux| !aux.in_use && aux.used_by.is_none()) {
            let Some(path) = aux.device else { continue };
            match FileDisk::open(&path, Access::ReadWrite { exclusive: true }) {
                Ok(disk) => {
                    let disk = Arc::new(disk) as Arc<dyn Disk>;
                    if aux.kind == AuxKind::Cache {
                        self.inner.use_cache(aux.config.guid, &disk);
                    }
                    held.push(disk);
                }
                Err(error) => tracing::warn!(path = %path.display(), %error, "a cache or spare is not held"),
            }
        }
        self.inner.aux_disks.replace(held);
    }
}

impl Pool {
    /// Records where the caches and spares of a pool were found that is imported for writing, as OpenZFS does.
    ///
    /// # Errors
    /// As [`Pool::sync`].
    pub(crate) fn note_places_of_aux(&self) -> Result<()> {
        let Ok(mut found) = self.aux_vdevs() else { return Ok(()) };
        found.retain_mut(|aux| aux.device.as_ref().is_some_and(|path| note_place(&mut aux.config, path)));
        if found.is_empty() {
            return Ok(());
        }
        self.run(move |syncing| {
            for AuxVdev { kind, config, .. } in &found {
                edit(syncing.mos(), &syncing.tx, *kind, |entries| {
                    let own = |entry: &&mut NvList| entry.get_u64("guid") == Some(config.guid.0);
                    let Some(path) = config.path.as_deref() else { return };
                    for entry in entries.iter_mut().filter(own) {
                        entry.insert("path", NvValue::string(path));
                        OF_PLACE.iter().for_each(|key| drop(entry.remove(key)));
                    }
                })?;
            }
            Ok(())
        })
    }
}

impl Inner {
    /// Fills and reads the cache `disk` from now on, with the sector size that its label has.
    pub(crate) fn use_cache(&self, guid: Guid, disk: &Arc<dyn Disk>) {
        let told = labels::read(&**disk).configs.into_iter().find_map(|label| match label {
            Label::Aux(aux) => aux.ashift,
            Label::Pool(_) => None,
        });
        // OpenZFS 2.1 does not store this value; it asks the device.
        let ashift = told.unwrap_or_else(|| disk.sector_size().ilog2());
        self.storage.second().add(self.info().config.pool_guid, guid, disk.clone(), ashift);
    }

    /// As [`Inner::use_cache`] for the caches among new devices.
    pub(crate) fn use_caches<'a>(&self, new: impl Iterator<Item = (&'a NewAux, &'a Arc<dyn Disk>)>) {
        for (aux, disk) in new.filter(|(aux, _)| aux.kind == AuxKind::Cache) {
            self.use_cache(aux.config.guid, disk);
        }
    }
}

/// Empties the labels of a device that is to become a part of the pool. A spare has the label of one until the pool leads to it.
///
/// # Errors
/// The device refused, or is too small for labels.
pub(crate) fn prepare_leaf(disk: &Arc<dyn Disk>, spare: Option<Guid>, version: u64) -> Result<()> {
    match spare {
        Some(guid) => label_spare(disk, guid, version),
        None => Ok(labels::initialise(disk)?),
    }
}

/// Gives a device the labels of a spare.
///
/// # Errors
/// As [`prepare_leaf`].
pub(crate) fn label_spare(disk: &Arc<dyn Disk>, guid: Guid, version: u64) -> Result<()> {
    let config = VdevConfig::new(VdevKind::File, 0, guid);
    NewAux { kind: AuxKind::Spare, config, ashift: 0 }.label(disk, version)
}

/// A device beside the tree of a new pool.
#[derive(Clone)]
pub(crate) struct NewAux {
    pub(crate) kind: AuxKind,
    pub(crate) config: VdevConfig,
    /// log2 of the sector size.
    pub(crate) ashift: u32,
}

impl NewAux {
    /// Writes its labels.
    ///
    /// # Errors
    /// The device refused, or is too small for labels.
    pub(crate) fn label(&self, disk: &Arc<dyn Disk>, version: u64) -> Result<()> {
        let is_cache = self.kind == AuxKind::Cache;
        let config = AuxConfig {
            version,
            state: self.kind.state(),
            guid: self.config.guid,
            ashift: is_cache.then_some(self.ashift),
            extra: NvList::new(),
        };
        labels::initialise(disk)?;
        if is_cache {
            // Wipes the header of the cache: an old header would be taken for a valid one of this pool.
            let offset = label::DATA_START;
            let device = |source| WriteError::Device { path: disk.path().to_path_buf(), offset, source };
            disk.write_at(&[IoSlice::new(&[0; HEADER])], offset).map_err(device)?;
        }
        let offsets = label::offsets(disk.size()).ok_or(WriteError::NoSpace)?;
        labels::write_list(disk, &config.to_nvlist(), offsets)?;
        disk.flush().map_err(|source| Error::Io { path: disk.path().to_path_buf(), source })
    }

    /// Its entry in the list of its kind.
    fn entry(&self) -> NvList {
        let mut entry = self.config.to_aux_nvlist();
        if self.kind == AuxKind::Spare {
            entry.insert("is_spare", 1u64);
        }
        if self.config.kind == VdevKind::DistributedSpare {
            entry.insert("ashift", u64::from(self.ashift));
        }
        entry
    }
}

/// The distributed spares of a new vdev, as the list of spares has them (11 §10.5).
pub(crate) fn distributed_spares(config: &VdevConfig, guid: &dyn Fn() -> Guid) -> Vec<NewAux> {
    let VdevKind::Draid { nparity, nspares, .. } = config.kind else { return Vec::new() };
    let ashift = config.top.as_ref().map_or(0, |top| top.ashift);
    let spare = |number: u64| {
        let mut spare = VdevConfig::new(VdevKind::DistributedSpare, 0, guid());
        spare.path = Some(format!("draid{nparity}-{}-{number}", config.id).into_bytes());
        spare.whole_disk = Some(true);
        spare.extra.insert("top_guid", config.guid.0);
        spare.extra.insert("spareid", number);
        NewAux { kind: AuxKind::Spare, config: spare, ashift }
    };
    (0..nspares).map(spare).collect()
}

/// Notes new caches and spares behind those that the pool has.
pub(crate) fn append(mos: &Mos, tx: &Tx, all: &[NewAux]) -> Result<()> {
    for kind in AuxKind::ALL {
        let new: Vec<NvList> = all.iter().filter(|aux| aux.kind == kind).map(NewAux::entry).collect();
        if !new.is_empty() {
            edit(mos, tx, kind, |entries| entries.extend(new))?;
        }
    }
    Ok(())
}

/// Removes a cache or spare from its list. An empty list stays.
pub(crate) fn take_off(mos: &Mos, tx: &Tx, kind: AuxKind, guid: Guid) -> Result<()> {
    edit(mos, tx, kind, |entries| entries.retain(|entry| entry.get_u64("guid") != Some(guid.0)))
}

/// Changes the list of caches or spares. Creates it if the pool has none.
fn edit(mos: &Mos, tx: &Tx, kind: AuxKind, change: impl FnOnce(&mut Vec<NvList>)) -> Result<()> {
    let (id, mut list) = match mos.directory_object(kind.list())? {
        Some(id) => (id, mos.packed(id)?),
        None => {
            let id = mos.create_packed(tx)?;
            mos.set_directory(tx, kind.list(), &Value::from_u64(id.0))?;
            (id, NvList::new())
        }
    };
    let mut entries = list.get_lists(kind.list()).unwrap_or_default().to_vec();
    change(&mut entries);
    list.insert(kind.list(), entries);
    mos.put_packed(tx, id, &list)
}
