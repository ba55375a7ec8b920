//! cenote's own commands: files without a mount, images, checks, measurements.
//!
//! From:   `cenote [-d DIR|FILE]… COMMAND …`
//! To:     the engine; `cenote zfs …` and `cenote zpool …` go to [`crate::programs`].

mod advise;
mod args;
#[cfg(test)]
mod asked;
mod bench;
mod cache;
mod change;
mod check;
mod child;
mod copy;
mod engines;
mod export;
mod generate;
mod held;
mod help;
mod install_links;
mod list;
mod manifest;
mod mkfs;
mod ordered;
#[cfg(test)]
mod page_numbers;
mod report;
mod schedule;
mod serve;
mod show;
mod sums;
mod tar;
mod tips;
mod tune;
mod unnamed;
mod usage;

pub(crate) use self::advise::Advise;
pub(crate) use self::args::{
    Cache, Cat, Check, Cp, Du, Engines, Export, Generate, Ls, Mkdir, Mkfs, Mv, Reflink, Rm, Serve, Stat, Tar,
    Tree, Tune, Unexport, Words,
};
pub(crate) use self::bench::Bench;
pub(crate) use self::install_links::InstallLinks;
pub(crate) use self::report::Report;
pub(crate) use self::schedule::{Backup, Snapshots};
pub(crate) use self::usage::Usage;
use crate::around::Surroundings;
use crate::command::Program;
use crate::messages::Failure;
use crate::place::{Place, PoolPath};
use crate::{near, out, programs};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

/// OpenZFS pools in user space: create, fill, measure and read them without a kernel module.
#[derive(Debug, Parser)]
#[command(name = "cenote", version, disable_help_subcommand = false, arg_required_else_help = true, after_help = help::topics())]
pub struct Cenote {
    /// Use pools found in this folder or image without importing them (may be repeated).
    #[arg(short = 'd', value_name = "DIR|FILE")]
    pub search: Vec<PathBuf>,
    /// Print results and errors only: no progress, and no word about what was done.
    #[arg(short, long, global = true)]
    pub quiet: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Copy files into a pool, out of it, or from one place in it to another.
    Cp(Cp),
    /// List what is at a place.
    Ls(Ls),
    /// Write files to standard output.
    Cat(Cat),
    /// Write a tree to standard output as a tar stream.
    Tar(Tar),
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
    /// Show what folders and files take, and how well they compress.
    Usage(Usage),
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
    /// Serve a volume, or a snapshot of one, as a network block device (NBD).
    Export(Export),
    /// End an export.
    Unexport(Unexport),
    /// Show which code compresses and sums up here, and how fast.
    Engines(Engines),
    /// Show and set tunables such as zfs_dirty_data_max.
    Tune(Tune),
    /// Show what the cache in memory and the cache devices of a pool hold, and how often they helped.
    Cache(Cache),
    /// Write manual pages, or completions for shells.
    Generate(Generate),
    /// Make snapshots and remove old ones, as a policy says.
    Snapshots(Snapshots),
    /// Copy a dataset to another pool or a folder, and later only what changed.
    Backup(Backup),
    /// Make the links zpool, zfs, mount.zfs and mount.fuse.zfs to this program.
    InstallLinks(InstallLinks),
    /// The zfs command.
    #[command(disable_help_flag = true)]
    Zfs(Words),
    /// The zpool command.
    #[command(disable_help_flag = true)]
    Zpool(Words),
}

impl Command {
    const fn name(&self) -> &'static str {
        match self {
            Command::Cp(_) => "cp",
            Command::Ls(_) => "ls",
            Command::Cat(_) => "cat",
            Command::Tar(_) => "tar",
            Command::Tree(_) => "tree",
            Command::Rm(_) => "rm",
            Command::Mkdir(_) => "mkdir",
            Command::Mv(_) => "mv",
            Command::Stat(_) => "stat",
            Command::Du(_) => "du",
            Command::Usage(_) => "usage",
            Command::Mkfs(_) => "mkfs",
            Command::Check(_) => "check",
            Command::Bench(_) => "bench",
            Command::Report(_) => "report",
            Command::Advise(_) => "advise",
            Command::Serve(_) => "serve",
            Command::Export(_) => "export",
            Command::Unexport(_) => "unexport",
            Command::Engines(_) => "engines",
            Command::Tune(_) => "tune",
            Command::Cache(_) => "cache",
            Command::Generate(_) => "generate",
            Command::Snapshots(_) => "snapshots",
            Command::Backup(_) => "backup",
            Command::InstallLinks(_) => "install-links",
            Command::Zfs(_) => "zfs",
            Command::Zpool(_) => "zpool",
        }
    }
}

