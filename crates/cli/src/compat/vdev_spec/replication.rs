//! Checks that all vdevs of a new pool survive the loss of the same number of devices, because a pool is only as safe as its
//! least safe vdev.
//!
//! From:   the groups of a new pool.
//! To:     the lines that `zpool create` and `zpool add` print unless `-f` is given.

use std::path::Path;

use format::config::{VdevConfig, VdevKind};
use pool::Layout;
use storage::host::{Access, Disk, FileDisk};

use super::{Class, Spec, Top};

/// Devices of one vdev may differ by so many bytes.
const FUZZ: u64 = 16 << 20;

/// Redundancy of a vdev.
#[derive(Debug, PartialEq, Eq)]
struct Level {
    kind: &'static str,
    parity: u8,
    devices: usize,
}

/// The differences between the vdevs of a layout, one line for each.
pub(in crate::compat) fn uneven(spec: &Spec) -> Vec<String> {
    let mut lines = Vec::new();
    let mut last: Option<Level> = None;
    for top in spec.tops.iter().filter(|top| top.class != Class::Log) {
        let sizes: Vec<(bool, u64)> = top.devices.iter().filter_map(|path| looked_at(path)).collect();
        let level = level_of(top, sizes.first().is_some_and(|(is_file, _)| *is_file));
        if sizes.windows(2).any(|two| two[0].0 != two[1].0) {
            lines.push(format!(
                "mismatched replication level: {} contains both files and devices",
                level.kind
            ));
        } else if sizes.windows(2).any(|two| two[0].1.abs_diff(two[1].1) > FUZZ) {
            lines.push(format!("{} contains devices of different sizes", level.kind));
        }
        lines.extend(last.as_ref().and_then(|last| compare(last, &level)));
        last = Some(level);
    }
    lines
}

/// The uneven parts of the layout when `spec` is added to a pool with these top-level vdevs. If these are uneven
/// themselves, there are none.
pub(in crate::compat) fn uneven_with(pool: &[VdevConfig], spec: &Spec) -> Vec<String> {
    let Some(current) = level_of_pool(pool) else { return Vec::new() };
    let Some(last) = spec.tops.iter().rfind(|top| top.class != Class::Log) else { return Vec::new() };
    let lines = uneven(spec);
    if !lines.is_empty() {
        return lines;
    }
    let is_file = last.devices.first().and_then(|path| looked_at(path)).is_some_and(|(is_file, _)| is_file);
    differs(&current, &level_of(last, is_file)).into_iter().collect()
}

/// How the data vdevs of a pool keep what is on them; `None` where they differ.
fn level_of_pool(tops: &[VdevConfig]) -> Option<Level> {
    let is_log = |top: &VdevConfig| top.top.as_ref().is_some_and(|top| top.is_log);
    let is_used =
        |top: &&VdevConfig| !matches!(top.kind, VdevKind::Hole | VdevKind::Indirect) && !is_log(top);
    let mut last: Option<Level> = None;
    for top in tops.iter().filter(is_used) {
        let (kind, parity) = match top.kind {
            VdevKind::File => ("file", 0),
            VdevKind::Disk => ("disk", 0),
            VdevKind::Mirror => ("mirror", 0),
            VdevKind::Raidz { nparity } => ("raidz", nparity),
            VdevKind::Draid { nparity, .. } => ("draid", nparity),
            _ => return None,
        };
        let paths = top.leaves().filter_map(|leaf| Some(String::from_utf8_lossy(leaf.path.as_ref()?)));
        let sizes: Vec<(bool, u64)> = paths.filter_map(|path| looked_at(Path::new(&*path))).collect();
        if sizes.windows(2).any(|two| two[0].0 != two[1].0 || two[0].1.abs_diff(two[1].1) > FUZZ) {
            return None;
        }
        let level = Level { kind, parity, devices: top.children.len().max(1) };
        if last.as_ref().is_some_and(|last| compare(last, &level).is_some()) {
            return None;
        }
        last = Some(level);
    }
    last
}

/// Why a new vdev does not fit the pool.
fn differs(pool: &Level, new: &Level) -> Option<String> {
    let rows = |level: &&Level| level.parity > 0;
    let mirror = [pool, new].into_iter().find(|level| level.kind == "mirror");
    let line = match ([pool, new].into_iter().find(rows), mirror) {
        (Some(rows), Some(mirror)) if usize::from(rows.parity) + 1 == mirror.devices => return None,
        (Some(rows), Some(mirror)) => format!(
            "pool and new vdev with different redundancy, {} and mirror vdevs, {} vs. {} ({}-way)",
            rows.kind,
            rows.parity,
            mirror.devices - 1,
            mirror.devices
        ),
        _ if pool.kind != new.kind => format!("pool uses {} and new vdev is {}", pool.kind, new.kind),
        _ if pool.parity != new.parity => {
            format!("pool uses {} device parity and new vdev uses {}", pool.parity, new.parity)
        }
        _ if pool.devices != new.devices => format!(
            "pool uses {}-way {} and new vdev uses {}-way {}",
            pool.devices, pool.kind, new.devices, new.kind
        ),
        _ => return None,
    };
    Some(format!("mismatched replication level: {line}"))
}

/// Whether a device is a file, and its size.
fn looked_at(path: &Path) -> Option<(bool, u64)> {
    let disk = FileDisk::open(path, Access::Peek).ok()?;
    Some((!disk.is_block_device(), disk.size()))
}

fn level_of(top: &Top, is_file: bool) -> Level {
    let (kind, parity) = match top.layout {
        Layout::Single => (if is_file { "file" } else { "disk" }, 0),
        Layout::Mirror => ("mirror", 0),
        Layout::Raidz(parity) => ("raidz", parity),
        Layout::Draid(draid) => ("draid", draid.parity),
    };
    Level { kind, parity, devices: top.devices.len() }
}

/// Why two vdevs, the second behind the first, are uneven. Raidz and mirrors may stand side by side, and raidz of any widths, if they
/// survive the loss of as many devices.
fn compare(last: &Level, new: &Level) -> Option<String> {
    let has_parity = |level: &&Level| level.parity > 0;
    let with_parity: Vec<&Level> = [last, new].into_iter().filter(has_parity).collect();
    let mirror = [last, new].into_iter().find(|level| level.kind == "mirror");
    let line = match (with_parity.as_slice(), mirror) {
        ([one, other], _) if one.parity == other.parity => return None,
        ([one, other], _) => format!(
            "{} and {} vdevs with different redundancy, {} vs. {} are present",
            one.kind, other.kind, one.parity, other.parity
        ),
        ([rows], Some(mirror)) if usize::from(rows.parity) + 1 == mirror.devices => return None,
        ([rows], Some(mirror)) => format!(
            "{} and mirror vdevs with different redundancy, {} vs. {} ({}-way) are present",
            rows.kind,
            rows.parity,
            mirror.devices - 1,
            mirror.devices
        ),
        _ if last.kind != new.kind => format!("both {} and {} vdevs are present", last.kind, new.kind),
        _ if last.devices != new.devices => {
            format!("both {}-way and {}-way {} vdevs are present", last.devices, new.devices, new.kind)
        }
        _ => return None,
    };
    Some(format!("mismatched replication level: {line}"))
}
