//! The list of destroyed datasets whose blocks are still to be freed.
//!
//! Source: docs/format/06-mos-dsl.md §7.4.

use std::sync::Arc;

use dmu::{NewObject, Object, Tx, zap};
use format::bptree::{ENTRY_SIZE, Entry, HEADER_SIZE, Header, Mark};
use format::{ByteOrder, Corrupt, ObjectType, Txg, features};

use crate::features::Features;
use crate::mos::{DIRECTORY, Mos};
use crate::sizes::Sizes;
use crate::{Error, Result};

/// Name of the list in the object directory. It is there while the list has entries.
const KEY: &str = "bptree_obj";
/// Block size of a new list.
const BLOCK: u32 = 128 << 10;
/// Maximal number of waiting datasets, because an import reads all of them into memory.
pub const ENTRIES_MAX: u64 = 1 << 18;

fn header(object: &Object) -> Result<Header> {
    let corrupt = Error::corrupt(object.id());
    let header = match object.with_bonus(|_, raw| Header::decode(raw, ByteOrder::Little)) {
        Ok(header) => header,
        Err(source) => return Err(corrupt(source)),
    };
    if header.end > object.capacity() / ENTRY_SIZE as u64 || header.end - header.begin > ENTRIES_MAX {
        return Err(corrupt(Corrupt::new("entries in a bptree", header.end)));
    }
    Ok(header)
}

fn put_header(object: &Arc<Object>, tx: &Tx, header: &Header) {
    object.edit_bonus(tx, |raw| raw.copy_from_slice(&header.encode()));
}

fn list(mos: &Mos) -> Result<Option<(Arc<Object>, Header)>> {
    let Some(id) = mos.directory_object(KEY)? else { return Ok(None) };
    let read = || {
        let object = mos.object(id)?;
        let header = header(&object)?;
        Ok((object, header))
    };
    match read() {
        // Its last entry went meanwhile.
        Err(_) if mos.directory_object(KEY)? != Some(id) => Ok(None),
        read => read.map(Some),
    }
}

/// Whether a destroyed dataset waits to be freed.
pub fn is_there(mos: &Mos) -> Result<bool> {
    Ok(list(mos)?.is_some())
}

/// Sizes of all that is still to be freed.
pub fn totals(mos: &Mos) -> Result<Sizes> {
    let sizes = |header: &Header| Sizes {
        used: header.bytes as i64,
        comp: header.comp as i64,
        uncomp: header.uncomp as i64,
    };
    Ok(list(mos)?.map(|(_, header)| sizes(&header)).unwrap_or_default())
}

/// Refuses when no further entry can be added.
pub fn check_room(mos: &Mos) -> Result<()> {
    match list(mos)? {
        Some((_, header)) if header.end - header.begin >= ENTRIES_MAX => Err(Error::FreesWait),
        _ => Ok(()),
    }
}

/// The waiting entries with their numbers, oldest first. The iterator ends with an error at the first unreadable entry.
pub fn entries(mos: &Mos) -> impl Iterator<Item = Result<(u64, Entry)>> {
    let (found, failed) = match list(mos) {
        Ok(found) => (found, None),
        Err(error) => (None, Some(Err(error))),
    };
    let numbers = found.as_ref().map_or(0..0, |(_, header)| header.begin..header.end);
    let read = move |number| {
        let (object, _) = found.as_ref().ok_or(Error::Internal)?;
        let mut raw = [0; ENTRY_SIZE];
        object.read(number * ENTRY_SIZE as u64, &mut raw)?;
        let corrupt = Error::corrupt(object.id());
        if raw == [0; ENTRY_SIZE] {
            return Err(corrupt(Corrupt::new("empty entry of a bptree", number)));
        }
        let entry = Entry::decode(&raw, ByteOrder::Little).map_err(corrupt)?;
        Ok((number, entry))
    };
    let mut is_sound = true;
    let read = numbers.map(read).take_while(move |entry| std::mem::replace(&mut is_sound, entry.is_ok()));
    failed.into_iter().chain(read)
}

/// Adds what is below `entry`; `sizes`: of all of it.
pub fn add(mos: &Mos, features: &mut Features, tx: &Tx, entry: &Entry, sizes: Sizes) -> Result<()> {
    let (object, mut header) = match list(mos)? {
        Some(found) => found,
        None => {
            let bonus = vec![0; HEADER_SIZE];
            let new = NewObject::plain(ObjectType::UINT64_METADATA).block_size(BLOCK);
            let object = mos.create(tx, new.bonus(ObjectType::UINT64_METADATA, bonus))?;
            mos.set_directory(tx, KEY, &format::zap::Value::from_u64(object.id().0))?;
            features.adjust(tx, &features::ASYNC_DESTROY, 1)?;
            (object, Header::default())
        }
    };
    object.write(tx, header.end * ENTRY_SIZE as u64, &entry.encode())?;
    header.end += 1;
    add_sizes(&mut header, sizes);
    put_header(&object, tx, &header);
    Ok(())
}

fn add_sizes(header: &mut Header, sizes: Sizes) {
    sizes.add_to([&mut header.bytes, &mut header.comp, &mut header.uncomp]);
}

/// The progress with an entry of the list.
pub enum Progress {
    /// There is more to free, from this mark on.
    UpTo(Option<Mark>),
    /// Everything was freed.
    All,
}

/// Blocks of an entry that a txg freed.
pub struct Freed<'a> {
    /// The number of the entry.
    pub number: u64,
    /// The entry, as it was before.
    pub entry: &'a Entry,
    /// How far it is freed now.
    pub progress: Progress,
    /// Sizes of the freed blocks.
    pub sizes: Sizes,
}

/// Subtracts freed blocks from their entry. Returns the remaining sum when the last entry is removed.
pub fn progress(mos: &Mos, features: &mut Features, tx: &Tx, freed: Freed<'_>) -> Result<Sizes> {
    let Freed { number, entry, progress, sizes } = freed;
    let (object, mut header) = list(mos)?.ok_or(Error::Internal)?;
    add_sizes(&mut header, -sizes);
    let place = number * ENTRY_SIZE as u64;
    match progress {
        Progress::UpTo(mark) => object.write(tx, place, &Entry { mark, ..*entry }.encode())?,
        Progress::All if number == header.begin => header.begin += 1,
        Progress::All => {
            // An earlier entry could not be read. No block is younger than this txg.
            let nothing = Entry { root: format::BlockPtr::HOLE, since: Txg(u64::MAX), mark: None };
            object.write(tx, place, &nothing.encode())?;
        }
    }
    put_header(&object, tx, &header);
    if header.begin < header.end {
        return Ok(Sizes::default());
    }
    let left = totals(mos)?;
    zap::remove(&mos.object(DIRECTORY)?, tx, KEY.as_bytes())?;
    mos.free(tx, object.id())?;
    features.adjust(tx, &features::ASYNC_DESTROY, -1)?;
    Ok(left)
}
