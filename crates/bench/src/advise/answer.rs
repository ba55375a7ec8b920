//! The answer: records, and their form for people.
//!
//! The JSON form is a contract: these structs define it. Rates are bytes per second, sizes bytes, times seconds. A
//! change that takes anything away or gives it another meaning changes [`SCHEMA`].

use pool::props::number::{nice, nice_bytes};
use serde::{Deserialize, Serialize};

use super::choose::Goal;
use super::dedup::Dedup;
use super::layout::Layout;
use super::model::{Burst, Flow, Target};
use super::published::TableAdvice;
use super::stored::{Now, Origin, per_cent};
use crate::{Machine, Table};

/// Version of the JSON form.
pub const SCHEMA: u32 = 4;

/// The meaning of the property, beside the space that is saved.
pub const RATIO_MEANS: &str = "compressratio: ZFS's own figure for the records. It leaves out the rest of the last sector, parity, and \
                               second copies of metadata";

/// All results and the conclusions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Always `advice`; it distinguishes an answer from a report of measurements.
    pub form: String,
    /// Version of cenote.
    pub version: String,
    /// The machine that measured.
    pub machine: Machine,
    /// The data that the answer is about.
    pub subject: String,
    /// The dataset that this is in, if it is one.
    #[serde(default)]
    pub dataset: Option<String>,
    /// How much of it was looked at.
    pub sample: Sample,
    /// The pool that is to hold the data.
    pub target: Target,
    /// The shape of the pool.
    pub layout: Layout,
    /// How that is known.
    #[serde(default)]
    pub layout_from: Origin,
    /// Sectors of 2^ashift bytes.
    pub ashift: u32,
    /// How that is known.
    #[serde(default)]
    pub ashift_from: Origin,
    /// The dataset that the data is in as it is now, beside the first pick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<Now>,
    /// Share of the machine's CPU time that other processes used meanwhile, 0 to 1; `None` where the time was too short
    /// to measure it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_cpu: Option<f64>,
    /// One for each configuration.
    pub rows: Vec<Row>,
    /// The settings to use, for each purpose; the one for which the user asked comes first.
    pub picks: Vec<Pick>,
    /// Why the picks are unreliable; then nothing is recommended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
    /// Kinds of files, the largest first.
    pub kinds: Vec<Kind>,
    /// The effect that deduplication would have.
    pub dedup: Dedup,
    /// Notes that a reader should know.
    pub notes: Vec<String>,
}

/// How much was looked at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Files.
    pub files: u64,
    /// Folders.
    pub folders: u64,
    /// Bytes of the files, holes left out.
    pub bytes: u64,
    /// Bytes that were read and encoded.
    pub sampled_bytes: u64,
    /// Pieces of files that these are.
    pub pieces: u64,
    /// All pieces were encoded, so there is no sampling error.
    pub complete: bool,
    /// Which sample.
    pub seed: u64,
    /// The time that it took.
    pub seconds: f64,
}

/// One configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Value of the property `compression`.
    pub compression: String,
    /// Bytes of a record.
    pub recordsize: u64,
    /// The property `compressratio` as it is expected, and the interval that holds it with 95 %.
    pub compressratio: f64,
    /// Its lower end.
    pub ratio_low: f64,
    /// Its upper end.
    pub ratio_high: f64,
    /// `logicalreferenced`, metadata left out: whole records, so it is more than the files' bytes.
    pub logical_bytes: f64,
    /// `used`.
    pub used_bytes: f64,
    /// Bytes on all disks, copies and parity included.
    pub raw_bytes: f64,
    /// Part that is saved of what `off` uses with the record size where that is least.
    pub saving: f64,
    /// Compressing and checksumming on one core of this machine.
    pub compress_rate: f64,
    /// Decompressing and checksumming on one core.
    pub decompress_rate: f64,
    /// A steady stream of writes to the target.
    pub write: Flow,
    /// A steady stream of cold reads from it.
    pub read: Flow,
    /// How it begins, where the dirty limit was given.
    pub burst: Option<Burst>,
    /// Number of such cores that can keep the disks busy during writes.
    pub cores_to_fill: Option<f64>,
    /// Nothing is both smaller and faster.
    pub pareto: bool,
}

