//! The numbers of the protocol, and the two fixed messages that clients send.

/// First words of a server.
pub(crate) const INIT: u64 = 0x4e42_444d_4147_4943;
/// Before each option, and second of the first words.
pub(crate) const OPTION: u64 = 0x4948_4156_454f_5054;
/// Before each reply to an option.
pub(crate) const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
/// Before each request.
pub(crate) const REQUEST: u32 = 0x2560_9513;
/// Before each simple reply.
pub(crate) const SIMPLE: u32 = 0x6744_6698;
/// Before each chunk of a structured reply.
pub(crate) const CHUNK: u32 = 0x668e_33ef;

/// Flags of the handshake, of both sides.
pub(crate) mod handshake {
    pub(crate) const FIXED_NEWSTYLE: u16 = 1;
    pub(crate) const NO_ZEROES: u16 = 2;
}

/// Options.
pub(crate) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
}

/// Replies to options.
pub(crate) mod answer {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    const ERROR: u32 = 1 << 31;
    pub(crate) const UNSUPPORTED: u32 = ERROR | 1;
    pub(crate) const POLICY: u32 = ERROR | 2;
    pub(crate) const INVALID: u32 = ERROR | 3;
    pub(crate) const TLS_REQUIRED: u32 = ERROR | 5;
    pub(crate) const UNKNOWN: u32 = ERROR | 6;
    pub(crate) const TOO_BIG: u32 = ERROR | 9;
}

/// The kinds of information in the answers to `INFO` and `GO`.
pub(crate) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// The abilities of an export.
pub(crate) mod can {
    pub(crate) const HAS_FLAGS: u16 = 1;
    pub(crate) const READ_ONLY: u16 = 1 << 1;
    pub(crate) const FLUSH: u16 = 1 << 2;
    pub(crate) const FUA: u16 = 1 << 3;
    pub(crate) const TRIM: u16 = 1 << 5;
    pub(crate) const WRITE_ZEROES: u16 = 1 << 6;
    pub(crate) const DF: u16 = 1 << 7;
    pub(crate) const MULTI_CONN: u16 = 1 << 8;
}

/// Flags of requests.
pub(crate) mod flag {
    /// The change is durable before the answer (FUA).
    pub(crate) const FUA: u16 = 1;
    /// Zeros are to take space.
    pub(crate) const NO_HOLE: u16 = 1 << 1;
    /// A read is answered in one chunk.
    pub(crate) const DF: u16 = 1 << 2;
    /// One extent is enough.
    pub(crate) const REQ_ONE: u16 = 1 << 3;
}

/// Types of chunks.
pub(crate) mod chunk {
    pub(crate) const DONE: u16 = 1;
    pub(crate) const NONE: u16 = 0;
    pub(crate) const OFFSET_DATA: u16 = 1;
    pub(crate) const BLOCK_STATUS: u16 = 5;
    pub(crate) const ERROR: u16 = (1 << 15) + 1;
}

/// Errors that clients know.
pub(crate) mod errno {
    pub(crate) const PERM: u32 = 1;
    pub(crate) const IO: u32 = 5;
    pub(crate) const INVAL: u32 = 22;
    pub(crate) const NOSPC: u32 = 28;
    pub(crate) const OVERFLOW: u32 = 75;
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    Disconnect,
    Flush,
    Trim,
    WriteZeroes,
    BlockStatus,
    /// A command that this server does not support.
    Other,
}

impl Kind {
    fn from_wire(number: u16) -> Kind {
        match number {
            0 => Kind::Read,
            1 => Kind::Write,
            2 => Kind::Disconnect,
            3 => Kind::Flush,
            4 => Kind::Trim,
            6 => Kind::WriteZeroes,
            7 => Kind::BlockStatus,
            _ => Kind::Other,
        }
    }

    /// Flags that a request of this kind may have.
    fn flags(self) -> u16 {
        match self {
            Kind::Read => flag::DF | flag::FUA,
            Kind::WriteZeroes => flag::FUA | flag::NO_HOLE,
            Kind::BlockStatus => flag::REQ_ONE | flag::FUA,
            Kind::Other => u16::MAX,
            _ => flag::FUA,
        }
    }
}

/// A request, without the data of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    pub(crate) flags: u16,
    /// The number by which the client knows the request.
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

/// Bytes of the largest request: the limit for clients that were given no size.
pub(crate) const REQUEST_MAX: u32 = 32 << 20;
/// Bytes of a request.
pub(crate) const REQUEST_SIZE: usize = 28;

impl Request {
    /// Reads a request; `None` if it does not begin as one.
    pub(crate) fn decode(raw: &[u8; REQUEST_SIZE]) -> Option<Request> {
        let short = |at: usize| u16::from_be_bytes([raw[at], raw[at + 1]]);
        let word = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| raw[at + i]));
        let half = |at: usize| u32::from_be_bytes(std::array::from_fn(|i| raw[at + i]));
        (half(0) == REQUEST).then(|| Request {
            flags: short(4),
            kind: Kind::from_wire(short(6)),
            cookie: word(8),
            offset: word(16),
            length: half(24),
        })
    }

    /// Whether its flags are known and belong to it.
    pub(crate) fn has_good_flags(&self) -> bool {
        self.flags & !self.kind.flags() == 0
    }

    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_by_its_places() {
        let mut raw = [0; REQUEST_SIZE];
        raw[..4].copy_from_slice(&REQUEST.to_be_bytes());
        raw[5] = 1;
        raw[7] = 1;
        raw[15] = 9;
        raw[23] = 7;
        raw[26] = 2;
        let request = Request::decode(&raw).unwrap();
        assert_eq!(
            request,
            Request { kind: Kind::Write, flags: flag::FUA, cookie: 9, offset: 7, length: 512 }
        );
        assert!(request.has_good_flags() && !Request { flags: flag::DF, ..request }.has_good_flags());
        raw[0] = 0;
        assert_eq!(Request::decode(&raw), None);
    }
}
