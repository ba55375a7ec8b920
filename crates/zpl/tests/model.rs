//! Random operations beside an in-memory model, with reopening in between and zdb at the end.

mod support;

use std::collections::BTreeMap;

use format::ObjectId;
use storage::host::{Entropy, SeededEntropy};
use support::Bed;
use zpl::{Error, FileKind, Filesystem, NewNode, Piece, Replace, SetAttr, XattrMode};

#[derive(Clone, Debug)]
struct Node {
    kind: FileKind,
    mode: u32,
    uid: u32,
    links: u64,
    data: Vec<u8>,
    entries: BTreeMap<Vec<u8>, usize>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    id: ObjectId,
}

/// Nodes by number; 0 is the root.
struct Model {
    nodes: Vec<Node>,
}

impl Model {
    fn new(root: ObjectId) -> Model {
        let mut model = Model { nodes: Vec::new() };
        model.add(FileKind::Directory, 0o755, root);
        model
    }

    fn add(&mut self, kind: FileKind, mode: u32, id: ObjectId) -> usize {
        let links = if kind == FileKind::Directory { 2 } else { 1 };
        let (data, entries, xattrs) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        self.nodes.push(Node { kind, mode, uid: 0, links, data, entries, xattrs, id });
        self.nodes.len() - 1
    }

    fn of_kind(&self, dir: bool) -> Vec<usize> {
        let mut alive = vec![0];
        let mut at = 0;
        while at < alive.len() {
            alive.extend(self.nodes[alive[at]].entries.values());
            at += 1;
        }
        alive.sort_unstable();
        alive.dedup();
        alive.retain(|&n| (self.nodes[n].kind == FileKind::Directory) == dir);
        alive
    }

    fn is_within(&self, inner: usize, outer: usize) -> bool {
        inner == outer || self.nodes[outer].entries.values().any(|&child| self.is_within(inner, child))
    }
}

fn errno<T: std::fmt::Debug>(result: &Result<T, Error>) -> i32 {
    result.as_ref().map_or_else(Error::errno, |_| 0)
}

struct Story {
    bed: Bed,
    model: Model,
    dice: SeededEntropy,
}

impl Story {
    fn new(seed: u64, properties: &[(&str, u64)]) -> Story {
        let bed = Bed::new(seed, properties, 0, 0);
        let model = Model::new(bed.fs().root());
        Story { bed, model, dice: SeededEntropy::new(seed) }
    }

    fn below(&self, bound: usize) -> usize {
        self.dice.below(bound as u64) as usize
    }

    fn pick(&self, from: &[usize]) -> usize {
        from[self.below(from.len())]
    }

    fn name(&self) -> Vec<u8> {
        let n = self.below(40);
        if n == 0 { vec![b'x'; 60] } else { format!("n{n}").into_bytes() }
    }

    fn bytes(&self) -> Vec<u8> {
        let len = [0, 1, 100, 512, 513, 5000, 70_000, 300_000][self.below(8)];
        let mut data = vec![0; len];
        match self.below(3) {
            0 => {}
            1 => data.fill(self.below(256) as u8),
            _ => self.dice.fill(&mut data),
        }
        data
    }

    fn step(&mut self) {
        let fs = self.bed.fs().clone();
        let dirs = self.model.of_kind(true);
        let files = self.model.of_kind(false);
        let dir = self.pick(&dirs);
        let name = self.name();
        let taken = self.model.nodes[dir].entries.get(&name).copied();
        let dir_id = self.model.nodes[dir].id;
        let choice = self.below(16);
        match choice {
            0..=4 => self.add(&fs, choice, dir, name),
            5 if !files.is_empty() => {
                let file = self.pick(&files);
                let done = fs.link(self.model.nodes[file].id, dir_id, &name);
                assert_eq!(errno(&done), if taken.is_some() { 17 } else { 0 });
                if done.is_ok() {
                    self.model.nodes[dir].entries.insert(name, file);
                    self.model.nodes[file].links += 1;
                }
            }
            6 => self.unlink(&fs, dir, &name),
            7 => self.rmdir(&fs, dir, &name),
            8 => self.rename(&fs, dir, &name),
            9..=11 => self.change_file(&fs, &files),
            12 => {
                let node = self.pick(&[dirs.clone(), files].concat());
                let (mode, uid) = ([0o640, 0o777, 0o1755][self.below(3)], self.below(3) as u32);
                let set = SetAttr { mode: Some(mode), uid: Some(uid), ..SetAttr::default() };
                fs.setattr(self.model.nodes[node].id, &set).unwrap();
                (self.model.nodes[node].mode, self.model.nodes[node].uid) = (mode, uid);
            }
            13 | 14 => self.change_xattrs(&fs, &[dirs, files].concat()),
            _ if self.below(8) == 0 => {
                // A whole directory at a time.
                let Some(node) = taken else { return };
                fs.remove_tree(dir_id, &name).unwrap();
                let is_dir = self.model.nodes[node].kind == FileKind::Directory;
                self.model.nodes[dir].entries.remove(&name);
                self.model.nodes[dir].links -= u64::from(is_dir);
                self.forget_tree(node);
            }
            _ => {}
        }
    }

