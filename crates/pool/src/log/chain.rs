//! Following a chain of log blocks on disk, and making the pointers between them.
//!
//! Source: docs/format/08-zil.md §2, §4.

use std::ops::Range;

use codec::crypt::{Content, DatasetKeys};
use format::blkptr::{Block, BlockPtr, Dva};
use format::crypt::Sealing;
use format::objset::ZilHeader;
use format::zil::{self, Chain, Outline, Record};
use format::{ByteOrder, Checksum, ChecksumKind, Corrupt, ObjectId, ObjectType, Txg};
use storage::{ReadError, Storage};

/// Words of a log block's identity. A pointer to a log block has it in its checksum field.
const OBJSET: usize = 2;
const SEQ: usize = 3;

/// A block pointer of a log block of `size` bytes, which is sealed with `sealing` in an encrypted dataset.
pub(crate) fn link(dva: Dva, size: u64, identity: [u64; 4], txg: Txg, sealing: Option<Sealing>) -> Block {
    Block {
        encrypted: sealing.is_some(),
        sealing,
        dvas: [dva, Dva::default(), Dva::default()],
        lsize: size,
        psize: size,
        checksum_kind: ChecksumKind::Zilog2,
        fill: 0,
        checksum: Checksum(identity),
        ..Block::plain(ObjectType::INTENT_LOG, txg)
    }
}

/// The identity of the first block of a new chain of the dataset `id`.
pub(crate) fn first_identity(guid: [u64; 2], id: ObjectId) -> [u64; 4] {
    [guid[0], guid[1], id.0, 1]
}

/// The identity of the block after `block`.
pub(crate) fn next_identity(block: &Block) -> [u64; 4] {
    let mut words = block.checksum.0;
    words[SEQ] = words[SEQ].wrapping_add(1);
    words
}

/// Number of a block within its chain.
pub(crate) fn seq(block: &Block) -> u64 {
    block.checksum.0[SEQ]
}

/// The content of a log block.
pub struct Contents {
    raw: Vec<u8>,
    range: Range<usize>,
    order: ByteOrder,
    /// With what it is sealed.
    sealing: Option<Sealing>,
}

impl Contents {
    /// The records as far as they can be read without a key, oldest first.
    #[must_use]
    pub fn outlines(&self) -> Box<dyn Iterator<Item = Result<Outline, Corrupt>> + '_> {
        match self.sealing {
            Some(_) => Box::new(zil::outlines(&self.raw, self.range.clone(), self.order)),
            None => Box::new(self.records().map(|record| record.map(|record| Outline::from(&record)))),
        }
    }

    /// Opens the block with the keys of its dataset, if it is sealed.
    pub(crate) fn unseal(&mut self, keys: Option<&DatasetKeys>) -> Result<(), ReadError> {
        let Some(sealing) = self.sealing.take() else { return Ok(()) };
        let (keys, mac) = (keys.ok_or(ReadError::NoKey)?, codec::zilog::mac_of(&self.raw));
        let opened = keys.open(Content::Log(self.order), &sealing, &mac, &mut self.raw);
        opened.map_err(|_| ReadError::Unauthentic)
    }

    /// The records of a block that is not sealed, oldest first.
    pub fn records(&self) -> impl Iterator<Item = Result<Record, Corrupt>> + '_ {
        zil::records(&self.raw, self.range.clone(), self.order)
    }
}

/// The blocks of a chain, in order. The last one usually was never written.
pub struct Walk<'a> {
    storage: &'a Storage,
    id: ObjectId,
    next: BlockPtr,
    /// Number of the last block that was claimed.
    last: u64,
}

impl<'a> Walk<'a> {
    /// The chain that `header` of dataset `id` begins.
    #[must_use]
    pub fn new(storage: &'a Storage, id: ObjectId, header: &ZilHeader) -> Walk<'a> {
        let last = if header.claim_txg.0 == 0 { u64::MAX } else { header.claim_blk_seq };
        Walk { storage, id, next: header.log, last }
    }

    /// Reads `block`, which this walk returned; `None` if it was never written. The walk then continues with the next block.
    ///
    /// # Errors
    /// A device refused.
    pub fn open(&mut self, block: &Block) -> Result<Option<Contents>, ReadError> {
        self.next = BlockPtr::HOLE;
        // If the header was copied from another dataset, its chain does not belong to this one.
        if block.checksum.0[OBJSET] != self.id.0 {
            return Ok(None);
        }
        let Some((raw, order)) = self.storage.read_log(block)? else { return Ok(None) };
        let Ok((chain, range)) = Chain::decode(&raw, block.checksum_kind, order) else { return Ok(None) };
        if let BlockPtr::Block(next) = &chain.next {
            if next.checksum.0 != next_identity(block) {
                return Ok(None);
            }
            self.next = chain.next;
        }
        Ok(Some(Contents { raw, range, order, sealing: block.sealing }))
    }
}

impl Iterator for Walk<'_> {
    type Item = Block;

    /// Pointer to the next block. The block itself is read by [`Walk::open`]; without that call the walk ends.
    fn next(&mut self) -> Option<Block> {
        match std::mem::take(&mut self.next) {
            BlockPtr::Block(block) if seq(&block) <= self.last => Some(block),
            _ => None,
        }
    }
}

/// The data block that a record points at, if it was born in txg `since` or later.
#[must_use]
pub fn data_of(record: &Outline, since: Txg) -> Option<Block> {
    record.ptr.block().copied().filter(|block| block.birth >= since)
}

/// The blocks of other files that a record clones.
pub fn cloned_by(record: &Outline) -> impl Iterator<Item = Block> + '_ {
    record.cloned.iter().filter_map(BlockPtr::block).copied()
}

/// The blocks of a log that the space maps of `synced` contain as allocated. A block of another file that a claimed log
/// clones is listed once for each reference.
///
/// # Errors
/// A device refused.
pub fn allocated(
    storage: &Storage,
    id: ObjectId,
    header: &ZilHeader,
    synced: Txg,
) -> Result<Vec<Block>, ReadError> {
    let (mut found, mut cloned) = (Vec::new(), Vec::new());
    let mut walk = Walk::new(storage, id, header);
    let claimed = header.claim_txg.0 != 0;
    while let Some(block) = walk.next() {
        if !claimed && block.birth > synced {
            break;
        }
        found.push(block);
        let Some(contents) = walk.open(&block)? else { break };
        if claimed {
            let records = contents.outlines().map_while(Result::ok);
            for record in records.take_while(|record| is_claimed(header, record.seq)) {
                found.extend(data_of(&record, header.claim_txg));
                cloned.extend(cloned_by(&record));
            }
        }
    }
    let mut places = std::collections::BTreeSet::new();
    found.retain(|block| places.insert((block.dvas[0].vdev, block.dvas[0].offset)));
    found.append(&mut cloned);
    Ok(found)
}

/// Whether a record of a claimed chain was claimed.
pub(crate) fn is_claimed(header: &ZilHeader, seq: u64) -> bool {
    header.flags & ZilHeader::FLAG_CLAIM_LR_SEQ_VALID == 0 || seq <= header.claim_lr_seq
}
