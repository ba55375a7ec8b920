//! The records of the intent log.

use alloc::vec::Vec;

use crate::znode::Time;
use crate::{BlockPtr, ObjectId, Txg};

/// Which attributes a TX_SETATTR record sets. Other bits of Linux may be present and mean nothing here.
pub mod mask {
    #![allow(missing_docs, reason = "the names say it")]
    pub const MODE: u64 = 1;
    pub const UID: u64 = 2;
    pub const GID: u64 = 4;
    pub const SIZE: u64 = 8;
    pub const ATIME: u64 = 0x10;
    pub const MTIME: u64 = 0x20;
    pub const CTIME: u64 = 0x40;
    /// An attribute block follows.
    pub const XVATTR: u64 = 0x8000_0000;
}

/// The attributes in an attribute block, as bits of [`Attrs::wanted`] and [`Attrs::values`].
pub mod xat {
    #![allow(missing_docs, reason = "the names say it")]
    pub const CREATETIME: u32 = 1;
    pub const ARCHIVE: u32 = 2;
    pub const SYSTEM: u32 = 4;
    pub const READONLY: u32 = 8;
    pub const HIDDEN: u32 = 0x10;
    pub const NOUNLINK: u32 = 0x20;
    pub const IMMUTABLE: u32 = 0x40;
    pub const APPENDONLY: u32 = 0x80;
    pub const NODUMP: u32 = 0x100;
    pub const OPAQUE: u32 = 0x200;
    pub const AV_QUARANTINED: u32 = 0x400;
    pub const AV_MODIFIED: u32 = 0x800;
    pub const AV_SCANSTAMP: u32 = 0x1000;
    pub const REPARSE: u32 = 0x2000;
    pub const GEN: u32 = 0x4000;
    pub const OFFLINE: u32 = 0x8000;
    pub const SPARSE: u32 = 0x1_0000;
    pub const PROJINHERIT: u32 = 0x2_0000;
    pub const PROJID: u32 = 0x4_0000;
}

/// One record of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The txg of the change.
    pub txg: Txg,
    /// Its number in the chain, counted from 1.
    pub seq: u64,
    /// Names were compared without regard to case (TX_CI).
    pub ignore_case: bool,
    /// The operation that was done.
    pub body: Body,
}

/// The parts of a record in an encrypted dataset that can be read without a key: its space and its txg.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    /// The txg of the change.
    pub txg: Txg,
    /// Its number in the chain, counted from 1.
    pub seq: u64,
    /// Where a write has its data; a hole for other records.
    pub ptr: BlockPtr,
    /// The blocks of another file that it shares; holes and data in pointers included.
    pub cloned: Vec<BlockPtr>,
}

impl From<&Record> for Outline {
    fn from(record: &Record) -> Outline {
        let ptr = if let Body::Write(write) = &record.body { write.ptr } else { BlockPtr::HOLE };
        let cloned = if let Body::CloneRange(clone) = &record.body { clone.ptrs.clone() } else { Vec::new() };
        Outline { txg: record.txg, seq: record.seq, ptr, cloned }
    }
}

/// The change. Objects are given by number, names relative to a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant, reason = "records are handled one at a time")]
pub enum Body {
    /// A new object and its name: TX_CREATE, TX_MKDIR, TX_MKXATTR, TX_SYMLINK and their forms with ACL or attributes.
    Create(Create),
    /// A name went: TX_REMOVE, TX_RMDIR.
    Remove {
        /// The directory.
        dir: ObjectId,
        /// The name.
        name: Vec<u8>,
        /// It was a directory's.
        is_dir: bool,
    },
    /// Another name: TX_LINK.
    Link {
        /// The directory.
        dir: ObjectId,
        /// The object that gets the name.
        object: ObjectId,
        /// The new name.
        name: Vec<u8>,
    },
    /// TX_RENAME and its kin.
    Rename(Rename),
    /// TX_WRITE.
    Write(Write),
    /// TX_WRITE2: the file reaches at least to `offset + length`.
    Extend {
        /// The file.
        object: ObjectId,
        /// Where the write began.
        offset: u64,
        /// Its bytes.
        length: u64,
    },
    /// TX_TRUNCATE.
    Truncate {
        /// The file.
        object: ObjectId,
        /// From here.
        offset: u64,
        /// Bytes that became a hole; 0: the file ends at `offset`.
        length: u64,
    },
    /// TX_SETATTR.
    SetAttr(SetAttr),
    /// TX_ACL_V0: entries of the oldest form.
    AclV0 {
        /// The object.
        object: ObjectId,
        /// Entries, 8 bytes each, as they lie in the record.
        aces: Vec<u8>,
    },
    /// TX_ACL.
    Acl(Acl),
    /// TX_SETSAXATTR.
    SetSaXattr {
        /// The object.
        object: ObjectId,
        /// Name of the extended attribute.
        name: Vec<u8>,
        /// Its value; `None`: it was removed.
        value: Option<Vec<u8>>,
    },
    /// TX_CLONE_RANGE.
    CloneRange(CloneRange),
}

