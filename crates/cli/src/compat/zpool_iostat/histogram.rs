//! `zpool iostat -w` and `-r`: how long requests took, and how large they were.

use storage::{IoTimes, SIZE_BUCKETS, TIME_BUCKETS};

use super::columns::{Group, Look, PURPOSES, names, ruler, titles};
use crate::messages::Failure;
use crate::out::Console;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Histogram {
    /// `-w`.
    Latency,
    /// `-r`.
    Sizes,
}

const READ_WRITE: &[&str] = &["read", "write"];
const KINDS: &[&str] = &["ind", "agg"];

const LATENCY: [Group; 4] = [
    Group { title: "total_wait", names: READ_WRITE },
    Group { title: "disk_wait", names: READ_WRITE },
    Group { title: "syncq_wait", names: READ_WRITE },
    Group { title: "asyncq_wait", names: READ_WRITE },
];

const SIZES: [Group; 7] = [
    Group { title: "sync_read", names: KINDS },
    Group { title: "sync_write", names: KINDS },
    Group { title: "async_read", names: KINDS },
    Group { title: "async_write", names: KINDS },
    Group { title: "scrub", names: KINDS },
    Group { title: "trim", names: KINDS },
    Group { title: "rebuild", names: KINDS },
];

impl Histogram {
    fn label(self) -> &'static str {
        match self {
            Histogram::Latency => "latency",
            Histogram::Sizes => "req_size",
        }
    }

    fn titles(self) -> &'static [Group] {
        match self {
            Histogram::Latency => &LATENCY,
            Histogram::Sizes => &SIZES,
        }
    }

    fn names(self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.titles().iter().flat_map(|group| group.names.iter().copied()).collect();
        if self == Histogram::Latency {
            // What these wait for is only their queue.
            names.extend(["scrub", "trim", "rebuild"]);
        }
        names
    }

    /// The rows: what a bucket holds, and how often.
    fn rows(self, times: &IoTimes, look: Look) -> Vec<(String, Vec<u64>)> {
        match self {
            Histogram::Latency => (0..TIME_BUCKETS)
                .map(|i| {
                    let all = times.total.iter().chain(&times.disk).chain(&times.queue);
                    let counts = all.map(|times| times.buckets[i]).chain([0]).collect();
                    (look.time((2 << i) - 1), counts)
                })
                .collect(),
            Histogram::Sizes => (0..SIZE_BUCKETS)
                .map(|i| {
                    let of = |purpose: usize| [times.single[purpose][i], times.gathered[purpose][i]];
                    let counts = PURPOSES.iter().flat_map(|purpose| of(*purpose as usize));
                    (look.number(512 << i), counts.chain([0, 0]).collect())
                })
                .collect(),
        }
    }

    /// Prints the histogram of one pool or vdev.
    ///
    /// # Errors
    /// Standard output is gone.
    pub fn print(
        self,
        console: &mut Console,
        (name, name_width): (&str, usize),
        times: &IoTimes,
        look: Look,
    ) -> Result<(), Failure> {
        let rows = self.rows(times, look);
        let cells = |counts: &[u64]| counts.iter().map(|n| look.number(*n)).collect::<Vec<_>>();
        if look.tabs {
            return rows.iter().try_for_each(|(label, counts)| {
                console.line(&format!("{label}\t{}", cells(counts).join("\t")))
            });
        }
        let longest = rows.iter().flat_map(|(_, counts)| cells(counts)).map(|cell| cell.len()).max();
        let width = longest.unwrap_or(0).max(5);
        let labels = rows.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
        let name_width = labels.max(name_width);
        let columns = self.names();
        let line = ruler(name_width, width, columns.len());
        console.line("")?;
        console.line(&titles(name, name_width, width, self.titles().iter()))?;
        console.line(&names(self.label(), name_width, width, columns.iter()))?;
        console.line(&line)?;
        for (label, counts) in &rows {
            let cells = cells(counts).iter().map(|cell| format!("  {cell:>width$}")).collect::<String>();
            console.line(&format!("{label:name_width$}{cells}"))?;
        }
        console.line(&"-".repeat(line.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(kind: Histogram, times: &IoTimes, tabs: bool) -> String {
        let mut out = Vec::new();
        let mut console = Console::new(&mut out, Vec::new());
        kind.print(&mut console, ("tank", 10), times, Look { exact: false, tabs }).expect("memory");
        console.flush().expect("memory");
        drop(console);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn times_are_spread_over_powers_of_two() {
        let mut times = IoTimes::default();
        times.total[1].buckets[9] = 1500;
        times.queue[3].buckets[36] = 1;
        let text = printed(Histogram::Latency, &times, false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "");
        assert_eq!(lines[1], "tank         total_wait     disk_wait    syncq_wait    asyncq_wait");
        assert_eq!(
            lines[2],
            "latency      read  write   read  write   read  write   read  write  scrub   trim  rebuild"
        );
        assert!(lines[3].starts_with("----------  -----  -----"));
        assert!(lines[4].starts_with("1ns             0      0"));
        assert!(lines[13].starts_with("1us             0  1.46K"), "{}", lines[13]);
        assert!(lines[40].starts_with("137s ") && lines[40].contains("      1 "), "{}", lines[40]);
        assert_eq!(lines.len(), 4 + TIME_BUCKETS + 1);
    }

    #[test]
    fn sizes_are_told_by_what_they_were_for() {
        let mut times = IoTimes::default();
        times.gathered[3][4] = 9;
        let text = printed(Histogram::Sizes, &times, false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1],
            "tank          sync_read    sync_write    async_read    async_write      scrub         trim         rebuild  "
        );
        assert!(lines[4].starts_with("512  ") && lines[19].starts_with("16M  "));
        assert_eq!(
            lines[8],
            "8K              0      0      0      0      0      0      0      9      0      0      0      0      0      0"
        );
        let tabs = printed(Histogram::Sizes, &times, true);
        assert_eq!(tabs.lines().nth(4), Some("8K\t0\t0\t0\t0\t0\t0\t0\t9\t0\t0\t0\t0\t0\t0"));
    }
}
