//! How unevenly frequent the bytes of a record are: what an entropy coder alone would save.

const PIECES: usize = 16;
const PIECE: usize = 256;

/// An upper estimate of the order-0 entropy of sixteen pieces of `src` (all of a short one), in 1/256 bits
/// per byte. Integers only, so that every machine decides alike.
pub(crate) fn sampled(src: &[u8]) -> u64 {
    let mut counts = [0u32; 256];
    let mut count = |bytes: &[u8]| bytes.iter().for_each(|&byte| counts[usize::from(byte)] += 1);
    let total = src.len().min(PIECES * PIECE);
    if src.len() <= total {
        count(src);
    } else {
        let step = (src.len() - PIECE) / (PIECES - 1);
        (0..PIECES).for_each(|piece| count(&src[piece * step..][..PIECE]));
    }
    let Ok(total @ 1..) = u32::try_from(total) else { return 0 };
    let known: u64 = counts.iter().filter(|&&n| n != 0).map(|&n| u64::from(n) * log2(n)).sum();
    log2(total).saturating_sub(known / u64::from(total))
}

/// log2 of `n` > 0 in units of 1/256. Between powers of two it follows a straight line, which is never above the curve.
fn log2(n: u32) -> u64 {
    let whole = n.ilog2();
    u64::from(whole) * 256 + ((u64::from(n) << 8 >> whole) - 256)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entropy_is_eight_bits_of_all_bytes_and_none_of_one() {
        let every: Vec<u8> = (0..1 << 17).map(|i| i as u8).collect();
        assert_eq!(sampled(&every), 8 * 256);
        assert_eq!(sampled(&[9; 100_000]), 0);
        assert_eq!(sampled(&[]), 0);
        assert_eq!(sampled(&[1, 2, 1, 2]), 256);
    }
}
