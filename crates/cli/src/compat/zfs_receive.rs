//! `zfs receive`: a stream from standard input becomes a snapshot.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Read};
use std::sync::Arc;
use std::time::Instant;

use format::stream::{Begin, feature, flag};
use format::{Guid, NvList};
use pool::props::number::nice_bytes;
use pool::props::{DatasetKind, names};
use pool::{Dataset, Error, Pool, PropertyRefusal, ReceiveError, ReceiveOptions};
use server::Kind;
use stream::{Destination, Incoming, Received, Receiver, Replica};

use super::Call;
use super::changing::{is_missing, session, words};
use super::client_input::ClientInput;
use super::dataset_values;
use super::mounting::{self, Contents, Moved};
use super::no_effect;
use super::parents::create_parents;
use super::zfs_receive_heal;
use super::zfs_receive_options::Options;
use super::zfs_receive_props::{Overrides, Words};
use super::zfs_receive_tree::{self, Tree};
use super::zfs_receive_words::{cannot, name, receiving};
use crate::args::{Parsed, flag, property};
use crate::around::Served;
use crate::command::{Beside, Command, Run, Targets, Typed};
use crate::messages::{Action, Failure, reason};
use crate::open::{Intent, NotOpen, open_for};
use crate::out::Console;

/// `zfs receive`.
pub static COMMAND: Command = Command {
    name: "receive",
    alias: Some("recv"),
    about: "makes a snapshot from a stream on standard input",
    syntax: &[
        "receive [-FMhnsuv] [-o origin=SNAPSHOT] [-o PROPERTY=VALUE]… [-x PROPERTY]… FILESYSTEM|VOLUME|SNAPSHOT",
        "receive [-FMhnsuv] [-d|-e] [-o origin=SNAPSHOT] [-o PROPERTY=VALUE]… [-x PROPERTY]… FILESYSTEM",
        "receive -A FILESYSTEM|VOLUME",
        "receive -c [-vn] FILESYSTEM|SNAPSHOT",
    ],
    examples: &[
        "zfs send tank/home@monday | zfs receive backup/home",
        "zfs receive -s -u backup/home < home.zfs",
        "zfs receive -A backup/home",
    ],
    options: &[
        flag("A", "gives up a receive that was cut off"),
        flag("F", "rolls back to the newest snapshot first"),
        flag("M", "unmounts by force"),
        flag("c", "heals damaged blocks of this snapshot from a stream of it; a stream of send -c fits best"),
        flag("d", "the name of the stream without its pool goes below the target"),
        flag("e", "only the last part of the stream's name goes below the target"),
        flag("h", "without holds"),
        flag("n", "receives nothing, only says what would be received"),
        flag("s", "keeps what came if it is cut off"),
        flag("u", "does not mount it"),
        flag("v", "says what is received"),
        property("o", "sets a property instead of that in the stream; may be repeated"),
        property("x", "leaves out a property of the stream; may be repeated"),
    ],
    targets: Targets::Last,
    beside: Beside::TakesTurns,
    run: Run::Here(run),
    ..Command::ZFS
};

fn read(args: &Parsed) -> Options {
    Options {
        abort: args.has("A"),
        force: args.has("F"),
        unmount: args.has("M"),
        heal: args.has("c"),
        without_pool: args.has("d"),
        last_element: args.has("e"),
        no_holds: args.has("h"),
        dry_run: args.has("n"),
        resumable: args.has("s"),
        unmounted: args.has("u"),
        verbose: args.has("v"),
        properties: args.texts("o"),
        left_out: args.texts("x"),
    }
}

/// Bytes read from the pipe at once.
const BUFFER: usize = 1 << 20;

