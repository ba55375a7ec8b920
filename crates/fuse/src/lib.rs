//! Mounted file systems: messages of the kernel's FUSE become calls of a [`zpl::Session`]. This crate translates and does
//! not decide.
//!
//! From:   the kernel, through `/dev/fuse` (crate `fuser`), on several threads at once.
//! To:     a session, by object number. The session says what a file system, its snapshots below `.zfs` and what is shown
//!         in place of directories are called; the root is what FUSE calls 1.
//!
//! The kernel checks permissions (`default_permissions`) and keeps file locks; the session does the rest. This crate handles
//! the protocol and the kernel's caches: the pages that the cache may take near a limit, the sizes that the kernel must
//! learn, and the objects that it must drop.
//!
//! Without the feature `mount`, `without.rs` stands for all of it: every mount is refused.
#![forbid(unsafe_code)]

#[cfg(feature = "mount")]
mod access;
#[cfg(feature = "mount")]
mod attach;
#[cfg(feature = "mount")]
mod attributes;
#[cfg(feature = "mount")]
mod bridge;
#[cfg(feature = "mount")]
mod caller;
#[cfg(feature = "mount")]
mod contents;
#[cfg(feature = "mount")]
mod device;
#[cfg(feature = "mount")]
mod ending;
#[cfg(feature = "mount")]
mod errno;
#[cfg(feature = "mount")]
mod exchange;
#[cfg(feature = "mount")]
mod front_end;
#[cfg(feature = "mount")]
mod graft;
#[cfg(feature = "mount")]
mod interrupts;
#[cfg(feature = "mount")]
mod ioctl;
#[cfg(feature = "mount")]
mod keeper;
#[cfg(feature = "mount")]
mod kept;
#[cfg(feature = "mount")]
mod kernel;
#[cfg(feature = "mount")]
mod limits;
#[cfg(feature = "mount")]
mod listing;
#[cfg(feature = "mount")]
mod lost;
#[cfg(feature = "mount")]
mod messages;
#[cfg(feature = "mount")]
mod mount;
#[cfg(feature = "mount")]
mod names;
#[cfg(feature = "mount")]
mod pages;
#[cfg(feature = "mount")]
mod permits;
#[cfg(feature = "mount")]
mod place;
#[cfg(feature = "mount")]
mod places;
#[cfg(feature = "mount")]
mod progress;
#[cfg(feature = "mount")]
mod refresh;
#[cfg(feature = "mount")]
mod replies;
#[cfg(feature = "mount")]
mod seeker;
#[cfg(feature = "mount")]
mod shared;
#[cfg(feature = "mount")]
mod sizes;
#[cfg(feature = "mount")]
mod snapdir;
#[cfg(feature = "mount")]
mod threads;
#[cfg(feature = "mount")]
mod within;
#[cfg(not(feature = "mount"))]
mod without;
#[cfg(feature = "mount")]
mod xattrs;

#[cfg(feature = "mount")]
pub use attach::check_available;
pub use front::{Changed, Keeper, MountError, MountOptions, MountPoint, Unavailable};
#[cfg(feature = "mount")]
pub use mount::{Held, Mounted, mount, mount_on};
#[cfg(feature = "mount")]
pub use place::detach_dead;
#[cfg(not(feature = "mount"))]
pub use without::check_available;
pub use zpl::session::Atime;

/// Mounts file systems through FUSE.
#[derive(Clone, Copy, Debug)]
pub struct Fuse;
