//! Blocks of encrypted datasets on their way to the disks: sealed with the dataset's keys, or authenticated.
//!
//! From:   `dmu`, which knows what a block holds, and what the next one is sealed with.
//! To:     the encoding of records, on the workers.
//! Source: docs/format/13-encryption.md §3, §4.

use codec::crypt::{Content, CryptError, DatasetKeys, MacVersion, indirect_mac};
use format::crypt::{MAC, Sealing};
use format::{ByteOrder, ObjectType};

use crate::{Payload, Record};

/// How a block of an encrypted dataset is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Encrypted: it cannot be read without the keys.
    Sealed(Content),
    /// It can be read; its authentication code shows who wrote it.
    Authenticated,
    /// Its code covers the codes of all blocks below.
    Parent,
    /// The root: its codes are inside.
    Root,
}

impl Protection {
    /// The protection of a block of this type at this level.
    #[must_use]
    pub fn of(object_type: ObjectType, level: u8) -> Protection {
        match object_type {
            _ if level > 0 => Protection::Parent,
            ObjectType::OBJSET => Protection::Root,
            ObjectType::DNODE => Protection::Sealed(Content::Dnodes(ByteOrder::Little)),
            sealed if sealed.is_encrypted() => Protection::Sealed(Content::Whole),
            _ => Protection::Authenticated,
        }
    }

    /// Whether a block needs parameters for its encryption.
    #[must_use]
    pub const fn is_sealed(self) -> bool {
        matches!(self, Protection::Sealed(_))
    }
}

/// The protection of a block of an encrypted dataset.
#[derive(Clone, Copy, Debug, Default)]
pub struct Guard<'a> {
    /// The keys of the dataset.
    pub keys: Option<&'a DatasetKeys>,
    /// The parameters for the encryption of this block, and of no other one.
    pub sealing: Option<Sealing>,
}

/// A payload as it is to lie on the disk, its authentication code, and what it was sealed with.
type Protected = (Payload, Option<[u8; MAC]>, Option<Sealing>);

impl Guard<'_> {
    /// Protects `payload`, which `record` became.
    ///
    /// # Errors
    /// [`CryptError::TooLong`].
    ///
    /// # Panics
    /// If there are no keys: nothing but the root of an encrypted dataset is written without them.
    pub(crate) fn protect(
        &self,
        protection: Protection,
        payload: Payload,
        record: &Record,
    ) -> Result<Protected, CryptError> {
        if protection == Protection::Root {
            return Ok((payload, None, None));
        }
        if protection == Protection::Parent {
            let version = self.keys.map_or(MacVersion::One, |keys| keys.mac_version());
            return Ok((payload, Some(indirect_mac(record, ByteOrder::Little, version)), None));
        }
        let keys = self.keys.expect("blocks of an encrypted dataset are written with its keys");
        match protection {
            Protection::Sealed(content) => {
                let sealing = self.sealing.expect("each sealed block has a vector of its own");
                let mut bytes = payload.into_bytes();
                let mac = keys.seal(content, &sealing, &mut bytes)?;
                Ok((bytes.into(), Some(mac), Some(sealing)))
            }
            Protection::Authenticated | Protection::Parent | Protection::Root => {
                let mac = keys.authenticate(payload.bytes());
                Ok((payload, Some(mac), None))
            }
        }
    }
}
