//! A thread for operations during which the kernel sends other requests. The threads that serve requests must stay free for
//! these.

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use zpl::rank::RankedMutex;

pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs one after the other; ends with the value, when the last job is done.
pub(crate) struct Seeker {
    jobs: RankedMutex<Option<Sender<Job>>>,
    thread: Option<JoinHandle<()>>,
}

impl Seeker {
    /// # Errors
    /// If the system gives no thread.
    pub(crate) fn start() -> std::io::Result<Seeker> {
        let (jobs, todo) = channel::<Job>();
        let thread = std::thread::Builder::new()
            .name("cenote-fuse-seek".into())
            .spawn(move || todo.into_iter().for_each(|job| job()))?;
        Ok(Seeker { jobs: RankedMutex::leaf(Some(jobs)), thread: Some(thread) })
    }

    pub(crate) fn run(&self, job: Job) {
        let jobs = self.jobs.lock();
        if let Some(jobs) = jobs.as_ref() {
            // The thread outlives this value; without it, the job's reply says that it failed.
            let _ = jobs.send(job);
        }
    }
}

impl Drop for Seeker {
    fn drop(&mut self) {
        self.jobs.lock_after_panics().take();
        // The last job may hold the last reference to this value.
        let joinable = |thread: &JoinHandle<()>| thread.thread().id() != std::thread::current().id();
        if let Some(thread) = self.thread.take().filter(joinable) {
            // Jobs answer for their own panics.
            let _ = thread.join();
        }
    }
}
