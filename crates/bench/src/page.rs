//! The page: one self-contained HTML file.
//!
//! From:   a [`Report`] or a [`Comparison`](crate::Comparison), and what is shown of it.
//! To:     a reader at a phone, at a desk, on paper, in the light and in the dark; and their scripts: the raw data lies
//!         within, as JSON and CSV.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::chart::{self, Ink, Size};
use crate::figures::Kind;
use crate::{Chart, Figures, Table};

const STYLE: &str = include_str!("page.css");
/// Hands the data out as files; without it they can still be read in the page's source.
const SCRIPT: &str = "document.querySelectorAll('button[data-of]').forEach(b=>b.addEventListener('click',()=>{\
const s=document.getElementById(b.dataset.of),a=document.createElement('a');\
a.href=URL.createObjectURL(new Blob([s.textContent.trim()+'\\n'],{type:s.type}));a.download=b.dataset.as;a.click();\
setTimeout(()=>URL.revokeObjectURL(a.href),1000)}))";
/// Characters of a cell that is wrapped.
const LONG_CELL: usize = 28;
/// Columns beside which there is room for wrapped text on a phone.
const NARROW_COLUMNS: usize = 3;
/// More columns than this do not fit beside each other unless the text is smaller.
const CROWDED_COLUMNS: usize = 12;
/// Two tables with as many columns fit beside each other.
const SMALL_COLUMNS: usize = 6;
/// The parts of a page.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// The question.
    pub title: String,
    /// The small line above the title.
    pub kicker: String,
    /// The answer.
    pub answer: String,
    /// Commands that follow from it; may be empty.
    pub advice: String,
    /// The row of the first table that the answer is about.
    pub chosen: Option<usize>,
    /// Notes that the reader should keep in mind.
    pub warnings: Vec<String>,
    /// The figures.
    pub figures: Figures,
    /// How it came about.
    pub commands: Vec<String>,
    /// On what.
    pub machine: Vec<String>,
    /// All of it.
    pub json: String,
    /// The runs; may be empty.
    pub csv: String,
}

impl Page {
    pub(crate) fn html(&self) -> String {
        let (first, others) = match self.figures.tables.split_first() {
            Some((first, others)) => (Some(first), others),
            None => (None, [].as_slice()),
        };
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:";
                    title { (self.title) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    main {
                        p.kicker { (self.kicker) }
                        h1 { (self.title) }
                        section.answer aria-label="Answer" {
                            @for line in self.answer.lines() { p { (line) } }
                            @if !self.advice.is_empty() { pre tabindex="0" { (self.advice) } }
                        }
                        @if !self.figures.tiles.is_empty() {
                            dl.tiles {
                                @for (name, number, against) in &self.figures.tiles {
                                    div { dt { (name) } dd { (number) small { (against) } } }
                                }
                            }
                        }
                        @if let Some(chart) = self.figures.charts.first() { div.charts.first { (drawn(chart, 0)) } }
                        (notes(&self.warnings))
                        @if let Some(table) = first { (shown(table, self.chosen)) }
                        @if self.figures.charts.len() > 1 {
                            div.charts {
                                @for (index, chart) in self.figures.charts.iter().enumerate().skip(1) {
                                    (drawn(chart, index))
                                }
                            }
                        }
                        div.tables { @for table in others { (shown(table, None)) } }
                        (self.basis())
                        div.get {
                            button type="button" data-of="json" data-as="cenote.json" { "Save the data as JSON" }
                            @if !self.csv.is_empty() {
                                button type="button" data-of="csv" data-as="cenote.csv" { "Save the runs as CSV" }
                            }
                        }
                    }
                    footer { "Made by cenote. This page loads nothing from anywhere; its data is inside." }
                    script type="application/json" id="json" { (PreEscaped(inert(&self.json))) }
                    @if !self.csv.is_empty() {
                        script type="text/csv" id="csv" { (PreEscaped(inert(&self.csv))) }
                    }
                    script { (PreEscaped(SCRIPT)) }
                }
            }
        }
        .into_string()
    }
}

