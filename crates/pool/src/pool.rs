//! The open pool: the state that its users share with its sync thread.

use std::sync::Arc;
use std::thread::JoinHandle;

use dsl::available;
use dsl::room::Reserve;
use format::Guid;
use format::config::PoolState;
use storage::allocator::Class;
use storage::host::Host;
use storage::{Deflate, Leaf, Reader, Storage, Workers};

use crate::state::{SyncState, Syncing};
use crate::sync::sync_loop;
use crate::{NotWritten, Result};

pub use crate::state::{Info, Inner};

/// An open pool. Dropping it without [`Pool::export`] leaves the disks as after a crash, at the last synced txg.
pub struct Pool {
    pub(crate) inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

impl Pool {
    pub(crate) fn start(inner: Arc<Inner>, state: SyncState) -> Pool {
        let thread = inner.terms.read_only().is_none().then(|| {
            let inner = inner.clone();
            std::thread::Builder::new()
                .name("cenote-sync".into())
                .spawn(move || sync_loop(&inner, state))
                .expect("the system starts a thread")
        });
        Pool { inner, thread }
    }

    /// The state that threads that work for the pool share with it.
    #[must_use]
    pub fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Name as imported.
    #[must_use]
    pub fn name(&self) -> String {
        self.inner.name()
    }

    /// Guid.
    #[must_use]
    pub fn guid(&self) -> Guid {
        self.inner.info().config.pool_guid
    }

    /// Why nothing can be written, in words; `None` if writes work.
    #[must_use]
    pub fn read_only(&self) -> Option<String> {
        self.inner.terms.read_only().map(NotWritten::to_string)
    }

    /// Refuses to change a pool that is open for reading only.
    ///
    /// # Errors
    /// [`Error::ReadOnly`].
    pub fn check_writable(&self) -> Result<()> {
        self.inner.check_writable()
    }

    /// Why this build does not write the pool, even when it is asked to; `None` if it does.
    #[must_use]
    pub fn refused(&self) -> Option<String> {
        self.inner.terms.refused().map(NotWritten::to_string)
    }

    /// Whether a device may be shorter than its data.
    #[must_use]
    pub fn is_cut_short(&self) -> bool {
        self.inner.storage.vdevs().tops().iter().any(|top| top.cut_short().next().is_some())
    }

    /// The facts that `zpool list` and `zpool status` report.
    #[must_use]
    pub fn info(&self) -> Info {
        self.inner.info().clone()
    }

    /// The pool's devices, cache and workers.
    #[must_use]
    pub fn storage(&self) -> &Arc<Storage> {
        &self.inner.storage
    }

    /// The devices that are present, with their counters.
    pub fn leaves(&self) -> impl Iterator<Item = &Leaf> {
        self.inner.storage.vdevs().leaves()
    }

    /// The class of the top-level vdev `id`; `None` if there is no such vdev.
    #[must_use]
    pub fn class_of(&self, id: u32) -> Option<Class> {
        self.inner.storage.vdevs().tops().get(id as usize).map(|top| top.class)
    }

    /// The threads shared by everything that computes.
    #[must_use]
    pub fn workers(&self) -> &Workers {
        self.inner.storage.workers()
    }

    /// The threads shared by everything that reads blocks.
    #[must_use]
    pub fn readers(&self) -> &Workers {
        self.inner.storage.readers()
    }

    /// A reader of raw blocks with foreground priority.
    #[must_use]
    pub fn reader(&self) -> Reader<'_> {
        self.inner.storage.reader()
    }

    /// The gzip engine.
    #[must_use]
    pub fn deflate(&self) -> &Deflate {
        self.inner.storage.deflate()
    }

    /// Time and randomness.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.inner.host
    }

    /// Prefix shown before mountpoints.
    #[must_use]
    pub fn altroot(&self) -> Option<&str> {
        self.inner.terms.altroot()
    }

    /// Waits until everything done so far is on disk.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the pool could not write.
    pub fn sync(&self) -> Result<()> {
        if self.thread.is_none() {
            return Ok(());
        }
        self.inner.groups.sync()
    }

    /// Whether it writes txgs at all.
    pub(crate) fn is_syncing(&self) -> bool {
        self.thread.is_some()
    }

    /// Runs `job` in the next syncing txg and waits until its result is on disk.
    ///
    /// # Errors
    /// Those of the job; [`Error::ReadOnly`], [`Error::Stopped`].
    ///
    /// # Panics
    /// The sync thread panicked.
    pub fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Syncing<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.check_resumed()?;
        self.inner.run(job)
    }

    /// As [`Pool::run`], for a job that changes `objects` objects of the DSL. The job is refused if it would need the part
    /// `kept` of the free space.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; as [`Inner::run`].
    pub fn run_beside<T: Send + 'static>(
        &self,
        kept: Reserve,
        objects: u64,
        job: impl FnOnce(&mut Syncing<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.run(move |syncing| {
            available::check_reserve(&syncing.inner.view(), objects, kept)?;
            job(syncing)
        })
    }

    /// Writes everything, marks the labels as exported and closes the devices.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the pool could not write; the last synced state is what an import finds.
    pub fn export(self) -> Result<()> {
        self.finish(PoolState::Exported)
    }

    /// Marks the pool as destroyed and closes the devices.
    ///
    /// # Errors
    /// As [`Pool::export`].
    pub fn destroy(self) -> Result<()> {
        self.check_writable()?;
        self.finish(PoolState::Destroyed)
    }

    fn finish(mut self, state: PoolState) -> Result<()> {
        if self.thread.is_none() {
            return Ok(());
        }
        self.check_resumed()?;
        self.inner.scrub.leave();
        self.inner.treater.leave();
        // All records in the logs are synced now, so the logs end here.
        self.inner.open.logged().values().for_each(|dataset| dataset.log.close());
        self.run(move |syncing| {
            syncing.set_pool_state(state);
            Ok(())
        })?;
        self.stop();
        // A thread that still answers about an open file refers to the pool. It must not keep the devices locked.
        self.inner.storage.vdevs().leaves().for_each(Leaf::close);
        self.inner.aux_disks.replace(Vec::new());
        Ok(())
    }

    fn stop(&mut self) {
        // Operations that wait for a retry of a refused write would block the sync thread and the scrub.
        self.inner.suspension().give_up();
        self.inner.scrub.leave();
        self.inner.treater.leave();
        self.inner.storage.second().leave();
        self.inner.groups.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the sync thread panicked");
        }
        // Until here the pool may have been written.
        self.inner.multihost.leave();
        // Drops changes that were never synced. Datasets that are kept for them would keep the devices locked.
        self.inner.open.take_dirty().iter().for_each(|dataset| dataset.objset().give_up());
        self.inner.mos.objset.give_up();
        self.inner.open.drop_logged();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.stop();
    }
}
