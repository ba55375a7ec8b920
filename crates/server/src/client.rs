//! The client's end of a pool's socket.
//!
//! From:   `cli`, which wants a pool that another process holds.
//! To:     the server of that pool, if there is one.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use format::NvList;
use format::uberblock::Uberblock;
use front::Mounter;

use crate::elsewhere::{self, Listener};
use crate::error::ClientError;
use crate::messages::{Fresh, Job, PROTOCOL, Refusal, Reply, Request, Status, Stop};
use crate::runtime::Runtime;
use crate::{Counters, Figures, Silence, mountinfo, wire};

/// Time limit for a server's greeting.
const GREETING: Duration = Duration::from_secs(20);
/// How long the socket of a listening server may have no file.
const MOMENT: Duration = Duration::from_secs(1);
/// Pause before the next try while a server is ending.
const RETRY: Duration = Duration::from_millis(20);

/// A connection to the server of a pool. A lease lasts as long as it does.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    /// The pool that is served.
    pub guid: u64,
    /// The server's process.
    pub pid: u32,
}

/// Connects to the server of `pool`. `None` if there is none; then it also removes mounts of a dead server with `mounter`.
///
/// # Errors
/// Something listens there that cannot be used.
pub fn connect(runtime: &Runtime, pool: &str, mounter: &dyn Mounter) -> Result<Option<Client>, ClientError> {
    // No server has a pool with an invalid name.
    let Ok(path) = runtime.socket(pool) else { return Ok(None) };
    connect_at(path, pool, mounter)
}

/// As [`connect`], but also finds a server of another login of this user, whose socket is in another folder. It is found by
/// its lock on one of `devices`.
///
/// # Errors
/// As [`connect`]; [`ClientError::Unreachable`].
pub fn connect_anywhere(
    runtime: &Runtime,
    pool: &str,
    mounter: &dyn Mounter,
    devices: impl FnOnce() -> Vec<PathBuf>,
) -> Result<Option<Client>, ClientError> {
    let Ok(path) = runtime.socket(pool) else { return Ok(None) };
    if let Some(client) = connect_at(path.clone(), pool, mounter)? {
        return Ok(Some(client));
    }
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Ok(None) };
    let devices = devices();
    let asked = Instant::now();
    while let Some(Listener { pid, socket }) = elsewhere::listener(&devices, name) {
        let client = connect_at(socket.clone(), pool, mounter)?;
        if client.is_some() || socket.exists() {
            return Ok(client);
        }
        // The socket of a server that starts or ends has no file for a moment.
        if asked.elapsed() >= MOMENT {
            return Err(ClientError::Unreachable { pid, path: socket });
        }
        std::thread::sleep(RETRY);
    }
    Ok(None)
}

fn connect_at(path: PathBuf, pool: &str, mounter: &dyn Mounter) -> Result<Option<Client>, ClientError> {
    let asked = Instant::now();
    loop {
        let stream = match UnixStream::connect(&path) {
            Ok(stream) => stream,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                clean_mounts(pool, mounter);
                return Ok(None);
            }
            Err(source) => return Err(ClientError::Socket { path, source }),
        };
        let user = rustix::net::sockopt::socket_peercred(&stream).map_err(io::Error::from)?.uid;
        if !user.is_root() && user != rustix::process::geteuid() {
            return Err(ClientError::Stranger { path, user: user.as_raw() });
        }
        match greet(stream) {
            // It is just ending. The next try finds no server, or its successor.
            Err(ClientError::Broken(error)) if hung_up(&error) && asked.elapsed() < GREETING => {
                std::thread::sleep(RETRY);
            }
            greeted => return greeted.map(Some),
        }
    }
}

/// Whether the other side closed the connection.
fn hung_up(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), ConnectionReset | BrokenPipe | UnexpectedEof)
}

