//! Advice from published tables instead of data, by the same rule.
//!
//! From:   TOML in the shape of experiments/published.toml: a table for each comparison with its `settings`, and arrays
//!         beside or below it with one figure for each setting.
//! To:     [`super::choose`].
//!
//! | key | meaning |
//! |---|---|
//! | `compressratio`; `used_gib`, `on_disk_gib`, `file_gb` | sizes; with several data sets their sizes are added up |
//! | `…seconds…`, `write_mb_s` | one kind of work; of several runs the median counts for writing, the first for reading: the others found the data in the cache |
//! | a table `seconds` | a kind of work for each of its keys |
//! | `…_N_cores` | figures of N cores: a variant of its own |
//! | a table `recordsize_X` | figures for records of X |
//! | a table `NAME_by_recordsize` with `recordsize` | figures of one setting by record size |
//! | `conclusion` | what the authors concluded |
//!
//! A table has no processor times. They are estimated from [`codec_rate`] and the written bytes (`file_gb`, `used_gib`,
//! else the bytes that [`DISK`] writes in the time of the slowest row).

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::choose::{Candidate, Choice, Goal, Workload, choose, front};
use super::table::{Key, Reader, Row, Rows, bad, original};
use crate::published::{names, section};
use crate::{Error, Result};

/// Bytes per second of a disk that nothing is known about.
const DISK: f64 = 100e6;
/// Cores of a machine that nothing is known about.
pub const TABLE_CORES: u32 = 4;

/// The advice that follows from a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableAdvice {
    /// The comparison.
    pub name: String,
    /// Which of its figures: `4 cores`, or nothing.
    pub variant: Option<String>,
    /// One row for each setting.
    pub rows: Vec<TableRow>,
    /// The choices of the rule for each goal.
    pub picks: Vec<TablePick>,
    /// The conclusions of the authors: for what, and which settings.
    pub authors: Vec<(String, Vec<String>)>,
}

/// A setting of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableRow {
    /// As the table calls it.
    pub compression: String,
    /// Bytes of a record, if the table has them.
    pub recordsize: Option<u64>,
    /// Original size over size on disk.
    pub ratio: f64,
    /// Seconds of the kinds of work; of a table of rates, those of all its data, or of 1 GB.
    pub seconds: Vec<f64>,
    /// Nothing is both smaller and faster.
    pub pareto: bool,
}

/// A choice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TablePick {
    /// For what.
    pub goal: Goal,
    /// The setting, as the table calls it.
    pub compression: String,
    /// Bytes of a record, if the table has them.
    pub recordsize: Option<u64>,
    /// Why.
    pub why: String,
}

/// The advice for each table in `text`. A table that does not name its cores was measured on `cores` cores, of which
/// other work uses `busy_cores`.
///
/// # Errors
/// [`Error::Table`].
pub fn from_tables(text: &str, cores: u32, busy_cores: f64) -> Result<Vec<TableAdvice>> {
    let cores = f64::from(cores.max(1));
    let machine = Machine { cores, busy: (busy_cores / cores).clamp(0.0, 1.0) };
    let whole = section(text).map_err(Error::Table)?;
    let mut all = Vec::new();
    // A file may be one table itself.
    if whole.contains_key("settings") {
        all.extend(advise("table", &whole, machine)?);
    }
    for (name, value) in &whole {
        if let Value::Table(table) = value
            && table.contains_key("settings")
        {
            all.extend(advise(name, table, machine)?);
        }
    }
    if all.is_empty() {
        return Err(Error::Table("there is no table with 'settings' and figures for them".to_owned()));
    }
    Ok(all)
}

/// The machine of a table, and its assumed load.
#[derive(Clone, Copy)]
struct Machine {
    cores: f64,
    busy: f64,
}

fn advise(name: &str, table: &Table, machine: Machine) -> Result<Vec<TableAdvice>> {
    let settings =
        names(table.get("settings")).ok_or_else(|| bad(name, "settings", "is no list of names"))?;
    let plain: Vec<Key> = settings.iter().map(|setting| (setting.clone(), None)).collect();
    let mut reader = Reader { name, settings: &settings, rows: Rows::default() };
    reader.read("", table, &plain)?;
    let rows = reader.rows;
    let mut variants: Vec<Option<u32>> =
        rows.rows.values().flat_map(|row| row.seconds.keys().map(|(cores, _)| *cores)).collect();
    variants.sort_unstable();
    variants.dedup();
    if variants.is_empty() {
        return Err(bad(name, "seconds", "is missing: there are no times to compare"));
    }
    Ok(variants.into_iter().filter_map(|cores| of_variant(name, table, &rows, cores, machine)).collect())
}

/// The reference against which the figures of a row are measured.
struct Scale {
    /// The variant of the table.
    cores: Option<u32>,
    /// Cores that compress.
    machine: f64,
    /// Bytes that were written and read.
    bytes: f64,
    /// Bytes before compression, by the row that says the most.
    original: f64,
}

