//! Legacy znodes: the attributes of an object in its bonus, before there were system attributes.
//!
//! Source: docs/format/07-zpl-sa.md §4.3.

use alloc::vec::Vec;

use super::{S_IFLNK, S_IFMT, Time, Znode};
use crate::{ByteOrder, Corrupt, ObjectId, acl};

/// Bytes of a legacy znode, before a symbolic link's target.
pub const LEGACY_SIZE: usize = 0x108;

/// Longest target of a symbolic link that lies in the bonus, in bytes.
pub const LEGACY_TARGET_MAX: usize = 320 - LEGACY_SIZE;

pub(crate) const LEGACY_ACL: usize = 0xb0;

/// A legacy znode (bonus type 17, ZPL versions before 5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LegacyZnode {
    /// The attributes; `rdev` is always there, `xattr` where it is nonzero. `symlink` is the target if it
    /// lies in the bonus; else it is in block 0. `dacl` is not used: see `acl`.
    pub znode: Znode,
    /// Word at 0x90.
    pub zap: u64,
    /// Words at 0x98.
    pub pad: [u64; 3],
    /// The ACL.
    pub acl: LegacyAcl,
    /// Bytes of the bonus behind the znode and a symbolic link's target.
    pub tail: Vec<u8>,
}

/// The ACL inside a legacy znode. Where it has more entries than fit, `external` holds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LegacyAcl {
    /// Object with the whole ACL; 0 for none.
    pub external: ObjectId,
    /// Bytes of all ACEs. Version 0: number of ACEs.
    pub size: u32,
    /// 0: ACEs of 12 bytes with 32-bit ids. 1: as in `DACL_ACES`.
    pub version: u16,
    /// Number of ACEs. Version 0: unused.
    pub count: u16,
    /// The inline ACEs, little-endian, zero-filled.
    pub aces: [u8; 72],
}

/// Bytes of an ACE of version 0: id (4), mask (4), flags (2), type (2).
const OLD_ACE: usize = 12;

impl LegacyAcl {
    /// An inline ACL of this version (0 or 1) that holds `aces`; `None` when they do not fit or need 64-bit ids in version 0.
    #[must_use]
    pub fn inline(version: u16, aces: &[acl::Ace]) -> Option<LegacyAcl> {
        let raw = match version {
            0 => old_aces(aces)?,
            _ => acl::encode(aces),
        };
        let mut inline = [0; 72];
        inline.get_mut(..raw.len())?.copy_from_slice(&raw);
        let (count, bytes) = (aces.len() as u16, raw.len() as u16);
        // In version 0 the two numbers lie the other way round.
        let (size, count) = if version == 0 { (u32::from(count), bytes) } else { (u32::from(bytes), count) };
        Some(LegacyAcl { external: ObjectId(0), size, version, count, aces: inline })
    }

    /// The entries, if they are all in the znode.
    ///
    /// # Errors
    /// [`Corrupt`] when the number of bytes or entries cannot be.
    pub fn entries(&self) -> Result<Option<Vec<acl::Ace>>, Corrupt> {
        if self.external.0 != 0 {
            return Ok(None);
        }
        let count = self.size as usize;
        let order = ByteOrder::Little;
        if self.version == 0 {
            let too_many = Corrupt::new("number of inline ACEs", count as u64);
            let used = count.checked_mul(OLD_ACE).and_then(|bytes| self.aces.get(..bytes)).ok_or(too_many)?;
            let ace = |raw: &[u8]| {
                let (flags, kind) = (order.u16(raw, 8), order.u16(raw, 10));
                let id = (!acl::Ace::is_abstract(flags)).then(|| order.u32(raw, 0).into());
                acl::Ace { kind, flags, mask: order.u32(raw, 4), id, object: None }
            };
            return Ok(Some(used.chunks_exact(OLD_ACE).map(ace).collect()));
        }
        let used = self.aces.get(..count).ok_or(Corrupt::new("inline ACL size", count as u64))?;
        acl::decode(used, self.count.into(), order).map(Some)
    }

    fn decode(raw: &[u8], order: ByteOrder) -> Result<LegacyAcl, Corrupt> {
        let mut acl = LegacyAcl {
            external: ObjectId(order.u64(raw, 0)),
            size: order.u32(raw, 8),
            version: order.u16(raw, 12),
            count: order.u16(raw, 14),
            aces: raw[16..88].try_into().expect("72 bytes were sliced"),
        };
        if acl.version > 1 {
            return Err(Corrupt::new("ACL version", acl.version.into()));
        }
        if order == ByteOrder::Big {
            if acl.version == 0 {
                acl::swap_old(&mut acl.aces);
            } else if acl.external.0 == 0 {
                let size = acl.size as usize;
                let used = acl.aces.get_mut(..size).ok_or(Corrupt::new("inline ACL size", size as u64))?;
                let turned = acl::encode(&acl::decode_all(used, order)?);
                used.copy_from_slice(&turned);
            }
        }
        Ok(acl)
    }

