//! `cenote bench`: what each compression makes of the user's own files.
//!
//! From:   the command line, perhaps an experiment in a file.
//! To:     `bench`, whose records become a table, files and a recommendation here.

pub(super) mod args;
mod mount;
pub(super) mod outputs;
mod screen;
pub(super) mod table;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bench::{
    Application, Device, Ended, Error, Experiment, Figures, Place, Plan, Report, Source, Step, Watch,
    shell_word,
};

pub use self::args::Bench;
use self::args::Threads;
use self::outputs::Output;
use self::screen::Screen;
use crate::around::Surroundings;
use crate::messages::{Action, Failure};
use crate::open::{self, NotOpen};
use crate::out::{Colour, Console};
use crate::stop::Stop;

/// Tables that are for the page, where there is more room.
const NOT_ON_TERMINAL: [&str; 2] = ["All configurations", "CPU and devices"];

/// The meaning of columns of the table.
const LEGEND: [(&str, &str); 4] = [
    ("space", "space: what the files take on the disk, with metadata and whole sectors"),
    ("saved", "saved: how much less that is than the size of the files"),
    ("compressratio", bench::RATIO_MEANS),
    ("write time", "write time, read time: 2.00 is twice as long as with off"),
];

/// Carries out the command. Returns the exit status.
///
/// # Errors
/// Not everything could be measured. The finished results are printed before.
pub fn run(args: &Bench, around: &Surroundings, console: &mut Console) -> Result<u8, Failure> {
    let experiment = args.experiment.as_deref().map(Experiment::read).transpose();
    let experiment = experiment.map_err(|error| Failure::refused(format!("cannot read {error}")))?;
    let plan = plan(args, experiment.as_ref(), around)?;
    plan.configurations().map_err(refused)?;
    let outputs = Outputs::begin(args)?;
    let stop =
        Stop::on_signals().map_err(|error| Failure::refused(format!("cannot listen for Ctrl-C: {error}")))?;
    let mut screen = Screen::new(stop.clone(), console.is_quiet());
    let measured = source(args, experiment.as_ref(), &screen).map_err(Ended::from).and_then(|mut source| {
        screen.expect(source.bytes());
        bench::run(&plan, &mut source, &screen)
    });
    screen.finish();
    // The results before a failure may have taken hours, so they are kept.
    let (report, ended) = match measured {
        Ok(report) => (Some(report), None),
        Err(ended) => (ended.report.map(|report| *report), Some(ended.error)),
    };
    // Files are written first, because the reader of standard output may be gone by now.
    let kept = report.as_ref().map_or(Ok(()), |report| {
        let written = outputs.write(report);
        let shown = show(report, args, console);
        written.and(if stop.hung_up() { Ok(()) } else { shown })
    });
    if let Some(error) = ended {
        // Both went wrong: why the measurement ended comes first.
        if let Err(unwritten) = kept {
            console.remark(&format!("cenote bench: {error}"));
            return Err(unwritten);
        }
        return Err(end(&error, &stop, args.resume.as_deref(), console));
    }
    kept?;
    match report.iter().flat_map(|report| &report.runs).find(|run| !run.verified) {
        None => Ok(0),
        Some(run) => Err(Failure::refused(format!(
            "data was not read back as it was written (compression {}); check memory and disks",
            run.compression
        ))),
    }
}

/// Prints a report for people, or for programs.
fn show(report: &Report, args: &Bench, console: &mut Console) -> Result<(), Failure> {
    if args.json.as_deref() == Some(Path::new("-")) {
        write!(console.out(), "{}", report.to_json())?;
    } else {
        print(console, report, args.wide)?;
    }
    console.flush()
}

/// The message at an early end.
fn end(error: &Error, stop: &Stop, journal: Option<&Path>, console: &mut Console) -> Failure {
    if !matches!(error, Error::Interrupted) {
        return Failure::refused(error.to_string());
    }
    console.remark("cenote bench: interrupted; the temporary files are gone");
    if let Some(path) = journal {
        console.remark(&format!("what is done is in '{}': the same command goes on", path.display()));
    }
    Failure::Ended(stop.status())
}

