//! Edon-R-512 as OpenZFS has it, keyed by a prefix.
//!
//! Source: docs/format/02-blocks-checksums-compression.md §3.3.

/// Bytes of a message block.
const BLOCK: usize = 128;

/// The state between two blocks: two halves of eight words.
#[derive(Clone, Copy)]
pub(crate) struct State {
    halves: [[u64; 8]; 2],
    /// Bytes taken so far, a multiple of [`BLOCK`].
    len: u64,
}

/// Word i is the bytes 0x80 + 8i … 0x87 + 8i, read big-endian.
const START: State = {
    let mut halves = [[0; 8]; 2];
    let mut i = 0;
    while i < 16 {
        halves[i / 8][i % 8] = 0x8081_8283_8485_8687 + 0x0808_0808_0808_0808 * i as u64;
        i += 1;
    }
    State { halves, len: 0 }
};

/// The state after the key block that follows from `salt`. Every checksum of the pool starts from it.
pub(crate) fn keyed(salt: &[u8; 32]) -> State {
    let first = digest(START, salt);
    let second = digest(START, &first);
    let mut key = [0; BLOCK];
    key[..64].copy_from_slice(&first);
    key[64..].copy_from_slice(&second);
    let mut state = START;
    state.absorb(&key);
    state
}

/// The 64-byte digest of the data in `state` followed by `data`.
pub(crate) fn digest(mut state: State, data: &[u8]) -> [u8; 64] {
    let (blocks, rest) = data.as_chunks::<BLOCK>();
    for block in blocks {
        state.absorb(block);
    }
    let bits = (state.len + rest.len() as u64) * 8;
    let mut last = [0; BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    last[rest.len()] = 0x80;
    if rest.len() >= BLOCK - 8 {
        state.absorb(&last);
        last = [0; BLOCK];
    }
    last[BLOCK - 8..].copy_from_slice(&bits.to_le_bytes());
    state.absorb(&last);
    let mut digest = [0; 64];
    for (bytes, word) in digest.as_chunks_mut::<8>().0.iter_mut().zip(state.halves[1]) {
        *bytes = word.to_le_bytes();
    }
    digest
}

impl State {
    fn absorb(&mut self, block: &[u8; BLOCK]) {
        let (words, _) = block.as_chunks::<8>();
        let d0: [u64; 8] = std::array::from_fn(|i| u64::from_le_bytes(words[i]));
        let d1: [u64; 8] = std::array::from_fn(|i| u64::from_le_bytes(words[i + 8]));
        let [p0, p1] = self.halves;
        let a0 = q(reversed(d1), d0);
        let a1 = q(a0, d1);
        let b0 = q(p1, a0);
        let b1 = q(b0, a1);
        let c0 = q(b0, p0);
        let c1 = q(b1, c0);
        let e0 = q(reversed(d0), c0);
        let e1 = q(e0, c1);
        for i in 0..8 {
            self.halves[0][i] ^= d1[i] ^ e0[i];
            self.halves[1][i] ^= d0[i] ^ e1[i];
        }
        self.len += BLOCK as u64;
    }
}

fn reversed(mut words: [u64; 8]) -> [u64; 8] {
    words.reverse();
    words
}

/// The quasigroup operation: the table of the chapter, line by line.
#[inline(always)]
fn q(x: [u64; 8], y: [u64; 8]) -> [u64; 8] {
    macro_rules! sum {
        ($v:ident; $($i:literal),*) => { 0u64$(.wrapping_add($v[$i]))* };
    }
    let s0 = sum!(x; 0, 1, 2, 4, 7).wrapping_add(0xaaaa_aaaa_aaaa_aaaa);
    let s1 = sum!(x; 0, 1, 3, 4, 7).rotate_left(5);
    let s2 = sum!(x; 0, 1, 4, 6, 7).rotate_left(15);
    let s3 = sum!(x; 2, 3, 5, 6, 7).rotate_left(22);
    let s4 = sum!(x; 1, 2, 3, 5, 6).rotate_left(31);
    let s5 = sum!(x; 0, 2, 3, 4, 5).rotate_left(40);
    let s6 = sum!(x; 0, 1, 5, 6, 7).rotate_left(50);
    let s7 = sum!(x; 2, 3, 4, 5, 6).rotate_left(59);
    let t0 = sum!(y; 0, 1, 2, 5, 7).wrapping_add(0x5555_5555_5555_5555);
    let t1 = sum!(y; 0, 1, 3, 4, 6).rotate_left(10);
    let t2 = sum!(y; 0, 1, 2, 3, 5).rotate_left(19);
    let t3 = sum!(y; 2, 3, 4, 6, 7).rotate_left(29);
    let t4 = sum!(y; 0, 1, 3, 4, 5).rotate_left(36);
    let t5 = sum!(y; 2, 4, 5, 6, 7).rotate_left(44);
    let t6 = sum!(y; 1, 2, 5, 6, 7).rotate_left(48);
    let t7 = sum!(y; 0, 3, 4, 6, 7).rotate_left(55);
    [
        (s0 ^ s1 ^ s4).wrapping_add(t0 ^ t1 ^ t5),
        (s0 ^ s4 ^ s7).wrapping_add(t2 ^ t6 ^ t7),
        (s1 ^ s6 ^ s7).wrapping_add(t0 ^ t1 ^ t3),
        (s2 ^ s3 ^ s4).wrapping_add(t0 ^ t3 ^ t4),
        (s0 ^ s1 ^ s7).wrapping_add(t1 ^ t2 ^ t5),
        (s3 ^ s5 ^ s6).wrapping_add(t3 ^ t4 ^ t6),
        (s2 ^ s5 ^ s6).wrapping_add(t2 ^ t5 ^ t7),
        (s2 ^ s3 ^ s5).wrapping_add(t4 ^ t6 ^ t7),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_initial_state_is_the_bytes_from_0x80_on() {
        assert_eq!(START.halves[0][0], 0x8081_8283_8485_8687);
        assert_eq!(START.halves[1][7], 0xf8f9_fafb_fcfd_feff);
    }

    #[test]
    fn every_length_around_a_block_has_its_own_digest() {
        let data = [0; 300];
        let digests: std::collections::HashSet<_> =
            (0..=300).map(|len| digest(START, &data[..len])).collect();
        assert_eq!(digests.len(), 301);
    }
}