/// Runs `zfs receive`.
///
/// # Errors
/// The arguments are wrong, or the stream cannot be received. Streams of a package that were received before the error stay.
fn run(call: &Call, console: &mut Console) -> Result<(), Failure> {
    let call = &call.typed(read);
    let args = &call.args;
    let target = match args.operands.as_slice() {
        [] => return Err(Failure::usage("missing snapshot argument")),
        [name] => name.as_str(),
        _ => return Err(Failure::usage("too many arguments")),
    };
    check_options(&call.options)?;
    if call.options.abort {
        return abort(call, target);
    }
    let client = call.around.input();
    let typed = client.as_ref().map_or_else(|| io::stdin().is_terminal(), |client| client.is_terminal());
    if typed {
        let line = "Error: Backup stream can not be read from a terminal.";
        return Err(Failure::refused(line).hint("You must redirect standard input."));
    }
    let below = call.options.without_pool || call.options.last_element;
    names::check(target).map_err(|error| Action::Open(target).failed(error))?;
    if below && target.contains('@') {
        let letter = if call.options.without_pool { "d" } else { "e" };
        let why = format!("invalid argument - snapshot not allowed with -{letter}");
        return Err(Failure::refused(format!("cannot receive: {why}")));
    }
    let given = Words::of(&call.options)?;
    no_effect::warn(console, given.own.iter());
    let destination = match (call.options.without_pool, call.options.last_element) {
        (true, _) => Destination::WithoutPool(target.to_owned()),
        (_, true) => Destination::LastElement(target.to_owned()),
        _ => Destination::Into(target.to_owned()),
    };
    // The sender may still have its pool open. This waits for its first bytes before the target pool is opened.
    let mut stream = Incoming::open(input(call, client))
        .map_err(|error| Failure::refused(format!("cannot receive: {error}")))?;
    let is_tree = |(_, list): &(Begin, NvList)| !list.is_empty() && list.get("not_recursive").is_none();
    if target.contains('@') && stream.package().is_some_and(is_tree) {
        let why = "cannot specify snapshot name for multi-snapshot stream";
        return Err(Failure::refused(format!("cannot receive: {why}")));
    }
    let intent = if call.options.dry_run { Intent::Read } else { Intent::Write };
    let no_target = || Failure::refused(format!("cannot receive: specified fs ({target}) does not exist"));
    let session = open_for(target, call.around, intent).map_err(|error| match error {
        NotOpen::Missing(_) if below => no_target(),
        NotOpen::Missing(_) => {
            let parent = target.rsplit_once('/').map_or(target, |(up, _)| up);
            let lines = Action::Open(parent).failed(reason::DATASET_MISSING);
            lines.hint("cannot receive new filesystem stream: unable to restore to destination")
        }
        other => other.into(),
    })?;
    let missing = below && session.pool().dataset(target).is_err_and(|error| is_missing(&error));
    let done = match call.options.heal {
        _ if missing => Err(no_target()),
        true => zfs_receive_heal::heal_in(session.pool(), call, console, &mut stream, &destination),
        false => given.judge(session.pool()).and_then(|overrides| {
            let receive = Receive { pool: session.pool(), call };
            receive.all(console, &mut stream, &destination, &overrides)
        }),
    };
    if call.live().is_some() {
        // It continues, and callers that wait for its end may take the turn.
        return done;
    }
    session.finish().and(done)
}

/// Refuses options that contradict each other.
fn check_options(options: &Options) -> Result<(), Failure> {
    if options.without_pool && options.last_element {
        return Err(Failure::usage("invalid option combination: -d and -e are mutually exclusive"));
    }
    match options.contradicts_heal().filter(|_| options.heal) {
        Some(other) => {
            Err(Failure::usage(format!("invalid option combination: -c and -{other} are mutually exclusive")))
        }
        None => Ok(()),
    }
}

/// The stream as it comes: from a client, or from standard input.
fn input(call: &Call, client: Option<Arc<File>>) -> Box<dyn Read> {
    match client {
        Some(client) => {
            let stop = call.around.served.clone();
            let stops = move || stop.as_ref().is_some_and(Served::stops);
            Box::new(BufReader::with_capacity(BUFFER, ClientInput { input: client, stops }))
        }
        None => Box::new(BufReader::with_capacity(BUFFER, io::stdin().lock())),
    }
}

