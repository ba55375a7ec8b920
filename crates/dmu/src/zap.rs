//! ZAP operations on objects: reading and changing the blocks of a ZAP. `format::zap` defines the bytes.
//!
//! Source: docs/format/04-zap.md.

use std::sync::Arc;

use format::zap::fat::{self, Header, double_table, pointer_range};
use format::zap::micro::{self, Index, InsertError, Micro};
use format::zap::{self, Key, Leaf, LeafError, NameError, Position, Value, ZapKind, hash, leaf};
use format::{ByteOrder, Corrupt};
use storage::rank::{ReadHeld, WriteHeld};

use crate::{Error, Object, Record, Result, Tx};

pub mod words;

/// Entries of one hash that a fat leaf of 16 KiB still holds; a micro ZAP with more could never be upgraded.
const SAME_HASH_MAX: u32 = 100;
/// Maximal number of splits and table doublings for one insertion; more means damage.
const SPLITS_MAX: usize = 64;

/// One entry of a ZAP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name without its NUL.
    pub name: Vec<u8>,
    /// The value.
    pub value: Value,
    /// Its position in the order of iteration.
    pub position: Position,
}

impl Entry {
    /// The value as one number, if it is one.
    #[must_use]
    pub fn number(&self) -> Option<u64> {
        self.value.as_u64()
    }
}

/// Makes the (empty) object a micro ZAP of one block.
///
/// # Errors
/// If the object cannot be changed.
pub fn create(object: &Arc<Object>, tx: &Tx, salt: u64, normflags: u64) -> Result<()> {
    let size = object.block_size() as usize;
    object.put_block(tx, 0, Arc::new(micro::new_block(size, salt | 1, normflags)));
    Ok(())
}

/// Makes the (empty) object a fat ZAP.
///
/// # Errors
/// If the object cannot be changed.
pub fn create_fat(object: &Arc<Object>, tx: &Tx, salt: u64, normflags: u64) -> Result<()> {
    let header = Header::new(fat::DEFAULT_BLOCK_SHIFT, salt | 1, normflags, 0);
    start_fat(object, tx, &header)
}

fn start_fat(object: &Arc<Object>, tx: &Tx, header: &Header) -> Result<()> {
    let size = 1usize << header.block_shift;
    object.set_block_size(tx, size as u64)?;
    object.put_block(tx, 0, Arc::new(header.new_block()));
    object.put_block(tx, 1, Arc::new(leaf::new_block(size, 0, 0, header.normflags != 0)));
    Ok(())
}

/// The ZAP's first block, recognised.
enum Root {
    Micro(Record),
    Fat(Record, Header),
}

fn root(object: &Object) -> Result<Root> {
    let block = object.block(0)?;
    match zap::kind(&block).map_err(bad(object))? {
        (ZapKind::Micro, _) => Ok(Root::Micro(block)),
        (ZapKind::Fat, order) => {
            let header = Header::decode(&block, order).map_err(bad(object))?;
            Ok(Root::Fat(block, header))
        }
        (ZapKind::Leaf, _) => Err(bad(object)(Corrupt::new("first ZAP block", 0))),
    }
}

fn bad(object: &Object) -> impl FnOnce(Corrupt) -> Error {
    Error::corrupt(object.id())
}

/// Why a name has no normal form or hash. OpenZFS knows no other normalisations than those known here, and a directory has
/// no keys that are numbers: such a ZAP is damaged.
fn name_error(object: &Object) -> impl FnOnce(NameError) -> Error {
    let id = object.id();
    move |error| match error {
        NameError::WrongKind => Error::corrupt(id)(Corrupt::new("kind of keys of a ZAP", 0)),
        NameError::Unsupported { normflags } => {
            Error::corrupt(id)(Corrupt::new("normalisation of a ZAP", normflags))
        }
        NameError::Folding { .. } => Error::Unsupported("folding the case of this name"),
    }
}

fn leaf_error(object: &Object, error: LeafError) -> Error {
    match error {
        LeafError::Exists => Error::Exists,
        LeafError::Absent => Error::NoEntry,
        LeafError::TooBig | LeafError::NeedSplit => Error::TooLong,
        LeafError::Corrupt(source) => Error::Corrupt { object: object.id(), source },
    }
}

fn read_lock(object: &Object) -> ReadHeld<'_, Option<Index>> {
    object.zap.read()
}

fn write_lock(object: &Object) -> WriteHeld<'_, Option<Index>> {
    object.zap.write()
}

