//! Allocating and writing a block of the syncing txg, and freeing the block that it replaces.
//!
//! Only the sync thread calls this, in the order of the blocks, so the same state gives the same bytes.

use std::sync::Arc;

use format::blkptr::{Block, BlockPtr, Embedded};
use format::dnode::Dnode;
use format::objset as phys;
use format::{ByteOrder, Compression, ObjectType, Txg};
use storage::allocator::Want;
use storage::write::{Encoded, Encoding};
use storage::{Payload, Record};

use crate::context::SyncCtx;
use crate::dedup::Share;
use crate::gang::Places;
use crate::policy::{Plan, SEALED_COPIES_MAX};
use crate::{Error, Result};

/// The place in the tree of `owner` that a new block takes.
#[derive(Clone, Copy)]
pub(crate) struct TreeSlot<'a> {
    pub owner: &'a Dnode,
    pub level: u8,
    /// Blocks of data below it, or objects in it.
    pub fill: u64,
    /// The block that the new one replaces.
    pub old: &'a BlockPtr,
}

impl SyncCtx<'_, '_> {
    pub(crate) fn encoding(&self, owner: &Dnode, level: u8) -> Plan {
        let min_alloc = self.storage().vdevs().min_alloc();
        self.policy.plan(owner.object_type, owner.compress, owner.checksum, level, min_alloc)
    }

    /// Writes `record` as the block of `slot`.
    pub(crate) fn write(&mut self, record: &Record, plan: Plan, slot: TreeSlot<'_>) -> Result<BlockPtr> {
        let TreeSlot { owner, level, fill, old } = slot;
        let salt = self.storage().salt();
        let guard = self.guard(&plan.recipe);
        let encoding = Encoding { guard, ..self.storage().encoding(plan.recipe, &salt) };
        if self.mos_pass > 0
            && born_in(old, self.txg)
            && let Some(block) = old.block()
            && block.lsize == record.len() as u64
            && let Some(encoded) = encoding.encode_into(record, block.psize)
        {
            return self.rewrite(*block, encoded, record, fill);
        }
        let mut encoded = encoding.encode(record);
        if self.mos_pass > 1
            && let Encoded::Stored { payload, .. } = &encoded
        {
            // A block first written in a late pass grows a little in the next one. It gets spare space, so that the passes
            // converge.
            let roomy = payload.bytes().len() as u64 + 2 * plan.recipe.min_alloc;
            let roomy = if roomy * 8 > record.len() as u64 * 7 { record.len() as u64 } else { roomy };
            encoded = encoding.encode_into(record, roomy).unwrap_or(encoded);
        }
        if matches!(encoded, Encoded::Hole) {
            self.kill(old)?;
            return Ok(BlockPtr::HOLE);
        }
        let ptr = self.place_with(encoded, plan, slot, record.len() as u64)?;
        if let Some(block) = ptr.block()
            && (level > 0 || owner.object_type.is_metadata())
        {
            self.storage().cache().insert(block, record.clone());
        }
        Ok(ptr)
    }

    /// Overwrites a block that this txg wrote and that no durable block refers to.
    fn rewrite(
        &mut self,
        mut block: Block,
        encoded: Encoded,
        record: &Record,
        fill: u64,
    ) -> Result<BlockPtr> {
        let Encoded::Stored { payload, compression, checksum, .. } = encoded else {
            unreachable!("encode_into stores");
        };
        assert_eq!(payload.bytes().len() as u64, block.psize, "a rewrite fills the space it has");
        self.storage().forget(&block);
        block.compression = compression;
        block.checksum = checksum;
        block.fill = fill;
        let ptr = if block.is_gang() {
            self.rewrite_pieces(block, &payload)?
        } else {
            for dva in block.copies() {
                self.storage().hold(dva, payload.clone());
            }
            BlockPtr::Block(block)
        };
        self.storage().cache().insert(&block, record.clone());
        Ok(ptr)
    }

    /// Whether the block that `old` points at is the same as the one that would be written for the leaf `encoded`: then
    /// nothing is written and the pointer stays as it is (nopwrite: 02 §4.3). The checksums decide, so they must be strong;
    /// and, as in OpenZFS, only data that is to be compressed is compared.
    pub(crate) fn is_stored_at(&self, old: &BlockPtr, encoded: &Encoded, owner: &Dnode) -> bool {
        let (BlockPtr::Block(old), Encoded::Stored { payload, compression, checksum, .. }) = (old, encoded)
        else {
            return false;
        };
        let Plan { recipe, copies, dedup } = self.encoding(owner, 0);
        let is_compared = dedup.is_none()
            && recipe.checksum.proves_equality()
            && recipe.compression.algorithm != Compression::Off
            && recipe.protection.is_none()
            && !owner.object_type.is_metadata();
        let new = Block {
            lsize: owner.level_size(0),
            psize: payload.bytes().len() as u64,
            compression: *compression,
            checksum_kind: recipe.checksum,
            checksum: *checksum,
            // Fields that do not follow from the content and the settings.
            fill: old.fill,
            dvas: old.dvas,
            ..Block::plain(owner.object_type, old.birth)
        };
        is_compared && !old.is_gang() && old.copies().count() == usize::from(copies) && *old == new
    }

