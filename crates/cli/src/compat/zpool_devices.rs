//! `zpool offline`, `online` and `resilver`: devices that are let go of and come back.

use std::path::PathBuf;

use super::Call;
use super::view::{Naming, PoolView, VdevView};
use crate::messages::{Failure, reason};
use crate::open::{self, Intent, Session};

/// The leaf that goes by `name`, here or below.
pub fn named<'a>(vdev: &'a VdevView, name: &str) -> Option<&'a VdevView> {
    let it = vdev.name == name || vdev.path.as_deref() == Some(name) || vdev.guid.0.to_string() == name;
    if it { Some(vdev) } else { vdev.children.iter().find_map(|child| named(child, name)) }
}

/// A pool whose devices are to be changed, opened for that.
pub fn opened(call: &Call, name: &str, failed: &dyn Fn(&str) -> Failure) -> Result<Session, Failure> {
    let session = open::open_pool(name, call.around, Intent::Write)?;
    if let Some(why) = session.pool().read_only() {
        let failure = failed(reason::POOL_READ_ONLY);
        let asked = session.known.as_ref().is_some_and(|known| known.read_only);
        return Err(if asked {
            failure
        } else {
            failure.hint(format!("cenote opens this pool for reading only: {why}"))
        });
    }
    session.command(&call.line);
    Ok(session)
}

/// The guid and path of the device `name` of a pool.
pub fn device(
    call: &Call,
    pool: &str,
    name: &str,
    failed: &dyn Fn(&str) -> Failure,
) -> Result<VdevView, Failure> {
    let view = PoolView::new(open::find(pool, call.around)?);
    let tree = view.tree(Naming::default());
    let found = tree.iter().find_map(|vdev| named(vdev, name)).filter(|vdev| vdev.is_leaf());
    found.cloned().ok_or_else(|| failed("no such device in pool"))
}

/// Runs the command that is called.
///
/// # Errors
/// As the commands.
pub fn run(call: &Call) -> Result<(), Failure> {
    match call.command.name {
        "offline" => offline(call),
        "online" => online(call),
        _ => resilver(call),
    }
}

/// Runs `zpool offline`.
///
/// # Errors
/// Usage; a device that is not there or that the pool cannot do without.
fn offline(call: &Call) -> Result<(), Failure> {
    for option in ["f", "power"] {
        if call.args.has(option) {
            return Err(Failure::refused(format!("cenote: not supported yet: zpool offline -{option}")));
        }
    }
    each(call, "offline", |session, found| session.pool().offline(found.guid, call.args.has("t")))
}

/// Runs `zpool online`.
///
/// # Errors
/// Usage; a device that is not there, or is not what it was.
fn online(call: &Call) -> Result<(), Failure> {
    for option in ["e", "power"] {
        if call.args.has(option) {
            return Err(Failure::refused(format!("cenote: not supported yet: zpool online -{option}")));
        }
    }
    each(call, "online", |session, found| {
        let path = found.path.as_ref().map(PathBuf::from).ok_or(pool::Error::NoSuchDevice)?;
        session.pool().online(found.guid, &path)
    })
}

/// Does something to each device that is named.
fn each(
    call: &Call,
    verb: &str,
    change: impl Fn(&Session, &VdevView) -> pool::Result<()>,
) -> Result<(), Failure> {
    let (pool, names) = match call.args.operands.as_slice() {
        [] => return Err(Failure::usage("missing pool name")),
        [_] => return Err(Failure::usage("missing device name")),
        [pool, names @ ..] => (pool, names),
    };
    for name in names {
        let failed = |why: &str| Failure::refused(format!("cannot {verb} {name}: {why}"));
        let found = device(call, pool, name, &|why| match verb {
            "online" => Failure::refused(format!("couldn't find device \"{name}\" in pool \"{pool}\"")),
            _ => failed(why),
        })?;
        let session = opened(call, pool, &failed)?;
        change(&session, &found).map_err(|error| failed(&error.to_string()))?;
        waits(call, &session)?;
        session.finish()?;
    }
    Ok(())
}

/// Without a server the resilver is done before the command ends.
fn waits(call: &Call, session: &Session) -> Result<(), Failure> {
    if call.live().is_none() {
        let done = session.pool().wait_scrub();
        return done.map_err(|error| Failure::refused(format!("cannot resilver: {error}")));
    }
    Ok(())
}

/// Runs `zpool resilver`.
///
/// # Errors
/// Usage; a pool that is not there or not written.
fn resilver(call: &Call) -> Result<(), Failure> {
    if call.args.operands.is_empty() {
        return Err(Failure::usage("missing pool name argument"));
    }
    for name in &call.args.operands {
        let failed = |why: &str| Failure::refused(format!("cannot restart resilver {name}: {why}"));
        let session = opened(call, name, &failed)?;
        session.pool().resilver().map_err(|error| failed(&error.to_string()))?;
        waits(call, &session)?;
        session.finish()?;
    }
    Ok(())
}
