//! Objects: objsets, dnodes, indirect trees, dirty records, ZAP and SA operations.
//!
//! From:   `zpl` and `pool`, which read and change objects within a transaction.
//! To:     `storage`, which writes the blocks. A sync turns the dirty records of an objset into a new root pointer.
//!
//! One txg is open at a time. When `pool` closes it, no change is under way. The dirty records of that txg no longer change
//! and are synced, while the next txg collects its own (docs/decisions/0001-txg-switch.md).
#![forbid(unsafe_code)]

mod bound;
mod budget;
mod context;
mod dedup;
mod error;
mod gang;
mod head;
mod io;
mod object;
mod objset;
mod place;
mod policy;
mod ranges;
mod sync;
mod touched;
mod tree;
mod tx;
pub mod walk;
pub mod zap;

pub use bound::KILLED;
pub use budget::DirtyBudget;
pub use context::{LookAhead, Space, SyncCtx};
pub use error::Error;
pub use head::{Head, NewObject, SealedForm};
pub use io::BlockIo;
pub use object::{AtHand, Object, Trail};
pub use objset::{Frozen, Objset, Special};
pub use place::write_objset_root;
pub use policy::{Dedup, Policy, Redundant};
pub use ranges::Ranges;
pub use storage::{Caller, Record, rank};
pub use sync::Synced;
pub use touched::Touched;
pub use tx::Tx;

/// Result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
