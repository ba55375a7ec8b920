//! Tables and charts, as data.
//!
//! From:   what a report, a comparison or published figures show.
//! To:     the page, the picture, Markdown; and the JSON form, so that no number is shown that it does not hold.

use pool::props::number::nice;
use serde::{Deserialize, Serialize};

/// Numbers in rows and columns; blank where nothing was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Grid {
    /// The meaning of the numbers.
    pub title: String,
    /// Their unit; may be empty.
    pub unit: String,
    /// Digits behind the point.
    pub decimals: usize,
    /// Heading of the names of the rows.
    pub corner: String,
    /// Headings.
    pub columns: Vec<String>,
    /// Name and numbers, one for each column.
    pub rows: Vec<(String, Vec<Option<f64>>)>,
}

/// More digits behind the point say nothing.
pub(crate) const DECIMALS_MAX: usize = 9;

impl Grid {
    /// Whether there is a number, or a blank, for each column in each row.
    pub(crate) fn is_sound(&self) -> bool {
        let whole = self.rows.iter().all(|(_, numbers)| numbers.len() == self.columns.len());
        whole && self.decimals <= DECIMALS_MAX
    }

    /// Every number divided by the number of its row in the column `base`; `None` without such a column.
    #[must_use]
    pub fn normalised(&self, base: &str) -> Option<Grid> {
        let column = self.columns.iter().position(|name| name == base)?;
        let row = |(name, numbers): &(String, Vec<Option<f64>>)| {
            let by = numbers[column].filter(|by| *by != 0.0);
            let over = |number: &Option<f64>| Some((*number)? / by?);
            (name.clone(), numbers.iter().map(over).collect())
        };
        Some(Grid {
            title: format!("{}, {base} = 1.00", self.title),
            unit: String::new(),
            decimals: 2,
            corner: self.corner.clone(),
            columns: self.columns.clone(),
            rows: self.rows.iter().map(row).collect(),
        })
    }

    /// The number at a row and a column by their names.
    #[must_use]
    pub fn at(&self, row: &str, column: &str) -> Option<f64> {
        let index = self.columns.iter().position(|name| name == column)?;
        self.rows.iter().find(|(name, _)| name == row).and_then(|(_, numbers)| numbers[index])
    }

    /// The text of one number.
    #[must_use]
    pub fn cell(&self, number: Option<f64>) -> String {
        number.map_or(String::new(), |number| format!("{number:.*}", self.decimals))
    }

    /// As text in rows.
    #[must_use]
    pub fn table(&self) -> Table {
        let unit = if self.unit.is_empty() { String::new() } else { format!(", {}", self.unit) };
        let row = |(name, numbers): &(String, Vec<Option<f64>>)| {
            std::iter::once(name.clone()).chain(numbers.iter().map(|number| self.cell(*number))).collect()
        };
        Table {
            title: format!("{}{unit}", self.title),
            note: String::new(),
            columns: std::iter::once(self.corner.clone()).chain(self.columns.iter().cloned()).collect(),
            rows: self.rows.iter().map(row).collect(),
        }
    }

    /// Bars, a group for each row, against 1.00.
    #[must_use]
    pub fn bars(&self, description: &str) -> Chart {
        let group = |(name, numbers): &(String, Vec<Option<f64>>)| {
            let bars = self.columns.iter().zip(numbers);
            let bars = bars.filter_map(|(column, number)| Some((column.clone(), (*number)?))).collect();
            Group { name: name.clone(), bars }
        };
        Chart {
            title: self.title.clone(),
            description: description.to_owned(),
            kind: Kind::Bars {
                decimals: self.decimals,
                baseline: Some(1.0),
                groups: self.rows.iter().map(group).collect(),
            },
        }
    }
}

