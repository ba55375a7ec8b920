//! Facts that only the process with the open pool knows: the state of its devices, and background work.
//!
//! From:   the live pool.
//! To:     clients, which read all else from the devices themselves.

use std::path::PathBuf;
use std::time::Duration;

use format::config::{VdevConfig, VdevKind};
use format::rebuild::Rebuild;
use format::scan::Scan;
use format::{Corrupt, ObjectId};
use pool::Pool;
use scan::{DataError, ScanStatus, Scans as _};
use serde::{Deserialize, Serialize};

/// Maximal number of damaged blocks listed in one message; all are counted.
const LOST_MAX: usize = 10_000;

/// The figures of a live pool at one time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figures {
    /// Read, write and checksum errors of each leaf, by its guid.
    pub errors: Vec<(u64, [u64; 3])>,
    /// Bytes of destroyed datasets that are still to be freed.
    pub freeing: u64,
    /// Why the pool takes no changes; `None` if it does.
    #[serde(default)]
    pub halted: Option<Halted>,
    /// Devices whose files were deleted, with a path that still shows their contents.
    #[serde(default)]
    pub deleted: Vec<(PathBuf, PathBuf)>,
    /// Devices whose paths lead elsewhere now, with their present paths.
    #[serde(default)]
    pub moved: Vec<(PathBuf, PathBuf)>,
    /// A txg whose sync takes too long, and its duration in seconds.
    #[serde(default)]
    pub slow_sync: Option<(u64, u64)>,
    /// Why the server cannot write its log.
    #[serde(default)]
    pub log: Option<String>,
    /// Requests that took each leaf too long, by its guid.
    #[serde(default)]
    pub slow: Vec<(u64, u64)>,
    /// Devices that do not answer.
    #[serde(default)]
    pub silent: Vec<Silence>,
    /// How each leaf takes part.
    #[serde(default)]
    pub members: Vec<MemberFigures>,
    /// Bytes of devices whose free space is still to be overwritten, and to be trimmed.
    #[serde(default)]
    pub untreated: [u64; 2],
    /// Bytes that a checkpoint kept and that are still to be freed.
    #[serde(default)]
    pub discarding: u64,
    /// A device is being replaced, or a spare is being filled.
    #[serde(default)]
    pub replaces: bool,
    /// Bytes that are still to be copied from a vdev that is being removed; at least one while that goes on.
    #[serde(default)]
    pub unmoved: u64,
    /// Bytes of a raidz vdev that still are to be moved because it got a device; at least one while that goes on.
    #[serde(default)]
    pub unreflowed: u64,
    /// Bytes that each cache device holds, by its guid.
    #[serde(default)]
    pub caches: Vec<(u64, u64)>,
    /// A device does not answer, so scan states and damaged blocks were not read.
    #[serde(default)]
    pub is_unread: bool,
    scan: Option<ScanFigures>,
    /// The last sequential rebuild of each top-level vdev that had one, by its id.
    #[serde(default)]
    rebuilds: Vec<(u32, Vec<u64>)>,
    lost: Vec<(u64, u64, i64, u64, u64)>,
}

/// A pool that takes no changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Halted {
    /// `zpool clear` retries the refused writes. Without it, nothing is written until the next import.
    pub can_resume: bool,
    /// The pool property `failmode`.
    pub failmode: String,
    /// The device's or the pool's reason.
    pub why: String,
}

/// A device that does not answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silence {
    /// Guid of the leaf.
    pub guid: u64,
    /// The device.
    pub path: PathBuf,
    /// The kind of the request: `read`, `write`, `flush` or `trim`.
    pub deed: String,
    /// Seconds since then.
    pub seconds: u64,
}

/// How a leaf takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberFigures {
    /// Guid of the leaf.
    pub guid: u64,
    /// Its device is open.
    pub is_open: bool,
    /// An administrator took it offline.
    pub is_offline: bool,
    /// It is not written any more, because its device returned an error or an administrator marked it as faulted.
    pub failed: bool,
    /// An administrator called it faulty.
    #[serde(default)]
    pub is_faulted: bool,
    /// It misses some txgs.
    pub is_behind: bool,
}

impl From<pool::Member> for MemberFigures {
    fn from(member: pool::Member) -> MemberFigures {
        let pool::Member { guid, is_open, is_offline, is_faulted, failed, is_behind } = member;
        let failed = failed.is_some() || is_faulted;
        MemberFigures { guid: guid.0, is_open, is_offline, failed, is_faulted, is_behind }
    }
}

impl From<pool::Silent> for Silence {
    fn from(silent: pool::Silent) -> Silence {
        let pool::Silent { guid, path, deed, since } = silent;
        Silence { guid, path, deed: deed.to_owned(), seconds: since.as_secs() }
    }
}

