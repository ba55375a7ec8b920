//! `cenote report`: a measurement shown again, or two compared; published figures drawn again.
//!
//! From:   JSON that `cenote bench --json` wrote, or a file of published figures (TOML).
//! To:     the terminal, or a page, a picture, a table in a file.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use bench::{Comparison, Published};
use clap::Args;

use super::bench::outputs::Output;
use super::bench::{FORMS, Form, print, table};
use crate::messages::Failure;
use crate::out::Console;

/// A report is not larger; something else is.
const BYTES_MAX: u64 = 256 << 20;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  cenote report a.json
  cenote report -o a.html a.json
  cenote report -o top.png --social a.json
  cenote report a.json b.json")]
pub struct Report {
    /// Write to this file: .html, .md, .csv, .png or .json by its ending.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// With -o FILE.png: one picture of 1200 x 630 pixels, for the top of an article.
    #[arg(long, requires = "output", conflicts_with_all = ["second", "trace"])]
    pub social: bool,
    /// Show CPU and devices over time, of each configuration; with -o FILE.csv, as CSV.
    #[arg(long, conflicts_with = "second")]
    pub trace: bool,
    /// Show all columns of the table, however long the lines get.
    #[arg(long)]
    pub wide: bool,
    /// Print the measurement or the comparison as JSON.
    #[arg(long, conflicts_with_all = ["output", "social", "trace"])]
    pub json: bool,
    /// What 'cenote bench --json' wrote, or published figures (.toml).
    #[arg(value_name = "FILE")]
    pub first: PathBuf,
    /// Another one, to compare with the first.
    #[arg(value_name = "FILE")]
    pub second: Option<PathBuf>,
}

/// Carries out the command. Returns the exit status.
///
/// # Errors
/// A file cannot be read, is none of these, or cannot be written.
pub fn run(args: &Report, console: &mut Console) -> Result<u8, Failure> {
    let ending = args.output.as_deref().map(ending).transpose()?;
    let is_published = args.first.extension().is_some_and(|ending| ending == "toml");
    match (&args.second, is_published) {
        (Some(second), false) => compare(args, second, ending, console)?,
        (None, true) => published(args, ending, console)?,
        (None, false) if args.trace => trace(args, ending, console)?,
        (None, false) if args.social => social(args, ending)?,
        (None, false) => {
            let report = read(&args.first)?;
            match (&args.output, ending) {
                (Some(path), Some((_, form))) => {
                    let output = Output::begin(path)?;
                    output.write(&form(&report).map_err(cannot_draw)?)?;
                }
                _ if args.json => write!(console.out(), "{}", report.to_json())?,
                _ => print(console, &report, args.wide)?,
            }
        }
        (Some(_), true) => {
            return Err(Failure::refused(
                "published figures cannot be compared with a file; bench --experiment shows both",
            ));
        }
    }
    Ok(0)
}

fn cannot_draw(error: String) -> Failure {
    Failure::refused(format!("cannot draw the report: {error}"))
}

/// The form that a file's ending asks for.
fn ending(path: &Path) -> Result<(&'static str, Form), Failure> {
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase()).unwrap_or_default();
    FORMS.into_iter().find(|(name, _)| *name == ending).ok_or_else(|| {
        Failure::refused(format!(
            "cannot write '{}': its ending is none of .html, .png, .json, .csv, .md",
            path.display()
        ))
    })
}

fn text(path: &Path) -> Result<String, Failure> {
    let failed = |error: String| Failure::refused(format!("cannot read '{}': {error}", path.display()));
    bench::read_text(path, BYTES_MAX).map_err(|error| failed(error.to_string()))
}

fn read(path: &Path) -> Result<bench::Report, Failure> {
    bench::Report::from_json(&text(path)?).map_err(|error| {
        Failure::refused(format!("'{}' is no report of 'cenote bench --json': {error}", path.display()))
    })
}

