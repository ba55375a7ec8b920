//! `cenote ls` and `cenote tree`.

use std::io::Write;

use format::ObjectId;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use pool::props::number::nice_bytes;
use zpl::{DirEntry, FileKind, Filesystem, Stat};

use super::manifest;
use super::{Ls, Tree};
use crate::around::Surroundings;
use crate::files::pools::{Pools, refused};
use crate::files::walk::{Entered, Order, Step, Unread, Walk};
use crate::messages::Failure;
use crate::open::Intent;
use crate::out::{Console, counted, quoted};
use crate::place::PoolPath;

/// `-rw-r--r--`.
pub fn mode_text(stat: &Stat) -> String {
    let kind = match stat.kind {
        FileKind::Fifo => 'p',
        FileKind::CharDevice => 'c',
        FileKind::Directory => 'd',
        FileKind::BlockDevice => 'b',
        FileKind::Regular => '-',
        FileKind::Symlink => 'l',
        FileKind::Socket => 's',
    };
    let mut text = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = stat.mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (stat.mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// A time in the zone of this machine.
pub fn time_text(time: zpl::Time, format: &str) -> String {
    match Timestamp::new(time.secs, time.nanos.min(999_999_999) as i32) {
        Ok(stamp) => stamp.to_zoned(TimeZone::system()).strftime(format).to_string(),
        Err(_) => format!("@{}", time.secs),
    }
}

/// Carries out `ls`.
///
/// # Errors
/// A place cannot be opened; the output is closed.
pub fn ls(ls: &Ls, around: &Surroundings, console: &mut Console) -> Result<(), Failure> {
    let pools = Pools::open(ls.places.iter().map(|place| (place, Intent::Files)), around)?;
    for (i, place) in ls.places.iter().enumerate() {
        let fs = pools.filesystem(place, Intent::Files)?;
        let id = match fs.resolve(&place.path, false) {
            Ok(id) => id,
            Err(error) => {
                console.complain(refused("list", place, error))?;
                continue;
            }
        };
        if ls.json {
            let listed = Listed { recursive: ls.recursive, sha256: ls.sha256 };
            json(listed, &Top { place, fs: &fs, id }, console)?;
        } else {
            let several = ls.recursive || ls.places.len() > 1;
            text(ls, &Top { place, fs: &fs, id }, several.then_some(i > 0), console)?;
        }
    }
    pools.finish()
}

/// A place on the command line, and the node that is there.
struct Top<'a> {
    place: &'a PoolPath,
    fs: &'a Filesystem,
    id: ObjectId,
}

/// The form of a list in JSON.
struct Listed {
    /// Whether the contents of folders are listed, too.
    recursive: bool,
    /// Sums of the contents.
    sha256: bool,
}

/// One object per entry. Sums are computed on all cores; lines come out in order all the same.
fn json(Listed { recursive, sha256 }: Listed, top: &Top<'_>, console: &mut Console) -> Result<(), Failure> {
    let Top { place, fs, id } = *top;
    let walk = Walk::new(fs, id, recursive, Order::Forward).map_err(|error| refused("list", place, error))?;
    let describe = |step: Result<Step, (Vec<u8>, Unread)>| {
        let step = step?;
        manifest::line(fs, &step.path, step.id, sha256).map_err(|error| (step.path, Unread::from(error)))
    };
    super::ordered::map(walk, describe, |line| match line {
        Ok(line) => console.line(&line),
        Err((path, error)) => {
            let path = String::from_utf8_lossy(&path).into_owned();
            let slash = if place.path.ends_with(b"/") { "" } else { "/" };
            console.complain(Failure::refused(format!("cannot read '{place}{slash}{path}': {error}")))
        }
    })
}

/// For people. `header`: each folder is announced, after an empty line if there was one before.
fn text(ls: &Ls, top: &Top<'_>, mut header: Option<bool>, console: &mut Console) -> Result<(), Failure> {
    let Top { place, fs, id } = *top;
    let stat = fs.stat(id).map_err(|error| refused("list", place, error))?;
    if stat.kind != FileKind::Directory {
        return entry(ls, fs, &place.to_string().into_bytes(), id, console);
    }
    let mut path = place.to_string().into_bytes();
    let mut entered = Entered::default();
    let mut listing = |path: &[u8], id: ObjectId, console: &mut Console| {
        if let Some(parted) = header {
            if parted {
                console.line("")?;
            }
            console.line(&format!("{}:", quoted(path)))?;
            header = Some(true);
        }
        match entered.enter(id).and_then(|()| Ok(sorted(fs, id)?)) {
            Ok(children) => folder(ls, fs, children, console),
            Err(error) => console.complain(unreadable(path, &error)).map(|()| Vec::new()),
        }
    };
    // For each open folder: bytes of its path, and the folders in it that are still to come.
    let mut levels = vec![(path.len(), listing(&path, id, console)?)];
    while let Some((prefix, folders)) = levels.last_mut() {
        path.truncate(*prefix);
        let Some(child) = folders.pop() else {
            levels.pop();
            continue;
        };
        if !path.ends_with(b"/") {
            path.push(b'/');
        }
        path.extend_from_slice(&child.name);
        let inside = listing(&path, child.id, console)?;
        levels.push((path.len(), inside));
    }
    Ok(())
}

/// Lists the children of a folder. Returns the folders among them whose children are to be listed, the first one last.
fn folder(
    ls: &Ls,
    fs: &Filesystem,
    mut children: Vec<DirEntry>,
    console: &mut Console,
) -> Result<Vec<DirEntry>, Failure> {
    for child in &children {
        if let Err(error) = entry(ls, fs, &child.name, child.id, console) {
            console.complain(error)?;
        }
    }
    children.retain(|child| ls.recursive && child.kind == FileKind::Directory);
    children.reverse();
    Ok(children)
}

fn unreadable(shown: &[u8], error: &dyn std::fmt::Display) -> Failure {
    Failure::refused(format!("cannot read '{}': {error}", quoted(shown)))
}

/// The children of a folder by name.
pub fn sorted(fs: &Filesystem, id: ObjectId) -> zpl::Result<Vec<DirEntry>> {
    let mut children = fs.entries(id)?.collect::<zpl::Result<Vec<_>>>()?;
    children.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(children)
}

/// One line.
fn entry(ls: &Ls, fs: &Filesystem, name: &[u8], id: ObjectId, console: &mut Console) -> Result<(), Failure> {
    let mut line = Vec::new();
    if ls.long {
        let stat = fs.stat(id).map_err(|error| unreadable(name, &error))?;
        let size = match stat.kind.is_device() {
            true => manifest::device(stat.rdev),
            false if ls.human_readable => nice_bytes(stat.size),
            false => stat.size.to_string(),
        };
        let (mode, time) = (mode_text(&stat), time_text(stat.mtime, "%Y-%m-%d %H:%M"));
        line = format!("{mode} {:>3} {:>5} {:>5} {size:>12} {time} ", stat.nlink, stat.uid, stat.gid)
            .into_bytes();
        line.extend(quoted(name).bytes());
        if stat.kind == FileKind::Symlink {
            let target = fs.readlink(id).map_err(|error| unreadable(name, &error))?;
            line.extend(b" -> ");
            line.extend(quoted(&target).bytes());
        }
    } else {
        line.extend(quoted(name).bytes());
    }
    line.push(b'\n');
    Ok(console.out().write_all(&line)?)
}

/// Carries out `tree`.
///
/// # Errors
/// As [`ls`].
pub fn tree(tree: &Tree, around: &Surroundings, console: &mut Console) -> Result<(), Failure> {
    let pools = Pools::open(tree.places.iter().map(|place| (place, Intent::Files)), around)?;
    for place in &tree.places {
        let fs = pools.filesystem(place, Intent::Files)?;
        let id = match fs.resolve(&place.path, false) {
            Ok(id) => id,
            Err(error) => {
                console.complain(refused("list", place, error))?;
                continue;
            }
        };
        if tree.json {
            json(Listed { recursive: true, sha256: false }, &Top { place, fs: &fs, id }, console)?;
            continue;
        }
        console.line(&quoted(place.to_string().as_bytes()))?;
        branches(&Top { place, fs: &fs, id }, console)?;
    }
    pools.finish()
}

fn branches(top: &Top<'_>, console: &mut Console) -> Result<(), Failure> {
    let Top { place, fs, id } = *top;
    let (mut folders, mut files) = (0u64, 0u64);
    let mut entered = Entered::default();
    let mut children = |id| -> Result<_, Unread> {
        entered.enter(id)?;
        Ok(sorted(fs, id)?.into_iter().peekable())
    };
    let root = fs.stat(id).map_err(|error| refused("list", place, error))?;
    let mut open = Vec::new();
    if root.kind == FileKind::Directory {
        open.push(children(id).map_err(|error| refused("list", place, error))?);
    }
    // For each open folder but the last: whether more follows in it.
    let mut more: Vec<bool> = Vec::new();
    while let Some(level) = open.last_mut() {
        let Some(child) = level.next() else {
            open.pop();
            more.pop();
            continue;
        };
        let last = level.peek().is_none();
        let mut line = Vec::new();
        for more in &more {
            line.extend_from_slice(if *more { "│   " } else { "    " }.as_bytes());
        }
        line.extend_from_slice(if last { "└── " } else { "├── " }.as_bytes());
        line.extend(quoted(&child.name).bytes());
        if child.kind == FileKind::Symlink
            && let Ok(target) = fs.readlink(child.id)
        {
            line.extend_from_slice(b" -> ");
            line.extend(quoted(&target).bytes());
        }
        line.push(b'\n');
        console.out().write_all(&line)?;
        if child.kind != FileKind::Directory {
            files += 1;
            continue;
        }
        folders += 1;
        match children(child.id) {
            Ok(inside) => {
                open.push(inside);
                more.push(!last);
            }
            Err(error) => console.complain(unreadable(&child.name, &error))?,
        }
    }
    console.line(&format!("\n{}, {}", counted(folders, "folder"), counted(files, "file")))
}
