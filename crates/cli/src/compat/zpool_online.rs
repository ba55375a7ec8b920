//! `zpool online`.

use super::Call;
use super::zpool_devices::{Words, each};
use crate::args::{Parsed, flag};
use crate::command::{Command, Run, Targets};
use crate::messages::Failure;
use scan::Scans as _;
use std::path::PathBuf;

/// `zpool online`.
pub static COMMAND: Command = Command {
    name: "online",
    about: "takes devices into service",
    syntax: &["online [--power] [-e] POOL DEVICE…"],
    examples: &["zpool online tank /dev/sdb", "zpool online -e tank /dev/sdb"],
    options: &[flag("e", "uses all of their space"), flag("power", "switches slots on")],
    targets: Targets::First,
    run: Run::Here(|call, _| run(call)),
    ..Command::ZPOOL
};

/// The options of `zpool online`.
struct Options {
    expand: bool,
    power: bool,
}

fn read(args: &Parsed) -> Options {
    Options { expand: args.has("e"), power: args.has("power") }
}

/// Runs `zpool online`.
///
/// # Errors
/// The arguments are wrong, or the device is missing or is not the same device as before.
fn run(call: &Call) -> Result<(), Failure> {
    let call = &call.typed(read);
    if call.options.power {
        return Err(Failure::refused("cenote: not supported yet: zpool online --power"));
    }
    let not_found = |device: &str, pool: &str| {
        Failure::refused(format!("couldn't find device \"{device}\" in pool \"{pool}\""))
    };
    let words = Words { verb: "online", not_found: Some(not_found) };
    each(call, &words, |session, found| {
        let path = found.path.as_ref().map(PathBuf::from).ok_or(pool::Error::NoSuchDevice)?;
        let mut joined = session.pool().online(found.guid, &path)?;
        if call.options.expand {
            (_, joined) = session.pool().expand(found.guid)?;
        }
        session.pool().resilver_joined(joined)
    })
}
