//! One client: its requests, carried out by a few threads.

use std::io::{self, BufReader, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use front::clients::Stream as _;
use zpl::Volume;

use crate::export::Export;
use crate::negotiation::{Agreed, Broken, Outcome, greet, negotiate};
use crate::protocol::{Kind, REQUEST_MAX, REQUEST_SIZE, Request, errno, flag};
use crate::queue::Queue;
use crate::reply::{Data, Replies, errno_of};
use crate::stream::{NEGOTIATING, SENDING, Stream};
use crate::tls::Encrypted;

/// Bytes of data that are in memory at once for one request.
const PIECE: usize = 1 << 20;
/// Threads that carry out the requests of one client.
const WORKERS: usize = 4;
/// Extents of one answer about data and holes.
const EXTENTS_MAX: usize = 4 << 10;
/// Bytes that are read from the socket at once, beside data.
const BUFFER: usize = 64 << 10;

struct Client {
    volume: Volume,
    read_only: bool,
    has_context: bool,
    replies: Replies,
    queue: Queue<(Request, Vec<u8>)>,
}

/// Serves one client until it leaves, or is cut off.
pub(crate) fn serve(stream: &Stream, export: &Arc<Export>) {
    let name = export.name();
    let (agreed, encrypted) = match begin(stream, export) {
        Ok(Some(begun)) => begun,
        Ok(None) => return,
        Err(Broken::Connection(error)) if error.kind() == io::ErrorKind::UnexpectedEof => return,
        Err(error) => {
            tracing::warn!(export = name, %error, "an NBD client is cut off");
            return;
        }
    };
    let stream = encrypted.as_ref().map_or(stream, Encrypted::plain);
    let copy = match stream.another() {
        Ok(copy) => copy,
        Err(error) => {
            tracing::warn!(export = name, %error, "an NBD client is cut off");
            return;
        }
    };
    let client = Client {
        volume: agreed.volume,
        read_only: agreed.read_only,
        has_context: agreed.has_context,
        replies: Replies::new(copy, agreed.is_structured),
        queue: Queue::new(),
    };
    std::thread::scope(|scope| {
        let mut is_served = false;
        for _ in 0..WORKERS {
            let work = || client.work(stream);
            let started = std::thread::Builder::new().name("cenote-nbd".into()).spawn_scoped(scope, work);
            match started {
                Ok(_) => is_served = true,
                Err(error) => tracing::warn!(%error, "an NBD client has fewer threads"),
            }
        }
        // Without a thread, requests would wait for ever. The threads end when the queue is closed, also after a panic here.
        let read = match is_served {
            true => catch_unwind(AssertUnwindSafe(|| client.read_requests(stream)))
                .unwrap_or_else(|_| Err(io::Error::other("an invariant was found broken"))),
            false => Err(io::Error::other("there is no thread for it")),
        };
        client.queue.close();
        if let Err(error) = read {
            tracing::warn!(export = name, %error, "an NBD client is cut off");
            stream.shut_down();
        }
    });
}

/// The terms agreed on with the client, and the plain end of its connection if that is encrypted. `None`: the client
/// leaves.
fn begin(mut stream: &Stream, export: &Export) -> Result<Option<(Agreed, Option<Encrypted>)>, Broken> {
    stream.set_patience(Some(NEGOTIATING), Some(NEGOTIATING))?;
    let greeted = greet(&mut stream)?;
    let mut encrypted = None;
    let mut outcome = negotiate(&mut stream, greeted, export, false)?;
    if let (Outcome::Encrypt, Some(tls)) = (&outcome, export.tls()) {
        let plain = encrypted.insert(tls.begin(stream)?).plain();
        plain.set_patience(Some(NEGOTIATING), Some(NEGOTIATING))?;
        outcome = negotiate(&mut &*plain, greeted, export, true)?;
    }
    let Outcome::Begin(agreed) = outcome else { return Ok(None) };
    // From here on a client may stay silent as long as it likes.
    encrypted.as_ref().map_or(stream, Encrypted::plain).set_patience(None, Some(SENDING))?;
    Ok(Some((agreed, encrypted)))
}

/// Reads a request; `None` when the client has left.
fn next_request(reader: &mut BufReader<&Stream>) -> io::Result<Option<Request>> {
    let mut raw = [0; REQUEST_SIZE];
    let got = reader.read(&mut raw[..1]);
    match got {
        Ok(0) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    reader.read_exact(&mut raw[1..])?;
    let nonsense = || io::Error::new(io::ErrorKind::InvalidData, "what it sends as a request is none");
    let request = Request::decode(&raw).ok_or_else(nonsense)?;
    if request.kind == Kind::Write && request.length > REQUEST_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it writes more at once than it may"));
    }
    Ok(Some(request))
}

impl Client {
    /// Reads requests until the client leaves.
    fn read_requests(&self, stream: &Stream) -> io::Result<()> {
        let mut reader = BufReader::with_capacity(BUFFER, stream);
        while let Some(request) = next_request(&mut reader)? {
            match request.kind {
                Kind::Disconnect => return Ok(()),
                Kind::Write if request.length as usize > PIECE => {
                    self.write_in_pieces(&request, &mut reader)?
                }
                _ => self.take(request, &mut reader)?,
            }
        }
        Ok(())
    }

    /// Takes a request, with its data if it has some, and hands it over.
    fn take(&self, request: Request, reader: &mut BufReader<&Stream>) -> io::Result<()> {
        let held = match request.kind {
            Kind::Read => PIECE.min(request.length as usize),
            Kind::Write => request.length as usize,
            _ => 0,
        };
        // A client that waits for each answer before it asks again is served without a change of threads.
        let is_alone = self.queue.under_way() == 0;
        self.queue.let_in(held);
        let mut data = Vec::new();
        if request.kind == Kind::Write {
            data.resize(request.length as usize, 0);
            reader.read_exact(&mut data)?;
        }
        if is_alone && reader.buffer().is_empty() {
            let done = self.carry_out(&request, &data);
            self.queue.done(held);
            return done;
        }
        self.queue.push(held, (request, data));
        Ok(())
    }

    /// Carries out a long write while it arrives.
    fn write_in_pieces(&self, request: &Request, reader: &mut impl Read) -> io::Result<()> {
        self.queue.let_in(PIECE);
        let mut piece = vec![0; PIECE];
        let (mut at, mut left) = (request.offset, request.length as usize);
        let mut done = self.check(request);
        while left > 0 {
            let part = &mut piece[..left.min(PIECE)];
            reader.read_exact(part)?;
            if done.is_ok() {
                done = self.volume.write(at, part).map_err(Refused::Failed);
            }
            left -= part.len();
            at = at.saturating_add(part.len() as u64);
        }
        let answered = self.answer(request, done.and_then(|()| self.finish(request)));
        self.queue.done(PIECE);
        answered
    }

    /// Carries out requests until no more come.
    fn work(&self, stream: &Stream) {
        while let Some((held, (request, data))) = self.queue.next() {
            let done = catch_unwind(AssertUnwindSafe(|| self.carry_out(&request, &data)));
            drop(data);
            self.queue.done(held);
            match done {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    // The thread that reads sees the end of the connection.
                    tracing::debug!(%error, "an NBD client takes no answer");
                    stream.shut_down();
                }
                Err(_) => {
                    tracing::error!("an NBD request was not completed: an invariant was found broken");
                    stream.shut_down();
                }
            }
        }
    }

    fn carry_out(&self, request: &Request, data: &[u8]) -> io::Result<()> {
        if let Err(refused) = self.check(request) {
            return self.answer(request, Err(refused));
        }
        let (volume, offset, length) = (&self.volume, request.offset, u64::from(request.length));
        let done = match request.kind {
            Kind::Read => return self.read(request),
            Kind::BlockStatus => return self.tell_extents(request),
            Kind::Write => volume.write(offset, data),
            Kind::Flush => volume.flush(),
            Kind::Trim => volume.trim(offset, length),
            Kind::WriteZeroes if request.has(flag::NO_HOLE) => self.fill(offset, length),
            Kind::WriteZeroes => volume.zero(offset, length),
            Kind::Disconnect | Kind::Other => return self.answer(request, Err(UNKNOWN)),
        };
        self.answer(request, done.map_err(Refused::Failed).and_then(|()| self.finish(request)))
    }

    /// Writes zeros that take space like other data.
    fn fill(&self, offset: u64, length: u64) -> zpl::Result<()> {
        let zeros = vec![0; PIECE.min(length as usize)];
        let mut at = offset;
        while at < offset + length {
            let part = (offset + length - at).min(PIECE as u64);
            self.volume.write(at, &zeros[..part as usize])?;
            at += part;
        }
        Ok(())
    }

    /// Requests that are refused before any work.
    fn check(&self, request: &Request) -> Result<(), Refused> {
        if request.kind == Kind::Other {
            return Err(UNKNOWN);
        }
        if !request.has_good_flags() {
            return Err(Refused::Told(errno::INVAL, "flags that the request does not have"));
        }
        let changes = matches!(request.kind, Kind::Write | Kind::Trim | Kind::WriteZeroes);
        if changes && self.read_only {
            return Err(Refused::Told(errno::PERM, "the export is read-only"));
        }
        if request.kind == Kind::Flush {
            return Ok(());
        }
        let end = request.offset.checked_add(request.length.into());
        if end.is_none_or(|end| end > self.volume.size()) {
            let error = if request.kind == Kind::Write { errno::NOSPC } else { errno::INVAL };
            return Err(Refused::Told(error, "beyond the end"));
        }
        let is_long = request.length > REQUEST_MAX;
        match request.kind {
            Kind::Read if is_long => {
                Err(Refused::Told(errno::INVAL, "more at once than a client may ask for"))
            }
            Kind::Read
                if request.has(flag::DF) && request.length as usize > PIECE && self.replies.is_structured =>
            {
                Err(Refused::Told(errno::OVERFLOW, "too much for one chunk"))
            }
            Kind::BlockStatus if !self.has_context || request.length == 0 => {
                Err(Refused::Told(errno::INVAL, "nothing was agreed on to tell"))
            }
            _ => Ok(()),
        }
    }

    /// With FUA, makes the change durable before the answer.
    fn finish(&self, request: &Request) -> Result<(), Refused> {
        let changes = matches!(request.kind, Kind::Write | Kind::Trim | Kind::WriteZeroes);
        if changes && request.has(flag::FUA) { self.volume.flush().map_err(Refused::Failed) } else { Ok(()) }
    }

    fn answer(&self, request: &Request, done: Result<(), Refused>) -> io::Result<()> {
        match done {
            Ok(()) => self.replies.done(request),
            Err(Refused::Told(error, why)) => self.replies.error(request, error, why),
            Err(Refused::Failed(error)) => self.fail(request, &error),
        }
    }

    fn fail(&self, request: &Request, error: &zpl::Error) -> io::Result<()> {
        let (name, offset) = (self.volume.dataset().name(), request.offset);
        let what = request.kind;
        tracing::warn!(volume = name, offset, length = request.length, ?what, %error, "an NBD request failed");
        self.replies.error(request, errno_of(error), &error.to_string())
    }

    /// The next piece of the request's data from `at` on.
    fn piece(&self, request: &Request, at: u64) -> zpl::Result<Data> {
        let left = request.offset + u64::from(request.length) - at;
        let mut data = Data::new(at, left.min(PIECE as u64) as usize);
        self.volume.read(at, data.bytes())?;
        Ok(data)
    }

    fn read(&self, request: &Request) -> io::Result<()> {
        let end = request.offset + u64::from(request.length);
        let mut at = request.offset;
        if request.length == 0 {
            return self.replies.done(request);
        }
        let mut next = || {
            let data = self.piece(request, at)?;
            at = (at + PIECE as u64).min(end);
            Ok::<_, zpl::Error>((data, at == end))
        };
        if !self.replies.is_structured {
            let (first, mut is_last) = match next() {
                Ok(first) => first,
                Err(error) => return self.fail(request, &error),
            };
            return self.replies.whole(request, first, &mut || {
                if is_last {
                    return Ok(None);
                }
                let (data, last) = next().map_err(io::Error::other)?;
                is_last = last;
                Ok(Some(data))
            });
        }
        loop {
            match next() {
                Ok((data, is_last)) => {
                    self.replies.part(request, data, is_last)?;
                    if is_last {
                        return Ok(());
                    }
                }
                Err(error) => return self.fail(request, &error),
            }
        }
    }

    fn tell_extents(&self, request: &Request) -> io::Result<()> {
        let max = if request.has(flag::REQ_ONE) { 1 } else { EXTENTS_MAX };
        match self.volume.extents(request.offset, request.length.into(), max) {
            Ok(extents) => self.replies.status(request, &extents),
            Err(error) => self.fail(request, &error),
        }
    }
}

const UNKNOWN: Refused = Refused::Told(errno::INVAL, "this server does not know the request");

/// Why a request is not carried out.
enum Refused {
    /// It makes no sense.
    Told(u32, &'static str),
    /// It failed.
    Failed(zpl::Error),
}
