//! Extended attributes and, among them, POSIX ACLs.

use fuser::Errno;
use zpl::{ObjectId, XattrMode};

use crate::bridge::Bridge;
use crate::errno::{self, Answer};

const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;
const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";
/// Longest list of names that Linux takes, in bytes.
const LIST_MAX: usize = 64 << 10;

fn is_acl(name: &[u8]) -> bool {
    name == ACCESS || name == DEFAULT
}

impl Bridge {
    /// Refuses names of spaces that the file system does not have.
    fn check_space(&self, name: &[u8]) -> Answer<()> {
        let settings = self.fs.dataset().settings();
        let spaces = [b"user.".as_slice(), b"trusted.", b"security."];
        if spaces.contains(&name) {
            return Err(Errno::EINVAL);
        }
        let known = spaces.iter().any(|space| name.starts_with(space));
        if settings.xattr && (known || settings.posix_acl && is_acl(name)) {
            Ok(())
        } else {
            Err(Errno::EOPNOTSUPP)
        }
    }

    pub(crate) fn xattr(&self, id: ObjectId, name: &[u8]) -> Answer<Vec<u8>> {
        self.check_space(name)?;
        self.fs.xattr_get(id, name).map_err(errno::from)?.ok_or(Errno::ENODATA)
    }

    /// All names, each with a zero behind it. Those of trusted programs are shown to root alone.
    pub(crate) fn xattr_names(&self, id: ObjectId, caller: u32) -> Answer<Vec<u8>> {
        let mut list = Vec::new();
        for name in self.fs.xattr_list(id).map_err(errno::from)? {
            if self.check_space(&name).is_ok() && (caller == 0 || !name.starts_with(b"trusted.")) {
                list.extend(name);
                list.push(0);
            }
        }
        if list.len() > LIST_MAX { Err(Errno::E2BIG) } else { Ok(list) }
    }

    pub(crate) fn set_xattr(&self, id: ObjectId, name: &[u8], value: &[u8], flags: i32) -> Answer<()> {
        self.check_writable()?;
        self.check_space(name)?;
        let mode = match flags {
            0 => XattrMode::Either,
            XATTR_CREATE => XattrMode::Create,
            XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Errno::EINVAL),
        };
        self.fs.xattr_set(id, name, value, mode).map_err(errno::from)
    }

    pub(crate) fn remove_xattr(&self, id: ObjectId, name: &[u8]) -> Answer<()> {
        self.check_writable()?;
        self.check_space(name)?;
        match self.fs.xattr_remove(id, name) {
            // To take away an ACL that is not there is to leave it so.
            Err(zpl::Error::NoXattr) if is_acl(name) => Ok(()),
            other => other.map_err(errno::from),
        }
    }
}
