//! craft FOLDER [COUNT]: writes the crafted pools as FOLDER/NAME.img, and COUNT pools with changes by chance. All their
//! checksums are right. `tests/hostile` takes them through the program.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use sim::forge::{self, Patches, Source};

/// Ranges of zeros that are this long, in bytes, become holes.
const CHUNK: usize = 64 << 10;

fn write(source: &Source, patches: &Patches, path: &Path) -> io::Result<()> {
    let file = File::create(path)?;
    let image = source.image();
    file.set_len(image.len() as u64)?;
    for (number, chunk) in image.chunks(CHUNK).enumerate() {
        if chunk.iter().any(|byte| *byte != 0) {
            file.write_all_at(chunk, (number * CHUNK) as u64)?;
        }
    }
    patches.iter().try_for_each(|(offset, bytes)| file.write_all_at(bytes, *offset))
}

fn main() -> io::Result<()> {
    let mut args = std::env::args_os().skip(1);
    let wrong = || io::Error::other("usage: craft FOLDER [COUNT]");
    let folder = PathBuf::from(args.next().ok_or_else(wrong)?);
    let count = args.next().map_or(Some(0), |word| word.to_str()?.parse::<u64>().ok()).ok_or_else(wrong)?;
    let source = forge::sample();
    for (name, patches) in forge::crafted(&source) {
        write(&source, &patches, &folder.join(format!("{name}.img")))?;
    }
    for seed in 0..count {
        let patches = forge::damage(&source, seed);
        write(&source, &patches, &folder.join(format!("chance-{seed}.img")))?;
    }
    Ok(())
}
