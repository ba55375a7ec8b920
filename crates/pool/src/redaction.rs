//! Redaction bookmarks and their lists, for the crate `stream`: it decides which blocks a list names.
//!
//! From:   the blocks that the redaction snapshots changed, in order.
//! To:     jobs of the sync thread, each in one txg.

use dsl::info::{self, DatasetInfo};
use dsl::room::Reserve;
use dsl::{new_names, redaction};
use format::ObjectId;
use format::redaction::{Entry, Header};

use crate::held_lists::HeldLists;
use crate::pool::Pool;
use crate::props::DatasetKind;
use crate::{Error, Result};

/// The entries of a redaction list, in order.
pub type RedactionEntries = Box<dyn Iterator<Item = Result<Entry>> + Send>;

impl Pool {
    /// Whether blocks of a dataset were left out by its sender.
    ///
    /// # Errors
    /// Its marks cannot be read.
    pub fn is_redacted(&self, info: &DatasetInfo) -> Result<bool> {
        Ok(self.redaction_of(info)?.is_some())
    }

    /// Guids of the snapshots by which a dataset is redacted, or for which a redaction bookmark was made; `None`: it is
    /// neither.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn redaction_of(&self, info: &DatasetInfo) -> Result<Option<Vec<u64>>> {
        let _shared = self.shared();
        redaction::guids(&self.inner.mos, info.id, info.mark.as_ref())
    }

    /// The list of a redaction bookmark: its object, and what it says of itself; `None` for other bookmarks.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn redaction_list(&self, mark: &DatasetInfo) -> Result<Option<(ObjectId, Header)>> {
        let _shared = self.shared();
        let Some(id) = mark.mark.as_ref().and_then(redaction::list_of) else { return Ok(None) };
        Ok(Some((id, redaction::header(&self.inner.mos, id)?)))
    }

    /// Reads the header of a redaction list.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn redaction_header(&self, list: ObjectId) -> Result<Header> {
        redaction::header(&self.inner.mos, list)
    }

    /// The blocks of the list of the redaction bookmark `name`. The bookmark cannot be destroyed while they are read.
    ///
    /// # Errors
    /// [`Error::NoDataset`] if the bookmark is gone, or has another list; the list cannot be read; so may each step.
    pub fn redaction_entries(&self, name: &str, list: ObjectId) -> Result<RedactionEntries> {
        let _shared = self.shared();
        let mark = info::info(&self.inner.view(), name)?.mark;
        if mark.as_ref().and_then(redaction::list_of) != Some(list) {
            return Err(Error::NoDataset(name.to_owned()));
        }
        let held = HeldLists::hold(&self.inner.held_lists, list);
        let entries = redaction::entries(&self.inner.mos, list)?;
        Ok(Box::new(entries.inspect(move |_| {
            let _in_use = &held;
        })))
    }

    /// Makes the redaction bookmark `name` (`pool/fs#mark`) of a snapshot, for the redaction snapshots with these guids. Its
    /// list is empty, and to be filled.
    ///
    /// # Errors
    /// As [`Pool::bookmark`]; [`Error::TooManyRedactions`].
    pub fn redaction_bookmark(&self, snapshot: &str, name: &str, guids: Vec<u64>) -> Result<()> {
        new_names::check(name, DatasetKind::Bookmark)?;
        let (snapshot, name) = (snapshot.to_owned(), name.to_owned());
        self.run(move |syncing| syncing.change(|dsl| dsl.create_redaction_bookmark(&snapshot, &name, guids)))
    }

    /// Appends to the list of the redaction bookmark `name`, whose object is `list` and which has `before` entries, and notes
    /// how far it is; `None`: it is complete.
    ///
    /// # Errors
    /// [`Error::NoDataset`] if the bookmark is gone; [`Error::DatasetBusy`] if another thread fills the list;
    /// [`Error::NoSpace`].
    pub fn extend_redaction(
        &self,
        name: &str,
        (list, before): (ObjectId, u64),
        entries: Vec<Entry>,
        progress: Option<(u64, u64)>,
    ) -> Result<()> {
        let name = name.to_owned();
        // An entry takes less than a hundredth of the space that is counted for an object.
        let objects = 2 + entries.len() as u64 / 100;
        self.run_beside(Reserve::Whole, objects, move |syncing| {
            syncing.change(|dsl| {
                let (.., mark) = dsl.plain_bookmark(&name)?;
                if redaction::list_of(&mark) != Some(list) {
                    return Err(Error::NoDataset(name));
                }
                let header = redaction::header(dsl.mos(), list)?;
                if header.progress.is_none() || header.entries != before {
                    return Err(Error::DatasetBusy(name));
                }
                dsl.extend_redaction_list(list, &entries, progress)
            })
        })
    }
}
