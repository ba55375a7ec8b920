//! Names: finding, making, moving and removing them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use fuser::{Errno, FileAttr, Generation, INodeNo, RenameFlags};
use zpl::{FileKind, NAME_MAX, NewNode, ObjectId, Replace, Stat};

use crate::attributes::{LONG, attr, attr_ttl};
use crate::bridge::Bridge;
use crate::errno::{self, Answer};
use crate::replies::Entry;
use crate::xattrs::Caller;

pub(crate) const S_ISGID: u32 = 0o2000;
/// An odd number: its multiples differ in their lower 32 bits, which are all that the kernel compares of a generation.
const TURN: u32 = 0x9e37_79b1;

/// What a new node's message says about it.
pub(crate) struct Creation {
    pub(crate) dir: ObjectId,
    pub(crate) name: OsString,
    pub(crate) kind: FileKind,
    pub(crate) mode: u32,
    pub(crate) umask: u32,
    pub(crate) rdev: u32,
    pub(crate) caller: Caller,
}

impl Bridge {
    /// How long the kernel may go by a name. Where several spellings mean one entry it knows only the one it asked for,
    /// so it has to ask each time.
    pub(crate) fn entry_ttl(&self) -> Duration {
        if self.exact_names { LONG } else { Duration::ZERO }
    }

    /// Counts `id` as known and describes it.
    pub(crate) fn entry(&self, id: ObjectId) -> Answer<Entry> {
        self.remembered(id).map(|(stat, turn)| self.entry_of(&stat, turn))
    }

    /// `turn`: how often its number went to another object while the kernel knew it.
    fn entry_of(&self, stat: &Stat, turn: u32) -> Entry {
        Entry {
            attr: attr(stat, self.ino(stat.id)),
            generation: Generation(
                stat.generation ^ self.numbers.salt() ^ u64::from(turn.wrapping_mul(TURN)),
            ),
            attr_ttl: attr_ttl(stat),
            entry_ttl: self.entry_ttl(),
        }
    }

    /// Counts `id` as known to the kernel, unless it cannot be read.
    fn remembered(&self, id: ObjectId) -> Answer<(Stat, u32)> {
        let fs = self.fs()?;
        let turn = self.known.remember(&fs, id).map_err(errno::from)?;
        match fs.stat(id) {
            Ok(stat) => Ok((stat, turn)),
            Err(error) => {
                self.known.forget(&fs, id, 1);
                Err(errno::of(&error))
            }
        }
    }

    /// As [`Bridge::entry`], of what a name in `dir` leads to.
    ///
    /// A directory lies in one directory only. The pool of somebody who wants to harm may have its name in others, too, even
    /// in itself. The kernel would then move the directory to the place where it was looked up last, or refuse that with
    /// `ELOOP`, so such a name is an error.
    pub(crate) fn entry_in(&self, dir: ObjectId, name: &[u8], id: ObjectId) -> Answer<Entry> {
        let (stat, turn) = self.remembered(id)?;
        if stat.kind != FileKind::Directory || stat.parent == dir && id != self.root() {
            return Ok(self.entry_of(&stat, turn));
        }
        let refusal = match self.fs()?.lookup(dir, name) {
            Ok(Some((again, _))) if again == id => {
                tracing::warn!(%dir, object = %id, "a name leads to a directory that lies in another one");
                Errno::EIO
            }
            // It was moved since it was found.
            Ok(_) => Errno::ENOENT,
            Err(error) => errno::from(error),
        };
        self.known.forget(&self.fs()?, id, 1);
        Err(refusal)
    }

    /// What `name` means; `None` when the kernel may remember that it means nothing.
    pub(crate) fn find(&self, dir: ObjectId, name: &OsStr) -> Answer<Option<Entry>> {
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        // So NFS servers, and open_by_handle_at(2), ask for any node by its number.
        if name == "." {
            return self.entry(dir).map(Some);
        }
        match self.fs()?.lookup(dir, name.as_bytes()).map_err(errno::from)? {
            Some((id, _)) if self.links.has(id) => self.link_entry(id).map(Some),
            Some((id, _)) => self.entry_in(dir, name.as_bytes(), id).map(Some),
            None if self.exact_names => Ok(None),
            None => Err(Errno::ENOENT),
        }
    }

