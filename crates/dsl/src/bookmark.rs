//! Bookmarks: the txg and guid of a snapshot, kept with the head as a starting point for sends.
//!
//! With the feature `bookmark_written`, a bookmark also stores the sizes of its snapshot, and how much of them was freed
//! before the next snapshot. While the head is next, every freed block counts.
//!
//! Source: docs/format/06-mos-dsl.md §11.

use dmu::zap;
use format::bookmark::{Bookmark, BookmarkV2, HAS_FBN, SNAPSHOT_EXISTS};
use format::dsl_dataset::DslDataset;
use format::features;
use format::redaction::Header;
use format::zap::Value;
use format::{BlockPtr, Guid, ObjectId, ObjectType, Txg};

use crate::change::Change;
use crate::key_objects::iv_set;
use crate::mos::{FOLD_CASE, Mos};
use crate::sizes::Sizes;
use crate::{Error, Result, available, deadlist, redaction, tree};

/// Name of the entry for the bookmark ZAP, in the ZAP of the head.
pub const KEY: &str = "com.delphix:bookmarks";

/// Estimated number of DSL objects that a bookmark changes.
const OBJECTS: u64 = 2;

/// The ZAP of a head's bookmarks, if it has any.
pub fn object_of(mos: &Mos, head: ObjectId) -> Result<Option<ObjectId>> {
    let object = mos.object(head)?;
    if object.object_type() != ObjectType::ZAP_METADATA {
        return Ok(None);
    }
    Ok(zap::lookup_u64(&object, KEY.as_bytes())?.map(ObjectId))
}

/// A head's bookmarks, oldest first: the name after the `#`, and the contents.
pub fn all(mos: &Mos, head: ObjectId) -> Result<Vec<(String, Bookmark)>> {
    let Some(id) = object_of(mos, head)? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for entry in zap::entries(&*mos.object(id)?) {
        let entry = entry?;
        let mark = Bookmark::decode(&entry.value.to_u64s()).map_err(Error::corrupt(id))?;
        found.push((String::from_utf8_lossy(&entry.name).into_owned(), mark));
    }
    found.sort_by(|a, b| (a.1.creation_txg, &a.0).cmp(&(b.1.creation_txg, &b.0)));
    Ok(found)
}

/// One bookmark of a head.
pub fn one(mos: &Mos, head: ObjectId, leaf: &str) -> Result<Option<Bookmark>> {
    let Some(id) = object_of(mos, head)? else { return Ok(None) };
    let Some(value) = zap::lookup(&*mos.object(id)?, leaf.as_bytes())? else { return Ok(None) };
    Bookmark::decode(&value.to_u64s()).map(Some).map_err(Error::corrupt(id))
}

fn counts_frees(mark: &Bookmark) -> bool {
    mark.v2.is_some_and(|v2| v2.flags & HAS_FBN != 0)
}

/// The second part of a bookmark, with all sums 0.
fn only_iv_set(ivset_guid: Guid) -> Option<BookmarkV2> {
    (ivset_guid.0 != 0).then(|| BookmarkV2 { ivset_guid, ..BookmarkV2::default() })
}

fn add_freed(mark: &mut Bookmark, sizes: Sizes) {
    if let Some(v2) = &mut mark.v2 {
        v2.freed_before_next_bytes = v2.freed_before_next_bytes.wrapping_add_signed(sizes.used);
        v2.freed_compressed_bytes = v2.freed_compressed_bytes.wrapping_add_signed(sizes.comp);
        v2.freed_uncompressed_bytes = v2.freed_uncompressed_bytes.wrapping_add_signed(sizes.uncomp);
    }
}

/// Frees in a head that its newest bookmarks count, by the txgs of their snapshots.
#[derive(Debug, Default)]
pub struct Freed {
    by_txg: Vec<(Txg, Sizes)>,
}

