//! A legacy znode: what an object is, in its bonus, before there were system attributes.
//!
//! Source: docs/format/07-zpl-sa.md §4.3.

use alloc::vec::Vec;

use super::{S_IFLNK, S_IFMT, Time, Znode};
use crate::{ByteOrder, Corrupt, ObjectId, acl};

/// Bytes of a legacy znode, before a symbolic link's target.
pub const LEGACY_SIZE: usize = 0x108;

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

impl LegacyAcl {
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

impl LegacyZnode {
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
