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
use core::iter;

use crate::{Corrupt, Guid, NvList, NvValue, ObjectId, Txg};

/// Pool version that stands for feature flags.
pub const VERSION_FEATURES: u64 = 5000;

/// What a label says of its pool.
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

/// What a vdev is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VdevKind {
    /// The root of the tree.
    Root,
    /// All children hold the same.
    Mirror,
    /// Parity over the children.
    Raidz {
        /// Parity columns, 1 to 3.
        nparity: u8,
    },
    /// Parity over the children with distributed spares.
    Draid {
        /// Parity columns, 1 to 3.
        nparity: u8,
        /// Data columns of a group.
        ndata: u64,
        /// Distributed spares.
        nspares: u64,
        /// Groups.
        ngroups: u64,
    },
    /// A block device.
    Disk,
    /// A file.
    File,
    /// A mirror of a device and its replacement.
    Replacing,
    /// A mirror of a device and its hot spare.
    Spare,
    /// A slot whose labels were not found.
    Missing,
    /// A slot whose vdev was removed (logs).
    Hole,
    /// A removed vdev whose blocks live elsewhere.
    Indirect,
    /// Another type (`dspare`, or one from the future).
    Other(String),
}

impl VdevKind {
    /// The type string.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            VdevKind::Root => "root",
            VdevKind::Mirror => "mirror",
            VdevKind::Raidz { .. } => "raidz",
            VdevKind::Draid { .. } => "draid",
            VdevKind::Disk => "disk",
            VdevKind::File => "file",
            VdevKind::Replacing => "replacing",
            VdevKind::Spare => "spare",
            VdevKind::Missing => "missing",
            VdevKind::Hole => "hole",
            VdevKind::Indirect => "indirect",
            VdevKind::Other(name) => name,
        }
    }

    /// Whether it is a device of its own.
    #[must_use]
    pub const fn is_leaf(&self) -> bool {
        matches!(self, VdevKind::Disk | VdevKind::File)
    }

    /// Whether the slot holds nothing.
    #[must_use]
    pub const fn is_absent(&self) -> bool {
        matches!(self, VdevKind::Missing | VdevKind::Hole)
    }
}

/// What a top-level vdev has beside the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TopConfig {
    /// MOS object with the space maps' numbers; 0 before the first sync.
    pub metaslab_array: ObjectId,
    /// log2 bytes of a metaslab.
    pub metaslab_shift: u32,
    /// log2 bytes of the smallest allocation.
    pub ashift: u32,
    /// Allocatable bytes.
    pub asize: u64,
    /// Only intent logs are put here.
    pub is_log: bool,
}

/// A vdev and all below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VdevConfig {
    /// What it is.
    pub kind: VdevKind,
    /// Index among its siblings.
    pub id: u64,
    /// Its guid; 0 for a hole.
    pub guid: Guid,
    /// Where it was last seen: bytes, no more than a hint.
    pub path: Option<Vec<u8>>,
    /// Disks: OpenZFS partitioned the whole device.
    pub whole_disk: Option<bool>,
    /// Set for top-level vdevs.
    pub top: Option<TopConfig>,
    /// Space map of the txgs that the leaf missed.
    pub dtl: Option<ObjectId>,
    /// Txg in which it was added; old pools lack it.
    pub create_txg: Option<Txg>,
    /// ZAP of the leaf (MOS only).
    pub zap_leaf: Option<ObjectId>,
    /// ZAP of the top-level vdev (MOS only).
    pub zap_top: Option<ObjectId>,
    /// ZAP of the root (MOS only).
    pub zap_root: Option<ObjectId>,
    /// Vdevs below.
    pub children: Vec<VdevConfig>,
    /// All other keys, kept as they are.
    pub extra: NvList,
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
    /// Number of top-level slots; what the tree has when not said.
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

/// What the config of a label is.
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

/// Keys of a vdev in the order in which OpenZFS writes them.
const VDEV_KEYS: [&str; 53] = [
    "type",
    "id",
    "guid",
    "top_guid",
    "path",
    "devid",
    "phys_path",
    "vdev_enc_sysfs_path",
    "fru",
    "nparity",
    "raidz_expanding",
    "raidz_expand_txgs",
    "draid_ndata",
    "draid_nspares",
    "draid_ngroups",
    "draid_nchildren",
    "whole_disk",
    "rotational",
    "not_present",
    "is_spare",
    "metaslab_array",
    "metaslab_shift",
    "ashift",
    "asize",
    "min_alloc",
    "is_log",
    "non_allocating",
    "removing",
    "DTL",
    "com.delphix:indirect_object",
    "com.delphix:indirect_births",
    "com.delphix:prev_indirect_vdev",
    "create_txg",
    "expansion_time",
    ZAP_LEAF,
    ZAP_TOP,
    ZAP_ROOT,
    RESILVER_DEFER,
    "children",
    "offline",
    "resilver_txg",
    "rebuild_txg",
    "faulted",
    "degraded",
    "removed",
    "unspare",
    "is_hole",
    "aux_state",
    "orig_guid",
    "path_old",
    "devid_old",
    "phys_path_old",
    "allocation_bias",
];

