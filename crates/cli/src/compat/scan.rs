//! The `scan:` lines of `zpool status`.

use format::scan::{ScanFunc, ScanState};
use pool::props::number::{nice, nice_bytes};
use scan::ScanStatus;
use serde_json::{Map, Value};

use super::json_look::Look;
use crate::dates::{self, Form};

/// `00:00:01`, or `1 days 02:03:04`.
pub(super) fn duration(secs: u64) -> String {
    let clock = format!("{:02}:{:02}:{:02}", secs / 3600 % 24, secs / 60 % 60, secs % 60);
    match secs / 86_400 {
        0 => clock,
        days => format!("{days} days {clock}"),
    }
}

/// The text behind `  scan: `; later lines begin with a tab. `None` if there never was a scan.
pub fn lines(status: &ScanStatus, now: u64) -> Option<Vec<String>> {
    let scan = &status.scan;
    let date = |time| dates::show(time, Form::Scan);
    let (noun, done) = match scan.func {
        ScanFunc::None => return None,
        ScanFunc::Scrub | ScanFunc::ErrorScrub => ("scrub", "scrub repaired"),
        ScanFunc::Resilver => ("resilver", "resilvered"),
    };
    Some(match scan.state {
        ScanState::None => return None,
        ScanState::Finished => vec![format!(
            "{done} {} in {} with {} errors on {}",
            nice_bytes(scan.processed),
            duration(scan.end_time.saturating_sub(scan.start_time)),
            scan.errors,
            date(scan.end_time)
        )],
        ScanState::Canceled => vec![format!("{noun} canceled on {}", date(scan.end_time))],
        ScanState::Scanning | ScanState::ErrorScrubbing => {
            let mut lines = Vec::new();
            if scan.is_paused() {
                let since = if status.paused_at == 0 { now } else { status.paused_at };
                lines.push(format!("{noun} paused since {}", date(since)));
                lines.push(format!("\t{noun} started on {}", date(scan.start_time)));
            } else {
                lines.push(format!("{noun} in progress since {}", date(scan.start_time)));
            }
            lines.extend(progress(status, now));
            lines
        }
    })
}

