//! Which pieces are looked at.
//!
//! From:   what a survey found.
//! To:     pieces, one at a time, as many as there is time for.
//!
//! All files are cut into pieces as long as the largest record size; a piece is the unit that is drawn. Pieces are
//! divided into strata by kind of file and size of file, since files of a kind and size compress alike. Kinds that
//! hold little are one stratum together. Every stratum has a piece first, the large ones before the small ones; those
//! with [`LARGE`] of all bytes then have [`FIRST`] pieces. After that each draw goes where it narrows the interval most:
//! where X · s / √(n · (n + 1) · c) is largest. X is the stratum's bytes, n the pieces drawn of it, s how much they
//! differ in a byte, and c the cost of one. This is Neyman's
//! allocation, one draw at a time (with the same s for all until
//! [`Strata::learn`] separates them). Within a stratum the draws follow multiples of the golden ratio from a random
//! start: every beginning of that sequence is spread over all folders and files evenly.
//!
//! Source: W. G. Cochran, Sampling Techniques, chapter 5.5.

use std::collections::{BTreeMap, HashSet};

use storage::host::{Entropy as _, SeededEntropy};

use super::encode::padded_bytes;
use super::kind;
use super::material::Material;

/// Pieces of a large stratum that come before any proportion, and from which part of all bytes on it is large.
const FIRST: u64 = 3;
const LARGE: f64 = 0.01;
/// The least spread that a stratum is thought to have, as a part of that of all: few pieces may be alike by chance.
const SPREAD_MIN: f64 = 0.2;
/// The price of looking at a piece, besides its bytes, in bytes.
const PIECE_PRICE: f64 = 16_384.0;
/// Kinds with less than this part of all bytes are one.
const KIND_MIN: f64 = 0.005;
/// Kinds that are kept apart, at most.
const KINDS_MAX: usize = 20;
/// Files up to each of these sizes are a class of their own, if they are shorter than a piece. A file that fits into a
/// sector of usual pools gains nothing, and one that is a little longer gains as much as it can. In one class, a sample of
/// one kind would be taken for both.
const CLASSES: [u64; 4] = [4 << 10, 8 << 10, 64 << 10, 512 << 10];
/// The name for many small kinds together.
pub(crate) const OTHERS: &str = "(others)";

/// Pieces alike.
pub(crate) struct Stratum {
    /// Kind of file.
    pub(crate) kind: String,
    /// Pieces in it that can be drawn.
    pub(crate) pieces: u64,
    /// Number of these pieces and of the pieces that they represent.
    pub(crate) population: f64,
    /// Bytes of all of these.
    pub(crate) bytes: f64,
    /// Bytes of all their records, for each size of records.
    padded: Vec<(u64, f64)>,
    /// Bytes of them in no known hole.
    pub(crate) data: f64,
    /// Files that they are of.
    pub(crate) files: f64,
    /// Runs of pieces: number of the first, file, its place there in pieces.
    runs: Vec<(u64, u32, u64)>,
    /// Where the sequence of draws starts, as a part of 2^64.
    start: u64,
    taken: HashSet<u64>,
    /// How much its pieces differ, as far as is known.
    spread: f64,
}

/// A piece that was drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Draw {
    pub(crate) stratum: usize,
    pub(crate) file: u32,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// All strata, and the sequence of draws.
pub(crate) struct Strata {
    pub(crate) all: Vec<Stratum>,
    piece: u64,
    bytes: f64,
}

impl Strata {
    /// Divides what was found into strata of pieces of `piece` bytes, which hold records of these sizes.
    pub(crate) fn new(material: &Material, piece: u64, recordsizes: &[u64], seed: u64) -> Strata {
        let names = kept_kinds(material);
        let mut strata: BTreeMap<(u16, usize), Stratum> = BTreeMap::new();
        let random = SeededEntropy::new(seed);
        let file_weight = material.file_count as f64 / (material.files.len() as f64).max(1.0);
        for (number, file) in material.files.iter().enumerate().filter(|(_, file)| file.size > 0) {
            let class = match file.size <= piece {
                true => CLASSES.iter().position(|size| file.size <= *size).unwrap_or(CLASSES.len()),
                false => CLASSES.len() + 1,
            };
            let (kind, name) = &names[usize::from(file.kind)];
            let stratum =
                strata.entry((*kind, class)).or_insert_with(|| Stratum::new(name, recordsizes, random.u64()));
            let weight = material.weight(file);
            stratum.files += file_weight;
            stratum.data += file.data_bytes() as f64 * weight;
            for (first, last) in piece_runs(file.size, file.parts.as_deref(), piece) {
                stratum.runs.push((stratum.pieces, number as u32, first));
                stratum.pieces += last - first + 1;
                stratum.population += (last - first + 1) as f64 * weight;
                let len = ((last + 1) * piece).min(file.size) - first * piece;
                stratum.bytes += len as f64 * weight;
                for (recordsize, padded) in &mut stratum.padded {
                    *padded += padded_bytes(file.size, len, *recordsize) as f64 * weight;
                }
            }
        }
        let all: Vec<Stratum> = strata.into_values().filter(|stratum| stratum.pieces > 0).collect();
        let bytes = all.iter().map(|stratum| stratum.bytes).sum();
        Strata { all, piece, bytes }
    }

