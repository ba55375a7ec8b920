//! `zpool prefetch`.

use super::zpool_misc;
use crate::args::value;
use crate::command::{Command, Run};

/// `zpool prefetch`.
pub static COMMAND: Command = Command {
    name: "prefetch",
    about: "reads tables of the pool into memory",
    syntax: &["prefetch [-t TYPE] POOL"],
    options: &[value("t", "which: ddt or brt")],
    run: Run::Here(|call, _| zpool_misc::prefetch(call)),
    ..Command::ZPOOL
};
