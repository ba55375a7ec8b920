//! An open file system.

use std::collections::HashMap;
use std::sync::Arc;

use dmu::rank::{MutexHeld, Rank, RankedMutex, RankedRwLock};
use dmu::{Object, Objset, zap};
use format::objset::{FLAG_PROJECT_QUOTA, ObjsetType};
use format::zap::Value;
use format::zap::name::UPPER;
use format::znode::{Dirent, Time, Znode, master};
use format::{Corrupt, ObjectId};
use pool::{Dataset, Hold, Reach, Tx};

use crate::attributes::{Attributes, Tables};
use crate::change;
use crate::legacy::{ENTRY_TYPES, SYSTEM_ATTRIBUTES};
use crate::locks::Locks;
use crate::open_table::OpenTable;
use crate::owner::Quotas;
use crate::pending::Pending;
use crate::{Error, Result};

/// Number of the master node.
pub(crate) const MASTER_NODE: ObjectId = ObjectId(1);
/// Newest version read and written.
const VERSION: u64 = master::ZPL_VERSION;

/// Bytes that a change of names may write, besides the metadata that `pool` adds to every transaction.
pub(crate) const NAME_COST: u64 = 4 << 10;
/// The same for a change of attributes.
pub(crate) const ATTRIBUTE_COST: u64 = 512;

/// The rules by which names are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    Sensitive,
    Insensitive,
    Mixed,
}

/// All that are open.
static FILESYSTEMS: OpenTable<Inner> = OpenTable::new();

/// An open file system, or a snapshot of one. Clones share it.
#[derive(Clone)]
pub struct Filesystem {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) dataset: Arc<Dataset>,
    pub(crate) objset: Arc<Objset>,
    pub(crate) attributes: Attributes,
    root: ObjectId,
    pub(crate) unlinked: ObjectId,
    /// Normalisation of names, without case folding.
    pub(crate) normalization: u64,
    pub(crate) case: Case,
    pub(crate) utf8_only: bool,
    pub(crate) quotas: RankedRwLock<Option<Arc<Quotas>>>,
    pub(crate) pending: Pending,
    /// New files and directories get a project id where nodes have system attributes.
    counts_projects: bool,
    /// Locks of directories, for changes of their entries.
    pub(crate) names: Locks,
    /// Locks of all objects, for changes of their attributes and contents.
    pub(crate) nodes: Locks,
    /// Held while a directory moves to another parent, so that no circle of directories can arise.
    renames: RankedMutex<()>,
    /// The objects that are open.
    handles: RankedMutex<HashMap<ObjectId, Opened>>,
}

/// How an object is open.
#[derive(Default)]
pub(crate) struct Opened {
    /// Handles; at least one.
    pub(crate) count: u64,
    /// It was made with `O_TMPFILE` and never had a name, so it may still get one.
    pub(crate) unnamed: bool,
}

impl Inner {
    fn of(dataset: Arc<Dataset>) -> Result<Inner> {
        let objset = dataset.objset().clone();
        if objset.os_type() != ObjsetType::Zfs {
            return Err(Error::Unsupported("a dataset that is no file system"));
        }
        let node = match objset.object(MASTER_NODE) {
            // The root dataset of a pool made by `ztest` is of this type.
            Err(dmu::Error::NoObject(_)) => {
                return Err(Error::Unsupported("a dataset in which no file system was made"));
            }
            node => node?,
        };
        let value = |key: &str| zap::lookup_u64(&node, key.as_bytes());
        let id = |key: &str| match value(key)? {
            Some(id) if id != 0 => Ok(ObjectId(id)),
            id => Err(Error::damaged(MASTER_NODE)(Corrupt::new("entry of the master node", id.unwrap_or(0)))),
        };
        let version = value(master::VERSION)?.unwrap_or(VERSION);
        if version > VERSION {
            return Err(Error::Unsupported("this version of file systems"));
        }
        let tables = match version {
            0 => return Err(Error::damaged(MASTER_NODE)(Corrupt::new("version of a file system", 0))),
            SYSTEM_ATTRIBUTES.. => Some(Tables::open(&objset, id(master::SA_ATTRS)?)?),
            _ => None,
        };
        let case = match value(master::CASESENSITIVITY)?.unwrap_or(0) {
            0 => Case::Sensitive,
            1 => Case::Insensitive,
            2 => Case::Mixed,
            other => return Err(Error::damaged(MASTER_NODE)(Corrupt::new("casesensitivity", other))),
        };
        let (phys, _) = objset.synced_root();
        Ok(Inner {
            root: id(master::ROOT)?,
            unlinked: id(master::DELETE_QUEUE)?,
            normalization: value(master::NORMALIZATION)?.unwrap_or(0),
            case,
            utf8_only: value(master::UTF8ONLY)?.unwrap_or(0) != 0,
            quotas: RankedRwLock::default(),
            pending: Pending::default(),
            counts_projects: phys.flags & FLAG_PROJECT_QUOTA != 0,
            names: Locks::new(Rank::Names),
            nodes: Locks::new(Rank::Nodes),
            renames: RankedMutex::new(Rank::Renames, ()),
            handles: RankedMutex::new(Rank::Handles, HashMap::new()),
            attributes: Attributes::new(version, tables),
            dataset,
            objset,
        })
    }
}

