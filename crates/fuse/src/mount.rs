//! Mounting and unmounting.
//!
//! Root mounts directly; other users mount through the setuid program `fusermount3`.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use front::{Keeper, MountError, MountOptions, MountPoint};
use fuser::{Config, SessionACL};
use rustix::mount::UnmountFlags;
use zpl::rank::RankedMutex;
use zpl::{Filesystem, SnapshotKey};

use crate::attach::{attach, attach_again};
use crate::bridge::Bridge;
use crate::device::{Device, Place};
use crate::ending::{AtTheEnd, Ended, Waited};
use crate::keeper;
use crate::permits::Permits;
use crate::place;
use crate::places::Places;
use crate::progress::{Mark, Patience, pages_to_come};
use crate::seeker::Seeker;
use crate::shared::Shared;
use crate::snapdir::{Others, Router, Snapshots};
use crate::threads::thread_count;
use crate::within::Within;

/// KiB that the kernel reads ahead of a sequential reader, in requests that several threads serve: records are
/// decompressed on all cores before the reader arrives, and the page cache bounds what that takes.
const READ_AHEAD_KIB: u32 = 8 << 10;
/// The kernel itself refuses users who may not enter the mount. Its own requests, such as writing back the times of a file,
/// are made as root.
const SESSION_ACL: SessionACL = SessionACL::All;
/// Interval of the checks for running requests.
const PAUSE: Duration = Duration::from_micros(200);
/// Pages in the largest message.
const REQUEST_PAGES: u64 = 256;
/// If the kernel does not report that it holds nothing back, its connection is aborted after this long without a request ...
const SETTLING: Duration = Duration::from_secs(1);
/// ... and, if it reports nothing at all, a command reads the written data after this long.
const SETTLED: Duration = Duration::from_millis(100);
/// Time for the session to end after an unmount, because other namespaces may have the mount, too.
const ENDING: Duration = Duration::from_secs(10);
/// After this time, the wait for a process that has the mount ends. Programs that start or end in a namespace of their own
/// have it for a shorter time.
const KEPT: Duration = Duration::from_secs(1);
/// How long a pool may make no progress while messages wait for it.
const STUCK: Duration = Duration::from_secs(30);

/// Written data that the kernel may still hold back for a mount.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// The messages that had come by then.
    before: Mark,
    /// At most so many pages.
    pages: u64,
}

/// A mounted file system. Dropping it unmounts it; if it is busy, it is detached.
pub struct Mounted {
    pub(crate) point: PathBuf,
    /// Where the kernel's mount is that it is shown in.
    pub(crate) base: PathBuf,
    pub(crate) device: Device,
    /// How that is mounted.
    pub(crate) options: MountOptions,
    pub(crate) shared: Arc<Shared>,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) bridge: Arc<Bridge>,
    /// The file systems that are shown within that mount.
    pub(crate) others: Arc<Others>,
    pub(crate) ended: Arc<Ended>,
    pub(crate) thread: RankedMutex<Option<JoinHandle<()>>>,
    /// It has no mount of its own.
    pub(crate) within: Option<Within>,
}

/// Options of the session. The kernel got the mount options when the mount was made.
fn config(options: &MountOptions) -> Config {
    let mut config = Config::default();
    config.acl = SESSION_ACL;
    config.n_threads = Some(thread_count(options));
    config.clone_fd = true;
    config
}

/// As [`mount_on`], on the directory at a path; symbolic links are followed.
///
/// # Errors
/// [`MountError`].
pub fn mount(fs: Filesystem, at: &Path, options: &MountOptions) -> Result<Mounted, MountError> {
    let point = MountPoint::open(at).map_err(|source| MountError::Point { point: at.to_owned(), source })?;
    mount_on(fs, &point, options)
}

/// Makes a file system ready to be mounted; returns how it is to be mounted then.
pub(crate) fn prepare(fs: &Filesystem, options: &MountOptions) -> Result<MountOptions, MountError> {
    let mut options = options.clone();
    if options.source.is_empty() {
        options.source = fs.dataset().name();
    }
    fs.dataset().set_mounted_writable(options.lifts_read_only);
    options.read_only |= fs.dataset().check_writable().is_err();
    options.synchronous |= fs.is_synchronous();
    if !options.read_only {
        fs.drain_unlinked()?;
    }
    Ok(options)
}

