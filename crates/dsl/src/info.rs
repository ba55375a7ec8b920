//! Descriptions of datasets, snapshots and bookmarks.
//!
//! Source: docs/format/06-mos-dsl.md §4–§6, §8.4, §8.5.

use dmu::zap;
use format::bookmark::Bookmark;
use format::dsl_dataset::{self, DslDataset};
use format::dsl_dir::DslDir;
use format::objset::ObjsetType;
use format::{BlockPtr, ObjectId};

use crate::props::DatasetKind;
use crate::tree::{dir_of, full_name, name_of};
use crate::view::View;
use crate::{Error, Result, bookmark};

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
    /// The dataset object. For a bookmark, it is that of its file system, with the values of the bookmarked snapshot.
    pub phys: DslDataset,
    /// The contents of the bookmark, if it is one.
    pub mark: Option<Bookmark>,
}

impl DatasetInfo {
    /// The snapshot's name after the `@`, if it is one.
    #[must_use]
    pub fn snapshot_name(&self) -> Option<&str> {
        self.name.split_once('@').map(|(_, snap)| snap)
    }

    /// Whether it is an unfinished receive or an unfinished destroy.
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

/// Everything about the dataset `name` (`pool/fs`, `pool/fs@snap` or `pool/fs#mark`).
pub fn info(view: &View<'_>, name: &str) -> Result<DatasetInfo> {
    if name.contains('#') {
        return bookmark(view, name);
    }
    let mos = view.mos;
    let (head, snapshot) = match name.split_once('@') {
        Some((head, snap)) => (head, Some(snap)),
        None => (name, None),
    };
    let missing = || Error::NoDataset(name.to_owned());
    let dir_id = dir_of(mos, &view.pool, head).map_err(|error| match error {
        Error::NoDataset(_) => missing(),
        other => other,
    })?;
    let dir = mos.dir(dir_id)?;
    let mut id = dir.head_dataset;
    if let Some(snapshot) = snapshot {
        let names = mos.object(mos.dataset(id)?.snapnames_zap)?;
        id = zap::lookup_u64(&names, snapshot.as_bytes())?.map(ObjectId).ok_or_else(missing)?;
    }
    describe(view, name.to_owned(), dir_id, dir, id)
}

/// The bookmark `name` (`pool/fs#mark`).
pub fn bookmark(view: &View<'_>, name: &str) -> Result<DatasetInfo> {
    let missing = || Error::NoDataset(name.to_owned());
    let (fs, leaf) = name.split_once('#').ok_or_else(missing)?;
    let head = info(view, fs).map_err(|error| match error {
        Error::NoDataset(_) => missing(),
        other => other,
    })?;
    let mark = bookmark::one(view.mos, head.id, leaf)?.ok_or_else(missing)?;
    Ok(describe_mark(&head, leaf, mark))
}

/// The bookmarks of the head `fs`, oldest first. Calls `report` for each invalid name.
pub fn bookmarks(
    view: &View<'_>,
    fs: &str,
    report: &mut dyn FnMut(String, Error),
) -> Result<Vec<DatasetInfo>> {
    let head = info(view, fs)?;
    let mut found = Vec::new();
    for (leaf, mark) in bookmark::all(view.mos, head.id)? {
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

/// Full name of a snapshot.
pub fn snapshot_name(view: &View<'_>, id: ObjectId) -> Result<String> {
    let mos = view.mos;
    let dir = mos.dataset(id)?.dir;
    let names = mos.dataset(mos.dir(dir)?.head_dataset)?.snapnames_zap;
    for entry in zap::entries(&*mos.object(names)?) {
        let entry = entry?;
        if entry.number() == Some(id.0) {
            return Ok(format!("{}@{}", name_of(view, dir)?, String::from_utf8_lossy(&entry.name)));
        }
    }
    Err(Error::corrupt(names)(format::Corrupt::new("snapshot without a name", id.0)))
}

/// Whether a head has changed since its newest snapshot.
pub fn is_modified(view: &View<'_>, head: &DslDataset) -> Result<bool> {
    let newest = view.mos.dataset(head.prev_snap)?;
    if head.bp.birth() <= newest.creation_txg {
        return Ok(false);
    }
    if newest.bp.is_hole() || head.bp.is_hole() {
        return Ok(newest.bp.is_hole() != head.bp.is_hole());
    }
    let meta = |root: BlockPtr| -> Result<_> {
        let objset = view.objset(root)?;
        Ok(objset.synced_root().0.meta_dnode)
    };
    Ok(meta(head.bp)? != meta(newest.bp)?)
}

/// A dataset by its number, which stays the same when it is renamed.
pub fn info_of(view: &View<'_>, name: String, id: ObjectId) -> Result<DatasetInfo> {
    let dir_id = view.mos.dataset(id)?.dir;
    describe(view, name, dir_id, view.mos.dir(dir_id)?, id)
}

/// The description of dataset `id` in directory `dir_id`. Reads the dataset object and its objset's root block.
pub fn describe(
    view: &View<'_>,
    name: String,
    dir_id: ObjectId,
    dir: DslDir,
    id: ObjectId,
) -> Result<DatasetInfo> {
    let phys = view.mos.dataset(id)?;
    let kind = match (phys.is_snapshot(), objset_type(view, &phys.bp)?) {
        (true, _) => DatasetKind::Snapshot,
        (false, ObjsetType::Zvol) => DatasetKind::Volume,
        (false, _) => DatasetKind::Filesystem,
    };
    Ok(DatasetInfo { name, kind, dir_id, id, dir, phys, mark: None })
}

/// The type of an objset, from its root block alone.
pub fn objset_type(view: &View<'_>, root: &BlockPtr) -> Result<ObjsetType> {
    if root.is_hole() {
        return Ok(ObjsetType::None);
    }
    let record = view.storage.read(root)?;
    let order = format::ByteOrder::Little;
    let raw = record.get(0x2c0..0x2c8).ok_or(format::Corrupt::new("objset length", record.len() as u64));
    let id = raw.map(|raw| order.u64(raw, 0)).and_then(ObjsetType::from_disk);
    id.map_err(|source| Error::Read(source.into()))
}
