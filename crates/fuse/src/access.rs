//! Opening files, and when that is an access.
//!
//! The server does not see a read that the kernel answers from its page cache, or one through a mapping. So that such
//! reads change the access time, opening a file for reading counts as an access. A program that opens a file and reads
//! nothing (`lsattr`) is counted, too. A program that keeps a file open and reads it again later from the cache is not
//! counted again. A repeated listing of a directory, or use of a symbolic link, that the kernel answers from its cache is
//! not counted either; a listing after a change always comes here.
//!
//! A kernel asks for each file that is opened, or for none in a mount. Asking costs a message for each open and one for
//! each close, so the kernel asks only where access times are kept when the file system is mounted. In other mounts,
//! what may not be written (in a snapshot, or with the flags of a file) is refused by the first write, see
//! `Router::getxattr`.

use fuser::{INodeNo, OpenAccMode, OpenFlags};
use rustix::fs::OFlags;
use zpl::ObjectId;
use zpl::session::{Caller, Opening};

use crate::errno::{self, Answer};
use crate::shared::Shared;

fn has(flags: OpenFlags, flag: OFlags) -> bool {
    flags.0 & flag.bits() as i32 != 0
}

/// Whether the program asked that its reads leave no access time.
pub(crate) fn keeps_quiet(flags: OpenFlags) -> bool {
    has(flags, OFlags::NOATIME)
}

impl Shared {
    /// The kernel is about to open a file.
    ///
    /// # Errors
    /// `EROFS` and `EPERM` for a file that may not be written.
    pub(crate) fn open_file(&self, id: ObjectId, by: &Caller, flags: OpenFlags) -> Answer<()> {
        let mode = flags.acc_mode();
        let how = Opening {
            reads: mode != OpenAccMode::O_WRONLY,
            writes: mode != OpenAccMode::O_RDONLY,
            appends: has(flags, OFlags::APPEND),
            is_quiet: keeps_quiet(flags),
        };
        // Without this notice the kernel would answer the next question for the attributes from its cache.
        if self.session.open(by, id, how).map_err(errno::from)? {
            self.kernel.forget_attributes(id);
        }
        Ok(())
    }

    /// Whether no part of a file may be written.
    pub(crate) fn refuses_writes(&self, ino: INodeNo) -> bool {
        self.answer(|| Ok(self.session.refuses_writes(self.id(ino)))).unwrap_or(false)
    }
}
