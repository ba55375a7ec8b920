//! Notices to the caches of front ends.
//!
//! A front end may cache answers: the kernel and NFS clients cache names, attributes and pages. Changes that the front end
//! did not request, or that its request does not show, are reported to it here.

use std::sync::Arc;

use super::Session;
use crate::ObjectId;

/// A change that a cache does not know about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice<'a> {
    /// The attributes of an object.
    Attributes(ObjectId),
    /// Attributes, contents or entries of an object.
    Node(ObjectId),
    /// The object of a name in a directory.
    Name(ObjectId, &'a [u8]),
    /// The target of the link shown in place of this directory.
    Link(ObjectId),
    /// Limits of the writable bytes: a quota, a reservation or the like.
    Limits,
}

/// A cache that receives notices. The thread that makes the change calls it without holding locks.
pub trait Cache: Send + Sync {
    /// Something changed.
    fn forget(&self, notice: Notice<'_>);
}

impl Session {
    /// Registers `cache` for notices. A session has one cache; a second one is ignored.
    pub fn set_cache(&self, cache: Arc<dyn Cache>) {
        // A session begins with its front end, which calls this once.
        let _ = self.cache.set(cache);
    }

    /// Reports a change that the front end does not know about.
    pub fn changed(&self, notice: Notice<'_>) {
        if let Some(cache) = self.cache.get() {
            cache.forget(notice);
        }
    }
}
