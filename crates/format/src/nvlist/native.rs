//! The native encoding: an image of OpenZFS's memory, in the writer's byte order. History records use it.
//!
//! A pair is `i32 size, i16 name length with NUL, i16 0, i32 count, i32 type`, the name, the value, both
//! padded to 8 bytes. A list as value is a 24-byte head in the pair; its pairs follow the pair, up to a zero
//! size. Only the outermost list has its version and flag before its pairs.

use alloc::vec::Vec;

use super::kind::NvType;
use super::{Input, MAX_DEPTH, NATIVE_LIST, NATIVE_PAIR, NvList, NvValue, check_name};
use super::{native_pair_size, native_value_at};
use crate::{ByteOrder, Corrupt};

/// Reads what follows the header: version, flag and pairs.
pub(super) fn decode(input: &mut Input, order: ByteOrder) -> Result<NvList, Corrupt> {
    let head = input.take(8)?;
    decode_pairs(input, order, head, 0)
}

/// Reads the pairs of a list whose `head` (version, flag, …) was read before.
fn decode_pairs(input: &mut Input, order: ByteOrder, head: &[u8], depth: u32) -> Result<NvList, Corrupt> {
    if depth > MAX_DEPTH {
        return Err(Corrupt::new("nvlist depth", depth.into()));
    }
    let (version, flag) = (order.u32(head, 0), order.u32(head, 4));
    if version != 0 {
        return Err(Corrupt::new("nvlist version", version.into()));
    }
    let mut pairs = Vec::new();
    loop {
        let size = order.u32(input.take(4)?, 0) as usize;
        if size == 0 {
            return NvList::from_input(flag, pairs);
        }
        if size < NATIVE_PAIR || !size.is_multiple_of(8) {
            return Err(Corrupt::new("nvlist pair size", size as u64));
        }
        let pair = input.take(size - 4)?;
        let name_len = order.u16(pair, 0) as usize;
        let name = pair.get(NATIVE_PAIR - 4..NATIVE_PAIR - 4 + name_len);
        let (Some([name @ .., 0]), Some(value)) =
            (name, pair.get(native_value_at(name_len.max(1) - 1) - 4..))
        else {
            return Err(Corrupt::new("nvlist name length", name_len as u64));
        };
        let name = check_name(name)?;
        let count = order.u32(pair, 4) as usize;
        let kind = NvType::from_disk(order.u32(pair, 8))?;
        let value = decode_value(input, order, RawValue { kind, count, raw: value }, depth)?;
        pairs.push((name.to_vec(), value));
    }
}

/// The value of a pair: its type, and the bytes behind its name.
struct RawValue<'a> {
    kind: NvType,
    count: usize,
    raw: &'a [u8],
}

fn decode_value(
    input: &mut Input,
    order: ByteOrder,
    pair: RawValue<'_>,
    depth: u32,
) -> Result<NvValue, Corrupt> {
    use NvValue::*;
    let RawValue { count, raw, .. } = pair;
    pair.kind.check_count(count)?;
    let width = pair.kind.native_width();
    let too_many = Corrupt::new("nvlist element count", count as u64);
    let raw_values = raw.get(..count.checked_mul(width).ok_or(too_many)?).ok_or(too_many)?;
    let bytes = || raw_values.iter().copied();
    let u16s = || raw_values.chunks_exact(2).map(|x| order.u16(x, 0));
    let u32s = || raw_values.chunks_exact(4).map(|x| order.u32(x, 0));
    let u64s = || raw_values.chunks_exact(8).map(|x| order.u64(x, 0));
    let bools = || {
        u32s().map(|word| match word {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Corrupt::new("nvlist boolean", word.into())),
        })
    };
    Ok(match pair.kind {
        NvType::Boolean => Boolean,
        NvType::Byte => Byte(raw_values[0]),
        NvType::Int16 => Int16(order.u16(raw_values, 0) as i16),
        NvType::Uint16 => Uint16(order.u16(raw_values, 0)),
        NvType::Int32 => Int32(order.u32(raw_values, 0) as i32),
        NvType::Uint32 => Uint32(order.u32(raw_values, 0)),
        NvType::Int64 => Int64(order.u64(raw_values, 0) as i64),
        NvType::Uint64 => Uint64(order.u64(raw_values, 0)),
        NvType::String => String(c_string(&mut &*raw)?),
        NvType::ByteArray => ByteArray(raw_values.to_vec()),
        NvType::Int16Array => Int16Array(u16s().map(|x| x as i16).collect()),
        NvType::Uint16Array => Uint16Array(u16s().collect()),
        NvType::Int32Array => Int32Array(u32s().map(|x| x as i32).collect()),
        NvType::Uint32Array => Uint32Array(u32s().collect()),
        NvType::Int64Array => Int64Array(u64s().map(|x| x as i64).collect()),
        NvType::Uint64Array => Uint64Array(u64s().collect()),
        NvType::StringArray => {
            // Room for pointers comes first, then the strings.
            let mut strings = &raw[raw_values.len()..];
            StringArray((0..count).map(|_| c_string(&mut strings)).collect::<Result<_, _>>()?)
        }
        NvType::Hrtime => Hrtime(order.u64(raw_values, 0) as i64),
        NvType::List => List(decode_pairs(input, order, raw_values, depth + 1)?),
        NvType::ListArray => {
            let heads = raw_values[8 * count..].chunks_exact(NATIVE_LIST);
            ListArray(
                heads.map(|head| decode_pairs(input, order, head, depth + 1)).collect::<Result<_, _>>()?,
            )
        }
        NvType::BooleanValue => BooleanValue(bools().next().ok_or(too_many)??),
        NvType::Int8 => Int8(raw_values[0] as i8),
        NvType::Uint8 => Uint8(raw_values[0]),
        NvType::BooleanArray => BooleanArray(bools().collect::<Result<_, _>>()?),
        NvType::Int8Array => Int8Array(bytes().map(|x| x as i8).collect()),
        NvType::Uint8Array => Uint8Array(raw_values.to_vec()),
        NvType::Double => Double(order.u64(raw_values, 0)),
    })
}

