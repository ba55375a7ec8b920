//! `cenote bench`: what each compression makes of the user's own files.
//!
//! From:   the command line.
//! To:     `bench`, whose records become a table, files and a recommendation here.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use bench::{Error, Event, Phase, Place, Plan, Report, Run, Source, Watch};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::Bench;
use super::stop::Stop;
use crate::Surroundings;
use crate::messages::{Action, Failure};
use crate::open::{self, NotOpen};
use crate::out::Console;

/// Columns that say the same in each row are left out of the table on a terminal: the lines below it tell.
const DROPPED_IF_ALIKE: [&str; 4] = ["recordsize", "threads", "logical", "verified"];

/// Carries out the command. Gives the exit status.
///
/// # Errors
/// Nothing could be measured, or not everything; what was is printed before.
pub fn run(args: &Bench, around: &Surroundings, console: &mut Console) -> Result<u8, Failure> {
    let plan = plan(args, around)?;
    plan.configurations().map_err(refused)?;
    let json_only = args.json.as_deref() == Some(Path::new("-"));
    let mut outputs = Outputs::open(args)?;
    let stop =
        Stop::on_signals().map_err(|error| Failure::refused(format!("cannot listen for Ctrl-C: {error}")))?;
    let mut source =
        if args.paths.is_empty() { Source::sample() } else { Source::scan(&args.paths) }.map_err(refused)?;

    let screen = Screen::new(stop.clone(), source.bytes());
    let measured = bench::run(&plan, &mut source, &screen);
    let runs = screen.finish();
    let report = match measured {
        Ok(report) => report,
        Err(error) => {
            // What was measured before may have taken hours.
            if !runs.is_empty() && !json_only {
                print_table(console, &runs)?;
                console.flush()?;
            }
            return match error {
                Error::Interrupted => {
                    console.remark("cenote bench: interrupted; the temporary files are gone");
                    Ok(stop.status())
                }
                error => Err(refused(error)),
            };
        }
    };
    if json_only {
        write!(console.out(), "{}", report.to_json())?;
    } else {
        print(console, &report)?;
    }
    outputs.write(&report)?;
    match report.runs.iter().find(|run| !run.verified) {
        None => Ok(0),
        Some(run) => Err(Failure::refused(format!(
            "data was not read back as it was written (compression {}); check memory and disks",
            run.compression
        ))),
    }
}

fn refused(error: Error) -> Failure {
    Failure::refused(error.to_string())
}

fn plan(args: &Bench, around: &Surroundings) -> Result<Plan, Failure> {
    let usual = Plan::usual();
    let place = match (&args.pool, &args.dir) {
        (Some(name), _) => {
            let usable = open::find(name, around)?;
            if usable.known.as_ref().is_some_and(|known| known.read_only) {
                return Err(Action::Write(name).failed(crate::messages::reason::POOL_READ_ONLY));
            }
            let found = usable.found.ok_or_else(|| NotOpen::Unavailable(name.clone()))?;
            Place::Pool { found: Box::new(found), name: name.clone() }
        }
        (None, Some(dir)) => Place::Folder(dir.clone()),
        (None, None) => usual.place,
    };
    fn or<T: Clone>(given: &[T], usual: Vec<T>) -> Vec<T> {
        if given.is_empty() { usual } else { given.to_vec() }
    }
    Ok(Plan {
        compressions: or(&args.compression, usual.compressions),
        recordsizes: or(&args.recordsize, usual.recordsizes),
        threads: or(&args.threads, usual.threads),
        repeat: args.repeat,
        place,
        memory_bytes: None,
    })
}

fn print(console: &mut Console, report: &Report) -> Result<(), Failure> {
    print_table(console, &report.runs)?;
    console.line("")?;
    if let [first, rest @ ..] = &report.runs[..]
        && rest.iter().all(|run| (run.recordsize, run.threads) == (first.recordsize, first.threads))
    {
        let size = pool::props::number::nice(first.recordsize);
        let threads = if first.threads == 1 { "thread" } else { "threads" };
        console.line(&format!(
            "records of {size}, {} {threads}; times relative to off; every byte was read back and compared",
            first.threads
        ))?;
    }
    for line in report.machine.lines(&report.version) {
        console.line(&line)?;
    }
    if let Some(caution) = report.caution() {
        console.line(&caution)?;
    }
    console.line("")?;
    console.line(&report.sentence())?;
    console.line(&format!("  {}", report.recommendation.command))
}

