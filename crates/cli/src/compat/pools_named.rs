//! The pools that a command names.

use super::Call;
use crate::messages::Failure;
use crate::open::{self};
use crate::out::Console;

/// The named pools, or all. An error is printed for each missing pool.
pub(super) fn pools_named(call: &Call, console: &mut Console) -> Result<Vec<String>, Failure> {
    let all: Vec<String> = open::usable(call.around)?.into_iter().map(|pool| pool.name).collect();
    if call.args.operands.is_empty() {
        return Ok(all);
    }
    let mut named = Vec::new();
    for name in &call.args.operands {
        if all.contains(name) {
            named.push(name.clone());
        } else {
            console.complain(open::no_such_pool(name))?;
        }
    }
    Ok(named)
}
