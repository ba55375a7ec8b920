//! The plan of a measurement: configurations and the place of their datasets.

use std::path::PathBuf;

use pool::props::{self, Property, Value, names::GZIP_ENGINE};
use pool::{Found, Options};
use storage::GzipEngine;

use crate::configuration::{Configuration, NO_POOL, THREADS_MAX, cores};
use crate::{About, Application, Error, Grid, Result};

/// The compressions that are measured unless the user says otherwise.
pub const DEFAULT_COMPRESSIONS: [&str; 11] =
    ["off", "lz4", "zstd-fast-1", "zstd-1", "zstd-3", "zstd-9", "gzip-1", "gzip-6", "gzip-9", "lzjb", "zle"];

pub(crate) const DEFAULT_RECORDSIZE: u64 = 128 << 10;

/// Bytes a second of the slowest device and network: less is more likely a rate in other units.
const LEAST_RATE: u64 = 1_000_000;

/// Where the datasets go.
#[derive(Clone, Debug)]
pub enum Place {
    /// Pools in temporary files of this folder, one for each measurement.
    Folder(PathBuf),
    /// Temporary datasets in a pool that exists.
    Pool {
        /// The pool as it was found.
        found: Box<Found>,
        /// Its name.
        name: String,
    },
}

/// The rates of a device, in bytes a second; `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Writing.
    pub write_bytes: Option<u64>,
    /// Reading.
    pub read_bytes: Option<u64>,
}

/// The plan of a measurement. All compressions are measured with each record size, each number of threads and each
/// total.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The question, and how it is asked.
    pub about: About,
    /// Values of the property `compression`, those of gzip perhaps with an engine ([`Configuration::compression`]).
    pub compressions: Vec<String>,
    /// Bytes of a record.
    pub recordsizes: Vec<u64>,
    /// Numbers of threads.
    pub threads: Vec<u32>,
    /// Compressions and record sizes that are measured together, instead of all with all; empty: all with all.
    pub pairs: Vec<(String, u64)>,
    /// Bytes to write, of the source or of several copies of it; empty: the source once.
    pub totals: Vec<u64>,
    /// Folders of other file systems, in which the same work is measured.
    pub against: Vec<PathBuf>,
    /// Bytes of changes that the pool gathers at most (`zfs_dirty_data_max`).
    pub dirty_max: Option<u64>,
    /// The device whose rates the temporary pool is held to.
    pub device: Device,
    /// The files come and go over a network that brings so many bytes a second; `None`: as fast as memory.
    pub network: Option<u64>,
    /// Compress the files as whole streams too.
    pub streams: bool,
    /// The program to run on the mounted dataset.
    pub application: Option<Application>,
    /// A file that keeps the measured runs, and from which an interrupted measurement continues.
    pub journal: Option<PathBuf>,
    /// Published figures to compare with.
    pub published: Vec<Grid>,
    /// Measurements of each, at least 1.
    pub repeat: u32,
    /// Where the datasets go.
    pub place: Place,
    /// Bytes of memory that the source may take, to be read only once; half of what is free if `None`.
    pub memory_bytes: Option<u64>,
}

impl Plan {
    /// The usual compressions, 128 KiB records, all cores, once, in the folder for temporary files.
    #[must_use]
    pub fn usual() -> Plan {
        Plan {
            compressions: DEFAULT_COMPRESSIONS.map(str::to_owned).to_vec(),
            recordsizes: vec![DEFAULT_RECORDSIZE],
            threads: vec![cores()],
            about: About::default(),
            pairs: Vec::new(),
            totals: Vec::new(),
            against: Vec::new(),
            dirty_max: None,
            device: Device::default(),
            network: None,
            streams: false,
            application: None,
            journal: None,
            published: Vec::new(),
            repeat: 1,
            place: Place::Folder(std::env::temp_dir()),
            memory_bytes: None,
        }
    }

