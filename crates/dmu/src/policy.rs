//! Write policy: how the blocks of an objset are written, and which go to cache devices, from properties and the kind of a
//! block.

use format::compression::CompressionSetting;
use format::{ChecksumKind, Compression, ObjectType};
use storage::allocator::Holds;
use storage::{GzipEngine, Protection, Recipe, Secondary};

/// How blocks of an objset are written.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Of data blocks; `On` is resolved.
    pub compression: CompressionSetting,
    /// Of metadata blocks.
    pub metadata_compression: CompressionSetting,
    /// The gzip engine.
    pub gzip_engine: GzipEngine,
    /// Of data blocks; `On` is resolved.
    pub checksum: ChecksumKind,
    /// Copies of data blocks, 1 to 3.
    pub copies: u8,
    /// Data blocks of the same content are stored once.
    pub dedup: Option<Dedup>,
    /// Which metadata has one copy more, up to 3.
    pub redundant: Redundant,
    /// Feature `embedded_data` is active.
    pub embed: bool,
    /// Feature `hole_birth` is active.
    pub hole_birth: bool,
    /// Blocks of data that take so many bytes or less are placed on special vdevs.
    pub small_blocks: u64,
    /// Blocks have one copy only, as in pools of version 1.
    pub single: bool,
    /// Dnodes count their space in sectors, as in pools before version 3.
    pub counts_sectors: bool,
    /// Which blocks that were read are put on cache devices.
    pub secondary: Secondary,
    /// The dataset is encrypted.
    pub encrypted: bool,
}

/// Settings of the property `dedup`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dedup {
    /// Checksum of these blocks, in place of the property `checksum`.
    pub checksum: ChecksumKind,
    /// The contents are compared, too.
    pub verify: bool,
}

/// Metadata that has one copy more than data: the property `redundant_metadata`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redundant {
    /// All of it.
    All,
    /// All but the indirect blocks right above data.
    Most,
    /// Only blocks without which the whole dataset is lost.
    Some,
    /// Nothing.
    None,
}

/// Maximal copies of encrypted blocks: the third DVA holds the encryption parameters.
pub(crate) const SEALED_COPIES_MAX: u8 = 2;

/// Lowest level of indirect blocks of data with one copy more under [`Redundant::Most`].
const MOST_LEVEL: u8 = 2;

/// How one kind of block is written.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) recipe: Recipe,
    pub(crate) copies: u8,
    pub(crate) dedup: Option<Dedup>,
}

impl Policy {
    /// Content class of a block of this kind and size, for the choice of its vdev.
    pub(crate) fn holds(&self, object_type: ObjectType, level: u8, psize: u64) -> Holds {
        match object_type {
            ObjectType::DDT_ZAP | ObjectType::DDT_STATS => Holds::DedupTable,
            _ if level > 0 || object_type.is_metadata() => Holds::Metadata,
            _ if psize <= self.small_blocks => Holds::SmallData,
            _ => Holds::Data,
        }
    }

    /// Copies of a block of this kind.
    fn copies_of(&self, object_type: ObjectType, level: u8) -> u8 {
        let metadata = object_type.is_metadata();
        let of_one_file = [ObjectType::DNODE, ObjectType::DIRECTORY_CONTENTS, ObjectType::SA];
        let more = match self.redundant {
            Redundant::All => metadata || level > 0,
            Redundant::Most => metadata || level >= MOST_LEVEL,
            Redundant::Some => metadata && !of_one_file.contains(&object_type),
            Redundant::None => false,
        };
        let most = match () {
            () if self.single => 1,
            () if self.encrypted && object_type.is_encrypted() => SEALED_COPIES_MAX,
            () => 3,
        };
        (self.copies + u8::from(more)).min(most)
    }

    /// How a block at `level` of an object is written; `compress` and `checksum` are the object's own, by number.
    pub(crate) fn plan(
        &self,
        object_type: ObjectType,
        compress: u8,
        checksum: u8,
        level: u8,
        min_alloc: u64,
    ) -> Plan {
        let metadata = level > 0 || object_type.is_metadata();
        let own = Compression::from_disk(u64::from(compress & 0x7f)).unwrap_or(Compression::Inherit);
        let stays_readable = matches!(object_type, ObjectType::DNODE | ObjectType::OBJSET) && level == 0;
        let compression = match own {
            Compression::Off if level == 0 => CompressionSetting::OFF,
            // Parts of these are read without the keys.
            _ if self.encrypted && stays_readable => CompressionSetting::plain(Compression::Empty),
            _ if metadata => self.metadata_compression,
            Compression::Inherit | Compression::On | Compression::Empty => self.compression,
            own => CompressionSetting::plain(own),
        };
        let own_sum = ChecksumKind::from_disk(checksum.into()).unwrap_or(ChecksumKind::Inherit);
        let checksum = match own_sum {
            ChecksumKind::Inherit | ChecksumKind::On => self.checksum,
            own => own,
        };
        // Encrypted and embedded blocks are never shared.
        let dedup = self.dedup.filter(|_| !metadata && !self.encrypted);
        let checksum = match dedup {
            Some(dedup) => dedup.checksum,
            None if metadata => checksum.for_metadata(),
            None => checksum,
        };
        let embed = self.embed && level == 0 && !stays_readable && !self.encrypted && dedup.is_none();
        let protection = self.encrypted.then(|| Protection::of(object_type, level));
        let engine = self.gzip_engine;
        let recipe = Recipe { compression, gzip_engine: engine, checksum, min_alloc, embed, protection };
        Plan { recipe, copies: self.copies_of(object_type, level), dedup }
    }
}
