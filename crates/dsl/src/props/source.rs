//! Where a value in effect came from: the SOURCE column.

use std::fmt;

/// The origin of a property's value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// Computed, or the property does not apply or is unset.
    None,
    /// The built-in default.
    Default,
    /// Set here.
    Local,
    /// Set (or received) on the named ancestor.
    Inherited(String),
    /// Came with a stream and was not overridden.
    Received,
    /// A mount option or import option in effect for now.
    Temporary,
}

impl Source {
    /// The words of `zfs get -s`, in their order.
    pub const WORDS: [&'static str; 6] = ["local", "default", "inherited", "received", "temporary", "none"];

    /// The word by which `zfs get -s` selects this source.
    pub const fn word(&self) -> &'static str {
        match self {
            Source::None => "none",
            Source::Default => "default",
            Source::Local => "local",
            Source::Inherited(_) => "inherited",
            Source::Received => "received",
            Source::Temporary => "temporary",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::None => f.write_str("-"),
            Source::Inherited(from) => write!(f, "inherited from {from}"),
            other => f.write_str(other.word()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_read_as_in_the_source_column() {
        assert_eq!(Source::None.to_string(), "-");
        assert_eq!(Source::Inherited("tank/a".to_owned()).to_string(), "inherited from tank/a");
        assert_eq!(Source::Received.to_string(), "received");
    }
}