/// The runs in columns two blanks apart, the first to the left, numbers to the right.
fn print_table(console: &mut Console, runs: &[Run]) -> Result<(), Failure> {
    let (headings, rows) = bench::table(runs);
    let alike = |column: usize| rows.windows(2).all(|pair| pair[0][column] == pair[1][column]);
    let shown: Vec<usize> = (0..headings.len())
        .filter(|column| !(DROPPED_IF_ALIKE.contains(&headings[*column]) && alike(*column)))
        .collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([headings[column].len()]).max().unwrap_or(0)
    };
    let lines = std::iter::once(headings.map(str::to_owned)).chain(rows.iter().cloned());
    for row in lines {
        let cell = |column: &usize| match column {
            0 => format!("{:<w$}", row[0], w = width(0)),
            &column => format!("{:>w$}", row[column], w = width(column)),
        };
        let cells: Vec<String> = shown.iter().map(cell).collect();
        console.line(cells.join("  ").trim_end())?;
    }
    Ok(())
}

/// What goes on, on a terminal; what was measured so far.
struct Screen {
    bar: ProgressBar,
    stop: Stop,
    bytes: u64,
    /// What is being measured.
    subject: Mutex<String>,
    done: Mutex<Vec<Run>>,
}

impl Screen {
    /// Shown on standard error if that is a terminal; `bytes` is what each phase moves.
    fn new(stop: Stop, bytes: u64) -> Screen {
        let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr_with_hz(5));
        let style = "{msg} {wide_bar} {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar.set_message("looking at the files");
        if !bar.is_hidden() {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Screen { bar, stop, bytes, subject: Mutex::default(), done: Mutex::default() }
    }

    fn begin(&self, what: String) {
        self.bar.reset();
        self.bar.set_length(self.bytes);
        self.bar.set_message(what);
    }

    fn finish(self) -> Vec<Run> {
        self.bar.finish_and_clear();
        self.done.into_inner().expect("the lock guards a plain store")
    }
}

impl Watch for Screen {
    fn event(&self, event: Event<'_>) {
        let subject = || self.subject.lock().expect("the lock guards a plain store");
        match event {
            Event::Loading { bytes, total } => {
                if self.bar.position() == 0 {
                    self.begin("reading the files into memory".to_owned());
                    self.bar.set_length(total);
                }
                self.bar.set_position(bytes);
            }
            Event::Note(note) => self.bar.suspend(|| {
                // Nobody can be told that standard error is closed.
                let _ = writeln!(std::io::stderr(), "{note}");
            }),
            Event::Begin { configuration, warm_up: true, .. } => {
                *subject() = format!("warming up ({configuration})")
            }
            Event::Begin { configuration, index, count, .. } => {
                *subject() = format!("{}/{count} {configuration}", index + 1);
            }
            Event::Phase(phase) => {
                let what = match phase {
                    Phase::Write => "writing",
                    Phase::Sync => {
                        // All is in memory; the bar stays where it is.
                        self.bar.set_message(format!("{}: syncing", subject()));
                        return;
                    }
                    Phase::Settle => "settling",
                    Phase::Read => "reading",
                    Phase::Verify => "comparing",
                };
                let text = format!("{}: {what}", subject());
                self.begin(text);
            }
            Event::Bytes(bytes) => self.bar.inc(bytes),
            Event::Done(run) => self.done.lock().expect("the lock guards a plain store").push(run.clone()),
        }
    }

    fn stopped(&self) -> bool {
        self.stop.asked()
    }
}

/// How a report becomes the contents of a file.
type Form = fn(&Report) -> String;

/// Files for the results, opened before hours are spent on what could not be written then. Those that did not
/// exist are removed again unless they are written.
struct Outputs(Vec<Output>);

struct Output {
    path: PathBuf,
    file: File,
    form: Form,
    is_new: bool,
}

impl Outputs {
    fn open(args: &Bench) -> Result<Outputs, Failure> {
        let json = args.json.as_ref().filter(|path| **path != Path::new("-"));
        let wanted: [(Option<&PathBuf>, Form); 3] = [
            (json, Report::to_json),
            (args.csv.as_ref(), Report::to_csv),
            (args.markdown.as_ref(), Report::to_markdown),
        ];
        let mut outputs = Outputs(Vec::new());
        for (path, form) in wanted {
            let Some(path) = path else { continue };
            let is_new = path.symlink_metadata().is_err();
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
            let file = file.map_err(|error| cannot_write(path, error))?;
            outputs.0.push(Output { path: path.clone(), file, form, is_new });
        }
        Ok(outputs)
    }

