//! Copies into a pool.

use std::sync::atomic::{AtomicU64, Ordering};

use format::ObjectId;
use zpl::{Error, FileKind, Filesystem, NewNode, Replace, SetAttr, Times, XattrMode};

use super::content::{Chunk, Content};
use super::error::{CopyError, writing};
use super::sink::{Moved, Sink, Wanted};
use crate::own::pools::Kernel;

/// A file system that is written.
pub struct ToPool {
    fs: Filesystem,
    record: u64,
    owner: (u32, u32),
    /// Its number among the file systems that are read, if it is one of them.
    number: Option<u64>,
    temporary: AtomicU64,
    kernel: Kernel,
}

/// A folder of the file system.
#[derive(Clone, Debug)]
pub struct PoolDir {
    /// The object.
    pub id: ObjectId,
    /// Group of everything made in it, where it has the setgid bit.
    group: Option<u32>,
}

impl ToPool {
    /// `owner` owns what has no owner of its own; `number` is set if the file system is read, too.
    pub fn new(fs: Filesystem, owner: (u32, u32), number: Option<u64>, kernel: Kernel) -> ToPool {
        let record = fs.dataset().settings().record_size;
        ToPool { fs, record, owner, number, temporary: AtomicU64::new(0), kernel }
    }

    /// The folder `id`.
    pub fn dir(&self, id: ObjectId) -> Result<PoolDir, Error> {
        let stat = self.fs.stat(id)?;
        Ok(PoolDir { id, group: (stat.mode & 0o2000 != 0).then_some(stat.gid) })
    }

    fn new_node(&self, dir: &PoolDir, wanted: &Wanted) -> NewNode {
        let (uid, gid) = wanted.owner.unwrap_or((self.owner.0, dir.group.unwrap_or(self.owner.1)));
        let inherits = wanted.owner.is_none() && dir.group.is_some() && wanted.kind == FileKind::Directory;
        NewNode {
            uid,
            gid,
            rdev: wanted.rdev,
            times: wanted.times.map(|(atime, mtime)| Times { atime, mtime, ctime: None, crtime: None }),
            ..NewNode::new(wanted.kind, wanted.mode | if inherits { 0o2000 } else { 0 })
        }
    }

    /// Calls `make` with the name, or, if something has it, with another one that then takes its place.
    fn placing<T>(
        &self,
        dir: &PoolDir,
        name: &[u8],
        wanted: &Wanted,
        mut make: impl FnMut(&[u8]) -> Result<T, CopyError>,
    ) -> Result<T, CopyError> {
        let Some((id, kind)) = self.fs.lookup(dir.id, name).map_err(writing)? else {
            let made = make(name);
            self.kernel.entry(dir.id, name);
            return made;
        };
        if kind == FileKind::Directory {
            return Err(CopyError::destination("a directory has that name"));
        }
        if self.number.is_some_and(|number| wanted.key == (number, id.0)) {
            return Err(CopyError::destination("it is the same file"));
        }
        let other = loop {
            let number = self.temporary.fetch_add(1, Ordering::Relaxed);
            let other = format!(".cenote-{}-{number}", std::process::id()).into_bytes();
            if self.fs.lookup(dir.id, &other).map_err(writing)?.is_none() {
                break other;
            }
        };
        let made = make(&other)?;
        let renamed = self.fs.rename(dir.id, &other, dir.id, name, Replace::Allowed);
        if renamed.is_err() {
            // The copy is of no use under this name; that the name stays taken is said below.
            let _ = self.fs.unlink(dir.id, &other);
        }
        self.kernel.entry(dir.id, name);
        self.kernel.node(id);
        renamed.map(|()| made).map_err(writing)
    }

    fn set_xattrs(&self, id: ObjectId, wanted: &Wanted) -> Result<(), CopyError> {
        for (name, value) in &wanted.xattrs {
            self.fs.xattr_set(id, name, value, XattrMode::Either).map_err(writing)?;
        }
        Ok(())
    }

    /// A file of several records, or with holes.
    fn fill(
        &self,
        id: ObjectId,
        first: Option<Chunk>,
        content: &mut Content,
        wanted: &Wanted,
        moved: Moved,
    ) -> Result<(), CopyError> {
        let mut writer =
            Writer { fs: &self.fs, id, record: self.record, start: 0, pending: Vec::new(), end: 0 };
        let mut next = first;
        loop {
            let chunk = match next.take() {
                Some(chunk) => chunk,
                None => match content.next(self.record)? {
                    Some(chunk) => chunk,
                    None => break,
                },
            };
            moved(chunk.len() as u64)?;
            writer.put(chunk)?;
        }
        writer.flush()?;
        if writer.end < wanted.size {
            self.fs.truncate(id, wanted.size).map_err(writing)?;
        }
        Ok(())
    }
}

/// Gathers pieces into records.
struct Writer<'a> {
    fs: &'a Filesystem,
    id: ObjectId,
    record: u64,
    /// Where the pending bytes begin: on a border of records.
    start: u64,
    pending: Vec<u8>,
    /// End of what was written.
    end: u64,
}

