//! Folders that file systems are mounted on: which are made and removed here, and what stands in for those that a user
//! cannot mount on.
//!
//! `fusermount3` becomes root to mount, and the kernel lets nobody into a user's FUSE mount but that user. So below a
//! user's own mount nothing can be mounted: such a file system goes into a folder of the runtime directory, and a
//! symbolic link takes the place of the folder it belongs on.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use fuse::MountPoint;

use crate::beneath::{self, Found};
use crate::messages::Elsewhere;
use crate::plan::{self, Plan};
use crate::{Runtime, mountinfo};

/// Where a file system goes.
#[derive(Debug)]
pub(crate) struct Point {
    /// The folder it is mounted on.
    pub at: MountPoint,
    /// The folder was made for this.
    pub made: bool,
    /// A symbolic link to `folder`, where the file system belongs.
    pub link: Option<PathBuf>,
    /// Why it is not where it belongs; `None`: it is.
    pub why: Option<Elsewhere>,
}

impl Point {
    /// Finds a place for what belongs at `wanted`, and makes the folder.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn prepare(plan: &Plan, wanted: &Path, runtime: &Runtime) -> io::Result<Point> {
        if plan.told {
            // The folder is the choice of whoever gave the command, and not the pool's.
            let at = MountPoint::open(wanted)?;
            return Ok(Point { at, made: false, link: None, why: None });
        }
        drop_stale_link(wanted, runtime);
        let folder = plan::place(wanted, runtime);
        let why = (folder != wanted).then_some(Elsewhere::NotYours);
        drop_stale_link(&folder, runtime);
        if !is_in_own_mount(&folder)? {
            let (root, below) = beneath::split(plan.altroot.as_deref(), &folder);
            let Found { at, made } = beneath::folder(&root, &below)?;
            return Ok(Point { at, made, link: None, why });
        }
        let inner = runtime.within(&plan.dataset);
        let Found { at, made } = beneath::folder(Path::new("/"), &inner)?;
        // An empty folder has nothing to hide; one with files in it stays what it is.
        let linked = match fs::remove_dir(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => above(&folder).and_then(|()| symlink(&inner, &folder)),
        };
        let (link, within) = match linked {
            Ok(()) => (Some(folder), Elsewhere::Linked),
            Err(_) => (None, Elsewhere::Within),
        };
        Ok(Point { at, made, link, why: why.or(Some(within)) })
    }

    /// Removes what stood in for the mount.
    pub(crate) fn unlink(link: &Path, folder: &Path) {
        if fs::read_link(link).is_ok_and(|target| target == folder) {
            // Where it cannot be removed, the next mount does.
            let _ = fs::remove_file(link);
        }
    }
}

fn above(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)
}

/// Removes a link into the runtime directory that a server which was killed left behind.
fn drop_stale_link(path: &Path, runtime: &Runtime) {
    if fs::read_link(path).is_ok_and(|target| target.starts_with(runtime.folder())) {
        // What is in the way is said when the folder is made.
        let _ = fs::remove_file(path);
    }
}

/// Whether `path`, which need not exist, lies in a mount of this user that lets nobody else in.
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
