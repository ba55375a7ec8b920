//! Compression algorithms by their on-disk numbers, and levels as properties store them.
//!
//! Source: docs/format/02-blocks-checksums-compression.md §4.1, §5.3, §5.4. Coding is `codec`'s work.

use crate::Corrupt;

/// A compression algorithm as block pointers and dnodes name it (7 bits; zstd's level is not stored there).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Dnode value only: take the dataset's.
    Inherit,
    /// Property value only: the pool's default (lz4, or lzjb in old pools).
    On,
    /// Stored as it is.
    Off,
    /// lzjb.
    Lzjb,
    /// Only all-zero blocks vanish.
    Empty,
    /// zlib at this level, 1 to 9.
    Gzip(u8),
    /// Runs of zeros.
    Zle,
    /// LZ4.
    Lz4,
    /// Zstandard.
    Zstd,
}

impl Compression {
    /// The algorithm with on-disk number `id`.
    ///
    /// # Errors
    /// [`Corrupt`] for a number that no OpenZFS writes.
    pub fn from_disk(id: u64) -> Result<Compression, Corrupt> {
        Ok(match id {
            0 => Compression::Inherit,
            1 => Compression::On,
            2 => Compression::Off,
            3 => Compression::Lzjb,
            4 => Compression::Empty,
            5..=13 => Compression::Gzip(id as u8 - 4),
            14 => Compression::Zle,
            15 => Compression::Lz4,
            16 => Compression::Zstd,
            _ => return Err(Corrupt::new("compression", id)),
        })
    }

    /// The on-disk number.
    #[must_use]
    pub const fn to_disk(self) -> u64 {
        match self {
            Compression::Inherit => 0,
            Compression::On => 1,
            Compression::Off => 2,
            Compression::Lzjb => 3,
            Compression::Empty => 4,
            Compression::Gzip(level) => 4 + level as u64,
            Compression::Zle => 14,
            Compression::Lz4 => 15,
            Compression::Zstd => 16,
        }
    }
}

/// A zstd level as OpenZFS names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum ZstdLevel {
    /// `zstd` without a number: level 3.
    #[default]
    Default,
    /// `zstd-1` to `zstd-19`.
    Level(u8),
    /// `zstd-fast-N`: N in 1..=10, 20, 30, …, 100, 500, 1000.
    Fast(u16),
}

impl ZstdLevel {
    /// The level stored as `id` in properties and block headers (0 is the default).
    ///
    /// # Errors
    /// [`Corrupt`] for a number that no OpenZFS writes.
    pub fn from_disk(id: u64) -> Result<ZstdLevel, Corrupt> {
        Ok(match id {
            0 => ZstdLevel::Default,
            1..=19 => ZstdLevel::Level(id as u8),
            103..=112 => ZstdLevel::Fast(id as u16 - 102),
            113..=121 => ZstdLevel::Fast((id as u16 - 111) * 10),
            122 => ZstdLevel::Fast(500),
            123 => ZstdLevel::Fast(1000),
            _ => return Err(Corrupt::new("zstd level", id)),
        })
    }

    /// The number stored in properties (0 for the default).
    #[must_use]
    pub const fn to_disk(self) -> u64 {
        match self {
            ZstdLevel::Default => 0,
            ZstdLevel::Level(n) => n as u64,
            ZstdLevel::Fast(n @ 1..=10) => 102 + n as u64,
            ZstdLevel::Fast(500) => 122,
            ZstdLevel::Fast(1000) => 123,
            ZstdLevel::Fast(n) => 111 + n as u64 / 10,
        }
    }

    /// The level zstd itself understands: 1..=19, or negative for the fast ones.
    #[must_use]
    pub const fn native(self) -> i32 {
        match self {
            ZstdLevel::Default => 3,
            ZstdLevel::Level(n) => n as i32,
            ZstdLevel::Fast(n) => -(n as i32),
        }
    }
}

/// The value of the `compression` property: an algorithm and, for zstd, its level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CompressionSetting {
    /// The algorithm.
    pub algorithm: Compression,
    /// Meaningful only when `algorithm` is [`Compression::Zstd`].
    pub zstd_level: ZstdLevel,
}

impl CompressionSetting {
    /// No compression.
    pub const OFF: CompressionSetting = CompressionSetting::plain(Compression::Off);
    /// LZ4, the default.
    pub const LZ4: CompressionSetting = CompressionSetting::plain(Compression::Lz4);

    /// An algorithm without a level.
    #[must_use]
    pub const fn plain(algorithm: Compression) -> CompressionSetting {
        CompressionSetting { algorithm, zstd_level: ZstdLevel::Default }
    }

    /// Zstandard at `level`.
    #[must_use]
    pub const fn zstd(level: ZstdLevel) -> CompressionSetting {
        CompressionSetting { algorithm: Compression::Zstd, zstd_level: level }
    }

    /// Decodes the `u64` of the `compression` property: low 7 bits algorithm, zstd level above.
    ///
    /// # Errors
    /// [`Corrupt`] for a number that no OpenZFS writes.
    pub fn from_property(value: u64) -> Result<CompressionSetting, Corrupt> {
        let algorithm = Compression::from_disk(value & 0x7f)?;
        let zstd_level = match algorithm {
            Compression::Zstd => ZstdLevel::from_disk(value >> 7)?,
            _ if value >> 7 != 0 => return Err(Corrupt::new("compression property", value)),
            _ => ZstdLevel::Default,
        };
        Ok(CompressionSetting { algorithm, zstd_level })
    }

    /// The `u64` of the `compression` property.
    #[must_use]
    pub const fn to_property(self) -> u64 {
        match self.algorithm {
            Compression::Zstd => 16 | self.zstd_level.to_disk() << 7,
            other => other.to_disk(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zstd_levels_survive_a_round_trip() {
        let valid: alloc::vec::Vec<u64> = (0..=19).chain(103..=123).collect();
        for id in 0..=255 {
            match ZstdLevel::from_disk(id) {
                Ok(level) => assert_eq!((level.to_disk(), valid.contains(&id)), (id, true)),
                Err(_) => assert!(!valid.contains(&id), "{id} is a level"),
            }
        }
    }

    #[test]
    fn property_values_are_those_of_openzfs() {
        let value = |level| CompressionSetting::zstd(level).to_property();
        assert_eq!(value(ZstdLevel::Level(1)), 144);
        assert_eq!(value(ZstdLevel::Level(19)), 2448);
        assert_eq!(value(ZstdLevel::Fast(1)), 13200);
        assert_eq!(value(ZstdLevel::Fast(1000)), 15760);
        assert_eq!(CompressionSetting::plain(Compression::Gzip(6)).to_property(), 10);
    }
}
