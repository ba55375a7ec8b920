//! The target dataset of a receive: making it, completing it and removing it.
//!
//! Source: docs/format/09-send-stream.md §8, 06-mos-dsl.md §9.7.

use std::sync::Arc;

use dmu::zap;
use format::dsl_dataset::{CASE_INSENSITIVE, INCONSISTENT};
use format::objset::ObjsetType;
use format::stream::{KeyData, feature, flag};
use format::zap::Value as Stored;
use format::{ObjectId, ObjectType, Txg, features};

use crate::change::{self, Change, Effect};
use crate::create::NEW_OBJECTS;
use crate::encrypt::Judged;
use crate::new_encryption::NewEncryption;
use crate::new_head::{Initialise, NewFilesystem, NewHead};
use crate::opening::{Opening, user_key};
use crate::partial::{WORKING, partial, resume};
use crate::props::Value;
use crate::received::{PropertyRefusal, ReceiveOptions, waits};
use crate::sizes::Sizes;
use crate::space::{Category, Shift, add_space, move_space};
use crate::{
    Error, KeyError, ReceiveError, Result, available, bookmark, deadlist, info, keys, promises, redaction,
    snapshot, tree,
};

/// Where a stream goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A new dataset.
    New,
    /// A new clone of this snapshot.
    Clone(String),
    /// Replace a dataset without snapshots.
    Replace,
    /// Continue from the newest snapshot of a dataset.
    Onto(String),
}

impl Place {
    /// Name of the dataset that is written.
    #[must_use]
    pub fn working_name(&self, fs: &str) -> String {
        match self {
            Place::New | Place::Clone(_) => fs.to_owned(),
            Place::Replace | Place::Onto(_) => format!("{fs}/{WORKING}"),
        }
    }
}

/// The dataset into which a stream is written, and its final place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Working {
    /// The final place of the dataset.
    pub place: Place,
    /// Its directory.
    pub dir: ObjectId,
    /// Itself.
    pub id: ObjectId,
}

/// How far a stream was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The next object.
    pub object: u64,
    /// Byte offset in it.
    pub offset: u64,
    /// Bytes of the stream.
    pub bytes: u64,
}

impl Progress {
    /// Before the first object.
    pub const START: Progress = Progress { object: 1, offset: 0, bytes: 0 };
}

