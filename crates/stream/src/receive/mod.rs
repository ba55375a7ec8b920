//! `zfs receive`: makes a snapshot and its file system or volume from a stream.
//!
//! Everything is written into a dataset that is marked inconsistent: a new one, or the clone `%recv` of the newest snapshot
//! of an existing one. At the end of a verified stream, one txg makes it the head and takes the snapshot. Until then the
//! existing dataset is not changed, and a failure destroys the new part.
//! Source: docs/format/09-send-stream.md §8.

mod apply;
mod heal;
mod incoming;
mod objects;
mod package;
mod replication;
mod resume;
mod sealed;

use std::io::Read;
use std::sync::Arc;

use format::dsl_dataset::INCONSISTENT;
use format::features;
use format::stream::{Begin, feature};
use format::{Guid, NvList, ObjectId};

use pool::props::{DatasetKind, Value};
use pool::{
    Dataset, DatasetInfo, Error, FeatureState, Opening, Place, Pool, Progress, PropertyRefusal, ReceiveError,
    ReceiveOptions, Result, Working,
};

use apply::{Apply, prepare};

pub use heal::Healing;
pub use incoming::Incoming;
pub use package::{
    Destination, holds_of, is_key_root_of, parent_snapshot_of, properties_of, snapshot_properties_of,
};
pub use replication::{Change, Replica};

/// Records that the workers process at once, per worker.
const WINDOW_PER_WORKER: usize = 4;
/// Features of streams that this build receives.
const KNOWN: u64 = feature::SA_SPILL
    | feature::EMBED_DATA
    | feature::LZ4
    | feature::LARGE_BLOCKS
    | feature::COMPRESSED
    | feature::LARGE_DNODE
    | feature::ZSTD
    | feature::HOLDS
    | feature::RESUMING
    | feature::REDACTED
    | feature::RAW
    | feature::SWITCH_TO_LARGE_BLOCKS;

/// The feature that a pool must have enabled for each feature of a stream. The other features of streams bring nothing
/// into the pool that needs one.
const POOL_FEATURES: [(u64, &features::Feature); 7] = [
    (feature::RAW, &features::ENCRYPTION),
    (feature::RAW, &features::BOOKMARK_V2),
    (feature::LZ4, &features::LZ4_COMPRESS),
    (feature::ZSTD, &features::ZSTD_COMPRESS),
    (feature::EMBED_DATA, &features::EMBEDDED_DATA),
    (feature::LARGE_BLOCKS, &features::LARGE_BLOCKS),
    (feature::LARGE_DNODE, &features::LARGE_DNODE),
];

/// The result of a receive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// `pool/fs@snap`.
    pub snapshot: String,
    /// The snapshot existed already; the stream was skipped.
    pub skipped: bool,
    /// Received or given properties that the dataset cannot have here.
    pub refused: Vec<PropertyRefusal>,
}

/// Names of stream features for refusals.
fn check_features(begin: &Begin) -> Result<(), ReceiveError> {
    let unknown = begin.features & !KNOWN;
    let named = [
        (feature::DEDUP | feature::DEDUP_PROPS, "deduplicated streams"),
        (u64::MAX, "a stream with features that this version of cenote does not know"),
    ];
    const SEALED: u64 = feature::RAW | feature::REDACTED;
    if begin.features & SEALED == SEALED {
        return Err(ReceiveError::Unsupported("raw streams that are redacted"));
    }
    match named.into_iter().find(|(bits, _)| unknown & bits != 0) {
        Some((_, what)) => Err(ReceiveError::Unsupported(what)),
        None => Ok(()),
    }
}

/// A receive whose target exists and whose records follow.
#[must_use = "the stream is to be taken in"]
pub struct Receiving<'a> {
    arrived: Arrived<'a>,
    /// Its progress so far; `None`: the stream is skipped.
    from: Option<Progress>,
}

