//! `cenote cp`: files into a pool, out of it, from pool to pool.
//!
//! From:   places on the command line.
//! To:     copies with all that belongs to files: modes, owners, times, links, holes, devices, extended attributes.

mod ahead;
mod children;
mod content;
mod earlier;
mod engine;
mod error;
mod facts;
mod folder;
mod node;
mod plan;
mod progress;
mod shown;
mod sink;
mod terminal;
mod to_local;
mod to_pool;

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use zpl::{FileKind, Filesystem};

pub use engine::{Engine, Root};
pub use folder::temporary;
pub use node::{Local, Node, last_name};
pub use progress::Progress;
pub use sink::{Policy, Sink};
pub use to_pool::ToPool;

use self::ahead::Ahead;
use self::children::Opened;
use self::folder::Folder;
use self::node::Trail;
use self::plan::{Place as PlanPlace, Plan};
use self::shown::Shown;
use self::to_local::ToLocal;
use super::Cp;
use crate::around::Surroundings;
use crate::files::pools::{Pools, refused};
use crate::messages::{Failure, io_words};
use crate::open::Intent;
use crate::out::Console;
use crate::place::{Place, PoolPath};
use crate::stop::Stop;

/// Maximal number of bytes of records that the copying threads hold in memory.
const IN_HAND: u64 = 64 << 20;

/// Steps of a dry run that wait to be printed.
const STEPS: usize = 1024;

/// Interval at which a copy checks for a stop request, to report it.
const GLANCE: Duration = Duration::from_millis(50);

/// How long a copy out of a pool waits until everything is counted, so that the total can be printed first. After that,
/// counting continues beside the copy.
const COUNTING: Duration = Duration::from_secs(1);

/// A source that was found.
struct Found {
    node: Node,
    /// The name of its copy inside a folder; empty when the contents of a folder are meant.
    name: Vec<u8>,
    is_dir: bool,
}

/// Where a destination is: a folder that exists, and the name in it that is to be made (none: in the folder).
struct Target<D> {
    dir: D,
    name: Option<Vec<u8>>,
}

/// Carries out `cp`. Returns the exit status.
///
/// # Errors
/// Nothing was copied, or the copies could not be written to disk.
pub fn run(cp: &Cp, around: &Surroundings, console: &mut Console) -> Result<u8, Failure> {
    let stop = around.stop()?;
    let in_pools = || cp.sources.iter().chain([&cp.destination]).filter(|p| matches!(p, Place::InPool(_)));
    if in_pools().next().is_none() {
        return Err(Failure::refused(
            "none of these is in a pool: write DATASET:/path, or use cp for local files",
        ));
    }
    let reads = cp.sources.iter().map(|place| (place, Intent::Files));
    let wanted = reads.chain([(&cp.destination, intent(cp))]).filter_map(|(place, intent)| match place {
        Place::InPool(place) => Some((place, intent)),
        Place::Local(_) => None,
    });
    let pools = Pools::open(wanted, around)?;
    let progress = Progress::new(console.is_quiet() || cp.json || cp.dry_run || cp.no_progress, around.err());
    let (going_on, over) = mpsc::channel::<()>();
    let (copied, finished) = std::thread::scope(|scope| {
        scope.spawn(|| tell_of_stop(over, &stop, &progress));
        // A panic drops it, too, and then the thread above ends.
        let _going_on = going_on;
        let policy = Policy { preserve: cp.preserve, umask: around.umask(), latest: None, resume: cp.resume };
        let manner = Manner { outside: None, policy, progress: &progress, stop: &stop };
        let copied = copy(cp, &pools, manner, console);
        // The copied files are kept, even if other files failed.
        let finished = pools.finish();
        progress.settle();
        (copied, finished)
    });
    copied?;
    finished?;
    if cp.json && !cp.dry_run {
        console.line(&progress.summary().to_string())?;
    }
    if progress.cut_short.load(Ordering::Relaxed) {
        console.remark(match cp.dry_run {
            true => "stopped",
            false => "stopped: everything that was copied until then is complete",
        });
        console.explain("the same command with --resume goes on");
        return Ok(stop.status());
    }
    if cp.recursive && !cp.json && !cp.dry_run {
        console.explain(&progress.sentence());
    }
    Ok(u8::from(progress.errors.load(Ordering::Relaxed) > 0))
}

