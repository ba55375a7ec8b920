//! An entry: its hash, its name, its value, and the chunks they lie in.

use alloc::vec::Vec;

use super::{ARRAY, ARRAY_BYTES, Entry, LE, NIL};
use crate::zap::cursor::Position;
use crate::zap::value::{Key, Value};
use crate::{ByteOrder, Corrupt};

impl<'a> Entry<'a> {
    /// Place in the iteration order.
    #[must_use]
    pub fn position(&self) -> Position {
        Position { hash: self.hash, cd: self.cd }
    }

    /// The string key without its NUL.
    ///
    /// # Errors
    /// [`Corrupt`] when its chain is damaged or it does not end in NUL.
    pub fn name(&self) -> Result<Vec<u8>, Corrupt> {
        let mut name = self.leaf.array_bytes(self.name_chunk, self.name_count.into())?;
        match name.pop() {
            Some(0) => Ok(name),
            _ => Err(Corrupt::new("ZAP name without end, of length", self.name_count.into())),
        }
    }

    /// The integer key.
    ///
    /// # Errors
    /// [`Corrupt`] when its chain is damaged.
    pub fn words(&self) -> Result<Vec<u64>, Corrupt> {
        let bytes = self.leaf.array_bytes(self.name_chunk, usize::from(self.name_count) * 8)?;
        Ok(bytes.chunks_exact(8).map(|word| ByteOrder::Big.u64(word, 0)).collect())
    }

    /// The value.
    ///
    /// # Errors
    /// [`Corrupt`] when its chain is damaged.
    pub fn value(&self) -> Result<Value, Corrupt> {
        Value::new(self.width, self.leaf.array_bytes(self.value_chunk, self.value_len())?)
    }

    /// The first integer of a value of 8-byte integers: what directories and object maps hold.
    ///
    /// # Errors
    /// [`Corrupt`] when the value is of another kind or its chain is damaged.
    pub fn value_u64(&self) -> Result<u64, Corrupt> {
        if self.width != 8 || self.value_count == 0 {
            return Err(Corrupt::new("width of a ZAP value that should be one u64", self.width.into()));
        }
        let mut word = 0;
        for part in self.leaf.array(self.value_chunk, 8) {
            word = part?.1.iter().fold(word, |word, &byte| word << 8 | u64::from(byte));
        }
        Ok(word)
    }

    /// Bytes of one integer of the value.
    #[must_use]
    pub fn width(&self) -> u8 {
        self.width
    }

    /// Number of integers of the value.
    #[must_use]
    pub fn value_count(&self) -> usize {
        self.value_count.into()
    }

    fn value_len(&self) -> usize {
        usize::from(self.value_count) * usize::from(self.width)
    }

    pub(super) fn has_key(&self, key: Key<'_>, wanted: &[u8]) -> Result<bool, Corrupt> {
        if usize::from(self.name_count) != key.count() {
            return Ok(false);
        }
        let mut rest = wanted;
        for part in self.leaf.array(self.name_chunk, wanted.len()) {
            let (here, after) = rest.split_at(rest.len().min(ARRAY_BYTES));
            if part?.1 != here {
                return Ok(false);
            }
            rest = after;
        }
        Ok(true)
    }

    /// The chunks of the name, to the end of their chain. (Whether the name is text or words, and so its
    /// length in bytes, is known to the header alone.)
    pub(super) fn name_chain(&self) -> Result<Vec<u16>, Corrupt> {
        let mut chain = Vec::with_capacity(1);
        let mut next = self.name_chunk;
        while next != NIL {
            if chain.len() == self.leaf.chunks() {
                return Err(Corrupt::new("endless ZAP leaf chain at chunk", next.into()));
            }
            chain.push(next);
            next = LE.u16(self.leaf.chunk(next, ARRAY)?, 22);
        }
        let count = usize::from(self.name_count);
        if ![count, count * 8].iter().any(|bytes| bytes.div_ceil(ARRAY_BYTES) == chain.len()) || count == 0 {
            return Err(Corrupt::new("ZAP name length", count as u64));
        }
        Ok(chain)
    }

    /// Appends the chunks of this entry: itself, its name, its value.
    pub(super) fn chunks(&self, into: &mut Vec<u16>) -> Result<(), Corrupt> {
        into.push(self.chunk);
        into.extend(self.name_chain()?);
        self.value_chunks(into)
    }

    pub(super) fn value_chunks(&self, into: &mut Vec<u16>) -> Result<(), Corrupt> {
        for part in self.leaf.array(self.value_chunk, self.value_len()) {
            into.push(part?.0);
        }
        Ok(())
    }
}
