//! Removing names, and freeing objects without names.
//!
//! An object without names that is still open, or too large for one transaction, waits in the unlinked set; what
//! a crash leaves there is freed by [`Filesystem::drain_unlinked`].
//!
//! Source: docs/format/07-zpl-sa.md §7.

use std::sync::Arc;

use dmu::{Object, Tx, zap};
use format::ObjectId;
use format::zap::{Value, int_key, parse_int_key};
use format::zil::Body;
use format::znode::{Dirent, Time, Znode, pflags};
use pool::Hold;

use crate::change;
use crate::dir::is_dot;
use crate::node::{count_change, modified};
use crate::stat::is_kind;
use crate::{Error, FileKind, Filesystem, Result};

/// Sticky bit of a directory: only owners remove names.
const S_ISVTX: u64 = 0o1000;

/// The user who removes a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remover {
    /// A caller with the permission.
    Anybody,
    /// This user. In a sticky directory, the user must own the directory or the named object.
    User(u32),
}

/// How to handle an object whose last name is removed.
pub(crate) enum Fate {
    /// Move it to the unlinked set, because it is open, large or cannot be freed.
    Waits {
        /// It is large and not open, so the caller frees it right after this transaction.
        free_next: bool,
    },
    /// Free it at once, with its extended attributes.
    Freed(Vec<Arc<Object>>),
}

/// Result of one step of freeing an object.
enum Step {
    /// It freed some blocks; more are left.
    More,
    /// The object is gone.
    Freed,
    /// The object must not be freed, or another thread freed it.
    NotOurs,
}

impl Filesystem {
    /// Keeps object `id` until [`Filesystem::close_handle`], even if it loses all its names.
    ///
    /// # Errors
    /// [`Error::NotFound`] when it is gone.
    pub fn open_handle(&self, id: ObjectId) -> Result<()> {
        let _shared = self.inner.nodes.read(id);
        let (_, znode) = self.node(id)?;
        let mut handles = self.handles();
        if znode.links == 0 && !handles.contains_key(&id) {
            return Err(Error::NotFound);
        }
        handles.entry(id).or_default().count += 1;
        Ok(())
    }

    /// The counterpart of [`Filesystem::open_handle`]; frees the object with the last handle if it has no names.
    ///
    /// # Errors
    /// If the object cannot be freed now; it stays in the unlinked set then.
    ///
    /// # Panics
    /// If the object is not open.
    pub fn close_handle(&self, id: ObjectId) -> Result<()> {
        let node = self.inner.nodes.write(id);
        {
            let mut handles = self.handles();
            let opened = handles.get_mut(&id).expect("a handle is closed once");
            opened.count -= 1;
            if opened.count > 0 {
                return Ok(());
            }
            handles.remove(&id);
        }
        let (_, znode) = self.node(id)?;
        if znode.links > 0 || self.inner.dataset.check_writable().is_err() {
            return Ok(());
        }
        drop(node);
        self.free_unlinked(id).map(drop)
    }

    /// Removes a name that is not a directory's, and the object with its last name.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::IsDir`]; [`Error::NotPermitted`].
    pub fn unlink(&self, dir: ObjectId, name: &[u8]) -> Result<()> {
        self.unlink_by(Remover::Anybody, dir, name)
    }

    /// As [`Filesystem::unlink`], on behalf of `by`.
    pub(crate) fn unlink_by(&self, by: Remover, dir: ObjectId, name: &[u8]) -> Result<()> {
        self.changing(|| self.take_name(by, dir, name))
    }

    fn take_name(&self, by: Remover, dir: ObjectId, name: &[u8]) -> Result<()> {
        if is_dot(name) {
            return Err(Error::IsDir);
        }
        self.check_reserved(dir, name)?;
        let names = self.inner.names.write(dir);
        let dir_object = self.directory(dir)?;
        let found = self.find(&dir_object, name)?.ok_or(Error::NotFound)?;
        let nodes = self.inner.nodes.write_all(&[dir, found.id]);
        let (dir_object, parent) = self.directory_for_change(dir)?;
        let (object, znode) = self.node_for_change(found.id)?;
        if is_kind(&znode, FileKind::Directory) {
            return Err(Error::IsDir);
        }
        check_removable(&parent, &znode, by)?;
        let free_next = self.remove_link((dir_object, parent), found.name, (object, znode))?;
        drop((nodes, names));
        self.free_next(found.id, free_next);
        Ok(())
    }

