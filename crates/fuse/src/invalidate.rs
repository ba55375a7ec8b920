//! Telling the kernel of changes that did not come through it.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use fuser::Notifier;
use zpl::ObjectId;

use crate::shared::Shared;

/// Makes the kernel forget what it keeps of a mounted file system. To be called after a change that was made on
/// `zpl::Filesystem` directly, never from within a request.
#[derive(Clone)]
pub struct Invalidator {
    pub(crate) notifier: Notifier,
    pub(crate) shared: Arc<Shared>,
}

impl Invalidator {
    /// The node's attributes, contents or entries changed.
    ///
    /// # Errors
    /// When the mount is gone.
    pub fn node(&self, id: ObjectId) -> io::Result<()> {
        self.notifier.inval_inode(self.shared.ino(id), 0, 0)
    }

    /// A quota, a reservation or the like changed: the kernel asks before the next `write` to each file, however much space
    /// was left when it asked last.
    ///
    /// # Errors
    /// When the mount is gone.
    pub fn limits(&self) -> io::Result<()> {
        for id in self.shared.limits.written() {
            match self.notifier.inval_inode(self.shared.ino(id), -1, 0) {
                // The kernel forgot the file meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                done => done?,
            }
        }
        Ok(())
    }

    /// `name` in `dir` now means something else, or nothing.
    ///
    /// # Errors
    /// When the mount is gone.
    pub fn entry(&self, dir: ObjectId, name: &[u8]) -> io::Result<()> {
        let dir = self.shared.ino(dir);
        self.notifier.inval_entry(dir, OsStr::from_bytes(name))?;
        self.notifier.inval_inode(dir, 0, 0)
    }
}
