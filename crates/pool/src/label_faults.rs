//! The faults of each of the four labels of a device that is in use.
//!
//! From:   the device, and what the pool says of it.
//! To:     `check`. The pool is opened by any label that is whole, so nothing else notices.
//! Source: docs/format/01-labels-uberblock.md §2, §4.3.

use std::fmt;

use format::config::{Label, VdevConfig, VdevKind};
use format::label::{self, COPIES, PHYS, RING};
use format::uberblock::Uberblock;
use format::{Guid, Txg};
use storage::host::Disk;

use crate::labels::{config, read_raw, ring};

/// Bytes of a checksum behind the configuration in a label. It depends on the place of the label.
const SEAL: usize = 40;

/// The fault of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelFault {
    /// The device does not return it.
    Unreadable,
    /// It holds zeros only.
    Empty,
    /// Its configuration does not have the checksum that it should have, or is none.
    Damaged,
    /// It is a label of another pool or of another device.
    Foreign,
    /// Its configuration has another txg than the valid one.
    OtherTxg {
        /// The txg of this label.
        own: Txg,
        /// The txg of the configuration that counts.
        counts: Txg,
    },
    /// Its configuration is of the right txg, and differs from that in the other labels.
    Different,
    /// It does not have the newest uberblock, which the other labels have.
    LacksUberblock,
}

impl LabelFault {
    /// Whether it is real damage, and not the trace of a power cut. Labels are written in pairs, and uberblocks one
    /// label after the other, so a cut between these writes leaves labels of two txgs. Each of them leads to a whole
    /// state of the pool.
    #[must_use]
    pub fn is_damage(self) -> bool {
        !matches!(self, LabelFault::OtherTxg { .. } | LabelFault::LacksUberblock)
    }
}

impl fmt::Display for LabelFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabelFault::Unreadable => f.write_str("unreadable"),
            LabelFault::Empty => f.write_str("overwritten with zeros"),
            LabelFault::Damaged => f.write_str("damaged"),
            LabelFault::Foreign => f.write_str("of another pool or device"),
            LabelFault::OtherTxg { own, counts } if own < counts => {
                write!(f, "old (of txg {own}, not {counts})")
            }
            LabelFault::OtherTxg { own, counts } => write!(f, "too new (of txg {own}, not {counts})"),
            LabelFault::Different => f.write_str("different from the other labels"),
            LabelFault::LacksUberblock => f.write_str("without the newest uberblock"),
        }
    }
}

/// A label, as far as it can be read.
struct Read {
    fault: Option<LabelFault>,
    txg: Txg,
    /// Bytes of data on the device, as the configuration says.
    asize: u64,
    /// The configuration, without its checksum.
    bytes: Vec<u8>,
    /// The txg of the newest uberblock.
    newest: Txg,
}

/// The labels of `disk` that are not as the pool `pool` should have written them for its device `leaf`, with the number of
/// each. `synced` is the txg of the state of the pool.
#[must_use]
pub fn of_device(disk: &dyn Disk, pool: Guid, leaf: Guid, synced: Txg) -> Vec<(usize, LabelFault)> {
    let Some(offsets) = label::offsets(disk.size()) else { return Vec::new() };
    let mut read = offsets.map(|offset| read_label(disk, offset, (pool, leaf)));
    if let Some(old) = end_before_it_grew(disk, &read) {
        for (label, offset) in read.iter_mut().zip(old).skip(COPIES / 2) {
            *label = read_label(disk, offset, (pool, leaf));
        }
    }
    let whole = || read.iter().filter(|label| label.fault.is_none());
    let fitting = whole().map(|label| label.txg).filter(|txg| *txg <= synced).max();
    let counts = fitting.or_else(|| whole().map(|label| label.txg).min()).unwrap_or_default();
    // Of two contents for one txg, the one that more labels have is right.
    let alike = |label: &Read| whole().filter(|other| other.bytes == label.bytes).count();
    let right = whole().filter(|label| label.txg == counts).max_by_key(|label| alike(label));
    let right = right.map(|label| label.bytes.clone());
    let newest = whole().map(|label| label.newest).max().unwrap_or_default();
    for label in read.iter_mut().filter(|label| label.fault.is_none()) {
        label.fault = if label.txg != counts {
            Some(LabelFault::OtherTxg { own: label.txg, counts })
        } else if Some(&label.bytes) != right.as_ref() {
            Some(LabelFault::Different)
        } else {
            (label.newest < newest).then_some(LabelFault::LacksUberblock)
        };
    }
    read.iter().enumerate().filter_map(|(number, label)| Some((number, label.fault?))).collect()
}