/// Mounts `fs` on the directory `at`, and frees the objects in its unlinked set. A file system that cannot be written is
/// mounted read-only.
///
/// # Errors
/// [`MountError`].
pub fn mount_on(fs: Filesystem, at: &MountPoint, options: &MountOptions) -> Result<Mounted, MountError> {
    let point = at.path().to_owned();
    let options = prepare(&fs, options)?;
    let threads = thread_count(&options);
    let writeback = options.writeback && !options.read_only;
    let shared = Arc::new(Shared::new(fs, &options, writeback));
    let refused = |source| MountError::Mount { point: point.clone(), source };
    let seeker = Arc::new(Seeker::start().map_err(refused)?);
    let places = Arc::new(Places::default());
    let snapshots = Snapshots::new(shared.clone(), seeker.clone(), threads, places.clone());
    let bridge = Bridge::new(shared.clone(), seeker, Arc::new(Permits::new(threads)));
    let others = Arc::new(Others::new(places));
    let router = Router::new(bridge.clone(), snapshots.clone(), Some(others.clone()));
    // The mount is made here and not by the session, which would unmount by path at its end. By then another file system may
    // be mounted there.
    let (connection, device) = attach(at, &options).map_err(refused)?;
    let ended = Arc::new(Ended::new(connection.try_clone().map_err(refused)?));
    let session =
        fuser::Session::from_fd(router, connection, SESSION_ACL, config(&options)).map_err(|source| {
            let _ = place::detach(device, &point);
            refused(source)
        })?;
    shared.kernel.connect(session.notifier());
    snapshots.mounted_at(&point, device);
    let at_the_end = ended.clone();
    let served = shared.clone();
    let thread = std::thread::Builder::new().name("cenote-fuse".into()).spawn(move || {
        // Even after a panic, the connection must not outlive the threads that serve it.
        let _at_the_end = AtTheEnd(at_the_end);
        if let Err(error) = session.run() {
            tracing::error!(%error, "a mount ended");
        }
        if let Ok(fs) = served.fs() {
            fs.dataset().set_mounted_writable(false);
        }
    });
    let thread = RankedMutex::leaf(Some(thread.map_err(refused)?));
    let (base, within) = (point.clone(), None);
    let mounted =
        Mounted { point, base, device, options, shared, snapshots, bridge, others, ended, thread, within };
    mounted.read_further_ahead();
    mounted.look_at_cache();
    Ok(mounted)
}

impl Mounted {
    /// Where it is mounted.
    #[must_use]
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// The session of the mount. It notifies the kernel of changes that were not made through the mount.
    #[must_use]
    pub fn session(&self) -> &Arc<zpl::Session> {
        &self.shared.session
    }

    /// The file system; it is not replaced while the caller has it. `None` if it could not be opened after a replacement.
    #[must_use]
    pub fn filesystem(&self) -> Option<Filesystem> {
        self.shared.session.fs().ok()
    }

    pub(crate) fn place_of(&self) -> (Device, &Path) {
        (self.device, &self.point)
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Prepares the destroy of a snapshot, now called `name`, or a change of a volume: makes the kernel drop it and closes
    /// it. The snapshot may meanwhile belong to another file system. If it is in use, it stays open after a wait of a
    /// fraction of a second.
    pub fn let_go_of_snapshot(&self, key: SnapshotKey, name: &[u8]) {
        self.snapshots.volumes.let_go(key);
        self.snapshots.let_go(key, name);
    }

    /// A snapshot of this name no longer exists.
    pub fn renamed_snapshot(&self, name: &[u8]) {
        self.snapshots.renamed(name);
    }

    /// Number of its snapshots that are open because programs use or used them.
    #[must_use]
    pub fn open_snapshots(&self) -> usize {
        self.snapshots.open_count()
    }

    /// Notifies the kernel after changes of properties. The mount options stay.
    pub fn look_at_properties(&self) {
        self.snapshots.look_at_property();
    }

    /// Whether the property `acltype` has changed since the mount. The kernel learns only at the mount whether there are
    /// POSIX ACLs.
    #[must_use]
    pub fn has_other_acls(&self) -> bool {
        self.filesystem().is_some_and(|fs| {
            let dataset = fs.dataset();
            !dataset.is_snapshot() && dataset.settings().posix_acl != self.shared.session.had_acls()
        })
    }

    /// The device number of the mounted file system, as in `st_dev` and `/proc/self/mountinfo`. It may be reused when this
    /// session is over.
    #[must_use]
    pub fn device(&self) -> (u32, u32) {
        self.device.number()
    }

    /// Whether it is still mounted. Other programs may unmount it, too.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !self.ended.is_over() && !self.within.as_ref().is_some_and(Within::is_over)
    }

