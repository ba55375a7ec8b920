//! The bytes of a file in order, holes left out.

use std::fs::File;
use std::ops::Deref;
use std::os::unix::fs::FileExt;

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use zpl::{Filesystem, ObjectId, Piece, Place, Records};

use super::error::{CopyError, reading};
use super::facts::Facts;

/// Some bytes of a file.
pub struct Chunk {
    /// Where they are in the file.
    pub offset: u64,
    bytes: Bytes,
}

enum Bytes {
    Own(Vec<u8>),
    /// A record of a pool, which others may be reading too.
    Shared(Piece),
}

impl Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Own(bytes) => bytes,
            Bytes::Shared(piece) => piece.data().unwrap_or_default(),
        }
    }
}

impl Chunk {
    /// The bytes themselves.
    pub fn into_vec(self) -> Vec<u8> {
        match self.bytes {
            Bytes::Own(bytes) => bytes,
            Bytes::Shared(piece) => piece.data().unwrap_or_default().to_vec(),
        }
    }
}

/// A file open for reading from its start to its end.
pub enum Content {
    Local(Local),
    Pool(InPool),
}

/// A file of a pool.
pub struct InPool {
    fs: Filesystem,
    id: ObjectId,
    /// From the first piece on that is read.
    records: Option<Records>,
}

impl InPool {
    /// Where its blocks are.
    pub fn place(&self) -> Place<'_> {
        Place { fs: &self.fs, id: self.id, offset: 0 }
    }

    fn next(&mut self) -> Option<zpl::Result<Piece>> {
        if self.records.is_none() {
            match self.fs.read_records(self.id) {
                Ok(records) => self.records = Some(records),
                Err(error) => return Some(Err(error)),
            }
        }
        self.records.as_mut()?.next()
    }
}

pub struct Local {
    file: File,
    facts: Facts,
    at: u64,
    /// Up to here there are no holes.
    dense_to: u64,
}

impl Content {
    pub(super) fn local(file: File, facts: &Facts) -> Result<Content, CopyError> {
        if facts.size == 0 && file.read_at(&mut [0], 0).map_err(reading)? > 0 {
            return Err(CopyError::source("it has contents but says that it is empty"));
        }
        let dense_to = if facts.dense { facts.size } else { 0 };
        Ok(Content::Local(Local { file, facts: facts.clone(), at: 0, dense_to }))
    }

    pub(super) fn pool(fs: &Filesystem, id: ObjectId) -> Content {
        Content::Pool(InPool { fs: fs.clone(), id, records: None })
    }

    /// The next bytes that are not a hole. Those from this machine come in pieces that lie on borders of
    /// `record` bytes; those from a pool as they are stored.
    pub fn next(&mut self, record: u64) -> Result<Option<Chunk>, CopyError> {
        match self {
            Content::Local(local) => local.next(record),
            Content::Pool(file) => loop {
                match file.next() {
                    None => return Ok(None),
                    Some(Err(error)) => return Err(reading(error)),
                    Some(Ok(Piece::Hole { .. })) => {}
                    Some(Ok(piece @ Piece::Data { offset, .. })) => {
                        return Ok(Some(Chunk { offset, bytes: Bytes::Shared(piece) }));
                    }
                }
            },
        }
    }

    /// Says whether the file still is as it was when it was opened.
    pub fn check_unchanged(&self) -> Result<(), CopyError> {
        let Content::Local(local) = self else { return Ok(()) };
        use std::os::unix::fs::MetadataExt;
        let now = local.file.metadata().map_err(reading)?;
        let same = now.size() == local.facts.size
            && now.mtime() == local.facts.mtime.secs
            && now.mtime_nsec() as u64 == local.facts.mtime.nanos;
        if same { Ok(()) } else { Err(CopyError::changed()) }
    }
}

impl Local {
    /// The file itself.
    pub fn file(&self) -> &File {
        &self.file
    }

    fn next(&mut self, record: u64) -> Result<Option<Chunk>, CopyError> {
        let size = self.facts.size;
        if self.at >= self.dense_to && !self.skip_hole(record)? {
            return Ok(None);
        }
        if self.at >= size {
            return Ok(None);
        }
        let offset = self.at;
        let end = (offset / record + 1).saturating_mul(record).min(size);
        let len = (end - offset) as usize;
        let mut bytes = vec![0; len];
        let mut done = 0;
        while done < len {
            match self.file.read_at(&mut bytes[done..], offset + done as u64) {
                Ok(0) => return Err(CopyError::source("it became shorter while it was copied")),
                Ok(more) => done += more,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(reading(error)),
            }
        }
        self.at = end;
        Ok(Some(Chunk { offset, bytes: Bytes::Own(bytes) }))
    }

    /// Goes to the record that holds the next data; `false` at the end.
    fn skip_hole(&mut self, record: u64) -> Result<bool, CopyError> {
        let data = match rustix::fs::seek(&self.file, SeekFrom::Data(self.at)) {
            Ok(data) => data,
            Err(Errno::NXIO) => return Ok(false),
            // A file system that knows no holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                self.dense_to = self.facts.size;
                return Ok(true);
            }
            Err(error) => return Err(reading(error)),
        };
        let hole = rustix::fs::seek(&self.file, SeekFrom::Hole(data)).map_err(reading)?;
        self.at = self.at.max(data - data % record);
        self.dense_to = hole.min(self.facts.size);
        Ok(self.at < self.facts.size)
    }
}
