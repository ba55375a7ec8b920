//! Tables of measurements on a terminal.

use bench::{Run, Table};

use crate::messages::Failure;
use crate::out::Console;

/// Columns with the same value in each row are left out of the table on a terminal; the lines below it name them.
const DROPPED_IF_ALIKE: [&str; 4] = ["recordsize", "threads", "logical", "verified"];

/// Columns that are left out if the terminal is too narrow, the first one first.
const RANK: [&str; 7] =
    ["compressratio", "write CPU s", "read CPU s", "write time", "read time", "verified", "space"];

/// The lines of the table of runs, and the columns that were left out so that it fits into `width`.
pub fn fitting(runs: &[Run], width: Option<usize>) -> (Vec<String>, Vec<&'static str>) {
    fit(without_alike(runs), &RANK, width)
}

/// The lines of a table that fits into `width`: columns of `rank` are left out, the first one first. Also returns the
/// headings that were left out.
pub fn fit(
    mut table: Table,
    rank: &[&'static str],
    width: Option<usize>,
) -> (Vec<String>, Vec<&'static str>) {
    let mut left_out = Vec::new();
    let is_too_wide = |table: &Table| {
        let longest = table.lines().iter().map(|line| line.chars().count()).max();
        width.is_some_and(|width| longest > Some(width))
    };
    for name in rank.iter().copied() {
        if !is_too_wide(&table) {
            break;
        }
        while let Some(at) = table.columns.iter().position(|column| column == name) {
            remove(&mut table, at);
            if left_out.last() != Some(&name) {
                left_out.push(name);
            }
        }
    }
    (table.lines(), left_out)
}

/// Says which columns the page was too narrow for.
///
/// # Errors
/// Standard output is gone.
pub fn say_left_out(left_out: &[&str], console: &mut Console) -> Result<(), Failure> {
    match console.is_quiet() {
        true => Ok(()),
        false => {
            console.sentence(&format!("Not shown: {}. Use --wide for all columns.", left_out.join(", ")))
        }
    }
}

fn remove(table: &mut Table, column: usize) {
    table.columns.remove(column);
    table.rows.iter_mut().for_each(|row| drop(row.remove(column)));
}

/// The lines of the table of runs.
pub fn of_runs(runs: &[Run]) -> Vec<String> {
    without_alike(runs).lines()
}

fn without_alike(runs: &[Run]) -> Table {
    let mut table = bench::table(runs);
    for column in (0..table.columns.len()).rev() {
        let alike = table.rows.windows(2).all(|pair| pair[0][column] == pair[1][column]);
        if alike && DROPPED_IF_ALIKE.contains(&table.columns[column].as_str()) {
            remove(&mut table, column);
        }
    }
    table
}

/// Prints a table with its title and note.
///
/// # Errors
/// Standard output is gone.
pub fn print(console: &mut Console, table: &Table) -> Result<(), Failure> {
    console.line("")?;
    console.line(&table.title)?;
    let width = console.columns();
    // A long text in the last of two columns continues on the next line of this column.
    let indent = match &table.columns[..] {
        [_, _] => table.rows.iter().map(|row| row[0].chars().count()).max().unwrap_or(0) + 2,
        _ => 0,
    };
    for line in table.lines() {
        match width.filter(|width| indent > 0 && *width > 2 * indent) {
            Some(width) => wrapped(&line, indent, width).iter().try_for_each(|line| console.line(line))?,
            None => console.line(&line)?,
        }
    }
    if table.note.is_empty() { Ok(()) } else { console.sentence(&format!("({})", table.note)) }
}

/// A line cut at blanks into lines of at most `width` characters; all but the first are set in by `indent`.
fn wrapped(line: &str, indent: usize, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = line;
    while rest.chars().count() > width - if lines.is_empty() { 0 } else { indent } {
        let room = width - if lines.is_empty() { 0 } else { indent };
        let end = rest.char_indices().nth(room).map_or(rest.len(), |(at, _)| at);
        let first = if lines.is_empty() { indent } else { 0 };
        // A blank right behind the last place that fits is a place to cut, too.
        let reach = end + usize::from(rest[end..].starts_with(' '));
        let Some(cut) = rest[..reach].rfind(' ').filter(|cut| *cut > first) else { break };
        lines.push(rest[..cut].trim_end().to_owned());
        rest = rest[cut..].trim_start();
    }
    lines.push(rest.to_owned());
    lines.iter_mut().skip(1).for_each(|line| line.insert_str(0, &" ".repeat(indent)));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_left_out_until_the_table_fits() {
        let report = include_str!("../../../../bench/tests/report.json");
        let runs = bench::Report::from_json(report).expect("golden").runs;
        assert_eq!(fitting(&runs, None), (of_runs(&runs), Vec::new()));
        let (lines, left_out) = fitting(&runs, Some(80));
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:?}");
        assert_eq!(left_out, RANK[..left_out.len()]);
    }

    #[test]
    fn long_lines_go_on_below_the_last_column() {
        let line = "writing  off | lz4 | zstd-1";
        assert_eq!(wrapped(line, 9, 40), [line]);
        assert_eq!(wrapped(line, 9, 20), ["writing  off | lz4 |", "         zstd-1"]);
        assert_eq!(wrapped("a  bcdefghijklmn", 3, 8), ["a  bcdefghijklmn"]);
    }
}
