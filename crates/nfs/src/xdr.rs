//! XDR: numbers and byte strings in units of four bytes.
//!
//! From:   a whole message of a client.
//! To:     `rpc` and the procedures.
//! Source: RFC 4506.

/// Bytes that the protocol does not allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Garbage;

/// Bytes that fill `len` up to whole units.
const fn padding(len: usize) -> usize {
    (4 - len % 4) % 4
}

/// Reads values one after the other. Any bytes give values or [`Garbage`].
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Garbage> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(Garbage)?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Garbage> {
        let (word, rest) = self.rest.split_first_chunk().ok_or(Garbage)?;
        self.rest = rest;
        Ok(u32::from_be_bytes(*word))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Garbage> {
        let (word, rest) = self.rest.split_first_chunk().ok_or(Garbage)?;
        self.rest = rest;
        Ok(u64::from_be_bytes(*word))
    }

    pub(crate) fn bool(&mut self) -> Result<bool, Garbage> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Garbage),
        }
    }

    /// An optional value.
    pub(crate) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Reader<'a>) -> Result<T, Garbage>,
    ) -> Result<Option<T>, Garbage> {
        if self.bool()? { read(self).map(Some) } else { Ok(None) }
    }

    /// Bytes with their length in front: at most `max`.
    pub(crate) fn bytes(&mut self, max: usize) -> Result<&'a [u8], Garbage> {
        let len = self.u32()? as usize;
        if len > max {
            return Err(Garbage);
        }
        let bytes = self.take(len)?;
        self.take(padding(len))?;
        Ok(bytes)
    }
}

/// Writes values one after the other.
#[derive(Default)]
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The bytes that were written.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Removes everything from `len` on.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.bytes.truncate(len);
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes.extend(value.to_be_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes.extend(value.to_be_bytes());
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.u32(value.into());
    }

    /// Bytes without a length.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Writes over the word at `at`.
    pub(crate) fn set_u32(&mut self, at: usize, value: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }

    /// Bytes with their length in front. Messages are far shorter than 4 GiB.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.bytes.extend(bytes);
        self.bytes.resize(self.bytes.len() + padding(bytes.len()), 0);
    }

    /// Bytes with their length in front, `max` of them at most: `fill` writes them into the message and says how many.
    pub(crate) fn fill<E>(
        &mut self,
        max: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let at = self.bytes.len();
        self.bytes.resize(at + 4 + max, 0);
        let len = fill(&mut self.bytes[at + 4..])?;
        assert!(len <= max, "no more bytes are there than there is room for");
        self.set_u32(at, len as u32);
        self.bytes.truncate(at + 4 + len);
        self.bytes.resize(self.bytes.len() + padding(len), 0);
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_xdr_reader_reads_back_what_the_writer_wrote() {
        let mut out = Writer::default();
        out.u32(7);
        out.u64(1 << 40);
        out.bool(true);
        for bytes in [&b""[..], b"a", b"abcd", b"abcde"] {
            out.bytes(bytes);
        }
        let filled: Result<usize, ()> = out.fill(100, |room| {
            room[..3].copy_from_slice(b"xyz");
            Ok(3)
        });
        assert_eq!((filled, out.len() % 4), (Ok(3), 0));
        let mut reader = Reader::new(out.as_bytes());
        assert_eq!((reader.u32(), reader.u64(), reader.bool()), (Ok(7), Ok(1 << 40), Ok(true)));
        for bytes in [&b""[..], b"a", b"abcd", b"abcde", b"xyz"] {
            assert_eq!(reader.bytes(5), Ok(bytes));
        }
        assert!(reader.rest.is_empty());
        assert_eq!(reader.u32(), Err(Garbage));
    }

    #[test]
    fn a_length_beyond_the_message_or_the_limit_is_garbage() {
        assert_eq!(Reader::new(&[0, 0, 0, 9, 1]).bytes(100), Err(Garbage));
        assert_eq!(Reader::new(&[0, 0, 0, 1, 1]).bytes(100), Err(Garbage));
        assert_eq!(Reader::new(&[0, 0, 0, 4, 1, 2, 3, 4]).bytes(3), Err(Garbage));
        assert_eq!(Reader::new(&[0, 0, 0, 2]).bool(), Err(Garbage));
    }
}
