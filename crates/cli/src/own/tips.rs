//! Suggestions for a mistaken command line of `cenote`.
//!
//! From:   an error of clap.
//! To:     the same error with a tip that names the command line to write.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::command::Program;
use crate::{compat, programs};

/// The error with a better tip, where there is one.
pub(super) fn with_tip(mut error: clap::Error) -> clap::Error {
    let word = |error: &clap::Error, kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.clone()),
        _ => None,
    };
    let tip = match error.kind() {
        ErrorKind::UnknownArgument => word(&error, ContextKind::InvalidArg).and_then(|word| before(&word)),
        ErrorKind::InvalidSubcommand => word(&error, ContextKind::InvalidSubcommand)
            .and_then(|word| of_image(&word).or_else(|| of_program(&word))),
        ErrorKind::MissingSubcommand => {
            error.remove(ContextKind::ValidSubcommand);
            Some(
                "'zfs list' lists what is in it, 'help truenas' is a guide, 'help' lists all commands"
                    .to_owned(),
            )
        }
        _ => None,
    };
    if let Some(tip) = tip {
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// The name of a file or a device where a command belongs.
fn of_image(word: &str) -> Option<String> {
    let is_there = word.contains(['.', '/']) && std::path::Path::new(word).exists();
    is_there.then(|| format!("'cenote -d {word} zfs list' lists what is in it"))
}

/// `-d` stands before the command.
fn before(word: &str) -> Option<String> {
    (word == "-d")
        .then(|| "'-d DIR|FILE' stands before the command: 'cenote -d DIR|FILE COMMAND …'".to_owned())
}

/// A command of `zpool` or `zfs` without the name of its program, perhaps misspelt.
fn of_program(word: &str) -> Option<String> {
    let exact = Program::ALL.into_iter().filter(|program| compat::command(*program, word).is_some());
    let mut called: Vec<String> =
        exact.map(|program| format!("'cenote {} {word}'", program.name())).collect();
    if called.is_empty() && super::is_like_own(word) {
        return None;
    }
    if called.is_empty() {
        let near = |program: Program| {
            Some(format!("'cenote {} {}'", program.name(), programs::nearest(program, word)?))
        };
        called.extend(Program::ALL.into_iter().filter_map(near));
    }
    (!called.is_empty()).then(|| format!("did you mean {}?", called.join(" or ")))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::own::Cenote;

    fn said(line: &str) -> String {
        let words = std::iter::once("cenote").chain(line.split_whitespace());
        with_tip(Cenote::try_parse_from(words).expect_err(line)).to_string()
    }

    #[test]
    fn a_tip_names_the_command_that_was_meant() {
        for (line, tip) in [
            ("cp -d x.img tank:/a .", "tip: '-d DIR|FILE' stands before the command"),
            ("status", "tip: did you mean 'cenote zpool status'?"),
            ("list", "tip: did you mean 'cenote zfs list' or 'cenote zpool list'?"),
            ("snapshot tank@x", "tip: did you mean 'cenote zfs snapshot'?"),
            ("scurb tank", "tip: did you mean 'cenote zpool scrub'?"),
            ("chekc", "'check'"),
            ("./src", "'cenote -d ./src zfs list' lists what is in it"),
            ("-d disk.img", "'zfs list' lists what is in it"),
        ] {
            assert!(said(line).contains(tip), "{line}: {}", said(line));
        }
        assert!(!said("status").contains("'stat'") && !said("xyzzy").contains("tip"));
    }
}
