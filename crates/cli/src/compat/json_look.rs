//! How the JSON of `zpool status` shows numbers, sizes, dates and spans of time.
//!
//! Source: the output of `zpool status -j` of OpenZFS 2.3.2.

use pool::props::number::{nice, nice_bytes, nice_time};
use serde_json::Value;

use crate::dates::{self, Form};
use crate::json;

/// How JSON shows numbers, sizes and dates: for people unless `-p` or `--json-int`.
#[derive(Clone, Copy)]
pub(super) struct Look {
    pub(super) raw: bool,
    pub(super) as_int: bool,
}

impl Look {
    /// A number.
    pub(super) fn number(self, n: u64) -> Value {
        json::scalar(&n.to_string(), self.as_int)
    }

    /// A size.
    pub(super) fn size(self, n: u64) -> Value {
        if self.raw { self.number(n) } else { json::scalar(&nice(n), self.as_int) }
    }

    /// A size with its unit, also when it is small.
    pub(super) fn bytes(self, n: u64) -> Value {
        if self.raw { self.number(n) } else { nice_bytes(n).into() }
    }

    /// A point in time in seconds since 1970; 0 for one that has not come.
    pub(super) fn date(self, time: u64) -> Value {
        match (time, self.raw) {
            (_, true) => self.number(time),
            (0, false) => "-".into(),
            (_, false) => dates::show(time, Form::Stamp).into(),
        }
    }

    /// How long something took.
    pub(super) fn span(self, nanos: u64) -> Value {
        if self.raw { self.number(nanos) } else { nice_time(nanos).into() }
    }
}
