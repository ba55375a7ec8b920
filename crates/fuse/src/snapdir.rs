//! `.zfs`: the snapshots of a mounted file system, seen through the mount.
//!
//! The session decides what `.zfs` contains and the numbers of its nodes; `control.rs` makes replies of that. A snapshot is
//! opened at its first look-up. It gets its own [`crate::bridge::Bridge`], which serves it like the file system itself. It
//! is closed when the kernel knows none of its nodes (`opened.rs`). The number of a node tells the target of a message;
//! `router.rs` sends it there.
//!
//! Volumes are files below `.zfs/volume` (`volumes.rs`).
//!
//! The kernel was told not to ask when files are opened (decision 0005), so it opens a file of a snapshot for writing
//! like any other. The later write is refused (`router.rs`).

mod control;
mod opened;
mod router;
mod table;
mod tree;
mod volumes;

pub(crate) use opened::Snapshots;
pub(crate) use router::{Others, Router};