fn refused(error: Error) -> Failure {
    Failure::refused(error.to_string())
}

/// The data to measure with: files that the user names, else those of the experiment, else the sample.
fn source(args: &Bench, experiment: Option<&Experiment>, watch: &dyn Watch) -> Result<Source, Error> {
    let data = match experiment {
        Some(experiment) if args.data.is_empty() => &experiment.data,
        _ => &args.data,
    };
    match (&args.paths[..], &data[..]) {
        ([], []) => Source::sample(),
        ([], data) => Source::named_until(data, watch),
        (paths, _) => Source::scan_without(paths, &results(args), watch),
    }
}

/// Files that this measurement writes.
fn results(args: &Bench) -> Vec<PathBuf> {
    let pictures = [&args.report, &args.png, &args.social];
    let files =
        pictures.into_iter().chain([&args.json, &args.csv, &args.markdown, &args.trace, &args.resume]);
    files.flatten().cloned().collect()
}

fn plan(args: &Bench, experiment: Option<&Experiment>, around: &Surroundings) -> Result<Plan, Failure> {
    let mut plan = Plan::usual();
    if let Some(experiment) = experiment {
        experiment.apply(&mut plan);
    }
    plan.place = place(args, around, plan.place)?;
    if !args.compression.is_empty() || !args.recordsize.is_empty() {
        plan.pairs.clear();
    }
    let given = Experiment {
        compressions: args.compression.clone(),
        recordsizes: args.recordsize.clone(),
        pairs: args.pair.clone(),
        threads: Threads::counts(&args.threads),
        totals: args.total.clone(),
        repeat: args.repeat,
        dirty_max: args.dirty_max,
        device: Device { write_bytes: args.disk_write, read_bytes: args.disk_read },
        network: args.network,
        against: args.against.clone(),
        streams: args.streams,
        ..Experiment::default()
    };
    given.apply(&mut plan);
    plan.journal.clone_from(&args.resume);
    let steps = match experiment {
        Some(experiment) if args.command.is_empty() => experiment.steps.clone(),
        _ => args.command.iter().map(|text| Step::parse(text)).collect(),
    };
    if !steps.is_empty() {
        plan.application = Some(Application { steps, mounter: Arc::new(mount::Here) });
    }
    plan.about.command = command_line();
    plan.about.started = jiff::Zoned::now().strftime("%Y-%m-%d %H:%M %:z").to_string();
    Ok(plan)
}

fn place(args: &Bench, around: &Surroundings, usual: Place) -> Result<Place, Failure> {
    Ok(match (&args.pool, &args.dir) {
        (Some(name), _) => {
            let usable = open::find(name, around).map_err(|error| match error {
                NotOpen::Missing(_) if around.search.is_empty() => Failure::refused(format!(
                    "cannot open '{name}': no such pool (an exported one: cenote -d FILE bench --pool {name} …)"
                )),
                other => other.into(),
            })?;
            if usable.known.as_ref().is_some_and(|known| known.read_only) {
                return Err(Action::Write(name).failed(crate::messages::reason::POOL_READ_ONLY));
            }
            let found = usable.found.ok_or_else(|| NotOpen::Unavailable(name.clone()))?;
            if open::is_held(&found) {
                return Err(in_use(name, &found));
            }
            Place::Pool { found: Box::new(found), name: name.clone() }
        }
        (None, Some(dir)) => Place::Folder(dir.clone()),
        (None, None) => usual,
    })
}

/// A pool is opened and closed for each measurement, which no other process may hold.
fn in_use(name: &str, found: &pool::Found) -> Failure {
    let devices = found.devices.values().map(|path| format!("-d {} ", shell_word(&path.to_string_lossy())));
    let devices: String = devices.collect();
    Failure::refused(format!("cannot measure in '{name}': another process, its server perhaps, holds it")).hint(
        format!("first 'zpool export {name}', then 'cenote {devices}bench --pool {name} …'; 'zpool import {name}' after that"),
    )
}

