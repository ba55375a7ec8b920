//! Dataset properties: stored, inherited and computed values.
//!
//! Source: docs/format/06-mos-dsl.md §8.4, §10.

use dmu::zap;
use format::bookmark::HAS_FBN;
use format::{ObjectId, Txg};

use crate::info::{self, DatasetInfo};
use crate::mos::Mos;
use crate::props::{self, Access, DatasetKind, Property, Source, Value, number};
use crate::values::{RECEIVED, received_here, set_here};
use crate::view::View;
use crate::{
    Error, Result, available, deadlist, holds, keys, limits, partial, promises, redaction, snapshot, space,
    tree,
};

/// The value in effect and where it comes from; `None` when it was never set.
pub(crate) fn effective(
    view: &View<'_>,
    info: &DatasetInfo,
    name: &str,
    inherits: bool,
) -> Result<Option<(Value, Source)>> {
    let mos = view.mos;
    if info.is_snapshot()
        && let Some((value, local)) = set_here(mos, info.phys.props, name)?
    {
        return Ok(Some((value, if local { Source::Local } else { Source::Received })));
    }
    for step in tree::upward(mos, info.dir_id) {
        let (id, dir) = step?;
        if let Some((value, local)) = set_here(mos, dir.props_zap, name)? {
            let source = match (id == info.dir_id && !info.is_snapshot(), local) {
                (true, true) => Source::Local,
                (true, false) => Source::Received,
                (false, _) => Source::Inherited(tree::name_of(view, id)?),
            };
            return Ok(Some((value, source)));
        }
        if !inherits {
            break;
        }
    }
    Ok(None)
}

/// A native property of a dataset: value and source; `None` where it does not apply.
pub fn native(
    view: &View<'_>,
    info: &DatasetInfo,
    property: &'static Property,
) -> Result<Option<(Value, Source)>> {
    let applies = if info.is_snapshot() {
        property.applies_to_snapshot_of(head_kind(view, info)?)
    } else {
        property.applies.contains(info.kind)
    };
    if !applies {
        return Ok(None);
    }
    let measured = info.mark.is_none_or(|mark| mark.v2.is_some_and(|v2| v2.flags & HAS_FBN != 0));
    if !measured && ["referenced", "logicalreferenced", "compressratio"].contains(&property.name) {
        return Ok(None);
    }
    if let Some(found) = computed(view, info, property)? {
        return Ok(found);
    }
    if property.access == Access::ReadOnly || info.is_bookmark() {
        return Ok(None);
    }
    let inherits = property.is_inheritable();
    match effective(view, info, property.name, inherits)? {
        Some((value, source)) => Ok(Some((value, source))),
        None => Ok(property.default_value().map(|value| (value, Source::Default))),
    }
}

fn head_kind(view: &View<'_>, info: &DatasetInfo) -> Result<DatasetKind> {
    Ok(match info::objset_type(view, &info.phys.bp)? {
        format::objset::ObjsetType::Zvol => DatasetKind::Volume,
        _ => DatasetKind::Filesystem,
    })
}

type Found = Option<(Value, Source)>;

