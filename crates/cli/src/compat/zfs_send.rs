//! `zfs send`: a snapshot to standard output.

use format::Guid;
use pool::props::Value;
use pool::props::{DatasetKind, names};
use pool::{Pool, SendFlags};
use stream::{Leaving, Package, SendRequest, SendSource, Sender, Sent, Told};

use super::Call;
use super::changing::is_missing;
use super::keyed::by_server;
use super::zfs_send_options::Options;
use super::zfs_send_rest;
use super::zfs_send_words::{Ticker, check_not_mounted, check_terminal, is_told, sending, step, total};
use crate::args::{Parsed, flag, value};
use crate::command::{Beside, Command, Run, Typed};
use crate::messages::{Action, Failure, reason};
use crate::open::{Intent, Session, open_for, pool_of};
use crate::out::Console;

/// `zfs send`.
pub static COMMAND: Command = Command {
    name: "send",
    about: "writes a snapshot, or what changed since another, as a stream to standard output",
    syntax: &[
        "send [-DLPVbcehnpsvw] [-R [-X DATASET[,DATASET]…]] [-i|-I SNAPSHOT] SNAPSHOT",
        "send [-DLPVcenvw] [-i SNAPSHOT|BOOKMARK] FILESYSTEM|VOLUME|SNAPSHOT",
        "send --redact BOOKMARK [-DLPVcenpv] [-i SNAPSHOT|BOOKMARK] SNAPSHOT",
        "send [-Penv] -t TOKEN",
        "send [-PVnv] --saved FILESYSTEM|VOLUME",
    ],
    examples: &[
        "zfs send tank/home@monday | zfs receive backup/home",
        "zfs send -i @monday tank/home@friday > friday.zfs",
        "zfs send -nv -R tank@friday",
        "zfs send --redact public tank/data@monday | zfs receive backup/public",
    ],
    options: &[
        flag("R|replicate", "with everything below, all snapshots and properties"),
        flag("s|skip-missing", "leaves out datasets below that lack the snapshot (with -R)"),
        value("d|redact", "leaves out the blocks that this redaction bookmark lists"),
        flag("p|props", "with properties"),
        flag("P|parsable", "says in a form for programs what is sent"),
        flag("D|dedup", "has no effect: streams are no longer deduplicated"),
        flag("V|proctitle", "says what is sent; OpenZFS shows the progress in the process title, too"),
        flag("v|verbose", "says what is sent, and each second how far it is"),
        flag("n|dryrun", "sends nothing, only says what would be sent"),
        flag("L|large-block", "records larger than 128K stay whole"),
        flag("e|embed", "tiny blocks stay in their pointers"),
        value("t|resume", "goes on where a receive was cut off"),
        flag("c|compressed", "compressed blocks stay compressed"),
        flag("w|raw", "blocks as they lie on disk, also encrypted ones"),
        flag("b|backup", "received properties instead of local ones"),
        flag("h|holds", "with holds"),
        flag("S|saved", "what a receive that was cut off had received; its receiver needs receive -s"),
        value("X|exclude", "leaves out these datasets (with -R)"),
        flag("U|no-preserve-encryption", "what is encrypted may be sent decrypted"),
        value("i", "only what changed since this snapshot or bookmark"),
        value("I", "as -i, with all snapshots in between"),
    ],
    beside: Beside::TakesTurns,
    run: Run::Here(run),
    ..Command::ZFS
};

fn read(args: &Parsed) -> Options {
    Options {
        recursive: args.has("R"),
        skip_missing: args.has("s"),
        redact: args.text("d"),
        props: args.has("p"),
        parsable: args.has("P"),
        dedup: args.has("D"),
        proctitle: args.has("V"),
        verbose: args.has("v"),
        dry_run: args.has("n"),
        large_blocks: args.has("L"),
        embedded: args.has("e"),
        token: args.text("t"),
        compressed: args.has("c"),
        raw: args.has("w"),
        backup: args.has("b"),
        holds: args.has("h"),
        saved: args.has("S"),
        excluded: args.texts("X"),
        decrypts: args.has("U"),
        from: args.texts("i"),
        between: args.texts("I"),
    }
}

