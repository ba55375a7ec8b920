//! The records of a stream, field by field.
//!
//! Source: docs/format/09-send-stream.md §1, §2.

use alloc::vec::Vec;

use super::{BEGIN_PAYLOAD_MAX, Fields, MAGIC, NAME_MAX, RECORD, name_until_nul, padded};
use crate::{ByteOrder, Checksum, ChecksumKind, Compression, Corrupt, Guid, MAX_BLOCK, ObjectType};

/// Opens a stream, a package of streams (`header_type` 2), or each stream within a package.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Begin {
    /// 1: one snapshot's stream; 2: a package.
    pub header_type: u8,
    /// Bits of [`super::feature`], 56 of them.
    pub features: u64,
    /// When the snapshot was taken, seconds since 1970.
    pub creation_time: u64,
    /// 2: file system; 3: volume.
    pub objset_type: u32,
    /// Bits of [`super::flag`].
    pub flags: u32,
    /// The snapshot sent.
    pub toguid: Guid,
    /// The snapshot that the receiver must have; 0: none.
    pub fromguid: Guid,
    /// `pool/fs@snap`, up to 255 bytes without NUL.
    pub toname: Vec<u8>,
    /// Bytes of the list that follows.
    pub payload_len: u32,
}

/// An object: what follows is about its content. Payload: the bonus, to whole words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Object {
    /// Number.
    pub object: u64,
    /// Type of the object.
    pub object_type: ObjectType,
    /// Type of the bonus.
    pub bonus_type: ObjectType,
    /// Bytes of a data block.
    pub block_size: u32,
    /// Bytes of the bonus.
    pub bonus_len: u32,
    /// `dn_checksum`.
    pub checksum: u8,
    /// `dn_compress`.
    pub compress: u8,
    /// Slots of the dnode; 0 counts as 1.
    pub slots: u8,
    /// [`super::OBJECT_SPILL`], [`super::RAW_BYTESWAP`].
    pub flags: u8,
    /// Bytes of an encrypted bonus.
    pub raw_bonus_len: u32,
    /// The snapshot.
    pub toguid: Guid,
    /// Raw streams: log2 bytes of an indirect block.
    pub indirect_shift: u8,
    /// Raw streams: levels.
    pub levels: u8,
    /// Raw streams: pointers in the dnode.
    pub nblkptr: u8,
    /// Raw streams: largest block id.
    pub max_blkid: u64,
}

/// Numbers without an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeObjects {
    /// The first number.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// The snapshot.
    pub toguid: Guid,
}

/// Encryption parameters and authentication code of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields have the names of docs/format/09-send-stream.md")]
pub struct Crypt {
    pub salt: [u8; 8],
    pub iv: [u8; 12],
    pub mac: [u8; 16],
}

/// A block's content. Payload: `compressed_size` bytes if compressed, else `logical_size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Write {
    /// Number of the object.
    pub object: u64,
    /// Its type.
    pub object_type: ObjectType,
    /// Byte offset.
    pub offset: u64,
    /// Bytes when decompressed.
    pub logical_size: u64,
    /// The snapshot.
    pub toguid: Guid,
    /// Of the key, by number; 2: no key.
    pub checksum_type: u8,
    /// [`super::CHECKSUM_DEDUP`], [`super::RAW_BYTESWAP`].
    pub flags: u8,
    /// How the payload is framed; `Inherit` (0) and `Off` mean plain.
    pub compression: Compression,
    /// The block's checksum on the sender's disk.
    pub key: Checksum,
    /// Sizes and compression there, as a dedup table keeps them.
    pub key_prop: u64,
    /// Bytes of a compressed payload.
    pub compressed_size: u64,
    /// Raw streams.
    pub crypt: Crypt,
}

impl Write {
    /// A record of a plain block of an object (its number and type), without a key. `offset` and `logical_size` are in bytes.
    #[must_use]
    pub fn plain(
        (object, object_type): (u64, ObjectType),
        offset: u64,
        logical_size: u64,
        toguid: Guid,
    ) -> Write {
        Write {
            object,
            object_type,
            offset,
            logical_size,
            toguid,
            checksum_type: ChecksumKind::Off.to_disk() as u8,
            flags: 0,
            compression: Compression::Inherit,
            key: Checksum::default(),
            key_prop: 0,
            compressed_size: 0,
            crypt: Crypt::default(),
        }
    }
}

