//! Files that are made without a name (`O_TMPFILE`), and their first one.
//!
//! They are in the unlinked set from the txg that makes them. Without a name, such a file is freed when it is closed, or at
//! the next mount after a crash. The intent log has no records of objects without names. So the first name has no record
//! either, because its replay would need an object that does not exist. A sync makes that name durable.
//!
//! Source: docs/format/07-zpl-sa.md §7.

use format::ObjectId;
use format::znode::Znode;
use pool::{Hold, SyncMode, Tx};

use crate::create::Named;
use crate::create::{NewDnode, acl_cost, assign_project};
use crate::fs::{NAME_COST, Opened};
use crate::{Error, FileKind, Filesystem, NewNode, Result};

/// Bytes of the first block of a file.
const BLOCK: u32 = 512;

impl Filesystem {
    /// Makes a regular file without a name and opens it as [`Filesystem::open_handle`] does. Closing it frees it, unless
    /// [`Filesystem::link`] gave it a name before. It inherits from `dir`; `dir` itself does not change.
    ///
    /// # Errors
    /// [`Error::Invalid`] for anything but a regular file; [`Error::NotDir`]; [`Error::NotFound`] when `dir` was
    /// removed; [`Error::NoSpace`], [`Error::Quota`].
    pub fn create_unnamed(&self, dir: ObjectId, new: &NewNode) -> Result<ObjectId> {
        if new.kind != FileKind::Regular {
            return Err(Error::Invalid);
        }
        self.wait_for_room();
        self.retrying(|| self.make_unnamed(dir, new))
    }

    fn make_unnamed(&self, dir: ObjectId, new: &NewNode) -> Result<ObjectId> {
        let _dir = self.inner.nodes.read(dir);
        let (dir_object, parent) = self.directory_for_change(dir)?;
        let mut znode = new.znode((dir, &parent), self.now())?;
        znode.links = 0;
        let acls = self.inherited_acls(&dir_object, &parent, &mut znode, new)?;
        if self.has_projects() {
            assign_project(&mut znode, Some(&parent));
        }
        self.check_new_owners(None, &znode)?;
        let tx = self.begin(Hold::write(NAME_COST + acl_cost(&acls)))?;
        self.count_pending_object(&tx, &znode)?;
        let dnode = NewDnode { id: None, slots: self.slots(), block_size: BLOCK };
        let object = self.new_object(&tx, &mut znode, dnode)?;
        let id = object.id();
        // It is opened before it enters the set, because open objects in the set are not freed.
        self.handles().insert(id, Opened { count: 1, unnamed: true });
        let kept = self.keep_acls(&tx, &object, &mut znode, acls);
        if let Err(error) = kept.and_then(|_| self.enter_unlinked(&tx, id)) {
            self.handles().remove(&id);
            self.unmake(&tx, object, &znode);
            return Err(error);
        }
        Ok(id)
    }

    /// Whether another name of `id` is its first link. The caller holds its lock.
    ///
    /// # Errors
    /// [`Error::NotFound`] when it had names and lost them.
    pub(crate) fn named(&self, id: ObjectId, znode: &Znode) -> Result<Named> {
        if znode.links > 0 {
            return Ok(Named::Again);
        }
        let unnamed = self.handles().get(&id).is_some_and(|opened| opened.unnamed);
        if unnamed { Ok(Named::First) } else { Err(Error::NotFound) }
    }

    /// Object `id` got its first name.
    pub(crate) fn first_name(&self, tx: &Tx, id: ObjectId) -> Result<()> {
        self.leave_unlinked(tx, id)?;
        self.note_unlogged(tx);
        if let Some(opened) = self.handles().get_mut(&id) {
            opened.unnamed = false;
        }
        Ok(())
    }

    /// Waits until a first name is on disk. The caller holds neither locks nor a transaction.
    pub(crate) fn settle(&self, named: Named) -> Result<()> {
        let dataset = &self.inner.dataset;
        match named {
            Named::First if dataset.settings().sync != SyncMode::Disabled => Ok(dataset.sync()?),
            _ => Ok(()),
        }
    }
}