    fn write(&mut self, report: &Report) -> Result<(), Failure> {
        for output in &mut self.0 {
            let failed = |error| cannot_write(&output.path, error);
            // Pipes and devices have no length to set.
            if output.file.metadata().map_err(failed)?.is_file() {
                output.file.set_len(0).map_err(failed)?;
            }
            output.file.write_all((output.form)(report).as_bytes()).map_err(failed)?;
            output.is_new = false;
        }
        Ok(())
    }
}

impl Drop for Outputs {
    fn drop(&mut self) {
        for output in self.0.iter().filter(|output| output.is_new) {
            // It is empty; what cannot be removed is no harm.
            let _ = std::fs::remove_file(&output.path);
        }
    }
}

fn cannot_write(path: &Path, error: std::io::Error) -> Failure {
    Failure::refused(format!("cannot write '{}': {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::own::{Cenote, Command};
    use clap::Parser;

    fn call(line: &str) -> (Result<u8, Failure>, String) {
        let words = std::iter::once("cenote").chain(line.split_whitespace());
        let Command::Bench(args) = Cenote::try_parse_from(words).expect("a good line").command else {
            panic!("bench")
        };
        let mut out = Vec::new();
        let mut console = Console::new(&mut out, std::io::sink());
        let ended = run(&args, &Surroundings::default(), &mut console);
        console.flush().expect("written");
        drop(console);
        (ended, String::from_utf8(out).expect("text"))
    }

    fn refusal(line: &str) -> String {
        match call(line).0 {
            Err(Failure::Refused(lines)) => lines.join("\n"),
            other => panic!("{other:?}"),
        }
    }

    fn data() -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("text"), "the same line again\n".repeat(20_000)).expect("written");
        dir
    }

    #[test]
    fn the_result_is_a_table_a_recommendation_and_files() {
        let dir = data();
        let at = |name: &str| dir.path().join(name).display().to_string();
        let line = format!(
            "bench --compression off,lz4 --dir {} --json {} --csv {} --markdown {} {}",
            dir.path().display(),
            at("r.json"),
            at("r.csv"),
            at("r.md"),
            at("text")
        );
        let (ended, out) = call(&line);
        assert_eq!(ended, Ok(0));
        let lines: Vec<&str> = out.lines().collect();
        assert!(lines[0].starts_with("compression  allocated") && lines[1].starts_with("off "), "{out}");
        assert!(lines.contains(&"  zfs set compression=lz4 POOL/DATASET"), "{out}");
        let json = std::fs::read_to_string(at("r.json")).expect("written");
        let report: Report = serde_json::from_str(&json).expect("the contract");
        assert!(report.runs.iter().all(|run| run.verified) && report.runs.len() == 2);
        assert_eq!(std::fs::read_to_string(at("r.csv")).expect("written").lines().count(), 3);
        assert!(std::fs::read_to_string(at("r.md")).expect("written").contains("| lz4 |"));
    }

    #[test]
    fn json_on_standard_output_stands_there_alone() {
        let dir = data();
        let line = format!("bench --compression off --json - --dir {0} {0}/text", dir.path().display());
        let (ended, out) = call(&line);
        assert_eq!(ended, Ok(0));
        assert!(serde_json::from_str::<Report>(&out).is_ok(), "{out}");
    }

    #[test]
    fn what_cannot_be_measured_is_one_clear_line() {
        let dir = data();
        let at = dir.path().display();
        assert!(refusal(&format!("bench --dir {at} {at}/none")).starts_with("cannot read '"));
        assert!(
            refusal(&format!("bench --compression gzip-10 {at}"))
                .starts_with("cannot measure compression=gzip-10: ")
        );
        assert!(
            refusal(&format!("bench --recordsize 100K {at}")).starts_with("cannot measure recordsize=100K: ")
        );
        assert!(refusal(&format!("bench --dir {at}/none {at}/text")).contains("none"));
        assert!(refusal(&format!("bench --json {at}/none/r.json {at}/text")).starts_with("cannot write '"));
        let failed = refusal(&format!("bench --dir {at} --csv {at}/r.csv {at}/none"));
        assert!(!failed.contains('\n') && !dir.path().join("r.csv").exists());
    }
}
