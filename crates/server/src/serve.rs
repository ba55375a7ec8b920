//! The server: opens the pool, mounts, listens, and closes everything in order.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar};
use std::time::{Duration, Instant};

use pool::{Found, Lease, Pool};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use scan::Scans as _;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use zpl::rank::RankedMutex;

use crate::client::clean_mounts;
use crate::error::ServeError;
use crate::front_ends::FrontEnds;
use crate::live::Live;
use crate::messages::{Fresh, Job, PROTOCOL, Ready, Refusal, Reply, Request, Status, Stop};
use crate::notify::notify;
use crate::plan::Overrides;
use crate::visitors::Question;
use crate::{Counters, Runtime, log, start, wire};

/// Most connections at a time.
const CONNECTIONS_MAX: usize = 256;
/// How long commands that are being carried out may take to stop when the server must end.
const PATIENCE: Duration = Duration::from_secs(30);
/// After this long, a changing command that delays the end of the server is reported to the requester.
const MOMENT: Duration = Duration::from_secs(5);
/// Time limit of a reading command's wait for the open txg. Most syncs are shorter; one that compresses for a minute is much
/// longer.
const LOOK: Duration = Duration::from_millis(500);
/// Interval of the checks, during a wait, whether the pool is being exported.
const GLANCE: Duration = Duration::from_millis(50);
/// Time limit at the end of the server for remaining users of the pool.
const LETTING_GO: Duration = Duration::from_secs(10);
/// A connection on which nothing arrives for so long is closed.
const SILENCE: Duration = Duration::from_secs(60);

/// Standard input, output and error of a client.
pub struct Stdio {
    /// Standard input.
    pub input: File,
    /// Standard output.
    pub out: File,
    /// Standard error.
    pub err: File,
}

/// Runs command lines on a live pool. The `cli` crate implements it, because it holds the commands.
pub trait Commands: Send + Sync {
    /// Runs `job` until it ends or `stop` is raised. Returns the exit status.
    fn run(&self, job: &Job, live: &Arc<Live>, stdio: Stdio, stop: &Arc<AtomicBool>) -> u8;

    /// Whether `job` only repeats reports, so that the end of the server may end it.
    fn looks_on(&self, job: &Job) -> bool;

    /// Whether another user of the machine may have a command line carried out.
    ///
    /// # Errors
    /// One line that says why not.
    fn judge(&self, question: &Question) -> Result<(), String>;

    /// Records the new paths of a pool's devices.
    ///
    /// # Errors
    /// One line that says why not.
    fn note_devices(&self, pool: &Pool) -> Result<(), String>;
}

/// What to serve, and how.
pub struct Serve {
    /// The pool's devices.
    pub found: Found,
    /// How it is opened.
    pub options: pool::Options,
    /// The front ends through which clients use the pool.
    pub front_ends: FrontEnds,
    /// Where the socket goes.
    pub runtime: Runtime,
    /// The folder for the socket for other users; `None`: there is no such socket.
    pub visitors: Option<PathBuf>,
    /// Mount all file systems that should be mounted, with these options; `None`: mount nothing yet.
    pub mount: Option<Overrides>,
    /// Log to this file and report readiness to the parent process; `None`: log to standard error.
    pub background: Option<PathBuf>,
}

/// Each mount takes a dozen descriptors. The limit inherited from shells is low, so it is raised.
fn allow_many_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.maximum, ..limit };
    if let Err(error) = setrlimit(Resource::Nofile, wanted) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}

/// Disables transparent huge pages for this process. The allocator asks for them, but then the first byte of each thread's
/// buffers takes 2 MiB, and a freed record returns no memory while its neighbour is in use.
fn use_small_pages() {
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::warn!(%error, "the server may take several times as much memory: huge pages stay in use");
    }
}

