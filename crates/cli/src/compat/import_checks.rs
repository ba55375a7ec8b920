//! Whether a pool that was found may be imported.

use format::config::PoolState;
use pool::Found;

use super::missing_logs::missing_logs;
use crate::messages::{Action, Failure, plain, reason};
use crate::out::Console;

/// Obstacles that the user allowed this import to ignore.
#[derive(Clone, Copy)]
pub(super) struct Allowed {
    /// `-f`: a pool that another machine used last.
    pub(super) force: bool,
    /// `-m`: a pool whose log devices are missing.
    pub(super) without_logs: bool,
}

/// Refuses a pool that another machine uses, or that lacks devices.
pub(super) fn check_free(
    found: &Found,
    allowed: Allowed,
    action: Action,
    console: &mut Console,
) -> Result<(), Failure> {
    let config = &found.config;
    // If this machine used the pool last, heartbeats show whether another program, such as the kernel, uses it now.
    let is_own =
        config.hostid == 0 || found.has_heartbeats && config.hostid == u64::from(storage::host::hostid());
    if config.state == PoolState::Active && !is_own && !allowed.force {
        let host = config.hostname.as_deref().unwrap_or("<unknown>");
        return Err(action
            .failed(reason::USED_ELSEWHERE)
            .hint(format!("Last accessed by {host} (hostid={:x})", config.hostid))
            .hint("The pool can be imported, use 'zpool import -f' to import the pool."));
    }
    if found.is_complete() {
        return Ok(());
    }
    let logs = missing_logs(found);
    if logs.is_empty() {
        return Err(unavailable(found, action));
    }
    if allowed.without_logs {
        return Ok(());
    }
    console.line("The devices below are missing or corrupted, use '-m' to import the pool anyway:")?;
    logs.iter().try_for_each(|name| console.line(&format!("\t    {name} [log]")))?;
    console.line("")?;
    Err(action.failed(reason::DEVICE_UNAVAILABLE))
}

/// The error when another machine uses the pool, which has `multihost` on. `-f` does not override it.
pub(super) fn active_elsewhere(action: Action, host: &str, hostid: u64) -> Failure {
    action
        .failed(format!("pool is imported on host '{}' (hostid={hostid:x}).", plain(host)))
        .hint("Export the pool on the other system, then run 'zpool import'.")
}

/// The error when devices that the pool needs are missing.
fn unavailable(found: &Found, action: Action) -> Failure {
    let mut failure = action.failed(reason::DEVICE_UNAVAILABLE);
    let needed = found.needed();
    if !needed.is_empty() {
        failure = failure.hint(format!("cenote: missing: {}", needed.join(", ")));
    }
    failure
}
