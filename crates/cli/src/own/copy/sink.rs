//! Where copies go.

use zpl::{FileKind, Time};

use super::content::Content;
use super::error::CopyError;
use super::facts::Facts;
use super::node::Xattr;

/// What a copy is to be like.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits (07777).
    pub mode: u32,
    /// Owner and group; those of the copying user, if not given.
    pub owner: Option<(u32, u32)>,
    /// Last access, last change of contents; now, if not given.
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
}

impl Policy {
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

/// Called with the length of every piece that was written. An error ends the copy of the file, and the part already written
/// is removed.
pub type Moved<'a> = &'a (dyn Fn(u64) -> Result<(), CopyError> + Sync);

/// The side that is written.
pub trait Sink: Sync {
    /// A folder.
    type Dir: Clone + Send + Sync;
    /// A copy that may get more names.
    type Made: Clone + Send;

    /// Makes a folder, or finds the one that is there.
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

    /// Bytes in which files are best handed over, and a short word for remarks at the end, if any.
    fn record(&self) -> u64;

    /// What is to be said at the end.
    fn remark(&self) -> Option<String> {
        None
    }
}
