//! How a file system is mounted.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::seats::SPARE;

/// When access times are kept. Opening a file for reading counts as an access, see `access.rs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Atime {
    /// As the dataset's properties `atime` and `relatime` say.
    #[default]
    Dataset,
    /// Never.
    Off,
    /// Whatever `atime` says; how often, `relatime` does.
    On,
}

/// How a file system is mounted. [`Default`] is what `zfs mount` does with default properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Shown as the source in `/proc/mounts`; the dataset's name if empty.
    pub source: String,
    /// Nothing may be changed. A snapshot or a pool that is only read is mounted so in any case.
    pub read_only: bool,
    /// The mount may be written although the dataset has `readonly=on`.
    pub lifts_read_only: bool,
    /// Access times.
    pub atime: Atime,
    /// Extended attributes, where the dataset's property `xattr` has them, too.
    pub xattr: bool,
    /// Programs may be run.
    pub exec: bool,
    /// setuid and setgid bits are honoured; needs root.
    pub setuid: bool,
    /// Device nodes work; needs root.
    pub devices: bool,
    /// Users other than the one who mounts may enter. Without root it takes `user_allow_other` in `/etc/fuse.conf`.
    pub allow_other: bool,
    /// A write that has returned is safe, as with `sync=always`; where the property says so, it is in any case.
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

/// Threads for each core, besides the spare ones: a request may wait for a disk or for the next txg.
const THREADS_PER_CORE: usize = 4;
const THREADS_MIN: usize = 8;
const THREADS_MAX: usize = 64;

impl MountOptions {
    pub(crate) fn thread_count(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        match self.threads {
            0 => (cores * THREADS_PER_CORE).clamp(THREADS_MIN, THREADS_MAX) + SPARE,
            // One may wait for the kernel to write back what another serves.
            count => count.max(2),
        }
    }
}

/// What of the options may change while mounted.
#[derive(Debug)]
pub(crate) struct Live {
    read_only: AtomicBool,
    lifts_read_only: AtomicBool,
    atime: AtomicU8,
    xattr: AtomicBool,
}

impl Live {
    pub(crate) fn new(options: &MountOptions) -> Live {
        let live = Live {
            read_only: AtomicBool::new(false),
            lifts_read_only: AtomicBool::new(false),
            atime: AtomicU8::new(0),
            xattr: AtomicBool::new(true),
        };
        live.set(options);
        live
    }

    pub(crate) fn set(&self, options: &MountOptions) {
        self.read_only.store(options.read_only, Ordering::Release);
        self.lifts_read_only.store(options.lifts_read_only, Ordering::Release);
        self.atime.store(options.atime as u8, Ordering::Release);
        self.xattr.store(options.xattr, Ordering::Release);
    }

    pub(crate) fn read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    pub(crate) fn lifts_read_only(&self) -> bool {
        self.lifts_read_only.load(Ordering::Acquire)
    }

    pub(crate) fn has_xattrs(&self) -> bool {
        self.xattr.load(Ordering::Acquire)
    }

    pub(crate) fn keeps_atime(&self) -> bool {
        !self.read_only() && self.atime.load(Ordering::Acquire) != Atime::Off as u8
    }

    pub(crate) fn insists_on_atime(&self) -> bool {
        self.atime.load(Ordering::Acquire) == Atime::On as u8
    }
}
