//! Tables and charts over conditions: record sizes, threads, totals, steps of programs.
//!
//! From:   runs that differ in a condition.
//! To:     [`Figures`](crate::Figures).

use pool::props::number::{nice, nice_bytes};

use crate::figures::{Axis, Chart, Grid, Kind, Series};
use crate::{Report, Run};

/// Tables for each condition that varies.
pub(crate) fn grids(runs: &[Run]) -> Vec<Grid> {
    [by_recordsize(runs), by_threads(runs), by_total(runs)].concat()
}

/// Ratio and speed by compression and record size, blank where a pair was not measured.
fn by_recordsize(runs: &[Run]) -> Vec<Grid> {
    let pools = pools(runs, |run, last| (run.threads, run.total_bytes) == (last.threads, last.total_bytes));
    let sizes = distinct(pools.iter().map(|run| run.recordsize));
    if sizes.len() < 2 {
        return Vec::new();
    }
    let names = distinct(pools.iter().map(|run| run.compression.clone()));
    let grid = |title: &str, unit: &str, decimals, of: fn(&Run) -> f64| Grid {
        title: title.to_owned(),
        unit: unit.to_owned(),
        decimals,
        corner: "recordsize".to_owned(),
        columns: names.clone(),
        rows: sizes
            .iter()
            .map(|size| {
                let at = |name: &String| {
                    let is = |run: &&&Run| run.compression == *name && run.recordsize == *size;
                    pools.iter().rfind(is).map(|run| of(run))
                };
                (nice(*size), names.iter().map(at).collect())
            })
            .collect(),
    };
    vec![
        grid("Compression ratio by record size", "", 2, |run| run.compressratio),
        grid("Writing by record size", "MB/s", 1, |run| run.write_rate() / 1e6),
        grid("Reading by record size", "MB/s", 1, |run| run.read_rate() / 1e6),
    ]
}

/// Speed by compression and number of threads, and what the most gain over the fewest.
fn by_threads(runs: &[Run]) -> Vec<Grid> {
    let pools =
        pools(runs, |run, last| (run.recordsize, run.total_bytes) == (last.recordsize, last.total_bytes));
    let mut counts = distinct(pools.iter().map(|run| run.threads));
    counts.sort_unstable();
    let [fewest, .., most] = &counts[..] else { return Vec::new() };
    let names = distinct(pools.iter().map(|run| run.compression.clone()));
    let grid = |title: &str, of: fn(&Run) -> f64| {
        let at = |name: &String, threads: u32| {
            let is = |run: &&&Run| run.compression == *name && run.threads == threads;
            pools.iter().rfind(is).map(|run| of(run) / 1e6)
        };
        let speeds = |threads: u32| names.iter().map(|name| at(name, threads)).collect();
        let mut rows: Vec<(String, Vec<Option<f64>>)> =
            counts.iter().map(|threads| (threads.to_string(), speeds(*threads))).collect();
        let gain = |name| Some(at(name, *most)? / at(name, *fewest)?);
        rows.push((format!("{most} over {fewest}"), names.iter().map(gain).collect()));
        Grid {
            title: title.to_owned(),
            unit: "MB/s".to_owned(),
            decimals: 1,
            corner: "threads".to_owned(),
            columns: names.clone(),
            rows,
        }
    };
    vec![
        grid("Writing by number of threads", Run::write_rate),
        grid("Reading by number of threads", Run::read_rate),
    ]
}

/// Average speed by how much is written, as the writer sees it and until it is durable.
fn by_total(runs: &[Run]) -> Vec<Grid> {
    let sized: Vec<&Run> = runs.iter().filter(|run| run.total_bytes.is_some()).collect();
    let totals = distinct(sized.iter().map(|run| run.logical_bytes));
    let Some(&last) = sized.last().filter(|_| totals.len() > 1) else { return Vec::new() };
    let sized = sized.into_iter().filter(|run| run.threads == last.threads);
    let kind = |run: &Run| (run.against.clone(), run.compression.clone(), run.recordsize);
    let kinds = distinct(sized.clone().map(kind));
    let name = |(against, compression, recordsize): &(Option<String>, String, u64)| match against {
        Some(against) => against.clone(),
        None => format!("{compression} {}", nice(*recordsize)),
    };
    let row = |of_kind: &(Option<String>, String, u64), what: &str, rate: &dyn Fn(&Run) -> Option<f64>| {
        let at = |total: &u64| {
            let run = sized.clone().rfind(|run| run.logical_bytes == *total && kind(run) == *of_kind)?;
            Some(rate(run)? / 1e6)
        };
        (format!("{}, {what}", name(of_kind)), totals.iter().map(at).collect())
    };
    let rows = kinds.iter().flat_map(|kind| {
        [row(kind, "accepted", &Run::accepted_rate), row(kind, "durable", &|run| Some(run.write_rate()))]
    });
    vec![Grid {
        title: "Writing by how much is written".to_owned(),
        unit: "MB/s".to_owned(),
        decimals: 1,
        corner: "written".to_owned(),
        columns: totals.iter().map(|total| nice_bytes(*total)).collect(),
        rows: rows.collect(),
    }]
}