/// A row as a candidate for the choice; `None` if it has no size.
fn candidate((compression, recordsize): &Key, row: &Row, scale: &Scale) -> Option<Candidate> {
    let Scale { cores, machine, bytes, original } = *scale;
    // Of several data sets the sizes count, since ratios of different amounts have no mean.
    let size = match (row.ratios.len(), row.sizes.is_empty()) {
        (0, true) => return None,
        (1, _) | (_, true) => {
            row.ratios.values().map(|ratio| 1.0 / ratio).sum::<f64>() / row.ratios.len() as f64
        }
        _ => row.sizes.values().sum::<f64>() / original,
    };
    let of_cores = || row.seconds.iter().filter(|((of, _), _)| *of == cores);
    // Writing once and reading once are one kind of work.
    let unit = if row.per_byte { bytes } else { 1.0 };
    let cycle: f64 =
        of_cores().filter(|((_, work), _)| is_cycle(work)).map(|(_, seconds)| seconds * unit).sum();
    let others = of_cores().filter(|((_, work), _)| !is_cycle(work)).map(|(_, seconds)| *seconds);
    let seconds = others.chain((cycle > 0.0).then_some(cycle));
    let codec_seconds = bytes / codec_rate(compression) / machine;
    let workloads = seconds.map(|seconds| Workload { seconds, codec_seconds, noise_seconds: 0.0 }).collect();
    Some(Candidate { compression: compression.clone(), recordsize: *recordsize, size, workloads })
}

fn of_variant(
    name: &str,
    table: &Table,
    rows: &Rows,
    cores: Option<u32>,
    machine: Machine,
) -> Option<TableAdvice> {
    let named: Vec<(&Key, &Row)> = rows.order.iter().map(|key| (key, &rows.rows[key])).collect();
    let timed: Vec<(&Key, &Row)> =
        named.into_iter().filter(|(_, row)| row.seconds.keys().any(|(of, _)| *of == cores)).collect();
    let original = timed.iter().map(|(_, row)| original(row)).fold(0.0, f64::max);
    let slowest = timed
        .iter()
        .filter_map(|(_, row)| row.seconds.values().copied().reduce(f64::max))
        .fold(0.0, f64::max);
    let rates_only = timed.iter().any(|(_, row)| row.per_byte);
    let bytes = match original {
        0.0 if rates_only => 1e9,
        0.0 => slowest * DISK,
        bytes => bytes,
    };
    let (busy, machine) = (machine.busy, cores.map_or(machine.cores, f64::from));
    let candidates: Vec<Candidate> = timed
        .iter()
        .filter_map(|(key, row)| candidate(key, row, &Scale { cores, machine, bytes, original }))
        .collect();
    let pareto = front(&candidates, busy);
    let row = |(candidate, pareto): (&Candidate, bool)| TableRow {
        compression: candidate.compression.clone(),
        recordsize: candidate.recordsize,
        ratio: 1.0 / candidate.size,
        seconds: candidate.workloads.iter().map(|work| work.seconds).collect(),
        pareto,
    };
    let pick = |goal: Goal| {
        let Choice { index, reason, .. } = choose(&candidates, goal, busy)?;
        let Candidate { compression, recordsize, .. } = candidates[index].clone();
        Some(TablePick { goal, compression, recordsize, why: reason.to_string() })
    };
    let authors = table.get("conclusion").and_then(Value::as_table).into_iter().flatten();
    let list = |value: &Value| {
        names(Some(value)).unwrap_or_else(|| value.as_str().map(str::to_owned).into_iter().collect())
    };
    (!candidates.is_empty()).then(|| TableAdvice {
        name: name.to_owned(),
        variant: cores.map(|cores| format!("{cores} cores")),
        picks: Goal::ALL.into_iter().filter_map(pick).collect(),
        rows: candidates.iter().zip(pareto).map(row).collect(),
        authors: authors.map(|(what, value)| (what.clone(), list(value))).collect(),
    })
}

fn is_cycle(work: &str) -> bool {
    matches!(work, "write" | "read")
}

