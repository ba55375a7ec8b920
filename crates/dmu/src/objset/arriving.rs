//! Encrypted objsets that a raw stream brings: every block is moved as it lay on the sender's disks.
//!
//! From:   what the stream says of the objset, and of the seals of its dnodes.
//! To:     the sync, which writes those seals and codes. No key is needed: what a raw stream does not bring is no part of what the
//!         codes cover, and the space of users is counted when the objset is first opened with its key.
//! Source: docs/format/13-encryption.md §7.2.

use std::collections::BTreeMap;

use format::Corrupt;
use format::blkptr::BlockPtr;
use format::crypt::{MAC, Sealing};
use format::objset::FLAG_USER_ACCOUNTING;
use format::stream::{KeyData, MetaForm};

use super::Objset;
use crate::{Error, Result};

/// How a block of dnodes is sealed.
type Seal = (Sealing, [u8; MAC]);

/// What is known of an objset that arrives.
#[derive(Debug)]
pub(super) struct Arriving {
    /// Largest number of a block of dnodes.
    max_blkid: u64,
    /// Seals of blocks of dnodes that are still to be written.
    seals: BTreeMap<u64, Seal>,
}

impl Objset {
    /// From now on this objset gets what a raw stream brings, and becomes what its key data say.
    ///
    /// # Errors
    /// The objset here has another form.
    ///
    /// # Panics
    /// If another thread panicked while storing the root.
    pub fn arrive_sealed(&self, data: &KeyData) -> Result<()> {
        let mut meta = (*self.meta.synced().expect("the meta-dnode always exists")).clone();
        let here = MetaForm {
            checksum: data.meta.checksum,
            compress: data.meta.compress,
            levels: meta.levels,
            block_size: meta.block_size,
            indirect_shift: meta.indirect_shift,
            nblkptr: meta.block_ptrs.len() as u8,
            max_blkid: data.meta.max_blkid,
        };
        if here != data.meta || data.meta.max_blkid < meta.max_blkid {
            let corrupt = Corrupt::new("form of the meta-dnode of a raw stream", data.meta.max_blkid);
            return Err(Error::Corrupt { object: format::ObjectId(0), source: corrupt });
        }
        let mut root = self.root();
        (meta.checksum, meta.compress) = (data.meta.checksum, data.meta.compress);
        root.phys.meta_dnode = meta.clone();
        root.phys.portable_mac = data.portable_mac;
        root.phys.local_mac = [0; 32];
        // What was counted here before is no part of what arrives, and is not told any more.
        root.phys.flags &= !FLAG_USER_ACCOUNTING;
        drop(root);
        self.meta.replace_disk(meta);
        *self.arriving() = Some(Arriving { max_blkid: data.meta.max_blkid, seals: BTreeMap::new() });
        Ok(())
    }

    /// The block `blkid` of dnodes is sealed so.
    pub fn seal_dnodes(&self, blkid: u64, sealing: Sealing, mac: [u8; MAC]) {
        if let Some(arriving) = &mut *self.arriving() {
            arriving.seals.insert(blkid, (sealing, mac));
        }
    }

    /// Whether a raw stream arrives here.
    pub(crate) fn is_arriving(&self) -> bool {
        self.arriving().is_some()
    }

    /// Largest number of a block of dnodes of what arrives.
    #[must_use]
    pub fn arriving_max_blkid(&self) -> u64 {
        self.arriving().as_ref().map_or(0, |arriving| arriving.max_blkid)
    }

    /// How the block `blkid` of dnodes is sealed: as was said last, or as the one at `old`.
    pub(crate) fn take_seal(&self, blkid: u64, old: &BlockPtr) -> Seal {
        let said = self.arriving().as_mut().and_then(|arriving| arriving.seals.remove(&blkid));
        let here = || old.block().map(|block| (block.sealing.unwrap_or_default(), block.mac()));
        said.or_else(here).unwrap_or_default()
    }
}
