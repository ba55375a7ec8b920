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
It reads the names and sizes of all files, and a sample of the data, which it compresses in memory as ZFS would. Nothing is \
kept. To measure the disks it writes a test file without a name, unless --disk-write and --disk-read are given. A place in a \
pool is written DATASET[@SNAPSHOT]:/path, and is only read. '-' is standard input. MB/s are millions of bytes in a second.

Examples:
  cenote advise ~/photos
  cenote advise --goal archive --recordsize 128K,1M tank/home
  cenote advise --report answer.html --layout raidz1:5 ~/data")]
pub struct Advise {
    /// What the data is for: the first answer is for this goal.
    #[arg(long, value_enum, default_value_t = Goal::Balanced)]
    pub goal: Goal,
    /// What all disks of the pool together can write, with parity and copies. Unless given, it is measured.
    #[arg(long, value_name = "MB/s", value_parser = rate)]
    pub disk_write: Option<f64>,
    /// What all disks of the pool together can read. Unless given, it is measured.
    #[arg(long, value_name = "MB/s", value_parser = rate)]
    pub disk_read: Option<f64>,
    /// Cores of the machine that will have the data. Unless given: as many as this one has.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub cores: Option<u32>,
    /// How many of these cores other programs use.
    #[arg(long, value_name = "N", default_value_t = 0.0, value_parser = not_negative)]
    pub busy_cores: f64,
    /// Speed of the network, if the data comes over one.
    #[arg(long, value_name = "MB/s", value_parser = rate)]
    pub network: Option<f64>,
    /// zfs_dirty_data_max of the target: so much data goes into memory before writers have to wait.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub dirty_max: Option<u64>,
    /// stripe, mirror:N, raidz1:N, raidz2:N or raidz3:N, where N is the number of disks in one vdev. Unless given: that of the
    /// data's pool, else stripe.
    #[arg(long)]
    pub layout: Option<bench::advise::Layout>,
    /// Sectors of the pool have 2^N bytes. Unless given: as in the data's pool, else 12 (4 KiB).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(9..=16))]
    pub ashift: Option<u32>,
    /// Record sizes to compare. Unless given: 128K,1M.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = size)]
    pub recordsize: Vec<u64>,
    /// Compressions to compare, such as off,lz4,zstd-3. Unless given: all usual ones.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub compression: Vec<String>,
    /// Seconds that the answer may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0, value_parser = positive)]
    pub time: f64,
    /// Which sample is read: the same number reads the same sample.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Read everything, to say exactly what deduplication would save.
    #[arg(long)]
    pub dedup: bool,
    /// Look at the files in a tar archive, not at the archive as one file.
    #[arg(long, requires = "paths")]
    pub unpack: bool,
    /// Folder on the disks to measure. Unless given: where the data is.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Print the answer as JSON.
    #[arg(long)]
    pub json: bool,
    /// Show all columns of the table, however long the lines get.
    #[arg(long)]
    pub wide: bool,
    /// Also write the answer as a page: one HTML file.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Give advice on published figures, in a TOML file, and not on data.
    #[arg(long, value_name = "FILE", conflicts_with_all = OF_DATA)]
    pub from_table: Option<PathBuf>,
    /// Files, folders, block devices, datasets, DATASET[@SNAPSHOT]:/path, or '-'. Without any: the small sample that comes
    /// with cenote.
    #[arg(value_name = "PATH", value_parser = place())]
    pub paths: Vec<Place>,
}

/// What data is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Goal {
    /// Save space, but not for much time.
    Balanced,
    /// The least time.
    Speed,
    /// The least space, however long it takes.
    Space,
    /// Nearly the least space, without waste of time.
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
