//! Finding datasets by name, and what is known about them.
//!
//! Source: docs/format/06-mos-dsl.md §4–§6, §8.4, §8.5.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use dmu::zap;
use format::bookmark::Bookmark;
use format::dsl_dataset::{self, DslDataset};
use format::dsl_dir::DslDir;
use format::objset::ObjsetType;
use format::{BlockPtr, Guid, ObjectId, Txg};

use super::promises::Own;
use super::receive::{self, resume};
use super::{bookmark, limits, properties};
use crate::dataset::Dataset;
use crate::mos::Mos;
use crate::pool::Inner;
use crate::props::{DatasetKind, names};
use crate::tx::Reach;
use crate::{Error, Result, ResumeToken, SendFlags};

/// Deepest nesting of datasets followed.
pub(crate) const DEPTH_MAX: usize = 64;

/// A dataset as the DSL describes it.
#[derive(Clone, Debug)]
pub struct DatasetInfo {
    /// Full name.
    pub name: String,
    /// File system, volume or snapshot.
    pub kind: DatasetKind,
    /// The DSL directory object.
    pub dir_id: ObjectId,
    /// The DSL dataset object.
    pub id: ObjectId,
    /// The directory (of a snapshot: that of its file system).
    pub dir: DslDir,
    /// The dataset; of a bookmark: that of its file system, with what the bookmark says of its snapshot.
    pub phys: DslDataset,
    /// What a bookmark says, if it is one.
    pub mark: Option<Bookmark>,
}

impl DatasetInfo {
    /// The snapshot's name after the `@`, if it is one.
    #[must_use]
    pub fn snapshot_name(&self) -> Option<&str> {
        self.name.split_once('@').map(|(_, snap)| snap)
    }

    /// Whether it holds part of a stream only, or was about to be destroyed.
    #[must_use]
    pub fn is_unfinished(&self) -> bool {
        self.phys.flags & dsl_dataset::INCONSISTENT != 0
    }

    /// Whether it is a bookmark.
    #[must_use]
    pub fn is_bookmark(&self) -> bool {
        self.kind == DatasetKind::Bookmark
    }

    /// Whether it is a snapshot.
    #[must_use]
    pub fn is_snapshot(&self) -> bool {
        self.kind == DatasetKind::Snapshot
    }
}

/// The root directory.
pub(crate) fn root_dir(mos: &Mos) -> Result<ObjectId> {
    mos.need("root_dataset")
}

/// The directory that the MOS itself is charged to.
pub(crate) fn mos_dir(mos: &Mos) -> Result<Option<ObjectId>> {
    let Some(root) = mos.directory_object("root_dataset")? else { return Ok(None) };
    child(mos, root, "$MOS")
}

/// The directory called `name` below `dir`.
pub(crate) fn child(mos: &Mos, dir: ObjectId, name: &str) -> Result<Option<ObjectId>> {
    let children = mos.object(mos.dir(dir)?.child_dir_zap)?;
    Ok(zap::lookup_u64(&children, name.as_bytes())?.map(ObjectId))
}

