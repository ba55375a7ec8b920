//! The import of a pool with `multihost` on: waits to see whether another machine holds the pool, and then claims it.
//!
//! From:   the uberblocks of its devices, read again and again.
//! To:     `import`, which continues only if no other machine changed them; [`super::Multihost`], whose heartbeats follow the claim.
//! Source: docs/format/11-redundancy.md §12; 01-labels-uberblock.md §6.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use format::config::{PoolConfig, PoolState, VdevConfig, VdevKind};
use format::uberblock::{Mmp, Uberblock};
use storage::host::Disk;
use storage::{Storage, TopVdev};

use crate::discover::absent_below;
use crate::members;
use crate::options::{Options, Pace};
use crate::{Error, Result, labels};

/// An importer asks so many times whether it is alone.
const CLAIMS: usize = 10;
/// The number of a claim is above the last one by so much at most.
const CLAIM_STEP: u64 = 4096;
/// A pool that would have to be watched longer is refused.
const WATCH_MAX: Duration = Duration::from_secs(3600);

/// The newest state on the devices, which no other machine changed while this importer watched.
#[derive(Debug)]
pub(crate) struct Watched {
    newest: Uberblock,
    config: PoolConfig,
    disks: Vec<Arc<dyn Disk>>,
}

/// The newest uberblock of all devices and the configuration beside it.
fn look(disks: &[Arc<dyn Disk>]) -> Option<(Uberblock, PoolConfig)> {
    let of_disk = |disk: &Arc<dyn Disk>| {
        disk.drop_cache();
        let labels = labels::read(&**disk);
        let newest = labels.best.clone()?;
        let config = labels.config_for(newest.txg)?.clone();
        Some((newest, config))
    };
    disks.iter().filter_map(of_disk).max_by_key(|(newest, _)| newest.rank())
}

/// A time and a random number of a heartbeat that rank above `before`.
fn later(before: &Uberblock, now: u64, random: u64) -> (u64, u16) {
    let (_, time, last) = before.rank();
    let step = 1 + (random % CLAIM_STEP) as u16;
    if now > time {
        (now, step)
    } else if let Some(seq) = last.checked_add(step) {
        (time, seq)
    } else {
        (time.saturating_add(1), step)
    }
}

/// Waits until it is sure that no other machine holds the pool. `None` if no other machine can hold it.
///
/// # Errors
/// [`Error::ActiveElsewhere`], [`Error::NoHostId`].
pub(crate) fn watch(disks: &[Arc<dyn Disk>], options: &Options) -> Result<Option<Watched>> {
    let Some((newest, config)) = look(disks) else { return Ok(None) };
    let Some(mmp) = newest.mmp.filter(|mmp| mmp.is_on()) else { return Ok(None) };
    let own = options.hostid;
    let is_left = config.state == PoolState::Exported && own != 0 && config.hostid == u64::from(own);
    if is_left || config.state == PoolState::Destroyed {
        return Ok(None);
    }
    if own == 0 {
        return Err(Error::NoHostId);
    }
    let time = time_to_watch(mmp, options.multihost);
    if time > WATCH_MAX {
        let why = format!("watching for another machine for {} seconds", time.as_secs());
        return Err(Error::Unsupported(why));
    }
    // Two machines that import at once do not end their waits at once.
    let time = time + time.mul_f64((options.host.entropy.u64() % 256) as f64 / 1024.0);
    tracing::info!(pool = config.name, seconds = time.as_secs(), "multihost is on: watching the pool");
    let watched = Watched { newest, config, disks: disks.to_vec() };
    let began = Instant::now();
    while began.elapsed() < time {
        std::thread::sleep(Duration::from_secs(1).min(options.multihost.interval()));
        watched.check_same(&watched.newest)?;
    }
    Ok(Some(watched))
}

impl Watched {
    /// Refuses a pool whose newest state is not `expected`.
    fn check_same(&self, expected: &Uberblock) -> Result<()> {
        match look(&self.disks) {
            Some((newest, _)) if newest == *expected => Ok(()),
            found => {
                let config = found.map_or_else(|| self.config.clone(), |(_, config)| config);
                let host = config.hostname.unwrap_or_else(|| "<unknown>".to_owned());
                Err(Error::ActiveElsewhere { host, hostid: config.hostid })
            }
        }
    }

