//! Gangs: blocks in pieces, because no hole takes them whole.
//!
//! From:   `dmu`, which has found no place for a block and places it piece by piece; readers of such blocks.
//! To:     bytes for the places of the header; the pieces together; every place that a block takes.
//! Source: docs/format/02-blocks-checksums-compression.md §2.

use format::blkptr::{self, Block, BlockPtr, Dva};
use format::{ByteOrder, Checksum, ChecksumKind, Corrupt, MAX_BLOCK, ObjectType};

use crate::places::Trail;
use crate::vdev::{Source, TopVdev, Way};
use crate::{ReadError, Reader, Storage};

pub use crate::layout::GANG_HEADER as HEADER;

/// Pieces that a header of this size names.
pub const MEMBERS_MAX: usize = 3;
/// Gangs of gangs: OpenZFS nests at most a handful of levels (3 pointers halve a 16 MiB block quickly).
pub(crate) const GANG_DEPTH_MAX: u32 = 12;

/// One level less to go down.
pub(crate) fn deeper(depth: u32) -> Result<u32, ReadError> {
    depth.checked_sub(1).ok_or_else(|| Corrupt::new("depth of a gang", GANG_DEPTH_MAX.into()).into())
}

/// Salt of a gang header's checksum: the place of its first copy and its birth.
fn verifier(leader: &Block) -> [u64; 4] {
    let first = leader.dvas[0];
    [u64::from(first.vdev.0), first.offset, leader.physical_birth().0, 0]
}

/// Whether the checksum of a gang's header is that of blocks of encrypted datasets. Objsets have plain checksums.
fn is_folded(leader: &Block) -> bool {
    leader.encrypted && leader.object_type != ObjectType::OBJSET
}

impl Storage {
    /// The header over `members` of the gang that `leader` points at.
    ///
    /// # Panics
    /// If there are more members than a header names.
    #[must_use]
    pub fn gang_header(&self, members: &[Block], leader: &Block) -> Vec<u8> {
        assert!(members.len() <= MEMBERS_MAX, "a gang header names three members");
        let mut header = vec![0; HEADER];
        for (slot, member) in header.chunks_exact_mut(blkptr::SIZE).zip(members) {
            slot.copy_from_slice(&BlockPtr::Block(*member).encode(ByteOrder::Little));
        }
        let seal = if is_folded(leader) { codec::embedded::seal_folded } else { codec::embedded::seal };
        seal(&mut header, verifier(leader));
        header
    }

    /// The bytes of the header of the gang that `leader` points at, where it fills the sectors that it has: those for data in the
    /// smallest of its places.
    fn large_gang_header(&self, leader: &Block) -> Result<usize, ReadError> {
        let mut smallest = u64::MAX;
        for dva in leader.copies().filter(|dva| dva.gang) {
            smallest = smallest.min(self.vdevs().top_of(&dva)?.least_data());
        }
        Ok(smallest as usize)
    }

    /// The checksum of a piece.
    #[must_use]
    pub fn checksum(&self, kind: ChecksumKind, bytes: &[u8]) -> Checksum {
        codec::checksum_of(kind, bytes, &self.salt(), ByteOrder::Little)
    }

    /// Every extent that `block` occupies, gang headers and members included, on the vdevs where they lie now.
    ///
    /// # Errors
    /// If no copy of a gang header can be read.
    pub fn extents(&self, block: &Block) -> Result<Vec<Dva>, ReadError> {
        self.trail(block).map(|trail| trail.places)
    }

    /// As [`Storage::extents`], with the places on removed vdevs that lead there.
    ///
    /// # Errors
    /// If no copy of a gang header can be read.
    pub fn trail(&self, block: &Block) -> Result<Trail, ReadError> {
        let (found, lost) = self.extents_found(block)?;
        if let Some(lost) = lost {
            return Err(lost);
        }
        let mut all = Trail::default();
        for dva in &found {
            let Trail { passed, places } = self.vdevs().trail(dva)?;
            all.passed.extend(passed);
            all.places.extend(places);
        }
        Ok(all)
    }

    /// As [`Storage::extents`] as far as they are known, where the pointers say: without those below a header that cannot be
    /// read, and why it cannot.
    ///
    /// # Errors
    /// If there is no such vdev.
    pub fn extents_found(&self, block: &Block) -> Result<(Vec<Dva>, Option<ReadError>), ReadError> {
        let (mut found, mut lost) = (Vec::new(), None);
        self.collect_extents(block, GANG_DEPTH_MAX, &mut found, &mut lost)?;
        Ok((found, lost))
    }

    /// The extent at `dva` itself: a whole block, or the header of a gang.
    ///
    /// # Errors
    /// If there is no such vdev.
    pub fn first_extent(&self, dva: &Dva) -> Result<Dva, ReadError> {
        if !dva.gang {
            return Ok(*dva);
        }
        let asize = self.vdevs().top_of(dva)?.asize_of(HEADER as u64);
        Ok(Dva { asize, gang: false, ..*dva })
    }