impl<'a> Receiving<'a> {
    /// Receives the stream to its end into the new dataset. The pool may change meanwhile; the new dataset is open and so
    /// cannot be destroyed.
    ///
    /// # Errors
    /// As [`Receiver::receive`].
    pub fn take_in<R: Read>(self, stream: &mut Incoming<R>) -> Result<Arrived<'a>> {
        let Receiving { arrived, from } = self;
        let Some(progress) = from else {
            stream.skip()?;
            return Ok(arrived);
        };
        let Arrived { receiver, opening, options, held, .. } = &arrived;
        let (_, (dir, _), dataset) = held.as_ref().expect("a stream that is taken in has a place");
        match receiver.fill(stream, opening, dataset, progress, options.resumable) {
            Ok(()) => Ok(arrived),
            Err(error) if options.resumable => Err(error),
            // A resumed receive can be resumed again, unless the caller does not want it.
            Err(error) => {
                let dir = *dir;
                let Arrived { receiver, held, .. } = arrived;
                drop(held);
                Err(receiver.give_up(dir, error))
            }
        }
    }
}

/// A complete and verified receive that is not the head yet.
#[must_use = "what arrived is to be put in place, or given up"]
pub struct Arrived<'a> {
    receiver: Receiver<'a>,
    into: String,
    opening: Opening,
    options: ReceiveOptions,
    /// The dataset, held open so that it cannot be destroyed; `None` if its snapshot existed already, or for a dry run.
    held: Option<(Place, (ObjectId, ObjectId), Arc<Dataset>)>,
    skipped: bool,
    refused: Vec<PropertyRefusal>,
}

impl Arrived<'_> {
    /// The file system or volume whose contents will be replaced, if there is one.
    #[must_use]
    pub fn replaces(&self) -> Option<&str> {
        let (place, ..) = self.held.as_ref()?;
        matches!(place, Place::Replace | Place::Onto(_))
            .then(|| self.into.split('@').next().unwrap_or(&self.into))
    }

    /// The BEGIN record of the stream.
    #[must_use]
    pub fn begin(&self) -> &Begin {
        &self.opening.begin
    }

    /// For an incremental receive: the new contents, open for reading, and the snapshot on which it is based. The caller
    /// drops it before [`Arrived::put_in_place`].
    #[must_use]
    pub fn increment(&self) -> Option<(Arc<Dataset>, &str)> {
        match &self.held {
            Some((Place::Onto(snapshot), _, dataset)) => Some((dataset.clone(), snapshot)),
            _ => None,
        }
    }

    /// Makes it the head of its file system or volume, and takes the snapshot. The old head must not be open.
    ///
    /// # Errors
    /// [`Error::DatasetBusy`]; [`ReceiveError::Modified`] if the dataset changed meanwhile. The received data is
    /// then destroyed, or kept for a resume.
    pub fn put_in_place(self) -> Result<Received> {
        let Arrived { receiver, into, opening, options, held, skipped, mut refused } = self;
        let Some((place, ids, dataset)) = held else {
            return Ok(Received { snapshot: into, skipped, refused });
        };
        drop(dataset);
        let resumable = options.resumable;
        let working = Working { place, dir: ids.0, id: ids.1 };
        let ended = receiver.pool.end_receive(working, into, opening, options);
        let (snapshot, more) =
            ended.map_err(|error| if resumable { error } else { receiver.give_up(ids.0, error) })?;
        refused.extend(more);
        Ok(Received { snapshot, skipped, refused })
    }

    /// Aborts the receive. The received data is kept only if it may be resumed.
    pub fn give_up(self) {
        if let Some((_, (dir, _), dataset)) = self.held.filter(|_| !self.options.resumable) {
            drop(dataset);
            let error = Error::DatasetBusy(self.into.clone());
            self.receiver.give_up(dir, error);
        }
    }
}

/// Receives streams into a pool.
#[derive(Clone, Copy)]
pub struct Receiver<'a> {
    pool: &'a Pool,
}

