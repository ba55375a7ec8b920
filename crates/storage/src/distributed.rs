//! Distributed spares: leaves of a draid vdev that have no device. Their data lies in the spare space of the devices of the
//! vdev, at the same offset.
//!
//! From:   the sides of the vdev, and its layout, which says in which part of the spare space a spare lies.
//! To:     readers and writers, which get the devices.
//! Source: docs/format/11-redundancy.md §10.5.
//!
//! The device that holds a part of a spare may itself be replaced or stand beside a spare. Then all leaves in its place hold that part,
//! and another distributed spare among them leads to a third device. Trees from disk may lead in a circle: each spare is followed once.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use format::Txg;

use crate::error::ReadError;
use crate::host::{Backing, Disk};
use crate::layout::{Draid, Spread};
use crate::leaf::Leaf;
use crate::meter::Purpose;
use crate::side::Side;
use crate::txg_runs::TxgRuns;

/// The vdev of the leaves. It shows which devices hold the data of a leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ways<'a> {
    /// Of draid only: other vdevs have no distributed spares.
    layout: Option<&'a Draid>,
    sides: &'a [Side],
}

/// A device that holds data of a leaf.
#[derive(Clone, Debug)]
pub(crate) struct Holder<'a> {
    pub(crate) device: &'a Leaf,
    /// The distributed spares that lead to the device.
    through: Vec<&'a Leaf>,
}

impl<'a> Holder<'a> {
    /// The device, and the spares that lead to it.
    pub(crate) fn chain(&self) -> impl Iterator<Item = &'a Leaf> {
        self.through.iter().copied().chain([self.device])
    }

    /// Whether it may lack a block born in `birth`.
    pub(crate) fn misses(&self, birth: Txg) -> bool {
        self.chain().any(|leaf| leaf.health.misses(birth))
    }

    /// Whether it lacks anything.
    pub(crate) fn is_behind(&self) -> bool {
        self.chain().any(|leaf| !leaf.health.missing().is_empty())
    }

    /// The txgs that it lacks.
    fn missing(&self) -> TxgRuns {
        let mut missing = TxgRuns::default();
        self.chain().for_each(|leaf| missing.extend(&leaf.health.missing()));
        missing
    }
}

