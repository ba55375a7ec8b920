//! Attributes of a node that permission checks need: owner, mode, and the POSIX ACL.

use format::ObjectId;
use format::acl::PosixAcl;

use crate::node::stat_of;
use crate::{Error, FileKind, Filesystem, Result, acl};

/// The attributes of a node that permission checks use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protection {
    /// The type of the node.
    pub kind: FileKind,
    /// Permission bits, with setuid, setgid and sticky (07777).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The access ACL, if the dataset has `acltype=posix` and the node has an ACL that its mode cannot express.
    pub acl: Option<PosixAcl>,
}

impl Filesystem {
    /// The permission attributes of object `id`. NFSv4 ACLs are not evaluated: the mode decides.
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
