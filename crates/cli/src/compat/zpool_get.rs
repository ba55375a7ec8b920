//! `zpool get`.

use super::zpool_props;
use crate::args::{flag, property};
use crate::command::Call;
use crate::command::{Beside, Command, Run, Subjects, Targets, Visitors};
use crate::messages::Failure;
use crate::open;

/// `zpool get`.
pub static COMMAND: Command = Command {
    name: "get",
    about: "shows properties",
    syntax: &[
        "get [-Hp] [-j [--json-int] [--json-pool-key-guid]] [-o all|FIELD[,…]] all|PROPERTY[,PROPERTY]… [POOL]…",
        "get [-Hp] [-o all|FIELD[,…]] all|PROPERTY[,PROPERTY]… POOL all-vdevs|VDEV…",
    ],
    options: &[
        flag("H", "no headings, tabs between fields"),
        flag("p", "exact numbers"),
        flag("j|json", "as JSON"),
        flag("json-int", "numbers as numbers in JSON"),
        flag("json-pool-key-guid", "pools by guid in JSON"),
        property("o", "these fields: name, property, value, source, all"),
    ],
    targets: Targets::Of(targets),
    beside: Beside::Reads { but: &[] },
    visitors: Some(Visitors {
        operands: Subjects::PropertiesOfPools,
        options: &["H", "p", "j", "json-int", "json-pool-key-guid", "o"],
    }),
    run: Run::Here(zpool_props::get),
    ..Command::ZPOOL
};

/// The pool, if its devices are asked about: what they did, its server knows.
fn targets(call: &Call) -> Result<Vec<String>, Failure> {
    let operands = &call.args.operands;
    if operands.len() <= 2 {
        return Ok(Vec::new());
    }
    let all = open::names(call.around)?;
    let vdevs = operands.iter().skip(2).any(|word| !all.contains(word));
    Ok(operands.get(1).filter(|_| vdevs).into_iter().cloned().collect())
}
