//! Redaction: datasets that lack blocks because their sender left them out, and the lists of these blocks.
//!
//! A redacted dataset has an array of guids as its mark of the feature `redacted_datasets`. A redaction bookmark names an
//! object with a list of blocks.
//! Source: docs/format/15-volumes-redaction-and-newer-features.md §6, §8.

use dmu::{NewObject, zap};
use format::bookmark::Bookmark;
use format::redaction::{BLOCK_SIZE, ENTRY, Entry, Header, OBJECT_TYPE};
use format::zap::Value;
use format::{ByteOrder, Corrupt, ObjectId, ObjectType, features};

use crate::change::Change;
use crate::mos::Mos;
use crate::{Error, Result};

/// Largest bonus of an object of the MOS, in bytes. OpenZFS 2.3 puts a longer header into the spill block, which is only read
/// here.
const BONUS_MAX: usize = 320;

/// Guids of the snapshots by which a dataset is redacted; `None`: it has all its blocks.
///
/// # Errors
/// Its marks cannot be read.
pub fn of(mos: &Mos, id: ObjectId) -> Result<Option<Vec<u64>>> {
    let object = mos.object(id)?;
    if object.object_type() != ObjectType::ZAP_METADATA {
        return Ok(None);
    }
    let found = zap::lookup(&object, features::REDACTED_DATASETS.guid.as_bytes())?;
    Ok(found.map(|guids| guids.to_u64s()))
}

/// The object of a redaction bookmark's list; `None` for other bookmarks.
#[must_use]
pub fn list_of(mark: &Bookmark) -> Option<ObjectId> {
    mark.v2.map(|v2| v2.redaction).filter(|id| id.0 != 0)
}

/// Guids of the snapshots by which the dataset `id` is redacted, or for which the bookmark `mark` was made.
///
/// # Errors
/// They cannot be read.
pub fn guids(mos: &Mos, id: ObjectId, mark: Option<&Bookmark>) -> Result<Option<Vec<u64>>> {
    match mark {
        None => of(mos, id),
        Some(mark) => match list_of(mark) {
            None => Ok(None),
            Some(id) => Ok(Some(header(mos, id)?.snaps)),
        },
    }
}

/// Reads the header of a redaction list.
///
/// # Errors
/// It cannot be read.
pub fn header(mos: &Mos, id: ObjectId) -> Result<Header> {
    let object = mos.object(id)?;
    if object.object_type() != OBJECT_TYPE {
        let what = Corrupt::new("type of a redaction list", object.object_type().0.into());
        return Err(Error::corrupt(id)(what));
    }
    let decode = |raw: &[u8]| Header::decode(raw, ByteOrder::Little).map_err(Error::corrupt(id));
    match object.spill()? {
        Some(spill) => decode(&spill),
        None => object.with_bonus(|_, raw| decode(raw)),
    }
}

/// The entries of a list, block by block.
///
/// # Errors
/// It cannot be read; so may each step.
pub fn entries(mos: &Mos, id: ObjectId) -> Result<impl Iterator<Item = Result<Entry>> + use<>> {
    let object = mos.object(id)?;
    let count = header(mos, id)?.entries;
    let per_block = object.block_size() / ENTRY as u64;
    if per_block == 0 || count > object.capacity() / ENTRY as u64 {
        return Err(Error::corrupt(id)(Corrupt::new("number of a redaction list's entries", count)));
    }
    let mut block: Vec<u8> = Vec::new();
    Ok((0..count).map(move |n| {
        let at = (n % per_block) as usize * ENTRY;
        if at == 0 {
            let left = (count - n).min(per_block) as usize;
            block.resize(left * ENTRY, 0);
            object.read(n * ENTRY as u64, &mut block)?;
        }
        Entry::decode(&block[at..], ByteOrder::Little).map_err(Error::corrupt(id))
    }))
}

impl Change<'_> {
    /// Marks a dataset as redacted by the snapshots with these guids, or as one that has all its blocks.
    pub(crate) fn set_redaction(&mut self, id: ObjectId, guids: Option<&[u64]>) -> Result<()> {
        let (mos, feature) = (self.mos(), &features::REDACTED_DATASETS);
        let before = of(mos, id)?;
        if before.as_deref() == guids {
            return Ok(());
        }
        if before.is_some() {
            zap::remove(&mos.object(id)?, self.tx, feature.guid.as_bytes())?;
            self.adjust_feature(feature, -1)?;
        }
        match guids {
            Some(guids) => self.mark_dataset_with(id, feature, &Value::from_u64s(guids)),
            None => Ok(()),
        }
    }

    /// Makes the object of a new list.
    ///
    /// # Errors
    /// The pool lacks a feature, or there are too many snapshots.
    pub(crate) fn create_redaction_list(&mut self, header: &Header) -> Result<ObjectId> {
        let (mos, guids) = (self.mos(), header.snaps.len());
        if !self.enables(&features::REDACTION_BOOKMARKS) {
            let what = "redaction bookmarks in a pool without feature redaction_bookmarks";
            return Err(Error::Unsupported(what.into()));
        }
        if Header::len_of(guids) > BONUS_MAX {
            return Err(Error::TooManyRedactions);
        }
        let new = NewObject::plain(OBJECT_TYPE).block_size(BLOCK_SIZE);
        let object = mos.create(self.tx, new.bonus(OBJECT_TYPE, header.encode()))?;
        self.adjust_feature(&features::REDACTION_BOOKMARKS, 1)?;
        Ok(object.id())
    }

    /// Appends entries to a list that is being made, and notes how far it is.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn extend_redaction_list(
        &mut self,
        id: ObjectId,
        entries: &[Entry],
        progress: Option<(u64, u64)>,
    ) -> Result<()> {
        let mos = self.mos();
        let mut header = header(mos, id)?;
        let object = mos.object(id)?;
        let raw: Vec<u8> = entries.iter().flat_map(Entry::encode).collect();
        object.write(self.tx, header.entries * ENTRY as u64, &raw)?;
        header.entries += entries.len() as u64;
        header.progress = progress;
        object.edit_bonus(self.tx, |bonus| bonus.copy_from_slice(&header.encode()));
        Ok(())
    }

    /// Frees the list of a bookmark that is destroyed, if it has one.
    pub(crate) fn free_redaction_list(&mut self, mark: &Bookmark) -> Result<()> {
        let (mos, Some(id)) = (self.mos(), list_of(mark)) else { return Ok(()) };
        mos.free(self.tx, id)?;
        self.adjust_feature(&features::REDACTION_BOOKMARKS, -1)
    }
}
