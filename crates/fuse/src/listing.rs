//! Listing directories. Cookies are positions in the ZAP, so they stay valid when entries are added or removed.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use fuser::{Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use zpl::session::{Caller, Target, is_made_up, link_for};
use zpl::{DirEntry, FileKind, ObjectId};

use crate::attributes::{file_type, nothing};
use crate::errno::{self, Answer};
use crate::shared::Shared;

/// Passes entries from `cookie` on to `add`, until `add` says that the reply is full. `next` returns some entries, none at
/// the end.
pub(crate) fn each(
    mut cookie: u64,
    next: impl Fn(u64) -> Answer<Vec<DirEntry>>,
    mut add: impl FnMut(&DirEntry) -> bool,
) -> Answer<()> {
    loop {
        let entries = next(cookie)?;
        let Some(last) = entries.last() else { return Ok(()) };
        cookie = last.cookie;
        if entries.iter().any(&mut add) {
            return Ok(());
        }
    }
}

/// Adds a name without attributes. Returns whether the reply is full.
pub(crate) fn add_name(entry: &DirEntry, ino: INodeNo, reply: &mut ReplyDirectoryPlus) -> bool {
    let mut attr = nothing();
    attr.kind = file_type(entry.kind);
    reply.add(ino, entry.cookie, OsStr::from_bytes(&entry.name), &Duration::ZERO, &attr, Generation(0))
}

impl Shared {
    fn each_entry(
        &self,
        by: &Caller,
        dir: ObjectId,
        cookie: u64,
        add: impl FnMut(&DirEntry) -> bool,
    ) -> Answer<()> {
        each(cookie, |cookie| self.session.list(by, dir, cookie).map_err(errno::from), add)
    }

    /// The link or root that is shown in place of an entry, if there is one.
    fn shown(&self, entry: &DirEntry) -> Option<(INodeNo, FileKind)> {
        match self.session.shown(entry) {
            Target::Object(_) => None,
            Target::Link(dir) => Some((self.kernel.ino(link_for(dir)?), FileKind::Symlink)),
            Target::Tree(dir) => Some((self.trees.root(dir)?, FileKind::Directory)),
        }
    }

    pub(crate) fn list(
        &self,
        by: &Caller,
        dir: ObjectId,
        cookie: u64,
        reply: &mut ReplyDirectory,
    ) -> Answer<()> {
        self.each_entry(by, dir, cookie, |entry| {
            let name = OsStr::from_bytes(&entry.name);
            let (ino, kind) = self.shown(entry).unwrap_or((self.kernel.ino(entry.id), entry.kind));
            reply.add(ino, entry.cookie, file_type(kind), name)
        })
    }

    /// As [`Shared::list`], with the attributes of each node, which is known to the kernel then.
    pub(crate) fn list_known(
        &self,
        by: &Caller,
        dir: ObjectId,
        cookie: u64,
        reply: &mut ReplyDirectoryPlus,
    ) -> Answer<()> {
        self.each_entry(by, dir, cookie, |entry| {
            if let Some((ino, kind)) = self.shown(entry) {
                return add_name(&DirEntry { kind, ..entry.clone() }, ino, reply);
            }
            let ino = self.kernel.ino(entry.id);
            // The kernel knows `.` and `..` already, and it does not look up made-up entries.
            let is_listed_only = matches!(entry.name.as_slice(), b"." | b"..") || is_made_up(entry.id);
            let known = if is_listed_only { None } else { self.entry_in(dir, &entry.name, entry.id).ok() };
            match known {
                Some(known) => {
                    let full = reply.add(
                        ino,
                        entry.cookie,
                        OsStr::from_bytes(&entry.name),
                        &known.entry_ttl.min(known.attr_ttl),
                        &known.attr,
                        known.generation,
                    );
                    if full {
                        self.session.release(entry.id, 1);
                    }
                    full
                }
                // A node that cannot be read must not hide the others.
                None => add_name(entry, ino, reply),
            }
        })
    }
}
