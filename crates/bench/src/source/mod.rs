//! The data to measure with: files and folders, the sample, or data made on the spot.
//!
//! From:   paths of the user, or names of data.
//! To:     trials, record by record: from memory where it fits, so that only the pool is measured, else from the
//!         files each time.
//!
//! Holes stay holes. Symbolic links hold no data and are left out; of a file with several names in the source the
//! first one counts. A file that is not the same at each reading ends the measurement.

mod contents;
mod made;
mod scan;

use codec::Salt;
use format::ChecksumKind;

pub(crate) use self::contents::{Contents, data_segments, open, unreadable};
use crate::{Error, Event, Result, Watch};

/// Metadata of a file or folder in a pool, generously.
const ENTRY_METADATA: u64 = 3 << 10;
/// More are not copied to fill a total.
const COPIED_ENTRIES_MAX: u64 = 1_000_000;

/// Files and folders to measure with.
#[derive(Debug)]
pub struct Source {
    entries: Vec<Entry>,
    bytes: u64,
    in_memory: bool,
    notes: Vec<String>,
}

/// A file or folder; parents stand before their children.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The folder it is in, by its place in the list; `None` at the top.
    pub(crate) parent: Option<usize>,
    /// Its name in the measured dataset.
    pub(crate) name: Vec<u8>,
    /// `None` for a folder.
    pub(crate) contents: Option<Contents>,
}

impl Source {
    /// The sample that comes with cenote, in memory.
    ///
    /// # Errors
    /// [`Error::NoSample`] where it did not come along.
    pub fn sample() -> Result<Source> {
        Source::named(&["sample".to_owned()])
    }

    /// Files that are in memory.
    pub(crate) fn of_memory(files: Vec<(String, Vec<u8>)>) -> Source {
        let mut source = Source { in_memory: true, ..Source::empty() };
        for (name, data) in files {
            source.add(&name, data);
        }
        source
    }

    /// A file in memory.
    fn add(&mut self, name: &str, data: Vec<u8>) {
        self.bytes += data.len() as u64;
        let contents = Some(Contents::of_memory(name, data));
        self.entries.push(Entry { parent: None, name: name.into(), contents });
    }

    fn empty() -> Source {
        Source { entries: Vec::new(), bytes: 0, in_memory: false, notes: Vec::new() }
    }

    /// The same data; bytes in memory are shared.
    pub(crate) fn view(&self) -> Source {
        Source {
            entries: self.entries.clone(),
            bytes: self.bytes,
            in_memory: self.in_memory,
            notes: Vec::new(),
        }
    }

    /// `total` bytes of data: the first of the source, or as many copies of it as it takes, each in a folder of its
    /// own. There is no file behind the last of those bytes. Data in memory is shared.
    ///
    /// # Errors
    /// [`Error::TooSmall`] if there would be more than a million files.
    pub(crate) fn sized(&self, total: u64) -> Result<Source> {
        let mut sized = Source { in_memory: self.in_memory, ..Source::empty() };
        let copies = total / self.bytes.max(1);
        if copies.saturating_mul(self.entries.len() as u64) > COPIED_ENTRIES_MAX {
            return Err(Error::TooSmall { bytes: self.bytes, total });
        }
        for copy in 0.. {
            if sized.bytes >= total {
                break;
            }
            let first = sized.entries.len();
            if copy > 0 {
                let name = format!("copy-{}", copy + 1).into_bytes();
                sized.entries.push(Entry { parent: None, name, contents: None });
            }
            let (top, base) = ((copy > 0).then_some(first), sized.entries.len());
            for entry in &self.entries {
                let left = total - sized.bytes;
                if left == 0 {
                    break;
                }
                let contents = entry.contents.as_ref().map(|contents| contents.first(left));
                let parent = entry.parent.map_or(top, |parent| Some(base + parent));
                sized.bytes += contents.as_ref().map_or(0, Contents::data_bytes);
                sized.entries.push(Entry { parent, name: entry.name.clone(), contents });
            }
        }
        Ok(sized)
    }

    /// Bytes of data, holes left out.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Regular files.
    #[must_use]
    pub fn file_count(&self) -> usize {
        self.entries.iter().filter(|entry| entry.contents.is_some()).count()
    }

    /// All data is in memory.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        self.in_memory
    }

    /// Notes about files that were left out.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Tells this source from others, as far as names, sizes and times of files do: not their contents.
    pub(crate) fn fingerprint(&self) -> String {
        let mut text = Vec::new();
        for entry in &self.entries {
            text.extend_from_slice(&entry.name);
            let about = entry.contents.as_ref().map(Contents::identity);
            text.extend(format!("\0{:?} {about:?}\0", entry.parent).into_bytes());
        }
        let sum = codec::checksum(ChecksumKind::Sha256, &text, &Salt::new([0; 32]));
        sum.0.iter().map(|word| format!("{word:016x}")).collect()
    }

    /// Bytes that a pool may need for all of it in records of `recordsize`, uncompressed.
    #[must_use]
    pub(crate) fn footprint(&self, recordsize: u64) -> u64 {
        let contents = self.entries.iter().filter_map(|entry| entry.contents.as_ref());
        let data = contents.fold(0u64, |sum, file| sum.saturating_add(file.footprint(recordsize)));
        data.saturating_add(self.entries.len() as u64 * ENTRY_METADATA)
    }

    /// Reads everything into memory if it takes at most `budget` bytes.
    ///
    /// # Errors
    /// [`Error::Unreadable`], [`Error::Changed`], [`Error::Interrupted`].
    pub fn load(&mut self, budget: u64, watch: &dyn Watch) -> Result<()> {
        if self.in_memory || self.bytes > budget {
            return Ok(());
        }
        let (total, mut done) = (self.bytes, 0);
        for contents in self.entries.iter_mut().filter_map(|entry| entry.contents.as_mut()) {
            contents.load(|bytes| {
                if watch.stopped() {
                    return Err(Error::Interrupted);
                }
                done += bytes;
                watch.event(Event::Loading { bytes: done, total });
                Ok(())
            })?;
        }
        self.in_memory = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_has_no_files_behind_its_last_byte() {
        let files: Vec<(String, Vec<u8>)> = (0..100).map(|n| (format!("{n}"), vec![1; 10])).collect();
        let source = Source::of_memory(files);
        let part = source.sized(25).unwrap();
        assert_eq!((part.bytes(), part.file_count()), (25, 3));
        let more = source.sized(1015).unwrap();
        assert_eq!((more.bytes(), more.file_count()), (1015, 102));
        let parents = more.entries().iter().enumerate();
        assert!(parents.into_iter().all(|(at, entry)| entry.parent.is_none_or(|parent| parent < at)));
    }
}
