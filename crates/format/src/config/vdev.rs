//! Vdevs as configs describe them: one node of the tree, with all below it.
//!
//! Source: docs/format/01-labels-uberblock.md §4.2, §7, §8.

use alloc::{string::String, vec::Vec};
use core::iter;

use super::{need, ordered, take_object, take_string, take_u64};
use crate::{Corrupt, Guid, NvList, NvValue, ObjectId, Txg};

/// The kind of a vdev.
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
    /// A spare of a draid vdev: space on all its devices.
    DistributedSpare,
    /// Another type, from the future.
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
            VdevKind::DistributedSpare => "dspare",
            VdevKind::Other(name) => name,
        }
    }

    /// Whether nothing is below it: a device of its own, or a distributed spare in use.
    #[must_use]
    pub const fn is_leaf(&self) -> bool {
        matches!(self, VdevKind::Disk | VdevKind::File | VdevKind::DistributedSpare)
    }

    /// Whether the slot holds nothing.
    #[must_use]
    pub const fn is_absent(&self) -> bool {
        matches!(self, VdevKind::Missing | VdevKind::Hole)
    }
}

/// The fields that only a top-level vdev has.
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
    /// The kind of the vdev.
    pub kind: VdevKind,
    /// Index among its siblings.
    pub id: u64,
    /// Its guid; 0 for a hole.
    pub guid: Guid,
    /// Its last known path, as bytes. It is only a hint.
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

const ZAP_LEAF: &str = "com.delphix:vdev_zap_leaf";
const ZAP_TOP: &str = "com.delphix:vdev_zap_top";
const ZAP_ROOT: &str = "com.klarasystems:vdev_zap_root";
/// Key of a leaf whose resilver waits for the end of the present one.
pub const RESILVER_DEFER: &str = "com.datto:resilver_defer";

impl VdevConfig {
    /// A vdev of this kind and guid without other keys.
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
        if let VdevKind::Raidz { nparity } | VdevKind::Draid { nparity, .. } = kind
            && (nparity == 0 || children.len() <= usize::from(nparity))
        {
            return Err(Corrupt::new("children of a vdev with parity", children.len() as u64));
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

    /// The form in labels: without keys that only the MOS has.
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

    /// The leaves: this vdev, or those below it.
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
        "dspare" => VdevKind::DistributedSpare,
        _ => VdevKind::Other(type_name),
    })
}

impl TopConfig {
    fn take(list: &mut NvList, kind: &VdevKind) -> Result<TopConfig, Corrupt> {
        let metaslab_shift = take_u64(list, "metaslab_shift").unwrap_or(0);
        let ashift = need!(list, "ashift")?;
        let known = (9..=16).contains(&ashift) || kind.is_absent() && ashift == 0;
        if !known {
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

    /// Metaslabs of the vdev; the rest at its end is never used.
    #[must_use]
    pub const fn metaslab_count(&self) -> u64 {
        if self.metaslab_shift == 0 { 0 } else { self.asize >> self.metaslab_shift }
    }
}