/// Properties that are computed from the dataset and its directory, and those of [`kept_elsewhere`]. Outer `None`: it is no
/// such property.
fn computed(view: &View<'_>, info: &DatasetInfo, property: &Property) -> Result<Option<Found>> {
    let (dir, phys) = (&info.dir, &info.phys);
    let breakdown = &dir.used_breakdown;
    let snapshot = info.is_snapshot();
    let number = |n: u64| Some((Value::Number(n), Source::None));
    let text = |t: String| Some((Value::Text(t), Source::None));
    let used_ratio = || match snapshot || info.is_bookmark() {
        true => number::ratio_of(phys.uncompressed_bytes, phys.compressed_bytes),
        false => number::ratio_of(dir.uncompressed_bytes, dir.compressed_bytes),
    };
    Ok(Some(match property.name {
        "name" => text(info.name.clone()),
        "type" => text(info.kind.word().to_owned()),
        "creation" => number(phys.creation_time),
        "createtxg" => number(phys.creation_txg.0),
        "guid" => number(phys.guid.0),
        "objsetid" => number(info.id.0),
        "used" if snapshot => number(phys.unique_bytes),
        "used" => number(dir.used_bytes),
        "available" => {
            let own = promises::own(view.mos, info.dir_id, info.id)?;
            number(available::available(view, info.dir_id, &own)?)
        }
        "referenced" => number(phys.referenced_bytes),
        "unique" => number(phys.unique_bytes),
        "compressratio" => number(used_ratio()),
        "refcompressratio" => number(number::ratio_of(phys.uncompressed_bytes, phys.compressed_bytes)),
        "logicalused" => number(dir.uncompressed_bytes),
        "logicalreferenced" => number(phys.uncompressed_bytes),
        name if name.starts_with("usedby") && !space::has_breakdown(dir) => None,
        "usedbydataset" => number(breakdown.head),
        "usedbysnapshots" => number(breakdown.snap),
        "usedbychildren" => number(breakdown.child + breakdown.child_rsrv),
        "usedbyrefreservation" => number(breakdown.refrsrv),
        "written" => number(written(view.mos, info)?),
        "mounted" => text("no".to_owned()),
        "inconsistent" => number(phys.flags & format::dsl_dataset::INCONSISTENT),
        "defer_destroy" => number(u64::from(phys.flags & format::dsl_dataset::DEFER_DESTROY != 0)),
        "userrefs" => number(holds::hold_count(view.mos, phys)?),
        "numclones" => number(phys.num_children.saturating_sub(1)),
        "origin" => origin(view, info)?.map(|name| (Value::Text(name), Source::None)),
        "quota" => limit(view, info, property, dir.quota)?,
        "reservation" => limit(view, info, property, dir.reserved)?,
        "mountpoint" => Some(mountpoint(view, info)?),
        "version" | "utf8only" | "normalization" | "casesensitivity" => {
            let default = match property.name {
                "version" => 5,
                _ => 0,
            };
            let key = if property.name == "version" { "VERSION" } else { property.name };
            number(master_node(view, info, key)?.unwrap_or(default))
        }
        _ => return kept_elsewhere(view, info, property),
    }))
}

/// Properties that are stored outside of the properties ZAP or computed from other objects. Outer `None`: it is no such
/// property.
fn kept_elsewhere(view: &View<'_>, info: &DatasetInfo, property: &Property) -> Result<Option<Found>> {
    let number = |n: u64| Some((Value::Number(n), Source::None));
    let text = |t: String| Some((Value::Text(t), Source::None));
    Ok(Some(match property.name {
        // These values are stored in the master node of the file system, not in a DSL ZAP.
        name if name.starts_with("default") && name.ends_with("quota") => {
            number(master_node(view, info, name)?.unwrap_or(0))
        }
        "volsize" => volume(view, info)?.map(|(size, _)| (Value::Number(size), Source::Local)),
        "volblocksize" => volume(view, info)?.map(|(_, block)| {
            let is_default = property.default_value() == Some(Value::Number(block));
            (Value::Number(block), if is_default { Source::Default } else { Source::None })
        }),
        "encryption" | "keyformat" | "pbkdf2iters" | "keylocation" | "encryptionroot" | "keystatus" => {
            return encryption(view, info, property.name);
        }
        "filesystem_count" | "snapshot_count" => match limits::counts(view.mos, info.dir_id)? {
            // OpenZFS stores the counts with the dataset, so their source is `local`.
            Some([filesystems, snapshots]) => {
                let is_filesystems = property.name == "filesystem_count";
                let count = if is_filesystems { filesystems } else { snapshots };
                Some((Value::Number(count), Source::Local))
            }
            None => number(props::UNLIMITED).map(|(v, _)| (v, Source::Default)),
        },
        "clones" => {
            let names = holds::clones(view, info)?;
            (!names.is_empty()).then(|| (Value::Text(names.join(",")), Source::None))
        }
        "receive_resume_token" => {
            let partial = partial::partial(view.mos, info.dir_id)?;
            partial.and_then(|partial| text(partial.token.to_string()))
        }
        "snapshots_changed" | "snapshots_changed_nsecs" => {
            let changed = snapshot::last_changed(view.mos, info.dir_id)?;
            changed.and_then(|[seconds, nanoseconds]| match property.name {
                "snapshots_changed" => number(seconds),
                _ => number(seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)),
            })
        }
        "redact_snaps" => {
            let guids = redaction::guids(view.mos, info.id, info.mark.as_ref())?;
            guids.and_then(|guids| text(guids.iter().map(u64::to_string).collect::<Vec<_>>().join(",")))
        }
        "redacted" => number(redaction::of(view.mos, info.id)?.is_some().into()),
        _ => return Ok(None),
    }))
}

