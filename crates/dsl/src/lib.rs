//! The dataset layer (DSL): the MOS objects that describe datasets, and how operations change these objects.
//!
//! From:   `pool`, which supplies the transaction of a change and applies its effects.
//! To:     `dmu`, whose objects hold all of it. Nothing here runs a thread or writes to a device.
//! Source: docs/format/06-mos-dsl.md.
#![forbid(unsafe_code)]

pub mod available;
pub mod bookmark;
pub mod bpobj;
pub mod bptree;
pub mod change;
pub mod change_key;
pub mod clone;
pub mod create;
pub mod deadlist;
pub mod delegation;
pub mod destroy;
pub mod encrypt;
pub mod error;
pub mod features;
pub mod frees;
pub mod history;
pub mod holds;
pub mod info;
mod key_error;
pub mod key_objects;
mod key_roots;
pub mod keyring;
pub mod keys;
pub mod limits;
pub mod list;
pub mod livelist;
pub mod local;
pub mod mos;
pub mod new_encryption;
pub mod new_head;
pub mod new_names;
mod not_written;
pub mod opening;
pub mod partial;
pub mod promises;
pub mod promote;
pub mod properties;
pub mod props;
pub mod receive;
mod receive_error;
pub mod received;
pub mod redaction;
pub mod rename;
pub mod room;
pub mod settings;
pub mod settle;
pub mod sizes;
pub mod snapshot;
pub mod space;
mod sublist;
mod token;
pub mod tree;
mod tune_error;
pub mod upgrade;
pub mod values;
pub mod version;
pub mod view;
pub mod walk;

#[cfg(test)]
mod bed;

pub use error::{Error, Result};
pub use features::{FeatureState, Features};
pub use key_error::KeyError;
pub use mos::Mos;
pub use not_written::{NotExpanded, NotWritten};
pub use receive_error::ReceiveError;
pub use sizes::Sizes;
pub use token::{ResumeToken, SendFlags, TokenError};
pub use tune_error::{Kind as TunableKind, TuneError};
