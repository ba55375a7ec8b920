//! The rule that chooses, the same for predictions from data, for published tables and for what `cenote bench` measured.
//!
//! A candidate has a size (a part of what the data takes without compression) and, for each workload, the time that it takes and the processor
//! time of its codec. The *time* of a candidate:
//!
//! ```text
//! time = max over workloads of (seconds + busy · codec seconds) / (the same of the base)
//! ```
//!
//! Seconds that a candidate takes longer than the base count only as far as they are more than its measurement's noise.
//! `busy` is the part of the cores that other work wants (0 to 1): what a codec takes from others counts as time. The
//! base is `off`, or the fastest where `off` is not among the candidates. The workload that suffers most counts. Writing once and
//! reading once is one workload.
//!
//! | goal | chosen |
//! |---|---|
//! | balanced | the least size · time |
//! | speed | the least time; of those within 5 % of it the smallest |
//! | archive | the smallest; of those within 2 % of it the one with the least time |
//! | space | the smallest |
//!
//! If no candidate is smaller than 97 % of that, balanced and speed take `lz4` if it costs at most a tenth of the time,
//! else the base. lz4 is cheap because it stops early on data that does not compress. If lz4 gives the same size in the
//! same time as the chosen candidate, for example for nothing but zeros, lz4 is taken: the difference is chance, and
//! lz4 suits data that may be added later.

use serde::{Deserialize, Serialize};

use crate::saving::WORTHWHILE_SIZE;

/// Times, and sizes, that count as equal.
const SPEED_TOLERANCE: f64 = 1.05;
const ARCHIVE_TOLERANCE: f64 = 1.02;
/// Times up to this one count as 0.
pub(crate) const FREE_TIME: f64 = 1.02;
/// Sizes that are the same, and by how much of the base's time times of the same differ.
const SAME_SIZE: f64 = 1.001;
const SAME_TIME: f64 = 0.02;
/// The price that lz4 may have where nothing compresses.
pub(crate) const LZ4_TOLERANCE: f64 = 1.10;

/// The use of the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// Space against time.
    #[default]
    Balanced,
    /// Time first.
    Speed,
    /// Space first, at any price.
    Space,
    /// Written once, hardly read, kept long: space first, but no waste of time.
    Archive,
}

impl Goal {
    /// All of them.
    pub const ALL: [Goal; 4] = [Goal::Balanced, Goal::Speed, Goal::Archive, Goal::Space];

    /// Its name.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Goal::Balanced => "balanced",
            Goal::Speed => "speed",
            Goal::Space => "space",
            Goal::Archive => "archive",
        }
    }
}

/// Time for one kind of work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// From begin to end.
    pub seconds: f64,
    /// Processor time of the codec, over the cores of the machine.
    pub codec_seconds: f64,
    /// Seconds by which a measured time may be too long; 0 for a computed time.
    pub noise_seconds: f64,
}

/// Something to choose.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Value of the property `compression`.
    pub compression: String,
    /// Bytes of a record, where that is a question.
    pub recordsize: Option<u64>,
    /// Bytes on all disks for each that the data takes there without compression.
    pub size: f64,
    /// The same kinds of work for all candidates.
    pub workloads: Vec<Workload>,
}

/// The choice, and its reasons.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// Which candidate.
    pub index: usize,
    /// The candidate that times are relative to.
    pub base: usize,
    /// Its time relative to the base.
    pub time: f64,
    /// Why.
    pub reason: Reason,
}

/// Why something was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The data does not compress, and lz4 stops trying early.
    GivesUpEarly,
    /// Nothing compresses, so the base.
    OnlyCostsTime,
    /// The base, because every smaller candidate takes too long.
    Base,
    /// Smaller, and no slower.
    Free,
    /// Smaller, and not much slower.
    Trade,
    /// Nothing is faster.
    Fastest,
    /// As fast as the fastest, and smaller.
    AsFast,
    /// Nothing is smaller.
    Smallest,
    /// Hardly larger than the smallest, and faster.
    NearlySmallest,
}

impl Reason {
    /// In words, where time is that of writing once and reading once; `in_part`: one of the two is slower.
    pub(crate) fn of_a_cycle(self, in_part: bool) -> String {
        match self {
            Reason::Free if in_part => format!("{self} (writing and reading together)"),
            Reason::Free => "it saves space and costs no time".to_owned(),
            _ => self.to_string(),
        }
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Reason::GivesUpEarly => {
                "this data hardly compresses; lz4 notices that early, so it costs almost no time"
            }
            Reason::OnlyCostsTime => "this data hardly compresses, so any other setting only costs time",
            Reason::Base => "what is smaller costs more time than it saves space",
            Reason::Free => "it saves space and takes no longer",
            Reason::Trade => "it is the best balance of space and time",
            Reason::Fastest => "it is the fastest",
            Reason::AsFast => "it is the smallest of the fastest (within 5 %)",
            Reason::Smallest => "it is the smallest",
            Reason::NearlySmallest => "it is within 2 % of the smallest, and faster",
        })
    }
}