/// Which kind of object a [`Create`] made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateKind {
    /// Anything but the following.
    File,
    /// A directory.
    Dir,
    /// The hidden directory for a file's extended attributes; it has no name.
    XattrDir,
    /// A symbolic link.
    Symlink,
}

/// An object that a record makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedNode {
    /// Number of the new object.
    pub object: ObjectId,
    /// Slots of its dnode, 1 to 32.
    pub slots: u8,
    /// `st_mode`.
    pub mode: u64,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// Txg of creation as the object has it.
    pub generation: u64,
    /// Time of creation.
    pub crtime: Time,
    /// Device number as stored.
    pub rdev: u64,
}

/// A new object with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Create {
    /// The type of the node.
    pub kind: CreateKind,
    /// The directory; of an xattr directory, the file it belongs to.
    pub dir: ObjectId,
    /// The object.
    pub node: LoggedNode,
    /// ACL given at creation (only [`CreateKind::File`] and [`CreateKind::Dir`]).
    pub acl: Option<NewAcl>,
    /// Attributes given at creation (the same).
    pub attrs: Option<Attrs>,
    /// Domains of owner and group; none on Linux.
    pub domains: Vec<Vec<u8>>,
    /// The name; empty for an xattr directory.
    pub name: Vec<u8>,
    /// Target of a symbolic link.
    pub target: Option<Vec<u8>>,
}

/// An ACL as records hold it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct NewAcl {
    /// Entries in `aces`.
    pub count: u64,
    /// Flags of the ACL.
    pub flags: u64,
    /// The entries as they lie in the record, in its byte order.
    pub aces: Vec<u8>,
    /// Owners and groups that are not POSIX ids.
    pub fuids: Vec<u64>,
    /// Number of domains that `fuids` (and, at creation, owner and group) speak of.
    pub domain_count: u64,
}

/// TX_ACL: an object's ACL was replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    /// The object.
    pub object: ObjectId,
    /// The ACL.
    pub acl: NewAcl,
    /// Names of the domains.
    pub domains: Vec<Vec<u8>>,
}

/// An attribute block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Attrs {
    /// Bits of [`xat`] that are set by the record; the other two words of the bitmap, carried through.
    pub wanted: [u32; 3],
    /// Values of the flags among them, by the same bits.
    pub values: u64,
    /// Time of creation, if wanted.
    pub crtime: Time,
    /// Virus scanner's stamp, if wanted; its first 8 bytes are the project id where that is wanted.
    pub scanstamp: [u8; 32],
}

/// TX_RENAME.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rename {
    /// From this directory.
    pub from_dir: ObjectId,
    /// Old name.
    pub from: Vec<u8>,
    /// Into this one.
    pub to_dir: ObjectId,
    /// New name.
    pub to: Vec<u8>,
    /// How.
    pub kind: RenameKind,
}

/// The kind of a rename.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameKind {
    /// The old name is removed, and an object with the new name is replaced.
    Replace,
    /// They change places (TX_RENAME_EXCHANGE).
    Exchange,
    /// The old one stays, on a new device file (TX_RENAME_WHITEOUT).
    Whiteout(LoggedNode),
}

