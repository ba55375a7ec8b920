//! Pool configs: the tree of vdevs and the pool's identity, as labels and the MOS keep them.
//!
//! From:   the nvlist of a label (one top-level vdev) or of the MOS object `config` (the whole tree).
//! To:     `pool`, which opens the vdevs, and writes both forms again when something changes.
//! Source: docs/format/01-labels-uberblock.md §4, §6, §7.

use alloc::{
    borrow::ToOwned,
    string::{String, ToString},
    vec::Vec,
};

use crate::{Corrupt, Guid, NvList, NvValue, ObjectId, Txg};

mod vdev;
pub use vdev::{RESILVER_DEFER, TopConfig, VdevConfig, VdevKind};

/// The pool version that means feature flags.
pub const VERSION_FEATURES: u64 = 5000;

/// The state of the pool, as a label has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum PoolState {
    /// In use, or left without export.
    Active = 0,
    /// Exported.
    Exported = 1,
    /// Destroyed; its data is still there.
    Destroyed = 2,
    /// The device is a hot spare.
    Spare = 3,
    /// The device is a cache.
    L2cache = 4,
}

impl PoolState {
    /// The state with on-disk number `id`.
    ///
    /// # Errors
    /// [`Corrupt`] for a number that no OpenZFS writes.
    pub const fn from_disk(id: u64) -> Result<PoolState, Corrupt> {
        Ok(match id {
            0 => PoolState::Active,
            1 => PoolState::Exported,
            2 => PoolState::Destroyed,
            3 => PoolState::Spare,
            4 => PoolState::L2cache,
            _ => return Err(Corrupt::new("pool state", id)),
        })
    }
}

/// A pool's config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Pool version: 1 to 28, or [`VERSION_FEATURES`].
    pub version: u64,
    /// Name of the pool.
    pub name: String,
    /// State of the pool.
    pub state: PoolState,
    /// Txg in which this config was written. 0: labels of a pool that never synced.
    pub txg: Txg,
    /// Guid of the pool, and of its root vdev.
    pub pool_guid: Guid,
    /// Errata the pool is known to have.
    pub errata: u64,
    /// Property `comment`.
    pub comment: Option<String>,
    /// Property `compatibility`.
    pub compatibility: Option<String>,
    /// Host that last used the pool; 0: not said.
    pub hostid: u64,
    /// Name of that host.
    pub hostname: Option<String>,
    /// Number of top-level slots; if absent, the number in the tree.
    pub vdev_children: u64,
    /// Top-level slots that are holes.
    pub hole_array: Vec<u64>,
    /// Guids of active features that a boot loader must know; `None` in pools without features.
    pub features_for_read: Option<Vec<String>>,
    /// The vdev ZAPs are kept up to date (MOS only).
    pub has_per_vdev_zaps: bool,
    /// In a label: the top-level vdev and the leaf it belongs to.
    pub label: Option<LabelGuids>,
    /// The root (MOS), or the top-level vdev of the label.
    pub tree: VdevConfig,
    /// All other keys, kept as they are.
    pub extra: NvList,
}

/// Whose label it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelGuids {
    /// The top-level vdev.
    pub top_guid: Guid,
    /// The leaf.
    pub guid: Guid,
}

/// The small config in the label of a hot spare or cache device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuxConfig {
    /// Pool version.
    pub version: u64,
    /// [`PoolState::Spare`] or [`PoolState::L2cache`].
    pub state: PoolState,
    /// Guid of the device.
    pub guid: Guid,
    /// log2 bytes of a sector (cache devices).
    pub ashift: Option<u32>,
    /// All other keys.
    pub extra: NvList,
}

/// The kinds of label configs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "labels are few")]
pub enum Label {
    /// The leaf is part of a pool.
    Pool(PoolConfig),
    /// The device is a hot spare or a cache.
    Aux(AuxConfig),
}

/// Keys of a pool config in the order in which OpenZFS writes them.
const POOL_KEYS: [&str; 24] = [
    "version",
    "name",
    "state",
    "txg",
    "pool_guid",
    "errata",
    "min_alloc",
    "max_alloc",
    "comment",
    "compatibility",
    "hostid",
    "hostname",
    "top_guid",
    "guid",
    "is_spare",
    "is_log",
    HAS_ZAPS,
    "splitcfg",
    "hole_array",
    "vdev_children",
    "split_guid",
    "vdev_tree",
    "features_for_read",
    "create_txg",
];