/// The setting to use for one purpose.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pick {
    /// For what.
    pub goal: Goal,
    /// Value for the property `compression`.
    pub compression: String,
    /// Value for the property `recordsize`.
    pub recordsize: u64,
    /// The figures that support it, in words.
    pub why: String,
    /// Command for a new dataset.
    pub create: String,
    /// The command for an existing dataset: for the dataset of the data, if the data is in one. Data that is in it
    /// stays as it is.
    pub set: String,
}

impl Pick {
    /// The line about it: the setting, and the reasons for it.
    fn line(&self) -> String {
        let size = nice(self.recordsize);
        format!("{}: {} with records of {size}: {}.", self.goal.word(), self.compression, self.why)
    }
}

/// A kind of file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kind {
    /// Its extension, or what it begins with.
    pub kind: String,
    /// Files.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Of the picked configuration: its ratio, and how far off that may be.
    pub compressratio: f64,
    /// Half of the interval.
    pub half_width: f64,
    /// The compression that would be chosen for this kind alone.
    pub compression: String,
    /// The record size that would be chosen for this kind alone.
    pub recordsize: u64,
    /// Bytes that a dataset of its own would save (or cost, if negative).
    pub saved_bytes: f64,
    /// Processor time of writing that a dataset of its own would save.
    pub saved_seconds: f64,
    /// The action for this kind, where that pays.
    pub remark: Option<String>,
}

/// The answer to published tables.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableReport {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Always `table-advice`.
    pub form: String,
    /// One for each table and variant.
    pub tables: Vec<TableAdvice>,
}

impl TableReport {
    /// Of some tables.
    #[must_use]
    pub fn new(tables: Vec<TableAdvice>) -> TableReport {
        TableReport { schema: SCHEMA, form: "table-advice".to_owned(), tables }
    }

    /// The JSON form, with a line feed at its end.
    ///
    /// # Panics
    /// Never: the records hold nothing that JSON cannot say.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("records of numbers and text are JSON") + "\n"
    }

    /// For people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for table in &self.tables {
            if !lines.is_empty() {
                lines.push(String::new());
            }
            let variant = table.variant.as_ref().map_or(String::new(), |variant| format!(" ({variant})"));
            lines.push(format!("{}{variant}", table.name));
            let name = |compression: &str, recordsize: Option<u64>| match recordsize {
                Some(bytes) => format!("{compression} {}", nice(bytes)),
                None => compression.to_owned(),
            };
            let columns = ["", "ratio", "time", ""].map(str::to_owned).to_vec();
            let mut rows = Table { columns, ..Table::default() };
            let fastest =
                table.rows.iter().map(|row| row.seconds.iter().sum::<f64>()).fold(f64::INFINITY, f64::min);
            for row in &table.rows {
                let time = row.seconds.iter().sum::<f64>() / fastest;
                let mark = if row.pareto { "*" } else { "" };
                let name = name(&row.compression, row.recordsize);
                let cells = vec![name, format!("{:.2}x", row.ratio), format!("{time:.2}"), mark.to_owned()];
                rows.rows.push(cells);
            }
            lines.extend(rows.lines());
            for pick in &table.picks {
                let name = name(&pick.compression, pick.recordsize);
                lines.push(format!("{:<9} {name}: {}", pick.goal.word(), pick.why));
            }
            for (what, settings) in &table.authors {
                lines.push(format!("authors, {what}: {}", settings.join(" or ")));
            }
        }
        lines
    }
}

