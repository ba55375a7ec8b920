//! Recorded sessions of OpenZFS, replayed against cenote.
//!
//! From:   fixtures/transcripts (format in its README).
//! To:     the tests in `transcripts.rs`: each case passes, fails, or is skipped for a stated reason.

pub mod data;
pub mod parse;
pub mod pattern;
pub mod run;
pub mod sandbox;
pub mod skip;
