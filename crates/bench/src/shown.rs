//! The figures that are shown of a report.
//!
//! From:   a [`Report`].
//! To:     [`Figures`]: its tables and charts.

use pool::props::number::{nice, nice_bytes};

use crate::beside::beside;
use crate::figures::{Axis, Chart, Figures, Grid, Kind, Series, Table, alike_records};
use crate::report::baseline;
use crate::sweeps::{grids, steps, sweeps};
use crate::{Repetition, Report, Run, Tick, published, ranking, table};

/// A shorter measurement has too few points for a line over time.
const TRACED_SECONDS: f64 = 3.0;
const WARM_READ: &str = "warm read MB/s";
/// Columns with the same value in each row are left out, and named below the table.
const DROPPED_IF_ALIKE: [&str; 4] = ["recordsize", "threads", "logical", "verified"];

impl Figures {
    /// The figures of `report`.
    #[must_use]
    pub fn of(report: &Report) -> Figures {
        let runs = &report.runs;
        let said = [report.sentence()].into_iter().chain(report.cautions());
        let notes = said.chain(report.machine.lines(&report.version)).collect();
        let mut figures = Figures { notes, tiles: tiles(report), ..Figures::default() };
        figures.tables.push(all_runs(runs));
        if runs.len() > 1 {
            figures.charts.push(front("Space and writing speed", Way::Write, report));
            figures.charts.push(front("Space and reading speed", Way::Read, report));
        }
        figures.charts.extend(times(runs));
        for grid in grids(runs) {
            figures.tables.push(grid.table());
        }
        figures.tables.extend(ranking::of_runs(runs));
        figures.charts.extend(sweeps(report));
        figures.steps(runs);
        figures.streams(report);
        figures.repetitions(runs);
        figures.traces(report);
        figures.tables.extend(beside(report).iter().map(Grid::table));
        let (mut tables, mut charts) = published::shown(&report.published);
        tables.iter_mut().for_each(|table| table.title = format!("Published: {}", table.title));
        charts.iter_mut().for_each(|chart| chart.title = format!("Published: {}", chart.title));
        figures.tables.append(&mut tables);
        figures.charts.append(&mut charts);
        figures
    }

    /// The table of steps, and the same over `off`.
    fn steps(&mut self, runs: &[Run]) {
        let Some(grid) = steps(runs) else { return };
        self.tables.push(grid.table());
        if let Some(normal) = grid.normalised("off") {
            let text = "How long each step takes over the time it takes with compression off.";
            self.charts.push(normal.bars(text));
            self.tables.push(normal.table());
        }
    }

    fn streams(&mut self, report: &Report) {
        if report.streams.is_empty() {
            return;
        }
        let ratio = |logical: u64, bytes: u64| format!("{:.2}x", logical as f64 / bytes.max(1) as f64);
        let row = |s: &crate::Stream| {
            vec![
                s.method.clone(),
                ratio(s.logical_bytes, s.stream_bytes),
                format!("{} records of {}", s.compression, nice(s.recordsize)),
                ratio(s.logical_bytes, s.record_bytes),
                nice_bytes(s.zero_bytes),
            ]
        };
        self.tables.push(Table {
            title: "Whole streams and records".to_owned(),
            note: "A stream compresses a whole file at once, a pool each record alone. In a pool, records of zeros take no \
                   space, and a record that shrinks by less than an eighth is stored as it is. Holes count in neither."
                .to_owned(),
            columns: ["stream", "ratio", "in a pool", "ratio", "zeros"].map(str::to_owned).to_vec(),
            rows: report.streams.iter().map(row).collect(),
        });
    }

