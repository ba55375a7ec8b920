//! Messages on a TCP connection: each has one or more fragments, with their lengths in front.
//!
//! Source: RFC 5531 §11.

use std::io::{self, Read};

/// Maximal bytes of a message: a write of [`crate::contents::DATA_MAX`] and the head of the call.
const RECORD_MAX: usize = crate::contents::DATA_MAX + (8 << 10);
/// Maximal fragments of a message.
const FRAGMENTS_MAX: usize = 64;
/// Bytes by which the buffer grows while the message arrives, so that a length alone takes no memory.
const STEP: u64 = 256 << 10;
/// Set in the length of a message's last fragment.
pub(crate) const LAST: u32 = 1 << 31;

fn nonsense(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Reads a message into `record`; `first` are the first bytes of its first length.
pub(crate) fn read(reader: &mut impl Read, first: [u8; 1], record: &mut Vec<u8>) -> io::Result<()> {
    record.clear();
    let mut word = [first[0], 0, 0, 0];
    reader.read_exact(&mut word[1..])?;
    for _ in 0..FRAGMENTS_MAX {
        let mark = u32::from_be_bytes(word);
        let len = (mark & !LAST) as usize;
        if len > RECORD_MAX - record.len() {
            return Err(nonsense("a message is longer than any may be"));
        }
        let mut left = len as u64;
        while left > 0 {
            let step = left.min(STEP);
            let got = reader.by_ref().take(step).read_to_end(record)? as u64;
            if got != step {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            left -= step;
        }
        if mark & LAST != 0 {
            return Ok(());
        }
        reader.read_exact(&mut word)?;
    }
    Err(nonsense("the message has too many fragments"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut record = vec![9];
        read(&mut &bytes[1..], [bytes[0]], &mut record).map(|()| record)
    }

    #[test]
    fn fragments_are_one_message() {
        assert_eq!(read_all(&[0, 0, 0, 2, 1, 2, 0x80, 0, 0, 1, 3]).unwrap(), [1, 2, 3]);
        assert_eq!(read_all(&[0x80, 0, 0, 0]).unwrap(), [0u8; 0]);
    }

    #[test]
    fn messages_without_end_are_refused() {
        assert_eq!(read_all(&[0xff; 64]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(read_all(&[0; 4096]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(read_all(&[0x80, 0, 0, 9, 1]).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