/// A range that reads as zeros (or, in a REDACT record, is withheld).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Free {
    /// Number of the object.
    pub object: u64,
    /// Byte offset.
    pub offset: u64,
    /// Bytes; [`super::TO_END`].
    pub length: u64,
    /// The snapshot.
    pub toguid: Guid,
}

/// A block that some other snapshot has, too; obsolete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields have the names of docs/format/09-send-stream.md")]
pub struct WriteByRef {
    pub object: u64,
    pub offset: u64,
    pub length: u64,
    pub toguid: Guid,
    pub refguid: Guid,
    pub refobject: u64,
    pub refoffset: u64,
}

/// A spill block. Payload: its content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spill {
    /// Number of the object.
    pub object: u64,
    /// Bytes.
    pub length: u64,
    /// The snapshot.
    pub toguid: Guid,
    /// [`super::SPILL_UNMODIFIED`], [`super::RAW_BYTESWAP`].
    pub flags: u8,
    /// Raw streams: compression by number.
    pub compression: u8,
    /// Raw streams: bytes of the payload.
    pub compressed_size: u64,
    /// Raw streams.
    pub crypt: Crypt,
    /// Raw streams: type of the block.
    pub object_type: u32,
}

/// A block small enough for a block pointer. Payload: `psize` bytes, to whole words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Embedded {
    /// Number of the object.
    pub object: u64,
    /// Byte offset.
    pub offset: u64,
    /// Bytes of the block.
    pub length: u64,
    /// The snapshot.
    pub toguid: Guid,
    /// How the payload is framed.
    pub compression: Compression,
    /// Kind of the embedded pointer; 0: data.
    pub kind: u8,
    /// Bytes when decompressed.
    pub lsize: u32,
    /// Bytes of the payload.
    pub psize: u32,
}

/// Raw streams: how the following block of dnodes was encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields have the names of docs/format/09-send-stream.md")]
pub struct ObjectRange {
    pub first: u64,
    pub slots: u64,
    pub toguid: Guid,
    pub crypt: Crypt,
    pub flags: u8,
}

/// The end of a stream; all zeros at the end of a package.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct End {
    /// Running checksum of all before this record.
    pub checksum: Checksum,
    /// The snapshot.
    pub toguid: Guid,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields have the names of docs/format/09-send-stream.md")]
pub enum Record {
    Begin(Begin),
    Object(Object),
    FreeObjects(FreeObjects),
    Write(Write),
    Free(Free),
    End(End),
    WriteByRef(WriteByRef),
    Spill(Spill),
    Embedded(Embedded),
    ObjectRange(ObjectRange),
    Redact(Free),
}

/// Dnode slots are counted in a record by 8 bits; an encrypted bonus is smaller than a block of dnodes.
const BONUS_MAX: u64 = crate::dnode::BLOCK as u64;