/// Chooses for `goal` where other work wants the part `busy` of the cores; `None` without candidates.
#[must_use]
pub fn choose(candidates: &[Candidate], goal: Goal, busy: f64) -> Option<Choice> {
    choose_among(candidates, &vec![true; candidates.len()], goal, busy)
}

/// As [`choose`], but takes only a candidate that `allowed` holds `true` for. The base may be one that is not allowed.
pub(crate) fn choose_among(
    candidates: &[Candidate],
    allowed: &[bool],
    goal: Goal,
    busy: f64,
) -> Option<Choice> {
    let base = base(candidates, busy)?;
    let times: Vec<f64> = (0..candidates.len()).map(|index| time(candidates, index, base, busy)).collect();
    let size = |index: &usize| candidates[*index].size;
    let all = (0..candidates.len()).filter(|index| allowed[*index]);
    let least =
        |among: &mut dyn Iterator<Item = usize>, of: &dyn Fn(&usize) -> f64, then: &dyn Fn(&usize) -> f64| {
            among.min_by(|a, b| of(a).total_cmp(&of(b)).then(then(a).total_cmp(&then(b))))
        };
    let time_of = |index: &usize| times[*index];
    let smallest = least(&mut all.clone(), &size, &time_of)?;
    let said = |index: usize, reason| Some(Choice { index, base, time: times[index], reason });
    if matches!(goal, Goal::Balanced | Goal::Speed) && size(&smallest) > WORTHWHILE_SIZE {
        let lz4 =
            least(&mut all.clone().filter(|index| candidates[*index].compression == "lz4"), &time_of, &size);
        return match lz4.filter(|lz4| times[*lz4] <= LZ4_TOLERANCE) {
            Some(lz4) => said(lz4, Reason::GivesUpEarly),
            None if allowed[base] => said(base, Reason::OnlyCostsTime),
            None => said(least(&mut all.clone(), &time_of, &size)?, Reason::Fastest),
        };
    }
    let product = |index: &usize| size(index) * times[*index];
    let (best, reason) = match goal {
        Goal::Balanced => {
            let best = least(&mut all.clone(), &product, &time_of)?;
            let reason = match best == base {
                true => Reason::Base,
                false if times[best] <= FREE_TIME => Reason::Free,
                false => Reason::Trade,
            };
            (best, reason)
        }
        Goal::Speed => {
            let fastest = least(&mut all.clone(), &time_of, &size)?;
            let close = |index: &usize| times[*index] <= times[fastest] * SPEED_TOLERANCE;
            let best = least(&mut all.clone().filter(close), &size, &time_of)?;
            (best, if best == fastest { Reason::Fastest } else { Reason::AsFast })
        }
        Goal::Archive => {
            let close = |index: &usize| size(index) <= size(&smallest) * ARCHIVE_TOLERANCE;
            let best = least(&mut all.clone().filter(close), &time_of, &size)?;
            (best, if best == smallest { Reason::Smallest } else { Reason::NearlySmallest })
        }
        Goal::Space => (smallest, Reason::Smallest),
    };
    let is_same_lz4 = |index: &usize| {
        let (one, chosen) = (&candidates[*index], &candidates[best]);
        one.compression == "lz4"
            && one.recordsize == chosen.recordsize
            && one.size <= chosen.size * SAME_SIZE
            && times[*index] <= times[best] + SAME_TIME
    };
    said(all.clone().find(is_same_lz4).filter(|_| best != base).unwrap_or(best), reason)
}

/// Which candidates are on the front: no other one is both smaller and faster.
#[must_use]
pub fn front(candidates: &[Candidate], busy: f64) -> Vec<bool> {
    let Some(base) = base(candidates, busy) else { return Vec::new() };
    let at: Vec<(f64, f64)> = (0..candidates.len())
        .map(|index| (candidates[index].size, time(candidates, index, base, busy)))
        .collect();
    let beaten = |one: &(f64, f64)| {
        at.iter().any(|other| other.0 <= one.0 && other.1 <= one.1 && (other.0 < one.0 || other.1 < one.1))
    };
    at.iter().map(|one| !beaten(one)).collect()
}

/// `off`, or the fastest. With several the fastest of them.
fn base(candidates: &[Candidate], busy: f64) -> Option<usize> {
    let total = |index: &usize| {
        candidates[*index].workloads.iter().map(|work| work.seconds + busy * work.codec_seconds).sum::<f64>()
    };
    let fastest = |among: &mut dyn Iterator<Item = usize>| among.min_by(|a, b| total(a).total_cmp(&total(b)));
    let all = 0..candidates.len();
    fastest(&mut all.clone().filter(|index| candidates[*index].compression == "off"))
        .or_else(|| fastest(&mut all.clone()))
}

