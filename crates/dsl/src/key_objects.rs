//! Writing key objects. They are made with a dataset or from a stream, rewritten when the user's key changes, and shared by
//! clones.
//!
//! Source: docs/format/13-encryption.md §2.1, §5, §6.

use dmu::{NewObject, Object, zap};
use format::crypt::{KEY_OBJECT, WrappedKeys, entry};
use format::features;
use format::zap::Value;
use format::{ObjectId, ObjectType};
use std::sync::Arc;

use crate::change::Change;
use crate::keys::{self, UserKey};
use crate::mos::Mos;
use crate::{KeyError, Result};

/// Key in the ZAP of an encrypted snapshot: the guid of its set of initialisation vectors.
pub const IV_SET: &str = "com.datto:ivset_guid";

/// Bits of the number of such a set.
const IV_SET_BITS: u32 = 56;

/// Guid of the set of initialisation vectors of a snapshot. `None` for unencrypted snapshots and for those of OpenZFS
/// versions without such guids.
pub fn iv_set(mos: &Mos, snapshot: ObjectId) -> Result<Option<u64>> {
    let object = mos.object(snapshot)?;
    if object.object_type() != ObjectType::ZAP_METADATA {
        return Ok(None);
    }
    Ok(zap::lookup_u64(&object, IV_SET.as_bytes())?)
}

impl Change<'_> {
    /// Makes the key object of the directory `dir`, whose keys are wrapped with the user's key of `root`. The caller
    /// must also mark each head of the directory with the feature `encryption` ([`Change::mark_dataset`]).
    ///
    /// # Errors
    /// [`KeyError::NotEnabled`], or objects of the MOS cannot be read.
    pub fn create_key_object(
        &mut self,
        dir: ObjectId,
        root: ObjectId,
        wrapped: &WrappedKeys,
        user_key: &UserKey,
    ) -> Result<ObjectId> {
        if !self.enables(&features::ENCRYPTION) || !self.enables(&features::BOOKMARK_V2) {
            return Err(KeyError::NotEnabled.into());
        }
        let mos = self.mos();
        let object = mos.create(self.tx, NewObject::plain(ObjectType::ZAP_METADATA))?;
        zap::create_fat(&object, self.tx, mos.salt(), 0)?;
        self.put(&object, entry::SUITE, wrapped.suite.to_disk())?;
        self.put(&object, entry::GUID, wrapped.guid)?;
        self.put(&object, entry::VERSION, wrapped.version)?;
        self.put(&object, entry::REFCOUNT, 1)?;
        self.rewrap(object.id(), root, wrapped, user_key)?;
        self.zapify(dir)?;
        self.put(&mos.object(dir)?, KEY_OBJECT, object.id().0)?;
        Ok(object.id())
    }

    /// Wraps the keys in the key object `id` again, with the user's key of `root`. The keys themselves stay the same.
    ///
    /// # Errors
    /// Objects of the MOS cannot be read.
    pub fn rewrap(
        &mut self,
        id: ObjectId,
        root: ObjectId,
        wrapped: &WrappedKeys,
        user_key: &UserKey,
    ) -> Result<()> {
        let object = self.mos().object(id)?;
        let bytes: [(&str, &[u8]); 4] = [
            (entry::IV, &wrapped.iv),
            (entry::MAC, &wrapped.mac),
            (entry::MASTER_KEY, &wrapped.master),
            (entry::HMAC_KEY, &wrapped.hmac),
        ];
        for (name, bytes) in bytes {
            zap::update(&object, self.tx, name.as_bytes(), &Value::from_bytes(bytes))?;
        }
        self.put(&object, entry::ROOT, root.0)?;
        self.put(&object, entry::KEY_FORMAT, user_key.format.to_disk())?;
        self.put(&object, entry::SALT, user_key.salt)?;
        self.put(&object, entry::ITERATIONS, user_key.iterations)
    }

    /// Makes `root` the encryption root of the key object `id`. The bytes of the user's key stay the same.
    ///
    /// # Errors
    /// The object cannot be read.
    pub fn set_key_root(&mut self, id: ObjectId, root: ObjectId) -> Result<()> {
        self.put(&self.mos().object(id)?, entry::ROOT, root.0)
    }

    /// Stores the key object of its origin in the directory of a clone, if there is one.
    pub(crate) fn share_key_object(&mut self, origin: ObjectId, clone: ObjectId) -> Result<()> {
        let mos = self.mos();
        let Some(shared) = keys::of(mos, origin)? else { return Ok(()) };
        self.put(&mos.object(shared.id)?, entry::REFCOUNT, shared.refcount + 1)?;
        self.zapify(clone)?;
        self.put(&mos.object(clone)?, KEY_OBJECT, shared.id.0)
    }

    /// Removes the reference of a destroyed directory to its key object. Frees the key object with the last reference.
    pub(crate) fn release_key_object(&mut self, dir: ObjectId) -> Result<()> {
        let mos = self.mos();
        let Some(id) = keys::object_of(mos, dir)? else { return Ok(()) };
        self.view.keyring.forget(dir);
        let object = mos.object(id)?;
        match zap::lookup_u64(&object, entry::REFCOUNT.as_bytes())?.unwrap_or(1) {
            0 | 1 => mos.free(self.tx, id),
            more => self.put(&object, entry::REFCOUNT, more - 1),
        }
    }

    /// Stores a guid for the set of initialisation vectors of a new snapshot of an encrypted dataset.
    pub(crate) fn number_iv_set(&mut self, dir: ObjectId, snapshot: ObjectId) -> Result<()> {
        let mos = self.mos();
        if !self.enables(&features::BOOKMARK_V2) || keys::object_of(mos, dir)?.is_none() {
            return Ok(());
        }
        let number = (mos.host.entropy.u64() >> (64 - IV_SET_BITS)).max(1);
        self.set_iv_set(snapshot, number)
    }

    /// Stores the guid of the set of initialisation vectors that a received snapshot has at the sender.
    ///
    /// # Errors
    /// The snapshot cannot be read.
    pub fn set_iv_set(&mut self, snapshot: ObjectId, number: u64) -> Result<()> {
        self.zapify(snapshot)?;
        self.put(&self.mos().object(snapshot)?, IV_SET, number)
    }

    fn put(&self, object: &Arc<Object>, name: &str, number: u64) -> Result<()> {
        Ok(zap::update(object, self.tx, name.as_bytes(), &Value::from_u64(number))?)
    }
}
