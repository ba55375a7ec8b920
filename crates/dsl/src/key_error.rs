//! What can go wrong with keys of encrypted datasets.

/// Why a key cannot be loaded, unloaded or used. The texts are those of the pool; the command line has OpenZFS's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It does not open the keys of this encryption root.
    #[error("incorrect key for '{0}'")]
    Wrong(String),
    /// The key of this encryption root is loaded already.
    #[error("key already loaded for '{0}'")]
    AlreadyLoaded(String),
    /// The key of this encryption root is not loaded.
    #[error("'{0}' is encrypted, and its key is not loaded ('zfs load-key' loads it)")]
    NotLoaded(String),
    /// A dataset that takes its key from one above cannot be made, since that key is not loaded.
    #[error("encryption root's key is not loaded or provided")]
    RootNotLoaded,
    /// A dataset with a key of its own does not say what kind of key.
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
    /// A dataset that takes its key from one above would leave that.
    #[error("cannot move encrypted child outside of its encryption root")]
    LeavesRoot,
    /// A clone would become the origin of a dataset that takes its key from elsewhere.
    #[error("cannot promote dataset outside its encryption root")]
    PromotesOutside,
    /// A full stream would take the place of an encrypted dataset.
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
    /// The dataset takes its key from another one.
    #[error("keys must be loaded for '{root}', the encryption root of '{dataset}'")]
    NotRoot {
        /// The dataset.
        dataset: String,
        /// Its encryption root.
        root: String,
    },
}
