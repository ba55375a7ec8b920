//! Scrubbing: reads and verifies every copy of every block while the pool is in use, and repairs damaged copies from good
//! ones.
//!
//! From:   the methods of [`Scans`].
//! To:     the scan state and the error log on disk, as OpenZFS keeps them (06 §1.5, §1.6).
//!
//! The visitor walks the trees of a synced txg. Space freed after it may be written over two txgs later, so
//! blocks that were read by then are not trusted: the visitor takes the trees of a newer txg and goes on
//! behind the last block that it had finished. Intent logs are not visited. Each txg notes on disk how far the
//! visitor is.

mod errors;
mod length;
mod order;
mod range;
mod rebuild;
mod resilver;
#[cfg(test)]
mod tests;
mod view;
mod visit;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dsl::room::Reserve;
use format::scan::{NEXT_IN_QUEUE, Scan, ScanFunc, ScanState};
use format::{ObjectId, ObjectType, Txg};

use pool::scan_state::Progress;
use pool::scrubber::{DataError, Order, State};
use pool::{Error, Inner, Joined, Pool, Result, Syncing, scan_state};

pub use range::Births;

/// Key of the last txg that a scrub has verified completely.
const LAST_SCRUBBED: &str = "last_scrubbed_txg";

/// The last scrub or resilver, for `zpool status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanStatus {
    /// The state on disk, updated by the progress since.
    pub scan: Scan,
    /// This process runs it.
    pub running: bool,
    /// Time of the pause, if it is paused and the time is known.
    pub paused_at: u64,
}

/// Begins a scrub on disk, of blocks born in `births`.
fn begin(syncing: &Syncing<'_>, births: Births) -> Result<Scan> {
    syncing.inner.happened("scrub_start", &[]);
    let mut scan = begun(syncing)?;
    scan.min_txg = births.after.min(scan.max_txg);
    scan.max_txg = births.up_to.unwrap_or(scan.max_txg).min(scan.max_txg);
    keep(syncing, scan)
}

/// Writes down that a scan begins.
fn keep(syncing: &Syncing<'_>, scan: Scan) -> Result<Scan> {
    scan_state::write(syncing.mos(), &syncing.tx, &scan)?;
    let Scan { func, min_txg, max_txg, .. } = scan;
    syncing.log_internal(
        "scan setup",
        &format!("func={} mintxg={} maxtxg={}", func as u64, min_txg.0, max_txg.0),
    )?;
    syncing.inner.scrubber().lock().progress = Some(Progress::on_disk(scan, BTreeMap::new()));
    Ok(scan)
}

/// The state of a new scan, which replaces any other; not on disk yet.
fn begun(syncing: &Syncing<'_>) -> Result<Scan> {
    let mos = syncing.mos();
    if let Some(old) = scan_state::read(mos)?
        && old.queue.0 != 0
    {
        mos.free(&syncing.tx, old.queue)?;
    }
    let queue = mos.create_zap(&syncing.tx, ObjectType::SCAN_QUEUE, 0)?.id();
    let allocated = syncing.allocated();
    let scan = Scan::begin(queue, syncing.txg, syncing.inner.host().clock.now().0, allocated);
    Ok(Scan { current: [scan.min_txg.0, scan.max_txg.0], ..scan })
}

/// Ends a scrub on disk.
fn end(syncing: &Syncing<'_>, mut scan: Scan, state: ScanState) -> Result<Scan> {
    let what = match (scan.func, state) {
        (ScanFunc::Resilver, ScanState::Finished) => "resilver_finish",
        (ScanFunc::Resilver, _) => "resilver_abort",
        (_, ScanState::Finished) => "scrub_finish",
        _ => "scrub_abort",
    };
    syncing.inner.happened(what, &[]);
    if scan.queue.0 != 0 {
        syncing.mos().free(&syncing.tx, scan.queue)?;
    }
    scan.queue = ObjectId(0);
    scan.state = state;
    scan.set_paused(false);
    scan.end_time = syncing.inner.host().clock.now().0;
    scan.bookmark = [NEXT_IN_QUEUE.0, 0, 0, 0];
    syncing.inner.scrubber().lock().progress = None;
    scan_state::write(syncing.mos(), &syncing.tx, &scan)?;
    let name = if state == ScanState::Finished { "scan done" } else { "scan cancelled" };
    syncing.log_internal(name, &format!("errors={}", scan.errors))?;
    Ok(scan)
}

