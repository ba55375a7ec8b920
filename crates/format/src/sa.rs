//! System attributes: a file's metadata as a sequence of values whose order is a numbered layout.
//!
//! From:   registry and layout ZAPs of a file system; bonus (type 44) and spill blocks of its objects.
//! To:     [`znode`](crate::znode), which gives the values their meaning; `dmu`, which stores the buffers.
//! Source: docs/format/07-zpl-sa.md §2, §3.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use crate::{ByteOrder, Corrupt, acl, blkptr};

/// First word of every buffer.
const MAGIC: u32 = 0x2f_505a;
/// Bytes of the fixed part of a buffer's header, the first length included.
const HEADER: usize = 8;
/// Layout of a legacy znode.
pub const LAYOUT_LEGACY: u16 = 0;
/// First number a new layout may get.
pub const LAYOUT_FIRST: u16 = 2;
/// Largest number a layout may get.
pub const LAYOUT_MAX: u16 = 1023;
/// Maximal number of bytes of all attributes of an object together.
pub const MAX_TOTAL: usize = 128 << 10;

/// The attributes OpenZFS knows, with the numbers a new file system gives them. Old file systems number
/// those from 16 on differently: go through the [`Registry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
#[allow(missing_docs, reason = "the names are those of the format")]
pub enum Attribute {
    Atime = 0,
    Mtime = 1,
    Ctime = 2,
    Crtime = 3,
    Gen = 4,
    Mode = 5,
    Size = 6,
    Parent = 7,
    Links = 8,
    Xattr = 9,
    Rdev = 10,
    Flags = 11,
    Uid = 12,
    Gid = 13,
    Pad = 14,
    ZnodeAcl = 15,
    DaclCount = 16,
    Symlink = 17,
    Scanstamp = 18,
    DaclAces = 19,
    Dxattr = 20,
    Projid = 21,
    Seq = 22,
}

/// Name, length and swap class of each [`Attribute`], by number.
const STANDARD: [(Attribute, &str, u16, u8); 23] = [
    (Attribute::Atime, "ZPL_ATIME", 16, SWAP_U64),
    (Attribute::Mtime, "ZPL_MTIME", 16, SWAP_U64),
    (Attribute::Ctime, "ZPL_CTIME", 16, SWAP_U64),
    (Attribute::Crtime, "ZPL_CRTIME", 16, SWAP_U64),
    (Attribute::Gen, "ZPL_GEN", 8, SWAP_U64),
    (Attribute::Mode, "ZPL_MODE", 8, SWAP_U64),
    (Attribute::Size, "ZPL_SIZE", 8, SWAP_U64),
    (Attribute::Parent, "ZPL_PARENT", 8, SWAP_U64),
    (Attribute::Links, "ZPL_LINKS", 8, SWAP_U64),
    (Attribute::Xattr, "ZPL_XATTR", 8, SWAP_U64),
    (Attribute::Rdev, "ZPL_RDEV", 8, SWAP_U64),
    (Attribute::Flags, "ZPL_FLAGS", 8, SWAP_U64),
    (Attribute::Uid, "ZPL_UID", 8, SWAP_U64),
    (Attribute::Gid, "ZPL_GID", 8, SWAP_U64),
    (Attribute::Pad, "ZPL_PAD", 32, SWAP_U64),
    (Attribute::ZnodeAcl, "ZPL_ZNODE_ACL", 88, SWAP_U8),
    (Attribute::DaclCount, "ZPL_DACL_COUNT", 8, SWAP_U64),
    (Attribute::Symlink, "ZPL_SYMLINK", 0, SWAP_U8),
    (Attribute::Scanstamp, "ZPL_SCANSTAMP", 32, SWAP_U8),
    (Attribute::DaclAces, "ZPL_DACL_ACES", 0, SWAP_ACL),
    (Attribute::Dxattr, "ZPL_DXATTR", 0, SWAP_U8),
    (Attribute::Projid, "ZPL_PROJID", 8, SWAP_U64),
    (Attribute::Seq, "ZPL_SEQ", 8, SWAP_U64),
];
const SWAP_U64: u8 = 0;
const SWAP_U8: u8 = 3;
const SWAP_ACL: u8 = 4;
/// Attributes that a new file system registers: all but `ZPL_SEQ`, which OpenZFS 2.3 does not know.
const REGISTERED: usize = 22;

