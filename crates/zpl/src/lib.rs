//! POSIX files on a dataset: names, nodes, attributes, links, extended attributes. Also volumes: datasets with one object of
//! data.
//!
//! From:   front ends through a [`Session`], and programs that need no permission through [`Filesystem`]: calls by object
//!         number and name.
//! To:     `dmu` objects, changed within transactions of `pool`.
//!
//! [`Filesystem`] stores modes and owners and does not enforce them. [`session`] decides who may do what.
#![forbid(unsafe_code)]

mod acl;
mod attributes;
mod change;
pub mod check;
mod clone;
mod create;
pub mod diff;
mod dir;
mod error;
mod exchange;
mod file;
mod fs;
mod hole;
mod initialise;
mod legacy;
mod locks;
mod log;
mod logged;
mod node;
mod open_table;
mod owner;
mod path;
mod pending;
mod protection;
mod quota;
mod read_ahead;
mod records;
mod remove;
mod rename;
mod replay;
mod rewrite;
pub mod session;
mod snapshots;
mod space;
mod sparse;
mod stat;
mod streams;
mod unnamed;
mod upgrade;
mod volume;
mod volumes;
mod xattr;
mod xattr_log;

pub use clone::Place;
pub use create::NewNode;
pub use dir::{CONTROL, DirEntry, NAME_MAX, Name, is_one_name};
pub use dmu::rank;
pub use error::{Error, NotCloned, Result};
pub use format::znode::{Time, pflags};
pub use format::{Guid, ObjectId};
pub use fs::Filesystem;
pub use initialise::{initialise, initialiser, initialiser_for};
pub use owner::{Amount, Owner, Usage};
pub use pool::interrupt;
pub use pool::{Dataset, Reach, SnapDir, SnapshotEntry, SnapshotKey};
pub use protection::Protection;
pub use records::{Piece, Records};
pub use rename::Replace;
pub use replay::{replay_log, replay_logs};
pub use session::Session;
pub use space::Space;
pub use sparse::Seek;
pub use stat::{FileKind, SetAttr, Stat, Times};
pub use volume::{Extent, Volume, volume_initialiser};
pub use xattr::XattrMode;
