//! A measurement as a file: what to measure, on which data, and with which published figures to compare.
//!
//! From:   TOML (docs/manual/bench.md lists the keys).
//! To:     a [`Plan`] and a [`Source`], once a caller has had their say.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use pool::props::number::nice_bytes;
use pool::props::size::parse_size;
use serde::Deserialize;

use crate::application::Step;
use crate::published::{Published, one_line};
use crate::rate::parse_rate;
use crate::{Device, Grid, Plan};

/// Maximal bytes of an experiment file; real ones are far shorter.
const BYTES_MAX: u64 = 16 << 20;

/// The text of a file of at most `max` bytes.
///
/// # Errors
/// It is longer, as a device may be that never ends; it is no text; the system's reason.
pub fn read_text(path: &Path, max: u64) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(max.saturating_add(1)).read_to_string(&mut text)?;
    if text.len() as u64 > max {
        let reason = format!("it is longer than {}", nice_bytes(max));
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    Ok(text)
}

/// Keys of the file. Sizes and rates are text such as `128K`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Keys {
    question: String,
    data: Vec<String>,
    compression: Vec<String>,
    recordsize: Vec<String>,
    pairs: Vec<(String, String)>,
    threads: Vec<u32>,
    totals: Vec<String>,
    repeat: Option<u32>,
    dirty_max: Option<String>,
    disk_write: Option<String>,
    disk_read: Option<String>,
    network: Option<String>,
    against: Vec<PathBuf>,
    streams: bool,
    steps: Vec<String>,
    published: Option<String>,
    show: Vec<String>,
}

/// An experiment.
#[derive(Clone, Debug, Default)]
pub struct Experiment {
    /// The question of the experiment.
    pub question: String,
    /// The data to measure with unless the user names files: `sample`, `KIND:SIZE`.
    pub data: Vec<String>,
    /// Steps of an application.
    pub steps: Vec<Step>,
    /// Published figures to compare with.
    pub published: Vec<Grid>,
    /// Values for the fields of [`Plan`] with the same names; an empty value leaves the field as it is.
    pub compressions: Vec<String>,
    /// Bytes.
    pub recordsizes: Vec<u64>,
    /// Compressions and bytes.
    pub pairs: Vec<(String, u64)>,
    /// Numbers of threads.
    pub threads: Vec<u32>,
    /// Bytes.
    pub totals: Vec<u64>,
    /// How often each.
    pub repeat: Option<u32>,
    /// Bytes.
    pub dirty_max: Option<u64>,
    /// The rates to which the disk is held.
    pub device: Device,
    /// Bytes per second.
    pub network: Option<u64>,
    /// Folders of other file systems.
    pub against: Vec<PathBuf>,
    /// Whole streams, too.
    pub streams: bool,
}

impl Experiment {
    /// Reads the experiment at `path`; what it shows of published figures it finds beside itself.
    ///
    /// # Errors
    /// One line that says what is wrong.
    pub fn read(path: &Path) -> Result<Experiment, String> {
        let named = |path: &Path, error: String| format!("'{}': {error}", path.display());
        let read = |path: &Path| read_text(path, BYTES_MAX).map_err(|error| named(path, error.to_string()));
        let text = read(path)?;
        let keys: Keys = toml::from_str(&text).map_err(|error| named(path, one_line(&error)))?;
        let mut experiment = Experiment::of(&keys).map_err(|error| named(path, error))?;
        if let Some(place) = &keys.published {
            let (file, key) = place.split_once('#').unwrap_or((place, ""));
            let file: PathBuf = path.parent().unwrap_or(Path::new("")).join(file);
            let text = read(&file)?;
            let all = Published::parse(&text).map_err(|error| named(&file, error))?;
            let found = all.into_iter().find(|published| published.key == key);
            let found = found.ok_or_else(|| named(&file, format!("there is no '{key}' in it")))?;
            let wanted = |grid: &Grid| {
                let is =
                    |name: &String| grid.title == *name || grid.title == format!("{}: {name}", found.title);
                keys.show.is_empty() || keys.show.iter().any(is)
            };
            experiment.published = found.grids.into_iter().filter(wanted).collect();
            if experiment.published.is_empty() {
                return Err(named(path, format!("'{key}' has no table {}", keys.show.join(", "))));
            }
        }
        Ok(experiment)
    }

    fn of(keys: &Keys) -> Result<Experiment, String> {
        let size = |text: &String| parse_size(text).map_err(|error| format!("'{text}': {error}"));
        let rate = |text: &Option<String>| match text {
            Some(text) => parse_rate(text).map(Some).map_err(|error| format!("'{text}': {error}")),
            None => Ok(None),
        };
        let sizes = |list: &[String]| list.iter().map(size).collect::<Result<Vec<u64>, _>>();
        let pair = |(compression, bytes): &(String, String)| Ok((compression.clone(), size(bytes)?));
        if keys.threads.contains(&0) || keys.repeat == Some(0) {
            return Err("threads and repeat are at least 1".to_owned());
        }
        Ok(Experiment {
            question: keys.question.clone(),
            data: keys.data.clone(),
            steps: keys.steps.iter().map(|text| Step::parse(text)).collect(),
            published: Vec::new(),
            compressions: keys.compression.clone(),
            recordsizes: sizes(&keys.recordsize)?,
            pairs: keys.pairs.iter().map(pair).collect::<Result<_, String>>()?,
            threads: keys.threads.clone(),
            totals: sizes(&keys.totals)?,
            repeat: keys.repeat,
            dirty_max: keys.dirty_max.as_ref().map(size).transpose()?,
            device: Device { write_bytes: rate(&keys.disk_write)?, read_bytes: rate(&keys.disk_read)? },
            network: rate(&keys.network)?,
            against: keys.against.clone(),
            streams: keys.streams,
        })
    }

