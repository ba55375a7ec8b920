//! The threads of a copy: one walks and makes the folders, others copy the files.
//!
//! Memory grows with the number of folders and of files with several names, and with nothing else.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_channel::Sender;
use zpl::FileKind;
use zpl::rank::{MutexHeld, RankedMutex};

use super::error::CopyError;
use super::facts::Facts;
use super::node::{Child, Node};
use super::progress::Progress;
use super::sink::{Policy, Sink, Wanted};
use crate::files::walk;
use crate::stop::Stop;

/// Files that wait for a worker.
const WAITING: usize = 1024;

/// The state of a copy.
pub struct Engine<'a, S: Sink> {
    pub sink: &'a S,
    pub policy: Policy,
    pub progress: &'a Progress,
    pub stop: &'a Stop,
    /// Threads that copy; 0: the walker does it, in order of names.
    pub workers: usize,
    links: RankedMutex<HashMap<(u64, u64), Names<S>>>,
    /// Folders of pools that were read below this root: a damaged or hostile pool may have one in several places, or in itself.
    met: RankedMutex<HashSet<(u64, u64)>>,
    /// Nothing more can be written.
    over: AtomicBool,
}

/// Names of a file that has several.
struct Names<S: Sink> {
    /// How many were not met yet.
    missing: u64,
    state: State<S>,
}

enum State<S: Sink> {
    /// A thread copies it; the copy gets these names later.
    Copying(Vec<Job<S>>),
    Made(S::Made),
}

/// A folder of the destination that is being filled. When its last user drops it, it gets its final attributes, and then its
/// parent is dropped, because the final mode of a parent may forbid entering it.
struct Open<S: Sink> {
    dir: S::Dir,
    finish: Option<(Wanted, Node)>,
    above: Option<Arc<Open<S>>>,
}

/// A node to be copied that is not a folder.
struct Job<S: Sink> {
    node: Node,
    dir: Arc<Open<S>>,
    name: Vec<u8>,
    kind: Option<FileKind>,
}

/// A source and its destination: where from, where to, and the name there. Without a name, the contents go into the
/// folder.
pub struct Root<S: Sink> {
    pub node: Node,
    pub dir: S::Dir,
    pub name: Vec<u8>,
}

/// A folder whose children are still to be looked at.
type Todo<S> = (Node, Arc<Open<S>>);

impl<'a, S: Sink> Engine<'a, S> {
    pub fn new(sink: &'a S, policy: Policy, progress: &'a Progress, stop: &'a Stop, workers: usize) -> Self {
        Engine {
            sink,
            policy,
            progress,
            stop,
            workers,
            links: RankedMutex::default(),
            met: RankedMutex::default(),
            over: AtomicBool::new(false),
        }
    }

    /// Copies everything. Errors are reported and counted.
    pub fn run(&self, roots: Vec<Root<S>>) {
        if self.workers == 0 {
            return self.walk(roots, None);
        }
        std::thread::scope(|scope| {
            let (sender, jobs) = crossbeam_channel::bounded::<Job<S>>(WAITING);
            for _ in 0..self.workers {
                let jobs = jobs.clone();
                scope.spawn(move || jobs.iter().for_each(|job| self.copy(job)));
            }
            drop(jobs);
            self.walk(roots, Some(sender));
        });
    }

    /// Whether the copy ends here.
    fn is_over(&self) -> bool {
        let stopped = self.stop.asked();
        if stopped {
            self.progress.cut_short.store(true, Ordering::Relaxed);
        }
        stopped || self.over.load(Ordering::Relaxed)
    }

    fn fail(&self, shown: &str, error: &CopyError) {
        if error.is_stopped() {
            self.over.store(true, Ordering::Relaxed);
            return;
        }
        // When nothing can be written any more, one line is enough.
        let first = !error.is_fatal() || !self.over.swap(true, Ordering::Relaxed);
        if first {
            self.progress.failed(&error.about(shown));
        }
    }

    fn walk(&self, roots: Vec<Root<S>>, jobs: Option<Sender<Job<S>>>) {
        for root in roots {
            let mut todo = Vec::new();
            let above = Arc::new(Open { dir: root.dir, finish: None, above: None });
            self.met().clear();
            if let Err(error) = self.clear(&above.dir) {
                self.fail(&root.node.shown(), &error);
            }
            let child = Child { name: root.name, node: root.node, kind: None };
            self.visit(child, &above, &mut todo, jobs.as_ref());
            while let Some((node, open)) = todo.pop() {
                if !self.is_over() {
                    self.read_folder(&node, &open, &mut todo, jobs.as_ref());
                }
                self.let_go(open);
            }
            self.let_go(above);
        }
    }

