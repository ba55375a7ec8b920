//! `.zfs` and the folders in it, as entries and listings of the protocol.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use fuser::{FileAttr, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};
use zpl::ObjectId;
use zpl::session::{Folder, Meaning};

use super::opened::Snapshots;
use crate::attributes::{LONG, SHORT, attr, file_type};
use crate::errno::{self, Answer};
use crate::listing::{add_name, each};
use crate::replies::Entry;

impl Snapshots {
    /// The inode number in the mount of a node that is not stored in the file system.
    pub(crate) fn called(&self, id: ObjectId) -> INodeNo {
        INodeNo(self.head.kernel.numbers.of(id))
    }

    /// The inode number of a folder of `.zfs`.
    pub(crate) fn number(&self, folder: Folder) -> INodeNo {
        self.called(ObjectId(folder.number()))
    }

    /// A folder, and how long the kernel may cache its name.
    fn folder(&self, folder: Folder, entry_ttl: Duration) -> Answer<Entry> {
        let attr = self.folder_attr(folder)?;
        Ok(Entry { attr, generation: Generation(0), attr_ttl: folder_ttl(folder), entry_ttl })
    }

    /// `.zfs`, hidden from listings.
    pub(crate) fn control(&self) -> Answer<Entry> {
        self.head.session.check_control().map_err(errno::from)?;
        self.folder(Folder::Control, SHORT)
    }

    /// Looks up `name` in a folder. The kernel knows the node after that.
    pub(crate) fn find_in(&self, within: Folder, name: &[u8]) -> Answer<Entry> {
        match self.head.session.find_in_control(within, name).map_err(errno::from)? {
            Meaning::Folder(folder) => {
                // These two never change. `.zfs` itself depends on a property.
                let stays = within == Folder::Control && matches!(folder, Folder::Shares | Folder::Snapshots);
                self.folder(folder, if stays { LONG } else { folder_ttl(folder).min(SHORT) })
            }
            Meaning::Snapshot => self.find(name),
            Meaning::Volume => self.volumes.find(name),
        }
    }

    /// The attributes that `stat` shows of a folder of `.zfs`.
    pub(crate) fn folder_attr(&self, folder: Folder) -> Answer<FileAttr> {
        let stat = self.head.session.folder_stat(folder).map_err(errno::from)?;
        Ok(attr(&stat, self.number(folder)))
    }

    pub(crate) fn list(&self, within: Folder, cookie: u64, reply: &mut ReplyDirectory) -> Answer<()> {
        let next = |cookie| self.head.session.list_control(within, cookie).map_err(errno::from);
        each(cookie, next, |entry| {
            let name = OsStr::from_bytes(&entry.name);
            reply.add(self.called(entry.id), entry.cookie, file_type(entry.kind), name)
        })
    }

    /// As [`Snapshots::list`]; names alone: a listing opens no snapshot.
    pub(crate) fn list_names(
        &self,
        within: Folder,
        cookie: u64,
        reply: &mut ReplyDirectoryPlus,
    ) -> Answer<()> {
        let next = |cookie| self.head.session.list_control(within, cookie).map_err(errno::from);
        each(cookie, next, |entry| add_name(entry, self.called(entry.id), reply))
    }
}

/// How long the kernel may cache the attributes of a folder.
pub(crate) fn folder_ttl(folder: Folder) -> Duration {
    match folder {
        Folder::Control | Folder::Shares => LONG,
        Folder::Snapshots => SHORT,
        // It has another time whenever the kernel asks.
        Folder::Volumes => Duration::ZERO,
    }
}