impl Page {
    /// How and on which machine it was measured, folded.
    fn basis(&self) -> Markup {
        html! {
            @if !self.commands.is_empty() {
                details {
                    summary { "How it was measured" }
                    @for command in &self.commands { pre tabindex="0" { (command) } }
                }
            }
            @if !self.machine.is_empty() {
                details {
                    summary { "On what" }
                    ul.plain { @for line in &self.machine { li { (line) } } }
                }
            }
        }
    }
}

/// Escapes data so that it cannot end its element. JSON allows this form of `<`; in CSV, only text of this program contains
/// `<`.
fn inert(text: &str) -> String {
    text.replace('<', "\\u003c")
}

/// The notes, folded: the number of notes is seen at once.
fn notes(warnings: &[String]) -> Markup {
    html! {
        @if !warnings.is_empty() {
            details.warning {
                summary { (warnings.len()) @if warnings.len() == 1 { " note" } @else { " notes" } " on how far to trust this" }
                ul { @for warning in warnings { li { (warning) } } }
            }
        }
    }
}

fn shown(table: &Table, chosen: Option<usize>) -> Markup {
    let is_long = |column: usize| table.rows.iter().any(|row| row[column].chars().count() > LONG_CELL);
    // Beside many columns a narrow one would make every row tall.
    let long = if table.columns.len() > NARROW_COLUMNS { "text long wide-cell" } else { "text long" };
    let class = |column: usize| match (table.is_number(column), is_long(column)) {
        (_, true) => Some(long),
        (false, false) => Some("text"),
        (true, false) => None,
    };
    let is_headed = table.columns.iter().any(|name| !name.is_empty());
    let width = match table.columns.len() {
        columns if columns > CROWDED_COLUMNS => Some("crowded"),
        columns if columns <= SMALL_COLUMNS && !(0..columns).any(is_long) => Some("small"),
        _ => None,
    };
    html! {
        section class=[width] {
        h2 { (table.title) }
        div.scroll tabindex="0" role="region" aria-label=(table.title) {
            table {
                @if is_headed { thead { tr { @for (at, name) in table.columns.iter().enumerate() {
                    th scope="col" class=[class(at)] { (name) } } } } }
                tbody {
                    @for (index, row) in table.rows.iter().enumerate() {
                        tr class=[(chosen == Some(index)).then_some("chosen")] {
                            @for (at, cell) in row.iter().enumerate() {
                                @if at == 0 { th scope="row" { (cell) } } @else { td class=[class(at)] { (cell) } }
                            }
                        }
                    }
                }
            }
        }
        @if !table.note.is_empty() { p.note { (table.note) } }
        }
    }
}

fn drawn(chart: &Chart, index: usize) -> Markup {
    let wide = chart::svg(chart, &format!("w{index}"), Size::Wide, Ink::Page);
    let narrow = chart::svg(chart, &format!("n{index}"), Size::Narrow, Ink::Page);
    let is_bars = matches!(chart.kind, Kind::Bars { .. });
    html! {
        figure class=[is_bars.then_some("bars")] {
            h2 { (chart.title) }
            div.wide { (PreEscaped(wide)) }
            div.narrow { (PreEscaped(narrow)) }
            figcaption { (chart.description) }
        }
    }
}

/// A text whose first letter is a capital.
pub(crate) fn first_upper(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn width(columns: usize, cell: &str) -> Option<&'static str> {
        let row = vec![cell.to_owned(); columns];
        let table = Table { title: "A".into(), note: String::new(), columns: row.clone(), rows: vec![row] };
        let html = shown(&table, None).into_string();
        ["small", "crowded"].into_iter().find(|class| html.contains(&format!("<section class=\"{class}\">")))
    }

    #[test]
    fn small_tables_stand_beside_each_other_and_wide_ones_have_smaller_text() {
        assert_eq!(width(5, "1.0"), Some("small"));
        assert_eq!(width(10, "1.0"), None);
        assert_eq!(width(15, "1.0"), Some("crowded"));
        let long = "a cell of text that is too long for half a page";
        assert_eq!(width(2, long), None);
    }
}