/// The order for a stream.
struct Order<'a> {
    snapshot: &'a str,
    from: Option<SendSource>,
    /// All snapshots between the two.
    between: bool,
    /// `-R`, `-p`, `-b`, `-h`.
    package: Option<Package>,
    /// `--redact`.
    leaving: Option<Leaving>,
    flags: SendFlags,
}

impl Order<'_> {
    /// One of its streams.
    fn request<'b>(&'b self, to: &'b str, from: Option<&'b SendSource>) -> SendRequest<'b> {
        SendRequest { leaving: self.leaving.as_ref(), ..SendRequest::new(to, from, self.flags) }
    }
}

/// Runs `zfs send`.
///
/// # Errors
/// The arguments are wrong, or the stream cannot be sent completely.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let args = &call.args;
    if !call.options.from.is_empty() && !call.options.between.is_empty() {
        return Err(Failure::usage("incremental options (-i and -I) are mutually exclusive"));
    }
    if call.options.from.len() > 1 || call.options.between.len() > 1 {
        return Err(Failure::usage(""));
    }
    let excluded = excluded(call.options.excluded.iter().map(String::as_str))?;
    if !excluded.is_empty() && !call.options.recursive {
        return Err(Failure::refused("Cannot specify dataset exclusion (-X) on a non-recursive send."));
    }
    if let Some(token) = call.options.token.as_deref() {
        return zfs_send_rest::resume(call, console, token);
    }
    if call.options.skip_missing && !call.options.recursive {
        return Err(Failure::usage("skip-missing flag can only be used in conjunction with replicate"));
    }
    let snapshot = match args.operands.as_slice() {
        [] => return Err(Failure::usage("missing snapshot argument")),
        [name] => name.as_str(),
        _ => return Err(Failure::usage("too many arguments")),
    };
    let dry = call.options.dry_run;
    if call.options.saved {
        return zfs_send_rest::saved(call, console, snapshot);
    }
    check_redact(&call.options, snapshot)?;
    names::check_no_bookmark(snapshot).map_err(|error| Action::Open(snapshot).failed(error))?;
    check_terminal(call, console)?;
    if call.options.dedup {
        console.note("Warning: deduplicated send is no longer supported; the option is ignored");
    }
    let session = open_for(snapshot, call.around, Intent::Survey).map_err(|error| error.dataset(snapshot))?;
    if !call.options.raw && by_server(&session, call, &args.operands, snapshot, call.options.recursive)? {
        return session.finish();
    }
    let done = order(&session, call, snapshot).and_then(|order| {
        warn(session.pool(), console, &order)?;
        tell(session.pool(), call, console, &order)?;
        if dry { Ok(()) } else { write(session.pool(), call, console, &order) }
    });
    session.finish().and(done)
}

/// `--redact` is for one stream of plain blocks.
fn check_redact(options: &Options, snapshot: &str) -> Result<(), Failure> {
    let why = match options {
        Options { redact: None, .. } => return Ok(()),
        Options { recursive: true, .. } => "multiple snapshots cannot be sent redacted.",
        Options { between, .. } if !between.is_empty() => "multiple snapshots cannot be sent redacted.",
        Options { raw: true, .. } => "raw sends may not be redacted.",
        _ if !snapshot.contains('@') => {
            let why = "cannot do a redacted send to a filesystem";
            return Err(Failure::refused(format!("warning: cannot send '{snapshot}': {why}")));
        }
        _ => return Ok(()),
    };
    Err(Failure::refused(format!("Error: {why}")))
}

/// The blocks that the stream of `snapshot` leaves out.
fn leaving(pool: &Pool, snapshot: &str, mark: &str) -> Result<Leaving, Failure> {
    let fs = file_system(snapshot);
    let name = match mark.split_once('#') {
        Some(("", leaf)) => format!("{fs}#{leaf}"),
        Some(_) => mark.to_owned(),
        None => format!("{fs}#{mark}"),
    };
    names::check(&name).map_err(|error| Action::Open(&name).failed(error))?;
    Sender::new(pool).leaving(snapshot, &name).map_err(|error| match is_missing(&error) {
        true => Action::Open(&name).failed("no such pool or dataset"),
        false => sending(snapshot, &error),
    })
}