impl Record {
    /// Decodes one record. Its payload is at most [`MAX_BLOCK`] bytes, a BEGIN's at most [`BEGIN_PAYLOAD_MAX`].
    ///
    /// # Errors
    /// [`Corrupt`] names what no OpenZFS sends.
    pub fn decode(raw: &[u8; RECORD], order: ByteOrder) -> Result<Record, Corrupt> {
        let f = &Fields { raw, order };
        let record = match f.u32(0) {
            0 => Record::Begin(Begin::decode(f)?),
            1 => Record::Object(Object::decode(f)?),
            2 => {
                Record::FreeObjects(FreeObjects { first: f.u64(8), count: f.u64(0x10), toguid: f.guid(0x18) })
            }
            3 => Record::Write(Write::decode(f)?),
            4 => Record::Free(Free::decode(f)),
            5 => Record::End(End {
                checksum: Checksum([8, 0x10, 0x18, 0x20].map(|at| f.u64(at))),
                toguid: f.guid(0x28),
            }),
            6 => Record::WriteByRef(WriteByRef {
                object: f.u64(8),
                offset: f.u64(0x10),
                length: f.u64(0x18),
                toguid: f.guid(0x20),
                refguid: f.guid(0x28),
                refobject: f.u64(0x30),
                refoffset: f.u64(0x38),
            }),
            7 => Record::Spill(Spill::decode(f)),
            8 => Record::Embedded(Embedded::decode(f)?),
            9 => Record::ObjectRange(ObjectRange {
                first: f.u64(8),
                slots: f.u64(0x10),
                toguid: f.guid(0x18),
                crypt: Crypt { salt: f.bytes(0x20), iv: f.bytes(0x28), mac: f.bytes(0x34) },
                flags: raw[0x44],
            }),
            10 => Record::Redact(Free::decode(f)),
            other => return Err(Corrupt::new("stream record type", other.into())),
        };
        let (len, max) = (record.payload_len(), if f.u32(0) == 0 { BEGIN_PAYLOAD_MAX } else { MAX_BLOCK });
        if len > max { Err(Corrupt::new("stream payload length", len)) } else { Ok(record) }
    }

    /// Bytes that follow the record.
    #[must_use]
    pub fn payload_len(&self) -> u64 {
        match self {
            Record::Begin(begin) => begin.payload_len.into(),
            Record::Object(object) if object.raw_bonus_len > 0 => object.raw_bonus_len.into(),
            Record::Object(object) => padded(object.bonus_len.into()),
            Record::Write(write) => write.payload_len(),
            Record::Spill(spill) if spill.compressed_size > 0 => spill.compressed_size,
            Record::Spill(spill) => spill.length,
            Record::Embedded(embedded) => padded(embedded.psize.into()),
            _ => 0,
        }
    }

    /// The record, little-endian, without a running checksum.
    ///
    /// # Panics
    /// If a name is too long.
    #[must_use]
    pub fn encode(&self) -> [u8; RECORD] {
        let mut out = Out([0; RECORD]);
        match self {
            Record::Begin(begin) => begin.encode(&mut out),
            Record::Object(object) => object.encode(&mut out),
            Record::FreeObjects(r) => out.head(2, &[(8, r.first), (0x10, r.count), (0x18, r.toguid.0)]),
            Record::Write(write) => write.encode(&mut out),
            Record::Free(free) => free.encode(4, &mut out),
            Record::End(end) => {
                out.head(5, &[(0x28, end.toguid.0)]);
                [8, 0x10, 0x18, 0x20]
                    .into_iter()
                    .zip(end.checksum.0)
                    .for_each(|(at, word)| out.u64(at, word));
            }
            Record::WriteByRef(r) => {
                out.head(6, &[(8, r.object), (0x10, r.offset), (0x18, r.length), (0x20, r.toguid.0)]);
                [(0x28, r.refguid.0), (0x30, r.refobject), (0x38, r.refoffset)]
                    .into_iter()
                    .for_each(|(at, word)| out.u64(at, word));
            }
            Record::Spill(spill) => spill.encode(&mut out),
            Record::Embedded(embedded) => embedded.encode(&mut out),
            Record::ObjectRange(r) => {
                out.head(9, &[(8, r.first), (0x10, r.slots), (0x18, r.toguid.0)]);
                out.crypt([0x20, 0x28, 0x34], &r.crypt);
                out.0[0x44] = r.flags;
            }
            Record::Redact(free) => free.encode(10, &mut out),
        }
        out.0
    }
}

/// A record being encoded.
struct Out([u8; RECORD]);

impl Out {
    fn u64(&mut self, at: usize, value: u64) {
        ByteOrder::Little.put_u64(&mut self.0, at, value);
    }

    fn u32(&mut self, at: usize, value: u32) {
        ByteOrder::Little.put_u32(&mut self.0, at, value);
    }

    fn head(&mut self, kind: u32, words: &[(usize, u64)]) {
        self.u32(0, kind);
        words.iter().for_each(|&(at, word)| self.u64(at, word));
    }

