//! Making changes durable before their txg syncs: notes → records → log blocks → flush.
//!
//! One caller writes the records of all waiting callers. The writer takes the space for the next block of the chain from an
//! open txg. It holds that txg open until the block that points to the next one is written. So no synced space map contains
//! a log block that no chain reaches.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use codec::crypt::Content;
use dmu::Object;
use format::blkptr::{Block, BlockPtr, Dva};
use format::zil::{self, Body, CHAIN_SIZE, Chain, Record, WRITE_HEADER, Write};
use format::{ByteOrder, ObjectId, Txg, blkptr};
use storage::{Encoded, interrupt};

use crate::log::{Itx, Link, NOTING, Note, OFF, Phase, State, chain};
use crate::state::Dataset;
use crate::tx::Tx;
use crate::{Error, Result};

/// Approximate bytes of a record without data, for the size of the next block.
const RECORD: u64 = 256;
/// Number of requests for space before the caller waits for a sync instead.
const ASKS_MAX: u32 = 4;
/// For this many bytes of changes, a sync is faster than a log: it uses all cores, and data already on its way to the disks
/// need not be read back.
const SYNC_MIN: u64 = 8 << 20;
/// But the log is used if the sync would have to write more than this many times as much.
const SYNC_SHARE: u64 = 4;
/// Bytes of records written before their txg syncs. Only a sync releases their space and memory, so with more of them a sync
/// is used.
const EARLY_MAX: u64 = 64 << 20;
/// A write is split between two blocks only if so many bytes of its data fit into the first.
const SPLIT_MIN: usize = 1 << 10;
/// A write is split where one of these units of its object ends. After a crash perhaps only the first part is there, and
/// programs on a volume expect that a sector is completely old or completely new after a power cut.
const SPLIT_UNITS: [u64; 2] = [4096, 512];

/// Bytes of a write at `offset` that go into a block with room for `room` bytes of it.
fn first_part(offset: u64, len: usize, room: usize) -> usize {
    if len <= room {
        return len;
    }
    let end_at = |unit: u64| (offset + room as u64) / unit * unit;
    let end = SPLIT_UNITS.into_iter().map(end_at).find(|end| *end > offset);
    end.map_or(room, |end| (end - offset) as usize)
}

/// A request to make changes safe.
#[derive(Debug)]
pub struct Ticket {
    of: Option<ObjectId>,
    number: Option<u64>,
}

impl Ticket {
    /// Commit the changes of one object and the changes that it depends on; `None`: all changes of the dataset.
    #[must_use]
    pub const fn new(of: Option<ObjectId>) -> Ticket {
        Ticket { of, number: None }
    }
}

/// The task of a caller of `fsync`.
pub enum Turn<'a> {
    /// Nothing: the changes are safe.
    Done,
    /// Wait for a sync of the pool.
    Sync,
    /// Nothing: the request was interrupted, and its changes may not be durable.
    Interrupted,
    /// Write the batch for all callers, then ask again.
    Write(Box<Batch<'a>>),
}

impl Dataset {
    /// Waits until the changes of `ticket` are durable, or until it is the caller's turn to write. The caller must hold no
    /// transaction and no lock that a note needs.
    pub fn commit_turn(self: &Arc<Self>, ticket: &mut Ticket) -> Turn<'_> {
        if self.pool.mos.version() < crate::version::LOGGED_SNAPSHOTS {
            return Turn::Sync;
        }
        let mut state = self.log.lock();
        if matches!(state.phase, Phase::Off) {
            drop(state);
            self.start_noting();
            return Turn::Sync;
        }
        let number = *ticket.number.get_or_insert_with(|| {
            state.asked += 1;
            let number = state.asked;
            state.wanted.push((number, ticket.of));
            number
        });
        loop {
            if state.served >= number {
                return Turn::Done;
            }
            let ready = matches!(state.phase, Phase::On) && state.usable <= state.durable;
            if !ready || state.unnoted > state.durable {
                state.withdraw(number);
                return Turn::Sync;
            }
            if !state.writing {
                let wanted = Wanted::new(&state.wanted);
                let bytes = state.cost(&wanted);
                let much = bytes >= SYNC_MIN && bytes >= self.pool.budget.bytes() / SYNC_SHARE;
                if much || self.pool.storage.early_bytes() >= EARLY_MAX {
                    state.withdraw(number);
                    return Turn::Sync;
                }
                return Turn::Write(Box::new(Batch::new(self, &mut state, &wanted, bytes)));
            }
            if interrupt::is_wanted() {
                state.withdraw(number);
                return Turn::Interrupted;
            }
            state = state.wait(|state| interrupt::wait(&self.log.changed, state));
        }
    }

    /// From now on changes are noted. The caller waits for a sync, which makes all earlier changes durable.
    fn start_noting(self: &Arc<Self>) {
        self.log.mode.store(NOTING, Ordering::Release);
        // A thread that did not see this holds this txg, or an earlier one.
        let open = self.pool.groups.lock().open;
        {
            let mut state = self.log.lock();
            if !matches!(state.phase, Phase::Off) {
                return;
            }
            // Changes noted since then are kept.
            state.phase = Phase::Starting;
            state.unnoted = state.unnoted.max(open);
        }
        // This must come later: a log that is off is removed from the list.
        self.list_logged();
    }
}

