//! The data to measure with: files and folders, or the sample.
//!
//! From:   paths of the user.
//! To:     trials, record by record: from memory where it fits, so that only the pool is measured, else from the
//!         files each time.
//!
//! Holes stay holes. Symbolic links hold no data and are left out; of a file with several names in the source the
//! first one counts. A file that is not the same at each reading ends the measurement.

use std::collections::HashSet;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pool::props::number::parse_size;
use rustix::fs::{OFlags, SeekFrom, seek};
use rustix::io::Errno;

use crate::generate::generate;
use crate::{Error, Event, Result, Watch, sample};

/// Bytes read at once while loading.
const LOAD_STEP: usize = 8 << 20;
/// Sectors that a file's blocks are counted in.
const SECTOR: u64 = 512;
/// A pool with 4 KiB sectors gives each record at least this much.
const SECTOR_OF_POOL: u64 = 4096;
/// Metadata of a record (its pointers, all levels and copies) and of a file or folder, generously.
const RECORD_METADATA: u64 = 320;
const ENTRY_METADATA: u64 = 3 << 10;

/// A corpus that is made is kept in memory: more belongs into files.
const CORPUS_MAX: usize = 8 << 30;
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

/// A regular file.
#[derive(Clone, Debug)]
pub(crate) struct Contents {
    path: PathBuf,
    /// Bytes with holes.
    pub(crate) size: u64,
    /// What shows that the file is still the same; `None` for the sample.
    stamp: Option<Stamp>,
    /// The parts that are no holes, in order.
    segments: Vec<Segment>,
}

#[derive(Clone, Debug)]
struct Segment {
    offset: u64,
    len: u64,
    /// The data from `offset` on, and perhaps more, once it is in memory.
    data: Option<Arc<Vec<u8>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    size: u64,
    modified: (i64, i64),
    inode: (u64, u64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Stamp {
        Stamp {
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            inode: (metadata.dev(), metadata.ino()),
        }
    }
}

impl Source {
    /// Looks at `paths` and everything below them, without reading any data.
    ///
    /// # Errors
    /// [`Error::Unreadable`]; [`Error::NoData`].
    pub fn scan(paths: &[PathBuf]) -> Result<Source> {
        let mut scan = Scan { source: Source::empty(), seen: HashSet::new() };
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

    /// The sample that comes with cenote, in memory.
    ///
    /// # Errors
    /// [`Error::NoSample`] in a build without it.
    pub fn sample() -> Result<Source> {
        Source::named(&["sample".to_owned()])
    }

    /// Data that is no file of the user, in memory: `sample`, the sample that comes with cenote; `sample/NAME`, a file
    /// of it; `KIND:SIZE`, a corpus made on the spot ([`CORPORA`](crate::CORPORA)).
    ///
    /// # Errors
    /// [`Error::NoSuchData`]; [`Error::NoSample`] in a build without it.
    pub fn named(words: &[String]) -> Result<Source> {
        let mut source = Source { in_memory: true, ..Source::empty() };
        for (number, word) in words.iter().enumerate() {
            let unknown = || Error::NoSuchData(word.clone());
            let made = word.split_once(':').map(|(kind, size)| {
                let bytes = parse_size(size).ok().and_then(|bytes| usize::try_from(bytes).ok());
                let bytes = bytes.filter(|bytes| (1..=CORPUS_MAX).contains(bytes)).ok_or_else(unknown)?;
                let data = generate(kind, bytes, number as u64 + 1).ok_or_else(unknown)?;
                Ok(vec![(format!("{}-{kind}", number + 1), data)])
            });
            let files = match made {
                Some(made) => made?,
                None => {
                    let wanted = word.strip_prefix("sample").ok_or_else(unknown)?;
                    let is = |name: &str| wanted.is_empty() || wanted.strip_prefix('/') == Some(name);
                    let files = sample::files()?.into_iter().filter(|(name, _)| is(name));
                    files.map(|(name, data)| (name.to_owned(), data)).collect()
                }
            };
            if files.is_empty() {
                return Err(unknown());
            }
            files.into_iter().for_each(|(name, data)| source.add(&name, data));
        }
        Ok(source)
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
        let size = data.len() as u64;
        let segments = vec![Segment { offset: 0, len: size, data: Some(Arc::new(data)) }];
        self.bytes += size;
        let contents = Contents { path: name.into(), size, stamp: None, segments };
        self.entries.push(Entry { parent: None, name: name.into(), contents: Some(contents) });
    }

    fn empty() -> Source {
        Source { entries: Vec::new(), bytes: 0, in_memory: false, notes: Vec::new() }
    }

    /// The same data; what is in memory is shared.
    pub(crate) fn view(&self) -> Source {
        Source {
            entries: self.entries.clone(),
            bytes: self.bytes,
            in_memory: self.in_memory,
            notes: Vec::new(),
        }
    }

    /// `total` bytes of data: the first of the source, or as many copies of it as it takes, each in a folder of its
    /// own. What is in memory is shared.
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

    /// What was left out, in words.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Bytes that a pool may need for all of it in records of `recordsize`, uncompressed.
    #[must_use]
    pub(crate) fn footprint(&self, recordsize: u64) -> u64 {
        let contents = self.entries.iter().filter_map(|entry| entry.contents.as_ref());
        let records = |file: &Contents| {
            let of = |segment: &Segment| {
                (segment.offset + segment.len).div_ceil(recordsize) - segment.offset / recordsize
            };
            let each = if file.size <= recordsize { file.size } else { recordsize };
            let count: u64 = file.segments.iter().map(of).sum();
            count.saturating_mul(each.next_multiple_of(SECTOR_OF_POOL) + RECORD_METADATA)
        };
        let data = contents.fold(0u64, |sum, file| sum.saturating_add(records(file)));
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
            let file = contents.open()?;
            for index in 0..contents.segments.len() {
                let (offset, len) = (contents.segments[index].offset, contents.segments[index].len);
                let mut data = vec![0; usize::try_from(len).map_err(|_| too_large(&contents.path))?];
                for (step, part) in data.chunks_mut(LOAD_STEP).enumerate() {
                    if watch.stopped() {
                        return Err(Error::Interrupted);
                    }
                    contents.read(&file, part, offset + (step * LOAD_STEP) as u64)?;
                    done += part.len() as u64;
                    watch.event(Event::Loading { bytes: done, total });
                }
                contents.segments[index].data = Some(Arc::new(data));
            }
            contents.check(&file)?;
        }
        self.in_memory = true;
        Ok(())
    }
}

struct Scan {
    source: Source,
    /// Files with several names that were entered.
    seen: HashSet<(u64, u64)>,
}

impl Scan {
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
        let kind = metadata.file_type();
        if kind.is_symlink() {
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
            self.source.bytes += contents.segments.iter().map(|segment| segment.len).sum::<u64>();
            entries.push(Entry { parent, name, contents: Some(contents) });
        }
        Ok(())
    }
}

