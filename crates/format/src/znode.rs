//! What a file system object is: type, owner, times, links, and where its other parts are.
//!
//! From:   SA buffers (bonus type 44 and spill block), or a legacy znode (bonus type 17).
//! To:     `zpl`.
//! Source: docs/format/07-zpl-sa.md §1.1, §4, §5.

use alloc::vec::Vec;

use crate::sa::{self, Attribute, Registry};
use crate::{ByteOrder, Corrupt, ObjectId, acl};

/// Bits of the file type in `mode`.
pub const S_IFMT: u64 = 0o170_000;
/// Type: directory.
pub const S_IFDIR: u64 = 0o040_000;
/// Type: regular file.
pub const S_IFREG: u64 = 0o100_000;
/// Type: symbolic link.
pub const S_IFLNK: u64 = 0o120_000;
/// Type: character device.
pub const S_IFCHR: u64 = 0o020_000;
/// Type: block device.
pub const S_IFBLK: u64 = 0o060_000;
/// Type: fifo.
pub const S_IFIFO: u64 = 0o010_000;
/// Type: socket.
pub const S_IFSOCK: u64 = 0o140_000;

/// Bits of the `FLAGS` attribute.
#[allow(missing_docs, reason = "the names are those of the format")]
pub mod pflags {
    pub const XATTR: u64 = 0x1;
    pub const INHERIT_ACE: u64 = 0x2;
    pub const ACL_TRIVIAL: u64 = 0x4;
    pub const ACL_OBJ_ACE: u64 = 0x8;
    pub const ACL_PROTECTED: u64 = 0x10;
    pub const ACL_DEFAULTED: u64 = 0x20;
    pub const ACL_AUTO_INHERIT: u64 = 0x40;
    pub const BONUS_SCANSTAMP: u64 = 0x80;
    pub const NO_EXECS_DENIED: u64 = 0x100;
    pub const READONLY: u64 = 1 << 32;
    pub const HIDDEN: u64 = 1 << 33;
    pub const SYSTEM: u64 = 1 << 34;
    pub const ARCHIVE: u64 = 1 << 35;
    pub const IMMUTABLE: u64 = 1 << 36;
    pub const NOUNLINK: u64 = 1 << 37;
    pub const APPENDONLY: u64 = 1 << 38;
    pub const NODUMP: u64 = 1 << 39;
    pub const OPAQUE: u64 = 1 << 40;
    pub const AV_QUARANTINED: u64 = 1 << 41;
    pub const AV_MODIFIED: u64 = 1 << 42;
    pub const REPARSE: u64 = 1 << 43;
    pub const OFFLINE: u64 = 1 << 44;
    pub const SPARSE: u64 = 1 << 45;
    pub const PROJINHERIT: u64 = 1 << 46;
    pub const PROJID: u64 = 1 << 47;
}

/// Keys of the master node (object 1).
#[allow(missing_docs, reason = "the names are those of the format")]
pub mod master {
    pub const VERSION: &str = "VERSION";
    pub const ROOT: &str = "ROOT";
    pub const DELETE_QUEUE: &str = "DELETE_QUEUE";
    pub const SA_ATTRS: &str = "SA_ATTRS";
    pub const NORMALIZATION: &str = "normalization";
    pub const UTF8ONLY: &str = "utf8only";
    pub const CASESENSITIVITY: &str = "casesensitivity";
    pub const FUID: &str = "FUID";
    pub const SHARES: &str = "SHARES";
    pub const USERQUOTA: &str = "userquota@";
    pub const GROUPQUOTA: &str = "groupquota@";
    pub const PROJECTQUOTA: &str = "projectquota@";
    pub const USEROBJQUOTA: &str = "userobjquota@";
    pub const GROUPOBJQUOTA: &str = "groupobjquota@";
    pub const PROJECTOBJQUOTA: &str = "projectobjquota@";
    /// Key of the registry in the SA master node.
    pub const SA_REGISTRY: &str = "REGISTRY";
    /// Key of the layouts in the SA master node.
    pub const SA_LAYOUTS: &str = "LAYOUTS";
    /// Version of file systems with SA.
    pub const ZPL_VERSION: u64 = 5;
}

/// A point in time, as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct Time {
    /// Seconds since 1970.
    pub secs: i64,
    /// Nanoseconds after that.
    pub nanos: u64,
}