/// Carries out a command line of `cenote`; `words` are those after its name. A server that it becomes carries out `commands`.
/// Returns the exit status.
pub fn main(
    words: impl IntoIterator<Item = OsString>,
    posix: bool,
    commands: &Arc<dyn server::Commands>,
) -> u8 {
    let words: Vec<OsString> = words.into_iter().collect();
    let mut console = out::standard();
    if let Some(ended) = help::run(&words, &mut console) {
        return console.finish(ended, String::new);
    }
    drop(console);
    let named = std::iter::once(OsString::from("cenote")).chain(words.iter().cloned());
    let cenote = match parsed(named, out::help_width()).map_err(tips::with_tip) {
        Ok(cenote) => cenote,
        Err(error) if error.use_stderr() && is_too_wide(&error) => {
            let status = u8::try_from(error.exit_code()).unwrap_or(2);
            out::standard().remark(error.to_string().trim_end());
            return status;
        }
        Err(error) => {
            // Help and version go to standard output with status 0 if the user asked for them; errors go to standard error
            // with status 2. If the reader of the output is gone, nothing is printed.
            if let Err(failed) = error.print()
                && !error.use_stderr()
                && failed.kind() != std::io::ErrorKind::BrokenPipe
            {
                let _ = std::io::Write::write_fmt(
                    &mut std::io::stderr(),
                    format_args!("cenote: cannot write to standard output: {failed}\n"),
                );
                return 1;
            }
            return u8::try_from(error.exit_code()).unwrap_or(2);
        }
    };
    let around = Surroundings { search: cenote.search, posix, ..Surroundings::default() };
    let console = out::standard().quiet(cenote.quiet);
    match cenote.command {
        Command::Zfs(words) => programs::run(Program::Zfs, words.words, &around, console),
        Command::Zpool(words) => programs::run(Program::Zpool, words.words, &around, console),
        command => {
            let mut console = console;
            let words = plainly(&command, &words);
            let forwarded = match command.held().as_slice() {
                [] => held::forward_to_keys(command.name(), &command.read(), &words, &around, &mut console),
                held => held::forward(held, &words, &around, &mut console),
            };
            let ended = match forwarded {
                Ok(Some(status)) => Ok(status),
                Ok(None) => match &command {
                    Command::Serve(args) => serve::run(args, commands, &around, &mut console).map(|()| 0),
                    command => run(command, &around, &mut console),
                },
                Err(failure) => Err(failure),
            };
            let asked = *ended.as_ref().unwrap_or(&0);
            let ended = told(ended.map(drop), (&command, &words), &around, &mut console);
            console.finish(ended, String::new).max(asked)
        }
    }
}

/// The end of a command with a suggestion for each word that is nearly right, and with its failures in JSON if that is asked for.
fn told(
    ended: Result<(), Failure>,
    (command, words): (&Command, &[OsString]),
    around: &Surroundings,
    console: &mut out::Console,
) -> Result<(), Failure> {
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    if words.iter().take_while(|word| *word != "--").any(|word| word == "--json") {
        let mut lines = if command.prints_lines() { console.complaints().to_vec() } else { Vec::new() };
        if let Err(Failure::Refused(why)) = &ended
            && !command.is_program()
        {
            lines.extend(why.first().cloned());
        }
        lines.iter().try_for_each(|line| console.line(&serde_json::json!({ "error": line }).to_string()))?;
    }
    near::told(ended, |line| crate::suggest::of_value(line, &words), around, console)
}

