//! `zpool scrub` and `zpool clear`.
//!
//! A pool that no server holds is held by the command itself: then `scrub` stays until it is done, as with `-w`.

use std::time::Duration;

use server::Live;

use super::Call;
use super::view::{Naming, PoolView, VdevView};
use crate::args::{every_pool, flag, property, value};
use crate::command::{Beside, Command, Run, Targets};
use crate::messages::{Failure, reason};
use crate::open::{self, Intent};
use crate::out::Console;

/// `zpool scrub`.
pub static COMMAND: Command = Command {
    name: "scrub",
    about: "verifies every copy of every block",
    syntax: &["scrub [-e|-s|-p|-C] [-t] [-w] [-S DATE] [-E DATE] -a|POOL…"],
    options: &[
        every_pool("a", "in all pools"),
        flag("e", "only files with known errors"),
        flag("p", "pauses it"),
        flag("s", "stops it"),
        flag("C", "from the txg where the last one ended"),
        flag("t", "has no effect"),
        flag("w", "waits for the end"),
        property("S", "only what was born after this date"),
        value("E", "only what was born before this date"),
    ],
    targets: Targets::Of(targets),
    beside: Beside::TakesTurns,
    run: Run::Here(scrub),
    ..Command::ZPOOL
};

fn targets(call: &Call) -> Result<Vec<String>, Failure> {
    Ok(match call.args.has("a") && call.args.operands.is_empty() {
        true => open::names(call.around)?,
        false => call.args.operands.clone(),
    })
}

/// How often the state of a pool that a server holds is looked at.
const GLANCE: Duration = Duration::from_millis(250);

/// Runs `zpool scrub`.
///
/// # Errors
/// Usage; each pool that cannot be scrubbed is complained about.
pub fn scrub(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let has = |option| call.args.has(option);
    let dates = [("S", false), ("E", true)]
        .map(|(option, ends)| call.args.value(option).map(|text| date(text, ends)));
    let [start, end] = dates.map(Option::transpose);
    let dates = [start?, end?];
    for [one, other] in [["s", "p"], ["p", "C"], ["s", "C"], ["e", "C"]] {
        if has(one) && has(other) {
            return Err(Failure::usage(format!(
                "invalid option combination: -{one} and -{other} are mutually exclusive"
            )));
        }
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
        if let Err(failure) = one(call, name, dates) {
            console.complain(failure)?;
        }
    }
    Ok(())
}

/// A date of the command line, in seconds since 1970. A day alone is its beginning, or with `ends` its end.
fn date(text: &str, ends: bool) -> Result<u64, Failure> {
    crate::dates::read(text, ends).ok_or_else(|| Failure::usage("Failed to parse the date."))
}

/// What a new scrub is to visit.
fn births(call: &Call, pool: &pool::Pool, [start, end]: [Option<u64>; 2]) -> pool::Result<pool::Births> {
    if call.args.has("C") {
        return Ok(pool::Births { after: pool.last_scrubbed_txg()?, up_to: None });
    }
    pool.births_between(start, end)
}

fn one(call: &Call, name: &str, dates: [Option<u64>; 2]) -> Result<(), Failure> {
    // Others may change the pool while this waits for the end, but not while it begins.
    let turn = call.turn()?;
    let session = open::open_pool(name, call.around, Intent::Write)?;
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
        _ if call.args.has("e") => pool.scrub_errors(),
        _ => births(call, pool, dates).and_then(|births| pool.scrub_born(births)),
    };
    // In a server it goes on after the command.
    let done = match verb {
        "scrub" if call.live().is_none() => done.and_then(|()| pool.wait_scrub()),
        _ => done,
    };
    done.map_err(|error| failed(&error))?;
    session.finish()?;
    drop(turn);
    match &call.around.served {
        Some(served) if call.args.has("w") => {
            until_over(&served.live, || served.stops()).map_err(|error| failed(&error))
        }
        _ => Ok(()),
    }
}

/// Waits for the end of a scrub, but not longer than somebody waits for this.
fn until_over(live: &Live, stops: impl Fn() -> bool) -> pool::Result<()> {
    while !stops() {
        // Let go of in between, so that the pool can be exported by force; the scrub goes on at the next import.
        let Ok(pool) = live.pool() else { return Ok(()) };
        if pool.wait_scrub_for(GLANCE)? {
            return Ok(());
        }
    }
    Ok(())
}

/// Runs `zpool clear`.
///
/// # Errors
/// Usage; a pool or device that is not there.
pub fn clear(call: &Call) -> Result<(), Failure> {
    let has = |option| call.args.has(option);
    if has("power") {
        return Err(Failure::refused("cenote: not supported yet: zpool clear --power"));
    }
    if (has("n") || has("X")) && !has("F") {
        return Err(Failure::usage("-n or -X only meaningful with -F"));
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
    if session.pool().read_only().is_some() {
        let reason = reason::POOL_READ_ONLY;
        return Err(Failure::refused(format!("cannot clear errors for {name}: {reason}")));
    }
    let guid = match device {
        None => None,
        Some(device) => {
            let missing =
                || Failure::refused(format!("cannot clear errors for {device}: no such device in pool"));
            let tree = view.tree(Naming::default());
            Some(tree.iter().find_map(|vdev| named(vdev, device)).ok_or_else(missing)?)
        }
    };
    // A pool that is open needs no recovery: there is nothing to try.
    if has("n") {
        return Ok(());
    }
    let pool = session.pool();
    pool.clear_errors(guid);
    pool.resume().map_err(|error| {
        let why = pool.trouble().map_or_else(String::new, |trouble| trouble.why);
        Failure::refused(format!("cannot clear errors for {name}: {error}")).hint(why)
    })?;
    // Without a server there is nobody who keeps events or waits for devices.
    if !session.is_live() {
        return Ok(());
    }
    session.command(&call.line);
    let reopened = pool.reopen(guid.map(format::Guid)).map(drop);
    let written = reopened.and_then(|()| pool.rewrite_config());
    pool.forget_command();
    written.map_err(|error| Failure::refused(format!("cannot clear errors for {name}: {error}")))
}

/// The guid of the vdev that goes by `name`, here or below.
fn named(vdev: &VdevView, name: &str) -> Option<u64> {
    let it = vdev.name == name || vdev.path.as_deref() == Some(name) || vdev.guid.0.to_string() == name;
    if it { Some(vdev.guid.0) } else { vdev.children.iter().find_map(|child| named(child, name)) }
}
