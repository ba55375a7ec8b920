//! Own measurements beside published ones of the same settings.
//!
//! From:   a report with published tables.
//! To:     a table for each of those, with a published line and a line of this program in turn. Machines and data differ, so times
//!         and speeds are relative to the same setting in both; ratios are as they are.

use pool::props::size::parse_size;

use crate::{Grid, Report, Run};

/// Settings that others call differently.
const NAMES: [(&str, &str); 6] = [
    ("zstd-fast", "zstd-fast-1"),
    ("zstd", "zstd-3"),
    ("gzip", "gzip-6"),
    ("gzip-6", "gzip"),
    ("gzip with QAT", "gzip@isal"),
    ("gzip without QAT", "gzip"),
];

/// The kind of a published row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ratio,
    WriteTime,
    ReadTime,
    WriteSpeed,
    AcceptedSpeed,
    Step,
}

impl Kind {
    fn of(grid: &Grid, row: &str) -> Option<Kind> {
        match (grid.unit.as_str(), row) {
            (_, row) if row.contains("ratio") => Some(Kind::Ratio),
            ("MB/s", "write") if grid.corner.is_empty() || grid.corner == "recordsize" => {
                Some(Kind::WriteSpeed)
            }
            ("MB/s", "write") => Some(Kind::AcceptedSpeed),
            // Single runs are left out: their mean is in another row.
            ("s", row) if row.contains(", run ") => None,
            ("s", row) if row.contains("thread") => Some(Kind::Step),
            ("s", row) if row.starts_with("read") => Some(Kind::ReadTime),
            ("s", row) if row.starts_with("write") || row == "seconds" => Some(Kind::WriteTime),
            _ => None,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Kind::Ratio => "ratio",
            Kind::WriteTime => "time to write",
            Kind::ReadTime => "time to read",
            Kind::WriteSpeed => "speed of writing",
            Kind::AcceptedSpeed => "speed until accepted",
            Kind::Step => "time",
        }
    }
}

/// A table for each group of published tables of which anything was measured.
pub(crate) fn beside(report: &Report) -> Vec<Grid> {
    let mut all: Vec<Grid> = Vec::new();
    for grid in &report.published {
        let rows = grid.rows.iter().filter(|(name, _)| !is_told_as_speed(&report.published, grid, name));
        let rows: Vec<_> = rows.filter_map(|(name, row)| pair(report, grid, name, row)).flatten().collect();
        match all.last_mut() {
            _ if rows.is_empty() => {}
            Some(last) if last.title == title(grid) && last.columns == grid.columns => last.rows.extend(rows),
            _ => all.push(Grid {
                title: title(grid),
                unit: String::new(),
                decimals: 2,
                corner: grid.corner.clone(),
                columns: grid.columns.clone(),
                rows,
            }),
        }
    }
    all
}

/// Time and speed of the same say the same.
fn is_told_as_speed(all: &[Grid], grid: &Grid, row: &str) -> bool {
    row == "seconds" && all.iter().any(|other| other.title == grid.title && other.unit == "MB/s")
}

fn title(grid: &Grid) -> String {
    format!("{}, published and here", grid.title)
}

type Row = (String, Vec<Option<f64>>);

/// Their line and ours; `None` where nothing of it was measured.
fn pair(report: &Report, grid: &Grid, name: &str, theirs: &[Option<f64>]) -> Option<[Row; 2]> {
    let kind = Kind::of(grid, name)?;
    let conditions = Conditions::of(report, grid, name)?;
    let ours: Vec<Option<f64>> = (0..grid.columns.len())
        .map(|at| conditions.run(&grid.columns[at]).and_then(|run| conditions.value(kind, run)))
        .collect();
    if ours.iter().flatten().count() < 2 {
        return None;
    }
    let what = match kind {
        Kind::Step | Kind::Ratio => name.to_owned(),
        _ => format!(
            "{}{}",
            kind.name(),
            conditions.cores.as_ref().map_or(String::new(), |(n, _)| format!(", {n} cores"))
        ),
    };
    let here = match &conditions.cores {
        Some((_, threads)) => format!("here, threads: {threads}"),
        None => "here".to_owned(),
    };
    if kind == Kind::Ratio {
        return Some([(format!("{what}, published"), theirs.to_vec()), (format!("{what}, {here}"), ours)]);
    }
    // Relative to `off`, or to the first setting that both have.
    let both = |at: &usize| theirs[*at].is_some() && ours[*at].is_some();
    let base = grid.columns.iter().position(|column| column == "off").filter(both);
    let base = base.or_else(|| (0..ours.len()).find(both))?;
    let over = |row: &[Option<f64>]| row.iter().map(|n| Some((*n)? / row[base]?)).collect();
    let what = format!("{what}, {} = 1.00", grid.columns[base]);
    Some([(format!("{what}, published"), over(theirs)), (format!("{what}, {here}"), over(&ours))])
}

