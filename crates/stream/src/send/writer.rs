//! Events → records with their running checksum. Neighbouring free ranges become one.
//!
//! Source: docs/format/09-send-stream.md §1.1, §2, §3.

use std::io::Write;

use codec::RunningFletcher4;
use format::blkptr::{Block, BlockPtr};
use format::crypt::Sealing;
use format::dnode::{Dnode, SLOTS_PER_BLOCK};
use format::stream::{self, Begin, Crypt, Embedded, End, Free, FreeObjects, Record, Spill, TO_END, feature};
use format::{ByteOrder, ChecksumKind, Compression, Guid, ObjectType, SECTOR_SHIFT, Txg};

use super::traverse::{Event, Loaded, OLD_MAX_BLOCK, Payload, sent_embedded, splits};
use pool::{Error, Result};

/// A free range that may still grow.
enum Pending {
    Nothing,
    Range(Free),
    Objects(FreeObjects),
    Redacted(Free),
}

/// Writes one snapshot's stream.
pub(super) struct Writer<W: Write> {
    out: W,
    /// `None`: only the bytes of the stream are counted.
    sum: Option<RunningFletcher4>,
    pending: Pending,
    toguid: Guid,
    features: u64,
    since: Txg,
    /// Numbers from here on cannot exist.
    object_end: u64,
}

/// Adds a record's checksum and sends it with its payload.
fn send(
    out: &mut impl Write,
    sum: &mut Option<RunningFletcher4>,
    record: &Record,
    payload: &[u8],
) -> Result<()> {
    let mut raw = record.encode();
    match (record, sum) {
        (_, None) => {}
        (Record::Begin(_), Some(sum)) => {
            sum.add(&raw);
            sum.add(payload);
        }
        (_, Some(sum)) => sum.seal(&mut raw, payload),
    }
    out.write_all(&raw).and_then(|()| out.write_all(payload)).map_err(Error::Output)
}

/// Opens a package of streams whose outer list is `list`, packed; returns the bytes written.
pub(super) fn package_head(toname: &str, list: &[u8], out: &mut dyn Write) -> Result<u64> {
    let begin = Record::Begin(Begin {
        header_type: 2,
        toname: toname.as_bytes().to_vec(),
        payload_len: list.len() as u32,
        ..Begin::default()
    });
    let raw = begin.encode();
    let mut sum = RunningFletcher4::new(ByteOrder::Little);
    sum.add(&raw);
    sum.add(list);
    let end = Record::End(End { checksum: sum.sum(), toguid: Guid(0) }).encode();
    let write = |out: &mut dyn Write| {
        out.write_all(&raw)?;
        out.write_all(list)?;
        out.write_all(&end)
    };
    write(out).map_err(Error::Output)?;
    Ok((2 * stream::RECORD + list.len()) as u64)
}

/// Closes a package; returns the bytes written.
pub(super) fn package_end(out: &mut dyn Write) -> Result<u64> {
    out.write_all(&Record::End(End::default()).encode()).map_err(Error::Output)?;
    Ok(stream::RECORD as u64)
}

impl<W: Write> Writer<W> {
    pub(super) fn new(out: W, toguid: Guid, features: u64, since: Txg, meta: &Dnode) -> Writer<W> {
        Writer {
            out,
            sum: Some(RunningFletcher4::new(ByteOrder::Little)),
            pending: Pending::Nothing,
            toguid,
            features,
            since,
            object_end: (meta.max_blkid + 1) * SLOTS_PER_BLOCK as u64,
        }
    }

    /// The same without checksums, for counting bytes.
    pub(super) fn unsummed(self) -> Writer<W> {
        Writer { sum: None, ..self }
    }

    /// Opens the stream; `list` is the packed list behind its first record.
    pub(super) fn begin(&mut self, begin: &Begin, list: &[u8]) -> Result<()> {
        let begin = Begin { payload_len: list.len() as u32, ..begin.clone() };
        send(&mut self.out, &mut self.sum, &Record::Begin(begin), list)
    }

    /// Sends the pending free range, then `record`.
    fn record(&mut self, record: &Record, payload: &[u8]) -> Result<()> {
        self.push_out()?;
        send(&mut self.out, &mut self.sum, record, payload)
    }

    fn push_out(&mut self) -> Result<()> {
        let record = match std::mem::replace(&mut self.pending, Pending::Nothing) {
            Pending::Nothing => return Ok(()),
            Pending::Range(free) => Record::Free(free),
            Pending::Objects(free) => Record::FreeObjects(free),
            Pending::Redacted(free) => Record::Redact(free),
        };
        send(&mut self.out, &mut self.sum, &record, &[])
    }

