//! The interface between the server of a pool and its front ends: traits that a front end implements, and the values in their
//! functions.
//!
//! From:   `fuse`, `nbd` and `nfs`, which implement [`Mounter`], [`VolumeServer`] and [`FileServer`].
//! To:     `server`, which calls them through these traits alone. `cli` connects both sides.
//!
//! [`apart`] asks about paths that may lie in a mount of this process. [`clients`] is for front ends with clients of their own on a socket.
#![forbid(unsafe_code)]

mod address;
pub mod apart;
pub mod clients;
mod error;
mod files;
mod mount;
mod options;
mod point;
mod volume;

pub use address::{Address, AddressError, StartError, UNIX_PATH_MAX};
pub use error::{Keeper, MountError, Unavailable};
pub use files::{ChangeListener, FileExport, FileOpener, FilePort, FileServer, HeldOff, SharedFiles};
pub use mount::{Changed, Mounted, Mounter, Settle};
pub use options::MountOptions;
pub use point::{FOLDER, MountPoint, link_to};
pub use volume::{Opener, ServedVolume, VolumeExport, VolumeServer};
