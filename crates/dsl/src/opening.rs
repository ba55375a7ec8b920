//! The header of a stream: all before its first object.

use format::stream::{Begin, KEY_DATA, KeyData, feature};
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
}

impl Opening {
    /// Reads what is of interest.
    ///
    /// # Errors
    /// The key data of a raw stream are missing or invalid.
    pub fn of(begin: &Begin, list: &NvList) -> Result<Opening, ReceiveError> {
        let keys = match begin.features & feature::RAW {
            0 => None,
            _ => {
                let data = list.get_list(KEY_DATA).ok_or(Corrupt::new(KEY_DATA, 0))?;
                Some(KeyData::from_list(data)?)
            }
        };
        Ok(Opening { begin: begin.clone(), keys })
    }
}

/// How the user's key unwraps the keys of a raw stream.
pub(crate) fn user_key(keys: &KeyData) -> UserKey {
    UserKey { format: keys.format, salt: keys.salt, iterations: keys.iterations }
}
