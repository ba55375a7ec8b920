//! Opening files, and when that is an access.
//!
//! A read that the kernel answers from its page cache never comes here, and neither does one through a mapping. So that
//! such reads leave an access time, opening a file for reading counts as one. A program that opens a file and reads
//! nothing (`lsattr`) is counted, too. A program that keeps a file open and reads it again later from the cache is not
//! counted again. A repeated listing of a directory, or use of a symbolic link, that the kernel answers from its cache is
//! not counted either; a listing after a change always comes here.
//!
//! A kernel asks for each file that is opened, or for none in a mount. Asking costs a message for each open and one for
//! each close, so the kernel asks only where access times are kept when the file system is mounted. In other mounts,
//! what may not be written (in a snapshot, or with the flags of a file) is refused by the first write, see
//! `Router::getxattr`.

use fuser::{Errno, INodeNo, OpenAccMode, OpenFlags};
use rustix::fs::OFlags;
use zpl::{Filesystem, ObjectId};

use crate::bridge::Bridge;
use crate::errno::{self, Answer};
use crate::options::Live;

/// Whether access times are kept, so that it matters which files are opened.
pub(crate) fn matters(fs: &Filesystem, live: &Live) -> bool {
    let is_kept = fs.dataset().settings().atime || live.insists_on_atime();
    is_kept && live.keeps_atime() && !fs.dataset().is_snapshot()
}

fn has(flags: OpenFlags, flag: OFlags) -> bool {
    flags.0 & flag.bits() as i32 != 0
}

/// Whether the program asked that its reads leave no access time.
pub(crate) fn keeps_quiet(flags: OpenFlags) -> bool {
    has(flags, OFlags::NOATIME)
}

impl Bridge {
    /// The kernel is about to open a file.
    ///
    /// # Errors
    /// `EROFS` and `EPERM` for a file that may not be written.
    pub(crate) fn open_file(&self, id: ObjectId, flags: OpenFlags) -> Answer<()> {
        let mode = flags.acc_mode();
        if mode != OpenAccMode::O_RDONLY {
            self.check_writable()?;
            self.fs()?.check_opened_for_writing(id, has(flags, OFlags::APPEND)).map_err(errno::from)?;
        }
        // The kernel has an answer of its own to the next question for the attributes, unless it is told.
        if mode != OpenAccMode::O_WRONLY && !keeps_quiet(flags) && self.note_access(id) {
            self.forget_attributes(id);
        }
        Ok(())
    }

    /// Somebody reads. Gives whether the access time changed.
    pub(crate) fn note_access(&self, id: ObjectId) -> bool {
        if !self.keeps_atime() {
            return false;
        }
        let Ok(fs) = self.fs() else { return false };
        fs.accessed(id, self.live.insists_on_atime()).unwrap_or_else(|error| {
            tracing::debug!(object = id.0, %error, "an access time is not kept");
            false
        })
    }

    /// Whether nothing may be written to a file, wherever in it.
    pub(crate) fn refuses_writes(&self, ino: INodeNo) -> bool {
        let refused = || {
            self.check_writable()?;
            self.fs()?.check_opened_for_writing(self.id(ino), true).map_err(errno::from)
        };
        matches!(self.answer(refused), Err(Errno::EROFS | Errno::EPERM))
    }
}
