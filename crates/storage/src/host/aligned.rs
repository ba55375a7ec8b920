//! Buffers that start on a page, as direct I/O requires.

#![allow(unsafe_code, reason = "STYLE.md: aligned buffers are one of the two places for it")]

use std::ops::{Deref, DerefMut};
use std::slice;

/// Alignment of a buffer's first byte, in bytes.
pub(super) const ALIGNMENT: usize = 4096;

#[derive(Clone, Copy)]
#[repr(C, align(4096))]
struct Page([u8; ALIGNMENT]);

const _: () = assert!(size_of::<Page>() == ALIGNMENT && align_of::<Page>() == ALIGNMENT);

/// A byte buffer whose first byte lies on a [`ALIGNMENT`] border.
pub(super) struct AlignedBuf {
    pages: Vec<Page>,
    len: usize,
}

impl AlignedBuf {
    /// `len` zero bytes.
    pub(super) fn zeroed(len: usize) -> AlignedBuf {
        AlignedBuf { pages: vec![Page([0; ALIGNMENT]); len.div_ceil(ALIGNMENT)], len }
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
}
