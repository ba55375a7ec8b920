//! What decides who may do what with a node: owner, mode, and the POSIX ACL where the dataset has them.

use format::ObjectId;
use format::acl::PosixAcl;

use crate::node::stat_of;
use crate::{Error, FileKind, Filesystem, Result, acl};

/// The part of a node that permission checks look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protection {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits, with setuid, setgid and sticky (07777).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The access ACL, where the dataset has `acltype=posix` and the node has an ACL that says more than its mode.
    pub acl: Option<PosixAcl>,
}

impl Filesystem {
    /// What decides who may do what with object `id`. NFSv4 ACLs other than the one that the mode stands for are not
    /// evaluated: the mode decides.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Damaged`].
    pub fn protection(&self, id: ObjectId) -> Result<Protection> {
        let _shared = self.inner.nodes.read(id);
        let (object, znode) = self.node(id)?;
        let stat = stat_of(&object, &znode)?;
        let is_asked = self.inner.dataset.settings().posix_acl && stat.kind != FileKind::Symlink;
        let value = if is_asked { self.xattr_of(id, &znode, acl::ACCESS)? } else { None };
        let acl = match value {
            Some(value) => Some(PosixAcl::decode(&value).map_err(Error::damaged(id))?),
            None => None,
        };
        Ok(Protection { kind: stat.kind, mode: stat.mode, uid: stat.uid, gid: stat.gid, acl })
    }
}