/// `-X`: datasets, several with commas between them.
fn excluded<'a>(lists: impl Iterator<Item = &'a str>) -> Result<Vec<String>, Failure> {
    let mut all = Vec::new();
    for name in lists.flat_map(|list| list.split(',')) {
        let is_below = name.contains('/') && names::check_kind(name, DatasetKind::Filesystem).is_ok();
        if !is_below {
            return Err(Failure::usage(format!("-X {name}: not a valid non-root dataset name.")));
        }
        all.push(name.to_owned());
    }
    Ok(all)
}

/// The form of the blocks.
fn flags(options: &Options) -> SendFlags {
    SendFlags {
        large_blocks: options.raw || options.large_blocks,
        embedded: options.raw || options.embedded,
        compressed: options.raw || options.compressed,
        raw: options.raw,
    }
}

fn missing(name: &str, error: pool::Error) -> Failure {
    if is_missing(&error) {
        Action::Open(name).failed(reason::DATASET_MISSING)
    } else {
        Action::Open(name).failed(error)
    }
}

/// The source that the stream builds upon.
fn source(pool: &Pool, call: &Typed<Options>, snapshot: &str) -> Result<Option<SendSource>, Failure> {
    let Options { from, between, recursive, .. } = &call.options;
    let Some(word) = from.last().or(between.last()) else { return Ok(None) };
    let name = source_name(snapshot, word);
    if pool_of(&name) != pool_of(snapshot) {
        return Err(match !between.is_empty() || *recursive {
            true => Failure::usage("incremental source must be in same filesystem"),
            false => sending(snapshot, &pool::Error::NotEarlier(snapshot.to_owned())),
        });
    }
    Sender::new(pool).send_source(&name).map(Some).map_err(|error| missing(&name, error))
}

fn order<'a>(session: &Session, call: &Typed<Options>, snapshot: &'a str) -> Result<Order<'a>, Failure> {
    let pool = session.pool();
    let info = pool.dataset(snapshot).map_err(|error| missing(snapshot, error))?;
    let is_mark = |word: Option<&String>| word.is_some_and(|word| word.contains('#'));
    let (from, between) = (&call.options.from, &call.options.between);
    let from_mark = is_mark(from.last().or(between.last()));
    if from_mark && (call.options.recursive || !between.is_empty()) {
        return Err(Failure::refused("Error: multiple snapshots cannot be sent from a bookmark."));
    }
    if !info.is_snapshot() && (call.options.is_packed() || !call.options.between.is_empty()) {
        return Err(Failure::refused("Error: Unsupported flag with filesystem or bookmark."));
    }
    check_not_mounted(session, snapshot)?;
    let from = source(pool, call, snapshot)?;
    let flags = flags(&call.options);
    let between = !call.options.between.is_empty();
    let excluded = excluded(call.options.excluded.iter().map(String::as_str))?;
    let fs = file_system(snapshot);
    let is_in = |top: &String| {
        fs.strip_prefix(top.as_str()).is_some_and(|rest| matches!(rest.as_bytes(), [] | [b'/', ..]))
    };
    if excluded.iter().any(is_in) {
        return Err(Failure::refused(format!("warning: cannot send '{snapshot}': it is excluded")));
    }
    let leaving = call.options.redact.as_deref().map(|mark| leaving(pool, snapshot, mark)).transpose()?;
    let packed = call.options.is_packed();
    // A snapshot of another file system can be the base only if it is the origin of the clone.
    let is_foreign = from.as_ref().is_some_and(|from| file_system(&from.name) != fs);
    let guid = from.as_ref().map(|from| from.guid);
    if is_foreign && (packed || between) && guid != origin_guid(pool, snapshot) {
        return Err(Failure::usage("incremental source must be in same filesystem"));
    }
    let package = packed.then(|| Package {
        recursive: call.options.recursive,
        between,
        from: from.as_ref().filter(|_| !is_foreign).and_then(|from| leaf(&from.name)),
        from_origin: is_foreign,
        excluded,
        properties: match (call.options.backup, call.options.props || call.options.recursive) {
            (true, _) => Told::Received,
            (false, true) => Told::Effective,
            (false, false) => Told::OfSnapshots,
        },
        holds: call.options.holds,
        raw: call.options.raw,
        decrypts: call.options.decrypts,
        skip_missing: call.options.skip_missing,
        mark: from.clone().filter(|_| from_mark),
        leaving: leaving.clone(),
    });
    Ok(Order { snapshot, from, between, package, leaving, flags })
}

