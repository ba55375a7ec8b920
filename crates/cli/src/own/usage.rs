//! `cenote usage`: what folders and files take, and how well they compress.
//!
//! From:   a walk through a dataset or a snapshot.
//! To:     a table, the largest first, or JSON. The memory needed grows with the lines that are printed, the depth of the
//!         tree, and the number of files with several names.

use clap::Args;
use pool::props::number::nice_bytes;
use serde_json::json;

use super::args::read_path;
use super::sums::{self, Line};
use crate::around::Surroundings;
use crate::files::pools::Pools;
use crate::messages::Failure;
use crate::open::Intent;
use crate::out::{Console, quoted};
use crate::place::PoolPath;

/// Most lines that are kept: what is below them is in the sums of their folders.
const LINES_MAX: usize = 100_000;

/// Arguments of `usage`.
#[derive(Debug, Args)]
#[command(after_help = "\
SIZE is how long the files are, DISK what they take in the pool with their metadata and copies, RATIO the first over the \
second. Holes in files count as saved. A dataset below another counts as a folder in it. Blocks that snapshots or clones share are counted where they are found.

Examples:
  cenote usage tank/home
  cenote usage -a --depth 3 tank/home@monday:/photos
  cenote -d disk.img usage --json tank:/")]
pub struct Usage {
    /// Folders down to so many levels.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub depth: usize,
    /// Files, too.
    #[arg(short, long)]
    pub all: bool,
    /// Stay in the dataset: leave out the datasets below it.
    #[arg(short = 'x', long = "one-file-system")]
    pub one_dataset: bool,
    /// One JSON object per line of the table, in bytes.
    #[arg(long)]
    pub json: bool,
    /// A place in a pool: a dataset or a snapshot, and a path in it (without one, its root).
    #[arg(required = true, value_name = "DATASET[@SNAPSHOT][:/PATH]", value_parser = read_path())]
    pub places: Vec<PoolPath>,
}

/// Carries out `usage`.
///
/// # Errors
/// A place cannot be opened; standard output is gone.
pub fn run(args: &Usage, around: &Surroundings, console: &mut Console) -> Result<(), Failure> {
    let pools = Pools::open(args.places.iter().map(|place| (place, Intent::Files)), around)?;
    let mut heading = (!args.json).then_some("   SIZE    DISK   RATIO     FILES  NAME");
    for place in &args.places {
        let mut lines = gather(args, (place, &pools), console)?;
        heading.take().map_or(Ok(()), |heading| console.line(heading))?;
        // The place itself comes first.
        lines.sort_by(|a, b| {
            let by_size = || b.sum.disk.cmp(&a.sum.disk).then_with(|| a.path.cmp(&b.path));
            (a.depth > 0).cmp(&(b.depth > 0)).then_with(by_size)
        });
        for line in &lines {
            console.line(&shown(args, line))?;
        }
    }
    pools.finish()
}

fn gather(args: &Usage, place: (&PoolPath, &Pools), console: &mut Console) -> Result<Vec<Line>, Failure> {
    let mut lines = Vec::new();
    sums::of_place(place, args.one_dataset, console, |_, line| {
        let is_shown = line.depth == 0 || line.depth <= args.depth && (line.is_dir || args.all);
        if is_shown && (line.depth == 0 || lines.len() < LINES_MAX) {
            lines.push(line);
        }
        Ok(())
    })?;
    Ok(lines)
}

fn shown(args: &Usage, line: &Line) -> String {
    let Line { path, sum, .. } = line;
    if args.json {
        let name = String::from_utf8_lossy(path);
        let ratio = sum.ratio().map(|ratio| (ratio * 100.0).round() / 100.0);
        return json!({ "name": name, "size": sum.size, "disk": sum.disk, "ratio": ratio, "files": sum.files })
            .to_string();
    }
    let ratio = sum.ratio().map_or("-".to_owned(), |ratio| format!("{ratio:.2}x"));
    let (size, disk) = (nice_bytes(sum.size), nice_bytes(sum.disk));
    format!("{size:>7} {disk:>7} {ratio:>7} {:>9}  {}", sum.files, quoted(path))
}
