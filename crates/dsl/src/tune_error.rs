//! Why a tunable does not take a value, and how its values are written.

/// How values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes, also with a suffix: `64M`.
    Bytes,
    /// A number without a unit.
    Percent,
    /// A number without a unit.
    Nanoseconds,
    /// A number without a unit.
    Milliseconds,
    /// A number without a unit.
    Seconds,
    /// A number without a unit.
    Blocks,
    /// One of these words; the value is its place.
    Word(&'static [&'static str]),
}

impl Kind {
    /// As the manual calls it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Kind::Bytes => "bytes",
            Kind::Percent => "percent",
            Kind::Nanoseconds => "nanoseconds",
            Kind::Milliseconds => "milliseconds",
            Kind::Seconds => "seconds",
            Kind::Blocks => "blocks",
            Kind::Word(_) => "word",
        }
    }
}

/// Why a tunable does not take a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TuneError {
    /// Not in [`crate::tune::ALL`].
    #[error("there is no tunable '{0}'")]
    Unknown(String),
    /// Neither a number nor a size.
    #[error("'{text}' is not a number of {} for {name}", kind.word())]
    NotANumber {
        /// The tunable.
        name: &'static str,
        /// How its values are written.
        kind: Kind,
        /// The text that was given.
        text: String,
    },
    /// Not one of its words.
    #[error("{name} is one of {}", words.join(", "))]
    NotAWord {
        /// The tunable.
        name: &'static str,
        /// The words that the tunable takes.
        words: &'static [&'static str],
    },
    /// Outside of its limits.
    #[error("{name} is between {min} and {max} {}", kind.word())]
    OutOfRange {
        /// The tunable.
        name: &'static str,
        /// How its values are written.
        kind: Kind,
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
    },
}
