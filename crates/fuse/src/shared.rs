//! What the threads of a mount and its owner share.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use fuser::{Errno, INodeNo, Notifier};
use zpl::{Filesystem, ObjectId};

use crate::access;
use crate::errno::Answer;
use crate::interrupts::Interrupts;
use crate::known::Known;
use crate::limits::Limits;
use crate::links::Links;
use crate::lost::Lost;
use crate::options::Live;
use crate::progress::Progress;
use crate::refresh::Refresh;
use crate::snapdir::Numbers;

/// What the threads of a mount and its owner share: one for the file system, and one for each of its snapshots that
/// somebody looks into.
pub(crate) struct Shared {
    /// `None` while it is exchanged for another one, which nobody sees who serves a message, and if it could not be opened
    /// again after that.
    fs: RwLock<Option<Filesystem>>,
    /// Its root, which an exchange keeps.
    root: ObjectId,
    /// What the kernel and programs call its objects.
    pub(crate) numbers: Numbers,
    pub(crate) known: Known,
    /// Directories that are shown as links.
    pub(crate) links: Links,
    pub(crate) lost: Lost,
    pub(crate) limits: Limits,
    /// Files whose sizes the kernel is just told.
    pub(crate) refresh: Refresh,
    /// Requests that programs wait for.
    pub(crate) interrupts: Arc<Interrupts>,
    /// What was taken from the kernel, and how much of it is done.
    pub(crate) progress: Arc<Progress>,
    pub(crate) live: Arc<Live>,
    /// A name means one entry by its bytes alone.
    pub(crate) exact_names: bool,
    pub(crate) writeback: bool,
    /// The kernel asks before it opens a file, see `access.rs`; settled when it is mounted.
    pub(crate) sees_opens: bool,
    /// The dataset had POSIX ACLs when it was mounted.
    pub(crate) had_acls: bool,
    /// The kernel asks for POSIX ACLs and goes by them; settled when it is mounted.
    pub(crate) acls: AtomicBool,
    /// For telling the kernel what it should forget; set once it is mounted.
    notifier: OnceLock<Notifier>,
    /// A request ended in a broken invariant: nothing is served any more.
    broken: Arc<AtomicBool>,
}

impl Shared {
    pub(crate) fn new(fs: Filesystem, live: Live, writeback: bool, threads: usize) -> Shared {
        let exact_names = fs.names_are_exact();
        let sees_opens = access::matters(&fs, &live);
        let acls = AtomicBool::new(false);
        let had_acls = fs.dataset().settings().posix_acl;
        Shared {
            root: fs.root(),
            fs: RwLock::new(Some(fs)),
            had_acls,
            numbers: Numbers::HEAD,
            known: Known::new(),
            links: Links::default(),
            lost: Lost::default(),
            limits: Limits::default(),
            refresh: Refresh::default(),
            interrupts: Arc::default(),
            progress: Arc::new(Progress::new(threads)),
            live: Arc::new(live),
            exact_names,
            writeback,
            sees_opens,
            acls,
            notifier: OnceLock::new(),
            broken: Arc::default(),
        }
    }

    /// For a snapshot, in the same mount.
    pub(crate) fn of_snapshot(&self, fs: Filesystem, numbers: Numbers) -> Shared {
        let acls = AtomicBool::new(self.acls.load(Ordering::Acquire));
        let exact_names = fs.names_are_exact();
        Shared {
            root: fs.root(),
            fs: RwLock::new(Some(fs)),
            had_acls: self.had_acls,
            numbers,
            known: Known::new(),
            links: Links::default(),
            lost: Lost::default(),
            limits: Limits::default(),
            refresh: Refresh::default(),
            interrupts: self.interrupts.clone(),
            progress: self.progress.clone(),
            live: self.live.clone(),
            exact_names,
            writeback: false,
            sees_opens: self.sees_opens,
            acls,
            notifier: OnceLock::new(),
            broken: self.broken.clone(),
        }
    }

    /// The file system. Whoever has it keeps its dataset from being exchanged: it is for one message.
    ///
    /// # Errors
    /// `EIO`: it could not be opened again after it was exchanged.
    pub(crate) fn fs(&self) -> Answer<Filesystem> {
        let fs = self.fs.read().unwrap_or_else(PoisonError::into_inner);
        fs.clone().ok_or(Errno::EIO)
    }