fn greet(stream: UnixStream) -> Result<Client, ClientError> {
    stream.set_read_timeout(Some(GREETING))?;
    let (guid, pid, build, protocol) = match ask(&stream, &Request::Hello { protocol: PROTOCOL }, &[])? {
        Reply::Hello { protocol, build, guid, pid } => (guid, pid, build, protocol),
        other => return Err(unexpected(other)),
    };
    if protocol != PROTOCOL {
        return Err(ClientError::OtherBuild { build, pid });
    }
    stream.set_read_timeout(None)?;
    Ok(Client { stream, guid, pid })
}

fn ask(stream: &UnixStream, request: &Request, fds: &[BorrowedFd<'_>]) -> Result<Reply, ClientError> {
    wire::send(stream, request, fds)?;
    match wire::receive(stream)? {
        Some((reply, _)) => Ok(reply),
        None => Err(ClientError::Broken(io::ErrorKind::UnexpectedEof.into())),
    }
}

fn unexpected(reply: Reply) -> ClientError {
    match reply {
        Reply::Refused(refusal) => ClientError::Refused(refusal),
        other => ClientError::Broken(io::Error::new(io::ErrorKind::InvalidData, format!("{other:?}"))),
    }
}

impl Client {
    /// Runs a command line in the server; `stdio` are its standard input, output and error. Returns the exit status.
    ///
    /// # Errors
    /// The server refuses, or goes away meanwhile.
    pub fn run(&self, job: Job, stdio: [BorrowedFd<'_>; 3]) -> Result<u8, ClientError> {
        match ask(&self.stream, &Request::Run(job), &stdio)? {
            Reply::Done { status } => Ok(status),
            other => Err(unexpected(other)),
        }
    }

    /// A handle with which a running command can be asked to stop.
    ///
    /// # Errors
    /// The system refuses another descriptor.
    pub fn stopper(&self) -> io::Result<Stopper> {
        self.stream.try_clone().map(Stopper)
    }

    /// Requests a lease: a state of the pool that stays on the disks while this connection exists.
    ///
    /// # Errors
    /// The server refuses, or goes away.
    pub fn lease(&self, fresh: Fresh) -> Result<Uberblock, ClientError> {
        match ask(&self.stream, &Request::Lease { fresh }, &[])? {
            Reply::Lease { uberblock } => Uberblock::decode(&uberblock)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.to_string()).into()),
            other => Err(unexpected(other)),
        }
    }

    /// Asks the server for its status.
    ///
    /// # Errors
    /// It goes away.
    pub fn status(&self) -> Result<Status, ClientError> {
        match ask(&self.stream, &Request::Status, &[])? {
            Reply::Status(status) => Ok(status),
            other => Err(unexpected(other)),
        }
    }

    /// Which devices of the pool do not answer at this moment. The server knows within about a second.
    ///
    /// # Errors
    /// The server refuses, or goes away.
    pub fn silent_devices(&self) -> Result<Vec<Silence>, ClientError> {
        match ask(&self.stream, &Request::Devices, &[])? {
            Reply::Devices(silent) => Ok(silent),
            other => Err(unexpected(other)),
        }
    }

    /// From now on an answer that takes longer than `patience` is an error.
    ///
    /// # Errors
    /// The system refuses.
    pub fn set_patience(&self, patience: Duration) -> Result<(), ClientError> {
        Ok(self.stream.set_read_timeout(Some(patience))?)
    }

    /// Facts about the pool that only the server knows.
    ///
    /// # Errors
    /// The server refuses, or goes away.
    pub fn figures(&self) -> Result<Figures, ClientError> {
        match ask(&self.stream, &Request::Figures, &[])? {
            Reply::Figures(figures) => Ok(*figures),
            other => Err(unexpected(other)),
        }
    }

    /// Counters of the requests to the pool's devices since the import.
    ///
    /// # Errors
    /// The server refuses, or goes away.
    pub fn counters(&self) -> Result<Counters, ClientError> {
        match ask(&self.stream, &Request::Counters, &[])? {
            Reply::Counters(counters) => Ok(counters),
            other => Err(unexpected(other)),
        }
    }

    /// Events since the import, oldest first, and the number of dropped events. With `clear`, drops all events and returns
    /// their number.
    ///
    /// # Errors
    /// The server refuses, or goes away.
    pub fn events(&self, clear: bool) -> Result<(Vec<NvList>, u64), ClientError> {
        match ask(&self.stream, &Request::Events { clear }, &[])? {
            Reply::Events { events, gone } => {
                let read = |raw: Vec<u8>| NvList::decode(&raw);
                let events = events.into_iter().map(read).collect::<Result<_, _>>().map_err(|error| {
                    ClientError::from(io::Error::new(io::ErrorKind::InvalidData, error.to_string()))
                })?;
                Ok((events, gone))
            }
            other => Err(unexpected(other)),
        }
    }

    /// Ends the server and waits until it has closed the pool's devices.
    ///
    /// # Errors
    /// [`Refusal::Busy`] and similar errors; the server continues.
    pub fn stop(self, stop: Stop) -> Result<(), ClientError> {
        match ask(&self.stream, &Request::Stop(stop), &[])? {
            Reply::Stopped => {
                // The server closes this connection after all other resources.
                let _ = wire::receive::<Reply>(&self.stream);
                Ok(())
            }
            other => Err(unexpected(other)),
        }
    }
}

