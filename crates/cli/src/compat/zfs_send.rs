//! `zfs send`: a snapshot to standard output.

use std::io::Write;

use format::{Guid, NvValue};
use pool::props::Value;
use pool::props::number::nice;
use pool::{Package, Pool, ResumeToken, SendFlags, SendSource};

use super::Call;
use super::zfs_change::is_missing;
use crate::messages::{Action, Failure, reason};
use crate::open::{Intent, Session, open_for};
use crate::out::Console;

/// Options that this build does not know how to serve.
const MISSING: [(&str, &str); 6] = [
    ("b", "zfs send -b"),
    ("h", "zfs send -h"),
    ("d", "zfs send --redact"),
    ("S", "zfs send --saved"),
    ("X", "zfs send --exclude"),
    ("s", "zfs send -s"),
];

/// What is to be sent.
struct Order<'a> {
    snapshot: &'a str,
    from: Option<SendSource>,
    /// All snapshots between the two.
    between: bool,
    /// `-R`, `-p`.
    package: Option<Package>,
    flags: SendFlags,
}

/// Runs `zfs send`.
///
/// # Errors
/// Usage, or why there is no stream (or no more of it).
pub fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let args = &call.args;
    if args.has("i") && args.has("I") {
        return Err(Failure::usage("incremental options (-i and -I) are mutually exclusive"));
    }
    if let Some((_, what)) = MISSING.iter().find(|(option, _)| args.has(option)) {
        return Err(Failure::refused(format!("cenote: not supported yet: {what}")));
    }
    if let Some(token) = args.value("t") {
        return resume(call, console, token);
    }
    let snapshot = match args.operands.as_slice() {
        [] => return Err(Failure::usage("missing snapshot argument")),
        [name] => name.as_str(),
        _ => return Err(Failure::usage("too many arguments")),
    };
    let dry = args.has("n");
    check_terminal(call, console)?;
    if args.has("D") {
        console.remark("Warning: deduplicated send is no longer supported; the option is ignored");
    }
    let session = open_for(snapshot, call.around, Intent::Survey).map_err(|error| error.dataset(snapshot))?;
    let done = order(&session, call, snapshot).and_then(|order| {
        tell(session.pool(), call, console, &order)?;
        if dry { Ok(()) } else { write(session.pool(), console, &order) }
    });
    session.finish().and(done)
}

/// A stream is nothing to look at.
fn check_terminal(call: &Call, console: &Console) -> Result<(), Failure> {
    if call.args.has("n") || !console.is_terminal() {
        return Ok(());
    }
    let lines = ["Error: Stream can not be written to a terminal.", "You must redirect standard output."];
    Err(Failure::Refused(lines.map(str::to_owned).to_vec()))
}

/// `-t`: the rest of a stream whose receiver handed out a token.
fn resume(call: &Call, console: &mut Console, text: &str) -> Result<(), Failure> {
    let args = &call.args;
    if !args.operands.is_empty() {
        return Err(Failure::usage("too many arguments"));
    }
    if let Some((option, _)) = args.options.iter().find(|(option, _)| !"tPenvV".contains(option)) {
        return Err(Failure::usage(format!("invalid flags combined with -t: -{option}")));
    }
    check_terminal(call, console)?;
    let cannot = |why: &dyn std::fmt::Display| Failure::refused(format!("cannot resume send: {why}"));
    let token = ResumeToken::parse(text).map_err(|error| cannot(&error))?;
    let session =
        open_for(&token.toname, call.around, Intent::Survey).map_err(|error| error.dataset(&token.toname))?;
    let done = resume_in(session.pool(), call, console, &token);
    session.finish().and(done)
}

