//! `zpool scrub`.
//!
//! If no server holds the pool, the command itself does. Then `scrub` waits until it is done, as with `-w`.

use std::time::Duration;

use scan::Scans as _;
use server::Live;

use super::Call;
use super::zpool_devices::opened;
use crate::args::{Parsed, every_pool, flag, property, value};
use crate::command::{Beside, Command, Run, Targets, Typed};
use crate::messages::Failure;
use crate::open::{self};
use crate::out::Console;

/// `zpool scrub`.
pub static COMMAND: Command = Command {
    name: "scrub",
    about: "verifies every copy of every block",
    syntax: &["scrub [-e|-s|-p|-C] [-t] [-w] [-S DATE] [-E DATE] -a|POOL…"],
    examples: &["zpool scrub tank", "zpool scrub -w tank", "zpool scrub -s tank"],
    options: &[
        every_pool("a", "in all pools"),
        flag("e", "only files with known errors"),
        flag("p", "pauses it"),
        flag("s", "stops it"),
        flag("C", "from the txg where the last one ended"),
        flag("t", "has no effect").idle(),
        flag("w", "waits for the end"),
        property("S", "only what was born after this date"),
        value("E", "only what was born before this date"),
    ],
    targets: Targets::Of(targets),
    beside: Beside::TakesTurns,
    run: Run::Here(run),
    ..Command::ZPOOL
};

/// The options of `zpool scrub`.
struct Options {
    all: bool,
    errors: bool,
    pause: bool,
    stop: bool,
    go_on: bool,
    wait: bool,
    start: Option<String>,
    end: Option<String>,
}

fn read(args: &Parsed) -> Options {
    Options {
        all: args.has("a"),
        errors: args.has("e"),
        pause: args.has("p"),
        stop: args.has("s"),
        go_on: args.has("C"),
        wait: args.has("w"),
        start: args.text("S"),
        end: args.text("E"),
    }
}

fn targets(call: &Call) -> Result<Vec<String>, Failure> {
    let call = &call.typed(read);
    Ok(match call.options.all && call.args.operands.is_empty() {
        true => open::names(call.around)?,
        false => call.args.operands.clone(),
    })
}

/// Interval at which the state of a pool in a server is read.
const GLANCE: Duration = Duration::from_millis(250);

/// Runs `zpool scrub`.
///
/// # Errors
/// The arguments are wrong, or a pool cannot be scrubbed. Each such pool has a message of its own.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let options = &call.options;
    let start = options.start.as_deref().map(|text| date(text, false)).transpose();
    let end = options.end.as_deref().map(|text| date(text, true)).transpose();
    let dates = [start?, end?];
    for (is_given, one, other) in [
        (options.stop && options.pause, "s", "p"),
        (options.pause && options.go_on, "p", "C"),
        (options.stop && options.go_on, "s", "C"),
        (options.errors && options.go_on, "e", "C"),
    ] {
        if is_given {
            return Err(Failure::usage(format!(
                "invalid option combination: -{one} and -{other} are mutually exclusive"
            )));
        }
    }
    if call.options.wait && (call.options.pause || call.options.stop) {
        let other = if call.options.pause { "-p" } else { "-s" };
        return Err(Failure::usage(format!(
            "invalid option combination: -w and {other} are mutually exclusive"
        )));
    }
    let names = match (call.args.operands.as_slice(), call.options.all) {
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

/// The births of the blocks that a new scrub is to visit.
fn births(
    call: &Typed<Options>,
    pool: &pool::Pool,
    [start, end]: [Option<u64>; 2],
) -> pool::Result<scan::Births> {
    if call.options.go_on {
        return Ok(scan::Births { after: pool.last_scrubbed_txg()?, up_to: None });
    }
    pool.births_between(start, end)
}

fn one(call: &Typed<Options>, name: &str, dates: [Option<u64>; 2]) -> Result<(), Failure> {
    // Others may change the pool while this waits for the end, but not while it begins.
    let turn = call.turn()?;
    let verb = match (call.options.stop, call.options.pause) {
        (true, _) => "cancel scrubbing",
        (_, true) => "pause scrubbing",
        _ => "scrub",
    };
    let failed = |why: &str| Failure::refused(format!("cannot {verb} {name}: {why}"));
    let session = opened(call, name, &failed)?;
    let pool = session.pool();
    let done = match verb {
        "cancel scrubbing" => pool.cancel_scrub(),
        "pause scrubbing" => match pool.pause_scrub() {
            // A scrub that has ended since is not reported.
            Err(pool::Error::NotScrubbing) if matches!(pool.scan(), Ok(Some(_))) => Ok(()),
            other => other,
        },
        _ if call.options.errors => pool.scrub_errors(),
        _ => births(call, pool, dates).and_then(|births| pool.scrub_born(births)),
    };
    // In a server, the scrub continues after the end of the command.
    let done = match verb {
        "scrub" if call.live().is_none() => done.and_then(|()| pool.wait_scrub()),
        _ => done,
    };
    done.map_err(|error| failed(&error.to_string()))?;
    session.finish()?;
    drop(turn);
    match &call.around.served {
        Some(served) if call.options.wait => {
            until_over(&served.live, || served.stops()).map_err(|error| failed(&error.to_string()))
        }
        _ => Ok(()),
    }
}

/// Waits for the end of a scrub, but only as long as the user waits for this.
fn until_over(live: &Live, stops: impl Fn() -> bool) -> pool::Result<()> {
    while !stops() {
        // The pool is released in between, so that it can be exported by force; the scrub continues after the next import.
        let Ok(pool) = live.pool() else { return Ok(()) };
        if pool.wait_scrub_for(GLANCE)? {
            return Ok(());
        }
    }
    Ok(())
}
