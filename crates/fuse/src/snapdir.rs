//! `.zfs`: the snapshots of a mounted file system, seen through the mount.
//!
//! The session says what is in `.zfs` and what its nodes are called; `control.rs` puts that into replies. A snapshot is opened when
//! somebody looks into it, gets a [`crate::bridge::Bridge`] of its own, which serves it as it serves the file system
//! itself, and is closed when the kernel knows none of its nodes (`opened.rs`). Who a message is for is told by the number
//! of its node; `router.rs` sends it there.
//!
//! The kernel was told not to ask when files are opened (decision 0005), so it opens a file of a snapshot for writing like
//! any other: what is then done with it is refused (`router.rs`).

mod control;
mod opened;
mod router;
mod table;

pub(crate) use opened::Snapshots;
pub(crate) use router::Router;