    fn encode(&self, raw: &mut [u8]) {
        let order = ByteOrder::Little;
        order.put_u64(raw, 0, self.external.0);
        order.put_u32(raw, 8, self.size);
        order.put_u16(raw, 12, self.version);
        order.put_u16(raw, 14, self.count);
        raw[16..88].copy_from_slice(&self.aces);
    }
}

/// `aces` in the form of version 0.
fn old_aces(aces: &[acl::Ace]) -> Option<Vec<u8>> {
    let mut raw = Vec::with_capacity(aces.len() * OLD_ACE);
    for ace in aces {
        let id = u32::try_from(ace.id.unwrap_or(0)).ok().filter(|_| ace.object.is_none())?;
        raw.extend(id.to_le_bytes());
        raw.extend(ace.mask.to_le_bytes());
        raw.extend(ace.flags.to_le_bytes());
        raw.extend(ace.kind.to_le_bytes());
    }
    Some(raw)
}

impl LegacyZnode {
    /// A new object's znode, whose ACL is of version `acl_version` (0 or 1). A symbolic link's target that is longer than
    /// [`LEGACY_TARGET_MAX`] is left out: it belongs in the object's first block.
    ///
    /// # Errors
    /// [`Corrupt`] when the ACL does not fit into the znode.
    pub fn new(znode: &Znode, acl_version: u16) -> Result<LegacyZnode, Corrupt> {
        let empty = LegacyAcl::inline(acl_version, &[]).expect("no entry always fits");
        let new = LegacyZnode { znode: Znode::default(), zap: 0, pad: [0; 3], acl: empty, tail: Vec::new() };
        let mut new = new.with(znode)?;
        new.znode.symlink = znode.symlink.clone().filter(|target| target.len() <= LEGACY_TARGET_MAX);
        Ok(new)
    }

    /// This znode with the attributes in `znode`. The ACL stays as it is stored unless its entries changed; the target of a
    /// symbolic link stays where it is.
    ///
    /// # Errors
    /// [`Corrupt`] when a changed ACL does not fit into the znode, or the old one is in an object of its own.
    pub fn with(mut self, znode: &Znode) -> Result<LegacyZnode, Corrupt> {
        if let Some(dacl) = &znode.dacl {
            let now = acl::decode(&dacl.aces, dacl.count, ByteOrder::Little)?;
            if self.acl.entries()?.as_ref() != Some(&now) {
                let fits = LegacyAcl::inline(self.acl.version, &now).filter(|_| self.acl.external.0 == 0);
                self.acl = fits.ok_or(Corrupt::new("entries of an ACL in a legacy znode", dacl.count))?;
            }
        }
        let symlink = self.znode.symlink.take();
        self.znode = Znode { symlink, ..znode.clone() };
        Ok(self)
    }

    /// Decodes the bonus.
    ///
    /// # Errors
    /// [`Corrupt`] when it is too short, or its ACL isn't one.
    pub fn decode(raw: &[u8], order: ByteOrder) -> Result<LegacyZnode, Corrupt> {
        if raw.len() < LEGACY_SIZE {
            return Err(Corrupt::new("legacy znode length", raw.len() as u64));
        }
        let word = |i| order.word(raw, i);
        let time = |i| Time { secs: word(i) as i64, nanos: word(i + 1) };
        let (mode, size) = (word(9), word(10));
        let mut tail = &raw[LEGACY_SIZE..];
        let mut symlink = None;
        if mode & S_IFMT == S_IFLNK && size <= tail.len() as u64 && size != 0 {
            let (target, rest) = tail.split_at(size as usize);
            symlink = Some(target.to_vec());
            tail = rest;
        }
        Ok(LegacyZnode {
            znode: Znode {
                mode,
                size,
                generation: word(8),
                uid: word(16),
                gid: word(17),
                parent: ObjectId(word(11)),
                flags: word(15),
                atime: time(0),
                mtime: time(2),
                ctime: time(4),
                crtime: time(6),
                links: word(12),
                rdev: Some(word(14)),
                xattr: Some(ObjectId(word(13))).filter(|object| object.0 != 0),
                symlink,
                ..Znode::default()
            },
            zap: word(18),
            pad: [19, 20, 21].map(word),
            acl: LegacyAcl::decode(&raw[LEGACY_ACL..LEGACY_SIZE], order)?,
            tail: tail.to_vec(),
        })
    }

    /// The little-endian bonus.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let znode = &self.znode;
        let times = [znode.atime, znode.mtime, znode.ctime, znode.crtime];
        let words = [
            znode.generation,
            znode.mode,
            znode.size,
            znode.parent.0,
            znode.links,
            znode.xattr.map_or(0, |object| object.0),
            znode.rdev.unwrap_or(0),
            znode.flags,
            znode.uid,
            znode.gid,
            self.zap,
        ];
        let mut raw = Vec::with_capacity(LEGACY_SIZE + self.tail.len());
        for word in times.iter().flat_map(|time| [time.secs as u64, time.nanos]).chain(words).chain(self.pad)
        {
            raw.extend(word.to_le_bytes());
        }
        raw.resize(LEGACY_SIZE, 0);
        self.acl.encode(&mut raw[LEGACY_ACL..]);
        raw.extend(znode.symlink.iter().flatten());
        raw.extend(&self.tail);
        raw
    }
}
