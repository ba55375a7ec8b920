//! Feature flags of pools of version 5000.
//!
//! From:   the feature ZAPs of the MOS and `features_for_read` of labels, which name features by guid.
//! To:     `pool`, which refuses unknown features; `cli`, which lists them.
//! Source: docs/format/06-mos-dsl.md §2.

mod sets;

pub use sets::{SETS, Set, of_new_pools, set};

/// The release of OpenZFS that a feature came with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names are those of the releases")]
pub enum Release {
    /// 0.8 or before.
    V0_8,
    V2_0,
    V2_1,
    V2_2,
    V2_3,
    V2_4,
    /// After 2.4.
    Later,
}

/// A feature flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feature {
    /// Short name, as in the property `feature@name`.
    pub name: &'static str,
    /// Name in the pool.
    pub guid: &'static str,
    /// A short description.
    pub description: &'static str,
    /// Software that does not know it may read the pool, but not write it.
    pub read_only_compatible: bool,
    /// While active it is named in every label, because boot loaders must know it.
    pub mos: bool,
    /// It is active as soon as it is enabled.
    pub activate_on_enable: bool,
    /// Datasets that use it carry its guid, and its count is the number of these datasets.
    pub per_dataset: bool,
    /// `zpool upgrade` does not enable it.
    pub no_upgrade: bool,
    /// Names of the features that must be enabled too.
    pub depends_on: &'static [&'static str],
    /// When it came.
    pub since: Release,
}

const READ_ONLY: u8 = 1;
const MOS: u8 = 2;
const AT_ONCE: u8 = 4;
const PER_DATASET: u8 = 8;
const NO_UPGRADE: u8 = 16;

macro_rules! features {
    ($($const:ident = $name:literal, $guid:literal, $since:ident, $flags:expr, [$($dep:literal),*],
        $description:literal;)*) => {
        $(
            #[doc = $description]
            pub const $const: Feature = Feature {
                name: $name,
                guid: $guid,
                description: $description,
                read_only_compatible: $flags & READ_ONLY != 0,
                mos: $flags & MOS != 0,
                activate_on_enable: $flags & AT_ONCE != 0,
                per_dataset: $flags & PER_DATASET != 0,
                no_upgrade: $flags & NO_UPGRADE != 0,
                depends_on: &[$($dep),*],
                since: Release::$since,
            };
        )*
        /// All features, in the order in which OpenZFS lists and enables them.
        pub static ALL: &[Feature] = &[$($const),*];
    };
}

