//! The lines `status:` and `action:` of `zpool status`, in OpenZFS's words if it has some.

use std::path::Path;

use pool::Error;
use server::{ClientError, Halted};

use super::damaged::Trouble;
use super::view::{Body, PoolView, State};
use super::zpool_upgrade::missing_features;
use crate::messages::plain;
use crate::open::{NotOpen, Session};
use crate::start;

/// The fault of a pool, the action to take, and the page to read about it.
pub struct Advice {
    pub status: String,
    pub action: String,
    pub message: Option<&'static str>,
}

/// The most urgent cases: the pool takes no writes, or data may be lost soon.
fn pressing_advice(view: &PoolView) -> Option<Advice> {
    if let Some(halted) = view.halted() {
        return Some(advice_on_halted(&view.name, &halted));
    }
    if let Some(silence) = view.silent().first() {
        return Some(Advice {
            status: format!(
                "A device does not answer, and the pool waits for it:\n\t{}.",
                plain(silence.to_string())
            ),
            action: "Make the device answer again: the pool then goes on, and loses nothing.".to_owned(),
            message: None,
        });
    }
    if let Some((path, contents)) = view.deleted().first() {
        return Some(advice_on_deleted(&view.name, path, contents));
    }
    if let Some((path, now)) = view.moved().first() {
        return Some(advice_on_moved(&view.name, path, now));
    }
    let (txg, seconds) = view.figures.as_ref()?.slow_sync?;
    Some(Advice {
        status: format!(
            "Transaction group {txg} has been written for {seconds} s, longer than\n\tzfs_deadman_synctime_ms. What is not written yet waits."
        ),
        action: "Look for a slow device with 'zpool iostat -v' and 'zpool status -s'. The pool goes\n\ton when the group is written, and loses nothing.".to_owned(),
        message: None,
    })
}

/// The advice of `status` about a pool that is not in order.
pub fn advice(view: &PoolView) -> Option<Advice> {
    if let Some(first) = pressing_advice(view) {
        return Some(first);
    }
    match &view.body {
        Body::Open(session) => advice_on_devices(view).or_else(|| advice_on_format(session)),
        Body::Closed { why, .. } => Some(advice_on_closed(view, why)),
    }
}

fn say(status: &str, action: &str, message: Option<&'static str>) -> Advice {
    Advice { status: status.to_owned(), action: action.to_owned(), message }
}

/// Of an open pool: devices that are away or in error, lost data, a server that ended.
fn advice_on_devices(view: &PoolView) -> Option<Advice> {
    let trouble = Trouble::of(view).ok();
    Some(match () {
        () if trouble.as_ref().is_some_and(|trouble| !trouble.data.is_empty()) => say(
            "One or more devices has experienced an error resulting in data\n\tcorruption.  Applications may be affected.",
            "Restore the file in question if possible.  Otherwise restore the\n\tentire pool from backup.",
            Some("8A"),
        ),
        () if view.any(&|vdev| vdev.state == State::Faulted) => say(
            "One or more devices are faulted in response to persistent errors.\n\tSufficient replicas exist for the pool to continue functioning in a\n\tdegraded state.",
            "Replace the faulted device, or use 'zpool clear' to mark the device\n\trepaired.",
            None,
        ),
        () if !view.any(&|vdev| vdev.state == State::Unavail)
            && view.any(&|vdev| vdev.state == State::Offline) =>
        {
            say(
                "One or more devices has been taken offline by the administrator.\n\tSufficient replicas exist for the pool to continue functioning in a\n\tdegraded state.",
                "Online the device using 'zpool online' or replace the device with\n\t'zpool replace'.",
                None,
            )
        }
        () if view.is_resilvering() => say(
            "One or more devices is currently being resilvered.  The pool will\n\tcontinue to function, possibly in a degraded state.",
            "Wait for the resilver to complete.",
            None,
        ),
        () if view.needs_scrub() => say(
            "One or more devices have been sequentially resilvered, scrubbing\n\tthe pool is recommended.",
            "Use 'zpool scrub' to verify all data checksums.",
            None,
        ),
        () if view.state() == State::Degraded || view.lacks_cache() => say(
            "One or more devices could not be opened.  Sufficient replicas exist for\n\tthe pool to continue functioning in a degraded state.",
            "Attach the missing device and online it using 'zpool online'.",
            Some("2Q"),
        ),
        () if trouble.as_ref().is_some_and(|trouble| trouble.has_device_errors()) => say(
            "One or more devices has experienced an unrecoverable error.  An\n\tattempt was made to correct the error.  Applications are unaffected.",
            "Determine if the device needs to be replaced, and clear the errors\n\tusing 'zpool clear' or replace the device with 'zpool replace'.",
            Some("9P"),
        ),
        () if view.lost_server() => say(
            "The process that served the pool ended without exporting it, or the machine was\n\trestarted.  The file systems of the pool are not mounted.  What was synced is safe; what\n\tprograms confirmed with fsync is in the intent log and comes back with the server.",
            "Start the server again with 'zpool import -a' or 'zfs mount -a'.",
            None,
        ),
        () => return None,
    })
}