    /// The configurations in the order of the result. A configuration that was named twice is measured once.
    ///
    /// # Errors
    /// [`Error::Setting`] for a value that ZFS does not know; [`Error::Engine`]; [`Error::EmptyList`]; [`Error::TooLittle`],
    /// [`Error::TooSlow`], [`Error::TooManyThreads`]; [`Error::NotHeld`].
    pub fn configurations(&self) -> Result<Vec<Configuration>> {
        self.check_amounts()?;
        self.check_device()?;
        let threads = distinct(&self.threads, "number of threads")?;
        match threads.iter().find(|count| !(1..=THREADS_MAX).contains(*count)) {
            Some(0) => return Err(Error::EmptyList("thread")),
            Some(&threads) => return Err(Error::TooManyThreads { threads }),
            None => {}
        }
        let pairs = match distinct(&self.pairs, "pair") {
            Ok(pairs) => pairs,
            Err(_) => {
                let compressions = distinct(&self.compressions, "compression")?;
                let sizes = distinct(&self.recordsizes, "record size")?;
                let of = |size: u64| compressions.iter().map(move |compression| (compression.clone(), size));
                sizes.into_iter().flat_map(of).collect()
            }
        };
        for (compression, bytes) in &pairs {
            setting(compression)?;
            property("recordsize").check_block_size(*bytes, props::BLOCK_MAX).map_err(|source| {
                Error::Setting { property: "recordsize", value: props::number::nice(*bytes), source }
            })?;
        }
        let totals = match distinct(&self.totals, "total") {
            Ok(totals) => totals.into_iter().map(Some).collect(),
            Err(_) => vec![None],
        };
        if totals.contains(&Some(0)) {
            return Err(Error::EmptyList("byte to write"));
        }
        let mut all = Vec::new();
        for &threads in &threads {
            for &total_bytes in &totals {
                all.extend(pairs.iter().map(|(compression, recordsize)| Configuration {
                    compression: compression.clone(),
                    recordsize: *recordsize,
                    threads,
                    total_bytes,
                    against: None,
                }));
                all.extend(self.against.iter().map(|folder| Configuration {
                    compression: NO_POOL.to_owned(),
                    recordsize: DEFAULT_RECORDSIZE,
                    threads,
                    total_bytes,
                    against: Some(folder.clone()),
                }));
            }
        }
        Ok(all)
    }

    /// Whether the pool, the device and the network can do anything at all.
    fn check_amounts(&self) -> Result<()> {
        let least_dirty = pool::tune::find("zfs_dirty_data_max").expect("the table of tunables has it").min;
        if let Some(value) = self.dirty_max.filter(|value| *value < least_dirty) {
            return Err(Error::TooLittle { what: "a dirty limit", value, least: least_dirty });
        }
        let rates = [
            ("a disk that writes", self.device.write_bytes),
            ("a disk that reads", self.device.read_bytes),
            ("a network that brings", self.network),
        ];
        for (what, rate) in rates {
            if let Some(rate) = rate.filter(|rate| *rate < LEAST_RATE) {
                return Err(Error::TooSlow { what, rate, least: LEAST_RATE });
            }
        }
        let steps = self.application.iter().flat_map(|application| &application.steps);
        match steps.clone().any(|step| step.command.is_empty()) {
            true => Err(Error::EmptyList("command for a step")),
            false => Ok(()),
        }
    }

    /// Whether everything can be held to the rates of the device. Figures with the limit and figures without it cannot
    /// be compared.
    fn check_device(&self) -> Result<()> {
        match (&self.place, self.against.first()) {
            _ if self.device == Device::default() => Ok(()),
            (Place::Pool { name, .. }, _) => Err(Error::NotHeld(format!("the pool '{name}'"))),
            (_, Some(folder)) => Err(Error::NotHeld(format!("'{}'", folder.display()))),
            _ => Ok(()),
        }
    }

    /// How pools are opened.
    pub(crate) fn options(&self) -> Options {
        let usual = Options::default();
        Options { dirty_max: self.dirty_max.unwrap_or(usual.dirty_max), ..usual }
    }
}

fn distinct<T: Clone + PartialEq>(values: &[T], what: &'static str) -> Result<Vec<T>> {
    let mut kept: Vec<T> = Vec::new();
    for value in values {
        if !kept.contains(value) {
            kept.push(value.clone());
        }
    }
    if kept.is_empty() { Err(Error::EmptyList(what)) } else { Ok(kept) }
}

/// A property by its name.
pub(crate) fn property(name: &str) -> &'static Property {
    props::dataset::parse(name).expect("the property table has it")
}

/// The stored value of a compression by its word.
pub(crate) fn compression_value(word: &str) -> Result<Value> {
    property("compression").parse_value(word).map_err(|source| Error::Setting {
        property: "compression",
        value: word.to_owned(),
        source,
    })
}

