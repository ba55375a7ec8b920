//! The calls of an open pool for snapshots, clones and holds.

use dsl::new_names;
use dsl::room::Reserve;
use dsl::{holds, info, snapshot};

use crate::error::all_or_first_error;
use crate::pool::Pool;
use crate::props::names;
use crate::props::{DatasetKind, Value};
use crate::state::Syncing;
use crate::{DatasetInfo, Error, Result};

impl Pool {
    /// Takes snapshots (`pool/fs@snap`) all in one txg, or none; `local` are properties that each gets.
    ///
    /// # Errors
    /// [`Error::NoDataset`], [`Error::Exists`], [`Error::NameTooLong`], [`Error::InvalidName`] with the first that cannot
    /// be taken; [`Error::Property`].
    pub fn snapshot(&self, names: &[String], local: &[(String, Value)]) -> Result<()> {
        local.iter().try_for_each(|(name, value)| names::check_storable(name, "", Some(value)))?;
        names.iter().try_for_each(|name| new_names::check(name, DatasetKind::Snapshot))?;
        let mut heads: Vec<_> = names.iter().map(|name| name.split('@').next()).collect();
        heads.sort_unstable();
        if heads.windows(2).any(|two| two[0] == two[1]) {
            return Err(Error::SeveralOfOne);
        }
        self.retry(|| {
            let (names, local) = (names.to_vec(), local.to_vec());
            move |syncing: &mut Syncing<'_>| {
                for name in &names {
                    snapshot::may_snapshot(&syncing.inner.view(), name, syncing.txg)?;
                }
                names.iter().try_for_each(|name| syncing.change(|dsl| dsl.snapshot(name, &local)))
            }
        })
    }

    /// Runs a job. If the job must wait for a later txg, runs it once more there.
    fn retry<J>(&self, job: impl Fn() -> J) -> Result<()>
    where
        J: FnOnce(&mut Syncing<'_>) -> Result<()> + Send + 'static,
    {
        loop {
            match self.run(job()) {
                Err(Error::SameTxg) => {}
                done => return done,
            }
        }
    }

    /// Destroys all snapshots in one txg, or none. With `defer`, snapshots with holds or clones are destroyed when the last
    /// of these is gone.
    ///
    /// # Errors
    /// [`Error::HasClones`], [`Error::Held`], [`Error::DatasetBusy`], [`Error::NoDataset`].
    pub fn destroy_snapshots(&self, names: &[String], defer: bool) -> Result<()> {
        let names = names.to_vec();
        self.run_beside(Reserve::Quarter, 1, move |syncing| {
            for name in &names {
                match snapshot::may_destroy(&syncing.inner.view(), name, &|id| syncing.inner.open.is_used(id))
                {
                    Err(Error::Held(_) | Error::HasClones(_)) if defer => {}
                    judged => judged?,
                }
            }
            names.iter().try_for_each(|name| syncing.change(|dsl| dsl.destroy_snapshot(name, defer)))
        })
    }

    /// Renames snapshots (`pool/fs@a`) to the name `leaf` after the `@`, all or none.
    ///
    /// # Errors
    /// [`Error::NoDataset`], [`Error::Exists`], [`Error::NameTooLong`], [`Error::InvalidName`].
    pub fn rename_snapshots(&self, names: &[String], leaf: &str) -> Result<()> {
        for name in names {
            let fs = name.split('@').next().unwrap_or(name);
            new_names::check(&format!("{fs}@{leaf}"), DatasetKind::Snapshot)?;
        }
        let (names, leaf) = (names.to_vec(), leaf.to_owned());
        self.run_beside(Reserve::Half, 1, move |syncing| {
            for name in &names {
                let fs = name.split('@').next().unwrap_or(name);
                let taken = format!("{fs}@{leaf}");
                if info::info(&syncing.inner.view(), &taken).is_ok() {
                    return Err(Error::Exists(taken));
                }
                info::info(&syncing.inner.view(), name)?;
            }
            names.iter().try_for_each(|name| syncing.change(|dsl| dsl.rename_snapshot(name, &leaf)))
        })
    }

    /// Rolls a file system or volume back to its newest snapshot (`pool/fs@snap`). It must not be open.
    ///
    /// # Errors
    /// [`Error::NotNewest`], [`Error::DatasetBusy`], [`Error::NoDataset`].
    pub fn rollback(&self, snapshot: &str) -> Result<()> {
        let (fs, leaf) = snapshot.split_once('@').ok_or_else(|| Error::NoDataset(snapshot.to_owned()))?;
        let (fs, leaf) = (fs.to_owned(), leaf.to_owned());
        self.run_beside(Reserve::Half, 1, move |syncing| syncing.change(|dsl| dsl.rollback(&fs, &leaf)))
    }

    /// Creates `name` as a clone of the snapshot `origin`, with local properties.
    ///
    /// # Errors
    /// [`Error::NoDataset`], [`Error::Exists`], [`Error::NameTooLong`], [`Error::InvalidName`].
    pub fn clone_snapshot(&self, origin: &str, name: &str, local: Vec<(String, Value)>) -> Result<()> {
        new_names::check(name, DatasetKind::Filesystem)?;
        let (origin, full) = (origin.to_owned(), name.to_owned());
        self.with_limits(name, local, move |syncing, local| {
            syncing.change(|dsl| dsl.clone_snapshot(&origin, &full, &local).map(drop))
        })
    }

    /// Bytes that destroying all of these snapshots would free.
    ///
    /// # Errors
    /// [`Error::NoDataset`], or the DSL cannot be read.
    pub fn reclaims(&self, names: &[String]) -> Result<u64> {
        let _shared = self.shared();
        let ids =
            names.iter().map(|name| Ok(info::info(&self.inner.view(), name)?.id)).collect::<Result<_>>()?;
        holds::reclaims(&self.inner.view(), &ids)
    }

    /// Promotes a clone: it takes over the snapshots that it shares with its origin's dataset, and that dataset becomes its
    /// clone.
    ///
    /// # Errors
    /// [`Error::NotAClone`], [`Error::SnapshotConflict`], [`Error::NoSpace`] beyond a quota, [`Error::NoDataset`].
    pub fn promote(&self, name: &str) -> Result<()> {
        let full = name.to_owned();
        self.run(move |syncing| syncing.change(|dsl| dsl.promote(&full)))?;
        // The moved snapshots now inherit from their new dataset.
        self.refresh_settings()
    }

    /// Makes the bookmark `name` (`pool/fs#mark`) of a snapshot, or as a copy of a bookmark.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NotAncestor`], [`Error::NoDataset`], [`Error::NameTooLong`], [`Error::InvalidName`].
    pub fn bookmark(&self, source: &str, name: &str) -> Result<()> {
        new_names::check(name, DatasetKind::Bookmark)?;
        let (source, name) = (source.to_owned(), name.to_owned());
        self.run(move |syncing| syncing.change(|dsl| dsl.create_bookmark(&source, &name)))
    }

    /// Destroys bookmarks, all or none.
    ///
    /// # Errors
    /// [`Error::NoDataset`]; [`Error::DatasetBusy`] while a stream is made by the list of a redaction bookmark.
    pub fn destroy_bookmarks(&self, names: &[String]) -> Result<()> {
        let names = names.to_vec();
        self.run_beside(Reserve::Half, names.len() as u64, move |syncing| {
            names.iter().try_for_each(|name| syncing.change(|dsl| dsl.may_destroy_bookmark(name)))?;
            names.iter().try_for_each(|name| syncing.change(|dsl| dsl.destroy_bookmark(name)))
        })
    }

    /// The bookmarks of a file system or volume, oldest first.
    ///
    /// # Errors
    /// [`Error::NoDataset`]; a name is invalid; or they cannot be read.
    pub fn bookmarks(&self, fs: &str) -> Result<Vec<DatasetInfo>> {
        all_or_first_error(|report| self.survey_bookmarks(fs, &mut |_, error| report(error)))
    }

    /// As [`Pool::bookmarks`], for callers that only show the list. It leaves out bookmarks with invalid names, and calls
    /// `report` for each with the name of its dataset.
    ///
    /// # Errors
    /// [`Error::NoDataset`], or they cannot be read.
    pub fn survey_bookmarks(
        &self,
        fs: &str,
        report: &mut dyn FnMut(String, Error),
    ) -> Result<Vec<DatasetInfo>> {
        let _shared = self.shared();
        info::bookmarks(&self.inner.view(), fs, report)
    }

    /// Sets properties of a snapshot; `None` removes.
    pub(crate) fn set_snapshot_properties(
        &self,
        name: &str,
        values: Vec<(String, Option<Value>)>,
    ) -> Result<()> {
        values.iter().try_for_each(|(key, value)| names::check_storable(key, "", value.as_ref()))?;
        let name = name.to_owned();
        self.run_beside(Reserve::Half, values.len() as u64, move |syncing| {
            let id = info::info(&syncing.inner.view(), &name)?.id;
            syncing.change(|dsl| {
                values.iter().try_for_each(|(key, value)| dsl.set_snapshot_property(id, key, value.as_ref()))
            })
        })
    }

    /// Holds snapshots under `tag`, all or none: while held, they cannot be destroyed.
    ///
    /// # Errors
    /// [`Error::NoDataset`]; [`Error::Exists`] with the tag; [`Error::BadTag`].
    pub fn hold(&self, names: &[String], tag: &str) -> Result<()> {
        new_names::check_tag(tag)?;
        let (names, tag) = (names.to_vec(), tag.to_owned());
        self.run_beside(Reserve::Half, names.len() as u64, move |syncing| {
            for name in &names {
                let info = info::info(&syncing.inner.view(), name)?;
                if holds::holds(&syncing.inner.view(), &info)?.iter().any(|(held, _)| *held == tag) {
                    return Err(Error::Exists(tag));
                }
            }
            names.iter().try_for_each(|name| syncing.change(|dsl| dsl.hold(name, &tag)))
        })
    }

    /// Releases the holds `tag` of these snapshots.
    ///
    /// # Errors
    /// [`Error::NoDataset`]; [`Error::NoHold`].
    pub fn release(&self, names: &[String], tag: &str) -> Result<()> {
        let (names, tag) = (names.to_vec(), tag.to_owned());
        self.run(move |syncing| {
            for name in &names {
                let info = info::info(&syncing.inner.view(), name)?;
                if !holds::holds(&syncing.inner.view(), &info)?.iter().any(|(held, _)| *held == tag) {
                    return Err(Error::NoHold(tag));
                }
            }
            names.iter().try_for_each(|name| syncing.change(|dsl| dsl.release(name, &tag)))
        })
    }

    /// Holds of a snapshot: tag, and seconds since 1970, by tag.
    ///
    /// # Errors
    /// [`Error::BadTag`] for an invalid tag; or they cannot be read.
    pub fn holds(&self, info: &DatasetInfo) -> Result<Vec<(String, u64)>> {
        all_or_first_error(|report| self.survey_holds(info, report))
    }

    /// As [`Pool::holds`], for callers that only show the list. It leaves out invalid tags and calls `report` for each.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn survey_holds(
        &self,
        info: &DatasetInfo,
        report: &mut dyn FnMut(Error),
    ) -> Result<Vec<(String, u64)>> {
        let _shared = self.shared();
        let mut found = holds::holds(&self.inner.view(), info)?;
        found.retain(|(tag, _)| new_names::check_tag(tag).map_err(&mut *report).is_ok());
        Ok(found)
    }

    /// Names of the clones of a snapshot, in order.
    ///
    /// # Errors
    /// If the DSL cannot be read.
    pub fn clones(&self, info: &DatasetInfo) -> Result<Vec<String>> {
        let _shared = self.shared();
        holds::clones(&self.inner.view(), info)
    }
}
