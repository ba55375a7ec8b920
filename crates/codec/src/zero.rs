//! Is a block all zeros? Such a block becomes a hole.
//!
//! Source: docs/format/02-blocks-checksums-compression.md §4.2 step 1.

/// Bytes looked at between two decisions: a few vector loads, so that data ends the search at once.
const STRIDE: usize = 256;

/// Whether every byte of `data` is zero. An empty slice is.
#[must_use]
pub fn is_zero(data: &[u8]) -> bool {
    // Most blocks that are not zero have other bytes at their beginning or end.
    if data.first().is_some_and(|&b| b != 0) || data.last().is_some_and(|&b| b != 0) {
        return false;
    }
    let (chunks, rest) = data.as_chunks::<STRIDE>();
    chunks.iter().all(|chunk| chunk.iter().fold(0, |seen, &byte| seen | byte) == 0)
        && rest.iter().all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_set_bit_anywhere_is_found() {
        for len in [1, 7, 255, 256, 257, 512, 1300] {
            let mut data = vec![0; len];
            assert!(is_zero(&data));
            for at in 0..len {
                data[at] = 0x40;
                assert!(!is_zero(&data), "{at} of {len}");
                data[at] = 0;
            }
        }
    }

    #[test]
    fn nothing_is_zero() {
        assert!(is_zero(&[]));
    }
}
