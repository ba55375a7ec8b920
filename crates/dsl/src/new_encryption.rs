//! Encryption options of a new dataset, as the caller gives them.

use std::sync::Arc;

use codec::crypt::WrappingKey;
use format::crypt::Suite;

use crate::keys::UserKey;

/// A user's key, and the form in which the user gives it.
#[derive(Clone, Debug)]
pub struct OwnKey {
    /// The form in which the user gives the key.
    pub user_key: UserKey,
    /// The wrapping key that is made from it.
    pub key: WrappingKey,
}

/// The property `encryption` of a new dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wanted {
    /// As the dataset above.
    #[default]
    Inherit,
    /// Not encrypted.
    Off,
    /// With this suite.
    On(Suite),
}

/// Encryption options of a new dataset.
#[derive(Clone, Debug, Default)]
pub struct NewEncryption {
    /// Whether it is.
    pub wanted: Wanted,
    /// It becomes an encryption root with this key.
    pub own: Option<Arc<OwnKey>>,
}
