//! A client of NBD that keeps to the protocol, for tests.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

/// Before each option.
pub const OPTION: u64 = 0x4948_4156_454f_5054;
/// The flag of a change that is durable before the answer.
pub const FUA: u16 = 1;

/// A string with its length before it.
pub fn text(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text].concat()
}

/// The data of the option `GO`.
pub fn go(name: &[u8]) -> Vec<u8> {
    [&text(name), &[0, 0][..]].concat()
}

/// One end of a connection.
pub struct Client<S = UnixStream> {
    pub stream: S,
    /// Replies come in chunks.
    pub structured: bool,
    /// The abilities of the export.
    pub flags: u16,
    /// Bytes of the export.
    pub size: u64,
    /// The number of the next request.
    pub cookie: u64,
}

impl<S: Read + Write> Client<S> {
    pub fn new(stream: S, structured: bool) -> Client<S> {
        Client { stream, structured, flags: 0, size: 0, cookie: 77 }
    }

    /// Agrees on how to talk, and begins to use the volume.
    pub fn begin(&mut self) {
        self.begin_as(b"tank/vol").unwrap();
    }

    /// As [`Client::begin`], of the export `name`. The text of an error is the server's.
    pub fn begin_as(&mut self, name: &[u8]) -> Result<(), String> {
        if self.structured {
            assert_eq!(self.option(8, &[]).0, 1);
            let mut query = text(b"");
            query.extend(1u32.to_be_bytes());
            query.extend(text(b"base:allocation"));
            let (kind, data) = self.option(10, &query);
            assert!(kind == 4 && data.ends_with(b"base:allocation"));
            assert_eq!(self.option_reply().0, 1);
        }
        let (kind, data) = self.option(7, &go(name));
        if kind >> 31 == 1 {
            return Err(String::from_utf8(data).unwrap());
        }
        assert!(kind == 3 && data[..2] == [0, 0], "{kind} {data:?}");
        self.size = u64::from_be_bytes(data[2..10].try_into().unwrap());
        self.flags = u16::from_be_bytes(data[10..12].try_into().unwrap());
        while self.option_reply().0 != 1 {}
        Ok(())
    }

    /// Answers the greeting of the server.
    pub fn hello(&mut self) {
        let mut first = [0; 18];
        self.stream.read_exact(&mut first).unwrap();
        assert_eq!(&first[..8], b"NBDMAGIC");
        self.stream.write_all(&3u32.to_be_bytes()).unwrap();
    }

    /// Sends an option and returns the first reply.
    pub fn option(&mut self, option: u32, data: &[u8]) -> (u32, Vec<u8>) {
        let mut raw = OPTION.to_be_bytes().to_vec();
        raw.extend(option.to_be_bytes());
        raw.extend((data.len() as u32).to_be_bytes());
        raw.extend(data);
        self.stream.write_all(&raw).unwrap();
        self.option_reply()
    }

    /// The kind and the data of the next reply to an option.
    pub fn option_reply(&mut self) -> (u32, Vec<u8>) {
        let mut head = [0; 20];
        self.stream.read_exact(&mut head).unwrap();
        let mut data = vec![0; u32::from_be_bytes(head[16..].try_into().unwrap()) as usize];
        self.stream.read_exact(&mut data).unwrap();
        (u32::from_be_bytes(head[12..16].try_into().unwrap()), data)
    }

    /// Sends a request.
    pub fn send(&mut self, kind: u16, flags: u16, (offset, length): (u64, u32), data: &[u8]) {
        let mut raw = 0x2560_9513u32.to_be_bytes().to_vec();
        raw.extend(flags.to_be_bytes());
        raw.extend(kind.to_be_bytes());
        raw.extend(self.cookie.to_be_bytes());
        raw.extend(offset.to_be_bytes());
        raw.extend(length.to_be_bytes());
        raw.extend(data);
        self.stream.write_all(&raw).unwrap();
    }

    /// The reply to one request that is under way: an error, or what it gives. `room` bytes are wanted.
    pub fn reply(&mut self, from: u64, room: usize) -> Result<Vec<u8>, u32> {
        let mut found = vec![0xee; room];
        if !self.structured {
            let mut head = [0; 16];
            self.stream.read_exact(&mut head).unwrap();
            assert_eq!(u32::from_be_bytes(head[..4].try_into().unwrap()), 0x6744_6698);
            assert_eq!(u64::from_be_bytes(head[8..16].try_into().unwrap()), self.cookie);
            match u32::from_be_bytes(head[4..8].try_into().unwrap()) {
                0 => self.stream.read_exact(&mut found).unwrap(),
                error => return Err(error),
            }
            return Ok(found);
        }
        let mut failed = None;
        loop {
            let mut head = [0; 20];
            self.stream.read_exact(&mut head).unwrap();
            assert_eq!(u32::from_be_bytes(head[..4].try_into().unwrap()), 0x668e_33ef);
            assert_eq!(u64::from_be_bytes(head[8..16].try_into().unwrap()), self.cookie);
            let mut data = vec![0; u32::from_be_bytes(head[16..].try_into().unwrap()) as usize];
            self.stream.read_exact(&mut data).unwrap();
            match u16::from_be_bytes([head[6], head[7]]) {
                0 => {}
                1 => {
                    let at = (u64::from_be_bytes(data[..8].try_into().unwrap()) - from) as usize;
                    found[at..at + data.len() - 8].copy_from_slice(&data[8..]);
                }
                5 => found = data[4..].to_vec(),
                0x8001 => failed = Some(u32::from_be_bytes(data[..4].try_into().unwrap())),
                other => panic!("chunk {other}"),
            }
            if head[5] & 1 != 0 {
                return failed.map_or(Ok(found), Err);
            }
        }
    }

    pub fn read(&mut self, offset: u64, length: u32) -> Result<Vec<u8>, u32> {
        self.send(0, 0, (offset, length), &[]);
        self.reply(offset, length as usize)
    }

    pub fn write(&mut self, offset: u64, data: &[u8], flags: u16) -> Result<(), u32> {
        self.send(1, flags, (offset, data.len() as u32), data);
        self.reply(0, 0).map(drop)
    }

    pub fn ask(&mut self, kind: u16, flags: u16, range: (u64, u32)) -> Result<(), u32> {
        self.send(kind, flags, range, &[]);
        self.reply(0, 0).map(drop)
    }

    pub fn extents(&mut self, range: (u64, u32), flags: u16) -> Result<Vec<(u32, u32)>, u32> {
        self.send(7, flags, range, &[]);
        let raw = self.reply(0, 0)?;
        let word = |at: &[u8]| u32::from_be_bytes(at.try_into().unwrap());
        Ok(raw.chunks(8).map(|pair| (word(&pair[..4]), word(&pair[4..]))).collect())
    }
}
