//! How a pointer enters the authentication code of the block that holds it.

use format::crypt::MAC;
use format::{ByteOrder, blkptr};
use sha2::{Digest, Sha512};

/// Bytes of the authenticated form of a pointer.
const RECORD: usize = 32;
/// Bytes of it in the first version.
const RECORD_ZERO: usize = 24;

/// Word of a pointer with its properties, and the last two words of its checksum.
const PROPERTIES: usize = 6;
const MAC_WORDS: [usize; 2] = [14, 15];

const BYTE_ORDER: u64 = 1 << 63;
const DEDUP: u64 = 1 << 62;
const CHECKSUM: u64 = 0xff << 40;
const COMPRESSION: u64 = 0x7f << 32;
const PSIZE: u64 = 0xffff << 16;

/// Versions of the format of authentication codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MacVersion {
    /// The format before the first release; such pools are only read.
    Zero,
    /// Today's.
    One,
}

/// Appends to `out` the authenticated form of the pointer `raw`, which lies in a block of this byte order. It leaves
/// out the bits that a raw receive may change.
///
/// # Panics
/// If `raw` is shorter than a pointer.
pub(super) fn record(raw: &[u8], order: ByteOrder, version: MacVersion, out: &mut Vec<u8>) {
    let is_hole = order.word(raw, 0) == 0 && order.word(raw, 1) == 0;
    let whole = order.word(raw, PROPERTIES);
    let level = whole >> 56 & 0x1f;
    let properties = match version {
        MacVersion::Zero => whole & !(DEDUP | CHECKSUM | PSIZE),
        MacVersion::One if is_hole => 0,
        MacVersion::One if level == 0 => whole & !(DEDUP | CHECKSUM),
        MacVersion::One => whole & !(DEDUP | CHECKSUM | BYTE_ORDER | COMPRESSION | PSIZE),
    };
    out.extend_from_slice(&properties.to_le_bytes());
    // The code is a string of bytes in the byte order of the block's writer, which a bit of the pointer gives.
    let writer = if whole & BYTE_ORDER == 0 { ByteOrder::Big } else { ByteOrder::Little };
    let mut mac = [0; MAC];
    for (i, word) in MAC_WORDS.into_iter().enumerate() {
        writer.put_u64(&mut mac, 8 * i, order.word(raw, word));
    }
    out.extend_from_slice(&mac);
    if version == MacVersion::One {
        out.extend_from_slice(&[0; RECORD - RECORD_ZERO]);
    }
}

/// The authentication code of an indirect block, which needs no key: it covers the codes of all blocks below. `block` is
/// uncompressed; a rest shorter than a pointer is left out.
#[must_use]
pub fn indirect_mac(block: &[u8], order: ByteOrder, version: MacVersion) -> [u8; MAC] {
    let mut hash = Sha512::new();
    let mut bytes = Vec::with_capacity(RECORD);
    for pointer in block.chunks_exact(blkptr::SIZE) {
        bytes.clear();
        record(pointer, order, version, &mut bytes);
        hash.update(&bytes);
    }
    truncated(&hash.finalize())
}

/// The first bytes of a longer hash, as many as a pointer has room for.
pub(super) fn truncated(digest: &[u8]) -> [u8; MAC] {
    let mut mac = [0; MAC];
    mac.copy_from_slice(&digest[..MAC]);
    mac
}
