//! What an object is, apart from its blocks.

use format::ObjectType;
use format::blkptr::BlockPtr;
use format::dnode::Dnode;

/// What an object is, apart from its blocks.
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
}

impl Head {
    pub(super) fn of(dnode: &Dnode) -> Head {
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
        }
    }

    /// The dnode of an object that has no blocks yet.
    pub(crate) fn to_dnode(&self) -> Dnode {
        Dnode {
            object_type: self.object_type,
            indirect_shift: self.indirect_shift,
            levels: 1,
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
