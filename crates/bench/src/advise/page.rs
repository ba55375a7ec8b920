//! The advice as a page: what is shown, in the look of the reports of `cenote bench`.

use pool::props::number::{nice, nice_bytes};

use super::answer::{Advice, Pick, RATIO_MEANS, Row, no_recommendation};
use super::rows::is_row;
use super::stored::per_cent;
use crate::Figures;
use crate::figures::{Axis, Chart, Grid, Kind, Series, Table, alike_records};
use crate::page::{Page, first_upper};
use crate::pareto;
use crate::report::QUESTION;

/// Headings of the table of all configurations, and those of the dirty limit.
const HEADINGS: [&str; 13] = [
    "compression",
    "records",
    "compressratio",
    "±",
    "space",
    "saved",
    "compress MB/s",
    "decompress MB/s",
    "write MB/s",
    "limit",
    "read MB/s",
    "limit",
    "front",
];
const BURST_HEADINGS: [&str; 2] = ["all MB/s", "limit"];
/// Amounts of data in the chart of the dirty limit, over where the writer is held up.
const AMOUNTS: [f64; 9] = [0.25, 0.5, 1.0, 1.25, 1.6, 2.0, 3.0, 5.0, 10.0];

impl Advice {
    /// The advice as a page in one file; `command` is the command line that asked for it.
    #[must_use]
    pub fn to_html(&self, command: &str) -> String {
        let pick = &self.picks[0];
        Page {
            title: QUESTION.to_owned(),
            kicker: format!("Predicted by cenote {} from a sample", self.version),
            answer: self.sentence(),
            advice: match (&self.doubt, &self.dataset) {
                (Some(_), _) => String::new(),
                (None, Some(_)) => pick.set.clone(),
                (None, None) => format!("{}\n{}", pick.create, pick.set),
            },
            chosen: self.rows.iter().position(|row| is_row(row, pick)).filter(|_| self.doubt.is_none()),
            warnings: self.notes.clone(),
            figures: self.figures(),
            commands: vec![command.to_owned()],
            machine: self.machine.lines(&self.version),
            json: self.figures().within(self),
            csv: self.to_csv(),
        }
        .html()
    }

    /// The first pick as one sentence.
    fn sentence(&self) -> String {
        if let Some(doubt) = &self.doubt {
            return no_recommendation(doubt);
        }
        let Pick { goal, compression, recordsize, why, .. } = &self.picks[0];
        format!("Goal {}: {compression} with records of {}: {why}.", goal.word(), nice(*recordsize))
    }

    /// One line for each configuration, with a line of headings.
    fn to_csv(&self) -> String {
        let mut text = "compression,recordsize,compressratio,ratio_low,ratio_high,used_bytes,raw_bytes,\
                        compress_rate,decompress_rate,write_rate,write_limit,read_rate,read_limit,pareto\n"
            .to_owned();
        for row in &self.rows {
            text += &format!(
                "{},{},{:.4},{:.4},{:.4},{:.0},{:.0},{:.0},{:.0},{:.0},{},{:.0},{},{}\n",
                row.compression,
                row.recordsize,
                row.compressratio,
                row.ratio_low,
                row.ratio_high,
                row.used_bytes,
                row.raw_bytes,
                row.compress_rate,
                row.decompress_rate,
                row.write.bytes_per_second,
                row.write.bottleneck,
                row.read.bytes_per_second,
                row.read.bottleneck,
                row.pareto
            );
        }
        text
    }

