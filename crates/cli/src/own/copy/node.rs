//! What is copied: a file or folder of this machine or of a pool, and what is known of it.

use std::fs::{File, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use format::ObjectId;
use rustix::fs::OFlags;
use zpl::{FileKind, Filesystem, Time};

use super::content::Content;
use super::error::{CopyError, reading};

/// An extended attribute: name, value.
pub type Xattr = (Vec<u8>, Vec<u8>);

/// Name spaces of extended attributes that are copied; others are views of something else.
const SPACES: [&[u8]; 4] = [b"user.", b"trusted.", b"security.", b"system.posix_acl_"];

/// Something to be copied.
#[derive(Clone)]
pub enum Node {
    /// A path of this machine.
    Local(PathBuf),
    /// An object of a pool.
    Pool {
        /// Its file system.
        fs: Filesystem,
        /// Number of the file system among those that the command reads, from 1 on.
        number: u64,
        /// The object.
        id: ObjectId,
        /// How it is called in messages.
        shown: Vec<u8>,
    },
}

/// What `stat` says of a node.
#[derive(Clone, Debug)]
pub struct Facts {
    /// What it is.
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

/// A child of a folder.
pub struct Child {
    /// Its name.
    pub name: Vec<u8>,
    /// Where it is.
    pub node: Node,
    /// What it is, if the folder tells.
    pub kind: Option<FileKind>,
}

fn kind_of(kind: std::fs::FileType) -> Option<FileKind> {
    Some(match kind {
        kind if kind.is_file() => FileKind::Regular,
        kind if kind.is_dir() => FileKind::Directory,
        kind if kind.is_symlink() => FileKind::Symlink,
        kind if kind.is_fifo() => FileKind::Fifo,
        kind if kind.is_socket() => FileKind::Socket,
        kind if kind.is_char_device() => FileKind::CharDevice,
        kind if kind.is_block_device() => FileKind::BlockDevice,
        _ => return None,
    })
}

impl Facts {
    fn of_local(data: &Metadata) -> Result<Facts, CopyError> {
        let time = |secs, nanos: i64| Time { secs, nanos: nanos as u64 };
        Ok(Facts {
            kind: kind_of(data.file_type()).ok_or(CopyError::unsupported("this kind of file"))?,
            mode: data.mode() & 0o7777,
            uid: data.uid(),
            gid: data.gid(),
            nlink: data.nlink(),
            size: data.size(),
            atime: time(data.atime(), data.atime_nsec()),
            mtime: time(data.mtime(), data.mtime_nsec()),
            rdev: data.rdev(),
            key: (data.dev(), data.ino()),
            dense: data.blocks().saturating_mul(512) >= data.size(),
            stored: data.blocks().saturating_mul(512),
        })
    }

    fn of_object(number: u64, stat: &zpl::Stat) -> Facts {
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

impl Node {
    /// How it is called in messages.
    pub fn shown(&self) -> String {
        match self {
            Node::Local(path) => path.display().to_string(),
            Node::Pool { shown, .. } => String::from_utf8_lossy(shown).into_owned(),
        }
    }

    /// What it is; symbolic links are not followed.
    pub fn facts(&self) -> Result<Facts, CopyError> {
        match self {
            Node::Local(path) => Facts::of_local(&std::fs::symlink_metadata(path).map_err(reading)?),
            Node::Pool { fs, number, id, .. } => {
                Ok(Facts::of_object(*number, &fs.stat(*id).map_err(reading)?))
            }
        }
    }

    /// Opens a regular file.
    pub fn open(&self) -> Result<(Facts, Content), CopyError> {
        match self {
            Node::Local(path) => {
                let (file, facts) = open_local(path)?;
                let content = Content::local(file, &facts)?;
                Ok((facts, content))
            }
            Node::Pool { fs, id, .. } => {
                let facts = self.facts()?;
                let records = fs.read_records(*id).map_err(reading)?;
                Ok((facts, Content::pool(records)))
            }
        }
    }

    /// Target of a symbolic link.
    pub fn target(&self) -> Result<Vec<u8>, CopyError> {
        match self {
            Node::Local(path) => Ok(std::fs::read_link(path).map_err(reading)?.into_os_string().into_vec()),
            Node::Pool { fs, id, .. } => fs.readlink(*id).map_err(reading),
        }
    }

    /// Its extended attributes, in order of their names.
    pub fn xattrs(&self) -> Result<Vec<Xattr>, CopyError> {
        let mut all = Vec::new();
        match self {
            Node::Local(path) => {
                let names = match xattr::list(path) {
                    Ok(names) => names,
                    Err(error) if error.kind() == std::io::ErrorKind::Unsupported => return Ok(all),
                    Err(error) => return Err(reading(error)),
                };
                for name in names {
                    // One that went away meanwhile, or that only others may read, is none for us.
                    if let Ok(Some(value)) = xattr::get(path, &name) {
                        all.push((name.into_vec(), value));
                    }
                }
            }
            Node::Pool { fs, id, .. } => {
                for name in fs.xattr_list(*id).map_err(reading)? {
                    if let Some(value) = fs.xattr_get(*id, &name).map_err(reading)? {
                        all.push((name, value));
                    }
                }
            }
        }
        all.retain(|(name, _)| SPACES.iter().any(|space| name.starts_with(space)));
        all.sort();
        Ok(all)
    }

    /// The children of a folder, as they come.
    pub fn children(&self) -> Result<Box<dyn Iterator<Item = Result<Child, CopyError>> + '_>, CopyError> {
        match self {
            Node::Local(path) => {
                let entries = std::fs::read_dir(path).map_err(reading)?;
                Ok(Box::new(entries.map(|entry| {
                    let entry = entry.map_err(reading)?;
                    let kind = entry.file_type().ok().and_then(kind_of);
                    let name = entry.file_name().into_vec();
                    Ok(Child { name, node: Node::Local(entry.path()), kind })
                })))
            }
            Node::Pool { fs, number, id, shown } => {
                let entries = fs.entries(*id).map_err(reading)?;
                Ok(Box::new(entries.map(move |entry| {
                    let entry = entry.map_err(reading)?;
                    let slash: &[u8] = if shown.ends_with(b"/") { b"" } else { b"/" };
                    let shown = [&shown[..], slash, &entry.name].concat();
                    let node = Node::Pool { fs: fs.clone(), number: *number, id: entry.id, shown };
                    Ok(Child { name: entry.name, node, kind: Some(entry.kind) })
                })))
            }
        }
    }
}

/// Opens a file for reading, and only if it is one: no link is followed, no fifo waited for.
fn open_local(path: &Path) -> Result<(File, Facts), CopyError> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(reading)?;
    let facts = Facts::of_local(&file.metadata().map_err(reading)?)?;
    if facts.kind != FileKind::Regular {
        return Err(CopyError::changed());
    }
    Ok((file, facts))
}

/// The last name of a path; empty for `/`, `.`, `..` and what ends in them: the folder itself is meant.
pub fn last_name(path: &[u8]) -> Vec<u8> {
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    if path.as_os_str().as_bytes().ends_with(b"/.") {
        return Vec::new();
    }
    path.file_name().map(|name| name.as_bytes().to_vec()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_name_of_a_path_is_what_its_copy_is_called() {
        assert_eq!(last_name(b"/a/b"), b"b");
        assert_eq!(last_name(b"/a/b/"), b"b");
        for itself in [&b"/"[..], b".", b"..", b"a/..", b"a/.", b"/."] {
            assert_eq!(last_name(itself), b"", "{}", String::from_utf8_lossy(itself));
        }
    }
}