/// Scans of an open pool.
pub trait Scans {
    /// The last scrub or resilver; `None` if there never was one.
    ///
    /// # Errors
    /// If the state on disk cannot be read.
    fn scan(&self) -> Result<Option<ScanStatus>>;

    /// Starts a scrub in the background, or continues one that is paused or was left unfinished when the pool was closed.
    ///
    /// # Errors
    /// [`Error::Scrubbing`] when one is running, [`Error::Resilvering`], or it cannot be written.
    fn scrub(&self) -> Result<()>;

    /// As [`Scans::scrub`], but a new scrub visits only blocks born in `births`.
    ///
    /// # Errors
    /// As [`Scans::scrub`].
    fn scrub_born(&self, births: Births) -> Result<()>;

    /// Reads the known damaged blocks again, and drops those that are readable or freed.
    ///
    /// # Errors
    /// [`Error::Scrubbing`]; or the log cannot be read or written.
    fn scrub_errors(&self) -> Result<()>;

    /// As [`Scans::scrub_errors`], also while a scrub is running.
    ///
    /// # Errors
    /// The log cannot be read or written.
    fn forget_readable(&self) -> Result<()>;

    /// Starts a resilver if a present device missed txgs. Otherwise continues a scrub that was running when the pool was
    /// closed, unless it was paused.
    ///
    /// # Errors
    /// As [`Scans::scrub`].
    fn resume_scrub(&self) -> Result<()>;

    /// Pauses the scrub that is under way.
    ///
    /// # Errors
    /// [`Error::NotScrubbing`].
    fn pause_scrub(&self) -> Result<()>;

    /// Cancels the running or paused scrub.
    ///
    /// # Errors
    /// [`Error::NotScrubbing`].
    fn cancel_scrub(&self) -> Result<()>;

    /// Waits until no scrub is running here. A paused scrub does not count.
    ///
    /// # Errors
    /// [`Error::Unfinished`] if it could not finish.
    fn wait_scrub(&self) -> Result<()>;

    /// Waits until no sequential rebuild is running here. The scrub that follows does not count.
    ///
    /// # Errors
    /// As [`Scans::wait_scrub`].
    fn wait_rebuild(&self) -> Result<()>;

    /// As [`Scans::wait_scrub`], but no longer than `patience`; whether it is over.
    ///
    /// # Errors
    /// As [`Scans::wait_scrub`].
    fn wait_scrub_for(&self, patience: Duration) -> Result<bool>;

    /// The range of births between two dates, in seconds since 1970. It may be slightly larger, depending on the times that
    /// the pool stores.
    ///
    /// # Errors
    /// If the stored times cannot be read.
    fn births_between(&self, start: Option<u64>, end: Option<u64>) -> Result<Births>;

    /// Known damaged blocks: those of the last scrub and those found by the running one.
    ///
    /// # Errors
    /// If the log on disk cannot be read.
    fn data_errors(&self) -> Result<Vec<DataError>>;

    /// The last complete scrub has verified all blocks born up to this txg; 0 if there was none.
    ///
    /// # Errors
    /// If the object directory cannot be read.
    fn last_scrubbed_txg(&self) -> Result<Txg>;

    /// Whether a writable device missed txgs.
    #[must_use]
    fn needs_resilver(&self) -> bool;

    /// Starts a resilver in the background, if a writable device missed txgs. A running scrub or resilver ends.
    ///
    /// # Errors
    /// It cannot be written down.
    fn resilver(&self) -> Result<()>;

