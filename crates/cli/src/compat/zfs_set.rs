//! `zfs set`.

use super::zfs_change;
use crate::args::flag;
use crate::command::Call;
use crate::command::{Command, Run, Targets};
use crate::messages::Failure;

/// `zfs set`.
pub static COMMAND: Command = Command {
    name: "set",
    about: "sets properties",
    syntax: &["set [-u] PROPERTY=VALUE… FILESYSTEM|VOLUME|SNAPSHOT…"],
    options: &[flag("u", "changes mountpoint or sharing in the pool alone, and mounts nothing")],
    targets: Targets::Of(targets),
    run: Run::Here(zfs_change::set),
    ..Command::ZFS
};

/// The operands behind the assignments.
fn targets(call: &Call) -> Result<Vec<String>, Failure> {
    Ok(call.args.operands.iter().skip_while(|word| word.contains('=')).cloned().collect())
}
