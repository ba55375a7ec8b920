//! Savings and time of a run.

use crate::Run;

/// A saving is one from this part of the plain size down.
pub(crate) const WORTHWHILE_SIZE: f64 = 0.97;

/// Bytes that `run` allocated for each byte that `off` allocated, or that the files hold when `off` was not measured.
pub(crate) fn relative_size(measured: &[&Run], run: &Run) -> f64 {
    let off = measured.iter().filter(|run| run.compression == "off");
    let off = off.min_by(|a, b| time(a).total_cmp(&time(b)));
    run.allocated_bytes as f64 / off.map_or(run.logical_bytes, |off| off.allocated_bytes).max(1) as f64
}

/// Seconds for writing once and reading once.
pub(crate) fn time(run: &Run) -> f64 {
    run.write_seconds + run.read_seconds
}
