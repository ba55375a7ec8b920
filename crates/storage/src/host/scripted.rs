//! Disks in memory that remember every write and flush, can lose power at any of them, and fail on request.
//!
//! From:   tests and `sim`.
//! To:     everything that takes a [`Disk`]: it cannot tell the difference.
//!
//! The disks of one pool share one [`Script`]: a single order of all their operations, so that one *cut* is
//! the same moment on every disk. The state after a power cut at operation `cut` is: what was flushed before
//! it, plus whatever a [`CrashPolicy`] keeps of the unflushed writes before it.

mod pages;

use std::fmt;
use std::io::{self, IoSlice};
use std::iter::once;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar};

use crate::rank::{MutexHeld, RankedMutex};

use super::backing::{Backing, is_within};
use super::disk::{ASKED, Disk, past_the_end, total_len};
use super::entropy::SeededEntropy;
use pages::Pages;

/// The unit in which a torn write arrives, in bytes.
const SECTOR: usize = 512;

/// The fate of writes that were not flushed when the power went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashPolicy {
    /// All arrived: the cut is clean.
    KeepAll,
    /// None arrived.
    LoseAllUnflushed,
    /// Each arrived whole or not at all, whatever came before or after it.
    RandomSubset,
    /// Each arrived whole, not at all, up to some sector, or in some of its sectors.
    Torn,
}

/// A fault of a disk. Operations are counted as in [`Script::op_count`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Reads that touch this byte range fail.
    ReadError(Range<u64>),
    /// Writes that touch this byte range fail.
    RefusedRange(Range<u64>),
    /// Writes and flushes fail once the script holds this many operations.
    WriteError {
        /// First operation that is not accepted.
        from_op: usize,
    },
    /// Flushes fail once the script holds this many operations, and each one that fails loses all writes since the last
    /// good flush.
    LoseAtFlush {
        /// First operation that is not accepted.
        from_op: usize,
    },
    /// Everything fails once the script holds this many operations.
    Vanish {
        /// First operation that is not accepted.
        from_op: usize,
    },
    /// Everything waits once the script holds this many operations, until [`ScriptedDisk::heal`].
    Hang {
        /// First operation that waits.
        from_op: usize,
    },
    /// The write that becomes operation `op` is acknowledged, but lands at another place.
    Misdirect {
        /// Its number in the script.
        op: usize,
        /// Where it lands, in bytes.
        to: u64,
    },
    /// The write that becomes operation `op` is acknowledged and forgotten.
    Forget {
        /// Its number in the script.
        op: usize,
    },
}

/// One operation that a disk accepted.
#[derive(Clone)]
pub enum Op {
    /// Bytes written; `offset` is where they landed.
    Write {
        /// Which disk of the script.
        disk: usize,
        /// Byte offset.
        offset: u64,
        /// The written bytes; empty for a forgotten write.
        bytes: Arc<[u8]>,
    },
    /// All writes of this disk before it are durable.
    Flush {
        /// Which disk of the script.
        disk: usize,
    },
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Write { disk, offset, bytes } => {
                write!(f, "Write(disk {disk}, {} bytes at {offset:#x})", bytes.len())
            }
            Op::Flush { disk } => write!(f, "Flush(disk {disk})"),
        }
    }
}

/// The common order of operations of a set of disks. Clones are the same script.
#[derive(Clone, Default)]
pub struct Script(Arc<Common>);

#[derive(Default)]
struct Common {
    state: RankedMutex<State>,
    /// Faults were removed: hanging operations check again.
    healed: Condvar,
}

#[derive(Default)]
struct State {
    disks: Vec<DiskState>,
    ops: Vec<Op>,
}

struct DiskState {
    path: PathBuf,
    size: u64,
    sector_size: u32,
    /// Contents before the first operation of the log.
    base: Pages,
    /// Contents as written, flushed or not.
    now: Pages,
    faults: Vec<Fault>,
}

impl Script {
    /// A script without disks.
    #[must_use]
    pub fn new() -> Script {
        Script::default()
    }

    /// Adds an empty disk of `size` bytes with sectors of 512.
    #[must_use]
    pub fn disk(&self, path: impl Into<PathBuf>, size: u64) -> ScriptedDisk {
        self.disk_with_sectors(path, size, SECTOR as u32)
    }