/// The NFSv4 ACL as stored: little-endian ACEs, see [`acl::decode`].
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Dacl {
    /// Number of ACEs.
    pub count: u64,
    /// The ACEs.
    pub aces: Vec<u8>,
}

/// The attributes of an object. Everything an attribute that isn't known here holds is kept.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Znode {
    /// `st_mode`, type included.
    pub mode: u64,
    /// Bytes; entries + 2 for a directory.
    pub size: u64,
    /// Txg of creation.
    pub generation: u64,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// Directory of the last link made; a root's own number.
    pub parent: ObjectId,
    /// [`pflags`].
    pub flags: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of contents.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
    /// Creation.
    pub crtime: Time,
    /// Names; 2 + subdirectories for a directory.
    pub links: u64,
    /// Project, in file systems with project quota.
    pub projid: Option<u64>,
    /// Device number, see [`rdev`].
    pub rdev: Option<u64>,
    /// Directory of extended attributes.
    pub xattr: Option<ObjectId>,
    /// ACL.
    pub dacl: Option<Dacl>,
    /// Target of a symbolic link, without NUL.
    pub symlink: Option<Vec<u8>>,
    /// Packed nvlist of extended attributes.
    pub dxattr: Option<Vec<u8>>,
    /// Change counter (OpenZFS 2.4).
    pub seq: Option<u64>,
    /// Attributes without a field here, by number, little-endian.
    pub others: Vec<(u16, Vec<u8>)>,
    /// Numbers of the attributes in the order they were stored in; empty for a new object.
    pub order: Vec<u16>,
}

/// The order in which OpenZFS creates attributes; those of PROJID and before have fixed offsets.
const STANDARD_ORDER: [Attribute; 21] = [
    Attribute::Mode,
    Attribute::Size,
    Attribute::Gen,
    Attribute::Uid,
    Attribute::Gid,
    Attribute::Parent,
    Attribute::Flags,
    Attribute::Atime,
    Attribute::Mtime,
    Attribute::Ctime,
    Attribute::Crtime,
    Attribute::Links,
    Attribute::Projid,
    Attribute::Rdev,
    Attribute::DaclCount,
    Attribute::DaclAces,
    Attribute::Symlink,
    Attribute::Xattr,
    Attribute::Dxattr,
    Attribute::Scanstamp,
    Attribute::Seq,
];
/// Attributes that every object has, at the start of [`STANDARD_ORDER`].
const ALWAYS: usize = 12;
/// Place of PROJID in the order, if it is there.
const PROJID_INDEX: usize = 12;

impl Znode {
    /// From the values of the bonus and then the spill block, as [`sa::decode`] gives them, each with the
    /// byte order of its buffer.
    ///
    /// # Errors
    /// [`Corrupt`] when an attribute is there twice, or one is missing that every object has.
    pub fn from_sa<'a>(
        values: impl IntoIterator<Item = (u16, &'a [u8], ByteOrder)>,
        registry: &Registry,
    ) -> Result<Znode, Corrupt> {
        let mut znode = Znode::default();
        let mut seen: u64 = 0;
        let (mut count, mut aces) = (None, None);
        for (number, raw, order) in values {
            let entry = registry.get(number)?;
            if znode.order.contains(&number) {
                return Err(Corrupt::new("SA attribute twice in an object: number", number.into()));
            }
            znode.order.push(number);
            let value = sa::value_to_little(raw, entry.swap, order)?;
            let Some(attribute) = entry.attribute else {
                znode.others.push((number, value));
                continue;
            };
            // A known name has its known length: `Registry::decode` saw to it.
            let word = |i| ByteOrder::Little.word(&value, i);
            let time = || Time { secs: word(0) as i64, nanos: word(1) };
            seen |= 1 << attribute as u16;
            match attribute {
                Attribute::Mode => znode.mode = word(0),
                Attribute::Size => znode.size = word(0),
                Attribute::Gen => znode.generation = word(0),
                Attribute::Uid => znode.uid = word(0),
                Attribute::Gid => znode.gid = word(0),
                Attribute::Parent => znode.parent = ObjectId(word(0)),
                Attribute::Flags => znode.flags = word(0),
                Attribute::Atime => znode.atime = time(),
                Attribute::Mtime => znode.mtime = time(),
                Attribute::Ctime => znode.ctime = time(),
                Attribute::Crtime => znode.crtime = time(),
                Attribute::Links => znode.links = word(0),
                Attribute::Projid => znode.projid = Some(word(0)),
                Attribute::Rdev => znode.rdev = Some(word(0)),
                Attribute::Xattr => znode.xattr = Some(ObjectId(word(0))),
                Attribute::Seq => znode.seq = Some(word(0)),
                Attribute::DaclCount => count = Some(word(0)),
                Attribute::DaclAces => aces = Some(value),
                Attribute::Symlink => znode.symlink = Some(value),
                Attribute::Dxattr => znode.dxattr = Some(value),
                Attribute::Pad | Attribute::ZnodeAcl | Attribute::Scanstamp => {
                    znode.others.push((number, value));
                }
            }
        }
        if let Some(missing) = STANDARD_ORDER[..ALWAYS].iter().find(|a| seen >> (**a as u16) & 1 == 0) {
            return Err(Corrupt::new("SA attribute missing in an object: number", *missing as u64));
        }
        znode.dacl = match (count, aces) {
            (Some(count), Some(aces)) => Some(Dacl { count, aces }),
            (None, None) => None,
            (count, _) => return Err(Corrupt::new("ACL without its other half; count", count.unwrap_or(0))),
        };
        Ok(znode)
    }

