//! Scrubbing: reads and verifies every copy of every block while the pool is in use, and repairs damaged copies from good
//! ones.
//!
//! From:   the methods of [`Scans`].
//! To:     the scan state and the error log on disk, as OpenZFS keeps them (06 §1.5, §1.6).
//!
//! The scrub thread walks the trees of a synced txg. Blocks freed after that txg may be overwritten two txgs later, so data
//! read by then is not trusted. The thread then takes the trees of a newer txg and continues after the last finished block.
//! Intent logs are not scrubbed.

mod errors;
mod range;
mod resilver;
mod view;
mod visit;

use std::collections::BTreeSet;
use std::time::Duration;

use dsl::room::Reserve;
use format::scan::{Scan, ScanFunc, ScanState};
use format::{ObjectId, ObjectType, Txg};

use pool::scrubber::{DataError, Order, State};
use pool::{Error, Inner, Pool, Result, Syncing, scan_state};

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
    scan_state::write(syncing.mos(), &syncing.tx, &scan)?;
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
    Ok(Scan::begin(queue, syncing.txg, syncing.inner.host.clock.now().0, allocated))
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
    scan.end_time = syncing.inner.host.clock.now().0;
    scan_state::write(syncing.mos(), &syncing.tx, &scan)?;
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
    /// # Errors [`Error::Scrubbing`] when one is running, [`Error::Resilvering`], or it cannot be written.
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
    /// # Errors [`Error::Unfinished`] if it could not finish.
    fn wait_scrub(&self) -> Result<()>;

    /// As [`Scans::wait_scrub`], but no longer than `patience`; whether it is over.
    ///
    /// # Errors
    /// As [`Scans::wait_scrub`].
    fn wait_scrub_for(&self, patience: Duration) -> Result<bool>;

    /// The range of births between two dates, in seconds since 1970. It may be slightly larger, depending on the times that
    /// the pool stores.
    ///
    /// # Errors If the stored times cannot be read.
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

    /// As [`Scans::resilver`], after a device joined or came back. A running resilver that covers all missed txgs continues.
    ///
    /// # Errors
    /// As [`Scans::resilver`].
    fn resilver_joined(&self) -> Result<()>;
}

impl Scans for Pool {
    fn scan(&self) -> Result<Option<ScanStatus>> {
        let (live, running, paused_at) = {
            let state = self.inner().scrub.lock();
            (state.scan.filter(|_| state.running), state.running, state.paused_at)
        };
        let scan = match live {
            Some(scan) => Some(scan),
            None => scan_state::read(&self.inner().mos)?,
        };
        Ok(scan.map(|scan| ScanStatus { scan, running, paused_at }))
    }

    fn scrub(&self) -> Result<()> {
        self.scrub_born(Births::default())
    }

    fn scrub_born(&self, births: Births) -> Result<()> {
        let scrub = &self.inner().scrub;
        let _turn = scrub.turn();
        let mut state = scrub.lock();
        if state.running {
            if state.scan.is_some_and(|scan| scan.is_resilvering()) {
                return Err(Error::Resilvering);
            }
            if state.order != Order::Pause {
                return Err(Error::Scrubbing);
            }
            drop(state);
            let scan = self.run(|syncing| set_paused(syncing, false))?;
            scrub.lock().scan.as_mut().expect("a running scrub has a state").flags = scan.flags;
            scrub.give(Order::Go);
            return Ok(());
        }
        // Nobody else begins one meanwhile.
        state.running = true;
        drop(state);
        scrub.join();
        let begun =
            self.run_beside(Reserve::Quarter, 1, move |syncing| match scan_state::read(syncing.mos())? {
                Some(scan) if scan.is_scrubbing() => set_paused(syncing, false),
                Some(Scan { state: ScanState::Scanning | ScanState::ErrorScrubbing, .. }) => {
                    Err(Error::Resilvering)
                }
                _ => begin(syncing, births),
            });
        carry_out(self, begun)
    }

