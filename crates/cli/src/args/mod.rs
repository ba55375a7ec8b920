//! Command lines of `zfs` and `zpool`: options anywhere, as GNU getopt reads them.
//!
//! From:   the words after a subcommand.
//! To:     the subcommand: its options in order and its operands.
//!
//! Options may follow operands (`zfs create tank/a -o compress=on`), cluster (`-Hp`), carry their argument
//! attached or apart (`-oname`, `-o name`, `--exclude=x`, `--exclude x`); `--` ends them. With
//! `POSIXLY_CORRECT` set the first operand ends them too. Long options may be shortened while they stay unique.

mod assign;
pub mod list;

pub use assign::{AssignError, Assignments, assignment};
use thiserror::Error;

/// The option that all commands take: errors and results only. It is read before the others.
pub const QUIET: &str = "--quiet";

/// An option that a subcommand takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// All spellings, without dashes, with bars between them: `j|json`. The first is the name under which it is found.
    spellings: &'static str,
    /// Whether it takes an argument, and which.
    pub argument: Argument,
    /// The effect of the option.
    pub about: &'static str,
    /// It is taken, and changes nothing here.
    pub is_idle: bool,
}

/// The argument that an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Argument {
    /// The option is a switch.
    None,
    /// No argument; the option means every pool.
    NoneForEveryPool,
    /// Names of properties, or assignments to them.
    Property,
    /// Something else.
    Value,
}

/// An option without an argument.
pub const fn flag(spellings: &'static str, about: &'static str) -> Choice {
    Choice { spellings, argument: Argument::None, about, is_idle: false }
}

/// An option that stands for every pool: in the server of one pool, for that pool.
pub const fn every_pool(spellings: &'static str, about: &'static str) -> Choice {
    Choice { spellings, argument: Argument::NoneForEveryPool, about, is_idle: false }
}

/// An option whose argument is about properties.
pub const fn property(spellings: &'static str, about: &'static str) -> Choice {
    Choice { spellings, argument: Argument::Property, about, is_idle: false }
}

/// An option with another argument.
pub const fn value(spellings: &'static str, about: &'static str) -> Choice {
    Choice { spellings, argument: Argument::Value, about, is_idle: false }
}

impl Choice {
    /// The same option, without an effect in this command.
    pub const fn idle(self) -> Choice {
        Choice { is_idle: true, ..self }
    }

    /// The name under which it is found.
    pub fn name(&self) -> &'static str {
        self.spellings().next().unwrap_or_default()
    }

    /// All its names without dashes, the one it is found under first.
    pub fn spellings(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.spellings.split('|')
    }

    /// Whether it wants an argument.
    pub const fn takes(&self) -> bool {
        matches!(self.argument, Argument::Property | Argument::Value)
    }

    /// Whether the option means every pool, as `zpool export -a` does.
    pub const fn is_for_every_pool(&self) -> bool {
        matches!(self.argument, Argument::NoneForEveryPool)
    }
}

/// Errors in a command line. The texts are the first lines that OpenZFS prints.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs, reason = "the text of each says what it means")]
pub enum ArgError {
    #[error("invalid option '{0}'")]
    Invalid(String),
    #[error("missing argument for '{0}' option")]
    MissingArgument(String),
    /// `-?`: not an error of the user's, it asks for the usage text alone, where OpenZFS prints it: on standard error.
    #[error("")]
    Usage,
    /// `--help`, and `-h` where it is no option: the help text is the result.
    #[error("")]
    Help,
}

/// A command line taken apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parsed {
    /// Options by their name in the order given, each with its argument if it takes one.
    pub options: Vec<(&'static str, Option<String>)>,
    /// All words that are neither options nor arguments of options, in order.
    pub operands: Vec<String>,
}

impl Parsed {
    /// Whether the option was given at least once.
    pub fn has(&self, name: &str) -> bool {
        self.count(name) > 0
    }

    /// How often an option was given.
    pub fn count(&self, name: &str) -> usize {
        self.options.iter().filter(|(n, _)| *n == name).count()
    }