    /// The values in the order to store them in, for [`sa::spill_point`] and [`sa::encode`].
    ///
    /// An object that was read keeps its order; attributes new to it follow at the end. A PROJID that is
    /// not where accounting looks for it brings all into the standard order.
    ///
    /// # Errors
    /// [`Corrupt`] when an attribute it has isn't registered ([`Registry::register`] first).
    pub fn to_sa(&self, registry: &Registry) -> Result<Vec<(u16, Vec<u8>)>, Corrupt> {
        let number_of = |attribute| {
            registry
                .number_of(attribute)
                .ok_or(Corrupt::new("unregistered SA attribute, usually of number", attribute as u64))
        };
        let mut present = Vec::new();
        for attribute in STANDARD_ORDER {
            if let Some(value) = self.value(attribute) {
                present.push((number_of(attribute)?, value));
            }
        }
        for (number, value) in &self.others {
            registry.get(*number)?;
            present.push((*number, value.clone()));
        }
        let projid_moves = match self.projid {
            Some(_) => self.order.get(PROJID_INDEX) != registry.number_of(Attribute::Projid).as_ref(),
            None => false,
        };
        if !projid_moves {
            // A stable sort: what the old order doesn't know stays behind, in standard order.
            let place = |number| self.order.iter().position(|n| *n == number).unwrap_or(usize::MAX);
            present.sort_by_key(|(number, _)| place(*number));
        }
        Ok(present)
    }

    /// The value of an attribute that has a field here.
    fn value(&self, attribute: Attribute) -> Option<Vec<u8>> {
        let word = |word: u64| Some(word.to_le_bytes().to_vec());
        let time = |time: Time| Some([time.secs.to_le_bytes(), time.nanos.to_le_bytes()].concat());
        match attribute {
            Attribute::Mode => word(self.mode),
            Attribute::Size => word(self.size),
            Attribute::Gen => word(self.generation),
            Attribute::Uid => word(self.uid),
            Attribute::Gid => word(self.gid),
            Attribute::Parent => word(self.parent.0),
            Attribute::Flags => word(self.flags),
            Attribute::Atime => time(self.atime),
            Attribute::Mtime => time(self.mtime),
            Attribute::Ctime => time(self.ctime),
            Attribute::Crtime => time(self.crtime),
            Attribute::Links => word(self.links),
            Attribute::Projid => self.projid.and_then(word),
            Attribute::Rdev => self.rdev.and_then(word),
            Attribute::Xattr => self.xattr.and_then(|object| word(object.0)),
            Attribute::Seq => self.seq.and_then(word),
            Attribute::DaclCount => self.dacl.as_ref().and_then(|dacl| word(dacl.count)),
            Attribute::DaclAces => self.dacl.as_ref().map(|dacl| dacl.aces.clone()),
            Attribute::Symlink => self.symlink.clone(),
            Attribute::Dxattr => self.dxattr.clone(),
            Attribute::Pad | Attribute::ZnodeAcl | Attribute::Scanstamp => None,
        }
    }

