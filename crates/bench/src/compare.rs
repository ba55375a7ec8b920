//! Comparing two reports: real changes of speed and size, and differences within the noise.
//!
//! From:   two [`Report`]s.
//! To:     a row for each configuration that both measured, as table, page, CSV and JSON.

use std::fmt::Write as _;

use pool::props::number::nice_bytes;
use serde::{Deserialize, Serialize};

use crate::figures::{Chart, Grid, Table, quoted};
use crate::page::Page;
use crate::{Figures, Report, Run};

/// Sizes that differ by less differ by metadata only.
const SAME_SIZE: f64 = 0.005;

/// How the second time is to the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Their spreads overlap.
    Same,
    /// It is shorter.
    Faster,
    /// It is longer.
    Slower,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Verdict::Same => "same",
            Verdict::Faster => "faster",
            Verdict::Slower => "slower",
        })
    }
}

/// One configuration in both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pair {
    /// Its name.
    pub name: String,
    /// Seconds to write: first, second.
    pub write_seconds: (f64, f64),
    /// The verdict on the write rates.
    pub write: Verdict,
    /// Seconds to read.
    pub read_seconds: (f64, f64),
    /// The verdict on the read rates.
    pub read: Verdict,
    /// Bytes in the pool over bytes of data: first, second.
    pub size: (f64, f64),
}

/// Two reports side by side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The names of the two.
    pub names: (String, String),
    /// The configurations that both measured.
    pub pairs: Vec<Pair>,
    /// Configurations that only one of them measured, and facts that make the two hard to compare.
    pub warnings: Vec<String>,
    /// The machine of each, in lines.
    pub machines: (Vec<String>, Vec<String>),
}

impl Comparison {
    /// Compares `first` with `second`; `names` are their names.
    ///
    /// # Errors
    /// They have no configuration in common.
    pub fn of(names: (String, String), first: &Report, second: &Report) -> Result<Comparison, String> {
        let key = |run: &Run| {
            let what = (run.compression.clone(), run.recordsize, run.threads);
            (what, run.total_bytes, run.against.clone())
        };
        let mut pairs = Vec::new();
        let mut warnings = Vec::new();
        for a in &first.runs {
            match second.runs.iter().find(|b| key(b) == key(a)) {
                Some(b) => pairs.push(Pair::of(a.label(&first.runs), a, b)),
                None => warnings.push(format!("{} is only in {}", a.label(&first.runs), names.0)),
            }
        }
        for b in second.runs.iter().filter(|b| !first.runs.iter().any(|a| key(a) == key(b))) {
            warnings.push(format!("{} is only in {}", b.label(&second.runs), names.1));
        }
        if pairs.is_empty() {
            return Err(format!("{} and {} have no configuration in common", names.0, names.1));
        }
        let once = |report: &Report| report.runs.iter().all(|run| run.spread.is_none());
        if once(first) || once(second) {
            let text = "times were measured once only, so differences of up to a tenth count as none: --repeat 5 is more exact";
            warnings.push(text.to_owned());
        }
        let (a, b) = (&first.machine, &second.machine);
        if (&a.cpu, a.logical_cpus) != (&b.cpu, b.logical_cpus) {
            warnings.push("the two were measured on different machines".to_owned());
        }
        if a.source_bytes != b.source_bytes {
            let (a, b) = (nice_bytes(a.source_bytes), nice_bytes(b.source_bytes));
            warnings.push(format!("the two measured different data: {a} and {b}"));
        }
        let machines = (a.lines(&first.version), b.lines(&second.version));
        Ok(Comparison { names, pairs, warnings, machines })
    }

    /// As a table of text.
    #[must_use]
    pub fn table(&self) -> Table {
        let columns = ["configuration", "write", "", "read", "", "space"].map(str::to_owned).to_vec();
        let over = |(a, b): (f64, f64)| format!("{:.2}", b / a);
        let row = |pair: &Pair| {
            let space = over(pair.size);
            vec![
                pair.name.clone(),
                over(pair.write_seconds),
                pair.write.to_string(),
                over(pair.read_seconds),
                pair.read.to_string(),
                space,
            ]
        };
        Table {
            title: format!("{} over {}", self.names.1, self.names.0),
            note: "Times and space of the second over those of the first: below 1.00 is better. A time is the same \
                   where the spreads of both overlap."
                .to_owned(),
            columns,
            rows: self.pairs.iter().map(row).collect(),
        }
    }

