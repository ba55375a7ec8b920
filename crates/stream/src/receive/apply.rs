//! Records → changes of objects, in transactions.
//!
//! From:   an untrusted stream: every field is checked.
//! To:     `dmu` objects of a dataset that is not visible yet.
//! Source: docs/format/09-send-stream.md §2, §8.

use std::sync::Arc;

use dmu::{Object, Objset};
use format::stream::{self, Begin, Embedded, Free, FreeObjects, Record, Spill, Write, flag};
use format::{Compression, ObjectId, ObjectType, dnode};

use pool::{Dataset, Error, Hold, Progress, ReceiveError, Result, Tx};

/// Object numbers have 48 bits.
pub(super) const NUMBERS_MAX: u64 = 1 << 48;
/// A FREEOBJECTS record of up to this many numbers looks up each of them; a larger one lists the used numbers.
const LOOKUPS_MAX: u64 = 256;
/// Largest spill block.
pub(super) const SPILL_MAX: u64 = 128 << 10;
/// Most bytes that one object can have.
pub(super) const OBJECT_BYTES_MAX: u64 = 1 << 63;

/// A record with its payload decompressed.
pub(super) struct Ready {
    pub(super) record: Record,
    pub(super) payload: Vec<u8>,
}

/// Decompresses what is compressed, unless the stream is raw. Pure: on any thread.
pub(super) fn prepare(record: Record, payload: Vec<u8>, is_raw: bool) -> Result<Ready, ReceiveError> {
    if is_raw {
        return Ok(Ready { record, payload });
    }
    let (compression, size) = match &record {
        Record::Write(write) if write.is_compressed() && write.compression != Compression::Off => {
            (write.compression, write.logical_size)
        }
        Record::Embedded(embedded) => {
            let mut block = vec![0; embedded.length as usize];
            let (lsize, psize) = (embedded.lsize as usize, embedded.psize as usize);
            codec::decompress(embedded.compression, &payload[..psize], &mut block[..lsize])?;
            return Ok(Ready { record, payload: block });
        }
        _ => return Ok(Ready { record, payload }),
    };
    let mut block = vec![0; size as usize];
    codec::decompress(compression, &payload, &mut block)?;
    Ok(Ready { record, payload: block })
}

pub(super) fn invalid(what: &'static str) -> Error {
    ReceiveError::Invalid(what).into()
}

/// Applies the records of one stream.
pub(super) struct Apply<'a> {
    pub(super) dataset: &'a Dataset,
    pub(super) begin: &'a Begin,
    /// The object of the present records.
    pub(super) current: Option<Arc<Object>>,
    pub(super) ended: bool,
    /// All before this is applied.
    pub(super) progress: Progress,
    /// For a raw stream: the present dnode block.
    pub(super) range: Option<u64>,
}