    pub(super) fn end(mut self) -> Result<()> {
        self.push_out()?;
        let checksum = self.sum.as_ref().map(RunningFletcher4::sum).unwrap_or_default();
        let end = End { checksum, toguid: self.toguid };
        self.record(&Record::End(end), &[])?;
        self.out.flush().map_err(Error::Output)
    }

    /// Ends without an END record, so that the receiver waits for the rest.
    pub(super) fn leave(mut self) -> Result<()> {
        self.push_out()?;
        self.out.flush().map_err(Error::Output)
    }

    /// Tells one event.
    pub(super) fn put(&mut self, loaded: Loaded) -> Result<()> {
        let Loaded { event, payload } = loaded;
        match event {
            Event::Range { first, block } => self.range(first, &block),
            Event::Object { id, dnode, bonus, flags } => {
                self.object((id, flags), &dnode, &bonus)?;
                match (&dnode.spill, payload) {
                    (Some(ptr), Some(content)) => self.spill(id, ptr, content.bytes()),
                    _ => Ok(()),
                }
            }
            Event::Free { first, count } => self.free_objects(first, count),
            Event::Hole { id, block_size, start, end } => {
                let Some(offset) = start.checked_mul(block_size) else { return Ok(()) };
                let end = end.checked_mul(block_size).filter(|end| *end != 0).unwrap_or(TO_END);
                self.free(id, offset, end.wrapping_sub(offset))
            }
            Event::Redact { id, block_size, start, end } => {
                let offset = start.saturating_mul(block_size);
                self.redact(id, offset, end.saturating_mul(block_size) - offset)
            }
            Event::Data { id, object_type, block_size, blkid, ptr } => {
                let place = Place { id, object_type, offset: blkid * block_size, block_size };
                match payload {
                    Some(payload) => self.data(&place, &ptr, &payload),
                    None => self.embedded(&place, &ptr),
                }
            }
            Event::Spill { id, ptr } => {
                let content = payload.expect("a spill block is loaded with its event");
                self.spill(id, &ptr, content.bytes())
            }
        }
    }

    /// Sends the encryption parameters of the next dnode block.
    fn range(&mut self, first: u64, block: &Block) -> Result<()> {
        let record = Record::ObjectRange(stream::ObjectRange {
            first,
            slots: SLOTS_PER_BLOCK as u64,
            toguid: self.toguid,
            crypt: crypt_of(block),
            flags: byte_swap(block),
        });
        self.record(&record, &[])
    }

    fn is_raw(&self) -> bool {
        self.features & feature::RAW != 0
    }

    fn object(&mut self, (id, flags): (u64, u8), dnode: &Dnode, bonus: &[u8]) -> Result<()> {
        let large = self.features & feature::LARGE_BLOCKS != 0;
        let block_size = u64::from(dnode.block_size);
        let sent_size = if large { block_size } else { block_size.min(OLD_MAX_BLOCK) };
        let mut object = stream::Object {
            object: id,
            object_type: dnode.object_type,
            bonus_type: dnode.bonus_type,
            block_size: sent_size as u32,
            bonus_len: dnode.bonus.len() as u32,
            checksum: dnode.checksum,
            compress: dnode.compress,
            slots: dnode.slots,
            flags,
            toguid: self.toguid,
            ..stream::Object::default()
        };
        if self.is_raw() {
            object.raw_bonus_len = bonus.len() as u32;
            object.indirect_shift = dnode.indirect_shift;
            object.levels = dnode.levels;
            object.nblkptr = dnode.block_ptrs.len() as u8;
            object.max_blkid = dnode.max_blkid;
        }
        self.record(&Record::Object(object), bonus)?;
        // Everything after the end of the object.
        self.free(id, dnode.max_blkid.wrapping_add(1).wrapping_mul(block_size), TO_END)
    }

    fn free(&mut self, object: u64, offset: u64, length: u64) -> Result<()> {
        let to_end = offset.checked_add(length).is_none();
        if let Pending::Range(before) = &mut self.pending
            && before.object == object
            && before.offset.wrapping_add(before.length) == offset
        {
            before.length = if to_end { TO_END } else { before.length + length };
            return Ok(());
        }
        self.push_out()?;
        let length = if to_end { TO_END } else { length };
        self.pending = Pending::Range(Free { object, offset, length, toguid: self.toguid });
        // No range can follow one without an end.
        if length == TO_END { self.push_out() } else { Ok(()) }
    }

    fn redact(&mut self, object: u64, offset: u64, length: u64) -> Result<()> {
        if let Pending::Redacted(before) = &mut self.pending
            && before.object == object
            && before.offset + before.length == offset
        {
            before.length += length;
            return Ok(());
        }
        self.push_out()?;
        self.pending = Pending::Redacted(Free { object, offset, length, toguid: self.toguid });
        Ok(())
    }