    /// Writes a heartbeat of this importer to all devices, several times, and looks whether it stays the newest: another
    /// machine that imports at the same time does the same. Returns the monotonic time of the last one.
    ///
    /// # Errors
    /// [`Error::ActiveElsewhere`]; [`Error::MissingDevices`], where a holder may write to devices that are not there; a device refuses.
    pub(crate) fn claim(&self, storage: &Storage, tree: &VdevConfig, options: &Options) -> Result<Duration> {
        check_seen(storage, tree).map_err(|devices| {
            let pool = self.config.name.clone();
            Error::MissingDevices { pool, devices }
        })?;
        let (host, mmp) = (&options.host, self.newest.mmp.unwrap_or_default());
        let mut expected = self.newest.clone();
        let mut since = host.clock.monotonic();
        for _ in 0..CLAIMS {
            self.check_same(&expected)?;
            since = host.clock.monotonic();
            let (timestamp, seq) = later(&expected, host.clock.now().0, host.entropy.u64());
            expected = Uberblock { timestamp, mmp: Some(mmp.numbered(seq)), ..expected };
            storage.on_written_leaves(|top, leaf| labels::write_heartbeat(leaf, &expected, top.ashift, 0))?;
            std::thread::sleep(options.multihost.interval());
        }
        self.check_same(&expected)?;
        Ok(since)
    }
}

/// Whether a holder that reaches enough devices for writing reaches at least one that is here. The error names missing devices
/// of a top-level vdev for which that is not so: each side of a mirror may have its own holder.
fn check_seen(storage: &Storage, tree: &VdevConfig) -> std::result::Result<(), Vec<String>> {
    let open: BTreeSet<u64> =
        storage.vdevs().tops().iter().flat_map(TopVdev::written).map(|l| l.guid).collect();
    let is_here = |guid: u64| open.contains(&guid);
    let is_seen = |child: &&VdevConfig| child.leaves().any(|leaf| is_here(leaf.guid.0));
    let is_in_use = |child: &&VdevConfig| !child.leaves().all(members::is_closed);
    for top in &tree.children {
        let needed = match top.kind {
            VdevKind::Mirror => top.children.iter().filter(is_in_use).count(),
            VdevKind::Raidz { nparity } | VdevKind::Draid { nparity, .. } => usize::from(nparity) + 1,
            _ => 0,
        };
        if top.children.iter().filter(is_seen).count() < needed {
            return Err(absent_below(top, &is_here));
        }
    }
    Ok(())
}

/// How long an importer watches a pool whose newest uberblock says `mmp`.
fn time_to_watch(mmp: Mmp, own: Pace) -> Duration {
    let millis = |n: u64| Duration::from_millis(n);
    let interval = mmp.interval_ms().map_or(u64::from(own.interval_ms), u64::from);
    let least = own.interval() * own.import_intervals.into();
    match mmp.fail_intervals() {
        Some(fail) if fail > 0 && mmp.interval_ms().is_some() && mmp.seq().is_some() => {
            (millis(u64::from(fail) * interval * 2)).max(own.interval())
        }
        _ => {
            let once = millis(interval).saturating_add(Duration::from_nanos(mmp.delay_ns));
            once.saturating_mul(own.import_intervals.into()).max(least)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_import_watches_as_long_as_openzfs() {
        let seconds = |mmp| time_to_watch(mmp, Pace::default()).as_secs();
        assert_eq!(seconds(Mmp::alive(1, 1000, 10)), 20);
        assert_eq!(seconds(Mmp::alive(500_000_000, 1000, 0)), 30);
        assert_eq!(seconds(Mmp { delay_ns: 1_000_000_000, config: 0 }), 40);
        assert_eq!(seconds(Mmp { delay_ns: 1, config: 0 }), 20);
        assert_eq!(seconds(Mmp::alive(1, 0, 10)), 1, "a label that says 0 is not believed");
        assert!(seconds(Mmp::alive(u64::MAX, u32::MAX, 0)) > 3600);
    }
}
