//! The command line of `cenote bench`.

use std::path::PathBuf;

use bench::THREADS_MAX;
use clap::Args;

use crate::own::args::size;

#[derive(Debug, Args)]
#[command(after_help = "\
What is timed: writing from the first file until everything is durable, and reading every byte once into a buffer of \
its reader after the pool was opened again with cold caches; warm reads do that once more from the cache of the pool. \
Comparing with the source is not timed. With fewer --threads than cores \
everything is held to that many cores. A temporary pool is a nameless file: nothing is left behind, however the \
command ends. docs/manual/bench.md tells more.

Examples:
  cenote bench ~/photos
  cenote bench --compression off,lz4,zstd-3 --repeat 3 --report photos.html ~/photos
  cenote bench --social top.png --recordsize 128K,1M ~/photos")]
pub struct Bench {
    /// Compressions to measure; gzip perhaps with its engine, such as gzip-6@isal.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub compression: Vec<String>,
    /// Record sizes to measure, such as 128K,1M.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = size)]
    pub recordsize: Vec<u64>,
    /// Compressions with record sizes, such as zstd-1:1M,lz4:128K, instead of all with all.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = pair, conflicts_with_all = ["compression", "recordsize"])]
    pub pair: Vec<(String, u64)>,
    /// Numbers of threads to measure with; "sweep": 1, 2, 4 … all.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = threads)]
    pub threads: Vec<Threads>,
    /// Bytes to write, such as 1G,4G,16G: of the source or of several copies of it.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = size)]
    pub total: Vec<u64>,
    /// Runs of each; the median and the spread are reported.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: Option<u32>,
    /// Bytes of changes that the pool gathers at most (zfs_dirty_data_max).
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub dirty_max: Option<u64>,
    /// Hold the temporary pool to a device that writes so many bytes a second, such as 200M.
    #[arg(long, value_name = "RATE", value_parser = bench::parse_rate, conflicts_with = "pool")]
    pub disk_write: Option<u64>,
    /// The same for reading.
    #[arg(long, value_name = "RATE", value_parser = bench::parse_rate, conflicts_with = "pool")]
    pub disk_read: Option<u64>,
    /// Let the files come and go over a network that brings so many bytes a second, such as 110M.
    #[arg(long, value_name = "RATE", value_parser = bench::parse_rate)]
    pub network: Option<u64>,
    /// Do the same work in this folder of another file system (may be repeated).
    #[arg(long, value_name = "DIR")]
    pub against: Vec<PathBuf>,
    /// Run a program on the mounted dataset and time it: "NAME: COMMAND with {dir} and {threads}" (may be repeated).
    #[arg(long, value_name = "STEP")]
    pub command: Vec<String>,
    /// Compress the files as whole streams too (gzip, zstd).
    #[arg(long)]
    pub streams: bool,
    /// What to measure is in this file; other options come before it.
    #[arg(long, value_name = "FILE")]
    pub experiment: Option<PathBuf>,
    /// Keep what was measured in this file, and go on from what it has.
    #[arg(long, value_name = "FILE")]
    pub resume: Option<PathBuf>,
    /// Write the results as a page (HTML in one file).
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Write the charts as a picture.
    #[arg(long, value_name = "FILE")]
    pub png: Option<PathBuf>,
    /// Write one picture of 1200 x 630 pixels, for the top of an article.
    #[arg(long, value_name = "FILE")]
    pub social: Option<PathBuf>,
    /// Write the results as JSON ("-": standard output).
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
    /// Write the results as CSV.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Write the results as Markdown.
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
    /// Write CPU and devices over time as CSV.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Where the temporary pool goes (the folder for temporary files unless given).
    #[arg(long, value_name = "DIR", conflicts_with = "pool")]
    pub dir: Option<PathBuf>,
    /// Measure in datasets of this pool instead of a temporary one. It must be exported, and found through -d: cenote -d
    /// FILE bench --pool POOL.
    #[arg(long, value_name = "POOL")]
    pub pool: Option<String>,
    /// Measure with data made on the spot, such as fastq:256M, fits:1G, sample (may be repeated).
    #[arg(long, value_name = "KIND:SIZE", conflicts_with = "paths")]
    pub data: Vec<String>,
    /// Files and folders to measure with; without any, the small sample that comes with cenote.
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,
}

/// How many threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    Count(u32),
    Sweep,
}

impl Threads {
    /// The numbers of threads of a list.
    pub fn counts(list: &[Threads]) -> Vec<u32> {
        let all = std::thread::available_parallelism().map_or(1, usize::from) as u32;
        let sweep = || (0..32).map(|power| 1 << power).take_while(move |count| *count < all).chain([all]);
        let of = |threads: &Threads| match threads {
            Threads::Count(count) => vec![*count],
            Threads::Sweep => sweep().collect(),
        };
        list.iter().flat_map(of).collect()
    }
}

fn threads(text: &str) -> Result<Threads, String> {
    match text.parse() {
        Ok(count) if (1..=THREADS_MAX).contains(&count) => Ok(Threads::Count(count)),
        _ if text == "sweep" => Ok(Threads::Sweep),
        _ => Err(format!("it is neither a number from 1 to {THREADS_MAX} nor \"sweep\"")),
    }
}

fn pair(text: &str) -> Result<(String, u64), String> {
    let (compression, bytes) = text.split_once(':').ok_or("it is not of the form COMPRESSION:RECORDSIZE")?;
    Ok((compression.to_owned(), size(bytes).map_err(|error| error.to_string())?))
}
