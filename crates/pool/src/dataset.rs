//! An open file system, volume or snapshot.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use dmu::{Objset, Policy};
use dsl::available;
use dsl::promises::{self, Answer};
use dsl::room::Reach;
use dsl::settings::Settings;
use format::features::{self, Feature};
use format::{ObjectId, Txg};
use storage::host::Host;

use crate::tx::{Begun, Hold, Patience, Tx, Wait};
use crate::{Error, KeyError, NotWritten, Result};

pub use crate::state::Dataset;

/// At a limit, a change waits for at most this many syncs. Other changes may take the freed space first.
const LIMIT_WAITS: u32 = 64;

impl Dataset {
    /// Its object in the MOS: no other dataset of the pool has this number.
    #[must_use]
    pub fn id(&self) -> ObjectId {
        self.id
    }

    /// Full name, `pool/a/b` or `pool/a/b@snap`.
    ///
    /// # Panics
    /// If another thread panicked while renaming.
    #[must_use]
    pub fn name(&self) -> String {
        self.name_lock().clone()
    }

    pub(crate) fn rename(&self, name: String) {
        *self.name_mut() = name;
    }

    /// Its objects.
    #[must_use]
    pub fn objset(&self) -> &Arc<Objset> {
        &self.objset
    }

    /// Whether it is encrypted and was opened without its keys.
    pub(crate) fn is_locked(&self) -> bool {
        self.policy().encrypted && self.objset.io().keys().is_none()
    }

    /// Whether a stream goes into it.
    pub(crate) fn is_arriving(&self) -> bool {
        self.arriving.load(Ordering::Acquire)
    }

    /// Whether it is a snapshot: nothing in it ever changes.
    #[must_use]
    pub fn is_snapshot(&self) -> bool {
        self.is_snapshot
    }

    /// Whether changes are possible at all.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] with the reason.
    pub fn check_writable(&self) -> Result<()> {
        self.check_changeable()?;
        let is_lifted = self.mounted_writable.load(Ordering::Acquire) || self.log.is_replaying();
        if self.settings().read_only && !is_lifted {
            let reason = NotWritten::Property(self.name());
            return Err(Error::ReadOnly { pool: self.pool.name(), reason });
        }
        Ok(())
    }

    /// The newest version that a file system in this pool may have.
    #[must_use]
    pub fn newest_version(&self) -> u64 {
        crate::version::newest_filesystem(self.pool.info().config.version)
    }

    /// Whether changes would be possible if the property `readonly` were off.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] with the reason.
    pub fn check_changeable(&self) -> Result<()> {
        let refuse = |reason: NotWritten| Err(Error::ReadOnly { pool: self.pool.name(), reason });
        if let Some(reason) = self.pool.terms.read_only() {
            return refuse(reason.clone());
        }
        if self.is_snapshot {
            return refuse(NotWritten::Snapshot(self.name()));
        }
        if self.policy().encrypted {
            match self.objset.io().keys() {
                None if self.is_arriving() => {}
                None => return Err(KeyError::NotLoaded(self.name()).into()),
                Some(keys) if keys.version() == 0 => {
                    return refuse(NotWritten::OldEncryption(self.name()));
                }
                Some(_) => {}
            }
        }
        if self.log.is_replaying() {
            return Ok(());
        }
        if self.log.waits_for_replay() {
            return refuse(NotWritten::LogWaits(self.name()));
        }
        Ok(())
    }

    /// Whether an intent log is being replayed. During a replay, permissions and limits are not checked again.
    #[must_use]
    pub fn is_replaying(&self) -> bool {
        self.log.is_replaying()
    }

