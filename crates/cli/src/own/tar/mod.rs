//! `cenote tar`: a tree of a pool as a POSIX tar stream, and back (`extract.rs`).
//!
//! From:   a folder or file of a dataset or snapshot.
//! To:     standard output, in the pax format: modes, owners, times, all kinds of files, hard links, holes, extended attributes, ACLs.

mod acl;
mod archive;
mod extract;
mod header;

use std::collections::HashMap;
use std::io::Write;

use format::ObjectId;
use zpl::{FileKind, Filesystem, Piece};

use self::header::{BLOCK, Member, pad, sparse_map};
use super::Tar;
use super::copy::last_name;
use crate::around::Surroundings;
use crate::files::pools::{Pools, refused};
use crate::files::walk::{Order, Walk};
use crate::messages::Failure;
use crate::open::Intent;
use crate::out::{Console, quoted};

/// Bytes that are read at once from a file with holes.
const PIECE: usize = 1 << 20;
/// The largest device number that a header holds.
const DEVICE_MAX: u64 = 0o777_7777;

/// Carries out `tar`. Returns the exit status when it was stopped.
///
/// # Errors
/// The place cannot be opened; the reader of the stream is gone; the contents of a file cannot be read, which ends the stream.
pub fn run(tar: &Tar, around: &Surroundings, console: &mut Console) -> Result<u8, Failure> {
    if tar.extract {
        return extract::run(tar, around, console);
    }
    if console.is_terminal() {
        return Err(Failure::refused("cenote tar: the stream is not for a terminal: redirect it to a file"));
    }
    let stop = around.stop()?;
    let pools = Pools::open([(&tar.place, Intent::Files)], around)?;
    let fs = pools.filesystem(&tar.place, Intent::Files)?;
    let refuse = |error| refused("read", &tar.place, error);
    let id = fs.resolve(&tar.place.path, false).map_err(refuse)?;
    let is_dir = fs.stat(id).map_err(refuse)?.kind == FileKind::Directory;
    let top = if is_dir { b".".to_vec() } else { last_name(&tar.place.path) };
    // Programs that unpack set the time of a folder when its last member has come.
    let walk = Walk::new(&fs, id, true, Order::Nested).map_err(refuse)?;
    let mut writer = Writer { fs: &fs, met: HashMap::new() };
    for step in walk {
        if stop.asked() {
            return Ok(stop.status());
        }
        let done = match step {
            Ok(step) if step.depth == 0 => writer.member(step.id, top.clone(), console),
            Ok(step) => writer.member(step.id, step.path, console),
            Err((path, error)) => Err(Refusal::Left(path, error.to_string())),
        };
        match done {
            Ok(()) => {}
            Err(Refusal::Left(path, why)) => {
                let shown = quoted(&path);
                console.complain(Failure::refused(format!("cannot read '{shown}': {why}: left out")))?;
            }
            Err(Refusal::Broken(path, why)) => {
                let line = format!("cannot read '{}': {why}", quoted(&path));
                return Err(Failure::refused(line).hint("the stream ends in the middle of this file"));
            }
            Err(Refusal::Output(error)) => return Err(error.into()),
        }
    }
    console.content().write_all(&[0; 2 * BLOCK])?;
    drop(writer);
    drop(fs);
    pools.finish().map(|()| 0)
}

/// The reason why a node is not in the stream.
enum Refusal {
    /// The node is left out, and the stream continues.
    Left(Vec<u8>, String),
    /// Its header is written already, so the stream must end.
    Broken(Vec<u8>, String),
    /// The reader of the stream is gone.
    Output(std::io::Error),
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Refusal {
        Refusal::Output(error)
    }
}

struct Writer<'a> {
    fs: &'a Filesystem,
    /// Files with further names to come: the first path, and how many names were not met yet.
    met: HashMap<ObjectId, (Vec<u8>, u64)>,
}

