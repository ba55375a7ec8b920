//! Confidence intervals of the times of a run.

use super::Run;

/// Half the width of what a median may be, in median absolute deviations: two standard deviations.
const DEVIATIONS: f64 = 2.0 * 1.4826;
/// The least that a median of several is uncertain by, and a time measured once.
const SURE: f64 = 0.01;
const ONCE: f64 = 0.10;

impl Run {
    /// The interval, in seconds, that contains the true time to write.
    pub(crate) fn write_interval(&self) -> (f64, f64) {
        interval(self.write_seconds, self.spread.as_ref().map(|s| s.write_seconds))
    }

    /// Seconds between which the true time to read lies.
    pub(crate) fn read_interval(&self) -> (f64, f64) {
        interval(self.read_seconds, self.spread.as_ref().map(|s| s.read_seconds))
    }
}

/// The interval in which the true time lies.
fn interval(seconds: f64, deviation: Option<f64>) -> (f64, f64) {
    let half = match deviation {
        Some(deviation) => (deviation * DEVIATIONS).max(seconds * SURE),
        None => seconds * ONCE / 2.0,
    };
    (seconds - half, seconds + half)
}
