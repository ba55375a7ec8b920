//! Raw streams: objects and blocks are stored exactly as on the sender's disks.
//!
//! From:   an untrusted stream: every field is checked. Its authentication codes can only be checked with the key.
//! To:     `dmu` objects of a dataset that is open without its key.
//! Source: docs/format/13-encryption.md §7.2.

use std::sync::Arc;

use dmu::{NewObject, Object, SealedForm};
use format::crypt::Sealing;
use format::dnode::{self, Dnode, SLOTS_PER_BLOCK};
use format::stream::{self, Crypt, Free, MetaForm, ObjectRange, Record, Spill, Write, feature};
use format::{BlockPtr, Compression, MAX_BLOCK, ObjectId, ObjectType};
use storage::{AsStored, Draft};

use pool::{Hold, Opening, Place, ReceiveError, Result};

use super::Receiver;
use super::apply::{Apply, NUMBERS_MAX, OBJECT_BYTES_MAX, SPILL_MAX, invalid};
use super::objects::check;

/// A block as a record describes it.
struct Told<'a> {
    object_type: ObjectType,
    lsize: u64,
    compression: Compression,
    crypt: &'a Crypt,
    flags: u8,
}

impl Told<'_> {
    /// The block as it is to be written.
    fn draft(&self, payload: Vec<u8>) -> Result<Draft> {
        if self.flags & stream::RAW_BYTESWAP != 0 {
            return Err(ReceiveError::Unsupported("raw streams of machines of the other byte order").into());
        }
        let psize = payload.len() as u64;
        let is_whole = psize == self.lsize;
        let fits = match self.compression {
            Compression::Off => is_whole,
            Compression::Inherit | Compression::On | Compression::Empty => false,
            _ => psize < self.lsize,
        };
        if !fits || psize == 0 || !psize.is_multiple_of(512) || self.lsize > MAX_BLOCK {
            return Err(invalid("size or compression of a sealed block"));
        }
        let sealing = Sealing { salt: self.crypt.salt, iv: self.crypt.iv };
        let is_sealed = self.object_type.is_encrypted();
        if !is_sealed && sealing != Sealing::default() {
            return Err(invalid("a seal on a block that is not sealed"));
        }
        let moved = AsStored {
            lsize: self.lsize,
            compression: self.compression,
            sealing: is_sealed.then_some(sealing),
            mac: self.crypt.mac,
        };
        Ok(Draft::moved(Arc::new(payload), moved))
    }
}

/// The dnode of a record, if it is valid.
fn form_of(record: &stream::Object, area: &[u8]) -> Result<SealedForm> {
    let has_spill = record.flags & stream::OBJECT_SPILL != 0;
    let slots = record.slots.max(1);
    if !(1..=dnode::MAX_BLKPTRS as u8).contains(&record.nblkptr)
        || !(1..=dnode::MAX_LEVELS).contains(&record.levels)
    {
        return Err(invalid("pointers or levels of an object"));
    }
    let room = dnode::bonus_capacity(slots.into(), record.nblkptr.into(), has_spill);
    let told = if record.bonus_len == 0 { 0 } else { room };
    if record.raw_bonus_len as usize != told || area.len() < told || record.bonus_len as usize > room {
        return Err(invalid("bonus length"));
    }
    let dnode = Dnode {
        object_type: record.object_type,
        indirect_shift: record.indirect_shift,
        levels: record.levels,
        bonus_type: record.bonus_type,
        checksum: record.checksum,
        compress: record.compress,
        flags: 0,
        block_size: record.block_size,
        slots,
        max_blkid: record.max_blkid,
        used: 0,
        block_ptrs: vec![BlockPtr::HOLE; record.nblkptr.into()],
        bonus: area[..record.bonus_len as usize].to_vec(),
        spill: has_spill.then_some(BlockPtr::HOLE),
    };
    // Written data must be readable.
    Dnode::decode(&dnode.to_bytes(), format::ByteOrder::Little).map_err(ReceiveError::from)?;
    Ok(SealedForm {
        levels: record.levels,
        nblkptr: record.nblkptr,
        max_blkid: record.max_blkid,
        area: area[..told].to_vec(),
    })
}

