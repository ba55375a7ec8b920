//! Changing the contents of a dataset (file system or volume) and making changes durable.
//!
//! From:   the operations of this crate.
//! To:     transactions and the intent log of `pool`.

use std::sync::Arc;

use dmu::Objset;
use format::zil::{Body, Write};
use format::{ObjectId, Txg};
use pool::zil::{Batch, Note, Ticket, Turn};
use pool::{Begun, Dataset, Hold, Patience, SyncMode, Tx};

use crate::{Error, Result};

/// Bytes of a large write that go into one transaction.
pub(crate) const WRITE_STEP: u64 = 1 << 20;
/// Blocks freed in one transaction.
const FREE_STEP: u64 = 8192;
/// The same limit if each block may change a block of a dedup table.
const FREE_STEP_SHARED: u64 = 512;

/// Begins a transaction without blocking: the caller holds locks. Until it succeeds, the caller changes nothing that
/// outlives its locks, because [`retrying`] starts it again after [`Error::Waits`].
pub(crate) fn begin(dataset: &Dataset, hold: Hold) -> Result<Tx> {
    match dataset.try_begin(hold)? {
        Begun::Tx(tx) => Ok(tx),
        Begun::Waits(wait) => Err(Error::Waits(wait)),
    }
}

/// Runs `change`, and restarts it from the beginning each time it must wait. `change` takes its locks itself. They are
/// released before each wait, so that other threads can use the same objects meanwhile.
pub(crate) fn retrying<T>(dataset: &Dataset, mut change: impl FnMut() -> Result<T>) -> Result<T> {
    let mut patience = Patience::default();
    loop {
        match change() {
            Err(Error::Waits(wait)) => dataset.wait(&wait, &mut patience)?,
            done => return done,
        }
    }
}

/// Bytes of a write into blocks of `block` bytes that go into one transaction. They are fewer where a block takes more
/// space than it has bytes: then one transaction would ask for more space than a small pool has.
pub(crate) fn write_step(objset: &Objset, block: u64) -> u64 {
    let asize = objset.largest_asize_of(block);
    let step = WRITE_STEP / asize.div_ceil(block);
    block.max(1 << step.max(1).ilog2())
}

/// Blocks that one transaction frees of an object with `blocks` blocks, holes included.
pub(crate) fn free_step(dataset: &Dataset, blocks: u64) -> u64 {
    // The replay of a record uses one transaction.
    if dataset.is_replaying() { u64::MAX } else { bounded_step(dataset, blocks) }
}

/// The same step during a replay. A sparse file has far more block numbers than blocks, so the step grows with the number of
/// blocks.
pub(crate) fn bounded_step(dataset: &Dataset, blocks: u64) -> u64 {
    match dataset.has_shared() {
        false => FREE_STEP.max(blocks / 64),
        true => FREE_STEP_SHARED.max(blocks / 1024),
    }
}

/// Whether each change must be durable when it returns (`sync=always`).
pub(crate) fn is_synchronous(dataset: &Dataset) -> bool {
    dataset.settings().sync == SyncMode::Always && !dataset.has_log_to_replay()
}

/// Blocks until the changes of object `of` (`None`: all changes) are durable. `next` makes a record of at most the given
/// number of bytes of an object from an offset on; `None` if those bytes do not exist any more.
pub(crate) fn make_safe(
    dataset: &Arc<Dataset>,
    of: Option<ObjectId>,
    mut next: impl FnMut(&mut Batch<'_>, Txg, Range) -> Result<Option<Write>>,
) -> Result<()> {
    // A snapshot or read-only pool has no unsynced changes. With `readonly=on`, there may be changes from before it was set.
    if dataset.settings().sync == SyncMode::Disabled || dataset.check_changeable().is_err() {
        return Ok(());
    }
    let mut ticket = Ticket::new(of);
    loop {
        match dataset.commit_turn(&mut ticket) {
            Turn::Done => return Ok(()),
            Turn::Interrupted => return Err(Error::Interrupted),
            Turn::Sync => return Ok(dataset.sync()?),
            Turn::Write(batch) => {
                if let Err(error) = write_batch(*batch, &mut next) {
                    tracing::debug!(%error, "changes are made safe by a sync, not by the intent log");
                    return Ok(dataset.sync()?);
                }
            }
        }
    }
}

/// Bytes of an object that the intent log must record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) object: ObjectId,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

fn write_batch(
    mut batch: Batch<'_>,
    next: &mut impl FnMut(&mut Batch<'_>, Txg, Range) -> Result<Option<Write>>,
) -> Result<()> {
    while let Some((txg, note)) = batch.next_note() {
        match note {
            Note::Done(body) => batch.push(txg, *body)?,
            Note::Data { object, offset, length } => {
                let mut at = offset;
                while at < offset + length {
                    let left = Range { object, offset: at, length: offset + length - at };
                    let Some(write) = next(&mut batch, txg, left)? else { break };
                    at += write.length;
                    batch.push(txg, Body::Write(write))?;
                }
            }
        }
    }
    Ok(batch.finish()?)
}
