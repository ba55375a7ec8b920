//! A server whose pool is suspended because a device refuses its writes.

use std::collections::BTreeSet;

use format::Guid;
use pool::{FailMode, Noticed, Pool};
use scan::Scans as _;

use super::{Commands, Server};
use crate::Silence;
use crate::live::Live;
use crate::messages::{Refusal, Stop};

/// Exit status of a server whose pool has `failmode=panic` and a device that refused a write.
const PANICKED: i32 = 70;

impl Server {
    /// From now on, a refused write suspends the pool instead of stopping it for good.
    pub(super) fn suspend_on_refusal(&self) {
        let Ok(pool) = self.live.pool() else { return };
        let mut watch = match pool.suspend_on_refusal() {
            Ok(watch) => watch,
            Err(error) => return tracing::error!(%error, "a refused write stops the pool"),
        };
        let name = self.live.name().to_owned();
        let watching = std::thread::Builder::new().name("cenote-suspend".into()).spawn(move || {
            while let Some((refused, mode)) = watch.wait() {
                let why = refused.why;
                if mode == FailMode::Panic {
                    tracing::error!(
                        pool = name,
                        why,
                        "a write was refused and failmode=panic: the server ends"
                    );
                    std::process::exit(PANICKED);
                }
                tracing::error!(
                    pool = name,
                    why,
                    "pool I/O is suspended: repair the cause, then 'zpool clear'"
                );
            }
        });
        if let Err(error) = watching {
            tracing::error!(%error, "suspensions are not logged");
        }
    }

    /// Starts the thread that checks all devices every few seconds and logs those that do not answer.
    pub(super) fn watch_devices(&self) {
        let Ok(pool) = self.live.pool() else { return };
        let mut watch = pool.watch_devices();
        drop(pool);
        let name = self.live.name().to_owned();
        let (live, commands) = (self.live.clone(), self.commands.clone());
        let watching = std::thread::Builder::new().name("cenote-devices".into()).spawn(move || {
            let (mut tried, mut noted) = (None, None);
            while let Some((news, pause)) = watch.look() {
                use_spares(&live, &*commands, &mut tried);
                scrub_expanded(&live);
                note_devices(&live, &*commands, &mut noted);
                for noticed in news {
                    match noticed {
                        Noticed::Silent(silent) => {
                            tracing::error!(pool = name, "{}; the pool waits for it", Silence::from(silent));
                        }
                        Noticed::SlowSync(slow) => tracing::error!(
                            pool = name,
                            txg = slow.txg.0,
                            seconds = slow.since.as_secs(),
                            "a transaction group is not written yet"
                        ),
                        Noticed::Answers(path) => {
                            tracing::warn!(pool = name, path = %path.display(), "the device answers again");
                        }
                    }
                }
                std::thread::sleep(pause);
            }
        });
        if let Err(error) = watching {
            tracing::error!(%error, "devices are not watched");
        }
    }

    /// Checks before the end of a suspended pool. With `force`, drops the refused writes and returns a message about the
    /// loss.
    pub(super) fn end_suspension(&self, pool: &Pool, stop: &Stop) -> Result<Option<String>, Refusal> {
        if !pool.is_suspended() {
            return Ok(None);
        }
        let name = self.live.name();
        let why = pool.trouble().map_or_else(String::new, |trouble| trouble.why);
        if !stop.force || stop.destroy {
            return Err(Refusal::Other(format!(
                "pool I/O is currently suspended ({why}); repair the cause and run 'zpool clear {name}', or give up \
                 what is not written yet with 'zpool export -f {name}'"
            )));
        }
        let info = pool.info();
        pool.give_up_writes();
        let lost = format!(
            "the server ended without exporting the pool. Changes after transaction group {} are lost, except those \
             that programs had confirmed with fsync: the next import takes them from the intent log",
            info.txg.0
        );
        tracing::error!(pool = name, "{lost}");
        Ok(Some(lost))
    }

