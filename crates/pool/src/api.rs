//! The calls of an open pool for datasets, properties and history.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dsl::info::{self, DatasetInfo};
use dsl::limits;
use dsl::new_head::{Initialise, NewFilesystem};
use dsl::new_names;
use dsl::properties;
use dsl::room::Reach;
use dsl::room::Reserve;
use dsl::settings::settings;
use dsl::{list, tree};
use format::config::VERSION_FEATURES;
use storage::FailMode;
use storage::rank::ReadHeld;

use crate::history::{self, Event};
use crate::keys;
use crate::multihost::PROPERTY;
use crate::pool::Pool;
use crate::props::{DatasetKind, Property, PropertyError, Source, Value, names};
use crate::space_maps::{self, MapTable};
use crate::state::Dataset;
use crate::state::Syncing;
use crate::{Error, Result};

impl Pool {
    pub(crate) fn shared(&self) -> ReadHeld<'_, ()> {
        self.inner.dsl.read()
    }

    /// Sets the command for the pool's history. The first change that the command makes writes it there.
    ///
    /// # Panics
    /// If another thread panicked while storing it.
    pub fn set_command(&self, command: &str) {
        self.inner.command.set(command);
    }

    /// Writes the command into the history now. For changes that file systems make themselves.
    ///
    /// # Errors
    /// [`Error::Stopped`], [`Error::ReadOnly`].
    pub fn log_command(&self) -> Result<()> {
        self.run(|_| Ok(()))
    }

    /// Takes back a command that changed nothing, so that it does not enter the history.
    ///
    /// # Panics
    /// If another thread panicked while storing it.
    pub fn forget_command(&self) {
        self.inner.command.take();
    }

    /// The pool's history, oldest first.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn history(&self) -> Result<Vec<Event>> {
        history::read(&self.inner.mos)
    }

    /// Everything about the dataset `name` (`pool/fs` or `pool/fs@snap`).
    ///
    /// # Errors
    /// [`Error::NoDataset`], or the DSL cannot be read.
    pub fn dataset(&self, name: &str) -> Result<DatasetInfo> {
        let _shared = self.shared();
        info::info(&self.inner.view(), name)
    }

    /// `top` and the datasets below it, `depth` levels (all if `None`), parents first; with snapshots if asked.
    ///
    /// # Errors
    /// [`Error::NoDataset`], or the DSL cannot be read.
    pub fn list(&self, top: &str, depth: Option<usize>, snapshots: bool) -> Result<Vec<DatasetInfo>> {
        let _shared = self.shared();
        list::list(&self.inner.view(), top, depth, snapshots)
    }

    /// As [`Pool::list`], for callers that only show the list. It leaves out datasets and snapshots that cannot be read or
    /// have invalid names. For each of them it calls `report` with the name of the dataset above.
    ///
    /// # Errors
    /// `top` is not there or cannot be read.
    pub fn survey(
        &self,
        top: &str,
        depth: Option<usize>,
        snapshots: bool,
        report: &mut dyn FnMut(String, Error),
    ) -> Result<Vec<DatasetInfo>> {
        let _shared = self.shared();
        list::survey(&self.inner.view(), top, (depth, snapshots), report)
    }

    /// A native property in effect with its source; `None` where it does not apply or has no value.
    ///
    /// # Errors
    /// If the DSL cannot be read.
    pub fn property(
        &self,
        info: &DatasetInfo,
        property: &'static Property,
    ) -> Result<Option<(Value, Source)>> {
        let _shared = self.shared();
        properties::native(&self.inner.view(), info, property)
    }

    /// User properties in effect, by name: (name, value, source).
    ///
    /// # Errors
    /// If the DSL cannot be read.
    pub fn user_properties(&self, info: &DatasetInfo) -> Result<Vec<(String, String, Source)>> {
        let _shared = self.shared();
        properties::user(&self.inner.view(), info)
    }

    /// One user property in effect.
    ///
    /// # Errors
    /// If the DSL cannot be read.
    pub fn user_property(&self, info: &DatasetInfo, name: &str) -> Result<Option<(String, Source)>> {
        let _shared = self.shared();
        properties::user_one(&self.inner.view(), info, name)
    }

    /// Bytes written to a dataset since its own earlier snapshot called `snapshot`, or since the one of that full name
    /// (`pool/fs@snap`) that it may have begun as a clone of; `None` if there is none.
    ///
    /// # Errors
    /// If the DSL cannot be read.
    pub fn written_since(&self, info: &DatasetInfo, snapshot: &str) -> Result<Option<u64>> {
        let _shared = self.shared();
        properties::written_since(&self.inner.view(), info, snapshot)
    }

    /// Whether a dataset's contents are encrypted, so that reading them takes its key.
    ///
    /// # Errors
    /// If the DSL cannot be read.
    pub fn is_encrypted(&self, info: &DatasetInfo) -> Result<bool> {
        let _shared = self.shared();
        Ok(keys::object_of(&self.inner.mos, info.dir_id)?.is_some())
    }

    /// The value received with a stream, even if another value is in effect.
    ///
    /// # Errors
    /// If the DSL cannot be read.
    pub fn received_property(&self, info: &DatasetInfo, name: &str) -> Result<Option<Value>> {
        let _shared = self.shared();
        properties::received(&self.inner.view(), info, name)
    }

    /// Pool properties kept in the MOS, by name.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn pool_properties(&self) -> Result<Vec<(String, Value)>> {
        let Some(id) = self.inner.mos.directory_object("pool_props")? else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for entry in dmu::zap::entries(&*self.inner.mos.object(id)?) {
            let entry = entry?;
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            let value = match (entry.value.as_u64(), entry.value.as_text()) {
                (Some(number), _) => Value::Number(number),
                (None, Some(text)) => Value::Text(text.to_owned()),
                (None, None) => continue,
            };
            found.push((name, value));
        }
        Ok(found)
    }

    /// Entries of each part of the livelist of the clone `name`, oldest part first: all, and those of freed blocks. Empty for a
    /// dataset without a list.
    ///
    /// # Errors
    /// [`Error::NoDataset`], or the list cannot be read.
    pub fn livelist_parts(&self, name: &str) -> Result<Vec<(u64, u64)>> {
        let _shared = self.shared();
        let dir = dsl::info::info(&self.inner.view(), name)?.dir_id;
        let list = dsl::livelist::of(&self.inner.mos, dir)?;
        list.map(|list| dsl::livelist::parts(&self.inner.mos, list))
            .transpose()
            .map(Option::unwrap_or_default)
    }

    /// Bytes waiting to be freed in the background.
    ///
    /// # Errors
    /// If the lists cannot be read.
    pub fn freeing(&self) -> Result<u64> {
        dsl::frees::waiting(&self.inner.mos)
    }

    /// Of [`Pool::freeing`], the bytes that the next txgs will free. Blocks that cannot be found wait for another import.
    ///
    /// # Errors
    /// As [`Pool::freeing`].
    pub fn freeing_now(&self) -> Result<u64> {
        if self.inner.groups.is_freeing() { self.freeing() } else { Ok(0) }
    }

    /// Fragmentation of the free space in percent, by top-level vdev id. It is computed from the histograms of the space
    /// maps. `None` where too few maps have a histogram.
    ///
    /// # Errors
    /// If the space maps cannot be read.
    pub fn fragmentation(&self) -> Result<BTreeMap<u32, Option<u64>>> {
        let config = self.info().config;
        let mut found = BTreeMap::new();
        for (vdev, top) in config.tree.children.iter().zip(self.inner.storage.vdevs().tops()) {
            let Some(array) = vdev.top.as_ref().filter(|_| top.metaslab_shift > 0) else { continue };
            let arrays = [(top.id, array.metaslab_array, top.metaslab_count())];
            let table = MapTable::load(&self.inner.mos.objset, &arrays)?;
            let (mut sum, mut valid) = (0, 0);
            for map in table.vdevs.values().flat_map(|(_, maps)| maps) {
                let percent = match map.0 {
                    0 => Some(0),
                    _ => fragmentation_of(&space_maps::header(&self.inner.mos.objset, *map)?, top.ashift),
                };
                sum += percent.unwrap_or(0);
                valid += u64::from(percent.is_some());
            }
            let enough = valid > 0 && valid * 2 > top.metaslab_count();
            found.insert(top.id, enough.then(|| sum / valid));
        }
        Ok(found)
    }

    /// Usable bytes of the pool, parity and reserve taken out: what the root dataset could fill.
    #[must_use]
    pub fn usable(&self) -> u64 {
        self.inner.usable(Reach::Limits)
    }

    /// Opens a dataset or snapshot for its contents.
    ///
    /// # Errors
    /// [`Error::NoDataset`], or its root cannot be read.
    pub fn open(&self, name: &str) -> Result<Arc<Dataset>> {
        let _shared = self.shared();
        self.inner.open(&info::info(&self.inner.view(), name)?)
    }

    /// As [`Pool::open`], for a raw send. An encrypted dataset whose key is not loaded is opened without the key. Then
    /// no other caller can open it until it is closed.
    ///
    /// # Errors
    /// As [`Pool::open`].
    pub fn open_to_send(&self, name: &str) -> Result<Arc<Dataset>> {
        let _shared = self.shared();
        self.inner.open_sealed(&info::info(&self.inner.view(), name)?)
    }

    /// As [`Pool::open`], of a dataset that may have no public name.
    ///
    /// # Errors
    /// Its root cannot be read.
    pub fn open_info(&self, info: &DatasetInfo) -> Result<Arc<Dataset>> {
        let _shared = self.shared();
        self.inner.open(info)
    }

    /// As [`Pool::open_info`], of an encrypted dataset that a raw stream goes into, without its keys.
    ///
    /// # Errors
    /// [`Error::DatasetBusy`], or its root cannot be read.
    pub fn open_to_receive(&self, info: &DatasetInfo) -> Result<Arc<Dataset>> {
        let _shared = self.shared();
        self.inner.open_to_receive(info)
    }

    /// Names of the datasets with an intent log that a crash left, to be replayed before they are changed.
    #[must_use]
    pub fn logs_to_replay(&self) -> Vec<String> {
        let logged: Vec<Arc<Dataset>> = self.inner.open.logged().values().cloned().collect();
        logged.iter().filter(|dataset| dataset.has_log_to_replay()).map(|dataset| dataset.name()).collect()
    }

    /// Creates a file system with local properties.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NoDataset`] for a missing parent, [`Error::NameTooLong`], [`Error::InvalidName`], or it
    /// cannot be written.
    pub fn create_filesystem(
        &self,
        name: &str,
        local: Vec<(String, Value)>,
        new: NewFilesystem,
        initialise: Initialise,
    ) -> Result<()> {
        new_names::check(name, DatasetKind::Filesystem)?;
        let full = name.to_owned();
        self.with_limits(name, local, move |syncing, local| {
            syncing.change(|dsl| dsl.create_filesystem(&full, &local, &new, &initialise))
        })
    }

    /// Makes the dataset `name` without its limits, then sets the limits. If one of them is refused, the dataset is
    /// destroyed again.
    pub(crate) fn with_limits(
        &self,
        name: &str,
        local: Vec<(String, Value)>,
        make: impl FnOnce(&mut Syncing<'_>, Vec<(String, Value)>) -> Result<()> + Send + 'static,
    ) -> Result<()> {
        local.iter().try_for_each(|(name, value)| names::check_storable(name, "", Some(value)))?;
        let (limits, local): (Vec<_>, Vec<_>) =
            local.into_iter().partition(|(name, _)| limits::SPACE.contains(&name.as_str()));
        self.run(move |syncing| make(syncing, local))?;
        if limits.is_empty() {
            return Ok(());
        }
        // A limit is compared with what the dataset uses, so the dataset must exist first.
        let limits = limits.into_iter().map(|(name, value)| (name, Some(value))).collect();
        self.set_properties(name, limits).or_else(|error| {
            self.destroy_dataset(name)?;
            Err(match error {
                Error::Property(PropertyError::BelowUse | PropertyError::AboveSpace) => Error::NoSpace,
                other => other,
            })
        })
    }

    /// Destroys a file system or volume that has neither children nor snapshots.
    ///
    /// # Errors
    /// [`Error::HasChildren`], [`Error::DatasetBusy`], [`Error::NoDataset`].
    pub fn destroy_dataset(&self, name: &str) -> Result<()> {
        let name = name.to_owned();
        self.run_beside(Reserve::Quarter, 1, move |syncing| syncing.change(|dsl| dsl.destroy_head(&name)))
    }

    /// Renames a file system or volume within the pool.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NoDataset`]; [`Error::NameTooLong`], also for a name below; [`Error::InvalidName`].
    pub fn rename_dataset(&self, from: &str, to: &str) -> Result<()> {
        new_names::check(to, DatasetKind::Filesystem)?;
        let longer = to.len().saturating_sub(from.len());
        if longer > 0 {
            let list = self.list(from, None, true)?;
            if let Some(info) = list.iter().find(|info| info.name.len() + longer >= names::NAME_MAX) {
                return Err(Error::NameTooLong(info.name.clone()));
            }
        }
        let (from, to) = (from.to_owned(), to.to_owned());
        self.run_beside(Reserve::Half, 1, move |syncing| syncing.change(|dsl| dsl.rename_dir(&from, &to)))
    }

    /// Sets local properties of a dataset; `None` inherits. [`Property::parse_value`] has checked the values before; this
    /// function checks only what depends on the pool.
    ///
    /// # Errors
    /// [`Error::Property`] for a value this pool cannot take; then none is set.
    pub fn set_properties(&self, name: &str, values: Vec<(String, Option<Value>)>) -> Result<()> {
        if name.contains('@') {
            return self.set_snapshot_properties(name, values);
        }
        values.iter().try_for_each(|(name, value)| names::check_storable(name, "", value.as_ref()))?;
        let full = name.to_owned();
        // In a full pool, a change of a limit can be needed to free space.
        let are_limits = values.iter().all(|(name, _)| limits::SPACE.contains(&name.as_str()));
        let kept = if are_limits { Reserve::Quarter } else { Reserve::Half };
        self.run_beside(kept, values.len() as u64, move |syncing| {
            syncing.change(|dsl| {
                let dir = tree::dir_of(dsl.mos(), &dsl.view.pool, &full)?;
                // Each one is judged with the changes of those before it.
                let mut given = Vec::new();
                for (name, value) in &values {
                    if !limits::SPACE.contains(&name.as_str()) {
                        continue;
                    }
                    let bytes = dsl.number_after(dir, name, value.as_ref())?;
                    dsl.check_limit(dir, name, bytes, &given)?;
                    given.push((name.as_str(), bytes));
                }
                values.iter().try_for_each(|(name, value)| dsl.set_property(dir, name, value.as_ref()))
            })
        })?;
        self.refresh_settings()
    }

    /// Sets or removes pool properties kept in the MOS.
    ///
    /// # Errors
    /// [`Error::Property`] for a name or value that is too long; or they cannot be written.
    pub fn set_pool_properties(&self, values: Vec<(String, Value)>) -> Result<()> {
        values.iter().try_for_each(|(name, value)| names::check_storable(name, "", Some(value)))?;
        let turns_on = |(name, value): &(String, Value)| name == PROPERTY && *value == Value::Number(1);
        if values.iter().any(turns_on) && self.inner.multihost.hostid() == 0 {
            return Err(Error::Property(PropertyError::NeedsHostId));
        }
        self.run_beside(Reserve::Half, values.len() as u64, move |syncing| {
            for (name, value) in &values {
                match (name.as_str(), value) {
                    ("comment", Value::Text(text)) => {
                        syncing.state.config.comment = Some(text.clone()).filter(|t| !t.is_empty());
                        syncing.state.config_dirty = true;
                    }
                    ("compatibility", Value::Text(text)) => {
                        syncing.state.config.compatibility = Some(text.clone()).filter(|t| t != "off");
                        syncing.state.config_dirty = true;
                    }
                    ("failmode", Value::Number(number)) => {
                        syncing.set_pool_property(name, value)?;
                        syncing.inner.suspension().set_mode(FailMode::from_number(*number));
                    }
                    (PROPERTY, Value::Number(number)) => {
                        syncing.set_pool_property(name, value)?;
                        let multihost = &syncing.inner.multihost;
                        multihost.want(*number == 1);
                        syncing.state.config.hostid =
                            if *number == 1 { multihost.hostid().into() } else { 0 };
                        syncing.state.config_dirty = true;
                    }
                    _ => syncing.set_pool_property(name, value)?,
                }
            }
            Ok(())
        })
    }

    /// Upgrades a pool of a legacy version. With version 5000 it has feature flags from then on, of which none is enabled.
    ///
    /// # Errors
    /// If it cannot be written.
    ///
    /// # Panics
    /// If the version would become an older one.
    pub fn upgrade_version(&self, version: u64) -> Result<()> {
        self.run(move |syncing| {
            let from = syncing.state.config.version;
            assert!(version >= from, "a pool's version only grows");
            syncing.state.config.version = version;
            syncing.state.config_dirty = true;
            syncing.mos().set_version(version);
            syncing.change(|dsl| dsl.upgrade(from, version))?;
            if from < VERSION_FEATURES && version >= VERSION_FEATURES {
                let mut salt = [0; 32];
                syncing.inner.host.entropy.fill(&mut salt);
                syncing.inner.storage.set_salt(salt);
                syncing.state.new_salt = Some(salt);
            }
            Ok(())
        })
    }

    /// Enables features.
    ///
    /// # Errors
    /// If the pool has no feature flags, or they cannot be written.
    pub fn enable_features(&self, wanted: Vec<&'static format::features::Feature>) -> Result<()> {
        self.run(move |syncing| {
            let inner = syncing.inner;
            let features = syncing
                .state
                .features
                .as_mut()
                .ok_or_else(|| Error::Unsupported("features in a pool of a legacy version".into()))?;
            for feature in wanted {
                features.enable(&inner.mos, &syncing.tx, feature)?;
            }
            Ok(())
        })
    }

    /// Applies the new properties to open datasets. If the properties of one dataset cannot be read, the others still get
    /// theirs.
    pub(crate) fn refresh_settings(&self) -> Result<()> {
        let mut first = Ok(());
        let features = self.inner.info().features.clone();
        for dataset in self.inner.open.all() {
            // A sync that destroys the dataset waits for this lock.
            let _shared = self.shared();
            if dataset.destroyed.load(Ordering::Acquire) {
                continue;
            }
            // By its number: a dataset that is being received has no public name, and names may change meanwhile.
            let known = info::info_of(&self.inner.view(), dataset.name(), dataset.id)
                .and_then(|info| settings(&self.inner.view(), &info, Some(&features)));
            match known {
                Ok((settings, policy)) => dataset.set_settings(settings, policy),
                Err(error) => first = first.and(Err(error)),
            }
        }
        first
    }
}

/// How much a free piece counts as fragmented, in percent: of 512 bytes, of 1 KiB, and so on to 16 MiB and more.
const FRAGMENTATION: [u64; 16] = [100, 100, 98, 95, 90, 80, 70, 60, 50, 40, 30, 20, 15, 10, 5, 0];

/// Fragmentation of one metaslab, weighted by the space in pieces of each size; `None` without a histogram.
fn fragmentation_of(header: &format::space_map::Header, shift: u32) -> Option<u64> {
    let (mut total, mut sum) = (0u128, 0u128);
    for (i, &count) in header.histogram.as_ref()?.iter().enumerate() {
        let log2 = i as u32 + shift;
        let space = u128::from(count) << log2.min(63);
        let place = (log2.saturating_sub(9) as usize).min(FRAGMENTATION.len() - 1);
        total += space;
        sum += space * u128::from(FRAGMENTATION[place]);
    }
    Some(sum.checked_div(total).unwrap_or(0) as u64)
}