/// Serves a pool until it receives the order to stop.
///
/// # Errors
/// The pool cannot be opened or exported, or the socket not be made.
pub fn serve(serve: Serve, commands: Arc<dyn Commands>) -> Result<(), ServeError> {
    let Serve { found, options, front_ends, runtime, visitors, mount, background } = serve;
    let system = |path: &std::path::Path| {
        let path = path.to_path_buf();
        move |source| ServeError::System { path, source }
    };
    let log = match &background {
        Some(path) => Some(start::settle(path).map_err(system(path))?),
        None => {
            log::to_stderr();
            None
        }
    };
    allow_many_descriptors();
    use_small_pages();
    // This comes before all steps that a signal could interrupt half-way.
    let signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(ServeError::Signals)?;
    let pool = Pool::import(&found, options)?;
    if let Err(error) = zpl::replay_logs(&pool) {
        tracing::error!(%error, "an intent log cannot be replayed: its dataset stays as it is");
    }
    if let Err(error) = pool.resume_scrub() {
        tracing::error!(%error, "the scrub that was under way cannot go on");
    }
    let name = pool.name();
    let _in_use = runtime.enter().map_err(system(runtime.folder()))?;
    clean_mounts(&name, &*front_ends.mounter);
    let socket = runtime.socket(&name).map_err(system(runtime.folder()))?;
    let held = sockets::hold_name(&runtime, &name, &*front_ends.mounter)?;
    let listener = sockets::listen(&socket, sockets::OWN_MODE).map_err(system(&socket))?;
    let owner = owner::other_owner(&found);
    let live = Arc::new(Live::new(pool, runtime, front_ends, owner.is_some()));
    let wake = eventfd(0, EventfdFlags::CLOEXEC).map_err(|errno| system(&socket)(errno.into()))?;
    let server = Arc::new(Server {
        live,
        commands,
        started: Instant::now(),
        state: RankedMutex::default(),
        quiet: Condvar::new(),
        leases: AtomicUsize::new(0),
        wake,
    });
    tracing::info!(pool = name, version = env!("CARGO_PKG_VERSION"), "imported");
    let mut ready = server.mount(mount);
    // Contents of another user's files must not decide where this server listens.
    if mount.is_some() && owner.is_none() {
        server.live.restore_exports();
    }
    ready
        .notes
        .extend(owner.filter(|_| mount.is_some()).and_then(|owner| owner::distrust(&name, owner, mount)));
    let visitors = server.listen_to_visitors(visitors);
    if let Some(log) = &log
        && let Err(error) = start::say_ready(&ready, log)
    {
        tracing::warn!(%error, "the process that started this server is gone");
    }
    notify("READY=1");
    server.clone().listen_to_signals(signals);
    // From here on clients can reach this process to retry refused writes.
    server.suspend_on_refusal();
    server.watch_devices();
    server.accept(&listener);
    notify("STOPPING=1");
    // No client may connect while the pool is being exported.
    let _ = fs::remove_file(&socket);
    drop((listener, visitors, held));
    server.finish()
}

/// A connection that is being served.
struct Connection {
    stream: UnixStream,
    /// Raised to stop its command; `None`: it has none.
    stop: Option<Arc<AtomicBool>>,
    /// Its command only looks on.
    looks_on: bool,
}

#[derive(Default)]
struct State {
    next: u64,
    connections: BTreeMap<u64, Connection>,
    /// How to end, and the connection that gets the answer.
    ending: Option<Ending>,
}

struct Ending {
    pool: Pool,
    stop: Stop,
    asker: Option<UnixStream>,
    /// The loss caused by dropped writes.
    lost: Option<String>,
}

struct Server {
    live: Arc<Live>,
    commands: Arc<dyn Commands>,
    started: Instant,
    state: RankedMutex<State>,
    /// A connection ended.
    quiet: Condvar,
    leases: AtomicUsize,
    /// Written to when the server is to end.
    wake: OwnedFd,
}

impl Server {
    fn mount(&self, wanted: Option<Overrides>) -> Ready {
        let mut ready = Ready { pid: std::process::id(), ..Ready::default() };
        if let Some(overrides) = wanted {
            match self.live.mount_all(self.live.name(), overrides) {
                Ok(report) => {
                    ready.failed =
                        report.failed.into_iter().map(|(dataset, why)| (dataset, why.to_string())).collect();
                    ready.moved = report.moved;
                    ready.notes = report.notes;
                }
                Err(error) => ready.failed.push((self.live.name().to_owned(), error.to_string())),
            }
        }
        ready
    }