fn time(candidates: &[Candidate], index: usize, base: usize, busy: f64) -> f64 {
    let seconds = |work: &Workload| work.seconds + busy * work.codec_seconds;
    let pairs = candidates[index].workloads.iter().zip(&candidates[base].workloads);
    let relative = |(one, base): (&Workload, &Workload)| {
        let base = seconds(base).max(1e-12);
        let longer = (seconds(one) - base).max(0.0);
        (seconds(one) - longer.min(one.noise_seconds)) / base
    };
    pairs.map(relative).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(rows: &[(&str, f64, f64, f64)]) -> Vec<Candidate> {
        let one = |&(name, size, seconds, codec_seconds): &(&str, f64, f64, f64)| Candidate {
            compression: name.to_owned(),
            recordsize: None,
            size,
            workloads: vec![Workload { seconds, codec_seconds, noise_seconds: 0.0 }],
        };
        rows.iter().map(one).collect()
    }

    fn chosen(rows: &[(&str, f64, f64, f64)], goal: Goal, busy: f64) -> String {
        let candidates = candidates(rows);
        candidates[choose(&candidates, goal, busy).unwrap().index].compression.clone()
    }

    const DISK: [(&str, f64, f64, f64); 4] = [
        ("off", 1.0, 10.0, 0.0),
        ("lz4", 0.6, 6.1, 1.0),
        ("zstd-3", 0.4, 5.9, 4.0),
        ("gzip-9", 0.39, 40.0, 38.0),
    ];

    #[test]
    fn each_goal_chooses_another_candidate_from_the_same_measurements() {
        assert_eq!(chosen(&DISK, Goal::Balanced, 0.0), "zstd-3");
        assert_eq!(chosen(&DISK, Goal::Speed, 0.0), "zstd-3");
        assert_eq!(chosen(&DISK, Goal::Space, 0.0), "gzip-9");
        assert_eq!(chosen(&[DISK[0], DISK[2], ("gzip-9", 0.39, 40.0, 38.0)], Goal::Archive, 0.0), "gzip-9");
        assert_eq!(chosen(&[DISK[0], DISK[2], ("gzip-9", 0.398, 40.0, 38.0)], Goal::Archive, 0.0), "zstd-3");
    }

    #[test]
    fn a_busy_machine_is_given_a_cheaper_codec() {
        let heavy = [("off", 1.0, 10.0, 0.0), ("lz4", 0.6, 6.1, 1.0), ("zstd-3", 0.5, 5.9, 7.0)];
        assert_eq!(chosen(&heavy, Goal::Balanced, 0.0), "zstd-3");
        assert_eq!(chosen(&heavy, Goal::Balanced, 1.0), "lz4");
    }

    #[test]
    fn incompressible_data_gets_lz4_if_that_is_cheap() {
        assert_eq!(
            chosen(
                &[("off", 1.0, 1.0, 0.0), ("lz4", 1.0, 1.05, 0.1), ("gzip-9", 0.98, 9.0, 8.0)],
                Goal::Balanced,
                0.0
            ),
            "lz4"
        );
        assert_eq!(chosen(&[("off", 1.0, 1.0, 0.0), ("lz4", 1.0, 1.5, 0.1)], Goal::Speed, 0.0), "off");
        assert!(choose(&[], Goal::Balanced, 0.0).is_none());
    }

    #[test]
    fn equal_candidates_are_not_chosen_by_chance() {
        let zeros = [("off", 1.0, 1.0, 0.0), ("lz4", 0.001, 0.05, 0.04), ("gzip-9", 0.001, 0.049, 0.039)];
        assert!(Goal::ALL.into_iter().all(|goal| chosen(&zeros, goal, 0.0) == "lz4"));
    }

    #[test]
    fn the_pareto_front_has_the_candidates_that_no_other_beats() {
        let all = candidates(&[
            ("off", 1.0, 1.0, 0.0),
            ("lzjb", 0.7, 1.5, 0.0),
            ("lz4", 0.6, 1.2, 0.0),
            ("gzip-9", 0.4, 9.0, 0.0),
        ]);
        assert_eq!(front(&all, 0.0), [true, false, true, true]);
    }

    #[test]
    fn the_workload_that_suffers_most_counts() {
        let work = |seconds| Workload { seconds, codec_seconds: 0.0, noise_seconds: 0.0 };
        let candidate = |name: &str, size, a, b| Candidate {
            compression: name.to_owned(),
            recordsize: None,
            size,
            workloads: vec![work(a), work(b)],
        };
        let all = [
            candidate("off", 1.0, 100.0, 10.0),
            candidate("lz4", 0.7, 100.0, 11.0),
            candidate("gzip-1", 0.6, 100.0, 17.0),
        ];
        assert_eq!(all[choose(&all, Goal::Balanced, 0.0).unwrap().index].compression, "lz4");
    }
}