    /// A new node: a file with content, a symbolic link, or one of another kind.
    fn add(&mut self, fs: &Filesystem, choice: usize, dir: usize, name: Vec<u8>) {
        let taken = self.model.nodes[dir].entries.contains_key(&name);
        let dir_id = self.model.nodes[dir].id;
        let (kind, mode, data, made) = match choice {
            3 => {
                let mut data = self.bytes();
                data.truncate(fs.dataset().settings().record_size as usize);
                let new = NewNode::new(FileKind::Regular, 0o600);
                let made = fs.create_with(dir_id, &name, &new, data.clone());
                (FileKind::Regular, 0o600, data, made)
            }
            4 => {
                let target = vec![b't'; 1 + self.below(400)];
                let made = fs.symlink(dir_id, &name, &NewNode::new(FileKind::Symlink, 0o777), &target);
                (FileKind::Symlink, 0o777, target, made)
            }
            _ => {
                let kind = [FileKind::Regular, FileKind::Directory, FileKind::Fifo][self.below(3)];
                let mode = [0o644, 0o755, 0o4711, 0o604][self.below(4)];
                let made = fs.create(dir_id, &name, &NewNode::new(kind, mode));
                (kind, mode, Vec::new(), made)
            }
        };
        assert_eq!(errno(&made), if taken { 17 } else { 0 });
        if let Ok(id) = made {
            let node = self.model.add(kind, mode, id);
            self.model.nodes[node].data = data;
            self.model.nodes[dir].entries.insert(name, node);
            self.model.nodes[dir].links += u64::from(kind == FileKind::Directory);
        }
    }

    fn unlink(&mut self, fs: &Filesystem, dir: usize, name: &[u8]) {
        let taken = self.model.nodes[dir].entries.get(name).copied();
        let done = fs.unlink(self.model.nodes[dir].id, name);
        let expected = match taken {
            None => 2,
            Some(node) if self.model.nodes[node].kind == FileKind::Directory => 21,
            Some(_) => 0,
        };
        assert_eq!(errno(&done), expected);
        if let (Ok(()), Some(node)) = (done, taken) {
            self.model.nodes[dir].entries.remove(name);
            self.model.nodes[node].links -= 1;
        }
    }

    fn rmdir(&mut self, fs: &Filesystem, dir: usize, name: &[u8]) {
        let taken = self.model.nodes[dir].entries.get(name).copied();
        let done = fs.rmdir(self.model.nodes[dir].id, name);
        let expected = match taken {
            None => 2,
            Some(node) if self.model.nodes[node].kind != FileKind::Directory => 20,
            Some(node) if !self.model.nodes[node].entries.is_empty() => 39,
            Some(_) => 0,
        };
        assert_eq!(errno(&done), expected);
        if done.is_ok() {
            self.model.nodes[dir].entries.remove(name);
            self.model.nodes[dir].links -= 1;
        }
    }

    fn forget_tree(&mut self, node: usize) {
        if self.model.nodes[node].kind != FileKind::Directory {
            self.model.nodes[node].links -= 1;
            return;
        }
        for child in std::mem::take(&mut self.model.nodes[node].entries).into_values() {
            self.forget_tree(child);
        }
    }

