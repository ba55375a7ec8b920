//! Asking for permission: loads what the rules look at, where this session checks.
//!
//! The rules are asked before the change, and not in the transaction that makes it. When somebody changes a mode at the same
//! moment, the call counts as the earlier one.

use super::permission::{self, Access};
use super::{Caller, Checks, Name, Rename, Session};
use crate::{Error, FileKind, ObjectId, Protection, Result};

impl Session {
    /// Whether this session checks permissions.
    pub(crate) fn checks_here(&self) -> bool {
        self.checks == Checks::Here
    }

    /// Asks `rule` about a node, where this session checks.
    pub(crate) fn ask(&self, id: ObjectId, rule: impl FnOnce(&Protection) -> Result<()>) -> Result<()> {
        if self.checks_here() { rule(&self.fs()?.protection(id)?) } else { Ok(()) }
    }

    /// Refuses an access that is not granted, where this session checks.
    ///
    /// # Errors
    /// [`Error::Denied`].
    pub fn demand(&self, by: &Caller, id: ObjectId, wanted: Access) -> Result<()> {
        self.ask(id, |node| permission::check_access(node, by, wanted))
    }

    /// As [`Session::demand`], of the contents of a file by somebody who may have opened it before its mode changed: its
    /// owner always may. A front end without handles cannot know.
    pub(crate) fn demand_contents(&self, by: &Caller, id: ObjectId, wanted: Access) -> Result<()> {
        self.ask(id, |node| match node.uid == by.uid {
            true => Ok(()),
            false => permission::check_access(node, by, wanted),
        })
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

    /// Refuses to give something the name `at`. One that is taken must be one that the caller may take away.
    pub(crate) fn demand_name(&self, by: &Caller, at: Name<'_>, how: Rename) -> Result<()> {
        if !self.checks_here() {
            return Ok(());
        }
        let fs = self.fs()?;
        let above = fs.protection(at.dir)?;
        permission::check_access(&above, by, Access::EXECUTE)?;
        match fs.lookup(at.dir, at.name)? {
            // Whoever may look it up is told that it is there.
            Some(_) if how == Rename::Refuse => Err(Error::Exists),
            Some((id, _)) => permission::check_removal(&above, &fs.protection(id)?, by),
            None => permission::check_access(&above, by, Access::CHANGE_NAMES),
        }
    }

    /// Refuses to move a directory to another one if it may not be written: its `..` changes.
    pub(crate) fn demand_move(&self, by: &Caller, at: Name<'_>, to: ObjectId) -> Result<()> {
        if !self.checks_here() || at.dir == to {
            return Ok(());
        }
        match self.fs()?.lookup(at.dir, at.name)? {
            Some((id, FileKind::Directory)) => self.demand(by, id, Access::WRITE),
            _ => Ok(()),
        }
    }
}
