//! How many requests of each purpose a device carries out at once: a scrub does not keep readers waiting.
//!
//! From:   [`super::Metered`], through which every request to a device passes.
//! To:     the device. Requests beyond the limit of their purpose wait, in no order.
//! The limits and rules are those of OpenZFS (`zfs_vdev_*_min_active`, `zfs_vdev_*_max_active`, `zfs_vdev_nia_*`): work in the
//! background has its small share while a caller waits for the device, and more when none did for a while.

use std::sync::Condvar;

use crate::rank::{MutexHeld, RankedMutex};

use super::times::{PURPOSES, Purpose};

/// Requests that a device carries out at once, by purpose.
const ACTIVE_MAX: [u32; PURPOSES] = [10, 10, 3, 10, 3, 2];
/// Background requests that may run while a caller waits for the device.
const BACKGROUND_MIN: u32 = 1;
/// Requests of the background that must end, without a waiting caller, before it gets its full share.
const QUIET_AFTER: u32 = 5;
/// The number of background requests that may begin after a request with a waiting caller, while more such requests are
/// under way.
const CREDIT: u32 = 5;

const fn is_background(purpose: Purpose) -> bool {
    matches!(purpose, Purpose::Scrub | Purpose::Trim)
}

#[derive(Debug, Default)]
struct State {
    active: [u32; PURPOSES],
    /// Active requests that are not of the background.
    awaited: u32,
    /// While a caller waits for the device: requests of the background that may begin. Else: how many ended since.
    credit: u32,
    /// The device is closed: requests fail at once, so none waits.
    is_open_to_all: bool,
    /// Requests that wait.
    waiting: u32,
}

impl State {
    fn may_begin(&self, purpose: Purpose) -> bool {
        let most = ACTIVE_MAX[purpose as usize];
        let most = match is_background(purpose) {
            true if self.awaited > 0 => self.credit.min(BACKGROUND_MIN),
            true if self.credit < QUIET_AFTER => BACKGROUND_MIN,
            _ => most,
        };
        self.is_open_to_all || self.active[purpose as usize] < most
    }

    fn begin(&mut self, purpose: Purpose) {
        self.active[purpose as usize] += 1;
        if !is_background(purpose) {
            self.awaited += 1;
            if self.awaited == 1 {
                self.credit = 1;
            }
        } else if self.awaited > 0 {
            self.credit = self.credit.saturating_sub(1);
        }
    }

    fn end(&mut self, purpose: Purpose) {
        self.active[purpose as usize] -= 1;
        if !is_background(purpose) {
            self.awaited -= 1;
            self.credit = if self.awaited == 0 { 0 } else { CREDIT };
        } else if self.awaited == 0 {
            self.credit = self.credit.saturating_add(1);
        }
    }
}

/// Lets requests to one device begin.
#[derive(Debug, Default)]
pub(crate) struct Admission {
    state: RankedMutex<State>,
    ended: Condvar,
}

/// A request that has begun; it ends when this is dropped.
pub(crate) struct Admitted<'a> {
    by: &'a Admission,
    purpose: Purpose,
}

impl Admission {
    fn lock(&self) -> MutexHeld<'_, State> {
        self.state.lock()
    }

    /// Waits until a request of this purpose may begin.
    pub(crate) fn enter(&self, purpose: Purpose) -> Admitted<'_> {
        let mut state = self.lock();
        if !state.may_begin(purpose) {
            state.waiting += 1;
            let waits = |state: &mut State| !state.may_begin(purpose);
            state = state.wait(|state| {
                self.ended.wait_while(state, waits).expect("no code panics while holding this state")
            });
            state.waiting -= 1;
        }
        state.begin(purpose);
        Admitted { by: self, purpose }
    }

    /// A request of this purpose begins, if it needs not wait.
    pub(crate) fn try_enter(&self, purpose: Purpose) -> Option<Admitted<'_>> {
        let mut state = self.lock();
        state.may_begin(purpose).then(|| {
            state.begin(purpose);
            Admitted { by: self, purpose }
        })
    }

    /// From now on no caller waits.
    pub(crate) fn open_to_all(&self) {
        self.lock().is_open_to_all = true;
        self.ended.notify_all();
    }
}

impl Drop for Admitted<'_> {
    fn drop(&mut self) {
        let mut state = self.by.lock();
        state.end(self.purpose);
        let is_awaited = state.waiting > 0;
        drop(state);
        // Waking is a system call, and most requests end without a waiting thread.
        if is_awaited {
            self.by.ended.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::Leaf;
    use crate::host::{Fault, Script};

    fn begun(state: &mut State, purpose: Purpose) -> u32 {
        let mut count = 0;
        while count < 50 && state.may_begin(purpose) {
            state.begin(purpose);
            count += 1;
        }
        count
    }

    #[test]
    fn each_purpose_has_its_limit() {
        for (purpose, most) in [
            (Purpose::SyncRead, 10),
            (Purpose::SyncWrite, 10),
            (Purpose::AsyncRead, 3),
            (Purpose::AsyncWrite, 10),
        ] {
            assert_eq!(begun(&mut State::default(), purpose), most, "{purpose:?}");
        }
    }

    #[test]
    fn a_scrub_has_a_small_share_while_somebody_reads_and_all_of_its_own_later() {
        let mut state = State::default();
        state.begin(Purpose::SyncRead);
        state.begin(Purpose::SyncRead);
        assert_eq!(begun(&mut state, Purpose::Scrub), 1);
        state.end(Purpose::Scrub);
        assert_eq!(begun(&mut state, Purpose::Scrub), 0, "a reader comes first");
        state.end(Purpose::SyncRead);
        assert_eq!(begun(&mut state, Purpose::Scrub), 1);
        state.end(Purpose::Scrub);
        state.end(Purpose::SyncRead);
        for _ in 0..QUIET_AFTER {
            assert_eq!(begun(&mut state, Purpose::Scrub), 1, "readers may come back");
            state.end(Purpose::Scrub);
        }
        assert_eq!(begun(&mut state, Purpose::Scrub), 3);
        assert_eq!(begun(&mut state, Purpose::SyncRead), 10, "a scrub does not take the place of readers");
    }

    #[test]
    fn a_reader_is_served_while_a_scrub_asks_for_more_than_its_share() {
        let disk = Script::new().disk("a", 8 << 20);
        let leaf = Leaf::new(1, Arc::new(disk.clone()));
        let most = AtomicUsize::new(0);
        let active = || leaf.meter.admission.lock().active[Purpose::Scrub as usize] as usize;
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        leaf.read(Purpose::Scrub, 0, &mut [0; 512]).expect("readable");
                        most.fetch_max(active(), Ordering::Relaxed);
                    }
                });
            }
            for _ in 0..200 {
                leaf.read(Purpose::SyncRead, 0, &mut [0; 512]).expect("readable");
            }
        });
        assert!(most.load(Ordering::Relaxed) <= 3, "{most:?}");
        assert_eq!(active(), 0);
    }

    #[test]
    fn no_request_waits_for_a_closed_device() {
        let disk = Script::new().disk("a", 1 << 20);
        let leaf = Leaf::new(1, Arc::new(disk.clone()));
        disk.inject(Fault::Hang { from_op: 0 });
        std::thread::scope(|scope| {
            for _ in 0..12 {
                scope.spawn(|| leaf.read(Purpose::SyncRead, 0, &mut [0; 512]));
            }
            std::thread::sleep(Duration::from_millis(20));
            leaf.close();
            leaf.read(Purpose::SyncRead, 0, &mut [0; 512]).expect_err("it is closed");
            disk.heal();
        });
    }
}
