//! Names: look-up, creation, rename and removal.

use format::Corrupt;

use super::permission::{self, Access};
use super::{Caller, Held, Session};
use crate::{DirEntry, Error, FileKind, NAME_MAX, Name, NewNode, ObjectId, Replace, Result};

/// A node that a program asks to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Creation {
    /// The directory.
    pub dir: ObjectId,
    /// The name in it.
    pub name: Vec<u8>,
    /// The type of the node.
    pub kind: FileKind,
    /// Permission bits (07777).
    pub mode: u32,
    /// The umask: bits removed from the mode, unless the directory has a default ACL.
    pub umask: u32,
    /// Device number as programs see it; for devices only.
    pub rdev: u32,
}

impl Creation {
    fn at(&self) -> Name<'_> {
        Name { dir: self.dir, name: &self.name }
    }
}

/// The meaning of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// This object.
    Object(ObjectId),
    /// A link that is shown in place of this directory.
    Link(ObjectId),
    /// The root of another file system, which is shown in place of this directory.
    Tree(ObjectId),
}

/// How to handle an object that has the new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rename {
    /// It goes.
    Replace,
    /// Keep it and fail (`RENAME_NOREPLACE`).
    Refuse,
    /// It gets the old name (`RENAME_EXCHANGE`).
    Exchange,
}

impl Session {
    /// The node of `name` in `dir`; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::NameTooLong`]; [`Error::Denied`]; the directory cannot be read.
    pub fn lookup(&self, by: &Caller, dir: ObjectId, name: &[u8]) -> Result<Option<Target>> {
        if name.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        self.demand(by, dir, Access::EXECUTE)?;
        Ok(self.fs()?.lookup(dir, name)?.map(|(id, _)| self.links.target_in(dir, id)))
    }

    /// As [`crate::Filesystem::resolve`], with the permissions of `by` for each look-up on the way.
    ///
    /// # Errors
    /// [`Error::Denied`]; as [`crate::Filesystem::resolve`].
    pub fn resolve(&self, by: &Caller, path: &[u8], follow_last: bool) -> Result<ObjectId> {
        let fs = self.fs()?;
        fs.resolve_with(path, follow_last, |dir, name| {
            self.demand(by, dir, Access::EXECUTE)?;
            fs.lookup(dir, name)?.ok_or(Error::NotFound)
        })
    }

    /// Counts one more use of `id` by the front end, if the object can be read.
    ///
    /// # Errors
    /// [`Error::NotFound`] when it is gone; [`Error::Damaged`].
    pub fn hold(&self, id: ObjectId) -> Result<Held> {
        let fs = self.fs()?;
        let turn = self.handles.hold(&fs, id)?;
        match fs.stat(id) {
            Ok(stat) => Ok(Held { stat, turn }),
            Err(error) => {
                self.handles.release(&fs, id, 1);
                Err(error)
            }
        }
    }

    /// As [`Session::hold`], for the node of a name in `dir`.
    ///
    /// A directory has one parent only. In a hostile pool, several directories may contain its name, even the directory
    /// itself. A front end that uses paths would loop in such a circle, so such a name is an error.
    ///
    /// # Errors
    /// As [`Session::hold`].
    pub fn hold_named(&self, dir: ObjectId, name: &[u8], id: ObjectId) -> Result<Held> {
        let held = self.hold(id)?;
        let parent = held.stat.parent;
        if held.stat.kind != FileKind::Directory || parent == dir && id != self.root {
            return Ok(held);
        }
        let fs = self.fs()?;
        let refusal = match fs.lookup(dir, name) {
            Ok(Some((again, _))) if again == id => {
                Error::damaged(id)(Corrupt::new("parent of a directory that another one names", parent.0))
            }
            // It was moved since the look-up.
            Ok(_) => Error::NotFound,
            Err(error) => error,
        };
        self.handles.release(&fs, id, 1);
        Err(refusal)
    }

    /// Releases `count` uses of `id` by the front end. Returns whether none is left.
    pub fn release(&self, id: ObjectId, count: u64) -> bool {
        self.fs().is_ok_and(|fs| self.handles.release(&fs, id, count))
    }

    /// The front end ended: releases everything.
    pub fn release_all(&self) {
        if let Ok(fs) = self.fs() {
            self.handles.clear(&fs);
        }
    }

    /// Some entries of a directory from `cookie` on (0: from the start), with `.zfs` if it is visible; none at the end.
    ///
    /// # Errors
    /// [`Error::Denied`]; the directory cannot be read.
    pub fn list(&self, by: &Caller, dir: ObjectId, cookie: u64) -> Result<Vec<DirEntry>> {
        self.demand(by, dir, Access::READ)?;
        if cookie == 0 {
            self.note_access(dir);
        }
        let mut entries = self.fs()?.readdir(dir, cookie)?;
        self.add_control(dir, cookie, &mut entries);
        Ok(entries)
    }

