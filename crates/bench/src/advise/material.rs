//! The data of the request: the result of [`super::survey`], and pieces of it.
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

/// Files that are remembered; of more, those that the walk met first.
pub(super) const FILES_MAX: usize = 1_000_000;
/// Parts of a sparse file that are remembered.
const PARTS_MAX: usize = 10_000;

/// Data to be asked about.
#[derive(Debug, Default)]
pub struct Material {
    pub(crate) files: Vec<FileEntry>,
    /// Names of kinds of files; a file has a number of one.
    pub(crate) kinds: Vec<String>,
    pub(super) kind_numbers: HashMap<String, u16>,
    containers: Vec<Container>,
    pub(super) seen: HashSet<(u64, u64)>,
    /// The data that were asked about, in words.
    pub(crate) subject: String,
    /// The local folder it is in, where there is one.
    pub(crate) folder: Option<PathBuf>,
    pub(crate) folders: u64,
    /// Those of them with so few names that the pointer holds them all.
    pub(crate) short_folders: u64,
    /// Bytes of all files, known holes left out.
    pub(crate) bytes: u64,
    /// Bytes of the files that are remembered.
    remembered: u64,
    /// Files, those that are not remembered too.
    pub(crate) file_count: u64,
    /// The time was over before all folders were looked at.
    pub(super) stopped: bool,
    /// The time was over before a stream ended.
    pub(super) cut: bool,
    /// A part of a stream was dropped: not all of its pieces were kept.
    pub(super) thinned: bool,
    pub(crate) notes: Vec<String>,
    /// Files and folders that were left out.
    pub(crate) unreadable: u64,
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

impl FileEntry {
    /// Bytes that are in no known hole.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.parts.as_ref().map_or(self.size, |parts| parts.iter().map(|(_, len)| len).sum())
    }

    /// Where its data begins and where it ends; `None` if it has none.
    pub(crate) fn data_ends(&self) -> Option<(u64, u64)> {
        match &self.parts {
            Some(parts) => Some((parts.first()?.0, parts.last().map(|(offset, len)| offset + len)?)),
            None => (self.size > 0).then_some((0, self.size)),
        }
    }
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

/// The bytes that fit into a block pointer, the size that lz4 gives a folder without names, and the bytes of a name
/// besides its letters. Folders with three names of 6 letters, or two of 20, take no sector; those with three of 20 or
/// six of 6 do.
const IN_POINTER: u64 = 112;
const NO_NAMES: u64 = 30;
const NAME: u64 = 12;

impl Material {
    /// An empty one.
    #[must_use]
    pub fn new() -> Material {
        Material::default()
    }

    /// Counts a folder with so many names of together `bytes` bytes.
    pub(super) fn count_folder(&mut self, names: u64, bytes: u64) {
        self.folders += 1;
        self.short_folders += u64::from(NO_NAMES + NAME * names + bytes <= IN_POINTER);
    }

    /// The survey is complete, and all data can be sampled.
    pub(crate) fn complete(&self) -> bool {
        !self.stopped && !self.cut && !self.thinned && self.lost_files() == 0
    }

    /// The number of bytes of a file that each examined byte represents.
    pub(crate) fn weight(&self, file: &FileEntry) -> f64 {
        let of_pieces = self.stands_for(file) as f64 / file.data_bytes().max(1) as f64;
        of_pieces * (self.bytes as f64 / self.remembered.max(1) as f64)
    }

    /// Bytes of data that a file has, those of a stream that were not kept too.
    pub(crate) fn stands_for(&self, file: &FileEntry) -> u64 {
        let is_stream = |container: u16| {
            matches!(self.containers.get(usize::from(container)), Some(Container::Stream(_)))
        };
        match file.place {
            Place::Part { container, .. } if is_stream(container) => file.size,
            _ => file.data_bytes(),
        }
    }

    /// Files that were seen but are not remembered.
    pub(super) fn lost_files(&self) -> u64 {
        self.file_count - self.files.len() as u64
    }

    pub(super) fn enter(&mut self, place: Place, size: u64, kind: u16, parts: Option<Vec<(u64, u64)>>) {
        let parts = parts.filter(|parts| parts.len() <= PARTS_MAX && *parts != [(0, size)]);
        let file = FileEntry { place, size, kind, parts: parts.map(Vec::into_boxed_slice) };
        let bytes = self.stands_for(&file);
        self.file_count += 1;
        self.bytes += bytes;
        if self.files.len() < FILES_MAX {
            self.remembered += bytes;
            self.files.push(file);
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

    /// The name of a file in messages.
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
