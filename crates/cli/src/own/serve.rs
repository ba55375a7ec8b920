//! `cenote serve`.

use std::sync::Arc;

use pool::props::names;
use serde_json::{Value, json};
use server::Runtime;

use super::Serve;
use crate::around::Surroundings;
use crate::compat::zfs_mount::{self, INVALID};
use crate::config;
use crate::front_ends;
use crate::messages::{Action, Failure};
use crate::open::{self, NotOpen};
use crate::out::Console;
use crate::start::{log_of, start, start_unmounted};

/// Carries out `serve`. Ends when the server does.
///
/// # Errors
/// The pool is not there, in use, or cannot be opened.
pub fn run(
    args: &Serve,
    commands: &Arc<dyn server::Commands>,
    around: &Surroundings,
    console: &mut Console,
) -> Result<(), Failure> {
    let name = args.pool.as_str();
    names::check_pool(name, false).map_err(|error| Action::Open(name).failed(error))?;
    if args.background {
        let started = match args.no_mount {
            true => start_unmounted(name, around, console),
            false => start(name, true, args.options.as_deref(), around, console),
        };
        if let (Err(Failure::Ended(_)), true) = (&started, args.json) {
            // The server itself has said why.
            let line = Action::Open(name).to_string() + ": its server did not start";
            console.object(&json!({ "error": line }))?;
        }
        started?;
        return if args.json { console.line(&as_json(name, around).to_string()) } else { Ok(()) };
    }
    let usable = open::find(name, around)?;
    let options = open::options(&usable).map_err(NotOpen::from)?;
    let options = pool::Options { is_new: args.created, ..options };
    let found = usable.found.ok_or_else(|| NotOpen::Unavailable(name.to_owned()))?;
    let options_given = args.options.as_deref().into_iter();
    let overrides = zfs_mount::overrides(options_given).ok_or_else(|| Action::Mount(name).failed(INVALID))?;
    let mount = (!args.no_mount).then_some(overrides);
    let background = args.ready.then(|| log_of(name));
    let visitors = server::visitors::folder_of_server().filter(|_| config::lets_others_look());
    let runtime = Runtime::of_user();
    let serve =
        server::Serve { found, options, front_ends: front_ends::all(), runtime, visitors, mount, background };
    server::serve(serve, commands.clone()).map_err(|error| match error {
        server::ServeError::Pool(source) => NotOpen::Failed { name: name.to_owned(), source }.into(),
        error => Action::Open(name).failed(error),
    })
}

/// The pool and its mounts, as JSON.
fn as_json(name: &str, around: &Surroundings) -> Value {
    let all = open::mounted(around);
    let own = all.iter().filter(|mount| open::pool_of(&mount.dataset) == name);
    let mounts =
        own.map(|mount| json!({ "dataset": mount.dataset, "mountpoint": mount.point.display().to_string() }));
    let mounts: Vec<Value> = mounts.collect();
    json!({ "schema": 1, "pool": name, "mounts": mounts })
}
