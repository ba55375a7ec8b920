//! One file system of a mount, and the threads that serve it.

use std::ops::Deref;
use std::sync::{Arc, Weak};

use crate::interrupts::Change;
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

/// What may wait for the pool. File systems of one mount that may be written share the permits.
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
        self.change_of(0, 0, job);
    }

    /// As [`Bridge::change`], of a message with this many pages of the kernel's cache. The job holds `bytes` of data.
    pub(crate) fn change_of(&self, pages: u64, bytes: u64, job: impl FnOnce(&Bridge) + Send + 'static) {
        let taken = self.progress.take(pages);
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
            self.serve(self.permits.take_or_queue(Box::new(move || job(&bridge)), bytes));
        }
    }
}

impl Deref for Bridge {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}