impl Attribute {
    /// The name in the registry.
    #[must_use]
    pub const fn name(self) -> &'static str {
        STANDARD[self as usize].1
    }

    /// Bytes of the value; 0 when it varies.
    #[must_use]
    pub const fn value_len(self) -> u16 {
        STANDARD[self as usize].2
    }
}

/// One entry of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Name, the key in the ZAP.
    pub name: String,
    /// Number in layouts.
    pub number: u16,
    /// Bytes of the value; 0 when it varies.
    pub len: u16,
    /// Swap class: 0–3 for arrays of `u64`, `u32`, `u16`, `u8`; 4 for ACEs.
    pub swap: u8,
    /// Which attribute it is, if it is a known one of the known length.
    pub attribute: Option<Attribute>,
}

impl Registered {
    /// From an entry of the registry ZAP.
    ///
    /// # Errors
    /// [`Corrupt`] for an unknown swap class or a known name with another length.
    pub fn decode(name: &str, value: u64) -> Result<Registered, Corrupt> {
        let (number, swap, len) = (value as u16, (value >> 16) as u8, (value >> 24) as u16);
        if value >> 40 != 0 || swap > SWAP_ACL {
            return Err(Corrupt::new("SA registry value", value));
        }
        let attribute = STANDARD.iter().find(|known| known.1 == name);
        if attribute.is_some_and(|known| known.2 != len) {
            return Err(Corrupt::new("length of a known SA attribute", len.into()));
        }
        Ok(Registered { name: name.into(), number, len, swap, attribute: attribute.map(|known| known.0) })
    }

    /// The value in the registry ZAP.
    #[must_use]
    pub fn encode(&self) -> u64 {
        u64::from(self.len) << 24 | u64::from(self.swap) << 16 | u64::from(self.number)
    }
}

/// The attributes of one file system by number; numbers are dense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registry {
    entries: Vec<Registered>,
}

impl Registry {
    /// The registry of a new file system.
    #[must_use]
    pub fn standard() -> Registry {
        let entry = |&(attribute, name, len, swap): &(Attribute, &str, u16, u8)| Registered {
            name: name.into(),
            number: attribute as u16,
            len,
            swap,
            attribute: Some(attribute),
        };
        Registry { entries: STANDARD[..REGISTERED].iter().map(entry).collect() }
    }

    /// From the entries of the registry ZAP, in any order.
    ///
    /// # Errors
    /// [`Corrupt`] for a bad entry, or when the numbers aren't 0 … n−1.
    pub fn decode<'a>(entries: impl IntoIterator<Item = (&'a str, u64)>) -> Result<Registry, Corrupt> {
        let mut decoded = Vec::new();
        for (name, value) in entries {
            decoded.push(Registered::decode(name, value)?);
        }
        decoded.sort_unstable_by_key(|entry| entry.number);
        if let Some((_, gap)) = decoded.iter().enumerate().find(|(i, entry)| *i != usize::from(entry.number))
        {
            return Err(Corrupt::new("SA attribute number", gap.number.into()));
        }
        Ok(Registry { entries: decoded })
    }

    /// All entries, by number; `name` and `encode()` are the key and value of the ZAP.
    #[must_use]
    pub fn entries(&self) -> &[Registered] {
        &self.entries
    }

    /// The entry of a number.
    ///
    /// # Errors
    /// [`Corrupt`] when it isn't registered.
    pub fn get(&self, number: u16) -> Result<&Registered, Corrupt> {
        self.entries.get(usize::from(number)).ok_or(Corrupt::new("SA attribute number", number.into()))
    }

    /// The number of an attribute in this file system, if it is registered.
    #[must_use]
    pub fn number_of(&self, attribute: Attribute) -> Option<u16> {
        self.entries.iter().find(|entry| entry.attribute == Some(attribute)).map(|entry| entry.number)
    }

    /// Registers `attribute` under the next number if it isn't yet; returns its number.
    pub fn register(&mut self, attribute: Attribute) -> u16 {
        self.number_of(attribute).unwrap_or_else(|| {
            let number = self.entries.len() as u16;
            let (_, name, len, swap) = STANDARD[attribute as usize];
            let attribute = Some(attribute);
            self.entries.push(Registered { name: name.into(), number, len, swap, attribute });
            number
        })
    }

    fn is_variable(&self, number: u16) -> Result<bool, Corrupt> {
        Ok(self.get(number)?.len == 0)
    }
}