/// TX_WRITE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The file.
    pub object: ObjectId,
    /// From here.
    pub offset: u64,
    /// Bytes written.
    pub length: u64,
    /// Always 0.
    pub block_offset: u64,
    /// Where the data was written already; a hole when it is in the record, or is all zeros.
    pub ptr: BlockPtr,
    /// The data in the record (padding cut off); `None`: it is where `ptr` says.
    pub data: Option<Vec<u8>>,
}

/// TX_SETATTR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetAttr {
    /// The object.
    pub object: ObjectId,
    /// Bits of [`mask`]: which of the following count.
    pub mask: u64,
    /// Permission bits.
    pub mode: u64,
    /// Owner.
    pub uid: u64,
    /// Group.
    pub gid: u64,
    /// Bytes.
    pub size: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of contents.
    pub mtime: Time,
    /// Further attributes.
    pub attrs: Option<Attrs>,
    /// Domains of owner and group; none on Linux.
    pub domains: Vec<Vec<u8>>,
}

/// TX_CLONE_RANGE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloneRange {
    /// The file.
    pub object: ObjectId,
    /// From here.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Block size of the file.
    pub block_size: u64,
    /// The blocks.
    pub ptrs: Vec<BlockPtr>,
}

/// Numbers of record types on disk.
pub mod kind {
    #![allow(missing_docs, reason = "the names are those of the records")]

    pub const CREATE: u64 = 1;
    pub const MKDIR: u64 = 2;
    pub const MKXATTR: u64 = 3;
    pub const SYMLINK: u64 = 4;
    pub const REMOVE: u64 = 5;
    pub const RMDIR: u64 = 6;
    pub const LINK: u64 = 7;
    pub const RENAME: u64 = 8;
    pub const WRITE: u64 = 9;
    pub const TRUNCATE: u64 = 10;
    pub const SETATTR: u64 = 11;
    pub const ACL_V0: u64 = 12;
    pub const ACL: u64 = 13;
    pub const CREATE_ACL: u64 = 14;
    pub const CREATE_ATTR: u64 = 15;
    pub const CREATE_ACL_ATTR: u64 = 16;
    pub const MKDIR_ACL: u64 = 17;
    pub const MKDIR_ATTR: u64 = 18;
    pub const MKDIR_ACL_ATTR: u64 = 19;
    pub const WRITE2: u64 = 20;
    pub const SETSAXATTR: u64 = 21;
    pub const RENAME_EXCHANGE: u64 = 22;
    pub const RENAME_WHITEOUT: u64 = 23;
    pub const CLONE_RANGE: u64 = 24;
    /// Bit of the type: names were compared without regard to case.
    pub const IGNORE_CASE: u64 = 1 << 63;
}

impl Body {
    /// The type of the record, in the words of OpenZFS.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Body::Create(create) => match create.kind {
                CreateKind::File => "TX_CREATE",
                CreateKind::Dir => "TX_MKDIR",
                CreateKind::XattrDir => "TX_MKXATTR",
                CreateKind::Symlink => "TX_SYMLINK",
            },
            Body::Remove { is_dir: false, .. } => "TX_REMOVE",
            Body::Remove { is_dir: true, .. } => "TX_RMDIR",
            Body::Link { .. } => "TX_LINK",
            Body::Rename(rename) => match rename.kind {
                RenameKind::Replace => "TX_RENAME",
                RenameKind::Exchange => "TX_RENAME_EXCHANGE",
                RenameKind::Whiteout(_) => "TX_RENAME_WHITEOUT",
            },
            Body::Write(_) => "TX_WRITE",
            Body::Extend { .. } => "TX_WRITE2",
            Body::Truncate { .. } => "TX_TRUNCATE",
            Body::SetAttr(_) => "TX_SETATTR",
            Body::AclV0 { .. } => "TX_ACL_V0",
            Body::Acl(_) => "TX_ACL",
            Body::SetSaXattr { .. } => "TX_SETSAXATTR",
            Body::CloneRange(_) => "TX_CLONE_RANGE",
        }
    }
}
