//! One file system of a mount, and the threads that serve it.

use std::ops::Deref;
use std::sync::Arc;

use crate::interrupts::Change;
use crate::permits::Permits;
use crate::seeker::Seeker;
use crate::shared::Shared;

/// A file system of a mount, as `messages.rs` serves it.
pub(crate) struct Bridge {
    pub(crate) shared: Arc<Shared>,
    pub(crate) seeker: Arc<Seeker>,
    pub(crate) permits: Permits<Task>,
}

/// What may wait for the pool.
pub(crate) type Task = Box<dyn FnOnce(&Bridge) + Send>;

impl Bridge {
    /// Runs `job`, which has a permit, and then the jobs that wait for a permit.
    pub(crate) fn serve(&self, mut job: Option<Task>) {
        while let Some(now) = job {
            now(self);
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
            self.serve(self.permits.take_or_queue(Box::new(job), 0));
        }
    }
}

impl Deref for Bridge {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}
