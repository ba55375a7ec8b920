//! Reading the state of root's pool as another user of the machine: one question, one answer.
//!
//! From:   `cli` of a visitor: a user who may not use the socket by which root's commands reach the pool's server.
//! To:     the server's second socket, which answers fixed reading commands only (`serve::visitors`).
//! Why it is so: docs/decisions/0016-visitors.md.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, fchmod, fstat, open};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Runtime;

/// The name under which a server starts this program to answer one visitor.
pub const READER: &str = "cenote-visit";
/// Names another folder for the sockets for visitors; an empty value means none.
pub const VARIABLE: &str = "CENOTE_VISITORS_DIR";
/// Protocol version. It is increased with each incompatible change of a message.
pub const PROTOCOL: u32 = 1;
/// Maximal number of bytes of an answer on standard output, and also on standard error.
pub const OUTPUT_MAX: u64 = 8 << 20;
/// Maximal number of bytes of a question: some hundred names of datasets.
const QUESTION_MAX: u32 = 64 << 10;
/// Most bytes of the head of an answer: numbers, or one line.
const HEAD_MAX: u32 = 128 << 10;
/// Where the sockets are, one for each pool.
const USUAL: &str = "/run/cenote-visitors";
/// All users may list the folder and reach its sockets; only root may change it.
const FOLDER_MODE: u32 = 0o755;
/// Time limit of a visitor's wait for an answer. It is longer than the server's own limit.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a visitor repeats a question while the server is busy with others.
const BUSY: Duration = Duration::from_secs(5);
/// Between two such tries.
const RETRY: Duration = Duration::from_millis(50);

/// A command line, as a visitor asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// [`PROTOCOL`] of the visitor.
    pub protocol: u32,
    /// `zfs` or `zpool`.
    pub program: String,
    /// The words of the command line behind the name of the program.
    pub words: Vec<String>,
    /// `POSIXLY_CORRECT` was set: options end at the first operand.
    pub posix: bool,
}

/// The head of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The command ended. Its standard output and then its standard error follow, with these lengths in bytes.
    Done {
        /// Exit status.
        status: u8,
        /// Bytes of standard output.
        out: u64,
        /// Bytes of standard error.
        err: u64,
    },
    /// The server already answers the maximal number of visitors.
    Busy,
    /// The question is not answered; the line says why.
    Refused(String),
}

/// The output of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Printed {
    /// Exit status.
    pub status: u8,
    /// Standard output.
    pub out: Vec<u8>,
    /// Standard error.
    pub err: Vec<u8>,
}

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No process listens there.
    #[error("the server of the pool does not run")]
    Absent,
    /// Another user than root listens.
    #[error("'{}' is a socket of user {user}: nothing was sent to it", .path.display())]
    Stranger {
        /// The socket.
        path: PathBuf,
        /// Uid of the listener.
        user: u32,
    },
    /// The server ended, or its answer is invalid.
    #[error("the server of the pool does not answer: {0}")]
    Broken(#[from] io::Error),
    /// The server refuses.
    #[error("{0}")]
    Refused(String),
}

/// The folder of the sockets for visitors, if they are enabled.
#[must_use]
pub fn folder() -> Option<PathBuf> {
    match std::env::var_os(VARIABLE).map(PathBuf::from) {
        Some(folder) if folder.as_os_str().is_empty() => None,
        Some(folder) => Some(std::path::absolute(&folder).unwrap_or(folder)),
        None => Some(PathBuf::from(USUAL)),
    }
}

/// The folder in which a server of this user puts its socket for visitors. Only root's servers have one. With a runtime
/// folder of its own (`CENOTE_RUN_DIR`), a server has none unless [`VARIABLE`] names one.
#[must_use]
pub fn folder_of_server() -> Option<PathBuf> {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let usual = is_set(VARIABLE) || !is_set("CENOTE_RUN_DIR");
    folder().filter(|_| usual && rustix::process::geteuid().is_root())
}