/// A command line of `cenote`; help is wrapped to `width`.
fn parsed(words: impl Iterator<Item = OsString>, width: usize) -> Result<Cenote, clap::Error> {
    let mut command = Cenote::command().term_width(width);
    let matches = command.try_get_matches_from_mut(words)?;
    Cenote::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// The words of a command line for a server, which does not know this terminal: `cp` gets `--no-progress` if the terminal
/// cannot show progress.
fn plainly(command: &Command, words: &[OsString]) -> Vec<OsString> {
    let mut words = words.to_vec();
    if matches!(command, Command::Cp(cp) if !cp.no_progress) && out::is_dumb() {
        let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
        words.insert(end, "--no-progress".into());
    }
    words
}

/// Whether the message of an error has lines that are too long for the terminal, so that they must be wrapped.
fn is_too_wide(error: &clap::Error) -> bool {
    let columns = out::columns_of(&std::io::stderr()).unwrap_or(usize::MAX);
    error.to_string().lines().any(|line| line.chars().count() > columns)
}

/// Whether `word` is nearly the name of one of cenote's own commands.
fn is_like_own(word: &str) -> bool {
    let commands = Cenote::command();
    crate::suggest::nearest(word, commands.get_subcommands().map(clap::Command::get_name)).is_some()
}

/// Carries out one of cenote's own commands for a client of this pool's server. Returns the exit status.
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
    console = console.quiet(cenote.quiet);
    let search = cenote.search.iter().map(|path| around.path(path)).collect();
    let around = Surroundings { search, ..around };
    let ended = match &cenote.command {
        Command::Cp(_)
        | Command::Rm(_)
        | Command::Mkdir(_)
        | Command::Mv(_)
        | Command::Ls(_)
        | Command::Tree(_)
        | Command::Cat(_)
        | Command::Stat(_)
        | Command::Du(_)
        | Command::Usage(_)
        | Command::Tar(_)
        | Command::Engines(_)
        | Command::Cache(_)
        | Command::Export(_)
        | Command::Unexport(_)
        | Command::Tune(_) => run(&cenote.command, &around, &mut console),
        other => Err(Failure::refused(format!("cenote: {} is not for servers", other.name()))),
    };
    let asked = *ended.as_ref().unwrap_or(&0);
    let ended = told(ended.map(drop), (&cenote.command, words), &around, &mut console);
    console.finish(ended, String::new).max(asked)
}

impl Command {
    /// Names whose server must run it: datasets in which it changes files, or a pool whose live values it needs.
    fn held(&self) -> Vec<&str> {
        match self {
            Command::Cp(Cp { destination: Place::InPool(place), .. }) => vec![place.dataset.as_str()],
            Command::Rm(rm) => rm.places.iter().map(|place| place.dataset.as_str()).collect(),
            Command::Mkdir(mkdir) => mkdir.places.iter().map(|place| place.dataset.as_str()).collect(),
            Command::Mv(mv) => vec![mv.destination.dataset.as_str()],
            Command::Tar(Tar { extract: true, place, .. }) => vec![place.dataset.as_str()],
            Command::Export(export) => vec![export.name.as_str()],
            Command::Unexport(unexport) => vec![unexport.name.as_str()],
            Command::Tune(tune) => tune.split().0.into_iter().collect(),
            Command::Cache(cache) => vec![cache.pool.as_str()],
            Command::Engines(engines) => engines.pool.as_deref().into_iter().collect(),
            _ => Vec::new(),
        }
    }

    /// Whether its JSON is an object for each line, among which failures have their own.
    fn prints_lines(&self) -> bool {
        use Command::{Du, Ls, Mkdir, Mv, Rm, Stat, Tree, Usage};
        matches!(self, Ls(_) | Tree(_) | Stat(_) | Du(_) | Usage(_) | Rm(_) | Mkdir(_) | Mv(_))
    }

    /// Whether the words behind it are for another program, or name a file for JSON.
    fn is_program(&self) -> bool {
        matches!(self, Command::Zfs(_) | Command::Zpool(_) | Command::Bench(_))
    }

