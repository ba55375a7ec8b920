//! State that the threads of a mount share with its owner.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use front::MountOptions;
use fuser::{Errno, INodeNo};
use zpl::session::{Checks, Numbers};
use zpl::{Filesystem, ObjectId, Session};

use crate::errno::{self, Answer};
use crate::interrupts::Interrupts;
use crate::kernel::Kernel;
use crate::lost::Lost;
use crate::progress::Progress;
use crate::refresh::Refresh;
use crate::threads::thread_count;

/// State that the threads of a mount share with its owner. There is one for the file system and one for each of its open
/// snapshots.
pub(crate) struct Shared {
    /// The session: contents and permissions of the mount.
    pub(crate) session: Arc<Session>,
    /// The kernel's caches of it.
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) lost: Lost,
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

impl Shared {
    pub(crate) fn new(fs: Filesystem, options: &MountOptions, writeback: bool) -> Shared {
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let session = Session::new(fs, Checks::Kernel, &options.settings(), owner);
        let kernel = Arc::new(Kernel::new(Numbers::of_head(INodeNo::ROOT.0), session.root()));
        session.set_cache(kernel.clone());
        Shared {
            sees_opens: session.sees_accesses(),
            session: Arc::new(session),
            kernel,
            lost: Lost::default(),
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
        Shared {
            session: Arc::new(session),
            kernel,
            lost: Lost::default(),
            refresh: Refresh::default(),
            interrupts: self.interrupts.clone(),
            progress: self.progress.clone(),
            writeback: false,
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
