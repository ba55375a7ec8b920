//! `cenote tar -x`: a tar stream becomes files of a pool.
//!
//! No member leads out of the target: names are looked up one by one, symbolic links on the way are not followed, and `..` is
//! refused. A regular file gets its name when it is complete. So an interrupted run leaves whole files only.

use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Read};
use std::os::fd::AsFd;
use std::sync::Arc;

use serde_json::json;
use zpl::{Error, FileKind, Filesystem, NewNode, ObjectId, SetAttr, XattrMode};

use super::acl;
use super::archive::{Archive, Broken};
use super::header::Member;
use crate::around::Surroundings;
use crate::compat::client_input::ClientInput;
use crate::files::pools::{Kernel, Pools, refused};
use crate::messages::Failure;
use crate::open::Intent;
use crate::out::{Console, quoted};
use crate::own::Tar;
use crate::stop::Stop;

/// Bytes that are written at once.
const PIECE: usize = 1 << 20;
const BUFFER: usize = 256 << 10;
/// Permission bits of folders that no member describes.
const FOLDER_MODE: u32 = 0o755;
/// Maximal number of names in the path of a member.
const DEPTH_MAX: usize = 4096;

/// Carries out `tar -x`. Returns the exit status.
///
/// # Errors
/// The place cannot be opened; the stream is damaged or cut off.
pub fn run(tar: &Tar, around: &Surroundings, console: &mut Console) -> Result<u8, Failure> {
    let input = match around.input() {
        Some(client) => client,
        None => Arc::new(File::from(io::stdin().as_fd().try_clone_to_owned()?)),
    };
    if input.is_terminal() {
        return Err(Failure::refused(
            "cenote tar: the stream is not read from a terminal: redirect standard input",
        ));
    }
    let stop = around.stop()?;
    let pools = Pools::open([(&tar.place, Intent::Write)], around)?;
    let fs = pools.filesystem(&tar.place, Intent::Write)?;
    let refuse = |error| refused("write", &tar.place, error);
    let top = fs.resolve(&tar.place.path, true).map_err(refuse)?;
    if fs.stat(top).map_err(refuse)?.kind != FileKind::Directory {
        return Err(refuse(Error::NotDir));
    }
    let stops = {
        let stop = stop.clone();
        move || stop.asked()
    };
    let stream = BufReader::with_capacity(BUFFER, ClientInput { input, stops });
    let mut target = Target {
        fs: &fs,
        top,
        kernel: pools.kernel(&tar.place),
        stop: &stop,
        folders: Vec::new(),
        lacking: Vec::new(),
        buffer: vec![0; PIECE],
        unpacked: Unpacked::default(),
    };
    let done = target.unpack(&mut Archive::new(stream), console);
    let settled = target.settle_folders();
    let unpacked = std::mem::take(&mut target.unpacked);
    drop(target);
    drop(fs);
    let finished = pools.finish();
    if stop.asked() {
        finished?;
        console.remark("stopped: everything that was unpacked until then is complete");
        unpacked.tell(tar, true, console)?;
        return Ok(stop.status());
    }
    done?;
    settled.map_err(refuse)?;
    finished?;
    unpacked.tell(tar, false, console).map(|()| 0)
}

/// Counts of the unpacked members, for `--json`.
#[derive(Default)]
struct Unpacked {
    files: u64,
    directories: u64,
    symlinks: u64,
    others: u64,
    hard_links: u64,
    bytes: u64,
    errors: u64,
}

impl Unpacked {
    fn add(&mut self, member: &Member) {
        *match member.kind {
            _ if member.linked.is_some() => &mut self.hard_links,
            FileKind::Regular => &mut self.files,
            FileKind::Directory => &mut self.directories,
            FileKind::Symlink => &mut self.symlinks,
            _ => &mut self.others,
        } += 1;
        if member.kind == FileKind::Regular && member.linked.is_none() {
            self.bytes += member.sparse.unwrap_or(member.stored);
        }
    }

