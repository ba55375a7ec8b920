//! A regular file of the source: its data, its holes, and checks for changes.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{OFlags, SeekFrom, seek};
use rustix::io::Errno;

use crate::{Error, Result};

/// Bytes read at once while loading.
const LOAD_STEP: usize = 8 << 20;
/// Sectors that a file's blocks are counted in.
const SECTOR: u64 = 512;
/// A pool with 4 KiB sectors uses at least this much for each record.
const SECTOR_OF_POOL: u64 = 4096;
/// Metadata of a record (its pointers, all levels and copies), generously.
const RECORD_METADATA: u64 = 320;

/// A regular file.
#[derive(Clone, Debug)]
pub(crate) struct Contents {
    path: PathBuf,
    /// Bytes with holes.
    pub(crate) size: u64,
    /// The stamp that shows that the file is still the same; `None` for the sample.
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

impl Contents {
    /// A file that is in memory.
    pub(super) fn of_memory(name: &str, data: Vec<u8>) -> Contents {
        let size = data.len() as u64;
        let segments = vec![Segment { offset: 0, len: size, data: Some(Arc::new(data)) }];
        Contents { path: name.into(), size, stamp: None, segments }
    }

    /// The text that distinguishes it from other files of the same name.
    pub(super) fn identity(&self) -> String {
        format!("{} {:?}", self.size, self.stamp)
    }

    /// Bytes that are no holes.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.len).sum()
    }

    /// The parts that hold data, in order: they begin and end at multiples of `unit` or with the file, and are at most
    /// `most` bytes long, a multiple of it.
    pub(crate) fn parts(&self, unit: u64, most: u64) -> Vec<Range<u64>> {
        let mut joined: Vec<Range<u64>> = Vec::new();
        for segment in self.segments.iter().filter(|segment| segment.len > 0) {
            let end = (segment.offset + segment.len).checked_next_multiple_of(unit).unwrap_or(u64::MAX);
            let (start, end) = (segment.offset / unit * unit, end.min(self.size));
            match joined.last_mut() {
                Some(last) if start <= last.end => last.end = end,
                _ => joined.push(start..end),
            }
        }
        let cut = |part: Range<u64>| {
            let starts = (0..(part.end - part.start).div_ceil(most)).map(move |n| part.start + n * most);
            starts.map(move |start| start..part.end.min(start.saturating_add(most)))
        };
        joined.into_iter().flat_map(cut).collect()
    }

    /// Where the last hole begins, or the file ends.
    pub(crate) fn data_end(&self) -> u64 {
        self.segments.last().map_or(0, |last| last.offset + last.len)
    }

    /// The file up to and with its first `left` bytes of data.
    pub(super) fn first(&self, left: u64) -> Contents {
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
    pub(super) fn look(path: &Path) -> Result<Contents> {
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

    /// Bytes that a pool may need for it in records of `recordsize`, uncompressed.
    pub(super) fn footprint(&self, recordsize: u64) -> u64 {
        let of = |segment: &Segment| {
            (segment.offset + segment.len).div_ceil(recordsize) - segment.offset / recordsize
        };
        let each = self.size.min(recordsize);
        let count: u64 = self.segments.iter().map(of).sum();
        count.saturating_mul(each.next_multiple_of(SECTOR_OF_POOL) + RECORD_METADATA)
    }

    /// Reads the file into memory; `go_on` is asked before each part of so many bytes.
    ///
    /// # Errors
    /// [`Error::Unreadable`], [`Error::Changed`]; what `go_on` says.
    pub(super) fn load(&mut self, mut go_on: impl FnMut(u64) -> Result<()>) -> Result<()> {
        let file = self.open()?;
        for index in 0..self.segments.len() {
            let (offset, len) = (self.segments[index].offset, self.segments[index].len);
            let mut data = vec![0; usize::try_from(len).map_err(|_| too_large(&self.path))?];
            for (step, part) in data.chunks_mut(LOAD_STEP).enumerate() {
                go_on(part.len() as u64)?;
                self.read(&file, part, offset + (step * LOAD_STEP) as u64)?;
            }
            self.segments[index].data = Some(Arc::new(data));
        }
        self.check(&file)
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

/// Opens a regular file for reading. Does not wait for a writer if a FIFO has taken the place of the file meanwhile.
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
        // If a file grows meanwhile, the read will notice it.
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
    use crate::Source;
    use crate::watch::Deaf;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
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
            reader.finish().unwrap();
            source.load(1 << 30, &Deaf).unwrap();
            assert!(source.is_in_memory());
        }
    }

    #[test]
    fn parts_with_data_are_found_without_looking_at_holes() {
        let segment = |offset, len| Segment { offset, len, data: None };
        let contents = |size, segments| Contents { path: "x".into(), size, stamp: None, segments };
        let end = 1 << 50;
        let petabyte = contents(end, vec![segment(0, 1), segment(4097, 10), segment(end - 5, 5)]);
        assert_eq!(petabyte.parts(4096, 1 << 20), [0..8192, end - 4096..end]);
        assert_eq!(petabyte.parts(4096, 4096), [0..4096, 4096..8192, end - 4096..end]);
        let hole_at_the_end = contents(end, vec![segment(100, 4096), segment(4200, 4000)]);
        assert_eq!(hole_at_the_end.parts(4096, 8192), [0..8192, 8192..12_288]);
        assert_eq!(contents(10, vec![segment(0, 10)]).parts(4096, 4096), vec![0..10]);
        assert!(contents(end, Vec::new()).parts(4096, 4096).is_empty());
    }

    #[test]
    fn a_file_that_changes_is_found_out() {
        let dir = folder();
        let path = dir.path().join("log");
        std::fs::write(&path, vec![1; 1000]).unwrap();
        let mut source = Source::scan(std::slice::from_ref(&path)).unwrap();
        source.load(10, &Deaf).unwrap();
        assert!(!source.is_in_memory(), "1000 bytes do not fit in 10");
        std::fs::write(&path, vec![1; 1001]).unwrap();
        assert!(matches!(source.load(1 << 20, &Deaf), Err(Error::Changed { .. })));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(source.load(1 << 20, &Deaf), Err(Error::Unreadable { .. })));
    }
}
