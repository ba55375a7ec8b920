//! The sync thread: frozen changes → blocks → MOS → space maps until quiet → flush → uberblock → flush.

use std::borrow::Cow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use dmu::{Frozen, Objset, Policy, Redundant, SyncCtx, Synced, Tx, zap};
use format::blkptr::{BlockPtr, Dva};
use format::compression::CompressionSetting;
use format::config::{PoolConfig, PoolState, VERSION_FEATURES};
use format::features::{self, Feature};
use format::uberblock::{Mmp, Uberblock};
use format::zap::Value;
use format::{ChecksumKind, Compression, Guid, ObjectId, ObjectType, Txg};
use storage::allocator::{AllocError, Allocator};
use storage::{GzipEngine, Leaf, Storage, TopVdev, WriteError, Writer};

use crate::dataset::Dataset;
use crate::dsl::bookmark::Freed;
use crate::dsl::{self, Category, Sizes, add_space};
use crate::features::Features;
use crate::labels::{self, Half};
use crate::mos::{DIRECTORY, Mos};
use crate::pool::Inner;
use crate::space_maps::{Logs, MapTable, MapWriter, Source};
use crate::tx::{Task, Work};
use crate::{Error, Result, bpobj, zil};

/// Passes after which the space maps must have come to rest.
const PASSES_MAX: u32 = 32;
/// Metaslabs kept in memory between txgs.
const METASLABS_KEPT: usize = 64;

/// What only the sync thread touches.
pub(crate) struct SyncState {
    pub(crate) allocator: Allocator,
    pub(crate) table: MapTable,
    /// Changes in log space maps, to be folded into the metaslabs' own maps by the first sync.
    pub(crate) logs: Logs,
    pub(crate) features: Option<Features>,
    pub(crate) config: PoolConfig,
    pub(crate) config_object: ObjectId,
    pub(crate) config_dirty: bool,
    /// The last uberblock on disk; its root is a hole in a pool that was never synced.
    pub(crate) uberblock: Uberblock,
    /// What writing the MOS added to its own size and is not yet in the books.
    pub(crate) mos_delta: Sizes,
    /// Blocks of destroyed snapshots wait to be freed.
    pub(crate) freeing: bool,
    /// Work of the first sync after an import is still to be done.
    pub(crate) fresh: bool,
    /// The salt must be written into the MOS.
    pub(crate) new_salt: Option<[u8; 32]>,
    /// What the pool is called on the disks, if it goes by another name only as long as it is imported.
    pub(crate) name_on_disk: Option<String>,
}

impl SyncState {
    /// The configuration as it is written.
    fn config_on_disk(&self) -> Cow<'_, PoolConfig> {
        match &self.name_on_disk {
            None => Cow::Borrowed(&self.config),
            Some(name) => Cow::Owned(PoolConfig { name: name.clone(), ..self.config.clone() }),
        }
    }
}

/// The syncing txg, as jobs see it.
pub(crate) struct Syncing<'a> {
    pub(crate) inner: &'a Arc<Inner>,
    pub(crate) state: &'a mut SyncState,
    pub(crate) txg: Txg,
    pub(crate) tx: Tx,
    writer: Writer<'a>,
    /// The MOS as of the last synced txg.
    before: Option<Objset>,
    /// A job failed after it had changed something: the txg must not become the pool's state.
    pub(crate) broken: Option<Error>,
    /// Blocks that jobs freed.
    freed: u64,
}

