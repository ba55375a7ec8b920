//! Buffers that start on a page, as direct I/O wants them and DMA likes them.

#![allow(unsafe_code, reason = "STYLE.md: aligned buffers are one of the two places for it")]

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::slice;

/// Alignment of a buffer's first byte, in bytes.
pub const ALIGNMENT: usize = 4096;

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Page([u8; ALIGNMENT]);

const _: () = assert!(size_of::<Page>() == ALIGNMENT && align_of::<Page>() == ALIGNMENT);

/// A byte buffer whose first byte lies on a [`ALIGNMENT`] border; its spare room fills whole pages.
#[derive(Clone, Default)]
pub struct AlignedBuf {
    pages: Vec<Page>,
    len: usize,
}

impl AlignedBuf {
    /// `len` zero bytes.
    #[must_use]
    pub fn zeroed(len: usize) -> AlignedBuf {
        AlignedBuf { pages: vec![Page([0; ALIGNMENT]); len.div_ceil(ALIGNMENT)], len }
    }

    /// Changes the length, keeping what fits; memory is kept for reuse. Bytes that appear are unspecified
    /// (zeros, or what the buffer held before it was made shorter).
    pub fn resize(&mut self, len: usize) {
        let page_count = len.div_ceil(ALIGNMENT);
        if page_count > self.pages.len() {
            self.pages.resize(page_count, Page([0; ALIGNMENT]));
        }
        self.len = len;
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        assert!(self.len <= self.pages.len() * ALIGNMENT, "the length stays within the pages");
        // SAFETY: `pages` owns at least `len` initialised bytes without padding (Page is its array, checked
        // above), and `&self` keeps them from changing.
        unsafe { slice::from_raw_parts(self.pages.as_ptr().cast(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        assert!(self.len <= self.pages.len() * ALIGNMENT, "the length stays within the pages");
        // SAFETY: `pages` owns at least `len` initialised bytes without padding, any byte is a valid value of
        // them, and `&mut self` makes this the only view.
        unsafe { slice::from_raw_parts_mut(self.pages.as_mut_ptr().cast(), self.len) }
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_lies_on_a_page_and_all_bytes_can_be_used() {
        for len in [0, 1, ALIGNMENT - 1, ALIGNMENT, ALIGNMENT + 1, 3 * ALIGNMENT] {
            let mut buf = AlignedBuf::zeroed(len);
            assert_eq!(buf.as_ptr().align_offset(ALIGNMENT), 0);
            assert_eq!(&buf[..], &vec![0; len][..]);
            buf.fill(0xa5);
            assert_eq!(&buf[..], &vec![0xa5; len][..]);
        }
    }

    #[test]
    fn resizing_keeps_what_fits() {
        let mut buf = AlignedBuf::zeroed(10);
        buf.copy_from_slice(b"0123456789");
        buf.resize(2 * ALIGNMENT);
        assert_eq!((&buf[..10], buf.len()), (&b"0123456789"[..], 2 * ALIGNMENT));
        buf.resize(4);
        assert_eq!(&buf[..], b"0123");
    }
}
