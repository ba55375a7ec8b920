//! `cenote cp --dry-run` finds out what a copy would do, without writing.
//!
//! From:   the walk of a copy, and what is in the destination.
//! To:     a step for each file, folder and link, and sums of them.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::SyncSender;

use pool::props::number::nice_bytes;
use serde_json::{Value, json};
use zpl::FileKind;
use zpl::rank::RankedMutex;

use super::content::Content;
use super::error::{CopyError, made_twice};
use super::node::Trail;
use super::progress::Progress;
use super::sink::{Moved, Sink, There, Wanted};
use crate::out::{counted, quoted};

/// A step of the copy.
pub struct Step {
    pub action: Action,
    kind: Option<FileKind>,
    path: Vec<u8>,
    bytes: u64,
}

/// A step that a copy would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Create,
    Replace,
    /// One more name for a file that is copied already.
    Link,
    /// The copy is complete.
    Skip,
}

impl Action {
    const fn word(self) -> &'static str {
        match self {
            Action::Create => "create",
            Action::Replace => "replace",
            Action::Link => "link",
            Action::Skip => "skip",
        }
    }
}

const fn kind_word(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Fifo => "fifo",
        FileKind::CharDevice => "character device",
        FileKind::Directory => "directory",
        FileKind::BlockDevice => "block device",
        FileKind::Regular => "file",
        FileKind::Symlink => "symlink",
        FileKind::Socket => "socket",
    }
}

impl Step {
    /// The step as a line for people; folders end in a slash.
    pub fn line(&self) -> String {
        let slash = if self.kind == Some(FileKind::Directory) { "/" } else { "" };
        format!("{:<7}  {}{slash}", self.action.word(), quoted(&self.path))
    }

    /// The step as an object.
    pub fn json(&self) -> Value {
        let path = String::from_utf8_lossy(&self.path);
        let kind = self.kind.map(kind_word);
        json!({ "action": self.action.word(), "kind": kind, "path": path, "bytes": self.bytes })
    }
}

/// A destination that is looked at only.
pub struct Plan<'a, S: Sink> {
    sink: &'a S,
    steps: SyncSender<Step>,
    sums: Sums,
    /// Paths that would have been made, where two sources may have the same.
    met: Option<RankedMutex<HashSet<Vec<u8>>>>,
}

/// How much would be done.
#[derive(Debug, Default)]
pub struct Sums {
    created: AtomicU64,
    replaced: AtomicU64,
}

/// A folder of the destination, which may not be there yet.
#[derive(Clone)]
pub struct Place<D> {
    pub dir: Option<D>,
    pub path: Trail,
}

impl<'a, S: Sink> Plan<'a, S> {
    /// Makes a plan of the steps for `sink`. Each step goes to `steps`; when the receiver is gone, the plan ends.
    pub fn new(sink: &'a S, several_sources: bool, steps: SyncSender<Step>) -> Plan<'a, S> {
        Plan { sink, steps, sums: Sums::default(), met: several_sources.then(RankedMutex::default) }
    }

    /// Ends the plan after its last step; returns the sums.
    pub fn end(self) -> Sums {
        self.sums
    }

    fn step(
        &self,
        action: Action,
        kind: Option<FileKind>,
        path: &Trail,
        bytes: u64,
    ) -> Result<(), CopyError> {
        match action {
            Action::Create => self.sums.created.fetch_add(1, Ordering::Relaxed),
            Action::Replace => self.sums.replaced.fetch_add(1, Ordering::Relaxed),
            Action::Link | Action::Skip => 0,
        };
        let step = Step { action, kind, path: path.bytes(), bytes };
        self.steps.send(step).map_err(|_| CopyError::stopped())
    }

    /// Something other than a folder is made.
    fn make(&self, dir: &Place<S::Dir>, name: &[u8], wanted: &Wanted, bytes: u64) -> Result<(), CopyError> {
        let path = dir.path.child(name);
        if let Some(met) = &self.met
            && !met.lock().insert(path.bytes())
        {
            return Err(made_twice());
        }
        let action = match self.look(dir, name, wanted)? {
            Some(_) => Action::Replace,
            None => Action::Create,
        };
        self.step(action, Some(wanted.kind), &path, bytes)
    }
}

impl Sums {
    /// The last line: how many of each.
    pub fn line(&self, progress: &Progress) -> String {
        let count = |what: &AtomicU64| what.load(Ordering::Relaxed);
        let skipped = match count(&progress.skipped) {
            0 => String::new(),
            n => format!(", skip {n}"),
        };
        format!(
            "nothing was written: it would create {}, replace {}{skipped}; {} in {}",
            count(&self.created),
            count(&self.replaced),
            nice_bytes(count(&progress.bytes)),
            counted(count(&progress.files), "file"),
        )
    }

    /// The same as an object.
    pub fn summary(&self, progress: &Progress) -> Value {
        let mut all = progress.summary();
        all["dry_run"] = true.into();
        all["created"] = self.created.load(Ordering::Relaxed).into();
        all["replaced"] = self.replaced.load(Ordering::Relaxed).into();
        all
    }
}

impl<S: Sink> Sink for Plan<'_, S> {
    type Dir = Place<S::Dir>;
    type Made = ();

    fn look(&self, dir: &Self::Dir, name: &[u8], wanted: &Wanted) -> Result<Option<There<()>>, CopyError> {
        let Some(dir) = &dir.dir else { return Ok(None) };
        let there = self.sink.look(dir, name, wanted)?;
        Ok(there.map(|There { kind, size, mtime, .. }| There { kind, size, mtime, made: () }))
    }

    fn enter(&self, dir: &Self::Dir, name: &[u8]) -> Result<Option<Self::Dir>, CopyError> {
        let inner = match &dir.dir {
            Some(dir) => self.sink.enter(dir, name)?,
            None => None,
        };
        Ok(inner.map(|inner| Place { dir: Some(inner), path: dir.path.child(name) }))
    }

    fn clear(&self, _: &Self::Dir) -> Result<u64, CopyError> {
        Ok(0)
    }

    fn kept(&self, dir: &Self::Dir, name: &[u8]) {
        // The next step reports if the receiver of the steps is gone.
        let _ = self.step(Action::Skip, Some(FileKind::Regular), &dir.path.child(name), 0);
    }

    fn make_dir(&self, dir: &Self::Dir, name: &[u8], _: &Wanted) -> Result<Self::Dir, CopyError> {
        if let Some(there) = self.enter(dir, name)? {
            return Ok(there);
        }
        let path = dir.path.child(name);
        self.step(Action::Create, Some(FileKind::Directory), &path, 0)?;
        Ok(Place { dir: None, path })
    }

    fn finish_dir(&self, _: &Self::Dir, _: &Wanted) -> Result<(), CopyError> {
        Ok(())
    }

    fn make_file(
        &self,
        dir: &Self::Dir,
        name: &[u8],
        wanted: &Wanted,
        _: &mut Content,
        moved: Moved,
    ) -> Result<(), CopyError> {
        moved(wanted.size)?;
        self.make(dir, name, wanted, wanted.size)
    }

    fn make_other(&self, dir: &Self::Dir, name: &[u8], wanted: &Wanted, _: &[u8]) -> Result<(), CopyError> {
        self.make(dir, name, wanted, 0)
    }

    fn link(&self, (): &(), dir: &Self::Dir, name: &[u8]) -> Result<(), CopyError> {
        self.step(Action::Link, None, &dir.path.child(name), 0)
    }

    fn record(&self) -> u64 {
        self.sink.record()
    }
}
