//! The result: records, and their forms as JSON, CSV and Markdown.
//!
//! The JSON form is a contract: these structs define it. Numbers are numbers, sizes are bytes, times are
//! seconds. A change that takes anything away or gives it another meaning changes [`SCHEMA`].

mod interval;
mod run;
mod table;
mod tick;

use pool::props::number;
use serde::{Deserialize, Serialize};

pub(crate) use self::run::baseline;
pub use self::run::{Repetition, Run, Spread, StepRun};
pub(crate) use self::run::{conditions, under};
pub use self::table::table;
pub use self::tick::Tick;
use crate::{Grid, Machine};

/// The question of a report, unless it has its own.
pub(crate) const QUESTION: &str = "Which compression and record size suit this data?";

/// Version of the JSON form.
pub const SCHEMA: u32 = 1;

/// One measurement of less than this is not to be relied on.
const NOISY_SECONDS: f64 = 0.5;

/// All results and the conclusions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The question, and how and when it was asked.
    #[serde(default, skip_serializing_if = "About::is_empty")]
    pub about: About,
    /// The machine that it was measured on.
    pub machine: Machine,
    /// Version of cenote.
    pub version: String,
    /// One per configuration.
    pub runs: Vec<Run>,
    /// The same data compressed as streams, beside the results with records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<Stream>,
    /// Notes that a reader needs about the figures, such as that the machine was busy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Why not everything was measured that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfinished: Option<String>,
    /// Bytes of changes that the pool gathered at most, where several totals were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dirty_max: Option<u64>,
    /// After this many bytes a writer must wait for the device, as computed from the measured rates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knee_bytes: Option<u64>,
    /// Published figures, to be shown beside these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Grid>,
    /// The setting to use.
    pub recommendation: Recommendation,
}

/// The subject of a measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The question, as a sentence.
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
    /// The question, or [`QUESTION`] where none was asked.
    pub(crate) fn question_or_usual(&self) -> &str {
        if self.question.is_empty() { QUESTION } else { &self.question }
    }

    fn is_empty(&self) -> bool {
        *self == About::default()
    }
}

/// The data as one stream per file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stream {
    /// Such as `gzip -6`.
    pub method: String,
    /// The compression to compare with, such as `gzip-6`.
    pub compression: String,
    /// Bytes of the files, with holes.
    pub logical_bytes: u64,
    /// Bytes of the streams, into which holes do not go.
    pub stream_bytes: u64,
    /// Bytes of the same data record by record, before sectors are rounded up.
    pub record_bytes: u64,
    /// Bytes of a record.
    pub recordsize: u64,
    /// Bytes in holes and records of zeros, which take no space in a pool.
    pub zero_bytes: u64,
}

/// The setting to use, and the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recommendation {
    /// Value for the property `compression`; empty when nothing can be recommended.
    pub compression: String,
    /// Bytes for the property `recordsize`.
    pub recordsize: u64,
    /// The command that sets it; empty when nothing can be recommended.
    pub command: String,
    /// The figures that support it, in words.
    pub reason: String,
}

impl Report {
    /// The JSON form, with a line feed at its end.
    ///
    /// # Panics
    /// Never: the records hold nothing that JSON cannot say.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("records of numbers and text are JSON") + "\n"
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
        if let Some(grid) = report.published.iter().find(|grid| !grid.is_sound()) {
            return Err(format!("its table '{}' is none", grid.title));
        }
        let is_time = |seconds: f64| seconds.is_finite() && seconds > 0.0;
        let sound = |run: &&Run| is_time(run.write_seconds) && is_time(run.read_seconds) && run.threads > 0;
        match report.runs.iter().find(|run| !sound(run)) {
            Some(run) => Err(format!("the times of {} are no times", run.compression)),
            None => Ok(report),
        }
    }

    /// All remarks about the reliability of the figures.
    #[must_use]
    pub fn cautions(&self) -> Vec<String> {
        let unfinished = self.unfinished.iter().map(|why| format!("this is not everything: {why}"));
        unfinished.chain(self.caution()).chain(self.of_btrfs()).chain(self.warnings.iter().cloned()).collect()
    }

    /// A note about the size of a run on btrfs: its files tell how long they are, not how much space they take.
    fn of_btrfs(&self) -> Option<String> {
        let names = self.runs.iter().filter_map(|run| run.against.as_ref());
        let name = names.into_iter().find(|name| name.starts_with("btrfs"))?;
        Some(format!(
            "{name} does not say what its files take: its space is what the whole file system gained, with metadata"
        ))
    }

    /// That short times are not to be relied on; nothing if there is nothing to say.
    fn caution(&self) -> Option<String> {
        let time = |run: &Run| run.write_seconds.min(run.read_seconds);
        let shortest = self.runs.iter().map(time).min_by(f64::total_cmp)?;
        let (noisy, once) = (shortest < NOISY_SECONDS, self.runs.iter().all(|run| run.spread.is_none()));
        (noisy && once).then(|| {
            format!(
                "the shortest measurement took only {:.0} ms, so times may be wrong by a tenth or more: measure more data, or \
                 more often (--repeat 5)",
                (shortest * 1e3).ceil()
            )
        })
    }

    /// The run that the recommendation is about: of its setting, the one under the conditions that the choice was made under.
    pub(crate) fn chosen(&self) -> Option<usize> {
        let wanted = &self.recommendation;
        if self.runs.is_empty() || wanted.compression.is_empty() {
            return None;
        }
        let conditions = conditions(&self.runs);
        self.runs.iter().position(|run| {
            run.compression == wanted.compression
                && run.recordsize == wanted.recordsize
                && run.against.is_none()
                && under(run) == conditions
        })
    }

    /// The recommendation as one sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Recommendation { compression, recordsize, reason, .. } = &self.recommendation;
        if compression.is_empty() {
            return format!("No recommendation: {reason}.");
        }
        format!("Recommended: {compression} with records of {}: {reason}.", number::nice(*recordsize))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    #[test]
    fn the_meaning_of_sizes_on_btrfs_is_explained() {
        let mut report = report();
        let says = |report: &Report| report.cautions().iter().any(|text| text.contains("file system gained"));
        assert!(!says(&report));
        report.runs[0].against = Some("ext4 on /dev/vda".to_owned());
        assert!(!says(&report));
        report.runs[0].against = Some("btrfs on /dev/loop0".to_owned());
        assert!(says(&report) && report.to_html().contains("file system gained"));
    }

    pub(crate) fn report() -> Report {
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
    fn the_json_form_stays_as_documented() {
        let report = report();
        let golden = include_str!("../../tests/report.json");
        assert_eq!(report.to_json(), golden);
        assert_eq!(serde_json::from_str::<Report>(golden).unwrap(), report);
    }

    #[test]
    fn invalid_published_tables_are_refused() {
        let grid = Grid {
            title: "S9".into(),
            columns: vec!["off".into(), "lz4".into()],
            rows: vec![("seconds".into(), vec![Some(1.0), None])],
            unit: "s".into(),
            ..Grid::default()
        };
        let with = |grid: Grid| Report { published: vec![grid], ..report() }.to_json();
        assert!(Report::from_json(&with(grid.clone())).is_ok());
        let short = Grid { rows: vec![("seconds".into(), vec![Some(1.0)])], ..grid.clone() };
        for bad in [short, Grid { decimals: 70_000, ..grid }] {
            assert_eq!(Report::from_json(&with(bad)).unwrap_err(), "its table 'S9' is none");
        }
    }
}