fn resume_in(pool: &Pool, call: &Call, console: &mut Console, token: &ResumeToken) -> Result<(), Failure> {
    let cannot = |error: pool::Error| match &error {
        pool::Error::NoDataset(what) if what.contains('@') => Failure::refused(format!(
            "cannot resume send: '{what}' is no longer the same snapshot used in the initial send"
        )),
        pool::Error::NoDataset(what) => {
            Failure::refused(format!("cannot resume send: {what} no longer exists"))
        }
        error => sending(&token.toname, error),
    };
    let found = pool.resumption(token).map_err(cannot)?;
    let (parsable, dry) = (call.args.has("P"), call.args.has("n"));
    if parsable || call.args.has("v") {
        let bytes = pool.resumed_size(token).map_err(cannot)?;
        let mut lines = vec!["resume token contents:".to_owned(), "nvlist version: 0".to_owned()];
        for (name, value) in token.to_list().iter() {
            let name = String::from_utf8_lossy(name);
            lines.push(match value {
                NvValue::Uint64(number) => format!("\t{name} = {number:#x}"),
                NvValue::String(text) => format!("\t{name} = {}", String::from_utf8_lossy(text)),
                // A flag stands for itself.
                _ => format!("\t{name}"),
            });
        }
        lines.push(step(found.from.as_ref(), &found.snapshot, bytes, parsable));
        lines.push(total(bytes, parsable));
        for line in lines {
            if dry {
                console.line(&line)?;
            } else {
                console.remark(&line);
            }
        }
    }
    if !dry {
        pool.send_resumed(token, console.out(), &mut |_| {})
            .map_err(|error| sending(&found.snapshot, &error))?;
    }
    console.flush()
}

fn order<'a>(session: &Session, call: &Call, snapshot: &'a str) -> Result<Order<'a>, Failure> {
    let (pool, args) = (session.pool(), &call.args);
    let missing = |name: &str, error: pool::Error| {
        if is_missing(&error) {
            Action::Open(name).failed(reason::DATASET_MISSING)
        } else {
            Action::Open(name).failed(error)
        }
    };
    let info = pool.dataset(snapshot).map_err(|error| missing(snapshot, error))?;
    let from_mark = args.value("i").is_some_and(|from| from.contains('#'));
    if (!info.is_snapshot() || from_mark) && ["R", "I", "p", "b", "h"].iter().any(|option| args.has(option)) {
        return Err(Failure::refused("Error: Unsupported flag with filesystem or bookmark."));
    }
    if !info.is_snapshot() && session.mount_point(snapshot).is_some() {
        let why = "target is busy; if a filesystem, it must not be mounted";
        return Err(Failure::refused(format!("warning: cannot send '{snapshot}': {why}")));
    }
    let from = match args.value("i").or(args.value("I")) {
        None => None,
        Some(word) => {
            let name = source_name(snapshot, word);
            Some(pool.send_source(&name).map_err(|error| missing(&name, error))?)
        }
    };
    // What is not encrypted is sent raw as it lies on disk.
    let raw = args.has("w");
    let flags = SendFlags {
        large_blocks: raw || args.has("L"),
        embedded: raw || args.has("e"),
        compressed: raw || args.has("c"),
    };
    let between = args.has("I");
    let package = (args.has("R") || args.has("p"))
        .then(|| -> Result<Package, Failure> {
            let leaf = |from: &SendSource| short(&from.name, snapshot).strip_prefix('@').map(str::to_owned);
            let leaf = from.as_ref().map(leaf);
            // Of other file systems only a clone's origin will do.
            let from_origin = leaf == Some(None);
            if from_origin && from.as_ref().map(|from| from.guid) != origin_guid(pool, snapshot) {
                return Err(Failure::usage("incremental source must be in same filesystem"));
            }
            Ok(Package { recursive: args.has("R"), between, from: leaf.flatten(), from_origin })
        })
        .transpose()?;
    Ok(Order { snapshot, from, between, package, flags })
}

/// The guid of the snapshot that the file system of `snapshot` began as, if it is a clone.
fn origin_guid(pool: &Pool, snapshot: &str) -> Option<Guid> {
    let fs = snapshot.split('@').next().unwrap_or(snapshot);
    let info = pool.dataset(fs).ok()?;
    let origin = pool.property(&info, pool::props::dataset::parse("origin")?).ok()??.0;
    let Value::Text(origin) = origin else { return None };
    pool.send_source(&origin).ok().map(|source| source.guid)
}