    /// Prints the summary with `--json`. Its keys are those of the summary of `cp`.
    fn tell(&self, tar: &Tar, stopped: bool, console: &mut Console) -> Result<(), Failure> {
        let Unpacked { files, directories, symlinks, others, hard_links, bytes, errors } = self;
        if !tar.json {
            return Ok(());
        }
        let summary = json!({
            "schema": 1, "files": files, "directories": directories, "symlinks": symlinks, "others": others,
            "hard_links": hard_links, "bytes": bytes, "errors": errors, "stopped": stopped,
        });
        console.line(&summary.to_string())
    }
}

/// Why a member is not made.
enum Refusal {
    /// It is left out, and the next one is read.
    Left(String),
    /// The stream ends here.
    Ends(Broken),
    /// Nothing more can be written.
    Full(Error),
}

impl From<Broken> for Refusal {
    fn from(broken: Broken) -> Refusal {
        Refusal::Ends(broken)
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        match error {
            Error::NoSpace | Error::Quota | Error::Pool(_) | Error::ReadOnly(_) => Refusal::Full(error),
            error => Refusal::Left(error.to_string()),
        }
    }
}

/// Where members go.
struct Target<'a> {
    fs: &'a Filesystem,
    top: ObjectId,
    kernel: Kernel,
    stop: &'a Stop,
    /// Folders of members, whose modes and times are set when everything is in them.
    folders: Vec<(ObjectId, SetAttr)>,
    /// What the member that is being made had to do without.
    lacking: Vec<String>,
    buffer: Vec<u8>,
    unpacked: Unpacked,
}

/// The folders on the way to a member, and its own name.
type Way<'a> = (Vec<&'a [u8]>, &'a [u8]);

/// The names on the way to a member, and its own; `None` for the target itself.
fn names_of(path: &[u8]) -> Result<Option<Way<'_>>, Refusal> {
    let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
    let mut names: Vec<&[u8]> = parts.take(DEPTH_MAX + 1).collect();
    if names.iter().any(|name| *name == b"..") {
        return Err(Refusal::Left("its name has '..' in it".to_owned()));
    }
    if names.len() > DEPTH_MAX {
        return Err(Refusal::Left("its name has too many folders".to_owned()));
    }
    Ok(names.pop().map(|own| (names, own)))
}

