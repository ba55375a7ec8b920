//! Vdevs of type `replacing` and `spare`: which devices may join them, and which devices leave when all is resilvered.
//!
//! From:   the configuration of the vdev tree.
//! To:     `tree_change`, which changes the tree.
//! Source: docs/format/11-redundancy.md §1.1, §8.3, §8.4, §9.

use format::Guid;
use format::config::{VdevConfig, VdevKind};

use crate::{Error, Result};

/// The role of a new device beside the present one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Joins {
    /// One more side of a mirror.
    Mirror,
    /// The device that stays.
    Replacing,
    /// A spare that fills in.
    Spare,
}

/// Key in the config of a leaf that is a hot spare.
pub(crate) const IS_SPARE: &str = "is_spare";
/// Key in the config of a leaf that stays after its resilver, in the place of a spare or as a spare.
pub(crate) const UNSPARE: &str = "unspare";
/// Suffix of the path of a device that is replaced by a device at the same path.
pub(crate) const OLD: &[u8] = b"/old";

fn is_set(vdev: &VdevConfig, key: &str) -> bool {
    vdev.extra.get_u64(key).is_some_and(|flag| flag != 0)
}

/// Refuses a device that cannot be attached beside child `at` of `parent`.
///
/// # Errors
/// [`Error::NotAttachable`], [`Error::InReplacement`].
pub(crate) fn check(parent: &VdevConfig, at: usize, joins: Joins) -> Result<()> {
    let old_is_spare = is_set(&parent.children[at], IS_SPARE);
    match joins {
        Joins::Mirror if matches!(parent.kind, VdevKind::Root | VdevKind::Mirror) => Ok(()),
        Joins::Mirror => Err(Error::NotAttachable),
        // A spare can be replaced by a spare only, and a device by a device only.
        _ if parent.kind == VdevKind::Spare && old_is_spare != (joins == Joins::Spare) => {
            Err(Error::InReplacement)
        }
        Joins::Spare
            if parent.kind == VdevKind::Replacing || (old_is_spare && parent.kind != VdevKind::Spare) =>
        {
            Err(Error::InReplacement)
        }
        Joins::Replacing | Joins::Spare => Ok(()),
    }
}

/// The leaves that are not needed any more, in the order in which they leave. `is_whole` says whether all devices below a
/// vdev hold all data.
pub(crate) fn ended(tree: &VdevConfig, is_whole: &dyn Fn(&VdevConfig) -> bool) -> Vec<Guid> {
    let mut ended = Vec::new();
    for (parent, vdev) in
        tree.walk().flat_map(|parent| parent.children.iter().map(move |child| (parent, child)))
    {
        let Some((newest, older)) = vdev.children.split_last() else { continue };
        match vdev.kind {
            VdevKind::Replacing if is_whole(newest) => {
                ended.extend(older.iter().flat_map(VdevConfig::leaves).map(|leaf| leaf.guid));
                if parent.kind == VdevKind::Spare && vdev.id == 0 {
                    // The device for which the spare stands is replaced.
                    let spares = parent.children.iter().filter(|child| is_set(child, IS_SPARE));
                    ended.extend(spares.map(|spare| spare.guid));
                }
            }
            VdevKind::Spare => ended.extend(superfluous(vdev, is_whole)),
            _ => {}
        }
    }
    ended
}

/// The children of a vdev with spares that are not needed any more.
fn superfluous(vdev: &VdevConfig, is_whole: &dyn Fn(&VdevConfig) -> bool) -> Vec<Guid> {
    let (Some(first), Some(last)) = (vdev.children.first(), vdev.children.last()) else { return Vec::new() };
    let all_but = |kept: &VdevConfig| {
        vdev.children.iter().filter(|child| child.guid != kept.guid).map(|child| child.guid).collect()
    };
    if is_set(last, UNSPARE) && is_whole(last) {
        return all_but(last);
    }
    if is_set(first, UNSPARE) && is_whole(first) {
        return all_but(first);
    }
    let between = &vdev.children[1..];
    match between.split_last() {
        // One spare is enough.
        Some((newest, older)) if is_set(newest, IS_SPARE) && is_whole(newest) => {
            older.iter().filter(|spare| is_set(spare, IS_SPARE)).map(|spare| spare.guid).collect()
        }
        _ => Vec::new(),
    }
}

