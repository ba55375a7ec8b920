//! The files whose sizes are being set in the kernel (`sizes.rs`), for the threads that serve messages.

use std::collections::HashSet;
use std::sync::Arc;
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
    asking: Asking,
}

/// The kernel's id of the thread that sets the sizes; 0: there is none now.
#[derive(Clone, Default)]
pub(crate) struct Asking(Arc<AtomicU32>);

impl Asking {
    /// From now on it is this thread.
    pub(crate) fn is_this_thread(&self) {
        self.0.store(rustix::thread::gettid().as_raw_pid().cast_unsigned(), Ordering::Release);
    }
}

impl Refresh {
    /// Marks the sizes of `ids` as unknown to the kernel.
    pub(crate) fn begin(&self, ids: HashSet<ObjectId>) {
        self.asking.0.store(0, Ordering::Release);
        self.any.store(!ids.is_empty(), Ordering::Release);
        *self.ids.write_after_panics() = ids;
    }

    /// For the thread that sets the sizes.
    pub(crate) fn asking(&self) -> Asking {
        self.asking.clone()
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
        self.has(id) && self.asking.0.load(Ordering::Acquire) == caller
    }

    /// # Errors
    /// `EIO`: the kernel does not know the size of `id` yet, so what it writes may belong elsewhere.
    pub(crate) fn check_known(&self, id: ObjectId) -> Answer<()> {
        if self.has(id) { Err(Errno::EIO) } else { Ok(()) }
    }
}