/// The words this process was started with, as a shell would take them again.
pub(super) fn command_line() -> String {
    let words = std::env::args_os().skip(1).map(|word| shell_word(&word.to_string_lossy()));
    let words: Vec<String> = words.collect();
    format!("cenote {}", words.join(" "))
}

/// Prints a report.
///
/// # Errors
/// Standard output is gone.
pub(super) fn print(console: &mut Console, report: &Report, wide: bool) -> Result<(), Failure> {
    console.fold(|name| std::env::var_os(name));
    let (lines, left_out) = table::fitting(&report.runs, console.columns().filter(|_| !wide));
    lines.iter().try_for_each(|line| console.line(line))?;
    if !left_out.is_empty() {
        table::say_left_out(&left_out, console)?;
    }
    for text in LEGEND.iter().filter(|(column, _)| !left_out.contains(column)).map(|(_, text)| text) {
        console.sentence(text)?;
    }
    let figures = Figures::of(report);
    for table in figures.tables.iter().filter(|table| !NOT_ON_TERMINAL.contains(&table.title.as_str())) {
        table::print(console, table)?;
    }
    console.line("")?;
    if let [first, rest @ ..] = &report.runs[..]
        && rest.iter().all(|run| (run.recordsize, run.threads) == (first.recordsize, first.threads))
    {
        let size = pool::props::number::nice(first.recordsize);
        let threads = if first.threads == 1 { "thread" } else { "threads" };
        console.sentence(&format!(
            "All with records of {size} and {} {threads}. Every byte was read back and compared.",
            first.threads
        ))?;
    }
    for text in report.machine.lines(&report.version).iter().chain(&report.cautions()) {
        console.sentence(text)?;
    }
    console.line("")?;
    console.answer(Colour::Bold, &report.sentence())?;
    match &report.recommendation.command[..] {
        "" => Ok(()),
        command => console.line(&format!("  {command}")),
    }
}

/// How a report becomes the contents of a file.
pub(super) type Form = fn(&Report) -> Result<Vec<u8>, String>;

/// The forms by the endings of their files.
pub(super) const FORMS: [(&str, Form); 5] = [
    ("html", |report| Ok(report.to_html().into_bytes())),
    ("png", Report::to_png),
    ("json", |report| Ok(report.to_json().into_bytes())),
    ("csv", |report| Ok(report.to_csv().into_bytes())),
    ("md", |report| Ok(report.to_markdown().into_bytes())),
];

/// Files for the results.
struct Outputs(Vec<(Output, Form)>);