    /// As [`Scans::resilver`], after a device joined or came back: a resilver at work that is about all that devices lack goes on. If it
    /// is not about all, the new device waits for its end where the pool has enabled the feature `resilver_defer`.
    ///
    /// # Errors
    /// As [`Scans::resilver`].
    fn resilver_joined(&self, joined: Joined) -> Result<()>;
}

impl Scans for Pool {
    fn scan(&self) -> Result<Option<ScanStatus>> {
        let (live, running, paused_at) = {
            let state = self.inner().scrubber().lock();
            (state.progress.as_ref().map(|progress| progress.scan), state.running, state.paused_at)
        };
        let scan = match live {
            Some(scan) => Some(scan),
            None => scan_state::read(self.inner().mos())?,
        };
        Ok(scan.map(|scan| ScanStatus { scan, running, paused_at }))
    }

    fn scrub(&self) -> Result<()> {
        self.scrub_born(Births::default())
    }

    fn scrub_born(&self, births: Births) -> Result<()> {
        let scrub = self.inner().scrubber();
        let _turn = scrub.turn();
        let mut state = scrub.lock();
        if state.running {
            let resilvers = state.progress.as_ref().is_some_and(|progress| progress.scan.is_resilvering());
            if resilvers || state.rebuilding {
                return Err(Error::Resilvering);
            }
            if state.order != Order::Pause {
                return Err(Error::Scrubbing);
            }
            drop(state);
            match self.run(|syncing| set_paused(syncing, false)) {
                // The scan ended before it received the order to pause: a new one begins.
                Err(Error::NotScrubbing) => scrub.join(),
                other => {
                    other?;
                    scrub.give(Order::Go);
                    return Ok(());
                }
            }
            state = scrub.lock();
        }
        // No other caller begins one meanwhile.
        state.running = true;
        drop(state);
        scrub.join();
        let begun =
            self.run_beside(Reserve::Quarter, 1, move |syncing| match scan_state::read(syncing.mos())? {
                Some(scan) if scan.is_scrubbing() => set_paused(syncing, false),
                Some(Scan { state: ScanState::Scanning | ScanState::ErrorScrubbing, .. }) => {
                    Err(Error::Resilvering)
                }
                _ if syncing.is_rebuilding()? => Err(Error::Resilvering),
                _ => begin(syncing, births),
            });
        carry_out(self, begun)
    }

    fn scrub_errors(&self) -> Result<()> {
        if self.inner().scrubber().lock().running {
            return Err(Error::Scrubbing);
        }
        self.forget_readable()
    }

    fn forget_readable(&self) -> Result<()> {
        let known: BTreeSet<DataError> = self.data_errors()?.into_iter().collect();
        if known.is_empty() {
            return Ok(());
        }
        let lost = visit::look_again(self.inner(), &known, &|| true)?.unwrap_or_else(|| known.clone());
        forget(self, known.difference(&lost).copied().collect())
    }

    fn resume_scrub(&self) -> Result<()> {
        if self.read_only().is_some() {
            return Ok(());
        }
        if self.inner().is_rebuilding()? {
            return rebuild::take_up(self);
        }
        let on_disk = scan_state::read(self.inner().mos())?.filter(|scan| scan.state == ScanState::Scanning);
        let lacking = resilver::lacking_now(self.inner());
        match on_disk {
            Some(scan) if scan.is_resilvering() && scan.errors == 0 && covers(&scan, lacking) => {
                return take_up(self);
            }
            _ if self.needs_resilver() => return self.resilver(),
            _ => {}
        }
        // A replacement may have ended without its devices having left.
        self.inner().end_replacing()?;
        match on_disk {
            Some(scan) if scan.is_resilvering() => take_up(self),
            Some(scan) if scan.is_scrubbing() && !scan.is_paused() => match self.scrub() {
                Err(Error::Scrubbing) => Ok(()),
                other => other,
            },
            _ => Ok(()),
        }
    }

