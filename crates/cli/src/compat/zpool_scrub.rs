//! `zpool scrub`, `zpool wait` and `zpool clear`.
//!
//! A pool that no server holds is held by the command itself: then `scrub` stays until it is done, as with `-w`.

use std::time::Duration;

use format::scan::ScanState;

use super::Call;
use super::repeat::Repeat;
use super::view::{Naming, PoolView, VdevView};
use crate::messages::{Failure, reason};
use crate::open::{self, Intent};
use crate::out::Console;

/// How often the state of a pool that a server holds is looked at.
const GLANCE: Duration = Duration::from_millis(250);
/// What can be waited for.
const ACTIVITIES: [&str; 9] =
    ["discard", "free", "initialize", "replace", "remove", "resilver", "scrub", "trim", "raidz_expand"];

/// Runs `zpool scrub`.
///
/// # Errors
/// Usage; each pool that cannot be scrubbed is complained about.
pub fn scrub(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let has = |option| call.args.has(option);
    for option in ["e", "C", "S", "E"] {
        if has(option) {
            return Err(Failure::refused(format!("cenote: not supported yet: zpool scrub -{option}")));
        }
    }
    if has("p") && has("s") {
        return Err(Failure::usage("invalid option combination: -s and -p are mutually exclusive"));
    }
    if has("w") && (has("p") || has("s")) {
        let other = if has("p") { "-p" } else { "-s" };
        return Err(Failure::usage(format!(
            "invalid option combination: -w and {other} are mutually exclusive"
        )));
    }
    let names = match (call.args.operands.as_slice(), has("a")) {
        ([], false) => return Err(Failure::usage("missing pool name argument")),
        ([], true) => open::usable(call.around)?.into_iter().map(|pool| pool.name).collect(),
        (names, _) => names.to_vec(),
    };
    for name in &names {
        if let Err(failure) = one(call, name) {
            console.complain(failure)?;
        }
    }
    Ok(())
}

fn one(call: &Call, name: &str) -> Result<(), Failure> {
    let session = open::open_for(name, call.around, Intent::Write)?;
    let pool = session.pool();
    let verb = match (call.args.has("s"), call.args.has("p")) {
        (true, _) => "cancel scrubbing",
        (_, true) => "pause scrubbing",
        _ => "scrub",
    };
    let failed = |why: &dyn std::fmt::Display| Failure::refused(format!("cannot {verb} {name}: {why}"));
    if let Some(why) = pool.read_only() {
        let failure = failed(&reason::POOL_READ_ONLY);
        let asked = session.known.as_ref().is_some_and(|known| known.read_only);
        return Err(if asked {
            failure
        } else {
            failure.hint(format!("cenote opens this pool for reading only: {why}"))
        });
    }
    session.command(&call.line);
    let done = match verb {
        "cancel scrubbing" => pool.cancel_scrub(),
        "pause scrubbing" => match pool.pause_scrub() {
            // Of one that came to its end since there is nothing to say.
            Err(pool::Error::NotScrubbing) if matches!(pool.scan(), Ok(Some(_))) => Ok(()),
            other => other,
        },
        // In a server it goes on after the command.
        _ if call.around.served.is_some() && !call.args.has("w") => pool.scrub(),
        _ => pool.scrub().and_then(|()| pool.wait_scrub()),
    };
    done.map_err(|error| failed(&error))?;
    session.finish()
}

/// Runs `zpool wait`.
///
/// # Errors
/// Usage; a pool that is not there.
pub fn wait(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let mut operands = call.args.operands.clone();
    Repeat::take(&mut operands, call.args.value("T"))?;
    let wanted: Vec<&str> =
        call.args.value("t").map_or(ACTIVITIES.to_vec(), |list| list.split(',').collect());
    if let Some(word) = wanted.iter().find(|word| !ACTIVITIES.contains(word)) {
        return Err(Failure::usage(format!("invalid activity '{word}'")));
    }
    let name = match operands.as_slice() {
        [] => return Err(Failure::usage("missing 'pool' argument")),
        [name] => name,
        _ => return Err(Failure::usage("too many arguments")),
    };
    console.flush()?;
    // Without a server nothing goes on between two commands; what is freed in the background is freed by the next txg.
    loop {
        let session = open::open_for(name, call.around, Intent::Read)?;
        let failed = |error| Failure::refused(format!("cannot wait for {name}: {error}"));
        let under_way =
            |status: pool::ScanStatus| status.scan.state == ScanState::Scanning && !status.scan.is_paused();
        let scrubbing = session.pool().scan().map_err(failed)?.is_some_and(under_way);
        let goes_on = session.is_leased() && scrubbing && wanted.contains(&"scrub");
        session.finish()?;
        if !goes_on {
            return Ok(());
        }
        std::thread::sleep(GLANCE);
    }
}

/// Runs `zpool clear`.
///
/// # Errors
/// Usage; a pool or device that is not there.
pub fn clear(call: &Call) -> Result<(), Failure> {
    for option in ["F", "n", "X", "power"] {
        if call.args.has(option) {
            return Err(Failure::refused(format!("cenote: not supported yet: zpool clear -{option}")));
        }
    }
    let (name, device) = match call.args.operands.as_slice() {
        [] => return Err(Failure::usage("missing pool name")),
        [name] => (name, None),
        [name, device] => (name, Some(device)),
        _ => return Err(Failure::usage("too many arguments")),
    };
    let usable = open::find(name, call.around)?;
    let view = PoolView::new(usable);
    let Some(session) = view.session() else {
        return Err(Failure::refused(format!(
            "cannot clear errors for {name}: {}",
            reason::POOL_UNAVAILABLE
        )));
    };
    let guid = match device {
        None => None,
        Some(device) => {
            let missing =
                || Failure::refused(format!("cannot clear errors for {device}: no such device in pool"));
            let tree = view.tree(Naming::default());
            Some(tree.iter().find_map(|vdev| named(vdev, device)).ok_or_else(missing)?)
        }
    };
    for leaf in session.pool().storage().vdevs().tops().iter().flat_map(storage::TopVdev::leaves) {
        if guid.is_none_or(|guid| guid == leaf.guid) {
            leaf.meter.clear_errors();
        }
    }
    Ok(())
}

/// The guid of the vdev that goes by `name`, here or below.
fn named(vdev: &VdevView, name: &str) -> Option<u64> {
    let it = vdev.name == name || vdev.path.as_deref() == Some(name) || vdev.guid.0.to_string() == name;
    if it { Some(vdev.guid.0) } else { vdev.children.iter().find_map(|child| named(child, name)) }
}
