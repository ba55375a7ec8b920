//! The pool's feature flags: which are enabled, which are active, and what that allows.
//!
//! Source: docs/format/06-mos-dsl.md §2.

use std::collections::BTreeMap;
use std::sync::Arc;

use dmu::{Object, Tx, zap};
use format::ObjectId;
use format::features::{self, Feature};
use format::zap::Value;

use crate::Result;
use crate::mos::Mos;

/// Active features that this build reads.
const READABLE: &[&str] = &[
    "async_destroy",
    "empty_bpobj",
    "lz4_compress",
    "multi_vdev_crash_dump",
    "spacemap_histogram",
    "enabled_txg",
    "hole_birth",
    "extensible_dataset",
    "embedded_data",
    "bookmarks",
    "filesystem_limits",
    "large_blocks",
    "large_dnode",
    "sha512",
    "skein",
    "edonr",
    "userobj_accounting",
    "encryption",
    "project_quota",
    "device_removal",
    "obsolete_counts",
    "zpool_checkpoint",
    "spacemap_v2",
    "allocation_classes",
    "resilver_defer",
    "bookmark_v2",
    "redaction_bookmarks",
    "redacted_datasets",
    "bookmark_written",
    "log_spacemap",
    "livelist",
    "device_rebuild",
    "draid",
    "zstd_compress",
    "zilsaxattr",
    "head_errlog",
    "blake3",
    "block_cloning",
    "vdev_zaps_v2",
    "redaction_list_spill",
    "raidz_expansion",
    "fast_dedup",
    "longname",
    "large_microzap",
    "block_cloning_endian",
    "dynamic_gang_header",
    "physical_rewrite",
];

/// The readable features that this build does not write.
const READ_ONLY: &[&str] = &["redaction_list_spill"];

fn is_writable(feature: &Feature) -> bool {
    READABLE.contains(&feature.name) && !READ_ONLY.contains(&feature.name)
}

/// A feature as the user sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureState {
    /// Not enabled.
    Disabled,
    /// Enabled, nothing uses it.
    Enabled,
    /// In use.
    Active,
}

impl FeatureState {
    /// The word that `zpool get` prints.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            FeatureState::Disabled => "disabled",
            FeatureState::Enabled => "enabled",
            FeatureState::Active => "active",
        }
    }
}

/// The feature ZAPs, with their reference counts in memory.
pub struct Features {
    for_read: Arc<Object>,
    for_write: Arc<Object>,
    descriptions: Arc<Object>,
    enabled_txg: Option<Arc<Object>>,
    /// guid → count, over both ZAPs.
    counts: BTreeMap<String, u64>,
}

impl Features {
    /// The features of the pool; none for a pool of a legacy version.
    pub fn load(mos: &Mos) -> Result<Option<Features>> {
        let Some(for_read) = mos.directory_object("features_for_read")? else { return Ok(None) };
        let open = |id: ObjectId| mos.object(id);
        let enabled_txg = mos.directory_object("feature_enabled_txg")?.map(open).transpose()?;
        let mut features = Features {
            for_read: open(for_read)?,
            for_write: open(mos.need("features_for_write")?)?,
            descriptions: open(mos.need("feature_descriptions")?)?,
            enabled_txg,
            counts: BTreeMap::new(),
        };
        for object in [&features.for_read, &features.for_write] {
            for entry in zap::entries(object) {
                let entry = entry?;
                let guid = String::from_utf8_lossy(&entry.name).into_owned();
                features.counts.insert(guid, entry.number().unwrap_or(0));
            }
        }
        Ok(Some(features))
    }

    /// Creates the (empty) ZAPs in a new pool's MOS.
    pub fn create(mos: &Mos, tx: &Tx) -> Result<Features> {
        let new = |key| -> Result<Arc<Object>> {
            let object = mos.create_zap(tx, format::ObjectType::ZAP_METADATA, 0)?;
            mos.set_directory(tx, key, &Value::from_u64(object.id().0))?;
            Ok(object)
        };
        Ok(Features {
            for_read: new("features_for_read")?,
            for_write: new("features_for_write")?,
            descriptions: new("feature_descriptions")?,
            enabled_txg: None,
            counts: BTreeMap::new(),
        })
    }

    fn zap_of(&self, feature: &Feature) -> &Arc<Object> {
        if feature.read_only_compatible { &self.for_write } else { &self.for_read }
    }

    /// Reference count of the feature; `None` when it is not enabled.
    pub fn count(&self, feature: &Feature) -> Option<u64> {
        self.counts.get(feature.guid).copied()
    }

    /// Whether the pool may use the feature.
    pub fn is_enabled(&self, feature: &Feature) -> bool {
        self.count(feature).is_some()
    }

