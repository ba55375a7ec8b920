//! Attributes of file system objects: type, owner, times, links, and the places of other parts.
//!
//! From:   SA buffers (bonus type 44 and spill block), or a legacy znode (bonus type 17).
//! To:     `zpl`.
//! Source: docs/format/07-zpl-sa.md §1.1, §4, §5.

mod dirent;
mod legacy;
#[allow(missing_docs, reason = "the names are those of the format")]
pub mod master;
pub mod rdev;
#[cfg(test)]
mod tests;

pub use self::dirent::Dirent;
pub(crate) use self::legacy::LEGACY_ACL;
pub use self::legacy::{LEGACY_SIZE, LEGACY_TARGET_MAX, LegacyAcl, LegacyZnode};

use alloc::vec::Vec;

pub use crate::mode::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK, pflags};

use crate::sa::{self, Attribute, Registry};
use crate::{ByteOrder, Corrupt, ObjectId, acl};

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

/// The attributes of an object. Values of unknown attributes are kept.
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
    /// The directory in which the last link was made. A root has its own number here.
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
            // The length of a known attribute is right: `Registry::decode` checked it.
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
    /// An object that was read keeps its order, and new attributes follow at the end. If PROJID is not at the offset where
    /// accounting looks for it, all attributes get the standard order.
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

    /// Gives the object the trivial ACL and the flags of its `mode`.
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
