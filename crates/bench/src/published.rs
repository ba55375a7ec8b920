//! Figures that others published, as tables beside the user's own.
//!
//! From:   a file such as `experiments/published.toml`: a section for each comparison, its settings, and arrays of
//!         numbers with one for each setting.
//! To:     [`Grid`]s, from which the published graphs come out again.

use std::fmt::Write as _;

use toml::{Table as Section, Value};

use crate::figures::{Chart, DECIMALS_MAX, Grid};
use crate::page::Page;
use crate::{Figures, Table, ranking};

/// Keys of lists that name the columns of their section, and the meaning of these names.
const OWN_COLUMNS: [(&str, &str); 2] = [("recordsize", "recordsize"), ("total_gb", "GB written")];

/// One published comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Published {
    /// Its key, such as `S0`.
    pub key: String,
    /// Its name on pages: its `title`, else the key.
    pub title: String,
    /// Facts that it gives about itself: system, disk, data …
    pub facts: Vec<String>,
    /// Its numbers.
    pub grids: Vec<Grid>,
    /// The conclusions of its author.
    pub conclusions: Vec<String>,
}

impl Published {
    /// Reads all comparisons of a file.
    ///
    /// # Errors
    /// One line that says what is wrong with it.
    pub fn parse(text: &str) -> Result<Vec<Published>, String> {
        let file = section(text)?;
        let sections = file.iter().map(|(key, value)| match value {
            Value::Table(section) => Published::read(key, section),
            _ => Err(format!("'{key}' is no comparison")),
        });
        let all = sections.collect::<Result<Vec<_>, _>>()?;
        if all.iter().all(|published| published.grids.is_empty()) {
            return Err("there is no comparison in it".to_owned());
        }
        Ok(all)
    }

    fn read(key: &str, section: &Section) -> Result<Published, String> {
        let settings = names(section.get("settings")).ok_or(format!("{key} has no list 'settings'"))?;
        let title = section.get("title").and_then(Value::as_str).unwrap_or(key);
        let mut published = Published {
            key: key.to_owned(),
            title: title.to_owned(),
            facts: Vec::new(),
            grids: Vec::new(),
            conclusions: Vec::new(),
        };
        published.arrays(title, section, &settings)?;
        for (name, value) in section {
            match value {
                Value::String(_) if name == "title" => {}
                Value::String(text) => published.facts.push(format!("{name}: {text}")),
                Value::Table(inner) if name == "conclusion" => {
                    let said = |(purpose, value): (&String, &Value)| {
                        let all = names(Some(value)).unwrap_or_default().join(" or ");
                        format!("{}: {}", purpose.replace('_', " "), value.as_str().unwrap_or(&all))
                    };
                    published.conclusions = inner.iter().map(said).collect();
                }
                Value::Table(inner) => {
                    let title = format!("{title}: {}", name.replace('_', " "));
                    let own = OWN_COLUMNS.iter().find_map(|(list, _)| names(inner.get(*list)));
                    published.arrays(&title, inner, own.as_deref().unwrap_or(&settings))?;
                }
                _ => {}
            }
        }
        Ok(published)
    }

    /// Each array with a number for each column becomes a row; one with a list for each, a row for each of those.
    fn arrays(&mut self, title: &str, section: &Section, columns: &[String]) -> Result<(), String> {
        let corner = OWN_COLUMNS.iter().find(|(list, _)| section.contains_key(*list)).map_or("", |own| own.1);
        let arrays = section.iter().filter_map(|(name, value)| Some((name, value.as_array()?)));
        for (name, array) in arrays {
            if OWN_COLUMNS.iter().any(|(list, _)| list == name) || name == "settings" {
                continue;
            }
            let wrong = || format!("{title}: '{name}' needs a number for each of {}", columns.join(", "));
            let lists: Option<Vec<&Vec<Value>>> = array.iter().map(Value::as_array).collect();
            let rows: Vec<Vec<f64>> = match lists {
                Some(lists) if !lists.is_empty() => {
                    let count = lists.iter().map(|list| list.len()).min().unwrap_or(0);
                    let row =
                        |at: usize| lists.iter().map(|list| number(&list[at])).collect::<Option<Vec<_>>>();
                    (0..count).map(row).collect::<Option<_>>().ok_or_else(wrong)?
                }
                _ => vec![array.iter().map(number).collect::<Option<_>>().ok_or_else(wrong)?],
            };
            if rows.is_empty() || rows.iter().any(|row| row.len() != columns.len()) {
                return Err(wrong());
            }
            self.grids.push(grid(title, name, corner, columns, &rows));
        }
        Ok(())
    }

