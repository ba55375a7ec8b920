//! The survey of the data: names and sizes, no contents.
//!
//! A survey ends after a time; folders are entered in random order, so that what it saw of an endless tree is no
//! corner of it.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::{self, Seek as _};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Instant;

use format::ObjectId;
use storage::host::SeededEntropy;
use zpl::{FileKind, Filesystem};

use super::kind::{self, NONE};
use super::material::{Container, FILES_MAX, Material, Place};
use super::tar::{Header, Member, Tar};
use crate::source::{data_segments, open, unreadable};
use crate::{Error, Event, Result, Watch};

/// The survey does not look for holes in files smaller than this.
const SPARSE_MIN: u64 = 1 << 20;
/// Memory for the pieces of a stream.
const STREAM_MEMORY: usize = 96 << 20;

/// Names or headers between two looks at the time.
const LOOKS: usize = 1024;
/// Bytes that a stream is asked for at a time.
const STREAM_STEP: usize = 64 << 10;

/// Files without an extension whose beginning is looked at, the largest first; so many of them also when the time is over.
const SNIFFED_MAX: usize = 256;
const SNIFFED_MIN: usize = 16;

/// How a survey is made.
#[derive(Clone, Copy)]
pub(crate) struct Survey<'a> {
    pub(crate) until: Instant,
    pub(crate) seed: u64,
    /// Tar files that are named are looked into.
    pub(crate) unpack: bool,
    pub(crate) watch: &'a dyn Watch,
}

impl Material {
    /// Ends the survey: the first bytes of files are read where their names do not show their kind.
    pub(crate) fn settle(&mut self, first: &str, survey: &Survey) -> Result<()> {
        if self.unreadable > 0 {
            let what = if self.unreadable == 1 { "file or folder" } else { "files or folders" };
            self.notes.push(format!("{} {what} could not be read and are left out", self.unreadable));
        }
        if self.stopped {
            self.notes.push(format!(
                "there was time to look at {} file{} only: the others are assumed to be like them (a longer --time looks at more)",
                self.file_count,
                if self.file_count == 1 { "" } else { "s" }
            ));
        }
        if self.cut {
            self.notes.push(
                "the time was over before standard input ended: the answer is about the first part"
                    .to_owned(),
            );
        }
        if self.lost_files() > 0 {
            self.notes.push(format!(
                "the sample is from the first {FILES_MAX} files: the other {} are assumed to be like them",
                self.lost_files()
            ));
        }
        if self.bytes == 0 {
            return Err(Error::NoData { path: first.into() });
        }
        let Some(&none) = self.kind_numbers.get(NONE) else { return Ok(()) };
        let mut unnamed: Vec<usize> =
            (0..self.files.len()).filter(|file| self.files[*file].kind == none).collect();
        unnamed.sort_by_key(|file| std::cmp::Reverse(self.files[*file].size));
        for (number, file) in unnamed.into_iter().take(SNIFFED_MAX).enumerate() {
            if self.over(survey)? && number >= SNIFFED_MIN {
                break;
            }
            let entry = &self.files[file];
            let len = entry.size.min(512) as usize;
            let Ok(head) = self.read(entry, 0, len) else { continue };
            if let Some(known) = kind::by_content(&head.bytes) {
                self.files[file].kind = self.kind(known);
            }
        }
        Ok(())
    }

