//! Errors of keys of encrypted datasets.

/// Why a key cannot be loaded, unloaded or used. The command line replaces these texts by those of OpenZFS.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The key does not unwrap the keys of this encryption root.
    #[error("incorrect key for '{0}'")]
    Wrong(String),
    /// The key of this encryption root is loaded already.
    #[error("key already loaded for '{0}'")]
    AlreadyLoaded(String),
    /// The key of this encryption root is not loaded.
    #[error("'{0}' is encrypted, and its key is not loaded ('zfs load-key' loads it)")]
    NotLoaded(String),
    /// A dataset that inherits its key cannot be made, because that key is not loaded.
    #[error("encryption root's key is not loaded or provided")]
    RootNotLoaded,
    /// A dataset with a key of its own has no `keyformat`.
    #[error("Keyformat required for new encryption root.")]
    NoKeyFormat,
    /// A key for a dataset that is not encrypted.
    #[error("Encryption must be turned on to set encryption properties.")]
    NotOn,
    /// A clone takes its key from its origin.
    #[error("Keys cannot be changed on clones.")]
    Clone,
    /// Only an encryption root can take the key of the dataset above instead of its own.
    #[error("Key inheritting can only be performed on encryption roots.")]
    NotItsRoot,
    /// The dataset above has no key.
    #[error("Parent must be encrypted.")]
    ParentNotEncrypted,
    /// The key of the dataset above is not loaded.
    #[error("Parent key must be loaded.")]
    ParentNotLoaded,
    /// A rename would move a dataset away from the one whose key it inherits.
    #[error("cannot move encrypted child outside of its encryption root")]
    LeavesRoot,
    /// A promotion would make a clone the origin of a dataset with another encryption root.
    #[error("cannot promote dataset outside its encryption root")]
    PromotesOutside,
    /// A full stream would replace an encrypted dataset.
    #[error(
        "zfs receive -F cannot be used to destroy an encrypted filesystem or overwrite an unencrypted one with an \
         encrypted one"
    )]
    ReceivedOver,
    /// The pool has not enabled the features that encryption needs.
    #[error("the pool has not enabled the features 'encryption' and 'bookmark_v2'")]
    NotEnabled,
    /// The dataset is not encrypted.
    #[error("'{0}' is not encrypted")]
    NotEncrypted(String),
    /// The dataset inherits its key.
    #[error("keys must be loaded for '{root}', the encryption root of '{dataset}'")]
    NotRoot {
        /// The dataset.
        dataset: String,
        /// Its encryption root.
        root: String,
    },
}
