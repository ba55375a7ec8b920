//! Sums of products in GF(2^8), 32 bytes at once: one shuffle looks up the products of 32 half bytes.
//!
//! Source: docs/format/02-blocks-checksums-compression.md §7.3. A product with a byte is the sum of those with its two halves.

use std::arch::x86_64::*;

use crate::galois::{FACTORS, Factor};

/// Bytes of one step.
const STEP: usize = 64;

/// Sets each output to the sum of all inputs, each multiplied with the output's factor for it. `false` if this machine lacks the
/// instructions: then nothing was done.
///
/// # Panics
/// If not all columns are of one length, or a factor is missing.
pub(crate) fn combine(factors: &[Vec<u8>], inputs: &[&[u8]], outputs: &mut [&mut [u8]]) -> bool {
    if !is_x86_feature_detected!("avx2") {
        return false;
    }
    let of_row = |row: &Vec<u8>| row.iter().map(|factor| &FACTORS[usize::from(*factor)]).collect();
    let factors: Vec<Vec<&Factor>> = factors.iter().map(of_row).collect();
    match (factors.as_slice(), outputs) {
        // SAFETY: the instructions are there.
        ([a], [x]) => unsafe { avx2([a], inputs, [x]) },
        // SAFETY: the instructions are there.
        ([a, b], [x, y]) => unsafe { avx2([a, b], inputs, [x, y]) },
        // SAFETY: the instructions are there.
        ([a, b, c], [x, y, z]) => unsafe { avx2([a, b, c], inputs, [x, y, z]) },
        _ => return false,
    }
    true
}

#[target_feature(enable = "avx2")]
fn avx2<const N: usize>(factors: [&[&Factor]; N], inputs: &[&[u8]], mut outputs: [&mut [u8]; N]) {
    let len = outputs.iter().map(|output| output.len()).min().unwrap_or(0);
    assert!(inputs.iter().all(|input| input.len() == len), "all columns are of one length");
    assert!(outputs.iter().all(|output| output.len() == len), "all columns are of one length");
    assert!(factors.iter().all(|row| row.len() == inputs.len()), "each input has a factor");
    let half = _mm256_set1_epi8(15);
    let whole = len - len % STEP;
    for at in (0..whole).step_by(STEP) {
        let mut sums = [[_mm256_setzero_si256(); 2]; N];
        for (i, input) in inputs.iter().enumerate() {
            let bytes = load(&input[at..at + STEP]);
            let low = bytes.map(|bytes| _mm256_and_si256(bytes, half));
            let high = bytes.map(|bytes| _mm256_and_si256(_mm256_srli_epi64::<4>(bytes), half));
            for (row, sum) in factors.iter().zip(&mut sums) {
                let (of_low, of_high) = (twice(&row[i].low), twice(&row[i].high));
                for part in 0..2 {
                    let products = _mm256_xor_si256(
                        _mm256_shuffle_epi8(of_low, low[part]),
                        _mm256_shuffle_epi8(of_high, high[part]),
                    );
                    sum[part] = _mm256_xor_si256(sum[part], products);
                }
            }
        }
        for (output, sum) in outputs.iter_mut().zip(sums) {
            store(&mut output[at..at + STEP], sum);
        }
    }
    for (row, output) in factors.iter().zip(&mut outputs) {
        for at in whole..len {
            output[at] = row.iter().zip(inputs).fold(0, |sum, (factor, input)| sum ^ factor.times(input[at]));
        }
    }
}

/// The bytes of one step.
#[target_feature(enable = "avx2")]
fn load(bytes: &[u8]) -> [__m256i; 2] {
    assert_eq!(bytes.len(), STEP);
    let (first, second) = bytes.split_at(STEP / 2);
    // SAFETY: each half is 32 readable bytes; the loads need no alignment.
    unsafe { [_mm256_loadu_si256(first.as_ptr().cast()), _mm256_loadu_si256(second.as_ptr().cast())] }
}

#[target_feature(enable = "avx2")]
fn store(bytes: &mut [u8], value: [__m256i; 2]) {
    assert_eq!(bytes.len(), STEP);
    let (first, second) = bytes.split_at_mut(STEP / 2);
    // SAFETY: each half is 32 writable bytes; the stores need no alignment.
    unsafe {
        _mm256_storeu_si256(first.as_mut_ptr().cast(), value[0]);
        _mm256_storeu_si256(second.as_mut_ptr().cast(), value[1]);
    }
}

/// The table in both halves of a register, each of which is shuffled by itself.
#[target_feature(enable = "avx2")]
fn twice(table: &[u8; 16]) -> __m256i {
    // SAFETY: `table` is 16 readable bytes; the load needs no alignment.
    _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(table.as_ptr().cast()) })
}
