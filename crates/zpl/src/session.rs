//! Sessions: what any front end needs to know of a file system and must not decide by itself.
//!
//! From:   a front end (a mount, an export, a command), which knows who asks, and translates its protocol into these calls.
//! To:     [`Filesystem`], which stores, and enforces neither modes nor owners.
//!
//! A session decides who may do what (`permission.rs`), what new files inherit, when set-id bits are dropped, which name
//! spaces of extended attributes there are and for whom, what is kept while it is open and has no name (`handles.rs`), what
//! is in `.zfs` (`control.rs`), and what caches must be told (`notices.rs`). Protocols, caches and threads are the front
//! end's.

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
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

pub use crate::Name;
pub use access::Opening;
pub use attributes::{Change, When};
pub use caller::Caller;
pub use contents::{Allocation, Position};
pub use control::{Meaning, SNAPSHOT};
pub use difference::{Difference, difference, names_of};
pub use flags::FlagChange;
pub use handles::{Handles, Held};
pub use links::ShownLink;
pub use names::{Creation, Rename, Target};
pub use notices::{Cache, Notice};
pub use numbers::{Folder, Node, Numbers, Slot, is_made_up, is_shown_link, link_for, root_of};
pub use settings::{Atime, Settings};
pub use spaces::is_acl;

use crate::{Error, Filesystem, ObjectId, Result};
use links::Links;
use settings::Live;

/// Who checks permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checks {
    /// The kernel has checked modes, ACLs and sticky bits before the call arrives (FUSE with `default_permissions`). The
    /// session does not check again: the kernel goes by the same attributes, so a second check costs time and finds
    /// nothing; and what the kernel does on its own, such as writing pages back, it does under any user's name.
    Kernel,
    /// This session checks on every call, because nobody has checked before: an export, a library.
    Here,
    /// Nobody checks: the caller has opened the pool's devices, so it may read and change each byte of them anyway.
    Holder,
}

/// How the files of a pool are reached through one mount or export.
pub struct Session {
    /// `None` while it is exchanged for another one, which no call sees, and if it could not be opened again after that.
    fs: RwLock<Option<Filesystem>>,
    /// Its root, which an exchange keeps.
    root: ObjectId,
    checks: Checks,
    live: Arc<Live>,
    handles: Handles,
    links: Links,
    /// Who owns what is made up: links and folders that are stored nowhere.
    owner: (u32, u32),
    /// A name means one entry by its bytes alone.
    exact_names: bool,
    /// The dataset had POSIX ACLs when the session began.
    had_acls: bool,
    /// Whoever checks permissions goes by POSIX ACLs.
    heeds_acls: AtomicBool,
    /// What is told of changes; set once.
    cache: OnceLock<Arc<dyn Cache>>,
}

impl Session {
    /// A session of `fs`. `owner` owns what is shown and stored nowhere.
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
            fs: RwLock::new(Some(fs)),
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
            fs: RwLock::new(Some(fs)),
        }
    }

    /// The file system. While a caller has it, its dataset is not exchanged: it is for one call.
    ///
    /// # Errors
    /// [`Error::Closed`]: it could not be opened again after it was exchanged.
    pub fn fs(&self) -> Result<Filesystem> {
        let fs = self.fs.read().unwrap_or_else(PoisonError::into_inner);
        fs.clone().ok_or(Error::Closed)
    }

    /// Puts another file system in its place, or none; gives what was there.
    pub fn put_fs(&self, fs: Option<Filesystem>) -> Option<Filesystem> {
        std::mem::replace(&mut *self.fs.write().unwrap_or_else(PoisonError::into_inner), fs)
    }

    /// The root directory.
    #[must_use]
    pub fn root(&self) -> ObjectId {
        self.root
    }

    /// What is kept for the front end, names or no names.
    #[must_use]
    pub fn handles(&self) -> &Handles {
        &self.handles
    }

    /// Whether it shows a snapshot.
    #[must_use]
    pub fn is_snapshot(&self) -> bool {
        self.fs().is_ok_and(|fs| fs.dataset().is_snapshot())
    }

    /// Whether a name means one entry by its bytes alone.
    #[must_use]
    pub fn exact_names(&self) -> bool {
        self.exact_names
    }

    /// Whether the dataset had POSIX ACLs when the session began.
    #[must_use]
    pub fn had_acls(&self) -> bool {
        self.had_acls
    }

    /// Whether whoever checks permissions goes by POSIX ACLs.
    #[must_use]
    pub fn heeds_acls(&self) -> bool {
        self.heeds_acls.load(Ordering::Acquire)
    }

    /// The kernel says whether it goes by POSIX ACLs. Without it they are neither shown nor set: their mask, which it
    /// would take for the permissions of the group, may grant too much.
    pub fn set_heeds_acls(&self, heeds: bool) {
        self.heeds_acls.store(heeds, Ordering::Release);
    }

    /// The settings may have changed.
    pub fn set_settings(&self, settings: &Settings) {
        self.live.set(settings);
    }

    /// Whether nothing may be changed through this session, whatever the dataset says.
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
