//! Devices of a pool that commands name, and pools that are opened to change them.

use pool::props::pool as props;

use super::Call;
use super::view::{Naming, PoolView, VdevView};
use crate::args::Assignments;
use crate::messages::Failure;
use crate::open::{self, Intent, Session};
use scan::Scans as _;

/// The leaf with the name `name`, here or below.
pub fn named<'a>(vdev: &'a VdevView, name: &str) -> Option<&'a VdevView> {
    let it = vdev.name == name || vdev.path.as_deref() == Some(name) || vdev.guid.0.to_string() == name;
    if it { Some(vdev) } else { vdev.children.iter().find_map(|child| named(child, name)) }
}

/// Opens a pool whose devices are to be changed.
pub fn opened(call: &Call, name: &str, failed: &dyn Fn(&str) -> Failure) -> Result<Session, Failure> {
    let session = open::open_pool(name, call.around, Intent::Write)?;
    if let Some(failure) = session.refusal_as(failed) {
        return Err(failure);
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

/// The words of a command about devices.
pub(super) struct Words<'a> {
    /// The verb, as in `cannot online DEVICE`.
    pub verb: &'a str,
    /// The failure of finding a device; `None`: as any other failure.
    pub not_found: Option<fn(device: &str, pool: &str) -> Failure>,
}

/// Carries out an action for each named device.
pub(super) fn each(
    call: &Call,
    words: &Words,
    change: impl Fn(&Session, &VdevView) -> pool::Result<()>,
) -> Result<(), Failure> {
    let (pool, names) = match call.args.operands.as_slice() {
        [] => return Err(Failure::usage("missing pool name")),
        [_] => return Err(Failure::usage("missing device name")),
        [pool, names @ ..] => (pool, names),
    };
    for name in names {
        let failed = |why: &str| Failure::refused(format!("cannot {} {name}: {why}", words.verb));
        let found = device(call, pool, name, &|why| match words.not_found {
            Some(not_found) => not_found(name, pool),
            None => failed(why),
        })?;
        let session = opened(call, pool, &failed)?;
        change(&session, &found).map_err(|error| failed(&error.to_string()))?;
        waits(call, &session)?;
        session.finish()?;
    }
    Ok(())
}

/// Without a server the resilver is done before the command ends.
pub(super) fn waits(call: &Call, session: &Session) -> Result<(), Failure> {
    if call.live().is_none() {
        let done = session.pool().wait_scrub();
        return done.map_err(|error| Failure::refused(format!("cannot resilver: {error}")));
    }
    Ok(())
}

/// The option `-o ashift=`; 0 leaves it to the devices. Other properties are known, and mean nothing here.
pub(super) fn ashift(properties: &[String]) -> Result<Option<u32>, Failure> {
    let missing = properties.iter().any(|text| !text.contains('='));
    if missing {
        return Err(Failure::refused("missing '=' for -o option"));
    }
    let given = Assignments::collect(properties.iter().map(String::as_str), |word| {
        props::parse(word).map(|p| p.name)
    })?;
    let mut found = None;
    for (name, value) in given.iter() {
        if props::ask(name).is_none() {
            return Err(Failure::refused(format!("property '{name}' is not a valid pool or vdev property")));
        }
        if name == "ashift" {
            let shift = props::ashift_option(value);
            found = Some(shift.map_err(|error| Failure::refused(error.to_string()))?);
        }
    }
    Ok(found)
}
