//! The logs of a dedup table: entries that are newer than those in the stores. One log takes new entries, those of the
//! other are on their way into the stores.
//!
//! Source: docs/format/14-dedup-and-cloning.md §2.1, §6.

use std::collections::BTreeMap;
use std::sync::Arc;

use dmu::{NewObject, Object, Objset, Tx, zap};
use format::ddt::{Class, Entry, FLAT_SLOT, Key, Slot};
use format::ddt_log::{
    BLOCK_SIZE, FLAGS_KEY, HEADER_SIZE, Header, RECORD_SIZE, Record, VERSION_KEY, names, records,
};
use format::zap::Value;
use format::{ByteOrder, ChecksumKind, Corrupt, ObjectId, ObjectType};

use super::Means;
use crate::Result;
use crate::mos::DIRECTORY;

const LE: ByteOrder = ByteOrder::Little;

/// An entry of a log.
#[derive(Clone, Copy)]
pub(super) struct Logged {
    slot: Slot,
    changed: u64,
    /// The store that has an older version of it.
    pub(super) class: Option<Class>,
}

impl Logged {
    pub(super) fn new(entry: &Entry, class: Option<Class>) -> Logged {
        Logged { slot: entry.slots[FLAT_SLOT], changed: entry.changed, class }
    }

    pub(super) fn entry(&self) -> Entry {
        Entry::flat(self.slot, self.changed)
    }
}

/// One of the two logs.
struct One {
    object: Arc<Object>,
    header: Header,
    entries: BTreeMap<Key, Logged>,
}

impl One {
    fn load(object: Arc<Object>) -> Result<One, dmu::Error> {
        let bad = |why| dmu::Error::Corrupt { object: object.id(), source: why };
        let header = object.with_bonus(|_, raw| Header::decode(raw, LE)).map_err(bad)?;
        let mut entries = BTreeMap::new();
        let blocks = header.length.div_ceil(object.block_size()).min(object.max_blkid() + 1);
        for blkid in 0..blocks {
            for Record { key, entry, class } in records(&object.block(blkid)?, LE).map_err(bad)? {
                if header.checkpoint.is_none_or(|done| key > done) {
                    entries.insert(key, Logged::new(&entry, class));
                }
            }
        }
        Ok(One { object, header, entries })
    }

    fn create(
        mos: &Objset,
        tx: &Tx,
        directory: &Arc<Object>,
        name: &str,
        header: Header,
    ) -> Result<One, dmu::Error> {
        let new = NewObject::plain(ObjectType::UINT64_METADATA)
            .block_size(BLOCK_SIZE as u32)
            .bonus(ObjectType::UINT64_METADATA, vec![0; HEADER_SIZE]);
        let object = mos.create_object(tx, new)?;
        zap::update(directory, tx, name.as_bytes(), &Value::from_u64(object.id().0))?;
        let one = One { object, header, entries: BTreeMap::new() };
        one.put_header(tx);
        Ok(one)
    }

    fn put_header(&self, tx: &Tx) {
        let header = self.header.encode();
        self.object.edit_bonus(tx, |raw| raw[..header.len()].copy_from_slice(&header));
    }

    /// Frees its blocks.
    fn truncate(&mut self, tx: &Tx) {
        assert!(self.entries.is_empty(), "entries leave a log for the stores only");
        self.object.free_blocks(tx, 0, u64::MAX);
        self.header = Header { length: 0, checkpoint: None, ..self.header };
    }
}

/// A table that has logs.
pub(super) struct Flat {
    /// Names its stores and logs.
    pub(super) directory: ObjectId,
    /// The one that takes new entries, and the one that is flushed. They are made with the first entry.
    logs: Option<[One; 2]>,
    /// Entries that were written since the last flush.
    pub(super) appended: u64,
}

/// The directory below a table's name in the object directory, if it is a table with logs.
///
/// # Errors
/// If it cannot be read, or is of a version that is not known here.
fn directory_of(mos: &Objset, kind: ChecksumKind) -> Result<Option<Arc<Object>>> {
    let Some((name, _)) = names(kind) else { return Ok(None) };
    let Some(id) = zap::lookup_u64(&*mos.object(DIRECTORY)?, name.as_bytes())? else { return Ok(None) };
    let directory = mos.object(ObjectId(id))?;
    for ((key, known), what) in [(VERSION_KEY, "dedup table version"), (FLAGS_KEY, "dedup table flags")] {
        let found = zap::lookup_u64(&directory, key.as_bytes())?.unwrap_or(0);
        if found != known {
            return Err(dmu::Error::corrupt(directory.id())(Corrupt::new(what, found)).into());
        }
    }
    Ok(Some(directory))
}

impl Flat {
    /// The table of this checksum, if it has logs.
    pub(super) fn load(mos: &Objset, kind: ChecksumKind) -> Result<Option<Flat>> {
        let Some(directory) = directory_of(mos, kind)? else { return Ok(None) };
        let mut both = Vec::new();
        for name in names(kind).map(|(_, logs)| logs).into_iter().flatten() {
            if let Some(id) = zap::lookup_u64(&directory, name.as_bytes())? {
                both.push(One::load(mos.object(ObjectId(id))?)?);
            }
        }
        both.sort_by_key(|one| one.header.is_flushing);
        let logs = match <[One; 2]>::try_from(both) {
            Ok(mut logs) if !logs[0].header.is_flushing && logs[1].header.is_flushing => {
                let [active, flushing] = &mut logs;
                flushing.entries.retain(|key, _| !active.entries.contains_key(key));
                Some(logs)
            }
            Err(none) if none.is_empty() => None,
            Ok(_) | Err(_) => {
                let wrong = Corrupt::new("logs of a dedup table", kind.to_disk());
                return Err(dmu::Error::corrupt(directory.id())(wrong).into());
            }
        };
        Ok(Some(Flat { directory: directory.id(), logs, appended: 0 }))
    }