impl<'a> Receiver<'a> {
    /// Receives into `pool`.
    #[must_use]
    pub const fn new(pool: &'a Pool) -> Receiver<'a> {
        Receiver { pool }
    }

    /// Receives the stream that `begin` and its list opened as the snapshot `into` (`pool/fs@snap`), to its end.
    ///
    /// # Errors
    /// [`ReceiveError`]; the pool is then unchanged, except for data that may be resumed.
    pub fn receive<R: Read>(
        &self,
        stream: &mut Incoming<R>,
        head: (&Begin, &NvList),
        into: &str,
        options: &ReceiveOptions,
    ) -> Result<Received> {
        self.begin_receive(head, into, options)?.take_in(stream)?.put_in_place()
    }

    /// Decides the target of a stream, and makes it.
    ///
    /// # Errors
    /// As [`Receiver::receive`].
    pub fn begin_receive(
        &self,
        (begin, list): (&Begin, &NvList),
        into: &str,
        options: &ReceiveOptions,
    ) -> Result<Receiving<'a>> {
        check_features(begin)?;
        let opening = Opening::of(begin, list)?;
        let receiving = |held, from, refused: Option<Vec<_>>| Receiving {
            arrived: Arrived {
                receiver: *self,
                into: into.to_owned(),
                opening: opening.clone(),
                options: options.clone(),
                held,
                skipped: refused.is_none(),
                refused: refused.unwrap_or_default(),
            },
            from,
        };
        pool::check_new_name(into, DatasetKind::Snapshot)?;
        let (fs, _) = into.split_once('@').ok_or_else(|| Error::NoDataset(into.to_owned()))?;
        let resumes = begin.features & feature::RESUMING != 0;
        let mut progress = Progress::START;
        // The state on disk shows whether the dataset was changed.
        self.pool.sync()?;
        let (place, ids) = if resumes {
            let (place, ids, at) = self.resumed((begin, list), fs, options.force)?;
            progress = at;
            (place, Some(ids))
        } else {
            let Some(place) = self.place_for(&opening, into, options)? else {
                return Ok(receiving(None, None, None));
            };
            self.check_protection(&opening, &place, fs)?;
            (place, None)
        };
        self.check_can_hold(&opening, options)?;
        if options.dry_run {
            return Ok(receiving(None, None, Some(Vec::new())));
        }
        let (ids, refused) = match ids {
            Some(ids) => (ids, Vec::new()),
            None => self.pool.make_place(&place, fs, &opening, options)?,
        };
        let dataset = match self.open_received(&opening, ids, place.working_name(fs)) {
            Ok(dataset) => dataset,
            Err(error) if options.resumable => return Err(error),
            Err(error) => return Err(self.give_up(ids.0, error)),
        };
        Ok(receiving(Some((place, ids, dataset)), Some(progress), Some(refused)))
    }

    /// Opens the target dataset of a stream, exclusively.
    fn open_received(
        &self,
        Opening { begin, keys, .. }: &Opening,
        (dir_id, id): (ObjectId, ObjectId),
        name: String,
    ) -> Result<Arc<Dataset>> {
        let info = {
            let mos = self.pool.reading();
            let kind = match begin.objset_type {
                3 => DatasetKind::Volume,
                _ => DatasetKind::Filesystem,
            };
            DatasetInfo { name, kind, dir_id, id, dir: mos.dir(dir_id)?, phys: mos.dataset(id)?, mark: None }
        };
        if let Some(keys) = keys {
            let dataset = self.pool.open_to_receive(&info)?;
            dataset.objset().arrive_sealed(keys)?;
            return Ok(dataset);
        }
        let dataset = self.pool.open_info(&info)?;
        dataset.lift_read_only();
        Ok(dataset)
    }

    /// Destroys the partial receive; returns `error`.
    fn give_up(&self, dir: ObjectId, error: Error) -> Error {
        // The first error counts. If the partial receive cannot be destroyed now, the next attempt destroys it.
        if let Err(error) = self.pool.remove_place(dir) {
            tracing::warn!(%error, "what was received in part is left behind");
        }
        error
    }

    /// Applies all records of the stream to the new dataset and waits until they are on disk.
    fn fill<R: Read>(
        &self,
        stream: &mut Incoming<R>,
        opening: &Opening,
        dataset: &Dataset,
        progress: Progress,
        resumable: bool,
    ) -> Result<()> {
        let (id, is_raw) = (dataset.id(), opening.keys.is_some());
        let mut apply = Apply::new(dataset, &opening.begin, progress);
        let mut noted = progress;
        let workers = self.pool.workers();
        let filled: Result<()> = workers.map_ordered(
            storage::Caller::Works,
            stream.records(),
            workers.count() * WINDOW_PER_WORKER,
            |next| next.and_then(|(record, payload)| prepare(record, payload, is_raw)),
            |ready| {
                apply.put(ready?)?;
                if resumable && apply.progress.bytes - noted.bytes > resume::NOTED_EVERY {
                    noted = apply.progress;
                    self.pool.note_progress(id, noted)?;
                }
                Ok(())
            },
        );
        if resumable && apply.progress != noted {
            // The progress is stored even if a later step fails.
            self.pool.note_progress(id, apply.progress)?;
        }
        filled?;
        if !apply.ended {
            return Err(ReceiveError::Truncated.into());
        }
        self.pool.sync()
    }

