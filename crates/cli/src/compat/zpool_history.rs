//! `zpool history`.

use super::owner_quota::name_of;
use super::pools_named::pools_named;
use super::{Call, history_event};
use crate::args::{Parsed, flag};
use crate::command::{Command, Run};
use crate::json::envelope;
use crate::messages::{Action, Failure};
use crate::open::{self, Intent};
use crate::out::Console;
use pool::props::dataset::Owner;
use serde_json::{Map, json};
use std::collections::{BTreeMap, BTreeSet};

/// `zpool history`.
pub static COMMAND: Command = Command {
    name: "history",
    about: "shows the commands that changed pools",
    syntax: &["history [-il] [-j] [POOL]…"],
    examples: &["zpool history tank", "zpool history -il tank"],
    options: &[
        flag("i", "with internal events"),
        flag("l", "with user and host"),
        flag("j|json", "prints JSON"),
    ],
    run: Run::Here(run),
    ..Command::ZPOOL
};

/// The options of `zpool history`.
struct Options {
    internal: bool,
    long: bool,
    json: bool,
}

fn read(args: &Parsed) -> Options {
    Options { internal: args.has("i"), long: args.has("l"), json: args.has("j") }
}

/// Runs `zpool history`.
///
/// # Errors
/// The arguments are wrong, or pools are missing. Each of them has a message of its own.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let (internal, long) = (call.options.internal, call.options.long);
    let mut known: BTreeMap<u64, Option<String>> = BTreeMap::new();
    let mut user = |who| known.entry(who).or_insert_with(|| name_of(Owner::User, who)).clone();
    let mut pools = Map::new();
    // Sorted by name, and each pool once.
    for name in pools_named(call, console)?.into_iter().collect::<BTreeSet<_>>() {
        let session = open::open_pool(&name, call.around, Intent::Read)?;
        let events = session.pool().history().map_err(|error| Action::Open(&name).failed(error))?;
        if call.options.json {
            let events = events.iter().filter_map(|event| history_event::object(event, internal));
            pools.insert(name, json!({ "history": events.collect::<Vec<_>>() }));
            session.finish()?;
            continue;
        }
        console.line(&format!("History for '{name}':"))?;
        for line in events.iter().filter_map(|event| history_event::line(event, internal, long, &mut user)) {
            console.line(&line)?;
        }
        console.line("")?;
        session.finish()?;
    }
    if call.options.json {
        console.line(&envelope("zpool history", "pools", pools).to_string())?;
    }
    Ok(())
}