/// `@a`, `#a` and `a` mean a snapshot or bookmark of the same file system.
fn source_name(snapshot: &str, word: &str) -> String {
    let fs = snapshot.split('@').next().unwrap_or(snapshot);
    match word {
        short if short.starts_with(['@', '#']) => format!("{fs}{short}"),
        full if full.contains(['@', '#']) => full.to_owned(),
        leaf => format!("{fs}@{leaf}"),
    }
}

/// `-v`, `-P`: each snapshot and its size, to standard error; with `-n` it is the result.
fn tell(pool: &Pool, call: &Call, console: &mut Console, order: &Order) -> Result<(), Failure> {
    let (parsable, dry) = (call.args.has("P"), call.args.has("n"));
    if !parsable && !call.args.has("v") {
        return Ok(());
    }
    let mut say = |line: String| {
        if dry {
            return console.line(&line);
        }
        console.remark(&line);
        Ok(())
    };
    let failed = |error| sending(order.snapshot, &error);
    let steps = match &order.from {
        Some(from) if order.between && order.package.is_none() => {
            pool.send_steps(order.snapshot, from).map_err(failed)?
        }
        from => match &order.package {
            Some(package) => pool.package_steps(order.snapshot, package).map_err(failed)?,
            None => vec![(from.clone(), order.snapshot.to_owned())],
        },
    };
    let mut sum = 0;
    for (from, to) in steps {
        let bytes = pool.send_size(&to, from.as_ref(), order.flags).map_err(failed)?;
        sum += bytes;
        say(step(from.as_ref(), &to, bytes, parsable))?;
    }
    say(total(sum, parsable))
}

/// What is sent, and about how much that is.
fn step(from: Option<&SendSource>, to: &str, bytes: u64, parsable: bool) -> String {
    match (from, parsable) {
        (None, false) => format!("full send of {to} estimated size is {}", nice(bytes)),
        (None, true) => format!("full\t{to}\t{bytes}"),
        (Some(from), false) => {
            format!("send from {} to {to} estimated size is {}", short(&from.name, to), nice(bytes))
        }
        (Some(from), true) => format!("incremental\t{}\t{to}\t{bytes}", from.name),
    }
}

fn total(bytes: u64, parsable: bool) -> String {
    if parsable { format!("size\t{bytes}") } else { format!("total estimated size is {}", nice(bytes)) }
}

/// The source without the file system that the snapshot has too.
fn short<'a>(from: &'a str, to: &str) -> &'a str {
    let fs = to.split('@').next().unwrap_or(to);
    from.strip_prefix(fs).filter(|rest| rest.starts_with(['@', '#'])).unwrap_or(from)
}

fn write(pool: &Pool, console: &mut Console, order: &Order) -> Result<(), Failure> {
    let out = console.out();
    if let Some(package) = &order.package {
        let sent = pool.send_package(order.snapshot, package, order.flags, out, &mut |_| {});
        sent.map_err(|error| sending(order.snapshot, &error))?;
        return Ok(console.out().flush()?);
    }
    let sent = match (&order.from, order.between) {
        (Some(from), true) => pool.send_between(order.snapshot, from, order.flags, out, &mut |_| {}),
        (from, _) => pool.send(order.snapshot, from.as_ref(), order.flags, out, &mut |_| {}),
    };
    sent.map_err(|error| sending(order.snapshot, &error))?;
    Ok(console.out().flush()?)
}

fn sending(snapshot: &str, error: &pool::Error) -> Failure {
    match error {
        pool::Error::Output(source) if source.kind() == std::io::ErrorKind::BrokenPipe => Failure::PipeClosed,
        pool::Error::NotEarlier(_) => Failure::refused(format!("warning: {error}")),
        error => Failure::refused(format!("warning: cannot send '{snapshot}': {error}")),
    }
}
