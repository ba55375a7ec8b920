//! The key data of a raw stream, and its values for the dataset's block tree.
//!
//! Source: docs/format/09-send-stream.md §5, 13-encryption.md §7.

use alloc::vec::Vec;

use crate::crypt::{KeyFormat, Suite, WrappedKeys, entry};
use crate::{Corrupt, NvList, NvValue};

/// Name of the list in the list that follows a BEGIN record.
pub const KEY_DATA: &str = "crypt_keydata";

const PORTABLE_MAC: &str = "portable_mac";
const TO_IV_SET: &str = "to_ivset_guid";
const FROM_IV_SET: &str = "from_ivset_guid";

/// The form of a meta-dnode: its authentication code covers it, so a receiver must have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetaForm {
    /// Checksum kind by number.
    pub checksum: u8,
    /// Compression by number.
    pub compress: u8,
    /// Levels of its tree.
    pub levels: u8,
    /// Bytes of a block of dnodes.
    pub block_size: u32,
    /// log2 bytes of an indirect block.
    pub indirect_shift: u8,
    /// Pointers in it.
    pub nblkptr: u8,
    /// Largest block id.
    pub max_blkid: u64,
}

/// The encryption of the dataset of a raw stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyData {
    /// The keys, sealed with the user's key.
    pub wrapped: WrappedKeys,
    /// Authentication code of the root.
    pub portable_mac: [u8; 32],
    /// The form of the user's key.
    pub format: KeyFormat,
    /// Rounds of a pass phrase, else 0.
    pub iterations: u64,
    /// Salt of a pass phrase, else 0.
    pub salt: u64,
    /// The meta-dnode.
    pub meta: MetaForm,
    /// Set of initialisation vectors of the snapshot.
    pub to_iv_set: u64,
    /// The guid of the set of the incremental source snapshot; 0 for none.
    pub from_iv_set: u64,
}

fn bytes<const N: usize>(list: &NvList, name: &'static str) -> Result<[u8; N], Corrupt> {
    match list.get(name) {
        Some(NvValue::Uint8Array(bytes)) => {
            bytes.as_slice().try_into().map_err(|_| Corrupt::new(name, bytes.len() as u64))
        }
        _ => Err(Corrupt::new(name, 0)),
    }
}

fn number(list: &NvList, name: &'static str) -> Result<u64, Corrupt> {
    list.get_u64(name).ok_or(Corrupt::new(name, 0))
}

fn small<T: TryFrom<u64>>(list: &NvList, name: &'static str) -> Result<T, Corrupt> {
    let value = number(list, name)?;
    T::try_from(value).map_err(|_| Corrupt::new(name, value))
}

impl KeyData {
    /// Reads the list.
    ///
    /// # Errors
    /// [`Corrupt`] names what is missing or cannot be.
    pub fn from_list(list: &NvList) -> Result<KeyData, Corrupt> {
        let format = KeyFormat::from_disk(number(list, entry::KEY_FORMAT)?)?;
        let (iterations, salt) = (number(list, entry::ITERATIONS)?, number(list, entry::SALT)?);
        let is_passphrase = format == KeyFormat::Passphrase;
        if is_passphrase != (iterations != 0) || is_passphrase != (salt != 0) {
            return Err(Corrupt::new(entry::ITERATIONS, iterations));
        }
        Ok(KeyData {
            wrapped: WrappedKeys {
                suite: Suite::from_disk(number(list, entry::SUITE)?)?,
                guid: number(list, entry::GUID)?,
                version: number(list, entry::VERSION)?,
                iv: bytes(list, entry::IV)?,
                mac: bytes(list, entry::MAC)?,
                master: bytes(list, entry::MASTER_KEY)?,
                hmac: bytes(list, entry::HMAC_KEY)?,
            },
            portable_mac: bytes(list, PORTABLE_MAC)?,
            format,
            iterations,
            salt,
            meta: MetaForm {
                checksum: small(list, "mdn_checksum")?,
                compress: small(list, "mdn_compress")?,
                levels: small(list, "mdn_nlevels")?,
                block_size: small(list, "mdn_blksz")?,
                indirect_shift: small(list, "mdn_indblkshift")?,
                nblkptr: small(list, "mdn_nblkptr")?,
                max_blkid: number(list, "mdn_maxblkid")?,
            },
            to_iv_set: number(list, TO_IV_SET)?,
            // Old senders leave it out.
            from_iv_set: list.get_u64(FROM_IV_SET).unwrap_or(0),
        })
    }

    /// The list, in the order in which OpenZFS has it.
    #[must_use]
    pub fn to_list(&self) -> NvList {
        let KeyData { wrapped, meta, .. } = self;
        let raw = |bytes: &[u8]| NvValue::Uint8Array(Vec::from(bytes));
        [
            (entry::SUITE, wrapped.suite.to_disk().into()),
            (entry::GUID, wrapped.guid.into()),
            (entry::VERSION, wrapped.version.into()),
            (entry::MASTER_KEY, raw(&wrapped.master)),
            (entry::HMAC_KEY, raw(&wrapped.hmac)),
            (entry::IV, raw(&wrapped.iv)),
            (entry::MAC, raw(&wrapped.mac)),
            (PORTABLE_MAC, raw(&self.portable_mac)),
            (entry::KEY_FORMAT, self.format.to_disk().into()),
            (entry::ITERATIONS, self.iterations.into()),
            (entry::SALT, self.salt.into()),
            ("mdn_checksum", u64::from(meta.checksum).into()),
            ("mdn_compress", u64::from(meta.compress).into()),
            ("mdn_nlevels", u64::from(meta.levels).into()),
            ("mdn_blksz", u64::from(meta.block_size).into()),
            ("mdn_indblkshift", u64::from(meta.indirect_shift).into()),
            ("mdn_nblkptr", u64::from(meta.nblkptr).into()),
            ("mdn_maxblkid", meta.max_blkid.into()),
            (TO_IV_SET, self.to_iv_set.into()),
            (FROM_IV_SET, self.from_iv_set.into()),
        ]
        .into_iter()
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_data_survive_a_round_trip_and_lack_nothing() {
        let wrapped = WrappedKeys {
            suite: Suite::DEFAULT,
            guid: 1,
            version: 1,
            iv: [2; 12],
            mac: [3; 16],
            master: [4; 32],
            hmac: [5; 64],
        };
        let meta = MetaForm {
            checksum: 0,
            compress: 0,
            levels: 6,
            block_size: 1 << 14,
            indirect_shift: 17,
            nblkptr: 3,
            max_blkid: 9,
        };
        let data = KeyData {
            wrapped,
            portable_mac: [6; 32],
            format: KeyFormat::Passphrase,
            iterations: 350_000,
            salt: 7,
            meta,
            to_iv_set: 8,
            from_iv_set: 0,
        };
        let list = data.to_list();
        assert_eq!(KeyData::from_list(&list), Ok(data));
        for (name, _) in list.iter() {
            let mut less = list.clone();
            less.remove(name);
            assert_eq!(KeyData::from_list(&less).is_ok(), name == FROM_IV_SET.as_bytes(), "{name:?}");
            let mut other = list.clone();
            other.insert(name, NvValue::Uint8Array(Vec::from([0; 3])));
            assert_eq!(KeyData::from_list(&other).is_ok(), name == FROM_IV_SET.as_bytes(), "{name:?}");
        }
        let mut odd = list;
        odd.insert(entry::SUITE, 2_u64);
        assert!(KeyData::from_list(&odd).is_err());
    }
}