    /// The times of each repetition, and the medians.
    fn repetitions(&mut self, runs: &[Run]) {
        let most = runs.iter().map(|run| run.repetitions.len()).max().unwrap_or(0);
        if most < 2 {
            return;
        }
        let mut add = |title: &str, of: fn(&Repetition) -> f64, median: fn(&Run) -> f64| {
            let row = |run: &Run| {
                let cell =
                    |each: &Repetition| format!("{:.3}{}", of(each), if each.outlier { "*" } else { "" });
                let mut row = vec![run.label(runs)];
                row.extend(run.repetitions.iter().map(cell));
                row.resize(most + 1, String::new());
                row.extend([format!("{:.3}", median(run)), format!("{:.2}x", run.compressratio)]);
                row
            };
            let mut columns = vec!["seconds".to_owned()];
            columns.extend((1..=most).map(|number| format!("run {number}")));
            columns.extend(["median", "ratio"].map(str::to_owned));
            let note = match runs.iter().flat_map(|run| &run.repetitions).any(|each| each.outlier) {
                true => "*: a run with a time that is far from the others. The median hardly changes by it.",
                false => "",
            };
            self.tables.push(Table {
                title: title.to_owned(),
                note: note.to_owned(),
                columns,
                rows: runs.iter().filter(|run| !run.repetitions.is_empty()).map(row).collect(),
            });
        };
        add("Writing, each time", |each| each.write_seconds, |run| run.write_seconds);
        add("Reading, each time", |each| each.read_seconds, |run| run.read_seconds);
    }

    /// CPU and devices over time: the recommended configuration and, beside it, `off`.
    fn traces(&mut self, report: &Report) {
        let runs = &report.runs;
        let chosen = &report.recommendation;
        let is_chosen =
            |run: &&Run| run.compression == chosen.compression && run.recordsize == chosen.recordsize;
        let is_long = |run: &&Run| run.trace.last().is_some_and(|tick| tick.at >= TRACED_SECONDS);
        let picked = runs.iter().filter(is_long).filter(|run| run.against.is_none());
        let first = picked.clone().rfind(is_chosen);
        let off = picked.clone().rfind(|run| run.compression == "off");
        let mut shown: Vec<&Run> = Vec::new();
        for run in [first, off].into_iter().flatten() {
            if !shown.iter().any(|other| std::ptr::eq(*other, run)) {
                shown.push(run);
            }
        }
        for run in shown {
            let (cpu, disk) = trace(run, &run.label(runs));
            self.charts.extend([cpu, disk]);
        }
        let rows: Vec<Vec<String>> = picked.map(|run| busy(run, runs)).collect();
        if !rows.is_empty() {
            self.tables.push(Table {
                title: "CPU and devices".to_owned(),
                note:
                    "usr, sys, idle, wait: parts of the machine's CPU time, from the first write to the last \
                       comparison. read, written: what the devices read and wrote for this process."
                        .to_owned(),
                columns: ["configuration", "usr", "sys", "idle", "wait", "read", "written"]
                    .map(str::to_owned)
                    .to_vec(),
                rows,
            });
        }
    }
}

/// Two figures of the recommended setting: the share of space saved, and the times compared with `off`.
fn tiles(report: &Report) -> Vec<(String, String, String)> {
    let runs = &report.runs;
    let Some(run) = report.chosen().map(|index| &runs[index]) else { return Vec::new() };
    let mut tiles = vec![(
        "space saved".to_owned(),
        format!("{:.0} %", (100.0 * run.saving()).round() + 0.0),
        format!("files of {} take {}", nice_bytes(run.logical_bytes), nice_bytes(run.allocated_bytes)),
    )];
    let base = baseline(runs, run);
    let speed = |what: &str, of: fn(&Run) -> f64| {
        let against = base.map_or(String::new(), |base| format!("off: {:.0} MB/s", of(base) / 1e6));
        (what.to_owned(), format!("{:.0} MB/s", of(run) / 1e6), against)
    };
    tiles.push(speed("write", Run::write_rate));
    tiles.push(speed("read", Run::read_rate));
    tiles
}

