//! Writing gang blocks: used when no free segment is large enough for a whole block, or for all its copies.
//!
//! This is rare and slow, but the write succeeds. Every piece is tried whole first, then as a gang itself. All places are
//! allocated before the first byte is written, and freed again if a try fails.
//! Source: docs/format/02-blocks-checksums-compression.md §2.

use format::blkptr::{Block, BlockPtr, Dva};
use format::{Compression, ObjectType};
use storage::allocator::Want;
use storage::{Payload, ReadError, WriteError, gang};

use crate::Result;
use crate::context::SyncCtx;

/// Where a block is to lie.
pub(crate) enum Places {
    /// In one piece, once per copy.
    Whole([Dva; 3]),
    /// In pieces.
    Pieces(Pieces),
}

/// Where a gang is to lie.
pub(crate) struct Pieces {
    /// The copies of its header.
    header: [Dva; 3],
    /// Bytes and places of each of its pieces.
    members: Vec<(usize, Places)>,
}

impl SyncCtx<'_, '_> {
    /// Allocates places for the bytes of `want`, whole or in pieces, in the wanted number of copies. Fewer copies only if
    /// there is no space even in pieces. A gang header has at most `headers_max` copies.
    ///
    /// # Errors
    /// [`WriteError::NoSpace`], or a space map could not be read.
    pub(crate) fn find_places(&mut self, want: Want, headers_max: u8) -> Result<Places> {
        let copies = want.copies;
        for fewer in (1..=copies).rev() {
            if let Some(places) = self.places(Want { copies: fewer, ..want }, headers_max)? {
                if fewer < copies {
                    tracing::warn!(wanted = copies, written = fewer, "no space for all copies of a block");
                }
                return Ok(places);
            }
        }
        Err(WriteError::NoSpace.into())
    }

    fn places(&mut self, want: Want, headers_max: u8) -> Result<Option<Places>> {
        let (len, copies) = (want.psize as usize, want.copies);
        if let Some(dvas) = self.allocate(want)? {
            return Ok(Some(Places::Whole(dvas)));
        }
        let vdevs = self.storage().vdevs();
        let (least, most) = (vdevs.min_alloc() as usize, vdevs.max_alloc() as usize);
        if len <= least {
            // Not even single sectors are free.
            return Ok(None);
        }
        let unit = if len > most { most } else { least };
        // Without its header a gang is lost, so the header gets one more copy if there is space.
        let of_header = Want { psize: gang::HEADER as u64, ..want };
        let header = match self.allocate(Want { copies: (copies + 1).min(headers_max), ..of_header })? {
            None => self.allocate(of_header)?,
            header => header,
        };
        let Some(header) = header else { return Ok(None) };
        let mut pieces = Pieces { header, members: Vec::new() };
        let piece_len = len.div_ceil(gang::MEMBERS_MAX).next_multiple_of(unit);
        for at in (0..len).step_by(piece_len) {
            let piece_len = piece_len.min(len - at);
            let Some(places) = self.places(Want { psize: piece_len as u64, ..want }, headers_max)? else {
                self.give_back(&Places::Pieces(pieces));
                return Ok(None);
            };
            pieces.members.push((piece_len, places));
        }
        Ok(Some(Places::Pieces(pieces)))
    }

    fn allocate(&mut self, want: Want) -> Result<Option<[Dva; 3]>> {
        match self.space.allocate(want) {
            Ok(dvas) => Ok(Some(dvas)),
            Err(WriteError::NoSpace) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn give_back(&mut self, places: &Places) {
        let dvas = match places {
            Places::Whole(dvas) => dvas,
            Places::Pieces(pieces) => {
                pieces.members.iter().for_each(|(_, places)| self.give_back(places));
                &pieces.header
            }
        };
        dvas.iter().filter(|dva| !dva.is_empty()).for_each(|dva| self.space.give_back(*dva));
    }

    /// Writes `block`, which has all fields except its DVAs, as a gang. Its bytes go straight to the disks, in the MOS too,
    /// because a free in this txg reads the header there.
    pub(crate) fn place_in_pieces(
        &mut self,
        block: Block,
        payload: &Payload,
        pieces: &Pieces,
    ) -> Result<Block> {
        let block = self.gang(block, payload.bytes(), pieces)?;
        self.writer.drain()?;
        Ok(block)
    }

    /// Overwrites a gang that this txg wrote and that no durable block refers to. Then `block` has all its fields.
    pub(crate) fn rewrite_pieces(&mut self, block: Block, payload: &Payload) -> Result<BlockPtr> {
        let pieces = self.pieces_of(&block).map_err(WriteError::from)?;
        let block = self.gang(block, payload.bytes(), &pieces)?;
        self.writer.drain()?;
        Ok(BlockPtr::Block(block))
    }

    /// Where a gang lies.
    fn pieces_of(&self, leader: &Block) -> std::result::Result<Pieces, ReadError> {
        let mut header = leader.dvas;
        for dva in header.iter_mut().filter(|dva| !dva.is_empty()) {
            *dva = self.storage().first_extent(dva)?;
        }
        let mut members = Vec::new();
        for member in self.storage().any_gang_members(leader)? {
            let places = match member.is_gang() {
                true => Places::Pieces(self.pieces_of(&member)?),
                false => Places::Whole(member.dvas),
            };
            members.push((member.psize as usize, places));
        }
        Ok(Pieces { header, members })
    }

    fn gang(&mut self, mut leader: Block, bytes: &[u8], pieces: &Pieces) -> Result<Block> {
        leader.dvas = pieces.header;
        let mut members = Vec::new();
        let mut rest = bytes;
        for (len, places) in &pieces.members {
            let (piece, behind) = rest.split_at(*len);
            members.push(self.member(&leader, piece, places)?);
            rest = behind;
        }
        let header = self.storage().gang_header(&members, &leader);
        for dva in leader.copies() {
            // Whole sectors are written.
            let sector = self.storage().vdevs().top_of(&dva).map_err(WriteError::from)?.ashift;
            let mut sectors = header.clone();
            sectors.resize(gang::HEADER.next_multiple_of(1 << sector), 0);
            self.writer.put(dva, sectors.into())?;
        }
        for (copy, dva) in leader.dvas.iter_mut().enumerate().filter(|(_, dva)| !dva.is_empty()) {
            dva.gang = true;
            dva.asize += members.iter().map(|member| member.dvas[copy].asize).sum::<u64>();
        }
        Ok(leader)
    }

    fn member(&mut self, leader: &Block, piece: &[u8], places: &Places) -> Result<Block> {
        let len = piece.len() as u64;
        let mut member = Block {
            dvas: [Dva::default(); 3],
            lsize: len,
            psize: len,
            compression: Compression::Off,
            object_type: ObjectType::NONE,
            level: 0,
            fill: 0,
            // Only the whole is sealed.
            encrypted: false,
            sealing: None,
            dedup: false,
            checksum: self.storage().checksum(leader.checksum_kind, piece),
            ..*leader
        };
        match places {
            Places::Whole(dvas) => member.dvas = *dvas,
            Places::Pieces(pieces) => return self.gang(member, piece, pieces),
        }
        let payload = Payload::from(piece.to_vec());
        for dva in member.copies() {
            self.writer.put(dva, payload.clone())?;
        }
        Ok(member)
    }
}
