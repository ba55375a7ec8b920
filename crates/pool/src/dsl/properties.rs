//! Dataset properties: what is stored where, what is inherited from whom, what is computed.
//!
//! Source: docs/format/06-mos-dsl.md §8.4, §10.

use dmu::{Policy, Redundant, zap};
use format::bookmark::HAS_FBN;
use format::compression::CompressionSetting;
use format::features::{self, Feature};
use format::zap::Value as Stored;
use format::{ChecksumKind, Compression, Corrupt, ObjectId, Txg};
use storage::GzipEngine;

use super::lookup::{self, DatasetInfo};
use crate::dataset::{Settings, SnapDir, SyncMode};
use crate::features::Features;
use crate::keys;
use crate::mos::Mos;
use crate::pool::Inner;
use crate::props::names::GZIP_ENGINE;
use crate::props::{self, Access, DatasetKind, Property, Source, Value, number};
use crate::sync::metadata_compression_of;
use crate::{Error, Result};

/// Marks a value that only newer software knows; the plain name then holds the default.
const NEWER: &str = "$iuv";
/// Received from a stream, in effect unless set here.
pub(crate) const RECEIVED: &str = "$recvd";
/// Marks a dataset that received properties.
pub(crate) const RECEIVED_ANY: &[u8] = b"$hasrecvd";
/// A received value is hidden by an explicit `inherit`.
pub(crate) const INHERIT: &str = "$inherit";

fn read(value: &Stored) -> Option<Value> {
    match value.as_u64() {
        Some(number) => Some(Value::Number(number)),
        None => value.as_text().map(|text| Value::Text(text.to_owned())),
    }
}

/// How a value is stored in a properties ZAP.
pub(crate) fn stored(value: &Value) -> Stored {
    match value {
        Value::Number(number) => Stored::from_u64(*number),
        Value::Text(text) => Stored::from_text(text),
    }
}

fn get(mos: &Mos, zap_id: ObjectId, name: &str) -> Result<Option<Value>> {
    if zap_id.0 == 0 {
        return Ok(None);
    }
    Ok(zap::lookup(&*mos.object(zap_id)?, name.as_bytes())?.as_ref().and_then(read))
}

/// The received value in a properties ZAP, whether it is in effect or not.
pub(crate) fn received_here(mos: &Mos, zap_id: ObjectId, name: &str) -> Result<Option<Value>> {
    get(mos, zap_id, &format!("{name}{RECEIVED}"))
}

/// A number in a properties ZAP: local, or received and not overridden.
pub(crate) fn number_here(mos: &Mos, zap_id: ObjectId, name: &str) -> Result<Option<u64>> {
    Ok(match set_here(mos, zap_id, name)? {
        Some((Value::Number(number), _)) => Some(number),
        _ => None,
    })
}

/// The value set on one directory: locally, or received and not overridden.
fn set_here(mos: &Mos, zap_id: ObjectId, name: &str) -> Result<Option<(Value, bool)>> {
    if let Some(value) = get(mos, zap_id, &format!("{name}{NEWER}"))? {
        return Ok(Some((value, true)));
    }
    if let Some(value) = get(mos, zap_id, name)? {
        return Ok(Some((value, true)));
    }
    if get(mos, zap_id, &format!("{name}{INHERIT}"))?.is_some() {
        return Ok(None);
    }
    Ok(get(mos, zap_id, &format!("{name}{RECEIVED}"))?.map(|value| (value, false)))
}