impl Target<'_> {
    fn unpack(&mut self, archive: &mut Archive<impl Read>, console: &mut Console) -> Result<(), Failure> {
        let mut said_absolute = false;
        loop {
            let ended = |broken: Broken| Failure::refused(format!("cenote tar: {broken}"));
            let Some(member) = (if self.stop.asked() { None } else { archive.next().map_err(ended)? }) else {
                return Ok(());
            };
            let shown = quoted(&member.path);
            if member.path.starts_with(b"/") && !std::mem::replace(&mut said_absolute, true) {
                console.note("names that begin with '/' are taken as below the target");
            }
            let made = self.make(&member, archive);
            for why in self.lacking.drain(..) {
                console.complain(Failure::refused(format!(
                    "cannot unpack all of '{shown}': {why}: left without it"
                )))?;
            }
            match made {
                Ok(()) => self.unpacked.add(&member),
                Err(Refusal::Left(why)) => {
                    self.unpacked.errors += 1;
                    console
                        .complain(Failure::refused(format!("cannot unpack '{shown}': {why}: left out")))?;
                }
                Err(Refusal::Ends(_)) if self.stop.asked() => return Ok(()),
                Err(Refusal::Ends(broken)) => {
                    return Err(Failure::refused(format!("cannot unpack '{shown}': {broken}"))
                        .hint("what was unpacked before it is complete"));
                }
                Err(Refusal::Full(error)) => {
                    return Err(Failure::refused(format!("cannot unpack '{shown}': {error}"))
                        .hint("what was unpacked before it is complete"));
                }
            }
        }
    }

    /// The folder `names` below the target, made as far as it is not there.
    fn folder(&self, names: &[&[u8]]) -> Result<ObjectId, Refusal> {
        let mut dir = self.top;
        for name in names {
            dir = match self.fs.lookup(dir, name)? {
                Some((id, FileKind::Directory)) => id,
                Some((_, FileKind::Symlink)) => {
                    return Err(Refusal::Left(format!("'{}' on its way is a symbolic link", quoted(name))));
                }
                Some(_) => return Err(Refusal::Left(format!("'{}' on its way is no folder", quoted(name)))),
                None => {
                    let above = self.fs.stat(dir)?;
                    let new = NewNode {
                        uid: above.uid,
                        gid: above.gid,
                        ..NewNode::new(FileKind::Directory, FOLDER_MODE)
                    };
                    let id = self.fs.create(dir, name, &new)?;
                    self.kernel.entry(dir, name);
                    id
                }
            };
        }
        Ok(dir)
    }

    fn make(&mut self, member: &Member, archive: &mut Archive<impl Read>) -> Result<(), Refusal> {
        let Some((names, name)) = names_of(&member.path)? else {
            // The target itself: its attributes are those of the stream's top.
            return match member.kind {
                FileKind::Directory => self.describe_folder(self.top, member),
                _ => Err(Refusal::Left("it has no name".to_owned())),
            };
        };
        let dir = self.folder(&names)?;
        if member.kind == FileKind::Directory {
            return self.make_folder(dir, name, member);
        }
        if let Some(first) = &member.linked {
            return self.link(dir, name, first);
        }
        let new = new_node(member)?;
        let id = match member.kind {
            FileKind::Regular => return self.make_file((dir, name), &new, member, archive),
            FileKind::Symlink => {
                self.clear(dir, name)?;
                self.fs.symlink(dir, name, &new, &member.target)?
            }
            _ => {
                self.clear(dir, name)?;
                self.fs.create(dir, name, &new)?
            }
        };
        self.complete(id, member)?;
        self.kernel.entry(dir, name);
        Ok(())
    }

    /// Removes the node that has the name of a member. A folder stays.
    fn clear(&self, dir: ObjectId, name: &[u8]) -> Result<(), Refusal> {
        match self.fs.lookup(dir, name)? {
            None => Ok(()),
            Some((_, FileKind::Directory)) => Err(Refusal::Left("a folder has that name".to_owned())),
            Some(_) => Ok(self.fs.unlink(dir, name)?),
        }
    }

    fn make_folder(&mut self, dir: ObjectId, name: &[u8], member: &Member) -> Result<(), Refusal> {
        let id = match self.fs.lookup(dir, name)? {
            Some((id, FileKind::Directory)) => id,
            Some(_) => return Err(Refusal::Left("something that is no folder has that name".to_owned())),
            None => {
                let id = self.fs.create(dir, name, &new_node(member)?)?;
                self.kernel.entry(dir, name);
                id
            }
        };
        self.describe_folder(id, member)
    }

    /// Records the attributes that a folder gets when everything is in it.
    fn describe_folder(&mut self, id: ObjectId, member: &Member) -> Result<(), Refusal> {
        self.set_xattrs(id, member)?;
        let set = SetAttr {
            mode: Some(member.mode),
            uid: Some(member.uid),
            gid: Some(member.gid),
            atime: Some(member.atime),
            mtime: Some(member.mtime),
            ..SetAttr::default()
        };
        self.folders.push((id, set));
        Ok(())
    }

    fn settle_folders(&mut self) -> Result<(), Error> {
        for (id, set) in self.folders.drain(..) {
            match self.fs.setattr(id, &set) {
                // A later member took it away.
                Ok(()) | Err(Error::NotFound) => {}
                Err(error) => return Err(error),
            }
            self.kernel.node(id);
        }
        Ok(())
    }

    fn set_xattrs(&mut self, id: ObjectId, member: &Member) -> Result<(), Refusal> {
        for (name, value) in &member.xattrs {
            self.fs.xattr_set(id, name, value, XattrMode::Either)?;
        }
        for (name, text) in member.acls.iter().filter(|(_, text)| !text.is_empty()) {
            match acl::value_of(text) {
                Ok(value) => self.fs.xattr_set(id, name, &value, XattrMode::Either)?,
                Err(why) => self.lacking.push(why),
            }
        }
        Ok(())
    }

    /// What a node needs besides its contents.
    fn complete(&mut self, id: ObjectId, member: &Member) -> Result<(), Refusal> {
        self.set_xattrs(id, member)?;
        let set = SetAttr { atime: Some(member.atime), mtime: Some(member.mtime), ..SetAttr::default() };
        Ok(self.fs.setattr(id, &set)?)
    }

    /// One more name of a member before.
    fn link(&self, dir: ObjectId, name: &[u8], first: &[u8]) -> Result<(), Refusal> {
        let missing = || Refusal::Left(format!("it is a link to '{}', which is not there", quoted(first)));
        let (names, own) = names_of(first)?.ok_or_else(missing)?;
        let mut above = self.top;
        for name in names {
            above = match self.fs.lookup(above, name)? {
                Some((id, FileKind::Directory)) => id,
                _ => return Err(missing()),
            };
        }
        let id = match self.fs.lookup(above, own)?.ok_or_else(missing)? {
            (_, FileKind::Directory) => return Err(Refusal::Left("it is a link to a folder".to_owned())),
            (id, _) => id,
        };
        if self.fs.lookup(dir, name)?.is_some_and(|(there, _)| there == id) {
            return Ok(());
        }
        self.clear(dir, name)?;
        self.fs.link(id, dir, name)?;
        self.kernel.entry(dir, name);
        Ok(())
    }

    /// A regular file: it has no name until it is complete.
    fn make_file(
        &mut self,
        (dir, name): (ObjectId, &[u8]),
        new: &NewNode,
        member: &Member,
        archive: &mut Archive<impl Read>,
    ) -> Result<(), Refusal> {
        let id = self.fs.create_unnamed(dir, new)?;
        let filled = self.fill(id, member, archive).and_then(|()| {
            self.complete(id, member)?;
            self.clear(dir, name)?;
            Ok(self.fs.link(id, dir, name)?)
        });
        // One that got no name goes now.
        let closed = self.fs.close_handle(id);
        filled?;
        closed?;
        self.kernel.entry(dir, name);
        Ok(())
    }

    fn fill(
        &mut self,
        id: ObjectId,
        member: &Member,
        archive: &mut Archive<impl Read>,
    ) -> Result<(), Refusal> {
        let size = member.sparse.unwrap_or(member.stored);
        let pieces = match member.sparse {
            Some(size) => archive.map(size)?,
            None => vec![(0, member.stored)],
        };
        for (start, len) in pieces {
            let (mut offset, end) = (start, start + len);
            while offset < end {
                if self.stop.asked() {
                    return Err(Refusal::Ends(Broken::CutOff));
                }
                let wanted = (end - offset).min(PIECE as u64) as usize;
                let got = archive.read(&mut self.buffer[..wanted])?;
                if got == 0 {
                    return Err(Refusal::Ends(Broken::CutOff));
                }
                self.fs.write(id, offset, &self.buffer[..got])?;
                offset += got as u64;
            }
        }
        if member.sparse.is_some() { Ok(self.fs.truncate(id, size)?) } else { Ok(()) }
    }
}

