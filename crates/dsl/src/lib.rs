//! Datasets as data in the MOS: the objects that describe them, and what a change of them means for these objects.
//!
//! From:   `pool`, which says in which transaction something changes, and acts on what a change leaves to it.
//! To:     `dmu`, whose objects hold all of it. Nothing here runs a thread or writes to a device.
//! Source: docs/format/06-mos-dsl.md.
#![forbid(unsafe_code)]

pub mod bpobj;
pub mod bptree;
pub mod error;
pub mod features;
pub mod history;
mod key_error;
pub mod keys;
pub mod mos;
pub mod props;
mod receive_error;
pub mod sizes;
mod token;
mod tune_error;
pub mod version;

#[cfg(test)]
mod bed;

pub use error::{Error, Result};
pub use features::{FeatureState, Features};
pub use key_error::KeyError;
pub use mos::Mos;
pub use receive_error::ReceiveError;
pub use sizes::Sizes;
pub use token::{ResumeToken, SendFlags, TokenError};
pub use tune_error::{Kind as TunableKind, TuneError};
