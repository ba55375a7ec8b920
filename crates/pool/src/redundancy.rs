//! Whether the state of the devices of a mirror allows that it is written.
//!
//! From:   the configuration in the MOS of a pool that is being imported.
//! To:     a reason to open the pool for reading only.
//! Source: docs/format/11-redundancy.md §1.1, §3.4. A device that misses writes has them in a list (DTL) that this build does not
//!         write. So a mirror is written only while each of its devices has everything and takes every write.

use std::collections::HashMap;

use format::config::{PoolConfig, VdevConfig, VdevKind};
use format::{ObjectId, Txg};

/// Keys of devices that do not take part as they should.
const FLAGS: [&str; 8] =
    ["offline", "faulted", "degraded", "removed", "not_present", "resilver_txg", "rebuild_txg", "unspare"];

/// Why OpenZFS has to bring the pool in order before it is written here. `newest` tells of each device by its guid,
/// `has_entries` whether the list of missing writes in an object has any.
pub(crate) fn unwritable(
    config: &PoolConfig,
    newest: &HashMap<u64, Newest>,
    has_entries: &dyn Fn(ObjectId) -> bool,
) -> Option<String> {
    for top in config.tree.children.iter().filter(|top| !top.children.is_empty()) {
        if let Some(old) = left_behind(top, newest) {
            return Some(format!("the device {} is older than the other side", name_of(old)));
        }
        if let Some(why) = unwritable_below(top, has_entries) {
            return Some(why);
        }
    }
    None
}

/// The txgs of the newest two states that a device holds. Numbers in between may never have been used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Newest {
    last: Txg,
    before: Txg,
}

impl Newest {
    /// The newest two of the states of a device; `None` if there are none.
    pub(crate) fn of(states: impl Iterator<Item = Txg> + Clone) -> Option<Newest> {
        let last = states.clone().max()?;
        let before = states.filter(|txg| *txg < last).max().unwrap_or(last);
        Some(Newest { last, before })
    }
}

/// A device that lacks more than the last state, in whose middle the power may have gone: an old copy of what it was.
fn left_behind<'a>(top: &'a VdevConfig, newest: &HashMap<u64, Newest>) -> Option<&'a VdevConfig> {
    let of = |leaf: &VdevConfig| newest.get(&leaf.guid.0).copied();
    let latest = top.leaves().filter_map(of).max()?;
    top.leaves().find(|leaf| of(leaf).is_some_and(|own| own.last < latest.before))
}

fn name_of(vdev: &VdevConfig) -> String {
    match &vdev.path {
        Some(path) => format!("'{}'", String::from_utf8_lossy(path).escape_debug()),
        None => vdev.guid.0.to_string(),
    }
}

fn unwritable_below(vdev: &VdevConfig, has_entries: &dyn Fn(ObjectId) -> bool) -> Option<String> {
    match vdev.kind {
        VdevKind::Replacing => return Some("a device is being replaced".into()),
        VdevKind::Spare => return Some("a spare is in use".into()),
        _ => {}
    }
    if let Some(flag) = FLAGS.iter().find(|flag| vdev.extra.get_u64(flag).is_some_and(|value| value != 0)) {
        return Some(format!("the device {} is marked {flag}", name_of(vdev)));
    }
    if vdev.dtl.is_some_and(|list| list.0 != 0 && has_entries(list)) {
        return Some(format!("the device {} lacks writes and is to be resilvered", name_of(vdev)));
    }
    vdev.children.iter().find_map(|child| unwritable_below(child, has_entries))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_device_that_lacks_two_states_is_left_behind() {
        let mut top = VdevConfig::new(VdevKind::Mirror, 0, format::Guid(1));
        top.children =
            [2, 3].map(|guid| VdevConfig::new(VdevKind::File, guid - 2, format::Guid(guid))).to_vec();
        let behind = |states: [&[u64]; 2]| {
            let newest = |txgs: &[u64]| Newest::of(txgs.iter().copied().map(Txg));
            let all = [2, 3].into_iter().zip(states).filter_map(|(guid, txgs)| Some((guid, newest(txgs)?)));
            left_behind(&top, &all.collect()).map(|leaf| leaf.guid.0)
        };
        assert_eq!(behind([&[4, 5, 6], &[6, 5, 4]]), None);
        // The power went in the middle of a txg; its number follows a gap.
        assert_eq!(behind([&[4, 5, 90], &[4, 5]]), None);
        assert_eq!(behind([&[4, 5], &[4, 5, 90]]), None);
        assert_eq!(behind([&[4, 5, 6], &[4]]), Some(3));
        assert_eq!(behind([&[4], &[4, 5, 6]]), Some(2));
        // All states of a new pool fit into one uberblock.
        assert_eq!(behind([&[4], &[4]]), None);
        assert_eq!(behind([&[4], &[]]), None);
    }

    #[test]
    fn a_device_that_does_not_take_part_as_it_should_is_named() {
        let config = |change: &dyn Fn(&mut VdevConfig)| {
            let mut side = VdevConfig::new(VdevKind::File, 0, format::Guid(2));
            side.path = Some(b"/a".to_vec());
            change(&mut side);
            let mut top = VdevConfig::new(VdevKind::Mirror, 0, format::Guid(1));
            top.children = vec![side];
            top
        };
        let why = |change: &dyn Fn(&mut VdevConfig), entries: bool| {
            unwritable_below(&config(change), &|list| list == ObjectId(7) && entries)
        };
        assert_eq!(why(&|_| {}, true), None);
        let said = why(&|side| side.extra.insert("offline", 1u64), true).unwrap();
        assert_eq!(said, "the device '/a' is marked offline");
        let said = why(&|side| side.dtl = Some(ObjectId(7)), true).unwrap();
        assert_eq!(said, "the device '/a' lacks writes and is to be resilvered");
        assert_eq!(why(&|side| side.dtl = Some(ObjectId(7)), false), None);
        assert!(why(&|side| side.kind = VdevKind::Replacing, true).unwrap().contains("replaced"));
    }
}
