//! The command line of `cenote advise`.

use std::path::PathBuf;

use clap::Args;

use crate::own::args::{place, size};
use crate::place::Place;

/// Arguments that have no meaning with a table instead of data.
const OF_DATA: [&str; 16] = [
    "goal",
    "disk_write",
    "disk_read",
    "network",
    "dirty_max",
    "layout",
    "ashift",
    "recordsize",
    "compression",
    "time",
    "seed",
    "dedup",
    "unpack",
    "dir",
    "report",
    "paths",
];

#[derive(Debug, Args)]
#[command(after_help = "\
Nothing is kept: only names and sizes of all files are looked at, and a sample of the data is encoded in memory as ZFS \
would. Disks are measured in a nameless temporary file unless their rates are given. A place in a pool is written \
DATASET[@SNAPSHOT]:/path and only read; '-' is standard input. Rates are in millions of bytes per second.

Examples:
  cenote advise ~/photos
  cenote advise --goal archive --recordsize 128K,1M tank/home
  cenote advise --report answer.html --layout raidz1:5 ~/data")]
pub struct Advise {
    /// What the data is for: the first pick, and what kinds of files are judged by.
    #[arg(long, value_enum, default_value_t = Goal::Balanced)]
    pub goal: Goal,
    /// What all disks of the pool together take, parity and copies included; measured unless given.
    #[arg(long, value_name = "MB/s", value_parser = rate)]
    pub disk_write: Option<f64>,
    /// What all disks of the pool together give; measured unless given.
    #[arg(long, value_name = "MB/s", value_parser = rate)]
    pub disk_read: Option<f64>,
    /// Cores of the target; those of this machine unless given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub cores: Option<u32>,
    /// Cores that other work keeps busy.
    #[arg(long, value_name = "N", default_value_t = 0.0, value_parser = not_negative)]
    pub busy_cores: f64,
    /// What the network brings, if the data comes over one.
    #[arg(long, value_name = "MB/s", value_parser = rate)]
    pub network: Option<f64>,
    /// zfs_dirty_data_max of the target: how much comes in before writers are held up.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub dirty_max: Option<u64>,
    /// stripe, mirror:N, raidz1:N, raidz2:N or raidz3:N, N being the disks of one device.
    #[arg(long, default_value = "stripe")]
    pub layout: bench::advise::Layout,
    /// Sectors of the pool have 2^N bytes.
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(9..=16))]
    pub ashift: u32,
    /// Record sizes to consider (128K,1M unless given).
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = size)]
    pub recordsize: Vec<u64>,
    /// Compressions to consider.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub compression: Vec<String>,
    /// Seconds that it may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0, value_parser = positive)]
    pub time: f64,
    /// Which sample is drawn.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Read everything to tell what deduplication would do.
    #[arg(long)]
    pub dedup: bool,
    /// Look at the files in a tar instead of the tar.
    #[arg(long, requires = "paths")]
    pub unpack: bool,
    /// Where the disks are measured (where the data is unless given).
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// The answer as JSON.
    #[arg(long)]
    pub json: bool,
    /// All columns of the table, however narrow the terminal is.
    #[arg(long)]
    pub wide: bool,
    /// Write the answer as a page (HTML in one file), too.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Published tables in TOML instead of data.
    #[arg(long, value_name = "FILE", conflicts_with_all = OF_DATA)]
    pub from_table: Option<PathBuf>,
    /// Files, folders, block devices, DATASET[@SNAPSHOT]:/path, or '-'; without any, the small sample that comes with
    /// cenote.
    #[arg(value_name = "PATH", value_parser = place())]
    pub paths: Vec<Place>,
}

/// What data is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Goal {
    /// Space against time.
    Balanced,
    /// Time first.
    Speed,
    /// Space first, at any price.
    Space,
    /// Space first, but no waste of time.
    Archive,
}

impl From<Goal> for bench::advise::Goal {
    fn from(goal: Goal) -> bench::advise::Goal {
        match goal {
            Goal::Balanced => bench::advise::Goal::Balanced,
            Goal::Speed => bench::advise::Goal::Speed,
            Goal::Space => bench::advise::Goal::Space,
            Goal::Archive => bench::advise::Goal::Archive,
        }
    }
}

/// Millions of bytes a second: from what `bench` takes up to what no machine moves.
fn rate(text: &str) -> Result<f64, String> {
    let number = not_negative(text)?;
    match (1.0..=1e6).contains(&number) {
        true => Ok(number),
        false => Err("it must be from 1 to 1000000 MB/s".to_owned()),
    }
}

fn positive(text: &str) -> Result<f64, String> {
    not_negative(text).and_then(|n| if n > 0.0 { Ok(n) } else { Err("it must be above 0".to_owned()) })
}

fn not_negative(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0);
    number.ok_or_else(|| "it is no number from 0 on".to_owned())
}
