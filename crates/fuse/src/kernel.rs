//! The kernel's caches: the numbers of objects, and the notices of changes.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use fuser::{INodeNo, Notifier};
use zpl::ObjectId;
use zpl::session::{Cache, Notice, Numbers, link_for};

use crate::limits::Limits;

/// The kernel's caches of one file system, or of one snapshot.
pub(crate) struct Kernel {
    /// Mapping of objects to the numbers that the kernel and programs see.
    pub(crate) numbers: Numbers,
    root: ObjectId,
    pub(crate) limits: Limits,
    /// Sends notices to the kernel; set when the file system is mounted.
    notifier: OnceLock<Notifier>,
}

impl Kernel {
    pub(crate) fn new(numbers: Numbers, root: ObjectId) -> Kernel {
        Kernel { numbers, root, limits: Limits::default(), notifier: OnceLock::new() }
    }

    /// The file system is mounted: from now on notices can be sent.
    pub(crate) fn connect(&self, notifier: Notifier) {
        // There is one mount, and so one notifier.
        let _ = self.notifier.set(notifier);
    }

    /// It is shown in the same mount as `other`.
    pub(crate) fn connect_as(&self, other: &Kernel) {
        if let Some(notifier) = other.notifier.get() {
            self.connect(notifier.clone());
        }
    }

    /// Sends a notice to the kernel, if the file system is mounted.
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

    /// Makes the kernel write back and drop the pages of `id`. Do not call it from a thread that serves requests, because
    /// the write-back needs one.
    pub(crate) fn call_back_pages(&self, id: ObjectId) {
        // Pages that became dirty again belong to a later moment.
        self.tell(|notifier| notifier.inval_inode(self.ino(id), 0, 0));
    }

    /// The object with the kernel's number `ino`.
    pub(crate) fn id(&self, ino: INodeNo) -> ObjectId {
        self.numbers.object(ino.0).unwrap_or(self.root)
    }

    /// The number by which the kernel knows object `id`.
    pub(crate) fn ino(&self, id: ObjectId) -> INodeNo {
        INodeNo(if id == self.root { self.numbers.root() } else { self.numbers.of(id) })
    }

    /// The inode number of object `id` that programs see.
    pub(crate) fn shown(&self, id: ObjectId) -> INodeNo {
        INodeNo(if id == self.root { self.numbers.shown_root(id) } else { self.numbers.of(id) })
    }
}

impl Cache for Kernel {
    /// A thread that serves requests must not send [`Notice::Node`].
    fn forget(&self, notice: Notice<'_>) {
        match notice {
            Notice::Attributes(id) => self.forget_attributes(id),
            Notice::Node(id) => self.call_back_pages(id),
            Notice::Name(dir, name) => {
                self.tell(|kernel| kernel.inval_entry(self.ino(dir), OsStr::from_bytes(name)));
            }
            Notice::Link(dir) => {
                if let Some(link) = link_for(dir) {
                    self.tell(|kernel| kernel.inval_inode(self.ino(link), 0, 0));
                }
            }
            // The kernel asks before the next `write` to each file, however much space was left when it asked last.
            Notice::Limits => self.limits.written().into_iter().for_each(|id| self.forget_attributes(id)),
        }
    }
}
