//! `zfs destroy`: of file systems with what is below them, and of snapshots.

use pool::props::DatasetKind;
use pool::props::names;
use pool::{DatasetInfo, Pool};

use super::Call;
use super::changing::session;
use super::doomed;
use super::doomed::snapshot_words;
use super::mounting;
use super::select::dataset_failure;
use super::zfs_bookmark;
use crate::args::{Parsed, flag};
use crate::command::{Command, Run, Targets, Typed};
use crate::messages::{Action, Failure, reason};
use crate::open::{Intent, Session};
use crate::out::Console;

/// `zfs destroy`.
pub static COMMAND: Command = Command {
    name: "destroy",
    about: "destroys datasets, snapshots or bookmarks",
    syntax: &[
        "destroy [-Rfnprv] FILESYSTEM|VOLUME",
        "destroy [-Rdnprv] FILESYSTEM|VOLUME@SNAP[%SNAP][,SNAP]…",
        "destroy FILESYSTEM|VOLUME#BOOKMARK",
    ],
    examples: &[
        "zfs destroy -nv -r tank/old",
        "zfs destroy tank/home@monday",
        "zfs destroy tank/home@monday%friday",
    ],
    options: &[
        flag("R", "also all clones that depend on it"),
        flag("d", "marks snapshots that are held, to be destroyed with their last hold"),
        flag("f", "unmounts by force"),
        flag("n", "destroys nothing, only shows what would be destroyed"),
        flag("p", "prints in a form for programs"),
        flag("r", "also everything below it; of snapshots, those of the same name below"),
        flag("v", "says what is destroyed"),
    ],
    targets: Targets::First,
    run: Run::Here(run),
    ..Command::ZFS
};

/// The options of `zfs destroy`.
struct Options {
    clones: bool,
    defer: bool,
    force: bool,
    dry_run: bool,
    parsable: bool,
    recursive: bool,
    verbose: bool,
}

fn read(args: &Parsed) -> Options {
    Options {
        clones: args.has("R"),
        defer: args.has("d"),
        force: args.has("f"),
        dry_run: args.has("n"),
        parsable: args.has("p"),
        recursive: args.has("r"),
        verbose: args.has("v"),
    }
}

impl Options {
    /// The option that was given although bookmarks do not have it.
    fn not_for_bookmarks(&self) -> Option<&'static str> {
        let given = [
            (self.dry_run, "dryrun"),
            (self.defer, "defer destroy"),
            (self.recursive || self.clones, "recursive"),
        ];
        given.into_iter().find_map(|(is_given, what)| is_given.then_some(what))
    }
}

/// Runs `zfs destroy`.
///
/// # Errors
/// The arguments are wrong, or a dataset cannot be destroyed.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let args = &call.args;
    let name = match args.operands.as_slice() {
        [] => return Err(Failure::usage("missing dataset argument")),
        [name] => name.as_str(),
        _ => return Err(Failure::usage("too many arguments")),
    };
    let intent = if call.options.dry_run { Intent::Read } else { Intent::Write };
    if name.contains('#') {
        if let Some(what) = call.options.not_for_bookmarks() {
            return Err(Failure::refused(format!("{what} is not supported with bookmark")));
        }
        return zfs_bookmark::destroy(call, name);
    }
    if let Some((head, spec)) = name.split_once('@') {
        names::check(head).map_err(|error| Action::Open(head).failed(error))?;
        let session = session(call, head, intent).map_err(|error| error.dataset(head))?;
        let done = destroy_snapshots(&session, call, console, head, spec);
        return session.finish().and(done);
    }
    if call.options.defer {
        return Err(Failure::usage("-d may only be used with snapshots"));
    }
    names::check(name).map_err(|error| Action::Open(name).failed(error))?;
    let session = session(call, name, intent).map_err(|error| error.dataset(name))?;
    let done = destroy_heads(&session, call, console, name);
    session.finish().and(done)
}

/// Prints the names that are, or would be, destroyed.
fn announce(call: &Typed<Options>, console: &mut Console, name: &str, verbose: &str) -> Result<(), Failure> {
    let _args = &call.args;
    if call.options.parsable {
        console.line(&format!("destroy\t{name}"))
    } else if call.options.verbose {
        console.line(&format!("{verbose} {name}"))
    } else {
        Ok(())
    }
}

fn destroy_heads(
    session: &Session,
    call: &Typed<Options>,
    console: &mut Console,
    name: &str,
) -> Result<(), Failure> {
    let (_args, pool, action) = (&call.args, session.pool(), Action::Destroy(name));
    let list = pool.list(name, None, true).map_err(|error| dataset_failure(name, &error))?;
    let recursive = call.options.recursive || call.options.clones;
    if !name.contains('/') && !recursive {
        return Err(action
            .failed("operation does not apply to pools")
            .hint(format!("use 'zfs destroy -r {name}' to destroy all datasets in the pool"))
            .hint(format!("use 'zpool destroy {name}' to destroy the pool itself")));
    }
    let beneath = |other: &&String| {
        other.strip_prefix(name).is_some_and(|rest| rest.starts_with('/') || rest.starts_with('@'))
    };
    let others = if call.options.clones { Vec::new() } else { doomed::dependents(pool, name)? };
    if list.len() > 1 && !recursive {
        let what = match list[0].kind {
            DatasetKind::Volume => "volume has children",
            _ => reason::HAS_CHILDREN,
        };
        let failure = action.failed(what).hint("use '-r' to destroy the following datasets:");
        return Err(others.iter().filter(beneath).fold(failure, Failure::hint));
    }
    let mut clones = others.iter().filter(|other| !beneath(other)).peekable();
    if clones.peek().is_some() {
        let what = match list[0].kind {
            DatasetKind::Volume => "volume has dependent clones",
            _ => "filesystem has dependent clones",
        };
        let failure = action.failed(what).hint("use '-R' to destroy the following datasets:");
        return Err(clones.fold(failure, Failure::hint));
    }
    if let Some(failure) = session.refusal(action).filter(|_| !call.options.dry_run) {
        return Err(failure);
    }
    let verbose = if call.options.dry_run { "would destroy" } else { "will destroy" };
    for doomed in doomed::all(pool, &[name.to_owned()])? {
        doomed.names().try_for_each(|name| announce(call, console, name, verbose))?;
        if !call.options.dry_run {
            doomed.destroy(call, pool, call.options.force)?;
        }
    }
    Ok(())
}

