//! Measuring compression: trials on the user's own files, the recommendation drawn from them, reports.
//!
//! From:   files and folders, and a [`Plan`] of configurations.
//! To:     a [`Report`] of records, as JSON, CSV or Markdown. Nothing is printed here; what goes on is told to
//!         the caller's [`Watch`].
//!
//! Each configuration is measured in a dataset of its own: written until it is durable, settled, opened again
//! with cold caches, read back, compared byte by byte.
#![forbid(unsafe_code)]

mod advice;
mod crew;
mod engines;
mod error;
mod machine;
mod plan;
mod report;
mod sample;
mod source;
mod stats;
mod target;
mod trial;
mod watch;

pub use advice::recommend;
pub use engines::{Engines, Implementation, engines};
pub use error::{Error, Result};
pub use machine::Machine;
pub use plan::{Configuration, DEFAULT_COMPRESSIONS, Place, Plan};
pub use report::{Recommendation, Report, Run, SCHEMA, Spread, table};
pub use source::Source;
pub use trial::run;
pub use watch::{Event, Phase, Watch};
