//! Blocks of encrypted datasets: opened with the dataset's keys, or known to be authentic.
//!
//! Source: docs/format/13-encryption.md §3, §4.

use codec::crypt::{Content, MacVersion, indirect_mac};
use format::blkptr::Block;
use format::{ByteOrder, ObjectType};

use crate::{ReadError, Reader};

/// Where an objset block has its authentication codes.
const PORTABLE_MAC: core::ops::Range<usize> = 0x2d0..0x2f0;
const LOCAL_MAC: core::ops::Range<usize> = 0x2f0..0x310;

impl Reader<'_> {
    /// Whether the cache has other bytes of this block than this reader should see, since it has no keys.
    pub(crate) fn sees_it_sealed(&self, block: &Block) -> bool {
        block.sealing.is_some() && self.keys.is_none()
    }

    /// Decrypts `raw`, the bytes of a block of level 0 as they lie on the disk, or compares its authentication code.
    /// Without keys, only data that is never encrypted can be read, and dnodes, whose bonuses stay encrypted; nothing
    /// is compared then.
    ///
    /// # Errors
    /// [`ReadError::NoKey`], [`ReadError::Unauthentic`].
    pub(crate) fn open_sealed(&self, block: &Block, raw: &mut [u8]) -> Result<(), ReadError> {
        if !block.encrypted || block.level > 0 {
            return Ok(());
        }
        let Some(keys) = self.keys else {
            let readable = block.sealing.is_none() || block.object_type == ObjectType::DNODE;
            return if readable { Ok(()) } else { Err(ReadError::NoKey) };
        };
        let Some(sealing) = block.sealing else {
            let is_authentic = if block.object_type == ObjectType::OBJSET {
                is_root_authentic(keys, raw, block.order)
            } else {
                keys.authenticate(raw) == block.mac()
            };
            return if is_authentic { Ok(()) } else { Err(ReadError::Unauthentic) };
        };
        let content = match block.object_type {
            ObjectType::DNODE => Content::Dnodes(block.order),
            _ => Content::Whole,
        };
        keys.open(content, &sealing, &block.mac(), raw).map_err(|_| ReadError::Unauthentic)
    }

    /// Compares the authentication code of an indirect block, which needs no key: `bytes` are decompressed.
    ///
    /// # Errors
    /// [`ReadError::Unauthentic`].
    pub(crate) fn check_children(&self, block: &Block, bytes: &[u8]) -> Result<(), ReadError> {
        if !block.encrypted || block.level == 0 {
            return Ok(());
        }
        let is = |version| indirect_mac(bytes, block.order, version) == block.mac();
        let is_authentic = match self.keys {
            Some(keys) => is(keys.mac_version()),
            None => is(MacVersion::One) || is(MacVersion::Zero),
        };
        if is_authentic { Ok(()) } else { Err(ReadError::Unauthentic) }
    }
}

/// Whether the codes inside a root are right. The local one need not be there: nothing was counted where a raw stream has just
/// been received.
fn is_root_authentic(keys: &codec::crypt::DatasetKeys, raw: &[u8], order: ByteOrder) -> bool {
    let Ok(macs) = keys.objset_macs(raw, order) else { return false };
    raw[PORTABLE_MAC] == macs.portable && (macs.local == [0; 32] || raw[LOCAL_MAC] == macs.local)
}
