//! The meta-objset: typed access to the objects that describe the pool.
//!
//! Source: docs/format/06-mos-dsl.md §1.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dmu::{NewObject, Object, Objset, Tx, zap};
use format::dsl_dataset::DslDataset;
use format::dsl_dir::DslDir;
use format::nvlist::NvList;
use format::zap::{Value, int_key};
use format::{ByteOrder, ObjectId, ObjectType, Txg};
use storage::host::Host;

use crate::{Error, Result};

const LE: ByteOrder = ByteOrder::Little;
/// The object directory's number.
pub const DIRECTORY: ObjectId = ObjectId(1);
/// Longest packed nvlist that is read into memory.
const PACKED_MAX: u64 = 64 << 20;

/// Flag of a snapshot ZAP whose lookups ignore case, for case-insensitive file systems.
pub const FOLD_CASE: u64 = 2;

/// Block size of objects with packed nvlists, in bytes.
pub const PACKED_BLOCK: u32 = 16 << 10;

/// The MOS, with clock and entropy for making objects.
#[derive(Clone)]
pub struct Mos {
    /// The meta-objset itself.
    pub objset: Arc<Objset>,
    /// Clock and entropy: the times and salts of new objects.
    pub host: Host,
    /// Version of the pool. It changes in a transaction that upgrades the pool.
    pub version: Arc<AtomicU64>,
}

impl Mos {
    /// Takes an open meta-objset. `version` is the version of the pool.
    pub fn new(objset: Objset, host: Host, version: u64) -> Mos {
        Mos { objset: Arc::new(objset), host, version: Arc::new(AtomicU64::new(version)) }
    }

    /// Version of the pool.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Sets the version that the pool has from the open txg on.
    pub fn set_version(&self, version: u64) {
        self.version.store(version, Ordering::Release);
    }

    /// Opens object `id`.
    ///
    /// # Errors
    /// If the object does not exist or its dnode cannot be read.
    pub fn object(&self, id: ObjectId) -> Result<Arc<Object>> {
        Ok(self.objset.object(id)?)
    }

    /// The number under `key` in the object directory.
    pub fn directory(&self, key: &str) -> Result<Option<u64>> {
        Ok(zap::lookup_u64(&*self.object(DIRECTORY)?, key.as_bytes())?)
    }

    /// The object named `key` in the object directory; absent and 0 are the same.
    pub fn directory_object(&self, key: &str) -> Result<Option<ObjectId>> {
        Ok(self.directory(key)?.filter(|&id| id != 0).map(ObjectId))
    }

    /// As [`Mos::directory_object`], for objects that every pool has.
    pub fn need(&self, key: &'static str) -> Result<ObjectId> {
        self.directory_object(key)?.ok_or_else(|| Error::Damaged {
            pool: String::new(),
            why: format!("the object directory has no '{key}'"),
        })
    }

    /// Puts `value` under `key` in the object directory, in the place of an older one.
    pub fn set_directory(&self, tx: &Tx, key: &str, value: &Value) -> Result<()> {
        Ok(zap::update(&self.object(DIRECTORY)?, tx, key.as_bytes(), value)?)
    }