    /// The new node: owned by who asks, in the group that the directory hands down.
    fn new_node(&self, wanted: &Creation) -> Answer<NewNode> {
        let parent = self.fs()?.stat(wanted.dir).map_err(errno::from)?;
        let mut new = NewNode::new(wanted.kind, wanted.mode & 0o7777);
        (new.umask, new.rdev) = (wanted.umask, wanted.rdev.into());
        (new.uid, new.gid) = (wanted.caller.uid, wanted.caller.gid);
        if parent.mode & S_ISGID != 0 {
            new.gid = parent.gid;
            if wanted.kind == FileKind::Directory {
                new.mode |= S_ISGID;
            }
        }
        Ok(new)
    }

    pub(crate) fn make(&self, wanted: &Creation) -> Answer<Entry> {
        self.check_writable()?;
        let new = self.new_node(wanted)?;
        let id = self.fs()?.create(wanted.dir, wanted.name.as_bytes(), &new).map_err(errno::from)?;
        self.entry(id)
    }

    /// A file without a name, whatever `wanted` calls it, that lives until the kernel forgets it.
    pub(crate) fn make_unnamed(&self, wanted: &Creation) -> Answer<Entry> {
        self.check_writable()?;
        let new = self.new_node(wanted)?;
        let id = self.fs()?.create_unnamed(wanted.dir, &new).map_err(errno::from)?;
        let entry = self.entry(id);
        // Being known keeps it from here on; if it did not come to that, it goes.
        self.fs()?.close_handle(id).map_err(errno::from)?;
        entry
    }

    pub(crate) fn make_symlink(&self, wanted: &Creation, target: &OsStr) -> Answer<Entry> {
        self.check_writable()?;
        let new = self.new_node(wanted)?;
        let name = wanted.name.as_bytes();
        let id = self.fs()?.symlink(wanted.dir, name, &new, target.as_bytes()).map_err(errno::from)?;
        self.entry(id)
    }

    pub(crate) fn unlink(&self, dir: ObjectId, name: &OsStr) -> Answer<()> {
        self.check_writable()?;
        self.check_no_link(dir, name)?;
        self.fs()?.unlink(dir, name.as_bytes()).map_err(errno::from)
    }

    pub(crate) fn rmdir(&self, dir: ObjectId, name: &OsStr) -> Answer<()> {
        self.check_writable()?;
        self.check_no_link(dir, name)?;
        self.fs()?.rmdir(dir, name.as_bytes()).map_err(errno::from)
    }

    pub(crate) fn link(&self, id: ObjectId, dir: ObjectId, name: &OsStr) -> Answer<Entry> {
        self.check_writable()?;
        self.fs()?.link(id, dir, name.as_bytes()).map_err(errno::from)?;
        self.entry(id)
    }

    pub(crate) fn rename(
        &self,
        (dir, name): (ObjectId, &OsStr),
        (new_dir, new_name): (ObjectId, &OsStr),
        flags: RenameFlags,
    ) -> Answer<()> {
        self.check_writable()?;
        self.check_no_link(dir, name)?;
        self.check_no_link(new_dir, new_name)?;
        let (name, new_name) = (name.as_bytes(), new_name.as_bytes());
        let replace = if flags == RenameFlags::RENAME_NOREPLACE {
            Replace::Refused
        } else if flags.is_empty() {
            Replace::Allowed
        } else if flags == RenameFlags::RENAME_EXCHANGE {
            return self.fs()?.exchange(dir, name, new_dir, new_name).map_err(errno::from);
        } else {
            return Err(Errno::EINVAL);
        };
        self.fs()?.rename(dir, name, new_dir, new_name, replace).map_err(errno::from)
    }
}

/// The entry that stands for "there is nothing", to be remembered.
pub(crate) fn nothing() -> FileAttr {
    use std::time::UNIX_EPOCH;
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: fuser::FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}
