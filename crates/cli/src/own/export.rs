//! `cenote export` and `cenote unexport`: volumes as network block devices.
//!
//! From:   the server of the pool, which these commands are carried out by.
//! To:     its exports.

use front::Address;
use serde_json::json;
use server::{ExportTold, Exported};

use super::{Export, Unexport};
use crate::around::Surroundings;
use crate::messages::Failure;
use crate::out::Console;

/// Carries out `export`.
///
/// # Errors
/// The pool has no server, or why the volume is not exported.
pub fn export(args: &Export, around: &Surroundings, console: &mut Console) -> Result<(), Failure> {
    let Some(served) = &around.served else { return Err(no_server(&args.name)) };
    if !args.name.contains('/') {
        return list(args.json, &served.live.exports(), console);
    }
    let address = match (&args.socket, &args.listen) {
        (Some(path), _) => Some(Address::Unix(around.path(path))),
        (None, Some(address)) => Some(address.clone()),
        (None, None) => None,
    };
    let beyond = address.as_ref().is_some_and(|address| !address.is_local());
    let _turn = served.turn()?;
    let certificates = args.tls.as_ref().map(|folder| around.path(folder));
    let told = ExportTold { address, read_only: args.read_only, certificates };
    let exported = served
        .live
        .export(&args.name, &told)
        .map_err(|error| Failure::refused(format!("cannot export '{}': {error}", args.name)))?;
    if beyond && args.tls.is_none() {
        console.remark(
            "warning: whoever reaches this address can use the volume: NBD has no passwords, and without --tls nothing is \
             encrypted. The export ends with the server",
        );
    }
    match args.json {
        true => console.line(&as_json(&exported)),
        false => console.line(&exported.uri),
    }
}

/// Carries out `unexport`.
///
/// # Errors
/// The pool has no server, the volume is not exported, or clients use it.
pub fn unexport(args: &Unexport, around: &Surroundings) -> Result<(), Failure> {
    let Some(served) = &around.served else { return Err(no_server(&args.name)) };
    let _turn = served.turn()?;
    let ended = served.live.unexport(&args.name, args.force);
    ended.map_err(|error| Failure::refused(format!("cannot unexport '{}': {error}", args.name)))
}

/// An export as an object.
fn as_json(export: &Exported) -> String {
    let Exported { dataset, read_only, clients, uri, .. } = export;
    json!({ "dataset": dataset, "read_only": read_only, "clients": clients, "uri": uri }).to_string()
}

fn list(with_json: bool, exports: &[Exported], console: &mut Console) -> Result<(), Failure> {
    if with_json {
        return exports.iter().try_for_each(|export| console.line(&as_json(export)));
    }
    if exports.is_empty() {
        console.note("no exports");
    }
    exports.iter().try_for_each(|export| {
        let access = if export.read_only { "ro" } else { "rw" };
        console.line(&format!("{}\t{access}\t{}\t{}", export.dataset, export.clients, export.uri))
    })
}

fn no_server(name: &str) -> Failure {
    let pool = crate::open::pool_of(name);
    Failure::refused(format!("cannot export '{name}': pool '{pool}' is not imported"))
        .hint("a pool's server exports its volumes: 'zpool import' starts it")
}
