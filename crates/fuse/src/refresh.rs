//! The files whose sizes are being set in the kernel (`sizes.rs`), for the threads that serve messages.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use fuser::Errno;
use zpl::ObjectId;
use zpl::rank::RankedRwLock;

use crate::errno::Answer;

/// The files whose sizes are being set.
#[derive(Default)]
pub(crate) struct Refresh {
    ids: RankedRwLock<HashSet<ObjectId>>,
    /// Whether there are any; usually there are none.
    any: AtomicBool,
    /// The kernel's id of the thread that sets them.
    thread: AtomicU32,
}

impl Refresh {
    /// Marks the sizes of `ids` as unknown to the kernel. The calling thread will set them.
    pub(crate) fn begin(&self, ids: HashSet<ObjectId>) {
        let thread = rustix::thread::gettid().as_raw_pid();
        self.thread.store(thread.cast_unsigned(), Ordering::Release);
        self.any.store(!ids.is_empty(), Ordering::Release);
        *self.ids.write_after_panics() = ids;
    }

    /// The kernel knows the size of `id`.
    pub(crate) fn end(&self, id: ObjectId) {
        let mut ids = self.ids.write_after_panics();
        ids.remove(&id);
        self.any.store(!ids.is_empty(), Ordering::Release);
    }

    fn has(&self, id: ObjectId) -> bool {
        self.any.load(Ordering::Acquire) && self.ids.read_after_panics().contains(&id)
    }

    /// Whether the message about `id` by the thread `caller` only asks for its size.
    pub(crate) fn is_asked(&self, id: ObjectId, caller: u32) -> bool {
        self.has(id) && self.thread.load(Ordering::Acquire) == caller
    }

    /// # Errors
    /// `EIO`: the kernel does not know the size of `id` yet, so what it writes may belong elsewhere.
    pub(crate) fn check_known(&self, id: ObjectId) -> Answer<()> {
        if self.has(id) { Err(Errno::EIO) } else { Ok(()) }
    }
}
