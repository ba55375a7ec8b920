//! What a misspelt word probably means.
//!
//! From:   a failure of a command of `zfs` or `zpool` that names a property or an option.
//! To:     one more line, which people alone are shown: programs expect the words of OpenZFS and nothing else.

use pool::props::{Property, dataset, pool as pool_props, vdev};

use crate::command::{Command, Program};
use crate::messages::{Failure, io_words};

/// Similarity (Jaro, 0 to 1) of a misspelt word: one changed or swapped letter leaves 0.85 and more.
const NEAR: f64 = 0.8;
/// What stands before a word that is no property.
const PROPERTIES: [&str; 2] = ["invalid property '", "invalid property: '"];
/// What stands before the path of a device that cannot be found.
const DEVICE: &str = "cannot resolve path '";
/// What stands before a word that is no option.
const OPTION: &str = "invalid option '--";

/// The word among `all` that `word` is most likely a misspelling of, if any is near.
pub fn nearest<'a>(word: &str, all: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near = all.map(|other| (strsim::jaro(other, word), other)).filter(|(alike, _)| *alike > NEAR);
    near.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, other)| other)
}

/// The failure with a suggestion below its first line, where a word of it is nearly right.
#[must_use]
pub fn with_suggestion(failure: Failure, program: Program, command: &Command) -> Failure {
    match failure {
        Failure::Usage(line) => match suggestion(&line, program, command) {
            Some(more) => Failure::Usage(format!("{line}\n{more}")),
            None => Failure::Usage(line),
        },
        Failure::Refused(lines) => match lines.iter().find_map(|line| suggestion(line, program, command)) {
            Some(more) => Failure::Refused(lines).hint(more),
            None => Failure::Refused(lines),
        },
        other => other,
    }
}

/// A property as two tables have it may be a property of the other one.
fn properties(program: Program) -> impl Iterator<Item = &'static str> {
    let tables: [&'static [Property]; 2] = match program {
        Program::Zfs => [dataset::VISIBLE, &[]],
        Program::Zpool => [pool_props::VISIBLE, vdev::VISIBLE],
    };
    let both = tables.into_iter().flatten();
    both.flat_map(|property| std::iter::once(property.name).chain(property.alias))
}

fn suggestion(line: &str, program: Program, command: &Command) -> Option<String> {
    let quoted = |start: &str| line.split_once(start)?.1.split('\'').next();
    if let Some(word) = PROPERTIES.iter().find_map(|start| quoted(start)) {
        let near = nearest(word, properties(program))?;
        return Some(format!("did you mean '{near}'? '{} help properties' lists them all", program.name()));
    }
    if let Some(path) = quoted(DEVICE) {
        return unreachable(path);
    }
    let word = quoted(OPTION)?.split('=').next()?;
    let long =
        command.options.iter().flat_map(|option| option.spellings()).filter(|spelling| spelling.len() > 1);
    let near = nearest(word, long)?;
    Some(format!("did you mean '--{near}'?"))
}

/// Why there is no device at `path`.
fn unreachable(path: &str) -> Option<String> {
    let error = std::fs::metadata(path).err()?;
    Some(match error.kind() {
        std::io::ErrorKind::NotFound if path.starts_with("/dev/") => "there is no such device".to_owned(),
        std::io::ErrorKind::NotFound => {
            format!("there is no such file: 'truncate -s 1G {path}' makes one that a pool can be in")
        }
        _ => format!("'{path}': {}", io_words(&error)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compat;

    fn said(program: Program, command: &str, line: &str) -> Option<String> {
        suggestion(line, program, compat::command(program, command).expect(command))
    }

    #[test]
    fn every_name_of_a_property_and_of_an_option_is_found_with_a_letter_missing() {
        for program in Program::ALL {
            let command = compat::commands(program)[0];
            for name in properties(program).filter(|name| name.len() > 6) {
                let typed = &name[..name.len() - 1];
                if properties(program).any(|other| other == typed) {
                    continue;
                }
                let line = format!("cannot set property for 'tank': invalid property '{typed}'");
                assert!(suggestion(&line, program, command).is_some(), "{name}");
            }
        }
        let lines = [
            (Program::Zfs, "set", "invalid property 'compresion'", "did you mean 'compression'? "),
            (
                Program::Zfs,
                "list",
                "bad property list: invalid property 'refrenced'",
                "did you mean 'referenced'? ",
            ),
            (
                Program::Zpool,
                "set",
                "cannot set property for 'tank': invalid property 'autotirm'",
                "did you mean 'autotrim'? ",
            ),
            (Program::Zfs, "list", "invalid option '--jsno-int'", "did you mean '--json-int'?"),
            (
                Program::Zpool,
                "create",
                "cannot resolve path '/no/such'",
                "there is no such file: 'truncate -s 1G /no/such' makes one",
            ),
        ];
        for (program, command, line, wanted) in lines {
            let said = said(program, command, line).expect(line);
            assert!(said.starts_with(wanted), "{said}");
        }
    }

    #[test]
    fn nothing_is_guessed_where_nothing_is_near() {
        for line in [
            "invalid property 'xyzzy'",
            "invalid option '--xyzzy'",
            "invalid option 'q'",
            "missing pool name",
        ] {
            assert_eq!(said(Program::Zfs, "list", line), None, "{line}");
        }
    }
}