pub(crate) fn sync_loop(inner: &Arc<Inner>, mut state: SyncState) {
    // A stepwise pool syncs only when asked.
    let groups = &inner.groups;
    let timeout = || if groups.stepwise { Duration::MAX / 4 } else { groups.limits.txg_timeout() };
    let _alarm = Alarm(inner);
    let mut deadline = Instant::now() + timeout();
    loop {
        match inner.groups.wait_for_work(deadline) {
            Work::End => return,
            Work::LogSpace(open) => {
                zil::stash::refill(inner, &mut state, open);
                continue;
            }
            Work::Sync => deadline = Instant::now() + timeout(),
        }
        let (txg, tasks, frozen) = inner.groups.close(|| {
            let freeze = |dataset: Arc<Dataset>| {
                dataset.listed.store(false, Ordering::Release);
                let frozen = dataset.objset().freeze();
                (dataset, frozen)
            };
            inner.promises.close();
            inner.take_dirty().into_iter().map(freeze).collect::<Vec<_>>()
        });
        zil::stash::renew(inner, &mut state, txg);
        match sync_txg(inner, &mut state, txg, tasks, frozen) {
            Ok(()) => {
                zil::durable(inner, txg);
                inner.look_at_load();
                let space = state.allocator.space();
                publish(inner, &state, txg);
                inner.groups.synced(txg, state.allocator.allocatable(), space.deferred, state.freeing);
            }
            Err(error) => {
                tracing::error!(txg = txg.0, %error, "the pool stops: a transaction group could not be written");
                inner.groups.fail(Arc::new(error));
                return;
            }
        }
    }
}

/// Stops the pool when the sync thread dies of a broken invariant: else everybody would wait for it for ever.
struct Alarm<'a>(&'a Inner);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.groups.fail(Arc::new(Error::Internal));
        }
    }
}

/// Makes the new figures visible to readers.
pub(crate) fn publish(inner: &Arc<Inner>, state: &SyncState, txg: Txg) {
    {
        let mut info = inner.info.write().expect("the info lock guards a plain store");
        info.config = state.config.clone();
        info.space = state.allocator.space();
        info.vdev_space = state
            .allocator
            .vdevs()
            .filter_map(|spec| Some((spec.id.0, state.allocator.vdev_space(spec.id)?)))
            .collect();
        info.features = state.features.as_ref().map(|f| f.all().clone()).unwrap_or_default();
        info.txg = txg;
        info.root = state.uberblock.root;
    }
    let mut dirs = Vec::new();
    for dataset in inner.open_datasets() {
        if dataset.is_snapshot() || dataset.destroyed.load(Ordering::Acquire) {
            continue;
        }
        dirs.push(dataset.dir);
        match dsl::lookup::own(&inner.mos, dataset.dir, dataset.id) {
            Ok(own) => *dataset.own() = own,
            Err(error) => tracing::warn!(dataset = dataset.name(), %error, "limits cannot be read"),
        }
    }
    if let Err(error) = inner.promises.settle(&inner.mos, &dirs) {
        tracing::warn!(%error, "limits cannot be read");
    }
}

fn sync_txg(
    inner: &Arc<Inner>,
    state: &mut SyncState,
    txg: Txg,
    tasks: Vec<Task>,
    frozen: Vec<(Arc<Dataset>, Frozen)>,
) -> Result<()> {
    state.allocator.keep_readable(inner.leases.oldest());
    let mut changed = frozen;
    zil::add_logged(inner, txg, &mut changed);
    let settling = !state.allocator.is_settled(txg);
    if changed.is_empty() && tasks.is_empty() && !state.config_dirty && !settling && !state.freeing {
        return Ok(());
    }
    let root = state.uberblock.root;
    let before = match root {
        BlockPtr::Hole(_) => None,
        root => Some(Objset::open(inner.storage.clone(), Arc::default(), root)?),
    };
    let root = write_txg(inner, state, txg, tasks, changed, before)?;
    commit(inner, state, txg, root)?;
    // The first sync has folded them into the maps that are read from now on.
    state.logs.clear();
    state.allocator.keep_readable(inner.leases.synced(&state.uberblock));
    for (vdev, offset, len) in state.allocator.txg_synced(txg) {
        tracing::trace!(vdev = vdev.0, offset, len, "reusable");
    }
    state.allocator.unload_idle(METASLABS_KEPT);
    Ok(())
}

