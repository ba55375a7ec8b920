//! Finding the process or place that still has a copy of an unmounted file system.
//!
//! From:   /proc/PID/mountinfo of the processes that this user may look at. It is a hint for a message and for how long to
//!         wait, never a base for a decision about data.

use std::collections::HashSet;
use std::fs;
use std::time::{Duration, Instant};

use crate::device::Device;
use front::Keeper;

/// How long to look, at most.
const LOOKING: Duration = Duration::from_secs(1);
/// Most bytes that are read of one list of mounts.
const LIST_MAX: u64 = 16 << 20;

/// A holder of a copy of the mount of `device`, which was unmounted at its own place; `None` if none is visible.
pub(crate) fn of(device: Device) -> Option<Keeper> {
    match device.points("self", LIST_MAX).unwrap_or_default().into_iter().next() {
        Some(point) => Some(Keeper::Place(point)),
        None => elsewhere(device),
    }
}

/// A process in another mount namespace that has the mount of `device`.
fn elsewhere(device: Device) -> Option<Keeper> {
    let until = Instant::now() + LOOKING;
    let own = fs::read_link("/proc/self/ns/mnt").ok()?;
    let mut seen = HashSet::from([own]);
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        if Instant::now() > until {
            return None;
        }
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // One process of each namespace is enough.
        let namespace = fs::read_link(format!("/proc/{pid}/ns/mnt"));
        if !namespace.is_ok_and(|namespace| seen.insert(namespace)) {
            continue;
        }
        if device.points(&pid.to_string(), LIST_MAX).is_ok_and(|points| !points.is_empty()) {
            let command = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            return Some(Keeper::Process { pid, command: command.trim_end().to_owned() });
        }
    }
    None
}
