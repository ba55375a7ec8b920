//! Making changes durable before their txg: the notes of each operation to the intent log, and `fsync`.
//!
//! From:   every operation that changes something, under its transaction.
//! To:     `pool`, which keeps the notes and writes the records.
//! Source: docs/format/08-zil.md §3, §4.2.

use dmu::Object;
use format::zil::{self, Body, Create, CreateKind, LoggedNode, Write, mask};
use format::znode::{Time, Znode};
use format::{BlockPtr, ObjectId, Txg};
use pool::zil::{Batch, Note};
use pool::{SyncMode, Tx};

use crate::change::{self, Range};
use crate::stat::is_kind;
use crate::{Error, FileKind, Filesystem, Result, SetAttr};

/// Bytes of a file's data that are read at once for its records.
pub(crate) const READ_STEP: u64 = 1 << 20;
/// Smallest write, in bytes, whose data is written to its final block instead of into the log.
pub(crate) const POINTED_MIN: u64 = 32 << 10;

impl Filesystem {
    /// `fsync`: blocks until all changes of object `id` so far, and all earlier changes of names, are durable. For `O_SYNC`,
    /// call it after each write. With `sync=disabled` it returns at once.
    ///
    /// # Errors
    /// The pool could not write.
    pub fn fsync(&self, id: ObjectId) -> Result<()> {
        self.make_safe(Some(id))
    }

    /// As [`Filesystem::fsync`] for everything in the file system.
    ///
    /// # Errors
    /// The pool could not write.
    pub fn commit_all(&self) -> Result<()> {
        self.make_safe(None)
    }

    /// Runs `change` after the write throttle, and restarts it as [`Filesystem::retrying`] does. With `sync=always`, the
    /// change is durable when this returns. The caller holds no locks.
    pub(crate) fn changing<T>(&self, change: impl FnMut() -> Result<T>) -> Result<T> {
        self.wait_for_room();
        let done = self.retrying(change)?;
        if change::is_synchronous(&self.inner.dataset) {
            self.make_safe(None)?;
        }
        Ok(done)
    }

    /// Whether each change must be durable when it returns (`sync=always`).
    #[must_use]
    pub fn is_synchronous(&self) -> bool {
        self.inner.dataset.settings().sync == SyncMode::Always
    }

    fn make_safe(&self, of: Option<ObjectId>) -> Result<()> {
        change::make_safe(&self.inner.dataset, of, |batch, txg, left| {
            let Range { object, offset, length } = left;
            match self.point_for_log(batch, txg, object, offset, length)? {
                None => self.read_for_log(object, offset, READ_STEP.min(length)),
                pointed => Ok(pointed),
            }
        })
    }

    /// A record of at most `length` bytes that points at their block. Used for large blocks, because it avoids writing the
    /// data twice.
    fn point_for_log(
        &self,
        batch: &mut Batch<'_>,
        txg: Txg,
        id: ObjectId,
        offset: u64,
        length: u64,
    ) -> Result<Option<Write>> {
        let (object, part) = {
            let _shared = self.inner.nodes.read(id);
            let Ok((object, znode)) = self.file(id) else { return Ok(None) };
            let block = object.block_size();
            let part = length.min(block - offset % block).min(znode.size.saturating_sub(offset));
            let large = length >= POINTED_MIN && part >= block / 2;
            // OpenZFS replays the whole block. A file that ends within the block would become longer.
            let inside = offset - offset % block + block <= znode.size;
            if znode.links == 0 || !inside || part == 0 || !large && !self.inner.dataset.settings().log_points
            {
                return Ok(None);
            }
            (object, part)
        };
        let ptr = batch.place_data(txg, &object, offset)?;
        Ok(ptr.map(|ptr| Write { object: id, offset, length: part, block_offset: 0, ptr, data: None }))
    }

