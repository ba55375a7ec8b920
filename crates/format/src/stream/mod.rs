//! Send streams: datasets as a row of records, each perhaps followed by a payload.
//!
//! From:   a pipe or file, 312 bytes at a time.
//! To:     `pool`, which writes such records about a snapshot, or makes a dataset of them.
//! Source: docs/format/09-send-stream.md.

use alloc::vec::Vec;

use crate::{ByteOrder, Checksum, Corrupt, Guid};

mod keydata;
mod records;

/// In the list of a stream: guids of the snapshots by which it is redacted.
pub const REDACT_SNAPS: &str = "redact_snaps";
/// In the list of a stream: guids of the snapshots by which its source may be redacted.
pub const REDACT_FROM_SNAPS: &str = "redact_from_snaps";

pub use keydata::{KEY_DATA, KeyData, MetaForm};
pub use records::{
    Begin, Crypt, Embedded, End, Free, FreeObjects, Object, ObjectRange, Record, Spill, Write, WriteByRef,
};

/// Bytes of a record without its payload.
pub const RECORD: usize = 312;
/// Where the running checksum lies in every record but BEGIN.
pub const CHECKSUM_AT: usize = 0x118;
/// First word of every stream, in the sender's byte order.
pub const MAGIC: u64 = 0x2_f5ba_cbac;
/// Largest payload of a BEGIN record that is read, in bytes.
pub const BEGIN_PAYLOAD_MAX: u64 = 256 << 20;
/// Longest name in a BEGIN record, in bytes; a NUL follows.
pub const NAME_MAX: usize = 255;

/// The features of a stream: bits of [`Begin::features`].
pub mod feature {
    /// WRITE_BYREF records; obsolete.
    pub const DEDUP: u64 = 1 << 0;
    /// Obsolete.
    pub const DEDUP_PROPS: u64 = 1 << 1;
    /// A file system of version 5 or later.
    pub const SA_SPILL: u64 = 1 << 2;
    /// WRITE_EMBEDDED records.
    pub const EMBED_DATA: u64 = 1 << 16;
    /// Payloads compressed by lz4.
    pub const LZ4: u64 = 1 << 17;
    /// Blocks above 128 KiB.
    pub const LARGE_BLOCKS: u64 = 1 << 19;
    /// Begins in the middle.
    pub const RESUMING: u64 = 1 << 20;
    /// REDACT records.
    pub const REDACTED: u64 = 1 << 21;
    /// Payloads as they were on disk.
    pub const COMPRESSED: u64 = 1 << 22;
    /// Dnodes of several slots.
    pub const LARGE_DNODE: u64 = 1 << 23;
    /// Ciphertext.
    pub const RAW: u64 = 1 << 24;
    /// Payloads compressed by zstd.
    pub const ZSTD: u64 = 1 << 25;
    /// Holds in the outer list.
    pub const HOLDS: u64 = 1 << 26;
    /// The receiver may go over to large blocks.
    pub const SWITCH_TO_LARGE_BLOCKS: u64 = 1 << 27;
    /// Names longer than 255 bytes.
    pub const LONGNAME: u64 = 1 << 28;
    /// Micro ZAPs above 128 KiB.
    pub const LARGE_MICROZAP: u64 = 1 << 29;
}

/// Bits of [`Begin::flags`].
pub mod flag {
    /// Incremental from the origin of a clone.
    pub const CLONE: u32 = 1;
    /// Names are found regardless of case.
    pub const CASE_INSENSITIVE: u32 = 2;
    /// A full stream also has records of free ranges.
    pub const FREE_RECORDS: u32 = 4;
    /// The spill flags of OBJECT and SPILL records are valid.
    pub const SPILL_BLOCK: u32 = 8;
}

/// [`Object::flags`], [`Spill::flags`]: ciphertext of a machine of the other byte order.
pub const RAW_BYTESWAP: u8 = 2;
/// [`Object::flags`]: the object has a spill block.
pub const OBJECT_SPILL: u8 = 4;
/// [`Spill::flags`]: sent although it did not change.
pub const SPILL_UNMODIFIED: u8 = 4;
/// [`Write::flags`]: the checksum in the key identifies the content.
pub const CHECKSUM_DEDUP: u8 = 1;
/// [`Free::length`]: to the end of the object.
pub const TO_END: u64 = u64::MAX;

/// The byte order of a stream, from its first record.
///
/// # Errors
/// [`Corrupt`] when it begins with something else.
pub fn order_of(raw: &[u8; RECORD]) -> Result<ByteOrder, Corrupt> {
    let found = ByteOrder::Little.u64(raw, 8);
    match [ByteOrder::Little, ByteOrder::Big].into_iter().find(|order| order.u64(raw, 8) == MAGIC) {
        Some(order) if order.u32(raw, 0) == 0 => Ok(order),
        _ => Err(Corrupt::new("stream magic", found)),
    }
}

/// The running checksum that a record carries; zeros where it has none.
#[must_use]
pub fn checksum(raw: &[u8; RECORD], order: ByteOrder) -> Checksum {
    Checksum([0, 1, 2, 3].map(|i| order.u64(raw, CHECKSUM_AT + 8 * i)))
}

/// Stores the running checksum in an encoded record.
pub fn put_checksum(raw: &mut [u8; RECORD], checksum: &Checksum) {
    for (i, word) in checksum.0.into_iter().enumerate() {
        ByteOrder::Little.put_u64(raw, CHECKSUM_AT + 8 * i, word);
    }
}

/// Reads fields of a record.
struct Fields<'a> {
    raw: &'a [u8; RECORD],
    order: ByteOrder,
}

impl Fields<'_> {
    fn u64(&self, at: usize) -> u64 {
        self.order.u64(self.raw, at)
    }

    fn u32(&self, at: usize) -> u32 {
        self.order.u32(self.raw, at)
    }

    fn guid(&self, at: usize) -> Guid {
        Guid(self.u64(at))
    }

    fn bytes<const N: usize>(&self, at: usize) -> [u8; N] {
        self.raw[at..at + N].try_into().expect("as many bytes as were sliced")
    }
}

/// Rounds a payload up to whole words.
const fn padded(len: u64) -> u64 {
    len.saturating_add(7) & !7
}

fn name_until_nul(raw: &[u8]) -> Vec<u8> {
    raw.iter().copied().take_while(|&byte| byte != 0).collect()
}
