//! Figures in TOML, as [`super::published`] describes them, read into rows.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use toml::{Table, Value};

use crate::published::{names, number};
use crate::stats::median;
use crate::{Error, Result};

/// Figures of one setting with one record size.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    /// Sizes on disk in bytes, by data set.
    pub(super) sizes: BTreeMap<String, f64>,
    pub(super) ratios: BTreeMap<String, f64>,
    /// Seconds by the name of the work, variants apart.
    pub(super) seconds: BTreeMap<(Option<u32>, String), f64>,
    /// The table has rates only, so its seconds are seconds per byte.
    pub(super) per_byte: bool,
}

pub(super) type Key = (String, Option<u64>);

#[derive(Default)]
pub(super) struct Rows {
    pub(super) order: Vec<Key>,
    pub(super) rows: BTreeMap<Key, Row>,
}

impl Rows {
    fn row(&mut self, key: &Key) -> &mut Row {
        if !self.rows.contains_key(key) {
            self.order.push(key.clone());
        }
        self.rows.entry(key.clone()).or_default()
    }
}

/// Reads the figures of one table.
pub(super) struct Reader<'a> {
    /// The table's name, for errors.
    pub(super) name: &'a str,
    /// Its settings, in order.
    pub(super) settings: &'a [String],
    /// The rows that were read.
    pub(super) rows: Rows,
}

impl Reader<'_> {
    /// Reads the arrays of `table` and of the tables in it, with one figure for each of `keys`; `set` names the data.
    ///
    /// # Errors
    /// A figure that is missing or none; a key that names no size.
    pub(super) fn read(&mut self, set: &str, table: &Table, keys: &[Key]) -> Result<()> {
        let (name, settings) = (self.name, self.settings);
        for (key, value) in table {
            match value {
                Value::Array(array) if is_figure(key) => {
                    if array.len() != keys.len() {
                        let what = format!("has {} figures for {} settings", array.len(), keys.len());
                        return Err(bad(name, key, &what));
                    }
                    for (at, value) in keys.iter().zip(array) {
                        let figure = Figure::of(value)
                            .ok_or_else(|| bad(name, key, "has a figure that is not above 0"))?;
                        figure.enter(key, set, self.rows.row(at));
                    }
                }
                Value::Table(below) if key == "seconds" => {
                    for (work, value) in below {
                        let list = value.as_array().filter(|list| list.len() == keys.len());
                        let list =
                            list.ok_or_else(|| bad(name, work, "does not have a figure for each setting"))?;
                        for (at, value) in keys.iter().zip(list) {
                            let seconds = number(value).filter(|n| *n > 0.0);
                            let seconds =
                                seconds.ok_or_else(|| bad(name, work, "has a figure that is not above 0"))?;
                            self.rows.row(at).seconds.insert((None, work.clone()), seconds);
                        }
                    }
                }
                Value::Table(below) if key.starts_with("recordsize_") => {
                    let size = record_size(&key["recordsize_".len()..])
                        .ok_or_else(|| bad(name, key, "names no size"))?;
                    let keys: Vec<Key> =
                        settings.iter().map(|setting| (setting.clone(), Some(size))).collect();
                    self.read(set, below, &keys)?;
                }
                Value::Table(below) if key.ends_with("_by_recordsize") => {
                    let setting = key.trim_end_matches("_by_recordsize").replace('_', "-");
                    let sizes = names(below.get("recordsize")).unwrap_or_default();
                    let sizes: Option<Vec<u64>> = sizes.iter().map(|size| record_size(size)).collect();
                    let sizes = sizes
                        .filter(|sizes| !sizes.is_empty())
                        .ok_or_else(|| bad(name, key, "has no list 'recordsize'"))?;
                    let keys: Vec<Key> =
                        sizes.into_iter().map(|size| (setting.clone(), Some(size))).collect();
                    self.read(set, below, &keys)?;
                }
                Value::Table(below)
                    if key != "conclusion"
                        && below.keys().any(|key| is_size(key))
                        && !below.contains_key("total_gb") =>
                {
                    self.read(key, below, keys)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// A figure, or several runs of it.
struct Figure(Vec<f64>);

impl Figure {
    /// `None` if it is none above 0.
    fn of(value: &Value) -> Option<Figure> {
        let runs = match value {
            Value::Array(runs) => runs.iter().map(number).collect::<Option<Vec<f64>>>()?,
            one => vec![number(one)?],
        };
        (!runs.is_empty() && runs.iter().all(|value| *value > 0.0)).then_some(Figure(runs))
    }

    /// Puts the figure with the name `key` into its field of the row.
    fn enter(&self, key: &str, set: &str, row: &mut Row) {
        let is_read = key.starts_with("read");
        let value = if is_read { self.0[0] } else { median(&self.0) };
        match key {
            "compressratio" => drop(row.ratios.insert(set.to_owned(), value)),
            "used_gib" | "on_disk_gib" => drop(row.sizes.insert(set.to_owned(), value * f64::from(1 << 30))),
            "file_gb" => drop(row.sizes.insert(set.to_owned(), value * 1e9)),
            _ => {
                let cores = key.strip_suffix("_cores").and_then(|rest| rest.rsplit('_').next()?.parse().ok());
                let work = if is_read { "read" } else { "write" };
                // Where a table has both, its seconds count.
                let at = (cores, work.to_owned());
                if !key.ends_with("mb_s") {
                    row.seconds.insert(at, value);
                    row.per_byte = false;
                } else if let Entry::Vacant(vacant) = row.seconds.entry(at) {
                    vacant.insert(1e-6 / value);
                    row.per_byte = true;
                }
            }
        }
    }
}

fn is_size(key: &str) -> bool {
    matches!(key, "compressratio" | "used_gib" | "on_disk_gib" | "file_gb")
}

fn is_figure(key: &str) -> bool {
    let is_time = key.contains("seconds") || key.ends_with("mb_s");
    is_size(key) || is_time && !key.contains("printed")
}

/// Bytes of the data before compression, as far as the row has them.
pub(super) fn original(row: &Row) -> f64 {
    row.sizes.iter().map(|(set, size)| size * row.ratios.get(set).unwrap_or(&1.0)).sum()
}

fn record_size(text: &str) -> Option<u64> {
    pool::props::size::parse_size(text).ok()
}

pub(super) fn bad(table: &str, key: &str, what: &str) -> Error {
    Error::Table(format!("'{key}' of '{table}' {what}"))
}
