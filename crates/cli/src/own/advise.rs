//! `cenote advise`: what to set for this data, without writing it anywhere.
//!
//! From:   the command line: paths, places in pools, `-`, or a file of published tables.
//! To:     `bench::advise`, whose records become a table, picks and commands here.

mod args;
mod here;
mod stdin;

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use bench::advise::{Advice, Question, Subject, TABLE_CORES, TableReport, advise, from_tables};
use bench::{Error, Event, Watch};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pool::props::DatasetKind;
use pool::props::names;

pub use self::args::Advise;
use self::stdin::Stdin;
use super::bench::command_line;
use super::bench::outputs::Output;
use super::bench::table::{fit, say_left_out};
use crate::around::Surroundings;
use crate::files::pools::{Pools, refused};
use crate::messages::Failure;
use crate::open::{self, Intent};
use crate::out::{Colour, Console};
use crate::place::{Place, PoolPath};
use crate::stop::Stop;
use crate::wrap;

/// Carries out the command. Returns the exit status.
///
/// # Errors
/// There is nothing to give advice on.
pub fn run(args: &Advise, around: &Surroundings, console: &mut Console) -> Result<u8, Failure> {
    if let Some(path) = &args.from_table {
        return from_table(args, path, console).map(|()| 0);
    }
    let places: Vec<Place> = args.paths.iter().map(|place| meant(place, around)).collect();
    let mut question = question(args, &places);
    let in_pools = places.iter().filter_map(|place| match place {
        Place::InPool(place) => Some((place, Intent::Files)),
        Place::Local(_) => None,
    });
    let pools = Pools::open(in_pools, around)?;
    here::fill(&mut question, args, &places, &pools)?;
    let stop =
        Stop::on_signals().map_err(|error| Failure::refused(format!("cannot listen for Ctrl-C: {error}")))?;
    let page = args.report.as_deref().map(Output::begin).transpose()?;
    let mut stdin = places.contains(&Place::Local("-".into())).then(Stdin::new);
    let answered = {
        let mut subjects = Vec::new();
        let mut waiting = stdin.as_mut();
        for place in &places {
            subjects.push(match place {
                Place::Local(path) if path == Path::new("-") => match waiting.take() {
                    Some(stdin) => Subject::Stream(stdin),
                    None => return Err(Failure::refused("cannot read standard input twice")),
                },
                Place::Local(path) => Subject::Path(path.clone()),
                Place::InPool(place) => dataset(place, &pools)?,
            });
        }
        if subjects.is_empty() {
            subjects.push(Subject::Sample);
        }
        let screen = Screen::new(stop.clone(), console.is_quiet());
        let answered = advise(&question, subjects, &screen);
        screen.bar.finish_and_clear();
        answered
    };
    pools.finish()?;
    if let (Ok(advice), Some(page)) = (&answered, page) {
        page.write(advice.to_html(&command_line()).as_bytes())?;
    }
    match answered {
        Ok(advice) if args.json => write!(console.out(), "{}", advice.to_json())?,
        Ok(advice) => print(&advice, args.wide, console)?,
        Err(Error::Interrupted) => {
            console.remark("cenote advise: interrupted");
            return Ok(stop.status());
        }
        Err(error) => return Err(Failure::refused(error.to_string())),
    }
    Ok(0)
}

/// Columns that are left out if the terminal is too narrow, the first one first.
const RANK: [&str; 5] = ["decompress", "compress", "±", "compressratio", "limit"];

/// Prints an answer with wrapped sentences. Its table fits the page unless it is to be `wide`.
fn print(advice: &Advice, wide: bool, console: &mut Console) -> Result<(), Failure> {
    console.fold(|name| std::env::var_os(name));
    let width = console.columns();
    let answer = advice.answer();
    sentences(&advice.above(), width).iter().try_for_each(|line| console.line(line))?;
    let (table, left_out) = fit(advice.table(), &RANK, width.filter(|_| !wide));
    table.iter().try_for_each(|line| console.line(line))?;
    if !left_out.is_empty() {
        say_left_out(&left_out, console)?;
    }
    for text in sentences(&advice.legend(&left_out), width) {
        console.line(&text)?;
    }
    for text in advice.below() {
        for line in sentences(std::slice::from_ref(&text), width) {
            match answer.as_ref() == Some(&text) {
                true => console.answer(Colour::Bold, &line)?,
                false => console.line(&line)?,
            }
        }
    }
    Ok(())
}

