//! `.zfs`: the snapshots of a mounted file system, seen through the mount.
//!
//! `.zfs` in the root, `.zfs/snapshot` and `.zfs/shares` are made up here (`control.rs`). A snapshot is opened when
//! somebody looks into it, gets a [`crate::bridge::Bridge`] of its own, which serves it as it serves the file system
//! itself, and is closed when the kernel knows none of its nodes (`opened.rs`). Who a message is for is told by the number
//! of its node (`numbers.rs`); `router.rs` sends it there.
//!
//! The kernel was told not to ask when files are opened (decision 0005), so it opens a file of a snapshot for writing like
//! any other: what is then done with it is refused (`router.rs`).

mod control;
mod numbers;
mod opened;
mod router;
mod table;

pub use numbers::is_shown_link;
pub(crate) use numbers::{Numbers, is_made_up, link_for};
pub(crate) use opened::Snapshots;
pub(crate) use router::Router;
