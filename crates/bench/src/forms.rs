//! A report in the forms that leave the program: CSV, Markdown, a page, a picture, JSON with its figures.
//!
//! From:   a [`Report`], and the [`Figures`] drawn of it.
//! To:     text or bytes of a file.

use std::fmt::Write as _;

use pool::props::number;

use crate::figures::quoted;
use crate::page::Page;
use crate::picture::{png, social};
use crate::report::baseline;
use crate::{Figures, Machine, Recommendation, Report, Run, Table, Tick, table};

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

    /// CPU and devices over time, of each run in turn.
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
        text += "\nTimes are relative to `off`: 2.00 is twice as long. MB are millions of bytes of the files. Writing ends \
                 when everything is safe on the disk; reading begins with empty caches.\n\n";
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

    /// The JSON form with the tables and charts that are drawn from it: every number of the page is in it.
    ///
    /// # Panics
    /// Never, as [`Report::to_json`].
    #[must_use]
    pub fn to_json_with_figures(&self) -> String {
        Figures::of(self).within(self)
    }

    /// The report as a page in one file.
    #[must_use]
    pub fn to_html(&self) -> String {
        let question = self.about.question_or_usual();
        let mut commands = vec![self.about.command.clone()];
        commands.retain(|command| !command.is_empty());
        Page {
            title: question.to_owned(),
            kicker: ["Measured by cenote", &self.version, &self.about.started]
                .join(" ")
                .trim_end()
                .to_owned(),
            answer: self.sentence(),
            advice: self.recommendation.command.clone(),
            chosen: self.chosen(),
            warnings: self.cautions(),
            figures: Figures::of(self),
            commands,
            machine: self.machine.lines(&self.version),
            json: self.to_json_with_figures(),
            csv: self.to_csv(),
        }
        .html()
    }

    /// The question, the answer and the first charts as a PNG file.
    ///
    /// # Errors
    /// Says why it cannot be drawn.
    pub fn to_png(&self) -> Result<Vec<u8>, String> {
        let title = self.about.question_or_usual();
        png(title, &self.sentence(), &Figures::of(self).charts)
    }

    /// The question, the answer, one chart and the machine as a PNG file of 1200 × 630 pixels, for the top of an article.
    ///
    /// # Errors
    /// Says why it cannot be drawn.
    pub fn to_social(&self) -> Result<Vec<u8>, String> {
        let figures = Figures::of(self);
        let Machine { cpu, source_files, source_bytes, .. } = &self.machine;
        let threads = self.machine.threads();
        let files = if *source_files == 1 { "file" } else { "files" };
        let data = format!("{source_files} {files}, {}", number::nice_bytes(*source_bytes));
        let below = format!("{data}, on {cpu} with {threads}. Measured by cenote {}.", self.version);
        social(self.about.question_or_usual(), &self.headline(), &figures, &below)
    }
}

impl Report {
    /// The answer in one line, for a picture: the setting and its saving. A few words say whether it can be trusted.
    fn headline(&self) -> String {
        let Recommendation { compression, recordsize, .. } = &self.recommendation;
        let chosen = self.chosen().map(|index| &self.runs[index]).filter(|run| run.logical_bytes > 0);
        let Some(run) = chosen else { return self.sentence() };
        let saved = 100.0 - 100.0 * run.allocated_bytes as f64 / run.logical_bytes as f64;
        let doubt = if self.cautions().is_empty() { "" } else { " Its times are uncertain: see the report." };
        let size = number::nice(*recordsize);
        format!("{compression} with records of {size} saves {saved:.0} % of the space.{doubt}")
    }
}

/// A field of CSV that may be empty.
fn or_empty<T: std::fmt::Display>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    #[test]
    fn the_line_of_the_picture_is_short() {
        let mut report = report();
        report.recommendation.compression = report.runs[1].compression.clone();
        report.recommendation.recordsize = report.runs[1].recordsize;
        let line = report.headline();
        assert!(line.starts_with("lz4 with records of 128K saves 50 % of the space."), "{line}");
        report.recommendation.compression = "zstd-19".to_owned();
        assert_eq!(report.headline(), report.sentence());
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
