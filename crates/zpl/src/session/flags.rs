//! File flags and project ids: who may change them.

use super::permission;
use super::{Caller, Checks, Notice, Session};
use crate::{ObjectId, Result, SetAttr, pflags};

/// Flags that only root may change.
const FOR_ROOT: u64 = pflags::IMMUTABLE | pflags::APPENDONLY;
/// Flags that forbid writing.
const FORBID_WRITES: u64 = pflags::IMMUTABLE | pflags::APPENDONLY | pflags::READONLY;

/// A change of flags and of the project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlagChange {
    /// The flags that the change can set or clear.
    pub known: u64,
    /// The flags of `known` to set. The others of `known` are cleared.
    pub flags: u64,
    /// The new project.
    pub projid: Option<u64>,
    /// The kernel checks who asks for such a change, where it checks permissions.
    pub kernel_checks: bool,
}

impl FlagChange {
    /// Whether it forbids writes that were allowed before.
    #[must_use]
    pub fn forbids_writes(&self) -> bool {
        self.flags & FORBID_WRITES != 0
    }
}

impl Session {
    /// Changes flags and project of an object.
    ///
    /// # Errors
    /// [`Error::NotPermitted`](crate::Error::NotPermitted) for every caller but the owner, and for the immutable and
    /// append-only flags for every caller but root; [`Error::ReadOnly`](crate::Error::ReadOnly); as [`crate::Filesystem::setattr`].
    pub fn set_flags(&self, by: &Caller, id: ObjectId, change: FlagChange) -> Result<()> {
        self.check_writable()?;
        let fs = self.fs()?;
        let stat = fs.stat(id)?;
        let changed = (stat.flags ^ change.flags) & change.known;
        let is_checked = match self.checks {
            Checks::Kernel => change.kernel_checks,
            Checks::Here => false,
            Checks::Holder => true,
        };
        if !is_checked && (by.uid != stat.uid || changed & FOR_ROOT != 0) {
            permission::check_root(by)?;
        }
        let projid = change.projid.filter(|projid| *projid != stat.projid);
        if changed == 0 && projid.is_none() {
            return Ok(());
        }
        let flags = (changed != 0).then_some(stat.flags ^ changed);
        fs.setattr(id, &SetAttr { flags, projid, ..SetAttr::default() })?;
        // A front end does not know that its attributes of the file have changed.
        self.changed(Notice::Attributes(id));
        Ok(())
    }
}
