//! Settings for reading and writing a dataset, from its properties.
//!
//! Source: docs/format/06-mos-dsl.md §10.

use std::collections::BTreeMap;

use dmu::{Dedup, Policy, Redundant};
use format::compression::CompressionSetting;
use format::features::{self, Feature};
use format::{ChecksumKind, Compression, Corrupt, ddt};
use storage::{GzipEngine, Secondary};

use crate::info::DatasetInfo;
use crate::properties::{effective, user_one};
use crate::props::names::GZIP_ENGINE;
use crate::props::{self, Value};
use crate::view::View;
use crate::{Error, Result, keys, version};

/// Bit of the property `dedup`: contents are compared.
const VERIFY: u64 = 1 << 8;

/// Property values that apply to reading and writing; refreshed when a property changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Largest block of a new file, in bytes.
    pub record_size: u64,
    /// Access times are kept.
    pub atime: bool,
    /// ... but only when older than the modification, or a day.
    pub relatime: bool,
    /// Extended attributes go into the file's own attributes where they fit.
    pub xattr_in_sa: bool,
    /// Extended attributes may be used at all.
    pub xattr: bool,
    /// POSIX ACLs may be used.
    pub posix_acl: bool,
    /// 512-byte slots of a new dnode.
    pub dnode_slots: u8,
    /// Nothing may be changed.
    pub read_only: bool,
    /// Data read is kept in the cache.
    pub cache_data: bool,
    /// When changes are made safe.
    pub sync: SyncMode,
    /// Even small writes go to their final blocks, and the intent log points at them (`logbias=throughput`).
    pub log_points: bool,
    /// Whether a mount shows the snapshots.
    pub snapdir: SnapDir,
}

/// Values of the property `snapdir`: how a mount shows `.zfs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapDir {
    /// To those who know the name.
    Hidden,
    /// In listings of the root, too.
    Visible,
    /// Not at all.
    Disabled,
}

/// Values of the property `sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMode {
    /// When a program calls `fsync`.
    Standard,
    /// Each of them, at once.
    Always,
    /// With their txg, even without a call of `fsync`.
    Disabled,
}

/// Features that a pool has enabled, and how many use each.
struct Enabled<'a>(Option<&'a BTreeMap<String, u64>>);

impl Enabled<'_> {
    fn count(&self, feature: &Feature) -> Option<u64> {
        self.0.and_then(|counts| counts.get(feature.guid).copied())
    }

    fn has(&self, feature: &Feature) -> bool {
        self.count(feature).is_some()
    }

    fn uses(&self, feature: &Feature) -> bool {
        self.count(feature).is_some_and(|count| count > 0)
    }
}

/// The number that a property has in effect, or its default.
fn number(view: &View<'_>, info: &DatasetInfo, name: &str) -> Result<u64> {
    let property = props::dataset::parse(name).expect("the property table has it");
    match effective(view, info, name, property.is_inheritable())? {
        Some((Value::Number(number), _)) => Ok(number),
        _ => Ok(match property.default_value() {
            Some(Value::Number(number)) => number,
            _ => 0,
        }),
    }
}

/// Whether a volume, or a snapshot of one, is shown to programs: `volmode` hides both, `snapdev` shows snapshots.
///
/// # Errors
/// The properties cannot be read.
pub fn is_shown_volume(view: &View<'_>, info: &DatasetInfo) -> Result<bool> {
    const VOLMODE_NONE: u64 = 3;
    const SNAPDEV_VISIBLE: u64 = 1;
    let is_hidden = number(view, info, "volmode")? == VOLMODE_NONE;
    Ok(!is_hidden && (!info.is_snapshot() || number(view, info, "snapdev")? == SNAPDEV_VISIBLE))
}

/// Settings and write policy of a dataset from its properties, in a pool with these features enabled (`None`: of a legacy
/// version) and so many users of each.
///
/// # Errors
/// The properties cannot be read or have invalid values.
pub fn settings(
    view: &View<'_>,
    info: &DatasetInfo,
    features: Option<&BTreeMap<String, u64>>,
) -> Result<(Settings, Policy)> {
    let enabled = Enabled(features);
    Ok((behaviour(view, info, &enabled)?, policy(view, info, &enabled)?))
}

fn behaviour(view: &View<'_>, info: &DatasetInfo, enabled: &Enabled<'_>) -> Result<Settings> {
    let record_max =
        if enabled.has(&features::LARGE_BLOCKS) { props::BLOCK_MAX } else { props::BLOCK_MAX_PLAIN };
    // CCM with the 12 bytes of ZFS's initialisation vectors seals less than 2^24 bytes at a time.
    let is_ccm = keys::of(view.mos, info.dir_id)?.is_some_and(|object| object.wrapped.suite.is_ccm());
    let record_max = if is_ccm { record_max.min(props::BLOCK_MAX / 2) } else { record_max };
    let slots = match (enabled.has(&features::LARGE_DNODE), number(view, info, "dnodesize")?) {
        (false, _) | (true, 0) => 1,
        // `auto` is the value that OpenZFS uses for it today.
        (true, 1) => 2,
        (true, bytes) => (bytes / 512).clamp(1, 32) as u8,
    };
    Ok(Settings {
        record_size: number(view, info, "recordsize")?.min(record_max),
        atime: number(view, info, "atime")? != 0,
        relatime: number(view, info, "relatime")? != 0,
        xattr_in_sa: number(view, info, "xattr")? == 2,
        xattr: number(view, info, "xattr")? != 0,
        posix_acl: number(view, info, "acltype")? == 1,
        dnode_slots: slots,
        read_only: number(view, info, "readonly")? != 0,
        cache_data: number(view, info, "primarycache")? == 2,
        sync: match number(view, info, "sync")? {
            0 => SyncMode::Standard,
            1 => SyncMode::Always,
            _ => SyncMode::Disabled,
        },
        log_points: number(view, info, "logbias")? == 1,
        snapdir: match number(view, info, "snapdir")? {
            0 => SnapDir::Hidden,
            1 => SnapDir::Visible,
            _ => SnapDir::Disabled,
        },
    })
}

