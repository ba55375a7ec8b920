//! The columns of `zpool iostat`: headings and the cells under them.

use std::time::Duration;

use pool::props::number::{nice, nice_time};
use serde_json::{Map, Value};
use storage::{IoStats, IoTimes, Purpose};

use crate::compat::pool_values::Space;
use crate::json;

/// Counters of one leaf, or of several together.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    pub stats: IoStats,
    pub times: IoTimes,
}

impl Counted {
    pub fn plus(self, other: &Counted) -> Counted {
        Counted { stats: self.stats.plus(other.stats), times: self.times.plus(&other.times) }
    }

    pub fn since(self, earlier: &Counted) -> Counted {
        Counted { stats: self.stats.since(earlier.stats), times: self.times.since(&earlier.times) }
    }
}

/// How numbers are shown.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// `-p`: to the last digit.
    pub exact: bool,
    /// `-H`: tabs, no headings.
    pub tabs: bool,
}

impl Look {
    /// Of a column of the table.
    pub fn width(self) -> usize {
        if self.exact { 15 } else { 5 }
    }

    pub fn number(self, n: u64) -> String {
        if self.exact { n.to_string() } else { nice(n) }
    }

    pub fn time(self, nanos: u64) -> String {
        if self.exact { nanos.to_string() } else { nice_time(nanos) }
    }
}

/// Blanks before a column.
const GAP: usize = 2;

/// Neighbouring columns under one title.
pub struct Group {
    pub title: &'static str,
    pub names: &'static [&'static str],
}

impl Group {
    /// Characters that the group takes with columns of this width and the gap before each.
    pub fn room(&self, width: usize) -> usize {
        let names = self.names.iter().map(|name| name.len().max(width) + GAP);
        names.sum::<usize>().max(self.title.len() + GAP)
    }
}

const READ_WRITE: &[&str] = &["read", "write"];
const WAIT: &[&str] = &["wait"];
const QUEUE: &[&str] = &["pend", "activ"];

const fn group(title: &'static str, names: &'static [&'static str]) -> Group {
    Group { title, names }
}

const USUAL: [Group; 3] =
    [group("capacity", &["alloc", "free"]), group("operations", READ_WRITE), group("bandwidth", READ_WRITE)];

const LATENCY: [Group; 7] = [
    group("total_wait", READ_WRITE),
    group("disk_wait", READ_WRITE),
    group("syncq_wait", READ_WRITE),
    group("asyncq_wait", READ_WRITE),
    group("scrub", WAIT),
    group("trim", WAIT),
    group("rebuild", WAIT),
];

const QUEUES: [Group; 7] = [
    group("syncq_read", QUEUE),
    group("syncq_write", QUEUE),
    group("asyncq_read", QUEUE),
    group("asyncq_write", QUEUE),
    group("scrubq_read", QUEUE),
    group("trimq_write", QUEUE),
    group("rebuildq_write", QUEUE),
];

/// The groups that are left out on a narrow terminal, the least important first.
const RANK: [&str; 15] = [
    "rebuildq_write",
    "rebuild",
    "trimq_write",
    "trim",
    "scrubq_read",
    "scrub",
    "asyncq_write",
    "asyncq_read",
    "syncq_write",
    "syncq_read",
    "asyncq_wait",
    "syncq_wait",
    "disk_wait",
    "capacity",
    "total_wait",
];

/// Which columns are shown.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    /// `-l`.
    pub latency: bool,
    /// `-q`.
    pub queues: bool,
    /// Titles of the groups that are left out because the terminal is too narrow.
    pub left_out: Vec<&'static str>,
}

