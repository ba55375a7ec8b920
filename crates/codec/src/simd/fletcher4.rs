//! fletcher4 in four or eight lanes: lane j sums the words j, j + n, j + 2n, …; the lanes are combined last.
//!
//! Source: docs/format/02-blocks-checksums-compression.md §3.1. There are m steps. The word of lane j at r
//!         steps from the end (r ≥ 1) has weight 1 in a, x in b, x(x+1)/2 in c and x(x+1)(x+2)/6 in d. Here
//!         x = n·r − j. The lanes' own sums weigh it by the same polynomials of r, so each total is a fixed
//!         combination of them.

use std::arch::x86_64::*;

use format::Checksum;

use crate::sums::fletcher4_from;

/// fletcher4 of little-endian `data` by the widest instructions this machine has.
pub(crate) fn best(data: &[u8]) -> Checksum {
    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the instructions are there.
        unsafe { avx512(data) }
    } else if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has these instructions.
        unsafe { avx2(data) }
    } else {
        fletcher4_from([0; 4], data, u32::from_le_bytes)
    }
}

/// The sums a, b, c, d of `N` interleaved lanes as those of one sequence.
fn combine<const N: usize>(a: [u64; N], b: [u64; N], c: [u64; N], d: [u64; N]) -> [u64; 4] {
    let n = N as i64;
    let mut total = [0u64; 4];
    for j in 0..N {
        let i = j as i64;
        // Weights of the lane's sums; the divisions are exact.
        let c_of = [i * (i - 1) / 2, (n * (1 - 2 * i) - n * n) / 2, n * n];
        let d_of = [
            -i * (i - 1) * (i - 2) / 6,
            (n * n * n - 3 * n * n * (1 - i) + 3 * n * i * i - 6 * n * i + 2 * n) / 6,
            n * n * (1 - i) - n * n * n,
            n * n * n,
        ];
        let times = |weight: i64, sum: u64| (weight as u64).wrapping_mul(sum);
        let add = |slot: &mut u64, value: u64| *slot = slot.wrapping_add(value);
        add(&mut total[0], a[j]);
        add(&mut total[1], times(n, b[j]).wrapping_sub(times(i, a[j])));
        add(&mut total[2], times(c_of[0], a[j]));
        add(&mut total[2], times(c_of[1], b[j]));
        add(&mut total[2], times(c_of[2], c[j]));
        add(&mut total[3], times(d_of[0], a[j]));
        add(&mut total[3], times(d_of[1], b[j]));
        add(&mut total[3], times(d_of[2], c[j]));
        add(&mut total[3], times(d_of[3], d[j]));
    }
    total
}

/// Four lanes.
#[target_feature(enable = "avx2")]
fn avx2(data: &[u8]) -> Checksum {
    let (steps, rest) = data.as_chunks::<16>();
    let mut sums = [_mm256_setzero_si256(); 4];
    for step in steps {
        // SAFETY: `step` is 16 readable bytes; the load needs no alignment.
        let words = _mm256_cvtepu32_epi64(unsafe { _mm_loadu_si128(step.as_ptr().cast()) });
        sums[0] = _mm256_add_epi64(sums[0], words);
        sums[1] = _mm256_add_epi64(sums[1], sums[0]);
        sums[2] = _mm256_add_epi64(sums[2], sums[1]);
        sums[3] = _mm256_add_epi64(sums[3], sums[2]);
    }
    let [a, b, c, d] = sums.map(|sum| {
        let mut lanes = [0u64; 4];
        // SAFETY: `lanes` is 32 writable bytes; the store needs no alignment.
        unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), sum) };
        lanes
    });
    fletcher4_from(combine(a, b, c, d), rest, u32::from_le_bytes)
}

/// Eight lanes.
#[target_feature(enable = "avx512f")]
fn avx512(data: &[u8]) -> Checksum {
    let (steps, rest) = data.as_chunks::<32>();
    let mut sums = [_mm512_setzero_si512(); 4];
    for step in steps {
        // SAFETY: `step` is 32 readable bytes; the load needs no alignment.
        let words = _mm512_cvtepu32_epi64(unsafe { _mm256_loadu_si256(step.as_ptr().cast()) });
        sums[0] = _mm512_add_epi64(sums[0], words);
        sums[1] = _mm512_add_epi64(sums[1], sums[0]);
        sums[2] = _mm512_add_epi64(sums[2], sums[1]);
        sums[3] = _mm512_add_epi64(sums[3], sums[2]);
    }
    let [a, b, c, d] = sums.map(|sum| {
        let mut lanes = [0u64; 8];
        // SAFETY: `lanes` is 64 writable bytes; the store needs no alignment.
        unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), sum) };
        lanes
    });
    fletcher4_from(combine(a, b, c, d), rest, u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_width_equals_the_plain_loop(data in vec(any::<u8>(), 0..3000)) {
            let plain = fletcher4_from([0; 4], &data, u32::from_le_bytes);
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

    #[test]
    fn sums_wrap_alike_on_a_large_block_of_ones() {
        let data = vec![0xff; 16 << 20];
        assert_eq!(best(&data), fletcher4_from([0; 4], &data, u32::from_le_bytes));
    }
}