/// The changes that callers of `fsync` want to be safe.
struct Wanted {
    all: bool,
    objects: BTreeSet<ObjectId>,
}

impl Wanted {
    fn new(wanted: &[(u64, Option<ObjectId>)]) -> Wanted {
        Wanted {
            all: wanted.iter().any(|(_, of)| of.is_none()),
            objects: wanted.iter().filter_map(|(_, of)| *of).collect(),
        }
    }

    fn includes(&self, itx: &Itx) -> bool {
        self.all || itx.of.is_none_or(|of| self.objects.contains(&of))
    }
}

impl Itx {
    /// Bytes that it takes in a log, roughly.
    fn cost(&self) -> u64 {
        match &self.note {
            Note::Data { length, .. } => length + RECORD,
            Note::Done(body) => match &**body {
                Body::CloneRange(clone) => (clone.ptrs.len() * blkptr::SIZE) as u64 + RECORD,
                _ => RECORD,
            },
        }
    }
}

impl State {
    /// Approximate bytes of its records in a log.
    fn cost(&self, wanted: &Wanted) -> u64 {
        self.notes.iter().filter(|itx| wanted.includes(itx)).map(Itx::cost).sum()
    }

    /// The callers wait for a sync instead of a batch.
    fn withdraw(&mut self, number: u64) {
        self.wanted.retain(|(asker, _)| *asker != number);
    }
}

/// Notes that one thread writes to the log. If the batch is dropped unfinished, only a sync makes their changes durable.
pub struct Batch<'a> {
    dataset: &'a Arc<Dataset>,
    notes: VecDeque<Itx>,
    /// Bytes still to come, roughly.
    left: u64,
    /// Number of the last commit request that this batch serves.
    serves: u64,
    /// Latest txg of its changes.
    newest: Txg,
    /// The next block and its contents.
    tail: Block,
    raw: Vec<u8>,
    /// Latest txg of the records in `raw`.
    raw_txg: Txg,
    seq: u64,
    /// Bytes of records so far.
    bytes: usize,
    /// Top-level vdevs with unflushed writes of this batch, or of earlier unfinished ones.
    vdevs: BTreeSet<u32>,
    finished: bool,
    /// A block could not be written: the chain ends before it.
    broken: bool,
}

