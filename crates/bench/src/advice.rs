//! Choosing a configuration from the measured ones.
//!
//! Only runs that were read back as they were written count, and of those only the runs with the most threads and bytes
//! (when a measurement ended early: the most with which every setting was measured). The rule is that of the advisor
//! ([`choose_among`], goal "balanced"): the least size × time, both relative to `off`; time is writing plus reading.
//! Differences below the scatter of repeated runs, and below what a clock shows reliably, count as none. When the noise is
//! larger than the differences that decide, sizes and CPU times alone decide ([`crate::uncertain`]).
//!
//! A run that another one [`beats`] is never chosen, whatever the noise is: a reader sees in the table that the other one is
//! better.

use pool::props::number::{nice, nice_bytes};

use crate::advise::{Candidate, FREE_TIME, Goal, LZ4_TOLERANCE, Reason, Workload, choose_among};
use crate::page::first_upper;
use crate::plan::{DEFAULT_RECORDSIZE, setting_words};
use crate::report::{conditions, under};
use crate::saving::{relative_size, time};
use crate::uncertain::{NOISE, is_uncertain, most_saved_per_cpu_second, others_cpu_max};
use crate::{Recommendation, Run};

/// Seconds that no clock shows reliably.
const CLOCK_NOISE_SECONDS: f64 = 0.002;
/// Maximal part of the time that counts as noise. A larger scatter means a bad measurement and not a free setting.
const NOISE_MAX: f64 = 0.15;

/// Chooses among `runs`; `dataset` stands in the command.
///
/// # Panics
/// If there are no runs.
#[must_use]
pub fn recommend(runs: &[Run], dataset: &str) -> Recommendation {
    let conditions = conditions(runs);
    let measured: Vec<&Run> =
        runs.iter().filter(|run| run.verified && run.against.is_none() && conditions == under(run)).collect();
    let size = |run: &Run| relative_size(&measured, run);
    let candidate = |run: &&Run| Candidate {
        compression: run.compression.clone(),
        recordsize: Some(run.recordsize),
        size: size(run),
        workloads: vec![Workload { seconds: time(run), codec_seconds: 0.0, noise_seconds: noise(run) }],
    };
    let candidates: Vec<Candidate> = measured.iter().map(candidate).collect();
    let allowed: Vec<bool> = measured.iter().map(|run| !is_beaten(&measured, run)).collect();
    let Some(choice) = choose_among(&candidates, &allowed, Goal::Balanced, 0.0) else {
        return none("nothing was read back as it was written; check memory and disks".to_owned());
    };
    let (best, base) = (measured[choice.index], measured[choice.base]);
    if is_uncertain(&measured, best) {
        return without_times(runs, &measured, dataset);
    }
    let smallest = measured.iter().min_by(|a, b| size(a).total_cmp(&size(b))).expect("the base is one");
    let hardly = hardly(&measured, smallest);
    let sizes = sizes(best, &measured);
    let reason = match choice.reason {
        Reason::GivesUpEarly if measured.len() > 1 => {
            format!(
                "{hardly}, and lz4 costs almost no time, because it notices that early: {}",
                times(best, base)
            )
        }
        Reason::OnlyCostsTime if !are_few(&measured) => {
            format!("{hardly}, so any other setting only costs time{}", lz4_is_cheap(&measured, best))
        }
        Reason::GivesUpEarly | Reason::OnlyCostsTime => hardly,
        Reason::Base if measured.len() == 1 => format!("{sizes}; nothing else was measured"),
        Reason::Base if std::ptr::eq(*smallest, base) => {
            format!("{sizes}, and nothing else that was measured is smaller or faster")
        }
        Reason::Base => format!(
            "{sizes}. What is smaller ({}: {}) costs more time than it saves space: {}",
            beside(smallest, best),
            nice_bytes(smallest.allocated_bytes),
            times(smallest, base)
        ),
        reason => {
            let slower = |of: fn(&Run) -> f64| of(best) > FREE_TIME * of(base) + CLOCK_NOISE_SECONDS;
            let in_part = slower(|run| run.write_seconds) || slower(|run| run.read_seconds);
            format!("{sizes}. {}: {}", first_upper(&reason.of_a_cycle(in_part)), times(best, base))
        }
    };
    said(runs, best, dataset, reason)
}

