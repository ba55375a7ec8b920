//! The part of `zpool status` about blocks that were moved: away from a vdev that is removed, or to a device that a
//! raidz vdev got.

use pool::props::number;
use pool::{Expansion, Removal, RemovalStage};

use super::scan::duration;
use super::view::{Naming, PoolView};
use crate::dates::{self, Form};
use crate::messages::Failure;
use crate::out::Console;

/// A remaining time of more than so many seconds is not printed.
const EXPECTED_MAX: u64 = 30 * 24 * 3600;

/// The vdev that was removed last, and the memory for finding its blocks.
pub(super) fn print_removal(console: &mut Console, view: &PoolView) -> Result<(), Failure> {
    let Some(session) = view.session() else { return Ok(()) };
    let Some(removal) = session.pool().removal().ok().flatten() else { return Ok(()) };
    let now = session.pool().host().clock.now().0;
    let tree = view.tree(Naming::default());
    let of_vdev = tree.iter().find(|vdev| vdev.top.map(u64::from) == Some(removal.vdev));
    let name = of_vdev.map_or_else(|| removal.vdev.to_string(), |vdev| vdev.name.clone());
    let ended = dates::show(removal.ended, Form::Scan);
    match removal.stage {
        RemovalStage::Running => print_evacuation(console, &name, &removal, now)?,
        RemovalStage::Canceled => console.line(&format!("remove: Removal of {name} canceled on {ended}"))?,
        RemovalStage::Finished => {
            let minutes = removal.ended.saturating_sub(removal.begun) / 60;
            console.line(&format!(
                "remove: Removal of vdev {} copied {} in {}h{}m, completed on {ended}",
                removal.vdev,
                number::nice(removal.copied),
                minutes / 60,
                minutes % 60,
            ))?;
        }
    }
    if removal.mapping == 0 {
        return Ok(());
    }
    console.line(&format!("\t{} memory used for removed device mappings", number::nice(removal.mapping)))
}

/// Prints the progress of copying the data of a vdev that is being removed.
fn print_evacuation(console: &mut Console, name: &str, removal: &Removal, now: u64) -> Result<(), Failure> {
    let begun = dates::show(removal.begun, Form::Scan);
    console.line(&format!("remove: Evacuation of {name} in progress since {begun}"))?;
    let (copied, total) = (removal.copied.max(1), removal.to_copy);
    let rate = (copied / now.saturating_sub(removal.begun).max(1)).max(1);
    let minutes = total.saturating_sub(copied) / rate / 60;
    let left = match minutes / 60 {
        hours if hours < 30 * 24 => format!("{hours}h{}m to go", minutes % 60),
        _ => "(copy is slow, no estimated time)".to_owned(),
    };
    let percent = 100.0 * copied as f64 / total.max(1) as f64;
    let [copied, total, rate] = [copied, total, rate].map(number::nice);
    console.line(&format!("\t{copied} copied out of {total} at {rate}/s, {percent:.2}% done, {left}"))
}

/// How far an expansion is.
fn progress(last: &Expansion, now: u64) -> String {
    let rate = (last.copied / now.saturating_sub(last.begun).max(1)).max(1);
    let percent = 100.0 * last.copied as f64 / last.allocated.max(1) as f64;
    let left = last.allocated.saturating_sub(last.copied) / rate;
    let rest = match left {
        _ if last.waits => "paused for resilver or clear".to_owned(),
        left if left < EXPECTED_MAX => format!("{} to go", duration(left)),
        _ => "(copy is slow, no estimated time)".to_owned(),
    };
    let [copied, all, rate] = [last.copied, last.allocated, rate].map(number::nice_bytes);
    format!("{copied} / {all} copied at {rate}/s, {percent:.2}% done, {rest}")
}

/// The raidz vdev that got a device last.
pub(super) fn print_expansion(console: &mut Console, view: &PoolView) -> Result<(), Failure> {
    let Some(session) = view.session() else { return Ok(()) };
    let Some(last) = session.pool().expansion().ok().flatten() else { return Ok(()) };
    let name = view.tree(Naming::default()).into_iter().find(|vdev| vdev.top == Some(last.vdev));
    let name = name.map_or_else(|| last.vdev.to_string(), |vdev| vdev.name);
    let copied = number::nice_bytes(last.copied);
    let Some(ended) = last.ended else {
        let begun = dates::show(last.begun, Form::Scan);
        console.line(&format!("expand: expansion of {name} in progress since {begun}"))?;
        let now = session.pool().host().clock.now().0;
        return console.line(&format!("\t{}", progress(&last, now)));
    };
    console.line(&format!(
        "expand: expanded {name} copied {copied} in {}, on {}",
        duration(ended.saturating_sub(last.begun)),
        dates::show(ended, Form::Scan),
    ))
}