/// Which of the runs a published row is about.
struct Conditions<'a> {
    runs: Vec<&'a Run>,
    corner: &'a str,
    row: &'a str,
    /// Cores that the row names, and the number of threads here that corresponds to them.
    cores: Option<(u32, u32)>,
    /// The compression that was measured by record size or by total.
    compression: &'a str,
    totals: Vec<u64>,
    /// Bytes here for one unit of the published totals; `None` where proportions do not tell.
    scale: Option<f64>,
}

impl<'a> Conditions<'a> {
    fn of(report: &'a Report, grid: &'a Grid, row: &'a str) -> Option<Conditions<'a>> {
        let pools = || report.runs.iter().filter(|run| run.against.is_none());
        let (fewest, most) = (pools().map(|run| run.threads).min()?, pools().map(|run| run.threads).max()?);
        let named: Vec<u32> =
            report.published.iter().flat_map(|g| &g.rows).filter_map(|(name, _)| cores(name)).collect();
        let cores = cores(row).map(|count| {
            let is_fewest = named.iter().all(|other| *other >= count);
            (count, if is_fewest { fewest } else { most })
        });
        let threads = cores.map_or(most, |(_, threads)| threads);
        let runs: Vec<&Run> = pools().filter(|run| run.threads == threads).collect();
        let count = |word: &str| runs.iter().filter(|run| run.compression == word).count();
        let compression = runs.iter().map(|run| run.compression.as_str()).max_by_key(|word| count(word))?;
        let mut totals: Vec<u64> = Vec::new();
        for total in runs.iter().filter_map(|run| run.total_bytes) {
            if !totals.contains(&total) {
                totals.push(total);
            }
        }
        let scale = scale(&totals, &grid.columns);
        Some(Conditions { runs, corner: &grid.corner, row, cores, compression, totals, scale })
    }

    /// The run of a column.
    fn run(&self, column: &str) -> Option<&'a Run> {
        let known = |run: &&&Run| run.compression == self.compression;
        let found = match self.corner {
            "" => {
                let is = |word: &str| self.runs.iter().rfind(|run| run.compression == word);
                is(column).or_else(|| {
                    NAMES.iter().filter(|(theirs, _)| *theirs == column).find_map(|(_, ours)| is(ours))
                })
            }
            "recordsize" => {
                let bytes = parse_size(column).ok()?;
                self.runs.iter().filter(known).rfind(|run| run.recordsize == bytes)
            }
            // The same steps at another scale.
            _ => {
                let bytes = column.parse::<f64>().ok()? * self.scale?;
                let total = *self.totals.iter().find(|total| is_same(**total as f64, bytes))?;
                self.runs.iter().filter(known).rfind(|run| run.total_bytes == Some(total))
            }
        };
        found.copied()
    }

    fn value(&self, kind: Kind, run: &Run) -> Option<f64> {
        match kind {
            Kind::Ratio => Some(run.compressratio),
            Kind::WriteTime => Some(run.write_seconds),
            Kind::ReadTime => Some(run.read_seconds),
            Kind::WriteSpeed => Some(run.write_rate()),
            Kind::AcceptedSpeed => run.accepted_rate(),
            Kind::Step => {
                let (name, threads) = self.row.split_once(" (")?;
                let of_name = || run.steps.iter().filter(|step| step.name == name);
                let step = match threads.starts_with("1 ") {
                    true => of_name().min_by_key(|step| step.threads),
                    false => of_name().max_by_key(|step| step.threads),
                };
                step.map(|step| step.seconds)
            }
        }
    }
}

/// Proportions up to 1 % apart are the same.
fn is_same(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() < 0.01
}

/// The number of our bytes for one unit of the published totals: the one with which most of our totals have a published
/// one, at least two. `None` if there is no such number, or several.
fn scale(ours: &[u64], theirs: &[String]) -> Option<f64> {
    let theirs: Vec<f64> = theirs.iter().filter_map(|column| column.parse().ok()).collect();
    let pairs = ours.iter().flat_map(|total| theirs.iter().map(move |column| *total as f64 / column));
    let met = |scale: f64| {
        let is_met = |total: &&u64| theirs.iter().any(|column| is_same(**total as f64, column * scale));
        ours.iter().filter(is_met).count()
    };
    let most = pairs.clone().map(met).max().filter(|count| *count > 1)?;
    let mut best = pairs.filter(|scale| met(*scale) == most);
    let first = best.next()?;
    best.all(|other| is_same(other, first)).then_some(first)
}

