//! How a top-level vdev spreads its blocks, as its configuration says.
//!
//! From:   the configuration of the vdev, and a way to find the open leaves.
//! To:     the vdevs in `storage`: at an import, and when devices join or leave.
//! Source: docs/format/11-redundancy.md §1.1, §1.2, §11.

use std::sync::Arc;

use format::Txg;
use format::config::{VdevConfig, VdevKind};
use storage::layout::{Draid, DraidSpec, Grown, Motion, Raidz, Spread};
use storage::{Layout, Leaf, Shape, Side};

/// For each child that was added to a raidz vdev, the txg since which blocks are spread over it.
pub(crate) const EXPAND_TXGS: &str = "raidz_expand_txgs";
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
    let below = |vdev: &VdevConfig| -> Vec<Option<Leaf>> { vdev.leaves().map(find).collect() };
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
            let sides = vdev.children.iter().map(|child| Side::new(below(child))).collect();
            parity(draid(vdev).ok_or(Layout::Draid), sides)
        }
        // Its mapping is read later, when the MOS can be read.
        VdevKind::Indirect => Shape::Moved(Arc::default()),
        _ => Shape::Missing,
    }
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
