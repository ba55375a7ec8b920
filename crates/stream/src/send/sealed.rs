//! Raw streams: sending encrypted datasets as on disk, without their keys.
//!
//! From:   the key object and the root of a dataset.
//! To:     the key data of the stream, and a reader for its blocks.
//! Source: docs/format/13-encryption.md §7.1.

use std::sync::Arc;

use format::stream::{KeyData, MetaForm};
use storage::Reader;

use pool::{Dataset, DatasetInfo, Error, Result, SendFlags};

use super::lineage::What;
use super::{Sender, Source};

impl<'a> Sender<'a> {
    /// Opens the source. While it is open it cannot be destroyed. The DSL lock is not held during the send.
    pub(super) fn open(&self, name: &str, flags: SendFlags) -> Result<Arc<Dataset>> {
        if flags.raw { self.pool.open_to_send(name) } else { self.pool.open(name) }
    }

    /// The reader for the blocks of the source: for a raw stream without keys.
    pub(super) fn reader<'b>(&self, open: &'b Dataset, is_raw: bool) -> Reader<'b>
    where
        'a: 'b,
    {
        if is_raw { self.pool.reader() } else { open.objset().io().walker() }
    }

    /// The key data of a raw stream, and its values for the dataset's block tree.
    pub(super) fn key_data(
        &self,
        to: &DatasetInfo,
        open: &Dataset,
        from: Option<&Source>,
    ) -> Result<KeyData> {
        if !to.is_snapshot() {
            return Err(Error::Unsupported("a raw stream of what is no snapshot".into()));
        }
        let encryption = self.pool.encryption(to)?;
        let object = encryption.ok_or_else(|| Error::NoDataset(to.name.clone()))?.object;
        if object.wrapped.version != 1 {
            return Err(Error::Unsupported("raw streams of datasets with keys of the first version".into()));
        }
        let (root, _) = open.objset().synced_root();
        let reading = self.pool.reading();
        let from_iv_set = match from.map(|from| from.what) {
            None => 0,
            Some(What::Snapshot(id)) => reading.iv_set(id)?.unwrap_or(0),
            Some(What::Bookmark(set)) => set.0,
        };
        let meta = &root.meta_dnode;
        Ok(KeyData {
            wrapped: object.wrapped,
            portable_mac: root.portable_mac,
            format: object.user_key.format,
            iterations: object.user_key.iterations,
            salt: object.user_key.salt,
            meta: MetaForm {
                checksum: meta.checksum,
                compress: meta.compress,
                levels: meta.levels,
                block_size: meta.block_size,
                indirect_shift: meta.indirect_shift,
                nblkptr: meta.block_ptrs.len() as u8,
                max_blkid: meta.max_blkid,
            },
            to_iv_set: reading.iv_set(to.id)?.unwrap_or(0),
            from_iv_set,
        })
    }
}