    fn read_folder(
        &self,
        node: &Node,
        open: &Arc<Open<S>>,
        todo: &mut Vec<Todo<S>>,
        jobs: Option<&Sender<Job<S>>>,
    ) {
        let children = match node.children() {
            Ok(children) => children,
            Err(error) => return self.fail(&node.shown(), &error),
        };
        let first = todo.len();
        let mut each = |child: Result<Child, CopyError>| match child {
            Ok(child) => self.visit(child, open, todo, jobs),
            Err(error) => self.fail(&node.shown(), &error),
        };
        if self.workers > 0 {
            children.take_while(|_| !self.is_over()).for_each(&mut each);
        } else {
            let mut all: Vec<_> = children.collect();
            all.sort_by(|a, b| match (a, b) {
                (Ok(a), Ok(b)) => a.name.cmp(&b.name),
                (a, b) => a.is_ok().cmp(&b.is_ok()),
            });
            all.into_iter().take_while(|_| !self.is_over()).for_each(&mut each);
        }
        todo[first..].reverse();
    }

    /// Makes a folder, or hands on anything else.
    fn visit(
        &self,
        child: Child,
        dir: &Arc<Open<S>>,
        todo: &mut Vec<Todo<S>>,
        jobs: Option<&Sender<Job<S>>>,
    ) {
        let Child { name, node, kind } = child;
        // Only the name of a root may be empty: its contents are copied.
        if !name.is_empty() && !zpl::is_one_name(&name) {
            return self.fail(&node.shown(), &CopyError::source("its name is no name of a file"));
        }
        let facts = match kind {
            Some(kind) if kind != FileKind::Directory => None,
            _ => match node.facts() {
                Ok(facts) => Some(facts),
                Err(error) => return self.fail(&node.shown(), &error),
            },
        };
        match facts {
            Some(facts) if facts.kind == FileKind::Directory => {
                match self.make_dir(&node, &facts, dir, &name) {
                    Ok(open) => todo.push((node, Arc::new(open))),
                    Err(error) => self.fail(&node.shown(), &error),
                }
            }
            facts => {
                let kind = kind.or(facts.map(|facts| facts.kind));
                let job = Job { node, dir: dir.clone(), name, kind };
                match jobs {
                    None => self.copy(job),
                    Some(jobs) => {
                        // Workers listen until the walker is done.
                        let _ = jobs.send(job);
                    }
                }
            }
        }
    }

    fn make_dir(
        &self,
        node: &Node,
        facts: &Facts,
        above: &Arc<Open<S>>,
        name: &[u8],
    ) -> Result<Open<S>, CopyError> {
        if let Node::Pool { .. } = node
            && !self.met().insert(facts.key)
        {
            return Err(CopyError::source(walk::TWICE));
        }
        let xattrs = if self.policy.preserve { node.xattrs(None)? } else { Vec::new() };
        let wanted = self.policy.wanted(facts, xattrs);
        let dir = if name.is_empty() {
            above.dir.clone()
        } else {
            let dir = self.sink.make_dir(&above.dir, name, &wanted)?;
            self.clear(&dir)?;
            self.progress.done(&self.progress.directories);
            dir
        };
        // A folder that was there keeps its mode, unless modes are kept.
        let finish = (!name.is_empty() || self.policy.preserve).then(|| (wanted, node.clone()));
        Ok(Open { dir, finish, above: Some(above.clone()) })
    }

    /// Removes the unfinished files of an earlier copy from a folder that is being filled now.
    fn clear(&self, dir: &S::Dir) -> Result<(), CopyError> {
        if self.policy.resume {
            self.progress.cleared.fetch_add(self.sink.clear(dir)?, Ordering::Relaxed);
        }
        Ok(())
    }

    fn let_go(&self, open: Arc<Open<S>>) {
        let mut last = Arc::into_inner(open);
        while let Some(Open { dir, finish, above }) = last {
            if let Some((wanted, node)) = finish
                && let Err(error) = self.sink.finish_dir(&dir, &wanted)
            {
                self.fail(&node.shown(), &error);
            }
            last = above.and_then(Arc::into_inner);
        }
    }

