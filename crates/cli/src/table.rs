//! The tables of `list` and `get`: columns two blanks apart, or fields one tab apart with `-H`.
//!
//! From:   cells of text.
//! To:     standard output, byte for byte as OpenZFS prints them.
//!
//! Widths are in bytes, as C's printf counts them.

use pool::props::{Justify, Kind, Property, Source, dataset, pool as pool_props};
use std::io::{self, Write};

use crate::out::Console;

/// Blanks between columns.
const GAP: usize = 2;

/// A column: its heading and how wide and to which side it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub heading: String,
    pub justify: Justify,
    pub min_width: usize,
    /// Whether it widens to the longest value present. Sizes shown for people do not.
    pub grows: bool,
}

impl Column {
    /// The NAME column.
    pub fn name() -> Column {
        Column { heading: "NAME".to_owned(), justify: Justify::Left, min_width: 4, grows: true }
    }

    /// The column of a native property; `raw` is `-p`, which makes numbers as long as they are.
    pub fn native(property: &Property, raw: bool) -> Column {
        let number = matches!(property.kind, Kind::Number(_));
        Column {
            heading: property.heading.to_owned(),
            justify: property.justify,
            min_width: property.min_width,
            grows: property.grows() || (raw && number),
        }
    }

    /// The column of a property outside the table (user, `userused@…`, `feature@…`): headed by its name.
    pub fn other(name: &str, justify: Justify) -> Column {
        Column { heading: name.to_uppercase(), justify, min_width: name.len(), grows: true }
    }

    /// The column for a property that a word names.
    pub fn dataset(word: &str, asked: &dataset::Asked, raw: bool) -> Column {
        match asked {
            dataset::Asked::Native(property) => Column::native(property, raw),
            dataset::Asked::User(_) => Column::other(word, Justify::Left),
            dataset::Asked::Account(_) | dataset::Asked::WrittenSince(_) => {
                Column::other(word, Justify::Right)
            }
        }
    }

    /// The column for a property of a pool that a word names.
    pub fn pool(word: &str, asked: &pool_props::Asked, raw: bool) -> Column {
        match asked {
            pool_props::Asked::Native(property) => Column::native(property, raw),
            _ => Column::other(word, Justify::Left),
        }
    }
}

/// One line of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub cells: Vec<String>,
    /// Rows of vdevs under a pool justify all but the name to the right.
    pub vdev: bool,
}

impl Row {
    pub fn new(cells: Vec<String>) -> Row {
        Row { cells, vdev: false }
    }
}

/// Prints a table with headings, or with `scripted` (`-H`) its bare fields.
///
/// # Errors
/// Those of `out`.
pub fn print(out: &mut impl Write, columns: &[Column], rows: &[Row], scripted: bool) -> io::Result<()> {
    assert!(rows.iter().all(|row| row.cells.len() == columns.len()), "one cell per column");
    if scripted {
        return rows.iter().try_for_each(|row| writeln!(out, "{}", row.cells.join("\t")));
    }
    let widths = widths(columns, rows);
    let headings = Row::new(columns.iter().map(|c| c.heading.clone()).collect());
    std::iter::once(&headings).chain(rows).try_for_each(|row| {
        let mut line = String::new();
        for (i, (column, cell)) in columns.iter().zip(&row.cells).enumerate() {
            if i > 0 {
                line.extend(std::iter::repeat_n(' ', GAP));
            }
            let right = column.justify == Justify::Right || (row.vdev && i > 0);
            pad(&mut line, cell, widths[i], right, i + 1 == columns.len());
        }
        writeln!(out, "{line}")
    })
}

/// Leaves out columns until the table fits into `width`: those of `rank`, the first one first. Returns the headings that were
/// left out.
pub fn fit(
    columns: &mut Vec<Column>,
    rows: &mut [Row],
    rank: &'static [&'static str],
    width: usize,
) -> Vec<&'static str> {
    let mut left_out = Vec::new();
    for heading in rank {
        if widths(columns, rows).iter().map(|width| width + GAP).sum::<usize>() <= width + GAP {
            break;
        }
        if let Some(at) = columns.iter().position(|column| column.heading == *heading) {
            columns.remove(at);
            rows.iter_mut().for_each(|row| drop(row.cells.remove(at)));
            left_out.push(*heading);
        }
    }
    left_out
}