    /// The grids of the same title and columns as one table each, and times also over `off`.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let (tables, charts) = shown(&self.grids);
        Figures { tables, charts, ..Figures::default() }
    }

    /// The figures as text: facts, conclusions and tables.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let mut text = format!("# {}\n\n", self.title);
        self.facts.iter().for_each(|fact| text += &format!("- {fact}\n"));
        for table in self.figures().tables {
            let _ = write!(text, "\n## {}\n\n{}", table.title, table.markdown());
        }
        let _ = writeln!(text, "\nConcluded: {}.", self.conclusions.join("; "));
        text
    }

    /// All tables and charts of several comparisons on one page.
    #[must_use]
    pub fn page(all: &[Published]) -> String {
        let mut figures = Figures::default();
        for each in all {
            let mut own = each.figures();
            let in_order = own.tables.iter_mut().filter(|table| table.title == ranking::TITLE);
            in_order.for_each(|table| table.title = format!("{}: in order", each.title));
            figures.tables.append(&mut own.tables);
            figures.charts.append(&mut own.charts);
        }
        let json = serde_json::json!({ "figures": figures }).to_string();
        let facts = |each: &Published| {
            each.facts.iter().map(|fact| format!("{}: {fact}", each.title)).collect::<Vec<_>>()
        };
        let said = |each: &Published| format!("{}: {}", each.title, each.conclusions.join("; "));
        Page {
            title: "What others measured".to_owned(),
            kicker: "Published figures, drawn again by cenote".to_owned(),
            answer: format!(
                "Their authors concluded:\n{}",
                all.iter().map(said).collect::<Vec<_>>().join("\n")
            ),
            figures,
            machine: all.iter().flat_map(facts).collect(),
            json,
            ..Page::default()
        }
        .html()
    }
}

/// Tables and charts of published numbers: grids of the same title and columns as one table, times also over `off`.
pub(crate) fn shown(grids: &[Grid]) -> (Vec<Table>, Vec<Chart>) {
    let mut tables: Vec<Table> = Vec::new();
    for grid in grids {
        let mut table = grid.table();
        table.title.clone_from(&grid.title);
        let labelled = |mut row: Vec<String>| {
            if !grid.unit.is_empty() {
                let _ = write!(row[0], ", {}", grid.unit);
            }
            row
        };
        table.rows = table.rows.into_iter().map(labelled).collect();
        match tables.last_mut() {
            Some(last) if last.title == table.title && last.columns == table.columns => {
                last.rows.append(&mut table.rows);
            }
            _ => tables.push(table),
        }
    }
    let normal = normalised(grids);
    tables.extend(normal.iter().map(Grid::table));
    tables.extend(ranking::of_published(grids));
    let charts = normal.iter().map(|grid| grid.bars("Each time over the one with compression off."));
    (tables, charts.collect())
}

/// Grids of seconds over `off`, those of the same title together.
fn normalised(grids: &[Grid]) -> Vec<Grid> {
    let mut all: Vec<Grid> = Vec::new();
    for normal in grids.iter().filter(|grid| grid.unit == "s").filter_map(|grid| grid.normalised("off")) {
        match all.last_mut() {
            Some(last) if last.title == normal.title => last.rows.extend(normal.rows),
            _ => all.push(normal),
        }
    }
    all
}

/// The contents of a file.
///
/// # Errors
/// One line that says what is wrong with it.
pub(crate) fn section(text: &str) -> Result<Section, String> {
    text.parse().map_err(|error| one_line(&error))
}

/// The fault of a file, in one line with its place.
pub(crate) fn one_line(error: &toml::de::Error) -> String {
    error
        .to_string()
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.contains('|'))
        .collect::<Vec<_>>()
        .join(": ")
}

/// The words of a list, or its whole numbers.
pub(crate) fn names(value: Option<&Value>) -> Option<Vec<String>> {
    let name =
        |value: &Value| value.as_str().map(str::to_owned).or_else(|| Some(value.as_integer()?.to_string()));
    value?.as_array()?.iter().map(name).collect()
}

pub(crate) fn number(value: &Value) -> Option<f64> {
    value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64)).filter(|n| n.is_finite())
}

/// The meaning of an array, by its name: words and unit.
fn meaning(name: &str) -> (String, &'static str) {
    let units = [("_mb_s", "MB/s"), ("_gib", "GiB"), ("_gb", "GB"), ("_k", "K")];
    if let Some((suffix, unit)) = units.iter().find(|(suffix, _)| name.ends_with(suffix)) {
        return (name.trim_end_matches(suffix).replace('_', " "), unit);
    }
    let is_time =
        name == "seconds" || name.contains("seconds") || name.contains("mean") || name.contains("thread");
    (name.replace('_', " "), if is_time { "s" } else { "" })
}

fn grid(title: &str, name: &str, corner: &str, columns: &[String], rows: &[Vec<f64>]) -> Grid {
    let (what, unit) = meaning(name);
    let decimals = |n: &f64| n.to_string().split_once('.').map_or(0, |(_, digits)| digits.len());
    let least = if name.contains("ratio") || rows.iter().flatten().any(|n| decimals(n) == 2) { 2 } else { 0 };
    let label = |index: usize| match rows.len() {
        1 => what.clone(),
        _ => format!("{what}, run {}", index + 1),
    };
    Grid {
        title: title.to_owned(),
        unit: unit.to_owned(),
        decimals: rows.iter().flatten().map(decimals).max().unwrap_or(0).max(least).min(DECIMALS_MAX),
        corner: corner.to_owned(),
        columns: columns.to_vec(),
        rows: rows
            .iter()
            .enumerate()
            .map(|(index, row)| (label(index), row.iter().copied().map(Some).collect()))
            .collect(),
    }
}

#[cfg(test)]
mod tests;