/// The `scan_stats` of the JSON. `None` if there never was a scan.
pub(super) fn stats(status: &ScanStatus, look: Look) -> Option<Map<String, Value>> {
    let scan = &status.scan;
    let function = match scan.func {
        ScanFunc::None => return None,
        ScanFunc::Scrub => "SCRUB",
        ScanFunc::ErrorScrub => "ERRORSCRUB",
        ScanFunc::Resilver => "RESILVER",
    };
    let state = match scan.state {
        ScanState::None => return None,
        ScanState::Scanning => "SCANNING",
        ScanState::Finished => "FINISHED",
        ScanState::Canceled => "CANCELED",
        ScanState::ErrorScrubbing => "ERRORSCRUBBING",
    };
    let rows = [
        ("function", Value::from(function)),
        ("state", Value::from(state)),
        ("start_time", look.date(scan.start_time)),
        ("end_time", look.date(scan.end_time)),
        // Blocks written during the scan are examined, too.
        ("to_examine", look.bytes(scan.to_examine.max(scan.examined))),
        ("examined", look.bytes(scan.examined)),
        ("skipped", look.bytes(scan.skipped)),
        ("processed", look.bytes(scan.processed)),
        ("errors", look.number(scan.errors)),
        // Blocks are read when they are found, in one pass.
        ("bytes_per_scan", look.bytes(0)),
        ("pass_start", look.number(scan.start_time)),
        ("scrub_pause", look.date(status.paused_at)),
        ("scrub_spent_paused", look.number(0)),
        ("issued_bytes_per_scan", look.bytes(scan.examined)),
        ("issued", look.bytes(scan.examined)),
    ];
    Some(rows.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

fn progress(status: &ScanStatus, now: u64) -> [String; 2] {
    let scan = &status.scan;
    let (done, total) = (scan.examined, scan.to_examine.max(scan.examined));
    let speed = (done / now.saturating_sub(scan.start_time).max(1)).max(1);
    // Blocks are read when they are found, so every scanned byte was also issued.
    let rate = match status.running && !scan.is_paused() {
        true => format!(" at {}/s", nice(speed)),
        false => String::new(),
    };
    let (part, all) = (nice_bytes(done), nice_bytes(total));
    let percent = if total == 0 { 100.0 } else { 100.0 * done as f64 / total as f64 };
    let repaired = match scan.func {
        ScanFunc::Resilver => "resilvered",
        _ => "repaired",
    };
    let mut second = format!("\t{} {repaired}, {percent:.2}% done", nice_bytes(scan.processed));
    if scan.is_paused() {
        // It is not known when it continues.
    } else if status.running {
        second += &format!(", {} to go", duration((total - done) / speed));
    } else {
        second += ", no estimated completion time";
    }
    [format!("\t{part} / {all} scanned{rate}, {part} / {all} issued{rate}"), second]
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::scan::Scan;
    use format::{ObjectId, Txg};

    fn status(state: ScanState) -> ScanStatus {
        let mut scan = Scan::begin(ObjectId(7), Txg(9), 1_000_000, 4 << 30);
        (scan.state, scan.examined, scan.processed) = (state, 1 << 30, 2048);
        scan.end_time = 1_000_000 + 86_400 + 2 * 3600 + 3 * 60 + 4;
        ScanStatus { scan, running: true, paused_at: 0 }
    }

    #[test]
    fn a_finished_scrub_tells_how_long_it_took() {
        let lines = lines(&status(ScanState::Finished), 0).expect("a scan");
        assert_eq!(lines.len(), 1);
        let said = "scrub repaired 2K in 1 days 02:03:04 with 0 errors on ";
        assert!(lines[0].starts_with(said) || lines[0].starts_with("scrub repaired 2.00K"), "{lines:?}");
    }

    #[test]
    fn a_running_scrub_shows_its_progress() {
        let at = |status: &ScanStatus| lines(status, 1_000_000 + 64).expect("a scan");
        let mut status = status(ScanState::Scanning);
        let shown = at(&status);
        assert!(shown[0].starts_with("scrub in progress since "));
        assert_eq!(shown[1], "\t1G / 4G scanned at 16M/s, 1G / 4G issued at 16M/s");
        assert_eq!(shown[2], "\t2K repaired, 25.00% done, 00:03:12 to go");
        status.scan.set_paused(true);
        let shown = at(&status);
        assert!(shown[0].starts_with("scrub paused since ") && shown[1].starts_with("\tscrub started on "));
        assert_eq!(shown[3], "\t2K repaired, 25.00% done");
    }

    #[test]
    fn json_shows_a_scrub_in_numbers() {
        let told = stats(&status(ScanState::Finished), Look { raw: true, as_int: true }).expect("a scan");
        assert_eq!((&told["function"], &told["state"]), (&"SCRUB".into(), &"FINISHED".into()));
        assert_eq!((&told["start_time"], &told["examined"]), (&1_000_000.into(), &(1u64 << 30).into()));
        let told = stats(&status(ScanState::Scanning), Look { raw: false, as_int: false }).expect("a scan");
        assert_eq!((&told["to_examine"], &told["scrub_pause"]), (&"4G".into(), &"-".into()));
        // As in OpenZFS, the begin of the pass is a number for people, too, and dates have their time zone.
        assert_eq!(told["pass_start"], "1000000");
        assert_eq!(told["start_time"], dates::show(1_000_000, Form::Stamp));
    }

    #[test]
    fn a_pool_without_a_scan_prints_no_scan_line() {
        let mut status = status(ScanState::None);
        assert_eq!(lines(&status, 0), None);
        assert_eq!(stats(&status, Look { raw: true, as_int: true }), None);
        status.scan.func = ScanFunc::None;
        assert_eq!(lines(&status, 0), None);
    }
}