fn social(args: &Report, ending: Option<(&'static str, Form)>) -> Result<(), Failure> {
    match (&args.output, ending) {
        (Some(path), Some(("png", _))) => {
            let bytes = read(&args.first)?.to_social().map_err(cannot_draw)?;
            Output::begin(path)?.write(&bytes)
        }
        _ => Err(Failure::refused("--social makes a picture: name a file that ends in .png")),
    }
}

fn trace(args: &Report, ending: Option<(&'static str, Form)>, console: &mut Console) -> Result<(), Failure> {
    let report = read(&args.first)?;
    match (&args.output, ending) {
        (Some(path), Some(("csv", _))) => Output::begin(path)?.write(report.trace_csv().as_bytes()),
        (Some(path), _) => {
            Err(Failure::refused(format!("cannot write '{}': a trace becomes .csv", path.display())))
        }
        (None, _) => match &report.traces()[..] {
            [] => Err(Failure::refused(format!("'{}' has nothing over time", args.first.display()))),
            traces => traces.iter().try_for_each(|each| table::print(console, each)),
        },
    }
}

fn compare(
    args: &Report,
    second: &Path,
    ending: Option<(&'static str, Form)>,
    console: &mut Console,
) -> Result<(), Failure> {
    let (a, b) = (read(&args.first)?, read(second)?);
    let name =
        |path: &Path| path.file_stem().map_or(String::new(), |stem| stem.to_string_lossy().into_owned());
    let mut names = (name(&args.first), name(second));
    if names.0 == names.1 {
        names = (args.first.display().to_string(), second.display().to_string());
    }
    let comparison = Comparison::of(names, &a, &b).map_err(Failure::refused)?;
    if args.json {
        return Ok(write!(console.out(), "{}", comparison.to_json())?);
    }
    let (Some(path), Some((ending, _))) = (&args.output, ending) else {
        table::print(console, &comparison.table())?;
        comparison.warnings.iter().try_for_each(|warning| console.sentence(warning))?;
        console.line("")?;
        return console.sentence(&comparison.sentence());
    };
    let output = Output::begin(path)?;
    let bytes = match ending {
        "html" => comparison.to_html().into_bytes(),
        "png" => comparison.to_png().map_err(cannot_draw)?,
        "csv" => comparison.to_csv().into_bytes(),
        "md" => comparison.to_markdown().into_bytes(),
        _ => comparison.to_json().into_bytes(),
    };
    output.write(&bytes)
}

fn published(
    args: &Report,
    ending: Option<(&'static str, Form)>,
    console: &mut Console,
) -> Result<(), Failure> {
    let failed = |error| Failure::refused(format!("cannot read '{}': {error}", args.first.display()));
    let all = Published::parse(&text(&args.first)?).map_err(failed)?;
    let markdown = || all.iter().map(Published::to_markdown).collect::<Vec<_>>().join("\n");
    match (&args.output, ending) {
        (Some(path), Some(("html", _))) => Output::begin(path)?.write(Published::page(&all).as_bytes()),
        (Some(path), Some(("md", _))) => Output::begin(path)?.write(markdown().as_bytes()),
        (Some(path), _) => Err(Failure::refused(format!(
            "cannot write '{}': published figures become .html or .md",
            path.display()
        ))),
        (None, _) if args.json => Err(Failure::refused("published figures become .html or .md, not JSON")),
        (None, _) => {
            for each in &all {
                for table in each.figures().tables {
                    table::print(console, &table)?;
                }
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call that makes the page of one report.
    fn plain(output: Option<PathBuf>, first: PathBuf) -> Report {
        Report { json: false, social: false, trace: false, output, first, second: None, wide: false }
    }

    fn call(args: &Report) -> (Result<u8, Failure>, String) {
        let mut out = Vec::new();
        let mut console = Console::new(&mut out, std::io::sink());
        let ended = run(args, &mut console);
        console.flush().expect("written");
        drop(console);
        (ended, String::from_utf8(out).expect("text"))
    }

    const GOLDEN: &str = include_str!("../../../bench/tests/report.json");

    #[test]
    fn a_report_is_shown_again_and_compared_in_each_form() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("a.json"), GOLDEN).expect("written");
        std::fs::write(at("b.json"), GOLDEN.replace("\"write_seconds\": 0.5,", "\"write_seconds\": 0.9,"))
            .expect("written");
        let args = |second: Option<&str>, output: Option<&str>| Report {
            second: second.map(at),
            ..plain(output.map(at), at("a.json"))
        };
        let (ended, out) = call(&args(None, None));
        assert!(ended == Ok(0) && out.starts_with("compression  space"), "{out}");
        let (_, out) = call(&args(Some("b.json"), None));
        assert!(out.contains("1.80  slower") && out.contains("1 slower"), "{out}");
        for second in [None, Some("b.json")] {
            for (ending, _) in FORMS {
                let name = format!("out.{ending}");
                assert_eq!(call(&args(second, Some(&name))).0, Ok(0), "{name}");
                assert!(std::fs::metadata(at(&name)).expect("written").len() > 100, "{name}");
            }
        }
    }

    #[test]
    fn a_trace_is_shown_and_becomes_csv() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        let mut report = bench::Report::from_json(GOLDEN).expect("golden");
        let args = |output: Option<&str>| Report { trace: true, ..plain(output.map(at), at("a.json")) };
        std::fs::write(at("a.json"), GOLDEN).expect("written");
        assert!(
            matches!(call(&args(None)).0, Err(Failure::Refused(lines)) if lines[0].contains("nothing over time"))
        );
        report.runs[0].trace =
            vec![bench::Tick { at: 1.0, seconds: 1.0, user: 40.0, ..bench::Tick::default() }];
        std::fs::write(at("a.json"), report.to_json()).expect("written");
        let (_, out) = call(&args(None));
        assert!(out.contains("usr") && out.contains("  40  "), "{out}");
        assert_eq!(call(&args(Some("t.csv"))).0, Ok(0));
        assert_eq!(std::fs::read_to_string(at("t.csv")).expect("written").lines().count(), 2);
        assert!(call(&args(Some("t.html"))).0.is_err() && !at("t.html").exists());
    }

    #[test]
    fn invalid_reports_are_refused_in_one_line() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("a.json"), GOLDEN).expect("written");
        for (name, text) in [
            ("empty.json", String::new()),
            ("other.json", "{}".to_owned()),
            ("newer.json", GOLDEN.replace("\"schema\": 1", "\"schema\": 9")),
            ("zero.json", GOLDEN.replace("\"read_seconds\": 0.125", "\"read_seconds\": 0")),
            ("bad.toml", "x = 1".to_owned()),
        ] {
            std::fs::write(at(name), text).expect("written");
            let (ended, _) = call(&plain(None, at(name)));
            let Err(Failure::Refused(lines)) = ended else { panic!("{name}: {ended:?}") };
            assert!(lines.len() == 1 && !lines[0].contains('\n') && lines[0].contains(name), "{lines:?}");
        }
        let output = Some(at("out.pdf"));
        assert!(call(&plain(output, at("a.json"))).0.is_err() && !at("out.pdf").exists());
        let output = Some(at("none/out.html"));
        assert!(call(&plain(output, at("a.json"))).0.is_err());
    }

    #[test]
    fn published_figures_come_out_again() {
        let dir = tempfile::tempdir().expect("a folder");
        let first = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments/published.toml"));
        let output = Some(dir.path().join("p.html"));
        assert_eq!(call(&plain(output, first.clone())).0, Ok(0));
        let page = std::fs::read_to_string(dir.path().join("p.html")).expect("written");
        assert!(["1.08", "1.71", "1.37", "1.01"].iter().all(|number| page.contains(&format!(">{number}<"))));
        let (_, out) = call(&plain(None, first));
        assert!(out.contains("samtools sam2bam (16 threads)"), "{out}");
    }
}