    /// The next piece; `None` after the last.
    pub(crate) fn draw(&mut self, material: &Material) -> Option<Draw> {
        let open = |stratum: &&Stratum| (stratum.taken.len() as u64) < stratum.pieces;
        let wanted = |stratum: &Stratum| {
            let (drawn, bytes) = (stratum.taken.len() as u64, stratum.bytes);
            let first = if bytes >= LARGE * self.bytes { FIRST } else { 1 };
            if drawn < first {
                return (if drawn == 0 { FIRST } else { FIRST - drawn }, bytes);
            }
            let n = drawn as f64;
            let price = bytes / stratum.population + PIECE_PRICE;
            (0, bytes * stratum.spread / (n * (n + 1.0) * price).sqrt())
        };
        let before = |a: (u64, f64), b: (u64, f64)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1));
        let waiting = self.all.iter().enumerate().filter(|(_, stratum)| open(stratum));
        // Of equal ones the first.
        let (number, _) = waiting.rev().max_by(|a, b| before(wanted(a.1), wanted(b.1)))?;
        let stratum = &mut self.all[number];
        let index = stratum.next();
        let run = stratum.runs[stratum.runs.partition_point(|run| run.0 <= index) - 1];
        let offset = (run.2 + (index - run.0)) * self.piece;
        let len = (material.files[run.1 as usize].size - offset).min(self.piece);
        Some(Draw { stratum: number, file: run.1, offset, len })
    }

    /// Of some large stratum nothing was drawn yet.
    pub(crate) fn is_blind(&self) -> bool {
        self.all.iter().any(|stratum| stratum.taken.is_empty() && self.is_large(stratum))
    }

    /// How many strata are large.
    pub(crate) fn large(&self) -> usize {
        self.all.iter().filter(|stratum| self.is_large(stratum)).count()
    }

    fn is_large(&self, stratum: &Stratum) -> bool {
        stratum.bytes >= LARGE * self.bytes
    }

    /// Takes to heart how much the pieces of each stratum differ; `None` where that is not known.
    pub(crate) fn learn(&mut self, spreads: &[Option<f64>]) {
        let known: Vec<f64> = spreads.iter().flatten().copied().collect();
        let mean = known.iter().sum::<f64>() / (known.len() as f64).max(1.0);
        for (stratum, spread) in self.all.iter_mut().zip(spreads) {
            stratum.spread = spread.unwrap_or(mean).max(SPREAD_MIN * mean).max(f64::MIN_POSITIVE);
        }
    }
}

impl Stratum {
    /// Bytes of all records of `recordsize`, the last one of a long file as long as the others.
    pub(crate) fn padded(&self, recordsize: u64) -> f64 {
        let of = self.padded.iter().find(|(size, _)| *size == recordsize);
        of.expect("its pieces hold records of this size").1
    }

    fn new(kind: &str, recordsizes: &[u64], start: u64) -> Stratum {
        Stratum {
            kind: kind.to_owned(),
            pieces: 0,
            population: 0.0,
            bytes: 0.0,
            padded: recordsizes.iter().map(|size| (*size, 0.0)).collect(),
            data: 0.0,
            files: 0.0,
            runs: Vec::new(),
            start,
            taken: HashSet::new(),
            spread: 1.0,
        }
    }