/// The recommendation where times are too uncertain to compare.
fn without_times(runs: &[Run], measured: &[&Run], dataset: &str) -> Recommendation {
    let cause = match others_cpu_max(measured) {
        share if share >= NOISE => {
            format!("other programs used up to {:.0} % of the CPU meanwhile", share * 100.0)
        }
        _ => "the repeated runs differ too much".to_owned(),
    };
    let uncertain = format!("the times are too uncertain to compare, because {cause}");
    let again = "To be sure, measure again while nothing else runs, with --repeat 5";
    let unbeaten = measured.iter().copied().filter(|run| !is_beaten(measured, run));
    let Some(best) = most_saved_per_cpu_second(measured, unbeaten) else {
        return none(format!("{uncertain}, and no measured setting saves much space. {again}"));
    };
    let reason = format!(
        "{uncertain}. By sizes and CPU time alone, it saves the most space for each second of CPU time: {}, and writing and \
         reading them once takes {:.1} s of CPU time. {again}",
        sizes(best, measured),
        best.write_cpu_seconds + best.read_cpu_seconds
    );
    said(runs, best, dataset, reason)
}

/// Whether `one` takes no more space than `other`, writes and reads at least as fast, and is better in one of the three, as
/// measured: with several repetitions the medians count.
fn beats(one: &Run, other: &Run) -> bool {
    let no_worse = one.allocated_bytes <= other.allocated_bytes
        && one.write_seconds <= other.write_seconds
        && one.read_seconds <= other.read_seconds;
    let better = one.allocated_bytes < other.allocated_bytes
        || one.write_seconds < other.write_seconds
        || one.read_seconds < other.read_seconds;
    no_worse && better
}

fn is_beaten(measured: &[&Run], run: &Run) -> bool {
    measured.iter().any(|other| beats(other, run))
}

/// That nothing can be recommended, and why.
fn none(reason: String) -> Recommendation {
    Recommendation { reason, ..Recommendation::default() }
}

/// The result of a run in words, beside what `off` takes: that may be more than the data, because of metadata and whole
/// sectors.
fn sizes(run: &Run, measured: &[&Run]) -> String {
    let is_off = |other: &&&Run| other.compression == "off" && other.recordsize == run.recordsize;
    let off = measured.iter().find(is_off).filter(|off| !std::ptr::eq(**off, run));
    format!(
        "{} of data takes {}{}",
        nice_bytes(run.logical_bytes),
        nice_bytes(run.allocated_bytes),
        off.map(|off| format!(" ({} with off)", nice_bytes(off.allocated_bytes))).unwrap_or_default(),
    )
}

/// The measured settings do not show that data does not compress: there is only one, or none that compresses hard.
fn are_few(measured: &[&Run]) -> bool {
    measured.len() == 1
        || measured.iter().all(|run| matches!(run.compression.as_str(), "off" | "lz4" | "zle"))
}

/// The sentence that no setting made the data notably smaller, with the measured settings.
fn hardly(measured: &[&Run], smallest: &Run) -> String {
    let best = match &smallest.compression {
        off if off == "off" => String::new(),
        name => {
            let saved = 100.0 * (1.0 - relative_size(measured, smallest)).max(0.0);
            format!(" (at best {saved:.0} % less, with {name})")
        }
    };
    if !are_few(measured) {
        return format!("this data hardly compresses{best}");
    }
    let mut names: Vec<&str> = Vec::new();
    for run in measured {
        if !names.contains(&run.compression.as_str()) {
            names.push(&run.compression);
        }
    }
    match &names[..] {
        [one] => format!("only {one} was measured, which hardly makes this data smaller{best}"),
        all => format!("only {} were measured, which hardly make this data smaller{best}", all.join(", ")),
    }
}