/// The value in effect and where it comes from; `None` when nobody set it.
fn effective(
    inner: &Inner,
    info: &DatasetInfo,
    name: &str,
    inherits: bool,
) -> Result<Option<(Value, Source)>> {
    let mos = &inner.mos;
    if info.is_snapshot()
        && let Some((value, local)) = set_here(mos, info.phys.props, name)?
    {
        return Ok(Some((value, if local { Source::Local } else { Source::Received })));
    }
    for step in lookup::upward(mos, info.dir_id) {
        let (id, dir) = step?;
        if let Some((value, local)) = set_here(mos, dir.props_zap, name)? {
            let source = match (id == info.dir_id && !info.is_snapshot(), local) {
                (true, true) => Source::Local,
                (true, false) => Source::Received,
                (false, _) => Source::Inherited(lookup::name_of(inner, id)?),
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
pub(crate) fn native(
    inner: &Inner,
    info: &DatasetInfo,
    property: &'static Property,
) -> Result<Option<(Value, Source)>> {
    let applies = if info.is_snapshot() {
        property.applies_to_snapshot_of(head_kind(inner, info)?)
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
    if let Some(found) = computed(inner, info, property)? {
        return Ok(found);
    }
    if property.access == Access::ReadOnly || info.is_bookmark() {
        return Ok(None);
    }
    let inherits = property.is_inheritable();
    match effective(inner, info, property.name, inherits)? {
        Some((value, source)) => Ok(Some((value, source))),
        None => Ok(property.default_value().map(|value| (value, Source::Default))),
    }
}

fn head_kind(inner: &Inner, info: &DatasetInfo) -> Result<DatasetKind> {
    Ok(match lookup::objset_type(inner, &info.phys.bp)? {
        format::objset::ObjsetType::Zvol => DatasetKind::Volume,
        _ => DatasetKind::Filesystem,
    })
}

type Found = Option<(Value, Source)>;

/// Properties that are computed from the dataset and its directory, and those of [`kept_elsewhere`]. The outer `None`: not one.
fn computed(inner: &Inner, info: &DatasetInfo, property: &Property) -> Result<Option<Found>> {
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
            let own = lookup::own(&inner.mos, info.dir_id, info.id)?;
            number(lookup::available(inner, info.dir_id, &own)?)
        }
        "referenced" => number(phys.referenced_bytes),
        "unique" => number(phys.unique_bytes),
        "compressratio" => number(used_ratio()),
        "refcompressratio" => number(number::ratio_of(phys.uncompressed_bytes, phys.compressed_bytes)),
        "logicalused" => number(dir.uncompressed_bytes),
        "logicalreferenced" => number(phys.uncompressed_bytes),
        name if name.starts_with("usedby") && !super::space::has_breakdown(dir) => None,
        "usedbydataset" => number(breakdown.head),
        "usedbysnapshots" => number(breakdown.snap),
        "usedbychildren" => number(breakdown.child + breakdown.child_rsrv),
        "usedbyrefreservation" => number(breakdown.refrsrv),
        "written" => number(written(&inner.mos, info)?),
        "mounted" => text("no".to_owned()),
        "inconsistent" => number(phys.flags & format::dsl_dataset::INCONSISTENT),
        "defer_destroy" => number(u64::from(phys.flags & format::dsl_dataset::DEFER_DESTROY != 0)),
        "userrefs" => number(lookup::hold_count(&inner.mos, phys)?),
        "numclones" => number(phys.num_children.saturating_sub(1)),
        "origin" => origin(inner, info)?.map(|name| (Value::Text(name), Source::None)),
        "quota" => limit(inner, info, property, dir.quota)?,
        "reservation" => limit(inner, info, property, dir.reserved)?,
        "mountpoint" => Some(mountpoint(inner, info)?),
        "version" | "utf8only" | "normalization" | "casesensitivity" => {
            let default = match property.name {
                "version" => 5,
                _ => 0,
            };
            let key = if property.name == "version" { "VERSION" } else { property.name };
            number(master_node(inner, info, key)?.unwrap_or(default))
        }
        _ => return kept_elsewhere(inner, info, property),
    }))
}

/// Properties that are kept elsewhere than in the properties ZAP, or follow from other objects. The outer `None`: not one.
fn kept_elsewhere(inner: &Inner, info: &DatasetInfo, property: &Property) -> Result<Option<Found>> {
    let number = |n: u64| Some((Value::Number(n), Source::None));
    let text = |t: String| Some((Value::Text(t), Source::None));
    Ok(Some(match property.name {
        // These live in the file system itself, where they are no properties of the DSL's kind.
        name if name.starts_with("default") && name.ends_with("quota") => {
            number(master_node(inner, info, name)?.unwrap_or(0))
        }
        "volsize" => volume(inner, info)?.map(|(size, _)| (Value::Number(size), Source::Local)),
        "volblocksize" => volume(inner, info)?.map(|(_, block)| (Value::Number(block), Source::Default)),
        "encryption" | "keyformat" | "pbkdf2iters" | "keylocation" | "encryptionroot" | "keystatus" => {
            return encryption(inner, info, property.name);
        }
        "filesystem_count" | "snapshot_count" => match super::limits::counts(&inner.mos, info.dir_id)? {
            // OpenZFS keeps the counts with the dataset, and so calls them local.
            Some([filesystems, snapshots]) => {
                let is_filesystems = property.name == "filesystem_count";
                let count = if is_filesystems { filesystems } else { snapshots };
                Some((Value::Number(count), Source::Local))
            }
            None => number(props::UNLIMITED).map(|(v, _)| (v, Source::Default)),
        },
        "clones" => {
            let names = lookup::clones(inner, info)?;
            (!names.is_empty()).then(|| (Value::Text(names.join(",")), Source::None))
        }
        "receive_resume_token" => {
            let partial = lookup::partial(&inner.mos, info.dir_id)?;
            partial.and_then(|partial| text(partial.token.to_string()))
        }
        "snapshots_changed" | "snapshots_changed_nsecs" => {
            let changed = super::snapshot::last_changed(&inner.mos, info.dir_id)?;
            changed.and_then(|[seconds, nanoseconds]| match property.name {
                "snapshots_changed" => number(seconds),
                _ => number(seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds)),
            })
        }
        "redact_snaps" => None,
        _ => return Ok(None),
    }))
}

