//! Repairing a block without a good copy, from data of another source.
//!
//! From:   what the block held, or how it lay on another pool's disks.
//! To:     all places of its damaged copies; the pointer stays, so the bytes must be the very ones it promises.
//! Source: docs/format/02-blocks-checksums-compression.md §1.6, §2.

use codec::Engine;
use format::Compression;
use format::blkptr::Block;
use format::compression::{CompressionSetting, ZstdLevel};

use crate::gang::{GANG_DEPTH_MAX, deeper};
use crate::write::compressed_max;
use crate::{ReadError, Storage, WriteError};

/// Levels of zstd that are tried after those that are likely.
const ZSTD_LEVELS: std::ops::RangeInclusive<u8> = 1..=19;

impl Storage {
    /// Whether `raw` matches the checksum of `block`.
    #[must_use]
    pub fn is_promised(&self, block: &Block, raw: &[u8]) -> bool {
        raw.len() as u64 == block.psize
            && block.checksum_kind != format::ChecksumKind::Off
            && codec::checksum_of(block.checksum_kind, raw, &self.salt(), block.order) == block.checksum
    }

    /// The bytes of `block` on disk, made of `stored`, how it lies elsewhere with the same compression: only the zeros
    /// that fill its last sector may be more or less. `None` if these are others.
    #[must_use]
    pub fn as_stored(&self, block: &Block, stored: &[u8]) -> Option<Vec<u8>> {
        let size = block.psize as usize;
        if stored.len() > size && !codec::is_zero(&stored[size..]) {
            return None;
        }
        let mut raw = stored.to_vec();
        raw.resize(size, 0);
        self.is_promised(block, &raw).then_some(raw)
    }

    /// The bytes of `block` on disk, made from its content `plain`. The pointer does not have all parameters of the
    /// compression: all that this build knows are tried, `zstd` first. `None` if none gives the checksum of the
    /// pointer.
    #[must_use]
    pub fn as_encoded(&self, block: &Block, plain: &[u8], zstd: ZstdLevel) -> Option<Vec<u8>> {
        if plain.len() as u64 != block.lsize || block.psize > block.lsize {
            return None;
        }
        if block.compression == Compression::Off {
            return self.is_promised(block, plain).then(|| plain.to_vec());
        }
        // The size of the output buffer can change the output: an early end, or an uncompressed block within a frame.
        let limits = [
            compressed_max(block.lsize, self.vdevs().min_alloc()),
            compressed_max(block.lsize, 1),
            block.psize,
        ]
        .map(|limit| limit.max(block.psize) as usize);
        let mut scratch = vec![0; limits.into_iter().fold(0, usize::max)];
        let mut raw = vec![0; block.psize as usize];
        let mut is_made_in = |limit, engine, zstd_level| {
            let setting = CompressionSetting { algorithm: block.compression, zstd_level };
            let used = codec::compress_by(engine, setting, plain, &mut scratch[..limit]);
            let Some(used) = used.filter(|used| *used <= raw.len()) else { return false };
            raw[..used].copy_from_slice(&scratch[..used]);
            raw[used..].fill(0);
            self.is_promised(block, &raw)
        };
        let mut is_made_by = |engine, level| limits.into_iter().any(|limit| is_made_in(limit, engine, level));
        let is_made = match block.compression {
            Compression::Gzip(_) => Engine::ALL.into_iter().any(|engine| is_made_by(engine, zstd)),
            Compression::Zstd => [zstd, ZstdLevel::Default]
                .into_iter()
                .chain(ZSTD_LEVELS.map(ZstdLevel::Level))
                .any(|level| is_made_by(Engine::Libdeflate, level)),
            _ => is_made_by(Engine::Libdeflate, zstd),
        };
        is_made.then_some(raw)
    }

    /// Writes `raw` over the copies of `block` that are damaged, and reads them again. The block must be in use while this
    /// runs. Adds the bytes that are right now and were not to `healed`, also where it fails.
    ///
    /// # Errors
    /// A gang whose header is lost; a disk refuses.
    ///
    /// # Panics
    /// If `raw` is not what the pointer promises.
    pub fn heal(&self, block: &Block, raw: &[u8], healed: &mut u64) -> Result<(), WriteError> {
        assert!(self.is_promised(block, raw), "only what the pointer promises is written");
        self.heal_copies(block, raw, GANG_DEPTH_MAX, healed)
    }

    fn heal_copies(&self, block: &Block, raw: &[u8], depth: u32, healed: &mut u64) -> Result<(), WriteError> {
        let mut found = Vec::new();
        for dva in block.copies().filter(|dva| !dva.gang) {
            for replica in self.replicas_of(&dva, block.physical_birth()) {
                if self.is_stale(&dva, replica, block.physical_birth()) {
                    // A resilver writes the blocks that the device missed.
                    continue;
                }
                match self.reader().read_copy(block, dva, replica, depth, &mut found) {
                    Ok(()) => continue,
                    Err(ReadError::NoGoodCopy { .. }) => {}
                    // An unreadable copy may still be right.
                    Err(other) => return Err(other.into()),
                }
                self.write_over((&dva, block.physical_birth()), replica, raw)?;
                self.reader().read_copy(block, dva, replica, depth, &mut found)?;
                *healed += block.psize;
            }
        }
        if !block.is_gang() {
            return Ok(());
        }
        let depth = deeper(depth)?;
        let mut rest = raw;
        for member in self.any_gang_members(block)? {
            let tried = || ReadError::NoGoodCopy { tried: member.copies().collect() };
            let (piece, after) = rest.split_at_checked(member.psize as usize).ok_or_else(tried)?;
            if !self.is_promised(&member, piece) {
                return Err(tried().into());
            }
            self.heal_copies(&member, piece, depth, healed)?;
            rest = after;
        }
        Ok(())
    }
}
