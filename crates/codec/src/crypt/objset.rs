//! The objset block of a dataset. It stays readable; two authentication codes in it cover all blocks of the dataset.

use format::ByteOrder;
use format::dnode::SLOT;
use format::objset::{FLAG_USER_ACCOUNTING, SIZE_V2, SIZE_V3};

use super::dnodes::{self, Header};
use super::error::CryptError;
use super::keys::DatasetKeys;

/// Where fields of the root lie.
const TYPE: usize = 0x2c0;
const FLAGS: usize = 0x2c8;
/// Space per user, per group, per project.
const ACCOUNTS: [usize; 3] = [0x400, 0x600, 0x800];

/// The authentication codes of an objset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjsetMacs {
    /// Covers what a raw stream carries: the type, and the meta-dnode with all blocks below it.
    pub portable: [u8; 32],
    /// Covers the accounting of space, which the receiver of a stream counts itself; zero before it is counted.
    pub local: [u8; 32],
}

impl DatasetKeys {
    /// The codes that belong into this root: a whole block in this byte order. The present bytes of the block in their place
    /// do not matter.
    ///
    /// # Errors
    /// [`CryptError::Layout`] for a block that is no objset block.
    pub fn objset_macs(&self, block: &[u8], order: ByteOrder) -> Result<ObjsetMacs, CryptError> {
        if block.len() < FLAGS + 8 {
            return Err(CryptError::Layout("root and meta-dnode"));
        }
        let version = self.mac_version();
        let mut meta = Vec::new();
        dnodes::head(&block[..SLOT], order, version, Header::Portable, &mut meta)?;
        // No flag is portable today: there are 64 zero bits in their place.
        let mut portable = [0; 32];
        let kind = order.u64(block, TYPE).to_be_bytes();
        portable.copy_from_slice(&self.hmac_of(&[&kind, &[0; 8], &meta])[..32]);

        let flags = order.u64(block, FLAGS);
        let there = match block.len() {
            SIZE_V3 => 3,
            SIZE_V2 => 2,
            _ => 0,
        };
        let mut accounts = Vec::new();
        for at in &ACCOUNTS[..there] {
            let dnode = &block[*at..at + SLOT];
            if dnode[0] != 0 {
                dnodes::head(dnode, order, version, Header::Portable, &mut accounts)?;
            }
        }
        let mut local = [0; 32];
        if flags & FLAG_USER_ACCOUNTING != 0 && !accounts.is_empty() {
            local.copy_from_slice(&self.hmac_of(&[&flags.to_le_bytes(), &accounts])[..32]);
        }
        Ok(ObjsetMacs { portable, local })
    }
}