const HAS_ZAPS: &str = "com.delphix:has_per_vdev_zaps";
const ZAP_LEAF: &str = "com.delphix:vdev_zap_leaf";
const ZAP_TOP: &str = "com.delphix:vdev_zap_top";
const ZAP_ROOT: &str = "com.klarasystems:vdev_zap_root";
const RESILVER_DEFER: &str = "com.datto:resilver_defer";

/// The value of a key that must be there.
macro_rules! need {
    ($list:expr, $key:literal) => {
        take_u64($list, $key).ok_or(Corrupt::new(concat!("missing config key ", $key), 0))
    };
}

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

impl VdevConfig {
    /// A vdev of this kind and guid with nothing else said.
    #[must_use]
    pub const fn new(kind: VdevKind, id: u64, guid: Guid) -> VdevConfig {
        VdevConfig {
            kind,
            id,
            guid,
            path: None,
            whole_disk: None,
            top: None,
            dtl: None,
            create_txg: None,
            zap_leaf: None,
            zap_top: None,
            zap_root: None,
            children: Vec::new(),
            extra: NvList::new(),
        }
    }

    /// Reads a vdev and all below it. Elements of the lists of spares and caches have no id: it reads as 0.
    ///
    /// # Errors
    /// [`Corrupt`] for a missing key, a child whose id is not its index, or values out of range.
    pub fn from_nvlist(list: &NvList) -> Result<VdevConfig, Corrupt> {
        let mut list = list.clone();
        let id = take_u64(&mut list, "id").unwrap_or(0);
        let guid = Guid(need!(&mut list, "guid")?);
        let type_name =
            take_string(&mut list, "type").ok_or(Corrupt::new("vdev without type, guid", guid.0))?;
        let kind = read_kind(type_name, &mut list)?;
        let top = if list.get_u64("ashift").is_some() && list.get_u64("asize").is_some() {
            Some(TopConfig::take(&mut list, &kind)?)
        } else {
            None
        };
        let mut children = Vec::new();
        if let Some(lists) = list.get_lists("children") {
            for (index, child) in lists.iter().enumerate() {
                let child = VdevConfig::from_nvlist(child)?;
                if child.id != index as u64 {
                    return Err(Corrupt::new("vdev id", child.id));
                }
                children.push(child);
            }
            list.remove("children");
        }
        let path = list.get_bytes("path").map(<[u8]>::to_vec);
        if path.is_some() {
            list.remove("path");
        }
        Ok(VdevConfig {
            kind,
            id,
            guid,
            path,
            whole_disk: take_u64(&mut list, "whole_disk").map(|flag| flag != 0),
            top,
            dtl: take_object(&mut list, "DTL"),
            create_txg: take_u64(&mut list, "create_txg").map(Txg),
            zap_leaf: take_object(&mut list, ZAP_LEAF),
            zap_top: take_object(&mut list, ZAP_TOP),
            zap_root: take_object(&mut list, ZAP_ROOT),
            children,
            extra: list,
        })
    }

    /// The form in the MOS, with everything below.
    #[must_use]
    pub fn to_mos_nvlist(&self) -> NvList {
        self.to_nvlist(true)
    }

    /// The form in labels: without what only the MOS says.
    #[must_use]
    pub fn to_label_nvlist(&self) -> NvList {
        self.to_nvlist(false)
    }

    /// The form in the MOS lists of spares and caches: without id.
    #[must_use]
    pub fn to_aux_nvlist(&self) -> NvList {
        let mut list = self.to_nvlist(true);
        list.remove("id");
        list
    }

