//! `zpool ddtprune`.

use super::Call;
use super::zpool_devices::opened;
use crate::args::{Parsed, value};
use crate::command::{Command, Run, Targets};
use crate::messages::Failure;

/// `zpool ddtprune`.
pub static COMMAND: Command = Command {
    name: "ddtprune",
    about: "takes old entries out of the deduplication table",
    syntax: &["ddtprune -d DAYS|-p PERCENT POOL"],
    examples: &["zpool ddtprune -d 90 tank", "zpool ddtprune -p 10 tank"],
    options: &[
        value("d", "removes the entries with one reference that did not change for this many days"),
        value("p", "removes this percentage of the entries with one reference, oldest first"),
    ],
    targets: Targets::First,
    run: Run::Here(|call, _| run(call)),
    ..Command::ZPOOL
};

/// The options of `zpool ddtprune`.
struct Options {
    days: Option<String>,
    percent: Option<String>,
}

fn read(args: &Parsed) -> Options {
    Options { days: args.text("d"), percent: args.text("p") }
}

impl Options {
    /// Which entries are meant.
    fn prune(&self) -> Result<pool::Prune, Failure> {
        let number = |text: &str| text.parse::<u64>().ok().filter(|number| *number > 0);
        match (&self.days, &self.percent) {
            (Some(_), Some(_)) => Err(Failure::usage("-d cannot be combined with -p option")),
            (Some(days), None) => {
                let days = number(days).ok_or_else(|| Failure::usage("invalid days value"))?;
                Ok(pool::Prune::Older(days.saturating_mul(24 * 60 * 60)))
            }
            (None, Some(percent)) => {
                let percent = number(percent).filter(|percent| *percent <= 100);
                Ok(pool::Prune::Percent(percent.ok_or_else(|| Failure::usage("invalid percentage value"))?))
            }
            (None, None) => Err(Failure::usage("missing amount option")),
        }
    }
}

/// Runs `zpool ddtprune`. Tables without logs have nothing that can be pruned.
///
/// # Errors
/// The arguments are wrong, or the pool is missing or cannot be written.
fn run(call: &Call) -> Result<(), Failure> {
    let call = &call.typed(read);
    let which = call.options.prune()?;
    let [name] = call.args.operands.as_slice() else {
        let words =
            if call.args.operands.is_empty() { "missing pool argument" } else { "too many arguments" };
        return Err(Failure::usage(words));
    };
    let failed = |why: &str| Failure::refused(format!("cannot prune dedup table on '{name}': {why}"));
    let session = opened(call, name, &failed)?;
    session.pool().prune_dedup(which).map_err(|error| failed(&error.to_string()))?;
    session.finish()
}
