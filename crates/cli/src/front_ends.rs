//! The front ends of this program: which ones a server is given.

use std::sync::Arc;

use front::Mounter;
use server::FrontEnds;

/// Mounts file systems, and removes the mounts that a dead server left.
pub const MOUNTER: &dyn Mounter = &fuse::Fuse;

/// All that a server is given.
#[must_use]
pub fn all() -> FrontEnds {
    FrontEnds { mounter: Arc::new(fuse::Fuse), volumes: Arc::new(nbd::Nbd), files: Arc::new(nfs::Nfs) }
}