    /// Adds an empty disk of `size` bytes that reports sectors of `sector_size` bytes.
    #[must_use]
    pub fn disk_with_sectors(&self, path: impl Into<PathBuf>, size: u64, sector_size: u32) -> ScriptedDisk {
        let path = path.into();
        let mut state = self.lock();
        state.disks.push(DiskState {
            path: path.clone(),
            size,
            sector_size,
            base: Pages::default(),
            now: Pages::default(),
            faults: Vec::new(),
        });
        let id = state.disks.len() - 1;
        ScriptedDisk(Arc::new(Shared { script: self.clone(), id, path, size, sector_size }))
    }

    /// The disks, in the order of their making.
    #[must_use]
    pub fn disks(&self) -> Vec<ScriptedDisk> {
        let state = self.lock();
        let shared = |(id, disk): (usize, &DiskState)| Shared {
            script: self.clone(),
            id,
            path: disk.path.clone(),
            size: disk.size,
            sector_size: disk.sector_size,
        };
        state.disks.iter().enumerate().map(shared).map(|shared| ScriptedDisk(Arc::new(shared))).collect()
    }

    /// Operations accepted so far: cuts run from 0 to this number, inclusive.
    #[must_use]
    pub fn op_count(&self) -> usize {
        self.lock().ops.len()
    }

    /// The operations so far, in order.
    #[must_use]
    pub fn ops(&self) -> Vec<Op> {
        self.lock().ops.clone()
    }

    /// Makes the present contents the beginning: the log is empty again and counts from 0. For leaving out
    /// what a story does not cut (making the pool), and for bounding memory. Counted faults are dropped too.
    pub fn forget(&self) {
        let mut state = self.lock();
        state.ops.clear();
        for disk in &mut state.disks {
            disk.base = disk.now.clone();
            disk.faults.retain(|fault| matches!(fault, Fault::ReadError(_) | Fault::RefusedRange(_)));
        }
        self.0.healed.notify_all();
    }

    /// The disks as found after a power cut just before operation number `cut`, in a new script, without
    /// faults. The same arguments give the same contents.
    ///
    /// # Panics
    /// If `cut` exceeds [`Script::op_count`].
    #[must_use]
    pub fn image_after(&self, cut: usize, policy: CrashPolicy, seed: u64) -> Script {
        let state = self.lock();
        assert!(cut <= state.ops.len(), "operation {cut} of {} has not happened", state.ops.len());
        let past = &state.ops[..cut];
        let mut flushed = vec![0; state.disks.len()]; // Per disk: operations below this are durable.
        for (number, op) in past.iter().enumerate() {
            if let Op::Flush { disk } = op {
                flushed[*disk] = number;
            }
        }
        let mut contents: Vec<Pages> = state.disks.iter().map(|disk| disk.base.clone()).collect();
        let chance = SeededEntropy::new(seed);
        for (number, op) in past.iter().enumerate() {
            if let Op::Write { disk, offset, bytes } = op {
                let policy = if number < flushed[*disk] { CrashPolicy::KeepAll } else { policy };
                arrive(&mut contents[*disk], *offset, bytes, policy, &chance);
            }
        }
        let as_new = |(disk, pages): (&DiskState, Pages)| DiskState {
            path: disk.path.clone(),
            base: pages.clone(),
            now: pages,
            faults: Vec::new(),
            ..*disk
        };
        let disks = state.disks.iter().zip(contents).map(as_new).collect();
        let state = RankedMutex::leaf(State { disks, ops: Vec::new() });
        Script(Arc::new(Common { state, healed: Condvar::new() }))
    }

    fn lock(&self) -> MutexHeld<'_, State> {
        self.0.state.lock()
    }

    /// The state when `disk` no longer hangs, and the error that an operation of this kind gets now.
    fn enter(&self, disk: usize, is_write: bool) -> io::Result<MutexHeld<'_, State>> {
        let mut state = self.lock();
        while state.hangs(disk) {
            state = state
                .wait(|state| self.0.healed.wait(state).expect("no code panics while it holds the script"));
        }
        state.fault(disk, is_write).map(|()| state)
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        write!(f, "Script({} disks, {} operations)", state.disks.len(), state.ops.len())
    }
}

