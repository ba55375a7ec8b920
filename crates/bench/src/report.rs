//! The result: records, and their forms as JSON, CSV and Markdown.
//!
//! The JSON form is a contract: these structs define it. Numbers are numbers, sizes are bytes, times are
//! seconds. A change that takes anything away or gives it another meaning changes [`SCHEMA`].

use std::fmt::Write as _;

use pool::props::number;
use serde::{Deserialize, Serialize};

use crate::{Grid, Limit, Machine, Tick};

/// Version of the JSON form.
pub const SCHEMA: u32 = 1;

/// One measurement of less than this is not to be relied on.
const NOISY_SECONDS: f64 = 0.5;

/// Everything that was measured, and what follows from it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What was asked, how and when.
    #[serde(default, skip_serializing_if = "About::is_empty")]
    pub about: About,
    /// What it was measured on.
    pub machine: Machine,
    /// Version of cenote.
    pub version: String,
    /// One per configuration.
    pub runs: Vec<Run>,
    /// The same data as streams, beside what records make of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<Stream>,
    /// What a reader should know about the figures, such as that the machine was busy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Bytes of changes that the pool gathered at most, where several totals were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dirty_max: Option<u64>,
    /// Bytes from which on a writer must be waiting for the device, as computed from the rates measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knee_bytes: Option<u64>,
    /// The figures somebody published, to stand beside these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Grid>,
    /// What to do.
    pub recommendation: Recommendation,
}

/// What a measurement is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// What is asked, as a question.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub question: String,
    /// The command line.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
    /// When it began: date, time, offset.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub started: String,
}

impl About {
    fn is_empty(&self) -> bool {
        *self == About::default()
    }
}

/// One configuration as measured; the medians where it was measured several times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Value of the property `compression`.
    pub compression: String,
    /// Bytes of a record.
    pub recordsize: u64,
    /// Threads that wrote, compressed and read.
    pub threads: u32,
    /// Bytes of data in the files, without holes.
    pub logical_bytes: u64,
    /// Bytes that the dataset takes in the pool (`used`).
    pub allocated_bytes: u64,
    /// ZFS's own figure (the property), with two decimals.
    pub compressratio: f64,
    /// From the first write until everything is durable.
    pub write_seconds: f64,
    /// CPU time of the whole process meanwhile.
    pub write_cpu_seconds: f64,
    /// Reading every byte from cold caches, without comparing.
    pub read_seconds: f64,
    /// CPU time of the whole process meanwhile.
    pub read_cpu_seconds: f64,
    /// Every byte was read back as it was written, each time.
    pub verified: bool,
    /// Present if measured more than once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    /// The other file system that did the same work; `None` for a pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// Bytes asked for, where several totals were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    /// From the first write until the last one was accepted; until then a program waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_seconds: Option<f64>,
    /// Reading everything once more without dropping caches; `None` where they are too small for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_read_seconds: Option<f64>,
    /// Bytes that the system read from devices for this process during the cold read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold_device_bytes: Option<u64>,
    /// The same during the warm read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_device_bytes: Option<u64>,
    /// What held writing up until it was durable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_limit: Option<Limit>,
    /// What held the writer up until its last write was accepted, where totals, a dirty limit or a network were given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_limit: Option<Limit>,
    /// What held the cold read up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_limit: Option<Limit>,
    /// Share of the machine's CPU time that other processes took meanwhile, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_cpu: Option<f64>,
    /// Each repetition, if measured more than once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repetitions: Vec<Repetition>,
    /// What was run on the mounted dataset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepRun>,
    /// CPU and devices over time, in the last repetition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trace: Vec<Tick>,
}

/// One of several measurements of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Repetition {
    /// As [`Run::write_seconds`].
    pub write_seconds: f64,
    /// As [`Run::read_seconds`].
    pub read_seconds: f64,
    /// One of the times is far from the median.
    pub outlier: bool,
}

/// An application's step on the mounted dataset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepRun {
    /// What it is called.
    pub name: String,
    /// Threads that it was told to use.
    pub threads: u32,
    /// The median.
    pub seconds: f64,
    /// CPU time of the application and all it started.
    pub cpu_seconds: f64,
    /// CPU time of the file system meanwhile.
    pub pool_cpu_seconds: f64,
    /// Median absolute deviation of [`StepRun::seconds`]; 0 if measured once.
    pub spread_seconds: f64,
}

/// The data as one stream per file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stream {
    /// Such as `gzip -6`.
    pub method: String,
    /// The compression to compare with, such as `gzip-6`.
    pub compression: String,
    /// Bytes of the files.
    pub logical_bytes: u64,
    /// Bytes of the streams.
    pub stream_bytes: u64,
    /// Bytes of the same data record by record, before sectors are rounded up.
    pub record_bytes: u64,
    /// Bytes of a record.
    pub recordsize: u64,
    /// Bytes in holes and records of zeros, which take no space in a pool.
    pub zero_bytes: u64,
}

