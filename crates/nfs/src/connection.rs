//! The connection of one client.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Scope;
use std::time::{Duration, Instant};

use zpl::rank::{Rank, RankedMutex};

use crate::activity::{Activity, UnderWay};
use crate::call::Call;
use crate::caller::Asker;
use crate::program;
use crate::record;
use crate::rpc::{self, Credentials, Message, Refusal};
use crate::table::{Permit, Table};
use crate::xdr::Writer;

/// Maximal time between two calls. A client connects again when it needs to.
const SILENCE: Duration = Duration::from_secs(300);
/// Maximal time before the first call, and without any byte of a call that has begun or of a reply.
const PATIENCE: Duration = Duration::from_secs(20);
/// Maximal time for one whole call to arrive, and for one whole reply to be taken.
const MESSAGE: Duration = Duration::from_secs(60);
/// Maximal threads of one connection.
const THREADS_OF_ONE_MAX: usize = 8;
/// Maximal bytes of a buffer that is kept for the next call.
const KEPT: usize = 2 << 20;

/// A stream with a limit on the time of one message: a client that sends or takes a byte now and then does not keep its
/// connection.
struct Timed<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl Timed<'_> {
    fn new(stream: &TcpStream) -> Timed<'_> {
        Timed { stream, until: Instant::now() + MESSAGE }
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now()).min(PATIENCE);
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(room)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// A connection, and the state that its threads share.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    pub(crate) client: SocketAddr,
    pub(crate) table: Arc<Table>,
    pub(crate) activity: Arc<Activity>,
    reading: RankedMutex<Reading>,
    writing: RankedMutex<()>,
    /// Threads that wait for the next call.
    waiting: AtomicUsize,
    threads: AtomicUsize,
}

/// The reading side, which one thread has at a time.
#[derive(Default)]
struct Reading {
    /// A call has arrived.
    has_begun: bool,
    /// No more calls are read.
    is_over: bool,
}

impl Connection {
    pub(crate) fn new(
        stream: TcpStream,
        client: SocketAddr,
        table: Arc<Table>,
        activity: Arc<Activity>,
    ) -> Connection {
        Connection {
            stream,
            client,
            table,
            activity,
            reading: RankedMutex::new(Rank::NextCall, Reading::default()),
            writing: RankedMutex::default(),
            waiting: AtomicUsize::new(0),
            threads: AtomicUsize::new(1),
        }
    }

    /// Serves the client until it leaves, or is disconnected. Calls are read one after the other, and carried out by several
    /// threads, because most of them wait for a disk.
    pub(crate) fn serve(&self) {
        std::thread::scope(|scope| self.work(scope, None));
    }

