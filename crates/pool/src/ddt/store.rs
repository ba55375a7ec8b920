//! A store of a dedup table: a ZAP in the MOS, from keys to compressed entries, with its statistics.
//!
//! Source: docs/format/14-dedup-and-cloning.md §2.3, §2.4, §3.

use std::sync::Arc;

use dmu::zap::{self, words};
use dmu::{NewObject, Object, Objset, Tx};
use format::compression::CompressionSetting;
use format::ddt::{Class, ENTRY_SIZE, Entry, Histogram, Key, STATISTICS, store_name};
use format::ddt_log::{FLAT_SIZE, decode_flat, encode_flat};
use format::zap::Value;
use format::zap::fat::PRE_HASHED_KEY;
use format::{ByteOrder, ChecksumKind, Compression, Corrupt, ObjectId, ObjectType};

use storage::Vdevs;

use super::Means;
use crate::Result;
use crate::mos::DIRECTORY;

/// log2 of the bytes of a block of a store, as in OpenZFS 2.1. Later versions use larger blocks; each change of an entry
/// writes a whole block.
pub(super) const BLOCK_SHIFT: u32 = 12;
/// log2 of the bytes of an indirect block.
pub(super) const INDIRECT_SHIFT: u8 = 15;
/// The kind of a table, which decides the form of its values.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Its stores are in the object directory.
    Legacy,
    /// Its stores are in a directory of their own, beside its logs (feature `fast_dedup`).
    Flat,
}

/// Bit in the first byte of a value: the numbers of the value are little-endian.
const LITTLE: u8 = 0x80;

/// A store.
pub struct Store {
    kind: ChecksumKind,
    class: Class,
    object: Arc<Object>,
    table: Kind,
    /// Of the entries in it.
    pub histogram: Histogram,
}

/// How large a store is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Entries.
    pub entries: u64,
    /// Bytes on the disks.
    pub on_disk: u64,
    /// Bytes of its blocks in memory.
    pub in_core: u64,
}

/// Bytes that a block of any of these stores, or of a new one, takes, with all copies.
pub(super) fn block_bytes<'a>(stores: impl Iterator<Item = &'a Store>, vdevs: &Vdevs) -> u64 {
    let largest = stores.map(|store| store.object.block_size()).fold(1 << BLOCK_SHIFT, u64::max);
    3 * vdevs.largest_asize_of(largest)
}

fn bad(object: &Object) -> impl FnOnce(Corrupt) -> dmu::Error {
    dmu::Error::corrupt(object.id())
}

fn unpack(value: &Value, table: Kind) -> Result<Entry, Corrupt> {
    let length = || Corrupt::new("dedup table value length", value.data().len() as u64);
    let (&head, payload) = value.as_bytes().and_then(<[u8]>::split_first).ok_or_else(length)?;
    let order = if head & LITTLE != 0 { ByteOrder::Little } else { ByteOrder::Big };
    let (decode, size): (fn(&[u8], ByteOrder) -> _, _) = match table {
        Kind::Legacy => (Entry::decode, ENTRY_SIZE),
        Kind::Flat => (decode_flat, FLAT_SIZE),
    };
    match Compression::from_disk((head & !LITTLE).into())? {
        Compression::Off => decode(payload, order),
        kind @ Compression::Zle => {
            let mut raw = vec![0; size];
            codec::decompress(kind, payload, &mut raw).map_err(|_| length())?;
            decode(&raw, order)
        }
        _ => Err(Corrupt::new("compression of a dedup table value", head.into())),
    }
}

pub(super) fn pack(entry: &Entry, table: Kind) -> Value {
    let (legacy, flat);
    let raw: &[u8] = match table {
        Kind::Legacy => {
            legacy = entry.encode();
            &legacy
        }
        Kind::Flat => {
            flat = encode_flat(entry);
            &flat
        }
    };
    let mut packed = [0; ENTRY_SIZE];
    let zle = CompressionSetting::plain(Compression::Zle);
    let (kind, payload) = match codec::compress(zle, raw, &mut packed[..raw.len() - 1]) {
        Some(len) => (Compression::Zle, &packed[..len]),
        None => (Compression::Off, raw),
    };
    Value::from_bytes(&[&[kind.to_disk() as u8 | LITTLE], payload].concat())
}

