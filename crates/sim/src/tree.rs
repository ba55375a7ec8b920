//! All that a file system says of its files, as a value that can be compared.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use format::ObjectId;
use zpl::{FileKind, Filesystem, Time};

/// Differences told.
const DIFFERENCES_MAX: usize = 8;
/// Largest file that a story makes, in bytes.
const FILE_MAX: u64 = 64 << 20;

/// The node with a name.
#[derive(Clone, PartialEq, Eq)]
pub enum What {
    /// A regular file with its content and the time of its last change.
    File(Arc<Vec<u8>>, Time),
    /// A directory.
    Directory,
    /// A symbolic link with its target.
    Symlink(Vec<u8>),
}

impl fmt::Debug for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::File(data, time) => {
                let (sum, Time { secs, nanos }) = (sum(data), time);
                write!(f, "file of {} bytes (sum {sum:016x}) of {secs}.{nanos:09}", data.len())
            }
            What::Directory => write!(f, "directory"),
            What::Symlink(target) => write!(f, "link to {}", String::from_utf8_lossy(target)),
        }
    }
}

/// One name with everything behind it.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// The type and the content of the node.
    pub what: What,
    /// Permission bits.
    pub mode: u32,
    /// Names of the object; 2 + subdirectories for a directory.
    pub nlink: u64,
    /// The first name of the same object: distinguishes hard links from copies.
    pub first_name: String,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, mode {:o}, {} links, first {}", self.what, self.mode, self.nlink, self.first_name)?;
        let attribute = |(name, value): (&Vec<u8>, &Vec<u8>)| {
            format!("; {} of {} bytes (sum {:016x})", String::from_utf8_lossy(name), value.len(), sum(value))
        };
        f.write_str(&self.xattrs.iter().map(attribute).collect::<String>())
    }
}

impl Entry {
    fn content(&self) -> &[u8] {
        match &self.what {
            What::File(data, _) => data,
            What::Directory | What::Symlink(_) => &[],
        }
    }

    fn without_content(&self) -> Entry {
        let what = match &self.what {
            What::File(..) => What::File(Arc::default(), Time { secs: 0, nanos: 0 }),
            other => other.clone(),
        };
        Entry { what, ..self.clone() }
    }
}

/// Whether each byte of `data` is that of `old` or of `new`, and it ends where the one does or in between.
fn is_mixture(data: &[u8], old: &[u8], new: &[u8]) -> bool {
    let at = |content: &[u8], place: usize| content.get(place).copied().unwrap_or(0);
    (old.len().min(new.len())..=old.len().max(new.len())).contains(&data.len())
        && (0..data.len()).all(|i| data[i] == at(old, i) || data[i] == at(new, i))
}

/// Tells contents apart in messages.
fn sum(data: &[u8]) -> u64 {
    data.iter().fold(0, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}

/// Every path (`/a/b`) of a file system with its entry. The root directory is not listed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tree(pub BTreeMap<String, Entry>);

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(&self.0).finish()
    }
}

impl Tree {
    /// Reads everything.
    ///
    /// # Errors
    /// The first thing that cannot be read, with its path.
    pub fn read(fs: &Filesystem) -> Result<Tree, String> {
        let mut tree = BTreeMap::new();
        let mut firsts: HashMap<ObjectId, String> = HashMap::new();
        let mut todo = vec![(fs.root(), String::new())];
        while let Some((dir, prefix)) = todo.pop() {
            let entries = fs.entries(dir).map_err(|e| format!("'{prefix}/' cannot be listed: {e}"))?;
            for entry in entries {
                let entry = entry.map_err(|e| format!("'{prefix}/' cannot be listed: {e}"))?;
                if matches!(&entry.name[..], b"." | b"..") {
                    continue;
                }
                let path = format!("{prefix}/{}", String::from_utf8_lossy(&entry.name));
                let read = read_entry(fs, entry.id).map_err(|e| format!("'{path}' cannot be read: {e}"))?;
                if read.what == What::Directory {
                    todo.push((entry.id, path.clone()));
                }
                let first = firsts.entry(entry.id).or_insert_with(|| path.clone());
                *first = path.clone().min(first.clone());
                tree.insert(path, (entry.id, read));
            }
        }
        let name = |(path, (id, entry)): (String, (ObjectId, Entry))| {
            (path, Entry { first_name: firsts[&id].clone(), ..entry })
        };
        Ok(Tree(tree.into_iter().map(name).collect()))
    }

    /// The same without the times of changes.
    pub(crate) fn without_times(&self) -> Tree {
        let mut tree = self.clone();
        for entry in tree.0.values_mut() {
            if let What::File(_, time) = &mut entry.what {
                *time = Time { secs: 0, nanos: 0 };
            }
        }
        tree
    }

    /// Whether a part of the writes that make `new` of `old` leaves this: all names are as in the one or the other, and so
    /// is each byte of the files.
    pub(crate) fn is_between(&self, old: &Tree, new: &Tree) -> bool {
        let paths: std::collections::BTreeSet<_> =
            self.0.keys().chain(old.0.keys()).chain(new.0.keys()).collect();
        paths.into_iter().all(|path| {
            let states = [old.0.get(path), new.0.get(path)];
            let Some(found) = self.0.get(path) else { return states.contains(&None) };
            let is_alike = |entry: &&Entry| entry.without_content() == found.without_content();
            let [old, new] = states.map(|entry| entry.map_or(&[][..], Entry::content));
            states.iter().flatten().any(is_alike) && is_mixture(found.content(), old, new)
        })
    }

    /// Some of the paths on which two trees differ, with the node of each.
    #[must_use]
    pub fn differences(&self, other: &Tree) -> Vec<String> {
        let paths: std::collections::BTreeSet<_> = self.0.keys().chain(other.0.keys()).collect();
        let differ = |path: &&String| self.0.get(*path) != other.0.get(*path);
        let tell = |path: &String| format!("{path}: {:?}, not {:?}", self.0.get(path), other.0.get(path));
        paths.into_iter().filter(differ).take(DIFFERENCES_MAX).map(tell).collect()
    }
}

fn read_entry(fs: &Filesystem, id: ObjectId) -> zpl::Result<Entry> {
    let stat = fs.stat(id)?;
    let what = match stat.kind {
        FileKind::Directory => What::Directory,
        FileKind::Symlink => What::Symlink(fs.readlink(id)?),
        _ => What::File(Arc::new(fs.read_all(id, FILE_MAX)?), stat.mtime),
    };
    let mut xattrs = BTreeMap::new();
    for name in fs.xattr_list(id)? {
        let value = fs.xattr_get(id, &name)?.unwrap_or_default();
        xattrs.insert(name, value);
    }
    Ok(Entry { what, mode: stat.mode, nlink: stat.nlink, first_name: String::new(), xattrs })
}