/// `-A`: destroys a partial receive.
fn abort(call: &Typed<Options>, target: &str) -> Result<(), Failure> {
    names::check_kind(target, DatasetKind::Filesystem).map_err(|error| Action::Open(target).failed(error))?;
    let _turn = call.turn()?;
    let session = session(call, target, Intent::Write).map_err(|error| error.dataset(target))?;
    let action = Action::Destroy(target);
    let done = match (session.refusal(action), session.pool().abort_receive(target)) {
        (Some(failure), _) => Err(failure),
        (None, Ok(true)) => Ok(()),
        (None, Ok(false)) => {
            Err(Failure::refused(format!("'{target}' does not have any resumable receive state to abort")))
        }
        (None, Err(error)) if is_missing(&error) => Err(Action::Open(target).failed(reason::DATASET_MISSING)),
        (None, Err(error)) => Err(words(action, &error)),
    };
    session.finish().and(done)
}

/// A receive into an open pool.
struct Receive<'a> {
    pool: &'a Pool,
    call: &'a Typed<'a, Options>,
}

/// One stream that arrives.
struct Arriving<'a> {
    begin: &'a Begin,
    /// The header that comes with it.
    list: &'a NvList,
    /// The name of the snapshot at the sender.
    sent: &'a str,
    /// The name of the snapshot here.
    into: &'a str,
    /// The command, for the history; only with the first stream.
    line: Option<&'a str>,
}

/// The name of a snapshot's file system.
fn file_system(snapshot: &str) -> &str {
    snapshot.split_once('@').map_or(snapshot, |(fs, _)| fs)
}

/// Whether a stream makes a new file system or volume.
fn makes_dataset(begin: &Begin, overrides: &Overrides) -> bool {
    let resumes = begin.features & feature::RESUMING != 0;
    let is_new = begin.fromguid.0 == 0 || begin.flags & flag::CLONE != 0 || overrides.has_origin();
    is_new && !resumes
}

