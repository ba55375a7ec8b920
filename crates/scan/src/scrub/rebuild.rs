//! The thread of sequential rebuilds: has one txg after the other copy a part, and begins what is to follow.
//!
//! From:   the records of the rebuilds that are under way (`pool/rebuild.rs`).
//! To:     the same; at the end a scrub, because a rebuild looks at no checksums, or a resilver of what devices still lack.
//! Source: docs/format/11-redundancy.md §7.

use std::sync::Arc;
use std::time::Instant;

use format::Txg;
use format::scan::{Scan, ScanState};

use pool::scrubber::{Order, State};
use pool::{Inner, Pool, RebuildStep, Result, Syncing, scan_state};

use super::length::Length;
use super::{Births, resilver, visit};

/// Goes on with the rebuilds that are under way on disk. A scrub at work ends.
pub(super) fn take_up(pool: &Pool) -> Result<()> {
    let scrub = pool.inner().scrubber();
    let _turn = scrub.turn();
    {
        let state = scrub.lock();
        if state.running && state.rebuilding {
            return Ok(());
        }
    }
    scrub.give(Order::Cancel);
    scrub.join();
    {
        let mut state = scrub.lock();
        (state.running, state.rebuilding) = (true, true);
    }
    let begun = pool.run(|syncing| {
        if let Some(scan) = scan_state::read(syncing.mos())?.filter(Scan::is_scrubbing) {
            super::end(syncing, scan, ScanState::Canceled)?;
        }
        Ok(run as fn(&Arc<Inner>))
    });
    super::work(pool, begun, State { rebuilding: true, ..State::default() })
}

/// Carries out all rebuilds, and the scan after them.
fn run(inner: &Arc<Inner>) {
    match carry_out(inner) {
        Ok(Some(scan)) => {
            inner.scrubber().lock().rebuilding = false;
            inner.scrubber().changed.notify_all();
            visit::run(inner, scan);
        }
        Ok(None) => visit::end(inner, Ok(())),
        Err(error) => visit::end(inner, Err(error)),
    }
}

/// Returns the scan that was begun when the last rebuild ended.
fn carry_out(inner: &Arc<Inner>) -> Result<Option<Scan>> {
    // The rebuild reads nothing until all blocks that the new device may lack are on the other devices.
    let end = inner.rebuilds()?.iter().filter(|(_, it)| it.is_active()).map(|(_, it)| it.max_txg).max();
    resilver::settle(inner, end.unwrap_or(Txg(0)))?;
    let mut length = Length::REBUILD;
    loop {
        if inner.scrubber().order() != Order::Go {
            return Ok(None);
        }
        let (began, bytes) = (Instant::now(), length.bytes);
        match inner.run(move |syncing| step(syncing, bytes))? {
            Next::GoesOn => length.adapt(began.elapsed()),
            Next::Ended(scan) => {
                inner.end_replacing()?;
                return Ok(scan);
            }
        }
    }
}

/// The next task after a part.
enum Next {
    GoesOn,
    /// No rebuild is under way any more; a scan may have begun.
    Ended(Option<Scan>),
}

fn step(syncing: &mut Syncing<'_>, bytes: u64) -> Result<Next> {
    let step = syncing.rebuild_some(bytes)?;
    match step {
        RebuildStep::GoesOn => return Ok(Next::GoesOn),
        RebuildStep::Ended => return Ok(Next::Ended(None)),
        RebuildStep::Obstructed => {
            tracing::warn!(
                "what is in use cannot be read in order: a resilver takes the place of the rebuild"
            );
            return resilver::begin(syncing).map(|scan| Next::Ended(Some(scan)));
        }
        RebuildStep::Completed | RebuildStep::Canceled if syncing.is_rebuilding()? => {
            return Ok(Next::GoesOn);
        }
        RebuildStep::Completed | RebuildStep::Canceled => {}
    }
    let scan = if resilver::lacking(syncing.inner.storage()).is_some() {
        Some(resilver::begin(syncing)?)
    } else if step == RebuildStep::Completed && syncing.inner.scrubs_rebuilt() {
        Some(super::begin(syncing, Births::default())?)
    } else {
        None
    };
    Ok(Next::Ended(scan))
}
