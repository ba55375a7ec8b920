//! The operands of `zpool iostat`: pools, one pool and vdevs of it, or vdevs of any pools.
//!
//! From:   the command line; the pools that are known, and their vdevs.
//! To:     the report. The words for what they cannot name are those of OpenZFS 2.3.2.

use super::Options;
use crate::command::Typed;
use crate::compat::view::{Naming, PoolView, VdevView};
use crate::messages::Failure;
use crate::open;

/// The pools and vdevs that a command line asks for.
pub(super) struct Wanted {
    pub(super) pools: Vec<String>,
    /// Vdevs of these pools; all of their own if empty.
    pub(super) vdevs: Vec<String>,
}

/// Reads operands; without any, all pools are meant.
///
/// # Errors
/// They name neither pools alone, nor vdevs of the pool that is first, nor vdevs alone. A pool that cannot be opened.
pub(super) fn wanted(call: &Typed<Options>, operands: Vec<String>) -> Result<Wanted, Failure> {
    let mut known: Vec<String> = open::usable(call.around)?.into_iter().map(|pool| pool.name).collect();
    if operands.iter().all(|word| known.contains(word)) {
        known.retain(|name| operands.is_empty() || operands.contains(name));
        return Ok(Wanted { pools: known, vdevs: Vec::new() });
    }
    let tree = |pool: &String| {
        open::find(pool, call.around).map(|found| PoolView::new(found).shown(Naming::default()))
    };
    match operands.split_first() {
        Some((pool, vdevs)) if known.contains(pool) => {
            let own = tree(pool)?;
            if vdevs.iter().all(|name| has(&own, name)) {
                return Ok(Wanted { pools: vec![pool.clone()], vdevs: vdevs.to_vec() });
            }
            let others: Vec<_> =
                known.iter().filter(|other| *other != pool).filter_map(|other| tree(other).ok()).collect();
            let kind = |word: &String| match () {
                () if known.contains(word) => "pool",
                () if has(&own, word) => "vdev in this pool",
                () if others.iter().any(|other| has(other, word)) => "vdev in another pool",
                () => "unknown",
            };
            let got: String = vdevs.iter().map(|word| format!("\t{word} ({})\n", kind(word))).collect();
            Err(Failure::usage(format!(
                "Expected either a list of pools, or list of vdevs in \"{pool}\", but got:\n{got}"
            )))
        }
        _ => {
            let mut owners = Vec::new();
            let mut lost = operands.clone();
            for pool in known {
                let own = tree(&pool)?;
                if operands.iter().any(|name| has(&own, name)) {
                    owners.push(pool);
                }
                lost.retain(|name| !has(&own, name));
            }
            match lost.is_empty() {
                true => Ok(Wanted { pools: owners, vdevs: operands }),
                false => Err(Failure::refused("Unable to parse pools/vdevs list.").hint("")),
            }
        }
    }
}

/// Whether one of the vdevs has this name, path or guid.
fn has(vdevs: &[VdevView], name: &str) -> bool {
    vdevs.iter().any(|vdev| find(vdev, name).is_some())
}

/// The vdev with this name, path or guid, among a vdev and those below it.
pub(super) fn find<'a>(vdev: &'a VdevView, name: &str) -> Option<&'a VdevView> {
    let it = vdev.name == name || vdev.path.as_deref() == Some(name) || vdev.guid.0.to_string() == name;
    if it { Some(vdev) } else { vdev.children.iter().find_map(|child| find(child, name)) }
}
