//! The clients of a listening socket: a thread accepts them, and each is served by a thread of its own.
//!
//! From:   the listening socket of a front end.
//! To:     its [`Service`], which decides how many clients there may be and serves each.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use zpl::rank::{MutexHeld, Rank, RankedMutex};

/// Pause after a client could not be accepted, for example because there are no more descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// How long the end of a service waits for calls under way. A device may not answer them.
const LEAVING: Duration = Duration::from_secs(10);

/// A connected socket.
pub trait Stream: Sized + Send + 'static {
    /// Another descriptor of the same connection.
    ///
    /// # Errors
    /// The error of the system.
    fn another(&self) -> io::Result<Self>;

    /// Ends the connection for all who use it. It does not matter if it has ended by itself.
    fn shut_down(&self);
}

impl Stream for TcpStream {
    fn another(&self) -> io::Result<TcpStream> {
        self.try_clone()
    }

    fn shut_down(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

impl Stream for UnixStream {
    fn another(&self) -> io::Result<UnixStream> {
        self.try_clone()
    }

    fn shut_down(&self) {
        let _ = self.shutdown(Shutdown::Both);
    }
}

/// A protocol, with the calls that serve its clients.
pub trait Service: Sized + Send + Sync + 'static {
    /// The listening socket. It is closed before the last clients leave.
    type Listener: AsFd + Send + 'static;
    /// The socket of a client.
    type Stream: Stream;
    /// The facts that the service knows of a client.
    type Client: Send + Sync + 'static;

    /// The name of the thread that accepts clients, and that of the threads that serve them.
    const THREADS: [&'static str; 2];
    /// The time between two calls of [`Service::look_after`], if there are any.
    const LOOK: Option<Duration> = None;

    /// The name of the served thing, for the log.
    fn name(&self) -> String;

    /// Accepts a client that waits.
    ///
    /// # Errors
    /// The error of the system.
    fn accept(&self, listener: &Self::Listener) -> io::Result<(Self::Stream, Self::Client)>;

    /// Whether `client` may join the `others`. The service may cut one of these off.
    fn make_room(&self, client: &Self::Client, others: &mut Clients<Self>) -> bool;

    /// Serves a client until it leaves.
    fn serve(&self, stream: Self::Stream, client: &Arc<Self::Client>);

    /// Is called from time to time while there may be new clients.
    fn look_after(&self) {}
}

/// The connected clients of a service.
pub struct Clients<S: Service> {
    next: u64,
    connected: HashMap<u64, (S::Stream, Arc<S::Client>)>,
    /// The last client was refused.
    is_full: bool,
}

impl<S: Service> Clients<S> {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.connected.len()
    }

    /// Each with its number.
    pub fn all(&self) -> impl Iterator<Item = (u64, &S::Client)> {
        self.connected.iter().map(|(id, (_, client))| (*id, &**client))
    }

    /// Ends the connection of this client.
    pub fn cut_off(&mut self, id: u64) {
        if let Some((stream, _)) = self.connected.remove(&id) {
            stream.shut_down();
        }
    }
}

struct Shared<S: Service> {
    service: S,
    clients: RankedMutex<Clients<S>>,
    /// A client left.
    left: Condvar,
    is_stopping: AtomicBool,
    /// An event descriptor that ends the thread that accepts clients.
    wake: OwnedFd,
}

impl<S: Service> Shared<S> {
    fn clients(&self) -> MutexHeld<'_, Clients<S>> {
        self.clients.lock_after_panics()
    }
}

/// A service that clients can connect to, until it is ended or dropped.
pub struct Serving<S: Service> {
    shared: Arc<Shared<S>>,
    thread: Option<JoinHandle<()>>,
}

impl<S: Service> Serving<S> {
    /// Accepts clients of `service` from `listener`.
    ///
    /// # Errors
    /// The error of the system.
    pub fn start(service: S, listener: S::Listener) -> io::Result<Serving<S>> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC)?;
        let clients = Clients { next: 0, connected: HashMap::new(), is_full: false };
        let shared = Arc::new(Shared {
            service,
            clients: RankedMutex::new(Rank::Clients, clients),
            left: Condvar::new(),
            is_stopping: AtomicBool::new(false),
            wake,
        });
        let taker = shared.clone();
        let thread = std::thread::Builder::new().name(S::THREADS[0].into());
        let thread = thread.spawn(move || accept(&taker, &listener))?;
        Ok(Serving { shared, thread: Some(thread) })
    }

    /// The service.
    #[must_use]
    pub fn service(&self) -> &S {
        &self.shared.service
    }

    /// Clients that are connected.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.shared.clients().count()
    }

    /// Accepts no more clients, closes the listening socket and the connections, and waits for the calls under way.
    pub fn end(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        self.shared.is_stopping.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.shared.wake, &1u64.to_ne_bytes());
        // A thread that panicked accepts no clients either.
        let _ = thread.join();
        let mut clients = self.shared.clients();
        clients.connected.values().for_each(|(stream, _)| stream.shut_down());
        let until = Instant::now() + LEAVING;
        while !clients.connected.is_empty() && Instant::now() < until {
            let wait = |clients| self.shared.left.wait_timeout(clients, LEAVING);
            clients = clients.wait(|clients| wait(clients).unwrap_or_else(PoisonError::into_inner).0);
        }
    }
}

impl<S: Service> Drop for Serving<S> {
    fn drop(&mut self) {
        self.end();
    }
}

