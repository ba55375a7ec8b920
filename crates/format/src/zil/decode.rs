//! Decoding records. Everything here is input: any bytes give records or an error.

use alloc::vec::Vec;
use core::ops::Range;

use super::record::{
    Acl, Attrs, Body, CloneRange, Create, CreateKind, LoggedNode, NewAcl, Outline, Record, Rename,
    RenameKind, SetAttr, Write, kind,
};
use super::{RECORD_HEADER, WRITE_HEADER};
use crate::znode::Time;
use crate::{BlockPtr, ByteOrder, Corrupt, ObjectId, Txg, blkptr};

/// Where a TX_WRITE record has the pointer to its data.
const WRITE_PTR: usize = 0x40;
/// Where a clone has the number of its pointers, which they follow.
const CLONE_PTRS: usize = 0x40;

/// The records in `range` of a log block, in order. Ends after the first invalid one.
#[must_use]
pub fn records(raw: &[u8], range: Range<usize>, order: ByteOrder) -> Records<'_> {
    let raw = raw.get(..range.end).unwrap_or_default();
    Records { raw, at: range.start.min(raw.len()), order }
}

/// The records in `range` of a log block, as far as they can be read without a key, in order. Ends after the first invalid
/// one.
pub fn outlines(
    raw: &[u8],
    range: Range<usize>,
    order: ByteOrder,
) -> impl Iterator<Item = Result<Outline, Corrupt>> {
    let mut rest = raw.get(range).unwrap_or_default();
    core::iter::from_fn(move || {
        let whole = core::mem::take(&mut rest);
        if whole.is_empty() {
            return None;
        }
        let decoded = Outline::decode(whole, order);
        if let Ok((_, len)) = &decoded {
            rest = &whole[*len..];
        }
        Some(decoded.map(|(outline, _)| outline))
    })
}

/// Iterator over the records of a block.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    raw: &'a [u8],
    at: usize,
    order: ByteOrder,
}

impl Iterator for Records<'_> {
    type Item = Result<Record, Corrupt>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = &self.raw[self.at..];
        if rest.is_empty() {
            return None;
        }
        let decoded = Record::decode(rest, self.order);
        self.at = decoded.as_ref().map_or(self.raw.len(), |(_, len)| self.at + len);
        Some(decoded.map(|(record, _)| record))
    }
}

/// The type of the record at the start of `raw` with its flags, and its bytes.
fn header(raw: &[u8], order: ByteOrder) -> Result<(u64, usize), Corrupt> {
    if raw.len() < RECORD_HEADER {
        return Err(Corrupt::new("log record header", raw.len() as u64));
    }
    let (word, len) = (order.u64(raw, 0), order.u64(raw, 8));
    let fits = len >= RECORD_HEADER as u64 && len <= raw.len() as u64 && len.is_multiple_of(8);
    if fits { Ok((word, len as usize)) } else { Err(Corrupt::new("log record length", len)) }
}

impl Outline {
    /// Decodes the part of the record at the start of `raw` that can be read without a key; returns also its bytes.
    fn decode(raw: &[u8], order: ByteOrder) -> Result<(Outline, usize), Corrupt> {
        let (word, len) = header(raw, order)?;
        let (is_write, is_clone) =
            (word & !kind::IGNORE_CASE == kind::WRITE, word & !kind::IGNORE_CASE == kind::CLONE_RANGE);
        let at = if is_clone { CLONE_PTRS } else { WRITE_PTR };
        let mut reader = Reader { raw: &raw[..len], at: at.min(len), order };
        let outline = Outline {
            txg: Txg(order.u64(raw, 0x10)),
            seq: order.u64(raw, 0x18),
            ptr: if is_write { reader.ptr()? } else { BlockPtr::HOLE },
            cloned: if is_clone { reader.counted_ptrs()? } else { Vec::new() },
        };
        Ok((outline, len))
    }
}

impl Record {
    /// Decodes the record at the start of `raw`. Also returns the bytes of the record.
    ///
    /// # Errors
    /// [`Corrupt`] for short input, an unknown type, or fields that do not fit the record's length.
    pub fn decode(raw: &[u8], order: ByteOrder) -> Result<(Record, usize), Corrupt> {
        let (word, len) = header(raw, order)?;
        let mut reader = Reader { raw: &raw[..len], at: RECORD_HEADER, order };
        let record = Record {
            txg: Txg(order.u64(raw, 0x10)),
            seq: order.u64(raw, 0x18),
            ignore_case: word & kind::IGNORE_CASE != 0,
            body: reader.body(word & !kind::IGNORE_CASE)?,
        };
        Ok((record, len))
    }
}

/// Reads a record field by field.
struct Reader<'a> {
    raw: &'a [u8],
    at: usize,
    order: ByteOrder,
}