/// The value under exactly this name.
///
/// # Errors
/// If the ZAP cannot be read.
pub fn lookup(object: &Object, name: &[u8]) -> Result<Option<Value>> {
    let _shared = read_lock(object);
    match root(object)? {
        Root::Micro(block) => Ok(micro::lookup(&block, name).map(|entry| Value::from_u64(entry.value))),
        Root::Fat(block, header) => lookup_fat(object, &block, &header, Key::Name(name)),
    }
}

fn lookup_fat(object: &Object, block: &Record, header: &Header, key: Key<'_>) -> Result<Option<Value>> {
    let hash = header.hash(key).map_err(name_error(object))?;
    let (_, leaf) = leaf_of(object, block, header, hash)?;
    let found = Leaf::new(&leaf).and_then(|l| l.lookup(hash, key)).map_err(bad(object))?;
    found.map(|entry| entry.value()).transpose().map_err(bad(object))
}

/// The number under exactly this name.
///
/// # Errors
/// If the ZAP cannot be read, or the value is no single number.
pub fn lookup_u64(object: &Object, name: &[u8]) -> Result<Option<u64>> {
    match lookup(object, name)? {
        None => Ok(None),
        Some(value) => match value.to_u64s().first() {
            Some(&number) if value.width() == 8 => Ok(Some(number)),
            _ => Err(bad(object)(Corrupt::new("width of a ZAP number", value.width().into()))),
        },
    }
}

/// The entry whose normal form is that of `name`: on case-insensitive or normalising file systems.
///
/// # Errors
/// If the ZAP cannot be read, or the name's normal form is not known here.
pub fn lookup_normalised(object: &Object, name: &[u8]) -> Result<Option<(Vec<u8>, Value)>> {
    let _shared = read_lock(object);
    match root(object)? {
        Root::Micro(block) => {
            let micro = Micro::decode(&block, ByteOrder::Little).map_err(bad(object))?;
            let found = micro.lookup_normalised(name).map_err(name_error(object))?;
            Ok(found.map(|entry| (entry.name.to_vec(), Value::from_u64(entry.value))))
        }
        Root::Fat(block, header) => {
            let hash = header.hash(Key::Name(name)).map_err(name_error(object))?;
            let (_, leaf) = leaf_of(object, &block, &header, hash)?;
            let leaf = Leaf::new(&leaf).map_err(bad(object))?;
            let found = leaf.lookup_normalised(hash, name, header.normflags).map_err(bad(object))?;
            match found.map_err(name_error(object))? {
                None => Ok(None),
                Some(entry) => {
                    let name = entry.name().map_err(bad(object))?;
                    Ok(Some((name, entry.value().map_err(bad(object))?)))
                }
            }
        }
    }
}

/// The block id and content of the leaf that owns `hash`.
fn leaf_of(object: &Object, block0: &Record, header: &Header, hash: u64) -> Result<(u64, Record)> {
    let slot = header.slot(header.pointer_index(hash));
    let blkid = if slot.blkid == 0 {
        header.leaf_at(block0, slot)
    } else {
        header.leaf_at(&object.block(slot.blkid)?, slot)
    }
    .map_err(bad(object))?;
    let record = object.block(blkid)?;
    let leaf = Leaf::new(&record).map_err(bad(object))?;
    if !leaf.owns(hash) {
        return Err(bad(object)(Corrupt::new("ZAP leaf prefix", leaf.prefix())));
    }
    Ok((blkid, record))
}

/// Adds an entry.
///
/// # Errors
/// [`Error::Exists`], [`Error::TooLong`], or the ZAP cannot be read.
pub fn insert(object: &Arc<Object>, tx: &Tx, name: &[u8], value: &Value) -> Result<()> {
    Change::lock(object, tx).insert(name, value)
}

/// A ZAP of names that a transaction changes. The change holds its lock.
struct Change<'a> {
    object: &'a Arc<Object>,
    tx: &'a Tx,
    index: WriteHeld<'a, Option<Index>>,
}

