//! The header of a stream: all before its first object.

use format::stream::{Begin, KEY_DATA, KeyData, REDACT_FROM_SNAPS, REDACT_SNAPS, feature};
use format::{Corrupt, NvList};

use crate::ReceiveError;
use crate::keys::UserKey;

/// The first record of a stream, and the parts of its nvlist that the DSL needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The record.
    pub begin: Begin,
    /// Of a raw stream: the keys of its dataset.
    pub keys: Option<KeyData>,
    /// Guids of the snapshots by which the stream is redacted; `None`: it leaves nothing out.
    pub redacted_by: Option<Vec<u64>>,
    /// Guids of the redaction snapshots that the source of the stream may have: the stream has all blocks that are
    /// missing there.
    pub completes: Option<Vec<u64>>,
}

impl Opening {
    /// Reads what is of interest.
    ///
    /// # Errors
    /// The key data of a raw stream, or the guids of a redacted one, are missing or invalid.
    pub fn of(begin: &Begin, list: &NvList) -> Result<Opening, ReceiveError> {
        let keys = match begin.features & feature::RAW {
            0 => None,
            _ => {
                let data = list.get_list(KEY_DATA).ok_or(Corrupt::new(KEY_DATA, 0))?;
                Some(KeyData::from_list(data)?)
            }
        };
        let guids = |key| list.get_u64s(key).map(<[u64]>::to_vec);
        let redacted_by = guids(REDACT_SNAPS);
        if begin.features & feature::REDACTED != 0 && redacted_by.is_none() {
            return Err(Corrupt::new(REDACT_SNAPS, 0).into());
        }
        Ok(Opening { begin: begin.clone(), keys, redacted_by, completes: guids(REDACT_FROM_SNAPS) })
    }
}

/// How the user's key unwraps the keys of a raw stream.
pub(crate) fn user_key(keys: &KeyData) -> UserKey {
    UserKey { format: keys.format, salt: keys.salt, iterations: keys.iterations }
}