impl Change<'_> {
    /// Makes the dataset for a stream; returns its directory and its dataset object.
    ///
    /// # Errors
    /// Why there can be none.
    pub fn make_place(&mut self, place: &Place, fs: &str, opening: &Opening) -> Result<(ObjectId, ObjectId)> {
        let mos = self.mos();
        let pool = self.view.pool.clone();
        let name = place.working_name(fs);
        let (parent, leaf) = name.rsplit_once('/').ok_or_else(|| Error::Exists(name.clone()))?;
        // All checks come first, including those for the snapshot at the end.
        let parent = tree::dir_of(mos, &pool, parent)?;
        available::check_room(&self.view, NEW_OBJECTS + snapshot::SNAPSHOT_OBJECTS)?;
        if let Place::Clone(origin) | Place::Onto(origin) = place {
            info::info(&self.view, origin)?;
        }
        if *place == Place::Replace && keys::object_of(mos, parent)?.is_some() {
            // The keys stay with the directory, but the received data would be encrypted with others.
            return Err(KeyError::ReceivedOver.into());
        }
        let encryption = match place {
            Place::New | Place::Replace if opening.keys.is_none() => {
                self.judge_encryption(Some(parent), &NewEncryption::default())?
            }
            // A clone has the keys of its origin, and a raw stream brings its own.
            _ => None,
        };
        if let Some(left) = tree::child(mos, parent, leaf)? {
            if leaf != WORKING {
                return Err(Error::Exists(name));
            }
            if partial(mos, left)?.is_some() {
                return Err(ReceiveError::Partial(fs.to_owned()).into());
            }
            // Of a receive that was cut off.
            self.destroy_head_in(left)?;
        }
        match place {
            Place::Clone(origin) | Place::Onto(origin) => self.clone_snapshot(origin, &name, &[]),
            Place::New | Place::Replace => self.create_received(parent, leaf, &name, opening, encryption),
        }
    }

    /// Stores the values of the stream in a new dataset; returns the properties that it cannot have.
    ///
    /// # Errors
    /// Objects of the MOS cannot be read.
    pub fn begin_receive(
        &mut self,
        place: &Place,
        (dir_id, id): (ObjectId, ObjectId),
        opening: &Opening,
        options: &ReceiveOptions,
    ) -> Result<Vec<PropertyRefusal>> {
        let begin = &opening.begin;
        let mos = self.mos();
        let mut phys = mos.dataset(id)?;
        phys.flags |= INCONSISTENT;
        mos.put_dataset(self.tx, id, &phys)?;
        // The next increment must bring large blocks too, even if none has arrived until then.
        let marks = change::marks(mos, id)?;
        for (bit, feature) in
            [(feature::LARGE_BLOCKS, &features::LARGE_BLOCKS), (feature::LARGE_DNODE, &features::LARGE_DNODE)]
        {
            if begin.features & bit != 0 && !marks.contains(feature.guid) {
                self.mark_dataset(id, feature)?;
            }
        }
        // A clone has the marks of its origin until here.
        self.set_redaction(id, opening.redacted_by.as_deref())?;
        if options.resumable {
            self.note_stream(id, opening)?;
        }
        match place {
            Place::New | Place::Clone(_) => self.set_received(dir_id, options, |name| !waits(name)),
            Place::Replace | Place::Onto(_) => Ok(Vec::new()),
        }
    }

    /// Stores the identity of the stream, so that the receive may be resumed.
    fn note_stream(&mut self, id: ObjectId, opening: &Opening) -> Result<()> {
        let begin = &opening.begin;
        self.zapify(id)?;
        let object = self.mos().object(id)?;
        let put =
            |key: &str, value: u64| zap::update(&object, self.tx, key.as_bytes(), &Stored::from_u64(value));
        if begin.fromguid.0 != 0 {
            put(resume::FROMGUID, begin.fromguid.0)?;
        }
        put(resume::TOGUID, begin.toguid.0)?;
        let toname = String::from_utf8_lossy(&begin.toname);
        zap::update(&object, self.tx, resume::TONAME.as_bytes(), &Stored::from_text(&toname))?;
        for (bit, key) in [
            (feature::LARGE_BLOCKS, resume::LARGE_BLOCKS),
            (feature::EMBED_DATA, resume::EMBEDDED),
            (feature::COMPRESSED, resume::COMPRESSED),
            (feature::RAW, resume::RAW),
        ] {
            if begin.features & bit != 0 {
                put(key, 1)?;
            }
        }
        if let Some(guids) = &opening.completes {
            let value = Stored::from_u64s(guids);
            zap::update(&object, self.tx, resume::COMPLETES.as_bytes(), &value)?;
        }
        self.note_progress(id, Progress::START)
    }

    /// Stores the progress of the receive. The data up to this point is on disk.
    pub fn note_progress(&mut self, id: ObjectId, at: Progress) -> Result<()> {
        let object = self.mos().object(id)?;
        for (key, value) in
            [(resume::OBJECT, at.object), (resume::OFFSET, at.offset), (resume::BYTES, at.bytes)]
        {
            zap::update(&object, self.tx, key.as_bytes(), &Stored::from_u64(value))?;
        }
        Ok(())
    }

    fn forget_progress(&mut self, id: ObjectId) -> Result<()> {
        let object = self.mos().object(id)?;
        if object.object_type() != ObjectType::ZAP_METADATA {
            return Ok(());
        }
        for key in resume::ALL {
            zap::discard(&object, self.tx, key.as_bytes())?;
        }
        Ok(())
    }

    /// Destroys a partial receive into `fs`; `false` if there is none.
    pub fn abort_receive(&mut self, fs: &str) -> Result<bool> {
        let mos = self.mos();
        let dir_id = tree::dir_of(mos, &self.view.pool, fs)?;
        let Some(partial) = partial(mos, dir_id)? else { return Ok(false) };
        self.destroy_head_in(partial.dir)?;
        Ok(true)
    }

    fn create_received(
        &mut self,
        parent: ObjectId,
        leaf: &str,
        name: &str,
        opening: &Opening,
        encryption: Option<Judged>,
    ) -> Result<(ObjectId, ObjectId)> {
        let Opening { begin, keys, .. } = opening;
        let mut filesystem = NewFilesystem::plain(&self.mos().host);
        let dir_id = self.create_dir(parent, leaf)?;
        if let Some(keys) = keys {
            // The keys come with the stream; their encryption root is not known here.
            self.create_key_object(dir_id, dir_id, &keys.wrapped, &user_key(keys))?;
            self.set_property(dir_id, "keylocation", Some(&Value::Text("prompt".into())))?;
        }
        filesystem.casesensitivity = u64::from(begin.flags & flag::CASE_INSENSITIVE != 0);
        let os_type = if begin.objset_type == 3 { ObjsetType::Zvol } else { ObjsetType::Zfs };
        // The stream brings all objects.
        let initialise: Initialise = Arc::new(|_, _, _| Ok(()));
        let name = name.to_owned();
        let new = NewHead { sealed: *keys, dir: dir_id, name, os_type, filesystem, initialise };
        let id = self.create_guarded_head(new, encryption, false)?;
        if keys.is_some() {
            self.mark_encrypted(id)?;
        }
        self.count_new_dir(dir_id, parent)?;
        Ok((dir_id, id))
    }

    /// Completes a receive: makes the written data the head and takes the snapshot named in `into`. Returns its full name,
    /// because the file system may have been renamed meanwhile, and the properties that it cannot have.
    pub fn end_receive(
        &mut self,
        working: &Working,
        into: &str,
        opening: &Opening,
        options: &ReceiveOptions,
    ) -> Result<(String, Vec<PropertyRefusal>)> {
        let Opening { begin, keys, .. } = opening;
        let &Working { ref place, dir: dir_id, id } = working;
        let mos = self.mos();
        let (_, leaf) = into.split_once('@').ok_or_else(|| Error::NoDataset(into.to_owned()))?;
        let fs_dir = match place {
            Place::New | Place::Clone(_) => dir_id,
            Place::Replace | Place::Onto(_) => mos.dir(dir_id)?.parent,
        };
        let fs = &tree::name_of(&self.view, fs_dir)?;
        let into = &format!("{fs}@{leaf}");
        let head_id = mos.dir(fs_dir)?.head_dataset;
        // First all that can refuse.
        self.check_end(fs_dir, id, into)?;
        let working = place.working_name(fs);
        if head_id != id {
            self.check_newer(fs_dir, id, options.force)?;
        }
        self.let_go_of(id, &working)?;
        if head_id != id {
            self.let_go_of(head_id, fs)?;
            // The log goes with its blocks, which belong to the old contents of the head.
            self.effects.push(Effect::LogMoved { from: head_id, to: id });
            self.give_up_newer(fs, id)?;
        }
        self.forget_progress(id)?;
        let mut phys = mos.dataset(id)?;
        phys.flags &= !INCONSISTENT;
        mos.put_dataset(self.tx, id, &phys)?;
        if matches!(place, Place::Replace | Place::Onto(_)) {
            self.swap_heads((fs_dir, head_id), (dir_id, id))?;
        }
        self.take_snapshot(into, &[])?;
        let snap_id = mos.dataset(head_id)?.prev_snap;
        let mut snap = mos.dataset(snap_id)?;
        (snap.guid, snap.creation_time) = (begin.toguid, begin.creation_time);
        mos.put_dataset(self.tx, snap_id, &snap)?;
        self.set_received_of_snapshot(snap_id, &options.of_snapshot)?;
        if let Some(keys) = keys {
            self.take_keys(fs_dir, keys)?;
            self.set_iv_set(snap_id, keys.to_iv_set)?;
        }
        if head_id != id {
            self.destroy_head_in(dir_id)?;
        }
        // Limits are compared with the new usage.
        let is_new = matches!(place, Place::New | Place::Clone(_));
        let refused = self.set_received(fs_dir, options, |name| !is_new || waits(name))?;
        Ok((into.clone(), refused))
    }

    /// The sender may have changed its wrapping key since the last raw stream; this stores the newly wrapped keys.
    fn take_keys(&mut self, dir: ObjectId, keys: &KeyData) -> Result<()> {
        let Some(here) = crate::keys::of(self.mos(), dir)? else { return Ok(()) };
        let user_key = user_key(keys);
        if (here.wrapped, here.user_key) == (keys.wrapped, user_key) {
            return Ok(());
        }
        self.rewrap(here.id, here.root, &keys.wrapped, &user_key)
    }

    /// Checks that the received dataset `id` can become the head of `dir` and its snapshot `into`. Both must succeed
    /// together.
    fn check_end(&mut self, dir: ObjectId, id: ObjectId, into: &str) -> Result<()> {
        let mos = self.mos();
        let head_id = mos.dir(dir)?.head_dataset;
        snapshot::may_snapshot_received(mos, head_id, into)?;
        let (before, after) = (promises::own(mos, dir, head_id)?, mos.dataset(id)?);
        if after.prev_snap_txg == self.txg() {
            return Err(Error::SameTxg);
        }
        // The reservation is kept for a head without blocks of its own, beside the received data.
        let promised = |unique: u64| before.refreservation.saturating_sub(unique);
        let swapped = promised(after.unique_bytes).saturating_sub(before.unused());
        let more = swapped.saturating_add(before.refreservation.min(after.unique_bytes));
        if more > available::dir_available(&self.view, dir)? {
            return Err(Error::NoSpace);
        }
        available::check_room(&self.view, snapshot::SNAPSHOT_OBJECTS)?;
        if head_id == id {
            return Ok(());
        }
        // The rest of this is the cost of destroying the old head.
        let head = mos.dataset(head_id)?;
        self.check_freeable(&head.bp, after.prev_snap_txg)?;
        self.check_deferred(after.prev_snap, 1)
    }

    /// Checks that the head of `dir` is unchanged since the base of `working`, or may be replaced by force.
    fn check_newer(&self, dir: ObjectId, working: ObjectId, force: bool) -> Result<()> {
        let mos = self.mos();
        let fs = tree::name_of(&self.view, dir)?;
        let head_id = mos.dir(dir)?.head_dataset;
        let head = mos.dataset(head_id)?;
        let working = mos.dataset(working)?;
        let from = working.prev_snap;
        if !force && (head.prev_snap != from || info::is_modified(&self.view, &head)?) {
            return Err(ReceiveError::Modified(fs).into());
        }
        for (leaf, mark) in bookmark::all(mos, head_id)? {
            if mark.creation_txg > working.prev_snap_txg {
                self.check_list_unused(&mark, &format!("{fs}#{leaf}"))?;
            }
        }
        let mut at = head;
        while at.prev_snap != from && at.prev_snap.0 != 0 {
            let id = at.prev_snap;
            let snap = mos.earlier(&at)?;
            if snap.dir != dir {
                return Err(ReceiveError::NotSource(fs).into());
            }
            let full = format!("{fs}@{}", self.snapshot_leaf(&snap, id)?);
            snapshot::may_destroy(&self.view, &full, self.is_used)?;
            at = snap;
        }
        Ok(())
    }

    /// Destroys snapshots and bookmarks of `fs` that are newer than the base of `working`.
    fn give_up_newer(&mut self, fs: &str, working: ObjectId) -> Result<()> {
        let mos = self.mos();
        let dir = tree::dir_of(mos, &self.view.pool, fs)?;
        let head = mos.dir(dir)?.head_dataset;
        let (from, since) = {
            let working = mos.dataset(working)?;
            (working.prev_snap, working.prev_snap_txg)
        };
        loop {
            let id = mos.dataset(head)?.prev_snap;
            let snap = mos.dataset(id)?;
            if id == from || snap.dir != dir {
                break;
            }
            self.destroy_snapshot(&format!("{fs}@{}", self.snapshot_leaf(&snap, id)?), false)?;
        }
        for (leaf, mark) in bookmark::all(mos, head)? {
            if mark.creation_txg > since {
                self.destroy_bookmark(&format!("{fs}#{leaf}"))?;
            }
        }
        Ok(())
    }

    /// Exchanges the contents of two heads of the same snapshot.
    fn swap_heads(
        &mut self,
        (head_dir, head_id): (ObjectId, ObjectId),
        (other_dir, other_id): (ObjectId, ObjectId),
    ) -> Result<()> {
        let mos = self.mos();
        let (mut head, mut other) = (mos.dataset(head_id)?, mos.dataset(other_id)?);
        if head.prev_snap != other.prev_snap {
            return Err(Error::DatasetBusy(tree::name_of(&self.view, head_dir)?));
        }
        // Each lists the blocks that the other has from now on.
        self.drop_livelist(head_dir)?;
        self.drop_livelist(other_dir)?;
        let mut prev = mos.dataset(head.prev_snap)?;
        if prev.next_snap == head_id {
            let alone = deadlist::space_between(mos, other.deadlist, prev.prev_snap_txg, Txg(u64::MAX))?;
            prev.unique_bytes = alone.used as u64;
            mos.put_dataset(self.tx, head.prev_snap, &prev)?;
        }
        let held = |phys: &format::dsl_dataset::DslDataset| -> Result<Sizes> {
            let dead = deadlist::header(mos, phys.deadlist)?;
            Ok(Sizes {
                used: phys.referenced_bytes as i64 + dead.used,
                comp: phys.compressed_bytes as i64 + dead.compressed,
                uncomp: phys.uncompressed_bytes as i64 + dead.uncompressed,
            })
        };
        let more = held(&other)? - held(&head)?;
        add_space(mos, self.tx, head_dir, Category::Head, more)?;
        add_space(mos, self.tx, other_dir, Category::Head, -more)?;
        let origin_txg = mos.origin_txg(mos.dir(head_dir)?.origin)?;
        let kept = |list| deadlist::space_between(mos, list, origin_txg, Txg(u64::MAX));
        let by_snapshots = kept(other.deadlist)?.used - kept(head.deadlist)?.used;
        move_space(
            mos,
            self.tx,
            head_dir,
            Shift { from: Category::Head, to: Category::Snap, used: by_snapshots },
        )?;
        self.keep_promise(head_dir, head.unique_bytes, other.unique_bytes)?;
        self.effects.push(Effect::Swapped(head_id, other_id));
        std::mem::swap(&mut head.bp, &mut other.bp);
        std::mem::swap(&mut head.referenced_bytes, &mut other.referenced_bytes);
        std::mem::swap(&mut head.compressed_bytes, &mut other.compressed_bytes);
        std::mem::swap(&mut head.uncompressed_bytes, &mut other.uncompressed_bytes);
        std::mem::swap(&mut head.unique_bytes, &mut other.unique_bytes);
        std::mem::swap(&mut head.deadlist, &mut other.deadlist);
        head.flags = head.flags & !CASE_INSENSITIVE | other.flags & CASE_INSENSITIVE;
        mos.put_dataset(self.tx, head_id, &head)?;
        mos.put_dataset(self.tx, other_id, &other)?;
        self.bookmarks_follow(head_id, head.prev_snap)?;
        let known = change::marks(mos, head_id)?;
        for mark in change::marks(mos, other_id)?.difference(&known) {
            let feature = features::by_guid(mark).filter(|feature| feature.per_dataset);
            if let Some(feature) = feature.filter(|feature| feature.guid != features::REDACTED_DATASETS.guid)
            {
                self.mark_dataset(head_id, feature)?;
            }
        }
        self.set_redaction(head_id, redaction::of(mos, other_id)?.as_deref())
    }
}
