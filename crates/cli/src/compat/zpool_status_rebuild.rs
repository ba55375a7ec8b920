//! The part of `zpool status` about sequential rebuilds.

use format::rebuild::{Rebuild, RebuildState};
use format::scan::{ScanFunc, ScanState};
use pool::props::number::nice_bytes;
use scan::ScanStatus;

use super::scan::duration;
use super::view::{Naming, PoolView};
use crate::dates::{self, Form};
use crate::messages::{Action, Failure};
use crate::out::Console;

/// The remaining time is printed if the rate is at least so many bytes a second.
const FAST: u64 = 10 << 20;

impl PoolView {
    /// The last sequential rebuild of each top-level vdev that had one, by its id.
    ///
    /// # Errors
    /// If a state cannot be read.
    pub fn rebuilds(&self) -> Result<Vec<(u32, Rebuild)>, Failure> {
        let failed = |error: &dyn std::fmt::Display| Action::Open(&self.name).failed(error);
        match (&self.figures, self.session()) {
            (Some(figures), _) => figures.rebuilds().map_err(|error| failed(&error)),
            (None, Some(session)) => session.pool().rebuilds().map_err(|error| failed(&error)),
            (None, None) => Ok(Vec::new()),
        }
    }

    /// Whether devices were rebuilt that no scrub has verified.
    pub fn needs_scrub(&self) -> bool {
        let (rebuilds, scan) = (self.rebuilds().unwrap_or_default(), self.scan().unwrap_or_default());
        needs_scrub(&rebuilds, scan.as_ref())
    }
}

/// The running rebuilds, or the last ones, if no resilver came later.
pub(super) fn print(
    console: &mut Console,
    view: &PoolView,
    scan: Option<&ScanStatus>,
    now: u64,
) -> Result<(), Failure> {
    let rebuilds = view.rebuilds()?;
    if !is_shown(&rebuilds, scan) {
        return Ok(());
    }
    let tree = view.tree(Naming::default());
    for (vdev, rebuild) in rebuilds.iter().filter(|(_, it)| it.state != RebuildState::None) {
        let of_vdev = tree.iter().find(|top| top.top == Some(*vdev));
        let name = of_vdev.map_or_else(|| vdev.to_string(), |top| top.name.clone());
        lines(rebuild, &name, now).iter().try_for_each(|line| console.line(line))?;
    }
    Ok(())
}

/// Whether the rebuilds are printed, and not the last resilver.
pub(super) fn is_shown(rebuilds: &[(u32, Rebuild)], scan: Option<&ScanStatus>) -> bool {
    let last = rebuilds.iter().map(|(_, it)| it.end_time).max().unwrap_or(0);
    let resilver = scan.map(|status| status.scan).filter(|scan| scan.func == ScanFunc::Resilver);
    match resilver {
        Some(scan) if scan.state == ScanState::Scanning => false,
        _ if rebuilds.iter().any(|(_, it)| it.is_active()) => true,
        Some(scan) => last > scan.end_time,
        None => last > 0,
    }
}

/// Whether a scrub is advised, because rebuilds compare no checksums.
fn needs_scrub(rebuilds: &[(u32, Rebuild)], scan: Option<&ScanStatus>) -> bool {
    let complete = rebuilds.iter().filter(|(_, it)| it.state == RebuildState::Complete);
    let last = complete.map(|(_, it)| it.end_time).max().unwrap_or(0);
    last > 0
        && scan.is_none_or(|ScanStatus { scan, .. }| {
            let is_older = scan.func == ScanFunc::Scrub && last > scan.end_time;
            scan.state == ScanState::None || scan.state == ScanState::Finished && is_older
        })
}