impl Filesystem {
    /// Opens the file system in `dataset`. An intent log that a crash left is replayed first, unless the pool is only
    /// read.
    ///
    /// # Errors
    /// [`pool::Error::Redacted`]; [`Error::Unsupported`] for a volume, a version from the future, or a log that cannot be replayed;
    /// [`Error::Damaged`]; blocks that cannot be read.
    pub fn open(dataset: Arc<Dataset>) -> Result<Filesystem> {
        dataset.check_complete()?;
        Filesystem::open_incomplete(dataset)
    }

    /// As [`Filesystem::open`], also for a redacted file system: missing blocks read as zeros.
    ///
    /// # Errors
    /// As [`Filesystem::open`].
    pub fn open_incomplete(dataset: Arc<Dataset>) -> Result<Filesystem> {
        let fs = Filesystem::open_as_it_is(dataset)?;
        fs.replay()?;
        Ok(fs)
    }

    /// Opens the file system as of the last sync before a crash. All openers share its locks and handles.
    pub(crate) fn open_as_it_is(dataset: Arc<Dataset>) -> Result<Filesystem> {
        let inner = FILESYSTEMS.share(&dataset, || Inner::of(dataset.clone()))?;
        let fs = Filesystem { inner };
        fs.directory(fs.root())?;
        Ok(fs)
    }

    /// The root directory.
    #[must_use]
    pub fn root(&self) -> ObjectId {
        self.inner.root
    }

    /// The dataset it lives in.
    #[must_use]
    pub fn dataset(&self) -> &Arc<Dataset> {
        &self.inner.dataset
    }

    /// Version of the file system's format: 1 to 5.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.inner.attributes.version()
    }

    /// Whether new files and directories get a project id.
    pub(crate) fn has_projects(&self) -> bool {
        self.inner.counts_projects && self.inner.attributes.has_tables()
    }

    /// The entry of a directory that names a node.
    pub(crate) fn entry(&self, znode: &Znode, id: ObjectId) -> Value {
        let mode = if self.version() < ENTRY_TYPES { 0 } else { znode.mode };
        Value::from_u64(Dirent::new(mode, id).encode())
    }

    /// Whether names are compared by their bytes: no case folding and no normalisation.
    #[must_use]
    pub fn names_are_exact(&self) -> bool {
        self.inner.case == Case::Sensitive && self.inner.normalization == 0
    }

    /// normflags of directories.
    pub(crate) fn normflags(&self) -> u64 {
        self.inner.normalization | if self.inner.case == Case::Sensitive { 0 } else { UPPER }
    }

    /// Held while a directory moves to another parent: no other directory moves meanwhile.
    pub(crate) fn rename_turn(&self) -> MutexHeld<'_, ()> {
        self.inner.renames.lock()
    }

    /// Blocks the caller as the write throttle demands. A change calls this before it takes locks, so that no other thread
    /// has to wait for those locks; see [`Filesystem::changing`].
    pub(crate) fn wait_for_room(&self) {
        self.inner.dataset.wait_for_room();
    }

    /// Begins a transaction without blocking: the caller holds locks. Until it succeeds, the caller changes nothing that
    /// outlives its locks, because [`Filesystem::retrying`] starts it again after [`Error::Waits`].
    pub(crate) fn begin(&self, hold: Hold) -> Result<Tx> {
        let tx = change::begin(&self.inner.dataset, hold)?;
        if hold.reach == Reach::Frees {
            self.inner.pending.note_free(tx.txg());
        }
        Ok(tx)
    }

    /// Runs `change`, and restarts it from the beginning each time it must wait. `change` takes its locks itself. They are
    /// released before each wait, so that other threads can use the same objects meanwhile.
    pub(crate) fn retrying<T>(&self, change: impl FnMut() -> Result<T>) -> Result<T> {
        change::retrying(&self.inner.dataset, change)
    }

    pub(crate) fn now(&self) -> Time {
        let (secs, nanos) = self.inner.dataset.host().clock.now();
        Time { secs: secs as i64, nanos: nanos.into() }
    }

    /// An object with its attributes. The caller holds its node lock.
    pub(crate) fn node(&self, id: ObjectId) -> Result<(Arc<Object>, Znode)> {
        let object = self.inner.objset.object(id)?;
        let znode = self.inner.attributes.load(&object)?;
        Ok((object, znode))
    }

    /// As [`Filesystem::node`], for an object about to be changed.
    pub(crate) fn node_for_change(&self, id: ObjectId) -> Result<(Arc<Object>, Znode)> {
        self.inner.dataset.check_writable()?;
        self.node(id)
    }

    /// Stores the attributes of a node.
    pub(crate) fn store(&self, object: &Arc<Object>, tx: &dmu::Tx, znode: &Znode) -> Result<()> {
        self.inner.attributes.store(object, tx, znode)
    }

    pub(crate) fn handles(&self) -> MutexHeld<'_, HashMap<ObjectId, Opened>> {
        self.inner.handles.lock()
    }
}
