//! Blocks in pieces: what is done when space is left, but no hole that takes a block whole.
//!
//! Rare and slow, and better than a full stop: every piece is tried whole, then in pieces itself.
//! Source: docs/format/02-blocks-checksums-compression.md §2.

use std::sync::Arc;

use format::blkptr::{Block, BlockPtr, Dva};
use format::{Compression, ObjectType};
use storage::{Payload, WriteError, gang};

use crate::Result;
use crate::place::SyncCtx;

/// Most copies of a header.
const HEADERS_MAX: u8 = 3;

impl SyncCtx<'_, '_> {
    /// Places `block`, complete but for its DVAs, as a gang in place of `old`. Its bytes go straight to the disks,
    /// in the MOS too: whoever frees it in this txg must find the header there.
    pub(crate) fn place_in_pieces(
        &mut self,
        block: Block,
        payload: &Payload,
        copies: u8,
        old: &BlockPtr,
    ) -> Result<BlockPtr> {
        let block = self.gang(block, payload.bytes(), copies)?;
        self.writer.drain()?;
        let ptr = BlockPtr::Block(block);
        self.kill(old)?;
        self.space.born(&ptr);
        Ok(ptr)
    }

    fn gang(&mut self, mut leader: Block, bytes: &[u8], copies: u8) -> Result<Block> {
        let unit = self.storage.vdevs().min_alloc() as usize;
        if bytes.len() <= unit {
            // Not even a single sector is free.
            return Err(WriteError::NoSpace.into());
        }
        leader.dvas = self.space.allocate(gang::HEADER as u64, (copies + 1).min(HEADERS_MAX))?;
        let copies = copies.min(leader.copies().count() as u8);
        let piece_len = bytes.len().div_ceil(gang::MEMBERS_MAX).next_multiple_of(unit);
        let mut members = Vec::new();
        for piece in bytes.chunks(piece_len) {
            members.push(self.member(&leader, piece, copies)?);
        }
        let header = self.storage.gang_header(&members, leader.dvas[0], leader.birth);
        for dva in leader.copies() {
            // Whole sectors are written.
            let mut sectors = header.clone();
            sectors.resize(dva.asize as usize, 0);
            self.writer.put(dva, Payload::Whole(Arc::new(sectors)))?;
        }
        for (copy, dva) in leader.dvas.iter_mut().enumerate().filter(|(_, dva)| !dva.is_empty()) {
            dva.gang = true;
            dva.asize += members.iter().map(|member| member.dvas[copy].asize).sum::<u64>();
        }
        Ok(leader)
    }

    fn member(&mut self, leader: &Block, piece: &[u8], copies: u8) -> Result<Block> {
        let len = piece.len() as u64;
        let mut member = Block {
            dvas: [Dva::default(); 3],
            lsize: len,
            psize: len,
            compression: Compression::Off,
            object_type: ObjectType::NONE,
            level: 0,
            fill: 0,
            checksum: self.storage.checksum(leader.checksum_kind, piece),
            ..*leader
        };
        match self.space.allocate(len, copies) {
            Ok(dvas) => member.dvas = dvas,
            Err(WriteError::NoSpace) => return self.gang(member, piece, copies),
            Err(error) => return Err(error.into()),
        }
        let payload = Arc::new(piece.to_vec());
        for dva in member.copies() {
            self.writer.put(dva, Payload::Whole(payload.clone()))?;
        }
        Ok(member)
    }
}
