//! Everything below a folder of a pool, in order of paths.

use std::cmp::Ordering;
use std::collections::HashSet;

use format::ObjectId;
use zpl::{Error, FileKind, Filesystem};

/// Why a folder is not read a second time.
pub const TWICE: &str = "it is a folder that was read before under another name: the pool is damaged, or the folder was moved meanwhile";

/// The reason why an entry is not listed.
#[derive(Debug, thiserror::Error)]
pub enum Unread {
    /// It cannot be read.
    #[error(transparent)]
    Damaged(#[from] Error),
    /// The folder was read before.
    #[error("{TWICE}")]
    Twice,
}

/// The folders that a command has read. In a damaged or hostile pool a folder may contain itself or be in many places:
/// each is read once, so that every walk ends.
#[derive(Debug, Default)]
pub struct Entered(HashSet<ObjectId>);

impl Entered {
    /// Notes that a folder is read now.
    ///
    /// # Errors
    /// It was read before.
    pub fn enter(&mut self, id: ObjectId) -> Result<(), Unread> {
        if self.0.insert(id) { Ok(()) } else { Err(Unread::Twice) }
    }
}

/// Something found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Path from where the walk began; `.` for the beginning itself.
    pub path: Vec<u8>,
    /// The object.
    pub id: ObjectId,
    /// Names in the path; 0 for the beginning.
    pub depth: usize,
}

/// In which order a walk goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The order of the bytes of paths, as `sort` has it: `a-b` stands before `a/b`.
    Forward,
    /// Everything in a folder comes directly after it, the first name first.
    Nested,
    /// A folder comes directly after everything in it, the last name of a folder first.
    Backward,
}

/// A child of an open folder, or the children of that child.
#[derive(Debug)]
struct Item {
    name: Vec<u8>,
    id: ObjectId,
    /// The path has a slash behind the name, so the children are meant.
    contents: bool,
}

impl Item {
    fn cmp(&self, other: &Item) -> Ordering {
        let slash = |item: &Item| if item.contents { &b"/"[..] } else { b"" };
        let (one, two) = (self.name.iter().chain(slash(self)), other.name.iter().chain(slash(other)));
        one.cmp(two)
    }
}

/// The entries of an open folder that are still to be visited.
#[derive(Debug)]
struct Level {
    /// Bytes of the path to the folder, with a slash at the end.
    prefix: usize,
    /// The next one is the last.
    items: Vec<Item>,
}

/// A walk. It remembers the names in the open folders, and the numbers of all folders.
pub struct Walk {
    fs: Filesystem,
    recursive: bool,
    order: Order,
    root: Option<ObjectId>,
    path: Vec<u8>,
    levels: Vec<Level>,
    entered: Entered,
    /// A folder that could not be read; it is reported before the walk continues.
    failed: Option<(Vec<u8>, Unread)>,
}

impl Walk {
    /// From `id` on: itself, its children, and all below if `recursive`.
    ///
    /// # Errors
    /// The beginning cannot be read.
    pub fn new(fs: &Filesystem, id: ObjectId, recursive: bool, order: Order) -> Result<Walk, Error> {
        let mut walk = Walk {
            fs: fs.clone(),
            recursive,
            order,
            root: Some(id),
            path: Vec::new(),
            levels: Vec::new(),
            entered: Entered::default(),
            failed: None,
        };
        if fs.stat(id)?.kind == FileKind::Directory {
            walk.open(id).map_err(|error| match error {
                Unread::Damaged(error) => error,
                Unread::Twice => Error::Loop,
            })?;
        }
        Ok(walk)
    }

    /// Enters the folder `id`, whose path is the present one. If a name is damaged, the names before it are kept.
    fn open(&mut self, id: ObjectId) -> Result<(), Unread> {
        self.entered.enter(id)?;
        let (mut items, mut done) = (Vec::new(), Ok(()));
        for entry in self.fs.entries(id)? {
            match entry {
                Ok(entry) => {
                    if self.recursive && entry.kind == FileKind::Directory {
                        items.push(Item { name: entry.name.clone(), id: entry.id, contents: true });
                    }
                    items.push(Item { name: entry.name, id: entry.id, contents: false });
                }
                Err(error) => {
                    done = Err(error.into());
                    break;
                }
            }
        }
        items.sort_by(|a, b| match self.order {
            Order::Forward => b.cmp(a),
            Order::Nested => (&b.name, b.contents).cmp(&(&a.name, a.contents)),
            Order::Backward => (&a.name, a.contents).cmp(&(&b.name, b.contents)),
        });
        self.levels.push(Level { prefix: self.path.len(), items });
        done
    }

    fn begin(&mut self) -> Option<Step> {
        self.root.take().map(|id| Step { path: b".".to_vec(), id, depth: 0 })
    }
}

impl Iterator for Walk {
    type Item = Result<Step, (Vec<u8>, Unread)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.order != Order::Backward
            && let Some(step) = self.begin()
        {
            return Some(Ok(step));
        }
        loop {
            if let Some(failed) = self.failed.take() {
                return Some(Err(failed));
            }
            let Some(level) = self.levels.last_mut() else { return self.begin().map(Ok) };
            let Some(item) = level.items.pop() else {
                self.levels.pop();
                continue;
            };
            self.path.truncate(level.prefix);
            self.path.extend_from_slice(&item.name);
            if !item.contents {
                let depth = self.levels.len();
                return Some(Ok(Step { path: self.path.clone(), id: item.id, depth }));
            }
            let path = self.path.clone();
            self.path.push(b'/');
            self.failed = self.open(item.id).err().map(|error| (path, error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_has_the_order_in_which_sort_puts_the_paths() {
        let item = |name: &str, contents| Item { name: name.into(), id: ObjectId(1), contents };
        let mut items = [item("a", true), item("a0", false), item("a-b", false), item("a", false)];
        items.sort_by(Item::cmp);
        let order: Vec<_> =
            items.iter().map(|item| (String::from_utf8_lossy(&item.name), item.contents)).collect();
        let order: Vec<_> = order.iter().map(|(name, contents)| (&**name, *contents)).collect();
        assert_eq!(order, [("a", false), ("a-b", false), ("a", true), ("a0", false)]);
    }
}
