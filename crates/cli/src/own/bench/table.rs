//! Tables of measurements on a terminal: columns two blanks apart, words to the left, numbers to the right.

use bench::{Run, Table};

use crate::messages::Failure;
use crate::out::Console;

/// Columns that say the same in each row are left out of the table on a terminal: the lines below it tell.
const DROPPED_IF_ALIKE: [&str; 4] = ["recordsize", "threads", "logical", "verified"];

/// The lines of the table of runs.
pub fn of_runs(runs: &[Run]) -> Vec<String> {
    let (headings, rows) = bench::table(runs);
    let alike = |column: usize| rows.windows(2).all(|pair| pair[0][column] == pair[1][column]);
    let shown: Vec<usize> = (0..headings.len())
        .filter(|column| !(DROPPED_IF_ALIKE.contains(&headings[*column]) && alike(*column)))
        .collect();
    let pick = |row: &[String]| shown.iter().map(|column| row[*column].clone()).collect::<Vec<_>>();
    let headings = headings.map(str::to_owned);
    lines(&pick(&headings), &rows.iter().map(|row| pick(row)).collect::<Vec<_>>())
}

/// Prints a table with its title and note.
///
/// # Errors
/// Standard output is gone.
pub fn print(console: &mut Console, table: &Table) -> Result<(), Failure> {
    console.line("")?;
    console.line(&table.title)?;
    for line in lines(&table.columns, &table.rows) {
        console.line(&line)?;
    }
    if table.note.is_empty() { Ok(()) } else { console.line(&format!("({})", table.note)) }
}

fn lines(headings: &[String], rows: &[Vec<String>]) -> Vec<String> {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([headings[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let is_number = |cell: &str| cell.starts_with(|c: char| c.is_ascii_digit() || c == '-');
    let is_text = |column: usize| {
        column == 0 || rows.iter().all(|row| row[column].is_empty() || !is_number(&row[column]))
    };
    let line = |row: &[String]| {
        let cell = |(column, text): (usize, &String)| match is_text(column) {
            true => format!("{text:<w$}", w = widths[column]),
            false => format!("{text:>w$}", w = widths[column]),
        };
        row.iter().enumerate().map(cell).collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    std::iter::once(line(headings)).chain(rows.iter().map(|row| line(row))).collect()
}