/// Applies the part of one write that survives under `policy`.
fn arrive(pages: &mut Pages, offset: u64, bytes: &[u8], policy: CrashPolicy, chance: &SeededEntropy) {
    let whole = 0..bytes.len();
    let parts: Vec<Range<usize>> = match (policy, chance.below(4)) {
        (CrashPolicy::KeepAll, _) => vec![whole],
        (CrashPolicy::LoseAllUnflushed, _) => vec![],
        (CrashPolicy::RandomSubset, 0 | 1) | (CrashPolicy::Torn, 0) => vec![whole],
        (CrashPolicy::RandomSubset, _) | (CrashPolicy::Torn, 1) => vec![],
        (CrashPolicy::Torn, 2) => {
            let sectors = chance.below(bytes.len().div_ceil(SECTOR) as u64 + 1) as usize;
            once(0..(sectors * SECTOR).min(bytes.len())).collect()
        }
        (CrashPolicy::Torn, _) => {
            let starts = whole.step_by(SECTOR).filter(|_| chance.below(2) == 0);
            starts.map(|start| start..(start + SECTOR).min(bytes.len())).collect()
        }
    };
    for part in parts {
        pages.write(offset + part.start as u64, &bytes[part]);
    }
}

/// A disk of a [`Script`]. Clones are the same disk.
#[derive(Clone)]
pub struct ScriptedDisk(Arc<Shared>);

struct Shared {
    script: Script,
    id: usize,
    path: PathBuf,
    size: u64,
    sector_size: u32,
}

impl ScriptedDisk {
    /// An empty disk of `size` bytes with a script of its own.
    #[must_use]
    pub fn new(size: u64) -> ScriptedDisk {
        Script::new().disk("/scripted/0", size)
    }

    /// The script it belongs to.
    #[must_use]
    pub fn script(&self) -> &Script {
        &self.0.script
    }

    /// This disk as found after a power cut; see [`Script::image_after`].
    ///
    /// # Panics
    /// If `cut` exceeds [`Script::op_count`].
    #[must_use]
    pub fn image_after(&self, cut: usize, policy: CrashPolicy, seed: u64) -> ScriptedDisk {
        self.0.script.image_after(cut, policy, seed).disks().swap_remove(self.0.id)
    }

    /// From now on this goes wrong too.
    pub fn inject(&self, fault: Fault) {
        self.0.script.lock().disks[self.0.id].faults.push(fault);
    }

    /// Nothing goes wrong any more. Data that was rotten, misdirected or forgotten stays so.
    pub fn heal(&self) {
        self.0.script.lock().disks[self.0.id].faults.clear();
        self.0.script.0.healed.notify_all();
    }

    /// Flips the bits of `mask` in the byte at `offset` without a logged write. Images after a cut have the flipped bits,
    /// too, unless a write of the log covers the byte.
    ///
    /// # Panics
    /// If `offset` is past the end.
    pub fn rot(&self, offset: u64, mask: u8) {
        assert!(offset < self.0.size, "byte {offset} is past the end");
        let mut state = self.0.script.lock();
        let disk = &mut state.disks[self.0.id];
        for pages in [&mut disk.base, &mut disk.now] {
            let mut byte = [0];
            pages.read(offset, &mut byte);
            pages.write(offset, &[byte[0] ^ mask]);
        }
    }

    /// Bytes of memory that the contents take (without the log).
    #[must_use]
    pub fn memory_bytes(&self) -> u64 {
        self.0.script.lock().disks[self.0.id].now.memory_bytes()
    }
}

impl fmt::Debug for ScriptedDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScriptedDisk({}, {} bytes)", self.0.path.display(), self.0.size)
    }
}

impl State {
    fn hangs(&self, disk: usize) -> bool {
        let count = self.ops.len();
        let mut faults = self.disks[disk].faults.iter();
        faults.any(|fault| matches!(fault, Fault::Hang { from_op } if count >= *from_op))
    }