impl Receive<'_> {
    /// Receives all streams of a package, or a single one.
    fn all<R: Read>(
        &self,
        console: &mut Console,
        stream: &mut Incoming<R>,
        destination: &Destination,
        overrides: &Overrides,
    ) -> Result<(), Failure> {
        let Receive { pool, call } = *self;
        let package = stream.package().map(|(begin, list)| (name(begin), list.clone()));
        let top = package.as_ref().map(|(top, _)| top.as_str());
        let list = package.as_ref().map(|(_, list)| list);
        let unread = |error| Failure::refused(format!("cannot receive: {error}"));
        if let Some(live) = call.live() {
            // Dirty pages in the kernel count as changes, too.
            live.write_back();
        }
        let exact = matches!(destination, Destination::Into(_));
        let replica = list.and_then(Replica::of).filter(|_| !call.options.dry_run);
        let tree = top.map(|top| destination.name_of(top, Some(top))).unwrap_or_default();
        let tree = replica.as_ref().map(|replica| Tree { replica, top: file_system(&tree), exact });
        if let Some(tree) = &tree {
            // A change that fails now may succeed when the streams are here.
            zfs_receive_tree::follow(pool, call, console, tree)?;
        }
        let mut line = Some(call.line.as_str()).filter(|_| !call.options.dry_run);
        let mut first: Option<String> = None;
        let mut key_roots = BTreeMap::new();
        while let Some((begin, own)) = stream.next_stream().map_err(unread)? {
            let sent = name(&begin);
            let into = destination.name_of(&sent, top);
            names::check_new(&into, DatasetKind::Snapshot)
                .map_err(|error| Failure::refused("cannot receive: invalid name").hint(error.to_string()))?;
            let is_top = exact && top.is_none_or(|top| sent.split('@').next() == top.split('@').next());
            let into = match makes_dataset(&begin, overrides) {
                true => self.below_known_parent(&begin, into, list)?,
                false if is_top => into,
                false => self.beside_known_snapshot(&begin, into)?,
            };
            let fs = file_system(&into).to_owned();
            let is_first = *first.get_or_insert_with(|| fs.clone()) == fs;
            overrides.check_raw(&begin)?;
            let options = overrides.options(&call.options, list, begin.toguid, is_first);
            let arriving =
                Arriving { begin: &begin, list: &own, sent: &sent, into: &into, line: line.take() };
            let refused = self.one(console, stream, arriving, &options)?;
            let is_last = list
                .and_then(|list| list.get_str("tosnap"))
                .is_none_or(|to| sent.ends_with(&format!("@{to}")));
            if let Some(is_root) = list.and_then(|list| stream::is_key_root_of(list, begin.toguid)) {
                key_roots.insert(fs.clone(), (is_root, is_first));
            }
            if let Some(list) = list.filter(|_| !call.options.no_holds && !call.options.dry_run) {
                self.hold(&into, &stream::holds_of(list, begin.toguid))?;
            }
            for (property, why) in refused {
                // A limit that only the last snapshot keeps is no news of those before it.
                if property != "refquota" || is_last {
                    console.remark(&format!("cannot receive {property} property on {fs}: {why}"));
                }
            }
        }
        if !call.options.dry_run {
            self.mend_key_roots(key_roots)?;
        }
        if let Some(tree) = &tree {
            let failures = zfs_receive_tree::follow(pool, call, console, tree)?;
            failures.into_iter().try_for_each(|failure| console.complain(failure))?;
        }
        Ok(())
    }

    /// Datasets that were received raw have keys of their own at first. A dataset without a key of its own at the sender
    /// takes its key from its parent again. Clones have those of their origin.
    fn mend_key_roots(&self, roots: BTreeMap<String, (bool, bool)>) -> Result<(), Failure> {
        let Receive { pool, call } = *self;
        let _turn = call.turn()?;
        for (fs, (is_root, is_top)) in roots {
            let failed = |error: Error| Failure::refused(format!("cannot change key of '{fs}': {error}"));
            let info = pool.dataset(&fs).map_err(failed)?;
            let is_clone = pool.reading().origin_of(&info).map_err(failed)?.is_some();
            let Some(here) = pool.encryption(&info).map_err(failed)?.filter(|_| !is_clone) else { continue };
            // The top keeps the key of its own that it got.
            if (here.root == fs) != is_root && (is_root || !is_top) {
                pool.set_key_root(fs.clone(), is_root).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// Holds a snapshot as its sender does. Snapshots that were received before are held already.
    fn hold(&self, snapshot: &str, tags: &[String]) -> Result<(), Failure> {
        for tag in tags {
            let _turn = self.call.turn()?;
            match self.pool.hold(&[snapshot.to_owned()], tag) {
                // An invalid tag cannot exist at the sender either.
                Ok(()) | Err(Error::Exists(_) | Error::BadTag(_)) => {}
                Err(error) => {
                    return Err(Failure::refused(format!("cannot hold snapshot '{snapshot}': {error}")));
                }
            }
        }
        Ok(())
    }

    /// `into`, unless the file system that the new one belongs below has another name here: then it is known by the guid of a
    /// snapshot.
    fn below_known_parent(
        &self,
        begin: &Begin,
        into: String,
        list: Option<&NvList>,
    ) -> Result<String, Failure> {
        let pool = self.pool;
        let Some((fs, leaf)) = into.split_once('@') else { return Ok(into) };
        let Some((parent, last)) = fs.rsplit_once('/') else { return Ok(into) };
        let snapshot = list.and_then(|list| stream::parent_snapshot_of(list, begin.toguid));
        let is_gone = || pool.dataset(parent).is_err_and(|error| is_missing(&error));
        let Some(snapshot) = snapshot.filter(|_| is_gone()) else { return Ok(into) };
        let found = self.nearest_with(begin, snapshot, fs)?;
        Ok(found.map(|parent| format!("{parent}/{last}@{leaf}")).unwrap_or(into))
    }

    /// `into`, unless its file system has another name here: then it is known by the guid of the snapshot that the stream starts
    /// from.
    fn beside_known_snapshot(&self, begin: &Begin, into: String) -> Result<String, Failure> {
        let Some((fs, leaf)) = into.split_once('@') else { return Ok(into) };
        if self.pool.dataset(fs).is_ok() {
            return Ok(into);
        }
        let found = self.nearest_with(begin, begin.fromguid, fs)?;
        Ok(found.map(|fs| format!("{fs}@{leaf}")).unwrap_or(into))
    }

    /// The file system with this snapshot whose name is nearest to `fs`.
    fn nearest_with(&self, begin: &Begin, snapshot: Guid, fs: &str) -> Result<Option<String>, Failure> {
        let unknown = |error: Error| Failure::refused(format!("{}: {error}", cannot(begin)));
        Receiver::new(self.pool).nearest_with(snapshot, fs).map_err(unknown)
    }

    /// Makes the missing datasets between the target of `-d` and the parent of `fs`.
    fn make_parents(&self, console: &mut Console, fs: &str) -> Result<(), Failure> {
        let Receive { pool, call } = *self;
        let target = call.args.operands.first().map_or("", String::as_str);
        let Some((parent, _)) =
            fs.rsplit_once('/').filter(|_| call.options.without_pool && !call.options.dry_run)
        else {
            return Ok(());
        };
        if pool.dataset(target).is_err() || pool.dataset(parent).is_ok() {
            return Ok(());
        }
        let _turn = call.turn()?;
        let made = create_parents(pool, parent, &dataset_values::enabled_in(pool), Action::Create(parent))?;
        if call.options.unmounted {
            return Ok(());
        }
        made.iter().try_for_each(|made| mounting::created(call, console, made))
    }

    /// Receives one stream. Returns the properties that its file system cannot have.
    fn one<R: Read>(
        &self,
        console: &mut Console,
        stream: &mut Incoming<R>,
        arriving: Arriving<'_>,
        options: &ReceiveOptions,
    ) -> Result<Vec<PropertyRefusal>, Failure> {
        let Receive { pool, call } = *self;
        let Arriving { begin, list, sent, into, line } = arriving;
        let (verbose, dry) = (call.options.verbose, call.options.dry_run);
        let kind = if begin.fromguid.0 == 0 { "full" } else { "incremental" };
        let fs = file_system(into);
        if !Receiver::new(pool).can_receive_somewhere(begin, into) {
            // Said without an announcement, as there is nowhere to go.
            let error = ReceiveError::Missing(fs.to_owned());
            return Err(receiving(begin, &Error::from(error)));
        }
        if verbose {
            let verb = if dry { "would receive" } else { "receiving" };
            console.line(&format!("{verb} {kind} stream of {sent} into {into}"))?;
            console.flush()?;
        }
        let (since, before) = (Instant::now(), stream.bytes());
        let failed = |error: Error| failure(pool, begin, fs, options, &error);
        // A partial receive is mounted when it is complete.
        let is_new = pool.dataset(fs).map_or(true, |there| there.is_unfinished());
        self.make_parents(console, fs)?;
        // Other commands may change the pool during the stream, but not during its start and end.
        let turn = call.turn()?;
        line.into_iter().for_each(|line| pool.set_command(line));
        if options.force {
            // Some of them may go, and none stays only because a mount has shown it.
            mounting::letting_go(call, &snapshots_of(pool, fs));
        }
        let receiving = Receiver::new(pool).begin_receive((begin, list), into, options);
        pool.forget_command();
        drop(turn);
        let receiving = receiving.map_err(failed)?;
        let arrived = receiving.take_in(stream).map_err(failed)?;
        let stops = || call.around.served.as_ref().is_some_and(Served::stops);
        let _turn = match call.live().map(|live| live.turn_unless(stops)) {
            Some(None) => {
                arrived.give_up();
                return Err(Failure::refused(format!("{}: told to stop", cannot(begin))));
            }
            other => other.flatten(),
        };
        let received = self.put_in_place(console, arrived, &failed)?;
        if is_new && !dry && !call.options.unmounted {
            mounting::created(call, console, fs)?;
        }
        if verbose && !dry && received.as_ref().is_none_or(|received| !received.skipped) {
            let (bytes, seconds) = (stream.bytes() - before, since.elapsed().as_secs_f64().max(0.01));
            let rate = nice_bytes((bytes as f64 / seconds) as u64);
            let line = format!("received {} stream in {seconds:.2} seconds ({rate}/sec)", nice_bytes(bytes));
            console.line(&line)?;
        }
        Ok(received.map(|received| received.refused).unwrap_or_default())
    }

    /// Completes the receive. A mounted file system stays mounted for an incremental stream. For a full stream it is mounted
    /// again, as in OpenZFS.
    fn put_in_place(
        &self,
        console: &mut Console,
        arrived: stream::Arrived<'_>,
        failed: &impl Fn(Error) -> Failure,
    ) -> Result<Option<Received>, Failure> {
        let Receive { pool, call } = *self;
        let Some(fs) = arrived.replaces().map(str::to_owned) else {
            return Ok(Some(arrived.put_in_place().map_err(failed)?));
        };
        // A forced unmount was requested; or contents that lack blocks come, which are not mounted.
        let goes_on = |next: &Dataset| !call.options.unmount && next.check_complete().is_ok();
        let increment = arrived.increment().filter(|(next, _)| goes_on(next));
        let increment = increment.map(|(next, onto)| (next, onto.to_owned()));
        let (mut waiting, mut received) = (Some(arrived), None);
        let mut place = || {
            received = waiting.take().map(stream::Arrived::put_in_place).transpose().map_err(failed)?;
            Ok(())
        };
        let moved = match increment {
            Some((next, onto)) => {
                let doomed = newer_than(pool, &fs, &onto);
                mounting::exchanging(call, console, Contents { of: fs, next, doomed }, place)
            }
            None => {
                let moved = Moved { top: &fs, kind: Kind::Contents, force: call.options.unmount };
                mounting::moving(call, console, moved, str::to_owned, &mut place)
            }
        };
        let Some(arrived) = waiting else {
            moved?;
            return Ok(received);
        };
        let begin = arrived.begin().clone();
        arrived.give_up();
        moved.map_err(|failure| stays_mounted(call, &begin, failure))?;
        Ok(None)
    }
}

/// The snapshots of `fs`, oldest first.
fn snapshots_of(pool: &Pool, fs: &str) -> Vec<String> {
    // Ignores a list that cannot be read: the receive itself reports the error.
    let list = pool.list(fs, Some(1), true).unwrap_or_default();
    let own = format!("{fs}@");
    list.into_iter().map(|info| info.name).filter(|name| name.starts_with(&own)).collect()
}

/// Snapshots of `fs` that are newer than its snapshot `onto`: the change gives them up.
fn newer_than(pool: &Pool, fs: &str, onto: &str) -> Vec<String> {
    snapshots_of(pool, fs).into_iter().skip_while(|name| name != onto).skip(1).collect()
}

/// Why a stream was not received, and how to resume it.
fn failure(pool: &Pool, begin: &Begin, fs: &str, options: &ReceiveOptions, error: &Error) -> Failure {
    let token = match pool.resume_token(fs) {
        Ok(Some(token)) if options.resumable && token.toguid == begin.toguid => token,
        _ => return receiving(begin, error),
    };
    let cut = matches!(
        error,
        Error::Receive(ReceiveError::Truncated | ReceiveError::Checksum | ReceiveError::Read(_))
    );
    let failure = if cut {
        Failure::refused(format!("{}: checksum mismatch or incomplete stream.", cannot(begin)))
    } else {
        receiving(begin, error)
    };
    failure
        .hint("Partially received snapshot is saved.")
        .hint("A resuming stream can be generated on the sending system by running:")
        .hint(format!("    zfs send -t {token}"))
}

/// The mounted file system is in use and cannot be unmounted.
fn stays_mounted(call: &Typed<Options>, begin: &Begin, failure: Failure) -> Failure {
    let Failure::Refused(lines) = failure else { return failure };
    let busy = lines.iter().any(|line| line.ends_with(reason::BUSY));
    let why = if busy { reason::BUSY } else { "unmount failed" };
    let said = lines.into_iter().fold(Failure::refused(format!("{}: {why}", cannot(begin))), Failure::hint);
    if busy && !call.options.unmount { said.hint("use '-M' to unmount it by force") } else { said }
}