impl std::fmt::Display for Silence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Silence { path, deed, seconds, .. } = self;
        write!(f, "'{}' does not answer: a {deed} was sent {seconds} s ago", path.display())
    }
}

impl From<pool::Trouble> for Halted {
    fn from(trouble: pool::Trouble) -> Halted {
        let pool::Trouble { can_resume, failmode, why } = trouble;
        Halted { can_resume, failmode: failmode.to_owned(), why }
    }
}

/// A scan: its state on disk, and values that are only in memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct ScanFigures {
    words: Vec<u64>,
    running: bool,
    paused_at: u64,
}

impl Figures {
    /// Those of an open pool.
    ///
    /// # Errors
    /// The scan state or the error log cannot be read.
    pub fn of(pool: &Pool) -> pool::Result<Figures> {
        let halted = pool.trouble().map(Halted::from);
        if !pool.ask_devices().is_empty() {
            return Ok(Figures { is_unread: true, ..Figures::in_memory(pool, halted) });
        }
        // A device that refuses writes may refuse reads, too. The suspension is reported even then.
        let optional = |error| if halted.is_some() { Ok(()) } else { Err(error) };
        let scan = pool.scan().or_else(|error| optional(error).map(|()| None))?.map(|status| ScanFigures {
            words: status.scan.to_words().to_vec(),
            running: status.running,
            paused_at: status.paused_at,
        });
        let numbers = |e: DataError| (e.dataset.0, e.object.0, e.level, e.blkid, e.birth);
        Ok(Figures {
            deleted: pool.deleted_devices(),
            moved: pool.moved_devices(),
            untreated: pool.untreated().or_else(|error| optional(error).map(|()| [0; 2]))?,
            unmoved: pool.unmoved().or_else(|error| optional(error).map(|()| 0))?,
            unreflowed: pool.unreflowed().or_else(|error| optional(error).map(|()| 0))?,
            freeing: pool.freeing_now().or_else(|error| optional(error).map(|()| 0))?,
            scan,
            rebuilds: pool
                .rebuilds()
                .or_else(|error| optional(error).map(|()| Vec::new()))?
                .into_iter()
                .map(|(vdev, rebuild)| (vdev, rebuild.to_words().to_vec()))
                .collect(),
            lost: pool
                .data_errors()
                .or_else(|error| optional(error).map(|()| Vec::new()))?
                .into_iter()
                .take(LOST_MAX)
                .map(numbers)
                .collect(),
            ..Figures::in_memory(pool, halted)
        })
    }

    /// Facts that need no read from a device.
    fn in_memory(pool: &Pool, halted: Option<Halted>) -> Figures {
        Figures {
            errors: pool.device_errors(),
            slow: pool.slow_requests(),
            caches: pool.cache_devices().iter().map(|cache| (cache.guid.0, cache.used)).collect(),
            silent: pool.silent_devices().into_iter().map(Silence::from).collect(),
            members: pool.members().into_iter().map(MemberFigures::from).collect(),
            deleted: Vec::new(),
            moved: Vec::new(),
            slow_sync: pool.slow_sync().map(|slow| (slow.txg.0, slow.since.as_secs())),
            log: crate::log::trouble(),
            is_unread: false,
            discarding: discarding(pool),
            replaces: replaces(pool),
            untreated: [0; 2],
            unmoved: 0,
            unreflowed: 0,
            freeing: 0,
            scan: None,
            rebuilds: Vec::new(),
            lost: Vec::new(),
            halted,
        }
    }

    /// The last scrub or resilver, with its progress since the state was written.
    ///
    /// # Errors
    /// The received bytes are no scan state.
    pub fn scan(&self) -> Result<Option<ScanStatus>, Corrupt> {
        let Some(ScanFigures { words, running, paused_at }) = &self.scan else { return Ok(None) };
        let (running, paused_at) = (*running, *paused_at);
        Ok(Some(ScanStatus { scan: Scan::from_words(words)?, running, paused_at }))
    }

    /// The last sequential rebuild of each top-level vdev that had one, by its id.
    ///
    /// # Errors
    /// The received bytes are no state of a rebuild.
    pub fn rebuilds(&self) -> Result<Vec<(u32, Rebuild)>, Corrupt> {
        self.rebuilds.iter().map(|(vdev, words)| Ok((*vdev, Rebuild::from_words(words)?))).collect()
    }

    /// Blocks without a good copy.
    #[must_use]
    pub fn lost(&self) -> Vec<DataError> {
        let error = |&(dataset, object, level, blkid, birth): &(u64, u64, i64, u64, u64)| DataError {
            dataset: ObjectId(dataset),
            object: ObjectId(object),
            level,
            blkid,
            birth,
        };
        self.lost.iter().map(error).collect()
    }
}