impl Store {
    /// The store that a directory names, if there is one.
    pub(crate) fn load(
        mos: &Objset,
        within: (ObjectId, Kind),
        (kind, class): (ChecksumKind, Class),
    ) -> Result<Option<Store>> {
        let name = store_name(kind, class);
        let directory = mos.object(DIRECTORY)?;
        let own = mos.object(within.0)?;
        let Some(id) = zap::lookup_u64(&own, name.as_bytes())? else { return Ok(None) };
        let object = mos.object(ObjectId(id))?;
        let mut histogram = Histogram::default();
        if let Some(statistics) = zap::lookup_u64(&directory, STATISTICS.as_bytes())?
            && let Some(value) = zap::lookup(&*mos.object(ObjectId(statistics))?, name.as_bytes())?
        {
            histogram = Histogram::decode(&value.to_u64s()).map_err(bad(&object))?;
        }
        Ok(Some(Store { kind, class, object, table: within.1, histogram }))
    }

    /// A new store.
    pub(super) fn create(
        means: &Means<'_>,
        within: (ObjectId, Kind),
        (kind, class): (ChecksumKind, Class),
    ) -> Result<Store, dmu::Error> {
        let Means { mos, tx, salt, .. } = *means;
        let plain = NewObject::plain(ObjectType::DDT_ZAP).block_size(1 << BLOCK_SHIFT);
        let object = mos.create_object(tx, NewObject { indirect_shift: INDIRECT_SHIFT, ..plain })?;
        // The first word of the key is part of a checksum, so it serves as the hash.
        let flags = if kind == ChecksumKind::Edonr { 0 } else { PRE_HASHED_KEY };
        words::create(&object, tx, BLOCK_SHIFT, salt, flags)?;
        let name = store_name(kind, class);
        let id = Value::from_u64(object.id().0);
        zap::update(&mos.object(within.0)?, tx, name.as_bytes(), &id)?;
        Ok(Store { kind, class, object, table: within.1, histogram: Histogram::default() })
    }

    /// The object that it is in.
    pub(super) fn object(&self) -> Arc<Object> {
        self.object.clone()
    }

    /// The entry under a key.
    pub(crate) fn get(&self, key: &Key) -> Result<Option<Entry>, dmu::Error> {
        let value = words::lookup(&self.object, &key.0)?;
        value.map(|value| unpack(&value, self.table)).transpose().map_err(bad(&self.object))
    }

    /// Writes an entry.
    pub(crate) fn put(&self, tx: &Tx, key: &Key, entry: &Entry) -> Result<(), dmu::Error> {
        words::update(&self.object, tx, &key.0, &pack(entry, self.table))
    }

    /// Removes an entry.
    pub(crate) fn remove(&self, tx: &Tx, key: &Key) -> Result<(), dmu::Error> {
        words::remove(&self.object, tx, &key.0)
    }

    /// How many entries it has.
    pub(crate) fn len(&self) -> Result<u64, dmu::Error> {
        zap::count(&self.object)
    }