/// The snapshots of one dataset that `spec` (`a`, `a,b`, `a%b`, `%b`, `a%`, `%`) means, oldest first; names without a
/// snapshot are left out.
fn select<'a>(snapshots: &'a [DatasetInfo], spec: &str) -> Vec<&'a DatasetInfo> {
    let place = |leaf: &str| snapshots.iter().position(|info| info.snapshot_name() == Some(leaf));
    let mut chosen = vec![false; snapshots.len()];
    for part in spec.split(',') {
        let range = match part.split_once('%') {
            None => place(part).map(|at| at..=at),
            Some((first, last)) => {
                let first = if first.is_empty() { Some(0) } else { place(first) };
                let last = if last.is_empty() { snapshots.len().checked_sub(1) } else { place(last) };
                first.zip(last).map(|(first, last)| first..=last)
            }
        };
        if let Some(range) = range {
            range.for_each(|at| chosen[at] = true);
        }
    }
    snapshots.iter().zip(chosen).filter(|(_, chosen)| *chosen).map(|(info, _)| info).collect()
}

/// The snapshots of `head`, and if `recursive` those of each dataset below.
fn snapshots_by_head(pool: &Pool, head: &str, recursive: bool) -> Result<Vec<Vec<DatasetInfo>>, Failure> {
    let depth = if recursive { None } else { Some(1) };
    let top = pool.dataset(head).map_err(|error| dataset_failure(head, &error))?;
    let list = pool.list(head, depth, true).map_err(|error| dataset_failure(head, &error))?;
    let (snapshots, heads): (Vec<_>, Vec<_>) = list.into_iter().partition(DatasetInfo::is_snapshot);
    let wanted = heads.iter().filter(|info| recursive || info.id == top.id);
    let of = |info: &DatasetInfo| snapshots.iter().filter(|s| s.dir_id == info.dir_id).cloned().collect();
    Ok(wanted.map(of).collect())
}

fn destroy_snapshots(
    session: &Session,
    call: &Typed<Options>,
    console: &mut Console,
    head: &str,
    spec: &str,
) -> Result<(), Failure> {
    let (_args, pool) = (&call.args, session.pool());
    let by_head = snapshots_by_head(pool, head, call.options.recursive || call.options.clones)?;
    let chosen: Vec<&DatasetInfo> = by_head.iter().flat_map(|own| select(own, spec)).collect();
    if chosen.is_empty() {
        return Err(Failure::refused("could not find any snapshots to destroy; check snapshot names."));
    }
    let mut clones = Vec::new();
    let mut cloned = Vec::new();
    for snapshot in &chosen {
        let own = pool.clones(snapshot).map_err(|error| dataset_failure(&snapshot.name, &error))?;
        if !own.is_empty() {
            cloned.push(&snapshot.name);
        }
        clones.extend(own);
    }
    // The message is chosen before the result is known.
    let doomed = !clones.is_empty() && !call.options.clones && !call.options.defer;
    let verbose = if call.options.dry_run || doomed { "would destroy" } else { "will destroy" };
    for snapshot in &chosen {
        announce(call, console, &snapshot.name, verbose)?;
    }
    if doomed {
        let mut lines = Vec::new();
        for snapshot in cloned {
            lines.push(format!("{}: snapshot has dependent clones", Action::Destroy(snapshot)));
            lines.push("use '-R' to destroy the following datasets:".to_owned());
            lines.extend(doomed::dependents(pool, snapshot)?);
        }
        return Err(Failure::Refused(lines));
    }
    let names: Vec<String> = chosen.iter().map(|info| info.name.clone()).collect();
    if call.options.verbose || call.options.parsable {
        let bytes = pool.reclaims(&names).map_err(|error| snapshot_words(&error))?;
        let size = pool::props::number::nice_bytes(bytes);
        match (call.options.parsable, call.options.dry_run) {
            (true, _) => console.line(&format!("reclaim\t{bytes}"))?,
            (false, true) => console.line(&format!("would reclaim {size}"))?,
            (false, false) => console.line(&format!("will reclaim {size}"))?,
        }
    }
    if call.options.dry_run {
        return Ok(());
    }
    if let Some(failure) = session.refusal(Action::Destroy(&names[0])) {
        return Err(failure);
    }
    let mut names = names;
    if call.options.clones {
        for doomed in doomed::all(pool, &clones)? {
            doomed.names().try_for_each(|name| announce(call, console, name, verbose))?;
            doomed.destroy(call, pool, call.options.force)?;
        }
        // Those that lay in a clone, or whose destruction waited for one, went with it.
        names.retain(|name| pool.dataset(name).is_ok());
    }
    mounting::destroy_snapshots(call, pool, &names, call.options.defer)
        .map_err(|error| snapshot_words(&error))
}