/// The properties with which a dataset is made, by name and value, for a compression as [`Configuration`] has it.
pub(crate) fn setting(word: &str) -> Result<Vec<(String, Value)>> {
    let Some((compression, engine)) = word.split_once('@') else {
        return Ok(vec![("compression".to_owned(), compression_value(word)?)]);
    };
    let value = compression_value(compression)?;
    let wrong = |reason: String| Error::Engine { word: word.to_owned(), reason };
    if !compression.starts_with("gzip") {
        return Err(wrong("only gzip has engines".to_owned()));
    }
    match GzipEngine::named(engine) {
        None => Err(wrong(format!("there is no engine '{engine}' ({})", GzipEngine::WORDS.join(", ")))),
        Some(GzipEngine::By(engine)) if !engine.is_here() => {
            Err(wrong(format!("{} is not in this build", engine.name())))
        }
        Some(_) => Ok(vec![
            ("compression".to_owned(), value),
            (GZIP_ENGINE.to_owned(), Value::Text(engine.to_owned())),
        ]),
    }
}

/// The same as arguments of `zfs set`.
pub(crate) fn setting_words(word: &str) -> String {
    match word.split_once('@') {
        None => format!("compression={word}"),
        Some((compression, engine)) => format!("compression={compression} {GZIP_ENGINE}={engine}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_usual_compressions_are_values_of_the_property() {
        let all = Plan::usual().configurations().unwrap();
        assert_eq!(all.len(), DEFAULT_COMPRESSIONS.len());
        assert!(all.iter().all(|c| c.recordsize == 131_072 && c.threads >= 1));
    }

    #[test]
    fn gzip_may_name_its_engine() {
        let word = |word: &str| Plan { compressions: vec![word.to_owned()], ..Plan::usual() };
        assert_eq!(word("gzip-1@libdeflate").configurations().unwrap()[0].compression, "gzip-1@libdeflate");
        assert_eq!(setting("gzip@auto").unwrap().len(), 2);
        assert_eq!(setting_words("gzip@isal"), "compression=gzip org.cenote:gzip_engine=isal");
        for (bad, why) in [
            ("lz4@isal", "only gzip"),
            ("gzip@qat", "no engine 'qat'"),
            ("gzip-10@isal", "compression=gzip-10: "),
        ] {
            let said = word(bad).configurations().unwrap_err().to_string();
            assert!(said.starts_with("cannot measure compression=") && said.contains(why), "{said}");
        }
    }

    #[test]
    fn duplicate_configurations_are_measured_once() {
        let plan = Plan {
            compressions: ["off", "lz4", "off"].map(str::to_owned).to_vec(),
            recordsizes: vec![4096, 1 << 20],
            threads: vec![1, 2, 1],
            ..Plan::usual()
        };
        assert_eq!(plan.configurations().unwrap().len(), 2 * 2 * 2);
    }

    #[test]
    fn values_that_zfs_does_not_know_are_refused_before_anything_is_done() {
        let with = |compression: &str, recordsize| Plan {
            compressions: vec![compression.to_owned()],
            recordsizes: vec![recordsize],
            ..Plan::usual()
        };
        for bad in [
            with("gzip-10", 4096),
            with("", 4096),
            with("lz4", 5000),
            with("lz4", 256),
            with("lz4", 32 << 20),
        ] {
            assert!(matches!(bad.configurations(), Err(Error::Setting { .. })), "{bad:?}");
        }
        let little = Plan { dirty_max: Some(0), ..Plan::usual() };
        assert!(matches!(little.configurations(), Err(Error::TooLittle { .. })));
        for bad in [
            Plan { network: Some(110), ..Plan::usual() },
            Plan { device: Device { write_bytes: Some(0), read_bytes: None }, ..Plan::usual() },
        ] {
            assert!(matches!(bad.configurations(), Err(Error::TooSlow { .. })), "{bad:?}");
        }
        let many = Plan { threads: vec![2, 4097], ..Plan::usual() };
        assert!(matches!(many.configurations(), Err(Error::TooManyThreads { threads: 4097 })));
        let device = Device { write_bytes: Some(200_000_000), read_bytes: None };
        let beside = Plan { device, against: vec!["/mnt".into()], ..Plan::usual() };
        assert!(matches!(beside.configurations(), Err(Error::NotHeld(what)) if what == "'/mnt'"));
        let none = Plan { threads: vec![], ..Plan::usual() };
        assert!(matches!(none.configurations(), Err(Error::EmptyList(_))));
    }
}