    /// Adds a file, a folder with everything below it, or a block device.
    pub(crate) fn add_path(&mut self, path: &Path, survey: &Survey) -> Result<()> {
        let metadata = std::fs::metadata(path).map_err(unreadable(path))?;
        self.name(&path.display().to_string());
        let kind = metadata.file_type();
        if survey.unpack && !kind.is_file() {
            return Err(no_tar(path));
        }
        if kind.is_dir() {
            self.folder.get_or_insert_with(|| path.to_owned());
            return self.walk(path, survey);
        }
        if let Some(parent) = path.parent().filter(|_| kind.is_file()) {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            self.folder.get_or_insert_with(|| parent.to_owned());
        }
        if kind.is_block_device() {
            let mut file = File::open(path).map_err(unreadable(path))?;
            let size = file.seek(io::SeekFrom::End(0)).map_err(unreadable(path))?;
            let container = self.container(Container::File { file, path: path.to_owned() });
            let kind = self.kind("(device)");
            self.enter(Place::Part { container, base: 0 }, size, kind, None);
            return Ok(());
        }
        if !kind.is_file() {
            return Err(Error::Unadvisable {
                path: path.to_owned(),
                what: "neither a file, a folder nor a block device",
            });
        }
        if survey.unpack {
            let (file, _) = open(path).map_err(unreadable(path))?;
            let members = self.members(path, &file, metadata.len(), survey)?;
            let container = self.container(Container::File { file, path: path.to_owned() });
            for member in members {
                let kind = self.kind_of(&member.name);
                self.enter(Place::Part { container, base: member.offset }, member.size, kind, None);
            }
            return Ok(());
        }
        self.file(path, &metadata).map_err(unreadable(path))
    }

    /// Adds the sample that comes with cenote.
    pub(crate) fn add_sample(&mut self) -> Result<()> {
        self.name("the sample that comes with cenote");
        for (name, data) in crate::sample::files()? {
            let size = data.len() as u64;
            let container = self.container(Container::Stream(BTreeMap::from([(0, data)])));
            let kind = self.kind_of(name.as_bytes());
            self.enter(Place::Part { container, base: 0 }, size, kind, None);
        }
        Ok(())
    }