    fn met(&self) -> MutexHeld<'_, HashSet<(u64, u64)>> {
        self.met.lock()
    }

    /// Copies a node that is no folder.
    fn copy(&self, job: Job<S>) {
        let mut again = vec![job];
        while let Some(job) = again.pop() {
            if !self.is_over()
                && let Err(error) = self.copy_one(&job, &mut again)
            {
                self.fail(&job.node.shown(), &error);
            }
            self.let_go(job.dir);
        }
    }

    fn copy_one(&self, job: &Job<S>, again: &mut Vec<Job<S>>) -> Result<(), CopyError> {
        // A regular file is opened first and then looked at, so that both are about the same file.
        let opened = match job.kind {
            Some(FileKind::Regular) => Some(job.node.open()?),
            _ => None,
        };
        let (facts, mut content) = match opened {
            Some((facts, content)) => (facts, Some(content)),
            None => (job.node.facts()?, None),
        };
        if facts.kind == FileKind::Regular && content.is_none() {
            content = Some(job.node.open()?.1);
        }
        if facts.nlink > 1 && self.is_known(&facts, job)? {
            return Ok(());
        }
        let made = self.make(job, &facts, content);
        if facts.nlink > 1 {
            self.other_names(&facts, made.as_ref().ok(), again);
        }
        made.map(drop)
    }

    fn make(
        &self,
        job: &Job<S>,
        facts: &Facts,
        content: Option<super::content::Content>,
    ) -> Result<S::Made, CopyError> {
        let xattrs = if self.policy.preserve { job.node.xattrs(content.as_ref())? } else { Vec::new() };
        let wanted = self.policy.wanted(facts, xattrs);
        let progress = self.progress;
        if self.policy.resume
            && facts.kind == FileKind::Regular
            && let Some(there) = self.sink.look(&job.dir.dir, &job.name, &wanted)?
            && self.policy.is_complete(facts, &there)
        {
            self.sink.kept(&job.dir.dir, &job.name);
            progress.passed(facts.size);
            return Ok(there.made);
        }
        if let Some(mut content) = content {
            let moved = |bytes| {
                if self.is_over() {
                    return Err(CopyError::stopped());
                }
                progress.moved(bytes);
                Ok(())
            };
            let made = self.sink.make_file(&job.dir.dir, &job.name, &wanted, &mut content, &moved)?;
            progress.done(&progress.files);
            if content.check_unchanged().is_err() {
                progress.failed(&format!(
                    "'{}' changed while it was copied: the copy may hold parts of both",
                    job.node.shown()
                ));
            }
            return Ok(made);
        }
        let target = if facts.kind == FileKind::Symlink { job.node.target()? } else { Vec::new() };
        let made = self.sink.make_other(&job.dir.dir, &job.name, &wanted, &target)?;
        progress.done(if facts.kind == FileKind::Symlink { &progress.symlinks } else { &progress.others });
        Ok(made)
    }

    fn links(&self) -> MutexHeld<'_, HashMap<(u64, u64), Names<S>>> {
        self.links.lock()
    }

    /// Whether the file was visited under another name. Then the copy gets this name, too, now or when it is made.
    fn is_known(&self, facts: &Facts, job: &Job<S>) -> Result<bool, CopyError> {
        let made = {
            let mut links = self.links();
            let Some(names) = links.get_mut(&facts.key) else {
                let names = Names { missing: facts.nlink - 1, state: State::Copying(Vec::new()) };
                links.insert(facts.key, names);
                return Ok(false);
            };
            names.missing = names.missing.saturating_sub(1);
            match &mut names.state {
                State::Copying(waiting) => {
                    let Job { node, dir, name, kind } = job;
                    waiting.push(Job {
                        node: node.clone(),
                        dir: dir.clone(),
                        name: name.clone(),
                        kind: *kind,
                    });
                    return Ok(true);
                }
                State::Made(made) => {
                    let made = made.clone();
                    if names.missing == 0 {
                        links.remove(&facts.key);
                    }
                    made
                }
            }
        };
        self.sink.link(&made, &job.dir.dir, &job.name)?;
        self.progress.done(&self.progress.hard_links);
        Ok(true)
    }

    /// Gives the copy the further names of the file that were found meanwhile. If the copy was not made, one of these
    /// names is copied instead.
    fn other_names(&self, facts: &Facts, made: Option<&S::Made>, again: &mut Vec<Job<S>>) {
        let waiting = {
            let mut links = self.links();
            let Some(names) = links.get_mut(&facts.key) else { return };
            let state = match made {
                Some(made) => State::Made(made.clone()),
                None => State::Copying(Vec::new()),
            };
            let State::Copying(waiting) = std::mem::replace(&mut names.state, state) else { return };
            if names.missing == 0 || made.is_none() {
                links.remove(&facts.key);
            }
            waiting
        };
        let Some(made) = made else { return again.extend(waiting) };
        for job in waiting {
            match self.sink.link(made, &job.dir.dir, &job.name) {
                Ok(()) => self.progress.done(&self.progress.hard_links),
                Err(error) => self.fail(&job.node.shown(), &error),
            }
            self.let_go(job.dir);
        }
    }
}