impl<'a> Change<'a> {
    fn lock(object: &'a Arc<Object>, tx: &'a Tx) -> Change<'a> {
        Change { object, tx, index: write_lock(object) }
    }

    fn insert(&mut self, name: &[u8], value: &Value) -> Result<()> {
        if let Root::Micro(block) = root(self.object)? {
            if micro::lookup(&block, name).is_some() {
                return Err(Error::Exists);
            }
            match value.as_u64() {
                Some(number)
                    if name.len() < micro::NAME_LIMIT
                        && value.fits_micro()
                        && self.insert_micro(block, name, number)? =>
                {
                    return Ok(());
                }
                _ => self.upgrade()?,
            }
        }
        insert_fat(self.object, self.tx, Key::Name(name), value, None)
    }

    /// Inserts into a micro ZAP, growing it; `false` when it has to become fat.
    fn insert_micro(&mut self, block: Record, name: &[u8], number: u64) -> Result<bool> {
        let object = self.object;
        let micro = Micro::decode(&block, ByteOrder::Little).map_err(bad(object))?;
        let hash = micro.hash(name).map_err(name_error(object))?;
        if self.index.is_none() {
            *self.index = Some(Index::build(&micro).map_err(name_error(object))?);
        }
        let index = self.index.as_mut().expect("the index was built above");
        if index.cd_for(hash) > SAME_HASH_MAX {
            return Ok(false);
        }
        let slots = block.len() / 64 - 1;
        if index.len() >= slots {
            if block.len() + micro::STEP > micro::MAX_SIZE {
                return Ok(false);
            }
            object.set_block_size(self.tx, (block.len() + micro::STEP) as u64)?;
        }
        drop(block);
        match object.edit_block(self.tx, 0, |raw| index.insert(raw, hash, name, number))? {
            Ok(_) => Ok(true),
            Err(InsertError::Exists) => Err(Error::Exists),
            Err(InsertError::BadName) => Err(Error::TooLong),
            Err(InsertError::Full) => Ok(false),
        }
    }

    /// Turns a micro ZAP into a fat one with the same salt and differentiators.
    fn upgrade(&mut self) -> Result<()> {
        *self.index = None;
        let (object, tx) = (self.object, self.tx);
        let block = object.block(0)?;
        let micro = Micro::decode(&block, ByteOrder::Little).map_err(bad(object))?;
        let header = Header::new(fat::DEFAULT_BLOCK_SHIFT, micro.salt(), micro.normflags(), 0);
        start_fat(object, tx, &header)?;
        for entry in micro.entries() {
            insert_fat(object, tx, Key::Name(entry.name), &Value::from_u64(entry.value), Some(entry.cd))?;
        }
        Ok(())
    }

    fn update(&mut self, name: &[u8], value: &Value) -> Result<()> {
        if let Root::Micro(block) = root(self.object)? {
            match (micro::lookup(&block, name), value.as_u64()) {
                (Some(_), Some(number)) if value.fits_micro() => {
                    drop(block);
                    let found = self.object.edit_block(self.tx, 0, |raw| micro::update(raw, name, number))?;
                    assert!(found, "the entry was found under the same lock");
                    return Ok(());
                }
                (None, _) => return self.insert(name, value),
                (Some(_), _) => self.upgrade()?,
            }
        }
        update_fat(self.object, self.tx, Key::Name(name), value)
    }
}

fn insert_fat(object: &Arc<Object>, tx: &Tx, key: Key<'_>, value: &Value, cd: Option<u32>) -> Result<()> {
    let is_long = match key {
        Key::Name(name) => name.is_empty() || name.len() > zap::value::MAX_LONG_NAME,
        Key::Words(words) => words.is_empty(),
    };
    if is_long || value.data().len() > zap::value::MAX_VALUE {
        return Err(Error::TooLong);
    }
    for _ in 0..SPLITS_MAX {
        let Root::Fat(block, mut header) = root(object)? else {
            return Err(bad(object)(Corrupt::new("fat ZAP turned micro", 0)));
        };
        if let Some(growth) = header.pending_growth() {
            copy_table(object, tx, &header, &growth)?;
            header.finish_growth(&growth);
            put_header(object, tx, &header)?;
            continue;
        }
        let hash = header.hash(key).map_err(name_error(object))?;
        let (blkid, record) = leaf_of(object, &block, &header, hash)?;
        let leaf = Leaf::new(&record).map_err(bad(object))?;
        if leaf.lookup(hash, key).map_err(bad(object))?.is_some() {
            return Err(Error::Exists);
        }
        let prefix_len = leaf.prefix_len();
        drop((record, block));
        let inserted = object.edit_block(tx, blkid, |raw| match cd {
            None => leaf::insert(raw, hash, key, value).map(|_| ()),
            Some(cd) => leaf::insert_with_cd(raw, hash, cd, key, value).map(|_| ()),
        })?;
        match inserted {
            Ok(()) => {
                header.entries += 1;
                return put_header(object, tx, &header);
            }
            Err(LeafError::NeedSplit) => split(object, tx, header, blkid, prefix_len)?,
            Err(error) => return Err(leaf_error(object, error)),
        }
    }
    Err(Error::Full("ZAP entry"))
}

fn put_header(object: &Arc<Object>, tx: &Tx, header: &Header) -> Result<()> {
    object.edit_block(tx, 0, |raw| header.encode(raw))
}