/// Whether the object here can be changed to match the record. Otherwise it is freed and made again under the same number.
fn is_same_shape(object: &Object, new: &NewObject, form: &SealedForm) -> bool {
    let head = object.head();
    head.object_type == new.object_type
        && head.slots == new.slots
        && head.nblkptr == form.nblkptr
        && head.indirect_shift == new.indirect_shift
        && head.levels <= form.levels
}

impl Apply<'_> {
    pub(super) fn is_raw(&self) -> bool {
        self.begin.features & feature::RAW != 0
    }

    pub(super) fn apply_raw(&mut self, record: Record, payload: Vec<u8>) -> Result<()> {
        match record {
            Record::ObjectRange(range) => self.raw_range(&range),
            Record::Object(object) => self.raw_object(&object, &payload),
            Record::FreeObjects(free) => self.free_objects(&free),
            Record::Write(write) => self.raw_write(&write, payload),
            Record::Free(free) => self.raw_free(&free),
            Record::Spill(spill) => self.raw_spill(&spill, payload),
            Record::End(_) => {
                self.ended = true;
                self.touch_root()
            }
            Record::Begin(_) => Err(invalid("a stream within a stream")),
            Record::Embedded(_) | Record::WriteByRef(_) | Record::Redact(_) => {
                Err(invalid("a record that raw streams do not have"))
            }
        }
    }

    /// The root gets the values of the snapshot, even if the stream changed no object.
    fn touch_root(&self) -> Result<()> {
        match self.existing(1)? {
            Some(object) => self.begin_tx(0, |tx| object.touch(tx)),
            None => Ok(()),
        }
    }

    /// Checks that the head of the stream declared the compression of a block.
    fn check_compression(&self, compression: Compression) -> Result<()> {
        let announced = match compression {
            Compression::Lz4 => self.begin.features & feature::LZ4 != 0,
            Compression::Zstd => self.begin.features & feature::ZSTD != 0,
            _ => true,
        };
        if announced { Ok(()) } else { Err(invalid("the record's compression is not in the stream header")) }
    }

    /// A raidz device has whole sectors of each block only, and a sealed block cannot grow.
    fn check_sectors(&self, psize: usize) -> Result<()> {
        let splits = |ashift: u32| !psize.is_multiple_of(1 << ashift);
        if self.objset().vdevs().tops().iter().any(|top| top.spread().is_some() && splits(top.ashift)) {
            let what = "raw blocks of smaller sectors than those of this pool's raidz devices";
            return Err(ReceiveError::Unsupported(what).into());
        }
        Ok(())
    }

    fn raw_range(&mut self, range: &ObjectRange) -> Result<()> {
        let slots = SLOTS_PER_BLOCK as u64;
        let blkid = range.first / slots;
        if range.slots != slots
            || !range.first.is_multiple_of(slots)
            || blkid > self.objset().arriving_max_blkid()
        {
            return Err(invalid("place of a block of dnodes"));
        }
        if range.flags & stream::RAW_BYTESWAP != 0 {
            return Err(ReceiveError::Unsupported("raw streams of machines of the other byte order").into());
        }
        if self.range.is_some_and(|before| before >= blkid) {
            return Err(invalid("blocks of dnodes out of order"));
        }
        let sealing = Sealing { salt: range.crypt.salt, iv: range.crypt.iv };
        self.objset().seal_dnodes(blkid, sealing, range.crypt.mac);
        (self.range, self.current) = (Some(blkid), None);
        Ok(())
    }

    fn raw_object(&mut self, record: &stream::Object, area: &[u8]) -> Result<()> {
        check(record, area, self.begin.features)?;
        if self.range != Some(record.object / SLOTS_PER_BLOCK as u64) {
            return Err(invalid("an object without the seal of its block"));
        }
        let form = form_of(record, area)?;
        // These fields are authenticated, and decide how the object's blocks are written.
        let (compress, checksum) = (self.compression(record.compress), self.checksum(record.checksum));
        if (compress, checksum) != (record.compress, record.checksum) {
            return Err(invalid("compression or checksum of an object"));
        }
        let new = NewObject {
            slots: record.slots.max(1),
            compress: record.compress,
            checksum: record.checksum,
            indirect_shift: record.indirect_shift,
            ..NewObject::plain(record.object_type)
                .block_size(record.block_size)
                .bonus(record.bonus_type, area[..record.bonus_len as usize].to_vec())
        };
        let kept = match self.existing(record.object)? {
            Some(object) if is_same_shape(&object, &new, &form) => Some(object),
            Some(object) => {
                self.begin_tx(0, |tx| self.objset().free_object(tx, &object))?;
                // Its number is free again after a sync.
                self.dataset.sync()?;
                None
            }
            None => None,
        };
        self.free_slots(record.object, new.slots)?;
        let len = area.len() as u64;
        self.current = Some(match kept {
            Some(object) => {
                self.reform(&object, record, new, form)?;
                object
            }
            None => {
                let made = self.begin_tx(len, |tx| {
                    let id = ObjectId(record.object);
                    let object = self.objset().create_object_numbered(tx, id, new)?;
                    object.reform(tx, form);
                    Ok(object)
                })?;
                match made {
                    Err(dmu::Error::Exists) => return Err(invalid("an object in the slots of another")),
                    made => made?,
                }
            }
        });
        Ok(())
    }

    /// Changes an existing object to match the record.
    fn reform(
        &self,
        object: &Arc<Object>,
        record: &stream::Object,
        new: NewObject,
        form: SealedForm,
    ) -> Result<()> {
        // The block size differs only if the object was made again or has one block. The stream then contains all its blocks.
        let is_replaced = object.head().block_size != new.block_size;
        let first = if is_replaced { 0 } else { form.max_blkid + 1 };
        if is_replaced || object.max_blkid() > form.max_blkid {
            let tx = self.dataset.begin(Hold::free().of_blocks(object.blocks_to_free(first, u64::MAX)))?;
            object.free_blocks(&tx, first, u64::MAX);
            if is_replaced {
                object.set_block_size(&tx, new.block_size.into())?;
            }
        }
        let has_spill = record.flags & stream::OBJECT_SPILL != 0;
        self.begin_tx(new.bonus.len() as u64, |tx| {
            if !has_spill {
                object.set_spill(tx, None);
            }
            object.redefine(tx, new);
            object.reform(tx, form);
        })
    }

    fn raw_write(&mut self, write: &Write, payload: Vec<u8>) -> Result<()> {
        let object = self.owner(write.object)?;
        let head = object.head();
        let size = u64::from(head.block_size);
        let end = write.offset.checked_add(write.logical_size).filter(|end| *end <= OBJECT_BYTES_MAX);
        let is_in_place = write.logical_size == size && write.offset.is_multiple_of(size) && end.is_some();
        if !is_in_place || write.offset / size > head.max_blkid || write.object_type != head.object_type {
            return Err(invalid("place of a sealed block"));
        }
        let told = Told {
            object_type: head.object_type,
            lsize: size,
            compression: write.compression,
            crypt: &write.crypt,
            flags: write.flags,
        };
        self.check_sectors(payload.len())?;
        self.check_compression(told.compression)?;
        let draft = told.draft(payload)?;
        self.begin_tx(size, |tx| object.put_moved(tx, write.offset / size, draft))
    }

    fn raw_free(&mut self, free: &Free) -> Result<()> {
        let object = self.owner(free.object)?;
        let head = object.head();
        let size = u64::from(head.block_size);
        let end = match free.length {
            stream::TO_END => u64::MAX,
            length => free.offset.saturating_add(length),
        };
        if !free.offset.is_multiple_of(size) || end != u64::MAX && !end.is_multiple_of(size) {
            return Err(invalid("place of a hole"));
        }
        // The OBJECT record contains the size of the object.
        let (first, last) = (free.offset / size, (end / size).min(head.max_blkid + 1));
        if first < last {
            let tx = self.dataset.begin(Hold::free().of_blocks(object.blocks_to_free(first, last)))?;
            object.free_blocks(&tx, first, last);
        }
        Ok(())
    }

    fn raw_spill(&mut self, spill: &Spill, payload: Vec<u8>) -> Result<()> {
        if spill.flags & stream::SPILL_UNMODIFIED != 0 {
            return Ok(());
        }
        let object = self.owner(spill.object)?;
        let head = object.head();
        let room = dnode::bonus_capacity(head.slots.into(), head.nblkptr.into(), true);
        let fits = (512..=SPILL_MAX).contains(&spill.length) && spill.length.is_multiple_of(512);
        if !fits || head.bonus.len() > room || spill.object_type != u32::from(head.bonus_type.0) {
            return Err(invalid("a spill block where there is no room for it"));
        }
        let told = Told {
            object_type: head.bonus_type,
            lsize: spill.length,
            compression: Compression::from_disk(spill.compression.into()).map_err(ReceiveError::from)?,
            crypt: &spill.crypt,
            flags: spill.flags & stream::RAW_BYTESWAP,
        };
        self.check_sectors(payload.len())?;
        self.check_compression(told.compression)?;
        let draft = told.draft(payload)?;
        self.begin_tx(spill.length, |tx| object.set_moved_spill(tx, draft))
    }
}

