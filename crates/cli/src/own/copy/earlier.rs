//! `cenote cp --resume`: a copy that continues an earlier one.
//!
//! The first copy of a folder to a name that nothing had makes a folder of that name. When the same command is given again the
//! name is a folder, and the copy would go below it, beside what is there already.

use super::node::Node;
use super::sink::{Policy, Sink};
use super::{Found, Target};
use crate::messages::Failure;
use crate::out::quoted;

/// Names of the source that are looked for in the destination, at most.
const LOOKED_FOR: usize = 10_000;

/// Refuses a copy that may go below an earlier copy of the same folder. `shown` is the destination as the user wrote it.
///
/// # Errors
/// The destination has names of the source, but not the source's own name.
pub fn not_below_it<S: Sink>(
    sink: &S,
    target: &Target<S::Dir>,
    (sources, policy): (&[Found], &Policy),
    shown: &str,
) -> Result<(), Failure> {
    let [source] = sources else { return Ok(()) };
    if !policy.resume || target.name.is_some() || source.name.is_empty() || !source.is_dir {
        return Ok(());
    }
    // An error means that another kind of node has the name.
    if !matches!(sink.enter(&target.dir, &source.name), Ok(None)) {
        return Ok(());
    }
    let Ok(children) = source.node.children() else { return Ok(()) };
    let in_target = |name: &[u8], node: &Node| {
        node.facts().is_ok_and(|facts| {
            !matches!(sink.look(&target.dir, name, &policy.wanted(&facts, Vec::new())), Ok(None))
        })
    };
    let found = children.take(LOOKED_FOR).flatten().find(|child| in_target(&child.name, &child.node));
    let Some(child) = found else { return Ok(()) };
    let (from, name) = (source.node.shown(), quoted(&source.name));
    let (from, whole) = (from.trim_end_matches('/'), shown.trim_end_matches('/'));
    let line = format!(
        "'{shown}' has no '{name}', but '{}' as '{from}' has: is it an earlier copy, or is one to be made in it?",
        quoted(&child.name)
    );
    Err(Failure::refused(line).hint(format!(
        "nothing was copied; to go on with an earlier copy, give '{from}/.' as the source; for a copy in it, give '{whole}/{name}'"
    )))
}