/// Where `best` is not lz4 for a small difference in time only: that lz4 is as good a choice.
fn lz4_is_cheap(measured: &[&Run], best: &Run) -> &'static str {
    let is_cheap = |run: &&&Run| run.compression == "lz4" && time(run) <= LZ4_TOLERANCE * time(best);
    match measured.iter().find(is_cheap) {
        Some(_) => "; lz4 costs hardly more, and saves space if other files are added later",
        None => "",
    }
}

/// The setting of `run` in words about `other`: with the size of records where that is another.
fn beside(run: &Run, other: &Run) -> String {
    match run.recordsize {
        same if same == other.recordsize => run.compression.clone(),
        bytes => format!("{} with records of {}", run.compression, nice(bytes)),
    }
}

/// By how much that may be off.
fn noise(run: &Run) -> f64 {
    let scatter = run.spread.as_ref().map_or(0.0, |spread| spread.write_seconds + spread.read_seconds);
    scatter.min(time(run) * NOISE_MAX) + CLOCK_NOISE_SECONDS
}

fn times(run: &Run, base: &Run) -> String {
    format!(
        "writing takes {:.2} and reading {:.2} times as long as with {}",
        run.write_seconds / base.write_seconds,
        run.read_seconds / base.read_seconds,
        beside(base, run)
    )
}

