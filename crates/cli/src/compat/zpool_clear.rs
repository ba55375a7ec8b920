//! `zpool clear`.

use super::zpool_scrub;
use crate::args::flag;
use crate::command::{Beside, Command, Run, Targets};

/// `zpool clear`.
pub static COMMAND: Command = Command {
    name: "clear",
    about: "forgets errors of devices",
    syntax: &["clear [[--power]|[-nF]] POOL [DEVICE]"],
    options: &[
        flag("F", "opens the pool at an earlier state"),
        flag("n", "only says whether that would do"),
        flag("X", "tries any earlier state"),
        flag("power", "switches slots on"),
    ],
    targets: Targets::First,
    beside: Beside::TakesTurns,
    run: Run::Here(|call, _| zpool_scrub::clear(call)),
    ..Command::ZPOOL
};
