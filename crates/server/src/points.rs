//! Mount points: making and removing their folders, and links for those on which a user cannot mount.
//!
//! `fusermount3` becomes root to mount, and the kernel lets nobody into a user's FUSE mount but that user. So below a
//! user's own mount nothing can be mounted. The server of that mount shows the file system in place of the folder
//! (docs/decisions/0027). A file system that must be mounted with other options than that mount goes into a folder of the
//! runtime directory. The server shows a symbolic link to it in its place.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use front::{MountPoint, Mounted, apart};
use zpl::rank::{MutexHeld, RankedMutex};
use zpl::session::{Cover, Covered};

use crate::beneath::{self, Found};
use crate::messages::Elsewhere;
use crate::plan::{self, Plan};
use crate::{Runtime, mountinfo};

/// Where a file system goes.
#[derive(Debug)]
pub(crate) struct Point {
    /// The folder where the file system belongs.
    pub at: MountPoint,
    /// It was made for this.
    pub made: bool,
    /// It lies in a mount of this user, where nothing can be mounted.
    pub inside: bool,
    /// Why it is not where it belongs; `None`: it is.
    pub why: Option<Elsewhere>,
    /// Remarks for the user who mounts.
    pub notes: Vec<String>,
}

impl Point {
    /// Finds a place for a file system for `wanted`, and makes the folder.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn prepare(plan: &Plan, wanted: &Path, runtime: &Runtime) -> io::Result<Point> {
        if plan.told {
            // The user of the command chose the folder, not the pool.
            let at = MountPoint::open(wanted)?;
            return Ok(Point { at, made: false, inside: false, why: None, notes: Vec::new() });
        }
        let folder = plan::place(wanted, runtime);
        let why = (folder != wanted).then_some(Elsewhere::NotYours);
        let (root, below) = beneath::split(plan.altroot.as_deref(), &folder);
        let Found { at, made, removed } = beneath::folder(&root, &below)?;
        let note = |target| {
            format!(
                "'{}' held a symbolic link to '{target}', which an earlier version of cenote left there: removed",
                folder.display()
            )
        };
        let notes = removed.into_iter().map(note).collect();
        let inside = is_in_own_mount(at.path())?;
        Ok(Point { at, made, inside, why, notes })
    }

    /// The folder of the runtime directory for what cannot be shown in its place.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn beside(plan: &Plan, runtime: &Runtime) -> io::Result<MountPoint> {
        Ok(beneath::folder(Path::new("/"), &runtime.within(&plan.dataset))?.at)
    }
}

/// A mount inside another one, and the link that leads to it if it is beside that one.
pub(crate) type Shown = (Arc<dyn Mounted>, Option<Arc<Link>>);

/// The innermost of `mounts` that `place` lies in, and the path from its root.
pub(crate) fn innermost(
    place: &Path,
    mounts: impl Iterator<Item = Arc<dyn Mounted>>,
) -> Option<(Arc<dyn Mounted>, PathBuf)> {
    let above =
        mounts.filter(|mount| mount.is_alive() && place != mount.point() && place.starts_with(mount.point()));
    let parent = above.max_by_key(|mount| mount.point().as_os_str().len())?;
    let path = place.strip_prefix(parent.point()).ok()?.to_owned();
    Some((parent, path))
}

/// A link that a mount shows in place of a folder in it.
#[derive(Debug)]
pub(crate) struct Link {
    /// The folder, by the path that leads through no symbolic link.
    pub place: PathBuf,
    /// An unmount of that one does not wait for this link.
    parent: Weak<dyn Mounted>,
    /// `None` when it is hidden.
    covered: RankedMutex<Option<Covered>>,
}

impl Link {
    /// Makes the innermost of `mounts` that `place` lies in show a link to `point` there; `None` where none does, or it
    /// cannot.
    pub(crate) fn show(
        place: &Path,
        point: &Path,
        mounts: impl Iterator<Item = Arc<dyn Mounted>>,
    ) -> Option<Link> {
        let (parent, path) = innermost(place, mounts)?;
        let target = Cover::Link(point.as_os_str().as_bytes().to_vec());
        match parent.session().cover(&path, target) {
            Ok(covered) => Some(Link {
                place: place.to_owned(),
                parent: Arc::downgrade(&parent),
                covered: RankedMutex::leaf(Some(covered)),
            }),
            Err(error) => {
                tracing::warn!(place = %place.display(), %error, "no link is shown");
                None
            }
        }
    }

    /// Shows the folder itself again.
    pub(crate) fn hide(&self) {
        let covered = self.covered().take();
        if let (Some(parent), Some(covered)) = (self.parent.upgrade(), covered) {
            parent.session().uncover(&covered);
        }
    }

    fn covered(&self) -> MutexHeld<'_, Option<Covered>> {
        self.covered.lock()
    }

    /// Whether `mount` shows it.
    pub(crate) fn is_in(&self, mount: &Arc<dyn Mounted>) -> bool {
        self.parent.upgrade().is_some_and(|parent| Arc::ptr_eq(&parent, mount))
    }

    /// Whether it is no longer shown, because its mount or its directory is gone.
    pub(crate) fn is_lost(&self) -> bool {
        let Some(covered) = self.covered().clone() else { return true };
        self.parent.upgrade().is_none_or(|parent| !parent.is_alive() || !parent.session().covers(&covered))
    }
}

/// Whether `path`, which need not exist, lies in a mount that only this user may enter.
fn is_in_own_mount(path: &Path) -> io::Result<bool> {
    let user = rustix::process::geteuid();
    if user.is_root() {
        return Ok(false);
    }
    let wanted = path.to_owned();
    let there = apart::ask(move || {
        Ok(wanted.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/")).to_owned())
    })?;
    Ok(mountinfo::dataset_of(&there)?.is_some_and(|mount| mount.user == Some(user.as_raw())))
}

/// Whether there is anything in the folder of a mount point.
pub(crate) fn has_files(at: &MountPoint) -> io::Result<bool> {
    let there = at.link();
    apart::ask(move || Ok(fs::read_dir(there)?.next().is_some()))
}

/// Whether an empty folder that was there before is one that an earlier server made within a mounted file system: it
/// looks as those do.
pub(crate) fn looks_made(folder: &Path) -> bool {
    let there = folder.to_owned();
    let Ok(data) = apart::ask(move || fs::metadata(there)) else { return false };
    let within = folder.parent().and_then(|parent| mountinfo::dataset_of(parent).ok()).flatten().is_some();
    within && data.uid() == rustix::process::geteuid().as_raw() && data.mode() & 0o7777 == 0o755
}
