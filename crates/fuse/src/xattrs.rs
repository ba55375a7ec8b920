//! Extended attributes and, among them, POSIX ACLs.

use std::sync::atomic::Ordering;

use fuser::{Errno, Request};
use zpl::{ObjectId, SetAttr, XattrMode};

use crate::bridge::Bridge;
use crate::errno::{self, Answer};
use crate::limits::CAPABILITY;
use crate::names::S_ISGID;

const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;
const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";
/// Longest list of names that Linux takes, in bytes.
const LIST_MAX: usize = 64 << 10;

/// Who sent a request.
#[derive(Clone, Copy)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
}

impl Caller {
    pub(crate) fn of(request: &Request) -> Caller {
        Caller { uid: request.uid(), gid: request.gid(), pid: request.pid() }
    }

    /// Whether root or a member of `group`. The request itself names the first of its groups only.
    fn is_in(&self, group: u32) -> bool {
        self.uid == 0
            || self.gid == group
            || std::fs::read_to_string(format!("/proc/{}/status", self.pid))
                .is_ok_and(|status| groups(&status).any(|other| other == group))
    }
}

/// The groups that a process's `status` lists.
fn groups(status: &str) -> impl Iterator<Item = u32> + '_ {
    let list = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    list.split_whitespace().filter_map(|group| group.parse().ok())
}

pub(crate) fn is_acl(name: &[u8]) -> bool {
    name == ACCESS || name == DEFAULT
}

impl Bridge {
    /// Refuses names of spaces that the file system does not have.
    fn check_space(&self, name: &[u8]) -> Answer<()> {
        let settings = self.fs()?.dataset().settings();
        let spaces = [b"user.".as_slice(), b"trusted.", b"security."];
        if spaces.contains(&name) {
            return Err(Errno::EINVAL);
        }
        let known = spaces.iter().any(|space| name.starts_with(space));
        // A kernel that does not go by ACLs would grant everybody what their mask says.
        let acl = is_acl(name) && settings.posix_acl && self.acls.load(Ordering::Acquire);
        if settings.xattr && self.live.has_xattrs() && (known || acl) {
            Ok(())
        } else {
            Err(Errno::EOPNOTSUPP)
        }
    }

    pub(crate) fn xattr(&self, id: ObjectId, name: &[u8]) -> Answer<Vec<u8>> {
        // To a kernel that goes by ACLs, any other error would mean that nobody may enter.
        if is_acl(name) && self.acls.load(Ordering::Acquire) && !self.fs()?.dataset().settings().posix_acl {
            return Err(Errno::ENODATA);
        }
        self.check_space(name)?;
        self.fs()?.xattr_get(id, name).map_err(errno::from)?.ok_or(Errno::ENODATA)
    }

    /// All names, each with a zero behind it. Those of trusted programs are shown to root alone.
    pub(crate) fn xattr_names(&self, id: ObjectId, caller: u32) -> Answer<Vec<u8>> {
        let mut list = Vec::new();
        for name in self.fs()?.xattr_list(id).map_err(errno::from)? {
            if self.check_space(&name).is_ok() && (caller == 0 || !name.starts_with(b"trusted.")) {
                list.extend(name);
                list.push(0);
            }
        }
        if list.len() > LIST_MAX { Err(Errno::E2BIG) } else { Ok(list) }
    }

    pub(crate) fn set_xattr(
        &self,
        id: ObjectId,
        name: &[u8],
        value: &[u8],
        flags: i32,
        caller: &Caller,
    ) -> Answer<()> {
        self.check_writable()?;
        self.check_space(name)?;
        let mode = match flags {
            0 => XattrMode::Either,
            XATTR_CREATE => XattrMode::Create,
            XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Errno::EINVAL),
        };
        self.fs()?.xattr_set(id, name, value, mode).map_err(errno::from)?;
        if name == ACCESS { self.drop_setgid(id, caller) } else { Ok(()) }
    }

    /// Takes setgid off a node whose mode was changed by somebody outside its group, by way of an ACL. With a chmod the
    /// kernel sees to that; here it could tell only with `FUSE_SETXATTR_EXT`, which the crate `fuser` does not speak.
    fn drop_setgid(&self, id: ObjectId, caller: &Caller) -> Answer<()> {
        let stat = self.fs()?.stat(id).map_err(errno::from)?;
        if stat.mode & S_ISGID == 0 || caller.is_in(stat.gid) {
            return Ok(());
        }
        let set = SetAttr { mode: Some(stat.mode & !S_ISGID), ..SetAttr::default() };
        self.fs()?.setattr(id, &set).map_err(errno::from)
    }

    pub(crate) fn remove_xattr(&self, id: ObjectId, name: &[u8]) -> Answer<()> {
        self.check_writable()?;
        self.check_space(name)?;
        let refused = name == CAPABILITY && self.limits.refuses(id);
        match self.fs()?.xattr_remove(id, name) {
            // The next message refuses the write, if it is one.
            _ if refused => Ok(()),
            // To take away an ACL that is not there is to leave it so.
            Err(zpl::Error::NoXattr) if is_acl(name) => Ok(()),
            other => other.map_err(errno::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_members_are_in_a_group() {
        let status = "Name:\tbash\nGid:\t4\t4\t4\t4\nGroups:\t20 1001 \nNStgid:\t7\n";
        assert!(groups(status).eq([20, 1001]));
        assert_eq!(groups("Groups:\t\n").count() + groups("").count(), 0);
        // Nobody has the process 0.
        let caller = Caller { uid: 5, gid: 6, pid: 0 };
        assert!(caller.is_in(6) && !caller.is_in(7));
        assert!(Caller { uid: 0, ..caller }.is_in(7));
    }
}