impl<'a> Reader<'a> {
    fn bytes(&mut self, len: u64) -> Result<&'a [u8], Corrupt> {
        let rest = &self.raw[self.at..];
        let len = usize::try_from(len).ok().filter(|len| *len <= rest.len());
        let len =
            len.ok_or(Corrupt::new("log record that is too short for its fields", self.raw.len() as u64))?;
        self.at += len;
        Ok(&rest[..len])
    }

    fn u64(&mut self) -> Result<u64, Corrupt> {
        Ok(self.order.u64(self.bytes(8)?, 0))
    }

    fn u32(&mut self) -> Result<u32, Corrupt> {
        Ok(self.order.u32(self.bytes(4)?, 0))
    }

    fn object(&mut self) -> Result<ObjectId, Corrupt> {
        Ok(ObjectId(self.u64()?))
    }

    /// Decodes the node that a record creates.
    fn new_node(&mut self) -> Result<LoggedNode, Corrupt> {
        let (object, slots) = self.new_object()?;
        Ok(LoggedNode {
            object,
            slots,
            mode: self.u64()?,
            uid: self.u64()?,
            gid: self.u64()?,
            generation: self.u64()?,
            crtime: self.time()?,
            rdev: self.u64()?,
        })
    }

    /// An object number with the slots of its dnode.
    fn new_object(&mut self) -> Result<(ObjectId, u8), Corrupt> {
        let word = self.u64()?;
        let slots = (word >> 56) + 1;
        if slots > 32 || word >> 48 & 0xff != 0 {
            return Err(Corrupt::new("object number in a log record", word));
        }
        Ok((ObjectId(word & ((1 << 48) - 1)), slots as u8))
    }

    fn time(&mut self) -> Result<Time, Corrupt> {
        Ok(Time { secs: self.u64()? as i64, nanos: self.u64()? })
    }

    /// A string that ends with a zero byte, which is not part of it.
    fn string(&mut self) -> Result<Vec<u8>, Corrupt> {
        let rest = &self.raw[self.at..];
        let len = rest.iter().position(|&byte| byte == 0);
        let len = len.ok_or(Corrupt::new("name without end in a log record", rest.len() as u64))?;
        self.at += len + 1;
        Ok(rest[..len].to_vec())
    }

    fn strings(&mut self, count: u64) -> Result<Vec<Vec<u8>>, Corrupt> {
        let mut found = Vec::new();
        for _ in 0..count {
            found.push(self.string()?);
        }
        Ok(found)
    }

    fn ptr(&mut self) -> Result<BlockPtr, Corrupt> {
        BlockPtr::decode(self.bytes(blkptr::SIZE as u64)?, self.order)
    }

    fn body(&mut self, kind: u64) -> Result<Body, Corrupt> {
        Ok(match kind {
            kind::CREATE | kind::MKDIR | kind::MKXATTR | kind::SYMLINK => Body::Create(self.create(kind)?),
            kind::CREATE_ACL..=kind::MKDIR_ACL_ATTR => Body::Create(self.create(kind)?),
            kind::REMOVE | kind::RMDIR => {
                Body::Remove { dir: self.object()?, name: self.string()?, is_dir: kind == kind::RMDIR }
            }
            kind::LINK => Body::Link { dir: self.object()?, object: self.object()?, name: self.string()? },
            kind::RENAME | kind::RENAME_EXCHANGE | kind::RENAME_WHITEOUT => Body::Rename(self.rename(kind)?),
            kind::WRITE => Body::Write(self.write()?),
            kind::WRITE2 => Body::Extend { object: self.object()?, offset: self.u64()?, length: self.u64()? },
            kind::TRUNCATE => {
                Body::Truncate { object: self.object()?, offset: self.u64()?, length: self.u64()? }
            }
            kind::SETATTR => Body::SetAttr(self.set_attr()?),
            kind::ACL_V0 => {
                let (object, count) = (self.object()?, self.u64()?);
                Body::AclV0 { object, aces: self.bytes(count.saturating_mul(8))?.to_vec() }
            }
            kind::ACL => {
                let object = self.object()?;
                let mut acl = NewAcl { count: self.u64()?, domain_count: self.u64()?, ..NewAcl::default() };
                let (fuids, bytes) = (self.u64()?, self.u64()?);
                acl.flags = self.u64()?;
                self.acl_body(&mut acl, fuids, bytes)?;
                let domains = self.strings(acl.domain_count)?;
                Body::Acl(Acl { object, acl, domains })
            }
            kind::SETSAXATTR => {
                let (object, size) = (self.object()?, self.u64()?);
                let name = self.string()?;
                let value = if size == 0 { None } else { Some(self.bytes(size)?.to_vec()) };
                Body::SetSaXattr { object, name, value }
            }
            kind::CLONE_RANGE => Body::CloneRange(self.clone_range()?),
            other => return Err(Corrupt::new("log record type", other)),
        })
    }

    fn create(&mut self, kind: u64) -> Result<Create, Corrupt> {
        let dir = self.object()?;
        let mut create = Create {
            kind: match kind {
                kind::CREATE | kind::CREATE_ACL | kind::CREATE_ATTR | kind::CREATE_ACL_ATTR => {
                    CreateKind::File
                }
                kind::MKXATTR => CreateKind::XattrDir,
                kind::SYMLINK => CreateKind::Symlink,
                _ => CreateKind::Dir,
            },
            dir,
            node: self.new_node()?,
            acl: None,
            attrs: None,
            domains: Vec::new(),
            name: Vec::new(),
            target: None,
        };
        let has_acl =
            matches!(kind, kind::CREATE_ACL | kind::CREATE_ACL_ATTR | kind::MKDIR_ACL | kind::MKDIR_ACL_ATTR);
        let has_attrs = matches!(
            kind,
            kind::CREATE_ATTR | kind::CREATE_ACL_ATTR | kind::MKDIR_ATTR | kind::MKDIR_ACL_ATTR
        );
        let mut domains = domains_of(create.node.uid, create.node.gid);
        if has_acl {
            let mut acl = NewAcl { count: self.u64()?, domain_count: self.u64()?, ..NewAcl::default() };
            let (fuids, bytes) = (self.u64()?, self.u64()?);
            acl.flags = self.u64()?;
            if has_attrs {
                create.attrs = Some(self.attrs()?);
            }
            self.acl_body(&mut acl, fuids, bytes)?;
            domains = acl.domain_count;
            create.acl = Some(acl);
        } else if has_attrs {
            create.attrs = Some(self.attrs()?);
        }
        create.domains = self.strings(domains)?;
        create.name = self.string()?;
        if create.kind == CreateKind::Symlink {
            create.target = Some(self.string()?);
        }
        Ok(create)
    }

    fn acl_body(&mut self, acl: &mut NewAcl, fuids: u64, bytes: u64) -> Result<(), Corrupt> {
        acl.aces = self.bytes(bytes)?.to_vec();
        self.bytes(bytes.next_multiple_of(8) - bytes)?;
        for _ in 0..fuids {
            acl.fuids.push(self.u64()?);
        }
        Ok(())
    }

    fn attrs(&mut self) -> Result<Attrs, Corrupt> {
        let words = self.u32()?;
        if words != 3 {
            return Err(Corrupt::new("words in the bitmap of an attribute block", words.into()));
        }
        let wanted = [self.u32()?, self.u32()?, self.u32()?];
        let (values, crtime) = (self.u64()?, self.time()?);
        let mut scanstamp = [0; 32];
        scanstamp.copy_from_slice(self.bytes(32)?);
        Ok(Attrs { wanted, values, crtime, scanstamp })
    }

    fn rename(&mut self, kind: u64) -> Result<Rename, Corrupt> {
        let (from_dir, to_dir) = (self.object()?, self.object()?);
        let kind = match kind {
            kind::RENAME => RenameKind::Replace,
            kind::RENAME_EXCHANGE => RenameKind::Exchange,
            _ => RenameKind::Whiteout(self.new_node()?),
        };
        Ok(Rename { from_dir, from: self.string()?, to_dir, to: self.string()?, kind })
    }

    fn write(&mut self) -> Result<Write, Corrupt> {
        let mut write = Write {
            object: self.object()?,
            offset: self.u64()?,
            length: self.u64()?,
            block_offset: self.u64()?,
            ptr: self.ptr()?,
            data: None,
        };
        if self.raw.len() > WRITE_HEADER && write.length > 0 {
            write.data = Some(self.bytes(write.length)?.to_vec());
        }
        Ok(write)
    }

    fn set_attr(&mut self) -> Result<SetAttr, Corrupt> {
        let mut set = SetAttr {
            object: self.object()?,
            mask: self.u64()?,
            mode: self.u64()?,
            uid: self.u64()?,
            gid: self.u64()?,
            size: self.u64()?,
            atime: self.time()?,
            mtime: self.time()?,
            attrs: None,
            domains: Vec::new(),
        };
        if set.mask & super::mask::XVATTR != 0 {
            set.attrs = Some(self.attrs()?);
        }
        let wanted = |bit, id| if set.mask & bit != 0 { id } else { 0 };
        let domains = domains_of(wanted(super::mask::UID, set.uid), wanted(super::mask::GID, set.gid));
        set.domains = self.strings(domains)?;
        Ok(set)
    }

    fn clone_range(&mut self) -> Result<CloneRange, Corrupt> {
        Ok(CloneRange {
            object: self.object()?,
            offset: self.u64()?,
            length: self.u64()?,
            block_size: self.u64()?,
            ptrs: self.counted_ptrs()?,
        })
    }

    /// A number of pointers, and the pointers.
    fn counted_ptrs(&mut self) -> Result<Vec<BlockPtr>, Corrupt> {
        let mut ptrs = Vec::new();
        for _ in 0..self.u64()? {
            ptrs.push(self.ptr()?);
        }
        Ok(ptrs)
    }
}

/// How many domains go with an owner and a group: one for each that is no POSIX id, unless they share it.
pub(super) fn domains_of(uid: u64, gid: u64) -> u64 {
    let (uid, gid) = (uid >> 32, gid >> 32);
    u64::from(uid != 0) + u64::from(gid != 0 && gid != uid)
}
