//! zle: runs of zeros, everything else as it is.
//!
//! Source: docs/format/02-blocks-checksums-compression.md §5.2.

use format::Compression;

use crate::CodecError;

const KIND: Compression = Compression::Zle;
/// Control bytes below this announce literals, the others zeros.
const LITERALS_MAX: usize = 64;
const ZEROS_MAX: usize = 256 - LITERALS_MAX;

pub(crate) fn compress(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let mut rest = src;
    let mut out = 0;
    while let Some(&first) = rest.first() {
        let control = dst.get_mut(out)?;
        out += 1;
        if first == 0 {
            let run = zeros(&rest[..rest.len().min(ZEROS_MAX)]);
            *control = (LITERALS_MAX + run - 1) as u8;
            rest = &rest[run..];
        } else {
            let run = literals(rest);
            *control = (run - 1) as u8;
            dst.get_mut(out..out + run)?.copy_from_slice(&rest[..run]);
            out += run;
            rest = &rest[run..];
        }
    }
    Some(out)
}

/// How many zeros `data` begins with.
fn zeros(data: &[u8]) -> usize {
    let (words, _) = data.as_chunks::<8>();
    let mut run = 0;
    for word in words {
        let word = u64::from_le_bytes(*word);
        if word != 0 {
            return run + (word.trailing_zeros() / 8) as usize;
        }
        run += 8;
    }
    run + data[run..].iter().take_while(|&&byte| byte == 0).count()
}

/// How many literals `data` begins with: up to two zeros in a row (one alone costs as much either way).
fn literals(data: &[u8]) -> usize {
    let limit = data.len().min(LITERALS_MAX);
    let mut run = 0;
    // A byte of (word | word one further) is zero exactly where two zeros begin.
    while run + 9 <= data.len() && run < limit {
        let here = u64::from_le_bytes(*data[run..].first_chunk().expect("nine bytes are left"));
        let next = u64::from_le_bytes(*data[run + 1..].first_chunk().expect("eight bytes are left"));
        let either = here | next;
        let zero_bytes = either.wrapping_sub(0x0101_0101_0101_0101) & !either & 0x8080_8080_8080_8080;
        if zero_bytes != 0 {
            return limit.min(run + (zero_bytes.trailing_zeros() / 8) as usize);
        }
        run += 8;
    }
    while run < limit && data[run..].iter().take(2).any(|&byte| byte != 0) {
        run += 1;
    }
    run.min(limit)
}

pub(crate) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<(), CodecError> {
    let truncated = CodecError::Truncated { kind: KIND, available: src.len() };
    let (mut at, mut out) = (0, 0);
    while out < dst.len() {
        let control = usize::from(*src.get(at).ok_or(truncated)?);
        at += 1;
        let left = &mut dst[out..];
        if control < LITERALS_MAX {
            let run = (control + 1).min(left.len());
            if let (Some(to), Some(from)) = (left.first_chunk_mut::<64>(), src[at..].first_chunk::<64>()) {
                // A full copy costs less than an exact one; what is too much is overwritten next.
                *to = *from;
            } else {
                left[..run].copy_from_slice(src.get(at..at + run).ok_or(truncated)?);
            }
            at += run;
            out += run;
        } else {
            let run = (control + 1 - LITERALS_MAX).min(left.len());
            left[..run].fill(0);
            out += run;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(src: &[u8]) -> Vec<u8> {
        let mut dst = vec![0; 2 * src.len() + 2];
        let used = compress(src, &mut dst).expect("roomy");
        dst.truncate(used);
        dst
    }

    #[test]
    fn runs_are_counted_from_one() {
        assert_eq!(packed(&[0]), [64]);
        assert_eq!(packed(&[0; 192]), [255]);
        assert_eq!(packed(&[0; 193]), [255, 64]);
        assert_eq!(packed(&[9]), [0, 9]);
        assert_eq!(packed(&[9; 64])[0], 63);
        assert_eq!(packed(&[9; 65])[65..], [0, 9]);
    }

    #[test]
    fn a_single_zero_stays_among_literals_and_two_end_them() {
        assert_eq!(packed(&[1, 0, 2]), [2, 1, 0, 2]);
        assert_eq!(packed(&[1, 0, 0, 2]), [0, 1, 65, 0, 2]);
        assert_eq!(packed(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0, 3]), [8, 1, 2, 3, 4, 5, 6, 7, 8, 9, 65, 0, 3]);
    }

    #[test]
    fn a_literal_run_ends_with_its_sixty_four_bytes() {
        for zeros_at in 60..70 {
            let mut data = [5; 90];
            data[zeros_at..zeros_at + 3].fill(0);
            let payload = packed(&data);
            assert_eq!(usize::from(payload[0]) + 1, zeros_at.min(64));
            let mut back = [1; 90];
            assert_eq!(decompress(&payload, &mut back), Ok(()));
            assert_eq!(back, data);
        }
    }

    #[test]
    fn literals_that_go_beyond_the_input_are_refused() {
        for missing in 1..=3 {
            let payload = [3, 1, 2, 3, 4];
            let result = decompress(&payload[..5 - missing], &mut [0; 4]);
            assert!(matches!(result, Err(CodecError::Truncated { .. })));
        }
    }
}
