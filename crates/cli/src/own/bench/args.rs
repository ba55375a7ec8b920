//! The command line of `cenote bench`.

use std::path::PathBuf;

use bench::THREADS_MAX;
use clap::Args;

use crate::own::args::size;

#[derive(Debug, Args)]
#[command(after_help = "\
Two times are measured. Writing begins with the first file and ends when everything is safe on the disk. Reading begins \
with empty caches; every byte is read once. Then everything is read again and compared with the files; this is not timed. \
With fewer --threads than cores, everything runs on so many cores. The temporary pool is a file without a name: nothing is \
left behind, however the command ends. docs/manual/bench.md has more.

Examples:
  cenote bench ~/photos
  cenote bench --compression off,lz4,zstd-3 --repeat 3 --report photos.html ~/photos
  cenote bench --social top.png --recordsize 128K,1M ~/photos")]
pub struct Bench {
    /// Compressions to measure, such as off,lz4,zstd-3. gzip can have its engine: gzip-6@isal.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub compression: Vec<String>,
    /// Record sizes to measure, such as 128K,1M.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = size)]
    pub recordsize: Vec<u64>,
    /// Compressions with record sizes, such as zstd-1:1M,lz4:128K. Only these are measured.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = pair, conflicts_with_all = ["compression", "recordsize"])]
    pub pair: Vec<(String, u64)>,
    /// Numbers of threads to measure with. "sweep" is 1, 2, 4 … all.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = threads)]
    pub threads: Vec<Threads>,
    /// Bytes to write, such as 1G,4G,16G. Files that are less than that are written several times.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = size)]
    pub total: Vec<u64>,
    /// Measure each setting N times: the median is shown, and how much the times differ.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: Option<u32>,
    /// zfs_dirty_data_max of the pool: so much data goes into memory before writers have to wait.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub dirty_max: Option<u64>,
    /// Measure as if the disk wrote no more bytes in a second than this, such as 200M.
    #[arg(long, value_name = "RATE", value_parser = bench::parse_rate, conflicts_with = "pool")]
    pub disk_write: Option<u64>,
    /// The same for reading.
    #[arg(long, value_name = "RATE", value_parser = bench::parse_rate, conflicts_with = "pool")]
    pub disk_read: Option<u64>,
    /// Measure as if the files came over a network of so many bytes in a second, such as 110M.
    #[arg(long, value_name = "RATE", value_parser = bench::parse_rate)]
    pub network: Option<u64>,
    /// Also do the same work in this folder of another file system (may be repeated).
    #[arg(long, value_name = "DIR")]
    pub against: Vec<PathBuf>,
    /// Run a program on the mounted dataset and time it: "NAME: COMMAND with {dir} and {threads}" (may be repeated).
    #[arg(long, value_name = "STEP")]
    pub command: Vec<String>,
    /// Also compress each file as a whole, with gzip and zstd.
    #[arg(long)]
    pub streams: bool,
    /// Read from this file what to measure. Options of the command line count more.
    #[arg(long, value_name = "FILE")]
    pub experiment: Option<PathBuf>,
    /// Keep finished results in this file. After an interruption, the same command goes on from there.
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
    /// Show all columns of the table, however long the lines get.
    #[arg(long)]
    pub wide: bool,
    /// Folder for the temporary pool. Unless given: the folder for temporary files.
    #[arg(long, value_name = "DIR", conflicts_with = "pool")]
    pub dir: Option<PathBuf>,
    /// Measure in datasets of this pool, not in a temporary one. It must be exported: cenote -d FILE bench --pool POOL.
    #[arg(long, value_name = "POOL")]
    pub pool: Option<String>,
    /// Measure with generated data, such as fastq:256M, fits:1G, sample (may be repeated).
    #[arg(long, value_name = "KIND:SIZE", conflicts_with = "paths")]
    pub data: Vec<String>,
    /// Files and folders to measure with. Without any: the small sample that comes with cenote.
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