/// Texts as lines of a terminal, if there is one. Commands, which are set in, stay whole.
fn sentences(texts: &[String], width: Option<usize>) -> Vec<String> {
    let Some(width) = width.map(|width| width.clamp(wrap::NARROW, wrap::USUAL)) else {
        return texts.to_vec();
    };
    let lines = |text: &String| match text.starts_with(' ') {
        true => vec![text.clone()],
        false => wrap::lines(text, width, ("", "  ")),
    };
    texts.iter().flat_map(lines).collect()
}

/// The source of a word. A word that names a dataset and no file stands for the contents of the dataset.
fn meant(place: &Place, around: &Surroundings) -> Place {
    let named = match place {
        Place::Local(path) if path.symlink_metadata().is_err() => path.to_str(),
        _ => None,
    };
    let named = named.filter(|name| matches!(names::check(name), Ok(kind) if kind != DatasetKind::Bookmark));
    match named.filter(|name| open::find(open::pool_of(name), around).is_ok()) {
        Some(name) => {
            let (dataset, snapshot) = match name.split_once('@') {
                Some((dataset, snapshot)) => (dataset, Some(snapshot.to_owned())),
                None => (name, None),
            };
            Place::InPool(PoolPath { dataset: dataset.to_owned(), snapshot, path: b"/".to_vec() })
        }
        None => place.clone(),
    }
}

fn question(args: &Advise, places: &[Place]) -> Question {
    let usual = Question::usual();
    let rate = |mb: Option<f64>| mb.map(|mb| mb * 1e6);
    let mut target = usual.target.clone();
    target.cores = args.cores.unwrap_or(target.cores);
    target.busy_cores = args.busy_cores.min(f64::from(target.cores));
    target.disk_write = rate(args.disk_write);
    target.disk_read = rate(args.disk_read);
    target.network = rate(args.network);
    target.dirty_max = args.dirty_max;
    let dataset = match places {
        [Place::InPool(place)] => Some(place.dataset.clone()),
        _ => None,
    };
    Question {
        compressions: if args.compression.is_empty() {
            usual.compressions.clone()
        } else {
            args.compression.clone()
        },
        recordsizes: if args.recordsize.is_empty() {
            usual.recordsizes.clone()
        } else {
            args.recordsize.clone()
        },
        target,
        goal: args.goal.into(),
        seconds: args.time,
        seed: args.seed,
        dedup: args.dedup,
        unpack: args.unpack,
        folder: args.dir.clone(),
        dataset,
        ..usual
    }
}

fn dataset<'a>(place: &PoolPath, pools: &Pools) -> Result<Subject<'a>, Failure> {
    let fs = pools.filesystem(place, Intent::Files)?;
    let id = fs.resolve(&place.path, true).map_err(|error| refused("read", place, error))?;
    Ok(Subject::Dataset { fs, id, name: place.to_string() })
}

/// Bytes of a file of published tables, at most.
const TABLE_MAX: u64 = 16 << 20;

fn from_table(args: &Advise, path: &Path, console: &mut Console) -> Result<(), Failure> {
    let text = bench::read_text(path, TABLE_MAX)
        .map_err(|error| Failure::refused(format!("cannot read '{}': {error}", path.display())))?;
    let tables = from_tables(&text, args.cores.unwrap_or(TABLE_CORES), args.busy_cores)
        .map_err(|error| Failure::refused(format!("'{}': {error}", path.display())))?;
    let report = TableReport::new(tables);
    if args.json {
        return Ok(write!(console.out(), "{}", report.to_json())?);
    }
    for line in report.lines() {
        console.line(&line)?;
    }
    Ok(())
}

/// The progress on a terminal.
struct Screen {
    bar: ProgressBar,
    quiet: bool,
    stop: Stop,
}

impl Screen {
    fn new(stop: Stop, quiet: bool) -> Screen {
        let target = match quiet || crate::out::is_dumb() {
            true => ProgressDrawTarget::hidden(),
            false => ProgressDrawTarget::stderr_with_hz(5),
        };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{msg} {binary_bytes}") {
            bar.set_style(style);
        }
        bar.set_message("looking at names and sizes:");
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Screen { bar, quiet, stop }
    }
}