impl Freed {
    /// Counters for a head whose newest snapshot was taken in `prev_snap_txg`.
    pub fn watch(mos: &Mos, head: ObjectId, prev_snap_txg: Txg) -> Result<Freed> {
        let mut txgs: Vec<Txg> = all(mos, head)?
            .into_iter()
            .filter(|(_, mark)| counts_frees(mark) && mark.creation_txg >= prev_snap_txg)
            .map(|(_, mark)| mark.creation_txg)
            .collect();
        txgs.dedup();
        Ok(Freed { by_txg: txgs.into_iter().map(|txg| (txg, Sizes::default())).collect() })
    }

    /// Counts a block that the head no longer refers to.
    pub fn killed(&mut self, ptr: &BlockPtr, sizes: Sizes) {
        for (txg, sum) in &mut self.by_txg {
            if ptr.accounting_birth() <= *txg {
                *sum += sizes;
            }
        }
    }
}

/// Keys that a head's new deadlist needs besides those of its snapshots: one for each bookmark that is newer than
/// `prev_snap_txg`.
pub fn keys(mos: &Mos, head: ObjectId, prev_snap_txg: Txg) -> Result<Vec<Txg>> {
    let newer = |mark: &Bookmark| counts_frees(mark) && mark.creation_txg > prev_snap_txg;
    Ok(all(mos, head)?
        .into_iter()
        .filter(|(_, mark)| newer(mark))
        .map(|(_, mark)| mark.creation_txg)
        .collect())
}