fn said(runs: &[Run], run: &Run, dataset: &str, reason: String) -> Recommendation {
    let compared = runs.iter().any(|other| other.recordsize != run.recordsize);
    let recordsize = match run.recordsize {
        DEFAULT_RECORDSIZE if !compared => String::new(),
        bytes => format!(" recordsize={}", nice(bytes)),
    };
    Recommendation {
        compression: run.compression.clone(),
        recordsize: run.recordsize,
        command: format!("zfs set {}{recordsize} {dataset}", setting_words(&run.compression)),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Spread;
    use proptest::prelude::*;

    /// Of 1 GB: (compression, allocated MB, write seconds, read seconds).
    fn runs(rows: &[(&str, u64, f64, f64)]) -> Vec<Run> {
        let run = |&(compression, mb, write_seconds, read_seconds): &(&str, u64, f64, f64)| Run {
            compression: compression.into(),
            recordsize: 131_072,
            threads: 2,
            logical_bytes: 1_000_000_000,
            allocated_bytes: mb * 1_000_000,
            compressratio: 1000.0 / mb as f64,
            write_seconds,
            write_cpu_seconds: 1.0,
            read_seconds,
            read_cpu_seconds: 1.0,
            verified: true,
            ..Run::default()
        };
        rows.iter().map(run).collect()
    }

    fn chosen(rows: &[(&str, u64, f64, f64)]) -> String {
        recommend(&runs(rows), "tank").compression
    }

    #[test]
    fn among_settings_that_cost_no_time_the_smallest_is_chosen() {
        let slow_disk = [
            ("off", 1000, 10.0, 8.0),
            ("lz4", 600, 6.0, 5.0),
            ("zstd-3", 400, 10.9, 4.0),
            ("gzip-9", 390, 60.0, 6.0),
        ];
        assert_eq!(chosen(&slow_disk), "zstd-3");
        let said = recommend(&runs(&slow_disk), "tank/db");
        assert_eq!(said.command, "zfs set compression=zstd-3 tank/db");
        assert!(said.reason.contains("1.09") && said.reason.contains("0.50"), "{said:?}");
    }

    #[test]
    fn otherwise_space_is_traded_against_time() {
        let fast_disk = [
            ("off", 1000, 1.0, 1.0),
            ("lz4", 500, 1.3, 1.0),
            ("zstd-3", 400, 2.5, 1.2),
            ("gzip-9", 390, 60.0, 3.0),
            ("zle", 960, 1.0, 1.0),
        ];
        assert_eq!(chosen(&fast_disk), "lz4");
        assert_eq!(chosen(&[("off", 1000, 1.0, 1.0), ("gzip-9", 900, 60.0, 3.0)]), "off");
    }

    #[test]
    fn data_that_does_not_compress_gets_lz4_if_that_costs_nothing() {
        let packed = [("off", 1000, 1.0, 1.0), ("lz4", 999, 1.05, 1.0), ("gzip-9", 985, 30.0, 1.0)];
        assert_eq!(chosen(&packed), "lz4");
        assert!(recommend(&runs(&packed), "t").reason.contains("hardly compresses"));
        let beaten = [("off", 999, 1.0, 1.0), packed[1], packed[2]];
        assert_eq!(chosen(&beaten), "off");
        assert!(recommend(&runs(&beaten), "t").reason.contains("lz4 costs hardly more"));
        assert_eq!(
            chosen(&[("off", 1000, 1.0, 1.0), ("lz4", 1000, 1.5, 1.0), ("gzip-9", 985, 30.0, 1.0)]),
            "off"
        );
        assert_eq!(chosen(&[("off", 1000, 1.0, 1.0)]), "off");
    }

    #[test]
    fn few_settings_allow_no_conclusion_about_others() {
        let said = |rows| recommend(&runs(rows), "t").reason;
        let weak = said(&[("off", 1000, 1.0, 1.0), ("lz4", 1000, 1.05, 1.0), ("zle", 1000, 1.0, 1.0)]);
        assert!(
            weak.starts_with("only off, lz4, zle were measured, which hardly make this data smaller"),
            "{weak}"
        );
        let alone = said(&[("gzip-9", 1000, 1.0, 1.0)]);
        assert_eq!(
            alone,
            "only gzip-9 was measured, which hardly makes this data smaller (at best 0 % less, with gzip-9)"
        );
        assert!(!said(&[("off", 1000, 1.0, 1.0)]).contains("compresses"));
    }

    #[test]
    fn a_setting_that_is_slower_in_part_is_not_called_free() {
        let said = |write, read| {
            recommend(&runs(&[("off", 1000, 10.0, 10.0), ("zstd-3", 400, write, read)]), "t").reason
        };
        assert!(
            said(12.0, 4.0).contains("It saves space and takes no longer (writing and reading together): "),
            "{}",
            said(12.0, 4.0)
        );
        assert!(said(9.0, 9.0).contains("costs no time: "));
    }

    #[test]
    fn a_run_with_wrong_data_is_never_recommended() {
        let mut measured = runs(&[("off", 1000, 1.0, 1.0), ("lz4", 300, 1.0, 1.0)]);
        measured[1].verified = false;
        assert_eq!(recommend(&measured, "t").compression, "off");
        measured[0].verified = false;
        let none = recommend(&measured, "t");
        assert!(none.reason.contains("nothing was read back"), "{none:?}");
        assert!(none.command.is_empty() && none.compression.is_empty(), "{none:?}");
    }

    #[test]
    fn the_spread_of_repeated_runs_is_no_difference() {
        let mut measured =
            runs(&[("off", 1000, 1.0, 1.0), ("lz4", 500, 1.0, 1.0), ("zstd-1", 470, 1.2, 1.0)]);
        assert_eq!(recommend(&measured, "t").compression, "lz4");
        measured[2].spread = Some(Spread {
            repeat: 3,
            write_seconds: 0.1,
            write_cpu_seconds: 0.0,
            read_seconds: 0.0,
            read_cpu_seconds: 0.0,
        });
        assert_eq!(recommend(&measured, "t").compression, "zstd-1");
        // More than NOISE_MAX of the time: only that part of it counts as noise.
        measured[2].write_seconds = 1.52;
        measured[2].spread.as_mut().unwrap().write_seconds = 0.4;
        assert_eq!(recommend(&measured, "t").compression, "lz4");
    }

    /// As a reader met it: with spreads that wide, zstd-1 counted as no slower than lz4, though lz4 was better in every figure.
    #[test]
    fn noise_does_not_choose_a_run_that_another_one_beats() {
        let mut measured =
            runs(&[("off", 1000, 1.0, 1.0), ("lz4", 450, 1.0, 0.9), ("zstd-1", 450, 1.05, 0.91)]);
        let spread = Spread { repeat: 3, write_seconds: 0.2, ..Spread::default() };
        measured[2].spread = Some(spread);
        measured.swap(1, 2);
        assert_eq!(recommend(&measured, "t").compression, "lz4");
        let mut busy =
            disturbed(0.9, &[("off", 1000, 1.0, 1.0), ("lz4", 450, 1.0, 0.9), ("zle", 500, 1.1, 0.9)]);
        busy[1].write_cpu_seconds = 9.0;
        let said = recommend(&busy, "t");
        assert_eq!(said.compression, "lz4", "zle needs less CPU time, but lz4 beats it: {said:?}");
    }

    fn any_run() -> impl Strategy<Value = Run> {
        let name = prop::sample::select(vec!["off", "lz4", "zle", "zstd-1", "zstd-3", "gzip-9"]);
        let recordsize = prop::sample::select(vec![131_072, 1 << 20]);
        // Few different values, so that some are equal.
        let tenths = || (1_u32..20).prop_map(|tenths| f64::from(tenths) / 10.0);
        let scatter = prop::option::of((0.0..0.5, 0.0..0.5));
        let others = prop::option::of(0.0..1.0);
        let sizes_and_times = (90_u64..110, tenths(), tenths(), tenths());
        (name, recordsize, sizes_and_times, scatter, others).prop_map(
            |(compression, recordsize, (size, write_seconds, read_seconds, cpu), scatter, others_cpu)| Run {
                compression: compression.to_owned(),
                recordsize,
                threads: 2,
                logical_bytes: 100,
                allocated_bytes: size,
                compressratio: 100.0 / size as f64,
                write_seconds,
                write_cpu_seconds: cpu,
                read_seconds,
                verified: true,
                spread: scatter.map(|(write_seconds, read_seconds)| Spread {
                    repeat: 3,
                    write_seconds,
                    read_seconds,
                    ..Spread::default()
                }),
                others_cpu,
                ..Run::default()
            },
        )
    }

    proptest! {
        #[test]
        fn the_recommended_run_is_beaten_by_no_other(runs in prop::collection::vec(any_run(), 1..9)) {
            let said = recommend(&runs, "t");
            let of = |run: &&Run| (&run.compression, run.recordsize) == (&said.compression, said.recordsize);
            let recommended: Vec<&Run> = runs.iter().filter(of).collect();
            // The same setting may be there twice: one of them is meant.
            let unbeaten = |run: &&Run| !runs.iter().any(|other| beats(other, run));
            prop_assert!(said.compression.is_empty() || recommended.iter().any(unbeaten), "{said:?} {runs:#?}");
        }
    }

    /// Runs of which other programs took the share `others` of the CPU time.
    fn disturbed(others: f64, rows: &[(&str, u64, f64, f64)]) -> Vec<Run> {
        let mut all = runs(rows);
        all.iter_mut().for_each(|run| run.others_cpu = Some(others));
        all
    }

    #[test]
    fn off_is_not_recommended_when_only_noise_speaks_for_it() {
        let rows = [("off", 1000, 1.0, 1.0), ("zstd-3", 307, 6.0, 3.0)];
        assert_eq!(recommend(&disturbed(0.02, &rows), "t").compression, "off", "a quiet machine is believed");
        let said = recommend(&disturbed(0.91, &rows), "t");
        assert_eq!(said.compression, "zstd-3", "{said:?}");
        assert!(
            said.reason.contains("too uncertain to compare, because other programs used up to 91 %"),
            "{said:?}"
        );
        assert!(
            said.reason.contains("sizes and CPU time alone") && !said.reason.contains("times as long"),
            "{said:?}"
        );
    }

    #[test]
    fn without_times_the_most_space_for_each_cpu_second_wins() {
        let rows = [
            ("off", 1000, 1.0, 1.0),
            ("lz4", 500, 1.3, 1.0),
            ("zstd-3", 307, 6.0, 3.0),
            ("gzip-9", 300, 9.0, 3.0),
        ];
        let mut measured = disturbed(0.9, &rows);
        for (run, cpu_seconds) in measured.iter_mut().zip([0.5, 1.0, 4.0, 50.0]) {
            (run.write_cpu_seconds, run.read_cpu_seconds) = (cpu_seconds, 0.5);
        }
        assert_eq!(recommend(&measured, "t").compression, "lz4");
    }

    #[test]
    fn nothing_is_recommended_when_times_are_noise_and_sizes_are_equal() {
        let mut measured =
            runs(&[("off", 1000, 1.0, 1.0), ("zle", 999, 0.5, 0.5), ("gzip-9", 985, 30.0, 1.0)]);
        measured[0].others_cpu = Some(0.9);
        measured[1].others_cpu = Some(0.9);
        let said = recommend(&measured, "t");
        assert!(said.command.is_empty() && said.compression.is_empty(), "{said:?}");
        assert!(said.reason.contains("no measured setting saves much space"), "{said:?}");
    }

    #[test]
    fn a_choice_that_no_noise_can_change_stays_one_on_a_busy_machine() {
        let rows = [("off", 1000, 10.0, 8.0), ("zstd-3", 300, 4.0, 4.0)];
        let said = recommend(&disturbed(0.3, &rows), "t");
        assert_eq!(said.compression, "zstd-3");
        assert!(said.reason.contains("times as long"), "{said:?}");
    }

    #[test]
    fn sizes_are_shown_beside_the_size_of_off() {
        let measured = runs(&[("off", 1500, 10.0, 8.0), ("zstd-3", 1000, 4.0, 4.0)]);
        let said = recommend(&measured, "t").reason;
        let sizes = "1000M of data takes 1000M (1.46G with off)";
        let sizes =
            sizes.replace("1000M", &nice_bytes(1_000_000_000)).replace("1.46G", &nice_bytes(1_500_000_000));
        assert!(said.starts_with(&sizes), "{said}");
    }

    #[test]
    fn unfinished_totals_give_no_advice() {
        let all = [("off", 1000, 10.0, 8.0), ("lz4", 600, 6.0, 5.0), ("zstd-3", 400, 10.9, 4.0)];
        let mut measured = runs(&all);
        measured.iter_mut().for_each(|run| run.threads = 1);
        measured.extend(runs(&all[..1]));
        assert_eq!(recommend(&measured, "t").compression, "zstd-3", "with two threads only off was measured");
        measured.extend(runs(&all[1..]));
        measured.last_mut().unwrap().allocated_bytes = 990_000_000;
        assert_eq!(recommend(&measured, "t").compression, "lz4", "now all was");
        let mut totals = runs(&all);
        totals.iter_mut().for_each(|run| run.total_bytes = Some(1));
        totals.extend(runs(&all[..1]));
        totals[3].total_bytes = Some(2);
        assert_eq!(recommend(&totals, "t").compression, "zstd-3");
    }

    #[test]
    fn without_off_others_are_compared_with_the_fastest() {
        let said = recommend(&runs(&[("gzip-9", 400, 60.0, 3.0), ("lz4", 500, 1.0, 1.0)]), "t");
        assert_eq!(said.compression, "lz4");
        assert!(said.reason.contains("gzip-9"));
        let alone = recommend(&runs(&[("lz4", 500, 1.0, 1.0)]), "t");
        assert!(alone.reason.contains("nothing else"), "{}", alone.reason);
    }

    #[test]
    fn the_record_size_is_set_if_several_were_measured() {
        let mut measured = runs(&[("lz4", 500, 1.0, 1.0), ("lz4", 400, 1.0, 1.0)]);
        measured[1].recordsize = 1 << 20;
        assert_eq!(recommend(&measured, "t").command, "zfs set compression=lz4 recordsize=1M t");
        measured[1].threads = 1;
        assert_eq!(recommend(&measured, "t").command, "zfs set compression=lz4 recordsize=128K t");
        measured[1] = Run { threads: 2, write_seconds: 60.0, ..measured[1].clone() };
        let reason = recommend(&measured, "t").reason;
        assert!(reason.contains("smaller (lz4 with records of 1M: 381M)"), "{reason}");
    }
}