/// As [`fit`], for the terminal that the table is printed on, if there is one. A line names the columns that were left
/// out.
pub fn fit_terminal(
    console: &mut Console,
    columns: &mut Vec<Column>,
    rows: &mut [Row],
    rank: &'static [&'static str],
) {
    let Some(width) = console.columns() else { return };
    let left_out = fit(columns, rows, rank, width);
    if !left_out.is_empty() {
        console.explain(&format!("too narrow for {}: --wide shows all columns", left_out.join(", ")));
    }
}

fn widths(columns: &[Column], rows: &[Row]) -> Vec<usize> {
    let of = |(i, column): (usize, &Column)| {
        let longest = || rows.iter().map(|row| row.cells[i].len()).max().unwrap_or(0);
        let values = if column.grows { longest() } else { 0 };
        column.min_width.max(column.heading.len()).max(values)
    };
    columns.iter().enumerate().map(of).collect()
}

/// Adds a cell; the last one of a line gets no blanks behind it.
fn pad(line: &mut String, cell: &str, width: usize, right: bool, last: bool) {
    let blanks = width.saturating_sub(cell.len());
    if right {
        line.extend(std::iter::repeat_n(' ', blanks));
    }
    line.push_str(cell);
    if !right && !last {
        line.extend(std::iter::repeat_n(' ', blanks));
    }
}

/// The fields of `get`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    Name,
    Property,
    Value,
    Received,
    Source,
}

impl Field {
    /// The columns that `get` prints unless told otherwise.
    pub const DEFAULT: [Field; 4] = [Field::Name, Field::Property, Field::Value, Field::Source];
    /// The columns that `zfs get -o all` prints.
    pub const ALL: [Field; 5] = [Field::Name, Field::Property, Field::Value, Field::Received, Field::Source];

    /// Reads one word of `-o`.
    pub fn parse(word: &str) -> Option<Field> {
        Some(match word {
            "name" => Field::Name,
            "property" => Field::Property,
            "value" => Field::Value,
            "received" => Field::Received,
            "source" => Field::Source,
            _ => return None,
        })
    }

    const fn heading(self) -> &'static str {
        match self {
            Field::Name => "NAME",
            Field::Property => "PROPERTY",
            Field::Value => "VALUE",
            Field::Received => "RECEIVED",
            Field::Source => "SOURCE",
        }
    }
}

/// One property of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Got {
    pub name: String,
    pub property: String,
    /// The column of the same property in `list`: it decides about the width.
    pub column: Column,
    pub value: String,
    /// The value as people read it, whose length counts for the width even with `-p`.
    pub human_len: usize,
    pub received: Option<String>,
    pub source: Source,
    /// False if `-s` leaves it out; it counts for the widths all the same.
    pub shown: bool,
}

/// Prints the table of `get`.
///
/// # Errors
/// Those of `out`.
pub fn print_get(out: &mut impl Write, fields: &[Field], rows: &[Got], scripted: bool) -> io::Result<()> {
    let longest = |len: &dyn Fn(&Got) -> usize| rows.iter().map(len).max().unwrap_or(0);
    let name_width = longest(&|row| row.name.len()).max(4);
    let width = |field: Field| match field {
        Field::Name => name_width,
        Field::Property => longest(&|row| row.property.len()),
        Field::Value => longest(&|row| {
            let value = if row.column.grows { row.human_len } else { 0 };
            row.column.min_width.max(row.column.heading.len()).max(value)
        }),
        Field::Received => longest(&|row| row.received.as_ref().map_or(1, String::len)),
        Field::Source => "inherited from".len() + name_width,
    };
    let columns: Vec<Column> = fields
        .iter()
        .map(|&field| Column {
            heading: field.heading().to_owned(),
            justify: Justify::Left,
            min_width: width(field),
            grows: false,
        })
        .collect();
    let shown: Vec<Row> = rows
        .iter()
        .filter(|row| row.shown)
        .map(|row| {
            let cell = |field: &Field| match field {
                Field::Name => row.name.clone(),
                Field::Property => row.property.clone(),
                Field::Value => row.value.clone(),
                Field::Received => row.received.clone().unwrap_or_else(|| "-".to_owned()),
                Field::Source => row.source.to_string(),
            };
            Row::new(fields.iter().map(cell).collect())
        })
        .collect();
    // Without anything to show there is no heading either.
    if shown.is_empty() { Ok(()) } else { print(out, &columns, &shown, scripted) }
}