/// The number of cores in the name of a row: `write seconds 32 cores`.
fn cores(row: &str) -> Option<u32> {
    row.strip_suffix(" cores")?.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Published, StepRun};

    fn published(key: &str, titles: &[&str]) -> Vec<Grid> {
        let file = include_str!("../../../experiments/published.toml");
        let all = Published::parse(file).unwrap().into_iter().find(|published| published.key == key).unwrap();
        all.grids.into_iter().filter(|grid| titles.contains(&grid.title.as_str())).collect()
    }

    fn run(compression: &str, threads: u32, write_seconds: f64) -> Run {
        Run {
            compression: compression.into(),
            recordsize: 131_072,
            threads,
            logical_bytes: 1_000_000,
            compressratio: 1.5,
            write_seconds,
            read_seconds: write_seconds / 2.0,
            accepted_seconds: Some(write_seconds / 4.0),
            ..Run::default()
        }
    }

    fn report(runs: Vec<Run>, published: Vec<Grid>) -> Report {
        Report { runs, published, ..Report::default() }
    }

    fn cells(grid: &Grid, row: &str) -> Vec<String> {
        let found = grid.rows.iter().find(|(name, _)| name == row);
        let (_, numbers) = found.unwrap_or_else(|| panic!("{row}: {grid:?}"));
        numbers.iter().map(|number| grid.cell(*number)).collect()
    }

    #[test]
    fn settings_match_published_ones_of_other_names() {
        let runs = [("off", 2.0), ("lz4", 2.0), ("gzip@isal", 3.0), ("gzip", 60.0)];
        let runs = [4, 8].iter().flat_map(|threads| {
            runs.iter().map(move |(word, seconds)| run(word, *threads, seconds / f64::from(*threads)))
        });
        let [s4] = &beside(&report(runs.collect(), published("S4", &["Reads with and without QAT"])))[..]
        else {
            panic!("one")
        };
        assert_eq!(cells(s4, "compressratio, here"), ["1.50", "1.50", "1.50", "1.50"]);
        let few = "time to write, 4 cores, off = 1.00";
        assert_eq!(cells(s4, &format!("{few}, published")), ["1.00", "0.98", "1.52", "33.23"]);
        assert_eq!(cells(s4, &format!("{few}, here, threads: 4")), ["1.00", "1.00", "1.50", "30.00"]);
        assert_eq!(cells(s4, "time to read, 32 cores, off = 1.00, here, threads: 8")[3], "30.00");
        assert_eq!(s4.rows.len(), 10);
    }

    #[test]
    fn record_sizes_totals_and_steps_find_theirs() {
        let sized = |recordsize, seconds| Run { recordsize, ..run("zstd-1", 2, seconds) };
        let runs =
            vec![sized(1 << 20, 2.0), sized(131_072, 4.0), Run { recordsize: 1 << 20, ..run("lz4", 2, 9.0) }];
        let [s1] =
            &beside(&report(runs, published("S1", &["Astronomical images on a NAS: zstd 1 by recordsize"])))
                [..]
        else {
            panic!("one")
        };
        assert_eq!(cells(s1, "speed of writing, 1M = 1.00, here"), ["1.00", "", "", "0.50"]);
        assert_eq!(s1.rows.len(), 4, "speed and ratio: {s1:?}");

        let of = |total: u64, seconds| Run { total_bytes: Some(total), ..run("zstd-1", 2, seconds) };
        let runs = vec![of(700, 7.0), of(300, 2.0)];
        let [s1] =
            &beside(&report(runs, published("S1", &["Astronomical images on a NAS: zstd 1 512K by total"])))
                [..]
        else {
            panic!("one")
        };
        assert_eq!(cells(s1, "speed until accepted, 70 = 1.00, here")[..2], ["1.00", "3.50"]);
        assert_eq!(cells(s1, "speed until accepted, 70 = 1.00, published")[5], "2.51");

        let of_two = |totals: [u64; 2]| {
            let runs = totals.map(|total| of(total, 1.0)).to_vec();
            beside(&report(runs, published("S1", &["Astronomical images on a NAS: zstd 1 512K by total"])))
        };
        let two = of_two([140, 40]);
        assert_eq!(cells(&two[0], "speed until accepted, 70 = 1.00, here")[..4], ["1.00", "", "1.00", ""]);
        assert!(of_two([8, 4]).is_empty(), "as 20 to 10, or as 10 to 5");
        assert!(of_two([8, 1]).is_empty(), "as none");

        let step =
            |threads, seconds| StepRun { name: "bwa mem".into(), threads, seconds, ..StepRun::default() };
        let with =
            |word: &str, seconds| Run { steps: vec![step(1, 9.0), step(2, seconds)], ..run(word, 2, 1.0) };
        let runs = vec![with("off", 2.0), with("lz4", 3.0)];
        let [s0] = &beside(&report(runs, published("S0", &["Sequencing data on CentOS: seconds"])))[..]
        else {
            panic!("one")
        };
        assert_eq!(cells(s0, "bwa mem (16 threads), off = 1.00, here")[..2], ["1.00", "1.50"]);
    }

    #[test]
    fn published_settings_without_a_measurement_are_left_out() {
        assert!(
            beside(&report(vec![run("zstd-9", 2, 1.0)], published("S3", &["Jars and sources, 2014"])))
                .is_empty()
        );
    }
}
