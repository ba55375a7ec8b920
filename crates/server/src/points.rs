//! Mount points: making and removing their folders, and links for those on which a user cannot mount.
//!
//! `fusermount3` mounts as root, and the kernel lets only the owner into a user's FUSE mount. So nothing can be mounted
//! below a user's own mount. Such a file system is mounted in a folder of the runtime directory. The server of the upper
//! mount shows a symbolic link in the place of the folder (docs/decisions/0011).

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use front::{MountPoint, Mounted};

use crate::beneath::{self, Found};
use crate::messages::Elsewhere;
use crate::plan::{self, Plan};
use crate::{Runtime, mountinfo};

/// Where a file system goes.
#[derive(Debug)]
pub(crate) struct Point {
    /// The folder it is mounted on.
    pub at: MountPoint,
    /// The folder where the file system belongs was made for this.
    pub made: bool,
    /// The folder in a mount of this user where the file system belongs.
    pub inside: Option<Inside>,
    /// Why it is not at its mount point; `None` if it is.
    pub why: Option<Elsewhere>,
    /// Remarks for the user who mounts.
    pub notes: Vec<String>,
}

/// A folder in a mount of this user.
#[derive(Clone, Debug)]
pub(crate) struct Inside {
    /// By the path in the property.
    pub wanted: PathBuf,
    /// By the path without symbolic links.
    pub place: PathBuf,
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
            return Ok(Point { at, made: false, inside: None, why: None, notes: Vec::new() });
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
        let place = at.path().to_owned();
        if !is_in_own_mount(&place)? {
            return Ok(Point { at, made, inside: None, why, notes });
        }
        let Found { at, .. } = beneath::folder(Path::new("/"), &runtime.within(&plan.dataset))?;
        let inside = Some(Inside { wanted: folder, place });
        Ok(Point { at, made, inside, why: why.or(Some(Elsewhere::Within)), notes })
    }
}

/// A link that a mount shows in place of a folder in it.
#[derive(Debug)]
pub(crate) struct Link {
    pub inside: Inside,
    /// An unmount of that one does not wait for this link.
    parent: Weak<dyn Mounted>,
    shown: zpl::session::ShownLink,
}

impl Link {
    /// Shows a link to `point` at `inside`, in the innermost of `mounts` that contains it. `None` if none contains it, or on
    /// failure.
    pub(crate) fn show(
        inside: &Inside,
        point: &Path,
        mounts: impl Iterator<Item = Arc<dyn Mounted>>,
    ) -> Option<Link> {
        let above = mounts.filter(|mount| mount.is_alive() && inside.place.starts_with(mount.point()));
        let parent = above.max_by_key(|mount| mount.point().as_os_str().len())?;
        let path = inside.place.strip_prefix(parent.point()).ok()?;
        match parent.session().show_link(path, point) {
            Ok(shown) => Some(Link { inside: inside.clone(), parent: Arc::downgrade(&parent), shown }),
            Err(error) => {
                tracing::warn!(place = %inside.place.display(), %error, "no link is shown");
                None
            }
        }
    }

    /// Has the folder itself shown again.
    pub(crate) fn hide(&self) {
        if let Some(parent) = self.parent.upgrade() {
            parent.session().hide_link(&self.shown);
        }
    }

    /// Whether it is no longer shown, because its mount or its directory is gone.
    pub(crate) fn is_lost(&self) -> bool {
        self.parent.upgrade().is_none_or(|parent| !parent.is_alive() || !parent.session().shows(&self.shown))
    }
}

/// Whether `path`, which need not exist, lies in a mount that only this user may enter.
fn is_in_own_mount(path: &Path) -> io::Result<bool> {
    let user = rustix::process::geteuid();
    if user.is_root() {
        return Ok(false);
    }
    let there = path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    Ok(mountinfo::dataset_of(there)?.is_some_and(|mount| mount.user == Some(user.as_raw())))
}

/// Whether an empty folder that was there before is one that an earlier server made within a mounted file system: it
/// looks as those do.
pub(crate) fn looks_made(folder: &Path) -> bool {
    let Ok(data) = fs::metadata(folder) else { return false };
    let within = folder.parent().and_then(|parent| mountinfo::dataset_of(parent).ok()).flatten().is_some();
    within && data.uid() == rustix::process::geteuid().as_raw() && data.mode() & 0o7777 == 0o755
}
