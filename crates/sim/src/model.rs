//! The reference: the expected contents of the file system, in two maps.

use std::collections::BTreeMap;
use std::sync::Arc;

use zpl::Time;

use crate::tree::{Entry, Tree, What};

/// Mode of new files and directories.
pub(crate) const FILE_MODE: u32 = 0o644;
pub(crate) const DIRECTORY_MODE: u32 = 0o755;
/// Mode of symbolic links.
pub(crate) const LINK_MODE: u32 = 0o777;

#[derive(Clone, Debug)]
struct Node {
    what: What,
    mode: u32,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Names, and the objects behind them. Every change here is one that the file system has accepted.
#[derive(Clone, Debug, Default)]
pub struct Model {
    names: BTreeMap<String, u64>,
    nodes: BTreeMap<u64, Node>,
    made: u64,
}

impl Model {
    /// Everything, as a tree.
    #[must_use]
    pub fn tree(&self) -> Tree {
        let entry = |(path, id): (&String, &u64)| {
            let node = &self.nodes[id];
            let nlink = match node.what {
                What::Directory => 2 + self.children(path).filter(|p| self.is_directory(p)).count() as u64,
                _ => self.names_of(*id).count() as u64,
            };
            let first_name = self.names_of(*id).next().expect("the path itself is one").clone();
            let Node { what, mode, xattrs } = node.clone();
            (path.clone(), Entry { what, mode, nlink, first_name, xattrs })
        };
        Tree(self.names.iter().map(entry).collect())
    }

    fn names_of(&self, id: u64) -> impl Iterator<Item = &String> {
        self.names.iter().filter(move |(_, other)| **other == id).map(|(path, _)| path)
    }

    /// Paths directly in `directory`.
    pub fn children<'a>(&'a self, directory: &'a str) -> impl Iterator<Item = &'a String> {
        let inside = move |path: &&String| {
            path.strip_prefix(directory)
                .and_then(|rest| rest.strip_prefix('/'))
                .is_some_and(|name| !name.contains('/'))
        };
        self.names.keys().filter(inside)
    }

    /// Whether `path` is a directory; the root, `""`, is one.
    #[must_use]
    pub fn is_directory(&self, path: &str) -> bool {
        path.is_empty() || self.node(path).is_some_and(|node| node.what == What::Directory)
    }

    /// Whether the name exists.
    #[must_use]
    pub fn exists(&self, path: &str) -> bool {
        self.names.contains_key(path)
    }

    /// The content of a regular file.
    #[must_use]
    pub fn content(&self, path: &str) -> Option<&Arc<Vec<u8>>> {
        match &self.node(path)?.what {
            What::File(data, _) => Some(data),
            _ => None,
        }
    }

    /// Paths of regular files, ascending.
    pub fn files(&self) -> impl Iterator<Item = &String> {
        self.names.keys().filter(|path| self.content(path).is_some())
    }

    /// Paths of directories, ascending, without the root.
    pub fn directories(&self) -> impl Iterator<Item = &String> {
        self.names.keys().filter(|path| self.is_directory(path))
    }

    fn node(&self, path: &str) -> Option<&Node> {
        self.names.get(path).map(|id| &self.nodes[id])
    }

    fn node_mut(&mut self, path: &str) -> &mut Node {
        let id = self.names[path];
        self.nodes.get_mut(&id).expect("a name has a node")
    }

    fn make(&mut self, path: &str, what: What, mode: u32) {
        self.made += 1;
        self.names.insert(path.to_owned(), self.made);
        self.nodes.insert(self.made, Node { what, mode, xattrs: BTreeMap::new() });
    }

    pub(crate) fn mkdir(&mut self, path: &str) {
        self.make(path, What::Directory, DIRECTORY_MODE);
    }

    pub(crate) fn symlink(&mut self, path: &str, target: &str) {
        self.make(path, What::Symlink(target.into()), LINK_MODE);
    }

    /// The file at `path`, made if need be, has this content now.
    pub(crate) fn set_content(&mut self, path: &str, data: Vec<u8>, time: Time) {
        let what = What::File(Arc::new(data), time);
        if self.exists(path) {
            self.node_mut(path).what = what;
        } else {
            self.make(path, what, FILE_MODE);
        }
    }

    pub(crate) fn set_mode(&mut self, path: &str, mode: u32) {
        self.node_mut(path).mode = mode;
    }

    pub(crate) fn set_xattr(&mut self, path: &str, name: &str, value: &[u8]) {
        self.node_mut(path).xattrs.insert(name.into(), value.to_vec());
    }

    pub(crate) fn link(&mut self, path: &str, new: &str) {
        self.names.insert(new.to_owned(), self.names[path]);
    }

    pub(crate) fn remove(&mut self, path: &str) {
        let id = self.names.remove(path).expect("the file system removed it");
        if self.names_of(id).next().is_none() {
            self.nodes.remove(&id);
        }
    }

    /// Moves `from` with everything below it, and removes the node that had the new name.
    pub(crate) fn rename(&mut self, from: &str, to: &str) {
        if self.names.get(from) == self.names.get(to) {
            return; // Two names of one file: POSIX leaves both.
        }
        if self.exists(to) {
            self.remove(to);
        }
        let below = format!("{from}/");
        let moved: Vec<_> =
            self.names.keys().filter(|path| *path == from || path.starts_with(&below)).cloned().collect();
        for path in moved {
            let id = self.names.remove(&path).expect("just found");
            self.names.insert(format!("{to}{}", &path[from.len()..]), id);
        }
    }
}
