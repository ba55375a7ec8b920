//! From the estimates to rows, picks and remarks.

use pool::props::number::{nice, nice_bytes};

use super::Question;
use super::answer::{Kind, Pick, Row};
use super::choose::{Candidate, FREE_TIME, Goal, Workload, choose, front};
use super::estimate::Estimate;
use super::group::Group;
use super::metadata::Metadata;
use super::model::{Load, Target};
use super::stored::per_cent;
use super::strata::Stratum;
use crate::configuration::SOME_DATASET;
use crate::{Configuration, Limit, shell_word};

/// A kind of file is worth a remark from this part of all bytes on.
const KIND_PART: f64 = 0.01;
/// ... and a dataset of its own if it saves this part of them.
const KIND_SAVING: f64 = 0.03;

/// Data with a ratio below this counts as incompressible.
const NOTABLE: f64 = 1.03;

/// zle is worth a remark if it saves this part of all bytes, and this part of what anything saves.
const ZEROS_SAVING: f64 = 0.09;
const ZEROS_PART: f64 = 0.95;

/// An interval is worth a remark from this part of the ratio on.
/// Less data than this says nothing about settings: its metadata takes as much.
const TOO_LITTLE_BYTES: f64 = 64.0 * 1024.0;
/// Half of an interval beyond this part of the ratio is no ground for a recommendation.
const DOUBTFUL: f64 = 0.25;
const WIDE: f64 = 0.02;

/// Everything that the answer follows from.
pub(crate) struct Whole<'a> {
    pub(crate) question: &'a Question,
    /// Those that were asked for, and after them `off` with each record size if it is none of them.
    pub(crate) configurations: &'a [Configuration],
    /// How many of them were asked for.
    pub(crate) asked: usize,
    pub(crate) groups: &'a [Group],
    pub(crate) target: &'a Target,
}

/// A kind of file, and the findings about it.
struct OfKind<'a> {
    name: &'a str,
    files: f64,
    bytes: f64,
    /// Its part of all bytes.
    share: f64,
    /// There are other kinds.
    several: bool,
    /// The best ratio in this pool, and where sectors count for nothing.
    best: f64,
    tightest: f64,
    /// `own`: the best row for this kind alone. `with_all`: the row for this kind of the setting picked for all kinds.
    own: &'a Row,
    with_all: &'a Row,
}

impl OfKind<'_> {
    fn saved_bytes(&self) -> f64 {
        self.with_all.used_bytes - self.own.used_bytes
    }

    fn saved_seconds(&self) -> f64 {
        self.bytes / self.with_all.compress_rate - self.bytes / self.own.compress_rate
    }

    /// A remark about this kind, if it is worth one.
    fn remark(&self, whole: &Whole<'_>) -> Option<String> {
        let OfKind { name, best, tightest, own, with_all, .. } = *self;
        if self.share < KIND_PART {
            return None;
        }
        let what =
            format!("{name}: {} ({:.0} % of the data)", nice_bytes(self.bytes as u64), 100.0 * self.share);
        if best < NOTABLE && tightest >= NOTABLE {
            return Some(format!(
                "{what} would compress {tightest:.2}x, but its files are too small: each takes whole sectors of {}. In one archive they would take less",
                nice(1 << whole.question.ashift)
            ));
        }
        if best < NOTABLE && !whole.tried_hard() {
            return Some(format!(
                "{what}: none of these compressions makes it much smaller (at best {best:.2}x)"
            ));
        }
        if best < NOTABLE {
            let advice = match self.several {
                // Less than a tenth of a second does not matter.
                true if self.saved_seconds() < 0.1 => String::new(),
                true => format!(
                    ": a dataset of its own with compression={} saves {:.1} s of CPU time",
                    own.compression,
                    self.saved_seconds()
                ),
                false => format!(": store it with compression={}", own.compression),
            };
            return Some(format!("{what} hardly compresses (at best {best:.2}x){advice}"));
        }
        let is_other = (&own.compression, own.recordsize) != (&with_all.compression, with_all.recordsize);
        (self.several && is_other && self.saved_bytes() > KIND_SAVING * self.bytes).then(|| {
            format!(
                "{what}: a dataset of its own with compression={} and recordsize={} takes {} less",
                own.compression,
                nice(own.recordsize),
                nice_bytes(self.saved_bytes() as u64)
            )
        })
    }

    fn answer(&self, whole: &Whole<'_>) -> Kind {
        let OfKind { own, with_all, .. } = *self;
        Kind {
            kind: self.name.to_owned(),
            files: self.files.round() as u64,
            bytes: self.bytes.round() as u64,
            compressratio: with_all.compressratio,
            half_width: 0.5 * (with_all.ratio_high - with_all.ratio_low),
            compression: own.compression.clone(),
            recordsize: own.recordsize,
            saved_bytes: self.saved_bytes(),
            saved_seconds: self.saved_seconds(),
            remark: self.remark(whole),
        }
    }
}

