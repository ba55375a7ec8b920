//! Copies into a pool.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use format::ObjectId;
use zpl::rank::{MutexHeld, Rank, RankedMutex};
use zpl::{Error, FileKind, Filesystem, NewNode, NotCloned, Replace, SetAttr, Times, XattrMode};

use super::content::{Chunk, Content};
use super::error::{CopyError, made_twice, writing};
use super::folder;
use super::sink::{Moved, Sink, There, Wanted};
use crate::files::pools::Kernel;
use crate::own::Reflink;

/// A file system that is written.
pub struct ToPool {
    fs: Filesystem,
    record: u64,
    owner: (u32, u32),
    /// Its number among the file systems that are read, if it is one of them.
    number: Option<u64>,
    temporary: AtomicU64,
    kernel: Kernel,
    /// Folders that this run fills. Where several sources are copied they keep the record of what was made in them.
    filled: RankedMutex<HashMap<ObjectId, Option<PoolDir>>>,
    several_sources: bool,
    reflink: Reflink,
    /// Files have their names from the start: the whole pool is thrown away when the copy fails.
    named_first: bool,
}

/// A folder of the file system.
#[derive(Clone, Debug)]
pub struct PoolDir {
    /// The object.
    pub id: ObjectId,
    /// All nodes, except folders, that this run made in the folder or gave a name in it.
    made: Arc<RankedMutex<HashSet<ObjectId>>>,
}

impl PoolDir {
    /// The entries that this run made in the folder. A thread that makes, replaces or removes a name in it holds this
    /// lock meanwhile.
    fn made(&self) -> MutexHeld<'_, HashSet<ObjectId>> {
        self.made.lock()
    }
}

/// The place and the name of a copy.
struct Named<'a> {
    dir: &'a PoolDir,
    name: &'a [u8],
    /// It is complete after one transaction.
    at_once: bool,
}

impl ToPool {
    /// `owner` gets the nodes that have no owner of their own. `number` is set if the file system is also read.
    /// `several_sources`: folders of different sources that have the same name become one.
    pub fn new(
        fs: Filesystem,
        owner: (u32, u32),
        number: Option<u64>,
        kernel: Kernel,
        several_sources: bool,
    ) -> ToPool {
        let record = fs.dataset().settings().record_size;
        let (temporary, filled) = (AtomicU64::new(0), RankedMutex::default());
        let reflink = Reflink::Auto;
        let named_first = false;
        ToPool { fs, record, owner, number, temporary, kernel, filled, several_sources, reflink, named_first }
    }

    /// The same; files have their names before they are complete.
    pub fn naming_first(self) -> ToPool {
        ToPool { named_first: true, ..self }
    }

    /// Sets whether copies share the blocks of their sources, as `reflink` says.
    pub fn sharing(self, reflink: Reflink) -> ToPool {
        ToPool { reflink, ..self }
    }

    /// Whether a file may share the blocks of `content`.
    fn may_share(&self, content: &Content) -> bool {
        let Content::Pool(file) = content else { return self.reflink == Reflink::Always };
        let is_possible =
            || self.fs.dataset().is_cloning() && self.fs.dataset().may_share(file.place().fs.dataset());
        match self.reflink {
            Reflink::Never => false,
            Reflink::Auto => is_possible(),
            Reflink::Always => true,
        }
    }

    /// Makes the new file `id` share the blocks of `content`, or copies the content.
    fn share(
        &self,
        id: ObjectId,
        content: &mut Content,
        wanted: &Wanted,
        moved: Moved,
    ) -> Result<(), CopyError> {
        let cloned = match content {
            Content::Pool(file) => self.fs.clone_range(file.place(), (id, 0), wanted.size),
            Content::Local(_) => Err(Error::from(NotCloned::Across)),
        };
        match cloned {
            Ok(bytes) if bytes == wanted.size => moved(bytes),
            Err(error) if self.reflink == Reflink::Always => Err(writing(error)),
            Ok(_) if self.reflink == Reflink::Always => Err(writing(Error::from(NotCloned::Unsettled))),
            // It changes meanwhile, or is not on disk yet.
            Ok(_) | Err(Error::NotCloned(_)) => self.fill(id, None, content, wanted, moved),
            Err(error) => Err(writing(error)),
        }
    }

    /// Sets the attributes that make a copy complete, after its contents.
    fn complete(&self, id: ObjectId, wanted: &Wanted) -> Result<(), CopyError> {
        self.set_xattrs(id, wanted)?;
        let Some((atime, mtime)) = wanted.times else { return Ok(()) };
        let set = SetAttr { atime: Some(atime), mtime: Some(mtime), ..SetAttr::default() };
        self.fs.setattr(id, &set).map_err(writing)
    }

