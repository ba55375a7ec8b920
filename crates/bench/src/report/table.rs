//! Runs in rows and columns, for people.

use pool::props::number;

use super::{Run, Spread, baseline};
use crate::Table;

/// Column headings of the tables.
const HEADINGS: [&str; 14] = [
    "compression",
    "recordsize",
    "threads",
    "logical",
    "space",
    "saved",
    "compressratio",
    "write MB/s",
    "write CPU s",
    "write time",
    "read MB/s",
    "read CPU s",
    "read time",
    "verified",
];

/// Runs as a table for people. Times are relative to `off`.
#[must_use]
pub fn table(runs: &[Run]) -> Table {
    Table {
        columns: HEADINGS.map(str::to_owned).to_vec(),
        rows: runs.iter().map(|run| cells(runs, run).to_vec()).collect(),
        ..Table::default()
    }
}

fn cells(runs: &[Run], run: &Run) -> [String; HEADINGS.len()] {
    let rate = |bytes_per_second: f64| format!("{:.1}", bytes_per_second / 1e6);
    let relative = |of: fn(&Run) -> f64| {
        baseline(runs, run).map_or("-".to_owned(), |base| format!("{:.2}", of(run) / of(base)))
    };
    let spread = |seconds: f64, of: fn(&Spread) -> f64| match &run.spread {
        Some(spread) if seconds > 0.0 => format!(" ±{:.0}%", of(spread) / seconds * 100.0),
        _ => String::new(),
    };
    [
        run.against.clone().unwrap_or_else(|| run.compression.clone()),
        if run.against.is_some() { "-".to_owned() } else { number::nice(run.recordsize) },
        run.threads.to_string(),
        number::nice_bytes(run.logical_bytes),
        number::nice_bytes(run.allocated_bytes),
        format!("{:.1}%", run.saving() * 100.0).replace("-0.0", "0.0"),
        format!("{:.2}x", run.compressratio),
        rate(run.write_rate()) + &spread(run.write_seconds, |s| s.write_seconds),
        format!("{:.2}", run.write_cpu_seconds),
        relative(|run| run.write_seconds),
        rate(run.read_rate()) + &spread(run.read_seconds, |s| s.read_seconds),
        format!("{:.2}", run.read_cpu_seconds),
        relative(|run| run.read_seconds),
        if run.verified { "yes" } else { "NO" }.to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    #[test]
    fn times_are_relative_to_off_under_the_same_conditions() {
        let mut report = report();
        let Table { rows, .. } = table(&report.runs);
        assert_eq!(
            (rows[0][9].as_str(), rows[1][9].as_str(), rows[1][12].as_str()),
            ("1.00", "2.00", "1.00")
        );
        assert_eq!(rows[1][10], "290.1 ±10%");
        report.runs[0].recordsize = 4096;
        assert_eq!(table(&report.runs).rows[1][9], "-");
    }
}