fn policy(view: &View<'_>, info: &DatasetInfo, enabled: &Enabled<'_>) -> Result<Policy> {
    let on = metadata_compression(enabled.uses(&features::LZ4_COMPRESS));
    let compression = compression_of(number(view, info, "compression")?, on, enabled)
        .map_err(Error::corrupt(info.dir_id))?;
    let checksum =
        checksum_of(number(view, info, "checksum")?, enabled).map_err(Error::corrupt(info.dir_id))?;
    let copies = number(view, info, "copies")?.clamp(1, 3) as u8;
    let redundant = match number(view, info, "redundant_metadata")? {
        0 => Redundant::All,
        1 => Redundant::Most,
        2 => Redundant::Some,
        _ => Redundant::None,
    };
    Ok(Policy {
        compression,
        gzip_engine: gzip_engine(view, info, compression.algorithm)?,
        metadata_compression: on,
        checksum,
        copies,
        dedup: dedup(view, info, enabled)?,
        redundant,
        small_blocks: number(view, info, "special_small_blocks")?,
        embed: enabled.uses(&features::EMBEDDED_DATA),
        hole_birth: enabled.uses(&features::HOLE_BIRTH),
        single: view.mos.version() < version::COPIES,
        counts_sectors: view.mos.version() < version::DEFLATED,
        secondary: secondary(number(view, info, "primarycache")?, number(view, info, "secondarycache")?),
        encrypted: keys::object_of(view.mos, info.dir_id)?.is_some(),
    })
}

/// Blocks for cache devices (0: none, 1: metadata, 2: all). Blocks that are not cached in memory never go there.
fn secondary(primarycache: u64, secondarycache: u64) -> Secondary {
    match primarycache.min(secondarycache) {
        0 => Secondary::None,
        1 => Secondary::Metadata,
        _ => Secondary::All,
    }
}

/// The compression that the value of the property `compression` means in a pool with these features. `on` is the
/// meaning of the value `on`.
fn compression_of(
    value: u64,
    on: CompressionSetting,
    enabled: &Enabled<'_>,
) -> std::result::Result<CompressionSetting, Corrupt> {
    let setting = CompressionSetting::from_property(value)?;
    Ok(match setting.algorithm {
        Compression::On | Compression::Inherit | Compression::Empty => on,
        Compression::Lz4 if !enabled.has(&features::LZ4_COMPRESS) => on,
        Compression::Zstd if !enabled.has(&features::ZSTD_COMPRESS) => on,
        _ => setting,
    })
}

/// The checksum that the value of the property `checksum` means in a pool with these features.
fn checksum_of(value: u64, enabled: &Enabled<'_>) -> std::result::Result<ChecksumKind, Corrupt> {
    Ok(match ChecksumKind::from_disk(value & 0xff)? {
        ChecksumKind::On | ChecksumKind::Inherit => ChecksumKind::Fletcher4,
        kind => match checksum_feature(kind) {
            Some(feature) if !enabled.has(feature) => ChecksumKind::Fletcher4,
            _ => kind,
        },
    })
}

/// The deduplication that the property `dedup` means in this pool. Encrypted blocks are not deduplicated.
fn dedup(view: &View<'_>, info: &DatasetInfo, enabled: &Enabled<'_>) -> Result<Option<Dedup>> {
    let value = number(view, info, "dedup")?;
    let checksum = ChecksumKind::from_disk(value & 0xff).map_err(Error::corrupt(info.dir_id))?;
    let checksum = match checksum {
        ChecksumKind::On => ChecksumKind::Sha256,
        kind if ddt::KINDS.iter().any(|(known, _)| *known == kind) => kind,
        _ => return Ok(None),
    };
    let known = checksum_feature(checksum).is_none_or(|feature| enabled.has(feature));
    let possible =
        known && view.mos.version() >= version::DEDUP && keys::object_of(view.mos, info.dir_id)?.is_none();
    // Two blocks with the same checksum of this kind may differ.
    let verify = value & VERIFY != 0 || checksum == ChecksumKind::Edonr;
    Ok(possible.then_some(Dedup { checksum, verify }))
}

/// The engine for gzip that a user property names. Any text may stand there; text that names no engine counts as absent.
fn gzip_engine(view: &View<'_>, info: &DatasetInfo, algorithm: Compression) -> Result<GzipEngine> {
    let said = match algorithm {
        Compression::Gzip(_) => {
            user_one(view, info, GZIP_ENGINE)?.and_then(|(word, _)| GzipEngine::named(&word))
        }
        _ => None,
    };
    Ok(said.unwrap_or(GzipEngine::DEFAULT))
}

/// The feature that a checksum kind needs.
#[must_use]
pub fn checksum_feature(kind: ChecksumKind) -> Option<&'static Feature> {
    match kind {
        ChecksumKind::Sha512 => Some(&features::SHA512),
        ChecksumKind::Skein => Some(&features::SKEIN),
        ChecksumKind::Edonr => Some(&features::EDONR),
        ChecksumKind::Blake3 => Some(&features::BLAKE3),
        _ => None,
    }
}

/// The compression of metadata, and of data under `compression=on`, in a pool whose feature lz4 is active or not.
#[must_use]
pub const fn metadata_compression(lz4: bool) -> CompressionSetting {
    if lz4 { CompressionSetting::LZ4 } else { CompressionSetting::plain(Compression::Lzjb) }
}