fn copy_table(object: &Arc<Object>, tx: &Tx, header: &Header, growth: &fat::Growth) -> Result<()> {
    let size = 1usize << header.block_shift;
    match &growth.old {
        None => {
            let table = double_table(header.embedded_table(&object.block(0)?));
            object.put_block(tx, growth.new.start, Arc::new(table));
        }
        Some(old) => {
            for (i, blkid) in old.clone().enumerate() {
                let table = double_table(&object.block(blkid)?);
                for (half, at) in table.chunks_exact(size).zip(growth.new.start + 2 * i as u64..) {
                    object.put_block(tx, at, Arc::new(half.to_vec()));
                }
            }
            object.free_blocks(tx, old.start, old.end);
        }
    }
    Ok(())
}

fn split(object: &Arc<Object>, tx: &Tx, mut header: Header, blkid: u64, prefix_len: u32) -> Result<()> {
    if prefix_len == header.shift {
        let growth = header.grow().map_err(|fat::TableFull| Error::Full("ZAP entry"))?;
        copy_table(object, tx, &header, &growth)?;
        header.finish_growth(&growth);
    }
    let upper = object.edit_block(tx, blkid, |raw| leaf::split(raw))?.map_err(bad(object))?;
    let new = header.take_block();
    header.leaves += 1;
    let leaf = Leaf::new(&upper).map_err(bad(object))?;
    let pointers = pointer_range(leaf.prefix(), leaf.prefix_len(), header.shift);
    object.put_block(tx, new, Arc::new(upper));
    put_header(object, tx, &header)?;
    let mut index = pointers.start;
    while index < pointers.end {
        let table = header.slot(index).blkid;
        object.edit_block(tx, table, |raw| {
            while index < pointers.end && header.slot(index).blkid == table {
                ByteOrder::Little.put_u64(raw, header.slot(index).offset, new);
                index += 1;
            }
        })?;
    }
    Ok(())
}

/// Sets the value of `name`, adding the entry if need be.
///
/// # Errors
/// [`Error::TooLong`], or the ZAP cannot be read.
pub fn update(object: &Arc<Object>, tx: &Tx, name: &[u8], value: &Value) -> Result<()> {
    Change::lock(object, tx).update(name, value)
}

fn update_fat(object: &Arc<Object>, tx: &Tx, key: Key<'_>, value: &Value) -> Result<()> {
    let Root::Fat(block, header) = root(object)? else {
        return Err(bad(object)(Corrupt::new("micro ZAP where a fat one was", 0)));
    };
    let hash = header.hash(key).map_err(name_error(object))?;
    let (blkid, record) = leaf_of(object, &block, &header, hash)?;
    let present = Leaf::new(&record).and_then(|l| l.lookup(hash, key)).map_err(bad(object))?.is_some();
    drop((record, block));
    if !present {
        return insert_fat(object, tx, key, value, None);
    }
    match object.edit_block(tx, blkid, |raw| leaf::update(raw, hash, key, value))? {
        Ok(()) => Ok(()),
        Err(LeafError::NeedSplit) => {
            remove_fat(object, tx, key)?;
            insert_fat(object, tx, key, value, None)
        }
        Err(error) => Err(leaf_error(object, error)),
    }
}

/// Removes an entry.
///
/// # Errors
/// [`Error::NoEntry`], or the ZAP cannot be read.
pub fn remove(object: &Arc<Object>, tx: &Tx, name: &[u8]) -> Result<()> {
    let mut index = write_lock(object);
    match root(object)? {
        Root::Micro(block) => {
            if micro::lookup(&block, name).is_none() {
                return Err(Error::NoEntry);
            }
            let micro = Micro::decode(&block, ByteOrder::Little).map_err(bad(object))?;
            let hash = micro.hash(name).map_err(name_error(object))?;
            drop(block);
            object.edit_block(tx, 0, |raw| match index.as_mut() {
                Some(index) => index.remove(raw, hash, name),
                None => micro::remove(raw, name),
            })?;
            Ok(())
        }
        Root::Fat(..) => remove_fat(object, tx, Key::Name(name)),
    }
}

/// As [`remove`], of an entry that may not be there.
///
/// # Errors
/// If the ZAP cannot be read or changed.
pub fn discard(object: &Arc<Object>, tx: &Tx, name: &[u8]) -> Result<()> {
    match remove(object, tx, name) {
        Err(Error::NoEntry) => Ok(()),
        done => done,
    }
}