    /// Whether the pool's features allow the contents of the stream.
    fn check_can_hold(&self, opening: &Opening, options: &ReceiveOptions) -> Result<()> {
        if !options.dry_run {
            self.pool.check_writable()?;
        }
        let info = self.pool.info();
        for (bit, feature) in POOL_FEATURES {
            if opening.begin.features & bit != 0 && info.feature(feature) == FeatureState::Disabled {
                return Err(ReceiveError::Feature(feature.name).into());
            }
        }
        let redacted = &features::REDACTED_DATASETS;
        if opening.redacted_by.is_some() && info.feature(redacted) == FeatureState::Disabled {
            return Err(ReceiveError::Feature(redacted.name).into());
        }
        let counted = |(name, _): &(String, Value)| name == "filesystem_limit" || name == "snapshot_limit";
        if info.feature(&features::FILESYSTEM_LIMITS) == FeatureState::Disabled
            && options.local.iter().chain(options.received.iter().flatten()).any(counted)
        {
            return Err(Error::Unsupported("limits of file systems and snapshots in this pool".into()));
        }
        Ok(())
    }

    /// The target of the stream; `None` if its snapshot exists already.
    fn place_for(&self, opening: &Opening, into: &str, options: &ReceiveOptions) -> Result<Option<Place>> {
        let begin = &opening.begin;
        let force = options.force;
        let (fs, _) = into.split_once('@').ok_or_else(|| Error::NoDataset(into.to_owned()))?;
        if !matches!(begin.objset_type, 2 | 3) {
            return Err(ReceiveError::Invalid("kind of dataset").into());
        }
        let existing = match self.pool.dataset(fs) {
            Ok(info) => Some(info),
            Err(Error::NoDataset(_)) => None,
            Err(other) => return Err(other),
        };
        let Some(head) = existing else {
            return self.place_for_new(opening, fs, options.origin.as_deref()).map(Some);
        };
        let mut snaps = self.pool.list(fs, Some(1), true)?;
        snaps.retain(|info| info.is_snapshot() && info.dir_id == head.dir_id);
        if head.phys.flags & INCONSISTENT != 0 && self.pool.reading().partial(head.dir_id)?.is_some() {
            return Err(ReceiveError::Partial(fs.to_owned()).into());
        }
        if begin.fromguid == Guid(0) {
            return match snaps.first() {
                _ if !force => Err(ReceiveError::Exists(fs.to_owned()).into()),
                Some(snap) => Err(ReceiveError::HasSnapshots(snap.name.clone()).into()),
                None if head.dir.parent.0 == 0 && begin.objset_type == 3 => {
                    Err(ReceiveError::RootVolume(fs.to_owned()).into())
                }
                None => self.check_replaceable(&head).map(|()| Some(Place::Replace)),
            };
        }
        if let Some(same) = snaps.iter().find(|snap| snap.name == into) {
            return if same.phys.guid == begin.toguid {
                Ok(None)
            } else {
                Err(Error::Exists(into.to_owned()))
            };
        }
        let source = snaps.iter().position(|snap| snap.phys.guid == begin.fromguid);
        let newest = match source {
            None => return Err(ReceiveError::NotSource(fs.to_owned()).into()),
            Some(at) if at + 1 < snaps.len() && !force => {
                return Err(ReceiveError::Modified(fs.to_owned()).into());
            }
            Some(at) => {
                let reading = self.pool.reading();
                let newer = snaps[at + 1..].iter();
                newer.map(|snap| &snap.name).try_for_each(|name| reading.may_destroy(name))?;
                &snaps[at]
            }
        };
        self.check_replaceable(&head)?;
        self.check_large_blocks(begin, newest)?;
        self.check_redaction(opening, newest)?;
        if !force && self.pool.reading().is_modified(&head.phys)? {
            return Err(ReceiveError::Modified(fs.to_owned()).into());
        }
        Ok(Some(Place::Onto(newest.name.clone())))
    }

