//! `zfs receive -c`: repairs damaged blocks of a snapshot from a stream of the same snapshot.
//!
//! From:   a full or incremental stream; only what it holds of blocks without a good copy is used.
//! To:     the places of these copies. Nothing else changes: no pointer, no txg's content; what can be read stays.
//! Source: docs/format/09-send-stream.md §9.

use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};

use format::ObjectId;
use format::blkptr::{Block, BlockPtr};
use format::compression::ZstdLevel;
use format::stream::{Begin, Record, feature};
use pool::{Dataset, Error, ReceiveError, Result};
use scan::Scans as _;
use storage::{ReadError, Storage};

use super::apply::prepare;
use super::{Incoming, Receiver, WINDOW_PER_WORKER, check_features};

/// Result of healing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Healing {
    /// Blocks that can be read again.
    pub healed: u64,
    /// Bytes written over their damaged copies.
    pub bytes: u64,
    /// Blocks that are as damaged as before.
    pub lost: u64,
    /// Place of the first of these, and the reason.
    pub first_lost: Option<String>,
}

/// Result of a record, without the written bytes.
enum Outcome {
    /// Nothing is left to be done.
    Sound,
    Lost(String),
}

/// Place of a record in its object.
#[derive(Clone, Copy)]
enum At {
    Offset(u64),
    Spill,
}

/// The place in the snapshot and the logical size of a record's block, if it has one.
const fn place_of(record: &Record) -> Option<(u64, At, u64)> {
    match record {
        Record::Write(write) => Some((write.object, At::Offset(write.offset), write.logical_size)),
        Record::Embedded(embedded) => Some((embedded.object, At::Offset(embedded.offset), embedded.length)),
        Record::Spill(spill) => Some((spill.object, At::Spill, spill.length)),
        _ => None,
    }
}

/// The snapshot that is healed.
struct Patient<'a> {
    storage: &'a Storage,
    snapshot: &'a Dataset,
    zstd: ZstdLevel,
    /// Blocks repaired and bytes written over damaged copies. The workers count them, so their writes count even if an
    /// earlier record ends the stream with an error.
    healed: AtomicU64,
    bytes: AtomicU64,
}

impl Patient<'_> {
    /// The pointer to the block; `None` where there is none on disk.
    fn block_at(&self, id: u64, at: At) -> Result<Option<Block>> {
        let object = self.snapshot.objset().object(ObjectId(id))?;
        let ptr = match at {
            At::Offset(offset) => object.synced_ptr(offset / object.block_size())?,
            At::Spill => object.synced().and_then(|dnode| dnode.spill).unwrap_or(BlockPtr::HOLE),
        };
        Ok(ptr.block().copied())
    }

    fn look(&self, record: Record, payload: Vec<u8>) -> Result<Outcome> {
        let Some((id, at, sent)) = place_of(&record) else { return Ok(Outcome::Sound) };
        let named = |why: &dyn std::fmt::Display| {
            Outcome::Lost(match at {
                At::Offset(offset) => format!("object {id}, offset {offset}: {why}"),
                At::Spill => format!("attributes of object {id}: {why}"),
            })
        };
        let block = match self.block_at(id, at) {
            Ok(Some(block)) => block,
            Ok(None) => return Ok(Outcome::Sound),
            Err(Error::Dmu(dmu::Error::NoObject(_))) => {
                return Err(ReceiveError::Invalid("data of an object that does not exist").into());
            }
            // A stream cannot repair the indirect blocks above.
            Err(error) => return Ok(named(&error)),
        };
        let copies = self.storage.verify_copies(&block);
        if !copies.lost {
            return Ok(Outcome::Sound);
        }
        if block.encrypted {
            return Err(ReceiveError::Unsupported("healing encrypted blocks").into());
        }
        let refused = copies.bad.iter().find(|bad| !matches!(bad.error, ReadError::NoGoodCopy { .. }));
        if let Some(bad) = refused {
            // The device does not answer, so its copy may be right.
            return Ok(named(&bad.error));
        }
        if sent != block.lsize {
            return Err(ReceiveError::OtherBlockSize { here: block.lsize, sent }.into());
        }
        let Some(raw) = self.bytes_of(&block, record, payload)? else {
            return Ok(named(&"the stream does not give the bytes that were there"));
        };
        let mut bytes = 0;
        let done = self.storage.heal(&block, &raw, &mut bytes);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        match done {
            // One copy of it is enough.
            Err(error) if self.storage.verify_copies(&block).lost => return Ok(named(&error)),
            Err(error) => tracing::warn!(%error, "a damaged copy could not be written anew"),
            Ok(()) => {}
        }
        self.healed.fetch_add(1, Ordering::Relaxed);
        Ok(Outcome::Sound)
    }

    /// The right bytes on disk, if they can be made from the record.
    fn bytes_of(&self, block: &Block, record: Record, payload: Vec<u8>) -> Result<Option<Vec<u8>>> {
        if let Record::Write(write) = &record
            && write.is_compressed()
            && write.compression == block.compression
            && let Some(raw) = self.storage.as_stored(block, &payload)
        {
            return Ok(Some(raw));
        }
        let ready = prepare(record, payload, false)?;
        Ok(self.storage.as_encoded(block, &ready.payload, self.zstd))
    }
}

