//! Space and object accounting by user, group and project, and their quotas in memory.

use std::sync::Arc;

use dmu::{Object, Special};
use format::znode::{Znode, master};

/// Prefix of the keys of object counts in the accounting ZAPs.
pub(crate) const OBJECTS: &str = "obj-";
/// Project id of files without a project. It has no quota.
pub(crate) const NO_PROJECT: u64 = 0;

/// The kind of owner of space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// By uid.
    User,
    /// By gid.
    Group,
    /// By project id.
    Project,
}

impl Owner {
    /// All of them, in on-disk order.
    pub const ALL: [Owner; 3] = [Owner::User, Owner::Group, Owner::Project];

    pub(crate) fn special(self) -> Special {
        Special::ALL[self as usize]
    }

    /// Keys of the master node for the ZAP of quotas, and for the default quota.
    pub(crate) const fn keys(self, amount: Amount) -> (&'static str, &'static str) {
        match (self, amount) {
            (Owner::User, Amount::Bytes) => (master::USERQUOTA, "defaultuserquota"),
            (Owner::Group, Amount::Bytes) => (master::GROUPQUOTA, "defaultgroupquota"),
            (Owner::Project, Amount::Bytes) => (master::PROJECTQUOTA, "defaultprojectquota"),
            (Owner::User, Amount::Objects) => (master::USEROBJQUOTA, "defaultuserobjquota"),
            (Owner::Group, Amount::Objects) => (master::GROUPOBJQUOTA, "defaultgroupobjquota"),
            (Owner::Project, Amount::Objects) => (master::PROJECTOBJQUOTA, "defaultprojectobjquota"),
        }
    }
}

/// The amount that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Amount {
    /// Space taken, in bytes.
    Bytes,
    /// Files, directories and so on.
    Objects,
}

impl Amount {
    pub(crate) const ALL: [Amount; 2] = [Amount::Bytes, Amount::Objects];

    pub(crate) fn used_key(self, id: u64) -> String {
        match self {
            Amount::Bytes => format!("{id:x}"),
            Amount::Objects => format!("{OBJECTS}{id:x}"),
        }
    }
}

/// Used amount and quota of one user, group or project; `None` if the file system has no entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Space taken, in bytes.
    pub bytes: Option<u64>,
    /// Objects.
    pub objects: Option<u64>,
    /// Quota of bytes of its own.
    pub byte_quota: Option<u64>,
    /// Quota of objects of its own.
    pub object_quota: Option<u64>,
}

/// The quotas in effect, as of a revision of the dataset's settings.
#[derive(Default)]
pub(crate) struct Quotas {
    pub(crate) revision: u64,
    /// By kind of owner and amount: the ZAP of quotas, and the default quota.
    pub(crate) limits: [[(Option<Arc<Object>>, u64); 2]; 3],
    pub(crate) any: bool,
}

/// The owners of a node.
pub(crate) fn owners_of(znode: &Znode) -> [(Owner, u64); 3] {
    let project = znode.projid.unwrap_or(NO_PROJECT);
    [(Owner::User, znode.uid), (Owner::Group, znode.gid), (Owner::Project, project)]
}