/// The table of all runs, without the columns that say nothing here.
fn all_runs(runs: &[Run]) -> Table {
    let Table { mut columns, mut rows, .. } = table(runs);
    let first = &runs[0];
    let mut alike = Vec::new();
    for heading in DROPPED_IF_ALIKE {
        let Some(at) = columns.iter().position(|column| column == heading) else { continue };
        // Another file system beside has no record size.
        let own = || rows.iter().zip(runs).filter(|(_, run)| run.against.is_none()).map(|(row, _)| &row[at]);
        if runs.len() > 1 && own().all(|cell| cell == &rows[0][at]) {
            alike.push(match heading {
                "recordsize" => format!("records of {}", nice(first.recordsize)),
                "threads" if first.threads == 1 => "1 thread".to_owned(),
                "threads" => format!("{} threads", first.threads),
                "logical" => format!("{} of data", nice_bytes(first.logical_bytes)),
                _ if first.verified => "every byte was read back and compared".to_owned(),
                _ => "not everything was read back as it was written".to_owned(),
            });
            columns.remove(at);
            rows.iter_mut().for_each(|row| drop(row.remove(at)));
        }
    }
    let mut insert = |heading: &str, of: &dyn Fn(&Run) -> String| {
        let more: Vec<String> = runs.iter().map(of).collect();
        if more.iter().any(|cell| !cell.is_empty()) {
            columns.push(heading.to_owned());
            rows.iter_mut().zip(more).for_each(|(row, cell)| row.push(cell));
        }
    };
    insert("accepted MB/s", &|run| match (run.total_bytes, run.accepted_rate()) {
        (Some(_), Some(rate)) => format!("{:.1}", rate / 1e6),
        _ => String::new(),
    });
    insert(WARM_READ, &|run| {
        run.warm_read_seconds
            .map_or(String::new(), |seconds| format!("{:.1}", run.logical_bytes as f64 / seconds / 1e6))
    });
    insert("write CPU", &|run| format!("{:.0}%", (run.write_cpu_share() * 100.0).min(100.0)));
    insert("write limit", &|run| run.write_limit.map_or(String::new(), |limit| limit.to_string()));
    insert("accepted limit", &|run| run.accepted_limit.map_or(String::new(), |limit| limit.to_string()));
    insert("read limit", &|run| run.read_limit.map_or(String::new(), |limit| limit.to_string()));
    let warm = match columns.iter().any(|column| column == WARM_READ) {
        true => " A warm read takes everything from the cache, where it is decompressed already.",
        false => "",
    };
    Table {
        title: "All configurations".to_owned(),
        note: format!(
            "{}{}Space: what the files take on the disk, with metadata and whole sectors. Saved: how much less that is than \
             the size of the files. Compressratio: ZFS's own figure for the records. It leaves out the rest of the last \
             sector, parity, and second copies of metadata. MB/s: millions of bytes of the files in a second. Write \
             time and read time: 2.00 is twice as long as with off. Writing ends when everything is safe on the disk. \
             Reading begins with empty caches.{warm} Limit: the slowest part, which sets the speed.",
            alike.join(", "),
            if alike.is_empty() { "" } else { ". " }
        ),
        columns,
        rows,
    }
}

/// Writing or reading.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Write,
    Read,
}

impl Way {
    const fn word(self) -> &'static str {
        match self {
            Way::Write => "write",
            Way::Read => "read",
        }
    }

    const fn other(self) -> Way {
        match self {
            Way::Write => Way::Read,
            Way::Read => Way::Write,
        }
    }

    fn rate(self, run: &Run) -> f64 {
        match self {
            Way::Write => run.write_rate(),
            Way::Read => run.read_rate(),
        }
    }
}

