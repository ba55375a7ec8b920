//! The pool property `multihost`: the machine that holds the pool writes this to the devices at intervals, so that no other
//! machine takes it. If it cannot do so in time, it stops writing to the pool.
//!
//! From:   commits, which give the newest uberblock and ask what to say in the next one.
//! To:     the last slot of an uberblock ring, on one device after another; [`storage::Fence`], which ends all writes.
//! Source: docs/format/11-redundancy.md §12; 01-labels-uberblock.md §5.

pub(crate) mod importer;

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar};
use std::thread::JoinHandle;
use std::time::Duration;

use format::Txg;
use format::uberblock::{Mmp, Uberblock};
use storage::host::Host;
use storage::rank::{MutexHeld, RankedMutex};
use storage::{Leaf, Storage};

use crate::options::{Options, Pace};
use crate::tx::Groups;
use crate::{Error, labels};

/// The pool property.
pub(crate) const PROPERTY: &str = "multihost";
/// Two heartbeats are not closer than this.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Time limit for heartbeats that are under way when the pool is closed.
const PATIENCE: Duration = Duration::from_secs(2);
/// Labels of a device.
const LABELS: u64 = 4;

/// The heartbeat of an open pool.
#[derive(Debug)]
pub(crate) struct Multihost {
    shared: Arc<Shared>,
    thread: RankedMutex<Option<JoinHandle<()>>>,
}

/// The state that the threads of the heartbeat share.
struct Shared {
    storage: Arc<Storage>,
    groups: Arc<Groups>,
    host: Host,
    hostid: u32,
    pace: Pace,
    state: RankedMutex<State>,
    changed: Condvar,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared({:?})", self.state)
    }
}

#[derive(Debug)]
struct State {
    /// Whether the next txg has heartbeats.
    is_wanted: bool,
    /// Whether the newest txg has heartbeats: then they are sent.
    is_on: bool,
    is_leaving: bool,
    /// The newest state of the pool.
    newest: Uberblock,
    /// Time and number of the last heartbeat.
    stamp: (Txg, u64, u16),
    /// The devices that did not take their last heartbeat yet.
    busy: BTreeSet<u64>,
    /// How many heartbeats were begun.
    begun: usize,
    /// The time when the last heartbeat that reached a device was begun.
    last: Duration,
    /// Mean time between heartbeats that reached a device.
    delay_ns: u64,
}

impl State {
    /// The next heartbeat. Its rank is above that of all before it in its txg.
    fn next(&mut self, now: u64, mmp: Mmp) -> Uberblock {
        let (txg, time, seq) = self.stamp;
        let now = now.max(self.newest.timestamp);
        self.stamp = match txg == self.newest.txg && now <= time {
            true if seq == u16::MAX => (txg, time + 1, 1),
            true => (txg, time, seq + 1),
            false => (self.newest.txg, now, 1),
        };
        let (_, timestamp, seq) = self.stamp;
        Uberblock { timestamp, mmp: Some(mmp.numbered(seq)), ..self.newest.clone() }
    }
}

impl Multihost {
    pub(crate) fn new(
        options: &Options,
        storage: Arc<Storage>,
        groups: Arc<Groups>,
        newest: Uberblock,
    ) -> Multihost {
        let state = State {
            is_wanted: false,
            is_on: false,
            is_leaving: false,
            stamp: (newest.txg, newest.timestamp, 0),
            newest,
            busy: BTreeSet::new(),
            begun: 0,
            last: Duration::ZERO,
            delay_ns: 0,
        };
        let shared = Shared {
            storage,
            groups,
            host: options.host.clone(),
            hostid: options.hostid,
            pace: options.multihost,
            state: RankedMutex::leaf(state),
            changed: Condvar::new(),
        };
        Multihost { shared: Arc::new(shared), thread: RankedMutex::default() }
    }

    /// The number of this machine.
    pub(crate) fn hostid(&self) -> u32 {
        self.shared.hostid
    }

    /// Whether the next txg says that heartbeats are sent. They begin or end with that txg.
    pub(crate) fn want(&self, is_wanted: bool) {
        self.shared.lock().is_wanted = is_wanted;
    }

    /// Begins the heartbeats of a pool that is being imported. No other machine held it at `since`, a monotonic time.
    pub(crate) fn begin(&self, since: Duration) {
        self.want(true);
        self.turn_on(since);
    }

    /// The heartbeat fields of the next txg's uberblock.
    pub(crate) fn of_txg(&self) -> Mmp {
        let state = self.shared.lock();
        if state.is_wanted { self.shared.mmp(&state) } else { Mmp::default() }
    }

    /// The pool has a new state.
    pub(crate) fn synced(&self, uberblock: &Uberblock) {
        let is_on = uberblock.mmp.is_some_and(Mmp::is_on);
        let was_on = {
            let mut state = self.shared.lock();
            state.newest = uberblock.clone();
            std::mem::replace(&mut state.is_on, is_on)
        };
        match (was_on, is_on) {
            (false, true) => self.turn_on(self.shared.host.clock.monotonic()),
            (true, false) => drop(self.shared.storage.fence().free()),
            _ => {}
        }
    }

