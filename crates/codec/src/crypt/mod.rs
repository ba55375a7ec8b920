//! Native encryption: keys, sealed blocks, and the authentication codes that make a dataset one tree.
//!
//! From:   the user's key, the wrapped keys of a dataset (`format::crypt`), and blocks as they lie on the disk.
//! To:     the same blocks as `dmu` reads and writes them, or [`CryptError`].
//! Source: docs/format/13-encryption.md.
//!
//! [`WrappingKey`] comes from the user and opens the [`DatasetKeys`]. These derive a key for each salt, and seal and open
//! blocks ([`DatasetKeys::seal`], [`DatasetKeys::open`]); which bytes of a block stay readable depends on its
//! [`Content`]. Blocks of types that are never encrypted are authenticated ([`DatasetKeys::authenticate`]).
//! [`indirect_mac`] needs no key: it covers the codes of all children.

mod aead;
mod areas;
mod content;
mod dnodes;
mod error;
mod keys;
mod locked;
mod log;
mod objset;
mod pointers;
#[cfg(test)]
mod tests;
mod traces;
mod wrapping;

pub use content::Content;
pub use error::CryptError;
pub use keys::DatasetKeys;
pub use objset::ObjsetMacs;
pub use pointers::{MacVersion, indirect_mac};
pub use wrapping::{MIN_ITERATIONS, WrappingKey};