/// Writes every block of the txg and waits for the disks; returns the new root, not yet the pool's state.
fn write_txg(
    inner: &Arc<Inner>,
    state: &mut SyncState,
    txg: Txg,
    tasks: Vec<Task>,
    changed: Vec<(Arc<Dataset>, Frozen)>,
    before: Option<Objset>,
) -> Result<BlockPtr> {
    let writer = Writer::new(&inner.storage);
    let mut syncing = Syncing { inner, state, txg, tx: Tx::new(txg), writer, before, broken: None, freed: 0 };
    if syncing.state.fresh {
        syncing.first_sync()?;
    }
    let mut written = Vec::new();
    for (dataset, frozen) in changed {
        let synced = syncing.sync_dataset(&dataset, frozen)?;
        written.extend(synced.map(|synced| (dataset, synced)));
    }
    for block in inner.storage.drain_early(txg) {
        // Nothing but records of this txg points there.
        free_extents(&inner.storage, &mut syncing.state.allocator, &block, txg)?;
    }
    inner.encode_ahead();
    if !tasks.is_empty() || syncing.state.freeing {
        // They may read what was just written.
        syncing.writer.drain()?;
        settle(&mut written);
    }
    for task in tasks {
        let exclusive = inner.dsl.write().expect("no code panics while holding the DSL lock");
        // A job that panics ends the pool, but must not take the lock along: there are readers.
        let done = catch_unwind(AssertUnwindSafe(|| task(&mut syncing)));
        drop(exclusive);
        done.map_err(|_| Error::Internal)?;
        if let Some(error) = syncing.broken.take() {
            return Err(error);
        }
    }
    syncing.free_waiting()?;
    let root = syncing.sync_mos()?;
    syncing.writer.finish()?;
    settle(&mut written);
    Ok(root)
}

/// Sends readers to the new blocks, which must be where readers look.
fn settle(written: &mut Vec<(Arc<Dataset>, Synced)>) {
    for (dataset, synced) in written.drain(..) {
        synced.settle(dataset.objset());
    }
}

/// Makes `root` the state of the pool.
fn commit(inner: &Inner, state: &mut SyncState, txg: Txg, root: BlockPtr) -> Result<()> {
    let vdevs = inner.storage.vdevs();
    // Every block is durable before anything points at it.
    vdevs.flush()?;
    let uberblock = Uberblock {
        version: state.config.version,
        txg,
        guid_sum: state.config.tree.guid_sum(),
        timestamp: inner.host.clock.now().0,
        root,
        software_version: VERSION_FEATURES,
        mmp: Some(Mmp { delay_ns: 0, config: 0 }),
        checkpoint_txg: Txg(0),
        raidz_reflow: 0,
    };
    let config_dirty = std::mem::take(&mut state.config_dirty);
    let mut halves: Vec<(&Leaf, Half)> = Vec::new();
    if config_dirty {
        for leaf in vdevs.tops().iter().flat_map(TopVdev::leaves) {
            halves.push((leaf, Half::to_write_first(&*leaf.disk, state.uberblock.txg)));
        }
    }
    let written = state.config_on_disk();
    for (leaf, half) in &halves {
        labels::write_config(&leaf.disk, &written, Guid(leaf.guid), *half)?;
    }
    if config_dirty {
        vdevs.flush()?;
    }
    for top in vdevs.tops() {
        for leaf in top.leaves() {
            labels::write_uberblock(&leaf.disk, &uberblock, top.ashift)?;
        }
    }
    // Now, and only now, txg is the state of the pool.
    vdevs.flush()?;
    for (leaf, half) in &halves {
        labels::write_config(&leaf.disk, &written, Guid(leaf.guid), half.other())?;
    }
    if config_dirty {
        vdevs.flush()?;
    }
    drop(written);
    state.uberblock = uberblock;
    if config_dirty {
        inner.happened("config_sync", &[]);
    }
    inner.note_device_errors();
    Ok(())
}

/// Space for the blocks of one dataset, or of the MOS.
struct Books<'a> {
    storage: &'a Storage,
    allocator: &'a mut Allocator,
    source: Source<'a>,
    txg: Txg,
    /// Blocks born later belong to the dataset alone.
    prev_snap_txg: Txg,
    delta: Sizes,
    /// Change of what only this dataset refers to.
    unique: i64,
    /// Killed blocks that a snapshot still has.
    dead: Vec<(BlockPtr, Sizes)>,
    /// Killed blocks that bookmarks count.
    freed: Freed,
    needs: Needs,
}

/// Per-dataset features that written blocks need.
#[derive(Clone, Copy, Debug, Default)]
struct Needs {
    large_blocks: bool,
    zstd: bool,
    checksum: Option<ChecksumKind>,
}