/// Tidies a vdev after its child `at` left. Returns the spare that became a permanent part of the pool, if there is one.
pub(crate) fn after_detach(parent: &mut VdevConfig, at: usize, gone: &VdevConfig) -> Option<Guid> {
    match parent.kind {
        VdevKind::Replacing if at > 0 => {
            // The replacement is cancelled, so the old device gets its path back.
            let first = parent.children.first_mut()?;
            let gone_path = gone.path.as_deref()?;
            let path = first.path.as_mut()?;
            if path.strip_suffix(OLD) == Some(gone_path) {
                path.truncate(gone_path.len());
            }
            None
        }
        VdevKind::Spare if at == 0 => {
            let [only] = parent.children.as_mut_slice() else { return None };
            only.extra.remove(UNSPARE);
            if only.kind == VdevKind::DistributedSpare {
                // It belongs to its vdev, so it stays a spare, in use from now on.
                return None;
            }
            only.extra.remove(IS_SPARE).map(|_| only.guid)
        }
        VdevKind::Spare => {
            if let [only] = parent.children.as_mut_slice() {
                only.extra.remove(UNSPARE);
            }
            None
        }
        _ => None,
    }
}

/// Records that child 0 of a vdev with spares is back. It stays; the spares leave when it holds all data.
pub(crate) fn note_return(tree: &mut VdevConfig, guid: Guid) {
    if tree.kind == VdevKind::Spare
        && let Some(first) = tree.children.first_mut().filter(|first| first.guid == guid)
    {
        first.extra.insert(UNSPARE, 1u64);
        return;
    }
    tree.children.iter_mut().for_each(|child| note_return(child, guid));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(guid: u64) -> VdevConfig {
        VdevConfig::new(VdevKind::File, 0, Guid(guid))
    }

    fn flagged(guid: u64, key: &str) -> VdevConfig {
        let mut leaf = leaf(guid);
        leaf.extra.insert(key, 1u64);
        leaf
    }

    fn above(kind: VdevKind, mut children: Vec<VdevConfig>) -> VdevConfig {
        (0..).zip(&mut children).for_each(|(id, child)| child.id = id);
        VdevConfig { children, ..VdevConfig::new(kind, 0, Guid(99)) }
    }

    fn leaving(children: Vec<VdevConfig>, incomplete: &[u64]) -> Vec<u64> {
        let tree = above(VdevKind::Root, children);
        let is_whole = |vdev: &VdevConfig| vdev.leaves().all(|leaf| !incomplete.contains(&leaf.guid.0));
        ended(&tree, &is_whole).into_iter().map(|guid| guid.0).collect()
    }

    #[test]
    fn replaced_devices_leave_when_the_newest_is_whole() {
        let replacing = || vec![above(VdevKind::Replacing, vec![leaf(1), leaf(2), leaf(3)])];
        assert_eq!(leaving(replacing(), &[]), [1, 2]);
        assert_eq!(leaving(replacing(), &[3]), [0; 0]);
    }

    #[test]
    fn a_spare_leaves_when_its_device_is_back_or_replaced() {
        let spare = |first| vec![above(VdevKind::Spare, vec![first, flagged(2, IS_SPARE)])];
        assert_eq!(leaving(spare(leaf(1)), &[]), [0; 0]);
        assert_eq!(leaving(spare(flagged(1, UNSPARE)), &[]), [2]);
        assert_eq!(leaving(spare(flagged(1, UNSPARE)), &[1]), [0; 0]);
        let replacing = above(VdevKind::Replacing, vec![leaf(1), leaf(3)]);
        assert_eq!(leaving(spare(replacing), &[]), [1, 2]);
    }

    #[test]
    fn the_newest_of_several_spares_stays() {
        let both = vec![leaf(1), flagged(2, IS_SPARE), flagged(3, IS_SPARE)];
        assert_eq!(leaving(vec![above(VdevKind::Spare, both)], &[1]), [2]);
    }

    #[test]
    fn a_cancelled_replacement_gives_the_device_its_path_back() {
        let path = |text: &str| Some(text.as_bytes().to_vec());
        let old = VdevConfig { path: path("/dev/a/old"), ..leaf(1) };
        let mut parent = above(VdevKind::Replacing, vec![old]);
        assert_eq!(after_detach(&mut parent, 1, &VdevConfig { path: path("/dev/a"), ..leaf(2) }), None);
        assert_eq!(parent.children[0].path, path("/dev/a"));
        let mut spare = above(VdevKind::Spare, vec![flagged(2, IS_SPARE)]);
        assert_eq!(after_detach(&mut spare, 0, &leaf(1)), Some(Guid(2)));
        assert!(!is_set(&spare.children[0], IS_SPARE));
        let distributed = VdevConfig { kind: VdevKind::DistributedSpare, ..flagged(2, IS_SPARE) };
        let mut spare = above(VdevKind::Spare, vec![distributed]);
        assert_eq!(after_detach(&mut spare, 0, &leaf(1)), None);
        assert!(is_set(&spare.children[0], IS_SPARE), "it stays a spare of its vdev");
    }
}
