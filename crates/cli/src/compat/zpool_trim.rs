//! `zpool initialize` and `zpool trim`: what is done to free space.
//!
//! A pool that no server holds is held by the command itself: then it stays until all is done, as with `-w`.

use format::Guid;
use pool::{Order, Treatment};

use super::Call;
use super::view::{Naming, PoolView, VdevView};
use super::zpool_devices::{self, named};
use crate::args::{every_pool, flag, value};
use crate::command::{Beside, Command, Run, Targets};
use crate::messages::Failure;
use crate::open;
use crate::out::Console;

/// `zpool initialize`.
pub static INITIALIZE: Command = Command {
    name: "initialize",
    about: "writes to all free space",
    syntax: &["initialize [-c|-s|-u] [-w] -a|POOL [DEVICE]…"],
    options: &[
        every_pool("a", "in all pools"),
        flag("c", "cancels it"),
        flag("s", "suspends it"),
        flag("u", "forgets it"),
        flag("w", "waits for the end"),
        flag("z", "with zeros"),
    ],
    targets: Targets::Of(targets),
    beside: Beside::TakesTurns,
    run: Run::Here(|call, console| run(call, console, Treatment::Initialize)),
    ..Command::ZPOOL
};

/// `zpool trim`.
pub static TRIM: Command = Command {
    name: "trim",
    about: "tells devices what is free",
    syntax: &["trim [-dw] [-r RATE] [-c|-s] -a|POOL [DEVICE]…"],
    options: &[
        every_pool("a", "in all pools"),
        flag("d", "so that it cannot be read any more"),
        flag("w", "waits for the end"),
        flag("c", "cancels it"),
        flag("s", "suspends it"),
        value("r", "at most so many bytes a second"),
    ],
    targets: Targets::Of(targets),
    beside: Beside::TakesTurns,
    run: Run::Here(|call, console| run(call, console, Treatment::Trim)),
    ..Command::ZPOOL
};

/// Exit status where nothing, or not all, could be done: OpenZFS returns -1 there.
const NEGATIVE: u8 = 255;

fn targets(call: &Call) -> Result<Vec<String>, Failure> {
    Ok(match call.args.has("a") && call.args.operands.is_empty() {
        true => open::names(call.around)?,
        false => call.args.operands.first().cloned().into_iter().collect(),
    })
}

fn run(call: &Call, console: &mut Console, what: Treatment) -> Result<(), Failure> {
    let order = order(call, what)?;
    let pools = match (call.args.operands.as_slice(), call.args.has("a")) {
        ([], false) => return Err(Failure::usage("missing pool name argument")),
        ([], true) => open::names(call.around)?.into_iter().map(|name| (name, Vec::new())).collect(),
        ([_, ..], true) => return Err(Failure::usage("-a cannot be combined with individual pools")),
        ([pool, devices @ ..], false) => vec![(pool.clone(), devices.to_vec())],
    };
    let mut refused = false;
    for (pool, devices) in pools {
        match treat(call, console, (&pool, &devices), what, order) {
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

/// What the options order.
fn order(call: &Call, what: Treatment) -> Result<Order, Failure> {
    let has = |option| call.args.has(option);
    let actions: Vec<&str> = call
        .args
        .options
        .iter()
        .map(|(name, _)| *name)
        .filter(|name| matches!(*name, "c" | "s" | "u"))
        .collect();
    if let Some(second) = actions.iter().find(|action| **action != actions[0]) {
        return Err(Failure::usage(format!("-{second} cannot be combined with other options")));
    }
    let begins = actions.is_empty();
    if let Some(option) = ["d", "r"].into_iter().find(|option| !begins && has(option)) {
        return Err(Failure::usage(format!("-{option} cannot be combined with the -c or -s options")));
    }
    if has("w") && !begins {
        let which = if what == Treatment::Initialize { "-c, -s or -u" } else { "-c or -s" };
        return Err(Failure::usage(format!("-w cannot be used with {which}")));
    }
    Ok(match actions.first() {
        Some(&"c") => Order::Cancel,
        Some(&"s") => Order::Suspend,
        Some(_) => Order::Forget,
        None if has("z") => Order::Start(Some(0)),
        None => Order::Start(rate(call)?),
    })
}

fn rate(call: &Call) -> Result<Option<u64>, Failure> {
    let Some(text) = call.args.value("r") else { return Ok(None) };
    let rate = pool::props::size::parse_size(text);
    rate.map(Some).map_err(|error| Failure::usage(format!("invalid value for rate: {error}")))
}

/// Carries out the order in one pool, for the devices named, or all; says whether each took it.
fn treat(
    call: &Call,
    console: &mut Console,
    (pool, names): (&str, &[String]),
    what: Treatment,
    order: Order,
) -> Result<bool, Failure> {
    let verb = if what == Treatment::Initialize { "initialize" } else { "trim" };
    let failed =
        |name: &str, why: &dyn std::fmt::Display| Failure::refused(format!("cannot {verb} '{name}': {why}"));
    let view = PoolView::new(open::find(pool, call.around)?);
    let leaves = leaves(&view, names).map_err(|name| failed(&name, &"no such device in pool"))?;
    drop(view);
    if call.args.has("d") {
        // Only devices can do that whose makers promise it.
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
    let waits = call.args.has("w") || call.live().is_none();
    if waits && matches!(order, Order::Start(_)) {
        session.pool().wait_treated(what, &begun).map_err(|error| failed(pool, &error))?;
    }
    session.finish()?;
    Ok(!refused)
}

/// The leaves named, or all of the tree, each with what it is called; or the name that is none's.
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