    /// The new node. It belongs to the caller; a setgid directory passes on its group.
    fn new_node(&self, by: &Caller, wanted: &Creation) -> Result<NewNode> {
        let mut mode = wanted.mode & 0o7777;
        if self.checks_here() {
            let dir = self.fs()?.protection(wanted.dir)?;
            permission::check_creation(&dir, wanted.kind, by)?;
            mode = permission::mode_in(&dir, wanted.kind, mode, by);
        }
        Ok(NewNode {
            umask: wanted.umask,
            uid: by.uid,
            gid: by.gid,
            inherits_group: true,
            rdev: wanted.rdev.into(),
            ..NewNode::new(wanted.kind, mode)
        })
    }

    /// Makes anything but a symbolic link.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::Denied`], [`Error::NotPermitted`]; as [`crate::Filesystem::create`].
    pub fn create(&self, by: &Caller, wanted: &Creation) -> Result<ObjectId> {
        self.check_writable()?;
        self.demand_name(by, wanted.at(), Rename::Refuse)?;
        let new = self.new_node(by, wanted)?;
        self.fs()?.create(wanted.dir, &wanted.name, &new)
    }

    /// Makes a file without a name (ignoring the name in `wanted`) and holds it for the front end.
    ///
    /// # Errors
    /// As [`Session::create`].
    pub fn create_unnamed(&self, by: &Caller, wanted: &Creation) -> Result<Held> {
        self.check_writable()?;
        let new = self.new_node(by, wanted)?;
        let fs = self.fs()?;
        let id = fs.create_unnamed(wanted.dir, &new)?;
        let held = self.hold(id);
        // From here on the hold keeps it. If the hold failed, closing the handle frees it.
        fs.close_handle(id)?;
        held
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// As [`Session::create`]; as [`crate::Filesystem::symlink`].
    pub fn symlink(&self, by: &Caller, wanted: &Creation, target: &[u8]) -> Result<ObjectId> {
        self.check_writable()?;
        self.demand_name(by, wanted.at(), Rename::Refuse)?;
        let new = self.new_node(by, wanted)?;
        self.fs()?.symlink(wanted.dir, &wanted.name, &new, target)
    }

    /// Target of a symbolic link. Using it is an access.
    ///
    /// # Errors
    /// [`Error::Invalid`] for anything else.
    pub fn readlink(&self, id: ObjectId) -> Result<Vec<u8>> {
        let target = self.fs()?.readlink(id)?;
        self.note_access(id);
        Ok(target)
    }

    /// Removes a name that is not a directory's.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::Busy`] for a directory with something else in its place; [`Error::Denied`],
    /// [`Error::NotPermitted`]; as [`crate::Filesystem::unlink`].
    pub fn unlink(&self, by: &Caller, dir: ObjectId, name: &[u8]) -> Result<()> {
        self.check_writable()?;
        self.check_no_link(Name { dir, name })?;
        self.demand_removal(by, Name { dir, name })?;
        self.fs()?.unlink_by(self.remover(by), dir, name)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As [`Session::unlink`]; as [`crate::Filesystem::rmdir`].
    pub fn rmdir(&self, by: &Caller, dir: ObjectId, name: &[u8]) -> Result<()> {
        self.check_writable()?;
        self.check_no_link(Name { dir, name })?;
        self.demand_removal(by, Name { dir, name })?;
        self.fs()?.rmdir_by(self.remover(by), dir, name)
    }

    /// Gives a file one more name.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::Denied`]; as [`crate::Filesystem::link`].
    pub fn link(&self, by: &Caller, id: ObjectId, dir: ObjectId, name: &[u8]) -> Result<()> {
        self.check_writable()?;
        self.demand_name(by, Name { dir, name }, Rename::Refuse)?;
        self.fs()?.link(id, dir, name)
    }

    /// Renames `from` to `to`.
    ///
    /// # Errors
    /// As [`Session::unlink`]; as [`crate::Filesystem::rename`].
    pub fn rename(&self, by: &Caller, from: Name<'_>, to: Name<'_>, how: Rename) -> Result<()> {
        self.check_writable()?;
        self.check_no_link(from)?;
        self.check_no_link(to)?;
        self.demand_rename(by, from, to, how)?;
        let fs = self.fs()?;
        let replace = match how {
            Rename::Replace => Replace::Allowed,
            Rename::Refuse => Replace::Refused,
            Rename::Exchange => return fs.exchange_by(self.remover(by), from, to),
        };
        fs.rename_by(self.remover(by), from, to, replace)
    }
}
