//! The connection of one client.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::activity::Activity;
use crate::call::Call;
use crate::caller::Asker;
use crate::program;
use crate::record;
use crate::rpc::{self, Credentials, Message, Refusal};
use crate::table::Table;
use crate::xdr::Writer;

/// Maximal time between two calls. A client connects again when it needs to.
const SILENCE: Duration = Duration::from_secs(300);
/// Maximal time before the first call, and without any byte of a call that has begun or of a reply.
const PATIENCE: Duration = Duration::from_secs(20);
/// Maximal time for one whole call to arrive, and for one whole reply to be taken.
const MESSAGE: Duration = Duration::from_secs(60);
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

/// Serves a client until it leaves, or is cut off. `activity` is told when a call begins and ends.
pub(crate) fn serve(stream: &TcpStream, client: SocketAddr, table: &Table, activity: &Activity) {
    match serve_calls(stream, client, table, activity) {
        Ok(()) => {}
        Err(error) if is_leaving(&error) => {}
        Err(error) => tracing::warn!(%client, %error, "an NFS client is cut off"),
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

fn serve_calls(
    mut stream: &TcpStream,
    client: SocketAddr,
    table: &Table,
    activity: &Activity,
) -> io::Result<()> {
    let mut record = Vec::new();
    let mut silence = PATIENCE;
    loop {
        let mut first = [0];
        stream.set_read_timeout(Some(silence))?;
        if stream.read(&mut first)? == 0 {
            return Ok(());
        }
        activity.begin();
        record::read(&mut Timed::new(stream), first, &mut record)?;
        let reply = answer(table, client, &record)?;
        Timed::new(stream).write_all(reply.as_bytes())?;
        activity.end();
        if record.capacity() > KEPT {
            record = Vec::new();
        }
        silence = SILENCE;
    }
}

/// The replies to all messages in `sent`, the bytes of a whole connection.
pub(crate) fn answers(table: &Table, client: SocketAddr, mut sent: &[u8]) -> Vec<u8> {
    let (mut replies, mut record) = (Vec::new(), Vec::new());
    while let Some((first, rest)) = sent.split_first() {
        sent = rest;
        let reply =
            record::read(&mut sent, [*first], &mut record).and_then(|()| answer(table, client, &record));
        // The server ends a connection with bytes that make no sense.
        let Ok(reply) = reply else { break };
        replies.extend_from_slice(reply.as_bytes());
    }
    replies
}

/// The whole reply to a message, with its length in front.
fn answer(table: &Table, client: SocketAddr, record: &[u8]) -> io::Result<Writer> {
    let mut out = Writer::default();
    out.u32(0);
    let message = rpc::decode(record)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a message is no call"))?;
    let (number, call) = match message {
        Message::Call(number, call) => (number, call),
        Message::Mismatch(number) => {
            rpc::mismatch(number, &mut out);
            return Ok(finished(out));
        }
    };
    let what = (call.program, call.version, call.procedure);
    let is_once = program::is_once(call.program, call.procedure);
    if is_once && let Some(kept) = table.repeats.find(client.ip(), record) {
        let mut out = Writer::default();
        out.raw(&kept);
        return Ok(out);
    }
    let start = out.len();
    let asker = Asker { client, credentials: call.credentials };
    let mut call = Call { table, asker: &asker, arguments: call.arguments };
    rpc::begin_reply(number, &mut out);
    let done = match &asker.credentials {
        Credentials::Unknown => Err(Refusal::Credentials),
        _ if table.is_broken() => Err(Refusal::System),
        _ => {
            catch_unwind(AssertUnwindSafe(|| program::run(what, &mut call, &mut out))).unwrap_or_else(|_| {
                table.note_broken();
                Err(Refusal::System)
            })
        }
    };
    if let Err(refusal) = done {
        out.truncate(start);
        rpc::refuse(number, refusal, &mut out);
    }
    let out = finished(out);
    if is_once {
        table.repeats.keep(client.ip(), record, out.as_bytes());
    }
    Ok(out)
}

fn finished(mut out: Writer) -> Writer {
    let len = out.len() - 4;
    out.set_u32(0, record::LAST | len as u32);
    out
}