    fn to_nvlist(&self, in_mos: bool) -> NvList {
        let mut list = self.extra.clone();
        list.insert("type", self.kind.as_str());
        list.insert("id", self.id);
        list.insert("guid", self.guid.0);
        match self.kind {
            VdevKind::Raidz { nparity } => list.insert("nparity", u64::from(nparity)),
            VdevKind::Draid { nparity, ndata, nspares, ngroups } => {
                list.insert("nparity", u64::from(nparity));
                list.insert("draid_ndata", ndata);
                list.insert("draid_nspares", nspares);
                list.insert("draid_ngroups", ngroups);
            }
            _ => {}
        }
        if let Some(path) = &self.path {
            list.insert("path", NvValue::string(path));
        }
        if let Some(top) = &self.top {
            list.insert("metaslab_array", top.metaslab_array.0);
            list.insert("metaslab_shift", u64::from(top.metaslab_shift));
            list.insert("ashift", u64::from(top.ashift));
            list.insert("asize", top.asize);
            list.insert("is_log", u64::from(top.is_log));
        }
        let mut put = |key: &str, value: Option<u64>| {
            if let Some(value) = value {
                list.insert(key, value);
            }
        };
        put("whole_disk", self.whole_disk.map(u64::from));
        put("DTL", self.dtl.map(|object| object.0));
        put("create_txg", self.create_txg.map(|txg| txg.0));
        if in_mos {
            put(ZAP_LEAF, self.zap_leaf.map(|object| object.0));
            put(ZAP_TOP, self.zap_top.map(|object| object.0));
            put(ZAP_ROOT, self.zap_root.map(|object| object.0));
        } else {
            list.remove(RESILVER_DEFER);
        }
        if !self.children.is_empty() {
            let children: Vec<NvList> = self.children.iter().map(|child| child.to_nvlist(in_mos)).collect();
            list.insert("children", children);
        }
        ordered(list, &VDEV_KEYS)
    }

    /// This vdev and all below it, parents first.
    pub fn walk(&self) -> impl Iterator<Item = &VdevConfig> {
        let mut waiting = alloc::vec![self];
        iter::from_fn(move || {
            let vdev = waiting.pop()?;
            waiting.extend(vdev.children.iter().rev());
            Some(vdev)
        })
    }

    /// The devices: this vdev, or those below it.
    pub fn leaves(&self) -> impl Iterator<Item = &VdevConfig> {
        self.walk().filter(|vdev| vdev.kind.is_leaf())
    }

    /// Sum of all guids in the tree, as uberblocks keep it.
    #[must_use]
    pub fn guid_sum(&self) -> u64 {
        self.walk().fold(0, |sum, vdev| sum.wrapping_add(vdev.guid.0))
    }

    /// The vdev with this guid, here or below.
    #[must_use]
    pub fn find(&self, guid: Guid) -> Option<&VdevConfig> {
        self.walk().find(|vdev| vdev.guid == guid)
    }
}

fn read_kind(type_name: String, list: &mut NvList) -> Result<VdevKind, Corrupt> {
    let nparity = |list: &mut NvList| match need!(list, "nparity")? {
        n @ 1..=3 => Ok(n as u8),
        n => Err(Corrupt::new("vdev parity", n)),
    };
    Ok(match type_name.as_str() {
        "root" => VdevKind::Root,
        "mirror" => VdevKind::Mirror,
        "raidz" => VdevKind::Raidz { nparity: nparity(list)? },
        "draid" => VdevKind::Draid {
            nparity: nparity(list)?,
            ndata: need!(list, "draid_ndata")?,
            nspares: need!(list, "draid_nspares")?,
            ngroups: need!(list, "draid_ngroups")?,
        },
        "disk" => VdevKind::Disk,
        "file" => VdevKind::File,
        "replacing" => VdevKind::Replacing,
        "spare" => VdevKind::Spare,
        "missing" => VdevKind::Missing,
        "hole" => VdevKind::Hole,
        "indirect" => VdevKind::Indirect,
        _ => VdevKind::Other(type_name),
    })
}

impl TopConfig {
    fn take(list: &mut NvList, kind: &VdevKind) -> Result<TopConfig, Corrupt> {
        let metaslab_shift = take_u64(list, "metaslab_shift").unwrap_or(0);
        let ashift = need!(list, "ashift")?;
        if !(9..=16).contains(&ashift) && !(kind.is_absent() && ashift == 0) {
            return Err(Corrupt::new("vdev ashift", ashift));
        }
        if metaslab_shift != 0 && !(ashift..=56).contains(&metaslab_shift) {
            return Err(Corrupt::new("vdev metaslab shift", metaslab_shift));
        }
        Ok(TopConfig {
            metaslab_array: ObjectId(take_u64(list, "metaslab_array").unwrap_or(0)),
            metaslab_shift: metaslab_shift as u32,
            ashift: ashift as u32,
            asize: need!(list, "asize")?,
            is_log: take_u64(list, "is_log").unwrap_or(0) != 0,
        })
    }

    /// Metaslabs of the vdev; what is left at its end is never used.
    #[must_use]
    pub const fn metaslab_count(&self) -> u64 {
        if self.metaslab_shift == 0 { 0 } else { self.asize >> self.metaslab_shift }
    }
}

impl PoolConfig {
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
            // They follow from the tree when the label is written again.
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
        if leaf.extra.get_u64("is_spare") == Some(1) {
            list.insert("is_spare", 1u64);
        }
        if top.top.is_some_and(|top| top.is_log) {
            list.insert("is_log", 1u64);
        }
        list.insert("vdev_tree", top.to_label_nvlist());
        Some(ordered(list, &POOL_KEYS))
    }

    /// What labels and MOS share.
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
