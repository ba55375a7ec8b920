//! Random changes that the model says are possible.

use std::sync::Arc;

use storage::host::{Entropy, SeededEntropy};

use crate::story::Story;

/// Files that a story collects before it rather removes than makes.
const FILES_MAX: usize = 40;

fn pick<'a>(chance: &SeededEntropy, paths: impl Iterator<Item = &'a String>) -> Option<String> {
    let paths: Vec<_> = paths.collect();
    (!paths.is_empty()).then(|| paths[chance.below(paths.len() as u64) as usize].clone())
}

/// Bytes of one of four kinds: random, text that compresses, zeros, a few.
fn content(chance: &SeededEntropy, max: u64) -> Vec<u8> {
    let len = match chance.below(3) {
        0 => chance.below(200),
        1 => chance.below(max / 8 + 1),
        _ => chance.below(max + 1),
    } as usize;
    match chance.below(4) {
        0 => vec![0; len],
        1 => format!("line {} of some text\n", chance.below(1000))
            .into_bytes()
            .into_iter()
            .cycle()
            .take(len)
            .collect(),
        _ => {
            let mut data = vec![0; len];
            chance.fill(&mut data);
            data
        }
    }
}

impl Story {
    /// `count` random changes; files stay below about `bytes_max` bytes. The same `chance` gives the same.
    pub fn live(&mut self, chance: &SeededEntropy, count: usize, bytes_max: u64) -> &mut Story {
        for _ in 0..count {
            self.change(chance, bytes_max);
        }
        self
    }

    fn fresh_path(&self, chance: &SeededEntropy) -> String {
        let parent = if chance.below(3) == 0 { None } else { pick(chance, self.model().directories()) };
        let long = "n".repeat(chance.below(4) as usize * 20);
        format!("{}/{long}{:x}", parent.unwrap_or_default(), chance.u64() >> 40)
    }

    /// A new or existing file gets the blocks of another one.
    fn clone_one(&mut self, chance: &SeededEntropy, file: &str) {
        let over = pick(chance, self.model().files()).filter(|over| *over != file && chance.below(2) == 0);
        let to = over.unwrap_or_else(|| self.fresh_path(chance));
        self.clone_file(file, &to);
    }

    fn change(&mut self, chance: &SeededEntropy, max: u64) {
        let file = pick(chance, self.model().files());
        let many = self.model().files().count() > FILES_MAX;
        let Some(file) = file else {
            let path = self.fresh_path(chance);
            self.write(&path, content(chance, max));
            return;
        };
        let size = self.model().content(&file).map_or(0, |data: &Arc<Vec<u8>>| data.len() as u64);
        if !self.machine().features.is_empty() && chance.below(4) == 0 {
            self.clone_one(chance, &file);
            return;
        }
        match chance.below(20) {
            0..=4 if !many => {
                let path = self.fresh_path(chance);
                self.write(&path, content(chance, max));
            }
            5..=7 => {
                let at = chance.below(size + 1);
                self.write_at(&file, at, content(chance, max / 4));
            }
            8 => {
                self.write(&file, content(chance, max));
            }
            9 => self.write_behind_a_hole(chance, &file, size, max),
            10 => {
                self.truncate(&file, chance.below(size + 1));
            }
            11 => {
                let to = self.fresh_path(chance);
                self.rename(&file, &to);
            }
            12 => {
                let over = pick(chance, self.model().files()).expect("there is a file");
                if over != file {
                    self.rename(&file, &over);
                }
            }
            13 if !many && self.makes_links => {
                let new = self.fresh_path(chance);
                self.link(&file, &new);
            }
            14 => {
                let path = self.fresh_path(chance);
                self.mkdir(&path);
            }
            15 => {
                let empty = |path: &&String| self.model().children(path).next().is_none();
                if let Some(path) = pick(chance, self.model().directories().filter(empty)) {
                    self.rmdir(&path);
                }
            }
            16 if !many => {
                let path = self.fresh_path(chance);
                self.symlink(&path, &"t".repeat(1 + chance.below(300) as usize));
            }
            17 => {
                self.chmod(&file, chance.below(0o1000) as u32);
            }
            18 => {
                let name = format!("user.n{}", chance.below(3));
                self.set_xattr(&file, &name, &content(chance, 2000));
            }
            _ => {
                self.unlink(&file);
            }
        }
    }

    /// Leaves a hole behind the end of a file of `size` bytes, then writes data.
    fn write_behind_a_hole(&mut self, chance: &SeededEntropy, file: &str, size: u64, max: u64) {
        let at = size + chance.below(max / 2 + 1);
        if at < max * 2 {
            self.write_at(file, at, content(chance, 3000));
        }
    }
}