    /// The figures of the page.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let notes = [vec![self.sentence()], self.machine.lines(&self.version)].concat();
        let mut figures = Figures { notes, tiles: self.tiles(), ..Figures::default() };
        figures.tables.push(self.all_rows());
        if self.rows.len() > 1 {
            figures.charts.push(self.front("writing", |row| row.write.bytes_per_second));
            figures.charts.push(self.front("reading", |row| row.read.bytes_per_second));
        }
        figures.charts.extend(self.times());
        figures.charts.extend(self.bursts());
        figures.tables.push(self.purposes());
        figures.tables.extend(self.kinds_table());
        figures.tables.push(self.basis());
        figures
    }

    fn tiles(&self) -> Vec<(String, String, String)> {
        let Some(row) = self.rows.iter().find(|row| is_row(row, &self.picks[0])) else { return Vec::new() };
        let tile = |name: &str, number: String, against: String| (name.to_owned(), number, against);
        let rate = |rate: f64| format!("{:.0} MB/s", rate / 1e6);
        vec![
            tile(
                "space saved",
                format!("{:.0} %", per_cent(row.saving)),
                format!(
                    "files of {} take {}",
                    nice_bytes(self.sample.bytes),
                    nice_bytes(row.used_bytes as u64)
                ),
            ),
            tile("write", rate(row.write.bytes_per_second), format!("limit: {}", row.write.bottleneck)),
            tile("read", rate(row.read.bytes_per_second), format!("limit: {}", row.read.bottleneck)),
        ]
    }

    /// The table of all configurations, as it is printed on the terminal.
    fn all_rows(&self) -> Table {
        let mut rows = self.table().rows;
        rows.iter_mut().for_each(|row| row.rotate_left(1));
        let mut columns: Vec<String> = HEADINGS.map(str::to_owned).to_vec();
        if self.rows.iter().any(|row| row.burst.is_some()) {
            let front = columns.len() - 1;
            columns.splice(front..front, BURST_HEADINGS.map(str::to_owned));
        }
        Table {
            title: "All configurations".to_owned(),
            note: format!(
                "{}. ±: the compressratio is within these limits with 95 %. Space: what the files take on the disk, with \
                 metadata and whole sectors. {}. MB/s: millions of bytes of the files in a second. Compress and \
                 decompress: one core. Write and read: the cores and disks of the target. On the front (*): no other row \
                 is both smaller and faster.",
                first_upper(RATIO_MEANS),
                first_upper(&self.saved_of())
            ),
            columns,
            rows,
        }
    }

    /// A name for a row that contains everything in which it differs from the other rows.
    fn label(&self, row: &Row) -> String {
        match self.rows.iter().any(|other| other.recordsize != row.recordsize) {
            true => format!("{} {}", row.compression, nice(row.recordsize)),
            false => row.compression.clone(),
        }
    }

    fn front(&self, what: &str, rate: fn(&Row) -> f64) -> Chart {
        let bytes = self.sample.bytes as f64;
        let point = |row: &Row| (self.label(row), rate(row) / 1e6, bytes / row.used_bytes.max(1.0));
        let points: Vec<(String, f64, f64)> = self.rows.iter().map(point).collect();
        let front = pareto(&points);
        let names: Vec<&str> = front.iter().map(|index| points[*index].0.as_str()).collect();
        Chart {
            title: format!("Space and {what} speed"),
            description: format!(
                "Each point is a configuration. Further right: {what} is faster. Further up: the files take less space. No \
                 other point is both faster and smaller than {}. Where there is no room for a name, the table has it.",
                names.join(", ")
            ),
            kind: Kind::Scatter {
                x: Axis { label: format!("{what} speed, MB/s"), log: true, ..Axis::default() },
                y: Axis::linear("size of the files / space they take"),
                points,
                front,
                chosen: self.rows.iter().position(|row| is_row(row, &self.picks[0])),
                groups: alike_records(&self.rows.iter().map(|row| row.recordsize).collect::<Vec<_>>()),
            },
        }
    }

    /// Times and space with the picked record size over those of `off`.
    fn times(&self) -> Option<Chart> {
        let recordsize = self.picks[0].recordsize;
        let rows: Vec<&Row> = self.rows.iter().filter(|row| row.recordsize == recordsize).collect();
        let off = rows.iter().find(|row| row.compression == "off").filter(|_| rows.len() > 1)?;
        let over = |of: &dyn Fn(&Row) -> f64| rows.iter().map(|row| Some(of(row) / of(off))).collect();
        let grid = Grid {
            title: format!("Time and space with records of {}, off = 1.00", nice(recordsize)),
            unit: String::new(),
            decimals: 2,
            corner: String::new(),
            columns: rows.iter().map(|row| row.compression.clone()).collect(),
            rows: vec![
                ("time to write".to_owned(), over(&|row| 1.0 / row.write.bytes_per_second)),
                ("time to read".to_owned(), over(&|row| 1.0 / row.read.bytes_per_second)),
                ("space".to_owned(), over(&|row| row.used_bytes)),
            ],
        };
        Some(grid.bars("How long writing and reading will take, and how much space, over compression off."))
    }

    /// Average speed by how much is written, of the pick and of `off`.
    fn bursts(&self) -> Option<Chart> {
        let pick = self.rows.iter().find(|row| is_row(row, &self.picks[0]))?;
        let off = self.rows.iter().find(|row| row.compression == "off" && row.recordsize == pick.recordsize);
        let mut rows = vec![pick];
        rows.extend(off.filter(|off| off.compression != pick.compression));
        let knees: Vec<f64> = rows.iter().filter_map(|row| row.burst?.bytes).collect();
        let knee = knees.iter().copied().reduce(f64::max)?;
        let line = |row: &&Row| Series {
            name: self.label(row),
            points: AMOUNTS
                .iter()
                .filter_map(|part| {
                    let burst = self.target.burst(part * knee, row.write)?;
                    Some((part * knee / 1e6, burst.whole.bytes_per_second / 1e6))
                })
                .collect(),
        };
        let limit = self.target.dirty_max?;
        Some(Chart {
            title: "Average speed by how much is written at once".to_owned(),
            description:
                "Until the dirty limit is reached, data goes into memory faster than to the disks. With more data, the \
                          average speed comes down to that of the disks. The mark is where the writer first has to wait."
                    .to_owned(),
            kind: Kind::Lines {
                x: Axis { label: "written, MB".to_owned(), log: true, words: Vec::new() },
                y: Axis::linear("MB/s"),
                series: rows.iter().map(line).collect(),
                mark: Some((knees[0] / 1e6, format!("dirty limit {}", nice(limit)))),
            },
        })
    }

    /// The pick for each purpose.
    fn purposes(&self) -> Table {
        let row = |pick: &Pick| {
            vec![
                pick.goal.word().to_owned(),
                pick.compression.clone(),
                nice(pick.recordsize),
                pick.why.clone(),
            ]
        };
        Table {
            title: "For each purpose".to_owned(),
            note: String::new(),
            columns: ["purpose", "compression", "records", "why"].map(str::to_owned).to_vec(),
            rows: self.picks.iter().map(row).collect(),
        }
    }

    /// Kinds of files, where there are several.
    fn kinds_table(&self) -> Option<Table> {
        let row = |kind: &super::answer::Kind| {
            vec![
                kind.kind.clone(),
                kind.files.to_string(),
                nice_bytes(kind.bytes),
                format!("{:.2}x", kind.compressratio),
                format!("{:.1}%", 100.0 * kind.half_width / kind.compressratio),
                format!("{} {}", kind.compression, nice(kind.recordsize)),
                kind.remark.clone().unwrap_or_default(),
            ]
        };
        let mut table = Table {
            title: "Kinds of files".to_owned(),
            note: "Compressratio: with the recommended setting. Alone: the best setting for this kind of file alone."
                .to_owned(),
            columns: ["kind", "files", "size", "compressratio", "±", "alone", "remark"].map(str::to_owned).to_vec(),
            rows: self.kinds.iter().map(row).collect(),
        };
        if self.kinds.iter().all(|kind| kind.remark.is_none()) {
            table.columns.pop();
            table.rows.iter_mut().for_each(|row| drop(row.pop()));
        }
        (self.kinds.len() > 1).then_some(table)
    }

    /// The basis of the answer: a table of what was read.
    fn basis(&self) -> Table {
        let row = |name: &str, text: String| vec![name.to_owned(), text];
        Table {
            title: "What it rests on".to_owned(),
            note: String::new(),
            columns: ["", ""].map(str::to_owned).to_vec(),
            rows: [
                Some(row("data", self.looked_at())),
                self.now.as_ref().map(|now| row("dataset", now.line())),
                Some(row("target", self.for_target())),
                Some(row("pool", self.for_pool())),
                Some(row("dedup", self.dedup.verdict.clone())),
            ]
            .into_iter()
            .flatten()
            .collect(),
        }
    }
}
