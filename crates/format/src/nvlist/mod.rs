//! Name/value lists: the self-describing records of labels, pool configs, history and streams.
//!
//! From:   packed bytes (labels, packed-nvlist objects, history records, stream headers).
//! To:     `config` and all callers that look values up by name. A decoded list encodes to the same bytes.
//! Source: docs/format/01-labels-uberblock.md §3.
//!
//! Names and strings are bytes: paths and properties need not be UTF-8.

use alloc::{string::String, vec::Vec};
use core::fmt;

use crate::{ByteOrder, Corrupt};

mod kind;
mod native;
mod xdr;

/// Lists within lists that are followed before input is refused.
pub const MAX_DEPTH: u32 = 100;
/// Longest name, in bytes: its length with the final NUL is an `i16` in the native form.
pub const MAX_NAME: usize = i16::MAX as usize - 1;

/// Flag of a list whose names are unique: what OpenZFS uses on disk.
const UNIQUE_NAME: u32 = 1;

/// One value.
#[derive(Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are those of the types of an nvlist")]
pub enum NvValue {
    /// The name alone is the message.
    Boolean,
    Byte(u8),
    Int16(i16),
    Uint16(u16),
    Int32(i32),
    Uint32(u32),
    Int64(i64),
    Uint64(u64),
    /// Bytes without NUL.
    String(Vec<u8>),
    ByteArray(Vec<u8>),
    Int16Array(Vec<i16>),
    Uint16Array(Vec<u16>),
    Int32Array(Vec<i32>),
    Uint32Array(Vec<u32>),
    Int64Array(Vec<i64>),
    Uint64Array(Vec<u64>),
    /// Each without NUL.
    StringArray(Vec<Vec<u8>>),
    /// Nanoseconds.
    Hrtime(i64),
    List(NvList),
    ListArray(Vec<NvList>),
    BooleanValue(bool),
    Int8(i8),
    Uint8(u8),
    BooleanArray(Vec<bool>),
    Int8Array(Vec<i8>),
    Uint8Array(Vec<u8>),
    /// The bits of an IEEE 754 double.
    Double(u64),
}

/// A list of named values, in order.
#[derive(Clone, PartialEq, Eq)]
pub struct NvList {
    flag: u32,
    pairs: Vec<(Vec<u8>, NvValue)>,
}

impl Default for NvList {
    fn default() -> Self {
        NvList::new()
    }
}

impl NvList {
    /// An empty list with unique names.
    #[must_use]
    pub const fn new() -> NvList {
        NvList { flag: UNIQUE_NAME, pairs: Vec::new() }
    }

    /// Decodes a packed list; bytes after its end are ignored.
    ///
    /// # Errors
    /// [`Corrupt`] when the bytes are no list that OpenZFS reads.
    pub fn decode(raw: &[u8]) -> Result<NvList, Corrupt> {
        NvList::decode_prefix(raw).map(|(list, _)| list)
    }

    /// Decodes a packed list. Also returns its length in bytes with the header.
    ///
    /// # Errors
    /// As [`NvList::decode`].
    pub fn decode_prefix(raw: &[u8]) -> Result<(NvList, usize), Corrupt> {
        let mut input = Input { rest: raw };
        let header = input.take(4)?;
        let order = match header[1] {
            0 => ByteOrder::Big,
            1 => ByteOrder::Little,
            other => return Err(Corrupt::new("nvlist byte order", other.into())),
        };
        let list = match header[0] {
            0 => native::decode(&mut input, order)?,
            1 => xdr::decode_body(&mut input, 0)?,
            other => return Err(Corrupt::new("nvlist encoding", other.into())),
        };
        Ok((list, raw.len() - input.rest.len()))
    }

    /// Packs the list in the XDR encoding, header included: labels, configs, streams.
    #[must_use]
    pub fn to_xdr(&self) -> Vec<u8> {
        let mut out = Vec::from([1, 1, 0, 0]);
        xdr::encode_body(self, &mut out);
        out
    }

    /// Packs the list in the native little-endian encoding, header included: history records.
    #[must_use]
    pub fn to_native(&self) -> Vec<u8> {
        let mut out = Vec::from([0, 1, 0, 0]);
        native::encode(self, &mut out);
        out
    }