/// Accepts clients until the service ends.
fn accept<S: Service>(shared: &Arc<Shared<S>>, listener: &S::Listener) {
    let look = S::LOOK.map(|look| Timespec { tv_sec: look.as_secs() as i64, tv_nsec: 0 });
    let mut looked = Instant::now();
    loop {
        let mut fds = [PollFd::new(listener, PollFlags::IN), PollFd::new(&shared.wake, PollFlags::IN)];
        match poll(&mut fds, look.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                tracing::error!(service = shared.service.name(), %error, "cannot wait for clients");
                return;
            }
        }
        if shared.is_stopping.load(Ordering::Acquire) {
            return;
        }
        if S::LOOK.is_some_and(|look| looked.elapsed() >= look) {
            shared.service.look_after();
            looked = Instant::now();
        }
        if fds[0].revents().is_empty() {
            continue;
        }
        let accepted = shared.service.accept(listener);
        if let Err(error) = accepted.and_then(|(stream, client)| take(shared, stream, client)) {
            tracing::warn!(service = shared.service.name(), %error, "a client was not accepted");
            std::thread::sleep(PAUSE);
        }
    }
}

/// Serves a client in a thread of its own.
fn take<S: Service>(shared: &Arc<Shared<S>>, stream: S::Stream, client: S::Client) -> io::Result<()> {
    let (copy, client) = (stream.another()?, Arc::new(client));
    let id = {
        let mut clients = shared.clients();
        if !shared.service.make_room(&client, &mut clients) {
            // One line in the log, however many more come.
            if !std::mem::replace(&mut clients.is_full, true) {
                tracing::warn!(
                    service = shared.service.name(),
                    "as many clients are connected as may be: no more"
                );
            }
            return Ok(());
        }
        clients.is_full = false;
        clients.next += 1;
        let id = clients.next;
        clients.connected.insert(id, (copy, client.clone()));
        id
    };
    let leaving = Leaving { shared: shared.clone(), id };
    let thread = std::thread::Builder::new().name(S::THREADS[1].into());
    thread.spawn(move || {
        let leaving = leaving;
        leaving.shared.service.serve(stream, &client);
    })?;
    Ok(())
}

/// Removes a client from the table when its thread ends, also by a panic.
struct Leaving<S: Service> {
    shared: Arc<Shared<S>>,
    id: u64,
}

impl<S: Service> Drop for Leaving<S> {
    fn drop(&mut self) {
        self.shared.clients().connected.remove(&self.id);
        self.shared.left.notify_all();
    }
}

/// Prepares a connection of a client over TCP: answers are sent at once, and a client that is gone is noticed.
///
/// # Errors
/// The error of the system.
pub fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    rustix::net::sockopt::set_socket_keepalive(stream, true)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// Sends back each byte. The oldest of two clients makes room for a third one; two clients called `x` may not be there.
    #[derive(Default)]
    struct Echo(AtomicUsize);

    impl Service for Echo {
        type Listener = UnixListener;
        type Stream = UnixStream;
        type Client = u8;
        const THREADS: [&'static str; 2] = ["echo-wait", "echo"];

        fn name(&self) -> String {
            "echo".into()
        }

        fn accept(&self, listener: &UnixListener) -> io::Result<(UnixStream, u8)> {
            let (mut stream, _) = listener.accept()?;
            let mut name = [0];
            stream.read_exact(&mut name)?;
            Ok((stream, name[0]))
        }

        fn make_room(&self, client: &u8, others: &mut Clients<Echo>) -> bool {
            if *client == b'x' && others.all().any(|(_, other)| *other == b'x') {
                return false;
            }
            if others.count() >= 2
                && let Some(oldest) = others.all().map(|(id, _)| id).min()
            {
                others.cut_off(oldest);
            }
            true
        }

        fn serve(&self, mut stream: UnixStream, client: &Arc<u8>) {
            self.0.fetch_add(1, Ordering::SeqCst);
            let mut byte = [0];
            while stream.read_exact(&mut byte).is_ok() {
                assert_ne!(byte, [b'!'], "client {client}");
                let _ = stream.write_all(&byte);
            }
        }
    }

    fn client(path: &std::path::Path, name: u8) -> UnixStream {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.write_all(&[name]).unwrap();
        stream
    }

    fn echoes(mut stream: &UnixStream) -> bool {
        let mut byte = [0];
        stream.write_all(b"a").is_ok() && stream.read_exact(&mut byte).is_ok()
    }

    #[test]
    fn the_oldest_client_makes_room_for_a_new_one_and_a_panic_ends_only_its_own_client() {
        let path = std::env::temp_dir().join(format!("cenote-clients-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let mut serving = Serving::start(Echo::default(), UnixListener::bind(&path).unwrap()).unwrap();
        let (one, two) = (client(&path, b'x'), client(&path, b'y'));
        assert!(echoes(&one) && echoes(&two));
        assert!(!echoes(&client(&path, b'x')), "refused");
        let three = client(&path, b'z');
        assert!(echoes(&three) && echoes(&two) && !echoes(&one), "the oldest was cut off");
        (&two).write_all(b"!").unwrap();
        while serving.clients() > 1 {
            std::thread::yield_now();
        }
        assert!(echoes(&three), "a panic ends one connection only");
        serving.end();
        assert!(!echoes(&three) && UnixStream::connect(&path).is_err());
        assert_eq!((serving.clients(), serving.service().0.load(Ordering::SeqCst)), (0, 3));
        std::fs::remove_file(&path).unwrap();
    }
}
