//! A port, its clients, and the exports that they may use.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use front::{Address, StartError};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::activity::Activity;
use crate::connection::{self, Connection};
use crate::export::Export;
use crate::table::Table;

/// The port of NFS.
pub const PORT: u16 = 2049;
/// Connections of all clients together. Each takes a thread, and at most 2 MiB for a message and its answer.
const CLIENTS_MAX: usize = 64;
/// Connections from one address other than loopback.
const CLIENTS_OF_ONE_MAX: usize = 32;
/// Connections of clients that no export is for. They are served so that they are told why.
const UNWELCOME_MAX: usize = 8;
/// When there are too many connections, one that is idle for at least this long makes room for a new one.
const YIELDS_AFTER: Duration = Duration::from_secs(5);
/// Pause after a client could not be accepted, for example because there are no more descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// Time between two searches for file systems that no client uses.
const GLANCE: Timespec = Timespec { tv_sec: 15, tv_nsec: 0 };
/// How long the end of a port waits for calls under way. A device may not answer them.
const LEAVING: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Clients {
    next: u64,
    connected: HashMap<u64, Connected>,
    /// The last client was refused.
    is_full: bool,
}

struct Connected {
    client: SocketAddr,
    stream: TcpStream,
    is_welcome: bool,
    activity: Arc<Activity>,
}

impl Clients {
    /// Whether one more client may connect. If there are too many, the one that is idle for the longest time is cut off: it
    /// connects again when it needs to.
    fn make_room(&mut self, client: SocketAddr, is_welcome: bool) -> bool {
        let of_one = self.connected.values().filter(|other| other.client.ip() == client.ip()).count();
        let unwelcome = self.connected.values().filter(|other| !other.is_welcome).count();
        if !client.ip().is_loopback() && of_one >= CLIENTS_OF_ONE_MAX
            || !is_welcome && unwelcome >= UNWELCOME_MAX
        {
            return false;
        }
        if self.connected.len() < CLIENTS_MAX {
            return true;
        }
        let idle = self.connected.iter().filter_map(|(id, other)| Some((*id, other.activity.idle()?)));
        let Some((id, _)) = idle.filter(|(_, idle)| *idle >= YIELDS_AFTER).max_by_key(|(_, idle)| *idle)
        else {
            return false;
        };
        if let Some(other) = self.connected.remove(&id) {
            // A connection that ended by itself makes room, too.
            let _ = other.stream.shutdown(Shutdown::Both);
        }
        true
    }
}

struct Shared {
    table: Arc<Table>,
    clients: Mutex<Clients>,
    /// A client left.
    left: Condvar,
    is_stopping: AtomicBool,
    /// An event descriptor that ends the thread that accepts clients.
    wake: OwnedFd,
}

impl Shared {
    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A port that clients can connect to, until this value is dropped.
pub struct Serving {
    shared: Arc<Shared>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// Listens on `address`.
    ///
    /// # Errors
    /// Why not.
    pub fn start(address: SocketAddr) -> Result<Serving, StartError> {
        let refused = |source: io::Error| start_error(address, source);
        let listener = TcpListener::bind(address).map_err(refused)?;
        // Port 0 is a free one.
        let local = listener.local_addr().map_err(refused)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC).map_err(|errno| refused(errno.into()))?;
        let shared = Arc::new(Shared {
            table: Arc::default(),
            clients: Mutex::default(),
            left: Condvar::new(),
            is_stopping: AtomicBool::new(false),
            wake,
        });
        let taker = shared.clone();
        let thread = std::thread::Builder::new().name("cenote-nfs-wait".into());
        let thread = thread.spawn(move || accept(&taker, &listener)).map_err(refused)?;
        Ok(Serving { shared, address: local, thread: Some(thread) })
    }

    /// Where clients connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Clients may use `export`.
    pub fn add(&self, export: Arc<Export>) {
        self.shared.table.add(export);
    }

    /// Ends the export of this dataset. Waits for the calls under way.
    pub fn remove(&self, guid: u64) {
        if let Some(export) = self.shared.table.remove(guid) {
            drop(export.hold_off());
        }
    }

