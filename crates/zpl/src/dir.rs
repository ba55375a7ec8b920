//! Directories: finding names and listing them.
//!
//! Source: docs/format/04-zap.md §6, docs/format/07-zpl-sa.md §5.

use std::sync::Arc;

use dmu::{Object, zap};
use format::zap::{Position, normalise};
use format::znode::{Dirent, Znode, pflags};
use format::{Corrupt, ObjectId, ObjectType};

use crate::fs::Case;
use crate::stat::is_kind;
use crate::{Error, FileKind, Filesystem, Result};

/// Longest name, in bytes.
pub const NAME_MAX: usize = 255;
/// Cookies of the entries that are not stored.
const AFTER_DOT: u64 = 1;
const AFTER_DOTDOT: u64 = 2;
/// Larger cookies are positions in the ZAP.
const RESERVED_COOKIES: u64 = 3;

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name.
    pub name: Vec<u8>,
    /// The object.
    pub id: ObjectId,
    /// The type of the node.
    pub kind: FileKind,
    /// Cookie of the next entry.
    pub cookie: u64,
}

/// A stored entry that matches a name.
pub(crate) struct Found {
    /// The name as stored.
    pub(crate) name: Vec<u8>,
    pub(crate) id: ObjectId,
    /// Type in the entry; 0 in very old file systems.
    kind: u8,
}

/// Whether `name` is one name of a directory entry, and not a path or a special name.
#[must_use]
pub fn is_one_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

/// Refuses invalid names.
pub(crate) fn check_name(name: &[u8], utf8_only: bool) -> Result<()> {
    if name.is_empty() {
        return Err(Error::NotFound);
    }
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    if name.contains(&b'/') || name.contains(&0) {
        return Err(Error::Invalid);
    }
    if utf8_only && std::str::from_utf8(name).is_err() {
        return Err(Error::NotUtf8);
    }
    Ok(())
}

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'a> {
    /// The directory.
    pub dir: ObjectId,
    /// The name in it.
    pub name: &'a [u8],
}

/// Whether the name is `.` or `..`.
pub(crate) fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// The name `.zfs` in the root, under which a mount shows the snapshots. No entry may have it.
pub const CONTROL: &[u8] = b".zfs";

impl Filesystem {
    /// Refuses a name that OpenZFS reserves.
    pub(crate) fn check_reserved(&self, dir: ObjectId, name: &[u8]) -> Result<()> {
        if dir == self.root() && name == CONTROL { Err(Error::Exists) } else { Ok(()) }
    }

    /// The object of directory `id`.
    pub(crate) fn directory(&self, id: ObjectId) -> Result<Arc<Object>> {
        let object = self.inner.objset.object(id)?;
        match object.object_type() {
            ObjectType::DIRECTORY_CONTENTS => Ok(object),
            _ => Err(Error::NotDir),
        }
    }

    /// The directory's object and attributes, for changing its entries. The caller holds both its locks.
    pub(crate) fn directory_for_change(&self, id: ObjectId) -> Result<(Arc<Object>, Znode)> {
        self.directory(id)?;
        let (object, znode) = self.node_for_change(id)?;
        if znode.links == 0 {
            return Err(Error::NotFound);
        }
        if znode.flags & pflags::IMMUTABLE != 0 {
            return Err(Error::NotPermitted);
        }
        Ok((object, znode))
    }

    /// The entry that `name` means in a directory.
    pub(crate) fn find(&self, dir: &Object, name: &[u8]) -> Result<Option<Found>> {
        let bad = || Error::damaged(dir.id());
        let inner = &self.inner;
        let exact = || Ok::<_, Error>(zap::lookup(dir, name)?.map(|value| (name.to_vec(), value)));
        let found = match inner.case {
            Case::Sensitive if inner.normalization == 0 => exact()?,
            Case::Sensitive | Case::Insensitive => zap::lookup_normalised(dir, name)?,
            Case::Mixed => match exact()? {
                None if inner.normalization != 0 => {
                    // The ZAP ignores case, too, but only a name with another normalisation may match here.
                    let wanted = normalise(name, inner.normalization).ok();
                    zap::lookup_normalised(dir, name)?
                        .filter(|(stored, _)| normalise(stored, inner.normalization).ok() == wanted)
                }
                found => found,
            },
        };
        let Some((name, value)) = found else { return Ok(None) };
        let number = value.as_u64().ok_or(Corrupt::new("width of a directory entry", value.width().into()));
        let entry = Dirent::decode(number.map_err(bad())?).map_err(bad())?;
        Ok(Some(Found { name, id: entry.object, kind: entry.kind }))
    }

    fn kind_of(&self, id: ObjectId, dirent: u8) -> Result<FileKind> {
        match FileKind::from_dirent(dirent) {
            Some(kind) => Ok(kind),
            None => Ok(self.stat(id)?.kind),
        }
    }

