//! The sums of fletcher2 and fletcher4 as plain loops: for any machine, and for what the vector forms leave over.
//!
//! Source: docs/format/02-blocks-checksums-compression.md §3.1.

use format::Checksum;

/// Continues fletcher2 from the sums `state`.
pub(crate) fn fletcher2_from(state: [u64; 4], data: &[u8], word: impl Fn([u8; 8]) -> u64) -> Checksum {
    let [mut a0, mut a1, mut b0, mut b1] = state;
    let (words, _) = data.as_chunks::<8>();
    let (pairs, _) = words.as_chunks::<2>();
    for pair in pairs {
        a0 = a0.wrapping_add(word(pair[0]));
        a1 = a1.wrapping_add(word(pair[1]));
        b0 = b0.wrapping_add(a0);
        b1 = b1.wrapping_add(a1);
    }
    Checksum([a0, a1, b0, b1])
}

/// Continues fletcher4 from the sums `state`.
pub(crate) fn fletcher4_from(state: [u64; 4], data: &[u8], word: impl Fn([u8; 4]) -> u32) -> Checksum {
    let [mut a, mut b, mut c, mut d] = state;
    let (words, _) = data.as_chunks::<4>();
    for &bytes in words {
        a = a.wrapping_add(word(bytes).into());
        b = b.wrapping_add(a);
        c = c.wrapping_add(b);
        d = d.wrapping_add(c);
    }
    Checksum([a, b, c, d])
}
