//! `zpool iostat -w` and `-r`: how long requests took, and how large they were.

use serde_json::{Map, Value};
use storage::{IoTimes, SIZE_BUCKETS, TIME_BUCKETS};

use super::columns::{Group, Look, PURPOSES, names, ruler, titles};
use crate::json;
use crate::messages::Failure;
use crate::out::Console;

/// The subject of a histogram, and the room for printing it.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    pub name: &'a str,
    /// Width of the column of names.
    pub name_width: usize,
    /// Columns of the terminal; `None` if the width is unlimited.
    pub room: Option<usize>,
}

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

/// A group without a title is one column of its own: its operations wait only in their queue.
const LATENCY: [Group; 7] = [
    Group { title: "total_wait", names: READ_WRITE },
    Group { title: "disk_wait", names: READ_WRITE },
    Group { title: "syncq_wait", names: READ_WRITE },
    Group { title: "asyncq_wait", names: READ_WRITE },
    Group { title: "", names: &["scrub"] },
    Group { title: "", names: &["trim"] },
    Group { title: "", names: &["rebuild"] },
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

    fn groups(self) -> &'static [Group] {
        match self {
            Histogram::Latency => &LATENCY,
            Histogram::Sizes => &SIZES,
        }
    }

    /// The number of groups that fit into `room` with columns of this width. The last groups matter least.
    fn fitting(self, room: Option<usize>, width: usize) -> usize {
        let mut left = room.unwrap_or(usize::MAX);
        let fits = |group: &&Group| {
            let taken = group.room(width);
            let has_room = taken <= left;
            left = left.saturating_sub(taken);
            has_room
        };
        self.groups().iter().take_while(fits).count().max(1)
    }

    /// The counts by bucket, group and name.
    pub fn object(self, times: &IoTimes, look: Look, as_int: bool) -> Map<String, Value> {
        let row = |(label, counts): (String, Vec<u64>)| {
            let mut counts = counts.iter();
            let mut row = Map::new();
            for group in self.groups() {
                let mut named = Map::new();
                for (name, count) in group.names.iter().zip(counts.by_ref()) {
                    named.insert((*name).to_owned(), json::scalar(&look.number(*count), as_int));
                }
                match group.title {
                    "" => row.append(&mut named),
                    title => drop(row.insert(title.to_owned(), Value::Object(named))),
                }
            }
            (label, Value::Object(row))
        };
        let rows = self.rows(times, look).into_iter().map(row).collect();
        Map::from_iter([(self.label().to_owned(), Value::Object(rows))])
    }

    /// The rows: the range of a bucket, and its count.
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

    /// Prints the histogram of one pool or vdev, with as many columns as fit into `room`. Returns the names of the others.
    ///
    /// # Errors
    /// Standard output is gone.
    pub fn print(
        self,
        console: &mut Console,
        frame: Frame<'_>,
        times: &IoTimes,
        look: Look,
    ) -> Result<Vec<&'static str>, Failure> {
        let Frame { name, name_width, room } = frame;
        let rows = self.rows(times, look);
        let cells = |counts: &[u64]| counts.iter().map(|n| look.number(*n)).collect::<Vec<_>>();
        if look.tabs {
            rows.iter().try_for_each(|(label, counts)| {
                console.line(&format!("{label}\t{}", cells(counts).join("\t")))
            })?;
            return Ok(Vec::new());
        }
        let longest = rows.iter().flat_map(|(_, counts)| cells(counts)).map(|cell| cell.len()).max();
        let width = longest.unwrap_or(0).max(5);
        let labels = rows.iter().map(|(label, _)| label.len()).max().unwrap_or(0);
        let name_width = labels.max(name_width);
        let fitting = self.fitting(room.map(|room| room.saturating_sub(name_width)), width);
        let (shown, left_out) = self.groups().split_at(fitting);
        let columns: Vec<&'static str> = shown.iter().flat_map(|group| group.names.iter().copied()).collect();
        let line = ruler(name_width, width, columns.len());
        console.line("")?;
        let titled = shown.iter().filter(|group| !group.title.is_empty());
        console.line(&titles(name, name_width, width, titled))?;
        console.line(&names(self.label(), name_width, width, columns.iter()))?;
        console.line(&line)?;
        for (label, counts) in &rows {
            let cells = cells(&counts[..columns.len()])
                .iter()
                .map(|cell| format!("  {cell:>width$}"))
                .collect::<String>();
            console.line(&format!("{label:name_width$}{cells}"))?;
        }
        console.line(&"-".repeat(line.len()))?;
        let name = |group: &Group| if group.title.is_empty() { group.names[0] } else { group.title };
        Ok(left_out.iter().map(name).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(kind: Histogram, times: &IoTimes, tabs: bool) -> String {
        printed_within(kind, (times, None), tabs)
    }

    fn printed_within(kind: Histogram, (times, room): (&IoTimes, Option<usize>), tabs: bool) -> String {
        let mut out = Vec::new();
        let mut console = Console::new(&mut out, Vec::new());
        kind.print(
            &mut console,
            Frame { name: "tank", name_width: 10, room },
            times,
            Look { exact: false, tabs },
        )
        .expect("memory");
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

    #[test]
    fn columns_that_do_not_fit_are_left_out() {
        let times = IoTimes::default();
        for (kind, whole, left_out) in
            [(Histogram::Sizes, 108, vec!["trim", "rebuild"]), (Histogram::Latency, 89, vec!["rebuild"])]
        {
            let widest = |room| {
                let text = printed_within(kind, (&times, room), false);
                text.lines().map(|line| line.trim_end().len()).max()
            };
            assert_eq!(
                (widest(None), widest(Some(80)), widest(Some(whole))),
                (Some(whole), Some(80), Some(whole))
            );
            let mut console = Console::new(Vec::new(), Vec::new());
            let look = Look { exact: false, tabs: false };
            let told = kind.print(
                &mut console,
                Frame { name: "tank", name_width: 10, room: Some(80) },
                &times,
                look,
            );
            assert_eq!(told.expect("memory"), left_out);
        }
        let mut times = IoTimes::default();
        times.single[0][1] = 3;
        let object = Histogram::Sizes.object(&times, Look { exact: true, tabs: false }, true);
        assert_eq!(object["req_size"]["1024"]["sync_read"]["ind"].as_u64(), Some(3));
        let object = Histogram::Latency.object(&times, Look { exact: true, tabs: false }, true);
        assert_eq!(object["latency"]["1"]["rebuild"].as_u64(), Some(0));
    }
}
