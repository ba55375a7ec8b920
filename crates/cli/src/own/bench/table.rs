//! Tables of measurements on a terminal.

use bench::{Run, Table};

use crate::messages::Failure;
use crate::out::Console;

/// Columns that say the same in each row are left out of the table on a terminal: the lines below it tell.
const DROPPED_IF_ALIKE: [&str; 4] = ["recordsize", "threads", "logical", "verified"];

/// The lines of the table of runs.
pub fn of_runs(runs: &[Run]) -> Vec<String> {
    let mut table = bench::table(runs);
    for column in (0..table.columns.len()).rev() {
        let alike = table.rows.windows(2).all(|pair| pair[0][column] == pair[1][column]);
        if alike && DROPPED_IF_ALIKE.contains(&table.columns[column].as_str()) {
            table.columns.remove(column);
            table.rows.iter_mut().for_each(|row| drop(row.remove(column)));
        }
    }
    table.lines()
}

/// Prints a table with its title and note.
///
/// # Errors
/// Standard output is gone.
pub fn print(console: &mut Console, table: &Table) -> Result<(), Failure> {
    console.line("")?;
    console.line(&table.title)?;
    for line in table.lines() {
        console.line(&line)?;
    }
    if table.note.is_empty() { Ok(()) } else { console.line(&format!("({})", table.note)) }
}
