//! What caches of a front end are told.
//!
//! A front end may keep what it was answered: the kernel keeps names, attributes and pages, an NFS client does too. Whatever
//! changes without a call of that front end, or more than its call says, is told to it here.

use std::sync::Arc;

use super::Session;
use crate::ObjectId;

/// A change that a cache does not know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice<'a> {
    /// The attributes of an object.
    Attributes(ObjectId),
    /// Attributes, contents or entries of an object.
    Node(ObjectId),
    /// What a name in a directory means.
    Name(ObjectId, &'a [u8]),
    /// Where the link leads that is shown in place of this directory.
    Link(ObjectId),
    /// A quota, a reservation or the like: how much may be written.
    Limits,
}

/// A cache that is to be told of changes. It is called by the thread that makes the change, with no locks held.
pub trait Cache: Send + Sync {
    /// Something changed.
    fn forget(&self, notice: Notice<'_>);
}

impl Session {
    /// From now on, `cache` is told of changes. There is one cache for a session: a second one is not told.
    pub fn set_cache(&self, cache: Arc<dyn Cache>) {
        // A session begins with its front end, which calls this once.
        let _ = self.cache.set(cache);
    }

    /// Something changed that the front end does not know of.
    pub fn changed(&self, notice: Notice<'_>) {
        if let Some(cache) = self.cache.get() {
            cache.forget(notice);
        }
    }
}
