//! Runs in rows and columns: for people, as CSV, as Markdown.

use std::fmt::Write as _;

use pool::props::number;

use super::{Report, Run, Spread, baseline};
use crate::compare::quoted;
use crate::{Figures, Table, Tick};

/// Column headings of the tables.
const HEADINGS: [&str; 13] = [
    "compression",
    "recordsize",
    "threads",
    "logical",
    "allocated",
    "compressratio",
    "write MB/s",
    "write CPU s",
    "write time",
    "read MB/s",
    "read CPU s",
    "read time",
    "verified",
];

impl Report {
    /// The runs, with a line of headings: those of the JSON form, the times relative to `off` (empty where it
    /// was not measured), and the spread (empty where measured once).
    #[must_use]
    pub fn to_csv(&self) -> String {
        let mut text =
            "compression,recordsize,threads,logical_bytes,allocated_bytes,compressratio,write_seconds,\
             write_cpu_seconds,read_seconds,read_cpu_seconds,verified,write_time_relative,read_time_relative,\
             repeat,write_seconds_mad,read_seconds_mad,against,total_bytes,accepted_seconds,warm_read_seconds,\
             cold_device_bytes,write_limit,read_limit,others_cpu\n"
                .to_owned();
        for run in &self.runs {
            let base = baseline(&self.runs, run);
            let relative =
                |of: fn(&Run) -> f64| base.map_or(String::new(), |base| format!("{:.3}", of(run) / of(base)));
            let (repeat, write_mad, read_mad) = match &run.spread {
                None => ("1".to_owned(), String::new(), String::new()),
                Some(s) => (s.repeat.to_string(), s.write_seconds.to_string(), s.read_seconds.to_string()),
            };
            let _ = writeln!(
                text,
                "{},{},{},{},{},{:.2},{},{},{},{},{},{},{},{repeat},{write_mad},{read_mad},{},{},{},{},{},{},{},{}",
                run.compression,
                run.recordsize,
                run.threads,
                run.logical_bytes,
                run.allocated_bytes,
                run.compressratio,
                run.write_seconds,
                run.write_cpu_seconds,
                run.read_seconds,
                run.read_cpu_seconds,
                run.verified,
                relative(|run| run.write_seconds),
                relative(|run| run.read_seconds),
                quoted(run.against.as_deref().unwrap_or_default()),
                or_empty(run.total_bytes),
                or_empty(run.accepted_seconds),
                or_empty(run.warm_read_seconds),
                or_empty(run.cold_device_bytes),
                or_empty(run.write_limit),
                or_empty(run.read_limit),
                or_empty(run.others_cpu),
            );
        }
        text
    }

    /// S4-10: CPU and devices over time, of each run in turn.
    #[must_use]
    pub fn trace_csv(&self) -> String {
        let mut text =
            "configuration,at_seconds,seconds,phase,user_percent,system_percent,idle_percent,wait_percent,\
                        own_cpu_seconds,all_cpu_seconds,read_bytes,write_bytes\n"
                .to_owned();
        for run in &self.runs {
            let name = quoted(&run.label(&self.runs));
            for t in &run.trace {
                let _ = writeln!(
                    text,
                    "{name},{},{},{},{},{},{},{},{},{},{},{}",
                    t.at,
                    t.seconds,
                    t.phase,
                    t.user,
                    t.system,
                    t.idle,
                    t.wait,
                    t.own_seconds,
                    t.busy_seconds,
                    t.read_bytes,
                    t.write_bytes
                );
            }
        }
        text
    }

    /// The same for people, a table for each run.
    #[must_use]
    pub fn traces(&self) -> Vec<Table> {
        let row = |t: &Tick| {
            let rate = |bytes: u64| format!("{:.1}", bytes as f64 / t.seconds.max(1e-3) / 1e6);
            let share = |percent: f64| format!("{percent:.0}");
            let cpu = [t.user, t.system, t.idle, t.wait].map(share);
            let mut row = vec![format!("{:.2}", t.at), t.phase.clone()];
            row.extend(cpu.into_iter().chain([rate(t.read_bytes), rate(t.write_bytes)]));
            row
        };
        let traced = self.runs.iter().filter(|run| !run.trace.is_empty());
        let table = |run: &Run| Table {
            title: format!("CPU (%) and devices (MB/s) over time, {}", run.label(&self.runs)),
            note: String::new(),
            columns: ["s", "phase", "usr", "sys", "idl", "wai", "read", "writ"].map(str::to_owned).to_vec(),
            rows: run.trace.iter().map(row).collect(),
        };
        traced.map(table).collect()
    }

    /// The same for people: a table, the machine, the recommendation.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let title = match self.about.question.as_str() {
            "" => "Compression measured by cenote",
            question => question,
        };
        let mut text = format!("# {title}\n\n");
        text += &table(&self.runs).markdown();
        text += "\nTimes are relative to `off` under the same conditions; MB are millions of bytes of the files. \
                 Writing is timed until it is durable, reading from cold caches.\n\n";
        for table in Figures::of(self).tables.iter().skip(1) {
            let _ = write!(text, "## {}\n\n{}\n", table.title, table.markdown());
        }
        for line in self.machine.lines(&self.version) {
            let _ = writeln!(text, "- {line}");
        }
        for caution in &self.cautions() {
            let _ = writeln!(text, "- {caution}");
        }
        let _ = write!(text, "\n{}\n", self.sentence());
        if !self.recommendation.command.is_empty() {
            let _ = write!(text, "\n```\n{}\n```\n", self.recommendation.command);
        }
        text
    }
}

/// A field of CSV that may be empty.
fn or_empty<T: std::fmt::Display>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

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
            (rows[0][8].as_str(), rows[1][8].as_str(), rows[1][11].as_str()),
            ("1.00", "2.00", "1.00")
        );
        assert_eq!(rows[1][9], "290.1 ±10%");
        report.runs[0].recordsize = 4096;
        assert_eq!(table(&report.runs).rows[1][8], "-");
    }

    #[test]
    fn every_line_of_csv_has_as_many_fields_as_the_first() {
        let csv = report().to_csv();
        let fields: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(fields, [24, 24, 24]);
        assert!(csv.lines().nth(2).unwrap().starts_with("lz4,131072,2,36268420,18150000,2.00,0.5,"));
    }

    #[test]
    fn the_trace_has_a_line_for_each_tick_of_each_run() {
        let mut report = report();
        let tick = |at: f64, phase: &str| Tick {
            at,
            seconds: 0.5,
            phase: phase.into(),
            read_bytes: 1_000_000,
            ..Tick::default()
        };
        report.runs[1].trace = vec![tick(0.5, "write"), tick(1.0, "read")];
        let csv = report.trace_csv();
        assert_eq!(csv.lines().count(), 3);
        assert!(csv.lines().all(|line| line.split(',').count() == 12), "{csv}");
        assert!(csv.ends_with("lz4,1,0.5,read,0,0,0,0,0,0,1000000,0\n"), "{csv}");
        let [table] = &report.traces()[..] else { panic!("one was traced") };
        assert_eq!(table.rows[1], ["1.00", "read", "0", "0", "0", "0", "2.0", "0.0"]);
    }

    #[test]
    fn markdown_shows_table_machine_and_command() {
        let text = report().to_markdown();
        assert!(
            text.contains("| lz4 | 128K | 2 |")
                && text.contains("Debian")
                && text.contains("zfs set compression=")
        );
    }
}
