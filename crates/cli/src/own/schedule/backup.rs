//! `cenote backup`: copies a dataset into another pool, or into a folder of stream files, and later only what changed.
//!
//! From:   a dataset, or a snapshot of it.
//! To:     `zfs send` and `zfs receive -s`, or a [`Chain`]. The source keeps a hold on the snapshot that was sent last: the
//!         next increment starts there.

use std::path::Path;
use std::process::{Child, Stdio};

use pool::props::number::nice_bytes;
use serde_json::json;

use super::chain::{Chain, Link, New};
use super::destination::{Destination, expect_place};
use super::existing::{Existing, datasets, snapshots_of};
use super::{BACKUP, MADE_BY, MADE_FOR, is_named, name_now, raw};
use crate::around::Surroundings;
use crate::messages::Failure;
use crate::out::{Console, counted};
use crate::own::child::{Zfs, not_started, said};

/// Creator of a snapshot, from [`MADE_BY`].
const MAKER: &str = "backup";
/// What `zfs receive` says of a destination that is no longer what was sent to it.
const CHANGED: &str = "has been modified";
/// The error of `zfs receive` for a pool without room.
const FULL: &str = "out of space";
/// What `zfs send` says of a token whose snapshot was destroyed, or whose name another one has now.
const GONE: &str = "no longer";
/// What `zfs hold` says of a pool that is imported read-only.
const READ_ONLY: &str = "read-only";
/// What `zfs receive` says of a stream that ended early.
const CUT: [&str; 2] = ["failed to read from stream", "incomplete stream"];

/// Arguments of `backup`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
SOURCE is a dataset: a snapshot of it is made and sent. Or it is a snapshot that is there already. DEST is a dataset, or a \
folder, which is written with a slash or a dot at its beginning, or a slash at its end: /backup/home, ./home, home/. The first time everything is sent, \
later what changed since the last time. A receive that was interrupted goes on where it was. A stream in a folder is read \
back after it was written; one that was interrupted begins anew.

The snapshot that was sent last is held in the source until the next backup. The received dataset is readonly and is not \
mounted.

