//! fletcher2 in two or four lanes of pairs, combined last as in [`super::fletcher4`].
//!
//! Source: docs/format/02-blocks-checksums-compression.md §3.1.

use std::arch::x86_64::*;

use format::Checksum;

use crate::sums::fletcher2_from;

/// fletcher2 of little-endian `data` by the widest instructions this machine has.
pub(crate) fn best(data: &[u8]) -> Checksum {
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the instructions are there.
        unsafe { avx512(data) }
    } else if is_x86_feature_detected!("avx2") {
        // SAFETY: the instructions are there.
        unsafe { avx2(data) }
    } else {
        fletcher2_from([0; 4], data, u64::from_le_bytes)
    }
}

/// The sums of `WORDS / 2` interleaved pairs as those of one sequence: lane j weighs n·r − j in b.
fn combine<const WORDS: usize>(a: [u64; WORDS], b: [u64; WORDS]) -> [u64; 4] {
    let lanes = WORDS as u64 / 2;
    let mut total = [0u64; 4];
    for word in 0..WORDS {
        let lane = word as u64 / 2;
        let weighted = lanes.wrapping_mul(b[word]).wrapping_sub(lane.wrapping_mul(a[word]));
        let (sum, sum_of_sums) = (word % 2, 2 + word % 2);
        total[sum] = total[sum].wrapping_add(a[word]);
        total[sum_of_sums] = total[sum_of_sums].wrapping_add(weighted);
    }
    total
}

/// Computes the checksum in two lanes.
#[target_feature(enable = "avx2")]
fn avx2(data: &[u8]) -> Checksum {
    let (steps, rest) = data.as_chunks::<32>();
    let mut sums = [_mm256_setzero_si256(); 2];
    for step in steps {
        // SAFETY: `step` is 32 readable bytes; the load needs no alignment.
        let words = unsafe { _mm256_loadu_si256(step.as_ptr().cast()) };
        sums[0] = _mm256_add_epi64(sums[0], words);
        sums[1] = _mm256_add_epi64(sums[1], sums[0]);
    }
    let [a, b] = sums.map(|sum| {
        let mut lanes = [0u64; 4];
        // SAFETY: `lanes` is 32 writable bytes; the store needs no alignment.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), sum) };
        lanes
    });
    fletcher2_from(combine(a, b), rest, u64::from_le_bytes)
}

/// Four lanes.
#[target_feature(enable = "avx512f")]
fn avx512(data: &[u8]) -> Checksum {
    let (steps, rest) = data.as_chunks::<64>();
    let mut sums = [_mm512_setzero_si512(); 2];
    for step in steps {
        // SAFETY: `step` is 64 readable bytes; the load needs no alignment.
        let words = unsafe { _mm512_loadu_si512(step.as_ptr().cast()) };
        sums[0] = _mm512_add_epi64(sums[0], words);
        sums[1] = _mm512_add_epi64(sums[1], sums[0]);
    }
    let [a, b] = sums.map(|sum| {
        let mut lanes = [0u64; 8];
        // SAFETY: `lanes` is 64 writable bytes; the store needs no alignment.
        unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), sum) };
        lanes
    });
    fletcher2_from(combine(a, b), rest, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_width_equals_the_plain_loop(data in vec(any::<u8>(), 0..3000)) {
            let plain = fletcher2_from([0; 4], &data, u64::from_le_bytes);
            if is_x86_feature_detected!("avx2") {
                // SAFETY: the instructions are there.
                prop_assert_eq!(unsafe { avx2(&data) }, plain);
            }
            if is_x86_feature_detected!("avx512f") {
                // SAFETY: the instructions are there.
                prop_assert_eq!(unsafe { avx512(&data) }, plain);
            }
            prop_assert_eq!(best(&data), plain);
        }
    }
}