    /// Pairs in the list.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether there is no pair.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The pairs in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &NvValue)> {
        self.pairs.iter().map(|(name, value)| (name.as_slice(), value))
    }

    /// The value called `name`.
    #[must_use]
    pub fn get(&self, name: impl AsRef<[u8]>) -> Option<&NvValue> {
        let name = name.as_ref();
        self.pairs.iter().find(|(n, _)| n == name).map(|(_, value)| value)
    }

    /// Whether there is a value called `name`, of any type.
    #[must_use]
    pub fn contains(&self, name: impl AsRef<[u8]>) -> bool {
        self.get(name).is_some()
    }

    /// The number called `name`; `None` for another type too, as with all typed getters.
    #[must_use]
    pub fn get_u64(&self, name: impl AsRef<[u8]>) -> Option<u64> {
        match self.get(name)? {
            NvValue::Uint64(value) => Some(*value),
            _ => None,
        }
    }

    /// The array of numbers called `name`.
    #[must_use]
    pub fn get_u64s(&self, name: impl AsRef<[u8]>) -> Option<&[u64]> {
        match self.get(name)? {
            NvValue::Uint64Array(values) => Some(values),
            _ => None,
        }
    }

    /// The bytes of the string called `name`.
    #[must_use]
    pub fn get_bytes(&self, name: impl AsRef<[u8]>) -> Option<&[u8]> {
        match self.get(name)? {
            NvValue::String(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The string called `name`, if it is UTF-8.
    #[must_use]
    pub fn get_str(&self, name: impl AsRef<[u8]>) -> Option<&str> {
        core::str::from_utf8(self.get_bytes(name)?).ok()
    }

    /// The list called `name`.
    #[must_use]
    pub fn get_list(&self, name: impl AsRef<[u8]>) -> Option<&NvList> {
        match self.get(name)? {
            NvValue::List(list) => Some(list),
            _ => None,
        }
    }

    /// The lists called `name`.
    #[must_use]
    pub fn get_lists(&self, name: impl AsRef<[u8]>) -> Option<&[NvList]> {
        match self.get(name)? {
            NvValue::ListArray(lists) => Some(lists),
            _ => None,
        }
    }

    /// Puts `value` under `name`: in the place of a value already called so, else at the end.
    ///
    /// # Panics
    /// If the name is longer than [`MAX_NAME`], or it or a string holds a NUL byte.
    pub fn insert(&mut self, name: impl AsRef<[u8]>, value: impl Into<NvValue>) {
        let (name, value) = (name.as_ref(), value.into());
        assert!(name.len() <= MAX_NAME && !name.contains(&0), "names are short and without NUL");
        match &value {
            NvValue::String(bytes) => assert!(!bytes.contains(&0), "strings have no NUL"),
            NvValue::StringArray(all) => {
                assert!(all.iter().all(|bytes| !bytes.contains(&0)), "strings have no NUL");
            }
            _ => {}
        }
        match self.pairs.iter_mut().find(|(n, _)| n == name) {
            Some(pair) => pair.1 = value,
            None => self.pairs.push((name.to_vec(), value)),
        }
    }

    /// Takes the value called `name` out.
    pub fn remove(&mut self, name: impl AsRef<[u8]>) -> Option<NvValue> {
        let at = self.pairs.iter().position(|(n, _)| n == name.as_ref())?;
        Some(self.pairs.remove(at).1)
    }

    /// A list from what a decoder read; refuses a name that occurs twice where names are unique.
    fn from_input(flag: u32, pairs: Vec<(Vec<u8>, NvValue)>) -> Result<NvList, Corrupt> {
        if flag & UNIQUE_NAME != 0 {
            let mut names: Vec<&[u8]> = pairs.iter().map(|(name, _)| name.as_slice()).collect();
            names.sort_unstable();
            if names.windows(2).any(|two| two[0] == two[1]) {
                return Err(Corrupt::new("nvlist with a repeated name, pairs", pairs.len() as u64));
            }
        }
        Ok(NvList { flag, pairs })
    }
}

impl<'a> FromIterator<(&'a str, NvValue)> for NvList {
    fn from_iter<I: IntoIterator<Item = (&'a str, NvValue)>>(pairs: I) -> NvList {
        let mut list = NvList::new();
        pairs.into_iter().for_each(|(name, value)| list.insert(name, value));
        list
    }
}

impl fmt::Debug for NvList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.iter().map(|(name, value)| (String::from_utf8_lossy(name), value)))
            .finish()
    }
}

