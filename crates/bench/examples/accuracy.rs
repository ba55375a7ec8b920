//! How well the advisor foretells what `cenote bench` measures: `accuracy [--dir DIR] [--repeat N] PATH…`;
//! with `--advice` it only asks.
//!
//! Asks first, measures then, and prints both for each configuration, with the share of rates within 20 % and of ratios
//! within 2 % and within their intervals.

use std::path::PathBuf;

use bench::advise::{Advice, Question, Subject, advise};
use bench::{Event, Place, Plan, Report, Source, Watch};

struct Deaf;

impl Watch for Deaf {
    fn event(&self, event: Event<'_>) {
        if let Event::Note(note) = event {
            eprintln!("{note}");
        }
    }

    fn stopped(&self) -> bool {
        false
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut folder = std::env::temp_dir();
    let (mut repeat, mut only_asks) = (3, false);
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--dir" => folder = words.next().ok_or("--dir needs a folder")?.into(),
            "--repeat" => repeat = words.next().ok_or("--repeat needs a number")?.parse()?,
            "--advice" => only_asks = true,
            path => paths.push(path.into()),
        }
    }
    let question =
        Question { recordsizes: vec![128 << 10], folder: Some(folder.clone()), ..Question::usual() };
    let subjects = match &paths[..] {
        [] => vec![Subject::Sample],
        paths => paths.iter().map(|path| Subject::Path(path.clone())).collect(),
    };
    let advice = advise(&question, subjects, &Deaf)?;
    if only_asks {
        advice.lines().iter().for_each(|line| println!("{line}"));
        return Ok(());
    }
    let mut source = if paths.is_empty() { Source::sample() } else { Source::scan(&paths) }?;
    let plan = Plan {
        compressions: question.compressions.clone(),
        recordsizes: question.recordsizes.clone(),
        repeat,
        place: Place::Folder(folder),
        ..Plan::usual()
    };
    let report = bench::run(&plan, &mut source, &Deaf)?;
    compare(&advice, &report);
    Ok(())
}

/// Prints what was foretold beside what was measured.
fn compare(advice: &Advice, report: &Report) {
    let target = &advice.target;
    println!(
        "disks write {:.0} and read {:.0} MB/s, engine {:?} and {:?}; {} of {} bytes sampled in {:.1} s",
        target.disk_write.unwrap_or(0.0) / 1e6,
        target.disk_read.unwrap_or(0.0) / 1e6,
        target.engine_write,
        target.engine_read,
        advice.sample.sampled_bytes,
        advice.sample.bytes,
        advice.sample.seconds
    );
    println!(
        "compression   ratio: foretold ±    measured  off by   write MB/s: foretold  measured  off by   read MB/s: foretold  measured  off by   cpu/B: codec  run"
    );
    let (mut ratios, mut held, mut writes, mut reads) = (0, 0, 0, 0);
    let count = report.runs.len();
    for (row, run) in advice.rows.iter().zip(&report.runs) {
        let off = |foretold: f64, measured: f64| 100.0 * (foretold / measured - 1.0);
        let (ratio, write, read) = (
            off(row.compressratio, run.compressratio + 0.005),
            off(row.write.bytes_per_second, run.write_rate()),
            off(row.read.bytes_per_second, run.read_rate()),
        );
        ratios += u32::from(ratio.abs() <= 2.0);
        held += u32::from((row.ratio_low - 0.01..=row.ratio_high).contains(&run.compressratio));
        writes += u32::from(write.abs() <= 20.0);
        reads += u32::from(read.abs() <= 20.0);
        println!(
            "{:<12} {:>10.3} {:>7.3} {:>8.2} {ratio:>6.1}%  {:>18.0} {:>9.0} {write:>6.1}%  {:>18.0} {:>9.0} {read:>6.1}%  {:>8.2} {:.2} {:.2} {:.2}",
            row.compression,
            row.compressratio,
            row.ratio_high - row.compressratio,
            run.compressratio,
            row.write.bytes_per_second / 1e6,
            run.write_rate() / 1e6,
            row.read.bytes_per_second / 1e6,
            run.read_rate() / 1e6,
            1e9 / row.compress_rate,
            run.write_cpu_seconds / run.logical_bytes as f64 * 1e9,
            1e9 / row.decompress_rate,
            run.read_cpu_seconds / run.logical_bytes as f64 * 1e9,
        );
    }
    println!(
        "of {count}: ratios within 2 % {ratios}, within their interval {held}; within 20 %: writes {writes}, reads {reads}"
    );
}
