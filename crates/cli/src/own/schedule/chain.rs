//! A backup in a folder: a chain of stream files, each with a note beside it.
//!
//! `0001-NAME.zfs-stream` is a full stream, `0002-NAME.zfs-stream` an increment from its snapshot, and so on.
//! `0001-NAME.json` says what is in it. A file gets its name when it is whole, on disk, and was read back with the checksum
//! that it was written with; the note comes last. So a stream without a note does not count: the next backup puts it aside.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::messages::{Failure, io_words};

/// Bytes that are copied at once.
const PIECE: usize = 1 << 20;
/// The end of the name of a stream.
const STREAM: &str = "zfs-stream";
/// The end of the name of a stream that is being written.
const PARTIAL: &str = "partial";
/// What is appended to the name of a stream that has no note, so that nobody receives it with the others.
const ASIDE: &str = "without-note";

/// One stream of a chain, as its note has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub number: u64,
    /// `dataset@name`.
    pub snapshot: String,
    pub guid: u64,
    /// The guid of the snapshot that an increment starts from.
    pub from: Option<u64>,
    pub bytes: u64,
    pub sha256: String,
    /// The name of the stream in the folder.
    pub file: String,
    /// Whether blocks are in it as they are, encrypted; unknown in notes of older versions.
    pub raw: Option<bool>,
}

/// What is added to a chain.
#[derive(Debug)]
pub(super) struct New<'a> {
    /// `dataset@name`.
    pub snapshot: &'a str,
    pub guid: u64,
    /// The guid of the snapshot that an increment starts from.
    pub from: Option<u64>,
    pub raw: bool,
}

impl Link {
    fn read(text: &str) -> Option<Link> {
        let note: Value = serde_json::from_str(text).ok()?;
        let word = |key: &str| note[key].as_str().map(str::to_owned);
        // A guid is a string: many readers of JSON keep no whole number of 64 bits.
        let guid = |key: &str| note[key].as_str().and_then(|guid| guid.parse().ok());
        Some(Link {
            number: note["number"].as_u64()?,
            snapshot: word("snapshot")?,
            guid: guid("guid")?,
            from: guid("from"),
            bytes: note["bytes"].as_u64()?,
            sha256: word("sha256")?,
            // A note that names a file in another folder was not written by this program.
            file: word("file").filter(|file| !file.contains('/'))?,
            raw: note["raw"].as_bool(),
        })
    }

    /// The dataset that it is a stream of, under the name that the dataset had.
    pub(super) fn dataset(&self) -> &str {
        self.snapshot.split_once('@').map_or(self.snapshot.as_str(), |(dataset, _)| dataset)
    }

    fn note(&self) -> String {
        let from = self.from.map(|guid| guid.to_string());
        let note = json!({ "schema": 1, "number": self.number, "snapshot": self.snapshot, "guid": self.guid.to_string(),
            "from": from, "bytes": self.bytes, "sha256": self.sha256, "file": self.file, "raw": self.raw });
        format!("{note:#}\n")
    }
}

/// A folder with a chain.
#[derive(Debug)]
pub(super) struct Chain {
    folder: PathBuf,
    pub links: Vec<Link>,
    /// Names of streams that have no note. They are none of the chain's.
    pub strays: Vec<String>,
    /// The folder, locked against another backup that would write into it.
    _lock: Option<File>,
}

