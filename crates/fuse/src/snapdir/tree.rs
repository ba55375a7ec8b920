//! A file system behind a mount: the mounted one, or a snapshot of it.

use std::ops::Deref;
use std::sync::Arc;

use crate::bridge::Bridge;

/// One of the file systems behind a mount.
pub(super) enum Tree<'a> {
    Head(&'a Bridge),
    Snapshot(Arc<Bridge>),
}

impl Deref for Tree<'_> {
    type Target = Bridge;

    fn deref(&self) -> &Bridge {
        match self {
            Tree::Head(bridge) => bridge,
            Tree::Snapshot(bridge) => bridge,
        }
    }
}