    /// The folder `id`.
    pub fn dir(&self, id: ObjectId) -> PoolDir {
        PoolDir { id, made: Arc::new(RankedMutex::new(Rank::Making, HashSet::new())) }
    }

    fn new_node(&self, wanted: &Wanted) -> NewNode {
        let (uid, gid) = wanted.owner.unwrap_or(self.owner);
        NewNode {
            uid,
            gid,
            inherits_group: wanted.owner.is_none(),
            rdev: wanted.rdev,
            times: wanted.times.map(|(atime, mtime)| Times { atime, mtime, ctime: None, crtime: None }),
            ..NewNode::new(wanted.kind, wanted.mode)
        }
    }

    /// Makes a node with `create`, calls `complete` for it, and gives it its name. A node that takes several
    /// transactions has a temporary name until it is complete, so a killed copy leaves no half of it. An existing node
    /// with the name is replaced when the new one is complete, unless this run made it.
    fn place(
        &self,
        Named { dir, name, at_once }: Named<'_>,
        wanted: &Wanted,
        create: impl FnOnce(&[u8]) -> Result<ObjectId, Error>,
        complete: impl FnOnce(ObjectId) -> Result<(), CopyError>,
    ) -> Result<ObjectId, CopyError> {
        let mut made = dir.made();
        let old = self.replaceable(dir, &made, name, wanted)?;
        if old.is_none() && (at_once || self.named_first) {
            let id = create(name).map_err(writing)?;
            made.insert(id);
            drop(made);
            let done = complete(id);
            if done.is_err() {
                self.withdraw(dir, name, id);
            }
            self.kernel.entry(dir.id, name);
            return done.map(|()| id);
        }
        drop(made);
        let other = self.free_name(dir)?;
        let id = create(&other).map_err(writing)?;
        let placed = complete(id).and_then(|()| self.publish(dir, (&other, name), wanted, id));
        if placed.is_err() {
            // The copy is of no use under this name; its error is reported below.
            let _ = self.fs.unlink(dir.id, &other);
        }
        self.kernel.entry(dir.id, name);
        placed.map(|()| id)
    }

    /// The node that has `name` and may be replaced; `None` if nothing has it.
    fn replaceable(
        &self,
        dir: &PoolDir,
        made: &HashSet<ObjectId>,
        name: &[u8],
        wanted: &Wanted,
    ) -> Result<Option<ObjectId>, CopyError> {
        let Some((id, kind)) = self.fs.lookup(dir.id, name).map_err(writing)? else { return Ok(None) };
        if kind == FileKind::Directory {
            return Err(CopyError::destination("a directory has that name"));
        }
        if made.contains(&id) {
            return Err(made_twice());
        }
        if self.number.is_some_and(|number| wanted.key == (number, id.0)) {
            return Err(CopyError::destination("it is the same file"));
        }
        Ok(Some(id))
    }

    /// A name that nothing in `dir` has.
    fn free_name(&self, dir: &PoolDir) -> Result<Vec<u8>, CopyError> {
        loop {
            let number = self.temporary.fetch_add(1, Ordering::Relaxed);
            let other = folder::temporary(number);
            if self.fs.lookup(dir.id, &other).map_err(writing)?.is_none() {
                return Ok(other);
            }
        }
    }

    /// Gives a complete copy its name.
    fn publish(
        &self,
        dir: &PoolDir,
        (other, name): (&[u8], &[u8]),
        wanted: &Wanted,
        id: ObjectId,
    ) -> Result<(), CopyError> {
        let mut made = dir.made();
        let replaced = self.replaceable(dir, &made, name, wanted)?;
        self.fs.rename(dir.id, other, dir.id, name, Replace::Allowed).map_err(writing)?;
        made.insert(id);
        if let Some(replaced) = replaced {
            self.kernel.node(replaced);
        }
        Ok(())
    }