/// The header of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Byte order of the buffer.
    pub order: ByteOrder,
    /// Number of its layout.
    pub layout: u16,
    /// Bytes before the first value.
    pub len: usize,
}

impl Header {
    /// Reads the header of a bonus or spill block.
    ///
    /// # Errors
    /// [`Corrupt`] for a wrong magic, or a header longer than the buffer.
    pub fn decode(raw: &[u8]) -> Result<Header, Corrupt> {
        if raw.len() < HEADER {
            return Err(Corrupt::new("SA buffer length", raw.len() as u64));
        }
        // The magic itself shows the order: spill blocks and bonuses are written in that of the host.
        let order = if ByteOrder::Little.u32(raw, 0) == MAGIC { ByteOrder::Little } else { ByteOrder::Big };
        if order.u32(raw, 0) != MAGIC {
            return Err(Corrupt::new("SA magic", ByteOrder::Little.u32(raw, 0).into()));
        }
        let info = order.u16(raw, 4);
        let len = usize::from(info >> 10) * 8;
        if len < HEADER || len > raw.len() {
            return Err(Corrupt::new("SA header length", len as u64));
        }
        Ok(Header { order, layout: info & 0x3ff, len })
    }
}

/// Bytes of a header with `variable` lengths.
const fn header_len(variable: usize) -> usize {
    if variable <= 1 { HEADER } else { HEADER + (2 * (variable - 1)).next_multiple_of(8) }
}

/// The values of a buffer, by attribute number, in layout order; still in the buffer's byte order.
///
/// `layout` is the sequence that [`Header::layout`] stands for. `raw` may be longer than needed.
///
/// # Errors
/// [`Corrupt`] when a number isn't registered or a value lies outside the buffer.
pub fn decode<'a>(
    raw: &'a [u8],
    layout: &[u16],
    registry: &Registry,
) -> Result<Vec<(u16, &'a [u8])>, Corrupt> {
    let header = Header::decode(raw)?;
    let mut values = Vec::with_capacity(layout.len());
    let mut variable = 0;
    let mut at = header.len;
    for &number in layout {
        let mut len = usize::from(registry.get(number)?.len);
        if len == 0 {
            // The lengths follow the six bytes of magic and layout, up to where the values start.
            let length_at = 6 + 2 * variable;
            if length_at + 2 > header.len {
                return Err(Corrupt::new("SA header length", header.len as u64));
            }
            len = header.order.u16(raw, length_at).into();
            variable += 1;
        }
        let value = raw.get(at..at + len).ok_or(Corrupt::new("end of an SA value", (at + len) as u64))?;
        values.push((number, value));
        at = (at + len).next_multiple_of(8);
    }
    Ok(values)
}

/// Where values go when they don't all fit into a bonus of `capacity` bytes: the first so many stay, the
/// rest goes to a spill block. `None` when all fit.
///
/// With a spill block the bonus has `capacity` − 128 bytes, whatever is in it: see [`encode_bonus`].
///
/// # Errors
/// [`Corrupt`] when a number isn't registered.
pub fn spill_point(
    values: &[(u16, Vec<u8>)],
    registry: &Registry,
    capacity: usize,
) -> Result<Option<usize>, Corrupt> {
    let with_spill = capacity.saturating_sub(blkptr::SIZE);
    let (mut variable, mut data, mut end) = (0, 0usize, 0);
    let mut first_out = None;
    for (i, (number, value)) in values.iter().enumerate() {
        variable += usize::from(registry.is_variable(*number)?);
        data = data.next_multiple_of(8) + value.len();
        end = header_len(variable) + data;
        if end > with_spill && first_out.is_none() {
            first_out = Some(i);
        }
    }
    Ok(first_out.filter(|_| end > capacity))
}