impl Outputs {
    fn begin(args: &Bench) -> Result<Outputs, Failure> {
        let json = args.json.as_ref().filter(|path| **path != Path::new("-"));
        for path in args.png.iter().chain(&args.social) {
            let is_png = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("png"));
            // Pipes and devices have any name.
            if !is_png && path.metadata().map_or(true, |there| there.is_file()) {
                let path = path.display();
                return Err(Failure::refused(format!("cannot write '{path}': its ending is not .png")));
            }
        }
        let paths =
            [args.report.as_ref(), args.png.as_ref(), json, args.csv.as_ref(), args.markdown.as_ref()];
        let wanted = paths.into_iter().zip(FORMS).filter_map(|(path, (_, form))| Some((path?, form)));
        let trace: Form = |report| Ok(report.trace_csv().into_bytes());
        let wanted = wanted.chain(args.trace.as_ref().map(|path| (path, trace)));
        let social: Form = Report::to_social;
        let wanted = wanted.chain(args.social.as_ref().map(|path| (path, social)));
        let begun = wanted.map(|(path, form)| Ok((Output::begin(path)?, form)));
        begun.collect::<Result<_, _>>().map(Outputs)
    }

    /// Writes each, even if others cannot be written.
    fn write(self, report: &Report) -> Result<(), Failure> {
        let mut lines = Vec::new();
        for (output, form) in self.0 {
            let drawn =
                form(report).map_err(|error| Failure::refused(format!("cannot draw the report: {error}")));
            match drawn.and_then(|bytes| output.write(&bytes)) {
                Err(Failure::Refused(mut said)) => lines.append(&mut said),
                done => done?,
            }
        }
        if lines.is_empty() { Ok(()) } else { Err(Failure::Refused(lines)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::own::asked::{call, refusal};
    use crate::own::page_numbers::missing_numbers;

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
        assert!(lines[0].starts_with("compression  space") && lines[1].starts_with("off "), "{out}");
        assert!(lines.contains(&"  zfs set compression=lz4 POOL/DATASET"), "{out}");
        let json = std::fs::read_to_string(at("r.json")).expect("written");
        let report: Report = serde_json::from_str(&json).expect("the contract");
        assert!(report.runs.iter().all(|run| run.verified) && report.runs.len() == 2);
        assert_eq!(std::fs::read_to_string(at("r.csv")).expect("written").lines().count(), 3);
        assert!(std::fs::read_to_string(at("r.md")).expect("written").contains("| lz4 |"));
    }

    #[test]
    fn every_number_of_the_page_is_in_its_data() {
        let dir = data();
        let at = |name: &str| dir.path().join(name).display().to_string();
        let line = format!(
            "bench --compression off,zle,lz4,lzjb,gzip-1,zstd-1 --recordsize 16K,64K,128K --repeat 3 --streams --dir {} --report {} --png {} --json {} {}",
            dir.path().display(),
            at("r.html"),
            at("r.png"),
            at("r.json"),
            at("text")
        );
        assert_eq!(call(&line).0, Ok(0));
        let html = std::fs::read_to_string(at("r.html")).expect("written");
        let json =
            html.split_once("id=\"json\">").expect("data").1.split_once("</script>").expect("its end").0;
        let value: serde_json::Value = serde_json::from_str(json).expect("JSON");
        assert_eq!(value["runs"].as_array().map(Vec::len), Some(18));
        assert_eq!(missing_numbers(&html), Vec::<String>::new());
        let compared = format!("report {} {} -o {}", at("r.json"), at("r.json"), at("compared.html"));
        assert_eq!(call(&compared).0, Ok(0));
        let page = std::fs::read_to_string(at("compared.html")).expect("written");
        assert_eq!(missing_numbers(&page), Vec::<String>::new());
        // The test notices a number that is not in the data.
        let wrong = html.replacen("</main>", "<p>3.14159</p></main>", 1);
        assert_eq!(missing_numbers(&wrong), ["3.14159"]);
        assert!(
            !html.contains("http://")
                || html.matches("http://").count() == html.matches("http://www.w3.org/2000/svg").count()
        );
        assert!(!html.contains("https://") && html.len() < 600_000, "{}", html.len());
        let png = std::fs::read(at("r.png")).expect("written");
        assert!(png.starts_with(b"\x89PNG") && (10_000..400_000).contains(&png.len()), "{}", png.len());
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
    fn failed_measurements_are_one_clear_line() {
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
        assert!(refusal(&format!("bench --report {at} {at}/text")).starts_with("cannot write '"));
        let picture = refusal(&format!("bench --png {at}/x.jpg {at}/text"));
        assert_eq!(picture, format!("cannot write '{at}/x.jpg': its ending is not .png"));
        assert!(refusal("bench --data fast:1M").starts_with("no such data: 'fast:1M'"));
        assert!(refusal(&format!("bench --experiment {at}/none.toml")).starts_with("cannot read '"));
        std::fs::write(dir.path().join("bad.toml"), "recordsize = [").expect("written");
        let bad = refusal(&format!("bench --experiment {at}/bad.toml"));
        assert!(bad.starts_with("cannot read '") && !bad.contains('\n'), "{bad}");
        assert!(refusal(&format!("bench --against {at}/none {at}/text")).starts_with("cannot measure in '"));
        let left: Vec<_> = std::fs::read_dir(dir.path()).expect("a folder").collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }
}