/// Median absolute deviations of a configuration measured several times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// How many times it was measured.
    pub repeat: u32,
    /// Of [`Run::write_seconds`].
    pub write_seconds: f64,
    /// Of [`Run::write_cpu_seconds`].
    pub write_cpu_seconds: f64,
    /// Of [`Run::read_seconds`].
    pub read_seconds: f64,
    /// Of [`Run::read_cpu_seconds`].
    pub read_cpu_seconds: f64,
}

/// What to do, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recommendation {
    /// Value for the property `compression`.
    pub compression: String,
    /// Bytes for the property `recordsize`.
    pub recordsize: u64,
    /// The command that sets it.
    pub command: String,
    /// The figures that speak for it, in words.
    pub reason: String,
}

impl Run {
    /// Written bytes per second.
    #[must_use]
    pub fn write_rate(&self) -> f64 {
        self.logical_bytes as f64 / self.write_seconds
    }

    /// Read bytes per second.
    #[must_use]
    pub fn read_rate(&self) -> f64 {
        self.logical_bytes as f64 / self.read_seconds
    }

    /// Bytes per second as the writer sees them: until the last write is accepted.
    #[must_use]
    pub fn accepted_rate(&self) -> Option<f64> {
        self.accepted_seconds.map(|seconds| self.logical_bytes as f64 / seconds)
    }

    /// Share of the cores in use that writing took, 0 to 1.
    #[must_use]
    pub fn write_cpu_share(&self) -> f64 {
        self.write_cpu_seconds / (self.write_seconds * f64::from(self.threads.max(1)))
    }

    /// Share of the original size that is saved, 0 to 1.
    #[must_use]
    pub fn saving(&self) -> f64 {
        1.0 - self.allocated_bytes as f64 / self.logical_bytes.max(1) as f64
    }

    /// A name among the runs of one report: what tells it from the others is in it.
    #[must_use]
    pub fn label(&self, among: &[Run]) -> String {
        let varies = |of: fn(&Run) -> u64| among.iter().any(|other| of(other) != of(self));
        let mut label = self.against.clone().unwrap_or_else(|| self.compression.clone());
        if varies(|run| run.recordsize) {
            let _ = write!(label, " {}", number::nice(self.recordsize));
        }
        if varies(|run| u64::from(run.threads)) {
            let _ = write!(label, " ×{}", self.threads);
        }
        if varies(|run| run.total_bytes.unwrap_or(0)) {
            let _ = write!(label, " {}", number::nice(self.logical_bytes));
        }
        label
    }
}

/// Column headings of the tables.
const HEADINGS: [&str; 13] = [
    "compression",
    "recordsize",
    "threads",
    "logical",
    "allocated",
    "ratio",
    "write MB/s",
    "write CPU s",
    "write time",
    "read MB/s",
    "read CPU s",
    "read time",
    "verified",
];

impl Report {
    /// The JSON form, with a line feed at its end.
    ///
    /// # Panics
    /// Never: the records hold nothing that JSON cannot say.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("records of numbers and text are JSON") + "\n"
    }

    /// The JSON form with the tables and charts that are drawn from it: every number of the page is in it.
    ///
    /// # Panics
    /// Never, as [`Report::to_json`].
    #[must_use]
    pub fn to_json_with_figures(&self) -> String {
        #[derive(Serialize)]
        struct Whole<'a> {
            #[serde(flatten)]
            report: &'a Report,
            figures: crate::Figures,
        }
        let whole = Whole { report: self, figures: crate::Figures::of(self) };
        serde_json::to_string(&whole).expect("records of numbers and text are JSON")
    }

    /// Reads the JSON form.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn from_json(text: &str) -> Result<Report, String> {
        let report: Report = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if report.schema != SCHEMA {
            return Err(format!("its schema is {}, this version reads {SCHEMA}", report.schema));
        }
        if report.runs.is_empty() {
            return Err("it holds no runs".to_owned());
        }
        let is_time = |seconds: f64| seconds.is_finite() && seconds > 0.0;
        let sound = |run: &&Run| is_time(run.write_seconds) && is_time(run.read_seconds) && run.threads > 0;
        match report.runs.iter().find(|run| !sound(run)) {
            Some(run) => Err(format!("the times of {} are no times", run.compression)),
            None => Ok(report),
        }
    }

    /// The runs, with a line of headings: those of the JSON form, the times relative to `off` (empty where it
    /// was not measured), and the spread (empty where measured once).
    #[must_use]
    pub fn to_csv(&self) -> String {
        let mut text =
            "compression,recordsize,threads,logical_bytes,allocated_bytes,compressratio,write_seconds,\
             write_cpu_seconds,read_seconds,read_cpu_seconds,verified,write_time_relative,read_time_relative,\
             repeat,write_seconds_mad,read_seconds_mad\n"
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
                "{},{},{},{},{},{:.2},{},{},{},{},{},{},{},{repeat},{write_mad},{read_mad}",
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
            );
        }
        text
    }

    /// The same for people: a table, the machine, the recommendation.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let row = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let mut text = "# Compression measured by cenote\n\n".to_owned();
        text += &row(&HEADINGS.map(str::to_owned));
        text += &row(&std::array::from_fn::<_, 13, _>(|i| if i == 0 { "---" } else { "---:" }.to_owned()));
        for cells in table(&self.runs).1 {
            text += &row(&cells);
        }
        text += "\nTimes are relative to `off` under the same conditions; MB are millions of bytes of the files. \
                 Writing is timed until it is durable, reading from cold caches.\n\n";
        for line in self.machine.lines(&self.version) {
            let _ = writeln!(text, "- {line}");
        }
        if let Some(caution) = self.caution() {
            let _ = writeln!(text, "- {caution}");
        }
        let _ = write!(text, "\n{}\n\n```\n{}\n```\n", self.sentence(), self.recommendation.command);
        text
    }

    /// What a reader should know about how far to trust the times; nothing if there is nothing to say.
    #[must_use]
    pub fn caution(&self) -> Option<String> {
        let time = |run: &Run| run.write_seconds.min(run.read_seconds);
        let shortest = self.runs.iter().map(time).min_by(f64::total_cmp)?;
        let (noisy, once) = (shortest < NOISY_SECONDS, self.runs.iter().all(|run| run.spread.is_none()));
        (noisy && once).then(|| {
            format!(
                "some of this took {:.0} ms only, so times may be off by a tenth and more; measure more data, or \
                 several times (--repeat 5)",
                shortest * 1e3
            )
        })
    }

    /// The recommendation as one sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Recommendation { compression, recordsize, reason, .. } = &self.recommendation;
        format!("Recommended: {compression} with records of {}: {reason}.", number::nice(*recordsize))
    }
}