    /// All entries.
    pub fn entries(&self) -> impl Iterator<Item = Result<(Key, Entry), dmu::Error>> + '_ {
        words::entries(&self.object).map(|found| {
            let found = found?;
            let words = found.key.try_into();
            let key = words.map_err(|key: Vec<u64>| Corrupt::new("dedup table key length", key.len() as u64));
            let entry = unpack(&found.value, self.table).map_err(bad(&self.object))?;
            Ok((Key(key.map_err(bad(&self.object))?), entry))
        })
    }

    /// Whether its entries can be pruned: those of tables with logs that have one reference.
    pub(crate) fn is_prunable(&self) -> bool {
        self.table == Kind::Flat && self.class == Class::Unique
    }

    /// All keys, and when their entries changed.
    pub(crate) fn keyed(&self) -> impl Iterator<Item = Result<(ChecksumKind, Key, u64), dmu::Error>> + '_ {
        self.entries().map(|entry| entry.map(|(key, entry)| (self.kind, key, entry.changed)))
    }

    /// How large it is.
    pub(crate) fn figures(&self) -> Result<Figures, dmu::Error> {
        let Some(dnode) = self.object.synced() else { return Ok(Figures::default()) };
        let blocks: u64 = dnode.block_ptrs.iter().map(format::BlockPtr::fill).sum();
        let in_core = blocks.saturating_mul(dnode.block_size.into());
        Ok(Figures { entries: self.len()?, on_disk: dnode.used_bytes(), in_core })
    }

    /// Its bytes on the disks.
    pub(crate) fn on_disk(&self) -> u64 {
        self.object.used_bytes()
    }

    /// The checksum of its keys.
    #[must_use]
    pub fn kind(&self) -> ChecksumKind {
        self.kind
    }

    /// Its name in the object directory.
    #[must_use]
    pub fn name(&self) -> String {
        store_name(self.kind, self.class)
    }

    /// Frees a store, whatever is in it.
    pub(super) fn destroy(self, means: &Means<'_>, within: ObjectId) -> Result<(), dmu::Error> {
        let Means { mos, tx, .. } = *means;
        let directory = mos.object(DIRECTORY)?;
        let name = self.name();
        zap::discard(&mos.object(within)?, tx, name.as_bytes())?;
        if let Some(statistics) = zap::lookup_u64(&directory, STATISTICS.as_bytes())? {
            zap::discard(&mos.object(ObjectId(statistics))?, tx, name.as_bytes())?;
        }
        mos.free_object(tx, &self.object);
        Ok(())
    }
}

/// Writes the statistics of these stores.
pub(super) fn write_statistics<'a>(
    means: &Means<'_>,
    stores: impl Iterator<Item = &'a Store>,
) -> Result<(), dmu::Error> {
    let Means { mos, tx, salt, .. } = *means;
    let directory = mos.object(DIRECTORY)?;
    let statistics = match zap::lookup_u64(&directory, STATISTICS.as_bytes())? {
        Some(id) => mos.object(ObjectId(id))?,
        None => {
            let object = mos.create_object(tx, NewObject::plain(ObjectType::DDT_STATS))?;
            zap::create(&object, tx, salt, 0)?;
            zap::update(&directory, tx, STATISTICS.as_bytes(), &Value::from_u64(object.id().0))?;
            object
        }
    };
    for store in stores {
        let value = Value::from_u64s(&store.histogram.encode());
        zap::update(&statistics, tx, store.name().as_bytes(), &value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use format::Txg;
    use format::ddt::Slot;

    use super::*;

    #[test]
    fn an_entry_is_packed_small_and_unpacked_whole() {
        let mut entry = Entry::default();
        entry.slots[1] = Slot { places: [16, 0x1234, 0, 0, 0, 0], refs: 2, birth: Txg(77) };
        let value = pack(&entry, Kind::Legacy);
        assert!(value.data().len() < 40, "{}", value.data().len());
        assert_eq!(value.data()[0], 14 | LITTLE);
        assert_eq!(unpack(&value, Kind::Legacy), Ok(entry));
        // As a big-endian machine stores it.
        let mut swapped = vec![2];
        swapped.extend(entry.encode().chunks_exact(8).flat_map(|word| word.iter().rev().copied()));
        assert_eq!(unpack(&Value::from_bytes(&swapped), Kind::Legacy), Ok(entry));
        for slot in &mut entry.slots {
            *slot = Slot { places: [u64::MAX / 3; 6], refs: u64::MAX / 7, birth: Txg(u64::MAX / 5) };
        }
        assert_eq!(pack(&entry, Kind::Legacy).data()[0], 2 | LITTLE);
        assert_eq!(unpack(&pack(&entry, Kind::Legacy), Kind::Legacy), Ok(entry));
        let flat = Entry::flat(entry.slots[1], 1234);
        assert_eq!(unpack(&pack(&flat, Kind::Flat), Kind::Flat), Ok(flat));
        let small = Entry::flat(Slot { places: [16, 0x1234, 0, 0, 0, 0], refs: 2, birth: Txg(77) }, 1234);
        assert!(pack(&small, Kind::Flat).data().len() < 48);
        assert_eq!(unpack(&pack(&small, Kind::Flat), Kind::Flat), Ok(small));
        for wrong in [&[][..], &[3, 1], &[LITTLE | 14, 63], &[LITTLE | 2, 0]] {
            assert!(unpack(&Value::from_bytes(wrong), Kind::Legacy).is_err(), "{wrong:?}");
        }
    }
}