    /// Removes a name from its directory, and a link from the object that it leads to. The caller holds the locks of both.
    /// Returns whether the object is to be freed next.
    fn remove_link(
        &self,
        (dir, mut parent): (Arc<Object>, Znode),
        name: Vec<u8>,
        (object, mut znode): (Arc<Object>, Znode),
    ) -> Result<bool> {
        let is_dir = is_kind(&znode, FileKind::Directory);
        let now = self.now();
        parent.size = parent.size.saturating_sub(1);
        parent.links = parent.links.saturating_sub(is_dir.into());
        modified(&mut parent, now);
        let fate = self.lose_link(&object, &mut znode, now)?;

        let tx = self.begin(Hold::free())?;
        zap::remove(&dir, &tx, &name)?;
        self.store(&dir, &tx, &parent)?;
        let free_next = self.meet(&tx, &object, &znode, fate)?;
        self.note_names(&tx, || Body::Remove { dir: dir.id(), name, is_dir });
        Ok(free_next)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::NotDir`]; [`Error::NotEmpty`]; [`Error::Invalid`] for `.` and `..`.
    pub fn rmdir(&self, dir: ObjectId, name: &[u8]) -> Result<()> {
        self.rmdir_by(Remover::Anybody, dir, name)
    }

    /// As [`Filesystem::rmdir`], on behalf of `by`.
    pub(crate) fn rmdir_by(&self, by: Remover, dir: ObjectId, name: &[u8]) -> Result<()> {
        self.changing(|| self.take_dir(by, dir, name))
    }

    fn take_dir(&self, by: Remover, dir: ObjectId, name: &[u8]) -> Result<()> {
        if is_dot(name) {
            return Err(Error::Invalid);
        }
        self.check_reserved(dir, name)?;
        let dir_object = self.directory(dir)?;
        loop {
            let candidate = self.find(&dir_object, name)?.ok_or(Error::NotFound)?.id;
            let names = self.inner.names.write_all(&[dir, candidate]);
            let found = self.find(&dir_object, name)?.ok_or(Error::NotFound)?;
            if found.id != candidate {
                continue;
            }
            let nodes = self.inner.nodes.write_all(&[dir, found.id]);
            let (dir_object, parent) = self.directory_for_change(dir)?;
            let (object, znode) = self.directory_for_change(found.id)?;
            check_removable(&parent, &znode, by)?;
            if zap::count(&object)? != 0 {
                return Err(Error::NotEmpty);
            }
            let free_next = self.remove_link((dir_object, parent), found.name, (object, znode))?;
            drop((nodes, names));
            self.free_next(found.id, free_next);
            return Ok(());
        }
    }

    /// Removes a name and, if it is a directory, everything below it.
    ///
    /// # Errors
    /// As [`Filesystem::unlink`] and [`Filesystem::rmdir`]; what was removed until then stays so.
    pub fn remove_tree(&self, dir: ObjectId, name: &[u8]) -> Result<()> {
        let (id, kind) = self.lookup(dir, name)?.ok_or(Error::NotFound)?;
        if kind != FileKind::Directory {
            return self.unlink(dir, name);
        }
        if is_dot(name) {
            return Err(Error::Invalid);
        }
        let mut todo = vec![(dir, name.to_vec(), id)];
        while let Some((parent, name, id)) = todo.last().cloned() {
            let depth = todo.len();
            for entry in self.entries(id)? {
                let entry = entry?;
                if entry.kind == FileKind::Directory {
                    todo.push((id, entry.name, entry.id));
                } else {
                    self.unlink(id, &entry.name)?;
                }
            }
            if todo.len() == depth {
                self.rmdir(parent, &name)?;
                todo.pop();
            }
        }
        Ok(())
    }

    /// Removes one link from `znode` and decides how to handle its object. Reads all blocks that freeing it needs.
    pub(crate) fn lose_link(
        &self,
        object: &Arc<Object>,
        znode: &mut Znode,
        now: Time,
    ) -> Result<Option<Fate>> {
        znode.ctime = now;
        count_change(znode);
        znode.links = if is_kind(znode, FileKind::Directory) { 0 } else { znode.links.saturating_sub(1) };
        if znode.links > 0 {
            return Ok(None);
        }
        let open = self.handles().contains_key(&object.id());
        if open || self.is_large(object) {
            return Ok(Some(Fate::Waits { free_next: !open }));
        }
        let doomed = self.doomed(object, znode)?;
        if let Err(error) = can_be_freed(&doomed) {
            tracing::warn!(object = object.id().0, %error, "its name goes, its space stays");
            return Ok(Some(Fate::Waits { free_next: false }));
        }
        Ok(Some(Fate::Freed(doomed)))
    }

    /// Carries out what [`Filesystem::lose_link`] decided; `true` when the object is to be freed next.
    pub(crate) fn meet(
        &self,
        tx: &Tx,
        object: &Arc<Object>,
        znode: &Znode,
        fate: Option<Fate>,
    ) -> Result<bool> {
        match fate {
            None => {
                self.store(object, tx, znode)?;
                Ok(false)
            }
            Some(Fate::Waits { free_next }) => {
                self.store(object, tx, znode)?;
                self.enter_unlinked(tx, object.id())?;
                Ok(free_next)
            }
            Some(Fate::Freed(doomed)) => {
                doomed.iter().for_each(|object| self.inner.objset.free_object(tx, object));
                Ok(false)
            }
        }
    }

    fn unlinked_set(&self) -> Result<Arc<Object>> {
        Ok(self.inner.objset.object(self.inner.unlinked)?)
    }

    /// Puts object `id` into the unlinked set.
    pub(crate) fn enter_unlinked(&self, tx: &Tx, id: ObjectId) -> Result<()> {
        let set = self.unlinked_set()?;
        Ok(zap::update(&set, tx, int_key(id.0).as_bytes(), &Value::from_u64(id.0))?)
    }

    /// Takes object `id` out of the unlinked set.
    pub(crate) fn leave_unlinked(&self, tx: &Tx, id: ObjectId) -> Result<()> {
        zap::remove(&self.unlinked_set()?, tx, int_key(id.0).as_bytes())?;
        Ok(())
    }

    /// The files in the hidden directory `dir` of extended attributes.
    pub(crate) fn hidden_files(&self, dir: ObjectId) -> Result<Vec<ObjectId>> {
        // This does not use `entries`, which may need a lock that the caller holds.
        let file = |entry: dmu::Result<zap::Entry>| {
            let value = entry?.number().unwrap_or(0);
            Ok(Dirent::decode(value).map_err(Error::damaged(dir))?.object)
        };
        zap::entries(&*self.directory(dir)?).map(file).collect()
    }

    /// The object and those of its extended attributes.
    pub(crate) fn doomed(&self, object: &Arc<Object>, znode: &Znode) -> Result<Vec<Arc<Object>>> {
        let mut doomed = Vec::new();
        let is_xattr_dir = znode.flags & pflags::XATTR != 0 && is_kind(znode, FileKind::Directory);
        let xattrs = if is_xattr_dir { Some(object.id()) } else { znode.xattr.filter(|id| id.0 != 0) };
        if let Some(dir) = xattrs {
            for id in self.hidden_files(dir)? {
                doomed.push(self.inner.objset.object(id)?);
            }
            if !is_xattr_dir {
                doomed.push(self.directory(dir)?);
            }
        }
        doomed.push(object.clone());
        // A damaged directory may name an object twice; it is freed once.
        doomed.sort_by_key(|object| object.id());
        doomed.dedup_by_key(|object| object.id());
        Ok(doomed)
    }

    /// Frees an object that just lost its last name, if [`Filesystem::lose_link`] decided so. On failure it stays in the
    /// unlinked set.
    pub(crate) fn free_next(&self, id: ObjectId, now: bool) {
        if now && let Err(error) = self.free_unlinked(id) {
            tracing::warn!(object = id.0, %error, "its name went, its space stays");
        }
    }

    /// Frees an object of the unlinked set in steps. The caller holds no lock; other threads can take locks between two
    /// steps. Returns whether the object was still there to free.
    pub(crate) fn free_unlinked(&self, id: ObjectId) -> Result<bool> {
        loop {
            self.wait_for_room();
            match self.retrying(|| self.free_step_of(id))? {
                Step::More => {}
                Step::Freed => return Ok(true),
                Step::NotOurs => return Ok(false),
            }
        }
    }

    /// Frees a part of an object that is in the unlinked set, or the object itself when little is left of it.
    fn free_step_of(&self, id: ObjectId) -> Result<Step> {
        let _node = self.inner.nodes.write(id);
        let (object, znode) = match self.node_for_change(id) {
            // Another thread freed it between two steps, and the number may be reused.
            Err(Error::NotFound) => return Ok(Step::NotOurs),
            found => found?,
        };
        // A new `O_TMPFILE` object is opened before it enters the set.
        let waits = zap::lookup(&*self.unlinked_set()?, int_key(id.0).as_bytes())?.is_some();
        if !waits || znode.links > 0 || self.handles().contains_key(&id) {
            return Ok(Step::NotOurs);
        }
        if self.is_large(&object) {
            let blocks = object.max_blkid() + 1;
            let step = blocks.saturating_sub(change::bounded_step(&self.inner.dataset, blocks));
            object.check_indirect(step, u64::MAX)?;
            let freed = object.blocks_to_free(step, u64::MAX);
            let tx = self.begin(Hold::free().of_blocks(freed))?;
            object.free_blocks(&tx, step, u64::MAX);
            return Ok(Step::More);
        }
        let doomed = self.doomed(&object, &znode)?;
        can_be_freed(&doomed)?;
        let freed = doomed.iter().map(|object| object.blocks_to_free(0, u64::MAX)).sum();
        let tx = self.begin(Hold::free().of_blocks(freed))?;
        self.leave_unlinked(&tx, id)?;
        doomed.iter().for_each(|object| self.inner.objset.free_object(&tx, object));
        Ok(Step::Freed)
    }

    /// Whether it is freed step by step.
    fn is_large(&self, object: &Object) -> bool {
        object.max_blkid() >= change::bounded_step(&self.inner.dataset, 0)
    }

    /// Number of objects in the unlinked set.
    ///
    /// # Errors
    /// If the set cannot be read.
    pub fn unlinked_count(&self) -> Result<u64> {
        let set = self.unlinked_set()?;
        zap::entries(&set).try_fold(0, |count, entry| Ok(entry.map(|_| count + 1)?))
    }

    /// Frees what a crash (or another system) left in the unlinked set; returns the number of objects freed. To be
    /// called once when a file system is opened for writing.
    ///
    /// # Errors
    /// If the set cannot be read. Files that cannot be read or freed stay in it.
    pub fn drain_unlinked(&self) -> Result<u64> {
        let set = self.unlinked_set()?;
        let names: Vec<Vec<u8>> = zap::entries(&set).map(|entry| Ok(entry?.name)).collect::<Result<_>>()?;
        let mut freed = 0;
        for name in names {
            let drained = parse_int_key(&name).map_err(Error::damaged(set.id())).and_then(|id| {
                Ok(!self.is_gone(ObjectId(id), &set, &name)? && self.free_unlinked(ObjectId(id))?)
            });
            match drained {
                Ok(was_there) => freed += u64::from(was_there),
                Err(error) => {
                    let name = String::from_utf8_lossy(&name);
                    tracing::warn!(%name, %error, "an unlinked object stays");
                }
            }
        }
        Ok(freed)
    }

    /// Whether the object does not exist. Then its entry is removed from the unlinked set.
    fn is_gone(&self, id: ObjectId, set: &Arc<Object>, name: &[u8]) -> Result<bool> {
        self.wait_for_room();
        self.retrying(|| self.take_if_gone(id, set, name))
    }

    fn take_if_gone(&self, id: ObjectId, set: &Arc<Object>, name: &[u8]) -> Result<bool> {
        let _node = self.inner.nodes.write(id);
        if zap::lookup(set, name)?.is_none() {
            // Another thread freed or linked it since the set was read.
            return Ok(true);
        }
        match self.node(id) {
            Err(Error::NotFound) => {
                let tx = self.begin(Hold::free())?;
                zap::remove(set, &tx, name)?;
                Ok(true)
            }
            Ok((_, znode)) if znode.links > 0 => {
                tracing::warn!(object = id.0, "an object with names is in the unlinked set");
                Ok(true)
            }
            // Read errors are reported when it is freed.
            _ => Ok(false),
        }
    }
}

/// Refuses a removal that flags of the directory or the node forbid.
pub(crate) fn check_removable(parent: &Znode, znode: &Znode, by: Remover) -> Result<()> {
    if let Remover::User(uid) = by
        && parent.mode & S_ISVTX != 0
        && ![parent.uid, znode.uid].contains(&uid.into())
    {
        return Err(Error::NotPermitted);
    }
    let node = pflags::IMMUTABLE | pflags::APPENDONLY | pflags::NOUNLINK;
    let dir = pflags::IMMUTABLE | pflags::APPENDONLY;
    if znode.flags & node != 0 || parent.flags & dir != 0 {
        return Err(Error::NotPermitted);
    }
    Ok(())
}

/// Checks that all blocks needed to free these objects can be read.
fn can_be_freed(doomed: &[Arc<Object>]) -> Result<()> {
    doomed.iter().try_for_each(|object| Ok(object.check_indirect(0, u64::MAX)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_sticky_directory_only_owners_remove_names() {
        let dir = |mode| Znode { mode, uid: 1, ..Znode::default() };
        let victim = Znode { uid: 10, ..Znode::default() };
        let may = |mode, by| check_removable(&dir(mode), &victim, by).is_ok();
        assert!(may(0o041_777, Remover::User(10)) && may(0o041_777, Remover::User(1)));
        assert!(!may(0o041_777, Remover::User(11)) && may(0o041_777, Remover::Anybody));
        assert!(may(0o040_777, Remover::User(11)));
    }
}
