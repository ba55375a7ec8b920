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