    fn scrub_errors(&self) -> Result<()> {
        if self.inner().scrub.lock().running {
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
        if self.needs_resilver() {
            return self.resilver();
        }
        // A replacement may have come to its end without its devices having left.
        self.inner().end_replacing()?;
        match scan_state::read(&self.inner().mos)? {
            Some(scan) if scan.is_scrubbing() && !scan.is_paused() => match self.scrub() {
                Err(Error::Scrubbing) => Ok(()),
                other => other,
            },
            _ => Ok(()),
        }
    }

    fn pause_scrub(&self) -> Result<()> {
        let _turn = self.inner().scrub.turn();
        need_scrub(self.inner())?;
        let now = self.inner().host.clock.now().0;
        let scan = self.run(|syncing| set_paused(syncing, true))?;
        let mut state = self.inner().scrub.lock();
        if let Some(live) = &mut state.scan {
            live.flags = scan.flags;
        }
        state.paused_at = now;
        if state.running && state.order == Order::Go {
            state.order = Order::Pause;
        }
        Ok(())
    }

    fn cancel_scrub(&self) -> Result<()> {
        let _turn = self.inner().scrub.turn();
        need_scrub(self.inner())?;
        self.inner().scrub.give(Order::Cancel);
        self.inner().scrub.join();
        self.run(|syncing| {
            // It may have come to its end before it was told.
            match scan_state::read(syncing.mos())?.filter(Scan::is_scrubbing) {
                Some(scan) => end(syncing, scan, ScanState::Canceled).map(drop),
                None => Ok(()),
            }
        })
    }

    fn wait_scrub(&self) -> Result<()> {
        let mut state = self.inner().scrub.lock();
        while state.running && state.order == Order::Go {
            state = self.inner().scrub.wait(state);
        }
        match &state.failed {
            Some(why) => Err(Error::Unfinished(why.clone())),
            None => Ok(()),
        }
    }

    fn wait_scrub_for(&self, patience: Duration) -> Result<bool> {
        let state = self.inner().scrub.lock();
        let at_work = |state: &mut State| state.running && state.order == Order::Go;
        let waited = self.inner().scrub.changed.wait_timeout_while(state, patience, at_work);
        let (state, timeout) = waited.expect("no code panics while holding the scrub state");
        match &state.failed {
            Some(why) => Err(Error::Unfinished(why.clone())),
            None => Ok(!timeout.timed_out()),
        }
    }

    fn births_between(&self, start: Option<u64>, end: Option<u64>) -> Result<Births> {
        range::births_between(self, start, end)
    }

    fn data_errors(&self) -> Result<Vec<DataError>> {
        let mut found = errors::read(&self.inner().mos)?;
        found.extend(&self.inner().scrub.lock().errors);
        Ok(found.into_iter().collect())
    }

    fn last_scrubbed_txg(&self) -> Result<Txg> {
        Ok(Txg(self.inner().mos.directory(LAST_SCRUBBED)?.unwrap_or(0)))
    }

    fn needs_resilver(&self) -> bool {
        self.read_only().is_none() && resilver::lacking(&self.inner().storage).is_some()
    }

    fn resilver_joined(&self) -> Result<()> {
        let lacking = resilver::lacking(&self.inner().storage);
        let covers = |scan: &Scan| {
            scan.is_resilvering()
                && lacking.is_none_or(|(first, end)| scan.min_txg < first && end <= scan.max_txg)
        };
        let state = self.inner().scrub.lock();
        let is_covered = state.running && state.scan.as_ref().is_some_and(covers);
        drop(state);
        match () {
            () if is_covered => Ok(()),
            () if lacking.is_some() => self.resilver(),
            // The device that came back holds all data, so its spare leaves.
            () if self.read_only().is_none() => self.inner().end_replacing(),
            () => Ok(()),
        }
    }

    fn resilver(&self) -> Result<()> {
        if !self.needs_resilver() {
            return Ok(());
        }
        let scrub = &self.inner().scrub;
        let _turn = scrub.turn();
        scrub.give(Order::Cancel);
        scrub.join();
        scrub.lock().running = true;
        let begun = self.run_beside(Reserve::Quarter, 1, resilver::begin);
        carry_out(self, begun)
    }
}

/// Starts the thread for a scan whose start is on disk.
fn carry_out(pool: &Pool, begun: Result<Scan>) -> Result<()> {
    let mut state = pool.inner().scrub.lock();
    let scan = match begun {
        Ok(scan) => scan.restarted(),
        Err(error) => {
            state.running = false;
            return Err(error);
        }
    };
    *state = State { running: true, scan: Some(scan), ..State::default() };
    let inner = pool.inner().clone();
    let thread = std::thread::Builder::new().name("cenote-scrub".into()).spawn(move || {
        visit::run(&inner, scan);
    });
    match thread {
        Ok(thread) => state.thread = Some(thread),
        Err(error) => {
            state.running = false;
            return Err(Error::Unfinished(format!("no thread for the scrub: {error}")));
        }
    }
    Ok(())
}

/// Removes these from the known damaged blocks. Errors that a scrub found meanwhile, or wrote into the log at its end, stay.
fn forget(pool: &Pool, readable: BTreeSet<DataError>) -> Result<()> {
    pool.run(move |syncing| {
        let mut logged = errors::read(syncing.mos())?;
        logged.retain(|error| !readable.contains(error));
        syncing.inner.scrub.lock().errors.retain(|error| !readable.contains(error));
        errors::replace(syncing, &logged)
    })
}

fn set_paused(syncing: &Syncing<'_>, paused: bool) -> Result<Scan> {
    let mut scan = scan_state::read(syncing.mos())?.filter(Scan::is_scrubbing).ok_or(Error::NotScrubbing)?;
    scan.set_paused(paused);
    syncing.inner.happened(if paused { "scrub_paused" } else { "scrub_resume" }, &[]);
    scan_state::write(syncing.mos(), &syncing.tx, &scan)?;
    Ok(scan)
}

fn need_scrub(inner: &Inner) -> Result<()> {
    scan_state::read(&inner.mos)?.filter(Scan::is_scrubbing).map(drop).ok_or(Error::NotScrubbing)
}

#[cfg(test)]
mod tests {
    use dmu::{NewObject, zap};
    use format::zap::Value;
    use storage::host::ScriptedDisk;

