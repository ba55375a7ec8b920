//! cenote's own commands: files without a mount, images, checks, measurements.
//!
//! From:   `cenote [-d DIR|FILE]… COMMAND …`
//! To:     the engine; `cenote zfs …` and `cenote zpool …` go to [`crate::compat`].

mod advise;
#[cfg(test)]
mod asked;
mod bench;
mod change;
mod check;
mod copy;
mod engines;
mod generate;
mod list;
mod manifest;
mod mkfs;
pub(crate) mod operand;
mod ordered;
pub(crate) mod pools;
mod report;
pub(crate) mod serve;
mod show;
pub(crate) mod stop;
mod tune;
pub(crate) mod walk;

pub use self::bench::Bench;
pub use self::report::Report;
use crate::messages::Failure;
use crate::place::{Place, PoolPath};
use crate::usage::Program;
use crate::{Surroundings, out};
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
pub use copy::{io_words, umask};
use std::ffi::OsString;
use std::path::PathBuf;

/// OpenZFS pools in user space: create, fill, measure and read them without a kernel module.
#[derive(Debug, Parser)]
#[command(name = "cenote", version, disable_help_subcommand = false, arg_required_else_help = true)]
pub struct Cenote {
    /// Use pools found in this folder or image without importing them (may be repeated).
    #[arg(short = 'd', value_name = "DIR|FILE")]
    pub search: Vec<PathBuf>,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Copy files into a pool, out of it, or from one place in it to another.
    Cp(Cp),
    /// List what is at a place.
    Ls(Ls),
    /// Write files to standard output.
    Cat(Cat),
    /// Show folders as a tree.
    Tree(Tree),
    /// Remove files.
    Rm(Rm),
    /// Make folders.
    Mkdir(Mkdir),
    /// Rename or move inside a dataset.
    Mv(Mv),
    /// Show everything known about a file.
    Stat(Stat),
    /// Add up the space that files take.
    Du(Du),
    /// Make a pool image from a folder.
    Mkfs(Mkfs),
    /// Verify every block, the space accounting and all folders.
    Check(Check),
    /// Measure compression on your own files.
    Bench(Box<Bench>),
    /// Show a measurement again, or compare two.
    Report(Report),
    /// Say what to set for your data, from a sample of it.
    Advise(Advise),
    /// Hold an imported pool: mount it, and carry out commands on it.
    Serve(Serve),
    /// Show which code compresses and sums up here, and how fast.
    Engines(Engines),
    /// Show and set tunables such as zfs_dirty_data_max.
    Tune(Tune),
    /// Write manual pages, or completions for shells.
    Generate(Generate),
    /// The zfs command.
    #[command(disable_help_flag = true)]
    Zfs(Words),
    /// The zpool command.
    #[command(disable_help_flag = true)]
    Zpool(Words),
}

