//! The XDR encoding: big-endian words, what labels, configs and streams use.

use alloc::vec::Vec;

use super::kind::NvType;
use super::{Input, MAX_DEPTH, NvList, NvValue, check_name, native_pair_size};
use crate::Corrupt;

impl<'a> Input<'a> {
    fn xdr_u32(&mut self) -> Result<u32, Corrupt> {
        let word = self.take(4)?.try_into().expect("four bytes were taken");
        Ok(u32::from_be_bytes(word))
    }

    fn xdr_u64(&mut self) -> Result<u64, Corrupt> {
        let word = self.take(8)?.try_into().expect("eight bytes were taken");
        Ok(u64::from_be_bytes(word))
    }

    /// `len` bytes and the padding to the next word.
    fn xdr_opaque(&mut self, len: usize) -> Result<&'a [u8], Corrupt> {
        Ok(&self.take(len.next_multiple_of(4))?[..len])
    }

    fn xdr_string(&mut self) -> Result<&'a [u8], Corrupt> {
        let len = self.xdr_u32()? as usize;
        let bytes = self.xdr_opaque(len)?;
        if bytes.contains(&0) {
            return Err(Corrupt::new("nvlist string with a NUL, length", len as u64));
        }
        Ok(bytes)
    }
}

fn i16_of(word: u32) -> Result<i16, Corrupt> {
    i16::try_from(word as i32).map_err(|_| Corrupt::new("nvlist int16", word.into()))
}

fn u16_of(word: u32) -> Result<u16, Corrupt> {
    u16::try_from(word).map_err(|_| Corrupt::new("nvlist uint16", word.into()))
}

/// Bytes travel as a C `char`, which some machines sign-extend and some do not.
fn u8_of(word: u32) -> Result<u8, Corrupt> {
    match word as i32 {
        -128..=255 => Ok(word as u8),
        _ => Err(Corrupt::new("nvlist byte", word.into())),
    }
}

fn bool_of(word: u32) -> Result<bool, Corrupt> {
    match word {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Corrupt::new("nvlist boolean", word.into())),
    }
}

/// Reads from the version word to the eight zero bytes at the end.
pub(super) fn decode_body(input: &mut Input, depth: u32) -> Result<NvList, Corrupt> {
    if depth > MAX_DEPTH {
        return Err(Corrupt::new("nvlist depth", depth.into()));
    }
    let version = input.xdr_u32()?;
    if version != 0 {
        return Err(Corrupt::new("nvlist version", version.into()));
    }
    let flag = input.xdr_u32()?;
    let mut pairs = Vec::new();
    loop {
        let before = input.rest.len();
        let encoded_size = input.xdr_u32()? as usize;
        let decoded_size = input.xdr_u32()? as usize;
        if encoded_size == 0 && decoded_size == 0 {
            return NvList::from_input(flag, pairs);
        }
        let name = check_name(input.xdr_string()?)?;
        let kind = NvType::from_disk(input.xdr_u32()?)?;
        let count = input.xdr_u32()? as usize;
        let value = decode_value(input, kind, count, depth)?;
        // OpenZFS reckons with the count word of an empty array, but does not write it.
        let unwritten = if count == 0 && kind.has_xdr_count() { 4 } else { 0 };
        if encoded_size != before - input.rest.len() + unwritten {
            return Err(Corrupt::new("nvlist pair encoded size", encoded_size as u64));
        }
        if decoded_size < native_pair_size(name, &value) {
            return Err(Corrupt::new("nvlist pair decoded size", decoded_size as u64));
        }
        pairs.push((name.to_vec(), value));
    }
}