    fn collect_extents(
        &self,
        block: &Block,
        depth: u32,
        found: &mut Vec<Dva>,
        lost: &mut Option<ReadError>,
    ) -> Result<(), ReadError> {
        for dva in block.copies() {
            found.push(self.first_extent(&dva)?);
        }
        if block.is_gang() {
            match deeper(depth).and_then(|depth| Ok((depth, self.any_gang_members(block)?))) {
                Err(error) => *lost = Some(error),
                Ok((depth, members)) => {
                    for member in members {
                        self.collect_extents(&member, depth, found, lost)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The pieces of a gang. All copies of its header name the same ones: the first good one counts.
    ///
    /// # Errors
    /// If no copy of the header can be read.
    pub fn any_gang_members(&self, leader: &Block) -> Result<Vec<Block>, ReadError> {
        self.reader().any_gang_members(leader)
    }
}

impl Reader<'_> {
    /// Fills `raw` with the pieces that the header at `dva` names, each from any good copy.
    pub(crate) fn read_gang(
        &self,
        leader: &Block,
        dva: Dva,
        replica: usize,
        depth: u32,
        raw: &mut Vec<u8>,
    ) -> Result<(), ReadError> {
        let depth = deeper(depth)?;
        let mut part = Vec::new();
        for member in self.gang_members(leader, dva, replica)? {
            if raw.len() as u64 + member.psize > leader.psize.min(MAX_BLOCK) {
                let bytes = raw.len() as u64 + member.psize;
                return Err(Corrupt::new("bytes of a gang, more than its leader's", bytes).into());
            }
            self.read_any(&member, depth, &mut part)?;
            raw.extend_from_slice(&part);
        }
        if raw.len() as u64 != leader.psize {
            return Err(ReadError::NoGoodCopy { tried: vec![dva] });
        }
        Ok(())
    }

    /// As [`Storage::any_gang_members`].
    pub(crate) fn any_gang_members(&self, leader: &Block) -> Result<Vec<Block>, ReadError> {
        let mut failed = None;
        for dva in leader.copies().filter(|dva| dva.gang) {
            for replica in self.storage.replicas_of(&dva, leader.physical_birth()) {
                match self.gang_members(leader, dva, replica) {
                    Ok(members) => return Ok(members),
                    Err(error) => failed = Some(error),
                }
            }
        }
        Err(failed.unwrap_or(ReadError::NoGoodCopy { tried: leader.copies().collect() }))
    }

    /// The pieces that one copy of a header names.
    pub(crate) fn gang_members(
        &self,
        leader: &Block,
        dva: Dva,
        replica: usize,
    ) -> Result<Vec<Block>, ReadError> {
        Ok(self.read_gang_header(leader, dva, replica)?.members()?)
    }

    /// One copy of a header, verified.
    pub(crate) fn read_gang_header(
        &self,
        leader: &Block,
        dva: Dva,
        replica: usize,
    ) -> Result<Header, ReadError> {
        self.look_at_gang_header(leader, dva, (replica, TopVdev::read)).map(|(header, _)| header)
    }

    /// One copy of a header, verified and read in the given way from the given replica; and the children that hold something else than
    /// they should. Pools with the feature `dynamic_gang_header` have headers of both sizes.
    pub(crate) fn look_at_gang_header(
        &self,
        leader: &Block,
        dva: Dva,
        (replica, way): (usize, Way),
    ) -> Result<(Header, Vec<usize>), ReadError> {
        let _passed = self.storage.gate().read();
        let top = self.storage.vdevs().top_of(&dva)?;
        let large = self.storage.large_gang_header(leader)?.max(HEADER);
        // Without parity, the bytes behind a classic header do not matter.
        let first = if top.spread().is_some() { HEADER } else { large };
        let mut look = self.look_at_header_of(first, leader, dva, (replica, way))?;
        if look.0.is_none() && large > first {
            // That it is not a classic header blames no device.
            look = self.look_at_header_of(large, leader, dva, (replica, way))?;
        }
        let (header, damaged) = look;
        if top.spread().is_some() || !top.is_stale(replica, leader.physical_birth()) {
            self.storage.note_bad_checksums(top, &damaged);
        }
        header.map(|header| (header, damaged)).ok_or(ReadError::NoGoodCopy { tried: vec![dva] })
    }

    /// As [`Reader::look_at_gang_header`], of a header with so many bytes or a classic one. The caller holds the gate.
    fn look_at_header_of(
        &self,
        len: usize,
        leader: &Block,
        dva: Dva,
        (replica, way): (usize, Way),
    ) -> Result<(Option<Header>, Vec<usize>), ReadError> {
        let mut bytes = vec![0; len];
        let verify = if is_folded(leader) { codec::embedded::verify_folded } else { codec::embedded::verify };
        let mut found = None;
        let source = Source { replica, birth: leader.physical_birth(), purpose: self.purpose };
        let is_good = &mut |bytes: &[u8]| {
            let of = |len: usize| verify(&bytes[..len], verifier(leader)).map(|order| (len, order));
            found = of(HEADER).or_else(|| of(len));
            found.is_some()
        };
        let outcome = match self.storage.moved(&dva, len as u64)? {
            Some(places) => self.storage.read_moved(&places, source, way, &mut bytes, is_good)?,
            None => way(self.storage.vdevs().top_of(&dva)?, source, dva.offset, &mut bytes, is_good)?,
        };
        let header = found.map(|(len, order)| {
            bytes.truncate(len);
            Header { bytes, order }
        });
        Ok((header, outcome.damaged))
    }
}

/// A gang header as it lies on disk.
pub(crate) struct Header {
    pub(crate) bytes: Vec<u8>,
    pub(crate) order: ByteOrder,
}

impl Header {
    /// The pieces that it names.
    pub(crate) fn members(&self) -> Result<Vec<Block>, Corrupt> {
        let mut members = Vec::new();
        let slots = &self.bytes[..self.bytes.len() - codec::embedded::TRAILER];
        for slot in slots.chunks_exact(blkptr::SIZE) {
            if let BlockPtr::Block(member) = BlockPtr::decode(slot, self.order)? {
                members.push(member);
            }
        }
        Ok(members)
    }
}