impl<'a> Ways<'a> {
    pub(crate) fn new(layout: &'a Spread, sides: &'a [Side]) -> Ways<'a> {
        let layout = match layout {
            Spread::Draid(layout) => Some(layout),
            Spread::Raidz(_) | Spread::Grown(_) => None,
        };
        Ways { layout, sides }
    }

    /// Of a vdev that has no distributed spares.
    pub(crate) const fn without_spares() -> Ways<'static> {
        Ways { layout: None, sides: &[] }
    }

    /// The devices that hold the data of `leaf` at `offset` of its allocatable area; for an ordinary leaf its own
    /// device.
    pub(crate) fn holders(&self, leaf: &'a Leaf, offset: u64) -> Vec<Holder<'a>> {
        let mut found = Vec::new();
        self.follow(leaf, offset, &mut Follow { seen: 0, through: Vec::new(), found: &mut found });
        found
    }

    /// As [`Ways::holders`], those that take writes.
    pub(crate) fn written(&self, leaf: &'a Leaf, offset: u64) -> impl Iterator<Item = Holder<'a>> {
        self.holders(leaf, offset).into_iter().filter(|holder| !holder.device.health.has_failed())
    }

    fn follow(&self, leaf: &'a Leaf, offset: u64, state: &mut Follow<'a, '_>) {
        let Some(number) = leaf.distributed() else {
            state.found.push(Holder { device: leaf, through: state.through.clone() });
            return;
        };
        let mark = 1u128.checked_shl(u32::try_from(number).unwrap_or(u32::MAX)).unwrap_or(0);
        let side = self.layout.and_then(|layout| self.sides.get(layout.spare_at(number, offset)?));
        let (Some(side), false) = (side, mark == 0 || state.seen & mark != 0) else { return };
        state.seen |= mark;
        state.through.push(leaf);
        side.leaves().for_each(|below| self.follow(below, offset, state));
        state.through.pop();
    }

    /// A range of a leaf, divided into parts, each with its devices. An ordinary leaf has one part.
    pub(crate) fn parts(&self, leaf: &Leaf, offset: u64, len: u64) -> Vec<(u64, u64)> {
        let layout = self.layout.filter(|_| leaf.distributed().is_some());
        let (mut parts, mut at, end) = (Vec::new(), offset, offset.saturating_add(len));
        while at < end {
            let next = layout.map_or(end, |layout| layout.end_of_slice(at).min(end));
            parts.push((at, next - at));
            at = next;
        }
        parts
    }

    /// Whether no device has the data of `leaf` at `offset` of a block born in `birth`, as far as that is known.
    pub(crate) fn misses(&self, leaf: &Leaf, birth: Txg, offset: u64) -> bool {
        leaf.health.misses(birth)
            || leaf.distributed().is_some()
                && self.holders(leaf, offset).iter().all(|holder| holder.misses(birth))
    }

    /// Fills `buf` with the data at `offset` of a leaf. `None`: no device holds it.
    pub(crate) fn read(
        &self,
        leaf: &Leaf,
        purpose: Purpose,
        offset: u64,
        buf: &mut [u8],
    ) -> Option<Result<(), ReadError>> {
        if leaf.distributed().is_none() {
            return Some(leaf.read(purpose, offset, buf));
        }
        let mut rest = buf;
        for (at, len) in self.parts(leaf, offset, rest.len() as u64) {
            let (part, behind) = rest.split_at_mut(len as usize);
            let mut holders = self.holders(leaf, at);
            // Devices that have all data come first.
            holders.sort_by_key(Holder::is_behind);
            let mut read = None;
            for holder in &holders {
                read = Some(holder.device.read(purpose, at, part));
                if matches!(read, Some(Ok(()))) {
                    break;
                }
            }
            if !matches!(read, Some(Ok(()))) {
                return read;
            }
            rest = behind;
        }
        Some(Ok(()))
    }

    /// Fills `buf` from the first leaf of `side` that can be read. Returns the place of that leaf. `None`: none is there.
    pub(crate) fn read_side(
        &self,
        side: &Side,
        purpose: Purpose,
        offset: u64,
        buf: &mut [u8],
    ) -> Option<Result<usize, ReadError>> {
        let mut failure = None;
        for (place, leaf) in side.places().iter().enumerate() {
            let Some(leaf) = leaf else { continue };
            match self.read(leaf, purpose, offset, buf) {
                Some(Ok(())) => return Some(Ok(place)),
                Some(Err(error)) => failure = Some(Err(error)),
                None => {}
            }
        }
        failure
    }

    /// The txgs of which no leaf of side `side` has everything in a slice that begins at `offset` of each device, without the leaf `but`.
    fn lacking(&self, side: &Side, offset: u64, but: u64) -> TxgRuns {
        let leaves = side.leaves().filter(|leaf| !leaf.health.has_failed());
        let holders = leaves.flat_map(|leaf| self.written(leaf, offset));
        let counts = |holder: &Holder<'_>| holder.chain().all(|leaf| leaf.guid != but);
        let lists = holders.filter(counts).map(|holder| holder.missing());
        lists.reduce(|all, own| all.common(&own)).unwrap_or_else(|| TxgRuns::since(Txg(0)))
    }

    /// Of how many sides at most something is lacking at the same place, without the leaf `but`.
    pub(crate) fn most_lacking(&self, but: u64, rows_end: u64) -> usize {
        let has_spare = |side: &Side| side.leaves().any(|leaf| leaf.distributed().is_some());
        let layout = self.layout.filter(|_| self.sides.iter().any(has_spare));
        let Some(layout) = layout else {
            let lists: Vec<_> = self.sides.iter().map(|side| Arc::new(self.lacking(side, 0, but))).collect();
            return TxgRuns::most_at_once(&lists);
        };
        // A side on which nothing depends on the slice misses the same txgs everywhere.
        let fixed: Vec<Option<Arc<TxgRuns>>> = self
            .sides
            .iter()
            .map(|side| (!has_spare(side)).then(|| Arc::new(self.lacking(side, 0, but))))
            .collect();
        let in_slice = |offset: u64| {
            let idle = layout.spares_at(offset);
            let used = (0..self.sides.len()).filter(|side| !idle.contains(side));
            let lists: Vec<Arc<TxgRuns>> = used
                .map(|side| {
                    let known = fixed[side].clone();
                    known.unwrap_or_else(|| Arc::new(self.lacking(&self.sides[side], offset, but)))
                })
                .filter(|lacking| !lacking.is_empty())
                .collect();
            TxgRuns::most_at_once(&lists)
        };
        layout.slices(rows_end).map(in_slice).max().unwrap_or(0)
    }
}

/// The state while spares are followed to devices.
struct Follow<'a, 'b> {
    /// A bit for each distributed spare that was followed.
    seen: u128,
    through: Vec<&'a Leaf>,
    found: &'b mut Vec<Holder<'a>>,
}

/// Stands where another leaf has its device. Nothing can be read from it or written to it: who forgets that a leaf is distributed is refused.
#[derive(Debug)]
struct NoDevice {
    name: PathBuf,
    size: u64,
    sector_size: u32,
}

fn no_device() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "a distributed spare has no device")
}

