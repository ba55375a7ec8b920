//! What the threads of a mount and its owner share.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use fuser::{Errno, INodeNo, Notifier};
use zpl::{Filesystem, ObjectId};

use crate::errno::Answer;
use crate::known::Known;
use crate::lost::Lost;
use crate::options::Live;

/// What the threads of a mount and its owner share.
pub(crate) struct Shared {
    pub(crate) fs: Filesystem,
    pub(crate) known: Known,
    pub(crate) lost: Lost,
    pub(crate) live: Live,
    /// A name means one entry by its bytes alone.
    pub(crate) exact_names: bool,
    pub(crate) writeback: bool,
    /// The kernel asks for POSIX ACLs and goes by them; settled when it is mounted.
    pub(crate) acls: AtomicBool,
    /// For telling the kernel what it should forget; set once it is mounted.
    notifier: OnceLock<Notifier>,
    /// A request ended in a broken invariant: nothing is served any more.
    broken: AtomicBool,
}

impl Shared {
    pub(crate) fn new(fs: Filesystem, live: Live, writeback: bool) -> Shared {
        let exact_names = fs.names_are_exact();
        let (notifier, broken) = (OnceLock::new(), AtomicBool::new(false));
        let acls = AtomicBool::new(false);
        Shared {
            fs,
            known: Known::new(),
            lost: Lost::default(),
            live,
            exact_names,
            writeback,
            acls,
            notifier,
            broken,
        }
    }

    /// It is mounted: the kernel can be told things.
    pub(crate) fn connect(&self, notifier: Notifier) {
        // There is one mount, and so one notifier.
        let _ = self.notifier.set(notifier);
    }

    /// Makes the kernel ask for the attributes of `id` again.
    pub(crate) fn forget_attributes(&self, id: ObjectId) {
        if let Some(notifier) = self.notifier.get() {
            // A node that the kernel does not know has no attributes to forget.
            let _ = notifier.inval_inode(self.ino(id), -1, 0);
        }
    }

    /// Makes the kernel write back and forget what its page cache holds of `id`. Not to be called by a thread that
    /// serves requests: writing back needs one.
    pub(crate) fn call_back_pages(&self, id: ObjectId) {
        if let Some(notifier) = self.notifier.get() {
            // Pages that are dirty again by now belong to a later moment.
            let _ = notifier.inval_inode(self.ino(id), 0, 0);
        }
    }

    /// The object that the kernel calls `ino`.
    pub(crate) fn id(&self, ino: INodeNo) -> ObjectId {
        if ino == INodeNo::ROOT { self.fs.root() } else { ObjectId(ino.0) }
    }

    /// What the kernel calls object `id`.
    pub(crate) fn ino(&self, id: ObjectId) -> INodeNo {
        if id == self.fs.root() { INodeNo::ROOT } else { INodeNo(id.0) }
    }

    pub(crate) fn check_writable(&self) -> Answer<()> {
        if self.live.read_only() { Err(Errno::EROFS) } else { Ok(()) }
    }

    /// Answers a request. A broken invariant must not become a request without an answer, which no program could
    /// end: it is said, and nothing is served after it.
    pub(crate) fn answer<T>(&self, call: impl FnOnce() -> Answer<T>) -> Answer<T> {
        if self.broken.load(Ordering::Acquire) {
            return Err(Errno::EIO);
        }
        catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
            tracing::error!("an invariant is broken: the mount serves no more requests");
            self.broken.store(true, Ordering::Release);
            Err(Errno::EIO)
        })
    }
}
