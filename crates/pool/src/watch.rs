//! Devices that answer late, or not at all.
//!
//! From:   `server`, which looks at the devices now and then, and notifies clients before they read a device themselves.
//! To:     the requests that each leaf notes ([`storage::Meter`]). Looking waits for no device; only
//!         [`Pool::ask_devices`] sends a request of its own, from a thread. No caller waits longer than [`ANSWER`] for it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use format::Txg;
use storage::{Leaf, Request};

use crate::pool::{Inner, Pool};

/// A device that answers within this time counts as readable.
const ANSWER: Duration = Duration::from_secs(1);
/// How long a busy machine may take to begin with a question to a device.
const STARTS: Duration = Duration::from_secs(10);
/// A device that does not answer for this long, or for the pool's limit of slow requests, is reported.
const TELL: Duration = Duration::from_secs(10);
/// The shortest and the longest time between two looks at the devices.
const LOOKS: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(5)];

/// A device that does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silent {
    /// Guid of the leaf.
    pub guid: u64,
    /// The device.
    pub path: PathBuf,
    /// The kind of the request: `read`, `write`, `flush` or `trim`.
    pub deed: &'static str,
    /// How long ago it was asked.
    pub since: Duration,
}

/// A txg that takes longer than the tunable `zfs_deadman_synctime_ms` to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowSync {
    /// The txg.
    pub txg: Txg,
    /// How long it has been written.
    pub since: Duration,
}

/// Result of one look at the devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Noticed {
    /// A device does not answer.
    Silent(Silent),
    /// The device answers again.
    Answers(PathBuf),
    /// A txg is not written yet.
    SlowSync(SlowSync),
}

/// Looks at the devices of a pool, and does not keep the pool open.
#[derive(Debug)]
pub struct DeviceWatch {
    inner: Weak<Inner>,
    /// Devices that were reported as silent.
    told: BTreeSet<u64>,
    /// The last txg that was reported as slow.
    slow: Txg,
}

fn silent(leaf: &Leaf, limit: Duration) -> Option<Silent> {
    let Request { deed, took, .. } = leaf.meter.oldest().filter(|request| request.took >= limit)?;
    let path = leaf.disk.path().to_path_buf();
    Some(Silent { guid: leaf.guid, path, deed: deed.word(), since: took })
}

impl Inner {
    /// Adds events for requests that were answered late since the last call, and for unanswered ones.
    pub(crate) fn note_late_answers(&self) {
        let deadman = self.groups.limits.deadman();
        for leaf in self.storage.vdevs().leaves() {
            for request in leaf.meter.take_slow() {
                self.note_request("delay", leaf, &request);
            }
            if let Some(request) = leaf.meter.overdue(deadman) {
                self.note_request("deadman", leaf, &request);
            }
        }
    }

    /// The txg whose sync takes too long. Suspended pools are reported elsewhere.
    fn slow_sync(&self) -> Option<SlowSync> {
        let (txg, since) = self.groups.writing()?;
        let is_slow = since >= self.groups.limits.deadman_sync() && self.suspension().refused().is_none();
        is_slow.then_some(SlowSync { txg, since })
    }

    fn note_slow_sync(&self, slow: SlowSync) {
        let mut event = self.event("ereport.fs.zfs.deadman");
        event.insert("pool_failmode", self.suspension().mode().word());
        event.insert("txg", slow.txg.0);
        event.insert("sync_time", u64::try_from(slow.since.as_nanos()).unwrap_or(u64::MAX));
        self.events.post(event);
    }

    /// How long a device may be silent before it is reported.
    fn tell_after(&self) -> Duration {
        TELL.min(self.groups.limits.slow_io())
    }
}

impl Pool {
    /// The silent devices to report.
    #[must_use]
    pub fn silent_devices(&self) -> Vec<Silent> {
        let limit = self.inner.tell_after();
        self.inner.storage.vdevs().leaves().filter_map(|leaf| silent(leaf, limit)).collect()
    }

    /// The txg that has been syncing for so long that it is reported.
    #[must_use]
    pub fn slow_sync(&self) -> Option<SlowSync> {
        self.inner.slow_sync()
    }

    /// Asks each device that has nothing to do, and gives those that do not answer within a second.
    #[must_use]
    pub fn ask_devices(&self) -> Vec<Silent> {
        let began = Instant::now();
        let leaves: Vec<&Leaf> = self.inner.storage.vdevs().leaves().collect();
        let has_answered = |leaf: &Leaf| leaf.meter.answered().is_some_and(|at| at >= began);
        let mut unasked = BTreeSet::new();
        // One that works on requests is not sent another one: it shows whether it answers.
        for leaf in leaves.iter().filter(|leaf| leaf.meter.oldest().is_none()) {
            let disk = leaf.disk.clone();
            // If no thread can be started, the device counts as one that answers.
            if std::thread::Builder::new().name("cenote-ask".into()).spawn(move || disk.ask()).is_err() {
                unasked.insert(leaf.guid);
            }
        }
        let mut pause = Duration::from_micros(50);
        loop {
            let found: Vec<Silent> = leaves.iter().filter_map(|leaf| silent(leaf, ANSWER)).collect();
            let is_silent = |leaf: &Leaf| found.iter().any(|silent| silent.guid == leaf.guid);
            let waits =
                |leaf: &&Leaf| !has_answered(leaf) && !is_silent(leaf) && !unasked.contains(&leaf.guid);
            if began.elapsed() > ANSWER + STARTS || !leaves.iter().any(waits) {
                return found;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LOOKS[0]);
        }
    }

    /// For a process that watches the devices while the pool is open.
    #[must_use]
    pub fn watch_devices(&self) -> DeviceWatch {
        DeviceWatch { inner: Arc::downgrade(&self.inner), told: BTreeSet::new(), slow: Txg(0) }
    }
}

impl DeviceWatch {
    /// Looks at the devices and adds events. Returns new findings and the time until the next look; `None` when the pool is
    /// closed.
    pub fn look(&mut self) -> Option<(Vec<Noticed>, Duration)> {
        let inner = self.inner.upgrade()?;
        inner.note_late_answers();
        let mut news = Vec::new();
        for leaf in inner.storage.vdevs().leaves() {
            match silent(leaf, inner.tell_after()) {
                Some(silent) if self.told.insert(leaf.guid) => news.push(Noticed::Silent(silent)),
                None if self.told.remove(&leaf.guid) => {
                    news.push(Noticed::Answers(leaf.disk.path().to_path_buf()));
                }
                _ => {}
            }
        }
        if let Some(slow) = inner.slow_sync().filter(|slow| slow.txg > self.slow) {
            self.slow = slow.txg;
            inner.note_slow_sync(slow);
            news.push(Noticed::SlowSync(slow));
        }
        let limits = &inner.groups.limits;
        let shortest = inner.tell_after().min(limits.deadman()).min(limits.deadman_sync());
        Some((news, (shortest / 4).clamp(LOOKS[0], LOOKS[1])))
    }
}