/// Properties that follow from the key object. The outer `None`: the value is kept with the others.
fn encryption(inner: &Inner, info: &DatasetInfo, name: &str) -> Result<Option<Found>> {
    const OFF: u64 = 2;
    let of_plain = |value| Ok(Some(Some((value, Source::Default))));
    let Some(id) = keys::object_of(&inner.mos, info.dir_id)? else {
        return match name {
            "encryption" => of_plain(Value::Number(OFF)),
            "keylocation" => of_plain(Value::Text("none".into())),
            "keyformat" | "pbkdf2iters" => of_plain(Value::Number(0)),
            _ => Ok(Some(None)),
        };
    };
    let object = keys::read(&inner.mos, id)?;
    let number = |n: u64| Some((Value::Number(n), Source::None));
    Ok(Some(match name {
        "encryption" => number(object.wrapped.suite.to_disk()),
        "keyformat" => number(object.user_key.format.to_disk()),
        "pbkdf2iters" if object.user_key.iterations != 0 => number(object.user_key.iterations),
        "pbkdf2iters" => return of_plain(Value::Number(0)),
        "encryptionroot" => Some((Value::Text(lookup::name_of(inner, object.root)?), Source::None)),
        // 1: unavailable, 2: available.
        "keystatus" => number(1 + u64::from(inner.keyring.has(object.root))),
        // Only encryption roots have one of their own.
        _ if object.root != info.dir_id => return of_plain(Value::Text("none".into())),
        _ => return Ok(None),
    }))
}