    fn rename(&mut self, fs: &Filesystem, dir: usize, name: &[u8]) {
        let to = self.pick(&self.model.of_kind(true));
        let new_name = self.name();
        let replace = if self.below(4) == 0 { Replace::Refused } else { Replace::Allowed };
        let nodes = &self.model.nodes;
        let (source, victim) =
            (nodes[dir].entries.get(name).copied(), nodes[to].entries.get(&new_name).copied());
        let done = fs.rename(nodes[dir].id, name, nodes[to].id, &new_name, replace);
        let is_dir = |node: usize| nodes[node].kind == FileKind::Directory;
        let expected = match (source, victim) {
            (None, _) => 2,
            (Some(source), _) if is_dir(source) && dir != to && self.model.is_within(to, source) => 22,
            (Some(_), Some(_)) if replace == Replace::Refused => 17,
            (Some(source), Some(victim)) if source == victim => 0,
            (Some(source), Some(victim)) => match (is_dir(source), is_dir(victim)) {
                (true, false) => 20,
                (false, true) => 21,
                (true, true) if !nodes[victim].entries.is_empty() => 39,
                _ => 0,
            },
            _ => 0,
        };
        assert_eq!(errno(&done), expected, "rename");
        let (Ok(()), Some(source)) = (done, source) else { return };
        if victim == Some(source) {
            return;
        }
        let moved_dir = u64::from(is_dir(source));
        if let Some(victim) = victim {
            if is_dir(victim) {
                self.model.nodes[to].links -= 1;
            } else {
                self.model.nodes[victim].links -= 1;
            }
        }
        self.model.nodes[dir].entries.remove(name);
        self.model.nodes[to].entries.insert(new_name, source);
        self.model.nodes[dir].links -= moved_dir;
        self.model.nodes[to].links += moved_dir;
    }

    fn change_file(&mut self, fs: &Filesystem, files: &[usize]) {
        let regular: Vec<usize> =
            files.iter().copied().filter(|&f| self.model.nodes[f].kind == FileKind::Regular).collect();
        if regular.is_empty() {
            return;
        }
        let file = self.pick(&regular);
        let (id, mut data) = (self.model.nodes[file].id, std::mem::take(&mut self.model.nodes[file].data));
        let offset = self.below(data.len() + 2000);
        match self.below(5) {
            0 | 1 => {
                let new = self.bytes();
                fs.write(id, offset as u64, &new).unwrap();
                if !new.is_empty() {
                    data.resize(data.len().max(offset + new.len()), 0);
                    data[offset..offset + new.len()].copy_from_slice(&new);
                }
            }
            2 => {
                fs.truncate(id, offset as u64).unwrap();
                data.resize(offset, 0);
            }
            3 => {
                let len = self.below(200_000);
                fs.punch(id, offset as u64, len as u64).unwrap();
                let end = (offset + len).min(data.len());
                if offset < end {
                    data[offset..end].fill(0);
                }
            }
            _ => {
                // Record by record, from the start.
                let record = fs.dataset().settings().record_size as usize;
                let mut new = self.bytes();
                new.truncate(record * 3);
                for (i, chunk) in new.chunks(record).enumerate() {
                    fs.write_record(id, (i * record) as u64, chunk.to_vec()).unwrap();
                }
                data.resize(data.len().max(new.len()), 0);
                data[..new.len()].copy_from_slice(&new);
            }
        }
        self.model.nodes[file].data = data;
    }

    fn change_xattrs(&mut self, fs: &Filesystem, nodes: &[usize]) {
        let node = self.pick(nodes);
        let id = self.model.nodes[node].id;
        let name = format!("user.{}", self.below(4)).into_bytes();
        let there = self.model.nodes[node].xattrs.contains_key(&name);
        match self.below(3) {
            0 => {
                let done = fs.xattr_remove(id, &name);
                assert_eq!(errno(&done), if there { 0 } else { 61 });
                self.model.nodes[node].xattrs.remove(&name);
            }
            kind => {
                let value = vec![b'v'; [0, 10, 300, 5000, 40_000][self.below(5)]];
                let mode = if kind == 1 { XattrMode::Create } else { XattrMode::Either };
                let done = fs.xattr_set(id, &name, &value, mode);
                let refused = mode == XattrMode::Create && there;
                assert_eq!(errno(&done), if refused { 17 } else { 0 });
                if !refused {
                    self.model.nodes[node].xattrs.insert(name, value);
                }
            }
        }
    }

