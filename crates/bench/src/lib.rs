//! Measuring compression: trials on the user's own files, the recommendation that follows from them, reports.
//!
//! From:   files and folders, and a [`Plan`] of configurations.
//! To:     a [`Report`] of records, as JSON, CSV or Markdown. Nothing is printed here. The
//!         caller's [`Watch`] receives the progress.
//!
//! Each configuration is measured in a dataset of its own. The files are written until they are durable. Then the pool is
//! opened again with cold caches, and the files are read back and compared byte by byte.
#![forbid(unsafe_code)]

mod advice;
pub mod advise;
mod against;
mod application;
mod beside;
mod chart;
mod compare;
mod configuration;
mod crew;
mod ended;
mod engines;
mod error;
mod experiment;
mod figures;
mod forms;
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
mod saving;
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
pub use advise::RATIO_MEANS;
pub use application::{Application, Mount, Mounter, Step, shell_word};
pub use compare::{Comparison, Verdict};
pub use configuration::{Configuration, THREADS_MAX};
pub use ended::Ended;
pub use engines::{Engines, Implementation, engines};
pub use error::{Error, Result, system_reason};
pub use experiment::{Experiment, read_text};
pub use figures::{Axis, Chart, Figures, Grid, Group, Kind, Series, Table};
pub use generate::{CORPORA, generate};
pub use limit::{BurstRates, Limit, Use, knee_bytes};
pub use machine::Machine;
pub use plan::{DEFAULT_COMPRESSIONS, Device, Place, Plan};
pub use published::Published;
pub use rate::parse_rate;
pub use report::{
    About, Recommendation, Repetition, Report, Run, SCHEMA, Spread, StepRun, Stream, Tick, table,
};
pub use shown::pareto;
pub use source::Source;
pub use trial::run;
pub use watch::{Event, Phase, Watch};