/// The pools that have a socket for visitors, by name. A folder that others than root may change is passed over.
#[must_use]
pub fn shared() -> Vec<String> {
    let Some(folder) = folder() else { return Vec::new() };
    let is_trusted = |found: fs::Metadata| found.is_dir() && found.uid() == 0 && found.mode() & 0o022 == 0;
    if !fs::symlink_metadata(&folder).is_ok_and(is_trusted) {
        return Vec::new();
    }
    let Ok(entries) = fs::read_dir(&folder) else { return Vec::new() };
    let named = |entry: io::Result<fs::DirEntry>| {
        let file = entry.ok()?.file_name();
        let name = file.to_str()?.strip_suffix(".sock")?.to_owned();
        pool::props::names::check_pool(&name, false).is_ok().then_some(name)
    };
    let mut names: Vec<String> = entries.filter_map(named).collect();
    names.sort_unstable();
    names
}

/// The socket for visitors of `pool` in `folder`.
///
/// # Errors
/// No pool can have that name.
pub fn socket(folder: &Path, pool: &str) -> io::Result<PathBuf> {
    Runtime::new(folder.to_path_buf()).socket(pool)
}

/// Makes the folder of the sockets for visitors.
///
/// # Errors
/// It cannot be made, is a symbolic link, or belongs to another user.
pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(FOLDER_MODE).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = open(folder, flags, Mode::empty())?;
    let owner = fstat(&opened)?.st_uid;
    if owner != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other(format!("it belongs to user {owner}")));
    }
    // The umask may have removed permissions.
    Ok(fchmod(&opened, Mode::from_raw_mode(FOLDER_MODE))?)
}

/// Asks the server of `pool`.
///
/// # Errors
/// [`AskError`]: why there is no answer.
pub fn ask(pool: &str, question: &Question) -> Result<Printed, AskError> {
    let path = folder().and_then(|folder| socket(&folder, pool).ok()).ok_or(AskError::Absent)?;
    let asked = Instant::now();
    loop {
        match ask_once(&path, question)? {
            Some(printed) => return Ok(printed),
            None if asked.elapsed() > BUSY => {
                let line = "the server answers too many other users' commands now; try again later";
                return Err(AskError::Refused(line.to_owned()));
            }
            None => std::thread::sleep(RETRY),
        }
    }
}

/// Sends a question to a socket; `None` if the server is busy with others.
fn ask_once(path: &Path, question: &Question) -> Result<Option<Printed>, AskError> {
    let stream = UnixStream::connect(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => AskError::Absent,
        _ => AskError::Broken(error),
    })?;
    let user = rustix::net::sockopt::socket_peercred(&stream).map_err(io::Error::from)?.uid;
    if !user.is_root() {
        return Err(AskError::Stranger { path: path.to_path_buf(), user: user.as_raw() });
    }
    let mut stream = Timed::new(&stream, PATIENCE);
    // A server that is busy may have answered and closed the connection before it read anything.
    let sent = stream.send_question(question);
    match (stream.receive(HEAD_MAX), sent) {
        (Ok(Answer::Done { status, out, err }), _) => {
            Ok(Some(Printed { status, out: stream.receive_bytes(out)?, err: stream.receive_bytes(err)? }))
        }
        (Ok(Answer::Busy), _) => Ok(None),
        (Ok(Answer::Refused(line)), _) => Err(AskError::Refused(line)),
        (Err(_), Err(error)) | (Err(error), Ok(())) => Err(error.into()),
    }
}

/// A connection with a time limit for all its messages together.
pub(crate) struct Timed<'a> {
    stream: &'a UnixStream,
    until: Instant,
}

impl<'a> Timed<'a> {
    pub(crate) fn new(stream: &'a UnixStream, patience: Duration) -> Timed<'a> {
        Timed { stream, until: Instant::now() + patience }
    }

    /// The time that is left.
    fn left(&self) -> io::Result<Duration> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }

    fn send_question(&mut self, question: &Question) -> io::Result<()> {
        let body = serde_json::to_vec(question)?;
        if body.len() > QUESTION_MAX as usize {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the command line is too long"));
        }
        self.send_body(&body)
    }

