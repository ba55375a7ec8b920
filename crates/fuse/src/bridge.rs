//! One file system of a mount, and the threads that serve it.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use crate::interrupts::Change;
use crate::kept::Kept;
use crate::permits::Permits;
use crate::seeker::Seeker;
use crate::shared::Shared;

/// A file system of a mount, as `messages.rs` serves it.
pub(crate) struct Bridge {
    pub(crate) shared: Arc<Shared>,
    pub(crate) seeker: Arc<Seeker>,
    pub(crate) permits: Arc<Permits<Task>>,
    this: Weak<Bridge>,
}

/// Work that may wait for the pool. The writable file systems of one mount share the permits.
pub(crate) type Task = Box<dyn FnOnce() + Send>;

impl Bridge {
    pub(crate) fn new(shared: Arc<Shared>, seeker: Arc<Seeker>, permits: Arc<Permits<Task>>) -> Arc<Bridge> {
        Arc::new_cyclic(|this| Bridge { shared, seeker, permits, this: this.clone() })
    }

    /// The same, for a task.
    pub(crate) fn own(&self) -> Arc<Bridge> {
        self.this.upgrade().expect("every value is in an Arc, which the caller has")
    }

    /// Runs `job`, which has a permit, and then the jobs that wait for a permit.
    pub(crate) fn serve(&self, mut job: Option<Task>) {
        while let Some(now) = job {
            now();
            job = self.permits.next();
        }
    }

    /// Runs a job that may wait for the pool, or queues it for other threads.
    pub(crate) fn change(&self, job: impl FnOnce(&Bridge) + Send + 'static) {
        let taken = self.progress.take(0);
        let change = Change::of_current(&self.interrupts);
        let job = move |bridge: &Bridge| {
            change.run(|| job(bridge));
            bridge.progress.finish(taken);
        };
        if self.permits.take() {
            job(self);
            self.serve(self.permits.next());
        } else {
            let bridge = self.own();
            self.serve(self.permits.take_or_queue(Box::new(move || job(&bridge)), 0));
        }
    }

    /// As [`Bridge::change`], with the `data` of the write that this thread serves, `pages` of the kernel's cache. A job that
    /// is queued keeps them.
    pub(crate) fn change_with(
        &self,
        pages: u64,
        data: &[u8],
        job: impl FnOnce(&Bridge, &[u8]) + Send + 'static,
    ) {
        let taken = self.progress.take(pages);
        let change = Change::of_current(&self.interrupts);
        if self.permits.take() {
            change.run(|| job(self, data));
            self.progress.finish(taken);
            self.serve(self.permits.next());
        } else {
            let data = Kept::of(data, self.permits.has_room());
            self.progress.note_queued(&data);
            let (bytes, bridge) = (data.held(), self.own());
            let job: Task = Box::new(move || {
                change.run(|| job(&bridge, data.data()));
                bridge.progress.finish(taken);
            });
            self.serve(self.permits.take_or_queue(job, bytes));
        }
    }
}

impl Deref for Bridge {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}