/// The estimates of the configurations that were asked for, for some of the data.
pub(crate) struct Outlook {
    pub(crate) rows: Vec<Row>,
    pub(crate) candidates: Vec<Candidate>,
    /// The space of plain storage: `off` with the record size where that is least. All savings are parts of this.
    pub(crate) plain: Estimate,
    /// The best ratio where sectors count for nothing.
    pub(crate) tightest: f64,
}

impl Whole<'_> {
    /// The rows for `bytes` bytes of files in the strata that `counts` names.
    pub(crate) fn rows(&self, metadata: &Metadata, bytes: f64, counts: &dyn Fn(&Stratum) -> bool) -> Outlook {
        let of = |number: usize| {
            let estimate = self.groups.iter().find_map(|group| group.estimate(number, metadata, counts));
            estimate.expect("each configuration is in a group")
        };
        let estimates: Vec<Estimate> = (0..self.configurations.len()).map(of).collect();
        let off = self.configurations.iter().zip(&estimates).filter(|(one, _)| one.compression == "off");
        let plain =
            off.map(|(_, of)| *of).min_by(|a, b| a.raw.total_cmp(&b.raw)).expect("off is one of them");
        let per_byte = |value: f64| value / bytes.max(1.0);
        let mut rows: Vec<Row> = Vec::new();
        for (configuration, of) in self.configurations.iter().zip(&estimates).take(self.asked) {
            let load = Load {
                raw: per_byte(of.raw),
                psize: per_byte(of.physical),
                compress: per_byte(of.compress),
                decompress: per_byte(of.decompress),
                files: per_byte(metadata.files),
            };
            let write = self.target.write(&load);
            rows.push(Row {
                compression: configuration.compression.clone(),
                recordsize: configuration.recordsize,
                compressratio: of.ratio,
                ratio_low: (of.ratio - of.half_width).max(1.0),
                ratio_high: of.ratio + of.half_width,
                logical_bytes: of.logical,
                used_bytes: of.used,
                raw_bytes: of.raw,
                saving: 1.0 - of.used / plain.used.max(1.0),
                compress_rate: bytes / of.compress.max(1e-9),
                decompress_rate: bytes / of.decompress.max(1e-9),
                write,
                read: self.target.read(&load),
                burst: self.target.burst(bytes, write),
                cores_to_fill: self.target.cores_to_fill(&load),
                pareto: false,
            });
        }
        let cores = f64::from(self.target.cores.max(1));
        let candidates: Vec<Candidate> = rows
            .iter()
            .zip(&estimates)
            .map(|(row, of)| Candidate {
                compression: row.compression.clone(),
                recordsize: Some(row.recordsize),
                size: of.raw / plain.raw.max(1.0),
                workloads: vec![Workload {
                    seconds: bytes / row.write.bytes_per_second + bytes / row.read.bytes_per_second,
                    codec_seconds: (of.compress + of.decompress) / cores,
                    noise_seconds: 0.0,
                }],
            })
            .collect();
        for (row, pareto) in rows.iter_mut().zip(front(&candidates, self.target.busy_part())) {
            row.pareto = pareto;
        }
        let asked = estimates[..self.asked].iter();
        let tightest = asked.map(|of| of.bare / of.tight.max(1.0)).fold(1.0, f64::max);
        Outlook { rows, candidates, plain, tightest }
    }

    /// A pick for each purpose, the one asked for first.
    pub(crate) fn picks(&self, outlook: &Outlook) -> Vec<Pick> {
        let Outlook { rows, candidates, plain, .. } = outlook;
        let several = rows.iter().any(|row| row.recordsize != rows[0].recordsize);
        let goals = std::iter::once(self.question.goal);
        let goals = goals.chain(Goal::ALL.into_iter().filter(|goal| *goal != self.question.goal));
        let pick = |goal: Goal| {
            let choice = choose(candidates, goal, self.target.busy_part()).expect("there is a configuration");
            let (row, base) = (&rows[choice.index], &rows[choice.base]);
            let Row { compression, recordsize, .. } = row.clone();
            let mut why = format!(
                "{} instead of {} ({:.0} % saved). It writes {:.0} MB/s (limit: {}) and reads {:.0} MB/s (limit: {})",
                nice_bytes(row.used_bytes as u64),
                nice_bytes(plain.used as u64),
                per_cent(row.saving),
                row.write.bytes_per_second / 1e6,
                row.write.bottleneck,
                row.read.bytes_per_second / 1e6,
                row.read.bottleneck,
            );
            if choice.index != choice.base {
                why +=
                    &format!(". Both together take {:.2} times as long as {}", choice.time, base.compression);
                if several {
                    why += &format!(" with records of {}", nice(base.recordsize));
                }
            }
            let slower = |of: fn(&Row) -> f64| of(base) > FREE_TIME * of(row);
            let in_part = slower(|row| row.write.bytes_per_second) || slower(|row| row.read.bytes_per_second);
            why = format!("{}. {why}", choice.reason.of_a_cycle(in_part));
            let dataset = self.question.dataset.as_deref().map_or(SOME_DATASET.to_owned(), shell_word);
            let size = nice(recordsize);
            Pick {
                goal,
                create: format!(
                    "zfs create -o compression={compression} -o recordsize={size} {SOME_DATASET}"
                ),
                set: format!("zfs set compression={compression} recordsize={size} {dataset}"),
                compression,
                recordsize,
                why,
            }
        };
        goals.map(pick).collect()
    }

    /// The gain of each kind of file from a dataset of its own, next to `pick` for all.
    pub(crate) fn kinds(&self, metadata: &Metadata, bytes: f64, pick: &Pick) -> Vec<Kind> {
        // All groups have the same kinds.
        let strata = &self.groups[0].strata.all;
        let mut names: Vec<&str> = strata.iter().map(|stratum| stratum.kind.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        let several = names.len() > 1;
        let mut kinds: Vec<Kind> = Vec::new();
        for name in names {
            let of_kind = |stratum: &Stratum| stratum.kind == name;
            if !self.groups.iter().all(|group| group.saw(name)) {
                continue;
            }
            let sum = |of: fn(&Stratum) -> f64| {
                strata.iter().filter(|stratum| of_kind(stratum)).map(of).sum::<f64>()
            };
            let (kind_files, kind_bytes) = (sum(|stratum| stratum.files), sum(|stratum| stratum.data));
            let of_its_own = metadata.part(kind_files);
            let Outlook { rows, candidates, tightest, .. } = self.rows(&of_its_own, kind_bytes, &of_kind);
            let choice = choose(&candidates, self.question.goal, self.target.busy_part())
                .expect("there is a configuration");
            let common = rows
                .iter()
                .position(|row| row.compression == pick.compression && row.recordsize == pick.recordsize);
            let common = common.expect("the pick is one of them");
            let (own, with_all) = (&rows[choice.index], &rows[common]);
            let kind = OfKind {
                name,
                files: kind_files,
                bytes: kind_bytes,
                share: kind_bytes / bytes.max(1.0),
                several,
                best: rows.iter().map(|row| row.compressratio).fold(1.0, f64::max),
                tightest,
                own,
                with_all,
            };
            kinds.push(kind.answer(self));
        }
        kinds.sort_by_key(|kind| std::cmp::Reverse(kind.bytes));
        kinds
    }

    /// Whether the settings that make most data smaller were asked for.
    fn tried_hard(&self) -> bool {
        let hard = |name: &str| {
            name.starts_with("gzip") || name.starts_with("zstd") && !name.starts_with("zstd-fast")
        };
        self.configurations[..self.asked].iter().any(|one| hard(&one.compression))
    }

    /// Notes that a reader should know about the rows.
    pub(crate) fn remarks(&self, rows: &[Row], pick: &Pick, bytes: f64) -> Vec<String> {
        let mut remarks = Vec::new();
        // A ratio knows nothing of records that are zeros altogether.
        let most = |rows: &mut dyn Iterator<Item = &Row>| rows.map(|row| row.saving).fold(0.0, f64::max);
        let best = most(&mut rows.iter());
        let zle = most(&mut rows.iter().filter(|row| row.compression == "zle"));
        if zle > ZEROS_SAVING && zle > ZEROS_PART * best {
            remarks.push(format!(
                "most of what compresses here are zeros: zle alone saves {:.0} of {:.0} %, for almost no CPU time",
                100.0 * zle,
                100.0 * best
            ));
        }
        let picked = rows.iter().find(|row| is_row(row, pick));
        if let Some(row) = picked.filter(|row| row.logical_bytes > 1.01 * bytes) {
            remarks.push(format!(
                "with records of {}, ZFS counts the files as {} instead of {}: it fills up the last record of each file with zeros, which compress to nothing",
                nice(row.recordsize),
                nice_bytes(row.logical_bytes as u64),
                nice_bytes(bytes as u64)
            ));
        }
        let widest = rows.iter().max_by(|a, b| half_width(a).total_cmp(&half_width(b)));
        if let Some(row) = widest.filter(|row| half_width(row) > WIDE) {
            remarks.push(format!(
                "the files differ much from each other, so a ratio may be off by up to {:.0} % ({} with records of {}): a longer --time reads more of them",
                100.0 * half_width(row),
                row.compression,
                nice(row.recordsize)
            ));
        }
        if let Some(row) = picked.filter(|row| row.write.bottleneck == Limit::Cpu)
            && let Some(needed) = row.cores_to_fill
        {
            remarks.push(format!("{} needs {needed:.1} such cores to keep the disks busy", row.compression));
        }
        remarks
    }
}

