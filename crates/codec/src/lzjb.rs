//! lzjb: groups of eight literals or short matches under a control byte.
//!
//! Source: docs/format/02-blocks-checksums-compression.md §5.1.

use format::Compression;

use crate::CodecError;

const KIND: Compression = Compression::Lzjb;
const MATCH_MIN: usize = 3;
const MATCH_MAX: usize = 66;
/// Distances are 1 to 1023; the same number masks positions.
const DISTANCE_MASK: usize = 0x3ff;
const SLOTS: usize = 1024;
/// Any odd number would do; this one comes closest to OpenZFS's ratios, within 0.5 % on all sample data.
const HASH: u32 = 0xa40e_ad57;
/// A control byte and eight matches.
const GROUP_MAX: usize = 17;

fn load<const N: usize>(data: &[u8], at: usize) -> [u8; N] {
    *data[at..].first_chunk().expect("callers leave N bytes")
}

fn store<const N: usize>(data: &mut [u8], at: usize, value: [u8; N]) {
    *data[at..].first_chunk_mut().expect("callers leave N bytes") = value;
}

pub(crate) fn compress(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    // Low bits of the position where each hash was last seen: enough, since distances are short.
    let mut seen = [0u16; SLOTS];
    let (mut at, mut out) = (0, 0);
    while at < src.len() {
        let mut group = [0u8; GROUP_MAX + 1];
        let mut used = 1;
        for bit in 0..8 {
            if at >= src.len() {
                break;
            }
            let Some(next) = src[at..].first_chunk::<4>() else {
                group[used] = src[at];
                used += 1;
                at += 1;
                continue;
            };
            let key = u32::from_le_bytes(*next) << 8;
            let slot = (key.wrapping_mul(HASH) >> 22) as usize;
            let distance = at.wrapping_sub(usize::from(seen[slot])) & DISTANCE_MASK;
            seen[slot] = at as u16;
            if distance != 0 && distance <= at && u32::from_le_bytes(load(src, at - distance)) << 8 == key {
                let length = match_length(src, at, distance);
                let code = ((length - MATCH_MIN) << 10 | distance) as u16;
                store(&mut group, used, code.to_be_bytes());
                group[0] |= 1 << bit;
                used += 2;
                at += length;
            } else {
                group[used] = next[0];
                used += 1;
                at += 1;
            }
        }
        dst.get_mut(out..out + used)?.copy_from_slice(&group[..used]);
        out += used;
    }
    Some(out)
}

/// How many bytes at `at` equal those `distance` before, at most [`MATCH_MAX`]; three are known to.
fn match_length(src: &[u8], at: usize, distance: usize) -> usize {
    let limit = MATCH_MAX.min(src.len() - at);
    let mut length = MATCH_MIN;
    while length + 8 <= limit {
        let here = u64::from_le_bytes(load(src, at + length));
        let there = u64::from_le_bytes(load(src, at + length - distance));
        if here != there {
            return length + ((here ^ there).trailing_zeros() / 8) as usize;
        }
        length += 8;
    }
    while length < limit && src[at + length] == src[at + length - distance] {
        length += 1;
    }
    length
}

/// Bytes that a group's sixteen payload bytes can become, with room for the last wide store.
const GROUP_OUT_MAX: usize = 8 * MATCH_MAX + 16;

pub(crate) fn decompress(src: &[u8], dst: &mut [u8]) -> Result<(), CodecError> {
    let (mut at, mut out) = (0, 0);
    // Away from both ends nothing has to be checked but distances, and copies may write too far.
    while at + GROUP_MAX + 8 <= src.len() && out + GROUP_OUT_MAX <= dst.len() {
        (at, out) = wide_group(src, at, dst, out)?;
    }
    let truncated = CodecError::Truncated { kind: KIND, available: src.len() };
    while out < dst.len() {
        let control = *src.get(at).ok_or(truncated)?;
        at += 1;
        for bit in 0..8 {
            if out == dst.len() {
                break;
            }
            if control >> bit & 1 == 0 {
                dst[out] = *src.get(at).ok_or(truncated)?;
                at += 1;
                out += 1;
            } else {
                let code = u16::from_be_bytes(*src[at..].first_chunk().ok_or(truncated)?);
                at += 2;
                let (length, distance) = split(code, out)?;
                // A last match may reach beyond the block; the encoder never saw more than the block.
                for _ in 0..length.min(dst.len() - out) {
                    dst[out] = dst[out - distance];
                    out += 1;
                }
            }
        }
    }
    Ok(())
}

