//! ZAP: keys to arrays of integers, in one block (micro) or many (fat).
//!
//! Everything here works on the bytes of single blocks; `dmu` reads and writes the blocks. Blocks are worked on in
//! little-endian order: [`swap`](crate::swap) turns a foreign one once, after reading.
//!
//! From:   verified blocks of a ZAP object.
//! To:     `dmu`.
//! Source: docs/format/04-zap.md.

pub mod cursor;
pub mod fat;
pub mod hash;
pub mod leaf;
pub mod micro;
pub mod name;
pub mod value;

pub use cursor::Position;
pub use leaf::{Leaf, LeafError};
pub use name::{NameError, normalise};
pub use value::{Key, Value};

use alloc::format;
use alloc::string::String;

use crate::{ByteOrder, Corrupt};

const MICRO_TYPE: u64 = 0x8000_0000_0000_0003;
const HEADER_TYPE: u64 = 0x8000_0000_0000_0001;
const LEAF_TYPE: u64 = 0x8000_0000_0000_0000;

/// The kind of a block of a ZAP object, by its first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZapKind {
    /// The one block of a micro ZAP.
    Micro,
    /// Block 0 of a fat ZAP.
    Fat,
    /// A leaf of a fat ZAP.
    Leaf,
}

/// The kind of `block`, and the byte order in which it was written. Blocks of external pointer tables have no mark and
/// are refused here.
///
/// # Errors
/// [`Corrupt`] when the first word is none of the three marks.
pub fn kind(block: &[u8]) -> Result<(ZapKind, ByteOrder), Corrupt> {
    if block.len() < 8 {
        return Err(Corrupt::new("ZAP block length", block.len() as u64));
    }
    for order in [ByteOrder::Little, ByteOrder::Big] {
        match order.word(block, 0) {
            MICRO_TYPE => return Ok((ZapKind::Micro, order)),
            HEADER_TYPE => return Ok((ZapKind::Fat, order)),
            LEAF_TYPE => return Ok((ZapKind::Leaf, order)),
            _ => {}
        }
    }
    Err(Corrupt::new("ZAP block type", ByteOrder::Little.word(block, 0)))
}

/// Turns a block into the other byte order, in place. A block without a mark is taken for part of a pointer
/// table. Names and leaf values are byte streams and stay as they are.
pub(crate) fn swap(block: &mut [u8]) {
    match kind(block) {
        Ok((ZapKind::Micro, _)) => micro::swap(block),
        Ok((ZapKind::Leaf, _)) => leaf::swap(block),
        _ => block.chunks_exact_mut(8).for_each(<[u8]>::reverse),
    }
}

/// The name of `number` in "int" ZAPs (deadlists, clones, the unlinked set): lower-case hex.
///
/// Source: docs/format/04-zap.md §4.
#[must_use]
pub fn int_key(number: u64) -> String {
    format!("{number:x}")
}

/// The number that [`int_key`] made `name` from.
///
/// # Errors
/// [`Corrupt`] if `name` is no number in this form.
pub fn parse_int_key(name: &[u8]) -> Result<u64, Corrupt> {
    let digits = core::str::from_utf8(name).ok().filter(|text| !text.starts_with('+'));
    let number = digits.and_then(|text| u64::from_str_radix(text, 16).ok());
    number.ok_or(Corrupt::new("hexadecimal ZAP key of length", name.len() as u64))
}

#[cfg(test)]
mod tests;
