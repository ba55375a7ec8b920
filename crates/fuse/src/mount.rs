//! Mounting and unmounting.
//!
//! Root mounts by itself; everybody else through the setuid program `fusermount3`.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

use fuser::{Config, MountOption, Session, SessionACL};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount_remount};
use zpl::Filesystem;

use crate::bridge::Bridge;
use crate::invalidate::Invalidator;
use crate::options::{Live, MountOptions};
use crate::seeker::Seeker;
use crate::shared::Shared;

/// KiB that the kernel reads ahead of a sequential reader, in requests that several threads serve: records are
/// decompressed on all cores before the reader arrives, and the page cache bounds what that takes.
const READ_AHEAD_KIB: u32 = 8 << 10;

/// Why a file system could not be mounted, or the mount not changed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// Programs have files open, or stand in a directory.
    #[error("'{0}' is busy")]
    Busy(PathBuf),
    /// The mount point is missing, or no directory.
    #[error("cannot mount on '{point}': {source}")]
    Point {
        /// Where.
        point: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The kernel, or fusermount3, refused.
    #[error("cannot mount on '{point}': {source}")]
    Mount {
        /// Where.
        point: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// It could not be unmounted.
    #[error("cannot unmount '{point}': {reason}")]
    Unmount {
        /// Where.
        point: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// It is mounted, but not as asked for.
    #[error("cannot change the mount options of '{point}': {source}")]
    Remount {
        /// Where.
        point: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// What a crash left behind could not be freed.
    #[error(transparent)]
    Filesystem(#[from] zpl::Error),
}

/// The end of the session, for those who wait for it.
#[derive(Default)]
struct Ended {
    over: Mutex<bool>,
    changed: Condvar,
}

impl Ended {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.over.lock().expect("no code panics while holding the end of a session")
    }
}

/// A file system that is mounted. Dropping it unmounts, or, if it is busy, takes it out of sight.
pub struct Mounted {
    point: PathBuf,
    shared: Arc<Shared>,
    invalidator: Invalidator,
    ended: Arc<Ended>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

fn config(options: &MountOptions) -> Config {
    let pick = |on: bool, yes: MountOption, no: MountOption| if on { yes } else { no };
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(options.source.clone()),
        // As an option of the kernel: for a mount by root, fuser would drop its own.
        MountOption::CUSTOM("subtype=zfs".into()),
        MountOption::DefaultPermissions,
        pick(options.read_only, MountOption::RO, MountOption::RW),
        pick(options.exec, MountOption::Exec, MountOption::NoExec),
        pick(options.setuid, MountOption::Suid, MountOption::NoSuid),
        pick(options.devices, MountOption::Dev, MountOption::NoDev),
    ];
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.thread_count());
    config.clone_fd = true;
    config
}

/// Mounts `fs` on the directory `at`, and frees what was unlinked but open when the pool was last used. A file system
/// that cannot be written is mounted read-only.
///
/// # Errors
/// [`MountError`].
pub fn mount(fs: Filesystem, at: &Path, options: &MountOptions) -> Result<Mounted, MountError> {
    let in_the_way = |source| MountError::Point { point: at.to_owned(), source };
    let point = at.canonicalize().map_err(in_the_way)?;
    if !point.is_dir() {
        return Err(in_the_way(io::Error::from(io::ErrorKind::NotADirectory)));
    }
    let mut options = options.clone();
    if options.source.is_empty() {
        options.source = fs.dataset().name();
    }
    options.read_only |= fs.dataset().check_writable().is_err();
    if !options.read_only {
        fs.drain_unlinked()?;
    }
    let shared = Arc::new(Shared::new(fs, Live::new(&options), options.writeback && !options.read_only));
    let refused = |source| MountError::Mount { point: point.clone(), source };
    let bridge = Bridge { shared: shared.clone(), seeker: Seeker::start().map_err(refused)? };
    let session = Session::new(bridge, &point, &config(&options)).map_err(refused)?;
    shared.connect(session.notifier());
    let invalidator = Invalidator { notifier: session.notifier(), shared: shared.clone() };
    let ended = Arc::new(Ended::default());
    let at_the_end = ended.clone();
    let thread = std::thread::Builder::new().name("cenote-fuse".into()).spawn(move || {
        if let Err(error) = session.run() {
            tracing::error!(%error, "a mount ended");
        }
        *at_the_end.lock() = true;
        at_the_end.changed.notify_all();
    });
    let thread = Mutex::new(Some(thread.map_err(refused)?));
    let mounted = Mounted { point, shared, invalidator, ended, thread };
    mounted.read_further_ahead();
    Ok(mounted)
}

impl Mounted {
    /// Where it is mounted.
    #[must_use]
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// The file system.
    #[must_use]
    pub fn filesystem(&self) -> &Filesystem {
        &self.shared.fs
    }

    /// For telling the kernel of changes that were made past the mount.
    #[must_use]
    pub fn invalidator(&self) -> &Invalidator {
        &self.invalidator
    }

    /// Whether it is still mounted: somebody else may unmount it, too.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !*self.ended.lock()
    }

    /// Waits until it is unmounted, by whomever.
    ///
    /// # Panics
    /// If a thread that served it panicked while ending.
    pub fn wait(&self) {
        let mut over = self.ended.lock();
        while !*over {
            over = self.ended.changed.wait(over).expect("no code panics while holding the end of a session");
        }
    }

    /// Changes how it is mounted: whether it may be written and when access times are kept, at once; what the kernel
    /// decides (`exec`, `setuid`, `devices`) only as root. The other options stay.
    ///
    /// # Errors
    /// [`MountError::Remount`]; [`MountError::Busy`] when a file is open for writing that is to become read-only.
    pub fn set_options(&self, options: &MountOptions) -> Result<(), MountError> {
        let failed = |errno: Errno| match errno {
            Errno::BUSY => MountError::Busy(self.point.clone()),
            errno => MountError::Remount { point: self.point.clone(), source: errno.into() },
        };
        let flag = |on: bool, flag: MountFlags| if on { flag } else { MountFlags::empty() };
        let flags = flag(options.read_only, MountFlags::RDONLY)
            | flag(!options.exec, MountFlags::NOEXEC)
            | flag(!options.setuid, MountFlags::NOSUID)
            | flag(!options.devices, MountFlags::NODEV);
        match mount_remount(&self.point, flags, c"") {
            // Without root, ours is the only hand on it.
            Ok(()) | Err(Errno::PERM) => {}
            Err(errno) => return Err(failed(errno)),
        }
        self.shared.live.set(options);
        Ok(())
    }

    /// Unmounts. With `force` even while programs use it: what they wrote is kept, what they do afterwards fails.
    ///
    /// # Errors
    /// [`MountError::Busy`]; [`MountError::Unmount`].
    pub fn unmount(&self, force: bool) -> Result<(), MountError> {
        if !self.is_alive() {
            return Ok(());
        }
        match self.unmount_by(UnmountFlags::empty()) {
            Err(MountError::Busy(_)) if force => {
                // Pages that the kernel still holds must come to us first.
                if let Ok(root) = std::fs::File::open(&self.point) {
                    let _ = rustix::fs::syncfs(&root);
                }
                // This ends the connection, but leaves a busy mount in its place ...
                if self.unmount_by(UnmountFlags::FORCE).is_err() {
                    // ... which this takes away, also when the session has ended already.
                    self.unmount_by(UnmountFlags::DETACH)?;
                }
            }
            other => other?,
        }
        self.wait();
        let thread = self.thread.lock().expect("no code panics while holding the thread").take();
        if let Some(thread) = thread {
            // What it had to say it has logged.
            let _ = thread.join();
        }
        Ok(())
    }

    fn unmount_by(&self, flags: UnmountFlags) -> Result<(), MountError> {
        let failed = |reason: String| MountError::Unmount { point: self.point.clone(), reason };
        match rustix::mount::unmount(&self.point, flags) {
            Ok(()) => Ok(()),
            Err(Errno::BUSY) => Err(MountError::Busy(self.point.clone())),
            Err(Errno::PERM) => {
                let mut fusermount = Command::new("fusermount3");
                fusermount.arg("-u");
                if !flags.is_empty() {
                    fusermount.arg("-z");
                }
                let out =
                    fusermount.arg("--").arg(&self.point).output().map_err(|e| failed(e.to_string()))?;
                if out.status.success() {
                    return Ok(());
                }
                let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
                if said.contains("busy") {
                    Err(MountError::Busy(self.point.clone()))
                } else {
                    Err(failed(said))
                }
            }
            Err(errno) => Err(failed(io::Error::from(errno).to_string())),
        }
    }

    /// Raises the kernel's read-ahead from its 128 KiB, where this process may.
    fn read_further_ahead(&self) {
        let Ok(root) = std::fs::metadata(&self.point) else { return };
        let (major, minor) = (rustix::fs::major(root.dev()), rustix::fs::minor(root.dev()));
        let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
        // Only root may: without it, more requests do the same work.
        let _ = std::fs::write(path, READ_AHEAD_KIB.to_string());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = self.unmount(false) {
            tracing::warn!(%error, "taken out of sight instead");
            if let Err(error) = self.unmount_by(UnmountFlags::DETACH) {
                tracing::error!(%error, "still mounted");
            }
        }
    }
}