    use super::*;
    use pool::{CreateSpec, Hold, NewFilesystem, Options};
    use std::sync::Arc;

    pub(super) fn made(disk: &ScriptedDisk) -> Pool {
        made_on(std::slice::from_ref(disk))
    }

    pub(super) fn made_on(disks: &[ScriptedDisk]) -> Pool {
        let options = Options::default();
        let spec = CreateSpec {
            ashift: Some(9),
            ..CreateSpec::new(
                "tank",
                disks.iter().map(|disk| Arc::new(disk.clone()) as Arc<dyn storage::host::Disk>).collect(),
                NewFilesystem::plain(&options.host),
                Arc::new(|objset, tx, _| {
                    let new = NewObject::plain(ObjectType::MASTER_NODE);
                    zap::create(&objset.create_object_at(tx, ObjectId(1), new), tx, 7, 0)
                }),
            )
        };
        Pool::create(spec, options).expect("a pool")
    }

    fn again(pool: Pool, disk: &ScriptedDisk) -> Pool {
        pool.export().expect("exported");
        Pool::import_disks(vec![Arc::new(disk.clone())], Options::default()).expect("imported")
    }

    pub(super) fn fill(pool: &Pool) {
        let dataset = pool.open("tank").expect("open");
        for size in [512u32, 1024, 4096] {
            let tx = dataset.begin(Hold::write(1 << 20)).expect("space");
            for n in (0..40u64).step_by(3) {
                let new = NewObject::plain(ObjectType::PLAIN_FILE_CONTENTS).block_size(size);
                let object = dataset.objset().create_object(&tx, new).expect("new");
                let data: Vec<u8> = (0..n * 700).map(|i| (i * n % 251) as u8).collect();
                object.write(&tx, 0, &data).expect("written");
            }
        }
        pool.sync().expect("synced");
    }