impl Watch for Screen {
    fn event(&self, event: Event<'_>) {
        match event {
            Event::Loading { bytes, total } => {
                if total > 0 {
                    self.bar.set_message("encoding samples:");
                }
                self.bar.set_position(bytes);
            }
            Event::Note(_) if self.quiet => {}
            Event::Note(note) => self.bar.suspend(|| {
                // Standard error is closed, so the error cannot be reported anywhere.
                let _ = writeln!(io::stderr(), "{}", crate::out::harmless_line(note));
            }),
            _ => {}
        }
    }

    fn stopped(&self) -> bool {
        self.stop.asked()
    }
}

#[cfg(test)]
mod tests {
    use crate::out::Console;
    use crate::own::Cenote;
    use crate::own::asked::{call, refusal};
    use crate::own::page_numbers::missing_numbers;
    use bench::advise::Advice;
    use clap::Parser;

    fn data() -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a folder");
        let line = |n: u32| format!("{n} the same line again and again {}\n", n * 7919 % 1000);
        std::fs::write(dir.path().join("a.txt"), (0..40_000).map(line).collect::<String>()).expect("written");
        dir
    }

    #[test]
    fn the_answer_is_a_table_picks_and_commands() {
        let dir = data();
        let (ended, out) = call(&format!(
            "advise --disk-write 200 --disk-read 200 --network 100 --dirty-max 1G --time 5 {}",
            dir.path().display()
        ));
        assert_eq!(ended, Ok(0));
        for part in [
            "compression",
            "zstd-3",
            "network",
            "balanced: ",
            "archive: ",
            "zfs create -o compression=",
            "dedup: ",
        ] {
            assert!(out.contains(part), "{part}: {out}");
        }
    }

    #[test]
    fn an_answer_fits_the_terminal_and_all_columns_come_back_with_wide() {
        let dir = data();
        let options = "--json --disk-write 200 --disk-read 200 --network 100 --dirty-max 1G";
        let (_, out) = call(&format!("advise {options} {}", dir.path().display()));
        let advice: Advice = serde_json::from_str(&out).expect("the contract");
        let said = |wide| {
            let mut out = Vec::new();
            let mut console = Console::new(&mut out, std::io::sink()).width(Some(80));
            assert_eq!(super::print(&advice, wide, &mut console), Ok(()));
            console.flush().expect("printed");
            drop(console);
            String::from_utf8(out).expect("text")
        };
        let narrow = said(false);
        // Paths and commands stay whole.
        let may_be_long =
            |line: &str| line.starts_with("  zfs ") || line.contains(&*dir.path().to_string_lossy());
        let long = narrow.lines().find(|line| line.chars().count() > 80 && !may_be_long(line));
        assert_eq!(long, None, "{narrow}");
        let has_column = |text: &str| text.lines().any(|line| line.contains("  decompress  "));
        assert!(!has_column(&narrow) && has_column(&said(true)), "{narrow}");
        assert!(narrow.contains("\nNot shown: decompress, "), "{narrow}");
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words(&said(true)), words(&advice.lines().join("\n")), "no word is lost");
    }

    /// Files that a database fills with zeros beforehand.
    #[test]
    fn data_of_zeros_is_recognised() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("table.db"), vec![0; 8 << 20]).expect("written");
        std::fs::write(dir.path().join("head.db"), [1; 5000]).expect("written");
        let options = "--disk-write 200 --disk-read 200 --recordsize 128K";
        let (_, out) = call(&format!("advise {options} {}", dir.path().display()));
        assert!(out.contains("most of what compresses here are zeros: zle alone saves 9"), "{out}");
        assert!(
            out.contains("balanced: lz4 with records of 128K: it saves space and costs no time"),
            "{out}"
        );
    }

    #[test]
    fn json_is_printed_alone_in_its_documented_form() {
        let dir = data();
        let line = format!(
            "advise --json --compression off,lz4 --recordsize 128K --disk-write 200 --disk-read 200 --layout raidz1:5 {}",
            dir.path().display()
        );
        let (ended, out) = call(&line);
        assert_eq!(ended, Ok(0));
        let advice: Advice = serde_json::from_str(&out).expect("the contract");
        assert!(advice.rows.len() == 2 && advice.sample.complete && advice.schema == 4);
        assert_eq!(advice.to_json(), out);
    }

    #[test]
    fn the_page_stands_alone_with_all_numbers_in_it() {
        let dir = data();
        let page = dir.path().join("advice.html");
        let line = format!(
            "advise --disk-write 200 --disk-read 200 --network 100 --dirty-max 64M --report {} {}/a.txt",
            page.display(),
            dir.path().display()
        );
        assert_eq!(call(&line).0, Ok(0));
        let html = std::fs::read_to_string(&page).expect("written");
        for part in ["<svg", "zfs create -o compression=", "\"form\":\"advice\"", "dirty limit", "network"] {
            assert!(html.contains(part), "{part}");
        }
        assert!(!html.contains("src=\"http") && !html.contains("href=\"http"), "nothing is loaded");
        assert_eq!(missing_numbers(&html), Vec::<String>::new());
        let nowhere =
            format!("advise --report {}/none/x.html {}/a.txt", dir.path().display(), dir.path().display());
        assert!(refusal(&nowhere).starts_with("cannot write '"));
    }

    #[test]
    fn a_rate_that_was_given_is_not_called_measured() {
        let dir = data();
        let line = format!(
            "advise --disk-write 200 --compression off --recordsize 128K --time 1 {}",
            dir.path().display()
        );
        let (_, out) = call(&line);
        let target = out.lines().find(|line| line.starts_with("target: ")).expect("it is told");
        assert!(
            target.contains("write 200 MB/s and read ") && target.contains("MB/s (measured here)"),
            "{target}"
        );
    }

    #[test]
    fn a_slow_disk_is_given_more_compression_than_a_fast_one() {
        let dir = data();
        let pick = |disk: &str| {
            let line = format!(
                "advise --json --compression off,gzip-9 --cores 4 --disk-write {disk} --disk-read {disk} {}",
                dir.path().display()
            );
            serde_json::from_str::<Advice>(&call(&line).1).expect("the contract").picks[0].compression.clone()
        };
        assert_ne!(pick("5"), pick("200000"));
    }

    #[test]
    fn failed_advice_is_one_clear_line() {
        let dir = data();
        let at = dir.path().display();
        assert!(refusal(&format!("advise {at}/none")).starts_with("cannot read '"));
        assert!(refusal(&format!("advise --compression gzip-10 {at}")).contains("compression=gzip-10"));
        assert!(refusal(&format!("advise --recordsize 100K {at}")).contains("recordsize=100K"));
        assert!(
            refusal("advise --from-table /dev/zero")
                .starts_with("cannot read '/dev/zero': it is longer than ")
        );
        assert!(refusal("advise /dev/null").starts_with("cannot give advice on '/dev/null'"));
        std::fs::create_dir(dir.path().join("empty")).expect("made");
        assert!(refusal(&format!("advise {at}/empty")).starts_with("nothing to measure: '"));
        assert!(refusal(&format!("advise --unpack {at}/a.txt")).contains("no tar"));
        assert!(refusal(&format!("advise --unpack {at}")).contains("no tar"));
        assert!(refusal(&format!("advise --from-table {at}/a.txt")).contains("cannot use the table"));
        assert!(refusal("advise nopool/fs:/").contains("nopool"));
        for rates in ["", "--disk-write 200 --disk-read 200"] {
            let nowhere = refusal(&format!("advise {rates} --dir {at}/none {at}/a.txt"));
            assert!(nowhere.contains(&format!("{at}/none")), "{nowhere}");
        }
        for bad in [
            "advise --layout raid5 x",
            "advise --cores 0 x",
            "advise --time 0 x",
            "advise --disk-write -1 x",
            "advise --disk-write 0.001 x",
            "advise --disk-read 1e300 x",
            "advise --network 1e300 x",
            "advise --ashift 3 x",
            "advise --unpack",
            "advise --from-table x --goal archive",
            "advise --from-table x --disk-write 200",
            "advise --from-table x --time 5",
            "advise --from-table x --report y",
        ] {
            assert!(
                Cenote::try_parse_from(std::iter::once("cenote").chain(bad.split_whitespace())).is_err(),
                "{bad}"
            );
        }
    }
}