    fn pause_scrub(&self) -> Result<()> {
        let _turn = self.inner().scrubber().turn();
        need_scrub(self.inner())?;
        let now = self.inner().host().clock.now().0;
        self.run(|syncing| set_paused(syncing, true))?;
        let mut state = self.inner().scrubber().lock();
        state.paused_at = now;
        if state.running && state.order == Order::Go {
            state.order = Order::Pause;
        }
        Ok(())
    }

    fn cancel_scrub(&self) -> Result<()> {
        let _turn = self.inner().scrubber().turn();
        need_scrub(self.inner())?;
        self.inner().scrubber().give(Order::Cancel);
        self.inner().scrubber().join();
        self.run(|syncing| {
            let scan = syncing.inner.scrubber().lock().progress.as_ref().map(|progress| progress.scan);
            // The scan may have ended before it received the order.
            match scan.filter(Scan::is_scrubbing) {
                Some(scan) => end(syncing, scan, ScanState::Canceled).map(drop),
                None => Ok(()),
            }
        })
    }

    fn wait_scrub(&self) -> Result<()> {
        let mut state = self.inner().scrubber().lock();
        while state.running && state.order == Order::Go {
            state = self.inner().scrubber().wait(state);
        }
        match &state.failed {
            Some(why) => Err(Error::Unfinished(why.clone())),
            None => Ok(()),
        }
    }

    fn wait_rebuild(&self) -> Result<()> {
        let mut state = self.inner().scrubber().lock();
        while state.running && state.rebuilding && state.order == Order::Go {
            state = self.inner().scrubber().wait(state);
        }
        match &state.failed {
            Some(why) => Err(Error::Unfinished(why.clone())),
            None => Ok(()),
        }
    }

    fn wait_scrub_for(&self, patience: Duration) -> Result<bool> {
        let state = self.inner().scrubber().lock();
        let at_work = |state: &mut State| state.running && state.order == Order::Go;
        let mut is_in_time = true;
        let state = state.wait(|state| {
            let waited = self.inner().scrubber().changed.wait_timeout_while(state, patience, at_work);
            let (state, timeout) = waited.expect("no code panics while holding the scrub state");
            is_in_time = !timeout.timed_out();
            state
        });
        match &state.failed {
            Some(why) => Err(Error::Unfinished(why.clone())),
            None => Ok(is_in_time),
        }
    }

    fn births_between(&self, start: Option<u64>, end: Option<u64>) -> Result<Births> {
        range::births_between(self, start, end)
    }

    fn data_errors(&self) -> Result<Vec<DataError>> {
        Ok(errors::read(self.inner().mos())?.into_iter().collect())
    }

    fn last_scrubbed_txg(&self) -> Result<Txg> {
        Ok(Txg(self.inner().mos().directory(LAST_SCRUBBED)?.unwrap_or(0)))
    }

    fn needs_resilver(&self) -> bool {
        self.read_only().is_none() && resilver::lacking(self.inner().storage()).is_some()
    }

    fn resilver_joined(&self, _: Joined) -> Result<()> {
        // Blocks that other devices lack are resilvered when the rebuild has ended.
        if self.inner().is_rebuilding()? {
            return rebuild::take_up(self);
        }
        let lacking = resilver::lacking_now(self.inner());
        let state = self.inner().scrubber().lock();
        let scan = state.progress.as_ref().map(|progress| progress.scan).filter(|_| state.running);
        drop(state);
        let is_covered = scan.is_some_and(|scan| scan.is_resilvering() && covers(&scan, lacking));
        match scan.filter(Scan::is_resilvering) {
            Some(_) if is_covered => Ok(()),
            Some(scan) if self.run(move |syncing| resilver::defer(syncing, &scan))? => Ok(()),
            _ if lacking.is_some() => self.resilver(),
            // The device that came back has everything: devices that filled in for it leave.
            _ if self.read_only().is_none() => self.inner().end_replacing(),
            _ => Ok(()),
        }
    }