    fn turn_on(&self, since: Duration) {
        let shared = &self.shared;
        shared.limit_from(since);
        let mut state = shared.lock();
        state.is_on = true;
        state.last = since;
        drop(state);
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let shared = shared.clone();
            let built = std::thread::Builder::new().name("cenote-multihost".into());
            *thread = Some(built.spawn(move || shared.beat()).expect("the system starts a thread"));
        }
    }

    /// Ends the heartbeats.
    pub(crate) fn leave(&self) {
        self.shared.lock().is_leaving = true;
        self.shared.changed.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the thread of the heartbeats panicked");
        }
        let state = self.shared.lock();
        let are_under_way = |state: &mut State| !state.busy.is_empty();
        drop(self.shared.wait_while(state, PATIENCE, are_under_way));
    }
}

impl Drop for Multihost {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Shared {
    fn lock(&self) -> MutexHeld<'_, State> {
        self.state.lock()
    }

    /// Waits while `waits` returns true, but not longer than `patience`.
    fn wait_while<'a>(
        &self,
        state: MutexHeld<'a, State>,
        patience: Duration,
        waits: impl FnMut(&mut State) -> bool,
    ) -> MutexHeld<'a, State> {
        state.wait(|state| {
            let waited = self.changed.wait_timeout_while(state, patience, waits);
            waited.expect("no code panics while holding this state").0
        })
    }

    fn mmp(&self, state: &State) -> Mmp {
        let least = self.pause().as_nanos() as u64;
        Mmp::alive(state.delay_ns.max(least), self.pace.interval_ms, self.pace.fail_intervals)
    }

    /// The time between two heartbeats.
    fn pause(&self) -> Duration {
        let with_labels = self.storage.vdevs().leaves().filter(|leaf| leaf.distributed().is_none());
        let leaves = with_labels.count().max(1) as u32;
        (self.pace.interval() / leaves).max(PAUSE_MIN.min(self.pace.interval()))
    }

    /// A heartbeat that began at `begun` reached a device: writes are allowed until the time limit after it.
    fn limit_from(&self, begun: Duration) {
        if let Some(limit) = self.pace.limit() {
            self.storage.fence().hold_until(&self.host.clock, begun + limit);
        }
    }

    /// The work of the thread, until the pool is closed, or no heartbeat reached a device in time.
    fn beat(self: Arc<Self>) {
        while self.wait_for_turn() {
            if self.storage.fence().has_passed() {
                tracing::error!("no heartbeat reached a device in time: the pool stops");
                self.groups.fail(Arc::new(Error::HeartbeatLost));
                self.storage.suspension().give_up();
                return;
            }
            let Some((uberblock, ashift, leaf)) = self.next_beat() else { continue };
            let (shared, guid) = (self.clone(), leaf.guid);
            let begun = self.host.clock.monotonic();
            // A device that does not answer must not delay the heartbeats on the others.
            let write = move || {
                let copy = shared.host.entropy.u64() % LABELS;
                let done = labels::write_heartbeat(&leaf, &uberblock, ashift, copy as usize);
                shared.has_ended(leaf.guid, begun, done);
            };
            if let Err(why) = std::thread::Builder::new().name("cenote-heartbeat".into()).spawn(write) {
                tracing::warn!(%why, "a heartbeat has no thread");
                self.lock().busy.remove(&guid);
            }
        }
    }

    /// Waits for the time of the next heartbeat. Returns whether the pool is still in use.
    fn wait_for_turn(&self) -> bool {
        let state = self.lock();
        let goes_on = |state: &mut State| !state.is_leaving;
        !self.wait_while(state, self.pause(), goes_on).is_leaving
    }

    /// The next heartbeat, and the device that gets it. `None` if heartbeats are off, or no device can take one now.
    fn next_beat(&self) -> Option<(Uberblock, u32, Leaf)> {
        let tops = self.storage.vdevs().tops();
        let leaves = tops.iter().flat_map(|top| top.written().map(move |leaf| (top.ashift, leaf)));
        // A distributed spare has no labels.
        let leaves: Vec<_> = leaves.filter(|(_, leaf)| leaf.distributed().is_none()).collect();
        let mut state = self.lock();
        if !state.is_on || leaves.is_empty() {
            return None;
        }
        state.begun = state.begun.wrapping_add(1);
        let first = state.begun % leaves.len();
        let in_order = leaves.iter().cycle().skip(first).take(leaves.len());
        let (ashift, leaf) = in_order.clone().find(|(_, leaf)| !state.busy.contains(&leaf.guid))?;
        let leaf = (*leaf).clone();
        state.busy.insert(leaf.guid);
        let mmp = self.mmp(&state);
        Some((state.next(self.host.clock.now().0, mmp), *ashift, leaf))
    }

    /// A heartbeat that began at `begun` has ended.
    fn has_ended(&self, guid: u64, begun: Duration, done: std::result::Result<(), storage::WriteError>) {
        let mut state = self.lock();
        state.busy.remove(&guid);
        match done {
            Ok(()) if begun > state.last => {
                let passed = (begun - state.last).as_nanos() as u64;
                let mean = (u128::from(passed) + 127 * u128::from(state.delay_ns)) / 128;
                state.delay_ns = passed.max(mean as u64);
                state.last = begun;
                // With heartbeats switched off there is no limit.
                if state.is_on {
                    self.limit_from(begun);
                }
            }
            Ok(()) => {}
            Err(why) => tracing::warn!(%why, "a device did not take a heartbeat"),
        }
        drop(state);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests;