impl Columns {
    /// All groups for which the user asked.
    fn asked(&self) -> impl Iterator<Item = &'static Group> + use<> {
        let when = |wanted: bool, groups: &'static [Group]| if wanted { groups } else { &[] };
        USUAL.iter().chain(when(self.latency, &LATENCY)).chain(when(self.queues, &QUEUES))
    }

    fn groups(&self) -> impl Iterator<Item = &'static Group> {
        self.asked().filter(|group| !self.left_out.contains(&group.title))
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.groups().map(|group| group.names.len()).sum()
    }

    /// Leaves out groups until the table, with columns of this width, is no wider than `room`.
    #[must_use]
    pub fn within(mut self, room: usize, width: usize) -> Columns {
        for title in RANK {
            if self.groups().map(|group| group.room(width)).sum::<usize>() <= room {
                break;
            }
            if self.asked().any(|group| group.title == title) {
                self.left_out.push(title);
            }
        }
        self
    }

    /// The cells by group and name.
    pub fn object(&self, cells: &[String], as_int: bool) -> Map<String, Value> {
        let mut cells = cells.iter();
        let group = |group: &Group| {
            let named = group.names.iter().zip(cells.by_ref());
            let named = named.map(|(name, cell)| ((*name).to_owned(), json::scalar(cell, as_int)));
            (group.title.to_owned(), Value::Object(named.collect()))
        };
        self.groups().map(group).collect()
    }

    /// The two lines of headings, `name` above the names.
    pub fn headings(&self, name: &str, name_width: usize, width: usize) -> [String; 2] {
        [
            titles("", name_width, width, self.groups()),
            names(name, name_width, width, self.groups().flat_map(|group| group.names)),
        ]
    }

    /// The cells of what was counted in the time `since`; its space where it has its own.
    pub fn cells(&self, space: Option<Space>, counted: &Counted, since: Duration, look: Look) -> Vec<String> {
        // A rate of less than a second's time would say more than it knows.
        let seconds = since.as_secs_f64().max(1.0);
        let rate = |n: u64| look.number((n as f64 / seconds) as u64);
        let size = |pick: fn(Space) -> u64| space.map_or_else(none, |space| look.number(pick(space)));
        let Counted { stats, times } = counted;
        let mut cells = vec![
            size(|space| space.allocated),
            size(Space::free),
            rate(stats.reads),
            rate(stats.writes),
            rate(stats.read_bytes),
            rate(stats.write_bytes),
        ];
        if self.latency {
            let waits = times.total.iter().chain(&times.disk).chain(&times.queue);
            cells.extend(waits.map(|times| times.mean().map_or_else(none, |nanos| look.time(nanos))));
            // A mirror is not rebuilt past its blocks.
            cells.push(none());
        }
        if self.queues {
            let both = times.pending.iter().zip(&times.active).chain([(&0, &0)]);
            cells.extend(both.flat_map(|(pending, active)| [look.number(*pending), look.number(*active)]));
        }
        let titles = self.asked().flat_map(|group| group.names.iter().map(|_| group.title));
        let kept = cells.into_iter().zip(titles).filter(|(_, title)| !self.left_out.contains(title));
        kept.map(|(cell, _)| cell).collect()
    }
}

fn none() -> String {
    "-".to_owned()
}

/// Titles in the middle of the columns below them.
pub fn titles<'a>(
    first: &str,
    name_width: usize,
    width: usize,
    groups: impl Iterator<Item = &'a Group>,
) -> String {
    let mut line = format!("{first:name_width$}");
    for Group { title, names } in groups {
        let blanks = ((width + 2) * names.len() - 2).saturating_sub(title.len());
        line += &format!("  {}{title}{}", " ".repeat(blanks.div_ceil(2)), " ".repeat(blanks / 2));
    }
    line
}

/// The names of columns, each as wide as they are.
pub fn names<'a>(
    first: &str,
    name_width: usize,
    width: usize,
    names: impl Iterator<Item = &'a &'static str>,
) -> String {
    names.fold(format!("{first:name_width$}"), |line, name| format!("{line}  {name:>width$}"))
}