/// Asks a running command to stop.
#[derive(Debug)]
pub struct Stopper(UnixStream);

impl Stopper {
    /// Requests the stop. The command ends properly and its status arrives as usual.
    pub fn stop(&self) {
        // If the connection is gone, so is the command.
        let _ = self.0.shutdown(std::net::Shutdown::Write);
    }
}

/// Unmounts the mounts of `pool` that this user made and whose server is dead. Returns their places.
pub fn clean_mounts(pool: &str, mounter: &dyn Mounter) -> Vec<PathBuf> {
    let of_pool = |dataset: &str| dataset.split('/').next() == Some(pool);
    let mut mounts = mountinfo::of_this_user().unwrap_or_default();
    mounts.retain(|mount| of_pool(&mount.dataset));
    let mut cleaned = Vec::new();
    // The topmost mounts come first, because a place below a dead mount is not accessible.
    for mount in mounts.iter().rev() {
        match mounter.detach_dead(&mount.point, mount.id) {
            Ok(true) => cleaned.push(mount.point.clone()),
            Ok(false) => {}
            Err(error) => tracing::warn!(point = %mount.point.display(), %error, "a dead mount stays"),
        }
    }
    cleaned
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> io::Error {
        io::Error::other(refusal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_server_that_dies_during_the_greeting_counts_as_absent() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = Runtime::new(folder.path().join("run"));
        runtime.create().unwrap();
        let listener = UnixListener::bind(runtime.socket("nobodys-pool").unwrap()).unwrap();
        let dying = std::thread::spawn(move || {
            // The greeting was sent and is never read, so the client's connection is reset.
            let (stream, _) = listener.accept().unwrap();
            std::thread::sleep(Duration::from_millis(50));
            drop((stream, listener));
        });
        assert!(connect(&runtime, "nobodys-pool", &fuse::Fuse).unwrap().is_none());
        dying.join().unwrap();
    }

    #[test]
    fn the_client_sends_nothing_to_a_socket_of_another_user() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can become somebody else");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let runtime = Runtime::new(folder.path().to_path_buf());
        let script = r#"$| = 1; $s = IO::Socket::UNIX->new(Local => $ARGV[0], Listen => 1) or die $!;
            print "ready\n"; $c = $s->accept; $n = sysread($c, $byte, 1); print "$n\n""#;
        let mut stranger = std::process::Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .args(["perl", "-MIO::Socket::UNIX", "-e", script])
            .arg(runtime.socket("tank").unwrap())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = std::io::BufReader::new(stranger.stdout.take().unwrap());
        let mut line = String::new();
        std::io::BufRead::read_line(&mut said, &mut line).unwrap();
        let error = connect(&runtime, "tank", &fuse::Fuse).unwrap_err();
        assert!(matches!(error, ClientError::Stranger { user: 65534, .. }), "{error}");
        std::io::Read::read_to_string(&mut said, &mut line).unwrap();
        assert_eq!(line, "ready\n0\n", "it got something");
        stranger.wait().unwrap();
    }
}