    /// Takes connections until the server is to end.
    fn accept(self: &Arc<Self>, listener: &UnixListener) {
        loop {
            let mut fds = [PollFd::new(listener, PollFlags::IN), PollFd::new(&self.wake, PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => {
                    tracing::error!(%error, "cannot wait for connections");
                    return;
                }
            }
            if !fds[1].revents().is_empty() {
                return;
            }
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection was not taken");
                    // For example out of descriptors, so it pauses before the next try.
                    std::thread::sleep(Duration::from_millis(100));
                    continue;
                }
            };
            if let Err(error) = self.clone().take(stream) {
                tracing::warn!(%error, "a connection was not taken");
            }
        }
    }

    /// Puts a connection into the table; `None` if there are too many.
    fn enter(&self, stream: UnixStream) -> Option<u64> {
        let mut state = self.state.lock();
        if state.connections.len() >= CONNECTIONS_MAX {
            return None;
        }
        state.next += 1;
        let id = state.next;
        state.connections.insert(id, Connection { stream, stop: None, looks_on: false });
        Some(id)
    }

    fn take(self: Arc<Self>, stream: UnixStream) -> io::Result<()> {
        let peer = rustix::net::sockopt::socket_peercred(&stream)?;
        if !peer.uid.is_root() && peer.uid != rustix::process::geteuid() {
            return Err(io::Error::other(format!("user {} may not ask", peer.uid.as_raw())));
        }
        stream.set_read_timeout(Some(SILENCE))?;
        let copy = stream.try_clone()?;
        let Some(id) = self.enter(copy) else {
            let refusal = Refusal::Other("too many connections".into());
            return wire::send(&stream, &Reply::Refused(refusal), &[]);
        };
        let server = self.clone();
        let thread = std::thread::Builder::new().name("cenote-client".into()).spawn(move || {
            let talked = catch_unwind(AssertUnwindSafe(|| server.talk(id, stream)));
            match talked {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(%error, "a connection broke off"),
                Err(_) => tracing::error!("a request was not completed: an invariant was found broken"),
            }
            server.state.lock().connections.remove(&id);
            server.quiet.notify_all();
        });
        if thread.is_err() {
            self.state.lock().connections.remove(&id);
        }
        thread.map(drop)
    }

    fn talk(&self, id: u64, stream: UnixStream) -> io::Result<()> {
        while let Some((request, fds)) = wire::receive::<Request>(&stream)? {
            let reply = match request {
                Request::Hello { .. } => Reply::Hello {
                    protocol: PROTOCOL,
                    build: env!("CARGO_PKG_VERSION").to_owned(),
                    guid: self.live.guid(),
                    pid: std::process::id(),
                },
                Request::Run(job) => self.run(id, &stream, &job, fds),
                Request::Lease { fresh } => return self.lease(&stream, fresh),
                Request::Status => Reply::Status(self.status()),
                Request::Devices => self.devices(),
                Request::Figures => self.figures(),
                Request::Counters => match self.live.pool() {
                    Ok(pool) => Reply::Counters(Counters::of(&pool)),
                    Err(_) => Reply::Refused(Refusal::Stopping),
                },
                Request::Events { clear } => self.events(clear),
                Request::Stop(stop) => match self.stop(id, stop, Some(&stream)) {
                    // The requester gets the answer when all is done.
                    Ok(()) => return Ok(()),
                    Err(refusal) => Reply::Refused(refusal),
                },
            };
            wire::send(&stream, &reply, &[])?;
        }
        Ok(())
    }

    /// Grants a lease and waits until the client drops it.
    fn lease(&self, stream: &UnixStream, fresh: Fresh) -> io::Result<()> {
        if fresh == Fresh::Files {
            self.live.write_back();
        }
        let lease = match self.wait_for_lease(fresh) {
            Ok(lease) => lease,
            Err(refusal) => return wire::send(stream, &Reply::Refused(refusal), &[]),
        };
        self.leases.fetch_add(1, Ordering::Relaxed);
        stream.set_read_timeout(None)?;
        let given = wire::send(stream, &Reply::Lease { uberblock: lease.uberblock().encode().to_vec() }, &[]);
        // The only expected event is the end of the connection.
        let ended = given.and_then(|()| wire::receive::<Request>(stream));
        self.leases.fetch_sub(1, Ordering::Relaxed);
        drop(lease);
        ended.map(drop)
    }

    /// Waits until the state is recent enough for the lease, but not if the pool is being exported.
    fn wait_for_lease(&self, fresh: Fresh) -> Result<Lease, Refusal> {
        // The end of the server needs the pool exclusively, so this does not hold it meanwhile.
        let awaited = self.live.pool().map_err(|_| Refusal::Stopping)?.await_lease();
        let until = (fresh == Fresh::Soon).then(|| Instant::now() + LOOK);
        if fresh == Fresh::Last {
            return Ok(awaited.take());
        }
        loop {
            match awaited.wait(GLANCE) {
                Ok(true) => break,
                Ok(false) if self.live.is_closing() => return Err(Refusal::Stopping),
                Ok(false) if until.is_none_or(|until| Instant::now() < until) => {}
                Ok(false) => break,
                // The last synced state is complete, because nothing is written any more.
                Err(pool::Error::Stopped(_)) if fresh == Fresh::Soon => break,
                Err(error) => return Err(Refusal::Other(error.to_string())),
            }
        }
        Ok(awaited.take())
    }

    /// Runs a command line. The end of its client stops it.
    fn run(&self, id: u64, stream: &UnixStream, job: &Job, fds: Vec<OwnedFd>) -> Reply {
        let Ok([input, out, err]) = <[OwnedFd; 3]>::try_from(fds) else {
            return Reply::Refused(Refusal::Other("standard input, output and error are missing".into()));
        };
        let stop = Arc::new(AtomicBool::new(false));
        let done = match eventfd(0, EventfdFlags::CLOEXEC) {
            Ok(done) => done,
            Err(error) => return Reply::Refused(Refusal::Other(error.to_string())),
        };
        {
            let mut state = self.state.lock();
            if state.ending.is_some() {
                return Reply::Refused(Refusal::Stopping);
            }
            if let Some(connection) = state.connections.get_mut(&id) {
                connection.stop = Some(stop.clone());
                connection.looks_on = self.commands.looks_on(job);
            }
        }
        tracing::debug!(program = job.program, words = ?job.words, "command");
        let stdio = Stdio { input: input.into(), out: out.into(), err: err.into() };
        let status = std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let ran = catch_unwind(AssertUnwindSafe(|| self.commands.run(job, &self.live, stdio, &stop)));
                // The eventfd counts to far more than one.
                let _ = rustix::io::write(&done, &1u64.to_ne_bytes());
                ran
            });
            watch(stream, &done, &stop);
            worker.join().unwrap_or_else(Err)
        });
        if let Some(connection) = self.state.lock().connections.get_mut(&id) {
            connection.stop = None;
        }
        match status {
            Ok(status) => Reply::Done { status },
            Err(_) => Reply::Refused(Refusal::Other("an invariant was found broken; see the log".into())),
        }
    }

    fn status(&self) -> Status {
        Status {
            pool: self.live.name().to_owned(),
            pid: std::process::id(),
            uptime: self.started.elapsed().as_secs(),
            mounts: self.live.mounts(),
            without_xattrs: self.live.without_xattrs(),
            within: self.live.shown_within(),
            keys: self.live.pool().map(|pool| pool.loaded_keys()).unwrap_or_default(),
            commands: self.state.lock().connections.values().filter(|c| c.stop.is_some()).count(),
            leases: self.leases.load(Ordering::Relaxed),
        }
    }

    /// Unmounts everything and ends the server, or leaves everything unchanged.
    fn stop(&self, id: u64, stop: Stop, asker: Option<&UnixStream>) -> Result<(), Refusal> {
        let pool = self.live.pool().map_err(|_| Refusal::Stopping)?;
        self.check_deleted(&pool, &stop)?;
        let lost = self.end_suspension(&pool, &stop)?;
        drop(pool);
        if stop.force {
            self.stop_commands();
        }
        // A changing command ends soon, or takes long.
        let began = Instant::now();
        let Some(turn) = self.live.turn_unless(|| began.elapsed() > MOMENT) else {
            return Err(Refusal::Working);
        };
        let pool = self.live.pool().map_err(|_| Refusal::Stopping)?;
        if stop.destroy && pool.read_only().is_some() {
            return Err(Refusal::Other("pool is read-only".into()));
        }
        drop(pool);
        let working = {
            let state = self.state.lock();
            let mut others = state.connections.iter().filter(|(other, c)| **other != id && c.stop.is_some());
            others.any(|(_, connection)| !connection.looks_on)
        };
        if working && !stop.force {
            return Err(Refusal::Working);
        }
        self.stop_commands();
        let asker = match asker {
            Some(stream) => Some(stream.try_clone().map_err(|error| Refusal::Other(error.to_string()))?),
            None => None,
        };
        let pool = self.live.close(stop.force, LETTING_GO)?;
        drop(turn);
        self.state.lock().ending = Some(Ending { pool, stop, asker, lost });
        // The eventfd counts to far more than one.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        Ok(())
    }

    /// Asks all commands to stop, and waits for them for a limited time.
    fn stop_commands(&self) {
        let until = Instant::now() + PATIENCE;
        let mut state = self.state.lock();
        loop {
            let running: Vec<_> = state.connections.values().filter_map(|c| c.stop.clone()).collect();
            let left = until.saturating_duration_since(Instant::now());
            if running.is_empty() || left.is_zero() {
                return;
            }
            running.iter().for_each(|stop| stop.store(true, Ordering::Relaxed));
            drop(state);
            std::thread::sleep(Duration::from_millis(20).min(left));
            state = self.state.lock();
        }
    }

    fn listen_to_signals(self: Arc<Self>, mut signals: Signals) {
        let listening = std::thread::Builder::new().name("cenote-signals".into()).spawn(move || {
            let mut is_warned = false;
            for signal in signals.forever() {
                if signal == SIGHUP {
                    continue;
                }
                tracing::info!(signal, "told to end");
                if !std::mem::replace(&mut is_warned, true) && !self.may_end() {
                    continue;
                }
                let stop = || Stop { destroy: false, force: true, command: None };
                loop {
                    match self.stop(0, stop(), None) {
                        Ok(()) | Err(Refusal::Stopping) => return,
                        // They were asked to stop, and will.
                        Err(Refusal::Working) => {
                            tracing::warn!("waits for commands that are being carried out")
                        }
                        // Data of programs is not dropped while a write may still succeed.
                        Err(error @ Refusal::Stuck(_)) => tracing::error!(%error, "waits for the pool"),
                        Err(error) => {
                            tracing::error!(%error, "cannot end now");
                            break;
                        }
                    }
                }
            }
        });
        if let Err(error) = listening {
            tracing::error!(%error, "signals are not listened to");
        }
    }

    /// Closes everything.
    fn finish(&self) -> Result<(), ServeError> {
        let Some(Ending { pool, stop, asker, lost }) = self.state.lock().ending.take() else { return Ok(()) };
        // Other readers lose their leases; all commands have ended.
        let mut state = self.state.lock();
        for connection in state.connections.values() {
            let _ = connection.stream.shutdown(std::net::Shutdown::Read);
        }
        let until = Instant::now() + PATIENCE;
        while !state.connections.is_empty() && Instant::now() < until {
            let wait = |state| self.quiet.wait_timeout(state, Duration::from_millis(100));
            state = state.wait(|state| wait(state).expect("no code panics while holding the connections").0);
        }
        drop(state);
        if let Some(command) = &stop.command {
            pool.set_command(command);
        }
        // No client can reach this process any more to resume the pool.
        pool.give_up_writes();
        let ended = if stop.destroy { pool.destroy() } else { pool.export() };
        if let Some(asker) = &asker {
            let reply = match (&ended, lost) {
                (Ok(()), _) => Reply::Stopped,
                (Err(_), Some(lost)) => Reply::Refused(Refusal::Other(lost)),
                (Err(error), None) => Reply::Refused(Refusal::Other(error.to_string())),
            };
            if let Err(error) = wire::send(asker, &reply, &[]) {
                tracing::debug!(%error, "the client that asked for the end is gone");
            }
        }
        match &ended {
            Ok(()) => tracing::info!("exported"),
            Err(error) => tracing::error!(%error, "not exported: the pool is as of its last sync"),
        }
        Ok(ended?)
    }
}

/// Waits until `done`. Raises `stop` when the other end of `stream` closes.
fn watch(stream: &UnixStream, done: &OwnedFd, stop: &AtomicBool) {
    let mut listening = true;
    loop {
        let mut fds = vec![PollFd::new(done, PollFlags::IN)];
        if listening {
            fds.push(PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN | PollFlags::RDHUP));
        }
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                tracing::error!(%error, "a client is not watched");
                return;
            }
        }
        if !fds[0].revents().is_empty() {
            return;
        }
        if listening && !fds[1].revents().is_empty() {
            stop.store(true, Ordering::Relaxed);
            listening = false;
        }
    }
}

mod answers;
mod owner;
mod sockets;
mod suspended;
#[cfg(test)]
mod tests;
mod visitors;
