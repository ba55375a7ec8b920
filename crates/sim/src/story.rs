//! A story: changes to a file system on a simulated machine, with the model told the same.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use format::{ObjectId, label};
use pool::Pool;
use storage::host::scripted::Op;
use storage::host::{CrashPolicy, Disk, Script, ScriptedDisk};
use zpl::{FileKind, Filesystem, NewNode, Replace, SetAttr, XattrMode};

use crate::machine::{DATASET, Machine};
use crate::model::{DIRECTORY_MODE, FILE_MODE, LINK_MODE, Model};
use crate::tree::Tree;

/// A sync of the story: after operation `done` of the script the pool holds `tree`. A cut between `began` and
/// `done` leaves this tree or that of the mark before.
#[derive(Clone)]
pub struct Mark {
    /// Operations in the script when the sync began.
    pub began: usize,
    /// Operations in the script when the sync had returned.
    pub done: usize,
    /// The synced tree.
    pub tree: Arc<Tree>,
    /// The tree was made durable by the intent log. So files that were written since the last sync get the time of the replay.
    pub logged: bool,
    /// The same as a model.
    pub(crate) model: Model,
}

impl Mark {
    /// Whether `found` agrees with this mark.
    pub(crate) fn allows(&self, found: &Tree) -> bool {
        *self.tree == *found || self.logged && self.tree.without_times() == found.without_times()
    }
}

/// The states that may be found after a cut: the last one that was synced before, and the one being synced.
pub(crate) fn allowed(marks: &[Mark], cut: usize) -> Vec<&Mark> {
    let last = marks.iter().rposition(|mark| mark.done <= cut).expect("the log begins with a mark");
    let being_synced = marks.get(last + 1).filter(|mark| mark.began < cut);
    std::iter::once(&marks[last]).chain(being_synced).collect()
}

/// A running story. Its methods panic when the file system returns an error; the message contains the seed.
pub struct Story {
    seed: u64,
    machine: Machine,
    script: Script,
    fs: Option<Filesystem>,
    pool: Option<Pool>,
    model: Model,
    marks: Vec<Mark>,
    /// Operations in the script when a sync began that failed: what it wrote may have arrived all the same.
    failed: Option<usize>,
    boots: u64,
    pub(crate) makes_links: bool,
}

impl Story {
    /// A story on the default machine.
    #[must_use]
    pub fn seeded(seed: u64) -> Story {
        Story::on(Machine::default(), seed)
    }

    /// A story on `machine`. The log of its disks begins when the pool is made.
    ///
    /// # Panics
    /// If the pool cannot be made.
    #[must_use]
    pub fn on(machine: Machine, seed: u64) -> Story {
        let (script, pool) = machine.create(seed).unwrap_or_else(|e| panic!("seed {seed}: no pool: {e}"));
        let mut story = Story {
            seed,
            machine,
            script,
            fs: None,
            pool: Some(pool),
            model: Model::default(),
            marks: Vec::new(),
            failed: None,
            boots: 0,
            makes_links: true,
        };
        story.open_fs();
        story.forget();
        story
    }

    fn open_fs(&mut self) {
        let dataset = self.pool().open(DATASET).unwrap_or_else(|e| self.fail("the dataset", e));
        self.fs = Some(Filesystem::open(dataset).unwrap_or_else(|e| self.fail("the file system", e)));
    }

    fn fail(&self, what: impl Display, error: impl Display) -> ! {
        panic!("seed {}, operation {}: {what}: {error}", self.seed, self.script.op_count())
    }

    /// The seed.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The machine.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The log of all disks.
    #[must_use]
    pub fn script(&self) -> &Script {
        &self.script
    }

    /// One of the disks.
    #[must_use]
    pub fn disk(&self, number: usize) -> ScriptedDisk {
        self.script.disks().swap_remove(number)
    }

    /// The pool.
    ///
    /// # Panics
    /// After [`Story::shut_down`].
    #[must_use]
    pub fn pool(&self) -> &Pool {
        self.pool.as_ref().expect("the pool is open")
    }

