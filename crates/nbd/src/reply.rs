//! Answers to requests, in the form that the client has asked for.

use std::io::{self, Write};

use zpl::Extent;
use zpl::rank::{MutexHeld, Rank, RankedMutex};

use crate::context::{HOLE, ID};
use crate::protocol::{CHUNK, Request, SIMPLE, chunk, errno};
use crate::stream::Stream;

/// Bytes before the data of a chunk: its head, and where the data begins.
const CHUNK_HEAD: usize = 28;
/// Bytes of a simple reply.
const SIMPLE_HEAD: usize = 16;

/// The writing side of a connection.
pub(crate) struct Replies {
    stream: RankedMutex<Stream>,
    pub(crate) is_structured: bool,
}

fn chunk_head(cookie: u64, flags: u16, kind: u16, length: u32) -> [u8; 20] {
    let mut head = [0; 20];
    head[..4].copy_from_slice(&CHUNK.to_be_bytes());
    head[4..6].copy_from_slice(&flags.to_be_bytes());
    head[6..8].copy_from_slice(&kind.to_be_bytes());
    head[8..16].copy_from_slice(&cookie.to_be_bytes());
    head[16..].copy_from_slice(&length.to_be_bytes());
    head
}

fn simple_head(cookie: u64, error: u32) -> [u8; SIMPLE_HEAD] {
    let mut head = [0; SIMPLE_HEAD];
    head[..4].copy_from_slice(&SIMPLE.to_be_bytes());
    head[4..8].copy_from_slice(&error.to_be_bytes());
    head[8..].copy_from_slice(&cookie.to_be_bytes());
    head
}

/// Data that is read for a client, with room for the head before it, so that both are sent at once.
pub(crate) struct Data {
    raw: Vec<u8>,
    offset: u64,
}

impl Data {
    /// Room for `length` bytes from `offset` on.
    pub(crate) fn new(offset: u64, length: usize) -> Data {
        Data { raw: vec![0; CHUNK_HEAD + length], offset }
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.raw[CHUNK_HEAD..]
    }
}

impl Replies {
    pub(crate) fn new(stream: Stream, is_structured: bool) -> Replies {
        Replies { stream: RankedMutex::new(Rank::Replies, stream), is_structured }
    }

    fn stream(&self) -> MutexHeld<'_, Stream> {
        self.stream.lock()
    }

    fn send(&self, raw: &[u8]) -> io::Result<()> {
        (&*self.stream()).write_all(raw)
    }

    /// The request is done.
    pub(crate) fn done(&self, request: &Request) -> io::Result<()> {
        match self.is_structured {
            true => self.send(&chunk_head(request.cookie, chunk::DONE, chunk::NONE, 0)),
            false => self.send(&simple_head(request.cookie, 0)),
        }
    }

    /// The request failed.
    pub(crate) fn error(&self, request: &Request, error: u32, why: &str) -> io::Result<()> {
        if !self.is_structured {
            return self.send(&simple_head(request.cookie, error));
        }
        let why = &why.as_bytes()[..why.len().min(1 << 10)];
        let head = chunk_head(request.cookie, chunk::DONE, chunk::ERROR, 6 + why.len() as u32);
        let mut raw = head.to_vec();
        raw.extend(error.to_be_bytes());
        raw.extend((why.len() as u16).to_be_bytes());
        raw.extend(why);
        self.send(&raw)
    }

    /// A part of the requested data, as a chunk.
    pub(crate) fn part(&self, request: &Request, mut data: Data, is_last: bool) -> io::Result<()> {
        let flags = if is_last { chunk::DONE } else { 0 };
        let length = (data.raw.len() - CHUNK_HEAD + 8) as u32;
        let head = chunk_head(request.cookie, flags, chunk::OFFSET_DATA, length);
        data.raw[..20].copy_from_slice(&head);
        data.raw[20..CHUNK_HEAD].copy_from_slice(&data.offset.to_be_bytes());
        self.send(&data.raw)
    }

    /// A simple reply with data: `first`, and then the results of `next`. No other reply comes between. An error of
    /// `next` cannot be reported to the client any more, so it ends the connection.
    pub(crate) fn whole(
        &self,
        request: &Request,
        mut first: Data,
        next: &mut dyn FnMut() -> io::Result<Option<Data>>,
    ) -> io::Result<()> {
        let from = CHUNK_HEAD - SIMPLE_HEAD;
        first.raw[from..CHUNK_HEAD].copy_from_slice(&simple_head(request.cookie, 0));
        let stream = self.stream();
        (&*stream).write_all(&first.raw[from..])?;
        while let Some(mut data) = next()? {
            (&*stream).write_all(data.bytes())?;
        }
        Ok(())
    }

    /// Where there is data and where there are holes.
    pub(crate) fn status(&self, request: &Request, extents: &[Extent]) -> io::Result<()> {
        let length = 4 + 8 * extents.len() as u32;
        let mut raw = chunk_head(request.cookie, chunk::DONE, chunk::BLOCK_STATUS, length).to_vec();
        raw.extend(ID.to_be_bytes());
        for extent in extents {
            // A request is no longer than that, and its extents neither.
            raw.extend((extent.length as u32).to_be_bytes());
            raw.extend(if extent.is_hole { HOLE } else { 0 }.to_be_bytes());
        }
        self.send(&raw)
    }
}

/// The protocol's error number for an error.
pub(crate) fn errno_of(error: &zpl::Error) -> u32 {
    match error {
        zpl::Error::NoSpace | zpl::Error::Quota => errno::NOSPC,
        zpl::Error::ReadOnly(_) | zpl::Error::Denied | zpl::Error::NotPermitted => errno::PERM,
        zpl::Error::Invalid => errno::INVAL,
        _ => errno::IO,
    }
}
