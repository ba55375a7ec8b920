//! `zfs mount`.

use std::ffi::OsString;
use std::sync::Arc;

use pool::props::{DatasetKind, names};
use serde_json::{Map, json};
use server::{Live, Overrides};

use super::Call;
use super::key_loading;
use super::mounting::{say, why_not_mounted, without_server};
use super::select::dataset_failure;
use super::zfs_mount_turns;
use crate::args::{Parsed, flag, property};
use crate::command::{Command, Run, Subjects, Typed, Visitors};
use crate::json;
use crate::messages::{Action, Failure, reason};
use crate::open::{self, pool_of};
use crate::out::Console;
use crate::{client, connect, start};

/// `zfs mount`.
pub static COMMAND: Command = Command {
    name: "mount",
    about: "mounts file systems, or lists what is mounted",
    syntax: &["mount [-j] [--wide]", "mount [-Oflv] [-o OPTIONS] -a|-R FILESYSTEM|FILESYSTEM"],
    examples: &["zfs mount tank/home", "zfs mount -a", "zfs mount"],
    options: &[
        flag("O", "also on a folder that is not empty"),
        flag("a", "all that belong mounted"),
        flag("f", "by force").idle(),
        flag("l", "loads keys first"),
        flag("v", "says how far it is").idle(),
        flag("R", "the file system and all below it that belong mounted"),
        flag("j|json", "the list as JSON"),
        flag("wide", "each on one line, however narrow the terminal is"),
        property(
            "o",
            "mount options until the next mount: ro, rw, exec, noexec, suid, nosuid, dev, nodev, noatime; remount",
        ),
    ],
    visitors: Some(Visitors { operands: Subjects::None, options: &["j", "wide"] }),
    run: Run::Here(run),
    ..Command::ZFS
};

/// The options of `zfs mount`.
struct Options {
    overlay: bool,
    all: bool,
    below: bool,
    load_keys: bool,
    json: bool,
    wide: bool,
    options: Vec<String>,
}

fn read(args: &Parsed) -> Options {
    Options {
        overlay: args.has("O"),
        all: args.has("a"),
        below: args.has("R"),
        load_keys: args.has("l"),
        json: args.has("j"),
        wide: args.has("wide"),
        options: args.texts("o"),
    }
}

/// Runs `zfs mount`.
///
/// # Errors
/// The arguments are wrong, or a file system cannot be mounted.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let args = &call.args;
    let name = match (args.operands.as_slice(), call.options.all) {
        // The client may name to a server only some of its file systems, those whose turn it is.
        (_, true) if call.live().is_some() => None,
        ([], true) => None,
        ([], false) if call.options.below => return Err(Failure::usage("missing filesystem argument")),
        ([], false) => return list(call, console),
        ([_], true) => return Err(Failure::usage("too many arguments")),
        ([name], false) => Some(name.as_str()),
        _ => return Err(Failure::usage("too many arguments")),
    };
    if call.options.json {
        return Err(Failure::usage("-j can only be used without a file system"));
    }
    let overrides = overrides(call.options.options.iter().map(String::as_str)).ok_or_else(|| match name {
        Some(name) => Action::Mount(name).failed(INVALID),
        None => Failure::refused("cannot mount: Invalid argument"),
    })?;
    if let Some(name) = name {
        names::check_kind(name, DatasetKind::Filesystem).map_err(|error| Action::Open(name).failed(error))?;
    }
    if let Some(live) = call.live().filter(|_| call.options.load_keys) {
        let below = name.is_none() || call.options.below;
        let loaded = key_loading::before_mounting(call, console, name.unwrap_or(live.name()), below)?;
        if !loaded && !below {
            return Ok(());
        }
    }
    match (call.live(), name) {
        (Some(live), None) if !args.operands.is_empty() => {
            let report = live.mount_listed(&args.operands, overrides);
            say(&report.map_err(|error| refused(live.name(), &error))?, console).map(drop)
        }
        (Some(live), None) => mount_below(live, live.name(), overrides, console),
        (Some(live), Some(name)) if call.options.below => mount_below(live, name, overrides, console),
        (Some(live), Some(name)) if call.options.options.iter().map(String::as_str).any(is_remount) => {
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
    call: &Typed<Options>,
    live: &Arc<Live>,
    name: &str,
    overrides: Overrides,
    console: &mut Console,
) -> Result<(), Failure> {
    let report = live.mount(name, call.options.overlay, overrides).map_err(|error| refused(name, &error))?;
    say(&report, console).map(drop)
}

/// Lets the servers of the pools mount, and starts missing servers.
fn elsewhere(call: &Typed<Options>, name: Option<&str>, console: &mut Console) -> Result<(), Failure> {
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
            // It reports missing or unreadable datasets in the same words.
            open::find(pool, call.around).map_err(|error| error.dataset(name.unwrap_or(pool)))?;
            // One of several pools waits for its turn: its mount points may lie in another pool.
            mounted_at_start = name.is_none() && is_alone;
            start::start(pool, mounted_at_start, None, call.around, console)?;
            if !call.around.search.is_empty() && client::server_of(pool, call.around)?.is_some() {
                console.explain(&format!("'{pool}' is in use until 'cenote zpool export {pool}'"));
            }
        }
    }
    if mounted_at_start {
        // Where nothing can be mounted there is no server, and the reason was given.
        let runs = client::server_of(&pools[0], call.around)?.is_some();
        return if runs { Ok(()) } else { Err(Failure::Ended(1)) };
    }
    let turns = match name {
        Some(name) => vec![(pool_of(name).to_owned(), call.args.operands.clone())],
        None => zfs_mount_turns::of_mounting(pools, call.around),
    };
    take_turns(call, turns)
}

