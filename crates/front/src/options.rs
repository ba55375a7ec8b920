//! How a file system is mounted.

use zpl::session::{Atime, Settings};

/// Mount options. [`Default`] equals `zfs mount` with default properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Shown as the source in `/proc/mounts`; the dataset's name if empty.
    pub source: String,
    /// Read-only. Snapshots and read-only pools are always mounted so.
    pub read_only: bool,
    /// The mount may be written although the dataset has `readonly=on`.
    pub lifts_read_only: bool,
    /// Access times. Opening a file for reading counts as an access, see `access.rs` of the crate `fuse`.
    pub atime: Atime,
    /// Extended attributes are allowed, unless the dataset has `xattr=off`.
    pub xattr: bool,
    /// Programs may be run.
    pub exec: bool,
    /// setuid and setgid bits are honoured; needs root.
    pub setuid: bool,
    /// Device nodes work; needs root.
    pub devices: bool,
    /// Users other than the one who mounts may enter. Without root it takes `user_allow_other` in `/etc/fuse.conf`.
    pub allow_other: bool,
    /// Every write is durable when it returns, as with `sync=always`.
    pub synchronous: bool,
    /// Writes are gathered in the page cache and come in large pieces.
    pub writeback: bool,
    /// Threads that serve requests; 0: chosen by the number of cores.
    pub threads: usize,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        let root = rustix::process::geteuid().is_root();
        MountOptions {
            source: String::new(),
            read_only: false,
            lifts_read_only: false,
            atime: Atime::Dataset,
            xattr: true,
            exec: true,
            setuid: root,
            devices: root,
            allow_other: root,
            synchronous: false,
            writeback: true,
            threads: 0,
        }
    }
}

impl MountOptions {
    /// The options for the session.
    #[must_use]
    pub fn settings(&self) -> Settings {
        Settings {
            read_only: self.read_only,
            lifts_read_only: self.lifts_read_only,
            atime: self.atime,
            xattr: self.xattr,
        }
    }
}