Examples:
  cenote backup -r tank/home usb/home
  cenote backup tank/home /mnt/usb/home
  cenote backup --verify /mnt/usb/home
  for f in /mnt/usb/home/*.zfs-stream; do cenote zfs receive -u new/home < \"$f\"; done")]
pub struct Backup {
    /// The datasets below it, too.
    #[arg(short, long)]
    pub recursive: bool,
    /// Send encrypted datasets as they are, without their keys.
    #[arg(short = 'w', long)]
    pub raw: bool,
    /// Instead: read all streams of the folder SOURCE again.
    #[arg(long, conflicts_with_all = ["recursive", "raw", "destination"])]
    pub verify: bool,
    /// One JSON object for each snapshot that was sent, or each stream that was read again.
    #[arg(long)]
    pub json: bool,
    /// A dataset, or a snapshot of it; with --verify a folder.
    #[arg(value_name = "SOURCE")]
    pub source: String,
    /// A dataset that does not exist yet or is the copy, or a folder.
    #[arg(value_name = "DEST", required_unless_present = "verify")]
    pub destination: Option<String>,
}

/// Carries out `backup`.
///
/// # Errors
/// The source is missing. For each of several datasets that cannot be sent, an error is printed.
pub fn run(args: &Backup, around: &Surroundings, console: &mut Console) -> Result<(), Failure> {
    let source = &args.source;
    if args.verify {
        return verify(Path::new(source), args.json, console);
    }
    let Some(destination) = &args.destination else { return Err(Failure::usage("missing destination")) };
    let zfs = Zfs::new(around)?;
    let (top, given) = match source.split_once('@') {
        Some((dataset, name)) => (dataset, Some(name.to_owned())),
        None => (source.as_str(), None),
    };
    let destination = Destination::of(destination);
    if let Destination::Dataset(name) = &destination
        && (name == top || name.starts_with(&format!("{top}/")))
    {
        return Err(Failure::refused(format!("'{name}' lies in '{top}': a backup belongs in another place")));
    }
    let datasets = datasets(&zfs, top, args.recursive)?;
    let datasets: Vec<String> = datasets.into_iter().map(|listed| listed.name).collect();
    expect_place(&zfs, top, &destination)?;
    let is_new = given.is_none();
    let name = match given {
        Some(name) => name,
        None => make(&zfs, top, &destination, args.recursive)?,
    };
    for (at, dataset) in datasets.iter().enumerate() {
        let to = destination.below(&dataset[top.len()..]);
        let one = One { args, zfs: &zfs, dataset, name: &name, is_new, to, top: &destination };
        let Err(failure) = one.run(console) else { continue };
        let left = datasets.len() - at - 1;
        match has_line(&failure, FULL) && left > 0 {
            true => {
                let after =
                    format!("the destination is full: {} not sent", counted(left as u64, "more dataset"));
                return Err(failure.hint(after));
            }
            false => console.complain(failure)?,
        }
    }
    Ok(())
}

/// Makes the snapshot that is sent; gives its name behind the `@`.
fn make(zfs: &Zfs, top: &str, to: &Destination, recursive: bool) -> Result<String, Failure> {
    let name = name_now(BACKUP);
    let (full, by, destined) =
        (format!("{top}@{name}"), format!("{MADE_BY}={MAKER}"), format!("{MADE_FOR}={}", to.tag()));
    let mut words = vec!["snapshot", "-o", &by, "-o", &destined];
    words.extend(recursive.then_some("-r"));
    words.push(&full);
    zfs.read(&words)?;
    Ok(name)
}

fn verify(folder: &Path, with_json: bool, console: &mut Console) -> Result<(), Failure> {
    let mut chains = Chain::open_all(folder)?;
    chains.retain(|chain| !chain.links.is_empty() || !chain.strays.is_empty());
    if chains.is_empty() {
        return Err(Failure::refused(format!("there is no backup in '{}'", folder.display())));
    }
    chains.iter().try_for_each(|chain| verify_chain(chain, folder, with_json, console))
}

/// Reads the streams of one dataset again. They are named as they lie below `top`.
fn verify_chain(chain: &Chain, top: &Path, with_json: bool, console: &mut Console) -> Result<(), Failure> {
    for link in &chain.links {
        let file = chain.shown(link, top);
        match chain.verify(link) {
            Ok(()) if with_json => {
                console.line(&json!({ "file": file, "bytes": link.bytes, "verified": true }).to_string())?;
            }
            Ok(()) if console.is_quiet() => {}
            Ok(()) => {
                let size = nice_bytes(link.bytes);
                console.line(&format!("{file}: read again, and all {size} are as they were written"))?;
            }
            Err(failure) => console.complain(failure)?,
        }
    }
    for name in &chain.strays {
        let line =
            format!("'{name}' has no note: a backup was killed before it wrote one, or the note is lost");
        console.complain(Failure::refused(line).hint("the backup does not count it"))?;
    }
    if let Some(line) = chain.missing() {
        let hint = "what follows cannot be received; the next backup begins with a full stream";
        console.complain(Failure::refused(line).hint(hint))?;
    }
    Ok(())
}

/// A snapshot that is at its destination.
struct Done<'a> {
    sent: &'a Existing,
    /// The base of the increment; `None` for a full stream, and for snapshots that were there before.
    from: Option<&'a Existing>,
    to: String,
    /// Bytes of the stream; `None` where none was written to a file.
    bytes: Option<u64>,
}

/// The backup of one dataset.
struct One<'a> {
    args: &'a Backup,
    zfs: &'a Zfs,
    dataset: &'a str,
    /// The snapshot, behind the `@`.
    name: &'a str,
    /// Whether it was made for this backup.
    is_new: bool,
    to: Destination,
    /// The destination of the whole backup.
    top: &'a Destination,
}

impl One<'_> {
    fn run(&self, console: &mut Console) -> Result<(), Failure> {
        let there = snapshots_of(self.zfs, self.dataset)?;
        let full = format!("{}@{}", self.dataset, self.name);
        let Some(sent) = there.iter().find(|one| one.full == full) else {
            return Err(Failure::refused(format!("cannot back up '{full}': dataset does not exist")));
        };
        let base = match &self.to {
            Destination::Dataset(name) => self.to_dataset(name, &there, sent, console)?,
            Destination::Folder(folder) => self.to_folder(folder, &there, sent, console)?,
        };
        if self.hold(sent)? {
            return self.settle(base.as_ref(), sent);
        }
        self.tell("the source is read-only, so no hold keeps what was sent for the next backup", console)
    }

    /// Sends to another dataset; returns the snapshot that it started from.
    fn to_dataset(
        &self,
        to: &str,
        there: &[Existing],
        sent: &Existing,
        console: &mut Console,
    ) -> Result<Option<Existing>, Failure> {
        let mut is_there = self.is_there(to);
        if is_there {
            let top = if let Destination::Dataset(top) = self.top { top } else { to };
            self.expect_same_form(raw::of_copy(self.zfs, self.dataset, to, top)?, to, sent)?;
            if let Some(token) = self.token(to)? {
                self.go_on(&token, to, sent, console)?;
                is_there = self.is_there(to);
            }
        }
        let have = if is_there { snapshots_of(self.zfs, to)? } else { Vec::new() };
        if have.iter().any(|one| one.guid == sent.guid) {
            let done = Done { sent, from: None, to: to.to_owned(), bytes: None };
            self.end(&format!("{}: {to} has it", sent.full), &done, console)?;
            return Ok(None);
        }
        let older = || there.iter().filter(|one| one.txg < sent.txg).rev();
        let base = older().find(|one| have.iter().any(|other| other.guid == one.guid)).cloned();
        if base.is_some() || !is_there {
            // If the receive is interrupted, it goes on with one of these.
            let from = base.as_ref().map_or(sent.txg, |base| base.txg);
            for one in there.iter().filter(|one| (from..=sent.txg).contains(&one.txg)) {
                self.hold(one)?;
            }
        }
        match &base {
            Some(base) => {
                self.send(&["-I", &base.full, &sent.full], to, &[]).map_err(|failure| {
                    self.forget_unless_begun(to, sent);
                    if has_line(&failure, CHANGED) { failure.hint(give_up(to, base)) } else { failure }
                })?;
            }
            None if is_there => {
                self.forget(sent);
                let line = format!("cannot back up '{}': '{to}' has no snapshot of it", self.dataset);
                return Err(Failure::refused(line)
                    .hint("nothing was changed; name a dataset that does not exist yet"));
            }
            None => {
                let form = raw::mark(self.args.raw);
                self.send(&[&sent.full], to, &["-o", "readonly=on", "-o", &form])
                    .inspect_err(|_| self.forget_unless_begun(to, sent))?;
            }
        }
        let is_same = snapshots_of(self.zfs, to)?.iter().any(|one| one.guid == sent.guid);
        if !is_same {
            return Err(Failure::refused(format!("'{to}' did not become a copy of '{}'", sent.full)));
        }
        let from = base.as_ref().map(|base| format!(" from @{}", base.name())).unwrap_or_default();
        let done = Done { sent, from: base.as_ref(), to: to.to_owned(), bytes: None };
        self.end(&format!("{}{from} -> {to}", sent.full), &done, console)?;
        Ok(base)
    }

    /// What goes on with a receive that was interrupted, if one was.
    fn token(&self, to: &str) -> Result<Option<String>, Failure> {
        let token = self.zfs.read(&["get", "-Hp", "-o", "value", "receive_resume_token", to])?;
        Ok(Some(token.trim().to_owned()).filter(|token| token.len() > 1))
    }

    fn is_there(&self, to: &str) -> bool {
        self.zfs.read(&["list", "-H", "-o", "name", to]).is_ok()
    }

    /// Refuses to mix blocks as they are, encrypted, with those that the key has opened: OpenZFS takes neither after the other.
    fn expect_same_form(&self, is_raw: Option<bool>, to: &str, sent: &Existing) -> Result<(), Failure> {
        if is_raw.is_none_or(|is_raw| is_raw == self.args.raw) {
            return Ok(());
        }
        self.forget(sent);
        let (made, give) = match self.args.raw {
            true => ("without --raw", "give no --raw, or name another place for a new copy"),
            false => ("with --raw", "give --raw (-w), or name another place for a new copy"),
        };
        let line = format!("cannot back up '{}': the copy in '{to}' was made {made}", self.dataset);
        Err(Failure::refused(line).hint(format!("nothing was changed; {give}")))
    }

    /// Goes on with a receive that was interrupted; gives it up if the source no longer has what it needs.
    fn go_on(&self, token: &str, to: &str, sent: &Existing, console: &mut Console) -> Result<(), Failure> {
        if let Err(failure) = self.zfs.read(&["send", "-n", "-t", token])
            && has_line(&failure, GONE)
        {
            let why = "the source no longer has the snapshot of what was interrupted: that begins anew";
            self.tell(&format!("{to}: {why}"), console)?;
            return self.zfs.read(&["receive", "-A", to]).map(drop);
        }
        self.tell(&format!("{to}: going on with what was interrupted"), console)?;
        self.send(&["-t", token], to, &[]).map_err(|failure| {
            // What goes on is an earlier snapshot, so the new one is not needed yet.
            self.forget(sent);
            failure.hint(format!("'zfs receive -A {to}' gives up what was received of it"))
        })
    }

    /// `zfs send` into `zfs receive`.
    fn send(&self, what: &[&str], to: &str, options: &[&str]) -> Result<(), Failure> {
        let mut sender = self.sender(what)?;
        let stream = sender.stdout.take().map_or_else(Stdio::null, Stdio::from);
        let words = [&["receive", "-s", "-u"], options, &[to]].concat();
        let receiver =
            self.zfs.command(&words).stdin(stream).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let received = match receiver {
            Ok(receiver) => receiver.wait_with_output().map_err(not_started),
            Err(error) => Err(not_started(error)),
        };
        // If the receiver refuses, the sender's error is only a broken pipe. If the stream ends early, the sender knows why.
        let sent = ended(sender);
        let received = received?;
        if !received.status.success() {
            return Err(match sent {
                Err(failure @ Failure::Refused(_)) if is_cut(&said(&received.stderr)) => failure,
                _ => without_token(said(&received.stderr)),
            });
        }
        sent
    }

    fn sender(&self, what: &[&str]) -> Result<Child, Failure> {
        let is_new = what.first() != Some(&"-t");
        let raw = if self.args.raw && is_new { ["-w"].as_slice() } else { &[] };
        let words = [&["send"], raw, what].concat();
        let mut command = self.zfs.command(&words);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().map_err(not_started)
    }

    /// Adds a stream to a folder; returns the snapshot that it started from.
    fn to_folder(
        &self,
        folder: &Path,
        there: &[Existing],
        sent: &Existing,
        console: &mut Console,
    ) -> Result<Option<Existing>, Failure> {
        let mut chain = Chain::open(folder, true)?;
        let last = chain.last().map(|link| link.guid);
        let gap = chain.gap();
        if last == Some(sent.guid) && gap.is_none() {
            let to = folder.display().to_string();
            let line = format!("{}: '{to}' has it", sent.full);
            self.end(&line, &Done { sent, from: None, to, bytes: None }, console)?;
            return Ok(None);
        }
        let is_raw = chain.last().and_then(|link| link.raw).filter(|_| gap.is_none());
        if is_raw.is_some() && raw::is_encrypted(self.zfs, self.dataset)? {
            self.expect_same_form(is_raw, &folder.display().to_string(), sent)?;
        }
        let base = there.iter().find(|one| Some(one.guid) == last && one.txg < sent.txg).cloned();
        if let Some(other) = chain.last().map(Link::dataset).filter(|other| *other != self.dataset)
            && base.is_none()
        {
            let line = format!(
                "cannot back up '{}' to '{}': the folder has a backup of '{other}'",
                self.dataset,
                folder.display()
            );
            self.forget(sent);
            return Err(Failure::refused(line).hint("nothing was changed; name another folder"));
        }
        let why = gap.or_else(|| {
            let is_gone = base.is_none() && last.is_some();
            is_gone.then(|| "the snapshot that the folder has last is gone from the source".to_owned())
        });
        let base = base.filter(|_| why.is_none());
        if let Some(why) = why {
            self.tell(&format!("{}: {why}: this stream is a full one", self.dataset), console)?;
        }
        self.hold(sent)?;
        let mut sender = match &base {
            Some(base) => self.sender(&["-I", &base.full, &sent.full])?,
            None => self.sender(&[&sent.full])?,
        };
        let Some(stream) = sender.stdout.take() else { return Err(Failure::Ended(1)) };
        let from = base.as_ref().map(|base| base.guid);
        // Nothing of it was kept, so it is no use any more.
        let forget = |_: &Failure| self.forget(sent);
        let new = New { snapshot: &sent.full, guid: sent.guid, from, raw: self.args.raw };
        let link = chain.add(&new, stream, || ended(sender)).inspect_err(forget)?;
        let to = folder.join(&link.file).display().to_string();
        let line = format!("{} -> {to} ({})", sent.full, nice_bytes(link.bytes));
        self.end(&line, &Done { sent, from: base.as_ref(), to, bytes: Some(link.bytes) }, console)?;
        Ok(base)
    }

    /// Whether this destination holds a snapshot.
    fn holds(&self, full: &str) -> Result<bool, Failure> {
        let (lines, tag) = (self.zfs.read(&["holds", "-H", full])?, self.to.tag());
        Ok(lines.lines().any(|line| line.split('\t').nth(1) == Some(tag.as_str())))
    }

    /// Holds a snapshot for this destination: what is sent, and later what the next increment starts from.
    /// Gives whether it is held: not in a pool that is imported read-only, of which a snapshot that is there can be sent.
    fn hold(&self, one: &Existing) -> Result<bool, Failure> {
        if self.holds(&one.full)? {
            return Ok(true);
        }
        match self.zfs.read(&["hold", &self.to.tag(), &one.full]) {
            Err(failure) if !self.is_new && has_line(&failure, READ_ONLY) => Ok(false),
            done => done.map(|_| true),
        }
    }

    /// Removes the snapshot of a backup that failed and cannot go on.
    fn forget(&self, sent: &Existing) {
        if self.is_new {
            // If a snapshot cannot be removed, the next backup removes it.
            let _ = self.zfs.read(&["release", &self.to.tag(), &sent.full]);
            let _ = self.zfs.read(&["destroy", &sent.full]);
        }
    }

    /// Removes the snapshot of a backup that failed, unless a part of it has arrived: the next one needs it to go on. It also
    /// stays if the destination does not say, because its disk was taken away.
    fn forget_unless_begun(&self, to: &str, sent: &Existing) {
        match self.token(to) {
            Ok(None) => self.forget(sent),
            Err(failure) if has_line(&failure, "does not exist") => self.forget(sent),
            _ => {}
        }
    }

    /// Releases all holds for this destination except the one on its newest snapshot. Snapshots of earlier backups are
    /// destroyed, unless something needs them: the one that this increment started from and older ones, and those of backups
    /// to this destination that were killed.
    fn settle(&self, base: Option<&Existing>, sent: &Existing) -> Result<(), Failure> {
        let mut earlier = Vec::new();
        for mut one in snapshots_of(self.zfs, self.dataset)? {
            if one.guid == sent.guid || one.holds > 0 && !self.holds(&one.full)? {
                continue;
            }
            if one.holds > 0 {
                // An older snapshot was sent once more, by its name: the next increment still starts from the newer one.
                if one.txg > sent.txg {
                    return Ok(());
                }
                self.zfs.read(&["release", &self.to.tag(), &one.full])?;
                one.holds -= 1;
            }
            earlier.push(one);
        }
        let tag = self.top.tag();
        for one in earlier {
            // One that somebody gave another name is theirs.
            let is_ours = one.made_by.as_deref() == Some(MAKER) && is_named(one.name(), BACKUP);
            let is_past = base.is_some_and(|base| one.txg <= base.txg);
            let is_left = one.txg < sent.txg && one.made_for.as_deref() == Some(&tag);
            if is_ours && (is_past || is_left) && one.holds == 0 && !one.has_clones {
                self.zfs.read(&["destroy", &one.full])?;
            }
        }
        Ok(())
    }

    /// Says a line to people.
    fn tell(&self, line: &str, console: &mut Console) -> Result<(), Failure> {
        match self.args.json || console.is_quiet() {
            true => Ok(()),
            false => console.line(line),
        }
    }

    /// Says what became of the snapshot; `line` is for people.
    fn end(&self, line: &str, done: &Done, console: &mut Console) -> Result<(), Failure> {
        if !self.args.json {
            return self.tell(line, console);
        }
        let Done { sent, from, to, bytes } = done;
        let from = from.map(|base| &base.full);
        console.line(&json!({ "snapshot": sent.full, "from": from, "to": to, "bytes": bytes }).to_string())
    }
}

/// Removes the lines of an error that say how to continue an interrupted stream by hand, because the next backup continues
/// it.
fn without_token(failure: Failure) -> Failure {
    let Failure::Refused(mut lines) = failure else { return failure };
    let all = lines.len();
    lines
        .retain(|line| !line.contains("A resuming stream can be generated") && !line.contains("zfs send -t"));
    let is_resumable = lines.len() < all;
    let failure = Failure::Refused(lines);
    if is_resumable { failure.hint("the next backup goes on where this one stopped") } else { failure }
}

/// Whether one of the lines of a failure has these words in it.
fn has_line(failure: &Failure, words: &str) -> bool {
    matches!(failure, Failure::Refused(lines) if lines.iter().any(|line| line.contains(words)))
}

/// Whether a receive got no more of its stream.
fn is_cut(failure: &Failure) -> bool {
    *failure == Failure::Ended(1) || CUT.iter().any(|words| has_line(failure, words))
}

/// Advice: how `to` becomes a destination for increments from `base` again.
fn give_up(to: &str, base: &Existing) -> String {
    let base = base.name();
    format!(
        "nothing was changed; 'zfs rollback -r {to}@{base}' gives up what changed in '{to}' since, and the snapshots made \
         there; take holds on these away before ('zfs holds', 'zfs release')"
    )
}

/// Waits for a sender; its standard output was taken.
fn ended(sender: Child) -> Result<(), Failure> {
    let done = sender.wait_with_output().map_err(not_started)?;
    if done.status.success() { Ok(()) } else { Err(said(&done.stderr)) }
}