/// The places of the labels before the device grew, if its last two labels are still there. They are written to its new end
/// with the next configuration.
fn end_before_it_grew(disk: &dyn Disk, read: &[Read; COPIES]) -> Option<[u64; COPIES]> {
    let is_none = |label: &Read| matches!(label.fault, Some(LabelFault::Empty | LabelFault::Damaged));
    let asize = read.iter().find(|label| label.fault.is_none())?.asize;
    let old = label::offsets(asize.saturating_add(label::DATA_START + label::DATA_END))?;
    let is_before = old[2] < label::offsets(disk.size())?[2];
    let is_there = |offset: &u64| read_raw(disk, *offset).is_some_and(|raw| config(&raw, *offset).is_some());
    let has_grown = is_before && read.iter().skip(COPIES / 2).all(is_none);
    (has_grown && old.iter().skip(COPIES / 2).any(is_there)).then_some(old)
}

/// Bytes of data on each device of a vdev, as its configuration says.
fn asize_of_leaf(top: &VdevConfig) -> u64 {
    let asize = top.top.as_ref().map_or(0, |top| top.asize);
    match top.kind {
        VdevKind::Raidz { .. } => asize.checked_div(top.children.len() as u64).unwrap_or(0),
        _ => asize,
    }
}

fn read_label(disk: &dyn Disk, offset: u64, (pool, leaf): (Guid, Guid)) -> Read {
    let faulty =
        |fault| Read { fault: Some(fault), txg: Txg(0), asize: 0, bytes: Vec::new(), newest: Txg(0) };
    let Some(raw) = read_raw(disk, offset) else { return faulty(LabelFault::Unreadable) };
    let Some(found) = config(&raw, offset) else {
        let is_empty = raw.iter().all(|byte| *byte == 0);
        return faulty(if is_empty { LabelFault::Empty } else { LabelFault::Damaged });
    };
    let own = |guids: &format::config::LabelGuids| guids.guid == leaf;
    let Label::Pool(found) = found else { return faulty(LabelFault::Foreign) };
    if found.pool_guid != pool || !found.label.as_ref().is_some_and(own) {
        return faulty(LabelFault::Foreign);
    }
    let ashift = found.tree.top.as_ref().map_or(9, |top| top.ashift);
    let states = ring(RING.of(&raw), offset + RING.offset, ashift);
    let newest = states.iter().map(|state: &Uberblock| state.txg).max().unwrap_or_default();
    let phys = PHYS.of(&raw);
    let bytes = phys[..phys.len().saturating_sub(SEAL)].to_vec();
    Read { fault: None, txg: found.txg, asize: asize_of_leaf(&found.tree), bytes, newest }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use storage::host::ScriptedDisk;

    use super::*;
    use crate::Pool;
    use crate::testing::made;

    const SIZE: u64 = 64 << 20;

    fn faults(disk: &ScriptedDisk, pool: &Pool) -> Vec<(usize, LabelFault)> {
        let (info, leaf) = (pool.info(), pool.leaves().next().expect("one device").guid);
        of_device(disk, info.config.pool_guid, Guid(leaf), info.txg)
    }

    fn at(label: usize) -> u64 {
        label::offsets(SIZE).expect("it is large enough")[label]
    }

    fn phys(disk: &ScriptedDisk, label: usize) -> Vec<u8> {
        let mut raw = vec![0; PHYS.len];
        disk.read_at(&mut raw, at(label) + PHYS.offset).expect("the disk reads");
        raw
    }

    fn put(disk: &ScriptedDisk, bytes: &[u8], offset: u64) {
        disk.write_at(&[IoSlice::new(bytes)], offset).expect("the disk writes");
    }

    #[test]
    fn each_kind_of_damage_to_a_label_is_reported_and_the_next_write_of_the_configuration_repairs_it() {
        let disk = ScriptedDisk::new(SIZE);
        let pool = made(std::slice::from_ref(&disk));
        assert_eq!(faults(&disk, &pool), []);
        let (old, before) = (phys(&disk, 3), pool.info().txg);
        pool.rewrite_config().expect("written");
        assert_eq!(faults(&disk, &pool), []);
        // One byte of the packed configuration.
        let mut flipped = phys(&disk, 1);
        flipped[200] ^= 1;
        put(&disk, &flipped, at(1) + PHYS.offset);
        put(&disk, &old, at(3) + PHYS.offset);
        put(&disk, &vec![0; label::SIZE as usize], at(0));
        let expected = [
            (0, LabelFault::Empty),
            (1, LabelFault::Damaged),
            (3, LabelFault::OtherTxg { own: before, counts: pool.info().txg }),
        ];
        assert_eq!(faults(&disk, &pool), expected);
        pool.rewrite_config().expect("written");
        assert_eq!(faults(&disk, &pool), []);
        put(&disk, &vec![0; RING.len], at(2) + RING.offset);
        assert_eq!(faults(&disk, &pool), [(2, LabelFault::LacksUberblock)]);
        pool.rewrite_config().expect("written");
        assert_eq!(faults(&disk, &pool), []);
        // The label of another pool has a good checksum, too.
        let other = ScriptedDisk::new(SIZE);
        let _other = made(std::slice::from_ref(&other));
        put(&disk, &phys(&other, 2), at(2) + PHYS.offset);
        assert_eq!(faults(&disk, &pool), [(2, LabelFault::Foreign)]);
        pool.rewrite_config().expect("written");
        assert_eq!(faults(&disk, &pool), []);
    }
}
