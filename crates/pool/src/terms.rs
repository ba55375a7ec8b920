//! The terms on which the pool is open.
//!
//! Invariant: a pool that this build does not write is open read-only.

use crate::NotWritten;
use crate::options::Options;

/// The terms on which the pool is open.
#[derive(Debug)]
pub(crate) struct Terms {
    /// Why the pool is read-only; `None` if it is not.
    read_only: Option<NotWritten>,
    /// Why this build does not write the pool; `None` if it does.
    refused: Option<NotWritten>,
    /// Prefix shown before mountpoints.
    altroot: Option<String>,
    /// The user of the process.
    user: u32,
}

impl Terms {
    pub(crate) fn new(options: &Options, refused: Option<NotWritten>) -> Terms {
        let asked = options.read_only.then_some(NotWritten::Asked);
        Terms {
            read_only: asked.or_else(|| refused.clone()),
            refused,
            altroot: options.altroot.clone(),
            user: options.user,
        }
    }

    /// Makes the pool read-only, because this build does not write it.
    pub(crate) fn refuse(&mut self, reason: NotWritten) {
        self.refused = Some(reason.clone());
        self.read_only = Some(reason);
    }

    /// Why the pool is read-only; `None` if it is not.
    pub(crate) fn read_only(&self) -> Option<&NotWritten> {
        self.read_only.as_ref()
    }

    /// Why this build does not write the pool; `None` if it does.
    pub(crate) fn refused(&self) -> Option<&NotWritten> {
        self.refused.as_ref()
    }

    /// Prefix shown before mountpoints.
    pub(crate) fn altroot(&self) -> Option<&str> {
        self.altroot.as_deref()
    }

    /// The user of the process.
    pub(crate) fn user(&self) -> u32 {
        self.user
    }
}