    /// Places in pools whose files it reads and does not change.
    fn read(&self) -> Vec<&PoolPath> {
        match self {
            Command::Cp(Cp { sources, .. }) => sources.iter().filter_map(Place::in_pool).collect(),
            Command::Ls(Ls { places, .. })
            | Command::Tree(Tree { places, .. })
            | Command::Cat(Cat { places })
            | Command::Stat(Stat { places, .. })
            | Command::Du(Du { places, .. })
            | Command::Usage(usage::Usage { places, .. }) => places.iter().collect(),
            Command::Tar(Tar { extract: false, place, .. }) => vec![place],
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

/// Carries out one of cenote's own commands. Returns the exit status, where it is not for the console to tell.
fn run(command: &Command, around: &Surroundings, console: &mut out::Console) -> Result<u8, Failure> {
    let done = match command {
        Command::Cp(cp) => return copy::run(cp, around, console),
        Command::Bench(bench) => return bench::run(bench, around, console),
        Command::Report(report) => return report::run(report, console),
        Command::Advise(args) => return advise::run(args, around, console),
        Command::Rm(rm) => return change::rm(rm, around, console),
        Command::Mkfs(mkfs) => return mkfs::run(mkfs, console),
        Command::Check(check) => return check::run(check, around, console),
        Command::Tar(args) => return tar::run(args, around, console),
        Command::Ls(ls) => list::ls(ls, around, console),
        Command::Tree(tree) => list::tree(tree, around, console),
        Command::Cat(cat) => show::cat(cat, around, console),
        Command::Stat(stat) => show::stat(stat, around, console),
        Command::Du(du) => show::du(du, around, console),
        Command::Usage(args) => usage::run(args, around, console),
        Command::Generate(args) => generate::run(args, console),
        Command::Snapshots(args) => schedule::snapshots::run(args, around, console),
        Command::Backup(args) => schedule::backup::run(args, around, console),
        Command::InstallLinks(args) => install_links::run(args, console),
        Command::Mkdir(mkdir) => change::mkdir(mkdir, around, console),
        Command::Mv(mv) => change::mv(mv, around, console),
        Command::Engines(args) => engines::run(args, around, console),
        Command::Export(args) => export::export(args, around, console),
        Command::Unexport(args) => export::unexport(args, around, console),
        Command::Tune(words) => tune::run(words, around, console),
        Command::Cache(args) => cache::run(args, around, console),
        other => Err(Failure::refused(format!("cenote: not supported yet: {}", other.name()))),
    };
    done.map(|()| 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cenote, clap::Error> {
        Cenote::try_parse_from(std::iter::once("cenote").chain(line.split_whitespace()))
    }

    #[test]
    fn the_definition_of_the_command_line_has_no_mistakes() {
        Cenote::command().debug_assert();
    }

    /// `cat` prints what files hold; the others are not commands of cenote's own.
    const WITHOUT_JSON: [&str; 4] = ["cat", "zfs", "zpool", "help"];

    #[test]
    fn every_command_that_prints_a_result_has_json_and_all_can_be_quiet() {
        for sub in Cenote::command().get_subcommands() {
            let name = sub.get_name();
            let has = sub.get_arguments().any(|arg| arg.get_long() == Some("json"));
            assert!(has != WITHOUT_JSON.contains(&name), "{name}");
        }
        for line in
            ["-q cp a t:/", "cp -q a t:/", "check --quiet x", "rm -q t:/a", "snapshots -q --keep 1d t"]
        {
            assert!(parse(line).expect(line).quiet, "{line}");
        }
        let cenote = parse("zfs list -q").expect("handed on");
        assert!(!cenote.quiet && matches!(cenote.command, Command::Zfs(words) if words.words.len() == 2));
    }

    #[test]
    fn help_is_wrapped_to_the_width_that_is_asked_for() {
        for sub in Cenote::command().get_subcommands().map(|sub| sub.get_name().to_owned()) {
            if ["zfs", "zpool", "help"].contains(&sub.as_str()) {
                continue;
            }
            for width in [60, 80] {
                let words = ["cenote", &sub, "--help"].map(OsString::from);
                let help = parsed(words.into_iter(), width).expect_err("help").to_string();
                let is_long = |line: &&str| line.chars().count() > width && !line.starts_with("Usage:");
                assert_eq!(help.lines().find(is_long), None, "{sub} {width}");
            }
        }
    }

    #[test]
    fn every_argument_and_option_says_what_it_is() {
        for sub in Cenote::command().get_subcommands() {
            for arg in sub.get_arguments().filter(|arg| !arg.is_hide_set()) {
                assert!(arg.get_help().is_some(), "{} {}", sub.get_name(), arg.get_id());
            }
        }
    }

    #[test]
    fn sizes_for_people_are_asked_for_with_h() {
        let du = parse("du -sh tank").expect("good");
        assert!(matches!(du.command, Command::Du(du) if du.summarize && du.human_readable));
        assert!(matches!(parse("ls -lh tank").expect("good").command, Command::Ls(ls) if ls.human_readable));
        assert!(parse("du --help").is_err_and(|error| error.kind() == clap::error::ErrorKind::DisplayHelp));
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
    fn files_are_copied_into_pools_and_out_of_them() {
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