impl dmu::Space for Books<'_> {
    fn allocate(&mut self, psize: u64, copies: u8) -> Result<[Dva; 3], WriteError> {
        self.allocator.allocate(psize, copies, self.txg, &mut self.source).map_err(|error| match error {
            AllocError::NoSpace { .. } => WriteError::NoSpace,
            AllocError::Source { source: Error::Dmu(dmu::Error::Block { source, .. }), .. } => {
                WriteError::Read(source)
            }
            AllocError::Source { vdev, metaslab, source } => {
                tracing::error!(vdev = vdev.0, metaslab, %source, "space map cannot be read");
                WriteError::Read(storage::ReadError::Unsupported("a damaged space map"))
            }
            AllocError::Damaged { damage, .. } => WriteError::Read(damage.into()),
        })
    }

    fn born(&mut self, ptr: &BlockPtr) {
        let sizes = Sizes::of(self.storage.vdevs(), ptr);
        self.delta += sizes;
        self.unique += sizes.used;
        if ptr.lsize() > 128 << 10 {
            self.needs.large_blocks = true;
        }
        let compression = match ptr {
            BlockPtr::Block(block) => {
                if !matches!(block.checksum_kind, ChecksumKind::Fletcher2 | ChecksumKind::Fletcher4) {
                    self.needs.checksum = Some(block.checksum_kind);
                }
                block.compression
            }
            BlockPtr::Embedded(embedded) => embedded.compression,
            BlockPtr::Hole(_) => return,
        };
        self.needs.zstd |= compression == Compression::Zstd;
    }

    fn killed(&mut self, ptr: &BlockPtr) -> Result<(), dmu::Error> {
        let sizes = Sizes::of(self.storage.vdevs(), ptr);
        self.delta += -sizes;
        self.freed.killed(ptr, sizes);
        if ptr.accounting_birth() <= self.prev_snap_txg {
            self.dead.push((*ptr, sizes));
            return Ok(());
        }
        self.unique -= sizes.used;
        if let BlockPtr::Block(block) = ptr {
            free_extents(self.storage, self.allocator, block, self.txg)?;
        }
        Ok(())
    }
}

pub(crate) fn free_extents(
    storage: &Storage,
    allocator: &mut Allocator,
    block: &format::blkptr::Block,
    txg: Txg,
) -> Result<(), dmu::Error> {
    for dva in storage.extents(block).map_err(WriteError::from)? {
        allocator.free(dva, txg).map_err(|error| {
            tracing::error!(%error, "space map and block pointers disagree");
            WriteError::Read(storage::ReadError::OutOfRange { dva })
        })?;
    }
    Ok(())
}

impl<'a> Syncing<'a> {
    /// Changes when something of this txg does that a job can change.
    pub(crate) fn changes(&self) -> (u64, u64) {
        (self.mos().objset.changes(), self.freed)
    }

