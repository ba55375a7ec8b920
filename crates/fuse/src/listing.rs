//! Directories, entry by entry. Cookies are places in the ZAP: they stay right while entries come and go.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use fuser::{Generation, ReplyDirectory, ReplyDirectoryPlus};
use zpl::{DirEntry, ObjectId};

use crate::attributes::file_type;
use crate::bridge::Bridge;
use crate::errno::{self, Answer};
use crate::names::nothing;

impl Bridge {
    /// Hands entries from `cookie` on to `add`, which says when it has enough.
    fn each_entry(&self, dir: ObjectId, cookie: u64, mut add: impl FnMut(&DirEntry) -> bool) -> Answer<()> {
        let mut cookie = cookie;
        loop {
            let entries = self.fs.readdir(dir, cookie).map_err(errno::from)?;
            let Some(last) = entries.last() else { return Ok(()) };
            cookie = last.cookie;
            if entries.iter().any(&mut add) {
                return Ok(());
            }
        }
    }

    pub(crate) fn list(&self, dir: ObjectId, cookie: u64, reply: &mut ReplyDirectory) -> Answer<()> {
        self.each_entry(dir, cookie, |entry| {
            let name = OsStr::from_bytes(&entry.name);
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
            let name = OsStr::from_bytes(&entry.name);
            let ino = self.ino(entry.id);
            // Those two the kernel knows already; it takes only their number from here.
            let is_dots = matches!(entry.name.as_slice(), b"." | b"..");
            let known = if is_dots { None } else { self.entry(entry.id).ok() };
            match known {
                Some(known) => {
                    let full = reply.add(
                        ino,
                        entry.cookie,
                        name,
                        &known.entry_ttl.min(known.attr_ttl),
                        &known.attr,
                        known.generation,
                    );
                    if full {
                        self.known.forget(&self.fs, entry.id, 1);
                    }
                    full
                }
                // The name alone: a node that cannot be read must not hide the others.
                None => {
                    let mut attr = nothing();
                    attr.kind = file_type(entry.kind);
                    if is_dots {
                        attr.ino = ino;
                    }
                    reply.add(ino, entry.cookie, name, &Duration::ZERO, &attr, Generation(0))
                }
            }
        })
    }
}