    /// Time and randomness of the machine.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.pool.host
    }

    /// Property values that apply to reading and writing.
    ///
    /// # Panics
    /// If another thread panicked while storing them.
    #[must_use]
    pub fn settings(&self) -> Arc<Settings> {
        self.settings_lock().clone()
    }

    pub(crate) fn set_settings(&self, mut settings: Settings, policy: Policy) {
        let mut known = self.settings_mut();
        settings.read_only &= !self.arriving.load(Ordering::Acquire);
        *known = Arc::new(settings);
        drop(known);
        self.objset.set_policy(policy);
    }

    /// Lets the dataset be written while a stream is received, even if its property `readonly` is or becomes on.
    ///
    /// # Panics
    /// If another thread panicked while storing its settings.
    pub fn lift_read_only(&self) {
        let mut settings = self.settings_mut();
        self.arriving.store(true, Ordering::Release);
        Arc::make_mut(&mut settings).read_only = false;
    }

    /// A mount with the option `rw` writes although the property `readonly` is on. The mount sets this at its start and
    /// resets it at its end.
    pub fn set_mounted_writable(&self, is_writable: bool) {
        self.mounted_writable.store(is_writable, Ordering::Release);
    }

    /// How its blocks are written.
    ///
    /// # Panics
    /// If another thread panicked while storing it.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.objset.policy().expect("it is set when the dataset is opened")
    }

    /// Whether the pool may have blocks with several references (dedup or clones). Freeing such blocks costs more.
    #[must_use]
    pub fn has_shared(&self) -> bool {
        self.pool.budget.has_table()
    }

    /// Refuses a dataset that lacks blocks: they would read as zeros.
    ///
    /// # Errors
    /// [`Error::Redacted`].
    pub fn check_complete(&self) -> Result<()> {
        let marks = self.marks();
        match marks.contains(features::REDACTED_DATASETS.guid) {
            true => Err(Error::Redacted(self.name())),
            false => Ok(()),
        }
    }

    /// Whether its pool has enabled a feature.
    #[must_use]
    pub fn pool_enables(&self, feature: &Feature) -> bool {
        self.pool.info().features.contains_key(feature.guid)
    }

    /// Generation of the settings that the file system itself stores (quotas of users). Equal numbers mean unchanged
    /// settings.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Records that such settings changed. All caches of them are read again.
    pub fn revise(&self) {
        self.revision.fetch_add(1, Ordering::AcqRel);
    }

    /// Bytes that it refers to and bytes that are available to it within quotas and reservations, as of the last
    /// sync: what `statfs` shows.
    ///
    /// # Errors
    /// If the DSL cannot be read.
    pub fn space(&self) -> Result<(u64, u64)> {
        let own = promises::own(&self.pool.mos, self.dir, self.id)?;
        Ok((own.referenced, available::available(&self.pool.view(), self.dir, &own)?))
    }

    /// Number of writes sent to the pool's disks since it was opened. It grows while data of programs is on its way to disk.
    #[must_use]
    pub fn writes(&self) -> u64 {
        let leaves = self.pool.storage.vdevs().tops().iter().flat_map(storage::TopVdev::leaves);
        leaves.map(|leaf| leaf.meter.stats().writes).sum()
    }

    /// Blocks the caller as the write throttle demands. A caller that needs locks calls this before it takes them, and calls
    /// [`Dataset::try_begin`] while it holds them.
    pub fn wait_for_room(&self) {
        if self.check_writable().is_ok() {
            self.pool.wait_for_room();
        }
    }

    /// Begins a transaction on this dataset. Blocks while the txg closes, too much is dirty, or space may become free. The
    /// caller holds no locks.
    ///
    /// # Errors
    /// [`Error::NoSpace`] or [`Error::Quota`] before anything is changed; [`Error::ReadOnly`];
    /// [`Error::Stopped`] when the pool could not write.
    pub fn begin(&self, hold: Hold) -> Result<Tx> {
        self.wait_for_room();
        let mut patience = Patience::default();
        loop {
            match self.try_begin(hold)? {
                Begun::Tx(tx) => return Ok(tx),
                Begun::Waits(wait) => self.wait(&wait, &mut patience)?,
            }
        }
    }

    /// As [`Dataset::begin`] for a caller that holds locks and came through [`Dataset::wait_for_room`] before: it never
    /// blocks. It says instead what the caller has to wait for, with [`Dataset::wait`] and without its locks.
    ///
    /// # Errors
    /// As [`Dataset::begin`].
    pub fn try_begin(&self, hold: Hold) -> Result<Begun> {
        let bytes = self.bytes_of(&hold)?;
        // A replay must not refuse changes that were acknowledged. The blocks of the log still take as much space as its
        // changes take again.
        let reach = if self.log.is_replaying() { Reach::Frees } else { hold.reach };
        let need = self.pool.need_of(&Hold { reach, ..hold }, self.policy().copies);
        match self.pool.try_begin(&need)? {
            Some(tx) => self.promise(tx, bytes, reach),
            None => Ok(Begun::Waits(Wait::to_begin(need))),
        }
    }

    /// Checks quotas and reservations for a transaction. The transaction has begun before, so its promises belong to the txg
    /// that it holds.
    fn promise(&self, tx: Tx, bytes: u64, reach: Reach) -> Result<Begun> {
        let own = *self.own();
        match self.pool.accounts.promises.ask(self.dir, &own, bytes, reach, self.pool.usable(reach)) {
            Answer::Granted => self.list_as_dirty(),
            Answer::Refused(error) => return Err(error),
            Answer::Later => return Ok(Begun::Waits(Wait::for_sync(tx.txg(), LIMIT_WAITS))),
        }
        Ok(Begun::Tx(tx))
    }

    /// Blocks the caller until another try to begin its transaction makes sense. The caller holds no locks.
    ///
    /// # Errors
    /// [`Error::NoSpace`] or [`Error::Quota`] when another wait cannot help; [`Error::Stopped`].
    pub fn wait(&self, wait: &Wait, patience: &mut Patience) -> Result<()> {
        self.pool.groups.wait_for(wait, patience)
    }

    /// A wait for a sync, after which the dataset may use less than its limit again. The change is refused after `most` such
    /// waits.
    #[must_use]
    pub fn next_sync(&self, most: u32) -> Wait {
        Wait::for_sync(self.open_txg(), most)
    }

    /// Changes of the pool that wait until their transaction can begin.
    #[must_use]
    pub fn waiting_changes(&self) -> u32 {
        self.pool.groups.lock().waiting
    }

    /// As [`Dataset::begin`], but gives `None` where that would wait. For optional changes.
    ///
    /// # Errors
    /// As [`Dataset::begin`].
    pub fn begin_at_once(&self, hold: Hold) -> Result<Option<Tx>> {
        let bytes = self.bytes_of(&hold)?;
        let Some(tx) = self.pool.begin_at_once(&hold, self.policy().copies)? else { return Ok(None) };
        match self.promise(tx, bytes, hold.reach)? {
            Begun::Tx(tx) => Ok(Some(tx)),
            Begun::Waits(_) => Ok(None),
        }
    }

    /// Bytes that quotas count at most for a transaction, if there may be one.
    fn bytes_of(&self, hold: &Hold) -> Result<u64> {
        self.check_writable()?;
        if self.destroyed.load(Ordering::Acquire) {
            return Err(Error::NoDataset(self.name()));
        }
        Ok(self.charge_of(hold.bytes, hold.block_size).saturating_add(hold.cloned))
    }

    /// Bytes that quotas count at most for `bytes` bytes of data in blocks of `block_size` bytes (0: in one block), over
    /// all copies. A block takes whole sectors, so small blocks count more than their bytes.
    #[must_use]
    pub fn charge_of(&self, bytes: u64, block_size: u64) -> u64 {
        let vdevs = self.pool.storage.vdevs();
        let once = match (bytes, block_size) {
            (0, _) => 0,
            (bytes, 0) => vdevs.largest_dsize_of(bytes),
            (bytes, block_size) => {
                let charged = u128::from(bytes) * u128::from(vdevs.largest_dsize_of(block_size));
                u64::try_from(charged.div_ceil(block_size.into())).unwrap_or(u64::MAX)
            }
        };
        once.saturating_mul(self.policy().copies.into())
    }

    fn list_as_dirty(&self) {
        if !self.listed.swap(true, Ordering::AcqRel) {
            self.pool.open.list_dirty(self.id);
        }
    }

    /// Bytes that writes may still take before a quota, a reservation or the size of the pool refuses them. Transactions in
    /// flight count in full.
    #[must_use]
    pub fn space_left(&self) -> u64 {
        let own = *self.own();
        self.pool.accounts.promises.left(self.dir, &own, self.pool.usable(Reach::Limits))
    }

    /// The newest txg that is on the disks.
    #[must_use]
    pub fn synced_txg(&self) -> Txg {
        self.pool.groups.lock().synced
    }

    /// The txg in which new objects would be born now, for generation numbers.
    #[must_use]
    pub fn open_txg(&self) -> Txg {
        self.pool.groups.lock().open
    }

    /// Waits until everything done so far is on disk.
    ///
    /// # Errors
    /// [`Error::Stopped`] when the pool could not write.
    pub fn sync(&self) -> Result<()> {
        if self.pool.terms.read_only().is_some() {
            return Ok(());
        }
        self.pool.groups.sync()
    }
}