    /// The exports.
    #[must_use]
    pub fn exports(&self) -> Vec<Arc<Export>> {
        self.shared.table.all()
    }

    /// The replies to all messages in `sent`, as if `client` had sent these bytes on a connection. For tests.
    #[must_use]
    pub fn answers(&self, client: SocketAddr, sent: &[u8]) -> Vec<u8> {
        connection::answers(&self.shared.table, client, sent)
    }

    /// Clients that are connected.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.shared.clients().connected.len()
    }

    fn end(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.shared.is_stopping.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.shared.wake, &1u64.to_ne_bytes());
        // A thread that panicked accepts no clients either.
        let _ = thread.join();
        let mut clients = self.shared.clients();
        for connected in clients.connected.values() {
            // It does not matter if the connection has ended by itself.
            let _ = connected.stream.shutdown(Shutdown::Both);
        }
        let until = Instant::now() + LEAVING;
        while !clients.connected.is_empty() && Instant::now() < until {
            clients =
                self.shared.left.wait_timeout(clients, LEAVING).unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(clients);
        for export in self.shared.table.all() {
            self.remove(export.guid());
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.end();
    }
}

/// The error for an address that cannot be listened on.
fn start_error(address: SocketAddr, source: io::Error) -> StartError {
    let address = Address::Tcp(address);
    match source.kind() {
        io::ErrorKind::AddrInUse => StartError::InUse(address),
        _ => StartError::System { address, source },
    }
}

/// Accepts clients until the port is closed.
fn accept(shared: &Arc<Shared>, listener: &TcpListener) {
    let mut looked = Instant::now();
    loop {
        let mut fds = [PollFd::new(listener, PollFlags::IN), PollFd::new(&shared.wake, PollFlags::IN)];
        match poll(&mut fds, Some(&GLANCE)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                tracing::error!(%error, "cannot wait for NFS clients");
                return;
            }
        }
        if shared.is_stopping.load(Ordering::Acquire) {
            return;
        }
        if looked.elapsed() >= Duration::from_secs(GLANCE.tv_sec as u64) {
            shared.table.all().iter().for_each(|export| export.close_if_idle());
            looked = Instant::now();
        }
        if fds[0].revents().is_empty() {
            continue;
        }
        if let Err(error) = listener.accept().and_then(|(stream, client)| take(shared, stream, client)) {
            tracing::warn!(%error, "an NFS client was not taken");
            std::thread::sleep(PAUSE);
        }
    }
}

/// Serves a client in a thread of its own.
fn take(shared: &Arc<Shared>, stream: TcpStream, client: SocketAddr) -> io::Result<()> {
    stream.set_nodelay(true)?;
    rustix::net::sockopt::set_socket_keepalive(&stream, true)?;
    let is_welcome = shared.table.welcomes(client);
    let activity = Arc::new(Activity::new());
    let connected = Connected { client, stream: stream.try_clone()?, is_welcome, activity: activity.clone() };
    let id = {
        let mut clients = shared.clients();
        if !clients.make_room(client, is_welcome) {
            // One line in the log, however many more come.
            if !std::mem::replace(&mut clients.is_full, true) {
                tracing::warn!(%client, "as many NFS clients are connected as may be: no more");
            }
            return Ok(());
        }
        clients.is_full = false;
        clients.next += 1;
        let id = clients.next;
        clients.connected.insert(id, connected);
        id
    };
    let leaving = Leaving { shared: shared.clone(), id };
    let thread = std::thread::Builder::new().name("cenote-nfs".into());
    thread.spawn(move || {
        let leaving = leaving;
        Connection::new(stream, client, leaving.shared.table.clone(), activity).serve();
    })?;
    Ok(())
}

/// Removes a client from the table when its thread ends, also by a panic.
struct Leaving {
    shared: Arc<Shared>,
    id: u64,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.shared.clients().connected.remove(&self.id);
        self.shared.left.notify_all();
    }
}
