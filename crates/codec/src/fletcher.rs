//! fletcher2 and fletcher4: sums of sums, by the vector forms in `simd` or the plain loops in `sums`.
//!
//! Source: docs/format/02-blocks-checksums-compression.md §3.1.

use format::stream::{CHECKSUM_AT, RECORD, put_checksum};
use format::{ByteOrder, Checksum};

use crate::sums::{fletcher2_from, fletcher4_from};

/// fletcher2 of `data` as pairs of 64-bit words in `order`; bytes after the last whole pair don't count.
pub(crate) fn fletcher2(data: &[u8], order: ByteOrder) -> Checksum {
    match order {
        #[cfg(target_arch = "x86_64")]
        ByteOrder::Little => crate::simd::fletcher2::best(data),
        #[cfg(not(target_arch = "x86_64"))]
        ByteOrder::Little => fletcher2_from([0; 4], data, u64::from_le_bytes),
        ByteOrder::Big => fletcher2_from([0; 4], data, u64::from_be_bytes),
    }
}

/// fletcher4 of `data` as 32-bit words in `order`; bytes after the last whole word don't count.
pub(crate) fn fletcher4(data: &[u8], order: ByteOrder) -> Checksum {
    match order {
        #[cfg(target_arch = "x86_64")]
        ByteOrder::Little => crate::simd::fletcher4::best(data),
        #[cfg(not(target_arch = "x86_64"))]
        ByteOrder::Little => fletcher4_from([0; 4], data, u32::from_le_bytes),
        ByteOrder::Big => fletcher4_from([0; 4], data, u32::from_be_bytes),
    }
}

/// fletcher4 of bytes that come piece by piece: what a send stream carries along.
///
/// Pieces are whole 32-bit words.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunningFletcher4 {
    sums: [u64; 4],
    order: ByteOrder,
}

impl RunningFletcher4 {
    /// Before the first byte of a stream of byte order `order`.
    #[must_use]
    pub const fn new(order: ByteOrder) -> RunningFletcher4 {
        RunningFletcher4 { sums: [0; 4], order }
    }

    /// The checksum of all bytes so far.
    #[must_use]
    pub const fn sum(&self) -> Checksum {
        Checksum(self.sums)
    }

    /// Adds a piece; bytes after its last whole word don't count.
    pub fn add(&mut self, data: &[u8]) {
        // Sums over the piece alone, then what the sums before it contribute: after n more words the first is
        // counted n times in the second, n(n+1)/2 times in the third, n(n+1)(n+2)/6 times in the fourth.
        let Checksum([a, b, c, d]) = fletcher4(data, self.order);
        let n = (data.len() / 4) as u128;
        let (once, twice, thrice) = (n as u64, (n * (n + 1) / 2) as u64, (n * (n + 1) * (n + 2) / 6) as u64);
        let [sa, sb, sc, sd] = self.sums;
        let times = u64::wrapping_mul;
        let sum = |terms: [u64; 4]| terms.into_iter().fold(0, u64::wrapping_add);
        self.sums = [
            sa.wrapping_add(a),
            sum([sb, times(once, sa), b, 0]),
            sum([sc, times(once, sb), times(twice, sa), c]),
            sum([sd, times(once, sc), times(twice, sb), times(thrice, sa)]).wrapping_add(d),
        ];
    }

    /// Adds a record of a send stream and what follows it, after the sum of all before it was put into the record. BEGIN
    /// carries no sum: its bytes are added as they are.
    ///
    /// Source: docs/format/09-send-stream.md §1.
    pub fn seal(&mut self, raw: &mut [u8; RECORD], payload: &[u8]) {
        self.add(&raw[..CHECKSUM_AT]);
        put_checksum(raw, &self.sum());
        self.add(&raw[CHECKSUM_AT..]);
        self.add(payload);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_sum_up_to_the_whole(words in prop::collection::vec(any::<u32>(), 0..3000), cuts in prop::collection::vec(0usize..3000, 0..5)) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            for order in [ByteOrder::Little, ByteOrder::Big] {
                let mut cuts: Vec<usize> = cuts.iter().map(|cut| (cut * 4).min(bytes.len())).collect();
                cuts.sort_unstable();
                let mut running = RunningFletcher4::new(order);
                let mut from = 0;
                for cut in cuts.into_iter().chain([bytes.len()]) {
                    running.add(&bytes[from..cut]);
                    from = cut;
                }
                prop_assert_eq!(running.sum(), fletcher4(&bytes, order));
            }
        }
    }
}