fn limit(inner: &Inner, info: &DatasetInfo, property: &Property, bytes: u64) -> Result<Found> {
    let source = match effective(inner, info, property.name, false)? {
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
    let dead = super::deadlist::header(mos, phys.deadlist)?;
    Ok(phys.referenced_bytes.wrapping_sub(prev.referenced_bytes).wrapping_add_signed(dead.used))
}

/// Space written to a dataset since its own earlier snapshot called `snapshot`, or the one of that full name
/// (`pool/fs@snap`) in its history; `None` if there is none.
pub(crate) fn written_since(inner: &Inner, info: &DatasetInfo, snapshot: &str) -> Result<Option<u64>> {
    if info.is_bookmark() {
        return Ok(None);
    }
    let mos = &inner.mos;
    let old_id = if snapshot.contains('@') {
        // By its full name: it may be one that this began as a clone of.
        match lookup::snapshot(mos, &inner.name(), snapshot) {
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
        // What was there in the old snapshot and is gone: all that was born before it.
        let dead = if phys.prev_snap == old_id {
            super::deadlist::header(mos, phys.deadlist)?.used
        } else {
            super::deadlist::space_between(mos, phys.deadlist, Txg(0), old.creation_txg)?.used
        };
        written = written.wrapping_add_signed(dead);
        id = phys.prev_snap;
        phys = mos.earlier(&phys)?;
    }
    Ok(Some(written))
}

fn origin(inner: &Inner, info: &DatasetInfo) -> Result<Option<String>> {
    let mos = &inner.mos;
    let origin = info.dir.origin;
    if info.is_snapshot() || origin.0 == 0 {
        return Ok(None);
    }
    let snap = mos.dataset(origin)?;
    let special = lookup::child(mos, lookup::root_dir(mos)?, "$ORIGIN")?;
    if Some(snap.dir) == special {
        return Ok(None);
    }
    lookup::snapshot_name(inner, origin).map(Some)
}

/// The mountpoint in effect: set paths are extended by the names below where they were set.
fn mountpoint(inner: &Inner, info: &DatasetInfo) -> Result<(Value, Source)> {
    let root = inner.altroot.as_deref().unwrap_or("").trim_end_matches('/');
    let found = effective(inner, info, "mountpoint", true)?;
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
fn master_node(inner: &Inner, info: &DatasetInfo, key: &str) -> Result<Option<u64>> {
    let objset = dmu::Objset::open(inner.storage.clone(), inner.budget.clone(), info.phys.bp)?;
    Ok(zap::lookup_u64(&*objset.object(ObjectId(1))?, key.as_bytes())?)
}

/// Size and block size of a volume, in bytes.
fn volume(inner: &Inner, info: &DatasetInfo) -> Result<Option<(u64, u64)>> {
    let objset = dmu::Objset::open(inner.storage.clone(), inner.budget.clone(), info.phys.bp)?;
    if objset.os_type() != format::objset::ObjsetType::Zvol {
        return Ok(None);
    }
    let size = zap::lookup_u64(&*objset.object(ObjectId(2))?, b"size")?.unwrap_or(0);
    Ok(Some((size, objset.object(ObjectId(1))?.block_size())))
}

/// User properties in effect, by name.
pub(crate) fn user(inner: &Inner, info: &DatasetInfo) -> Result<Vec<(String, String, Source)>> {
    if info.is_bookmark() {
        return Ok(Vec::new());
    }
    let mos = &inner.mos;
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
    for step in lookup::upward(mos, info.dir_id) {
        collect(step?.1.props_zap)?;
    }
    let mut found = Vec::new();
    for name in names {
        if let Some((Value::Text(value), source)) = effective(inner, info, &name, true)? {
            found.push((name, value, source));
        }
    }
    Ok(found)
}

/// One user property in effect.
pub(crate) fn user_one(inner: &Inner, info: &DatasetInfo, name: &str) -> Result<Option<(String, Source)>> {
    if info.is_bookmark() {
        return Ok(None);
    }
    Ok(match effective(inner, info, name, true)? {
        Some((Value::Text(value), source)) => Some((value, source)),
        _ => None,
    })
}

/// The received value of a property, even when another is in effect.
pub(crate) fn received(inner: &Inner, info: &DatasetInfo, name: &str) -> Result<Option<Value>> {
    let zap_id = if info.is_snapshot() { info.phys.props } else { info.dir.props_zap };
    received_here(&inner.mos, zap_id, name)
}

/// Settings and write policy of a dataset from its properties, by the features last published.
pub(crate) fn settings(inner: &Inner, info: &DatasetInfo) -> Result<(Settings, Policy)> {
    let counts = inner.info().features.clone();
    settings_by(inner, info, &|guid| counts.get(guid).copied())
}

/// As [`settings`], by the features of the syncing txg.
pub(crate) fn settings_with(
    inner: &Inner,
    info: &DatasetInfo,
    features: Option<&Features>,
) -> Result<(Settings, Policy)> {
    settings_by(inner, info, &|guid| features.and_then(|f| f.all().get(guid).copied()))
}

/// What `compression` means in a pool with these features; `on` is what `on` stands for.
fn compression_of(
    value: u64,
    on: CompressionSetting,
    enabled: &dyn Fn(&Feature) -> bool,
) -> std::result::Result<CompressionSetting, Corrupt> {
    let setting = CompressionSetting::from_property(value)?;
    Ok(match setting.algorithm {
        Compression::On | Compression::Inherit | Compression::Empty => on,
        Compression::Lz4 if !enabled(&features::LZ4_COMPRESS) => on,
        Compression::Zstd if !enabled(&features::ZSTD_COMPRESS) => on,
        _ => setting,
    })
}

/// What `checksum` means in a pool with these features.
fn checksum_of(value: u64, enabled: &dyn Fn(&Feature) -> bool) -> std::result::Result<ChecksumKind, Corrupt> {
    Ok(match ChecksumKind::from_disk(value & 0xff)? {
        ChecksumKind::On | ChecksumKind::Inherit => ChecksumKind::Fletcher4,
        kind => match crate::sync::checksum_feature(kind) {
            Some(feature) if !enabled(feature) => ChecksumKind::Fletcher4,
            _ => kind,
        },
    })
}

/// The engine for gzip that a user property names. Any text may stand there; text that names no engine counts as absent.
fn gzip_engine(inner: &Inner, info: &DatasetInfo, algorithm: Compression) -> Result<GzipEngine> {
    let said = match algorithm {
        Compression::Gzip(_) => {
            user_one(inner, info, GZIP_ENGINE)?.and_then(|(word, _)| GzipEngine::named(&word))
        }
        _ => None,
    };
    Ok(said.unwrap_or(GzipEngine::DEFAULT))
}

fn settings_by(
    inner: &Inner,
    info: &DatasetInfo,
    count: &dyn Fn(&str) -> Option<u64>,
) -> Result<(Settings, Policy)> {
    let value = |name: &str| -> Result<u64> {
        let property = props::dataset::parse(name).expect("the property table has it");
        match effective(inner, info, name, property.is_inheritable())? {
            Some((Value::Number(number), _)) => Ok(number),
            _ => Ok(match property.default_value() {
                Some(Value::Number(number)) => number,
                _ => 0,
            }),
        }
    };
    let active = |feature: &Feature| count(feature.guid).is_some_and(|n| n > 0);
    let enabled = |feature: &Feature| count(feature.guid).is_some();
    let on = metadata_compression_of(active(&features::LZ4_COMPRESS));
    let compression =
        compression_of(value("compression")?, on, &enabled).map_err(Error::corrupt(info.dir_id))?;
    let checksum = checksum_of(value("checksum")?, &enabled).map_err(Error::corrupt(info.dir_id))?;
    let copies = value("copies")?.clamp(1, 3) as u8;
    let redundant = match value("redundant_metadata")? {
        0 => Redundant::All,
        1 => Redundant::Most,
        2 => Redundant::Some,
        _ => Redundant::None,
    };
    let record_max = if enabled(&features::LARGE_BLOCKS) { props::BLOCK_MAX } else { props::BLOCK_MAX_PLAIN };
    let slots = match (enabled(&features::LARGE_DNODE), value("dnodesize")?) {
        (false, _) | (true, 0) => 1,
        // `auto` is what OpenZFS uses for it today.
        (true, 1) => 2,
        (true, bytes) => (bytes / 512).clamp(1, 32) as u8,
    };
    let settings = Settings {
        record_size: value("recordsize")?.min(record_max),
        atime: value("atime")? != 0,
        relatime: value("relatime")? != 0,
        xattr_in_sa: value("xattr")? == 2,
        xattr: value("xattr")? != 0,
        posix_acl: value("acltype")? == 1,
        dnode_slots: slots,
        read_only: value("readonly")? != 0,
        cache_data: value("primarycache")? == 2,
        sync: match value("sync")? {
            0 => SyncMode::Standard,
            1 => SyncMode::Always,
            _ => SyncMode::Disabled,
        },
        log_points: value("logbias")? == 1,
        snapdir: match value("snapdir")? {
            0 => SnapDir::Hidden,
            1 => SnapDir::Visible,
            _ => SnapDir::Disabled,
        },
    };
    let policy = Policy {
        compression,
        gzip_engine: gzip_engine(inner, info, compression.algorithm)?,
        metadata_compression: on,
        checksum,
        copies,
        redundant,
        embed: active(&features::EMBEDDED_DATA),
        hole_birth: active(&features::HOLE_BIRTH),
        single: inner.mos.version() < crate::version::COPIES,
        counts_sectors: inner.mos.version() < crate::version::DEFLATED,
    };
    Ok((settings, policy))
}
