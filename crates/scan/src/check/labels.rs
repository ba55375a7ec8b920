//! The four labels of each device of the pool.
//!
//! A server may write labels while another process checks the pool. So labels are read twice, before and after everything else,
//! and only what is wrong both times is reported.

use std::fmt;
use std::path::{Path, PathBuf};

use format::Guid;
use format::label::{self, COPIES};
use pool::Inner;
use pool::label_faults::{self, LabelFault};

use super::Finding;

/// The faults of the labels of each device.
pub(super) type Faults = Vec<(PathBuf, Vec<(usize, LabelFault)>)>;

/// Reads the labels of all devices that are there, and returns their faults. Labels that a power cut left older than
/// the others count as good.
pub(super) fn faults(inner: &Inner) -> Faults {
    let (pool, synced) = {
        let info = inner.info();
        (info.config.pool_guid, info.txg)
    };
    let mut all = Vec::new();
    for top in inner.storage().vdevs().tops() {
        let asize = top.asize_of_leaf();
        for leaf in top.leaves().filter(|leaf| leaf.distributed().is_none()) {
            let mut faults = label_faults::of_device(&*leaf.disk, pool, Guid(leaf.guid), synced);
            if may_be_torn(&faults) {
                faults.retain(|(_, fault)| *fault != LabelFault::Damaged);
            }
            // The end of a device that was cut short is missing, and reported as such.
            let is_cut = label::asize_of(leaf.disk.size()) < asize;
            faults.retain(|(number, fault)| fault.is_damage() && (!is_cut || *number < COPIES / 2));
            if !faults.is_empty() {
                all.push((leaf.disk.path().to_path_buf(), faults));
            }
        }
    }
    all
}

/// Whether a power cut while labels were written explains what is damaged: labels 0 and 2 are written first, and 1 and 3 when
/// these are on the device.
fn may_be_torn(faults: &[(usize, LabelFault)]) -> bool {
    let damaged = |pair: usize| {
        faults.iter().any(|(number, fault)| number % 2 == pair && *fault == LabelFault::Damaged)
    };
    !(damaged(0) && damaged(1))
}

/// Reports the faults among `before` that are still there.
pub(super) fn report_lasting(inner: &Inner, before: Faults, report: &mut dyn FnMut(Finding)) {
    if before.is_empty() {
        return;
    }
    let now = faults(inner);
    for (path, mut faults) in before {
        let still = now.iter().find(|(other, _)| *other == path);
        faults.retain(|fault| still.is_some_and(|(_, still)| still.contains(fault)));
        if !faults.is_empty() {
            report(Finding::Labels { path, faults });
        }
    }
}

/// Writes the finding in words.
pub(super) fn write(f: &mut fmt::Formatter<'_>, path: &Path, faults: &[(usize, LabelFault)]) -> fmt::Result {
    let each: Vec<String> =
        faults.iter().map(|(number, fault)| format!("label {number} is {fault}")).collect();
    write!(f, "{}: {}: ", path.display(), each.join(", "))?;
    match COPIES.saturating_sub(faults.len()) {
        0 => f.write_str("no label is as it should be")?,
        1 => f.write_str("the other one leads to the pool")?,
        good => write!(f, "the other {good} lead to the pool")?,
    }
    f.write_str("; the next change of the pool writes all four again")
}