impl<'a> Apply<'a> {
    pub(super) fn new(dataset: &'a Dataset, begin: &'a Begin, progress: Progress) -> Apply<'a> {
        Apply { dataset, begin, current: None, ended: false, progress, range: None }
    }

    pub(super) fn objset(&self) -> &'a Arc<Objset> {
        self.dataset.objset()
    }

    /// Applies one record.
    pub(super) fn put(&mut self, ready: Ready) -> Result<()> {
        let Ready { record, payload } = ready;
        if self.ended {
            return Err(invalid("records after the end"));
        }
        let bytes = stream::RECORD as u64 + record.payload_len();
        let place = match &record {
            Record::Object(object) => Some((object.object, 0)),
            Record::Write(write) => Some((write.object, write.offset)),
            Record::Embedded(embedded) => Some((embedded.object, embedded.offset)),
            // A range of free objects may be repeated, and may extend beyond the next object.
            _ => None,
        };
        self.apply(record, payload)?;
        if let Some((object, offset)) = place {
            (self.progress.object, self.progress.offset) = (object, offset);
        }
        self.progress.bytes += bytes;
        Ok(())
    }

    fn apply(&mut self, record: Record, payload: Vec<u8>) -> Result<()> {
        if self.is_raw() {
            return self.apply_raw(record, payload);
        }
        match record {
            Record::Object(object) => self.object(&object, &payload),
            Record::FreeObjects(free) => self.free_objects(&free),
            Record::Write(write) => self.write(&write, payload),
            Record::Embedded(embedded) => self.embedded(&embedded, payload),
            // Blocks that are left out are holes here; the mark of the dataset says that some may be missing.
            Record::Free(free) | Record::Redact(free) => self.free(&free),
            Record::Spill(spill) => self.spill(&spill, payload),
            Record::End(_) => {
                self.ended = true;
                Ok(())
            }
            Record::Begin(_) => Err(invalid("a stream within a stream")),
            Record::WriteByRef(_) => Err(ReceiveError::Unsupported("deduplicated streams").into()),
            Record::ObjectRange(_) => Err(invalid("seals in a stream that is not raw")),
        }
    }

    /// The object of a number in the stream. The largest numbers are those of objects that the file system keeps for itself.
    pub(super) fn existing(&self, id: u64) -> Result<Option<Arc<Object>>> {
        if !(1..NUMBERS_MAX).contains(&id) {
            return Err(invalid("number of an object"));
        }
        match self.objset().object(ObjectId(id)) {
            Ok(object) => Ok(Some(object)),
            Err(dmu::Error::NoObject(_)) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    /// The object of a data record.
    pub(super) fn owner(&mut self, id: u64) -> Result<Arc<Object>> {
        if let Some(object) = self.current.as_ref().filter(|object| object.id().0 == id) {
            return Ok(object.clone());
        }
        let object = self.existing(id)?.ok_or_else(|| invalid("data of an object that does not exist"))?;
        self.current = Some(object.clone());
        Ok(object)
    }

    pub(super) fn begin_tx<T>(&self, bytes: u64, change: impl FnOnce(&Tx) -> T) -> Result<T> {
        let tx = self.dataset.begin(if bytes == 0 { Hold::free() } else { Hold::write(bytes) })?;
        Ok(change(&tx))
    }

    pub(super) fn free_objects(&mut self, free: &FreeObjects) -> Result<()> {
        self.current = None;
        // Some senders free all numbers up to 2⁶⁴ − 1 at the end of a stream.
        let end = free.first.checked_add(free.count).ok_or_else(|| invalid("numbers of free objects"))?;
        let (first, end) = (free.first.max(1), end.min(NUMBERS_MAX));
        let doomed: Vec<ObjectId> = if free.count <= LOOKUPS_MAX {
            (first..end).map(ObjectId).collect()
        } else if first < end {
            self.objset().numbers_between(first, end)?
        } else {
            Vec::new()
        };
        for id in doomed {
            if let Some(object) = self.existing(id.0)? {
                self.begin_tx(0, |tx| self.objset().free_object(tx, &object))?;
            }
        }
        Ok(())
    }

    fn write(&mut self, write: &Write, payload: Vec<u8>) -> Result<()> {
        if payload.len() as u64 != write.logical_size {
            return Err(invalid("length of a block"));
        }
        self.put_block(write.object, write.offset, payload)
    }

    fn embedded(&mut self, embedded: &Embedded, payload: Vec<u8>) -> Result<()> {
        if embedded.kind != 0 {
            return Err(ReceiveError::Unsupported("blocks in pointers of an unknown kind").into());
        }
        self.put_block(embedded.object, embedded.offset, payload)
    }

    fn put_block(&mut self, id: u64, offset: u64, block: Vec<u8>) -> Result<()> {
        let object = self.owner(id)?;
        let size = object.block_size();
        let len = block.len() as u64;
        let end = offset.checked_add(len).filter(|end| *end <= OBJECT_BYTES_MAX);
        if end.is_none_or(|end| end > size && !size.is_power_of_two()) || len == 0 {
            return Err(invalid("place of a block"));
        }
        self.begin_tx(len.max(size), |tx| {
            if len == size && offset.is_multiple_of(size) {
                object.put_block(tx, offset / size, Arc::new(block));
                Ok(())
            } else {
                object.write(tx, offset, &block)
            }
        })??;
        Ok(())
    }

    fn free(&mut self, free: &Free) -> Result<()> {
        let object = self.owner(free.object)?;
        let size = object.block_size();
        let to_end = free.length == stream::TO_END;
        let end = if to_end { u64::MAX } else { free.offset.saturating_add(free.length) };
        let first = free.offset.div_ceil(size);
        let last = if to_end { u64::MAX } else { end / size };
        let aligned = free.offset.is_multiple_of(size) && (to_end || end.is_multiple_of(size));
        if !aligned && object.max_blkid() >= free.offset / size {
            // Parts of blocks are zeroed.
            self.zero(&object, free.offset, (first * size).min(end))?;
            if !to_end && last >= first {
                self.zero(&object, last * size, end)?;
            }
        }
        if first < last {
            let tx = self.dataset.begin(Hold::free().of_blocks(object.blocks_to_free(first, last)))?;
            object.free_blocks(&tx, first, last);
        }
        Ok(())
    }

    /// Zeroes `from..to`, which lie in one block, up to the end of the object.
    fn zero(&self, object: &Arc<Object>, from: u64, to: u64) -> Result<()> {
        let size = object.block_size();
        if from >= to || from / size > object.max_blkid() {
            return Ok(());
        }
        let zeros = vec![0; (to - from).min(size) as usize];
        self.begin_tx(size, |tx| object.write(tx, from, &zeros))??;
        Ok(())
    }

    fn spill(&mut self, spill: &Spill, payload: Vec<u8>) -> Result<()> {
        if self.begin.flags & flag::SPILL_BLOCK != 0 && spill.flags & stream::SPILL_UNMODIFIED != 0 {
            return Ok(());
        }
        let len = payload.len() as u64;
        if !(512..=SPILL_MAX).contains(&len) || !len.is_multiple_of(512) || len != spill.length {
            return Err(invalid("length of a spill block"));
        }
        let object = self.owner(spill.object)?;
        let head = object.head();
        let room = dnode::bonus_capacity(head.slots.into(), head.nblkptr.into(), true);
        if head.bonus.len() > room || head.bonus_type != ObjectType::SA {
            return Err(invalid("a spill block where there is no room for it"));
        }
        self.begin_tx(len, |tx| object.set_spill(tx, Some(payload)))
    }
}
