//! Checksum kinds and values as block pointers carry them.
//!
//! Source: docs/format/02-blocks-checksums-compression.md §3. Computing them is `codec`'s work.

use crate::crypt::MAC;
use crate::{ByteOrder, Corrupt};

/// The four checksum words of a block pointer, as numbers (the holder's byte order is already undone).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash)]
pub struct Checksum(pub [u64; 4]);

impl Checksum {
    /// The checksum field in an encrypted dataset: one half is from the checksum, the other half is the block's
    /// authentication code `mac`, as words of this byte order. For weak checksums, all four words are folded into the first
    /// half.
    #[must_use]
    pub fn with_mac(self, kind: ChecksumKind, mac: &[u8; MAC], order: ByteOrder) -> Checksum {
        let Checksum([a, b, c, d]) = self;
        // OpenZFS does not count edonr among the strong ones here.
        let is_cut = kind.proves_equality() && kind != ChecksumKind::Edonr;
        let (a, b) = if is_cut { (a, b) } else { (a ^ c, b ^ d) };
        Checksum([a, b, order.u64(mac, 0), order.u64(mac, 8)])
    }
}

/// A checksum algorithm by its on-disk number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ChecksumKind {
    /// Property value only: take the parent's.
    Inherit = 0,
    /// Property value only: the default, fletcher4.
    On = 1,
    /// Data is not verified.
    Off = 2,
    /// SHA-256 embedded in labels and uberblocks.
    Label = 3,
    /// SHA-256 embedded in gang headers.
    GangHeader = 4,
    /// Embedded fletcher2 of old intent logs.
    Zilog = 5,
    /// fletcher2.
    Fletcher2 = 6,
    /// fletcher4, the default.
    Fletcher4 = 7,
    /// SHA-256.
    Sha256 = 8,
    /// Embedded fletcher4 of slim intent logs.
    Zilog2 = 9,
    /// Property value only.
    NoParity = 10,
    /// SHA-512/256.
    Sha512 = 11,
    /// Skein-512-256, keyed with the pool's salt.
    Skein = 12,
    /// Edon-R-512, keyed with the pool's salt.
    Edonr = 13,
    /// BLAKE3, keyed with the pool's salt.
    Blake3 = 14,
}

impl ChecksumKind {
    /// All kinds in on-disk order.
    pub const ALL: [ChecksumKind; 15] = {
        use ChecksumKind::*;
        [
            Inherit, On, Off, Label, GangHeader, Zilog, Fletcher2, Fletcher4, Sha256, Zilog2, NoParity,
            Sha512, Skein, Edonr, Blake3,
        ]
    };

    /// The kind with on-disk number `id`.
    ///
    /// # Errors
    /// [`Corrupt`] for a number that no OpenZFS writes.
    pub fn from_disk(id: u64) -> Result<ChecksumKind, Corrupt> {
        usize::try_from(id)
            .ok()
            .and_then(|i| Self::ALL.get(i).copied())
            .ok_or(Corrupt::new("checksum kind", id))
    }

    /// The on-disk number.
    #[must_use]
    pub const fn to_disk(self) -> u64 {
        self as u64
    }

    /// Whether the pool's 32-byte salt enters the computation.
    #[must_use]
    pub const fn is_salted(self) -> bool {
        matches!(self, ChecksumKind::Skein | ChecksumKind::Edonr | ChecksumKind::Blake3)
    }

    /// Whether two blocks with the same checksum of this kind may be taken to have the same content.
    #[must_use]
    pub const fn proves_equality(self) -> bool {
        use ChecksumKind::*;
        matches!(self, Sha256 | Sha512 | Skein | Edonr | Blake3)
    }

    /// The kind used for metadata of a dataset whose data uses `self` (fletcher4 unless strong enough).
    #[must_use]
    pub const fn for_metadata(self) -> ChecksumKind {
        use ChecksumKind::*;
        match self {
            Fletcher4 | Sha256 | Sha512 | Skein | Edonr | Blake3 => self,
            _ => Fletcher4,
        }
    }
}
