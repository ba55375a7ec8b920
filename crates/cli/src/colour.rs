//! Colours of text on terminals.
//!
//! From:   the environment.
//! To:     the beginnings and the end of coloured text, for [`crate::out`].

/// A colour of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// The answer.
    Bold,
    /// All is well.
    Green,
    /// For a state that needs attention.
    Yellow,
    /// Something is wrong.
    Red,
}

impl Colour {
    /// The codes that begin text of this colour.
    pub const fn codes(self) -> &'static str {
        match self {
            Colour::Bold => "\x1b[1m",
            Colour::Green => "\x1b[1;32m",
            Colour::Yellow => "\x1b[1;33m",
            Colour::Red => "\x1b[1;31m",
        }
    }
}

/// Ends coloured text.
pub const PLAIN: &str = "\x1b[0m";

/// Whether the terminal takes no more than lines of text: nothing on it can be drawn again.
pub fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Whether the environment lets a terminal have colours: `NO_COLOR` is empty or not set, and the terminal is not a dumb one.
pub fn wants_colour(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> bool {
    let refused = variable("NO_COLOR").is_some_and(|value| !value.is_empty());
    !refused && variable("TERM").is_some_and(|value| !value.is_empty() && value != "dumb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_says_whether_there_are_colours() {
        let of = |term: Option<&str>, no: Option<&str>| {
            wants_colour(|name| if name == "TERM" { term } else { no }.map(Into::into))
        };
        assert!(of(Some("xterm"), None) && of(Some("xterm"), Some("")));
        assert!(!of(Some("xterm"), Some("1")) && !of(Some("dumb"), None) && !of(None, None));
    }
}