    /// A new table.
    pub(super) fn create(means: &Means<'_>, kind: ChecksumKind) -> Result<Flat, dmu::Error> {
        let Means { mos, tx, .. } = *means;
        let (name, _) = names(kind).expect("only checksums of dedup tables have tables");
        let object = mos.create_object(tx, NewObject::plain(ObjectType::ZAP_METADATA))?;
        zap::create(&object, tx, means.salt, 0)?;
        for (key, value) in [VERSION_KEY, FLAGS_KEY] {
            zap::update(&object, tx, key.as_bytes(), &Value::from_u64(value))?;
        }
        zap::update(&mos.object(DIRECTORY)?, tx, name.as_bytes(), &Value::from_u64(object.id().0))?;
        Ok(Flat { directory: object.id(), logs: None, appended: 0 })
    }

    /// All entries of both logs.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&Key, &Logged)> {
        self.logs.iter().flatten().flat_map(|one| &one.entries)
    }

    pub(super) fn find(&self, key: &Key) -> Option<&Logged> {
        self.logs.iter().flatten().find_map(|one| one.entries.get(key))
    }

    /// Bytes of both logs on the disks.
    pub(super) fn on_disk(&self) -> u64 {
        self.logs.iter().flatten().map(|one| one.object.used_bytes()).sum()
    }

    /// Whether no entry is in a log.
    pub(super) fn is_empty(&self) -> bool {
        self.entries().next().is_none()
    }

    /// Entries of the log that takes new ones, and since when it does.
    pub(super) fn active(&self) -> Option<(u64, format::Txg)> {
        let [active, _] = self.logs.as_ref()?;
        Some((active.entries.len() as u64, active.header.first_txg))
    }

    /// Entries that are on their way into the stores.
    pub(super) fn flushing(&self) -> u64 {
        self.logs.as_ref().map_or(0, |[_, flushing]| flushing.entries.len() as u64)
    }

    /// Writes entries into the log.
    pub(super) fn append(
        &mut self,
        means: &Means<'_>,
        kind: ChecksumKind,
        new: Vec<(Key, Logged)>,
    ) -> Result<(), dmu::Error> {
        let Means { mos, tx, .. } = *means;
        if self.logs.is_none() {
            let directory = mos.object(self.directory)?;
            let (_, [first, second]) = names(kind).expect("only checksums of dedup tables have tables");
            let active = Header { first_txg: tx.txg(), ..Header::default() };
            let flushing = Header { is_flushing: true, ..Header::default() };
            self.logs = Some([
                One::create(mos, tx, &directory, &first, active)?,
                One::create(mos, tx, &directory, &second, flushing)?,
            ]);
        }
        let [active, flushing] = self.logs.as_mut().expect("made in the lines above");
        let size = active.object.block_size() as usize;
        for part in new.chunks(size / RECORD_SIZE) {
            let mut block = Vec::with_capacity(size);
            for (key, logged) in part {
                block.extend(Record { key: *key, entry: logged.entry(), class: logged.class }.encode());
            }
            block.resize(size, 0);
            active.object.put_block(tx, active.header.length / size as u64, Arc::new(block));
            active.header.length += size as u64;
        }
        active.put_header(tx);
        self.appended += new.len() as u64;
        for (key, logged) in new {
            flushing.entries.remove(&key);
            active.entries.insert(key, logged);
        }
        Ok(())
    }

    /// The log that took new entries is flushed from now on, and the other one takes them.
    pub(super) fn swap(&mut self, tx: &Tx) {
        let Some(logs) = &mut self.logs else { return };
        let [active, flushing] = logs;
        if flushing.header.length > 0 {
            flushing.truncate(tx);
        }
        flushing.header = Header { is_flushing: false, first_txg: tx.txg(), ..flushing.header };
        active.header.is_flushing = true;
        logs.iter().for_each(|one| one.put_header(tx));
        logs.swap(0, 1);
    }

    /// Takes from the log the entry that is to be stored next.
    pub(super) fn take(&mut self) -> Option<(Key, Logged)> {
        self.logs.as_mut().and_then(|[_, flushing]| flushing.entries.pop_first())
    }

    /// Notes that entries up to `last` are in the stores.
    pub(super) fn flushed(&mut self, tx: &Tx, last: Key) {
        let Some([_, flushing]) = &mut self.logs else { return };
        match flushing.entries.is_empty() {
            true => flushing.truncate(tx),
            false => flushing.header.checkpoint = Some(last),
        }
        flushing.put_header(tx);
    }

    /// Frees the logs and the directory of an empty table.
    pub(super) fn destroy(self, means: &Means<'_>, kind: ChecksumKind) -> Result<(), dmu::Error> {
        let Means { mos, tx, .. } = *means;
        for one in self.logs.into_iter().flatten() {
            mos.free_object(tx, &one.object);
        }
        mos.free_object(tx, &mos.object(self.directory)?);
        let (name, _) = names(kind).expect("only checksums of dedup tables have tables");
        zap::discard(&mos.object(DIRECTORY)?, tx, name.as_bytes())
    }
}
