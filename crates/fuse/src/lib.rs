//! Mounted file systems: messages of the kernel's FUSE become calls of `zpl`. This crate translates and does not decide.
//!
//! From:   the kernel, through `/dev/fuse` (crate `fuser`), on several threads at once.
//! To:     `zpl`, by object number. Node ids are object numbers, but for the root, which FUSE calls 1, snapshots below
//!         `.zfs` (`snapdir.rs`), and links that are shown in place of directories (`links.rs`).
//!
//! The kernel checks permissions (`default_permissions`) and keeps file locks. This crate does what the kernel cannot: the
//! group that a new file gets from its directory, umask against default ACLs, and the setuid bits that a write takes off.
#![forbid(unsafe_code)]

mod access;
mod attach;
mod attributes;
mod bridge;
mod contents;
mod ending;
mod errno;
mod exchange;
mod file_flags;
mod interrupts;
mod invalidate;
mod keeper;
mod known;
mod limits;
mod links;
mod listing;
mod lost;
mod mount;
mod names;
mod options;
mod place;
mod progress;
mod refresh;
mod replies;
mod seats;
mod seeker;
mod shared;
mod sizes;
mod snapdir;
mod xattrs;

pub use exchange::Changed;
pub use invalidate::Invalidator;
pub use links::ShownLink;
pub use mount::{Held, MountError, Mounted, mount, mount_on};
pub use options::{Atime, MountOptions};
pub use place::{MountPoint, detach_dead};
pub use snapdir::is_shown_link;