impl Writer<'_> {
    /// Writes the node that has the path `path` in the stream.
    fn member(&mut self, id: ObjectId, path: Vec<u8>, console: &mut Console) -> Result<(), Refusal> {
        let left = |why: String| Refusal::Left(path.clone(), why);
        let mut member = self.described(id, &path).map_err(|error| left(error.to_string()))?;
        if member.kind == FileKind::Socket {
            console.note(&format!("'{}' is a socket: left out", quoted(&path)));
            return Ok(());
        }
        if member.device.0 > DEVICE_MAX || member.device.1 > DEVICE_MAX {
            return Err(left("its device number is too large for tar".to_owned()));
        }
        if member.linked.is_some() || member.kind != FileKind::Regular {
            return Ok(member.write(console.content())?);
        }
        let runs = self.fs.data_runs(id).map_err(|error| left(error.to_string()))?;
        let (size, data) = (member.stored, runs.iter().map(|(_, len)| len).sum::<u64>());
        let out = console.content();
        if data >= size {
            member.write(out)?;
            self.whole(id, (&path, size), out)?;
        } else {
            let map = sparse_map(&runs, size);
            member.stored = map.len() as u64 + data;
            member.sparse = Some(size);
            member.write(out)?;
            out.write_all(&map)?;
            self.pieces(id, (&path, &runs), out)?;
        }
        Ok(pad(out, data.min(size))?)
    }

    /// Makes the header of a node.
    fn described(&mut self, id: ObjectId, path: &[u8]) -> Result<Member, zpl::Error> {
        let stat = self.fs.stat(id)?;
        let linked =
            (stat.kind != FileKind::Directory && stat.nlink > 1).then(|| self.first(id, stat.nlink, path));
        let linked = linked.flatten();
        let first = linked.is_none();
        let mut xattrs = Vec::new();
        for name in if first { self.fs.xattr_list(id)? } else { Vec::new() } {
            if let Some(value) = self.fs.xattr_get(id, &name)? {
                xattrs.push((name, value));
            }
        }
        xattrs.sort();
        let is_link = stat.kind == FileKind::Symlink && first;
        let device = if stat.kind.is_device() { format::znode::rdev::from_user(stat.rdev) } else { (0, 0) };
        Ok(Member {
            path: path.to_vec(),
            kind: stat.kind,
            target: if is_link { self.fs.readlink(id)? } else { Vec::new() },
            mode: stat.mode,
            uid: stat.uid,
            gid: stat.gid,
            mtime: stat.mtime,
            atime: stat.atime,
            device: (u64::from(device.0), u64::from(device.1)),
            stored: if stat.kind == FileKind::Regular && first { stat.size } else { 0 },
            sparse: None,
            xattrs,
            acls: Vec::new(),
            linked,
        })
    }

    /// The path under which a file with several names was met first; `None`: this is the first one.
    fn first(&mut self, id: ObjectId, nlink: u64, path: &[u8]) -> Option<Vec<u8>> {
        let Some((first, missing)) = self.met.get_mut(&id) else {
            self.met.insert(id, (path.to_vec(), nlink - 1));
            return None;
        };
        *missing = missing.saturating_sub(1);
        if *missing > 0 {
            return Some(first.clone());
        }
        self.met.remove(&id).map(|(first, _)| first)
    }

    /// The contents of a file without holes.
    fn whole(&self, id: ObjectId, (path, size): (&[u8], u64), out: &mut impl Write) -> Result<(), Refusal> {
        let broken = |why: String| Refusal::Broken(path.to_vec(), why);
        let records = self.fs.read_records(id).map_err(|error| broken(error.to_string()))?;
        let mut written = 0;
        for piece in records {
            let piece = piece.map_err(|error| broken(error.to_string()))?;
            let Some(data) = piece.data() else {
                let Piece::Hole { offset, .. } = piece else { continue };
                return Err(broken(format!(
                    "the file changed while it was read (a new hole at byte {offset})"
                )));
            };
            written += data.len() as u64;
            if written > size {
                break;
            }
            out.write_all(data)?;
        }
        if written == size { Ok(()) } else { Err(broken("the file changed while it was read".to_owned())) }
    }

    /// The contents of a file with holes: only its data.
    fn pieces(
        &self,
        id: ObjectId,
        (path, runs): (&[u8], &[(u64, u64)]),
        out: &mut impl Write,
    ) -> Result<(), Refusal> {
        let broken = |why: String| Refusal::Broken(path.to_vec(), why);
        let mut buffer = vec![0; PIECE];
        for &(start, len) in runs {
            let (mut offset, end) = (start, start + len);
            while offset < end {
                let wanted = (end - offset).min(PIECE as u64) as usize;
                let read =
                    self.fs.read(id, offset, &mut buffer[..wanted]).map_err(|e| broken(e.to_string()))?;
                if read == 0 {
                    return Err(broken("the file changed while it was read".to_owned()));
                }
                out.write_all(&buffer[..read])?;
                offset += read as u64;
            }
        }
        Ok(())
    }
}
