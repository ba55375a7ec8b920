//! Changing what `stat` shows.

use super::permission::{self, Access};
use super::{Caller, Notice, Session};
use crate::{ObjectId, Protection, Result, SetAttr, Stat, Time};

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// This moment.
    Now,
    /// That of the caller.
    At(Time),
}

/// A requested change of attributes. `None` leaves an attribute unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Permission bits (07777).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes of a regular file.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<When>,
    /// Last change of contents.
    pub mtime: Option<When>,
    /// Status change time. Only a write-back cache sets it.
    pub ctime: Option<Time>,
}

impl Change {
    /// Whether it changes nothing.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Change::default()
    }

    fn changes_owner(&self) -> bool {
        self.uid.is_some() || self.gid.is_some()
    }

    /// Refuses changes of `node` that `by` may not make.
    fn check(&self, node: &Protection, by: &Caller) -> Result<()> {
        if self.mode.is_some() {
            permission::check_owner(node, by)?;
        }
        if self.changes_owner() {
            permission::check_new_owner(node, self.uid, self.gid, by)?;
        }
        if self.size.is_some() && node.uid != by.uid {
            permission::check_access(node, by, Access::WRITE)?;
        }
        if self.ctime.is_some() {
            permission::check_root(by)?;
        }
        if self.atime.is_some() || self.mtime.is_some() {
            let is_now = [self.atime, self.mtime].iter().all(|time| matches!(time, Some(When::Now)));
            permission::check_times(node, is_now, by)?;
        }
        Ok(())
    }
}

impl Session {
    /// The attributes that `stat` shows.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Damaged`].
    pub fn stat(&self, id: ObjectId) -> Result<Stat> {
        self.fs()?.stat(id)
    }

    /// Changes attributes, and drops set-id bits as a change of owner or a truncation does.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::Denied`], [`Error::NotPermitted`]; as [`crate::Filesystem::setattr`].
    pub fn set_attributes(&self, by: &Caller, id: ObjectId, change: &Change) -> Result<()> {
        self.check_writable()?;
        let fs = self.fs()?;
        let mut mode = change.mode.map(|mode| mode & 0o7777);
        if self.checks_here() {
            let node = fs.protection(id)?;
            change.check(&node, by)?;
            let gid = change.gid.unwrap_or(node.gid);
            mode = mode.map(|mode| permission::mode_after_chmod(mode, gid, by));
        }
        let when = |time: When| match time {
            When::At(time) => time,
            When::Now => fs.now(),
        };
        let set = SetAttr {
            mode,
            uid: change.uid,
            gid: change.gid,
            size: change.size,
            atime: change.atime.map(when),
            mtime: change.mtime.map(when),
            ctime: change.ctime,
            ..SetAttr::default()
        };
        // A mode in the same request takes precedence.
        if set.mode.is_none() && (change.changes_owner() || set.size.is_some() && !by.is_root()) {
            self.drop_set_ids(by, id)?;
        }
        if set == SetAttr::default() { Ok(()) } else { fs.setattr(id, &set) }
    }

    /// As [`Session::drop_privileges`], for a change by `by` that the front end knows about.
    pub(super) fn drop_set_ids(&self, by: &Caller, id: ObjectId) -> Result<()> {
        let fs = self.fs()?;
        if self.checks_here() {
            let node = fs.protection(id)?;
            let mode = permission::mode_after_change(&node, by);
            if mode != node.mode {
                fs.setattr(id, &SetAttr { mode: Some(mode), ..SetAttr::default() })?;
            }
        }
        fs.drop_privileges(id)
    }

    /// Removes set-id bits and file capabilities from a file.
    ///
    /// # Errors
    /// As [`crate::Filesystem::setattr`].
    pub fn drop_privileges(&self, id: ObjectId) -> Result<()> {
        self.fs()?.drop_privileges(id)?;
        // Without this notice the front end would show the old mode.
        self.changed(Notice::Attributes(id));
        Ok(())
    }
}
