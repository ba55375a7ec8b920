//! Generated corpora: synthetic data of the kinds in published comparisons.
//!
//! From:   the name of a kind, a size and a seed: the same give the same bytes.
//! To:     a [`Source`](crate::Source). They only resemble the real thing: what they show is the order of compressions,
//!         not what real data yields.

use storage::host::{Entropy as _, SeededEntropy};

/// The kinds of corpora, with descriptions.
pub const CORPORA: [(&str, &str); 6] = [
    ("fastq", "reads of a sequencer: names, bases, qualities"),
    ("fasta", "nucleotides with repeats, as in a database of genomes"),
    ("fits", "an astronomical image: 16-bit numbers, background, noise, stars"),
    ("source", "text of a program: words that come again"),
    ("noise", "data that is compressed already"),
    ("zeros", "zeros, as a database fills files before it uses them"),
];

/// About a bell curve of this width around 0.
fn bell(random: &SeededEntropy, width: f64) -> f64 {
    let sum: f64 = (0..4).map(|_| random.below(10_000) as f64 / 10_000.0 - 0.5).sum();
    sum * width * 1.7
}

/// `bytes` of the kind `name`; `None` if there is no such kind.
#[must_use]
pub fn generate(name: &str, bytes: usize, seed: u64) -> Option<Vec<u8>> {
    generate_until(name, bytes, seed, &|| false)
}

/// As [`generate`], but for less where it was stopped.
pub(crate) fn generate_until(
    name: &str,
    bytes: usize,
    seed: u64,
    stopped: &dyn Fn() -> bool,
) -> Option<Vec<u8>> {
    let random = &SeededEntropy::new(seed);
    let mut data = Vec::with_capacity(bytes + 4096);
    let is_done = |data: &[u8]| data.len() >= bytes || stopped();
    match name {
        "zeros" => data.resize(bytes, 0),
        "noise" => {
            while !is_done(&data) {
                (0..512).for_each(|_| data.extend(random.u64().to_le_bytes()));
            }
        }
        "fastq" => fastq(&mut data, &is_done, random),
        "fasta" => fasta(&mut data, &is_done, random),
        "fits" => fits(&mut data, bytes, &is_done, random),
        "source" => source(&mut data, &is_done, random),
        _ => return None,
    }
    data.truncate(bytes);
    Some(data)
}

/// Whether that is enough.
type IsDone<'a> = &'a dyn Fn(&[u8]) -> bool;

fn base(random: &SeededEntropy) -> u8 {
    b"ACGT"[random.below(4) as usize]
}

fn fastq(data: &mut Vec<u8>, is_done: IsDone<'_>, random: &SeededEntropy) {
    const READ: usize = 101;
    // Reads of one small genome cover each place several times.
    let genome: Vec<u8> = (0..20_000).map(|_| base(random)).collect();
    let (mut tile, mut x) = (1101u64, 1000u64);
    for number in 1.. {
        if is_done(data) {
            return;
        }
        x += 1 + random.below(40);
        if x > 20_000 {
            (tile, x) = (tile + 1, 1000 + random.below(100));
        }
        let y = 2000 + random.below(98_000);
        data.extend(format!("@DRR081404.{number} HWI-ST1234:8:{tile}:{x}:{y}/1\n").bytes());
        let at = random.below((genome.len() - READ) as u64) as usize;
        for letter in &genome[at..at + READ] {
            data.push(if random.below(100) == 0 { base(random) } else { *letter });
        }
        data.extend(b"\n+\n");
        // Qualities begin high and fall, in runs.
        let mut quality = 40 - random.below(4) as i64;
        for place in 0..READ {
            if random.below(3) == 0 {
                quality = (quality + bell(random, 5.0) as i64
                    - i64::from(place > 60 && random.below(3) == 0))
                .clamp(2, 41);
            }
            data.push(33 + quality as u8);
        }
        data.push(b'\n');
    }
}

fn fasta(data: &mut Vec<u8>, is_done: IsDone<'_>, random: &SeededEntropy) {
    const LINE: usize = 80;
    const SEQUENCE: usize = 40_000;
    /// The distance to the earlier text that is repeated.
    const BACK: usize = 1500;
    for number in 1.. {
        if is_done(data) {
            return;
        }
        let chromosome = number % 24;
        data.extend(
            format!(">gi|{} ref|NC_{number:06}.1| chromosome {chromosome}\n", 100_000 + number).bytes(),
        );
        let mut sequence: Vec<u8> = Vec::with_capacity(SEQUENCE + 1000);
        while sequence.len() < SEQUENCE {
            // Every third stretch comes again, with a letter changed here and there.
            let again = sequence.len() > BACK && random.below(3) == 0;
            for _ in 0..200 + random.below(600) {
                let letter = match again && random.below(100) != 0 {
                    true => sequence[sequence.len() - BACK],
                    false => base(random),
                };
                sequence.push(letter);
            }
        }
        for line in sequence.chunks(LINE) {
            data.extend(line);
            data.push(b'\n');
        }
    }
}

