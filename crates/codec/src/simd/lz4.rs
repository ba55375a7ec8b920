//! Decoding raw LZ4 blocks, by the reference library.

use std::ffi::c_int;

/// Decodes the raw block `src` into `dst`; the bytes written, or `None` if it is damaged or too long.
pub(crate) fn decompress(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let src_len = c_int::try_from(src.len()).ok()?;
    let dst_len = c_int::try_from(dst.len()).ok()?;
    // SAFETY: `src` is readable for `src_len` bytes and `dst` writable for `dst_len` bytes; the borrow rules
    // keep the two apart. For any input this decoder checks every read and write against these lengths, and
    // it keeps no pointer.
    let written = unsafe {
        lz4_sys::LZ4_decompress_safe(src.as_ptr().cast(), dst.as_mut_ptr().cast(), src_len, dst_len)
    };
    usize::try_from(written).ok()
}