    /// The directory that directory `id` is in; the root's is itself.
    pub(crate) fn parent(&self, id: ObjectId) -> Result<ObjectId> {
        let _shared = self.inner.nodes.read(id);
        let (_, znode) = self.node(id)?;
        if !is_kind(&znode, FileKind::Directory) {
            return Err(Error::NotDir);
        }
        Ok(znode.parent)
    }

    /// The stored parent of an object.
    pub(crate) fn above(&self, id: ObjectId) -> Result<ObjectId> {
        let _shared = self.inner.nodes.read(id);
        Ok(self.node(id)?.1.parent)
    }

    /// The object called `name` in directory `dir`; `.` and `..` too.
    ///
    /// # Errors
    /// [`Error::NotDir`]; [`Error::NameTooLong`]; the directory cannot be read.
    pub fn lookup(&self, dir: ObjectId, name: &[u8]) -> Result<Option<(ObjectId, FileKind)>> {
        let object = self.directory(dir)?;
        match name {
            b"." => return Ok(Some((dir, FileKind::Directory))),
            b".." => return Ok(Some((self.parent(dir)?, FileKind::Directory))),
            b"" => return Ok(None),
            _ if name.len() > format::zap::value::MAX_LONG_NAME => return Err(Error::NameTooLong),
            _ => {}
        }
        match self.find(&object, name)? {
            None => Ok(None),
            Some(found) => Ok(Some((found.id, self.kind_of(found.id, found.kind)?))),
        }
    }

    /// Some entries of `dir` from `cookie` on (0: from the start), `.` and `..` first; none at the end. To continue, pass
    /// the cookie of the last used entry.
    ///
    /// # Errors
    /// [`Error::NotDir`]; the directory cannot be read.
    pub fn readdir(&self, dir: ObjectId, cookie: u64) -> Result<Vec<DirEntry>> {
        let object = self.directory(dir)?;
        let mut out = Vec::new();
        let dot =
            |name: &[u8], id, cookie| DirEntry { name: name.into(), id, kind: FileKind::Directory, cookie };
        if cookie < AFTER_DOT {
            out.push(dot(b".", dir, AFTER_DOT));
        }
        if cookie < AFTER_DOTDOT {
            out.push(dot(b"..", self.parent(dir)?, AFTER_DOTDOT));
        }
        let bits = zap::hash_bits(&object)?;
        let start = if cookie <= RESERVED_COOKIES { 0 } else { cookie };
        let mut next = Position::from_cookie(start, bits);
        // A leaf may be empty; another follows.
        while let Some(from) = next {
            let (entries, following) = zap::entries_from(&object, from)?;
            for entry in entries {
                out.push(self.dir_entry(&object, entry, bits)?);
            }
            if !out.is_empty() {
                break;
            }
            next = following;
        }
        Ok(out)
    }

    /// All entries of `dir` but `.` and `..`.
    ///
    /// # Errors
    /// [`Error::NotDir`]; each step may fail to read the directory.
    pub fn entries(&self, dir: ObjectId) -> Result<impl Iterator<Item = Result<DirEntry>> + use<>> {
        let (fs, object) = (self.clone(), self.directory(dir)?);
        let bits = zap::hash_bits(&object)?;
        let mut next = Some(Position::START);
        let mut pending = Vec::new().into_iter();
        Ok(std::iter::from_fn(move || {
            loop {
                if let Some(entry) = pending.next() {
                    return Some(fs.dir_entry(&object, entry, bits));
                }
                match zap::entries_from(&object, next?) {
                    Ok((entries, following)) => (pending, next) = (entries.into_iter(), following),
                    Err(error) => {
                        next = None;
                        return Some(Err(error.into()));
                    }
                }
            }
        }))
    }

    fn dir_entry(&self, dir: &Object, entry: zap::Entry, hash_bits: u32) -> Result<DirEntry> {
        let bad = || Error::damaged(dir.id());
        let number = entry.number().ok_or(Corrupt::new("width of a directory entry", 0)).map_err(bad())?;
        let dirent = Dirent::decode(number).map_err(bad())?;
        // Programs that copy the tree make paths from these names.
        if !is_one_name(&entry.name) {
            return Err(bad()(Corrupt::new("name of a directory entry", entry.name.len() as u64)));
        }
        let after = Position::after(entry.position.hash, entry.position.cd);
        Ok(DirEntry {
            name: entry.name,
            id: dirent.object,
            kind: self.kind_of(dirent.object, dirent.kind)?,
            cookie: after.to_cookie(hash_bits),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_before_they_are_stored() {
        assert!(check_name(b"a\xff", false).is_ok());
        assert!(matches!(check_name(b"a\xff", true), Err(Error::NotUtf8)));
        assert!(matches!(check_name(b"a/b", false), Err(Error::Invalid)));
        assert!(matches!(check_name(b"a\0b", false), Err(Error::Invalid)));
        assert!(matches!(check_name(b"", false), Err(Error::NotFound)));
        assert!(check_name(&[b'x'; 255], false).is_ok());
        assert!(matches!(check_name(&[b'x'; 256], false), Err(Error::NameTooLong)));
    }
}
