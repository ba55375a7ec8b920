//! Raw LZ4 blocks of the sizes that OpenZFS's encoder gives.
//!
//! OpenZFS has an LZ4 of 2012, which finds matches by a hash of four bytes. Later releases of the reference library
//! hash five bytes on records above 64 KiB; their output is between 5 % larger (database pages) and a quarter smaller
//! (DNA as text). A pool must have the ratio that OpenZFS would give it, so this encoder has the same match finder. The
//! reference library decodes.
//!
//! Only loads from the source are unchecked; all writes go through slices.
//!
//! Source: docs/format/02-blocks-checksums-compression.md §5; LZ4 block format (sequences of a token, literals,
//! a two-byte offset and lengths above 15 in further bytes).

/// Shortest match.
const MATCH_MIN: usize = 4;
/// The block's last bytes are literals, and no match begins in the last twelve.
const LITERALS_LAST: usize = 5;
const START_LAST: usize = 12;
const DISTANCE_MAX: usize = 65_535;
/// Below this size, the positions at which matches begin fit into 16 bits, and the table has twice as many slots.
const SMALL: usize = (64 << 10) + START_LAST - 1;
/// log2 of the number of misses after which the search takes longer steps.
const PATIENCE: u32 = 6;
/// Literals are copied in pieces of this many bytes when there is room.
const WIDE: usize = 16;
/// Bytes of the source between two looks at what kind of matches it has, and before the first look; and the
/// sequences looked at.
const PIECE: usize = 8 << 10;
const PIECE_FIRST: usize = 1 << 10;
const SAMPLE: usize = 32;

/// Compresses `src` into `dst` as one raw block; `None` if it does not fit.
pub(crate) fn encode(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    if src.len() < SMALL { encode_by::<u16, 8192>(src, dst) } else { encode_by::<u32, 4096>(src, dst) }
}

/// A position as the table holds it.
trait Position: Copy + Default {
    fn of(at: usize) -> Self;
    fn at(self) -> usize;
}

impl Position for u16 {
    fn of(at: usize) -> u16 {
        at as u16
    }
    fn at(self) -> usize {
        self.into()
    }
}

impl Position for u32 {
    fn of(at: usize) -> u32 {
        at as u32
    }
    fn at(self) -> usize {
        self as usize
    }
}

/// The four bytes at `at`.
///
/// # Safety
/// `at + 4 <= data.len()`.
#[inline(always)]
unsafe fn four(data: &[u8], at: usize) -> u32 {
    debug_assert!(at + 4 <= data.len());
    // SAFETY: the caller's promise; the read needs no alignment.
    u32::from_le_bytes(unsafe { data.as_ptr().add(at).cast::<[u8; 4]>().read() })
}

/// The eight bytes at `at`.
///
/// # Safety
/// `at + 8 <= data.len()`.
#[inline(always)]
unsafe fn eight(data: &[u8], at: usize) -> u64 {
    debug_assert!(at + 8 <= data.len());
    // SAFETY: the caller's promise; the read needs no alignment.
    u64::from_le_bytes(unsafe { data.as_ptr().add(at).cast::<[u8; 8]>().read() })
}

fn slot<const SLOTS: usize>(bytes: u32) -> usize {
    // The index is the remainder of the shift, so it is in the table.
    (bytes.wrapping_mul(2_654_435_761) >> (32 - SLOTS.ilog2())) as usize % SLOTS
}

/// The state of the encoder between two pieces.
struct State {
    out: usize,
    literals_from: usize,
    start: usize,
}