    /// Whether it was just unmounted: the kernel sends no more requests, but some are not finished.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.is_alive() && self.ended.is_cut()
    }

    /// Waits until it is unmounted.
    ///
    /// # Panics
    /// If a thread that served it panicked while ending.
    pub fn wait(&self) {
        self.ended.wait();
    }

    /// Changes mount options: when access times are kept, and, as root, `readonly` and the other options that the kernel
    /// enforces (`exec`, `setuid`, `devices`). The others stay.
    ///
    /// # Errors
    /// [`MountError::Remount`], without root with the kernel's `EPERM`: all is as before; [`MountError::Busy`] when a
    /// file is open for writing that is to become read-only; [`MountError::Covered`].
    pub fn set_options(&self, options: &MountOptions) -> Result<(), MountError> {
        let point = || self.point.clone();
        if self.is_within() {
            // Options that it has in common with the mount cannot be changed for it alone.
            return Err(MountError::Remount {
                point: point(),
                source: io::ErrorKind::PermissionDenied.into(),
            });
        }
        match self.place() {
            Ok(Place::Here) => {}
            Ok(Place::Covered) => return Err(MountError::Covered(point())),
            Ok(Place::Gone) => return Err(MountError::Elsewhere { point: point(), keeper: None }),
            Err(source) => return Err(MountError::Remount { point: point(), source }),
        }
        let Some(fs) = self.filesystem() else { return Err(MountError::Stuck(point())) };
        let dataset = fs.dataset();
        let before = self.shared.session.lifts_read_only();
        // The session allows writes before the kernel does, and forbids them after the kernel does.
        dataset.set_mounted_writable(before || options.lifts_read_only);
        let remounted = place::remount(self.device, &self.point, options);
        dataset.set_mounted_writable(if remounted.is_ok() { options.lifts_read_only } else { before });
        remounted.map_err(|source| match source.kind() {
            io::ErrorKind::ResourceBusy => MountError::Busy(point()),
            _ => MountError::Remount { point: point(), source },
        })?;
        self.shared.session.set_settings(&options.settings());
        Ok(())
    }

    /// Changes when access times are kept. The kernel is not involved.
    pub fn set_atime(&self, options: &MountOptions) {
        self.shared.session.set_settings(&options.settings());
    }

    /// Bytes of data that waited for a permit, in the buffers that the kernel's messages came in, and as copies.
    #[must_use]
    pub fn queued(&self) -> (u64, u64) {
        self.shared.progress.queued()
    }

    /// The amount of data that the kernel holds back now. Take it before [`Mounted::write_back`], for [`Mounted::settle`].
    #[must_use]
    pub fn held(&self) -> Held {
        Held { before: self.shared.progress.mark(), pages: pages_to_come() }
    }

    /// Makes the kernel write back its dirty pages. The writes may still be in flight when this returns; [`Mounted::settle`]
    /// waits for them.
    ///
    /// # Errors
    /// The mount is gone, or a write failed.
    pub fn write_back(&self) -> io::Result<()> {
        place::write_back(self.device, &self.base)
    }

    /// Waits until the data that the kernel held back at `since` has arrived and is stored, however long the pool takes.
    /// Returns `false` if the pool accepts no writes.
    #[must_use]
    pub fn settle(&self, held: Held, since: Instant) -> bool {
        !self.shared.writeback || self.take_in(held, since, SETTLED)
    }

    /// Mounts it again at its old place after a lazy unmount (`umount -l`) while programs have files open. These programs
    /// and new users share one file system.
    ///
    /// # Errors
    /// It had another place or other fixed options; the session is over; or this process or this kernel cannot do
    /// it.
    pub fn mount_again(&self, at: &MountPoint, options: &MountOptions) -> io::Result<()> {
        let session = &self.shared.session;
        if self.is_within()
            || at.path() != self.point
            || session.read_only() != options.read_only
            || self.has_other_acls()
        {
            return Err(io::Error::other("it is mounted otherwise"));
        }
        let fs = self.filesystem().ok_or_else(|| io::Error::other("its contents could not be opened"))?;
        let mut options = options.clone();
        if options.source.is_empty() {
            options.source = fs.dataset().name();
        }
        let attached = |connection: &OwnedFd| attach_again(connection, self.device, at, &options);
        self.ended.with_connection(attached).ok_or(io::ErrorKind::NotConnected)??;
        fs.dataset().set_mounted_writable(options.lifts_read_only);
        session.set_settings(&options.settings());
        Ok(())
    }

    fn place(&self) -> io::Result<Place> {
        self.device.place(&self.base)
    }

    /// Unmounts. With `force` even while programs use it: their earlier writes are kept, and their later operations fail.
    ///
    /// # Errors
    /// [`MountError::Busy`]; [`MountError::Covered`]; [`MountError::Elsewhere`] if it is unmounted here but stays
    /// mounted elsewhere; [`MountError::Stuck`]; [`MountError::Unmount`].
    ///
    /// # Panics
    /// If another thread panicked while it unmounted this.
    pub fn unmount(&self, force: bool) -> Result<(), MountError> {
        if let Some(within) = &self.within {
            return self.leave(within, force);
        }
        if !force && self.is_alive() && !self.shared.trees.is_empty() {
            return Err(MountError::Busy(self.point.clone()));
        }
        self.unmount_all(force)
    }

    /// As [`Mounted::unmount`], for a file system with a mount of its own: the file systems that are shown in it go,
    /// too.
    fn unmount_all(&self, force: bool) -> Result<(), MountError> {
        let failed =
            |error: io::Error| MountError::Unmount { point: self.point.clone(), reason: error.to_string() };
        match self.place().map_err(failed)? {
            // Its connection was aborted, so the rest of the mount answers no request. (Its number may be reused since.)
            Place::Here if !self.is_alive() && place::answers_nobody(self.device, &self.point) => {
                place::detach(self.device, &self.point)?;
            }
            _ if !self.is_alive() => {}
            Place::Here => self.take_down(force)?,
            Place::Covered if force => {
                self.take_over();
                self.device.abort().map_err(|_| self.covered())?;
            }
            Place::Covered => return Err(self.covered()),
            // Another program unmounted it: the session ends by itself, or another process holds it.
            Place::Gone => {}
        }
        self.wait_unmounted(force)
    }

    /// Waits for the end of a detached mount. With `force`, programs lose the files that they have open: their earlier
    /// writes are kept, and their later operations fail.
    ///
    /// # Errors
    /// [`MountError::Elsewhere`] if it stays mounted elsewhere; [`MountError::Stuck`].
    ///
    /// # Panics
    /// If another thread panicked while it unmounted this.
    pub fn wait_unmounted(&self, force: bool) -> Result<(), MountError> {
        if let Some(within) = &self.within {
            return self.leave(within, force);
        }
        let (mut waited, mut keeper) = self.work_off(force);
        if waited == Waited::InUse && force {
            self.take_over();
            if self.device.abort().is_ok() {
                (waited, keeper) = self.work_off(false);
            }
        }
        match waited {
            Waited::Over => {}
            Waited::InUse => {
                let keeper = keeper.or_else(|| keeper::of(self.device));
                return Err(MountError::Elsewhere { point: self.point.clone(), keeper });
            }
            Waited::Stuck => return Err(MountError::Stuck(self.point.clone())),
        }
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // It has logged its error already.
            let _ = thread.join();
        }
        Ok(())
    }

    /// Waits for the end of the session while its requests make progress. If a process is known to keep the mount, the wait
    /// is short. With `force` there is no wait, because the connection can be aborted.
    fn work_off(&self, force: bool) -> (Waited, Option<Keeper>) {
        let within = |limit| self.ended.worked_off(limit, Patience::new(STUCK, || self.moved()));
        match within(KEPT) {
            Waited::InUse if !force => match keeper::of(self.device) {
                None => (within(ENDING - KEPT), None),
                keeper => (Waited::InUse, keeper),
            },
            waited => (waited, None),
        }
    }

    /// Grows while messages are served or the pool writes. The pool may write for minutes before it accepts more.
    fn moved(&self) -> u64 {
        self.shared.progress.done() + self.filesystem().map_or(0, |fs| fs.dataset().writes())
    }

    /// Waits for the data that the kernel still holds back, because data that has not arrived is lost when the connection
    /// ends. Waits as long as data arrives.
    fn take_over(&self) {
        let held = self.held();
        // The kernel now queues the pages that it has not queued yet, after all others.
        let written = match self.place() {
            Ok(Place::Here) => self.write_back(),
            _ => place::write_back_all(STUCK),
        };
        if let Err(error) = written {
            tracing::debug!(%error, "not all is written back");
        }
        if !self.take_in(held, Instant::now(), SETTLING) {
            tracing::warn!(point = %self.point.display(), "the pool takes nothing of what was written there");
        }
    }

    /// Waits until the data that the kernel held back has arrived and is stored. Returns whether it is. The kernel has no
    /// more data when it says so, or when it sent nothing for `idle`.
    fn take_in(&self, Held { before, pages }: Held, since: Instant, idle: Duration) -> bool {
        let progress = &self.shared.progress;
        let mut patience = Patience::new(STUCK, || self.moved());
        let mut idle_since = since;
        let mut all_came = None;
        let start = progress.mark();
        // If the kernel reports its queue, that is more reliable; then reads that occupy all threads do not matter.
        let queued = self.device.waiting().map(|requests| requests.saturating_mul(REQUEST_PAGES));
        let idle = if queued.is_ok() { idle.max(SETTLING) } else { idle };
        let queued = queued.unwrap_or(u64::MAX);
        // The kernel's control file system may not be mounted; then the number of running requests is unknown. In this case,
        // no request for a while means that nothing is left, because the kernel sends the next one when one is done. Pages
        // arrive in the order of the queue, so later writes are not waited for.
        while self.device.waiting().unwrap_or(1) > 0 {
            let now = progress.mark();
            if all_came.is_none() && (now.pages - before.pages >= pages || now.pages - start.pages >= queued)
            {
                all_came = Some(now);
            }
            if !now.is_idle {
                idle_since = Instant::now();
            }
            if idle_since.elapsed() >= idle || all_came.is_some_and(|mark| progress.has_done(mark)) {
                return true;
            }
            if patience.is_over() {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
        true
    }

    fn covered(&self) -> MountError {
        MountError::Covered(self.point.clone())
    }

    fn take_down(&self, force: bool) -> Result<(), MountError> {
        match place::unmount(self.device, &self.point, UnmountFlags::empty()) {
            Err(MountError::Busy(_)) if force => {
                self.take_over();
                // This aborts the connection, but a busy mount stays in its place ...
                if place::unmount(self.device, &self.point, UnmountFlags::FORCE).is_err()
                    && self.place().is_ok_and(|place| place == Place::Here)
                {
                    // ... and this detaches it, even if the session has ended already.
                    place::detach(self.device, &self.point)?;
                }
                // Without root, the connection is not aborted yet. If this does not abort it, the session ends later by
                // itself.
                let _ = self.device.abort();
                Ok(())
            }
            other => other,
        }
    }

    /// Finds out how much of what programs write the kernel may hold. With `strict_limit` that is a bound of this file system
    /// alone, and the kernel says it; where it is off, only root can switch it on.
    pub(crate) fn look_at_cache(&self) {
        let folder = format!("/sys/class/bdi/{}", self.device);
        let _ = std::fs::write(format!("{folder}/strict_limit"), "1");
        let number = |name: &str| -> Option<u64> {
            std::fs::read_to_string(format!("{folder}/{name}")).ok()?.trim().parse().ok()
        };
        if number("strict_limit") == Some(1)
            && let Some(bytes) = number("max_bytes")
        {
            self.shared.kernel.limits.set_cache(bytes);
        }
    }

    /// Raises the kernel's read-ahead from its 128 KiB, where this process may.
    fn read_further_ahead(&self) {
        let path = format!("/sys/class/bdi/{}/read_ahead_kb", self.device);
        // Only root may: without it, more requests do the same work.
        let _ = std::fs::write(path, READ_AHEAD_KIB.to_string());
    }
}

impl std::fmt::Debug for Mounted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mounted({})", self.point.display())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(within) = &self.within {
            if let Err(error) = self.leave(within, true) {
                tracing::warn!(%error, "it is shown although nobody keeps it");
            }
        } else if let Err(error) = self.unmount_all(false) {
            tracing::warn!(%error, "taken out of sight instead");
            if self.place().is_ok_and(|place| place == Place::Here)
                && let Err(error) = place::detach(self.device, &self.point)
            {
                tracing::error!(%error, "still mounted");
            }
        }
    }
}