impl Contents {
    /// Bytes that are no holes.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.len).sum()
    }

    /// The file up to and with its first `left` bytes of data.
    fn first(&self, left: u64) -> Contents {
        let mut contents = Contents { segments: Vec::new(), ..self.clone() };
        let mut left = left;
        for segment in &self.segments {
            let len = segment.len.min(left);
            if len == 0 {
                break;
            }
            contents.segments.push(Segment { len, ..segment.clone() });
            left -= len;
        }
        if contents.data_bytes() < self.data_bytes() {
            contents.size = contents.segments.last().map_or(0, |last| last.offset + last.len);
        }
        contents
    }

    /// Opens the file at `path`, so that it is known to be readable, and finds its holes.
    fn look(path: &Path) -> Result<Contents> {
        let (file, metadata) = open(path).map_err(unreadable(path))?;
        let stamp = Stamp::of(&metadata);
        let size = stamp.size;
        let segments = if metadata.blocks() * SECTOR < size {
            data_segments(&file, size).map_err(unreadable(path))?
        } else {
            vec![(0, size)]
        };
        let segments = segments.into_iter().filter(|(_, len)| *len > 0);
        let segments = segments.map(|(offset, len)| Segment { offset, len, data: None }).collect();
        Ok(Contents { path: path.to_owned(), size, stamp: Some(stamp), segments })
    }

    /// Opens the file again.
    ///
    /// # Errors
    /// [`Error::Changed`] if it is not what it was.
    fn open(&self) -> Result<File> {
        let (file, metadata) = open(&self.path).map_err(unreadable(&self.path))?;
        self.same(&metadata).map(|()| file)
    }

    /// Whether the open file is still what it was.
    fn check(&self, file: &File) -> Result<()> {
        self.same(&file.metadata().map_err(unreadable(&self.path))?)
    }

    fn same(&self, metadata: &Metadata) -> Result<()> {
        if self.stamp == Some(Stamp::of(metadata)) {
            Ok(())
        } else {
            Err(Error::Changed { path: self.path.clone() })
        }
    }

    fn read(&self, file: &File, buf: &mut [u8], offset: u64) -> Result<()> {
        file.read_exact_at(buf, offset).map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => Error::Changed { path: self.path.clone() },
            _ => unreadable(&self.path)(source),
        })
    }

    /// Where it comes from, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Ready to be read, from memory or from the file.
    ///
    /// # Errors
    /// [`Error::Unreadable`], [`Error::Changed`].
    pub(crate) fn reader(&self) -> Result<Reader<'_>> {
        let in_memory = self.segments.iter().all(|segment| segment.data.is_some());
        let file = if in_memory { None } else { Some(self.open()?) };
        Ok(Reader { contents: self, file })
    }
}

