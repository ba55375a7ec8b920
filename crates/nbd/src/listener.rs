//! A listening socket and its connected clients.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use front::{Address, StartError, UNIX_PATH_MAX};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::connection;
use crate::export::Export;
use crate::stream::Stream;

/// Clients of one export at a time: QEMU and nbdcopy use four to sixteen connections each.
const CLIENTS_MAX: usize = 32;
/// Pause after a failed accept, for example without free descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// Time limit for running requests at the end, because a device may not answer.
const LEAVING: Duration = Duration::from_secs(10);

enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Unix(listener) => Ok(Stream::Unix(listener.accept()?.0)),
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                rustix::net::sockopt::set_socket_keepalive(&stream, true)?;
                Ok(Stream::Tcp(stream))
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Unix(listener) => listener.as_fd(),
            Listener::Tcp(listener) => listener.as_fd(),
        }
    }
}

#[derive(Default)]
struct Clients {
    next: u64,
    streams: HashMap<u64, Stream>,
    /// The last client was refused.
    is_full: bool,
}

struct Shared {
    export: Arc<Export>,
    clients: Mutex<Clients>,
    /// A client left.
    left: Condvar,
    is_stopping: AtomicBool,
    /// Written to when no more clients are to be taken.
    wake: OwnedFd,
}

impl Shared {
    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An export that clients can connect to, until it is stopped or dropped.
pub struct Serving {
    shared: Arc<Shared>,
    address: Address,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// Listens for clients of `export`. A Unix socket is its owner's alone.
    ///
    /// # Errors
    /// Why not.
    pub fn start(export: Export, address: &Address) -> Result<Serving, StartError> {
        let system = |source: io::Error| match source.kind() {
            io::ErrorKind::AddrInUse => StartError::InUse(address.clone()),
            _ => StartError::System { address: address.clone(), source },
        };
        let (listener, address) = match address {
            Address::Unix(path) => (Listener::Unix(listen(path)?), address.clone()),
            Address::Tcp(wanted) => {
                let listener = TcpListener::bind(wanted).map_err(system)?;
                // Port 0 is a free one.
                let local = listener.local_addr().map_err(system)?;
                (Listener::Tcp(listener), Address::Tcp(local))
            }
        };
        let refused = |source: io::Error| StartError::System { address: address.clone(), source };
        let wake = eventfd(0, EventfdFlags::CLOEXEC).map_err(|errno| refused(errno.into()))?;
        let shared = Arc::new(Shared {
            export: Arc::new(export),
            clients: Mutex::default(),
            left: Condvar::new(),
            is_stopping: AtomicBool::new(false),
            wake,
        });
        let taker = shared.clone();
        let thread = std::thread::Builder::new().name("cenote-nbd-wait".into());
        let thread = thread.spawn(move || accept(&taker, &listener)).map_err(refused)?;
        Ok(Serving { shared, address, thread: Some(thread) })
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// What is exported.
    #[must_use]
    pub fn export(&self) -> &Export {
        &self.shared.export
    }

    /// The dataset has another name now.
    pub fn rename(&self, name: &str) {
        self.shared.export.rename(name);
    }

    /// Clients that are connected.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.shared.clients().streams.len()
    }

    /// Accepts no more clients, closes the connections, and waits for the running requests.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.shared.is_stopping.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.shared.wake, &1u64.to_ne_bytes());
        // A thread that panicked takes no clients either.
        let _ = thread.join();
        if let Address::Unix(path) = &self.address {
            let _ = fs::remove_file(path);
        }
        let mut clients = self.shared.clients();
        clients.streams.values().for_each(Stream::shut_down);
        let until = Instant::now() + LEAVING;
        while !clients.streams.is_empty() && Instant::now() < until {
            let waited = self.shared.left.wait_timeout(clients, LEAVING);
            clients = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.end();
    }
}

/// Listens at `path`, and replaces the socket of a dead program.
fn listen(path: &Path) -> Result<UnixListener, StartError> {
    let address = || Address::Unix(path.to_path_buf());
    let system = |source| StartError::System { address: address(), source };
    if path.as_os_str().len() > UNIX_PATH_MAX {
        return Err(StartError::PathTooLong(path.to_path_buf()));
    }
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => return Err(StartError::NoSocket(path.to_path_buf())),
        Ok(_) if UnixStream::connect(path).is_ok() => return Err(StartError::InUse(address())),
        Ok(_) => fs::remove_file(path).map_err(system)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(system(error)),
    }
    // Its mode is narrowed before the name is known: nobody else connects in between.
    let mut fresh = path.as_os_str().to_owned();
    fresh.push("~");
    let fresh = PathBuf::from(fresh);
    let _ = fs::remove_file(&fresh);
    let listener = UnixListener::bind(&fresh).map_err(system)?;
    let placed = fs::set_permissions(&fresh, fs::Permissions::from_mode(0o600))
        .and_then(|()| fs::rename(&fresh, path));
    placed.map_err(system)?;
    Ok(listener)
}

/// Takes clients until the export is stopped.
fn accept(shared: &Arc<Shared>, listener: &Listener) {
    loop {
        let mut fds = [PollFd::new(listener, PollFlags::IN), PollFd::new(&shared.wake, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                tracing::error!(%error, "cannot wait for NBD clients");
                return;
            }
        }
        if shared.is_stopping.load(Ordering::Acquire) {
            return;
        }
        if fds[0].revents().is_empty() {
            continue;
        }
        if let Err(error) = listener.accept().and_then(|stream| take(shared, stream)) {
            tracing::warn!(export = shared.export.name(), %error, "an NBD client was not taken");
            std::thread::sleep(PAUSE);
        }
    }
}

/// Serves a client in a thread of its own.
fn take(shared: &Arc<Shared>, stream: Stream) -> io::Result<()> {
    let copy = stream.try_clone()?;
    let id = {
        let mut clients = shared.clients();
        if clients.streams.len() >= CLIENTS_MAX {
            // One line, however many more come.
            if !std::mem::replace(&mut clients.is_full, true) {
                tracing::warn!(
                    export = shared.export.name(),
                    "{CLIENTS_MAX} NBD clients are connected: no more"
                );
            }
            return Ok(());
        }
        clients.is_full = false;
        clients.next += 1;
        let id = clients.next;
        clients.streams.insert(id, copy);
        id
    };
    let leaving = Leaving { shared: shared.clone(), id };
    let thread = std::thread::Builder::new().name("cenote-nbd-client".into());
    thread.spawn(move || {
        let leaving = leaving;
        connection::serve(&stream, &leaving.shared.export);
    })?;
    Ok(())
}

/// Takes a client off the list, however its thread ends.
struct Leaving {
    shared: Arc<Shared>,
    id: u64,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.shared.clients().streams.remove(&self.id);
        self.shared.left.notify_all();
    }
}
