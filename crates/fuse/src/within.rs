//! A file system that has no mount of its own: it is shown in place of a directory of another one (decision 0027).
//!
//! Only this process can find out whether programs use it. A node that the kernel knows counts as used. So the kernel is
//! asked to forget the file system; the nodes that it still knows afterwards are used by programs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use zpl::rank::{MutexHeld, Rank, RankedMutex};
use zpl::session::{Covered, Slot};

use crate::shared::Shared;
use crate::snapdir::{Others, Snapshots};

/// After this many looks without a change, the nodes that the kernel has not forgotten count as used by programs. Looks
/// are counted rather than time, because on a busy machine the thread that looks gets as little time as the threads that
/// receive the reports.
const QUIET: u32 = 200;
/// The maximal number of looks while the kernel still forgets nodes.
const PATIENCE: u32 = 1000;
/// The time that running messages may take to end.
const SERVING: Duration = Duration::from_secs(30);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(1);

/// Where a file system is shown.
pub(crate) struct Within {
    /// The file system that has the directory.
    pub(crate) parent: Arc<Shared>,
    pub(crate) others: Arc<Others>,
    pub(crate) slot: Slot,
    /// `None` when it is shown no more.
    covered: RankedMutex<Option<Covered>>,
    is_over: AtomicBool,
}

impl Within {
    pub(crate) fn new(parent: Arc<Shared>, others: Arc<Others>, slot: Slot, covered: Covered) -> Within {
        Within {
            parent,
            others,
            slot,
            covered: RankedMutex::new(Rank::Covered, Some(covered)),
            is_over: AtomicBool::new(false),
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    fn covered(&self) -> MutexHeld<'_, Option<Covered>> {
        self.covered.lock()
    }

    /// Whether its directory was removed by an exchange of the parent, so that no path leads to it.
    pub(crate) fn is_hidden(&self) -> bool {
        let covered = self.covered();
        !self.is_over() && !covered.as_ref().is_some_and(|covered| self.parent.session.covers(covered))
    }

    /// Shows it in place of another directory, after it was hidden.
    pub(crate) fn show(&self, own: Arc<Shared>, covered: Covered) {
        let before = self.covered().replace(covered.clone());
        if let Some(before) = before {
            self.parent.trees.take_out(before.dir(), || true);
            self.parent.session.uncover(&before);
        }
        self.parent.trees.put(covered.dir(), own);
        self.parent.session.forget_cover(&covered);
    }

    /// Removes the file system from the mount if no program uses it; returns whether it did. `look` looks it up by its
    /// path, as programs do: if it is in use, the kernel's nodes lead to it again.
    pub(crate) fn leave(&self, own: &Shared, snapshots: &Snapshots, look: impl Fn()) -> bool {
        let Some(covered) = self.covered().clone() else { return self.is_over() };
        self.parent.session.forget_cover(&covered);
        let (mut left, mut quiet, mut looks) = (u64::MAX, 0, 0);
        let is_unused =
            || own.session.handles().is_empty() && own.trees.is_empty() && snapshots.are_forgotten();
        // The kernel reports forgotten nodes at times of its own choice.
        while !self.parent.trees.take_out(covered.dir(), is_unused) {
            let now = own.session.handles().len() + snapshots.open_count() as u64;
            // Messages of programs may delay the kernel's messages about forgotten nodes.
            let goes_on = now != left || !own.progress.mark().is_idle;
            (left, quiet, looks) = (now, if goes_on { 0 } else { quiet + 1 }, looks + 1);
            if quiet > QUIET || looks > PATIENCE || !own.trees.is_empty() {
                look();
                return false;
            }
            std::thread::sleep(PAUSE);
        }
        self.end(own, snapshots);
        self.others.places.free(self.slot);
        true
    }

    /// Removes the file system from the mount although programs use it: all their later calls fail.
    pub(crate) fn take_away(&self, own: &Shared, snapshots: &Snapshots) {
        if let Some(covered) = self.covered().clone() {
            self.parent.trees.take_out(covered.dir(), || true);
        }
        // The kernel still sends messages about its nodes.
        self.others.places.lose(self.slot);
        self.end(own, snapshots);
    }

    /// Closes it: no message reaches it any more.
    fn end(&self, own: &Shared, snapshots: &Snapshots) {
        self.is_over.store(true, Ordering::Release);
        drop(self.others.take_out(self.slot));
        if let Some(covered) = self.covered().take() {
            self.parent.session.uncover(&covered);
        }
        snapshots.clear();
        own.session.release_all();
        let Some(fs) = own.session.put_fs(None) else { return };
        fs.dataset().set_mounted_writable(false);
        let dataset = Arc::downgrade(fs.dataset());
        drop(fs);
        // Messages that are being served have it for a moment. The intent log has it until its changes are synced.
        let until = Instant::now() + SERVING;
        while dataset.strong_count() > 1 && Instant::now() < until {
            std::thread::sleep(PAUSE);
        }
    }
}
