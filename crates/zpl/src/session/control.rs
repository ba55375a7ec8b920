//! `.zfs` and the folders in it, which are not stored in the file system.

use super::Session;
use super::numbers::{Folder, file_of, root_of};
use crate::{CONTROL, DirEntry, Error, FileKind, ObjectId, Result, SnapDir, Stat, Time, Volume};

/// The folder of the snapshots.
pub const SNAPSHOT: &[u8] = b"snapshot";
const SHARES: &[u8] = b"shares";
/// The folder of the volumes. Listings of `.zfs` do not show it, because OpenZFS has none.
const VOLUME: &[u8] = b"volume";
/// Cookie after `.` and `..` ...
const AFTER_DOT: u64 = 1;
const AFTER_DOTDOT: u64 = 2;
/// ... and, of the root of the file system, after `.zfs`.
const AFTER_CONTROL: u64 = 3;

/// The meaning of a name in `.zfs`, or of `.zfs` itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A folder that is made up.
    Folder(Folder),
    /// If there is one, the snapshot of that name.
    Snapshot,
    /// If there is one, the volume of that name.
    Volume,
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

    /// The meaning of `name` in a folder of `.zfs`.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn find_in_control(&self, within: Folder, name: &[u8]) -> Result<Meaning> {
        self.check_control()?;
        Ok(match (within, name) {
            (_, b".") => Meaning::Folder(within),
            (Folder::Shares | Folder::Snapshots | Folder::Volumes, b"..") => Meaning::Folder(Folder::Control),
            (Folder::Control, SNAPSHOT) => Meaning::Folder(Folder::Snapshots),
            (Folder::Control, SHARES) => Meaning::Folder(Folder::Shares),
            (Folder::Control, VOLUME) => Meaning::Folder(Folder::Volumes),
            (Folder::Snapshots, _) => Meaning::Snapshot,
            (Folder::Volumes, _) => Meaning::Volume,
            (Folder::Control | Folder::Shares, _) => return Err(Error::NotFound),
        })
    }

    /// Attributes of a folder. Its times are the time of the file system's creation; the times of `snapshot` are those
    /// of the latest change of the snapshots.
    ///
    /// # Errors
    /// The file system cannot be read.
    pub fn folder_stat(&self, folder: Folder) -> Result<Stat> {
        let fs = self.fs()?;
        let born = fs.stat(fs.root())?.crtime;
        let (entries, changed) = match folder {
            Folder::Control => (2, born),
            Folder::Shares => (0, born),
            // The kernel keeps listings until the time of the folder changes. Nothing notes when the volumes did.
            Folder::Volumes => (0, fs.now()),
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
            Folder::Shares | Folder::Snapshots | Folder::Volumes => Folder::Control.number(),
        };
        let mut found = vec![folder(b".", within.number(), AFTER_DOT), folder(b"..", above, AFTER_DOTDOT)];
        if within == Folder::Control {
            found.push(folder(SNAPSHOT, Folder::Snapshots.number(), AFTER_DOTDOT + 1));
            found.push(folder(SHARES, Folder::Shares.number(), AFTER_DOTDOT + 2));
        }
        let after = cookie;
        found.retain(|entry| entry.cookie > after);
        if within == Folder::Snapshots {
            let snapshots = self.fs()?.snapshots_from(cookie)?;
            found.extend(snapshots.into_iter().filter_map(|snapshot| {
                // Names of the list become file names that programs see.
                let fit =
                    !snapshot.name.is_empty() && !snapshot.name.iter().any(|byte| matches!(byte, b'/' | 0));
                Some(folder(&snapshot.name, root_of(snapshot.id).filter(|_| fit)?.0, snapshot.cookie))
            }));
        }
        if within == Folder::Volumes {
            let mut volumes = self.fs()?.volumes()?;
            volumes.sort_by_key(|(_, key)| key.id);
            found.extend(volumes.into_iter().filter_map(|(name, key)| {
                let (id, cookie) = (file_of(key.id)?, AFTER_DOTDOT + key.id.0);
                let name = name.into_bytes();
                (after < cookie).then_some(DirEntry { name, id, kind: FileKind::Regular, cookie })
            }));
        }
        Ok(found)
    }

    /// The attributes that `stat` shows of the file of a volume: it belongs to the user who serves it, and to nobody
    /// else.
    #[must_use]
    pub fn volume_stat(&self, volume: &Volume) -> Stat {
        let id = file_of(volume.dataset().id()).unwrap_or(ObjectId(0));
        let [uid, gid] = [self.owner.0, self.owner.1];
        Stat {
            mode: if volume.is_read_only() { 0o400 } else { 0o600 },
            uid,
            gid,
            size: volume.size(),
            blocks: volume.used_bytes().div_ceil(512),
            block_size: volume.block_size(),
            ..Stat::made_up(id, FileKind::Regular, [Time::default(); 2])
        }
    }

    /// The error for making, moving or removing an entry in a folder of `.zfs`. OpenZFS can take and destroy snapshots
    /// through folders in `.zfs/snapshot`, but only if a module parameter allows it, which is off by default.
    #[must_use]
    pub fn control_refusal(folder: Folder) -> Error {
        if folder == Folder::Snapshots { Error::Denied } else { Error::NotPermitted }
    }
}