fn encode_by<P: Position, const SLOTS: usize>(src: &[u8], dst: &mut [u8]) -> Option<usize> {
    let mut seen = [P::default(); SLOTS];
    let start_max = src.len().saturating_sub(START_LAST);
    // The first byte is a literal: position 0 also means an empty slot.
    let mut state = State { out: 0, literals_from: 0, start: 1 };
    let (mut mostly_short, mut piece_len) = (false, PIECE_FIRST);
    while state.start < start_max {
        let until = (state.start + piece_len).min(start_max);
        let begun = state.out;
        // SAFETY: the table is empty or as the pieces before left it, and `start` is below `until`.
        state = unsafe {
            match mostly_short {
                true => piece::<P, SLOTS, true>(src, dst, &mut seen, state, until)?,
                false => piece::<P, SLOTS, false>(src, dst, &mut seen, state, until)?,
            }
        };
        mostly_short = is_mostly_short(&dst[begun..state.out]);
        piece_len = PIECE;
    }
    last_literals(&src[state.literals_from..], dst, state.out)
}

/// Writes the sequences whose matches begin from `state.start` to about `until`. `SHORT` expects matches of
/// [`MATCH_MIN`]: then the processor continues before it knows the length. It changes the rate and no byte of the
/// output.
///
/// # Safety
/// `state.start < until <= src.len() - START_LAST`; each position in `seen` is 0 or below `state.start`.
/// Both hold again for what this returns, unless the block is at its end.
#[inline(always)]
unsafe fn piece<P: Position, const SLOTS: usize, const SHORT: bool>(
    src: &[u8],
    dst: &mut [u8],
    seen: &mut [P; SLOTS],
    State { mut out, mut literals_from, mut start }: State,
    until: usize,
) -> Option<State> {
    // Every search position is at most this, so that twelve bytes can be loaded there; a position in the
    // table is one that was searched, or lies below one.
    let start_max = src.len() - START_LAST;
    // SAFETY: `start` is at most `start_max`.
    let mut bytes = unsafe { four(src, start) };
    loop {
        let (mut at, mut tries) = (start, 1usize << PATIENCE);
        let mut from;
        loop {
            let next = at + (tries >> PATIENCE);
            tries += 1;
            let slot = slot::<SLOTS>(bytes);
            from = seen[slot].at();
            seen[slot] = P::of(at);
            // SAFETY: `from` is 0 or was searched, `at` is; both are at most `start_max`.
            if unsafe { four(src, from) } == bytes && from + DISTANCE_MAX >= at {
                break;
            }
            if next > start_max {
                return Some(State { out, literals_from, start: start_max });
            }
            at = next;
            // SAFETY: just compared.
            bytes = unsafe { four(src, at) };
        }
        // SAFETY: `from` was searched before `at`, or is 0, which is below the first search.
        let back = unsafe { common_before(src, from, at, at - literals_from) };
        let length = MATCH_MIN + common::<SHORT>(src, from + MATCH_MIN, at + MATCH_MIN);
        let literals = &src[literals_from..];
        let count = at - back - literals_from;
        out = sequence(literals, Match { count, distance: at - from, length: length + back }, dst, out)?;
        start = at + length;
        // Where one match ends, often the next begins: then there are no literals between, and no search.
        loop {
            literals_from = start;
            if start >= until {
                return Some(State { out, literals_from, start });
            }
            // SAFETY: a match is at least four long, and this one ends before `start_max`.
            let around = unsafe { eight(src, start - 2) };
            seen[slot::<SLOTS>(around as u32)] = P::of(start - 2);
            bytes = (around >> 16) as u32;
            let slot = slot::<SLOTS>(bytes);
            let from = seen[slot].at();
            seen[slot] = P::of(start);
            // SAFETY: as in the search.
            if unsafe { four(src, from) } != bytes || from + DISTANCE_MAX < start {
                start += 1;
                bytes = (around >> 24) as u32;
                break;
            }
            let length = MATCH_MIN + common::<SHORT>(src, from + MATCH_MIN, start + MATCH_MIN);
            out = sequence(&src[start..], Match { count: 0, distance: start - from, length }, dst, out)?;
            start += length;
        }
    }
}