/// A buffer in little-endian order: header and values under layout number `layout`. The last value isn't
/// padded.
///
/// # Errors
/// [`Corrupt`] when a number isn't registered, or a value has not its registered length.
///
/// # Panics
/// If `layout` is beyond [`LAYOUT_MAX`].
pub fn encode(layout: u16, values: &[(u16, Vec<u8>)], registry: &Registry) -> Result<Vec<u8>, Corrupt> {
    assert!(layout <= LAYOUT_MAX, "a layout's number has ten bits");
    let mut lengths = Vec::new();
    for (number, value) in values {
        let expected = usize::from(registry.get(*number)?.len);
        if expected == 0 {
            let length = u16::try_from(value.len());
            lengths.push(length.map_err(|_| Corrupt::new("SA value length", value.len() as u64))?);
        } else if value.len() != expected {
            return Err(Corrupt::new("SA value length", value.len() as u64));
        }
    }
    let header = header_len(lengths.len());
    if header > 63 * 8 {
        return Err(Corrupt::new("SA header length", header as u64));
    }
    let mut raw = vec![0; header];
    let order = ByteOrder::Little;
    order.put_u32(&mut raw, 0, MAGIC);
    order.put_u16(&mut raw, 4, layout | (header as u16 / 8) << 10);
    for (i, length) in lengths.into_iter().enumerate() {
        order.put_u16(&mut raw, 6 + 2 * i, length);
    }
    for (_, value) in values {
        raw.resize(raw.len().next_multiple_of(8), 0);
        raw.extend_from_slice(value);
    }
    Ok(raw)
}

/// The bonus of an object with a spill block: [`encode`], zero-filled to `capacity` − 128 bytes.
///
/// # Errors
/// As [`encode`]; also when the values don't fit.
pub fn encode_bonus(
    layout: u16,
    values: &[(u16, Vec<u8>)],
    registry: &Registry,
    capacity: usize,
) -> Result<Vec<u8>, Corrupt> {
    let mut raw = encode(layout, values, registry)?;
    let len = capacity.saturating_sub(blkptr::SIZE);
    if raw.len() > len {
        return Err(Corrupt::new("SA bonus length", raw.len() as u64));
    }
    raw.resize(len, 0);
    Ok(raw)
}