/// Takes a NUL-terminated string off the front of `raw`.
fn c_string(raw: &mut &[u8]) -> Result<Vec<u8>, Corrupt> {
    let end = raw
        .iter()
        .position(|byte| *byte == 0)
        .ok_or(Corrupt::new("nvlist string without end, room", raw.len() as u64))?;
    let string = raw[..end].to_vec();
    *raw = &raw[end + 1..];
    Ok(string)
}

/// Appends version, flag and pairs.
pub(super) fn encode(list: &NvList, out: &mut Vec<u8>) {
    out.extend_from_slice(&0u32.to_le_bytes());
    out.extend_from_slice(&list.flag.to_le_bytes());
    encode_pairs(list, out);
}

fn encode_pairs(list: &NvList, out: &mut Vec<u8>) {
    for (name, value) in list.iter() {
        let start = out.len();
        let size = native_pair_size(name, value);
        out.extend_from_slice(&(size as u32).to_le_bytes());
        out.extend_from_slice(&(name.len() as u32 + 1).to_le_bytes());
        out.extend_from_slice(&(value.element_count() as u32).to_le_bytes());
        out.extend_from_slice(&value.kind().to_disk().to_le_bytes());
        out.extend_from_slice(name);
        out.resize(start + native_value_at(name.len()), 0);
        encode_value(value, out);
        out.resize(start + size, 0);
        match value {
            NvValue::List(inner) => encode_pairs(inner, out),
            NvValue::ListArray(all) => all.iter().for_each(|inner| encode_pairs(inner, out)),
            _ => {}
        }
    }
    out.extend_from_slice(&0u32.to_le_bytes());
}

fn encode_value(value: &NvValue, out: &mut Vec<u8>) {
    use NvValue::*;
    fn put<const N: usize>(out: &mut Vec<u8>, values: impl IntoIterator<Item = [u8; N]>) {
        values.into_iter().for_each(|bytes| out.extend_from_slice(&bytes));
    }
    let head = |list: &NvList| {
        let mut head = [0; NATIVE_LIST];
        ByteOrder::Little.put_u32(&mut head, 4, list.flag);
        head
    };
    match value {
        Boolean => {}
        Byte(v) | Uint8(v) => out.push(*v),
        Int8(v) => out.push(*v as u8),
        Int16(v) => put(out, [v.to_le_bytes()]),
        Uint16(v) => put(out, [v.to_le_bytes()]),
        Int32(v) => put(out, [v.to_le_bytes()]),
        Uint32(v) => put(out, [v.to_le_bytes()]),
        BooleanValue(v) => put(out, [u32::from(*v).to_le_bytes()]),
        Int64(v) | Hrtime(v) => put(out, [v.to_le_bytes()]),
        Uint64(v) | Double(v) => put(out, [v.to_le_bytes()]),
        String(v) => {
            out.extend_from_slice(v);
            out.push(0);
        }
        ByteArray(v) | Uint8Array(v) => out.extend_from_slice(v),
        Int8Array(v) => put(out, v.iter().map(|x| x.to_le_bytes())),
        Int16Array(v) => put(out, v.iter().map(|x| x.to_le_bytes())),
        Uint16Array(v) => put(out, v.iter().map(|x| x.to_le_bytes())),
        Int32Array(v) => put(out, v.iter().map(|x| x.to_le_bytes())),
        Uint32Array(v) => put(out, v.iter().map(|x| x.to_le_bytes())),
        BooleanArray(v) => put(out, v.iter().map(|x| u32::from(*x).to_le_bytes())),
        Int64Array(v) => put(out, v.iter().map(|x| x.to_le_bytes())),
        Uint64Array(v) => put(out, v.iter().map(|x| x.to_le_bytes())),
        StringArray(v) => {
            out.resize(out.len() + 8 * v.len(), 0);
            for string in v {
                out.extend_from_slice(string);
                out.push(0);
            }
        }
        List(v) => put(out, [head(v)]),
        ListArray(v) => {
            out.resize(out.len() + 8 * v.len(), 0);
            put(out, v.iter().map(head));
        }
    }
}
