//! How good advice is that looks at only a part of the data: `budgets [--seeds N] PATH…`.
//!
//! Stores everything first, so that the ratios are known; then asks with ever smaller parts of the bytes and with many
//! seeds. For each part it prints how far off the ratios were, how wide their intervals said they might be, and how many
//! intervals held the truth.

use std::collections::HashMap;
use std::path::PathBuf;

use bench::advise::{Question, Subject, advise};
use bench::{Event, Place, Plan, Source, Watch};

const COMPRESSIONS: [&str; 5] = ["lz4", "zstd-1", "gzip-1", "lzjb", "zle"];
const RECORDSIZES: [u64; 3] = [16 << 10, 128 << 10, 1 << 20];
const PARTS: [u64; 6] = [1, 2, 4, 8, 16, 32];

struct Deaf;

impl Watch for Deaf {
    fn event(&self, _: Event<'_>) {}

    fn stopped(&self) -> bool {
        false
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut seeds = 20;
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seeds" => seeds = words.next().ok_or("--seeds needs a number")?.parse()?,
            path => paths.push(path.into()),
        }
    }
    let mut source = if paths.is_empty() { Source::sample() } else { Source::scan(&paths) }?;
    let plan = Plan {
        compressions: COMPRESSIONS.map(str::to_owned).to_vec(),
        recordsizes: RECORDSIZES.to_vec(),
        place: Place::Folder(std::env::temp_dir()),
        ..Plan::usual()
    };
    let report = bench::run(&plan, &mut source, &Deaf)?;
    let of = |run: &bench::Run| ((run.compression.clone(), run.recordsize), run.compressratio);
    let stored: HashMap<(String, u64), f64> = report.runs.iter().map(of).collect();

    println!(
        "part of the bytes   read   off by: half below   90 % below  at most   half interval: middle   held"
    );
    for part in PARTS {
        let (mut off, mut widths, mut held, mut read) = (Vec::new(), Vec::new(), 0, 0.0);
        for seed in 0..seeds {
            let usual = Question::usual();
            let mut target = usual.target;
            (target.disk_write, target.disk_read) = (Some(1e9), Some(1e9));
            let question = Question {
                compressions: COMPRESSIONS.map(str::to_owned).to_vec(),
                recordsizes: RECORDSIZES.to_vec(),
                target,
                seconds: 600.0,
                seed,
                bytes_max: Some(source.bytes() / part),
                ..Question::usual()
            };
            let subjects = match &paths[..] {
                [] => vec![Subject::Sample],
                paths => paths.iter().map(|path| Subject::Path(path.clone())).collect(),
            };
            let advice = advise(&question, subjects, &Deaf)?;
            read += advice.sample.sampled_bytes as f64 / advice.sample.bytes as f64 / f64::from(seeds as u32);
            for row in &advice.rows {
                let ratio = stored[&(row.compression.clone(), row.recordsize)];
                off.push((row.compressratio / (ratio + 0.005) - 1.0).abs());
                widths.push((row.ratio_high - row.compressratio) / row.compressratio);
                // The property is cut to two decimals.
                held += usize::from((row.ratio_low - 0.01..=row.ratio_high).contains(&ratio));
            }
        }
        off.sort_by(f64::total_cmp);
        widths.sort_by(f64::total_cmp);
        let at =
            |sorted: &[f64], quantile: f64| 100.0 * sorted[((sorted.len() - 1) as f64 * quantile) as usize];
        println!(
            "            1/{part:<4}  {:>5.1}%              {:>5.2}%       {:>5.2}%   {:>5.2}%                  {:>5.2}%  {:.1}%",
            100.0 * read,
            at(&off, 0.5),
            at(&off, 0.9),
            at(&off, 1.0),
            at(&widths, 0.5),
            100.0 * held as f64 / off.len() as f64
        );
    }
    Ok(())
}