/// Counters of the requests to the devices of an open pool since its import.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Counters {
    /// How long ago that was.
    pub uptime: Duration,
    /// Of each leaf, by its guid.
    pub leaves: Vec<(u64, LeafCounters)>,
}

/// Counters of one leaf, as words that `storage` reads again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LeafCounters {
    /// How often, how much.
    pub stats: [u64; 8],
    /// Histograms of latency and request size.
    pub times: Vec<u64>,
}

impl Counters {
    /// Those of an open pool.
    #[must_use]
    pub fn of(pool: &Pool) -> Counters {
        let leaves = pool.leaves();
        let counted = leaves.map(|leaf| {
            let (stats, times) = (leaf.meter.stats().to_words(), leaf.meter.times().to_words());
            (leaf.guid, LeafCounters { stats, times })
        });
        let caches = pool.cache_devices();
        let cached = caches.iter().map(|cache| {
            (cache.guid.0, LeafCounters { stats: cache.io.to_words(), times: cache.times.to_words() })
        });
        Counters { uptime: pool.uptime(), leaves: counted.chain(cached).collect() }
    }
}

/// Bytes of a checkpoint that are still to be freed while it is discarded; at least one as long as that runs.
fn discarding(pool: &Pool) -> u64 {
    let given_up = pool.checkpointed().filter(|checkpoint| checkpoint.created.is_none());
    given_up.map_or(0, |checkpoint| checkpoint.bytes.max(1))
}

/// Whether a vdev is in the middle of a replacement. A spare that has everything is not.
fn replaces(pool: &Pool) -> bool {
    let members = pool.members();
    let is_behind = |vdev: &VdevConfig| {
        vdev.leaves().any(|leaf| members.iter().any(|member| member.guid == leaf.guid && member.is_behind))
    };
    pool.info().config.tree.walk().any(|vdev| match vdev.kind {
        VdevKind::Replacing => true,
        VdevKind::Spare => vdev.children.len() > 2 || vdev.children.last().is_some_and(is_behind),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use format::Txg;

    #[test]
    fn figures_survive_a_round_trip_between_server_and_client() {
        let scan = Scan::begin(ObjectId(7), Txg(9), 1_000_000, 4 << 30);
        let words = scan.to_words().to_vec();
        let sent = Figures {
            untreated: [1, 2],
            discarding: 3,
            replaces: true,
            unmoved: 3,
            unreflowed: 4,
            errors: vec![(u64::MAX, [1, 2, 3])],
            freeing: 5,
            halted: Some(Halted { can_resume: true, failmode: "wait".into(), why: "full".into() }),
            deleted: vec![("/disk".into(), "/proc/1/fd/3".into())],
            moved: vec![("/disk".into(), "/other".into())],
            slow_sync: Some((9, 601)),
            log: Some("full".into()),
            slow: vec![(7, 2)],
            members: Vec::new(),
            caches: vec![(3, 4096)],
            is_unread: false,
            silent: vec![Silence { guid: 7, path: "/disk".into(), deed: "write".into(), seconds: 31 }],
            scan: Some(ScanFigures { words, running: true, paused_at: 0 }),
            rebuilds: vec![(3, vec![1; format::rebuild::WORDS])],
            lost: vec![(54, 2, -1, 0, 8)],
        };
        let text = serde_json::to_string(&sent).unwrap();
        let mut got: Figures = serde_json::from_str(&text).unwrap();
        assert_eq!(got.caches, sent.caches);
        assert_eq!((&got.errors, got.freeing, &got.halted), (&sent.errors, 5, &sent.halted));
        assert_eq!(got.scan().unwrap(), Some(ScanStatus { scan, running: true, paused_at: 0 }));
        let rebuilds = got.rebuilds().unwrap();
        assert!(rebuilds[0].0 == 3 && rebuilds[0].1.is_active(), "{rebuilds:?}");
        assert_eq!((&got.deleted, &got.moved), (&sent.deleted, &sent.moved));
        assert_eq!((got.slow_sync, &got.log), (sent.slow_sync, &sent.log));
        assert_eq!((&got.slow, &got.silent), (&sent.slow, &sent.silent));
        assert_eq!(got.silent[0].to_string(), "'/disk' does not answer: a write was sent 31 s ago");
        let lost = got.lost();
        assert_eq!((lost.len(), lost[0].dataset, lost[0].level), (1, ObjectId(54), -1));
        got.scan.as_mut().unwrap().words.pop();
        assert!(got.scan().is_err());
    }
}
