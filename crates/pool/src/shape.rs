//! How a top-level vdev spreads its blocks, as its configuration says.
//!
//! From:   the configuration of the vdev, and a way to find the open leaves.
//! To:     the vdevs in `storage`: at an import, and when devices join or leave.
//! Source: docs/format/11-redundancy.md §1.1, §1.2, §11.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use format::Txg;
use format::config::{VdevConfig, VdevKind};
use storage::layout::{Draid, DraidSpec, Grown, Motion, Raidz, Spread};
use storage::{Health, Layout, Leaf, Shape, Side};

/// For each child that was added to a raidz vdev, the txg since which blocks are spread over it.
pub(crate) const EXPAND_TXGS: &str = "raidz_expand_txgs";
/// The draid vdev to which a distributed spare belongs.
pub(crate) const TOP_GUID: &str = "top_guid";
/// The number of a distributed spare within its draid vdev.
pub(crate) const SPARE_ID: &str = "spareid";
/// Bytes of a sector that distributed spares name: the devices below have their own.
pub(crate) const SECTOR: u32 = 512;
/// Says that a child is being added.
pub(crate) const EXPANDING: &str = "raidz_expanding";

/// How far the sectors of a vdev have moved that gets a child, and the first txg of blocks that are placed from now on.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    pub(crate) motion: Arc<Motion>,
    pub(crate) next: Txg,
}

/// The shape of a top-level vdev; `find` gives a leaf if its device is open. [`Shape::Missing`] if too few devices are open.
pub(crate) fn shape_of(
    vdev: &VdevConfig,
    progress: &Progress,
    find: &dyn Fn(&VdevConfig) -> Option<Leaf>,
) -> Shape {
    // All leaves below a child hold the same data: the child may be a `replacing` or `spare` vdev.
    let device = |leaf: &VdevConfig| find(leaf).filter(|found| found.distributed().is_none());
    let below = |vdev: &VdevConfig| -> Vec<Option<Leaf>> { vdev.leaves().map(device).collect() };
    let is_mirror =
        |vdev: &VdevConfig| matches!(vdev.kind, VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare);
    match &vdev.kind {
        VdevKind::Disk | VdevKind::File => find(vdev).map_or(Shape::Missing, Shape::Disk),
        // OpenZFS makes mirrors of raidz vdevs in its own tests only. A mirror with one side has the layout of that side.
        _ if is_mirror(vdev) && !vdev.walk().all(|side| side.kind.is_leaf() || is_mirror(side)) => {
            match &vdev.children[..] {
                [side @ VdevConfig { kind: VdevKind::Raidz { nparity }, children, .. }] => {
                    let sides = children.iter().map(|child| Side::new(below(child))).collect();
                    raidz((vdev, side), progress, u64::from(*nparity), sides)
                }
                _ => Shape::Unsupported(Layout::NestedMirror),
            }
        }
        VdevKind::Mirror | VdevKind::Replacing | VdevKind::Spare => match below(vdev) {
            all if all.iter().any(Option::is_some) => Shape::Mirror(all),
            _ => Shape::Missing,
        },
        VdevKind::Raidz { nparity } => {
            let sides = vdev.children.iter().map(|child| Side::new(below(child))).collect();
            raidz((vdev, vdev), progress, u64::from(*nparity), sides)
        }
        VdevKind::Hole => Shape::Hole,
        VdevKind::Draid { .. } => {
            let mut taken = Vec::new();
            let mut own = |leaf: &VdevConfig| {
                find(leaf)
                    .filter(|found| found.distributed().is_none() || is_own_spare(vdev, leaf, &mut taken))
            };
            let below = |child: &VdevConfig| Side::new(child.leaves().map(&mut own).collect());
            parity(draid(vdev).ok_or(Layout::Draid), vdev.children.iter().map(below).collect())
        }
        // Its mapping is read later, when the MOS can be read.
        VdevKind::Indirect => Shape::Moved(Arc::default()),
        _ => Shape::Missing,
    }
}

/// Whether a leaf is a distributed spare of this draid vdev, and no other leaf is the same one.
fn is_own_spare(draid: &VdevConfig, leaf: &VdevConfig, taken: &mut Vec<u64>) -> bool {
    let VdevKind::Draid { nspares, .. } = draid.kind else { return false };
    let Some(number) = spare_number(leaf).filter(|number| *number < nspares) else { return false };
    let is_own = leaf.extra.get_u64(TOP_GUID) == Some(draid.guid.0) && !taken.contains(&number);
    if is_own {
        taken.push(number);
    }
    is_own
}

/// Which distributed spare of its draid vdev a leaf says to be; `None` of devices.
pub(crate) fn spare_number(leaf: &VdevConfig) -> Option<u64> {
    leaf.extra.get_u64(SPARE_ID).filter(|_| leaf.kind == VdevKind::DistributedSpare)
}

/// A distributed spare in use as a leaf; `smallest` is the size of the smallest device of its vdev.
pub(crate) fn distributed_spare(vdev: &VdevConfig, smallest: u64, health: Arc<Health>) -> Option<Leaf> {
    let number = spare_number(vdev)?;
    let name = Path::new(OsStr::from_bytes(vdev.path.as_deref().unwrap_or_default()));
    let disk = storage::spare_disk(name, smallest, SECTOR);
    Some(Leaf::with_health(vdev.guid.0, disk, health).as_distributed(number))
}

