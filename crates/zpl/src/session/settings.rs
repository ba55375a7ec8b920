//! Options of a mount or an export that override properties of its dataset.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// When access times are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Atime {
    /// As the dataset's properties `atime` and `relatime` say.
    #[default]
    Dataset,
    /// Never.
    Off,
    /// Always kept, even with `atime=off`; `relatime` decides how often.
    On,
}

/// Options that may change during a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Nothing may be changed.
    pub read_only: bool,
    /// It may be written although the dataset has `readonly=on`.
    pub lifts_read_only: bool,
    /// Access times.
    pub atime: Atime,
    /// Extended attributes are allowed, unless the dataset has `xattr=off`.
    pub xattr: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { read_only: false, lifts_read_only: false, atime: Atime::Dataset, xattr: true }
    }
}

/// The settings, for all threads.
#[derive(Debug)]
pub(crate) struct Live {
    read_only: AtomicBool,
    lifts_read_only: AtomicBool,
    atime: AtomicU8,
    xattr: AtomicBool,
}

impl Live {
    pub(crate) fn new(settings: &Settings) -> Live {
        let live = Live {
            read_only: AtomicBool::new(false),
            lifts_read_only: AtomicBool::new(false),
            atime: AtomicU8::new(0),
            xattr: AtomicBool::new(true),
        };
        live.set(settings);
        live
    }

    pub(crate) fn set(&self, settings: &Settings) {
        self.read_only.store(settings.read_only, Ordering::Release);
        self.lifts_read_only.store(settings.lifts_read_only, Ordering::Release);
        self.atime.store(settings.atime as u8, Ordering::Release);
        self.xattr.store(settings.xattr, Ordering::Release);
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