const HAS_ZAPS: &str = "com.delphix:has_per_vdev_zaps";

/// The value of a key that must be there.
macro_rules! need {
    ($list:expr, $key:literal) => {
        take_u64($list, $key).ok_or(Corrupt::new(concat!("missing config key ", $key), 0))
    };
}

use need;

/// Takes a number out; a key of another type stays where it is.
fn take_u64(list: &mut NvList, key: &str) -> Option<u64> {
    let value = list.get_u64(key)?;
    list.remove(key);
    Some(value)
}

fn take_object(list: &mut NvList, key: &str) -> Option<ObjectId> {
    take_u64(list, key).map(ObjectId)
}

fn take_string(list: &mut NvList, key: &str) -> Option<String> {
    let value = list.get_str(key)?.to_owned();
    list.remove(key);
    Some(value)
}

fn ordered(list: NvList, keys: &[&str]) -> NvList {
    let place = |name: &[u8]| keys.iter().position(|key| key.as_bytes() == name).unwrap_or(keys.len());
    let mut pairs: Vec<_> = list.iter().collect();
    pairs.sort_by_key(|(name, _)| place(name));
    let mut sorted = NvList::new();
    pairs.into_iter().for_each(|(name, value)| sorted.insert(name, value.clone()));
    sorted
}

impl PoolConfig {
    /// Whether the pool has removed vdevs, which labels do not list.
    #[must_use]
    pub fn has_removed(&self) -> bool {
        let removal = |guid: &String| guid == crate::features::DEVICE_REMOVAL.guid;
        self.features_for_read.iter().flatten().any(removal)
    }

    /// Reads the config of a MOS (its tree is the root) or of a label (a top-level vdev).
    ///
    /// # Errors
    /// [`Corrupt`] for a missing key or values out of range.
    pub fn from_nvlist(list: &NvList) -> Result<PoolConfig, Corrupt> {
        let mut list = list.clone();
        let list = &mut list;
        let tree = list.get_list("vdev_tree").ok_or(Corrupt::new("missing config key vdev_tree", 0))?;
        let tree = VdevConfig::from_nvlist(tree)?;
        list.remove("vdev_tree");
        let features_for_read = list
            .get_list("features_for_read")
            .map(|features| {
                let name = |(name, _)| core::str::from_utf8(name).map(ToString::to_string);
                features.iter().map(name).collect::<Result<Vec<_>, _>>()
            })
            .transpose()
            .map_err(|_| Corrupt::new("feature name", 0))?;
        list.remove("features_for_read");
        let hole_array = list.get_u64s("hole_array").map_or(Vec::new(), <[u64]>::to_vec);
        list.remove("hole_array");
        let label = if tree.kind == VdevKind::Root {
            None
        } else {
            // When the label is written again, both follow from the tree.
            list.remove("is_log");
            list.remove("is_spare");
            let (top_guid, guid) = (need!(list, "top_guid")?, need!(list, "guid")?);
            Some(LabelGuids { top_guid: Guid(top_guid), guid: Guid(guid) })
        };
        let tree_children =
            if label.is_none() { tree.children.len() as u64 } else { tree.id.saturating_add(1) };
        Ok(PoolConfig {
            version: need!(list, "version")?,
            name: take_string(list, "name").ok_or(Corrupt::new("missing config key name", 0))?,
            state: PoolState::from_disk(need!(list, "state")?)?,
            txg: Txg(need!(list, "txg")?),
            pool_guid: Guid(need!(list, "pool_guid")?),
            errata: take_u64(list, "errata").unwrap_or(0),
            comment: take_string(list, "comment"),
            compatibility: take_string(list, "compatibility"),
            hostid: take_u64(list, "hostid").unwrap_or(0),
            hostname: take_string(list, "hostname"),
            vdev_children: take_u64(list, "vdev_children").unwrap_or(tree_children),
            hole_array,
            features_for_read,
            has_per_vdev_zaps: list.remove(HAS_ZAPS).is_some(),
            label,
            tree,
            extra: list.clone(),
        })
    }

    /// The form in the MOS object `config`.
    ///
    /// # Panics
    /// If the tree is not that of the whole pool.
    #[must_use]
    pub fn to_mos_nvlist(&self) -> NvList {
        assert_eq!(self.tree.kind, VdevKind::Root, "the MOS keeps the whole tree");
        let mut list = self.common();
        if self.has_per_vdev_zaps {
            list.insert(HAS_ZAPS, NvValue::Boolean);
        }
        list.insert("vdev_tree", self.tree.to_mos_nvlist());
        ordered(list, &POOL_KEYS)
    }

