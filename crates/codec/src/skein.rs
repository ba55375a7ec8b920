//! Skein-512 with 256 bits of output in MAC mode, on the Threefish-512 block cipher.
//!
//! This is an implementation of our own, because published crates have no MAC mode, or a cipher at a third of this speed.
//!
//! Source: docs/format/02-blocks-checksums-compression.md §3.1; Skein specification 1.3 §3.3 to §3.5.

const BLOCK: usize = 64;

/// The type field of the tweak: which kind of input a block is.
#[derive(Clone, Copy)]
enum Type {
    Key = 0,
    Config = 4,
    Message = 48,
    Output = 63,
}

/// The chaining value between two blocks.
pub(crate) type State = [u64; 8];

/// The state after the key `salt` and the configuration: every checksum of the pool starts from it.
pub(crate) fn keyed(salt: &[u8; 32]) -> State {
    let mut config = [0; 32];
    config[..4].copy_from_slice(b"SHA3");
    config[4..6].copy_from_slice(&1u16.to_le_bytes()); // Version.
    config[8..16].copy_from_slice(&256u64.to_le_bytes()); // Output bits; no tree.
    ubi(ubi([0; 8], Type::Key, salt), Type::Config, &config)
}

/// The 32-byte digest of `data`.
pub(crate) fn digest(keyed: State, data: &[u8]) -> [u8; 32] {
    let last = ubi(ubi(keyed, Type::Message, data), Type::Output, &0u64.to_le_bytes());
    let mut digest = [0; 32];
    for (bytes, word) in digest.as_chunks_mut::<8>().0.iter_mut().zip(last) {
        *bytes = word.to_le_bytes();
    }
    digest
}

/// Unique block iteration: `data` of one type in blocks, each tweaked by its position.
fn ubi(mut state: State, kind: Type, data: &[u8]) -> State {
    // An empty message is one block of zeros; a full last block is not followed by an empty one.
    let whole = data.len().saturating_sub(1) / BLOCK;
    let (blocks, _) = data[..whole * BLOCK].as_chunks::<BLOCK>();
    let mut tweak = (kind as u64) << 56 | 1 << 62;
    let mut position = 0;
    for block in blocks {
        position += BLOCK as u64;
        encrypt(&mut state, block, [position, tweak]);
        tweak &= !(1 << 62);
    }
    let rest = &data[whole * BLOCK..];
    let mut last = [0; BLOCK];
    last[..rest.len()].copy_from_slice(rest);
    encrypt(&mut state, &last, [data.len() as u64, tweak | 1 << 63]);
    state
}

/// One block: Threefish-512 of it under the key `state`, fed forward.
fn encrypt(state: &mut State, block: &[u8; BLOCK], tweak: [u64; 2]) {
    let (words, _) = block.as_chunks::<8>();
    let message: [u64; 8] = std::array::from_fn(|i| u64::from_le_bytes(words[i]));
    let mut key = [0x1bd1_1bda_a9fc_1a22; 9];
    for (i, word) in state.iter().enumerate() {
        key[i] = *word;
        key[8] ^= word;
    }
    let tweak = [tweak[0], tweak[1], tweak[0] ^ tweak[1]];
    let mut x = message;
    // The permutation between rounds is in the indices: after four rounds each word is back in its place.
    macro_rules! round {
        ($a:literal $b:literal $c:literal $d:literal $e:literal $f:literal $g:literal $h:literal; $r:expr) => {
            for (left, right, by) in [($a, $b, $r[0]), ($c, $d, $r[1]), ($e, $f, $r[2]), ($g, $h, $r[3])] {
                x[left] = x[left].wrapping_add(x[right]);
                x[right] = x[right].rotate_left(by) ^ x[left];
            }
        };
    }
    macro_rules! four_rounds {
        ($s:literal) => {
            add_subkey(&mut x, &key, &tweak, $s);
            round!(0 1 2 3 4 5 6 7; ROTATIONS[$s % 2 * 4]);
            round!(2 1 4 7 6 5 0 3; ROTATIONS[$s % 2 * 4 + 1]);
            round!(4 1 6 3 0 5 2 7; ROTATIONS[$s % 2 * 4 + 2]);
            round!(6 1 0 7 2 5 4 3; ROTATIONS[$s % 2 * 4 + 3]);
        };
        ($($s:literal),*) => { $(four_rounds!($s);)* };
    }
    four_rounds!(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17);
    add_subkey(&mut x, &key, &tweak, 18);
    *state = std::array::from_fn(|i| x[i] ^ message[i]);
}

/// Threefish-512's rotations by round and pair.
const ROTATIONS: [[u32; 4]; 8] = [
    [46, 36, 19, 37],
    [33, 27, 14, 42],
    [17, 49, 36, 39],
    [44, 9, 54, 56],
    [39, 30, 34, 24],
    [13, 50, 10, 17],
    [25, 29, 39, 43],
    [8, 35, 56, 22],
];

#[inline(always)]
fn add_subkey(x: &mut State, key: &[u64; 9], tweak: &[u64; 3], s: usize) {
    for (i, word) in x.iter_mut().enumerate() {
        *word = word.wrapping_add(key[(s + i) % 9]);
    }
    x[5] = x[5].wrapping_add(tweak[s % 3]);
    x[6] = x[6].wrapping_add(tweak[(s + 1) % 3]);
    x[7] = x[7].wrapping_add(s as u64);
}
