//! Asking for permission: loads what the rules look at, where this session checks.
//!
//! The rules are asked before the change, and not in the transaction that makes it. When somebody changes a mode at the same
//! moment, the call counts as the earlier one. One rule is asked once more under the locks of the change: which names may be
//! taken out of a sticky directory. Else whoever replaces what has the name in between could have another user's file go.

use super::permission::{self, Access};
use super::{Caller, Checks, Name, Rename, Session};
use crate::remove::Remover;
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

    /// Who takes a name away, for the change itself.
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

    /// Refuses a move of names: the first must be one that the caller may take away, and so must the second if it is taken.
    ///
    /// # Errors
    /// [`Error::Exists`] for a second name that is taken and must not be.
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
        // Two names of one object: nothing is to be done.
        if target.is_some_and(|(id, _)| id == source.0) {
            return Ok(());
        }
        self.demand_removal(by, from)?;
        self.demand_name(by, to, how)?;
        // A directory that comes to lie in another one is changed: its `..` is.
        let moved = [Some(source), target.filter(|_| how == Rename::Exchange)];
        for (id, _) in moved.into_iter().flatten().filter(|(_, kind)| *kind == FileKind::Directory) {
            if from.dir != to.dir {
                self.demand(by, id, Access::WRITE)?;
            }
        }
        Ok(())
    }
}