impl Change<'_> {
    /// Makes the bookmark `name` (`pool/fs#mark`) of a snapshot, or as a copy of a bookmark. The bookmark of a redacted
    /// snapshot names its redaction snapshots.
    pub fn create_bookmark(&mut self, source: &str, name: &str) -> Result<()> {
        self.new_bookmark(source, name, None)
    }

    /// Makes the redaction bookmark `name` of a snapshot, with an empty list for the snapshots with these guids.
    pub fn create_redaction_bookmark(&mut self, source: &str, name: &str, guids: Vec<u64>) -> Result<()> {
        let list = Header { progress: Some((0, 0)), entries: 0, snaps: guids };
        self.new_bookmark(source, name, Some(list))
    }

    fn new_bookmark(&mut self, source: &str, name: &str, list: Option<Header>) -> Result<()> {
        let mos = self.mos();
        let pool = self.view.pool.clone();
        let (fs, leaf) = name.split_once('#').ok_or_else(|| Error::NoDataset(name.to_owned()))?;
        let dir_id = tree::dir_of(mos, &pool, fs)?;
        let head = mos.dir(dir_id)?.head_dataset;
        if !self.enables(&features::BOOKMARKS) {
            return Err(Error::Unsupported("bookmarks in a pool without feature bookmarks".into()));
        }
        let mut list = list;
        let (source_dir, mut mark) = match source.split_once('#') {
            Some((from, old)) => {
                let from = tree::dir_of(mos, &pool, from)?;
                let found = one(mos, mos.dir(from)?.head_dataset, old)?;
                (from, found.ok_or_else(|| Error::NoDataset(source.to_owned()))?)
            }
            None => {
                let id = tree::snapshot(mos, &pool, source)?;
                let snap = mos.dataset(id)?;
                let of_redacted = |snaps| Header { progress: None, entries: 0, snaps };
                list = list.or(redaction::of(mos, id)?.map(of_redacted));
                (snap.dir, self.mark_of(id, &snap, snap.dir == dir_id)?)
            }
        };
        if !self.descends(dir_id, source_dir, mark.creation_txg)? {
            return Err(Error::NotAncestor(name.to_owned()));
        }
        if one(mos, head, leaf)?.is_some() {
            return Err(Error::Exists(name.to_owned()));
        }
        available::check_room(&self.view, OBJECTS)?;
        if source_dir != dir_id {
            // Blocks freed after the snapshot are counted only if they are freed in its own dataset.
            mark.v2 = mark.v2.and_then(|v2| only_iv_set(v2.ivset_guid));
        }
        let list = list.map(|list| self.create_redaction_list(&list)).transpose()?;
        if list.is_some() || mark.v2.is_some() {
            mark.v2.get_or_insert_default().redaction = list.unwrap_or(ObjectId(0));
        }
        self.add_bookmark(head, leaf, &mark)?;
        self.count_bookmark(&mark, 1)
    }

    /// The contents of a new bookmark of this snapshot.
    fn mark_of(&self, id: ObjectId, snap: &DslDataset, same_line: bool) -> Result<Bookmark> {
        let mos = self.mos();
        let ivset_guid = Guid(iv_set(mos, id)?.unwrap_or(0));
        let mut mark = Bookmark {
            guid: snap.guid,
            creation_txg: snap.creation_txg,
            creation_time: snap.creation_time,
            v2: None,
        };
        if !self.enables(&features::BOOKMARK_V2) {
            return Ok(mark);
        }
        if !same_line || !self.enables(&features::BOOKMARK_WRITTEN) {
            mark.v2 = only_iv_set(ivset_guid);
            return Ok(mark);
        }
        let freed = deadlist::header(mos, mos.dataset(snap.next_snap)?.deadlist)?;
        mark.v2 = Some(BookmarkV2 {
            flags: HAS_FBN | SNAPSHOT_EXISTS,
            referenced_bytes: snap.referenced_bytes,
            compressed_bytes: snap.compressed_bytes,
            uncompressed_bytes: snap.uncompressed_bytes,
            freed_before_next_bytes: freed.used as u64,
            freed_compressed_bytes: freed.compressed as u64,
            freed_uncompressed_bytes: freed.uncompressed as u64,
            ivset_guid,
            ..BookmarkV2::default()
        });
        Ok(mark)
    }

    /// Whether `dir` is `from`, or descends from a snapshot of `from` that was taken in `txg` or later.
    fn descends(&self, dir: ObjectId, from: ObjectId, txg: Txg) -> Result<bool> {
        let mos = self.mos();
        let mut dir = dir;
        for _ in 0..tree::DEPTH_MAX {
            if dir == from {
                return Ok(true);
            }
            let origin = mos.dir(dir)?.origin;
            if origin.0 == 0 {
                return Ok(false);
            }
            let phys = mos.dataset(origin)?;
            if phys.creation_txg < txg {
                return Ok(false);
            }
            dir = phys.dir;
        }
        Ok(false)
    }

    /// Adds a bookmark to a head's ZAP.
    fn add_bookmark(&mut self, head: ObjectId, leaf: &str, mark: &Bookmark) -> Result<()> {
        let mos = self.mos();
        let id = match object_of(mos, head)? {
            Some(id) => id,
            None => {
                self.zapify(head)?;
                let id = mos.create_zap(self.tx, ObjectType::ZAP_METADATA, FOLD_CASE)?.id();
                zap::insert(&mos.object(head)?, self.tx, KEY.as_bytes(), &Value::from_u64(id.0))?;
                self.adjust_feature(&features::BOOKMARKS, 1)?;
                id
            }
        };
        Ok(zap::insert(&mos.object(id)?, self.tx, leaf.as_bytes(), &Value::from_u64s(&mark.encode()))?)
    }

    /// Removes a bookmark from a head's ZAP. Frees the ZAP with the last one.
    fn remove_bookmark(&mut self, head: ObjectId, leaf: &str) -> Result<()> {
        let mos = self.mos();
        let Some(id) = object_of(mos, head)? else { return Ok(()) };
        let object = mos.object(id)?;
        zap::remove(&object, self.tx, leaf.as_bytes())?;
        if zap::count(&object)? > 0 {
            return Ok(());
        }
        mos.free(self.tx, id)?;
        zap::remove(&mos.object(head)?, self.tx, KEY.as_bytes())?;
        self.adjust_feature(&features::BOOKMARKS, -1)
    }

    fn rewrite_bookmark(&self, head: ObjectId, leaf: &str, mark: &Bookmark) -> Result<()> {
        let mos = self.mos();
        let Some(id) = object_of(mos, head)? else { return Ok(()) };
        Ok(zap::update(&mos.object(id)?, self.tx, leaf.as_bytes(), &Value::from_u64s(&mark.encode()))?)
    }

    /// Counts one bookmark more or less as a use of the features that it needs.
    fn count_bookmark(&mut self, mark: &Bookmark, by: i64) -> Result<()> {
        if mark.v2.is_some() {
            self.adjust_feature(&features::BOOKMARK_V2, by)?;
        }
        if counts_frees(mark) { self.adjust_feature(&features::BOOKMARK_WRITTEN, by) } else { Ok(()) }
    }

    /// Refuses to destroy the bookmark `name` if there is none, or if its redaction list is in use.
    ///
    /// # Errors
    /// [`Error::NoDataset`]; [`Error::DatasetBusy`].
    pub fn may_destroy_bookmark(&self, name: &str) -> Result<()> {
        let (.., mark) = self.plain_bookmark(name)?;
        self.check_list_unused(&mark, name)
    }

    /// Refuses a change that frees the list of a redaction bookmark while a stream is made by it.
    pub(crate) fn check_list_unused(&self, mark: &Bookmark, name: &str) -> Result<()> {
        redaction::list_of(mark).map_or(Ok(()), |list| self.check_unused(list, name))
    }

    /// Destroys the bookmark `name` (`pool/fs#mark`).
    pub fn destroy_bookmark(&mut self, name: &str) -> Result<()> {
        let mos = self.mos();
        let (dir_id, leaf, mark) = self.plain_bookmark(name)?;
        self.check_list_unused(&mark, name)?;
        let head = mos.dir(dir_id)?.head_dataset;
        self.remove_bookmark(head, leaf)?;
        self.free_redaction_list(&mark)?;
        self.count_bookmark(&mark, -1)?;
        let phys = mos.dataset(head)?;
        let txg = mark.creation_txg;
        let alive = mark.v2.is_some_and(|v2| v2.flags & SNAPSHOT_EXISTS != 0);
        let others = all(mos, head)?;
        let still = others.iter().any(|(_, other)| other.creation_txg == txg && counts_frees(other));
        if counts_frees(&mark) && !alive && !still && txg < phys.prev_snap_txg {
            // No other bookmark or snapshot needs this key of the deadlist any more.
            let features = &mut *self.features;
            deadlist::remove_key(mos, features, self.tx, phys.deadlist, txg)?;
            self.remove_key_in_clones(dir_id, txg)?;
        }
        Ok(())
    }

    /// The directory and the short name of the bookmark `name`, after a check that it can be destroyed.
    pub fn plain_bookmark<'n>(&self, name: &'n str) -> Result<(ObjectId, &'n str, Bookmark)> {
        let mos = self.mos();
        let missing = || Error::NoDataset(name.to_owned());
        let (fs, leaf) = name.split_once('#').ok_or_else(missing)?;
        let dir_id = tree::dir_of(mos, &self.view.pool, fs)?;
        let mark = one(mos, mos.dir(dir_id)?.head_dataset, leaf)?.ok_or_else(missing)?;
        Ok((dir_id, leaf, mark))
    }

    /// Destroys all bookmarks of a head that is destroyed.
    pub(crate) fn destroy_bookmarks_of(&mut self, head: ObjectId) -> Result<()> {
        let mos = self.mos();
        for (leaf, mark) in all(mos, head)? {
            self.remove_bookmark(head, &leaf)?;
            self.free_redaction_list(&mark)?;
            self.count_bookmark(&mark, -1)?;
        }
        Ok(())
    }

    /// Adds the blocks that a sync of a head freed to the counts of its bookmarks.
    pub(crate) fn settle_bookmarks(&mut self, head: ObjectId, freed: &Freed) -> Result<()> {
        if freed.by_txg.iter().all(|(_, sizes)| sizes.is_zero()) {
            return Ok(());
        }
        for (leaf, mut mark) in all(self.mos(), head)? {
            let sum = freed.by_txg.iter().find(|(txg, _)| *txg == mark.creation_txg);
            if let Some((_, sizes)) = sum.filter(|_| counts_frees(&mark)) {
                add_freed(&mut mark, *sizes);
                self.rewrite_bookmark(head, &leaf, &mark)?;
            }
        }
        Ok(())
    }

    /// Updates bookmarks for the destroy of the snapshot `snap`, before its deadlists change. `next` is the snapshot or head
    /// after it. Returns whether deadlists must keep the key of its txg.
    pub(crate) fn bookmarks_outlive(
        &mut self,
        head: ObjectId,
        snap: &DslDataset,
        next: &DslDataset,
    ) -> Result<bool> {
        let mos = self.mos();
        let mut keep = false;
        for (leaf, mut mark) in all(mos, head)? {
            let txg = mark.creation_txg;
            if !counts_frees(&mark) || txg < snap.prev_snap_txg || txg > snap.creation_txg {
                continue;
            }
            if txg < snap.creation_txg {
                add_freed(&mut mark, deadlist::space_between(mos, next.deadlist, Txg(0), txg)?);
            } else {
                keep = true;
                if let Some(v2) = &mut mark.v2 {
                    v2.flags &= !SNAPSHOT_EXISTS;
                }
            }
            self.rewrite_bookmark(head, &leaf, &mark)?;
        }
        Ok(keep)
    }

    /// Another dataset follows the snapshot `snap` now: computes the counts of its bookmarks again.
    pub(crate) fn bookmarks_follow(&mut self, head: ObjectId, snap: ObjectId) -> Result<()> {
        let mos = self.mos();
        if snap.0 == 0 {
            return Ok(());
        }
        let phys = mos.dataset(snap)?;
        let mut marks = all(mos, head)?;
        marks.retain(|(_, mark)| mark.creation_txg == phys.creation_txg && counts_frees(mark));
        for (leaf, mut mark) in marks {
            let freed = deadlist::header(mos, mos.dataset(phys.next_snap)?.deadlist)?;
            if let Some(v2) = &mut mark.v2 {
                v2.freed_before_next_bytes = freed.used as u64;
                v2.freed_compressed_bytes = freed.compressed as u64;
                v2.freed_uncompressed_bytes = freed.uncompressed as u64;
            }
            self.rewrite_bookmark(head, &leaf, &mark)?;
        }
        Ok(())
    }

    /// The bookmarks of `from` that move to the clone `to` when `to` takes over the snapshot `origin`.
    fn moving_bookmarks(&self, from: ObjectId, origin: ObjectId) -> Result<Vec<(String, Bookmark)>> {
        let until = self.mos().dataset(origin)?.creation_txg;
        let mut marks = all(self.mos(), from)?;
        marks.retain(|(_, mark)| mark.creation_txg <= until);
        Ok(marks)
    }

    /// Refuses if a bookmark that would move has the name of an existing one.
    pub(crate) fn check_bookmarks_move(&self, from: ObjectId, to: ObjectId, origin: ObjectId) -> Result<()> {
        for (leaf, _) in self.moving_bookmarks(from, origin)? {
            if one(self.mos(), to, &leaf)?.is_some() {
                let fs = tree::name_of(&self.view, self.mos().dataset(to)?.dir)?;
                return Err(Error::Exists(format!("{fs}#{leaf}")));
            }
        }
        Ok(())
    }

    /// Moves the bookmarks of the snapshots that moved to a promoted clone.
    pub(crate) fn promote_bookmarks(&mut self, from: ObjectId, to: ObjectId, origin: ObjectId) -> Result<()> {
        for (leaf, mark) in self.moving_bookmarks(from, origin)? {
            self.remove_bookmark(from, &leaf)?;
            self.add_bookmark(to, &leaf, &mark)?;
        }
        self.bookmarks_follow(to, origin)
    }
}
