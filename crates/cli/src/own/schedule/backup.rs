//! `cenote backup`: copies a dataset into another pool, or into a folder of stream files, and later only what changed.
//!
//! From:   a dataset, or a snapshot of it.
//! To:     `zfs send` and `zfs receive -s`, or a [`Chain`]. The source keeps a hold on the snapshot that was sent last: the
//!         next increment starts there.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use pool::props::number::nice_bytes;
use serde_json::json;

use super::chain::{Chain, Link};
use super::existing::{Existing, datasets, snapshots_of};
use super::{BACKUP, MADE_BY, name_now};
use crate::around::Surroundings;
use crate::messages::Failure;
use crate::out::{Console, counted};
use crate::own::child::{Zfs, not_started, said};

/// Creator of a snapshot, from [`MADE_BY`].
const MAKER: &str = "backup";
/// Begins the tag of the hold on the snapshot that was sent last.
const TAG: &str = "cenote-backup:";
/// Longest tag of a hold, with room for the dataset's name.
const TAG_MAX: usize = 200;
/// What `zfs receive` says of a destination that is no longer what was sent to it.
const CHANGED: &str = "has been modified";
/// What `zfs receive` says of a pool without room.
const FULL: &str = "out of space";

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

/// Where a backup goes.
#[derive(Debug)]
enum Destination {
    Dataset(String),
    Folder(PathBuf),
}

impl Destination {
    fn of(word: &str) -> Destination {
        // No dataset's name ends in a slash.
        match word.starts_with(['/', '.']) || word.ends_with('/') {
            true => Destination::Folder(word.into()),
            false => Destination::Dataset(word.to_owned()),
        }
    }

    /// The place of a dataset below the source; `below` begins with a slash, or is empty.
    fn below(&self, below: &str) -> Destination {
        match self {
            Destination::Dataset(name) => Destination::Dataset(format!("{name}{below}")),
            Destination::Folder(path) => Destination::Folder(path.join(below.trim_start_matches('/'))),
        }
    }

