//! Everything below a folder of a pool, in order of paths.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use format::ObjectId;
use zpl::{Error, FileKind, Filesystem};

/// Why a folder is not read a second time.
pub const TWICE: &str = "it is a folder that was read before under another name: the pool is damaged, or the folder was moved meanwhile";

/// Something found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Step {
    /// Path from where the walk began; `.` for the beginning itself.
    pub path: Vec<u8>,
    /// The object.
    pub id: ObjectId,
    /// Its children follow.
    opens: bool,
}

/// A walk in the order of the bytes of paths, as `sort` has it: `a-b` stands before `a/b`. What is remembered
/// grows with the folders that are open, not with the tree.
pub struct Walk {
    fs: Filesystem,
    recursive: bool,
    next: BinaryHeap<Reverse<Step>>,
    /// A folder that could not be read; it is said before the walk goes on.
    failed: Option<(Vec<u8>, Error)>,
}

impl Walk {
    /// From `id` on: itself, its children, and all below if `recursive`.
    pub fn new(fs: &Filesystem, id: ObjectId, recursive: bool) -> Result<Walk, Error> {
        let mut walk = Walk { fs: fs.clone(), recursive, next: BinaryHeap::new(), failed: None };
        if fs.stat(id)?.kind == FileKind::Directory {
            walk.open(b"", id)?;
        }
        walk.next.push(Reverse(Step { path: b".".to_vec(), id, opens: false }));
        Ok(walk)
    }

    fn open(&mut self, path: &[u8], id: ObjectId) -> Result<(), Error> {
        for entry in self.fs.entries(id)? {
            let entry = entry?;
            let opens = self.recursive && entry.kind == FileKind::Directory;
            let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
            let path = [path, slash, &entry.name].concat();
            self.next.push(Reverse(Step { path, id: entry.id, opens }));
        }
        Ok(())
    }
}

impl Iterator for Walk {
    type Item = Result<Step, (Vec<u8>, Error)>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(failed) = self.failed.take() {
            return Some(Err(failed));
        }
        let Reverse(step) = self.next.pop()?;
        if step.opens
            && let Err(error) = self.open(&step.path, step.id)
        {
            self.failed = Some((step.path.clone(), error));
        }
        Some(Ok(step))
    }
}
