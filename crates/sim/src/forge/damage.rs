//! Changes by chance, of the kinds that decoders and walks trip over.

use format::ObjectType;
use format::blkptr;
use storage::host::SeededEntropy;

use super::{Forgery, Patches, Source};

/// Values at the limits of fields.
const WORDS: [u64; 12] =
    [0, 1, 2, 32, 0xff, 1 << 31, (1 << 32) - 1, 1 << 48, 1 << 60, (1 << 63) - 1, 1 << 63, u64::MAX];

/// A pool with a few changes that follow from `seed`.
#[must_use]
pub fn damage(source: &Source, seed: u64) -> Patches {
    let chance = SeededEntropy::new(seed);
    damage_by(source, &mut |limit| chance.below(limit))
}

/// A pool with a few changes; `choose` gives a number below its argument, which is never 0.
#[must_use]
pub fn damage_by(source: &Source, choose: &mut dyn FnMut(u64) -> u64) -> Patches {
    let mut forgery = Forgery::of(source);
    damage_more(&mut forgery, source, choose);
    forgery.seal()
}

/// Adds a few changes to a forgery.
pub(super) fn damage_more(forgery: &mut Forgery<'_>, source: &Source, choose: &mut dyn FnMut(u64) -> u64) {
    // Few checks look at the contents of files.
    let wanted: Vec<usize> = source
        .blocks()
        .filter(|(_, kind, place)| *kind != ObjectType::PLAIN_FILE_CONTENTS || place.level > 0)
        .map(|(block, ..)| block)
        .collect();
    for _ in 0..=choose(3) {
        let block = wanted[choose(wanted.len() as u64) as usize];
        let other = wanted[choose(wanted.len() as u64) as usize];
        for _ in 0..=choose(3) {
            change(forgery, block, source.content(other), choose);
        }
    }
}

/// One change to a block, near bytes that have a meaning.
fn change(forgery: &mut Forgery<'_>, block: usize, other: &[u8], choose: &mut dyn FnMut(u64) -> u64) {
    let content = forgery.content(block);
    let used: Vec<usize> = (0..content.len()).filter(|at| content[*at] != 0).collect();
    if used.is_empty() {
        return;
    }
    let at = used[choose(used.len() as u64) as usize];
    let kind = choose(9);
    let (word, byte) = (WORDS[choose(WORDS.len() as u64) as usize], choose(256) as u8);
    let unit = [8, 64, blkptr::SIZE, 512][choose(4) as usize];
    let from = choose((other.len() / unit).max(1) as u64) as usize * unit;
    let bit = choose(8);
    forgery.edit(block, |content| {
        let len = content.len();
        let word_at = at / 8 * 8;
        match kind {
            0 => content[at] ^= 1 << bit,
            1 => content[at] = byte,
            2 => content[at] = 0,
            3 | 4 if word_at + 8 <= len => content[word_at..word_at + 8].copy_from_slice(&word.to_le_bytes()),
            5 if word_at + 8 <= len => {
                let bytes: [u8; 8] = content[word_at..word_at + 8].try_into().unwrap_or_default();
                let near = u64::from_le_bytes(bytes).wrapping_add(bit).wrapping_sub(4);
                content[word_at..word_at + 8].copy_from_slice(&near.to_le_bytes());
            }
            // A valid structure at the wrong place: a pointer to another block, a dnode, an entry.
            6 | 7 => {
                let to = at / unit * unit;
                if to + unit <= len && from + unit <= other.len() {
                    content[to..to + unit].copy_from_slice(&other[from..from + unit]);
                }
            }
            _ => {
                let end = (at + unit).min(len);
                content[at..end].fill(byte);
            }
        }
    });
}
