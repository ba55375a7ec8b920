//! Extended attributes and, among them, POSIX ACLs.

use super::permission::{self, SETGID, XattrUse};
use super::spaces::{self, Space};
use super::{Caller, Session};
use crate::{Error, ObjectId, Result, SetAttr, XattrMode};

/// Longest list of names that Linux takes, in bytes.
const LIST_MAX: usize = 64 << 10;

impl Session {
    /// Refuses names of spaces that the file system does not have.
    fn check_space(&self, name: &[u8]) -> Result<()> {
        if spaces::is_bare(name) {
            return Err(Error::Invalid);
        }
        let settings = self.fs()?.dataset().settings();
        let is_known = match spaces::space_of(name) {
            // A kernel that ignores ACLs would grant the permissions of the mask to the whole group.
            Some(Space::Acl) => settings.posix_acl && self.heeds_acls(),
            Some(_) => true,
            None => false,
        };
        if settings.xattr && self.live.has_xattrs() && is_known {
            Ok(())
        } else {
            Err(Error::Unsupported("this extended attribute"))
        }
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// [`Error::NoXattr`]; [`Error::Unsupported`] for a space that there is not; [`Error::Denied`].
    pub fn xattr(&self, by: &Caller, id: ObjectId, name: &[u8]) -> Result<Vec<u8>> {
        // A client that uses ACLs would treat any other error as a denied access.
        if spaces::is_acl(name) && self.heeds_acls() && !self.fs()?.dataset().settings().posix_acl {
            return Err(Error::NoXattr);
        }
        self.check_space(name)?;
        self.ask(id, |node| permission::check_xattr(node, name, XattrUse::Read, by))?;
        self.fs()?.xattr_get(id, name)?.ok_or(Error::NoXattr)
    }

    /// All names, each followed by a zero byte. Names of the space `trusted.` are shown to root only.
    ///
    /// # Errors
    /// [`Error::XattrTooBig`] for more than Linux takes; they cannot be read.
    pub fn xattr_names(&self, by: &Caller, id: ObjectId) -> Result<Vec<u8>> {
        let mut list = Vec::new();
        for name in self.fs()?.xattr_list(id)? {
            let is_hidden = spaces::space_of(&name) == Some(Space::Trusted) && !by.is_root();
            if !is_hidden && self.check_space(&name).is_ok() {
                list.extend(name);
                list.push(0);
            }
        }
        if list.len() > LIST_MAX { Err(Error::XattrTooBig) } else { Ok(list) }
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::Unsupported`]; [`Error::Denied`], [`Error::NotPermitted`]; as
    /// [`crate::Filesystem::xattr_set`].
    pub fn set_xattr(
        &self,
        by: &Caller,
        id: ObjectId,
        (name, value): (&[u8], &[u8]),
        mode: XattrMode,
    ) -> Result<()> {
        self.check_writable()?;
        self.check_space(name)?;
        self.ask(id, |node| permission::check_xattr(node, name, XattrUse::Set, by))?;
        self.fs()?.xattr_set(id, name, value, mode)?;
        if name == spaces::ACCESS_ACL { self.drop_setgid(by, id) } else { Ok(()) }
    }

    /// Removes setgid from a node whose mode was changed through an ACL by a caller outside its group. For a chmod the
    /// kernel does this itself; for an ACL the protocol version of `fuser` does not report it.
    fn drop_setgid(&self, by: &Caller, id: ObjectId) -> Result<()> {
        let stat = self.fs()?.stat(id)?;
        let mode = permission::mode_after_chmod(stat.mode, stat.gid, by);
        if mode == stat.mode || stat.mode & SETGID == 0 {
            return Ok(());
        }
        self.fs()?.setattr(id, &SetAttr { mode: Some(mode), ..SetAttr::default() })
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// As [`Session::set_xattr`]; [`Error::NoXattr`].
    pub fn remove_xattr(&self, by: &Caller, id: ObjectId, name: &[u8]) -> Result<()> {
        self.check_writable()?;
        self.check_space(name)?;
        self.ask(id, |node| permission::check_xattr(node, name, XattrUse::Remove, by))?;
        match self.fs()?.xattr_remove(id, name) {
            // Removing an ACL that does not exist succeeds.
            Err(Error::NoXattr) if spaces::is_acl(name) => Ok(()),
            done => done,
        }
    }
}
