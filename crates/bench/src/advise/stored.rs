//! The data as it is stored now: the shape of its pool, and the space of its dataset, compared with the recommended
//! settings.
//!
//! From:   what the caller knows about the pool and the dataset.
//! To:     two lines of the answer, and their records in JSON.

use pool::props::number::{nice, nice_bytes};
use serde::{Deserialize, Serialize};

/// A smaller part of what the data takes is no difference, however exact the prediction is.
const NO_DIFFERENCE: f64 = 0.01;

/// How a number about the pool is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Not given: the usual value is assumed.
    #[default]
    Assumed,
    /// The user gave it.
    Given,
    /// The pool of the data has it.
    Pool,
}

impl Origin {
    pub(super) const fn words(self) -> &'static str {
        match self {
            Origin::Assumed => "assumed",
            Origin::Given => "as given",
            Origin::Pool => "as in the pool",
        }
    }
}

/// A dataset as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stored {
    /// Its property `compression`.
    pub compression: String,
    /// Its property `recordsize`, in bytes.
    pub recordsize: u64,
    /// Its property `referenced`, in bytes; `None` where the question is about a part of the dataset.
    pub referenced_bytes: Option<u64>,
    /// Its property `copies`.
    pub copies: u64,
}

/// A dataset as it is, beside the first pick.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Now {
    /// The data as they are stored now.
    #[serde(flatten)]
    pub stored: Stored,
    /// The predicted bytes with the first pick; `None` where they are not known well enough.
    pub predicted_bytes: Option<f64>,
    /// Bytes that this saves, or costs if it is negative.
    pub saved_bytes: Option<f64>,
    /// The saved bytes as a part of the present size.
    pub saved_part: Option<f64>,
    /// Half of the interval that holds `predicted_bytes` with 95 %, as a part of it.
    pub half_width: f64,
}

impl Now {
    /// A dataset beside what is recommended: the bytes that it would take, and half of the width of their interval as a part
    /// of them. `None` if nothing is recommended.
    pub(super) fn beside(stored: Stored, recommended: Option<(f64, f64)>) -> Now {
        let known = stored.referenced_bytes.filter(|bytes| *bytes > 0 && stored.copies == 1);
        let both = known.zip(recommended).map(|(bytes, (then, _))| (bytes as f64, then));
        Now {
            predicted_bytes: both.map(|(_, then)| then),
            saved_bytes: both.map(|(now, then)| now - then),
            saved_part: both.map(|(now, then)| (now - then) / now),
            half_width: recommended.map_or(0.0, |(_, half_width)| half_width),
            stored,
        }
    }

    /// In one line.
    pub(super) fn line(&self) -> String {
        let Stored { compression, recordsize, referenced_bytes, copies } = &self.stored;
        let space = referenced_bytes.map_or(String::new(), |bytes| format!("{} with ", nice_bytes(bytes)));
        let mut text = format!("now: {space}compression={compression} and recordsize={}", nice(*recordsize));
        if *copies > 1 {
            text += &format!(", in {copies} copies");
        }
        let (Some(then), Some(saved), Some(part)) = (self.predicted_bytes, self.saved_bytes, self.saved_part)
        else {
            return text;
        };
        if part.abs() < NO_DIFFERENCE.max(self.half_width) {
            return text + "; as recommended: about the same";
        }
        let less = if saved > 0.0 { "less" } else { "more" };
        text + &format!(
            "; as recommended: {}, which is {} ({:.0} %) {less}, once all files are written again (cenote help recompress)",
            nice_bytes(then as u64),
            nice_bytes(saved.abs() as u64),
            per_cent(part.abs())
        )
    }
}

/// A part in per cent, never −0.
pub(super) fn per_cent(part: f64) -> f64 {
    (100.0 * part).round() + 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(referenced: Option<u64>, then: f64, copies: u64) -> Now {
        let referenced_bytes = referenced;
        let stored =
            Stored { compression: "lz4".to_owned(), recordsize: 128 << 10, referenced_bytes, copies };
        let both = referenced.filter(|_| copies == 1).map(|now| now as f64);
        Now {
            stored,
            predicted_bytes: both.map(|_| then),
            saved_bytes: both.map(|now| now - then),
            saved_part: both.map(|now| (now - then) / now),
            half_width: 0.02,
        }
    }

    #[test]
    fn a_line_says_what_a_dataset_takes_and_what_would_change() {
        let mib = |count: u64| count << 20;
        let line = |referenced: u64, then: u64| now(Some(mib(referenced)), mib(then) as f64, 1).line();
        assert_eq!(
            line(200, 150),
            "now: 200M with compression=lz4 and recordsize=128K; as recommended: 150M, which is 50.0M (25 %) less, once \
             all files are written again (cenote help recompress)"
                .replace("50.0M", &nice_bytes(mib(50)))
        );
        assert!(line(100, 150).contains("(50 %) more, once"), "{}", line(100, 150));
        assert!(line(100, 99).ends_with("; as recommended: about the same"), "{}", line(100, 99));
    }

    #[test]
    fn without_a_prediction_or_with_copies_nothing_is_compared() {
        assert_eq!(now(None, 1.0, 1).line(), "now: compression=lz4 and recordsize=128K");
        let copies = now(Some(1 << 20), 1.0, 2).line();
        assert_eq!(copies, "now: 1M with compression=lz4 and recordsize=128K, in 2 copies");
    }
}