    /// The error that the faults of `disk` give to an operation of this kind now.
    fn fault(&self, disk: usize, is_write: bool) -> io::Result<()> {
        let count = self.ops.len();
        for fault in &self.disks[disk].faults {
            match fault {
                Fault::Vanish { from_op } if count >= *from_op => {
                    return Err(io::Error::new(io::ErrorKind::NotFound, "scripted: the disk has vanished"));
                }
                Fault::WriteError { from_op } if is_write && count >= *from_op => {
                    return Err(io::Error::other("scripted: write error"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl State {
    /// Drops the unflushed writes of `id`, if one of its faults says so now.
    fn lose_at_flush(&mut self, id: usize) -> io::Result<()> {
        let count = self.ops.len();
        let loses = |fault: &Fault| matches!(fault, Fault::LoseAtFlush { from_op } if count >= *from_op);
        if !self.disks[id].faults.iter().any(loses) {
            return Ok(());
        }
        let is_flush = |op: &Op| matches!(op, Op::Flush { disk } if *disk == id);
        let flushed = self.ops.iter().rposition(is_flush).unwrap_or(0);
        let disk = &mut self.disks[id];
        disk.now = disk.base.clone();
        for (number, op) in self.ops.iter_mut().enumerate() {
            match op {
                Op::Write { disk: of, offset, bytes } if *of == id && number < flushed => {
                    disk.now.write(*offset, bytes);
                }
                Op::Write { disk: of, bytes, .. } if *of == id => *bytes = Arc::from([]),
                _ => {}
            }
        }
        Err(io::Error::other("scripted: the flush failed"))
    }
}

impl Disk for ScriptedDisk {
    fn size(&self) -> u64 {
        self.0.size
    }

    fn sector_size(&self) -> u32 {
        self.0.sector_size
    }

    fn physical_sector_size(&self) -> u32 {
        self.sector_size()
    }

    fn is_block_device(&self) -> bool {
        false
    }

    fn path(&self) -> &Path {
        &self.0.path
    }

    fn deleted(&self) -> Option<PathBuf> {
        None
    }

    fn moved(&self) -> Option<PathBuf> {
        None
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let state = self.0.script.enter(self.0.id, false)?;
        let len = buf.len() as u64;
        if !is_within(offset, len, self.0.size) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let disk = &state.disks[self.0.id];
        let touches = |bad: &Range<u64>| bad.start < offset + len && offset < bad.end;
        if disk.faults.iter().any(|fault| matches!(fault, Fault::ReadError(bad) if touches(bad))) {
            return Err(io::Error::other("scripted: read error"));
        }
        disk.now.read(offset, buf);
        Ok(())
    }

    fn write_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let mut state = self.0.script.enter(self.0.id, true)?;
        let len = total_len(bufs);
        if !is_within(offset, len, self.0.size) {
            return Err(past_the_end(offset, len, self.0.size));
        }
        let number = state.ops.len();
        let disk = &mut state.disks[self.0.id];
        let touches = |bad: &Range<u64>| bad.start < offset + len && offset < bad.end;
        if disk.faults.iter().any(|fault| matches!(fault, Fault::RefusedRange(bad) if touches(bad))) {
            return Err(io::Error::other("scripted write error"));
        }
        let (mut landed_at, mut bytes) = (offset, Vec::with_capacity(len as usize));
        bufs.iter().for_each(|buf| bytes.extend_from_slice(buf));
        for fault in &disk.faults {
            match fault {
                Fault::Misdirect { op, to } if *op == number => {
                    landed_at = (*to).min(self.0.size - len);
                }
                Fault::Forget { op } if *op == number => bytes.clear(),
                _ => {}
            }
        }
        disk.now.write(landed_at, &bytes);
        state.ops.push(Op::Write { disk: self.0.id, offset: landed_at, bytes: bytes.into() });
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let mut state = self.0.script.enter(self.0.id, true)?;
        state.lose_at_flush(self.0.id)?;
        state.ops.push(Op::Flush { disk: self.0.id });
        Ok(())
    }

    fn written_again(&self) {}

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        // Contents stay: a discarded range may read as anything, and the old bytes are the hardest case for callers that
        // must not see them. The write path must not depend on discarded ranges.
        if is_within(offset, len, self.0.size) {
            self.0.script.enter(self.0.id, true).map(drop)
        } else {
            Err(past_the_end(offset, len, self.0.size))
        }
    }

    fn hint_willneed(&self, _offset: u64, _len: u64) {}

    fn ask(&self) -> io::Result<()> {
        self.read_at(&mut [0; ASKED], 0)
    }

    fn drop_cache(&self) {}

    fn backing(&self) -> Option<Backing> {
        // Every read is an operation of the script.
        None
    }
}

#[cfg(test)]
mod tests;
