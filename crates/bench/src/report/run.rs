//! One configuration as measured.

use std::fmt::Write as _;

use pool::props::number;
use serde::{Deserialize, Serialize};

use super::Tick;
use crate::Limit;

/// One configuration as measured; the medians where it was measured several times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Value of the property `compression`; for gzip, behind `@`, who made its bytes.
    pub compression: String,
    /// Bytes of a record.
    pub recordsize: u64,
    /// Threads that wrote, compressed and read.
    pub threads: u32,
    /// Bytes of data in the files, without holes.
    pub logical_bytes: u64,
    /// Bytes that the dataset takes in the pool (`used`).
    pub allocated_bytes: u64,
    /// ZFS's own figure (the property), with two decimals.
    pub compressratio: f64,
    /// From the first write until everything is durable.
    pub write_seconds: f64,
    /// CPU time of the whole process meanwhile; of the whole machine for another file system ([`Run::against`]).
    pub write_cpu_seconds: f64,
    /// Reading every byte from cold caches into buffers of the readers, without comparing.
    pub read_seconds: f64,
    /// CPU time meanwhile, as for writing.
    pub read_cpu_seconds: f64,
    /// Every byte was read back as it was written, each time.
    pub verified: bool,
    /// Present if measured more than once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    /// The other file system that did the same work; `None` for a pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// Bytes asked for, where several totals were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    /// From the first write until the last one was accepted; until then a program waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_seconds: Option<f64>,
    /// Reading everything once more from the caches, also into buffers of the readers; the median where it was done several
    /// times, `None` where the caches are too small for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_read_seconds: Option<f64>,
    /// Cold reads, each time; [`Run::read_seconds`] is the median of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold_reads: Option<u32>,
    /// Bytes that the system read from devices for this process during one cold read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cold_device_bytes: Option<u64>,
    /// The same during all warm reads together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_device_bytes: Option<u64>,
    /// The bottleneck of writing, until all was durable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_limit: Option<Limit>,
    /// The bottleneck until the writer's last write was accepted, where totals, a dirty limit or a network were given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_limit: Option<Limit>,
    /// The bottleneck of the cold read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_limit: Option<Limit>,
    /// Share of the machine's CPU time that other processes used meanwhile, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_cpu: Option<f64>,
    /// Each repetition, if measured more than once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repetitions: Vec<Repetition>,
    /// The programs that were run on the mounted dataset.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepRun>,
    /// CPU and devices over time, in the last repetition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trace: Vec<Tick>,
}

/// One of several measurements of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Repetition {
    /// As [`Run::write_seconds`].
    pub write_seconds: f64,
    /// As [`Run::read_seconds`].
    pub read_seconds: f64,
    /// One of the times is far from the median.
    pub outlier: bool,
}

/// An application's step on the mounted dataset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepRun {
    /// The name of the step.
    pub name: String,
    /// Number of threads for the program.
    pub threads: u32,
    /// The median.
    pub seconds: f64,
    /// CPU time of the application and all it started.
    pub cpu_seconds: f64,
    /// CPU time of the file system meanwhile.
    pub pool_cpu_seconds: f64,
    /// Median absolute deviation of [`StepRun::seconds`]; 0 if measured once.
    pub spread_seconds: f64,
}

/// Median absolute deviations of a configuration measured several times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// How many times it was measured.
    pub repeat: u32,
    /// Of [`Run::write_seconds`].
    pub write_seconds: f64,
    /// Of [`Run::write_cpu_seconds`].
    pub write_cpu_seconds: f64,
    /// Of [`Run::read_seconds`].
    pub read_seconds: f64,
    /// Of [`Run::read_cpu_seconds`].
    pub read_cpu_seconds: f64,
}

impl Run {
    /// Written bytes per second.
    #[must_use]
    pub fn write_rate(&self) -> f64 {
        self.logical_bytes as f64 / self.write_seconds
    }

    /// Read bytes per second.
    #[must_use]
    pub fn read_rate(&self) -> f64 {
        self.logical_bytes as f64 / self.read_seconds
    }

    /// Bytes per second as the writer sees them: until the last write is accepted.
    #[must_use]
    pub fn accepted_rate(&self) -> Option<f64> {
        self.accepted_seconds.map(|seconds| self.logical_bytes as f64 / seconds)
    }

    /// Share of the cores in use that writing took, 0 to 1.
    #[must_use]
    pub fn write_cpu_share(&self) -> f64 {
        self.write_cpu_seconds / (self.write_seconds * f64::from(self.threads.max(1)))
    }

    /// Share of the original size that is saved, 0 to 1.
    #[must_use]
    pub fn saving(&self) -> f64 {
        1.0 - self.allocated_bytes as f64 / self.logical_bytes.max(1) as f64
    }

    /// Bytes of the files for each byte that they take in the pool.
    #[must_use]
    pub fn space_ratio(&self) -> f64 {
        self.logical_bytes as f64 / self.allocated_bytes.max(1) as f64
    }

    /// A name for a run that contains everything in which it differs from the others of its report.
    #[must_use]
    pub fn label(&self, among: &[Run]) -> String {
        let varies = |of: fn(&Run) -> u64| among.iter().any(|other| of(other) != of(self));
        let mut label = self.against.clone().unwrap_or_else(|| self.compression.clone());
        if varies(|run| run.recordsize) {
            let _ = write!(label, " {}", number::nice(self.recordsize));
        }
        if varies(|run| u64::from(run.threads)) {
            let _ = write!(label, " ×{}", self.threads);
        }
        if varies(|run| run.total_bytes.unwrap_or(0)) {
            let _ = write!(label, " {}", number::nice(self.logical_bytes));
        }
        label
    }
}

/// The run without compression under otherwise equal conditions. The times of `run` are compared with it.
pub(crate) fn baseline<'a>(runs: &'a [Run], run: &Run) -> Option<&'a Run> {
    let alike = |other: &&Run| {
        other.recordsize == run.recordsize
            && other.threads == run.threads
            && other.total_bytes == run.total_bytes
            && other.against.is_none()
    };
    runs.iter().filter(alike).find(|other| other.compression == "off")
}

/// Threads and bytes of a run.
pub(crate) fn under(run: &Run) -> (u32, Option<u64>) {
    (run.threads, run.total_bytes)
}

/// The most threads, and of those the most bytes, with which everything was measured: a measurement that ended early
/// may have only begun with its last.
pub(crate) fn conditions(runs: &[Run]) -> (u32, Option<u64>) {
    let pools = || runs.iter().filter(|run| run.against.is_none());
    let count = |conditions| pools().filter(|run| under(run) == conditions).count();
    let best = runs.iter().map(under).max_by_key(|conditions| (count(*conditions), *conditions));
    best.expect("a recommendation needs a measurement")
}