impl Receiver<'_> {
    /// Checks that an encrypted dataset stays encrypted with its keys, and an unencrypted one stays unencrypted.
    pub(super) fn check_protection(&self, opening: &Opening, place: &Place, fs: &str) -> Result<()> {
        let reading = self.pool.reading();
        let features = opening.begin.features;
        let above = match place {
            Place::New => fs.rsplit_once('/').map_or(fs, |(parent, _)| parent),
            Place::Replace => fs,
            Place::Clone(snapshot) | Place::Onto(snapshot) => snapshot,
        };
        let info = reading.info(above)?;
        let here = reading.keys_of(info.dir_id)?;
        let Some(keys) = &opening.keys else {
            if *place == Place::Replace && here.is_some() {
                return Err(ReceiveError::ForcedEncrypted.into());
            }
            let embeds = features & feature::EMBED_DATA != 0 && here.is_some();
            return if embeds { Err(ReceiveError::EmbedsEncrypted.into()) } else { Ok(()) };
        };
        let MetaForm { levels, block_size, indirect_shift, nblkptr, max_blkid, .. } = keys.meta;
        let usual =
            (dnode::META_LEVELS, dnode::BLOCK as u32, dnode::MAX_INDIRECT_SHIFT, dnode::MAX_BLKPTRS as u8);
        if (levels, block_size, indirect_shift, nblkptr) != usual
            || max_blkid >= NUMBERS_MAX / SLOTS_PER_BLOCK as u64
        {
            return Err(invalid("form of the meta-dnode"));
        }
        if features & feature::EMBED_DATA != 0 || opening.begin.flags & stream::flag::SPILL_BLOCK == 0 {
            return Err(invalid("features of a raw stream"));
        }
        if keys.wrapped.version != 1 {
            return Err(ReceiveError::Unsupported("raw streams with keys of another version").into());
        }
        match (place, here) {
            (Place::New, _) => Ok(()),
            (Place::Replace, _) => Err(ReceiveError::ForcedEncrypted.into()),
            (_, None) => Err(invalid("a raw stream onto a dataset that is not encrypted")),
            (_, Some(here)) if here.wrapped.guid != keys.wrapped.guid => Err(ReceiveError::OtherKeys.into()),
            (_, Some(_)) => {
                let known = reading.iv_set(info.id)?.unwrap_or(0);
                match keys.from_iv_set {
                    0 => Err(ReceiveError::NoIvSet.into()),
                    _ if known == 0 => Err(ReceiveError::NoIvSet.into()),
                    sent if sent != known => Err(ReceiveError::OtherIvSet.into()),
                    _ => Ok(()),
                }
            }
        }
    }
}
