//! State that the threads of a mount share with its owner.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use front::MountOptions;
use fuser::{Errno, INodeNo};
use zpl::rank::{Rank, RankedRwLock};
use zpl::session::{Checks, Numbers, Slot};
use zpl::{Filesystem, ObjectId, Session, SnapshotKey};

use crate::errno::{self, Answer};
use crate::interrupts::Interrupts;
use crate::kernel::Kernel;
use crate::lost::Lost;
use crate::progress::Progress;
use crate::refresh::Refresh;
use crate::replies::Entry;
use crate::threads::thread_count;

/// The state that the threads of a mount and its owner share. The file system has one, and so has each of its snapshots that a
/// program looks into, and each other file system that is shown in place of a directory.
pub(crate) struct Shared {
    /// The session: contents and permissions of the mount.
    pub(crate) session: Arc<Session>,
    /// The kernel's caches of it.
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) lost: Lost,
    /// The file systems that are shown in place of directories.
    pub(crate) trees: Trees,
    /// Files whose sizes are being set in the kernel.
    pub(crate) refresh: Refresh,
    /// Requests that programs wait for.
    pub(crate) interrupts: Arc<Interrupts>,
    /// Progress of the messages taken from the kernel.
    pub(crate) progress: Arc<Progress>,
    pub(crate) writeback: bool,
    /// The kernel asks before it opens a file, see `access.rs`; settled when it is mounted.
    pub(crate) sees_opens: bool,
    /// A request panicked, so no more requests are served.
    broken: Arc<AtomicBool>,
}

/// The file systems that are shown in place of directories. Messages look at it only when they come upon such a directory.
pub(crate) struct Trees(RankedRwLock<HashMap<ObjectId, Arc<Shared>>>);

impl Default for Trees {
    fn default() -> Trees {
        Trees(RankedRwLock::new(Rank::Trees, HashMap::new()))
    }
}

impl Trees {
    /// The root of the one in place of `dir`, which the kernel knows once more then; `None` if there is none.
    pub(crate) fn entry(&self, dir: ObjectId) -> Option<Answer<Entry>> {
        // With the lock: it counts before `take_out` may find that the kernel knows nothing.
        let trees = self.0.read();
        trees.get(&dir).map(|tree| tree.entry(tree.root()))
    }

    /// The inode number of the root of the file system that is shown in place of `dir`.
    pub(crate) fn root(&self, dir: ObjectId) -> Option<INodeNo> {
        let trees = self.0.read();
        trees.get(&dir).map(|tree| tree.kernel.ino(tree.root()))
    }

    pub(crate) fn put(&self, dir: ObjectId, tree: Arc<Shared>) {
        self.0.write().insert(dir, tree);
    }

    /// Removes the file system in place of `dir` if `may` returns `true`; no message enters it meanwhile. Returns the
    /// result of `may`.
    pub(crate) fn take_out(&self, dir: ObjectId, may: impl FnOnce() -> bool) -> bool {
        let mut trees = self.0.write();
        let may = may();
        if may {
            trees.remove(&dir);
        }
        may
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.read().is_empty()
    }
}

/// The user who serves a mount, and owns the nodes that no dataset stores.
fn owner() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

impl Shared {
    pub(crate) fn new(fs: Filesystem, options: &MountOptions, writeback: bool) -> Shared {
        let session = Session::new(fs, Checks::Kernel, &options.settings(), owner());
        let kernel = Arc::new(Kernel::new(Numbers::of_head(INodeNo::ROOT.0), session.root()));
        session.set_cache(kernel.clone());
        Shared {
            sees_opens: session.sees_accesses(),
            session: Arc::new(session),
            kernel,
            lost: Lost::default(),
            trees: Trees::default(),
            refresh: Refresh::default(),
            interrupts: Arc::default(),
            progress: Arc::new(Progress::new(thread_count(options))),
            writeback,
            broken: Arc::default(),
        }
    }

    /// For a snapshot, in the same mount.
    pub(crate) fn of_snapshot(&self, fs: Filesystem, numbers: Numbers) -> Shared {
        let session = self.session.of_snapshot(fs);
        let kernel = Arc::new(Kernel::new(numbers, session.root()));
        Shared { writeback: false, ..self.beside(session, kernel) }
    }

    /// For another file system, which is shown in the same mount at `slot`.
    pub(crate) fn of_tree(
        &self,
        fs: Filesystem,
        options: &MountOptions,
        (key, slot): (SnapshotKey, Slot),
    ) -> Shared {
        let session = Session::new(fs, Checks::Kernel, &options.settings(), owner());
        session.set_heeds_acls(self.session.heeds_acls());
        let kernel = Kernel::new(Numbers::of_tree(key, session.root(), slot), session.root());
        kernel.connect_as(&self.kernel);
        let kernel = Arc::new(kernel);
        session.set_cache(kernel.clone());
        self.beside(session, kernel)
    }

    /// For a session of its own in the same mount.
    fn beside(&self, session: Session, kernel: Arc<Kernel>) -> Shared {
        Shared {
            session: Arc::new(session),
            kernel,
            lost: Lost::default(),
            trees: Trees::default(),
            refresh: Refresh::default(),
            interrupts: self.interrupts.clone(),
            progress: self.progress.clone(),
            writeback: self.writeback,
            sees_opens: self.sees_opens,
            broken: self.broken.clone(),
        }
    }

    /// The file system, for one message. While it is held, its dataset cannot be replaced.
    ///
    /// # Errors
    /// `EIO`: it could not be opened again after it was replaced.
    pub(crate) fn fs(&self) -> Answer<Filesystem> {
        self.session.fs().map_err(errno::from)
    }

    /// The root directory.
    pub(crate) fn root(&self) -> ObjectId {
        self.session.root()
    }

    /// The object with the kernel's number `ino`.
    pub(crate) fn id(&self, ino: INodeNo) -> ObjectId {
        self.kernel.id(ino)
    }

    /// As [`Shared::answer`], of a request about an object.
    ///
    /// # Errors
    /// Besides those of `call`: `EIO` if the object disappeared when the contents were replaced, as in OpenZFS.
    pub(crate) fn answer_at<T>(&self, id: ObjectId, call: impl FnOnce() -> Answer<T>) -> Answer<T> {
        self.answer(|| if self.session.handles().is_gone(id) { Err(Errno::EIO) } else { call() })
    }

    /// As [`Shared::answer_at`], of a request about two objects.
    pub(crate) fn answer_both<T>(
        &self,
        one: ObjectId,
        other: ObjectId,
        call: impl FnOnce() -> Answer<T>,
    ) -> Answer<T> {
        self.answer_at(one, || if self.session.handles().is_gone(other) { Err(Errno::EIO) } else { call() })
    }

    /// Answers a request. If serving it panics, the panic is logged and the request gets an error, because programs could
    /// not end a request without an answer. No request is served after that.
    pub(crate) fn answer<T>(&self, call: impl FnOnce() -> Answer<T>) -> Answer<T> {
        if self.broken.load(Ordering::Acquire) {
            return Err(Errno::EIO);
        }
        let _serving = self.progress.serve();
        catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
            tracing::error!("an invariant is broken: the mount serves no more requests");
            self.broken.store(true, Ordering::Release);
            Err(Errno::EIO)
        })
    }
}
