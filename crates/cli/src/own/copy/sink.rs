//! Where copies go.

use zpl::{FileKind, Time};

use super::content::Content;
use super::error::CopyError;
use super::facts::Facts;
use super::node::Xattr;

/// The attributes that a copy is to have.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The type of the node.
    pub kind: FileKind,
    /// Permission bits (07777).
    pub mode: u32,
    /// Owner and group; those of the copying user if `None`.
    pub owner: Option<(u32, u32)>,
    /// Times of the last access and the last change of the contents; `None`: now.
    pub times: Option<(Time, Time)>,
    /// Device number.
    pub rdev: u64,
    /// Bytes.
    pub size: u64,
    /// Extended attributes.
    pub xattrs: Vec<Xattr>,
    /// Which node of the source it is a copy of.
    pub key: (u64, u64),
}

/// Options of copies.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Modes, owners, times and extended attributes are kept.
    pub preserve: bool,
    /// Permission bits that new files do not get, when modes are not kept.
    pub umask: u32,
    /// No time is later than this one, and times of access are those of the last change.
    pub latest: Option<Time>,
    /// Files whose copy is complete are left out ([`Policy::is_complete`]).
    pub resume: bool,
}

/// A node of the destination that has the name and may be replaced.
#[derive(Clone, Debug)]
pub struct There<M> {
    pub kind: FileKind,
    /// Bytes.
    pub size: u64,
    /// Last change of contents.
    pub mtime: Time,
    /// As if this run had made it.
    pub made: M,
}

impl Policy {
    /// Whether `there` is a complete copy of a file. A copy gets its name when it is complete, so size and time tell: when
    /// times are kept they are equal, else the copy is not older than the file.
    pub fn is_complete<M>(&self, facts: &Facts, there: &There<M>) -> bool {
        let is_file = facts.kind == FileKind::Regular && there.kind == FileKind::Regular;
        let in_time = match self.preserve {
            true => keeps_time(facts.mtime, there.mtime),
            false => there.mtime >= facts.mtime,
        };
        is_file && facts.size == there.size && in_time
    }

    pub fn wanted(&self, facts: &Facts, xattrs: Vec<Xattr>) -> Wanted {
        let times = match self.latest {
            Some(latest) => {
                let mtime = facts.mtime.min(latest);
                (mtime, mtime)
            }
            None => (facts.atime, facts.mtime),
        };
        let mode = match facts.kind {
            // As symlink(2) makes them.
            FileKind::Symlink => 0o777,
            _ if self.preserve => facts.mode,
            _ => facts.mode & 0o777 & !self.umask,
        };
        Wanted {
            kind: facts.kind,
            mode,
            owner: self.preserve.then_some((facts.uid, facts.gid)),
            times: self.preserve.then_some(times),
            rdev: facts.rdev,
            size: facts.size,
            xattrs,
            key: facts.key,
        }
    }
}

/// Whether `kept` is what a file system made of `time`: some keep whole seconds, FAT even ones.
fn keeps_time(time: Time, kept: Time) -> bool {
    let lost = time.secs.wrapping_sub(kept.secs);
    time == kept || kept.nanos == 0 && (lost == 0 || lost == 1 && kept.secs % 2 == 0)
}

/// Called with the length of every piece that was written. An error ends the copy of the file, and the part already written
/// is removed.
pub type Moved<'a> = &'a (dyn Fn(u64) -> Result<(), CopyError> + Sync);

/// The side that is written.
pub trait Sink: Sync {
    /// A folder.
    type Dir: Clone + Send + Sync;
    /// A copy that may get more names.
    type Made: Clone + Send;

    /// Looks up `name` in a folder; `None` if nothing has it.
    ///
    /// # Errors
    /// It cannot be replaced by what is wanted.
    fn look(
        &self,
        dir: &Self::Dir,
        name: &[u8],
        wanted: &Wanted,
    ) -> Result<Option<There<Self::Made>>, CopyError>;

    /// The folder `name` in a folder; `None` if nothing has that name. For a dry run.
    fn enter(&self, dir: &Self::Dir, name: &[u8]) -> Result<Option<Self::Dir>, CopyError>;

    /// Removes files that a killed copy left in the folder under temporary names. Returns their number.
    fn clear(&self, dir: &Self::Dir) -> Result<u64, CopyError>;

    /// The complete copy with that name is left as it is.
    fn kept(&self, _dir: &Self::Dir, _name: &[u8]) {}

    /// Makes a folder, or finds the existing one.
    fn make_dir(&self, dir: &Self::Dir, name: &[u8], wanted: &Wanted) -> Result<Self::Dir, CopyError>;

    /// Gives a folder its final attributes once everything is in it.
    fn finish_dir(&self, dir: &Self::Dir, wanted: &Wanted) -> Result<(), CopyError>;

    /// Makes a regular file; one that is there is replaced when its successor is complete.
    fn make_file(
        &self,
        dir: &Self::Dir,
        name: &[u8],
        wanted: &Wanted,
        content: &mut Content,
        moved: Moved,
    ) -> Result<Self::Made, CopyError>;

    /// Makes anything else: a symbolic link to `target`, a fifo, a device, a socket.
    fn make_other(
        &self,
        dir: &Self::Dir,
        name: &[u8],
        wanted: &Wanted,
        target: &[u8],
    ) -> Result<Self::Made, CopyError>;

    /// Gives a copy one more name.
    fn link(&self, made: &Self::Made, dir: &Self::Dir, name: &[u8]) -> Result<(), CopyError>;

    /// The best size, in bytes, of the pieces in which a file is handed over.
    fn record(&self) -> u64;

    /// A line for the user at the end.
    fn remark(&self) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_kept_as_finely_as_the_file_system_can() {
        let time = |secs, nanos| Time { secs, nanos };
        assert!(keeps_time(time(7, 5), time(7, 5)) && keeps_time(time(7, 5), time(7, 0)));
        assert!(keeps_time(time(7, 5), time(6, 0)), "FAT");
        assert!(!keeps_time(time(8, 5), time(7, 0)) && !keeps_time(time(7, 5), time(7, 4)));
        assert!(!keeps_time(time(9, 0), time(6, 0)) && !keeps_time(time(6, 0), time(7, 0)));
        assert!(!keeps_time(time(i64::MIN, 0), time(i64::MAX, 0)));
    }
}