    /// The file system.
    ///
    /// # Panics
    /// After [`Story::shut_down`].
    #[must_use]
    pub fn fs(&self) -> &Filesystem {
        self.fs.as_ref().expect("the pool is open")
    }

    /// The tree that should be there now, synced or not.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The syncs since the log began; the first is the state it began with.
    #[must_use]
    pub fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// Empties the log, so that cuts count from here. All changes must be synced.
    pub fn forget(&mut self) {
        self.script.forget();
        self.marks.clear();
        self.mark(0);
    }

    /// Random changes make no hard links: zdb takes an object for leaked when the name that its parent attribute
    /// leads to is gone, though another one is there.
    pub fn without_links(&mut self) -> &mut Story {
        self.makes_links = false;
        self
    }

    fn mark(&mut self, began: usize) {
        let (done, model) = (self.script.op_count(), self.model.clone());
        self.marks.push(Mark { began, done, tree: Arc::new(model.tree()), logged: false, model });
    }

    fn place<'a>(&self, path: &'a str) -> (ObjectId, &'a [u8]) {
        self.fs()
            .resolve_parent(path.as_bytes())
            .unwrap_or_else(|e| self.fail(format_args!("parent of {path}"), e))
    }

    fn id(&self, path: &str) -> ObjectId {
        self.fs().resolve(path.as_bytes(), false).unwrap_or_else(|e| self.fail(path, e))
    }

    /// Replaces the content of the file at `path`, made if need be.
    pub fn write(&mut self, path: &str, data: impl AsRef<[u8]>) -> &mut Story {
        if self.model.exists(path) {
            self.truncate(path, 0);
        }
        self.write_at(path, 0, data)
    }

    /// Writes into the file at `path`, made if need be, from byte `offset` on.
    pub fn write_at(&mut self, path: &str, offset: u64, data: impl AsRef<[u8]>) -> &mut Story {
        self.try_write_at(path, offset, data.as_ref())
            .unwrap_or_else(|e| self.fail(format_args!("write {path} at {offset}"), e));
        self
    }

    /// As [`Story::write_at`], where refusal is part of the story. What was written before the refusal stays.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn try_write_at(&mut self, path: &str, offset: u64, data: &[u8]) -> zpl::Result<()> {
        let id = match self.model.exists(path) {
            true => self.id(path),
            false => {
                let (dir, name) = self.place(path);
                let id = self.fs().create(dir, name, &NewNode::new(FileKind::Regular, FILE_MODE))?;
                self.model.set_content(path, Vec::new(), self.fs().stat(id)?.mtime);
                id
            }
        };
        let done = self.fs().write(id, offset, data);
        let stat = self.fs().stat(id)?;
        let old = self.model.content(path).expect("a regular file").clone();
        let mut new = Vec::clone(&old);
        // A refused write may have got through up to some record: the size shows how far, as stories only
        // append when they expect refusal.
        let end = (offset + data.len() as u64).min(stat.size) as usize;
        if end > offset as usize {
            new.resize(new.len().max(end), 0);
            new[offset as usize..end].copy_from_slice(&data[..end - offset as usize]);
        }
        self.model.set_content(path, new, stat.mtime);
        done
    }

    /// Makes `to` a file that shares the blocks of `from`, where they are on disk; else it gets a copy. Says whether it shares them.
    pub fn clone_file(&mut self, from: &str, to: &str) -> bool {
        let data = Vec::clone(self.model.content(from).expect("a regular file"));
        self.write(to, "");
        let (source, id) = (self.id(from), self.id(to));
        let place = zpl::Place { fs: self.fs(), id: source, offset: 0 };
        match self.fs().clone_range(place, (id, 0), data.len() as u64) {
            Ok(bytes) => assert_eq!(bytes, data.len() as u64, "seed {}: {from} is cloned", self.seed),
            Err(zpl::Error::NotCloned(_)) => {
                self.write(to, data);
                return false;
            }
            Err(error) => self.fail(format_args!("clone {from} {to}"), error),
        }
        let time = self.fs().stat(id).unwrap_or_else(|e| self.fail(to, e)).mtime;
        self.model.set_content(to, data, time);
        true
    }

    /// Cuts or extends a file.
    pub fn truncate(&mut self, path: &str, size: u64) -> &mut Story {
        let id = self.id(path);
        self.fs().truncate(id, size).unwrap_or_else(|e| self.fail(format_args!("truncate {path}"), e));
        let mut data = Vec::clone(self.model.content(path).expect("a regular file"));
        data.resize(size as usize, 0);
        let time = self.fs().stat(id).unwrap_or_else(|e| self.fail(path, e)).mtime;
        self.model.set_content(path, data, time);
        self
    }

    /// Makes a directory.
    pub fn mkdir(&mut self, path: &str) -> &mut Story {
        let (dir, name) = self.place(path);
        let new = NewNode::new(FileKind::Directory, DIRECTORY_MODE);
        self.fs().create(dir, name, &new).unwrap_or_else(|e| self.fail(format_args!("mkdir {path}"), e));
        self.model.mkdir(path);
        self
    }

    /// Removes an empty directory.
    pub fn rmdir(&mut self, path: &str) -> &mut Story {
        let (dir, name) = self.place(path);
        self.fs().rmdir(dir, name).unwrap_or_else(|e| self.fail(format_args!("rmdir {path}"), e));
        self.model.remove(path);
        self
    }

    /// Makes a symbolic link.
    pub fn symlink(&mut self, path: &str, target: &str) -> &mut Story {
        let (dir, name) = self.place(path);
        let new = NewNode::new(FileKind::Symlink, LINK_MODE);
        self.fs()
            .symlink(dir, name, &new, target.as_bytes())
            .unwrap_or_else(|e| self.fail(format_args!("symlink {path}"), e));
        self.model.symlink(path, target);
        self
    }

    /// Gives a file another name.
    pub fn link(&mut self, path: &str, new: &str) -> &mut Story {
        let (dir, name) = self.place(new);
        self.fs()
            .link(self.id(path), dir, name)
            .unwrap_or_else(|e| self.fail(format_args!("link {path} {new}"), e));
        self.model.link(path, new);
        self
    }

    /// Renames a node, and replaces a node that has the new name.
    pub fn rename(&mut self, from: &str, to: &str) -> &mut Story {
        let ((dir, name), (new_dir, new_name)) = (self.place(from), self.place(to));
        self.fs()
            .rename(dir, name, new_dir, new_name, Replace::Allowed)
            .unwrap_or_else(|e| self.fail(format_args!("rename {from} {to}"), e));
        self.model.rename(from, to);
        self
    }

    /// Removes a name of a file or link.
    pub fn unlink(&mut self, path: &str) -> &mut Story {
        let (dir, name) = self.place(path);
        self.fs().unlink(dir, name).unwrap_or_else(|e| self.fail(format_args!("unlink {path}"), e));
        self.model.remove(path);
        self
    }

    /// Sets permission bits.
    pub fn chmod(&mut self, path: &str, mode: u32) -> &mut Story {
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        self.fs().setattr(self.id(path), &set).unwrap_or_else(|e| self.fail(format_args!("chmod {path}"), e));
        self.model.set_mode(path, mode);
        self
    }

    /// Sets an extended attribute.
    pub fn set_xattr(&mut self, path: &str, name: &str, value: &[u8]) -> &mut Story {
        self.fs()
            .xattr_set(self.id(path), name.as_bytes(), value, XattrMode::Either)
            .unwrap_or_else(|e| self.fail(format_args!("set {name} of {path}"), e));
        self.model.set_xattr(path, name, value);
        self
    }

    /// Notes that the pool may have synced by itself, because memory or space ran out. From here to the next sync, the
    /// story does not know the state on the disks.
    pub fn forget_unasked_syncs(&mut self) {
        self.forget();
    }

    /// Makes everything so far durable.
    pub fn sync(&mut self) -> &mut Story {
        self.try_sync().unwrap_or_else(|e| self.fail("sync", e));
        self
    }

    /// As [`Story::sync`], where refusal is part of the story.
    ///
    /// # Errors
    /// The error of the pool.
    pub fn try_sync(&mut self) -> pool::Result<()> {
        let began = self.script.op_count();
        let last = self.marks.last().expect("the log begins with a mark").done;
        assert!(began == last || self.failed.is_some(), "a stepwise pool writes nothing unasked");
        let done = self.pool().sync();
        if done.is_ok() {
            self.mark(began);
        } else {
            self.failed.get_or_insert(began);
        }
        done
    }

    /// Makes everything so far safe without a sync: through the intent log.
    pub fn commit(&mut self) -> &mut Story {
        let began = self.script.op_count();
        self.fs().commit_all().unwrap_or_else(|e| self.fail("commit", e));
        self.mark(began);
        self.marks.last_mut().expect("it was just made").logged = true;
        self
    }

    /// Drops the pool without a sync.
    pub fn shut_down(&mut self) -> &mut Story {
        self.fs = None;
        self.pool = None;
        self
    }

    /// Exports the pool; it stays closed.
    pub fn export(&mut self) -> &mut Story {
        let began = self.script.op_count();
        self.fs = None;
        let pool = self.pool.take().expect("the pool is open");
        pool.export().unwrap_or_else(|e| self.fail("export", e));
        self.mark(began);
        self
    }

    /// Opens the pool again: all that a disk accepted has arrived, what was not synced is gone.
    pub fn reboot(&mut self) -> &mut Story {
        self.try_reboot().unwrap_or_else(|e| self.fail("import", e));
        self
    }

    /// As [`Story::reboot`], where refusal is part of the story.
    ///
    /// # Errors
    /// The error of the import.
    pub fn try_reboot(&mut self) -> Result<(), String> {
        self.shut_down();
        self.model = self.marks.last().expect("the log begins with a mark").model.clone();
        self.boots += 1;
        let (pool, fs) = self.machine.open(self.script.disks(), self.seed + (self.boots << 32))?;
        (self.pool, self.fs) = (Some(pool), Some(fs));
        Ok(())
    }

    /// The power fails: unflushed data is treated as `policy` says, and the machine starts again.
    pub fn cut_power(&mut self, policy: CrashPolicy) -> &mut Story {
        self.cut_power_at(self.script.op_count(), policy)
    }

    /// As if power had gone before operation `cut` of the log. The story continues from the state that is found,
    /// with a new log.
    ///
    /// # Panics
    /// When that is neither the last state synced before the cut nor the one being synced.
    pub fn cut_power_at(&mut self, cut: usize, policy: CrashPolicy) -> &mut Story {
        self.shut_down();
        if let Some(began) = self.failed.take() {
            let (done, model) = (usize::MAX, self.model.clone());
            self.marks.push(Mark { began, done, tree: Arc::new(model.tree()), logged: false, model });
        }
        self.script = self.script.image_after(cut, policy, self.seed + self.boots);
        self.reboot();
        let found = Tree::read(self.fs()).unwrap_or_else(|e| self.fail("after the power cut", e));
        let allowed = allowed(&self.marks, cut);
        let Some(mark) = allowed.iter().find(|mark| mark.allows(&found)) else {
            let differences: Vec<_> = allowed.iter().map(|mark| found.differences(&mark.tree)).collect();
            self.fail(
                format_args!("cut before operation {cut}, {policy:?}"),
                format_args!("{differences:#?}"),
            )
        };
        self.model = mark.model.clone();
        self.forget();
        self
    }

    /// Flips a bit in uberblocks that were written from operation `from` of the log on: in those for which `chosen` returns
    /// true, given the numbers of the disk and of the label. Returns their number.
    pub fn rot_uberblocks(&self, from: usize, chosen: impl Fn(usize, usize) -> bool) -> usize {
        let disks = self.script.disks();
        let mut count = 0;
        for op in &self.script.ops()[from..] {
            let Op::Write { disk, offset, .. } = op else { continue };
            let labels = label::offsets(disks[*disk].size()).expect("the disk has room for labels");
            let ring = label::RING.offset..label::RING.offset + label::RING.len as u64;
            let hit = labels
                .iter()
                .position(|label| offset.checked_sub(*label).is_some_and(|at| ring.contains(&at)));
            if hit.is_some_and(|label| chosen(*disk, label)) {
                disks[*disk].rot(offset + 50, 1);
                count += 1;
            }
        }
        count
    }

    /// Flips a bit in the configurations of some labels (0 to 3) of every disk.
    pub fn rot_label_configs(&self, labels: &[usize]) {
        for disk in self.script.disks() {
            let offsets = label::offsets(disk.size()).expect("the disk has room for labels");
            labels.iter().for_each(|label| disk.rot(offsets[*label] + label::PHYS.offset + 1000, 1));
        }
    }

    /// The content of the only disk.
    ///
    /// # Panics
    /// When the disk fails.
    #[must_use]
    pub fn image(&self) -> Vec<u8> {
        let disks = self.script.disks();
        assert_eq!(disks.len(), 1, "an image is that of one disk");
        let mut image = vec![0; disks[0].size() as usize];
        disks[0].read_at(&mut image, 0).unwrap_or_else(|e| self.fail("image", e));
        image
    }

    /// Copies the disks into files in `folder`, sparse, for other programs to judge.
    ///
    /// # Errors
    /// The error of the system.
    pub fn write_images(&self, folder: &Path) -> std::io::Result<Vec<PathBuf>> {
        use std::os::unix::fs::FileExt;
        const PIECE: usize = 1 << 20;
        let mut paths = Vec::new();
        for (number, disk) in self.script.disks().into_iter().enumerate() {
            let path = folder.join(format!("disk{number}"));
            let file = std::fs::File::create(&path)?;
            file.set_len(disk.size())?;
            let mut piece = vec![0; PIECE];
            for offset in (0..disk.size()).step_by(PIECE) {
                let len = PIECE.min((disk.size() - offset) as usize);
                disk.read_at(&mut piece[..len], offset)?;
                if piece[..len].iter().any(|byte| *byte != 0) {
                    file.write_all_at(&piece[..len], offset)?;
                }
            }
            paths.push(path);
        }
        Ok(paths)
    }

    /// The file has this content.
    ///
    /// # Panics
    /// When it has another one, or cannot be read.
    pub fn expect_file(&self, path: &str, data: impl AsRef<[u8]>) -> &Story {
        self.expect_one_of(path, [data])
    }

    /// Checks that the file has one of these contents.
    ///
    /// # Panics
    /// When it has another one, or cannot be read.
    pub fn expect_one_of<const N: usize>(&self, path: &str, contents: [impl AsRef<[u8]>; N]) -> &Story {
        let found = self.fs().read_all(self.id(path), 1 << 30).unwrap_or_else(|e| self.fail(path, e));
        let known = contents.iter().any(|data| data.as_ref() == found);
        assert!(known, "seed {}: {path} holds {} other bytes", self.seed, found.len());
        self
    }

    /// Asserts that the file system has the contents of the model.
    ///
    /// # Panics
    /// When it does not.
    pub fn expect_model(&self) -> &Story {
        let found = Tree::read(self.fs()).unwrap_or_else(|e| self.fail("comparison", e));
        let differences = found.differences(&self.model.tree());
        assert!(differences.is_empty(), "seed {}: {differences:#?}", self.seed);
        self
    }

    /// Nothing is wrong with the pool or the file system. What is not synced yet, is now.
    ///
    /// # Panics
    /// With all that is wrong.
    pub fn expect_clean(&mut self) -> &mut Story {
        let findings = self.check();
        assert!(findings.is_empty(), "seed {}: {findings:#?}", self.seed);
        self
    }

    /// The findings of the checkers. Syncs first.
    ///
    /// # Panics
    /// When they cannot do their work.
    pub fn check(&mut self) -> Vec<String> {
        self.sync();
        let findings = findings(self.pool(), self.fs()).unwrap_or_else(|e| self.fail("check", e));
        // The checkers begin with a sync of their own.
        self.mark(self.marks.last().expect("just synced").done);
        findings
    }
}

/// All that the checkers find.
pub(crate) fn findings(pool: &Pool, fs: &Filesystem) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    scan::check::check(pool, &mut |finding| found.push(finding.to_string())).map_err(|e| e.to_string())?;
    zpl::check::check_filesystem(fs, &mut |problem| found.push(problem.to_string()))
        .map_err(|e| e.to_string())?;
    Ok(found)
}
