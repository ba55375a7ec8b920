//! `zfs mount` and `zfs unmount`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pool::props::dataset as props;
use pool::props::{DatasetKind, Value, names};
use serde_json::{Map, json};
use server::{Live, Overrides, Unmounted};

use super::Call;
use super::mounting::{say, stays, why_not_mounted, without_server};
use super::select::dataset_failure;
use super::zfs_mount_turns;
use crate::args::{flag, property};
use crate::command::{Command, Run, Subjects, Visitors};
use crate::json;
use crate::messages::{Action, Failure, io_words, reason};
use crate::open::{self, NotOpen, pool_of};
use crate::out::Console;
use crate::{client, connect, start};

/// `zfs mount`.
pub static COMMAND: Command = Command {
    name: "mount",
    about: "mounts file systems, or lists what is mounted",
    syntax: &["mount [-j]", "mount [-Oflv] [-o OPTIONS] -a|-R FILESYSTEM|FILESYSTEM"],
    options: &[
        flag("O", "also on a folder that is not empty"),
        flag("a", "all that belong mounted"),
        flag("f", "by force"),
        flag("l", "loads keys first"),
        flag("v", "says how far it is"),
        flag("R", "the file system and all below it that belong mounted"),
        flag("j|json", "the list as JSON"),
        property(
            "o",
            "mount options until the next mount: ro, rw, exec, noexec, suid, nosuid, dev, nodev, noatime; remount",
        ),
    ],
    visitors: Some(Visitors { operands: Subjects::None, options: &["j"] }),
    run: Run::Here(mount),
    ..Command::ZFS
};

/// `canmount=noauto` as it is stored.
const NOAUTO: u64 = 2;

/// Runs `zfs mount`.
///
/// # Errors
/// Usage, or why something is not mounted.
pub fn mount(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let args = &call.args;
    let name = match (args.operands.as_slice(), args.has("a")) {
        // To a server, the client may name those of its file systems whose turn it is.
        (_, true) if call.live().is_some() => None,
        ([], true) => None,
        ([], false) if args.has("R") => return Err(Failure::usage("missing filesystem argument")),
        ([], false) => return list(call, console),
        ([_], true) => return Err(Failure::usage("too many arguments")),
        ([name], false) => Some(name.as_str()),
        _ => return Err(Failure::usage("too many arguments")),
    };
    if args.has("j") {
        return Err(Failure::usage("-j can only be used without a file system"));
    }
    let overrides = overrides(args.values("o")).ok_or_else(|| match name {
        Some(name) => Action::Mount(name).failed(INVALID),
        None => Failure::refused("cannot mount: Invalid argument"),
    })?;
    if let Some(name) = name {
        names::check_kind(name, DatasetKind::Filesystem).map_err(|error| Action::Open(name).failed(error))?;
    }
    match (call.live(), name) {
        (Some(live), None) if !args.operands.is_empty() => {
            let report = live.mount_listed(&args.operands, overrides);
            say(&report.map_err(|error| refused(live.name(), &error))?, console).map(drop)
        }
        (Some(live), None) => mount_below(live, live.name(), overrides, console),
        (Some(live), Some(name)) if args.has("R") => mount_below(live, name, overrides, console),
        (Some(live), Some(name)) if args.values("o").any(is_remount) => {
            live.remount(name, overrides).map_err(|error| refused(name, &error))
        }
        (Some(live), Some(name)) => mount_one(call, live, name, overrides, console),
        (None, _) => elsewhere(call, name, console),
    }
}

fn mount_below(live: &Live, top: &str, overrides: Overrides, console: &mut Console) -> Result<(), Failure> {
    let report = live.mount_all(top, overrides).map_err(|error| refused(top, &error))?;
    say(&report, console).map(drop)
}

/// The failure of mounting `name`, or of finding it.
fn refused(name: &str, error: &server::MountError) -> Failure {
    match error {
        server::MountError::Pool(error) => dataset_failure(name, error),
        server::MountError::WrongKind => Action::Open(name).failed(reason::WRONG_KIND),
        error => why_not_mounted(name, error),
    }
}

