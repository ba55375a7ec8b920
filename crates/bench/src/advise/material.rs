//! The data that is asked about: what [`super::survey`] found, and pieces of it.
//!
//! From:   folders, files, a block device, the members of a tar, a stream, a dataset of a pool.
//! To:     [`super::strata`], which draws pieces, and [`super::encode`], which looks at them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use format::ObjectId;
use zpl::Filesystem;

use super::encode::Piece;
use super::kind::{self, NONE};
use crate::source::open;
use crate::{Error, Result};

/// Files that are remembered; of more, those that the walk met first.
const FILES_MAX: usize = 1_000_000;
/// Parts of a sparse file that are remembered.
const PARTS_MAX: usize = 10_000;
/// Files without an extension whose beginning is looked at, the largest first.
const SNIFFED_MAX: usize = 256;

/// Data to be asked about.
#[derive(Debug, Default)]
pub struct Material {
    pub(crate) files: Vec<FileEntry>,
    /// Names of kinds of files; a file has a number of one.
    pub(crate) kinds: Vec<String>,
    kind_numbers: HashMap<String, u16>,
    containers: Vec<Container>,
    pub(super) seen: HashSet<(u64, u64)>,
    /// What was asked about, in words.
    pub(crate) subject: String,
    /// The local folder it is in, where there is one.
    pub(crate) folder: Option<PathBuf>,
    pub(crate) folders: u64,
    /// Bytes of all files, known holes left out.
    pub(crate) bytes: u64,
    /// Files, those that are not remembered too.
    pub(crate) file_count: u64,
    /// Everything was seen.
    pub(crate) complete: bool,
    pub(crate) notes: Vec<String>,
    pub(super) unreadable: u64,
}

/// A file.
#[derive(Debug)]
pub(crate) struct FileEntry {
    place: Place,
    pub(crate) size: u64,
    pub(crate) kind: u16,
    /// Parts that are no holes, as (offset, bytes); `None` if it has none that are known.
    pub(crate) parts: Option<Box<[(u64, u64)]>>,
}

#[derive(Debug)]
pub(super) enum Place {
    Path(Box<Path>),
    /// From this byte of a container on.
    Part {
        container: u16,
        base: u64,
    },
    Object {
        container: u16,
        id: ObjectId,
    },
}

pub(super) enum Container {
    File {
        file: File,
        path: PathBuf,
    },
    /// Pieces of a stream by their offset.
    Stream(BTreeMap<u64, Vec<u8>>),
    Dataset(Filesystem),
}

impl std::fmt::Debug for Container {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Container::File { .. } => "File",
            Container::Stream(_) => "Stream",
            Container::Dataset(_) => "Dataset",
        })
    }
}

impl Material {
    /// An empty one.
    #[must_use]
    pub fn new() -> Material {
        Material { complete: true, ..Material::default() }
    }

    /// The survey is over: kinds of files that say nothing by their names are looked at.
    pub(crate) fn settle(&mut self, first: &str) -> Result<()> {
        if self.unreadable > 0 {
            self.notes.push(format!("{} files or folders could not be read: left out", self.unreadable));
        }
        if !self.complete {
            self.notes.push(format!(
                "the survey was stopped by its time after {} files: what was not reached is taken to be like them",
                self.file_count
            ));
        }
        if self.bytes == 0 {
            return Err(Error::NoData { path: first.into() });
        }
        let Some(&none) = self.kind_numbers.get(NONE) else { return Ok(()) };
        let mut unnamed: Vec<usize> =
            (0..self.files.len()).filter(|file| self.files[*file].kind == none).collect();
        unnamed.sort_by_key(|file| std::cmp::Reverse(self.files[*file].size));
        for file in unnamed.into_iter().take(SNIFFED_MAX) {
            let entry = &self.files[file];
            let len = entry.size.min(512) as usize;
            let Ok(head) = self.read(entry, 0, len) else { continue };
            if let Some(known) = kind::by_content(&head.bytes) {
                self.files[file].kind = self.kind(known);
            }
        }
        Ok(())
    }