    fn place_for_new(&self, opening: &Opening, fs: &str, origin: Option<&str>) -> Result<Place> {
        let begin = &opening.begin;
        let (parent, _) = fs.rsplit_once('/').ok_or_else(|| Error::NoDataset(fs.to_owned()))?;
        let parent = self.pool.dataset(parent)?;
        if parent.kind != DatasetKind::Filesystem {
            return Err(Error::ParentKind);
        }
        if begin.fromguid == Guid(0) {
            return match origin {
                None => Ok(Place::New),
                Some(_) => Err(ReceiveError::Unsupported("a full stream as a clone").into()),
            };
        }
        let is_source = |info: &DatasetInfo| info.is_snapshot() && info.phys.guid == begin.fromguid;
        let fits =
            |info: &DatasetInfo| is_source(info) && self.fits_redaction(opening, info).unwrap_or(false);
        let origin = match origin {
            Some(origin) => Some(self.pool.dataset(origin)?)
                .filter(is_source)
                .ok_or_else(|| ReceiveError::NotSource(fs.to_owned()))?,
            None if begin.flags & format::stream::flag::CLONE == 0 => {
                return Err(ReceiveError::Missing(fs.to_owned()).into());
            }
            None => {
                // Several copies of the snapshot may be here, redacted in other ways.
                let list = self.pool.list(&self.pool.name(), None, true)?;
                let found =
                    list.iter().find(|info| fits(info)).or_else(|| list.iter().find(|info| is_source(info)));
                let missing = || ReceiveError::NoOrigin { name: fs.to_owned(), guid: begin.fromguid };
                found.cloned().ok_or_else(missing)?
            }
        };
        self.check_large_blocks(begin, &origin)?;
        self.check_redaction(opening, &origin)?;
        Ok(Place::Clone(origin.name))
    }

    /// Refuses an increment without large blocks onto a snapshot that may have them: the sender splits its large blocks,
    /// so the stream does not say whether the blocks here are still the sender's.
    fn check_large_blocks(&self, begin: &Begin, source: &DatasetInfo) -> Result<()> {
        let marks = self.pool.marks_of(source.id)?;
        if marks.contains(features::LARGE_BLOCKS.guid) && begin.features & feature::LARGE_BLOCKS == 0 {
            return Err(ReceiveError::LargeBlocks.into());
        }
        Ok(())
    }

    /// Whether an increment has the blocks that a redacted snapshot lacks, or is redacted in the same way.
    fn fits_redaction(&self, opening: &Opening, source: &DatasetInfo) -> Result<bool> {
        let Some(here) = self.pool.reading().redaction(source.id)? else { return Ok(true) };
        let are_here = |guids: &[u64]| guids.iter().all(|guid| here.contains(guid));
        Ok(match (&opening.completes, &opening.redacted_by) {
            (Some(from), _) => are_here(from),
            (None, Some(to)) => are_here(to),
            // A redaction snapshot changed all blocks that are missing here.
            (None, None) => here.contains(&opening.begin.toguid.0),
        })
    }

    fn check_redaction(&self, opening: &Opening, source: &DatasetInfo) -> Result<()> {
        match self.fits_redaction(opening, source)? {
            true => Ok(()),
            false => Err(ReceiveError::OtherRedaction.into()),
        }
    }

    /// Snapshots to destroy at the end must be destroyable.
    fn check_replaceable(&self, head: &DatasetInfo) -> Result<()> {
        let reading = self.pool.reading();
        if reading.has_log_to_replay(head.id) {
            return Err(Error::Unsupported("receiving into a dataset with an intent log to replay".into()));
        }
        match reading.partial(head.dir_id)? {
            Some(_) => Err(ReceiveError::Partial(head.name.clone()).into()),
            None => Ok(()),
        }
    }

    /// Whether a dataset exists here for an incremental stream.
    #[must_use]
    pub fn can_receive_somewhere(&self, begin: &Begin, into: &str) -> bool {
        let fs = into.split('@').next().unwrap_or(into);
        let clones = begin.flags & format::stream::flag::CLONE != 0;
        begin.fromguid == Guid(0) || clones || self.pool.dataset(fs).is_ok()
    }
}
