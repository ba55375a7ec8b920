//! The source of a copy: a file or folder of this machine or of a pool, and its attributes.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

use format::ObjectId;
use rustix::fs::{Dir, Mode, OFlags, Stat};
use xattr::FileExt as _;
use zpl::{FileKind, Filesystem};

use super::content::Content;
use super::error::{CopyError, reading};
use super::facts::{Facts, kind_of};
use super::folder::{self, Folder, proc_path};
use super::shown::{Numbered, Shown};

/// An extended attribute: name, value.
pub type Xattr = (Vec<u8>, Vec<u8>);

/// Name spaces of extended attributes that are copied; the others show data that is stored elsewhere.
const SPACES: [&[u8]; 4] = [b"user.", b"trusted.", b"security.", b"system.posix_acl_"];

/// Something to be copied.
#[derive(Clone)]
pub enum Node {
    /// A file or directory of this machine.
    Local(Local),
    /// An object of a pool.
    Pool {
        /// Its file system.
        fs: Filesystem,
        /// Number of the file system among those that the command reads, from 1 on.
        number: u64,
        /// The object.
        id: ObjectId,
        /// How it is called in messages.
        shown: Trail,
        /// The datasets that are copied with it.
        datasets: Arc<Shown>,
    },
}

/// A name in a directory of this machine.
#[derive(Clone)]
pub struct Local {
    folder: Arc<Folder>,
    /// Empty: the directory itself.
    name: Vec<u8>,
}

/// A path in a pool for messages. Paths share their beginnings: a deep tree would take much memory otherwise.
#[derive(Clone, Debug)]
pub struct Trail(Arc<Names>);

#[derive(Debug)]
struct Names {
    above: Option<Trail>,
    name: Vec<u8>,
}

impl Trail {
    /// The path at which a walk begins.
    pub fn new(path: Vec<u8>) -> Trail {
        Trail(Arc::new(Names { above: None, name: path }))
    }

    /// The path of the entry `name` in the directory of this path.
    #[must_use]
    pub fn child(&self, name: &[u8]) -> Trail {
        Trail(Arc::new(Names { above: Some(self.clone()), name: name.to_vec() }))
    }

    /// The path as one. A path that is too long for a message begins with `…`.
    pub fn bytes(&self) -> Vec<u8> {
        let above = std::iter::successors(Some(&*self.0), |names| names.above.as_ref().map(|t| &*t.0));
        folder::path(above.map(|names| &names.name[..]))
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        // In a loop, since the default would recurse once per level of a tree.
        let mut above = self.above.take();
        while let Some(mut names) = above.and_then(|trail| Arc::into_inner(trail.0)) {
            above = names.above.take();
        }
    }
}

/// A child of a folder.
pub struct Child {
    /// Its name.
    pub name: Vec<u8>,
    /// Where it is.
    pub node: Node,
    /// The type of the node, if the folder contains it.
    pub kind: Option<FileKind>,
}

impl Local {
    /// The node at a path of the user. Links are followed up to the last name, and there with `follow`.
    ///
    /// # Errors
    /// There is nothing, or nothing that may be entered.
    pub fn named(path: &Path, follow: bool) -> std::io::Result<Local> {
        let data = if follow { std::fs::metadata(path) } else { std::fs::symlink_metadata(path) }?;
        if data.is_dir() {
            return Ok(Local { folder: Folder::named(path, follow)?, name: Vec::new() });
        }
        // Messages name the path as the user typed it, unless its last name is a link that is followed.
        let is_followed = follow && std::fs::symlink_metadata(path)?.is_symlink();
        let full = if is_followed { std::fs::canonicalize(path)? } else { path.to_path_buf() };
        let name = full.file_name().map(|name| name.as_bytes().to_vec()).unwrap_or_default();
        Ok(Local { folder: Folder::named(full.parent().unwrap_or(Path::new("/")), true)?, name })
    }

    fn stat(&self) -> Result<Stat, CopyError> {
        let at = self.folder.descriptor().map_err(reading)?;
        if self.name.is_empty() { rustix::fs::fstat(&*at) } else { folder::look(&at, &self.name) }
            .map_err(reading)
    }

    /// Opens a regular file for reading. It follows no link and waits for no FIFO.
    fn open(&self) -> Result<(File, Facts), CopyError> {
        let at = self.folder.descriptor().map_err(reading)?;
        let file = folder::open_at(&at, &self.name, OFlags::RDONLY, Mode::empty()).map_err(reading)?;
        let facts = Facts::of_local(&rustix::fs::fstat(&file).map_err(reading)?)?;
        if facts.kind != FileKind::Regular {
            return Err(CopyError::changed());
        }
        Ok((file.into(), facts))
    }

    /// Opens this node as a directory.
    fn enter(&self) -> Result<Arc<Folder>, CopyError> {
        match &self.name[..] {
            b"" => Ok(self.folder.clone()),
            name => self.folder.enter(name, false).map_err(reading),
        }
    }

    /// Extended attributes of a node that is not a regular file.
    fn xattrs(&self) -> Result<Vec<Xattr>, CopyError> {
        if self.name.is_empty() {
            return xattrs_of(&self.folder.open().map_err(reading)?);
        }
        let at = self.folder.descriptor().map_err(reading)?;
        let place = folder::open_path(&at, &self.name).map_err(reading)?;
        let path = proc_path(&place);
        gather(xattr::list_deref(&path), |name| xattr::get_deref(&path, name))
    }

    fn target(&self) -> Result<Vec<u8>, CopyError> {
        let at = self.folder.descriptor().map_err(reading)?;
        let place = folder::open_path(&at, &self.name).map_err(reading)?;
        Ok(rustix::fs::readlinkat(place.as_fd(), "", Vec::new()).map_err(reading)?.into_bytes())
    }