fn fits(data: &mut Vec<u8>, bytes: usize, is_done: IsDone<'_>, random: &SeededEntropy) {
    const CARD: usize = 80;
    const BLOCK: usize = 2880;
    const WIDTH: usize = 3008;
    let height = (bytes.saturating_sub(BLOCK) / 2 / WIDTH).max(1);
    let cards = [
        "SIMPLE  =                    T".to_owned(),
        "BITPIX  =                   16".to_owned(),
        "NAXIS   =                    2".to_owned(),
        format!("NAXIS1  = {WIDTH:>20}"),
        format!("NAXIS2  = {height:>20}"),
        "END".to_owned(),
    ];
    for card in cards {
        data.extend(format!("{card:<CARD$}").bytes());
    }
    data.resize(BLOCK, b' ');
    let mut star = 0.0;
    while !is_done(data) {
        let row = (data.len() - BLOCK) / 2 / WIDTH;
        for column in 0..WIDTH {
            if random.below(3000) == 0 {
                star = 500.0 + random.below(8000) as f64;
            }
            let background = 420.0 + row as f64 * 0.01 + column as f64 * 0.004;
            let value = (background + star + bell(random, 9.0)).clamp(0.0, 32_767.0) as i16;
            star *= 0.6;
            // The sensor has 14 bits: its steps are 4 apart.
            data.extend((value & !3).to_be_bytes());
        }
    }
}

fn source(data: &mut Vec<u8>, is_done: IsDone<'_>, random: &SeededEntropy) {
    const WORDS: [&str; 24] = [
        "static", "int", "struct", "return", "if", "else", "for", "while", "const", "char", "void",
        "uint64_t", "error", "buffer", "length", "offset", "device", "softc", "mutex", "lock", "unlock",
        "NULL", "sizeof", "case",
    ];
    let names: Vec<String> = (0..400)
        .map(|_| (0..3 + random.below(8)).map(|_| char::from(b'a' + random.below(26) as u8)).collect())
        .collect();
    while !is_done(data) {
        data.extend(std::iter::repeat_n(b'\t', random.below(4) as usize));
        for _ in 0..2 + random.below(6) {
            // Few names come often, many seldom.
            let seldom = random.below(names.len() as u64);
            let name = &names[random.below(seldom + 1) as usize];
            let word = if random.below(2) == 0 { WORDS[random.below(24) as usize] } else { name };
            data.extend(word.bytes());
            data.extend([" ", "(", ", ", "->", " = ", ")"][random.below(6) as usize].bytes());
        }
        data.extend(if random.below(5) == 0 { " {\n" } else { ";\n" }.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::compression_value;
    use format::compression::CompressionSetting;
    use pool::props::Value;

    /// Ratio of a compression, record by record.
    fn ratio(data: &[u8], word: &str) -> f64 {
        let Value::Number(value) = compression_value(word).unwrap() else { panic!("{word}") };
        let setting = CompressionSetting::from_property(value).unwrap();
        let mut packed = vec![0; 128 << 10];
        let bytes = |record: &[u8]| match codec::is_zero(record) {
            true => 1,
            false => {
                codec::compress(setting, record, &mut packed[..record.len() / 8 * 7]).unwrap_or(record.len())
            }
        };
        data.len() as f64 / data.chunks(128 << 10).map(bytes).sum::<usize>() as f64
    }

    #[test]
    fn each_kind_of_generated_data_has_the_wanted_size_and_follows_from_its_seed() {
        for (name, _) in CORPORA {
            let one = generate(name, 300_001, 7).unwrap();
            assert_eq!(one.len(), 300_001, "{name}");
            assert_eq!(one, generate(name, 300_001, 7).unwrap(), "{name}");
            assert!(generate(name, 0, 7).unwrap().is_empty() && generate(name, 1, 7).unwrap().len() == 1);
        }
        assert!(generate("fast", 1, 1).is_none());
    }

    /// The order of the published ratios; on bases lz4 and lzjb, gzip-6 and gzip-9 lie within 3 %.
    #[test]
    fn on_reads_and_nucleotides_the_order_of_ratios_is_the_published_one() {
        for (kind, near) in [("fastq", 1.0), ("fasta", 0.97)] {
            let data = generate(kind, 2 << 20, 1).unwrap();
            let [zle, lzjb, lz4, gzip1, gzip6, gzip9] =
                ["zle", "lzjb", "lz4", "gzip-1", "gzip-6", "gzip-9"].map(|word| ratio(&data, word));
            assert!(
                gzip9 >= gzip6 * near && gzip6 > gzip1 && gzip1 > lz4 && lz4 > lzjb * near && lzjb > zle,
                "{kind}: {:?}",
                [zle, lzjb, lz4, gzip1, gzip6, gzip9]
            );
            assert!(zle < 1.01, "{kind}: {zle}");
        }
    }

    #[test]
    fn generated_images_noise_zeros_and_text_compress_like_real_ones() {
        let image = generate("fits", 2 << 20, 1).unwrap();
        let [lz4, fast, one, three] =
            ["lz4", "zstd-fast-1", "zstd-1", "zstd-3"].map(|word| ratio(&image, word));
        assert!(lz4 < fast && fast < one && one <= three * 1.01 && lz4 > 1.05, "{lz4} {fast} {one} {three}");
        let noise = generate("noise", 1 << 20, 1).unwrap();
        assert!(["lz4", "gzip-9", "zstd-3"].iter().all(|word| ratio(&noise, word) == 1.0));
        assert!(ratio(&generate("zeros", 1 << 20, 1).unwrap(), "zle") > 100.0);
        let text = generate("source", 1 << 20, 1).unwrap();
        assert!(ratio(&text, "lzjb") < ratio(&text, "lz4") && ratio(&text, "lz4") < ratio(&text, "gzip-6"));
    }
}