    /// The result in one sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let count =
            |of: fn(&Pair) -> Verdict, verdict| self.pairs.iter().filter(|p| of(p) == verdict).count();
        let part = |what: &str, of: fn(&Pair) -> Verdict| {
            format!(
                "{what}: {} faster, {} slower, {} the same",
                count(of, Verdict::Faster),
                count(of, Verdict::Slower),
                count(of, Verdict::Same)
            )
        };
        let smaller = |pair: &&Pair| (pair.size.1 / pair.size.0 - 1.0).abs() > SAME_SIZE;
        let sizes = match self.pairs.iter().filter(smaller).count() {
            0 => "the sizes are the same".to_owned(),
            count => format!("{count} differ in size"),
        };
        let (first, second) = &self.names;
        format!(
            "Of {} configurations, {second} against {first}; {}; {}; {sizes}.",
            self.pairs.len(),
            part("writing", |pair| pair.write),
            part("reading", |pair| pair.read)
        )
    }

    fn chart(&self) -> Chart {
        let grid = Grid {
            title: format!("{} over {}", self.names.1, self.names.0),
            decimals: 2,
            columns: self.pairs.iter().map(|pair| pair.name.clone()).collect(),
            rows: vec![
                ("time to write".to_owned(), self.pairs.iter().map(|p| over(p.write_seconds)).collect()),
                ("time to read".to_owned(), self.pairs.iter().map(|p| over(p.read_seconds)).collect()),
                ("space".to_owned(), self.pairs.iter().map(|p| over(p.size)).collect()),
            ],
            ..Grid::default()
        };
        grid.bars("Bars that end before the dashed line mean that the second one needs less.")
    }

    fn figures(&self) -> Figures {
        Figures {
            notes: vec![self.sentence()],
            charts: vec![self.chart()],
            tables: vec![self.table()],
            ..Figures::default()
        }
    }

    /// As a page in one file.
    #[must_use]
    pub fn to_html(&self) -> String {
        let machine = |name: &String, lines: &[String]| {
            lines.iter().map(|line| format!("{name}: {line}")).collect::<Vec<_>>()
        };
        let (first, second) = (&self.names.0, &self.names.1);
        let machine = match self.machines.0 == self.machines.1 {
            true => machine(&"both".to_owned(), &self.machines.0),
            false => [machine(first, &self.machines.0), machine(second, &self.machines.1)].concat(),
        };
        Page {
            title: format!("{second} against {first}"),
            kicker: "Compared by cenote".to_owned(),
            answer: self.sentence(),
            warnings: self.warnings.clone(),
            figures: self.figures(),
            machine,
            json: self.to_json(),
            csv: self.to_csv(),
            ..Page::default()
        }
        .html()
    }

    /// As a PNG file.
    ///
    /// # Errors
    /// Says why it cannot be drawn.
    pub fn to_png(&self) -> Result<Vec<u8>, String> {
        let title = format!("{} against {}", self.names.1, self.names.0);
        crate::picture::png(&title, &self.sentence(), &[self.chart()])
    }

    /// As JSON, with the table and the chart drawn from it.
    ///
    /// # Panics
    /// Never: it holds nothing that JSON cannot say.
    #[must_use]
    pub fn to_json(&self) -> String {
        self.figures().within(self) + "\n"
    }

    /// As CSV: seconds and sizes of both, and the verdicts.
    #[must_use]
    pub fn to_csv(&self) -> String {
        let mut text = "configuration,write_seconds_1,write_seconds_2,write,read_seconds_1,read_seconds_2,read,size_1,size_2\n".to_owned();
        for pair in &self.pairs {
            let ((w1, w2), (r1, r2), (s1, s2)) = (pair.write_seconds, pair.read_seconds, pair.size);
            let _ = writeln!(
                text,
                "{},{w1},{w2},{},{r1},{r2},{},{s1:.4},{s2:.4}",
                quoted(&pair.name),
                pair.write,
                pair.read
            );
        }
        text
    }

    /// As Markdown.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let mut text = format!("# {} against {}\n\n{}\n\n", self.names.1, self.names.0, self.sentence());
        text += &self.table().markdown();
        for warning in &self.warnings {
            let _ = writeln!(text, "- {warning}");
        }
        text
    }
}

