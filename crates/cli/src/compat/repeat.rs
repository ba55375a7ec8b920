//! `INTERVAL [COUNT]` behind the operands of `zpool list` and `zpool status`, and the time stamps of `-T`.

use std::time::{Duration, Instant};

use crate::around::Surroundings;
use crate::dates::{self, Form};
use crate::messages::Failure;
use crate::out::Console;

/// Interval of the checks whether the reader still exists.
const GLANCE: Duration = Duration::from_millis(50);

/// How often something is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Repeat {
    interval: Option<Duration>,
    count: Option<u64>,
    stamp: Option<Stamp>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stamp {
    Seconds,
    Date,
}

impl Repeat {
    /// Takes the numbers off the end of `operands`; `stamp` is the argument of `-T`.
    ///
    /// # Errors
    /// An interval of zero, or a stamp that is neither `d` nor `u`.
    pub fn take(operands: &mut Vec<String>, stamp: Option<&str>) -> Result<Repeat, Failure> {
        let stamp = match stamp {
            None => None,
            Some("u") => Some(Stamp::Seconds),
            Some("d") => Some(Stamp::Date),
            Some(other) => return Err(Failure::usage(format!("invalid timestamp option '{other}'"))),
        };
        let number = |word: &String| word.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0);
        let mut numbers = Vec::new();
        while numbers.len() < 2 {
            let Some(n) =
                operands.last().filter(|w| w.starts_with(|c: char| c.is_ascii_digit())).and_then(number)
            else {
                break;
            };
            operands.pop();
            numbers.insert(0, n);
        }
        if numbers.first() == Some(&0.0) {
            return Err(Failure::usage("interval cannot be zero"));
        }
        if numbers.get(1) == Some(&0.0) {
            return Err(Failure::usage("count cannot be zero"));
        }
        let day = 86_400.0 * 365.0;
        Ok(Repeat {
            interval: numbers.first().map(|n| Duration::from_secs_f64(n.min(day))),
            count: numbers.get(1).map(|n| *n as u64),
            stamp,
        })
    }

    /// The time from one round to the next.
    pub const fn interval(self) -> Option<Duration> {
        self.interval
    }

    /// How many rounds there are.
    pub const fn count(self) -> Option<u64> {
        self.count
    }

    /// Says when a round is, if that was asked for.
    ///
    /// # Errors
    /// Standard output is gone.
    pub fn stamp(self, console: &mut Console) -> Result<(), Failure> {
        let Some(stamp) = self.stamp else { return Ok(()) };
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.map_or(0, |since| since.as_secs());
        console.line(&match stamp {
            Stamp::Seconds => now.to_string(),
            Stamp::Date => dates::show(now, Form::Stamp),
        })
    }

    /// As [`Repeat::run`], for figures that count since the time before: with `skip` the first is taken without
    /// being shown (`quiet`), and does not count.
    ///
    /// # Errors
    /// The first failure of `show`.
    pub fn run_skipping(
        self,
        around: &Surroundings,
        console: &mut Console,
        skip: bool,
        mut show: impl FnMut(&mut Console, bool) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if skip {
            show(console, true)?;
            // Without an interval there is nothing but the first.
            match self.interval {
                Some(interval) if pause(interval, around) => {}
                _ => return Ok(()),
            }
        }
        self.run(around, console, |console, _| show(console, false))
    }

    /// Calls `show` with the number of the round, as often as asked; in a server, while its client is there and the
    /// server is not to end.
    ///
    /// # Errors
    /// The first failure of `show`.
    pub fn run(
        self,
        around: &Surroundings,
        console: &mut Console,
        mut show: impl FnMut(&mut Console, u64) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        for round in 0.. {
            self.stamp(console)?;
            show(console, round)?;
            console.flush()?;
            match self.interval {
                Some(interval)
                    if self.count.is_none_or(|count| round + 1 < count) && pause(interval, around) => {}
                _ => break,
            }
        }
        Ok(())
    }
}

/// Waits; returns whether to continue.
fn pause(interval: Duration, around: &Surroundings) -> bool {
    let Some(served) = &around.served else {
        std::thread::sleep(interval);
        return true;
    };
    let until = Instant::now() + interval;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if served.stops() {
            return false;
        }
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(GLANCE));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(line: &str) -> Result<(Vec<String>, Repeat), Failure> {
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let repeat = Repeat::take(&mut words, None)?;
        Ok((words, repeat))
    }

    #[test]
    fn numbers_at_the_end_are_interval_and_count() {
        let (words, repeat) = take("tank 1 2").expect("good");
        assert_eq!(
            (words, repeat.interval, repeat.count),
            (vec!["tank".into()], Some(Duration::from_secs(1)), Some(2))
        );
        let (words, repeat) = take("tank 0.5").expect("good");
        assert_eq!((words.len(), repeat.interval, repeat.count), (1, Some(Duration::from_millis(500)), None));
        assert_eq!(take("tank").expect("good").1.interval, None);
        assert!(take("tank 0").is_err() && take("tank 1 0").is_err());
    }
}