fn mount_one(
    call: &Call,
    live: &Arc<Live>,
    name: &str,
    overrides: Overrides,
    console: &mut Console,
) -> Result<(), Failure> {
    let report = live.mount(name, call.args.has("O"), overrides).map_err(|error| refused(name, &error))?;
    say(&report, console).map(drop)
}

/// Has the servers of the pools mount, and starts those that do not run.
fn elsewhere(call: &Call, name: Option<&str>, console: &mut Console) -> Result<(), Failure> {
    if !connect::is_used() {
        return Err(without_server(call));
    }
    let pools = match name {
        Some(name) => vec![pool_of(name).to_owned()],
        None => open::usable(call.around)?.into_iter().map(|pool| pool.name).collect(),
    };
    let is_alone = pools.len() == 1;
    let mut mounted_at_start = false;
    for pool in &pools {
        if client::server_of(pool, call.around)?.is_none() {
            // What it cannot find or open, it says in the same words.
            open::find(pool, call.around).map_err(|error| error.dataset(name.unwrap_or(pool)))?;
            // One of several pools waits for its turn: its mount points may lie in another pool.
            mounted_at_start = name.is_none() && is_alone;
            start::start(pool, mounted_at_start, None, call.around, console)?;
        }
    }
    if mounted_at_start {
        return Ok(());
    }
    let turns = match name {
        Some(name) => vec![(pool_of(name).to_owned(), call.args.operands.clone())],
        None => zfs_mount_turns::of_mounting(pools, call.around),
    };
    take_turns(call, turns)
}

/// Has the servers of pools carry out the command line in turns, each time with these operands.
fn take_turns(call: &Call, turns: Vec<zfs_mount_turns::Turn>) -> Result<(), Failure> {
    let mut worst = 0;
    for (pool, operands) in turns {
        let args = crate::args::Parsed { options: call.args.options.clone(), operands };
        let call = Call { args, line: call.line.clone(), ..*call };
        worst = worst.max(hand_on(&call, &pool)?);
    }
    if worst == 0 { Ok(()) } else { Err(Failure::Ended(worst)) }
}

/// Has the server of `pool` carry out the command line.
fn hand_on(call: &Call, pool: &str) -> Result<u8, Failure> {
    let Some(client) = client::server_of(pool, call.around)? else {
        return Err(Action::Mount(pool).failed("its server does not run"));
    };
    let mut words = vec![call.command.name.to_owned()];
    for (option, value) in &call.args.options {
        words.push(if option.len() == 1 { format!("-{option}") } else { format!("--{option}") });
        words.extend(value.clone());
    }
    words.push("--".to_owned());
    words.extend(call.args.operands.iter().cloned());
    let words = words.into_iter().map(OsString::from).collect();
    client::send(&client, "zfs", words, call.around).map_err(|error| client::broken(pool, &error))
}

/// What is said of a mount option that is not known.
pub const INVALID: &str = "Invalid argument";

/// Mount options in their usual spelling; `None` for one that is not known.
pub fn overrides<'a>(lists: impl Iterator<Item = &'a str>) -> Option<Overrides> {
    let mut overrides = Overrides::default();
    for word in lists.flat_map(|list| list.split(',')) {
        match word {
            "ro" | "rw" => overrides.read_only = Some(word == "ro"),
            "exec" | "noexec" => overrides.exec = Some(word == "exec"),
            "suid" | "nosuid" => overrides.setuid = Some(word == "suid"),
            "dev" | "nodev" => overrides.devices = Some(word == "dev"),
            "atime" | "noatime" => overrides.atime = Some(word == "atime"),
            "xattr" | "noxattr" => overrides.no_xattr = word == "noxattr",
            "relatime" | "norelatime" | "strictatime" | "zfsutil" | "defaults" | "remount" | "" => {}
            _ => return None,
        }
    }
    Some(overrides)
}

