//! Mounted file systems: messages of the kernel's FUSE become calls of a [`zpl::Session`]. This crate translates and does
//! not decide.
//!
//! From:   the kernel, through `/dev/fuse` (crate `fuser`), on several threads at once.
//! To:     a session, by object number. The session says what a file system, its snapshots below `.zfs` and the links that
//!         are shown in place of directories are called; the root is what FUSE calls 1.
//!
//! The kernel checks permissions (`default_permissions`) and keeps file locks; the session knows that and does the rest.
//! Kept here is what belongs to the protocol and to the kernel's caches: which pages the cache may take near a limit, which
//! sizes it must be told, what it forgets and when.
#![forbid(unsafe_code)]

mod access;
mod attach;
mod attributes;
mod bridge;
mod caller;
mod contents;
mod device;
mod ending;
mod errno;
mod error;
mod exchange;
mod interrupts;
mod ioctl;
mod keeper;
mod kernel;
mod limits;
mod listing;
mod lost;
mod messages;
mod mount;
mod names;
mod options;
mod pages;
mod place;
mod point;
mod progress;
mod refresh;
mod replies;
mod seats;
mod seeker;
mod shared;
mod sizes;
mod snapdir;
mod xattrs;

pub use error::MountError;
pub use exchange::Changed;
pub use mount::{Held, Mounted, mount, mount_on};
pub use options::MountOptions;
pub use place::detach_dead;
pub use point::MountPoint;
pub use zpl::session::Atime;
