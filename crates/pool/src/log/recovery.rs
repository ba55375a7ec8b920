//! Progress of the replay of a log that a crash left.
//!
//! From:   `zil/recover`, which found the log, and the replay.
//! To:     syncs, which write the progress to disk and free the log at the end.

use format::Txg;
use format::blkptr::Block;
use format::objset::ZilHeader;

/// A log to be replayed.
#[derive(Debug, Default)]
pub(crate) struct Recovery {
    /// The header as the next sync writes it.
    pub(crate) header: ZilHeader,
    /// All blocks of the log, and data blocks that only the log refers to. They are freed at the end.
    pub(crate) blocks: Vec<Block>,
    /// Blocks that its records clone, once per reference: the log counts as one of the owners.
    pub(crate) cloned: Vec<Block>,
    /// That is not counted yet.
    pub(crate) uncounted: bool,
    /// (txg, record): when the txg is on disk, the records up to this one are done.
    pub(crate) replayed: Vec<(Txg, u64)>,
    /// The record that is being replayed.
    pub(crate) current: Option<u64>,
    /// All records were replayed in txgs up to this one.
    pub(crate) done: Option<Txg>,
}

impl Recovery {
    pub(crate) fn note_replayed(&mut self, txg: Txg) {
        if let Some(seq) = self.current {
            self.replayed.push((txg, seq));
        }
    }

    pub(crate) fn at(&mut self, seq: Option<u64>) {
        self.current = seq;
    }

    pub(crate) fn finish(&mut self, open: Txg) {
        self.done = Some(open);
    }

    /// A later replay continues after the last replayed record.
    pub(crate) fn stop(&mut self) {
        self.current = None;
        if let Some(seq) = self.replayed.iter().map(|(_, seq)| *seq).max() {
            self.header.replay_seq = self.header.replay_seq.max(seq);
        }
    }

    /// The header as of `txg`, which is being synced.
    pub(crate) fn header_of(&self, txg: Txg, on_disk: &ZilHeader) -> ZilHeader {
        let done = self.replayed.iter().filter(|(of, _)| *of <= txg).map(|(_, seq)| *seq).max();
        let replay_seq = on_disk.replay_seq.max(done.unwrap_or(0));
        ZilHeader { replay_seq, ..self.header }
    }

    /// Whether all records are replayed, and durable with `txg`.
    pub(crate) fn is_done(&self, txg: Txg) -> bool {
        self.done.is_some_and(|done| done <= txg)
    }

    /// The cloned blocks, unless they were counted before. Marks them as counted.
    pub(crate) fn take_uncounted(&mut self) -> Vec<Block> {
        if std::mem::take(&mut self.uncounted) { self.cloned.clone() } else { Vec::new() }
    }

    /// The blocks that the log refers to.
    fn all_blocks(&mut self) -> Vec<Block> {
        let mut blocks = std::mem::take(&mut self.blocks);
        if !self.uncounted {
            blocks.append(&mut self.cloned);
        }
        blocks
    }

    pub(crate) fn into_blocks(mut self) -> Vec<Block> {
        self.all_blocks()
    }

    /// The blocks to free in `txg`, if all records are done.
    pub(crate) fn take_blocks(&mut self, txg: Txg) -> Option<Vec<Block>> {
        self.is_done(txg).then(|| self.all_blocks())
    }
}
