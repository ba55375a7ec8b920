//! Exchanging what a mounted file system holds while programs use it: an increment was received, or it was rolled back.
//!
//! From:   a command, which has what the file system will hold open already, and the change itself.
//! To:     the kernel: it is told to forget what differs. A file that is the same in both goes on for programs that have it
//!         open. One that is no more gives `EIO`, as it does with OpenZFS.
//!
//! With `FUSE_WRITEBACK_CACHE` the kernel takes the size and the times of a regular file from nobody but itself. Where they
//! differ it is told the size in a way of its own (`sizes.rs`). A file for which that fails is another file from then on:
//! programs that look it up see the new one, and programs that have it open get `EIO`.

use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use zpl::session::{Difference, Notice, difference, names_of};
use zpl::{FileKind, Filesystem, ObjectId};

use crate::error::MountError;
use crate::mount::Mounted;
use crate::progress::HeldBack;
use crate::sizes;

/// How long messages may take to come to their end, try by try. A message may wait for another one that is held back, so
/// all go on between two tries.
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
/// Files in use whose size the kernel is told anew, at most: each takes a walk through its directory.
const RESIZED_MAX: usize = 1024;
/// How long the kernel may take, before messages are held back, to forget what nobody uses.
const FORGETTING: Duration = Duration::from_millis(200);

/// What became of a change under a mount.
pub struct Changed<T> {
    /// What the change gives.
    pub done: T,
    /// Whether the file system holds something else now.
    pub is_exchanged: bool,
    /// The file system, opened again.
    pub fs: zpl::Result<Filesystem>,
}

impl Mounted {
    /// Does `change`, which exchanges what the file system holds for what `next` does, while the mount stays. Messages of
    /// programs come to their end before it, and others wait for it. `change` is called when nobody has the file system
    /// open; it opens it again, also when nothing was changed. The paths `below` lead, from the root of the mount, to
    /// where other file systems are mounted: these stay.
    ///
    /// Gives what `change` does, and why the mount serves nothing any more if it could not be opened again.
    ///
    /// # Errors
    /// Before `change` is called: [`MountError::Busy`] when messages do not come to their end, [`MountError::Stuck`] when
    /// the pool takes nothing, [`MountError::Filesystem`] when a directory cannot be read.
    pub fn exchange<T>(
        &self,
        next: Filesystem,
        below: &[PathBuf],
        change: impl FnOnce() -> Changed<T>,
    ) -> Result<(T, Option<zpl::Error>), MountError> {
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
        let Changed { done, is_exchanged, fs } = change();
        let fs = match fs {
            Ok(fs) if fs.root() == shared.root() => fs,
            Ok(_) => {
                return Ok((done, Some(zpl::Error::Unsupported("another root directory under a mount"))));
            }
            Err(error) => return Ok((done, Some(error))),
        };
        let difference = if is_exchanged { difference } else { Difference::default() };
        self.resume(fs, &difference, held_back);
        Ok((done, None))
    }

    /// Lets the messages come to their end that are being served, and holds back all others.
    fn hold_back(&self) -> Result<HeldBack<'_>, MountError> {
        for limit in TRIES {
            if let Some(held) = self.shared().progress.hold_back(limit) {
                return Ok(held);
            }
            std::thread::sleep(PAUSE);
        }
        Err(MountError::Busy(self.point().to_owned()))
    }

    /// Has the kernel forget what differs and nobody uses, so that little is left to be told when messages are held back.
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

    /// Serves messages from `fs`, and tells the kernel what differs.
    fn resume(&self, fs: Filesystem, difference: &Difference, held_back: HeldBack<'_>) {
        let (shared, session) = (self.shared(), self.session());
        fs.dataset().set_mounted_writable(session.lifts_read_only());
        session.handles().exchange(&fs, &difference.gone);
        session.drop_links(&difference.gone);
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
        // Messages are served again: the kernel may have to write or read pages before it forgets them.
        for id in difference.gone.iter().chain(&difference.changed) {
            shared.kernel.call_back_pages(*id);
        }
        session.handles().set_dropping(false);
        self.forget_names(&difference.names);
        let failed = sizes::tell(&shared.refresh, &fs, self.place_of(), &difference.resized);
        if !failed.is_empty() {
            self.lose(&fs, &failed);
        }
        shared.refresh.begin(HashSet::new());
    }

    /// Programs lose the files `ids`: whoever looks them up has to do with others.
    fn lose(&self, fs: &Filesystem, ids: &HashSet<ObjectId>) {
        let shared = self.shared();
        ids.iter().for_each(|id| shared.session.handles().lose(fs, *id));
        ids.iter().for_each(|id| shared.kernel.call_back_pages(*id));
        for dir in shared.session.handles().all().into_iter().chain([shared.root()]) {
            // What is no directory has no names.
            let names = names_of(fs, dir, |_, id| ids.contains(&id)).unwrap_or_default();
            self.forget_names(&names.into_iter().map(|name| (dir, name)).collect::<Vec<_>>());
        }
    }
}

/// The names, each with its directory, that lead to what is mounted at the paths `below` from the root of `fs`.
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