    pub(crate) fn mos(&self) -> &'a Mos {
        &self.inner.mos
    }

    /// Books for blocks of a dataset whose newest snapshot was taken in `prev_snap_txg`, and the writer.
    fn books(&mut self, prev_snap_txg: Txg) -> (Books<'_>, &mut Writer<'a>) {
        let SyncState { allocator, table, logs, .. } = &mut *self.state;
        let source = Source {
            objset: self.before.as_ref(),
            tops: self.inner.storage.vdevs().tops(),
            maps: table,
            logs,
        };
        let books = Books {
            storage: &self.inner.storage,
            allocator,
            source,
            txg: self.txg,
            prev_snap_txg,
            delta: Sizes::default(),
            unique: 0,
            dead: Vec::new(),
            freed: Freed::default(),
            needs: Needs::default(),
        };
        (books, &mut self.writer)
    }

    /// Room for a log block of `size` bytes; `None` when there is none.
    pub(crate) fn allocate_log_block(&mut self, size: u64) -> Result<Option<Dva>> {
        let txg = self.txg;
        let (mut books, _) = self.books(Txg(0));
        let Books { allocator, source, .. } = &mut books;
        match allocator.allocate_log(size, txg, source) {
            Ok(dva) => Ok(Some(dva)),
            Err(AllocError::NoSpace { .. }) => Ok(None),
            Err(AllocError::Source { source, .. }) => Err(source),
            Err(AllocError::Damaged { damage, .. }) => Err(Error::Read(damage.into())),
        }
    }

    /// As a job does it: the blocks can be read when this returns.
    pub(crate) fn sync_and_settle(&mut self, dataset: &Dataset, frozen: Frozen) -> Result<()> {
        if let Some(synced) = self.sync_dataset(dataset, frozen)? {
            self.writer.drain()?;
            synced.settle(dataset.objset());
        }
        Ok(())
    }

    /// Writes a dataset's frozen changes and brings its books up to date. Settles nothing: the blocks are still on
    /// their way. `None` for a dataset that is gone.
    fn sync_dataset(&mut self, dataset: &Dataset, frozen: Frozen) -> Result<Option<Synced>> {
        if dataset.destroyed.load(Ordering::Acquire) {
            return Ok(None);
        }
        let mut needs = Needs::default();
        let prev = self.mos().dataset(dataset.id)?.prev_snap_txg;
        let policy = dataset.policy();
        let txg = self.txg;
        let storage = self.inner.storage.clone();
        self.sync_log(dataset)?;
        let watched = Freed::watch(self.mos(), dataset.id, prev)?;
        let (mut books, writer) = self.books(prev);
        books.freed = watched;
        let mut ctx = SyncCtx { storage: &storage, txg, space: &mut books, writer, policy, mos_pass: 0 };
        let synced = dataset.objset().sync(&mut ctx, frozen)?;
        let Books { delta, unique, dead, freed, needs: found, .. } = books;
        needs.large_blocks |= found.large_blocks;
        needs.zstd |= found.zstd;
        needs.checksum = found.checksum;
        self.settle_dataset(dataset.id, synced.ptr, delta, unique, &dead)?;
        self.settle_bookmarks(dataset.id, &freed)?;
        self.activate(dataset, needs)?;
        Ok(Some(synced))
    }

    /// Enters a head's new root and sizes.
    fn settle_dataset(
        &mut self,
        id: ObjectId,
        root: BlockPtr,
        delta: Sizes,
        unique: i64,
        dead: &[(BlockPtr, Sizes)],
    ) -> Result<()> {
        let mos = self.mos();
        let mut phys = mos.dataset(id)?;
        let dir = phys.dir;
        phys.bp = root;
        phys.referenced_bytes = phys.referenced_bytes.wrapping_add_signed(delta.used);
        phys.compressed_bytes = phys.compressed_bytes.wrapping_add_signed(delta.comp);
        phys.uncompressed_bytes = phys.uncompressed_bytes.wrapping_add_signed(delta.uncomp);
        let unique_before = phys.unique_bytes;
        phys.unique_bytes = phys.unique_bytes.wrapping_add_signed(unique);
        let (prev_snap, deadlist, unique_after) = (phys.prev_snap, phys.deadlist, phys.unique_bytes);
        mos.put_dataset(&self.tx, id, &phys)?;
        // Blocks kept by a snapshot stay charged to the directory, in another category.
        let kept = dead.iter().fold(Sizes::default(), |sum, (_, sizes)| sum + *sizes);
        add_space(mos, &self.tx, dir, Category::Head, delta + kept)?;
        let props = mos.dir(dir)?.props_zap;
        let refreservation = dsl::properties::number_here(mos, props, "refreservation")?.unwrap_or(0);
        let unused = |unique: u64| refreservation.saturating_sub(unique) as i64;
        let reserved = Sizes { used: unused(unique_after) - unused(unique_before), ..Sizes::default() };
        add_space(mos, &self.tx, dir, Category::Reserved, reserved)?;
        if dead.is_empty() {
            return Ok(());
        }
        let origin = mos.dir(dir)?.origin;
        let origin_txg = if origin.0 == 0 { Txg(0) } else { mos.dataset(origin)?.creation_txg };
        let mut snap = mos.dataset(prev_snap)?;
        dsl::deadlist::insert(mos, &mut self.state.features, &self.tx, deadlist, dead)?;
        // Of a clone, what its origin already had was never charged to it.
        let charged = |birth: Txg| birth > origin_txg;
        let mut own = 0;
        for (ptr, sizes) in dead {
            let birth = ptr.accounting_birth();
            if snap.next_snap == id && birth > snap.prev_snap_txg {
                snap.unique_bytes = snap.unique_bytes.wrapping_add_signed(sizes.used);
            }
            if charged(birth) {
                own += sizes.used;
            }
        }
        dsl::space::move_space(mos, &self.tx, dir, Category::Head, Category::Snap, own)?;
        mos.put_dataset(&self.tx, prev_snap, &snap)
    }

    /// Marks the dataset with the features that its blocks need.
    fn activate(&mut self, dataset: &Dataset, needs: Needs) -> Result<()> {
        let checksum = needs.checksum.and_then(checksum_feature);
        let wanted = [
            needs.large_blocks.then_some(&features::LARGE_BLOCKS),
            needs.zstd.then_some(&features::ZSTD_COMPRESS),
            checksum,
            (dataset.settings().dnode_slots > 1).then_some(&features::LARGE_DNODE),
        ];
        for feature in wanted.into_iter().flatten() {
            let known = dataset
                .active_features
                .lock()
                .expect("no code panics while holding the feature list")
                .contains(feature.guid);
            if !known {
                self.mark_dataset(dataset.id, feature)?;
                let mut marks =
                    dataset.active_features.lock().expect("no code panics while holding the feature list");
                marks.insert(feature.guid.to_owned());
            }
        }
        Ok(())
    }

    /// Adds a per-dataset feature's mark to a dataset and counts it.
    pub(crate) fn mark_dataset(&mut self, id: ObjectId, feature: &'static Feature) -> Result<()> {
        let mos = self.mos();
        self.zapify(id)?;
        zap::insert(&mos.object(id)?, &self.tx, feature.guid.as_bytes(), &Value::from_u64(0))?;
        let features = self.state.features.as_mut().ok_or_else(|| {
            Error::Unsupported(format!("feature {} in a pool without feature flags", feature.name))
        })?;
        if !features.is_enabled(feature) {
            return Err(Error::Unsupported(format!("feature {} is not enabled in this pool", feature.name)));
        }
        features.adjust(&self.tx, feature, 1)
    }

    /// Gives a DSL object a ZAP of its own (06 §3).
    pub(crate) fn zapify(&mut self, id: ObjectId) -> Result<()> {
        let mos = self.mos();
        let object = mos.object(id)?;
        if object.object_type() == ObjectType::ZAP_METADATA {
            return Ok(());
        }
        object.set_type(&self.tx, ObjectType::ZAP_METADATA);
        zap::create(&object, &self.tx, mos.salt(), 0)?;
        if let Some(features) = self.state.features.as_mut() {
            features.adjust(&self.tx, &features::EXTENSIBLE_DATASET, 1)?;
        }
        Ok(())
    }

    /// Frees a block that nothing refers to any more, without any dataset's books.
    pub(crate) fn free_block(&mut self, ptr: &BlockPtr) -> Result<()> {
        if let BlockPtr::Block(block) = ptr {
            self.freed += 1;
            self.inner.storage.cache().remove(block);
            free_extents(&self.inner.storage, &mut self.state.allocator, block, self.txg)?;
        }
        Ok(())
    }

    /// What was left over by whoever wrote the pool before: frees put off to the next txg, log space maps.
    fn first_sync(&mut self) -> Result<()> {
        self.state.fresh = false;
        let mos = self.mos();
        let list = mos.need("sync_bplist")?;
        if !bpobj::is_empty(mos, list)? {
            let mut blocks = Vec::new();
            bpobj::for_each(mos, list, &mut |ptr| {
                blocks.push(*ptr);
                Ok(())
            })?;
            for ptr in &blocks {
                self.free_block(ptr)?;
            }
            bpobj::clear(mos, &self.tx, list)?;
        }
        crate::scrub::restart_foreign(self)?;
        self.fold_logs()
    }

    /// Folds log space maps into the metaslabs' own and gives the feature up until OpenZFS takes it again
    /// (05 §5, strategy b).
    fn fold_logs(&mut self) -> Result<()> {
        let mos = self.mos();
        let Some(zap_id) = mos.directory_object("com.delphix:log_spacemap_zap")? else { return Ok(()) };
        let logs = self.state.logs.clone();
        let SyncState { features, table, .. } = &mut *self.state;
        let tops = self.inner.storage.vdevs().tops();
        let mut writer = MapWriter { mos, features, tx: &self.tx, tops, table, pass: 1 };
        for ((vdev, metaslab), entries) in &logs {
            writer.fold(*vdev, *metaslab, entries)?;
        }
        let mut freed = 0;
        for entry in zap::entries(&*mos.object(zap_id)?).collect::<Vec<_>>() {
            if let Some(map) = entry?.number() {
                mos.free(&self.tx, ObjectId(map))?;
                freed += 1;
            }
        }
        mos.free(&self.tx, zap_id)?;
        zap::remove(&mos.object(DIRECTORY)?, &self.tx, b"com.delphix:log_spacemap_zap")?;
        for vdev in &self.state.config.tree.children {
            let Some(top_zap) = vdev.zap_top.filter(|id| id.0 != 0) else { continue };
            let object = mos.object(top_zap)?;
            let key = b"com.delphix:ms_unflushed_phys_txgs";
            if let Some(array) = zap::lookup_u64(&object, key)? {
                mos.free(&self.tx, ObjectId(array))?;
                zap::remove(&object, &self.tx, key)?;
            }
        }
        let features = self.state.features.as_mut().expect("log space maps are a feature");
        features.adjust(&self.tx, &features::SPACEMAP_HISTOGRAM, -freed)?;
        features.adjust(&self.tx, &features::LOG_SPACEMAP, -1)
    }

    /// Notes the command that is being carried out, once.
    pub(crate) fn log_command(&mut self) -> Result<()> {
        let command = self.inner.command.lock().expect("the command lock guards a plain store").take();
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

    /// For export and destroy: the labels of this txg carry the state.
    pub(crate) fn set_pool_state(&mut self, state: PoolState) {
        self.state.config.state = state;
        self.state.config_dirty = true;
    }

    /// See [`crate::Pool::upgrade_version`]. What versions up to 28 brought, the pools that are written have.
    pub(crate) fn upgrade_version(&mut self, version: u64) -> Result<()> {
        assert!(version >= self.state.config.version, "a pool's version only grows");
        if version >= VERSION_FEATURES && self.state.features.is_none() {
            self.state.features = Some(Features::create(self.mos(), &self.tx)?);
            let mut salt = [0; 32];
            self.inner.host.entropy.fill(&mut salt);
            self.inner.storage.set_salt(salt);
            self.state.new_salt = Some(salt);
        }
        self.state.config.version = version;
        self.state.config_dirty = true;
        Ok(())
    }

    fn write_config(&mut self) -> Result<()> {
        if let Some(salt) = self.state.new_salt.take() {
            let value = Value::from_bytes(&salt);
            self.mos().set_directory(&self.tx, "org.illumos:checksum_salt", &value)?;
        }
        let labels = self.state.features.as_ref().map(Features::label_list);
        if labels != self.state.config.features_for_read {
            self.state.config.features_for_read = labels;
            self.state.config_dirty = true;
        }
        if self.state.config_dirty {
            self.state.config.txg = self.txg;
            let list = self.state.config_on_disk().to_mos_nvlist();
            self.mos().put_packed(&self.tx, self.state.config_object, &list)?;
        }
        Ok(())
    }

    /// Writes the MOS, and the space maps that this changes, until nothing changes any more.
    fn sync_mos(&mut self) -> Result<BlockPtr> {
        let mos = self.mos();
        self.write_config()?;
        let mut root = mos.objset.synced_root().1;
        for pass in 1..=PASSES_MAX {
            let changes = self.state.allocator.take_changes(self.txg);
            {
                let SyncState { allocator, features, table, .. } = &mut *self.state;
                let tops = self.inner.storage.vdevs().tops();
                let mut writer = MapWriter { mos, features, tx: &self.tx, tops, table, pass };
                for change in &changes {
                    writer.write(allocator, change)?;
                }
            }
            let delta = std::mem::take(&mut self.state.mos_delta);
            if let Some(dir) = dsl::lookup::mos_dir(mos)? {
                add_space(mos, &self.tx, dir, Category::Head, delta)?;
            }
            let frozen = mos.objset.freeze();
            if frozen.is_empty() {
                break;
            }
            let policy = self.mos_policy();
            let txg = self.txg;
            let storage = self.inner.storage.clone();
            let (mut books, writer) = self.books(Txg(0));
            let mut ctx =
                SyncCtx { storage: &storage, txg, space: &mut books, writer, policy, mos_pass: pass };
            let synced = mos.objset.sync(&mut ctx, frozen)?;
            let mut delta = books.delta;
            // Everything in the MOS is metadata: what it would be uncompressed is not counted.
            delta.uncomp = delta.comp;
            root = synced.ptr;
            synced.settle(&mos.objset);
            self.state.mos_delta += delta;
        }
        assert!(self.state.allocator.is_quiet(self.txg), "space maps still moving after the last pass");
        assert!(!mos.objset.is_dirty(), "the MOS still moving after the last pass");
        Ok(root)
    }

    fn mos_policy(&self) -> Policy {
        let features = self.state.features.as_ref();
        let active = |feature| features.is_some_and(|f| f.is_active(feature));
        Policy {
            compression: metadata_compression(features),
            metadata_compression: metadata_compression(features),
            gzip_engine: GzipEngine::DEFAULT,
            checksum: ChecksumKind::Fletcher4,
            copies: 3,
            redundant: Redundant::All,
            embed: active(&features::EMBEDDED_DATA),
            hole_birth: active(&features::HOLE_BIRTH),
        }
    }
}