    pub(super) fn enter(&mut self, place: Place, size: u64, kind: u16, parts: Option<Vec<(u64, u64)>>) {
        let parts = parts.filter(|parts| parts.len() <= PARTS_MAX && *parts != [(0, size)]);
        self.file_count += 1;
        self.bytes += parts.as_ref().map_or(size, |parts| parts.iter().map(|(_, len)| len).sum());
        if self.files.len() == FILES_MAX {
            self.complete = false;
        } else {
            self.files.push(FileEntry { place, size, kind, parts: parts.map(Vec::into_boxed_slice) });
        }
    }

    pub(super) fn container(&mut self, container: Container) -> u16 {
        self.containers.push(container);
        u16::try_from(self.containers.len() - 1).expect("a command line names fewer")
    }

    pub(super) fn kind_of(&mut self, name: &[u8]) -> u16 {
        let kind = kind::by_name(name);
        self.kind(&kind)
    }

    pub(super) fn kind(&mut self, name: &str) -> u16 {
        if let Some(number) = self.kind_numbers.get(name) {
            return *number;
        }
        // More kinds than there are numbers are one.
        let name = if self.kinds.len() >= usize::from(u16::MAX) { NONE } else { name };
        let number = *self.kind_numbers.entry(name.to_owned()).or_insert(self.kinds.len() as u16);
        if usize::from(number) == self.kinds.len() {
            self.kinds.push(name.to_owned());
        }
        number
    }

    /// Whether all data is in memory.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.containers.iter().any(|container| matches!(container, Container::Stream(_)))
            && self.files.iter().all(|file| matches!(file.place, Place::Part { .. }))
    }

    /// Reads `len` bytes of a file from `offset` on.
    ///
    /// # Errors
    /// The system's, also if the file is not what it was.
    pub(crate) fn read(&self, entry: &FileEntry, offset: u64, len: usize) -> io::Result<Piece> {
        let mut bytes = vec![0; len];
        match &entry.place {
            Place::Path(path) => {
                let (file, _) = open(path)?;
                file.read_exact_at(&mut bytes, offset)?;
            }
            Place::Part { container, base } => match &self.containers[usize::from(*container)] {
                Container::File { file, .. } => file.read_exact_at(&mut bytes, base + offset)?,
                Container::Stream(pieces) => {
                    let (start, data) =
                        pieces.range(..=offset).next_back().ok_or(io::ErrorKind::UnexpectedEof)?;
                    let from = (offset - start) as usize;
                    let data = data.get(from..from + len).ok_or(io::ErrorKind::UnexpectedEof)?;
                    bytes.copy_from_slice(data);
                }
                Container::Dataset(_) => unreachable!("datasets hold objects"),
            },
            Place::Object { container, id } => {
                let Container::Dataset(fs) = &self.containers[usize::from(*container)] else {
                    unreachable!("objects are in datasets")
                };
                let mut at = 0;
                while at < len {
                    match fs.read(*id, offset + at as u64, &mut bytes[at..]).map_err(io::Error::other)? {
                        0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                        more => at += more,
                    }
                }
            }
        }
        let within = |(from, part): &(u64, u64)| -> Option<Range<usize>> {
            let (from, until) = ((*from).max(offset), (from + part).min(offset + len as u64));
            (from < until).then(|| (from - offset) as usize..(until - offset) as usize)
        };
        let data = match &entry.parts {
            None => std::iter::once(0..len).collect(),
            Some(parts) => parts.iter().filter_map(within).collect(),
        };
        Ok(Piece { file_size: entry.size, bytes, data })
    }

    /// What a file is called in messages.
    pub(crate) fn called(&self, entry: &FileEntry) -> String {
        match &entry.place {
            Place::Path(path) => path.display().to_string(),
            Place::Part { container, .. } => match &self.containers[usize::from(*container)] {
                Container::File { path, .. } => path.display().to_string(),
                _ => "standard input".to_owned(),
            },
            Place::Object { id, .. } => format!("object {}", id.0),
        }
    }
}