/// Names and directories below `dir`, by name; the special ones left out.
pub(crate) fn children(mos: &Mos, dir: ObjectId) -> Result<Vec<(String, ObjectId)>> {
    let zap_id = mos.dir(dir)?.child_dir_zap;
    let mut found = Vec::new();
    for entry in zap::entries(&*mos.object(zap_id)?) {
        let entry = entry?;
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        if let Some(id) = entry.number().filter(|_| !name.starts_with(['$', '%'])) {
            found.push((name, ObjectId(id)));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// The directory of the file system or volume `name`.
pub(crate) fn dir_of(mos: &Mos, pool: &str, name: &str) -> Result<ObjectId> {
    let missing = || Error::NoDataset(name.to_owned());
    let mut parts = name.split('/');
    if parts.next() != Some(pool) {
        return Err(missing());
    }
    let mut dir = root_dir(mos)?;
    for part in parts {
        if part.starts_with(['$', '%']) {
            return Err(missing());
        }
        dir = child(mos, dir, part)?.ok_or_else(missing)?;
    }
    Ok(dir)
}

/// Everything about the dataset `name` (`pool/fs`, `pool/fs@snap` or `pool/fs#mark`).
pub(crate) fn info(inner: &Inner, name: &str) -> Result<DatasetInfo> {
    if name.contains('#') {
        return bookmark(inner, name);
    }
    let mos = &inner.mos;
    let (head, snapshot) = match name.split_once('@') {
        Some((head, snap)) => (head, Some(snap)),
        None => (name, None),
    };
    let missing = || Error::NoDataset(name.to_owned());
    let dir_id = dir_of(mos, &inner.name(), head).map_err(|error| match error {
        Error::NoDataset(_) => missing(),
        other => other,
    })?;
    let dir = mos.dir(dir_id)?;
    let mut id = dir.head_dataset;
    if let Some(snapshot) = snapshot {
        let names = mos.object(mos.dataset(id)?.snapnames_zap)?;
        id = zap::lookup_u64(&names, snapshot.as_bytes())?.map(ObjectId).ok_or_else(missing)?;
    }
    describe(inner, name.to_owned(), dir_id, dir, id)
}

/// The bookmark `name` (`pool/fs#mark`).
pub(crate) fn bookmark(inner: &Inner, name: &str) -> Result<DatasetInfo> {
    let missing = || Error::NoDataset(name.to_owned());
    let (fs, leaf) = name.split_once('#').ok_or_else(missing)?;
    let head = info(inner, fs).map_err(|error| match error {
        Error::NoDataset(_) => missing(),
        other => other,
    })?;
    let mark = bookmark::one(&inner.mos, head.id, leaf)?.ok_or_else(missing)?;
    Ok(describe_mark(&head, leaf, mark))
}

/// The bookmarks of the head `fs`, oldest first. `report` is told of names that none may have.
pub(crate) fn bookmarks(
    inner: &Inner,
    fs: &str,
    report: &mut dyn FnMut(String, Error),
) -> Result<Vec<DatasetInfo>> {
    let head = info(inner, fs)?;
    let mut found = Vec::new();
    for (leaf, mark) in bookmark::all(&inner.mos, head.id)? {
        match full_name(&head.name, '#', leaf.as_bytes()) {
            Ok(_) => found.push(describe_mark(&head, &leaf, mark)),
            Err(error) => report(head.name.clone(), error),
        }
    }
    Ok(found)
}

fn describe_mark(head: &DatasetInfo, leaf: &str, mark: Bookmark) -> DatasetInfo {
    let sizes = mark.v2.unwrap_or_default();
    let phys = DslDataset {
        guid: mark.guid,
        creation_txg: mark.creation_txg,
        creation_time: mark.creation_time,
        referenced_bytes: sizes.referenced_bytes,
        compressed_bytes: sizes.compressed_bytes,
        uncompressed_bytes: sizes.uncompressed_bytes,
        ..head.phys
    };
    let name = format!("{}#{leaf}", head.name);
    DatasetInfo { name, kind: DatasetKind::Bookmark, phys, mark: Some(mark), ..head.clone() }
}

/// The snapshot `name` (`pool/fs@snap`).
pub(crate) fn snapshot(mos: &Mos, pool: &str, name: &str) -> Result<ObjectId> {
    let missing = || Error::NoDataset(name.to_owned());
    let (fs, leaf) = name.split_once('@').ok_or_else(missing)?;
    let head = mos.dir(dir_of(mos, pool, fs)?)?.head_dataset;
    let names = mos.object(mos.dataset(head)?.snapnames_zap)?;
    zap::lookup_u64(&names, leaf.as_bytes())?.map(ObjectId).ok_or_else(missing)
}

/// Objects of the DSL that a snapshot is taken to need.
pub(crate) const SNAPSHOT_OBJECTS: u64 = 3;

/// Whether the snapshot `name` can be taken in `txg`.
pub(crate) fn may_snapshot(inner: &Inner, name: &str, txg: Txg) -> Result<()> {
    let (fs, leaf) = name.split_once('@').ok_or_else(|| Error::NoDataset(name.to_owned()))?;
    let info = info(inner, fs)?;
    let head = &info.phys;
    if zap::lookup(&*inner.mos.object(head.snapnames_zap)?, leaf.as_bytes())?.is_some() {
        return Err(Error::Exists(name.to_owned()));
    }
    if head.flags & dsl_dataset::INCONSISTENT != 0 {
        return Err(Error::DatasetBusy(fs.to_owned()));
    }
    limits::check_room(inner, SNAPSHOT_OBJECTS)?;
    // What is the head's alone will be needed twice if a reservation is to keep its promise.
    let own = own(&inner.mos, info.dir_id, info.id)?;
    if own.unique.min(own.refreservation) > dir_available(inner, info.dir_id)? {
        return Err(Error::NoSpace);
    }
    // Blocks are told apart by their txg: two snapshots of one head in one txg cannot be.
    if head.prev_snap_txg == txg { Err(Error::SameTxg) } else { Ok(()) }
}

/// Heads that nobody finished: of a receive or a destroy that was cut off. Those that hold a receive that could go
/// on are left alone.
pub(crate) fn unfinished(inner: &Inner) -> Result<Vec<(String, ObjectId)>> {
    let mos = &inner.mos;
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    let mut queue = vec![(inner.name(), root_dir(mos)?, 0)];
    while let Some((name, dir_id, level)) = queue.pop() {
        check_place(&mut seen, dir_id, level)?;
        let dir = mos.dir(dir_id)?;
        for entry in zap::entries(&*mos.object(dir.child_dir_zap)?) {
            let entry = entry?;
            let child = String::from_utf8_lossy(&entry.name).into_owned();
            if let Some(id) = entry.number().filter(|_| !child.starts_with('$')) {
                queue.push((format!("{name}/{child}"), ObjectId(id), level + 1));
            }
        }
        if dir.head_dataset.0 != 0 && is_unfinished(mos, dir.head_dataset)? {
            found.push((name, dir_id));
        }
    }
    Ok(found)
}

/// What was received in part, and may go on.
pub struct Partial {
    /// The directory of the dataset that holds it.
    pub dir: ObjectId,
    /// How far it got.
    pub token: ResumeToken,
}

/// What was received in part for the head of `dir`: into itself, or beside it.
pub(crate) fn partial(mos: &Mos, dir: ObjectId) -> Result<Option<Partial>> {
    for dir in [child(mos, dir, receive::WORKING)?, Some(dir)].into_iter().flatten() {
        let head = mos.dir(dir)?.head_dataset;
        let object = mos.object(head)?;
        if object.object_type() != format::ObjectType::ZAP_METADATA {
            continue;
        }
        let number = |key: &str| zap::lookup_u64(&object, key.as_bytes());
        let Some(toguid) = number(resume::TOGUID)? else { continue };
        let is_set = |key: &str| -> Result<bool> { Ok(zap::lookup(&object, key.as_bytes())?.is_some()) };
        let toname = zap::lookup(&object, resume::TONAME.as_bytes())?;
        let toname = toname.as_ref().and_then(|name| name.as_text()).unwrap_or_default().to_owned();
        let token = ResumeToken {
            object: number(resume::OBJECT)?.unwrap_or(0),
            offset: number(resume::OFFSET)?.unwrap_or(0),
            bytes: number(resume::BYTES)?.unwrap_or(0),
            toguid: Guid(toguid),
            toname,
            fromguid: Guid(number(resume::FROMGUID)?.unwrap_or(0)),
            flags: SendFlags {
                large_blocks: is_set(resume::LARGE_BLOCKS)?,
                embedded: is_set(resume::EMBEDDED)?,
                compressed: is_set(resume::COMPRESSED)?,
            },
            raw: is_set(resume::RAW)?,
            redacted: is_set(resume::REDACTED)?,
        };
        return Ok(Some(Partial { dir, token }));
    }
    Ok(None)
}

/// Full name of a snapshot.
pub(crate) fn snapshot_name(inner: &Inner, id: ObjectId) -> Result<String> {
    let mos = &inner.mos;
    let dir = mos.dataset(id)?.dir;
    let names = mos.dataset(mos.dir(dir)?.head_dataset)?.snapnames_zap;
    for entry in zap::entries(&*mos.object(names)?) {
        let entry = entry?;
        if entry.number() == Some(id.0) {
            return Ok(format!("{}@{}", name_of(inner, dir)?, String::from_utf8_lossy(&entry.name)));
        }
    }
    Err(Error::corrupt(names)(format::Corrupt::new("snapshot without a name", id.0)))
}

/// Whether a head holds something else than its newest snapshot.
pub(crate) fn is_modified(inner: &Inner, head: &DslDataset) -> Result<bool> {
    let newest = inner.mos.dataset(head.prev_snap)?;
    if head.bp.birth() <= newest.creation_txg {
        return Ok(false);
    }
    if newest.bp.is_hole() || head.bp.is_hole() {
        return Ok(newest.bp.is_hole() != head.bp.is_hole());
    }
    let meta = |root: BlockPtr| -> Result<_> {
        let objset = dmu::Objset::open(inner.storage.clone(), inner.budget.clone(), root)?;
        Ok(objset.synced_root().0.meta_dnode)
    };
    Ok(meta(head.bp)? != meta(newest.bp)?)
}

fn is_unfinished(mos: &Mos, head: ObjectId) -> Result<bool> {
    if mos.dataset(head)?.flags & dsl_dataset::INCONSISTENT == 0 {
        return Ok(false);
    }
    let object = mos.object(head)?;
    let zapified = object.object_type() == format::ObjectType::ZAP_METADATA;
    Ok(!zapified || zap::lookup(&object, resume::TOGUID.as_bytes())?.is_none())
}

/// Whether a received head can get the snapshot `name`, whose leaf must be free.
pub(crate) fn may_snapshot_received(mos: &Mos, head: ObjectId, name: &str) -> Result<()> {
    let (_, leaf) = name.split_once('@').ok_or_else(|| Error::NoDataset(name.to_owned()))?;
    match zap::lookup(&*mos.object(mos.dataset(head)?.snapnames_zap)?, leaf.as_bytes())? {
        Some(_) => Err(Error::Exists(name.to_owned())),
        None => Ok(()),
    }
}

/// Whether the snapshot `name` can be destroyed.
pub(crate) fn may_destroy(inner: &Inner, name: &str) -> Result<()> {
    let info = info(inner, name)?;
    if !info.is_snapshot() {
        return Err(Error::NoDataset(name.to_owned()));
    }
    if hold_count(&inner.mos, &info.phys)? > 0 {
        return Err(Error::Held(name.to_owned()));
    }
    if info.phys.num_children > 1 {
        return Err(Error::HasClones(name.to_owned()));
    }
    let open = inner.datasets().get(&info.id).and_then(Weak::upgrade);
    // The handle just made counts.
    if open.is_some_and(|open| Arc::strong_count(&open) > 1) {
        return Err(Error::DatasetBusy(name.to_owned()));
    }
    Ok(())
}

/// Bytes that only the snapshots `doomed` refer to, together: of each run of neighbours, what was born after the
/// snapshot before it and died before the one after it.
pub(crate) fn reclaims(inner: &Inner, doomed: &BTreeSet<ObjectId>) -> Result<u64> {
    let mos = &inner.mos;
    let mut bytes = 0;
    for &last in doomed {
        let mut at = mos.dataset(last)?;
        if doomed.contains(&at.next_snap) {
            continue;
        }
        let mut run = vec![at.next_snap];
        let mut since = at.prev_snap_txg;
        let mut id = last;
        while doomed.contains(&at.prev_snap) {
            run.push(id);
            id = at.prev_snap;
            at = mos.earlier(&at)?;
            since = at.prev_snap_txg;
        }
        for id in run {
            let list = mos.dataset(id)?.deadlist;
            bytes += super::deadlist::space_between(mos, list, since, Txg(u64::MAX))?.used as u64;
        }
    }
    Ok(bytes)
}

/// How many hold a snapshot.
pub(crate) fn hold_count(mos: &Mos, snap: &DslDataset) -> Result<u64> {
    Ok(if snap.userrefs.0 == 0 { 0 } else { zap::count(&*mos.object(snap.userrefs)?)? })
}

/// Holds of a snapshot: tag, and seconds since 1970, by tag.
pub(crate) fn holds(inner: &Inner, info: &DatasetInfo) -> Result<Vec<(String, u64)>> {
    if info.phys.userrefs.0 == 0 {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in zap::entries(&*inner.mos.object(info.phys.userrefs)?) {
        let entry = entry?;
        found.push((String::from_utf8_lossy(&entry.name).into_owned(), entry.number().unwrap_or(0)));
    }
    found.sort_unstable();
    Ok(found)
}

/// Names of the clones of a snapshot, in order; what is being received is none yet.
pub(crate) fn clones(inner: &Inner, info: &DatasetInfo) -> Result<Vec<String>> {
    if info.phys.next_clones.0 == 0 {
        return Ok(Vec::new());
    }
    let mos = &inner.mos;
    let mut found = Vec::new();
    for entry in zap::entries(&*mos.object(info.phys.next_clones)?).collect::<Vec<_>>() {
        if let Some(first) = entry?.number() {
            found.push(name_of(inner, mos.dataset(ObjectId(first))?.dir)?);
            let hidden = found.last().is_some_and(|name| name.contains("/%"));
            found.truncate(found.len() - usize::from(hidden));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// A dataset known by its number, whatever it is called.
pub(crate) fn info_of(inner: &Inner, name: String, id: ObjectId) -> Result<DatasetInfo> {
    let dir_id = inner.mos.dataset(id)?.dir;
    describe(inner, name, dir_id, inner.mos.dir(dir_id)?, id)
}

fn describe(inner: &Inner, name: String, dir_id: ObjectId, dir: DslDir, id: ObjectId) -> Result<DatasetInfo> {
    let phys = inner.mos.dataset(id)?;
    let kind = match (phys.is_snapshot(), objset_type(inner, &phys.bp)?) {
        (true, _) => DatasetKind::Snapshot,
        (false, ObjsetType::Zvol) => DatasetKind::Volume,
        (false, _) => DatasetKind::Filesystem,
    };
    Ok(DatasetInfo { name, kind, dir_id, id, dir, phys, mark: None })
}

/// What an objset is for, from its root block alone.
pub(crate) fn objset_type(inner: &Inner, root: &BlockPtr) -> Result<ObjsetType> {
    if root.is_hole() {
        return Ok(ObjsetType::None);
    }
    let record = inner.storage.read(root)?;
    let order = format::ByteOrder::Little;
    let raw = record.get(0x2c0..0x2c8).ok_or(format::Corrupt::new("objset length", record.len() as u64));
    let id = raw.map(|raw| order.u64(raw, 0)).and_then(ObjsetType::from_disk);
    id.map_err(|source| Error::Read(source.into()))
}

/// A dataset and all below it, parents first, children by name; `depth` levels, all if `None`. Snapshots follow
/// their dataset in the order of their creation, if asked for.
///
/// # Errors
/// Any of them cannot be read, or has a name that none may have.
pub(crate) fn list(
    inner: &Inner,
    top: &str,
    depth: Option<usize>,
    snapshots: bool,
) -> Result<Vec<DatasetInfo>> {
    crate::error::all_or_first_error(|report| {
        survey(inner, top, (depth, snapshots), &mut |_, error| report(error))
    })
}

/// As [`list`], for those who only look: `report` is told, by its name, what is left out because it cannot be read, has
/// a name that none may have, or was met before; what is below it is left out, too.
///
/// # Errors
/// The top itself cannot be read.
pub(crate) fn survey(
    inner: &Inner,
    top: &str,
    (depth, snapshots): (Option<usize>, bool),
    report: &mut dyn FnMut(String, Error),
) -> Result<Vec<DatasetInfo>> {
    let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
    let mos = &inner.mos;
    let dir = dir_of(mos, &inner.name(), top)?;
    let mut queue = vec![(top.to_owned(), dir, 0)];
    while let Some((name, dir_id, level)) = queue.pop() {
        let entered = check_place(&mut seen, dir_id, level).and_then(|()| {
            let dir = mos.dir(dir_id)?;
            Ok((dir, describe(inner, name.clone(), dir_id, dir, dir.head_dataset)?))
        });
        let (dir, head) = match entered {
            Ok(entered) => entered,
            Err(error) if level == 0 => return Err(error),
            Err(error) => {
                report(name, error);
                continue;
            }
        };
        let names = head.phys.snapnames_zap;
        found.push(head);
        if depth.is_some_and(|depth| level >= depth) {
            continue;
        }
        // Snapshots count as one level below their dataset.
        if snapshots {
            let mut snaps = Vec::new();
            for (full, id) in members(mos, names, &name, '@', report) {
                match describe(inner, full.clone(), dir_id, dir, id) {
                    Ok(snap) => snaps.push(snap),
                    Err(error) => report(full, error),
                }
            }
            snaps.sort_by_key(|snap| snap.phys.creation_txg);
            found.extend(snaps);
        }
        let below = members(mos, dir.child_dir_zap, &name, '/', report).into_iter().rev();
        queue.extend(below.map(|(full, id)| (full, id, level + 1)));
    }
    Ok(found)
}

/// Full names and objects in a map of snapshots (`delimiter` is `@`) or child directories (`/`) of `parent`, by name; the
/// special directories are left out. `report` is told of entries that cannot be read and of names that none may have.
fn members(
    mos: &Mos,
    map: ObjectId,
    parent: &str,
    delimiter: char,
    report: &mut dyn FnMut(String, Error),
) -> Vec<(String, ObjectId)> {
    let mut found = Vec::new();
    let object = match mos.object(map) {
        Ok(object) => object,
        Err(error) => {
            report(parent.to_owned(), error);
            return found;
        }
    };
    for entry in zap::entries(&object) {
        match entry {
            Ok(entry) => {
                let Some(id) = entry.number() else { continue };
                if delimiter == '/' && matches!(entry.name.first(), Some(b'$' | b'%')) {
                    continue;
                }
                match full_name(parent, delimiter, &entry.name) {
                    Ok(full) => found.push((full, ObjectId(id))),
                    Err(error) => report(parent.to_owned(), error),
                }
            }
            Err(error) => report(parent.to_owned(), error.into()),
        }
    }
    found.sort_unstable();
    found
}

/// The full name of what `parent` calls `leaf`.
///
/// # Errors
/// [`Error::BadName`]: it is not of the form that a user could have given.
pub(crate) fn full_name(parent: &str, delimiter: char, leaf: &[u8]) -> Result<String> {
    let full = format!("{parent}{delimiter}{}", String::from_utf8_lossy(leaf));
    // What is no UTF-8 has a replacement character in it now, which no name may have.
    match names::check(&full) {
        Ok(_) => Ok(full),
        Err(why) => Err(Error::BadName { name: full, why }),
    }
}

/// Refuses a directory that was met before, or lies `level` levels down where none does: its parents are damaged.
fn check_place(seen: &mut BTreeSet<ObjectId>, dir: ObjectId, level: usize) -> Result<()> {
    if seen.insert(dir) && level < DEPTH_MAX { Ok(()) } else { Err(tangled(dir)) }
}

/// Directories that lie in one another, or deeper than any.
pub(crate) fn tangled(dir: ObjectId) -> Error {
    Error::corrupt(dir)(format::Corrupt::new("dataset nesting", DEPTH_MAX as u64))
}

/// Full name of a directory, from its ancestors' child maps.
pub(crate) fn name_of(inner: &Inner, dir: ObjectId) -> Result<String> {
    let mut parts = Vec::new();
    for id in chain(&inner.mos, dir)?.windows(2) {
        parts.push(name_in(&inner.mos, id[1], id[0])?);
    }
    parts.push(inner.name());
    parts.reverse();
    Ok(parts.join("/"))
}

/// What `parent` calls the directory `id`, which may be one of the special ones.
fn name_in(mos: &Mos, parent: ObjectId, id: ObjectId) -> Result<String> {
    for entry in zap::entries(&*mos.object(mos.dir(parent)?.child_dir_zap)?) {
        let entry = entry?;
        if entry.number() == Some(id.0) {
            return Ok(String::from_utf8_lossy(&entry.name).into_owned());
        }
    }
    Err(Error::corrupt(parent)(format::Corrupt::new("child map", id.0)))
}

/// A quota's bytes, where 0 stands for none.
fn unlimited(quota: u64) -> u64 {
    if quota == 0 { u64::MAX } else { quota }
}

/// Bytes available to a directory: within its quota and those above it, reservations counted.
pub(crate) fn dir_available(inner: &Inner, id: ObjectId) -> Result<u64> {
    let mut bytes = inner.usable(Reach::Limits);
    for id in chain(&inner.mos, id)?.into_iter().rev() {
        let dir = inner.mos.dir(id)?;
        if dir.parent.0 == 0 {
            bytes = unlimited(dir.quota).min(bytes).saturating_sub(dir.used_bytes);
            continue;
        }
        let reserved = dir.reserved.saturating_sub(dir.used_bytes);
        let within = unlimited(dir.quota).saturating_sub(dir.used_bytes);
        bytes = bytes.saturating_add(reserved).min(within);
    }
    Ok(bytes)
}

/// Bytes available to the head of `dir` itself.
pub(crate) fn available(inner: &Inner, dir: ObjectId, own: &Own) -> Result<u64> {
    let bytes = dir_available(inner, dir)?.saturating_add(own.unused());
    Ok(bytes.min(unlimited(own.refquota).saturating_sub(own.referenced)))
}

/// A directory and all above it, the root last.
pub(crate) fn chain(mos: &Mos, dir: ObjectId) -> Result<Vec<ObjectId>> {
    upward(mos, dir).map(|step| step.map(|(id, _)| id)).collect()
}

/// As [`chain`], one by one, and with what each is. Parents that lead nowhere end in an error.
pub(crate) fn upward(mos: &Mos, dir: ObjectId) -> impl Iterator<Item = Result<(ObjectId, DslDir)>> {
    let (mut next, mut left) = (dir, DEPTH_MAX);
    std::iter::from_fn(move || {
        let id = std::mem::take(&mut next);
        if id.0 == 0 {
            return None;
        }
        let Some(fewer) = left.checked_sub(1) else { return Some(Err(tangled(dir))) };
        left = fewer;
        let step = mos.dir(id).map(|dir| (id, dir));
        if let Ok((_, dir)) = &step {
            next = dir.parent;
        }
        Some(step)
    })
}

/// Limits and use of a dataset itself.
pub(crate) fn own(mos: &Mos, dir: ObjectId, id: ObjectId) -> Result<Own> {
    let phys = mos.dataset(id)?;
    let props = mos.dir(dir)?.props_zap;
    Ok(Own {
        refquota: properties::number_here(mos, props, "refquota")?.unwrap_or(0),
        refreservation: properties::number_here(mos, props, "refreservation")?.unwrap_or(0),
        referenced: phys.referenced_bytes,
        unique: phys.unique_bytes,
    })
}

/// Of an open dataset: (bytes it refers to, bytes available to it).
pub(crate) fn space_of(inner: &Inner, dataset: &Dataset) -> Result<(u64, u64)> {
    let own = own(&inner.mos, dataset.dir, dataset.id)?;
    Ok((own.referenced, available(inner, dataset.dir, &own)?))
}