impl Writer<'_> {
    fn put(&mut self, chunk: Chunk) -> Result<(), CopyError> {
        let (mut offset, len) = (chunk.offset, chunk.len() as u64);
        if self.pending.is_empty() && offset % self.record == 0 && len == self.record {
            return self.write(offset, chunk.into_vec());
        }
        let mut bytes = &chunk[..];
        while !bytes.is_empty() {
            let border = offset - offset % self.record;
            if border != self.start && !self.pending.is_empty() {
                self.flush()?;
            }
            self.start = border;
            let room = border + self.record - offset;
            let (now, later) = bytes.split_at(bytes.len().min(room as usize));
            self.pending.resize((offset - border) as usize, 0);
            self.pending.extend_from_slice(now);
            offset += now.len() as u64;
            bytes = later;
            if self.pending.len() as u64 == self.record {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CopyError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let bytes = std::mem::take(&mut self.pending);
        self.write(self.start, bytes)
    }

    fn write(&mut self, offset: u64, bytes: Vec<u8>) -> Result<(), CopyError> {
        self.end = offset + bytes.len() as u64;
        self.fs.write_record(self.id, offset, bytes).map_err(writing)
    }
}

impl Sink for ToPool {
    type Dir = PoolDir;
    type Made = ObjectId;

    fn make_dir(&self, dir: &PoolDir, name: &[u8], wanted: &Wanted) -> Result<PoolDir, CopyError> {
        match self.fs.create(dir.id, name, &self.new_node(dir, wanted)) {
            Ok(id) => {
                self.kernel.entry(dir.id, name);
                self.dir(id).map_err(writing)
            }
            Err(Error::Exists) => match self.fs.lookup(dir.id, name).map_err(writing)? {
                Some((id, FileKind::Directory)) => self.dir(id).map_err(writing),
                _ => Err(CopyError::destination("something that is no directory has that name")),
            },
            Err(error) => Err(writing(error)),
        }
    }

    fn finish_dir(&self, dir: &PoolDir, wanted: &Wanted) -> Result<(), CopyError> {
        let Some((atime, mtime)) = wanted.times else { return Ok(()) };
        self.set_xattrs(dir.id, wanted)?;
        let (uid, gid) = wanted.owner.unwrap_or(self.owner);
        let set = SetAttr {
            mode: Some(wanted.mode),
            uid: Some(uid),
            gid: Some(gid),
            atime: Some(atime),
            mtime: Some(mtime),
            ..SetAttr::default()
        };
        let done = self.fs.setattr(dir.id, &set).map_err(writing);
        self.kernel.node(dir.id);
        done
    }

    fn make_file(
        &self,
        dir: &PoolDir,
        name: &[u8],
        wanted: &Wanted,
        content: &mut Content,
        moved: Moved,
    ) -> Result<ObjectId, CopyError> {
        let new = self.new_node(dir, wanted);
        let mut first = content.next(self.record)?;
        let whole = match &first {
            Some(chunk) => {
                chunk.offset == 0 && chunk.len() as u64 == wanted.size && wanted.size <= self.record
            }
            None => wanted.size == 0,
        };
        self.placing(dir, name, wanted, |name| {
            if whole {
                moved(wanted.size)?;
                let bytes = first.take().map(Chunk::into_vec).unwrap_or_default();
                let id = self.fs.create_with(dir.id, name, &new, bytes).map_err(writing)?;
                return self.clean_up(dir, name, id, self.set_xattrs(id, wanted));
            }
            let id = self.fs.create(dir.id, name, &new).map_err(writing)?;
            let mut fill = || {
                self.fill(id, first.take(), content, wanted, moved)?;
                self.set_xattrs(id, wanted)?;
                let Some((atime, mtime)) = wanted.times else { return Ok(()) };
                let set = SetAttr { atime: Some(atime), mtime: Some(mtime), ..SetAttr::default() };
                self.fs.setattr(id, &set).map_err(writing)
            };
            self.clean_up(dir, name, id, fill())
        })
    }

    fn make_other(
        &self,
        dir: &PoolDir,
        name: &[u8],
        wanted: &Wanted,
        target: &[u8],
    ) -> Result<ObjectId, CopyError> {
        let new = self.new_node(dir, wanted);
        self.placing(dir, name, wanted, |name| {
            let id = match wanted.kind {
                FileKind::Symlink => self.fs.symlink(dir.id, name, &new, target),
                _ => self.fs.create(dir.id, name, &new),
            };
            let id = id.map_err(writing)?;
            self.clean_up(dir, name, id, self.set_xattrs(id, wanted))
        })
    }

    fn link(&self, made: &ObjectId, dir: &PoolDir, name: &[u8]) -> Result<(), CopyError> {
        if let Some((id, kind)) = self.fs.lookup(dir.id, name).map_err(writing)? {
            if id == *made {
                return Ok(());
            }
            if kind == FileKind::Directory {
                return Err(CopyError::destination("a directory has that name"));
            }
            self.fs.unlink(dir.id, name).map_err(writing)?;
        }
        let done = self.fs.link(*made, dir.id, name).map_err(writing);
        self.kernel.entry(dir.id, name);
        self.kernel.node(*made);
        done
    }

    fn record(&self) -> u64 {
        self.record
    }
}

impl ToPool {
    /// Takes a copy away again that could not be completed.
    fn clean_up(
        &self,
        dir: &PoolDir,
        name: &[u8],
        id: ObjectId,
        done: Result<(), CopyError>,
    ) -> Result<ObjectId, CopyError> {
        done.map(|()| id).inspect_err(|_| {
            // What made the copy fail is what its reader wants to know.
            let _ = self.fs.unlink(dir.id, name);
        })
    }
}
