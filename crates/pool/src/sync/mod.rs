//! The sync thread: frozen changes → blocks → MOS → space maps until quiet → flush → uberblock → flush.

mod books;
mod checkpoint;
mod commit;
mod condense;
mod dataset;
mod effects;
mod evacuate;
mod first;
mod frees;
mod heads;
pub(crate) mod missing;
mod mos;
mod obsolete;
pub(crate) mod reflow;
mod scan;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dmu::{Frozen, Objset, Synced, Tx};
use format::Txg;
use format::blkptr::BlockPtr;
use storage::Writer;

use self::commit::commit;
use self::reflow::Moving;
use crate::checkpoint::Stage;
use crate::mos::Mos;
use crate::space_maps::free_extents;
use crate::state::{Dataset, Inner, SyncState, Syncing, Task};
use crate::tx::Work;
use crate::{Error, Result, labels, zil};

/// Metaslabs kept in memory between txgs.
const METASLABS_KEPT: usize = 64;

pub(crate) fn sync_loop(inner: &Arc<Inner>, mut state: SyncState) {
    // A stepwise pool syncs only when asked.
    let groups = &inner.groups;
    let timeout = || if groups.stepwise { Duration::MAX / 4 } else { groups.limits.txg_timeout() };
    let _alarm = Alarm(inner);
    inner.storage.suspension().set_sync_thread();
    let mut deadline = Instant::now() + timeout();
    loop {
        match inner.groups.wait_for_work(deadline) {
            Work::End => {
                state.leaving.drain(..).for_each(|(_, leaf)| labels::let_go(&leaf));
                return;
            }
            Work::LogSpace(open) => {
                zil::stash::refill(inner, &mut state, open);
                continue;
            }
            Work::Sync => deadline = Instant::now() + timeout(),
        }
        let (txg, closed) = inner.groups.close(|held| {
            let freeze = |dataset: Arc<Dataset>| {
                dataset.listed.store(false, Ordering::Release);
                let frozen = dataset.objset().freeze();
                (dataset, frozen)
            };
            inner.accounts.promises.close();
            let frozen = inner.open.take_dirty().into_iter().map(freeze).collect();
            Closed { tasks: inner.jobs.take(held), frozen }
        });
        zil::stash::renew(inner, &mut state, txg);
        match sync_txg(inner, &mut state, txg, closed) {
            Ok(()) => {
                Syncing::keep_from(&mut state, txg);
                zil::durable(inner, txg);
                inner.look_at_load();
                let space = state.allocator.space();
                publish(inner, &state, txg);
                let settling = space.deferred + still_freed(inner, &state) + state.ddt.freeing_bytes();
                let more =
                    state.freeing || state.ddt.is_freeing() || state.keeping.stage == Stage::Discarding;
                inner.groups.synced(txg, state.allocator.allocatable(), settling, more);
                if goes_on(inner, &state) {
                    inner.groups.go_on();
                }
            }
            Err(error) => {
                tracing::error!(txg = txg.0, %error, "the pool stops: a transaction group could not be written");
                inner.groups.fail(Arc::new(error));
                return;
            }
        }
    }
}

/// Stops the pool when the sync thread panics. Otherwise all callers would wait for it forever.
struct Alarm<'a>(&'a Inner);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.groups.fail(Arc::new(Error::Internal));
        }
    }
}

/// Whether the next txg has something to do for vdevs that are removed, or were, or that are expanded.
fn goes_on(inner: &Inner, state: &SyncState) -> bool {
    let evacuates = state.evacuating.is_some() && !inner.groups.limits.suspends_removal();
    evacuates || state.condensing.is_some() || reflow::goes_on(inner, state)
}

/// Bytes that the next txgs free.
fn still_freed(inner: &Inner, state: &SyncState) -> u64 {
    if !state.freeing {
        return 0;
    }
    dsl::frees::waiting(&inner.mos).unwrap_or_else(|error| {
        tracing::warn!(%error, "what waits to be freed cannot be read");
        0
    })
}

/// Makes the new figures visible to readers.
pub(crate) fn publish(inner: &Arc<Inner>, state: &SyncState, txg: Txg) {
    let tables = state.ddt.bytes() + state.brt.bytes();
    inner.budget.set_table(tables, state.ddt.block_bytes(inner.storage.vdevs()));
    {
        let mut info = inner.info_mut();
        info.config = state.config.clone();
        info.space = state.allocator.space();
        info.vdev_space = state
            .allocator
            .vdevs()
            .filter_map(|spec| Some((spec.id.0, state.allocator.vdev_space(spec.id)?)))
            .collect();
        info.features = state.features.as_ref().map(|f| f.all().clone()).unwrap_or_default();
        info.dedup = state.ddt.total();
        info.clones = state.brt.clones();
        info.txg = txg;
        info.root = state.uberblock.root;
        info.checkpoint = state.keeping.shown();
    }
    inner.accounts.keep(state.keeping.bytes());
    let mut dirs = Vec::new();
    for dataset in inner.open.all() {
        if dataset.is_snapshot() || dataset.destroyed.load(Ordering::Acquire) {
            continue;
        }
        dirs.push(dataset.dir);
        match dsl::promises::own(&inner.mos, dataset.dir, dataset.id) {
            Ok(own) => *dataset.own() = own,
            Err(error) => tracing::warn!(dataset = dataset.name(), %error, "limits cannot be read"),
        }
    }
    if let Err(error) = inner.accounts.promises.settle(&inner.mos, &dirs) {
        tracing::warn!(%error, "limits cannot be read");
    }
}