    /// Whether something on disk uses the feature now, so that a build without it must not open the pool.
    pub fn is_active(&self, feature: &Feature) -> bool {
        self.count(feature).is_some_and(|count| count > 0)
    }

    /// Enables a feature and those it depends on. Returns whether the label's list changes.
    pub fn enable(&mut self, mos: &Mos, tx: &Tx, feature: &'static Feature) -> Result<()> {
        if self.is_enabled(feature) {
            return Ok(());
        }
        for name in feature.depends_on {
            let dependency = features::by_name(name).expect("the table names only features it has");
            self.enable(mos, tx, dependency)?;
        }
        let text = Value::from_text(feature.description);
        zap::update(&self.descriptions, tx, feature.guid.as_bytes(), &text)?;
        self.set_count(tx, feature, u64::from(feature.activate_on_enable))?;
        if self.is_enabled(&features::ENABLED_TXG) {
            if self.enabled_txg.is_none() {
                let object = mos.create_zap(tx, format::ObjectType::ZAP_METADATA, 0)?;
                mos.set_directory(tx, "feature_enabled_txg", &Value::from_u64(object.id().0))?;
                self.enabled_txg = Some(object);
            }
            let object = self.enabled_txg.as_ref().expect("made above if it was missing");
            zap::update(object, tx, feature.guid.as_bytes(), &Value::from_u64(tx.txg().0))?;
            self.adjust(tx, &features::ENABLED_TXG, 1)?;
        }
        Ok(())
    }

    fn set_count(&mut self, tx: &Tx, feature: &Feature, count: u64) -> Result<()> {
        zap::update(self.zap_of(feature), tx, feature.guid.as_bytes(), &Value::from_u64(count))?;
        self.counts.insert(feature.guid.to_owned(), count);
        Ok(())
    }

    /// Adds to the reference count of an enabled feature.
    ///
    /// # Panics
    /// If the feature is not enabled or its count would fall below zero.
    pub fn adjust(&mut self, tx: &Tx, feature: &Feature, by: i64) -> Result<()> {
        let before = self.count(feature).expect("only enabled features are counted");
        let after = before.checked_add_signed(by).expect("a feature is given up as often as it was taken");
        self.set_count(tx, feature, after)
    }

    /// guids that every label must name: the active ones that boot loaders must know.
    pub fn label_list(&self) -> Vec<String> {
        let active = |guid: &&String| self.counts.get(*guid).is_some_and(|&count| count > 0);
        let in_label = |guid: &&String| features::by_guid(guid).is_some_and(|feature| feature.mos);
        self.counts.keys().filter(active).filter(in_label).cloned().collect()
    }

    /// Active features that this build cannot read at all, and those it cannot write.
    pub fn unsupported(&self) -> (Vec<String>, Vec<String>) {
        let mut unreadable = Vec::new();
        let mut unwritable = Vec::new();
        for (guid, _) in self.counts.iter().filter(|(_, count)| **count > 0) {
            match features::by_guid(guid) {
                Some(feature) if is_writable(feature) => {}
                Some(feature) if READABLE.contains(&feature.name) => unwritable.push(feature.name.to_owned()),
                Some(feature) if feature.read_only_compatible => unwritable.push(feature.name.to_owned()),
                Some(feature) => unreadable.push(feature.name.to_owned()),
                None if self.is_for_write(guid) => unwritable.push(guid.clone()),
                None => unreadable.push(guid.clone()),
            }
        }
        (unreadable, unwritable)
    }

    fn is_for_write(&self, guid: &str) -> bool {
        matches!(zap::lookup_u64(&self.for_write, guid.as_bytes()), Ok(Some(_)))
    }

    /// All guids the pool knows with their counts, also those this build does not.
    pub fn all(&self) -> &BTreeMap<String, u64> {
        &self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_features_says_what_is_read_and_written() {
        let page = include_str!("../../../docs/compatibility.md");
        let rows: Vec<Vec<&str>> =
            page.lines().map(|line| line.split('|').map(str::trim).collect()).collect();
        let yes = |is: bool| if is { "yes" } else { "no" };
        for feature in features::ALL {
            let written = is_writable(feature);
            // A feature of this kind prevents no program from reading.
            let read = READABLE.contains(&feature.name) || feature.read_only_compatible;
            let name = format!("`{}`", feature.name);
            let row = rows.iter().find(|row| row.get(1) == Some(&name.as_str()));
            let row = row.unwrap_or_else(|| panic!("docs/compatibility.md has no row for {name}"));
            assert_eq!(row[3..5], [yes(read), yes(written)], "{name}");
        }
        for name in READABLE {
            assert!(features::by_name(name).is_some(), "{name} is a feature");
        }
        assert!(READ_ONLY.iter().all(|name| READABLE.contains(name)), "what is not written is read");
    }
}
