//! Directories, entry by entry. Cookies are places in the ZAP: they stay right while entries come and go.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use fuser::{FileType, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use zpl::{DirEntry, FileKind, ObjectId};

use crate::attributes::file_type;
use crate::bridge::Bridge;
use crate::errno::{self, Answer};
use crate::names::nothing;
use crate::snapdir::{is_made_up, link_for};

/// Hands entries from `cookie` on to `add`, which says when it has enough; `next` gives some of them, none at the end.
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

/// Adds a name alone, of which the kernel has to ask more if it wants to know; gives whether the reply is full.
pub(crate) fn add_name(entry: &DirEntry, ino: INodeNo, reply: &mut ReplyDirectoryPlus) -> bool {
    let mut attr = nothing();
    attr.kind = file_type(entry.kind);
    reply.add(ino, entry.cookie, OsStr::from_bytes(&entry.name), &Duration::ZERO, &attr, Generation(0))
}

impl Bridge {
    fn each_entry(&self, dir: ObjectId, cookie: u64, add: impl FnMut(&DirEntry) -> bool) -> Answer<()> {
        if cookie == 0 {
            self.note_access(dir);
        }
        let next = |cookie| {
            let mut entries = self.fs()?.readdir(dir, cookie).map_err(errno::from)?;
            self.add_control(dir, cookie, &mut entries);
            Ok(entries)
        };
        each(cookie, next, add)
    }

    pub(crate) fn list(&self, dir: ObjectId, cookie: u64, reply: &mut ReplyDirectory) -> Answer<()> {
        self.each_entry(dir, cookie, |entry| {
            let name = OsStr::from_bytes(&entry.name);
            if self.is_link(entry) {
                return reply.add(link_for(entry.id), entry.cookie, FileType::Symlink, name);
            }
            reply.add(self.ino(entry.id), entry.cookie, file_type(entry.kind), name)
        })
    }

    /// As [`Bridge::list`], with the attributes of each node, which is known to the kernel then.
    pub(crate) fn list_known(
        &self,
        dir: ObjectId,
        cookie: u64,
        reply: &mut ReplyDirectoryPlus,
    ) -> Answer<()> {
        self.each_entry(dir, cookie, |entry| {
            if self.is_link(entry) {
                let shown = DirEntry { kind: FileKind::Symlink, ..entry.clone() };
                return add_name(&shown, link_for(entry.id), reply);
            }
            let ino = self.ino(entry.id);
            // Those two the kernel knows already.
            let is_listed_only = matches!(entry.name.as_slice(), b"." | b"..") || is_made_up(ino);
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
                        self.forget_node(entry.id, 1);
                    }
                    full
                }
                // A node that cannot be read must not hide the others.
                None => add_name(entry, ino, reply),
            }
        })
    }
}