/// Properties from the key object. Outer `None`: the value is in the properties ZAP.
fn encryption(view: &View<'_>, info: &DatasetInfo, name: &str) -> Result<Option<Found>> {
    const OFF: u64 = 2;
    let of_plain = |value| Ok(Some(Some((value, Source::Default))));
    let Some(object) = keys::of(view.mos, info.dir_id)? else {
        return match name {
            "encryption" => of_plain(Value::Number(OFF)),
            "keylocation" => of_plain(Value::Text("none".into())),
            "keyformat" | "pbkdf2iters" => of_plain(Value::Number(0)),
            _ => Ok(Some(None)),
        };
    };
    let number = |n: u64| Some((Value::Number(n), Source::None));
    Ok(Some(match name {
        "encryption" => number(object.wrapped.suite.to_disk()),
        "keyformat" => number(object.user_key.format.to_disk()),
        "pbkdf2iters" if object.user_key.iterations != 0 => number(object.user_key.iterations),
        "pbkdf2iters" => return of_plain(Value::Number(0)),
        "encryptionroot" => Some((Value::Text(tree::name_of(view, object.root)?), Source::None)),
        // 1: unavailable, 2: available.
        "keystatus" => number(1 + u64::from(view.keyring.has(object.root))),
        // Only encryption roots have one of their own.
        _ if object.root != info.dir_id => return of_plain(Value::Text("none".into())),
        _ => return Ok(None),
    }))
}

fn limit(view: &View<'_>, info: &DatasetInfo, property: &Property, bytes: u64) -> Result<Found> {
    let source = match effective(view, info, property.name, false)? {
        Some((_, source)) => source,
        None => Source::Default,
    };
    Ok(Some((Value::Number(bytes), source)))
}

/// Space written since the newest snapshot: what the dataset refers to beyond it.
fn written(mos: &Mos, info: &DatasetInfo) -> Result<u64> {
    let phys = &info.phys;
    if phys.prev_snap.0 == 0 {
        return Ok(phys.referenced_bytes);
    }
    let prev = mos.dataset(phys.prev_snap)?;
    let dead = deadlist::header(mos, phys.deadlist)?;
    Ok(phys.referenced_bytes.wrapping_sub(prev.referenced_bytes).wrapping_add_signed(dead.used))
}

/// Space written to a dataset since its own earlier snapshot called `snapshot`, or the one of that full name
/// (`pool/fs@snap`) in its history; `None` if there is none.
pub fn written_since(view: &View<'_>, info: &DatasetInfo, snapshot: &str) -> Result<Option<u64>> {
    if info.is_bookmark() {
        return Ok(None);
    }
    let mos = view.mos;
    let old_id = if snapshot.contains('@') {
        // By its full name, because it may be an origin of this clone.
        match tree::snapshot(mos, &view.pool, snapshot) {
            Err(Error::NoDataset(_)) => None,
            found => Some(found?),
        }
    } else {
        let names = mos.object(mos.dataset(info.dir.head_dataset)?.snapnames_zap)?;
        zap::lookup_u64(&names, snapshot.as_bytes())?.map(ObjectId)
    };
    let Some(old_id) = old_id else { return Ok(None) };
    let old = mos.dataset(old_id)?;
    let mut written = info.phys.referenced_bytes.wrapping_sub(old.referenced_bytes);
    let (mut id, mut phys) = (info.id, info.phys);
    while id != old_id {
        if phys.prev_snap_txg < old.creation_txg || phys.prev_snap.0 == 0 {
            // It is not older than the dataset.
            return Ok(None);
        }
        // Blocks of the old snapshot that were freed since: all entries born before it.
        let dead = if phys.prev_snap == old_id {
            deadlist::header(mos, phys.deadlist)?.used
        } else {
            deadlist::space_between(mos, phys.deadlist, Txg(0), old.creation_txg)?.used
        };
        written = written.wrapping_add_signed(dead);
        id = phys.prev_snap;
        phys = mos.earlier(&phys)?;
    }
    Ok(Some(written))
}