/// Length and distance of a match at output position `out`.
fn split(code: u16, out: usize) -> Result<(usize, usize), CodecError> {
    let distance = usize::from(code) & DISTANCE_MASK;
    if distance == 0 || distance > out {
        return Err(CodecError::Malformed { kind: KIND, what: "a match from before the block" });
    }
    Ok((usize::from(code >> 10) + MATCH_MIN, distance))
}

/// Decodes one group where at least [`GROUP_MAX`] + 8 bytes of input and [`GROUP_OUT_MAX`] of output are left.
fn wide_group(
    src: &[u8],
    mut at: usize,
    dst: &mut [u8],
    mut out: usize,
) -> Result<(usize, usize), CodecError> {
    let mut control = u32::from(src[at]) | 0x100;
    at += 1;
    let mut left = 8;
    loop {
        let literals = control.trailing_zeros() as usize;
        store::<8>(dst, out, load(src, at));
        at += literals;
        out += literals;
        left -= literals;
        if left == 0 {
            return Ok((at, out));
        }
        let (length, distance) = split(u16::from_be_bytes(load(src, at)), out)?;
        at += 2;
        copy_match(dst, out, length, distance);
        out += length;
        left -= 1;
        control >>= literals + 1;
        if left == 0 {
            return Ok((at, out));
        }
    }
}

/// Repeats `length` bytes from `distance` before `out`; may write up to 15 bytes more.
fn copy_match(dst: &mut [u8], out: usize, length: usize, distance: usize) {
    let from = out - distance;
    if distance >= 16 {
        store::<16>(dst, out, load(dst, from));
        let mut done = 16;
        while done < length {
            store::<16>(dst, out + done, load(dst, from + done));
            done += 16;
        }
    } else {
        for done in 0..length {
            dst[out + done] = dst[from + done];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_match_from_before_the_block_is_refused() {
        let zero_distance = [0x02, b'x', 0x00, 0x00];
        let too_far = [0x02, b'x', 0x00, 0x02];
        for payload in [zero_distance, too_far] {
            let long = [&payload[..], &[0; 40]].concat();
            for input in [&payload[..], &long] {
                let result = decompress(input, &mut [0; 2000]);
                assert!(matches!(result, Err(CodecError::Malformed { .. })), "{result:?}");
            }
        }
    }

    #[test]
    fn every_distance_and_length_decodes_alike_in_both_loops() {
        let start: Vec<u8> = (0..1100u32).map(|i| ((i * i) >> 3) as u8).collect();
        for distance in (1..40).chain([1022, 1023]) {
            for length in MATCH_MIN..=MATCH_MAX {
                let mut payload = Vec::new();
                for eight in start.chunks(8) {
                    payload.push(0);
                    payload.extend_from_slice(eight);
                    payload.resize(payload.len().next_multiple_of(9), 0);
                }
                let code = ((length - MATCH_MIN) << 10 | distance) as u16;
                payload.push(1);
                payload.extend_from_slice(&code.to_be_bytes());
                payload.extend_from_slice(b"1234567");
                let begin = start.len().next_multiple_of(8);
                let mut model = start.clone();
                model.resize(begin, 0);
                for _ in 0..length {
                    model.push(model[model.len() - distance]);
                }
                model.extend_from_slice(b"1234567");
                let mut exact = vec![0; model.len()];
                assert_eq!(decompress(&payload, &mut exact), Ok(()));
                assert_eq!(exact, model, "near the end: {length} from {distance}");
                payload.resize(payload.len() + 2000, 0);
                model.resize(model.len() + 1000, 0);
                let mut roomy = vec![0xaa; model.len()];
                assert_eq!(decompress(&payload, &mut roomy), Ok(()));
                assert_eq!(roomy, model, "far from the end: {length} from {distance}");
            }
        }
    }
}
