//! `.zfs` and the folders in it, which are not stored in the file system.

use super::Session;
use super::numbers::{Folder, root_of};
use crate::{CONTROL, DirEntry, Error, FileKind, ObjectId, Result, SnapDir, Stat};

/// The folder of the snapshots.
pub const SNAPSHOT: &[u8] = b"snapshot";
const SHARES: &[u8] = b"shares";
/// Cookie after `.` and `..` ...
const AFTER_DOT: u64 = 1;
const AFTER_DOTDOT: u64 = 2;
/// ... and, of the root of the file system, after `.zfs`.
const AFTER_CONTROL: u64 = 3;

/// What a name in `.zfs`, or `.zfs` itself, means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A folder that is made up.
    Folder(Folder),
    /// If there is one, the snapshot of that name.
    Snapshot,
}

fn folder(name: &[u8], number: u64, cookie: u64) -> DirEntry {
    DirEntry { name: name.to_vec(), id: ObjectId(number), kind: FileKind::Directory, cookie }
}

impl Session {
    /// Adds `.zfs` to entries of `dir` from `cookie` on, if `snapdir` makes it visible.
    pub(super) fn add_control(&self, dir: ObjectId, cookie: u64, entries: &mut Vec<DirEntry>) {
        let is_listed = || !self.is_snapshot() && self.fs().is_ok_and(|fs| fs.snapdir() == SnapDir::Visible);
        if dir == self.root && cookie < AFTER_CONTROL && is_listed() {
            let at = entries.iter().take_while(|entry| entry.cookie < AFTER_CONTROL).count();
            entries.insert(at, folder(CONTROL, Folder::Control.number(), AFTER_CONTROL));
        }
    }

    /// Refuses access to `.zfs` if the file system does not have it.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the property `snapdir` says so.
    pub fn check_control(&self) -> Result<()> {
        if self.fs()?.snapdir() == SnapDir::Disabled { Err(Error::NotFound) } else { Ok(()) }
    }

    /// What `name` means in a folder of `.zfs`.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn find_in_control(&self, within: Folder, name: &[u8]) -> Result<Meaning> {
        self.check_control()?;
        Ok(match (within, name) {
            (_, b".") => Meaning::Folder(within),
            (Folder::Shares | Folder::Snapshots, b"..") => Meaning::Folder(Folder::Control),
            (Folder::Control, SNAPSHOT) => Meaning::Folder(Folder::Snapshots),
            (Folder::Control, SHARES) => Meaning::Folder(Folder::Shares),
            (Folder::Snapshots, _) => Meaning::Snapshot,
            (Folder::Control | Folder::Shares, _) => return Err(Error::NotFound),
        })
    }

    /// Attributes of a folder. Its times are those of the file system's creation, for `snapshot` those of the latest change
    /// of the snapshots.
    ///
    /// # Errors
    /// The file system cannot be read.
    pub fn folder_stat(&self, folder: Folder) -> Result<Stat> {
        let fs = self.fs()?;
        let born = fs.stat(fs.root())?.crtime;
        let (entries, changed) = match folder {
            Folder::Control => (2, born),
            Folder::Shares => (0, born),
            Folder::Snapshots => {
                let (count, changed) = fs.snapshots_sum()?;
                (count, changed.unwrap_or(born))
            }
        };
        let made_up = Stat::made_up(ObjectId(folder.number()), FileKind::Directory, [changed, born]);
        let nlink = if u32::try_from(entries + 2).is_ok() { entries + 2 } else { 1 };
        Ok(Stat { size: entries + 2, nlink, ..made_up })
    }

    /// Some entries of a folder from `cookie` on; none at the end. The id of each is its number before
    /// [`super::Numbers::of`].
    ///
    /// # Errors
    /// [`Error::NotFound`] as [`Session::check_control`]; the list of snapshots cannot be read.
    pub fn list_control(&self, within: Folder, cookie: u64) -> Result<Vec<DirEntry>> {
        self.check_control()?;
        let above = match within {
            Folder::Control => self.root.0,
            Folder::Shares | Folder::Snapshots => Folder::Control.number(),
        };
        let mut found = vec![folder(b".", within.number(), AFTER_DOT), folder(b"..", above, AFTER_DOTDOT)];
        if within == Folder::Control {
            found.push(folder(SNAPSHOT, Folder::Snapshots.number(), AFTER_DOTDOT + 1));
            found.push(folder(SHARES, Folder::Shares.number(), AFTER_DOTDOT + 2));
        }
        found.retain(|entry| entry.cookie > cookie);
        if within == Folder::Snapshots {
            let snapshots = self.fs()?.snapshots_from(cookie)?;
            found.extend(snapshots.into_iter().filter_map(|snapshot| {
                // Names of the list become file names that programs see.
                let fit =
                    !snapshot.name.is_empty() && !snapshot.name.iter().any(|byte| matches!(byte, b'/' | 0));
                Some(folder(&snapshot.name, root_of(snapshot.id).filter(|_| fit)?.0, snapshot.cookie))
            }));
        }
        Ok(found)
    }

    /// The error for making, moving or removing an entry in a folder of `.zfs`. OpenZFS can take and destroy snapshots
    /// through folders in `.zfs/snapshot`, but only if a module parameter allows it, which is off by default.
    #[must_use]
    pub fn control_refusal(folder: Folder) -> Error {
        if folder == Folder::Snapshots { Error::Denied } else { Error::NotPermitted }
    }
}
