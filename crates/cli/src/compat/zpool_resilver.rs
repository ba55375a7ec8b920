//! `zpool resilver`.

use super::zpool_devices;
use crate::command::{Command, Run, Targets};

/// `zpool resilver`.
pub static COMMAND: Command = Command {
    name: "resilver",
    about: "begins a resilver anew",
    syntax: &["resilver POOL…"],
    targets: Targets::All,
    run: Run::Here(|call, _| zpool_devices::run(call)),
    ..Command::ZPOOL
};