    /// The argument of an option; the last one given counts.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.options.iter().rev().find(|(n, _)| *n == name).and_then(|(_, value)| value.as_deref())
    }

    /// As [`Parsed::value`], to be kept.
    pub fn text(&self, name: &str) -> Option<String> {
        self.value(name).map(str::to_owned)
    }

    /// As [`Parsed::values`], to be kept.
    pub fn texts(&self, name: &str) -> Vec<String> {
        self.values(name).map(str::to_owned).collect()
    }

    /// The arguments of two options in the order given, each with whether it is one of the `second`.
    pub fn mixed(&self, first: &str, second: &str) -> Vec<(String, bool)> {
        let of = |(name, value): &(&str, Option<String>)| {
            let value = value.clone().filter(|_| [first, second].contains(name))?;
            Some((value, *name == second))
        };
        self.options.iter().filter_map(of).collect()
    }

    /// Which of these options were given, in the order given.
    pub fn in_order<const N: usize>(&self, names: [&'static str; N]) -> Vec<&'static str> {
        self.options.iter().map(|(name, _)| *name).filter(|name| names.contains(name)).collect()
    }

    /// Every argument given to an option, in order.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.options.iter().filter(move |(n, _)| *n == name).filter_map(|(_, value)| value.as_deref())
    }
}

fn by_letter(choices: &[Choice], letter: char) -> Option<&Choice> {
    let is_letter = |s: &str| s.chars().eq([letter]);
    choices.iter().find(|choice| choice.spellings().any(is_letter))
}

/// A long option by its full spelling, or by a beginning that only one option has.
fn by_word<'a>(choices: &'a [Choice], word: &str) -> Option<&'a Choice> {
    let mut begun: Option<&Choice> = None;
    let mut several = false;
    for choice in choices {
        for spelling in choice.spellings().filter(|s| s.chars().count() > 1) {
            if spelling == word {
                return Some(choice);
            }
            if spelling.starts_with(word) && !word.is_empty() {
                several |= begun.is_some_and(|other| other.name() != choice.name());
                begun = Some(choice);
            }
        }
    }
    begun.filter(|_| !several)
}