    fn children(&self) -> Result<impl Iterator<Item = Result<Child, CopyError>> + use<>, CopyError> {
        let folder = self.enter()?;
        let entries = Dir::new(folder.open().map_err(reading)?).map_err(reading)?;
        Ok(entries.filter_map(move |entry| {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return Some(Err(reading(error))),
            };
            let name = entry.file_name().to_bytes().to_vec();
            if matches!(&name[..], b"." | b"..") {
                return None;
            }
            let node = Node::Local(Local { folder: folder.clone(), name: name.clone() });
            Some(Ok(Child { name, node, kind: kind_of(entry.file_type()) }))
        }))
    }
}

/// Extended attributes by their names.
fn gather(
    names: std::io::Result<impl Iterator<Item = std::ffi::OsString>>,
    get: impl Fn(&std::ffi::OsStr) -> std::io::Result<Option<Vec<u8>>>,
) -> Result<Vec<Xattr>, CopyError> {
    let names = match names {
        Ok(names) => names,
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => return Ok(Vec::new()),
        Err(error) => return Err(reading(error)),
    };
    // An attribute that was removed meanwhile, or that only other users may read, is left out.
    let all = names.filter_map(|name| {
        let value = get(&name).ok().flatten()?;
        Some((name.into_vec(), value))
    });
    Ok(all.collect())
}

fn xattrs_of(file: &File) -> Result<Vec<Xattr>, CopyError> {
    gather(file.list_xattr(), |name| file.get_xattr(name))
}

impl Node {
    /// How it is called in messages.
    pub fn shown(&self) -> String {
        match self {
            Node::Local(local) => local.folder.shown(&local.name),
            Node::Pool { shown, .. } => String::from_utf8_lossy(&shown.bytes()).into_owned(),
        }
    }

    /// The attributes of the node; symbolic links are not followed.
    pub fn facts(&self) -> Result<Facts, CopyError> {
        match self {
            Node::Local(local) => Facts::of_local(&local.stat()?),
            Node::Pool { fs, number, id, .. } => {
                Ok(Facts::of_object(*number, &fs.stat(*id).map_err(reading)?))
            }
        }
    }

    /// Opens a regular file.
    pub fn open(&self) -> Result<(Facts, Content), CopyError> {
        match self {
            Node::Local(local) => {
                let (file, facts) = local.open()?;
                let content = Content::local(file, &facts)?;
                Ok((facts, content))
            }
            Node::Pool { fs, id, .. } => {
                let facts = self.facts()?;
                Ok((facts, Content::pool(fs, *id)))
            }
        }
    }

    /// Target of a symbolic link.
    pub fn target(&self) -> Result<Vec<u8>, CopyError> {
        match self {
            Node::Local(local) => local.target(),
            Node::Pool { fs, id, .. } => fs.readlink(*id).map_err(reading),
        }
    }

    /// Its extended attributes, in order of their names. `content` is the open content of a regular file.
    pub fn xattrs(&self, content: Option<&Content>) -> Result<Vec<Xattr>, CopyError> {
        let mut all = match (self, content) {
            (Node::Local(_), Some(Content::Local(open))) => xattrs_of(open.file())?,
            (Node::Local(local), _) => local.xattrs()?,
            (Node::Pool { fs, id, .. }, _) => {
                let mut all = Vec::new();
                for name in fs.xattr_list(*id).map_err(reading)? {
                    if let Some(value) = fs.xattr_get(*id, &name).map_err(reading)? {
                        all.push((name, value));
                    }
                }
                all
            }
        };
        all.retain(|(name, _)| SPACES.iter().any(|space| name.starts_with(space)));
        all.sort();
        Ok(all)
    }

    /// The children of a folder, in no particular order.
    pub fn children(&self) -> Result<Box<dyn Iterator<Item = Result<Child, CopyError>> + '_>, CopyError> {
        match self {
            Node::Local(local) => Ok(Box::new(local.children()?)),
            Node::Pool { fs, number, id, shown, datasets } => {
                let entries = fs.entries(*id).map_err(reading)?.map(move |entry| {
                    let entry = entry.map_err(reading)?;
                    let shown = shown.child(&entry.name);
                    let (name, id, kind) = (entry.name, entry.id, Some(entry.kind));
                    let node = match datasets.over(*number, id) {
                        Some(other) => node(datasets, other, shown),
                        None => {
                            let (fs, datasets) = (fs.clone(), datasets.clone());
                            Node::Pool { fs, number: *number, id, shown, datasets }
                        }
                    };
                    Ok(Child { name, node, kind })
                });
                let added = datasets.added(*number, *id).iter().map(move |(name, other)| {
                    let node = node(datasets, other, shown.child(name));
                    Ok(Child { name: name.clone(), node, kind: Some(FileKind::Directory) })
                });
                Ok(Box::new(entries.chain(added)))
            }
        }
    }
}

/// The last name of a path; empty for `/`, `.`, `..` and what ends in them, which mean the folder itself.
pub fn last_name(path: &[u8]) -> Vec<u8> {
    let path = Path::new(std::ffi::OsStr::from_bytes(path));
    if path.as_os_str().as_bytes().ends_with(b"/.") {
        return Vec::new();
    }
    path.file_name().map(|name| name.as_bytes().to_vec()).unwrap_or_default()
}

/// The root folder of a file system that is shown in another one.
pub fn node(shown: &Arc<Shown>, (number, fs): &Numbered, path: Trail) -> Node {
    Node::Pool { fs: fs.clone(), number: *number, id: fs.root(), shown: path, datasets: shown.clone() }
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