    /// Seconds since 1970.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.host.clock.now().0
    }

    /// Adds `number` to a ZAP of numbers.
    pub fn add_int(&self, tx: &Tx, zap_id: ObjectId, number: u64) -> Result<()> {
        Ok(zap::insert(&self.object(zap_id)?, tx, int_key(number).as_bytes(), &Value::from_u64(number))?)
    }

    /// A random number for the hashes of a new ZAP. It is odd, so never 0.
    pub fn salt(&self) -> u64 {
        self.host.entropy.u64() | 1
    }

    /// Makes an object with a new number in the txg of `tx`.
    pub fn create(&self, tx: &Tx, new: NewObject) -> Result<Arc<Object>> {
        Ok(self.objset.create_object(tx, new)?)
    }

    /// A new micro ZAP of this type.
    pub fn create_zap(&self, tx: &Tx, object_type: ObjectType, normflags: u64) -> Result<Arc<Object>> {
        let object = self.create(tx, NewObject::plain(object_type))?;
        zap::create(&object, tx, self.salt(), normflags)?;
        Ok(object)
    }

    /// Frees object `id` and all its blocks in the txg of `tx`.
    pub fn free(&self, tx: &Tx, id: ObjectId) -> Result<()> {
        self.objset.free_object(tx, &self.object(id)?);
        Ok(())
    }

    /// Decodes the bonus buffer of object `id` as a DSL directory.
    pub fn dir(&self, id: ObjectId) -> Result<DslDir> {
        self.object(id)?.with_bonus(|_, raw| DslDir::decode(raw, LE)).map_err(Error::corrupt(id))
    }

    /// Writes `dir` into the bonus buffer of object `id`.
    pub fn put_dir(&self, tx: &Tx, id: ObjectId, dir: &DslDir) -> Result<()> {
        self.object(id)?.edit_bonus(tx, |raw| raw.copy_from_slice(&dir.encode()));
        Ok(())
    }

    /// Decodes the bonus buffer of object `id` as a DSL dataset.
    pub fn dataset(&self, id: ObjectId) -> Result<DslDataset> {
        self.object(id)?.with_bonus(|_, raw| DslDataset::decode(raw, LE)).map_err(Error::corrupt(id))
    }

    /// The snapshot before a dataset, which must have one. It checks that each snapshot is older than its successor, so a
    /// walk over a damaged chain ends.
    pub fn earlier(&self, phys: &DslDataset) -> Result<DslDataset> {
        let prev = self.dataset(phys.prev_snap)?;
        if !prev.is_snapshot() || phys.is_snapshot() && prev.creation_txg >= phys.creation_txg {
            let corrupt = format::Corrupt::new("txg of the snapshot before another", prev.creation_txg.0);
            return Err(Error::corrupt(phys.prev_snap)(corrupt));
        }
        Ok(prev)
    }

    /// Txg of the origin of a cloned directory. Blocks born up to this txg are not charged to the directory. 0 if it is no
    /// clone.
    pub fn origin_txg(&self, origin: ObjectId) -> Result<Txg> {
        if origin.0 == 0 { Ok(Txg(0)) } else { Ok(self.dataset(origin)?.creation_txg) }
    }

    pub(crate) fn put_dataset(&self, tx: &Tx, id: ObjectId, dataset: &DslDataset) -> Result<()> {
        self.object(id)?.edit_bonus(tx, |raw| raw.copy_from_slice(&dataset.encode()));
        Ok(())
    }

    /// Reads an object that holds a packed nvlist.
    pub fn packed(&self, id: ObjectId) -> Result<NvList> {
        let object = self.object(id)?;
        let len = object.with_bonus(|_, raw| if raw.len() >= 8 { LE.u64(raw, 0) } else { 0 });
        if len > PACKED_MAX {
            return Err(Error::corrupt(id)(format::Corrupt::new("packed nvlist length", len)));
        }
        let mut raw = vec![0; len as usize];
        object.read(0, &mut raw)?;
        NvList::decode(&raw).map_err(Error::corrupt(id))
    }

    /// Replaces the nvlist that the object holds.
    pub fn put_packed(&self, tx: &Tx, id: ObjectId, list: &NvList) -> Result<()> {
        let object = self.object(id)?;
        let raw = list.to_xdr();
        let block = object.block_size() as usize;
        for (blkid, chunk) in raw.chunks(block).enumerate() {
            let mut record = chunk.to_vec();
            record.resize(block, 0);
            object.put_block(tx, blkid as u64, Arc::new(record));
        }
        object.free_blocks(tx, raw.len().div_ceil(block) as u64, u64::MAX);
        object.edit_bonus(tx, |bonus| LE.put_u64(bonus, 0, raw.len() as u64));
        Ok(())
    }

    /// A new object for a packed nvlist.
    pub fn create_packed(&self, tx: &Tx) -> Result<ObjectId> {
        let new = NewObject::plain(ObjectType::PACKED_NVLIST)
            .block_size(PACKED_BLOCK)
            .bonus(ObjectType::PACKED_NVLIST_SIZE, vec![0; 8]);
        Ok(self.create(tx, new)?.id())
    }
}