    /// The form in the label of the leaf with this guid; `None` when the pool has no such leaf.
    #[must_use]
    pub fn to_label_nvlist(&self, leaf: Guid) -> Option<NvList> {
        let tops = match self.tree.kind {
            VdevKind::Root => self.tree.children.as_slice(),
            _ => core::slice::from_ref(&self.tree),
        };
        let (top, leaf) =
            tops.iter().find_map(|top| Some((top, top.leaves().find(|vdev| vdev.guid == leaf)?)))?;
        let mut list = self.common();
        list.insert("top_guid", top.guid.0);
        list.insert("guid", leaf.guid.0);
        // In a label they follow from the tree, whatever else a config of the MOS may call so.
        list.remove("is_spare");
        list.remove("is_log");
        if leaf.extra.get_u64("is_spare") == Some(1) {
            list.insert("is_spare", 1u64);
        }
        // The devices of a mirror of logs are no logs themselves.
        if top.guid == leaf.guid && top.top.is_some_and(|top| top.is_log) {
            list.insert("is_log", 1u64);
        }
        list.insert("vdev_tree", top.to_label_nvlist());
        Some(ordered(list, &POOL_KEYS))
    }

    /// The pairs that labels and MOS share.
    fn common(&self) -> NvList {
        let mut list = self.extra.clone();
        list.insert("version", self.version);
        list.insert("name", self.name.as_str());
        list.insert("state", self.state as u64);
        list.insert("txg", self.txg.0);
        list.insert("pool_guid", self.pool_guid.0);
        list.insert("errata", self.errata);
        for (key, text) in
            [("comment", &self.comment), ("compatibility", &self.compatibility), ("hostname", &self.hostname)]
        {
            if let Some(text) = text {
                list.insert(key, text.as_str());
            }
        }
        if self.hostid != 0 {
            list.insert("hostid", self.hostid);
        }
        if !self.hole_array.is_empty() {
            list.insert("hole_array", self.hole_array.as_slice());
        }
        list.insert("vdev_children", self.vdev_children);
        if let Some(features) = &self.features_for_read {
            let features: NvList = features.iter().map(|guid| (guid.as_str(), NvValue::Boolean)).collect();
            list.insert("features_for_read", features);
        }
        list
    }
}

impl AuxConfig {
    /// Reads the label of a hot spare or cache device.
    ///
    /// # Errors
    /// [`Corrupt`] for a missing key or another state.
    pub fn from_nvlist(list: &NvList) -> Result<AuxConfig, Corrupt> {
        let mut list = list.clone();
        let state = need!(&mut list, "state")?;
        let state = match PoolState::from_disk(state)? {
            aux @ (PoolState::Spare | PoolState::L2cache) => aux,
            _ => return Err(Corrupt::new("state of an auxiliary device", state)),
        };
        let ashift = match take_u64(&mut list, "ashift") {
            Some(ashift @ (0 | 9..=16)) => Some(ashift as u32),
            Some(ashift) => return Err(Corrupt::new("vdev ashift", ashift)),
            None => None,
        };
        Ok(AuxConfig {
            version: need!(&mut list, "version")?,
            state,
            guid: Guid(need!(&mut list, "guid")?),
            ashift,
            extra: list,
        })
    }

    /// The list for the label.
    #[must_use]
    pub fn to_nvlist(&self) -> NvList {
        let mut list = NvList::new();
        list.insert("version", self.version);
        list.insert("state", self.state as u64);
        list.insert("guid", self.guid.0);
        if let Some(ashift) = self.ashift {
            list.insert("ashift", u64::from(ashift));
        }
        self.extra.iter().for_each(|(name, value)| list.insert(name, value.clone()));
        list
    }
}

impl Label {
    /// Reads the config of a label.
    ///
    /// # Errors
    /// [`Corrupt`] for a missing key or values out of range.
    pub fn from_nvlist(list: &NvList) -> Result<Label, Corrupt> {
        match list.get_u64("state") {
            Some(3 | 4) => AuxConfig::from_nvlist(list).map(Label::Aux),
            _ => PoolConfig::from_nvlist(list).map(Label::Pool),
        }
    }
}

#[cfg(test)]
mod tests;