    fn crypt(&mut self, [salt, iv, mac]: [usize; 3], crypt: &Crypt) {
        self.0[salt..salt + 8].copy_from_slice(&crypt.salt);
        self.0[iv..iv + 12].copy_from_slice(&crypt.iv);
        self.0[mac..mac + 16].copy_from_slice(&crypt.mac);
    }
}

impl Begin {
    fn decode(f: &Fields<'_>) -> Result<Begin, Corrupt> {
        if f.u64(8) != MAGIC {
            return Err(Corrupt::new("stream magic", f.u64(8)));
        }
        let info = f.u64(0x10);
        let header_type = (info & 3) as u8;
        if !matches!(header_type, 1 | 2) {
            return Err(Corrupt::new("stream header type", header_type.into()));
        }
        Ok(Begin {
            header_type,
            features: info >> 2,
            creation_time: f.u64(0x18),
            objset_type: f.u32(0x20),
            flags: f.u32(0x24),
            toguid: f.guid(0x28),
            fromguid: f.guid(0x30),
            toname: name_until_nul(&f.raw[0x38..0x38 + NAME_MAX]),
            payload_len: f.u32(4),
        })
    }

    fn encode(&self, out: &mut Out) {
        assert!(self.toname.len() <= NAME_MAX && !self.toname.contains(&0), "dataset names are short");
        out.head(0, &[(8, MAGIC), (0x10, self.features << 2 | u64::from(self.header_type))]);
        out.u32(4, self.payload_len);
        out.u64(0x18, self.creation_time);
        out.u32(0x20, self.objset_type);
        out.u32(0x24, self.flags);
        out.u64(0x28, self.toguid.0);
        out.u64(0x30, self.fromguid.0);
        out.0[0x38..0x38 + self.toname.len()].copy_from_slice(&self.toname);
    }
}

fn type_at(f: &Fields<'_>, at: usize) -> Result<ObjectType, Corrupt> {
    let number = f.u32(at);
    match u8::try_from(number).map(ObjectType) {
        Ok(object_type) if object_type.is_valid() => Ok(object_type),
        _ => Err(Corrupt::new("stream object type", number.into())),
    }
}

impl Object {
    fn decode(f: &Fields<'_>) -> Result<Object, Corrupt> {
        let object = Object {
            object: f.u64(8),
            object_type: type_at(f, 0x10)?,
            bonus_type: type_at(f, 0x14)?,
            block_size: f.u32(0x18),
            bonus_len: f.u32(0x1c),
            checksum: f.raw[0x20],
            compress: f.raw[0x21],
            slots: f.raw[0x22],
            flags: f.raw[0x23],
            raw_bonus_len: f.u32(0x24),
            toguid: f.guid(0x28),
            indirect_shift: f.raw[0x30],
            levels: f.raw[0x31],
            nblkptr: f.raw[0x32],
            max_blkid: f.u64(0x38),
        };
        let bonus = u64::from(object.bonus_len.max(object.raw_bonus_len));
        if bonus > BONUS_MAX {
            return Err(Corrupt::new("stream bonus length", bonus));
        }
        Ok(object)
    }

    fn encode(&self, out: &mut Out) {
        out.head(1, &[(8, self.object), (0x28, self.toguid.0), (0x38, self.max_blkid)]);
        out.u32(0x10, self.object_type.0.into());
        out.u32(0x14, self.bonus_type.0.into());
        out.u32(0x18, self.block_size);
        out.u32(0x1c, self.bonus_len);
        out.0[0x20..0x24].copy_from_slice(&[self.checksum, self.compress, self.slots, self.flags]);
        out.u32(0x24, self.raw_bonus_len);
        out.0[0x30..0x33].copy_from_slice(&[self.indirect_shift, self.levels, self.nblkptr]);
    }
}

impl Write {
    /// Whether the payload is compressed.
    #[must_use]
    pub const fn is_compressed(&self) -> bool {
        !matches!(self.compression, Compression::Inherit)
    }

    const fn payload_len(&self) -> u64 {
        if self.is_compressed() { self.compressed_size } else { self.logical_size }
    }