/// A file of the source while it is read.
pub(crate) struct Reader<'a> {
    contents: &'a Contents,
    /// `None` if it is in memory.
    file: Option<File>,
}

impl Reader<'_> {
    /// The `len` bytes from `offset` on, which must lie within the file; `None` if there are only holes.
    ///
    /// # Errors
    /// [`Error::Unreadable`], [`Error::Changed`].
    pub(crate) fn record(&self, offset: u64, len: usize) -> Result<Option<Vec<u8>>> {
        let end = offset + len as u64;
        let segments = &self.contents.segments;
        let first = segments.partition_point(|segment| segment.offset + segment.len <= offset);
        let mut found: Option<Vec<u8>> = None;
        for segment in segments[first..].iter().take_while(|segment| segment.offset < end) {
            let (from, until) = (segment.offset.max(offset), (segment.offset + segment.len).min(end));
            match &segment.data {
                Some(data) => {
                    let data = &data[(from - segment.offset) as usize..(until - segment.offset) as usize];
                    if data.len() == len {
                        return Ok(Some(data.to_vec()));
                    }
                    let record = found.get_or_insert_with(|| vec![0; len]);
                    record[(from - offset) as usize..(until - offset) as usize].copy_from_slice(data);
                }
                None => {
                    let record = found.get_or_insert_with(|| vec![0; len]);
                    let part = &mut record[(from - offset) as usize..(until - offset) as usize];
                    let file = self.file.as_ref().expect("what is not in memory was opened");
                    self.contents.read(file, part, from)?;
                }
            }
        }
        Ok(found)
    }

    /// Whether the file has these bytes at `offset`.
    ///
    /// # Errors
    /// [`Error::Unreadable`], [`Error::Changed`].
    pub(crate) fn has(&self, offset: u64, bytes: &[u8]) -> Result<bool> {
        if offset.saturating_add(bytes.len() as u64) > self.contents.size {
            return Ok(false);
        }
        if let [Segment { offset: 0, len, data: Some(data) }] = &self.contents.segments[..]
            && *len == self.contents.size
        {
            return Ok(data[offset as usize..offset as usize + bytes.len()] == *bytes);
        }
        Ok(match self.record(offset, bytes.len())? {
            Some(record) => record == bytes,
            None => is_zero(bytes),
        })
    }

    /// Whether the file has `len` zeros at `offset`.
    ///
    /// # Errors
    /// [`Error::Unreadable`], [`Error::Changed`].
    pub(crate) fn has_zeros(&self, offset: u64, len: u64) -> Result<bool> {
        let mut at = offset;
        let end = offset.saturating_add(len);
        while at < end {
            // Holes of a sparse file may be much longer than memory: go from segment to segment.
            let segments = &self.contents.segments;
            let index = segments.partition_point(|segment| segment.offset + segment.len <= at);
            let Some(next) =
                segments.get(index).map(|segment| segment.offset.max(at)).filter(|next| *next < end)
            else {
                break;
            };
            let step =
                (segments[index].offset + segments[index].len).min(end).min(next + LOAD_STEP as u64) - next;
            if self.record(next, step as usize)?.is_some_and(|record| !is_zero(&record)) {
                return Ok(false);
            }
            at = next + step;
        }
        Ok(end <= self.contents.size)
    }

    /// Called when all was read: whether the file is still what it was.
    ///
    /// # Errors
    /// [`Error::Changed`], [`Error::Unreadable`].
    pub(crate) fn finish(self) -> Result<()> {
        self.file.as_ref().map_or(Ok(()), |file| self.contents.check(file))
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Opens a regular file for reading. Never waits for the other end of what became a fifo meanwhile.
pub(crate) fn open(path: &Path) -> io::Result<(File, Metadata)> {
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    let metadata = file.metadata()?;
    match metadata.is_file() {
        true => Ok((file, metadata)),
        false => Err(io::Error::other("it is no longer a regular file")),
    }
}

/// The parts of a file that are no holes, as (offset, bytes). All of it where the file system does not tell.
pub(crate) fn data_segments(file: &File, size: u64) -> io::Result<Vec<(u64, u64)>> {
    let mut segments = Vec::new();
    let mut at = 0;
    while at < size {
        let from = match seek(file, SeekFrom::Data(at)) {
            Ok(from) => from,
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL | Errno::NOTSUP) => return Ok(vec![(0, size)]),
            Err(errno) => return Err(errno.into()),
        };
        // A file that grows meanwhile is found out when it is read.
        let until = seek(file, SeekFrom::Hole(from))?.min(size);
        if from >= until {
            break;
        }
        segments.push((from, until - from));
        at = until;
    }
    Ok(segments)
}

