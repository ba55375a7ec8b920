//! Attributes of an object without its blocks, and the attributes of a new object.

use format::ObjectType;
use format::blkptr::BlockPtr;
use format::dnode::{self, Dnode};

/// Attributes of an object without its blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// Type of the object and its blocks.
    pub object_type: ObjectType,
    /// Bytes of a data block.
    pub block_size: u32,
    /// log2 bytes of an indirect block.
    pub indirect_shift: u8,
    /// Type of the bonus, and of the spill block.
    pub bonus_type: ObjectType,
    /// The bonus bytes in use.
    pub bonus: Vec<u8>,
    /// 512-byte slots that the dnode takes.
    pub slots: u8,
    /// Pointers in the dnode.
    pub nblkptr: u8,
    /// Checksum kind by number; 0: the dataset's.
    pub checksum: u8,
    /// Compression by number; 0: the dataset's.
    pub compress: u8,
    /// Largest block id written and not truncated.
    pub max_blkid: u64,
    /// Minimal number of levels of the tree.
    pub levels: u8,
}

impl Head {
    pub(crate) fn of(dnode: &Dnode) -> Head {
        Head {
            object_type: dnode.object_type,
            block_size: dnode.block_size,
            indirect_shift: dnode.indirect_shift,
            bonus_type: dnode.bonus_type,
            bonus: dnode.bonus.clone(),
            slots: dnode.slots,
            nblkptr: dnode.block_ptrs.len() as u8,
            checksum: dnode.checksum,
            compress: dnode.compress,
            max_blkid: dnode.max_blkid,
            levels: dnode.levels,
        }
    }

    /// The dnode of an object that has no blocks yet.
    pub(crate) fn to_dnode(&self) -> Dnode {
        Dnode {
            object_type: self.object_type,
            indirect_shift: self.indirect_shift,
            levels: self.levels,
            bonus_type: self.bonus_type,
            checksum: self.checksum,
            compress: self.compress,
            flags: 0,
            block_size: self.block_size,
            slots: self.slots,
            max_blkid: 0,
            used: 0,
            block_ptrs: vec![BlockPtr::HOLE; usize::from(self.nblkptr)],
            bonus: self.bonus.clone(),
            spill: None,
        }
    }
}

/// For a raw receive: the form of the dnode at the sender, which the authentication code of its block covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedForm {
    /// Levels of the tree.
    pub levels: u8,
    /// Pointers in the dnode.
    pub nblkptr: u8,
    /// Largest block id.
    pub max_blkid: u64,
    /// All bytes after the block pointers, as on disk; empty without a bonus.
    pub area: Vec<u8>,
}

/// Attributes of a new object.
#[derive(Clone, Debug)]
pub struct NewObject {
    /// Type of the object and its blocks.
    pub object_type: ObjectType,
    /// Bytes of a data block.
    pub block_size: u32,
    /// Type of the bonus.
    pub bonus_type: ObjectType,
    /// The bonus.
    pub bonus: Vec<u8>,
    /// log2 bytes of an indirect block.
    pub indirect_shift: u8,
    /// Dnode size in 512-byte slots.
    pub slots: u8,
    /// Compression by number; 0: the dataset's.
    pub compress: u8,
    /// Checksum kind by number; 0: the dataset's.
    pub checksum: u8,
}

impl NewObject {
    /// An object of 512-byte blocks without a bonus, in a dnode of one slot.
    #[must_use]
    pub fn plain(object_type: ObjectType) -> NewObject {
        NewObject {
            object_type,
            block_size: 512,
            bonus_type: ObjectType::NONE,
            bonus: Vec::new(),
            indirect_shift: dnode::MAX_INDIRECT_SHIFT,
            slots: 1,
            compress: 0,
            checksum: 0,
        }
    }

    /// With another block size in bytes.
    #[must_use]
    pub fn block_size(mut self, bytes: u32) -> NewObject {
        self.block_size = bytes;
        self
    }

    /// Gives the new object a bonus.
    #[must_use]
    pub fn bonus(mut self, bonus_type: ObjectType, bonus: Vec<u8>) -> NewObject {
        self.bonus_type = bonus_type;
        self.bonus = bonus;
        self
    }

    pub(crate) fn head(self) -> Head {
        let slots = usize::from(self.slots);
        let nblkptr = dnode::nblkptr_for(self.bonus_type, self.bonus.len(), slots);
        assert!(self.bonus.len() <= dnode::bonus_capacity(slots, nblkptr, false), "the bonus fits");
        Head {
            object_type: self.object_type,
            block_size: self.block_size,
            indirect_shift: self.indirect_shift,
            bonus_type: self.bonus_type,
            bonus: self.bonus,
            slots: self.slots,
            nblkptr: nblkptr as u8,
            checksum: self.checksum,
            compress: self.compress,
            max_blkid: 0,
            levels: 1,
        }
    }
}