/// Of an open pool whose devices are in order: its version and features, and why it is read only.
fn advice_on_format(session: &Session) -> Option<Advice> {
    Some(match () {
        () if session.pool().info().config.version < format::config::VERSION_FEATURES => say(
            "The pool is formatted using a legacy on-disk format.  The pool can\n\tstill be used, but some features are unavailable.",
            "Upgrade the pool using 'zpool upgrade'.  Once this is done, the\n\tpool will no longer be accessible on software that does not support\n\tfeature flags.",
            None,
        ),
        () => match session.pool().refused() {
            Some(why) if session.pool().is_cut_short() => say(
                &format!("A device of the pool is shorter than it was:\n\t{why}."),
                "Restore the device to its former size with its former contents. The data may be whole:\n\tdo not destroy the pool.",
                Some("3C"),
            ),
            Some(why) => say(
                &format!("cenote opens the pool for reading only:\n\t{why}."),
                "None needed for reading.  To write, import the pool with OpenZFS.",
                None,
            ),
            None if missing_features(session).is_empty() => return None,
            None => say(
                "Some supported and requested features are not enabled on the pool.\n\tThe pool can still be used, but some features are unavailable.",
                "Enable all features using 'zpool upgrade'. Once this is done,\n\tthe pool may no longer be accessible by software that does not support\n\tthe features. See zpool-features(7) for details.",
                None,
            ),
        },
    })
}

/// Of a pool that is not open.
fn advice_on_closed(view: &PoolView, why: &NotOpen) -> Advice {
    match why {
        NotOpen::Failed { source: Error::Unreadable { .. }, .. } => say(
            "The pool cannot be accessed on this system because it uses the\n\tfollowing feature(s) not supported on this system:",
            "Access the pool from a system that supports the required feature(s),\n\tor restore the pool from backup.",
            Some("A5"),
        ),
        _ if view.figures.is_some() => say(
            "One or more devices are not as the pool left them: they are gone, cut short or unreadable.\n\tThe server of the pool goes on; what it cannot read or write fails.",
            "Bring the devices back as they were. The data may be whole: do not destroy the pool.",
            Some("3C"),
        ),
        _ if view.cut_short().is_some() => say(
            "A device of the pool is shorter than it was: its end is missing.",
            "Restore the device to its former size with its former contents. The data may be whole:\n\tdo not destroy the pool.",
            Some("3C"),
        ),
        NotOpen::Failed { source: Error::Damaged { .. }, .. } => say(
            "The pool metadata is corrupted and the pool cannot be opened.",
            "Destroy and re-create the pool from a backup source.",
            Some("72"),
        ),
        NotOpen::Failed { source: Error::Busy { path, holder }, .. } => {
            let holder = holder.as_deref().unwrap_or("another process");
            say(
                &format!("Another process uses the pool: '{}' is held by {holder}.", path.display()),
                "Wait until it is done.",
                None,
            )
        }
        NotOpen::Server { name, source } => {
            let action = match source {
                ClientError::OtherBuild { pid, .. } => format!(
                    "End that server with 'kill {pid}': it unmounts and lets go of the pool in good\n\torder. Then use 'zpool import -a'."
                ),
                _ => format!(
                    "See the log of the server, '{}';\n\tif it hangs, end it and use 'zpool import -a'.",
                    start::log_of(name).display()
                ),
            };
            say(&format!("The pool cannot be asked about:\n\t{source}."), &action, None)
        }
        _ => say(
            "One or more devices could not be opened.  There are insufficient\n\treplicas for the pool to continue functioning.",
            "Attach the missing device and online it using 'zpool online'.",
            Some("3C"),
        ),
    }
}

/// The advice about a pool that takes no changes.
fn advice_on_deleted(name: &str, path: &Path, contents: &Path) -> Advice {
    let (path, contents) = (plain(path.display().to_string()), contents.display());
    Advice {
        status: format!(
            "The file of a device was deleted:\n\t{path}.\n\tIts data exists only as long as the server of the pool runs."
        ),
        action: format!(
            "Stop the programs that write, run 'zpool sync {name}' and copy the data back:\n\tcp --sparse=always {contents} FILE\n\tThen run 'zpool export -f {name}' and 'zpool import -d FILE {name}'."
        ),
        message: None,
    }
}

/// The advice about a device that is not where its path says.
fn advice_on_moved(name: &str, path: &Path, now: &Path) -> Advice {
    let (path, now) = (plain(path.display().to_string()), plain(now.display().to_string()));
    Advice {
        status: format!(
            "A device was moved, or something else was put in its place:\n\t'{path}' is not the device that the pool uses. That one is '{now}' now.\n\tThe pool goes on with it."
        ),
        action: format!("Move it back, or run 'zpool export {name}' and 'zpool import -d {now} {name}'."),
        message: None,
    }
}

fn advice_on_halted(name: &str, halted: &Halted) -> Advice {
    let message = if halted.failmode == "continue" { "JQ" } else { "HC" };
    if halted.can_resume {
        return Advice {
            status: format!(
                "One or more devices are faulted in response to IO failures.\n\t{}.",
                plain(&halted.why)
            ),
            action: "Make sure the affected devices are connected, then run 'zpool clear'.".to_owned(),
            message: Some(message),
        };
    }
    Advice {
        status: format!(
            "The pool takes no changes any more. Its last synced state is safe:\n\t{}.",
            plain(&halted.why)
        ),
        action: format!("Run 'zpool export -f {name}' and 'zpool import {name}'."),
        message: None,
    }
}
