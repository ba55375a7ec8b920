//! For tests: a command line carried out in this process, and what it printed.

use clap::Parser;

use super::Cenote;
use crate::around::Surroundings;
use crate::messages::Failure;
use crate::out::Console;

/// The exit of the command, and its standard output.
pub fn call(line: &str) -> (Result<u8, Failure>, String) {
    let words = std::iter::once("cenote").chain(line.split_whitespace());
    let cenote = Cenote::try_parse_from(words).expect("a good line");
    let mut out = Vec::new();
    let mut console = Console::new(&mut out, std::io::sink());
    let ended = super::run(&cenote.command, &Surroundings::default(), &mut console);
    console.flush().expect("written");
    drop(console);
    (ended, String::from_utf8(out).expect("text"))
}

/// The message with which the command refused.
pub fn refusal(line: &str) -> String {
    match call(line).0 {
        Err(Failure::Refused(lines)) => lines.join("\n"),
        other => panic!("{other:?}"),
    }
}