/// The contents of a closed txg.
struct Closed {
    tasks: Vec<Task>,
    /// The datasets that it changes, and how.
    frozen: Vec<(Arc<Dataset>, Frozen)>,
}

fn sync_txg(inner: &Arc<Inner>, state: &mut SyncState, txg: Txg, mut closed: Closed) -> Result<()> {
    state.allocator.keep_readable(inner.leases.oldest());
    zil::add_logged(inner, txg, &mut closed.frozen);
    let settling = !state.allocator.is_settled(txg);
    let waiting = state.freeing
        || goes_on(inner, state)
        || state.ddt.is_freeing()
        || matches!(state.keeping.stage, Stage::Wanted | Stage::Discarding)
        || inner.scrub.is_newer();
    let_go(inner, state);
    if closed.frozen.is_empty() && closed.tasks.is_empty() && !state.config_dirty && !settling && !waiting {
        return Ok(());
    }
    let before = state.mos_on_disk(inner)?;
    let (root, moving) = write_txg(inner, state, txg, closed, before)?;
    commit(inner, state, txg, root)?;
    if let Some(moving) = moving {
        moving.arrive(state, txg)?;
    }
    let_go(inner, state);
    // The first sync has folded them into the maps that are read from now on.
    state.logs.clear();
    state.allocator.keep_readable(inner.leases.synced(&state.uberblock));
    inner.trim_freed(state.allocator.txg_synced(txg));
    state.allocator.unload_idle(METASLABS_KEPT);
    Ok(())
}

/// Closes the devices of vdevs that left: the state on disk is without them, and no reader uses an earlier one.
fn let_go(inner: &Inner, state: &mut SyncState) {
    let (synced, oldest) = (state.uberblock.txg, inner.leases.oldest());
    state.leaving.retain(|(since, leaf)| {
        let is_needed = synced < *since || oldest.is_some_and(|oldest| oldest < *since);
        if !is_needed {
            labels::let_go(leaf);
        }
        is_needed
    });
}

/// Writes every block of the txg and waits for the disks. Returns the new root, which is not yet the pool's state, and
/// the sectors that moved on a vdev that is being expanded.
fn write_txg<'a>(
    inner: &'a Arc<Inner>,
    state: &mut SyncState,
    txg: Txg,
    closed: Closed,
    before: Option<Objset>,
) -> Result<(BlockPtr, Option<Moving<'a>>)> {
    let Closed { tasks, frozen: changed } = closed;
    let writer = Writer::new(&inner.storage, txg);
    let mut syncing = Syncing {
        inner,
        state,
        txg,
        tx: Tx::new(txg),
        writer,
        before,
        broken: None,
        freed: 0,
        mos_passes: 0,
    };
    syncing.begin_checkpoint()?;
    if syncing.state.fresh {
        syncing.first_sync()?;
    }
    syncing.note_reflow()?;
    let SyncState { ddt, features, allocator, .. } = &mut *syncing.state;
    ddt.begin_txg(&inner.mos.objset, features.as_ref(), allocator)?;
    syncing.refer_cloned(&changed)?;
    let mut written = Vec::new();
    for (dataset, frozen) in changed {
        let synced = syncing.sync_dataset(&dataset, frozen)?;
        written.extend(synced.map(|synced| (dataset, synced)));
    }
    for block in inner.storage.drain_early(txg) {
        // Only records of this txg point to these blocks.
        free_extents(&inner.storage, &mut syncing.state.allocator, &block, txg)?;
    }
    inner.encode_ahead();
    if !tasks.is_empty() || syncing.state.freeing {
        // The jobs may read blocks that were just written.
        syncing.writer.drain()?;
        settle(&mut written);
    }
    for task in tasks {
        let exclusive = inner.dsl.write();
        // A job that panics stops the pool, but must not poison the lock, because readers still use it.
        let done = catch_unwind(AssertUnwindSafe(|| task(&mut syncing)));
        drop(exclusive);
        done.map_err(|_| Error::Internal)?;
        if let Some(error) = syncing.broken.take() {
            return Err(error);
        }
    }
    syncing.keep_scan()?;
    syncing.free_waiting()?;
    syncing.evacuate()?;
    syncing.condense()?;
    syncing.store_references()?;
    syncing.free_kept()?;
    let root = syncing.write_root()?;
    settle(&mut written);
    let moving = syncing.reflow(inner)?;
    Ok((root, moving))
}

