//! Finds the files at some paths and below them.

use std::collections::HashSet;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Contents, Entry, Source, unreadable};
use crate::watch::Deaf;
use crate::{Error, Result, Watch};

impl Source {
    /// Finds the files at `paths` and below them, without reading any data.
    ///
    /// # Errors
    /// [`Error::Unreadable`]; [`Error::NoData`].
    pub fn scan(paths: &[PathBuf]) -> Result<Source> {
        Source::scan_without(paths, &[], &Deaf)
    }

    /// As [`Source::scan`], without the files of `results`: they are not there yet the first time, and others each time.
    ///
    /// # Errors
    /// As [`Source::scan`]; [`Error::Interrupted`].
    pub fn scan_without(paths: &[PathBuf], results: &[PathBuf], watch: &dyn Watch) -> Result<Source> {
        let known = |path: &PathBuf| path.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()));
        let results = results.iter().filter_map(known).collect();
        let mut scan = Scan { source: Source::empty(), seen: HashSet::new(), results, watch };
        let mut names = HashSet::new();
        for path in paths {
            let metadata = std::fs::metadata(path).map_err(unreadable(path))?;
            let last = path.canonicalize().unwrap_or_else(|_| path.clone());
            let last = last.file_name().map_or_else(|| b"root".to_vec(), |name| name.as_bytes().to_vec());
            let mut name = last.clone();
            let mut number = 2;
            // The same name in two places: both are measured.
            while !names.insert(name.clone()) {
                name = [&last[..], format!(".{number}").as_bytes()].concat();
                number += 1;
            }
            scan.enter(None, name, path, &metadata)?;
        }
        let source = scan.source;
        match paths.first() {
            Some(first) if source.bytes == 0 => Err(Error::NoData { path: first.clone() }),
            _ => Ok(source),
        }
    }
}

struct Scan<'a> {
    source: Source,
    /// Files with several names that were entered.
    seen: HashSet<(u64, u64)>,
    /// Files that are no part of the source.
    results: HashSet<(u64, u64)>,
    watch: &'a dyn Watch,
}

impl Scan<'_> {
    fn enter(
        &mut self,
        parent: Option<usize>,
        name: Vec<u8>,
        path: &Path,
        metadata: &Metadata,
    ) -> Result<()> {
        let mut folders = vec![];
        self.one(parent, name, path, metadata, &mut folders)?;
        // Not recursive: folders may lie deeper than a stack.
        while let Some((index, folder)) = folders.pop() {
            let mut inside = Vec::new();
            for found in std::fs::read_dir(&folder).map_err(unreadable(&folder))? {
                inside.push(found.map_err(unreadable(&folder))?.file_name());
            }
            inside.sort();
            for name in inside {
                let path = folder.join(&name);
                let metadata = path.symlink_metadata().map_err(unreadable(&path))?;
                self.one(Some(index), name.as_bytes().to_vec(), &path, &metadata, &mut folders)?;
            }
        }
        Ok(())
    }

    fn one(
        &mut self,
        parent: Option<usize>,
        name: Vec<u8>,
        path: &Path,
        metadata: &Metadata,
        folders: &mut Vec<(usize, PathBuf)>,
    ) -> Result<()> {
        if self.watch.stopped() {
            return Err(Error::Interrupted);
        }
        let kind = metadata.file_type();
        if kind.is_symlink() {
            return Ok(());
        }
        if kind.is_file() && self.results.contains(&(metadata.dev(), metadata.ino())) {
            let note = format!("'{}' is for results of this measurement: left out", path.display());
            self.source.notes.push(note);
            return Ok(());
        }
        if !kind.is_dir() && !kind.is_file() {
            self.source.notes.push(format!("'{}' is neither a file nor a folder: left out", path.display()));
            return Ok(());
        }
        if kind.is_file() && metadata.nlink() > 1 && !self.seen.insert((metadata.dev(), metadata.ino())) {
            return Ok(());
        }
        let entries = &mut self.source.entries;
        if kind.is_dir() {
            folders.push((entries.len(), path.to_owned()));
            entries.push(Entry { parent, name, contents: None });
        } else {
            let contents = Contents::look(path)?;
            self.source.bytes += contents.data_bytes();
            entries.push(Entry { parent, name, contents: Some(contents) });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Stopped;
    use std::os::unix::fs::symlink;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn a_folder_is_entered_with_all_that_holds_data() {
        let dir = folder();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("t/sub/empty")).unwrap();
        std::fs::write(at("t/a"), b"12345").unwrap();
        std::fs::write(at("t/sub/b"), b"123").unwrap();
        std::fs::hard_link(at("t/a"), at("t/sub/same")).unwrap();
        symlink("a", at("t/link")).unwrap();
        drop(std::os::unix::net::UnixListener::bind(at("t/socket")).unwrap());
        let source = Source::scan(&[at("t"), at("t/a")]).unwrap();
        assert_eq!((source.bytes(), source.file_count(), source.entries().len()), (8, 2, 5));
        assert_eq!(source.notes().len(), 1);
        let children = source.entries().iter().enumerate();
        assert!(children.into_iter().all(|(index, entry)| entry.parent.is_none_or(|parent| parent < index)));
    }

    #[test]
    fn result_files_are_not_measured() {
        let dir = folder();
        let at = |name: &str| dir.path().join(name);
        std::fs::write(at("a"), b"12345").unwrap();
        let results = [at("r.html"), at("journal")];
        let of = || Source::scan_without(&[dir.path().to_owned()], &results, &Deaf).unwrap();
        let first = of();
        results.iter().for_each(|path| std::fs::write(path, b"results").unwrap());
        let second = of();
        assert_eq!((first.fingerprint(), first.bytes()), (second.fingerprint(), 5));
        assert_eq!((first.notes().len(), second.notes().len()), (0, 2));
    }

    #[test]
    fn a_scan_can_be_stopped() {
        let dir = folder();
        std::fs::write(dir.path().join("a"), b"12345").unwrap();
        let stopped = Source::scan_without(&[dir.path().to_owned()], &[], &Stopped);
        assert!(matches!(stopped, Err(Error::Interrupted)));
    }

    #[test]
    fn two_paths_of_the_same_name_are_both_measured() {
        let dir = folder();
        for sub in ["x", "y"] {
            std::fs::create_dir(dir.path().join(sub)).unwrap();
            std::fs::write(dir.path().join(sub).join("data"), sub).unwrap();
        }
        let source = Source::scan(&[dir.path().join("x/data"), dir.path().join("y/data")]).unwrap();
        let names: Vec<_> = source.entries().iter().map(|entry| entry.name.clone()).collect();
        assert_eq!(names, [b"data".to_vec(), b"data.2".to_vec()]);
    }

    #[test]
    fn missing_and_empty_sources_are_named() {
        let dir = folder();
        let missing = Source::scan(&[dir.path().join("none")]).unwrap_err().to_string();
        assert!(missing.starts_with("cannot read '") && missing.contains("none': No such file"), "{missing}");
        std::fs::write(dir.path().join("empty"), b"").unwrap();
        assert!(matches!(Source::scan(&[dir.path().to_owned()]), Err(Error::NoData { .. })));
        assert!(matches!(Source::scan(&["/dev/null".into()]), Err(Error::NoData { .. })));
    }
}
