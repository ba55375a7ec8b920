//! Changes of directory entries: names that lead out of a folder, names that stand there twice, other objects and types.

use format::ByteOrder;
use format::zap::{self, ZapKind};

use super::damage::damage_more;
use super::{Forgery, Patches, Source};

const LE: ByteOrder = ByteOrder::Little;
/// Bytes of an entry of a micro ZAP; its value is in front, its name behind that.
const ENTRY: usize = 64;
const NAME: usize = 14;
/// Bytes of a name, without the zero behind it.
const NAME_MAX: usize = ENTRY - NAME - 1;
/// The type of a file is in these bits of a directory entry.
const TYPE_SHIFT: u32 = 60;

/// Names that a copy must not take for places outside of its target.
const NAMES: [&[u8]; 14] = [
    b"..",
    b".",
    b"",
    b"/",
    b"../victim/kept",
    b"../../victim/kept",
    b"/tmp",
    b"a/b",
    b"a",
    b"l",
    b"d",
    b"\x1b[2J",
    b"\xff\xfe",
    b".zfs",
];

/// A pool with a few changed directory entries and perhaps other changes; `choose` gives a number below its argument,
/// which is never 0.
#[must_use]
pub fn damage_entries_by(source: &Source, choose: &mut dyn FnMut(u64) -> u64) -> Patches {
    let mut forgery = Forgery::of(source);
    let entries = entries(source);
    for _ in 0..=choose(8) {
        let (block, at) = entries[choose(entries.len() as u64) as usize];
        let other = entries[choose(entries.len() as u64) as usize];
        let other = forgery.content(other.0)[other.1..other.1 + ENTRY].to_vec();
        let kind = choose(6);
        let (name, number) = (NAMES[choose(NAMES.len() as u64) as usize], choose(256));
        let length = choose(NAME_MAX as u64 + 1) as usize;
        forgery.edit(block, |content| {
            let entry = &mut content[at..at + ENTRY];
            let value = LE.u64(entry, 0);
            match kind {
                0 | 1 => put_name(entry, name),
                // Two entries of one name, and one object with two names.
                2 => entry[NAME..].copy_from_slice(&other[NAME..]),
                3 => LE.put_u64(entry, 0, LE.u64(&other, 0)),
                4 => LE.put_u64(entry, 0, value & !(0xf << TYPE_SHIFT) | (number & 0xf) << TYPE_SHIFT),
                _ => put_name(entry, &[number as u8].repeat(length)),
            }
        });
    }
    if choose(2) == 1 {
        damage_more(&mut forgery, source, choose);
    }
    forgery.seal()
}

fn put_name(entry: &mut [u8], name: &[u8]) {
    entry[NAME..].fill(0);
    entry[NAME..NAME + name.len()].copy_from_slice(name);
}

/// The entries of all micro ZAPs outside of the MOS: the block and the offset in it.
fn entries(source: &Source) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    for (block, ..) in source.blocks().filter(|(.., place)| place.level == 0 && place.objset != 0) {
        let content = source.content(block);
        if !zap::kind(content).is_ok_and(|(kind, _)| kind == ZapKind::Micro) {
            continue;
        }
        let used = (ENTRY..content.len()).step_by(ENTRY).filter(|at| content.get(at + NAME) > Some(&0));
        found.extend(used.map(|at| (block, at)));
    }
    assert!(!found.is_empty(), "the sample has directories");
    found
}