impl Disk for NoDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn sector_size(&self) -> u32 {
        self.sector_size
    }

    fn physical_sector_size(&self) -> u32 {
        self.sector_size
    }

    fn is_block_device(&self) -> bool {
        false
    }

    fn path(&self) -> &Path {
        &self.name
    }

    fn deleted(&self) -> Option<PathBuf> {
        None
    }

    fn moved(&self) -> Option<PathBuf> {
        None
    }

    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<()> {
        Err(no_device())
    }

    fn write_at(&self, _: &[IoSlice<'_>], _: u64) -> io::Result<()> {
        Err(no_device())
    }

    /// Nothing is written here. The devices that hold the spare are flushed as devices of the pool.
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn written_again(&self) {}

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Err(no_device())
    }

    fn hint_willneed(&self, _: u64, _: u64) {}

    fn ask(&self) -> io::Result<()> {
        Ok(())
    }

    fn drop_cache(&self) {}

    fn backing(&self) -> Option<Backing> {
        None
    }
}

/// A disk that stands in the place of the device of a distributed spare.
///
/// `size` is that of the smallest device of the vdev.
#[must_use]
pub fn spare_disk(name: &Path, size: u64, sector_size: u32) -> Arc<dyn Disk> {
    Arc::new(NoDevice { name: name.to_path_buf(), size, sector_size })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::allocator::Class;
    use crate::host::ScriptedDisk;
    use crate::layout::DraidSpec;
    use crate::vdev::{Shape, TopVdev};

    const ROW: u64 = 16 << 20;

    fn layout(children: u64, parity: u64, data: u64, spares: u64) -> Draid {
        Draid::new(DraidSpec::fewest_groups(12, children, [parity, data, spares]).expect("there is one"))
            .expect("there is one")
    }

    fn device(guid: u64) -> Option<Leaf> {
        Some(Leaf::new(guid, Arc::new(ScriptedDisk::new(64 << 20))))
    }

    fn spare(number: u64) -> Option<Leaf> {
        let disk = spare_disk(Path::new("draid1-0-0"), 64 << 20, 512);
        Some(Leaf::new(number.wrapping_add(1000), disk).as_distributed(number))
    }

    /// A draid vdev of so many devices; `changed` has the sides that are not a device alone.
    fn sides(children: usize, changed: Vec<(usize, Vec<Option<Leaf>>)>) -> Vec<Side> {
        let mut sides: Vec<Side> = (1..=children as u64).map(|guid| Side::from(device(guid))).collect();
        changed.into_iter().for_each(|(at, leaves)| sides[at] = Side::new(leaves));
        sides
    }

    fn devices(holders: &[Holder<'_>]) -> Vec<u64> {
        holders.iter().map(|holder| holder.device.guid).collect()
    }

    #[test]
    fn a_spare_lies_where_no_block_of_its_slice_has_a_column() {
        for layout in [layout(5, 1, 2, 1), layout(9, 1, 3, 2), layout(12, 2, 4, 3)] {
            let (spec, mut met) = (*layout.spec(), vec![BTreeSet::new(); layout.spec().spares as usize]);
            let group = spec.width() * ROW;
            for number in 0..spec.groups * 40 {
                for column in layout.map(number * group, 40 << 12).columns {
                    let spares = layout.spares_at(column.offset);
                    assert!(!spares.contains(&column.child), "{spec:?} {number}");
                    assert_eq!(spares.iter().collect::<BTreeSet<_>>().len() as u64, spec.spares);
                    assert!(column.offset + column.len <= layout.end_of_slice(column.offset));
                    for (device, met) in spares.iter().zip(&mut met) {
                        met.insert(*device);
                    }
                }
            }
            // Over many blocks every device has its share.
            assert!(met.iter().all(|met| met.len() as u64 == spec.children));
            assert_eq!(layout.spare_at(spec.spares, 0), None);
            assert_eq!(layout.spare_at(u64::MAX, 0), None);
        }
    }

    #[test]
    fn a_spare_on_a_device_that_is_replaced_lies_on_all_that_stand_there() {
        let layout = layout(9, 1, 3, 2);
        let [first, second] = [0, 1].map(|number| layout.spare_at(number, 0).expect("a device"));
        let lost = (0..9).find(|device| ![first, second].contains(device)).expect("another device");
        // The device with the first spare is being replaced, and has the second spare beside it.
        let several = vec![device(100), spare(1), device(101)];
        let sides = sides(9, vec![(lost, vec![None, spare(0)]), (first, several)]);
        let spread = Spread::Draid(layout);
        let ways = Ways::new(&spread, &sides);
        let leaf = sides[lost].leaves().next().expect("a leaf");
        let holders = ways.holders(leaf, 0);
        assert_eq!(devices(&holders), [100, second as u64 + 1, 101]);
        let chain: Vec<u64> = holders[1].chain().map(|leaf| leaf.guid).collect();
        assert_eq!(chain, [1000, 1001, second as u64 + 1]);
        // The first spare misses the blocks that the second one misses, but other devices have them.
        let middle = sides[first].places()[1].as_ref().expect("a leaf");
        middle.health.add_missing(Txg(5), Txg(6));
        assert!(ways.holders(leaf, 0)[1].misses(Txg(5)));
        assert!(!ways.misses(leaf, Txg(5), 0));
        for device in [100, 101] {
            let own = sides[first].leaves().find(|leaf| leaf.guid == device).expect("a leaf");
            own.health.add_missing(Txg(5), Txg(6));
        }
        assert!(ways.misses(leaf, Txg(5), 0) && !ways.misses(leaf, Txg(6), 0));
    }

    #[test]
    fn spares_that_lead_nowhere_or_in_a_circle_have_no_devices() {
        let layout = layout(9, 1, 3, 2);
        let [first, second] = [0, 1].map(|number| layout.spare_at(number, 0).expect("a device"));
        let all = vec![spare(0), spare(1), spare(0), spare(2), spare(u64::MAX)];
        let sides = sides(9, vec![(first, all.clone()), (second, all)]);
        let spread = Spread::Draid(layout);
        let ways = Ways::new(&spread, &sides);
        for leaf in sides[first].leaves() {
            assert!(ways.holders(leaf, 0).is_empty());
            assert!(ways.misses(leaf, Txg(5), 0));
            assert!(ways.read(leaf, Purpose::SyncRead, 0, &mut [0; 512]).is_none());
        }
        // Without a draid layout no leaf is followed.
        let none = Ways::without_spares();
        assert!(none.holders(sides[first].places()[0].as_ref().expect("a leaf"), 0).is_empty());
    }

    #[test]
    fn with_a_spare_in_use_the_vdev_can_lose_one_more_device_and_no_two() {
        let layout = layout(5, 1, 2, 1);
        let shape = |lost: Vec<usize>| {
            let mut sides = sides(5, vec![(2, vec![None, spare(0)])]);
            lost.into_iter().for_each(|side| sides[side] = Side::from(None));
            Shape::Parity { layout: Spread::Draid(layout.clone()), sides }
        };
        let top = |lost| TopVdev {
            id: 0,
            guid: 1,
            ashift: 12,
            asize: layout.asize(1 << 30),
            metaslab_shift: 26,
            class: Class::Normal,
            shape: shape(lost),
        };
        for side in [0, 1, 3, 4] {
            assert!(top(vec![]).can_lose(side as u64 + 1), "one more");
            assert!(top(vec![side]).can_lose(0), "as it is");
            for other in [0, 1, 3, 4].into_iter().filter(|other| *other != side) {
                assert!(!top(vec![side]).can_lose(other as u64 + 1), "two more");
            }
        }
        // A spare that is not rebuilt yet holds nothing.
        let top = top(vec![]);
        let own = top.leaves().find(|leaf| leaf.distributed().is_some()).expect("the spare");
        own.health.add_missing(Txg(4), Txg(9));
        assert!(top.can_lose(own.guid) && top.can_lose(0) && !top.can_lose(5));
    }
}