fn decode_value(input: &mut Input, kind: NvType, count: usize, depth: u32) -> Result<NvValue, Corrupt> {
    use NvValue::*;
    kind.check_count(count)?;
    if kind.has_xdr_count() && count > 0 {
        let stated = input.xdr_u32()?;
        if stated as usize != count {
            return Err(Corrupt::new("nvlist array count", stated.into()));
        }
    }
    // Every element takes at least four bytes of input (a byte of a byte array: one), so no count can
    // make us allocate much more than the input itself.
    if count > input.rest.len() {
        return Err(Corrupt::new("nvlist element count", count as u64));
    }
    fn words<T>(
        input: &mut Input,
        count: usize,
        of: impl Fn(u32) -> Result<T, Corrupt>,
    ) -> Result<Vec<T>, Corrupt> {
        (0..count).map(|_| of(input.xdr_u32()?)).collect()
    }
    Ok(match kind {
        NvType::Boolean => Boolean,
        NvType::Byte => Byte(u8_of(input.xdr_u32()?)?),
        NvType::Int16 => Int16(i16_of(input.xdr_u32()?)?),
        NvType::Uint16 => Uint16(u16_of(input.xdr_u32()?)?),
        NvType::Int32 => Int32(input.xdr_u32()? as i32),
        NvType::Uint32 => Uint32(input.xdr_u32()?),
        NvType::Int64 => Int64(input.xdr_u64()? as i64),
        NvType::Uint64 => Uint64(input.xdr_u64()?),
        NvType::String => String(input.xdr_string()?.to_vec()),
        NvType::ByteArray => ByteArray(input.xdr_opaque(count)?.to_vec()),
        NvType::Int16Array => Int16Array(words(input, count, i16_of)?),
        NvType::Uint16Array => Uint16Array(words(input, count, u16_of)?),
        NvType::Int32Array => Int32Array(words(input, count, |w| Ok(w as i32))?),
        NvType::Uint32Array => Uint32Array(words(input, count, Ok)?),
        NvType::Int64Array => {
            Int64Array((0..count).map(|_| Ok(input.xdr_u64()? as i64)).collect::<Result<_, _>>()?)
        }
        NvType::Uint64Array => Uint64Array((0..count).map(|_| input.xdr_u64()).collect::<Result<_, _>>()?),
        NvType::StringArray => {
            StringArray((0..count).map(|_| Ok(input.xdr_string()?.to_vec())).collect::<Result<_, _>>()?)
        }
        NvType::Hrtime => Hrtime(input.xdr_u64()? as i64),
        NvType::List => List(decode_body(input, depth + 1)?),
        NvType::ListArray => {
            ListArray((0..count).map(|_| decode_body(input, depth + 1)).collect::<Result<_, _>>()?)
        }
        NvType::BooleanValue => BooleanValue(bool_of(input.xdr_u32()?)?),
        NvType::Int8 => Int8(u8_of(input.xdr_u32()?)? as i8),
        NvType::Uint8 => Uint8(u8_of(input.xdr_u32()?)?),
        NvType::BooleanArray => BooleanArray(words(input, count, bool_of)?),
        NvType::Int8Array => Int8Array(words(input, count, |w| Ok(u8_of(w)? as i8))?),
        NvType::Uint8Array => Uint8Array(words(input, count, u8_of)?),
        NvType::Double => Double(input.xdr_u64()?),
    })
}

fn put(out: &mut Vec<u8>, word: u32) {
    out.extend_from_slice(&word.to_be_bytes());
}

fn put_u64(out: &mut Vec<u8>, word: u64) {
    out.extend_from_slice(&word.to_be_bytes());
}

fn put_opaque(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
    out.resize(out.len() + bytes.len().next_multiple_of(4) - bytes.len(), 0);
}

fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u32);
    put_opaque(out, bytes);
}

pub(super) fn encode_body(list: &NvList, out: &mut Vec<u8>) {
    put(out, 0);
    put(out, list.flag);
    for (name, value) in list.iter() {
        let start = out.len();
        put(out, 0);
        put(out, native_pair_size(name, value) as u32);
        put_string(out, name);
        put(out, value.kind().to_disk());
        put(out, value.element_count() as u32);
        encode_value(value, out);
        let empty = value.element_count() == 0 && value.kind().has_xdr_count();
        let encoded_size = out.len() - start + if empty { 4 } else { 0 };
        out[start..start + 4].copy_from_slice(&(encoded_size as u32).to_be_bytes());
    }
    put_u64(out, 0);
}

fn encode_value(value: &NvValue, out: &mut Vec<u8>) {
    use NvValue::*;
    let count = value.element_count();
    if value.kind().has_xdr_count() && count > 0 {
        put(out, count as u32);
    }
    // As x86 writes them.
    let char_word = |byte: u8| byte as i8 as i32 as u32;
    match value {
        Boolean => {}
        Byte(v) | Uint8(v) => put(out, char_word(*v)),
        Int8(v) => put(out, *v as i32 as u32),
        Int16(v) => put(out, *v as i32 as u32),
        Uint16(v) => put(out, (*v).into()),
        Int32(v) => put(out, *v as u32),
        Uint32(v) => put(out, *v),
        Int64(v) | Hrtime(v) => put_u64(out, *v as u64),
        Uint64(v) | Double(v) => put_u64(out, *v),
        String(v) => put_string(out, v),
        ByteArray(v) => put_opaque(out, v),
        Int16Array(v) => v.iter().for_each(|x| put(out, *x as i32 as u32)),
        Uint16Array(v) => v.iter().for_each(|x| put(out, (*x).into())),
        Int32Array(v) => v.iter().for_each(|x| put(out, *x as u32)),
        Uint32Array(v) => v.iter().for_each(|x| put(out, *x)),
        Int64Array(v) => v.iter().for_each(|x| put_u64(out, *x as u64)),
        Uint64Array(v) => v.iter().for_each(|x| put_u64(out, *x)),
        StringArray(v) => v.iter().for_each(|x| put_string(out, x)),
        List(v) => encode_body(v, out),
        ListArray(v) => v.iter().for_each(|x| encode_body(x, out)),
        BooleanValue(v) => put(out, (*v).into()),
        BooleanArray(v) => v.iter().for_each(|x| put(out, (*x).into())),
        Int8Array(v) => v.iter().for_each(|x| put(out, *x as i32 as u32)),
        Uint8Array(v) => v.iter().for_each(|x| put(out, char_word(*x))),
    }
}
