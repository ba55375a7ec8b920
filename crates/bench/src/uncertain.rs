//! Checks whether measured times are reliable enough for a choice; otherwise sizes and CPU times decide.
//!
//! From:   runs that were verified, and the one that the times choose.
//! To:     `advice`, which reports the uncertainty in place of a recommendation that noise chose.

use crate::Run;
use crate::saving::{WORTHWHILE_SIZE, relative_size, time};

/// Part of the machine's CPU time that other programs may take without a remark in the report.
pub(crate) const NOISE: f64 = 0.05;
/// Median deviations around a median between which the true time lies.
const DEVIATIONS: f64 = 2.0;
/// Another run may be better by this factor before the choice counts as chosen by noise: below it both are good choices.
const REGRET: f64 = 1.25;

/// The least and the most seconds that writing once and reading once may take on a quiet machine.
///
/// Other processes that took the share `s` of the CPU time can have made the work longer, never shorter: without them it takes
/// at least `1 - s` of the time measured.
fn interval(run: &Run) -> (f64, f64) {
    let seconds = time(run);
    let deviation = run.spread.as_ref().map_or(0.0, |spread| spread.write_seconds + spread.read_seconds);
    let quiet = seconds * (1.0 - run.others_cpu.unwrap_or(0.0).clamp(0.0, 1.0));
    ((quiet - deviation * DEVIATIONS).max(0.0), seconds + deviation * DEVIATIONS)
}

/// Whether the noise of the times is larger than the differences on which the choice of `best` rests: some other run is
/// clearly better if its time is as short, and that of `best` as long, as the noise allows.
pub(crate) fn is_uncertain(measured: &[&Run], best: &Run) -> bool {
    let size = |run: &Run| relative_size(measured, run);
    let (_, longest) = interval(best);
    measured
        .iter()
        .filter(|run| !std::ptr::eq(**run, best))
        .any(|run| size(run) * interval(run).0 * REGRET < size(best) * longest)
}

/// The run among `allowed`, some of the `measured` ones, that saves the most space for each second of CPU time; `None` when none
/// of them saves a notable part.
pub(crate) fn most_saved_per_cpu_second<'a>(
    measured: &[&'a Run],
    allowed: impl Iterator<Item = &'a Run>,
) -> Option<&'a Run> {
    let gain = |run: &Run| {
        let cpu_seconds = run.write_cpu_seconds + run.read_cpu_seconds;
        (1.0 - relative_size(measured, run)) / cpu_seconds.max(f64::MIN_POSITIVE)
    };
    let smaller = allowed.filter(|run| relative_size(measured, run) <= WORTHWHILE_SIZE);
    smaller.max_by(|a, b| gain(a).total_cmp(&gain(b)))
}

/// The largest share of CPU time that other processes took during a run; 0 when none was recorded.
pub(crate) fn others_cpu_max(measured: &[&Run]) -> f64 {
    measured.iter().filter_map(|run| run.others_cpu).fold(0.0, f64::max)
}

/// That other programs took the part `share` of the CPU time, during the measurement `of`; `None` for a small part.
pub(crate) fn busy(share: f64, of: Option<&str>) -> Option<String> {
    let during = of.map_or(String::new(), |name| format!(" (during {name})"));
    (share > NOISE).then(|| {
        format!(
            "other programs used {:.0} % of the CPU meanwhile{during}, so the speeds may be wrong: stop these programs and \
             measure again",
            share * 100.0
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_machine_is_named() {
        assert_eq!(busy(0.04, None), None);
        let said = busy(0.634, Some("lz4")).unwrap();
        assert!(said.starts_with("other programs used 63 % of the CPU meanwhile (during lz4), "), "{said}");
    }
}