/// The file system of a snapshot or bookmark.
fn file_system(name: &str) -> &str {
    name.split(['@', '#']).next().unwrap_or(name)
}

/// The name of a snapshot within its file system.
fn leaf(name: &str) -> Option<String> {
    name.split_once('@').map(|(_, leaf)| leaf.to_owned())
}

/// Guid of the origin of the file system of `snapshot`, if it is a clone.
fn origin_guid(pool: &Pool, snapshot: &str) -> Option<Guid> {
    let info = pool.dataset(file_system(snapshot)).ok()?;
    let origin = pool.property(&info, pool::props::dataset::parse("origin")?).ok()??.0;
    let Value::Text(origin) = origin else { return None };
    Sender::new(pool).send_source(&origin).ok().map(|source| source.guid)
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

/// `-s`: warns of the datasets that are left out of a package.
fn warn(pool: &Pool, console: &mut Console, order: &Order) -> Result<(), Failure> {
    let Some(package) = order.package.as_ref().filter(|package| package.skip_missing) else { return Ok(()) };
    let leaf = order.snapshot.split_once('@').map_or("", |(_, leaf)| leaf);
    let gaps = Sender::new(pool).package_gaps(order.snapshot, package);
    for name in gaps.map_err(|error| sending(order.snapshot, &error))? {
        console.note(&format!(
            "WARNING: skipping dataset {name} and its children: snapshot {leaf} does not exist"
        ));
    }
    Ok(())
}

/// `-v`, `-P`: each snapshot and its size, to standard error; with `-n` it is the result.
fn tell(pool: &Pool, call: &Typed<Options>, console: &mut Console, order: &Order) -> Result<(), Failure> {
    let (parsable, dry) = (call.options.parsable, call.options.dry_run);
    if !is_told(call) {
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
            Sender::new(pool).send_steps(order.snapshot, from).map_err(failed)?
        }
        from => match &order.package {
            Some(package) => Sender::new(pool).package_steps(order.snapshot, package).map_err(failed)?,
            None => vec![(from.clone(), order.snapshot.to_owned())],
        },
    };
    let mut sum = 0;
    for (from, to) in steps {
        let bytes = Sender::new(pool).send_size(&order.request(&to, from.as_ref())).map_err(failed)?;
        sum += bytes;
        say(step(from.as_ref(), &to, bytes, parsable))?;
    }
    say(total(sum, parsable))
}

fn write(pool: &Pool, call: &Typed<Options>, console: &mut Console, order: &Order) -> Result<(), Failure> {
    let mut ticker = Ticker::of(call);
    let (out, err) = console.both();
    let mut hear = |sent: Sent<'_>| ticker.hear(sent, err);
    let sent = match (&order.package, &order.from, order.between) {
        (Some(package), _, _) => {
            Sender::new(pool).send_package(order.snapshot, package, order.flags, out, &mut hear)
        }
        (None, Some(from), true) => {
            Sender::new(pool).send_between(order.snapshot, from, order.flags, out, &mut hear)
        }
        (None, from, _) => {
            Sender::new(pool).send_request(&order.request(order.snapshot, from.as_ref()), out, &mut hear)
        }
    };
    sent.map_err(|error| sending(order.snapshot, &error))?;
    console.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excluded_names_are_below_the_root_of_a_pool() {
        let read = |list: &str| excluded(std::iter::once(list));
        assert_eq!(read("tank/a,tank/b/c"), Ok(vec!["tank/a".to_owned(), "tank/b/c".to_owned()]));
        for wrong in ["tank", "tank/a@s", "tank/a,", "tank//a"] {
            assert!(matches!(read(wrong), Err(Failure::Usage(_))), "{wrong}");
        }
    }
}