/// Words handed on as they are.
#[derive(Debug, Args)]
pub struct Words {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    pub words: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct Cp {
    /// Copy folders with all they hold.
    #[arg(short = 'r', visible_short_alias = 'R', long)]
    pub recursive: bool,
    /// Keep modes, owners, times and extended attributes.
    #[arg(short, long)]
    pub preserve: bool,
    /// No progress.
    #[arg(short, long)]
    pub quiet: bool,
    /// A summary in JSON on standard output.
    #[arg(long)]
    pub json: bool,
    /// What to copy.
    #[arg(required = true, num_args = 1.., value_name = "SOURCE", value_parser = place())]
    pub sources: Vec<Place>,
    /// Where to: a local path or DATASET:/path.
    #[arg(value_name = "DESTINATION", value_parser = place())]
    pub destination: Place,
}

#[derive(Debug, Args)]
pub struct Ls {
    /// Modes, links, owners, sizes and times.
    #[arg(short)]
    pub long: bool,
    /// Folders with all they hold.
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// One JSON object per entry.
    #[arg(long)]
    pub json: bool,
    /// The SHA-256 of each file (with --json).
    #[arg(long, requires = "json")]
    pub sha256: bool,
    #[arg(required = true, value_name = "DATASET[@SNAPSHOT]:/PATH", value_parser = pool_path())]
    pub places: Vec<PoolPath>,
}

#[derive(Debug, Args)]
pub struct Cat {
    #[arg(required = true, value_name = "DATASET[@SNAPSHOT]:/PATH", value_parser = pool_path())]
    pub places: Vec<PoolPath>,
}

#[derive(Debug, Args)]
pub struct Tree {
    #[arg(required = true, value_name = "DATASET[@SNAPSHOT]:/PATH", value_parser = pool_path())]
    pub places: Vec<PoolPath>,
}

#[derive(Debug, Args)]
pub struct Rm {
    /// Folders with all they hold.
    #[arg(short = 'r', visible_short_alias = 'R', long)]
    pub recursive: bool,
    /// What is not there is no error.
    #[arg(short, long)]
    pub force: bool,
    #[arg(required = true, value_name = "DATASET:/PATH", value_parser = pool_path())]
    pub places: Vec<PoolPath>,
}

#[derive(Debug, Args)]
pub struct Mkdir {
    /// Make missing parents; a folder that exists is no error.
    #[arg(short, long)]
    pub parents: bool,
    #[arg(required = true, value_name = "DATASET:/PATH", value_parser = pool_path())]
    pub places: Vec<PoolPath>,
}

#[derive(Debug, Args)]
pub struct Mv {
    #[arg(required = true, num_args = 1.., value_name = "SOURCE", value_parser = pool_path())]
    pub sources: Vec<PoolPath>,
    #[arg(value_name = "DESTINATION", value_parser = pool_path())]
    pub destination: PoolPath,
}

#[derive(Debug, Args)]
pub struct Stat {
    #[arg(required = true, value_name = "DATASET[@SNAPSHOT]:/PATH", value_parser = pool_path())]
    pub places: Vec<PoolPath>,
}

#[derive(Debug, Args)]
pub struct Du {
    /// Only the total of each operand.
    #[arg(short, long)]
    pub summarize: bool,
    #[arg(required = true, value_name = "DATASET[@SNAPSHOT]:/PATH", value_parser = pool_path())]
    pub places: Vec<PoolPath>,
}

#[derive(Debug, Args)]
pub struct Mkfs {
    /// The folder whose contents go into the image.
    #[arg(short, value_name = "DIR")]
    pub dir: PathBuf,
    /// A property of the root dataset (may be repeated).
    #[arg(short, value_name = "PROPERTY=VALUE")]
    pub options: Vec<String>,
    /// The size of the image, such as 4G; without it, as much as the files need.
    #[arg(long, value_parser = size)]
    pub size: Option<u64>,
    /// The name of the pool; without it, that of the folder.
    #[arg(long)]
    pub name: Option<String>,
    /// No progress, and no word about what was made.
    #[arg(short, long)]
    pub quiet: bool,
    pub image: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "\
In the foreground it logs to standard error and ends on SIGTERM or Ctrl-C: everything is written, unmounted and \
exported. 'zpool create' and 'zpool import' start it in the background, 'zpool export' ends it.")]
pub struct Serve {
    /// Stay in the foreground (the default).
    #[arg(long, conflicts_with = "background")]
    pub foreground: bool,
    /// Come back when everything is mounted.
    #[arg(long)]
    pub background: bool,
    /// Mount nothing yet.
    #[arg(long)]
    pub no_mount: bool,
    /// Standard output is read by whoever waits in the foreground.
    #[arg(long, hide = true)]
    pub ready: bool,
    #[arg(value_name = "POOL")]
    pub pool: String,
}

#[derive(Debug, Args)]
pub struct Check {
    /// The verdict in JSON.
    #[arg(long)]
    pub json: bool,
    #[arg(required = true, value_name = "POOL|IMAGE")]
    pub pools: Vec<OsString>,
}

