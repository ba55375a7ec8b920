//! Opening files, and access times.

use super::permission::{self, Access};
use super::{Caller, Session};
use crate::{Error, ObjectId, Result};

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// For reading.
    pub reads: bool,
    /// For writing.
    pub writes: bool,
    /// Every write goes to the end.
    pub appends: bool,
    /// Reads do not change the access time (`O_NOATIME`).
    pub is_quiet: bool,
}

impl Session {
    /// Whether access times are kept at all.
    #[must_use]
    pub fn keeps_atime(&self) -> bool {
        self.live.keeps_atime() && !self.is_snapshot()
    }

    /// Whether the dataset's properties keep access times, so that opening a file must be reported.
    #[must_use]
    pub fn sees_accesses(&self) -> bool {
        let Ok(fs) = self.fs() else { return false };
        let is_kept = fs.dataset().settings().atime || self.live.insists_on_atime();
        is_kept && self.keeps_atime()
    }

    /// Checks and records the opening of a file. Opening for reading counts as an access; returns whether the access time
    /// changed.
    ///
    /// # Errors
    /// [`Error::Denied`]; [`Error::NotPermitted`] for a file whose flags forbid writing, or for `O_NOATIME` by
    /// another user than the owner; [`Error::ReadOnly`].
    pub fn open(&self, by: &Caller, id: ObjectId, how: Opening) -> Result<bool> {
        self.ask(id, |node| {
            let reads = if how.reads { Access::READ } else { Access::of_bits(0) };
            let wanted = if how.writes { reads.and(Access::WRITE) } else { reads };
            permission::check_access(node, by, wanted)?;
            if how.is_quiet { permission::check_owner(node, by) } else { Ok(()) }
        })?;
        if how.writes {
            self.check_writable()?;
            self.fs()?.check_opened_for_writing(id, how.appends)?;
        }
        Ok(how.reads && !how.is_quiet && self.note_access(id))
    }

    /// Records a read. Returns whether the access time changed.
    pub fn note_access(&self, id: ObjectId) -> bool {
        if !self.keeps_atime() {
            return false;
        }
        let Ok(fs) = self.fs() else { return false };
        fs.accessed(id, self.live.insists_on_atime()).unwrap_or_else(|error| {
            tracing::debug!(object = id.0, %error, "an access time is not kept");
            false
        })
    }

    /// Whether no user may write to any part of a file.
    #[must_use]
    pub fn refuses_writes(&self, id: ObjectId) -> bool {
        let refused = self.check_writable().and_then(|()| self.fs()?.check_opened_for_writing(id, true));
        matches!(refused, Err(Error::ReadOnly(_) | Error::NotPermitted))
    }
}