/// Waits until the other end of `over` is dropped or the copy is asked to stop. In the second case it prints what is
/// still done before the end.
fn tell_of_stop(over: mpsc::Receiver<()>, stop: &Stop, progress: &Progress) {
    while over.recv_timeout(GLANCE) == Err(mpsc::RecvTimeoutError::Timeout) {
        if stop.asked() {
            if !stop.hung_up() {
                progress.say("stopping: what is in memory is written first; Ctrl-C again leaves at once");
            }
            return;
        }
    }
}

/// The way in which the copy treats its destination.
fn intent(cp: &Cp) -> Intent {
    if cp.dry_run { Intent::Files } else { Intent::Write }
}

fn copy(cp: &Cp, pools: &Pools, manner: Manner<'_>, console: &mut Console) -> Result<(), Failure> {
    let progress = manner.progress;
    let mut read = Opened::new();
    let mut sources = Vec::new();
    for place in &cp.sources {
        match find(cp, place, pools, (&mut read, progress)) {
            Ok(found) if found.is_dir && !cp.recursive => {
                progress.failed(&format!("'{}' is a folder: copy folders with -r", found.node.shown()));
            }
            Ok(found) => sources.push(found),
            Err(Failure::Refused(lines)) => {
                lines.iter().for_each(|line| progress.failed(line));
                lines.iter().take(1).for_each(|line| console.note_complaint(line));
            }
            Err(other) => return Err(other),
        }
    }
    if sources.is_empty() {
        return Ok(());
    }
    let remark = match &cp.destination {
        Place::Local(path) => {
            let target = local_target(path, &sources, cp.sources.len())?;
            let sink = ToLocal::new(sources.len() > 1);
            let shown = path.display().to_string();
            earlier::not_below_it(&sink, &target, (&sources, &manner.policy), &shown)?;
            if cp.dry_run {
                let top = path.as_os_str().as_bytes().to_vec();
                return rehearse(cp, Rehearsal { sink: &sink, target, top }, sources, manner, console);
            }
            transfer(&sink, target, sources, Manner { outside: Some(path), ..manner })
        }
        Place::InPool(place) => {
            let fs = pools.filesystem(place, intent(cp))?;
            let number = read.get(&place.dataset_name()).map(|(number, _)| *number);
            not_below(place, number, &sources)?;
            let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
            let sink = ToPool::new(fs.clone(), owner, number, pools.kernel(place), sources.len() > 1)
                .sharing(cp.reflink);
            let given = Given { sources: &sources, asked: cp.sources.len() };
            let target = pool_target(&sink, &fs, place, number, &given)?;
            earlier::not_below_it(&sink, &target, (&sources, &manner.policy), &place.to_string())?;
            if cp.dry_run {
                let top = place.to_string().into_bytes();
                return rehearse(cp, Rehearsal { sink: &sink, target, top }, sources, manner, console);
            }
            transfer(&sink, target, sources, manner)
        }
    };
    if let Some(remark) = remark {
        console.note(&remark);
    }
    Ok(())
}

fn find(
    cp: &Cp,
    place: &Place,
    pools: &Pools,
    (read, progress): (&mut Opened, &Progress),
) -> Result<Found, Failure> {
    let recursive = cp.recursive;
    match place {
        Place::Local(path) => {
            let refuse = |error: std::io::Error| {
                Failure::refused(format!("cannot read '{}': {}", path.display(), io_words(&error)))
            };
            let slash = path.as_os_str().as_bytes().ends_with(b"/");
            // As cp does: links are copied as such only when folders are copied with all they hold.
            let local = Local::named(path, !recursive || slash).map_err(refuse)?;
            let node = Node::Local(local);
            let is_dir = node.facts().is_ok_and(|facts| facts.kind == FileKind::Directory);
            Ok(Found { node, name: last_name(path.as_os_str().as_bytes()), is_dir })
        }
        Place::InPool(place) => {
            let (number, fs) = children::opened(place, pools, read)?;
            let refuse = |error| refused("read", place, error);
            let id = fs.resolve(&place.path, !recursive).map_err(refuse)?;
            let is_dir = fs.stat(id).map_err(refuse)?.kind == FileKind::Directory;
            let shown = Trail::new(place.to_string().into_bytes());
            let mut datasets = Arc::<Shown>::default();
            if is_dir && recursive && !cp.one_dataset {
                let mut left = Vec::new();
                datasets = children::below(place, pools, read, &mut left)?;
                left.iter().for_each(|line| progress.failed(line));
            }
            let node = Node::Pool { fs, number, id, shown, datasets };
            Ok(Found { node, name: last_name(&place.path), is_dir })
        }
    }
}