/// Lets the servers of pools carry out the command line in turns, each time with these operands.
pub(super) fn take_turns(call: &Call, turns: Vec<zfs_mount_turns::Turn>) -> Result<(), Failure> {
    let mut worst = 0;
    for (pool, operands) in turns {
        let args = crate::args::Parsed { options: call.args.options.clone(), operands };
        let call = Call { args, line: call.line.clone(), ..*call };
        worst = worst.max(hand_on(&call, &pool)?);
    }
    if worst == 0 { Ok(()) } else { Err(Failure::Ended(worst)) }
}

/// Lets the server of `pool` carry out the command line.
fn hand_on(call: &Call, pool: &str) -> Result<u8, Failure> {
    let Some(client) = client::server_of(pool, call.around)? else {
        let asked = call.args.operands.first().map_or(pool, String::as_str);
        return Err(crate::start::no_server(pool, asked));
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

/// The message about a mount option that is not known.
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

/// Whether a list of mount options is for a file system that is mounted already.
fn is_remount(list: &str) -> bool {
    list.split(',').any(|word| word == "remount")
}

/// Lists the mounted file systems and their mount points.
fn list(call: &Typed<Options>, console: &mut Console) -> Result<(), Failure> {
    let mut all = open::mounted(call.around);
    // Snapshots are mounted by mount(8) alone.
    all.retain(|mount| !mount.dataset.contains('@'));
    all.sort_by(|a, b| a.dataset.cmp(&b.dataset));
    if call.options.json {
        let mut objects = Map::new();
        for mount in all {
            let point = mount.point.display().to_string();
            objects
                .insert(mount.dataset.clone(), json!({ "filesystem": mount.dataset, "mountpoint": point }));
        }
        return console.line(&json::envelope("zfs mount", "datasets", objects).to_string());
    }
    let width = console.columns().filter(|_| !call.options.wide);
    let rows = all.iter().flat_map(|mount| row(&mount.dataset, &mount.point.display().to_string(), width));
    rows.into_iter().try_for_each(|line| console.line(&line))
}

/// A file system and its mount point on one line, or on two lines if one would be longer than `width`.
fn row(dataset: &str, point: &str, width: Option<usize>) -> Vec<String> {
    let line = format!("{dataset:<30}  {point}");
    match width {
        Some(width) if line.chars().count() > width => vec![dataset.to_owned(), format!("    {point}")],
        _ => vec![line],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_whose_line_is_too_long_for_the_terminal_has_two() {
        let (short, long) = ("tank/a", "tank/".to_owned() + &"x".repeat(40));
        assert_eq!(row(short, "/a", Some(80)), ["tank/a                          /a"]);
        let point = format!("/{long}");
        assert_eq!(row(&long, &point, Some(80)), [long.clone(), format!("    {point}")]);
        for width in [Some(200), None] {
            assert_eq!(row(&long, &point, width), [format!("{long}  {point}")]);
        }
    }

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
