//! A file with the finished runs, so that an interrupted measurement can continue.
//!
//! From:   finished runs, one a line (JSON), behind a first line that says what they are about.
//! To:     the same plan on the same source later.
//!
//! A line that a crash cut off is measured again.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Configuration, Error, Plan, Result, Run, SCHEMA, Source};

/// The first line.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    cenote_bench: u32,
    version: String,
    source_files: u64,
    source_bytes: u64,
    /// Of names, sizes and times of all files: the same number of bytes may be others.
    #[serde(default)]
    source: String,
    repeat: u32,
    place: String,
    steps: Vec<String>,
    dirty_max: Option<u64>,
    device: (Option<u64>, Option<u64>),
    #[serde(default)]
    network: Option<u64>,
}

/// A line for each run.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    configuration: String,
    run: Run,
}

#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    lines: Vec<Line>,
}

impl Journal {
    /// Opens the journal of this plan on this source, or begins it.
    ///
    /// # Errors
    /// [`Error::Journal`]: it is another file, or that of another plan.
    pub(crate) fn open(path: &Path, plan: &Plan, source: &Source) -> Result<Journal> {
        let wrong = |reason: String| Error::Journal { path: path.to_owned(), reason };
        let broken = |error: io::Error| wrong(error.to_string());
        let head = Head {
            cenote_bench: SCHEMA,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            source_files: source.file_count() as u64,
            source_bytes: source.bytes(),
            source: source.fingerprint(),
            repeat: plan.repeat,
            place: plan.place.backing(),
            steps: plan
                .application
                .iter()
                .flat_map(|a| a.steps.iter().map(|step| step.command.clone()))
                .collect(),
            dirty_max: plan.dirty_max,
            device: (plan.device.write_bytes, plan.device.read_bytes),
            network: plan.network,
        };
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = file.map_err(broken)?;
        let mut lines = Vec::new();
        let (mut good_bytes, mut first) = (0, true);
        for line in BufReader::new(&file).split(b'\n') {
            let line = line.map_err(broken)?;
            if first {
                let found: Head = serde_json::from_slice(&line)
                    .map_err(|_| wrong("it is not the journal of a measurement".to_owned()))?;
                if found != head {
                    return Err(wrong(
                        "it is of another measurement: other files, place or options".to_owned(),
                    ));
                }
            } else {
                match serde_json::from_slice::<Line>(&line) {
                    Ok(line) => lines.push(line),
                    Err(_) => break,
                }
            }
            first = false;
            good_bytes += line.len() as u64 + 1;
        }
        let end = good_bytes.min(file.metadata().map_err(broken)?.len());
        file.set_len(end).map_err(broken)?;
        file.seek(SeekFrom::Start(end)).map_err(broken)?;
        let mut journal = Journal { path: path.to_owned(), file, lines };
        if first {
            journal.append(&serde_json::to_string(&head).expect("records of numbers and text are JSON"))?;
        } else if end < good_bytes {
            journal.append("")?;
        }
        Ok(journal)
    }

    /// The run of a configuration, if it was measured.
    pub(crate) fn has(&self, configuration: &Configuration) -> Option<Run> {
        let name = name(configuration);
        self.lines.iter().find(|line| line.configuration == name).map(|line| line.run.clone())
    }

    /// Keeps a run.
    ///
    /// # Errors
    /// [`Error::Journal`].
    pub(crate) fn add(&mut self, configuration: &Configuration, run: &Run) -> Result<()> {
        let line = Line { configuration: name(configuration), run: run.clone() };
        self.append(&serde_json::to_string(&line).expect("records of numbers and text are JSON"))
    }

    fn append(&mut self, line: &str) -> Result<()> {
        let written =
            self.file.write_all(format!("{line}\n").as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|error| Error::Journal { path: self.path.clone(), reason: error.to_string() })
    }
}

/// All of a configuration as text: words for people round its bytes.
fn name(configuration: &Configuration) -> String {
    format!("{configuration:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_with_equal_labels_are_distinguished_in_the_journal() {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::of_memory(vec![("a".to_owned(), vec![1; 100])]);
        let plan = Plan { totals: vec![1499 << 20, 1500 << 20], ..Plan::usual() };
        let all = plan.configurations().unwrap();
        let (one, other) = (&all[0], all.iter().find(|c| c.total_bytes != all[0].total_bytes).unwrap());
        assert_eq!((&one.compression, one.to_string()), (&other.compression, other.to_string()));
        let path = dir.path().join("journal");
        let mut journal = Journal::open(&path, &plan, &source).unwrap();
        journal.add(one, &Run { write_seconds: 7.0, ..Run::default() }).unwrap();
        let again = Journal::open(&path, &plan, &source).unwrap();
        assert_eq!(again.has(one).map(|run| run.write_seconds), Some(7.0));
        assert!(again.has(other).is_none());
    }
}