    /// Gives an encoded leaf a place.
    pub(crate) fn place(&mut self, encoded: Encoded, slot: TreeSlot<'_>) -> Result<BlockPtr> {
        let plan = self.encoding(slot.owner, slot.level);
        self.place_with(encoded, plan, slot, slot.owner.level_size(slot.level))
    }

    fn place_with(
        &mut self,
        encoded: Encoded,
        plan: Plan,
        slot: TreeSlot<'_>,
        lsize: u64,
    ) -> Result<BlockPtr> {
        let TreeSlot { owner, level, fill, old } = slot;
        let ptr = match encoded {
            Encoded::Hole => unreachable!("holes have no place"),
            Encoded::Embedded { payload, psize, compression } => BlockPtr::Embedded(Embedded {
                kind: 0,
                lsize,
                psize,
                compression,
                object_type: owner.object_type,
                level,
                order: ByteOrder::Little,
                birth: self.txg,
                payload,
            }),
            Encoded::Refused(_) => return Err(Error::Unsupported("sealing such a large record with CCM")),
            Encoded::Stored { payload, compression, checksum, sealing } => {
                let psize = payload.bytes().len() as u64;
                assert!(psize <= lsize, "compression may not grow a block");
                let block = Block {
                    lsize,
                    psize,
                    compression,
                    checksum_kind: plan.recipe.checksum,
                    level,
                    fill,
                    checksum,
                    encrypted: plan.recipe.protection.is_some(),
                    sealing,
                    ..Block::plain(owner.object_type, self.txg)
                };
                BlockPtr::Block(match self.share(plan, &block, Some(&payload))? {
                    Share::Known(shared) => shared,
                    Share::New => {
                        let block = self.put(block, &payload, plan.copies)?;
                        self.enter(plan, block)?
                    }
                    Share::No => self.put(block, &payload, plan.copies)?,
                })
            }
        };
        self.kill(old)?;
        self.space.born(&ptr);
        Ok(ptr)
    }

    /// Allocates places for a block, which has all fields except its DVAs, and queues its bytes.
    fn put(&mut self, block: Block, payload: &Payload, copies: u8) -> Result<Block> {
        let holds = self.policy.holds(block.object_type, block.level, block.psize);
        let want = Want { psize: block.psize, copies, holds };
        let block = match self.find_places(want, headers_max(&block))? {
            Places::Whole(dvas) => Block { dvas, ..block },
            Places::Pieces(pieces) => return self.place_in_pieces(block, payload, &pieces),
        };
        for dva in block.copies() {
            if self.mos_pass > 0 {
                self.storage().hold(dva, payload.clone());
            } else {
                self.writer.put(dva, payload.clone())?;
            }
        }
        Ok(block)
    }

    /// Uses a leaf that was written early, in place of `old`.
    pub(crate) fn adopt(&mut self, block: Block, owner: &Dnode, old: &BlockPtr) -> Result<BlockPtr> {
        let expected = (owner.level_size(0), self.txg);
        assert_eq!((block.lsize, block.birth), expected, "an early block is this txg's own");
        let plan = self.encoding(owner, 0);
        let ptr = BlockPtr::Block(match self.share(plan, &block, None)? {
            Share::Known(shared) => {
                // The early block stays unused and is freed with the other unused ones.
                self.storage().waste_early(block);
                shared
            }
            Share::New => self.enter(plan, block)?,
            Share::No => block,
        });
        self.kill(old)?;
        self.space.born(&ptr);
        Ok(ptr)
    }

    /// `ptr` goes out of use.
    pub(crate) fn kill(&mut self, ptr: &BlockPtr) -> Result<()> {
        if let BlockPtr::Block(block) = ptr {
            self.storage().forget(block);
            if self.mos_pass > 0 {
                for dva in block.copies() {
                    self.storage().release(dva);
                }
            }
        }
        if !ptr.is_hole() {
            self.space.killed(ptr)?;
        }
        Ok(())
    }
}

/// Writes an objset's root block in place of `old`.
///
/// # Errors
/// If the block cannot be placed or written.
pub fn write_objset_root(
    ctx: &mut SyncCtx<'_, '_>,
    root: &phys::Objset,
    size: usize,
    old: &BlockPtr,
) -> Result<BlockPtr> {
    let mut owner = Dnode::meta(1);
    owner.object_type = ObjectType::OBJSET;
    owner.block_size = size as u32;
    let fill = root.meta_dnode.block_ptrs.iter().map(BlockPtr::fill).sum();
    let plan = ctx.encoding(&owner, 0);
    let mut raw = root.encode(size);
    // Without keys the codes stay unchanged, because nothing that they cover has changed.
    if let Some(keys) = ctx.io.keys() {
        let macs = keys.objset_macs(&raw, ByteOrder::Little).expect("a root is as large as its version says");
        let root = phys::Objset { portable_mac: macs.portable, local_mac: macs.local, ..root.clone() };
        raw = root.encode(size);
    }
    ctx.write(&Arc::new(raw), plan, TreeSlot { owner: &owner, level: 0, fill, old })
}

/// Maximal copies of the gang header if this block becomes a gang.
fn headers_max(block: &Block) -> u8 {
    if block.sealing.is_some() { SEALED_COPIES_MAX } else { 3 }
}

/// The birth that decides whether a block was written in `txg`.
fn born_in(ptr: &BlockPtr, txg: Txg) -> bool {
    ptr.block().is_some_and(|block| block.physical_birth() == txg)
}