impl Chain {
    /// The chain in a folder. With `make` it is for writing: the folder is made if it is missing, what a killed backup left
    /// unfinished in it is removed, and streams behind the last note are put aside under another name.
    ///
    /// # Errors
    /// The folder cannot be made or read, another backup writes into it, or a note in it cannot be understood.
    pub(super) fn open(folder: &Path, make: bool) -> Result<Chain, Failure> {
        let failed = |error: io::Error| about("open", folder, &error);
        let mut lock = None;
        if make {
            fs::create_dir_all(folder).map_err(failed)?;
            lock = locked(folder).map_err(failed)?;
        }
        let mut links: Vec<Link> = Vec::new();
        let mut strays: Vec<String> = Vec::new();
        for entry in fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            // Nothing else writes here, so a backup that was killed left it.
            if lock.is_some() && is_unfinished(&path) {
                fs::remove_file(&path).map_err(|error| about("remove", &path, &error))?;
            }
            let ending = path.extension().unwrap_or_default();
            if ending == STREAM {
                strays.extend(path.file_name().and_then(|name| name.to_str()).map(str::to_owned));
            }
            if ending != "json" {
                continue;
            }
            let text = fs::read_to_string(&path).map_err(|error| about("read", &path, &error))?;
            let link = Link::read(&text);
            links.push(link.ok_or_else(|| {
                Failure::refused(format!("'{}' is not a note of a backup", path.display()))
            })?);
        }
        links.sort_by_key(|link| link.number);
        let is_broken = links.windows(2).any(|two| two[0].number == two[1].number);
        if is_broken {
            return Err(Failure::refused(format!("two streams in '{}' have one number", folder.display())));
        }
        strays.retain(|name| links.iter().all(|link| link.file != *name));
        strays.sort();
        if lock.is_some() {
            let last = links.last().map_or(0, |link| link.number);
            for name in strays.iter().filter(|name| number_of(name).is_some_and(|number| number > last)) {
                let path = folder.join(name);
                fs::rename(&path, folder.join(format!("{name}.{ASIDE}")))
                    .map_err(|error| about("rename", &path, &error))?;
            }
        }
        Ok(Chain { folder: folder.to_owned(), links, strays, _lock: lock })
    }

    /// Why nothing can be received from the last full stream on: one of the streams is missing or has another length. Their
    /// contents are not read here.
    pub(super) fn gap(&self) -> Option<String> {
        let start = self.links.iter().rposition(|link| link.from.is_none()).unwrap_or(0);
        let links = &self.links[start..];
        let lost = links.iter().find(|link| {
            !fs::metadata(self.folder.join(&link.file)).is_ok_and(|file| file.len() == link.bytes)
        });
        match lost {
            Some(link) => Some(format!("'{}' is missing or has another length", link.file)),
            None => missing(links),
        }
    }

    /// Which stream is missing between the others, if one is.
    pub(super) fn missing(&self) -> Option<String> {
        missing(&self.links)
    }

    /// The chains in a folder and in the folders below it, where a recursive backup has those of the datasets below.
    ///
    /// # Errors
    /// As [`Chain::open`].
    pub(super) fn open_all(top: &Path) -> Result<Vec<Chain>, Failure> {
        let mut chains = Vec::new();
        let mut folders = vec![top.to_owned()];
        while let Some(folder) = folders.pop() {
            let failed = |error: io::Error| about("open", &folder, &error);
            for entry in fs::read_dir(&folder).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                // A link could lead in a circle.
                if entry.file_type().map_err(failed)?.is_dir() {
                    folders.push(entry.path());
                }
            }
            chains.push(Chain::open(&folder, false)?);
        }
        chains.sort_by(|one, other| one.folder.cmp(&other.folder));
        Ok(chains)
    }

    /// The name of a stream below the folder `top`.
    pub(super) fn shown(&self, link: &Link, top: &Path) -> String {
        let folder = self.folder.strip_prefix(top).unwrap_or(&self.folder);
        folder.join(&link.file).display().to_string()
    }

    pub(super) fn last(&self) -> Option<&Link> {
        self.links.last()
    }

    /// Keeps a stream: writes it, has it on disk, reads it back, and notes it. `source` is read to its end and closed;
    /// `ended` says then whether its sender was content.
    ///
    /// # Errors
    /// The read or write that failed. The chain is as it was.
    pub(super) fn add(
        &mut self,
        new: &New,
        mut source: impl Read,
        ended: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<&Link, Failure> {
        let number = self.last().map_or(1, |link| link.number + 1);
        let name = new.snapshot.split_once('@').map_or(new.snapshot, |(_, name)| name);
        let file = format!("{number:04}-{name}.{STREAM}");
        let partial = self.folder.join(format!("{file}.{PARTIAL}"));
        let written = write(&mut source, &partial).map_err(|error| about("write", &partial, &error));
        // The pipe is closed, so that a sender with more data ends instead of waiting forever.
        drop(source);
        let ended = ended();
        let checked =
            written.and_then(|whole| ended.map(|()| whole)).and_then(|(bytes, sum)| {
                match summed(&partial).map_err(|error| about("read", &partial, &error))? {
                    (again, _) if again == sum => Ok((bytes, sum)),
                    _ => {
                        Err(Failure::refused(format!("'{}' reads back as something else", partial.display())))
                    }
                }
            });
        let (bytes, sha256) = checked.inspect_err(|_| {
            // The rest of the file would only take space.
            let _ = fs::remove_file(&partial);
        })?;
        let New { guid, from, raw, .. } = *new;
        let link = Link {
            number,
            snapshot: new.snapshot.to_owned(),
            guid,
            from,
            bytes,
            sha256,
            file,
            raw: Some(raw),
        };
        self.put(&partial, &link).map_err(|error| about("write", &self.folder, &error))?;
        self.links.push(link);
        Ok(&self.links[self.links.len() - 1])
    }

    /// Gives a stream its name, then writes its note; each is on disk before the next step.
    fn put(&self, partial: &Path, link: &Link) -> io::Result<()> {
        let sync_folder = || File::open(&self.folder)?.sync_all();
        fs::rename(partial, self.folder.join(&link.file))?;
        sync_folder()?;
        let note = self.folder.join(&link.file).with_extension("json");
        let unfinished = note.with_extension(PARTIAL);
        let mut out = File::create(&unfinished)?;
        out.write_all(link.note().as_bytes())?;
        out.sync_all()?;
        fs::rename(&unfinished, &note)?;
        sync_folder()
    }

    /// Reads a stream of the chain again.
    ///
    /// # Errors
    /// It cannot be read, or is not what it was.
    pub(super) fn verify(&self, link: &Link) -> Result<(), Failure> {
        let path = self.folder.join(&link.file);
        let (sum, bytes) = summed(&path).map_err(|error| about("read", &path, &error))?;
        match sum == link.sha256 && bytes == link.bytes {
            true => Ok(()),
            false => {
                Err(Failure::refused(format!("'{}' is not what was written: it is damaged", path.display())))
            }
        }
    }
}

