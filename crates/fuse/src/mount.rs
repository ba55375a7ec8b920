//! Mounting and unmounting.
//!
//! Root mounts by itself; everybody else through the setuid program `fusermount3`.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fuser::{Config, SessionACL};
use rustix::mount::UnmountFlags;
use zpl::{Filesystem, SnapshotKey};

use crate::attach::{attach, attach_again};
use crate::bridge::Bridge;
use crate::device::{Device, Place};
use crate::ending::{AtTheEnd, Ended, Waited};
use crate::error::{Keeper, MountError};
use crate::keeper;
use crate::options::MountOptions;
use crate::place;
use crate::point::MountPoint;
use crate::progress::{Mark, Patience, pages_to_come};
use crate::seats::Seats;
use crate::seeker::Seeker;
use crate::shared::Shared;
use crate::snapdir::{Router, Snapshots};

/// KiB that the kernel reads ahead of a sequential reader, in requests that several threads serve: records are
/// decompressed on all cores before the reader arrives, and the page cache bounds what that takes.
const READ_AHEAD_KIB: u32 = 8 << 10;
/// Whoever may not enter is kept out by the kernel itself. What the kernel does on its own, such as writing back the
/// times of a file, it does as root, whoever mounted.
const SESSION_ACL: SessionACL = SessionACL::All;
/// Between two looks at whether something is under way.
const PAUSE: Duration = Duration::from_micros(200);
/// Pages in the largest message.
const REQUEST_PAGES: u64 = 256;
/// How long the kernel must bring nothing, if it does not say that it holds nothing back, before its connection is cut ...
const SETTLING: Duration = Duration::from_secs(1);
/// ... and, if it says nothing at all, before a command looks at what was written.
const SETTLED: Duration = Duration::from_millis(100);
/// How long the session may take to end when the mount was taken down: others may have it, too.
const ENDING: Duration = Duration::from_secs(10);
/// After this time a process that is seen to have the mount is not waited for. Programs that start or end in a namespace of
/// their own have it for less.
const KEPT: Duration = Duration::from_secs(1);
/// How long a pool may do nothing at all for messages that somebody waits for.
const STUCK: Duration = Duration::from_secs(30);

/// What the kernel may hold back of what programs wrote to a mount.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// What had come.
    before: Mark,
    /// At most so many pages.
    pages: u64,
}

/// A file system that is mounted. Dropping it unmounts, or, if it is busy, takes it out of sight.
pub struct Mounted {
    point: PathBuf,
    device: Device,
    shared: Arc<Shared>,
    snapshots: Arc<Snapshots>,
    ended: Arc<Ended>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// How the session works. What the mount is like, the kernel was told when it was made.
fn config(options: &MountOptions) -> Config {
    let mut config = Config::default();
    config.acl = SESSION_ACL;
    config.n_threads = Some(options.thread_count());
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

/// Mounts `fs` on the directory `at`, and frees what was unlinked but open when the pool was last used. A file system
/// that cannot be written is mounted read-only.
///
/// # Errors
/// [`MountError`].
pub fn mount_on(fs: Filesystem, at: &MountPoint, options: &MountOptions) -> Result<Mounted, MountError> {
    let point = at.path().to_owned();
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
    let threads = options.thread_count();
    let writeback = options.writeback && !options.read_only;
    let shared = Arc::new(Shared::new(fs, &options, writeback));
    let refused = |source| MountError::Mount { point: point.clone(), source };
    let seeker = Arc::new(Seeker::start().map_err(refused)?);
    let snapshots = Snapshots::new(shared.clone(), seeker.clone(), threads);
    let bridge = Bridge { shared: shared.clone(), seeker, seats: Seats::new(threads) };
    let router = Router::new(bridge, snapshots.clone());
    // Made here and not by the session, which would unmount by path at its end: what is there by then may be another's.
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
        // Also when it panics: the connection must not outlive who serves it.
        let _at_the_end = AtTheEnd(at_the_end);
        if let Err(error) = session.run() {
            tracing::error!(%error, "a mount ended");
        }
        if let Ok(fs) = served.fs() {
            fs.dataset().set_mounted_writable(false);
        }
    });
    let thread = Mutex::new(Some(thread.map_err(refused)?));
    let mounted = Mounted { point, device, shared, snapshots, ended, thread };
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

    /// What the mount shows. The session tells the kernel of changes that were made past the mount.
    #[must_use]
    pub fn session(&self) -> &Arc<zpl::Session> {
        &self.shared.session
    }