pub(crate) fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Unreadable { path, source }
}

fn too_large(path: &Path) -> Error {
    unreadable(path)(io::ErrorKind::FileTooLarge.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    struct Alone;

    impl Watch for Alone {
        fn event(&self, _: Event<'_>) {}
        fn stopped(&self) -> bool {
            false
        }
    }

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
    fn what_is_missing_or_empty_is_named() {
        let dir = folder();
        let missing = Source::scan(&[dir.path().join("none")]).unwrap_err().to_string();
        assert!(missing.starts_with("cannot read '") && missing.contains("none': No such file"), "{missing}");
        std::fs::write(dir.path().join("empty"), b"").unwrap();
        assert!(matches!(Source::scan(&[dir.path().to_owned()]), Err(Error::NoData { .. })));
        assert!(matches!(Source::scan(&["/dev/null".into()]), Err(Error::NoData { .. })));
    }

    #[test]
    fn holes_are_no_data_whether_in_memory_or_not() {
        let dir = folder();
        let path = dir.path().join("sparse");
        let file = File::create(&path).unwrap();
        file.set_len(1 << 30).unwrap();
        file.write_all_at(&[7; 100_000], 10 << 20).unwrap();
        drop(file);
        let mut source = Source::scan(&[path]).unwrap();
        if source.bytes() == 1 << 30 {
            return; // The file system does not tell where its holes are.
        }
        for _ in 0..2 {
            let reader = source.entries()[0].contents.as_ref().unwrap().reader().unwrap();
            assert_eq!(reader.record(0, 131_072).unwrap(), None);
            assert_eq!(reader.record(10 << 20, 50_000).unwrap(), Some(vec![7; 50_000]));
            assert!(
                reader.has((10 << 20) - 1, &[0, 7, 7]).unwrap() && !reader.has(10 << 20, &[7, 8]).unwrap()
            );
            assert!(reader.has_zeros(11 << 20, (1 << 30) - (11 << 20)).unwrap());
            assert!(!reader.has_zeros(0, 11 << 20).unwrap() && !reader.has_zeros(1 << 30, 1).unwrap());
            reader.finish().unwrap();
            source.load(1 << 30, &Alone).unwrap();
            assert!(source.is_in_memory());
        }
    }

    #[test]
    fn a_file_that_changes_is_found_out() {
        let dir = folder();
        let path = dir.path().join("log");
        std::fs::write(&path, vec![1; 1000]).unwrap();
        let mut source = Source::scan(std::slice::from_ref(&path)).unwrap();
        source.load(10, &Alone).unwrap();
        assert!(!source.is_in_memory(), "1000 bytes do not fit in 10");
        std::fs::write(&path, vec![1; 1001]).unwrap();
        assert!(matches!(source.load(1 << 20, &Alone), Err(Error::Changed { .. })));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(source.load(1 << 20, &Alone), Err(Error::Unreadable { .. })));
    }
}
