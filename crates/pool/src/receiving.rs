//! The target dataset of a receive, for the crate `stream`: making it, completing it and removing it.
//!
//! From:   where a stream goes, and how it is received.
//! To:     jobs of the sync thread, each in one txg.

use std::collections::BTreeSet;

use dsl::opening::Opening;
use dsl::receive::{Place, Progress, Working};
use dsl::received::{PropertyRefusal, ReceiveOptions};
use dsl::{change, info, list, partial};
use format::ObjectId;

use crate::pool::Pool;
use crate::{Error, Result, ResumeToken};

impl Pool {
    /// Makes the dataset into which a stream for `fs` is written. Returns its directory, its dataset object and the received
    /// properties that it cannot have.
    ///
    /// # Errors
    /// Why it cannot be made: [`Error::Exists`], [`Error::NoDataset`], [`Error::NoSpace`] and others.
    pub fn make_place(
        &self,
        place: &Place,
        fs: &str,
        opening: &Opening,
        options: &ReceiveOptions,
    ) -> Result<((ObjectId, ObjectId), Vec<PropertyRefusal>)> {
        let (place, fs, opening, options) = (place.clone(), fs.to_owned(), opening.clone(), options.clone());
        self.run(move |syncing| {
            let made = syncing.change(|dsl| dsl.make_place(&place, &fs, &opening))?;
            let refused = syncing.change(|dsl| dsl.begin_receive(&place, made, &opening, &options))?;
            Ok((made, refused))
        })
    }

    /// Completes a receive: makes the written data the head and takes the snapshot named in `into`. Returns the full name of
    /// the snapshot and the received properties that the dataset cannot have.
    ///
    /// # Errors
    /// [`Error::DatasetBusy`] and others; nothing has changed then.
    pub fn end_receive(
        &self,
        working: Working,
        into: String,
        opening: Opening,
        options: ReceiveOptions,
    ) -> Result<(String, Vec<PropertyRefusal>)> {
        self.inner
            .run(move |syncing| syncing.change(|dsl| dsl.end_receive(&working, &into, &opening, &options)))
    }

    /// After the raw streams of a package: makes the dataset `name` an encryption root, as it is at the sender, or lets it
    /// inherit its key. It needs no key, because no key is wrapped again.
    ///
    /// # Errors
    /// [`crate::KeyError`], or the pool could not write.
    pub fn set_key_root(&self, name: String, is_root: bool) -> Result<()> {
        self.run(move |syncing| {
            syncing.change(|dsl| match is_root {
                true => dsl.become_key_root(&name),
                false => dsl.take_key_from_above(&name),
            })
        })
    }

    /// Records the progress of the receive into the dataset `id`. The data up to this point is on disk.
    ///
    /// # Errors
    /// The pool could not write.
    pub fn note_progress(&self, id: ObjectId, progress: Progress) -> Result<()> {
        self.sync()?;
        self.inner.run(move |syncing| syncing.change(|dsl| dsl.note_progress(id, progress)))
    }

    /// Destroys the head of the directory `dir`, which holds part of a stream.
    ///
    /// # Errors
    /// [`Error::DatasetBusy`], or the pool could not write.
    pub fn remove_place(&self, dir: ObjectId) -> Result<()> {
        self.run(move |syncing| syncing.change(|dsl| dsl.destroy_head_in(dir)))
    }

    /// guids of the per-dataset features that a dataset is marked with.
    ///
    /// # Errors
    /// The marks cannot be read.
    pub fn marks_of(&self, id: ObjectId) -> Result<BTreeSet<String>> {
        change::marks(&self.inner.mos, id)
    }

    /// Whether the dataset with this number is open in this process.
    #[must_use]
    pub fn is_open(&self, id: ObjectId) -> bool {
        self.inner.open.is_open(id)
    }

    /// Whether the dataset `name` is open elsewhere than in the pool itself, whose intent log may keep it open.
    ///
    /// # Errors
    /// [`Error::NoDataset`].
    pub fn is_used(&self, name: &str) -> Result<bool> {
        Ok(self.inner.open.is_used(self.dataset(name)?.id))
    }

    /// The resume token of a partial receive into `fs`; `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn resume_token(&self, fs: &str) -> Result<Option<ResumeToken>> {
        let _shared = self.shared();
        match info::info(&self.inner.view(), fs) {
            Ok(info) => Ok(partial::partial(&self.inner.mos, info.dir_id)?.map(|partial| partial.token)),
            Err(Error::NoDataset(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Destroys a partial receive into `fs`; `false` if there is none.
    ///
    /// # Errors
    /// [`Error::NoDataset`], [`Error::DatasetBusy`].
    pub fn abort_receive(&self, fs: &str) -> Result<bool> {
        let name = fs.to_owned();
        self.run(move |syncing| syncing.change(|dsl| dsl.abort_receive(&name)))
    }

    /// Destroys the rests of an interrupted receive or destroy. OpenZFS does the same at an import.
    pub(crate) fn remove_unfinished(&self) -> Result<()> {
        if self.read_only().is_some() {
            return Ok(());
        }
        for (name, dir) in list::unfinished(&self.inner.view())? {
            if let Err(error) = self.remove_place(dir) {
                tracing::warn!(%error, "'{name}' was never finished and cannot be taken away");
            }
        }
        Ok(())
    }
}
