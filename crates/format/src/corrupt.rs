//! The one error of decoding.

use core::fmt;

/// Bytes that OpenZFS could not have written: which field, and the value found there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt {
    /// The structure and field, in the words of `docs/format`.
    pub what: &'static str,
    /// The offending value (or length, for short input).
    pub value: u64,
}

impl Corrupt {
    /// `what` holds the impossible `value`.
    #[must_use]
    pub const fn new(what: &'static str, value: u64) -> Corrupt {
        Corrupt { what, value }
    }
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} cannot be {:#x}", self.what, self.value)
    }
}

impl core::error::Error for Corrupt {}