impl Receiver<'_> {
    /// Heals the snapshot `into` (`pool/fs@snap`) with the stream that `begin` opened, to its end. For every block of
    /// the snapshot that has no good copy, the damaged copies are written anew if the bytes from the stream give the
    /// checksum in the block's pointer. `healing` gets the blocks that were healed and those that were not, also if
    /// this fails. With `dry_run` the stream is only read.
    ///
    /// # Errors
    /// [`ReceiveError::OtherSnapshot`], [`ReceiveError::OtherBlockSize`], [`Error::NoDataset`], [`Error::ReadOnly`], what is
    /// wrong with the stream. What was healed before stays.
    pub fn heal<R: Read>(
        &self,
        stream: &mut Incoming<R>,
        begin: &Begin,
        into: &str,
        dry_run: bool,
        healing: &mut Healing,
    ) -> Result<()> {
        check_features(begin)?;
        if begin.features & feature::RAW != 0 {
            return Err(ReceiveError::Unsupported("healing from raw streams").into());
        }
        if !dry_run {
            self.pool.check_writable()?;
        }
        // While it is open it cannot be destroyed, so its blocks stay allocated.
        let snapshot = self.pool.open(into)?;
        let info = self.pool.dataset(into)?;
        if !info.is_snapshot() || info.phys.guid != begin.toguid {
            return Err(ReceiveError::OtherSnapshot(into.to_owned()).into());
        }
        if dry_run {
            return Ok(stream.skip()?);
        }
        let patient = Patient {
            storage: self.pool.storage(),
            snapshot: &snapshot,
            zstd: snapshot.policy().compression.zstd_level,
            healed: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        };
        let workers = self.pool.workers();
        let read = workers.map_ordered(
            storage::Caller::Works,
            stream.records(),
            workers.count() * WINDOW_PER_WORKER,
            |next| next.map_err(Error::from).and_then(|(record, payload)| patient.look(record, payload)),
            |outcome| {
                match outcome? {
                    Outcome::Sound => {}
                    Outcome::Lost(place) => {
                        healing.lost += 1;
                        healing.first_lost.get_or_insert(place);
                    }
                }
                Ok::<(), Error>(())
            },
        );
        healing.healed += patient.healed.into_inner();
        let bytes = patient.bytes.into_inner();
        healing.bytes += bytes;
        if bytes > 0 {
            // The repairs are durable and removed from the error log.
            self.pool.log_command()?;
            self.pool.forget_readable()?;
        }
        read
    }
}