    /// Gives the object the ACL and the flags that say what its `mode` says.
    pub fn set_trivial_acl(&mut self) {
        let aces = acl::trivial(self.mode);
        self.dacl = Some(Dacl { count: aces.len() as u64, aces: acl::encode(&aces) });
        let hints = pflags::ACL_TRIVIAL
            | pflags::ACL_AUTO_INHERIT
            | pflags::NO_EXECS_DENIED
            | pflags::INHERIT_ACE
            | pflags::ACL_OBJ_ACE
            | pflags::ACL_PROTECTED
            | pflags::ACL_DEFAULTED;
        self.flags = self.flags & !hints | acl::hints(self.mode);
    }

    /// `FLAGS` of a new object of this mode, with a project id or without.
    #[must_use]
    pub const fn new_flags(mode: u64, has_projid: bool) -> u64 {
        let projid = if has_projid { pflags::PROJID } else { 0 };
        pflags::ARCHIVE | pflags::AV_MODIFIED | projid | acl::hints(mode)
    }
}

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

/// The value of a directory entry: an object and, as a hint, its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dirent {
    /// `d_type`: the type bits of the mode, shifted by 12; 0 when unknown.
    pub kind: u8,
    /// The object.
    pub object: ObjectId,
}

impl Dirent {
    /// The entry for an object of this mode.
    #[must_use]
    pub const fn new(mode: u64, object: ObjectId) -> Dirent {
        Dirent { kind: ((mode & S_IFMT) >> 12) as u8, object }
    }

    /// From a ZAP value.
    ///
    /// # Errors
    /// [`Corrupt`] for object 0.
    pub const fn decode(value: u64) -> Result<Dirent, Corrupt> {
        let object = value & ((1 << 48) - 1);
        if object == 0 {
            return Err(Corrupt::new("directory entry", value));
        }
        Ok(Dirent { kind: (value >> 60) as u8, object: ObjectId(object) })
    }

    /// The ZAP value.
    ///
    /// # Panics
    /// If the object's number needs more than 48 bits.
    #[must_use]
    pub fn encode(self) -> u64 {
        assert!(self.object.0 >> 48 == 0, "object numbers have 48 bits");
        assert!(self.kind < 16, "types of directory entries have 4 bits");
        u64::from(self.kind) << 60 | self.object.0
    }
}

/// Device numbers: as Linux OpenZFS stores them, and as programs see them.
pub mod rdev {
    /// Major and minor of a stored number. Numbers beyond 32 bits are those of FreeBSD and illumos.
    #[must_use]
    pub const fn unpack(stored: u64) -> (u32, u32) {
        if stored >> 32 == 0 {
            ((stored >> 20) as u32, (stored & 0xf_ffff) as u32)
        } else {
            ((stored >> 32) as u32, stored as u32)
        }
    }

    /// The stored number; `None` when major or minor are beyond the 12 and 20 bits that Linux has.
    #[must_use]
    pub const fn pack(major: u32, minor: u32) -> Option<u64> {
        if major >> 12 != 0 || minor >> 20 != 0 {
            return None;
        }
        Some((major as u64) << 20 | minor as u64)
    }

    /// `st_rdev` as programs on Linux see it (glibc's `makedev`).
    #[must_use]
    pub const fn to_user(major: u32, minor: u32) -> u64 {
        let (major, minor) = (major as u64, minor as u64);
        (major & 0xfff) << 8 | (major >> 12) << 44 | (minor & 0xff) | (minor >> 8) << 20
    }