    fn free_objects(&mut self, first: u64, count: u64) -> Result<()> {
        if first >= self.object_end {
            return Ok(());
        }
        let count = count.min(self.object_end - first);
        if let Pending::Objects(before) = &mut self.pending
            && before.first + before.count == first
        {
            before.count += count;
            return Ok(());
        }
        self.push_out()?;
        self.pending = Pending::Objects(FreeObjects { first, count, toguid: self.toguid });
        Ok(())
    }

    fn data(&mut self, place: &Place, ptr: &BlockPtr, payload: &Payload) -> Result<()> {
        let mut write = place.write(self.toguid);
        let bytes = payload.bytes();
        if splits(place.block_size, self.features) {
            for part in bytes.chunks(OLD_MAX_BLOCK as usize) {
                write.logical_size = part.len() as u64;
                self.record(&Record::Write(write), part)?;
                write.offset += part.len() as u64;
            }
            return Ok(());
        }
        if let BlockPtr::Block(block) = ptr {
            let is_raw = self.is_raw();
            if is_raw || !block.encrypted {
                describe(&mut write, block);
            }
            if matches!(payload, Payload::Stored(_)) && (is_raw || block.compression != Compression::Off) {
                write.compression = block.compression;
                write.compressed_size = block.psize;
            }
            if is_raw {
                write.flags |= byte_swap(block);
                write.crypt = crypt_of(block);
            }
        }
        self.record(&Record::Write(write), bytes)
    }

    fn embedded(&mut self, place: &Place, ptr: &BlockPtr) -> Result<()> {
        let BlockPtr::Embedded(embedded) = ptr else {
            unreachable!("only embedded blocks come without a payload")
        };
        debug_assert!(sent_embedded(ptr, self.features), "the stream may hold it");
        let record = Record::Embedded(Embedded {
            object: place.id,
            offset: place.offset,
            length: place.block_size,
            toguid: self.toguid,
            compression: embedded.compression,
            kind: embedded.kind,
            lsize: embedded.lsize as u32,
            psize: embedded.psize.into(),
        });
        let len = usize::from(embedded.psize);
        let mut payload = embedded.payload[..len].to_vec();
        payload.resize(len.next_multiple_of(8), 0);
        self.record(&record, &payload)
    }

    fn spill(&mut self, object: u64, ptr: &BlockPtr, content: &[u8]) -> Result<()> {
        let mut spill = Spill {
            object,
            length: content.len() as u64,
            toguid: self.toguid,
            flags: if ptr.birth() <= self.since { stream::SPILL_UNMODIFIED } else { 0 },
            ..Spill::default()
        };
        if let BlockPtr::Block(block) = ptr
            && self.is_raw()
        {
            spill.flags |= byte_swap(block);
            spill.length = block.lsize;
            spill.compression = block.compression.to_disk() as u8;
            spill.compressed_size = block.psize;
            spill.crypt = crypt_of(block);
            spill.object_type = block.object_type.0.into();
        }
        self.record(&Record::Spill(spill), content)
    }
}

/// Where a block belongs.
struct Place {
    id: u64,
    object_type: ObjectType,
    offset: u64,
    block_size: u64,
}

impl Place {
    /// A record of the plain block, without a key.
    fn write(&self, toguid: Guid) -> stream::Write {
        stream::Write::plain((self.id, self.object_type), self.offset, self.block_size, toguid)
    }
}

/// The block's checksum at the sender, by which a receiver may find duplicates.
fn describe(write: &mut stream::Write, block: &Block) {
    use ChecksumKind::{Blake3, Sha256, Sha512, Skein};
    write.checksum_type = block.checksum_kind.to_disk() as u8;
    if matches!(block.checksum_kind, Sha256 | Sha512 | Skein | Blake3) {
        write.flags |= stream::CHECKSUM_DEDUP;
    }
    write.key = block.checksum;
    let sectors = |bytes: u64| (bytes >> SECTOR_SHIFT) - 1;
    write.key_prop = sectors(block.lsize)
        | sectors(block.psize) << 16
        | block.compression.to_disk() << 32
        | u64::from(block.encrypted) << 39;
}

/// Encryption parameters and authentication code of a block in an encrypted dataset.
fn crypt_of(block: &Block) -> Crypt {
    let Sealing { salt, iv } = block.sealing.unwrap_or_default();
    Crypt { salt, iv, mac: block.mac() }
}

/// The flag of a block that a machine of the other byte order wrote.
fn byte_swap(block: &Block) -> u8 {
    if block.order == ByteOrder::Big { stream::RAW_BYTESWAP } else { 0 }
}