/// Lines over record sizes, threads and totals, where there are several.
pub(crate) fn sweeps(report: &Report) -> Vec<Chart> {
    let runs = &report.runs;
    let sized = pools(runs, |run, last| (run.threads, run.total_bytes) == (last.threads, last.total_bytes));
    let threaded =
        pools(runs, |run, last| (run.recordsize, run.total_bytes) == (last.recordsize, last.total_bytes));
    let size = Condition { label: "record size", of: |run| run.recordsize, name: nice };
    let threads =
        Condition { label: "number of threads", of: |run| u64::from(run.threads), name: |n| n.to_string() };
    let by_size = |what, rate| sweep(&sized, &size, what, rate);
    let over_threads = |what, rate| sweep(&threaded, &threads, what, rate);
    let charts = [
        by_size("Writing", Run::write_rate),
        by_size("Reading", Run::read_rate),
        over_threads("Writing", Run::write_rate),
        over_threads("Reading", Run::read_rate),
        totals(report),
    ];
    charts.into_iter().flatten().collect()
}

/// Runs in pools that are like the last one of them: where several conditions vary, the others are held to its own. A
/// measurement that ended early has nothing beside some of them.
fn pools(runs: &[Run], like: fn(&Run, &Run) -> bool) -> Vec<&Run> {
    let own = || runs.iter().filter(|run| run.against.is_none());
    let Some(last) = own().next_back() else { return Vec::new() };
    own().filter(|run| like(run, last)).collect()
}

/// A condition of runs that has several values.
struct Condition {
    label: &'static str,
    of: fn(&Run) -> u64,
    /// How a value is written.
    name: fn(u64) -> String,
}

/// A line of speeds for each compression, over the values of a condition.
fn sweep(runs: &[&Run], condition: &Condition, what: &str, rate: fn(&Run) -> f64) -> Option<Chart> {
    let Condition { label, of, name } = *condition;
    let mut places = distinct(runs.iter().map(|run| of(run)));
    places.sort_unstable();
    if places.len() < 2 {
        return None;
    }
    let mut series: Vec<Series> = Vec::new();
    for run in runs {
        let at = places.iter().position(|value| *value == of(run)).expect("it is one of them") as f64;
        if !series.iter().any(|line| line.name == run.compression) {
            series.push(Series { name: run.compression.clone(), points: Vec::new() });
        }
        let line = series.iter_mut().find(|line| line.name == run.compression).expect("it was just added");
        line.points.push((at, rate(run) / 1e6));
    }
    series.iter_mut().for_each(|line| line.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    let words = places.iter().enumerate().map(|(at, value)| (at as f64, name(*value))).collect();
    Some(Chart {
        title: format!("{what} by {label}"),
        description: format!("{what} speed in MB/s of each compression, for each {label}."),
        kind: Kind::Lines {
            x: Axis { label: label.to_owned(), log: false, words },
            y: Axis::linear("MB/s"),
            series,
            mark: None,
        },
    })
}

/// Average speed by how much is written, as the writer sees it and until it is durable.
fn totals(report: &Report) -> Option<Chart> {
    let last = report.runs.iter().rfind(|run| run.against.is_none())?;
    let alike = |run: &&Run| run.threads == last.threads && run.recordsize == last.recordsize;
    let mut runs: Vec<&Run> = report.runs.iter().filter(|run| run.total_bytes.is_some()).collect();
    runs.retain(|run| run.against.is_some() || alike(run));
    runs.sort_by_key(|run| run.logical_bytes);
    if distinct(runs.iter().map(|run| run.logical_bytes)).len() < 2 {
        return None;
    }
    let named = |run: &Run| run.against.clone().unwrap_or_else(|| run.compression.clone());
    let names = distinct(runs.iter().map(|run| named(run)));
    let line = |name: &String, what: &str, rate: &dyn Fn(&Run) -> Option<f64>| Series {
        name: format!("{name}, {what}"),
        points: runs
            .iter()
            .filter(|run| named(run) == *name)
            .filter_map(|run| Some((run.logical_bytes as f64 / 1e6, rate(run)? / 1e6)))
            .collect(),
    };
    let series = names.iter().flat_map(|name| {
        [line(name, "accepted", &Run::accepted_rate), line(name, "durable", &|run| Some(run.write_rate()))]
    });
    let mark = report.dirty_max.map(|bytes| {
        let at = report.knee_bytes.unwrap_or(bytes);
        (at as f64 / 1e6, format!("dirty limit {}", nice(bytes)))
    });
    Some(Chart {
        title: "Average speed by how much is written".to_owned(),
        description: "As long as changes fit in memory a writer runs ahead of the disk; with more data the average \
                      comes down to what the disk and the compression can do. The mark is where the dirty limit is \
                      reached."
            .to_owned(),
        kind: Kind::Lines {
            x: Axis { label: "written, MB".to_owned(), log: true, words: Vec::new() },
            y: Axis::linear("MB/s"),
            series: series.collect(),
            mark,
        },
    })
}

/// Seconds of each step by compression.
pub(crate) fn steps(runs: &[Run]) -> Option<Grid> {
    let with: Vec<&Run> = runs.iter().filter(|run| !run.steps.is_empty()).collect();
    let name = |step: &crate::StepRun| match step.threads {
        1 => format!("{} (1 thread)", step.name),
        count => format!("{} ({count} threads)", step.name),
    };
    let rows = distinct(with.iter().flat_map(|run| run.steps.iter().map(name)));
    if rows.is_empty() {
        return None;
    }
    let row = |row: String| {
        let numbers = with.iter().map(|run| run.steps.iter().find(|s| name(s) == row).map(|s| s.seconds));
        let numbers = numbers.collect();
        (row, numbers)
    };
    Some(Grid {
        title: "Time of each step".to_owned(),
        unit: "s".to_owned(),
        decimals: 2,
        corner: "step".to_owned(),
        columns: with.iter().map(|run| run.label(runs)).collect(),
        rows: rows.into_iter().map(row).collect(),
    })
}

fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut kept = Vec::new();
    for value in values {
        if !kept.contains(&value) {
            kept.push(value);
        }
    }
    kept
}