impl fmt::Debug for NvValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use NvValue::*;
        match self {
            Boolean => f.write_str("Boolean"),
            Byte(v) => v.fmt(f),
            Int16(v) => v.fmt(f),
            Uint16(v) => v.fmt(f),
            Int32(v) => v.fmt(f),
            Uint32(v) => v.fmt(f),
            Int64(v) | Hrtime(v) => v.fmt(f),
            Uint64(v) => v.fmt(f),
            Double(bits) => f64::from_bits(*bits).fmt(f),
            String(v) => alloc::string::String::from_utf8_lossy(v).fmt(f),
            ByteArray(v) | Uint8Array(v) => v.fmt(f),
            Int16Array(v) => v.fmt(f),
            Uint16Array(v) => v.fmt(f),
            Int32Array(v) => v.fmt(f),
            Uint32Array(v) => v.fmt(f),
            Int64Array(v) => v.fmt(f),
            Uint64Array(v) => v.fmt(f),
            StringArray(v) => {
                f.debug_list().entries(v.iter().map(|s| alloc::string::String::from_utf8_lossy(s))).finish()
            }
            List(v) => v.fmt(f),
            ListArray(v) => v.fmt(f),
            BooleanValue(v) => v.fmt(f),
            Int8(v) => v.fmt(f),
            Uint8(v) => v.fmt(f),
            BooleanArray(v) => v.fmt(f),
            Int8Array(v) => v.fmt(f),
        }
    }
}

macro_rules! from {
    ($($from:ty => $variant:ident),* $(,)?) => {$(
        impl From<$from> for NvValue {
            fn from(value: $from) -> NvValue {
                NvValue::$variant(value.into())
            }
        }
    )*};
}
from! {
    u64 => Uint64, i64 => Int64, u32 => Uint32, i32 => Int32, bool => BooleanValue, &str => String,
    String => String, NvList => List, Vec<NvList> => ListArray, &[u64] => Uint64Array, Vec<u64> => Uint64Array,
}

impl NvValue {
    /// A string from bytes that need not be UTF-8.
    #[must_use]
    pub fn string(bytes: &[u8]) -> NvValue {
        NvValue::String(bytes.to_vec())
    }

    /// Number of elements as the encodings state it: 0 for a bare boolean, 1 for scalars.
    fn element_count(&self) -> usize {
        use NvValue::*;
        match self {
            Boolean => 0,
            ByteArray(v) | Uint8Array(v) => v.len(),
            Int16Array(v) => v.len(),
            Uint16Array(v) => v.len(),
            Int32Array(v) => v.len(),
            Uint32Array(v) => v.len(),
            Int64Array(v) => v.len(),
            Uint64Array(v) => v.len(),
            StringArray(v) => v.len(),
            ListArray(v) => v.len(),
            BooleanArray(v) => v.len(),
            Int8Array(v) => v.len(),
            _ => 1,
        }
    }

    /// Bytes of the value in OpenZFS's memory, which both encodings refer to.
    fn native_size(&self) -> usize {
        let elements = self.element_count() * self.kind().native_width();
        match self {
            NvValue::String(v) => v.len() + 1,
            NvValue::StringArray(v) => elements + v.iter().map(|s| s.len() + 1).sum::<usize>(),
            _ => elements,
        }
    }
}

/// Bytes of a list's head in OpenZFS's memory.
const NATIVE_LIST: usize = 24;
/// Bytes before the name in a native pair.
const NATIVE_PAIR: usize = 16;

/// Where the value begins in a native pair with a name of `name_len` bytes (without NUL).
const fn native_value_at(name_len: usize) -> usize {
    (NATIVE_PAIR + name_len + 1).next_multiple_of(8)
}

/// Bytes of the pair in OpenZFS's memory.
fn native_pair_size(name: &[u8], value: &NvValue) -> usize {
    native_value_at(name.len()) + value.native_size().next_multiple_of(8)
}

/// Input not yet read.
struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Corrupt> {
        let (head, rest) =
            self.rest.split_at_checked(len).ok_or(Corrupt::new("nvlist item length", len as u64))?;
        self.rest = rest;
        Ok(head)
    }
}

fn check_name(name: &[u8]) -> Result<&[u8], Corrupt> {
    if name.len() > MAX_NAME || name.contains(&0) {
        return Err(Corrupt::new("nvlist name length", name.len() as u64));
    }
    Ok(name)
}

#[cfg(test)]
pub(crate) mod tests;
