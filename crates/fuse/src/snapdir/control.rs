//! `.zfs` and the folders in it: what is there without being stored.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use fuser::{Errno, FileAttr, FileType, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use zpl::{CONTROL, DirEntry, FileKind, ObjectId, SnapDir};

use super::numbers::{Folder, root_of};
use super::opened::Snapshots;
use crate::attributes::{LONG, SHORT, to_system};
use crate::errno::{self, Answer};
use crate::listing::{add_name, each};
use crate::names::nothing;
use crate::replies::Entry;
use crate::shared::Shared;

pub(crate) const SNAPSHOT: &[u8] = b"snapshot";
const SHARES: &[u8] = b"shares";
/// Where a listing goes on after `.` and `..` ...
const AFTER_DOT: u64 = 1;
const AFTER_DOTDOT: u64 = 2;
/// ... and, of the root of the file system, after `.zfs`.
const AFTER_CONTROL: u64 = 3;

fn folder(name: &[u8], number: INodeNo, cookie: u64) -> DirEntry {
    DirEntry { name: name.to_vec(), id: ObjectId(number.0), kind: FileKind::Directory, cookie }
}

impl Shared {
    /// Adds `.zfs` to entries of `dir` from `cookie` on, where it is to be seen.
    pub(crate) fn add_control(&self, dir: ObjectId, cookie: u64, entries: &mut Vec<DirEntry>) {
        let is_listed = || !self.is_snapshot() && self.fs().is_ok_and(|fs| fs.snapdir() == SnapDir::Visible);
        if dir == self.root() && cookie < AFTER_CONTROL && is_listed() {
            let at = entries.iter().take_while(|entry| entry.cookie < AFTER_CONTROL).count();
            entries.insert(at, folder(CONTROL, Folder::Control.number(), AFTER_CONTROL));
        }
    }
}

impl Snapshots {
    /// # Errors
    /// `ENOENT` when the property `snapdir` says that there is no such thing.
    pub(super) fn check_enabled(&self) -> Answer<()> {
        if self.head.fs()?.snapdir() == SnapDir::Disabled { Err(Errno::ENOENT) } else { Ok(()) }
    }

    /// A folder, and how long its name holds.
    fn folder(&self, folder: Folder, entry_ttl: Duration) -> Answer<Entry> {
        let attr = self.folder_attr(folder)?;
        Ok(Entry { attr, generation: Generation(0), attr_ttl: folder_ttl(folder), entry_ttl })
    }

    /// `.zfs`, for who knows its name.
    pub(crate) fn control(&self) -> Answer<Entry> {
        self.check_enabled()?;
        self.folder(Folder::Control, SHORT)
    }

    /// What `name` means in a folder. The kernel knows it then.
    pub(crate) fn find_in(&self, within: Folder, name: &[u8]) -> Answer<Entry> {
        self.check_enabled()?;
        match (within, name) {
            (_, b".") => self.folder(within, SHORT),
            (Folder::Shares | Folder::Snapshots, b"..") => self.control(),
            (Folder::Control, SNAPSHOT) => self.folder(Folder::Snapshots, LONG),
            (Folder::Control, SHARES) => self.folder(Folder::Shares, LONG),
            (Folder::Snapshots, name) => self.find(name),
            (Folder::Control | Folder::Shares, _) => Err(Errno::ENOENT),
        }
    }

    /// What `stat` shows of a folder. It is as old as the file system; that of the snapshots, as their latest change.
    pub(crate) fn folder_attr(&self, folder: Folder) -> Answer<FileAttr> {
        let fs = &self.head.fs()?;
        let born = fs.stat(fs.root()).map_err(errno::from)?.crtime;
        let (entries, changed) = match folder {
            Folder::Control => (2, born),
            Folder::Shares => (0, born),
            Folder::Snapshots => {
                let (count, changed) = fs.snapshots_sum().map_err(errno::from)?;
                (count, changed.unwrap_or(born))
            }
        };
        let (born, changed) = (to_system(born), to_system(changed));
        Ok(FileAttr {
            ino: folder.number(),
            size: entries + 2,
            atime: changed,
            mtime: changed,
            ctime: changed,
            crtime: born,
            kind: FileType::Directory,
            perm: 0o777,
            nlink: u32::try_from(entries + 2).unwrap_or(1),
            blksize: 512,
            ..nothing()
        })
    }

    /// Some entries of a folder from `cookie` on; none at the end.
    fn entries(&self, within: Folder, cookie: u64) -> Answer<Vec<DirEntry>> {
        self.check_enabled()?;
        let above = match within {
            Folder::Control => INodeNo(self.head.root().0),
            Folder::Shares | Folder::Snapshots => Folder::Control.number(),
        };
        let mut found = vec![folder(b".", within.number(), AFTER_DOT), folder(b"..", above, AFTER_DOTDOT)];
        if within == Folder::Control {
            found.push(folder(SNAPSHOT, Folder::Snapshots.number(), AFTER_DOTDOT + 1));
            found.push(folder(SHARES, Folder::Shares.number(), AFTER_DOTDOT + 2));
        }
        found.retain(|entry| entry.cookie > cookie);
        if within == Folder::Snapshots {
            let snapshots = self.head.fs()?.snapshots_from(cookie).map_err(errno::from)?;
            found.extend(snapshots.into_iter().filter_map(|snapshot| {
                // What is in the list is shown to programs as the name of a file.
                let fit =
                    !snapshot.name.is_empty() && !snapshot.name.iter().any(|byte| matches!(byte, b'/' | 0));
                Some(folder(&snapshot.name, root_of(snapshot.id).filter(|_| fit)?, snapshot.cookie))
            }));
        }
        Ok(found)
    }

    pub(crate) fn list(&self, within: Folder, cookie: u64, reply: &mut ReplyDirectory) -> Answer<()> {
        let next = |cookie| self.entries(within, cookie);
        each(cookie, next, |entry| {
            let name = OsStr::from_bytes(&entry.name);
            reply.add(INodeNo(entry.id.0), entry.cookie, FileType::Directory, name)
        })
    }

    /// As [`Snapshots::list`]; names alone: a listing opens no snapshot.
    pub(crate) fn list_names(
        &self,
        within: Folder,
        cookie: u64,
        reply: &mut ReplyDirectoryPlus,
    ) -> Answer<()> {
        let next = |cookie| self.entries(within, cookie);
        each(cookie, next, |entry| add_name(entry, INodeNo(entry.id.0), reply))
    }
}

/// How long the attributes of a folder hold.
pub(crate) fn folder_ttl(folder: Folder) -> Duration {
    if folder == Folder::Snapshots { SHORT } else { LONG }
}