fn over((a, b): (f64, f64)) -> Option<f64> {
    (a > 0.0).then(|| b / a)
}

impl Pair {
    fn of(name: String, a: &Run, b: &Run) -> Pair {
        let size = |run: &Run| run.allocated_bytes as f64 / run.logical_bytes.max(1) as f64;
        Pair {
            name,
            write_seconds: (a.write_seconds, b.write_seconds),
            write: verdict(a.write_interval(), b.write_interval()),
            read_seconds: (a.read_seconds, b.read_seconds),
            read: verdict(a.read_interval(), b.read_interval()),
            size: (size(a), size(b)),
        }
    }
}

fn verdict(a: (f64, f64), b: (f64, f64)) -> Verdict {
    if b.1 < a.0 {
        Verdict::Faster
    } else if b.0 > a.1 {
        Verdict::Slower
    } else {
        Verdict::Same
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Spread;

    fn report(times: &[(&str, f64, f64)]) -> Report {
        let run = |&(compression, write_seconds, deviation): &(&str, f64, f64)| Run {
            compression: compression.into(),
            recordsize: 131_072,
            threads: 2,
            logical_bytes: 1000,
            allocated_bytes: 500,
            write_seconds,
            read_seconds: 1.0,
            spread: (deviation > 0.0).then(|| Spread {
                repeat: 5,
                write_seconds: deviation,
                ..Spread::default()
            }),
            ..Run::default()
        };
        Report { schema: crate::SCHEMA, runs: times.iter().map(run).collect(), ..Report::default() }
    }

    fn compared(a: &[(&str, f64, f64)], b: &[(&str, f64, f64)]) -> Comparison {
        Comparison::of(("a".into(), "b".into()), &report(a), &report(b)).unwrap()
    }

    #[test]
    fn times_whose_spreads_overlap_are_the_same() {
        let of = |a: f64, b: f64, deviation: f64| {
            compared(&[("lz4", a, deviation)], &[("lz4", b, deviation)]).pairs[0].write
        };
        assert_eq!(of(1.0, 1.1, 0.05), Verdict::Same);
        assert_eq!(of(1.0, 1.1, 0.001), Verdict::Slower);
        assert_eq!(of(1.1, 1.0, 0.001), Verdict::Faster);
        // Once each: a tenth is nothing.
        assert_eq!((of(1.0, 1.09, 0.0), of(1.0, 1.2, 0.0)), (Verdict::Same, Verdict::Slower));
    }

    #[test]
    fn configurations_in_only_one_report_are_named() {
        let both =
            compared(&[("off", 1.0, 0.01), ("lz4", 1.0, 0.01)], &[("lz4", 2.0, 0.01), ("zle", 1.0, 0.01)]);
        assert_eq!(both.pairs.len(), 1);
        assert!(both.warnings.iter().any(|w| w == "off is only in a"));
        assert!(both.warnings.iter().any(|w| w == "zle is only in b"));
        assert!(both.sentence().contains("1 slower"), "{}", both.sentence());
        assert!(both.table().rows[0][1] == "2.00" && both.to_csv().lines().count() == 2);
        assert!(both.to_html().contains("b over a") && both.to_markdown().contains("| lz4 |"));
        let nothing = Comparison::of(
            ("a".into(), "b".into()),
            &report(&[("off", 1.0, 0.0)]),
            &report(&[("lz4", 1.0, 0.0)]),
        );
        assert_eq!(nothing.unwrap_err(), "a and b have no configuration in common");
    }
}