/// Which stream is missing: in front of an increment that comes first, or between two.
fn missing(links: &[Link]) -> Option<String> {
    if let Some(first) = links.first().filter(|first| first.from.is_some()) {
        return Some(format!("the stream before '{}' is missing", first.file));
    }
    let two = links.windows(2).find(|two| two[1].from.is_some_and(|from| from != two[0].guid))?;
    Some(format!("the stream between '{}' and '{}' is missing", two[0].file, two[1].file))
}

/// The number that the name of a stream begins with, if it is a name that [`Chain::add`] gives.
fn number_of(name: &str) -> Option<u64> {
    let (number, _) = name.split_once('-')?;
    number.parse().ok().filter(|_| number.len() >= 4)
}

/// Locks a folder for writing; `None` on a file system that has no locks.
fn locked(folder: &Path) -> io::Result<Option<File>> {
    let file = File::open(folder)?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(io::Error::other("another backup writes into it")),
        Err(_) => Ok(None),
    }
}

/// Whether it is a stream or a note that did not become whole, by the names that [`Chain::add`] gives them.
fn is_unfinished(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return false };
    let (number, rest) = name.split_once('-').unwrap_or_default();
    let is_ours = number.len() >= 4 && number.bytes().all(|byte| byte.is_ascii_digit());
    is_ours && rest.ends_with(&format!(".{PARTIAL}")) && !path.is_dir()
}