    /// Refuses to close a device whose file was deleted, because its data would be lost.
    pub(super) fn check_deleted(&self, pool: &Pool, stop: &Stop) -> Result<(), Refusal> {
        match pool.deleted_devices().first() {
            Some((path, contents)) if !stop.force && !stop.destroy => Err(Refusal::Other(format!(
                "'{path}' was deleted, and its data ends with the server. Copy '{contents}' to save it, or give it up \
                 with 'zpool export -f {name}'",
                path = path.display(),
                contents = contents.display(),
                name = self.live.name()
            ))),
            _ => Ok(()),
        }
    }

    /// Whether the server may end at the first signal: no device's file was deleted, and the pool is not suspended or
    /// resumes after one retry. Otherwise the log says what to do.
    pub(super) fn may_end(&self) -> bool {
        let Ok(pool) = self.live.pool() else { return true };
        if let Some((path, contents)) = pool.deleted_devices().first() {
            tracing::error!(
                pool = self.live.name(),
                path = %path.display(),
                contents = %contents.display(),
                "the server does not end: the file of a device was deleted, and its data would be lost. Copy its \
                 contents; a second signal ends the server"
            );
            return false;
        }
        if !pool.is_suspended() || pool.resume().is_ok() {
            return true;
        }
        let why = pool.trouble().map_or_else(String::new, |trouble| trouble.why);
        tracing::error!(
            pool = self.live.name(),
            why,
            "the server does not end: pool I/O is suspended and changes would be lost. Repair the cause and run 'zpool \
             clear'; a second signal ends the server and gives up what is not written"
        );
        false
    }
}

/// Makes the list of imported pools name the devices that the pool has now, if they are others than those that were `noted`.
fn note_devices(live: &Live, commands: &dyn Commands, noted: &mut Option<BTreeSet<u64>>) {
    let Ok(pool) = live.pool() else { return };
    let open: BTreeSet<u64> = pool.leaves().map(|leaf| leaf.guid).collect();
    // A list from an earlier server may have a better path of a missing device than the labels have.
    let is_new = match noted {
        Some(noted) => *noted != open,
        None => pool.info().config.tree.leaves().all(|leaf| open.contains(&leaf.guid.0)),
    };
    *noted = Some(open);
    if is_new && let Err(error) = commands.note_devices(&pool) {
        tracing::error!(pool = live.name(), error, "the devices of the pool are not noted");
    }
}

/// Begins the scrub that follows the expansion of a raidz vdev.
fn scrub_expanded(live: &Live) {
    let Ok(pool) = live.pool() else { return };
    if !pool.take_expanded() {
        return;
    }
    match pool.scrub() {
        Ok(()) | Err(pool::Error::Scrubbing | pool::Error::Resilvering) => {}
        Err(error) => tracing::warn!(pool = live.name(), %error, "no scrub follows the expansion"),
    }
}

/// Puts spares in the place of failed devices. Other commands that change the pool have precedence. A failed try is repeated
/// only after a change.
fn use_spares(live: &Live, commands: &dyn Commands, tried: &mut Option<(Vec<Guid>, usize)>) {
    let Ok(pool) = live.pool() else { return };
    let wanted = pool.wants_spares();
    if wanted.is_none() || wanted == *tried {
        return;
    }
    let Some(_turn) = live.turn_unless(|| live.is_closing()) else { return };
    *tried = wanted;
    let used = pool.use_spares();
    let used = used.and_then(|(helped, joined)| pool.resilver_joined(joined).map(|()| helped));
    match used {
        Ok(helped) if helped.is_empty() => {}
        Ok(helped) => {
            let guids: Vec<u64> = helped.iter().map(|guid| guid.0).collect();
            tracing::warn!(pool = live.name(), ?guids, "spares fill in for devices that failed");
            if let Err(error) = commands.note_devices(&pool) {
                tracing::error!(pool = live.name(), error, "the devices of the pool are not noted");
            }
        }
        Err(error) => tracing::error!(pool = live.name(), %error, "spares cannot fill in"),
    }
}
