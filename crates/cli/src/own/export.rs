//! `cenote export` and `cenote unexport`: volumes as network block devices, and file systems over NFS.
//!
//! From:   the server of the pool, which these commands are carried out by.
//! To:     its exports.

use front::Address;
use serde_json::json;
use server::{ExportTold, Exported, ShareTold};

use super::{Export, Unexport};
use crate::around::{Served, Surroundings};
use crate::messages::Failure;
use crate::out::Console;

/// Carries out `export`.
///
/// # Errors
/// The pool has no server, or why the dataset is not exported.
pub fn export(args: &Export, around: &Surroundings, console: &mut Console) -> Result<(), Failure> {
    let Some(served) = &around.served else { return Err(no_server(&args.name)) };
    if args.nfs {
        return share(args, served, console);
    }
    if !args.name.contains('/') {
        return list(args.json, &served.live.exports(), console);
    }
    let address = match (&args.socket, &args.listen) {
        (Some(path), _) => Some(Address::Unix(around.path(path))),
        (None, Some(address)) => Some(tcp(address, nbd::PORT)?),
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
        console.note(
            "warning: everybody who reaches this address can use the volume: NBD has no passwords, and without --tls \
             nothing is encrypted. The export ends with the server",
        );
    }
    show(args.json, &exported, console)
}

fn show(with_json: bool, exported: &Exported, console: &mut Console) -> Result<(), Failure> {
    match with_json {
        true => console.line(&as_json(exported)),
        false => console.line(&exported.uri),
    }
}

/// An address of TCP.
fn tcp(text: &str, port: u16) -> Result<Address, Failure> {
    Address::tcp(text, port).map_err(|error| Failure::usage(format!("--listen: {error}")))
}

/// Shares a file system over NFS.
fn share(args: &Export, served: &Served, console: &mut Console) -> Result<(), Failure> {
    let name = &args.name;
    let failed = |error: &dyn std::fmt::Display| Failure::refused(format!("cannot export '{name}': {error}"));
    let address = match args.listen.as_ref().map(|text| tcp(text, nfs::PORT)).transpose()? {
        Some(Address::Tcp(address)) => Some(address),
        _ => None,
    };
    let rules = if args.read_only { Some("ro".to_owned()) } else { args.options.clone() };
    if let Some(rules) = &rules {
        nfs::Rules::parse(rules).map_err(|error| failed(&error))?;
    }
    let _turn = served.turn()?;
    let exported =
        served.live.share_as(name, &ShareTold { address, rules }).map_err(|error| failed(&error))?;
    if address.is_some_and(|address| !address.ip().is_loopback()) {
        console.note(
            "warning: NFS believes what clients say about their users, and nothing is encrypted: everybody who reaches \
             this address and is let in by sharenfs can act as any user but root. Other machines are served until the server ends",
        );
    }
    show(args.json, &exported, console)
}

/// Carries out `unexport`.
///
/// # Errors
/// The pool has no server, the dataset is not exported, or clients use it.
pub fn unexport(args: &Unexport, around: &Surroundings, console: &mut Console) -> Result<(), Failure> {
    let Some(served) = &around.served else { return Err(no_server(&args.name)) };
    let _turn = served.turn()?;
    let failed =
        |error: &dyn std::fmt::Display| Failure::refused(format!("cannot unexport '{}': {error}", args.name));
    if !served.live.unshare_for_good(&args.name).map_err(|error| failed(&error))? {
        served.live.unexport(&args.name, args.force).map_err(|error| failed(&error))?;
    }
    if args.json { console.line(&json!({ "unexported": args.name }).to_string()) } else { Ok(()) }
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
    Failure::refused(format!("cannot export '{name}': pool '{pool}' is not imported")).hint(format!(
        "a pool's server exports its datasets: 'zpool import' starts it, or, where nothing can be mounted, \
             'cenote serve --background --no-mount {pool}'"
    ))
}
