//! ZAPs whose keys are arrays of numbers: dedup tables, reference counts of clones.
//!
//! Source: docs/format/04-zap.md §3; 14-dedup-and-cloning.md §2.4, §10.

use std::sync::Arc;

use format::Corrupt;
use format::zap::fat::{HASH64, Header, UINT64_KEY};
use format::zap::{Key, Leaf, Position, Value};

use super::{Root, bad, lookup_fat, read_lock, remove_fat, root, start_fat, update_fat, write_lock};
use crate::{Object, Record, Result, Tx};

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: Vec<u64>,
    /// The value.
    pub value: Value,
}

/// Makes the (empty) object a ZAP of such keys with blocks of `1 << block_shift` bytes. `flags`: of the kind of key, besides
/// those that all of these ZAPs have.
///
/// # Errors
/// If the object cannot be changed.
pub fn create(object: &Arc<Object>, tx: &Tx, block_shift: u32, salt: u64, flags: u64) -> Result<()> {
    start_fat(object, tx, &Header::new(block_shift, salt | 1, 0, HASH64 | UINT64_KEY | flags))
}

fn fat(object: &Object) -> Result<(Record, Header)> {
    match root(object)? {
        Root::Fat(block, header) => Ok((block, header)),
        Root::Micro(_) => Err(bad(object)(Corrupt::new("micro ZAP where keys are numbers", 0))),
    }
}

/// The value under this key.
///
/// # Errors
/// If the ZAP cannot be read.
pub fn lookup(object: &Object, key: &[u64]) -> Result<Option<Value>> {
    let _shared = read_lock(object);
    let (block, header) = fat(object)?;
    lookup_fat(object, &block, &header, Key::Words(key))
}

/// Sets the value of a key, adding the entry if need be.
///
/// # Errors
/// If the ZAP cannot be read, or takes no more entries.
pub fn update(object: &Arc<Object>, tx: &Tx, key: &[u64], value: &Value) -> Result<()> {
    let _alone = write_lock(object);
    update_fat(object, tx, Key::Words(key), value)
}

/// Removes an entry.
///
/// # Errors
/// [`crate::Error::NoEntry`], or the ZAP cannot be read.
pub fn remove(object: &Arc<Object>, tx: &Tx, key: &[u64]) -> Result<()> {
    let _alone = write_lock(object);
    remove_fat(object, tx, Key::Words(key))
}

/// Entries at or after `from`: the entries of one leaf, and the position after them.
fn entries_from(object: &Object, from: Position) -> Result<(Vec<Entry>, Option<Position>)> {
    let _shared = read_lock(object);
    let (block, header) = fat(object)?;
    let (_, record) = super::leaf_of(object, &block, &header, from.hash)?;
    let leaf = Leaf::new(&record).map_err(bad(object))?;
    let mut entries = Vec::new();
    for entry in leaf.entries_from(from).map_err(bad(object))? {
        let key = entry.words().map_err(bad(object))?;
        entries.push(Entry { key, value: entry.value().map_err(bad(object))? });
    }
    Ok((entries, Position::after_leaf(leaf.prefix(), leaf.prefix_len())))
}

/// All entries, leaf by leaf.
pub fn entries(object: &Object) -> impl Iterator<Item = Result<Entry>> + '_ {
    super::leaf_by_leaf(|from| entries_from(object, from))
}
