//! Reads every copy of a block and repairs damaged ones, for checks and scrubs.
//!
//! A gang is its header's copies and its pieces', each of which is a block of its own.

use std::collections::BTreeMap;
use std::io::IoSlice;

use format::Txg;
use format::blkptr::{Block, Dva};
use format::label::DATA_START;

use crate::distributed::Holder;
use crate::gang::{self, GANG_DEPTH_MAX, deeper};
use crate::reflow::placed;
use crate::vdev::TopVdev;
use crate::{Leaf, Purpose, ReadError, Reader, Storage, WriteError};

/// The result of reading every copy of a block.
#[derive(Debug, Default)]
pub struct Verified {
    /// The copies that are damaged or could not be read.
    pub bad: Vec<BadCopy>,
    /// No copy is good: the content of the block is lost.
    pub lost: bool,
    /// Bytes looked at.
    pub bytes: u64,
}

/// A copy that is damaged or could not be read.
#[derive(Debug)]
pub struct BadCopy {
    /// The address of the copy.
    pub dva: Dva,
    /// What is wrong with it.
    pub error: ReadError,
    /// Which of the children of a mirror holds it; else 0.
    replica: usize,
    of: Part,
}

/// The part of a block that a copy is a copy of.
#[derive(Debug)]
enum Part {
    Block(Block),
    /// The header of this gang.
    Header(Block),
}

impl Storage {
    /// As [`Reader::verify_copies`] for a caller that waits.
    #[must_use]
    pub fn verify_copies(&self, block: &Block) -> Verified {
        self.reader().verify_copies(block)
    }
}

impl Reader<'_> {
    /// Reads and verifies every copy of `block`. Copies on absent devices are not counted.
    pub fn verify_copies(&self, block: &Block) -> Verified {
        let mut found = Verified::default();
        found.lost = !self.verify(block, GANG_DEPTH_MAX, &mut found);
        found
    }

    /// Whether the content of `block` can be read.
    fn verify(&self, block: &Block, depth: u32, all: &mut Verified) -> bool {
        let (mut raw, mut good) = (Vec::new(), false);
        let mut members = None;
        for dva in block.copies() {
            for replica in self.storage.replicas_of(&dva, block.physical_birth()) {
                if (good || members.is_some()) && self.storage.is_stale(&dva, replica, block.physical_birth())
                {
                    // The device is known to miss the block: that is no damage.
                    continue;
                }
                let mut note = |error, of| all.bad.push(BadCopy { dva, error, replica, of });
                if dva.gang {
                    match self.look_at_gang_header(block, dva, (replica, TopVdev::verify)) {
                        Ok((header, damaged)) => {
                            all.bytes += header.bytes.len() as u64;
                            if !damaged.is_empty() {
                                note(self.storage.damaged_columns(&dva, &damaged), Part::Header(*block));
                            }
                            match header.members() {
                                Ok(found) => members = members.or(Some(found)),
                                Err(error) => note(error.into(), Part::Header(*block)),
                            }
                        }
                        Err(error) => {
                            all.bytes += gang::HEADER as u64;
                            note(error, Part::Header(*block));
                        }
                    }
                } else {
                    match self.verify_copy(block, dva, replica, &mut raw) {
                        Ok(damaged) => {
                            good = true;
                            if !damaged.is_empty() {
                                note(self.storage.damaged_columns(&dva, &damaged), Part::Block(*block));
                            }
                        }
                        Err(error) => note(error, Part::Block(*block)),
                    }
                    all.bytes += block.psize;
                }
            }
        }
        if let Some(members) = members {
            let Ok(depth) = deeper(depth) else { return good };
            let mut whole = true;
            for member in &members {
                whole &= self.verify(member, depth, all);
            }
            good |= whole && self.read_raw(block, &mut raw).is_ok();
        }
        good
    }
}

impl Storage {
    /// These children of a raidz vdev have wrong data.
    fn damaged_columns(&self, dva: &Dva, children: &[usize]) -> ReadError {
        let top = self.vdevs().top_of(dva).ok();
        let leaves = children.iter().filter_map(|child| top?.child(*child));
        ReadError::DamagedColumns { devices: leaves.map(|leaf| leaf.disk.path().to_path_buf()).collect() }
    }

