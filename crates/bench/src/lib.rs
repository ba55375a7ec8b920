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
pub mod advise;
mod against;
mod application;
mod beside;
mod chart;
mod compare;
mod crew;
mod engines;
mod error;
mod experiment;
mod figures;
mod generate;
mod guard;
mod in_pool;
mod journal;
mod limit;
mod machine;
mod measure;
mod page;
mod picture;
mod plan;
mod published;
mod ranking;
mod rate;
mod reading;
mod report;
mod sample;
mod shown;
mod source;
mod stats;
mod stopwatch;
mod stream;
mod sweeps;
mod target;
mod throttle;
mod trace;
mod trial;
mod uncertain;
mod watch;

pub use advice::recommend;
pub use application::{Application, Mount, Mounter, Step, shell_word};
pub use compare::{Comparison, Verdict};
pub use engines::{Engines, Implementation, engines};
pub use error::{Ended, Error, Result, system_reason};
pub use experiment::{Experiment, read_text};
pub use figures::{Axis, Chart, Grid, Group, Kind, Series, Table};
pub use generate::{CORPORA, generate};
pub use limit::{BurstRates, Limit, Use, knee_bytes};
pub use machine::Machine;
pub use plan::{Configuration, DEFAULT_COMPRESSIONS, Device, Place, Plan, THREADS_MAX};
pub use published::Published;
pub use rate::parse_rate;
pub use report::{About, Recommendation, Repetition, Report, Run, SCHEMA, Spread, StepRun, Stream, table};
pub use shown::{Figures, pareto};
pub use source::Source;
pub use trace::Tick;
pub use trial::run;
pub use watch::{Event, Phase, Watch};
