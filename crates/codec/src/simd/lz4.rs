//! Raw LZ4 blocks by the reference library, whose working memory is its stack frame.

use std::ffi::c_int;

/// Compresses `src` into `dst` as one raw block; `None` if it does not fit or is beyond LZ4's sizes.
pub(crate) fn compress(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let src_len = c_int::try_from(src.len()).ok()?;
    let dst_len = c_int::try_from(dst.len()).unwrap_or(c_int::MAX);
    // SAFETY: `src` is readable for `src_len` bytes and `dst` writable for `dst_len` bytes, both lengths
    // not beyond their slices; the borrow rules keep the two apart; the library keeps no pointer.
    let used = unsafe {
        lz4_sys::LZ4_compress_default(src.as_ptr().cast(), dst.as_mut_ptr().cast(), src_len, dst_len)
    };
    usize::try_from(used).ok().filter(|&used| used != 0)
}

/// Decodes the raw block `src` into `dst`; the bytes written, or `None` if it is damaged or too long.
pub(crate) fn decompress(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let src_len = c_int::try_from(src.len()).ok()?;
    let dst_len = c_int::try_from(dst.len()).ok()?;
    // SAFETY: as above; this decoder checks every read against `src_len` and every write against
    // `dst_len` for any input.
    let written = unsafe {
        lz4_sys::LZ4_decompress_safe(src.as_ptr().cast(), dst.as_mut_ptr().cast(), src_len, dst_len)
    };
    usize::try_from(written).ok()
}