    /// Writes the data of a good copy over damaged ones, which [`Reader::verify_copies`] named. The block must be in
    /// use while this runs. Returns the number of repaired bytes.
    ///
    /// # Errors
    /// No copy is good, or a disk refuses.
    pub fn repair(&self, bad: &[BadCopy]) -> Result<u64, WriteError> {
        let mut repaired = 0;
        for BadCopy { dva, replica, of, .. } in bad {
            let (mut good, Part::Block(whole) | Part::Header(whole)) = (Vec::new(), of);
            match of {
                Part::Block(block) => self.reader().read_raw(block, &mut good)?,
                Part::Header(leader) => good = self.reader().good_gang_header(leader)?,
            }
            let written = self.write_over((dva, whole.physical_birth()), *replica, &good)?;
            let left = match of {
                Part::Block(block) => self.reader().verify_copy(block, *dva, *replica, &mut Vec::new())?,
                Part::Header(leader) => {
                    self.reader().look_at_gang_header(leader, *dva, (*replica, TopVdev::verify))?.1
                }
            };
            if !left.is_empty() {
                return Err(self.damaged_columns(dva, &left).into());
            }
            repaired += written;
        }
        Ok(repaired)
    }

    /// Writes a damaged copy of a block born in txg `born` anew in its place; of raidz only the columns that are
    /// damaged or cannot be read. Returns the bytes written.
    pub(crate) fn write_over(
        &self,
        (dva, born): (&Dva, Txg),
        replica: usize,
        raw: &[u8],
    ) -> Result<u64, WriteError> {
        if let Some(places) = self.moved(dva, raw.len() as u64)? {
            return self.write_over_moved(&places, raw);
        }
        let _passed = self.gate().write();
        let top = self.vdevs().top_of(dva)?;
        let Some(layout) = top.spread() else {
            return self.write_part(top, top.written_leaf(replica)?, dva.offset, raw);
        };
        let map = layout.map(dva.offset, raw.len() as u64, born);
        let leaves: BTreeMap<usize, &Leaf> = top.written_leaves()?.collect();
        let mut written = 0;
        for (column, wanted) in placed(&map, &raw.to_vec().into()) {
            if column.len == 0 {
                continue;
            }
            let mut found = vec![0; column.len as usize];
            for leaf in top.numbers_of_side(column.child).filter_map(|number| leaves.get(&number)) {
                let mut is_held = false;
                for Holder { device, .. } in top.ways().written(leaf, column.offset) {
                    is_held = true;
                    let read = device.read(Purpose::SyncRead, column.offset, &mut found);
                    if read.is_err() || found != wanted.bytes() {
                        written += self.write_part(top, device, column.offset, wanted.bytes())?;
                    }
                }
                if !is_held && leaf.health.misses(born) {
                    leaf.health.keep_missing(born, born.next());
                }
            }
        }
        Ok(written)
    }

    /// Writes `bytes` at `offset` of the allocatable area of a device. Returns their number; 0 if the device refuses
    /// and the pool continues without it.
    pub(crate) fn write_part(
        &self,
        top: &TopVdev,
        leaf: &Leaf,
        offset: u64,
        bytes: &[u8],
    ) -> Result<u64, WriteError> {
        let at = offset + DATA_START;
        self.tree.write(top.id, leaf, || leaf.write(&[IoSlice::new(bytes)], at))?;
        Ok(if leaf.health.has_failed() { 0 } else { bytes.len() as u64 })
    }
}

impl Reader<'_> {
    pub(crate) fn good_gang_header(&self, leader: &Block) -> Result<Vec<u8>, ReadError> {
        let tried = || ReadError::NoGoodCopy { tried: leader.copies().collect() };
        let birth = leader.physical_birth();
        let mut places = leader
            .copies()
            .flat_map(|dva| self.storage.replicas_of(&dva, birth).map(move |replica| (dva, replica)));
        let good = places.find_map(|(dva, replica)| self.read_gang_header(leader, dva, replica).ok());
        good.map(|header| header.bytes).ok_or_else(tried)
    }
}