    /// Sends the head of an answer.
    pub(crate) fn send(&mut self, answer: &Answer) -> io::Result<()> {
        let body = serde_json::to_vec(answer)?;
        self.send_body(&body)
    }

    fn send_body(&mut self, body: &[u8]) -> io::Result<()> {
        let length = u32::try_from(body.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.write_all(&length.to_le_bytes())?;
        self.write_all(body)
    }

    /// Receives a question. File descriptors that come with it are never taken.
    pub(crate) fn receive_question(&mut self) -> io::Result<Question> {
        self.receive(QUESTION_MAX)
    }

    fn receive<T: DeserializeOwned>(&mut self, length_max: u32) -> io::Result<T> {
        let mut header = [0; 4];
        self.read_exact(&mut header)?;
        let length = u32::from_le_bytes(header);
        if length > length_max {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the message is too long"));
        }
        let body = self.receive_bytes(length.into())?;
        Ok(serde_json::from_slice(&body)?)
    }

    /// Receives so many bytes, at most [`OUTPUT_MAX`].
    fn receive_bytes(&mut self, count: u64) -> io::Result<Vec<u8>> {
        if count > OUTPUT_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the message is too long"));
        }
        let mut bytes = Vec::new();
        Read::by_ref(self).take(count).read_to_end(&mut bytes)?;
        if (bytes.len() as u64) < count {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(bytes)
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        let mut stream = self.stream;
        stream.read(buf).map_err(late)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        let mut stream = self.stream;
        stream.write(buf).map_err(late)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket reports the end of its time limit as `EWOULDBLOCK`.
fn late(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(word: &str) -> Question {
        let words = vec!["list".to_owned(), word.to_owned()];
        Question { protocol: PROTOCOL, program: "zfs".into(), words, posix: false }
    }

    #[test]
    fn a_question_arrives_and_one_that_is_too_long_is_not_sent() {
        let (here, there) = UnixStream::pair().unwrap();
        let patience = Duration::from_secs(180);
        Timed::new(&here, patience).send_question(&question("tank")).unwrap();
        assert_eq!(Timed::new(&there, patience).receive_question().unwrap(), question("tank"));
        let long = Timed::new(&here, patience).send_question(&question(&"x".repeat(QUESTION_MAX as usize)));
        assert_eq!(long.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn garbage_and_long_messages_are_refused_before_they_take_memory() {
        let long = (QUESTION_MAX + 1).to_le_bytes();
        for bytes in
            [&b"\xff\xff\xff\xff"[..], &long, b"\x02\0\0\0{]", b"\x02\0\0\0[]", b"\x09\0\0\0{}", b"\x01"]
        {
            let (mut here, there) = UnixStream::pair().unwrap();
            here.write_all(bytes).unwrap();
            drop(here);
            let received = Timed::new(&there, Duration::from_secs(180)).receive_question();
            assert!(received.is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_message_that_comes_byte_by_byte_ends_when_its_time_is_over() {
        let (mut here, there) = UnixStream::pair().unwrap();
        let reading = std::thread::spawn(move || {
            Timed::new(&there, Duration::from_millis(200)).receive_question().map_err(|error| error.kind())
        });
        // Each byte arrives within the limit of one read. The writer stops when the reader is gone.
        here.write_all(&1000u32.to_le_bytes()).unwrap();
        while here.write_all(b" ").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(reading.join().unwrap(), Err(io::ErrorKind::TimedOut));
    }

    #[test]
    fn the_folder_is_for_all_to_read_and_a_link_in_its_place_is_refused() {
        let bed = tempfile::tempdir().unwrap();
        let folder = bed.path().join("visitors");
        make_folder(&folder).unwrap();
        make_folder(&folder).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o7777, FOLDER_MODE);
        assert!(socket(&folder, "tank").unwrap().ends_with("visitors/tank.sock"));
        assert!(socket(&folder, "../tank").is_err());
        let link = bed.path().join("link");
        std::os::unix::fs::symlink(&folder, &link).unwrap();
        assert!(make_folder(&link).is_err());
    }
}