    /// Adds object `id` of a file system, or everything in it; `name` is its name in messages.
    ///
    /// # Errors
    /// [`Error::Filesystem`] where it cannot be read; [`Error::Interrupted`].
    pub(crate) fn add_dataset(
        &mut self,
        fs: &Filesystem,
        id: ObjectId,
        name: &str,
        survey: &Survey,
    ) -> Result<()> {
        let failed = |source: zpl::Error| Error::Filesystem {
            doing: format!("read '{name}'"),
            configuration: "survey".to_owned(),
            source: source.into(),
        };
        self.name(name);
        if survey.unpack {
            return Err(no_tar(Path::new(name)));
        }
        let container = self.container(Container::Dataset(fs.clone()));
        let stat = fs.stat(id).map_err(failed)?;
        let last = name.rsplit('/').next().unwrap_or_default().as_bytes().to_vec();
        let random = SeededEntropy::new(survey.seed);
        let mut folders = Vec::new();
        match stat.kind {
            FileKind::Directory => folders.push(id),
            FileKind::Regular => {
                let kind = self.kind_of(&last);
                self.enter(Place::Object { container, id }, stat.size, kind, None);
            }
            _ => return Err(Error::Unadvisable { path: name.into(), what: "neither a file nor a folder" }),
        }
        while !folders.is_empty() {
            let folder = folders.swap_remove(random.below(folders.len() as u64) as usize);
            let (mut names, mut bytes) = (0, 0);
            for (number, entry) in fs.entries(folder).map_err(failed)?.enumerate() {
                let entry = entry.map_err(failed)?;
                (names, bytes) = (names + 1, bytes + entry.name.len() as u64);
                match entry.kind {
                    FileKind::Directory => folders.push(entry.id),
                    FileKind::Regular => {
                        let stat = fs.stat(entry.id).map_err(failed)?;
                        if stat.nlink > 1 && !self.seen.insert((u64::from(container), entry.id.0)) {
                            continue;
                        }
                        let sparse = stat.size >= SPARSE_MIN && stat.blocks * 512 < stat.size / 2;
                        let parts = if sparse { fs.data_runs(entry.id).ok() } else { None };
                        let kind = self.kind_of(&entry.name);
                        self.enter(Place::Object { container, id: entry.id }, stat.size, kind, parts);
                    }
                    _ => {}
                }
                if number % LOOKS == LOOKS - 1 && self.over(survey)? {
                    self.count_folder(names, bytes);
                    self.stopped = true;
                    return Ok(());
                }
            }
            self.count_folder(names, bytes);
            if self.over(survey)? && !folders.is_empty() {
                self.stopped = true;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads a stream up to its end or until the survey's time is over, and keeps pieces of `piece` bytes drawn at
    /// random, as many as fit into its memory.
    pub(crate) fn add_stream(
        &mut self,
        stream: &mut dyn io::Read,
        piece: usize,
        survey: &Survey,
    ) -> Result<()> {
        self.name("standard input");
        if survey.unpack {
            return Err(no_tar(Path::new("-")));
        }
        let keep = (STREAM_MEMORY / piece).max(2) as u64;
        let random = SeededEntropy::new(survey.seed);
        let mut kept: Vec<(u64, Vec<u8>)> = Vec::new();
        let (mut size, mut count) = (0u64, 0u64);
        let done = loop {
            let mut bytes = Vec::new();
            let filled = self.fill(stream, piece, &mut bytes, survey)?;
            if !bytes.is_empty() {
                let (offset, index) = (size, count);
                size += bytes.len() as u64;
                count += 1;
                // Each piece so far is kept with the same probability.
                if (kept.len() as u64) < keep {
                    kept.push((offset, bytes));
                } else {
                    let at = random.below(index + 1);
                    if at < keep {
                        kept[at as usize] = (offset, bytes);
                    }
                }
            }
            match filled {
                Filled::Whole => {}
                Filled::Ended => break true,
                Filled::Over => break false,
            }
        };
        // The kept parts represent all data: parts that were not kept are never drawn.
        let mut parts: Vec<(u64, u64)> =
            kept.iter().map(|(offset, bytes)| (*offset, bytes.len() as u64)).collect();
        parts.sort_unstable();
        let whole = kept.len() as u64 == count;
        (self.cut, self.thinned) = (self.cut || !done, self.thinned || !whole);
        let container = self.container(Container::Stream(kept.into_iter().collect()));
        let kind = self.kind("(stream)");
        self.enter(Place::Part { container, base: 0 }, size, kind, if whole { None } else { Some(parts) });
        Ok(())
    }

    /// Reads a piece of a stream. One that is silent says [`io::ErrorKind::WouldBlock`] from time to time.
    fn fill(
        &self,
        stream: &mut dyn io::Read,
        piece: usize,
        bytes: &mut Vec<u8>,
        survey: &Survey,
    ) -> Result<Filled> {
        while bytes.len() < piece {
            let from = bytes.len();
            bytes.resize(piece.min(from + STREAM_STEP), 0);
            let read = stream.read(&mut bytes[from..]);
            bytes.truncate(from + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Ok(Filled::Ended),
                Err(error) if !is_only_late(&error) => return Err(unreadable(Path::new("-"))(error)),
                _ if self.over(survey)? => return Ok(Filled::Over),
                _ => {}
            }
        }
        Ok(Filled::Whole)
    }

    /// The regular files in the tar `file`, as many as there is time for.
    fn members(&mut self, path: &Path, file: &File, len: u64, survey: &Survey) -> Result<Vec<Member>> {
        let mut tar = Tar::new(file, len).map_err(unreadable(path))?.ok_or_else(|| no_tar(path))?;
        let mut members = Vec::new();
        for number in 1.. {
            match tar.next().map_err(unreadable(path))? {
                Header::File(member) => members.push(member),
                Header::Other => {}
                Header::End => break,
            }
            if number % LOOKS == 0 && self.over(survey)? {
                self.stopped = true;
                break;
            }
        }
        Ok(members)
    }

    fn walk(&mut self, root: &Path, survey: &Survey) -> Result<()> {
        // Only the root itself must be readable.
        drop(std::fs::read_dir(root).map_err(unreadable(root))?);
        let random = SeededEntropy::new(survey.seed);
        let mut folders = vec![root.to_owned()];
        while !folders.is_empty() {
            let folder = folders.swap_remove(random.below(folders.len() as u64) as usize);
            let Ok(found) = std::fs::read_dir(&folder) else {
                self.count_folder(0, 0);
                self.unreadable += 1;
                continue;
            };
            let mut names: Vec<_> =
                found.filter_map(|entry| entry.ok().map(|entry| entry.file_name())).collect();
            names.sort_unstable();
            self.count_folder(names.len() as u64, names.iter().map(|name| name.len() as u64).sum());
            for (number, name) in names.into_iter().enumerate() {
                let path = folder.join(name);
                let Ok(metadata) = path.symlink_metadata() else {
                    self.unreadable += 1;
                    continue;
                };
                if metadata.is_dir() {
                    folders.push(path);
                } else if metadata.is_file() && self.file(&path, &metadata).is_err() {
                    self.unreadable += 1;
                }
                if number % LOOKS == LOOKS - 1 && self.over(survey)? {
                    self.stopped = true;
                    return Ok(());
                }
            }
            if self.over(survey)? && !folders.is_empty() {
                self.stopped = true;
                return Ok(());
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, metadata: &Metadata) -> io::Result<()> {
        if metadata.nlink() > 1 && !self.seen.insert((metadata.dev(), metadata.ino())) {
            return Ok(());
        }
        let size = metadata.len();
        // A file system that compresses looks sparse too; asking costs an open.
        let parts = if size >= SPARSE_MIN && metadata.blocks() * 512 < size / 10 * 9 {
            Some(data_segments(&open(path)?.0, size)?)
        } else {
            None
        };
        let kind = self.kind_of(path.file_name().unwrap_or_default().as_bytes());
        self.enter(Place::Path(path.into()), size, kind, parts);
        Ok(())
    }

    fn name(&mut self, subject: &str) {
        if !self.subject.is_empty() {
            self.subject.push_str(", ");
        }
        self.subject.push_str(subject);
    }

    pub(super) fn over(&self, survey: &Survey) -> Result<bool> {
        if survey.watch.stopped() {
            return Err(Error::Interrupted);
        }
        survey.watch.event(Event::Loading { bytes: self.bytes, total: 0 });
        Ok(Instant::now() >= survey.until)
    }
}

/// How a piece of a stream was read.
enum Filled {
    Whole,
    /// It is the last one.
    Ended,
    /// The time is.
    Over,
}

fn is_only_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn no_tar(path: &Path) -> Error {
    Error::Unadvisable { path: path.to_owned(), what: "no tar that is not compressed, in a file" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::strata::Strata;
    use crate::watch::Deaf;
    use std::io::Read as _;
    use std::os::unix::fs::FileExt as _;
    use std::time::Duration;

    fn survey() -> Survey<'static> {
        Survey { until: Instant::now() + Duration::from_secs(3600), seed: 1, unpack: false, watch: &Deaf }
    }

    #[test]
    fn a_folder_is_surveyed_with_its_kinds_and_holes() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("sub")).unwrap();
        std::fs::write(at("a.TXT"), "text").unwrap();
        std::fs::write(at("sub/b.txt"), "text too").unwrap();
        std::fs::hard_link(at("a.TXT"), at("sub/again.txt")).unwrap();
        std::fs::write(at("sub/noname"), b"\x1f\x8b\x08 packed").unwrap();
        let sparse = File::create(at("big.img")).unwrap();
        sparse.set_len(1 << 30).unwrap();
        sparse.write_all_at(b"here", 1 << 29).unwrap();
        let mut material = Material::new();
        material.add_path(dir.path(), &survey()).unwrap();
        material.settle("x", &survey()).unwrap();
        assert_eq!((material.file_count, material.folders, material.complete()), (4, 2, true));
        // Both have three names that together are short.
        assert_eq!(material.short_folders, 2);
        assert!(material.kinds.iter().any(|kind| kind == "gz"), "{:?}", material.kinds);
        assert!(material.bytes < 1 << 20 || material.files.iter().all(|file| file.parts.is_none()));
        let text = material.files.iter().find(|file| file.size == 8).unwrap();
        assert_eq!(material.read(text, 5, 3).unwrap().bytes, b"too");
    }

    #[test]
    fn a_stream_keeps_pieces_from_everywhere() {
        let mut data = Vec::new();
        for number in 0..400u32 {
            data.extend(number.to_le_bytes().repeat(1 << 16));
        }
        let mut material = Material::new();
        material.add_stream(&mut &data[..], 1 << 20, &survey()).unwrap();
        assert_eq!((material.bytes, material.file_count), (data.len() as u64, 1));
        let entry = &material.files[0];
        let kept: Vec<u64> = match &entry.parts {
            Some(parts) => parts.iter().map(|(offset, _)| *offset).collect(),
            None => vec![],
        };
        assert!(kept.is_empty() || kept.len() == STREAM_MEMORY >> 20 && kept.iter().any(|at| *at > 90 << 20));
        for offset in kept {
            let piece = material.read(entry, offset, 4).unwrap();
            assert_eq!(piece.bytes, data[offset as usize..][..4]);
        }
        assert!(matches!(Material::new().settle("nothing", &survey()), Err(Error::NoData { .. })));
    }

    #[test]
    fn kept_pieces_of_a_stream_represent_the_whole_stream_only() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.txt"), vec![1; 3 << 20]).unwrap();
        let mut material = Material::new();
        material.add_path(dir.path(), &survey()).unwrap();
        let size = 2 * STREAM_MEMORY as u64;
        material.add_stream(&mut io::repeat(7).take(size), 16 << 20, &survey()).unwrap();
        assert_eq!(material.bytes, (3 << 20) + size, "what was there before is still counted");
        assert!(!material.complete());
        let strata = Strata::new(&material, 16 << 20, &[], 1);
        let of = |kind: &str| strata.all.iter().find(|stratum| stratum.kind == kind).unwrap();
        let (stream, text) = (of("(stream)"), of("txt"));
        assert_eq!((stream.pieces, stream.population, stream.bytes), (6, 12.0, size as f64));
        assert_eq!((text.pieces, text.population, text.data), (1, 1.0, (3 << 20) as f64));
        material.settle("x", &survey()).unwrap();
        assert_eq!(material.notes, Vec::<String>::new(), "no time was over");
    }

    /// One byte at a time, and nothing in between, without an end.
    struct Slow(bool);

    impl io::Read for Slow {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            std::thread::sleep(Duration::from_millis(1));
            self.0 = !self.0;
            if self.0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            buf[0] = 5;
            Ok(1)
        }
    }

    #[test]
    fn a_slow_stream_ends_with_the_time() {
        let survey = Survey { until: Instant::now() + Duration::from_secs(1), ..survey() };
        let mut material = Material::new();
        material.add_stream(&mut Slow(false), 1 << 20, &survey).unwrap();
        assert!(material.cut && !material.complete() && (1..1000).contains(&material.bytes));
        material.settle("-", &survey).unwrap();
        assert_eq!(material.notes.len(), 1, "{:?}", material.notes);
    }

    #[test]
    fn a_tar_of_many_files_ends_with_the_time_and_nothing_else_is_taken_for_a_tar() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("many.tar");
        let mut header = [0; 512];
        (header[0], header[135], header[156]) = (b'x', b' ', b'0');
        header[124..135].copy_from_slice(b"00000000000");
        header[257..262].copy_from_slice(b"ustar");
        std::fs::write(&path, header.repeat(3 * LOOKS)).unwrap();
        let late = Survey { until: Instant::now(), unpack: true, ..survey() };
        let mut material = Material::new();
        material.add_path(&path, &late).unwrap();
        assert!(material.stopped && material.file_count == LOOKS as u64);
        let patient = Survey { unpack: true, ..survey() };
        assert!(matches!(Material::new().add_path(dir.path(), &patient), Err(Error::Unadvisable { .. })));
        assert!(matches!(
            Material::new().add_stream(&mut &header[..], 4096, &patient),
            Err(Error::Unadvisable { .. })
        ));
    }

    #[test]
    fn missing_paths_are_named() {
        let missing = Material::new().add_path(Path::new("/none/x"), &survey()).unwrap_err().to_string();
        assert!(missing.starts_with("cannot read '/none/x': "), "{missing}");
        assert!(matches!(
            Material::new().add_path(Path::new("/dev/null"), &survey()),
            Err(Error::Unadvisable { .. })
        ));
    }
}
