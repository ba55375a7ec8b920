//! `zpool sync`.

use super::zpool_misc;
use crate::args::flag;
use crate::command::Call;
use crate::command::{Command, Run, Targets};
use crate::messages::Failure;
use crate::open;

/// `zpool sync`.
pub static COMMAND: Command = Command {
    name: "sync",
    about: "writes everything to disk now",
    syntax: &["sync [-f] [POOL]…"],
    options: &[flag("f", "no difference here: every change of the configuration is written at once")],
    targets: Targets::Of(targets),
    run: Run::Here(zpool_misc::sync),
    ..Command::ZPOOL
};

/// The pools named, or all.
fn targets(call: &Call) -> Result<Vec<String>, Failure> {
    Ok(match call.args.operands.as_slice() {
        [] => open::names(call.around)?,
        names => names.to_vec(),
    })
}
