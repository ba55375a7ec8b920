//! Calls of a client of NFS version 3, as bytes, for tests.
#![allow(dead_code, reason = "each test uses a part of it")]

pub const NFS: u32 = 100_003;
pub const MOUNT: u32 = 100_005;
pub const GETATTR: u32 = 1;
pub const SETATTR: u32 = 2;
pub const LOOKUP: u32 = 3;
pub const ACCESS: u32 = 4;
pub const READ: u32 = 6;
pub const WRITE: u32 = 7;
pub const CREATE: u32 = 8;
pub const MKDIR: u32 = 9;
pub const REMOVE: u32 = 12;
pub const RENAME: u32 = 14;
pub const LINK: u32 = 15;
pub const READDIR: u32 = 16;
pub const READDIRPLUS: u32 = 17;
pub const COMMIT: u32 = 21;

/// Arguments and results: words and strings of XDR.
#[derive(Default)]
pub struct Words(pub Vec<u8>);

impl Words {
    pub fn u32(mut self, word: u32) -> Words {
        self.0.extend(word.to_be_bytes());
        self
    }

    pub fn u64(mut self, word: u64) -> Words {
        self.0.extend(word.to_be_bytes());
        self
    }

    pub fn bytes(mut self, bytes: &[u8]) -> Words {
        self = self.u32(bytes.len() as u32);
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Attributes to set: a mode and nothing else.
    pub fn mode(self, mode: u32) -> Words {
        self.u32(1).u32(mode).u32(0).u32(0).u32(0).u32(0).u32(0)
    }
}

/// A reply, and how much of it was read.
pub struct Answer(pub Vec<u8>, pub usize);

impl Answer {
    pub fn u32(&mut self) -> u32 {
        self.1 += 4;
        u32::from_be_bytes(self.0[self.1 - 4..self.1].try_into().unwrap())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from(self.u32()) << 32 | u64::from(self.u32())
    }

    pub fn bytes(&mut self) -> Vec<u8> {
        let len = self.u32() as usize;
        let bytes = self.0[self.1..self.1 + len].to_vec();
        self.1 += len.next_multiple_of(4);
        bytes
    }

    pub fn skip(&mut self, len: usize) {
        self.1 += len;
    }

    /// Attributes that may be there: mode, size.
    pub fn attributes(&mut self) -> Option<(u32, u64)> {
        if self.u32() == 0 {
            return None;
        }
        self.skip(4);
        let mode = self.u32();
        self.skip(12);
        let size = self.u64();
        self.skip(84 - 28);
        Some((mode, size))
    }
}

/// Arguments that begin with a directory and a name in it.
pub fn at(dir: &[u8], name: &str) -> Words {
    Words::default().bytes(dir).bytes(name.as_bytes())
}

/// A call of a procedure, by a user.
pub struct Call {
    pub number: u32,
    pub program: u32,
    pub procedure: u32,
    pub uid: u32,
}

impl Call {
    pub fn message(&self, arguments: &Words) -> Vec<u8> {
        let user = Words::default().u32(0).bytes(b"test").u32(self.uid).u32(self.uid).u32(0);
        let call = Words::default().u32(self.number).u32(0).u32(2).u32(self.program).u32(3);
        let mut call = call.u32(self.procedure).u32(1).bytes(&user.0).u32(0).u32(0).0;
        call.extend(&arguments.0);
        call
    }
}

/// A message as it is sent: one fragment, its length before it.
pub fn record(message: &[u8]) -> Vec<u8> {
    [&(1u32 << 31 | message.len() as u32).to_be_bytes()[..], message].concat()
}
