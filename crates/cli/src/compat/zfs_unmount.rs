//! `zfs unmount`.

use super::Call;
use super::key_loading;
use super::mounting::{stays, without_server};
use super::select::dataset_failure;
use super::zfs_mount::take_turns;
use super::zfs_mount_turns;
use crate::args::{Parsed, flag};
use crate::command::{Command, Run, Typed};
use crate::messages::{Action, Failure, io_words, reason};
use crate::open::{self, NotOpen, pool_of};
use crate::out::Console;
use crate::{client, connect};
use pool::props::dataset as props;
use pool::props::{DatasetKind, Value, names};
use server::{Live, Unmounted};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// `zfs unmount`.
pub static COMMAND: Command = Command {
    name: "unmount",
    alias: Some("umount"),
    about: "unmounts file systems",
    syntax: &["unmount [-fu] -a|FILESYSTEM|MOUNTPOINT"],
    examples: &["zfs unmount tank/home", "zfs unmount -a"],
    options: &[
        flag("a", "all of them"),
        flag("f", "even while programs use them"),
        flag("u", "unloads keys, too"),
    ],
    run: Run::Here(run),
    ..Command::ZFS
};

/// The options of `zfs unmount`.
struct Options {
    all: bool,
    force: bool,
    unload_keys: bool,
}

fn read(args: &Parsed) -> Options {
    Options { all: args.has("a"), force: args.has("f"), unload_keys: args.has("u") }
}

/// `canmount=noauto` as it is stored.
const NOAUTO: u64 = 2;

/// Runs `zfs unmount`.
///
/// # Errors
/// The arguments are wrong, or a file system cannot be unmounted.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let args = &call.args;
    let name = match (args.operands.as_slice(), call.options.all) {
        // As when mounting.
        (_, true) if call.live().is_some() => None,
        ([], true) => None,
        ([], false) => return Err(Failure::usage("missing filesystem argument")),
        ([name], false) => Some(name.as_str()),
        _ => return Err(Failure::usage("too many arguments")),
    };
    if let Some(live) = call.live() {
        return unmount_here(call, live, name, console);
    }
    if !connect::is_used() {
        return Err(without_server(call));
    }
    let name = match name {
        Some(path) if path.starts_with('/') || path.starts_with("./") => Some(dataset_at(call, path)?),
        Some(name) => {
            names::check_kind(name, DatasetKind::Filesystem)
                .map_err(|error| Action::Open(name).failed(error))?;
            Some(name.to_owned())
        }
        None => None,
    };
    let Some(name) = name else {
        let pools: Vec<String> = open::usable(call.around)?.into_iter().map(|pool| pool.name).collect();
        let mut served = Vec::new();
        for pool in pools {
            if client::server_of(&pool, call.around)?.is_some() {
                served.push(pool);
            }
        }
        console.flush()?;
        return take_turns(call, zfs_mount_turns::of_unmounting(served, call.around));
    };
    let pool = pool_of(&name).to_owned();
    if client::server_of(&pool, call.around)?.is_some() {
        console.flush()?;
        return take_turns(call, vec![(pool, vec![name])]);
    }
    let session = open::open_for(&name, call.around, open::Intent::Read);
    let session = session.map_err(|error: NotOpen| error.dataset(&name))?;
    session.pool().dataset(&name).map_err(|error| dataset_failure(&name, &error))?;
    Err(stays(&name, &Unmounted::NotMounted))
}

fn unmount_here(
    call: &Typed<Options>,
    live: &Arc<Live>,
    name: Option<&str>,
    console: &mut Console,
) -> Result<(), Failure> {
    let force = call.options.force;
    let mounts = live.seen();
    let pool = live.pool().map_err(|closed| Action::Open(live.name()).failed(closed))?;
    let Some(name) = name else {
        // Children first, or in the order of the client. Datasets that were mounted by name alone, or by mount(8), stay
        // mounted.
        let mounted: Vec<&String> = mounts.iter().rev().map(|(dataset, _)| dataset).collect();
        let listed = &call.args.operands;
        let wanted: Vec<&String> = match listed.is_empty() {
            true => mounted,
            false => listed.iter().filter(|dataset| mounted.contains(dataset)).collect(),
        };
        for dataset in wanted.into_iter().filter(|dataset| !is_by_name(&pool, dataset)) {
            if let Err(error) = live.unmount(std::slice::from_ref(dataset), force) {
                console.complain(stays(dataset, &error))?;
            } else if call.options.unload_keys {
                key_loading::after_unmounting(call, console, dataset)?;
            }
        }
        return Ok(());
    };
    let info = pool.dataset(name).map_err(|error| dataset_failure(name, &error))?;
    if info.kind != DatasetKind::Filesystem {
        return Err(Action::Open(name).failed(reason::WRONG_KIND));
    }
    drop(pool);
    let Some((_, top)) = mounts.iter().find(|(dataset, _)| dataset == name) else {
        // It may be detached already and still be in use.
        let ended = if force { live.end_left(name).map_err(|error| stays(name, &error))? } else { false };
        return if ended { Ok(()) } else { Err(stays(name, &Unmounted::NotMounted)) };
    };
    // With those below it that are mounted inside it.
    let inside = |(dataset, point): &&(String, PathBuf)| {
        let below = dataset.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        below && point.starts_with(top)
    };
    let down: Vec<String> = mounts.iter().filter(inside).map(|(dataset, _)| dataset.clone()).collect();
    live.unmount(&down, force).map_err(|error| stays(name, &error))?;
    if call.options.unload_keys { key_loading::after_unmounting(call, console, name) } else { Ok(()) }
}

/// Whether a dataset has `canmount=noauto` or `mountpoint=legacy`.
fn is_by_name(pool: &pool::Pool, dataset: &str) -> bool {
    let value = |name: &str| {
        let property = props::parse(name).expect("the table has it");
        pool.dataset(dataset).and_then(|info| pool.property(&info, property)).ok().flatten()
    };
    dataset.contains('@')
        || matches!(value("canmount"), Some((Value::Number(NOAUTO), _)))
        || matches!(value("mountpoint"), Some((Value::Text(path), _)) if path == "legacy")
}

/// The dataset mounted on a folder.
fn dataset_at(call: &Typed<Options>, path: &str) -> Result<String, Failure> {
    let action = Action::Unmount(path);
    let words = |error: std::io::Error| action.failed(io_words(&error));
    let full = std::fs::canonicalize(path).map_err(|error| Action::Open(path).failed(error))?;
    match open::dataset_of(Path::new(path), call.around).map_err(words)? {
        Some(mount) if mount.point == full => Ok(mount.dataset),
        Some(_) => Err(action.failed("not a mountpoint")),
        None => Err(action.failed("not a ZFS filesystem")),
    }
}