fn not_a_dir(shown: &str) -> Failure {
    Failure::refused(format!("'{shown}' is not a folder"))
}

/// A destination that is not there stands for one copy; `asked` sources were named, some may not be there.
fn one_source(sources: &[Found], asked: usize, shown: &str, slash: bool) -> Result<(), Failure> {
    match sources {
        _ if asked > 1 => {
            Err(Failure::refused(format!("'{shown}' does not exist: several copies need a folder")))
        }
        [source] if source.is_dir || !slash => Ok(()),
        _ => {
            Err(Failure::refused(format!("'{shown}' does not exist, and only a folder could be made there")))
        }
    }
}

fn local_target(path: &Path, sources: &[Found], asked: usize) -> Result<Target<Arc<Folder>>, Failure> {
    let shown = path.display().to_string();
    let slash = path.as_os_str().as_bytes().ends_with(b"/");
    let refuse =
        |error: std::io::Error| Failure::refused(format!("cannot write '{shown}': {}", io_words(&error)));
    match std::fs::metadata(path) {
        Ok(data) if data.is_dir() => {
            return Ok(Target { dir: Folder::named(path, true).map_err(refuse)?, name: None });
        }
        Ok(_) if slash || asked > 1 => return Err(not_a_dir(&shown)),
        // It is not replaced, because it may be /dev/null, or a link such as /dev/stdout.
        Ok(data) if !data.is_file() => {
            let line = format!("cannot write '{shown}': it is no regular file");
            return Err(Failure::refused(line).hint("'cenote cat' writes to standard output"));
        }
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            one_source(sources, asked, &shown, slash)?;
        }
        Err(error) => return Err(refuse(error)),
    }
    let dir = Folder::named(path.parent().unwrap_or(Path::new("")), true).map_err(refuse)?;
    Ok(Target { dir, name: Some(last_name(path.as_os_str().as_bytes())) })
}

/// Refuses to copy into a dataset that is copied with a source.
fn not_below(place: &PoolPath, number: Option<u64>, sources: &[Found]) -> Result<(), Failure> {
    let holds = |source: &&Found| match &source.node {
        Node::Pool { datasets, .. } => number.is_some_and(|number| datasets.has(number)),
        Node::Local(_) => false,
    };
    match sources.iter().find(holds) {
        Some(source) => {
            let line = format!(
                "cannot copy '{}' into itself: '{}' lies below it",
                source.node.shown(),
                place.dataset
            );
            Err(Failure::refused(line).hint("copy a single dataset with -x"))
        }
        None => Ok(()),
    }
}

/// The sources of a copy.
struct Given<'a> {
    /// The sources that were found.
    sources: &'a [Found],
    /// Number of sources on the command line.
    asked: usize,
}

fn pool_target(
    sink: &ToPool,
    fs: &Filesystem,
    place: &PoolPath,
    number: Option<u64>,
    given: &Given<'_>,
) -> Result<Target<to_pool::PoolDir>, Failure> {
    let Given { sources, asked } = *given;
    let refuse = |error: zpl::Error| refused("write", place, error);
    let slash = place.path.ends_with(b"/");
    let (dir, name) = match fs.resolve(&place.path, true) {
        Ok(id) if fs.stat(id).map_err(refuse)?.kind == FileKind::Directory => (id, None),
        Ok(_) if slash || asked > 1 => return Err(not_a_dir(&place.to_string())),
        Err(zpl::Error::NotFound) => {
            one_source(sources, asked, &place.to_string(), slash)?;
            let (dir, name) = fs.resolve_parent(&place.path).map_err(refuse)?;
            (dir, Some(name.to_vec()))
        }
        Ok(_) => {
            let (dir, name) = fs.resolve_parent(&place.path).map_err(refuse)?;
            (dir, Some(name.to_vec()))
        }
        Err(error) => return Err(refuse(error)),
    };
    // A folder cannot be copied into itself: its copy would be part of what is copied.
    let mut above = dir;
    let mut met = HashSet::from([dir]);
    while number.is_some() {
        let inside = sources.iter().find(|source| match &source.node {
            Node::Pool { number: of, id, .. } => Some(*of) == number && *id == above && source.is_dir,
            Node::Local(_) => false,
        });
        if let Some(source) = inside {
            return Err(Failure::refused(format!("cannot copy '{}' into itself", source.node.shown())));
        }
        match fs.lookup(above, b"..").map_err(refuse)? {
            // The root is its own parent. In a damaged pool parents may form a loop.
            Some((parent, _)) if met.insert(parent) => above = parent,
            _ => break,
        }
    }
    Ok(Target { dir: sink.dir(dir), name })
}