    /// Puts the settings of the experiment into `plan`.
    pub fn apply(&self, plan: &mut Plan) {
        fn put<T: Clone>(into: &mut Vec<T>, list: &[T]) {
            if !list.is_empty() {
                *into = list.to_vec();
            }
        }
        put(&mut plan.compressions, &self.compressions);
        put(&mut plan.recordsizes, &self.recordsizes);
        put(&mut plan.pairs, &self.pairs);
        put(&mut plan.threads, &self.threads);
        put(&mut plan.totals, &self.totals);
        plan.repeat = self.repeat.unwrap_or(plan.repeat);
        plan.dirty_max = self.dirty_max.or(plan.dirty_max);
        put(&mut plan.against, &self.against);
        plan.device.write_bytes = self.device.write_bytes.or(plan.device.write_bytes);
        plan.device.read_bytes = self.device.read_bytes.or(plan.device.read_bytes);
        plan.network = self.network.or(plan.network);
        plan.streams |= self.streams;
        put(&mut plan.published, &self.published);
        if !self.question.is_empty() {
            plan.about.question.clone_from(&self.question);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Experiment, String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("p.toml"), "[S9]\nsettings = ['off']\nseconds = [3]\n").unwrap();
        std::fs::write(dir.path().join("e.toml"), text).unwrap();
        Experiment::read(&dir.path().join("e.toml"))
    }

    #[test]
    fn an_experiment_says_what_to_measure() {
        let text = "question = 'Which?'\npairs = [['zstd-1', '1M'], ['lz4', '128K']]\nrepeat = 3\ndirty_max = '64M'\n\
                    network = '110M'\nagainst = ['/mnt']\n\
                    steps = ['index: bwa index {dir}/ref']\npublished = 'p.toml#S9'\n";
        let experiment = read(text).unwrap();
        let mut plan = Plan::usual();
        experiment.apply(&mut plan);
        assert_eq!(plan.configurations().unwrap().len(), 3);
        assert_eq!((plan.network, &plan.against[..]), (Some(110_000_000), &[PathBuf::from("/mnt")][..]));
        assert_eq!((plan.repeat, plan.dirty_max), (3, Some(64 << 20)));
        assert_eq!((experiment.steps[0].name.as_str(), plan.published.len()), ("index", 1));
    }

    #[test]
    fn errors_are_one_line_with_the_file() {
        for (text, word) in [
            ("colour = 'red'", "colour"),
            ("recordsize = ['1Q']", "1Q"),
            ("disk_write = '1Q'", "1Q"),
            ("repeat = 0", "at least 1"),
            ("repeat = ", "e.toml"),
            ("published = 'p.toml#S8'", "S8"),
            ("published = 'none.toml#S8'", "none.toml"),
            ("published = 'p.toml#S9'\nshow = ['x']", "no table"),
        ] {
            let said = read(text).unwrap_err();
            assert!(said.contains(word) && !said.contains('\n'), "{text}: {said}");
        }
    }

    #[test]
    fn rates_are_what_is_printed_on_disks() {
        let mut plan = Plan::usual();
        read("disk_write = '200M'\ndisk_read = '1.5G'").unwrap().apply(&mut plan);
        assert_eq!(plan.device, Device { write_bytes: Some(200_000_000), read_bytes: Some(1_500_000_000) });
    }

    #[test]
    fn a_file_that_never_ends_is_too_long() {
        let error = read_text(Path::new("/dev/zero"), 1 << 20).unwrap_err().to_string();
        assert_eq!(error, "it is longer than 1M");
        assert!(Experiment::read(Path::new("/dev/zero")).unwrap_err().contains("longer than 16M"));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "12345").unwrap();
        assert_eq!(read_text(file.path(), 5).unwrap(), "12345");
        assert!(read_text(file.path(), 4).is_err());
    }

    #[test]
    fn all_experiments_that_come_with_cenote_can_be_read() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../experiments"));
        let mut count = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ext| ext == "toml") && !path.ends_with("published.toml") {
                let experiment = Experiment::read(&path).unwrap();
                let mut plan = Plan::usual();
                experiment.apply(&mut plan);
                assert!(!plan.configurations().unwrap().is_empty(), "{}", path.display());
                assert!(!experiment.question.is_empty() && !experiment.published.is_empty());
                count += 1;
            }
        }
        assert!(count >= 5, "{count}");
    }
}