features! {
    ASYNC_DESTROY = "async_destroy", "com.delphix:async_destroy", V0_8, READ_ONLY, [],
        "file systems are destroyed in the background";
    EMPTY_BPOBJ = "empty_bpobj", "com.delphix:empty_bpobj", V0_8, READ_ONLY, [],
        "snapshots share one object for empty lists of blocks";
    LZ4_COMPRESS = "lz4_compress", "org.illumos:lz4_compress", V0_8, AT_ONCE, [],
        "lz4 compression";
    MULTI_VDEV_CRASH_DUMP = "multi_vdev_crash_dump", "com.joyent:multi_vdev_crash_dump", V0_8, 0, [],
        "crash dumps may go to several vdevs";
    SPACEMAP_HISTOGRAM = "spacemap_histogram", "com.delphix:spacemap_histogram", V0_8, READ_ONLY, [],
        "space maps keep histograms of free segments";
    ENABLED_TXG = "enabled_txg", "com.delphix:enabled_txg", V0_8, READ_ONLY, [],
        "the txg in which each feature was enabled is kept";
    HOLE_BIRTH = "hole_birth", "com.delphix:hole_birth", V0_8, MOS | AT_ONCE, ["enabled_txg"],
        "holes keep their birth txg, which makes incremental sends exact";
    EXTENSIBLE_DATASET = "extensible_dataset", "com.delphix:extensible_dataset", V0_8, 0, [],
        "datasets may carry further attributes";
    EMBEDDED_DATA = "embedded_data", "com.delphix:embedded_data", V0_8, MOS | AT_ONCE, [],
        "blocks that compress very well live in their block pointers";
    BOOKMARKS = "bookmarks", "com.delphix:bookmarks", V0_8, READ_ONLY, ["extensible_dataset"],
        "bookmarks: small markers from which incremental sends start";
    FILESYSTEM_LIMITS = "filesystem_limits", "com.joyent:filesystem_limits", V0_8, READ_ONLY, ["extensible_dataset"],
        "limits on the number of file systems and snapshots";
    LARGE_BLOCKS = "large_blocks", "org.open-zfs:large_blocks", V0_8, PER_DATASET, ["extensible_dataset"],
        "blocks larger than 128 KiB";
    LARGE_DNODE = "large_dnode", "org.zfsonlinux:large_dnode", V0_8, PER_DATASET, ["extensible_dataset"],
        "dnodes of variable size";
    SHA512 = "sha512", "org.illumos:sha512", V0_8, PER_DATASET, ["extensible_dataset"],
        "SHA-512/256 checksums";
    SKEIN = "skein", "org.illumos:skein", V0_8, PER_DATASET, ["extensible_dataset"],
        "Skein checksums";
    EDONR = "edonr", "org.illumos:edonr", V0_8, PER_DATASET, ["extensible_dataset"],
        "Edon-R checksums";
    USEROBJ_ACCOUNTING = "userobj_accounting", "org.zfsonlinux:userobj_accounting", V0_8, READ_ONLY | PER_DATASET, ["extensible_dataset"],
        "objects are counted per user and group";
    ENCRYPTION = "encryption", "com.datto:encryption", V0_8, PER_DATASET, ["extensible_dataset", "bookmark_v2"],
        "encrypted datasets";
    PROJECT_QUOTA = "project_quota", "org.zfsonlinux:project_quota", V0_8, READ_ONLY | PER_DATASET, ["extensible_dataset"],
        "space and objects are counted and limited per project";
    DEVICE_REMOVAL = "device_removal", "com.delphix:device_removal", V0_8, MOS, [],
        "top-level vdevs can be removed";
    OBSOLETE_COUNTS = "obsolete_counts", "com.delphix:obsolete_counts", V0_8, READ_ONLY, ["extensible_dataset", "device_removal"],
        "the remapping of removed vdevs shrinks as blocks are freed";
    ZPOOL_CHECKPOINT = "zpool_checkpoint", "com.delphix:zpool_checkpoint", V0_8, READ_ONLY, [],
        "the whole pool can be set back to a checkpoint";
    SPACEMAP_V2 = "spacemap_v2", "com.delphix:spacemap_v2", V0_8, READ_ONLY | AT_ONCE, [],
        "space map entries of two words for large ranges";
    ALLOCATION_CLASSES = "allocation_classes", "org.zfsonlinux:allocation_classes", V0_8, READ_ONLY, [],
        "vdevs dedicated to metadata, small blocks or dedup tables";
    RESILVER_DEFER = "resilver_defer", "com.datto:resilver_defer", V0_8, READ_ONLY, [],
        "a new resilver waits for the running one";
    BOOKMARK_V2 = "bookmark_v2", "com.datto:bookmark_v2", V0_8, 0, ["extensible_dataset", "bookmarks"],
        "bookmarks of encrypted and larger kinds";
    REDACTION_BOOKMARKS = "redaction_bookmarks", "com.delphix:redaction_bookmarks", V2_0, 0, ["bookmark_v2", "extensible_dataset", "bookmarks"],
        "bookmarks that list redacted blocks";
    REDACTED_DATASETS = "redacted_datasets", "com.delphix:redacted_datasets", V2_0, PER_DATASET, ["extensible_dataset"],
        "datasets received from redacted sends";
    BOOKMARK_WRITTEN = "bookmark_written", "com.delphix:bookmark_written", V2_0, 0, ["bookmark_v2", "extensible_dataset", "bookmarks"],
        "bookmarks know how much was written since";
    LOG_SPACEMAP = "log_spacemap", "com.delphix:log_spacemap", V2_0, READ_ONLY, ["spacemap_v2"],
        "changes of all metaslabs of a txg are logged together";
    LIVELIST = "livelist", "com.delphix:livelist", V2_0, READ_ONLY, ["extensible_dataset"],
        "clones are destroyed faster";
    DEVICE_REBUILD = "device_rebuild", "org.openzfs:device_rebuild", V2_0, READ_ONLY, [],
        "mirrors and dRAID can be rebuilt in sequence";
    ZSTD_COMPRESS = "zstd_compress", "org.freebsd:zstd_compress", V2_0, PER_DATASET, ["extensible_dataset"],
        "Zstandard compression";
    DRAID = "draid", "org.openzfs:draid", V2_1, MOS, [],
        "dRAID: parity with distributed spares";
    ZILSAXATTR = "zilsaxattr", "org.openzfs:zilsaxattr", V2_2, READ_ONLY | PER_DATASET, ["extensible_dataset"],
        "extended attributes in the intent log";
    HEAD_ERRLOG = "head_errlog", "com.delphix:head_errlog", V2_2, AT_ONCE, [],
        "errors are logged per dataset";
    BLAKE3 = "blake3", "org.openzfs:blake3", V2_2, PER_DATASET, ["extensible_dataset"],
        "BLAKE3 checksums";
    BLOCK_CLONING = "block_cloning", "com.fudosecurity:block_cloning", V2_2, READ_ONLY, [],
        "files can share blocks";
    VDEV_ZAPS_V2 = "vdev_zaps_v2", "com.klarasystems:vdev_zaps_v2", V2_2, MOS, [],
        "the root vdev has properties too";
    REDACTION_LIST_SPILL = "redaction_list_spill", "com.delphix:redaction_list_spill", V2_3, 0, ["redaction_bookmarks"],
        "redaction lists may be longer";
    RAIDZ_EXPANSION = "raidz_expansion", "org.openzfs:raidz_expansion", V2_3, MOS, [],
        "disks can be added to a raidz vdev";
    FAST_DEDUP = "fast_dedup", "com.klarasystems:fast_dedup", V2_3, READ_ONLY, [],
        "dedup tables with a log and a quota";
    LONGNAME = "longname", "org.zfsonlinux:longname", V2_3, PER_DATASET, ["extensible_dataset"],
        "file names of up to 1023 bytes";
    LARGE_MICROZAP = "large_microzap", "com.klarasystems:large_microzap", V2_3, READ_ONLY | PER_DATASET, ["extensible_dataset", "large_blocks"],
        "micro ZAPs larger than 128 KiB";
    BLOCK_CLONING_ENDIAN = "block_cloning_endian", "com.truenas:block_cloning_endian", V2_4, READ_ONLY, [],
        "shared blocks are counted in the pool's byte order";
    DYNAMIC_GANG_HEADER = "dynamic_gang_header", "com.klarasystems:dynamic_gang_header", V2_4, MOS | NO_UPGRADE, [],
        "gang headers larger than a sector";
    PHYSICAL_REWRITE = "physical_rewrite", "com.truenas:physical_rewrite", V2_4, READ_ONLY | PER_DATASET, ["extensible_dataset"],
        "files can be rewritten in place without touching their logical birth";
    DRAID_FAILURE_DOMAINS = "draid_failure_domains", "com.seagate:draid_failure_domains", Later, MOS, ["draid"],
        "dRAID survives the loss of whole enclosures";
}