/// Takes a command line apart; `posix` stops at the first operand.
///
/// # Errors
/// [`ArgError`] at the first option that is unknown or lacks its argument.
pub fn parse(choices: &[Choice], words: &[String], posix: bool) -> Result<Parsed, ArgError> {
    let mut parsed = Parsed::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--" {
            parsed.operands.extend(words.by_ref().cloned());
        } else if let Some(long) = word.strip_prefix("--") {
            let (spelling, attached) = match long.split_once('=') {
                Some((spelling, value)) => (spelling, Some(value.to_owned())),
                None => (long, None),
            };
            if spelling == "help" {
                return Err(ArgError::Help);
            }
            if word == QUIET && by_word(choices, spelling).is_none() {
                continue;
            }
            let invalid = || ArgError::Invalid(word.clone());
            let choice = by_word(choices, spelling).ok_or_else(invalid)?;
            let value = match (choice.takes(), attached) {
                (true, Some(value)) => Some(value),
                (true, None) => {
                    let missing = || ArgError::MissingArgument(spelling.to_owned());
                    Some(words.next().ok_or_else(missing)?.clone())
                }
                (false, None) => None,
                (false, Some(_)) => return Err(invalid()),
            };
            parsed.options.push((choice.name(), value));
        } else if let Some(cluster) = word.strip_prefix('-').filter(|rest| !rest.is_empty()) {
            let mut letters = cluster.chars();
            while let Some(letter) = letters.next() {
                if letter == '?' {
                    return Err(ArgError::Usage);
                }
                if cluster == "h" && by_letter(choices, letter).is_none() {
                    return Err(ArgError::Help);
                }
                let invalid = || ArgError::Invalid(letter.to_string());
                let choice = by_letter(choices, letter).ok_or_else(invalid)?;
                if !choice.takes() {
                    parsed.options.push((choice.name(), None));
                    continue;
                }
                let attached = std::mem::replace(&mut letters, "".chars()).as_str();
                let value = match attached {
                    "" => words.next().cloned(),
                    attached => Some(attached.to_owned()),
                };
                let value = value.ok_or_else(|| ArgError::MissingArgument(letter.to_string()))?;
                parsed.options.push((choice.name(), Some(value)));
            }
        } else {
            parsed.operands.push(word.clone());
            if posix {
                parsed.operands.extend(words.by_ref().cloned());
            }
        }
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIST: &[Choice] = &[
        flag("H", ""),
        flag("p", ""),
        flag("r", ""),
        flag("v", ""),
        flag("j|json", ""),
        flag("json-int", ""),
        flag("json-flat-vdevs", ""),
        value("d", ""),
        value("o", ""),
        value("t", ""),
        value("X|exclude", ""),
    ];

    fn parse(line: &str) -> Result<Parsed, String> {
        let words: Vec<String> = line.split(' ').filter(|w| !w.is_empty()).map(str::to_owned).collect();
        super::parse(LIST, &words, false).map_err(|e| e.to_string())
    }

    #[test]
    fn options_may_stand_anywhere() {
        let parsed = parse("tank/a -o name -Hp tank/b").expect("good");
        assert_eq!(parsed.operands, ["tank/a", "tank/b"]);
        assert_eq!(
            (parsed.value("o"), parsed.has("H"), parsed.has("p"), parsed.has("r")),
            (Some("name"), true, true, false)
        );
    }

    #[test]
    fn arguments_are_attached_or_apart_and_the_last_counts() {
        let parsed = parse("-d1 -Honame -o used --exclude=a=b --exclude c -t").map(|_| ());
        assert_eq!(parsed, Err("missing argument for 't' option".to_owned()));
        let parsed = parse("-d1 -Honame -o used --exclude=a=b -X c").expect("good");
        assert_eq!(parsed.value("d"), Some("1"));
        assert_eq!(parsed.values("o").collect::<Vec<_>>(), ["name", "used"]);
        assert_eq!(parsed.values("X").collect::<Vec<_>>(), ["a=b", "c"]);
        assert_eq!(parsed.value("o"), Some("used"));
    }

    #[test]
    fn two_dashes_end_options_and_one_dash_is_an_operand() {
        let parsed = parse("-H -- -p - tank").expect("good");
        assert_eq!(
            (parsed.operands, parsed.options.len()),
            (vec!["-p".into(), "-".into(), "tank".into()], 1)
        );
        assert_eq!(parse("- -H").expect("good").operands, ["-"]);
    }

    #[test]
    fn posix_stops_at_the_first_operand() {
        let words = ["-H", "tank", "-p"].map(str::to_owned);
        let parsed = super::parse(LIST, &words, true).expect("good");
        assert_eq!((parsed.operands.len(), parsed.has("p")), (2, false));
    }

    #[test]
    fn long_options_may_be_shortened_while_unique() {
        assert!(parse("--json").expect("good").has("j"));
        assert!(parse("--json-i").expect("good").has("json-int"));
        assert_eq!(parse("--json-"), Err("invalid option '--json-'".to_owned()));
        assert_eq!(parse("--json=x"), Err("invalid option '--json=x'".to_owned()));
        assert_eq!(parse("--excl"), Err("missing argument for 'excl' option".to_owned()));
    }

    #[test]
    fn unknown_options_are_named() {
        assert_eq!(parse("tank -z"), Err("invalid option 'z'".to_owned()));
        assert_eq!(parse("-Hz"), Err("invalid option 'z'".to_owned()));
        assert_eq!(parse("--nosuch"), Err("invalid option '--nosuch'".to_owned()));
        for (word, asked) in [("-?", ArgError::Usage), ("--help", ArgError::Help), ("-h", ArgError::Help)] {
            assert_eq!(super::parse(LIST, &[word.to_owned()], false), Err(asked), "{word}");
        }
        // A blank or a bar in the table of options is never an option itself.
        assert_eq!(parse("-|"), Err("invalid option '|'".to_owned()));
        assert_eq!(parse("-:"), Err("invalid option ':'".to_owned()));
    }

    proptest! {
        #[test]
        fn any_command_line_is_parsed_or_refused(words in prop::collection::vec("[-=a-zH?é|:]{0,6}", 0..6), posix: bool) {
            let _ = super::parse(LIST, &words, posix);
        }
    }
}