/// Points of saved space against a speed, and those that nothing beats in both.
fn front(title: &str, way: Way, report: &Report) -> Chart {
    let runs = &report.runs;
    let point = |run: &Run| (run.label(runs), way.rate(run) / 1e6, run.space_ratio());
    let points: Vec<(String, f64, f64)> = runs.iter().map(point).collect();
    let front = pareto(&points);
    let names: Vec<&str> = front.iter().map(|index| points[*index].0.as_str()).collect();
    let what = way.word();
    let mut description = format!(
        "Each point is a configuration. Further right: it {what}s faster. Further up: the files take less space. No other \
         point is both faster and smaller than {}. Where there is no room for a name, the table has it.",
        names.join(", ")
    );
    let chosen = report.chosen();
    if let Some(chosen) = chosen.filter(|chosen| !front.contains(chosen)) {
        description += &why_beaten_here(&points, runs, chosen, way);
    }
    let x = Axis { label: format!("{what} speed, MB/s"), log: true, ..Axis::default() };
    let sizes: Vec<u64> = runs.iter().map(|run| run.recordsize).collect();
    Chart {
        title: title.to_owned(),
        description,
        kind: Kind::Scatter {
            x,
            y: Axis::linear("size of the files / space they take"),
            points,
            front,
            chosen,
            groups: alike_records(&sizes),
        },
    }
}

/// Why a point is recommended though others are above it and to its right in this chart; nothing where that is not so simple.
fn why_beaten_here(points: &[(String, f64, f64)], runs: &[Run], chosen: usize, way: Way) -> String {
    let (name, x, y) = &points[chosen];
    let mut beating = (0..points.len()).filter(|index| {
        let (_, other_x, other_y) = &points[*index];
        *index != chosen && other_x >= x && other_y >= y
    });
    let other = way.other();
    match beating.all(|index| other.rate(&runs[index]) < other.rate(&runs[chosen])) {
        true => format!(" {name} is recommended because it {}s faster than those.", other.word()),
        false => String::new(),
    }
}

/// The places of points that no other point beats in one and reaches in both, from left to right.
#[must_use]
pub fn pareto(points: &[(String, f64, f64)]) -> Vec<usize> {
    let beaten = |(_, x, y): &(String, f64, f64)| {
        points.iter().any(|(_, ox, oy)| ox >= x && oy >= y && (ox > x || oy > y))
    };
    let mut front: Vec<usize> = (0..points.len()).filter(|index| !beaten(&points[*index])).collect();
    front.sort_by(|a, b| points[*a].1.total_cmp(&points[*b].1));
    front
}

/// Times and size of each compression over `off`, with the record size and threads of the last run.
fn times(runs: &[Run]) -> Option<Chart> {
    let last = runs.iter().rfind(|run| run.against.is_none())?;
    let alike = |run: &&Run| {
        (run.recordsize, run.threads, run.total_bytes) == (last.recordsize, last.threads, last.total_bytes)
            && run.against.is_none()
    };
    let rows: Vec<&Run> = runs.iter().filter(alike).collect();
    let off = baseline(runs, last)?;
    if rows.len() < 2 {
        return None;
    }
    let over = |of: &dyn Fn(&Run) -> f64| rows.iter().map(|run| Some(of(run) / of(off))).collect();
    let grid = Grid {
        title: format!("Time and space with records of {}, off = 1.00", nice(last.recordsize)),
        unit: String::new(),
        decimals: 2,
        corner: String::new(),
        columns: rows.iter().map(|run| run.compression.clone()).collect(),
        rows: vec![
            ("time to write".to_owned(), over(&|run| run.write_seconds)),
            ("time to read".to_owned(), over(&|run| run.read_seconds)),
            ("space".to_owned(), over(&|run| run.allocated_bytes as f64)),
        ],
    };
    Some(grid.bars("How long writing and reading take, and how much space is needed, over compression off."))
}

