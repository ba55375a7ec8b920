//! Paths from the root of a file system.

use format::ObjectId;

use crate::{Error, FileKind, Filesystem, Result};

/// Symbolic links followed on one path, as in Linux.
const LINKS_MAX: u32 = 40;
/// Maximal number of parents on the way to the root. A longer way is taken for a circle.
const DEPTH_MAX: u32 = 1 << 16;

impl Filesystem {
    /// The object at `path`, from the root, with or without a leading slash. A symbolic link at the very end is
    /// followed only if `follow_last`; absolute links start at this file system's root.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::NotDir`]; [`Error::Loop`].
    pub fn resolve(&self, path: &[u8], follow_last: bool) -> Result<ObjectId> {
        self.resolve_with(path, follow_last, |dir, name| self.lookup(dir, name)?.ok_or(Error::NotFound))
    }

    /// As [`Filesystem::resolve`], with names looked up by `find`.
    pub(crate) fn resolve_with(
        &self,
        path: &[u8],
        follow_last: bool,
        find: impl Fn(ObjectId, &[u8]) -> Result<(ObjectId, FileKind)>,
    ) -> Result<ObjectId> {
        let mut id = self.root();
        let mut kind = FileKind::Directory;
        let mut links = 0;
        let mut todo = components(path);
        let must_be_dir = path.ends_with(b"/");
        while let Some(name) = todo.pop() {
            if kind != FileKind::Directory {
                return Err(Error::NotDir);
            }
            let (found, found_kind) = find(id, &name)?;
            let follow = !todo.is_empty() || follow_last || must_be_dir;
            if found_kind == FileKind::Symlink && follow {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Error::Loop);
                }
                let target = self.readlink(found)?;
                if target.starts_with(b"/") {
                    id = self.root();
                }
                todo.extend(components(&target));
                continue;
            }
            (id, kind) = (found, found_kind);
        }
        if must_be_dir && kind != FileKind::Directory {
            return Err(Error::NotDir);
        }
        Ok(id)
    }

    /// A path from the root to the object, with a leading slash; one of several for a file with hard links. `None`
    /// for an object that has no name (any more).
    ///
    /// # Errors
    /// A directory on the way cannot be read.
    pub fn path_of(&self, id: ObjectId) -> Result<Option<Vec<u8>>> {
        let mut path = Vec::new();
        let mut at = id;
        for _ in 0..DEPTH_MAX {
            if at == self.root() {
                return Ok(Some(if path.is_empty() { b"/".to_vec() } else { path }));
            }
            let above = self.above(at)?;
            let mut entries = self.entries(above)?;
            let named = entries.find(|entry| entry.as_ref().map_or(true, |entry| entry.id == at));
            let Some(entry) = named.transpose()? else { return Ok(None) };
            path = [b"/", entry.name.as_slice(), &path].concat();
            at = above;
        }
        Ok(None)
    }

    /// The directory that holds the last name of `path`, and that name: where to create it.
    ///
    /// # Errors
    /// As [`Filesystem::resolve`]; [`Error::Invalid`] when the path has no last name.
    pub fn resolve_parent<'a>(&self, path: &'a [u8]) -> Result<(ObjectId, &'a [u8])> {
        let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        let path = &path[..end];
        let start = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let (parent, name) = path.split_at(start);
        if name.is_empty() || crate::dir::is_dot(name) {
            return Err(Error::Invalid);
        }
        Ok((self.resolve(parent, true)?, name))
    }
}

/// The names in a path, last one first.
fn components(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|byte| *byte == b'/').rev().filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_walked_from_its_front() {
        assert_eq!(components(b"/a//b/c/"), [b"c", b"b", b"a"]);
        assert!(components(b"/").is_empty());
    }
}
