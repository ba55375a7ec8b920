//! CPU and devices during a short part of a measurement.

use serde::{Deserialize, Serialize};

/// The work since the tick before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tick {
    /// Seconds from the start to the end of this tick.
    pub at: f64,
    /// Seconds that it lasted.
    pub seconds: f64,
    /// The phase of the measurement.
    pub phase: String,
    /// Programs, in percent of the time of all processors.
    pub user: f64,
    /// The kernel, interrupts, and time that the hypervisor took.
    pub system: f64,
    /// Nothing to do.
    pub idle: f64,
    /// Nothing to do until a device answers.
    pub wait: f64,
    /// CPU seconds of this process.
    pub own_seconds: f64,
    /// CPU seconds of all processes and the kernel.
    pub busy_seconds: f64,
    /// Bytes that devices read for this process.
    pub read_bytes: u64,
    /// Bytes that this process had written to devices.
    pub write_bytes: u64,
}