    fn decode(f: &Fields<'_>) -> Result<Write, Corrupt> {
        let write = Write {
            object: f.u64(8),
            object_type: type_at(f, 0x10)?,
            offset: f.u64(0x18),
            logical_size: f.u64(0x20),
            toguid: f.guid(0x28),
            checksum_type: f.raw[0x30],
            flags: f.raw[0x31],
            compression: Compression::from_disk(f.raw[0x32].into())?,
            key: Checksum([0x38, 0x40, 0x48, 0x50].map(|at| f.u64(at))),
            key_prop: f.u64(0x58),
            compressed_size: f.u64(0x60),
            crypt: Crypt { salt: f.bytes(0x68), iv: f.bytes(0x70), mac: f.bytes(0x7c) },
        };
        if write.logical_size > MAX_BLOCK {
            return Err(Corrupt::new("stream block size", write.logical_size));
        }
        Ok(write)
    }

    fn encode(&self, out: &mut Out) {
        out.head(3, &[(8, self.object), (0x18, self.offset), (0x20, self.logical_size)]);
        out.u32(0x10, self.object_type.0.into());
        out.u64(0x28, self.toguid.0);
        out.0[0x30..0x33].copy_from_slice(&[
            self.checksum_type,
            self.flags,
            self.compression.to_disk() as u8,
        ]);
        [0x38, 0x40, 0x48, 0x50].into_iter().zip(self.key.0).for_each(|(at, word)| out.u64(at, word));
        out.u64(0x58, self.key_prop);
        out.u64(0x60, self.compressed_size);
        out.crypt([0x68, 0x70, 0x7c], &self.crypt);
    }
}

impl Free {
    fn decode(f: &Fields<'_>) -> Free {
        Free { object: f.u64(8), offset: f.u64(0x10), length: f.u64(0x18), toguid: f.guid(0x20) }
    }

    fn encode(&self, kind: u32, out: &mut Out) {
        let words = [(8, self.object), (0x10, self.offset), (0x18, self.length), (0x20, self.toguid.0)];
        out.head(kind, &words);
    }
}

impl Spill {
    fn decode(f: &Fields<'_>) -> Spill {
        Spill {
            object: f.u64(8),
            length: f.u64(0x10),
            toguid: f.guid(0x18),
            flags: f.raw[0x20],
            compression: f.raw[0x21],
            compressed_size: f.u64(0x28),
            crypt: Crypt { salt: f.bytes(0x30), iv: f.bytes(0x38), mac: f.bytes(0x44) },
            object_type: f.u32(0x54),
        }
    }

    fn encode(&self, out: &mut Out) {
        out.head(7, &[(8, self.object), (0x10, self.length), (0x18, self.toguid.0)]);
        out.0[0x20..0x22].copy_from_slice(&[self.flags, self.compression]);
        out.u64(0x28, self.compressed_size);
        out.crypt([0x30, 0x38, 0x44], &self.crypt);
        out.u32(0x54, self.object_type);
    }
}

impl Embedded {
    fn decode(f: &Fields<'_>) -> Result<Embedded, Corrupt> {
        let embedded = Embedded {
            object: f.u64(8),
            offset: f.u64(0x10),
            length: f.u64(0x18),
            toguid: f.guid(0x20),
            compression: Compression::from_disk(f.raw[0x28].into())?,
            kind: f.raw[0x29],
            lsize: f.u32(0x30),
            psize: f.u32(0x34),
        };
        if embedded.length > MAX_BLOCK || u64::from(embedded.lsize) > embedded.length {
            return Err(Corrupt::new("stream embedded block size", embedded.lsize.into()));
        }
        if embedded.psize as usize > crate::blkptr::EMBEDDED_MAX {
            return Err(Corrupt::new("stream embedded payload", embedded.psize.into()));
        }
        Ok(embedded)
    }

    fn encode(&self, out: &mut Out) {
        out.head(8, &[(8, self.object), (0x10, self.offset), (0x18, self.length), (0x20, self.toguid.0)]);
        out.0[0x28..0x2a].copy_from_slice(&[self.compression.to_disk() as u8, self.kind]);
        out.u32(0x30, self.lsize);
        out.u32(0x34, self.psize);
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