fn lines(rebuild: &Rebuild, name: &str, now: u64) -> Vec<String> {
    let date = |time| dates::show(time, Form::Scan);
    let rebuilt = nice_bytes(rebuild.rebuilt);
    match rebuild.state {
        RebuildState::None => Vec::new(),
        RebuildState::Complete => vec![format!(
            "  scan: resilvered ({name}) {rebuilt} in {} with {} errors on {}",
            duration(rebuild.scan_ms / 1000),
            rebuild.errors,
            date(rebuild.end_time)
        )],
        RebuildState::Canceled => {
            vec![format!("  scan: resilver ({name}) canceled on {}", date(rebuild.end_time))]
        }
        RebuildState::Active => {
            let total = rebuild.to_scan.max(rebuild.scanned);
            let speed = rebuild.scanned / now.saturating_sub(rebuild.start_time).max(1);
            let rate = if speed > 0 { format!(" at {}/s", nice_bytes(speed)) } else { String::new() };
            let percent = (100.0 * rebuild.scanned as f64 / (total as f64 + 1.0)).min(100.0);
            let left = match speed {
                FAST.. => format!("{} to go", duration((total - rebuild.scanned) / speed)),
                _ => "no estimated completion time".to_owned(),
            };
            let [scanned, issued, total] = [rebuild.scanned, rebuild.issued, total].map(nice_bytes);
            vec![
                format!("  scan: resilver ({name}) in progress since {}", date(rebuild.start_time)),
                format!("\t{scanned} / {total} scanned{rate}, {issued} / {total} issued{rate}"),
                format!("\t{rebuilt} resilvered, {percent:.2}% done, {left}"),
            ]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::scan::Scan;
    use format::{ObjectId, Txg};

    fn rebuild(state: RebuildState, end_time: u64) -> Rebuild {
        let (scanned, to_scan) = (1 << 30, 4 << 30);
        let numbers =
            Rebuild { start_time: 1_000_000, scanned, issued: scanned, to_scan, ..Rebuild::default() };
        Rebuild { state, end_time, rebuilt: scanned, scan_ms: 65_000, ..numbers }
    }

    #[test]
    fn a_rebuild_is_told_as_openzfs_tells_it() {
        let shown = lines(&rebuild(RebuildState::Active, 0), "mirror-0", 1_000_064);
        assert!(shown[0].starts_with("  scan: resilver (mirror-0) in progress since "), "{shown:?}");
        assert_eq!(shown[1], "\t1G / 4G scanned at 16M/s, 1G / 4G issued at 16M/s");
        assert_eq!(shown[2], "\t1G resilvered, 25.00% done, 00:03:12 to go");
        let slow = lines(&rebuild(RebuildState::Active, 0), "mirror-0", 2_000_000);
        assert_eq!(slow[2], "\t1G resilvered, 25.00% done, no estimated completion time");
        let done = lines(&rebuild(RebuildState::Complete, 1_000_070), "mirror-0", 0);
        assert!(
            done[0].starts_with("  scan: resilvered (mirror-0) 1G in 00:01:05 with 0 errors on "),
            "{done:?}"
        );
        let ended = lines(&rebuild(RebuildState::Canceled, 1_000_070), "draid1:2d:4c:0s-0", 0);
        assert!(ended[0].starts_with("  scan: resilver (draid1:2d:4c:0s-0) canceled on "), "{ended:?}");
    }

    #[test]
    fn status_shows_the_later_of_resilver_and_rebuild_and_an_earlier_scrub_is_not_enough() {
        let mut scan = Scan::begin(ObjectId(0), Txg(9), 100, 0);
        let status = |scan| ScanStatus { scan, running: false, paused_at: 0 };
        let at = |end| vec![(0, rebuild(RebuildState::Complete, end))];
        assert!(is_shown(&at(50), None) && !is_shown(&[], None) && needs_scrub(&at(50), None));
        assert!(!needs_scrub(&at(50), Some(&status(scan))), "a scrub is under way");
        (scan.state, scan.end_time) = (ScanState::Finished, 200);
        assert!(is_shown(&at(300), Some(&status(scan))) && needs_scrub(&at(300), Some(&status(scan))));
        assert!(is_shown(&at(100), Some(&status(scan))) && !needs_scrub(&at(100), Some(&status(scan))));
        scan.func = ScanFunc::Resilver;
        assert!(is_shown(&at(300), Some(&status(scan))) && !is_shown(&at(100), Some(&status(scan))));
    }
}
