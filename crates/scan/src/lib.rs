//! Walks over a whole pool: check, scrub, resilver, and the log of damaged blocks.
//!
//! From:   an open pool of the crate `pool`: its trees as of a synced txg, its space maps, its devices.
//! To:     findings for the caller; jobs of the sync thread, which repair blocks and record the progress of a scan. Why it
//! is done so: docs/decisions/0023-scans-above-the-pool.md.
#![forbid(unsafe_code)]

pub mod check;
mod scrub;

pub use pool::scrubber::DataError;
pub use scrub::{Births, ScanStatus, Scans};