/// The line between headings and rows.
pub fn ruler(name_width: usize, width: usize, count: usize) -> String {
    format!("{}{}", "-".repeat(name_width), format!("  {}", "-".repeat(width)).repeat(count))
}

/// The purposes in the order of their columns; the last column is of rebuilds, which there are none of.
pub const PURPOSES: [Purpose; storage::PURPOSES] = [
    Purpose::SyncRead,
    Purpose::SyncWrite,
    Purpose::AsyncRead,
    Purpose::AsyncWrite,
    Purpose::Scrub,
    Purpose::Trim,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headings_of_iostat_are_those_recorded_from_openzfs() {
        let all = Columns { latency: true, queues: true, left_out: Vec::new() };
        let [titles, names] = all.headings("pool", 10, 5);
        assert_eq!(
            titles,
            "              capacity     operations     bandwidth    total_wait     disk_wait    syncq_wait    \
             asyncq_wait  scrub   trim  rebuild   syncq_read    syncq_write   asyncq_read  asyncq_write   \
             scrubq_read   trimq_write  rebuildq_write"
        );
        assert!(names.starts_with("pool        alloc   free   read  write   read  write   read  write"));
        assert!(names.ends_with("wait   wait   wait   pend  activ   pend  activ   pend  activ   pend  activ   pend  activ   pend  activ   pend  activ"));
        let few = Columns::default();
        assert_eq!(few.headings("pool", 10, 5)[0], "              capacity     operations     bandwidth ");
        assert_eq!(few.headings("pool", 10, 15)[0].len(), 10 + 6 * 17);
        assert_eq!(ruler(10, 5, few.count()), "----------  -----  -----  -----  -----  -----  -----");
    }

    #[test]
    fn there_is_a_cell_for_every_column() {
        let look = Look { exact: false, tabs: false };
        for (latency, queues) in [(false, false), (true, false), (false, true), (true, true)] {
            let columns = Columns { latency, queues, left_out: Vec::new() };
            let cells = columns.cells(None, &Counted::default(), Duration::from_secs(1), look);
            assert_eq!(cells.len(), columns.count());
            assert_eq!((cells[0].as_str(), cells[2].as_str()), ("-", "0"));
        }
    }

    #[test]
    fn rates_are_of_a_second_and_waits_are_means() {
        let mut counted = Counted::default();
        counted.stats.reads = 30;
        counted.times.total[0].nanos = 9_000_000;
        counted.times.total[0].buckets[20] = 3;
        counted.times.pending[3] = 7;
        let look = Look { exact: false, tabs: false };
        let columns = Columns { latency: true, queues: true, left_out: Vec::new() };
        let cells = columns.cells(None, &counted, Duration::from_secs(10), look);
        assert_eq!((cells[2].as_str(), cells[6].as_str(), cells[7].as_str()), ("3", "3ms", "-"));
        assert_eq!(cells[17 + 2 * 3], "7");
    }

    #[test]
    fn groups_are_left_out_by_rank_until_the_rest_fits() {
        let all = Columns { latency: true, queues: true, left_out: Vec::new() };
        let look = Look { exact: false, tabs: false };
        for (room, count) in [(500, 31), (221, 31), (220, 29), (70, 10), (42, 6), (28, 4), (0, 4)] {
            let columns = all.clone().within(room, look.width());
            assert_eq!(columns.count(), count, "{room}");
            let cells = columns.cells(None, &Counted::default(), Duration::from_secs(1), look);
            assert_eq!(cells.len(), count);
            let [titles, names] = columns.headings("pool", 10, look.width());
            assert!(titles.len().max(names.len()) <= 10 + room.max(28), "{room}");
        }
        let cells = all.cells(None, &Counted::default(), Duration::from_secs(1), look);
        let object = all.object(&cells, true);
        assert_eq!(
            (object["operations"]["read"].as_u64(), object["scrub"]["wait"].as_str()),
            (Some(0), Some("-"))
        );
        assert_eq!(object.len(), 17);
    }
}