    /// The work of one thread. It holds the permit of an additional thread until its end.
    fn work<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, _permit: Option<Permit>) {
        let (mut record, mut reply) = (Vec::new(), Writer::default());
        loop {
            let call = match self.next(&mut record) {
                Ok(Some(call)) => call,
                Ok(None) => return,
                Err(error) => return self.end(&error),
            };
            self.help(scope);
            let answered = answer(&self.table, self.client, &record, &mut reply);
            if let Err(error) = answered.and_then(|()| self.send(&reply)) {
                self.end(&error);
            }
            drop(call);
            if record.capacity() > KEPT {
                record = Vec::new();
            }
        }
    }

    /// Starts one more thread if none waits for the next call and there is a permit.
    fn help<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        let is_needed = self.waiting.load(Ordering::Acquire) == 0;
        if !is_needed || self.threads.load(Ordering::Acquire) >= THREADS_OF_ONE_MAX {
            return;
        }
        let Some(permit) = self.table.permit() else { return };
        self.threads.fetch_add(1, Ordering::AcqRel);
        let thread = std::thread::Builder::new().name("cenote-nfs-more".into());
        // Without the thread, the calls are carried out one after the other.
        if thread.spawn_scoped(scope, move || self.work(scope, Some(permit))).is_err() {
            self.threads.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// Reads the next call into `record`; `None` when the client has left.
    fn next(&self, record: &mut Vec<u8>) -> io::Result<Option<UnderWay<'_>>> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let mut reading = self.reading.lock_after_panics();
        let read = self.read(&mut reading, record);
        self.waiting.fetch_sub(1, Ordering::AcqRel);
        reading.is_over |= !matches!(read, Ok(Some(_)));
        read
    }

    fn read(&self, reading: &mut Reading, record: &mut Vec<u8>) -> io::Result<Option<UnderWay<'_>>> {
        let first = loop {
            if reading.is_over {
                return Ok(None);
            }
            let mut first = [0];
            self.stream.set_read_timeout(Some(if reading.has_begun { SILENCE } else { PATIENCE }))?;
            match (&self.stream).read(&mut first) {
                Ok(0) => return Ok(None),
                Ok(_) => break first,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A client may wait for the answer to a long call.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && self.activity.is_busy() => {}
                Err(error) => return Err(error),
            }
        };
        let call = self.activity.begin();
        record::read(&mut Timed::new(&self.stream), first, record)?;
        reading.has_begun = true;
        Ok(Some(call))
    }

    fn send(&self, reply: &Writer) -> io::Result<()> {
        let _writing = self.writing.lock_after_panics();
        Timed::new(&self.stream).write_all(reply.as_bytes())
    }

    /// Ends the connection, and reports why if the client did not leave by itself.
    fn end(&self, error: &io::Error) {
        if !is_leaving(error) {
            tracing::warn!(client = %self.client, %error, "an NFS client is disconnected");
        }
        // Ends the other threads. A connection that has ended by itself needs nothing.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Whether the client is gone, or was silent for too long.
fn is_leaving(error: &io::Error) -> bool {
    use io::ErrorKind::{
        BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut, UnexpectedEof, WouldBlock,
    };
    matches!(
        error.kind(),
        BrokenPipe | ConnectionAborted | ConnectionReset | TimedOut | UnexpectedEof | WouldBlock
    )
}

/// The replies to all messages in `sent`, the bytes of a whole connection.
pub(crate) fn answers(table: &Table, client: SocketAddr, mut sent: &[u8]) -> Vec<u8> {
    let (mut replies, mut record, mut reply) = (Vec::new(), Vec::new(), Writer::default());
    while let Some((first, rest)) = sent.split_first() {
        sent = rest;
        let answered = record::read(&mut sent, [*first], &mut record)
            .and_then(|()| answer(table, client, &record, &mut reply));
        // The server ends a connection with bytes that make no sense.
        if answered.is_err() {
            break;
        }
        replies.extend_from_slice(reply.as_bytes());
    }
    replies
}

/// Writes the whole reply to a message over `out`, with its length in front.
fn answer(table: &Table, client: SocketAddr, record: &[u8], out: &mut Writer) -> io::Result<()> {
    out.truncate(0);
    out.u32(0);
    let message = rpc::decode(record)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a message is no call"))?;
    let (number, call) = match message {
        Message::Call(number, call) => (number, call),
        Message::Mismatch(number) => {
            rpc::mismatch(number, out);
            finish(out);
            return Ok(());
        }
    };
    let what = (call.program, call.version, call.procedure);
    let is_once = program::is_once(call.program, call.procedure);
    if is_once && let Some(kept) = table.repeats.begin(client.ip(), record) {
        out.truncate(0);
        out.raw(&kept);
        return Ok(());
    }
    let start = out.len();
    let asker = Asker { client, credentials: call.credentials };
    let mut call = Call { table, asker: &asker, arguments: call.arguments };
    rpc::begin_reply(number, out);
    let done = match &asker.credentials {
        Credentials::Unknown => Err(Refusal::Credentials),
        _ if table.is_broken() => Err(Refusal::System),
        _ => catch_unwind(AssertUnwindSafe(|| program::run(what, &mut call, out))).unwrap_or_else(|_| {
            table.note_broken();
            Err(Refusal::System)
        }),
    };
    if let Err(refusal) = done {
        out.truncate(start);
        rpc::refuse(number, refusal, out);
    }
    finish(out);
    if is_once {
        table.repeats.keep(client.ip(), record, out.as_bytes());
    }
    Ok(())
}

fn finish(out: &mut Writer) {
    let len = out.len() - 4;
    out.set_u32(0, record::LAST | len as u32);
}
