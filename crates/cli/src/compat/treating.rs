//! `zpool initialize` and `zpool trim`.
//!
//! If no server holds the pool, the command itself does. Then it waits until all is done, as with `-w`.

use format::Guid;
use pool::{Order, Treatment};

use super::Call;
use super::view::{Naming, PoolView, VdevView};
use super::zpool_devices::{self, named};
use crate::messages::Failure;
use crate::open;
use crate::out::Console;

/// Exit status where nothing, or not all, could be done: OpenZFS returns -1 there.
const NEGATIVE: u8 = 255;

/// The options of one of the two commands.
pub(super) struct Options {
    pub(super) what: Treatment,
    /// In all pools.
    pub(super) all: bool,
    /// The actions on a treatment that has begun, by letter, in the order given.
    pub(super) actions: Vec<&'static str>,
    pub(super) wait: bool,
    /// Zeros are written, and not the pattern of OpenZFS.
    pub(super) zeros: bool,
    /// Nothing may be readable afterwards.
    pub(super) secure: bool,
    /// Bytes a second at most, as given.
    pub(super) rate: Option<String>,
}

/// The pools that the command line names.
pub(super) fn targets(call: &Call, all: bool) -> Result<Vec<String>, Failure> {
    Ok(match all && call.args.operands.is_empty() {
        true => open::names(call.around)?,
        false => call.args.operands.first().cloned().into_iter().collect(),
    })
}

/// Carries out the command.
///
/// # Errors
/// The arguments are wrong, or devices refuse the order. Each of them has a message of its own.
pub(super) fn run(call: &Call, console: &mut Console, options: &Options) -> Result<(), Failure> {
    let task = Task { options, order: order(options)? };
    let pools = match (call.args.operands.as_slice(), options.all) {
        ([], false) => return Err(Failure::usage("missing pool name argument")),
        ([], true) => open::names(call.around)?.into_iter().map(|name| (name, Vec::new())).collect(),
        ([_, ..], true) => return Err(Failure::usage("-a cannot be combined with individual pools")),
        ([pool, devices @ ..], false) => vec![(pool.clone(), devices.to_vec())],
    };
    let mut refused = false;
    for (pool, devices) in pools {
        match treat(call, console, &pool, &devices, &task) {
            Ok(all) => refused |= !all,
            Err(failure @ Failure::Refused(_)) => {
                console.complain(failure)?;
                refused = true;
            }
            Err(other) => return Err(other),
        }
    }
    if refused { Err(Failure::Ended(NEGATIVE)) } else { Ok(()) }
}

/// The order that the options give.
fn order(options: &Options) -> Result<Order, Failure> {
    let actions = &options.actions;
    if let Some(second) = actions.iter().find(|action| **action != actions[0]) {
        return Err(Failure::usage(format!("-{second} cannot be combined with other options")));
    }
    let begins = actions.is_empty();
    let of_a_start = [("d", options.secure), ("r", options.rate.is_some())];
    if let Some((option, _)) = of_a_start.into_iter().find(|(_, is_given)| !begins && *is_given) {
        return Err(Failure::usage(format!("-{option} cannot be combined with the -c or -s options")));
    }
    if options.wait && !begins {
        let which = if options.what == Treatment::Initialize { "-c, -s or -u" } else { "-c or -s" };
        return Err(Failure::usage(format!("-w cannot be used with {which}")));
    }
    Ok(match actions.first() {
        Some(&"c") => Order::Cancel,
        Some(&"s") => Order::Suspend,
        Some(_) => Order::Forget,
        None if options.zeros => Order::Start(Some(0)),
        None => Order::Start(rate(options)?),
    })
}

fn rate(options: &Options) -> Result<Option<u64>, Failure> {
    let Some(text) = &options.rate else { return Ok(None) };
    let rate = pool::props::size::parse_size(text);
    rate.map(Some).map_err(|error| Failure::usage(format!("invalid value for rate: {error}")))
}

/// The task that is asked for, and the order that follows from it.
struct Task<'a> {
    options: &'a Options,
    order: Order,
}

/// Carries out the order in one pool, for the devices named, or all; says whether each took it.
fn treat(
    call: &Call,
    console: &mut Console,
    pool: &str,
    names: &[String],
    task: &Task<'_>,
) -> Result<bool, Failure> {
    let Task { options, order } = *task;
    let what = options.what;
    let verb = if what == Treatment::Initialize { "initialize" } else { "trim" };
    let failed =
        |name: &str, why: &dyn std::fmt::Display| Failure::refused(format!("cannot {verb} '{name}': {why}"));
    let view = PoolView::new(open::find(pool, call.around)?);
    let leaves = leaves(&view, names).map_err(|name| failed(&name, &"no such device in pool"))?;
    drop(view);
    if options.secure {
        // Only devices with this guarantee of their makers can do it.
        return match names {
            [] => Err(Failure::refused("cannot trim: no devices in pool support trim operations")),
            [first, ..] => Err(failed(first, &"trim operations are not supported by this device")),
        };
    }
    let session = zpool_devices::opened(call, pool, &|why| failed(pool, &why))?;
    let (mut begun, mut refused) = (Vec::new(), false);
    for (name, guid) in &leaves {
        match session.pool().treat(*guid, what, order) {
            Ok(()) => begun.push(*guid),
            Err(error) => {
                console.complain(failed(name, &error))?;
                refused = true;
            }
        }
    }
    let waits = options.wait || call.live().is_none();
    if waits && matches!(order, Order::Start(_)) {
        session.pool().wait_treated(what, &begun).map_err(|error| failed(pool, &error))?;
    }
    session.finish()?;
    Ok(!refused)
}

/// The named leaves, or all leaves of the tree, each with its name; or the first name that no leaf has.
fn leaves(view: &PoolView, names: &[String]) -> Result<Vec<(String, Guid)>, String> {
    let tree = view.tree(Naming::default());
    if names.is_empty() {
        let mut all = Vec::new();
        let mut add = |vdev: &VdevView| {
            if vdev.is_leaf() {
                all.push((vdev.path.clone().unwrap_or_else(|| vdev.name.clone()), vdev.guid));
            }
        };
        tree.iter().for_each(|top| top.walk(&mut add));
        return Ok(all);
    }
    let find = |name: &String| {
        let found = tree.iter().find_map(|vdev| named(vdev, name)).filter(|vdev| vdev.is_leaf());
        found.map(|vdev| (name.clone(), vdev.guid)).ok_or_else(|| name.clone())
    };
    names.iter().map(find).collect()
}