fn about(verb: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::refused(format!("cannot {verb} '{}': {}", path.display(), io_words(error)))
}

/// Writes a file and syncs it to disk. Returns its length and its SHA-256.
fn write(source: &mut dyn Read, path: &Path) -> io::Result<(u64, String)> {
    let mut out = File::create(path)?;
    let done = copy(source, |piece| out.write_all(piece))?;
    out.sync_all()?;
    Ok(done)
}

/// The SHA-256 and the length of a file.
fn summed(path: &Path) -> io::Result<(String, u64)> {
    let (bytes, sum) = copy(&mut File::open(path)?, |_| Ok(()))?;
    Ok((sum, bytes))
}

fn copy(source: &mut dyn Read, mut put: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<(u64, String)> {
    let mut sum = Sha256::new();
    let mut piece = vec![0; PIECE];
    let mut bytes = 0;
    loop {
        let len = match source.read(&mut piece) {
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        sum.update(&piece[..len]);
        put(&piece[..len])?;
        bytes += len as u64;
    }
    let hex = sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((bytes, hex))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(guid: u64, from: Option<u64>) -> New<'static> {
        New { snapshot: "t@x", guid, from, raw: false }
    }

    fn add(chain: &mut Chain, name: &str, bytes: &[u8], from: Option<u64>) -> Result<(), Failure> {
        let snapshot = format!("t@{name}");
        chain.add(&New { snapshot: &snapshot, ..new(1 << 63, from) }, bytes, || Ok(())).map(drop)
    }

    #[test]
    fn a_chain_is_found_again_and_its_damage_is_seen() {
        let folder = tempfile::tempdir().expect("made");
        let mut chain = Chain::open(&folder.path().join("new"), true).expect("opened");
        add(&mut chain, "a", b"full", None).expect("added");
        add(&mut chain, "b", b"more", Some(1 << 63)).expect("added");
        let again = Chain::open(&folder.path().join("new"), false).expect("opened");
        assert_eq!(again.links, chain.links);
        assert_eq!((again.links[1].number, again.links[1].from), (2, Some(1 << 63)));
        assert_eq!(again.links.iter().map(|link| again.verify(link)).collect::<Vec<_>>(), [Ok(()), Ok(())]);
        fs::write(again.folder.join(&again.links[1].file), "mare").expect("written");
        assert!(again.verify(&again.links[1]).is_err());
    }

    #[test]
    fn a_chain_without_one_of_its_streams_or_notes_is_not_whole() {
        let whole = || {
            let folder = tempfile::tempdir().expect("made");
            let mut chain = Chain::open(folder.path(), true).expect("opened");
            let links = [("a", 1, None), ("b", 2, Some(1)), ("c", 3, Some(2))];
            for (name, guid, from) in links {
                let snapshot = format!("t@{name}");
                let new = New { snapshot: &snapshot, ..new(guid, from) };
                chain.add(&new, name.as_bytes(), || Ok(())).map(drop).expect("added");
            }
            assert_eq!((chain.gap(), chain.missing(), chain.strays), (None, None, vec![]));
            folder
        };
        for (at, name) in ["0001-a", "0002-b", "0003-c"].iter().enumerate() {
            let (stream, note) = (format!("{name}.{STREAM}"), format!("{name}.json"));
            // The stream alone is gone.
            let folder = whole();
            fs::remove_file(folder.path().join(&stream)).expect("removed");
            let chain = Chain::open(folder.path(), true).expect("opened");
            assert!(chain.gap().is_some_and(|why| why.contains(&stream)), "{name}");
            // The note alone is gone: the last stream is put aside, and what is left is whole.
            let folder = whole();
            fs::remove_file(folder.path().join(&note)).expect("removed");
            let chain = Chain::open(folder.path(), false).expect("opened");
            assert_eq!(
                (chain.strays.as_slice(), chain.missing().is_some()),
                ([stream.clone()].as_slice(), at < 2)
            );
            let chain = Chain::open(folder.path(), true).expect("opened");
            assert_eq!((chain.gap().is_some(), folder.path().join(&stream).exists()), (at < 2, at < 2));
            let aside = folder.path().join(format!("{stream}.{ASIDE}"));
            assert_eq!(aside.exists(), at == 2);
            // Both are gone.
            let folder = whole();
            for file in [&stream, &note] {
                fs::remove_file(folder.path().join(file)).expect("removed");
            }
            let chain = Chain::open(folder.path(), true).expect("opened");
            assert_eq!((chain.missing().is_some(), chain.gap().is_some()), (at < 2, at < 2), "{name}");
        }
    }

    #[test]
    fn a_new_full_stream_makes_a_chain_whole_again() {
        let folder = tempfile::tempdir().expect("made");
        let mut chain = Chain::open(folder.path(), true).expect("opened");
        for (guid, from) in [(1, None), (2, Some(1)), (3, None), (4, Some(3))] {
            chain.add(&new(guid, from), b"x".as_slice(), || Ok(())).map(drop).expect("added");
        }
        fs::remove_file(folder.path().join("0002-x.json")).expect("removed");
        fs::remove_file(folder.path().join("0001-x.zfs-stream")).expect("removed");
        assert_eq!(Chain::open(folder.path(), false).expect("opened").gap(), None);
    }

    #[test]
    fn what_a_killed_backup_left_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().expect("made");
        let names =
            ["0001-a.zfs-stream.partial", "0001-a.partial", "a.partial", "0001-a.zfs-stream", "x-a.partial"];
        names.iter().for_each(|name| fs::write(folder.path().join(name), "half").expect("written"));
        let chain = Chain::open(folder.path(), true).expect("opened");
        let left: Vec<bool> = names.iter().map(|name| folder.path().join(name).exists()).collect();
        assert_eq!(left, [false, false, true, false, true]);
        // A whole stream that has no note yet is kept under another name.
        assert!(folder.path().join(format!("{}.{ASIDE}", names[3])).exists());
        let Err(Failure::Refused(lines)) = Chain::open(folder.path(), true) else { panic!("opened twice") };
        assert!(lines[0].contains("another backup writes into it"), "{lines:?}");
        drop(chain);
        Chain::open(folder.path(), true).expect("opened again");
    }

    #[test]
    fn a_sender_that_fails_leaves_the_chain_as_it_was() {
        let folder = tempfile::tempdir().expect("made");
        let mut chain = Chain::open(folder.path(), true).expect("opened");
        let ended = || Err(Failure::refused("it broke"));
        let done = chain.add(&new(1, None), b"half".as_slice(), ended).map(drop);
        assert_eq!(done, Err(Failure::refused("it broke")));
        assert_eq!(fs::read_dir(folder.path()).expect("read").count(), 0);
        add(&mut chain, "a", b"whole", None).expect("added");
        assert_eq!(chain.links[0].file, "0001-a.zfs-stream");
    }

    #[test]
    fn an_invalid_note_is_refused_by_name() {
        for text in [
            "",
            "{}",
            "[1]",
            "{\"number\":1,\"snapshot\":\"t@a\",\"guid\":\"1\",\"bytes\":1,\"sha256\":\"\",\"file\":\"../x\"}",
        ] {
            let folder = tempfile::tempdir().expect("made");
            fs::write(folder.path().join("0001-a.json"), text).expect("written");
            let Err(Failure::Refused(lines)) = Chain::open(folder.path(), false) else { panic!("{text}") };
            assert!(lines[0].contains("0001-a.json"), "{lines:?}");
        }
    }
}