    /// The file system, as long as it is not exchanged for another one: `None` if that one could not be opened.
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

    /// A snapshot, called `name` now, is about to be destroyed: the kernel forgets it, and it is closed, also where it was
    /// of this file system once and is another's now. If somebody uses it, it is open after this. Waits for a fraction
    /// of a second then.
    pub fn let_go_of_snapshot(&self, key: SnapshotKey, name: &[u8]) {
        self.snapshots.let_go(key, name);
    }

    /// None of its snapshots is called `name` any more.
    pub fn renamed_snapshot(&self, name: &[u8]) {
        self.snapshots.renamed(name);
    }

    /// How many of its snapshots are open because somebody looks, or looked, into them.
    #[must_use]
    pub fn open_snapshots(&self) -> usize {
        self.snapshots.open_count()
    }

    /// Properties of the dataset may have changed: the kernel is told what it must know of that. How it is mounted stays.
    pub fn look_at_properties(&self) {
        self.snapshots.look_at_property();
    }

    /// Whether the property `acltype` has changed since it was mounted: whether there are POSIX ACLs, the kernel is told
    /// only once.
    #[must_use]
    pub fn has_other_acls(&self) -> bool {
        self.filesystem().is_some_and(|fs| {
            let dataset = fs.dataset();
            !dataset.is_snapshot() && dataset.settings().posix_acl != self.shared.session.had_acls()
        })
    }

    /// The number of the mounted file system, as `st_dev` and `/proc/self/mountinfo` have it. It may be another's when
    /// this session is over.
    #[must_use]
    pub fn device(&self) -> (u32, u32) {
        self.device.number()
    }