/// A value in little-endian order.
///
/// # Errors
/// [`Corrupt`] when an ACL isn't one.
pub fn value_to_little(value: &[u8], swap: u8, order: ByteOrder) -> Result<Vec<u8>, Corrupt> {
    let mut value = value.to_vec();
    if order == ByteOrder::Little {
        return Ok(value);
    }
    match swap {
        0 => value.chunks_exact_mut(8).for_each(<[u8]>::reverse),
        1 => value.chunks_exact_mut(4).for_each(<[u8]>::reverse),
        2 => value.chunks_exact_mut(2).for_each(<[u8]>::reverse),
        SWAP_ACL => return Ok(acl::encode(&acl::decode_all(&value, order)?)),
        _ => {}
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const REGULAR: [u16; 15] = [5, 6, 4, 12, 13, 7, 11, 0, 1, 2, 3, 8, 21, 16, 19];

    fn values(layout: &[u16], variable: &[usize]) -> Vec<(u16, Vec<u8>)> {
        let registry = Registry::standard();
        let mut variable = variable.iter();
        let value = |&number: &u16| {
            let len = usize::from(registry.get(number).unwrap().len);
            let len = if len == 0 { *variable.next().unwrap() } else { len };
            (number, (0..len).map(|i| i as u8 ^ number as u8).collect())
        };
        layout.iter().map(value).collect()
    }

    #[test]
    fn registry_values_are_those_of_the_table() {
        let registry = Registry::standard();
        let value = |attribute: Attribute| registry.get(attribute as u16).unwrap().encode();
        assert_eq!(registry.entries().len(), 22);
        assert_eq!(value(Attribute::Atime), 0x1000_0000);
        assert_eq!(value(Attribute::Pad), 0x2000_000e);
        assert_eq!(value(Attribute::ZnodeAcl), 0x5803_000f);
        assert_eq!(value(Attribute::Symlink), 0x3_0011);
        assert_eq!(value(Attribute::DaclAces), 0x4_0013);
        assert_eq!(value(Attribute::Projid), 0x800_0015);
        let entries: Vec<_> =
            registry.entries().iter().rev().map(|e| (e.name.as_str(), e.encode())).collect();
        assert_eq!(Registry::decode(entries), Ok(registry));
    }

    #[test]
    fn every_attribute_is_at_its_number_in_the_table() {
        for (i, entry) in STANDARD.iter().enumerate() {
            assert_eq!(entry.0 as usize, i);
        }
        let mut registry = Registry::standard();
        assert_eq!(registry.number_of(Attribute::Seq), None);
        assert_eq!((registry.register(Attribute::Seq), registry.register(Attribute::Mode)), (22, 5));
        assert_eq!(registry.get(22).unwrap().encode(), 0x800_0016);
    }

    #[test]
    fn gaps_and_wrong_lengths_are_refused() {
        assert_eq!(
            Registry::decode([("ZPL_ATIME", 0x1000_0000), ("x", 0x800_0002)]),
            Err(Corrupt::new("SA attribute number", 2))
        );
        assert!(Registry::decode([("ZPL_ATIME", 0x800_0000)]).is_err());
        assert!(Registry::decode([("x", 0x5_0000)]).is_err());
    }

    #[test]
    fn buffers_have_the_lengths_that_openzfs_gives_them() {
        let registry = Registry::standard();
        let len = |values: &[(u16, Vec<u8>)]| encode(2, values, &registry).unwrap().len();
        assert_eq!(len(&values(&REGULAR, &[24])), 176);
        let symlink = [5, 6, 4, 12, 13, 7, 11, 0, 1, 2, 3, 8, 16, 19, 17];
        assert_eq!(len(&values(&symlink, &[24, 5])), 181);
        let dxattr = [&REGULAR[..], &[20]].concat();
        assert_eq!(len(&values(&dxattr, &[24, 108])), 292);
    }

    #[test]
    fn attributes_beyond_the_bonus_go_to_the_spill_block() {
        let registry = Registry::standard();
        let dxattr = [&REGULAR[..], &[20]].concat();
        let point = |len| spill_point(&values(&dxattr, &[24, len]), &registry, 0x140).unwrap();
        assert_eq!(point(108), None);
        assert_eq!(point(0x140 - 184), None);
        assert_eq!(point(0x140 - 184 + 1), Some(15));
        assert_eq!(point(3084), Some(15));
        let all = values(&dxattr, &[24, 3084]);
        assert_eq!(encode_bonus(2, &all[..15], &registry, 0x140).unwrap().len(), 192);
        assert_eq!(encode(3, &all[15..], &registry).unwrap().len(), 8 + 3084);
    }

    #[test]
    fn a_value_beyond_the_buffer_is_corrupt() {
        let registry = Registry::standard();
        let raw = encode(2, &values(&REGULAR, &[24]), &registry).unwrap();
        assert!(decode(&raw[..175], &REGULAR, &registry).is_err());
        assert_eq!(decode(&raw, &[99], &registry), Err(Corrupt::new("SA attribute number", 99)));
        assert_eq!(decode(&raw, &[19, 17], &registry), Err(Corrupt::new("SA header length", 8)));
    }

    proptest! {
        #[test]
        fn values_survive_a_round_trip(
            layout in proptest::collection::vec(0u16..22, 0..20),
            lengths in proptest::collection::vec(0usize..300, 20),
        ) {
            let registry = Registry::standard();
            let values = values(&layout, &lengths);
            let raw = encode(1023, &values, &registry).unwrap();
            prop_assert_eq!(Header::decode(&raw).unwrap().layout, 1023);
            let decoded = decode(&raw, &layout, &registry).unwrap();
            let decoded: Vec<_> = decoded.into_iter().map(|(n, v)| (n, v.to_vec())).collect();
            prop_assert_eq!(decoded, values);
        }

        #[test]
        fn any_bytes_decode_or_are_refused(
            mut raw in proptest::collection::vec(any::<u8>(), 0..200), magic: bool,
            layout in proptest::collection::vec(0u16..24, 0..20),
        ) {
            if magic && raw.len() > 4 {
                ByteOrder::Little.put_u32(&mut raw, 0, MAGIC);
            }
            let _ = decode(&raw, &layout, &Registry::standard());
        }
    }
}