    /// Takes a copy away again that could not be completed, unless something else has its name by now.
    fn withdraw(&self, dir: &PoolDir, name: &[u8], id: ObjectId) {
        let mut made = dir.made();
        made.remove(&id);
        if self.fs.lookup(dir.id, name).is_ok_and(|found| found.is_some_and(|(found, _)| found == id)) {
            // The first error is the useful one.
            let _ = self.fs.unlink(dir.id, name);
        }
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

    fn look(
        &self,
        dir: &PoolDir,
        name: &[u8],
        wanted: &Wanted,
    ) -> Result<Option<There<ObjectId>>, CopyError> {
        let Some(id) = self.replaceable(dir, &dir.made(), name, wanted)? else { return Ok(None) };
        let stat = self.fs.stat(id).map_err(writing)?;
        Ok(Some(There { kind: stat.kind, size: stat.size, mtime: stat.mtime, made: id }))
    }

    fn enter(&self, dir: &PoolDir, name: &[u8]) -> Result<Option<PoolDir>, CopyError> {
        match self.fs.lookup(dir.id, name).map_err(writing)? {
            None => Ok(None),
            Some((id, FileKind::Directory)) => Ok(Some(self.dir(id))),
            Some(_) => Err(CopyError::destination("something that is no directory has that name")),
        }
    }

    fn clear(&self, dir: &PoolDir) -> Result<u64, CopyError> {
        // Only this process changes the pool.
        let ended = |process: u32| process != std::process::id();
        let mut found = Vec::new();
        for entry in self.fs.entries(dir.id).map_err(writing)? {
            let entry = entry.map_err(writing)?;
            if entry.kind == FileKind::Regular && folder::writer_of(&entry.name).is_some_and(ended) {
                found.push(entry);
            }
        }
        for entry in &found {
            self.fs.unlink(dir.id, &entry.name).map_err(writing)?;
            self.kernel.entry(dir.id, &entry.name);
            self.kernel.node(entry.id);
        }
        Ok(found.len() as u64)
    }

    fn make_dir(&self, dir: &PoolDir, name: &[u8], wanted: &Wanted) -> Result<PoolDir, CopyError> {
        let folder = match self.fs.create(dir.id, name, &self.new_node(wanted)) {
            Ok(id) => {
                self.kernel.entry(dir.id, name);
                self.dir(id)
            }
            Err(Error::Exists) => match self.fs.lookup(dir.id, name).map_err(writing)? {
                Some((id, FileKind::Directory)) => self.dir(id),
                _ => return Err(CopyError::destination("something that is no directory has that name")),
            },
            Err(error) => return Err(writing(error)),
        };
        let mut filled = self.filled.lock();
        match filled.entry(folder.id) {
            Entry::Occupied(first) => first.get().clone().ok_or_else(made_twice),
            Entry::Vacant(none) => {
                none.insert(self.several_sources.then(|| folder.clone()));
                Ok(folder)
            }
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
        let new = self.new_node(wanted);
        let create = |name: &[u8]| self.fs.create(dir.id, name, &new);
        if wanted.size > 0 && self.may_share(content) {
            return self.place(Named { dir, name, at_once: false }, wanted, create, |id| {
                self.share(id, content, wanted, moved)?;
                self.complete(id, wanted)
            });
        }
        let mut first = content.next(self.record)?;
        let whole = match &first {
            Some(chunk) => {
                chunk.offset == 0 && chunk.len() as u64 == wanted.size && wanted.size <= self.record
            }
            None => wanted.size == 0,
        };
        if whole {
            moved(wanted.size)?;
            let bytes = first.take().map(Chunk::into_vec).unwrap_or_default();
            let create = |name: &[u8]| self.fs.create_with(dir.id, name, &new, bytes);
            let at_once = wanted.xattrs.is_empty();
            return self
                .place(Named { dir, name, at_once }, wanted, create, |id| self.set_xattrs(id, wanted));
        }
        self.place(Named { dir, name, at_once: false }, wanted, create, |id| {
            self.fill(id, first.take(), content, wanted, moved)?;
            self.complete(id, wanted)
        })
    }

    fn make_other(
        &self,
        dir: &PoolDir,
        name: &[u8],
        wanted: &Wanted,
        target: &[u8],
    ) -> Result<ObjectId, CopyError> {
        let new = self.new_node(wanted);
        let create = |name: &[u8]| match wanted.kind {
            FileKind::Symlink => self.fs.symlink(dir.id, name, &new, target),
            _ => self.fs.create(dir.id, name, &new),
        };
        self.place(Named { dir, name, at_once: true }, wanted, create, |id| self.set_xattrs(id, wanted))
    }

    fn link(&self, file: &ObjectId, dir: &PoolDir, name: &[u8]) -> Result<(), CopyError> {
        let mut made = dir.made();
        if let Some((id, kind)) = self.fs.lookup(dir.id, name).map_err(writing)? {
            if id == *file {
                return Ok(());
            }
            if kind == FileKind::Directory {
                return Err(CopyError::destination("a directory has that name"));
            }
            if made.contains(&id) {
                return Err(made_twice());
            }
            self.fs.unlink(dir.id, name).map_err(writing)?;
        }
        let done = self.fs.link(*file, dir.id, name).map_err(writing);
        if done.is_ok() {
            made.insert(*file);
        }
        self.kernel.entry(dir.id, name);
        self.kernel.node(*file);
        done
    }

    fn record(&self) -> u64 {
        self.record
    }
}