    /// Major and minor of an `st_rdev`.
    #[must_use]
    pub const fn from_user(device: u64) -> (u32, u32) {
        let major = (device >> 8 & 0xfff) | (device >> 44) << 12;
        let minor = (device & 0xff) | (device >> 20 & 0xff_ffff) << 8;
        (major as u32, minor as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file() -> Znode {
        let mut znode = Znode {
            mode: S_IFREG | 0o644,
            size: 5,
            generation: 9,
            parent: ObjectId(34),
            links: 1,
            projid: Some(0),
            ctime: Time { secs: -1, nanos: 999_999_999 },
            flags: Znode::new_flags(S_IFREG | 0o644, true),
            ..Znode::default()
        };
        znode.set_trivial_acl();
        znode
    }

    fn numbers(znode: &Znode, registry: &Registry) -> Vec<u16> {
        znode.to_sa(registry).unwrap().iter().map(|(number, _)| *number).collect()
    }

    fn again(znode: &Znode, registry: &Registry) -> Znode {
        let values = znode.to_sa(registry).unwrap();
        let little = values.iter().map(|(n, v)| (*n, &v[..], ByteOrder::Little));
        Znode::from_sa(little, registry).unwrap()
    }

    #[test]
    fn new_objects_have_the_layouts_of_openzfs() {
        let registry = Registry::standard();
        assert_eq!(numbers(&file(), &registry), [5, 6, 4, 12, 13, 7, 11, 0, 1, 2, 3, 8, 21, 16, 19]);
        let link = Znode { projid: None, symlink: Some(b"there".to_vec()), ..file() };
        assert_eq!(numbers(&link, &registry), [5, 6, 4, 12, 13, 7, 11, 0, 1, 2, 3, 8, 16, 19, 17]);
        let device = Znode { projid: None, rdev: Some(1), ..file() };
        assert_eq!(numbers(&device, &registry), [5, 6, 4, 12, 13, 7, 11, 0, 1, 2, 3, 8, 10, 16, 19]);
    }

    #[test]
    fn new_objects_have_the_flags_of_openzfs() {
        assert_eq!(Znode::new_flags(0o040_755, true), 0x8408_0000_0144);
        assert_eq!(Znode::new_flags(0o100_644, true), 0x8408_0000_0004);
        assert_eq!(Znode::new_flags(0o100_755, true), 0x8408_0000_0104);
        assert_eq!(Znode::new_flags(0o120_777, false), 0x0408_0000_0104);
    }

    #[test]
    fn attributes_keep_their_order_and_new_ones_follow() {
        let registry = Registry::standard();
        let mut znode = again(&Znode { xattr: Some(ObjectId(7)), ..file() }, &registry);
        znode.symlink = Some(Vec::new());
        assert_eq!(numbers(&znode, &registry)[13..], [16, 19, 9, 17]);
        znode.xattr = None;
        assert_eq!(numbers(&znode, &registry)[13..], [16, 19, 17]);
    }

    #[test]
    fn a_project_id_that_comes_late_goes_to_its_fixed_place() {
        let registry = Registry::standard();
        let mut znode = again(&Znode { projid: None, xattr: Some(ObjectId(7)), ..file() }, &registry);
        znode.projid = Some(5);
        let values = znode.to_sa(&registry).unwrap();
        assert_eq!(values[PROJID_INDEX].0, 21);
        let offset: usize = values[..PROJID_INDEX].iter().map(|(_, value)| value.len()).sum();
        assert_eq!(offset, 0x80);
    }

    #[test]
    fn unknown_attributes_stay_where_they_are() {
        let standard = Registry::standard();
        let mut entries: Vec<_> = standard.entries().iter().map(|e| (e.name.as_str(), e.encode())).collect();
        entries.push(("FUTURE", 0x400_0000 | 1 << 16 | 22));
        let registry = Registry::decode(entries).unwrap();
        let mut values = file().to_sa(&registry).unwrap();
        values.insert(13, (22, Vec::from([1, 2, 3, 4])));
        let znode =
            Znode::from_sa(values.iter().map(|(n, v)| (*n, &v[..], ByteOrder::Little)), &registry).unwrap();
        assert_eq!(znode.to_sa(&registry), Ok(values.clone()));
        let big = |(n, v): &(u16, Vec<u8>)| {
            let swap = registry.get(*n).unwrap().swap;
            let mut v = v.clone();
            match swap {
                0 => v.chunks_exact_mut(8).for_each(<[u8]>::reverse),
                1 => v.reverse(),
                // Abstract ACEs: two halves and a word.
                4 => v.chunks_exact_mut(8).for_each(|ace| {
                    ace[..2].reverse();
                    ace[2..4].reverse();
                    ace[4..].reverse();
                }),
                _ => {}
            }
            (*n, v)
        };
        let foreign: Vec<_> = values.iter().map(big).collect();
        let read = Znode::from_sa(foreign.iter().map(|(n, v)| (*n, &v[..], ByteOrder::Big)), &registry);
        assert_eq!(read, Ok(znode));
    }

    #[test]
    fn missing_and_double_attributes_are_corrupt() {
        let registry = Registry::standard();
        let values = file().to_sa(&registry).unwrap();
        let read = |range: &[(u16, Vec<u8>)]| {
            Znode::from_sa(range.iter().map(|(n, v)| (*n, &v[..], ByteOrder::Little)), &registry)
        };
        assert!(read(&values[1..]).is_err());
        assert!(read(&values[..14]).is_err());
        assert!(read(&values[..13]).is_ok());
        assert!(read(&[&values[..], &values[..1]].concat()).is_err());
    }

    #[test]
    fn device_numbers_turn_both_ways() {
        assert_eq!(rdev::pack(10, 200), Some(0xa0_00c8));
        assert_eq!(rdev::unpack(0xa0_00c8), (10, 200));
        assert_eq!(rdev::unpack(10 << 32 | 200), (10, 200));
        assert_eq!(rdev::to_user(10, 200), 0xac8);
        assert_eq!(rdev::pack(4096, 0), None);
    }

    #[test]
    fn a_directory_entry_carries_type_and_object() {
        let entry = Dirent::new(S_IFDIR | 0o755, ObjectId(34));
        assert_eq!(entry.encode(), 0x4000_0000_0000_0022);
        assert_eq!(Dirent::decode(entry.encode()), Ok(entry));
        assert!(Dirent::decode(4 << 60).is_err());
    }

    #[test]
    fn a_short_link_lies_in_the_legacy_bonus() {
        let mut raw = alloc::vec![0; LEGACY_SIZE + 8];
        ByteOrder::Little.put_u64(&mut raw, 0x48, S_IFLNK | 0o777);
        ByteOrder::Little.put_u64(&mut raw, 0x50, 5);
        raw[LEGACY_SIZE..LEGACY_SIZE + 5].copy_from_slice(b"there");
        let legacy = LegacyZnode::decode(&raw, ByteOrder::Little).unwrap();
        assert_eq!(legacy.znode.symlink.as_deref(), Some(&b"there"[..]));
        assert_eq!(legacy.encode(), raw);
    }

    proptest! {
        #[test]
        fn device_numbers_survive_user_space(major: u32, minor: u32) {
            prop_assert_eq!(rdev::from_user(rdev::to_user(major, minor)), (major, minor));
        }

        #[test]
        fn attributes_survive_a_round_trip(
            words: [u64; 9], times: [(i64, u64); 4], optional: [Option<u64>; 3],
            symlink: Option<Vec<u8>>, dxattr: Option<Vec<u8>>, dacl: Option<(u64, Vec<u8>)>,
        ) {
            let time = |i: usize| Time { secs: times[i].0, nanos: times[i].1 };
            let znode = Znode {
                mode: words[0], size: words[1], generation: words[2], uid: words[3], gid: words[4],
                parent: ObjectId(words[5]), flags: words[6], links: words[7],
                atime: time(0), mtime: time(1), ctime: time(2), crtime: time(3),
                projid: optional[0], rdev: optional[1], xattr: optional[2].map(ObjectId),
                dacl: dacl.map(|(count, aces)| Dacl { count, aces }), symlink, dxattr,
                ..Znode::default()
            };
            let registry = Registry::standard();
            let read = again(&znode, &registry);
            prop_assert_eq!(&again(&read, &registry), &read);
            prop_assert_eq!(Znode { order: Vec::new(), ..read }, znode);
        }

        #[test]
        fn any_legacy_bonus_decodes_to_what_it_encodes_to_or_is_refused(
            raw in proptest::collection::vec(any::<u8>(), 0x100..0x140), version in 0u8..3, big: bool,
        ) {
            let mut raw = raw;
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            order.put_u16(&mut raw, LEGACY_ACL + 12, version.into());
            if let Ok(legacy) = LegacyZnode::decode(&raw, order) {
                let little = legacy.encode();
                prop_assert_eq!(LegacyZnode::decode(&little, ByteOrder::Little), Ok(legacy));
                if order == ByteOrder::Little {
                    prop_assert_eq!(little, raw);
                }
            }
        }
    }
}