/// The run with compression off under otherwise the same conditions: what times are relative to.
pub(crate) fn baseline<'a>(runs: &'a [Run], run: &Run) -> Option<&'a Run> {
    let alike = |other: &&Run| {
        other.recordsize == run.recordsize
            && other.threads == run.threads
            && other.total_bytes == run.total_bytes
            && other.against.is_none()
    };
    runs.iter().filter(alike).find(|other| other.compression == "off")
}

/// Runs as a table for people: headings, and the cells of each run. Times are relative to `off`.
#[must_use]
pub fn table(runs: &[Run]) -> ([&'static str; 13], Vec<[String; 13]>) {
    (HEADINGS, runs.iter().map(|run| cells(runs, run)).collect())
}

fn cells(runs: &[Run], run: &Run) -> [String; 13] {
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
    use super::*;

    fn report() -> Report {
        let run = |compression: &str, allocated_bytes, compressratio, write_seconds, spread| Run {
            compression: compression.into(),
            recordsize: 131_072,
            threads: 2,
            logical_bytes: 36_268_420,
            allocated_bytes,
            compressratio,
            write_seconds,
            write_cpu_seconds: 0.5,
            read_seconds: 0.125,
            read_cpu_seconds: 0.25,
            verified: true,
            spread,
            ..Run::default()
        };
        let spread = Spread {
            repeat: 3,
            write_seconds: 0.005,
            write_cpu_seconds: 0.01,
            read_seconds: 0.0125,
            read_cpu_seconds: 0.0,
        };
        let runs =
            vec![run("off", 36_300_000, 1.0, 0.25, None), run("lz4", 18_150_000, 2.0, 0.5, Some(spread))];
        Report {
            schema: SCHEMA,
            machine: Machine {
                os: "Debian GNU/Linux 12".into(),
                kernel: "6.1.0".into(),
                cpu: "Model".into(),
                sockets: 1,
                cores: 2,
                logical_cpus: 4,
                memory_bytes: 1 << 34,
                backing: "file on ext4".into(),
                source_files: 8,
                source_bytes: 36_268_420,
                source_in_memory: true,
                ..Machine::default()
            },
            version: "0.1.0".into(),
            recommendation: crate::recommend(&runs, "POOL/DATASET"),
            runs,
            ..Report::default()
        }
    }

    #[test]
    fn the_json_form_is_the_contract() {
        let report = report();
        let golden = include_str!("../tests/report.json");
        assert_eq!(report.to_json(), golden);
        assert_eq!(serde_json::from_str::<Report>(golden).unwrap(), report);
    }

    #[test]
    fn times_are_relative_to_off_under_the_same_conditions() {
        let mut report = report();
        let (headings, rows) = table(&report.runs);
        assert!(rows.iter().all(|row| row.len() == headings.len()));
        assert_eq!(
            (rows[0][8].as_str(), rows[1][8].as_str(), rows[1][11].as_str()),
            ("1.00", "2.00", "1.00")
        );
        assert_eq!(rows[1][9], "290.1 ±10%");
        report.runs[0].recordsize = 4096;
        assert_eq!(table(&report.runs).1[1][8], "-");
    }

    #[test]
    fn every_line_of_csv_has_as_many_fields_as_the_first() {
        let csv = report().to_csv();
        let fields: Vec<usize> = csv.lines().map(|line| line.split(',').count()).collect();
        assert_eq!(fields, [16, 16, 16]);
        assert!(csv.lines().nth(2).unwrap().starts_with("lz4,131072,2,36268420,18150000,2.00,0.5,"));
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