fn origin(view: &View<'_>, info: &DatasetInfo) -> Result<Option<String>> {
    let mos = view.mos;
    let origin = info.dir.origin;
    if info.is_snapshot() || origin.0 == 0 {
        return Ok(None);
    }
    let snap = mos.dataset(origin)?;
    let special = tree::child(mos, tree::root_dir(mos)?, "$ORIGIN")?;
    if Some(snap.dir) == special {
        return Ok(None);
    }
    info::snapshot_name(view, origin).map(Some)
}

/// The mountpoint in effect: an inherited path is extended by the names below the dataset where it was set.
fn mountpoint(view: &View<'_>, info: &DatasetInfo) -> Result<(Value, Source)> {
    let root = view.altroot.unwrap_or("").trim_end_matches('/');
    let found = effective(view, info, "mountpoint", true)?;
    let (path, source) = match found {
        Some((Value::Text(path), source)) if path.starts_with('/') => {
            let below = match &source {
                Source::Inherited(from) => &info.name[from.len().min(info.name.len())..],
                _ => "",
            };
            (format!("{}{below}", path.trim_end_matches('/')), source)
        }
        Some((value, source)) => return Ok((value, source)),
        None => (format!("/{}", info.name), Source::Default),
    };
    let path = match format!("{root}{path}") {
        path if path.is_empty() => "/".to_owned(),
        path => path,
    };
    Ok((Value::Text(path), source))
}

/// A number in a file system's master node.
fn master_node(view: &View<'_>, info: &DatasetInfo, key: &str) -> Result<Option<u64>> {
    let objset = view.objset(info.phys.bp)?;
    Ok(zap::lookup_u64(&*objset.object(ObjectId(1))?, key.as_bytes())?)
}

/// Size and block size of a volume, in bytes.
fn volume(view: &View<'_>, info: &DatasetInfo) -> Result<Option<(u64, u64)>> {
    let objset = view.objset(info.phys.bp)?;
    if objset.os_type() != format::objset::ObjsetType::Zvol {
        return Ok(None);
    }
    let size = zap::lookup_u64(&*objset.object(ObjectId(2))?, b"size")?.unwrap_or(0);
    Ok(Some((size, objset.object(ObjectId(1))?.block_size())))
}

/// User properties in effect, by name.
pub fn user(view: &View<'_>, info: &DatasetInfo) -> Result<Vec<(String, String, Source)>> {
    if info.is_bookmark() {
        return Ok(Vec::new());
    }
    let mos = view.mos;
    let mut names = std::collections::BTreeSet::new();
    let mut collect = |zap_id: ObjectId| -> Result<()> {
        if zap_id.0 == 0 {
            return Ok(());
        }
        for entry in zap::entries(&*mos.object(zap_id)?) {
            let name = String::from_utf8_lossy(&entry?.name).into_owned();
            let name = name.strip_suffix(RECEIVED).unwrap_or(&name);
            if props::names::is_stored_user_property(name) {
                names.insert(name.to_owned());
            }
        }
        Ok(())
    };
    if info.is_snapshot() {
        collect(info.phys.props)?;
    }
    for step in tree::upward(mos, info.dir_id) {
        collect(step?.1.props_zap)?;
    }
    let mut found = Vec::new();
    for name in names {
        if let Some((Value::Text(value), source)) = effective(view, info, &name, true)? {
            found.push((name, value, source));
        }
    }
    Ok(found)
}

/// One user property in effect.
pub fn user_one(view: &View<'_>, info: &DatasetInfo, name: &str) -> Result<Option<(String, Source)>> {
    if info.is_bookmark() {
        return Ok(None);
    }
    Ok(match effective(view, info, name, true)? {
        Some((Value::Text(value), source)) => Some((value, source)),
        _ => None,
    })
}

/// The received value of a property, even when another is in effect.
pub fn received(view: &View<'_>, info: &DatasetInfo, name: &str) -> Result<Option<Value>> {
    let zap_id = if info.is_snapshot() { info.phys.props } else { info.dir.props_zap };
    received_here(view.mos, zap_id, name)
}
