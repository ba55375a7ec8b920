//! Allocation classes of top-level vdevs, and the choice of a class for a block.
//!
//! From:   the kind of a block, as its writer names it.
//! To:     `allocator`, which tries the classes in this order.
//! Source: docs/format/12-auxiliary-vdevs.md §1.2, §3.

/// Percent of the special vdevs reserved for metadata, so that small data blocks do not fill them.
const RESERVE_PERCENT: u128 = 25;

/// The class of a top-level vdev: which blocks it holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Everything that is placed nowhere else.
    #[default]
    Normal,
    /// Intent logs only.
    Log,
    /// Metadata, and small blocks of data.
    Special,
    /// Dedup tables.
    Dedup,
}

impl Class {
    /// As many as there are.
    pub(super) const COUNT: usize = 4;

    /// The bytes by which the ZAP of a top-level vdev names the class; none for a normal one.
    #[must_use]
    pub const fn bias(self) -> Option<&'static [u8]> {
        match self {
            Class::Normal => None,
            Class::Log => Some(b"log\0"),
            Class::Special => Some(b"special\0"),
            Class::Dedup => Some(b"dedup\0"),
        }
    }

    /// The class that these bytes name.
    #[must_use]
    pub fn of_bias(bytes: &[u8]) -> Class {
        let all = [Class::Log, Class::Special, Class::Dedup];
        let name = bytes.strip_suffix(b"\0").unwrap_or(bytes);
        let is_meant = |class: &Class| class.bias().and_then(|bias| bias.strip_suffix(b"\0")) == Some(name);
        all.into_iter().find(is_meant).unwrap_or(Class::Normal)
    }

    /// Whether blocks of data, metadata or dedup tables may be placed there.
    #[must_use]
    pub const fn takes_blocks(self) -> bool {
        !matches!(self, Class::Log)
    }
}

/// Content class of a block, for the choice of its vdev.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holds {
    /// Data.
    #[default]
    Data,
    /// Data that is small enough for special vdevs, by the settings of its dataset.
    SmallData,
    /// Metadata of any kind.
    Metadata,
    /// A dedup table.
    DedupTable,
}

impl Holds {
    /// The classes in the order in which they are tried. The normal class is always the last one.
    pub(super) const fn classes(self) -> &'static [Class] {
        match self {
            Holds::Data => &[Class::Normal],
            Holds::SmallData | Holds::Metadata => &[Class::Special, Class::Normal],
            Holds::DedupTable => &[Class::Dedup, Class::Special, Class::Normal],
        }
    }

    /// Whether special vdevs with `allocated` of `size` bytes in use take more of it.
    pub(super) fn fits_special(self, allocated: u64, size: u64) -> bool {
        let limit = u128::from(size) * (100 - RESERVE_PERCENT) / 100;
        self != Holds::SmallData || u128::from(allocated) < limit
    }
}