impl Advice {
    /// The JSON form, with a line feed at its end.
    ///
    /// # Panics
    /// Never: the records hold nothing that JSON cannot say.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("records of numbers and text are JSON") + "\n"
    }

    /// The line of [`Advice::lines`] that is the answer; `None` if nothing is recommended.
    #[must_use]
    pub fn answer(&self) -> Option<String> {
        self.picks.first().filter(|_| self.doubt.is_none()).map(Pick::line)
    }

    /// For people: the rows as a table, the picks, and the notes.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        [self.above(), self.table().lines(), self.legend(&[]), self.below()].concat()
    }

    /// The lines above the table.
    #[must_use]
    pub fn above(&self) -> Vec<String> {
        vec![self.looked_at(), self.for_target(), self.for_pool(), String::new()]
    }

    /// The lines below the table: what its columns are, but for those that are not `shown`.
    #[must_use]
    pub fn legend(&self, left_out: &[&str]) -> Vec<String> {
        let saved = self.saved_of();
        let all = [
            ("", "*: no other row is both smaller and faster"),
            ("compressratio", RATIO_MEANS),
            ("space", "space: what the files take on the disk, with metadata and whole sectors"),
            ("saved", saved.as_str()),
            ("compress", "compress, decompress: MB/s of one core"),
            ("write MB/s", "write, read: MB/s of the files, with the cores and disks of the target"),
            ("limit", "limit: the slowest part, which sets the speed"),
        ];
        let shown = all.iter().filter(|(column, _)| !left_out.contains(column));
        shown.map(|(_, text)| (*text).to_owned()).collect()
    }

    /// The lines below that. Commands are set in.
    #[must_use]
    pub fn below(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(doubt) = &self.doubt {
            lines.push(String::new());
            lines.push(no_recommendation(doubt));
        }
        for pick in self.picks.iter().filter(|_| self.doubt.is_none()) {
            lines.push(String::new());
            lines.push(pick.line());
            if pick.goal == self.picks[0].goal {
                if self.dataset.is_none() {
                    lines.push(format!("  {}", pick.create));
                }
                lines.push(format!("  {}    (new data only)", pick.set));
                lines.extend(self.now.as_ref().map(Now::line));
            }
        }
        if self.doubt.is_some() {
            lines.extend(self.now.as_ref().map(Now::line));
        }
        let kinds = self.kinds.iter().filter(|_| self.doubt.is_none());
        let remarks: Vec<&String> = kinds.filter_map(|kind| kind.remark.as_ref()).collect();
        if !remarks.is_empty() {
            lines.push(String::new());
            lines.extend(remarks.into_iter().cloned());
        }
        lines.push(String::new());
        lines.push(format!("dedup: {}", self.dedup.verdict));
        lines.extend(self.notes.iter().cloned());
        lines
    }

    pub(super) fn looked_at(&self) -> String {
        let Sample { files, bytes, sampled_bytes, complete, seconds, .. } = self.sample;
        let part = match complete {
            true => "all of it read".to_owned(),
            // Long records have a sample of their own.
            false if sampled_bytes > bytes => format!("{} read, some of it twice", nice_bytes(sampled_bytes)),
            false => {
                let part = 100.0 * sampled_bytes as f64 / bytes.max(1) as f64;
                format!("{} of it read, {part:.1} %", nice_bytes(sampled_bytes))
            }
        };
        let plural = if files == 1 { "file" } else { "files" };
        format!("{}: {files} {plural}, {} ({part}, in {seconds:.1} s)", self.subject, nice_bytes(bytes))
    }

    pub(super) fn for_target(&self) -> String {
        let target = &self.target;
        let Target { cores, busy_cores, disk_write, disk_read, network, dirty_max, .. } = target;
        let rate = |rate: &Option<f64>| rate.map_or("?".to_owned(), |rate| format!("{:.0}", rate / 1e6));
        let mut text = format!("target: {cores} {}", if *cores == 1 { "core" } else { "cores" });
        if *busy_cores > 0.0 {
            text += &format!(" ({busy_cores} of them busy)");
        }
        let origin = |measured: bool| if measured { " (measured here)" } else { "" };
        let (of_write, of_read) = (origin(target.disk_write_measured), origin(target.disk_read_measured));
        text += &match of_write == of_read {
            true => format!(", disks write {} and read {} MB/s{of_read}", rate(disk_write), rate(disk_read)),
            false => format!(
                ", disks write {} MB/s{of_write} and read {} MB/s{of_read}",
                rate(disk_write),
                rate(disk_read)
            ),
        };
        if network.is_some() {
            text += &format!(", network {} MB/s", rate(network));
        }
        if let Some(bytes) = dirty_max {
            text += &format!(", dirty limit {}", nice_bytes(*bytes));
        }
        text
    }

    /// The shape of the pool, and how it is known.
    pub(super) fn for_pool(&self) -> String {
        let Advice { layout, layout_from, ashift, ashift_from, .. } = self;
        let sector = nice(1_u64 << (*ashift).min(63));
        let mut text = match layout_from == ashift_from {
            true => format!("pool: sectors of {sector}, layout {layout} ({})", layout_from.words()),
            false => format!(
                "pool: sectors of {sector} ({}), layout {layout} ({})",
                ashift_from.words(),
                layout_from.words()
            ),
        };
        if [layout_from, ashift_from].contains(&&Origin::Assumed) {
            text += "; if yours is another: --ashift, --layout";
        }
        text
    }

    /// The size of which savings are parts.
    pub(super) fn saved_of(&self) -> String {
        let several = self.rows.iter().any(|row| row.recordsize != self.rows[0].recordsize);
        let off = self.rows.iter().filter(|row| row.compression == "off");
        let least = off.min_by(|a, b| a.raw_bytes.total_cmp(&b.raw_bytes));
        match least.filter(|_| several) {
            Some(off) => format!("saved: compared with off and records of {}", nice(off.recordsize)),
            None if several => "saved: compared with off and its best record size".to_owned(),
            None => "saved: compared with off".to_owned(),
        }
    }

    /// The rows as text.
    #[must_use]
    pub fn table(&self) -> Table {
        let mut columns = [
            "",
            "compression",
            "record",
            "compressratio",
            "±",
            "space",
            "saved",
            "compress",
            "decompress",
            "write MB/s",
            "limit",
            "read MB/s",
            "limit",
        ]
        .map(str::to_owned)
        .to_vec();
        let bursts = self.rows.iter().any(|row| row.burst.is_some());
        if bursts {
            columns.extend(["all MB/s", "limit"].map(str::to_owned));
        }
        let rate = |rate: f64| format!("{:.0}", rate / 1e6);
        // Without compression only checksums are left.
        let codec = |row: &Row, of: f64| if row.compression == "off" { "-".to_owned() } else { rate(of) };
        let row = |row: &Row| {
            let mut cells = vec![
                if row.pareto { "*" } else { "" }.to_owned(),
                row.compression.clone(),
                nice(row.recordsize),
                format!("{:.2}x", row.compressratio),
                format!("{:.1}%", 50.0 * (row.ratio_high - row.ratio_low) / row.compressratio),
                nice_bytes(row.used_bytes as u64),
                format!("{:.0}%", per_cent(row.saving)),
                codec(row, row.compress_rate),
                codec(row, row.decompress_rate),
                rate(row.write.bytes_per_second),
                row.write.bottleneck.to_string(),
                rate(row.read.bytes_per_second),
                row.read.bottleneck.to_string(),
            ];
            if let Some(burst) = row.burst {
                cells.extend([rate(burst.whole.bytes_per_second), burst.whole.bottleneck.to_string()]);
            }
            cells
        };
        Table { columns, rows: self.rows.iter().map(row).collect(), ..Table::default() }
    }
}
/// The text in the place of a recommendation.
pub(super) fn no_recommendation(doubt: &str) -> String {
    format!("No recommendation: {doubt}. The default, compression=lz4, is a safe choice.")
}