    #[test]
    fn errors_that_a_scrub_logs_meanwhile_stay() {
        let disk = ScriptedDisk::new(128 << 20);
        let pool = made(&disk);
        let dataset = pool.dataset("tank").expect("there").id;
        let at = |blkid| DataError { dataset, object: ObjectId(7), level: 0, blkid, birth: 0 };
        // Of these two it is known that they are readable; one is logged, the other found by the scrub at work.
        let (healed, found) = (BTreeSet::from([at(0), at(1)]), BTreeSet::from([at(0), at(2)]));
        pool.run(move |syncing| errors::replace(syncing, &found)).expect("logged");
        pool.inner().scrub.lock().errors.extend([at(1), at(3)]);
        forget(&pool, healed).expect("forgotten");
        assert_eq!(pool.data_errors().expect("read"), [at(2), at(3)]);
        assert_eq!(
            errors::read(&pool.inner().mos).expect("read"),
            BTreeSet::from([at(2)]),
            "the scrub logs its own"
        );
    }

    #[test]
    fn a_second_read_of_damaged_blocks_can_be_stopped() {
        let disk = ScriptedDisk::new(128 << 20);
        let pool = made(&disk);
        let error = DataError { dataset: ObjectId(0), object: ObjectId(1), level: 0, blkid: 0, birth: 0 };
        let known = BTreeSet::from([error]);
        assert_eq!(visit::look_again(pool.inner(), &known, &|| false).expect("read"), None);
        assert_eq!(visit::look_again(pool.inner(), &known, &|| true).expect("read"), Some(BTreeSet::new()));
    }

    #[test]
    fn a_scrub_that_was_left_can_be_paused_resumed_and_canceled() {
        let disk = ScriptedDisk::new(128 << 20);
        let pool = made(&disk);
        fill(&pool);
        pool.run(|syncing| begin(syncing, Births::default())).expect("begun");
        let pool = again(pool, &disk);
        assert_eq!(pool.read_only(), None);
        let status = pool.scan().expect("read").expect("begun");
        assert!(status.scan.is_scrubbing() && !status.running);
        pool.pause_scrub().expect("paused");
        let pool = again(pool, &disk);
        assert!(pool.scan().expect("read").expect("begun").scan.is_paused());
        pool.resume_scrub().expect("nothing to do");
        assert!(!pool.scan().expect("read").expect("begun").running);
        pool.scrub().expect("resumed");
        pool.wait_scrub().expect("done");
        let scan = pool.scan().expect("read").expect("done").scan;
        assert_eq!((scan.state, scan.errors), (ScanState::Finished, 0));
        assert!(matches!(pool.cancel_scrub(), Err(Error::NotScrubbing)));
        pool.run(|syncing| begin(syncing, Births::default())).expect("begun");
        pool.cancel_scrub().expect("canceled");
        let scan = pool.scan().expect("read").expect("done").scan;
        assert_eq!((scan.state, scan.queue), (ScanState::Canceled, ObjectId(0)));
        let mut found = Vec::new();
        crate::check::check(&pool, &mut |finding| found.push(finding)).expect("checked");
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn an_unfinished_scrub_of_openzfs_restarts_when_the_pool_changes() {
        let disk = ScriptedDisk::new(128 << 20);
        let pool = made(&disk);
        pool.run(|syncing| {
            let mut scan = begin(syncing, Births::default())?;
            (scan.bookmark, scan.examined) = ([54, 3, 0, 9], 4096);
            let queue = syncing.mos().object(scan.queue)?;
            zap::update(&queue, &syncing.tx, b"36", &Value::from_u64(0))?;
            scan_state::write(syncing.mos(), &syncing.tx, &scan)
        })
        .expect("written");
        let pool = again(pool, &disk);
        assert_eq!(pool.scan().expect("read").expect("there").scan.bookmark, [54, 3, 0, 9]);
        pool.run(|_| Ok(())).expect("synced");
        let scan = pool.scan().expect("read").expect("there").scan;
        assert!(scan.is_scrubbing() && scan.bookmark == [0; 4] && scan.examined == 0);
        let queue = pool.inner().mos.object(scan.queue).expect("there");
        assert_eq!(zap::count(&queue).expect("counted"), 0);
        let pool = again(pool, &disk);
        pool.scrub().expect("resumed");
        pool.wait_scrub().expect("done");
    }
}