    /// The number of the next piece, each once.
    fn next(&mut self) -> u64 {
        /// The golden ratio's fraction of 2^64.
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let at = self.start.wrapping_add(GOLDEN.wrapping_mul(self.taken.len() as u64));
        let mut index = ((u128::from(at) * u128::from(self.pieces)) >> 64) as u64;
        while !self.taken.insert(index) {
            index = (index + 1) % self.pieces;
        }
        index
    }
}

/// For each kind of the material a number and a name, the same for all those that hold little.
fn kept_kinds(material: &Material) -> Vec<(u16, String)> {
    let mut bytes = vec![0u64; material.kinds.len()];
    for file in &material.files {
        bytes[usize::from(file.kind)] += material.stands_for(file);
    }
    let total: u64 = bytes.iter().sum();
    let mut by_size: Vec<usize> = (0..bytes.len()).collect();
    by_size.sort_by_key(|kind| std::cmp::Reverse(bytes[*kind]));
    let mut names = vec![(u16::MAX, OTHERS.to_owned()); bytes.len()];
    for kind in by_size.into_iter().take(KINDS_MAX) {
        if bytes[kind] as f64 >= KIND_MIN * total as f64 {
            names[kind] = (kind as u16, material.kinds[kind].clone());
        }
    }
    // A single small kind keeps its name.
    let mut others = (0..bytes.len()).filter(|kind| names[*kind].0 == u16::MAX && bytes[*kind] > 0);
    if let (Some(only), None) = (others.next(), others.next()) {
        let name = &material.kinds[only];
        names[only] = (only as u16, if name == kind::NONE { kind::NONE.to_owned() } else { name.clone() });
    }
    names
}

/// Runs of pieces of a file that hold data, as (first, last).
pub(crate) fn piece_runs(size: u64, parts: Option<&[(u64, u64)]>, piece: u64) -> Vec<(u64, u64)> {
    let Some(parts) = parts else { return vec![(0, (size - 1) / piece)] };
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for (offset, len) in parts.iter().filter(|(_, len)| *len > 0) {
        let (first, last) = (offset / piece, (offset + len - 1) / piece);
        match runs.last_mut() {
            Some(run) if first <= run.1 => run.1 = run.1.max(last),
            _ => runs.push((first, last)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn material() -> (tempfile::TempDir, Material) {
        struct Deaf;
        impl crate::Watch for Deaf {
            fn event(&self, _: crate::Event<'_>) {}
            fn stopped(&self) -> bool {
                false
            }
        }
        let dir = tempfile::tempdir().unwrap();
        for number in 0..40 {
            std::fs::write(dir.path().join(format!("{number}.txt")), vec![1; 1000 * number]).unwrap();
        }
        std::fs::write(dir.path().join("big.bin"), vec![2; 10_000_000]).unwrap();
        let survey = super::super::survey::Survey {
            until: std::time::Instant::now() + std::time::Duration::from_secs(3600),
            seed: 1,
            unpack: false,
            watch: &Deaf,
        };
        let mut material = Material::new();
        material.add_path(dir.path(), &survey).unwrap();
        (dir, material)
    }

    #[test]
    fn every_piece_is_drawn_once() {
        let (_dir, material) = material();
        let mut strata = Strata::new(&material, 1 << 20, &[], 5);
        let mut seen = HashSet::new();
        let mut bytes = 0;
        while let Some(draw) = strata.draw(&material) {
            assert!(seen.insert((draw.file, draw.offset)));
            bytes += draw.len;
        }
        assert_eq!(bytes, material.bytes);
        assert_eq!(bytes as f64, strata.all.iter().map(|stratum| stratum.bytes).sum::<f64>());
    }

    #[test]
    fn a_beginning_is_spread_in_proportion_and_depends_on_the_seed_alone() {
        let (_dir, material) = material();
        let first = |seed| {
            let mut strata = Strata::new(&material, 64 << 10, &[], seed);
            (0..100).map_while(|_| strata.draw(&material)).collect::<Vec<_>>()
        };
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
        let big: u64 = first(3).iter().filter(|draw| draw.len == 64 << 10).map(|draw| draw.len).sum();
        assert!(big > 4_000_000, "{big}");
    }

    #[test]
    fn pieces_without_data_are_not_drawn() {
        assert_eq!(
            piece_runs(10 << 20, Some(&[(0, 1), (5, 10), (3 << 20, 2 << 20)]), 1 << 20),
            [(0, 0), (3, 4)]
        );
        assert_eq!(piece_runs(10, None, 1 << 20), [(0, 0)]);
    }
}