/// Whether a child is being added to this raidz vdev.
pub(crate) fn is_expanding(vdev: &VdevConfig) -> bool {
    vdev.extra.contains(EXPANDING)
}

/// The shape of a top-level vdev that is the raidz vdev `own`, or has it as its only side.
fn raidz(
    (top, own): (&VdevConfig, &VdevConfig),
    Progress { motion, next }: &Progress,
    nparity: u64,
    sides: Vec<Side>,
) -> Shape {
    let ashift = top.top.as_ref().map_or(9, |top| top.ashift);
    let layout = Raidz::new(ashift, sides.len(), nparity).ok_or(Layout::ImpossibleRaidz);
    let since = own.extra.get_u64s(EXPAND_TXGS).unwrap_or_default();
    let since: Vec<Txg> = since.iter().copied().map(Txg).collect();
    let spread = layout.and_then(|now| {
        match (is_expanding(own), &since[..]) {
            (true, since) => Grown::in_motion(now, since, motion.clone()),
            (false, []) => return Ok(Spread::Raidz(now)),
            (false, since) => Grown::new(now, since).map(|grown| grown.from(*next)),
        }
        .map(Spread::Grown)
        .ok_or(Layout::ImpossibleRaidz)
    });
    parity(spread, sides)
}

/// Layout of a draid vdev; `None` if its values are invalid, or if it has several failure domains.
fn draid(vdev: &VdevConfig) -> Option<Spread> {
    let VdevKind::Draid { nparity, ndata, nspares, ngroups } = vdev.kind else { return None };
    let children = vdev.children.len() as u64;
    let in_domain = vdev.extra.get_u64("draid_nchildren").unwrap_or(children);
    let spec = DraidSpec {
        ashift: vdev.top.as_ref()?.ashift,
        children,
        parity: nparity.into(),
        data: ndata,
        spares: nspares,
        groups: ngroups,
    };
    (in_domain == children).then(|| Draid::new(spec)).flatten().map(Spread::Draid)
}

/// The shape of a vdev with parity, if as many of its sides are there as it needs.
fn parity(layout: Result<Spread, Layout>, sides: Vec<Side>) -> Shape {
    let absent = sides.iter().filter(|side| !side.is_there()).count();
    match layout {
        Err(layout) => Shape::Unsupported(layout),
        Ok(layout) if absent > layout.parity() => Shape::Missing,
        Ok(layout) => Shape::Parity { layout, sides },
    }
}

#[cfg(test)]
mod tests {
    use format::Guid;
    use format::config::TopConfig;

    use super::*;

    /// A draid vdev of five devices with two spares, of which `spares` stand beside the first ones.
    fn draid_with(spares: &[(u64, u64)]) -> VdevConfig {
        let kind = VdevKind::Draid { nparity: 1, ndata: 2, nspares: 2, ngroups: 1 };
        let mut draid = VdevConfig::new(kind, 0, Guid(100));
        draid.top =
            Some(TopConfig { ashift: 12, asize: 1 << 30, metaslab_shift: 26, ..TopConfig::default() });
        for id in 0..5 {
            let device = VdevConfig::new(VdevKind::File, id, Guid(id + 1));
            draid.children.push(match spares.get(id as usize) {
                None => device,
                Some((top_guid, number)) => {
                    let mut spare = VdevConfig::new(VdevKind::DistributedSpare, 1, Guid(id + 11));
                    spare.extra.insert(TOP_GUID, *top_guid);
                    spare.extra.insert(SPARE_ID, *number);
                    let children = vec![device, spare];
                    VdevConfig { children, ..VdevConfig::new(VdevKind::Spare, id, Guid(id + 21)) }
                }
            });
        }
        draid
    }

    fn find(leaf: &VdevConfig) -> Option<Leaf> {
        match leaf.kind {
            VdevKind::DistributedSpare => distributed_spare(leaf, 1 << 28, Arc::default()),
            _ => Some(Leaf::new(leaf.guid.0, storage::spare_disk(Path::new("device"), 1 << 28, SECTOR))),
        }
    }

    fn spares_of(vdev: &VdevConfig) -> Vec<u64> {
        let progress = Progress { motion: Arc::default(), next: Txg(9) };
        match shape_of(vdev, &progress, &find) {
            Shape::Parity { sides, .. } => {
                let leaves = sides.iter().flat_map(Side::leaves);
                leaves.filter(|leaf| leaf.distributed().is_some()).map(|leaf| leaf.guid).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_distributed_spare_counts_in_its_own_vdev_only_and_once() {
        assert_eq!(spares_of(&draid_with(&[(100, 0), (100, 1)])), [11, 12]);
        assert_eq!(spares_of(&draid_with(&[(100, 1), (100, 1)])), [11], "the same one again");
        assert_eq!(spares_of(&draid_with(&[(101, 0), (100, 2), (100, u64::MAX)])), [0; 0]);
        // Elsewhere it is not there.
        let mut mirror = draid_with(&[(100, 0)]).children.remove(0);
        mirror.kind = VdevKind::Mirror;
        let progress = Progress { motion: Arc::default(), next: Txg(9) };
        match shape_of(&mirror, &progress, &find) {
            Shape::Mirror(leaves) => assert!(leaves[0].is_some() && leaves[1].is_none()),
            other => panic!("{other:?}"),
        }
        let alone = mirror.children.remove(1);
        assert!(matches!(shape_of(&alone, &progress, &find), Shape::Missing));
    }
}
