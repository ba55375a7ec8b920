//! Key objects: the wrapped keys of encrypted datasets, in ZAPs of the MOS.
//!
//! The ZAP of a directory contains the number of its key object. A clone has that of its origin. The key object contains the
//! directory whose user key unwraps it: the encryption root.
//!
//! Source: docs/format/13-encryption.md §2.1.

use codec::crypt::{CryptError, WrappingKey};
use dmu::{Object, zap};
use format::crypt::{KEY_OBJECT, KeyFormat, Suite, WrappedKeys, entry};
use format::{Corrupt, ObjectId, ObjectType};

use crate::mos::Mos;
use crate::{Error, Result};

/// The contents of a key object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyObject {
    /// The object.
    pub id: ObjectId,
    /// The keys, sealed with the user's key.
    pub wrapped: WrappedKeys,
    /// The directory of the encryption root.
    pub root: ObjectId,
    /// How many directories name this object.
    pub refcount: u64,
    /// How the wrapping key is derived from the user's key. Taken from the key object of the encryption root, because early
    /// versions left it out elsewhere.
    pub user_key: UserKey,
}

/// Format of the user's key, and the derivation of a key from a pass phrase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserKey {
    /// The form in which the user gives the key.
    pub format: KeyFormat,
    /// Salt of a pass phrase, else 0.
    pub salt: u64,
    /// Rounds of a pass phrase, else 0.
    pub iterations: u64,
}

impl UserKey {
    /// The wrapping key, from the user's input: 32 bytes, 64 hexadecimal digits, or a pass phrase.
    ///
    /// # Errors
    /// [`CryptError`]: it has another length, or holds something that is no digit.
    pub fn wrapping(&self, given: &[u8]) -> std::result::Result<WrappingKey, CryptError> {
        match self.format {
            KeyFormat::Raw => WrappingKey::raw(given),
            KeyFormat::Hex => WrappingKey::hex(given),
            KeyFormat::Passphrase => WrappingKey::passphrase(given, self.salt, self.iterations),
        }
    }
}

/// The key object of a directory; none where datasets are not encrypted.
///
/// # Errors
/// If the directory cannot be read.
pub fn object_of(mos: &Mos, dir: ObjectId) -> Result<Option<ObjectId>> {
    let object = mos.object(dir)?;
    if object.object_type() != ObjectType::ZAP_METADATA {
        return Ok(None);
    }
    Ok(zap::lookup_u64(&object, KEY_OBJECT.as_bytes())?.map(ObjectId))
}

/// The key object of a directory, read; none where datasets are not encrypted.
///
/// # Errors
/// As [`object_of`] and [`read`].
pub fn of(mos: &Mos, dir: ObjectId) -> Result<Option<KeyObject>> {
    object_of(mos, dir)?.map(|id| read(mos, id)).transpose()
}

/// Reads a key object and how its encryption root is opened.
///
/// # Errors
/// If it cannot be read, or lacks an entry.
pub fn read(mos: &Mos, id: ObjectId) -> Result<KeyObject> {
    let object = mos.object(id)?;
    let wrapped = WrappedKeys {
        suite: Suite::from_disk(number(&object, entry::SUITE)?).map_err(Error::corrupt(id))?,
        guid: number(&object, entry::GUID)?,
        version: zap::lookup_u64(&object, entry::VERSION.as_bytes())?.unwrap_or(0),
        iv: bytes(&object, entry::IV)?,
        mac: bytes(&object, entry::MAC)?,
        master: bytes(&object, entry::MASTER_KEY)?,
        hmac: bytes(&object, entry::HMAC_KEY)?,
    };
    let root = ObjectId(number(&object, entry::ROOT)?);
    let of_root = match object_of(mos, root)? {
        Some(other) if other != id => mos.object(other)?,
        _ => object.clone(),
    };
    let user_key = UserKey {
        format: KeyFormat::from_disk(number(&of_root, entry::KEY_FORMAT)?)
            .map_err(Error::corrupt(of_root.id()))?,
        salt: number(&of_root, entry::SALT)?,
        iterations: number(&of_root, entry::ITERATIONS)?,
    };
    // Absent in old objects that clones did not share.
    let refcount = zap::lookup_u64(&object, entry::REFCOUNT.as_bytes())?.unwrap_or(1);
    Ok(KeyObject { id, wrapped, root, refcount, user_key })
}

fn number(object: &Object, name: &'static str) -> Result<u64> {
    zap::lookup_u64(object, name.as_bytes())?.ok_or_else(|| lacking(object, name))
}

fn bytes<const N: usize>(object: &Object, name: &'static str) -> Result<[u8; N]> {
    let value = zap::lookup(object, name.as_bytes())?.ok_or_else(|| lacking(object, name))?;
    value.as_bytes().and_then(|bytes| bytes.try_into().ok()).ok_or_else(|| lacking(object, name))
}

fn lacking(object: &Object, name: &'static str) -> Error {
    Error::corrupt(object.id())(Corrupt::new(name, 0))
}
