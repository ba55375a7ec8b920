//! Replacing the contents of a mounted file system while programs use it, after a receive or a rollback.
//!
//! From:   a command, which has opened the new contents and supplies the change.
//! To:     the kernel, which must drop what differs. A file that is the same in both states stays usable for programs that
//!         have it open. A file that no longer exists gives `EIO`, as in OpenZFS.
//!
//! With `FUSE_WRITEBACK_CACHE` the kernel itself keeps the size and the times of a regular file and ignores those of the
//! server. If they differ, the server sets the size by a truncation (`sizes.rs`). If this fails, the file counts as
//! replaced: new look-ups get the new file, and programs that have it open get `EIO`.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use front::{Changed, MountError};
use zpl::session::{Difference, Notice, difference, names_of};
use zpl::{FileKind, Filesystem, ObjectId};

use crate::mount::Mounted;
use crate::progress::HeldBack;
use crate::sizes;

/// How long each try waits for the running messages to end. A message may wait for another one that is blocked, so all
/// messages continue between two tries.
const TRIES: [Duration; 6] = [
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(20);
/// Maximal number of files in use whose size is set again. Each needs a walk through its directory.
const RESIZED_MAX: usize = 1024;
/// Time for the kernel to drop unused objects, before messages are blocked.
const FORGETTING: Duration = Duration::from_millis(200);

impl Mounted {
    /// Runs `change`, which replaces the contents of the file system by those of `next`, while the mount stays. Running
    /// messages end before it, and new messages wait for it. `change` is called when the file system is closed, and opens it
    /// again even if nothing changed. `below` are the paths, from the root of the mount, of other mounts: these stay.
    ///
    /// If the file system could not be opened again, returns the reason; the mount then serves nothing.
    ///
    /// # Errors
    /// Before `change` is called: [`MountError::Busy`] if messages do not end, [`MountError::Stuck`] if the pool
    /// accepts no writes, [`MountError::Filesystem`] if a directory cannot be read.
    pub fn exchange(
        &self,
        next: Filesystem,
        below: &[PathBuf],
        change: impl FnOnce() -> Changed,
    ) -> Result<Option<zpl::Error>, MountError> {
        self.forget_unused(&next, below)?;
        let held = self.held();
        let since = Instant::now();
        if let Err(error) = self.write_back() {
            tracing::debug!(%error, "not all is written back");
        }
        if !self.settle(held, since) {
            return Err(MountError::Stuck(self.point().to_owned()));
        }
        let held_back = self.hold_back()?;
        let shared = self.shared();
        let old = shared.session.put_fs(None).ok_or_else(|| MountError::Busy(self.point().to_owned()))?;
        let difference = match self.difference((&old, &next), below, RESIZED_MAX) {
            Ok(difference) => difference,
            Err(error) => {
                shared.session.put_fs(Some(old));
                return Err(error.into());
            }
        };
        drop((old, next));
        let Changed { is_exchanged, fs } = change();
        let fs = match fs {
            Ok(fs) if fs.root() == shared.root() => fs,
            Ok(_) => {
                return Ok(Some(zpl::Error::Unsupported("another root directory under a mount")));
            }
            Err(error) => return Ok(Some(error)),
        };
        let difference = if is_exchanged { difference } else { Difference::default() };
        self.resume(fs, &difference, held_back);
        Ok(None)
    }

    /// Waits for the running messages and blocks all new ones.
    fn hold_back(&self) -> Result<HeldBack<'_>, MountError> {
        for limit in TRIES {
            if let Some(held) = self.shared().progress.hold_back(limit) {
                return Ok(held);
            }
            std::thread::sleep(PAUSE);
        }
        Err(MountError::Busy(self.point().to_owned()))
    }

    /// Makes the kernel drop unused objects that differ, so that few notices are left when messages are blocked.
    fn forget_unused(&self, next: &Filesystem, below: &[PathBuf]) -> Result<(), MountError> {
        let shared = self.shared();
        let Some(fs) = self.filesystem() else { return Err(MountError::Stuck(self.point().to_owned())) };
        self.forget_names(&self.difference((&fs, next), below, 0)?.names);
        let until = Instant::now() + FORGETTING;
        let mut left = u64::MAX;
        while shared.session.handles().len() < left && Instant::now() < until {
            left = shared.session.handles().len();
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn forget_names(&self, names: &[(ObjectId, Vec<u8>)]) {
        for (dir, name) in names {
            self.session().changed(Notice::Name(*dir, name));
        }
    }

    fn difference(
        &self,
        (old, next): (&Filesystem, &Filesystem),
        below: &[PathBuf],
        resized_max: usize,
    ) -> zpl::Result<Difference> {
        let mut known = self.session().handles().all();
        known.push(old.root());
        let kept = mounted_on(old, below)?;
        let resized_max = self.shared().writeback.then_some(resized_max);
        difference((old, next), &known, |dir, name| kept.contains(&(dir, name.to_vec())), resized_max)
    }

    /// Serves messages from `fs` and notifies the kernel of the differences.
    fn resume(&self, fs: Filesystem, difference: &Difference, held_back: HeldBack<'_>) {
        let (shared, session) = (self.shared(), self.session());
        fs.dataset().set_mounted_writable(session.lifts_read_only());
        session.handles().exchange(&fs, &difference.gone);
        session.drop_covers(&difference.gone);
        difference.gone.iter().for_each(|id| shared.kernel.limits.forget(*id));
        if session.check_writable().is_ok()
            && fs.dataset().check_writable().is_ok()
            && let Err(error) = fs.drain_unlinked()
        {
            tracing::warn!(%error, "files without a name stay");
        }
        session.handles().set_dropping(true);
        shared.refresh.begin(difference.resized.iter().map(|(id, _)| *id).collect());
        shared.session.put_fs(Some(fs.clone()));
        drop(held_back);
        // Messages must be served again first, because the kernel may have to write or read pages before it drops them.
        for id in difference.gone.iter().chain(&difference.changed) {
            shared.kernel.call_back_pages(*id);
        }
        session.handles().set_dropping(false);
        self.forget_names(&difference.names);
        let failed = sizes::tell(shared, &fs, self.place_of(), &difference.resized);
        if !failed.is_empty() {
            self.lose(&fs, &failed);
        }
        shared.refresh.begin(HashSet::new());
    }

    /// Marks the files `ids` as replaced: new look-ups get other files.
    fn lose(&self, fs: &Filesystem, ids: &HashSet<ObjectId>) {
        let shared = self.shared();
        ids.iter().for_each(|id| shared.session.handles().lose(fs, *id));
        ids.iter().for_each(|id| shared.kernel.call_back_pages(*id));
        for dir in shared.session.handles().all().into_iter().chain([shared.root()]) {
            // Only directories have names.
            let names = names_of(fs, dir, |_, id| ids.contains(&id)).unwrap_or_default();
            self.forget_names(&names.into_iter().map(|name| (dir, name)).collect::<Vec<_>>());
        }
    }
}

/// The names, with their directories, on the paths `below` from the root of `fs` to other mounts.
fn mounted_on(fs: &Filesystem, below: &[PathBuf]) -> zpl::Result<HashSet<(ObjectId, Vec<u8>)>> {
    let mut kept = HashSet::new();
    for path in below {
        let mut dir = fs.root();
        for name in normal_names(path) {
            kept.insert((dir, name.to_vec()));
            match fs.lookup(dir, name)? {
                Some((id, FileKind::Directory)) => dir = id,
                _ => break,
            }
        }
    }
    Ok(kept)
}

fn normal_names(path: &Path) -> impl Iterator<Item = &[u8]> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.as_bytes()),
        _ => None,
    })
}
