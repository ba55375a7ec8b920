//! Receiving encrypted objsets from raw streams: every block is stored as on the sender's disks.
//!
//! From:   the stream's values for the objset, and the encryption parameters of its dnode blocks.
//! To:     the sync, which writes them. No key is needed: the authentication codes do not cover values that a raw stream
//!         lacks. User accounting is computed when the objset is first opened with its key.
//! Source: docs/format/13-encryption.md §7.2.

use std::collections::BTreeMap;

use format::Corrupt;
use format::blkptr::BlockPtr;
use format::crypt::{MAC, Sealing};
use format::objset::FLAG_USER_ACCOUNTING;
use format::stream::{KeyData, MetaForm};

use super::Objset;
use crate::{Error, Result};

/// Encryption parameters of a dnode block.
type Seal = (Sealing, [u8; MAC]);

/// State of an objset that is being received.
#[derive(Debug)]
pub(super) struct Arriving {
    /// Largest number of a block of dnodes.
    max_blkid: u64,
    /// Encryption parameters of dnode blocks that are not written yet.
    seals: BTreeMap<u64, Seal>,
}

impl Objset {
    /// Prepares the objset for a raw stream with these key data.
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
        // The old accounting does not belong to the received contents and is dropped.
        root.phys.flags &= !FLAG_USER_ACCOUNTING;
        drop(root);
        self.meta.replace_disk(meta);
        *self.arriving() = Some(Arriving { max_blkid: data.meta.max_blkid, seals: BTreeMap::new() });
        Ok(())
    }

    /// Sets the encryption parameters of dnode block `blkid`.
    pub fn seal_dnodes(&self, blkid: u64, sealing: Sealing, mac: [u8; MAC]) {
        if let Some(arriving) = &mut *self.arriving() {
            arriving.seals.insert(blkid, (sealing, mac));
        }
    }

    /// Whether a raw stream arrives here.
    pub(crate) fn is_arriving(&self) -> bool {
        self.arriving().is_some()
    }

    /// Largest number of a received dnode block.
    #[must_use]
    pub fn arriving_max_blkid(&self) -> u64 {
        self.arriving().as_ref().map_or(0, |arriving| arriving.max_blkid)
    }

    /// Encryption parameters of dnode block `blkid`: the last ones set, or those of the block at `old`.
    pub(crate) fn take_seal(&self, blkid: u64, old: &BlockPtr) -> Seal {
        let said = self.arriving().as_mut().and_then(|arriving| arriving.seals.remove(&blkid));
        let here = || old.block().map(|block| (block.sealing.unwrap_or_default(), block.mac()));
        said.or_else(here).unwrap_or_default()
    }
}
