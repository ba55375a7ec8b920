//! Blocks of encrypted datasets that are moved from pool to pool as they lie on the disk, without their keys.
//!
//! From:   raw streams.
//! To:     the encoding of records, which only adds a checksum.

use format::Compression;
use format::crypt::{MAC, Sealing};

/// A block of an encrypted dataset that came as it lay on another pool's disks, and lies so on these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsStored {
    /// Bytes when it is opened and decompressed.
    pub lsize: u64,
    /// How the bytes are framed below the seal.
    pub compression: Compression,
    /// The parameters of its encryption; `None` for a block that is only authenticated.
    pub sealing: Option<Sealing>,
    /// Its authentication code.
    pub mac: [u8; MAC],
}