/// How files are copied.
struct Manner<'a> {
    /// The path on this machine that the copy goes to, if it does.
    outside: Option<&'a Path>,
    policy: Policy,
    progress: &'a Progress,
    stop: &'a Stop,
}

/// Copies with all cores; `outside` is the path on this machine that is copied to, if there is one. Returns the remarks
/// of the destination.
fn transfer<S: Sink>(
    sink: &S,
    target: Target<S::Dir>,
    sources: Vec<Found>,
    manner: Manner<'_>,
) -> Option<String> {
    let Manner { outside, policy, progress, stop } = manner;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // Twice as many threads as cores: some wait for disks.
    let workers = (2 * cores).clamp(2, (IN_HAND / sink.record()).max(2) as usize);
    let nodes: Vec<Node> = sources.iter().map(|source| source.node.clone()).collect();
    let roots = sources.into_iter().map(|source| {
        let name = target.name.clone().unwrap_or(source.name);
        Root { node: source.node, dir: target.dir.clone(), name }
    });
    let roots = roots.collect();
    let over = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        if progress.is_shown() {
            let (counted, known) = mpsc::channel::<()>();
            let outside = outside.filter(|_| nodes.iter().all(|node| matches!(node, Node::Pool { .. })));
            scope.spawn(move || {
                let _counted = counted;
                let over = || stop.asked() || over.load(Ordering::Relaxed);
                let Some(ahead) = Ahead::count(nodes, over) else { return };
                ahead.tell(progress);
                if let Some(path) = outside {
                    let dir = if path.is_dir() { path } else { parent_of(path) };
                    progress.say(&ahead.line(dir, free_bytes(dir)));
                }
            });
            if outside.is_some() {
                // The wait ends when all is counted, or when counting takes too long.
                let _ = known.recv_timeout(COUNTING);
            }
        }
        Engine::new(sink, policy, progress, stop, workers).run(roots);
        over.store(true, Ordering::Relaxed);
    });
    sink.remark()
}

/// The destination of a dry run.
struct Rehearsal<'a, S: Sink> {
    sink: &'a S,
    target: Target<S::Dir>,
    /// The path of the target as it is shown.
    top: Vec<u8>,
}

/// Says what a copy would do, in the order of names; `top` is the destination as the user wrote it.
fn rehearse<S: Sink>(
    cp: &Cp,
    rehearsal: Rehearsal<'_, S>,
    sources: Vec<Found>,
    manner: Manner<'_>,
    console: &mut Console,
) -> Result<(), Failure> {
    let Rehearsal { sink, target, top } = rehearsal;
    let Manner { policy, progress, stop, .. } = manner;
    let (sender, steps) = mpsc::sync_channel(STEPS);
    let plan = Plan::new(sink, sources.len() > 1, sender);
    let mut above = top;
    if let Some(name) = &target.name {
        let end = above.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        above.truncate(end.saturating_sub(name.len()));
    }
    let dir = PlanPlace { dir: Some(target.dir), path: Trail::new(above) };
    let roots = sources.into_iter().map(|source| {
        let name = target.name.clone().unwrap_or(source.name);
        Root { node: source.node, dir: dir.clone(), name }
    });
    let roots = roots.collect();
    let sums = std::thread::scope(|scope| {
        let walk = scope.spawn(move || {
            Engine::new(&plan, policy, progress, stop, 0).run(roots);
            plan.end()
        });
        for step in steps {
            if cp.json {
                console.line(&step.json().to_string())?;
            } else if !console.is_quiet() {
                console.line(&step.line())?;
            }
        }
        walk.join().map_err(|_| Failure::refused("the walk through the sources ended early"))
    })?;
    if cp.json {
        return console.line(&sums.summary(progress).to_string());
    }
    console.line(&sums.line(progress))
}

/// The folder that a path is in.
fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Bytes that the copying user may still write in `dir`; `None` if the system does not tell.
fn free_bytes(dir: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(dir).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}