    fn resilver(&self) -> Result<()> {
        if !self.needs_resilver() {
            return Ok(());
        }
        let scrub = self.inner().scrubber();
        let _turn = scrub.turn();
        scrub.give(Order::Cancel);
        scrub.join();
        scrub.lock().running = true;
        let begun = self.run_beside(Reserve::Quarter, 1, resilver::begin);
        carry_out(self, begun)
    }
}

/// Whether a resilver visits all blocks born from the first of these txgs up to, without, the second.
fn covers(scan: &Scan, lacking: Option<(Txg, Txg)>) -> bool {
    lacking.is_none_or(|(first, end)| scan.min_txg < first && end <= scan.max_txg)
}

/// Continues the resilver that is under way on disk.
fn take_up(pool: &Pool) -> Result<()> {
    let scrub = pool.inner().scrubber();
    let _turn = scrub.turn();
    if std::mem::replace(&mut scrub.lock().running, true) {
        return Ok(());
    }
    scrub.join();
    let under_way = pool.run(|syncing| {
        let state = syncing.inner.scrubber().lock();
        let scan = state.progress.as_ref().map(|progress| progress.scan);
        scan.filter(Scan::is_resilvering).ok_or(Error::NotScrubbing)
    });
    carry_out(pool, under_way)
}

/// Lets a thread carry out a scan that was begun on disk.
fn carry_out(pool: &Pool, begun: Result<Scan>) -> Result<()> {
    let begun = begun.map(|scan| move |inner: &Arc<Inner>| visit::run(inner, scan));
    work(pool, begun, State::default())
}

/// Starts a thread for the scan that was begun. Its state is `fresh`, except for the progress of scans.
fn work(pool: &Pool, begun: Result<impl FnOnce(&Arc<Inner>) + Send + 'static>, fresh: State) -> Result<()> {
    let mut state = pool.inner().scrubber().lock();
    let carry_out = match begun {
        Ok(carry_out) => carry_out,
        Err(error) => {
            state.running = false;
            return Err(error);
        }
    };
    let progress = state.progress.take();
    *state = State { running: true, progress, ..fresh };
    let inner = pool.inner().clone();
    let thread = std::thread::Builder::new().name("cenote-scrub".into()).spawn(move || carry_out(&inner));
    match thread {
        Ok(thread) => state.thread = Some(thread),
        Err(error) => {
            (state.running, state.rebuilding) = (false, false);
            return Err(Error::Unfinished(format!("no thread for the scrub: {error}")));
        }
    }
    Ok(())
}

/// Removes these from the list of lost blocks. Blocks that a scrub found meanwhile stay.
fn forget(pool: &Pool, readable: BTreeSet<DataError>) -> Result<()> {
    pool.run(move |syncing| {
        let mut logged = errors::read(syncing.mos())?;
        logged.retain(|error| !readable.contains(error));
        let found: BTreeSet<DataError> =
            errors::found(syncing.mos())?.difference(&readable).copied().collect();
        logged.retain(|error| !found.contains(error));
        errors::replace(syncing, &logged)?;
        errors::add(syncing, &found).map(drop)
    })
}

fn set_paused(syncing: &Syncing<'_>, paused: bool) -> Result<Scan> {
    syncing.inner.happened(if paused { "scrub_paused" } else { "scrub_resume" }, &[]);
    let mut state = syncing.inner.scrubber().lock();
    let progress = state.progress.as_mut().filter(|progress| progress.scan.is_scrubbing());
    let progress = progress.ok_or(Error::NotScrubbing)?;
    progress.scan.set_paused(paused);
    progress.is_newer = true;
    Ok(progress.scan)
}

fn need_scrub(inner: &Inner) -> Result<()> {
    scan_state::read(inner.mos())?.filter(Scan::is_scrubbing).map(drop).ok_or(Error::NotScrubbing)
}