    /// Puts another file system in its place, or none; gives what was there.
    pub(crate) fn put_fs(&self, fs: Option<Filesystem>) -> Option<Filesystem> {
        std::mem::replace(&mut *self.fs.write().unwrap_or_else(PoisonError::into_inner), fs)
    }

    /// The kernel was told of `id` so many times, which it forgets; gives whether it does not know it any more.
    pub(crate) fn forget_node(&self, id: ObjectId, count: u64) -> bool {
        self.fs().is_ok_and(|fs| self.known.forget(&fs, id, count))
    }

    /// The mount ends: the kernel forgets everything.
    pub(crate) fn forget_all(&self) {
        if let Ok(fs) = self.fs() {
            self.known.clear(&fs);
        }
    }

    /// The root directory.
    pub(crate) fn root(&self) -> ObjectId {
        self.root
    }

    /// Whether it shows a snapshot.
    pub(crate) fn is_snapshot(&self) -> bool {
        self.fs().is_ok_and(|fs| fs.dataset().is_snapshot())
    }

    /// It is mounted: the kernel can be told things.
    pub(crate) fn connect(&self, notifier: Notifier) {
        // There is one mount, and so one notifier.
        let _ = self.notifier.set(notifier);
    }

    /// Tells the kernel something, if it is mounted.
    pub(crate) fn tell(&self, word: impl FnOnce(&Notifier) -> io::Result<()>) {
        if let Some(Err(error)) = self.notifier.get().map(word)
            // It never heard of that.
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::debug!(%error, "the kernel was not told");
        }
    }

    /// Makes the kernel ask for the attributes of `id` again.
    pub(crate) fn forget_attributes(&self, id: ObjectId) {
        self.tell(|notifier| notifier.inval_inode(self.ino(id), -1, 0));
    }

    /// Makes the kernel write back and forget what its page cache holds of `id`. Not to be called by a thread that
    /// serves requests: writing back needs one.
    pub(crate) fn call_back_pages(&self, id: ObjectId) {
        // Pages that are dirty again by now belong to a later moment.
        self.tell(|notifier| notifier.inval_inode(self.ino(id), 0, 0));
    }

    /// The object that the kernel calls `ino`.
    pub(crate) fn id(&self, ino: INodeNo) -> ObjectId {
        self.numbers.object(ino).unwrap_or_else(|| self.root())
    }

    /// What the kernel calls object `id`.
    pub(crate) fn ino(&self, id: ObjectId) -> INodeNo {
        if id == self.root() { self.numbers.root() } else { self.numbers.of(id) }
    }

    /// What programs see as its number.
    pub(crate) fn shown(&self, id: ObjectId) -> INodeNo {
        if id == self.root() { self.numbers.shown_root(id) } else { self.numbers.of(id) }
    }

    pub(crate) fn check_writable(&self) -> Answer<()> {
        if self.live.read_only() || self.is_snapshot() { Err(Errno::EROFS) } else { Ok(()) }
    }

    pub(crate) fn keeps_atime(&self) -> bool {
        self.live.keeps_atime() && !self.is_snapshot()
    }

    /// As [`Shared::answer`], of a request about an object.
    ///
    /// # Errors
    /// Besides those of `call`: `EIO` when the object went with an exchange of the file system. OpenZFS says the same.
    pub(crate) fn answer_at<T>(&self, id: ObjectId, call: impl FnOnce() -> Answer<T>) -> Answer<T> {
        self.answer(|| if self.known.is_gone(id) { Err(Errno::EIO) } else { call() })
    }

    /// As [`Shared::answer_at`], of a request about two objects.
    pub(crate) fn answer_both<T>(
        &self,
        one: ObjectId,
        other: ObjectId,
        call: impl FnOnce() -> Answer<T>,
    ) -> Answer<T> {
        self.answer_at(one, || if self.known.is_gone(other) { Err(Errno::EIO) } else { call() })
    }

    /// Answers a request. A broken invariant must not become a request without an answer, which no program could
    /// end: it is said, and nothing is served after it.
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