/// Why `pick` is unreliable for `bytes` of data; `None` if it is reliable.
pub(crate) fn doubt(rows: &[Row], pick: &Pick, bytes: f64) -> Option<String> {
    let picked = rows.iter().find(|row| is_row(row, pick));
    doubt_about(&pick.compression, picked.map_or(0.0, half_width), bytes)
}

/// The same for a setting whose ratio is known to ± `half_width` of it.
fn doubt_about(compression: &str, half_width: f64, bytes: f64) -> Option<String> {
    if bytes < TOO_LITTLE_BYTES {
        return Some(format!(
            "{} of data is too little: metadata and whole sectors take more space than a compression can save",
            nice_bytes(bytes as u64)
        ));
    }
    (half_width > DOUBTFUL).then(|| {
        format!(
            "the sample is too small for this data: the ratio of {compression} may be off by {:.0} %. Read more of the data, \
             with a longer --time",
            100.0 * half_width
        )
    })
}

pub(super) fn is_row(row: &Row, pick: &Pick) -> bool {
    row.compression == pick.compression && row.recordsize == pick.recordsize
}

/// Bytes that the data would take as picked, and half of the width of their interval as a part of them.
pub(super) fn predicted(rows: &[Row], pick: &Pick) -> Option<(f64, f64)> {
    rows.iter().find(|row| is_row(row, pick)).map(|row| (row.used_bytes, half_width(row)))
}

/// Half of the interval that holds the ratio of a row with 95 %, as a part of the ratio.
fn half_width(row: &Row) -> f64 {
    0.5 * (row.ratio_high - row.ratio_low) / row.compressratio
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_interval_and_little_data_are_no_ground_for_a_recommendation() {
        assert_eq!(doubt_about("lz4", 0.25, 65_536.0), None);
        let wide = doubt_about("zstd-3", 1.43, 1e9).unwrap();
        assert!(wide.contains("zstd-3 may be off by 143 %"), "{wide}");
        assert!(doubt_about("lz4", 0.0, 65_535.0).unwrap().starts_with("64.0K of data is too little"));
    }
}