/// Bytes per second that one core compresses, roughly, from docs/performance.md. Only the order of magnitude matters
/// here. Compression on a card uses no core.
fn codec_rate(setting: &str) -> f64 {
    let level = |prefix: &str, usual: f64| match setting.strip_prefix(prefix) {
        Some(rest) => {
            rest.trim_start_matches('-').split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(usual)
        }
        None => usual,
    };
    match setting {
        "off" => f64::INFINITY,
        card if card.ends_with("with QAT") => f64::INFINITY,
        "lz4" | "on" => 650e6,
        "lzjb" => 400e6,
        "zle" => 6000e6,
        fast if fast.starts_with("zstd-fast") => 600e6,
        zstd if zstd.starts_with("zstd") => match level("zstd", 3.0) {
            n if n <= 2.0 => 500e6,
            n if n <= 4.0 => 380e6,
            n if n <= 9.0 => 65e6,
            _ => 10e6,
        },
        gzip if gzip.starts_with("gzip") => match level("gzip", 6.0) {
            n if n <= 3.0 => 170e6,
            n if n <= 6.0 => 96e6,
            _ => 28e6,
        },
        _ => 100e6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PUBLISHED: &str = include_str!("../../../../experiments/published.toml");

    fn advice(name: &str, variant: Option<&str>, busy: f64) -> TableAdvice {
        let all = from_tables(PUBLISHED, TABLE_CORES, busy * f64::from(TABLE_CORES)).unwrap();
        all.into_iter().find(|one| one.name == name && one.variant.as_deref() == variant).unwrap()
    }

    fn pick(advice: &TableAdvice, goal: Goal) -> &TablePick {
        advice.picks.iter().find(|pick| pick.goal == goal).unwrap()
    }

    #[test]
    fn s0_lz4_in_general_and_gzip_for_backups() {
        let s0 = advice("S0", None, 0.0);
        assert_eq!(pick(&s0, Goal::Balanced).compression, "lz4");
        assert!(["gzip-6", "gzip-9"].contains(&pick(&s0, Goal::Archive).compression.as_str()));
        assert!(s0.authors.contains(&("general".to_owned(), vec!["lz4".to_owned()])));
        // Both data sets count: 29.57 GiB as they are.
        let lz4 = s0.rows.iter().find(|row| row.compression == "lz4").unwrap();
        assert!((lz4.ratio - 29.57 / 20.56).abs() < 0.02, "{}", lz4.ratio);
        assert_eq!(lz4.seconds.len(), 4);
    }

    #[test]
    fn s1_zstd_1_with_records_of_512k() {
        let s1 = advice("S1", None, 0.0);
        let chosen = pick(&s1, Goal::Balanced);
        assert_eq!((chosen.compression.as_str(), chosen.recordsize), ("zstd-1", Some(512 << 10)));
        assert_eq!(s1.rows.len(), 7, "{:?}", s1.rows);
    }

    #[test]
    fn s2_lz4_for_speed_zstd_for_both_gzip_for_archives() {
        let s2 = advice("S2", None, 0.0);
        assert_eq!(pick(&s2, Goal::Speed).compression, "lz4");
        assert_eq!(pick(&s2, Goal::Balanced).compression, "zstd");
        assert_eq!(pick(&s2, Goal::Archive).compression, "gzip");
    }

    #[test]
    fn s3_gzip_with_processor_to_spare_and_lz4_without() {
        assert_eq!(pick(&advice("S3", None, 0.0), Goal::Balanced).compression, "gzip");
        assert_eq!(pick(&advice("S3", None, 1.0), Goal::Balanced).compression, "lz4");
    }

    #[test]
    fn s4_lz4_in_general_on_4_and_32_cores_and_gzip_for_backups() {
        for variant in ["4 cores", "32 cores"] {
            let s4 = advice("S4", Some(variant), 0.0);
            assert_eq!(pick(&s4, Goal::Balanced).compression, "lz4", "{variant}");
            assert_eq!(pick(&s4, Goal::Archive).compression, "gzip without QAT", "{variant}");
        }
    }

    #[test]
    fn a_busy_machine_moves_towards_lz4_and_off() {
        let rank = |busy: f64| {
            let s0 = advice("S0", None, busy);
            pick(&s0, Goal::Balanced).compression.clone()
        };
        assert_eq!(rank(1.0), "lz4");
        let codec = |name: &str| 1.0 / codec_rate(name);
        assert!(codec("off") < codec("lz4") && codec("lz4") < codec("zstd") && codec("zstd") < codec("gzip"));
    }

    #[test]
    fn a_table_that_cannot_be_used_says_why() {
        for (text, what) in [
            ("x", "key"),
            ("a = 1", "no table with 'settings'"),
            ("settings = [\"off\"]", "no times"),
            ("settings = [\"off\", \"lz4\"]\nseconds = [1]", "1 figures for 2 settings"),
            ("settings = [\"off\"]\nseconds = [0]\ncompressratio = [1.0]", "not above 0"),
            ("settings = [\"off\"]\nseconds = [1]\ncompressratio = [nan]", "not above 0"),
            ("settings = 3", "no list of names"),
        ] {
            let error = from_tables(text, 1, 0.0).unwrap_err().to_string();
            assert!(error.contains(what) && !error.contains('\n'), "{text}: {error}");
        }
    }

    #[test]
    fn a_table_of_the_user_is_accepted() {
        let text = "settings = [\"off\", \"lz4\"]\nwrite_mb_s = [100, 180]\ncompressratio = [1.0, 2.0]";
        let all = from_tables(text, 1, 0.0).unwrap();
        assert_eq!(pick(&all[0], Goal::Balanced).compression, "lz4");
    }
}