/// Whether more than three in five of the first sequences of `block`, which [`piece`] wrote, have the
/// shortest match.
fn is_mostly_short(mut block: &[u8]) -> bool {
    let (mut short, mut all) = (0, 0);
    while all < SAMPLE {
        // Lengths of more than one further byte end the sample: such data has few sequences.
        let Some((&token, rest)) = block.split_first() else { break };
        let mut len = usize::from(token >> 4) + 2;
        if token >> 4 == 15 {
            let Some(&more) = rest.first().filter(|&&more| more != 255) else { break };
            len += 1 + usize::from(more);
        }
        if token & 15 == 15 {
            if rest.get(len) == Some(&255) {
                break;
            }
            len += 1;
        }
        short += usize::from(token & 15 == 0);
        all += 1;
        let Some(after) = rest.get(len..) else { break };
        block = after;
    }
    short * 5 > all * 3
}

/// How many bytes at `from` and at `at`, a position behind it, are equal, without the block's last literals.
/// `NONE` expects none: as a branch of its own, it can be guessed.
#[inline(always)]
fn common<const NONE: bool>(src: &[u8], from: usize, at: usize) -> usize {
    let end = src.len() - LITERALS_LAST;
    assert!(from < at, "a match lies before what it matches");
    let mut length = 0;
    while at + length + 8 <= end {
        // SAFETY: eight bytes from `at` end before `end`, and `from` is below `at`.
        let differ = unsafe { eight(src, at + length) ^ eight(src, from + length) };
        if differ != 0 {
            if NONE && differ as u8 != 0 {
                return length;
            }
            return length + (differ.trailing_zeros() / 8) as usize;
        }
        length += 8;
    }
    while at + length < end && src[at + length] == src[from + length] {
        length += 1;
    }
    length
}

/// How many bytes before `from` and before `at` are equal, at most `limit`.
///
/// # Safety
/// `from < at <= src.len()`.
#[inline(always)]
unsafe fn common_before(src: &[u8], from: usize, at: usize, limit: usize) -> usize {
    debug_assert!(from < at && at <= src.len());
    // Nearly always fewer than eight; counted at once, they cost no wrong guess of a loop's end.
    if from >= 8 {
        // SAFETY: both loads end at or before `at`, and begin at 0 or later.
        let differ = unsafe { eight(src, at - 8) ^ eight(src, from - 8) };
        if differ != 0 || limit <= 8 {
            return ((differ.leading_zeros() / 8) as usize).min(limit);
        }
    }
    common_before_bytewise(src, from, at, limit)
}

#[cold]
#[inline(never)]
fn common_before_bytewise(src: &[u8], from: usize, at: usize, limit: usize) -> usize {
    let (at, from) = (src[..at].iter().rev(), src[..from].iter().rev());
    at.zip(from).take(limit).take_while(|(a, b)| a == b).count()
}

/// A match, and how many literals precede it.
struct Match {
    count: usize,
    distance: usize,
    length: usize,
}

/// Writes the first `count` of `literals`, then the match; the position after it.
#[inline(always)]
fn sequence(
    literals: &[u8],
    Match { count, distance, length }: Match,
    dst: &mut [u8],
    mut out: usize,
) -> Option<usize> {
    let more = length - MATCH_MIN;
    let token = (count.min(15) << 4 | more.min(15)) as u8;
    // Most sequences are short and have room to spare. The bytes copied in excess are overwritten next.
    if let (0..15, Some(room), Some(wide)) =
        (count, dst.get_mut(out..out + WIDE + 2), literals.first_chunk::<WIDE>())
    {
        room[0] = token;
        room[1..=WIDE].copy_from_slice(wide);
        room[1 + count..3 + count].copy_from_slice(&(distance as u16).to_le_bytes());
        out += 3 + count;
    } else {
        *dst.get_mut(out)? = token;
        out += 1;
        if count >= 15 {
            out = length_bytes(count - 15, dst, out)?;
        }
        dst.get_mut(out..out + count)?.copy_from_slice(&literals[..count]);
        out += count;
        dst.get_mut(out..out + 2)?.copy_from_slice(&(distance as u16).to_le_bytes());
        out += 2;
    }
    if more >= 15 {
        out = length_bytes(more - 15, dst, out)?;
    }
    Some(out)
}

