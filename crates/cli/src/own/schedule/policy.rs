//! How many snapshots of which age are kept: `24h,30d,12m`.
//!
//! From:   text, and the times at which snapshots were made.
//! To:     which of them are kept. Nothing is read or changed here.

use std::collections::BTreeSet;
use std::str::FromStr;

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Most snapshots that a policy keeps for one period.
const COUNT_MAX: usize = 100_000;
/// Seconds in an hour.
const HOUR: i64 = 3600;

/// A part of the calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Period {
    Hour,
    Day,
    Week,
    Month,
    Year,
}

impl Period {
    fn of_letter(letter: char) -> Option<Period> {
        Some(match letter {
            'h' => Period::Hour,
            'd' => Period::Day,
            'w' => Period::Week,
            'm' => Period::Month,
            'y' => Period::Year,
            _ => return None,
        })
    }

    /// The hour, day, … of the calendar in which a time lies. Days are those of `zone`. Hours are counted from 1970,
    /// because the end of summer time repeats one.
    fn of(self, seconds: i64, zone: &TimeZone) -> String {
        let pattern = match self {
            Period::Hour => return (seconds.div_euclid(HOUR)).to_string(),
            Period::Day => "%Y-%m-%d",
            Period::Week => "%G-W%V",
            Period::Month => "%Y-%m",
            Period::Year => "%Y",
        };
        let Ok(time) = Timestamp::from_second(seconds) else { return seconds.to_string() };
        time.to_zoned(zone.clone()).strftime(pattern).to_string()
    }
}

/// How many snapshots are kept for which period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The shortest period first.
    keep: Vec<(Period, usize)>,
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Policy, String> {
        let bad = |word: &str| {
            format!("'{word}' is not a number of snapshots and a period: h, d, w, m or y, as in 24h,30d,12m")
        };
        let mut keep: Vec<(Period, usize)> = Vec::new();
        for word in text.split(',') {
            let word = word.trim();
            let letter = word.chars().last().ok_or_else(|| bad(word))?;
            let period = Period::of_letter(letter).ok_or_else(|| bad(word))?;
            let count = word[..word.len() - letter.len_utf8()].parse::<usize>().map_err(|_| bad(word))?;
            if !(1..=COUNT_MAX).contains(&count) {
                return Err(format!("'{word}': the number must be between 1 and {COUNT_MAX}"));
            }
            if keep.iter().any(|(known, _)| *known == period) {
                return Err(format!("'{letter}' is there twice"));
            }
            keep.push((period, count));
        }
        keep.sort_unstable();
        Ok(Policy { keep })
    }
}

impl Policy {
    /// Whether a snapshot is due at `now`: the last one was made in another part of the shortest period.
    pub fn is_due(&self, last: Option<i64>, now: i64, zone: &TimeZone) -> bool {
        let (shortest, _) = self.keep[0];
        last.is_none_or(|last| shortest.of(last, zone) != shortest.of(now, zone))
    }

    /// Which snapshots are kept, by their index; `times` are seconds since 1970 in any order. For each period these are the
    /// newest of each of the last parts that have a snapshot. The newest snapshot of all is always among them. One that is dated
    /// later than `now`, because the clock was set back, is kept and does not count: it must not take the place of a present one.
    pub fn kept(&self, times: &[i64], now: i64, zone: &TimeZone) -> BTreeSet<usize> {
        let (mut newest_first, later): (Vec<usize>, Vec<usize>) =
            (0..times.len()).partition(|index| times[*index] <= now);
        newest_first.sort_by_key(|index| std::cmp::Reverse((times[*index], *index)));
        let mut kept = BTreeSet::from_iter(later);
        for (period, count) in &self.keep {
            let mut last = None;
            let mut left = *count;
            for index in &newest_first {
                let part = period.of(times[*index], zone);
                if last.as_ref() == Some(&part) {
                    continue;
                }
                if left == 0 {
                    break;
                }
                left -= 1;
                last = Some(part);
                kept.insert(*index);
            }
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * HOUR;
    /// Later than all snapshots of most tests.
    const NOW: i64 = 1000 * DAY;

    fn policy(text: &str) -> Policy {
        text.parse().expect(text)
    }

    #[test]
    fn a_policy_is_numbers_with_the_letters_of_periods() {
        assert_eq!(policy("12m, 24h,30d").keep, [(Period::Hour, 24), (Period::Day, 30), (Period::Month, 12)]);
        for bad in ["", "h", "24", "24x", "0h", "-1h", "1h,2h", "24h,,1d", "100001d", "1.5h", "24é"] {
            assert!(bad.parse::<Policy>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_snapshot_is_due_once_in_the_shortest_period() {
        let keep = policy("2d,1h");
        assert!(keep.is_due(None, 0, &TimeZone::UTC));
        assert!(!keep.is_due(Some(10 * HOUR), 11 * HOUR - 1, &TimeZone::UTC));
        assert!(keep.is_due(Some(11 * HOUR - 1), 11 * HOUR, &TimeZone::UTC));
        assert!(!policy("2d").is_due(Some(11 * HOUR), 12 * HOUR, &TimeZone::UTC));
        // A clock that went back: the snapshot of the future is in another hour.
        assert!(keep.is_due(Some(12 * HOUR), 11 * HOUR, &TimeZone::UTC));
    }

    #[test]
    fn the_newest_of_each_part_is_kept() {
        // One each hour for three days.
        let times: Vec<i64> = (0..72).map(|hour| hour * HOUR).collect();
        let kept = policy("3h,2d").kept(&times, NOW, &TimeZone::UTC);
        assert_eq!(kept, BTreeSet::from([47, 69, 70, 71]));
        // The order of the snapshots does not matter.
        let backward: Vec<i64> = times.iter().rev().copied().collect();
        assert_eq!(policy("3h,2d").kept(&backward, NOW, &TimeZone::UTC), BTreeSet::from([0, 1, 2, 24]));
    }

    #[test]
    fn days_without_a_snapshot_do_not_count() {
        let times = [0, 10 * DAY, 400 * DAY, 401 * DAY];
        assert_eq!(policy("3d").kept(&times, NOW, &TimeZone::UTC), BTreeSet::from([1, 2, 3]));
        assert_eq!(policy("5y").kept(&times, NOW, &TimeZone::UTC), BTreeSet::from([1, 3]));
        assert_eq!(policy("5y").kept(&[], NOW, &TimeZone::UTC), BTreeSet::new());
    }

    #[test]
    fn the_newest_of_all_is_always_kept() {
        for text in ["1h", "1d", "1w", "1m", "1y", "1h,1y"] {
            assert!(policy(text).kept(&[5, 7 * DAY, 6 * DAY], NOW, &TimeZone::UTC).contains(&1), "{text}");
        }
    }

    #[test]
    fn snapshots_dated_later_than_now_stay_and_take_no_place() {
        // The clock was a day ahead for two hours, and is right again.
        let times = [DAY, 2 * DAY, 2 * DAY + HOUR, DAY + HOUR, DAY + 2 * HOUR];
        let now = DAY + 2 * HOUR;
        assert_eq!(policy("2h").kept(&times, now, &TimeZone::UTC), BTreeSet::from([1, 2, 3, 4]));
        assert_eq!(policy("1d").kept(&times, now, &TimeZone::UTC), BTreeSet::from([1, 2, 4]));
        // When the time has come, they count like all others.
        assert_eq!(policy("2h").kept(&times, 3 * DAY, &TimeZone::UTC), BTreeSet::from([1, 2]));
    }
}