    /// A record of the present data of the file there; `None` if the file has no names any more or is shorter.
    fn read_for_log(&self, id: ObjectId, offset: u64, len: u64) -> Result<Option<Write>> {
        let _shared = self.inner.nodes.read(id);
        let (object, znode) = match self.file(id) {
            Ok(found) => found,
            Err(Error::NotFound | Error::IsDir | Error::Invalid) => return Ok(None),
            Err(error) => return Err(error),
        };
        let len = znode.size.saturating_sub(offset).min(len);
        if znode.links == 0 || len == 0 {
            return Ok(None);
        }
        let mut data = vec![0; len as usize];
        object.read(offset, &mut data)?;
        let ptr = BlockPtr::HOLE;
        Ok(Some(Write { object: id, offset, length: len, block_offset: 0, ptr, data: Some(data) }))
    }

    /// A change of names was made.
    pub(crate) fn note_names(&self, tx: &Tx, body: impl FnOnce() -> Body) {
        self.inner.dataset.note(tx, None, || Note::Done(Box::new(body())));
    }

    /// Notes a change of object `id` only. Objects without names need no note, because a crash removes them.
    pub(crate) fn note_node(&self, tx: &Tx, id: ObjectId, znode: &Znode, body: impl FnOnce() -> Body) {
        if znode.links > 0 {
            self.inner.dataset.note(tx, Some(id), || Note::Done(Box::new(body())));
        }
    }

    /// Data was written.
    pub(crate) fn note_data(&self, tx: &Tx, id: ObjectId, znode: &Znode, offset: u64, length: u64) {
        if znode.links > 0 && length > 0 {
            self.inner.dataset.note(tx, Some(id), || Note::Data { object: id, offset, length });
        }
    }

    /// Notes a change that no record can express.
    pub(crate) fn note_unlogged(&self, tx: &Tx) {
        self.inner.dataset.note_unlogged(tx);
    }

    /// Notes a new node `name` in `dir`.
    pub(crate) fn note_create(&self, tx: &Tx, dir: ObjectId, name: &[u8], object: &Object, znode: &Znode) {
        let id = object.id();
        self.note_names(tx, || created(dir, name, object, znode));
        // The record has only the time of creation.
        if znode.atime != znode.crtime || znode.mtime != znode.crtime {
            let set = SetAttr { atime: Some(znode.atime), mtime: Some(znode.mtime), ..SetAttr::default() };
            self.note_names(tx, || set_attr(id, &set, znode));
        }
        if is_kind(znode, FileKind::Regular) {
            self.note_data(tx, id, znode, 0, znode.size);
        }
    }
}

/// The record of a new node.
pub(crate) fn created(dir: ObjectId, name: &[u8], object: &Object, znode: &Znode) -> Body {
    Body::Create(Create {
        kind: match znode.symlink {
            Some(_) => CreateKind::Symlink,
            None if is_kind(znode, FileKind::Directory) => CreateKind::Dir,
            None => CreateKind::File,
        },
        dir,
        node: LoggedNode {
            object: object.id(),
            slots: object.head().slots,
            mode: znode.mode,
            uid: znode.uid,
            gid: znode.gid,
            generation: znode.generation,
            crtime: znode.crtime,
            rdev: znode.rdev.unwrap_or(0),
        },
        acl: None,
        attrs: None,
        domains: Vec::new(),
        name: name.to_vec(),
        target: znode.symlink.clone(),
    })
}

/// The record of a change of attributes. `None` if a record cannot express it.
pub(crate) fn set_attr(object: ObjectId, set: &SetAttr, znode: &Znode) -> Body {
    let bit = |wanted: bool, bit: u64| if wanted { bit } else { 0 };
    let zero = Time { secs: 0, nanos: 0 };
    Body::SetAttr(zil::SetAttr {
        object,
        mask: bit(set.mode.is_some(), mask::MODE)
            | bit(set.uid.is_some(), mask::UID)
            | bit(set.gid.is_some(), mask::GID)
            | bit(set.atime.is_some(), mask::ATIME)
            | bit(set.mtime.is_some(), mask::MTIME)
            | mask::CTIME,
        mode: set.mode.map_or(0, |_| znode.mode),
        uid: set.uid.map_or(0, u64::from),
        gid: set.gid.map_or(0, u64::from),
        size: 0,
        atime: set.atime.unwrap_or(zero),
        mtime: set.mtime.unwrap_or(zero),
        attrs: None,
        domains: Vec::new(),
    })
}