    /// Whether it is still mounted: somebody else may unmount it, too.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !self.ended.is_over()
    }

    /// Whether somebody took it down this moment: the kernel asks nothing more, but not all is done that it asked.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.is_alive() && self.ended.is_cut()
    }

    /// Waits until it is unmounted, by whomever.
    ///
    /// # Panics
    /// If a thread that served it panicked while ending.
    pub fn wait(&self) {
        self.ended.wait();
    }

    /// Changes how it is mounted: when access times are kept, and, as root, whether it may be written and the other
    /// options that the kernel decides (`exec`, `setuid`, `devices`). The rest stays.
    ///
    /// # Errors
    /// [`MountError::Remount`], without root with the kernel's `EPERM`: all is as before; [`MountError::Busy`] when a
    /// file is open for writing that is to become read-only; [`MountError::Covered`].
    pub fn set_options(&self, options: &MountOptions) -> Result<(), MountError> {
        let point = || self.point.clone();
        match self.place() {
            Ok(Place::Here) => {}
            Ok(Place::Covered) => return Err(MountError::Covered(point())),
            Ok(Place::Gone) => return Err(MountError::Elsewhere { point: point(), keeper: None }),
            Err(source) => return Err(MountError::Remount { point: point(), source }),
        }
        let Some(fs) = self.filesystem() else { return Err(MountError::Stuck(point())) };
        let dataset = fs.dataset();
        let before = self.shared.session.lifts_read_only();
        // Programs may write as soon as the kernel lets them, and until it does not.
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

    /// Access times are kept as these options say from now on; the kernel is told nothing.
    pub fn set_atime(&self, options: &MountOptions) {
        self.shared.session.set_settings(&options.settings());
    }

    /// How much the kernel holds back at this moment. Taken before [`Mounted::write_back`], for [`Mounted::settle`].
    #[must_use]
    pub fn held(&self) -> Held {
        Held { before: self.shared.progress.mark(), pages: pages_to_come() }
    }

    /// Has the kernel hand over what programs have written and it still holds back. It is on its way then:
    /// [`Mounted::settle`] waits for it.
    ///
    /// # Errors
    /// The mount is gone, or a write failed.
    pub fn write_back(&self) -> io::Result<()> {
        place::write_back(self.device, &self.point)
    }

    /// Waits until what the kernel held back has come and is served, however long the pool takes for it; `since` is
    /// when it was told to hand it over. Gives whether it is: if not, the pool takes nothing.
    #[must_use]
    pub fn settle(&self, held: Held, since: Instant) -> bool {
        !self.shared.writeback || self.take_in(held, since, SETTLED)
    }

    /// Mounts it once more at the place that it had, although it was unmounted there while programs had files open
    /// (`umount -l`). They and those who find it at its place share one file system.
    ///
    /// # Errors
    /// It had another place, or was mounted so that this cannot be changed; the session is over; this process or this
    /// kernel cannot do it.
    pub fn mount_again(&self, at: &MountPoint, options: &MountOptions) -> io::Result<()> {
        let session = &self.shared.session;
        if at.path() != self.point || session.read_only() != options.read_only || self.has_other_acls() {
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
        self.device.place(&self.point)
    }

    /// Unmounts. With `force` even while programs use it: what they wrote is kept, what they do afterwards fails.
    ///
    /// # Errors
    /// [`MountError::Busy`]; [`MountError::Covered`]; [`MountError::Elsewhere`], when it is gone from here but goes on
    /// for others; [`MountError::Stuck`]; [`MountError::Unmount`].
    ///
    /// # Panics
    /// If another thread panicked while it unmounted this.
    pub fn unmount(&self, force: bool) -> Result<(), MountError> {
        let failed =
            |error: io::Error| MountError::Unmount { point: self.point.clone(), reason: error.to_string() };
        match self.place().map_err(failed)? {
            // Its connection was cut: what is left answers nobody. (Its number may have gone to another since.)
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
            // Whoever took it down: it ends by itself, or is held elsewhere.
            Place::Gone => {}
        }
        self.wait_unmounted(force)
    }

    /// Waits for the end of a mount that is out of sight. With `force`, programs that still use it lose the files that they
    /// have open: what they wrote is kept, what they do afterwards fails.
    ///
    /// # Errors
    /// [`MountError::Elsewhere`], when it goes on for others; [`MountError::Stuck`].
    ///
    /// # Panics
    /// If another thread panicked while it unmounted this.
    pub fn wait_unmounted(&self, force: bool) -> Result<(), MountError> {
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
        let thread = self.thread.lock().expect("no code panics while holding the thread").take();
        if let Some(thread) = thread {
            // What it had to say it has logged.
            let _ = thread.join();
        }
        Ok(())
    }

    /// Waits for the end of the session, as long as what was taken from the kernel is being worked off. Somebody who is
    /// seen to keep the mount is waited for only a moment, and nobody is with `force`: the connection can be cut.
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

    /// Grows as long as messages are worked off, or the pool writes: it may write for minutes before it takes more.
    fn moved(&self) -> u64 {
        self.shared.progress.done() + self.filesystem().map_or(0, |fs| fs.dataset().writes())
    }

    /// Takes over what the kernel holds back of what programs wrote until now: whatever it has not handed over is lost
    /// when the connection ends. As long as it hands something over it is waited for.
    fn take_over(&self) {
        let held = self.held();
        // What the kernel has not queued yet it queues now, behind all else.
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

    /// Waits until what the kernel held back has come and is served; gives whether it is. Nothing more comes when the
    /// kernel says so, or brought nothing for `idle`.
    fn take_in(&self, Held { before, pages }: Held, since: Instant, idle: Duration) -> bool {
        let progress = &self.shared.progress;
        let mut patience = Patience::new(STUCK, || self.moved());
        let mut idle_since = since;
        let mut all_came = None;
        let start = progress.mark();
        // What is queued is known better where the kernel says it; then readers who keep all threads are no sign either.
        let queued = self.device.waiting().map(|requests| requests.saturating_mul(REQUEST_PAGES));
        let idle = if queued.is_ok() { idle.max(SETTLING) } else { idle };
        let queued = queued.unwrap_or(u64::MAX);
        // Where the kernel does not say how much is under way (its control file system need not be mounted), it has nothing
        // more when it brings nothing: it hands the next over when one is done. Pages come in the order in which they
        // were queued: who writes on without end is not waited for.
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
                // This ends the connection, but leaves a busy mount in its place ...
                if place::unmount(self.device, &self.point, UnmountFlags::FORCE).is_err()
                    && self.place().is_ok_and(|place| place == Place::Here)
                {
                    // ... which this takes away, also when the session has ended already.
                    place::detach(self.device, &self.point)?;
                }
                // Without root nothing has ended the connection yet; where this does not either, time tells.
                let _ = self.device.abort();
                Ok(())
            }
            other => other,
        }
    }

    /// Finds out how much of what programs write the kernel may hold. With `strict_limit` that is a bound of this file system
    /// alone, and the kernel says it; where it is off, only root can switch it on.
    fn look_at_cache(&self) {
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
        if let Err(error) = self.unmount(false) {
            tracing::warn!(%error, "taken out of sight instead");
            if self.place().is_ok_and(|place| place == Place::Here)
                && let Err(error) = place::detach(self.device, &self.point)
            {
                tracing::error!(%error, "still mounted");
            }
        }
    }
}