/// The feature with this guid.
#[must_use]
pub fn by_guid(guid: &str) -> Option<&'static Feature> {
    ALL.iter().find(|feature| feature.guid == guid)
}

/// The feature with this short name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Feature> {
    ALL.iter().find(|feature| feature.name == name)
}

/// The features that OpenZFS on Linux knows in this release, in table order.
pub fn of_release(release: Release) -> impl Iterator<Item = &'static Feature> {
    ALL.iter().filter(move |feature| feature.since <= release)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn names_and_guids_are_unique_and_dependencies_known() {
        for (i, feature) in ALL.iter().enumerate() {
            assert_eq!(by_guid(feature.guid), Some(feature));
            assert_eq!(by_name(feature.name), Some(feature));
            assert!(feature.guid.ends_with(feature.name), "{}", feature.guid);
            for name in feature.depends_on {
                let needed = by_name(name).unwrap();
                assert_ne!(needed.name, feature.name);
                assert!(needed.since <= feature.since, "{} needs {name}", feature.name);
            }
            assert!(ALL[..i].iter().all(|other| other.description != feature.description));
        }
        assert_eq!(ALL.len(), 48);
    }

    #[test]
    fn labels_name_only_what_boot_loaders_must_know() {
        let mos: Vec<_> = of_release(Release::V2_1).filter(|f| f.mos).map(|f| f.name).collect();
        assert_eq!(mos, ["hole_birth", "embedded_data", "device_removal", "draid"]);
    }
}
