//! Counting files and bytes ahead of the copy.
//!
//! From:   the sources; names and sizes, no data.
//! To:     the total and the time left of the bar; and, for a copy out of a pool, a line that says beforehand how long the
//!         files are. Outside they take that much, however little they take in the pool.

use std::collections::HashSet;
use std::path::Path;

use pool::props::number::nice_bytes;
use zpl::FileKind;

use super::facts::Facts;
use super::node::Node;
use super::progress::Progress;
use crate::out::counted;

/// A shorter file counts with its length, whether or not it has holes.
const SPARSE_MIN: u64 = 1 << 20;
/// A file that takes less than this part of its length in a pool is mostly holes or compresses very well. Its holes are
/// counted.
const SPARSE_PART: u64 = 8;

/// The counts of a source.
#[derive(Debug, Default)]
pub struct Ahead {
    files: u64,
    /// Bytes of their data, holes left out.
    bytes: u64,
    /// Bytes that those in pools take there.
    stored: u64,
    /// Visited files with several names, because each is copied once.
    met: HashSet<(u64, u64)>,
}

impl Ahead {
    /// Counts `nodes` and everything below them. `None` if `over` became true before the end. The copy itself reports read
    /// errors.
    pub fn count(nodes: Vec<Node>, over: impl Fn() -> bool) -> Option<Ahead> {
        let mut ahead = Ahead::default();
        let mut todo = nodes;
        let mut folders = HashSet::new();
        while let Some(node) = todo.pop() {
            let Ok(facts) = node.facts() else { continue };
            if facts.kind == FileKind::Directory && !folders.insert(facts.key) {
                continue;
            }
            match facts.kind {
                FileKind::Regular => ahead.add(&node, &facts),
                FileKind::Directory => {
                    let Ok(children) = node.children() else { continue };
                    for child in children.flatten() {
                        if over() {
                            return None;
                        }
                        match child.kind {
                            Some(FileKind::Directory) | None => todo.push(child.node),
                            Some(FileKind::Regular) => {
                                if let Ok(facts) = child.node.facts() {
                                    ahead.add(&child.node, &facts);
                                }
                            }
                            Some(_) => {}
                        }
                    }
                }
                _ => {}
            }
        }
        Some(ahead)
    }

    fn add(&mut self, node: &Node, facts: &Facts) {
        if facts.nlink > 1 && !self.met.insert(facts.key) {
            return;
        }
        let bytes = data_bytes(node, facts);
        self.files += 1;
        self.bytes += bytes;
        if let Node::Pool { .. } = node {
            self.stored += facts.stored;
        }
    }

    /// Gives the bar the size of the whole.
    pub fn tell(&self, progress: &Progress) {
        progress.expect(self.files, self.bytes);
    }

    /// The line before a copy out of a pool into the folder `to`; `free`: the free bytes there, if they are known.
    pub fn line(&self, to: &Path, free: Option<u64>) -> String {
        let files = counted(self.files, "file");
        let (bytes, stored) = (nice_bytes(self.bytes), nice_bytes(self.stored));
        let room = match free {
            Some(free) if free < self.bytes => {
                format!("; only {} are free in '{}', that may be too little", nice_bytes(free), to.display())
            }
            Some(free) => format!("; {} are free in '{}'", nice_bytes(free), to.display()),
            None => String::new(),
        };
        format!("to copy: {files}, {bytes} ({stored} in the pool){room}")
    }
}

/// Bytes that are copied of a file: holes stay holes.
fn data_bytes(node: &Node, facts: &Facts) -> u64 {
    if facts.dense || facts.size < SPARSE_MIN {
        return facts.size;
    }
    match node {
        Node::Local(_) => facts.stored.min(facts.size),
        Node::Pool { .. } if facts.stored >= facts.size / SPARSE_PART => facts.size,
        Node::Pool { fs, id, .. } => {
            fs.data_runs(*id).map_or(facts.size, |runs| runs.iter().map(|(_, len)| len).sum())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_names_both_sizes_and_warns_where_they_do_not_fit() {
        let ahead = Ahead { files: 2, bytes: 5 << 30, stored: 1 << 30, ..Ahead::default() };
        let line = |free| ahead.line(Path::new("/usb"), free);
        assert_eq!(line(None), "to copy: 2 files, 5G (1G in the pool)");
        assert_eq!(line(Some(5 << 30)), "to copy: 2 files, 5G (1G in the pool); 5G are free in '/usb'");
        assert_eq!(
            line(Some(3 << 30)),
            "to copy: 2 files, 5G (1G in the pool); only 3G are free in '/usb', that may be too little"
        );
        let one = Ahead { files: 1, bytes: 512, ..Ahead::default() };
        assert_eq!(one.line(Path::new("."), None), "to copy: 1 file, 512B (0B in the pool)");
    }
}