/// The last sequence: a token and literals only.
fn last_literals(literals: &[u8], dst: &mut [u8], mut out: usize) -> Option<usize> {
    *dst.get_mut(out)? = (literals.len().min(15) << 4) as u8;
    out += 1;
    if literals.len() >= 15 {
        out = length_bytes(literals.len() - 15, dst, out)?;
    }
    dst.get_mut(out..out + literals.len())?.copy_from_slice(literals);
    Some(out + literals.len())
}

/// Writes the part of a length above 15: bytes of 255, then the rest.
fn length_bytes(rest: usize, dst: &mut [u8], mut out: usize) -> Option<usize> {
    let full = rest / 255;
    dst.get_mut(out..out + full)?.fill(255);
    out += full;
    *dst.get_mut(out)? = (rest % 255) as u8;
    Some(out + 1)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::simd::lz4;

    /// A decoder that is all checks: the safe twin.
    fn decode(mut block: &[u8]) -> Option<Vec<u8>> {
        fn length(nibble: u8, block: &mut &[u8]) -> Option<usize> {
            let mut length = usize::from(nibble);
            while length >= 15 {
                let (&more, rest) = block.split_first()?;
                *block = rest;
                length += usize::from(more);
                if more != 255 {
                    break;
                }
            }
            Some(length)
        }
        let mut data = Vec::new();
        loop {
            let (&token, rest) = block.split_first()?;
            block = rest;
            let count = length(token >> 4, &mut block)?;
            let (literals, rest) = block.split_at_checked(count)?;
            data.extend_from_slice(literals);
            let Some((distance, rest)) = rest.split_first_chunk() else {
                return rest.is_empty().then_some(data);
            };
            block = rest;
            let from = data.len().checked_sub(u16::from_le_bytes(*distance).into())?;
            let end = data.len();
            let count = MATCH_MIN + length(token & 15, &mut block)?;
            for at in from..from + count {
                data.push(*data.get(at).filter(|_| from < end)?);
            }
        }
    }

    fn round_trip(data: &[u8]) {
        let mut dst = vec![0; data.len() + data.len() / 255 + 16];
        let used = encode(data, &mut dst).expect("LZ4's bound");
        assert!(decode(&dst[..used]).expect("a block") == data);
        let mut back = vec![0; data.len()];
        assert_eq!(lz4::decompress(&dst[..used], &mut back), Some(data.len()));
        assert!(back == data);
        // Exactly as much room as it takes is enough, and one byte less is not.
        let mut exact = vec![0; used];
        assert_eq!(encode(data, &mut exact), Some(used));
        assert_eq!(exact, dst[..used]);
        assert_eq!(encode(data, &mut exact[..used - 1]), None);
    }

    #[test]
    fn blocks_of_every_small_size_survive() {
        let data: Vec<u8> = (0..400u32).map(|i| (i % 7 + i / 50) as u8).collect();
        for len in 0..data.len() {
            round_trip(&data[..len]);
            round_trip(&vec![3; len]);
        }
    }

    #[test]
    fn blocks_around_the_change_of_tables_survive() {
        let data: Vec<u8> = (0..70_000u32).map(|i| (i.wrapping_mul(i) >> 11) as u8).collect();
        for len in [65_535, 65_536, SMALL - 1, SMALL, SMALL + 1, 70_000] {
            round_trip(&data[..len]);
            round_trip(&vec![0; len]);
        }
    }

    proptest! {
        #[test]
        fn blocks_of_few_letters_survive(data in vec(0u8..4, 0..4000), tail in vec(any::<u8>(), 0..40)) {
            round_trip(&[data, tail].concat());
        }

        #[test]
        fn repeated_pieces_survive(piece in vec(any::<u8>(), 1..300), times in 1usize..400) {
            round_trip(&piece.repeat(times));
        }
    }
}
