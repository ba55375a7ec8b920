//! Sessions: decisions about a file system that all front ends share.
//!
//! From:   a front end (a mount, an export, a command), which identifies the caller and translates its protocol into these
//!         calls.
//! To:     [`Filesystem`], which stores modes and owners but does not enforce them.
//!
//! A session checks permissions (`permission.rs`) and decides what new files inherit and when set-id bits are dropped. It
//! decides which name spaces of extended attributes are visible to a caller. It keeps open files without names
//! (`handles.rs`), shows `.zfs` (`control.rs`) and notifies caches (`notices.rs`). The front end handles protocols, caches
//! and threads.

mod access;
mod attributes;
mod caller;
mod contents;
mod control;
mod demand;
mod difference;
mod flags;
mod handles;
mod links;
mod names;
mod notices;
mod numbers;
pub mod permission;
mod settings;
mod spaces;
mod xattrs;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

pub use crate::Name;
pub use access::Opening;
pub use attributes::{Change, When};
pub use caller::Caller;
pub use contents::{Allocation, Position};
pub use control::{Meaning, SNAPSHOT};
pub use difference::{Difference, difference, names_of};
pub use flags::FlagChange;
pub use handles::{Handles, Held};
pub use links::{Cover, Covered};
pub use names::{Creation, Rename, Target};
pub use notices::{Cache, Notice};
pub use numbers::{Folder, Node, Numbers, Slot, file_of, is_made_up, is_shown_link, link_for, root_of};
pub use settings::{Atime, Settings};
pub use spaces::is_acl;

use crate::streams::Streams;
use crate::{Error, Filesystem, ObjectId, Result};
use dmu::rank::RankedRwLock;
use links::Links;
use settings::Live;

/// Where permissions are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checks {
    /// The kernel has checked modes, ACLs and sticky bits before the call arrives (FUSE with `default_permissions`). The
    /// session does not check again: the kernel uses the same attributes, so a second check would cost time and find
    /// nothing. Also, requests that the kernel makes by itself, such as page write-back, carry arbitrary users.
    Kernel,
    /// The session checks every call, because nothing has checked before (an export, a library).
    Here,
    /// No checks: the caller has opened the pool's devices, so it can read and change every byte anyway.
    Holder,
}

/// Access to the files of a pool through one mount or export.
pub struct Session {
    // Rust drops it before `fs`: it waits for reads that have begun.
    streams: Streams,
    /// `None` while it is being replaced (no call runs then), or if it could not be opened again.
    fs: RankedRwLock<Option<Filesystem>>,
    /// Its root, which an exchange keeps.
    root: ObjectId,
    checks: Checks,
    live: Arc<Live>,
    handles: Handles,
    links: Links,
    /// Owner of links and folders that are shown but not stored.
    owner: (u32, u32),
    /// Names are compared by their bytes.
    exact_names: bool,
    /// The dataset had POSIX ACLs when the session began.
    had_acls: bool,
    /// The permission checks (here or in the kernel) use POSIX ACLs.
    heeds_acls: AtomicBool,
    /// The cache that receives notices; set once.
    cache: OnceLock<Arc<dyn Cache>>,
}

impl Session {
    /// A session of `fs`. `owner` owns links and folders that are shown but not stored.
    #[must_use]
    pub fn new(fs: Filesystem, checks: Checks, settings: &Settings, owner: (u32, u32)) -> Session {
        Session {
            root: fs.root(),
            checks,
            live: Arc::new(Live::new(settings)),
            handles: Handles::new(),
            links: Links::default(),
            owner,
            exact_names: fs.names_are_exact(),
            had_acls: fs.dataset().settings().posix_acl,
            heeds_acls: AtomicBool::new(checks != Checks::Kernel),
            cache: OnceLock::new(),
            streams: Streams::default(),
            fs: RankedRwLock::leaf(Some(fs)),
        }
    }

    /// A session of a snapshot, under the same settings.
    #[must_use]
    pub fn of_snapshot(&self, fs: Filesystem) -> Session {
        Session {
            root: fs.root(),
            checks: self.checks,
            live: self.live.clone(),
            handles: Handles::new(),
            links: Links::default(),
            owner: self.owner,
            exact_names: fs.names_are_exact(),
            had_acls: self.had_acls,
            heeds_acls: AtomicBool::new(self.heeds_acls()),
            cache: OnceLock::new(),
            streams: Streams::default(),
            fs: RankedRwLock::leaf(Some(fs)),
        }
    }

    /// The file system, for one call. While a caller has it, its dataset cannot be replaced.
    ///
    /// # Errors
    /// [`Error::Closed`]: it could not be opened again after it was replaced.
    pub fn fs(&self) -> Result<Filesystem> {
        let fs = self.fs.read_after_panics();
        fs.clone().ok_or(Error::Closed)
    }

    /// Replaces the file system by another one or none. Returns the old one.
    pub fn put_fs(&self, fs: Option<Filesystem>) -> Option<Filesystem> {
        std::mem::replace(&mut *self.fs.write_after_panics(), fs)
    }

    /// The root directory.
    #[must_use]
    pub fn root(&self) -> ObjectId {
        self.root
    }

    /// Nodes that the front end holds.
    #[must_use]
    pub fn handles(&self) -> &Handles {
        &self.handles
    }

    /// Whether it shows a snapshot.
    #[must_use]
    pub fn is_snapshot(&self) -> bool {
        self.fs().is_ok_and(|fs| fs.dataset().is_snapshot())
    }

    /// Whether names are compared by their bytes.
    #[must_use]
    pub fn exact_names(&self) -> bool {
        self.exact_names
    }

    /// Whether the dataset had POSIX ACLs when the session began.
    #[must_use]
    pub fn had_acls(&self) -> bool {
        self.had_acls
    }

    /// Whether the permission checks (here or in the kernel) use POSIX ACLs.
    #[must_use]
    pub fn heeds_acls(&self) -> bool {
        self.heeds_acls.load(Ordering::Acquire)
    }

    /// Sets whether the kernel uses POSIX ACLs. If it does not, ACLs are neither shown nor set, because the kernel would use
    /// their mask as the permissions of the group, which may grant too much.
    pub fn set_heeds_acls(&self, heeds: bool) {
        self.heeds_acls.store(heeds, Ordering::Release);
    }

    /// The settings may have changed.
    pub fn set_settings(&self, settings: &Settings) {
        self.live.set(settings);
    }

    /// Whether this session is read-only, even if the dataset is not.
    #[must_use]
    pub fn read_only(&self) -> bool {
        self.live.read_only()
    }

    /// Whether it lifts `readonly=on`.
    #[must_use]
    pub fn lifts_read_only(&self) -> bool {
        self.live.lifts_read_only()
    }

    /// Refuses changes where there are none.
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    pub fn check_writable(&self) -> Result<()> {
        if self.live.read_only() || self.is_snapshot() {
            return Err(Error::ReadOnly("nothing may be changed here".into()));
        }
        Ok(())
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session of {}, checks: {:?}", self.root, self.checks)
    }
}
