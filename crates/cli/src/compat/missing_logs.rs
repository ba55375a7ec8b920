//! Log devices that are missing when a pool is imported.

use format::config::{VdevConfig, VdevKind};
use pool::{Found, MissingLogs, Pool};

/// The missing log vdevs, if no other needed device is missing. Labels do not list them; the MOS does.
pub(super) fn missing_logs(found: &Found) -> Vec<String> {
    let options =
        pool::Options { read_only: true, missing_logs: MissingLogs::GivenUp, ..pool::Options::default() };
    let Ok(pool) = Pool::import(found, options) else { return Vec::new() };
    let config = pool.info().config;
    let is_here = |leaf: &VdevConfig| pool.leaves().any(|open| open.guid == leaf.guid.0);
    let logs = config.tree.children.iter().filter(|vdev| vdev.top.as_ref().is_some_and(|top| top.is_log));
    logs.filter(|vdev| !vdev.leaves().any(is_here)).map(log_name).collect()
}

/// How a log vdev is called.
fn log_name(vdev: &VdevConfig) -> String {
    match &vdev.path {
        Some(path) => String::from_utf8_lossy(path).into_owned(),
        None if vdev.kind == VdevKind::Mirror => format!("mirror-{}", vdev.id),
        None => vdev.guid.0.to_string(),
    }
}