fn new_node(member: &Member) -> Result<NewNode, Refusal> {
    let part = |number: u64| u32::try_from(number).ok();
    let rdev = match (member.kind.is_device(), part(member.device.0).zip(part(member.device.1))) {
        (false, _) => 0,
        (true, Some((major, minor))) => format::znode::rdev::to_user(major, minor),
        (true, None) => return Err(Refusal::Left("its device number is too large".to_owned())),
    };
    let mode = if member.kind == FileKind::Symlink { 0o777 } else { member.mode };
    Ok(NewNode { uid: member.uid, gid: member.gid, rdev, ..NewNode::new(member.kind, mode) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_below_the_target() {
        let names = |path: &str| match names_of(path.as_bytes()) {
            Ok(found) => Ok(found.map(|(names, own)| (names.len(), own.to_vec()))),
            Err(_) => Err(()),
        };
        assert_eq!(names("./a//b/"), Ok(Some((1, b"b".to_vec()))));
        assert_eq!(names("/etc/passwd"), Ok(Some((1, b"passwd".to_vec()))));
        assert_eq!((names("."), names("./")), (Ok(None), Ok(None)));
        assert_eq!((names("../x"), names("a/../../x"), names("a/..")), (Err(()), Err(()), Err(())));
        assert!(names(&"a/".repeat(5000)).is_err());
    }
}