/// What metadata, and data under `compression=on`, is compressed with.
pub(crate) fn metadata_compression(features: Option<&Features>) -> CompressionSetting {
    metadata_compression_of(features.is_some_and(|f| f.is_active(&features::LZ4_COMPRESS)))
}

/// As [`metadata_compression`], knowing whether lz4 is active.
pub(crate) const fn metadata_compression_of(lz4: bool) -> CompressionSetting {
    if lz4 { CompressionSetting::LZ4 } else { CompressionSetting::plain(Compression::Lzjb) }
}

/// The feature that a checksum kind needs.
pub(crate) fn checksum_feature(kind: ChecksumKind) -> Option<&'static Feature> {
    match kind {
        ChecksumKind::Sha512 => Some(&features::SHA512),
        ChecksumKind::Skein => Some(&features::SKEIN),
        ChecksumKind::Edonr => Some(&features::EDONR),
        ChecksumKind::Blake3 => Some(&features::BLAKE3),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CreateSpec, NewFilesystem, Options, Pool};
    use storage::host::{Disk, Host, ScriptedDisk};

    #[test]
    fn a_sync_thread_that_panics_stops_the_pool_and_keeps_nobody_waiting() {
        let host = Host::seeded(1, 0);
        let options = Options { io_threads: 0, workers: 1, host: host.clone(), ..Options::default() };
        let filesystem = NewFilesystem { project_quota: false, ..NewFilesystem::plain(&host) };
        let initialise: crate::Initialise = Arc::new(|_, _, _| Ok(()));
        let disk: Arc<dyn Disk> = Arc::new(ScriptedDisk::new(64 << 20));
        let spec = CreateSpec {
            name: "tank".into(),
            disks: vec![disk.clone()],
            ashift: None,
            version: 5000,
            features: features::set("openzfs-2.1-linux").unwrap().features().collect(),
            properties: Vec::new(),
            root_properties: Vec::new(),
            comment: None,
            compatibility: None,
            filesystem: filesystem.clone(),
            initialise: initialise.clone(),
            command: None,
        };
        let pool = Pool::create(spec, options.clone()).unwrap();
        let broken: Result<()> = pool.run(|_| panic!("a false invariant"));
        let said = broken.unwrap_err().to_string();
        assert!(said.contains("suspended after an internal error"), "{said}");
        // Reading goes on, every change is refused.
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