/// As [`print_get`], without the sources where they make lines longer than `width`. The user is told so.
///
/// # Errors
/// As [`print_get`].
pub fn print_get_within(
    console: &mut Console,
    fields: &[Field],
    rows: &[Got],
    width: usize,
) -> io::Result<()> {
    let mut whole = Vec::new();
    print_get(&mut whole, fields, rows, false)?;
    let is_long = |line: &[u8]| String::from_utf8_lossy(line).chars().count() > width;
    let fewer: Vec<Field> = fields.iter().copied().filter(|field| *field != Field::Source).collect();
    if fewer.len() == fields.len() || !whole.split(|byte| *byte == b'\n').any(is_long) {
        return console.out().write_all(&whole);
    }
    console.explain("too narrow for SOURCE: --wide shows all columns");
    print_get(console.out(), &fewer, rows, false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(words: &str, raw: bool) -> Vec<Column> {
        words
            .split(',')
            .map(|word| match word {
                "name" => Column::name(),
                word => Column::dataset(word, &dataset::ask(word).expect(word), raw),
            })
            .collect()
    }

    fn rows(lines: &[&str]) -> Vec<Row> {
        lines.iter().map(|line| Row::new(line.split('|').map(str::to_owned).collect())).collect()
    }

    fn listed(words: &str, raw: bool, lines: &[&str]) -> String {
        let mut out = Vec::new();
        print(&mut out, &columns(words, raw), &rows(lines), false).expect("memory");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_list_is_laid_out_as_recorded() {
        let text = listed(
            "name,used,available,referenced,mountpoint",
            false,
            &[
                "NVMe|7.01M|345M|26K|/NVMe",
                "NVMe/db|1.11M|345M|1.11M|/NVMe/db",
                "NVMe/gzip-1|664K|345M|664K|/NVMe/gzip-1",
            ],
        );
        assert_eq!(
            text,
            "NAME          USED  AVAIL  REFER  MOUNTPOINT\n\
             NVMe         7.01M   345M    26K  /NVMe\n\
             NVMe/db      1.11M   345M  1.11M  /NVMe/db\n\
             NVMe/gzip-1   664K   345M   664K  /NVMe/gzip-1\n"
        );
    }

    #[test]
    fn index_columns_fit_their_longest_word_and_raw_numbers_grow() {
        let text = listed("name,compress,ratio,lused", false, &["NVMe|on|2.20x|30.0M"]);
        assert_eq!(text, "NAME  COMPRESS        RATIO  LUSED\nNVMe  on              2.20x  30.0M\n");
        let text = listed("name,used,avail", true, &["tank|20453376|105375744"]);
        assert_eq!(text, "NAME      USED      AVAIL\ntank  20453376  105375744\n");
        assert_eq!(listed("user:x", false, &["-"]), "USER:X\n-\n");
    }

    #[test]
    fn columns_are_left_out_by_rank_until_the_table_fits() {
        let all = || {
            let columns = columns("name,used,available,referenced,mountpoint", false);
            (columns, rows(&["tank/home/photos|7.01M|345M|26K|/home/user/photos"]))
        };
        const RANK: &[&str] = &["MOUNTPOINT", "REFER"];
        for (width, left_out) in [(80, 0), (56, 0), (55, 1), (37, 1), (36, 2), (1, 2)] {
            let (mut columns, mut rows) = all();
            assert_eq!(fit(&mut columns, &mut rows, RANK, width), RANK[..left_out], "{width}");
            let mut out = Vec::new();
            print(&mut out, &columns, &rows, false).expect("memory");
            let longest = String::from_utf8(out).expect("text").lines().map(str::len).max();
            assert!(longest <= Some(width) || width < 30, "{width}: {longest:?}");
        }
    }

    #[test]
    fn scripted_rows_are_tabs_alone() {
        let mut out = Vec::new();
        print(&mut out, &columns("name,used", false), &rows(&["tank|24K"]), true).expect("memory");
        assert_eq!(out, b"tank\t24K\n");
    }

    #[test]
    fn vdev_rows_lean_to_the_right() {
        let columns: Vec<Column> = ["health", "altroot"]
            .iter()
            .map(|word| Column::pool(word, &pool_props::ask(word).expect(word), false))
            .collect();
        let columns = [vec![Column::name()], columns].concat();
        let mut rows = rows(&["tank|ONLINE|-", "  /v/a|ONLINE|-"]);
        rows[1].vdev = true;
        let mut out = Vec::new();
        print(&mut out, &columns, &rows, false).expect("memory");
        assert_eq!(
            String::from_utf8_lossy(&out),
            "NAME      HEALTH  ALTROOT\ntank      ONLINE  -\n  /v/a    ONLINE        -\n"
        );
    }

    fn got(name: &str, word: &str, value: &str, source: Source) -> Got {
        let asked = dataset::ask(word).expect(word);
        let property = match asked {
            dataset::Asked::Native(p) => p.name,
            _ => word,
        };
        Got {
            name: name.to_owned(),
            property: property.to_owned(),
            column: Column::dataset(word, &asked, false),
            value: value.to_owned(),
            human_len: value.len(),
            received: None,
            source,
            shown: true,
        }
    }

    fn shown(fields: &[Field], rows: &[Got]) -> String {
        let mut out = Vec::new();
        print_get(&mut out, fields, rows, false).expect("memory");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn get_widens_its_values_by_what_was_asked_for() {
        assert_eq!(
            shown(&Field::DEFAULT, &[got("NVMe/lz4", "compress", "on", Source::Local)]),
            "NAME      PROPERTY     VALUE           SOURCE\nNVMe/lz4  compression  on              local\n"
        );
        assert_eq!(
            shown(&Field::DEFAULT, &[got("tank/a", "quota", "1.50M", Source::Local)]),
            "NAME    PROPERTY  VALUE  SOURCE\ntank/a  quota     1.50M  local\n"
        );
        assert_eq!(
            shown(
                &Field::DEFAULT,
                &[
                    got("tank/b", "user:prop", "hello", Source::Local),
                    got("tank/b", "quota", "10M", Source::Local)
                ]
            ),
            "NAME    PROPERTY   VALUE      SOURCE\n\
             tank/b  user:prop  hello      local\n\
             tank/b  quota      10M        local\n"
        );
    }

    #[test]
    fn a_narrow_terminal_does_without_sources() {
        let rows = [got("tank/a", "quota", "1.50M", Source::Local)];
        let said = |width| {
            let mut out = Vec::new();
            let mut console = Console::new(&mut out, io::sink());
            print_get_within(&mut console, &Field::DEFAULT, &rows, width).expect("memory");
            console.finish(Ok(()), String::new);
            String::from_utf8(out).expect("text")
        };
        assert_eq!(said(31), "NAME    PROPERTY  VALUE  SOURCE\ntank/a  quota     1.50M  local\n");
        assert_eq!(said(30), "NAME    PROPERTY  VALUE\ntank/a  quota     1.50M\n");
    }

    #[test]
    fn a_source_before_another_field_is_as_wide_as_it_may_get() {
        let fields = [Field::Name, Field::Property, Field::Value, Field::Source, Field::Received];
        let row = got("NVMe/gzip-6/fastq", "compress", "gzip", Source::Inherited("NVMe/gzip-6".to_owned()));
        assert_eq!(
            shown(&fields, &[row]),
            "NAME               PROPERTY     VALUE           SOURCE                           RECEIVED\n\
             NVMe/gzip-6/fastq  compression  gzip            inherited from NVMe/gzip-6       -\n"
        );
    }

    #[test]
    fn rows_left_out_count_for_the_widths() {
        let mut other = got("tank/long-name", "type", "filesystem", Source::None);
        other.shown = false;
        assert_eq!(
            shown(&Field::DEFAULT, &[other.clone(), got("tank", "type", "filesystem", Source::None)]),
            "NAME            PROPERTY  VALUE       SOURCE\ntank            type      filesystem  -\n"
        );
        assert_eq!(shown(&Field::DEFAULT, &[other]), "");
    }
}
