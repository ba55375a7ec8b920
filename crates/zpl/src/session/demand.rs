//! Permission checks: loads the attributes that the rules need, if this session checks permissions.
//!
//! Rules are checked before the change, not in its transaction. If another thread changes a mode at the same moment, this
//! call counts as the earlier one. One rule is checked again under the locks of the change: which names may be removed from
//! a sticky directory. Otherwise a user could replace the file between check and removal, and so remove another user's file.

use super::permission::{self, Access};
use super::{Caller, Checks, Name, Rename, Session};
use crate::remove::Remover;
use crate::{Error, FileKind, ObjectId, Protection, Result};

impl Session {
    /// Whether this session checks permissions.
    pub(crate) fn checks_here(&self) -> bool {
        self.checks == Checks::Here
    }

    /// Checks `rule` for a node, if this session checks permissions.
    pub(crate) fn ask(&self, id: ObjectId, rule: impl FnOnce(&Protection) -> Result<()>) -> Result<()> {
        if self.checks_here() { rule(&self.fs()?.protection(id)?) } else { Ok(()) }
    }

    /// Refuses an access that is not granted, if this session checks permissions.
    ///
    /// # Errors
    /// [`Error::Denied`].
    pub fn demand(&self, by: &Caller, id: ObjectId, wanted: Access) -> Result<()> {
        self.ask(id, |node| permission::check_access(node, by, wanted))
    }

    /// As [`Session::demand`], for the contents of a file that the caller may have opened before its mode changed. The owner
    /// always has access, because a front end without handles cannot know.
    pub(crate) fn demand_contents(&self, by: &Caller, id: ObjectId, wanted: Access) -> Result<()> {
        self.ask(id, |node| match node.uid == by.uid {
            true => Ok(()),
            false => permission::check_access(node, by, wanted),
        })
    }

    /// The user who removes a name, for the check inside the change.
    pub(crate) fn remover(&self, by: &Caller) -> Remover {
        if self.checks_here() && !by.is_root() { Remover::User(by.uid) } else { Remover::Anybody }
    }

    /// Refuses to take a name away.
    pub(crate) fn demand_removal(&self, by: &Caller, at: Name<'_>) -> Result<()> {
        if !self.checks_here() {
            return Ok(());
        }
        let fs = self.fs()?;
        let above = fs.protection(at.dir)?;
        permission::check_access(&above, by, Access::EXECUTE)?;
        match fs.lookup(at.dir, at.name)? {
            Some((id, _)) => permission::check_removal(&above, &fs.protection(id)?, by),
            None => Err(Error::NotFound),
        }
    }

    /// Refuses the name `at` for an object. If the name exists, the caller must be allowed to remove it.
    pub(crate) fn demand_name(&self, by: &Caller, at: Name<'_>, how: Rename) -> Result<()> {
        if !self.checks_here() {
            return Ok(());
        }
        let fs = self.fs()?;
        let above = fs.protection(at.dir)?;
        permission::check_access(&above, by, Access::EXECUTE)?;
        match fs.lookup(at.dir, at.name)? {
            // A caller that may look the name up gets [`Error::Exists`].
            Some(_) if how == Rename::Refuse => Err(Error::Exists),
            Some((id, _)) => permission::check_removal(&above, &fs.protection(id)?, by),
            None => permission::check_access(&above, by, Access::CHANGE_NAMES),
        }
    }

    /// Refuses a rename. The caller must be allowed to remove the first name, and also the second one if it exists.
    ///
    /// # Errors
    /// [`Error::Exists`] if the second name exists and must not be replaced.
    pub(crate) fn demand_rename(&self, by: &Caller, from: Name<'_>, to: Name<'_>, how: Rename) -> Result<()> {
        if !self.checks_here() {
            return Ok(());
        }
        let fs = self.fs()?;
        for dir in [from.dir, to.dir] {
            self.demand(by, dir, Access::EXECUTE)?;
        }
        let source = fs.lookup(from.dir, from.name)?.ok_or(Error::NotFound)?;
        let target = fs.lookup(to.dir, to.name)?;
        if how == Rename::Refuse && target.is_some() {
            return Err(Error::Exists);
        }
        // Both names belong to one object, so nothing is done.
        if target.is_some_and(|(id, _)| id == source.0) {
            return Ok(());
        }
        self.demand_removal(by, from)?;
        self.demand_name(by, to, how)?;
        // Moving a directory to another parent changes the directory itself, because its `..` changes.
        let moved = [Some(source), target.filter(|_| how == Rename::Exchange)];
        for (id, _) in moved.into_iter().flatten().filter(|(_, kind)| *kind == FileKind::Directory) {
            if from.dir != to.dir {
                self.demand(by, id, Access::WRITE)?;
            }
        }
        Ok(())
    }
}