    /// The tag of the hold in the source. One that is too long is cut, and told apart by a sum.
    fn tag(&self) -> String {
        let name = match self {
            Destination::Dataset(name) => name.clone(),
            // Another working folder must not make another destination of it.
            Destination::Folder(path) => {
                std::path::absolute(path).unwrap_or_else(|_| path.clone()).display().to_string()
            }
        };
        let tag = format!("{TAG}{name}");
        if tag.len() <= TAG_MAX {
            return tag;
        }
        let sum = tag.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
            (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        let cut = (0..=TAG_MAX).rev().find(|at| tag.is_char_boundary(*at)).unwrap_or(0);
        format!("{}~{sum:016x}", &tag[..cut])
    }
}

/// Carries out `backup`.
///
/// # Errors
/// The source is not there. One of several datasets that cannot be sent is complained about.
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
    expect_place(&zfs, top, &destination)?;
    let is_new = given.is_none();
    let name = match given {
        Some(name) => name,
        None => make(&zfs, top, args.recursive)?,
    };
    for (at, dataset) in datasets.iter().enumerate() {
        let to = destination.below(&dataset[top.len()..]);
        let one = One { args, zfs: &zfs, dataset, name: &name, is_new, to };
        let Err(failure) = one.run(console) else { continue };
        let left = datasets.len() - at - 1;
        match is_full(&failure) && left > 0 {
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

/// Refuses a destination below a dataset that does not exist, before a snapshot is made that nothing would remove.
fn expect_place(zfs: &Zfs, top: &str, destination: &Destination) -> Result<(), Failure> {
    let name = match destination {
        Destination::Dataset(name) => name,
        Destination::Folder(path) => return expect_folder_above(path),
    };
    let above = name.rsplit_once('/').map_or(name.as_str(), |(above, _)| above);
    match zfs.read(&["list", "-H", "-o", "name", above]) {
        Ok(_) => Ok(()),
        Err(_) => {
            let line = format!("cannot back up '{top}' to '{name}': there is no dataset '{above}'");
            Err(Failure::refused(line).hint("nothing was changed; import the pool of the destination first"))
        }
    }
}

/// Refuses a new folder in one that does not exist: where a disk is not mounted, the backup would fill another one.
fn expect_folder_above(path: &Path) -> Result<(), Failure> {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match whole.parent() {
        Some(above) if !whole.exists() && !above.is_dir() => {
            let line =
                format!("cannot back up to '{}': there is no folder '{}'", path.display(), above.display());
            Err(Failure::refused(line)
                .hint("nothing was changed; is its disk mounted? else make it with mkdir -p"))
        }
        _ => Ok(()),
    }
}

/// Makes the snapshot that is sent; gives its name behind the `@`.
fn make(zfs: &Zfs, top: &str, recursive: bool) -> Result<String, Failure> {
    let name = name_now(BACKUP);
    let (full, mark) = (format!("{top}@{name}"), format!("{MADE_BY}={MAKER}"));
    let mut words = vec!["snapshot", "-o", &mark];
    words.extend(recursive.then_some("-r"));
    words.push(&full);
    zfs.read(&words)?;
    Ok(name)
}

fn verify(folder: &Path, with_json: bool, console: &mut Console) -> Result<(), Failure> {
    let mut chains = Chain::open_all(folder)?;
    chains.retain(|chain| !chain.links.is_empty());
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
    let is_missing = |two: &[super::chain::Link]| two[1].from.is_some_and(|from| from != two[0].guid);
    if let Some(two) = chain.links.windows(2).find(|two| is_missing(two)) {
        let line = format!("the stream between '{}' and '{}' is missing", two[0].file, two[1].file);
        console.complain(Failure::refused(line))?;
    }
    Ok(())
}

/// A snapshot that is at its destination.
struct Done<'a> {
    sent: &'a Existing,
    /// What the increment started from; `None` for a full stream, and for what was there before.
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
        self.hold(sent)?;
        self.settle(base.as_ref(), sent)
    }

    /// Sends to another dataset; gives the snapshot that it started from.
    fn to_dataset(
        &self,
        to: &str,
        there: &[Existing],
        sent: &Existing,
        console: &mut Console,
    ) -> Result<Option<Existing>, Failure> {
        let is_there = self.zfs.read(&["list", "-H", "-o", "name", to]).is_ok();
        if is_there {
            let token = self.zfs.read(&["get", "-Hp", "-o", "value", "receive_resume_token", to])?;
            if let Some(token) = Some(token.trim()).filter(|token| token.len() > 1) {
                self.tell(&format!("{to}: going on with what was interrupted"), console)?;
                self.send(&["-t", token], to, &[]).map_err(|failure| {
                    failure.hint(format!("'zfs receive -A {to}' gives up what was received of it"))
                })?;
            }
        }
        let have = match is_there || self.zfs.read(&["list", "-H", "-o", "name", to]).is_ok() {
            true => snapshots_of(self.zfs, to)?,
            false => Vec::new(),
        };
        if have.iter().any(|one| one.guid == sent.guid) {
            let done = Done { sent, from: None, to: to.to_owned(), bytes: None };
            self.end(&format!("{}: {to} has it", sent.full), &done, console)?;
            return Ok(None);
        }
        let older = || there.iter().filter(|one| one.txg < sent.txg).rev();
        let base = older().find(|one| have.iter().any(|other| other.guid == one.guid)).cloned();
        if base.is_some() || !is_there {
            self.hold(sent)?;
        }
        match &base {
            Some(base) => {
                self.send(&["-I", &base.full, &sent.full], to, &[]).map_err(|failure| {
                    if !is_changed_there(&failure) {
                        return failure;
                    }
                    self.forget(sent);
                    failure.hint(give_up(to, base))
                })?;
            }
            None if is_there => {
                self.forget(sent);
                let line = format!("cannot back up '{}': '{to}' has no snapshot of it", self.dataset);
                return Err(Failure::refused(line)
                    .hint("nothing was changed; name a dataset that does not exist yet"));
            }
            None => self.send(&[&sent.full], to, &["-o", "readonly=on"])?,
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
        // The receiver's error is reported first: if it refuses, the sender's error is only a broken pipe.
        let sent = ended(sender);
        let received = received?;
        if !received.status.success() {
            return Err(match sent {
                Err(failure) if received.stderr.is_empty() => failure,
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

    /// Adds a stream to a folder; gives the snapshot that it started from.
    fn to_folder(
        &self,
        folder: &Path,
        there: &[Existing],
        sent: &Existing,
        console: &mut Console,
    ) -> Result<Option<Existing>, Failure> {
        let mut chain = Chain::open(folder, true)?;
        let last = chain.last().map(|link| link.guid);
        if last == Some(sent.guid) {
            let to = folder.display().to_string();
            let line = format!("{}: '{to}' has it", sent.full);
            self.end(&line, &Done { sent, from: None, to, bytes: None }, console)?;
            return Ok(None);
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
        if base.is_none() && last.is_some() {
            self.tell(
                &format!(
                    "{}: the snapshot that the folder has last is gone from the source: this stream is a full one",
                    self.dataset
                ),
                console,
            )?;
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
        let link = chain.add((&sent.full, sent.guid, from), stream, || ended(sender)).inspect_err(forget)?;
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
    fn hold(&self, one: &Existing) -> Result<(), Failure> {
        if !self.holds(&one.full)? {
            self.zfs.read(&["hold", &self.to.tag(), &one.full])?;
        }
        Ok(())
    }

    /// Removes the snapshot of a backup that failed and cannot go on.
    fn forget(&self, sent: &Existing) {
        if self.is_new {
            // If a snapshot cannot be removed, the next backup removes it.
            let _ = self.zfs.read(&["release", &self.to.tag(), &sent.full]);
            let _ = self.zfs.read(&["destroy", &sent.full]);
        }
    }

    /// Releases all holds for this destination except the one on its newest snapshot. Snapshots of earlier backups are
    /// destroyed, unless something needs them: the one that this increment started from, and older ones.
    fn settle(&self, base: Option<&Existing>, sent: &Existing) -> Result<(), Failure> {
        for one in snapshots_of(self.zfs, self.dataset)? {
            if one.guid != sent.guid && one.holds > 0 && self.holds(&one.full)? {
                self.zfs.read(&["release", &self.to.tag(), &one.full])?;
            }
        }
        let Some(base) = base else { return Ok(()) };
        for one in snapshots_of(self.zfs, self.dataset)? {
            let is_ours = one.made_by.as_deref() == Some(MAKER);
            if is_ours && one.txg <= base.txg && one.holds == 0 && !one.has_clones {
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

/// Without the commands that would go on by hand with a stream that was interrupted: the next backup does it.
fn without_token(failure: Failure) -> Failure {
    let Failure::Refused(mut lines) = failure else { return failure };
    let all = lines.len();
    lines
        .retain(|line| !line.contains("A resuming stream can be generated") && !line.contains("zfs send -t"));
    let is_resumable = lines.len() < all;
    let failure = Failure::Refused(lines);
    if is_resumable { failure.hint("the next backup goes on where this one stopped") } else { failure }
}

/// Whether the destination has no room.
fn is_full(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused(lines) if lines.iter().any(|line| line.contains(FULL)))
}

/// Whether an increment was refused because its destination has something of its own.
fn is_changed_there(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused(lines) if lines.iter().any(|line| line.contains(CHANGED)))
}

/// What makes `to` a destination for increments from `base` again.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slash_at_an_end_or_a_dot_in_front_makes_a_folder() {
        for (word, is_folder) in
            [("/a", true), ("./a", true), ("..", true), ("a/", true), ("tank/a", false), ("tank", false)]
        {
            assert_eq!(matches!(Destination::of(word), Destination::Folder(_)), is_folder, "{word}");
        }
        assert!(
            matches!(Destination::of("/a").below("/b/c"), Destination::Folder(path) if path == Path::new("/a/b/c"))
        );
        assert!(matches!(Destination::of("t/a").below(""), Destination::Dataset(name) if name == "t/a"));
    }

    #[test]
    fn tags_of_long_places_stay_short_and_different() {
        let long = |end: &str| Destination::of(&format!("/{}{end}", "ä".repeat(300))).tag();
        assert!(long("a").len() < 256 && long("a") != long("b"));
        assert_eq!(Destination::of("usb/home").tag(), "cenote-backup:usb/home");
    }
}
