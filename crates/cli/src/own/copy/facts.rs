//! Attributes of a file or folder that is copied.

use rustix::fs::{FileType, Stat};
use zpl::{FileKind, Time};

use super::error::CopyError;
use super::folder::FileId;

/// The attributes of a node, as `stat` has them.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The type of the node.
    pub kind: FileKind,
    /// Permission bits (07777).
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names.
    pub nlink: u64,
    /// Bytes.
    pub size: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of contents.
    pub mtime: Time,
    /// Device number; 0 for anything but devices.
    pub rdev: u64,
    /// Tells all nodes apart: device or number of the file system, inode or object.
    pub key: (u64, u64),
    /// It surely has no holes.
    pub dense: bool,
    /// Bytes that it takes where it is, as far as is known.
    pub stored: u64,
}

/// The kind of a file of this machine; `None` for one that no pool can hold.
pub fn kind_of(kind: FileType) -> Option<FileKind> {
    Some(match kind {
        FileType::RegularFile => FileKind::Regular,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice => FileKind::CharDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        _ => return None,
    })
}

impl Facts {
    /// Of a file of this machine.
    ///
    /// # Errors
    /// A kind of file that no pool can hold.
    #[allow(clippy::unnecessary_cast, reason = "st_nlink has 32 bits on aarch64 and 64 on x86-64")]
    pub fn of_local(stat: &Stat) -> Result<Facts, CopyError> {
        let time = |secs, nanos| Time { secs, nanos };
        let kind = kind_of(FileType::from_raw_mode(stat.st_mode));
        let FileId { dev, ino } = FileId::from(stat);
        let (size, stored) = (stat.st_size.max(0) as u64, (stat.st_blocks.max(0) as u64).saturating_mul(512));
        Ok(Facts {
            kind: kind.ok_or(CopyError::unsupported("this kind of file"))?,
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            nlink: stat.st_nlink as u64,
            size,
            atime: time(stat.st_atime, stat.st_atime_nsec),
            mtime: time(stat.st_mtime, stat.st_mtime_nsec),
            rdev: stat.st_rdev,
            key: (dev, ino),
            dense: stored >= size,
            stored,
        })
    }

    /// Of an object in the file system with the number `number`.
    pub fn of_object(number: u64, stat: &zpl::Stat) -> Facts {
        Facts {
            kind: stat.kind,
            mode: stat.mode,
            uid: stat.uid,
            gid: stat.gid,
            nlink: stat.nlink,
            size: stat.size,
            atime: stat.atime,
            mtime: stat.mtime,
            rdev: stat.rdev,
            key: (number, stat.id.0),
            dense: false,
            stored: stat.blocks.saturating_mul(512),
        }
    }
}