/// Sends readers to the new blocks, which must be where readers look.
fn settle(written: &mut Vec<(Arc<Dataset>, Synced)>) {
    for (dataset, synced) in written.drain(..) {
        synced.settle(dataset.objset());
    }
}

impl<'a> Syncing<'a> {
    /// Counts the changes of this txg, to detect whether a job changed something.
    pub(crate) fn changes(&self) -> (u64, u64) {
        (self.mos().objset.changes(), self.freed)
    }

    /// The MOS.
    #[must_use]
    pub fn mos(&self) -> &'a Mos {
        &self.inner.mos
    }

    /// Bytes that are allocated.
    #[must_use]
    pub fn allocated(&self) -> u64 {
        self.state.allocator.space().allocated
    }

    /// Whether blocks of destroyed datasets wait to be freed.
    #[must_use]
    pub fn is_freeing(&self) -> bool {
        self.state.freeing
    }

    /// Whether a feature is in use.
    #[must_use]
    pub fn is_active(&self, feature: &format::features::Feature) -> bool {
        self.state.features.as_ref().is_some_and(|features| features.is_active(feature))
    }

    /// Writes the MOS and makes every block of the txg durable. If a device fails meanwhile, writes the MOS once more, so
    /// that its lists of missed txgs are right.
    fn write_root(&mut self) -> Result<BlockPtr> {
        loop {
            let failed = self.note_missing()?;
            let root = self.sync_mos()?;
            std::mem::replace(&mut self.writer, Writer::new(&self.inner.storage, self.txg)).finish()?;
            self.inner.storage.flush()?;
            if self.inner.members.failed() == failed {
                return Ok(root);
            }
        }
    }

    /// Notes the command that is being carried out, once.
    pub(crate) fn log_command(&mut self) -> Result<()> {
        let command = self.inner.command.take();
        match command {
            Some(command) => {
                let host = crate::history::host_name();
                let about = [("history_hostname", host.as_str()), ("history_command", &command)];
                self.inner.happened("history_event", &about);
                crate::history::log(self.mos(), &self.tx, &command)
            }
            None => Ok(()),
        }
    }

    /// Records in the history a change that the pool makes by itself: `zpool history -i` shows it.
    ///
    /// # Errors
    /// The history cannot be read or written.
    pub fn log_internal(&self, name: &str, text: &str) -> Result<()> {
        let about = [("history_internal_name", name), ("history_internal_str", text)];
        self.inner.happened("history_event", &about);
        crate::history::log_internal(self.mos(), &self.tx, name, text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CreateSpec, NewFilesystem, Options, Pool};

    use storage::host::{Disk, Host, ScriptedDisk};

    #[test]
    fn a_sync_thread_that_panics_stops_the_pool_and_wakes_all_waiting_callers() {
        let host = Host::seeded(1, 0);
        let options = Options { io_threads: 0, workers: 1, host: host.clone(), ..Options::default() };
        let filesystem = NewFilesystem { project_quota: false, ..NewFilesystem::plain(&host) };
        let initialise: crate::Initialise = Arc::new(|_, _, _| Ok(()));
        let disk: Arc<dyn Disk> = Arc::new(ScriptedDisk::new(64 << 20));
        let spec = CreateSpec::new("tank", vec![disk.clone()], filesystem.clone(), initialise.clone());
        let pool = Pool::create(spec, options.clone()).unwrap();
        let broken: Result<()> = pool.run(|_| panic!("a false invariant"));
        let said = broken.unwrap_err().to_string();
        assert!(said.contains("suspended after an internal error"), "{said}");
        // Reads still work, and every change is refused.
        assert_eq!(pool.list("tank", None, true).unwrap().len(), 1);
        let again: Result<()> = pool.run(|_| Ok(()));
        assert!(matches!(again, Err(Error::Stopped(_))), "{again:?}");
        let made = pool.create_filesystem("tank/fs", Vec::new(), filesystem, initialise);
        assert!(matches!(made, Err(Error::Stopped(_))), "{made:?}");
        let begun = pool.open("tank").unwrap().begin(crate::Hold::write(1)).err();
        assert!(matches!(begun, Some(Error::Stopped(_))), "{begun:?}");
        assert!(matches!(pool.sync(), Err(Error::Stopped(_))));
        assert!(matches!(pool.export(), Err(Error::Stopped(_))));
        Pool::import_disks(vec![disk], options).unwrap().export().unwrap();
    }
}
