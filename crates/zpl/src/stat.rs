//! Kind, attributes and times of a node, as callers see and set them.

use format::znode::{self, Time, Znode};
use format::{Corrupt, ObjectId};

/// The type of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum FileKind {
    Fifo,
    CharDevice,
    Directory,
    BlockDevice,
    Regular,
    Symlink,
    Socket,
}

impl FileKind {
    /// From the number that directory entries hold (`d_type`).
    #[must_use]
    pub const fn from_dirent(kind: u8) -> Option<FileKind> {
        Some(match kind {
            1 => FileKind::Fifo,
            2 => FileKind::CharDevice,
            4 => FileKind::Directory,
            6 => FileKind::BlockDevice,
            8 => FileKind::Regular,
            10 => FileKind::Symlink,
            12 => FileKind::Socket,
            _ => return None,
        })
    }

    /// The type bits of `st_mode`.
    #[must_use]
    pub const fn mode(self) -> u64 {
        match self {
            FileKind::Fifo => znode::S_IFIFO,
            FileKind::CharDevice => znode::S_IFCHR,
            FileKind::Directory => znode::S_IFDIR,
            FileKind::BlockDevice => znode::S_IFBLK,
            FileKind::Regular => znode::S_IFREG,
            FileKind::Symlink => znode::S_IFLNK,
            FileKind::Socket => znode::S_IFSOCK,
        }
    }

    /// From `st_mode`.
    ///
    /// # Errors
    /// [`Corrupt`] when the type bits are none that exists.
    pub fn of_mode(mode: u64) -> Result<FileKind, Corrupt> {
        let bits = (mode & znode::S_IFMT) >> 12;
        FileKind::from_dirent(bits as u8).ok_or(Corrupt::new("file type in the mode", mode))
    }

    /// Whether it is a character or block device.
    #[must_use]
    pub const fn is_device(self) -> bool {
        matches!(self, FileKind::CharDevice | FileKind::BlockDevice)
    }
}

/// The attributes that `stat` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The object.
    pub id: ObjectId,
    /// The type of the object.
    pub kind: FileKind,
    /// Permission bits, with setuid, setgid and sticky (07777).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The stored parent. For a file, it is the directory of its latest name.
    pub parent: ObjectId,
    /// Names; 2 + subdirectories for a directory.
    pub nlink: u64,
    /// Bytes; entries + 2 for a directory.
    pub size: u64,
    /// Space taken, in units of 512 bytes, as of the last sync.
    pub blocks: u64,
    /// Bytes of a block of the object.
    pub block_size: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of contents.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
    /// Creation.
    pub crtime: Time,
    /// Device number as programs see it (`makedev`); 0 for anything but devices.
    pub rdev: u64,
    /// `format::znode::pflags`.
    pub flags: u64,
    /// Project.
    pub projid: u64,
    /// Txg of creation: it distinguishes objects with the same number.
    pub generation: u64,
    /// There are unsynced changes, so `blocks` is out of date.
    pub dirty: bool,
}

impl Stat {
    /// Of something that is shown and stored nowhere: `times` are its last change and its creation.
    #[must_use]
    pub(crate) const fn made_up(id: ObjectId, kind: FileKind, times: [Time; 2]) -> Stat {
        let [changed, born] = times;
        Stat {
            id,
            kind,
            mode: 0o777,
            uid: 0,
            gid: 0,
            parent: id,
            nlink: 1,
            size: 0,
            blocks: 0,
            block_size: 512,
            atime: changed,
            mtime: changed,
            ctime: changed,
            crtime: born,
            rdev: 0,
            flags: 0,
            projid: 0,
            generation: 0,
            dirty: false,
        }
    }
}

/// The times of a node that a caller can set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Last access.
    pub atime: Time,
    /// Last change of contents.
    pub mtime: Time,
    /// Last change of anything; `None`: now.
    pub ctime: Option<Time>,
    /// Creation; `None`: now.
    pub crtime: Option<Time>,
}

/// Changes of a node; `None` leaves an attribute unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits (07777).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes of a regular file: truncates or extends it.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<Time>,
    /// Last change of contents.
    pub mtime: Option<Time>,
    /// Last change of anything; now, unless said otherwise.
    pub ctime: Option<Time>,
    /// Creation.
    pub crtime: Option<Time>,
    /// Project; needs a file system with project quota.
    pub projid: Option<u64>,
    /// Those of `format::znode::pflags` that a user may change (above bit 31); others are kept.
    pub flags: Option<u64>,
}

/// Whether `znode` is of this kind. A damaged mode has no kind.
pub(crate) fn is_kind(znode: &Znode, kind: FileKind) -> bool {
    znode.mode & znode::S_IFMT == kind.mode()
}