/// A table as people read it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// Above it.
    pub title: String,
    /// Below it; may be empty.
    pub note: String,
    /// Headings.
    pub columns: Vec<String>,
    /// Cells, as many as columns.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// Whether a column, which is not that of the names, holds numbers.
    pub(crate) fn is_number(&self, column: usize) -> bool {
        let number = |cell: &str| cell.starts_with(|c: char| c.is_ascii_digit() || c == '-');
        let mut cells =
            self.rows.iter().map(|row| row[column].as_str()).filter(|cell| !cell.is_empty()).peekable();
        column > 0 && cells.peek().is_some() && cells.all(number)
    }

    /// For a terminal: headings and rows, columns two blanks apart, words to the left, numbers to the right.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let all = || std::iter::once(&self.columns).chain(&self.rows);
        let width = |column: usize| all().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let shape: Vec<(usize, bool)> =
            (0..self.columns.len()).map(|column| (width(column), self.is_number(column))).collect();
        let cell = |(text, (width, is_number)): (&String, &(usize, bool))| match is_number {
            true => format!("{text:>width$}"),
            false => format!("{text:<width$}"),
        };
        let line = |row: &Vec<String>| row.iter().zip(&shape).map(cell).collect::<Vec<_>>().join("  ");
        all().map(|row| line(row).trim_end().to_owned()).collect()
    }

    /// As Markdown.
    #[must_use]
    pub fn markdown(&self) -> String {
        // A bar would end the cell.
        let line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let rule: Vec<String> = (0..self.columns.len())
            .map(|at| if self.is_number(at) { "---:" } else { "---" }.to_owned())
            .collect();
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        let note = if self.note.is_empty() { String::new() } else { format!("\n{}\n", self.note) };
        line(&self.columns) + &line(&rule) + &rows + &note
    }
}

/// A picture of numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// The title.
    pub title: String,
    /// A description in words, for readers who cannot see the figure.
    pub description: String,
    /// How it shows it.
    pub kind: Kind,
}

/// The kinds of charts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Kind {
    /// Points with names; the points of `front` are joined by a line.
    Scatter {
        /// Across.
        x: Axis,
        /// Upwards.
        y: Axis,
        /// Name, x, y.
        points: Vec<(String, f64, f64)>,
        /// The points that no other beats in both, from left to right.
        front: Vec<usize>,
        /// The one that is recommended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        chosen: Option<usize>,
        /// Record sizes, each with the points that have it; empty if all have the same.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        groups: Vec<(String, Vec<usize>)>,
    },
    /// Lying bars in groups.
    Bars {
        /// Digits behind the point.
        decimals: usize,
        /// A line where bars would end that change nothing.
        baseline: Option<f64>,
        /// One below the other.
        groups: Vec<Group>,
    },
    /// Lines.
    Lines {
        /// Across.
        x: Axis,
        /// Upwards, from 0.
        y: Axis,
        /// The lines to draw.
        series: Vec<Series>,
        /// A place on the x axis that matters, and why.
        mark: Option<(f64, String)>,
    },
}

/// Points by their record sizes, for [`Kind::Scatter`]; empty if all have the same.
pub(crate) fn alike_records(sizes: &[u64]) -> Vec<(String, Vec<usize>)> {
    let mut all: Vec<u64> = sizes.to_vec();
    all.sort_unstable();
    all.dedup();
    if all.len() < 2 {
        return Vec::new();
    }
    let of = |size: u64| (0..sizes.len()).filter(|index| sizes[*index] == size).collect();
    all.into_iter().map(|size| (format!("records of {}", nice(size)), of(size))).collect()
}

/// The labels of an axis.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// The quantity and its unit.
    pub label: String,
    /// Each step is a factor.
    pub log: bool,
    /// Words at places, where they are no numbers on a scale.
    pub words: Vec<(f64, String)>,
}

impl Axis {
    pub(crate) fn linear(label: &str) -> Axis {
        Axis { label: label.to_owned(), ..Axis::default() }
    }
}

/// Bars that stand together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// The value that they share.
    pub name: String,
    /// Name and length of each.
    pub bars: Vec<(String, f64)>,
}

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Whose numbers they are.
    pub name: String,
    /// x, y, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// Everything that is shown of a report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Sentences: the answer, what to keep in mind, the machine.
    pub notes: Vec<String>,
    /// The main figures: name, number, and the number that it is compared with.
    pub tiles: Vec<(String, String, String)>,
    /// The charts, in order.
    pub charts: Vec<Chart>,
    /// The tables, in order; the first is that of all runs.
    pub tables: Vec<Table>,
}

impl Figures {
    /// `what` as JSON, with its tables and charts: every number of a page is in its data.
    pub(crate) fn within<T: Serialize>(self, what: &T) -> String {
        #[derive(Serialize)]
        struct Whole<'a, T> {
            #[serde(flatten)]
            what: &'a T,
            figures: Figures,
        }
        let whole = Whole { what, figures: self };
        serde_json::to_string(&whole).expect("records of numbers and text are JSON")
    }
}

/// A field of CSV.
pub(crate) fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}