impl<'a> Batch<'a> {
    /// Takes the notes of all commits requested since the last batch. Their records take about `cost` bytes.
    fn new(dataset: &'a Arc<Dataset>, state: &mut State, wanted: &Wanted, cost: u64) -> Batch<'a> {
        state.writing = true;
        state.wanted.clear();
        let (notes, kept) =
            std::mem::take(&mut state.notes).into_iter().partition(|itx| wanted.includes(itx));
        state.notes = kept;
        let notes: VecDeque<Itx> = notes;
        let tail = state.chain.back().expect("a log that is on has a chain").block;
        let vdevs = std::mem::take(&mut state.unflushed);
        Batch {
            dataset,
            left: cost,
            newest: notes.iter().map(|itx| itx.txg).max().unwrap_or_default(),
            notes,
            serves: state.asked,
            tail,
            raw: vec![0; CHAIN_SIZE],
            raw_txg: Txg(0),
            seq: state.seq,
            bytes: 0,
            vdevs,
            finished: false,
            broken: false,
        }
    }

    /// The next change for [`Batch::push`], and its txg.
    #[must_use]
    pub fn next_note(&mut self) -> Option<(Txg, Note)> {
        self.notes.pop_front().map(|itx| (itx.txg, itx.note))
    }

    /// Writes the block of `object` that holds byte `offset` to the place that it keeps, for a record to point at. `None` if
    /// the change made in `txg` is on its way already, or there is no such place. There is none where logs have devices of
    /// their own, which must not be needed for data: then the record holds the data.
    ///
    /// # Errors
    /// The device refused: drop the batch and sync instead.
    pub fn place_data(&mut self, txg: Txg, object: &Object, offset: u64) -> Result<Option<BlockPtr>> {
        let pool = &self.dataset.pool;
        if pool.storage.vdevs().tops().iter().any(|top| top.is_log()) {
            return Ok(None);
        }
        let mut asked = 0;
        loop {
            // The lock is held until the block is registered, because the sync of its txg must find it.
            let tx = pool.groups.begin_log()?;
            if tx.txg() != txg {
                return Ok(None);
            }
            let Some((draft, recipe)) = object.dirty_leaf(&tx, offset) else {
                return Ok(None);
            };
            if let Some(block) = pool.storage.early(&draft, recipe) {
                return Ok(Some(BlockPtr::Block(block)));
            }
            let guard = self.dataset.objset().io().guard(&recipe, &*pool.host.entropy);
            let Encoded::Stored { payload, compression, checksum, sealing } =
                pool.storage.encode(&draft, recipe, &pool.storage.salt(), guard)
            else {
                return Ok(None);
            };
            let psize = payload.bytes().len() as u64;
            let Some(dva) = pool.log_space.take_for_data(txg, psize) else {
                drop(tx);
                if asked == ASKS_MAX {
                    return Ok(None);
                }
                asked += 1;
                pool.log_space.ask(psize, || pool.groups.poke());
                continue;
            };
            let block = Block {
                dvas: [dva, Dva::default(), Dva::default()],
                lsize: draft.record().len() as u64,
                psize,
                compression,
                checksum_kind: recipe.checksum,
                checksum,
                encrypted: recipe.protection.is_some(),
                sealing,
                ..Block::plain(object.object_type(), txg)
            };
            // The block is registered before it is written. If the write fails, the sync of the txg frees the space or fails
            // itself.
            let written = pool.storage.write_log((dva, txg), psize, payload);
            if written.is_ok() {
                pool.storage.keep_early(&draft, recipe, block);
            } else {
                pool.storage.waste_early(block);
            }
            written?;
            self.vdevs.insert(dva.vdev.0);
            return Ok(Some(BlockPtr::Block(block)));
        }
    }

    /// Adds a record. Blocks that are full are written.
    ///
    /// # Errors
    /// There is no space for log blocks, or one could not be written: drop the batch and sync instead.
    pub fn push(&mut self, txg: Txg, body: Body) -> Result<()> {
        match body {
            Body::Write(Write { object, offset, data: Some(data), .. }) => {
                self.push_data(txg, object, offset, &data)?;
                self.left = self.left.saturating_sub(data.len() as u64 + RECORD);
            }
            body => {
                if let Body::Write(write) = &body {
                    self.left = self.left.saturating_sub(write.length);
                }
                let record = Record { txg, seq: 0, ignore_case: false, body };
                self.append(txg, record)?;
                self.left = self.left.saturating_sub(RECORD);
            }
        }
        Ok(())
    }

    /// Data in as many records as it takes.
    fn push_data(&mut self, txg: Txg, object: ObjectId, mut offset: u64, mut data: &[u8]) -> Result<()> {
        while !data.is_empty() {
            let room = (self.room() / 8 * 8).saturating_sub(WRITE_HEADER);
            if room < data.len() && room < SPLIT_MIN {
                self.write_block(data.len() + WRITE_HEADER)?;
                continue;
            }
            let (part, rest) = data.split_at(first_part(offset, data.len(), room));
            let write = Write {
                object,
                offset,
                length: part.len() as u64,
                block_offset: 0,
                ptr: BlockPtr::HOLE,
                data: Some(part.to_vec()),
            };
            self.append(txg, Record { txg, seq: 0, ignore_case: false, body: Body::Write(write) })?;
            offset += part.len() as u64;
            data = rest;
        }
        Ok(())
    }

    fn room(&self) -> usize {
        self.tail.lsize as usize - self.raw.len()
    }

    fn append(&mut self, txg: Txg, mut record: Record) -> Result<()> {
        self.seq += 1;
        record.seq = self.seq;
        let raw = record.encode(ByteOrder::Little);
        if raw.len() + CHAIN_SIZE > zil::BLOCK_MAX {
            return Err(Error::LongRecord(raw.len()));
        }
        // Even an empty block may be too small, because its size was chosen before the records were known.
        while raw.len() > self.room() {
            self.write_block(raw.len())?;
        }
        self.raw.extend_from_slice(&raw);
        self.raw_txg = self.raw_txg.max(txg);
        self.bytes += raw.len();
        Ok(())
    }

    /// Writes the block as it is. The next one gets room for `need` bytes of records, if there is enough space.
    fn write_block(&mut self, need: usize) -> Result<()> {
        let want = (need as u64).max(self.left.min(zil::BLOCK_MAX as u64)) + CHAIN_SIZE as u64;
        let want = want.next_multiple_of(zil::BLOCK_MIN as u64).min(zil::BLOCK_MAX as u64);
        let (tx, next) = self.reserve(want)?;
        assert!(self.raw_txg <= tx.txg(), "what is logged was done");
        let used = self.raw.len();
        self.raw.resize(zil::written(used), 0);
        Chain { next: BlockPtr::Block(next), used: used as u64 }.encode(&mut self.raw, ByteOrder::Little);
        self.seal();
        let raw = std::mem::replace(&mut self.raw, vec![0; CHAIN_SIZE]);
        let (dva, size) = (self.tail.dvas[0], self.tail.lsize);
        let written = self.dataset.pool.storage.write_log((dva, self.tail.birth), size, raw.into());
        self.vdevs.insert(dva.vdev.0);
        let mut state = self.dataset.log.lock();
        if let Some(link) = state.chain.back_mut() {
            assert_eq!(link.block, self.tail, "one thread writes at the end of a chain");
            (link.written, link.max_txg) = (true, self.raw_txg);
        }
        state.chain.push_back(Link { block: next, max_txg: Txg(0), written: false });
        state.seq = self.seq;
        drop(state);
        // The txg is released only here: it must not sync before the block is written.
        drop(tx);
        self.tail = next;
        self.raw_txg = Txg(0);
        self.broken |= written.is_err();
        Ok(written?)
    }

    /// Completes the block that is about to be written.
    fn seal(&mut self) {
        let mac = self.tail.sealing.map(|sealing| {
            let keys = self.dataset.objset().io().keys().expect("only with the keys there is such a block");
            let sealed = keys.seal(Content::Log(ByteOrder::Little), &sealing, &mut self.raw);
            sealed.expect("records that were just encoded fit into their block")
        });
        codec::zilog::seal(&mut self.raw, self.tail.checksum.0, mac);
    }

    /// A place for the next block, and the txg that it belongs to, held open.
    fn reserve(&self, want: u64) -> Result<(Tx, Block)> {
        let pool = &self.dataset.pool;
        let mut asked = 0;
        loop {
            let tx = pool.groups.begin_log()?;
            if let Some((dva, size)) = pool.log_space.take(tx.txg(), want) {
                let sealing = self.dataset.log_sealing();
                let next = chain::link(dva, size, chain::next_identity(&self.tail), tx.txg(), sealing);
                return Ok((tx, next));
            }
            drop(tx);
            // The sync thread answers when it is idle. If it gives no space, the caller waits for a sync.
            if asked == ASKS_MAX {
                return Err(Error::NoSpace);
            }
            asked += u32::from(pool.log_space.ask(want, || pool.groups.poke()));
        }
    }

    /// Writes the rest and waits until all of it is durable.
    ///
    /// # Errors
    /// As [`Batch::push`].
    pub fn finish(mut self) -> Result<()> {
        if self.raw.len() > CHAIN_SIZE {
            self.left = 0;
            // The next commit will probably be like the last ones.
            let likely = {
                let mut state = self.dataset.log.lock();
                state.history.rotate_right(1);
                state.history[0] = self.bytes;
                state.history.iter().copied().max().unwrap_or(0)
            };
            self.write_block(likely.min(zil::BLOCK_MAX - CHAIN_SIZE))?;
        }
        let flushed = self.dataset.pool.storage.flush_log(self.vdevs.iter().copied());
        self.broken |= flushed.is_err();
        flushed?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        let mut state = self.dataset.log.lock();
        state.writing = false;
        if self.finished {
            state.served = state.served.max(self.serves);
        } else {
            state.unnoted = state.unnoted.max(self.newest);
            // The chain continues after the blocks that this batch wrote.
            state.unflushed.append(&mut self.vdevs);
            if self.broken && matches!(state.phase, Phase::On) {
                state.phase = Phase::Closing;
                self.dataset.log.mode.store(OFF, Ordering::Release);
            }
        }
        self.dataset.log.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use storage::host::{Op, Script};

    use super::*;
    use crate::testing::made;

    /// It is the caller's turn, and its order is to write.
    fn batch(dataset: &Arc<Dataset>) -> Box<Batch<'_>> {
        match dataset.commit_turn(&mut Ticket::new(None)) {
            Turn::Write(batch) => batch,
            _ => panic!("a log that is on is written"),
        }
    }

    #[test]
    fn the_next_batch_flushes_the_writes_of_an_unfinished_one() {
        let script = Script::new();
        let disks = [script.disk("a", 64 << 20), script.disk("b", 64 << 20)];
        let pool = made(&disks);
        let dataset = pool.open("tank").expect("open");
        assert!(matches!(dataset.commit_turn(&mut Ticket::new(None)), Turn::Sync));
        pool.sync().expect("synced");
        let write = |bytes: usize| {
            Body::Write(Write {
                object: ObjectId(2),
                offset: 0,
                length: bytes as u64,
                block_offset: 0,
                ptr: BlockPtr::HOLE,
                data: Some(vec![7; bytes]),
            })
        };
        let txg = pool.inner.committed().0;
        let written_by = |ops: &[Op]| -> BTreeSet<usize> {
            let disk = |op: &Op| if let Op::Write { disk, .. } = op { Some(*disk) } else { None };
            ops.iter().filter_map(disk).collect()
        };
        let before = script.ops().len();
        {
            let mut unfinished = batch(&dataset);
            while written_by(&script.ops()[before..]).len() < disks.len() {
                unfinished.push(txg, write(100 << 10)).expect("blocks are written");
            }
        }
        let between = script.ops().len();
        {
            let mut last = batch(&dataset);
            last.push(txg, write(100)).expect("noted");
            last.finish().expect("durable");
        }
        let ops = script.ops();
        let (first, second) = (written_by(&ops[before..between]), written_by(&ops[between..]));
        assert!(!first.is_subset(&second), "only the first wrote on one of them: {first:?}, {second:?}");
        for disk in 0..disks.len() {
            let flushed = ops.iter().rposition(|op| matches!(op, Op::Flush { disk: of } if *of == disk));
            let written = ops.iter().rposition(|op| matches!(op, Op::Write { disk: of, .. } if *of == disk));
            assert!(written < flushed, "disk {disk}: written {written:?}, flushed {flushed:?}");
        }
        pool.sync().expect("synced");
        drop(dataset);
        pool.export().expect("exported");
    }

    #[test]
    fn a_split_write_ends_where_a_page_or_a_sector_does() {
        for (offset, len, room, expected) in [
            (0, 100, 100, 100),
            (0, 10_000, 9_000, 8192),
            (4000, 10_000, 1024, 96),
            (4096, 10_000, 1024, 1024),
            (5000, 10_000, 1500, 1144),
            (5, 10_000, 1024, 1019),
            (1, 1000, 500, 500),
        ] {
            assert_eq!(first_part(offset, len, room), expected, "{len} bytes at {offset}, room for {room}");
        }
    }
}