#[derive(Debug, Args)]
pub struct Engines {
    /// Everything in JSON.
    #[arg(long)]
    pub json: bool,
    /// Instead: how many records each engine of gzip has made in this pool since it was imported.
    #[arg(value_name = "POOL")]
    pub pool: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Nothing is kept: only names and sizes of all files are looked at, and a sample of the data is encoded in memory as ZFS \
would. Disks are measured in a nameless temporary file unless their rates are given. A place in a pool is written \
DATASET[@SNAPSHOT]:/path and only read; '-' is standard input. Rates are in millions of bytes per second.")]
pub struct Advise {
    /// What the data is for: the first pick, and what kinds of files are judged by.
    #[arg(long, value_enum, default_value_t = Goal::Balanced)]
    pub goal: Goal,
    /// What all disks of the pool together take, parity and copies included; measured unless given.
    #[arg(long, value_name = "MB/s", value_parser = positive)]
    pub disk_write: Option<f64>,
    /// What all disks of the pool together give; measured unless given.
    #[arg(long, value_name = "MB/s", value_parser = positive)]
    pub disk_read: Option<f64>,
    /// Cores of the target; those of this machine unless given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub cores: Option<u32>,
    /// Cores that other work keeps busy.
    #[arg(long, value_name = "N", default_value_t = 0.0, value_parser = not_negative)]
    pub busy_cores: f64,
    /// What the network brings, if the data comes over one.
    #[arg(long, value_name = "MB/s", value_parser = positive)]
    pub network: Option<f64>,
    /// zfs_dirty_data_max of the target: how much comes in before writers are held up.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub dirty_max: Option<u64>,
    /// stripe, mirror:N, raidz1:N, raidz2:N or raidz3:N, N being the disks of one device.
    #[arg(long, default_value = "stripe")]
    pub layout: ::bench::advise::Layout,
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
    #[arg(long)]
    pub unpack: bool,
    /// Where the disks are measured (where the data is unless given).
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// The answer as JSON.
    #[arg(long)]
    pub json: bool,
    /// Write the answer as a page (HTML in one file), too.
    #[arg(long, value_name = "FILE", conflicts_with = "from_table")]
    pub report: Option<PathBuf>,
    /// Published tables in TOML instead of data.
    #[arg(long, value_name = "FILE", conflicts_with = "paths")]
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

impl From<Goal> for ::bench::advise::Goal {
    fn from(goal: Goal) -> ::bench::advise::Goal {
        match goal {
            Goal::Balanced => ::bench::advise::Goal::Balanced,
            Goal::Speed => ::bench::advise::Goal::Speed,
            Goal::Space => ::bench::advise::Goal::Space,
            Goal::Archive => ::bench::advise::Goal::Archive,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Without a pool: the values that pools are opened with, and where each comes from. NAME=VALUE is written into \
$XDG_CONFIG_HOME/cenote/config.toml; the environment (CENOTE_ZFS_TXG_TIMEOUT=10) comes before the files. With a pool: \
the values in effect there; NAME=VALUE changes them until the pool is exported.")]
pub struct Tune {
    /// The values in JSON.
    #[arg(long)]
    pub json: bool,
    #[arg(value_name = "[POOL] [NAME[=VALUE]]")]
    pub words: Vec<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Below DIR come man1 and man8, or bash, zsh and fish. Pages and completions tell of zfs, zpool and cenote as this program \
reads them.")]
pub struct Generate {
    pub what: generate::What,
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

impl Command {
    const fn name(&self) -> &'static str {
        match self {
            Command::Cp(_) => "cp",
            Command::Ls(_) => "ls",
            Command::Cat(_) => "cat",
            Command::Tree(_) => "tree",
            Command::Rm(_) => "rm",
            Command::Mkdir(_) => "mkdir",
            Command::Mv(_) => "mv",
            Command::Stat(_) => "stat",
            Command::Du(_) => "du",
            Command::Mkfs(_) => "mkfs",
            Command::Check(_) => "check",
            Command::Bench(_) => "bench",
            Command::Report(_) => "report",
            Command::Advise(_) => "advise",
            Command::Serve(_) => "serve",
            Command::Engines(_) => "engines",
            Command::Tune(_) => "tune",
            Command::Generate(_) => "generate",
            Command::Zfs(_) => "zfs",
            Command::Zpool(_) => "zpool",
        }
    }
}

fn place() -> impl TypedValueParser<Value = Place> {
    OsStringValueParser::new().try_map(Place::try_from)
}

fn pool_path() -> impl TypedValueParser<Value = PoolPath> {
    OsStringValueParser::new().try_map(|word| Place::parse_in_pool(&word))
}

fn size(text: &str) -> Result<u64, pool::props::PropertyError> {
    pool::props::number::parse_size(text)
}

fn positive(text: &str) -> Result<f64, String> {
    not_negative(text).and_then(|n| if n > 0.0 { Ok(n) } else { Err("it must be above 0".to_owned()) })
}

fn not_negative(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0);
    number.ok_or_else(|| "it is no number from 0 on".to_owned())
}

/// Carries out a command line of `cenote`; `words` are those after its name. Gives the exit status.
pub fn main(words: impl IntoIterator<Item = OsString>, posix: bool) -> u8 {
    let words: Vec<OsString> = words.into_iter().collect();
    let named = std::iter::once(OsString::from("cenote")).chain(words.iter().cloned());
    let cenote = match Cenote::try_parse_from(named) {
        Ok(cenote) => cenote,
        Err(error) => {
            // Help and version asked for go to standard output with status 0, mistakes to standard error with
            // 2. A reader that went away needs no word.
            let _ = error.print();
            return u8::try_from(error.exit_code()).unwrap_or(2);
        }
    };
    let around = Surroundings { search: cenote.search, posix, served: None };
    match cenote.command {
        Command::Zfs(words) => crate::compatible(Program::Zfs, words.words, around),
        Command::Zpool(words) => crate::compatible(Program::Zpool, words.words, around),
        command => {
            let mut console = out::standard();
            let forwarded = crate::forward::own(&command.held(), &words, &around, &mut console);
            let ended = match forwarded {
                Ok(Some(status)) => Ok(status),
                Ok(None) => run(&command, &around, &mut console),
                Err(failure) => Err(failure),
            };
            let asked = *ended.as_ref().unwrap_or(&0);
            console.finish(ended.map(drop), String::new).max(asked)
        }
    }
}

/// Carries out one of cenote's own commands for a client of this pool's server. Gives the exit status.
pub fn served(words: &[OsString], around: Surroundings, mut console: out::Console) -> u8 {
    let named = std::iter::once(OsString::from("cenote")).chain(words.iter().cloned());
    let mut cenote = match Cenote::try_parse_from(named) {
        Ok(cenote) => cenote,
        Err(error) => {
            console.remark(error.to_string().trim_end());
            return u8::try_from(error.exit_code()).unwrap_or(2);
        }
    };
    cenote.command.resolve(&around);
    let search = cenote.search.iter().map(|path| around.path(path)).collect();
    let around = Surroundings { search, ..around };
    let ended = match &cenote.command {
        Command::Cp(_)
        | Command::Rm(_)
        | Command::Mkdir(_)
        | Command::Mv(_)
        | Command::Engines(_)
        | Command::Tune(_) => run(&cenote.command, &around, &mut console),
        other => Err(Failure::refused(format!("cenote: {} is not for servers", other.name()))),
    };
    let asked = *ended.as_ref().unwrap_or(&0);
    console.finish(ended.map(drop), String::new).max(asked)
}

impl Command {
    /// What its server has to do with: datasets in which it changes files, a pool whose live values it wants.
    fn held(&self) -> Vec<&str> {
        match self {
            Command::Cp(Cp { destination: Place::InPool(place), .. }) => vec![place.dataset.as_str()],
            Command::Rm(rm) => rm.places.iter().map(|place| place.dataset.as_str()).collect(),
            Command::Mkdir(mkdir) => mkdir.places.iter().map(|place| place.dataset.as_str()).collect(),
            Command::Mv(mv) => vec![mv.destination.dataset.as_str()],
            Command::Tune(tune) => tune.split().0.into_iter().collect(),
            Command::Engines(engines) => engines.pool.as_deref().into_iter().collect(),
            _ => Vec::new(),
        }
    }

    /// Local paths become those that the client meant.
    fn resolve(&mut self, around: &Surroundings) {
        let Command::Cp(cp) = self else { return };
        for place in cp.sources.iter_mut().chain([&mut cp.destination]) {
            if let Place::Local(path) = place {
                *path = around.path(path);
            }
        }
    }
}

/// Carries out one of cenote's own commands. Gives the exit status, where it is not for the console to tell.
fn run(command: &Command, around: &Surroundings, console: &mut out::Console) -> Result<u8, Failure> {
    let done = match command {
        Command::Cp(cp) => return copy::run(cp, around, console),
        Command::Bench(bench) => return bench::run(bench, around, console),
        Command::Report(report) => return report::run(report, console),
        Command::Advise(args) => return advise::run(args, around, console),
        Command::Rm(rm) => return change::rm(rm, around, console),
        Command::Mkfs(mkfs) => return mkfs::run(mkfs, console),
        Command::Check(check) => return check::run(check, around, console),
        Command::Ls(ls) => list::ls(ls, around, console),
        Command::Tree(tree) => list::tree(tree, around, console),
        Command::Cat(cat) => show::cat(cat, around, console),
        Command::Stat(stat) => show::stat(stat, around, console),
        Command::Du(du) => show::du(du, around, console),
        Command::Generate(args) => generate::run(args, console),
        Command::Serve(args) => serve::run(args, around, console),
        Command::Mkdir(mkdir) => change::mkdir(mkdir, around, console),
        Command::Mv(mv) => change::mv(mv, around, console),
        Command::Engines(args) => engines::run(args, around, console),
        Command::Tune(words) => tune::run(words, around, console),
        other => Err(Failure::refused(format!("cenote: not supported yet: {}", other.name()))),
    };
    done.map(|()| 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Cenote, clap::Error> {
        Cenote::try_parse_from(std::iter::once("cenote").chain(line.split_whitespace()))
    }

    #[test]
    fn the_command_line_is_sound() {
        Cenote::command().debug_assert();
    }

    #[test]
    fn folders_to_search_stand_before_the_subcommand() {
        let cenote = parse("-d images -d x.img zfs list -d 1 -Ho name tank").expect("good");
        assert_eq!(cenote.search, [PathBuf::from("images"), PathBuf::from("x.img")]);
        let Command::Zfs(words) = cenote.command else { panic!("zfs") };
        assert_eq!(words.words, ["list", "-d", "1", "-Ho", "name", "tank"].map(OsString::from));
        let cenote = parse("zpool --version").expect("good");
        assert!(matches!(cenote.command, Command::Zpool(w) if w.words == ["--version"]));
    }

    #[test]
    fn copies_go_into_pools_and_out_of_them() {
        let Command::Cp(cp) = parse("cp -rp a ./b:/c tank/fs:/x").expect("good").command else {
            panic!("cp")
        };
        assert_eq!(cp.sources, [Place::Local("a".into()), Place::Local("./b:/c".into())]);
        assert!(
            cp.recursive
                && cp.preserve
                && matches!(&cp.destination, Place::InPool(p) if p.dataset == "tank/fs")
        );
        let Command::Cp(cp) = parse("cp tank@s:/x .").expect("good").command else { panic!("cp") };
        assert_eq!(cp.destination, Place::Local(".".into()));
        assert!(parse("cp a").is_err() && parse("cp a t*:/x").is_err());
    }

    #[test]
    fn bench_takes_lists() {
        let line = "bench --compression off,lz4 --recordsize 128K,1M --threads 1,2 --repeat 3 --json - src";
        let Command::Bench(bench) = parse(line).expect("good").command else { panic!("bench") };
        assert_eq!(
            (bench.compression, bench.recordsize),
            (vec!["off".into(), "lz4".into()], vec![128 << 10, 1 << 20])
        );
        assert_eq!((bench.repeat, bench.paths.len()), (Some(3), 1));
        assert_eq!(bench.threads, [1, 2].map(bench::args::Threads::Count));
        assert!(parse("bench --recordsize x").is_err() && parse("bench --dir a --pool b").is_err());
        assert!(parse("bench --repeat 0").is_err() && parse("bench").is_ok());
        assert!(parse("bench --threads sweep --pair zstd-1:1M --total 1G --disk-write 200M").is_ok());
        assert!(parse("bench --threads 0").is_err() && parse("bench --pair zstd-1").is_err());
        assert!(parse("bench --data fastq:1M src").is_err() && parse("report").is_err());
    }

    #[test]
    fn listings_want_a_place_in_a_pool() {
        assert!(parse("ls -lR tank:/").is_ok() && parse("ls -R --json --sha256 tank/fs:/").is_ok());
        assert!(parse("ls /tmp").is_err() && parse("ls").is_err() && parse("ls --sha256 tank:/").is_err());
        assert!(parse("mkfs -d dir -o compression=lz4 --size 1G x.img").is_ok());
    }
}