fn remove_fat(object: &Arc<Object>, tx: &Tx, key: Key<'_>) -> Result<()> {
    let Root::Fat(block, mut header) = root(object)? else {
        return Err(bad(object)(Corrupt::new("fat ZAP turned micro", 0)));
    };
    let hash = header.hash(key).map_err(name_error(object))?;
    let (blkid, record) = leaf_of(object, &block, &header, hash)?;
    if Leaf::new(&record).and_then(|l| l.lookup(hash, key)).map_err(bad(object))?.is_none() {
        return Err(Error::NoEntry);
    }
    drop((record, block));
    object.edit_block(tx, blkid, |raw| leaf::remove(raw, hash, key))?.map_err(|e| leaf_error(object, e))?;
    header.entries = header.entries.saturating_sub(1);
    put_header(object, tx, &header)
}

/// Adds `delta` to the number under `name`; an entry that reaches zero is removed, a missing one counts as 0.
///
/// # Errors
/// If the ZAP cannot be read or changed.
pub fn increment(object: &Arc<Object>, tx: &Tx, name: &[u8], delta: i64) -> Result<()> {
    if is_fresh(object)? {
        create(object, tx, hash::hash_bytes(1, name, hash::BITS_LONG), 0)?;
    }
    let before = lookup_u64(object, name)?;
    let after = before.unwrap_or(0).wrapping_add_signed(delta);
    match (before, after) {
        (Some(_), 0) => remove(object, tx, name),
        (None, 0) => Ok(()),
        _ => update(object, tx, name, &Value::from_u64(after)),
    }
}

/// Whether the object is empty. An object that is unreadable or no ZAP counts as not empty.
fn is_fresh(object: &Object) -> Result<bool> {
    Ok(object.block(0)?.iter().all(|&byte| byte == 0))
}

/// Number of entries.
///
/// # Errors
/// If the ZAP cannot be read.
pub fn count(object: &Object) -> Result<u64> {
    let _shared = read_lock(object);
    match root(object)? {
        Root::Micro(block) => Ok(micro::count(&block) as u64),
        Root::Fat(_, header) => Ok(header.entries),
    }
}

/// Bits of the ZAP's hashes, for cookies.
///
/// # Errors
/// If the ZAP cannot be read.
pub fn hash_bits(object: &Object) -> Result<u32> {
    match root(object)? {
        Root::Micro(_) => Ok(hash::BITS),
        Root::Fat(_, header) => Ok(header.hash_bits()),
    }
}

/// Entries at or after `from` in iteration order: the entries of one leaf, or of the whole micro ZAP, and the position
/// after them. A leaf may have none while others follow.
///
/// # Errors
/// If the ZAP cannot be read.
pub fn entries_from(object: &Object, from: Position) -> Result<(Vec<Entry>, Option<Position>)> {
    let _shared = read_lock(object);
    match root(object)? {
        Root::Micro(block) => {
            let micro = Micro::decode(&block, ByteOrder::Little).map_err(bad(object))?;
            let index = Index::build(&micro).map_err(name_error(object))?;
            let entry = |(position, entry): (Position, micro::Entry<'_>)| Entry {
                name: entry.name.to_vec(),
                value: Value::from_u64(entry.value),
                position,
            };
            let entries = index.entries_from(micro, from).map(entry).collect();
            Ok((entries, None))
        }
        Root::Fat(block, header) => {
            let (_, record) = leaf_of(object, &block, &header, from.hash)?;
            let leaf = Leaf::new(&record).map_err(bad(object))?;
            let mut entries = Vec::new();
            for entry in leaf.entries_from(from).map_err(bad(object))? {
                entries.push(Entry {
                    name: entry.name().map_err(bad(object))?,
                    value: entry.value().map_err(bad(object))?,
                    position: entry.position(),
                });
            }
            Ok((entries, Position::after_leaf(leaf.prefix(), leaf.prefix_len())))
        }
    }
}

/// All entries, leaf by leaf, in iteration order.
pub fn entries(object: &Object) -> impl Iterator<Item = Result<Entry>> + '_ {
    leaf_by_leaf(|from| entries_from(object, from))
}

/// All entries from `from`, a function that reads a leaf and returns the start of the next one.
fn leaf_by_leaf<E>(
    from: impl Fn(Position) -> Result<(Vec<E>, Option<Position>)>,
) -> impl Iterator<Item = Result<E>> {
    let mut next = Some(Position::START);
    let mut pending = Vec::new().into_iter();
    std::iter::from_fn(move || {
        loop {
            if let Some(entry) = pending.next() {
                return Some(Ok(entry));
            }
            match from(next?) {
                Ok((entries, following)) => {
                    next = following;
                    pending = entries.into_iter();
                }
                Err(error) => {
                    next = None;
                    return Some(Err(error));
                }
            }
        }
    })
}