/// Until when each phase went on. Phases that came back after others are named together with these.
fn phases(ticks: &[Tick]) -> String {
    // Numbers of the first and the last tick of phases that lie in one another, and their names.
    let mut spans: Vec<(usize, usize, Vec<&str>)> = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for (first, tick) in ticks.iter().enumerate() {
        if seen.contains(&tick.phase.as_str()) {
            continue;
        }
        seen.push(&tick.phase);
        let last = ticks.iter().rposition(|other| other.phase == tick.phase).unwrap_or(first);
        match spans.last_mut() {
            Some(span) if first < span.1 => {
                span.1 = span.1.max(last);
                span.2.push(&tick.phase);
            }
            _ => spans.push((first, last, vec![&tick.phase])),
        }
    }
    let said = |(_, last, names): &(usize, usize, Vec<&str>)| {
        let names = match &names[..] {
            [one] => (*one).to_owned(),
            [all @ .., last] => format!("{} and {last} in turn", all.join(", ")),
            [] => String::new(),
        };
        format!("{names} until {:.2} s", ticks[*last].at)
    };
    spans.iter().map(said).collect::<Vec<_>>().join(", ")
}

/// CPU and devices over time while one configuration was measured.
fn trace(run: &Run, label: &str) -> (Chart, Chart) {
    let line = |name: &str, of: &dyn Fn(&Tick) -> f64| {
        let mut points = Vec::new();
        let mut from = 0.0;
        for tick in &run.trace {
            // A step: the value holds from the tick before to this one.
            points.extend([(from, of(tick)), (tick.at, of(tick))]);
            from = tick.at;
        }
        Series { name: name.to_owned(), points }
    };
    let chart = |title: String, label: &str, series| Chart {
        title,
        description: format!("Over the seconds of the measurement: {}.", phases(&run.trace)),
        kind: Kind::Lines { x: Axis::linear("seconds"), y: Axis::linear(label), series, mark: None },
    };
    let rate = |bytes: u64, tick: &Tick| bytes as f64 / tick.seconds.max(1e-3) / 1e6;
    let cpu = vec![
        line("usr", &|tick| tick.user),
        line("sys", &|tick| tick.system),
        line("wait", &|tick| tick.wait),
    ];
    let disk = vec![
        line("read", &|tick| rate(tick.read_bytes, tick)),
        line("written", &|tick| rate(tick.write_bytes, tick)),
    ];
    (
        chart(format!("CPU over time, {label}"), "% of all CPUs", cpu),
        chart(format!("Devices over time, {label}"), "MB/s", disk),
    )
}

/// A row of CPU shares and device bytes.
fn busy(run: &Run, runs: &[Run]) -> Vec<String> {
    let seconds: f64 = run.trace.iter().map(|tick| tick.seconds).sum();
    let mean = |of: fn(&Tick) -> f64| {
        let sum: f64 = run.trace.iter().map(|tick| of(tick) * tick.seconds).sum();
        format!("{:.0}%", sum / seconds.max(1e-3))
    };
    let bytes = |of: fn(&Tick) -> u64| nice_bytes(run.trace.iter().map(of).sum());
    vec![
        run.label(runs),
        mean(|tick| tick.user),
        mean(|tick| tick.system),
        mean(|tick| tick.idle),
        mean(|tick| tick.wait),
        bytes(|tick| tick.read_bytes),
        bytes(|tick| tick.write_bytes),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_phases_are_shown_together() {
        let said = |names: &[&str]| {
            let ticks: Vec<Tick> = names
                .iter()
                .zip(1..)
                .map(|(name, at)| Tick { at: f64::from(at), phase: (*name).into(), ..Tick::default() })
                .collect();
            phases(&ticks)
        };
        assert_eq!(
            said(&["write", "write", "sync", "read"]),
            "write until 2.00 s, sync until 3.00 s, read until 4.00 s"
        );
        assert_eq!(
            said(&["write", "settle", "read", "settle", "read", "verify"]),
            "write until 1.00 s, settle and read in turn until 5.00 s, verify until 6.00 s"
        );
    }
}