/// Whether a list of mount options is for what is mounted already.
fn is_remount(list: &str) -> bool {
    list.split(',').any(|word| word == "remount")
}

/// What is mounted where.
fn list(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let mut all = open::mounted(call.around);
    // Snapshots are mounted by mount(8) alone.
    all.retain(|mount| !mount.dataset.contains('@'));
    all.sort_by(|a, b| a.dataset.cmp(&b.dataset));
    if call.args.has("j") {
        let mut objects = Map::new();
        for mount in all {
            let point = mount.point.display().to_string();
            objects
                .insert(mount.dataset.clone(), json!({ "filesystem": mount.dataset, "mountpoint": point }));
        }
        return console.line(&json::envelope("zfs mount", "datasets", objects).to_string());
    }
    all.iter()
        .try_for_each(|mount| console.line(&format!("{:<30}  {}", mount.dataset, mount.point.display())))
}

/// Runs `zfs unmount`.
///
/// # Errors
/// Usage, or why something stays mounted.
pub fn unmount(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let args = &call.args;
    let name = match (args.operands.as_slice(), args.has("a")) {
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
    call: &Call,
    live: &Arc<Live>,
    name: Option<&str>,
    console: &mut Console,
) -> Result<(), Failure> {
    let force = call.args.has("f");
    let mounts = live.seen();
    let pool = live.pool().map_err(|closed| Action::Open(live.name()).failed(closed))?;
    let Some(name) = name else {
        // Children first, or in the order of the client. What was mounted by name alone, or by mount(8), stays.
        let mounted: Vec<&String> = mounts.iter().rev().map(|(dataset, _)| dataset).collect();
        let listed = &call.args.operands;
        let wanted: Vec<&String> = match listed.is_empty() {
            true => mounted,
            false => listed.iter().filter(|dataset| mounted.contains(dataset)).collect(),
        };
        for dataset in wanted.into_iter().filter(|dataset| !is_by_name(&pool, dataset)) {
            if let Err(error) = live.unmount(std::slice::from_ref(dataset), force) {
                console.complain(stays(dataset, &error))?;
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
        // It may be out of sight already, and still be used.
        let ended = if force { live.end_left(name).map_err(|error| stays(name, &error))? } else { false };
        return if ended { Ok(()) } else { Err(stays(name, &Unmounted::NotMounted)) };
    };
    // With those below it that are mounted inside it.
    let inside = |(dataset, point): &&(String, PathBuf)| {
        let below = dataset.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        below && point.starts_with(top)
    };
    let down: Vec<String> = mounts.iter().filter(inside).map(|(dataset, _)| dataset.clone()).collect();
    live.unmount(&down, force).map_err(|error| stays(name, &error))
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
fn dataset_at(call: &Call, path: &str) -> Result<String, Failure> {
    let action = Action::Unmount(path);
    let words = |error: std::io::Error| action.failed(io_words(&error));
    let full = std::fs::canonicalize(path).map_err(|error| Action::Open(path).failed(error))?;
    match open::dataset_of(Path::new(path), call.around).map_err(words)? {
        Some(mount) if mount.point == full => Ok(mount.dataset),
        Some(_) => Err(action.failed("not a mountpoint")),
        None => Err(action.failed("not a ZFS filesystem")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_options_are_known_by_their_usual_names() {
        let read = |list: &str| overrides(std::iter::once(list));
        assert_eq!(
            read("noatime,ro").expect("known"),
            Overrides { read_only: Some(true), atime: Some(false), ..Overrides::default() }
        );
        assert_eq!(read("remount,ro").map(|o| o.read_only), Some(Some(true)));
        assert!(is_remount("ro,remount") && !is_remount("ro"));
        assert_eq!(read("bogus"), None);
        assert!(read("noxattr").expect("known").no_xattr);
        // The last one wins.
        let kept = Overrides { atime: Some(true), ..Overrides::default() };
        assert_eq!(read("noatime,noxattr,atime,xattr"), Some(kept));
        assert_eq!(read("ro,rw").expect("known").read_only, Some(false));
    }
}
