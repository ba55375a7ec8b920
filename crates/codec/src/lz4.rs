//! LZ4 with ZFS's framing: a big-endian length, then one raw LZ4 block.
//!
//! Source: docs/format/02-blocks-checksums-compression.md §5.

use format::Compression;

use crate::CodecError;
use crate::simd::{lz4, lz4_encoder};

const HEADER: usize = 4;
const KIND: Compression = Compression::Lz4;

pub(crate) fn compress(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let (header, body) = dst.split_first_chunk_mut::<HEADER>()?;
    let used = lz4_encoder::encode(src, body)?;
    *header = u32::try_from(used).ok()?.to_be_bytes();
    Some(HEADER + used)
}

/// Whether LZ4 brings `src` into `scratch`, framing not counted; the early abort of zstd asks.
pub(crate) fn fits(src: &[u8], scratch: &mut [u8]) -> bool {
    lz4_encoder::encode(src, scratch).is_some()
}

pub(crate) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<(), CodecError> {
    let truncated = CodecError::Truncated { kind: KIND, available: src.len() };
    let (header, body) = src.split_first_chunk::<HEADER>().ok_or(truncated)?;
    let body = body.get(..u32::from_be_bytes(*header) as usize).ok_or(truncated)?;
    let found = lz4::decompress(body, dst)
        .ok_or(CodecError::Malformed { kind: KIND, what: "not an LZ4 block of this size" })?;
    if found != dst.len() {
        return Err(CodecError::WrongSize { kind: KIND, expected: dst.len(), found });
    }
    Ok(())
}
