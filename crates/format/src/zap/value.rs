//! Keys and values of ZAP entries, independent of the layout that holds them.
//!
//! Source: docs/format/04-zap.md introduction, §3.2.

use alloc::vec::Vec;

use crate::{ByteOrder, Corrupt};

/// Largest value, in bytes (integers × width).
pub const MAX_VALUE: usize = 8192;
/// Longest string key in bytes, NUL excluded.
pub const MAX_NAME: usize = 255;
/// Longest string key in a directory with feature `longname`, NUL excluded.
pub const MAX_LONG_NAME: usize = 1023;

/// A key as the caller means it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key<'a> {
    /// A byte string without its NUL.
    Name(&'a [u8]),
    /// An array of integers (ZAPs with flag `UINT64_KEY`).
    Words(&'a [u64]),
}

impl<'a> Key<'a> {
    /// The bytes that leaf chunks hold: name and NUL, or big-endian words.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        match self {
            Key::Name(name) => [name, &[0]].concat(),
            Key::Words(words) => words.iter().flat_map(|word| word.to_be_bytes()).collect(),
        }
    }

    /// The name count of a leaf entry: bytes with the NUL, or words.
    #[must_use]
    pub fn count(self) -> usize {
        match self {
            Key::Name(name) => name.len() + 1,
            Key::Words(words) => words.len(),
        }
    }
}

impl<'a> From<&'a str> for Key<'a> {
    fn from(name: &'a str) -> Self {
        Key::Name(name.as_bytes())
    }
}

/// An array of integers, as fat ZAPs store it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    width: u8,
    data: Vec<u8>,
}

impl Value {
    /// Big-endian integers of `width` bytes back to back.
    ///
    /// # Errors
    /// When `width` isn't 1, 2, 4 or 8, or `data` holds a part of an integer.
    pub fn new(width: u8, data: Vec<u8>) -> Result<Value, Corrupt> {
        if !matches!(width, 1 | 2 | 4 | 8) {
            return Err(Corrupt::new("ZAP integer width", width.into()));
        }
        if !data.len().is_multiple_of(usize::from(width)) {
            return Err(Corrupt::new("ZAP value length", data.len() as u64));
        }
        Ok(Value { width, data })
    }

    /// One 8-byte integer.
    #[must_use]
    pub fn from_u64(value: u64) -> Value {
        Value::from_u64s(&[value])
    }

    /// 8-byte integers.
    #[must_use]
    pub fn from_u64s(values: &[u64]) -> Value {
        Value { width: 8, data: values.iter().flat_map(|v| v.to_be_bytes()).collect() }
    }

    /// 4-byte integers.
    #[must_use]
    pub fn from_u32s(values: &[u32]) -> Value {
        Value { width: 4, data: values.iter().flat_map(|v| v.to_be_bytes()).collect() }
    }

    /// 2-byte integers (SA layouts).
    #[must_use]
    pub fn from_u16s(values: &[u16]) -> Value {
        Value { width: 2, data: values.iter().flat_map(|v| v.to_be_bytes()).collect() }
    }

    /// 1-byte integers, as they are.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Value {
        Value { width: 1, data: bytes.to_vec() }
    }

    /// Text with the NUL that makes it a string value.
    #[must_use]
    pub fn from_text(text: &str) -> Value {
        Value { width: 1, data: [text.as_bytes(), &[0]].concat() }
    }

    /// Bytes of one integer.
    #[must_use]
    pub fn width(&self) -> u8 {
        self.width
    }

    /// Number of integers.
    #[must_use]
    pub fn count(&self) -> usize {
        self.data.len() / usize::from(self.width)
    }

    /// The big-endian integers.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// The first integer of an array of 8-byte integers.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        (self.width == 8 && !self.data.is_empty()).then(|| ByteOrder::Big.u64(&self.data, 0))
    }

    /// All integers, widened.
    #[must_use]
    pub fn to_u64s(&self) -> Vec<u64> {
        let widen = |raw: &[u8]| raw.iter().fold(0, |value, &byte| value << 8 | u64::from(byte));
        self.data.chunks_exact(self.width.into()).map(widen).collect()
    }

    /// The bytes of a value of 1-byte integers.
    #[must_use]
    pub fn as_bytes(&self) -> Option<&[u8]> {
        (self.width == 1).then_some(&self.data)
    }

    /// The text of a string value, up to its NUL.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        let bytes = self.as_bytes()?;
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        core::str::from_utf8(&bytes[..end]).ok()
    }

    /// Whether a micro ZAP can hold it: exactly one 8-byte integer.
    #[must_use]
    pub fn fits_micro(&self) -> bool {
        self.width == 8 && self.data.len() == 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_lie_big_endian() {
        assert_eq!(Value::from_u16s(&[5, 0x1234]).data(), [0, 5, 0x12, 0x34]);
        assert_eq!(Value::from_u16s(&[5, 0x1234]).to_u64s(), [5, 0x1234]);
        assert_eq!(Value::from_u64s(&[7, 9]).as_u64(), Some(7));
        assert_eq!(Key::Words(&[1]).to_bytes(), [0, 0, 0, 0, 0, 0, 0, 1]);
    }

    #[test]
    fn text_carries_its_nul() {
        assert_eq!(Value::from_text("log").count(), 4);
        assert_eq!(Value::from_text("log").as_text(), Some("log"));
        assert_eq!(Value::from_u64(1).as_text(), None);
    }

    #[test]
    fn odd_widths_and_parts_of_integers_are_refused() {
        assert!(Value::new(3, Vec::new()).is_err());
        assert!(Value::new(8, Vec::from([0; 12])).is_err());
    }
}
