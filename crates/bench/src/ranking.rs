//! In which order settings come, the best first.
//!
//! From:   times with how far they may be off, and ratios; of one's own runs, or published ones.
//! To:     a line such as `lz4 → zstd → lzjb | zle → gzip`: names between bars are equal.

use crate::{Grid, Run, Table};

/// Above the table.
pub(crate) const TITLE: &str = "In order";
/// With more settings, the line would be too long to read.
const NAMES_MAX: usize = 16;

/// A line from names with the least and the most that each value may be; smaller is better.
fn line(mut all: Vec<(&str, (f64, f64))>) -> String {
    let middle = |(low, high): (f64, f64)| (low + high) / 2.0;
    all.sort_by(|a, b| middle(a.1).total_cmp(&middle(b.1)));
    let mut text = String::new();
    for (index, (name, (low, _))) in all.iter().enumerate() {
        if let Some((_, (_, before))) = index.checked_sub(1).map(|before| all[before]) {
            text += if *low <= before { " | " } else { " → " };
        }
        text += name;
    }
    text
}

fn table(rows: Vec<Vec<String>>) -> Option<Table> {
    (!rows.is_empty()).then(|| Table {
        title: TITLE.to_owned(),
        note: "a → b: a is better. a | b: the measurement cannot tell which is better.".to_owned(),
        columns: vec!["by".to_owned(), "the best first".to_owned()],
        rows,
    })
}

/// The order of runs: in writing, in reading, in ratio; of those with the most threads and the most written.
pub(crate) fn of_runs(runs: &[Run]) -> Option<Table> {
    let most = |run: &Run| {
        runs.iter().all(|other| other.threads <= run.threads && other.total_bytes <= run.total_bytes)
    };
    let runs: Vec<Run> = runs.iter().filter(|run| most(run)).cloned().collect();
    if !(2..=NAMES_MAX).contains(&runs.len()) {
        return None;
    }
    let labels: Vec<String> = runs.iter().map(|run| run.label(&runs)).collect();
    let row = |what: &str, of: &dyn Fn(&Run) -> (f64, f64)| {
        let all = labels.iter().map(String::as_str).zip(runs.iter().map(of)).collect();
        vec![what.to_owned(), line(all)]
    };
    let same = |value: f64| (value, value);
    let per_byte = |(low, high): (f64, f64), run: &Run| {
        let bytes = run.logical_bytes.max(1) as f64;
        (low / bytes, high / bytes)
    };
    table(vec![
        row("writing", &|run| per_byte(run.write_interval(), run)),
        row("reading", &|run| per_byte(run.read_interval(), run)),
        row("ratio", &|run| same(-run.compressratio)),
    ])
}

/// The order of published settings, for each row of times or ratios that is no single repetition.
pub(crate) fn of_published(grids: &[Grid]) -> Option<Table> {
    let mut rows = Vec::new();
    for grid in grids.iter().filter(|grid| grid.corner.is_empty()) {
        for (name, numbers) in grid.rows.iter().filter(|(name, _)| !name.contains(", run ")) {
            let sign = match (grid.unit.as_str(), name.contains("ratio")) {
                ("s", _) => 1.0,
                (_, true) => -1.0,
                _ => continue,
            };
            let value = |number: &Option<f64>| number.map(|number| (number * sign, number * sign));
            let all = grid.columns.iter().zip(numbers);
            let all = all.filter_map(|(column, number)| Some((column.as_str(), value(number)?))).collect();
            rows.push(vec![format!("{}, {name}", grid.title), line(all)]);
        }
    }
    table(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Published, Spread};

    /// The orders are those of the author's text, except for reading: there the text has zstd before lzjb and contradicts its
    /// own table.
    #[test]
    fn the_published_orders_come_out_again() {
        let file = include_str!("../../../experiments/published.toml");
        let s2 = Published::parse(file).unwrap().into_iter().find(|published| published.key == "S2").unwrap();
        let table = of_published(&s2.grids).unwrap();
        let of = |name: &str| {
            table.rows.iter().find(|row| row[0] == name).unwrap_or_else(|| panic!("{table:?}"))[1].clone()
        };
        assert_eq!(of("Program sources on FreeBSD, write mean printed"), "lz4 → zstd → lzjb | zle → gzip");
        assert_eq!(of("Program sources on FreeBSD, compressratio"), "gzip → zstd → lz4 → lzjb → zle");
        assert_eq!(of("Program sources on FreeBSD, read mean printed"), "lz4 → gzip → lzjb → zstd → zle");
        assert_eq!(table.rows.len(), 3, "no single repetitions");
    }

    #[test]
    fn runs_whose_spreads_overlap_are_the_same() {
        let run = |compression: &str, seconds: f64| Run {
            compression: compression.into(),
            logical_bytes: 100,
            compressratio: seconds,
            write_seconds: seconds,
            read_seconds: 1.0,
            spread: Some(Spread { repeat: 3, write_seconds: 0.01, ..Spread::default() }),
            ..Run::default()
        };
        let runs = [run("gzip", 2.0), run("lz4", 1.0), run("zle", 1.01)];
        let table = of_runs(&runs).unwrap();
        assert_eq!(table.rows[0], ["writing", "lz4 | zle → gzip"]);
        assert_eq!(table.rows[1], ["reading", "gzip | lz4 | zle"]);
        let markdown = table.markdown();
        assert!(markdown.contains("| writing | lz4 \\| zle → gzip |\n"), "{markdown}");
        assert!(markdown.contains("\n| --- | --- |\n"), "{markdown}");
        assert_eq!(table.rows[2], ["ratio", "gzip → zle → lz4"]);
        assert_eq!(of_runs(&runs[..1]), None);
    }
}
