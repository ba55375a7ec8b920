//! seeds DIR IMAGE.zst… : writes what the images of golden pools hold as DIR/TARGET/golden-NUMBER, to fuzz from.

use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, fs, io};

fn write() -> io::Result<()> {
    let mut args = env::args_os().skip(1).map(PathBuf::from);
    let dir = args.next().ok_or_else(|| io::Error::other("usage: seeds DIR IMAGE.zst…"))?;
    let mut seeds = targets::seeds::Seeds::default();
    for path in args {
        seeds.add_image(&zstd::decode_all(fs::File::open(path)?)?);
    }
    for (target, inputs) in seeds.all() {
        fs::create_dir_all(dir.join(target))?;
        for (number, input) in inputs.iter().enumerate() {
            fs::write(dir.join(target).join(format!("golden-{number:03}")), input)?;
        }
        println!("{target}: {} seeds", inputs.len());
    }
    Ok(())
}

fn main() -> ExitCode {
    match write() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("seeds: {error}");
            ExitCode::FAILURE
        }
    }
}