    /// All that can be read is as the model says.
    fn compare(&self) {
        let fs = self.bed.fs();
        for dir in self.model.of_kind(true) {
            let node = &self.model.nodes[dir];
            let mut found: Vec<_> = fs.entries(node.id).unwrap().map(Result::unwrap).collect();
            found.sort_by(|a, b| a.name.cmp(&b.name));
            let found: Vec<_> = found.into_iter().map(|e| (e.name, e.id, e.kind)).collect();
            let child = |(name, &child): (&Vec<u8>, &usize)| {
                let child = &self.model.nodes[child];
                (name.clone(), child.id, child.kind)
            };
            assert_eq!(found, node.entries.iter().map(child).collect::<Vec<_>>());
            self.compare_node(fs, node, node.entries.len() as u64 + 2);
        }
        for file in self.model.of_kind(false) {
            let node = &self.model.nodes[file];
            self.compare_node(fs, node, node.data.len() as u64);
            match node.kind {
                FileKind::Symlink => assert_eq!(fs.readlink(node.id).unwrap(), node.data),
                FileKind::Regular => self.compare_data(fs, node),
                _ => {}
            }
        }
    }

    fn compare_node(&self, fs: &Filesystem, node: &Node, size: u64) {
        let stat = fs.stat(node.id).unwrap();
        let found = (stat.kind, stat.mode, stat.uid, stat.nlink, stat.size);
        assert_eq!(found, (node.kind, node.mode, node.uid, node.links, size), "object {}", node.id);
        let mut names = fs.xattr_list(node.id).unwrap();
        names.sort();
        assert_eq!(names, node.xattrs.keys().cloned().collect::<Vec<_>>());
        for (name, value) in &node.xattrs {
            assert!(fs.xattr_get(node.id, name).unwrap().as_ref() == Some(value), "xattr");
        }
    }

    fn compare_data(&self, fs: &Filesystem, node: &Node) {
        let mut data = vec![0; node.data.len() + 10];
        let len = fs.read(node.id, 0, &mut data).unwrap();
        assert!(data[..len] == node.data, "contents of object {}", node.id);
        let mut joined = Vec::new();
        for piece in fs.read_records(node.id).unwrap() {
            match piece.unwrap() {
                Piece::Data { offset, record, len } => {
                    assert_eq!(offset, joined.len() as u64);
                    joined.extend_from_slice(&record[..len]);
                }
                Piece::Hole { offset, len } => {
                    assert_eq!(offset, joined.len() as u64);
                    joined.resize(joined.len() + len as usize, 0);
                }
            }
        }
        assert!(joined == node.data, "records of object {}", node.id);
        let mut at = 0;
        for (offset, len) in fs.data_runs(node.id).unwrap() {
            assert!(node.data[at..offset as usize].iter().all(|byte| *byte == 0), "a hole is zeros");
            at = (offset + len) as usize;
        }
        assert!(node.data[at..].iter().all(|byte| *byte == 0), "a hole is zeros");
        // One block that fits, or records.
        let (size, block) = (node.data.len() as u64, fs.stat(node.id).unwrap().block_size);
        assert!(size <= block || block.is_power_of_two());
    }

    fn run(mut self, rounds: usize, steps: usize) {
        for round in 0..rounds {
            if round > 0 {
                self.bed.set_record_size(512 << self.below(12));
            }
            for _ in 0..steps {
                self.step();
                if self.below(60) == 0 {
                    self.bed.fs().dataset().sync().unwrap();
                }
            }
            self.compare();
            self.bed.expect_sound();
            self.bed.close();
            // Not its object dump: a file whose latest link went has a stale parent, in OpenZFS too.
            self.bed.ask_zdb(&["--quick"]);
            self.bed.reopen();
            self.compare();
        }
        self.bed.close();
    }
}

#[test]
fn files_and_directories_behave_as_the_model() {
    Story::new(1, &[]).run(4, 300);
}

#[test]
fn attributes_in_the_node_behave_as_the_model() {
    Story::new(2, &[("xattr", 2)]).run(4, 300);
}

#[test]
fn small_records_behave_as_the_model() {
    Story::new(3, &[("recordsize", 4096), ("compression", 2)]).run(3, 300);
}

/// `CENOTE_SEEDS=100` runs a hundred more stories.
#[test]
fn other_seeds_behave_as_the_model() {
    let seeds = std::env::var("CENOTE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(2);
    for seed in 100..100 + seeds {
        println!("seed {seed}");
        let record_size = 512 << (seed % 9);
        let properties =
            [("xattr", 1 + seed % 2), ("recordsize", record_size), ("dnodesize", seed % 3 * 1024)];
        Story::new(seed, &properties[..2 + (seed / 4 % 2) as usize]).run(3, 200);
    }
}
