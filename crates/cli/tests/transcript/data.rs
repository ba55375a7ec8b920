//! Sample files for transcripts, the same at every run.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;

/// A small generator of numbers (xorshift64*): the same seed gives the same numbers.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `n`.
    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 33) % n
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }
}

/// Makes the sample `kind` of about `size` bytes at `path`: a file, or a folder for those kinds that are trees.
///
/// # Errors
/// An unknown kind, or what the file system says.
pub fn make(path: &Path, kind: &str, size: u64) -> Result<(), String> {
    let seed = kind
        .bytes()
        .fold(0x9e37_79b9_7f4a_7c15, |seed, b| (seed ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    let mut dice = Dice(seed);
    let made = match kind {
        "nt" => file(path, size, |out| sequence(out, &mut dice)),
        "fastq" => {
            let mut read = 0;
            file(path, size, move |out| {
                read += 1;
                fastq(out, &mut dice, read)
            })
        }
        "zeros" => file(path, size, |out| out.write_all(&[0; 4096])),
        "random" => file(path, size, |out| out.write_all(&dice.next().to_le_bytes())),
        "fits" => tree(path, size, 2 << 20, "fits", |file_path, n, bytes| {
            if n % 8 == 7 {
                return file(file_path, bytes / 4, |out| out.write_all(&dice.next().to_le_bytes()));
            }
            image(file_path, bytes, &mut dice)
        }),
        "src" | "mixed" => sources(path, size, kind == "mixed", &mut dice),
        other => return Err(format!("unknown kind of data '{other}'")),
    };
    made.map_err(|e| format!("{}: {e}", path.display()))
}

/// The fastq text that recordings call `/run/text.fastq`: 2 191 560 bytes from a generator written for awk,
/// whose numbers are floating-point.
pub fn text_fastq() -> Vec<u8> {
    let mut state = 12345f64;
    let mut text = Vec::with_capacity(2_191_560);
    for i in 0..9000 {
        let (mut bases, mut qualities) = (Vec::new(), Vec::new());
        for _ in 0..90 {
            state = (state * 1_103_515_245.0 + 12345.0) % 2_147_483_648.0;
            bases.push(b"ACGT"[(state / 65536.0) as usize % 4]);
            qualities.extend(b"FFFFFF:,".get((state / 262_144.0) as usize % 8));
        }
        let line = |mark: char| format!("{mark}DRR081404.{i} {i} length=90\n");
        text.extend(line('@').bytes().chain(bases).chain([b'\n']));
        text.extend(line('+').bytes().chain(qualities).chain([b'\n']));
    }
    text
}

/// A file filled by `more` until it has `size` bytes.
fn file(
    path: &Path,
    size: u64,
    mut more: impl FnMut(&mut Vec<u8>) -> std::io::Result<()>,
) -> std::io::Result<()> {
    let mut out = BufWriter::new(File::create(path)?);
    let (mut written, mut piece) = (0, Vec::new());
    while written < size {
        piece.clear();
        more(&mut piece)?;
        written += piece.len() as u64;
        out.write_all(&piece)?;
    }
    out.flush()
}

/// Files of `each` bytes in a folder until they add up to `size`.
fn tree(
    path: &Path,
    size: u64,
    each: u64,
    extension: &str,
    mut one: impl FnMut(&Path, u64, u64) -> std::io::Result<()>,
) -> std::io::Result<()> {
    fs::create_dir_all(path)?;
    (0..size.div_ceil(each))
        .try_for_each(|n| one(&path.join(format!("{n:04}.{extension}")), n, each.min(size)))
}

/// Nucleotides in FASTA: headers, lines of 80, long repeats.
fn sequence(out: &mut Vec<u8>, dice: &mut Dice) -> std::io::Result<()> {
    writeln!(out, ">NC_{:06}.1 sample sequence", dice.below(1_000_000))?;
    let mut bases: Vec<u8> = Vec::new();
    while bases.len() < 16_000 {
        if bases.len() > 2000 && dice.below(60) == 0 {
            let from = dice.below(bases.len() as u64 - 400) as usize;
            bases.extend_from_within(from..from + 400);
        } else {
            bases.push(*dice.pick(b"ACGT"));
        }
    }
    bases.chunks(80).try_for_each(|line| {
        out.write_all(line)?;
        out.push(b'\n');
        Ok(())
    })
}

fn fastq(out: &mut Vec<u8>, dice: &mut Dice, read: u64) -> std::io::Result<()> {
    let bases: Vec<u8> = (0..90).map(|_| *dice.pick(b"ACGT")).collect();
    let qualities: Vec<u8> = (0..90).map(|_| *dice.pick(b"FFFFFFFFFFFF:,#")).collect();
    let text = String::from_utf8_lossy;
    writeln!(out, "@DRR081404.{read} {read} length=90\n{}", text(&bases))?;
    writeln!(out, "+DRR081404.{read} {read} length=90\n{}", text(&qualities))
}

/// A stack of images: a header of 2880 bytes, then 16-bit big-endian numbers that wander.
fn image(path: &Path, size: u64, dice: &mut Dice) -> std::io::Result<()> {
    let mut header = format!(
        "{:<80}{:<80}{:<80}",
        "SIMPLE  =                    T", "BITPIX  =                   16", "END"
    );
    header.push_str(&" ".repeat(2880 - header.len()));
    let mut level = 3000i64;
    let mut first = true;
    file(path, size, |out| {
        if std::mem::take(&mut first) {
            return out.write_all(header.as_bytes());
        }
        level = (level + dice.below(7) as i64 - 3).clamp(2900, 3200);
        let star = if dice.below(2000) == 0 { dice.below(30_000) as i64 } else { 0 };
        out.write_all(&((level + star) as u16).to_be_bytes())
    })
}

/// A tree of small text files; with `mixed` also packed ones. A path ending in `.tar.xz` gets the tree packed.
fn sources(path: &Path, size: u64, mixed: bool, dice: &mut Dice) -> std::io::Result<()> {
    const WORDS: [&str; 24] = [
        "static", "int", "return", "struct", "if", "else", "while", "for", "buffer", "offset", "length",
        "error", "node", "next", "size_t", "const", "char", "void", "break", "case", "switch", "NULL",
        "index", "value",
    ];
    let packed = path.extension().is_some_and(|e| e == "xz");
    let folder = if packed { path.with_extension("").with_extension("") } else { path.to_owned() };
    tree(&folder, size, 8192, "c", |file_path, n, bytes| {
        if mixed && n % 5 == 4 {
            return file(&file_path.with_extension("jar"), bytes, |out| {
                out.write_all(&dice.next().to_le_bytes())
            });
        }
        file(file_path, bytes, |out| {
            let words: Vec<&str> = (0..2 + dice.below(6)).map(|_| *dice.pick(&WORDS)).collect();
            writeln!(out, "\t{}(x{});", words.join(" "), dice.below(100))
        })
    })?;
    if packed {
        let parent = folder.parent().unwrap_or(Path::new("/"));
        let name = folder.file_name().unwrap_or_default();
        let status = Command::new("tar").arg("-cJf").arg(path).arg("-C").arg(parent).arg(name).status()?;
        if !status.success() {
            return Err(std::io::Error::other("tar failed"));
        }
        fs::remove_dir_all(&folder)?;
    }
    Ok(())
}
